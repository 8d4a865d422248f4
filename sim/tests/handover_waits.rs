//! A handover that meets a session whose user plane is on its way up: TS 23.502 §4.9.1.2.2, §4.9.1.3.2, TS 38.413 §8.4.1, §8.4.4.
//!
//! The source sends HANDOVER REQUIRED right behind its answer to the setup, and the UPF takes a moment; PATH SWITCH REQUEST comes
//! over another association than that answer, and may be here first.

use crate::common::by_hand::*;
use crate::common::stage::session;
use crate::common::*;
use whimbrel_control::smf::UpState;
use whimbrel_control::{Command as CoreCommand, Event as CoreEvent, Refusal, UeContext, UpfId};
use whimbrel_ids::{AmfUeNgapId, GlobalGnbId, PlmnId, Qfi, Teid};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    AssociatedQosFlowItem, Cause, CauseRadioNetwork, GlobalRanNodeId, GtpTunnel, PduSessionResourceItem,
    QosFlowAcceptedItem, QosFlowPerTnlInformation, TargetId, TransportLayerAddress,
    UpTransportLayerInformation,
};
use whimbrel_ngap::msg::{
    HandoverCancel, InitialContextSetupResponse, PathSwitchRequest, PathSwitchRequestAcknowledge,
    PduSessionResourceSetupResponse, UeContextReleaseRequest,
};
use whimbrel_ngap::transfer::{PathSwitchRequestTransfer, PduSessionResourceSetupResponseTransfer};
use whimbrel_pfcp::ie::Cause as PfcpCause;
use whimbrel_pfcp::msg::SessionModificationResponse;
use whimbrel_pfcp::{Frame, Message as Pfcp};
use whimbrel_ran::UeId;
use whimbrel_ran::gnb::{self, Event as GnbEvent, Via};
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{Faults, GnbIndex, Sim, UeIndex, UpfState, default_config, ue_config};

/// A UE with one session that asks for a second one. Both gNBs are driven by hand, and the source was asked for it.
fn asked(seed: u64) -> Sim {
    let (mut net, ue) = two_gnbs(seed, 1);
    net.command(ue, session());
    hold(&mut net, |p| p.sessions.get(&psi(2)).is_some_and(|s| s.n3.is_some()));
    let heard = net.take_ngap(SOURCE);
    assert!(matches!(heard.as_slice(), [Message::PduSessionResourceSetupRequest(_)]), "{heard:?}");
    net
}

/// Takes the source over once the core has come so far: what it is asked then, it does not answer by itself.
fn hold(net: &mut Sim, so_far: fn(&UeContext) -> bool) {
    let begun = net.now();
    while !so_far(context(net)) {
        assert!(net.now().since(begun) < SECOND, "it does not come so far");
        net.advance(SECOND / 10_000);
    }
    net.take_over(SOURCE);
    net.settle(SECOND / 20);
}

/// Where the source awaits a session's packets.
fn at_source(n: u8) -> End {
    ([127, 0, 1, 1].into(), Teid(0x70 + u32::from(n)))
}

/// A session that the source has set up.
fn done(n: u8) -> PduSessionResourceItem {
    let end = GtpTunnel::new(TransportLayerAddress::V4([127, 0, 1, 1].into()), Teid(0x70 + u32::from(n)));
    let flow = AssociatedQosFlowItem::new(Qfi::new(1).expect("a QFI"));
    let tunnel = QosFlowPerTnlInformation::new(UpTransportLayerInformation::GtpTunnel(end), vec![flow]);
    PduSessionResourceItem::new(psi(n), PduSessionResourceSetupResponseTransfer::new(tunnel).to_vec())
}

/// The source's answer to the setup of the second session.
fn set_up(net: &Sim) -> PduSessionResourceSetupResponse {
    let c = connection(net);
    let mut m = PduSessionResourceSetupResponse::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id);
    m.pdu_session_resource_setup_list_su_res = vec![done(2)];
    m
}

/// The source has answered, the UPF has not, and HANDOVER REQUIRED is there for these sessions.
fn required(seed: u64, sessions: &[u8]) -> Sim {
    let mut net = asked(seed);
    net.set_upf(UpfState::Silent);
    let (answer, m) = (set_up(&net), handover_required(&net, sessions));
    say(&mut net, SOURCE, answer);
    say(&mut net, SOURCE, m);
    net
}

/// The source was asked, and a path switch of these sessions is there before its answer.
fn switching(seed: u64, sessions: &[u8]) -> Sim {
    let mut net = asked(seed);
    let m = path_switch_request(&net, sessions);
    say(&mut net, TARGET, m);
    net
}

fn waits(net: &mut Sim) -> bool {
    net.take_ngap(SOURCE).is_empty()
        && net.take_ngap(TARGET).is_empty()
        && context(net).amf.mobility.target.is_some()
}

fn psis(list: &[PduSessionResourceItem]) -> Vec<u8> {
    list.iter().map(|i| i.pdu_session_id.value()).collect()
}

fn acknowledge(net: &mut Sim) -> Box<PathSwitchRequestAcknowledge> {
    let heard = net.take_ngap(TARGET);
    match heard.as_slice() {
        [Message::PathSwitchRequestAcknowledge(m), ..] => m.clone().into(),
        other => panic!("{other:?}"),
    }
}

fn failed(net: &mut Sim) -> bool {
    matches!(net.take_ngap(TARGET).as_slice(), [Message::PathSwitchRequestFailure(_)])
}

fn up(net: &Sim, n: u8) -> Option<UpState> {
    context(net).sessions.get(&psi(n)).map(|s| s.up)
}

/// The sessions that the target is asked for.
fn requested_sessions(net: &mut Sim) -> Vec<u8> {
    request(net).pdu_session_resource_setup_list_ho_req.iter().map(|i| i.pdu_session_id.value()).collect()
}

/// The source gives the UE up.
fn give_up(net: &mut Sim) {
    let c = connection(net);
    let cause = CauseRadioNetwork::RadioConnectionWithUeLost.into();
    let m = UeContextReleaseRequest::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause);
    say(net, SOURCE, m);
}

/// What ended the handover has left nothing of it, and UE and core go on.
fn over(net: &mut Sim) {
    net.set_upf(UpfState::Answering);
    // A gNB that never answers a setup, and a UE that never answers the release: `session_setup` and five times T3592.
    net.settle(SECOND * 300);
    assert!(net.cta().contexts().all(|p| p.is_idle() && p.amf.mobility.target.is_none()));
    assert_eq!(net.cta().contexts().map(|p| p.sessions.len()).sum::<usize>(), net.upf_sessions());
    let config = std::sync::Arc::new(default_config());
    for id in net.cta().contexts().map(|p| p.id).collect::<Vec<_>>() {
        assert!(net.recorder().replay(id, &config) > 5);
    }
}

#[test] // TS 23.502 §4.9.1.3.2 step 1: HANDOVER REQUIRED is ahead of the UPF's answer: the target is asked once that is there
fn handover_required_before_the_upf_has_answered() {
    for sessions in [&[1, 2][..], &[2]] {
        let mut net = required(1, sessions);
        assert!(waits(&mut net));
        net.set_upf(UpfState::Answering);
        net.settle(SECOND * 4);
        assert_eq!(requested_sessions(&mut net), sessions);
        assert!(net.take_ngap(SOURCE).is_empty(), "its preparation goes on");
        assert_eq!(up(&net, 2), Some(UpState::Active));
    }
}

#[test] // TS 23.502 §4.9.1.3.2 step 1: a handover waits for the sessions that it names alone
fn handover_required_for_other_sessions() {
    let mut net = required(2, &[1]);
    assert_eq!(requested_sessions(&mut net), [1]);
    over(&mut net);
}

#[test] // TS 38.413 §8.4.1.3: the UPF never answers: after the guard time the target is asked for the rest, or no gNB
fn handover_required_and_a_silent_upf() {
    let mut net = required(3, &[1, 2]);
    net.settle(SECOND * 6);
    assert_eq!(requested_sessions(&mut net), [1]);
    over(&mut net);
    let mut net = required(4, &[2]);
    net.settle(SECOND * 6);
    let heard = net.take_ngap(SOURCE);
    let Some(Message::HandoverPreparationFailure(m)) = heard.first() else { panic!("{heard:?}") };
    assert_eq!(m.cause, Cause::RadioNetwork(CauseRadioNetwork::UnknownPduSessionId));
    assert!(net.take_ngap(TARGET).is_empty(), "it was not asked");
    over(&mut net);
}

#[test] // TS 38.413 §8.4.1.2, §8.4.5: what ends a handover ends one that waits; its target has heard of nothing
fn what_ends_a_handover_that_waits() {
    type End = fn(&mut Sim);
    let ends: [(&str, End); 6] = [
        ("release", |net| give_up(net)),
        ("cancel", |net| {
            let c = connection(net);
            let cause = CauseRadioNetwork::HandoverCancelled.into();
            let m = HandoverCancel::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause);
            say(net, SOURCE, m);
        }),
        ("deregistration", |net| {
            let id = context(net).id;
            net.order(id, CoreCommand::Superseded);
        }),
        ("the source is lost", |net| net.disconnect(SOURCE)),
        ("the source resets", |net| net.restart_gnb(SOURCE)),
        ("the target is lost", |net| net.disconnect(TARGET)),
    ];
    for (what, end) in ends {
        let mut net = required(5, &[1, 2]);
        assert!(waits(&mut net), "{what}");
        end(&mut net);
        net.settle(SECOND / 5);
        assert!(net.cta().contexts().all(|p| p.amf.mobility.target.is_none()), "{what}");
        let reported =
            net.take_ngap(SOURCE).iter().any(|m| matches!(m, Message::HandoverPreparationFailure(_)));
        assert_eq!(reported, what == "the target is lost", "{what}");
        assert!(net.take_ngap(TARGET).is_empty(), "{what}");
        over(&mut net);
        assert!(net.take_ngap(TARGET).is_empty(), "{what}");
    }
}

#[test] // TS 23.502 §4.3.4.2: the sessions are released meanwhile: there is nothing left to wait for, nor to hand over
fn sessions_that_are_released_meanwhile() {
    let mut net = required(15, &[1, 2]);
    let id = context(&net).id;
    net.order(id, CoreCommand::LeaveUpf(UpfId(0)));
    net.settle(SECOND / 20);
    let heard = net.take_ngap(SOURCE);
    assert!(matches!(heard.first(), Some(Message::HandoverPreparationFailure(_))), "{heard:?}");
    over(&mut net);
    assert!(net.take_ngap(TARGET).is_empty());
}

#[test] // TS 38.413 §8.4.1.4: another HANDOVER REQUIRED takes the place of one that waits
fn another_handover_required() {
    let mut net = required(6, &[1, 2]);
    let m = handover_required(&net, &[1]);
    say(&mut net, SOURCE, m);
    assert_eq!(requested_sessions(&mut net), [1], "the target is asked for the second only");
    over(&mut net);
}

#[test] // TS 23.502 §4.9.1.2.2: PATH SWITCH REQUEST is ahead of the source's answer: it waits for gNB and UPF
fn path_switch_before_the_source_has_answered() {
    for silent in [false, true] {
        let mut net = switching(7, &[1, 2]);
        assert!(waits(&mut net));
        if silent {
            net.set_upf(UpfState::Silent);
        }
        let answer = set_up(&net);
        say(&mut net, SOURCE, answer);
        assert!(!silent || waits(&mut net));
        net.set_upf(UpfState::Answering);
        net.settle(SECOND * 4);
        assert_eq!(psis(&acknowledge(&mut net).pdu_session_resource_switched_list), [1, 2]);
        assert_eq!([an(&net, 1), an(&net, 2)], [at_target(1), at_target(2)]);
        assert_eq!(downlink(&mut net, 2).0, at_target(2));
        over(&mut net);
    }
}

#[test] // TS 23.502 §4.9.1.2.2, TS 38.413 §8.3.1: it is ahead of the answer to INITIAL CONTEXT SETUP REQUEST
fn path_switch_before_the_source_has_the_context() {
    let (mut net, ue) = two_gnbs(8, 2);
    go_idle(&mut net, ue);
    net.command(ue, UeCommand::ServiceRequest);
    hold(&mut net, |p| p.amf.connection.as_ref().is_some_and(|c| c.context_pending));
    let heard = net.take_ngap(SOURCE);
    let [Message::InitialContextSetupRequest(asked)] = heard.as_slice() else { panic!("{heard:?}") };
    assert!(!asked.pdu_session_resource_setup_list_cxt_req.is_empty());
    let m = path_switch_request(&net, &[1]);
    say(&mut net, TARGET, m);
    assert!(waits(&mut net));
    let mut answer = InitialContextSetupResponse::new(asked.amf_ue_ngap_id, asked.ran_ue_ngap_id);
    answer.pdu_session_resource_setup_list_cxt_res = vec![done(1)];
    say(&mut net, SOURCE, answer);
    assert_eq!(psis(&acknowledge(&mut net).pdu_session_resource_switched_list), [1]);
    let (to, earlier) = downlink(&mut net, 1);
    assert_eq!((an(&net, 1), to), (at_target(1), at_target(1)));
    assert_eq!(earlier, [(at_source(1), END_MARKER)], "the target waits for it");
    over(&mut net);
}

#[test] // TS 23.502 §4.2.3.2 step 12: the same with a UE that has its context, and asks for a session that was deactivated
fn path_switch_before_the_source_has_set_up_what_a_service_request_asked_for() {
    let (mut net, ue) = two_gnbs(17, 2);
    net.gnb_input(SOURCE, gnb::Input::LetSessionGo(UeId(0), psi(2)));
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::ServiceRequest);
    hold(&mut net, |p| !p.is_idle());
    let heard = net.take_ngap(SOURCE);
    assert!(matches!(heard.as_slice(), [Message::PduSessionResourceSetupRequest(_)]), "{heard:?}");
    let m = path_switch_request(&net, &[1, 2]);
    say(&mut net, TARGET, m);
    assert!(waits(&mut net));
    let answer = set_up(&net);
    say(&mut net, SOURCE, answer);
    assert_eq!(psis(&acknowledge(&mut net).pdu_session_resource_switched_list), [1, 2]);
    let (to, earlier) = downlink(&mut net, 2);
    assert_eq!(to, at_target(2));
    assert!(earlier.contains(&(at_source(2), END_MARKER)), "{earlier:?}");
    over(&mut net);
}

#[test] // TS 38.413 §8.4.4.2, §8.4.4.3: source or UPF never answer: what is not up after the guard time is not switched
fn path_switch_and_no_answer() {
    let mut net = switching(9, &[1, 2]);
    net.settle(SECOND * 6);
    let answer = acknowledge(&mut net);
    assert_eq!(psis(&answer.pdu_session_resource_switched_list), [1]);
    assert_eq!(psis(&answer.pdu_session_resource_released_list_ps_ack), [2]);
    over(&mut net);
    let mut net = switching(10, &[2]);
    net.set_upf(UpfState::Silent);
    let answer = set_up(&net);
    say(&mut net, SOURCE, answer);
    net.settle(SECOND * 6);
    assert!(failed(&mut net));
    over(&mut net);
}

#[test] // TS 38.413 §8.4.4.3: what ends a path switch ends one that waits
fn what_ends_a_path_switch_that_waits() {
    type End = fn(&mut Sim);
    let ends: [(&str, End); 4] = [
        ("release", |net| give_up(net)),
        ("deregistration", |net| {
            let id = context(net).id;
            net.order(id, CoreCommand::Superseded);
        }),
        ("another gNB's", |net| {
            let third = net.add_gnb(gnb_config(3));
            net.settle(SECOND / 10);
            net.take_over(third);
            let m = path_switch_request(net, &[1]);
            net.inject(third, &octets(m));
        }),
        ("handover required", |net| {
            let m = handover_required(net, &[1]);
            say(net, SOURCE, m);
        }),
    ];
    for (what, end) in ends {
        let mut net = switching(11, &[1, 2]);
        assert!(waits(&mut net), "{what}");
        end(&mut net);
        net.settle(SECOND / 5);
        let heard = net.take_ngap(TARGET);
        assert!(matches!(heard.first(), Some(Message::PathSwitchRequestFailure(_))), "{what}: {heard:?}");
        over(&mut net);
    }
    let mut net = switching(12, &[1, 2]);
    net.disconnect(TARGET);
    assert!(context(&net).amf.mobility.target.is_none());
    over(&mut net);
}

#[test] // TS 23.502 §4.9.1.2.2: the source's answer comes when the UE is served elsewhere: it names a connection that is over
fn the_source_answers_after_the_path_switch() {
    let mut net = switching(13, &[1]);
    assert_eq!(psis(&acknowledge(&mut net).pdu_session_resource_switched_list), [1]);
    let c = connection(&net).clone();
    let mut answer = PduSessionResourceSetupResponse::new(c.amf_ue_ngap_id, whimbrel_ids::RanUeNgapId(1));
    answer.pdu_session_resource_setup_list_su_res = vec![done(2)];
    say(&mut net, SOURCE, answer);
    assert!(net.take_ngap(SOURCE).is_empty(), "nothing to complain of");
    assert_ne!(up(&net, 2), Some(UpState::Active));
    over(&mut net);
    assert_eq!(up(&net, 2), None, "what no gNB has had is taken back");
    assert_eq!(an(&net, 1), at_target(1));
}

/// The UPF accepts a modification.
fn accept(net: &mut Sim, request: &[u8]) {
    let frame = Frame::parse(request).expect("a request of ours");
    let sequence = frame.header.sequence;
    let up_seid = frame.header.seid;
    let ours = context(net).sessions.values().find(|s| s.up_seid == up_seid).map(|s| s.cp_seid);
    let m = Pfcp::from(SessionModificationResponse::new(PfcpCause::RequestAccepted));
    net.inject_pfcp(&m.to_octets(ours, sequence));
}

#[test] // TS 23.502 §4.9.1.2.2: a session that stays behind is led to the source after the others have gone: its packets wait
fn a_session_that_is_led_to_the_source_meanwhile() {
    let mut net = asked(14);
    net.set_upf(UpfState::ByHand);
    let (answer, m) = (set_up(&net), path_switch_request(&net, &[1]));
    say(&mut net, SOURCE, answer);
    say(&mut net, TARGET, m);
    let requests = net.take_pfcp();
    let [led, switched] = requests.as_slice() else { panic!("{} requests", requests.len()) };
    accept(&mut net, switched);
    net.settle(SECOND / 20);
    assert_eq!(psis(&acknowledge(&mut net).pdu_session_resource_switched_list), [1]);
    accept(&mut net, led);
    assert_eq!(up(&net, 2), Some(UpState::Inactive), "its gNB is not the UE's any more");
    for request in net.take_pfcp() {
        accept(&mut net, &request);
    }
    assert_eq!((up(&net, 2), an(&net, 2)), (Some(UpState::Inactive), None));
}

/// The third gNB, driven by hand like the second.
const NEXT: GnbIndex = GnbIndex(2);

/// The UE was sent to the second gNB and has gone on to a third one, over Xn, whose PATH SWITCH REQUEST is ahead of the second one's
/// HANDOVER NOTIFY. Gives the name of the connection at the second.
fn gone_on(seed: u64) -> (Sim, AmfUeNgapId) {
    let (mut net, _) = two_gnbs(seed, 1);
    let next = net.add_gnb(gnb_config(3));
    net.settle(SECOND / 10);
    net.take_over(SOURCE);
    net.take_over(next);
    let m = handover_required(&net, &[1]);
    say(&mut net, SOURCE, m);
    let asked = request(&mut net);
    say(&mut net, TARGET, acknowledgement(asked.amf_ue_ngap_id, vec![admitted(1, true)]));
    command(&mut net);
    let m = wants_it(&net, asked.amf_ue_ngap_id);
    say(&mut net, next, m);
    assert!(net.take_ngap(next).is_empty() && context(&net).amf.mobility.target.is_some(), "it waits");
    (net, asked.amf_ue_ngap_id)
}

/// PATH SWITCH REQUEST of the third gNB, which has its tunnels where the second one has those of the session after.
fn wants_it(net: &Sim, of: AmfUeNgapId) -> PathSwitchRequest {
    let mut m = path_switch_request(net, &[1]);
    m.source_amf_ue_ngap_id = of;
    let flow = QosFlowAcceptedItem::new(Qfi::new(1).expect("a QFI"));
    let transfer = PathSwitchRequestTransfer::new(tunnel(2), vec![flow]).to_vec();
    m.pdu_session_resource_to_be_switched_dl_list = vec![PduSessionResourceItem::new(psi(1), transfer)];
    m
}

#[test] // TS 23.502 §4.9.1.2.2, §4.9.1.3.3 step 5: PATH SWITCH REQUEST is ahead of HANDOVER NOTIFY, of whose gNB it comes
fn path_switch_before_the_ue_is_known_to_be_where_it_came_from() {
    for upf in [UpfState::Answering, UpfState::Silent] {
        let (mut net, at_target_too) = gone_on(16);
        let m = wants_it(&net, at_target_too);
        say(&mut net, NEXT, m); // the same again
        net.set_upf(upf);
        say(&mut net, TARGET, notify(at_target_too));
        net.set_upf(UpfState::Answering);
        net.settle(SECOND * 4);
        let heard = net.take_ngap(NEXT);
        let [Message::PathSwitchRequestAcknowledge(m)] = heard.as_slice() else { panic!("{heard:?}") };
        assert_eq!(psis(&m.pdu_session_resource_switched_list), [1]);
        assert_eq!((an(&net, 1), downlink(&mut net, 1).0), (at_target(2), at_target(2)));
        assert!(matches!(net.take_ngap(SOURCE).as_slice(), [Message::UeContextReleaseCommand(_)]), "{upf:?}");
        assert!(context(&net).amf.mobility.forwarding_source.is_none());
        over(&mut net);
    }
}

#[test] // TS 38.413 §8.4.4.3: the UE never was at the named source, or its gNBs are lost meanwhile
fn what_ends_a_path_switch_that_waits_for_the_handover_before() {
    type End = fn(&mut Sim);
    let ends: [(&str, End, bool); 7] = [
        ("no notify", |net| net.settle(SECOND * 20), true),
        (
            "cancel",
            |net| {
                let c = connection(net);
                let cause = CauseRadioNetwork::HandoverCancelled.into();
                let m = HandoverCancel::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause);
                say(net, SOURCE, m);
            },
            true,
        ),
        (
            "deregistration",
            |net| {
                let id = context(net).id;
                net.order(id, CoreCommand::Superseded);
            },
            true,
        ),
        ("where it came from is lost", |net| net.disconnect(TARGET), true),
        (
            "another handover",
            |net| {
                net.add_gnb(gnb_config(4));
                net.settle(SECOND / 10);
                let mut m = handover_required(net, &[1]);
                if let TargetId::TargetRanNodeId(t) = &mut m.target_id {
                    let fourth = GlobalGnbId::new(PlmnId::TEST, 4, 28).expect("28 bits");
                    t.global_ran_node_id = GlobalRanNodeId::GlobalGnbId(fourth);
                }
                say(net, SOURCE, m);
            },
            true,
        ),
        (
            "another UE has it",
            |net| {
                let m = net
                    .cta()
                    .contexts()
                    .next()
                    .and_then(|p| p.amf.mobility.target.as_ref())
                    .expect("it waits");
                let mut m = wants_it(net, m.amf_ue_ngap_id);
                m.ran_ue_ngap_id = whimbrel_ids::RanUeNgapId(3);
                say(net, NEXT, m);
            },
            true,
        ),
        ("it is lost itself", |net| net.disconnect(NEXT), false),
    ];
    for (what, end, reported) in ends {
        let (mut net, at_target_too) = gone_on(17);
        end(&mut net);
        net.settle(SECOND / 5);
        let heard = net.take_ngap(NEXT);
        let failed =
            matches!(heard.as_slice(), [Message::PathSwitchRequestFailure(m)] if m.ran_ue_ngap_id == RAN_ID);
        assert_eq!(failed, reported, "{what}: {heard:?}");
        if what == "it is lost itself" {
            say(&mut net, TARGET, notify(at_target_too));
            assert_eq!(an(&net, 1), at_target(1), "where it was last");
        }
        net.disconnect(TARGET);
        over(&mut net);
        assert_eq!(net.take_ngap(NEXT).len(), usize::from(what == "another UE has it"), "{what}");
    }
}

#[test] // TS 38.413 §10.6: no UE can have come from a target that got no HANDOVER REQUEST
fn a_path_switch_of_a_connection_that_is_being_prepared() {
    let (mut net, _) = two_gnbs(18, 1);
    let next = net.add_gnb(gnb_config(3));
    net.settle(SECOND / 10);
    net.take_over(SOURCE);
    net.take_over(next);
    let m = handover_required(&net, &[1]);
    say(&mut net, SOURCE, m);
    let asked = request(&mut net);
    let m = wants_it(&net, asked.amf_ue_ngap_id);
    say(&mut net, next, m);
    assert!(matches!(net.take_ngap(next).as_slice(), [Message::ErrorIndication(_)]));
    over(&mut net);
}

/// UEs that are handed over as soon as they hear of their session: what was not served. Associations that differ in latency let
/// one gNB's message overtake another's; where the core's parts have links, the UPF's answer takes a round trip.
fn right_behind_a_session(mut net: Sim, via: Via) -> Vec<Refusal> {
    let gnbs = [1, 2].map(|n| net.add_gnb(gnb_config(n)));
    net.settle(SECOND);
    let ues: Vec<UeIndex> = (1..=10).map(|n| net.add_ue(gnbs[0], ue_config(n))).collect();
    ues.iter().for_each(|&ue| net.command(ue, UeCommand::Register));
    net.settle(SECOND);
    ues.iter().for_each(|&ue| net.command(ue, session()));
    let mut there = ues.clone();
    while !there.is_empty() {
        net.advance(SECOND / 10_000);
        for ue in there.extract_if(.., |&mut ue| net.ue_ref(ue).sessions().count() == 1).collect::<Vec<_>>() {
            net.hand_over(ue, gnbs[1], via);
        }
    }
    net.settle(SECOND * 5);
    for &ue in &ues {
        assert_eq!(net.gnb_of(ue), gnbs[1], "{via:?}, {ue:?}");
        net.check_path(ue, psi(1));
    }
    no_violations(&net);
    let refused = core_events(&net).filter_map(|e| match e {
        CoreEvent::Refused { refusal, .. } => Some(refusal.clone()),
        _ => None,
    });
    refused.collect()
}

#[test] // TS 23.502 §4.9.1.2.2, §4.9.1.3: UEs that move on at once, the core in one process or in several
fn a_handover_right_behind_a_session() {
    let faults =
        Faults { radio_latency_micros: (1, 10), n2_latency_micros: (100, 20_000), ..Faults::default() };
    for seed in 1..6 {
        for via in [Via::Xn, Via::N2] {
            let one = Sim::builder(seed).faults(faults).build();
            let several = Sim::builder(seed).faults(faults).cpfs(3, 1).build();
            assert_eq!(right_behind_a_session(one, via), [], "seed {seed}, {via:?}");
            assert_eq!(right_behind_a_session(several, via), [], "seed {seed}, {via:?}, in a region");
        }
    }
}

/// UEs that go on over Xn as soon as they are where the core took them to. What was not served.
fn right_behind_a_handover(mut net: Sim) -> Vec<Refusal> {
    let gnbs = [1, 2, 3].map(|n| net.add_gnb(gnb_config(n)));
    net.settle(SECOND);
    let ues: Vec<UeIndex> = (1..=10).map(|n| net.add_ue(gnbs[0], ue_config(n))).collect();
    for command in [UeCommand::Register, session()] {
        ues.iter().for_each(|&ue| net.command(ue, command.clone()));
        net.settle(SECOND);
    }
    ues.iter().for_each(|&ue| net.hand_over(ue, gnbs[1], Via::N2));
    let mut there = ues.clone();
    while !there.is_empty() {
        net.advance(SECOND / 10_000);
        let arrived = |ue: UeIndex| {
            net.events.gnbs.iter().any(|(_, e)| {
                matches!(e, GnbEvent::HandedOver { ue: handed_over, via: Via::N2, .. } if handed_over.0 == ue.0 as u32)
            })
        };
        for ue in there.extract_if(.., |&mut ue| arrived(ue)).collect::<Vec<_>>() {
            net.hand_over(ue, gnbs[2], Via::Xn);
        }
    }
    net.settle(SECOND * 5);
    for &ue in &ues {
        assert_eq!(net.gnb_of(ue), gnbs[2], "{ue:?}");
        net.check_path(ue, psi(1));
    }
    no_violations(&net);
    let refused = core_events(&net).filter_map(|e| match e {
        CoreEvent::Refused { refusal, .. } => Some(refusal.clone()),
        _ => None,
    });
    refused.collect()
}

#[test] // TS 23.502 §4.9.1.2.2, §4.9.1.3.3: UEs that move on at once, the core in one process or in several
fn an_xn_handover_right_behind_one_through_the_core() {
    let faults =
        Faults { radio_latency_micros: (1, 10), n2_latency_micros: (100, 20_000), ..Faults::default() };
    for seed in 1..6 {
        let one = Sim::builder(seed).faults(faults).build();
        let several = Sim::builder(seed).faults(faults).cpfs(3, 1).build();
        assert_eq!(right_behind_a_handover(one), [], "seed {seed}");
        assert_eq!(right_behind_a_handover(several), [], "seed {seed}, in a region");
    }
}
