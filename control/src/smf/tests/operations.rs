//! How the operator learns what became of a change of a session: TS 23.502 §4.3.3.2, §4.3.4.2, §4.3.7.

use super::*;

/// The outcomes in these batches: of which procedure, of one order or of all, and what.
fn outcomes(batches: &[Batch]) -> Vec<(Procedure, Option<Modification>, SessionOutcome)> {
    let events = batches.iter().flat_map(|b| &b.events);
    let operations = events.filter_map(|e| match e {
        Event::SessionOperation { procedure, order, outcome, .. } => {
            Some((*procedure, *order, outcome.clone()))
        }
        _ => None,
    });
    operations.collect()
}

fn order(harness: &mut UeHarness, modification: Modification) -> Vec<Batch> {
    let batch = harness.input(Payload::Command(Command::ModifySession(psi(1), modification)));
    harness.settle(batch)
}

fn ambr(kbps: u64) -> Modification {
    Modification::Ambr(Ambr { ul_kbps: kbps, dl_kbps: kbps })
}

fn completed(failed_flows: Vec<FailedFlow>) -> SessionOutcome {
    SessionOutcome::Completed { failed_flows, not_at_gnb: None, more: false }
}

const BY_NETWORK: Procedure = Procedure::PduSessionModificationByNetwork;

#[test] // TS 23.502 §4.3.3.2: the outcome is known when UE, gNB and UPF have the change, and not before
fn a_modification_that_succeeds_is_reported_once() {
    let mut harness = harness();
    assert!(outcomes(&order(&mut harness, ambr(2000))).is_empty());
    assert!(outcomes(&modified(&mut harness, &[])).is_empty());
    let batches = says(&mut harness, 0, sm::ModificationComplete::new());
    assert_eq!(outcomes(&batches), [(BY_NETWORK, None, completed(Vec::new()))]);
}

#[test] // TS 38.413 §8.2.3.3: PDUSessionResourceFailedToModifyListModRes with its cause
fn a_refusal_by_the_gnb_is_reported_with_its_cause() {
    let mut harness = harness();
    order(&mut harness, ambr(2000));
    let transfer = PduSessionResourceModifyUnsuccessfulTransfer::new(
        CauseRadioNetwork::RadioResourcesNotAvailable.into(),
    );
    let mut m = PduSessionResourceModifyResponse::new(harness.connection(), RAN_ID);
    m.pdu_session_resource_failed_to_modify_list_mod_res =
        vec![PduSessionResourceItem::new(psi(1), transfer.to_vec())];
    let batch = harness.ngap(m.clone());
    let batches = harness.settle(batch);
    let [(BY_NETWORK, None, SessionOutcome::Refused { refusal, more: false })] = &outcomes(&batches)[..]
    else {
        panic!("{batches:?}")
    };
    assert_eq!(
        refusal.to_string(),
        "its gNB answered with PDU SESSION RESOURCE MODIFY RESPONSE (PDUSessionResourceFailedToModifyListModRes), \
         cause radioNetwork radio-resources-not-available (22)"
    );
    // The UE may have answered before.
    order(&mut harness, ambr(3000));
    says(&mut harness, 0, sm::ModificationComplete::new());
    let batch = harness.ngap(m);
    let batches = harness.settle(batch);
    let [(_, _, SessionOutcome::Completed { not_at_gnb: Some(again), .. })] = &outcomes(&batches)[..] else {
        panic!("{batches:?}")
    };
    assert_eq!(again, refusal);
}

#[test] // TS 38.413 §8.2.3.2: QoS Flow Failed to Add or Modify List
fn a_flow_that_the_gnb_refuses_is_reported_by_name_and_cause() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    harness.settle(batch);
    modified(&mut harness, &[2]);
    assert!(
        outcomes(&says(&mut harness, 0, sm::ModificationComplete::new())).is_empty(),
        "it is taken back first"
    );
    modified(&mut harness, &[]);
    let batches = says(&mut harness, 0, sm::ModificationComplete::new());
    let cause = "radioNetwork radio-resources-not-available (22)".into();
    let flow = FailedFlow { qfi: qfi(2), name: "voice".parse().ok(), cause };
    assert_eq!(outcomes(&batches), [(BY_NETWORK, None, completed(vec![flow]))]);
}

#[test] // TS 24.501 §6.3.2.4: PDU SESSION MODIFICATION COMMAND REJECT with its 5GSM cause
fn a_rejection_by_the_ue_is_reported_with_its_cause() {
    let mut harness = harness();
    order(&mut harness, ambr(2000));
    modified(&mut harness, &[]);
    let batches =
        says(&mut harness, 0, sm::ModificationCommandReject::new(SmCause::SemanticErrorsInPacketFilters));
    let [(BY_NETWORK, None, SessionOutcome::Refused { refusal, .. })] = &outcomes(&batches)[..] else {
        panic!("{batches:?}")
    };
    let text = refusal.to_string();
    assert!(text.contains("PDU SESSION MODIFICATION COMMAND REJECT, 5GSM cause #44 ("), "{text}");
}

#[test] // TS 23.501 §5.6.9.2.1; an order without effect is answered too
fn an_order_without_effect_is_answered_at_once() {
    let mut harness = harness();
    let flow = |name: &str| name.parse().unwrap();
    let gate = FlowGate { uplink: true, downlink: true };
    for (modification, possible) in [
        (ambr(1000), true),
        (Modification::AddFlow(flow("zebra")), false),
        (Modification::RemoveFlow(flow("voice")), false),
        (Modification::Gate(flow("voice"), gate), false),
        (Modification::Reanchor, false),
    ] {
        let batches = order(&mut harness, modification);
        let [(_, Some(of), outcome)] = &outcomes(&batches)[..] else {
            panic!("{modification:?}: {batches:?}")
        };
        assert_eq!(*of, modification);
        assert_eq!(matches!(outcome, SessionOutcome::Unchanged(_)), possible, "{outcome:?}");
        assert_eq!(matches!(outcome, SessionOutcome::NotPossible(_)), !possible, "{outcome:?}");
    }
}

#[test] // TS 23.502 §4.2.3.3 step 5: the change of a UE that does not answer PAGING waits for it
fn a_change_for_a_ue_that_does_not_answer_paging_is_deferred() {
    let mut harness = harness();
    let association = harness.association();
    let batch = harness.input(Payload::Command(Command::ConnectionLost(association)));
    harness.settle(batch);
    let mut batch = order(&mut harness, ambr(2000)).pop().unwrap();
    for _ in 0..3 {
        assert!(outcomes(&[batch.clone()]).is_empty());
        batch = harness.expire(&batch);
    }
    let batch = harness.expire(&batch);
    assert_eq!(
        outcomes(&[batch]),
        [(BY_NETWORK, None, SessionOutcome::Deferred("the UE did not answer PAGING"))]
    );
}

#[test] // TS 23.502 §4.3.4.2, TS 24.501 §6.3.3.5 a
fn a_release_is_reported_with_what_the_ue_answered() {
    let mut harness = harness();
    order(&mut harness, Modification::Release);
    let batches = says(&mut harness, 0, sm::ReleaseComplete::new());
    let released = Procedure::PduSessionReleaseByNetwork;
    assert_eq!(outcomes(&batches), [(released, None, completed(Vec::new()))]);
    let mut harness = super::harness();
    let mut batch = order(&mut harness, Modification::Release).pop().unwrap();
    while outcomes(std::slice::from_ref(&batch)).is_empty() {
        batch = harness.expire(&batch);
    }
    let refusal = Refusal::NoAnswer("PDU SESSION RELEASE COMMAND");
    assert_eq!(outcomes(&[batch]), [(released, None, SessionOutcome::Refused { refusal, more: false })]);
    assert!(harness.context().unwrap().sessions.is_empty(), "it is gone all the same");
}
