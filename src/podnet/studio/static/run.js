// One run, as it grows: curves, the accuracy matrix, classes, confusions, losses, time, and how to run it again.

import { accuracyAxes, Chart, COLOURS, HEAT, plain, TERMS } from "./charts.js";
import { h, number, request, titledTable } from "./dom.js";
import { progressWords, stateMark, track } from "./runs.js";
import { listen, store } from "./store.js";

const NAMES = { cnn: "CNN", nme: "NME" };
const of = (results, measure, inference) => results.map((line) => line[measure][inference]);
const mode = (count) => (count > 20 ? "lines" : "lines+markers");
const inferencesOf = (results) => ["cnn", "nme"].filter((i) => results[0]?.accuracy[i] !== null && results[0] !== undefined);

function curve(chart, results) {
  const seen = results.map((line) => line.seen);
  const kinds = inferencesOf(results);
  const traces = kinds.map((i) => ({ x: seen, y: of(results, "accuracy", i), name: NAMES[i], mode: mode(seen.length), line: { color: COLOURS[i], dash: i === "cnn" ? "dash" : "solid", width: 2 }, hovertemplate: "%{x} classes: %{y:.2f} %<extra></extra>" }));
  const last = results.at(-1);
  chart.show(traces, accuracyAxes(), { columns: ["classes", ...kinds.map((i) => NAMES[i])], rows: results.map((line) => [line.seen, ...kinds.map((i) => line.accuracy[i])]) },
    last ? `After ${last.seen} classes: ${kinds.map((i) => `${NAMES[i]} ${number(last.accuracy[i])} percent`).join(", ")}.` : "No task is finished yet.");
}

function balance(chart, results, inference) {
  const seen = results.map((line) => line.seen);
  const kinds = [["old_accuracy", "old classes", COLOURS.old], ["new_accuracy", "new classes", COLOURS.new]];
  const traces = kinds.map(([measure, name, color]) => ({ x: seen, y: of(results, measure, inference), name, mode: mode(seen.length), line: { color, width: 2 } }));
  chart.show(traces, accuracyAxes(), { columns: ["classes", "old", "new"], rows: results.map((line) => [line.seen, line.old_accuracy[inference], line.new_accuracy[inference]]) });
}

function matrix(chart, results, inference) {
  const z = results.map((line) => [...line.accuracy_per_task[inference], ...Array(results.length - line.accuracy_per_task[inference].length).fill(null)]);
  const names = results.map((line) => plain(line.new_classes.slice(0, 6).join(", ") + (line.new_classes.length > 6 ? " …" : "")));
  const few = results.length <= 12;
  const trace = { type: "heatmap", z, colorscale: HEAT, zmin: 0, zmax: 100, showscale: true, colorbar: { title: { text: "%" }, thickness: 12 }, customdata: z.map(() => names), xgap: few ? 2 : 0, ygap: few ? 2 : 0,
    texttemplate: few ? "%{z:.0f}" : "", hovertemplate: "after task %{y}, classes of task %{x} (%{customdata}): %{z:.1f} %<extra></extra>", hoverongaps: false };
  const fading = results.length > 1 ? `The first task's classes went from ${number(z[0][0], 1)} to ${number(z.at(-1)[0], 1)} percent.` : "";
  chart.show([trace], { xaxis: { title: { text: "classes of task" }, dtick: few ? 1 : undefined, showgrid: false }, yaxis: { title: { text: "after task" }, autorange: "reversed", dtick: few ? 1 : undefined, showgrid: false }, showlegend: false },
    { columns: ["after task", ...results.map((line) => `task ${line.task}`)], rows: z.map((row, i) => [i, ...row]) }, fading);
}

function perClass(chart, { names, learned, inferences }, inference) {
  const { then, now } = inferences[inference];
  const x = names.map((_, i) => i);
  const text = names.map((name, i) => plain(`${name} (task ${learned[i]})`));
  const falls = { x: x.flatMap((i) => [i, i, null]), y: x.flatMap((i) => [then[i], now[i], null]), mode: "lines", line: { color: "#8a94a3", width: 1 }, hoverinfo: "skip", showlegend: false };
  const dots = (y, name, marker) => ({ x, y, name, mode: "markers", marker: { size: names.length > 50 ? 6 : 9, ...marker }, text, hovertemplate: "%{text}: %{y:.1f} %<extra></extra>" });
  const few = names.length <= 30;
  const lost = x.filter((i) => now[i] < then[i]).length;
  chart.show([falls, dots(then, "when it was new", { symbol: "circle-open", color: COLOURS.new, line: { width: 2 } }), dots(now, "now", { color: COLOURS.old })],
    { xaxis: { title: { text: "class, in the order they were learned" }, ...(few ? { tickvals: x, ticktext: names.map((name) => plain(name.length > 14 ? `${name.slice(0, 13)}…` : name)), tickangle: -45, title: { text: "" } } : {}), showgrid: false }, yaxis: { title: { text: "accuracy (%)" }, range: [-3, 103] }, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, margin: { l: 48, r: 16, t: 36, b: 60 } },
    { columns: ["class", "task", "when new", "now", "change"], rows: names.map((name, i) => [name, learned[i], then[i], now[i], now[i] - then[i]]) },
    `${lost} of ${names.length} classes are recognised less often than when they were new.`);
}

const MOST_CELLS = 10_000; // of a table that is shown; larger ones are saved as CSV

function confusion(chart, { names, inferences }, inference) {
  const counts = inferences[inference].confusion;
  const z = counts.map((row) => { const sum = Math.max(1, row.reduce((a, b) => a + b, 0)); return row.map((n) => (100 * n) / sum); });
  const few = names.length <= 30;
  const labels = names.map(plain);
  const axis = { type: "category", showgrid: false, ...(few ? { tickvals: labels, ticktext: names.map((name) => plain(name.length > 14 ? `${name.slice(0, 13)}…` : name)) } : { showticklabels: false }) };
  const trace = { type: "heatmap", x: labels, y: labels, z, colorscale: HEAT, zmin: 0, zmax: 100, colorbar: { title: { text: "%" }, thickness: 12 }, hovertemplate: "%{y} → %{x}: %{z:.1f} %<extra></extra>" };
  const table = { columns: ["true \\ predicted", ...names], rows: counts.map((row, i) => [names[i], ...row]) };
  const confused = counts.flatMap((row, i) => row.flatMap((n, j) => (i !== j && n ? [[names[i], names[j], n, z[i][j]]] : []))).sort((a, b) => b[2] - a[2]).slice(0, 100);
  const shown = counts.length ** 2 <= MOST_CELLS ? table : { columns: ["true class", "taken for", "images", "%"], rows: confused };
  chart.show([trace], { xaxis: { title: { text: few ? "" : "predicted class" }, tickangle: -60, ...axis }, yaxis: { title: { text: few ? "" : "true class" }, autorange: "reversed", ...axis }, showlegend: false, margin: { l: 60, r: 16, t: 12, b: 60 } },
    table, `Rows are true classes, columns predicted ones, in percent of the true class. ${confused.length ? `Most often, ${confused[0][0]} was taken for ${confused[0][1]}.` : ""}`, shown);
}

function losses(chart, epochs, phase) {
  const own = epochs.filter((line) => line.phase === phase);
  const terms = [...new Set(own.flatMap((line) => Object.keys(line.losses)))];
  const x = own.map((_, i) => i + 1);
  const text = own.map((line) => `task ${line.task}, epoch ${line.epoch + 1}`);
  const starts = own.flatMap((line, i) => (i && own[i - 1].task !== line.task ? [i + 0.5] : []));
  const shapes = starts.length <= 60 ? starts.map((at) => ({ type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: { color: "#8a94a355", width: 1 } })) : [];
  chart.show(terms.map((term, i) => ({ x, y: own.map((line) => line.losses[term] ?? null), name: plain(term), text, mode: "lines", line: { color: TERMS[i % TERMS.length], width: 1.5 }, hovertemplate: "%{text}: %{y:.4f}<extra></extra>" })),
    { xaxis: { title: { text: "epochs of this phase, all tasks" } }, yaxis: { title: { text: "loss" }, rangemode: "tozero" }, shapes },
    { columns: ["task", "epoch", "rate", ...terms], rows: own.map((line) => [line.task, line.epoch + 1, line.rate, ...terms.map((term) => line.losses[term] ?? null)]) });
}

function seconds(chart, results) {
  const stages = [...new Set(results.toReversed().flatMap((line) => Object.keys(line.seconds)))];
  const x = results.map((line) => line.task);
  chart.show(stages.map((stage, i) => ({ type: "bar", x, y: results.map((line) => line.seconds[stage] ?? 0), name: plain(stage), marker: { color: TERMS[i % TERMS.length] }, hovertemplate: `task %{x}, ${plain(stage)}: %{y:.2f} s<extra></extra>` })),
    { barmode: "stack", xaxis: { title: { text: "task" } }, yaxis: { title: { text: "seconds" } } },
    { columns: ["task", ...stages], rows: results.map((line) => [line.task, ...stages.map((stage) => line.seconds[stage] ?? 0)]) });
}

function resultTable(results) {
  const kinds = inferencesOf(results);
  const measures = [["accuracy", "all"], ["old_accuracy", "old"], ["new_accuracy", "new"], ["average_incremental_accuracy", "average"], ["forgetting", "forgetting"]];
  return { columns: ["task", "classes", "memory", ...kinds.flatMap((i) => measures.map(([, name]) => `${NAMES[i]} ${name}`)), "seconds"],
    rows: results.map((line) => [line.task, line.seen, line.memory, ...kinds.flatMap((i) => measures.map(([measure]) => line[measure][i])), Object.values(line.seconds).reduce((a, b) => a + b, 0)]) };
}

export function runView(container, id) {
  const path = `/api/runs/${encodeURIComponent(id)}`;
  const data = { results: [], epochs: [], classes: null, generations: {} };
  const head = h("div");
  const trouble = h("p", { class: "notice bad", role: "alert", hidden: true });
  const charts = {
    curve: new Chart("Accuracy on all classes seen"),
    balance: new Chart("Old against new classes"),
    matrix: new Chart("Accuracy matrix", { height: 420, note: "A row is a moment, a column the classes of one task: read a column downwards to see them fade." }),
    classes: new Chart("Each class: when it was new, and now", { height: 420 }),
    confusion: new Chart("Confusion matrix after the last task", { height: 460 }),
    seconds: new Chart("Seconds by stage"),
  };
  const lossCharts = new Map();
  const lossSection = h("div", { class: "grid" });
  const table = h("div");
  const origin = h("div");
  const about = { resume: "" };
  let inference = "nme";
  const choice = h("div", { class: "switch", role: "radiogroup", "aria-label": "Inference" }, ["cnn", "nme"].map((name) =>
    h("label", {}, h("input", { type: "radio", name: "inference", value: name, checked: name === inference, onchange: () => { inference = name; drawResults(); drawClasses(); } }), NAMES[name])));
  const body = h("div", { hidden: true }, h("h2", {}, "Accuracy"),
    h("div", { class: "grid" }, charts.curve.element, h("div", {}, charts.balance.element)), h("div", { class: "tools" }, h("h2", {}, "What becomes of the classes"), choice),
    h("div", { class: "grid" }, charts.matrix.element, charts.classes.element, charts.confusion.element, charts.seconds.element),
    h("h2", {}, "After each task"), table);
  container.append(h("p", {}, h("a", { href: "#/runs" }, "← all runs")), head, trouble, body, h("h2", {}, "Losses by phase"), lossSection, origin);

  const drawHead = () => {
    const run = store.runs.get(id);
    if (!run) {
      trouble.textContent = "There is no such run, or its folder is gone.";
      trouble.hidden = false;
      return;
    }
    trouble.hidden = true;
    const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
    head.replaceChildren(h("h1", {}, run.name || "this folder"),
      h("p", { class: "row" }, stateMark(run), h("span", { class: "soft" }, progressWords(run))),
      run.state !== "done" && run.tasks ? track(run.tasks_done / run.tasks, "tasks done") : "",
      run.message ? h("p", { class: "notice bad" }, run.message) : "",
      run.state === "stopped" && about.resume ? h("p", { class: "soft" }, "No process is at work on it. Go on with it: ", h("code", {}, about.resume)) : "",
      h("dl", { class: "facts" }, fact("average CNN", number(run.average.cnn)), fact("average NME", number(run.average.nme)), fact("forgetting CNN", number(run.forgetting.cnn)), fact("forgetting NME", number(run.forgetting.nme)),
        fact("method", [run.method, run.fidelity, run.seed !== null && `seed ${run.seed}`].filter(Boolean).join(", ")), fact("dataset", run.dataset), fact("protocol", run.protocol)));
  };

  const drawResults = () => {
    body.hidden = false;
    const kinds = inferencesOf(data.results);
    if (!kinds.includes(inference)) inference = kinds[0];
    choice.hidden = kinds.length < 2;
    for (const input of choice.querySelectorAll("input")) input.checked = input.value === inference;
    curve(charts.curve, data.results);
    balance(charts.balance, data.results, inference);
    matrix(charts.matrix, data.results, inference);
    seconds(charts.seconds, data.results);
    table.replaceChildren(titledTable("Results", resultTable(data.results)));
  };
  const drawClasses = () => {
    const ready = data.classes?.inferences[inference];
    charts.classes.element.hidden = charts.confusion.element.hidden = !ready;
    if (!ready) return;
    perClass(charts.classes, data.classes, inference);
    confusion(charts.confusion, data.classes, inference);
  };
  const drawLosses = () => {
    for (const phase of new Set(data.epochs.map((line) => line.phase))) {
      if (!lossCharts.has(phase)) {
        lossCharts.set(phase, new Chart(`Losses: ${phase}`, { height: 300 }));
        lossSection.append(lossCharts.get(phase).element);
      }
      losses(lossCharts.get(phase), data.epochs, phase);
    }
  };

  // Both files grow; a new generation means that the run was cut back, or begun anew: then all is read again.
  const grow = async (name) => {
    const { generation, lines } = await request(`${path}/${name}?start=${data[name].length}`);
    if (data.generations[name] !== undefined && generation !== data.generations[name]) {
      data[name] = [];
      delete data.generations[name];
      if (name === "results") { data.classes = null; body.hidden = true; loadAbout(); }
      else { lossCharts.clear(); lossSection.replaceChildren(); }
      return grow(name);
    }
    data.generations[name] = generation;
    data[name] = data[name].concat(lines);
    return lines.length > 0;
  };

  const load = async () => {
    trouble.hidden = true;
    const grew = await grow("results");
    if (grew) drawResults();
    if (await grow("epochs")) drawLosses();
    if (grew) {
      data.classes = await request(`${path}/classes`); // last: the predictions may be gone, to save space
      drawClasses();
    }
  };

  const loadAbout = async () => {
    const answer = await request(path).catch(() => null);
    if (!answer) return;
    const { config, environments, command, resume, folder } = answer;
    const copy = h("button", { type: "button", class: "small", onclick: async () => { await navigator.clipboard?.writeText(command); copy.textContent = "copied"; } }, "copy");
    const words = (value) => (value && typeof value === "object" ? Object.entries(value).map(([k, v]) => `${k} ${v}`).join(", ") : String(value ?? "—"));
    about.resume = resume;
    drawHead();
    origin.replaceChildren(h("h2", {}, "How it came about"),
      h("section", { class: "card" }, h("div", { class: "bar" }, h("h3", {}, "Run it again"), copy), h("pre", {}, command), h("p", { class: "soft small-text" }, folder)),
      h("div", { class: "grid" },
        h("section", { class: "card" }, h("h3", {}, "Configuration"), h("pre", { tabindex: "0" }, config)),
        h("div", {}, environments.map((entry, i) => titledTable(environments.length > 1 ? `Environment, start ${i + 1}` : "Environment", { columns: ["name", "value"], rows: Object.entries(entry).map(([name, value]) => [name, words(value)]) })))));
  };

  let busy = false, again = false;
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    do {
      again = false;
      try { await load(); } catch (error) { trouble.textContent = error.message; trouble.hidden = false; }
    } while (again);
    busy = false;
  };
  drawHead();
  refresh();
  loadAbout();
  return listen((news) => { if (news.runs?.has(id)) { drawHead(); if (store.runs.has(id)) refresh(); } });
}
