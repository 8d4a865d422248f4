import * as api from "./api.js";
import { ago, bits, card, confirmed, h, micros, number, pill, s, show, table, toast, windowed } from "./dom.js";

/** Calls at once, and again not more often than every so many milliseconds while it is wanted. */
export function paced(f, ms) {
  let timer, again = false, stopped = false;
  const run = () => {
    again = false;
    timer = setTimeout(() => { timer = undefined; if (again) run(); }, ms);
    // What could not be had because the network was away is asked for again.
    Promise.resolve().then(f).catch((p) => { if (p.status === 0) call(); });
  };
  const call = () => { if (stopped) return; if (timer) again = true; else run(); };
  call.stop = () => { stopped = true; clearTimeout(timer); };
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

export function spark(values, label) {
  const max = Math.max(1, ...values), n = Math.max(2, values.length);
  const points = values.map((v, i) => `${(i / (n - 1)) * 100},${30 - (v / max) * 28}`).join(" ");
  return s("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", class: "spark", role: "img", "aria-label": label },
    s("polygon", { points: `0,30 ${points} 100,30` }), s("polyline", { points }));
}

/** The gNBs: on a map if the configuration says where they stand, else as they are connected. */
function radioNetwork(gnbs) {
  const placed = gnbs.filter((g) => g.latitude !== null && g.longitude !== null && g.latitude !== undefined);
  if (placed.length === 0) return topology(gnbs);
  const others = gnbs.filter((g) => !placed.includes(g));
  return h("div", {}, map(placed), others.length > 0 && h("p", { className: "quiet" }, `Not on the map: ${others.map((g) => g.name ?? g.id).join(", ")}.`));
}

const METRES_PER_DEGREE = 111320;

/** A map without ground: places, distances and names. */
function map(gnbs) {
  const width = 720, height = 340, edge = 50, shrink = Math.cos((gnbs.reduce((n, g) => n + g.latitude, 0) / gnbs.length) * Math.PI / 180) || 1;
  const xs = gnbs.map((g) => g.longitude * shrink), ys = gnbs.map((g) => -g.latitude);
  const middle = (all) => (Math.min(...all) + Math.max(...all)) / 2, extent = (all) => Math.max(...all) - Math.min(...all);
  // At least some hundred metres, so that one gNB has a scale, too.
  const scale = Math.min((width - 2 * edge) / Math.max(extent(xs), 0.004), (height - 2 * edge) / Math.max(extent(ys), 0.002));
  const most = Math.max(1, ...gnbs.map((g) => g.connected_ues)), metres = (150 / scale) * METRES_PER_DEGREE, step = 10 ** Math.floor(Math.log10(metres)), bar = step * (metres / step >= 5 ? 5 : metres / step >= 2 ? 2 : 1);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "topology map", role: "img", "aria-label": `Map of ${gnbs.length} gNBs` });
  gnbs.forEach((g, i) => {
    const x = width / 2 + (xs[i] - middle(xs)) * scale, y = height / 2 + (ys[i] - middle(ys)) * scale;
    svg.append(s("g", {}, s("title", {}, `${g.name ?? g.id} at ${g.latitude}, ${g.longitude}: ${g.connected_ues} connected UEs`), s("circle", { cx: x, cy: y, r: 11 + 9 * Math.sqrt(g.connected_ues / most), class: "gnb" }),
      s("text", { x, y: y + 4, class: "count" }, number(g.connected_ues)), gnbs.length <= 40 && s("text", { x, y: y + 32, class: "name" }, (g.name ?? g.id).slice(0, 18))));
  });
  const length = (bar / METRES_PER_DEGREE) * scale;
  svg.append(s("path", { d: `M14,${height - 14} h${length}`, class: "wire" }), s("text", { x: 14 + length / 2, y: height - 20, class: "name" }, bar >= 1000 ? `${bar / 1000} km` : `${bar} m`));
  return svg;
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
  const alarms = h("div", { "aria-live": "polite" }), radio = h("div"), parts = h("div"), procedures = h("div"), events = h("ol", { className: "events" });
  show(main, h("h1", {}, "Overview"), h("div", { className: "tiles" }, Object.values(t).map((x) => x.box)),
    h("div", { className: "grid" }, card("Alarms", alarms), card("Radio network", radio)),
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
    show(radio, radioNetwork(all));
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

function ueRow(u) {
  return [h("a", { href: `#/ues/${api.part(u.supi)}` }, u.supi), pill(u.state === "registered" ? "up" : "off", u.state), pill(u.cm_state === "CM-CONNECTED" ? "up" : "off", u.cm_state),
    u.gnb ?? "–", u.tai ?? "–", u.addresses.join(", ") || "–", u.seen ? ago(u.seen) : "–"];
}

/** UEs of one request. */
const UES_PER_PAGE = 500;

/** The list of UEs, loaded as far as it is looked at. */
export async function ues(main, page) {
  const find = h("input", { type: "search", value: page.query.get("find") ?? "", placeholder: "SUPI, IMEI, 5G-GUTI, IP address or gNB", "aria-label": "Find UEs", spellcheck: false });
  const list = h("div"), note = h("p", { className: "quiet", role: "status" });
  // Of each page its rows, where it begins, and where the next one does.
  let pages = [], total = 0, turn = 0, loading, wanted = [0, 0], old = new Set();
  const loaded = () => pages.reduce((n, p) => n + p.rows.length, 0), isWhole = () => pages.length > 0 && !pages.at(-1).next;
  const at = (i) => pages[Math.floor(i / UES_PER_PAGE)]?.rows[i % UES_PER_PAGE];
  const ask = async (after) => {
    const query = new URLSearchParams({ limit: UES_PER_PAGE });
    if (after) query.set("after", after);
    if (find.value.trim()) query.set("find", find.value.trim());
    const answer = await api.get(`/api/v1/ue-summaries?${query}`);
    return { after, rows: answer.ues, next: answer.next };
  };
  const rows = windowed("UEs", ["SUPI", "5GMM", "CM", "gNB", "TAI", "Addresses", "Seen"], (i) => { const u = at(i); return u && ueRow(u); }, (from, to) => { wanted = [from, to]; load(); });
  const draw = () => {
    const known = loaded(), text = find.value.trim();
    // A search knows its matches only once it has found them.
    const count = isWhole() ? known : text ? known + 1 : Math.max(known + 1, total);
    note.textContent = `${number(isWhole() || text ? known : count)}${isWhole() || !text ? "" : "+"} UEs`;
    if (known === 0) show(list, h("p", { className: "quiet" }, text ? "No UE matches. " : "No UE is known.", /^(imsi-)?[0-9]{14,15}$/.test(text) && h("a", { href: `#/ues/${api.part(text.startsWith("imsi-") ? text : `imsi-${text}`)}` }, "Why is it not here?")));
    else if (list.firstChild !== rows.box) show(list, rows.box);
    rows.size(count);
  };
  // One request at a time, until what is looked at is there.
  const load = () => {
    loading ??= (async () => {
      const mine = turn;
      while (mine === turn) {
        const stale = [...old].find((n) => n * UES_PER_PAGE < wanted[1] && (n + 1) * UES_PER_PAGE > wanted[0]);
        if (stale !== undefined && pages[stale]) {
          old.delete(stale);
          const fresh = await ask(pages[stale].after);
          if (mine !== turn) break;
          // Pages behind one that ends elsewhere now begin elsewhere.
          if (fresh.next !== pages[stale].next) pages.length = stale + 1;
          pages[stale] = fresh;
        } else if (!isWhole() && loaded() < Math.max(wanted[1], 1)) {
          const next = await ask(pages.at(-1)?.next);
          if (mine !== turn) break;
          pages.push(next);
        } else break;
        draw();
      }
    })().finally(() => { loading = undefined; });
    return loading;
  };
  const restart = async () => { turn += 1; await loading?.catch(() => {}); pages = []; old = new Set(); wanted = [0, 30]; await load(); draw(); };
  find.oninput = paced(() => { page.query.delete("find"); rows.top(); return restart(); }, 250);
  show(main, h("h1", {}, "UEs"), h("div", { className: "row" }, find, note), list);
  total = (await api.get("/api/v1/status")).ues;
  await restart();
  if (page.query.get("find") && isWhole() && loaded() === 1) { page.go(`#/ues/${api.part(at(0).supi)}`); return; }
  const again = paced(() => { old = new Set(pages.keys()); return load(); }, 1500);
  page.gone(api.on("counts", (c) => { total = c.ues; draw(); }));
  page.gone(api.on("ue", again)); page.gone(api.on("reset", again)); page.gone(again.stop);
}

export async function gnbs(main, page) {
  const list = h("div"), radio = h("div");
  show(main, h("h1", {}, "gNBs"), card("Radio network", radio), list);
  const draw = async () => {
    const all = await api.get("/api/v1/gnbs");
    show(radio, radioNetwork(all));
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
