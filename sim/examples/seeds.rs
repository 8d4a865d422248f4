//! Many nights: `cargo run --release -p whimbrel-sim --example seeds -- COUNT [FIRST]`.
//!
//! Each seed is one night in the worst network, checked after every step, healed in the morning, and replayed phone by
//! phone from every idle point. A seed that fails is printed with the command that runs it again; the exit status says
//! whether any did.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Arc;

use whimbrel_sim::{Faults, default_config, morning, night};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u64>());
    let (Ok(count), Ok(first)) = (arguments.next().unwrap_or(Ok(100)), arguments.next().unwrap_or(Ok(0)))
    else {
        eprintln!("usage: seeds [COUNT [FIRST]]");
        return ExitCode::FAILURE;
    };
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
