// Plots of figures over time. All plots of a page share one window and one moment: Stage has them.
// Colours of Okabe and Ito, which the colour-blind tell apart.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c959f", "#6f5b9e"];
const PHASES = { data: "#d55e00", copy: "#e69f00", forward: "#0072b2", backward: "#56b4e9", optimizer: "#009e73", other: "#8c959f" };
const LEFT = 66, RIGHT = 8, TOP = 6, BOTTOM = 18, HIGH = 150, LEAST_US = 1000, FAR = 4;

class Stage {
  // `changed` is called when another window is wanted.
  constructor(whole, changed) {
    Object.assign(this, { whole: Math.max(whole, 1), from: 0, to: Math.max(whole, 1), at: null, plots: [], changed });
  }
  isWhole() { return this.from <= 0 && this.to >= this.whole; }
  // A run that goes on has grown: who sees all of it goes on to see all of it.
  grow(whole) {
    const all = this.isWhole();
    this.whole = Math.max(whole, 1);
    if (all) { this.from = 0; this.to = this.whole; }
  }
  show(from, to) {
    const wide = Math.min(this.whole, Math.max(LEAST_US, to - from));
    this.from = Math.max(0, Math.min(this.whole - wide, from));
    this.to = this.from + wide;
    this.changed();
  }
  zoom(by, around = (this.from + this.to) / 2) {
    const wide = (this.to - this.from) * by, share = (around - this.from) / (this.to - this.from);
    this.show(around - wide * share, around + wide * (1 - share));
  }
  move(by) { const wide = this.to - this.from; this.show(this.from + wide * by, this.to + wide * by); }
  choose(at) { this.at = at; for (const plot of this.plots) plot.draw(); }
  key(event) {
    const wide = this.to - this.from;
    const step = (by) => this.choose(Math.max(this.from, Math.min(this.to, (this.at ?? (this.from + this.to) / 2) + wide * by)));
    const does = {
      "+": () => this.zoom(0.5, this.at ?? undefined), "=": () => this.zoom(0.5, this.at ?? undefined), "-": () => this.zoom(2),
      ArrowLeft: () => event.shiftKey ? step(-0.01) : this.move(-0.2), ArrowRight: () => event.shiftKey ? step(0.01) : this.move(0.2),
      Home: () => this.show(0, this.whole), 0: () => this.show(0, this.whole), Escape: () => this.choose(null),
    }[event.key];
    if (!does || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    does();
  }
}

class Plot {
  constructor(stage, data) {
    this.stage = stage;
    this.canvas = el("canvas", { tabindex: 0, role: "img" });
    this.legend = el("ul", { class: "legend" });
    this.rows = el("div");
    this.details = el("details", { ontoggle: () => this.tell() }, el("summary", {}, "As a table"), this.rows);
    this.title = el("h3");
    this.section = el("section", { class: "plot" }, this.title, this.canvas, this.legend, this.details);
    this.canvas.addEventListener("keydown", (event) => stage.key(event));
    this.canvas.addEventListener("dblclick", () => stage.show(0, stage.whole));
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.canvas.setPointerCapture(event.pointerId);
      this.drag = { x: event.offsetX, to: event.offsetX, moves: event.shiftKey, from: stage.from, until: stage.to };
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!this.drag) { if (event.pointerType === "mouse") stage.choose(this.time(event.offsetX)); return; }
      this.drag.to = event.offsetX;
      this.draw();
    });
    this.canvas.addEventListener("pointerup", () => {
      const drag = this.drag;
      this.drag = null;
      if (!drag) return;
      const [a, b] = [this.time(drag.x), this.time(drag.to)].sort((x, y) => x - y);
      if (Math.abs(drag.to - drag.x) < 6) stage.choose(a);
      else if (drag.moves) { const by = this.time(drag.x) - this.time(drag.to); stage.show(drag.from + by, drag.until + by); }
      else stage.show(a, b);
    });
    this.canvas.addEventListener("pointercancel", () => { this.drag = null; this.draw(); });
    this.canvas.addEventListener("pointerleave", () => { if (!this.drag) stage.choose(null); });
    this.set(data);
  }
  // `data` has from_us, to_us, title, unit, stacked and lines; the lines of a second run have `second`.
  set(data) {
    this.data = data;
    this.title.textContent = data.title;
    const colours = new Map();
    for (const line of data.lines) {
      if (!colours.has(line.name)) colours.set(line.name, (data.stacked && PHASES[line.name]) || COLOURS[colours.size % COLOURS.length]);
      line.colour = colours.get(line.name);
    }
    this.values = data.lines.map(() => el("b"));
    this.legend.replaceChildren(...data.lines.length === 1 && !data.lines[0].name && !data.lines[0].run ? [el("li", {}, this.values[0])] : data.lines.map((line, at) => {
      const mark = el("i", { class: line.second ? "b" : null });
      mark.style[line.second ? "borderColor" : "background"] = line.colour;
      return el("li", {}, mark, `${[line.run, line.name].filter(Boolean).join(" ")} `, this.values[at]);
    }));
    // A limit far above all that was used is told and not drawn: it would press the lines flat.
    this.limits = (data.limits ?? []).map((limit) => ({ ...limit, drawn: limit.value <= FAR * this.used() }));
    this.legend.append(...this.limits.map((limit) => el("li", {}, el("i", { class: "limit" }),
      `${[limit.run, limit.name].filter(Boolean).join(" ")} `, el("b", {}, inUnit(limit.value, data.unit) + (limit.drawn ? "" : ", above the plot")))));
    this.draw();
    this.tell();
  }
  count() { return this.data.lines[0]?.mean.length ?? 0; }
  place(us) { const { from, to } = this.stage; return LEFT + (us - from) / (to - from) * (this.wide - LEFT - RIGHT); }
  time(x) {
    const { from, to } = this.stage;
    return Math.max(from, Math.min(to, from + (x - LEFT) / (this.wide - LEFT - RIGHT) * (to - from)));
  }
  timeOf(part) { const { from_us, to_us } = this.data; return from_us + (part + 0.5) / this.count() * (to_us - from_us); }
  // The part that has a reading and is nearest to a moment.
  part(line, us) {
    const { from_us, to_us } = this.data, count = this.count();
    const at = Math.max(0, Math.min(count - 1, Math.floor((us - from_us) / (to_us - from_us) * count)));
    for (let off = 0; off < count; off += 1) {
      if (line.mean[at - off] != null) return at - off;
      if (line.mean[at + off] != null) return at + off;
    }
    return null;
  }
  most() {
    const used = this.used();
    return this.data.stacked ? 1 : Math.max(used, ...this.limits.filter((limit) => limit.drawn).map((limit) => limit.value));
  }
  used() {
    let most = 0;
    for (const line of this.data.lines) for (const value of line.most ?? line.mean) if (value > most) most = value;
    return most || leastTop(this.data.unit);
  }
  draw() {
    const { canvas, data, stage } = this;
    const wide = canvas.clientWidth, scale = window.devicePixelRatio || 1;
    if (!wide) return;
    this.wide = wide;
    if (canvas.width !== Math.round(wide * scale)) { canvas.width = Math.round(wide * scale); canvas.height = Math.round(HIGH * scale); }
    const style = getComputedStyle(document.body), ink = style.getPropertyValue("--dim"), faint = style.getPropertyValue("--line");
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, wide, HIGH);
    pen.font = "11px system-ui, sans-serif";
    const most = this.most(), ticks = scaleOf(most, data.unit), top = Math.max(most, ticks.at(-1));
    const y = (value) => HIGH - BOTTOM - value / top * (HIGH - TOP - BOTTOM);
    pen.fillStyle = ink; pen.strokeStyle = faint; pen.lineWidth = 1;
    pen.textAlign = "right"; pen.textBaseline = "middle";
    for (const tick of ticks) {
      pen.beginPath(); pen.moveTo(LEFT, Math.round(y(tick)) + 0.5); pen.lineTo(wide - RIGHT, Math.round(y(tick)) + 0.5); pen.stroke();
      pen.fillText(inUnit(tick, data.unit), LEFT - 6, Math.max(TOP + 2, y(tick)));
    }
    pen.textBaseline = "alphabetic";
    const marks = Math.max(2, Math.floor((wide - LEFT) / 130));
    for (let at = 0; at <= marks; at += 1) {
      const us = stage.from + (stage.to - stage.from) * at / marks;
      pen.textAlign = at === 0 ? "left" : at === marks ? "right" : "center";
      pen.fillText(clock(us), this.place(us), HIGH - 4);
    }
    pen.save();
    pen.beginPath(); pen.rect(LEFT, 0, wide - LEFT - RIGHT, HIGH - BOTTOM + 1); pen.clip();
    if (data.stacked) this.areas(pen, y); else data.lines.forEach((line, at) => this.line(pen, y, line, this.thick(at)));
    pen.strokeStyle = style.getPropertyValue("--mark"); pen.lineWidth = 1.5; pen.setLineDash([2, 3]);
    for (const limit of this.limits.filter((limit) => limit.drawn)) {
      pen.beginPath(); pen.moveTo(LEFT, y(limit.value)); pen.lineTo(wide - RIGHT, y(limit.value)); pen.stroke();
    }
    pen.setLineDash([]);
    if (stage.at !== null) {
      pen.strokeStyle = ink; pen.setLineDash([]); pen.lineWidth = 1;
      pen.beginPath(); pen.moveTo(this.place(stage.at), 0); pen.lineTo(this.place(stage.at), HIGH - BOTTOM); pen.stroke();
    }
    if (this.drag && !this.drag.moves) {
      pen.fillStyle = style.getPropertyValue("--focus"); pen.globalAlpha = 0.2;
      pen.fillRect(Math.min(this.drag.x, this.drag.to), 0, Math.abs(this.drag.to - this.drag.x), HIGH);
    }
    pen.restore();
    // At the moment under the pointer; without one, of the whole window: the last reading of a run is of its end.
    data.lines.forEach((line, at) => {
      if (stage.at === null) {
        const mean = meanOf(line);
        this.values[at].textContent = mean === null ? NONE : `mean ${inUnit(mean, data.unit)}`;
        return;
      }
      const part = this.part(line, stage.at);
      this.values[at].textContent = part === null ? NONE : inUnit(line.mean[part], data.unit);
    });
    canvas.setAttribute("aria-label", this.said());
  }
  // Where a line is broken: readings that lie much further apart than they mostly do.
  gap(line) {
    let last = null;
    const gaps = [];
    line.mean.forEach((value, part) => { if (value !== null) { if (last !== null) gaps.push(part - last); last = part; } });
    gaps.sort((a, b) => a - b);
    return 6 * Math.max(1, gaps[gaps.length >> 1] ?? 1);
  }
  // Lines that lie on each other are all seen: the first is the thickest, and the later are drawn over it.
  thick(at) { return Math.max(1.2, 1.2 + 1.3 * (Math.min(4, this.data.lines.length) - 1 - at)); }
  line(pen, y, line, thick) {
    const gap = this.gap(line), run = [];
    const flush = () => {
      if (run.length === 0) return;
      if (line.most) {
        pen.globalAlpha = 0.22; pen.fillStyle = line.colour; pen.beginPath();
        run.forEach((part) => pen.lineTo(this.place(this.timeOf(part)), y(line.most[part])));
        run.toReversed().forEach((part) => pen.lineTo(this.place(this.timeOf(part)), y(line.least[part])));
        pen.fill(); pen.globalAlpha = 1;
      }
      pen.strokeStyle = line.colour; pen.lineWidth = thick; pen.setLineDash(line.second ? [5, 3] : []);
      pen.beginPath();
      run.forEach((part) => pen.lineTo(this.place(this.timeOf(part)), y(line.mean[part])));
      if (run.length === 1) { const x = this.place(this.timeOf(run[0])); pen.moveTo(x - 2, y(line.mean[run[0]])); pen.lineTo(x + 2, y(line.mean[run[0]])); }
      pen.stroke(); pen.setLineDash([]);
      run.length = 0;
    };
    for (let part = 0; part < line.mean.length; part += 1) {
      if (line.mean[part] === null) continue;
      if (run.length > 0 && part - run.at(-1) > gap) flush();
      run.push(part);
    }
    flush();
  }
  areas(pen, y) {
    const parts = [], count = this.count();
    for (let part = 0; part < count; part += 1) if (this.data.lines[0].mean[part] !== null) parts.push(part);
    const width = Math.max(1, ...parts.length > 1 ? [(parts.at(-1) - parts[0]) / (parts.length - 1)] : [1]);
    const { from_us, to_us } = this.data;
    let before = from_us;
    // A reading stands for the time before it.
    for (const part of parts) {
      const end = from_us + (part + 1) / count * (to_us - from_us);
      const begin = Math.max(before, end - 6 * width * (to_us - from_us) / count);
      let low = 0;
      for (const line of this.data.lines) {
        const high = low + (line.mean[part] ?? 0);
        pen.fillStyle = line.colour;
        const x = Math.round(this.place(begin));
        pen.fillRect(x, y(high), Math.max(1, Math.round(this.place(end)) - x), y(low) - y(high));
        low = high;
      }
      before = end;
    }
  }
  said() {
    const { data, stage } = this;
    const lines = data.lines.map((line) => {
      let sum = 0, many = 0, least = Infinity, most = -Infinity;
      line.mean.forEach((value, part) => {
        if (value === null) return;
        sum += value; many += 1;
        least = Math.min(least, line.least?.[part] ?? value); most = Math.max(most, line.most?.[part] ?? value);
      });
      const name = [line.run, line.name].filter(Boolean).join(" ");
      if (many === 0) return `${name} not measured`;
      return `${name} least ${inUnit(least, data.unit)}, mean ${inUnit(sum / many, data.unit)}, most ${inUnit(most, data.unit)}`;
    });
    const limits = this.limits.map((limit) => `; ${[limit.run, limit.name].filter(Boolean).join(" ")} ${inUnit(limit.value, data.unit)}`);
    return `${data.title}, from ${clock(stage.from)} to ${clock(stage.to)}: ${lines.join("; ")}${limits.join("")}. Plus and minus zoom, arrows move, Home shows all.`;
  }
  // The plot as a table, when somebody wants it.
  tell() {
    if (!this.details.open) { this.rows.replaceChildren(); return; }
    const { data } = this, count = this.count(), many = Math.min(24, count), rows = [];
    for (let row = 0; row < many; row += 1) {
      const a = Math.floor(row * count / many), b = Math.floor((row + 1) * count / many);
      const cells = data.lines.map((line) => {
        let sum = 0, found = 0;
        for (let part = a; part < b; part += 1) if (line.mean[part] !== null) { sum += line.mean[part]; found += 1; }
        return found ? inUnit(sum / found, data.unit) : NONE;
      });
      if (cells.some((cell) => cell !== NONE)) rows.push([clock(this.timeOf(b - 0.5)), ...cells]);
    }
    this.rows.replaceChildren(table(`${data.title}, means`, ["Until", ...data.lines.map((line) => [line.run, line.name].filter(Boolean).join(" ") || "value")], rows));
  }
}

function meanOf(line) {
  let sum = 0, many = 0;
  for (const value of line.mean) if (value !== null) { sum += value; many += 1; }
  return many ? sum / many : null;
}

// What a plot of nothing goes up to: there is no half of a byte, nor of a process.
const leastTop = (unit) => unit.startsWith("bytes") ? 1024 : 1;

// Three to five round numbers from 0 to about `most`.
function scaleOf(most, unit) {
  const two = unit.startsWith("bytes"), base = two ? 2 : 10;
  if (two) most = Math.max(most, leastTop(unit));
  let step = base ** Math.floor(Math.log(most / 4) / Math.log(base));
  if (!two) step *= [1, 2, 2.5, 5, 10].find((by) => step * by * 4 >= most) ?? 10;
  else if (step * 4 < most) step *= 2;
  if (unit === "count") step = Math.max(1, step);
  if (unit === "share" && most <= 1 && most > 0.5) step = 0.25;
  const ticks = [];
  for (let tick = 0; tick <= most * 1.001 + step * 0.25 && ticks.length < 8; tick += step) ticks.push(tick);
  if (ticks.at(-1) < most) ticks.push(ticks.at(-1) + step);
  return ticks;
}
