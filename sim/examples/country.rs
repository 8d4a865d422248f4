//! Many countries: `./x sim --seeds N [--from S] [--minutes M] [--county|--village] [--region|--cta-replica]`.
//!
//! Each seed is a country with two hundred gNBs and two thousand UEs, or with `--county` the small one of the test suite, or
//! with `--village` one of thirty UEs. With `--region` CPFs run its UEs and are lost at moments that the seed
//! chooses; with `--cta-replica` the CTA is lost too. In the evening UEs, gNBs, core and UPF agree. A seed that fails is printed with the command that runs it again; the exit status says whether any did. Two threads, or as
//! many as there are processors.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use whimbrel_resilience::ReplicationCounters;
use whimbrel_sim::{Country, Plan, Tally};

#[derive(Clone)]
struct Options {
    seeds: u64,
    from: u64,
    minutes: u64,
    size: Size,
    cpfs: Governed,
}

/// How large a country is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Country,
    County,
    Village,
}

/// Who runs its UEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Governed {
    /// The CTA itself.
    Alone,
    /// CPFs, which are lost.
    Region,
    /// The same, and the CTA is lost as well.
    CtaReplica,
}

impl Options {
    fn plan(&self) -> Plan {
        let plan = match self.size {
            Size::Country => Plan::country(),
            Size::County => Plan::county(),
            Size::Village => Plan::village(),
        };
        match self.cpfs {
            Governed::Alone => plan,
            Governed::Region => plan.governed(false),
            Governed::CtaReplica => plan.governed(true),
        }
    }

    /// The command that runs one seed again.
    fn again(&self, seed: u64) -> String {
        let size = match self.size {
            Size::Country => "",
            Size::County => " --county",
            Size::Village => " --village",
        };
        let cpfs = match self.cpfs {
            Governed::Alone => "",
            Governed::Region => " --region",
            Governed::CtaReplica => " --cta-replica",
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
            "usage: country [--seeds N] [--from S] [--minutes M] [--county|--village] [--region|--cta-replica]"
        );
        return ExitCode::FAILURE;
    };
    let begun = clock();
    let (next, totals) = (AtomicU64::new(options.from), Mutex::new(Totals::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::disallowed_methods, reason = "seeds have nothing to do with one another")]
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
    let mut options = Options { seeds: 1, from: 0, minutes: 60, size: Size::Country, cpfs: Governed::Alone };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next()?.parse::<u64>().ok();
        match argument.as_str() {
            "--seeds" => options.seeds = number()?,
            "--from" => options.from = number()?,
            "--minutes" => options.minutes = number()?,
            "--county" => options.size = Size::County,
            "--village" => options.size = Size::Village,
            "--region" => options.cpfs = Governed::Region,
            "--cta-replica" => options.cpfs = Governed::CtaReplica,
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
            let mut country = Country::new(seed, plan);
            country.run(Duration::from_secs(options.minutes * 60));
            country.evening();
            let net = &mut country.net;
            let replicated = net.cta().replication_counters();
            assert_eq!(replicated.diverged, 0, "a replay led elsewhere");
            assert_eq!(replicated.checkpoint_acks_refused, 0, "who does not lie is taken for a liar");
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

#[expect(clippy::disallowed_methods, reason = "how long it took is told at the end")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}
