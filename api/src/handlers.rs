//! The handlers of the routes.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_control::Locate;
use whimbrel_control::policy::{FlowGate, FlowName};
use whimbrel_control::smf::Modification;
use whimbrel_control::udm::Ambr;
use whimbrel_ids::{PduSessionId, Supi, Tai};
use whimbrel_node::clock;
use whimbrel_store::{BitRate, TacNumber, Text, TextForm, Whole};

use super::HandlerContext;
use super::input::{LimitQuery, PageLimit, PathParts, Query, SupiPart, page};
use super::openapi::{self, OperationDescription};
use super::operations::{self, WaitQuery};
use super::problem::ProblemDetails;
use super::routes::{
    AnswerKind, Empty, HandlerResult, Json, OperationAnswer, Reply, RoutedRequest, TypedReply,
};
use super::why;
use whimbrel_node::observation::{
    ClusterView, Component, Condition, ConsoleCommand, GnbView, Metric, ProcedureName, RefusalRecord, UePage,
    UeView, UesRequest,
};

/// The state of the core.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Status")]
pub struct CoreStatus {
    /// Version of the program.
    pub version: String,
    /// Name of the AMF.
    pub amf: String,
    /// PLMN that is served.
    pub plmn: String,
    /// Time of the start, RFC 3339.
    pub started: String,
    /// Time of the answer, RFC 3339.
    pub now: String,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// The worst condition of all components.
    pub condition: Condition,
    /// The parts of the core.
    pub components: Vec<Component>,
    /// gNBs that are up.
    pub gnbs: u64,
    /// UEs with a context.
    pub ues: u64,
    /// UEs in the state 5GMM-REGISTERED.
    pub ues_registered: u64,
    /// UEs in 5GMM-CONNECTED mode.
    pub ues_connected: u64,
    /// PDU sessions of all UEs.
    pub pdu_sessions: u64,
    /// Counts and latencies of each procedure.
    pub procedures: Vec<ProcedureStatus>,
    /// Packets and octets since the start.
    pub throughput: Throughput,
    /// Number of the newest event.
    pub last_event: u64,
}

/// One procedure's counts, and its latencies over the last seconds (since the start where none ran lately).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Procedure")]
pub struct ProcedureStatus {
    /// Name of the procedure.
    pub name: String,
    /// Procedures that were completed.
    pub completed: u64,
    /// Procedures that were refused or failed.
    pub refused: u64,
    /// Median in microseconds.
    pub p50_us: u64,
    /// 99th percentile in microseconds.
    pub p99_us: u64,
    /// 99.9th percentile in microseconds.
    pub p999_us: u64,
    /// Median of the core's own work on it, without waiting for peers, since the start.
    pub core_p50_us: u64,
    /// 99th percentile of that work.
    pub core_p99_us: u64,
    /// 99.9th percentile of that work.
    pub core_p999_us: u64,
}

/// Traffic since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Throughput {
    /// Packets from UEs.
    pub ul_packets: u64,
    /// Octets from UEs.
    pub ul_octets: u64,
    /// Packets to UEs.
    pub dl_packets: u64,
    /// Octets to UEs.
    pub dl_octets: u64,
    /// NGAP messages received.
    pub n2_received: u64,
    /// NGAP messages sent.
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

pub(super) async fn status(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult<Json<CoreStatus>> {
    let (console, now) = (&shared.console, clock::now());
    if !shared.is_core {
        return Reply::json(&CpfStatus {
            version: env!("CARGO_PKG_VERSION"),
            started: clock::rfc3339(console.started),
            now: clock::rfc3339(now),
            uptime_s: now.since(console.started).as_secs(),
            condition: console.components(|c| c.overall()),
            components: console.components(|c| c.all().cloned().collect()),
        })
        .map(TypedReply::from);
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
    TypedReply::json(&status)
}

pub(super) async fn gnbs(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult<Json<Vec<GnbView>>> {
    let mut gnbs = shared.console.commands.ask(ConsoleCommand::ListGnbs).await?;
    for gnb in &mut gnbs {
        let place = shared.config.gnb_positions.iter().find(|p| p.gnb.0 == gnb.id);
        (gnb.latitude, gnb.longitude) = (place.map(|p| p.latitude.0), place.map(|p| p.longitude.0));
    }
    TypedReply::json(&gnbs)
}

/// The processes that serve UEs.
pub(super) async fn cluster(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
) -> HandlerResult<Json<ClusterView>> {
    TypedReply::json(&shared.console.commands.ask(ConsoleCommand::Cluster).await?)
}

/// A list of UEs.
#[derive(Deserialize, JsonSchema)]
pub(super) struct UesQuery {
    /// Only SUPIs that sort after this one.
    after: Option<Text<Supi>>,
    /// Most items to return; 100 if absent.
    limit: Option<PageLimit>,
    /// SUPI, IMEI, 5G-GUTI, address or gNB, or a part of these.
    find: Option<String>,
}

pub(super) async fn ues(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    Query(query): Query<UesQuery>,
) -> HandlerResult<Json<UePage>> {
    TypedReply::json(&listed(&shared, &query).await?)
}

async fn listed(shared: &Arc<HandlerContext>, query: &UesQuery) -> Result<UePage, ProblemDetails> {
    let (after, limit) = (query.after.map(|after| after.0), page(query.limit));
    if let Some(text) = query.find.as_deref().map(str::trim).filter(|t| !t.is_empty()) {
        let (ues, next) = why::found(shared, text, after, limit).await?;
        return Ok(UePage { ues, next });
    }
    let asked = UesRequest { after, limit };
    Ok(shared.console.commands.ask(|reply| ConsoleCommand::ListUes(asked, reply)).await?)
}

/// A UE in a list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "UeSummary")]
struct UeSummaryView {
    /// SUPI of the UE.
    supi: String,
    /// State of 5GMM.
    state: String,
    /// CM-CONNECTED or CM-IDLE.
    cm_state: String,
    /// Its gNB, or the last one.
    gnb: Option<String>,
    /// Its TAI, or the last known one.
    tai: Option<String>,
    /// Addresses of its sessions.
    addresses: Vec<String>,
    /// When it was there, RFC 3339.
    seen: Option<String>,
}

/// Some UEs in a list.
#[derive(Serialize, JsonSchema)]
pub(super) struct UeSummaryPage {
    /// The UEs of this page.
    ues: Vec<UeSummaryView>,
    /// The `after` of the next request; `None` at the end.
    next: Option<String>,
}

/// The same UEs as [`ues`], with what a list of many shows of each.
pub(super) async fn ue_summaries(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    Query(query): Query<UesQuery>,
) -> HandlerResult<Json<UeSummaryPage>> {
    let UePage { ues, next } = listed(&shared, &query).await?;
    let summary = |ue: UeView| UeSummaryView {
        addresses: ue.sessions.into_iter().filter_map(|s| s.ipv4.or(s.ipv6)).collect(),
        supi: ue.supi,
        state: ue.state,
        cm_state: ue.cm_state,
        gnb: ue.gnb,
        tai: ue.tai,
        seen: ue.seen,
    };
    TypedReply::json(&UeSummaryPage { ues: ues.into_iter().map(summary).collect(), next })
}

pub(super) async fn ue(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    path: PathParts<SupiPart>,
) -> HandlerResult<Json<UeView>> {
    let supi = path.supi();
    match shared.console.commands.ask(|reply| ConsoleCommand::ShowUe(supi, reply)).await? {
        Some(ue) => TypedReply::json(&ue),
        None => Err(ProblemDetails::not_found(format!(
            "there is no UE with SUPI {supi}; `whimbrel why {supi}` may explain why"
        ))),
    }
}

pub(super) async fn deregister(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    path: PathParts<SupiPart>,
    Query(wait): Query<WaitQuery>,
) -> HandlerResult<OperationAnswer> {
    let (supi, patience) = (path.supi(), wait.patience());
    let operation = shared.console.commands.ask(|reply| ConsoleCommand::Deregister(supi, reply)).await?;
    operations::answer(&shared, operation.ok_or_else(|| not_registered(supi))?, patience).await
}

/// Has the core emit the event `reachable` once the UE can be reached.
pub(super) async fn notify_reachable(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    path: PathParts<SupiPart>,
    Query(wait): Query<WaitQuery>,
) -> HandlerResult<OperationAnswer> {
    let (supi, patience) = (path.supi(), wait.patience());
    let operation = shared.console.commands.ask(|reply| ConsoleCommand::NotifyReachable(supi, reply)).await?;
    operations::answer(&shared, operation.ok_or_else(|| not_registered(supi))?, patience).await
}

fn not_registered(supi: Supi) -> ProblemDetails {
    ProblemDetails::not_found(format!("no UE with SUPI {supi} is registered"))
}

/// The reports of a UE's location that are asked for.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum LocationReport {
    /// One report, at once.
    #[default]
    Now,
    /// One with each change of the cell.
    Cells,
    /// Presence in the tracking area `tac`.
    Area,
    /// No further reports.
    Stop,
}

/// The location that is asked for.
#[derive(Deserialize, JsonSchema)]
pub(super) struct LocateQuery {
    /// Kind of the reports; `now` if absent.
    report: Option<LocationReport>,
    /// Of `report=area`: the tracking area whose presence is reported.
    tac: Option<TacNumber>,
}

/// Locates a UE, or starts or stops its location reports, by the query. The UE and the events have the result.
pub(super) async fn locate(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    path: PathParts<SupiPart>,
    Query(query): Query<LocateQuery>,
) -> HandlerResult<Empty> {
    let supi = path.supi();
    let wish = match query.report.unwrap_or_default() {
        LocationReport::Now => Locate::Now,
        LocationReport::Cells => Locate::CellChanges,
        LocationReport::Stop => Locate::Stop,
        LocationReport::Area => {
            let tac = query.tac.and_then(TacNumber::tac);
            let tac = tac.ok_or_else(|| ProblemDetails::bad_request("`report=area` needs `tac`"))?;
            Locate::Presence(Tai { plmn: shared.config.amf.plmn, tac })
        }
    };
    match shared.console.commands.ask(|reply| ConsoleCommand::Locate(supi, wish, reply)).await? {
        true => Ok(TypedReply::empty()),
        false => Err(ProblemDetails::not_found(format!("no UE with SUPI {supi} is registered"))),
    }
}

/// A PDU session of a UE.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SessionPath {
    /// SUPI, imsi-999700000000001 or its digits.
    supi: Text<Supi>,
    /// PDU session identity.
    id: Whole<1, 15>,
}

/// The name of a flow.
enum FlowNameText {}

impl JsonSchema for FlowNameText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FlowNameText".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-z-]{1,16}$" })
    }
}

/// A gate that opens or closes: the flow, a colon, and the directions that are open.
struct GateChange {
    flow: FlowName,
    gate: FlowGate,
}

impl std::str::FromStr for GateChange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, state) = text.split_once(':').unwrap_or((text, "open"));
        let open = |direction| state == "open" || state == direction;
        if !matches!(state, "open" | "closed" | "uplink" | "downlink") {
            return Err("a gate is open, closed, uplink or downlink");
        }
        Ok(Self {
            flow: name.parse()?,
            gate: FlowGate { uplink: open("uplink"), downlink: open("downlink") },
        })
    }
}

impl TextForm for GateChange {
    const PATTERN: &'static str = "^[0-9a-z-]{1,16}(:(open|closed|uplink|downlink))?$";
}

/// A change of a session: one of these alone.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ModifyQuery {
    /// Set up the QoS flow of this name.
    #[schemars(with = "Option<FlowNameText>")]
    add_flow: Option<Text<FlowName>>,
    /// Remove the QoS flow of this name.
    #[schemars(with = "Option<FlowNameText>")]
    remove_flow: Option<Text<FlowName>>,
    /// With `downlink`: the session's AMBR, such as 10 Mbps.
    uplink: Option<BitRate>,
    /// With `uplink`: the session's AMBR.
    downlink: Option<BitRate>,
    /// A flow's name, a colon, and open, closed, uplink or downlink.
    gate: Option<Text<GateChange>>,
    /// If present: relocate the PDU session anchor, SSC mode 2 or 3 (TS 23.502 §4.3.5).
    reanchor: Option<String>,
    /// If present: deactivate the session's user plane (TS 23.502 §4.3.7).
    deactivate: Option<String>,
    /// If present: release the session (TS 23.502 §4.3.4.2).
    release: Option<String>,
}

/// Changes a session, by the query.
pub(super) async fn modify_session(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    PathParts(path): PathParts<SessionPath>,
    Query(change): Query<ModifyQuery>,
    Query(wait): Query<WaitQuery>,
) -> HandlerResult<OperationAnswer> {
    let supi = path.supi.0;
    let psi = u8::try_from(path.id.value()).ok().and_then(PduSessionId::new);
    let psi = psi.ok_or_else(|| ProblemDetails::bad_request("a PDU session identity is 1 to 15"))?;
    let (modification, patience) = (modification(change)?, wait.patience());
    let asked = |reply| ConsoleCommand::ModifySession(supi, psi, modification, reply);
    let operation = shared.console.commands.ask(asked).await?;
    let none =
        || ProblemDetails::not_found(format!("no UE with SUPI {supi} has a PDU session {}", psi.value()));
    operations::answer(&shared, operation.ok_or_else(none)?, patience).await
}

fn modification(change: ModifyQuery) -> Result<Modification, ProblemDetails> {
    let whole = [
        (change.reanchor, Modification::Reanchor),
        (change.deactivate, Modification::Deactivate),
        (change.release, Modification::Release),
    ];
    if let Some((_, modification)) = whole.into_iter().find(|(given, _)| given.is_some()) {
        return Ok(modification);
    }
    match (change.add_flow, change.remove_flow, change.uplink, change.downlink, change.gate) {
        (Some(name), None, None, None, None) => Ok(Modification::AddFlow(name.0)),
        (None, Some(name), None, None, None) => Ok(Modification::RemoveFlow(name.0)),
        (None, None, Some(up), Some(down), None) => {
            Ok(Modification::Ambr(Ambr { ul_kbps: up.kbps(), dl_kbps: down.kbps() }))
        }
        (None, None, None, None, Some(Text(GateChange { flow, gate }))) => Ok(Modification::Gate(flow, gate)),
        _ => Err(ProblemDetails::bad_request(
            "name one change: `add_flow`, `remove_flow`, `uplink` with `downlink`, `gate`, `reanchor`, `deactivate` or \
             `release`",
        )),
    }
}

/// The newest refusals of all.
pub(super) async fn refusals(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    Query(query): Query<LimitQuery>,
) -> HandlerResult<Json<Vec<RefusalRecord>>> {
    TypedReply::json(&shared.console.histories(|h| h.newest(page(query.limit))))
}

/// Metrics in the text form of Prometheus.
pub(super) struct MetricsText;

impl AnswerKind for MetricsText {
    fn describe(operation: &mut OperationDescription<'_>) {
        let schema = operation.answer_schema::<String>();
        operation.add_answer("200", "Done", &[("text/plain", schema)]);
    }
}

pub(super) async fn metrics(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult<MetricsText> {
    if !shared.config.api.metrics {
        return Err(ProblemDetails::not_found("`api.metrics` is false"));
    }
    let uptime = clock::now().since(shared.console.started);
    let metrics = &shared.console.metrics;
    let text = if shared.is_core { metrics.prometheus(uptime) } else { metrics.prometheus_of_parts(uptime) };
    Ok(Reply::text("text/plain; version=0.0.4; charset=utf-8", text).into())
}

/// An OpenAPI document.
pub(super) struct OpenApiDocument;

impl AnswerKind for OpenApiDocument {
    fn describe(operation: &mut OperationDescription<'_>) {
        let schema = operation.answer_schema::<serde_json::Map<String, serde_json::Value>>();
        operation.add_answer("200", "Done", &[("application/json", schema)]);
    }
}

pub(super) async fn openapi(_: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult<OpenApiDocument> {
    Ok(Reply::text("application/json", openapi::text()).into())
}
