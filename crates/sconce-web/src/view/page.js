// The pages: a list of runs, one run, two runs beside each other. Where the document has data inside, it
// is one run and asks nobody; else it asks the server that it came from, with the token of the link.
const inside = $("data");
const state = { token: null, page: null, packed: null, standing: new Map() };

const source = inside ? {
  live: false,
  async load() {
    if (state.packed) return state.packed;
    const bytes = Uint8Array.from(atob(inside.textContent), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    state.packed = JSON.parse(await new Response(stream).text());
    return state.packed;
  },
  async run() { return (await this.load()).run; },
  async series(id, from, to, points) { return part((await this.load()).series, from, to, points); },
} : {
  live: true,
  async ask(path, signal) {
    const answer = await fetch(path, { headers: { Authorization: `Bearer ${state.token}` }, signal, cache: "no-store" });
    if (!answer.ok) throw new Error((await answer.text()).trim() || `${answer.status}`);
    return answer;
  },
  async runs() { return (await this.ask("api/runs")).json(); },
  async compare(a, b) { return (await this.ask(`api/compare/${encodeURIComponent(a)}/${encodeURIComponent(b)}`)).json(); },
  async run(id) { return (await this.ask(`api/runs/${encodeURIComponent(id)}`)).json(); },
  async series(id, from, to, points, signal) {
    const window = to === null ? "" : `&from=${Math.floor(from)}&to=${Math.ceil(to)}`;
    return (await this.ask(`api/runs/${encodeURIComponent(id)}/series?points=${points}${window}`, signal)).json();
  },
};

// A part of series that are here as a whole, with no more than `points` points.
function part(series, from, to, points) {
  if (to === null) { from = series.from_us; to = series.to_us; }
  const many = series.plots[0]?.lines[0]?.mean.length ?? 0, width = (series.to_us - series.from_us) / Math.max(many, 1);
  const a = Math.max(0, Math.floor((from - series.from_us) / width)), b = Math.min(many, Math.ceil((to - series.from_us) / width));
  const count = Math.max(1, Math.min(points, b - a));
  const joined = (values, how) => values && Array.from({ length: count }, (_, at) => {
    let out = null;
    for (let i = a + Math.floor(at * (b - a) / count), end = a + Math.floor((at + 1) * (b - a) / count); i < end; i += 1) {
      if (values[i] !== null) out = out === null ? how(null, values[i]) : how(out, values[i]);
    }
    return Array.isArray(out) ? out[0] / out[1] : out;
  });
  const mean = (out, value) => out === null ? [value, 1] : [out[0] + value, out[1] + 1];
  const least = (out, value) => out === null ? value : Math.min(out, value), most = (out, value) => out === null ? value : Math.max(out, value);
  const line = ({ name, mean: means, least: leasts, most: mosts }) => {
    const banded = leasts !== null || (count < b - a);
    return { name, mean: joined(means, mean), least: banded ? joined(leasts ?? means, least) : null, most: banded ? joined(mosts ?? means, most) : null };
  };
  return {
    from_us: series.from_us + a * width, to_us: series.from_us + b * width, width_us: series.width_us,
    plots: series.plots.map((plot) => ({ ...plot, lines: plot.stacked ? plot.lines.map((one) => ({ ...line(one), least: null, most: null })) : plot.lines.map(line) })),
  };
}

const pointsWanted = () => Math.max(120, Math.min(900, Math.round(window.innerWidth / 2)));
const say = (text) => { if ($("status").textContent !== text) $("status").textContent = text; };
const link = (id) => `#/run/${encodeURIComponent(id)}`;
const tone = (run) => run.state === "running" ? "state-on" : run.state === "exited" && (run.exit_code ?? 0) === 0 ? "state-good" : "state-bad";

// Figures over time with their tools; `ids` are the runs that they are of, one or two.
class Timelines {
  constructor(ids, wholes) {
    this.ids = ids;
    this.plots = new Map();
    this.stage = new Stage(Math.max(...wholes), () => this.later());
    this.said = el("output", { "aria-live": "polite" });
    this.grid = el("div", { class: "plots" });
    const button = (text, does, label) => el("button", { type: "button", onclick: does, "aria-label": label }, text);
    const stage = this.stage;
    this.bar = el("div", { class: "bar stuck", role: "toolbar", "aria-label": "Window of the plots" },
      button("Whole", () => stage.show(0, stage.whole)), button("+", () => stage.zoom(0.5), "Zoom in"), button("−", () => stage.zoom(2), "Zoom out"),
      button("←", () => stage.move(-0.5), "Earlier"), button("→", () => stage.move(0.5), "Later"), this.said);
    this.element = el("section", { "aria-label": "Over time" }, el("h2", {}, "Over time"),
      el("p", { class: "dim" }, "Drag over a plot to zoom, Shift and drag to move, double-click for the whole; or + − ← → on a plot. Pale bands go from the least to the most."),
      this.bar, this.grid);
  }
  // Asks for the window once the hand rests.
  later() {
    this.tellWindow();
    for (const plot of this.plots.values()) plot.draw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), 60);
  }
  tellWindow() {
    const { from, to, whole } = this.stage;
    this.said.textContent = this.stage.isWhole() ? `all of ${clock(whole)}` : `${clock(from)} to ${clock(to)}`;
  }
  async load() {
    this.asking?.abort();
    this.asking = new AbortController();
    const { from, to } = this.stage, signal = this.asking.signal;
    try {
      const all = await Promise.all(this.ids.map((id) => source.series(id, from, to, pointsWanted(), signal)));
      if (!signal.aborted) this.set(all);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
    }
  }
  set(all) {
    const plots = new Map(), two = all.length > 1;
    all.forEach((series, at) => {
      for (const plot of series.plots) {
        // Stacks of two runs are two plots; lines of two runs are in one.
        const key = two && plot.stacked ? `${plot.plot} ${at}` : plot.plot;
        const run = two ? "AB"[at] : null;
        const lines = plot.lines.map((line) => ({ ...line, run: plot.stacked ? null : run, second: at > 0 && !plot.stacked }));
        const title = two && plot.stacked ? `${run}: ${plot.title}` : plot.title;
        if (!plots.has(key)) plots.set(key, { ...plot, title, lines: [], limits: [], from_us: series.from_us, to_us: series.to_us });
        plots.get(key).lines.push(...lines);
        plots.get(key).limits.push(...(plot.limits ?? []).map((limit) => ({ ...limit, run: plot.stacked ? null : run })));
      }
    });
    const order = [...new Set(all.flatMap((series) => series.plots.map((plot) => plot.plot)))];
    const sorted = [...plots].sort(([, a], [, b]) => order.indexOf(a.plot) - order.indexOf(b.plot));
    for (const [key, plot] of this.plots) if (!plots.has(key)) { plot.section.remove(); this.plots.delete(key); }
    for (const [key, data] of sorted) {
      const known = this.plots.get(key);
      if (known) { known.set(data); continue; }
      const plot = new Plot(this.stage, data);
      this.plots.set(key, plot);
      this.grid.append(plot.section);
    }
    this.stage.plots = [...this.plots.values()];
    for (const plot of this.stage.plots) plot.draw();
    this.tellWindow();
    this.grid.dataset.ready = String(performance.now());
    if (plots.size === 0) this.grid.replaceChildren(el("p", { class: "dim" }, "Nothing was measured over time."));
  }
}

const facts = (run) => el("dl", { class: "facts" }, run.figures.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));

function services(run) {
  if (run.services.length === 0) return el("div");
  const cell = (...inner) => el("td", {}, ...inner);
  const row = (one) => el("tr", {}, el("th", { scope: "row" }, one.name),
    cell(el("span", { class: { failed: "state-bad", unhealthy: "state-bad", restarting: "state-on" }[one.state] }, one.state), el("span", { class: "sub" }, [one.last_end && `last end: ${one.last_end}`, one.why].filter(Boolean).join("; "))),
    cell(one.restarts ? `${one.restarts} times` : "never"), cell(one.open.length ? one.open.map((open) => el("div", {}, web(open))) : NONE));
  return el("section", {}, el("h2", {}, "Services"), el("div", { class: "wide", tabindex: 0 }, el("table", {},
    el("thead", {}, el("tr", {}, ["", "State", "Started again", "Reached at"].map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, run.services.map(row)))));
}
// A link where it is one: what a record says leads nowhere else.
const web = (text) => /^https?:\/\//.test(text) ? el("a", { href: text, rel: "noreferrer" }, text) : text;

function verdicts(run) {
  const say = run.verdicts_say ? el("p", { class: "dim" }, run.verdicts_say) : null;
  if (run.verdicts.length === 0) return say ? el("section", {}, el("h2", {}, "What to change"), say) : el("div");
  return el("section", {}, el("h2", {}, "What to change"), say, run.verdicts.map((one) => el("article", { class: `said ${one.weight}` },
    el("h3", {}, one.title), one.gain ? el("p", {}, "Mending it gives: ", one.gain) : null,
    one.mends.length ? el("ul", {}, one.mends.map((mend) => el("li", {}, typed(mend)))) : null,
    one.evidence.length ? el("details", {}, el("summary", {}, "Figures"), el("ul", {}, one.evidence.map((line) => el("li", {}, line)))) : null)));
}

function outOfMemory(run) {
  if (run.card_oom.length === 0) return el("div");
  const bytes = (value) => value === undefined ? NONE : size(value);
  return el("section", {}, el("h2", {}, "A card's memory ran out"), run.card_oom.map((oom) => el("article", { class: "said fatal" },
    el("h3", {}, `Step ${oom.step}${oom.phase ? `, in ${oom.phase}` : ""}: ${bytes(oom.asked)} asked, ${bytes(oom.free)} free`),
    oom.message ? el("p", {}, oom.message) : null,
    oom.holders?.length ? table("Who held the most", ["Where or what", "Size", "Blocks"], oom.holders.map((holder) => [holder.stack?.[0] ?? holder.tensor ?? "unknown", bytes(holder.bytes), String(holder.blocks)])) : null)));
}

// Where the time of each process's steps went.
function phases(run, mark = "") {
  const trained = run.processes.filter((process) => process.steps > 0);
  if (trained.length === 0) return el("div");
  const one = (process) => {
    const sum = process.phases.reduce((all, [, us]) => all + us, 0) || 1;
    const share = (us) => `${digits(us / sum * 100)} %`;
    const bar = el("div", { class: "stack", role: "img", "aria-label": process.phases.map(([name, us]) => `${name} ${share(us)}`).join(", ") });
    for (const [name, us] of process.phases) {
      if (us === 0) continue;
      const piece = el("i", { title: `${name} ${share(us)}` });
      piece.style.width = `${us / sum * 100}%`;
      piece.style.background = PHASES[name];
      bar.append(piece);
    }
    const legend = el("ul", { class: "legend" }, process.phases.filter(([, us]) => us > 0).map(([name, us]) => {
      const mark = el("i");
      mark.style.background = PHASES[name];
      return el("li", {}, mark, `${name} `, el("b", {}, `${share(us)}, ${seconds(us / 1e6)}`));
    }));
    return el("div", { class: "phase" }, el("h3", {}, `${process.name}: ${digits(process.steps, 6)} steps, ${seconds(sum / 1e6)} each`), bar, legend);
  };
  const shown = trained.slice(0, 8).map(one), rest = trained.slice(8);
  return el("section", {}, el("h2", {}, `${mark}Where a step's time goes`), shown, rest.length ? el("details", {}, el("summary", {}, `${rest.length} more`), rest.map(one)) : null);
}

// The report in words, as wide as the screen has room for.
const words = (run) => el("pre", { tabindex: 0 }, matchMedia("(max-width: 760px)").matches ? run.text_narrow : run.text);

class RunPage {
  constructor(id) { this.id = id; this.title = id; }
  async open(main) {
    const run = await source.run(this.id);
    this.id = run.id;
    this.head = el("div");
    this.timelines = new Timelines([run.id], [run.wall_us]);
    this.text = el("section");
    main.replaceChildren(this.head, this.timelines.element, this.text);
    this.set(run);
    await this.timelines.load();
  }
  set(run) {
    this.run = run;
    const open = [...this.head.querySelectorAll("details")].map((one) => one.open);
    this.head.replaceChildren(el("h1", {}, run.id),
      el("p", {}, el("code", {}, run.command)),
      el("p", { class: "dim" }, el("span", { class: tone({ state: run.state, exit_code: run.end === "ended well" ? 0 : 1 }) }, run.end), ` · ${run.began} UTC · ${run.host.hostname} · ${run.folder}${run.plan ? ` · plan ${run.plan}` : ""}`),
      facts(run), services(run), verdicts(run), outOfMemory(run), phases(run));
    [...this.head.querySelectorAll("details")].forEach((one, at) => { one.open = open[at] ?? false; });
    this.text.replaceChildren(el("h2", {}, "Report"), words(run));
    say(run.state === "running" ? `running, ${clock(run.wall_us)}` : "");
  }
  async changed(standing) {
    const now = standing.get(this.id);
    if (!now || (this.told && this.told.t_us === now.t_us && this.told.running === now.running)) return;
    this.told = now;
    const run = await source.run(this.id);
    if (run.wall_us === this.run.wall_us && run.state === this.run.state) return;
    const whole = this.timelines.stage.isWhole();
    this.set(run);
    this.timelines.stage.grow(run.wall_us);
    if (whole) await this.timelines.load();
  }
}

// What was changed between two runs, and whether their steps differ more than by chance.
function differences(told) {
  const parts = (value) => `${digits(Math.abs(value) * 100)} %`;
  const shift = told.step_time;
  const steps = shift === null ? "Too few steps to tell whether their times differ."
    : `${shift.real ? "" : "No difference beyond chance: "}B's steps are ${parts(shift.longer_share)} ${shift.longer_share < 0 ? "shorter" : "longer"} (95 %: ${digits(shift.longer_share_low * 100)} to ${digits(shift.longer_share_high * 100)} %).`;
  const changed = [...told.changed, ...told.packages ?? []];
  const said = (name, verdicts) => verdicts.length ? el("p", {}, `${name}: ${verdicts.map((one) => one.title).join("; ")}`) : null;
  return el("section", { id: "differences" }, el("h2", {}, "What changed"), el("p", {}, steps),
    changed.length ? table("Changes", ["", "A", "B"], changed.map((one) => [one.what, one.before ?? NONE, one.after ?? NONE])) : el("p", {}, "No setting differs."),
    told.not_known.length ? el("details", {}, el("summary", {}, "Told by one of the runs alone"), table("Not known of the other", ["", "A", "B"], told.not_known.map((one) => [one.what, one.before ?? NONE, one.after ?? NONE]))) : null,
    said("In A alone", told.verdicts_gone), said("In B alone", told.verdicts_new), said("In both", told.verdicts_stayed),
    told.verdicts_not_judged.map((one) => el("p", {}, `In ${one.not_judged_of === "after" ? "A" : "B"}: ${one.verdict.title}. Of ${one.not_judged_of === "after" ? "B" : "A"} nobody can tell: ${one.why}`)));
}

class ComparePage {
  constructor(a, b) { this.ids = [a, b]; this.title = `${a} and ${b}`; }
  async open(main) {
    const runs = await Promise.all(this.ids.map((id) => source.run(id)));
    const told = await source.compare(...this.ids);
    const timelines = new Timelines(this.ids, runs.map((run) => run.wall_us));
    const names = [...new Set(runs.flatMap((run) => run.figures.map(([name]) => name)))];
    const rows = names.map((name) => [name, ...runs.map((run) => run.figures.find(([key]) => key === name)?.[1] ?? NONE)]);
    const step = (run, phase) => {
      const done = run.processes.filter((process) => process.steps > 0);
      const steps = done.reduce((sum, process) => sum + process.steps, 0);
      // What none of them tells was not measured, and is not nothing.
      const of = (process, phase) => process.phases.find(([name]) => name === phase)?.[1];
      if (!steps || (phase && done.every((process) => of(process, phase) === undefined))) return null;
      const us = done.reduce((sum, process) => sum + process.steps * (phase ? of(process, phase) ?? 0 : process.phases.reduce((all, [, us]) => all + us, 0)), 0);
      return us / steps / 1e6;
    };
    for (const phase of [null, ...Object.keys(PHASES)]) {
      const both = runs.map((run) => step(run, phase));
      if (both.some((value) => value !== null)) rows.push([phase ? `Of a step, ${phase}` : "A step, mean", ...both.map((value) => value === null ? NONE : seconds(value))]);
    }
    const head = (run, at) => el("div", {}, el("h2", {}, `${"AB"[at]}: `, el("a", { href: link(run.id) }, run.id)), el("p", {}, el("code", {}, run.command)), el("p", { class: "dim" }, `${run.end} · ${run.began} UTC`));
    main.replaceChildren(el("h1", {}, "Two runs"), el("div", { class: "two" }, runs.map(head)),
      table("Figures", ["", "A", "B"], rows), differences(told), timelines.element,
      el("h2", {}, "Reports"), el("div", { class: "two" }, runs.map((run, at) => el("section", { "aria-label": `Report of ${"AB"[at]}` }, el("h3", {}, `${"AB"[at]}: ${run.id}`), words(run)))));
    await timelines.load();
    this.timelines = timelines;
  }
  async changed() {}
}

// `2026-11-22 19:54`, UTC; a record may say any number.
function minute(ms) {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? NONE : date.toISOString().slice(0, 16).replace("T", " ");
}

class ListPage {
  constructor() { this.title = "Runs"; this.chosen = []; }
  async open(main) {
    this.search = el("input", { type: "search", placeholder: "Filter", "aria-label": "Filter by name or command", oninput: () => this.fill() });
    this.both = el("button", { type: "button", disabled: true, onclick: () => { location.hash = `#/compare/${this.chosen.map(encodeURIComponent).join("/")}`; } }, "Compare two");
    this.body = el("tbody");
    this.about = el("p", { class: "dim" });
    const head = (text, kind) => el("th", { scope: "col", class: kind }, text);
    main.replaceChildren(el("h1", {}, "Runs"), el("div", { class: "bar" }, this.search, this.both), this.about,
      el("div", { class: "wide", tabindex: 0 }, el("table", { id: "runs" }, el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "pick" }, el("span", { class: "unseen" }, "Compare")), head("Run"), head("State"), head("Began (UTC)", "wide-only"), head("Time", "number"), head("Memory, most", "number wide-only"))), this.body)));
    await this.load();
  }
  async load() {
    this.listing = await source.runs();
    this.fill();
  }
  fill() {
    const wanted = this.search.value.trim().toLowerCase();
    const runs = this.listing.runs.filter((run) => `${run.id} ${run.command.join(" ")}`.toLowerCase().includes(wanted));
    const focus = document.activeElement?.dataset?.run;
    this.body.replaceChildren(...runs.slice(0, 500).map((run) => this.row(run)));
    if (focus) this.body.querySelector(`[data-run="${CSS.escape(focus)}"]`)?.focus();
    const unreadable = this.listing.unreadable.length;
    this.about.textContent = `${runs.length} of ${this.listing.runs.length}${unreadable ? `; ${unreadable} cannot be read` : ""}${runs.length > 500 ? "; the newest 500 are shown" : ""}`;
    this.both.disabled = this.chosen.length !== 2;
  }
  row(run) {
    const box = el("input", { type: "checkbox", "data-run": run.id, "aria-label": `Compare ${run.id}`, onchange: () => {
      this.chosen = box.checked ? [...this.chosen, run.id].slice(-2) : this.chosen.filter((id) => id !== run.id);
      this.fill();
    } });
    box.checked = this.chosen.includes(run.id);
    const state = run.out_of_memory ? "out of memory" : run.state === "exited" ? `exit code ${run.exit_code}` : run.state === "signalled" ? `signal ${run.signal}` : run.state;
    const began = minute(run.started_unix_ms);
    const memory = run.peak_memory_bytes === null ? NONE : size(run.peak_memory_bytes);
    return el("tr", { class: run.state === "running" ? "running" : null }, el("td", { class: "pick" }, box),
      el("td", {}, el("a", { href: link(run.id) }, run.id), el("span", { class: "sub" }, run.command.join(" ") || "(services)"), el("span", { class: "sub narrow-only" }, began)),
      el("td", { class: tone(run) }, state), el("td", { class: "wide-only" }, began), el("td", { class: "number" }, run.wall_seconds === null ? NONE : clock(run.wall_seconds * 1e6), el("span", { class: "sub narrow-only" }, memory)),
      el("td", { class: "number wide-only" }, memory));
  }
  async changed() { await this.load(); }
}

async function route() {
  const [kind, ...ids] = location.hash.replace(/^#\/?/, "").split("/").map((text) => { try { return decodeURIComponent(text); } catch { return ""; } });
  const page = inside ? new RunPage("") : kind === "run" && ids.length === 1 ? new RunPage(ids[0]) : kind === "compare" && ids.length === 2 ? new ComparePage(ids[0], ids[1]) : new ListPage();
  state.page = page;
  say("");
  try {
    await page.open($("main"));
    if (!inside) document.title = `${page.title} · Sconce`;
  } catch (error) {
    $("main").replaceChildren(el("h1", {}, "This cannot be shown"), el("p", {}, error.message), inside ? null : el("p", {}, el("a", { href: "#/" }, "All runs")));
  }
  $("main").focus({ preventScroll: true });
  if (!inside) window.scrollTo(0, 0);
}

// Events of the server: which runs there are and how far each is.
async function listen() {
  for (;;) {
    try {
      const answer = await source.ask("api/live"), reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        text += value;
        const events = text.split("\n\n");
        text = events.pop();
        for (const event of events) {
          const data = event.split("\n").find((line) => line.startsWith("data: "));
          if (!data) continue;
          state.standing = new Map(JSON.parse(data.slice(6)).map((run) => [run.id, run]));
          if (!state.busy) {
            state.busy = true;
            await state.page.changed(state.standing).catch((error) => say(error.message));
            state.busy = false;
          }
        }
      }
    } catch { /* said below */ }
    say("no connection to sconce serve");
    await new Promise((done) => setTimeout(done, 2000));
  }
}

async function begin() {
  if (inside) $("home").removeAttribute("href");
  else {
    // The token leaves the address at once: histories and screens keep addresses.
    const given = /^#token=([A-Za-z0-9_-]+)(.*)$/.exec(location.hash);
    if (given) {
      sessionStorage.setItem("token", given[1]);
      history.replaceState(null, "", `${location.pathname}#/`);
    }
    state.token = sessionStorage.getItem("token") ?? "";
  }
  window.addEventListener("hashchange", () => { if (location.hash !== "#main") route(); });
  window.addEventListener("resize", () => { for (const plot of state.page?.timelines?.stage.plots ?? []) plot.draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const plot of state.page?.timelines?.stage.plots ?? []) plot.draw(); });
  await route();
  if (!inside) listen();
}
begin();
