//! Ethernet PDU sessions: the UPF as a switch.

use super::common;

use std::time::Duration;

use common::*;
use whimbrel_gtpu::{GpduHeader, PduSessionInformation};
use whimbrel_ids::{Qfi, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

type Mac = [u8; 6];

const ALL: Mac = [0xff; 6];
const SERVER: Mac = [2, 0xee, 0, 0, 0, 1];
const FRAMES: PacketVerdict = PacketVerdict::Send(Destination::Frames { dn: DnIndex(0) });
const FROM_NETWORK: Origin = Origin::Frames { dn: DnIndex(0) };

fn mac(n: u8) -> Mac {
    [2, 0, 0, 0, 0, n]
}

fn frame(destination: Mac, source: Mac, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &ethertype.to_be_bytes(), payload].concat()
}

fn switch() -> Net {
    let mut config = config();
    config.data_networks[0].ethernet = true;
    Net::with(config)
}

/// An Ethernet session as an SMF sets it up: no UE addresses; downlink by what the UPF learns.
fn establishment(cp_seid: u64) -> SessionEstablishmentRequest {
    let mut m = common::establishment(cp_seid, false, false);
    m.pdn_type = Some(PdnType::Ethernet);
    for pdr in &mut m.create_pdrs {
        pdr.pdi.ue_ip_addresses.clear();
    }
    m.create_pdrs[1].pdi.ethernet_pdu_session_information = Some(EthernetPduSessionInformation::ETHI);
    m
}

/// A session whose downlink goes to the tunnel `1000 + cp_seid` at the gNB.
fn session(net: &mut Net, cp_seid: u64) -> Session {
    let r = net.establish(establishment(cp_seid));
    let s = net.seated(cp_seid, &r);
    net.modify(&s, activation(Teid(1000 + cp_seid as u32), GNB.ip()));
    s
}

fn up(net: &mut Net, s: &Session, frame: &[u8]) -> (PacketVerdict, Vec<u8>) {
    net.packet(from_gnb(), &g_pdu(s.teid, 1, frame))
}

/// The frames that the pipeline itself sent, by tunnel.
fn copies(net: &mut Net) -> Vec<(u32, Vec<u8>)> {
    let all = net.outputs().into_iter().map(|(to, octets)| {
        assert_eq!(to, to_gnb());
        let (teid, qfi, frame) = at_gnb(&octets);
        assert_eq!(qfi, Some(1));
        (teid.0, frame)
    });
    all.collect()
}

#[test] // TS 29.244 §5.13; TS 23.501 §5.6.10.2: frames without preamble and check sequence, as they are
fn frames_go_to_the_network_and_back_by_the_address_learnt() {
    let mut net = switch();
    let s = session(&mut net, 1);
    let down = frame(mac(1), SERVER, 0x88b5, b"down");
    assert_eq!(
        net.packet(FROM_NETWORK, &down).0,
        PacketVerdict::Drop(DropReason::UnknownMac),
        "not learned yet"
    );
    let first = frame(SERVER, mac(1), 0x88b5, b"up");
    assert_eq!(up(&mut net, &s, &first), (FRAMES, first));
    let (verdict, octets) = net.packet(FROM_NETWORK, &down);
    assert_eq!(verdict, PacketVerdict::Send(to_gnb()));
    assert_eq!(at_gnb(&octets), (Teid(1001), Some(1), down));
    let c = net.upf.u.session_counters(s.id()).unwrap();
    assert_eq!((c.ul_packets, c.ul_octets, c.dl_packets, c.dl_octets), (1, 16, 1, 18));
}

#[test] // TS 23.501 §5.6.10.2: only where the operator has such a network
fn ethernet_session_is_refused_where_the_network_carries_ip_alone() {
    let mut net = Net::new();
    let r = net.establish(establishment(1));
    assert_eq!((r.cause, r.offending_ie), (Cause::ServiceNotSupported, Some(OffendingIe(113))));
}

#[test] // TS 23.501 §5.8.2.5.3: to every session but the one it comes from
fn frames_for_all_are_copied_and_do_not_come_back() {
    let mut net = switch();
    let all: Vec<_> = (1..=4).map(|n| session(&mut net, n)).collect();
    let ip = net.session(9, true, false);
    let request = frame(ALL, mac(1), 0x0806, b"an ARP request");
    assert_eq!(up(&mut net, &all[0], &request), (FRAMES, request.clone()));
    let expected: Vec<_> = (2..=4).map(|n| (1000 + n, request.clone())).collect();
    assert_eq!(copies(&mut net), expected);
    // The bridge of the network sends it back to all its ports, this one among them.
    assert_eq!(net.packet(FROM_NETWORK, &request).0, PacketVerdict::Taken);
    assert_eq!(copies(&mut net), expected, "not to the UE that sent it");
    let from_server = frame([1, 0, 0x5e, 0, 0, 1], SERVER, 0x0800, b"multicast");
    assert_eq!(net.packet(FROM_NETWORK, &from_server).0, PacketVerdict::Taken);
    assert_eq!(copies(&mut net).len(), 4);
    assert_eq!(net.upf.u.session_counters(ip.id()).unwrap().dl_packets, 0, "an IP session gets no frames");
    net.delete(&all[1]);
    net.packet(FROM_NETWORK, &from_server);
    assert_eq!(copies(&mut net).len(), 3);
}

#[test] // TS 23.501 §5.6.10.2: from UE to UE without the network
fn frames_between_ues_are_switched() {
    let mut net = switch();
    let (a, b) = (session(&mut net, 1), session(&mut net, 2));
    up(&mut net, &a, &frame(SERVER, mac(1), 0x88b5, b""));
    up(&mut net, &b, &frame(SERVER, mac(2), 0x88b5, b""));
    let m = frame(mac(2), mac(1), 0x88b5, b"hello");
    let (verdict, octets) = up(&mut net, &a, &m);
    assert_eq!((verdict, at_gnb(&octets)), (PacketVerdict::Send(to_gnb()), (Teid(1002), Some(1), m)));
    // What a UE sends to itself, or the network to where it came from, goes nowhere.
    up(&mut net, &a, &frame(SERVER, mac(3), 0x88b5, b""));
    let to_itself = frame(mac(3), mac(1), 0x88b5, b"");
    assert_eq!(up(&mut net, &a, &to_itself).0, PacketVerdict::Drop(DropReason::FrameReturns));
    assert_eq!(net.packet(FROM_NETWORK, &to_itself).0, PacketVerdict::Drop(DropReason::FrameReturns));
}

#[test] // one UE may not take another's address, nor one that is none
fn addresses_of_others_and_of_groups_are_refused_as_source() {
    let mut net = switch();
    let (a, b) = (session(&mut net, 1), session(&mut net, 2));
    up(&mut net, &a, &frame(SERVER, mac(1), 0x88b5, b""));
    let stolen = frame(SERVER, mac(1), 0x88b5, b"");
    assert_eq!(up(&mut net, &b, &stolen).0, PacketVerdict::Drop(DropReason::SpoofedSource));
    for source in [ALL, [1, 0, 0x5e, 0, 0, 1], [0; 6]] {
        let m = frame(SERVER, source, 0x88b5, b"");
        assert_eq!(up(&mut net, &b, &m).0, PacketVerdict::Drop(DropReason::InnerMalformed));
    }
    for cut in 0..14 {
        let m = &frame(SERVER, mac(2), 0x88b5, b"")[..cut];
        assert_eq!(up(&mut net, &b, m).0, PacketVerdict::Drop(DropReason::InnerMalformed), "{cut}");
        assert_eq!(net.packet(FROM_NETWORK, m).0, PacketVerdict::Drop(DropReason::InnerMalformed), "{cut}");
    }
    // With its session the address is free again.
    net.delete(&a);
    assert_eq!(up(&mut net, &b, &stolen).0, FRAMES);
}

#[test]
fn addresses_of_a_session_are_bounded_and_age() {
    let mut net = switch();
    let (a, b) = (session(&mut net, 1), session(&mut net, 2));
    for n in 0..MACS_PER_SESSION_MAX as u8 {
        assert_eq!(up(&mut net, &a, &frame(SERVER, mac(n + 1), 0x88b5, b"")).0, FRAMES);
    }
    let one_more = frame(SERVER, mac(200), 0x88b5, b"");
    assert_eq!(up(&mut net, &a, &one_more).0, PacketVerdict::Drop(DropReason::MacTableFull));
    assert_eq!(up(&mut net, &b, &one_more).0, FRAMES, "others are not concerned");
    // One of them is used on; the others age.
    let at = net.now + Duration::from_secs(200);
    net.advance(at);
    up(&mut net, &a, &frame(SERVER, mac(1), 0x88b5, b""));
    let at = net.now + Duration::from_secs(150);
    net.advance(at);
    assert!(matches!(
        net.packet(FROM_NETWORK, &frame(mac(1), SERVER, 0x88b5, b"")).0,
        PacketVerdict::Send(_)
    ));
    let aged = frame(mac(2), SERVER, 0x88b5, b"");
    assert_eq!(net.packet(FROM_NETWORK, &aged).0, PacketVerdict::Drop(DropReason::UnknownMac));
    assert_eq!(up(&mut net, &b, &frame(SERVER, mac(2), 0x88b5, b"")).0, FRAMES, "free for others");
}

#[test] // TS 29.244 §5.13.5: MAC addresses are reported when they begin and cease to be used
fn addresses_are_reported_where_a_urr_asks_for_it() {
    let mut net = switch();
    let mut m = establishment(1);
    m.create_urrs[0] = CreateUrr {
        ethernet_inactivity_timer: Some(EthernetInactivityTimer(60)),
        ..CreateUrr::new(UrrId(1), MeasurementMethod::EVENT, ReportingTriggers::MACAR)
    };
    let r = net.establish(m);
    let s = net.seated(1, &r);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    let reported = |net: &mut Net| -> Vec<(Vec<MacAddresses>, Vec<MacAddresses>)> {
        let all = net.accepted_reports().into_iter().flat_map(|(_, _, r)| r.usage_reports);
        all.map(|u| {
            assert_eq!(u.usage_report_trigger, UsageReportTrigger::MACAR);
            let t = u.ethernet_traffic_information.unwrap();
            (t.mac_addresses_detected, t.mac_addresses_removed)
        })
        .collect()
    };
    up(&mut net, &s, &frame(SERVER, mac(1), 0x88b5, b""));
    up(&mut net, &s, &frame(SERVER, mac(1), 0x88b5, b""));
    assert_eq!(reported(&mut net), [(vec![MacAddresses(vec![mac(1)])], vec![])]);
    let at = net.now + Duration::from_secs(61);
    net.advance(at);
    assert_eq!(reported(&mut net), [(vec![], vec![MacAddresses(vec![mac(1)])])]);
}

#[test] // a storm is not multiplied without bound
fn broadcast_storm_is_bounded() {
    let mut net = switch();
    let all: Vec<_> = (1..=3).map(|n| session(&mut net, n)).collect();
    let m = frame(ALL, mac(1), 0x0806, b"");
    for _ in 0..FLOODS_PER_SECOND_MAX + 50 {
        assert_eq!(up(&mut net, &all[0], &m).0, FRAMES, "towards the network it goes on");
    }
    assert_eq!(copies(&mut net).len(), 2 * FLOODS_PER_SECOND_MAX as usize);
    assert_eq!(net.dropped(DropReason::FloodRate), 50);
}

#[test] // TS 29.244 table 7.5.2.2-3, TS 23.501 §5.7.6.3: flows by address, type, tag and the IP packet within
fn flows_of_frames_have_their_filters() {
    let mut net = switch();
    let s = session(&mut net, 1);
    let empty = EthernetPacketFilter {
        ethernet_filter_id: None,
        ethernet_filter_properties: None,
        mac_addresses: vec![],
        ethertype: None,
        c_tag: None,
        s_tag: None,
        sdf_filters: vec![],
    };
    let filters = [
        (5, EthernetPacketFilter { ethertype: Some(Ethertype(0x8892)), ..empty.clone() }),
        (6, EthernetPacketFilter { c_tag: Some(VlanTag([4, 0x10, 0x23])), ..empty.clone() }),
        (
            7,
            EthernetPacketFilter {
                sdf_filters: vec![SdfFilter::flow("permit out 17 from any 53 to any")],
                ..empty.clone()
            },
        ),
        (
            8,
            EthernetPacketFilter {
                mac_addresses: vec![MacAddress {
                    source: Some([2, 0xee, 0, 0, 0, 9]),
                    ..MacAddress::default()
                }],
                ..empty
            },
        ),
    ];
    let mut m = SessionModificationRequest::default();
    for (n, filter) in filters {
        let pdi = Pdi {
            network_instance: NetworkInstance::new("internet"),
            ethernet_packet_filters: vec![filter],
            ..Pdi::from(SourceInterface::Core)
        };
        let id = QerId(n);
        let pdr = CreatePdr::new(PdrId(n as u16 + 10), Precedence(n), pdi, FarId(2));
        m.create_pdrs.push(CreatePdr { qer_ids: vec![id], ..pdr });
        m.create_qers.push(CreateQer { qfi: Qfi::new(n as u8), ..CreateQer::new(id) });
    }
    let r = net.modify(&s, m);
    assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
    up(&mut net, &s, &frame(SERVER, mac(1), 0x88b5, b""));
    let dns = udp4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), (53, 9), 4);
    let cases = [
        (frame(mac(1), SERVER, 0x8892, b"profinet"), 5),
        (frame(mac(1), SERVER, 0x8100, &[0x61, 0x23, 8, 6]), 6),
        (frame(mac(1), SERVER, 0x8100, &[0x61, 0x24, 8, 6]), 1),
        (frame(mac(1), SERVER, 0x0800, &dns), 7),
        (frame(mac(1), SERVER, 0x0800, &dns[..20]), 1),
        (frame(mac(1), [2, 0xee, 0, 0, 0, 9], 0x88b5, b""), 8),
    ];
    for (m, flow) in cases {
        let (_, octets) = net.packet(FROM_NETWORK, &m);
        assert_eq!(at_gnb(&octets), (Teid(1001), Some(flow), m));
    }
}

#[test] // TS 29.244 §8.2.98, §8.2.99: one filter for both directions
fn filter_of_both_directions_is_named_by_the_other() {
    let mut net = switch();
    let s = session(&mut net, 1);
    let named = |ethertype, mac_addresses| EthernetPacketFilter {
        ethernet_filter_id: Some(EthernetFilterId(7)),
        ethernet_filter_properties: Some(EthernetFilterProperties::BIDE),
        mac_addresses,
        ethertype,
        c_tag: None,
        s_tag: None,
        sdf_filters: vec![],
    };
    let from_server = vec![MacAddress { source: Some(SERVER), ..MacAddress::default() }];
    let rule = |id, source, filter, far| {
        let pdi = Pdi {
            f_teid: (source == SourceInterface::Access).then_some(FTeid::given(s.teid, UPF.into())),
            network_instance: NetworkInstance::new("internet"),
            ethernet_packet_filters: vec![filter],
            ..Pdi::from(source)
        };
        CreatePdr::new(PdrId(id), Precedence(1), pdi, far)
    };
    let name = EthernetPacketFilter { ethernet_filter_properties: None, ..named(None, vec![]) };
    let r = net.modify(
        &s,
        SessionModificationRequest {
            create_pdrs: vec![
                rule(11, SourceInterface::Core, named(None, from_server), FarId(2)),
                rule(12, SourceInterface::Access, name.clone(), FarId(9)),
            ],
            create_fars: vec![CreateFar::action(FarId(9), ApplyAction::DROP)],
            ..Default::default()
        },
    );
    assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
    let to_server = frame(SERVER, mac(1), 0x88b5, b"");
    assert_eq!(up(&mut net, &s, &to_server).0, PacketVerdict::Drop(DropReason::FarDrop));
    assert_eq!(up(&mut net, &s, &frame(mac(9), mac(1), 0x88b5, b"")).0, FRAMES);
    // An unknown data network name.
    let unknown = EthernetPacketFilter { ethernet_filter_id: Some(EthernetFilterId(8)), ..name };
    let create_pdrs = vec![rule(13, SourceInterface::Access, unknown, FarId(9))];
    let r = net.modify(&s, SessionModificationRequest { create_pdrs, ..Default::default() });
    assert_eq!(r.cause, Cause::RuleCreationModificationFailure);
}

#[test] // TS 23.502 §4.2.3.3: frames for an idle UE wait as packets do
fn frames_for_an_idle_ue_wait_in_order() {
    let mut net = switch();
    let s = session(&mut net, 1);
    up(&mut net, &s, &frame(SERVER, mac(1), 0x88b5, b""));
    let action = Some(ApplyAction::BUFF | ApplyAction::NOCP);
    let idle = vec![UpdateFar { apply_action: action, ..UpdateFar::new(FarId(2)) }];
    net.modify(&s, SessionModificationRequest { update_fars: idle, ..Default::default() });
    let frames: Vec<_> = (0..3).map(|n| frame(mac(1), SERVER, 0x88b5, &[n])).collect();
    for m in &frames {
        assert_eq!(net.packet(FROM_NETWORK, m).0, PacketVerdict::Taken);
    }
    assert_eq!(net.reports().len(), 1);
    net.modify(&s, activation(Teid(1001), GNB.ip()));
    assert_eq!(copies(&mut net).into_iter().map(|(_, m)| m).collect::<Vec<_>>(), frames);
}

#[test] // an Ethernet session's frames do not look like IP, nor the other way round
fn ip_packets_are_no_frames() {
    let mut net = switch();
    let s = session(&mut net, 1);
    let ip = net.session(2, true, false);
    let m = frame(SERVER, mac(1), 0x0800, &udp4(ip.ipv4.unwrap(), common::SERVER, (1, 2), 0));
    assert_eq!(up(&mut net, &ip, &m).0, PacketVerdict::Drop(DropReason::InnerMalformed));
    let container = PduSessionInformation::Ul { qfi: Qfi::new(1).unwrap() };
    let empty = GpduHeader::new(s.teid, Some(container));
    let mut octets = vec![0; empty.octets_len()];
    empty.write_before(0, &mut octets).unwrap();
    assert_eq!(net.packet(from_gnb(), &octets).0, PacketVerdict::Drop(DropReason::InnerMalformed));
}
