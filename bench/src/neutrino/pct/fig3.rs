//! Figure 3: how soon a video starts and a page is there for an idle phone, while the core serves others (Neutrino §6.6).

use std::io;
use std::path::Path;

use serde_json::json;

use super::super::finish;
use super::Options;
use super::crowd::{WINDOW_S, crowd, size};
use super::load::Procedure;
use super::scheme::{EXISTING, EXISTING_LEAN, OURS};
use super::sweep::round;
use crate::plot::{Axis, Plot, Series};

/// What a video takes to start once there is a path, in milliseconds: four round trips of ten (connection, manifest, header, first segment) to a server at
/// the edge.
const VIDEO_MS: f64 = 40.0;
/// The same for a page of the web.
const PAGE_MS: f64 = 1000.0;

pub(crate) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!(
        "figure 3: video start-up and page load of an idle phone, by how many others want service at once"
    );
    println!(
        "paper: with Neutrino a video starts up to 37 times sooner than with an existing EPC, a page is there up to 3.2 times sooner"
    );
    println!("{}", options.deployment());
    println!(
        "       service requests for {WINDOW_S} s at each rate; then a video takes {VIDEO_MS} ms, a page {PAGE_MS} ms, the same for all (the paper's are not told)\n"
    );
    let schemes = [OURS, EXISTING, EXISTING_LEAN];
    let rates: &[f64] = if options.quick { &[20e3] } else { &[40e3, 80e3, 120e3, 160e3, 200e3] };
    let most = size(options, rates.iter().copied().fold(0.0, f64::max));
    let mut series: Vec<Series> = schemes.map(|s| Series { name: s.name.into(), points: Vec::new() }).into();
    let mut rows = Vec::new();
    let mut kept = schemes.map(|_| None);
    let mut best = [0.0_f64; 3];
    println!("milliseconds, medians: the core's part, video, page");
    println!("{:>9}{}", "", schemes.map(|s| format!("{:>32}", s.name)).concat());
    for &per_s in rates {
        let mut crowds = Vec::new();
        for (scheme, kept) in schemes.iter().zip(&mut kept) {
            let crowd = crowd(kept, (*scheme, Procedure::ServiceRequest), options, (per_s, most));
            if crowd.times.failed + crowd.cut_off > 0 {
                println!(
                    "          {}: {} failed, {} without data",
                    scheme.name, crowd.times.failed, crowd.cut_off
                );
            }
            crowds.push(crowd);
        }
        let core: Vec<f64> = crowds.iter().map(|c| c.times.quantile(0.5) / 1000.0).collect();
        let cells = core
            .iter()
            .map(|ms| format!("{:>32}", format!("{ms:.2} {:.1} {:.1}", ms + VIDEO_MS, ms + PAGE_MS)));
        println!("{per_s:>9}{}", cells.collect::<String>());
        let ratios = [0.0, VIDEO_MS, PAGE_MS].map(|rest| (core[1] + rest) / (core[0] + rest));
        println!(
            "          sooner than existing: the core's part {:.1} times, video {:.2}, page {:.2}",
            ratios[0], ratios[1], ratios[2]
        );
        best = [0, 1, 2].map(|i| best[i].max(ratios[i]));
        for (series, ms) in series.iter_mut().zip(&core) {
            series.points.push((per_s / 1000.0, ms + VIDEO_MS));
        }
        rows.push(json!({
            "per_s": per_s,
            "core_p50_ms": core.iter().map(|ms| round(*ms)).collect::<Vec<_>>(),
            "sooner": ratios.map(round),
            "incomplete": crowds.iter().map(|c| c.times.failed).collect::<Vec<_>>(),
            "cut_off": crowds.iter().map(|c| c.cut_off).collect::<Vec<_>>(),
        }));
    }
    println!(
        "\nup to {:.2} times sooner for a video (paper: 37), {:.2} for a page (3.2), {:.1} for what the core takes of it",
        best[1], best[2], best[0]
    );
    Plot {
        title: "Video start-up of an idle phone (Neutrino, figure 3)",
        x: "thousand service requests a second",
        y: "median start-up in ms",
        log_y: true,
        axis: Axis::Numbers,
        series,
    }
    .write(plots, "neutrino-fig3")?;
    finish(
        "fig3",
        &json!({
            "hop_us": options.hop_us,
            "video_ms": VIDEO_MS,
            "page_ms": PAGE_MS,
            "schemes": schemes.map(|s| s.name),
            "rates": rows,
            "most_times_sooner": { "core": round(best[0]), "video": round(best[1]), "page": round(best[2]) },
        }),
    );
    Ok(())
}
