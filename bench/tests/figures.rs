//! Each figure of completion times from its beginning to its end, with so few phones that it shows nothing but that it can be drawn.

use std::process::Command;

fn figure(name: &str) {
    let plots = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("plots");
    let bench = Command::new(env!("CARGO_BIN_EXE_whimbrel-bench"))
        .arg("--plots")
        .arg(&plots)
        .args(["neutrino", name, "--quick"])
        .output()
        .expect("the experiments are built");
    let said = String::from_utf8_lossy(&bench.stdout);
    assert!(bench.status.success(), "{name}: {}", String::from_utf8_lossy(&bench.stderr));
    assert!(plots.join(format!("neutrino-{name}.svg")).exists(), "{name} has a plot");
    let last = said.lines().last().unwrap_or_default();
    let figures: serde_json::Value = serde_json::from_str(last).expect("the last line is JSON");
    assert_eq!(figures["bench"], format!("neutrino {name}"));
    // In figure 10 not all phones of `existing` have attached anew in the end: that is counted there, and none of ours.
    let failed = said.lines().filter(|line| line.contains("failed") && !line.contains("failed: ours 0,"));
    assert_eq!(failed.count(), 0, "every procedure completes:\n{said}");
    assert!(!said.contains("NaN"), "every scheme was measured:\n{said}");
}

#[test]
fn figure_7_service_requests() {
    figure("fig7");
}

#[test]
fn figure_8_attaches() {
    figure("fig8");
}

#[test]
fn figure_9_bursts() {
    figure("fig9");
}

#[test]
fn figure_10_losses() {
    figure("fig10");
}

#[test]
fn figure_11_handovers_to_another_control_function() {
    figure("fig11");
}

#[test]
fn figure_15_replication() {
    figure("fig15");
}

#[test]
fn figure_16_the_log() {
    figure("fig16");
}

#[test]
fn figure_17_octets_of_the_log() {
    figure("fig17");
}
