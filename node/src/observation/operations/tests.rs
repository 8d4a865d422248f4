use std::time::Duration;

use whimbrel_control::UeIdentities;
use whimbrel_control::udm::Ambr;
use whimbrel_ids::{PlmnId, Qfi};

use super::*;

const UE: UeId = UeId { slot: 4, generation: 1 };
const OTHER: UeId = UeId { slot: 5, generation: 1 };
const ON: AssociationId = AssociationId(3);

fn psi() -> PduSessionId {
    PduSessionId::new(1).unwrap()
}

fn gnb() -> GlobalGnbId {
    GlobalGnbId::new(PlmnId::TEST, 1, 28).unwrap()
}

fn gnb_of(_: AssociationId) -> String {
    format!("gnb-{}", gnb())
}

fn ambr() -> Modification {
    Modification::Ambr(Ambr { ul_kbps: 1, dl_kbps: 1 })
}

fn add(name: &str) -> Modification {
    Modification::AddFlow(name.parse().unwrap())
}

fn refused_by_gnb() -> Refusal {
    Refusal::RefusedByGnb {
        message: "PDU SESSION RESOURCE MODIFY RESPONSE (PDUSessionResourceFailedToModifyListModRes)",
        cause: "radioNetwork radio-resources-not-available (22)".into(),
    }
}

/// An operation on the UE's session, and what it has come to after these outcomes.
fn after(modification: Modification, outcomes: &[(Option<Modification>, SessionOutcome)]) -> OperationView {
    let operations = Operations::default();
    let id = operations.begin(Instant::ZERO, "imsi-1".into(), Target::Session(UE, psi(), modification));
    let procedure = match modification {
        Modification::Release => Procedure::PduSessionReleaseByNetwork,
        _ => Procedure::PduSessionModificationByNetwork,
    };
    for (order, outcome) in outcomes {
        operations.ue(Instant(1), &event(UE, *order, procedure, outcome.clone()));
    }
    operations.get(id).unwrap()
}

fn event(ue: UeId, order: Option<Modification>, procedure: Procedure, outcome: SessionOutcome) -> UeEvent {
    let subject = UeIdentities { supi: None, pei: None };
    let event = Event::SessionOperation { subject, psi: psi(), procedure, order, outcome };
    UeEvent { ue, on: None, event }
}

fn completed(failed_flows: Vec<FailedFlow>, more: bool) -> SessionOutcome {
    SessionOutcome::Completed { failed_flows, not_at_gnb: None, more }
}

#[test] // TS 38.413 §8.2.3.3
fn a_session_that_the_gnb_failed_to_modify_is_a_failure_with_the_ngap_cause_in_words() {
    let refused = SessionOutcome::Refused { refusal: refused_by_gnb(), more: false };
    let view = after(ambr(), &[(None, refused)]);
    assert_eq!(view.state, OperationState::Failed);
    let finding = &view.findings[0];
    assert_eq!(finding.peer, "gNB");
    let message = finding.message.as_deref().unwrap();
    assert!(message.contains("PDUSessionResourceFailedToModifyListModRes"), "{message}");
    assert_eq!(finding.cause.as_deref(), Some("radioNetwork radio-resources-not-available (22)"));
    assert!(
        view.text.starts_with("The change was not made: its gNB answered with PDU SESSION"),
        "{}",
        view.text
    );
    let late = SessionOutcome::Completed {
        failed_flows: Vec::new(),
        not_at_gnb: Some(refused_by_gnb()),
        more: false,
    };
    assert_eq!(after(ambr(), &[(None, late)]).state, OperationState::Failed);
}

#[test] // TS 38.413 §8.2.3.2
fn a_flow_that_the_gnb_did_not_take_fails_the_order_that_added_it_and_no_other() {
    let flow = FailedFlow { qfi: Qfi::new(2).unwrap(), name: "voice".parse().ok(), cause: "some (1)".into() };
    let view = after(add("voice"), &[(None, completed(vec![flow.clone()], false))]);
    assert_eq!(view.state, OperationState::Failed);
    assert!(view.text.contains("QoS flow `voice` (QFI 2), cause some (1)"), "{}", view.text);
    assert_eq!((view.findings[0].qfi, view.findings[0].flow.as_deref()), (Some(2), Some("voice")));
    // Further changes may follow before all of it has ended.
    let outcomes = [(None, completed(vec![flow.clone()], true)), (None, completed(Vec::new(), false))];
    assert_eq!(after(add("voice"), &outcomes).state, OperationState::Failed);
    assert_eq!(after(ambr(), &outcomes).state, OperationState::Succeeded);
    assert_eq!(after(ambr(), &outcomes[..1]).state, OperationState::Pending);
}

#[test]
fn an_order_answered_at_once_ends_its_own_operation_alone() {
    let no = SessionOutcome::NotPossible("the session has no flow of this name");
    assert_eq!(after(ambr(), &[(Some(add("voice")), no.clone())]).state, OperationState::Pending);
    assert_eq!(after(ambr(), &[(Some(ambr()), no)]).state, OperationState::Failed);
    let same = SessionOutcome::Unchanged("the session is so already");
    assert_eq!(after(ambr(), &[(Some(ambr()), same)]).state, OperationState::Succeeded);
    let deferred = SessionOutcome::Deferred("the UE did not answer PAGING");
    let view = after(ambr(), &[(None, deferred)]);
    assert_eq!(view.state, OperationState::Deferred);
    assert!(view.text.contains("did not answer PAGING"), "{}", view.text);
}

#[test]
fn events_of_other_ues_and_procedures_end_nothing() {
    let operations = Operations::default();
    let id = operations.begin(Instant::ZERO, "imsi-1".into(), Target::Session(UE, psi(), ambr()));
    let release = Procedure::PduSessionReleaseByNetwork;
    let modification = Procedure::PduSessionModificationByNetwork;
    operations.ue(Instant(1), &event(OTHER, None, modification, completed(Vec::new(), false)));
    operations.ue(Instant(1), &event(UE, None, release, completed(Vec::new(), false)));
    assert_eq!(operations.get(id).unwrap().state, OperationState::Pending);
}

#[test] // TS 24.501 §5.5.2.3
fn the_outcome_of_a_deregistration_says_whether_the_ue_answered() {
    let subject = UeIdentities { supi: None, pei: None };
    let ended = Event::Deregistered { subject, why: DeregistrationReason::ByOperator };
    let accepted =
        Event::Completed { procedure: Procedure::DeregistrationByNetwork, subject, took: Duration::ZERO };
    for (events, text) in [
        (
            vec![accepted, ended.clone()],
            "The UE answered with DEREGISTRATION ACCEPT; the UE is deregistered.",
        ),
        (vec![ended], "The UE did not answer; the UE is deregistered."),
    ] {
        let operations = Operations::default();
        let id = operations.begin(Instant::ZERO, "imsi-1".into(), Target::Deregistration(UE));
        for event in events {
            operations.ue(Instant(1), &UeEvent { ue: UE, on: None, event });
        }
        let view = operations.get(id).unwrap();
        assert_eq!((view.state, view.text.as_str()), (OperationState::Succeeded, text));
    }
}

#[test] // TS 38.413 §8.7.4.2.1
fn a_reset_ends_with_the_acknowledgement_its_absence_or_the_association() {
    let reset = RanEvent::Reset { association: ON, ues: 3, by: ResetBy::Operator };
    for (event, state, part) in [
        (RanEvent::ResetAcknowledged { association: ON }, OperationState::Succeeded, "3 UE connections"),
        (RanEvent::ResetUnacknowledged { association: ON }, OperationState::Failed, "sent twice"),
        (RanEvent::Down { association: ON, gnb: Some(gnb()) }, OperationState::Failed, "association"),
    ] {
        let operations = Operations::default();
        let id = operations.begin(Instant::ZERO, "gnb".into(), Target::Reset(gnb()));
        operations.ran(Instant(1), &reset, gnb_of);
        operations.ran(Instant(2), &event, gnb_of);
        let view = operations.get(id).unwrap();
        assert_eq!(view.state, state, "{view:?}");
        assert!(view.text.contains(part), "{view:?}");
    }
}

#[test] // TS 38.413 §8.9.1.2, §8.9.2.2
fn a_warning_ends_with_the_last_gnbs_answer_and_fails_where_one_does_not_broadcast() {
    let warned =
        |outcome| RanEvent::Warned { association: ON, message_identifier: 4370, serial_number: 1, outcome };
    let unanswered =
        || RanEvent::WarningUnanswered { gnb: gnb(), message_identifier: 4370, serial_number: 1 };
    let there = || WarningOutcome::Broadcasting(Some(2));
    for (events, state) in [
        (vec![warned(there())], OperationState::Pending),
        (vec![warned(there()), warned(there())], OperationState::Succeeded),
        (vec![warned(WarningOutcome::Nowhere), warned(there())], OperationState::Failed),
        (vec![warned(there()), unanswered()], OperationState::Failed),
    ] {
        let operations = Operations::default();
        let target = Target::Warning { of: (4370, 1), awaited: 2, cancelled: false };
        let id = operations.begin(Instant::ZERO, "warning 4370 1".into(), target);
        events.iter().for_each(|event| operations.ran(Instant(1), event, gnb_of));
        let view = operations.get(id).unwrap();
        assert_eq!(view.state, state, "{view:?}");
        assert_eq!((view.gnbs, view.findings.len()), (Some(2), events.len()));
    }
}

#[test]
fn operations_are_bounded_and_pending_ones_stay_longest() {
    let operations = Operations::default();
    let begin = || operations.begin(Instant::ZERO, "imsi-1".into(), Target::Reachability(UE));
    let first = begin();
    let target = Target::Warning { of: (1, 1), awaited: 0, cancelled: true };
    let ended = operations.begin(Instant::ZERO, "warning 1 1".into(), target);
    assert_eq!(operations.get(ended).unwrap().state, OperationState::Succeeded);
    for _ in 2..OPERATIONS_MAX {
        begin();
    }
    begin();
    assert_eq!(operations.all().len(), OPERATIONS_MAX);
    assert!(operations.get(first).is_some() && operations.get(ended).is_none());
    begin();
    assert!(operations.get(first).is_none(), "the oldest leaves where all are pending");
}

#[test]
fn a_wait_ends_with_the_operation_or_with_the_patience() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let operations = std::sync::Arc::new(Operations::default());
    let id = operations.begin(Instant::ZERO, "imsi-1".into(), Target::Reachability(UE));
    let wait = |patience| runtime.block_on(operations.wait(id, patience));
    assert_eq!(wait(Duration::ZERO).unwrap().state, OperationState::Pending);
    let other = operations.clone();
    let event = Event::Reachable { subject: UeIdentities { supi: None, pei: None } };
    let happened = UeEvent { ue: UE, on: None, event };
    let happens = std::thread::spawn(move || other.ue(Instant(1), &happened));
    assert_eq!(wait(Duration::from_secs(60)).unwrap().state, OperationState::Succeeded);
    happens.join().unwrap();
    assert!(runtime.block_on(operations.wait(99, Duration::ZERO)).is_none());
}
