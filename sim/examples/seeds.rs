//! Many nights: `cargo run --release -p whimbrel-sim --example seeds -- COUNT [FIRST [BACKUPS]]`.
//!
//! With BACKUPS, at the control functions of a region, which are lost one after the other.
//!
//! Each seed is one night in the worst network, checked after every step, healed in the morning, and replayed phone by
//! phone from every idle point. A seed that fails is printed with the command that runs it again; the exit status says
//! whether any did.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Arc;

use whimbrel_resilience::Replicated;
use whimbrel_sim::{Faults, default_config, morning, night, night_in_region};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u64>());
    let mut next = |default| arguments.next().unwrap_or(Ok(default));
    let (Ok(count), Ok(first), backups) = (next(100), next(0), arguments.next()) else {
        eprintln!("usage: seeds [COUNT [FIRST [BACKUPS]]]");
        return ExitCode::FAILURE;
    };
    if let Some(Ok(backups)) = backups {
        return in_region(count, first, backups as usize);
    }
    let config = Arc::new(default_config());
    let (mut failed, mut inputs) = (0u64, 0u64);
    for seed in first..first.saturating_add(count) {
        let ran = catch_unwind(|| {
            let mut net = night(seed, Faults::worst());
            morning(&mut net);
            let phones: Vec<_> = net.recorder().phones().map(|(p, _)| p).collect();
            let replayed: usize = phones.iter().map(|&p| net.recorder().replay(p, &config)).sum();
            assert!(replayed > 0, "something was replayed");
            net.recorder().inputs()
        });
        match ran {
            Ok(n) => inputs += n,
            Err(_) => {
                failed += 1;
                eprintln!("seed {seed} fails: cargo run -p whimbrel-sim --example seeds -- 1 {seed}");
            }
        }
    }
    println!(
        "{{\"bench\": \"seeds\", \"figures\": {{\"seeds\": {count}, \"inputs\": {inputs}, \"failed\": {failed}}}}}"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The same nights at the control functions of a region, which are lost one after the other.
fn in_region(count: u64, first: u64, backups: usize) -> ExitCode {
    let (mut failed, mut sum) = (0u64, Replicated::default());
    for seed in first..first.saturating_add(count) {
        let ran = catch_unwind(|| {
            let mut net = night_in_region(seed, Faults::worst(), backups);
            morning(&mut net);
            net.cta().replicated()
        });
        match ran {
            Ok(one) => {
                sum.cpfs_lost += one.cpfs_lost;
                sum.taken_over += one.taken_over;
                sum.replayed += one.replayed;
                sum.tried += one.tried;
                sum.lost += one.lost;
                sum.diverged += one.diverged;
            }
            Err(_) => {
                failed += 1;
                eprintln!(
                    "seed {seed} fails: cargo run -p whimbrel-sim --example seeds -- 1 {seed} {backups}"
                );
            }
        }
    }
    println!(
        "{{\"bench\": \"seeds\", \"figures\": {{\"seeds\": {count}, \"backups\": {backups}, \"cpfs_lost\": {}, \
         \"taken_over\": {}, \"replayed\": {}, \"tried\": {}, \"lost\": {}, \"diverged\": {}, \"failed\": {failed}}}}}",
        sum.cpfs_lost, sum.taken_over, sum.replayed, sum.tried, sum.lost, sum.diverged
    );
    if failed == 0 && sum.diverged == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
