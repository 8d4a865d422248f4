import * as api from "./api.js";
import { add, field, h, show, toast } from "./dom.js";
import { gnbs, overview, ues } from "./pages.js";
import { ue } from "./ue.js";
import { cluster } from "./cluster.js";
import { configuration, network } from "./config.js";
import { subscriber, subscribers } from "./subscribers.js";
import { account, charging } from "./charging.js";
import { audit, settings } from "./admin.js";

const app = document.getElementById("app");
const PAGES = [
  ["", "Overview", "o", "read"], ["ues", "UEs", "u", "read"], ["gnbs", "gNBs", "g", "read"], ["cluster", "Cluster", "c", "read"], ["network", "Network", "n", "read"],
  ["subscribers", "Subscribers", "s", "read"], ["charging", "Charging", "h", "read"], ["config", "Configuration", "f", "operate"], ["audit", "Audit log", "a", "admin"], ["settings", "Settings", "e", "read"],
];
let main, status, current, end = () => {};

function theme(next) {
  if (next) localStorage.setItem("theme", next);
  const chosen = localStorage.getItem("theme") ?? "auto";
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  return chosen;
}
theme();

/** Characters that come at once only if they were pasted. */
const PASTED = 5;

/** Looks for a UE. */
function seek(text) {
  if (text.trim()) location.hash = `#/ues?find=${api.part(text.trim())}`;
}

function frame() {
  const find = h("input", { type: "search", id: "find", placeholder: "Find a UE", autocomplete: "off", spellcheck: false, "aria-label": "Find a UE by SUPI, IMEI, 5G-GUTI, address or gNB" });
  const form = h("form", { role: "search", onsubmit: (e) => { e.preventDefault(); seek(find.value); } }, find, h("kbd", { title: "Press / to search" }, "/"));
  // A name that was pasted is whole: it is looked for at once.
  find.addEventListener("input", (e) => { if (e.inputType === "insertFromPaste" || (e.data?.length ?? 0) >= PASTED) seek(find.value); });
  const mode = h("button", { className: "plain", title: "Theme: automatic, dark or light", onclick: () => { const next = { auto: "dark", dark: "light", light: "auto" }[theme()]; theme(next); mode.textContent = label(next); } });
  const label = (t) => ({ auto: "◐ Auto", dark: "● Dark", light: "○ Light" })[t];
  mode.textContent = label(theme());
  status = h("span", { className: "live", role: "status" });
  const nav = h("nav", { "aria-label": "Pages" }, PAGES.filter(([, , , scope]) => api.may(scope)).map(([path, title, key]) =>
    h("a", { href: `#/${path}`, "data-page": path }, title, h("kbd", { "aria-hidden": true }, `g ${key}`))));
  main = h("main", { id: "main", tabIndex: -1 });
  show(app,
    h("header", {}, h("a", { href: "#/", className: "brand" }, h("img", { src: "/console/icon.svg", alt: "", width: 28, height: 28 }), "Whimbrel"), form, status,
      mode, h("span", { className: "me" }, api.me.name), h("button", { className: "plain", onclick: leave }, "Log out")),
    api.me.without_users && api.may("admin") && location.hash !== "#/settings" && h("p", { className: "banner" }, "There is no user yet: this session ends, and another one-time link is needed. ", h("a", { href: "#/settings" }, "Make the first user"), "."),
    h("div", { className: "columns" }, nav, main),
    h("div", { id: "toasts", "aria-live": "polite" }));
  shown(api.live.up);
}

function shown(up) {
  if (!status) return;
  status.className = `live ${up ? "up" : "down"}`;
  status.textContent = up ? "live" : "reconnecting";
}
api.on("live", shown);

async function leave() {
  end();
  api.disconnect();
  await api.logout().catch(() => {});
  location.hash = "#/";
  door();
}

/** The field for the code of a second factor, which is there once the core asks for it. */
function codeField() {
  const input = h("input", { autocomplete: "one-time-code", inputMode: "numeric", maxLength: 7, required: true }), place = h("div", { hidden: true });
  const asked = (p) => { if (p.needs !== "code") return false; if (place.hidden) { show(place, field("Code of your second factor", input)); place.hidden = false; } input.value = ""; input.focus(); return true; };
  return { place, asked, sent: () => (place.hidden ? {} : { code: input.value }) };
}

/** The login page. */
function door(note) {
  end(); end = () => {};
  status = undefined;
  document.title = "Log in – Whimbrel";
  const name = h("input", { autocomplete: "username", required: true, autofocus: true });
  const password = h("input", { type: "password", autocomplete: "current-password", required: true });
  const problem = h("p", { className: "problem", role: "alert" }, note);
  const submit = h("button", { className: "primary" }, "Log in"), code = codeField();
  show(app, h("main", { id: "main", className: "door" },
    h("img", { src: "/console/icon.svg", alt: "", width: 56, height: 56 }), h("h1", {}, "Whimbrel"),
    h("form", { onsubmit: async (e) => {
      e.preventDefault();
      submit.disabled = true;
      try { await api.login({ name: name.value, password: password.value, ...code.sent() }); enter(); }
      catch (p) { show(problem, p.message); submit.disabled = false; if (!code.asked(p)) password.select(); }
    } }, field("Name", name), field("Password", password), code.place, problem, submit),
    h("p", { className: "quiet" }, "No password yet? Run ", h("code", {}, "whimbrel console"), " on the core's host: it prints a one-time link."),
    h("div", { id: "toasts" })));
  name.focus();
}

function enter() {
  if (api.me.must_enrol) location.hash = "#/settings";
  frame();
  route();
}

function hash() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return [path.split("/").map(decodeURIComponent), new URLSearchParams(query)];
}

async function route() {
  const [parts, query] = hash();
  if (parts[0] === "link" && parts[1]) {
    // The secret leaves the address and the history at once.
    history.replaceState(null, "", "#/");
    try { await api.login({ link: parts[1] }); history.replaceState(null, "", api.me.without_users ? "#/settings" : "#/"); return enter(); }
    catch (p) { return door(p.message); }
  }
  if (!api.me.name) {
    try { await api.whoami(); } catch (p) { return door(p.status === 401 ? undefined : p.message); }
    return enter();
  }
  end();
  const gone = [];
  const page = { gone: (f) => gone.push(f), query, go: (to) => { if (current === page) location.hash = to; } };
  current = page;
  end = () => { gone.splice(0).forEach((f) => f()); };
  const [first = "", second] = parts;
  const known = PAGES.find(([path]) => path === first) ?? PAGES[0];
  document.title = `${second ?? known[1]} – Whimbrel`;
  for (const link of app.querySelectorAll("nav a")) {
    if (link.dataset.page === first) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  api.connect(first === "ues" ? second : undefined);
  // A page of its own for each turn: one that comes late, after the next was asked for, is drawn nowhere.
  const place = h("div");
  main.replaceChildren(place);
  try {
    const make = { "": overview, ues: second ? ue : ues, gnbs, cluster, network, config: configuration, subscribers: second ? subscriber : subscribers, charging: second ? account : charging, audit, settings }[first] ?? overview;
    await make(place, page, second);
  } catch (p) {
    if (p.status === 401) return;
    add(place, [h("p", { className: "problem", role: "alert" }, p.message)]);
    if (!p.status) console.error(p);
  }
}

/** Asks for another login over the page, which stays with what was typed in it. */
function again(former) {
  if (document.getElementById("again")) return;
  const name = h("input", { autocomplete: "username", required: true, value: former }), password = h("input", { type: "password", autocomplete: "current-password", required: true });
  const problem = h("p", { className: "problem", role: "alert" }), submit = h("button", { className: "primary" }, "Log in"), code = codeField();
  const dialog = h("dialog", { id: "again", "aria-labelledby": "again-title" }, h("h2", { id: "again-title" }, "Your session has ended"), h("p", {}, "Log in again to go on. What you typed is still there."),
    h("form", { onsubmit: async (e) => {
      e.preventDefault();
      submit.disabled = true;
      try {
        await api.login({ name: name.value, password: password.value, ...code.sent() });
        dialog.remove();
        if (api.me.name === former) { api.reconnect(); toast("You are logged in again."); } else enter();
      } catch (p) { show(problem, p.message); submit.disabled = false; if (!code.asked(p)) password.select(); }
    } }, field("Name", name), field("Password", password), code.place, problem, submit));
  dialog.addEventListener("cancel", () => { dialog.remove(); door(); });
  document.body.append(dialog);
  dialog.showModal();
  password.focus();
}

api.onLogout(() => { const former = api.me.name; if (former) { api.me.name = undefined; api.disconnect(); again(former); } });
// A name that is pasted where there is no field for it is looked for.
window.addEventListener("paste", (e) => { if (api.me.name && !e.target.closest?.("input, textarea, select, dialog")) seek(e.clipboardData.getData("text")); });
window.addEventListener("hashchange", () => { route(); main?.focus({ preventScroll: true }); window.scrollTo(0, 0); });

let before = "";
window.addEventListener("keydown", (e) => {
  if (e.target.closest("input, textarea, select, dialog") || e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "/") { e.preventDefault(); document.getElementById("find")?.select(); }
  const page = before === "g" && PAGES.find(([, , key, scope]) => key === e.key && api.may(scope));
  if (page) location.hash = `#/${page[0]}`;
  if (e.key === "?") toast("/ or paste: find a UE · g o overview · g u UEs · g g gNBs · g c cluster · g n network · g s subscribers · g h charging · g f configuration");
  before = page ? "" : e.key;
});

route();
