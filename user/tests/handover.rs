//! What handovers ask of a UPF: end markers, forwarding tunnels, order across a switch of the path.

use super::common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use common::*;
use whimbrel_gtpu::{GpduHeader, Gtpu, PduSessionInformation, message_type};
use whimbrel_ids::{Qfi, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::SessionModificationRequest;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

const TARGET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 10)), 2152);
const TARGET_TEID: Teid = Teid(77);
const FORWARDING_TEID: Teid = Teid(78);

/// The path switched to the target gNB, with end markers.
fn switch() -> SessionModificationRequest {
    let mut m = activation(TARGET_TEID, TARGET.ip());
    let p = m.update_fars[0].update_forwarding_parameters.as_mut().unwrap();
    p.pfcpsmreq_flags = Some(SessionModificationFlags::SNDEM);
    m
}

/// A forwarding tunnel to the target gNB, as `pipeline/relay.rs` says that a CP function asks for it.
fn forwarding(pdr_id: u16, far_id: u32) -> SessionModificationRequest {
    let pdi = Pdi {
        f_teid: Some(FTeid::Choose { ipv4: true, ipv6: false, choose_id: None }),
        source_interface_type: Some(InterfaceType::N3_FORWARDING),
        ..Pdi::from(SourceInterface::Access)
    };
    let parameters = ForwardingParameters {
        outer_header_creation: Some(OuterHeaderCreation::gtpu(FORWARDING_TEID, TARGET.ip())),
        transport_level_marking: Some(TransportLevelMarking { value: 0x28, mask: 0xfc }),
        ..ForwardingParameters::to(DestinationInterface::Access)
    };
    SessionModificationRequest {
        create_pdrs: vec![CreatePdr {
            outer_header_removal: Some(OuterHeaderRemovalDescription::GtpuUdpIp.into()),
            ..CreatePdr::new(PdrId(pdr_id), Precedence(1), pdi, FarId(far_id))
        }],
        create_fars: vec![CreateFar::forward(FarId(far_id), parameters)],
        ..Default::default()
    }
}

/// Sets up a forwarding tunnel; its TEID at the UPF.
fn forward(net: &mut Net, s: &Session) -> Teid {
    let r = net.modify(s, forwarding(9, 9));
    assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
    let Some(FTeid::Given { teid, .. }) = r.created_pdrs[0].local_f_teid else { panic!("{r:?}") };
    assert_ne!(teid, s.teid);
    teid
}

fn message(message_type: u8, teid: Teid, tail: &[u8]) -> Vec<u8> {
    let mut m = vec![0x30, message_type, 0, tail.len() as u8];
    m.extend_from_slice(&teid.0.to_be_bytes());
    m.extend_from_slice(tail);
    m
}

fn to_target() -> PacketVerdict {
    PacketVerdict::Send(Destination::N3 { peer: TARGET, tos: 0x28 })
}

/// A packet that the source gNB forwards: with the container and the marks that it had.
fn forwarded(teid: Teid, inner: &[u8]) -> Vec<u8> {
    let container = PduSessionInformation::Dl { qfi: Qfi::new(9).unwrap(), rqi: true, ppi: Some(3) };
    let header = GpduHeader::new(teid, Some(container));
    let mut m = vec![0; header.octets_len()];
    header.write_before(inner.len(), &mut m).unwrap();
    m.extend_from_slice(inner);
    m
}

#[test] // TS 23.502 §4.9.1.3.2 step 11: indirect forwarding
fn forwarding_tunnel_carries_packets_with_their_container_to_the_target() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let teid = forward(&mut net, &s);
    let inner = udp4(SERVER, s.ipv4.unwrap(), (53, 4000), 20);
    let (verdict, octets) = net.packet(from_gnb(), &forwarded(teid, &inner));
    assert_eq!((verdict, octets), (to_target(), forwarded(FORWARDING_TEID, &inner)));
    let c = net.upf.u.counters();
    assert_eq!((c.relayed, c.ul_packets, c.dl_packets), (1, 0, 0));
    // The session's own traffic goes on as before.
    assert_eq!(net.downlink(&inner).0, PacketVerdict::Send(to_gnb()));
    let up = udp4(s.ipv4.unwrap(), SERVER, (4000, 53), 20);
    assert_eq!(net.uplink(&s, &up).0, PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }));
}

#[test] // TS 29.281 §5.2.2.2, TS 29.244 §8.2.64: extension headers are carried on
fn forwarding_tunnel_keeps_sequence_and_pdcp_numbers_and_does_not_look_inside() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let teid = forward(&mut net, &s);
    // Sequence number 7, PDCP PDU number 0x1234, then a PDCP SDU that is no IP packet.
    let content = [0, 7, 0, 0xc0, 1, 0x12, 0x34, 0, 0xde, 0xad];
    let with = |teid| {
        let mut m = message(message_type::G_PDU, teid, &content);
        m[0] |= 6;
        m
    };
    let (verdict, octets) = net.packet(from_gnb(), &with(teid));
    assert_eq!((verdict, octets), (to_target(), with(FORWARDING_TEID)));
}

#[test] // TS 29.281 §5.2.1: comprehension by an intermediate node
fn forwarding_tunnel_relays_extension_headers_of_each_type_as_its_bits_say() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let relay = forward(&mut net, &s);
    let with = |kind: u8, teid, t: u8| {
        let mut m = message(kind, teid, &[0, 0, 0, t, 1, 0x10, 9, 0, 0xde, 0xad]);
        m[0] |= 4;
        m
    };
    for kind in [message_type::G_PDU, message_type::END_MARKER] {
        // Control plane only, Long PDCP PDU number, service class indicator, RAN containers, free types.
        for t in [0x01, 0x02, 0x03, 0x20, 0x21, 0x81, 0x82, 0x83, 0x84, 0x85, 0x8f, 0xc0] {
            let (verdict, octets) = net.packet(from_gnb(), &with(kind, relay, t));
            assert_eq!((verdict, octets), (to_target(), with(kind, FORWARDING_TEID, t)), "{t:#x}");
        }
        for t in [0x40, 0x61] {
            let (verdict, octets) = net.packet(from_gnb(), &with(kind, relay, t));
            let mut without = message(kind, FORWARDING_TEID, &[0, 0, 0, 0, 0xde, 0xad]);
            without[0] |= 4;
            assert_eq!((verdict, octets), (to_target(), without), "{t:#x}");
        }
        for t in [0xc1, 0xc2, 0xcf] {
            let (verdict, _) = net.packet(from_gnb(), &with(kind, relay, t));
            assert_eq!(verdict, PacketVerdict::Drop(DropReason::GtpuUnknownExtension), "{t:#x}");
            let outputs = net.outputs();
            let answer = Gtpu::parse(&outputs[0].1).unwrap();
            assert_eq!(answer.message_type, message_type::SUPPORTED_EXTENSION_HEADERS_NOTIFICATION);
        }
    }
    // The session's own tunnel ends here.
    for t in [0x81, 0x83, 0x84, 0x8f] {
        let (verdict, _) = net.packet(from_gnb(), &with(message_type::G_PDU, s.teid, t));
        assert_eq!(verdict, PacketVerdict::Drop(DropReason::GtpuUnknownExtension), "{t:#x}");
    }
}

#[test] // TS 23.501 §5.8.2.9: the source gNB's end marker goes through the forwarding tunnel, behind the packets
fn end_marker_goes_through_the_forwarding_tunnel() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let teid = forward(&mut net, &s);
    let marker = message(message_type::END_MARKER, teid, &[]);
    let (verdict, octets) = net.packet(from_gnb(), &marker);
    assert_eq!(verdict, to_target());
    assert_eq!(octets, message(message_type::END_MARKER, FORWARDING_TEID, &[]));
    let c = net.upf.u.counters();
    assert_eq!((c.end_markers_received, c.end_markers_relayed, c.relayed), (1, 1, 0));
}

#[test] // TS 23.502 §4.9.1.3.3 step 15: the forwarding tunnel goes when the handover is over
fn removed_forwarding_tunnel_is_unknown_and_its_name_does_not_come_back() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let mut given = vec![s.teid];
    for _ in 0..20 {
        let teid = forward(&mut net, &s);
        assert!(!given.contains(&teid), "{teid:?} was given before");
        given.push(teid);
        let r = net.modify(
            &s,
            SessionModificationRequest {
                remove_pdrs: vec![RemovePdr { pdr_id: PdrId(9) }],
                remove_fars: vec![RemoveFar { far_id: FarId(9) }],
                ..Default::default()
            },
        );
        assert_eq!(r.cause, Cause::RequestAccepted);
        let late = forwarded(teid, &udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0));
        assert_eq!(net.packet(from_gnb(), &late).0, PacketVerdict::Drop(DropReason::UnknownTunnel));
    }
    let up = udp4(s.ipv4.unwrap(), SERVER, (4000, 53), 20);
    assert!(matches!(net.uplink(&s, &up).0, PacketVerdict::Send(_)), "the session's own tunnel stays");
}

#[test] // TS 29.244 §5.5.1: several tunnels of one session, and no more than there is room for
fn several_tunnels_of_a_session_up_to_the_bound() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let all: Vec<_> = (0..TUNNELS_PER_SESSION_MAX as u16 - 1)
        .map(|i| net.modify(&s, forwarding(10 + i, 10 + u32::from(i))))
        .collect();
    assert!(all.iter().all(|r| r.cause == Cause::RequestAccepted));
    let refused = net.modify(&s, forwarding(20, 20));
    assert_eq!((refused.cause, refused.offending_ie), (Cause::NoResourcesAvailable, Some(OffendingIe(21))));
    for r in &all {
        let Some(FTeid::Given { teid, .. }) = r.created_pdrs[0].local_f_teid else { panic!() };
        assert_eq!(net.packet(from_gnb(), &forwarded(teid, &[1, 2, 3])).0, to_target());
    }
}

#[test] // an error indication about the forwarding tunnel names it
fn error_indication_of_the_forwarding_tunnel_names_it() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    forward(&mut net, &s);
    let m = whimbrel_gtpu::signalling::error_indication(FORWARDING_TEID, TARGET.ip(), 2152);
    let origin = Origin::N3 { peer: TARGET, local: UPF.into() };
    assert_eq!(net.packet(origin, m.as_ref()).0, PacketVerdict::Taken);
    let reports = net.reports();
    let report = reports[0].2.error_indication_report.as_ref().unwrap();
    assert_eq!(report.remote_f_teids, [FTeid::given(FORWARDING_TEID, TARGET.ip())]);
}

#[test] // TS 23.502 §4.9.1.2.2 step 5: the end marker comes after the last packet to the old tunnel
fn end_marker_comes_behind_what_went_to_the_old_tunnel_and_before_what_goes_to_the_new() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let inner: Vec<_> = (0..6).map(|i| udp4(SERVER, s.ipv4.unwrap(), (53, 4000), i)).collect();
    assert_eq!(net.downlink(&inner[0]).0, PacketVerdict::Send(to_gnb()));
    // Packets wait between preparation and execution; both tunnels are in use in the order of the packets.
    let hold = UpdateFar { apply_action: Some(ApplyAction::BUFF), ..UpdateFar::new(FarId(2)) };
    net.modify(&s, SessionModificationRequest { update_fars: vec![hold], ..Default::default() });
    for p in &inner[1..5] {
        assert_eq!(net.downlink(p).0, PacketVerdict::Taken);
    }
    net.modify(&s, switch());
    let outputs = net.outputs();
    let first = Gtpu::parse(&outputs[0].1).unwrap();
    assert_eq!(
        (outputs[0].0, first.message_type, first.teid),
        (to_gnb(), message_type::END_MARKER, GNB_TEID)
    );
    let to = Destination::N3 { peer: TARGET, tos: 0 };
    let held: Vec<_> = outputs[1..].iter().map(|(d, o)| (*d, at_gnb(o))).collect();
    let expected: Vec<_> = inner[1..5].iter().map(|p| (to, (TARGET_TEID, Some(1), p.clone()))).collect();
    assert_eq!(held, expected);
    assert_eq!(at_gnb(&net.downlink(&inner[5]).1).0, TARGET_TEID);
}

#[test] // TS 29.244 §5.2.2 and table 7.5.4.3-2: no flag, no marker; an unchanged tunnel has not ended
fn no_end_marker_without_the_flag_or_without_a_change() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let mut same = switch();
    let p = same.update_fars[0].update_forwarding_parameters.as_mut().unwrap();
    p.outer_header_creation = Some(OuterHeaderCreation::gtpu(GNB_TEID, GNB.ip()));
    net.modify(&s, same);
    net.modify(&s, activation(TARGET_TEID, TARGET.ip()));
    assert!(net.outputs().is_empty());
}

#[test] // flows of one session have a FAR each and one tunnel: it ends once
fn flows_that_share_a_tunnel_get_one_end_marker() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let parameters = ForwardingParameters {
        outer_header_creation: Some(OuterHeaderCreation::gtpu(GNB_TEID, GNB.ip())),
        ..ForwardingParameters::to(DestinationInterface::Access)
    };
    let create_fars = vec![CreateFar::forward(FarId(5), parameters)];
    net.modify(&s, SessionModificationRequest { create_fars, ..Default::default() });
    let mut both = switch();
    let second = UpdateFar { far_id: FarId(5), ..both.update_fars[0].clone() };
    both.update_fars.push(second);
    net.modify(&s, both);
    assert_eq!(net.outputs().len(), 1);
}

#[test] // TS 29.281 §7.3.2: an end marker for a tunnel that leads to no other, or to none
fn end_marker_for_an_idle_or_unknown_tunnel_is_dropped_and_counted() {
    let mut net = Net::new();
    let s = net.idle_session(1, true, false);
    let marker = message(message_type::END_MARKER, s.teid, &[]);
    assert_eq!(net.packet(from_gnb(), &marker).0, PacketVerdict::Drop(DropReason::EndMarkerIgnored));
    let marker = message(message_type::END_MARKER, Teid(5), &[]);
    assert_eq!(net.packet(from_gnb(), &marker).0, PacketVerdict::Drop(DropReason::UnknownTunnel));
    assert!(net.outputs().is_empty(), "no error indication either");
    assert_eq!(net.upf.u.counters().end_markers_received, 2);
}

#[test]
fn end_markers_that_lead_nowhere_leave_a_plain_session_plain() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let plain = |net: &mut Net| net.upf.u.only().map(|u| u.plain());
    let before = plain(&mut net);
    let marker = message(message_type::END_MARKER, s.teid, &[]);
    assert_eq!(net.packet(from_gnb(), &marker).0, PacketVerdict::Drop(DropReason::EndMarkerIgnored));
    assert_eq!(plain(&mut net), before);
}

#[test] // RFC 4861: a forwarding tunnel does not make an idle session active
fn forwarding_tunnel_draws_no_router_advertisement() {
    let mut net = Net::new();
    let s = net.idle_session(1, false, true);
    forward(&mut net, &s);
    assert!(net.outputs().is_empty());
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    assert_eq!(net.outputs().len(), 1);
}

/// A session at an intermediate UPF: between the gNB and an anchor, whose tunnel is `FORWARDING_TEID` at `TARGET`. Its tunnels on N3 and N9.
fn intermediate(net: &mut Net) -> (Teid, Teid) {
    let pdr = |id, source, far| {
        let f_teid = Some(FTeid::Choose { ipv4: true, ipv6: false, choose_id: None });
        let pdi = Pdi { f_teid, ..Pdi::from(source) };
        CreatePdr {
            outer_header_removal: Some(OuterHeaderRemovalDescription::GtpuUdpIp.into()),
            ..CreatePdr::new(PdrId(id), Precedence(255), pdi, FarId(far))
        }
    };
    let far = |id, interface, teid, address| {
        let outer_header_creation = Some(OuterHeaderCreation::gtpu(teid, address));
        CreateFar::forward(
            FarId(id),
            ForwardingParameters { outer_header_creation, ..ForwardingParameters::to(interface) },
        )
    };
    let mut m = establishment(7, true, false);
    m.create_pdrs = vec![pdr(1, SourceInterface::Access, 1), pdr(2, SourceInterface::Core, 2)];
    m.create_fars = vec![
        far(1, DestinationInterface::Core, FORWARDING_TEID, TARGET.ip()),
        far(2, DestinationInterface::Access, Teid(5), GNB.ip()),
    ];
    (m.create_qers, m.create_urrs) = (Vec::new(), Vec::new());
    let r = net.establish(m);
    assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
    let teid = |id| match r.created_pdrs.iter().find(|p| p.pdr_id == PdrId(id)).and_then(|p| p.local_f_teid) {
        Some(FTeid::Given { teid, .. }) => teid,
        other => panic!("{other:?}"),
    };
    (teid(1), teid(2))
}

#[test] // TS 23.501 §5.8.2.4, TS 29.244 §8.2.64: packets pass with their QoS flow, in both directions, and end markers behind them
fn an_intermediate_upf_passes_packets_as_they_are() {
    let mut net = Net::new();
    let (n3, n9) = intermediate(&mut net);
    // A router solicitation too, which is no business of this UPF: what is inside is not looked at.
    for inner in [udp4(Ipv4Addr::new(10, 9, 9, 9), SERVER, (1, 2), 40), vec![0x60; 48]] {
        let (verdict, octets) = net.packet(from_gnb(), &g_pdu(n3, 9, &inner));
        assert_eq!(verdict, PacketVerdict::Send(Destination::N3 { peer: TARGET, tos: 0 }));
        assert_eq!(octets, g_pdu(FORWARDING_TEID, 9, &inner));
        let anchor = Origin::N3 { peer: TARGET, local: UPF.into() };
        let (verdict, octets) = net.packet(anchor, &forwarded(n9, &inner));
        assert_eq!((verdict, octets), (PacketVerdict::Send(to_gnb()), forwarded(Teid(5), &inner)));
    }
    let anchor = Origin::N3 { peer: TARGET, local: UPF.into() };
    let marker = message(message_type::END_MARKER, n9, &[]);
    assert_eq!(net.packet(anchor, &marker).0, PacketVerdict::Send(to_gnb()));
    assert_eq!(net.upf.u.counters().end_markers_relayed, 1);
}
