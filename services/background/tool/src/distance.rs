//! Where a scavenger returns to the primary: in its loops, so that the time between two yields is near a bound.
//!
//! Time is instructions that ran in the profile times what one takes. Each loop counts its own iterations: in a register that the loop leaves
//! alone, else by a register that it counts with anyway, else in the thread's context, where all loops share one budget.

use std::collections::BTreeSet;

use iced_x86::{FlowControl, Mnemonic, OpKind, Register};

use crate::code::Code;
use crate::instrument::Options;
use crate::liveness::{self, Effect, FLAGS, Set};
use crate::profile::Profile;

/// How a loop counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Counter {
    /// In a free register: yields after so many iterations.
    Free { register: Register, iterations: u32 },
    /// A yield when these bits of a register are zero.
    Induction { register: Register, mask: u32 },
    /// Takes so many sixteenths of a nanosecond from the thread's budget.
    Memory { sixteenths: u32 },
}

/// A yield in a loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InLoop {
    /// The instruction before which it counts.
    pub(crate) before: usize,
    pub(crate) counter: Counter,
    /// Nanoseconds of an iteration.
    pub(crate) iteration_ns: f64,
}

/// A loop: its first instruction, the branch back, and all between.
struct Loop {
    header: usize,
    latch: usize,
    body: BTreeSet<usize>,
}

/// Yields of a loop, each time that it runs, from which on it does not matter where its count begins.
const LONG: u64 = 4;

/// A counter that grows by itself yields after a power of two of iterations, if that is no farther than this from what is asked for.
const INDUCTION_ERROR: f64 = 0.1;

/// Places yields in all loops, as far apart as the options say; `yields` are instructions that have one already.
pub(crate) fn place(
    code: &Code,
    effects: &[Effect],
    live: &[Set],
    profile: &Profile,
    options: &Options,
    yields: &BTreeSet<usize>,
    may_change: impl Fn(usize) -> bool,
) -> Vec<InLoop> {
    let mut loops = loops(code);
    loops.sort_by_key(|l| l.body.len());
    let mut placed = Vec::new();
    for (k, this) in loops.iter().enumerate() {
        let inner: Vec<&Loop> = loops[..k].iter().filter(|l| l.body.is_subset(&this.body)).collect();
        // Inner loops yield by themselves.
        let own = this.body.iter().filter(|i| !inner.iter().any(|l| l.body.contains(i)));
        let own: BTreeSet<usize> = own.copied().collect();
        if own.is_empty() {
            continue;
        }
        let iteration_ns = iteration_ns(code, profile, this, &own, yields);
        // An iteration that always yields at a load needs no other yield, unless it is far longer than the distance.
        let yields_anyway = always_yields(code, this, yields) && iteration_ns <= 2.0 * options.distance_ns;
        if iteration_ns <= 0.0 || yields_anyway {
            continue;
        }
        let Some(before) = position(code, live, this, &may_change) else { continue };
        let has_calls = this.body.iter().any(|&i| {
            matches!(code.instructions[i].flow_control(), FlowControl::Call | FlowControl::IndirectCall)
        });
        let alone = inner.is_empty() && !has_calls && !this.body.iter().any(|i| yields.contains(i));
        let iterations =
            (options.distance_ns / iteration_ns).round().clamp(1.0, f64::from(u32::MAX / 2)) as u32;
        let without = options.without;
        // A loop that ends long before it yields has to find its count again when it begins again: then nothing around it may use the register.
        let mut around = loops[k + 1..].iter().filter(|l| l.body.is_superset(&this.body));
        let runs_of = |l: &Loop| profile.runs(code.instructions[l.header].ip());
        let entered = around.clone().filter(|l| l.header != this.header).map(runs_of).max().unwrap_or(1);
        let runs = runs_of(this);
        let is_long = runs / entered.max(1) >= u64::from(iterations) * LONG;
        let counted_in = if is_long { Some(this) } else { around.next_back().or(Some(this)) };
        let register =
            counted_in.filter(|_| alone && !without.registers).and_then(|l| free(l, effects, live));
        let counter = match (register, alone) {
            (Some(register), _) => Counter::Free { register, iterations },
            (None, true) if !without.induction => {
                induction(code, effects, this, iterations).unwrap_or_else(|| memory(iteration_ns))
            }
            (None, _) => memory(iteration_ns),
        };
        placed.push(InLoop { before, counter, iteration_ns });
    }
    placed
}

fn memory(iteration_ns: f64) -> Counter {
    Counter::Memory { sixteenths: (iteration_ns * 16.0).round().clamp(1.0, 1e9) as u32 }
}

/// Whether each way from the header to the branch back passes a yield.
fn always_yields(code: &Code, this: &Loop, yields: &BTreeSet<usize>) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![this.header]);
    while let Some(i) = open.pop() {
        if yields.contains(&i) || !this.body.contains(&i) || !seen.insert(i) {
            continue;
        }
        if i == this.latch {
            return false;
        }
        open.extend(code.successors(i).known);
    }
    true
}

/// Average time of an iteration, without that of inner loops, and without misses at which it yields. One that did not run: that of all its instructions once.
fn iteration_ns(
    code: &Code,
    profile: &Profile,
    this: &Loop,
    own: &BTreeSet<usize>,
    yields: &BTreeSet<usize>,
) -> f64 {
    let ip = |i: usize| code.instructions[i].ip();
    let times = profile.runs(ip(this.header));
    if times == 0 {
        return own.len() as f64 * profile.instruction_ns;
    }
    let mut ns = 0.0;
    for &i in own {
        let counts = profile.instructions.get(&ip(i)).copied().unwrap_or_default();
        let misses = if yields.contains(&i) { 0 } else { counts.misses };
        ns += counts.runs as f64 * profile.instruction_ns + misses as f64 * profile.memory_ns;
        if let Some((_, within)) = profile.calls.get(&ip(i)) {
            ns += *within as f64 * profile.instruction_ns;
        }
    }
    ns / times as f64
}

/// Where to count: in the block of the branch back, from its end, where no flag is live; else before its first instruction.
fn position(code: &Code, live: &[Set], this: &Loop, may_change: &impl Fn(usize) -> bool) -> Option<usize> {
    let range = code.movable(this.latch);
    let fits = may_change(this.latch) && code.octets(&range) >= 5 && range.contains(&this.latch);
    if fits {
        return range.clone().rev().find(|&i| live[i] & FLAGS == 0).or(Some(range.start));
    }
    let range = code.movable(this.header);
    let fits = may_change(this.header) && code.octets(&range) >= 5 && range.contains(&this.header);
    fits.then_some(this.header)
}

/// A general register that the loop neither reads nor writes, and that holds nothing which is read later.
fn free(this: &Loop, effects: &[Effect], live: &[Set]) -> Option<Register> {
    let used = this.body.iter().fold(0, |set, &i| set | effects[i].reads | effects[i].writes | live[i]);
    let number = (0..16).rev().find(|r| *r != 4 && used >> r & 1 == 0)?;
    Some(Register::EAX + number)
}

/// A register that grows by a power of two in each iteration, and by nothing else.
fn induction(code: &Code, effects: &[Effect], this: &Loop, iterations: u32) -> Option<Counter> {
    for &i in &this.body {
        let n = &code.instructions[i];
        if n.op_count() == 0 || n.op0_kind() != OpKind::Register || !n.op0_register().is_gpr64() {
            continue;
        }
        let step = match n.mnemonic() {
            Mnemonic::Inc | Mnemonic::Dec => 1,
            Mnemonic::Add | Mnemonic::Sub if n.op_count() == 2 && n.op1_kind() != OpKind::Register => {
                match n.try_immediate(1) {
                    Ok(value) => (value as i64).unsigned_abs(),
                    Err(_) => continue,
                }
            }
            _ => continue,
        };
        let bits = liveness::bits(n.op0_register());
        let only = this.body.iter().filter(|&&k| effects[k].writes & bits != 0).count() == 1;
        let every = code.block(i).contains(&this.latch);
        let exact = step as f64 * f64::from(iterations);
        let span = exact.log2().round();
        let near = (exact / span.exp2() - 1.0).abs() <= INDUCTION_ERROR;
        if only && every && near && step.is_power_of_two() && span < 31.0 {
            let mask = (1u32 << span as u32).wrapping_sub(step as u32);
            return Some(Counter::Induction {
                register: Register::EAX + n.op0_register().number() as u32,
                mask,
            });
        }
    }
    None
}

/// Loops: of each branch to an earlier place, what reaches it without passing that place.
fn loops(code: &Code) -> Vec<Loop> {
    let mut predecessors: Vec<Vec<usize>> = vec![Vec::new(); code.instructions.len()];
    let mut back = Vec::new();
    for i in 0..code.instructions.len() {
        for s in code.successors(i).known {
            predecessors[s].push(i);
            if s <= i && code.owner[s] == code.owner[i] {
                back.push((s, i));
            }
        }
    }
    let mut loops: Vec<Loop> = Vec::new();
    for (header, latch) in back {
        let mut body = BTreeSet::from([header, latch]);
        let mut open = vec![latch];
        while let Some(i) = open.pop() {
            if i == header {
                continue;
            }
            for &p in &predecessors[i] {
                if code.owner[p] == code.owner[header] && body.insert(p) {
                    open.push(p);
                }
            }
        }
        loops.push(Loop { header, latch, body });
    }
    loops
}
