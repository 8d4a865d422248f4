//! The demonstration of `n3.harvest`, with so little to measure that it shows no more than that each way to share the core runs.

#[path = "../examples/harvest/measured.rs"]
mod measured;

use measured::{Options, run};

#[test]
fn packets_pass_in_every_way_to_share_the_core_and_only_those_with_work_survey() {
    let arguments = "--sessions 200 --rates 30 --budgets 1000 --rounds 1 --seconds 0.25";
    let options = Options::read(arguments.split(' ').map(String::from)).expect("arguments");
    let rows = run(&options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(rows.len(), 5);
    for row in &rows {
        assert!(row.mpps > 0.0 && row.p50_us > 0.0, "{row:?}");
        assert!(!row.way.ends_with("no work") || row.surveyed == 0.0, "{row:?}");
        assert!(!row.way.starts_with("harvest") || row.surveyed > 0.0, "{row:?}");
    }
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    for arguments in [
        "--sessions 0",
        "--sessions 13000000",
        "--rates x",
        "--rounds 0",
        "--seconds -1",
        "--other 1",
        "--rates",
    ] {
        assert!(Options::read(arguments.split(' ').map(String::from)).is_none(), "{arguments}");
    }
}
