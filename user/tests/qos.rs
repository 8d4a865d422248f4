//! QoS flows through one session: detection, marking, gates and rates.

use super::common;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use common::*;
use proptest::prelude::*;
use whimbrel_gtpu::{Gtpu, PduSessionInformation};
use whimbrel_ids::{Instant, Qfi};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::{SessionEstablishmentRequest, SessionModificationRequest};
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

const N6: PacketVerdict = PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) });

fn qfi(n: u8) -> Qfi {
    Qfi::new(n).unwrap()
}

/// A flow beside the default one, as an SMF adds it: a PDR pair with one filter, the flow's QER and a FAR of its own
/// downlink, marked.
struct Flow {
    n: u8,
    filter: SdfFilter,
    qer: CreateQer,
    /// Also under the session's AMBR (QER 1), as flows without a guaranteed rate are.
    ambr: bool,
    tos: u8,
}

impl Flow {
    fn new(n: u8, filter: &str) -> Self {
        let qer = CreateQer { qfi: Some(qfi(n)), ..CreateQer::new(QerId(u32::from(n))) };
        Self { n, filter: SdfFilter::flow(filter), qer, ambr: false, tos: 0 }
    }

    fn request(&self, s: &Session) -> SessionModificationRequest {
        let id = u16::from(self.n) * 2;
        let mut qer_ids = vec![self.qer.qer_id];
        qer_ids.extend(self.ambr.then_some(QerId(1)));
        let up = Pdi {
            f_teid: Some(FTeid::given(s.teid, UPF.into())),
            sdf_filters: vec![self.filter.clone()],
            qfis: vec![qfi(self.n)],
            ..Pdi::from(SourceInterface::Access)
        };
        let down = Pdi {
            network_instance: NetworkInstance::new("internet"),
            sdf_filters: vec![self.filter.clone()],
            ..Pdi::from(SourceInterface::Core)
        };
        let precedence = Precedence(u32::from(self.n));
        let far = FarId(u32::from(self.n));
        let parameters = ForwardingParameters {
            outer_header_creation: Some(OuterHeaderCreation::gtpu(GNB_TEID, GNB.ip())),
            transport_level_marking: Some(TransportLevelMarking { value: self.tos, mask: 0xfc }),
            ..ForwardingParameters::to(DestinationInterface::Access)
        };
        SessionModificationRequest {
            create_pdrs: vec![
                CreatePdr { qer_ids: qer_ids.clone(), ..CreatePdr::new(PdrId(id), precedence, up, FarId(1)) },
                CreatePdr { qer_ids, ..CreatePdr::new(PdrId(id + 1), precedence, down, far) },
            ],
            create_fars: vec![CreateFar::forward(far, parameters)],
            create_qers: vec![self.qer.clone()],
            ..Default::default()
        }
    }
}

fn add(net: &mut Net, s: &Session, flow: &Flow) {
    let r = net.modify(s, flow.request(s));
    assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
}

fn container(octets: &[u8]) -> PduSessionInformation {
    Gtpu::parse(octets).unwrap().pdu_session.unwrap()
}

#[test] // TS 23.501 §5.7.1.5, §5.7.3.2; TS 29.244 §8.2.12: each flow with its QFI, reflective QoS and outer DSCP
fn flows_are_marked_with_qfi_reflective_qos_and_dscp() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let voice = "permit out 17 from 192.0.2.0/24 5060-5070 to assigned 4000";
    add(&mut net, &s, &Flow { tos: 0xb8, ..Flow::new(5, voice) });
    let mut video = Flow { tos: 0x88, ..Flow::new(6, "permit out 6 from any 443,8443 to assigned") };
    video.qer.rqi = Some(Rqi::RQI);
    video.qer.paging_policy_indicator = Some(PagingPolicyIndicator(5));
    add(&mut net, &s, &video);
    let ue = s.ipv4.unwrap();
    let tcp = |source_port: u16| {
        let mut p = udp4(SERVER, ue, (source_port, 9), 12);
        p[9] = 6;
        p
    };
    let cases = [
        (udp4(SERVER, ue, (5060, 4000), 0), 5, false, None, 0xb8),
        (udp4(SERVER, ue, (5070, 4000), 0), 5, false, None, 0xb8),
        (udp4(SERVER, ue, (5071, 4000), 0), 1, false, None, 0),
        (udp4(SERVER, ue, (5060, 4001), 0), 1, false, None, 0),
        (tcp(443), 6, true, Some(5), 0x88),
        (tcp(8443), 6, true, Some(5), 0x88),
        (tcp(444), 1, false, None, 0),
    ];
    for (packet, flow, rqi, ppi, tos) in cases {
        let (verdict, octets) = net.downlink(&packet);
        assert_eq!(verdict, PacketVerdict::Send(Destination::N3 { peer: GNB, tos }));
        assert_eq!(container(&octets), PduSessionInformation::Dl { qfi: qfi(flow), rqi, ppi });
    }
}

#[test] // TS 29.244 §8.2.5: TOS, SPI and flow label
fn flows_by_traffic_class_security_parameter_index_and_flow_label() {
    let mut net = Net::new();
    let s = net.session(1, true, true);
    let mut flow = Flow::new(5, "");
    flow.filter = SdfFilter { tos_traffic_class: Some([0xb8, 0xfc]), ..SdfFilter::default() };
    add(&mut net, &s, &flow);
    let mut flow = Flow::new(6, "permit out 50 from any to assigned");
    flow.filter.security_parameter_index = Some(0x1234_5678);
    add(&mut net, &s, &flow);
    let mut flow = Flow::new(7, "");
    flow.filter = SdfFilter { flow_label: Some(0xabcde), ..SdfFilter::default() };
    add(&mut net, &s, &flow);
    let ue = s.ipv4.unwrap();
    let flow_of = |net: &mut Net, p: &[u8]| at_gnb(&net.downlink(p).1).1;
    let mut marked = udp4(SERVER, ue, (1, 2), 0);
    marked[1] = 0xb9; // ECN does not count
    assert_eq!(flow_of(&mut net, &marked), Some(5));
    let mut esp = udp4(SERVER, ue, (0x1234, 0x5678), 0);
    esp[9] = 50;
    assert_eq!(flow_of(&mut net, &esp), Some(6));
    esp[23] ^= 1;
    assert_eq!(flow_of(&mut net, &esp), Some(1));
    let ue6 = Ipv6Addr::from_bits(s.ipv6.unwrap().to_bits() | 5);
    let mut labelled = ipv6("2001:db8::1".parse().unwrap(), ue6, 17, &[0; 8]);
    labelled[1..4].copy_from_slice(&[0x0a, 0xbc, 0xde]);
    assert_eq!(flow_of(&mut net, &labelled), Some(7));
    labelled[3] ^= 1;
    assert_eq!(flow_of(&mut net, &labelled), Some(1));
}

#[test] // TS 23.501 §5.7.1.7: the uplink QFI is verified
fn uplink_by_another_flow_than_its_rules_is_dropped_and_counted() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    add(&mut net, &s, &Flow::new(5, "permit out 17 from 192.0.2.0/24 5060 to assigned"));
    let ue = s.ipv4.unwrap();
    let (voice, other) = (udp4(ue, SERVER, (9, 5060), 0), udp4(ue, SERVER, (9, 80), 0));
    let mut up = |flow, inner: &[u8]| net.packet(from_gnb(), &g_pdu(s.teid, flow, inner)).0;
    assert_eq!(up(5, &voice), N6);
    assert_eq!(up(1, &other), N6);
    assert_eq!(up(5, &other), PacketVerdict::Drop(DropReason::QfiMismatch), "bulk in the voice flow");
    assert_eq!(up(9, &voice), PacketVerdict::Drop(DropReason::QfiMismatch), "a flow that is not there");
    let mut bare = vec![0x30, 255, 0, other.len() as u8];
    bare.extend_from_slice(&s.teid.0.to_be_bytes());
    bare.extend_from_slice(&other);
    assert_eq!(
        net.packet(from_gnb(), &bare).0,
        PacketVerdict::Drop(DropReason::QfiMismatch),
        "without container"
    );
    assert_eq!(net.dropped(DropReason::QfiMismatch), 3);
}

/// Offers `kbps` of packets of 1,000 octets for a second, and gives the octets that passed.
fn offer(net: &mut Net, from: Instant, flows: &[(&[u8], u64)]) -> Vec<u64> {
    let mut passed = vec![0; flows.len()];
    let mut credit = vec![0; flows.len()];
    for ms in 0..1000 {
        net.now = from + Duration::from_millis(ms);
        for (i, (packet, kbps)) in flows.iter().enumerate() {
            credit[i] += kbps; // bits a millisecond
            while credit[i] >= 8000 {
                credit[i] -= 8000;
                let origin = Origin::N6 { dn: DnIndex(0) };
                passed[i] += u64::from(matches!(net.packet(origin, packet).0, PacketVerdict::Send(_))) * 1000;
            }
        }
    }
    passed
}

#[test] // TS 23.501 §5.7.1.8, §5.7.1.6: Session-AMBR is for flows without a guaranteed rate; GBR flows have their own
fn guaranteed_flow_is_not_starved_by_the_sessions_ambr() {
    let mut net = Net::new();
    let mut m = establishment(1, true, false);
    m.create_qers[0].mbr = Some(QerBitRate { ul_kbps: 1_000, dl_kbps: 1_000 });
    let r = net.establish(m);
    let s = net.seated(1, &r);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    let rate = Some(QerBitRate { ul_kbps: 2_000, dl_kbps: 2_000 });
    let mut voice = Flow::new(5, "permit out 17 from any 5060 to assigned");
    (voice.qer.gbr, voice.qer.mbr) = (rate, rate);
    add(&mut net, &s, &voice);
    let mut web = Flow { ambr: true, ..Flow::new(6, "permit out 17 from any 80 to assigned") };
    web.qer.mbr = None;
    add(&mut net, &s, &web);
    let ue = s.ipv4.unwrap();
    let [voice, web, rest] = [5060, 80, 1].map(|port| udp4(SERVER, ue, (port, 1), 972));
    let passed = offer(&mut net, START, &[(&rest, 5_000), (&web, 5_000), (&voice, 1_900)]);
    assert_eq!(passed[2], 237_000, "all of the guaranteed flow");
    let ambr = passed[0] + passed[1];
    assert!((125_000..=125_000 + 25_000 + 1000).contains(&ambr), "{ambr}");
}

#[test] // TS 29.244 §5.4.4: what one QER stops is not taken from another
fn packet_stopped_by_its_flows_rate_costs_the_session_nothing() {
    let mut net = Net::new();
    let mut m = establishment(1, true, false);
    m.create_qers[0].mbr = Some(QerBitRate { ul_kbps: 1_000, dl_kbps: 1_000 });
    let r = net.establish(m);
    let s = net.seated(1, &r);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    let mut slow = Flow { ambr: true, ..Flow::new(5, "permit out 17 from any 80 to assigned") };
    slow.qer.mbr = Some(QerBitRate { ul_kbps: 8, dl_kbps: 8 });
    add(&mut net, &s, &slow);
    let ue = s.ipv4.unwrap();
    let [slow, rest] = [80, 1].map(|port| udp4(SERVER, ue, (port, 1), 972));
    let passed = offer(&mut net, START, &[(&slow, 20_000), (&rest, 900)]);
    assert!(passed[0] <= 16_000, "{}", passed[0]);
    assert_eq!(passed[1], 112_000, "all of the rest");
}

#[test] // TS 29.244 §8.2.8: a rate of zero, and rates as large as can be written and larger
fn rates_of_zero_and_beyond_every_link() {
    let mut net = Net::new();
    let up_to = |rate| {
        let mut m = establishment(1, true, false);
        m.create_qers[0].mbr = Some(QerBitRate { ul_kbps: rate, dl_kbps: rate });
        m
    };
    let mut passes = |m: SessionEstablishmentRequest, window| {
        let mut m = m;
        m.create_qers[0].averaging_window = window;
        let r = net.establish(m);
        let s = net.seated(1, &r);
        net.modify(&s, activation(GNB_TEID, GNB.ip()));
        let ok =
            matches!(net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 1200)).0, PacketVerdict::Send(_));
        net.delete(&s);
        ok
    };
    assert!(!passes(up_to(0), None));
    for rate in [(1 << 40) - 1, 1 << 40, 1 << 63, u64::MAX] {
        for window in [None, Some(AveragingWindow(0)), Some(AveragingWindow(u32::MAX))] {
            assert!(passes(up_to(rate), window), "{rate} {window:?}");
        }
    }
}

#[test] // TS 29.244 §8.2.7: gates of one flow leave the others alone
fn gates_of_a_flow_close_that_flow() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let mut flow = Flow::new(5, "permit out 17 from any 80 to assigned");
    flow.qer.gate_status = GateStatus { ul: Gate::Open, dl: Gate::Closed };
    add(&mut net, &s, &flow);
    let ue = s.ipv4.unwrap();
    assert_eq!(net.downlink(&udp4(SERVER, ue, (80, 1), 0)).0, PacketVerdict::Drop(DropReason::GateClosed));
    assert_eq!(net.downlink(&udp4(SERVER, ue, (81, 1), 0)).0, PacketVerdict::Send(to_gnb()));
    let up = g_pdu(s.teid, 5, &udp4(ue, SERVER, (1, 80), 0));
    assert_eq!(net.packet(from_gnb(), &up).0, N6);
}

#[test] // TS 29.244 §8.2.11: the lowest value first, up to the highest that there is; equal ones by identity
fn precedence_up_to_two_to_the_thirty_two_less_one() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let rule = |id: u16, precedence, far| {
        let pdi =
            Pdi { network_instance: NetworkInstance::new("internet"), ..Pdi::from(SourceInterface::Core) };
        CreatePdr::new(PdrId(id), Precedence(precedence), pdi, FarId(far))
    };
    let drop = vec![CreateFar::action(FarId(9), ApplyAction::DROP)];
    let p = udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0);
    let last = SessionModificationRequest {
        create_pdrs: vec![rule(20, u32::MAX, 9), rule(21, 256, 9)],
        create_fars: drop,
        ..Default::default()
    };
    assert_eq!(net.modify(&s, last).cause, Cause::RequestAccepted);
    assert_eq!(net.downlink(&p).0, PacketVerdict::Send(to_gnb()), "255 comes before 256 and 2^32-1");
    let first = SessionModificationRequest { create_pdrs: vec![rule(22, 0, 9)], ..Default::default() };
    net.modify(&s, first);
    assert_eq!(net.downlink(&p).0, PacketVerdict::Drop(DropReason::FarDrop));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// TS 23.501 §5.7.1.8: over any interval no more passes than the bucket's depth and what the rate refills.
    #[test]
    fn no_interval_passes_more_than_the_bucket(
        rate_kbps in 64u64..200_000,
        window_ms in 1u32..2_000,
        offers in proptest::collection::vec((0u64..30_000, 1usize..12, 0usize..1300), 1..200),
    ) {
        let mut net = Net::new();
        let mut m = establishment(1, true, false);
        m.create_qers[0].mbr = Some(QerBitRate { ul_kbps: rate_kbps, dl_kbps: rate_kbps });
        m.create_qers[0].averaging_window = Some(AveragingWindow(window_ms));
        let r = net.establish(m);
        let s = net.seated(1, &r);
        net.modify(&s, activation(GNB_TEID, GNB.ip()));
        let mut passed: Vec<(u64, u64)> = Vec::new(); // when, bits
        for (pause_us, count, payload) in offers {
            net.now = net.now + Duration::from_micros(pause_us);
            let p = udp4(SERVER, s.ipv4.unwrap(), (1, 2), payload);
            for _ in 0..count {
                if matches!(net.downlink(&p).0, PacketVerdict::Send(_)) {
                    passed.push((net.now.0, p.len() as u64 * 8));
                }
            }
        }
        let depth_bits = (rate_kbps * u64::from(window_ms)).max(15_000 * 8);
        for (i, (from, _)) in passed.iter().enumerate() {
            let mut sum = 0;
            for (to, bits) in &passed[i..] {
                sum += bits;
                // A microsecond at 1 kbit/s is a thousandth of a bit.
                let most = depth_bits + rate_kbps * (to - from) / 1000 + 1;
                prop_assert!(sum <= most, "{sum} bits in {} us, at most {most}", to - from);
            }
        }
    }

    /// A packet goes where its own session's rules say, whatever sessions there are: never to another UE.
    #[test]
    fn no_packet_reaches_another_session(
        packets in proptest::collection::vec((0usize..5, 0usize..5, any::<u16>(), any::<u16>(), any::<bool>()), 1..80),
        gone in 0usize..5,
    ) {
        let mut net = Net::new();
        let sessions: Vec<_> = (0..5u32).map(|n| {
            let s = net.idle_session(u64::from(n) + 1, true, false);
            net.modify(&s, activation(whimbrel_ids::Teid(1000 + n), GNB.ip()));
            s
        }).collect();
        net.delete(&sessions[gone]);
        for (a, b, p, q, uplink) in packets {
            let (from, to) = (&sessions[a], &sessions[b]);
            if uplink {
                // By a's tunnel with b's address.
                let (verdict, _) = net.packet(from_gnb(), &g_pdu(from.teid, 1, &udp4(to.ipv4.unwrap(), SERVER, (p, q), 0)));
                prop_assert_eq!(verdict == N6, a == b && a != gone);
            } else {
                let other_ue = p % 2 != 0;
                let source = if other_ue { from.ipv4.unwrap_or(Ipv4Addr::LOCALHOST) } else { SERVER };
                let (verdict, octets) = net.downlink(&udp4(source, to.ipv4.unwrap(), (p, q), 0));
                if other_ue {
                    prop_assert_eq!(verdict, PacketVerdict::Drop(DropReason::UeToUe));
                } else if b == gone {
                    prop_assert_eq!(verdict, PacketVerdict::Drop(DropReason::UnknownUeAddress));
                } else {
                    prop_assert_eq!(at_gnb(&octets).0, whimbrel_ids::Teid(1000 + b as u32));
                }
            }
        }
    }
}
