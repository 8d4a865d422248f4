//! Plots as SVG: lines over numbers, bars over names.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

/// What is drawn in one colour.
pub(crate) struct Series {
    pub(crate) name: String,
    /// Over numbers: x and y. Over names: the index of the name and the value.
    pub(crate) points: Vec<(f64, f64)>,
}

/// What stands on the x axis.
pub(crate) enum Axis {
    /// Numbers: the series are lines.
    Numbers,
    /// Names: the series are bars side by side.
    Names(Vec<String>),
}

/// A plot of some curves.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    /// Whether the y axis is logarithmic.
    pub(crate) log_y: bool,
    pub(crate) axis: Axis,
    pub(crate) series: Vec<Series>,
}

/// Colours that people with any eyes can tell apart (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#000000", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442"];
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 230.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 110.0;

impl Plot<'_> {
    /// Writes the plot to `NAME.svg` in a folder, and says so.
    ///
    /// Errors: those of writing a file.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join(name).with_extension("svg");
        std::fs::write(&path, self.svg())?;
        println!("plot: {}", path.display());
        Ok(())
    }

    fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|s| s.points.iter().copied());
        let bars = matches!(self.axis, Axis::Names(_));
        let x = match &self.axis {
            Axis::Numbers => Scale::over(points().map(|p| p.0), LEFT, WIDTH - RIGHT, false, false),
            Axis::Names(names) => {
                Scale { from: -0.5, to: names.len() as f64 - 0.5, at: LEFT, until: WIDTH - RIGHT, log: false }
            }
        };
        let y = Scale::over(points().map(|p| p.1), HEIGHT - BOTTOM, TOP, self.log_y, !self.log_y);

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        text(&mut svg, (LEFT, 22.0), "font-size=\"15\"", self.title);
        text(&mut svg, ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0), "text-anchor=\"middle\"", self.x);
        let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 16 {})\"", HEIGHT / 2.0);
        text(&mut svg, (16.0, HEIGHT / 2.0), &turned, self.y);
        for v in y.ticks() {
            let at = y.place(v);
            line(&mut svg, (LEFT, at), (WIDTH - RIGHT, at), "#dddddd");
            text(&mut svg, (LEFT - 6.0, at + 4.0), "text-anchor=\"end\"", &number(v));
        }
        match &self.axis {
            Axis::Numbers => {
                for v in x.ticks() {
                    text(
                        &mut svg,
                        (x.place(v), HEIGHT - BOTTOM + 18.0),
                        "text-anchor=\"middle\"",
                        &number(v),
                    );
                }
            }
            Axis::Names(names) => {
                for (i, name) in names.iter().enumerate() {
                    let (at, below) = (x.place(i as f64), HEIGHT - BOTTOM + 14.0);
                    let turned = format!("text-anchor=\"end\" transform=\"rotate(-25 {at:.1} {below})\"");
                    text(&mut svg, (at, below), &turned, name);
                }
            }
        }
        let bar = 0.8 * (x.place(1.0) - x.place(0.0)) / self.series.len().max(1) as f64;
        for (i, (series, colour)) in self.series.iter().zip(COLOURS.iter().cycle()).enumerate() {
            if bars {
                for (name, v) in &series.points {
                    let left = x.place(*name) + bar * (i as f64 - self.series.len() as f64 / 2.0);
                    let (top, bottom) = (y.place(*v), HEIGHT - BOTTOM);
                    let _ = writeln!(
                        svg,
                        "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{bar:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                        (bottom - top).max(0.0)
                    );
                }
            } else {
                let path = series.points.iter().fold(String::new(), |mut path, (px, py)| {
                    let _ = write!(path, "{:.1},{:.1} ", x.place(*px), y.place(*py));
                    path
                });
                let _ = writeln!(
                    svg,
                    "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
                );
            }
            let at = TOP + 18.0 * i as f64;
            let left = WIDTH - RIGHT + 12.0;
            let _ =
                writeln!(svg, "<rect x=\"{left}\" y=\"{at}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
            text(&mut svg, (left + 18.0, at + 10.0), "", &series.name);
        }
        line(&mut svg, (LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM), "#000000");
        line(&mut svg, (LEFT, TOP), (LEFT, HEIGHT - BOTTOM), "#000000");
        svg + "</svg>\n"
    }
}

/// From values to places.
struct Scale {
    from: f64,
    to: f64,
    at: f64,
    until: f64,
    log: bool,
}

impl Scale {
    /// Over some values; from zero, if so wished.
    fn over(values: impl Iterator<Item = f64>, at: f64, until: f64, log: bool, zero: bool) -> Self {
        let (mut from, mut to) = values
            .filter(|v| v.is_finite() && (!log || *v > 0.0))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        if from > to {
            (from, to) = (1.0, 2.0);
        }
        if log {
            (from, to) = (10_f64.powf(from.log10().floor()), 10_f64.powf(to.log10().ceil()));
        } else if zero {
            (from, to) = (from.min(0.0), to * 1.05);
        }
        if from == to {
            to += 1.0;
        }
        Self { from, to, at, until, log }
    }

    fn place(&self, v: f64) -> f64 {
        let part = if self.log {
            (v.max(self.from) / self.from).log10() / (self.to / self.from).log10()
        } else {
            (v - self.from) / (self.to - self.from)
        };
        self.at + part * (self.until - self.at)
    }

    /// Round numbers along it: about five, or the powers of ten.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let powers = self.from.log10().round() as i32..=self.to.log10().round() as i32;
            return powers.map(|p| 10_f64.powi(p)).collect();
        }
        let rough = (self.to - self.from) / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * power >= rough).unwrap_or(10.0);
        let first = (self.from / step).ceil() as i64;
        (first..).map(|i| i as f64 * step).take_while(|v| *v <= self.to).collect()
    }
}

fn number(v: f64) -> String {
    let v = (v * 1000.0).round() / 1000.0;
    format!("{v}")
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(svg: &mut String, at: (f64, f64), attributes: &str, v: &str) {
    let v = v.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" {attributes}>{v}</text>", at.0, at.1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(axis: Axis, log_y: bool, points: Vec<(f64, f64)>) -> String {
        let series = vec![Series { name: "a < b".into(), points }];
        Plot { title: "title", x: "x", y: "y", log_y, axis, series }.svg()
    }

    #[test]
    fn a_larger_value_stands_higher() {
        let scale = Scale::over([1.0, 5.0].into_iter(), 300.0, 10.0, false, true);
        assert!(scale.place(5.0) < scale.place(1.0));
        assert_eq!(scale.place(0.0), 300.0);
        let log = Scale::over([2.0, 50.0].into_iter(), 300.0, 10.0, true, false);
        assert_eq!(log.ticks(), [1.0, 10.0, 100.0]);
        assert_eq!((log.place(1.0), log.place(100.0)), (300.0, 10.0));
    }

    #[test]
    fn nothing_but_numbers_stands_in_the_places() {
        for points in [vec![], vec![(1.0, 1.0)], vec![(0.0, f64::NAN), (2.0, 3.0)]] {
            for (axis, log) in [(Axis::Numbers, true), (Axis::Names(vec!["one".into()]), false)] {
                let svg = plot(axis, log, points.clone());
                assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
                assert!(svg.contains("a &lt; b") && !svg.contains("inf"));
            }
        }
    }
}
