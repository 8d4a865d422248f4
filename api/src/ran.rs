//! Orders to the radio network: warning messages, overload, resets; and the reload of the configuration.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_control::amf::{OverloadOrder, Warning, WarningArea, WarningError, cbs_pages, nr_cell};
use whimbrel_ids::{GlobalGnbId, NrCellId, PlmnId, Tai};
use whimbrel_node::config;
use whimbrel_node::observation::{
    ConsoleCommand, DisconnectedView, ForesightView, OverloadView, RemovalOrder, RemovalView, UpfDrainOrder,
    UpfDrainView, WarningView,
};
use whimbrel_store::{TacNumber, Text, TextForm};

use super::HandlerContext;
use super::input::{JsonBody, PathParts, Query};
use super::operations::{self, WaitQuery};
use super::problem::ProblemDetails;
use super::routes::{HandlerResult, Json, OperationAnswer, RoutedRequest, TypedReply};

/// A warning message to be sent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewWarning {
    /// Message identifier (TS 23.041 §9.4.1.2.2).
    message_identifier: u16,
    /// Serial number of the message.
    serial_number: u16,
    /// Text to broadcast, at most 15 pages; empty for an ETWS primary notification alone.
    #[serde(default)]
    text: String,
    /// Kind of an ETWS primary notification.
    etws: Option<EtwsType>,
    /// Tracking area codes; none: everywhere.
    #[serde(default)]
    tacs: Vec<TacNumber>,
    /// NR cell identities, nine hexadecimal digits each.
    #[serde(default)]
    cells: Vec<Text<CellDigits>>,
    /// Seconds between broadcasts.
    #[serde(default = "thirty_seconds")]
    repetition_period_s: u32,
    /// Number of broadcasts; 0: until cancelled.
    #[serde(default)]
    broadcasts: u16,
    /// Broadcast it beside the warnings in force, instead of replacing them.
    #[serde(default)]
    concurrent: bool,
}

/// An NR cell identity in hexadecimal digits.
struct CellDigits(NrCellId);

impl std::str::FromStr for CellDigits {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = u64::from_str_radix(text, 16).ok().and_then(NrCellId::new);
        id.map(Self).ok_or("a cell is nine hexadecimal digits")
    }
}

impl TextForm for CellDigits {
    const PATTERN: &'static str = "^[0-9A-Fa-f]{1,9}$";
}

/// ETWS warning types (TS 23.041 §9.3.24).
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum EtwsType {
    Earthquake,
    Tsunami,
    EarthquakeAndTsunami,
    Test,
    Other,
}

/// Repetition period that is short enough for UEs that enter the cell; the standard leaves it to the sender (TS 23.041 §9.3.8).
fn thirty_seconds() -> u32 {
    30
}

impl EtwsType {
    /// Seven bits of type, then whether UEs alert and pop up (TS 23.041 §9.3.24).
    const fn octets(self) -> [u8; 2] {
        let kind: u8 = match self {
            Self::Earthquake => 0,
            Self::Tsunami => 1,
            Self::EarthquakeAndTsunami => 2,
            Self::Test => 3,
            Self::Other => 4,
        };
        [kind << 1 | 1, 0x80]
    }
}

impl NewWarning {
    fn into_warning(self, plmn: PlmnId) -> Result<Warning, ProblemDetails> {
        let (coding, contents) = match self.text.as_str() {
            "" => (None, Vec::new()),
            text => {
                let (coding, pages) = cbs_pages(text).ok_or_else(|| {
                    ProblemDetails::unprocessable("the text is longer than 15 pages (TS 23.041 §9.4.2.2.5)")
                })?;
                (Some(coding), pages)
            }
        };
        let tai = |tac: &TacNumber| tac.tac().map(|tac| Tai { plmn, tac });
        let cell = |text: &Text<CellDigits>| nr_cell(plmn, text.0.0);
        let area = match (self.tacs.is_empty(), self.cells.is_empty()) {
            (true, true) => WarningArea::Everywhere,
            (false, true) => WarningArea::Tais(self.tacs.iter().filter_map(tai).collect()),
            (true, false) => WarningArea::Cells(self.cells.iter().map(cell).collect()),
            (false, false) => return Err(ProblemDetails::unprocessable("name `tacs` or `cells`, not both")),
        };
        Ok(Warning {
            message_identifier: self.message_identifier,
            serial_number: self.serial_number,
            area,
            repetition_period_s: self.repetition_period_s,
            broadcasts: self.broadcasts,
            warning_type: self.etws.map(EtwsType::octets),
            data_coding_scheme: coding.map(|c| c.scheme()),
            contents,
            concurrent: self.concurrent,
        })
    }
}

fn refused(e: WarningError) -> ProblemDetails {
    match e {
        WarningError::Unknown => {
            ProblemDetails::not_found("no such warning is in force; `whimbrel warning list` shows them")
        }
        WarningError::NoGnb => {
            ProblemDetails::conflict("no gNB that is up serves the area; `whimbrel gnb list` shows them")
        }
        WarningError::TooLong => {
            ProblemDetails::unprocessable("too many areas or octets, or too long a period, for one message")
        }
        WarningError::Empty => ProblemDetails::unprocessable("a warning needs a text or a type (`etws`)"),
        WarningError::Limit => {
            ProblemDetails::conflict("64 warnings are in force, which is the limit: cancel one")
        }
    }
}

pub(super) async fn warn(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    Query(wait): Query<WaitQuery>,
    JsonBody(new): JsonBody<NewWarning>,
) -> HandlerResult<OperationAnswer> {
    let warning = Box::new(new.into_warning(shared.config.amf.plmn)?);
    let patience = wait.patience();
    let asked = shared.console.commands.ask(|reply| ConsoleCommand::Warn(warning, reply)).await?;
    operations::answer(&shared, asked.map_err(refused)?, patience).await
}

pub(super) async fn warnings(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
) -> HandlerResult<Json<Vec<WarningView>>> {
    TypedReply::json(&shared.console.commands.ask(ConsoleCommand::ListWarnings).await?)
}

/// A warning message in force.
#[derive(Deserialize, JsonSchema)]
pub(super) struct WarningPath {
    /// Message identifier (TS 23.041 §9.4.1.2.2).
    message_identifier: u16,
    /// Serial number of the message.
    serial_number: u16,
}

pub(super) async fn cancel(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    PathParts(path): PathParts<WarningPath>,
    Query(wait): Query<WaitQuery>,
) -> HandlerResult<OperationAnswer> {
    let (id, serial, patience) = (path.message_identifier, path.serial_number, wait.patience());
    let asked = shared.console.commands.ask(|reply| ConsoleCommand::CancelWarning(id, serial, reply)).await?;
    operations::answer(&shared, asked.map_err(refused)?, patience).await
}

pub(super) async fn overload(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
) -> HandlerResult<Json<OverloadView>> {
    TypedReply::json(&shared.console.commands.ask(|reply| ConsoleCommand::Overload(None, reply)).await?)
}

pub(super) async fn removal(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
) -> HandlerResult<Json<RemovalView>> {
    ordered_removal(&shared, None).await
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct UpfPath {
    /// Name of the UPF in `upfs`.
    upf: String,
}

/// When a drain ends.
#[derive(Deserialize, JsonSchema)]
pub(super) struct DrainQuery {
    /// Seconds until the sessions that cannot be moved are released, at most a week; default: 600.
    within_s: Option<u64>,
}

/// The longest time for which a UPF waits for its last sessions.
const DRAIN_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// The default, in which most sessions end by themselves.
const DRAIN_DEFAULT: Duration = Duration::from_secs(600);

pub(super) async fn upf_drain(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    PathParts(path): PathParts<UpfPath>,
) -> HandlerResult<Json<UpfDrainView>> {
    ordered_upf_drain(&shared, path.upf, None).await
}

pub(super) async fn begin_upf_drain(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    PathParts(path): PathParts<UpfPath>,
    Query(query): Query<DrainQuery>,
) -> HandlerResult<Json<UpfDrainView>> {
    let within = query.within_s.map_or(DRAIN_DEFAULT, Duration::from_secs).min(DRAIN_MAX);
    ordered_upf_drain(&shared, path.upf, Some(UpfDrainOrder::Begin(within))).await
}

pub(super) async fn end_upf_drain(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    PathParts(path): PathParts<UpfPath>,
) -> HandlerResult<Json<UpfDrainView>> {
    ordered_upf_drain(&shared, path.upf, Some(UpfDrainOrder::End)).await
}

async fn ordered_upf_drain(
    shared: &HandlerContext,
    upf: String,
    order: Option<UpfDrainOrder>,
) -> HandlerResult<Json<UpfDrainView>> {
    let name = upf.clone();
    let view = shared.console.commands.ask(|reply| ConsoleCommand::UpfDrain(name, order, reply)).await?;
    let view = view.ok_or_else(|| ProblemDetails::not_found(format!("`upfs` has no UPF `{upf}`")))?;
    TypedReply::json(&view)
}

/// The AMF that takes the UEs over.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SuccessorQuery {
    /// Its name in `peer_amfs`; without it, the first one of the set that is connected.
    successor: Option<String>,
}

pub(super) async fn begin_removal(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    Query(query): Query<SuccessorQuery>,
) -> HandlerResult<Json<RemovalView>> {
    ordered_removal(&shared, Some(RemovalOrder::Begin(query.successor))).await
}

pub(super) async fn end_removal(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
) -> HandlerResult<Json<RemovalView>> {
    ordered_removal(&shared, Some(RemovalOrder::End)).await
}

async fn ordered_removal(
    shared: &HandlerContext,
    order: Option<RemovalOrder>,
) -> HandlerResult<Json<RemovalView>> {
    let view = shared.console.commands.ask(|reply| ConsoleCommand::Removal(order, reply)).await?;
    TypedReply::json(&view.map_err(ProblemDetails::conflict)?)
}

pub(super) async fn foresight(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
) -> HandlerResult<Json<ForesightView>> {
    TypedReply::json(&shared.console.commands.ask(ConsoleCommand::Foresight).await?)
}

/// Orders of the operator about OVERLOAD START.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "OverloadOrder")]
enum OverloadWord {
    /// OVERLOAD START is sent.
    Start,
    /// OVERLOAD STOP is sent.
    Stop,
    /// The configured thresholds decide.
    Rule,
}

/// The order that the path names.
#[derive(Deserialize, JsonSchema)]
pub(super) struct OverloadPath {
    /// Start, stop, or the configured thresholds.
    order: OverloadWord,
}

pub(super) async fn order_overload(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    PathParts(path): PathParts<OverloadPath>,
) -> HandlerResult<Json<OverloadView>> {
    let order = match path.order {
        OverloadWord::Start => OverloadOrder::Start,
        OverloadWord::Stop => OverloadOrder::Stop,
        OverloadWord::Rule => OverloadOrder::ByRule,
    };
    TypedReply::json(
        &shared.console.commands.ask(|reply| ConsoleCommand::Overload(Some(order), reply)).await?,
    )
}

/// The gNB that a request names, which is up.
async fn named(shared: &HandlerContext, text: &str) -> Result<GlobalGnbId, ProblemDetails> {
    let gnbs = shared.console.commands.ask(ConsoleCommand::ListGnbs).await?;
    let bare = text.strip_prefix("gnb-").unwrap_or(text);
    let gnb = gnbs.iter().find(|g| g.id == bare || g.name.as_deref() == Some(bare)).and_then(gnb_id);
    gnb.ok_or_else(|| {
        ProblemDetails::not_found(format!(
            "there is no gNB {text}; `whimbrel gnb list` shows those that are up"
        ))
    })
}

/// A gNB that is up.
#[derive(Deserialize, JsonSchema)]
pub(super) struct GnbPath {
    /// Identity (gnb-999/70-1) or RAN node name.
    gnb: String,
}

/// Disconnects a gNB: one that has the identity of another, for example.
pub(super) async fn disconnect(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    PathParts(path): PathParts<GnbPath>,
) -> HandlerResult<Json<DisconnectedView>> {
    let text = path.gnb.as_str();
    let gnb = named(&shared, text).await?;
    if !shared.console.commands.ask(|reply| ConsoleCommand::DisconnectGnb(gnb, reply)).await? {
        return Err(ProblemDetails::not_found(format!("{text} is not up any more")));
    }
    TypedReply::json(&DisconnectedView { gnb: format!("gnb-{gnb}") })
}

pub(super) async fn reset(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    PathParts(path): PathParts<GnbPath>,
    Query(wait): Query<WaitQuery>,
) -> HandlerResult<OperationAnswer> {
    let text = path.gnb.as_str();
    let gnb = named(&shared, text).await?;
    let patience = wait.patience();
    let operation = shared.console.commands.ask(|reply| ConsoleCommand::ResetGnb(gnb, reply)).await?;
    let none = || ProblemDetails::not_found(format!("{text} is not up any more"));
    operations::answer(&shared, operation.ok_or_else(none)?, patience).await
}

/// The identity that a gNB is listed under: PLMN, number in hexadecimal digits; the number of its bits stands beside it.
fn gnb_id(view: &whimbrel_node::observation::GnbView) -> Option<GlobalGnbId> {
    let (plmn, id) = view.id.rsplit_once('-')?;
    GlobalGnbId::new(plmn.parse().ok()?, u32::from_str_radix(id, 16).ok()?, view.id_bits)
}

/// Reloads the configuration and puts in force what can change while the core runs.
pub(super) async fn reload(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
) -> HandlerResult<Json<PendingRestart>> {
    let reloaded =
        config::reload(&shared.config, shared.file.as_deref()).map_err(ProblemDetails::unprocessable)?;
    let config::ReloadedConfig { config, kept } = reloaded;
    shared.console.commands.send(ConsoleCommand::Reconfigure(Box::new(config)))?;
    TypedReply::json(&PendingRestart { kept })
}

/// Keys that need a restart.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Reloaded")]
pub(super) struct PendingRestart {
    /// The keys whose change waits for the next start.
    kept: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 23.041 §9.3.24
    fn etws_types_alert_and_pop_up() {
        let read = |word: &str| serde_json::from_value::<EtwsType>(word.into()).ok().map(EtwsType::octets);
        assert_eq!(read("tsunami"), Some([0x03, 0x80]));
        assert_eq!(read("earthquake-and-tsunami"), Some([0x05, 0x80]));
        assert_eq!(read("rain"), None);
    }
}
