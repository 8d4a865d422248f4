//! Many chaos runs: `./x sim --chaos-runs N [--from S] [--region|--cta-replica]`.
//!
//! Each seed is one run in a network with faults. The invariants are checked after every step; at the end the faults stop, and UEs, gNBs,
//! core and UPF must agree; then each UE is replayed from every idle point. With `--region` CPFs run the UEs and are lost one after the
//! other, in every third run with messages between them; with `--cta-replica` the CTA is lost too. A seed fails as well if a UE had to
//! register again although a replica had its state, or had had the time to get it (`lost_all_holders` counts the others). A failing seed
//! is printed with the command that runs it again; the exit status is 1 if any failed. One thread per processor.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use whimbrel_resilience::ReplicationCounters;
use whimbrel_sim::{
    CtaLoss, Faults, LostUes, Sim, chaos_run, chaos_run_in_region, chaos_run_with_cta_replica,
    chaos_run_with_lossy_links, default_config, heal_and_verify,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Alone,
    Region,
    CtaReplica,
}

impl Kind {
    /// The run of a seed.
    fn run(self, seed: u64) -> Sim {
        let (faults, backups) = (Faults::worst(), 1 + (seed % 2) as usize);
        match self {
            Self::Alone => chaos_run(seed, faults),
            Self::Region if seed.is_multiple_of(3) => chaos_run_with_lossy_links(seed, faults, backups, 200),
            Self::Region => chaos_run_in_region(seed, faults, backups),
            Self::CtaReplica => {
                chaos_run_with_cta_replica(seed, faults, backups, Some(CtaLoss::ALL[seed as usize % 5]))
            }
        }
    }

    fn argument(self) -> &'static str {
        match self {
            Self::Alone => "",
            Self::Region => " --region",
            Self::CtaReplica => " --cta-replica",
        }
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
    let Some((runs, from, kind)) = options() else {
        eprintln!("usage: chaos_runs N [--from S] [--region|--cta-replica]");
        return ExitCode::FAILURE;
    };
    let (next, totals) = (AtomicU64::new(from), Mutex::new(Totals::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::disallowed_methods, reason = "seeds are independent of one another")]
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(kind, from.saturating_add(runs), &next, &totals));
        }
    });
    let t = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{{\"bench\": \"chaos_runs\", \"figures\": {{\"runs\": {runs}, \"from\": {from}, \"procedures\": {}, \"inputs\": {}, \
         \"cpfs_lost\": {}, \"ctas_lost\": {}, \"taken_over\": {}, \"lost\": {}, \"lost_all_holders\": {}, \"failed\": {}}}}}",
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

fn options() -> Option<(u64, u64, Kind)> {
    let (mut runs, mut from, mut kind) = (100, 0, Kind::Alone);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--from" => from = arguments.next()?.parse().ok()?,
            "--region" => kind = Kind::Region,
            "--cta-replica" => kind = Kind::CtaReplica,
            number => runs = number.parse().ok()?,
        }
    }
    Some((runs, from, kind))
}

fn work(kind: Kind, until: u64, next: &AtomicU64, totals: &Mutex<Totals>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= until {
            return;
        }
        let ran = catch_unwind(|| one(kind, seed));
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        match ran {
            Ok((inputs, procedures, replicated, lost, takeovers)) => {
                if lost.lost_all_holders > 0 {
                    println!("seed {seed}: {} UEs lost all who had their state", lost.lost_all_holders);
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
                eprintln!("seed {seed} fails: ./x sim --chaos-runs 1 --from {seed}{}", kind.argument());
            }
        }
    }
}

/// One run, and its end.
fn one(kind: Kind, seed: u64) -> (u64, u64, ReplicationCounters, LostUes, u64) {
    let mut net = kind.run(seed);
    heal_and_verify(&mut net);
    let replicated = net.cta().replication_counters();
    assert_eq!(replicated.diverged, 0, "a replay gave other octets");
    assert_eq!(replicated.checkpoint_acks_refused, 0, "a correct CPF was reported as faulty");
    let lost = net.lost_ues();
    assert_eq!(lost.unexplained, 0, "UEs registered again although a replica had their state");
    assert_eq!(lost.lost_all_holders, replicated.lost, "each lost UE was reported");
    let inputs = if kind == Kind::Alone {
        let config = Arc::new(default_config());
        let ues: Vec<_> = net.recorder().contexts().map(|(p, _)| p).collect();
        let replayed: usize = ues.iter().map(|&p| net.recorder().replay(p, &config)).sum();
        assert!(replayed > 0, "something was replayed");
        net.recorder().inputs()
    } else {
        net.inputs_taken()
    };
    (inputs, net.tally().procedures(), replicated, lost, net.takeovers())
}
