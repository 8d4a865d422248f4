//! How fast a CPF that hangs is found, against how often a living one is accused: the program's own experiment, and its plot.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::Value;

use super::finish;
use crate::plot::{Axis, Plot, Series};

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Arguments of `whimbrel bench detection`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!("paper: recovery is reported without the time of detection (§6.4)\n");
    let curve = measure(&options.rest)?;
    let mut series: Vec<Series> = Vec::new();
    for point in curve["curve"].as_array().into_iter().flatten() {
        let name = format!("{} % load", point["load_percent"]);
        let hours = point["seconds"].as_f64().unwrap_or(1.0) / 3600.0;
        let (Some(found), Some(alarms)) = (point["found_p50_ms"].as_f64(), point["false_alarms"].as_f64())
        else {
            continue;
        };
        let at = (found, alarms / hours);
        match series.iter_mut().find(|s| s.name == name) {
            Some(series) => series.points.push(at),
            None => series.push(Series { name, points: vec![at] }),
        }
    }
    Plot {
        title: "False alarms against the time of detection",
        x: "ms until a CPF that hangs is found (median)",
        y: "false alarms an hour",
        log_y: false,
        axis: Axis::Numbers,
        series,
    }
    .write(plots, "neutrino-detection")?;
    finish("detection", &curve);
    Ok(())
}

/// The program's experiment; its output is printed, and the last line has the figures.
fn measure(options: &[String]) -> io::Result<Value> {
    let program = std::env::var_os("WHIMBREL").ok_or_else(|| {
        io::Error::other("WHIMBREL does not name the program that is to be measured: `./x bench` does")
    })?;
    let mut child =
        Command::new(program).args(["bench", "detection"]).args(options).stdout(Stdio::piped()).spawn()?;
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
