//! Claims that are proved and verified on one core, beside the chapter's circuits (4.6.2.3): K * (128 * N + 35,394) constraints of 38 us each.

use std::io;
use std::path::Path;

use clap::Args;
use serde_json::json;
use whimbrel_claims::stark::proven_bits;
use whimbrel_claims::{ClaimSecret, Row, Slots, Table, nonce, prove, verify};
use whimbrel_privacy::crypto::hash;

use super::finish;
use crate::measure::{core_time, median};
use crate::plot::{Axis, Plot, Series};

/// The chapter's time to prove: seconds.
fn chapter(slots: u32, rows: u32) -> f64 {
    f64::from(slots) * (128.0 * f64::from(rows) + 35_394.0) * 38e-6
}

/// What the chapter measured for (64, 4,096), in seconds.
const CHAPTER_MEASURED: f64 = 1_369.0;

/// What is to be reached: slots, logarithm of the rows, seconds to prove. Verifying takes less than 25 ms.
const GOALS: [(u16, u8, f64); 2] = [(64, 12, 0.15), (1_024, 20, 2.5)];
const VERIFY_GOAL_S: f64 = 0.025;

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Slots and rows of each claim: K:N, where N is a power of two.
    #[arg(long, value_delimiter = ',', default_values = ["32:256", "64:4096", "256:65536"])]
    sizes: Vec<String>,
    /// Measure 1,024 slots and a million rows too: 10 s, and 300 MB.
    #[arg(long)]
    largest: bool,
    /// Proofs of each size.
    #[arg(long, default_value_t = 3)]
    proofs: usize,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.sizes, self.largest, self.proofs) = (vec!["32:16".into()], false, 1);
    }
}

/// What was measured of a size.
struct Measured {
    slots: Slots,
    depth: u8,
    table_s: f64,
    prove_s: f64,
    verify_s: f64,
    octets: usize,
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    let mut sizes = options.sizes.iter().map(|size| size_of(size)).collect::<io::Result<Vec<_>>>()?;
    if options.largest {
        sizes.push(size_of("1024:1048576")?);
    }
    println!(
        "seconds of one core to prove and verify a claim of at most K of N sessions; chapter 4.6.2.3: libsnark, one core of 2.5 GHz"
    );
    println!(
        "{:>6} {:>9} {:>10} {:>9} {:>10} {:>8} {:>5} {:>14} {:>9}",
        "K", "N", "table, s", "prove, s", "verify, ms", "octets", "bits", "chapter, s", "faster"
    );
    let mut figures = Vec::new();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (slots, depth) in sizes {
        let m = measure(slots, depth, options.proofs)?;
        let (k, n) = (m.slots.get() as u32, 1u32 << m.depth);
        let (chapter_s, bits) = (chapter(k, n), proven_bits(m.depth, m.slots.get()));
        println!(
            "{k:>6} {n:>9} {:>10.3} {:>9.3} {:>10.1} {:>8} {bits:>5} {chapter_s:>14.0} {:>8.0}x",
            m.table_s,
            m.prove_s,
            m.verify_s * 1e3,
            m.octets,
            chapter_s / m.prove_s.max(1e-9)
        );
        if let Some((.., goal)) =
            GOALS.iter().find(|(k, d, _)| usize::from(*k) == m.slots.get() && *d == m.depth)
        {
            let of = |reached: bool| if reached { "reached" } else { "not reached" };
            println!(
                "       goals: proved in {goal} s: {}; verified in {VERIFY_GOAL_S} s: {}",
                of(m.prove_s <= *goal),
                of(m.verify_s < VERIFY_GOAL_S)
            );
        }
        ours.push((f64::from(k) * f64::from(n), m.prove_s));
        theirs.push((f64::from(k) * f64::from(n), chapter_s));
        figures.push(json!({
            "slots": k, "rows": n, "table_s": m.table_s, "prove_s": m.prove_s, "verify_ms": m.verify_s * 1e3,
            "proof_octets": m.octets, "proven_bits": bits, "chapter_s": chapter_s,
        }));
    }
    println!(
        "the chapter measured {CHAPTER_MEASURED} s for 64 of 4,096; its larger figures are its formula's"
    );
    Plot {
        title: "Time to prove a claim of K of N sessions, one core",
        x: "K * N",
        y: "seconds",
        log_y: true,
        axis: Axis::Numbers,
        series: vec![
            Series { name: "chapter's formula".into(), points: theirs },
            Series { name: "whimbrel".into(), points: ours },
        ],
    }
    .write(plots, "loca-claims")?;
    finish("claims", &json!(figures));
    Ok(())
}

fn size_of(text: &str) -> io::Result<(Slots, u8)> {
    let wrong = || io::Error::other(format!("{text} is no size: write K:N, such as 64:4096"));
    let (slots, rows) = text.split_once(':').ok_or_else(wrong)?;
    let slots = slots.parse().ok().and_then(Slots::new).ok_or_else(wrong)?;
    let rows: u32 = rows.parse().ok().filter(|rows: &u32| rows.is_power_of_two()).ok_or_else(wrong)?;
    let depth = rows.ilog2();
    if (1..=20).contains(&depth) { Ok((slots, depth as u8)) } else { Err(wrong()) }
}

fn secret(n: u32) -> ClaimSecret {
    ClaimSecret::new(&hash(&[b"session", &n.to_be_bytes()]))
}

/// Seven of eight slots are used.
fn measure(slots: Slots, depth: u8, proofs: usize) -> io::Result<Measured> {
    let failed = |e: &dyn core::fmt::Display| io::Error::other(e.to_string());
    let mut rows: Vec<Row> =
        (0..1u32 << depth).map(|n| Row { nonce: nonce(&secret(n)), units: n % 1_000 }).collect();
    rows.sort_unstable();
    let begin = core_time();
    let table = Table::new(rows).map_err(|e| failed(&e))?;
    let table_s = (core_time() - begin).as_secs_f64();
    let used = (slots.get() - slots.get() / 8).min(table.rows().len());
    let secrets: Vec<_> = (0..used as u32).map(secret).collect();
    let (mut proving, mut verifying, mut octets) = (Vec::new(), Vec::new(), 0);
    for n in 0..proofs.max(1) {
        let seed = hash(&[b"seed", &n.to_be_bytes()]);
        let begin = core_time();
        let (claim, proof) = prove(&table, &secrets, slots, [7; 32], &seed).map_err(|e| failed(&e))?;
        proving.push((core_time() - begin).as_secs_f64());
        for _ in 0..3 {
            let begin = core_time();
            verify(&claim, &proof).map_err(|e| failed(&e))?;
            verifying.push((core_time() - begin).as_secs_f64());
        }
        octets = octets.max(proof.len());
    }
    Ok(Measured { slots, depth, table_s, prove_s: median(proving), verify_s: median(verifying), octets })
}
