import * as api from "./api.js";
import { card, confirmed, field, h, number, pill, show, table, toast } from "./dom.js";

const dnns = (s) => (s.subscription?.slices ?? []).flatMap((x) => (x.dnns ?? []).map((d) => `${x.s_nssai}/${d.dnn ?? d}`)).join(", ");

export async function subscribers(main, page) {
  const list = h("div"), more = h("button", { hidden: true }, "Show more"), problem = h("p", { className: "problem", role: "alert" });
  const from = h("input", { type: "search", placeholder: "First SUPI to show, such as 99970", "aria-label": "Show subscribers from this SUPI on", inputMode: "numeric" });
  let rows = [], next;
  const load = async (after) => {
    const query = new URLSearchParams({ limit: 100 });
    if (after) query.set("after", after);
    const answer = await api.get(`/api/v1/subscribers?${query}`);
    rows = after && after === next ? rows.concat(answer.subscribers) : answer.subscribers;
    next = answer.next;
    show(list, table("Subscribers", ["SUPI", "Status", "Algorithm", "MSISDN", "Slices and DNNs"], rows.map((x) => [h("a", { href: `#/subscribers/${api.part(x.supi)}` }, x.supi),
      pill(x.status === "enabled" ? "up" : "major", x.status), x.algorithm, x.msisdn ?? "–", dnns(x) || "–"]), "There is no subscriber yet."));
    more.hidden = !next;
  };
  more.onclick = () => load(next);
  from.onchange = () => {
    // The list goes on behind a SUPI: the one before the first that begins with these digits.
    const digits = from.value.replace(/\D/g, "");
    const first = digits ? BigInt(digits.padEnd(15, "0")) - 1n : undefined;
    load(first > 0n ? `imsi-${String(first).padStart(15, "0")}` : undefined).then(() => show(problem), (p) => show(problem, p.message));
  };
  show(main, h("h1", {}, "Subscribers"), h("div", { className: "row" }, from), problem, list, more,
    api.may("subscribers") && h("div", { className: "grid" }, addForm(() => load()), importForm(() => load())));
  await load();
}

function addForm(done) {
  const supi = h("input", { required: true, placeholder: "imsi-999700000000001", spellcheck: false }), k = h("input", { required: true, autocomplete: "off", spellcheck: false, minLength: 32, maxLength: 64 });
  const kind = h("select", {}, ["opc", "op", "topc", "top"].map((c) => h("option", { value: c }, { opc: "OPc", op: "OP", topc: "TOPc", top: "TOP" }[c]))), code = h("input", { required: true, autocomplete: "off", spellcheck: false, "aria-label": "Operator code" });
  const problem = h("p", { className: "problem", role: "alert" });
  return card("Add a subscriber", h("form", { onsubmit: async (e) => {
    e.preventDefault();
    try {
      await api.post("/api/v1/subscribers", { supi: supi.value.trim(), k: k.value.trim(), [kind.value]: code.value.trim() });
      toast(`${supi.value.trim()} was added.`);
      e.target.reset(); show(problem); done();
    } catch (p) { show(problem, p.message); }
  } }, field("SUPI", supi, "imsi- and 15 digits"), field("K", k, "32 hexadecimal digits. Keys are never shown again."), field("Operator code", kind), field("Its value", code), problem, h("button", { className: "primary" }, "Add")));
}

function importForm(done) {
  const file = h("input", { type: "file", accept: ".csv,text/csv", required: true }), existing = h("select", {}, [["refuse", "are an error"], ["replace", "are replaced"], ["skip", "stay as they are"]].map(([v, t]) => h("option", { value: v }, t)));
  const result = h("div", { role: "status" }), button = h("button", { className: "primary" }, "Import");
  return card("Import a list", h("form", { onsubmit: async (e) => {
    e.preventDefault();
    button.disabled = true;
    show(result, h("p", { className: "quiet" }, "Importing…"));
    try {
      const r = await api.post(`/api/v1/subscribers/import?on_existing=${existing.value}`, await file.files[0].text());
      show(result, h("p", {}, `${number(r.added)} added, ${number(r.replaced)} replaced, ${number(r.skipped)} skipped.`),
        r.ignored_columns.length > 0 && h("p", {}, `These columns are not imported: ${r.ignored_columns.join(", ")}.`), r.other_plmn > 0 && h("p", {}, `${number(r.other_plmn)} belong to another PLMN than this core's.`));
      done();
    } catch (p) {
      show(result, h("p", { className: "problem", role: "alert" }, p.lines.length ? `Nothing was imported: ${number(p.lines.length)}${p.lines.length >= 100 ? " or more" : ""} lines are wrong. Correct them and import the list again.` : p.message),
        p.lines.length > 0 && table("Wrong lines", ["Line", "What is wrong"], p.lines.map((l) => [number(l.line), l.problem])));
    }
    button.disabled = false;
  } }, field("CSV file", file, "A header line such as imsi,k,opc; all of it is imported, or nothing."), field("Subscribers that exist already", existing), button, result));
}

/** What differs between two JSON values, a line for each. */
function differences(theirs, mine, at = "") {
  if (JSON.stringify(theirs) === JSON.stringify(mine)) return [];
  const isMap = (v) => v && typeof v === "object" && !Array.isArray(v);
  if (!isMap(theirs) || !isMap(mine)) return [[at || "record", JSON.stringify(theirs) ?? "–", JSON.stringify(mine) ?? "–"]];
  return [...new Set([...Object.keys(theirs), ...Object.keys(mine)])].flatMap((key) => differences(theirs[key], mine[key], at ? `${at}.${key}` : key));
}

/** What a merge patch makes of a value. */
function patched(value, patch) {
  if (!patch || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const result = value && typeof value === "object" && !Array.isArray(value) ? { ...value } : {};
  for (const [key, change] of Object.entries(patch)) {
    if (change === null) delete result[key]; else result[key] = patched(result[key], change);
  }
  return result;
}

/** A merge patch (RFC 7396) that leads from one value to another. */
function mergePatch(from, to) {
  const result = {};
  for (const key of new Set([...Object.keys(from), ...Object.keys(to)])) {
    const [a, b] = [from[key], to[key]];
    if (JSON.stringify(a) === JSON.stringify(b)) continue;
    const maps = [a, b].every((v) => v && typeof v === "object" && !Array.isArray(v));
    result[key] = b === undefined ? null : maps ? mergePatch(a, b) : b;
  }
  return result;
}

export async function subscriber(main, page, supi) {
  const path = `/api/v1/subscribers/${api.part(supi)}`;
  let { value: record, etag } = await api.getTagged(path);
  const text = h("textarea", { rows: 22, spellcheck: false, readOnly: !api.may("subscribers"), "aria-label": "The record as JSON" });
  const problem = h("div", { role: "alert" }), changes = h("div", { role: "status" }), save = h("button", { className: "primary", disabled: true }, "Save");
  const status = h("div", { className: "row" });
  const draw = () => {
    text.value = JSON.stringify(record, null, 2);
    show(status, pill(record.status === "enabled" ? "up" : "major", record.status), h("a", { href: `#/ues/${api.part(supi)}` }, "Its UE"));
    show(changes); save.disabled = true;
  };
  const parsed = () => { try { return JSON.parse(text.value); } catch (e) { show(problem, h("p", { className: "problem" }, `This is not JSON: ${e.message}`)); return undefined; } };
  text.oninput = () => {
    const mine = parsed();
    if (!mine) { save.disabled = true; return; }
    show(problem);
    const all = differences(record, mine);
    save.disabled = all.length === 0;
    show(changes, all.length > 0 && table("Your changes", ["Field", "Now", "Yours"], all.map(([k, a, b]) => [h("code", {}, k), a, h("strong", {}, b)])));
  };
  const send = async (body) => {
    try {
      ({ value: record, etag } = await api.patch(path, body, etag));
      show(problem); draw(); toast(`${supi} was changed.`);
    } catch (p) {
      if (p.status !== 412) { show(problem, h("p", { className: "problem" }, p.message)); return; }
      const fresh = await api.getTagged(path);
      // Nothing is lost: both versions stand here until the operator decides, and fields that only the other one changed stay.
      const both = differences(fresh.value, patched(fresh.value, body));
      show(problem, h("p", { className: "problem" }, p.message), table("Both versions", ["Field", "Now in the store", "With your change"], both.map(([k, a, b]) => [h("code", {}, k), a, h("strong", {}, b)]), "The record is already as you want it."),
        h("div", { className: "row" }, h("button", { onclick: () => { ({ value: record, etag } = fresh); show(problem); draw(); } }, "Keep what is in the store"),
          h("button", { className: "danger", onclick: () => { ({ value: record, etag } = fresh); show(problem); send(body); } }, "Make my change to it")));
    }
  };
  save.onclick = () => { const mine = parsed(); if (mine) send(mergePatch(record, mine)); };
  const k = h("input", { autocomplete: "off", spellcheck: false }), opc = h("input", { autocomplete: "off", spellcheck: false });
  show(main, h("p", { className: "crumb" }, h("a", { href: "#/subscribers" }, "Subscribers")), h("h1", {}, supi), status, problem,
    card("Record", text, changes, api.may("subscribers") && h("div", { className: "row" }, save,
      h("button", { onclick: () => send({ status: record.status === "enabled" ? "barred" : "enabled" }) }, "Bar or enable"),
      h("button", { className: "danger", onclick: async () => {
        if (!await confirmed(`Remove ${supi}? Its keys are deleted and cannot be read again.`, "Remove")) return;
        try { await api.del(path, etag); toast(`${supi} was removed.`); page.go("#/subscribers"); } catch (p) { show(problem, h("p", { className: "problem" }, p.message)); }
      } }, "Remove"))),
    api.may("subscribers") && card("Keys", h("p", { className: "quiet" }, "Keys can be set, and are never shown."), h("form", { onsubmit: (e) => { e.preventDefault(); send({ k: k.value.trim(), opc: opc.value.trim() }); k.value = opc.value = ""; } }, field("K", k), field("OPc", opc), h("button", {}, "Set the keys"))));
  draw();
}
