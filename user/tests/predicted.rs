//! Predicted handovers: rules that begin when a packet shows that the UE has arrived.

use super::common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::*;
use whimbrel_gtpu::{Gtpu, message_type};
use whimbrel_ids::{Seid, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::*;

const TARGET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 10)), 2152);
const TARGET_TEID: Teid = Teid(77);

fn from_target() -> Origin {
    Origin::N3 { peer: TARGET, local: UPF.into() }
}

fn to_target() -> PacketVerdict {
    PacketVerdict::Send(Destination::N3 { peer: TARGET, tos: 0 })
}

/// A request for when the UE arrives; its answer.
fn predict(net: &mut Net, seid: Option<Seid>, sequence: u32, mut m: Message) -> Option<Message> {
    match &mut m {
        Message::SessionEstablishmentRequest(m) => m.on_arrival = Some(OnArrival),
        Message::SessionModificationRequest(m) => m.on_arrival = Some(OnArrival),
        other => panic!("{other:?}"),
    }
    let octets = m.to_octets(seid, sequence);
    net.upf.c.handle(net.now, Input::Pfcp { peer: SMF, octets: &octets }, &mut net.out);
    net.upf.settle(net.now, &mut net.out);
    let (_, answer) = net.out.datagrams.pop()?;
    Some(Message::parse(&Frame::parse(&answer).unwrap()).unwrap())
}

/// The session of a UE that is to come from another UPF to the target gNB.
fn arrival(cp_seid: u64) -> SessionEstablishmentRequest {
    let mut m = establishment(cp_seid, true, true);
    let to_target = ForwardingParameters {
        outer_header_creation: Some(OuterHeaderCreation::gtpu(TARGET_TEID, TARGET.ip())),
        ..ForwardingParameters::to(DestinationInterface::Access)
    };
    m.create_fars[1] = CreateFar::forward(FarId(2), to_target);
    m
}

fn predicted_session(net: &mut Net, cp_seid: u64) -> Session {
    let m = predict(net, Some(Seid(0)), 0x70_0000 + cp_seid as u32, arrival(cp_seid).into());
    let Some(Message::SessionEstablishmentResponse(r)) = m else { panic!("{m:?}") };
    net.seated(cp_seid, &r)
}

/// The path of a session that stands, switched to the target, with an end marker to the source.
fn predicted_switch(net: &mut Net, s: &Session) {
    let mut m = activation(TARGET_TEID, TARGET.ip());
    let p = m.update_fars[0].update_forwarding_parameters.as_mut().unwrap();
    p.pfcpsmreq_flags = Some(SessionModificationFlags::SNDEM);
    let m = predict(net, Some(s.up_seid), 0x71_0000, m.into());
    let Some(Message::SessionModificationResponse(r)) = m else { panic!("{m:?}") };
    assert_eq!(r.cause, Cause::RequestAccepted);
}

fn up(s: &Session) -> Vec<u8> {
    g_pdu(s.teid, 1, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 40))
}

fn down(s: &Session, payload: usize) -> Vec<u8> {
    udp4(SERVER, s.ipv4.unwrap(), (2, 1), payload)
}

#[test]
fn a_session_begins_with_its_ues_first_packet_from_the_target() {
    let mut net = Net::new();
    let s = predicted_session(&mut net, 1);
    assert_eq!(net.upf.u.counters().sessions, 0);
    let (verdict, _) = net.packet(from_target(), &up(&s));
    assert_eq!(verdict, PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }));
    assert_eq!(net.upf.u.counters().sessions, 1);
    assert_eq!(net.upf.u.counters().predictions_true, 1);
    let (verdict, octets) = net.downlink(&down(&s, 10));
    assert_eq!((verdict, at_gnb(&octets).0), (to_target(), TARGET_TEID));
    // Both are of the account that the SMF will ask for.
    let counted = net.upf.u.session_counters(s.id()).unwrap();
    assert_eq!((counted.ul_packets, counted.dl_packets), (1, 1));
}

#[test]
fn a_session_begins_with_a_packet_to_its_ue_as_its_rules_say() {
    let mut net = Net::new();
    let forwards = predicted_session(&mut net, 1);
    assert_eq!(net.downlink(&down(&forwards, 10)).0, to_target());
    // No tunnel is known yet: the packet is buffered and reported to the SMF.
    let r = predict(&mut net, Some(Seid(0)), 0x72_0000, establishment(2, true, false).into());
    let Some(Message::SessionEstablishmentResponse(r)) = r else { panic!("{r:?}") };
    let holds = net.seated(2, &r);
    assert_eq!(net.downlink(&down(&holds, 10)).0, PacketVerdict::Taken);
    let reports = net.reports();
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].2.report_type, ReportType::DLDR);
}

#[test] // Synergy §III-B: a predicted session stays in the fast path: only packets by another gNB are looked at
fn a_predicted_session_stays_plain_until_its_ue_comes_by_the_target() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let plain = |net: &mut Net| net.upf.u.only().map(|u| u.plain());
    let before = plain(&mut net); // `None` where several pipelines share the sessions
    assert!(before.is_none_or(|n| n == 1));
    predicted_switch(&mut net, &s);
    assert_eq!(net.packet(from_gnb(), &up(&s)).0, PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }));
    assert_eq!(net.downlink(&down(&s, 10)).0, PacketVerdict::Send(to_gnb()));
    assert_eq!((plain(&mut net), net.upf.u.counters().predictions_true), (before, 0));
    assert_eq!(net.packet(from_target(), &up(&s)).0, PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }));
    assert_eq!(net.downlink(&down(&s, 10)).0, to_target());
    assert_eq!(net.upf.u.counters().predictions_true, 1);
}

#[test]
fn a_packet_from_another_gnb_shows_nothing() {
    let mut net = Net::new();
    let s = predicted_session(&mut net, 1);
    for _ in 0..2 {
        let (verdict, _) = net.packet(from_gnb(), &up(&s));
        assert_eq!(verdict, PacketVerdict::Drop(DropReason::UnknownTunnel));
    }
    assert_eq!(net.upf.u.counters().sessions, 0);
    assert_eq!(net.packet(from_target(), &up(&s)).0, PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }));
}

#[test]
fn a_spoofed_first_packet_is_dropped() {
    let mut net = Net::new();
    let s = predicted_session(&mut net, 1);
    let spoofed = g_pdu(s.teid, 1, &udp4(Ipv4Addr::new(10, 45, 0, 7), SERVER, (1, 2), 40));
    assert_eq!(net.packet(from_target(), &spoofed).0, PacketVerdict::Drop(DropReason::SpoofedSource));
}

#[test]
fn packets_without_a_prediction_are_filtered() {
    let mut net = Net::new();
    let s = predicted_session(&mut net, 1);
    let unknown = Session { teid: Teid(s.teid.0 ^ 1), ..s.clone() };
    assert_eq!(net.packet(from_target(), &up(&unknown)).0, PacketVerdict::Drop(DropReason::UnknownTunnel));
    let unpredicted = udp4(SERVER, Ipv4Addr::new(10, 46, 9, 9), (2, 1), 10);
    let (verdict, _) = net.packet(Origin::N6 { dn: DnIndex(1) }, &unpredicted);
    assert_eq!(verdict, PacketVerdict::Drop(DropReason::UnknownUeAddress));
    // The address of the one network is not that of the other.
    let (verdict, _) = net.packet(Origin::N6 { dn: DnIndex(1) }, &down(&s, 10));
    assert_eq!(verdict, PacketVerdict::Drop(DropReason::UnknownUeAddress));
    let c = net.upf.u.counters();
    // Other shards than that of the prediction have none to look for, and the unknown tunnel is of any.
    let looked = if SHARDS == 1 { 3..=3 } else { 1..=2 };
    assert!(looked.contains(&(c.predictions_false + c.predictions_filtered)));
    assert_eq!(c.predictions_true, 0);
}

#[test]
fn a_prediction_is_past_after_five_seconds_and_leaves_nothing() {
    let mut net = Net::new();
    let free = net.upf.c.free_addresses(DnIndex(0));
    let s = predicted_session(&mut net, 1);
    assert_ne!(net.upf.c.free_addresses(DnIndex(0)), free);
    net.advance(START + Duration::from_millis(4_300));
    let other = predicted_session(&mut net, 2);
    net.advance(START + Duration::from_secs(5));
    assert_eq!(net.packet(from_target(), &up(&s)).0, PacketVerdict::Drop(DropReason::UnknownTunnel));
    assert_eq!(
        net.packet(from_target(), &up(&other)).0,
        PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) })
    );
    net.advance(START + Duration::from_secs(7));
    assert_eq!(net.upf.c.sessions().map(|(_, cp)| cp).collect::<Vec<_>>(), [Seid(2)]);
    net.delete(&other);
    assert_eq!(net.upf.c.free_addresses(DnIndex(0)), free);
}

#[test]
fn arrived_session_that_the_smf_never_confirms_is_released() {
    let mut net = Net::new();
    let (lost, kept) = (predicted_session(&mut net, 1), predicted_session(&mut net, 2));
    for s in [&lost, &kept] {
        assert_eq!(
            net.packet(from_target(), &up(s)).0,
            PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) })
        );
    }
    net.advance(START + Duration::from_secs(9));
    // The SMF confirms: by the request that it would have sent without a prediction.
    let r = net.establish(arrival(2));
    assert_eq!(net.seated(2, &r).teid, kept.teid);
    net.advance(START + Duration::from_secs(60));
    assert_eq!(net.upf.c.session_count(), 1);
    assert_eq!(net.upf.u.counters().sessions, 1);
    assert_eq!(net.packet(from_target(), &up(&lost)).0, PacketVerdict::Drop(DropReason::UnknownTunnel));
    assert_eq!(net.upf.u.session_counters(kept.id()).unwrap().ul_packets, 1);
}

#[test]
fn the_smf_may_confirm_before_the_ue_comes() {
    let mut net = Net::new();
    let s = predicted_session(&mut net, 1);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    net.advance(START + Duration::from_secs(60));
    assert_eq!(net.upf.u.counters().sessions, 1);
    assert_eq!(net.downlink(&down(&s, 10)).0, PacketVerdict::Send(to_gnb()));
    assert_eq!(net.upf.u.counters().predictions_true, 0);
}

#[test]
fn the_path_switches_with_the_ues_first_packet_from_the_target() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    predicted_switch(&mut net, &s);
    // Until then it is at the source, whatever comes from the network.
    assert_eq!(net.downlink(&down(&s, 10)).0, PacketVerdict::Send(to_gnb()));
    net.packet(from_gnb(), &up(&s));
    assert_eq!(net.downlink(&down(&s, 10)).0, PacketVerdict::Send(to_gnb()));
    let (verdict, _) = net.packet(from_target(), &up(&s));
    assert_eq!(verdict, PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }));
    let outputs = net.outputs();
    assert_eq!(outputs.len(), 1);
    assert_eq!(outputs[0].0, to_gnb());
    let marker = Gtpu::parse(&outputs[0].1).unwrap();
    assert_eq!((marker.message_type, marker.teid), (message_type::END_MARKER, GNB_TEID));
    assert_eq!(net.downlink(&down(&s, 10)).0, to_target());
    // The SMF says the same later: nothing changes, and no second end marker goes out.
    let mut m = activation(TARGET_TEID, TARGET.ip());
    let p = m.update_fars[0].update_forwarding_parameters.as_mut().unwrap();
    p.pfcpsmreq_flags = Some(SessionModificationFlags::SNDEM);
    net.modify(&s, m);
    assert!(net.outputs().is_empty());
    assert_eq!(net.downlink(&down(&s, 10)).0, to_target());
    let counted = net.upf.u.session_counters(s.id()).unwrap();
    assert_eq!((counted.ul_packets, counted.dl_packets), (2, 4));
}

#[test]
fn packets_held_in_a_handover_leave_first_when_the_ue_arrives() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let hold = UpdateFar { apply_action: Some(ApplyAction::BUFF), ..UpdateFar::new(FarId(2)) };
    net.modify(&s, SessionModificationRequest { update_fars: vec![hold], ..Default::default() });
    predicted_switch(&mut net, &s);
    for payload in 1..=5 {
        assert_eq!(net.downlink(&down(&s, payload)).0, PacketVerdict::Taken);
    }
    net.packet(from_target(), &up(&s));
    let outputs = net.outputs();
    let g_pdus = outputs.iter().filter(|(to, _)| PacketVerdict::Send(*to) == to_target());
    let inner: Vec<_> = g_pdus.map(|(_, o)| at_gnb(o).2).collect();
    assert_eq!(inner, (1..=5).map(|payload| down(&s, payload)).collect::<Vec<_>>());
}

#[test]
fn what_the_smf_says_ends_a_prediction() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    predicted_switch(&mut net, &s);
    let elsewhere = Ipv4Addr::new(127, 0, 0, 11);
    net.modify(&s, activation(Teid(5), elsewhere.into()));
    net.packet(from_target(), &up(&s));
    let (verdict, octets) = net.downlink(&down(&s, 10));
    let to = Destination::N3 { peer: SocketAddr::new(elsewhere.into(), 2152), tos: 0 };
    assert_eq!((verdict, at_gnb(&octets).0), (PacketVerdict::Send(to), Teid(5)));
    net.delete(&s);
    assert_eq!(net.packet(from_target(), &up(&s)).0, PacketVerdict::Drop(DropReason::UnknownTunnel));
}

#[test]
fn a_switch_that_does_not_happen_is_forgotten() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    predicted_switch(&mut net, &s);
    net.now = START + Duration::from_secs(5);
    net.packet(from_target(), &up(&s));
    assert_eq!(net.downlink(&down(&s, 10)).0, PacketVerdict::Send(to_gnb()));
    // What the SMF changes afterwards is changed from what is.
    let hold = UpdateFar { apply_action: Some(ApplyAction::BUFF), ..UpdateFar::new(FarId(2)) };
    net.modify(&s, SessionModificationRequest { update_fars: vec![hold], ..Default::default() });
    let forward = UpdateFar { apply_action: Some(ApplyAction::FORW), ..UpdateFar::new(FarId(2)) };
    net.modify(&s, SessionModificationRequest { update_fars: vec![forward], ..Default::default() });
    assert_eq!(net.downlink(&down(&s, 10)).0, PacketVerdict::Send(to_gnb()));
}

#[test]
fn predictions_are_refused_as_requests_are() {
    let mut net = Net::new();
    let s = net.session(1, true, true);
    let m = predict(&mut net, Some(Seid(0)), 0x73_0001, arrival(1).into());
    let Some(Message::SessionEstablishmentResponse(r)) = m else { panic!("{m:?}") };
    assert_eq!(r.cause, Cause::RequestRejected);
    let gone = SessionId { generation: s.id().generation ^ 1, ..s.id() };
    let m = predict(&mut net, Some(gone.seid()), 0x73_0002, activation(TARGET_TEID, TARGET.ip()).into());
    let Some(Message::SessionModificationResponse(r)) = m else { panic!("{m:?}") };
    assert_eq!(r.cause, Cause::SessionContextNotFound);
}

#[test] // TS 29.244 §8.1.1: the element of another enterprise under the same number is not ours
fn another_enterprises_element_predicts_nothing() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let m =
        SessionModificationRequest { on_arrival: Some(OnArrival), ..activation(TARGET_TEID, TARGET.ip()) };
    let mut octets = Message::from(m).to_octets(Some(s.up_seid), 0x76_0000);
    let ours = [0x80, 1, 0, 2, 0x7e, 0xd9];
    let at = octets.windows(6).position(|w| w == ours).expect("the element");
    octets[at + 5] ^= 1;
    net.upf.c.handle(net.now, Input::Pfcp { peer: SMF, octets: &octets }, &mut net.out);
    net.upf.settle(net.now, &mut net.out);
    assert_eq!(net.downlink(&down(&s, 10)).0, to_target());
}

#[test]
fn a_later_prediction_of_a_session_takes_the_place_of_an_earlier_one() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    predicted_switch(&mut net, &s);
    let third = SocketAddr::new(Ipv4Addr::new(127, 0, 0, 12).into(), 2152);
    let m = predict(&mut net, Some(s.up_seid), 0x74_0000, activation(Teid(6), third.ip()).into());
    assert!(m.is_some());
    net.packet(from_target(), &up(&s));
    assert_eq!(net.downlink(&down(&s, 10)).0, PacketVerdict::Send(to_gnb()));
    net.packet(Origin::N3 { peer: third, local: UPF.into() }, &up(&s));
    assert_eq!(net.downlink(&down(&s, 10)).0, PacketVerdict::Send(Destination::N3 { peer: third, tos: 0 }));
}

#[test]
fn a_prediction_gives_a_session_that_stands_no_address() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let free = net.upf.c.free_addresses(DnIndex(0));
    let mut both = establishment(1, true, true);
    let mut pdr = both.create_pdrs.remove(1);
    pdr.pdr_id = PdrId(3);
    let m = SessionModificationRequest { create_pdrs: vec![pdr], ..Default::default() };
    let m = predict(&mut net, Some(s.up_seid), 0x75_0000, m.into());
    let Some(Message::SessionModificationResponse(r)) = m else { panic!("{m:?}") };
    assert_eq!(r.cause, Cause::RequestRejected);
    assert_eq!(net.upf.c.free_addresses(DnIndex(0)), free);
}
