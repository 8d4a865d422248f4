import * as api from "./api.js";
import { ago, card, confirmed, field, h, number, octets, pill, show, table, toast } from "./dom.js";

const amount = (n) => h("span", { title: `${number(n)} octets` }, octets(n));
const status = (account) => pill(account.status === "active" ? "up" : "major", account.status);
const total = (session, name) => session.rating_groups.reduce((sum, group) => sum + group[name], 0);
const link = (supi) => h("a", { href: `#/charging/${api.part(supi)}` }, supi);
const pathOf = (supi) => `/api/v1/charging/accounts/${api.part(supi)}`;

/** Octets from what an operator writes: a number, or one with a unit, such as 5 GB. */
function octetsOf(text) {
  const [, digits, unit] = /^\s*(-?\d+)\s*([kMGT]?B)?\s*$/.exec(text) ?? [];
  if (!digits) throw new Error("Write a whole number of octets, or of kB, MB, GB or TB.");
  const value = Number(digits) * { B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 }[unit ?? "B"];
  if (!Number.isSafeInteger(value)) throw new Error("An account does not hold that many octets.");
  return value;
}

/** A table that goes on by a button. `rowsOf` gives the rows of a page. */
async function pages(place, caption, heads, path, rowsOf, empty) {
  const list = h("div"), more = h("button", { hidden: true }, "Show more");
  let rows = [], next;
  const load = async (after) => {
    const query = new URLSearchParams({ limit: 100 });
    if (after !== undefined) query.set("after", after);
    const answer = await api.get(`${path}${path.includes("?") ? "&" : "?"}${query}`);
    rows = after === undefined ? rowsOf(answer) : rows.concat(rowsOf(answer));
    next = answer.next ?? undefined;
    show(list, table(caption, heads, rows, empty));
    more.hidden = next === undefined;
  };
  more.onclick = () => load(next);
  show(place, list, more);
  await load();
  return () => load();
}

const RECORDS = ["Number", "SUPI", "Data network", "Ended", "Uplink", "Downlink", "Cause"];
const recordRows = (answer) => answer.records.map((r) => [number(r.number), link(r.supi), r.dnn ?? "–", ago(r.end), amount(r.uplink_octets), amount(r.downlink_octets), r.cause]);
const download = (query) => h("a", { href: `/api/v1/charging/records.csv?limit=1000${query}`, download: "charging-records.csv" }, "The first 1000 as CSV");

export async function charging(main) {
  const accounts = h("div"), records = h("div");
  let load = async () => {};
  show(main, h("h1", {}, "Charging"), card("Accounts", accounts), api.may("subscribers") && addForm(() => load()), card("Records", records, h("p", { className: "quiet" }, download(""))));
  load = await pages(accounts, "Accounts", ["SUPI", "Kind", "Status", "Left", "Reserved", "Used", "Overdraft"], "/api/v1/charging/accounts",
    (answer) => answer.accounts.map((a) => [link(a.supi), a.kind, status(a), a.kind === "prepaid" ? amount(a.balance_octets) : "no limit", amount(a.reserved_octets),
      amount(a.used_octets + a.postpaid_octets), amount(a.overdraft_octets)]), "There is no account yet.");
  await pages(records, "Charging records", RECORDS, "/api/v1/charging/records", recordRows, "No session has ended yet.");
}

function addForm(done) {
  const supi = h("input", { required: true, placeholder: "imsi-999700000000001", spellcheck: false });
  const kind = h("select", {}, ["prepaid", "postpaid"].map((value) => h("option", { value }, value)));
  const problem = h("p", { className: "problem", role: "alert" });
  return card("Make an account", h("form", { onsubmit: async (e) => {
    e.preventDefault();
    try {
      await api.put(pathOf(supi.value.trim()), { kind: kind.value });
      toast(`${supi.value.trim()} has an account.`);
      e.target.reset(); show(problem); done();
    } catch (p) { show(problem, p.message); }
  } }, field("SUPI", supi, "imsi- and 15 digits"), field("Kind", kind, "A prepaid account pays from its credit; a postpaid one has no limit."), problem, h("button", { className: "primary" }, "Make")));
}

export async function account(main, page, supi) {
  const path = pathOf(supi), facts = h("div"), problem = h("p", { className: "problem", role: "alert" }), records = h("div");
  let current;
  const draw = async () => {
    const { account: a, sessions } = await api.get(path);
    current = a;
    show(facts, h("div", { className: "row" }, status(a), a.kind),
      table("Account", ["Credited", "Left", "Reserved", "Used", "Overdraft", "Used while postpaid"],
        [[amount(a.credited_octets), amount(a.balance_octets), amount(a.reserved_octets), amount(a.used_octets), amount(a.overdraft_octets), amount(a.postpaid_octets)]]),
      table("Open sessions", ["PDU session", "Data network", "Began", "Reserved", "Uplink", "Downlink", "Charged by"],
        sessions.map((x) => [x.pdu_session_id ?? "–", x.dnn ?? "–", ago(x.start), amount(x.reserved_octets), amount(total(x, "uplink_octets")), amount(total(x, "downlink_octets")), x.consumer ?? "this core"]), "No session is open."));
  };
  const change = async (action, done) => {
    try { await action(); show(problem); toast(done); await draw(); } catch (p) { show(problem, p.message); }
  };
  const credit = h("input", { required: true, placeholder: "5 GB" });
  const put = (kind, state) => change(() => api.put(path, { kind, status: state }), `${supi} was changed.`);
  const turned = () => (current.kind === "prepaid" ? "postpaid" : "prepaid");
  show(main, h("p", { className: "crumb" }, h("a", { href: "#/charging" }, "Charging")), h("h1", {}, supi), problem, card("Account", facts,
    api.may("subscribers") && h("form", { className: "row", onsubmit: (e) => {
      e.preventDefault();
      change(async () => { await api.post(`${path}/credit`, { octets: octetsOf(credit.value), reference: crypto.randomUUID?.() }); e.target.reset(); }, "The credit was changed.");
    } }, field("Credit", credit, "Octets, kB, MB, GB or TB; fewer than zero take back what is left"), h("button", { className: "primary" }, "Add")),
    api.may("subscribers") && h("div", { className: "row" },
      h("button", { onclick: () => put(current.kind, current.status === "active" ? "barred" : "active") }, "Bar or allow"),
      h("button", { onclick: () => put(turned(), current.status) }, "Prepaid or postpaid"),
      h("button", { className: "danger", onclick: async () => {
        if (!await confirmed(`Remove the account of ${supi}? Its credit is lost, and its sessions end.`, "Remove")) return;
        try { await api.del(path); toast(`The account of ${supi} was removed.`); page.go("#/charging"); } catch (p) { show(problem, p.message); }
      } }, "Remove"))), card("Records", records, h("p", { className: "quiet" }, download(`&supi=${api.part(supi)}`))));
  await draw();
  await pages(records, "Charging records", RECORDS, `/api/v1/charging/records?supi=${api.part(supi)}`, recordRows, "No session has ended yet.");
}
