//! Sessions of other shapes: what a packet costs against the number of PDRs that its session has.

use serde_json::{Value, json};
use whimbrel_user::RULES_PER_SESSION_MAX;

use super::super::flows::product::{Memory, Shape, World, packets};

/// Sessions, and active flows of them all.
const SESSIONS: u32 = 512;
const FLOWS: u32 = 8_192;

/// Measures and prints; the rows.
pub(super) fn run(pdrs: &[u16], rounds: usize) -> Value {
    println!(
        "\nby PDRs of a session, each but the first two with a filter: {SESSIONS} sessions, {FLOWS} flows, ns a packet"
    );
    println!("{:>6}{:>16}{:>26}", "", "filters asked", "flows remembered");
    let mut slots = packets();
    let rows = pdrs.iter().filter_map(|&pdrs| {
        if usize::from(pdrs) > RULES_PER_SESSION_MAX {
            println!("{pdrs:>6}  left out: a session has {RULES_PER_SESSION_MAX} PDRs at most");
            return None;
        }
        let [asked, remembered] = [Memory::ASKED, Memory::SECOND_LEVEL].map(|memory| {
            let mut world = World::new(Shape::of_pdrs(pdrs), SESSIONS, memory);
            world.meet(FLOWS, &mut slots);
            let draws = super::super::flows::draws(0, FLOWS, rounds);
            world.measured(&draws, &mut slots, rounds).0
        });
        println!("{pdrs:>6}{asked:>16.1}{remembered:>26.1}");
        let round = |v: f64| (v * 10.0).round() / 10.0;
        Some(json!({ "pdrs": pdrs, "asked_ns": round(asked), "remembered_ns": round(remembered) }))
    });
    rows.collect()
}
