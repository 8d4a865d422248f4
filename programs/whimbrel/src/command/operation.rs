//! Shared by the commands that order something of UEs and gNBs: they wait for the outcome, print it, and have an exit status for each
//! outcome.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::cli::Running;
use whimbrel_cli::{print, print_json};
use whimbrel_node::client::Client;
use whimbrel_node::observation::{OperationState, OperationView};

/// Default wait: an idle UE is paged for eight seconds, a gNB has ten to answer NG RESET.
const WAIT_S: u64 = 15;

/// The exit status of a command that ended without an error of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The order was carried out.
    Done = 0,
    /// A UE, gNB or UPF refused, or did not answer.
    Failed = 3,
    /// The outcome is not known yet, or the change waits until the UE connects.
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
    after_help = "Exit status: 0 done; 1 not possible (no core answers, or no such UE, session or gNB); 2 wrong usage; \
3 the UE, the gNB or the UPF refused or did not answer; 4 not known yet, or waiting for the UE to connect."
)]
pub(crate) struct Waiting {
    /// Do not wait; `GET /api/v1/operations/N` has the outcome later.
    #[arg(long)]
    no_wait: bool,
    /// Seconds to wait for the outcome, at most 30.
    #[arg(long, value_name = "SECONDS", default_value_t = WAIT_S, value_parser = clap::value_parser!(u64).range(0..=30),
          conflicts_with = "no_wait")]
    wait: u64,
    #[command(flatten)]
    pub(crate) at: Running,
}

/// Sends an order and prints its outcome.
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
    let operation: OperationView = serde_json::from_value(answer.clone()).map_err(|_| {
        "the core's answer is not understood: it runs another version of whimbrel".to_string()
    })?;
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
        OperationState::Pending => format!(" See `GET /api/v1/operations/{}`.", o.id),
        OperationState::Succeeded | OperationState::Failed | OperationState::Deferred => String::new(),
    };
    let mut text = format!("{} {}{session}{sent}: {}{later}\n", o.command, o.subject, o.text);
    for f in o.findings.iter().filter(|_| o.gnbs.is_some()) {
        let answer = [&f.message, &f.cause].into_iter().flatten().cloned().collect::<Vec<_>>().join(": ");
        text += &format!("  {}: {answer}\n", f.peer);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_node::observation::Finding;

    #[test]
    fn each_outcome_has_its_exit_status() {
        let of = |state| status(state) as u8;
        assert_eq!(of(OperationState::Succeeded), 0);
        assert_eq!(of(OperationState::Failed), 3);
        assert_eq!((of(OperationState::Pending), of(OperationState::Deferred)), (4, 4));
    }

    #[test]
    fn an_outcome_is_one_line_and_one_more_for_each_gnb_of_a_warning() {
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
            text: "Not every gNB carried it out.".into(),
            findings: vec![finding],
            gnbs: Some(2),
            state: OperationState::Failed,
            ..OperationView::default()
        };
        assert_eq!(
            text(&warning),
            "warning send warning 4370 1 (sent to 2 gNBs): Not every gNB carried it out.\n  gnb-1: no answer\n"
        );
        let open = OperationView { id: 7, text: "The outcome is not known yet.".into(), ..operation };
        let open = OperationView { state: OperationState::Pending, ..open };
        assert!(text(&open).ends_with("known yet. See `GET /api/v1/operations/7`.\n"), "{}", text(&open));
    }
}
