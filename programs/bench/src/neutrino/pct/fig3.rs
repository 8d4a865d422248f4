//! Figure 3: how soon a video starts and a page is there for an idle UE, while the core serves others (Neutrino §6.6).

use std::io;
use std::path::Path;

use serde_json::json;

use super::super::finish;
use super::Options;
use super::apps::{App, Exchange, Fetch};
use super::crowd::{WINDOW_S, crowd, size};
use super::deployment::Deployment;
use super::load::{Procedure, Times};
use super::scheme::{EXISTING, EXISTING_LEAN, OURS};
use super::sweep::{ready, round};
use crate::plot::{Axis, Plot, Series};

/// Connection and names, the same for both: DNS, TCP, TLS 1.3 with its certificates.
const NAME: Exchange = Exchange { asks: 60, answer: 120 };
const CONNECTION: Exchange = Exchange { asks: 40, answer: 40 };
const SECURITY: Exchange = Exchange { asks: 500, answer: 3000 };
/// A video is there with its manifest, its header, and two seconds of 3 Mbit/s.
const VIDEO: &[Exchange] = &[
    NAME,
    CONNECTION,
    SECURITY,
    Exchange { asks: 400, answer: 5000 },
    Exchange { asks: 400, answer: 1000 },
    Exchange { asks: 400, answer: 750_000 },
];
/// A page is there with its text, and with two megabytes of what that names, asked for at once: half of the web's pages have more.
const PAGE: &[Exchange] = &[
    NAME,
    CONNECTION,
    SECURITY,
    Exchange { asks: 500, answer: 30_000 },
    Exchange { asks: 2000, answer: 2_000_000 },
];
/// One way between UPF and host, in nanoseconds.
const HOST_NS: u64 = 5_000_000;
/// UEs of a crowd that want one of them, at least.
const FETCHING: u32 = 40;

pub(crate) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!("figure 3: video start-up and page load of an idle UE, by how many others want service at once");
    println!(
        "paper: with Neutrino a video starts up to 37 times sooner than with an existing EPC, a page is there up to 3.2 times sooner"
    );
    println!("{}", options.deployment());
    println!(
        "       service requests for {WINDOW_S} s at each rate. The first packet of a UE wakes it and waits; then a name, a connection, TLS and requests go, and answers"
    );
    println!(
        "       come, packet by packet through the gNB's tunnel and the UPF's pipeline: flights of 10 segments that double up to 64, a host {} ms away, 1 Gbit/s there,",
        HOST_NS / 1_000_000
    );
    println!(
        "       100 Mbit/s of radio; 750 kB of a video, 2 MB of a page, and no work in UE or host (not in the paper: its content is replayed)\n"
    );
    let schemes = [OURS, EXISTING, EXISTING_LEAN];
    let rates: &[f64] = if options.quick { &[20e3] } else { &[40e3, 80e3, 120e3, 160e3, 200e3] };
    let most = size(options, rates.iter().copied().fold(0.0, f64::max));
    let mut series: Vec<Series> = schemes.map(|s| Series { name: s.name.into(), points: Vec::new() }).into();
    let mut rows = Vec::new();
    let mut kept = schemes.map(|scheme| ready(scheme, Procedure::ServiceRequest, most));
    let mut best = [0.0_f64; 3];
    println!("milliseconds, medians: the core's part, video, page");
    println!("{:>9}{}", "", schemes.map(|s| format!("{:>32}", s.name)).concat());
    for &per_s in rates {
        let felt = kept.each_mut().map(|region| feel(region, options, per_s));
        for (scheme, felt) in schemes.iter().zip(&felt) {
            if felt.failed() > 0 {
                println!("          {}: {} failed", scheme.name, felt.failed());
            }
        }
        let medians = felt.each_ref().map(|f| [&f.core, &f.video, &f.page].map(|t| t.quantile(0.5) / 1000.0));
        let cells =
            medians.map(|[core, video, page]| format!("{:>32}", format!("{core:.2} {video:.1} {page:.1}")));
        println!("{per_s:>9}{}", cells.concat());
        let ratios = [0, 1, 2].map(|i| medians[1][i] / medians[0][i]);
        println!(
            "          sooner than existing: the core's part {:.1} times, video {:.2}, page {:.2}",
            ratios[0], ratios[1], ratios[2]
        );
        best = [0, 1, 2].map(|i| best[i].max(ratios[i]));
        for (series, [_, video, _]) in series.iter_mut().zip(medians) {
            series.points.push((per_s / 1000.0, video));
        }
        rows.push(json!({
            "per_s": per_s,
            "core_video_page_p50_ms": medians.map(|m| m.map(round)),
            "sooner": ratios.map(round),
            "incomplete": felt.each_ref().map(Felt::failed),
        }));
    }
    println!(
        "\nup to {:.2} times sooner for a video (paper: 37), {:.2} for a page (3.2), {:.1} for what the core takes of it",
        best[1], best[2], best[0]
    );
    Plot {
        title: "Video start-up of an idle UE (Neutrino, figure 3)",
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
            "host_ms": HOST_NS / 1_000_000,
            "schemes": schemes.map(|s| s.name),
            "rates": rows,
            "most_times_sooner": { "core": round(best[0]), "video": round(best[1]), "page": round(best[2]) },
        }),
    );
    Ok(())
}

/// How long UEs of a crowd waited for the core, and some of them for a video or a page.
struct Felt {
    core: Times,
    video: Times,
    page: Times,
}

impl Felt {
    fn failed(&self) -> usize {
        self.core.failed + self.video.failed + self.page.failed
    }
}

fn feel(region: &mut Deployment, options: &Options, per_s: f64) -> Felt {
    region.release_all();
    region.user_plane.host_ns = HOST_NS;
    let every = (size(options, per_s) / FETCHING / 2).max(1);
    let wants = |n: u32| {
        let what = if n.is_multiple_of(every * 2) { VIDEO } else { PAGE };
        n.is_multiple_of(every).then(|| (0, App::Fetch(Fetch::new(what))))
    };
    let apps = crowd(region, Procedure::ServiceRequest, options, (per_s, 3), wants);
    let took = |video: bool| {
        let those = apps.iter().filter(move |(n, _)| n.is_multiple_of(every * 2) == video);
        let took = those.map(|(_, app)| match app {
            App::Fetch(fetch) => fetch.took,
            App::Sensor(_) => None,
        });
        took.collect::<Times>()
    };
    Felt { core: region.progress.times(), video: took(true), page: took(false) }
}
