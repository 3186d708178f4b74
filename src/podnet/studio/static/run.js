// One run, as it grows: curves, the accuracy matrix, classes, confusions, losses, time, and how to run it again.

import { Chart } from "./charts.js";
import { complaints, fact, h, number, request, titledTable } from "./dom.js";
import { balance, confusion, curve, inferencesOf, kept, losses, matrix, NAMES, perClass, resultTable, seconds, sizeWords, wholeTable } from "./run-charts.js";
import { progressWords, stateMark, track } from "./runs.js";
import { listen, store } from "./store.js";

// Name, state and the few numbers of a run.
function headOf(run, resume) {
  const measured = [["average", run.average], ["forgetting", run.forgetting]].flatMap(([name, values]) =>
    Object.keys(NAMES).filter((i) => values[i] !== null).map((i) => fact(`${name} ${NAMES[i]}`, number(values[i]))));
  return [h("h1", {}, run.name || "this folder"),
    h("p", { class: "row" }, stateMark(run), h("span", { class: "soft" }, progressWords(run))),
    run.state !== "done" && run.tasks ? track(run.tasks_done / run.tasks, "tasks done") : "",
    run.message ? h("p", { class: "notice bad" }, run.message) : "",
    run.state === "stopped" && resume ? h("p", { class: "soft" }, "No process is running it. Continue with: ", h("code", {}, resume)) : "",
    h("dl", { class: "facts" }, measured,
      fact("method", [run.method, run.fidelity, run.seed !== null && `seed ${run.seed}`].filter(Boolean).join(", ")), fact("dataset", run.dataset), fact("protocol", run.protocol))];
}

// The command that repeats a run, its configuration and the machines it ran on.
function originOf({ config, environments, command, folder }) {
  const copy = navigator.clipboard && h("button", { type: "button", class: "small", onclick: async () => { await navigator.clipboard.writeText(command); copy.textContent = "copied"; } }, "copy");
  const words = (value) => (value && typeof value === "object" ? Object.entries(value).map(([k, v]) => `${k} ${v}`).join(", ") : String(value ?? "—"));
  return [h("h2", {}, "Reproduce this run"),
    h("section", { class: "card" }, h("div", { class: "bar" }, h("h3", {}, "Command"), copy), h("pre", {}, command), h("p", { class: "soft small-text" }, folder)),
    h("div", { class: "grid" },
      h("section", { class: "card" }, h("h3", {}, "Configuration"), h("pre", { tabindex: "0" }, config)),
      h("div", {}, environments.map((entry, i) => titledTable(environments.length > 1 ? `Environment, start ${i + 1}` : "Environment", { columns: ["name", "value"], rows: Object.entries(entry).map(([name, value]) => [name, words(value)]) }))))];
}

// The charts and tables of a run's numbers; they are drawn as far as there are numbers.
class Numbers {
  constructor() {
    this.charts = {
      curve: new Chart("Accuracy on all classes seen"),
      balance: new Chart("Old and new classes"),
      matrix: new Chart("Accuracy matrix", { height: 420, note: "Each row is the state after a task, each column the classes of one task. Read a column downwards to see forgetting." }),
      classes: new Chart("Each class: when new, and now", { height: 420 }),
      confusion: new Chart("Confusion matrix after the last task", { height: 460 }),
      seconds: new Chart("Seconds by stage"),
      kept: new Chart("Megabytes kept after each task, by part"),
    };
    this.inference = "nme";
    this.losses = new Map();
    this.lossSection = h("div", { class: "grid" });
    this.table = h("div");
    this.choice = h("div", { class: "switch", role: "radiogroup", "aria-label": "Inference" }, Object.entries(NAMES).map(([name, label]) =>
      h("label", {}, h("input", { type: "radio", name: "inference", value: name, onchange: () => { this.inference = name; this.drawResults(this.results); this.drawClasses(this.classes); } }), label)));
    const { curve: all, balance: sides, ...rest } = this.charts;
    this.element = h("div", { hidden: true }, h("div", { class: "tools" }, h("h2", {}, "Accuracy"), this.choice),
      h("div", { class: "grid" }, all.element, sides.element), h("h2", {}, "After each task"), this.table,
      h("h2", {}, "Forgetting"), h("div", { class: "grid" }, Object.values(rest).map((chart) => chart.element)));
  }

  drawResults(results) {
    this.results = results;
    this.element.hidden = false;
    const kinds = inferencesOf(results);
    if (!kinds.includes(this.inference)) this.inference = kinds[0];
    this.choice.hidden = kinds.length < 2;
    for (const input of this.choice.querySelectorAll("input")) input.checked = input.value === this.inference;
    curve(this.charts.curve, results);
    balance(this.charts.balance, results, this.inference);
    matrix(this.charts.matrix, results, this.inference);
    seconds(this.charts.seconds, results);
    kept(this.charts.kept, results);
    this.table.replaceChildren(titledTable(`Results, ${NAMES[this.inference]}`, resultTable(results, this.inference), { whole: wholeTable(results) }),
      h("p", { class: "soft small-text" }, sizeWords(results)));
  }

  drawClasses(classes) {
    this.classes = classes;
    const ready = classes?.inferences[this.inference];
    this.charts.classes.element.hidden = this.charts.confusion.element.hidden = !ready;
    if (!ready) return;
    perClass(this.charts.classes, classes, this.inference);
    confusion(this.charts.confusion, classes, this.inference);
  }

  drawLosses(epochs) {
    for (const phase of new Set(epochs.map((line) => line.phase))) {
      if (!this.losses.has(phase)) {
        this.losses.set(phase, new Chart(`Losses: ${phase}`, { height: 300 }));
        this.lossSection.append(this.losses.get(phase).element);
      }
      losses(this.losses.get(phase), epochs, phase);
    }
  }

  forget(name) {
    if (name === "results") { this.classes = null; this.element.hidden = true; }
    else { this.losses.clear(); this.lossSection.replaceChildren(); }
  }
}

// The lines of a run's two files, which grow; `restarted` is told when the run was cut back, or begun anew: then all is
// read again.
class Lines {
  constructor(path, restarted) {
    Object.assign(this, { path, restarted, results: [], epochs: [], generations: {} });
  }

  // Whether there are more lines than before.
  async grow(name) {
    const { generation, lines } = await request(`${this.path}/${name}?start=${this[name].length}`);
    const anew = generation !== (this.generations[name] ?? generation);
    this.generations[name] = generation;
    if (anew) {
      this[name] = [];
      this.restarted(name);
      return this.grow(name);
    }
    this[name] = this[name].concat(lines);
    return lines.length > 0;
  }
}

// A function that does the work, once more where it was called meanwhile; never twice at the same time.
function oneAtATime(work) {
  let calls = 0; // since it began to work
  return async () => {
    calls += 1;
    if (calls > 1) return;
    for (let seen = 0; seen < calls;) { seen = calls; await work(); }
    calls = 0;
  };
}

export function runView(container, id) {
  const path = `/api/runs/${encodeURIComponent(id)}`;
  const head = h("div");
  const { trouble, complain, fail } = complaints();
  const origin = h("div");
  const numbers = new Numbers();
  let resume = "";
  container.append(h("p", {}, h("a", { href: "#/runs" }, "← all runs")), head, trouble, numbers.element, h("h2", {}, "Losses by phase"), numbers.lossSection, origin);

  const drawHead = () => {
    const run = store.runs.get(id);
    if (run) head.replaceChildren(...headOf(run, resume));
    else complain("This run does not exist, or its folder was deleted.");
  };

  const loadAbout = async () => {
    const answer = await request(path).catch(() => null);
    if (!answer) return;
    resume = answer.resume;
    drawHead();
    origin.replaceChildren(...originOf(answer));
  };

  const lines = new Lines(path, (name) => { numbers.forget(name); if (name === "results") loadAbout(); });
  const load = async () => {
    complain();
    const grew = await lines.grow("results");
    if (grew) numbers.drawResults(lines.results);
    if (await lines.grow("epochs")) numbers.drawLosses(lines.epochs);
    if (grew) numbers.drawClasses(await request(`${path}/classes`)); // last: the predictions may be gone, to save space
  };
  const refresh = oneAtATime(() => load().catch(fail));

  drawHead();
  refresh();
  loadAbout();
  return listen((news) => { if (news.runs?.has(id)) { drawHead(); if (store.runs.has(id)) refresh(); } });
}
