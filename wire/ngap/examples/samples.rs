//! Prints messages and transfers made at random, one a line, as `TYPE HEX`: for an independent decoder to judge.
//!
//! `cargo run -p whimbrel-ngap --features samples --example samples -- COUNT [SEED]`

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};

use whimbrel_ngap::{Message, Source, transfer_samples};

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>());
    let (Some(Ok(count)), seed) = (args.next(), args.next()) else {
        return Err(io::Error::other("samples COUNT [SEED]: two numbers, please"));
    };
    let mut source = Source::without_fragments(seed.and_then(Result::ok).unwrap_or(1));
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = count;
    while left > 0 {
        let octets = Message::sample(&mut source).to_vec();
        // pycrate 0.8.1 loses its place after an open type in fragments (16384 octets and more) within another.
        if octets.len() < 16_384 {
            writeln!(out, "NGAP-PDU {}", hex(&octets))?;
            left -= 1;
        }
    }
    for _ in 0..count / 20 {
        for (name, octets) in transfer_samples(&mut source) {
            writeln!(out, "{name} {}", hex(&octets))?;
        }
    }
    out.flush()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, o| {
        let _ = write!(text, "{o:02x}");
        text
    })
}
