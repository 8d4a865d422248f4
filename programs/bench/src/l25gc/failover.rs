//! Figures 15, 16 and 17: TCP through failures and handovers. `whimbrel-lab bench l25gc failover` measures; here are the plots.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::{Value, json};

use crate::plot::{Axis, Plot, Series};

#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Arguments of `whimbrel-lab bench l25gc failover`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

impl Options {
    pub(super) fn quick(&mut self) {
        self.rest.push("--quick".into());
    }
}

/// What is drawn of each figure: the series, its name in a file, and the axis.
const DRAWN: [(&str, &str, &str); 3] = [
    ("goodput", "goodput", "Mbit/s"),
    ("rtt", "round-trip", "round trip of datagrams in ms"),
    ("window", "window", "congestion windows in segments"),
];
const TITLES: [(&str, &str); 3] = [
    ("fig15", "A part of the core is killed (L25GC, figure 15)"),
    ("fig16", "A part of the core is killed in a handover (L25GC, figure 16)"),
    ("fig17", "Repeated handovers (L25GC, figure 17)"),
];

/// Measures and draws. Errors: nothing was measured, or packets were lost although what was killed has a replica.
pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    let program = std::env::var_os("WHIMBREL_LAB").ok_or_else(|| {
        io::Error::other("WHIMBREL_LAB does not name the program that measures: `./x bench` does")
    })?;
    let mut command = Command::new(program);
    command.args(["bench", "l25gc", "failover"]).args(&options.rest);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut last = String::new();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        last = line?;
        if !last.starts_with('{') {
            println!("{last}");
        }
    }
    let status = child.wait()?;
    let measured: serde_json::Result<Value> = serde_json::from_str(&last);
    let Ok(mut measured) = measured else { return Err(io::Error::other("the measurement failed")) };
    let figures = measured["figures"].take();
    for (figure, title) in TITLES {
        for (what, file, y) in DRAWN {
            let series = series(&figures[figure], what);
            if !series.is_empty() {
                Plot { title, x: "seconds", y, log_y: what == "rtt", axis: Axis::Numbers, series }
                    .write(plots, &format!("l25gc-failover-{figure}-{file}"))?;
            }
        }
    }
    super::finish("failover", &without_series(figures));
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other("packets were lost although what was killed has a replica")),
    }
}

/// The points of each case.
fn series(figure: &Value, what: &str) -> Vec<Series> {
    let points = |case: &Value| {
        let pairs = case[what].as_array().into_iter().flatten();
        pairs.filter_map(|pair| pair[0].as_f64().zip(pair[1].as_f64())).collect()
    };
    let cases = figure.as_array().into_iter().flatten();
    cases
        .map(|case| Series {
            name: case["case"].as_str().unwrap_or_default().to_owned(),
            points: points(case),
        })
        .filter(|series: &Series| !series.points.is_empty())
        .collect()
}

/// The figures alone: what is drawn is in the plots.
fn without_series(mut figures: Value) -> Value {
    for (figure, _) in TITLES {
        for case in figures[figure].as_array_mut().into_iter().flatten() {
            for (what, ..) in DRAWN {
                case.as_object_mut().and_then(|case| case.remove(what));
            }
        }
    }
    figures.as_object_mut().into_iter().for_each(|figures| figures.retain(|_, of| !of.is_null()));
    json!(figures)
}
