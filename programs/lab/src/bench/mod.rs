//! Measurements that anyone can repeat: `whimbrel-lab bench NAME`. Each ends with one line of JSON.

mod attach;
mod detection;
mod l25gc;
mod load;
mod memory;
mod neutrino;
mod scale;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use whimbrel_cli::Done;
use whimbrel_ran::edge::{Mode, RunnerConfig};
use whimbrel_ran::scenario::{ArrivalPattern, Scenario, SessionStep, SessionType, Step};

use crate::playground::{self, Playground};

/// Measurements of the running program.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Registrations with sessions at rising rates: latency and CPU time against rate.
    Attach(attach::Options),
    /// Service requests, registrations or handovers as open load: at rising rates, in bursts, or from a trace.
    Load(load::Options),
    /// One, two and four homes of an AMF set: processor time and messages between homes for each procedure.
    Scale(scale::Options),
    /// Time to detect a hanging CPF, and false alarms, for several heartbeat intervals and loads.
    Detection(detection::Options),
    /// Resident memory of the core per registered UE with one session.
    Memory(memory::Options),
    /// What the TCP connections of a UE see of failures and handovers (L25GC).
    L25gc {
        /// Experiment to run.
        #[command(subcommand)]
        experiment: l25gc::Experiment,
    },
    /// Figures of Neutrino with real processes that are killed: ours beside a core without replicas.
    Neutrino {
        /// Figure to repeat.
        #[command(subcommand)]
        figure: neutrino::Figure,
    },
}

/// Runs a measurement, in namespaces of its own.
pub(crate) fn run(bench: &Bench) -> Done {
    if let Some(status) = playground::isolate()? {
        return if status.success() { Ok(()) } else { Err(String::new()) };
    }
    match bench {
        Bench::Attach(options) => attach::run(options),
        Bench::Load(options) => load::run(options),
        Bench::Scale(options) => scale::run(options),
        Bench::Detection(options) => detection::run(options),
        Bench::Memory(options) => memory::run(options),
        Bench::L25gc { experiment } => l25gc::run(experiment),
        Bench::Neutrino { figure } => neutrino::run(figure),
    }
}

/// The processor for the core alone, and the one for the generator; `None` if there is only one processor.
fn processors() -> (Option<u32>, Option<u32>) {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    if available < 2 { (None, None) } else { (Some(1), Some(0)) }
}

/// Keeps this process on one processor.
fn stay_on(cpu: Option<u32>) {
    if let Some(cpu) = cpu {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu as usize);
        // Without it the measurement is noisier, not wrong.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

fn scenario(ues: u32, gnbs: u8, arrival: ArrivalPattern, steps: Vec<Step>) -> Scenario {
    Scenario {
        ues,
        gnbs: gnbs.into(),
        arrival,
        before: Vec::new(),
        before_rate: 1000.0,
        steps,
        groups: Vec::new(),
        seconds: 0.0,
        patience_s: 20.0,
        again: false,
        tun: false,
    }
}

fn session() -> Step {
    Step::Session(SessionStep { dnn: None, s_nssai: None, pdu_session_type: SessionType::Ipv4 })
}

fn runner(playground: &Playground, scenario: Scenario) -> RunnerConfig {
    RunnerConfig {
        amf: vec![playground.amf()],
        amf_port: 38412,
        sctp: Mode::Auto,
        sctp_udp_ports: (9900, 9899),
        gnbs: playground.gnb_places(),
        ues: playground.ues(),
        scenario,
        seed: 1,
        namespace: None,
        hold: false,
        spin: Duration::from_millis(1),
        hop_delay: Duration::ZERO,
    }
}

/// CPU time of all threads of a process, with system calls and the softirqs that are accounted to it.
fn cpu_time(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let ran = tasks.filter_map(|t| fs::read_to_string(t.path().join("schedstat")).ok());
    let nanos = ran.filter_map(|s| s.split(' ').next()?.parse::<u64>().ok()).sum();
    Duration::from_nanos(nanos)
}

/// Resident octets of a process.
fn resident(pid: u32) -> u64 {
    let path = PathBuf::from(format!("/proc/{pid}/status"));
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
