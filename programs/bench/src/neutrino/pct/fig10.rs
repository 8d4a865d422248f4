//! Figure 10: handovers whose CPF dies in the middle of them.

use std::io;
use std::path::Path;

use serde_json::json;
use whimbrel_sim::Rng;

use super::super::finish;
use super::Options;
use super::load::{Procedure, Times, uniform};
use super::marking;
use super::parts::{Medians, Parts};
use super::scheme::{EXISTING, EXISTING_LEAN, OURS, Scheme};
use super::sweep::{ready, round};
use crate::plot::{Axis, Plot, Series};

/// How long handovers begin before the loss and after it, in seconds.
const BEFORE_S: f64 = 0.002;
const AFTER_S: f64 = 0.001;
/// Losses of each scheme at each rate, each with a CPF that is new afterwards.
const LOSSES: u32 = 40;

/// What the losses did to UEs that they hit in the middle of a handover.
struct Hit {
    times: Times,
    /// From the loss to the first that another CPF did for the UE.
    recovery: Times,
    /// From the loss until the last UE was served elsewhere.
    last: Times,
    /// What recovery is made of.
    looked: Times,
    trials: Times,
}

pub(crate) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!("figure 10: handovers through the core whose CPF dies meanwhile; detection takes no time");
    println!(
        "paper: below 60,000 a second Neutrino is up to 5.6 times as fast as an existing EPC, whose UEs attach again"
    );
    println!("{}", options.deployment());
    println!("       other UEs of the CPF that died do not attach meanwhile, which favours `existing`\n");
    let rates: &[f64] = if options.quick { &[20e3] } else { &[10e3, 20e3, 40e3] };
    let losses = if options.quick { 12 } else { LOSSES };
    let schemes = [OURS, EXISTING, EXISTING_LEAN];
    let mut series: Vec<Series> = schemes.map(|s| Series { name: s.name.into(), points: Vec::new() }).into();
    let mut rows = Vec::new();
    let parts = Parts::of(OURS, Procedure::Handover) + Parts::of(OURS, Procedure::Attach);
    let mut shares = None;
    println!("microseconds: median and 99th percentile of those that were hit");
    println!("{:>9}{}", "", schemes.map(|s| format!("{:>30}", s.name)).concat());
    for &per_s in rates {
        let hits = schemes.map(|scheme| lose(scheme, options, per_s, losses));
        let p50 = hits.each_ref().map(|h| h.times.quantile(0.5));
        let cells = hits.each_ref().map(|h| {
            let text =
                format!("{:.0} {:.0} of {}", h.times.quantile(0.5), h.times.quantile(0.99), h.times.len());
            format!("{text:>30}")
        });
        println!("{per_s:>9}{}", cells.concat());
        let [ours, existing, _] = &hits;
        println!(
            "          ours is {:.2} times as fast as existing (paper: up to 5.6), {:.2} times with our codec in both",
            p50[1] / p50[0],
            p50[2] / p50[0],
        );
        println!(
            "          ours goes on after {:.0} us in the median, {:.0} at p99 (aim: under 1000); the last UE is served elsewhere after {:.0} us",
            ours.recovery.quantile(0.5),
            ours.recovery.quantile(0.99),
            ours.last.quantile(0.5),
        );
        println!(
            "          of that the CTA takes {:.0} us to find the waiting UEs and to assign them elsewhere, and a trial {:.0}, links included",
            ours.looked.quantile(0.5),
            ours.trials.quantile(0.5),
        );
        shares.get_or_insert(Medians {
            existing: p50[1],
            lean: p50[2],
            ours: p50[0],
            least: p50[0].min(p50[2]),
        });
        if ours.times.failed + existing.times.failed > 0 {
            println!("          failed: ours {}, existing {}", ours.times.failed, existing.times.failed);
        }
        for (series, p50) in series.iter_mut().zip(p50) {
            series.points.push((per_s / 1000.0, p50));
        }
        rows.push(json!({
            "per_s": per_s,
            "hit": hits.each_ref().map(|h| h.times.len()),
            "incomplete": hits.each_ref().map(|h| h.times.failed),
            "p50_us": p50.map(round),
            "p99_us": hits.each_ref().map(|h| round(h.times.quantile(0.99))),
            "times_as_fast": round(p50[1] / p50[0]),
            "recovery_p50_us": round(ours.recovery.quantile(0.5)),
            "recovery_p99_us": round(ours.recovery.quantile(0.99)),
            "last_ue_p50_us": round(ours.last.quantile(0.5)),
            "looked_p50_us": round(ours.looked.quantile(0.5)),
            "trial_p50_us": round(ours.trials.quantile(0.5)),
        }));
    }
    println!("\nat {} a second, by the parts of a handover and of an attach together:", rates[0]);
    let shares = shares.map(|medians| parts.say(medians, None));
    let marking = marking::compare(options);
    Plot {
        title: "Handovers whose CPF dies (Neutrino, figure 10)",
        x: "thousand handovers a second",
        y: "median completion time in us",
        log_y: true,
        axis: Axis::Numbers,
        series,
    }
    .write(plots, "neutrino-fig10")?;
    finish(
        "fig10",
        &json!({ "hop_us": options.hop_us, "ues": options.ues(), "schemes": schemes.map(|s| s.name), "rates": rows, "shares": shares, "second_procedure": marking }),
    );
    Ok(())
}

fn lose(scheme: Scheme, options: &Options, per_s: f64, losses: u32) -> Hit {
    let count = (per_s * (BEFORE_S + AFTER_S)) as u32;
    let ues = options.ues().max(count);
    let (mut times, mut recovery, mut last) = (Vec::new(), Vec::new(), Vec::new());
    let (mut looked, mut trials) = (Vec::new(), Vec::new());
    let mut region = None;
    let rounds = ues / count; // each UE is handed over once
    for round in 0..losses {
        if round % rounds == 0 {
            region = None;
        }
        let region = region.get_or_insert_with(|| ready(scheme, Procedure::Handover, ues));
        region.hop_ns = options.hop_ns();
        let from = round % rounds * count;
        let begins = uniform(&mut Rng::new(u64::from(round)), from..from + count, count, per_s);
        let cpf = region.any_cpf();
        region.measure(Procedure::Handover, &begins, &[((BEFORE_S * 1e9) as u64, cpf)]);
        let at = region.loss.at;
        for (ue, went_on) in &region.loss.hit {
            times.push(region.progress.time(*ue));
            recovery.push(went_on.map(|to| to - at));
        }
        last.push(Some(region.loss.last_served - at));
        looked.push(Some(region.loss.looked));
        trials.extend(region.loss.trials.iter().copied().map(Some));
        region.mend();
    }
    Hit {
        times: times.into_iter().collect(),
        recovery: recovery.into_iter().collect(),
        last: last.into_iter().collect(),
        looked: looked.into_iter().collect(),
        trials: trials.into_iter().collect(),
    }
}
