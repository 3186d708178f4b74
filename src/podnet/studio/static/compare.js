// Several runs over each other, with the paper's averages where it prints some.

import { accuracyAxes, Chart, legendBelow, plain } from "./charts.js";
import { complaints, h, number, request, titledTable } from "./dom.js";
import { listen } from "./store.js";

function traces({ curves, paper }) {
  const drawn = [];
  for (const curve of curves) {
    const line = { color: curve.colour, dash: curve.dashed ? "dash" : "solid", width: 2 };
    if (curve.std) {
      const up = curve.mean.map((mean, i) => mean + curve.std[i]);
      const down = curve.mean.map((mean, i) => mean - curve.std[i]);
      drawn.push({ x: [...curve.seen, ...curve.seen.toReversed()], y: [...up, ...down.toReversed()], fill: "toself", fillcolor: `${curve.colour}26`, line: { width: 0 }, hoverinfo: "skip", showlegend: false, mode: "lines" });
    }
    drawn.push({ x: curve.seen, y: curve.mean, name: plain(curve.label), line, mode: curve.seen.length > 20 ? "lines" : "lines+markers", hovertemplate: "%{x} classes: %{y:.2f} %<extra></extra>" });
  }
  const all = curves.flatMap((curve) => curve.seen);
  const ends = [Math.min(...all), Math.max(...all)];
  for (const { label, mean, std } of paper) {
    const words = `${mean.toFixed(2)}${std === null ? "" : ` ± ${std.toFixed(2)}`}`;
    drawn.push({ x: ends, y: [mean, mean], mode: "lines", name: plain(`paper's average, ${label}: ${words}`), line: { color: "#8a94a3", dash: "dot", width: 1.5 }, hoverinfo: "name" });
  }
  return drawn;
}

// All numbers, and those that are shown: of the classes at which all curves have a value, as the others are mostly gaps.
function tablesOf(curves) {
  const table = (seen) => ({ columns: ["classes", ...curves.map((curve) => curve.label)],
    rows: seen.map((x) => [x, ...curves.map((curve) => curve.mean[curve.seen.indexOf(x)] ?? null)]) });
  const seen = [...new Set(curves.flatMap((curve) => curve.seen))].sort((a, b) => a - b);
  const common = seen.filter((x) => curves.every((curve) => curve.seen.includes(x)));
  return [table(seen), table(common.length > 1 ? common : seen)];
}

const cell = ({ mean, std }) => (mean === null ? "—" : number(mean) + (std === null ? "" : ` ± ${number(std)}`));

export function compareView(container, ids) {
  const keys = [...new Set(ids.split(",").filter(Boolean))];
  const chart = new Chart("Accuracy on all classes seen", { height: 480, note: "Dashed: CNN, solid: NME; bands: ± one sample standard deviation over runs that differ only in class order and seed. Dotted: the paper's average incremental accuracy for this protocol." });
  const tables = h("div");
  const { trouble, complain, fail } = complaints();
  container.append(h("h1", {}, `Comparison of ${keys.length} run${keys.length > 1 ? "s" : ""}`),
    h("p", {}, h("a", { href: "#/runs" }, "← all runs")), trouble, h("h2", {}, "Curves"), chart.element, h("h2", {}, "Numbers"), tables);

  const draw = (compared) => {
    complain();
    const { curves, columns, rows, notes, options, names, left_out: left } = compared;
    const drawn = traces(compared);
    const legend = legendBelow(chart, 340, drawn.filter((trace) => trace.showlegend !== false).length);
    const [all, common] = tablesOf(curves);
    chart.show(drawn, { ...accuracyAxes(), ...legend }, all, curves.map((curve) => curve.label).join("; "), common);
    const measured = columns.map((_, i) => i).filter((i) => rows.some((row) => row.values[i].mean !== null));
    tables.replaceChildren(
      titledTable("Averages", { columns: ["method", ...measured.map((i) => columns[i])], rows: rows.map((row) => [row.label, ...measured.map((i) => cell(row.values[i]))]) }),
      ...[...notes, ...left.map((name) => `Skipped ${name}, which has no finished task.`)].map((note) => h("p", { class: "soft small-text" }, note)),
      Object.keys(options).length ? titledTable("Settings that differ", { columns: ["option", ...names], rows: Object.entries(options).map(([option, values]) => [option, ...values]) }) : "");
  };

  const load = () => request(`/api/compare?${keys.map((key) => `run=${key}`).join("&")}`).then(draw).catch(fail);

  let waiting = null;
  load();
  const stop = listen((news) => {
    if (news.runs && keys.some((key) => news.runs.has(key)) && !waiting) {
      waiting = setTimeout(() => { waiting = null; load(); }, 800);
    }
  });
  return () => { stop(); clearTimeout(waiting); };
}
