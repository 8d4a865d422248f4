//! Whole procedures over four ways to build the core (figure 8), and what a service request takes longer with CTA and CPF as two processes
//! than as one. CTA, CPF and UPF are those of the program; gNBs and UEs are emulated, and what these take is taken off. SCTP, which is the same in
//! all builds, is left out.

mod core;
mod ends;
mod function;
mod network;
mod sbi;
mod upf;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use clap::Args;
use serde_json::{Value, json};
use whimbrel_ids::Instant;

use self::core::{Build, CpfAt, Passed, UpfAt};
pub(crate) use self::function::{FunctionOptions, run as function};
use self::network::{Network, Step, Took};
use self::sbi::Sbi;
use super::fabric::{GOALS, SPIN, pin, processors};
use super::{finish, round};
use crate::measure::median;
use crate::plot::{Axis, Plot, Series};

/// A day in 2026.
const EPOCH: Instant = Instant(1_793_700_000_000_000);

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// UEs of each build, one after the other.
    #[arg(long, default_value_t = 300)]
    ues: u32,
    /// Microseconds for which a function looks for the next message before it sleeps: by default as long as the program's.
    #[arg(long, default_value_t = SPIN.as_micros() as u64)]
    spin_us: u64,
}

impl Options {
    pub(super) fn quick(&mut self) {
        self.ues = 2;
    }

    fn spin(&self) -> Duration {
        Duration::from_micros(self.spin_us)
    }
}

/// The builds of figure 8; the last one is a model of free5GC's shape, with two processes and the service operations that more would exchange.
const BUILDS: [&str; 4] = ["one process", "shared memory", "sealed sockets", "HTTP/2+JSON, PFCP/UDP"];
/// What the paper's text gives of its figure 8, in milliseconds with radio and handler: L25GC and free5GC (§5.4, tables 1 and 2).
const PAPER_MS: [Option<(f64, f64)>; 5] = [None, None, Some((130.0, 227.0)), None, Some((28.0, 59.0))];
/// The paper's goal: not more than this of free5GC's time.
const PAPER_SHARE: f64 = 0.51;

/// A service request's distances between CTA and CPF, nearest first.
const DISTANCES: [(&str, CpfAt); 4] = [
    ("one process, by a call", CpfAt::Call),
    ("a region's CPF, messages as values", CpfAt::Values),
    ("the same, messages written and read", CpfAt::Octets),
    ("two processes, shared memory", CpfAt::Process),
];

/// Samples of each step, of one build.
type Samples = [Vec<Took>; Step::ALL.len()];

fn median_us(samples: &[Took]) -> f64 {
    median(samples.iter().map(|took| took.us).collect())
}

/// The UEs of all networks take turns: what disturbs the machine disturbs all builds alike. `besides`: what else belongs to a step of a network.
fn measure(
    networks: &mut [Network],
    ues: u32,
    mut besides: impl FnMut(usize, Step) -> io::Result<()>,
) -> io::Result<Vec<Samples>> {
    let mut all: Vec<Samples> = networks.iter().map(|_| Samples::default()).collect();
    // The first UE makes memory and connections warm.
    for n in 0..=ues {
        for (build, (network, samples)) in networks.iter_mut().zip(&mut all).enumerate() {
            network.next_ue(n + 1);
            for (step, samples) in Step::ALL.into_iter().zip(samples) {
                network.prepare(step)?;
                let begun = Clock::now();
                besides(build, step)?;
                let besides = begun.elapsed().as_nanos() as f64 / 1000.0;
                let took = network.measure(step)?;
                if n > 0 {
                    samples.push(Took { us: took.us + besides, ..took });
                }
            }
        }
    }
    Ok(all)
}

/// What passes in each step.
fn rehearse() -> io::Result<[Passed; Step::ALL.len()]> {
    let one =
        Build { cpf: CpfAt::Call, upf: UpfAt::Call, shared: false, processors: processors(), spin: SPIN };
    Network::new(one, Default::default())?.rehearse()
}

/// Figure 8: microseconds of each step, by build.
fn figure_8(options: &Options, expected: [Passed; Step::ALL.len()]) -> io::Result<Vec<[f64; 5]>> {
    let build = |cpf, upf, shared| Build { cpf, upf, shared, processors: processors(), spin: options.spin() };
    let builds = [
        build(CpfAt::Call, UpfAt::Call, false),
        build(CpfAt::Process, UpfAt::Process, true),
        build(CpfAt::Process, UpfAt::Process, false),
        build(CpfAt::Call, UpfAt::Udp, false),
    ];
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let outcome = (|| {
            let mut networks: Vec<Network> =
                builds.into_iter().map(|build| Network::new(build, expected)).collect::<io::Result<_>>()?;
            let mut sbi = Sbi::start(threads, &stop)?;
            measure(&mut networks, options.ues, |build, step| {
                if build == BUILDS.len() - 1 { sbi.run(step) } else { Ok(()) }
            })
        })();
        stop.store(true, Ordering::Release);
        outcome.map(|all| all.iter().map(|samples| samples.each_ref().map(|s| median_us(s))).collect())
    })
}

/// A service request by the distance between CTA and CPF; the UPF is called in each.
fn distances(
    options: &Options,
    expected: [Passed; Step::ALL.len()],
    processors: [usize; 2],
) -> io::Result<Vec<Vec<Took>>> {
    pin(processors[0]);
    let build = |cpf| Build { cpf, upf: UpfAt::Call, shared: true, processors, spin: options.spin() };
    let mut networks: Vec<Network> =
        DISTANCES.iter().map(|(_, cpf)| Network::new(build(*cpf), expected)).collect::<io::Result<_>>()?;
    let all = measure(&mut networks, options.ues, |_, _| Ok(()))?;
    Ok(all
        .into_iter()
        .map(|mut samples| std::mem::take(&mut samples[Step::ServiceRequest as usize]))
        .collect())
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    pin(processors()[0]);
    println!(
        "paper: L25GC's procedures take up to 51 % less time than free5GC's, almost half of it (figure 8); its text gives, with radio and handlers, 130 and\n       227 ms for an N2 handover, 28 and 59 ms for paging"
    );
    println!(
        "here:  the core's part, without gNBs, UEs and SCTP; microseconds, median of {} UEs that take turns. The last build exchanges each service operation\n       (TS 23.502, without discovery and data repository) over HTTP/2 with JSON before the procedure itself; no delay is injected",
        options.ues
    );
    let expected = rehearse()?;
    let by_build = figure_8(options, expected)?;
    let figure_8 = print_figure_8(&by_build);
    let two = distances(options, expected, processors())?;
    let one = distances(options, expected, [0, 0])?;
    println!("\na service request (UPF by a call), p50, and how much longer than in one process:");
    let two = print_distances("each function with a processor of its own", &two);
    let one = print_distances("all on one processor", &one);
    println!("aim: {:.0} us more than in one process", GOALS[2]);
    let names = Step::ALL.map(|step| step.name().to_owned()).to_vec();
    let series = BUILDS.iter().zip(&by_build).map(|(name, us)| Series {
        name: (*name).into(),
        points: us.iter().enumerate().map(|(x, us)| (x as f64, *us)).collect(),
    });
    Plot {
        title: "The core's part of a procedure, by build",
        x: "",
        y: "microseconds",
        log_y: true,
        axis: Axis::Names(names),
        series: series.collect(),
    }
    .write(plots, "l25gc-procedures")?;
    finish(
        "procedures",
        &json!({ "figure_8": figure_8, "two_processors": two, "one_processor": one, "aim_us": GOALS[2] }),
    );
    Ok(())
}

fn print_figure_8(by_build: &[[f64; 5]]) -> Value {
    println!("\n{:28}{}{:>12}{:>8}", "", BUILDS.map(|b| format!("{b:>24}")).concat(), "operations", "paper");
    let mut figures = serde_json::Map::new();
    let mut shares = Vec::new();
    for (n, step) in Step::ALL.into_iter().enumerate() {
        let us: Vec<f64> = by_build.iter().map(|build| build[n]).collect();
        let http = us.last().copied().unwrap_or(f64::NAN);
        let cell = |us: &f64| format!("{us:>16.1} {:>5.1} %", 100.0 * us / http);
        let paper =
            PAPER_MS[n].map_or_else(String::new, |(ours, theirs)| format!("{:.0} %", 100.0 * ours / theirs));
        println!(
            "{:28}{}{:>12}{paper:>8}",
            step.name(),
            us.iter().map(cell).collect::<String>(),
            sbi::count(step)
        );
        shares.push(us[1] / http);
        let by_name = BUILDS.iter().zip(&us).map(|(name, us)| ((*name).to_owned(), json!(round(*us))));
        figures.insert(step.name().into(), by_name.collect::<serde_json::Map<_, _>>().into());
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    println!(
        "shared memory takes {:.1} % of the time of free5GC's shape in the mean (paper: {:.0} %; aim: at most that)",
        100.0 * mean,
        100.0 * PAPER_SHARE
    );
    figures.insert("share".into(), json!(round(mean)));
    figures.insert("paper_share".into(), json!(PAPER_SHARE));
    figures.into()
}

fn print_distances(place: &str, all: &[Vec<Took>]) -> Value {
    println!("{place}:");
    let base = all.first().map_or(f64::NAN, |samples| median_us(samples));
    let mut figures = serde_json::Map::new();
    for ((name, _), samples) in DISTANCES.iter().zip(all) {
        let us = median_us(samples);
        let last = samples.last().copied().unwrap_or_default();
        let sleeps = median(samples.iter().map(|took| took.sleeps as f64).collect());
        println!(
            "  {name:38}{us:>8.1}{:>+8.1}   {} messages to the CPF, {} from it, {} octets; the CTA slept {sleeps:.0} times",
            us - base,
            last.crossings.to_cpf,
            last.crossings.from_cpf,
            last.crossings.octets
        );
        figures.insert(
            (*name).into(),
            json!({ "p50_us": round(us), "more_us": round(us - base), "cta_sleeps": sleeps }),
        );
    }
    figures.into()
}
