// What the page knows. The server pushes what changes; views listen.

import { announce, request } from "./dom.js";

const AGAIN = 5000; // milliseconds until a stream that was refused is asked for again

export const store = {
  runs: new Map(), // id -> summary
  folder: "", model: null, modelVersion: "", teaching: { state: "idle" }, chosen: new Set(),
};

const listeners = new Set();
let taught = ""; // the newest news of a lesson

// `heard` is called with {runs: ids that changed, teach, model}; the answer stops it.
export function listen(heard) {
  listeners.add(heard);
  return () => listeners.delete(heard);
}

const tell = (news) => { for (const heard of [...listeners]) heard(news); };

export async function begin(onLink) {
  const known = await request("/api/runs");
  Object.assign(store, { folder: known.folder, model: known.model, modelVersion: known.model_version });
  for (const run of known.runs) store.runs.set(run.id, run);
  follow(known.version, onLink);
}

// A hidden page gives its stream back: a browser has six connections to a server, for all its tabs.
function follow(version, onLink) {
  if (document.hidden) { document.addEventListener("visibilitychange", () => follow(version, onLink), { once: true }); return; }
  const events = new EventSource(`/api/events?since=${encodeURIComponent(version)}`);
  const pause = () => { events.close(); follow(version, onLink); };
  document.addEventListener("visibilitychange", pause, { once: true });
  events.onopen = () => onLink(true);
  events.onerror = () => {
    onLink(false);
    if (events.readyState !== EventSource.CLOSED) return; // the browser tries again
    document.removeEventListener("visibilitychange", pause);
    request("/api/runs").catch((error) => onLink(false, error.message)); // why it was refused: the session has ended
    setTimeout(() => follow(version, onLink), AGAIN);
  };
  events.addEventListener("runs", (event) => {
    version = event.lastEventId;
    const { runs, removed, complete } = JSON.parse(event.data);
    if (complete) { location.reload(); return; } // another server: all that this page knows is old
    const changed = new Set(removed);
    for (const id of removed) { store.runs.delete(id); store.chosen.delete(id); }
    for (const run of runs) {
      const before = store.runs.get(run.id);
      if (before && before.state !== run.state) announce(`${run.name} is ${run.state}`);
      store.runs.set(run.id, run);
      changed.add(run.id);
    }
    tell({ runs: changed });
  });
  events.addEventListener("teach", (event) => {
    if (event.data === taught) return; // told again to a page that comes back
    taught = event.data;
    store.teaching = JSON.parse(taught);
    tell({ teach: true });
  });
  events.addEventListener("model", (event) => {
    const { model, model_version: version } = JSON.parse(event.data);
    const changed = version !== store.modelVersion;
    Object.assign(store, { model, modelVersion: version });
    if (changed) tell({ model: true });
  });
}
