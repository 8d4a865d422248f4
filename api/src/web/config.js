import * as api from "./api.js";
import { ago, card, confirmed, facts, field, h, kbps, number, pill, show, table, toast } from "./dom.js";
import { paced, prose } from "./pages.js";

const change = (key) => api.may("operate") && h("p", {}, h("a", { href: `#/config?key=${key}` }, "Show in the configuration"));

/** What the network offers, as it is in force. */
export async function network(main) {
  const n = await api.get("/api/v1/network");
  const flows = n.data_networks.flatMap((d) => d.flows.map((f) => [d.dnn, f.name, f.five_qi, f.arp_priority, kbps(f.gfbr) ?? "–", kbps(f.mfbr) ?? "–", h("ul", { className: "plain" }, f.filters.map((x) => h("li", {}, h("code", {}, x)))), f.gate, f.setup]));
  show(main, h("h1", {}, "Network"), h("p", { className: "quiet" }, "What is in force."),
    h("div", { className: "grid" },
      card("Identity", facts([["PLMN", n.plmn], ["Tracking areas", n.tacs.join(", ")], ["NAS integrity", n.integrity.join(", ")], ["NAS ciphering", n.ciphering.join(", ")]]), change("tacs")),
      card("Slices", table("Slices", ["S-NSSAI"], n.slices.map((x) => [x]), "No slice is offered."), change("slices"))),
    card("Data networks", table("Data networks", ["DNN", "IPv4", "IPv6", "DNS", "MTU", "QoS flows"], n.data_networks.map((d) => [d.dnn, d.ipv4_pool ?? "–", d.ipv6_pool ?? "–", d.dns.join(", ") || "–", d.mtu, d.flows.length + 1]), "There is none."), change("data_networks")),
    card("Policies", table("Policies of QoS flows", ["DNN", "Flow", "5QI", "ARP", "Guaranteed", "Maximum", "Packets", "Gate", "Set up"], flows, "There is no QoS flow beside the default ones."), change("data_networks")));
}

/** Lines that differ, with two lines around each: [kind, text], where kind is "+", "-", " " or "…". */
export function lineDiff(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const x = a.slice(head, a.length - tail), y = b.slice(head, b.length - tail);
  // The longest common subsequence of the rest; of very long texts all of it counts as changed.
  const both = x.length * y.length <= 4e6;
  const longest = both ? Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1)) : undefined;
  for (let i = x.length - 1; both && i >= 0; i -= 1) for (let j = y.length - 1; j >= 0; j -= 1) longest[i][j] = x[i] === y[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  const lines = a.slice(0, head).map((t) => [" ", t]);
  let i = 0, j = 0;
  while (i < x.length || j < y.length) {
    if (both && i < x.length && j < y.length && x[i] === y[j]) { lines.push([" ", x[i]]); i += 1; j += 1; }
    else if (i < x.length && (!both || j === y.length || longest[i + 1][j] >= longest[i][j + 1])) lines.push(["-", x[i++]]);
    else lines.push(["+", y[j++]]);
  }
  lines.push(...a.slice(a.length - tail).map((t) => [" ", t]));
  const near = lines.map((_, n) => lines.slice(Math.max(0, n - 2), n + 3).some(([kind]) => kind !== " "));
  return lines.flatMap((line, n) => near[n] ? [line] : near[n - 1] ? [["…", ""]] : []);
}

function diffView(before, after, nothing) {
  const lines = lineDiff(before, after);
  if (!lines.some(([kind]) => kind === "+" || kind === "-")) return h("p", { className: "quiet" }, nothing);
  const word = { "+": "added: ", "-": "removed: " };
  return h("ol", { className: "diff scroll", tabIndex: 0, "aria-label": "Changed lines" }, lines.map(([kind, text]) => h("li", { className: { "+": "added", "-": "removed" }[kind] ?? "" }, h("span", { "aria-hidden": true }, `${kind} `), word[kind] && h("span", { className: "unseen" }, word[kind]), text)));
}

/** Where the block of a top-level key stands in a YAML text: [from, to) in lines; undefined if it has none. */
function blockOf(text, key) {
  const lines = text.split("\n"), from = lines.findIndex((l) => l.startsWith(`${key}:`));
  if (from < 0) return undefined;
  let to = lines.findIndex((l, i) => i > from && /^[A-Za-z_]/.test(l));
  if (to < 0) to = lines.length;
  // Comments and empty lines before the next key belong to that.
  while (to > from + 1 && /^(#.*|\s*)$/.test(lines[to - 1])) to -= 1;
  return [from, to];
}

const cut = (text, [from, to]) => text.split("\n").slice(from, to).join("\n");

/** The whole text with another block for a key; a new one goes to the end. */
function withBlock(text, key, block) {
  const place = blockOf(text, key), lines = text.split("\n");
  if (!place) return `${text.replace(/\n*$/, "\n")}${block.replace(/\n*$/, "")}\n`;
  return [...lines.slice(0, place[0]), ...block.replace(/\n+$/, "").split("\n"), ...lines.slice(place[1])].join("\n");
}

export async function configuration(main, page) {
  const problem = h("div", { role: "alert" });
  show(main, h("h1", {}, "Configuration"), problem);
  let { value: saved, etag } = await api.getTagged("/api/v1/config");
  const defaults = (await api.get("/api/v1/config/defaults")).text;
  const keys = [...defaults.matchAll(/^([a-z0-9_]+):/gm)].map((m) => m[1]);
  const key = h("select", {}, h("option", { value: "" }, "The whole file"), keys.map((k) => h("option", { value: k, selected: k === page.query.get("key") }, k)));
  const text = h("textarea", { rows: 18, spellcheck: false, readOnly: !api.may("admin"), "aria-label": "The configuration as YAML" });
  const save = h("button", { className: "primary", disabled: true }, "Save"), back = h("button", { disabled: true }, "Discard my changes");
  const found = h("div", { role: "status" }), changes = h("div"), waiting = h("div"), past = h("div");
  let former = "", checked;
  const whole = () => key.value ? (text.value.trim() || blockOf(saved.text, key.value) ? withBlock(saved.text, key.value, text.value) : saved.text) : text.value;
  const fill = () => {
    const place = key.value && blockOf(saved.text, key.value), own = key.value && blockOf(defaults, key.value);
    former = !key.value ? saved.text : place ? cut(saved.text, place) : "";
    text.value = former || (key.value && own ? cut(defaults, own) : "");
    show(found, key.value && !place && h("p", { className: "quiet" }, "The file does not have this key: its default is in force, and is shown here."));
    show(changes); save.disabled = true; back.disabled = true; checked = undefined;
    show(waiting, saved.problems.length > 0 && wrong("The file was changed on the host, and is not usable", saved.problems), saved.kept.length > 0 && h("p", {}, pill("minor", "waits for the next start"), " ", saved.kept.map((k) => [h("code", {}, k), " "])), unchecked(saved.not_checked));
  };
  const unchecked = (files) => files.length > 0 && h("p", {}, pill("minor", "not checked"), " The running configuration does not name these files, so they are not opened from here: ", files.map((f) => [h("code", {}, f), " "]));
  const wrong = (title, lines) => h("div", {}, h("p", { className: "problem" }, title), table("Problems", ["Line", "What is wrong"], lines.map((l) => [number(l.line), prose(l.problem)])));
  const offset = () => (key.value && blockOf(whole(), key.value)?.[0]) || 0;
  const check = paced(async () => {
    const mine = whole();
    if (mine === saved.text) { show(found); show(changes); save.disabled = back.disabled = true; return; }
    back.disabled = false;
    show(changes, h("h3", {}, "Your changes"), diffView(saved.text, mine, "Nothing is changed."));
    const answer = await api.post("/api/v1/config/check", { text: mine });
    if (mine !== whole()) return check();
    checked = answer;
    const from = offset();
    const lines = answer.problems.map((l) => ({ ...l, line: l.line > from ? l.line - from : l.line }));
    save.disabled = answer.problems.length > 0 || !api.may("admin");
    show(found, answer.problems.length ? wrong("It cannot be saved like this", lines) : h("p", { className: "calm" }, h("span", { "aria-hidden": true }, "✓ "), "It can be saved.", answer.kept.length > 0 && [" These keys wait for the next start of the core: ", answer.kept.map((k) => [h("code", {}, k), " "])]), unchecked(answer.not_checked));
    return undefined;
  }, 400);
  text.oninput = () => { save.disabled = true; check(); };
  key.onchange = fill;
  back.onclick = fill;
  const send = async (body, done) => {
    try {
      await api.put("/api/v1/config", body, etag);
      toast(done);
      await read();
    } catch (p) {
      if (p.status !== 412) { show(problem, h("p", { className: "problem" }, p.message), p.lines.length > 0 && wrong("", p.lines)); return; }
      const mine = body.text, fresh = await api.getTagged("/api/v1/config");
      show(problem, h("p", { className: "problem" }, p.message), mine !== undefined && [h("h3", {}, "What the file is now, and what yours would make of it"), diffView(fresh.value.text, mine, "The file is already as you want it.")],
        h("div", { className: "row" }, h("button", { onclick: () => { ({ value: saved, etag } = fresh); show(problem); fill(); history(); } }, "Take the file as it is now"),
          mine !== undefined && h("button", { className: "danger", onclick: () => { ({ value: saved, etag } = fresh); show(problem); key.value = ""; text.value = mine; check(); } }, "Go on with mine")));
    }
  };
  save.onclick = async () => {
    const wait = checked?.kept ?? [];
    if (wait.length && !await confirmed(`These keys wait for the next start of the core: ${wait.join(", ")}. The others are in force at once.`, "Save")) return;
    send({ text: whole() }, "The configuration was saved.");
  };
  const read = async () => { ({ value: saved, etag } = await api.getTagged("/api/v1/config")); show(problem); fill(); await history(); };
  const history = async () => {
    const versions = await api.get("/api/v1/config/history");
    const compare = async (v) => {
      const at = versions.findIndex((x) => x.number === v.number), before = versions[at + 1];
      const [own, older] = await Promise.all([api.get(`/api/v1/config/history/${v.number}`), before && api.get(`/api/v1/config/history/${before.number}`)]);
      show(shown, h("h3", {}, `What version ${v.number} changed`), diffView(older?.text ?? "", own.text, "Nothing that shows: a secret may differ."));
      shown.scrollIntoView({ block: "nearest" });
    };
    const shown = h("div", { role: "status" });
    show(past, table("Versions", ["Version", "When", "By", "What", "Lines", ""], versions.map((v, i) => [v.number, ago(v.at), v.by || "–", v.how, `+${v.added} −${v.removed}`, h("div", { className: "row" }, h("button", { "aria-label": `Show the changes of version ${v.number}`, onclick: () => compare(v) }, "Changes"),
      i > 0 && api.may("admin") && h("button", { "aria-label": `Restore version ${v.number}`, onclick: async () => { if (await confirmed(`Restore version ${v.number}? It is checked first, and becomes a new version.`, "Restore")) send({ version: v.number }, `Version ${v.number} was restored.`); } }, "Restore"))]), "There is no version yet."), shown);
  };
  show(main, h("h1", {}, "Configuration"), h("p", { className: "quiet" }, "The file ", h("code", {}, saved.file), " is the one source: a change here writes it and reloads it. Secrets stand as (secret 1) and are kept; write a value in their place to replace them."), problem, waiting,
    card("Edit", field("Part", key), text, found, changes, api.may("admin") ? h("div", { className: "row" }, save, back) : h("p", { className: "quiet" }, "Admins change it.")),
    card("History", past));
  fill();
  await history();
  page.gone(check.stop);
}
