//! Seamless BFD: the two machines octet for octet, and in a simulated network that loses, delays and reorders, with clocks that step.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use proptest::prelude::*;
use whimbrel_ids::Instant;
use whimbrel_resilience::sbfd::{
    SBFD_OCTETS, SbfdChange, SbfdDiscriminator, SbfdDrop, SbfdInitiator, SbfdOutbox, SbfdReflector,
    SbfdTarget, SbfdTiming,
};

const MS: u64 = 1_000;
const START: u64 = 1_000_000_000;

fn named(number: u32) -> SbfdDiscriminator {
    SbfdDiscriminator::new(number).unwrap()
}

fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n], 7784))
}

fn own() -> IpAddr {
    IpAddr::from([192, 0, 2, 200])
}

fn timing() -> SbfdTiming {
    SbfdTiming::new(Duration::from_millis(5), 3).unwrap()
}

fn target(n: u8, among: bool) -> SbfdTarget {
    SbfdTarget { address: address(n), discriminator: named(n.into()), among }
}

/// An initiator and its peers, with a network between them.
struct Net {
    now: u64,
    initiator: SbfdInitiator,
    reflectors: BTreeMap<u8, SbfdReflector>,
    /// Peers that answer nothing: dead, stopped, or cut off.
    silent: Vec<u8>,
    /// Datagrams under way, by their arrival and their order of sending: to a peer, or from it.
    under_way: BTreeMap<(u64, u64), (u8, bool, [u8; SBFD_OCTETS])>,
    sent: u64,
    /// Percent that is lost, and most microseconds of delay, of which each datagram has its own.
    loss: u32,
    delay: u64,
    draw: u64,
    changes: Vec<(u64, SbfdDiscriminator, SbfdChange)>,
}

impl Net {
    fn new(peers: &[u8], among: bool) -> Self {
        let mut initiator = SbfdInitiator::new(timing(), true);
        let mut reflectors = BTreeMap::new();
        for n in peers {
            initiator.watch(Instant(START), named(1000 + u32::from(*n)), target(*n, among));
            reflectors.insert(*n, SbfdReflector::new(named((*n).into()), true));
        }
        Self {
            now: START,
            initiator,
            reflectors,
            silent: Vec::new(),
            under_way: BTreeMap::new(),
            sent: 0,
            loss: 0,
            delay: 200,
            draw: 88_172_645_463_325_252,
            changes: Vec::new(),
        }
    }

    fn random(&mut self) -> u64 {
        self.draw ^= self.draw << 13;
        self.draw ^= self.draw >> 7;
        self.draw ^= self.draw << 17;
        self.draw
    }

    fn send(&mut self, peer: u8, to_peer: bool, octets: [u8; SBFD_OCTETS]) {
        if self.random() % 100 < self.loss.into() {
            return;
        }
        let delay = 1 + self.random() % self.delay.max(1);
        self.sent += 1;
        self.under_way.insert((self.now + delay, self.sent), (peer, to_peer, octets));
    }

    fn collect(&mut self, out: SbfdOutbox) {
        for (to, octets) in out.probes {
            let SocketAddr::V4(to) = to else { unreachable!() };
            self.send(to.ip().octets()[3], true, octets);
        }
        self.changes.extend(out.changes.into_iter().map(|(mine, change)| (self.now, mine, change)));
    }

    /// Lets the network run for a time.
    fn run(&mut self, us: u64) {
        let end = self.now + us;
        loop {
            let arrival = self.under_way.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
            let due = self.initiator.next_deadline().map_or(u64::MAX, |at| at.0.max(self.now));
            let next = arrival.min(due);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            let (now, mut out) = (Instant(self.now), SbfdOutbox::default());
            if arrival <= due {
                let Some((_, (peer, to_peer, octets))) = self.under_way.pop_first() else { return };
                if self.silent.contains(&peer) {
                } else if to_peer {
                    let answer =
                        self.reflectors.get_mut(&peer).and_then(|r| r.handle(now, own(), Some(255), &octets));
                    if let Some(answer) = answer {
                        self.send(peer, false, answer);
                    }
                } else {
                    self.initiator.receive(now, address(peer), Some(255), &octets, &mut out);
                }
            } else {
                self.initiator.tick(now, &mut out);
            }
            self.collect(out);
        }
    }

    fn failures(&self) -> Vec<(u64, u32)> {
        let failed = self.changes.iter().filter(|(_, _, change)| *change == SbfdChange::Failed);
        failed.map(|(at, mine, _)| (at - START, mine.number())).collect()
    }
}

#[test] // RFC 7880 §7.3: up with the first answer, down when the multiplier's probes are not answered, up again
fn a_peer_is_up_with_its_first_answer_and_failed_when_probes_are_not_answered() {
    let mut net = Net::new(&[1], false);
    net.run(100 * MS);
    assert_eq!(net.initiator.sessions(), (1, 1));
    assert_eq!(net.changes.len(), 1, "{:?}", net.changes);
    net.silent.push(1);
    net.run(21 * MS);
    let failures = net.failures();
    let [(at, 1001)] = failures[..] else { panic!("{failures:?}") };
    // Three probes, each with at least three quarters of its interval; and at most one interval before the first of them.
    assert!(
        (100 * MS + 11 * MS..=100 * MS + timing().detection_max().as_micros() as u64).contains(&at),
        "{at}"
    );
    net.run(5_000 * MS);
    assert_eq!(net.failures().len(), 1, "one failure is reported once");
    net.silent.clear();
    net.run(1_100 * MS);
    assert_eq!(net.changes.last().unwrap().2, SbfdChange::Up);
}

#[test] // RFC 5880 §6.8.3: one probe a second while the peer is not up
fn a_peer_that_never_answers_gets_one_probe_a_second_and_is_never_reported() {
    let mut net = Net::new(&[1], false);
    net.silent.push(1);
    net.run(10_000 * MS);
    assert!((10..=14).contains(&net.initiator.counters().sent), "{}", net.initiator.counters().sent);
    assert_eq!(net.changes, []);
}

#[test] // RFC 5880 §6.8.7: 75 to 100 % of the interval
fn intervals_differ_by_a_quarter_at_most() {
    let mut initiator = SbfdInitiator::new(timing(), false);
    let mut reflector = SbfdReflector::new(named(1), false);
    initiator.watch(Instant(START), named(1001), target(1, false));
    let mut gaps = Vec::new();
    let mut last = None;
    for _ in 0..2_000 {
        let now = initiator.next_deadline().unwrap();
        let mut out = SbfdOutbox::default();
        initiator.tick(now, &mut out);
        let (to, probe) = out.probes[0];
        let answer = reflector.handle(now, own(), None, &probe).unwrap();
        initiator.receive(now, to, None, &answer, &mut out);
        gaps.extend(last.replace(now).map(|last| now.since(last).as_micros() as u64));
    }
    let gaps = &gaps[1..]; // the first answer comes within the second of a peer that is not up
    let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
    assert!((3_750..=4_000).contains(least) && (4_750..=5_000).contains(most), "{least} to {most}");
}

#[test]
fn loss_delay_and_reordering_within_the_detection_time_are_no_failure() {
    let mut net = Net::new(&[1, 2], false);
    (net.loss, net.delay) = (2, 3 * MS);
    net.run(2_000 * MS);
    assert_eq!(net.initiator.sessions(), (2, 2));
    assert_eq!(net.failures(), [], "three in a row are lost once in 125,000 probes");
    net.loss = 100;
    net.run(25 * MS);
    assert_eq!(net.failures().len(), 2);
}

#[test] // probes of other hosts that can take over still come back: the failure is the peer's
fn of_peers_that_replace_each_other_one_fails_only_while_another_answers() {
    let mut net = Net::new(&[1, 2], true);
    net.run(100 * MS);
    net.silent.extend([1, 2]);
    net.run(500 * MS);
    assert_eq!(net.failures(), [], "none answers: it may be this host");
    assert!(net.initiator.counters().deferred > 100);
    net.silent = vec![2];
    net.run(30 * MS);
    let failed: Vec<u32> = net.failures().iter().map(|(_, mine)| *mine).collect();
    assert_eq!(failed, [1002]);
}

#[test] // SIGSTOP and SIGCONT, or a virtual machine that was paused
fn an_initiator_that_was_held_up_or_whose_clock_steps_reports_no_failure() {
    let mut net = Net::new(&[1, 2], false);
    net.run(50 * MS);
    for held_up in [20 * MS, 500 * MS, 3_600_000 * MS] {
        net.now += held_up;
        net.run(200 * MS);
    }
    assert_eq!(net.failures(), []);
    assert!(net.initiator.counters().late >= 3);
    // The clock steps back: datagrams under way are those of the time before.
    net.now -= 60_000 * MS;
    let under_way = std::mem::take(&mut net.under_way);
    net.under_way = under_way.into_iter().map(|((at, n), d)| ((at - 60_000 * MS, n), d)).collect();
    let mut out = SbfdOutbox::default();
    net.initiator.tick(Instant(net.now), &mut out);
    net.collect(out);
    net.run(200 * MS);
    assert_eq!(net.failures(), []);
    net.silent.push(1);
    net.run(25 * MS);
    assert_eq!(net.failures().len(), 1, "it still finds a failure in time");
}

#[test] // RFC 7880 §7.2.2, RFC 5880 §6.8.16: AdminDown is no failure
fn a_reflector_out_of_service_has_not_failed() {
    let mut net = Net::new(&[1], false);
    net.run(100 * MS);
    net.reflectors.get_mut(&1).unwrap().set_in_service(false);
    net.run(3_000 * MS);
    let changes: Vec<SbfdChange> = net.changes.iter().map(|(_, _, change)| *change).collect();
    assert_eq!(changes, [SbfdChange::Up, SbfdChange::OutOfService]);
    net.reflectors.get_mut(&1).unwrap().set_in_service(true);
    net.run(1_100 * MS);
    assert_eq!(net.changes.last().unwrap().2, SbfdChange::Up);
    assert_eq!(net.failures(), []);
}

/// A probe of an initiator for peer 1, and the answer to it.
fn probe_and_answer() -> ([u8; SBFD_OCTETS], [u8; SBFD_OCTETS]) {
    let mut initiator = SbfdInitiator::new(timing(), true);
    initiator.watch(Instant(START), named(1001), target(1, false));
    let mut out = SbfdOutbox::default();
    initiator.tick(Instant(START), &mut out);
    let probe = out.probes[0].1;
    let answer = SbfdReflector::new(named(1), true).handle(Instant(START), own(), Some(255), &probe).unwrap();
    (probe, answer)
}

#[test] // RFC 7880 §7.2.2, §7.3.2
fn the_octets_of_probe_and_answer() {
    let (probe, answer) = probe_and_answer();
    let of = |n: u32| n.to_be_bytes();
    assert_eq!(probe[..4], [0x20, 0x42, 3, 24], "Down, Demand");
    assert_eq!([&probe[4..8], &probe[8..12]], [of(1001), of(1)]);
    assert_eq!([&probe[12..16], &probe[16..20], &probe[20..]], [of(1_000_000), of(0), of(0)]);
    assert_eq!(answer[..4], [0x20, 0xc0, 3, 24], "Up");
    assert_eq!([&answer[4..8], &answer[8..12]], [of(1), of(1001)]);
    assert_eq!([&answer[12..16], &answer[16..20], &answer[20..]], [of(1_000_000), of(1_000), of(0)]);
}

#[test]
fn a_reflector_answers_no_packet_that_is_not_a_probe_for_it() {
    let (probe, answer) = probe_and_answer();
    let mut reflector = SbfdReflector::new(named(1), true);
    let mut drops = |why: SbfdDrop, ttl, octets: &[u8]| {
        let before = reflector.counters().dropped(why);
        assert_eq!(reflector.handle(Instant(START), own(), ttl, octets), None, "{why:?}");
        assert_eq!(reflector.counters().dropped(why), before + 1, "{why:?}");
    };
    drops(SbfdDrop::Ttl, Some(254), &probe);
    drops(SbfdDrop::Direction, Some(255), &answer);
    let with = |at: usize, octet: u8| {
        let mut octets = probe;
        octets[at] = octet;
        octets
    };
    drops(SbfdDrop::Discriminator, Some(255), &with(11, 2));
    drops(SbfdDrop::Discriminator, Some(255), &with(11, 0));
    for (at, octet) in [(0, 0x40), (1, 0x46), (1, 0x43), (2, 0), (3, 23), (3, 25)] {
        let before = reflector_drops(&reflector);
        assert_eq!(reflector.handle(Instant(START), own(), Some(255), &with(at, octet)), None);
        assert_eq!(reflector_drops(&reflector), before + 1);
    }
    assert_eq!(reflector.counters().sent, 0);
}

fn reflector_drops(reflector: &SbfdReflector) -> u64 {
    SbfdDrop::all().map(|why| reflector.counters().dropped(why)).sum()
}

#[test]
fn an_initiator_believes_no_answer_that_is_not_its_peers() {
    let (probe, answer) = probe_and_answer();
    let mut initiator = SbfdInitiator::new(timing(), true);
    initiator.watch(Instant(START), named(1001), target(1, false));
    let mut out = SbfdOutbox::default();
    initiator.tick(Instant(START), &mut out);
    let mut drops = |why: SbfdDrop, from, ttl, octets: &[u8]| {
        let before = initiator.counters().dropped(why);
        initiator.receive(Instant(START), from, ttl, octets, &mut out);
        assert_eq!(initiator.counters().dropped(why), before + 1, "{why:?}");
    };
    let with = |at: usize, octet: u8| {
        let mut octets = answer;
        octets[at] = octet;
        octets
    };
    drops(SbfdDrop::Ttl, address(1), Some(64), &answer);
    drops(SbfdDrop::Direction, address(1), Some(255), &probe);
    drops(SbfdDrop::Discriminator, address(1), Some(255), &with(11, 1));
    drops(SbfdDrop::Discriminator, address(1), Some(255), &with(7, 9));
    drops(SbfdDrop::Source, address(2), Some(255), &answer);
    drops(SbfdDrop::Source, SocketAddr::new(address(1).ip(), 7785), Some(255), &answer);
    drops(SbfdDrop::State, address(1), Some(255), &with(1, 0x40));
    assert_eq!(initiator.sessions(), (0, 1));
    initiator.receive(Instant(START), address(1), Some(255), &answer, &mut out);
    assert_eq!(initiator.sessions(), (1, 1));
    initiator.forget(named(1001));
    initiator.receive(Instant(START), address(1), Some(255), &answer, &mut out);
    assert_eq!(initiator.counters().accepted, 1, "a session that has ended");
}

#[test] // a hostile or faulty reflector asks for one probe in 71 minutes
fn a_peer_slows_its_own_probes_down_to_one_a_second_at_most() {
    let (_, mut answer) = probe_and_answer();
    answer[16..20].fill(0xff);
    let mut initiator = SbfdInitiator::new(timing(), true);
    initiator.watch(Instant(START), named(1001), target(1, false));
    let mut out = SbfdOutbox::default();
    initiator.tick(Instant(START), &mut out);
    initiator.receive(Instant(START), address(1), Some(255), &answer, &mut out);
    initiator.tick(Instant(START), &mut out);
    let wait = initiator.next_deadline().unwrap().since(Instant(START));
    assert!((Duration::from_millis(750)..=Duration::from_secs(1)).contains(&wait), "{wait:?}");
}

#[test]
fn a_flood_of_one_source_is_answered_up_to_its_rate_and_hides_no_other() {
    let (probe, _) = probe_and_answer();
    let mut reflector = SbfdReflector::new(named(1), true);
    let mut answered = 0;
    for n in 0..100_000 {
        let flood =
            reflector.handle(Instant(START + n * 10), IpAddr::from([198, 51, 100, 1]), Some(255), &probe);
        answered += u32::from(flood.is_some());
        if n % 100 == 0 {
            assert!(reflector.handle(Instant(START + n * 10), own(), Some(255), &probe).is_some());
        }
    }
    assert!((4_300..=4_500).contains(&answered), "{answered} in a second");
    assert_eq!(reflector.counters().dropped(SbfdDrop::Rate), 100_000 - u64::from(answered));
}

#[test] // spoofed sources: the table has a bound, and initiators that are in it keep their rate
fn a_flood_of_many_sources_shares_one_rate() {
    let (probe, _) = probe_and_answer();
    let mut reflector = SbfdReflector::new(named(1), true);
    assert!(reflector.handle(Instant(START), own(), Some(255), &probe).is_some());
    let mut answered = 0;
    for n in 0..200_000u32 {
        let now = Instant(START + u64::from(n) * 10);
        let source = IpAddr::from(0x0a00_0000u32.wrapping_add(n).to_be_bytes());
        answered += u32::from(reflector.handle(now, source, Some(255), &probe).is_some());
        if n % 500 == 0 {
            assert!(reflector.handle(now, own(), Some(255), &probe).is_some());
        }
    }
    assert!(answered < 9_000, "{answered} in two seconds");
    let later = Instant(START + 60_000_000);
    assert!(reflector.handle(later, IpAddr::from([203, 0, 113, 9]), Some(255), &probe).is_some());
}

proptest! {
    #[test]
    fn neither_machine_answers_or_changes_by_random_octets(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..40), ttl: Option<u8>, n: u8,
    ) {
        let mut reflector = SbfdReflector::new(named(0xfeed_beef), false);
        let mut initiator = SbfdInitiator::new(timing(), false);
        initiator.watch(Instant(START), named(0xdead_cafe), target(1, false));
        let mut out = SbfdOutbox::default();
        for packet in packets {
            prop_assert_eq!(reflector.handle(Instant(START), address(n).ip(), ttl, &packet), None);
            initiator.receive(Instant(START), address(n), ttl, &packet, &mut out);
        }
        prop_assert_eq!(out, SbfdOutbox::default());
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))] // each runs eight seconds of probes

    /// Whatever the network does, a peer that is silent is found, and the same inputs give the same outputs.
    #[test]
    fn a_peer_that_is_silent_is_found_in_a_bad_network_too(loss in 0..20u32, delay in 1..8_000u64, draw in 1..u64::MAX) {
        let run = || {
            let mut net = Net::new(&[1, 2], false);
            (net.loss, net.delay, net.draw) = (loss, delay, draw);
            net.run(3_000 * MS);
            net.silent.push(1);
            net.run(1_200 * MS);
            net.changes
        };
        let changes = run();
        let last = changes.iter().rev().find(|(_, mine, _)| *mine == named(1001));
        prop_assert!(last.is_none_or(|(_, _, change)| *change == SbfdChange::Failed), "{changes:?}");
        prop_assert_eq!(run(), changes);
    }
}
