//! What the commands share that order something whose outcome comes later: they wait for it, print it, and end with a status of
//! their own for each outcome.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::{print, print_json};
use crate::cli::Running;
use crate::client::Client;
use crate::console::{OperationState, OperationView};

/// How long a command waits where the user says nothing: an idle UE is paged for eight seconds, a gNB has ten to answer NG RESET.
const WAIT_S: u64 = 15;

/// The exit status of a command that ended without an error of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// What was ordered is so.
    Done = 0,
    /// A UE, gNB or UPF refused, or did not answer.
    Failed = 3,
    /// The outcome is not known yet, or waits for the UE.
    Open = 4,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        ExitCode::from(status as u8)
    }
}

/// How long to wait for an outcome.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit status: 0 done; 1 the command could not be carried out (no core, no such UE or session); 2 wrong usage; \
3 the UE, the gNB or the UPF refused or did not answer; 4 the outcome is not known yet, or comes when the UE connects."
)]
pub(crate) struct Waiting {
    /// Leave at once; `GET /api/v1/operations/N` tells the outcome.
    #[arg(long)]
    no_wait: bool,
    /// Seconds to wait for the outcome, 30 at most.
    #[arg(long, value_name = "SECONDS", default_value_t = WAIT_S, value_parser = clap::value_parser!(u64).range(0..=30),
          conflicts_with = "no_wait")]
    wait: u64,
    #[command(flatten)]
    pub(crate) at: Running,
}

/// Gives an order and prints what became of it.
pub(crate) fn order(
    waiting: &Waiting,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Status, String> {
    let seconds = if waiting.no_wait { 0 } else { waiting.wait };
    let join = if path.contains('?') { '&' } else { '?' };
    let path = format!("{path}{join}wait={seconds}");
    let client: Client = waiting.at.client()?.patient(seconds);
    let answer: Value = client.send(method, &path, body)?;
    let operation: OperationView = serde_json::from_value(answer.clone())
        .map_err(|_| "the core answers in the words of another version of whimbrel".to_string())?;
    match waiting.at.json {
        true => print_json(&answer)?,
        false => print(&text(&operation))?,
    }
    Ok(status(operation.state))
}

fn status(state: OperationState) -> Status {
    match state {
        OperationState::Succeeded => Status::Done,
        OperationState::Failed => Status::Failed,
        OperationState::Pending | OperationState::Deferred => Status::Open,
    }
}

/// The outcome in a line, and a line for each answer of several gNBs.
fn text(o: &OperationView) -> String {
    let session = o.session.map(|n| format!(" session {n}")).unwrap_or_default();
    let sent = o.gnbs.map(|n| format!(" (sent to {n} gNBs)")).unwrap_or_default();
    let later = match o.state {
        OperationState::Pending => format!(" `GET /api/v1/operations/{}` tells it.", o.id),
        OperationState::Succeeded | OperationState::Failed | OperationState::Deferred => String::new(),
    };
    let mut text = format!("{} {}{session}{sent}: {}{later}\n", o.command, o.subject, o.text);
    for f in o.findings.iter().filter(|_| o.gnbs.is_some()) {
        let said = [&f.message, &f.cause].into_iter().flatten().cloned().collect::<Vec<_>>().join(": ");
        text += &format!("  {}: {said}\n", f.peer);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Finding;

    #[test]
    fn each_outcome_has_its_exit_status() {
        let of = |state| status(state) as u8;
        assert_eq!(of(OperationState::Succeeded), 0);
        assert_eq!(of(OperationState::Failed), 3);
        assert_eq!((of(OperationState::Pending), of(OperationState::Deferred)), (4, 4));
    }

    #[test]
    fn an_outcome_is_one_line_and_each_gnb_of_a_warning_another() {
        let operation = OperationView {
            command: "session modify".into(),
            subject: "imsi-1".into(),
            session: Some(1),
            state: OperationState::Failed,
            text: "The change was not made: some cause.".into(),
            ..OperationView::default()
        };
        assert_eq!(
            text(&operation),
            "session modify imsi-1 session 1: The change was not made: some cause.\n"
        );
        let finding = Finding { peer: "gnb-1".into(), cause: Some("no answer".into()), ..Finding::default() };
        let warning = OperationView {
            command: "warning send".into(),
            subject: "warning 4370 1".into(),
            text: "Not every gNB did as ordered.".into(),
            findings: vec![finding],
            gnbs: Some(2),
            state: OperationState::Failed,
            ..OperationView::default()
        };
        assert_eq!(
            text(&warning),
            "warning send warning 4370 1 (sent to 2 gNBs): Not every gNB did as ordered.\n  gnb-1: no answer\n"
        );
        let open = OperationView { id: 7, text: "The outcome is not known yet.".into(), ..operation };
        let open = OperationView { state: OperationState::Pending, ..open };
        assert!(
            text(&open).ends_with("known yet. `GET /api/v1/operations/7` tells it.\n"),
            "{}",
            text(&open)
        );
    }
}
