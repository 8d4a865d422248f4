//! Figure 17: how large the CTA's log becomes, by UEs that are active at once.

use std::io;
use std::path::Path;

use serde_json::json;

use super::super::finish;
use super::Options;
use super::load::{Procedure, burst};
use super::scheme::OURS;
use super::sweep::{ready, round};
use crate::plot::{Axis, Plot, Series};

/// Octets a UE, of the paper: less than 400 MB for 200,000.
const PAPER: f64 = 2000.0;

pub(crate) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!("figure 17: the most octets that the CTA's log has had, by UEs that begin at once");
    println!("paper: less than 400 MB with 200,000 active users: {PAPER} octets each; aim: under 2 KB each");
    println!("{}\n", options.deployment());
    let kinds = [
        ("attach", Procedure::Attach),
        ("service request", Procedure::ServiceRequest),
        ("handover", Procedure::Handover),
    ];
    println!("octets in all, and of each UE");
    println!("{:>9}{}", "", kinds.map(|(name, _)| format!("{name:>24}")).concat());
    let mut series: Vec<Series> =
        kinds.map(|(name, _)| Series { name: name.into(), points: Vec::new() }).into();
    let mut rows = Vec::new();
    let mut worst: f64 = 0.0;
    for ues in [8, 4, 2, 1].map(|part| options.ues() / part) {
        let logged = kinds.map(|(_, procedure)| {
            let mut region = ready(OURS, procedure, ues);
            region.hop_ns = options.hop_ns();
            region.watches_log = true;
            if procedure == Procedure::ServiceRequest {
                region.release_all();
            }
            region.measure(procedure, &burst(ues, 0), &[]);
            region.most_logged
        });
        let each = logged.map(|octets| octets as f64 / f64::from(ues));
        worst = each.into_iter().fold(worst, f64::max);
        let cells = [0, 1, 2].map(|i| format!("{:>24}", format!("{} {:.0}", logged[i], each[i])));
        println!("{ues:>9}{}", cells.concat());
        for (series, octets) in series.iter_mut().zip(logged) {
            series.points.push((ues.into(), octets as f64 / 1e6));
        }
        rows.push(json!({ "ues": ues, "octets": logged, "octets_each": each.map(round) }));
    }
    println!("\nat most {worst:.0} octets of a UE (paper: some {PAPER})");
    Plot {
        title: "Log at the CTA (Neutrino, figure 17)",
        x: "UEs that begin at once",
        y: "MB",
        log_y: false,
        axis: Axis::Numbers,
        series,
    }
    .write(plots, "neutrino-fig17")?;
    finish(
        "fig17",
        &json!({ "procedures": kinds.map(|(name, _)| name), "log": rows, "most_octets_each": round(worst) }),
    );
    Ok(())
}
