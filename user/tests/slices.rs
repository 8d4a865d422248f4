//! Rates of slices, what of them is guaranteed, and marks for congestion.

use super::common;

use std::time::Duration;

use common::*;
use whimbrel_ids::{Instant, Qfi, SNssai};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::SessionModificationRequest;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

/// 8 Mbit/s downlink: a packet of 1,000 octets each millisecond.
const RATE: SliceRate = SliceRate { slice: SNssai::sst(1), ul_kbps: 80_000, dl_kbps: 8_000 };
/// Not ECT, ECT(0), CE (RFC 3168 §5).
const NOT_ECT: u8 = 0;
const ECT: u8 = 2;
const CE: u8 = 3;

fn net() -> Net {
    Net::with(Config { slices: vec![RATE], ..config() })
}

/// A session of a slice, with a default flow of 200 Mbit/s.
fn session(net: &mut Net, n: u64, slice: SNssai) -> Session {
    let mut m = establishment(n, true, false);
    m.s_nssai = Some(slice);
    let r = net.establish(m);
    let s = net.seated(n, &r);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    s
}

/// A packet of 1,000 octets to the UE.
fn down(s: &Session, port: u16, ecn: u8) -> Vec<u8> {
    let mut p = udp4(SERVER, s.ipv4.unwrap(), (port, 1), 972);
    p[1] = 0xb8 | ecn;
    let sum: u32 = p[..20].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    p
}

/// Whether an IPv4 header's checksum is right (RFC 1071).
fn is_sound(p: &[u8]) -> bool {
    let sum: u32 = p[..20].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// One second in which packets of these kinds come each so many microseconds; of each kind, those that came to the gNB with each mark.
fn second(net: &mut Net, kinds: &[(Vec<u8>, u64)]) -> Vec<[u64; 4]> {
    let mut came = vec![[0; 4]; kinds.len()];
    let begin = net.now;
    for us in 0..1_000_000 {
        net.now = Instant(begin.0 + us);
        for ((packet, every_us), came) in kinds.iter().zip(&mut came) {
            if !us.is_multiple_of(*every_us) {
                continue;
            }
            let (verdict, octets) = net.downlink(packet);
            if let PacketVerdict::Send(_) = verdict {
                let (_, _, inner) = at_gnb(&octets);
                assert!(is_sound(&inner));
                came[usize::from(inner[1] & 3)] += 1;
                assert_eq!(inner[1] >> 2, packet[1] >> 2, "the class of a packet stays");
            }
        }
    }
    net.now = begin + Duration::from_secs(1);
    came
}

fn sum(came: &[u64; 4]) -> u64 {
    came.iter().sum()
}

#[test] // GSMA NG.116: throughput of a slice
fn the_sessions_of_a_slice_share_its_rate_and_those_of_another_have_none() {
    let mut net = net();
    let (a, b) = (session(&mut net, 1, SNssai::sst(1)), session(&mut net, 2, SNssai::sst(1)));
    let other = session(&mut net, 3, SNssai::sst(2));
    let kinds = [(&a, 397), (&b, 403), (&other, 400)].map(|(s, us)| (down(s, 1, NOT_ECT), us));
    let came = second(&mut net, &kinds);
    let both = sum(&came[0]) + sum(&came[1]);
    // A second's worth, and what the bucket held.
    assert!((980..=1_160).contains(&both), "{came:?}");
    assert!(sum(&came[0]) > 350 && sum(&came[1]) > 350, "{came:?}");
    assert_eq!(sum(&came[2]), 2_500);
    let lost = net.dropped(DropReason::SliceRateExceeded) + net.dropped(DropReason::EarlyDrop);
    assert_eq!(lost, 2_519 + 2_482 - both);
    let counted = net.upf.u.session_counters(a.id()).unwrap();
    assert_eq!(counted.dl_packets, sum(&came[0]), "what is dropped is not accounted");
}

#[test] // TS 23.501 §5.7.2.5: a guaranteed rate is one under load too
fn a_guaranteed_flow_has_its_rate_while_others_overload_the_slice() {
    let mut net = net();
    let s = session(&mut net, 1, SNssai::sst(1));
    let crowd = session(&mut net, 2, SNssai::sst(1));
    let rate = QerBitRate { ul_kbps: 4_000, dl_kbps: 4_000 };
    let qer = CreateQer {
        gbr: Some(rate),
        mbr: Some(QerBitRate { ul_kbps: 40_000, dl_kbps: 40_000 }),
        averaging_window: Some(AveragingWindow(200)),
        qfi: Qfi::new(5),
        ..CreateQer::new(QerId(5))
    };
    let voice = Pdi {
        network_instance: NetworkInstance::new("internet"),
        sdf_filters: vec![SdfFilter::flow("permit out 17 from 192.0.2.1 5060 to assigned")],
        ..Pdi::from(SourceInterface::Core)
    };
    let pdr =
        CreatePdr { qer_ids: vec![QerId(5)], ..CreatePdr::new(PdrId(5), Precedence(5), voice, FarId(2)) };
    let m =
        SessionModificationRequest { create_pdrs: vec![pdr], create_qers: vec![qer], ..Default::default() };
    assert_eq!(net.modify(&s, m).cause, Cause::RequestAccepted);
    // Half of the slice is guaranteed and used; five times the slice comes besides.
    second(&mut net, &[(down(&crowd, 1, NOT_ECT), 200)]);
    let came = second(&mut net, &[(down(&s, 5060, NOT_ECT), 2_000), (down(&crowd, 1, NOT_ECT), 200)]);
    assert_eq!(sum(&came[0]), 500, "{came:?}");
    assert!((400..600).contains(&sum(&came[1])), "{came:?}");
    // What is above the guarantee is as all else.
    let came = second(&mut net, &[(down(&s, 5060, NOT_ECT), 500), (down(&crowd, 1, NOT_ECT), 200)]);
    assert!((500..1_100).contains(&sum(&came[0])), "{came:?}");
    assert!(sum(&came[0]) + sum(&came[1]) < 1_200, "{came:?}");
}

#[test] // RFC 3168 §5, RFC 7567
fn ecn_capable_packets_are_marked_and_others_dropped_early() {
    let mut net = net();
    let s = session(&mut net, 1, SNssai::sst(1));
    let kinds = [(down(&s, 1, ECT), 1_860), (down(&s, 2, NOT_ECT), 1_860), (down(&s, 3, CE), 100_000)];
    for _ in 0..3 {
        second(&mut net, &kinds);
    }
    let marked = net.upf.u.counters().ecn_marked;
    let early = net.dropped(DropReason::EarlyDrop);
    assert!(marked > 20 && early > 20, "{marked} {early}");
    let came = second(&mut net, &kinds);
    assert!(came[0][usize::from(CE)] > 5, "{came:?}");
    assert_eq!(came[1][usize::from(CE)], 0, "packets without ECN are not marked");
    assert_eq!(sum(&came[1]), came[1][usize::from(NOT_ECT)]);
    assert!(came[2][usize::from(CE)] == sum(&came[2]) && sum(&came[2]) > 0, "{came:?}");
}

#[test]
fn a_slice_that_keeps_its_rate_notices_nothing() {
    let mut net = net();
    let s = session(&mut net, 1, SNssai::sst(1));
    let came = second(&mut net, &[(down(&s, 1, ECT), 1_000)]);
    assert_eq!(came, [[0, 0, 1_000, 0]]);
    // Uplink has a rate of its own.
    for _ in 0..50 {
        let up = udp4(s.ipv4.unwrap(), SERVER, (1, 2), 972);
        assert_eq!(net.uplink(&s, &up).0, PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }));
    }
}

#[test]
fn a_packet_that_the_slice_stops_costs_its_flow_nothing() {
    let mut net = net();
    let (s, crowd) = (session(&mut net, 1, SNssai::sst(1)), session(&mut net, 2, SNssai::sst(1)));
    let rate = QerBitRate { ul_kbps: 8_000, dl_kbps: 8_000 };
    let qer = UpdateQer {
        mbr: Some(rate),
        averaging_window: Some(AveragingWindow(50)),
        ..UpdateQer::new(QerId(1))
    };
    net.modify(&s, SessionModificationRequest { update_qers: vec![qer], ..Default::default() });
    // The slice is used up at once; the flow's 50 packets are not.
    while net.dropped(DropReason::SliceRateExceeded) == 0 {
        net.downlink(&down(&crowd, 1, NOT_ECT));
    }
    for _ in 0..100 {
        let (verdict, _) = net.downlink(&down(&s, 1, NOT_ECT));
        assert!(matches!(
            verdict,
            PacketVerdict::Drop(DropReason::SliceRateExceeded | DropReason::EarlyDrop)
        ));
    }
    assert_eq!(net.dropped(DropReason::RateExceeded), 0);
}

#[test] // RFC 3168: marked before the buffer is full
fn packets_that_wait_are_marked_when_half_of_the_buffer_is_used() {
    let mut net = Net::new();
    let s = net.idle_session(1, true, false);
    for _ in 0..HELD {
        assert_eq!(net.downlink(&down(&s, 1, ECT)).0, PacketVerdict::Taken);
    }
    assert_eq!(net.downlink(&down(&s, 1, ECT)).0, PacketVerdict::Drop(DropReason::BufferFull));
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    let came: Vec<_> = net.outputs().iter().map(|(_, o)| at_gnb(o).2).collect();
    assert!(came.iter().all(|p| is_sound(p)));
    let marks: Vec<_> = came.iter().map(|p| p[1] & 3).collect();
    assert_eq!(marks, [vec![ECT; HELD / 2], vec![CE; HELD / 2]].concat());
    // Packets without ECN are not dropped before the bound.
    net.modify(
        &s,
        SessionModificationRequest {
            update_fars: vec![UpdateFar {
                apply_action: Some(ApplyAction::BUFF | ApplyAction::NOCP),
                ..UpdateFar::new(FarId(2))
            }],
            ..Default::default()
        },
    );
    for _ in 0..HELD {
        assert_eq!(net.downlink(&down(&s, 1, NOT_ECT)).0, PacketVerdict::Taken);
    }
}

#[test]
fn a_slice_has_one_rate_and_it_is_not_zero() {
    let refused = |slices: Vec<SliceRate>| Config { slices, ..config() }.check();
    assert_eq!(refused(vec![RATE, RATE]), Err(ConfigError::SliceRate(RATE.slice)));
    assert_eq!(refused(vec![SliceRate { dl_kbps: 0, ..RATE }]), Err(ConfigError::SliceRate(RATE.slice)));
    let many = (0..=SLICES_MAX as u8).map(|n| SliceRate { slice: SNssai::sst(n), ..RATE });
    assert_eq!(refused(many.collect()), Err(ConfigError::Slices { given: SLICES_MAX + 1 }));
    assert_eq!(refused(vec![RATE, SliceRate { slice: SNssai::sst(2), ..RATE }]), Ok(()));
}
