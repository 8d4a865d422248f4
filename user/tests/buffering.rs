//! Buffering action rules (TS 29.244 §5.2.4): how much is buffered for an idle UE, and when the SMF gets a report.

use super::common;

use std::time::Duration;

use common::*;
use whimbrel_ids::Seid;
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

/// With other bounds.
fn with(change: impl FnOnce(&mut Buffering)) -> Net {
    let mut config = config();
    change(&mut config.buffering);
    Net::with(config)
}

/// An idle session with a BAR.
fn idle(net: &mut Net, delay: Option<u8>, packets: Option<u8>) -> Session {
    let mut m = establishment(1, true, false);
    m.create_bars = vec![CreateBar {
        bar_id: BarId(1),
        downlink_data_notification_delay: delay.map(DownlinkDataNotificationDelay),
        suggested_buffering_packets_count: packets.map(SuggestedBufferingPacketsCount),
    }];
    m.create_fars[1].bar_id = Some(BarId(1));
    let r = net.establish(m);
    net.seated(1, &r)
}

fn down(net: &mut Net, s: &Session) -> PacketVerdict {
    net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0)).0
}

fn after_ms(net: &mut Net, ms: u64) {
    let to = net.now + Duration::from_millis(ms);
    net.advance(to);
}

/// Answers the one report that went out, with a BAR.
fn answer(net: &mut Net, update_bar: UpdateBarInReportResponse) {
    let reports = net.reports();
    assert_eq!(reports.len(), 1);
    let m = SessionReportResponse {
        update_bar: Some(update_bar),
        ..SessionReportResponse::new(Cause::RequestAccepted)
    };
    let octets = Message::from(m).to_octets(Some(Seid(0)), reports[0].1);
    net.upf.pfcp(net.now, SMF, &octets, &mut net.out);
}

fn bar(packets: Option<u8>, duration: Option<PackedTimer>, delay: Option<u8>) -> UpdateBarInReportResponse {
    UpdateBarInReportResponse {
        bar_id: BarId(1),
        downlink_data_notification_delay: delay.map(DownlinkDataNotificationDelay),
        dl_buffering_duration: duration,
        suggested_buffering_packets_count: packets.map(SuggestedBufferingPacketsCount),
    }
}

#[test] // TS 29.244 §5.2.4.2: the first buffered packet is reported to the SMF, after the delay, once
fn a_tunnel_for_what_gnbs_forward_takes_no_notice_back_and_asks_for_none() {
    for delay in [None, Some(2)] {
        let mut net = Net::new();
        let s = idle(&mut net, delay, None);
        assert_eq!(down(&mut net, &s), PacketVerdict::Taken);
        let pdi = Pdi {
            f_teid: Some(FTeid::Choose { ipv4: true, ipv6: false, choose_id: None }),
            ..Pdi::from(SourceInterface::Access)
        };
        let parameters = ForwardingParameters {
            outer_header_creation: Some(OuterHeaderCreation::gtpu(GNB_TEID, GNB.ip())),
            ..ForwardingParameters::to(DestinationInterface::Access)
        };
        let m = SessionModificationRequest {
            create_pdrs: vec![CreatePdr {
                outer_header_removal: Some(OuterHeaderRemovalDescription::GtpuUdpIp.into()),
                ..CreatePdr::new(PdrId(9), Precedence(1), pdi, FarId(9))
            }],
            create_fars: vec![CreateFar::forward(FarId(9), parameters)],
            ..Default::default()
        };
        assert_eq!(net.modify(&s, m).cause, Cause::RequestAccepted);
        assert_eq!(down(&mut net, &s), PacketVerdict::Taken);
        after_ms(&mut net, 500);
        let reported = net.reports().iter().filter(|(_, _, m)| m.downlink_data_report.is_some()).count();
        assert_eq!(reported, 1, "{delay:?}");
    }
}

#[test] // TS 29.244 §5.2.4, §8.2.28: units of 50 ms
fn notification_waits_for_the_delay_and_is_made_once() {
    let mut net = Net::new();
    let s = idle(&mut net, Some(4), None);
    for _ in 0..3 {
        assert_eq!(down(&mut net, &s), PacketVerdict::Taken);
        after_ms(&mut net, 60);
    }
    assert!(net.reports().is_empty());
    after_ms(&mut net, 20);
    let reports = net.reports();
    assert_eq!((reports.len(), reports[0].2.report_type), (1, ReportType::DLDR));
    after_ms(&mut net, 1000);
    assert!(net.reports().is_empty());
}

#[test] // TS 23.502 §4.2.3.3: the UE comes by itself within the delay, and need not be paged
fn notification_is_not_made_when_the_packets_have_gone() {
    let mut net = Net::new();
    let s = idle(&mut net, Some(4), None);
    down(&mut net, &s);
    after_ms(&mut net, 100);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    assert_eq!(net.outputs().len(), 1);
    after_ms(&mut net, 1000);
    assert!(net.reports().is_empty());
    assert_eq!(net.upf.next_deadline(), None);
}

#[test] // TS 29.244 §5.2.4, §8.2.100
fn suggested_number_of_packets_is_kept_up_to_our_bound() {
    for (suggested, kept) in [(Some(0), 1), (Some(3), 3), (Some(255), HELD), (None, HELD)] {
        let mut net = Net::new();
        let s = idle(&mut net, None, suggested);
        for _ in 0..kept {
            assert_eq!(down(&mut net, &s), PacketVerdict::Taken);
        }
        assert_eq!(down(&mut net, &s), PacketVerdict::Drop(DropReason::BufferFull), "{suggested:?}");
    }
}

#[test] // TS 29.244 table 7.5.9.2-1, §5.2.4.2: the answer to a report changes the BAR
fn answer_to_the_report_changes_buffering() {
    let mut net = Net::new();
    let s = idle(&mut net, None, Some(1));
    down(&mut net, &s);
    // Keep three, and do not tell again for ten seconds (five units of two).
    answer(&mut net, bar(Some(3), Some(PackedTimer(5)), None));
    assert_eq!((down(&mut net, &s), down(&mut net, &s)), (PacketVerdict::Taken, PacketVerdict::Taken));
    assert_eq!(down(&mut net, &s), PacketVerdict::Drop(DropReason::BufferFull));
    assert!(net.reports().is_empty());
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    assert_eq!(net.outputs().len(), 3, "in one piece");
}

#[test] // TS 29.244 §5.2.4.2: after the buffering duration the next packet is reported again
fn next_packet_after_the_buffering_duration_is_reported_again() {
    let mut net = Net::new();
    let s = idle(&mut net, None, None);
    down(&mut net, &s);
    answer(&mut net, bar(None, Some(PackedTimer(5)), None));
    after_ms(&mut net, 9_999);
    down(&mut net, &s);
    assert!(net.reports().is_empty());
    after_ms(&mut net, 1);
    down(&mut net, &s);
    assert_eq!(net.reports().len(), 1);
}

#[test] // a BAR that is not there, and a duration without end
fn answers_that_change_nothing() {
    let mut net = Net::new();
    let s = idle(&mut net, None, None);
    down(&mut net, &s);
    answer(&mut net, UpdateBarInReportResponse { bar_id: BarId(9), ..bar(Some(1), None, None) });
    assert_eq!(down(&mut net, &s), PacketVerdict::Taken);
    assert!(net.reports().is_empty());
    assert_eq!(net.upf.u.counters().held, 2);
}

#[test]
fn ues_with_much_to_hold_leave_room_for_others() {
    let mut net = with(|b| b.packets_per_session = HELD_PER_SESSION_MAX);
    let sessions: Vec<_> = (1..=4).map(|n| net.idle_session(n, true, false)).collect();
    let mut kept = Vec::new();
    for s in &sessions {
        let mut n = 0;
        while down(&mut net, s) == PacketVerdict::Taken {
            n += 1;
        }
        kept.push(n);
    }
    assert_eq!(kept[0], usize::from(HELD_PER_SESSION_MAX));
    assert!(kept.is_sorted_by(|a, b| a > b), "{kept:?}");
    let all = Buffering::default().packets as usize;
    assert!(kept[3] > HELD_PER_SESSION_GUARANTEED && kept.iter().sum::<usize>() < all, "{kept:?}");
    assert_eq!((net.dropped(DropReason::BufferFull), net.dropped(DropReason::BuffersExhausted)), (1, 3));
}

/// A packet with so many octets.
fn down_of(net: &mut Net, s: &Session, octets: usize) -> PacketVerdict {
    net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), octets - 28)).0
}

#[test]
fn octets_are_bounded_for_one_and_for_all() {
    let mut net = with(|b| (b.octets_per_session, b.octets) = (1_000, 1_500));
    let [one, other] = [1, 2].map(|n| net.idle_session(n, true, false));
    assert_eq!(
        (down_of(&mut net, &one, 600), down_of(&mut net, &one, 400)),
        (PacketVerdict::Taken, PacketVerdict::Taken)
    );
    assert_eq!(down_of(&mut net, &one, 28), PacketVerdict::Drop(DropReason::BufferOctets));
    assert_eq!(down_of(&mut net, &other, 501), PacketVerdict::Drop(DropReason::BuffersOctets));
    assert_eq!(down_of(&mut net, &other, 500), PacketVerdict::Taken);
    assert_eq!((net.upf.u.counters().held, net.upf.u.counters().held_octets), (3, 1_500));
    // What leaves makes room.
    net.modify(&one, activation(GNB_TEID, GNB.ip()));
    assert_eq!((net.outputs().len(), net.upf.u.counters().held_octets), (2, 500));
    assert_eq!(down_of(&mut net, &other, 500), PacketVerdict::Taken);
    net.delete(&other);
    assert_eq!((net.upf.u.counters().held, net.upf.u.counters().held_octets), (0, 0));
}

#[test]
fn packets_of_all_are_bounded() {
    let mut net = with(|b| b.packets = 3);
    let [one, other] = [1, 2].map(|n| net.idle_session(n, true, false));
    let all = [&one, &other, &one, &other].map(|s| down(&mut net, s));
    let taken = PacketVerdict::Taken;
    assert_eq!(all, [taken, taken, taken, PacketVerdict::Drop(DropReason::BuffersExhausted)]);
}

#[test] // a packet after the dropped ones is reported to the SMF again
fn packets_that_wait_too_long_are_dropped() {
    let mut net = with(|b| b.age = Duration::from_secs(10));
    let s = net.idle_session(1, true, false);
    down(&mut net, &s);
    answer(&mut net, bar(None, None, None)); // for a BAR that is not there
    after_ms(&mut net, 4_000);
    down(&mut net, &s);
    after_ms(&mut net, 5_999);
    assert_eq!((net.upf.u.counters().held, net.dropped(DropReason::BufferAge)), (2, 0));
    after_ms(&mut net, 1);
    assert_eq!((net.upf.u.counters().held, net.dropped(DropReason::BufferAge)), (1, 1));
    down(&mut net, &s);
    assert!(net.reports().is_empty(), "some wait that it knows of");
    // A change of rules that does not let them go makes them no younger.
    net.modify(&s, SessionModificationRequest::default());
    after_ms(&mut net, 10_000);
    assert_eq!((net.upf.u.counters().held, net.dropped(DropReason::BufferAge)), (0, 3));
    assert_eq!(net.upf.u.session_counters(s.id()).unwrap().dropped, 3);
    down(&mut net, &s);
    assert_eq!(net.reports().len(), 1, "reported again");
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    assert_eq!((net.outputs().len(), net.upf.u.next_deadline()), (1, None));
}

#[test] // TS 29.244 §5.2.4.2: a UE that sleeps long, of which the SMF knows
fn packets_wait_as_long_as_the_smf_says() {
    let mut net = with(|b| b.age = Duration::from_secs(10));
    let s = idle(&mut net, None, None);
    down(&mut net, &s);
    // Three units of ten minutes.
    answer(&mut net, bar(None, Some(PackedTimer(0b010_00011)), None));
    after_ms(&mut net, 1_799_999);
    assert_eq!(net.upf.u.counters().held, 1);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    assert_eq!(net.outputs().len(), 1);
    net.modify(&s, SessionModificationRequest { update_fars: vec![buffer()], ..Default::default() });
    down(&mut net, &s);
    after_ms(&mut net, 10_000);
    assert_eq!(net.dropped(DropReason::BufferAge), 1, "the buffering duration ends with the UE's return");
}

fn buffer() -> UpdateFar {
    UpdateFar { apply_action: Some(ApplyAction::BUFF | ApplyAction::NOCP), ..UpdateFar::new(FarId(2)) }
}

#[test] // RFC 7567, RFC 3168: where the operator wants it
fn early_drop_begins_at_half_and_spares_ecn_capable_packets() {
    for (early_drop, ecn) in [(false, false), (true, false), (true, true)] {
        let mut net = with(|b| (b.packets_per_session, b.early_drop) = (2_000, early_drop));
        let s = net.idle_session(1, true, false);
        let mut packet = udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0);
        packet[1] = if ecn { 0b10 } else { 0 };
        let mut early = [0, 0];
        while net.upf.u.counters().held < 2_000 {
            let half = usize::from(net.upf.u.counters().held >= 1_000);
            match net.downlink(&packet).0 {
                PacketVerdict::Taken => {}
                other => {
                    assert_eq!(other, PacketVerdict::Drop(DropReason::EarlyDrop));
                    early[half] += 1;
                }
            }
        }
        assert_eq!(net.upf.u.counters().ecn_marked, if ecn { 1_000 } else { 0 });
        if early_drop && !ecn {
            assert!(early[0] == 0 && (20..=110).contains(&early[1]), "{early:?}");
        } else {
            assert_eq!(early, [0, 0]);
        }
    }
}

#[test]
fn bounds_that_cannot_be_are_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut config = config();
        change(&mut config);
        Upf::new(config, START).err()
    };
    assert_eq!(refused(|c| c.flows_second = 1 << 25), Some(ConfigError::Flows { given: 1 << 25 }));
    let age = BufferingError { bound: "age", most: Buffering::AGE_MAX.as_millis() as u64 };
    assert_eq!(refused(|c| c.buffering.age = Duration::ZERO), Some(ConfigError::Buffering(age)));
    let packets = BufferingError { bound: "packets", most: HELD_MAX as u64 };
    assert_eq!(refused(|c| c.buffering.packets = 1 << 19), Some(ConfigError::Buffering(packets)));
}
