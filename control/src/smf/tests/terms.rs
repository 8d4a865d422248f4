//! Sessions whose terms change, whose anchor moves, whose gNB or UPF does not follow.

use std::sync::Arc;

use whimbrel_nas::ie::{PcoDirection, container_id};
use whimbrel_ngap::msg::PduSessionResourceReleaseResponse;
use whimbrel_pfcp::ie::Cause as PfcpCause;

use super::*;
use crate::envelope::OutputId;
use crate::services::nudm::UdmAnswer;
use crate::state::{SessionTypes, SmContext, Subscription, UpState};

fn session(harness: &UeHarness) -> &SmContext {
    &harness.context().unwrap().sessions[&psi(1)]
}

/// The UE's session is changed without anybody's knowing.
fn altered(mut harness: UeHarness, change: impl FnOnce(&mut SmContext)) -> UeHarness {
    let mut ue = harness.shard.checkpoint(harness.id).unwrap();
    change(ue.sessions.get_mut(&psi(1)).unwrap());
    harness.shard.restore(ue);
    harness
}

fn order(harness: &mut UeHarness, modification: Modification) -> Vec<Batch> {
    let batch = harness.input(Payload::Command(Command::ModifySession(psi(1), modification)));
    harness.settle(batch)
}

fn released(harness: &mut UeHarness, batches: &[Batch]) -> Option<SmCause> {
    downlink_5gsm(harness, batches).into_iter().find_map(|m| match m.body {
        sm::Body::ReleaseCommand(c) => Some(c.cause),
        _ => None,
    })
}

/// The gNB is to give the session's resources up.
fn given_up(batches: &[Batch]) -> bool {
    batches.iter().flat_map(n2).any(|m| matches!(m, Message::PduSessionResourceReleaseCommand(_)))
}

/// The UPF answers the requests of a batch with this cause.
fn upf_refuses_with(harness: &mut UeHarness, batch: &Batch, cause: PfcpCause) -> Batch {
    let clock = harness.clock();
    let asked = |o: &crate::envelope::Output| matches!(o.effect, Effect::N4 { .. });
    let index = batch.outputs.iter().position(asked).unwrap() as u16;
    let answer = whimbrel_pfcp::msg::SessionModificationResponse::new(cause);
    let octets = whimbrel_pfcp::Message::from(answer).to_octets(Some(whimbrel_ids::Seid(1)), 0);
    let to = OutputId { clock, index };
    harness.input(Payload::PfcpAnswer { to, upf: crate::upf::UpfId(0), octets: Some(octets.into()) })
}

fn three(s: &mut SmContext) {
    s.ssc_mode = SscMode::Three;
}

#[test] // TS 23.502 §4.3.5.2, TS 23.501 §5.6.9.2.3, TS 24.501 §6.3.2.2: #39 and how long the session stays; without a successor it ends with #39
fn a_session_of_ssc_mode_3_gets_a_lifetime() {
    let mut harness = altered(harness(), three);
    let batches = order(&mut harness, Modification::Reanchor);
    let (pti, m) = command(&mut harness, &batches).unwrap();
    assert_eq!((pti, m.cause), (Pti::UNASSIGNED, Some(SmCause::ReactivationRequested)));
    let pco = m.extended_pco.unwrap();
    let lifetime = pco
        .containers(PcoDirection::ToUe)
        .find_map(|c| (c.id == container_id::PDU_SESSION_ADDRESS_LIFETIME).then(|| c.as_u16()).flatten());
    assert_eq!(lifetime, Some(120));
    assert!(m.qos_rules.is_none() && m.session_ambr.is_none() && asked(&batches).is_none());
    let batches = says(&mut harness, 0, sm::ModificationComplete::new());
    assert!(harness.context().unwrap().is_idle() && session(&harness).is_leaving());
    let again = order(&mut harness, Modification::Reanchor);
    assert!(command(&mut harness, &again).is_none(), "it is sent once");
    let batch = harness.expire(batches.last().unwrap());
    assert_eq!(released(&mut harness, &[batch]), Some(SmCause::ReactivationRequested));
    says(&mut harness, 0, sm::ReleaseComplete::new());
    assert!(harness.context().unwrap().sessions.is_empty());
    assert_eq!(harness.context().unwrap().leaving_until(), None);
}

#[test] // TS 23.502 §4.3.5.2: a UE that rejects the command keeps its session, and so does the network
fn a_ue_does_not_want_to_move() {
    let mut harness = altered(harness(), three);
    order(&mut harness, Modification::Reanchor);
    says(&mut harness, 0, sm::ModificationCommandReject::new(SmCause::ProtocolErrorUnspecified));
    assert!(harness.context().unwrap().is_idle());
    let s = session(&harness);
    assert!(!s.is_leaving() && s.qos.pending_change.is_none() && s.up == UpState::Active);
}

#[test] // TS 24.501 §6.3.2.5 a: nor does one move that never answers
fn a_ue_that_is_silent_does_not_move() {
    let mut harness = altered(harness(), three);
    let mut batch = order(&mut harness, Modification::Reanchor).pop().unwrap();
    while !harness.context().unwrap().is_idle() {
        batch = harness.expire(&batch);
    }
    assert!(!session(&harness).is_leaving() && session(&harness).up == UpState::Active);
}

#[test] // TS 23.502 §4.3.5.2 step 5: the lifetime of an idle UE's session ends: the UE is not paged
fn an_idle_ues_former_session_ends() {
    let mut harness = altered(harness(), three);
    order(&mut harness, Modification::Reanchor);
    says(&mut harness, 0, sm::ModificationComplete::new());
    let association = harness.association();
    let batch = harness.input(Payload::Command(Command::ConnectionLost(association)));
    let batches = harness.settle(batch);
    let batch = harness.expire(batches.last().unwrap());
    assert!(harness.context().unwrap().sessions.is_empty());
    assert!(n2(&batch).is_empty() && !batch.outputs.iter().any(|o| matches!(o.effect, Effect::Page { .. })));
}

#[test] // TS 23.501 §5.6.9.2.1: SSC mode 1: the anchor stays
fn a_session_of_ssc_mode_1_stays() {
    let mut harness = harness();
    let batches = order(&mut harness, Modification::Reanchor);
    assert!(batches.iter().all(|b| b.outputs.is_empty()));
}

/// The subscription becomes another one.
fn subscribed(harness: &mut UeHarness, change: impl FnOnce(&mut Subscription)) -> Vec<Batch> {
    let mut subscription = (**harness.context().unwrap().amf.subscription.as_ref().unwrap()).clone();
    change(&mut subscription);
    let batch = harness.input(Payload::Command(Command::SubscriptionChanged));
    let batch = harness.udm(&batch, UdmAnswer::Registered(Ok(Arc::new(subscription))));
    harness.settle(batch)
}

#[test] // TS 23.502 §4.3.3.2 step 1c: AMBR, 5QI and priority of the subscription reach UPF, gNB and UE
fn another_subscription_changes_the_session() {
    let mut harness = harness();
    let ambr = Ambr { ul_kbps: 300, dl_kbps: 400 };
    let batches = subscribed(&mut harness, |s| {
        let d = &mut s.slices[0].dnns[0];
        (d.session_ambr, d.five_qi, d.arp.priority) = (ambr, FiveQi(7), 3);
    });
    let transfer = asked(&batches).unwrap();
    let bits = transfer.pdu_session_aggregate_maximum_bit_rate.unwrap();
    assert_eq!(bits.pdu_session_aggregate_maximum_bit_rate_dl, 400_000);
    let item = &transfer.qos_flow_add_or_modify_request_list[0];
    assert_eq!(item.qos_flow_identifier, qfi(1));
    let (_, m) = command(&mut harness, &batches).unwrap();
    assert_eq!(m.session_ambr.unwrap().downlink.kbps(), 400);
    let described = m.qos_flow_descriptions.unwrap().flows().unwrap();
    assert_eq!((described[0].qfi, described[0].operation), (qfi(1), FlowOperation::Modify));
    assert_eq!(described[0].parameters, [FlowParameter::FiveQi(FiveQi(7))]);
    modified(&mut harness, &[]);
    says(&mut harness, 0, sm::ModificationComplete::new());
    let s = session(&harness);
    assert_eq!((s.qos.ambr, s.qos.five_qi, s.qos.arp.priority), (ambr, FiveQi(7), 3));
}

#[test] // TS 23.502 §4.3.3.2 step 1c: the subscriber's flows: one comes, changes, goes
fn flows_of_the_subscription_follow_it() {
    let mut harness = harness();
    let mut own = flow("own", 1, 20, Setup::Always);
    let take = |harness: &mut UeHarness, flows: Vec<FlowPolicy>| {
        subscribed(harness, |s| s.slices[0].dnns[0].flows = flows);
        let batches = modified(harness, &[]);
        assert!(batches.iter().all(|b| b.events.is_empty()), "the UE has not answered");
        says(harness, 0, sm::ModificationComplete::new());
    };
    take(&mut harness, vec![own.clone()]);
    assert_eq!(flows(&harness), ["own"]);
    own.gbr.as_mut().unwrap().maximum.dl_kbps = 128;
    own.filters = vec![packet_filter("permit out 6 from any 80 to assigned").unwrap()];
    take(&mut harness, vec![own.clone()]);
    let has = &session(&harness).qos.flows[0];
    assert_eq!(
        (has.gbr, has.rules[0].filters[0].components.len()),
        (own.gbr, own.filters[0].components.len())
    );
    take(&mut harness, vec![]);
    assert!(flows(&harness).is_empty() && session(&harness).qos.pending_change.is_none());
}

#[test] // TS 23.502 §4.3.4.2 step 1b, TS 24.501 §6.3.3.2: a session that is no longer subscribed ends; the UE asks again if it may have it otherwise
fn sessions_that_are_no_longer_subscribed_are_released() {
    let mut one = harness();
    let batches = subscribed(&mut one, |s| s.slices[0].dnns.clear());
    assert_eq!(released(&mut one, &batches), Some(SmCause::RegularDeactivation));
    let mut other = harness();
    let batches = subscribed(&mut other, |s| {
        s.slices[0].dnns[0].session_types = SessionTypes { ipv6: true, ..SessionTypes::NONE };
    });
    assert_eq!(released(&mut other, &batches), Some(SmCause::ReactivationRequested));
    let mut third = harness();
    let batches = subscribed(&mut third, |s| s.slices[0].dnns[0].static_ipv4 = Some([10, 45, 9, 9].into()));
    assert_eq!(released(&mut third, &batches), Some(SmCause::ReactivationRequested));
}

/// The operator's policy becomes another one.
fn configured(harness: &mut UeHarness, change: impl FnOnce(&mut crate::config::Config)) -> Vec<Batch> {
    let mut config = config();
    change(&mut config);
    harness.shard.configure(Arc::new(config));
    let batch = harness.input(Payload::Command(Command::PolicyChanged));
    harness.settle(batch)
}

#[test] // TS 23.502 §4.3.3.2 step 1b: a flow that the policy gives to each session, and one that it has no more
fn another_policy_changes_the_session() {
    let mut harness = with_voice();
    let batches = configured(&mut harness, |c| {
        c.smf.data_networks.values_mut().for_each(|n| n.flows = vec![flow("video", 2, 11, Setup::Always)]);
    });
    let (_, m) = command(&mut harness, &batches).unwrap();
    let described = m.qos_flow_descriptions.unwrap().flows().unwrap();
    assert_eq!(
        described.iter().map(|d| d.operation).collect::<Vec<_>>(),
        [FlowOperation::Delete, FlowOperation::Create]
    );
    modified(&mut harness, &[]);
    says(&mut harness, 0, sm::ModificationComplete::new());
    assert_eq!(flows(&harness), ["video"]);
}

#[test] // TS 23.502 §4.3.3.2 step 1b: what a UE asked for stays within what the policy lets UEs have
fn a_changed_policy_limits_flows_that_ues_requested() {
    let mut harness = harness();
    says(&mut harness, 9, request(3));
    modified(&mut harness, &[]);
    says(&mut harness, 9, sm::ModificationComplete::new());
    let mut less = flow("game", 3, 12, Setup::OnRequest);
    let rate = Ambr { ul_kbps: 16, dl_kbps: 16 };
    less.gbr = Some(Gbr { guaranteed: rate, maximum: rate });
    configured(&mut harness, |c| c.smf.data_networks.values_mut().for_each(|n| n.flows = vec![less.clone()]));
    modified(&mut harness, &[]);
    says(&mut harness, 0, sm::ModificationComplete::new());
    assert_eq!(session(&harness).qos.flows[0].gbr, less.gbr);
    less.setup = Setup::ByOperator;
    configured(&mut harness, |c| c.smf.data_networks.values_mut().for_each(|n| n.flows = vec![less.clone()]));
    modified(&mut harness, &[]);
    says(&mut harness, 0, sm::ModificationComplete::new());
    assert!(flows(&harness).is_empty());
}

#[test] // TS 23.502 §4.3.4.2 step 1b: the operator has the data network no more
fn a_data_network_that_is_taken_away_ends_its_sessions() {
    let mut harness = harness();
    let batches = configured(&mut harness, |c| c.smf.data_networks.clear());
    assert_eq!(released(&mut harness, &batches), Some(SmCause::RegularDeactivation));
}

#[test] // TS 23.502 §4.3.4.2 step 1e, TS 24.501 §6.3.3.3: released by the SMF, completed by the UE
fn the_operator_ends_a_session() {
    let mut harness = harness();
    let batches = order(&mut harness, Modification::Release);
    assert_eq!(released(&mut harness, &batches), Some(SmCause::RegularDeactivation));
    let batches = says(&mut harness, 0, sm::ReleaseComplete::new());
    assert!(harness.context().unwrap().sessions.is_empty());
    assert!(batches.iter().flat_map(|b| &b.outputs).any(|o| matches!(o.effect, Effect::N4 { .. })));
}

#[test] // TS 23.502 §4.3.4.2 idle: an idle UE learns it when it returns
fn the_operator_ends_an_idle_ues_session() {
    let mut harness = harness();
    let association = harness.association();
    let batch = harness.input(Payload::Command(Command::ConnectionLost(association)));
    harness.settle(batch);
    let batches = order(&mut harness, Modification::Release);
    assert!(harness.context().unwrap().sessions.is_empty());
    assert!(batches.iter().flat_map(n2).next().is_none());
}

#[test] // TS 23.502 §4.3.3.2 step 2a, TS 29.244 §6.3.3.3: the UPF refuses the change first: all stays as it was
fn a_upf_that_refuses_a_change_keeps_the_session() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    let batch = upf_refuses_with(&mut harness, &batch, PfcpCause::NoResourcesAvailable);
    assert!(n2(&batch).is_empty());
    assert!(matches!(refusals(&[batch])[..], [Refusal::Upf(Some(_))]));
    let s = session(&harness);
    assert!(s.qos.flows.is_empty() && s.qos.pending_change.is_none() && s.up == UpState::Active);
    assert!(harness.context().unwrap().is_idle());
}

#[test] // TS 24.501 §6.4.2.4: the same, requested by the UE: it gets a reject, and keeps its session
fn a_upf_that_refuses_what_the_ue_asks_for() {
    let mut harness = harness();
    let batch = harness.nas(CIPHERED, uplink(9, request(3)));
    let batch = upf_refuses_with(&mut harness, &batch, PfcpCause::RuleCreationModificationFailure);
    assert_eq!(
        cause(&mut harness, std::slice::from_ref(&batch)),
        Some((Pti(9), SmCause::InsufficientResources))
    );
    assert!(session(&harness).qos.flows.is_empty() && session(&harness).qos.pending_change.is_none());
}

#[test] // TS 23.502 §4.3.3.2 step 12: the UPF refuses the second half: UE and gNB go back to what stands
fn a_upf_that_refuses_the_second_half() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    harness.settle(batch);
    modified(&mut harness, &[]);
    let batch = harness.nas(CIPHERED, uplink(0, sm::ModificationComplete::new()));
    let batch = upf_refuses_with(&mut harness, &batch, PfcpCause::NoResourcesAvailable);
    let batches = harness.settle(batch);
    assert_eq!(pdrs(&batches).1, [3], "the UPF goes back");
    assert_eq!(asked(&batches).unwrap().qos_flow_to_release_list.len(), 1);
    let (_, m) = command(&mut harness, &batches).unwrap();
    assert_eq!(m.qos_rules.unwrap().rules().unwrap()[0].operation, RuleOperation::Delete);
    modified(&mut harness, &[]);
    let batches = says(&mut harness, 0, sm::ModificationComplete::new());
    assert!(matches!(refusals(&batches)[..], [Refusal::Upf(Some(_))]));
    let s = session(&harness);
    assert!(s.qos.flows.is_empty() && s.qos.pending_change.is_none() && s.up == UpState::Active);
}

#[test] // TS 23.527 §4.3.2: a UPF has lost the session: the session is set up again
fn a_upf_that_has_lost_the_session() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    let batch = upf_refuses_with(&mut harness, &batch, PfcpCause::SessionContextNotFound);
    assert_eq!(released(&mut harness, &[batch]), Some(SmCause::ReactivationRequested));
}

#[test] // TS 38.413 §8.2.3.3, TS 24.501 §6.3.2.5 a: for a gNB that has not answered at the last expiry of T3591 the session is set up again, whatever it answers later
fn a_gnb_that_answers_after_the_last_expiry_of_t3591() {
    let mut harness = harness();
    let batch = harness.input(add("voice"));
    let mut batches = harness.settle(batch);
    while !harness.context().unwrap().is_idle() {
        let batch = harness.expire(batches.last().unwrap());
        batches = harness.settle(batch);
    }
    assert!(given_up(&batches));
    assert_eq!(session(&harness).up, UpState::Inactive);
    assert!(session(&harness).qos.flows.is_empty() && session(&harness).qos.pending_change.is_none());
    let late = modified(&mut harness, &[]);
    assert!(late.iter().all(|b| b.outputs.is_empty()));
    assert!(session(&harness).qos.flows.is_empty() && session(&harness).up == UpState::Inactive);
}

#[test] // TS 38.413 §8.2.3.3: the UE has accepted the change and its gNB is silent, or refuses: the session is set up again at the gNB, with the change
fn a_gnb_that_does_not_follow_the_ue() {
    for silent in [true, false] {
        let mut harness = harness();
        let batch = harness.input(add("voice"));
        harness.settle(batch);
        let mut batches = says(&mut harness, 0, sm::ModificationComplete::new());
        if silent {
            let batch = harness.expire(batches.last().unwrap());
            batches = harness.settle(batch);
        } else {
            let transfer = PduSessionResourceModifyUnsuccessfulTransfer::new(
                CauseRadioNetwork::RadioResourcesNotAvailable.into(),
            );
            let mut m = PduSessionResourceModifyResponse::new(harness.connection(), RAN_ID);
            m.pdu_session_resource_failed_to_modify_list_mod_res =
                vec![PduSessionResourceItem::new(psi(1), transfer.to_vec())];
            let batch = harness.ngap(m);
            batches = harness.settle(batch);
        }
        assert!(given_up(&batches), "silent: {silent}");
        assert_eq!(pdrs(&batches).0, [4], "the UPF has all of it");
        assert_eq!((flows(&harness), session(&harness).up), (vec!["voice"], UpState::Inactive));
        assert!(harness.context().unwrap().is_idle());
    }
}

#[test] // TS 23.502 §4.3.7, TS 23.501 §5.6.8: the gNB gives one session up, its packets wait, the UE stays connected and gets no message
fn a_user_plane_is_deactivated() {
    let mut harness = harness();
    let batches = order(&mut harness, Modification::Deactivate);
    assert!(given_up(&batches) && downlink_5gsm(&mut harness, &batches).is_empty());
    assert_eq!(session(&harness).up, UpState::Inactive);
    let mut m = PduSessionResourceReleaseResponse::new(harness.connection(), RAN_ID);
    m.pdu_session_resource_released_list_rel_res = vec![PduSessionResourceItem::new(psi(1), vec![0])];
    let batch = harness.ngap(m);
    assert!(batch.outputs.is_empty() && harness.context().unwrap().amf.connection.is_some());
    let again = order(&mut harness, Modification::Deactivate);
    assert!(again.iter().all(|b| b.outputs.is_empty()), "there is nothing to release");
}
