//! Many chaos runs: `./x sim --chaos-runs N [--from S] [--region|--cta-replica] [--replicas N] [--worst]`.
//!
//! Each seed is one run, with the kinds and rates of faults that the seed decides, or with `--worst` always the most. The invariants are checked after every step; at the end the faults stop, and UEs, gNBs,
//! core and UPF must agree; then each UE is replayed from every idle point. With `--region` CPFs run the UEs; they are lost, and links
//! between them and to the CTA are cut; with `--cta-replica` the CTA is lost too, or cut off from its replica. A seed fails as well if a UE had to
//! register again although a replica had its state, or had had the time to get it (`lost_all_holders` counts the others). A failing seed
//! is printed with the command that runs it again and its faults; the exit status is 1 if any failed. One thread per processor.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use whimbrel_resilience::ReplicationCounters;
use whimbrel_sim::{ChaosRun, Deployment, LostUes, default_config, heal_and_verify};

/// What runs the UEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Single,
    Region,
    CtaReplica,
}

#[derive(Clone, Copy)]
struct Options {
    runs: u64,
    from: u64,
    kind: Kind,
    /// Replicas per UE; one in even runs and two in odd ones, if not given.
    replicas: Option<usize>,
    /// The most faults, instead of those of the seed.
    worst: bool,
}

impl Options {
    fn run(self, seed: u64) -> ChaosRun {
        let replicas = self.replicas.unwrap_or(1 + (seed % 2) as usize);
        let deployment = match self.kind {
            Kind::Single => Deployment::Single,
            Kind::Region => Deployment::Region(replicas),
            Kind::CtaReplica => Deployment::Replicated(replicas),
        };
        if self.worst { ChaosRun::worst(seed, deployment) } else { ChaosRun::new(seed, deployment) }
    }
}

#[derive(Default)]
struct Totals {
    failed: u64,
    inputs: u64,
    procedures: u64,
    replicated: ReplicationCounters,
    lost_all_holders: u64,
    takeovers: u64,
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("usage: chaos_runs N [--from S] [--region|--cta-replica] [--replicas N] [--worst]");
        return ExitCode::FAILURE;
    };
    let (next, totals) = (AtomicU64::new(options.from), Mutex::new(Totals::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::disallowed_methods, reason = "seeds are independent of one another")]
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(options, &next, &totals));
        }
    });
    let t = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{{\"bench\": \"chaos_runs\", \"figures\": {{\"runs\": {}, \"from\": {}, \"procedures\": {}, \"inputs\": {}, \
         \"cpfs_lost\": {}, \"ctas_lost\": {}, \"taken_over\": {}, \"lost\": {}, \"lost_all_holders\": {}, \"failed\": {}}}}}",
        options.runs,
        options.from,
        t.procedures,
        t.inputs,
        t.replicated.cpfs_lost,
        t.takeovers,
        t.replicated.taken_over,
        t.replicated.lost,
        t.lost_all_holders,
        t.failed
    );
    if t.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options() -> Option<Options> {
    let mut options = Options { runs: 100, from: 0, kind: Kind::Single, replicas: None, worst: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--from" => options.from = arguments.next()?.parse().ok()?,
            "--region" => options.kind = Kind::Region,
            "--cta-replica" => options.kind = Kind::CtaReplica,
            "--replicas" => options.replicas = Some(arguments.next()?.parse().ok()?),
            "--worst" => options.worst = true,
            number => options.runs = number.parse().ok()?,
        }
    }
    Some(options)
}

fn work(options: Options, next: &AtomicU64, totals: &Mutex<Totals>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= options.from.saturating_add(options.runs) {
            return;
        }
        let run = options.run(seed);
        if options.runs == 1 {
            println!("{run}");
        }
        let ran = catch_unwind(|| one(&run));
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        match ran {
            Ok((inputs, procedures, replicated, lost, takeovers)) => {
                if lost.lost_all_holders > 0 {
                    println!("seed {seed}: {} UEs lost all holders of their state", lost.lost_all_holders);
                }
                totals.lost_all_holders += lost.lost_all_holders;
                totals.inputs += inputs;
                totals.procedures += procedures;
                totals.replicated.cpfs_lost += replicated.cpfs_lost;
                totals.replicated.taken_over += replicated.taken_over;
                totals.replicated.lost += replicated.lost;
                totals.takeovers += takeovers;
            }
            Err(_) => {
                totals.failed += 1;
                eprintln!("seed {seed} fails: {run}");
            }
        }
    }
}

/// One run, and its end.
fn one(run: &ChaosRun) -> (u64, u64, ReplicationCounters, LostUes, u64) {
    let mut net = run.run();
    heal_and_verify(&mut net);
    let replicated = net.cta().replication_counters();
    assert_eq!(replicated.diverged, 0, "a replay gave other octets");
    assert_eq!(replicated.checkpoint_acks_refused, 0, "a correct CPF was reported as faulty");
    let lost = net.lost_ues();
    assert_eq!(lost.unexplained, 0, "UEs registered again although a replica had their state");
    assert_eq!(lost.lost_all_holders, replicated.lost, "each lost UE was reported");
    let inputs = if run.deployment == Deployment::Single {
        let config = Arc::new(default_config());
        let ues: Vec<_> = net.recorder().contexts().map(|(p, _)| p).collect();
        let replayed: usize = ues.iter().map(|&p| net.recorder().replay(p, &config)).sum();
        assert!(replayed > 0, "inputs were replayed");
        net.recorder().inputs()
    } else {
        net.inputs_taken()
    };
    (inputs, net.tally().procedures(), replicated, lost, net.takeovers())
}
