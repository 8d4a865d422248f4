//! Rules about ports, and packets in fragments: TS 29.244 §5.2.1, TS 23.501 §5.7.1.

use super::common;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use common::*;
use whimbrel_ids::Qfi;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

/// A session in which what comes from or goes to port 5060 of the network is of QoS flow 2, and all else of flow 1.
fn session(net: &mut Net, n: u64) -> Session {
    let s = net.session(n, true, true);
    let sdf_filters = vec![SdfFilter::flow("permit out 17 from any 5060 to assigned")];
    let up = Pdi {
        f_teid: Some(FTeid::given(s.teid, UPF.into())),
        qfis: vec![Qfi::new(2).unwrap()],
        sdf_filters: sdf_filters.clone(),
        ..Pdi::from(SourceInterface::Access)
    };
    let down = Pdi { sdf_filters, ..Pdi::from(SourceInterface::Core) };
    let pdr = |id, pdi, far| CreatePdr {
        qer_ids: vec![QerId(2)],
        ..CreatePdr::new(PdrId(id), Precedence(1), pdi, FarId(far))
    };
    let m = SessionModificationRequest {
        create_qers: vec![CreateQer { qfi: Qfi::new(2), ..CreateQer::new(QerId(2)) }],
        create_pdrs: vec![pdr(10, up, 1), pdr(11, down, 2)],
        ..Default::default()
    };
    assert_eq!(net.modify(&s, m).cause, Cause::RequestAccepted);
    s
}

/// Parts of a datagram: the first with ports, and a later one.
fn fragments4(source: Ipv4Addr, destination: Ipv4Addr, ports: (u16, u16), id: u16) -> [Vec<u8>; 2] {
    let mut whole = udp4(source, destination, ports, 24);
    whole[4..6].copy_from_slice(&id.to_be_bytes());
    let part = |flags: [u8; 2], payload: std::ops::Range<usize>| {
        let mut p = [&whole[..20], &whole[payload]].concat();
        let len = p.len() as u16;
        p[2..4].copy_from_slice(&len.to_be_bytes());
        p[6..8].copy_from_slice(&flags);
        p
    };
    [part([0x20, 0], 20..36), part([0, 2], 36..52)]
}

fn fragments6(source: Ipv6Addr, destination: Ipv6Addr, ports: (u16, u16), id: u8) -> [Vec<u8>; 2] {
    let udp: Vec<u8> = [ports.0, ports.1, 24, 0].into_iter().flat_map(u16::to_be_bytes).collect();
    let header = |offset_and_more: u8| vec![17, 0, 0, offset_and_more, 0, 0, 0, id];
    [
        ipv6(source, destination, 44, &[header(1), udp, vec![1; 8]].concat()),
        ipv6(source, destination, 44, &[header(16), vec![2; 8]].concat()),
    ]
}

impl Net {
    /// The QoS flow of a packet to the UE.
    fn flow(&mut self, inner: &[u8]) -> Option<u8> {
        let (verdict, octets) = self.downlink(inner);
        assert!(matches!(verdict, PacketVerdict::Send(_)), "{verdict:?}");
        at_gnb(&octets).1
    }
}

#[test]
fn a_later_fragment_meets_the_rule_of_its_first() {
    let net = &mut Net::new();
    let s = session(net, 1);
    let server6: Ipv6Addr = "2001:db8:ffff::1".parse().unwrap();
    let (ue, ue6) = (s.ipv4.unwrap(), s.ipv6.unwrap());
    for fragments in [fragments4(SERVER, ue, (5060, 7), 9), fragments6(server6, ue6, (5060, 7), 9)] {
        let [first, later] = &fragments;
        assert_eq!(net.flow(later), Some(1), "it came before its first");
        assert_eq!([net.flow(first), net.flow(later), net.flow(later)], [Some(2); 3]);
    }
    for fragments in [fragments4(SERVER, ue, (80, 7), 10), fragments6(server6, ue6, (80, 7), 10)] {
        assert_eq!(fragments.map(|f| net.flow(&f)), [Some(1); 2], "of a packet of another rule");
    }
}

#[test]
fn a_ues_later_fragment_is_of_the_flow_that_it_comes_by() {
    let net = &mut Net::new();
    let s = session(net, 1);
    let [first, later] = fragments4(s.ipv4.unwrap(), SERVER, (7, 5060), 9);
    let mut by_flow_2 = |inner: &[u8]| net.packet(from_gnb(), &g_pdu(s.teid, 2, inner)).0;
    assert_eq!(
        by_flow_2(&later),
        PacketVerdict::Drop(DropReason::QfiMismatch),
        "its first fragment has not come"
    );
    for part in [first, later] {
        assert!(matches!(by_flow_2(&part), PacketVerdict::Send(Destination::N6 { .. })));
    }
}

#[test]
fn word_is_of_one_session_and_identification_and_lives_a_minute() {
    let net = &mut Net::new();
    let (a, b) = (session(net, 1), session(net, 2));
    let to = |s: &Session, id| fragments4(SERVER, s.ipv4.unwrap(), (5060, 7), id);
    assert_eq!(net.flow(&to(&a, 9)[0]), Some(2));
    assert_eq!(net.flow(&to(&b, 9)[1]), Some(1), "another UE's");
    assert_eq!(net.flow(&to(&a, 10)[1]), Some(1), "of another packet");
    net.advance(net.now + Duration::from_secs(59));
    assert_eq!(net.flow(&to(&a, 9)[1]), Some(2));
    net.advance(net.now + Duration::from_secs(1));
    assert_eq!(net.flow(&to(&a, 9)[1]), Some(1));
}

#[test]
fn of_more_packets_than_there_is_room_for_each_part_is_its_firsts_or_of_none() {
    let net = &mut Net::new();
    let s = session(net, 1);
    let all: Vec<_> = (0..4_000).map(|id| fragments4(SERVER, s.ipv4.unwrap(), (5060, 7), id)).collect();
    for [first, _] in &all {
        assert_eq!(net.flow(first), Some(2));
    }
    let known = all.iter().filter(|[_, later]| net.flow(later) == Some(2)).count();
    assert!((1..=PORTS_AWAITED_MAX).contains(&known), "{known}");
}
