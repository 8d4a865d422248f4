//! Buffering action rules (TS 29.244 §5.2.4): how much is kept for an idle phone, and when the SMF is told.

mod common;

use std::time::Duration;

use common::*;
use whimbrel_ids::Seid;
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

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

fn down(net: &mut Net, s: &Session) -> Verdict {
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

#[test] // TS 29.244 §5.2.4, §8.2.28: units of 50 ms
fn notification_waits_for_the_delay_and_is_made_once() {
    let mut net = Net::new();
    let s = idle(&mut net, Some(4), None);
    for _ in 0..3 {
        assert_eq!(down(&mut net, &s), Verdict::Taken);
        after_ms(&mut net, 60);
    }
    assert!(net.reports().is_empty());
    after_ms(&mut net, 20);
    let reports = net.reports();
    assert_eq!((reports.len(), reports[0].2.report_type), (1, ReportType::DLDR));
    after_ms(&mut net, 1000);
    assert!(net.reports().is_empty());
}

#[test] // TS 23.502 §4.2.3.3: the phone comes by itself within the delay, and need not be paged
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
            assert_eq!(down(&mut net, &s), Verdict::Taken);
        }
        assert_eq!(down(&mut net, &s), Verdict::Drop(DropReason::BufferFull), "{suggested:?}");
    }
}

#[test] // TS 29.244 table 7.5.9.2-1, §5.2.4.2: the answer to a report changes the BAR
fn answer_to_the_report_changes_buffering() {
    let mut net = Net::new();
    let s = idle(&mut net, None, Some(1));
    down(&mut net, &s);
    // Keep three, and do not tell again for ten seconds (five units of two).
    answer(&mut net, bar(Some(3), Some(PackedTimer(5)), None));
    assert_eq!((down(&mut net, &s), down(&mut net, &s)), (Verdict::Taken, Verdict::Taken));
    assert_eq!(down(&mut net, &s), Verdict::Drop(DropReason::BufferFull));
    assert!(net.reports().is_empty());
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    assert_eq!(net.outputs().len(), 3, "in one piece");
}

#[test] // TS 29.244 §5.2.4.2: after the buffering duration the next packet is told of again
fn after_the_buffering_duration_the_smf_is_told_again() {
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
    assert_eq!(down(&mut net, &s), Verdict::Taken);
    assert!(net.reports().is_empty());
    assert_eq!(net.upf.u.counters().held, 2);
}

#[test]
fn phones_with_much_to_hold_leave_room_for_others() {
    let mut net = Net::with(Config { held_per_session: HELD_PER_SESSION_MAX, ..config() });
    let sessions: Vec<_> = (1..=4).map(|n| net.idle_session(n, true, false)).collect();
    let mut kept = Vec::new();
    for s in &sessions {
        let mut n = 0;
        while down(&mut net, s) == Verdict::Taken {
            n += 1;
        }
        kept.push(n);
    }
    assert_eq!(kept[0], usize::from(HELD_PER_SESSION_MAX));
    assert!(kept.is_sorted_by(|a, b| a > b), "{kept:?}");
    assert!(kept[3] > HELD_PER_SESSION_SURE && kept.iter().sum::<usize>() < HELD_MAX, "{kept:?}");
    assert_eq!((net.dropped(DropReason::BufferFull), net.dropped(DropReason::BuffersExhausted)), (1, 3));
}
