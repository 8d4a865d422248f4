import * as api from "./api.js";
import { ago, bits, card, confirmed, h, micros, number, pill, s, show, table, toast } from "./dom.js";

/** Calls at once, and again not more often than every so many milliseconds while it is wanted. */
export function paced(f, ms) {
  let timer, again = false;
  const run = () => {
    again = false;
    timer = setTimeout(() => { timer = undefined; if (again) run(); }, ms);
    Promise.resolve(f()).catch(() => {});
  };
  const call = () => { if (timer) again = true; else run(); };
  call.stop = () => clearTimeout(timer);
  return call;
}

/** A text of which what stands in back ticks is code. */
export function prose(text) {
  return text.split("`").map((piece, i) => (i % 2 ? h("code", {}, piece) : piece));
}

/** A sentence of `why`, with a link to its UE or gNB. */
export function linked(subject) {
  if (/^imsi-|^ue-/.test(subject)) return h("a", { href: `#/ues/${api.part(subject)}` }, subject);
  if (subject.startsWith("gnb-")) return h("a", { href: "#/gnbs" }, subject);
  return subject;
}

function alarmList(alarms) {
  if (alarms.length === 0) return h("p", { className: "calm" }, h("span", { "aria-hidden": true }, "✓ "), "Nothing is wrong.");
  return h("ul", { className: "alarms" }, alarms.map((a) => h("li", { className: a.severity },
    h("div", { className: "row" }, pill(a.severity, a.severity), h("strong", {}, linked(a.subject)), a.since && h("span", { className: "quiet" }, ago(a.since))),
    h("p", {}, prose(a.sentence)), a.fix && h("p", { className: "fix" }, h("b", {}, "Fix "), prose(a.fix)))));
}

function spark(values, label) {
  const max = Math.max(1, ...values), n = Math.max(2, values.length);
  const points = values.map((v, i) => `${(i / (n - 1)) * 100},${30 - (v / max) * 28}`).join(" ");
  return s("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", class: "spark", role: "img", "aria-label": label },
    s("polygon", { points: `0,30 ${points} 100,30` }), s("polyline", { points }));
}

function topology(gnbs) {
  if (gnbs.length === 0) return h("p", { className: "quiet" }, "No gNB is connected. Point one at the core's N2 address.");
  const shown = gnbs.slice(0, 12), width = 720, gap = width / shown.length, most = Math.max(1, ...shown.map((g) => g.connected_ues));
  const svg = s("svg", { viewBox: `0 0 ${width} 190`, class: "topology", role: "img", "aria-label": `${gnbs.length} gNBs at the core` });
  shown.forEach((g, i) => {
    const x = gap * (i + 0.5);
    svg.append(s("path", { d: `M${width / 2},38 C${width / 2},90 ${x},60 ${x},112`, class: "wire" }));
    const group = s("g", {}, s("title", {}, `${g.name ?? g.id}: ${g.connected_ues} connected UEs`), s("circle", { cx: x, cy: 126, r: 12 + 10 * Math.sqrt(g.connected_ues / most), class: "gnb" }),
      s("text", { x, y: 130, class: "count" }, number(g.connected_ues)), s("text", { x, y: 174, class: "name" }, (g.name ?? g.id).slice(0, Math.max(6, Math.floor(gap / 8)))));
    svg.append(group);
  });
  svg.append(s("rect", { x: width / 2 - 52, y: 6, width: 104, height: 36, rx: 10, class: "core" }), s("text", { x: width / 2, y: 29, class: "coretext" }, "AMF · SMF"));
  return h("div", {}, svg, gnbs.length > 12 && h("p", { className: "quiet" }, `and ${gnbs.length - 12} more`));
}

export async function overview(main, page) {
  const tile = (title, href) => {
    const value = h("span", { className: "value" }, "–"), more = h("span", { className: "quiet" });
    return { value, more, box: h(href ? "a" : "div", { className: "tile", href }, h("span", { className: "title" }, title), value, more) };
  };
  const t = { gnbs: tile("gNBs", "#/gnbs"), ues: tile("UEs registered", "#/ues"), sessions: tile("PDU sessions"), down: tile("Downlink"), up: tile("Uplink") };
  const alarms = h("div", { "aria-live": "polite" }), map = h("div"), parts = h("div"), procedures = h("div"), events = h("ol", { className: "events" });
  show(main, h("h1", {}, "Overview"), h("div", { className: "tiles" }, Object.values(t).map((x) => x.box)),
    h("div", { className: "grid" }, card("Alarms", alarms), card("Radio network", map)),
    h("div", { className: "grid" }, card("Procedures", procedures), card("Recent events", events)), card("Parts of the core", parts));
  const rates = { down: [], up: [] };
  let earlier, earlierAt = 0;
  const counts = (c) => {
    t.gnbs.value.textContent = number(c.gnbs);
    t.ues.value.textContent = number(c.ues_registered);
    t.ues.more.textContent = `${number(c.ues_connected)} connected`;
    t.sessions.value.textContent = number(c.pdu_sessions);
    traffic(c.throughput);
  };
  const traffic = (now) => {
    const at = performance.now();
    if (earlier && at - earlierAt > 300) {
      const per = (field) => Math.max(0, (now[field] - earlier[field]) * 8000 / (at - earlierAt));
      for (const [name, field] of [["down", "dl_octets"], ["up", "ul_octets"]]) {
        rates[name].push(per(field));
        if (rates[name].length > 60) rates[name].shift();
        t[name].value.textContent = bits(rates[name].at(-1));
        show(t[name].more, spark(rates[name], `${name === "down" ? "Downlink" : "Uplink"} over the last minute`));
      }
    }
    if (!earlier || at - earlierAt > 300) { earlier = now; earlierAt = at; }
  };
  let latest;
  // The stream reports counts when they change; between that, traffic is none.
  const tick = setInterval(() => { if (latest) traffic(latest.throughput); }, 1000);
  const drawAlarms = paced(async () => show(alarms, alarmList(await api.get("/api/v1/alarms"))), 2000);
  const drawGnbs = paced(async () => {
    const all = await api.get("/api/v1/gnbs");
    t.gnbs.more.textContent = all.length ? `${number(all.reduce((n, g) => n + g.connected_ues, 0))} connected UEs` : "none is up";
    show(map, topology(all));
  }, 2000);
  const drawStatus = paced(async () => {
    const st = await api.get("/api/v1/status");
    counts(st);
    show(parts, table("Parts of the core", ["Part", "Condition", "What it says"], st.components.map((c) => [c.name, pill(c.condition, c.condition), prose(c.detail)])));
    show(procedures, table("Procedures", ["Procedure", "Done", "Refused", "p50", "p99"], st.procedures.filter((p) => p.completed + p.refused > 0)
      .map((p) => [p.name.replaceAll("_", " "), number(p.completed), p.refused ? pill("minor", number(p.refused)) : "0", micros(p.p50_us), micros(p.p99_us)]), "None has run yet."));
  }, 3000);
  const event = (e) => {
    if (e.level === "debug") return;
    events.prepend(h("li", { className: e.level }, h("time", { dateTime: e.at, title: e.at }, e.at.slice(11, 19)), " ", e.subject && [linked(e.subject), " "], e.text));
    while (events.children.length > 12) events.lastChild.remove();
  };
  await drawStatus();
  drawAlarms(); drawGnbs(); drawStatus();
  const st = await api.get("/api/v1/status");
  for (const e of await api.get(`/api/v1/events?since=${Math.max(0, st.last_event - 40)}`)) event(e);
  for (const stop of [api.on("counts", (c) => { latest = c; counts(c); }), api.on("event", (e) => { event(e); drawAlarms(); }), api.on("ue", () => { drawAlarms(); drawStatus(); drawGnbs(); }),
    api.on("gnb", () => { drawGnbs(); drawAlarms(); drawStatus(); }), api.on("reset", () => { drawAlarms(); drawGnbs(); drawStatus(); }), () => clearInterval(tick)]) page.gone(stop);
}

export function ueRow(u) {
  const addresses = u.sessions.map((x) => x.ipv4 ?? x.ipv6).filter(Boolean).join(", ");
  return [h("a", { href: `#/ues/${api.part(u.supi)}` }, u.supi), pill(u.state === "registered" ? "up" : "off", u.state), pill(u.cm_state === "CM-CONNECTED" ? "up" : "off", u.cm_state),
    u.gnb ?? "–", u.tai ?? "–", addresses || "–", u.seen ? ago(u.seen) : "–"];
}

export async function ues(main, page) {
  const find = h("input", { type: "search", value: page.query.get("find") ?? "", placeholder: "SUPI, IMEI, 5G-GUTI, IP address or gNB", "aria-label": "Find UEs", spellcheck: false });
  const list = h("div"), more = h("button", { hidden: true }, "Show more"), note = h("p", { className: "quiet", role: "status" });
  let rows = [], next, running = 0;
  const draw = () => {
    show(list, table("UEs", ["SUPI", "5GMM", "CM", "gNB", "TAI", "Addresses", "Seen"], rows.map(ueRow), find.value ? "No UE matches." : "No UE is known."));
    more.hidden = !next;
    note.textContent = `${number(rows.length)}${next ? "+" : ""} UEs`;
  };
  const load = async (after) => {
    const turn = ++running, query = new URLSearchParams({ limit: 200 });
    if (after) query.set("after", after);
    if (find.value.trim()) query.set("find", find.value.trim());
    const answer = await api.get(`/api/v1/ues?${query}`);
    if (turn !== running) return;
    rows = after ? rows.concat(answer.ues) : answer.ues;
    next = answer.next;
    if (!after && find.value.trim() && rows.length === 1 && page.query.get("find")) return page.go(`#/ues/${api.part(rows[0].supi)}`);
    draw();
  };
  more.onclick = () => load(next);
  const search = paced(() => { page.query.delete("find"); return load(); }, 250);
  find.oninput = search;
  show(main, h("h1", {}, "UEs"), h("div", { className: "row" }, find, note), list, more);
  await load();
  const again = paced(() => (rows.length <= 200 ? load() : undefined), 1500);
  page.gone(api.on("ue", again)); page.gone(api.on("reset", again)); page.gone(again.stop);
}

export async function gnbs(main, page) {
  const list = h("div");
  show(main, h("h1", {}, "gNBs"), list);
  const draw = async () => {
    const all = await api.get("/api/v1/gnbs");
    show(list, table("gNBs", ["gNB", "Name", "Address", "Tracking areas", "Slices", "Connected UEs", "Up since", ""], all.map((g) => [
      h("a", { href: `#/ues?find=${api.part(`gnb-${g.id}`)}` }, `gnb-${g.id}`), g.name ?? "–", g.address, g.tais.join(", "), g.slices.join(", "), number(g.connected_ues), ago(g.since),
      api.may("operate") && h("button", { onclick: async () => {
        if (!await confirmed(`Reset ${g.name ?? g.id}? Its ${g.connected_ues} UE connections end.`, "Reset")) return;
        try { const o = await api.post(`/api/v1/gnbs/${api.part(g.id)}/reset?wait=15`); toast(o.text); } catch (p) { toast(p.message, "bad"); }
      } }, "Reset")]), "No gNB is connected."));
  };
  await draw();
  const again = paced(draw, 1500);
  page.gone(api.on("gnb", again)); page.gone(api.on("ue", again)); page.gone(again.stop);
}
