//! Figures 15 and 16: what replicas and the log cost an attach.

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::super::finish;
use super::Options;
use super::load::Procedure;
use super::scheme::{LOG_CTA_REPLICAED, LOG_ONLY, NO_REPLICA, OURS, OURS_WHOLE, PER_MESSAGE, Scheme};
use super::sweep::{Swept, compare, draw, json as points, sweep};

/// What log and per-procedure replicas may add to the median, in percent.
const GOAL_PERCENT: f64 = 5.0;

/// Rates at which attaches begin, and service requests.
const ATTACHES: &[f64] = &[2e3, 10e3, 20e3, 30e3, 40e3, 50e3, 60e3, 80e3];
const SERVICE_REQUESTS: &[f64] = &[10e3, 40e3, 80e3, 120e3, 160e3, 200e3, 240e3];

/// The experiment of figure 15.
pub(crate) fn fig15(options: &Options, plots: &Path) -> io::Result<()> {
    println!("figure 15: when the UE's state goes to its {} backups", OURS.backups);
    println!(
        "paper: attach: at every message has the highest median; at every procedure slightly more than never"
    );
    println!(
        "       An attach is one state here, which goes whole: its UE asks for a session as soon as it is registered, and rests only then. Service\n       \
         requests show what goes when the backups have a state: what differs from that, or the whole"
    );
    println!("{}", options.deployment());
    let schemes = [NO_REPLICA, PER_MESSAGE, OURS, OURS_WHOLE];
    println!("\nattach");
    let (attach, of_attach) = replicate(options, &schemes, Procedure::Attach, ATTACHES);
    println!("\nservice request");
    let (_, of_service) = replicate(options, &schemes, Procedure::ServiceRequest, SERVICE_REQUESTS);
    draw(&attach, "Replication and attach (Neutrino, figure 15)", plots, "neutrino-fig15")?;
    finish(
        "fig15",
        &json!({ "hop_us": options.hop_us, "ues": options.ues(), "attach": of_attach, "service_request": of_service }),
    );
    Ok(())
}

/// The experiment of figure 16.
pub(crate) fn fig16(options: &Options, plots: &Path) -> io::Result<()> {
    println!("figure 16: attach, with the log at the CTA and without");
    println!(
        "paper: the log's cost cannot be seen; it has no CTA replica, so that a CTA that is lost takes its log with it"
    );
    println!("{}\n", options.deployment());
    let schemes = [NO_REPLICA, LOG_ONLY, LOG_CTA_REPLICAED];
    let (attach, figures) = replicate(options, &schemes, Procedure::Attach, ATTACHES);
    draw(&attach, "Message logging and attach (Neutrino, figure 16)", plots, "neutrino-fig16")?;
    finish("fig16", &json!({ "hop_us": options.hop_us, "ues": options.ues(), "attach": figures }));
    Ok(())
}

/// Compares schemes with the first of them, which keeps and copies nothing.
fn replicate(
    options: &Options,
    schemes: &[Scheme],
    procedure: Procedure,
    rates: &[f64],
) -> (Vec<Swept>, Value) {
    let rates = if options.quick { &rates[..2] } else { rates };
    let mut all = sweep(schemes, procedure, rates, options);
    let half = all[0].knee() / 2.0;
    let compared = compare(&mut all, procedure, half, options);
    compared.print(&all, 0, "");
    let more = |p50: &[f64], i: usize| (p50[i] / p50[0] - 1.0) * 100.0;
    for (i, swept) in all.iter().enumerate().skip(1) {
        let aim = match swept.scheme.replicated {
            true => "each input goes to the CTA replica and is confirmed, before anything leaves".to_owned(),
            false => format!("aim: under {GOAL_PERCENT} %"),
        };
        println!(
            "{}: {:+.1} % of the median, {:+.1} % without links ({aim})",
            swept.scheme.name,
            more(&compared.p50, i),
            more(&compared.p50_without_links, i),
        );
    }
    let figures = json!({ "schemes": points(&all), "half_of_knee": compared.json(&all, 0) });
    (all, figures)
}
