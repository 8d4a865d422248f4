//! Figure 19: the time to encode and decode real messages, in ASN.1, FlatBuffers, and FlatBuffers with single-value unions.

use std::hint::black_box;
use std::io;
use std::path::Path;

use serde_json::json;
use whimbrel_ngap::Message;
use whimbrel_ngap::fast::{Form, View};

use super::finish;
use crate::codec::synthetic::{Case, case};
use crate::codec::{messages, rasn_ngap};
use crate::measure::{median, nanoseconds};
use crate::plot::{Axis, Plot, Series};

/// The codecs, the conventional ASN.1 codec first.
const CODECS: [&str; 5] = [
    "ASN.1 (rasn)",
    "ASN.1 (ours)",
    "FlatBuffers",
    "FlatBuffers, single values",
    "the same, glance at UE and NAS",
];

pub(super) fn run(plots: &Path) -> io::Result<()> {
    println!("figure 19: encoding and decoding real messages, how many times as fast as ASN.1 (rasn)");
    println!("paper: FlatBuffers up to 5.9 times as fast, in some cases more with single-value unions;");
    println!("       S1AP messages, its ASN.1 codec that of OpenAirInterface");
    println!("here:  NGAP; all but the last decode to a value that owns its octets\n");
    println!("{:<42}{}", "ns: encode + decode", CODECS.map(|c| format!("{c:>34}")).concat());

    let mut names = Vec::new();
    let mut speed_ups: [Vec<f64>; CODECS.len()] = Default::default();
    let mut lean = Vec::new();
    let mut medians = Vec::new();
    for (name, message) in messages::all() {
        let mut cases = cases(&message);
        let mut tasks: Vec<&mut dyn FnMut()> = Vec::new();
        for case in &mut cases {
            tasks.extend([&mut *case.encode as &mut dyn FnMut(), &mut *case.decode]);
        }
        let pairs = nanoseconds(&mut tasks);
        let sums: Vec<f64> = pairs.chunks(2).map(|pair| pair.iter().sum()).collect();
        let cells: String = pairs
            .chunks(2)
            .zip(&sums)
            .map(|(pair, sum)| format!("{:>16.0} + {:>5.0} {:>7.1}x", pair[0], pair[1], sums[0] / sum))
            .map(|cell| format!("{cell:>34}"))
            .collect();
        println!("{name:<42}{cells}");
        for (all, sum) in speed_ups.iter_mut().zip(&sums) {
            all.push(sums[0] / sum);
        }
        lean.push(sums[1] / sums[3]);
        medians.push(json!({ "message": name, "ns": pairs.iter().map(|ns| ns.round()).collect::<Vec<_>>() }));
        names.push(name.to_owned());
    }

    println!();
    let mut figures = json!({ "codecs": CODECS, "medians_encode_decode": medians });
    for (codec, all) in CODECS.iter().zip(&speed_ups).skip(1) {
        let most = all.iter().copied().fold(f64::NAN, f64::max);
        let middle = median(all.clone());
        println!(
            "{codec}: {middle:.1} times as fast as rasn in the median, up to {most:.1} (paper: up to 5.9)"
        );
        figures["speed_up"][codec] = json!({ "median": middle, "most": most });
    }
    let worst = lean.iter().copied().fold(f64::NAN, f64::max);
    let middle = median(lean);
    println!(
        "ASN.1 (ours) takes {middle:.2} times as long as FlatBuffers with single values, at most {worst:.2} (aim: 1.5)"
    );
    figures["our_asn1_to_single_values"] = json!({ "median": middle, "most": worst });

    let bars = |all: Vec<f64>| all.into_iter().enumerate().map(|(i, v)| (i as f64, v)).collect();
    let series = CODECS
        .iter()
        .zip(speed_ups)
        .map(|(name, all)| Series { name: (*name).into(), points: bars(all) })
        .collect();
    Plot {
        title: "Encoding and decoding real messages (Neutrino, figure 19)",
        x: "",
        y: "times as fast as ASN.1 (rasn)",
        log_y: false,
        axis: Axis::Names(names),
        series,
    }
    .write(plots, "neutrino-fig19")?;
    finish("fig19", &figures);
    Ok(())
}

/// A message in each codec, in the order of [`CODECS`].
fn cases(message: &Message) -> [Case; CODECS.len()] {
    let per = message.to_vec();
    let conventional = rasn_ngap::read(&per).expect("rasn has types for all of these");
    assert_eq!(rasn_ngap::write(&conventional).ok(), Some(per), "two encoders of one standard");
    let [ours, plain, single, glance] = [(); 4].map(|()| message.clone());
    [
        case(
            move |out| out.extend(rasn_ngap::write(&conventional).unwrap()),
            |octets| rasn_ngap::read(octets).unwrap(),
        ),
        case(move |out| ours.encode(out), |octets| Message::decode(octets).unwrap()),
        case(
            move |out| plain.encode_fast(Form::Plain, out),
            |octets| Message::decode_fast(octets, Form::Plain).unwrap(),
        ),
        case(
            move |out| single.encode_fast(Form::SingleValue, out),
            |octets| Message::decode_fast(octets, Form::SingleValue).unwrap(),
        ),
        case(
            move |out| glance.encode_fast(Form::SingleValue, out),
            |octets| {
                let view = View::new(octets, Form::SingleValue).unwrap();
                black_box(view.nas_pdu());
                view.peek()
            },
        ),
    ]
}
