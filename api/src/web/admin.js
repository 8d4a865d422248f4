import * as api from "./api.js";
import { card, confirmed, field, h, show, table, toast } from "./dom.js";

const SCOPES = ["metrics", "read", "nas", "operate", "subscribers", "admin"];

export async function audit(main) {
  // Those of all homes, if several share the subscribers; this home's own while PostgreSQL is away.
  const status = await api.get("/api/v1/status"), shared = status.components.some((c) => c.name === "postgres");
  let note = "";
  const own = () => api.get("/api/v1/audit?limit=500");
  const lines = shared ? await api.get("/api/v1/audit?limit=500&homes=all").catch((p) => { note = ` This home's alone: ${p.message}`; return own(); }) : await own();
  const rows = lines.map((line) => {
    const m = line.match(/^(\S+) caller=(\S+)(?: user=(\S+))? request="(.*)" subscriber=(\S+) outcome=(\S+)(?: times=(\d+))?(?: home="([^"]*)")?(?: former=\S+)?$/);
    return m ? [h("time", { dateTime: m[1] }, m[1].replace("T", " ").slice(0, 19)), m[3] ?? "–", m[8] ? `${m[2]} (${m[8]})` : m[2], h("code", {}, m[4]), m[5], m[7] ? `${m[6]}, ${m[7]} times more` : m[6]] : [line, "", "", "", "", ""];
  });
  show(main, h("h1", {}, "Audit log"), h("p", { className: "quiet" }, "Each access to personal data and each change, newest first. Subscribers stand under a pseudonym that is the same in each line." + note),
    table("Audit log", ["Time (UTC)", "User", "From", "Request", "Subscriber", "Outcome"], rows, "Nothing was recorded yet."));
}

export async function settings(main) {
  const problem = h("p", { className: "problem", role: "alert" });
  const attempt = async (f, done) => { try { const r = await f(); show(problem); if (done) toast(done); return r; } catch (p) { show(problem, p.message); problem.scrollIntoView({ block: "nearest" }); } return undefined; };
  show(main, h("h1", {}, "Settings"), problem);
  const user = !["local", "one-time-link"].includes(api.me.name) && !api.me.name.startsWith("token:");
  if (api.me.must_enrol) main.append(h("p", { className: "banner" }, "Set up a second factor: until then this login can do nothing else."));
  if (user) main.append(ownPassword(attempt), secondFactor(attempt));
  if (api.may("admin")) main.append(await users(attempt), await tokens(attempt));
  if (!user && !api.may("admin")) main.append(h("p", { className: "quiet" }, "This login has nothing to set."));
}

function ownPassword(attempt) {
  const old = h("input", { type: "password", autocomplete: "current-password", required: true }), fresh = h("input", { type: "password", autocomplete: "new-password", required: true, minLength: 10 });
  return card("Your password", h("form", { onsubmit: async (e) => { e.preventDefault(); await attempt(() => api.put("/api/v1/session/password", { old: old.value, new: fresh.value }), "Your password was changed."); e.target.reset(); } },
    field("Old password", old), field("New password", fresh, "At least 10 characters; a sentence is best."), h("button", {}, "Change")));
}

function secondFactor(attempt) {
  if (api.me.second_factor) return card("Your second factor", h("p", { className: "quiet" }, "Each login asks for the code of your app. If you lose it, an admin removes it."));
  const password = h("input", { type: "password", autocomplete: "current-password", required: true }), code = h("input", { autocomplete: "one-time-code", inputMode: "numeric", maxLength: 7, required: true }), next = h("div", { role: "status" });
  return card("Your second factor", h("p", { className: "quiet" }, "A code of an app beside your password (TOTP)."), h("form", { onsubmit: async (e) => {
    e.preventDefault();
    const made = await attempt(() => api.post("/api/v1/session/second-factor", { password: password.value }));
    e.target.reset();
    if (!made) return;
    show(next, h("p", {}, "Enter this secret into your app; it is shown this once: ", h("code", { className: "secret" }, made.secret), " ", h("a", { href: made.uri }, "open the app of this device")),
      h("form", { onsubmit: async (e2) => { e2.preventDefault(); if (await attempt(() => api.put("/api/v1/session/second-factor", { code: code.value }).then(() => true), "Your second factor is set up.")) { await api.whoami(); location.reload(); } } }, field("Code that the app shows", code), h("button", { className: "primary" }, "Turn it on")));
  } }, field("Your password", password), h("button", {}, "Set it up")), next);
}

async function users(attempt) {
  const list = h("div"), name = h("input", { required: true, autocomplete: "off", spellcheck: false }), password = h("input", { type: "password", autocomplete: "new-password", required: true, minLength: 10 });
  const role = h("select", {}, ["admin", "operator", "viewer"].map((r) => h("option", { value: r }, r)));
  const draw = async () => {
    const all = await api.get("/api/v1/users");
    show(list, table("Users", ["Name", "Role", "Second factor", "Made", ""], all.map((u) => [u.name, h("select", { "aria-label": `Role of ${u.name}`, onchange: async (e) => { await attempt(() => api.patch(`/api/v1/users/${api.part(u.name)}`, { role: e.target.value }), `${u.name} has another role now, and has to log in again.`); draw(); } },
      ["admin", "operator", "viewer"].map((r) => h("option", { value: r, selected: r === u.role }, r))),
      u.second_factor ? h("button", { onclick: async () => { if (await confirmed(`Remove the second factor of ${u.name}?`, "Remove")) { await attempt(() => api.del(`/api/v1/users/${api.part(u.name)}/second-factor`), `${u.name} has no second factor now, and has to log in again.`); draw(); } } }, "Remove") : "–", u.created.slice(0, 10),
      h("button", { className: "danger", onclick: async () => { if (await confirmed(`Remove ${u.name}?`, "Remove")) { await attempt(() => api.del(`/api/v1/users/${api.part(u.name)}`), `${u.name} was removed.`); draw(); } } }, "Remove")]), "There is no user yet. The first one is an admin."));
  };
  await draw();
  return card("Users", list, h("form", { onsubmit: async (e) => {
    e.preventDefault();
    const first = api.me.without_users;
    if (!await attempt(() => api.post("/api/v1/users", { name: name.value, role: role.value, password: password.value }), `${name.value} was made.`)) return;
    if (first) { api.me.without_users = false; document.querySelector(".banner")?.remove(); }
    e.target.reset(); draw();
  } }, field("Name", name), field("Password", password, "At least 10 characters; a sentence is best."), field("Role", role, "A viewer sees, an operator gives orders and manages subscribers, an admin manages users, too."), h("button", { className: "primary" }, "Make the user")));
}

async function tokens(attempt) {
  const list = h("div"), fresh = h("div", { role: "status" }), name = h("input", { required: true, autocomplete: "off", spellcheck: false });
  const boxes = SCOPES.map((s) => h("input", { type: "checkbox", value: s, checked: s === "read" }));
  const draw = async () => show(list, table("API tokens", ["Name", "Scopes", "Made by", "Made", ""], (await api.get("/api/v1/tokens")).map((t) => [t.name, t.scopes.join(", "), t.by, t.created.slice(0, 10),
    h("button", { className: "danger", onclick: async () => { if (await confirmed(`Remove the token ${t.name}? What uses it is refused from then on.`, "Remove")) { await attempt(() => api.del(`/api/v1/tokens/${api.part(t.name)}`), `${t.name} was removed.`); draw(); } } }, "Remove")]), "There is no token."));
  await draw();
  return card("API tokens", h("p", { className: "quiet" }, "For programs: they send ", h("code", {}, "Authorization: Bearer TOKEN"), "."), list, fresh, h("form", { onsubmit: async (e) => {
    e.preventDefault();
    const made = await attempt(() => api.post("/api/v1/tokens", { name: name.value, scopes: boxes.filter((b) => b.checked).map((b) => b.value) }));
    if (!made) return;
    show(fresh, h("p", {}, "The token of ", h("b", {}, made.name), " is shown this once: ", h("code", { className: "secret" }, made.token)));
    e.target.reset(); draw();
  } }, field("Name", name), h("fieldset", { className: "row" }, h("legend", {}, "Scopes"), boxes.map((b) => h("label", { className: "check" }, b, " ", b.value))), h("button", {}, "Make a token")));
}
