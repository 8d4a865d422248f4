//! `whimbrel ue list|show|deregister|notify` and `whimbrel gnb list`.

use serde_json::Value;

use super::{Done, print, print_json, table};
use crate::client::{Client, path_part};
use crate::console::{GnbView, SessionView, UePage, UeView};

/// Phones asked for at once.
const PAGE: usize = 500;

/// Every phone, a line each.
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
        (false, true) => print("No phone is known.\n"),
        (false, false) => print(&table(&["SUPI", "STATE", "MODE", "GNB", "ADDRESSES"], &rows)),
    }
}

fn row(ue: &UeView) -> Vec<String> {
    let addresses = ue.sessions.iter().flat_map(|s| [s.ipv4.clone(), s.ipv6.clone()]).flatten();
    let addresses: Vec<String> = addresses.collect();
    let gnb = ue.gnb.clone().unwrap_or_default();
    vec![ue.supi.clone(), ue.state.clone(), ue.mode.clone(), gnb, addresses.join(" ")]
}

/// One phone, a line a fact.
pub(crate) fn ue(client: Client, supi: &str, json: bool) -> Done {
    let path = format!("/api/v1/ues/{}", path_part(supi));
    if json {
        return print_json(&client.get::<Value>(&path)?);
    }
    let ue: UeView = client.get(&path)?;
    let mode = if ue.rrc_inactive { format!("{}, RRC inactive", ue.mode) } else { ue.mode };
    let mut facts = vec![("SUPI", ue.supi), ("state", ue.state), ("mode", mode)];
    let more = [
        ("PEI", ue.pei),
        ("5G-TMSI", ue.tmsi),
        ("AMF-UE-NGAP-ID", ue.amf_ue_ngap_id.map(|id| id.to_string())),
        ("gNB", ue.gnb),
        ("TAI", ue.tai),
        ("cell", ue.cell),
        ("seen", ue.seen),
        ("allowed slices", Some(ue.allowed_slices.join(", ")).filter(|s| !s.is_empty())),
        ("algorithms", ue.algorithms),
        ("last heard", ue.last_heard),
    ];
    facts.extend(more.into_iter().filter_map(|(name, value)| Some((name, value?))));
    facts.extend(ue.sessions.iter().map(|s| ("PDU session", session(s))));
    print(&facts.iter().map(|(name, value)| format!("{name:<15} {value}\n")).collect::<String>())
}

fn session(s: &SessionView) -> String {
    let addresses = [&s.ipv4, &s.ipv6].into_iter().flatten().cloned().collect::<Vec<_>>().join(" ");
    let state = if s.active { "active" } else { "inactive" };
    let (ul, dl) = (s.ul_octets, s.dl_octets);
    format!("{} of {} in slice {}, {addresses}, {state}, {ul} octets up, {dl} down", s.id, s.dnn, s.s_nssai)
}

/// Deregisters a phone.
pub(crate) fn deregister(client: Client, supi: &str) -> Done {
    client.post(&format!("/api/v1/ues/{}/deregister", path_part(supi)))?;
    print(&format!("{supi} is being deregistered\n"))
}

/// Asks to be told by an event when a phone can be reached.
pub(crate) fn tell_reachable(client: Client, supi: &str) -> Done {
    client.post(&format!("/api/v1/ues/{}/reachability", path_part(supi)))?;
    print(&format!("the event \"reachable\" will tell when {supi} can be reached\n"))
}

/// Every gNB, a line each.
pub(crate) fn gnbs(client: Client, json: bool) -> Done {
    if json {
        return print_json(&client.get::<Value>("/api/v1/gnbs")?);
    }
    let gnbs: Vec<GnbView> = client.get("/api/v1/gnbs")?;
    if gnbs.is_empty() {
        return print("No gNB is up.\n");
    }
    let rows: Vec<Vec<String>> = gnbs
        .into_iter()
        .map(|g| {
            let phones = g.connected_phones.to_string();
            vec![
                g.id,
                g.name.unwrap_or_default(),
                g.address,
                g.tais.join(" "),
                g.slices.join(" "),
                phones,
                g.since,
            ]
        })
        .collect();
    print(&table(&["GNB", "NAME", "ADDRESS", "TAI", "SLICES", "PHONES", "SINCE"], &rows))
}
