//! F-TEIDs that SMFs allocate, as TS 29.244 §5.5.2 of release 15 has it, where the UPF is configured for it.

use super::common;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use common::*;
use whimbrel_gtpu::signalling::ErrorIndication;
use whimbrel_gtpu::{Gtpu, message_type};
use whimbrel_ids::{Seid, Teid};
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

fn smf_allocates() -> Config {
    let mut config = Config { smf_f_teids: true, ..config() };
    config.data_networks[0].ipv4_pools[0].prefix = 16;
    config
}

/// The rules of a session whose tunnel the SMF has allocated.
fn with_tunnel(cp_seid: u64, f_teid: FTeid) -> SessionEstablishmentRequest {
    let mut m = establishment(cp_seid, true, false);
    m.create_pdrs[0].pdi.f_teid = Some(f_teid);
    m
}

fn here(teid: u32) -> FTeid {
    FTeid::given(Teid(teid), UPF.into())
}

/// A session with such a tunnel.
fn established(net: &mut Net, cp_seid: u64, teid: u32) -> Session {
    let r = net.establish(with_tunnel(cp_seid, here(teid)));
    assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
    assert!(r.created_pdrs.iter().all(|p| p.local_f_teid.is_none()), "the SMF knows the tunnel: {r:?}");
    let addresses = r.created_pdrs.iter().find_map(|p| p.ue_ip_addresses.first());
    let s = Session {
        up_seid: r.up_f_seid.unwrap().seid,
        cp_seid: Seid(cp_seid),
        teid: Teid(teid),
        ipv4: addresses.and_then(|a| a.ipv4).and_then(Choice::given),
        ipv6: None,
    };
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    s
}

fn passes(net: &mut Net, s: &Session) -> bool {
    let up = net.uplink(s, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 9)).0;
    let down = net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (2, 1), 9)).0;
    let both = [PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }), PacketVerdict::Send(to_gnb())];
    [up, down] == both
}

#[test] // TS 29.244 §8.2.25, and §8.2.82 of release 15: an SMF learns that the UPF allocates none, and for what address it may itself
fn the_association_states_which_side_allocates_f_teids() {
    let answer = |config: Config| {
        let mut net = Net::without_association(config);
        let Message::AssociationSetupResponse(m) = net.ask(None, association(1).into()) else { panic!() };
        (m.up_function_features.unwrap(), m.user_plane_ip_resource_information.clone())
    };
    let (features, resources) = answer(smf_allocates());
    assert!(!features.has(UpFunctionFeatures::FTUP) && features.has(UpFunctionFeatures::UEIP));
    let n3 = UserPlaneIpResourceInformation { ipv4: Some(UPF), ..Default::default() };
    assert_eq!(resources, [n3]);
    let (features, resources) = answer(config());
    assert!(features.has(UpFunctionFeatures::FTUP) && resources.is_empty());
}

#[test]
fn packets_of_a_tunnel_of_the_smf_pass_until_its_session_ends() {
    let mut net = Net::with(smf_allocates());
    let (first, second) = (established(&mut net, 1, 1), established(&mut net, 2, 0xffff_ffff));
    assert!(passes(&mut net, &first) && passes(&mut net, &second));
    // Each tunnel takes its own UE's packets alone.
    let (verdict, _) = net.uplink(&first, &udp4(second.ipv4.unwrap(), SERVER, (1, 2), 9));
    assert_eq!(verdict, PacketVerdict::Drop(DropReason::SpoofedSource));
    net.delete(&first);
    assert!(passes(&mut net, &second));
    let (verdict, _) = net.uplink(&first, &udp4(first.ipv4.unwrap(), SERVER, (1, 2), 9));
    assert_eq!(verdict, PacketVerdict::Drop(DropReason::UnknownTunnel));
    let sent = net.outputs();
    let m = Gtpu::parse(&sent.last().unwrap().1).unwrap();
    assert_eq!(m.message_type, message_type::ERROR_INDICATION);
    assert_eq!(ErrorIndication::parse(m.payload).unwrap().teid, Teid(1));
    let again = established(&mut net, 3, 1);
    assert!(passes(&mut net, &again), "the TEID is free again");
}

#[test] // TS 29.244 table 8.2.1-1: each F-TEID that is refused, and the cause of the answer
fn f_teids_that_are_no_tunnels_of_this_upf_are_refused() {
    const FAILED: Cause = Cause::RuleCreationModificationFailure;
    let elsewhere = Ipv4Addr::new(192, 0, 2, 8);
    let choose = FTeid::Choose { ipv4: true, ipv6: false, choose_id: None };
    let v6 = FTeid::given(Teid(9), "2001:db8::7".parse().unwrap());
    let both = FTeid::Given { teid: Teid(9), ipv4: Some(UPF), ipv6: Some("2001:db8::7".parse().unwrap()) };
    for (what, f_teid, cause) in [
        ("chosen by the UPF", choose, Cause::InvalidFTeidAllocationOption),
        ("of another session", here(7), FAILED),
        ("of another host", FTeid::given(Teid(9), elsewhere.into()), FAILED),
        ("of a family that N3 does not have", v6, FAILED),
        ("of two families, of which N3 has one", both, FAILED),
        ("TEID 0", here(0), FAILED),
    ] {
        let mut net = Net::with(smf_allocates());
        let other = established(&mut net, 1, 7);
        let free = net.upf.c.free_addresses(DnIndex(0));
        let r = net.establish(with_tunnel(2, f_teid));
        assert_eq!((r.cause, r.offending_ie), (cause, Some(OffendingIe(21))), "{what}");
        assert_eq!(r.failed_rule_id, Some(FailedRuleId::Pdr(PdrId(1))), "{what}");
        assert_eq!(net.upf.c.free_addresses(DnIndex(0)), free, "{what}");
        // Nor in a modification, and what was there stays.
        let mut create = with_tunnel(2, f_teid).create_pdrs.remove(0);
        create.pdr_id = PdrId(3);
        let own = established(&mut net, 3, 3);
        let m = SessionModificationRequest { create_pdrs: vec![create], ..Default::default() };
        assert_eq!(net.modify(&own, m).cause, cause, "{what}");
        assert!(passes(&mut net, &own) && passes(&mut net, &other), "{what}");
    }
}

#[test] // TS 23.527 §4.3: a UPF that lost its sessions has them again with the tunnels that they had, chosen by the UPF or by the SMF
fn sessions_are_restored_with_their_tunnels() {
    let mut net = Net::with(smf_allocates());
    let restoring = |cp_seid, teid| SessionEstablishmentRequest {
        pfcpsereq_flags: Some(SessionEstablishmentFlags::RESTI),
        ..with_tunnel(cp_seid, here(teid))
    };
    assert_eq!(net.establish(restoring(1, 7)).cause, Cause::RequestAccepted);
    let r = net.establish(restoring(2, 7));
    assert_eq!(r.cause, Cause::PfcpSessionRestorationFailure);
    // The SMF repeats a request whose answer was lost.
    assert_eq!(net.establish(restoring(1, 7)).cause, Cause::RequestAccepted);
    assert_eq!(net.upf.c.session_count(), 1);
}

#[test]
fn a_session_has_several_tunnels_of_the_smf_and_gives_them_up_with_their_rules() {
    let mut net = Net::with(smf_allocates());
    let s = established(&mut net, 1, 7);
    // A second PDR of the same tunnel, and one of another.
    let pdr = |id, teid| {
        let mut p = with_tunnel(1, here(teid)).create_pdrs.remove(0);
        (p.pdr_id, p.pdi.qfis) = (PdrId(id), vec![whimbrel_ids::Qfi::new(2).unwrap()]);
        p
    };
    let m = SessionModificationRequest { create_pdrs: vec![pdr(3, 7), pdr(4, 8)], ..Default::default() };
    assert_eq!(net.modify(&s, m).cause, Cause::RequestAccepted);
    let inner = udp4(s.ipv4.unwrap(), SERVER, (1, 2), 9);
    let to_network = PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) });
    for (teid, qfi) in [(7, 1), (7, 2), (8, 2)] {
        assert_eq!(net.packet(from_gnb(), &g_pdu(Teid(teid), qfi, &inner)).0, to_network);
    }
    let refused = net.establish(with_tunnel(2, here(8))).cause;
    assert_eq!(refused, Cause::RuleCreationModificationFailure);
    let m = SessionModificationRequest {
        remove_pdrs: vec![RemovePdr { pdr_id: PdrId(4) }],
        ..Default::default()
    };
    assert_eq!(net.modify(&s, m).cause, Cause::RequestAccepted);
    let (verdict, _) = net.packet(from_gnb(), &g_pdu(Teid(8), 2, &inner));
    assert_eq!(verdict, PacketVerdict::Drop(DropReason::UnknownTunnel));
    let other = established(&mut net, 2, 8);
    assert!(passes(&mut net, &other) && passes(&mut net, &s));
}

#[test] // TS 29.244 §5.2.1A.2A
fn the_tunnel_of_a_traffic_endpoint_may_be_the_smf_s() {
    let mut net = Net::with(smf_allocates());
    let mut m = with_tunnel(1, here(7));
    let local_f_teid = m.create_pdrs[0].pdi.f_teid.take();
    m.create_pdrs[0].pdi.traffic_endpoint_ids = vec![TrafficEndpointId(1)];
    m.create_traffic_endpoints = vec![CreateTrafficEndpoint {
        traffic_endpoint_id: TrafficEndpointId(1),
        local_f_teid,
        network_instance: None,
        ue_ip_addresses: Vec::new(),
    }];
    let r = net.establish(m);
    assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
    assert!(r.created_traffic_endpoints.iter().all(|e| e.local_f_teid.is_none()));
    let s = Session {
        up_seid: r.up_f_seid.unwrap().seid,
        cp_seid: Seid(1),
        teid: Teid(7),
        ipv4: r.created_pdrs.iter().find_map(|p| p.ue_ip_addresses.first()?.ipv4?.given()),
        ipv6: None,
    };
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    assert!(passes(&mut net, &s));
}

#[test] // as many sessions as there is room for, and more, beginning and ending in any order: a packet passes if its TEID is a session's then
fn a_tunnel_leads_to_the_session_that_has_it_and_to_no_other() {
    let mut state = 7u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % n
    };
    let mut net = Net::with(Config { sessions_max: 40, ..smf_allocates() });
    let mut has: BTreeMap<u32, Session> = BTreeMap::new();
    // So many that a TEID of the UPF's own making, had it any, would be among them now and then.
    let mut teids: Vec<u32> = (1..60).chain((0..20).map(|n| 0x0100_0000 * n + 5)).collect();
    teids.dedup();
    for step in 1..3_000u64 {
        let teid = teids[below(teids.len() as u64) as usize];
        match has.remove(&teid) {
            Some(s) if below(2) == 0 => {
                assert_eq!(net.delete(&s).cause, Cause::RequestAccepted);
            }
            Some(s) => {
                let cause = net.establish(with_tunnel(step, here(teid))).cause;
                assert_ne!(cause, Cause::RequestAccepted, "step {step}");
                has.insert(teid, s);
            }
            None if has.len() < 40 => {
                let s = established(&mut net, step, teid);
                has.insert(teid, s);
            }
            None => {
                let cause = net.establish(with_tunnel(step, here(teid))).cause;
                assert_eq!(cause, Cause::NoResourcesAvailable, "step {step}");
            }
        }
        let teid = teids[below(teids.len() as u64) as usize];
        match has.get(&teid).cloned() {
            Some(s) => assert!(passes(&mut net, &s), "step {step}"),
            None => {
                let inner = udp4(Ipv4Addr::new(10, 45, 0, 9), SERVER, (1, 2), 9);
                let (verdict, _) = net.packet(from_gnb(), &g_pdu(Teid(teid), 1, &inner));
                assert_eq!(verdict, PacketVerdict::Drop(DropReason::UnknownTunnel), "step {step}");
            }
        }
    }
    assert!(has.len() > 20);
}

#[test]
fn a_upf_that_starts_again_finds_its_sessions_by_the_smf_s_tunnels() {
    let config = smf_allocates();
    let memory = Memory::of(SessionMemory::octets_for(&config));
    let mut out = Outbox::default();
    let (upf, _) = with_state(config.clone(), START, &memory, &mut out);
    let mut net = Net::on(upf);
    net.associate();
    let (first, second) = (established(&mut net, 1, 7), established(&mut net, 2, 8));
    net.delete(&second);
    let (upf, restored) = with_state(config.clone(), net.now, &memory.copy(), &mut out);
    assert_eq!(restored.sessions, 1);
    net.upf = upf;
    assert!(passes(&mut net, &first));
    let refused = net.establish(with_tunnel(3, here(7))).cause;
    assert_eq!(refused, Cause::RuleCreationModificationFailure, "another session has it");
    let taken = established(&mut net, 4, 8);
    assert!(passes(&mut net, &taken));
    // A UPF that allocates tunnels itself has other ones.
    let other = Config { smf_f_teids: false, ..config };
    let (upf, restored) = with_state(other, net.now, &memory.copy(), &mut out);
    assert_eq!((restored.sessions, upf.c.session_count()), (0, 0));
}
