//! After everything that SMFs, gNBs, UEs and data networks may do, and after everyone has left: nothing is left.

use super::common;

use std::time::Duration;

use common::*;
use proptest::prelude::*;
use whimbrel_ids::{Seid, Teid};
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

const KINDS: [PdnType; 5] =
    [PdnType::Ipv4, PdnType::Ipv6, PdnType::Ipv4v6, PdnType::Ethernet, PdnType::NonIp];

fn net() -> Net {
    let mut config = config();
    config.echo_interval = Some(Duration::from_secs(60));
    config.data_networks[0].ethernet = true;
    let peer = "[2001:db8:a5::9]:7000".parse().unwrap();
    config.data_networks[0].unstructured = Some(PointToPoint { peer, port: 6000 });
    Net::with(config)
}

fn request(cp_seid: u64, kind: PdnType) -> SessionEstablishmentRequest {
    let (ipv4, ipv6) = match kind {
        PdnType::Ipv4 => (true, false),
        PdnType::Ipv6 => (false, true),
        PdnType::Ipv4v6 => (true, true),
        PdnType::Ethernet | PdnType::NonIp => (false, false),
    };
    let mut m = establishment(cp_seid, ipv4, ipv6);
    m.pdn_type = Some(kind);
    if !ipv4 && !ipv6 {
        m.create_pdrs.iter_mut().for_each(|p| p.pdi.ue_ip_addresses.clear());
    }
    m.create_urrs[0] = CreateUrr {
        measurement_period: Some(MeasurementPeriod(30)),
        ..CreateUrr::new(
            UrrId(1),
            MeasurementMethod::VOLUM | MeasurementMethod::EVENT,
            ReportingTriggers::PERIO | ReportingTriggers::MACAR,
        )
    };
    m
}

/// One thing that happens: which, to which session, and a number.
type Step = (u8, u8, u16);

fn step(net: &mut Net, seats: &mut [Option<(Session, PdnType)>], (what, seat, n): Step) {
    let place = usize::from(seat) % seats.len();
    let Some((s, kind)) = seats[place].clone() else {
        let kind = KINDS[usize::from(n) % KINDS.len()];
        let r = net.establish(request(place as u64 + 1, kind));
        if r.cause.is_accepted() {
            seats[place] = Some((net.seated(place as u64 + 1, &r), kind));
        }
        return;
    };
    let gnb = std::net::IpAddr::from([127, 0, 1, n as u8]);
    match what % 9 {
        0 => drop(net.modify(&s, activation(Teid(u32::from(n) + 1), gnb))),
        1 => {
            let action = [ApplyAction::BUFF | ApplyAction::NOCP, ApplyAction::DROP][usize::from(n) % 2];
            let update_fars = vec![UpdateFar { apply_action: Some(action), ..UpdateFar::new(FarId(2)) }];
            net.modify(&s, SessionModificationRequest { update_fars, ..Default::default() });
        }
        2 => {
            let payload = match kind {
                PdnType::Ethernet => [&[0xff; 6][..], &[2, 0, 0, 0, seat, n as u8], &[8, 6]].concat(),
                _ => udp4(s.ipv4.unwrap_or(SERVER), SERVER, (n, 1), 9),
            };
            net.uplink(&s, &payload);
        }
        3 => {
            if let Some(ue) = s.ipv4 {
                net.downlink(&udp4(SERVER, ue, (1, n), 9));
            }
            let all = [&[0xff; 6][..], &[2, 0xee, 0, 0, 0, 1], &[8, 6]].concat();
            net.packet(Origin::Frames { dn: DnIndex(0) }, &all);
        }
        4 => {
            // A forwarding tunnel, and away with it.
            let id = 10 + n % 6;
            let pdi = Pdi {
                f_teid: Some(FTeid::Choose { ipv4: true, ipv6: false, choose_id: None }),
                ..Pdi::from(SourceInterface::Access)
            };
            let to = ForwardingParameters {
                outer_header_creation: Some(OuterHeaderCreation::gtpu(Teid(7), gnb)),
                ..ForwardingParameters::to(DestinationInterface::Access)
            };
            let far = FarId(u32::from(id));
            let create = SessionModificationRequest {
                create_pdrs: vec![CreatePdr::new(PdrId(id), Precedence(1), pdi, far)],
                create_fars: vec![CreateFar::forward(far, to)],
                ..Default::default()
            };
            if !net.modify(&s, create).cause.is_accepted() || n % 3 == 0 {
                let remove_pdrs = vec![RemovePdr { pdr_id: PdrId(id) }];
                let remove_fars = vec![RemoveFar { far_id: far }];
                net.modify(&s, SessionModificationRequest { remove_pdrs, remove_fars, ..Default::default() });
            }
        }
        5 => {
            let to = net.now + Duration::from_secs(u64::from(n % 400));
            net.advance(to);
        }
        6 => {
            // Established again, as another type perhaps: an SMF that has forgotten.
            let kind = KINDS[usize::from(n) % KINDS.len()];
            let r = net.establish(request(s.cp_seid.0, kind));
            seats[place] = r.cause.is_accepted().then(|| (net.seated(s.cp_seid.0, &r), kind));
            if seats[place].is_none() {
                net.delete(&s);
            }
        }
        7 => {
            net.delete(&s);
            seats[place] = None;
        }
        _ => {
            let octets = Message::from(SessionReportResponse::new(Cause::RequestAccepted));
            net.upf.pfcp(net.now, SMF, &octets.to_octets(Some(Seid(0)), u32::from(n)), &mut net.out);
        }
    }
    net.outputs();
    net.out.datagrams.clear();
    net.out.events.clear();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_left_when_everyone_has_left(
        steps in proptest::collection::vec((any::<u8>(), any::<u8>(), any::<u16>()), 1..150),
        released: bool,
    ) {
        let mut net = net();
        let before = net.upf.c.free_addresses(DnIndex(0));
        let mut seats: Vec<Option<(Session, PdnType)>> = vec![None; 8];
        for s in steps {
            step(&mut net, &mut seats, s);
            let c = net.upf.u.counters();
            prop_assert_eq!(net.upf.c.session_count() as u64, c.sessions);
            prop_assert!(c.held <= u64::from(Buffering::default().packets));
        }
        if released {
            let node_id = SMF.ip().into();
            let m = Message::from(whimbrel_pfcp::msg::AssociationReleaseRequest { node_id });
            net.upf.pfcp(net.now, SMF, &m.to_octets(None, 9_000_000), &mut net.out);
        } else {
            for (s, _) in seats.iter().flatten() {
                net.delete(s);
            }
        }
        prop_assert_eq!(net.upf.c.free_addresses(DnIndex(0)), before);
        let c = net.upf.u.counters();
        prop_assert_eq!((net.upf.c.session_count(), c.sessions, c.held), (0, 0, 0));
        for (s, _) in seats.iter().flatten() {
            let (verdict, _) = net.packet(from_gnb(), &g_pdu(s.teid, 1, &[0x45]));
            prop_assert_eq!(verdict, PacketVerdict::Drop(DropReason::UnknownTunnel));
        }
        let frame = [&[2, 0, 0, 0, 0, 1][..], &[2, 0xee, 0, 0, 0, 1], &[8, 6]].concat();
        let (verdict, _) = net.packet(Origin::Frames { dn: DnIndex(0) }, &frame);
        prop_assert_eq!(verdict, PacketVerdict::Drop(DropReason::UnknownMac));
        // The paths are forgotten when they are next due, the requests of the UPF are given up, and so is an SMF that answers none of them; then
        // nothing wants time.
        let to = net.now + Config::PATH_FAILURE + Duration::from_secs(200);
        net.advance(to);
        prop_assert_eq!(net.upf.u.counters().paths, 0);
        prop_assert_eq!(net.upf.next_deadline(), None);
    }
}
