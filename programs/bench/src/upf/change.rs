//! From UPF-C's store to a packet that sees it: two threads, each pinned to a core of its own, and the way between them that the program
//! has. Part of the handover experiment: a path switch is such a change.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant as Clock;

use crate::upf::classifier::common::rule_sets::Random;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use whimbrel_ids::{Instant, Teid};
use whimbrel_user::{PacketVerdict, UpfU, UserPlaneChange};
use whimbrel_user_io::{CHANGES_AT_ONCE, CHANGES_MAX, Receiver, channel};

use super::population::{Packets, Population};
use super::smf::START;

/// Sessions that stand, and those of them whose packets come: one in each burst, so that the next burst is the next chance to see.
const SESSIONS: u32 = 10_000;
const BURST: u32 = 32;
/// Changes that are timed.
const CHANGES: u32 = 20_000;

/// Microseconds, and how many bursts passed meanwhile.
pub(super) struct Seen {
    /// Median, 90th and 99th percentile.
    pub(super) us: [f64; 3],
    /// Of a burst, receiving its packets included: the median.
    pub(super) burst_us: f64,
}

/// Nanoseconds since an origin that both threads have.
fn nanoseconds(since: Clock) -> u64 {
    since.elapsed().as_nanos() as u64
}

/// Changes one at a time, while packets come all the while.
pub(super) fn seen() -> Option<Seen> {
    let mut world = Population::new(SESSIONS);
    let cores = cores()?;
    let (sender, receiver) = channel::<(u32, Teid, UserPlaneChange)>(CHANGES_MAX).ok()?;
    let (origin, ended) = (Clock::now(), AtomicBool::new(false));
    let seen_at = AtomicU64::new(0);
    // Tunnel by tunnel another one, so that each change shows in the packet's header.
    let change = |n: u32| (n % BURST, Teid(n + 1), world.moved(n % BURST, Teid(n + 1)));
    let changes: Vec<_> = (0..CHANGES).map(change).collect();
    let (mut us, mut bursts) = thread::scope(|scope| {
        let (world, seen_at, ended) = (&mut world, &seen_at, &ended);
        let packets = scope.spawn(move || {
            pin(cores[1]);
            packets(world, &receiver, origin, seen_at, ended)
        });
        pin(cores[0]);
        let mut us = Vec::with_capacity(changes.len());
        let random = &mut Random::new(1);
        for change in changes {
            // Not in step with the bursts.
            (0..random.below(4_000)).for_each(|n| _ = black_box(n));
            let stored = nanoseconds(origin);
            if sender.send(change).is_err() {
                break;
            }
            let seen = loop {
                match seen_at.swap(0, Ordering::AcqRel) {
                    0 => std::hint::spin_loop(),
                    at => break at,
                }
            };
            us.push(seen.saturating_sub(stored) as f64 / 1e3);
        }
        ended.store(true, Ordering::Release);
        (us, packets.join().unwrap_or_default())
    });
    us.sort_by(f64::total_cmp);
    bursts.sort_by(f64::total_cmp);
    let at = |sorted: &[f64], percent: usize| sorted.get(sorted.len() * percent / 100).copied();
    Some(Seen { us: [at(&us, 50)?, at(&us, 90)?, at(&us, 99)?], burst_us: at(&bursts, 50)? })
}

/// The packet thread: changes, then a burst, and so on. What its bursts took, in microseconds.
fn packets(
    world: &mut Population,
    changes: &Receiver<(u32, Teid, UserPlaneChange)>,
    origin: Clock,
    seen_at: &AtomicU64,
    ended: &AtomicBool,
) -> Vec<f64> {
    let mut packets = Packets::new(BURST as usize, 128);
    let mut took = Vec::new();
    let mut awaited = None;
    let mut now = START;
    while !ended.load(Ordering::Acquire) {
        let begin = Clock::now();
        for (n, teid, change) in changes.take(CHANGES_AT_ONCE) {
            awaited = Some((n as usize, teid));
            world.upf.apply(now, change);
        }
        now = Instant(now.0 + 1);
        packets.draw_in_turn();
        burst(&mut world.upf, &mut packets, now);
        if let Some((n, teid)) = awaited
            && packets.slots[n].packet.octets().get(4..8) == Some(&teid.0.to_be_bytes())
        {
            seen_at.store(nanoseconds(origin).max(1), Ordering::Release);
            awaited = None;
        }
        if took.len() < CHANGES as usize {
            took.push(begin.elapsed().as_nanos() as f64 / 1e3);
        }
    }
    took
}

fn burst(upf: &mut UpfU, packets: &mut Packets, now: Instant) {
    upf.burst(now, &mut packets.slots);
    assert!(
        packets.slots.iter().all(|s| matches!(s.verdict, PacketVerdict::Send(_))),
        "{:?}",
        upf.counters()
    );
}

/// Two cores that this process may use.
fn cores() -> Option<[usize; 2]> {
    let mine = sched_getaffinity(None).ok()?;
    let mut mine = (0..CpuSet::MAX_CPU).filter(|n| mine.is_set(*n));
    Some([mine.next()?, mine.next()?])
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    // Refused, the threads share cores, and the figures say so.
    sched_setaffinity(None, &set).ok();
}
