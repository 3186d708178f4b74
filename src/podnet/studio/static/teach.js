// New classes by hand: name them, drop photos, teach, look at what it did, keep it or undo it.

import { announce, duration, h, number, post, request, sendPhoto, titledTable } from "./dom.js";
import { track } from "./runs.js";
import { listen, store } from "./store.js";
import { dropZone, needsModel } from "./try.js";

const AT_ONCE = 4; // uploads

// Keep the last change or undo it; nothing where there is none.
export function changeBar(model, done, fail) {
  if (!model.can_undo) return "";
  const act = (path, words) => async () => {
    try { await post(path); announce(words); await done(); } catch (error) { fail(error); }
  };
  return h("div", { class: "notice row", role: "group", "aria-label": "The last change" }, h("span", {}, "The model was changed; the state before is kept until you accept."),
    h("button", { type: "button", class: "main", onclick: act("/api/model/accept", "The change is accepted") }, "Accept"),
    h("button", { type: "button", onclick: act("/api/model/undo", "The change is undone") }, "Undo"));
}

function outcome({ entry, before, forgotten }) {
  const value = (source, key, i) => source?.[key]?.[i] ?? null;
  const rows = [["all classes", "accuracy"], ["old classes", "old_accuracy"], ["new classes", "new_accuracy"]] // before, all were old
    .map(([words, key]) => [words, ...["cnn", "nme"].flatMap((i) => [key === "old_accuracy" ? value(before, "accuracy", i) : null, value(entry, key, i)])]);
  const drops = forgotten.map(([name, then, now]) => `${name}: ${number(then, 1)} to ${number(now, 1)}`);
  return h("div", {}, Object.keys(entry.accuracy ?? {}).length
    ? titledTable("What it did", { columns: ["held-out accuracy", "CNN before", "CNN after", "NME before", "NME after"], rows }, { shown: (v) => (typeof v === "number" ? number(v, 1) : v ?? "—") })
    : h("p", {}, "No photo was held out, so there is nothing to measure with: 5 photos a class are needed."),
    drops.length ? h("p", { class: "fell" }, `Partly forgotten: ${drops.join(", ")}`) : before ? h("p", { class: "soft" }, "No class lost more than 5 points.") : "");
}

export function teachView(container) {
  container.append(h("h1", {}, "Teach it"));
  if (!store.model) { container.append(needsModel()); return null; }
  const status = h("div");
  const change = h("div");
  const rows = h("div");
  const trouble = h("p", { class: "notice bad", role: "alert", hidden: true });
  const epochs = h("input", { type: "number", min: 1, max: 1000, placeholder: "automatic", "aria-label": "Epochs", style: "width:8rem" });
  const fail = (error) => { trouble.hidden = false; trouble.textContent = error.message; };
  let model = null;
  let pending = 0; // classes whose photos are on their way
  const sheets = []; // one a class: {name input, photos, element}

  const known = () => (model?.classes ?? []).map((record) => record.name);

  const sheet = (name = "", photos = []) => {
    const list = h("ul", { class: "thumbs" });
    const note = h("p", { class: "soft small-text" });
    const title = h("input", { type: "text", value: name, maxlength: 200, placeholder: "name of the class", "aria-label": "Name of the class", oninput: () => tell() });
    const own = { title, photos: [...photos], element: null };
    const tell = () => {
      const kept = own.photos.length;
      title.disabled = kept > 0;
      note.textContent = [kept ? `${kept} photo${kept > 1 ? "s" : ""}` : "about 20 photos are good, 5 are the least to measure with", known().includes(title.value.trim()) ? "known already: these photos refresh it" : ""].filter(Boolean).join(" · ");
      update();
    };
    const add = (id) => list.append(h("li", { "data-id": id }, h("img", { src: `/api/draft/${id}`, alt: `photo for ${title.value}`, width: 56, height: 56 }),
      h("button", { type: "button", "aria-label": "Take this photo back", onclick: async () => {
        try { await request(`/api/draft/${id}`, { method: "DELETE" }); } catch (error) { fail(error); return; }
        own.photos.splice(own.photos.indexOf(id), 1);
        list.querySelector(`[data-id="${id}"]`).remove();
        tell();
      } }, "×")));
    const take = async (files) => {
      trouble.hidden = true;
      const label = title.value.trim();
      if (!label) { fail(new Error("Give the class a name first.")); title.focus(); return; }
      const waiting = [...files];
      const refused = [];
      const work = async () => {
        for (let file = waiting.shift(); file; file = waiting.shift()) {
          try {
            const { id, name: kept } = await sendPhoto(`/api/draft?name=${encodeURIComponent(label)}`, file);
            title.value = kept; // as it is spelt there
            if (!own.photos.includes(id)) { own.photos.push(id); add(id); }
          } catch (error) { refused.push(`${file.name}: ${error.message}`); }
          tell();
        }
      };
      title.disabled = true;
      pending += 1;
      update();
      await Promise.all(Array.from({ length: AT_ONCE }, work));
      pending -= 1;
      tell();
      if (refused.length) fail(new Error(`${refused.length} refused. ${refused.slice(0, 3).join(" ")}`));
      announce(`${own.photos.length} photos of ${label}`);
    };
    own.element = h("section", { class: "card", "aria-label": "A class" },
      h("div", { class: "bar" }, title, h("button", { type: "button", class: "small", onclick: async () => {
        if (own.photos.length) await request(`/api/draft?name=${encodeURIComponent(title.value.trim())}`, { method: "DELETE" }).catch(fail);
        sheets.splice(sheets.indexOf(own), 1);
        own.element.remove();
        update();
      } }, "discard")), dropZone("Drop photos of this class, or choose some", take, true), list, note);
    for (const id of own.photos) add(id);
    sheets.push(own);
    rows.append(own.element);
    tell();
    return own;
  };

  const teach = h("button", { type: "button", class: "main", onclick: async () => {
    trouble.hidden = true;
    try { await post("/api/teach", { epochs: epochs.value ? Number(epochs.value) : null }); } catch (error) { fail(error); }
  } }, "Teach");
  const more = h("button", { type: "button", onclick: () => sheet().title.focus() }, "Add a class");
  const stop = h("button", { type: "button", onclick: () => request("/api/teach", { method: "DELETE" }).catch(fail) }, "Stop");
  const draft = h("div", {}, rows, h("div", { class: "row" }, more, teach, h("label", { class: "row soft small-text" }, "epochs", epochs)));

  const update = () => {
    const ready = sheets.filter((own) => own.photos.length).length;
    const first = model && !model.exists;
    teach.disabled = pending > 0 || ready < (first ? 2 : 1) || store.teaching.state === "running" || (model?.exists && !model.can_learn);
    teach.title = first && ready < 2 ? "a new model needs photos of two classes" : "";
  };

  const [title, bar, words] = [h("h2"), h("div"), h("p", { class: "soft" })];
  const progress = h("section", { class: "card" }, h("div", { class: "bar" }, title, stop), bar, words);
  let announced = "";
  let shown = "";
  const tellTeaching = () => {
    const { state, message, classes, phase, epoch, epochs: of, share, began } = store.teaching;
    if (state === "running") {
      draft.hidden = true;
      if (shown !== "running" || !progress.isConnected) status.replaceChildren(progress); // once: the Stop button keeps the focus
      title.textContent = `Learning ${classes.join(", ")}`;
      bar.replaceChildren(track(share ?? 0, "progress of the phase"));
      words.textContent = phase ? `${phase}, epoch ${epoch} of ${of}, ${duration(Date.now() / 1000 - began)} so far` : "looking at the photos …";
      if (phase !== announced) { announced = phase; if (phase) announce(`Learning, phase ${phase}`); }
    } else {
      draft.hidden = false;
      const kind = { failed: "bad", done: "good", stopped: "" }[state];
      status.replaceChildren(state === "idle" ? "" : h("div", { class: `notice ${kind}`, role: state === "failed" ? "alert" : "status" },
        h("p", {}, state === "done" ? `It has learned ${classes.join(", ")}.` : message), state === "done" ? outcome(store.teaching) : "",
        state === "done" ? h("p", {}, h("a", { href: "#/try" }, "Try it"), " · ", h("a", { href: "#/model" }, "look at the model")) : ""));
      if (shown === "running") { announce(state === "done" ? "Teaching is done" : message); load().catch(fail); }
    }
    shown = state;
    update();
  };

  const load = async () => {
    const [now, waiting] = await Promise.all([request("/api/model"), request("/api/draft")]);
    model = now;
    change.replaceChildren(changeBar(model, load, fail));
    rows.replaceChildren();
    sheets.length = 0;
    for (const { name, photos } of waiting) sheet(name, photos);
    const least = model.exists ? 1 : 2;
    while (sheets.length < least) sheet();
    if (!model.exists) change.replaceChildren(h("p", { class: "notice" }, `${model.file} will be made by the first two classes or more; that cannot be undone, but the file can be removed.`));
    else if (!model.can_learn) change.replaceChildren(h("p", { class: "notice" }, "The model was saved without exemplars: it cannot go on learning."));
    tellTeaching();
  };

  container.append(h("p", { class: "soft" }, "Name a class, drop its photos, and press Teach. Old classes are kept by the exemplars in the model."), trouble, change, status, draft);
  load().catch(fail);
  return listen((news) => {
    if (news.teach) tellTeaching();
    if (news.model && store.teaching.state !== "running") request("/api/model").then((now) => { model = now; change.replaceChildren(changeBar(now, load, fail)); update(); }).catch(fail);
  });
}
