// What the model knows: its classes and their photos, how well it does on each, and the map of its proxies.

import { Chart, plain, TERMS } from "./charts.js";
import { announce, confirmed, h, number, post, request, titledTable } from "./dom.js";
import { listen, store } from "./store.js";
import { changeBar } from "./teach.js";
import { needsModel } from "./try.js";

const FEW = 8; // photos shown of a class at first
const colour = (task) => TERMS[task % TERMS.length];

function drawMap(chart, { map, classes }) {
  const tasks = [...new Set(classes.map((record) => record.task))].sort((a, b) => a - b);
  const traces = tasks.map((task) => {
    const own = map.label.flatMap((label, i) => (classes[label].task === task ? [i] : []));
    return { x: own.map((i) => map.x[i]), y: own.map((i) => map.y[i]), text: own.map((i) => plain(classes[map.label[i]].name)), mode: "markers", name: `call ${task + 1}`, marker: { color: colour(task), size: 7, opacity: 0.55 }, hovertemplate: "%{text}<extra></extra>" };
  });
  const middles = classes.map((record, label) => {
    const own = map.label.flatMap((other, i) => (other === label ? [i] : []));
    const mean = (values) => own.reduce((sum, i) => sum + values[i], 0) / own.length;
    return { x: mean(map.x), y: mean(map.y), record };
  });
  traces.push({ x: middles.map((m) => m.x), y: middles.map((m) => m.y), text: middles.map((m) => plain(m.record.name)), mode: classes.length <= 40 && chart.plot.clientWidth > 600 ? "markers+text" : "markers", textposition: "top center", showlegend: false, marker: { color: middles.map((m) => colour(m.record.task)), size: 13, line: { color: "#ffffff", width: 1.5 } }, hovertemplate: "%{text}<extra></extra>" });
  const axis = (share) => ({ title: { text: `${(100 * share).toFixed(0)} % of the spread` }, zeroline: false });
  chart.show(traces, { xaxis: axis(map.shares[0]), yaxis: axis(map.shares[1] ?? 0) },
    { columns: ["class", "call", "x", "y"], rows: map.label.map((label, i) => [classes[label].name, classes[label].task + 1, map.x[i], map.y[i]]) },
    `${classes.length} classes; classes that lie close are the ones it confuses.`);
}

function classCard(record, label, version, forget) {
  const photos = h("ul", { class: "thumbs" });
  const show = (count) => photos.replaceChildren(...Array.from({ length: Math.min(count, record.exemplars) }, (_, i) =>
    h("li", {}, h("img", { src: `/api/model/classes/${label}/photos/${i}?size=112&v=${version}`, alt: `exemplar ${i + 1} of ${record.name}`, loading: "lazy", width: 56, height: 56 }))));
  show(FEW);
  const all = record.exemplars > FEW && h("button", { type: "button", class: "small", onclick: () => { show(record.exemplars); all.remove(); } }, `all ${record.exemplars}`);
  const fell = record.then !== null && record.now < record.then;
  return h("li", { class: "card" },
    h("div", { class: "bar" }, h("h3", {}, h("span", { class: "dot", style: `background:${colour(record.task)}` }), record.name),
      h("button", { type: "button", class: "small", "aria-label": `Remove ${record.name}`, onclick: () => forget(record) }, "remove")),
    h("p", { class: "small-text" }, `learned ${record.learned} from ${record.photos} photos`, h("br"),
      record.then === null ? "accuracy not measured" : h("span", { class: fell ? "fell" : "" }, `accuracy ${number(record.then, 1)} % then, ${number(record.now, 1)} % now`), h("br"),
      record.nearest.length ? h("span", { class: "soft" }, `near: ${record.nearest.map((other) => `${other.name} (${number(other.cosine)})`).join(", ")}`) : ""),
    photos, all);
}

export function modelView(container) {
  container.append(h("h1", {}, "Model"));
  if (!store.model) { container.append(needsModel()); return null; }
  const chart = new Chart("Map of the class proxies", { height: 460, note: "Small dots are the proxies, large ones their middle, coloured by the call of learn they came with; seen along their two main directions (principal components of the unit vectors)." });
  const head = h("div");
  const body = h("div");
  const trouble = h("p", { class: "notice bad", role: "alert", hidden: true });
  const list = h("ul", { class: "classes" });
  const below = h("div");
  const fail = (error) => { trouble.hidden = false; trouble.textContent = error.message; };
  const forget = async (record) => {
    if (!await confirmed(`Remove the class ${record.name}? Its photos stay in the kept earlier state until you accept.`, "Remove")) return;
    try {
      await post("/api/model/forget", { name: record.name });
      announce(`${record.name} was removed`);
      await load();
    } catch (error) { fail(error); }
  };
  const load = async () => {
    const model = await request("/api/model");
    trouble.hidden = true;
    if (!model.exists) {
      head.replaceChildren(h("div", { class: "card" }, h("p", {}, `There is no model ${model.file} yet. `, h("a", { href: "#/teach" }, "Teach it two classes"), ", and it will be made.")));
      body.hidden = true;
      return;
    }
    body.hidden = false;
    const last = model.history.at(-1);
    const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
    head.replaceChildren(changeBar(model, load, fail), h("dl", { class: "facts" },
      fact("file", model.file), fact("classes", String(model.classes.length)), fact("accuracy CNN", number(last.accuracy.cnn ?? null, 1)), fact("accuracy NME", number(last.accuracy.nme ?? null, 1)),
      fact("held-out photos", String(model.held_out)), fact("network", `${model.settings.backbone}, ${model.settings.image_size} px`), fact("size", `${(model.bytes / 1e6).toFixed(1)} MB`)),
      model.can_learn ? "" : h("p", { class: "notice" }, "It was saved without exemplars: it can predict, but it cannot go on learning."));
    drawMap(chart, model);
    list.replaceChildren(...model.classes.map((record, label) => classCard(record, label, model.version, forget)));
    below.replaceChildren(
      titledTable("Classes", { columns: ["class", "learned", "photos", "exemplars", "accuracy then", "now", "nearest"], rows: model.classes.map((r) => [r.name, r.learned, r.photos, r.exemplars, r.then, r.now, r.nearest.map((n) => n.name).join("; ")]) }),
      titledTable("History", { columns: ["call", "date", "new classes", "photos", "CNN", "NME", "seconds"], rows: model.history.map((e, i) => [i + 1, e.date, e.new.join(", ") || `refreshed ${e.refreshed.join(", ")}`, e.photos, e.accuracy.cnn ?? null, e.accuracy.nme ?? null, e.seconds]) }));
  };
  head.append(h("p", { class: "soft" }, "loading the model …"));
  body.hidden = true;
  body.append(h("h2", {}, "Map"), chart.element, h("h2", {}, "Classes"), list, h("h2", {}, "Tables"), below);
  container.append(trouble, head, body);
  load().catch(fail);
  return listen((news) => news.model && load().catch(fail));
}
