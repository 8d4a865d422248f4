//! Figure 18: the time to encode and decode a message against the number of its fields, as a multiple of ASN.1.

use std::io;
use std::path::Path;

use serde_json::json;

use super::finish;
use crate::codec::synthetic::{CODECS, Case, all};
use crate::measure::nanoseconds;
use crate::plot::{Axis, Plot, Series};

pub(super) fn run(plots: &Path) -> io::Result<()> {
    println!("figure 18: encoding and decoding, how many times as fast as ASN.1 ({})", CODECS[0]);
    println!(
        "paper: FlatBuffers 1.6 to 19.2 times as fast, the fastest from 7 fields on, twice the next best at 25;"
    );
    println!("       its ASN.1 codec is that of OpenAirInterface");
    println!(
        "here:  FlatBuffers are read in place, the others to a value; LCM is left out (no pure codec for Rust)\n"
    );
    println!("fields{}", CODECS.map(|c| format!("{c:>27}")).concat());

    let mut series: Vec<Series> = CODECS.map(|name| Series { name: name.into(), points: Vec::new() }).into();
    let (mut nanos, mut octets) = (Vec::new(), Vec::new());
    for (fields, mut cases) in all() {
        let sums = both_ways(&mut cases);
        let speed_ups: Vec<f64> = sums.iter().map(|ns| sums[0] / ns).collect();
        let cells: String =
            sums.iter().zip(&speed_ups).map(|(ns, times)| format!("{ns:>15.0} ns {times:>8.1}x")).collect();
        println!("{fields:>6}{cells}");
        for (series, times) in series.iter_mut().zip(&speed_ups) {
            series.points.push((f64::from(fields), *times));
        }
        nanos.push(json!({ "fields": fields, "ns": sums.iter().map(|ns| ns.round()).collect::<Vec<_>>() }));
        octets.push((fields, cases.map(|case| case.octets)));
    }

    println!("\noctets");
    for (fields, octets) in &octets {
        println!("{fields:>6}{}", octets.map(|n| format!("{n:>27}")).concat());
    }
    let last = |series: &Series| series.points.last().map_or(f64::NAN, |p| p.1);
    let best: Vec<(&str, f64)> = CODECS.into_iter().zip(series.iter().map(last)).collect();
    println!();
    for (name, times) in best.iter().skip(1) {
        println!(
            "at {} fields: {name} {times:.1} times as fast as {}",
            octets[octets.len() - 1].0,
            CODECS[0]
        );
    }
    Plot {
        title: "Encoding and decoding by number of fields (Neutrino, figure 18)",
        x: "fields",
        y: "times as fast as ASN.1 (rasn)",
        log_y: true,
        axis: Axis::Numbers,
        series,
    }
    .write(plots, "neutrino-fig18")?;
    finish("fig18", &json!({ "codecs": CODECS, "medians": nanos, "speed_up_at_most_fields": best }));
    Ok(())
}

/// The medians of encoding and decoding, added.
fn both_ways(cases: &mut [Case]) -> Vec<f64> {
    let mut tasks: Vec<&mut dyn FnMut()> = Vec::new();
    for case in cases {
        tasks.extend([&mut *case.encode as &mut dyn FnMut(), &mut *case.decode]);
    }
    nanoseconds(&mut tasks).chunks(2).map(|pair| pair.iter().sum()).collect()
}
