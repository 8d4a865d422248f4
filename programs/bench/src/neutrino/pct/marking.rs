//! Which UEs must register again when a CPF dies in a UE's second procedure, while the state after the first one is on its way to backups
//! in other regions: under the paper's rule (Neutrino §4.2.4, point 4: such a backup is outdated) and under ours (the log leads on from
//! what it holds).

use serde_json::{Value, json};
use whimbrel_sim::Rng;

use super::Options;
use super::load::{Procedure, Times, uniform};
use super::scheme::{OURS, OURS_MARKED, Scheme};
use super::sweep::{ready, round};

/// Handovers that begin before the loss and after it, in nanoseconds, and their rate.
const BEFORE_NS: u64 = 2_000_000;
const AFTER_NS: u64 = 1_000_000;
const PER_S: f64 = 20e3;
/// A UE has its service request between so long before its handover and so long, in nanoseconds.
const PAUSE_NS: [u64; 2] = [500_000, 10_000_000];
/// How much longer states take to backups, in milliseconds: those beside the CPF that dies, and those of another region.
const DISTANCES_MS: [u64; 3] = [0, 3, 10];

/// What became of the UEs of the CPFs that died.
struct Became {
    /// Those that had requested service by then, and how many of them registered again.
    begun: usize,
    again: u64,
    /// Completion times of those that were in the middle of it.
    times: Times,
}

/// Prints both rules beside each other, and gives what was shown.
pub(super) fn compare(options: &Options) -> Value {
    let schemes = [OURS, OURS_MARKED];
    let losses = if options.quick { 1 } else { 20 };
    println!(
        "\nues that ask for service {} to {} ms before a handover; a CPF dies meanwhile: how many of its UEs that had begun register again, and the \
         median of those that it hit in the middle of something, by how much longer states take to backups",
        PAUSE_NS[0] as f64 / 1e6,
        PAUSE_NS[1] / 1_000_000,
    );
    let mut rows = Vec::new();
    for ms in DISTANCES_MS {
        let became = schemes.map(|scheme| lose(scheme, options, ms * 1_000_000, losses));
        let cells = schemes.iter().zip(&became).map(|(scheme, b)| {
            let median = match b.times.len() {
                0 => "none in the middle".to_owned(),
                hit => format!("{:.0} us of {hit}", b.times.quantile(0.5)),
            };
            format!("; {}: {} of {}, {median}", scheme.name, b.again, b.begun)
        });
        println!("{ms:>6} ms{}", cells.collect::<String>());
        rows.push(json!({
            "to_backups_ms": ms,
            "had_begun": became.each_ref().map(|b| b.begun),
            "register_again": became.each_ref().map(|b| b.again),
            "hit": became.each_ref().map(|b| b.times.len()),
            "p50_us": became.each_ref().map(|b| round(b.times.quantile(0.5))),
            "incomplete": became.each_ref().map(|b| b.times.failed),
        }));
    }
    json!({ "schemes": schemes.map(|s| s.name), "distances": rows })
}

fn lose(scheme: Scheme, options: &Options, to_backups_ns: u64, losses: u64) -> Became {
    let count = (PER_S * (BEFORE_NS + AFTER_NS) as f64 / 1e9) as u32;
    let [shortest, longest] = PAUSE_NS;
    let (mut times, mut begun, mut again) = (Vec::new(), 0, 0);
    for loss in 0..losses {
        let mut region = ready(scheme, Procedure::Handover, count);
        region.release_all();
        (region.hop_ns, region.to_backups_ns) = (options.hop_ns(), to_backups_ns);
        let mut rng = Rng::new(loss);
        let mut begins: Vec<_> = uniform(&mut rng, 0..count, count, PER_S)
            .into_iter()
            .flat_map(|(at, ue)| {
                let pause = shortest + rng.below(longest - shortest);
                let service = (at + longest - pause, ue, Procedure::ServiceRequest);
                [service, (at + longest, ue, Procedure::Handover)]
            })
            .collect();
        begins.sort_unstable_by_key(|(at, ..)| *at);
        let before = region.registered_again();
        region.measure_each(&begins, &[(longest + BEFORE_NS, region.any_cpf())]);
        times.extend(region.loss.hit.keys().map(|ue| region.progress.time(*ue)));
        begun += region.loss.begun;
        again += region.registered_again() - before;
    }
    Became { begun, again, times: times.into_iter().collect() }
}
