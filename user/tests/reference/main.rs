//! The pipeline against a reference model, packet for packet and octet for octet, of both families.
//!
//! What becomes of a packet is written three times: by the stages, which know all rules; by the fast form of plain sessions
//! (`src/pipeline/plain.rs`); and by the program in the driver (`user/io/src/xdp/fast.rs`). The model is the one definition that each is compared
//! with, by the same sessions, rules and packets: here the first two, in `user/io/src/xdp/reference.rs` all three.

mod account;
use super::common;
mod model;
mod pair;

use common::Memory;
use pair::{Pair, SEATS};
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;

use whimbrel_user::{BurstPacket, Counters, DropReason, PacketVerdict, Shards};

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_is_decided_on_as_the_model_decides(
        steps in proptest::collection::vec(any::<(u8, u8, u16)>(), 1..60),
    ) {
        whole_life(Pair::new(), &steps);
        let plain = whole_life(Pair::new().mostly_plain(), &steps);
        let by_stages = whole_life(Pair::of_stages().mostly_plain(), &steps);
        assert_eq!(plain, by_stages);
    }

    /// Sessions in shards, of which packets arrive at any.
    #[test]
    fn shards_decide_together_as_the_model_decides(
        steps in proptest::collection::vec(any::<(u8, u8, u16)>(), 1..60),
        shards in 1..4u32,
    ) {
        whole_life(Pair::of_shards(1 << shards), &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A UPF that dies now and then: its successor decides on every packet as it would have, and counts and reports as it would have.
    #[test]
    fn a_successor_decides_as_the_model_of_the_one_that_died(
        steps in proptest::collection::vec(any::<(u8, u8, u16)>(), 1..60),
        deaths in proptest::collection::btree_set(0..60usize, 1..6),
        shards in 0..2u32,
        plain: bool,
    ) {
        let shards = 1 << (2 * shards);
        let memory = Memory::of(1 << 20);
        let mut pair = Pair::keeping_state(shards, &memory).of_both_families();
        pair = if plain { pair.mostly_plain() } else { pair };
        for (n, step) in steps.into_iter().enumerate() {
            if deaths.contains(&n) {
                pair.restart(shards, &memory);
            }
            pair.step(step);
        }
        for at in 0..SEATS {
            pair.delete(at);
        }
    }
}

/// What was counted.
fn whole_life(pair: Pair, steps: &[(u8, u8, u16)]) -> Counters {
    let mut pair = pair.of_both_families();
    for step in steps {
        pair.step(*step);
    }
    for at in 0..SEATS {
        pair.delete(at);
    }
    let counters = pair.net.upf.u.counters();
    assert_eq!(counters.held, 0);
    counters
}

/// A lookup of the stages removes predictions whose time is over; plain sessions' packets need none, and what is left does not count for them.
#[test]
fn predictions_are_looked_up_alike_by_plain_sessions_and_by_the_stages() {
    let steps =
        [(0, 108, 0), (0, 37, 0), (0, 186, 16_384), (155, 194, 0), (247, 36, 3_080), (13, 81, 28_086)];
    let plain = whole_life(Pair::new().mostly_plain(), &steps);
    assert_eq!(plain, whole_life(Pair::of_stages().mostly_plain(), &steps));
}

/// Steps that are the same each time.
fn steps(seed: u64, count: usize) -> impl Iterator<Item = (u8, u8, u16)> {
    let mut random = seed;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 40) as u16
    };
    (0..count).map(move |_| (next() as u8, next() as u8, next()))
}

/// Drops that the fast form of plain sessions decides on itself.
const OF_PLAIN: [DropReason; 9] = [
    DropReason::QfiMismatch,
    DropReason::SpoofedSource,
    DropReason::FarDrop,
    DropReason::UeToCore,
    DropReason::UeToHost,
    DropReason::UeToUe,
    DropReason::UeToDenied,
    DropReason::GateClosed,
    DropReason::RateExceeded,
];

/// The comparison above covers every decision that plain sessions take without the stages: the session is plain before and behind the packet.
#[test]
fn plain_sessions_forward_and_drop_for_each_of_their_reasons_by_themselves() {
    let decided = Rc::new(Cell::new([0; DropReason::COUNT + 1]));
    for seed in 0..40 {
        let counts = Rc::clone(&decided);
        let driver = move |u: &mut Shards, now, slots: &mut [BurstPacket]| {
            for slot in slots {
                let plain = |u: &mut Shards| u.only().map_or(0, |u| u.plain());
                let (sessions, before) = (u.counters().sessions, plain(u));
                u.burst(now, std::slice::from_mut(slot));
                if before != sessions || plain(u) != before {
                    continue;
                }
                let mut n = counts.get();
                match slot.verdict {
                    PacketVerdict::Send(_) => n[DropReason::COUNT] += 1,
                    PacketVerdict::Drop(reason) => n[reason as usize] += 1,
                    _ => {}
                }
                counts.set(n);
            }
        };
        let mut pair = Pair::with(|_| Box::new(driver)).of_both_families();
        // One session at a time, of the rules that our SMF asks for or of those with one QER.
        let (ours, rate) = ([0x2000, 0][seed as usize % 2], [0x40, 0x40, 0, 8][seed as usize % 4]);
        pair.establish(0, 0x1001 | ours | rate);
        for step in steps(seed, 60).filter(|(what, ..)| !matches!(what % 24, 0 | 6 | 8..=11)) {
            pair.step((step.0, 0, step.2));
        }
    }
    let decided = decided.get();
    assert!(decided[DropReason::COUNT] > 5_000, "forwarded: {}", decided[DropReason::COUNT]);
    let missing: Vec<_> = OF_PLAIN.into_iter().filter(|r| decided[*r as usize] == 0).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Sessions with the rules that our SMF asks for are plain, whatever rates there are and whatever comes; what the model says of them is asked above.
#[test]
fn sessions_as_our_smf_asks_for_them_are_plain() {
    for (n, plain) in
        [(0x41, 1), (0x2040, 1), (0x2000, 1), (0x2008, 1), (0x6000, 1), (0x6040, 1), (0x2006, 0)]
    {
        let mut pair = Pair::new();
        pair.establish(0, n);
        for random in 0..20 {
            pair.burst(0, random);
            pair.compare_reports();
        }
        assert_eq!(pair.net.upf.u.only().map(|u| u.plain()), Some(plain), "{n:#x}");
        pair.delete(0);
        assert_eq!(pair.net.upf.u.only().map(|u| u.plain()), Some(0), "{n:#x}");
    }
}

/// Else what is compared above would say nothing of them.
#[test]
fn every_bound_of_what_waits_is_met() {
    let bounds = [
        DropReason::BufferFull,
        DropReason::BufferOctets,
        DropReason::BuffersExhausted,
        DropReason::BuffersOctets,
        DropReason::BufferAge,
    ];
    let mut met = [0; 5];
    for round in 0..30 {
        let mut pair = Pair::new();
        for at in 0..SEATS {
            pair.establish(at, 0x2800);
        }
        for random in 0..40 {
            // Some for one UE above all, some for all alike.
            let at = if round % 2 == 0 { 0 } else { random as usize % SEATS };
            pair.burst(at, round << 8 | random);
            pair.compare_reports();
        }
        pair.step((7, 0, 60_000)); // 600 ms
        met.iter_mut().zip(bounds).for_each(|(n, reason)| *n += pair.net.dropped(reason));
        (0..SEATS).for_each(|at| pair.delete(at));
    }
    assert!(met.iter().all(|n| *n > 0), "{met:?}");
}

/// Nor of what handovers ask for, and of rates that sessions share.
#[test]
fn tunnels_end_ues_come_as_expected_and_slices_are_full() {
    let mut met = [0; 7];
    for seed in 0..60 {
        let mut pair = Pair::new().of_both_families();
        steps(seed, 60).for_each(|step| pair.step(step));
        let c = pair.net.upf.u.counters();
        let dropped = [DropReason::SliceRateExceeded, DropReason::EndMarkerIgnored].map(|r| c.dropped(r));
        let now = [c.relayed, c.end_markers_relayed, c.end_markers_sent, c.predictions_true, c.flows_second]
            .into_iter()
            .chain(dropped);
        met.iter_mut().zip(now).for_each(|(n, now)| *n += now);
    }
    assert!(met.iter().all(|n| *n > 0), "{met:?}");
}

/// Many packets of one UE go by between two looks at its rules.
#[test]
fn a_limit_far_away_is_met_at_its_packet() {
    for (n, reports) in [(0x100, 5), (0x600, 1), (0x700, 2), (0x1100, 5)] {
        let mut pair = Pair::new().of_both_families();
        pair.establish(0, n);
        let mut reported = 0;
        for random in 0..40 {
            pair.burst(0, random);
            reported += pair.reports.usage.len();
            pair.compare_reports();
        }
        assert!(reported >= reports, "{n:#x}: {reported}");
        pair.delete(0);
    }
}
