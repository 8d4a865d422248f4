//! Networks behind a UE: TS 29.244 §5.16, TS 23.501 §5.6.14.

use super::common;

use std::net::{Ipv4Addr, Ipv6Addr};

use common::*;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::rule::UpdatePdr;
use whimbrel_user::*;

const BEHIND: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 9);

fn route(a: [u8; 4], length: u8) -> FramedRoute {
    FramedRoute::new(a.into(), length).unwrap()
}

/// A session with these networks behind its UE.
fn session(net: &mut Net, n: u64, routes: &[FramedRoute], ipv6: &[FramedIpv6Route]) -> Session {
    let mut m = establishment(n, true, true);
    for pdr in &mut m.create_pdrs {
        pdr.pdi.framed_routes = routes.to_vec();
        pdr.pdi.framed_ipv6_routes = ipv6.to_vec();
    }
    let r = net.establish(m);
    assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
    let s = net.seated(n, &r);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    s
}

fn to_n6(verdict: PacketVerdict) -> bool {
    matches!(verdict, PacketVerdict::Send(Destination::N6 { .. }))
}

#[test] // TS 23.501 §5.6.14: to the UE, and from it: the check of source addresses knows them
fn packets_of_a_network_behind_the_ue() {
    let mut net = Net::new();
    let six = FramedIpv6Route::new("2001:db8:99::".parse().unwrap(), 48).unwrap();
    let s = session(&mut net, 1, &[route([192, 168, 7, 0], 24)], &[six]);
    assert_eq!(net.downlink(&udp4(SERVER, BEHIND, (1, 2), 0)).0, PacketVerdict::Send(to_gnb()));
    assert!(to_n6(net.uplink(&s, &udp4(BEHIND, SERVER, (1, 2), 0)).0));
    let behind: Ipv6Addr = "2001:db8:99:1::5".parse().unwrap();
    let (there, back) = (
        ipv6("2001:db8::1".parse().unwrap(), behind, 17, &[0; 8]),
        ipv6(behind, "2001:db8::1".parse().unwrap(), 17, &[0; 8]),
    );
    assert_eq!(net.downlink(&there).0, PacketVerdict::Send(to_gnb()));
    assert!(to_n6(net.uplink(&s, &back).0));
    // What is beside it is spoofed, and leads nowhere.
    let beside = Ipv4Addr::new(192, 168, 8, 9);
    assert_eq!(
        net.uplink(&s, &udp4(beside, SERVER, (1, 2), 0)).0,
        PacketVerdict::Drop(DropReason::SpoofedSource)
    );
    assert_eq!(
        net.downlink(&udp4(SERVER, beside, (1, 2), 0)).0,
        PacketVerdict::Drop(DropReason::UnknownUeAddress)
    );
    // With the session it is gone.
    net.delete(&s);
    assert_eq!(
        net.downlink(&udp4(SERVER, BEHIND, (1, 2), 0)).0,
        PacketVerdict::Drop(DropReason::UnknownUeAddress)
    );
}

#[test] // TS 29.244 §5.16: of several that name it the longest prefix has an address, of equal ones the newest session
fn the_longest_prefix_leads() {
    let mut net = Net::new();
    let wide = session(&mut net, 1, &[route([192, 168, 0, 0], 16)], &[]);
    let narrow = session(&mut net, 2, &[route([192, 168, 7, 0], 24), route([192, 168, 7, 9], 32)], &[]);
    let packets = |net: &Net, s: &Session| net.upf.u.session_counters(s.id()).unwrap().dl_packets;
    net.downlink(&udp4(SERVER, BEHIND, (1, 2), 0));
    net.downlink(&udp4(SERVER, Ipv4Addr::new(192, 168, 8, 1), (1, 2), 0));
    assert_eq!((packets(&net, &wide), packets(&net, &narrow)), (1, 1));
    let newest = session(&mut net, 3, &[route([192, 168, 7, 9], 32)], &[]);
    net.downlink(&udp4(SERVER, BEHIND, (1, 2), 0));
    assert_eq!(packets(&net, &newest), 1);
    net.delete(&narrow);
    net.downlink(&udp4(SERVER, BEHIND, (1, 2), 0));
    assert_eq!(packets(&net, &newest), 2, "the session that has it keeps it");
    net.delete(&newest);
    net.downlink(&udp4(SERVER, BEHIND, (1, 2), 0));
    assert_eq!(packets(&net, &wide), 2);
}

#[test] // TS 29.244 §5.16: a route may come with a change of a rule; there are so many of one UE and no more
fn routes_that_come_later_and_too_many() {
    let mut net = Net::new();
    let s = session(&mut net, 1, &[], &[]);
    assert_eq!(
        net.downlink(&udp4(SERVER, BEHIND, (1, 2), 0)).0,
        PacketVerdict::Drop(DropReason::UnknownUeAddress)
    );
    let change = |net: &mut Net, routes: Vec<FramedRoute>| {
        let mut pdi = establishment(1, true, true).create_pdrs[1].pdi.clone();
        pdi.ue_ip_addresses.clear();
        pdi.framed_routes = routes;
        let mut update = UpdatePdr::new(PdrId(2));
        update.pdi = Some(pdi);
        let m = whimbrel_pfcp::msg::SessionModificationRequest {
            update_pdrs: vec![update],
            ..Default::default()
        };
        net.modify(&s, m).cause
    };
    assert_eq!(change(&mut net, vec![route([192, 168, 7, 0], 24)]), Cause::RequestAccepted);
    assert_eq!(net.downlink(&udp4(SERVER, BEHIND, (1, 2), 0)).0, PacketVerdict::Send(to_gnb()));
    let many = (0..=FRAMED_ROUTES_MAX as u8).map(|n| route([10, 99, n, 0], 24)).collect();
    assert_ne!(change(&mut net, many), Cause::RequestAccepted);
    assert_eq!(
        net.downlink(&udp4(SERVER, BEHIND, (1, 2), 0)).0,
        PacketVerdict::Send(to_gnb()),
        "nothing has changed"
    );
}
