import * as api from "./api.js";
import { ago, card, facts, h, micros, number, octets, pill, s, show, table } from "./dom.js";
import { paced, prose } from "./pages.js";

const DEPLOYMENT = {
  single: "One process serves all UEs. Nothing takes over if it ends: UEs register again, or go on from the disk (store.keep_ues).",
  region: "CPFs serve the UEs; if one is lost, others take its UEs over. There is no second CTA.",
  pair: "CPFs serve the UEs, and a second CTA can take over from this one.",
};
const STATE = { serving: "up", waiting: "minor", leaving: "minor", away: "down" };

/** The ring of a region: its CPFs, and how many UEs each serves. */
function ring(region, cpfs) {
  const serving = cpfs.filter((c) => c.state === "serving"), most = Math.max(1, ...serving.map((c) => c.primary_of ?? 0));
  const place = (i) => { const turn = (i / Math.max(1, serving.length)) * 2 * Math.PI - Math.PI / 2; return [150 + 85 * Math.cos(turn), 125 + 85 * Math.sin(turn)]; };
  const svg = s("svg", { viewBox: "0 0 300 250", class: "topology ring", role: "img", "aria-label": `The ring of ${region || "the region"}: ${serving.length} CPFs` }, s("circle", { cx: 150, cy: 125, r: 85, class: "wire" }), s("text", { x: 150, y: 129, class: "name" }, region || "region"));
  serving.forEach((c, i) => {
    const [x, y] = place(i);
    svg.append(s("g", {}, s("title", {}, `CPF ${c.id}: primary of ${c.primary_of ?? "?"}, backup of ${c.backup_of ?? "?"} UEs`),
      s("circle", { cx: x, cy: y, r: 16 + 8 * Math.sqrt((c.primary_of ?? 0) / most), class: "gnb" }), s("text", { x, y: y + 4, class: "count" }, c.id)));
  });
  return svg;
}

const LEVEL = { joined: "up", takeover: "limited", replica: "limited", left: "off", lost: "down", upf: "off" };

function timeline(moments) {
  if (moments.length === 0) return h("p", { className: "quiet" }, "Nothing has happened since the core started.");
  return h("ol", { className: "timeline" }, moments.map((m) => h("li", { className: m.kind },
    h("div", { className: "row" }, pill(LEVEL[m.kind] ?? "off", m.kind), h("strong", {}, m.subject), h("span", { className: "quiet" }, ago(m.at)), m.took_us && h("span", { className: "quiet" }, `took ${micros(m.took_us)}`)),
    h("p", {}, prose(m.text)))));
}

export async function cluster(main, page) {
  const about = h("p", { className: "quiet" }), ctas = h("div"), cpfs = h("div"), rings = h("div", { className: "rings" }), upfs = h("div"), log = h("div"), past = h("div");
  const ofCpfs = h("div", {}, h("div", { className: "grid" }, card("CTAs", ctas), card("Replicas and log", log)), card("CPFs", rings, cpfs));
  show(main, h("h1", {}, "Cluster"), about, ofCpfs, card("UPFs", upfs), card("Timeline", past));
  const draw = async () => {
    const c = await api.get("/api/v1/cluster");
    show(about, DEPLOYMENT[c.deployment]);
    ofCpfs.hidden = c.deployment === "single";
    show(ctas, table("CTAs", ["Role", "Condition", "Term", "What it says"], c.ctas.map((x) => [x.role, pill(x.up ? "up" : "limited", x.up ? "up" : "limited"), x.term ?? "–", prose(x.detail)]), "This CTA is the only one."));
    show(log, facts([["Replicas of each UE", `${c.replicas.configured - c.replicas.missing} of ${c.replicas.configured}`], ["UEs without a replica", number(c.replicas.ues_without)], ["UEs with a log", number(c.log.ues)], ["Octets in logs", octets(c.log.octets)],
      ["Inputs replayed", number(c.log.replayed)], ["UEs taken over", number(c.log.taken_over)], ["UEs lost", number(c.log.lost)]]));
    const regions = [...new Set(c.cpfs.map((x) => x.region))];
    show(rings, regions.map((region) => ring(region, c.cpfs.filter((x) => x.region === region))));
    show(cpfs, table("CPFs", ["CPF", "State", "Region", "Address", "Primary of", "Backup of", "Code"], c.cpfs.map((x) => [x.id, pill(STATE[x.state], x.state), x.region, x.address, x.primary_of === null ? "many" : number(x.primary_of), x.backup_of === null ? "many" : number(x.backup_of), h("code", {}, x.code)]),
      h("span", {}, "No CPF has joined: start one with ", h("code", {}, "whimbrel cpf"), ".")));
    show(upfs, table("UPFs", ["UPF", "Address", "New sessions", "Load"], c.upfs.map((x) => [x.name, x.address ?? "in this program", pill(x.usable ? "up" : "down", x.usable ? "yes" : "no"), `${x.load} %`]), "This core uses no UPF."));
    show(past, timeline(c.timeline));
  };
  await draw();
  const again = paced(draw, 1000);
  page.gone(api.on("event", (e) => { if (e.kind === "cluster" || e.kind === "upf") again(); }));
  page.gone(api.on("counts", again)); page.gone(api.on("reset", again)); page.gone(again.stop);
}
