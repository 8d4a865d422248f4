//! One procedure at rising rates, scheme beside scheme.

use std::io;
use std::path::Path;

use serde_json::{Value, json};
use whimbrel_sim::Rng;

use super::Options;
use super::deployment::Deployment;
use super::load::{Procedure, Times, uniform};
use super::scheme::Scheme;
use crate::measure::median;
use crate::plot::{Axis, Plot, Series};

/// What one rate gave.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// Procedures begun a second.
    pub(super) per_s: f64,
    pub(super) times: Times,
    /// Microseconds of processor time a procedure: the CTA's and the CPFs'.
    pub(super) cta_us: f64,
    pub(super) cpf_us: f64,
    /// Octets between CPFs for a procedure.
    pub(super) between_cpfs: f64,
}

/// What one scheme gave.
pub(super) struct Swept {
    pub(super) scheme: Scheme,
    pub(super) points: Vec<Point>,
    region: Option<Deployment>,
}

/// A rate is carried while the median is at most so many times that of the lowest rate.
const CARRIED: f64 = 2.0;
/// Above this multiple nothing more is learnt.
const SATURATED: f64 = 20.0;
/// How often what counts most is measured: the median of these counts.
const ROUNDS: u64 = 5;

impl Swept {
    /// The highest rate that was carried.
    pub(super) fn knee(&self) -> f64 {
        let lowest = self.lowest();
        let carried = self.points.iter().take_while(|p| p.times.quantile(0.5) <= CARRIED * lowest);
        carried.last().map_or(0.0, |p| p.per_s)
    }

    fn lowest(&self) -> f64 {
        self.points.first().map_or(f64::NAN, |p| p.times.quantile(0.5))
    }

    fn failed(&self) -> usize {
        self.points.iter().map(|p| p.times.failed).sum()
    }
}

/// One rate: each UE does it once.
pub(super) fn point(
    kept: &mut Option<Deployment>,
    scheme: Scheme,
    procedure: Procedure,
    options: &Options,
    (per_s, hop_ns, seed): (f64, u64, u64),
) -> Point {
    let ues = options.ues();
    if procedure != Procedure::ServiceRequest {
        *kept = None; // each UE does it once
    }
    let region = kept.get_or_insert_with(|| ready(scheme, procedure, ues));
    region.hop_ns = hop_ns;
    if procedure == Procedure::ServiceRequest {
        region.release_all();
    }
    let begins = uniform(&mut Rng::new(seed), 0..ues, ues, per_s);
    region.measure(procedure, &begins, &[]);
    let each = |ns: u64| ns as f64 / 1000.0 / f64::from(ues);
    let (cta, cpfs) = region.worked();
    let between_cpfs = region.between_cpfs as f64 / f64::from(ues);
    Point { per_s, times: region.progress.times(), cta_us: each(cta), cpf_us: each(cpfs), between_cpfs }
}

/// A region whose UEs can begin.
pub(super) fn ready(scheme: Scheme, procedure: Procedure, ues: u32) -> Deployment {
    let mut region = Deployment::new(scheme, ues, 0);
    if procedure != Procedure::Attach {
        region.prepare(Procedure::Attach, 0..ues);
    }
    region
}

/// Each scheme at rising rates, until it is saturated.
pub(super) fn sweep(
    schemes: &[Scheme],
    procedure: Procedure,
    rates: &[f64],
    options: &Options,
) -> Vec<Swept> {
    let mut all: Vec<Swept> = Vec::new();
    for &scheme in schemes {
        let mut swept = Swept { scheme, points: Vec::new(), region: None };
        for &per_s in rates {
            let at = point(&mut swept.region, scheme, procedure, options, (per_s, options.hop_ns(), 1));
            let p50 = at.times.quantile(0.5);
            swept.points.push(at);
            if p50 > SATURATED * swept.lowest() {
                break;
            }
        }
        all.push(swept);
    }
    table(&all, rates);
    all
}

fn table(all: &[Swept], rates: &[f64]) {
    println!(
        "median and 99th percentile of the completion time in microseconds, by procedures begun a second"
    );
    println!("{:>9}{}", "", all.iter().map(|s| format!("{:>28}", s.scheme.name)).collect::<String>());
    for &per_s in rates {
        let cell = |s: &Swept| match s.points.iter().find(|p| p.per_s == per_s) {
            Some(p) => {
                format!("{:>28}", format!("{:.0} {:.0}", p.times.quantile(0.5), p.times.quantile(0.99)))
            }
            None => format!("{:>28}", "-"),
        };
        println!("{per_s:>9}{}", all.iter().map(cell).collect::<String>());
    }
    let row = |what: &str, f: &dyn Fn(&Swept) -> String| {
        println!("{what:>9}{}", all.iter().map(|s| format!("{:>28}", f(s))).collect::<String>());
    };
    row("knee", &|s| format!("{:.0}/s", s.knee()));
    row("CTA us", &|s| format!("{:.1}", s.points.first().map_or(f64::NAN, |p| p.cta_us)));
    row("CPF us", &|s| format!("{:.1}", s.points.first().map_or(f64::NAN, |p| p.cpf_us)));
    let between = |s: &Swept| s.points.first().map_or(f64::NAN, |p| p.between_cpfs);
    if all.iter().any(|s| between(s) > 0.0) {
        row("CPF-CPF B", &|s| format!("{:.0}", between(s)));
    }
    if all.iter().any(|s| s.failed() > 0) {
        row("failed", &|s| s.failed().to_string());
    }
}

/// All schemes at one rate: medians and 99th percentiles of several rounds that alternate, with links and without.
pub(super) struct Compared {
    pub(super) per_s: f64,
    /// Medians by scheme.
    pub(super) p50: Vec<f64>,
    pub(super) p99: Vec<f64>,
    pub(super) p50_without_links: Vec<f64>,
    /// Processor time of each procedure.
    pub(super) work_us: Vec<f64>,
}

/// Compares schemes at a rate.
pub(super) fn compare(all: &mut [Swept], procedure: Procedure, per_s: f64, options: &Options) -> Compared {
    let mut samples = vec![[const { Vec::new() }; 4]; all.len()];
    for round in 0..if options.quick { 1 } else { ROUNDS } {
        for (swept, [p50, p99, bare, work]) in all.iter_mut().zip(&mut samples) {
            for (hop_ns, with_links) in [(options.hop_ns(), true), (0, false)] {
                let run = (per_s, hop_ns, 100 + round);
                let at = point(&mut swept.region, swept.scheme, procedure, options, run);
                work.push(at.cta_us + at.cpf_us);
                if with_links {
                    p50.push(at.times.quantile(0.5));
                    p99.push(at.times.quantile(0.99));
                } else {
                    bare.push(at.times.quantile(0.5));
                }
            }
        }
    }
    let mut compared =
        Compared { per_s, p50: vec![], p99: vec![], p50_without_links: vec![], work_us: vec![] };
    for [p50, p99, bare, work] in samples {
        compared.p50.push(median(p50));
        compared.p99.push(median(p99));
        compared.p50_without_links.push(median(bare));
        compared.work_us.push(median(work));
    }
    compared
}

impl Compared {
    /// Prints how many times as fast as the last scheme of them each is.
    pub(super) fn print(&self, all: &[Swept], baseline: usize, paper: &str) {
        println!("\nat {:.0} a second, half of what `{}` carries:", self.per_s, all[baseline].scheme.name);
        for (i, swept) in all.iter().enumerate() {
            println!(
                "{:>28}: median {:>6.1} us, p99 {:>7.1} us; {:.2} times as fast as {}, without links {:.1} us, {:.2} times",
                swept.scheme.name,
                self.p50[i],
                self.p99[i],
                self.p50[baseline] / self.p50[i],
                all[baseline].scheme.name,
                self.p50_without_links[i],
                self.p50_without_links[baseline] / self.p50_without_links[i],
            );
        }
        let links = self.p50[0] - self.p50_without_links[0];
        if links >= 1.0 {
            println!(
                "links are {links:.0} us of the median of {}: if its work took no time, it would be {:.2} times as fast as {}",
                all[0].scheme.name,
                self.p50[baseline] / links,
                all[baseline].scheme.name,
            );
        }
        println!("{paper}");
    }

    pub(super) fn json(&self, all: &[Swept], baseline: usize) -> Value {
        let each = all.iter().enumerate().map(|(i, swept)| {
            json!({
                "scheme": swept.scheme.name,
                "p50_us": round(self.p50[i]),
                "p99_us": round(self.p99[i]),
                "p50_us_without_links": round(self.p50_without_links[i]),
                "times_as_fast": round(self.p50[baseline] / self.p50[i]),
                "times_as_fast_without_links":
                    round(self.p50_without_links[baseline] / self.p50_without_links[i]),
            })
        });
        json!({ "per_s": self.per_s, "schemes": each.collect::<Vec<_>>() })
    }
}

/// The points of a sweep.
pub(super) fn json(all: &[Swept]) -> Value {
    let each = all.iter().map(|s| {
        let points = s
            .points
            .iter()
            .map(|p| json!([p.per_s, round(p.times.quantile(0.5)), round(p.times.quantile(0.99))]));
        json!({
            "scheme": s.scheme.name,
            "knee_per_s": s.knee(),
            "cta_us": s.points.first().map(|p| round(p.cta_us)),
            "cpf_us": s.points.first().map(|p| round(p.cpf_us)),
            "octets_between_cpfs": s.points.first().map(|p| round(p.between_cpfs)),
            "incomplete": s.failed(),
            "rate_p50_p99": points.collect::<Vec<_>>(),
        })
    });
    each.collect()
}

/// Draws medians over rates.
pub(super) fn draw(all: &[Swept], title: &str, plots: &Path, name: &str) -> io::Result<()> {
    let series = all.iter().map(|s| Series {
        name: s.scheme.name.into(),
        points: s.points.iter().map(|p| (p.per_s / 1000.0, p.times.quantile(0.5))).collect(),
    });
    Plot {
        title,
        x: "thousand procedures a second",
        y: "median completion time in us",
        log_y: true,
        axis: Axis::Numbers,
        series: series.collect(),
    }
    .write(plots, name)
}

/// To hundredths: what is measured is no more exact.
pub(super) fn round(v: f64) -> f64 {
    (v * 100.0).round() / 100.0
}
