"use strict";
// The history of a card: entries are decoded once into arrays; for drawing, the largest moment of each
// 64 entries is kept with what filled it, so that a million entries cost no more than a screen.
const $ = (id) => document.getElementById(id);
const TAKES = 0, GIVES = 1, RESERVES = 2, RETURNS = 3, FAILS = 4;
const CHUNK = 64, ROWS = 40, LEAST = 20;
// Colours of Okabe and Ito, which the colour-blind tell apart.
const COLOURS = {
  parameters: "#0072b2", "optimizer-state": "#56b4e9", "optimizer-work": "#9ec9e2", activations: "#e69f00",
  backward: "#d55e00", communication: "#009e73", workspace: "#cc79a7", other: "#8c959f",
};
const KINDS = Object.keys(COLOURS);

const size = (bytes) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0, figure = bytes;
  while (Math.abs(figure) >= 1024 && unit < 4) { figure /= 1024; unit += 1; }
  return `${unit === 0 || figure >= 100 ? Math.round(figure) : figure.toFixed(figure >= 10 ? 1 : 2)} ${units[unit]}`;
};
const count = (number) => number.toLocaleString("en-US");
const clock = (us) => us >= 1e6 ? `${(us / 1e6).toFixed(3)} s` : us >= 1e3 ? `${(us / 1e3).toFixed(2)} ms` : `${us} µs`;

async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function decode(bytes, length) {
  let at = 0;
  const next = () => {
    let value = 0, scale = 1, byte;
    do { byte = bytes[at++]; value += (byte & 127) * scale; scale *= 128; } while (byte & 128);
    return value;
  };
  const entries = { length, after: new Float64Array(length), does: new Uint8Array(length), group: new Uint32Array(length), bytes: new Float64Array(length) };
  let after = 0;
  for (let i = 0; i < length; i += 1) {
    after += next();
    const what = next();
    entries.after[i] = after;
    entries.does[i] = what & 7;
    entries.group[i] = what >>> 3;
    entries.bytes[i] = next();
  }
  return entries;
}

class Card {
  constructor(meta, entries) {
    Object.assign(this, meta, { entries });
    this.kinds = this.groups.map((group) => KINDS.indexOf(group.category));
    const first = new Float64Array(KINDS.length);
    this.groups.forEach((group, i) => { first[this.kinds[i]] += group.first_bytes; });
    this.first = first;
    // For each chunk: what was live at its begin, and its largest moment.
    const chunks = Math.ceil(entries.length / CHUNK) || 1;
    this.begins = new Float64Array(chunks * (KINDS.length + 1));
    this.tops = new Float64Array(chunks * (KINDS.length + 1));
    this.failures = [];
    this.most = 0; this.peak = 0;
    const state = this.start(0);
    let highest = 0;
    for (let chunk = 0; chunk < chunks; chunk += 1) {
      this.begins.set(state.now, chunk * state.now.length);
      let top = -1;
      const end = Math.min(entries.length, (chunk + 1) * CHUNK);
      for (let i = chunk * CHUNK; i < end; i += 1) {
        this.play(state, i);
        if (entries.does[i] === FAILS) this.failures.push(i);
        const live = state.live;
        if (live > top) { top = live; this.tops.set(state.now, chunk * state.now.length); }
        if (live > highest) { highest = live; this.peak = i; }
        this.most = Math.max(this.most, live, state.now[KINDS.length]);
      }
    }
  }
  // What is live by kind, and reserved behind it, before an entry of a chunk's begin.
  start(chunk) {
    const width = KINDS.length + 1;
    const now = chunk === 0 ? Float64Array.from([...this.first, this.first_reserved]) : this.begins.slice(chunk * width, (chunk + 1) * width);
    let live = 0;
    for (let kind = 0; kind < KINDS.length; kind += 1) live += now[kind];
    return { now, live };
  }
  play(state, i) {
    const { does, group, bytes } = this.entries;
    switch (does[i]) {
      case TAKES: state.now[this.kinds[group[i]]] += bytes[i]; state.live += bytes[i]; break;
      case GIVES: state.now[this.kinds[group[i]]] -= bytes[i]; state.live -= bytes[i]; break;
      case RESERVES: state.now[KINDS.length] += bytes[i]; break;
      case RETURNS: state.now[KINDS.length] -= bytes[i]; break;
    }
  }
  // The largest moment of the entries from a up to b, and the most that was reserved in them.
  top(a, b) {
    const width = KINDS.length + 1;
    const sum = (all, from) => { let live = 0; for (let k = 0; k < KINDS.length; k += 1) live += all[from + k]; return live; };
    let best = null, most = -1, reserved = 0;
    const look = (all, from) => {
      const live = sum(all, from);
      if (live > most) { most = live; best = all.slice(from, from + width); }
      reserved = Math.max(reserved, all[from + KINDS.length]);
    };
    let chunk = Math.floor(a / CHUNK);
    if (a % CHUNK !== 0 || b - a < CHUNK) {
      const state = this.start(chunk);
      const end = Math.min(b, (chunk + 1) * CHUNK);
      for (let i = chunk * CHUNK; i < end; i += 1) { this.play(state, i); if (i >= a) look(state.now, 0); }
      chunk += 1;
    }
    for (; (chunk + 1) * CHUNK <= b; chunk += 1) look(this.tops, chunk * width);
    if (chunk * CHUNK < b) {
      const state = this.start(chunk);
      for (let i = chunk * CHUNK; i < b; i += 1) { this.play(state, i); look(state.now, 0); }
    }
    return { now: best, live: most, reserved };
  }
  // What each group has after an entry.
  groupsAfter(entry) {
    const held = Float64Array.from(this.groups, (group) => group.first_bytes);
    const { does, group, bytes } = this.entries;
    for (let i = 0; i <= entry; i += 1) {
      if (does[i] === TAKES) held[group[i]] += bytes[i];
      else if (does[i] === GIVES) held[group[i]] -= bytes[i];
    }
    return held;
  }
}

const ui = { card: null, from: 0, to: 1, at: 0, byTime: false };

// The entry at a place of the axis, and the other way round: the axis has entries or microseconds.
const span = () => ui.byTime ? ui.card.entries.after[ui.card.entries.length - 1] + 1 : ui.card.entries.length;
function entryAt(place) {
  const { after, length } = ui.card.entries;
  if (!ui.byTime) return Math.max(0, Math.min(length, Math.floor(place)));
  let low = 0, high = length;
  while (low < high) { const middle = (low + high) >> 1; if (after[middle] < place) low = middle + 1; else high = middle; }
  return low;
}
const placeOf = (entry) => ui.byTime ? ui.card.entries.after[entry] : entry;

function show(from, to) {
  const whole = span(), least = Math.min(whole, ui.byTime ? 10 : LEAST);
  let wide = Math.max(least, Math.min(whole, to - from));
  ui.from = Math.max(0, Math.min(whole - wide, from));
  ui.to = ui.from + wide;
  requestAnimationFrame(draw);
}
function zoom(factor, around) {
  const middle = around ?? Math.max(ui.from, Math.min(ui.to, placeOf(ui.at)));
  show(middle - (middle - ui.from) * factor, middle + (ui.to - middle) * factor);
}

function columns(canvas, from, to) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.round(canvas.clientWidth * ratio)), height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, width, height);
  const room = height - 4 * ratio, scale = room / (ui.card.most || 1);
  let last = null;
  for (let x = 0; x < width; x += 1) {
    const a = entryAt(from + (to - from) * x / width), b = entryAt(from + (to - from) * (x + 1) / width);
    // Between two entries nothing changes.
    const top = b > a ? ui.card.top(a, b) : last ?? ui.card.top(Math.max(0, a - 1), Math.max(1, a));
    last = b > a ? ui.card.top(b - 1, b) : top;
    let y = height;
    for (let kind = 0; kind < KINDS.length; kind += 1) {
      const tall = top.now[kind] * scale;
      if (tall <= 0) continue;
      pen.fillStyle = COLOURS[KINDS[kind]];
      pen.fillRect(x, y - tall, 1, tall + 0.5);
      y -= tall;
    }
    pen.fillStyle = ui.ink;
    pen.fillRect(x, height - top.reserved * scale - ratio, 1, Math.max(1, ratio));
  }
  return { pen, width, height, ratio, scale };
}

function draw() {
  const card = ui.card, style = getComputedStyle(document.documentElement);
  ui.ink = style.getPropertyValue("--ink").trim();
  const { pen, width, height, ratio, scale } = columns($("view"), ui.from, ui.to);
  pen.font = `${12 * ratio}px system-ui, sans-serif`;
  const step = 2 ** Math.floor(Math.log2(card.most / 3 || 1));
  for (let bytes = step; bytes < card.most; bytes += step) {
    const y = Math.round(height - bytes * scale);
    pen.globalAlpha = 0.25; pen.fillRect(0, y, width, 1); pen.globalAlpha = 1;
    const label = size(bytes), wide = pen.measureText(label).width + 8 * ratio;
    pen.fillStyle = style.getPropertyValue("--back").trim(); pen.globalAlpha = 0.75; pen.fillRect(0, y - 16 * ratio, wide, 15 * ratio);
    pen.globalAlpha = 1; pen.fillStyle = ui.ink; pen.fillText(label, 4 * ratio, y - 4 * ratio);
  }
  const mark = style.getPropertyValue("--mark").trim();
  const line = (entry, dash) => {
    const place = placeOf(entry) + (ui.byTime ? 0 : 0.5);
    if (place < ui.from || place > ui.to) return;
    const x = Math.round((place - ui.from) / (ui.to - ui.from) * width);
    pen.strokeStyle = dash ? mark : ui.ink; pen.lineWidth = 1.5 * ratio; pen.setLineDash(dash ? [4 * ratio, 3 * ratio] : []);
    pen.beginPath(); pen.moveTo(x, 0); pen.lineTo(x, height); pen.stroke();
  };
  card.failures.slice(0, 200).forEach((entry) => line(entry, true));
  line(ui.at, false);
  const whole = columns($("whole"), 0, span());
  whole.pen.fillStyle = ui.ink; whole.pen.globalAlpha = 0.18;
  const a = ui.from / span() * whole.width, b = ui.to / span() * whole.width;
  whole.pen.fillRect(0, 0, a, whole.height); whole.pen.fillRect(b, 0, whole.width - b, whole.height);
  whole.pen.globalAlpha = 1;
  $("view").setAttribute("aria-label", `Live memory, changes ${count(entryAt(ui.from))} to ${count(entryAt(ui.to))} of ${count(card.entries.length)}`);
}

function choose(entry) {
  const card = ui.card;
  ui.at = Math.max(0, Math.min(card.entries.length - 1, entry));
  const top = card.top(ui.at, ui.at + 1), after = clock(card.entries.after[ui.at]);
  const failed = card.entries.does[ui.at] === FAILS;
  $("said").textContent = `change ${count(ui.at + 1)}, ${after}: ${size(top.live)} live, ${size(top.reserved)} reserved` +
    (failed ? `; ${size(card.entries.bytes[ui.at])} were asked for and not given` : "");
  $("then").textContent = `Live after change ${count(ui.at + 1)}`;
  const held = card.groupsAfter(ui.at);
  const order = [...held.keys()].filter((group) => held[group] > 0).sort((a, b) => held[b] - held[a]);
  const rows = order.slice(0, ROWS).map((number) => {
    const group = card.groups[number], row = document.createElement("tr");
    const cell = (text, name) => { const cell = row.insertCell(); cell.textContent = text; if (name) cell.className = name; return cell; };
    cell(size(held[number]), "number");
    const share = held[number] * 100 / top.live;
    cell(`${share.toFixed(share < 10 ? 1 : 0)} %`, "number");
    const kind = cell("");
    const spot = document.createElement("span"); spot.style.color = COLOURS[group.category]; spot.textContent = "■ ";
    kind.append(spot, group.purpose);
    const where = cell("");
    if (group.stack.length === 0) { where.textContent = group.place; return row; }
    const details = document.createElement("details"), title = document.createElement("summary"), stack = document.createElement("pre");
    const code = document.createElement("code"); code.textContent = group.place; title.append(code);
    stack.textContent = group.stack.join("\n");
    details.append(title, stack); where.append(details);
    return row;
  });
  $("rows").replaceChildren(...rows);
  const rest = order.slice(ROWS);
  $("rest").textContent = rest.length === 0 ? "" : `and ${size(rest.reduce((sum, group) => sum + held[group], 0))} of ${count(rest.length)} other lines`;
  requestAnimationFrame(draw);
}

function take(card) {
  ui.card = card;
  const used = KINDS.filter((kind) => card.groups.some((group) => group.category === kind));
  $("legend").replaceChildren(...used.map((kind) => {
    const item = document.createElement("li"), spot = document.createElement("i");
    spot.style.background = COLOURS[kind];
    item.append(spot, card.groups.find((group) => group.category === kind).kind);
    return item;
  }));
  $("failed").hidden = card.failures.length === 0;
  $("about").textContent = `Card ${card.device}: ${count(card.entries.length)} changes in ${clock(card.entries.after[card.entries.length - 1] ?? 0)}, from ${count(card.groups.length)} lines of code`;
  show(0, span());
  choose(card.failures[0] ?? card.peak);
}

function wire() {
  const view = $("view"), whole = $("whole");
  const placeAt = (canvas, event, from, to) => from + (to - from) * (event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth;
  const here = (event) => placeAt(view, event, ui.from, ui.to);
  view.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { const by = (ui.to - ui.from) * event.deltaX / view.clientWidth; show(ui.from + by, ui.to + by); }
    else zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), here(event));
  }, { passive: false });
  let grip = null;
  view.addEventListener("pointerdown", (event) => { grip = { x: event.clientX, from: ui.from, to: ui.to, moved: false }; view.setPointerCapture(event.pointerId); });
  view.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const moved = event.clientX - grip.x;
    grip.moved ||= Math.abs(moved) > 3;
    if (grip.moved) { const by = -moved * (grip.to - grip.from) / view.clientWidth; show(grip.from + by, grip.to + by); }
  });
  view.addEventListener("pointerup", (event) => {
    if (grip && !grip.moved) choose(ui.byTime ? entryAt(here(event)) - 1 : entryAt(here(event)));
    grip = null;
  });
  view.addEventListener("pointercancel", () => { grip = null; });
  const pan = (event) => { const middle = placeAt(whole, event, 0, span()), half = (ui.to - ui.from) / 2; show(middle - half, middle + half); };
  whole.addEventListener("pointerdown", (event) => { whole.setPointerCapture(event.pointerId); pan(event); });
  whole.addEventListener("pointermove", (event) => { if (event.buttons) pan(event); });
  view.addEventListener("keydown", (event) => {
    const wide = ui.to - ui.from;
    const keys = {
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), Home: () => show(0, wide), End: () => show(span() - wide, span()),
      ArrowLeft: () => event.shiftKey ? choose(ui.at - 1) : show(ui.from - wide / 5, ui.to - wide / 5),
      ArrowRight: () => event.shiftKey ? choose(ui.at + 1) : show(ui.from + wide / 5, ui.to + wide / 5),
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  $("all").onclick = () => show(0, span());
  $("in").onclick = () => zoom(0.5);
  $("out").onclick = () => zoom(2);
  const go = (entry) => { choose(entry); const half = (ui.to - ui.from) / 2, place = placeOf(entry); show(place - half, place + half); };
  $("peak").onclick = () => go(ui.card.peak);
  $("failed").onclick = () => go(ui.card.failures.find((entry) => entry > ui.at) ?? ui.card.failures[0]);
  $("by-time").onchange = (event) => {
    const a = entryAt(ui.from), b = Math.max(0, entryAt(ui.to) - 1);
    ui.byTime = event.target.checked;
    show(placeOf(a), placeOf(b) + 1);
  };
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(view);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

async function start() {
  const cards = JSON.parse($("data").textContent);
  if (cards.length === 0) return;
  $("timeline").hidden = false;
  const made = new Map();
  const open = async (number) => {
    if (!made.has(number)) { const { packed, length, ...meta } = cards[number]; made.set(number, new Card(meta, decode(await inflate(packed), length))); }
    take(made.get(number));
  };
  cards.forEach((card, number) => $("card").add(new Option(card.device, number)));
  $("card").parentElement.hidden = cards.length === 1;
  $("card").onchange = (event) => open(Number(event.target.value));
  await open(0);
  wire();
}
start().catch((error) => { $("about").textContent = `The timeline cannot be shown: ${error.message}`; });
