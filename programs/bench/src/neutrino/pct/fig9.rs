//! Figure 9: attach under bursts, UEs that all begin at once.

use std::io;
use std::path::Path;

use serde_json::json;

use super::super::finish;
use super::Options;
use super::load::{Procedure, burst};
use super::scheme::{EXISTING, EXISTING_LEAN, OURS};
use super::sweep::{ready, round};
use crate::plot::{Axis, Plot, Series};

/// The start of a burst is spread over this, in nanoseconds: UEs' clocks with the same set time.
const WITHIN_NS: u64 = 10_000_000;

pub(crate) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!("figure 9: attach, bursty traffic: so many UEs begin within {} ms", WITHIN_NS / 1_000_000);
    println!("paper: queues build up at once for all; Neutrino is up to 2 times as fast as an existing EPC");
    println!("{}\n", options.deployment());
    let most = options.ues();
    let bursts: Vec<u32> = [16, 8, 4, 2, 1].map(|part| most / part).into();
    let schemes = [OURS, EXISTING, EXISTING_LEAN];
    println!("median and 99th percentile in microseconds, by UEs that begin");
    println!("{:>9}{}", "", schemes.map(|s| format!("{:>28}", s.name)).concat());
    let mut series: Vec<Series> = schemes.map(|s| Series { name: s.name.into(), points: Vec::new() }).into();
    let mut rows = Vec::new();
    let mut best: f64 = 0.0;
    for ues in bursts {
        let times = schemes.map(|scheme| {
            let mut region = ready(scheme, Procedure::Attach, ues);
            region.hop_ns = options.hop_ns();
            region.measure(Procedure::Attach, &burst(ues, WITHIN_NS), &[]);
            region.progress.times()
        });
        let p50 = times.each_ref().map(|t| t.quantile(0.5));
        let cells = times.each_ref().map(|t| {
            let failed = if t.failed > 0 { format!(" {} failed", t.failed) } else { String::new() };
            format!("{:>28}", format!("{:.0} {:.0}{failed}", t.quantile(0.5), t.quantile(0.99)))
        });
        println!("{ues:>9}{}", cells.concat());
        best = best.max(p50[1] / p50[0]);
        for (series, p50) in series.iter_mut().zip(p50) {
            series.points.push((ues.into(), p50));
        }
        rows.push(json!({
            "ues": ues,
            "p50_us": p50.map(round),
            "p99_us": times.each_ref().map(|t| round(t.quantile(0.99))),
        }));
    }
    println!("\nours is up to {best:.2} times as fast as existing (paper: up to 2)");
    Plot {
        title: "Attach, bursty traffic (Neutrino, figure 9)",
        x: "UEs that begin at once",
        y: "median completion time in us",
        log_y: true,
        axis: Axis::Numbers,
        series,
    }
    .write(plots, "neutrino-fig9")?;
    finish(
        "fig9",
        &json!({ "hop_us": options.hop_us, "schemes": schemes.map(|s| s.name), "bursts": rows, "most_times_as_fast": round(best) }),
    );
    Ok(())
}
