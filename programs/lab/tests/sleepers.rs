//! The demonstration of UEs at rest, small: two thousand idle UEs, and active ones that rest in between, in a network namespace of their
//! own.

use std::process::Command;

#[test] // TS 23.502 §4.2.2.2.2, §4.2.3.2, §4.2.6, §4.9.1.2, §4.9.1.3: procedures of UEs that were stored as records in between
fn active_ues_beside_many_at_rest_complete_all_procedures() {
    let demo = Command::new(env!("CARGO_BIN_EXE_whimbrel-lab"))
        .args(["demo", "--scenario", "sleepers", "--ues", "2000", "--active", "24", "--memory-mib", "256"])
        .output()
        .expect("the program starts");
    let (output, errors) = (String::from_utf8_lossy(&demo.stdout), String::from_utf8_lossy(&demo.stderr));
    if errors.contains("unshare failed") || errors.contains("a network namespace cannot be made") {
        eprintln!("skipped: no network namespace can be made here");
        return;
    }
    assert!(demo.status.success(), "{output}\n{errors}");
    let line = output.lines().last().unwrap_or_default();
    let figures =
        serde_json::from_str::<serde_json::Value>(line).expect("the last line is JSON")["figures"].clone();
    assert_eq!((figures["failed"].as_u64(), figures["violations"].as_u64()), (Some(0), Some(0)), "{line}");
    let number = |key: &str| figures[key].as_u64().unwrap_or(0);
    assert!(number("at_rest") >= 2000 && (100..400).contains(&number("octets_per_record")), "{line}");
    // Each active UE is decoded for its return, its periodic registration and what follows.
    assert!(number("fast_reads") + number("slow_reads") >= 2 * 24, "{line}");
    // Of the idle UEs that registered over N2, half send SERVICE REQUEST and the others are paged: each is decoded for it.
    assert_eq!(number("woken"), 20, "{line}");
    assert!(
        number("woken_fast_reads") + number("woken_slow_reads") >= 20 && number("paged_us_p50") > 0,
        "{line}"
    );
    assert!(number("most_resident") <= number("limit_octets"), "{line}");
}
