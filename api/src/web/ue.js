import * as api from "./api.js";
import { ago, bits, card, clock, confirmed, facts, h, kbps, number, octets, pill, show, table, toast } from "./dom.js";
import { linked, paced, prose, spark } from "./pages.js";

const LANES = ["UE", "gNB", "AMF · SMF", "UPF"];

/** Which lanes an arrow leads from and to: NAS goes on to the UE. */
function lanes(m) {
  const nas = m.nas.length > 0;
  if (m.interface === "N4") return m.from === "SMF" ? [2, 3] : [3, 2];
  return m.to === "AMF" ? [nas ? 0 : 1, 2] : [2, nas ? 0 : 1];
}

const isBad = (m) => /REJECT|FAILURE|ERROR|unreadable/.test([m.name, ...m.nas.map((n) => n.name)].join(" "));

function tree(fields) {
  return h("ul", { className: "tree" }, fields.map((f) => f.fields
    ? h("li", {}, h("details", { open: f.fields.length < 12 }, h("summary", {}, h("b", {}, f.name), f.value && h("code", { className: "quiet" }, f.value.length > 48 ? `${f.value.slice(0, 48)}… ${f.value.length / 2} octets` : f.value)), tree(f.fields)))
    : h("li", {}, h("span", {}, f.name), " ", h("code", {}, f.value))));
}

function detail(m) {
  return h("div", { className: "detail" },
    h("dl", { className: "facts" }, [["Message", m.name], ["Clause", m.clause || "–"], ...m.nas.map((n) => ["NAS", `${n.name} (${n.protection}${n.clause ? `, ${n.clause}` : ""})`]), ["From, to", `${m.from} → ${m.to}`], ["At", m.at], ["Length", `${number(m.octets)} octets`]]
      .map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v)))), tree(m.fields));
}

/** One message of the ladder. */
function rung(m, before) {
  const [from, to] = lanes(m), left = Math.min(from, to), span = Math.abs(to - from);
  // What a NAS transport carries is the message; what a message carries for its own protection is not.
  const at = m.nas.findIndex((n) => !/^[UD]L NAS TRANSPORT$/.test(n.name)), main = m.nas[at] ?? m.nas[0];
  const title = main?.name ?? m.name, via = main ? [m.name, ...m.nas.slice(0, Math.max(at, 0)).map((n) => n.name)].join(" · ") : "";
  const wait = before ? (Date.parse(m.at) - Date.parse(before.at)) : 0;
  const button = h("button", { className: `rung ${to > from ? "right" : "left"} ${isBad(m) ? "bad" : ""} from${left} span${span}`, "aria-expanded": "false" },
    h("span", { className: "at" }, clock(m.at), wait >= 1 && h("small", {}, wait < 1000 ? `+${wait} ms` : `+${(wait / 1000).toFixed(1)} s`)),
    h("span", { className: "lanes" }, h("span", { className: "name" }, title, via && h("small", {}, via)),
      h("span", { className: "arrow", "aria-hidden": true }), h("span", { className: "unseen" }, `, from ${LANES[from]} to ${LANES[to]}, ${m.interface}`)));
  const item = h("li", { "data-interface": m.interface, "data-nas": m.nas.length > 0 }, button);
  button.onclick = () => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) item.lastChild.remove(); else item.append(detail(m));
  };
  return item;
}

function sessions(ue, rates) {
  if (ue.sessions.length === 0) return h("p", { className: "quiet" }, "No PDU session.");
  return ue.sessions.map((x) => h("div", { className: "session" },
    h("div", { className: "row" }, h("strong", {}, `${x.id} · ${x.dnn}`), pill(x.active ? "up" : "off", x.active ? "user plane up" : "user plane down"), x.changing && pill("minor", "changing")),
    facts([["Slice", x.s_nssai], ["IPv4", x.ipv4], ["IPv6", x.ipv6], ["AMBR", kbps(x.ambr)], ["SSC mode", x.ssc_mode], ["UPF", x.upf],
      ["N3 at the UPF", x.n3_upf && `${x.n3_upf.address}, TEID ${x.n3_upf.teid}`], ["N3 at the gNB", x.n3_gnb && `${x.n3_gnb.address}, TEID ${x.n3_gnb.teid}`],
      ["Usage", `${octets(x.dl_octets)} down, ${octets(x.ul_octets)} up`], ["Throughput", rates.of(x.id)]]),
    table(`QoS flows of session ${x.id}`, ["QFI", "Policy", "5QI", "ARP", "Guaranteed", "Gate"], x.flows.map((f) => [f.qfi, f.name || "default", f.five_qi, f.arp_priority, kbps(f.gfbr) ?? "–",
      f.ul_open && f.dl_open ? "open" : f.ul_open ? "uplink" : f.dl_open ? "downlink" : "closed"])), ));
}

/** How often the counters of a UE on show are read, while it has a user plane. */
const COUNTED_EVERY = 2000;

/** The throughput of each session of a UE, from the counters of the UPF. */
function throughput() {
  let earlier = new Map(), at = 0;
  const now = new Map(), past = { dl: [], ul: [] };
  return {
    of: (id) => now.has(id) ? `${bits(now.get(id).dl)} down, ${bits(now.get(id).ul)} up` : undefined,
    /** Takes the counters; times that are too close say nothing. */
    take: (u) => {
      const time = performance.now(), ms = time - at;
      if (at && ms < COUNTED_EVERY / 2) return;
      now.clear();
      const sum = { dl: 0, ul: 0 };
      for (const x of u.sessions) {
        const before = earlier.get(x.id);
        if (!before) continue;
        const rate = { dl: Math.max(0, x.dl_octets - before.dl_octets) * 8000 / ms, ul: Math.max(0, x.ul_octets - before.ul_octets) * 8000 / ms };
        now.set(x.id, rate); sum.dl += rate.dl; sum.ul += rate.ul;
      }
      if (now.size) for (const way of ["dl", "ul"]) { past[way].push(sum[way]); if (past[way].length > 60) past[way].shift(); }
      earlier = new Map(u.sessions.map((x) => [x.id, x])); at = time;
    },
    view: () => past.dl.length ? h("div", { className: "tiles" }, [["Downlink", past.dl], ["Uplink", past.ul]].map(([title, values]) => h("div", { className: "tile" }, h("span", { className: "title" }, title), h("span", { className: "value" }, bits(values.at(-1))), spark(values, `${title} of this UE over the last two minutes`)))) : undefined,
  };
}

export async function ue(main, page, supi) {
  const path = `/api/v1/ues/${api.part(supi)}`;
  const state = h("div", { className: "row" }), why = h("div", { className: "why", "aria-live": "polite" }), about = h("div"), pdu = h("div"), past = h("div"), traffic = h("div"), rates = throughput();
  const ladder = h("ol", { className: "ladder" }), note = h("p", { className: "quiet", role: "status" });
  const kinds = [["all", "All"], ["nas", "NAS"], ["N2", "N2"], ["N4", "N4"]];
  const filter = h("div", { className: "row tabs", role: "group", "aria-label": "Which messages" }, kinds.map(([kind, title]) => h("button", { "aria-pressed": String(kind === "all"), onclick: (e) => {
    for (const b of filter.children) b.setAttribute("aria-pressed", String(b === e.currentTarget));
    ladder.dataset.show = kind;
  } }, title)));
  const order = (title, verb, question) => h("button", { className: question ? "danger" : "", onclick: async () => {
    if (question && !await confirmed(question, title)) return;
    try { const o = await api.post(`${path}/${verb}`); toast(o?.text ?? "The order was sent."); draw(); } catch (p) { toast(p.message, "bad"); }
  } }, title);
  const orders = api.may("operate") && h("div", { className: "row" }, order("Locate", "locate"), order("Notify when reachable", "reachability"),
    order("Deregister", "deregister?wait=15", `Deregister ${supi}?`), api.may("nas") && h("a", { href: `${path}/capture`, download: `${supi}.pcapng` }, "Capture"), h("a", { href: `#/subscribers/${api.part(supi)}` }, "Subscriber"));
  show(main, h("p", { className: "crumb" }, h("a", { href: "#/ues" }, "UEs")), h("h1", {}, supi), state, why, orders,
    h("div", { className: "grid" }, card("UE", about), card("PDU sessions", traffic, pdu)),
    card("Signalling", filter, h("div", { className: "heads", "aria-hidden": true }, h("span", {}, ""), h("span", { className: "lanes" }, LANES.map((l) => h("b", {}, l)))), ladder, note), card("History", past));
  const draw = paced(async () => {
    const answer = await api.get(`/api/v1/why/${api.part(supi)}`);
    const [sentence, fix] = answer.sentence.split("; fix: ");
    show(why, h("p", {}, prose(fix ? `${sentence}.` : sentence)), fix && h("p", { className: "fix" }, h("b", {}, "Fix "), prose(fix)));
    show(past, answer.history.length ? h("ul", { className: "history" }, answer.history.map((line) => h("li", {}, prose(line)))) : h("p", { className: "quiet" }, "Nothing has happened since the core started."));
    await drawState();
  }, 1000);
  let active = false;
  const drawState = async () => {
    let u;
    try { u = await api.get(path); } catch (p) { if (p.status !== 404) throw p; }
    active = u?.sessions.some((x) => x.active) ?? false;
    if (!u) { show(state, pill("off", "no context")); show(about, h("p", { className: "quiet" }, "The core has no context of this UE.")); show(pdu, h("p", { className: "quiet" }, "No PDU session.")); return; }
    show(state, pill(u.state === "registered" ? "up" : "off", u.state), pill(u.cm_state === "CM-CONNECTED" ? "up" : "off", u.cm_state), u.rrc_inactive && pill("off", "RRC_INACTIVE"));
    show(about, facts([["PEI", u.pei], ["5G-TMSI", u.tmsi], ["gNB", u.gnb && linked(u.gnb)], ["TAI", u.tai], ["Cell", u.cell], ["Seen", u.seen && ago(u.seen)], ["Allowed slices", u.allowed_slices.join(", ")],
      ["NAS algorithms", u.algorithms], ["UE-AMBR", kbps(u.ue_ambr)], ["AMF-UE-NGAP-ID", u.amf_ue_ngap_id], ["RAN-UE-NGAP-ID", u.ran_ue_ngap_id], ["Timers", u.timers.map((t) => `${t.name} ${t.left_s} s`).join(", ")]]));
    rates.take(u);
    show(traffic, rates.view());
    show(pdu, sessions(u, rates));
  };
  const tick = setInterval(() => { if (active && !document.hidden) drawState().catch(() => {}); }, COUNTED_EVERY);
  page.gone(() => clearInterval(tick));
  let after = 0, seen = new Map(), reading = false, again = false;
  const read = async () => {
    if (reading) { again = true; return; }
    reading = true;
    try {
      const answer = await api.get(`${path}/signalling?after=${after}&limit=500`);
      after = answer.last;
      for (const m of answer.messages) seen.set(m.seq, m);
      // A message that was attached later may belong before those on show.
      const sorted = [...seen.values()].sort((a, b) => a.seq - b.seq).slice(-1000), shown = ladder.lastChild?.seq ?? 0;
      const late = answer.messages.some((m) => m.seq < shown);
      if (late) ladder.replaceChildren();
      sorted.forEach((m, i) => {
        if (!late && m.seq <= shown) return;
        const item = rung(m, sorted[i - 1]);
        item.seq = m.seq;
        ladder.append(item);
      });
      show(note, seen.size ? `${number(seen.size)} messages${answer.dropped ? "; older ones were dropped to make room" : ""}. Press one to see its fields.` : "No message of this UE is kept.",
        seen.size > 0 && !api.may("nas") && " Ciphered NAS is shown to operators only.");
    } finally { reading = false; }
    if (again) { again = false; await read(); }
  };
  await Promise.all([draw(), read()]);
  const mine = (c) => { if (c.subject === supi) draw(); };
  page.gone(api.on("ue", mine));
  page.gone(api.on("signalling", () => { read().catch(() => {}); draw(); }));
  page.gone(api.on("event", (e) => { if (e.subject === supi) draw(); }));
  page.gone(api.on("reset", () => { after = 0; seen = new Map(); ladder.replaceChildren(); read().catch(() => {}); draw(); }));
  page.gone(draw.stop);
}

