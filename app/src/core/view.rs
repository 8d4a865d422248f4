//! What the console shows of phones and gNBs.

use std::collections::BTreeMap;

use whimbrel_control::amf::{OverloadOrder, WarningArea, WarningOutcome, WarningState};
use whimbrel_control::smf::{SmContext, UpState};
use whimbrel_control::{AssociationId, Phone, UpfId};
use whimbrel_ids::{Seid, Supi, Tai};

use super::control_thread::Aggregator;
use super::n2::Link;
use crate::clock;
use crate::console::{
    GnbView, OverloadView, SessionView, UePage, UeView, UesRequest, WarningAtGnb, WarningView,
};

/// How many of everything there are.
pub(super) struct Census {
    pub(super) gnbs: u64,
    pub(super) phones: u64,
    pub(super) registered: u64,
    pub(super) connected: u64,
}

/// Counts.
pub(super) fn census(cta: &Aggregator) -> Census {
    let mut census = Census { gnbs: 0, phones: 0, registered: 0, connected: 0 };
    census.gnbs = cta.ran_nodes().iter().filter(|(_, n)| n.gnb.is_some()).count() as u64;
    for phone in cta.phones() {
        census.phones += 1;
        census.registered += u64::from(phone.amf.registered);
        census.connected += u64::from(phone.is_connected());
    }
    census
}

/// A page of phones in the order of their SUPI.
pub(super) fn ues(cta: &Aggregator, request: &UesRequest) -> UePage {
    let known = cta.phones().filter_map(|p| Some((p.amf.supi?, p)));
    let mut after: Vec<(Supi, &Phone)> =
        known.filter(|(s, _)| request.after.is_none_or(|a| *s > a)).collect();
    // Of a SUPI with two contexts, as while it registers anew, the registered one is shown.
    after.sort_by_key(|(supi, p)| (*supi, !p.amf.registered));
    after.dedup_by_key(|(supi, _)| *supi);
    let more = after.len() > request.limit;
    after.truncate(request.limit);
    let next = after.last().filter(|_| more).map(|(supi, _)| supi.to_string());
    UePage { ues: after.into_iter().map(|(_, p)| view(cta, p)).collect(), next }
}

/// One phone.
/// `octets`: what the UPF has counted for one of its sessions, uplink and downlink.
pub(super) fn ue(
    cta: &Aggregator,
    supi: Supi,
    octets: impl Fn(UpfId, Seid) -> Option<(u64, u64)>,
) -> Option<UeView> {
    let registered = cta.find(supi).and_then(|id| cta.phone(id));
    let phone = registered.or_else(|| cta.phones().find(|p| p.amf.supi == Some(supi)))?;
    let mut shown = view(cta, phone);
    for (session, view) in phone.sessions.values().zip(&mut shown.sessions) {
        if let Some((ul, dl)) = session.up_seid.and_then(|seid| octets(session.upf, seid)) {
            (view.ul_octets, view.dl_octets) = (ul, dl);
        }
    }
    Some(shown)
}

fn view(cta: &Aggregator, phone: &Phone) -> UeView {
    let amf = &phone.amf;
    let connection = amf.connection.as_ref();
    let gnb = connection.and_then(|c| cta.ran_nodes().get(c.association)?.gnb);
    UeView {
        supi: amf.supi.map(|s| s.to_string()).unwrap_or_default(),
        state: if amf.registered { "registered" } else { "deregistered" }.into(),
        mode: if connection.is_some() { "connected" } else { "idle" }.into(),
        pei: amf.pei.map(|p| p.to_string()),
        tmsi: amf.tmsi.map(|t| format!("{t:?}")),
        amf_ue_ngap_id: connection.map(|c| c.amf_ue_ngap_id.value()),
        gnb: gnb.map(|g| format!("gnb-{g}")),
        tai: amf.tai.map(|t| t.to_string()),
        cell: amf.seen.as_ref().map(|s| s.cell.to_string()),
        seen: amf.seen.as_ref().map(|s| clock::rfc3339(s.at)),
        seen_s: amf.seen.as_ref().map(|s| clock::now().since(s.at).as_secs()),
        rrc_inactive: connection.is_some_and(|c| c.rrc_inactive),
        allowed_slices: amf.allowed_nssai.iter().map(ToString::to_string).collect(),
        algorithms: None,
        last_heard: None,
        sessions: phone.sessions.iter().map(|(id, s)| session(id.value(), s)).collect(),
    }
}

fn session(id: u8, s: &SmContext) -> SessionView {
    SessionView {
        id,
        dnn: s.dnn.to_string(),
        s_nssai: s.s_nssai.to_string(),
        ipv4: s.ipv4.map(|a| a.to_string()),
        ipv6: s.ipv6.map(|p| format!("{p}/64")),
        active: s.up == UpState::Active,
        ul_octets: s.usage.0,
        dl_octets: s.usage.1,
        secondary_rat_ul_octets: s.secondary_usage.as_deref().map_or(0, |u| u.0),
        secondary_rat_dl_octets: s.secondary_usage.as_deref().map_or(0, |u| u.1),
    }
}

/// The gNBs that are up.
pub(super) fn gnbs(cta: &Aggregator, link: impl Fn(AssociationId) -> Option<Link>) -> Vec<GnbView> {
    let mut connected: BTreeMap<AssociationId, u64> = BTreeMap::new();
    for connection in cta.phones().filter_map(|p| p.amf.connection.as_ref()) {
        *connected.entry(connection.association).or_default() += 1;
    }
    let nodes = cta.ran_nodes().iter().filter_map(|(association, node)| {
        let (gnb, link) = (node.gnb?, link(association));
        let tai = |&tac: &whimbrel_ids::Tac| Tai { plmn: gnb.plmn, tac }.to_string();
        Some(GnbView {
            id: gnb.to_string(),
            id_bits: gnb.bits(),
            name: node.name.clone(),
            address: link.map(|l| l.peer.to_string()).unwrap_or_default(),
            tais: node.tacs.iter().map(tai).collect(),
            slices: node.slices.iter().map(ToString::to_string).collect(),
            connected_phones: connected.get(&association).copied().unwrap_or_default(),
            since: link.map(|l| clock::rfc3339(l.since)).unwrap_or_default(),
        })
    });
    nodes.collect()
}

/// Whether gNBs are told to spare the core.
pub(super) fn overload(cta: &Aggregator) -> OverloadView {
    let order = match cta.ran_nodes().overload_order() {
        OverloadOrder::ByRule => "rule",
        OverloadOrder::Start => "start",
        OverloadOrder::Stop => "stop",
    };
    OverloadView { overloaded: cta.ran_nodes().is_overloaded(), order: order.into() }
}

/// The warning messages that are remembered, oldest first.
pub(super) fn warnings(cta: &Aggregator) -> Vec<WarningView> {
    let all = cta.ran_nodes().warnings().iter().map(|w| WarningView {
        message_identifier: w.warning.message_identifier,
        serial_number: w.warning.serial_number,
        state: match w.state {
            WarningState::InForce => "in force",
            WarningState::Over => "over",
            WarningState::Cancelled => "cancelled",
        }
        .into(),
        sent: clock::rfc3339(w.sent),
        area: match &w.warning.area {
            WarningArea::Everywhere => vec!["everywhere".into()],
            WarningArea::Tais(tais) => tais.iter().map(ToString::to_string).collect(),
            WarningArea::Cells(cells) => cells.iter().map(ToString::to_string).collect(),
        },
        repetition_period_s: w.warning.repetition_period_s,
        broadcasts: w.warning.broadcasts,
        gnbs: w
            .outcomes
            .iter()
            .map(|(gnb, outcome)| WarningAtGnb { gnb: gnb.to_string(), outcome: outcome_in_words(outcome) })
            .collect(),
    });
    all.collect()
}

fn outcome_in_words(outcome: &WarningOutcome) -> String {
    match outcome {
        WarningOutcome::Awaited => "no answer yet".into(),
        WarningOutcome::Broadcasting(Some(n)) => format!("broadcast in {n} cells"),
        WarningOutcome::Broadcasting(None) => "broadcast".into(),
        WarningOutcome::Nowhere => "broadcast nowhere".into(),
        WarningOutcome::NoAnswer => "it did not answer".into(),
        WarningOutcome::Failed(n) => format!("{n} cells do not broadcast any more"),
        WarningOutcome::Cancelled(n) => format!("cancelled after {n} broadcasts"),
    }
}
