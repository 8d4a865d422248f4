//! The failure detector on a simulated network: loss, delay, stalls on either side, forgers. All in virtual time, from seeds.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use whimbrel_ids::Instant;
use whimbrel_resilience::detector::{
    Counters, Detector, Discriminator, Incarnation, Input, Outbox, PeerChange, PeerDownCause, PeerState,
    Reflector, Timing,
};

const KEY: [u8; 32] = [5; 32];
const CTA: Discriminator = Discriminator(1);
const CPF: Discriminator = Discriminator(2);
const FIRST: Incarnation = Incarnation(10);
const SECOND: Incarnation = Incarnation(11);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Instant {
    Instant(n * 1000)
}

fn timing() -> Timing {
    Timing::default()
}

/// The random numbers of SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ z >> 27) % n.max(1)
    }
}

/// One way of the network.
struct Net {
    rng: Rng,
    loss_per_mille: u64,
    delay: Duration,
    jitter: Duration,
    sent: u64,
    under_way: BTreeMap<(Instant, u64), Vec<u8>>,
}

impl Net {
    fn new(seed: u64, loss_per_mille: u64, delay: Duration, jitter: Duration) -> Self {
        Self { rng: Rng(seed), loss_per_mille, delay, jitter, sent: 0, under_way: BTreeMap::new() }
    }

    fn send(&mut self, now: Instant, octets: &[u8]) {
        self.sent += 1;
        if self.rng.below(1000) >= self.loss_per_mille {
            let jitter = Duration::from_micros(self.rng.below(self.jitter.as_micros() as u64 + 1));
            self.under_way.insert((now + self.delay + jitter, self.sent), octets.to_vec());
        }
    }

    fn arrived(&mut self, now: Instant) -> Option<Vec<u8>> {
        let entry = self.under_way.first_entry().filter(|e| e.key().0 <= now)?;
        Some(entry.remove())
    }
}

/// A detector and the process that it watches.
struct World {
    now: Instant,
    detector: Detector,
    process: Option<Reflector>,
    /// Until when each side does not run: SIGSTOP, or a starved thread. What comes meanwhile waits in its socket.
    detector_stalls: Instant,
    process_stalls: Instant,
    there: Net,
    back: Net,
    changes: Vec<(Instant, PeerChange)>,
    /// The process that has replaced this one, as a probe reported.
    replaced_by: Option<Discriminator>,
}

impl World {
    fn new(seed: u64, loss_per_mille: u64, delay: Duration, jitter: Duration) -> Self {
        let mut detector = Detector::new(CTA, Incarnation(1), &KEY, timing());
        detector.watch(at(0), CPF);
        Self {
            now: at(0),
            detector,
            process: Some(Reflector::new(CPF, FIRST, &KEY)),
            detector_stalls: at(0),
            process_stalls: at(0),
            there: Net::new(seed, loss_per_mille, delay, jitter),
            back: Net::new(!seed, loss_per_mille, delay, jitter),
            changes: Vec::new(),
            replaced_by: None,
        }
    }

    fn quiet() -> Self {
        Self::new(0, 0, Duration::from_micros(100), Duration::ZERO)
    }

    /// Lets a time pass, in steps of 100 us.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + Duration::from_micros(100);
            if self.process_stalls <= self.now {
                while let Some(octets) = self.there.arrived(self.now) {
                    let Some(reflected) = self.process.as_mut().and_then(|p| p.handle(&octets)) else {
                        continue;
                    };
                    self.replaced_by = self.replaced_by.or(reflected.replaced_by);
                    self.back.send(self.now, &reflected.answer);
                }
            }
            if self.detector_stalls <= self.now {
                while let Some(octets) = self.back.arrived(self.now) {
                    self.input(Input::Datagram(&octets));
                }
                if self.detector.next_deadline().is_some_and(|due| due <= self.now) {
                    self.input(Input::Tick);
                }
            }
        }
    }

    fn input(&mut self, input: Input<'_>) {
        let mut out = Outbox::default();
        self.detector.handle(self.now, input, &mut out);
        self.changes.extend(out.changes.iter().map(|(_, change)| (self.now, *change)));
        for (_, probe) in out.probes {
            self.there.send(self.now, &probe);
        }
    }

    fn changes(&self) -> Vec<PeerChange> {
        self.changes.iter().map(|(_, change)| *change).collect()
    }

    fn state(&self) -> PeerState {
        self.detector.peer(CPF).unwrap().state
    }

    fn counters(&self) -> Counters {
        self.detector.counters()
    }
}

const DEAD: PeerChange = PeerChange::Down(FIRST, PeerDownCause::Silent);

#[test]
fn a_death_at_any_moment_is_suspected_and_then_found_within_the_bound() {
    for moment in 0..400 {
        let mut world = World::quiet();
        world.run(ms(200) + Duration::from_micros(100) * moment);
        let died = world.now;
        world.process = None;
        world.run(timing().detection_max() + ms(1));
        assert_eq!(world.changes(), [PeerChange::Up(FIRST), PeerChange::Suspect, DEAD]);
        let took = world.changes[2].0.since(died);
        assert!((ms(60)..=timing().detection_max()).contains(&took), "{took:?}");
        world.run(ms(1000));
        assert_eq!(world.changes.len(), 3, "reported once");
    }
}

#[test]
fn a_closed_connection_is_a_verdict_at_once() {
    let mut world = World::quiet();
    world.input(Input::Closed(CPF));
    assert_eq!(world.changes(), [], "a process that never answered is not declared failed");
    world.run(ms(100));
    world.process = None;
    world.input(Input::Closed(CPF));
    world.input(Input::Closed(CPF));
    world.run(ms(1000));
    assert_eq!(world.changes(), [PeerChange::Up(FIRST), PeerChange::Down(FIRST, PeerDownCause::Closed)]);
}

#[test]
fn a_process_that_never_answered_is_never_declared_failed() {
    let mut world = World::quiet();
    world.process = None;
    world.run(ms(5000));
    assert_eq!((world.changes(), world.state()), (vec![], PeerState::New));
}

#[test]
fn a_pause_shorter_than_the_patience_is_no_verdict() {
    let mut world = World::quiet();
    world.run(ms(105));
    for pause in 1..=57 {
        world.process_stalls = world.now + ms(pause);
        world.run(ms(pause + 100));
    }
    assert_eq!((world.counters().downs, world.state()), (0, PeerState::Up));
    assert!(world.counters().suspected > 0);
    assert_eq!(
        world.counters().suspected,
        world.changes().iter().filter(|c| **c == PeerChange::Trusted).count() as u64
    );
}

#[test] // SIGSTOP and SIGCONT: slow, not dead
fn a_process_stopped_for_longer_is_replaced_and_rejoins_under_a_later_incarnation_only() {
    let mut world = World::quiet();
    world.run(ms(100));
    world.process_stalls = world.now + ms(500);
    world.run(ms(1000));
    assert_eq!(
        world.changes(),
        [PeerChange::Up(FIRST), PeerChange::Suspect, DEAD, PeerChange::FalseAlarm(FIRST)]
    );
    assert_eq!((world.replaced_by, world.state()), (Some(CTA), PeerState::Down));
    assert_eq!((world.counters().downs, world.counters().false_alarms), (1, 1));

    let process = world.process.as_mut().unwrap();
    assert!(!process.rejoin(FIRST), "its former life");
    assert!(process.rejoin(SECOND));
    world.replaced_by = None;
    world.run(ms(100));
    assert_eq!(world.changes()[4..], [PeerChange::Up(SECOND)]);
    assert_eq!(world.replaced_by, None);
}

#[test]
fn a_detector_that_was_stopped_reports_no_live_process_as_failed() {
    for stall in [20, 61, 100, 10_000] {
        for moment in 0..200 {
            let mut world = World::quiet();
            world.run(ms(100) + Duration::from_micros(100) * moment);
            world.detector_stalls = world.now + ms(stall);
            world.run(ms(stall + 500));
            assert_eq!(
                world.changes(),
                [PeerChange::Up(FIRST)],
                "stopped for {stall} ms after step {moment}"
            );
            assert!(stall < 41 || world.counters().late > 0);
        }
    }
}

#[test]
fn a_starved_detector_still_finds_a_death_later() {
    let mut world = World::quiet();
    world.run(ms(100));
    world.process = None;
    for _ in 0..4 {
        world.detector_stalls = world.now + ms(200); // it runs for a step in 200 ms
        world.run(ms(200) + Duration::from_micros(100));
    }
    assert_eq!(world.changes(), [PeerChange::Up(FIRST), PeerChange::Suspect, DEAD]);
}

#[test]
fn answers_slower_than_the_interval_are_answers() {
    let mut world = World::new(3, 0, ms(25), ms(3));
    world.run(ms(10_000));
    assert_eq!(world.changes(), [PeerChange::Up(FIRST)]);
    assert_eq!(world.counters().stale, 0);
}

#[test]
fn false_alarms_by_loss_are_as_rare_as_chance_and_reach_the_replaced_process() {
    let mut alarms = BTreeMap::new();
    for loss_per_mille in [0, 10, 100, 300] {
        for seed in 0..20 {
            let mut world = World::new(seed, loss_per_mille, ms(1), ms(2));
            for _ in 0..10 {
                world.replaced_by = None;
                world.run(ms(1000));
                assert_eq!(
                    world.replaced_by.is_some(),
                    world.state() == PeerState::Down,
                    "loss {loss_per_mille}, seed {seed}"
                );
                if world.replaced_by.is_some() {
                    let later = Incarnation(world.detector.peer(CPF).unwrap().incarnation.0 + 1);
                    assert!(world.process.as_mut().unwrap().rejoin(later));
                }
            }
            assert_eq!(world.counters().downs, world.counters().false_alarms);
            *alarms.entry(loss_per_mille).or_insert(0) += world.counters().false_alarms;
        }
    }
    // Three round trips in a row are lost: (1 - 0.99^2)^3 is one in 130,000 probes; here are 10,000.
    assert_eq!((alarms[&0], alarms[&10]), (0, 0));
    assert!(alarms[&100] > 0 && alarms[&100] < alarms[&300], "{alarms:?}");
}

#[test]
fn a_process_that_restarted_is_found_by_its_first_answer_and_the_former_ones_late_words_are_ignored() {
    let mut world = World::quiet();
    world.run(ms(100));
    let mut out = Outbox::default();
    world.detector.handle(world.now + ms(20), Input::Tick, &mut out);
    let former =
        world.process.replace(Reflector::new(CPF, SECOND, &KEY)).unwrap().handle(&out.probes[0].1).unwrap();
    world.run(ms(100));
    world.input(Input::Datagram(&former.answer));
    world.run(ms(100));
    assert_eq!(
        world.changes(),
        [PeerChange::Up(FIRST), PeerChange::Down(FIRST, PeerDownCause::Restarted), PeerChange::Up(SECOND)]
    );
    assert_eq!((world.counters().stale, world.counters().false_alarms, world.replaced_by), (1, 0, None));
}

#[test]
fn a_detector_that_restarted_takes_no_answer_to_its_former_life() {
    let mut process = Reflector::new(CPF, FIRST, &KEY);
    let answered = |incarnation, process: &mut Reflector| {
        let mut detector = Detector::new(CTA, Incarnation(incarnation), &KEY, timing());
        detector.watch(at(0), CPF);
        let mut out = Outbox::default();
        detector.handle(at(0), Input::Tick, &mut out);
        (detector, process.handle(&out.probes[0].1).unwrap().answer)
    };
    let (_, former) = answered(1, &mut process);
    let (mut detector, answer) = answered(2, &mut process);
    let mut out = Outbox::default();
    detector.handle(at(1), Input::Datagram(&former), &mut out);
    assert_eq!((out.changes.len(), detector.counters().stale), (0, 1));
    detector.handle(at(1), Input::Datagram(&answer), &mut out);
    assert_eq!(out.changes, [(CPF, PeerChange::Up(FIRST))]);
    detector.handle(at(1), Input::Datagram(&answer), &mut out);
    assert_eq!((out.changes.len(), detector.counters().stale), (1, 2), "the same again");
    assert_eq!(detector.peer(CPF).unwrap().round_trip, Some(ms(1)));
}

#[test]
fn what_is_recorded_forged_or_for_others_keeps_no_dead_process_alive() {
    let mut world = World::quiet();
    world.run(ms(100));
    let mut recorded = Vec::new();
    for _ in 0..3 {
        let mut out = Outbox::default();
        world.detector.handle(world.now + ms(20), Input::Tick, &mut out);
        recorded.push(out.probes[0].1);
        recorded.push(world.process.as_mut().unwrap().handle(&out.probes[0].1).unwrap().answer);
        world.now = world.now + ms(20);
        world.input(Input::Datagram(recorded.last().unwrap()));
    }
    world.process = None;
    let before = world.counters();
    let mut forger = Reflector::new(CPF, FIRST, &[6; 32]);
    let mut unwatched = Reflector::new(Discriminator(3), FIRST, &KEY);
    for _ in 0..100 {
        for octets in &recorded {
            world.input(Input::Datagram(octets));
            assert_eq!(forger.handle(octets), None);
            assert_eq!(unwatched.handle(octets), None);
            let mut bent = *octets;
            bent[1] ^= 3; // a probe as an answer
            world.input(Input::Datagram(&bent));
        }
        world.run(ms(1));
    }
    assert!(world.changes().ends_with(&[PeerChange::Suspect, DEAD]));
    let counters = world.counters();
    assert_eq!(counters.answers, before.answers);
    assert_eq!((counters.stale - before.stale, counters.foreign - before.foreign), (300, 300));
    assert_eq!(counters.forged - before.forged, 600);
    assert_eq!((forger.counters().forged, unwatched.counters().foreign), (600, 600));
}

#[test]
fn of_several_none_is_judged_while_none_of_the_others_answers() {
    let other = Discriminator(3);
    let mut detector = Detector::new(CTA, Incarnation(1), &KEY, timing());
    let mut processes = [CPF, other].map(|name| Reflector::new(name, FIRST, &KEY));
    [CPF, other].iter().for_each(|name| detector.watch_among(at(0), *name));
    let (mut now, mut out) = (at(0), Outbox::default());
    // For a time those run that are named; the verdicts.
    let mut run = |time, runs: &[Discriminator]| {
        let end = now + time;
        while now < end {
            now = now + ms(1);
            detector.handle(now, Input::Tick, &mut out);
            for (to, probe) in std::mem::take(&mut out.probes) {
                let at = usize::from(to == other);
                if let Some(reflected) = runs.contains(&to).then(|| processes[at].handle(&probe)).flatten() {
                    detector.handle(now, Input::Datagram(&reflected.answer), &mut out);
                }
            }
        }
        let verdicts = std::mem::take(&mut out.changes);
        let verdicts = verdicts.into_iter().filter(|(_, change)| *change == DEAD).map(|(of, _)| of);
        (verdicts.collect::<Vec<_>>(), detector.counters().put_off > 0)
    };
    assert_eq!(run(ms(200), &[CPF, other]), (vec![], false));
    assert_eq!(run(ms(500), &[]), (vec![], true), "all at once: that is this process or its host");
    assert_eq!(run(ms(200), &[CPF, other]), (vec![], true));
    assert_eq!(run(ms(500), &[]), (vec![], true));
    assert_eq!(run(timing().detection_max(), &[other]), (vec![CPF], true));
    assert_eq!(run(ms(500), &[]), (vec![], true), "the last one");
}

#[test]
fn of_processes_on_one_host_none_is_judged_while_two_are_silent() {
    let names = [CPF, Discriminator(3), Discriminator(4), Discriminator(5)];
    for (one_host, verdicts_of_two) in [(false, 2), (true, 0)] {
        let mut detector = Detector::new(CTA, Incarnation(1), &KEY, timing());
        detector.set_one_host(one_host);
        let mut processes = names.map(|name| Reflector::new(name, FIRST, &KEY));
        names.iter().for_each(|name| detector.watch_among(at(0), *name));
        let (mut now, mut out) = (at(0), Outbox::default());
        let mut run = |time, runs: &[Discriminator]| {
            let end = now + time;
            while now < end {
                now = now + ms(1);
                detector.handle(now, Input::Tick, &mut out);
                for (to, probe) in std::mem::take(&mut out.probes) {
                    let of = names.iter().position(|name| *name == to).filter(|_| runs.contains(&to));
                    if let Some(reflected) = of.and_then(|of| processes[of].handle(&probe)) {
                        detector.handle(now, Input::Datagram(&reflected.answer), &mut out);
                    }
                }
            }
            std::mem::take(&mut out.changes).into_iter().filter(|(_, change)| *change == DEAD).count()
        };
        assert_eq!(run(ms(200), &names), 0);
        assert_eq!(run(ms(500), &names[2..]), verdicts_of_two, "on one host: {one_host}");
        if one_host {
            assert_eq!(run(ms(200), &names), 0);
            assert_eq!(run(timing().detection_max(), &names[1..]), 1, "one alone is found as before");
        }
    }
}

#[test]
fn verdicts_are_per_process_and_a_process_that_left_gets_none() {
    let mut world = World::quiet();
    let third = Discriminator(3);
    world.detector.watch(world.now, third);
    world.run(ms(500));
    assert_eq!((world.state(), world.detector.peer(third).unwrap().state), (PeerState::Up, PeerState::New));
    world.detector.forget(CPF);
    world.detector.forget(third);
    world.run(ms(500));
    assert_eq!((world.changes(), world.detector.next_deadline()), (vec![PeerChange::Up(FIRST)], None));
}

#[test]
fn timings_that_would_cause_false_alarms_are_refused() {
    let bounds =
        [(ms(19), 3), (ms(20), 1), (ms(1001), 3), (ms(20), 17)].map(|(i, m)| Timing::new(i, m).is_ok());
    assert_eq!(bounds, [false; 4]);
    assert!(Timing::new(ms(20), 2).is_ok() && Timing::new(ms(50), 3).is_ok());
    assert!(Timing::new(ms(1), 3).unwrap_err().to_string().contains("20 ms to 1 s"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_happens_verdicts_are_final_and_the_same_schedule_gives_the_same_words(
        seed: u64, loss in 0..500u64, delay in 0..40u64,
        happens in prop::collection::vec((0..4u8, 1..150u64), 0..20),
    ) {
        let play = || {
            let mut world = World::new(seed, loss, ms(delay), ms(5));
            let mut next = FIRST.0;
            for (what, time) in &happens {
                match what {
                    0 => world.process_stalls = world.now + ms(*time),
                    1 => world.detector_stalls = world.now + ms(*time),
                    2 => {
                        next += 1;
                        world.process = Some(Reflector::new(CPF, Incarnation(next), &KEY));
                    }
                    _ => world.process = None,
                }
                world.run(ms(*time));
            }
            world.run(ms(300));
            world
        };
        let world = play();
        let mut last = Incarnation(0);
        for change in world.changes() {
            match change {
                PeerChange::Up(incarnation) => {
                    prop_assert!(incarnation > last, "{:?}", world.changes());
                    last = incarnation;
                }
                PeerChange::Down(incarnation, _) | PeerChange::FalseAlarm(incarnation) => prop_assert_eq!(incarnation, last),
                PeerChange::Suspect | PeerChange::Trusted => {}
            }
        }
        prop_assert!(world.counters().false_alarms <= world.counters().downs);
        prop_assert_eq!(play().changes, world.changes);
    }

    #[test]
    fn no_octets_from_outside_change_anything(octets in prop::collection::vec(any::<u8>(), 0..100)) {
        let mut world = World::quiet();
        world.run(ms(30));
        let before = world.changes().len();
        world.input(Input::Datagram(&octets));
        prop_assert_eq!(world.process.as_mut().unwrap().handle(&octets), None);
        prop_assert_eq!((world.changes().len(), world.counters().malformed + world.counters().forged), (before, 1));
    }
}
