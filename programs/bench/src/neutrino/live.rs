//! Figures 7 to 11 with real processes, sockets and kills: the experiments of `whimbrel-lab bench neutrino`, and their plots.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::plot::{Axis, Plot, Series};

/// The figures that can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Figure 7: service requests.
    Fig7,
    /// Figure 8: attaches of UEs.
    Fig8,
    /// Attaches in bursts.
    Fig9,
    /// Handovers whose CPF is killed.
    Fig10,
    /// Handovers to another CPF.
    Fig11,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::Fig7 => "fig7",
            Self::Fig8 => "fig8",
            Self::Fig9 => "fig9",
            Self::Fig10 => "fig10",
            Self::Fig11 => "fig11",
        }
    }

    /// Title, and what the lower axis has.
    fn axes(self) -> (&'static str, &'static str) {
        match self {
            Self::Fig7 => ("Service requests, live (Neutrino, figure 7)", "service requests a second"),
            Self::Fig8 => ("Attaches, live (Neutrino, figure 8)", "attaches a second"),
            Self::Fig9 => ("Bursts of attaches, live (Neutrino, figure 9)", "UEs within 10 ms"),
            Self::Fig10 => {
                ("Handovers whose CPF is killed, live (Neutrino, figure 10)", "connected UEs of the CPF")
            }
            Self::Fig11 => ("Handovers to another CPF, live (Neutrino, figure 11)", "handovers a second"),
        }
    }
}

#[derive(Args)]
pub(crate) struct Options {
    /// Figure to be repeated.
    #[arg(value_enum)]
    figure: Figure,
    /// Arguments of `whimbrel-lab bench neutrino FIGURE`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    let figure = options.figure;
    let figures = measure(&["neutrino", figure.name()], &options.rest)?;
    let (title, x) = figure.axes();
    let series = if figure == Figure::Fig10 { of_kills(&figures) } else { of_completions(&figures) };
    Plot { title, x, y: "median time in us", log_y: true, axis: Axis::Numbers, series }
        .write(plots, &format!("neutrino-live-{}", figure.name()))?;
    println!("{}", json!({ "bench": "neutrino live", "figure": figure.name(), "figures": figures }));
    Ok(())
}

/// The median from the detection on against the number of connected UEs, of each scheme.
fn of_kills(figures: &Value) -> Vec<Series> {
    let mut series = Vec::new();
    for run in figures["runs"].as_array().into_iter().flatten() {
        let at = run["connected"].as_f64().zip(run["p50_from_found_us"].as_f64());
        add(&mut series, run["scheme"].as_str().unwrap_or_default(), at);
    }
    series
}

/// The median of each step and scheme against the rate, or the size of the bursts.
fn of_completions(figures: &Value) -> Vec<Series> {
    let mut series = Vec::new();
    for row in figures["rates"].as_array().into_iter().flatten() {
        let step = row["step"].as_str().unwrap_or_default();
        for (scheme, times) in row.as_object().into_iter().flatten() {
            let at = row["at"].as_f64().zip(times["p50_us"].as_f64());
            add(&mut series, &format!("{step}, {scheme}"), at);
        }
    }
    series
}

fn add(series: &mut Vec<Series>, name: &str, at: Option<(f64, f64)>) {
    let Some(at) = at else { return };
    match series.iter_mut().find(|s| s.name == name) {
        Some(series) => series.points.push(at),
        None => series.push(Series { name: name.to_owned(), points: vec![at] }),
    }
}

/// An experiment of the program; its output is printed, and the last line has the figures.
pub(super) fn measure(experiment: &[&str], options: &[String]) -> io::Result<Value> {
    let program = std::env::var_os("WHIMBREL_LAB").ok_or_else(|| {
        io::Error::other("WHIMBREL_LAB does not name the program that measures: `./x bench` does")
    })?;
    let mut command = Command::new(program);
    command.arg("bench").args(experiment).args(options);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut last = String::new();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        last = line?;
        if !last.starts_with('{') {
            println!("{last}");
        }
    }
    if !child.wait()?.success() {
        return Err(io::Error::other("the measurement failed"));
    }
    let mut figures: Value = serde_json::from_str(&last).map_err(io::Error::other)?;
    Ok(figures["figures"].take())
}
