//! Figures 7, 8 and 11: completion times of service requests, of attaches and of handovers to another CPF, against their rate.

use std::io;
use std::path::Path;

use serde_json::json;

use super::super::finish;
use super::Options;
use super::between::between_ctas;
use super::load::Procedure;
use super::parts::{Medians, Parts};
use super::scheme::{
    DPCM, EXISTING, EXISTING_CHANGE, EXISTING_CHANGE_LEAN, EXISTING_LEAN, ONE_PROCESS, OURS,
    OURS_CONVENTIONAL, OURS_DEFAULT, OURS_FAST, OURS_FASTWIRE, SKYCORE, Scheme,
};
use super::sweep::{Compared, Swept, compare, draw, json as points, round, sweep};

/// Where `existing` stands in every list here.
const BASELINE: usize = 1;
/// UEs that are handed over between two CTAs: all of them need the same.
const BETWEEN_CTAS: u32 = 200;

/// The experiment of figure 7.
pub(crate) fn fig7(options: &Options, plots: &Path) -> io::Result<()> {
    println!("figure 7: service requests of idle UEs, uniform traffic");
    println!(
        "paper: up to 120,000 a second Neutrino's median is 2.3 times as fast as that of an existing EPC, 1.3 times DPCM, 3.4 times SkyCore;"
    );
    println!("       from 140,000 on existing EPC and SkyCore do not keep up, from 200,000 on none does");
    let schemes =
        [OURS, EXISTING, DPCM, SKYCORE, OURS_FASTWIRE, OURS_CONVENTIONAL, EXISTING_LEAN, ONE_PROCESS];
    let rates = [
        10e3, 20e3, 40e3, 60e3, 80e3, 100e3, 120e3, 140e3, 160e3, 180e3, 200e3, 240e3, 280e3, 320e3, 360e3,
        400e3,
    ];
    figure(
        options,
        plots,
        ("fig7", Procedure::ServiceRequest, "Service requests (Neutrino, figure 7)"),
        (&schemes, &rates),
        "paper, as fast as existing EPC: Neutrino 2.3 times, DPCM 1.8 times, SkyCore 0.7 times (from 2.3, 1.3 and 3.4)",
        "aim: 100,000",
    )
}

/// The experiment of figure 8.
pub(crate) fn fig8(options: &Options, plots: &Path) -> io::Result<()> {
    println!("figure 8: attach, uniform traffic: registration with 5G-AKA, then a session");
    println!(
        "paper: up to 60,000 a second Neutrino is up to 2.3 times as fast as an existing EPC, which does not keep up beyond; Neutrino does up to 120,000"
    );
    let schemes = [OURS, EXISTING, OURS_FASTWIRE, OURS_CONVENTIONAL, EXISTING_LEAN, ONE_PROCESS];
    let rates = [2e3, 5e3, 10e3, 15e3, 20e3, 25e3, 30e3, 35e3, 40e3, 45e3, 50e3, 60e3, 70e3, 80e3, 100e3];
    figure(
        options,
        plots,
        ("fig8", Procedure::Attach, "Attach (Neutrino, figure 8)"),
        (&schemes, &rates),
        "paper: Neutrino up to 2.3 times as fast as existing EPC",
        "registrations, each with a session",
    )
}

/// The experiment of figure 11.
pub(crate) fn fig11(options: &Options, plots: &Path) -> io::Result<()> {
    println!("figure 11: handover through the core to another CPF, uniform traffic");
    println!(
        "paper: below 60,000 a second Neutrino is up to 7 times as fast as an existing EPC where the state is there already (fast), up to 3.1 times"
    );
    println!("       where it has to travel first (default)");
    let schemes = [OURS_FAST, EXISTING_CHANGE, OURS_DEFAULT, EXISTING_CHANGE_LEAN, OURS];
    let rates =
        [2e3, 5e3, 10e3, 20e3, 30e3, 40e3, 60e3, 80e3, 100e3, 120e3, 140e3, 160e3, 180e3, 200e3, 240e3];
    figure(
        options,
        plots,
        ("fig11", Procedure::Handover, "Handover to another CPF (Neutrino, figure 11)"),
        (&schemes, &rates),
        "paper: fast 7 times as fast as existing EPC, default 3.1 times; `ours` here is without a change",
        "",
    )
}

fn figure(
    options: &Options,
    plots: &Path,
    (name, procedure, title): (&str, Procedure, &str),
    (schemes, rates): (&[Scheme], &[f64]),
    paper: &str,
    about_one_core: &str,
) -> io::Result<()> {
    println!("{}", options.deployment());
    println!(
        "       `existing` reads and writes NGAP with rasn in place of our codec, keeps no log and no replica\n"
    );
    let rates = if options.quick { &rates[..2] } else { rates };
    let mut all = sweep(schemes, procedure, rates, options);
    let half = all[BASELINE].knee() / 2.0;
    let compared = compare(&mut all, procedure, half, options);
    compared.print(&all, BASELINE, paper);
    share(&all, &compared.p50_without_links);
    let fastwire = fastwire(&all, &compared);
    let alone = all.iter().find(|s| s.scheme == ONE_PROCESS).and_then(|s| s.points.first());
    let per_core = alone.map(|p| (1e6 / (p.cta_us + p.cpf_us)).round());
    if let Some(per_core) = per_core {
        println!(
            "one core does all that the core does for {per_core} procedures a second ({about_one_core})"
        );
    }
    let parts = parts(&all, &compared.work_us);
    let shares = medians(&all, &compared).map(|[with_links, without_links]| {
        Parts::of(schemes[0], procedure).say(with_links, Some(without_links))
    });
    if let Some([procedure, apart, replicas, codec]) = parts {
        println!(
            "processor time: {procedure:.1} us for the procedure itself, in one process; {apart:.1} more for two, which say to each other what \
             they do; {replicas:.1} for log and backups; {codec:.1} for rasn in place of our codec, in `existing`"
        );
    }
    let between = (name == "fig11").then(|| between_ctas(options.ues().min(BETWEEN_CTAS)));
    draw(&all, title, plots, &format!("neutrino-{name}"))?;
    finish(
        name,
        &json!({
            "hop_us": options.hop_us,
            "ues": options.ues(),
            "schemes": points(&all),
            "half_of_knee": compared.json(&all, BASELINE),
            "per_s_and_core_one_process": per_core,
            "fastwire_gain": fastwire.map(|f| f.map(round)),
            "parts_us": parts.map(|p| p.map(round)),
            "shares": shares,
            "between_ctas": between,
        }),
    );
    Ok(())
}

/// What of the processor's time the procedure itself takes, what it takes more to be in two processes, to be logged and backed, and to be
/// read and written with the conventional codec.
fn parts(all: &[Swept], work_us: &[f64]) -> Option<[f64; 4]> {
    let of = |scheme: Scheme| Some(work_us[all.iter().position(|s| s.scheme == scheme)?]);
    let (alone, apart) = (of(ONE_PROCESS)?, of(EXISTING_LEAN)?);
    Some([alone, apart - alone, of(OURS)? - apart, of(EXISTING)? - apart])
}

/// How much faster a procedure is with gNBs that speak fastwire than with those that speak ASN.1: links included, and without them.
fn fastwire(all: &[Swept], compared: &Compared) -> Option<[f64; 2]> {
    let of = |scheme: Scheme, p50: &[f64]| Some(p50[all.iter().position(|s| s.scheme == scheme)?]);
    let gain = |p50: &[f64]| Some(of(OURS, p50)? / of(OURS_FASTWIRE, p50)?);
    let [whole, without] = [gain(&compared.p50)?, gain(&compared.p50_without_links)?];
    println!(
        "gNBs that speak fastwire: {whole:.2} times as fast as ours with ASN.1, {without:.2} times without links"
    );
    Some([whole, without])
}

/// Those of `existing`, of the same with our codec, and of ours: links included, and without them.
fn medians(all: &[Swept], compared: &Compared) -> Option<[Medians; 2]> {
    let lean = [EXISTING_LEAN, EXISTING_CHANGE_LEAN]
        .into_iter()
        .find_map(|scheme| all.iter().position(|s| s.scheme == scheme))?;
    // Ours in several processes, with handovers that do not change the CPF.
    let ours = all.iter().position(|s| s.scheme == OURS)?;
    let of = |p50: &[f64]| Medians {
        existing: p50[BASELINE],
        lean: p50[lean],
        ours: p50[0],
        least: p50[lean].min(p50[ours]),
    };
    Some([of(&compared.p50), of(&compared.p50_without_links)])
}

/// Says what of the gain is the codec's.
fn share(all: &[Swept], p50: &[f64]) {
    let of = |scheme: Scheme| all.iter().position(|s| s.scheme == scheme).map(|i| p50[i]);
    for (what, with) in [
        ("our codec alone", EXISTING_LEAN),
        ("our codec alone", EXISTING_CHANGE_LEAN),
        ("log and replicas alone", OURS_CONVENTIONAL),
    ] {
        if let Some(with) = of(with) {
            println!(
                "of that, without links: {what} makes existing {:.2} times as fast",
                p50[BASELINE] / with
            );
        }
    }
}
