// What the model knows: its classes, how well it does on each, what it keeps of their photos, and a map.

import { Chart, dropAll, plain, TERMS } from "./charts.js";
import { announce, complaints, confirmed, fact, h, inferenceName, INFERENCES, number, photoCount, post, request, sentence, titledTable } from "./dom.js";
import { listen, store } from "./store.js";
import { changeBar } from "./teach.js";
import { needsModel } from "./try.js";

const FEW = 8; // photos shown of a class at first
const LOSS = 5; // points of accuracy that a class may lose by chance

// Dots are coloured by class, or by lesson where there are more classes than colours.
function groupsOf(classes) {
  const few = classes.length <= TERMS.length;
  const numbers = classes.map((record, label) => (few ? label : record.task));
  return { what: few ? "class" : "lesson", of: (label) => numbers[label], all: [...new Set(numbers)].sort((a, b) => a - b),
    name: (group) => (few ? classes[group].name : `lesson ${group + 1}`), colour: (label) => TERMS[numbers[label] % TERMS.length] };
}

const MAPS = { // by what the small dots are
  photos: ["Map of the class means", "Large dots are class means, small dots are photos"],
  proxies: ["Map of the class proxies", "Small dots are proxies, large dots their means"],
  means: ["Map of the class means", "Each dot is a class mean"],
};

function mapOf({ map, classes }, groups) {
  const [title, dots] = MAPS[map.of];
  const chart = new Chart(title, { height: 460, note: `${dots}, coloured by ${groups.what}. Axes: the first two principal components of the ${map.of === "proxies" ? "proxies" : "classes"}.` });
  const axes = (values) => ({ x: values.map(([x]) => x), y: values.map(([, y]) => y) });
  const traces = groups.all.map((group) => {
    const own = map.labels.flatMap((label, i) => (groups.of(label) === group ? [i] : []));
    return { ...axes(own.map((i) => map.points[i])), text: own.map((i) => plain(classes[map.labels[i]].name)), mode: "markers", name: plain(groups.name(group)), marker: { color: TERMS[group % TERMS.length], size: 7, opacity: 0.55 }, hovertemplate: "%{text}<extra></extra>" };
  });
  traces.push({ ...axes(map.middles), text: classes.map((record) => plain(record.name)), mode: classes.length <= 40 && innerWidth > 700 ? "markers+text" : "markers", textposition: "top center", showlegend: false, marker: { color: classes.map((_, label) => groups.colour(label)), size: 13, line: { color: "#ffffff", width: 1.5 } }, hovertemplate: "%{text}<extra></extra>" });
  const axis = (share) => ({ title: { text: `${(100 * share).toFixed(0)} % of the variance` }, zeroline: false });
  chart.show(traces, { xaxis: axis(map.shares[0]), yaxis: axis(map.shares[1]) },
    { columns: ["class", "lesson", "x", "y"], rows: map.labels.map((label, i) => [classes[label].name, classes[label].task + 1, ...map.points[i]]) },
    `${classes.length} classes; classes that are close may be confused.`);
  return chart.element;
}

function classCard(record, label, colour, version, forget) {
  const photos = record.exemplars > 0 && h("ul", { class: "thumbs" });
  const show = (count) => photos.replaceChildren(...Array.from({ length: Math.min(count, record.exemplars) }, (_, i) =>
    h("li", {}, h("img", { src: `/api/model/classes/${label}/photos/${i}?size=112&v=${version}`, alt: `exemplar ${i + 1} of ${record.name}`, loading: "lazy", width: 56, height: 56 }))));
  if (photos) show(FEW);
  const all = record.exemplars > FEW && h("button", { type: "button", class: "small", onclick: () => { show(record.exemplars); all.remove(); } }, `all ${record.exemplars}`);
  const fell = record.then !== null && record.now < record.then - LOSS;
  return h("li", { class: "card" },
    h("div", { class: "bar" }, h("h3", {}, h("span", { class: "dot", style: { background: colour } }), record.name),
      h("button", { type: "button", class: "small", "aria-label": `Remove ${record.name}`, onclick: forget }, "remove")),
    h("p", { class: "small-text" }, `learned ${record.learned} from ${photoCount(record.photos)}; kept: ${record.kept}`, h("br"),
      record.then === null ? "accuracy not measured" : h("span", { class: fell ? "fell" : "" }, `accuracy ${number(record.then, 1)} % then, ${number(record.now, 1)} % now`), h("br"),
      record.nearest.length ? h("span", { class: "soft" }, `near: ${record.nearest.map((other) => `${other.name} (${number(other.cosine)})`).join(", ")}`) : ""),
    photos, all);
}

export function modelView(container) {
  container.append(h("h1", {}, "Model"));
  if (!store.model) { container.append(needsModel()); return null; }
  const map = h("div");
  const head = h("div");
  const body = h("div");
  const { trouble, complain, fail } = complaints();
  const list = h("ul", { class: "classes" });
  const below = h("div");
  const forget = async (record, keep) => {
    const left = keep === "sums" ? " The sums over all photos will still include its photos." : "";
    if (!await confirmed(`Remove the class ${record.name}? The previous state, including data from these photos, is kept until you accept.${left}`, "Remove")) return;
    const removed = () => { announce(`${record.name} was removed`); return load(); };
    post("/api/model/forget", { name: record.name }).then(removed).catch(fail);
  };
  const load = async () => {
    const model = await request("/api/model");
    if (!body.isConnected) return; // the view was left
    complain();
    if (!model.exists) {
      head.replaceChildren(h("div", { class: "card" }, h("p", {}, `The model ${model.file} does not exist yet. `, h("a", { href: "#/teach" }, "Teach two classes"), " to create it.")));
      body.hidden = true;
      return;
    }
    body.hidden = false;
    const last = model.history.at(-1);
    head.replaceChildren(changeBar(model, load, fail), h("dl", { class: "facts" },
      fact("file", model.file), fact("classes", String(model.classes.length)), Object.keys(INFERENCES).map((i) => fact(["accuracy, ", inferenceName(i)], last.accuracy[i] === undefined ? "—" : `${number(last.accuracy[i], 1)} %`)),
      fact("network", `${model.settings.backbone}, ${model.settings.image_size} px, ${model.settings.trained ? "trained" : "not trained"}`), fact("kept from photos", model.kept), fact("size", `${(model.bytes / 1e6).toFixed(1)} MB`)),
      h("p", { class: "soft" }, sentence(model.measured)),
      model.can_learn ? "" : h("p", { class: "notice" }, "Saved without data from its photos: the model can predict but not learn more."));
    dropAll();
    const groups = groupsOf(model.classes);
    map.replaceChildren(mapOf(model, groups));
    list.replaceChildren(...model.classes.map((record, label) => classCard(record, label, groups.colour(label), model.version, () => forget(record, model.settings.keep))));
    below.replaceChildren(
      titledTable("Classes", { columns: ["class", "learned", "photos", "kept", "accuracy then", "now", "nearest"], rows: model.classes.map((r) => [r.name, r.learned, r.photos, r.kept, r.then, r.now, r.nearest.map((n) => n.name).join("; ")]) }),
      titledTable("History", { columns: ["lesson", "date", "new classes", "photos", ...Object.values(INFERENCES), "seconds"], rows: model.history.map((e, i) => [i + 1, e.date, e.new.join(", ") || `refreshed ${e.refreshed.join(", ")}`, e.photos, e.accuracy.cnn ?? null, e.accuracy.nme ?? null, e.seconds]) }));
  };
  head.append(h("p", { class: "soft" }, "loading the model …"));
  body.hidden = true;
  body.append(h("h2", {}, "Map"), map, h("h2", {}, "Classes"), list, h("h2", {}, "Tables"), below);
  container.append(trouble, head, body);
  load().catch(fail);
  return listen((news) => (news.model || (news.teach && store.teaching.state !== "running")) && load().catch(fail));
}
