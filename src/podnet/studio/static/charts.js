// Charts, drawn by Plotly, which the server has in a Python package. Each has a caption, its numbers as a table for
// those who cannot see it, and is saved as PNG, SVG or CSV.

import { download, fileName, h, saveCsv, tableOf } from "./dom.js";

let loading = null;

function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    const failed = () => { loading = null; reject(new Error("could not load the charts")); };
    document.head.append(h("script", { src: "/vendor/plotly.js", onload: () => resolve(window.Plotly), onerror: failed }));
  });
  return loading;
}

// Load it before it is needed; whoever needs it is told if that failed.
export const prepare = () => { loadPlotly().catch(() => {}); };

const live = new Set();

export function redrawAll() {
  for (const chart of live) chart.draw();
}

// Charts of a view that is left.
export function dropAll() {
  for (const chart of live) window.Plotly?.purge(chart.plot);
  live.clear();
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function styled({ traces, layout }, ink, lines, background) {
  const axis = { gridcolor: lines, zerolinecolor: lines, linecolor: lines, automargin: true };
  return {
    data: traces.map((trace) => (trace.line?.color === "#000000" ? { ...trace, line: { ...trace.line, color: ink } } : trace)),
    layout: {
      margin: { l: 48, r: 16, t: 12, b: 44 }, showlegend: true, hovermode: "closest",
      legend: { orientation: "h", y: -0.3, yanchor: "top", x: 0 },
      paper_bgcolor: background, plot_bgcolor: background, ...layout,
      xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
      font: { family: "system-ui, sans-serif", size: 12, color: ink },
    },
  };
}

export class Chart {
  constructor(title, { height = 340, note = "" } = {}) {
    this.title = title;
    this.height = height;
    this.plot = h("div", { class: "plot", style: { height: `${height}px` }, role: "img", "aria-label": title });
    this.table = h("div");
    const save = (kind) => h("button", { type: "button", class: "small", "aria-label": `${title}: save as ${kind}`,
      onclick: () => (kind === "CSV" ? saveCsv(title, this.numbers) : this.save(kind.toLowerCase())) }, kind);
    this.details = h("details", { ontoggle: () => this.fillTable() }, h("summary", {}, "As a table"), this.table);
    this.element = h("figure", { class: "card chart" },
      h("div", { class: "bar" }, h("h3", {}, title), h("span", { class: "row" }, ["PNG", "SVG", "CSV"].map(save))),
      this.plot, note && h("figcaption", {}, note), this.details);
    live.add(this);
    prepare(); // while the numbers are on their way
  }

  // traces and layout are Plotly's; `numbers` is the same as {columns, rows}; `words` says what is to be seen.
  // `shown` is what of the numbers is shown as a table, where all would be too many.
  async show(traces, layout, numbers, words = "", shown = numbers) {
    Object.assign(this, { traces, layout, numbers, shown });
    this.plot.setAttribute("aria-label", `${this.title}. ${words}`);
    if (this.details.open) this.fillTable();
    await this.draw();
  }

  fillTable() {
    if (this.details.open && this.numbers) this.table.replaceChildren(tableOf(this.title, this.shown));
  }

  async draw() {
    const Plotly = await loadPlotly();
    if (!this.traces || !this.plot.isConnected) return;
    const { data, layout } = styled(this, css("--ink"), css("--line"), "rgba(0,0,0,0)");
    await Plotly.react(this.plot, data, { ...layout, height: this.height, autosize: true }, { displayModeBar: false, responsive: true });
    this.plot.dataset.drawn = "yes";
  }

  resize(height) {
    this.height = height;
    this.plot.style.height = `${height}px`;
  }

  async save(format) {
    const Plotly = await loadPlotly();
    const { data, layout } = styled(this, "#1d2430", "#dfe3e8", "#ffffff");
    const size = { width: 900, height: Math.max(420, this.height) };
    const titled = { ...layout, ...size, title: { text: plain(this.title), x: 0.02 }, margin: { ...layout.margin, t: 56 } };
    const address = await Plotly.toImage({ data, layout: titled }, { format, scale: format === "png" ? 2 : 1, ...size });
    download(`${fileName(this.title)}.${format}`, address);
  }
}

// Plotly reads a few tags in its texts; names that come from outside are not to be read so.
export const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

export const accuracyAxes = () => ({
  xaxis: { title: { text: "classes seen" } }, yaxis: { title: { text: "accuracy (%)" }, rangemode: "tozero" },
});

// Room for a long legend: one entry a line, below the axes.
export function legendBelow(chart, height, entries) {
  const [line, axis] = [19, 64];
  chart.resize(height + axis + line * entries);
  return { margin: { l: 48, r: 16, t: 12, b: axis + line * entries }, legend: { orientation: "v", x: 0, y: -(axis - 8) / (height - 12), yanchor: "top" } };
}

export const HEAT = [[0, "#440154"], [0.25, "#3b528b"], [0.5, "#21918c"], [0.75, "#5ec962"], [1, "#fde725"]];

export const COLOURS = { cnn: "#0072b2", nme: "#d55e00", old: "#009e73", new: "#cc79a7" };
export const TERMS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#999933", "#332288", "#44aa99"];
