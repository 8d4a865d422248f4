//! Operations: orders of the operator to UEs and gNBs, until their outcome is known.
//!
//! The control thread begins an operation when it carries out the order; events of the core end it, on any CPF. The
//! client waits for the outcome, or asks for it later.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use whimbrel_control::amf::WarningOutcome;
use whimbrel_control::event::{DeregistrationReason, ResetBy, SessionChange};
use whimbrel_control::smf::Modification;
use whimbrel_control::{
    AssociationId, Event, FailedFlow, Procedure, RanEvent, Refusal, SessionOutcome, UeEvent, UeId,
};
use whimbrel_ids::{GlobalGnbId, Instant, PduSessionId};

use super::locked;
use crate::clock;

/// Operations that are kept: as many as orders may wait for the control thread. The oldest are dropped first.
const OPERATIONS_MAX: usize = 256;
/// Findings of one operation that are kept: a session has at most 64 QoS flows, and a warning may concern every gNB.
const FINDINGS_MAX: usize = 64;

/// State of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OperationState {
    /// Its outcome is not known yet.
    #[default]
    Pending,
    /// The order was carried out.
    Succeeded,
    /// The order was not carried out, or not everywhere.
    Failed,
    /// It is carried out when the UE connects.
    Deferred,
}

/// What a peer answered, in the standard's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// `UE`, `gNB`, `UPF`, or the identity of a gNB.
    pub peer: String,
    /// The message by which it answered.
    pub message: Option<String>,
    /// Kind, number and name of the cause in it.
    pub cause: Option<String>,
    /// The QoS flow that it is about.
    pub qfi: Option<u8>,
    /// The policy that this flow comes from.
    pub flow: Option<String>,
}

/// An operation as the API shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Operation")]
pub struct OperationView {
    /// Number in order, from 1.
    pub id: u64,
    /// What was ordered, `session modify`.
    pub command: String,
    /// Its subject: a SUPI, a gNB, a warning.
    pub subject: String,
    /// The PDU session that it concerns.
    pub session: Option<u8>,
    /// State of the operation.
    pub state: OperationState,
    /// The outcome in a sentence.
    pub text: String,
    /// What peers answered.
    pub findings: Vec<Finding>,
    /// When it began, RFC 3339.
    pub started: String,
    /// When its outcome was known.
    pub ended: Option<String>,
    /// The gNBs that were sent a message for it.
    pub gnbs: Option<u64>,
}

/// What ends an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The end of a UE's registration (TS 23.502 §4.2.2.3.3).
    Deregistration(UeId),
    /// A UE becomes reachable (TS 23.502 §4.2.5.2).
    Reachability(UeId),
    /// A change of a PDU session (TS 23.502 §4.3.3.2, §4.3.4.2, §4.3.7).
    Session(UeId, PduSessionId, Modification),
    /// NG RESET ACKNOWLEDGE of a gNB (TS 38.413 §8.7.4.2.1).
    Reset(GlobalGnbId),
    /// The answers of gNBs to a warning message, or to its cancellation (TS 38.413 §8.9.1.2, §8.9.2.2).
    Warning {
        /// Message identifier and serial number.
        of: (u16, u16),
        /// Answers that are awaited still.
        awaited: usize,
        /// It is cancelled, not sent.
        cancelled: bool,
    },
}

impl Target {
    fn ue(&self) -> Option<UeId> {
        match self {
            Target::Deregistration(ue) | Target::Reachability(ue) | Target::Session(ue, ..) => Some(*ue),
            Target::Reset(_) | Target::Warning { .. } => None,
        }
    }

    fn command(&self) -> &'static str {
        match self {
            Target::Deregistration(_) => "ue deregister",
            Target::Reachability(_) => "ue notify",
            Target::Session(..) => "session modify",
            Target::Reset(_) => "gnb reset",
            Target::Warning { cancelled: false, .. } => "warning send",
            Target::Warning { cancelled: true, .. } => "warning cancel",
        }
    }
}

struct Operation {
    id: u64,
    subject: String,
    target: Target,
    state: OperationState,
    text: String,
    findings: Vec<Finding>,
    started: Instant,
    ended: Option<Instant>,
    gnbs: Option<u64>,
    /// An intermediate result, which the final text includes.
    note: Option<String>,
    /// A part of it has failed already.
    wrong: Option<String>,
}

impl Operation {
    fn view(&self) -> OperationView {
        OperationView {
            id: self.id,
            command: self.target.command().into(),
            subject: self.subject.clone(),
            session: match self.target {
                Target::Session(_, psi, _) => Some(psi.value()),
                _ => None,
            },
            state: self.state,
            text: self.text.clone(),
            findings: self.findings.clone(),
            started: clock::rfc3339(self.started),
            ended: self.ended.map(clock::rfc3339),
            gnbs: self.gnbs,
        }
    }

    fn find(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// What an event means to an operation.
enum OperationStep {
    End(OperationState, String),
    Find(Finding),
    Note(String),
    /// A part has failed; the operation continues.
    Wrong(String),
    /// Another gNB has answered; whether it carried out the order.
    Answered(Finding, bool),
}

#[derive(Default)]
struct OperationTable {
    operations: VecDeque<Operation>,
    begun: u64,
}

/// The operations of operators.
#[derive(Default)]
pub struct Operations {
    table: Mutex<OperationTable>,
    /// How many are pending; if none are, events are not looked at.
    pending: AtomicUsize,
    ended: Notify,
}

impl Operations {
    /// Begins an operation, and returns its number.
    pub fn begin(&self, now: Instant, subject: String, target: Target) -> u64 {
        let mut table = locked(&self.table);
        if table.operations.len() == OPERATIONS_MAX {
            let oldest_ended = table.operations.iter().position(|o| o.state != OperationState::Pending);
            table.operations.remove(oldest_ended.unwrap_or(0));
        }
        table.begun += 1;
        let gnbs = match &target {
            Target::Warning { awaited, .. } => Some(*awaited as u64),
            _ => None,
        };
        let note = matches!(target, Target::Deregistration(_)).then(|| "the UE did not answer".into());
        let mut operation = Operation {
            id: table.begun,
            subject,
            target,
            state: OperationState::Pending,
            text: "The outcome is not known yet.".into(),
            findings: Vec::new(),
            started: now,
            ended: None,
            gnbs,
            note,
            wrong: None,
        };
        if let Target::Warning { awaited: 0, .. } = &operation.target {
            let text = "No gNB that was sent the warning is connected.";
            (operation.state, operation.ended) = (OperationState::Succeeded, Some(now));
            operation.text = text.into();
        }
        table.operations.push_back(operation);
        self.count(&table);
        table.begun
    }

    /// One operation, if it is kept.
    pub fn get(&self, id: u64) -> Option<OperationView> {
        locked(&self.table).operations.iter().find(|o| o.id == id).map(Operation::view)
    }

    /// All operations, newest first.
    pub fn all(&self) -> Vec<OperationView> {
        locked(&self.table).operations.iter().rev().map(Operation::view).collect()
    }

    /// Waits until an operation has ended, or for `patience`. Returns its state then.
    pub async fn wait(&self, id: u64, patience: std::time::Duration) -> Option<OperationView> {
        let until = tokio::time::Instant::now() + patience;
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            let known = self.get(id)?;
            let pending = known.state == OperationState::Pending;
            if !pending || tokio::time::timeout_at(until, ended).await.is_err() {
                return if pending { self.get(id) } else { Some(known) };
            }
        }
    }

    /// Handles an event of a UE.
    pub fn ue(&self, now: Instant, happened: &UeEvent) {
        if self.pending.load(Ordering::Relaxed) > 0 {
            self.step(now, |target| match target.ue() == Some(happened.ue) {
                true => of_ue(target, &happened.event),
                false => Vec::new(),
            });
        }
    }

    /// Handles an event of a gNB. `gnb_of` names the gNB of an association.
    pub fn ran(&self, now: Instant, event: &RanEvent, gnb_of: impl Fn(AssociationId) -> String) {
        if self.pending.load(Ordering::Relaxed) > 0 {
            self.step(now, |target| of_gnb(target, event, &gnb_of));
        }
    }

    fn step(&self, now: Instant, steps: impl Fn(&Target) -> Vec<OperationStep>) {
        let mut table = locked(&self.table);
        let mut ended = false;
        for operation in table.operations.iter_mut().filter(|o| o.state == OperationState::Pending) {
            for step in steps(&operation.target) {
                ended |= take(operation, now, step);
            }
        }
        if ended {
            self.count(&table);
            drop(table);
            self.ended.notify_waiters();
        }
    }

    fn count(&self, table: &OperationTable) {
        let pending = table.operations.iter().filter(|o| o.state == OperationState::Pending);
        self.pending.store(pending.count(), Ordering::Relaxed);
    }
}

/// Applies a step; returns whether the operation has ended with it.
fn take(operation: &mut Operation, now: Instant, step: OperationStep) -> bool {
    let (state, text) = match step {
        OperationStep::Find(finding) => {
            operation.find(finding);
            return false;
        }
        OperationStep::Note(note) => {
            operation.note = Some(note);
            return false;
        }
        OperationStep::Wrong(wrong) => {
            operation.wrong = Some(wrong);
            return false;
        }
        OperationStep::Answered(finding, as_ordered) => {
            operation.find(finding);
            if !as_ordered {
                operation.wrong = Some("not every gNB carried it out".into());
            }
            let Target::Warning { awaited, cancelled, .. } = &mut operation.target else { return false };
            *awaited = awaited.saturating_sub(1);
            if *awaited > 0 {
                return false;
            }
            let done = if *cancelled { "every gNB stopped the broadcast" } else { "every gNB broadcasts it" };
            (OperationState::Succeeded, done.to_string())
        }
        OperationStep::End(state, text) => match operation.note.take() {
            Some(note) => (state, format!("{note}; {text}")),
            None => (state, text),
        },
    };
    let (state, text) = match operation.wrong.take() {
        Some(wrong) => (OperationState::Failed, wrong),
        None => (state, text),
    };
    (operation.state, operation.text, operation.ended) = (state, sentence(&text), Some(now));
    true
}

/// With a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}

fn of_ue(target: &Target, event: &Event) -> Vec<OperationStep> {
    let end = |state, text: &str| vec![OperationStep::End(state, text.into())];
    match (target, event) {
        (
            Target::Deregistration(_),
            Event::Completed { procedure: Procedure::DeregistrationByNetwork, .. },
        ) => vec![
            OperationStep::Find(Finding {
                peer: "UE".into(),
                message: Some("DEREGISTRATION ACCEPT".into()),
                ..Finding::default()
            }),
            OperationStep::Note("the UE answered with DEREGISTRATION ACCEPT".into()),
        ],
        (Target::Deregistration(_), Event::Deregistered { why, .. }) => {
            end(OperationState::Succeeded, deregistered(*why))
        }
        (Target::Reachability(_), Event::Reachable { .. }) => {
            end(OperationState::Succeeded, "the UE is reachable: it is CM-CONNECTED")
        }
        (Target::Reachability(_), Event::Deregistered { .. }) => {
            end(OperationState::Failed, "the UE was deregistered before it became reachable")
        }
        (
            Target::Session(_, psi, modification),
            Event::SessionOperation { psi: of, procedure, order, outcome, .. },
        ) if psi == of => match order {
            Some(order) if order == modification => session(modification, outcome),
            None if is_made_by(modification, *procedure) => session(modification, outcome),
            _ => Vec::new(),
        },
        (Target::Session(_, psi, modification), Event::Session { psi: of, change, .. }) if psi == of => {
            match (change, modification) {
                (SessionChange::Released, Modification::Release | Modification::Reanchor) => end(
                    OperationState::Succeeded,
                    "the session is released; the UE was not notified, or did not answer",
                ),
                (SessionChange::Released, _) => end(OperationState::Failed, "the session was released first"),
                (SessionChange::Deactivated, Modification::Deactivate) => end(
                    OperationState::Succeeded,
                    "the user plane of the session is deactivated: the UPF buffers, and the gNB was sent PDU SESSION RESOURCE \
                     RELEASE COMMAND",
                ),
                _ => Vec::new(),
            }
        }
        (Target::Session(..), Event::Deregistered { .. }) => {
            end(OperationState::Failed, "the UE was deregistered first")
        }
        _ => Vec::new(),
    }
}

/// Whether a procedure carries an order out.
fn is_made_by(modification: &Modification, procedure: Procedure) -> bool {
    match modification {
        Modification::Release => procedure == Procedure::PduSessionReleaseByNetwork,
        Modification::Deactivate => procedure == Procedure::UpConnectionDeactivation,
        // SSC mode 2 by a release, SSC mode 3 by a modification (TS 23.502 §4.3.5.1, §4.3.5.2).
        Modification::Reanchor => matches!(
            procedure,
            Procedure::PduSessionReleaseByNetwork | Procedure::PduSessionModificationByNetwork
        ),
        Modification::AddFlow(_)
        | Modification::RemoveFlow(_)
        | Modification::Ambr(_)
        | Modification::Gate(..) => procedure == Procedure::PduSessionModificationByNetwork,
    }
}

fn session(modification: &Modification, outcome: &SessionOutcome) -> Vec<OperationStep> {
    let is_release = *modification == Modification::Release;
    match outcome {
        SessionOutcome::Completed { failed_flows, not_at_gnb, more } => {
            let own = failed_flows.iter().filter(|f| concerns(modification, f));
            let mut steps: Vec<OperationStep> =
                own.clone().map(|f| OperationStep::Find(failed_flow(f))).collect();
            let mut wrong: Vec<String> = own
                .map(|f| {
                    let name = f.name.map(|n| format!(" `{n}`")).unwrap_or_default();
                    let (qfi, cause) = (f.qfi.value(), &f.cause);
                    format!("the gNB refused QoS flow{name} (QFI {qfi}), cause {cause}; the session continues without it")
                })
                .collect();
            if let Some(refusal) = not_at_gnb {
                steps.push(OperationStep::Find(finding(refusal)));
                wrong.push(format!(
                    "the UE has the change, but {refusal}; the session's resources at the gNB are released and set up again"
                ));
            }
            match (wrong.is_empty(), more) {
                (false, true) => steps.push(OperationStep::Wrong(wrong.join("; "))),
                (false, false) => steps.push(OperationStep::End(OperationState::Failed, wrong.join("; "))),
                (true, true) => {}
                (true, false) => {
                    steps.push(OperationStep::End(OperationState::Succeeded, done(modification).into()))
                }
            }
            steps
        }
        // The order is part of what follows.
        SessionOutcome::Refused { more: true, .. } => Vec::new(),
        // TS 24.501 §6.3.3.5 a: the session is gone all the same.
        SessionOutcome::Refused { refusal, .. } if is_release => vec![
            OperationStep::Find(finding(refusal)),
            OperationStep::End(
                OperationState::Succeeded,
                format!("the session is released, although {refusal}"),
            ),
        ],
        SessionOutcome::Refused { refusal, .. } => vec![
            OperationStep::Find(finding(refusal)),
            OperationStep::End(OperationState::Failed, format!("the change was not made: {refusal}")),
        ],
        SessionOutcome::Unchanged(why) => {
            vec![OperationStep::End(OperationState::Succeeded, format!("no change was needed: {why}"))]
        }
        SessionOutcome::NotPossible(why) => {
            vec![OperationStep::End(OperationState::Failed, format!("the change was not made: {why}"))]
        }
        SessionOutcome::Deferred(why) => vec![OperationStep::End(
            OperationState::Deferred,
            format!("the change will be made when the UE connects: {why}"),
        )],
    }
}

/// The answers of peers after a success.
fn done(modification: &Modification) -> &'static str {
    match modification {
        Modification::Release => "the UE answered with PDU SESSION RELEASE COMPLETE",
        Modification::Reanchor => {
            "the UE has completed the release or modification with 5GSM cause #39 (reactivation requested)"
        }
        Modification::AddFlow(_)
        | Modification::RemoveFlow(_)
        | Modification::Ambr(_)
        | Modification::Gate(..)
        | Modification::Deactivate => {
            "the change is in force at UE (PDU SESSION MODIFICATION COMPLETE), gNB and UPF"
        }
    }
}

/// Whether the order is about a flow that failed.
fn concerns(modification: &Modification, flow: &FailedFlow) -> bool {
    match modification {
        Modification::AddFlow(name) | Modification::Gate(name, _) => flow.name == Some(*name),
        // The default flow, which has no name, has the new AMBR's packets.
        Modification::Ambr(_) => flow.name.is_none(),
        Modification::RemoveFlow(_)
        | Modification::Reanchor
        | Modification::Deactivate
        | Modification::Release => false,
    }
}

fn failed_flow(flow: &FailedFlow) -> Finding {
    Finding {
        peer: "gNB".into(),
        message: Some("PDU SESSION RESOURCE MODIFY RESPONSE (QosFlowFailedToAddOrModifyList)".into()),
        cause: Some(flow.cause.clone()),
        qfi: Some(flow.qfi.value()),
        flow: flow.name.map(|n| n.to_string()),
    }
}

/// The peer that refused, its message and its cause.
fn finding(refusal: &Refusal) -> Finding {
    let (peer, message, cause) = match refusal {
        Refusal::RefusedByGnb { message, cause } => {
            ("gNB", Some((*message).to_string()), Some(cause.clone()))
        }
        Refusal::RadioFailure(what) => ("gNB", None, Some((*what).to_string())),
        Refusal::ModificationRejected(cause) => (
            "UE",
            Some("PDU SESSION MODIFICATION COMMAND REJECT".into()),
            Some(format!("5GSM cause #{} ({cause})", cause.value())),
        ),
        Refusal::NoAnswer(message) => ("UE", None, Some(format!("no answer to {message}"))),
        Refusal::Upf(_) => ("UPF", None, Some(refusal.to_string())),
        other => ("core", None, Some(other.to_string())),
    };
    Finding { peer: peer.into(), message, cause, qfi: None, flow: None }
}

fn deregistered(why: DeregistrationReason) -> &'static str {
    match why {
        DeregistrationReason::ByOperator => "the UE is deregistered",
        DeregistrationReason::Superseded => {
            "the UE is deregistered: the subscriber registered again, here or at another AMF"
        }
        DeregistrationReason::Implicitly => {
            "the UE is deregistered: its implicit deregistration timer expired"
        }
        DeregistrationReason::BySubscription => "the UE is deregistered: its subscription ended",
        DeregistrationReason::Fault => {
            "the UE's context was discarded: the core failed on one of its messages"
        }
        DeregistrationReason::StateLost => "the UE's context was lost with its CPFs",
        DeregistrationReason::GrantExpired => "the UE is deregistered: its broker's grant expired",
        DeregistrationReason::CreditUsedUp => {
            "the UE is deregistered: the credit of its broker's grant was used up"
        }
    }
}

fn of_gnb(
    target: &Target,
    event: &RanEvent,
    gnb_of: &impl Fn(AssociationId) -> String,
) -> Vec<OperationStep> {
    match (target, event) {
        (Target::Reset(gnb), RanEvent::Reset { association, ues, by: ResetBy::Operator })
            if gnb_of(*association) == format!("gnb-{gnb}") =>
        {
            let connections = if *ues == 1 { "connection was" } else { "connections were" };
            vec![OperationStep::Note(format!("{ues} UE {connections} released"))]
        }
        (Target::Reset(gnb), RanEvent::ResetAcknowledged { association })
            if gnb_of(*association) == format!("gnb-{gnb}") =>
        {
            vec![
                OperationStep::Find(Finding {
                    peer: format!("gnb-{gnb}"),
                    message: Some("NG RESET ACKNOWLEDGE".into()),
                    ..Finding::default()
                }),
                OperationStep::End(
                    OperationState::Succeeded,
                    "the gNB answered with NG RESET ACKNOWLEDGE".into(),
                ),
            ]
        }
        (Target::Reset(gnb), RanEvent::ResetUnacknowledged { association })
            if gnb_of(*association) == format!("gnb-{gnb}") =>
        {
            let cause = Some("no answer to NG RESET".to_string());
            vec![
                OperationStep::Find(Finding { peer: format!("gnb-{gnb}"), cause, ..Finding::default() }),
                OperationStep::End(
                    OperationState::Failed,
                    "the gNB did not answer NG RESET, which was sent twice".into(),
                ),
            ]
        }
        (Target::Reset(gnb), RanEvent::Down { gnb: Some(down), .. }) if gnb == down => {
            let text = "the association of the gNB ended before it answered NG RESET";
            vec![OperationStep::End(OperationState::Failed, text.into())]
        }
        (
            Target::Warning { of, .. },
            RanEvent::Warned { association, message_identifier, serial_number, outcome },
        ) if *of == (*message_identifier, *serial_number) => {
            let (message, cause, as_ordered) = warned(outcome);
            let (message, cause) = (Some(message.to_string()), Some(cause));
            let peer = gnb_of(*association);
            vec![OperationStep::Answered(Finding { peer, message, cause, ..Finding::default() }, as_ordered)]
        }
        (
            Target::Warning { of, cancelled, .. },
            RanEvent::WarningUnanswered { gnb, message_identifier, serial_number },
        ) if *of == (*message_identifier, *serial_number) => {
            let request = if *cancelled { "PWS CANCEL REQUEST" } else { "WRITE-REPLACE WARNING REQUEST" };
            let cause = Some(format!("no answer to {request}"));
            vec![OperationStep::Answered(
                Finding { peer: format!("gnb-{gnb}"), cause, ..Finding::default() },
                false,
            )]
        }
        _ => Vec::new(),
    }
}

/// A gNB's message about a warning, its content, and whether the order was carried out.
fn warned(outcome: &WarningOutcome) -> (&'static str, String, bool) {
    const WRITTEN: &str = "WRITE-REPLACE WARNING RESPONSE";
    match outcome {
        WarningOutcome::Broadcasting(Some(n)) => (WRITTEN, format!("it broadcasts in {n} cells"), true),
        WarningOutcome::Broadcasting(None) => (WRITTEN, "it broadcasts".into(), true),
        WarningOutcome::Nowhere => (WRITTEN, "it broadcasts in none of its cells".into(), false),
        WarningOutcome::Cancelled(n) => {
            ("PWS CANCEL RESPONSE", format!("it stopped after {n} broadcasts"), true)
        }
        WarningOutcome::Failed(n) => {
            ("PWS FAILURE INDICATION", format!("{n} of its cells do not broadcast any more"), false)
        }
        WarningOutcome::Awaited | WarningOutcome::NoAnswer => (WRITTEN, "it did not answer".into(), false),
    }
}

#[cfg(test)]
mod tests;
