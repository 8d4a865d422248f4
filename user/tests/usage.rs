//! Usage reporting rules (TS 29.244 §5.2.2): quotas by volume and time, monitoring time, and figures that never go back.

use super::common;

use std::time::Duration;

use common::*;
use proptest::prelude::*;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

fn session(net: &mut Net, urr: CreateUrr) -> Session {
    let mut m = establishment(1, true, false);
    m.create_urrs = vec![urr];
    let r = net.establish(m);
    let s = net.seated(1, &r);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    s
}

fn volume_and_time(triggers: ReportingTriggers) -> CreateUrr {
    CreateUrr::new(UrrId(1), MeasurementMethod::VOLUM | MeasurementMethod::DURAT, triggers)
}

/// A packet of 100 octets to the UE.
fn down(net: &mut Net, s: &Session) -> PacketVerdict {
    net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 72)).0
}

fn at(net: &mut Net, seconds: u64) {
    net.advance(START + Duration::from_secs(seconds));
}

/// The usage reported since the last look.
fn reported(net: &mut Net) -> Vec<UsageReport> {
    net.accepted_reports().into_iter().flat_map(|(_, _, r)| r.usage_reports).collect()
}

fn total(u: &UsageReport) -> u64 {
    u.volume_measurement.unwrap().total.unwrap()
}

#[test] // TS 29.244 §5.2.2.2.1: usage before and after the monitoring time, in one report
fn monitoring_time_splits_the_figures() {
    let mut net = Net::new();
    let monitoring_time = Some(NtpTime::at(START + Duration::from_secs(100)));
    let threshold = Some(Volume { total: Some(500), ..Volume::default() });
    let urr = CreateUrr {
        monitoring_time,
        volume_threshold: threshold,
        ..volume_and_time(ReportingTriggers::VOLTH)
    };
    let s = session(&mut net, urr);
    for _ in 0..3 {
        down(&mut net, &s);
    }
    at(&mut net, 100);
    assert!(reported(&mut net).is_empty(), "it waits for a trigger");
    down(&mut net, &s);
    assert!(reported(&mut net).is_empty(), "400 of 500");
    down(&mut net, &s);
    let reports = reported(&mut net);
    let of = |u: &UsageReport| (total(u), u.usage_information, u.usage_report_trigger, u.ur_seqn.0);
    assert_eq!(
        reports.iter().map(of).collect::<Vec<_>>(),
        [
            (300, Some(UsageInformation::BEF), UsageReportTrigger::VOLTH, 0),
            (200, Some(UsageInformation::AFT), UsageReportTrigger::VOLTH, 1),
        ]
    );
    assert_eq!(reports[0].end_time, monitoring_time);
    assert_eq!(reports[1].start_time, monitoring_time);
    // From here on as without.
    let r = net.delete(&s);
    assert_eq!((r.usage_reports.len(), r.usage_reports[0].usage_information), (1, None));
}

#[test] // a monitoring time of the past, and one that the SMF moves
fn monitoring_time_of_the_past_or_moved() {
    let mut net = Net::new();
    let past = Some(NtpTime::at(whimbrel_ids::Instant(START.0 - 5_000_000)));
    let s = session(
        &mut net,
        CreateUrr { monitoring_time: past, ..volume_and_time(ReportingTriggers::default()) },
    );
    down(&mut net, &s);
    let later = Some(NtpTime::at(START + Duration::from_secs(50)));
    let update_urrs = vec![UpdateUrr { monitoring_time: later, ..UpdateUrr::new(UrrId(1)) }];
    net.modify(&s, SessionModificationRequest { update_urrs, ..Default::default() });
    at(&mut net, 60);
    down(&mut net, &s);
    let r = net.delete(&s);
    assert_eq!(r.usage_reports.iter().map(total).collect::<Vec<_>>(), [100, 100]);
}

#[test] // TS 29.244 §5.2.2.2: time runs from the first packet, and stops traffic when it is used up
fn time_quota_stops_traffic_until_another_is_given() {
    let mut net = Net::new();
    let time_quota = Some(TimeQuota(30));
    let s = session(&mut net, CreateUrr { time_quota, ..volume_and_time(ReportingTriggers::TIMQU) });
    at(&mut net, 100);
    assert!(reported(&mut net).is_empty(), "unused time does not count");
    assert_eq!(down(&mut net, &s), PacketVerdict::Send(to_gnb()));
    at(&mut net, 129);
    assert_eq!(down(&mut net, &s), PacketVerdict::Send(to_gnb()));
    at(&mut net, 130);
    let reports = reported(&mut net);
    assert_eq!(reports[0].usage_report_trigger, UsageReportTrigger::TIMQU);
    assert_eq!(reports[0].duration_measurement, Some(DurationMeasurement(30)));
    assert_eq!(down(&mut net, &s), PacketVerdict::Drop(DropReason::QuotaExhausted));
    let update_urrs = vec![UpdateUrr { time_quota, ..UpdateUrr::new(UrrId(1)) }];
    net.modify(&s, SessionModificationRequest { update_urrs, ..Default::default() });
    assert_eq!(down(&mut net, &s), PacketVerdict::Send(to_gnb()));
}

#[test] // TS 29.244 §5.2.2.2: what the session drops is not usage
fn dropped_packets_are_not_usage() {
    let mut net = Net::new();
    let s = session(&mut net, volume_and_time(ReportingTriggers::default()));
    let gate_status = Some(GateStatus { ul: Gate::Open, dl: Gate::Closed });
    let update_qers = vec![UpdateQer { gate_status, ..UpdateQer::new(QerId(1)) }];
    net.modify(&s, SessionModificationRequest { update_qers, ..Default::default() });
    assert_eq!(down(&mut net, &s), PacketVerdict::Drop(DropReason::GateClosed));
    let r = net.delete(&s);
    assert_eq!(total(&r.usage_reports[0]), 0);
}

/// The same, each once: a report without an answer is repeated.
fn newly_reported(net: &mut Net, known: &mut u32) -> Vec<UsageReport> {
    let mut new = reported(net);
    new.retain(|u| u.ur_seqn.0 == std::mem::replace(known, (*known).max(u.ur_seqn.0 + 1)));
    new
}

fn events(triggers: ReportingTriggers) -> CreateUrr {
    CreateUrr {
        inactivity_detection_time: Some(InactivityDetectionTime(10)),
        ..CreateUrr::new(UrrId(1), MeasurementMethod::EVENT, triggers)
    }
}

#[test] // TS 29.244 §5.2.2.2 events: an event is a start of traffic; the threshold reports it, the quota stops packets until another is given
fn starts_of_traffic_are_counted_up_to_threshold_and_quota() {
    let (mut net, mut known) = (Net::new(), 0);
    let s = session(
        &mut net,
        CreateUrr {
            event_threshold: Some(EventThreshold(2)),
            event_quota: Some(EventQuota(3)),
            ..events(ReportingTriggers::EVETH | ReportingTriggers::EVEQU)
        },
    );
    let stamp = |seconds: u64| NtpTime::at(START + Duration::from_secs(seconds));
    for second in [0, 5, 14] {
        at(&mut net, second); // no silence of ten seconds: one event
        assert_eq!(down(&mut net, &s), PacketVerdict::Send(to_gnb()));
    }
    assert!(newly_reported(&mut net, &mut known).is_empty());
    at(&mut net, 24);
    assert_eq!(down(&mut net, &s), PacketVerdict::Send(to_gnb()));
    let reports = newly_reported(&mut net, &mut known);
    assert_eq!(reports[0].usage_report_trigger, UsageReportTrigger::EVETH);
    assert_eq!(reports[0].event_time_stamps, [stamp(0), stamp(24)]);
    at(&mut net, 40);
    assert_eq!(down(&mut net, &s), PacketVerdict::Send(to_gnb()));
    let reports = newly_reported(&mut net, &mut known);
    assert_eq!(reports[0].usage_report_trigger, UsageReportTrigger::EVEQU);
    assert_eq!(reports[0].event_time_stamps, [stamp(40)]);
    assert_eq!(down(&mut net, &s), PacketVerdict::Drop(DropReason::QuotaExhausted));
    let update = UpdateUrr { event_quota: Some(EventQuota(1)), ..UpdateUrr::new(UrrId(1)) };
    let update_urrs = vec![update];
    net.modify(&s, SessionModificationRequest { update_urrs, ..Default::default() });
    assert_eq!(down(&mut net, &s), PacketVerdict::Send(to_gnb()), "of the traffic that started before");
    assert!(net.delete(&s).usage_reports[0].event_time_stamps.is_empty(), "each event is reported once");
}

#[test] // events without a threshold are reported before they exceed a datagram
fn many_events_are_all_reported() {
    let (mut net, mut known) = (Net::new(), 0);
    let s = session(&mut net, events(ReportingTriggers::default()));
    let mut reported = 0;
    for n in 0..300 {
        at(&mut net, n * 11);
        down(&mut net, &s);
        reported +=
            newly_reported(&mut net, &mut known).iter().map(|u| u.event_time_stamps.len()).sum::<usize>();
    }
    assert_eq!(reported, 256);
    assert_eq!(net.delete(&s).usage_reports[0].event_time_stamps.len(), 44);
}

#[test] // TS 29.244 §5.2.2.3.1 traffic: start and stop of traffic
fn start_and_stop_of_traffic_are_reported() {
    let (mut net, mut known) = (Net::new(), 0);
    let s = session(&mut net, events(ReportingTriggers::START | ReportingTriggers::STOPT));
    let mut why = Vec::new();
    for second in [0, 1, 9, 19, 20, 30] {
        at(&mut net, second);
        why.extend(
            newly_reported(&mut net, &mut known).into_iter().map(|u| (second, u.usage_report_trigger)),
        );
        if second != 19 && second != 30 {
            down(&mut net, &s);
        }
        why.extend(
            newly_reported(&mut net, &mut known).into_iter().map(|u| (second, u.usage_report_trigger)),
        );
    }
    let (start, stop) = (UsageReportTrigger::START, UsageReportTrigger::STOPT);
    assert_eq!(why, [(0, start), (19, stop), (20, start), (30, stop)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is asked for and whenever: all reports together are what was forwarded, in order, once.
    #[test]
    fn reports_add_up_to_what_was_forwarded(
        threshold in 100u64..5_000,
        period_s in 5u32..100,
        monitoring_s in 0u64..300,
        steps in proptest::collection::vec((0u64..20, 0u8..8, 0usize..1200), 1..60),
    ) {
        let mut net = Net::new();
        let s = session(&mut net, CreateUrr {
            volume_threshold: Some(Volume { total: Some(threshold), ..Volume::default() }),
            measurement_period: Some(MeasurementPeriod(period_s)),
            monitoring_time: Some(NtpTime::at(START + Duration::from_secs(monitoring_s))),
            ..volume_and_time(ReportingTriggers::VOLTH | ReportingTriggers::PERIO)
        });
        let mut all: Vec<UsageReport> = Vec::new();
        let mut sent = [0u64; 2];
        // What was answered late came twice, under one number.
        let mut seen = std::collections::BTreeSet::new();
        let mut answer = |net: &mut Net, all: &mut Vec<UsageReport>| {
            for (_, sequence, r) in net.accepted_reports() {
                if seen.insert(sequence) {
                    all.extend(r.usage_reports);
                }
            }
        };
        for (pause, what, payload) in steps {
            let to = net.now + Duration::from_secs(pause);
            net.advance(to);
            let ue = s.ipv4.unwrap();
            match what {
                0..4 => {
                    let p = udp4(SERVER, ue, (1, 2), payload);
                    if matches!(net.downlink(&p).0, PacketVerdict::Send(_)) {
                        sent[1] += p.len() as u64;
                    }
                }
                4..7 => {
                    let p = udp4(ue, SERVER, (1, 2), payload);
                    if matches!(net.uplink(&s, &p).0, PacketVerdict::Send(_)) {
                        sent[0] += p.len() as u64;
                    }
                }
                _ => {
                    answer(&mut net, &mut all);
                    let query_urrs = vec![QueryUrr { urr_id: UrrId(1) }];
                    let r = net.modify(&s, SessionModificationRequest { query_urrs, ..Default::default() });
                    all.extend(r.usage_reports);
                }
            }
            answer(&mut net, &mut all);
        }
        all.extend(net.delete(&s).usage_reports);
        let sum = |f: fn(&VolumeMeasurement) -> Option<u64>| -> u64 {
            all.iter().map(|u| f(u.volume_measurement.as_ref().unwrap()).unwrap()).sum()
        };
        prop_assert_eq!([sum(|v| v.ul), sum(|v| v.dl)], sent);
        let numbers: Vec<u32> = all.iter().map(|u| u.ur_seqn.0).collect();
        prop_assert_eq!(numbers, (0..all.len() as u32).collect::<Vec<_>>());
        prop_assert!(all.windows(2).all(|w| w[0].end_time == w[1].start_time), "no gap, no overlap");
    }
}
