//! What it costs to find a session's index in a TEID, beside an index in clear: nanoseconds each, in bursts and one after the other.
//!
//! `cargo run --release -p whimbrel-user --example teids`

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::Instant;

use whimbrel_ids::Teid;

/// Packets of a burst, as `pipeline/burst.rs` takes them.
const BURST: usize = 32;
/// Bursts that are timed together: so few that most of the time no other thread runs in between.
const BURSTS: usize = 40;
/// Times that is done; the shortest counts.
const ROUNDS: usize = 20_000;

/// The shortest time a packet of what is done for each of some bursts.
fn shortest(mut burst: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        (0..BURSTS).for_each(|_| burst());
        start.elapsed().as_nanos() as f64 / (BURSTS * BURST) as f64
    };
    (0..ROUNDS).map(round).fold(f64::MAX, f64::min)
}

/// In a burst, and each behind the other.
fn each(all: &[Teid], index: impl Fn(Teid) -> u32) -> [f64; 2] {
    let burst = || {
        for teid in black_box(all) {
            black_box(index(*teid));
        }
    };
    let mut last = Teid(1);
    let chain = || {
        for _ in 0..BURST {
            last = Teid(index(Teid(last.0 ^ 0x5a5a_5a5a)));
        }
        black_box(last);
    };
    [shortest(burst), shortest(chain)]
}

fn main() {
    let config = whimbrel_user::Config { sessions_max: 1_000_000, ..common::config() };
    let (teids, mask) = (black_box(config.teids()), black_box(config.teids().index_mask()));
    let all: Vec<Teid> = (0..BURST as u32).map(|n| Teid(n.wrapping_mul(0x9e37_79b9))).collect();
    println!("ns a TEID                in a burst   one after the other");
    let rows = [
        ("in clear", each(&all, |t| t.0.wrapping_sub(1) & mask)),
        ("permuted", each(&all, |t| teids.index_of(t))),
    ];
    for (name, [burst, chain]) in rows {
        println!("{name:<24} {burst:>10.2} {chain:>21.2}");
    }
}
