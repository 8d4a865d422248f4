//! Unstructured PDU sessions: what the UE sends, by a tunnel of UDP over IPv6 on N6.

use super::common;

use std::net::{Ipv6Addr, SocketAddrV6};

use common::*;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

const PEER: SocketAddrV6 = SocketAddrV6::new(Ipv6Addr::new(0x2001, 0xdb8, 0xa5, 0, 0, 0, 0, 9), 7000, 0, 0);
const PORT: u16 = 6000;

fn net() -> Net {
    let mut config = config();
    config.data_networks[0].unstructured = Some(PointToPoint { peer: PEER, port: PORT });
    Net::with(config)
}

fn establishment(cp_seid: u64) -> SessionEstablishmentRequest {
    let mut m = common::establishment(cp_seid, false, false);
    m.pdn_type = Some(PdnType::NonIp);
    m.create_pdrs.iter_mut().for_each(|pdr| pdr.pdi.ue_ip_addresses.clear());
    m
}

fn session(net: &mut Net, cp_seid: u64) -> Session {
    let r = net.establish(establishment(cp_seid));
    let s = net.seated(cp_seid, &r);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    s
}

/// The packet of the other end that answers one of the UPF's: ends changed, the same checksum.
fn answer(p: &[u8]) -> Vec<u8> {
    let mut a = p.to_vec();
    a[8..24].copy_from_slice(&p[24..40]);
    a[24..40].copy_from_slice(&p[8..24]);
    a[40..42].copy_from_slice(&p[42..44]);
    a[42..44].copy_from_slice(&p[40..42]);
    a
}

fn sum(p: &[u8]) -> u16 {
    let words = |o: &[u8]| -> u32 {
        o.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum()
    };
    let mut sum = words(&p[8..]) + (p.len() as u32 - 40) + 17;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[test] // TS 23.501 §5.6.10.3: point-to-point tunnelling based on UDP/IPv6
fn octets_travel_in_a_tunnel_on_n6() {
    let mut net = net();
    let s = session(&mut net, 1);
    assert!(net.outputs().is_empty(), "no router advertisement");
    for payload in [&b"x"[..], b"meter 17", &[0xff; 1200]] {
        let (verdict, p) = net.packet(from_gnb(), &g_pdu(s.teid, 1, payload));
        assert_eq!(verdict, PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }));
        assert_eq!((p[0] >> 4, p[6], p.len()), (6, 17, 48 + payload.len()));
        assert_eq!(p[24..40], PEER.ip().octets());
        assert_eq!((p[40..44].to_vec(), &p[48..]), (vec![0x17, 0x70, 0x1b, 0x58], payload));
        assert_eq!(sum(&p), 0xffff, "checksum");
        let (verdict, octets) = net.downlink(&answer(&p));
        assert_eq!(verdict, PacketVerdict::Send(to_gnb()));
        assert_eq!(at_gnb(&octets), (GNB_TEID, Some(1), payload.to_vec()));
    }
    let c = net.upf.u.session_counters(s.id()).unwrap();
    assert_eq!((c.ul_octets, c.dl_octets), (1209, 1209), "without the tunnel's headers");
}

#[test] // TS 23.501 §5.6.10.3: a prefix for each session, and none is left
fn each_session_has_a_prefix_of_its_own_and_gives_it_back() {
    let mut net = net();
    let free = net.upf.c.free_addresses(DnIndex(0)).unwrap().1;
    let (a, b) = (session(&mut net, 1), session(&mut net, 2));
    let of_a = net.packet(from_gnb(), &g_pdu(a.teid, 1, b"a")).1;
    let of_b = net.packet(from_gnb(), &g_pdu(b.teid, 1, b"b")).1;
    assert_ne!(of_a[8..24], of_b[8..24]);
    assert_eq!(net.upf.c.free_addresses(DnIndex(0)).unwrap().1, free - 2);
    net.delete(&a);
    net.delete(&b);
    assert_eq!(net.upf.c.free_addresses(DnIndex(0)).unwrap().1, free);
    assert_eq!(net.downlink(&answer(&of_a)).0, PacketVerdict::Drop(DropReason::UnknownUeAddress));
}

#[test] // only the other end speaks to the UE
fn packets_that_are_not_of_the_tunnel_are_dropped() {
    let mut net = net();
    let s = session(&mut net, 1);
    let good = answer(&net.packet(from_gnb(), &g_pdu(s.teid, 1, b"payload")).1);
    let spoilt = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut p = good.clone();
        change(&mut p);
        p
    };
    let cases = [
        ("another source", spoilt(&|p| p[23] ^= 1), DropReason::NoMatchingPdr),
        ("another interface identifier", spoilt(&|p| p[39] ^= 2), DropReason::NoMatchingPdr),
        ("another source port", spoilt(&|p| p[41] ^= 1), DropReason::NoMatchingPdr),
        ("another port", spoilt(&|p| p[43] ^= 1), DropReason::NoMatchingPdr),
        ("TCP", spoilt(&|p| p[6] = 6), DropReason::NoMatchingPdr),
        ("a wrong sum", spoilt(&|p| p[50] ^= 1), DropReason::InnerMalformed),
        ("a wrong length", spoilt(&|p| p[45] ^= 1), DropReason::InnerMalformed),
        ("another prefix", spoilt(&|p| p[31] ^= 0x40), DropReason::UnknownUeAddress),
    ];
    for (name, p, reason) in cases {
        assert_eq!(net.downlink(&p).0, PacketVerdict::Drop(reason), "{name}");
    }
    let unsummed = spoilt(&|p| p[46..48].fill(0));
    assert_eq!(net.downlink(&unsummed).0, PacketVerdict::Send(to_gnb()), "RFC 6935");
    assert_eq!(
        net.packet(from_gnb(), &g_pdu(s.teid, 1, &[])).0,
        PacketVerdict::Drop(DropReason::InnerMalformed)
    );
}

#[test] // TS 23.501 §5.6.10.3: only where the operator says where to
fn unstructured_session_is_refused_without_a_tunnel() {
    let mut net = Net::new();
    let r = net.establish(establishment(1));
    assert_eq!((r.cause, r.offending_ie), (Cause::ServiceNotSupported, Some(OffendingIe(113))));
    assert_eq!(net.upf.c.session_count(), 0);
}

#[test] // TS 23.502 §4.2.3.3: held for an idle UE like packets
fn octets_for_an_idle_ue_wait() {
    let mut net = net();
    let r = net.establish(establishment(1));
    let s = net.seated(1, &r);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    let up = net.packet(from_gnb(), &g_pdu(s.teid, 1, b"payload")).1;
    let idle =
        UpdateFar { apply_action: Some(ApplyAction::BUFF | ApplyAction::NOCP), ..UpdateFar::new(FarId(2)) };
    net.modify(&s, SessionModificationRequest { update_fars: vec![idle], ..Default::default() });
    assert_eq!(net.downlink(&answer(&up)).0, PacketVerdict::Taken);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    assert_eq!(at_gnb(&net.outputs()[0].1).2, b"payload");
}
