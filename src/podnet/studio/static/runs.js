// The list of runs: state, progress, curves, averages; choose some to compare.

import { ago, duration, h, number, s, saveCsv } from "./dom.js";
import { listen, store } from "./store.js";

const SORTS = {
  "last changed": (a, b) => b.changed - a.changed,
  name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
  "best average": (a, b) => best(b) - best(a),
  state: (a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || b.changed - a.changed,
};
const ORDER = ["running", "failed", "stopped", "unreadable", "done"];
const best = (run) => Math.max(run.average.cnn ?? -1, run.average.nme ?? -1);
const settings = { filter: "", sort: "last changed" };

export const stateMark = (run) => h("span", { class: `state ${run.state}` }, run.state);

export function track(share, label) {
  const shown = Math.round(1000 * Math.min(1, Math.max(0, share))) / 10;
  return h("span", { class: "track", role: "progressbar", "aria-label": label, "aria-valuenow": Math.round(shown), "aria-valuemin": 0, "aria-valuemax": 100 },
    h("span", { style: { width: `${shown}%` } }));
}

export function progressWords(run) {
  const parts = [`${run.tasks_done} of ${run.tasks ?? "?"} tasks`];
  if (run.state === "running" && run.underway) {
    const { task, phase, epoch, epochs, seconds_left: left } = run.underway;
    parts.push(`task ${task}, ${phase}, epoch ${epoch} of ${epochs}${left >= 1 ? ` (${duration(left)} left)` : ""}`);
  }
  if (run.seconds_left !== null) parts.push(`${duration(run.seconds_left)} left`);
  return parts.join(" · ");
}

function spark(run) {
  const points = (values) => values.map((value, i) =>
    `${values.length > 1 ? (100 * i) / (values.length - 1) : 50},${34 - 0.32 * (value ?? 0)}`).join(" ");
  const line = (values, colour) => values.some((v) => v !== null) &&
    s("polyline", { points: points(values), fill: "none", stroke: colour, "stroke-width": 1.6, "vector-effect": "non-scaling-stroke" });
  return s("svg", { class: "spark", viewBox: "0 0 100 34", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("line", { x1: 0, x2: 100, y1: 33.5, y2: 33.5, stroke: "var(--line)" }),
    line(run.curves.cnn ?? [], "var(--cnn)"), line(run.curves.nme ?? [], "var(--nme)"));
}

const listTable = (runs) => ({
  columns: ["run", "state", "method", "fidelity", "dataset", "protocol", "order", "seed", "tasks done", "tasks", "average CNN", "average NME", "forgetting CNN", "forgetting NME"],
  rows: runs.map((run) => [run.name, run.state, run.method, run.fidelity, run.dataset, run.protocol, run.order, run.seed, run.tasks_done, run.tasks, run.average.cnn, run.average.nme, run.forgetting.cnn, run.forgetting.nme]),
});

function row(run, choose) {
  return h("tr", { "data-id": run.id, class: store.chosen.has(run.id) ? "chosen" : null },
    h("td", {}, h("input", { type: "checkbox", checked: store.chosen.has(run.id), "aria-label": `Select ${run.name}`, onchange: (event) => choose(run.id, event.target.checked) })),
    h("td", { class: "name" }, h("a", { href: `#/run/${run.id}` }, run.name || "this folder"),
      h("small", {}, [run.method, run.fidelity, run.dataset, run.protocol, run.seed !== null && `seed ${run.seed}`].filter(Boolean).join(" · "))),
    h("td", { class: "progress" }, stateMark(run), run.state !== "done" && run.tasks && track(run.tasks_done / run.tasks, "tasks done"), h("small", {}, run.message || progressWords(run))),
    h("td", { class: "curve" }, spark(run)),
    h("td", {}, number(run.average.cnn)), h("td", {}, number(run.average.nme)),
    h("td", { class: "forgot" }, number(run.forgetting.nme ?? run.forgetting.cnn)),
    h("td", { class: "when soft", "data-changed": run.changed }, ago(run.changed)));
}

export function runsView(container) {
  const body = h("tbody");
  const count = h("p", { class: "soft small-text", role: "status" });
  const compare = h("button", { class: "main", type: "button", onclick: () => { location.hash = `#/compare/${[...store.chosen].join(",")}`; } });
  const everything = h("input", { type: "checkbox", "aria-label": "Select all shown", onchange: () => {
    for (const run of shown()) { if (everything.checked) store.chosen.add(run.id); else store.chosen.delete(run.id); }
    draw();
  } });
  const rows = new Map();

  const shown = () => {
    const words = settings.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (run) => `${run.name} ${run.method} ${run.fidelity} ${run.dataset} ${run.protocol} ${run.state} seed ${run.seed}`.toLowerCase();
    return [...store.runs.values()].filter((run) => words.every((word) => text(run).includes(word))).sort(SORTS[settings.sort]);
  };
  const choose = (id, on) => {
    if (on) store.chosen.add(id); else store.chosen.delete(id);
    rows.get(id)?.classList.toggle("chosen", on);
    tellChosen();
  };
  const tellChosen = () => {
    compare.textContent = store.chosen.size ? `Compare ${store.chosen.size} run${store.chosen.size > 1 ? "s" : ""}` : "Compare";
    compare.disabled = store.chosen.size === 0;
  };
  // Only what changed is drawn anew; the order is kept while the keyboard is in the list.
  const draw = (changed = null) => {
    const runs = shown();
    const focus = body.contains(document.activeElement) ? document.activeElement : null;
    const { id: focused } = focus?.closest("tr").dataset ?? {};
    for (const run of runs.filter(({ id }) => !rows.has(id) || changed === null || changed.has(id))) {
      const fresh = row(run, choose);
      rows.get(run.id)?.replaceWith(fresh);
      rows.set(run.id, fresh);
    }
    const wanted = runs.map((run) => rows.get(run.id));
    const order = focus ? [...body.children].filter((old) => wanted.includes(old)) : [];
    const placed = [...order, ...wanted.filter((fresh) => !order.includes(fresh))];
    if (placed.length !== body.children.length || placed.some((fresh, i) => body.children[i] !== fresh)) body.replaceChildren(...placed);
    if (focus && focus !== document.activeElement) rows.get(focused).querySelector(focus.tagName).focus({ preventScroll: true });
    const all = store.runs.size;
    const running = [...store.runs.values()].filter((run) => run.state === "running").length;
    count.textContent = `${runs.length === all ? all : `${runs.length} of ${all}`} run${all === 1 ? "" : "s"}, ${running} running`;
    everything.checked = runs.length > 0 && runs.every((run) => store.chosen.has(run.id));
    empty.hidden = all > 0;
    list.hidden = all === 0;
    tellChosen();
  };

  const filter = h("input", { type: "search", placeholder: "Filter: podnet cifar100 seed 2 …", "aria-label": "Filter the runs", value: settings.filter,
    oninput: () => { settings.filter = filter.value; draw(); } });
  const sort = h("select", { "aria-label": "Sort by", onchange: () => { settings.sort = sort.value; draw(); } },
    Object.keys(SORTS).map((name) => h("option", { selected: name === settings.sort }, name)));
  const empty = h("div", { class: "card" }, h("h2", {}, "No runs yet"),
    h("p", {}, "No runs below ", h("code", {}, store.folder), ". Start one to see it here:"),
    h("pre", {}, "podnet run"));
  const list = h("div", { class: "card runs" }, h("table", {},
    h("caption", { class: "hidden-but-read" }, "Runs"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, everything), h("th", { scope: "col", class: "name" }, "Run"), h("th", { scope: "col", class: "progress" }, "State"),
      h("th", { scope: "col", class: "curve" }, h("span", { class: "cnn" }, "CNN"), " ", h("span", { class: "nme" }, "NME")),
      h("th", { scope: "col", title: "average incremental accuracy, CNN" }, "avg CNN"), h("th", { scope: "col", title: "average incremental accuracy, NME" }, "avg NME"),
      h("th", { scope: "col", class: "forgot" }, "forgot"), h("th", { scope: "col", class: "when" }, "changed"))), body));
  container.append(h("h1", {}, "Runs"), h("div", { class: "tools" }, filter, h("label", { class: "row soft small-text" }, "sorted by", sort), h("span", { class: "push row" }, h("button", { type: "button", class: "small", "aria-label": "Runs: save as CSV", onclick: () => saveCsv("Runs", listTable(shown())) }, "CSV"), compare)), count, list, empty);
  draw();
  const clock = setInterval(() => { for (const cell of body.querySelectorAll(".when")) cell.textContent = ago(Number(cell.dataset.changed)); }, 10_000);
  const stop = listen((news) => news.runs && draw(news.runs));
  return () => { stop(); clearInterval(clock); };
}
