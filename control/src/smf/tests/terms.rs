//! Sessions whose terms change, whose anchor moves, whose gNB or UPF does not follow.

use std::sync::Arc;

use whimbrel_nas::ie::{PcoDirection, container_id};
use whimbrel_ngap::msg::PduSessionResourceReleaseResponse;
use whimbrel_pfcp::ie::Cause as PfcpCause;

use super::*;
use crate::envelope::OutputId;
use crate::smf::{SmContext, UpState};
use crate::udm::{Answer, SessionTypes, Subscription};

fn session(desk: &Desk) -> &SmContext {
    &desk.phone().unwrap().sessions[&psi(1)]
}

/// The phone's session is changed without anybody's knowing.
fn altered(mut desk: Desk, change: impl FnOnce(&mut SmContext)) -> Desk {
    let mut phone = desk.shard.checkpoint(desk.id).unwrap();
    change(phone.sessions.get_mut(&psi(1)).unwrap());
    desk.shard.restore(phone);
    desk
}

fn order(desk: &mut Desk, modification: Modification) -> Vec<Batch> {
    let batch = desk.input(Payload::Command(Command::ModifySession(psi(1), modification)));
    desk.settle(batch)
}

fn released(desk: &mut Desk, batches: &[Batch]) -> Option<SmCause> {
    told(desk, batches).into_iter().find_map(|m| match m.body {
        sm::Body::ReleaseCommand(c) => Some(c.cause),
        _ => None,
    })
}

/// The gNB is to give the session's resources up.
fn given_up(batches: &[Batch]) -> bool {
    batches.iter().flat_map(n2).any(|m| matches!(m, Message::PduSessionResourceReleaseCommand(_)))
}

/// The UPF answers the requests of a batch with this cause.
fn upf_says(desk: &mut Desk, batch: &Batch, cause: PfcpCause) -> Batch {
    let clock = desk.clock();
    let asked = |o: &crate::envelope::Output| matches!(o.effect, Effect::N4 { .. });
    let index = batch.outputs.iter().position(asked).unwrap() as u16;
    let answer = whimbrel_pfcp::msg::SessionModificationResponse::new(cause);
    let octets = whimbrel_pfcp::Message::from(answer).to_octets(Some(whimbrel_ids::Seid(1)), 0);
    let to = OutputId { clock, index };
    desk.input(Payload::PfcpAnswer { to, upf: crate::upf::UpfId(0), octets: Some(octets.into()) })
}

fn three(s: &mut SmContext) {
    s.ssc_mode = SscMode::Three;
}

#[test] // TS 23.502 §4.3.5.2, TS 23.501 §5.6.9.2.3, TS 24.501 §6.3.2.2: #39 and how long the session stays; without a successor it ends with #39
fn a_session_of_ssc_mode_3_gets_a_lifetime() {
    let mut desk = altered(desk(), three);
    let batches = order(&mut desk, Modification::Reanchor);
    let (pti, m) = command(&mut desk, &batches).unwrap();
    assert_eq!((pti, m.cause), (Pti::UNASSIGNED, Some(SmCause::ReactivationRequested)));
    let pco = m.extended_pco.unwrap();
    let lifetime = pco
        .containers(PcoDirection::ToUe)
        .find_map(|c| (c.id == container_id::PDU_SESSION_ADDRESS_LIFETIME).then(|| c.as_u16()).flatten());
    assert_eq!(lifetime, Some(120));
    assert!(m.qos_rules.is_none() && m.session_ambr.is_none() && asked(&batches).is_none());
    let batches = says(&mut desk, 0, sm::ModificationComplete::new());
    assert!(desk.phone().unwrap().is_idle() && session(&desk).is_leaving());
    let again = order(&mut desk, Modification::Reanchor);
    assert!(command(&mut desk, &again).is_none(), "it is told once");
    let batch = desk.expire(batches.last().unwrap());
    assert_eq!(released(&mut desk, &[batch]), Some(SmCause::ReactivationRequested));
    says(&mut desk, 0, sm::ReleaseComplete::new());
    assert!(desk.phone().unwrap().sessions.is_empty());
    assert_eq!(desk.phone().unwrap().leaving_until(), None);
}

#[test] // TS 23.502 §4.3.5.2: a phone that rejects the command keeps its session, and so does the network
fn a_phone_does_not_want_to_move() {
    let mut desk = altered(desk(), three);
    order(&mut desk, Modification::Reanchor);
    says(&mut desk, 0, sm::ModificationCommandReject::new(SmCause::ProtocolErrorUnspecified));
    assert!(desk.phone().unwrap().is_idle());
    let s = session(&desk);
    assert!(!s.is_leaving() && s.wanted.is_none() && s.up == UpState::Active);
}

#[test] // TS 24.501 §6.3.2.5 a: nor does one move that never answers
fn a_phone_that_is_silent_does_not_move() {
    let mut desk = altered(desk(), three);
    let mut batch = order(&mut desk, Modification::Reanchor).pop().unwrap();
    while !desk.phone().unwrap().is_idle() {
        batch = desk.expire(&batch);
    }
    assert!(!session(&desk).is_leaving() && session(&desk).up == UpState::Active);
}

#[test] // TS 23.502 §4.3.5.2 step 5: the lifetime of an idle phone's session ends: nobody is woken for it
fn an_idle_phones_former_session_ends() {
    let mut desk = altered(desk(), three);
    order(&mut desk, Modification::Reanchor);
    says(&mut desk, 0, sm::ModificationComplete::new());
    let association = desk.association();
    let batch = desk.input(Payload::Command(Command::ConnectionLost(association)));
    let batches = desk.settle(batch);
    let batch = desk.expire(batches.last().unwrap());
    assert!(desk.phone().unwrap().sessions.is_empty());
    assert!(n2(&batch).is_empty() && !batch.outputs.iter().any(|o| matches!(o.effect, Effect::Page { .. })));
}

#[test] // TS 23.501 §5.6.9.2.1: SSC mode 1: the anchor stays
fn a_session_of_ssc_mode_1_stays() {
    let mut desk = desk();
    let batches = order(&mut desk, Modification::Reanchor);
    assert!(batches.iter().all(|b| b.outputs.is_empty()));
}

/// The subscription becomes another one.
fn subscribed(desk: &mut Desk, change: impl FnOnce(&mut Subscription)) -> Vec<Batch> {
    let mut subscription = (**desk.phone().unwrap().amf.subscription.as_ref().unwrap()).clone();
    change(&mut subscription);
    let batch = desk.input(Payload::Command(Command::SubscriptionChanged));
    let batch = desk.udm(&batch, Answer::Registered(Ok(Arc::new(subscription))));
    desk.settle(batch)
}

#[test] // TS 23.502 §4.3.3.2 step 1c: AMBR, 5QI and priority of the subscription reach UPF, gNB and phone
fn another_subscription_changes_the_session() {
    let mut desk = desk();
    let ambr = Ambr { ul_kbps: 300, dl_kbps: 400 };
    let batches = subscribed(&mut desk, |s| {
        let d = &mut s.slices[0].dnns[0];
        (d.session_ambr, d.five_qi, d.arp.priority) = (ambr, FiveQi(7), 3);
    });
    let transfer = asked(&batches).unwrap();
    let bits = transfer.pdu_session_aggregate_maximum_bit_rate.unwrap();
    assert_eq!(bits.pdu_session_aggregate_maximum_bit_rate_dl, 400_000);
    let item = &transfer.qos_flow_add_or_modify_request_list[0];
    assert_eq!(item.qos_flow_identifier, qfi(1));
    let (_, m) = command(&mut desk, &batches).unwrap();
    assert_eq!(m.session_ambr.unwrap().downlink.kbps(), 400);
    let described = m.qos_flow_descriptions.unwrap().flows().unwrap();
    assert_eq!((described[0].qfi, described[0].operation), (qfi(1), FlowOperation::Modify));
    assert_eq!(described[0].parameters, [FlowParameter::FiveQi(FiveQi(7))]);
    modified(&mut desk, &[]);
    says(&mut desk, 0, sm::ModificationComplete::new());
    let s = session(&desk);
    assert_eq!((s.ambr, s.five_qi, s.arp.priority), (ambr, FiveQi(7), 3));
}

#[test] // TS 23.502 §4.3.3.2 step 1c: the subscriber's flows: one comes, changes, goes
fn flows_of_the_subscription_follow_it() {
    let mut desk = desk();
    let mut own = flow("own", 1, 20, Setup::Always);
    let take = |desk: &mut Desk, flows: Vec<FlowPolicy>| {
        subscribed(desk, |s| s.slices[0].dnns[0].flows = flows);
        let batches = modified(desk, &[]);
        assert!(batches.iter().all(|b| b.events.is_empty()), "the phone has not answered");
        says(desk, 0, sm::ModificationComplete::new());
    };
    take(&mut desk, vec![own.clone()]);
    assert_eq!(flows(&desk), ["own"]);
    own.gbr.as_mut().unwrap().maximum.dl_kbps = 128;
    own.filters = vec![packet_filter("permit out 6 from any 80 to assigned").unwrap()];
    take(&mut desk, vec![own.clone()]);
    let has = &session(&desk).flows[0];
    assert_eq!(
        (has.gbr, has.rules[0].filters[0].components.len()),
        (own.gbr, own.filters[0].components.len())
    );
    take(&mut desk, vec![]);
    assert!(flows(&desk).is_empty() && session(&desk).wanted.is_none());
}

#[test] // TS 23.502 §4.3.4.2 step 1b, TS 24.501 §6.3.3.2: what may not be had any more ends; the phone asks anew where it may be had otherwise
fn sessions_that_the_new_terms_do_not_have_end() {
    let mut one = desk();
    let batches = subscribed(&mut one, |s| s.slices[0].dnns.clear());
    assert_eq!(released(&mut one, &batches), Some(SmCause::RegularDeactivation));
    let mut other = desk();
    let batches = subscribed(&mut other, |s| {
        s.slices[0].dnns[0].session_types = SessionTypes { ipv6: true, ..SessionTypes::NONE };
    });
    assert_eq!(released(&mut other, &batches), Some(SmCause::ReactivationRequested));
    let mut third = desk();
    let batches = subscribed(&mut third, |s| s.slices[0].dnns[0].static_ipv4 = Some([10, 45, 9, 9].into()));
    assert_eq!(released(&mut third, &batches), Some(SmCause::ReactivationRequested));
}

/// The operator's policy becomes another one.
fn configured(desk: &mut Desk, change: impl FnOnce(&mut crate::config::Config)) -> Vec<Batch> {
    let mut config = config();
    change(&mut config);
    desk.shard.configure(Arc::new(config));
    let batch = desk.input(Payload::Command(Command::PolicyChanged));
    desk.settle(batch)
}

#[test] // TS 23.502 §4.3.3.2 step 1b: a flow that the policy gives to each session, and one that it has no more
fn another_policy_changes_the_session() {
    let mut desk = with_voice();
    let batches = configured(&mut desk, |c| {
        c.smf.data_networks.values_mut().for_each(|n| n.flows = vec![flow("video", 2, 11, Setup::Always)]);
    });
    let (_, m) = command(&mut desk, &batches).unwrap();
    let described = m.qos_flow_descriptions.unwrap().flows().unwrap();
    assert_eq!(
        described.iter().map(|d| d.operation).collect::<Vec<_>>(),
        [FlowOperation::Delete, FlowOperation::Create]
    );
    modified(&mut desk, &[]);
    says(&mut desk, 0, sm::ModificationComplete::new());
    assert_eq!(flows(&desk), ["video"]);
}

#[test] // TS 23.502 §4.3.3.2 step 1b: what a phone asked for stays within what the policy lets phones have
fn another_policy_for_what_phones_ask() {
    let mut desk = desk();
    says(&mut desk, 9, request(3));
    modified(&mut desk, &[]);
    says(&mut desk, 9, sm::ModificationComplete::new());
    let mut less = flow("game", 3, 12, Setup::OnRequest);
    let rate = Ambr { ul_kbps: 16, dl_kbps: 16 };
    less.gbr = Some(Gbr { guaranteed: rate, maximum: rate });
    configured(&mut desk, |c| c.smf.data_networks.values_mut().for_each(|n| n.flows = vec![less.clone()]));
    modified(&mut desk, &[]);
    says(&mut desk, 0, sm::ModificationComplete::new());
    assert_eq!(session(&desk).flows[0].gbr, less.gbr);
    less.setup = Setup::ByOperator;
    configured(&mut desk, |c| c.smf.data_networks.values_mut().for_each(|n| n.flows = vec![less.clone()]));
    modified(&mut desk, &[]);
    says(&mut desk, 0, sm::ModificationComplete::new());
    assert!(flows(&desk).is_empty());
}

#[test] // TS 23.502 §4.3.4.2 step 1b: the operator has the data network no more
fn a_data_network_that_is_taken_away_ends_its_sessions() {
    let mut desk = desk();
    let batches = configured(&mut desk, |c| c.smf.data_networks.clear());
    assert_eq!(released(&mut desk, &batches), Some(SmCause::RegularDeactivation));
}

#[test] // TS 23.502 §4.3.4.2 step 1e, TS 24.501 §6.3.3.3: released by the SMF, completed by the phone
fn the_operator_ends_a_session() {
    let mut desk = desk();
    let batches = order(&mut desk, Modification::Release);
    assert_eq!(released(&mut desk, &batches), Some(SmCause::RegularDeactivation));
    let batches = says(&mut desk, 0, sm::ReleaseComplete::new());
    assert!(desk.phone().unwrap().sessions.is_empty());
    assert!(batches.iter().flat_map(|b| &b.outputs).any(|o| matches!(o.effect, Effect::N4 { .. })));
}

#[test] // TS 23.502 §4.3.4.2 idle: an idle phone learns it when it returns
fn the_operator_ends_an_idle_phones_session() {
    let mut desk = desk();
    let association = desk.association();
    let batch = desk.input(Payload::Command(Command::ConnectionLost(association)));
    desk.settle(batch);
    let batches = order(&mut desk, Modification::Release);
    assert!(desk.phone().unwrap().sessions.is_empty());
    assert!(batches.iter().flat_map(n2).next().is_none());
}

#[test] // TS 23.502 §4.3.3.2 step 2a, TS 29.244 §6.3.3.3: the UPF refuses the change before anybody was told: all stays as it was
fn a_upf_that_refuses_a_change_keeps_the_session() {
    let mut desk = desk();
    let batch = desk.input(add("voice"));
    let batch = upf_says(&mut desk, &batch, PfcpCause::NoResourcesAvailable);
    assert!(n2(&batch).is_empty());
    assert!(matches!(refusals(&[batch])[..], [Refusal::Upf(Some(_))]));
    let s = session(&desk);
    assert!(s.flows.is_empty() && s.wanted.is_none() && s.up == UpState::Active);
    assert!(desk.phone().unwrap().is_idle());
}

#[test] // TS 24.501 §6.4.2.4: the same, asked for by the phone: it is told, and keeps its session
fn a_upf_that_refuses_what_the_phone_asks_for() {
    let mut desk = desk();
    let batch = desk.nas(CIPHERED, uplink(9, request(3)));
    let batch = upf_says(&mut desk, &batch, PfcpCause::RuleCreationModificationFailure);
    assert_eq!(
        cause(&mut desk, std::slice::from_ref(&batch)),
        Some((Pti(9), SmCause::InsufficientResources))
    );
    assert!(session(&desk).flows.is_empty() && session(&desk).wanted.is_none());
}

#[test] // TS 23.502 §4.3.3.2 step 12: the UPF refuses the second half: phone and gNB go back to what stands
fn a_upf_that_refuses_the_second_half() {
    let mut desk = desk();
    let batch = desk.input(add("voice"));
    desk.settle(batch);
    modified(&mut desk, &[]);
    let batch = desk.nas(CIPHERED, uplink(0, sm::ModificationComplete::new()));
    let batch = upf_says(&mut desk, &batch, PfcpCause::NoResourcesAvailable);
    let batches = desk.settle(batch);
    assert_eq!(pdrs(&batches).1, [3], "the UPF goes back");
    assert_eq!(asked(&batches).unwrap().qos_flow_to_release_list.len(), 1);
    let (_, m) = command(&mut desk, &batches).unwrap();
    assert_eq!(m.qos_rules.unwrap().rules().unwrap()[0].operation, RuleOperation::Delete);
    modified(&mut desk, &[]);
    let batches = says(&mut desk, 0, sm::ModificationComplete::new());
    assert!(matches!(refusals(&batches)[..], [Refusal::Upf(Some(_))]));
    let s = session(&desk);
    assert!(s.flows.is_empty() && s.wanted.is_none() && s.up == UpState::Active);
}

#[test] // TS 23.527 §4.3.2: a UPF that has lost the session: it begins anew
fn a_upf_that_has_lost_the_session() {
    let mut desk = desk();
    let batch = desk.input(add("voice"));
    let batch = upf_says(&mut desk, &batch, PfcpCause::SessionContextNotFound);
    assert_eq!(released(&mut desk, &[batch]), Some(SmCause::ReactivationRequested));
}

#[test] // TS 38.413 §8.2.3.3, TS 24.501 §6.3.2.5 a: a gNB that has not answered when T3591 gives up gets the session anew, whatever it answers then
fn a_gnb_that_answers_after_t3591_gave_up() {
    let mut desk = desk();
    let batch = desk.input(add("voice"));
    let mut batches = desk.settle(batch);
    while !desk.phone().unwrap().is_idle() {
        let batch = desk.expire(batches.last().unwrap());
        batches = desk.settle(batch);
    }
    assert!(given_up(&batches));
    assert_eq!(session(&desk).up, UpState::Inactive);
    assert!(session(&desk).flows.is_empty() && session(&desk).wanted.is_none());
    let late = modified(&mut desk, &[]);
    assert!(late.iter().all(|b| b.outputs.is_empty()));
    assert!(session(&desk).flows.is_empty() && session(&desk).up == UpState::Inactive);
}

#[test] // TS 38.413 §8.2.3.3: the phone has the change and its gNB is silent, or says no: the gNB gets the session anew, with the change
fn a_gnb_that_does_not_follow_the_phone() {
    for silent in [true, false] {
        let mut desk = desk();
        let batch = desk.input(add("voice"));
        desk.settle(batch);
        let mut batches = says(&mut desk, 0, sm::ModificationComplete::new());
        if silent {
            let batch = desk.expire(batches.last().unwrap());
            batches = desk.settle(batch);
        } else {
            let transfer = PduSessionResourceModifyUnsuccessfulTransfer::new(
                CauseRadioNetwork::RadioResourcesNotAvailable.into(),
            );
            let mut m = PduSessionResourceModifyResponse::new(desk.connection(), RAN_ID);
            m.pdu_session_resource_failed_to_modify_list_mod_res =
                vec![PduSessionResourceItem::new(psi(1), transfer.to_vec())];
            let batch = desk.ngap(m);
            batches = desk.settle(batch);
        }
        assert!(given_up(&batches), "silent: {silent}");
        assert_eq!(pdrs(&batches).0, [4], "the UPF has all of it");
        assert_eq!((flows(&desk), session(&desk).up), (vec!["voice"], UpState::Inactive));
        assert!(desk.phone().unwrap().is_idle());
    }
}

#[test] // TS 23.502 §4.3.7, TS 23.501 §5.6.8: the gNB gives one session up, its packets wait, the phone stays and is not told
fn a_user_plane_is_let_go() {
    let mut desk = desk();
    let batches = order(&mut desk, Modification::Deactivate);
    assert!(given_up(&batches) && told(&mut desk, &batches).is_empty());
    assert_eq!(session(&desk).up, UpState::Inactive);
    let mut m = PduSessionResourceReleaseResponse::new(desk.connection(), RAN_ID);
    m.pdu_session_resource_released_list_rel_res = vec![PduSessionResourceItem::new(psi(1), vec![0])];
    let batch = desk.ngap(m);
    assert!(batch.outputs.is_empty() && desk.phone().unwrap().amf.connection.is_some());
    let again = order(&mut desk, Modification::Deactivate);
    assert!(again.iter().all(|b| b.outputs.is_empty()), "there is nothing to let go");
}
