//! `./x bench harvest yields`: what a switch costs, and what runs in the stalls of a program whose yields are written by hand.
//!
//! PtrChase follows a random ring through more memory than the caches hold; Scan adds up 4 MiB. Times are of the core, not of the clock on the
//! wall. Rounds of both sides alternate, and the best of each counts, as others use the machine.

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;

use whimbrel_background::{Harvest, Work};
use whimbrel_prefetch::prefetch;

/// Octets that PtrChase goes through.
const RING_OCTETS: usize = 512 << 20;
/// Elements that Scan adds up: 4 MiB.
const SCAN: usize = (4 << 20) / 8;
/// Times that each figure is measured.
const ROUNDS: usize = 5;

/// One cache line that names the next.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Node {
    next: u32,
}

/// Nanoseconds of core time that this thread has used.
fn core_time() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the structure it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
}

/// Nanoseconds that `work` takes.
fn timed(work: impl FnOnce()) -> f64 {
    let begin = core_time();
    work();
    core_time() - begin
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A ring through all nodes in random order.
fn ring() -> Rc<Vec<Node>> {
    let count = RING_OCTETS / size_of::<Node>();
    let mut order: Vec<u32> = (0..count as u32).collect();
    let mut random = Random(88_172_645_463_325_252);
    for i in (1..count).rev() {
        order.swap(i, random.next() as usize % (i + 1));
    }
    let mut nodes = vec![Node { next: 0 }; count];
    advise_huge(&nodes);
    for (i, &at) in order.iter().enumerate() {
        nodes[at as usize].next = order[(i + 1) % count];
    }
    Rc::new(nodes)
}

/// Asks for large pages, as the user plane's tables have.
fn advise_huge(nodes: &[Node]) {
    let (at, octets) = (nodes.as_ptr() as usize, size_of_val(nodes));
    let from = (at + (2 << 20) - 1) & !((2 << 20) - 1);
    // SAFETY: advice on part of a mapping that is ours; it changes no octet.
    unsafe { libc::madvise(from as *mut libc::c_void, octets.saturating_sub(2 << 20), libc::MADV_HUGEPAGE) };
}

/// Nanoseconds of a switch to a scavenger and back.
fn switch_cost() -> f64 {
    let mut harvest = empty();
    let times = 20_000_000;
    best(|| {
        timed(|| {
            for _ in 0..times {
                harvest.stall();
            }
        }) / f64::from(times)
    })
}

fn empty() -> Harvest {
    Harvest::new(vec![Box::new(|primary| {
        loop {
            primary.resume();
        }
    })])
    .expect("x86-64 and memory for a stack")
}

fn best(mut measure: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

/// A chaser that lets the next one run at every step; counts steps down and stops at zero.
fn chaser(nodes: &Rc<Vec<Node>>, from: u32, left: &Rc<Cell<u64>>) -> Work {
    let (nodes, left) = (nodes.clone(), left.clone());
    Box::new(move |primary| {
        let mut at = from;
        loop {
            while left.get() == 0 {
                black_box(at);
                primary.resume();
            }
            left.set(left.get() - 1);
            let node = &nodes[at as usize];
            prefetch(node);
            primary.next();
            at = node.next;
        }
    })
}

/// Nanoseconds a step of `count` chasers that are interleaved on this core.
fn chase(nodes: &Rc<Vec<Node>>, count: usize) -> f64 {
    let steps = 4_000_000;
    if count == 1 {
        // One after another: no other chaser to run, so nothing is added to the load.
        let mut at = 0;
        return best(|| {
            timed(|| {
                for _ in 0..steps {
                    at = nodes[at as usize].next;
                }
                black_box(at);
            }) / steps as f64
        });
    }
    let left = Rc::new(Cell::new(0));
    let mut random = Random(count as u64 + 7);
    let works =
        (0..count).map(|_| chaser(nodes, (random.next() as usize % nodes.len()) as u32, &left)).collect();
    let mut harvest = Harvest::new(works).expect("x86-64 and memory for stacks");
    best(|| {
        left.set(steps);
        timed(|| harvest.stall()) / steps as f64
    })
}

/// Adds up `chunk` elements, then returns to the primary.
fn scanner(chunk: usize, scanned: &Rc<Cell<u64>>) -> Work {
    let scanned = scanned.clone();
    Box::new(move |primary| {
        let values: Vec<u64> = (0..SCAN as u64).collect();
        let mut sum = 0u64;
        loop {
            for part in values.chunks(chunk) {
                sum = add(sum, part);
                scanned.set(scanned.get() + part.len() as u64);
                primary.resume();
            }
            black_box(sum);
        }
    })
}

/// The sum, element by element: the loop is not to become one of vectors.
fn add(mut sum: u64, part: &[u64]) -> u64 {
    for &value in part {
        sum = black_box(sum.wrapping_add(value));
    }
    sum
}

/// Elements a nanosecond that Scan adds up when it has the core.
fn scan_rate() -> f64 {
    let values: Vec<u64> = (0..SCAN as u64).collect();
    let mut sum = 0;
    let ns = best(|| {
        timed(|| {
            for _ in 0..20 {
                for part in values.chunks(4096) {
                    sum = add(sum, part);
                }
            }
        })
    });
    black_box(sum);
    (20 * SCAN) as f64 / ns
}

/// PtrChase, which computes for `work` steps after each load.
fn primary(nodes: &[Node], at: &mut u32, steps: u64, work: u32, mut stall: impl FnMut(&Node)) {
    let mut x = 1u64;
    for _ in 0..steps {
        let node = &nodes[*at as usize];
        stall(node);
        *at = node.next;
        x ^= u64::from(*at);
        for _ in 0..work {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
        // The next address waits for what was computed.
        *at ^= (black_box(x) >> 63 & u64::from(black_box(false))) as u32;
    }
}

fn chase_and_scan(nodes: &Rc<Vec<Node>>) {
    let rate = scan_rate();
    println!("Scan alone: {:.2} elements a nanosecond", rate);
    println!(
        "{:>12} {:>9} {:>9} {:>8} {:>10} {:>16}",
        "primary", "alone ns", "chunk ns", "ns", "slower by", "Scan, of a core"
    );
    let steps = 500_000;
    for work in [0, 100] {
        let mut at = 0;
        for chunk in [64, 256, 512, 1024] {
            let scanned = Rc::new(Cell::new(0));
            let mut harvest =
                Harvest::new(vec![scanner(chunk, &scanned)]).expect("x86-64 and memory for a stack");
            harvest.stall();
            let (mut alone, mut both, mut share) = (f64::INFINITY, f64::INFINITY, 0.0);
            for _ in 0..ROUNDS {
                alone = alone.min(timed(|| primary(nodes, &mut at, steps, work, |_| ())));
                scanned.set(0);
                let ns = timed(|| {
                    primary(nodes, &mut at, steps, work, |node| {
                        prefetch(node);
                        harvest.stall();
                    });
                });
                if ns < both {
                    (both, share) = (ns, scanned.get() as f64 / ns / rate);
                }
            }
            println!(
                "{:>12} {:>9.1} {:>9.0} {:>8.1} {:>+9.1}% {:>15.1}%",
                format!("PtrChase+{work}"),
                alone / steps as f64,
                chunk as f64 / rate,
                both / steps as f64,
                (both / alone - 1.0) * 100.0,
                share * 100.0
            );
        }
    }
}

fn yields() {
    println!("a switch to a scavenger and back: {:.2} ns", switch_cost());
    let nodes = ring();
    let one = chase(&nodes, 1);
    println!(
        "chasers of {} MiB on one core, interleaved; time of all, one after another = 1:",
        RING_OCTETS >> 20
    );
    println!("  1: {one:.1} ns a step");
    for count in [2, 4, 8, 12, 16, 24] {
        let ns = chase(&nodes, count);
        println!(
            "  {count}: {ns:.1} ns a step, {:.3} of the time (ideal {:.3})",
            ns / one,
            1.0 / count as f64
        );
    }
    chase_and_scan(&nodes);
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("yields") | None => yields(),
        Some(other) => {
            eprintln!("harvest: unknown experiment {other:?}: yields");
            std::process::exit(2);
        }
    }
}
