// The frame: which view is shown, light or dark, whether the server is there.

import { dropAll, prepare, redrawAll } from "./charts.js";
import { announce, h } from "./dom.js";
import { compareView } from "./compare.js";
import { modelView } from "./model.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";
import { begin, store } from "./store.js";
import { teachView } from "./teach.js";
import { tryView } from "./try.js";

// The view of an address, the title of the window, and the link that leads there.
const VIEWS = {
  runs: [runsView, "Runs", "runs"], run: [runView, "Run", "runs"], compare: [compareView, "Comparison", "runs"],
  model: [modelView, "Model", "model"], try: [tryView, "Try", "try"], teach: [teachView, "Teach", "teach"],
};
const main = document.getElementById("main");
let leave = null;

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; } // no view has such an address
}

function show(first) {
  const [, name = "runs", ...rest] = location.hash.slice(1).split("/");
  const [view, title, under] = VIEWS[Object.hasOwn(VIEWS, name) ? name : "runs"];
  leave?.();
  dropAll();
  main.replaceChildren();
  document.title = `${title} · podnet studio`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === under) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  leave = view(main, decoded(rest.join("/")));
  if (!first) { main.focus({ preventScroll: true }); window.scrollTo(0, 0); }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = theme === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colours`);
  redrawAll();
}

const preferred = matchMedia("(prefers-color-scheme: dark)");
const chosen = () => localStorage.getItem("podnet-theme");
setTheme(chosen() ?? (preferred.matches ? "dark" : "light"));
preferred.addEventListener("change", () => { if (!chosen()) setTheme(preferred.matches ? "dark" : "light"); });
document.getElementById("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("podnet-theme", theme);
  setTheme(theme);
});

document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault()); // beside a drop zone, the browser would leave for the photo

function showLink(alive, why = "connection lost, retrying") {
  const link = document.getElementById("link");
  if (!alive && !link.classList.contains("lost")) announce("Connection lost");
  link.textContent = alive ? "live" : why;
  link.classList.toggle("lost", !alive);
}

try {
  await begin(showLink);
  document.getElementById("folder").textContent = `· runs below ${store.folder}${store.model ? ` · model ${store.model}` : ""}`;
  show(true);
  window.addEventListener("hashchange", () => show(false));
  document.documentElement.dataset.ready = "yes";
  setTimeout(prepare, 500); // the first chart need not wait for it
} catch (error) {
  main.replaceChildren(h("p", { class: "notice bad", role: "alert" }, error.message));
}
