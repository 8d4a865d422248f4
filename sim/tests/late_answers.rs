//! A gNB that answers late: TS 38.413 §8.2.1, §8.3.1. No session is lost to a slow gNB, and what a gNB sets up after the core has
//! given up is released: the UE, the gNB, the SMF and the UPF have the same sessions.

use std::time::Duration;

use crate::common::by_hand::*;
use crate::common::*;
use whimbrel_control::config::Config;
use whimbrel_control::smf::UpState;
use whimbrel_control::{Command as CoreCommand, Event as CoreEvent};
use whimbrel_ids::{PduSessionId, Teid};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    AssociatedQosFlowItem, CauseRadioNetwork, GtpTunnel, PduSessionResourceItem, QosFlowPerTnlInformation,
    TransportLayerAddress, UpTransportLayerInformation,
};
use whimbrel_ngap::msg::{
    InitialContextSetupFailure, PduSessionResourceSetupRequest, PduSessionResourceSetupResponse,
};
use whimbrel_ngap::transfer::{
    PduSessionResourceSetupResponseTransfer, PduSessionResourceSetupUnsuccessfulTransfer,
};
use whimbrel_ran::ue::{Event, SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, default_config, ue_config};

const GNB: GnbIndex = GnbIndex(0);

fn establish() -> UeCommand {
    let pdu_session_type = PduSessionType::Ipv4;
    UeCommand::EstablishSession(SessionRequest { dnn: None, s_nssai: None, pdu_session_type })
}

/// So many registered UEs at one gNB, which takes so long for a message from now on.
fn loaded(seed: u64, config: Config, ues: u32, per_message: Duration) -> (Sim, Vec<UeIndex>) {
    let mut net = Sim::builder(seed).config(config).build();
    net.add_gnb(gnb_config(1));
    let ues: Vec<UeIndex> = (1..=ues).map(|n| net.add_ue(GNB, ue_config(n))).collect();
    net.settle(SECOND / 10);
    ues.iter().for_each(|&ue| net.command(ue, UeCommand::Register));
    net.settle(SECOND);
    assert!(ues.iter().all(|&ue| registered(&net, ue)));
    net.slow_down(GNB, per_message);
    (net, ues)
}

/// The UEs, their gNB, the SMF and the UPF each have so many sessions, and the core is at rest.
fn all_have(net: &mut Sim, sessions: usize, what: &str) {
    net.slow_down(GNB, Duration::ZERO);
    net.settle(SECOND * 120);
    let of_ues: usize = (0..net.ues()).map(|n| net.ue_ref(UeIndex(n)).sessions().count()).sum();
    let active =
        |p: &whimbrel_control::UeContext| p.sessions.values().filter(|s| s.up == UpState::Active).count();
    let of_smf: usize = net.cta().contexts().map(active).sum();
    let all: usize = net.cta().contexts().map(|p| p.sessions.len()).sum();
    let had = [of_ues, net.gnb_ref(GNB).tunnels(), of_smf, all, net.upf_sessions()];
    assert_eq!(had, [sessions; 5], "UEs, gNB, SMF active, SMF, UPF: {what}");
    assert!(net.cta().contexts().all(|p| p.is_idle()), "{what}");
    no_violations(net);
}

#[test] // TS 38.413 §8.2.1.2 late: a session that the gNB sets up while the UE awaits it is used
fn a_session_that_is_set_up_late_is_used() {
    for seconds in [7, 20, 50] {
        let (mut net, ues) = loaded(1, default_config(), 1, SECOND * seconds);
        net.command(ues[0], establish());
        net.settle(SECOND * 60);
        all_have(&mut net, 1, &format!("after {seconds} s"));
        assert_eq!(first_refusal(&net), None);
    }
}

#[test] // TS 38.413 §8.2.1.3: a gNB that refuses late leaves nothing anywhere
fn a_session_that_is_refused_late_is_rejected() {
    for seconds in [7, 20, 50] {
        let (mut net, ues) = loaded(2, default_config(), 1, SECOND * seconds);
        net.gnb_mut(GNB).faults_mut().refuse_sessions.push(psi(1));
        net.command(ues[0], establish());
        net.settle(SECOND * 60);
        all_have(&mut net, 0, &format!("after {seconds} s"));
        assert!(net.ue_events(ues[0]).iter().any(|(_, e)| matches!(e, Event::Refused { .. })));
    }
}

#[test] // TS 38.413 §8.2.1.2 late: what the gNB sets up after the core has given up is released at gNB and UE
fn a_session_that_is_set_up_after_the_guard_is_released() {
    for seconds in [19, 20] {
        let mut config = default_config();
        config.timers.session_setup = SECOND * 18;
        let (mut net, ues) = loaded(3, config, 1, SECOND * seconds);
        net.command(ues[0], establish());
        net.advance(SECOND * 17);
        assert_eq!(first_refusal(&net), None);
        net.advance(SECOND * 3 / 2);
        assert!(first_refusal(&net).is_some(), "after {seconds} s");
        net.slow_down(GNB, Duration::ZERO); // for what comes after the command
        all_have(&mut net, 0, &format!("after {seconds} s"));
    }
}

#[test] // TS 38.413 §8.3.1.2 late: an idle UE that comes back over a slow gNB has its session, and stays connected
fn a_context_that_is_set_up_late_is_used() {
    for seconds in [7, 13] {
        let (mut net, ues) = loaded(4, default_config(), 1, Duration::ZERO);
        net.command(ues[0], establish());
        net.settle(SECOND);
        go_idle(&mut net, ues[0]);
        net.slow_down(GNB, SECOND * seconds);
        net.command(ues[0], UeCommand::ServiceRequest);
        net.settle(SECOND * 30);
        assert!(net.ue_ref(ues[0]).is_connected(), "after {seconds} s");
        all_have(&mut net, 1, &format!("after {seconds} s"));
        assert_eq!(first_refusal(&net), None);
    }
}

#[test] // TS 38.413 §8.3.1.3: a CTA that takes over may repeat a request that was answered; the gNB's refusal of that one ends nothing
fn a_context_setup_failure_that_answers_a_repeated_request_ends_nothing() {
    let (mut net, ue) = two_gnbs(20, 1);
    let (amf, ran) = (connection(&net).amf_ue_ngap_id, connection(&net).ran_ue_ngap_id);
    let cause = CauseRadioNetwork::RadioConnectionWithUeLost.into();
    say(&mut net, SOURCE, InitialContextSetupFailure::new(amf, ran, cause));
    net.settle(SECOND);
    assert!(net.ue_ref(ue).is_connected());
    assert_eq!(context(&net).sessions[&psi(1)].up, UpState::Active);
}

#[test] // TS 38.413 §8.2.1.2 late, §8.3.1.2 late: 500 UEs ask at once, and their gNB takes 20 ms for each: none is lost
fn a_burst_of_sessions_at_a_slow_gnb_loses_none() {
    let (mut net, ues) = loaded(5, default_config(), 500, SECOND / 50);
    ues.iter().for_each(|&ue| net.command(ue, establish()));
    net.settle(SECOND * 15);
    all_have(&mut net, 500, "sessions");
    assert_eq!(first_refusal(&net), None);
    // And they come back together from idle.
    let cause = whimbrel_ngap::ie::CauseRadioNetwork::UserInactivity;
    ues.iter().for_each(|&ue| net.release(ue, cause.into()));
    net.settle(SECOND);
    net.slow_down(GNB, SECOND / 50);
    ues.iter().for_each(|&ue| net.command(ue, UeCommand::ServiceRequest));
    net.settle(SECOND * 15);
    all_have(&mut net, 500, "service requests");
    assert_eq!(first_refusal(&net), None);
}

#[test] // TS 38.413 §8.2.1.2 late: the UE or the network ends a session that the gNB has yet to set up
fn a_session_that_ends_before_the_gnb_has_answered_is_nowhere() {
    type End = fn(&mut Sim, UeIndex);
    let ends: [(&str, End); 4] = [
        ("the UE deregisters", |net, ue| net.command(ue, UeCommand::Deregister { switch_off: false })),
        ("the UE comes on another connection", |net, ue| {
            net.lose_radio(ue);
            net.command(ue, UeCommand::ServiceRequest);
        }),
        ("the UPF is left", |net, _| {
            let id = net.cta().contexts().next().expect("a UE").id;
            net.order(id, CoreCommand::LeaveUpf(whimbrel_control::UpfId(0)));
        }),
        ("the gNB is lost", |net, _| net.restart_gnb(GNB)),
    ];
    for (what, end) in ends {
        let (mut net, ues) = loaded(6, default_config(), 1, SECOND * 7);
        net.command(ues[0], establish());
        net.settle(SECOND * 2);
        end(&mut net, ues[0]);
        net.settle(SECOND * 60);
        net.slow_down(GNB, Duration::ZERO);
        net.settle(SECOND * 300);
        let sessions: usize = net.cta().contexts().map(|p| p.sessions.len()).sum();
        assert_eq!(net.upf_sessions(), sessions, "{what}");
        let active = net.cta().contexts().flat_map(|p| p.sessions.values());
        let active = active.filter(|s| s.up == UpState::Active).count();
        assert_eq!(net.gnb_ref(GNB).tunnels(), active, "{what}");
        assert_eq!(net.ue_ref(ues[0]).sessions().count(), sessions, "{what}");
        assert!(net.cta().contexts().all(|p| p.is_idle()), "{what}");
    }
}

/// The source's or the target's answer to a setup of the second session.
fn set_up(m: &PduSessionResourceSetupRequest, teid: u32) -> PduSessionResourceSetupResponse {
    let end = GtpTunnel::new(TransportLayerAddress::V4(TARGET_N3), Teid(teid));
    let flow = AssociatedQosFlowItem::new(whimbrel_ids::Qfi::new(1).expect("a QFI"));
    let tunnel = QosFlowPerTnlInformation::new(UpTransportLayerInformation::GtpTunnel(end), vec![flow]);
    let mut answer = PduSessionResourceSetupResponse::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id);
    let transfer = PduSessionResourceSetupResponseTransfer::new(tunnel).to_vec();
    answer.pdu_session_resource_setup_list_su_res = vec![PduSessionResourceItem::new(psi(2), transfer)];
    answer
}

fn setup_request(net: &mut Sim, gnb: GnbIndex) -> PduSessionResourceSetupRequest {
    let heard = net.take_ngap(gnb);
    let asked = heard.into_iter().find_map(|m| match m {
        Message::PduSessionResourceSetupRequest(m) => Some(m),
        _ => None,
    });
    asked.expect("a session is asked for")
}

fn of(m: &PduSessionResourceSetupRequest) -> Vec<PduSessionId> {
    m.pdu_session_resource_setup_list_su_req.iter().map(|i| i.pdu_session_id).collect()
}

/// A UE with one session, whose gNB has been asked for a second one and does not answer.
fn unanswered(seed: u64) -> (Sim, PduSessionResourceSetupRequest) {
    let (mut net, ue) = two_gnbs(seed, 1);
    net.command(ue, establish());
    while context(&net).sessions.get(&psi(2)).is_none_or(|s| s.n3.is_none()) {
        net.advance(SECOND / 10_000);
    }
    net.take_over(SOURCE);
    net.settle(SECOND / 20);
    let asked = setup_request(&mut net, SOURCE);
    assert_eq!(of(&asked), [psi(2)]);
    (net, asked)
}

/// The source refuses the second session because it is about to hand the UE over.
fn refuse_for_handover(net: &mut Sim, m: &PduSessionResourceSetupRequest) {
    let cause = CauseRadioNetwork::NgIntraSystemHandoverTriggered.into();
    let transfer = PduSessionResourceSetupUnsuccessfulTransfer::new(cause).to_vec();
    let mut answer = PduSessionResourceSetupResponse::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id);
    answer.pdu_session_resource_failed_to_setup_list_su_res =
        vec![PduSessionResourceItem::new(psi(2), transfer)];
    say(net, SOURCE, answer);
}

/// The target was asked for the second session, with the message to the UE; it answers, and the session stands there.
fn comes_up_at_target(net: &mut Sim, former: &PduSessionResourceSetupRequest) {
    let asked = setup_request(net, TARGET);
    assert_eq!(of(&asked), [psi(2)]);
    assert!(asked.pdu_session_resource_setup_list_su_req[0].pdu_session_nas_pdu.is_some());
    // The source's answer belongs to no procedure any more.
    say(net, SOURCE, set_up(former, 0x66));
    assert_eq!(context(net).sessions[&psi(2)].up, UpState::Establishing);
    say(net, TARGET, set_up(&asked, 0x77));
    assert_eq!(context(net).sessions[&psi(2)].up, UpState::Active);
    assert_eq!(an(net, 2), Some((TARGET_N3.into(), Teid(0x77))));
    assert_eq!(context(net).sessions[&psi(1)].up, UpState::Active);
    assert_eq!(first_refusal(net), None);
    let config = std::sync::Arc::new(default_config());
    let id = context(net).id;
    assert!(net.recorder().replay(id, &config) > 5);
}

#[test] // TS 23.502 §4.9.1.3.1 set-up: a session that the source has yet to set up is set up at the target of an N2 handover
fn a_session_that_the_source_of_an_n2_handover_did_not_set_up_is_set_up_at_the_target() {
    let (mut net, former) = unanswered(7);
    let m = handover_required(&net, &[1]);
    say(&mut net, SOURCE, m);
    let id = request(&mut net).amf_ue_ngap_id;
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, false)]));
    command(&mut net);
    net.settle(SECOND * 2);
    say(&mut net, TARGET, notify(id));
    comes_up_at_target(&mut net, &former);
}

#[test] // TS 23.502 §4.9.1.3.1 set-up, §4.9.1.2.2: the same over Xn
fn a_session_that_the_source_of_an_xn_handover_did_not_set_up_is_set_up_at_the_target() {
    let (mut net, former) = unanswered(8);
    let m = path_switch_request(&net, &[1]);
    say(&mut net, TARGET, m);
    comes_up_at_target(&mut net, &former);
}

#[test] // TS 23.502 §4.9.1.3.1 set-up, TS 38.413 §9.3.1.2: a source that refuses for a handover: the target is asked
fn a_session_that_the_source_refuses_for_a_handover_is_set_up_at_the_target() {
    let (mut net, former) = unanswered(10);
    refuse_for_handover(&mut net, &former);
    assert!(net.take_ngap(SOURCE).is_empty(), "it is not asked again at once, and the UE is not refused");
    let m = handover_required(&net, &[1]);
    say(&mut net, SOURCE, m);
    let id = request(&mut net).amf_ue_ngap_id;
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, false)]));
    command(&mut net);
    say(&mut net, TARGET, notify(id));
    comes_up_at_target(&mut net, &former);
}

#[test] // TS 23.502 §4.9.1.3.1 set-up: where no handover follows, the gNB is asked again; not for ever
fn a_session_that_is_refused_for_a_handover_that_does_not_come_is_asked_for_again() {
    let (mut net, asked) = unanswered(11);
    for _ in 0..2 {
        refuse_for_handover(&mut net, &asked);
        assert!(net.take_ngap(SOURCE).is_empty(), "not at once");
        net.advance(SECOND * 16);
        assert_eq!(of(&setup_request(&mut net, SOURCE)), [psi(2)]);
    }
    refuse_for_handover(&mut net, &asked);
    assert!(first_refusal(&net).is_some());
    assert_eq!(context(&net).sessions.len(), 1);
}

#[test] // TS 38.413 §8.4.2.2: a target that takes 7 s has the UE: it is the source that is to give up first (§8.4.1.2)
fn a_target_that_answers_late_is_used() {
    let (mut net, _) = two_gnbs(9, 1);
    net.take_over(SOURCE);
    let m = handover_required(&net, &[1]);
    say(&mut net, SOURCE, m);
    let id = request(&mut net).amf_ue_ngap_id;
    net.settle(SECOND * 7);
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, false)]));
    command(&mut net);
    say(&mut net, TARGET, notify(id));
    assert_eq!(an(&net, 1), at_target(1));
    assert!(!core_events(&net).any(|e| matches!(e, CoreEvent::Refused { .. })));
}
