// New classes by hand: name them, drop photos, teach, look at what it did, keep it or undo it.

import { announce, complaints, duration, h, INFERENCES, number, percent, photoCount, post, request, sendPhoto, sentence, titledTable } from "./dom.js";
import { track } from "./runs.js";
import { listen, store } from "./store.js";
import { dropZone, needsModel } from "./try.js";

const AT_ONCE = 4; // uploads

// Keep the last change or undo it; nothing where there is none. A lesson that did harm is told first.
export function changeBar(model, done, fail) {
  if (!model.can_undo) return "";
  const act = (path, words) => () => post(path).then(() => { announce(words); return done(); }).catch(fail);
  const { state, worse } = store.teaching;
  const harm = state === "done" && worse;
  const words = harm
    ? `WORSE on the old classes: ${number(worse[0], 1)} % before, ${number(worse[1], 1)} % now. That is more than chance explains.`
    : "The model was changed; the previous state is kept until you accept.";
  return h("div", { class: `notice row ${harm ? "bad" : ""}`, role: "group", "aria-label": "The last change" }, h("span", {}, words),
    h("button", { type: "button", class: harm ? "" : "main", onclick: act("/api/model/accept", "Change accepted") }, "Accept"),
    h("button", { type: "button", class: harm ? "main" : "", onclick: act("/api/model/undo", "Change undone") }, "Undo"));
}

// What a lesson did: on all, old and new classes by both inferences, and on each class by the better one.
function outcome({ entry, before, best, interval, measured, forgotten, note }) {
  const shown = (value) => (typeof value === "number" ? number(value, 1) : value ?? "—");
  const row = (words, values) => [words, ...Object.keys(INFERENCES).map((i) => values[i] ?? null)];
  const old = before ? [row("old classes", entry.old_accuracy), row("old classes before", before.accuracy), row("new classes", entry.new_accuracy)] : [];
  const table = { columns: ["accuracy in %", ...Object.values(INFERENCES)], rows: [row("all classes", entry.accuracy), ...old] };
  const classes = Object.entries(entry.per_class[best] ?? {}).map(([name, now]) => [name, before?.per_class[best]?.[name] ?? null, now]);
  const drops = forgotten.map(([name, then, now]) => `${name}: ${number(then, 1)} to ${number(now, 1)}`);
  return h("div", {}, interval ? titledTable("Results", table, { shown }) : "",
    h("p", {}, sentence(measured)),
    note ? h("p", { class: "soft" }, note) : "",
    drops.length ? h("p", { class: "fell" }, `Lost more than 5 points: ${drops.join(", ")}`) : before ? h("p", { class: "soft" }, "No class lost more than 5 points.") : "",
    classes.length ? h("details", {}, h("summary", {}, `Each class (${INFERENCES[best]})`), titledTable("Each class", { columns: ["class", "before", "now"], rows: classes }, { shown })) : "");
}

export function teachView(container) {
  container.append(h("h1", {}, "Teach it"));
  if (!store.model) { container.append(needsModel()); return null; }
  const status = h("div");
  const change = h("div");
  const rows = h("div");
  const { trouble, complain, fail } = complaints();
  const epochs = h("input", { type: "number", min: 1, max: 1000, placeholder: "automatic", "aria-label": "Epochs", style: { width: "8rem" } });
  let model = null;
  let pending = 0; // classes whose photos are on their way
  const sheets = []; // one a class: {name input, list of photos, element}

  const least = () => (model?.exists === false ? 2 : 1); // classes: a new model needs two
  const trains = () => Boolean(model?.settings?.trained); // the network; otherwise a lesson takes seconds
  const known = () => (model?.classes ?? []).map((record) => record.name);

  const sheet = (name = "", photos = []) => {
    const list = h("ul", { class: "thumbs" });
    const note = h("p", { class: "soft small-text" });
    const title = h("input", { type: "text", value: name, maxlength: 200, placeholder: "name of the class", "aria-label": "Name of the class", oninput: () => tell() });
    const own = { title, list, element: null };
    const tell = () => {
      const kept = list.children.length;
      title.disabled = kept > 0;
      note.textContent = [kept ? photoCount(kept) : trains() ? "about 20 photos recommended, at least 5 to measure accuracy" : "10 to 20 photos recommended, more are better", known().includes(title.value.trim()) ? "known class: these photos refresh it" : ""].filter(Boolean).join(" · ");
      update();
    };
    const add = (id) => {
      const remove = () => request(`/api/draft/${id}`, { method: "DELETE" }).then(() => {
        const next = (item.nextElementSibling ?? item.previousElementSibling)?.querySelector("button") ?? title;
        item.remove();
        tell();
        next.focus();
        announce("Photo removed");
      }).catch(fail);
      const item = h("li", { "data-id": id }, h("img", { src: `/api/draft/${id}`, alt: `photo for ${title.value}`, width: 56, height: 56, loading: "lazy" }),
        h("button", { type: "button", "aria-label": "Remove this photo", onclick: remove }, "×"));
      list.append(item);
    };
    const waiting = []; // photos to send
    let sending = Promise.resolve();
    const take = async (files) => {
      complain();
      const label = title.value.trim();
      if (!label) { complain("Give the class a name first."); title.focus(); return; }
      if (sheets.some((other) => other !== own && other.title.value.trim() === label)) { complain(`${label} is named above; add these photos there.`); return; }
      waiting.push(...files);
      const refused = [];
      const work = async () => {
        for (let file = waiting.shift(); file; file = waiting.shift()) {
          try {
            const { id, name: kept } = await sendPhoto(`/api/draft?name=${encodeURIComponent(label)}`, file);
            title.value = kept; // as it is spelt there
            if (!list.querySelector(`[data-id="${id}"]`)) add(id);
          } catch (error) { refused.push(`${file.name}: ${error.message}`); }
          tell();
        }
      };
      title.disabled = true;
      pending += 1;
      update();
      sending = Promise.all([sending, ...Array.from({ length: AT_ONCE }, work)]);
      await sending;
      pending -= 1;
      tell();
      if (refused.length) complain(`${refused.length} refused. ${refused.slice(0, 3).join(" ")}`);
      announce(`${photoCount(list.children.length)} of ${label}`);
    };
    const discard = async () => {
      waiting.length = 0;
      await sending; // else photos on their way would stay, and be taught
      if (list.children.length) await request(`/api/draft?name=${encodeURIComponent(title.value.trim())}`, { method: "DELETE" });
      const at = sheets.indexOf(own);
      if (at < 0) return; // a second click, while photos were on their way
      sheets.splice(at, 1);
      own.element.remove();
      update();
      more.focus();
    };
    own.element = h("section", { class: "card", "aria-label": "A class" },
      h("div", { class: "bar" }, title, h("button", { type: "button", class: "small", onclick: () => discard().catch(fail) }, "discard")), dropZone("Drop photos of this class, or choose some", take, true), list, note);
    photos.forEach(add);
    sheets.push(own);
    rows.append(own.element);
    tell();
    return own;
  };

  const begin = () => { complain(); post("/api/teach", { epochs: epochs.value ? Number(epochs.value) : null }).catch(fail); };
  const teach = h("button", { type: "button", class: "main", onclick: begin }, "Teach");
  const more = h("button", { type: "button", onclick: () => sheet().title.focus() }, "Add a class");
  const stop = h("button", { type: "button", onclick: () => request("/api/teach", { method: "DELETE" }).catch(fail) }, "Stop");
  const length = h("label", { class: "row soft small-text", hidden: true }, "epochs", epochs);
  const draft = h("div", {}, rows, h("div", { class: "row" }, more, teach, length));

  const update = () => {
    const ready = sheets.filter((own) => own.list.children.length).length;
    teach.disabled = pending > 0 || ready < least() || store.teaching.state === "running" || (model?.exists && !model.can_learn);
    teach.title = model?.exists === false && ready < 2 ? "a new model needs photos of two classes" : "";
  };

  const [title, bar, words] = [h("h2"), h("div"), h("p", { class: "soft" })];
  const progress = h("section", { class: "card" }, h("div", { class: "bar" }, title, stop), bar, words);
  let announced = "";
  let shown = "";
  const tellTeaching = () => {
    const { state, message, classes, phase, epoch, epochs: of, share, began, seconds_left: left, note, entry, worse } = store.teaching;
    if (state === "running") {
      draft.hidden = true;
      if (shown !== "running" || !progress.isConnected) status.replaceChildren(progress); // once: the Stop button keeps the focus
      title.textContent = `Learning ${classes.join(", ")}`;
      bar.replaceChildren(track(share, "progress of the phase"));
      const far = of > 1 ? `epoch ${epoch} of ${of}` : percent(share);
      words.textContent = phase ? [phase, far, left !== null && `${duration(left)} left`, `${duration(Date.now() / 1000 - began)} so far`, note].filter(Boolean).join(" · ") : "reading the photos …";
      if (phase !== announced) { announced = phase; if (phase) announce(`Learning, phase ${phase}`); }
    } else {
      draft.hidden = false;
      const kind = { failed: "bad", done: worse ? "" : "good", stopped: "" }[state];
      status.replaceChildren(state === "idle" ? "" : h("div", { class: `notice ${kind}`, role: state === "failed" ? "alert" : "status" },
        state === "done" ? h("h2", {}, `Learned ${classes.join(", ")}.`) : h("p", {}, message), state === "done" && entry.date ? outcome(store.teaching) : "",
        state === "done" ? h("p", {}, h("a", { href: "#/try" }, "Try it"), " · ", h("a", { href: "#/model" }, "look at the model")) : ""));
      if (model) tellChange();
      if (shown && shown !== state && state !== "idle") { announce(state === "done" ? "Lesson finished" : message); load().catch(fail); }
    }
    shown = state;
    update();
  };

  const tellChange = () => change.replaceChildren(
    !model.exists ? h("p", { class: "notice" }, `The first lesson creates ${model.file} and needs at least two classes. It cannot be undone, but you can delete the file.`)
      : !model.can_learn ? h("p", { class: "notice" }, "The model was saved without data from its photos: it cannot learn more.")
        : changeBar(model, refresh, fail));

  // The model as it is now; the sheets stay as they are.
  const refresh = async () => {
    model = await request("/api/model");
    length.hidden = !trains();
    tellChange();
    update();
  };

  const load = async () => {
    const [now, waiting] = await Promise.all([request("/api/model"), request("/api/draft")]);
    model = now;
    length.hidden = !trains();
    rows.replaceChildren();
    sheets.length = 0;
    for (const { name, photos } of waiting) sheet(name, photos);
    while (sheets.length < least()) sheet();
    tellTeaching();
  };

  container.append(h("p", { class: "soft" }, "Name a class, drop its photos, and press Teach."), trouble, change, status, draft);
  load().catch(fail);
  return listen((news) => {
    if (news.teach) tellTeaching();
    if ((news.model || news.teach) && store.teaching.state !== "running") refresh().catch(fail);
  });
}
