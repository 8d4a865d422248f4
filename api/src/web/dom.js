// Elements without markup: what others wrote (names of gNBs, causes, messages) is only ever text.

/** An element with properties and children. `on…` are listeners; `aria-…`, `data-…` and the like are attributes. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && !name.includes("-") && !["list", "form", "role"].includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(9)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function show(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

/** An SVG element. */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return add(element, children);
}

export const number = (n) => Number(n ?? 0).toLocaleString("en");

export function bits(perSecond) {
  const units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
  let value = perSecond, unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export const kbps = (r) => (r ? `${bits(r.dl_kbps * 1000)} down, ${bits(r.ul_kbps * 1000)} up` : undefined);

export function octets(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = n ?? 0, unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

export function micros(us) {
  if (!us) return "–";
  return us < 1000 ? `${us} µs` : us < 1e6 ? `${(us / 1000).toFixed(us < 1e4 ? 2 : 1)} ms` : `${(us / 1e6).toFixed(1)} s`;
}

/** How long ago, in a word or two; the exact time is the tooltip. */
export function ago(at) {
  if (!at) return "–";
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(at)) / 1000));
  const text = seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${Math.floor(seconds / 60)} min`
    : seconds < 86400 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
  return h("time", { dateTime: at, title: at }, `${text} ago`);
}

export const clock = (at) => at.slice(11, 23);

export const pill = (kind, text) => h("span", { className: `pill ${kind}` }, text);

/** The head of a column; one without a name has what can be done with its row. */
const headCell = (head) => h("th", { scope: "col" }, head || h("span", { className: "unseen" }, "Actions"));

export function table(caption, heads, rows, empty) {
  if (rows.length === 0) return h("p", { className: "quiet" }, empty ?? "Nothing here.");
  return h("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { className: "unseen" }, caption),
      h("thead", {}, h("tr", {}, heads.map(headCell))),
      h("tbody", {}, rows.map((row) => row instanceof Node ? row : h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
}

/** Pairs of a name and a value, without those that have no value. */
export function facts(pairs) {
  return h("dl", { className: "facts" }, pairs.filter(([, v]) => v !== undefined && v !== null && v !== "").map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v))));
}

/** The height of a row in pixels, as style.css has it. */
const ROW = 38;

/**
 * A table of any length, of which the rows on screen alone are elements. `row(i)` gives the cells of a row, or nothing while it is not known;
 * `moved(from, to)` is called with the rows that are wanted.
 */
export function windowed(caption, heads, row, moved) {
  const space = () => h("tr", { className: "space", "aria-hidden": true }, h("td", { colSpan: heads.length }));
  const [above, below] = [space(), space()], body = h("tbody", {}, above, below);
  const inner = h("table", {}, h("caption", { className: "unseen" }, caption), h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), body);
  const box = h("div", { className: "scroll window", tabIndex: 0, role: "region", "aria-label": caption }, inner);
  let count = 0, waits = false;
  const draw = () => {
    waits = false;
    const from = Math.max(0, Math.min(Math.floor(box.scrollTop / ROW), count) - 8), to = Math.min(count, from + Math.ceil((box.clientHeight || 600) / ROW) + 16);
    above.firstChild.style.height = `${from * ROW}px`;
    below.firstChild.style.height = `${(count - to) * ROW}px`;
    const rows = [];
    for (let i = from; i < to; i += 1) {
      const cells = row(i) ?? heads.map((_, n) => (n ? "" : "…"));
      rows.push(h("tr", { "aria-rowindex": i + 2 }, cells.map((cell) => h("td", {}, cell))));
    }
    body.replaceChildren(above, ...rows, below);
    moved(from, to);
  };
  const later = () => { if (!waits) { waits = true; requestAnimationFrame(draw); } };
  box.addEventListener("scroll", later, { passive: true });
  return { box, draw: later, size: (n) => { count = n; inner.setAttribute("aria-rowcount", n + 1); later(); }, top: () => { box.scrollTop = 0; } };
}

export function field(label, input, hint) {
  const id = `f${field.next = (field.next ?? 0) + 1}`;
  input.id = id;
  return h("p", { className: "field" }, h("label", { htmlFor: id }, label), input, hint && h("small", {}, hint));
}

export const card = (title, ...children) => h("section", { className: "card" }, title && h("h2", {}, title), children);

/** Asks before something is done that cannot be undone. */
export function confirmed(question, button) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": question }, h("p", {}, question),
      h("form", { method: "dialog", className: "row" },
        h("button", { value: "no" }, "Cancel"), h("button", { value: "yes", className: "danger" }, button)));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function toast(text, kind = "good") {
  const box = document.getElementById("toasts");
  const item = h("div", { className: `toast ${kind}`, role: kind === "bad" ? "alert" : "status" }, text);
  box.append(item);
  setTimeout(() => item.remove(), kind === "bad" ? 9000 : 4000);
}
