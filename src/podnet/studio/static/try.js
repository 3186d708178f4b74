// Drop a photo, read the answer, see where the network looked.

import { announce, complaints, h, inferenceName, percent, request, sendPhoto } from "./dom.js";
import { track } from "./runs.js";
import { listen, store } from "./store.js";

const PICTURES = "image/jpeg,image/png,image/webp,image/gif,image/bmp,image/tiff";

// A place to drop or choose files, by mouse, keyboard or paste.
export function dropZone(words, take, slim = false) {
  const input = h("input", { type: "file", accept: PICTURES, multiple: true, onchange: () => { take([...input.files]); input.value = ""; } });
  const zone = h("label", { class: `drop${slim ? " slim" : ""}`,
    ondragover: (event) => { event.preventDefault(); zone.classList.add("over"); },
    ondragleave: () => zone.classList.remove("over"),
    ondrop: (event) => { event.preventDefault(); zone.classList.remove("over"); take([...event.dataTransfer.files]); } }, input, words);
  return zone;
}

export const needsModel = () => h("div", { class: "card" }, h("h2", {}, "No model"),
  h("p", {}, "Start podnet studio with a model file, existing or new:"), h("pre", {}, "podnet studio --model shop.podnet"));

function ranked(name, list) {
  return h("section", {}, h("h3", {}, name), h("ol", {}, list.map(({ name: label, confidence }) =>
    h("li", {}, h("span", {}, label), h("span", { class: "soft" }, percent(confidence)), track(confidence, `${label}: ${percent(confidence)}`)))));
}

// A single class has no rival: both inferences say how typical the photo is of its own.
const lists = ({ cnn, nme }) => (cnn.length === 1 ? ranked("more typical than this share of the class's photos", cnn)
  : [ranked(inferenceName("cnn"), cnn), nme && ranked(inferenceName("nme"), nme)]);

// The heat map lies over the part of the photo that the network saw.
function overlay(heat, seen) {
  const canvas = h("canvas", { width: heat[0].length, height: heat.length, "aria-hidden": "true" });
  const [left, top, right, bottom] = seen.map((share) => 100 * share);
  Object.assign(canvas.style, { left: `${left}%`, top: `${top}%`, width: `${right - left}%`, height: `${bottom - top}%` });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(heat[0].length, heat.length);
  heat.flat().forEach((value, i) => pixels.data.set([255 * Math.min(1, 2 * value), 200 * Math.max(0, 1 - Math.abs(2 * value - 1)), 255 * Math.max(0, 1 - 2 * value), 255 * value], 4 * i));
  context.putImageData(pixels, 0, 0);
  return canvas;
}

function answerCard(file, names) {
  const card = h("article", { class: "card" }, h("h2", {}, file.name || "pasted photo"), h("p", { class: "soft" }, "predicting …"));
  const refuse = (error) => card.replaceChildren(h("h2", {}, file.name || "photo"), h("p", { class: "notice bad", role: "alert" }, error.message));
  const ask = (label) =>
    sendPhoto(`/api/predict${label === null ? "" : `?label=${label}`}`, file).then((answer) => show(answer, label !== null), refuse);
  const show = ({ ranked: both, best, unknown, heat, seen, photo, name, label }, chosen) => {
    const first = both[best][0];
    const said = unknown ? "unknown" : first.name;
    announce(`${file.name || "The photo"}: ${said}${unknown ? "" : `, ${percent(first.confidence)}`}`);
    const layer = heat && overlay(heat, seen);
    const toggle = h("label", { class: "row small-text" }, h("input", { type: "checkbox", checked: true, onchange: (event) => { layer.hidden = !event.target.checked; } }), "heat map for");
    const select = h("select", { "aria-label": "Heat map for the class", onchange: () => ask(Number(select.value)) },
      names().map((option, i) => h("option", { value: i, selected: i === label }, option)));
    card.replaceChildren(h("div", { class: "bar" }, h("h2", {}, file.name || "pasted photo")),
      h("div", { class: "answer" },
        h("div", {}, h("div", { class: "shown" }, h("img", { src: photo, alt: `${file.name || "Photo"}; ${said}` }), layer),
          heat ? h("div", { class: "row", style: { marginTop: ".5rem" } }, toggle, select) : h("p", { class: "soft small-text" }, `This network has no heat map for ${name}.`)),
        h("div", {}, h("p", { class: `verdict ${unknown ? "unknown" : ""}` }, said, h("small", {}, unknown ? "Not like any of its classes. Nearest classes:" : percent(first.confidence))),
          h("div", { class: `scores ${unknown ? "doubted" : ""}` }, lists(both)))));
    if (chosen) select.focus();
  };
  ask(null);
  return card;
}

export function tryView(container) {
  container.append(h("h1", {}, "Try it"));
  if (!store.model) { container.append(needsModel()); return null; }
  const answers = h("div");
  const { trouble, complain, fail } = complaints();
  let names = [];
  const learn = () => request("/api/model").then((model) => {
    names = (model.classes ?? []).map((record) => record.name);
    complain(model.exists ? "" : `The model ${model.file} does not exist yet; teach two classes first.`);
  }).catch(fail);
  const ready = learn();
  const take = async (files) => { await ready; for (const file of files) answers.prepend(answerCard(file, () => names)); };
  const paste = (event) => { const files = [...(event.clipboardData?.files ?? [])]; if (files.length) take(files); };
  document.addEventListener("paste", paste);
  container.append(trouble, dropZone("Drop photos here, choose some, or paste one. They stay on this machine.", take), h("div", { style: { height: "1rem" } }), answers);
  const stop = listen((news) => news.model && learn());
  return () => { document.removeEventListener("paste", paste); stop(); };
}
