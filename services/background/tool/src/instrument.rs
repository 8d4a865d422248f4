//! From a program and its profile to an instrumented program and a report on each load and loop.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};

use crate::code::Code;
use crate::distance::{self, Counter, InLoop};
use crate::elf::ElfProgram;
use crate::liveness;
use crate::profile::{Counts, Profile};
use crate::refusal::{ProgramRefusal, SkipReason};
use crate::rewrite::{self, Insertion, Insertions, InstrumentedRole, Parameters};
use crate::select::{self, LoadChoice};

/// How to instrument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) role: InstrumentedRole,
    pub(crate) choice: LoadChoice,
    /// Yields at every load, whatever the profile says: for tests.
    pub(crate) everything: bool,
    /// Nanoseconds between a scavenger's yields.
    pub(crate) distance_ns: f64,
    pub(crate) without: Without,
}

/// Optimisations that are left out, to measure what they bring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Without {
    /// Yields save all registers, not those alone that are live.
    pub(crate) liveness: bool,
    /// Loops do not count with a register that they count with anyway.
    pub(crate) induction: bool,
    /// Nor in a free one, but in memory.
    pub(crate) registers: bool,
}

/// Functions whose callers are refused, with the reason.
const REFUSED_IMPORTS: [(&str, &str); 8] = [
    ("clone", "a thread would begin with another's context"),
    ("clone3", "a thread would begin with another's context"),
    ("fesetround", "the floating-point environment would be that of other programs, too"),
    ("fesetenv", "the floating-point environment would be that of other programs, too"),
    ("feenableexcept", "the floating-point environment would be that of other programs, too"),
    ("swapcontext", "it has stacks of its own"),
    ("makecontext", "it has stacks of its own"),
    ("setcontext", "it has stacks of its own"),
];
const SIGNALS: &str = "signals belong to the primary";
/// Likewise, of scavengers, which have no thread of their own.
const REFUSED_IMPORTS_OF_SCAVENGERS: [(&str, &str); 17] = [
    ("pthread_create", "a scavenger has no threads"),
    // `std::thread` of C++, whose library starts the thread.
    (
        "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE",
        "a scavenger has no threads",
    ),
    ("fork", "a scavenger has no process of its own"),
    ("vfork", "a scavenger has no process of its own"),
    // A program that calls `sigaction` or `signal` alone has handlers for what a person or another process sends it. No one knows a scavenger by
    // a process's number, so none of these signals is for it: the runtime answers the call. What follows needs its signals to do its work.
    ("siglongjmp", SIGNALS),
    ("setitimer", SIGNALS),
    ("timer_create", SIGNALS),
    ("alarm", SIGNALS),
    ("kill", SIGNALS),
    ("pthread_kill", SIGNALS),
    ("sigqueue", SIGNALS),
    ("sigwait", SIGNALS),
    ("sigsuspend", SIGNALS),
    ("sigprocmask", SIGNALS),
    ("signalfd", SIGNALS),
    (
        "__cxa_thread_atexit",
        "destructors of a thread's variables would run when a thread of the primary ends",
    ),
    (
        "__cxa_thread_atexit_impl",
        "destructors of a thread's variables would run when a thread of the primary ends",
    ),
];

/// An instrumented program with its report.
#[derive(Debug)]
pub(crate) struct Instrumented {
    pub(crate) data: Vec<u8>,
    pub(crate) report: String,
    /// Loads with a yield.
    pub(crate) taken: usize,
}

/// Instruments a program. Errors: it is refused as a whole.
pub(crate) fn instrument(
    data: Vec<u8>,
    profile: &Profile,
    options: Options,
) -> Result<Instrumented, ProgramRefusal> {
    let mut program = ElfProgram::read(data)?;
    if profile.build != program.build {
        return Err(ProgramRefusal::OtherBuild { profile: profile.build.clone(), program: program.build });
    }
    check_imports(&program, options.role)?;
    let code = Code::read(&mut program);
    // A program may have code for AVX-512 that it runs only where the processor has it. Elsewhere an instruction
    // that saves these registers would end it.
    let has_avx512 = std::arch::is_x86_feature_detected!("avx512bw");
    let (widest, absent) = if has_avx512 { (64, 0) } else { (32, liveness::AVX512) };
    let vector_octets = liveness::vector_octets(&code.instructions).min(widest);
    let effects = liveness::effects(&code.instructions, vector_octets);
    let live = liveness::live_before(&code, program.functions.len(), &effects);
    let saved = match options.without.liveness {
        true => vec![liveness::ORDINARY; live.len()],
        false => live.iter().map(|set| set & !absent).collect(),
    };

    let loads = loads(&code.instructions);
    let addresses: Vec<u64> = loads.iter().map(|&i| code.instructions[i].ip()).collect();
    let chosen = select::select(&addresses, profile, options.choice);
    let mut sites: BTreeMap<usize, Result<Counts, SkipReason>> = BTreeMap::new();
    for (&index, at) in loads.iter().zip(&addresses) {
        let choice = match (&chosen[at], options.everything) {
            (Ok(counts), _) => Ok(*counts),
            (Err(_), true) => Ok(profile.instructions.get(at).copied().unwrap_or_default()),
            (Err(left), false) => Err(left.clone()),
        };
        sites.insert(index, choice.and_then(|c| rewrite::may_change(&program, &code, index).map(|()| c)));
    }
    let taken: BTreeSet<usize> = sites.iter().filter(|(_, s)| s.is_ok()).map(|(&i, _)| i).collect();
    let next = if options.role == InstrumentedRole::Scavenger {
        close_together(&code, &taken, profile, options)
    } else {
        BTreeSet::new()
    };
    let mut insertions: Insertions =
        taken.iter().map(|&i| (i, vec![Insertion::Load { next: next.contains(&i) }])).collect();
    let mut loops = Vec::new();
    if options.role == InstrumentedRole::Scavenger {
        let may_change = |i| rewrite::may_change(&program, &code, i).is_ok();
        loops = distance::place(&code, &effects, &live, profile, &options, &taken, may_change);
        rewrite::add_loops(&mut insertions, &loops);
    }
    let report = report(&program, &code, profile, &sites, &next, &loops, options);
    let special = (next.len() * 1000).checked_div(taken.len()).unwrap_or(0) as u64;
    let parameters = Parameters {
        role: options.role,
        live: &saved,
        vector_octets,
        bound_ns: options.distance_ns,
        special,
        report: &report,
    };
    let data = rewrite::rewrite(&program, &code, &insertions, &parameters)?;
    Ok(Instrumented { data, report, taken: taken.len() })
}

fn check_imports(program: &ElfProgram, role: InstrumentedRole) -> Result<(), ProgramRefusal> {
    let scavenger = role == InstrumentedRole::Scavenger;
    if program.is_library && !program.has_soname {
        return Err(ProgramRefusal::NoLibraryName);
    }
    let more: &[_] = if scavenger { &REFUSED_IMPORTS_OF_SCAVENGERS } else { &[] };
    for &(name, reason) in REFUSED_IMPORTS.iter().chain(more) {
        if program.imports.contains(name) {
            return Err(ProgramRefusal::Import { name: name.into(), reason });
        }
    }
    // A linker gives a program's variables of a thread the first places, and they would be the primary's. Those of libraries are looked up.
    if scavenger && program.has_thread_variables && !program.is_library {
        return Err(ProgramRefusal::ThreadVariables);
    }
    if scavenger {
        if program.main.is_none() && !program.is_library {
            return Err(ProgramRefusal::NoMain);
        }
        if let Some(name) = &program.copied {
            return Err(ProgramRefusal::CopiedData(name.clone()));
        }
    }
    Ok(())
}

/// Instructions that read memory at an address that is computed.
fn loads(instructions: &[Instruction]) -> Vec<usize> {
    let mut factory = InstructionInfoFactory::new();
    let mut is_load = |n: &Instruction| {
        let special = matches!(n.mnemonic(), Mnemonic::Lea | Mnemonic::Nop | Mnemonic::Push | Mnemonic::Pop);
        if special
            || n.is_stack_instruction()
            || n.flow_control() != FlowControl::Next
            || n.memory_base() == Register::RSP
        {
            return false;
        }
        if n.is_string_instruction()
            || n.memory_base() == Register::None && n.memory_index() == Register::None
        {
            return false;
        }
        let read = |access| {
            matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        factory.info(n).used_memory().iter().any(|m| read(m.access()))
    };
    (0..instructions.len()).filter(|&i| is_load(&instructions[i])).collect()
}

/// A scavenger's loads that follow one another sooner than a primary's miss takes: their stalls are for the next scavenger.
fn close_together(
    code: &Code,
    taken: &BTreeSet<usize>,
    profile: &Profile,
    options: Options,
) -> BTreeSet<usize> {
    let owner_ns = |function: usize| -> (f64, f64) {
        let of: Vec<usize> = (0..code.instructions.len()).filter(|&i| code.owner[i] == function).collect();
        let ns =
            of.iter().map(|&i| profile.runs(code.instructions[i].ip()) as f64 * profile.instruction_ns).sum();
        let yields = of.iter().filter(|i| taken.contains(i));
        (ns, yields.map(|&i| profile.runs(code.instructions[i].ip()) as f64).sum())
    };
    let mut known: BTreeMap<usize, bool> = BTreeMap::new();
    let mut close = BTreeSet::new();
    for &i in taken {
        let function = code.owner[i];
        // Computing between two yields of the function takes less than half of the target distance.
        let is_close = *known.entry(function).or_insert_with(|| {
            let (ns, yields) = owner_ns(function);
            yields > 0.0 && ns / yields < options.distance_ns / 2.0
        });
        if is_close {
            close.insert(i);
        }
    }
    close
}

fn report(
    program: &ElfProgram,
    code: &Code,
    profile: &Profile,
    sites: &BTreeMap<usize, Result<Counts, SkipReason>>,
    next: &BTreeSet<usize>,
    loops: &[InLoop],
    options: Options,
) -> String {
    let mut text = String::new();
    let taken = sites.values().filter(|s| s.is_ok()).count();
    let role = if options.role == InstrumentedRole::Primary { "primary" } else { "scavenger" };
    let _ = writeln!(text, "{role}, build {}, profile by {}", program.build, profile.source);
    let _ = writeln!(text, "loads: {}; with a yield: {taken}; yields in loops: {}", sites.len(), loops.len());
    let place = |i: usize| {
        let function = &program.functions[code.owner[i]];
        let at = code.instructions[i].ip();
        format!("{:#x} {}+{:#x}", at, function.name, at - function.from)
    };
    let mut left: BTreeMap<&SkipReason, usize> = BTreeMap::new();
    for (&i, site) in sites {
        match site {
            Ok(c) => {
                let rate = if c.loads == 0 { 0.0 } else { c.misses as f64 / c.loads as f64 * 100.0 };
                let to = if next.contains(&i) { "; goes on to the next scavenger" } else { "" };
                let _ = writeln!(text, "yield at {}: {} loads, {rate:.0} % miss{to}", place(i), c.loads);
            }
            Err(reason) => {
                *left.entry(reason).or_default() += 1;
                let counts =
                    profile.instructions.get(&code.instructions[i].ip()).copied().unwrap_or_default();
                if counts.misses > 0 && *reason != SkipReason::RareMisses {
                    let _ = writeln!(
                        text,
                        "no yield at {}: {} loads, {} misses: {reason}",
                        place(i),
                        counts.loads,
                        counts.misses
                    );
                }
            }
        }
    }
    for l in loops {
        let how = match l.counter {
            Counter::Free { iterations, .. } => {
                format!("every {iterations} iterations, counted in a free register")
            }
            Counter::Induction { mask, .. } => format!("by the loop's own counter, mask {mask:#x}"),
            Counter::Memory { .. } => "from the thread's budget".into(),
        };
        let _ = writeln!(
            text,
            "yield in the loop at {}: {:.1} ns an iteration, {how}",
            place(l.before),
            l.iteration_ns
        );
    }
    for (reason, count) in left {
        let _ = writeln!(text, "{count} loads without a yield: {reason}");
    }
    for function in &program.functions {
        if let Some(why) = function.refused {
            let _ = writeln!(text, "function {} is not changed: it {why}", function.name);
        }
    }
    text
}
