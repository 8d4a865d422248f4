//! Figures 15 and 16: what replicas and the log cost an attach.

use std::io;
use std::path::Path;

use serde_json::json;

use super::super::finish;
use super::Options;
use super::load::Procedure;
use super::scheme::{LOG_MIRRORED, LOG_ONLY, NO_REPLICA, OURS, OURS_WHOLE, PER_MESSAGE, Scheme};
use super::sweep::{compare, draw, json as points, sweep};

/// What log and per-procedure replicas may add to the median, in percent.
const GOAL_PERCENT: f64 = 5.0;

/// Figure 15.
pub(crate) fn fig15(options: &Options, plots: &Path) -> io::Result<()> {
    println!("figure 15: attach, and when the phone's state goes to its {} backups", OURS.backups);
    println!("paper: at every message has the highest median; at every procedure slightly more than never");
    figure(
        options,
        plots,
        "fig15",
        "Replication and attach (Neutrino, figure 15)",
        &[NO_REPLICA, PER_MESSAGE, OURS, OURS_WHOLE],
    )
}

/// Figure 16.
pub(crate) fn fig16(options: &Options, plots: &Path) -> io::Result<()> {
    println!("figure 16: attach, with the log at the aggregator and without");
    println!(
        "paper: the log's cost cannot be seen; it has no mirror, so that an aggregator that is lost takes its log with it"
    );
    figure(
        options,
        plots,
        "fig16",
        "Message logging and attach (Neutrino, figure 16)",
        &[NO_REPLICA, LOG_ONLY, LOG_MIRRORED],
    )
}

fn figure(options: &Options, plots: &Path, name: &str, title: &str, schemes: &[Scheme]) -> io::Result<()> {
    println!("{}\n", options.deployment());
    let rates: &[f64] =
        if options.quick { &[2e3, 5e3] } else { &[2e3, 10e3, 20e3, 30e3, 40e3, 50e3, 60e3, 80e3] };
    let mut all = sweep(schemes, Procedure::Attach, rates, options);
    let half = all[0].knee() / 2.0;
    let compared = compare(&mut all, Procedure::Attach, half, options);
    compared.print(&all, 0, "");
    let more = |p50: &[f64], i: usize| (p50[i] / p50[0] - 1.0) * 100.0;
    for (i, swept) in all.iter().enumerate().skip(1) {
        let aim = match swept.scheme.mirrored {
            true => "each input goes to the mirror and is confirmed, before anything leaves".to_owned(),
            false => format!("aim: under {GOAL_PERCENT} %"),
        };
        println!(
            "{}: {:+.1} % of the median, {:+.1} % without links ({aim})",
            swept.scheme.name,
            more(&compared.p50, i),
            more(&compared.p50_without_links, i),
        );
    }
    draw(&all, title, plots, &format!("neutrino-{name}"))?;
    finish(
        name,
        &json!({
            "hop_us": options.hop_us,
            "phones": options.phones(),
            "schemes": points(&all),
            "half_of_knee": compared.json(&all, 0),
        }),
    );
    Ok(())
}
