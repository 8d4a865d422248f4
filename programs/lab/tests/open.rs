//! The demonstration of CellBricks, small: three operators, two brokers, six UEs, in a network namespace of their own.

use std::process::Command;

use serde_json::Value;

#[test]
fn users_of_brokers_attach_at_operators_without_a_contract_and_load_pages() {
    let demo = Command::new(env!("CARGO_BIN_EXE_whimbrel-lab"))
        .args(["demo", "--scenario", "open", "--ues", "6"])
        .output()
        .expect("the program is built");
    let (output, errors) = (String::from_utf8_lossy(&demo.stdout), String::from_utf8_lossy(&demo.stderr));
    if errors.contains("unshare failed") || errors.contains("a network namespace cannot be made") {
        eprintln!("skipped: no network namespace can be made here");
        return;
    }
    assert!(demo.status.success(), "{output}\n{errors}");
    let line: Value = serde_json::from_str(output.lines().last().unwrap_or_default()).expect("JSON");
    let figures = &line["figures"];
    for (what, expected) in
        [("attaches", 18), ("grants", 18), ("pages", 18), ("failed", 0), ("violations", 0)]
    {
        assert_eq!(figures[what], expected, "{what}: {output}");
    }
}
