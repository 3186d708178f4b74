// The charts and the table of one run, drawn from the lines of its results and epochs.

import { accuracyAxes, COLOURS, HEAT, plain, TERMS } from "./charts.js";
import { number } from "./dom.js";

export const NAMES = { cnn: "CNN", nme: "NME" };
const of = (results, measure, inference) => results.map((line) => line[measure][inference]);
const mode = (count) => (count > 20 ? "lines" : "lines+markers");
const MOST_TICKS = 30;
// Labels for the cells of a heat map; of very many cells only some get one.
function ticks(names) {
  const every = Math.ceil(names.length / MOST_TICKS);
  const tickvals = names.map((_, i) => i).filter((i) => i % every === 0);
  return { tickvals, ticktext: tickvals.map((i) => plain(names[i].length > 14 ? `${names[i].slice(0, 13)}…` : names[i])) };
}
export const inferencesOf = (results) => Object.keys(NAMES).filter((i) => results[0]?.accuracy[i] !== null && results[0] !== undefined);

export function curve(chart, results) {
  const seen = results.map((line) => line.seen);
  const kinds = inferencesOf(results);
  const traces = kinds.map((i) => ({ x: seen, y: of(results, "accuracy", i), name: NAMES[i], mode: mode(seen.length), line: { color: COLOURS[i], dash: i === "cnn" ? "dash" : "solid", width: 2 }, hovertemplate: "%{x} classes: %{y:.2f} %<extra></extra>" }));
  const last = results.at(-1);
  chart.show(traces, accuracyAxes(), { columns: ["classes", ...kinds.map((i) => NAMES[i])], rows: results.map((line) => [line.seen, ...kinds.map((i) => line.accuracy[i])]) },
    last ? `After ${last.seen} classes: ${kinds.map((i) => `${NAMES[i]} ${number(last.accuracy[i])} percent`).join(", ")}.` : "No task is finished yet.");
}

export function balance(chart, results, inference) {
  const seen = results.map((line) => line.seen);
  const kinds = [["old_accuracy", "old classes", COLOURS.old], ["new_accuracy", "new classes", COLOURS.new]];
  const traces = kinds.map(([measure, name, color]) => ({ x: seen, y: of(results, measure, inference), name, mode: mode(seen.length), line: { color, width: 2 } }));
  const last = results.at(-1);
  chart.show(traces, accuracyAxes(), { columns: ["classes", "old", "new"], rows: results.map((line) => [line.seen, line.old_accuracy[inference], line.new_accuracy[inference]]) },
    last ? `After ${last.seen} classes: old ${number(last.old_accuracy[inference])}, new ${number(last.new_accuracy[inference])} percent.` : "No task is finished yet.");
}

export function matrix(chart, results, inference) {
  const recorded = results.filter((line) => line.accuracy_per_task[inference]); // of many tasks not all are
  const z = recorded.map((line) => [...line.accuracy_per_task[inference], ...Array(results.length - line.accuracy_per_task[inference].length).fill(null)]);
  const names = results.map((line) => plain(line.new_classes.slice(0, 6).join(", ") + (line.new_classes.length > 6 ? " …" : "")));
  const few = results.length <= 12;
  const tasks = recorded.map((line) => String(line.task));
  const taught = results.map((line) => `${line.task}: ${line.new_classes.join(", ")}`);
  const trace = { type: "heatmap", z, colorscale: HEAT, zmin: 0, zmax: 100, showscale: true, colorbar: { title: { text: "%" }, thickness: 12 }, customdata: z.map(() => names), xgap: few ? 2 : 0, ygap: few ? 2 : 0,
    texttemplate: few ? "%{z:.0f}" : "", hovertemplate: "after task %{y}, classes of task %{x} (%{customdata}): %{z:.1f} %<extra></extra>", hoverongaps: false };
  const fading = recorded.length > 1 ? `Accuracy on the first task's classes went from ${number(z[0][0], 1)} to ${number(z.at(-1)[0], 1)} percent.` : "";
  chart.show([trace], { xaxis: { title: { text: "task and its classes" }, ...ticks(taught), tickangle: -45, ticklabeloverflow: "allow", showgrid: false }, yaxis: { title: { text: "after task" }, autorange: "reversed", ...ticks(tasks), showgrid: false }, showlegend: false },
    { columns: ["after task", ...results.map((line) => `task ${line.task}`)], rows: z.map((row, i) => [recorded[i].task, ...row]) }, fading);
}

export function perClass(chart, { names, learned, inferences }, inference) {
  const { then, now } = inferences[inference];
  const x = names.map((_, i) => i);
  const text = names.map((name, i) => plain(`${name} (task ${learned[i]})`));
  const falls = { x: x.flatMap((i) => [i, i, null]), y: x.flatMap((i) => [then[i], now[i], null]), mode: "lines", line: { color: "#8a94a3", width: 1 }, hoverinfo: "skip", showlegend: false };
  const dots = (y, name, marker) => ({ x, y, name, mode: "markers", marker: { size: names.length > 50 ? 6 : 9, ...marker }, text, hovertemplate: "%{text}: %{y:.1f} %<extra></extra>" });
  const lost = x.filter((i) => then[i] !== null && now[i] < then[i]).length;
  chart.show([falls, dots(then, "when new", { symbol: "circle-open", color: COLOURS.new, line: { width: 2 } }), dots(now, "now", { color: COLOURS.old })],
    { xaxis: { ...ticks(names), tickangle: -45, showgrid: false }, yaxis: { title: { text: "accuracy (%)" }, range: [-3, 103] }, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, margin: { l: 48, r: 16, t: 36, b: 60 } },
    { columns: ["class", "task", "when new", "now", "change"], rows: names.map((name, i) => [name, learned[i], then[i], now[i], then[i] === null ? null : now[i] - then[i]]) },
    `${lost} of ${names.length} classes have a lower accuracy than when they were new.`);
}

const MOST_CELLS = 10_000; // of a table that is shown; larger ones are saved as CSV

export function confusion(chart, { names, inferences }, inference) {
  const counts = inferences[inference].confusion;
  const z = counts.map((row) => { const sum = Math.max(1, row.reduce((a, b) => a + b, 0)); return row.map((n) => (100 * n) / sum); });
  const labels = names.map(plain);
  const { tickvals, ticktext } = ticks(names);
  const axis = { type: "category", showgrid: false, tickvals: tickvals.map((i) => labels[i]), ticktext };
  const trace = { type: "heatmap", x: labels, y: labels, z, colorscale: HEAT, zmin: 0, zmax: 100, colorbar: { title: { text: "%" }, thickness: 12 }, hovertemplate: "%{y} → %{x}: %{z:.1f} %<extra></extra>" };
  const table = { columns: ["true \\ predicted", ...names], rows: counts.map((row, i) => [names[i], ...row]) };
  const confused = counts.flatMap((row, i) => row.flatMap((n, j) => (i !== j && n ? [[names[i], names[j], n, z[i][j]]] : []))).sort((a, b) => b[2] - a[2]).slice(0, 100);
  const shown = counts.length ** 2 <= MOST_CELLS ? table : { columns: ["true class", "predicted as", "images", "%"], rows: confused };
  chart.show([trace], { xaxis: { title: { text: "predicted class" }, tickangle: -60, ...axis }, yaxis: { title: { text: "true class" }, autorange: "reversed", ...axis }, showlegend: false, margin: { l: 60, r: 16, t: 12, b: 60 } },
    table, `Rows are true classes, columns predicted ones, in percent of the true class. ${confused.length ? `Most frequent error: ${confused[0][0]} predicted as ${confused[0][1]}.` : ""}`, shown);
}

export function losses(chart, epochs, phase) {
  const own = epochs.filter((line) => line.phase === phase);
  const terms = [...new Set(own.flatMap((line) => Object.keys(line.losses)))];
  const x = own.map((_, i) => i + 1);
  const text = own.map((line) => `task ${line.task}, epoch ${line.epoch + 1}`);
  const starts = own.flatMap((line, i) => (i && own[i - 1].task !== line.task ? [i + 0.5] : []));
  const shapes = starts.length <= 60 ? starts.map((at) => ({ type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: { color: "#8a94a355", width: 1 } })) : [];
  chart.show(terms.map((term, i) => ({ x, y: own.map((line) => line.losses[term] ?? null), name: plain(term), text, mode: "lines", line: { color: TERMS[i % TERMS.length], width: 1.5 }, hovertemplate: "%{text}: %{y:.4f}<extra></extra>" })),
    { xaxis: { title: { text: "epochs of this phase, all tasks" } }, yaxis: { title: { text: "loss" }, rangemode: "tozero" }, shapes },
    { columns: ["task", "epoch", "rate", ...terms], rows: own.map((line) => [line.task, line.epoch + 1, line.rate, ...terms.map((term) => line.losses[term] ?? null)]) },
    own.length ? `Last epoch: ${terms.map((term) => `${term} ${number(own.at(-1).losses[term], 4)}`).join(", ")}.` : "No epoch is finished yet.");
}

// Bars of stacked parts, one bar a task; `parts` gives the parts of a line by name.
function stacked(chart, results, parts, { title, unit }) {
  const names = [...new Set(results.toReversed().flatMap((line) => Object.keys(parts(line))))];
  const value = (line, name) => parts(line)[name] ?? 0;
  chart.show(names.map((name, i) => ({ type: "bar", x: results.map((line) => line.task), y: results.map((line) => value(line, name)), name: plain(name), marker: { color: TERMS[i % TERMS.length] }, hovertemplate: `task %{x}, ${plain(name)}: %{y:.2f} ${unit}<extra></extra>` })),
    { barmode: "stack", xaxis: { title: { text: "task" } }, yaxis: { title: { text: title } } },
    { columns: ["task", ...names], rows: results.map((line) => [line.task, ...names.map((name) => value(line, name))]) },
    results.length ? `Last task: ${names.map((name) => `${name} ${number(value(results.at(-1), name))} ${unit}`).join(", ")}.` : "No task is finished yet.");
}

export const seconds = (chart, results) => stacked(chart, results, (line) => line.seconds, { title: "seconds", unit: "s" });

// Runs of earlier versions did not record what they keep.
const partsKept = (line) => Object.fromEntries(Object.entries(line.bytes ?? {}).map(([part, bytes]) => [part.replace("_", " "), bytes / 1e6]));
const sum = (values) => values.reduce((a, b) => a + b, 0);

export function kept(chart, results) {
  chart.element.hidden = !results.some((line) => line.bytes);
  if (!chart.element.hidden) stacked(chart, results, partsKept, { title: "megabytes", unit: "MB" });
}

const MEASURES = [["accuracy", "all"], ["old_accuracy", "old"], ["new_accuracy", "new"], ["average_incremental_accuracy", "average"], ["forgetting", "forgetting"], ["backward_transfer", "backward transfer"], ["learning_accuracy", "learning"]];
const megabytesKept = (line) => (line.bytes ? sum(Object.values(partsKept(line))) : null);
const SIZES = [["parameters", (line) => line.parameters ?? null], ["multiply-adds", (line) => line.multiply_adds ?? null], ["kept, MB", megabytesKept]];
const SHOWN_SIZES = SIZES.slice(2); // `sizeWords` says the others, which hardly change from task to task

// A row a task, with the measures of some inferences, and what the learner takes where it was recorded.
function tableWith(results, kinds, wanted) {
  const heading = (inference, name) => (kinds.length > 1 ? `${NAMES[inference]} ${name}` : name);
  const measures = MEASURES.filter(([measure]) => results.some((line) => line[measure]));
  const sizes = wanted.filter(([, size]) => results.some((line) => size(line) !== null));
  return { columns: ["task", "classes", "memory", ...kinds.flatMap((i) => measures.map(([, name]) => heading(i, name))), ...sizes.map(([name]) => name), "seconds"],
    rows: results.map((line) => [line.task, line.seen, line.memory, ...kinds.flatMap((i) => measures.map(([measure]) => line[measure]?.[i] ?? null)), ...sizes.map(([, size]) => size(line)), sum(Object.values(line.seconds))]) };
}

export const resultTable = (results, inference) => tableWith(results, [inference], SHOWN_SIZES);
export const wholeTable = (results) => tableWith(results, inferencesOf(results), SIZES);

export function sizeWords(results) {
  const { parameters, multiply_adds: operations } = results.at(-1) ?? {};
  if (!parameters) return "";
  return `After the last task: ${parameters.toLocaleString("en")} parameters${operations ? `, ${number(operations / 1e6, 1)} million multiply-adds an image` : ""}.`;
}
