//! The handlers of the routes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_control::Locate;
use whimbrel_control::policy::{FlowGate, FlowName};
use whimbrel_control::smf::Modification;
use whimbrel_control::udm::Ambr;
use whimbrel_ids::{PduSessionId, Supi, Tac, Tai};
use whimbrel_node::clock;

use super::HandlerContext;
use super::problem::ProblemDetails;
use super::routes::{Reply, RoutedRequest};
use super::{operations, why};
use whimbrel_node::observation::{
    Component, Condition, ConsoleCommand, Metric, ProcedureName, UePage, UeView, UesRequest,
};

/// Items of one page.
const PAGE_MAX: usize = 1000;

pub(super) type HandlerResult = Result<Reply, ProblemDetails>;

/// The state of the core.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CoreStatus {
    pub version: String,
    pub amf: String,
    pub plmn: String,
    pub started: String,
    pub now: String,
    pub uptime_s: u64,
    pub condition: Condition,
    pub components: Vec<Component>,
    pub gnbs: u64,
    pub ues: u64,
    pub ues_registered: u64,
    pub ues_connected: u64,
    pub pdu_sessions: u64,
    pub procedures: Vec<ProcedureStatus>,
    pub throughput: Throughput,
    /// Number of the newest event.
    pub last_event: u64,
}

/// One procedure's counts, and its latencies over the last seconds (since the start where none ran lately).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcedureStatus {
    pub name: String,
    pub completed: u64,
    pub refused: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub core_p50_us: u64,
    pub core_p99_us: u64,
    pub core_p999_us: u64,
}

/// Traffic since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    pub ul_packets: u64,
    pub ul_octets: u64,
    pub dl_packets: u64,
    pub dl_octets: u64,
    pub n2_received: u64,
    pub n2_sent: u64,
}

/// The state of a CPF.
#[derive(Serialize)]
struct CpfStatus {
    version: &'static str,
    started: String,
    now: String,
    uptime_s: u64,
    condition: Condition,
    components: Vec<Component>,
}

pub(super) async fn status(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult {
    let (console, now) = (&shared.console, clock::now());
    if !shared.is_core {
        return Reply::json(&CpfStatus {
            version: env!("CARGO_PKG_VERSION"),
            started: clock::rfc3339(console.started),
            now: clock::rfc3339(now),
            uptime_s: now.since(console.started).as_secs(),
            condition: console.components(|c| c.overall()),
            components: console.components(|c| c.all().cloned().collect()),
        });
    }
    let m = &console.metrics;
    let procedures = ProcedureName::ALL.iter().map(|&p| {
        let (completed, refused) = m.outcomes(p);
        let recent = m.recent(now, p);
        let shown = if recent.count > 0 { recent } else { m.since_start(p) };
        let (p50_us, p99_us, p999_us) = (shown.p50_us, shown.p99_us, shown.p999_us);
        let work = m.work(p);
        ProcedureStatus {
            name: p.word().into(),
            completed,
            refused,
            p50_us,
            p99_us,
            p999_us,
            core_p50_us: work.p50_us,
            core_p99_us: work.p99_us,
            core_p999_us: work.p999_us,
        }
    });
    let status = CoreStatus {
        version: env!("CARGO_PKG_VERSION").into(),
        amf: shared.config.amf.name.clone(),
        plmn: shared.config.amf.plmn.to_string(),
        started: clock::rfc3339(console.started),
        now: clock::rfc3339(now),
        uptime_s: now.since(console.started).as_secs(),
        condition: console.components(|c| c.overall()),
        components: console.components(|c| c.all().cloned().collect()),
        gnbs: m.value(Metric::Gnbs),
        ues: m.value(Metric::Ues),
        ues_registered: m.value(Metric::UesRegistered),
        ues_connected: m.value(Metric::UesConnected),
        pdu_sessions: m.value(Metric::PduSessions),
        procedures: procedures.collect(),
        throughput: Throughput {
            ul_packets: m.sample(Metric::N3UlPackets),
            ul_octets: m.sample(Metric::N3UlBytes),
            dl_packets: m.sample(Metric::N3DlPackets),
            dl_octets: m.sample(Metric::N3DlBytes),
            n2_received: m.value(Metric::N2Received),
            n2_sent: m.value(Metric::N2Sent),
        },
        last_event: console.events(|e| e.last()),
    };
    Reply::json(&status)
}

pub(super) async fn gnbs(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult {
    let mut gnbs = shared.console.commands.ask(ConsoleCommand::ListGnbs).await?;
    for gnb in &mut gnbs {
        let place = shared.config.gnb_positions.iter().find(|p| p.gnb.0 == gnb.id);
        (gnb.latitude, gnb.longitude) = (place.map(|p| p.latitude.0), place.map(|p| p.longitude.0));
    }
    Reply::json(&gnbs)
}

/// The processes that serve UEs.
pub(super) async fn cluster(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult {
    Reply::json(&shared.console.commands.ask(ConsoleCommand::Cluster).await?)
}

pub(super) async fn ues(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    Reply::json(&listed(&shared, &request).await?)
}

async fn listed(shared: &Arc<HandlerContext>, request: &RoutedRequest) -> Result<UePage, ProblemDetails> {
    let after = request.query.get("after").map(|text| supi(text)).transpose()?;
    let limit = page(request)?;
    if let Some(text) = request.query.get("find").map(|t| t.trim()).filter(|t| !t.is_empty()) {
        let (ues, next) = why::found(shared, text, after, limit).await?;
        return Ok(UePage { ues, next });
    }
    let asked = UesRequest { after, limit };
    Ok(shared.console.commands.ask(|reply| ConsoleCommand::ListUes(asked, reply)).await?)
}

/// A UE in a list.
#[derive(Serialize)]
struct UeSummaryView {
    supi: String,
    state: String,
    cm_state: String,
    gnb: Option<String>,
    tai: Option<String>,
    addresses: Vec<String>,
    seen: Option<String>,
}

/// Some UEs in a list.
#[derive(Serialize)]
struct UeSummaryPage {
    ues: Vec<UeSummaryView>,
    /// The `after` of the next request; `None` at the end.
    next: Option<String>,
}

/// The same UEs as [`ues`], with what a list of many shows of each.
pub(super) async fn ue_summaries(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let UePage { ues, next } = listed(&shared, &request).await?;
    let summary = |ue: UeView| UeSummaryView {
        addresses: ue.sessions.into_iter().filter_map(|s| s.ipv4.or(s.ipv6)).collect(),
        supi: ue.supi,
        state: ue.state,
        cm_state: ue.cm_state,
        gnb: ue.gnb,
        tai: ue.tai,
        seen: ue.seen,
    };
    Reply::json(&UeSummaryPage { ues: ues.into_iter().map(summary).collect(), next })
}

pub(super) async fn ue(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let supi = supi(request.param(0))?;
    match shared.console.commands.ask(|reply| ConsoleCommand::ShowUe(supi, reply)).await? {
        Some(ue) => Reply::json(&ue),
        None => Err(ProblemDetails::not_found(format!(
            "there is no UE with SUPI {supi}; `whimbrel why {supi}` may explain why"
        ))),
    }
}

pub(super) async fn deregister(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let (supi, patience) = (supi(request.param(0))?, operations::patience(&request)?);
    let operation = shared.console.commands.ask(|reply| ConsoleCommand::Deregister(supi, reply)).await?;
    operations::answer(&shared, operation.ok_or_else(|| not_registered(supi))?, patience).await
}

/// Has the core emit the event `reachable` once the UE can be reached.
pub(super) async fn notify_reachable(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let (supi, patience) = (supi(request.param(0))?, operations::patience(&request)?);
    let operation = shared.console.commands.ask(|reply| ConsoleCommand::NotifyReachable(supi, reply)).await?;
    operations::answer(&shared, operation.ok_or_else(|| not_registered(supi))?, patience).await
}

fn not_registered(supi: Supi) -> ProblemDetails {
    ProblemDetails::not_found(format!("no UE with SUPI {supi} is registered"))
}

/// Locates a UE, or starts or stops its location reports, by the query. The UE and the events have the result.
pub(super) async fn locate(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let supi = supi(request.param(0))?;
    let wish = match request.query.get("report").map_or("now", String::as_str) {
        "now" => Locate::Now,
        "cells" => Locate::CellChanges,
        "stop" => Locate::Stop,
        "area" => {
            let tac = u32::try_from(request.number("tac", u64::MAX)?).ok().and_then(Tac::new);
            let tac = tac.ok_or_else(|| ProblemDetails::bad_request("`tac` is 0 to 16777215"))?;
            Locate::Presence(Tai { plmn: shared.config.amf.plmn, tac })
        }
        _ => return Err(ProblemDetails::bad_request("`report` is now, cells, area or stop")),
    };
    match shared.console.commands.ask(|reply| ConsoleCommand::Locate(supi, wish, reply)).await? {
        true => Ok(Reply::empty()),
        false => Err(ProblemDetails::not_found(format!("no UE with SUPI {supi} is registered"))),
    }
}

/// Changes a session, by the query.
pub(super) async fn modify_session(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let supi = supi(request.param(0))?;
    let psi = request.param(1).parse().ok().and_then(PduSessionId::new);
    let psi = psi.ok_or_else(|| ProblemDetails::bad_request("a PDU session identity is 1 to 15"))?;
    let (modification, patience) = (modification(&request)?, operations::patience(&request)?);
    let asked = |reply| ConsoleCommand::ModifySession(supi, psi, modification, reply);
    let operation = shared.console.commands.ask(asked).await?;
    let none =
        || ProblemDetails::not_found(format!("no UE with SUPI {supi} has a PDU session {}", psi.value()));
    operations::answer(&shared, operation.ok_or_else(none)?, patience).await
}

fn modification(request: &RoutedRequest) -> Result<Modification, ProblemDetails> {
    let given = |name: &str| request.query.get(name).map(String::as_str);
    let flow = |text: &str| text.parse::<FlowName>().map_err(ProblemDetails::bad_request);
    let rate = |text: &str| {
        let rate = text.parse::<whimbrel_store::BitRate>();
        rate.map(|r| r.kbps()).map_err(|e| ProblemDetails::bad_request(e.to_string()))
    };
    let whole = [
        ("reanchor", Modification::Reanchor),
        ("deactivate", Modification::Deactivate),
        ("release", Modification::Release),
    ];
    if let Some((_, modification)) = whole.iter().find(|(name, _)| request.query.contains_key(*name)) {
        return Ok(*modification);
    }
    match (given("add_flow"), given("remove_flow"), given("uplink"), given("downlink"), given("gate")) {
        (Some(name), None, None, None, None) => Ok(Modification::AddFlow(flow(name)?)),
        (None, Some(name), None, None, None) => Ok(Modification::RemoveFlow(flow(name)?)),
        (None, None, Some(up), Some(down), None) => {
            Ok(Modification::Ambr(Ambr { ul_kbps: rate(up)?, dl_kbps: rate(down)? }))
        }
        (None, None, None, None, Some(gate)) => {
            let (name, state) = gate.split_once(':').unwrap_or((gate, "open"));
            let open = |direction| state == "open" || state == direction;
            if !matches!(state, "open" | "closed" | "uplink" | "downlink") {
                return Err(ProblemDetails::bad_request("a gate is open, closed, uplink or downlink"));
            }
            let gate = FlowGate { uplink: open("uplink"), downlink: open("downlink") };
            Ok(Modification::Gate(flow(name)?, gate))
        }
        _ => Err(ProblemDetails::bad_request(
            "name one change: `add_flow`, `remove_flow`, `uplink` with `downlink`, `gate`, `reanchor`, `deactivate` or \
             `release`",
        )),
    }
}

/// The newest refusals of all.
pub(super) async fn refusals(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let limit = page(&request)?;
    Reply::json(&shared.console.histories(|h| h.newest(limit)))
}

pub(super) async fn metrics(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult {
    if !shared.config.api.metrics {
        return Err(ProblemDetails::not_found("`api.metrics` is false"));
    }
    let uptime = clock::now().since(shared.console.started);
    let metrics = &shared.console.metrics;
    let text = if shared.is_core { metrics.prometheus(uptime) } else { metrics.prometheus_of_parts(uptime) };
    Ok(Reply::text("text/plain; version=0.0.4; charset=utf-8", text))
}

pub(super) async fn openapi(_: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult {
    Ok(Reply::text("application/json", include_str!("openapi.json")))
}

pub(super) fn page(request: &RoutedRequest) -> Result<usize, ProblemDetails> {
    let limit = usize::try_from(request.number("limit", 100)?).unwrap_or(usize::MAX);
    if (1..=PAGE_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(ProblemDetails::bad_request(format!("`limit` must be 1 to {PAGE_MAX}")))
}

pub(super) fn supi(text: &str) -> Result<Supi, ProblemDetails> {
    text.parse().map_err(|e: whimbrel_ids::ParseIdError| ProblemDetails::bad_request(e.to_string()))
}
