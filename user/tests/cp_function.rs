//! Packets between UEs and the CP function (N4-u): TS 29.244 §5.3.1, TS 23.501 §5.8.2.2.3.

use super::common;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use common::*;
use whimbrel_gtpu::{GpduHeader, Gtpu};
use whimbrel_ids::Teid;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::SessionEstablishmentRequest;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

/// The SMF's own tunnel, and from where it sends.
const SMF_TEID: Teid = Teid(0x736d_6601);
const SMF_N4U: SocketAddr = SocketAddr::new(SMF.ip(), 2152);
const UE_LINK: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);
const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ICMPV6: u8 = 58;

/// A session whose SMF is the UE's router: solicitations go to it, what it sends goes to the UE.
fn with_router() -> SessionEstablishmentRequest {
    let mut m = establishment(1, true, true);
    let of_ue = FTeid::Choose { ipv4: true, ipv6: true, choose_id: Some(5) };
    m.create_pdrs[0].pdi.f_teid = Some(of_ue);
    let from_smf = Pdi {
        f_teid: Some(FTeid::Choose { ipv4: true, ipv6: true, choose_id: None }),
        ..Pdi::from(SourceInterface::CpFunction)
    };
    let to_smf = Pdi {
        f_teid: Some(of_ue),
        sdf_filters: vec![SdfFilter::flow("permit out 58 from ff02::2/128 to assigned")],
        ..Pdi::from(SourceInterface::Access)
    };
    let removal = Some(OuterHeaderRemovalDescription::GtpuUdpIp.into());
    m.create_pdrs.extend([
        CreatePdr {
            outer_header_removal: removal,
            ..CreatePdr::new(PdrId(3), Precedence(255), from_smf, FarId(2))
        },
        CreatePdr {
            outer_header_removal: removal,
            ..CreatePdr::new(PdrId(4), Precedence(1), to_smf, FarId(3))
        },
    ]);
    m.create_fars.push(CreateFar::forward(
        FarId(3),
        ForwardingParameters {
            outer_header_creation: Some(OuterHeaderCreation::gtpu(SMF_TEID, SMF.ip())),
            ..ForwardingParameters::to(DestinationInterface::CpFunction)
        },
    ));
    m
}

/// The session, and the tunnel that its SMF was given.
fn session(net: &mut Net) -> (Session, Teid) {
    let r = net.establish(with_router());
    let s = net.seated(1, &r);
    let tunnel = |id| {
        let created = r.created_pdrs.iter().find(|p| p.pdr_id == PdrId(id));
        let Some(FTeid::Given { teid, .. }) = created.unwrap().local_f_teid else { panic!("{r:?}") };
        teid
    };
    assert_eq!(tunnel(4), s.teid, "one CHOOSE ID, one tunnel");
    assert_ne!(tunnel(3), s.teid);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    (s, tunnel(3))
}

fn solicitation(from: Ipv6Addr) -> Vec<u8> {
    ipv6(from, ROUTERS, ICMPV6, &[133, 0, 0, 0, 0, 0, 0, 0])
}

#[test] // TS 29.244 §5.3.1, TS 23.501 §5.8.2.2.3: an SMF that is the router gets solicitations, without a PDU session container
fn solicitations_go_to_an_smf_that_asks_for_them() {
    let mut net = Net::new();
    let (s, _) = session(&mut net);
    let to_smf = PacketVerdict::Send(Destination::N3 { peer: SMF_N4U, tos: 0 });
    for from in [UE_LINK, Ipv6Addr::UNSPECIFIED, Ipv6Addr::from_bits(s.ipv6.unwrap().to_bits() | 7)] {
        let inner = solicitation(from);
        let (verdict, octets) = net.uplink(&s, &inner);
        assert_eq!(verdict, to_smf);
        let m = Gtpu::parse(&octets).unwrap();
        assert_eq!((m.teid, m.pdu_session, m.payload), (SMF_TEID, None, &*inner));
    }
    net.advance(net.now + std::time::Duration::from_secs(3600));
    assert_eq!(net.outputs(), [], "the UPF is not the router");
}

#[test] // TS 29.244 §5.3.1: what the SMF sends has a link-local source, and goes to the UE in the default QoS flow
fn packets_of_the_smf_go_to_the_ue() {
    let mut net = Net::new();
    let (s, tunnel) = session(&mut net);
    let advertisement = ipv6("fe80::1".parse().unwrap(), NODES, ICMPV6, &[134; 16]);
    let header = GpduHeader::new(tunnel, None);
    let mut octets = vec![0; header.octets_len()];
    header.write_before(advertisement.len(), &mut octets).unwrap();
    octets.extend_from_slice(&advertisement);
    let (verdict, sent) = net.packet(Origin::N3 { peer: SMF_N4U, local: UPF.into() }, &octets);
    assert_eq!(verdict, PacketVerdict::Send(to_gnb()));
    assert_eq!(at_gnb(&sent), (GNB_TEID, Some(1), advertisement));
    assert_eq!(net.upf.u.session_counters(s.id()).unwrap().dl_packets, 1);
}

#[test] // what the SMF has not asked for goes its way as without these rules
fn other_packets_of_the_link_and_of_other_ues_do_not_reach_the_smf() {
    let mut net = Net::new();
    let (s, _) = session(&mut net);
    let neighbour = ipv6(UE_LINK, NODES, ICMPV6, &[136; 24]);
    assert_eq!(net.uplink(&s, &neighbour).0, PacketVerdict::Drop(DropReason::LinkScope));
    let foreign = solicitation("2001:db8:99::7".parse().unwrap());
    assert_eq!(net.uplink(&s, &foreign).0, PacketVerdict::Drop(DropReason::SpoofedSource));
    let inner = udp4(s.ipv4.unwrap(), Ipv4Addr::new(192, 0, 2, 1), (4000, 53), 20);
    assert_eq!(net.uplink(&s, &inner).0, PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }));
}

#[test] // TS 29.244 §7.5.2.2, table 7.5.2.2-2: what comes from the CP function comes by a tunnel
fn rules_of_the_cp_function_without_a_tunnel_are_refused() {
    let mut net = Net::new();
    let mut m = with_router();
    m.create_pdrs[2].pdi.f_teid = None;
    let r = net.establish(m);
    assert_eq!((r.cause, r.offending_ie), (Cause::ConditionalIeMissing, Some(OffendingIe(21))));
    let mut m = with_router();
    m.create_fars[2].forwarding_parameters.as_mut().unwrap().outer_header_creation = None;
    let r = net.establish(m);
    assert_eq!((r.cause, r.offending_ie), (Cause::RuleCreationModificationFailure, Some(OffendingIe(42))));
}
