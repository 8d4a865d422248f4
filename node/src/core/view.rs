//! What the console shows of UEs and gNBs.

use whimbrel_control::amf::{OverloadOrder, WarningArea, WarningState};
use whimbrel_control::config::Config;
use whimbrel_control::smf::Tunnel;
use whimbrel_control::udm::Ambr;
use whimbrel_control::{AssociationId, FlowSummary, SessionSummary, UeSummary, UpfId, UpfSet};
use whimbrel_ids::{Instant, Seid, Supi, Tai};
use whimbrel_resilience::link::UeQuery;
use whimbrel_resilience::{CodeVersion, VersionFigures};

use super::control_thread::Cta;
use super::n2::N2Association;
use crate::clock;
use crate::observation::{
    ClusterView, FlowView, GnbView, LogView, Metric, MetricSample, OverloadView, RatesView, SessionView,
    TimerView, TunnelView, UePage, UeView, UesRequest, UpfView, VersionView, WarningAtGnb, WarningView,
};

/// How many of everything there are.
pub(super) struct Census {
    pub(super) gnbs: u64,
    pub(super) ues: u64,
    pub(super) registered: u64,
    pub(super) connected: u64,
}

/// Counts UEs, sessions and gNBs.
pub(super) fn census(cta: &Cta) -> Census {
    Census {
        gnbs: cta.ran_nodes().iter().filter(|(_, n)| n.gnb.is_some()).count() as u64,
        ues: cta.occupancy().0 as u64,
        registered: cta.registered() as u64,
        connected: cta.connected() as u64,
    }
}

/// Which UEs are to be asked for, so that a page can be made of them: one more than it has room for.
pub(super) fn page_of(request: &UesRequest) -> UeQuery {
    UeQuery::Page(request.after, u32::try_from(request.limit).unwrap_or(u32::MAX).saturating_add(1))
}

/// A page of UEs in the order of their SUPI. `now`: the UEs' time.
pub(super) fn ues(cta: &Cta, now: Instant, request: &UesRequest, ues: Vec<UeSummary>) -> UePage {
    let mut page: Vec<(Supi, UeSummary)> = ues.into_iter().filter_map(|p| Some((p.supi?, p))).collect();
    page.sort_by_key(|(supi, p)| (*supi, !p.registered));
    page.dedup_by_key(|(supi, _)| *supi);
    let more = page.len() > request.limit;
    page.truncate(request.limit);
    let next = page.last().filter(|_| more).map(|(supi, _)| supi.to_string());
    UePage { ues: page.iter().map(|(_, p)| view(cta, now, p)).collect(), next }
}

/// One UE, of the contexts that a subscriber has: the registered one.
/// `octets`: what the UPF has counted for one of its sessions, uplink and downlink.
pub(super) fn ue(
    cta: &Cta,
    now: Instant,
    ues: &[UeSummary],
    octets: impl Fn(UpfId, Seid) -> Option<(u64, u64)>,
) -> Option<UeView> {
    let ue = ues.iter().find(|p| p.registered).or(ues.first())?;
    let mut shown = view(cta, now, ue);
    for (session, view) in ue.sessions.iter().zip(&mut shown.sessions) {
        let (upf, seid) = session.upf;
        if let Some((ul, dl)) = seid.and_then(|seid| octets(upf, seid)) {
            (view.ul_octets, view.dl_octets) = (ul, dl);
        }
    }
    Some(shown)
}

fn view(cta: &Cta, now: Instant, ue: &UeSummary) -> UeView {
    let connection = ue.connection.as_ref();
    let gnb = connection.and_then(|c| cta.ran_nodes().get(c.association)?.gnb);
    let id = ue.supi.and_then(|supi| cta.find(supi));
    let cpf = id.and_then(|id| cta.served_by(id));
    UeView {
        cpf: cpf.map(|cpf| cpf.0),
        cpf_code: cpf.and_then(|cpf| cta.code_of(cpf)).map(|code| code.to_string()),
        canary: id.is_some_and(|id| cta.is_of_canary(id)),
        supi: ue.supi.map(|s| s.to_string()).unwrap_or_default(),
        state: if ue.registered { "registered" } else { "deregistered" }.into(),
        mode: if connection.is_some() { "connected" } else { "idle" }.into(),
        cm_state: if connection.is_some() { "CM-CONNECTED" } else { "CM-IDLE" }.into(),
        pei: ue.pei.map(|p| p.to_string()),
        tmsi: ue.tmsi.map(|t| format!("{t:?}")),
        amf_ue_ngap_id: connection.map(|c| c.amf_ue_ngap_id.value()),
        ran_ue_ngap_id: connection.map(|c| c.ran_ue_ngap_id.0.into()),
        gnb: gnb.map(|g| format!("gnb-{g}")),
        tai: ue.tai.map(|t| t.to_string()),
        cell: ue.seen.as_ref().map(|s| s.cell.to_string()),
        seen: ue.seen.as_ref().map(|s| clock::rfc3339(s.at)),
        seen_s: ue.seen.as_ref().map(|s| now.since(s.at).as_secs()),
        rrc_inactive: connection.is_some_and(|c| c.rrc_inactive),
        allowed_slices: ue.allowed_nssai.iter().map(ToString::to_string).collect(),
        algorithms: ue.algorithms.map(|(integrity, ciphering)| format!("NIA{integrity} NEA{ciphering}")),
        subscribed_ue_ambr: ue.ue_ambr.map(|(subscribed, _)| rates(subscribed)),
        ue_ambr: ue.ue_ambr.map(|(_, in_force)| rates(in_force)),
        timers: ue
            .timers
            .iter()
            .map(|t| TimerView {
                name: t.name.clone(),
                session: t.session.map(|psi| psi.value()),
                left_s: t.until.since(now).as_millis().div_ceil(1000) as u64,
            })
            .collect(),
        sessions: ue.sessions.iter().map(|s| session(cta.config(), s)).collect(),
    }
}

fn rates(ambr: Ambr) -> RatesView {
    RatesView { ul_kbps: ambr.ul_kbps, dl_kbps: ambr.dl_kbps }
}

fn tunnel(tunnel: Tunnel) -> TunnelView {
    TunnelView { teid: format!("{:08x}", tunnel.teid.0), address: tunnel.address.to_string() }
}

fn flow(f: &FlowSummary) -> FlowView {
    FlowView {
        qfi: f.qfi.value(),
        name: f.name.clone(),
        five_qi: f.five_qi.0,
        arp_priority: f.arp.priority,
        arp_may_preempt: f.arp.may_preempt,
        arp_preemptable: f.arp.preemptable,
        gfbr: f.gbr.map(|g| rates(g.guaranteed)),
        mfbr: f.gbr.map(|g| rates(g.maximum)),
        ul_open: f.gate.0,
        dl_open: f.gate.1,
        fulfilled: f.fulfilled,
    }
}

/// A UPF as the configuration names it, and where it takes PFCP.
fn upf(config: &Config, upf: UpfId) -> String {
    match config.smf.upfs.get(usize::from(upf.0)) {
        Some(u) => match u.address {
            Some(address) => format!("{} ({address})", u.name),
            None => u.name.clone(),
        },
        None => String::new(),
    }
}

fn session(config: &Config, s: &SessionSummary) -> SessionView {
    SessionView {
        id: s.psi.value(),
        dnn: s.dnn.to_string(),
        s_nssai: s.s_nssai.to_string(),
        ipv4: s.ipv4.map(|a| a.to_string()),
        ipv6: s.ipv6.map(|p| format!("{p}/64")),
        active: s.active,
        ssc_mode: s.ssc_mode,
        upf: upf(config, s.upf.0),
        n3_upf: s.n3.map(tunnel),
        n3_gnb: s.an.map(tunnel),
        ambr: rates(s.ambr),
        flows: s.flows.iter().map(flow).collect(),
        changing: s.changing,
        ul_octets: s.usage.0,
        dl_octets: s.usage.1,
        secondary_rat_ul_octets: s.secondary_usage.0,
        secondary_rat_dl_octets: s.secondary_usage.1,
    }
}

/// What replication had to do, for the metrics.
pub(super) fn replication(cta: &Cta) -> [MetricSample; 18] {
    let (c, (octets, ues)) = (cta.replication_counters(), cta.logged());
    let one = |metric, value| MetricSample { metric, label: None, value };
    let moved =
        |form: &str, value| MetricSample { metric: Metric::UesMoved, label: Some(form.into()), value };
    [
        moved("fast", c.moved_fast),
        moved("default", c.moved - c.moved_fast),
        one(Metric::UeMovesAbandoned, c.moves_given_up),
        one(Metric::CpfLost, c.cpfs_lost),
        one(Metric::UesTakenOver, c.taken_over),
        one(Metric::InputsReplayed, c.replayed),
        one(Metric::InputsSandboxed, c.tried),
        one(Metric::UesDiscarded, c.poisoned),
        one(Metric::UesWithoutBackup, cta.without_backup() as u64),
        one(Metric::UesLost, c.lost),
        one(Metric::CheckpointsUnusable, c.unreadable),
        one(Metric::ReplicasLagging, c.lagging),
        one(Metric::AnswersFenced, c.fenced),
        one(Metric::CheckpointAcksRefused, c.checkpoint_acks_refused),
        one(Metric::ReplaysDiverged, c.diverged),
        one(Metric::NasCountReuse, c.nas_count_reuse),
        one(Metric::LogBytes, octets as u64),
        one(Metric::LogUes, ues as u64),
    ]
}

/// The UPFs and the log of a cluster.
pub(super) fn cluster(cta: &Cta) -> ClusterView {
    let (counts, (octets, ues), states) = (cta.replication_counters(), cta.logged(), cta.upf_states());
    let upf = |(id, upf): (u8, &whimbrel_control::config::Upf)| {
        let state = states.get(UpfId(id));
        UpfView {
            name: upf.name.clone(),
            address: upf.address.map(|a| a.to_string()),
            usable: state.usable,
            load: state.load,
            ues: cta.ues_at_upf(UpfId(id)),
            drained: cta.upf_drains().any(|drain| drain.upf == UpfId(id)),
        }
    };
    ClusterView {
        versions: versions(cta),
        upfs: (0..).zip(&cta.config().smf.upfs).map(upf).collect(),
        log: LogView {
            ues: ues as u64,
            octets: octets as u64,
            replayed: counts.replayed,
            taken_over: counts.taken_over,
            lost: counts.lost,
        },
        ..ClusterView::default()
    }
}

/// The UEs of each UPF, and whether it is drained.
pub(super) fn upf_samples(cta: &Cta) -> Vec<MetricSample> {
    let drained: UpfSet = cta.upf_drains().map(|drain| drain.upf).collect();
    let upfs = (0u8..).map(UpfId).zip(&cta.config().smf.upfs);
    let samples = upfs.flat_map(|(id, upf)| {
        let one = |metric, value| MetricSample { metric, label: Some(upf.name.clone()), value };
        [
            one(Metric::SmfUpfUes, u64::from(cta.ues_at_upf(id))),
            one(Metric::SmfUpfDrained, u64::from(drained.contains(id))),
        ]
    });
    samples.collect()
}

/// What the CPFs of each code version have done since the canary began.
fn versions(cta: &Cta) -> Vec<VersionView> {
    let canary = cta.canary_code();
    let micros = |took: std::time::Duration| u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let view = |(code, of): (CodeVersion, VersionFigures)| VersionView {
        code: code.to_string(),
        canary: canary == Some(code),
        ues: of.ues,
        procedures: of.completed + of.failed,
        failed: of.failed,
        cpfs_lost: of.cpfs_lost,
        answer_p50_us: of.answers.permille(500).map(micros),
        answer_p99_us: of.answers.permille(990).map(micros),
    };
    cta.version_figures().into_iter().map(view).collect()
}

/// The same for the metrics.
pub(super) fn version_samples(cta: &Cta) -> Vec<MetricSample> {
    let of = |v: VersionView| {
        let side = if v.canary { "canary" } else { "others" };
        let one = move |metric, value| MetricSample { metric, label: Some(side.into()), value };
        [
            one(Metric::CanaryUes, v.ues),
            one(Metric::CanaryProcedures, v.procedures),
            one(Metric::CanaryFailures, v.failed),
            one(Metric::CanaryCpfsLost, v.cpfs_lost),
            one(Metric::CanaryAnswerDuration, v.answer_p99_us.unwrap_or(0)),
        ]
    };
    versions(cta).into_iter().flat_map(of).collect()
}

/// The gNBs that are up.
pub(super) fn gnbs(cta: &Cta, link: impl Fn(AssociationId) -> Option<N2Association>) -> Vec<GnbView> {
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
            connected_ues: cta.connected_over(association) as u64,
            since: link.map(|l| clock::rfc3339(l.since)).unwrap_or_default(),
            latitude: None,
            longitude: None,
        })
    });
    nodes.collect()
}

/// Whether OVERLOAD START is in force.
pub(super) fn overload(cta: &Cta) -> OverloadView {
    let order = match cta.ran_nodes().overload_order() {
        OverloadOrder::ByRule => "rule",
        OverloadOrder::Start => "start",
        OverloadOrder::Stop => "stop",
    };
    OverloadView { overloaded: cta.ran_nodes().is_overloaded(), order: order.into() }
}

/// The warning messages that are remembered, oldest first.
pub(super) fn warnings(cta: &Cta) -> Vec<WarningView> {
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
            .map(|(gnb, outcome)| WarningAtGnb { gnb: gnb.to_string(), outcome: outcome.to_string() })
            .collect(),
    });
    all.collect()
}
