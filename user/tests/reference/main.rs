//! The pipeline against a reference model, packet for packet and octet for octet, of both families.

mod account;
#[path = "../common/mod.rs"]
mod common;
mod model;
mod pair;

use pair::{Pair, SEATS};
use proptest::prelude::*;
use whimbrel_user::DropReason;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_is_decided_on_as_the_model_decides(
        steps in proptest::collection::vec(any::<(u8, u8, u16)>(), 1..60),
    ) {
        whole_life(1, &steps);
    }

    /// Sessions in shards, of which packets arrive at any.
    #[test]
    fn shards_decide_together_as_the_model_decides(
        steps in proptest::collection::vec(any::<(u8, u8, u16)>(), 1..60),
        shards in 1..4u32,
    ) {
        whole_life(1 << shards, &steps);
    }
}

fn whole_life(shards: u8, steps: &[(u8, u8, u16)]) {
    let mut pair = Pair::of_shards(shards).of_both_families();
    for step in steps {
        pair.step(*step);
    }
    for at in 0..SEATS {
        pair.delete(at);
    }
    assert_eq!(pair.net.upf.u.counters().held, 0);
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
            pair.compare_told();
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
            pair.compare_told();
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
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 40) as u16
    };
    for _ in 0..60 {
        let mut pair = Pair::new().of_both_families();
        for _ in 0..60 {
            pair.step((next() as u8, next() as u8, next()));
        }
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
        let mut told = 0;
        for random in 0..40 {
            pair.burst(0, random);
            told += pair.told.usage.len();
            pair.compare_told();
        }
        assert!(told >= reports, "{n:#x}: {told}");
        pair.delete(0);
    }
}
