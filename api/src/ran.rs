//! Orders to the radio network: warning messages, overload, resets; and the reload of the configuration.

use std::sync::Arc;

use serde::Deserialize;
use whimbrel_control::amf::{OverloadOrder, Warning, WarningArea, WarningError, cbs_pages, nr_cell};
use whimbrel_ids::{GlobalGnbId, NrCellId, PlmnId, Tac, Tai};
use whimbrel_node::config;
use whimbrel_node::observation::{ConsoleCommand, DisconnectedView};

use super::HandlerContext;
use super::operations;
use super::problem::ProblemDetails;
use super::routes::{Reply, RoutedRequest};

type HandlerResult = Result<Reply, ProblemDetails>;

/// A warning message to be sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewWarning {
    message_identifier: u16,
    serial_number: u16,
    /// What is broadcast; empty for an ETWS primary notification alone.
    #[serde(default)]
    text: String,
    /// `earthquake`, `tsunami`, `earthquake-and-tsunami`, `test` or `other`: an ETWS primary notification.
    etws: Option<String>,
    /// Tracking area codes; none: everywhere.
    #[serde(default)]
    tacs: Vec<u32>,
    /// NR cell identities, nine hexadecimal digits each.
    #[serde(default)]
    cells: Vec<String>,
    #[serde(default = "thirty_seconds")]
    repetition_period_s: u32,
    #[serde(default)]
    broadcasts: u16,
    #[serde(default)]
    concurrent: bool,
}

/// Repetition period that is short enough for UEs that enter the cell; the standard leaves it to the sender (TS 23.041 §9.3.8).
fn thirty_seconds() -> u32 {
    30
}

/// ETWS warning types (TS 23.041 §9.3.24): seven bits of type, then whether UEs alert and pop up.
fn etws(word: &str) -> Option<[u8; 2]> {
    let kind: u8 = match word {
        "earthquake" => 0,
        "tsunami" => 1,
        "earthquake-and-tsunami" => 2,
        "test" => 3,
        "other" => 4,
        _ => return None,
    };
    Some([kind << 1 | 1, 0x80])
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
        let warning_type = self
            .etws
            .map(|word| {
                etws(&word).ok_or_else(|| {
                    let types = "earthquake, tsunami, earthquake-and-tsunami, test or other";
                    ProblemDetails::unprocessable(format!("`etws` is one of {types}"))
                })
            })
            .transpose()?;
        let tai = |tac: &u32| {
            let tac = Tac::new(*tac).ok_or_else(|| ProblemDetails::unprocessable("a TAC has 24 bits"))?;
            Ok::<_, ProblemDetails>(Tai { plmn, tac })
        };
        let cell = |text: &String| {
            let id = u64::from_str_radix(text, 16).ok().and_then(NrCellId::new);
            let id = id.ok_or_else(|| ProblemDetails::unprocessable("a cell is nine hexadecimal digits"))?;
            Ok::<_, ProblemDetails>(nr_cell(plmn, id))
        };
        let area = match (self.tacs.is_empty(), self.cells.is_empty()) {
            (true, true) => WarningArea::Everywhere,
            (false, true) => WarningArea::Tais(self.tacs.iter().map(tai).collect::<Result<_, _>>()?),
            (true, false) => WarningArea::Cells(self.cells.iter().map(cell).collect::<Result<_, _>>()?),
            (false, false) => return Err(ProblemDetails::unprocessable("name `tacs` or `cells`, not both")),
        };
        Ok(Warning {
            message_identifier: self.message_identifier,
            serial_number: self.serial_number,
            area,
            repetition_period_s: self.repetition_period_s,
            broadcasts: self.broadcasts,
            warning_type,
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

pub(super) async fn warn(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let new: NewWarning = serde_json::from_slice(&request.body)
        .map_err(|e| ProblemDetails::bad_request(format!("the body is not a warning message: {e}")))?;
    let warning = Box::new(new.into_warning(shared.config.amf.plmn)?);
    let patience = operations::patience(&request)?;
    let asked = shared.console.commands.ask(|reply| ConsoleCommand::Warn(warning, reply)).await?;
    operations::answer(&shared, asked.map_err(refused)?, patience).await
}

pub(super) async fn warnings(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult {
    Reply::json(&shared.console.commands.ask(ConsoleCommand::ListWarnings).await?)
}

pub(super) async fn cancel(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let number = |n: usize, what: &str| {
        request
            .param(n)
            .parse::<u16>()
            .map_err(|_| ProblemDetails::bad_request(format!("{what} is 0 to 65535")))
    };
    let (id, serial) = (number(0, "a message identifier")?, number(1, "a serial number")?);
    let patience = operations::patience(&request)?;
    let asked = shared.console.commands.ask(|reply| ConsoleCommand::CancelWarning(id, serial, reply)).await?;
    operations::answer(&shared, asked.map_err(refused)?, patience).await
}

pub(super) async fn overload(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult {
    Reply::json(&shared.console.commands.ask(|reply| ConsoleCommand::Overload(None, reply)).await?)
}

pub(super) async fn foresight(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult {
    Reply::json(&shared.console.commands.ask(ConsoleCommand::Foresight).await?)
}

pub(super) async fn order_overload(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let order = match request.param(0) {
        "start" => OverloadOrder::Start,
        "stop" => OverloadOrder::Stop,
        "rule" => OverloadOrder::ByRule,
        _ => return Err(ProblemDetails::bad_request("the order is start, stop or rule")),
    };
    Reply::json(&shared.console.commands.ask(|reply| ConsoleCommand::Overload(Some(order), reply)).await?)
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

/// Disconnects a gNB: one that has the identity of another, for example.
pub(super) async fn disconnect(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let text = request.param(0);
    let gnb = named(&shared, text).await?;
    if !shared.console.commands.ask(|reply| ConsoleCommand::DisconnectGnb(gnb, reply)).await? {
        return Err(ProblemDetails::not_found(format!("{text} is not up any more")));
    }
    Reply::json(&DisconnectedView { gnb: format!("gnb-{gnb}") })
}

pub(super) async fn reset(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let text = request.param(0);
    let gnb = named(&shared, text).await?;
    let patience = operations::patience(&request)?;
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
pub(super) async fn reload(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult {
    let reloaded =
        config::reload(&shared.config, shared.file.as_deref()).map_err(ProblemDetails::unprocessable)?;
    let config::ReloadedConfig { config, kept } = reloaded;
    shared.console.commands.send(ConsoleCommand::Reconfigure(Box::new(config)))?;
    Reply::json(&PendingRestart { kept })
}

/// What waits for the next start.
#[derive(serde::Serialize)]
struct PendingRestart {
    kept: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 23.041 §9.3.24
    fn etws_types_alert_and_pop_up() {
        assert_eq!(etws("tsunami"), Some([0x03, 0x80]));
        assert_eq!(etws("rain"), None);
    }
}
