//! How fast a CPF that hangs is found, against how often a living one is accused: the program's own experiment, and its plot.

use std::io;
use std::path::Path;

use clap::Args;

use super::finish;
use super::live::measure;
use crate::plot::{Axis, Plot, Series};

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Arguments of `whimbrel-lab bench detection`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!("paper: recovery is reported without the time of detection (§6.4)\n");
    let curve = measure(&["detection"], &options.rest)?;
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
