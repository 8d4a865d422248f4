//! Figures 13 and 14: packets of a UE's sensor that come too late since the UE is handed over (Neutrino §6.6).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::json;

use super::super::finish;
use super::Options;
use super::apps::{App, PERIOD_NS, Sensor};
use super::crowd::{WINDOW_S, crowd, size};
use super::load::{Procedure, Times};
use super::scheme::{EXISTING_CHANGE, OURS_DEFAULT, OURS_FAST, Scheme};
use super::sweep::{ready, round};
use crate::measure::median;
use crate::plot::{Axis, Plot, Series};

/// Five minutes at 60 mph past cells of 500 metres.
const HANDOVERS_OF_A_DRIVE: u64 = 16;
/// UEs of a crowd that have a sensor, at least.
const SENSORS: u32 = 200;

/// What became of the packets of a scheme's sensors at one rate.
struct Streams {
    /// Completion times of the first handovers.
    times: Times,
    /// Packets that were sent around the first handover of each UE, and those that missed their deadline on average.
    sent: u64,
    one: f64,
    /// Those of a drive, in the median.
    drive: f64,
    /// Packets of all drives that never came.
    lost: u64,
    /// Packets that missed it in one more handover, through the cell that the UE keeps until HANDOVER COMMAND.
    by_5g: u64,
}

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
        "{name}: {what}: packets, 1,000 a second, that the application does not get within {budget_ms} ms, by how many UEs are handed over"
    );
    println!(
        "paper: with one handover and with many, Neutrino misses up to {paper} times fewer than an existing EPC"
    );
    println!("{}", options.deployment());
    println!(
        "       UEs are handed over to another CPF for {WINDOW_S} s at each rate, {HANDOVERS_OF_A_DRIVE} times one after the other; of at least {SENSORS} each packet goes through"
    );
    println!(
        "       the tunnel of the gNB at which the UE is and through the UPF's pipeline to a host beside it, and its age is taken there. It waits in the"
    );
    println!(
        "       UE until the handover is done, as in the paper. In 5G a UE keeps its cell until HANDOVER COMMAND: one more handover is so\n"
    );
    let schemes = [OURS_FAST, EXISTING_CHANGE, OURS_DEFAULT];
    let rates: &[f64] = if options.quick { &[20e3] } else { &[20e3, 60e3, 140e3, 180e3] };
    let mut series: Vec<Series> = schemes.map(|s| Series { name: s.name.into(), points: Vec::new() }).into();
    let mut rows = Vec::new();
    let mut most: f64 = 0.0;
    println!(
        "missed in one handover (mean) and in a drive with {HANDOVERS_OF_A_DRIVE} (median); median and 99th percentile of the first handover in ms"
    );
    println!("{:>9}{}", "", schemes.map(|s| format!("{:>36}", s.name)).concat());
    for &per_s in rates {
        let streams = schemes.map(|scheme| drive(scheme, options, per_s, (budget_ms * 1e6) as u64));
        let cells = streams.each_ref().map(|s| {
            let ms = |q| s.times.quantile(q) / 1000.0;
            format!("{:>36}", format!("{:.1} {:.0}; {:.2} {:.1}", s.one, s.drive, ms(0.5), ms(0.99)))
        });
        println!("{per_s:>9}{}", cells.concat());
        for (scheme, s) in schemes.iter().zip(&streams) {
            if s.times.failed as u64 + s.lost > 0 {
                let name = scheme.name;
                println!(
                    "          {name}: {} handovers failed, {} packets were lost",
                    s.times.failed, s.lost
                );
            }
        }
        if streams[0].one > 0.0 {
            most = most.max(streams[1].one / streams[0].one);
        }
        for (series, s) in series.iter_mut().zip(&streams) {
            series.points.push((per_s / 1000.0, s.one));
        }
        rows.push(json!({
            "per_s": per_s,
            "sent": streams.each_ref().map(|s| s.sent),
            "missed_in_one": streams.each_ref().map(|s| round(s.one)),
            "missed_in_a_drive": streams.each_ref().map(|s| round(s.drive)),
            "lost": streams.each_ref().map(|s| s.lost),
            "missed_with_the_cell_of_5g": streams.each_ref().map(|s| s.by_5g),
            "p50_us": streams.each_ref().map(|s| round(s.times.quantile(0.5))),
            "p99_us": streams.each_ref().map(|s| round(s.times.quantile(0.99))),
            "incomplete": streams.each_ref().map(|s| s.times.failed),
        }));
        let by_5g = streams.each_ref().map(|s| s.by_5g.to_string()).join(", ");
        println!("          through the cell that a 5G UE keeps, all of them together missed: {by_5g}");
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
            "handovers_of_a_drive": HANDOVERS_OF_A_DRIVE,
            "schemes": schemes.map(|s| s.name),
            "rates": rows,
            "most_times_fewer": (most > 0.0).then(|| round(most)),
        }),
    );
    Ok(())
}

/// All UEs of a crowd are handed over at this rate, again and again, and then once as in 5G.
fn drive(scheme: Scheme, options: &Options, per_s: f64, budget: u64) -> Streams {
    let ues = size(options, per_s);
    let mut region = ready(scheme, Procedure::Handover, ues);
    region.user_plane.host_ns = options.hop_ns();
    let every = (ues / SENSORS).max(1);
    // The first packet comes at any time within a period of the handover's beginning.
    let phase = |n: u32| u64::from(n / every) * PERIOD_NS / u64::from(ues / every + 1);
    let sensor = |n: u32| n.is_multiple_of(every).then(|| (phase(n), App::Sensor(Sensor::default())));
    let mut streams = Streams { times: Times::default(), sent: 0, one: 0.0, drive: 0.0, lost: 0, by_5g: 0 };
    let mut drives: BTreeMap<u32, u64> = BTreeMap::new();
    for turn in 0..=HANDOVERS_OF_A_DRIVE {
        let as_in_the_paper = turn < HANDOVERS_OF_A_DRIVE;
        region.user_plane.waits_for_procedures = as_in_the_paper;
        let apps = crowd(&mut region, Procedure::Handover, options, (per_s, 3 + turn), sensor);
        let sensors = apps.iter().filter_map(|(n, app)| match app {
            App::Sensor(sensor) => Some((n, sensor)),
            App::Fetch(_) => None,
        });
        let mut missed = 0;
        for (n, sensor) in sensors {
            let (sent, late) = sensor.missed(budget);
            missed += late;
            streams.lost += sensor.lost();
            if turn == 0 {
                streams.sent += sent;
            }
            if as_in_the_paper {
                *drives.entry(*n).or_default() += late;
            }
        }
        if turn == 0 {
            (streams.times, streams.one) =
                (region.progress.times(), missed as f64 / apps.len().max(1) as f64);
        }
        if !as_in_the_paper {
            streams.by_5g = missed;
        }
        region.rest();
    }
    streams.drive = median(drives.into_values().map(|missed| missed as f64).collect());
    streams
}
