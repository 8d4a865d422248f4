//! N2 handover: TS 23.502 §4.9.1.3, §4.9.1.4, TS 38.413 §8.4.1 to §8.4.3, §8.4.5 to §8.4.7.

use std::net::IpAddr;

use crate::common::by_hand::*;
use crate::common::*;
use whimbrel_control::smf::UpState;
use whimbrel_control::{Command as CoreCommand, Event as CoreEvent, Procedure};
use whimbrel_ids::{AmfUeNgapId, GlobalGnbId, PlmnId, RanUeNgapId, SNssai, Tac, Teid};
use whimbrel_nas::mm::MessageType;
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    Cause, CauseRadioNetwork, GlobalRanNodeId, HandoverType, PduSessionResourceItem, TargetId, UeNgapIds,
    UpTransportLayerInformation,
};
use whimbrel_ngap::msg::{
    ErrorIndication, HandoverCancel, HandoverFailure, HandoverRequired, UeContextReleaseComplete,
    UeContextReleaseRequest, UplinkNasTransport, UplinkRanEarlyStatusTransfer, UplinkRanStatusTransfer,
};
use whimbrel_ngap::transfer::{
    HandoverCommandTransfer, HandoverPreparationUnsuccessfulTransfer,
    HandoverResourceAllocationUnsuccessfulTransfer, PduSessionResourceSetupRequestTransfer,
};
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{GnbIndex, Sim, UeIndex, UpfState};
use whimbrel_user::{Destination, Origin};

/// A registered UE with so many sessions; both gNBs are driven by hand.
fn scene(seed: u64, sessions: usize) -> (Sim, UeIndex) {
    let (mut net, ue) = two_gnbs(seed, sessions);
    net.take_over(SOURCE);
    (net, ue)
}

/// The target was asked: our name of the UE there.
fn preparing(seed: u64, sessions: &[u8]) -> (Sim, AmfUeNgapId) {
    let (mut net, _) = scene(seed, sessions.len());
    let m = handover_required(&net, sessions);
    say(&mut net, SOURCE, m);
    let id = request(&mut net).amf_ue_ngap_id;
    (net, id)
}

/// The source got HANDOVER COMMAND.
fn executing(seed: u64, sessions: &[u8], forwarding: bool) -> (Sim, AmfUeNgapId) {
    let (mut net, id) = preparing(seed, sessions);
    let list = sessions.iter().map(|&n| admitted(n, forwarding)).collect();
    say(&mut net, TARGET, acknowledgement(id, list));
    command(&mut net);
    (net, id)
}

fn psis(list: &[PduSessionResourceItem]) -> Vec<u8> {
    list.iter().map(|i| i.pdu_session_id.value()).collect()
}

/// HANDOVER PREPARATION FAILURE at the source, and its cause.
fn preparation_failure(net: &mut Sim) -> Cause {
    let heard = net.take_ngap(SOURCE);
    match heard.as_slice() {
        [Message::HandoverPreparationFailure(m)] => m.cause.clone(),
        other => panic!("{other:?}"),
    }
}

/// UE CONTEXT RELEASE COMMAND at a gNB: the identity that it names, and its cause.
fn released(net: &mut Sim, gnb: GnbIndex) -> (AmfUeNgapId, Cause) {
    let heard = net.take_ngap(gnb);
    let commands = heard.iter().filter_map(|m| match m {
        Message::UeContextReleaseCommand(m) => Some(m),
        _ => None,
    });
    let [m] = commands.collect::<Vec<_>>()[..] else { panic!("{heard:?}") };
    let id = match &m.ue_ngap_ids {
        UeNgapIds::UeNgapIdPair(pair) => pair.amf_ue_ngap_id,
        UeNgapIds::AmfUeNgapId(id) => *id,
    };
    (id, m.cause.clone())
}

/// Nothing of a handover is left: no target, no source, no forwarding, and the UE is at rest.
fn over(net: &mut Sim) {
    net.settle(SECOND * 2);
    let p = context(net);
    assert!(
        p.amf.mobility.target.is_none() && p.amf.mobility.forwarding_source.is_none() && p.is_idle(),
        "{p:?}"
    );
    assert!(p.sessions.values().all(|s| s.forwarding.is_none()));
    assert_eq!(net.upf_sessions(), net.cta().contexts().map(|p| p.sessions.len()).sum::<usize>());
}

fn tunnel_of(i: &UpTransportLayerInformation) -> End {
    let UpTransportLayerInformation::GtpTunnel(t) = i;
    let whimbrel_ngap::ie::TransportLayerAddress::V4(a) = t.transport_layer_address else { panic!("{t:?}") };
    (a.into(), t.gtp_teid)
}

#[test] // TS 23.502 §4.9.1.3.2, step 4, §4.9.1.3.2 direct; §4.9.1.3.3 step 1, step 5, step 14; TS 38.413 §8.4.1.2, §8.4.2.2, §8.4.3.2; TS 33.501 §6.7.3.2: from end to end, with direct forwarding
fn the_whole_with_direct_forwarding() {
    let (mut net, _) = scene(1, 2);
    let source = connection(&net).clone();
    let before = [an(&net, 1), an(&net, 2)];
    let m = directly(handover_required(&net, &[1, 2]));
    say(&mut net, SOURCE, m);
    let m = request(&mut net);
    assert_ne!(m.amf_ue_ngap_id, source.amf_ue_ngap_id);
    assert_eq!(m.source_to_target_transparent_container, SOURCE_TO_TARGET);
    assert_eq!(m.ue_security_capabilities, capabilities(&net));
    assert_eq!(m.cause, CauseRadioNetwork::HandoverDesirableForRadioReason.into());
    assert_eq!(m.allowed_nssai, [SNssai::sst(1)]);
    let asked: Vec<u8> =
        m.pdu_session_resource_setup_list_ho_req.iter().map(|i| i.pdu_session_id.value()).collect();
    assert_eq!(asked, [1, 2]);
    for i in &m.pdu_session_resource_setup_list_ho_req {
        let n3 = context(&net).sessions[&i.pdu_session_id].n3.expect("a tunnel");
        let t =
            PduSessionResourceSetupRequestTransfer::decode(&i.handover_request_transfer).expect("a transfer");
        assert_eq!(tunnel_of(&t.ul_ngu_up_tnl_information), (n3.address, n3.teid));
    }
    let id = m.amf_ue_ngap_id;
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, true), admitted(2, false)]));
    let m = command(&mut net);
    assert_eq!((m.amf_ue_ngap_id, m.ran_ue_ngap_id), (source.amf_ue_ngap_id, source.ran_ue_ngap_id));
    assert_eq!(m.target_to_source_transparent_container, TARGET_TO_SOURCE);
    assert_eq!(psis(&m.pdu_session_resource_handover_list), [1, 2]);
    let of = |n: usize| {
        HandoverCommandTransfer::decode(&m.pdu_session_resource_handover_list[n].transfer)
            .expect("a transfer")
    };
    let forwarded = of(0).dl_forwarding_up_tnl_information.as_ref().map(tunnel_of);
    assert_eq!(forwarded, at_target(FORWARDED + 1), "the target's own tunnel");
    assert_eq!(of(1).dl_forwarding_up_tnl_information, None);
    assert_eq!(downlink(&mut net, 1).0, None, "packets wait until the UE is there");
    say(&mut net, TARGET, notify(id));
    let (to, earlier) = downlink(&mut net, 1);
    assert_eq!(to, at_target(1));
    let ended: Vec<_> = earlier.into_iter().filter(|s| s.1 == END_MARKER).map(|s| Some(s.0)).collect();
    assert_eq!(ended, before, "one end marker into each tunnel that was left");
    assert_eq!(net.take_ngap(SOURCE), [], "the source forwards what it still has");
    assert!(context(&net).is_idle(), "which keeps the UE from nothing");
    over(&mut net);
    let cause = CauseRadioNetwork::SuccessfulHandover.into();
    assert_eq!(released(&mut net, SOURCE), (source.amf_ue_ngap_id, cause));
    assert_eq!((connection(&net).amf_ue_ngap_id, connection(&net).ran_ue_ngap_id), (id, RAN_ID));
    let completed = |e: &CoreEvent| matches!(e, CoreEvent::Completed { procedure: Procedure::Handover, .. });
    assert!(core_events(&net).any(completed));
}

#[test] // TS 23.502 §4.9.1.3.2 step 11; §4.9.1.3.3 step 15: the UPF passes on what the source forwards, and then no more
fn indirect_forwarding() {
    let (mut net, id) = preparing(2, &[1, 2]);
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, true), admitted(2, false)]));
    let m = command(&mut net);
    let first = HandoverCommandTransfer::decode(&m.pdu_session_resource_handover_list[0].transfer);
    let first = first.expect("a transfer").dl_forwarding_up_tnl_information;
    let (upf, teid) = first.as_ref().map(tunnel_of).expect("a forwarding tunnel");
    assert_eq!(upf, IpAddr::V4([127, 0, 0, 8].into()), "the UPF's");
    let forward = |net: &mut Sim, inner: &[u8]| {
        let mut packet = vec![0x30, 255, 0, inner.len() as u8];
        packet.extend(teid.0.to_be_bytes());
        packet.extend(inner);
        let peer = "127.0.1.1:2152".parse().expect("an address");
        let sent = net.packet(Origin::N3 { peer, local: upf }, &packet);
        let g_pdus = sent.into_iter().filter(|(_, o)| o.get(1) == Some(&G_PDU));
        g_pdus.map(|(to, o)| (to, o[4..8].to_vec(), o[8..].to_vec())).collect::<Vec<_>>()
    };
    let to = Destination::N3 { peer: (TARGET_N3, 2152).into(), tos: 0 };
    let at = Teid(TUNNELS + u32::from(FORWARDED) + 1).0.to_be_bytes().to_vec();
    assert_eq!(forward(&mut net, &[0xaa; 20]), [(to, at.clone(), vec![0xaa; 20])]);
    say(&mut net, TARGET, notify(id));
    assert_eq!(forward(&mut net, &[0xab; 20]), [(to, at, vec![0xab; 20])], "what is under way still passes");
    over(&mut net);
    assert_eq!(forward(&mut net, &[0xac; 20]), []);
    assert_eq!(released(&mut net, SOURCE).1, CauseRadioNetwork::SuccessfulHandover.into());
}

#[test] // TS 23.502 §4.9.1.3.3 step 14: without forwarding the source is released at once
fn without_forwarding_the_source_goes_at_once() {
    let (mut net, id) = executing(3, &[1], false);
    say(&mut net, TARGET, notify(id));
    assert_eq!(released(&mut net, SOURCE).1, CauseRadioNetwork::SuccessfulHandover.into());
    over(&mut net);
}

#[test] // TS 33.501 §6.9.2.3.3: each target gets a fresh next hop, also after a handover that failed
fn each_target_gets_a_fresh_next_hop() {
    let (mut net, _) = scene(4, 1);
    let mut seen = Vec::new();
    for step in 2..5u8 {
        let m = handover_required(&net, &[1]);
        say(&mut net, SOURCE, m);
        let m = request(&mut net);
        assert_eq!(m.security_context.next_hop_chaining_count, step);
        assert!(!seen.contains(&m.security_context.next_hop_nh));
        seen.push(m.security_context.next_hop_nh);
        let cause = CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell.into();
        say(&mut net, TARGET, HandoverFailure::new(m.amf_ue_ngap_id, cause));
        preparation_failure(&mut net);
    }
    over(&mut net);
}

#[test] // TS 23.502 §4.9.1.3.2 step 10; §4.9.1.3.3 step 8; TS 38.413 §8.4.2.4: some sessions are admitted, the others wait for the UE to ask
fn some_sessions_are_admitted() {
    let (mut net, id) = preparing(5, &[1, 2, 3]);
    let mut m = acknowledgement(id, vec![admitted(2, false), admitted(9, false)]);
    let cause: Cause = CauseRadioNetwork::RadioResourcesNotAvailable.into();
    let transfer = HandoverResourceAllocationUnsuccessfulTransfer::new(cause.clone()).to_vec();
    m.pdu_session_resource_failed_to_setup_list_ho_ack = vec![PduSessionResourceItem::new(psi(1), transfer)];
    say(&mut net, TARGET, m);
    let m = command(&mut net);
    assert_eq!(psis(&m.pdu_session_resource_handover_list), [2]);
    let list = &m.pdu_session_resource_to_release_list_ho_cmd;
    assert_eq!(psis(list), [1, 3]);
    let reported =
        HandoverPreparationUnsuccessfulTransfer::decode(&list[0].transfer).expect("a transfer").cause;
    assert_eq!(reported, cause);
    say(&mut net, TARGET, notify(id));
    let up = |n| context(&net).sessions[&psi(n)].up;
    assert_eq!([up(1), up(2), up(3)], [UpState::Inactive, UpState::Active, UpState::Inactive]);
    let heard = net.take_ngap(TARGET);
    let [Message::PduSessionResourceReleaseCommand(m)] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!(psis(&m.pdu_session_resource_to_release_list_rel_cmd), [9], "it was not asked for that one");
    net.take_ngap(SOURCE);
    over(&mut net);
}

#[test] // TS 23.502 §4.9.1.3.2 step 10; TS 38.413 §8.4.1.3: no session is admitted
fn no_session_is_admitted() {
    let (mut net, id) = preparing(6, &[1, 2]);
    let before = connection(&net).clone();
    say(&mut net, TARGET, acknowledgement(id, vec![]));
    preparation_failure(&mut net);
    assert_eq!(released(&mut net, TARGET).0, id);
    assert_eq!(*connection(&net), before);
    over(&mut net);
}

#[test] // TS 38.413 §8.4.2.2: a session without its default flow, or with a transfer that cannot be read, is not admitted
fn what_the_target_says_is_judged() {
    let (mut net, id) = preparing(7, &[1, 2]);
    let list = vec![PduSessionResourceItem::new(psi(1), vec![0xff; 5]), admitted(2, false)];
    say(&mut net, TARGET, acknowledgement(id, list));
    let m = command(&mut net);
    assert_eq!(psis(&m.pdu_session_resource_to_release_list_ho_cmd), [1]);
    say(&mut net, TARGET, notify(id));
    let heard = net.take_ngap(TARGET);
    assert!(matches!(heard.as_slice(), [Message::PduSessionResourceReleaseCommand(_)]), "{heard:?}");
    over(&mut net);
}

#[test] // TS 23.502 §4.9.1.3.2 failure; TS 38.413 §8.4.2.3, §8.4.1.3: the target refuses, with its cause and its container
fn the_target_refuses() {
    let (mut net, id) = preparing(8, &[1]);
    let before = connection(&net).clone();
    let cause: Cause = CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell.into();
    let mut m = HandoverFailure::new(id, cause.clone());
    m.target_to_source_failure_transparent_container = Some(vec![5, 5]);
    say(&mut net, TARGET, m);
    let heard = net.take_ngap(SOURCE);
    let [Message::HandoverPreparationFailure(m)] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!(m.cause, cause);
    assert_eq!(m.target_to_source_failure_transparent_container, Some(vec![5, 5]));
    assert_eq!(net.take_ngap(TARGET), [], "it keeps nothing");
    assert_eq!(*connection(&net), before);
    over(&mut net);
}

#[test] // TS 23.502 §4.9.1.3.2 silence, step 8: the target does not answer
fn the_target_is_silent() {
    let (mut net, id) = preparing(9, &[1]);
    net.advance(SECOND * 19);
    assert_eq!(net.take_ngap(SOURCE), []);
    net.advance(SECOND * 2);
    preparation_failure(&mut net);
    assert_eq!(released(&mut net, TARGET).0, id, "by the AMF UE NGAP ID only: it has sent none of its own");
    over(&mut net);
    // Its answer crosses the command; and one comes late: no UE there has that identifier any more.
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, false)]));
    assert_eq!(net.take_ngap(TARGET), []);
    net.advance(SECOND * 3);
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, false)]));
    assert!(matches!(net.take_ngap(TARGET).as_slice(), [Message::ErrorIndication(_)]));
    assert_eq!(net.take_ngap(SOURCE), []);
}

#[test] // the CTA that takes over sends HANDOVER REQUEST again, and the target makes two contexts: the second is released, in whatever state the UE is
fn a_second_context_at_the_target_is_released() {
    let second = |id| {
        let mut m = acknowledgement(id, vec![admitted(1, false)]);
        m.ran_ue_ngap_id = RanUeNgapId(RAN_ID.0 + 1);
        m
    };
    // Another context of the same name of ours is released by both names, and what the target answers is not of the UE.
    let release = |net: &mut Sim, id| {
        say(net, TARGET, second(id));
        let heard = net.take_ngap(TARGET);
        let [Message::UeContextReleaseCommand(m)] = heard.as_slice() else { panic!("{heard:?}") };
        let UeNgapIds::UeNgapIdPair(pair) = &m.ue_ngap_ids else { panic!("{m:?}") };
        assert_eq!((pair.amf_ue_ngap_id, pair.ran_ue_ngap_id), (id, second(id).ran_ue_ngap_id));
        say(net, TARGET, UeContextReleaseComplete::new(pair.amf_ue_ngap_id, pair.ran_ue_ngap_id));
        assert_eq!(net.take_ngap(TARGET), []);
    };
    let (mut net, id) = executing(30, &[1], false);
    release(&mut net, id);
    say(&mut net, TARGET, notify(id));
    release(&mut net, id);
    assert_eq!((connection(&net).amf_ue_ngap_id, connection(&net).ran_ue_ngap_id), (id, RAN_ID));
    over(&mut net);

    let (mut net, id) = executing(31, &[1], false);
    let source = connection(&net).clone();
    let cause = CauseRadioNetwork::HandoverCancelled;
    say(&mut net, SOURCE, HandoverCancel::new(source.amf_ue_ngap_id, source.ran_ue_ngap_id, cause.into()));
    assert_eq!(released(&mut net, TARGET), (id, cause.into()));
    release(&mut net, id);
    // Its earlier message arrives again: that context is gone already.
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, false)]));
    assert_eq!(net.take_ngap(TARGET), []);
    assert_eq!(*connection(&net), source);
    over(&mut net);
}

/// The cause with which HANDOVER REQUIRED is refused before anybody is asked.
fn refused(seed: u64, change: impl FnOnce(&mut HandoverRequired)) -> Cause {
    let (mut net, _) = scene(seed, 1);
    let before = connection(&net).clone();
    let mut m = handover_required(&net, &[1]);
    change(&mut m);
    say(&mut net, SOURCE, m);
    assert_eq!(net.take_ngap(TARGET), []);
    assert_eq!(*connection(&net), before);
    let cause = preparation_failure(&mut net);
    over(&mut net);
    cause
}

fn target(m: &mut HandoverRequired) -> &mut whimbrel_ngap::ie::TargetRanNodeId {
    match &mut m.target_id {
        TargetId::TargetRanNodeId(t) => t,
        other => panic!("{other:?}"),
    }
}

#[test] // TS 38.413 §8.4.1.4: unknown gNB, other kinds of node, areas that are not served or not the gNB's
fn a_target_that_cannot_be_reached() {
    let unknown: Cause = CauseRadioNetwork::UnknownTargetId.into();
    let other = GlobalGnbId::new(PlmnId::TEST, 77, 28).expect("28 bits");
    assert_eq!(refused(10, |m| target(m).global_ran_node_id = GlobalRanNodeId::GlobalGnbId(other)), unknown);
    let shorter = GlobalGnbId::new(PlmnId::TEST, 2, 22).expect("22 bits");
    assert_eq!(
        refused(11, |m| target(m).global_ran_node_id = GlobalRanNodeId::GlobalGnbId(shorter)),
        unknown
    );
    assert_eq!(refused(12, |m| target(m).selected_tai.tac = Tac::new(9).expect("24 bits")), unknown);
    assert_eq!(refused(13, |m| target(m).selected_tai.plmn = "001/01".parse().expect("a PLMN")), unknown);
    let system = refused(14, |m| m.handover_type = HandoverType::FivegsToEps);
    assert_eq!(system, CauseRadioNetwork::N26InterfaceNotAvailable.into());
    assert_eq!(
        refused(15, |m| m.handover_type = HandoverType::EpsTo5gs),
        CauseRadioNetwork::HoTargetNotAllowed.into()
    );
}

#[test] // TS 38.413 §8.4.1.3: sessions that do not exist, and some that do
fn sessions_that_do_not_exist() {
    let cause = refused(16, |m| m.pdu_session_resource_list_ho_rqd[0].pdu_session_id = psi(9));
    assert_eq!(cause, CauseRadioNetwork::UnknownPduSessionId.into());
    let (mut net, _) = scene(17, 1);
    let m = handover_required(&net, &[9, 1, 1, 9]);
    say(&mut net, SOURCE, m);
    let m = request(&mut net);
    assert_eq!(m.pdu_session_resource_setup_list_ho_req.len(), 1);
    say(&mut net, TARGET, acknowledgement(m.amf_ue_ngap_id, vec![admitted(1, false)]));
    assert_eq!(psis(&command(&mut net).pdu_session_resource_to_release_list_ho_cmd), [9]);
}

#[test] // TS 23.502 §4.9.1.3.2 step 4: a slice that the target does not support
fn a_slice_that_the_target_does_not_support() {
    let mut net = {
        let mut config = whimbrel_sim::default_config();
        config.amf.slices.push(SNssai::sst(2));
        Sim::builder(18).config(config).build()
    };
    net.add_gnb(gnb_config(1));
    let mut other = gnb_config(2);
    other.supported_tas[0].plmns[0].1 = vec![SNssai::sst(2)];
    net.add_gnb(other);
    let ue = net.add_ue(SOURCE, whimbrel_sim::ue_config(1));
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let request = whimbrel_ran::ue::SessionRequest {
        dnn: None,
        s_nssai: None,
        pdu_session_type: whimbrel_nas::ie::PduSessionType::Ipv4,
    };
    net.command(ue, UeCommand::EstablishSession(request));
    net.settle(SECOND);
    net.take_over(SOURCE);
    net.take_over(TARGET);
    let m = handover_required(&net, &[1]);
    say(&mut net, SOURCE, m);
    assert_eq!(preparation_failure(&mut net), CauseRadioNetwork::SliceNotSupported.into());
    assert_eq!(net.take_ngap(TARGET), []);
}

#[test] // TS 23.502 §4.9.1.4; TS 38.413 §8.4.5.2: cancelled while the target is asked, and while the UE is on its way
fn the_source_cancels() {
    for seed in [19, 20] {
        let (mut net, id) = if seed == 19 { preparing(seed, &[1]) } else { executing(seed, &[1], true) };
        let c = connection(&net).clone();
        let cause = CauseRadioNetwork::HandoverCancelled.into();
        say(&mut net, SOURCE, HandoverCancel::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause));
        assert!(matches!(net.take_ngap(SOURCE).as_slice(), [Message::HandoverCancelAcknowledge(_)]));
        assert_eq!(released(&mut net, TARGET), (id, CauseRadioNetwork::HandoverCancelled.into()));
        assert_eq!(*connection(&net), c);
        over(&mut net);
        // HANDOVER NOTIFY comes too late: it crosses the command, or the target should know.
        say(&mut net, TARGET, notify(id));
        assert_eq!(*connection(&net), c);
        assert_eq!(net.take_ngap(TARGET), []);
        net.advance(SECOND * 3);
        say(&mut net, TARGET, notify(id));
        assert_eq!(*connection(&net), c);
        assert!(matches!(net.take_ngap(TARGET).as_slice(), [Message::ErrorIndication(_)]));
    }
}

#[test] // TS 38.413 §8.4.5.4: nothing to cancel
fn nothing_to_cancel() {
    let (mut net, _) = scene(21, 1);
    let c = connection(&net).clone();
    let cause = CauseRadioNetwork::HandoverCancelled.into();
    say(&mut net, SOURCE, HandoverCancel::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause));
    assert!(matches!(net.take_ngap(SOURCE).as_slice(), [Message::HandoverCancelAcknowledge(_)]));
    assert_eq!(*connection(&net), c);
}

#[test] // TS 23.502 §4.9.1.3.3 step 2; TS 38.413 §8.4.6.2, §8.4.7.2: the container passes as it is
fn ran_status_transfer() {
    let (mut net, id) = executing(22, &[1], true);
    let c = connection(&net).clone();
    let container = vec![0x40, 1, 2, 3];
    say(
        &mut net,
        SOURCE,
        UplinkRanStatusTransfer::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, container.clone()),
    );
    let heard = net.take_ngap(TARGET);
    let [Message::DownlinkRanStatusTransfer(m)] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!((m.amf_ue_ngap_id, m.ran_ue_ngap_id), (id, RAN_ID));
    assert_eq!(m.ran_status_transfer_transparent_container, container);
}

#[test] // TS 38.413 §8.4.9.2, §8.4.10.2: the early status of a UE that keeps both connections for a while goes the same way
fn ran_early_status_transfer() {
    let (mut net, id) = executing(23, &[1], true);
    let c = connection(&net).clone();
    // A choice of the first kind without bearers: what it says is between the gNBs.
    let container = vec![0, 0, 0, 0];
    let status = UplinkRanEarlyStatusTransfer::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, container.clone());
    say(&mut net, SOURCE, status);
    let heard = net.take_ngap(TARGET);
    let [Message::DownlinkRanEarlyStatusTransfer(m)] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!((m.amf_ue_ngap_id, m.ran_ue_ngap_id), (id, RAN_ID));
    assert_eq!(m.early_status_transfer_transparent_container, container);
}

#[test] // TS 38.413 §8.4.6.3: without a handover, after a refused one, and without its container
fn ran_status_transfer_without_handover() {
    let (mut net, _) = scene(23, 1);
    let c = connection(&net).clone();
    let mut m = handover_required(&net, &[1]);
    target(&mut m).selected_tai.tac = Tac::new(9).expect("24 bits");
    say(&mut net, SOURCE, m);
    preparation_failure(&mut net);
    say(&mut net, SOURCE, UplinkRanStatusTransfer::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, vec![0x40]));
    assert_eq!((net.take_ngap(SOURCE), net.take_ngap(TARGET)), (vec![], vec![]));
    // Two IEs instead of three.
    let whole = octets(UplinkRanStatusTransfer::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, vec![]));
    let mut m = whole[..whole.len() - 4].to_vec();
    m[3] = (m.len() - 4) as u8;
    m[6] = 2;
    net.inject(SOURCE, &m);
    net.settle(SECOND / 10);
    assert!(matches!(net.take_ngap(SOURCE).as_slice(), [Message::ErrorIndication(_)]));
    assert_eq!(*connection(&net), c);
    over(&mut net);
}

#[test] // TS 38.413 §8.4.3.3: before the preparation is done, and without one
fn notify_out_of_state() {
    let (mut net, id) = preparing(24, &[1]);
    let c = connection(&net).clone();
    say(&mut net, TARGET, notify(id));
    assert_eq!(*connection(&net), c);
    let (mut net, _) = scene(25, 1);
    let c = connection(&net).clone();
    say(&mut net, TARGET, notify(c.amf_ue_ngap_id));
    assert!(matches!(net.take_ngap(TARGET).as_slice(), [Message::ErrorIndication(_)]));
    say(&mut net, SOURCE, {
        let mut m = notify(c.amf_ue_ngap_id);
        m.ran_ue_ngap_id = c.ran_ue_ngap_id;
        m
    });
    assert_eq!(*connection(&net), c);
}

#[test] // TS 23.502 §4.9.1.3.3 lost: the UE never arrives
fn the_ue_never_arrives() {
    let (mut net, id) = executing(26, &[1], true);
    let c = connection(&net).clone();
    net.settle(SECOND * 20);
    assert_eq!(released(&mut net, TARGET).0, id);
    assert_eq!(net.take_ngap(SOURCE), [], "it gives up by itself");
    assert_eq!(*connection(&net), c);
    over(&mut net);
}

#[test] // TS 38.413 §8.4.1.3: the target's association is lost
fn the_target_is_lost() {
    let (mut net, _) = preparing(27, &[1]);
    let c = connection(&net).clone();
    net.disconnect(TARGET);
    net.settle(SECOND / 10);
    preparation_failure(&mut net);
    assert_eq!(*connection(&net), c);
    over(&mut net);
    let (mut net, _) = executing(28, &[1], true);
    let c = connection(&net).clone();
    net.disconnect(TARGET);
    net.settle(SECOND / 10);
    assert_eq!((net.take_ngap(SOURCE), connection(&net)), (vec![], &c));
    over(&mut net);
}

#[test] // TS 38.413 §10.6, §8.3.2: the target does not have the UE any more
fn the_target_gives_the_ue_up() {
    let (mut net, id) = preparing(29, &[1]);
    let mut e = ErrorIndication::new();
    e.amf_ue_ngap_id = Some(id);
    e.cause = Some(CauseRadioNetwork::UnknownLocalUeNgapId.into());
    say(&mut net, TARGET, e);
    preparation_failure(&mut net);
    over(&mut net);
    let (mut net, id) = executing(30, &[1], true);
    let cause = CauseRadioNetwork::RadioConnectionWithUeLost.into();
    say(&mut net, TARGET, UeContextReleaseRequest::new(id, RAN_ID, cause));
    assert_eq!(released(&mut net, TARGET).0, id);
    assert!(context(&net).is_connected());
    over(&mut net);
}

#[test] // TS 23.502 §4.9.1.3.3: the source's association is lost: a UE that has not left is lost with it, one that has may arrive
fn the_source_is_lost() {
    let (mut net, id) = preparing(31, &[1]);
    net.disconnect(SOURCE);
    net.settle(SECOND / 10);
    assert_eq!(released(&mut net, TARGET).0, id);
    assert!(!context(&net).is_connected() && context(&net).amf.registered);
    over(&mut net);
    let (mut net, id) = executing(32, &[1], true);
    net.disconnect(SOURCE);
    net.settle(SECOND / 10);
    assert!(context(&net).is_connected());
    say(&mut net, TARGET, notify(id));
    assert_eq!(connection(&net).ran_ue_ngap_id, RAN_ID);
    assert_eq!(downlink(&mut net, 1).0, at_target(1));
    over(&mut net);
    let (mut net, id) = executing(33, &[1], true);
    net.disconnect(SOURCE);
    net.settle(SECOND * 20);
    assert_eq!(released(&mut net, TARGET).0, id);
    assert!(!context(&net).is_connected());
    over(&mut net);
}

#[test] // TS 38.413 §8.3.2: the source asks for the UE's release before it has sent it away: both connections end
fn the_source_asks_for_release() {
    let (mut net, id) = preparing(34, &[1]);
    let c = connection(&net).clone();
    let cause = CauseRadioNetwork::RadioConnectionWithUeLost.into();
    say(&mut net, SOURCE, UeContextReleaseRequest::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause));
    assert_eq!(released(&mut net, SOURCE).0, c.amf_ue_ngap_id);
    assert_eq!(released(&mut net, TARGET).0, id);
    net.settle(SECOND * 6);
    assert!(!context(&net).is_connected());
    over(&mut net);
}

#[test] // TS 23.502 §4.9.1.3.3; TS 38.413 §8.3.2: after HANDOVER COMMAND the source's release is the source's alone: the UE arrives, or is lost
fn the_source_asks_for_release_after_the_command() {
    for (seed, arrives) in [(35, true), (43, false)] {
        let (mut net, id) = executing(seed, &[1], true);
        let c = connection(&net).clone();
        for _ in 0..2 {
            let cause = CauseRadioNetwork::RadioConnectionWithUeLost.into();
            say(&mut net, SOURCE, UeContextReleaseRequest::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause));
        }
        assert_eq!(released(&mut net, SOURCE).0, c.amf_ue_ngap_id);
        assert_eq!(
            (net.take_ngap(SOURCE), net.take_ngap(TARGET)),
            (vec![], vec![]),
            "once, and to the source alone"
        );
        if arrives {
            say(&mut net, TARGET, notify(id));
            assert_eq!(connection(&net).ran_ue_ngap_id, RAN_ID);
            assert_eq!(downlink(&mut net, 1).0, at_target(1));
        } else {
            net.settle(SECOND * 20);
            assert_eq!(released(&mut net, TARGET).0, id);
            assert!(!context(&net).is_connected() && context(&net).amf.registered);
        }
        over(&mut net);
        assert_eq!(net.take_ngap(SOURCE), []);
    }
}

#[test] // TS 23.502 §4.9.1.3.3 step 14: a source that asks for its release while it forwards gets it
fn the_source_asks_for_release_after_the_ue_has_left() {
    let (mut net, id) = executing(36, &[1], true);
    let c = connection(&net).clone();
    say(&mut net, TARGET, notify(id));
    let cause = CauseRadioNetwork::TngrelocoverallExpiry.into();
    say(&mut net, SOURCE, UeContextReleaseRequest::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause));
    assert_eq!(released(&mut net, SOURCE).0, c.amf_ue_ngap_id);
    assert_eq!(connection(&net).ran_ue_ngap_id, RAN_ID);
    over(&mut net);
    assert_eq!(net.take_ngap(SOURCE), [], "once");
}

#[test] // TS 38.413 §8.4.1.4: a second HANDOVER REQUIRED takes the place of the first while that is prepared
fn a_second_handover_required() {
    let (mut net, id) = preparing(37, &[1]);
    let m = handover_required(&net, &[1]);
    say(&mut net, SOURCE, m);
    let heard = net.take_ngap(TARGET);
    let [Message::UeContextReleaseCommand(_), Message::HandoverRequest(m)] = heard.as_slice() else {
        panic!("{heard:?}")
    };
    assert_ne!(m.amf_ue_ngap_id, id);
    let id = m.amf_ue_ngap_id;
    assert_eq!(net.take_ngap(SOURCE), [], "one answer for both");
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, true)]));
    command(&mut net);
    say(&mut net, TARGET, notify(id));
    over(&mut net);
    assert_eq!(downlink(&mut net, 1).0, at_target(1));
}

#[test] // HANDOVER COMMAND is sent again after the loss of a CTA: the UE is on its way, and the target keeps its resources
fn a_handover_required_that_comes_again_after_its_command() {
    let (mut net, id) = executing(38, &[1], true);
    let m = handover_required(&net, &[1]);
    say(&mut net, SOURCE, m);
    assert_eq!((net.take_ngap(TARGET), net.take_ngap(SOURCE)), (vec![], vec![]));
    say(&mut net, TARGET, notify(id));
    over(&mut net);
    assert_eq!(downlink(&mut net, 1).0, at_target(1));
}

#[test] // TS 23.502 §4.9.1.2: the UE comes to a third gNB over Xn while it is prepared elsewhere
fn a_path_switch_ends_a_preparation() {
    let (mut net, id) = preparing(39, &[1]);
    let third = net.add_gnb(gnb_config(3));
    net.settle(SECOND / 10);
    net.take_over(third);
    let m = path_switch_request(&net, &[1]);
    say(&mut net, third, m);
    assert!(matches!(net.take_ngap(third).as_slice(), [Message::PathSwitchRequestAcknowledge(_)]));
    assert_eq!(released(&mut net, TARGET).0, id);
    over(&mut net);
}

#[test] // TS 24.501 §5.4.2; TS 33.501 §6.9.5: SECURITY MODE COMPLETE and other NAS messages while a handover runs
fn nas_messages_while_a_handover_runs() {
    for stage in [preparing(40, &[1]), executing(41, &[1], true)] {
        let (mut net, id) = stage;
        let executing =
            context(&net).amf.mobility.target.as_ref().is_some_and(|t| t.ran_ue_ngap_id.is_some());
        let c = connection(&net).clone();
        // Not protected: SECURITY MODE COMPLETE, REGISTRATION COMPLETE, a 5GMM STATUS, garbage.
        for nas in [&[0x7e, 0, 0x5e][..], &[0x7e, 0, 0x43], &[0x7e, 0, 0x64, 0x6f], &[0xff]] {
            say(&mut net, SOURCE, UplinkNasTransport::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, nas.to_vec()));
        }
        assert_eq!((net.take_ngap(SOURCE), net.take_ngap(TARGET)), (vec![], vec![]));
        if !executing {
            say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, true)]));
            command(&mut net);
        }
        say(&mut net, TARGET, notify(id));
        assert_eq!(connection(&net).ran_ue_ngap_id, RAN_ID);
        over(&mut net);
    }
}

#[test] // TS 23.502 §4.9.1.3.1: NAS for a UE on its way is sent when it has arrived; a repeated request is not sent twice
fn nas_messages_to_a_ue_on_its_way_wait() {
    let (mut net, ue) = two_gnbs(42, 1);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::RegistrationAccept, 99));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND / 10);
    net.take_over(SOURCE);
    let m = handover_required(&net, &[1]);
    say(&mut net, SOURCE, m);
    let id = request(&mut net).amf_ue_ngap_id;
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, false)]));
    command(&mut net);
    net.settle(SECOND * 13);
    assert_eq!(net.take_ngap(SOURCE), [], "T3550 has expired twice");
    say(&mut net, TARGET, notify(id));
    let heard = net.take_ngap(TARGET);
    assert!(matches!(heard.as_slice(), [Message::DownlinkNasTransport(_)]), "{heard:?}");
}

#[test] // TS 38.413 §8.4.1.2: the network's release of a session waits for the end of a handover
fn a_session_release_waits_for_the_handover() {
    let (mut net, id) = executing(43, &[1], true);
    let ue_id = context(&net).id;
    net.order(ue_id, CoreCommand::UpfRestarted(whimbrel_control::UpfId(0)));
    net.settle(SECOND / 10);
    assert_eq!(net.take_ngap(SOURCE), []);
    say(&mut net, TARGET, notify(id));
    net.settle(SECOND / 10);
    let heard = net.take_ngap(TARGET);
    assert!(!heard.is_empty() && context(&net).is_connected(), "{heard:?}");
    net.settle(SECOND * 90);
    assert!(context(&net).sessions.is_empty());
}

#[test] // TS 23.502 §4.2.2.3.3, §4.2.2.2.2 step 14e: whatever ends the UE's context, its target releases it
fn the_context_ends() {
    for stage in [preparing(44, &[1]), executing(45, &[1], true)] {
        let (mut net, id) = stage;
        let ue_id = context(&net).id;
        net.order(ue_id, CoreCommand::Superseded);
        net.settle(SECOND / 10);
        assert_eq!(released(&mut net, TARGET).0, id);
        assert_eq!((net.cta().contexts().count(), net.upf_sessions()), (0, 0));
    }
}

#[test] // TS 23.502 §4.9.1.3: the UE comes to another gNB by itself: a first message cancels the handover
fn the_ue_comes_elsewhere() {
    let (mut net, ue) = two_gnbs(46, 1);
    let m = handover_required(&net, &[1]);
    say(&mut net, SOURCE, m);
    let id = request(&mut net).amf_ue_ngap_id;
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, true)]));
    // It lost its radio, and registers again.
    net.gnb_input(SOURCE, whimbrel_ran::gnb::Input::Reset);
    net.settle(SECOND / 10);
    assert!(context(&net).is_connected(), "it may arrive at the target still");
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 3);
    assert!(registered(&net, ue));
    assert_eq!(released(&mut net, TARGET).0, id);
    over(&mut net);
}

#[test] // TS 29.244 §6.4: a silent UPF: no forwarding tunnels, and the handover goes on without them; then the sessions end
fn a_silent_upf() {
    let (mut net, id) = preparing(47, &[1]);
    net.set_upf(UpfState::Silent);
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, true)]));
    assert_eq!(net.take_ngap(SOURCE), []);
    net.settle(SECOND * 6);
    let m = command(&mut net);
    let t = HandoverCommandTransfer::decode(&m.pdu_session_resource_handover_list[0].transfer)
        .expect("a transfer");
    assert_eq!(t.dl_forwarding_up_tnl_information, None);
    say(&mut net, TARGET, notify(id));
    assert_eq!(connection(&net).ran_ue_ngap_id, RAN_ID);
    net.set_upf(UpfState::Answering);
    net.settle(SECOND * 120);
    over(&mut net);
}

#[test] // TS 38.413 §10.6: another gNB's handover messages reach no UE
fn another_gnbs_handover_messages() {
    let (mut net, id) = preparing(48, &[1]);
    let third = net.add_gnb(gnb_config(3));
    net.settle(SECOND / 10);
    net.take_over(third);
    let c = connection(&net).clone();
    for m in [
        Message::from(acknowledgement(id, vec![admitted(1, true)])),
        HandoverFailure::new(id, CauseRadioNetwork::Unspecified.into()).into(),
        notify(id).into(),
        handover_required(&net, &[1]).into(),
        HandoverCancel::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, CauseRadioNetwork::Unspecified.into()).into(),
        UplinkRanStatusTransfer::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, vec![0x40]).into(),
    ] {
        say(&mut net, third, m);
        let heard = net.take_ngap(third);
        assert!(matches!(heard.as_slice(), [Message::ErrorIndication(_)]), "{heard:?}");
    }
    assert_eq!((net.take_ngap(SOURCE), net.take_ngap(TARGET)), (vec![], vec![]));
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, true)]));
    command(&mut net);
}

#[test] // TS 23.502 §4.9.1.3: there and back again, with a handover to the gNB that still forwards
fn there_and_back() {
    let (mut net, id) = executing(49, &[1, 2], true);
    say(&mut net, TARGET, notify(id));
    // At once: the first one's source is released first.
    let mut m = handover_required(&net, &[1, 2]);
    let back = GlobalGnbId::new(PlmnId::TEST, 1, 28).expect("28 bits");
    target(&mut m).global_ran_node_id = GlobalRanNodeId::GlobalGnbId(back);
    say(&mut net, TARGET, m);
    let heard = net.take_ngap(SOURCE);
    let [Message::UeContextReleaseCommand(_), Message::HandoverRequest(m)] = heard.as_slice() else {
        panic!("{heard:?}")
    };
    let id = m.amf_ue_ngap_id;
    let mut m = acknowledgement(id, vec![admitted(1, true), admitted(2, true)]);
    m.ran_ue_ngap_id = RanUeNgapId(99);
    say(&mut net, SOURCE, m);
    assert!(matches!(net.take_ngap(TARGET).as_slice(), [Message::HandoverCommand(_)]));
    let mut m = notify(id);
    m.ran_ue_ngap_id = RanUeNgapId(99);
    say(&mut net, SOURCE, m);
    assert_eq!(connection(&net).ran_ue_ngap_id, RanUeNgapId(99));
    over(&mut net);
    assert_eq!(released(&mut net, TARGET).1, CauseRadioNetwork::SuccessfulHandover.into());
}

#[test] // DESIGN: a run with handovers replays to the same octets from every point where the UE was idle
fn handovers_replay() {
    let (mut net, _) = scene(50, 2);
    for n in 0..6 {
        let m = handover_required(&net, &[1, 2]);
        let m = if n % 2 == 0 { directly(m) } else { m };
        let from = SOURCE;
        say(&mut net, from, m);
        let heard = net.take_ngap(TARGET);
        let Some(Message::HandoverRequest(m)) = heard.last() else { panic!("{heard:?}") };
        let id = m.amf_ue_ngap_id;
        if n == 3 {
            say(&mut net, TARGET, HandoverFailure::new(id, CauseRadioNetwork::Unspecified.into()));
            continue;
        }
        say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, true), admitted(2, true)]));
        let c = connection(&net).clone();
        let cause = CauseRadioNetwork::HandoverCancelled.into();
        if n < 5 {
            say(&mut net, from, HandoverCancel::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause));
        } else {
            say(&mut net, TARGET, notify(id));
        }
        net.settle(SECOND * 2);
    }
    assert_eq!(connection(&net).ran_ue_ngap_id, RAN_ID);
    let config = std::sync::Arc::new(whimbrel_sim::default_config());
    let id = context(&net).id;
    assert!(net.recorder().replay(id, &config) > 40);
    over(&mut net);
}
