// Small tools: elements from plain values, numbers as text, requests. Text is always text: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value); // as text, the content security policy refuses it
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

export const number = (value, digits = 2) => (value === null || value === undefined ? "—" : value.toFixed(digits));
export const percent = (share) => `${(100 * share).toFixed(share >= 0.0995 ? 0 : 1)} %`;

export const photoCount = (count) => `${count} photo${count === 1 ? "" : "s"}`;

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

export const ago = (then) => (then ? `${duration(Math.max(0, Date.now() / 1000 - then))} ago` : "");

// What the command line calls the two inferences; the papers say CNN and NME.
export const INFERENCES = { cnn: "classifier", nme: "nearest mean" };
const PAPER = { cnn: "CNN: the scores of the classifier", nme: "NME: the nearest mean of a class" };
export const inferenceName = (inference) => h("span", { title: PAPER[inference] }, INFERENCES[inference]);

// Words of the command line as a sentence.
export const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}.`;

export const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

// Where a view says what went wrong, hidden while there are no words.
export function complaints() {
  const trouble = h("p", { class: "notice bad", role: "alert", hidden: true });
  const complain = (words = "") => { trouble.textContent = words; trouble.hidden = !words; };
  return { trouble, complain, fail: (error) => complain(error.message) };
}

export const announce = (text) => { document.getElementById("live").textContent = text; };

const MOST_TRIES = 30; // of sending a photo to a busy server

export async function request(path, options = {}) {
  const response = await fetch(path, options).catch(() => { throw new Error("The server does not respond; is podnet studio still running?"); });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    const detail = typeof answer.detail === "string" ? answer.detail : `the server responded with status ${response.status}`;
    throw Object.assign(new Error(detail), { status: response.status });
  }
  return answer;
}

export const post = (path, body) =>
  request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body ?? {}) });

export async function sendPhoto(path, file) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await request(path, { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file });
    } catch (error) {
      if (error.status !== 503 || tries === MOST_TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000 * (1 + Math.random()))); // the server has too many at once
    }
  }
}

export const download = (name, href) => h("a", { href, download: name }).click();

// A spreadsheet would run a cell that begins like a formula; a quote before it makes it text.
function csvCell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const csv = ({ columns, rows }) => [columns, ...rows].map((row) => row.map(csvCell).join(",")).join("\n") + "\n";

export const fileName = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "podnet";

export function saveCsv(title, table) {
  const address = URL.createObjectURL(new Blob([csv(table)], { type: "text/csv" }));
  download(`${fileName(title)}.csv`, address);
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

const isWord = (value) => typeof value === "string" && !/^[\d—-]/.test(value);

// A table of numbers: the first column says what a row is. `shown` formats a value for the eye.
export function tableOf(title, { columns, rows }, shown = (value) => (typeof value === "number" ? String(Math.round(value * 100) / 100) : value ?? "—")) {
  const words = columns.map((_, i) => rows.some((row) => isWord(row[i])) && "word");
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `${title}, table` },
    h("table", {},
      h("thead", {}, h("tr", {}, columns.map((name, i) => h("th", { scope: "col", class: words[i] }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value, i) =>
        i === 0 ? h("th", { scope: "row" }, shown(value)) : h("td", { class: words[i] }, shown(value))))))));
}

// `whole` is what is saved, where the table that is shown is only a part of it.
export function titledTable(title, table, { shown, whole = table } = {}) {
  return h("section", { class: "card" },
    h("div", { class: "bar" }, h("h3", {}, title),
      h("button", { type: "button", class: "small", onclick: () => saveCsv(title, whole), "aria-label": `${title}: save as CSV` }, "CSV")),
    tableOf(title, table, shown));
}

// Ask before something that cannot simply be done again.
export function confirmed(question, yes) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": question, onclose: () => { dialog.remove(); resolve(dialog.returnValue === "yes"); } },
      h("p", {}, question),
      h("form", { method: "dialog", class: "row" },
        h("button", { value: "no" }, "Cancel"), h("button", { value: "yes", class: "danger" }, yes)));
    document.body.append(dialog);
    dialog.showModal();
  });
}
