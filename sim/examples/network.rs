//! Long runs of whole networks: `./x sim --seeds N [--from S] [--minutes M] [--size small|medium|large] [--region|--cta-replica]`.
//!
//! Each seed is a network: large (the default) has two hundred gNBs and two thousand UEs, medium is that of the test suite, small has
//! thirty UEs. With `--region` CPFs run the UEs and are lost at moments that the seed chooses; with `--cta-replica` the CTA is lost too. At the
//! end UEs, gNBs, core and UPF must agree. A failing seed is printed with the command that runs it again; the exit status is 1 if any
//! failed. One thread per processor.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use whimbrel_resilience::ReplicationCounters;
use whimbrel_sim::{NetworkPlan, NetworkRun, Tally};

#[derive(Clone)]
struct Options {
    seeds: u64,
    from: u64,
    minutes: u64,
    size: Size,
    cpfs: CoreKind,
}

/// How large a network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Large,
    Medium,
    Small,
}

impl Size {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "small" => Self::Small,
            "medium" => Self::Medium,
            "large" => Self::Large,
            _ => return None,
        })
    }
}

/// What runs the UEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoreKind {
    /// The CTA itself.
    Alone,
    /// CPFs, which are lost.
    Region,
    /// The same, and the CTA is lost as well.
    CtaReplica,
}

impl Options {
    fn plan(&self) -> NetworkPlan {
        let plan = match self.size {
            Size::Large => NetworkPlan::large(),
            Size::Medium => NetworkPlan::medium(),
            Size::Small => NetworkPlan::small(),
        };
        match self.cpfs {
            CoreKind::Alone => plan,
            CoreKind::Region => plan.with_cpfs(false),
            CoreKind::CtaReplica => plan.with_cpfs(true),
        }
    }

    /// The command that runs one seed again.
    fn again(&self, seed: u64) -> String {
        let size = match self.size {
            Size::Large => "",
            Size::Medium => " --size medium",
            Size::Small => " --size small",
        };
        let cpfs = match self.cpfs {
            CoreKind::Alone => "",
            CoreKind::Region => " --region",
            CoreKind::CtaReplica => " --cta-replica",
        };
        format!("./x sim --seeds 1 --from {seed} --minutes {}{size}{cpfs}", self.minutes)
    }
}

#[derive(Default)]
struct Totals {
    failed: Vec<u64>,
    inputs: u64,
    tally: Tally,
    replicated: ReplicationCounters,
    takeovers: u64,
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!(
            "usage: network [--seeds N] [--from S] [--minutes M] [--size small|medium|large] [--region|--cta-replica]"
        );
        return ExitCode::FAILURE;
    };
    let begun = clock();
    let (next, totals) = (AtomicU64::new(options.from), Mutex::new(Totals::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::disallowed_methods, reason = "seeds are independent of one another")]
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&options, &next, &totals));
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    report(&options, &totals, begun.elapsed());
    if totals.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options() -> Option<Options> {
    let mut options = Options { seeds: 1, from: 0, minutes: 60, size: Size::Large, cpfs: CoreKind::Alone };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next()?.parse::<u64>().ok();
        match argument.as_str() {
            "--seeds" => options.seeds = number()?,
            "--from" => options.from = number()?,
            "--minutes" => options.minutes = number()?,
            "--size" => options.size = Size::named(&arguments.next()?)?,
            "--region" => options.cpfs = CoreKind::Region,
            "--cta-replica" => options.cpfs = CoreKind::CtaReplica,
            _ => return None,
        }
    }
    Some(options)
}

fn work(options: &Options, next: &AtomicU64, totals: &Mutex<Totals>) {
    let plan = options.plan();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= options.from.saturating_add(options.seeds) {
            return;
        }
        let ran = catch_unwind(|| {
            let mut run = NetworkRun::new(seed, plan);
            run.run(Duration::from_secs(options.minutes * 60));
            run.heal_and_verify();
            let net = &mut run.net;
            let replicated = net.cta().replication_counters();
            assert_eq!(replicated.diverged, 0, "a replay gave other octets");
            assert_eq!(replicated.checkpoint_acks_refused, 0, "a correct CPF was reported as faulty");
            let inputs = if plan.cpfs.is_none() { net.inputs() } else { net.inputs_taken() };
            (inputs, net.tally().clone(), replicated, net.takeovers())
        });
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        match ran {
            Ok((inputs, tally, replicated, takeovers)) => {
                totals.inputs += inputs;
                totals.tally.add(&tally);
                totals.takeovers += takeovers;
                totals.replicated.cpfs_lost += replicated.cpfs_lost;
                totals.replicated.taken_over += replicated.taken_over;
                totals.replicated.lost += replicated.lost;
            }
            Err(_) => {
                totals.failed.push(seed);
                eprintln!("seed {seed} fails: {}", options.again(seed));
            }
        }
    }
}

fn report(options: &Options, totals: &Totals, took: Duration) {
    let tally = &totals.tally;
    println!("{:<32} {:>12} {:>12}", "procedure", "completed", "refused");
    let names = tally.completed.keys().chain(tally.refused.keys());
    for name in names.collect::<std::collections::BTreeSet<_>>() {
        let of = |counts: &std::collections::BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0);
        println!("{name:<32} {:>12} {:>12}", of(&tally.completed), of(&tally.refused));
    }
    println!(
        "{{\"bench\": \"sim\", \"figures\": {{\"seeds\": {}, \"from\": {}, \"procedures\": {}, \"inputs\": {}, \
         \"repeated\": {}, \"cpfs_lost\": {}, \"ctas_lost\": {}, \"taken_over\": {}, \"lost\": {}, \"failed\": {}, \
         \"seconds\": {:.1}}}}}",
        options.seeds,
        options.from,
        tally.procedures(),
        totals.inputs,
        tally.repeated,
        totals.replicated.cpfs_lost,
        totals.takeovers,
        totals.replicated.taken_over,
        totals.replicated.lost,
        totals.failed.len(),
        took.as_secs_f64()
    );
}

#[expect(clippy::disallowed_methods, reason = "the report at the end has the duration")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}
