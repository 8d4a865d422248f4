//! Packets, octet for octet, through each kind of rule.

use super::common;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use common::*;
use whimbrel_gtpu::signalling::{echo_request, echo_response, error_indication};
use whimbrel_gtpu::{Gtpu, message_type};
use whimbrel_ids::{Qfi, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::SessionModificationRequest;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

const N6: PacketVerdict = PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) });

#[test] // TS 29.244 §5.2.1, §8.2.64
fn uplink_loses_its_outer_header_and_goes_to_the_data_network() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let inner = udp4(s.ipv4.unwrap(), SERVER, (4000, 53), 20);
    assert_eq!(net.uplink(&s, &inner), (N6, inner));
    assert_eq!((net.upf.u.counters().ul_packets, net.upf.u.counters().ul_octets), (1, 48));
}

#[test] // TS 29.281 §5.2.2.7: the gNB gets the QFI
fn downlink_gets_the_header_of_its_tunnel_and_flow() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let inner = udp4(SERVER, s.ipv4.unwrap(), (53, 4000), 20);
    let (verdict, octets) = net.downlink(&inner);
    assert_eq!(verdict, PacketVerdict::Send(to_gnb()));
    assert_eq!(at_gnb(&octets), (GNB_TEID, Some(1), inner));
    assert_eq!(net.upf.u.session_counters(s.id()).unwrap().dl_octets, 48);
}

#[test] // octets behind the inner packet's own length do not travel on
fn padding_behind_the_inner_packet_is_cut() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let inner = udp4(s.ipv4.unwrap(), SERVER, (4000, 53), 20);
    let padded = [inner.clone(), vec![0; 7]].concat();
    assert_eq!(net.uplink(&s, &padded), (N6, inner));
}

#[test] // TS 33.513 §4.2.2.7: a UE may not speak for another
fn spoofed_source_is_dropped_and_counted() {
    let mut net = Net::new();
    let s = net.session(1, true, true);
    let other = Ipv4Addr::from_bits(s.ipv4.unwrap().to_bits() ^ 1);
    let prefix = s.ipv6.unwrap().to_bits();
    for inner in [
        udp4(other, SERVER, (1, 2), 0),
        ipv6(Ipv6Addr::from_bits(prefix ^ 1 << 64 | 7), Ipv6Addr::LOCALHOST, 17, &[0; 8]),
    ] {
        assert_eq!(net.uplink(&s, &inner).0, PacketVerdict::Drop(DropReason::SpoofedSource));
    }
    let own = ipv6(Ipv6Addr::from_bits(prefix | 0xabcd), "2001:db8::1".parse().unwrap(), 17, &[0; 8]);
    assert_eq!(net.uplink(&s, &own).0, N6);
    assert_eq!(net.dropped(DropReason::SpoofedSource), 2);
    assert_eq!(net.upf.u.session_counters(s.id()).unwrap().dropped, 2);
}

#[test] // TS 29.281 §7.3.1, §4.4.2.3, §4.3.0; TS 23.527 §5.3.2: error indication to the peer's port
fn unknown_tunnel_is_answered_by_an_error_indication_at_a_bounded_rate() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let wrong = Teid(s.teid.0 ^ 1 << 31);
    // Of one peer, of two, and of more than get one each.
    let (each, all) = (ERROR_INDICATIONS_PER_PEER_MAX as usize, ERROR_INDICATIONS_PER_SECOND_MAX as usize);
    for (others, indicated) in [(0, each), (2, all - each)] {
        for other in 0..=others {
            let peer = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 9 + other).into(), 40_000);
            for _ in 0..500 / (others as usize + 1) {
                let from = Origin::N3 { peer, local: UPF.into() };
                let (verdict, _) =
                    net.packet(from, &g_pdu(wrong, 1, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 0)));
                assert_eq!(verdict, PacketVerdict::Drop(DropReason::UnknownTunnel));
            }
        }
        let outputs = net.outputs();
        assert_eq!(outputs.len(), indicated);
        if others == 0 {
            let indicated = error_indication(wrong, UPF.into(), 40_000);
            assert_eq!(outputs[0], (to_gnb(), indicated.as_ref().to_vec()));
        }
    }
}

#[test] // TS 29.244 §6.3.5, §6.3.5.2; TS 23.527 §5.3.1: reported to the SMF once
fn error_indication_of_a_gnb_is_reported() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    for _ in 0..3 {
        let m = error_indication(GNB_TEID, GNB.ip(), 2152);
        assert_eq!(net.packet(from_gnb(), m.as_ref()).0, PacketVerdict::Taken);
    }
    let reports = net.reports();
    assert_eq!(reports.len(), 1);
    let (seid, _, report) = &reports[0];
    assert_eq!((*seid, report.report_type), (s.cp_seid, ReportType::ERIR));
    let tunnel = report.error_indication_report.as_ref().unwrap().remote_f_teids[0];
    assert_eq!(tunnel, FTeid::given(GNB_TEID, GNB.ip()));
    let m = error_indication(Teid(5), GNB.ip(), 2152);
    assert_eq!(net.packet(from_gnb(), m.as_ref()).0, PacketVerdict::Drop(DropReason::UnknownTunnel));
}

#[test] // a UE returned to a gNB while the report on its last tunnel was under way between the threads
fn error_indication_of_a_tunnel_of_the_past_is_not_reported() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let report = |teid| UserPlaneReport::ErrorIndication { session: s.id(), teid, peer: GNB.ip() };
    let now = Teid(GNB_TEID.0 + 1);
    net.modify(&s, activation(now, GNB.ip()));
    net.upf.c.handle(net.now, Input::Report(report(GNB_TEID)), &mut net.out);
    assert!(net.reports().is_empty());
    net.upf.c.handle(net.now, Input::Report(report(now)), &mut net.out);
    assert_eq!(net.reports().len(), 1);
}

#[test] // TS 29.281 §7.2.2
fn echo_request_is_answered_to_the_port_it_came_from() {
    let mut net = Net::new();
    let peer = SocketAddr::new(GNB.ip(), 5555);
    assert_eq!(
        net.packet(Origin::N3 { peer, local: UPF.into() }, echo_request(9).as_ref()).0,
        PacketVerdict::Taken
    );
    assert_eq!(net.outputs(), [(Destination::N3 { peer, tos: 0 }, echo_response(9).as_ref().to_vec())]);
}

#[test] // TS 23.502 §4.2.3.3, §4.4.2.2; TS 29.244 §5.2.3, §5.2.4: buffer, one report, then in order to the gNB
fn packets_for_an_idle_ue_wait_in_order_and_are_reported_once() {
    let mut net = Net::new();
    let s = net.idle_session(1, true, false);
    let inner: Vec<_> = (0..5).map(|i| udp4(SERVER, s.ipv4.unwrap(), (53, 4000), i)).collect();
    for p in &inner {
        assert_eq!(net.downlink(p).0, PacketVerdict::Taken);
    }
    let reports = net.reports();
    assert_eq!(reports.len(), 1);
    let data = reports[0].2.downlink_data_report.as_ref().unwrap();
    assert_eq!(data.pdr_ids, [PdrId(2)]);
    assert_eq!(data.downlink_data_service_information[0].qfi, Qfi::new(1));
    assert_eq!(net.upf.u.counters().held, 5);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    let outputs = net.outputs();
    assert_eq!(outputs.iter().map(|(_, o)| at_gnb(o).2).collect::<Vec<_>>(), inner);
    assert_eq!(net.upf.u.counters().held, 0);
}

#[test]
fn buffer_of_an_idle_ue_is_bounded() {
    let mut net = Net::new();
    let s = net.idle_session(1, true, false);
    let p = udp4(SERVER, s.ipv4.unwrap(), (53, 4000), 0);
    for _ in 0..HELD {
        assert_eq!(net.downlink(&p).0, PacketVerdict::Taken);
    }
    assert_eq!(net.downlink(&p).0, PacketVerdict::Drop(DropReason::BufferFull));
    net.delete(&s);
    assert_eq!(net.dropped(DropReason::BufferDiscarded), HELD as u64);
    assert_eq!(net.upf.u.counters().held, 0);
}

#[test] // TS 29.244 §8.2.31 DROBU
fn buffered_packets_are_dropped_at_the_smfs_word() {
    let mut net = Net::new();
    let s = net.idle_session(1, true, false);
    net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (53, 4000), 0));
    let flags = Some(SessionModificationFlags::DROBU);
    net.modify(&s, SessionModificationRequest { pfcpsmreq_flags: flags, ..activation(GNB_TEID, GNB.ip()) });
    assert!(net.outputs().is_empty());
    assert_eq!(net.dropped(DropReason::BufferDiscarded), 1);
}

#[test] // TS 23.502 §4.9.1.2.2 step 5, TS 23.501 §5.8.2.9, TS 29.244 §5.4.3: Xn handover switches the path and ends the old tunnel
fn end_marker_goes_to_the_old_tunnel_when_the_path_switches() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let new: std::net::IpAddr = Ipv4Addr::new(127, 0, 0, 10).into();
    let mut switch = activation(Teid(77), new);
    let p = switch.update_fars[0].update_forwarding_parameters.as_mut().unwrap();
    p.pfcpsmreq_flags = Some(SessionModificationFlags::SNDEM);
    net.modify(&s, switch);
    let outputs = net.outputs();
    assert_eq!(outputs.len(), 1);
    assert_eq!(outputs[0].0, to_gnb());
    let m = Gtpu::parse(&outputs[0].1).unwrap();
    assert_eq!((m.message_type, m.teid), (message_type::END_MARKER, GNB_TEID));
    let (verdict, octets) = net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (53, 4000), 0));
    assert_eq!(verdict, PacketVerdict::Send(Destination::N3 { peer: SocketAddr::new(new, 2152), tos: 0 }));
    assert_eq!(at_gnb(&octets).0, Teid(77));
}

#[test] // TS 29.244 §8.2.7
fn closed_gates_drop() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let gate_status = Some(GateStatus { ul: Gate::Closed, dl: Gate::Open });
    let update_qers = vec![UpdateQer { gate_status, ..UpdateQer::new(QerId(1)) }];
    net.modify(&s, SessionModificationRequest { update_qers, ..Default::default() });
    let up = udp4(s.ipv4.unwrap(), SERVER, (1, 2), 0);
    assert_eq!(net.uplink(&s, &up).0, PacketVerdict::Drop(DropReason::GateClosed));
    assert_eq!(net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0)).0, PacketVerdict::Send(to_gnb()));
}

#[test] // TS 29.244 §8.2.8: 100 Mbit/s up, 200 down
fn rates_are_kept_within_a_burst() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let seconds = 1;
    let mut passed = [0u64; 2];
    // 400 Mbit/s offered each way, 1,000 octets a packet, in steps of 1 ms.
    for step in 0..seconds * 1000 {
        net.now = START + Duration::from_millis(step);
        for _ in 0..50 {
            let up = udp4(s.ipv4.unwrap(), SERVER, (1, 2), 972);
            if net.uplink(&s, &up).0 == N6 {
                passed[0] += 1000;
            }
            let down = udp4(SERVER, s.ipv4.unwrap(), (2, 1), 972);
            if matches!(net.downlink(&down).0, PacketVerdict::Send(_)) {
                passed[1] += 1000;
            }
        }
    }
    for (octets, kbps) in [(passed[0], 100_000u64), (passed[1], 200_000)] {
        let (least, most) = (kbps * seconds * 125, kbps * 125 * (seconds * 10 + 2) / 10 + 1000);
        assert!((least..=most).contains(&octets), "{octets} not in {least}..={most}");
    }
    assert!(net.dropped(DropReason::RateExceeded) > 0);
}

#[test] // TS 29.244 §5.2.1: the lowest value of precedence first; each flow has its QFI
fn flows_are_distinguished_by_filters_in_order_of_precedence() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let voice = |pdr_id, source, far_id| CreatePdr {
        qer_ids: vec![QerId(2)],
        ..CreatePdr::new(
            pdr_id,
            Precedence(10),
            Pdi {
                f_teid: (source == SourceInterface::Access).then_some(FTeid::given(s.teid, UPF.into())),
                network_instance: NetworkInstance::new("internet"),
                sdf_filters: vec![SdfFilter::flow("permit out 17 from 192.0.2.0/24 5060 to assigned")],
                ..Pdi::from(source)
            },
            far_id,
        )
    };
    let response = net.modify(
        &s,
        SessionModificationRequest {
            create_pdrs: vec![
                voice(PdrId(3), SourceInterface::Core, FarId(2)),
                voice(PdrId(4), SourceInterface::Access, FarId(3)),
            ],
            create_fars: vec![CreateFar::action(FarId(3), ApplyAction::DROP)],
            create_qers: vec![CreateQer { qfi: Qfi::new(5), ..CreateQer::new(QerId(2)) }],
            ..Default::default()
        },
    );
    assert_eq!(response.cause, Cause::RequestAccepted, "{response:?}");
    let ue = s.ipv4.unwrap();
    assert_eq!(at_gnb(&net.downlink(&udp4(SERVER, ue, (5060, 9), 0)).1).1, Some(5));
    assert_eq!(at_gnb(&net.downlink(&udp4(SERVER, ue, (5061, 9), 0)).1).1, Some(1));
    assert_eq!(net.uplink(&s, &udp4(ue, SERVER, (9, 5060), 0)).0, PacketVerdict::Drop(DropReason::FarDrop));
    assert_eq!(net.uplink(&s, &udp4(ue, SERVER, (9, 5061), 0)).0, N6);
}

#[test] // TS 23.501 §5.7.1.7, TS 29.244 §8.2.89: uplink of a flow that the session does not have
fn uplink_of_another_flow_than_the_rules_is_dropped_and_counted() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let m = g_pdu(s.teid, 2, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 0));
    assert_eq!(net.packet(from_gnb(), &m).0, PacketVerdict::Drop(DropReason::QfiMismatch));
}

#[test]
fn destination_without_session_is_counted() {
    let mut net = Net::new();
    let p = udp4(SERVER, Ipv4Addr::new(10, 45, 0, 5), (1, 2), 0);
    assert_eq!(net.downlink(&p).0, PacketVerdict::Drop(DropReason::UnknownUeAddress));
}

#[test] // TS 29.244 §5.2.2: threshold, quota, and the figures
fn usage_is_reported_at_the_threshold_and_stopped_at_the_quota() {
    let mut net = Net::new();
    let mut m = establishment(1, true, false);
    m.create_urrs[0] = CreateUrr {
        volume_threshold: Some(Volume { total: Some(150), ..Volume::default() }),
        volume_quota: Some(Volume { total: Some(290), ..Volume::default() }),
        measurement_information: Some(MeasurementInformation::MNOP),
        ..CreateUrr::new(
            UrrId(1),
            MeasurementMethod::VOLUM,
            ReportingTriggers::VOLTH | ReportingTriggers::VOLQU,
        )
    };
    let r = net.establish(m);
    let s = net.seated(1, &r);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    let up = udp4(s.ipv4.unwrap(), SERVER, (1, 2), 72);
    let down = udp4(SERVER, s.ipv4.unwrap(), (2, 1), 72);
    net.uplink(&s, &up);
    assert!(net.reports().is_empty());
    net.downlink(&down);
    let reports = net.reports();
    let usage = &reports[0].2.usage_reports[0];
    assert_eq!(usage.usage_report_trigger, UsageReportTrigger::VOLTH);
    let volume = usage.volume_measurement.unwrap();
    assert_eq!(
        (volume.total, volume.ul, volume.dl, volume.dl_packets),
        (Some(200), Some(100), Some(100), Some(1))
    );
    net.uplink(&s, &up);
    let reports = net.reports();
    let usage = &reports[0].2.usage_reports[0];
    assert_eq!((usage.usage_report_trigger, usage.ur_seqn), (UsageReportTrigger::VOLQU, UrSeqn(1)));
    assert_eq!(net.uplink(&s, &up).0, PacketVerdict::Drop(DropReason::QuotaExhausted));
    let update_urrs = vec![UpdateUrr {
        volume_quota: Some(Volume { total: Some(1000), ..Volume::default() }),
        ..UpdateUrr::new(UrrId(1))
    }];
    net.modify(&s, SessionModificationRequest { update_urrs, ..Default::default() });
    assert_eq!(net.uplink(&s, &up).0, N6);
}

#[test] // TS 29.244 §5.2.2.2: periods and inactivity
fn periodic_usage_and_inactivity_are_reported_by_time() {
    let mut net = Net::new();
    let mut m = establishment(1, true, false);
    m.create_urrs[0] = CreateUrr {
        measurement_period: Some(MeasurementPeriod(60)),
        ..CreateUrr::new(
            UrrId(1),
            MeasurementMethod::VOLUM | MeasurementMethod::DURAT,
            ReportingTriggers::PERIO,
        )
    };
    m.user_plane_inactivity_timer = Some(UserPlaneInactivityTimer(100));
    let r = net.establish(m);
    let s = net.seated(1, &r);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    net.now = START + Duration::from_secs(30);
    net.uplink(&s, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 0));
    net.advance(START + Duration::from_secs(61));
    let reports = net.accepted_reports();
    let usage = &reports[0].2.usage_reports[0];
    assert_eq!(usage.usage_report_trigger, UsageReportTrigger::PERIO);
    assert_eq!(usage.duration_measurement, Some(DurationMeasurement(30)));
    net.advance(START + Duration::from_secs(129));
    net.accepted_reports();
    net.advance(START + Duration::from_secs(131));
    assert!(net.accepted_reports().iter().any(|(_, _, r)| r.report_type == ReportType::UPIR));
}

#[test] // RFC 4861 §6.2, RFC 8106, TS 23.501 §5.8.2.2.3
fn ue_learns_its_prefix_when_its_session_becomes_active_and_when_it_asks() {
    let mut net = Net::new();
    let s = net.session(1, true, true);
    let check = |outputs: Vec<(Destination, Vec<u8>)>| {
        assert_eq!(outputs.len(), 1);
        let (teid, qfi, ra) = at_gnb(&outputs[0].1);
        assert_eq!((outputs[0].0, teid, qfi), (to_gnb(), GNB_TEID, Some(1)));
        assert_eq!((ra[6], ra[7], ra[40], ra[41]), (58, 255, 134, 0));
        assert_eq!(ra.len(), 40 + usize::from(u16::from_be_bytes([ra[4], ra[5]])));
        let words = ra[8..].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let mut sum = words.sum::<u32>() + (ra.len() as u32 - 40) + 58;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        assert_eq!(sum, 0xffff, "checksum");
        assert_eq!(ra[56..60], [3, 4, 64, 0x40]);
        assert_eq!(ra[72..88], s.ipv6.unwrap().octets());
        assert_eq!(ra[88..96], [5, 1, 0, 0, 0, 0, 5, 120]);
        assert_eq!(ra[96..98], [25, 3]);
        assert_eq!(ra[104..120], "2001:4860:4860::8888".parse::<Ipv6Addr>().unwrap().octets());
    };
    check(net.outputs());
    let own: Ipv6Addr = "fe80::abcd".parse().unwrap();
    let rs = ipv6(own, "ff02::2".parse().unwrap(), 58, &[133, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(net.uplink(&s, &rs).0, PacketVerdict::Taken);
    net.advance(net.now);
    check(net.outputs());
    let other = ipv6(own, "ff02::2".parse().unwrap(), 58, &[135, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(net.uplink(&s, &other).0, PacketVerdict::Drop(DropReason::LinkScope));
}

#[test] // TS 29.244 §8.2.12
fn transport_level_marking_is_set_on_the_outer_header() {
    let mut net = Net::new();
    let s = net.idle_session(1, true, false);
    let mut m = activation(GNB_TEID, GNB.ip());
    let p = m.update_fars[0].update_forwarding_parameters.as_mut().unwrap();
    p.transport_level_marking = Some(TransportLevelMarking { value: 0xb8, mask: 0xfc });
    net.modify(&s, m);
    let (verdict, _) = net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0));
    assert_eq!(verdict, PacketVerdict::Send(Destination::N3 { peer: GNB, tos: 0xb8 }));
}
