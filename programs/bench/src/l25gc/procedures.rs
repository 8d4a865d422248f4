//! Whole procedures over four ways to build the core (figure 8), and what a service request takes longer with CTA and CPF as two processes
//! than as one. CTA, CPF, UPF, UDM, PCF and CHF are those of the program, and so are client and server of HTTP/2; gNBs and UEs are emulated, and what these take is
//! taken off. SCTP, which is the same in all builds, is left out. AMF and SMF are one process in all of them.

mod core;
mod ends;
mod function;
mod functions;
mod network;
mod upf;

use std::io;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use whimbrel_ids::Instant;

use self::core::{Build, CpfAt, Passed, UpfAt};
pub(crate) use self::function::{FunctionOptions, run as function};
use self::functions::FunctionsAt;
use self::network::{Network, Step, Took};
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

/// The builds of figure 8. But for the first, UDM, PCF, CHF and UPF are processes beside that of AMF and SMF.
const BUILDS: [&str; 4] = ["one process", "shared memory", "sealed sockets", "HTTP/2+JSON, PFCP/UDP"];
/// What the paper's text gives of its figure 8, in milliseconds with radio and handler: L25GC and free5GC (§5.4, tables 1 and 2).
const PAPER_MS: [Option<(f64, f64)>; 5] = [None, None, Some((130.0, 227.0)), None, Some((28.0, 59.0))];
/// Shared memory's share of the time of HTTP/2: the paper's, and what is to be reached.
const PAPER_SHARE: f64 = 0.51;
const GOAL_SHARE: f64 = 0.45;

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

/// The UEs of all networks take turns: what disturbs the machine disturbs all builds alike.
fn measure(networks: &mut [Network], ues: u32) -> io::Result<Vec<Samples>> {
    let mut all: Vec<Samples> = networks.iter().map(|_| Samples::default()).collect();
    // The first UE makes memory and connections warm.
    for n in 0..=ues {
        for (network, samples) in networks.iter_mut().zip(&mut all) {
            network.next_ue(n + 1);
            for (step, samples) in Step::ALL.into_iter().zip(samples) {
                network.prepare(step)?;
                let took = network.measure(step)?;
                if n > 0 {
                    samples.push(took);
                }
            }
        }
    }
    Ok(all)
}

/// What passes in each step.
fn rehearse(functions: FunctionsAt, folder: &Path) -> io::Result<[Passed; Step::ALL.len()]> {
    let (cpf, upf) = (CpfAt::Call, UpfAt::Call);
    let one = Build { cpf, upf, functions, shared: false, processors: processors(), spin: SPIN };
    Network::new(one, Default::default(), folder)?.rehearse()
}

/// Figure 8: microseconds of each step, by build.
fn figure_8(options: &Options, folder: &Path) -> io::Result<Vec<[f64; 5]>> {
    let expected = rehearse(FunctionsAt::Call, folder)?;
    let (processors, spin) = (processors(), options.spin());
    let build = |upf, functions, shared| Build { cpf: CpfAt::Call, upf, functions, shared, processors, spin };
    let builds = [
        build(UpfAt::Call, FunctionsAt::Call, false),
        build(UpfAt::Process, FunctionsAt::Process, true),
        build(UpfAt::Process, FunctionsAt::Process, false),
        build(UpfAt::Udp, FunctionsAt::Http, false),
    ];
    let networks = builds.into_iter().map(|build| Network::new(build, expected, folder));
    let all = measure(&mut networks.collect::<io::Result<Vec<_>>>()?, options.ues)?;
    Ok(all.iter().map(|samples| samples.each_ref().map(|s| median_us(s))).collect())
}

/// A service request by the distance between CTA and CPF; the UPF is called in each.
fn distances(
    options: &Options,
    expected: [Passed; Step::ALL.len()],
    processors: [usize; 2],
    folder: &Path,
) -> io::Result<Vec<Vec<Took>>> {
    pin(processors[0]);
    let (upf, functions, spin) = (UpfAt::Call, FunctionsAt::Embedded, options.spin());
    let build = |cpf| Build { cpf, upf, functions, shared: true, processors, spin };
    let mut networks: Vec<Network> = DISTANCES
        .iter()
        .map(|(_, cpf)| Network::new(build(*cpf), expected, folder))
        .collect::<io::Result<_>>()?;
    let all = measure(&mut networks, options.ues)?;
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
        "here:  the core's part, without gNBs, UEs and SCTP; microseconds, median of {} UEs that take turns. AMF and SMF are one process in each build; UDM,\n       PCF, CHF and UPF are called in the first one, and are processes in the others. No delay is injected, and nothing is added",
        options.ues
    );
    let folder = store_folder()?;
    let folder = folder.path();
    functions::write_subscribers(folder, options.ues + 2)?;
    let by_build = figure_8(options, folder)?;
    let figure_8 = print_figure_8(&by_build);
    let expected = rehearse(FunctionsAt::Embedded, folder)?;
    let two = distances(options, expected, processors(), folder)?;
    let one = distances(options, expected, [0, 0], folder)?;
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

/// A folder for the store, in memory where there is such a file system: what a disk takes is in no build.
fn store_folder() -> io::Result<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

fn print_figure_8(by_build: &[[f64; 5]]) -> Value {
    println!("\n{:28}{}{:>8}", "", BUILDS.map(|b| format!("{b:>24}")).concat(), "paper");
    let mut figures = serde_json::Map::new();
    let mut shares = Vec::new();
    for (n, step) in Step::ALL.into_iter().enumerate() {
        let us: Vec<f64> = by_build.iter().map(|build| build[n]).collect();
        let http = us.last().copied().unwrap_or(f64::NAN);
        let cell = |us: &f64| format!("{us:>16.1} {:>5.1} %", 100.0 * us / http);
        let paper =
            PAPER_MS[n].map_or_else(String::new, |(ours, theirs)| format!("{:.0} %", 100.0 * ours / theirs));
        println!("{:28}{}{paper:>8}", step.name(), us.iter().map(cell).collect::<String>());
        if step.has_service_operations() {
            shares.push(us[1] / http);
        }
        let by_name = BUILDS.iter().zip(&us).map(|(name, us)| ((*name).to_owned(), json!(round(*us))));
        figures.insert(step.name().into(), by_name.collect::<serde_json::Map<_, _>>().into());
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    println!(
        "shared memory takes {:.1} % of the time of HTTP/2 with JSON in the mean of the first two (paper: {:.0} % with all; aim: {:.0} %). The others have no operation\nof UDM, PCF or CHF, and AMF and SMF are one process: they compare N4 alone",
        100.0 * mean,
        100.0 * PAPER_SHARE,
        100.0 * GOAL_SHARE
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
