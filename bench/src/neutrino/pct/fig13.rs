//! Figures 13 and 14: packets of a phone's sensors that come too late since the phone is handed over.

use std::io;
use std::path::Path;

use serde_json::json;
use whimbrel_sim::Rng;

use super::super::finish;
use super::Options;
use super::crowd::{Crowd, WINDOW_S, crowd};
use super::load::Procedure;
use super::scheme::{EXISTING_CHANGE, OURS_DEFAULT, OURS_FAST};
use super::sweep::round;
use crate::measure::median;
use crate::plot::{Axis, Plot, Series};

/// Packets a millisecond.
const PER_MS: f64 = 1.0;
/// Five minutes at 60 mph past cells of 500 metres.
const HANDOVERS_OF_A_DRIVE: u32 = 16;
/// Drives of which the median counts.
const DRIVES: u32 = 1001;

/// Figure 13: a car that drives itself.
pub(crate) fn fig13(options: &Options, plots: &Path) -> io::Result<()> {
    figure(options, plots, ("fig13", "self-driving car", 100.0, 2.8))
}

/// Figure 14: a headset.
pub(crate) fn fig14(options: &Options, plots: &Path) -> io::Result<()> {
    figure(options, plots, ("fig14", "virtual reality", 16.0, 2.5))
}

fn figure(
    options: &Options,
    plots: &Path,
    (name, what, budget_ms, paper): (&str, &str, f64, f64),
) -> io::Result<()> {
    println!(
        "{name}: {what}: packets, 1,000 a second, that are older than {budget_ms} ms at the application, by how many phones are handed over"
    );
    println!(
        "paper: with one handover and with many, Neutrino misses up to {paper} times fewer than an existing EPC"
    );
    println!("{}", options.deployment());
    println!(
        "       phones are handed over to another control function for {WINDOW_S} s at each rate; what one of them has to send meanwhile waits until its"
    );
    println!(
        "       handover is done, as in the paper. (A 5G phone keeps its cell until HANDOVER COMMAND: what is between is then the radio's alone.)"
    );
    println!("       Afterwards each sends a packet through its new gNB and the UPF's pipeline\n");
    let schemes = [OURS_FAST, EXISTING_CHANGE, OURS_DEFAULT];
    let rates: &[f64] = if options.quick { &[20e3] } else { &[20e3, 60e3, 100e3, 140e3, 180e3] };
    let mut series: Vec<Series> = schemes.map(|s| Series { name: s.name.into(), points: Vec::new() }).into();
    let mut rows = Vec::new();
    let mut most: f64 = 0.0;
    println!(
        "missed in one handover (mean) and in a drive with {HANDOVERS_OF_A_DRIVE} (median); median and 99th percentile of the handover in ms"
    );
    println!("{:>9}{}", "", schemes.map(|s| format!("{:>36}", s.name)).concat());
    for &per_s in rates {
        let crowds =
            schemes.map(|scheme| crowd(&mut None, (scheme, Procedure::Handover), options, (per_s, 0)));
        let missed = crowds.each_ref().map(|c| missed(c, budget_ms));
        let cells = [0, 1, 2].map(|i| {
            let (ms, (one, drive)) = (|q| crowds[i].times.quantile(q) / 1000.0, missed[i]);
            format!("{:>36}", format!("{one:.1} {drive:.0}; {:.2} {:.1}", ms(0.5), ms(0.99)))
        });
        println!("{per_s:>9}{}", cells.concat());
        for (scheme, crowd) in schemes.iter().zip(&crowds) {
            if crowd.times.failed + crowd.cut_off > 0 {
                println!(
                    "          {}: {} failed, {} without data",
                    scheme.name, crowd.times.failed, crowd.cut_off
                );
            }
        }
        if missed[0].0 > 0.0 {
            most = most.max(missed[1].0 / missed[0].0);
        }
        for (series, (one, _)) in series.iter_mut().zip(missed) {
            series.points.push((per_s / 1000.0, one));
        }
        rows.push(json!({
            "per_s": per_s,
            "missed_in_one": missed.map(|(one, _)| round(one)),
            "missed_in_a_drive": missed.map(|(_, drive)| round(drive)),
            "p50_us": crowds.each_ref().map(|c| round(c.times.quantile(0.5))),
            "p99_us": crowds.each_ref().map(|c| round(c.times.quantile(0.99))),
            "incomplete": crowds.each_ref().map(|c| c.times.failed),
            "cut_off": crowds.each_ref().map(|c| c.cut_off),
        }));
    }
    match most > 0.0 {
        true => println!(
            "\nwhere ours misses any, existing misses up to {most:.1} times as many (paper: up to {paper})"
        ),
        false => println!("\nours misses none (paper: up to {paper} times fewer than existing)"),
    }
    Plot {
        title: &format!("Late packets of a handover, {what} (Neutrino, {name})"),
        x: "thousand handovers a second",
        y: "packets that miss their deadline",
        log_y: false,
        axis: Axis::Numbers,
        series,
    }
    .write(plots, &format!("neutrino-{name}"))?;
    finish(
        name,
        &json!({
            "hop_us": options.hop_us,
            "budget_ms": budget_ms,
            "schemes": schemes.map(|s| s.name),
            "rates": rows,
            "most_times_fewer": (most > 0.0).then(|| round(most)),
        }),
    );
    Ok(())
}

/// Packets that one handover makes too late, on average over when the first comes, and those of a drive.
fn missed(crowd: &Crowd, budget_ms: f64) -> (f64, f64) {
    let late = |us: f64| (us / 1000.0 - budget_ms).max(0.0) * PER_MS;
    let mut rng = Rng::new(5);
    let mut drive = || (0..HANDOVERS_OF_A_DRIVE).map(|_| late(crowd.times.any(&mut rng))).sum();
    (crowd.times.mean(late), median((0..DRIVES).map(|_| drive()).collect()))
}
