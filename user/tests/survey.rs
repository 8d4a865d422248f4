//! The usage survey: its sums are those of the sessions' counters, whatever form a session has, and reading changes nothing.

use super::common;

use std::time::Duration;

use common::*;
use whimbrel_user::{
    ACTIVE_WITHIN, BurstPacket, NetworkUsage, Packet, PacketVerdict, SessionTable, Stage, StageObserver,
    UpfU, UsageSurvey,
};

/// A round, so many places at a time.
fn survey(net: &mut Net, places: u32) -> UsageSurvey {
    let (mut survey, now) = (UsageSurvey::default(), net.now);
    while pipeline(net).session_table().survey(now, &mut survey, places) == places {}
    survey
}

fn pipeline(net: &mut Net) -> &mut UpfU {
    net.upf.u.only().expect("one pipeline")
}

/// The same from the counters of each session.
fn counted(net: &Net, sessions: &[&Session], active: u64) -> NetworkUsage {
    let mut usage = NetworkUsage { sessions: sessions.len() as u64, active, ul_octets: 0, dl_octets: 0 };
    for session in sessions {
        let c = net.upf.u.session_counters(session.id()).expect("it stands");
        (usage.ul_octets, usage.dl_octets) = (usage.ul_octets + c.ul_octets, usage.dl_octets + c.dl_octets);
    }
    usage
}

fn exchange(net: &mut Net, session: &Session, packets: usize) {
    let ue = session.ipv4.expect("an IPv4 address");
    for n in 0..packets {
        assert!(matches!(net.uplink(session, &udp4(ue, SERVER, (1, 2), 100 + n)).0, PacketVerdict::Send(_)));
        assert!(matches!(net.downlink(&udp4(SERVER, ue, (2, 1), 300 + n)).0, PacketVerdict::Send(_)));
    }
}

#[test]
fn a_survey_adds_up_plain_and_other_sessions_and_counts_those_with_recent_packets() {
    let mut net = Net::new();
    let (busy, quiet, idle) =
        (net.session(1, true, false), net.session(2, true, false), net.idle_session(3, true, false));
    exchange(&mut net, &quiet, 2);
    net.advance(START + ACTIVE_WITHIN);
    exchange(&mut net, &busy, 5);
    // One that buffers for an idle UE is not plain.
    net.downlink(&udp4(SERVER, idle.ipv4.expect("an IPv4 address"), (2, 1), 50));
    let plain = pipeline(&mut net).plain();
    assert!((1..3).contains(&plain), "both forms are there: {plain}");
    let expected = counted(&net, &[&busy, &quiet, &idle], 1);
    assert!(expected.ul_octets > 0 && expected.dl_octets > expected.ul_octets);
    for places in [1, 7, 100_000] {
        assert_eq!(survey(&mut net, places).sums(), [expected], "{places} at once");
    }
    net.delete(&quiet);
    let expected = counted(&net, &[&busy, &idle], 1);
    assert_eq!(survey(&mut net, 64).sums(), [expected]);
    net.advance(net.now + ACTIVE_WITHIN + Duration::from_secs(1));
    assert_eq!(survey(&mut net, 64).sums()[0].active, 0);
}

/// Surveys at each load of a burst.
struct InStalls {
    now: whimbrel_ids::Instant,
    survey: UsageSurvey,
    loads: u32,
    read: u32,
}

impl StageObserver for InStalls {
    fn done(&mut self, _: Stage) {}

    fn loading(&mut self, sessions: SessionTable<'_>) {
        self.loads += 1;
        self.read += sessions.survey(self.now, &mut self.survey, 2);
    }
}

#[test]
fn a_burst_that_is_surveyed_while_it_loads_gets_the_verdicts_of_one_that_is_not() {
    let (mut net, mut other) = (Net::new(), Net::new());
    let (session, _) = (net.session(1, true, false), other.session(1, true, false));
    let ue = session.ipv4.expect("an IPv4 address");
    let octets = g_pdu(session.teid, 1, &udp4(ue, SERVER, (1, 2), 60));
    let burst = || {
        let slot = |n: usize| {
            let mut packet = Packet::with_room(2048);
            packet.fill(if n == 2 { &octets[..9] } else { &octets });
            BurstPacket { origin: from_gnb(), packet, verdict: PacketVerdict::Pending }
        };
        (0..4).map(slot).collect::<Vec<_>>()
    };
    let (mut surveyed, mut alone) = (burst(), burst());
    let mut in_stalls = InStalls { now: START, survey: UsageSurvey::default(), loads: 0, read: 0 };
    pipeline(&mut net).burst_observed(START, &mut surveyed, &mut in_stalls);
    pipeline(&mut other).burst(START, &mut alone);
    assert_eq!((in_stalls.loads, in_stalls.read), (3, 6), "headers, addresses, sessions");
    assert_eq!(in_stalls.survey.sums()[0].sessions, 1);
    let verdicts = |slots: &[BurstPacket]| slots.iter().map(|s| s.verdict).collect::<Vec<_>>();
    assert_eq!(verdicts(&surveyed), verdicts(&alone));
    assert!(
        matches!(alone[2].verdict, PacketVerdict::Drop(_))
            && matches!(alone[3].verdict, PacketVerdict::Send(_))
    );
}
