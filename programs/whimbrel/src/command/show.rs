//! `whimbrel ue list|show|deregister|notify` and `whimbrel gnb list`.

use serde_json::Value;

use super::operation::{Status, Waiting, order};
use whimbrel_cli::{Done, print, print_json, table};
use whimbrel_node::client::{Client, path_part};
use whimbrel_node::observation::{
    FlowView, GnbView, RatesView, SessionView, TimerView, TunnelView, UePage, UeView,
};

/// UEs of one request.
const PAGE: usize = 500;

/// Lists UEs, one a line.
pub(crate) fn ues(client: Client, json: bool) -> Done {
    let mut rows = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let from = after.take().map(|s| format!("&after={}", path_part(&s))).unwrap_or_default();
        let page: UePage = client.get(&format!("/api/v1/ues?limit={PAGE}{from}"))?;
        for ue in &page.ues {
            if json {
                print(&(serde_json::to_string(ue).unwrap_or_default() + "\n"))?;
            }
            rows.push(row(ue));
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    match (json, rows.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => print("There is no UE.\n"),
        (false, false) => print(&table(&["SUPI", "STATE", "MODE", "GNB", "ADDRESSES"], &rows)),
    }
}

fn row(ue: &UeView) -> Vec<String> {
    let addresses = ue.sessions.iter().flat_map(|s| [s.ipv4.clone(), s.ipv6.clone()]).flatten();
    let addresses: Vec<String> = addresses.collect();
    let gnb = ue.gnb.clone().unwrap_or_default();
    vec![ue.supi.clone(), ue.state.clone(), ue.mode.clone(), gnb, addresses.join(" ")]
}

/// Shows one UE, one property a line.
pub(crate) fn ue(client: Client, supi: &str, json: bool) -> Done {
    let path = format!("/api/v1/ues/{}", path_part(supi));
    if json {
        return print_json(&client.get::<Value>(&path)?);
    }
    print(&text(client.get(&path)?))
}

fn text(ue: UeView) -> String {
    let cm = if ue.rrc_inactive { format!("{}, RRC_INACTIVE", ue.cm_state) } else { ue.cm_state };
    let mut facts = vec![("SUPI".to_string(), ue.supi), ("state".into(), ue.state), ("CM state".into(), cm)];
    let more = [
        ("PEI", ue.pei),
        ("5G-TMSI", ue.tmsi),
        ("AMF-UE-NGAP-ID", ue.amf_ue_ngap_id.map(|id| id.to_string())),
        ("RAN-UE-NGAP-ID", ue.ran_ue_ngap_id.map(|id| id.to_string())),
        ("gNB", ue.gnb),
        ("TAI", ue.tai),
        ("cell", ue.cell),
        ("last seen", ue.seen),
        ("allowed slices", Some(ue.allowed_slices.join(", ")).filter(|s| !s.is_empty())),
        ("algorithms", ue.algorithms),
        ("UE-AMBR", ue.subscribed_ue_ambr.map(|subscribed| ue_ambr(subscribed, ue.ue_ambr))),
    ];
    facts.extend(more.into_iter().filter_map(|(name, value)| Some((name.into(), value?))));
    facts.extend(ue.timers.iter().map(|t| ("timer".into(), timer(t))));
    for s in &ue.sessions {
        facts.push((format!("PDU session {}", s.id), session(s)));
        facts.extend(session_facts(s).into_iter().map(|(name, value)| (format!("  {name}"), value)));
    }
    facts.iter().map(|(name, value)| format!("{name:<15} {value}\n")).collect()
}

fn session(s: &SessionView) -> String {
    let addresses = [&s.ipv4, &s.ipv6].into_iter().flatten().cloned().collect::<Vec<_>>().join(" ");
    let state = if s.active { "active" } else { "inactive" };
    let changing = if s.changing { ", being modified" } else { "" };
    format!(
        "{} in slice {}, {addresses}, user plane {state}, SSC mode {}{changing}",
        s.dnn, s.s_nssai, s.ssc_mode
    )
}

fn session_facts(s: &SessionView) -> Vec<(&'static str, String)> {
    let f_teid = |t: &Option<TunnelView>| {
        t.as_ref().map_or_else(|| "none".to_string(), |t| format!("TEID 0x{} at {}", t.teid, t.address))
    };
    let mut facts = vec![
        ("UPF", s.upf.clone()),
        ("N3 UPF", f_teid(&s.n3_upf)),
        ("N3 gNB", f_teid(&s.n3_gnb)),
        ("session AMBR", rates(s.ambr)),
        ("octets", format!("{} up, {} down", s.ul_octets, s.dl_octets)),
    ];
    facts.extend(s.flows.iter().map(|f| ("QoS flow", flow(f))));
    facts
}

fn flow(f: &FlowView) -> String {
    let mut text = format!("QFI {}, 5QI {}, ARP {}", f.qfi, f.five_qi, f.arp_priority);
    let preemption = match (f.arp_may_preempt, f.arp_preemptable) {
        (true, true) => ", may pre-empt, pre-emptable",
        (true, false) => ", may pre-empt, not pre-emptable",
        (false, true) => ", may not pre-empt, pre-emptable",
        (false, false) => ", may not pre-empt, not pre-emptable",
    };
    text += preemption;
    if let (Some(gfbr), Some(mfbr)) = (f.gfbr, f.mfbr) {
        text += &format!(", GFBR {}, MFBR {}", rates(gfbr), rates(mfbr));
    }
    if !f.name.is_empty() {
        text += &format!(", policy {}", f.name);
    }
    match (f.ul_open, f.dl_open) {
        (true, true) => {}
        (false, false) => text += ", gate closed",
        (true, false) => text += ", downlink gate closed",
        (false, true) => text += ", uplink gate closed",
    }
    if !f.fulfilled {
        text += ", the gNB does not fulfil the guaranteed rate";
    }
    text
}

fn ue_ambr(subscribed: RatesView, in_force: Option<RatesView>) -> String {
    match in_force.filter(|r| *r != subscribed) {
        Some(in_force) => format!("{} subscribed, {} in force", rates(subscribed), rates(in_force)),
        None => rates(subscribed),
    }
}

fn timer(t: &TimerView) -> String {
    let session = t.session.map(|n| format!(" of PDU session {n}")).unwrap_or_default();
    format!("{}{session}: {} s left", t.name, t.left_s)
}

fn rates(r: RatesView) -> String {
    format!("{} up, {} down", rate(r.ul_kbps), rate(r.dl_kbps))
}

fn rate(kbps: u64) -> String {
    match kbps {
        1_000_000.. => format!("{} Gbit/s", kbps as f64 / 1e6),
        1000.. => format!("{} Mbit/s", kbps as f64 / 1e3),
        _ => format!("{kbps} kbit/s"),
    }
}

/// Deregisters a UE.
pub(crate) fn deregister(waiting: &Waiting, supi: &str) -> Result<Status, String> {
    order(waiting, "POST", &format!("/api/v1/ues/{}/deregister", path_part(supi)), None)
}

/// Waits until the UE becomes reachable.
pub(crate) fn notify_reachable(waiting: &Waiting, supi: &str) -> Result<Status, String> {
    order(waiting, "POST", &format!("/api/v1/ues/{}/reachability", path_part(supi)), None)
}

/// Lists gNBs, one a line.
pub(crate) fn gnbs(client: Client, json: bool) -> Done {
    if json {
        return print_json(&client.get::<Value>("/api/v1/gnbs")?);
    }
    let gnbs: Vec<GnbView> = client.get("/api/v1/gnbs")?;
    if gnbs.is_empty() {
        return print("No gNB is connected.\n");
    }
    let rows: Vec<Vec<String>> = gnbs
        .into_iter()
        .map(|g| {
            let ues = g.connected_ues.to_string();
            vec![
                g.id,
                g.name.unwrap_or_default(),
                g.address,
                g.tais.join(" "),
                g.slices.join(" "),
                ues,
                g.since,
            ]
        })
        .collect();
    print(&table(&["GNB", "NAME", "ADDRESS", "TAI", "SLICES", "UES", "SINCE"], &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ue_is_shown_with_ambr_flows_tunnels_and_timers() {
        let kbps = |ul_kbps, dl_kbps| RatesView { ul_kbps, dl_kbps };
        let tunnel = |teid: &str, address: &str| TunnelView { teid: teid.into(), address: address.into() };
        let default = FlowView {
            qfi: 1,
            five_qi: 9,
            arp_priority: 8,
            arp_preemptable: true,
            ul_open: true,
            dl_open: true,
            fulfilled: true,
            ..FlowView::default()
        };
        let voice = FlowView {
            qfi: 2,
            name: "voice".into(),
            five_qi: 1,
            arp_priority: 2,
            arp_may_preempt: true,
            gfbr: Some(kbps(64, 64)),
            mfbr: Some(kbps(128, 2_500)),
            ul_open: true,
            fulfilled: false,
            ..default.clone()
        };
        let session = SessionView {
            id: 1,
            dnn: "internet".into(),
            s_nssai: "1".into(),
            ipv4: Some("10.45.0.2".into()),
            active: true,
            ssc_mode: 1,
            upf: "upf (192.0.2.7)".into(),
            n3_upf: Some(tunnel("0000002a", "192.0.2.7")),
            ambr: kbps(100_000, 1_000_000),
            flows: vec![default, FlowView { dl_open: false, ..voice }],
            ..SessionView::default()
        };
        let ue = UeView {
            supi: "imsi-999700000000001".into(),
            state: "registered".into(),
            cm_state: "CM-CONNECTED".into(),
            gnb: Some("gnb-999/70-1".into()),
            tai: Some("999/70-1".into()),
            subscribed_ue_ambr: Some(kbps(2_000_000, 2_000_000)),
            ue_ambr: Some(kbps(100_000, 1_000_000)),
            timers: vec![TimerView { name: "T3591".into(), session: Some(1), left_s: 12 }],
            sessions: vec![session],
            ..UeView::default()
        };
        let text = text(ue);
        for line in [
            "CM state        CM-CONNECTED",
            "gNB             gnb-999/70-1",
            "TAI             999/70-1",
            "UE-AMBR         2 Gbit/s up, 2 Gbit/s down subscribed, 100 Mbit/s up, 1 Gbit/s down in force",
            "timer           T3591 of PDU session 1: 12 s left",
            "PDU session 1   internet in slice 1, 10.45.0.2, user plane active, SSC mode 1",
            "  UPF           upf (192.0.2.7)",
            "  N3 UPF        TEID 0x0000002a at 192.0.2.7",
            "  N3 gNB        none",
            "  session AMBR  100 Mbit/s up, 1 Gbit/s down",
            "  QoS flow      QFI 1, 5QI 9, ARP 8, may not pre-empt, pre-emptable",
            "  QoS flow      QFI 2, 5QI 1, ARP 2, may pre-empt, pre-emptable, GFBR 64 kbit/s up, 64 kbit/s down, MFBR 128 \
             kbit/s up, 2.5 Mbit/s down, policy voice, downlink gate closed, the gNB does not fulfil the guaranteed rate",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
