//! Each experiment from its beginning to its end, with so little to measure that it shows nothing but that it can be drawn.

use std::ffi::OsStr;
use std::process::Command;

/// Runs it; returns its output.
fn run(paper: &str, name: &str, little: &[&str]) -> String {
    run_with(paper, name, little, &[])
}

fn run_with(paper: &str, name: &str, little: &[&str], environment: &[(&str, &OsStr)]) -> String {
    let plots = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("plots").join(name);
    let _ = std::fs::remove_dir_all(&plots);
    let bench = Command::new(env!("CARGO_BIN_EXE_whimbrel-bench"))
        .arg("--plots")
        .arg(&plots)
        .args([paper, name])
        .args(little)
        .envs(environment.iter().copied())
        .output()
        .expect("the experiments are built");
    let output = String::from_utf8_lossy(&bench.stdout).into_owned();
    assert!(bench.status.success(), "{name}: {}", String::from_utf8_lossy(&bench.stderr));
    let drawn = std::fs::read_dir(&plots).map_or(0, |files| files.count());
    // What is measured of background work is a table.
    assert!(drawn > 0 || name == "harvest", "{name} has a plot");
    let last = output.lines().last().unwrap_or_default();
    let figures: serde_json::Value = serde_json::from_str(last).expect("the last line is JSON");
    assert_eq!(figures["bench"], format!("{paper} {name}"));
    output
}

/// An experiment of completion times; returns its output.
fn figure(name: &str) -> String {
    let output = run("neutrino", name, &["--quick"]);
    // In figure 10 not all UEs of `existing` have attached again in the end: that is counted there, and none of ours.
    let failed = output.lines().filter(|line| line.contains("failed") && !line.contains("failed: ours 0,"));
    assert_eq!(failed.count(), 0, "every procedure completes:\n{output}");
    assert!(!output.contains("NaN"), "every scheme was measured:\n{output}");
    output
}

#[test]
fn figure_3_video_and_page() {
    figure("fig3");
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
    let output = figure("fig10");
    let last: serde_json::Value =
        serde_json::from_str(output.lines().last().unwrap_or_default()).expect("JSON");
    let distances = last["figures"]["second_procedure"]["distances"].as_array().expect("distances");
    for at in distances {
        assert_eq!(at["register_again"][0], 0, "the log has what the backups lack:\n{output}");
    }
    let farthest = distances.last().expect("distances");
    assert_ne!(farthest["register_again"][1], 0, "states come too late for the paper's rule:\n{output}");
}

#[test]
fn figure_11_handovers_to_another_cpf() {
    figure("fig11");
}

#[test]
fn figure_13_a_car() {
    figure("fig13");
}

#[test]
fn figure_14_a_headset() {
    figure("fig14");
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

#[test]
fn figures_18_to_20_codecs() {
    for name in ["fig18", "fig19", "fig20"] {
        run("neutrino", name, &[]);
    }
}

#[test] // what is measured is the program's: tests/interop/bench.sh has it measure
fn detection() {
    use std::os::unix::fs::PermissionsExt;
    let program = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("measures-nothing");
    let point = r#"{"load_percent":70,"found_p50_ms":41.5,"false_alarms":2,"seconds":5}"#;
    let says =
        format!("#!/bin/sh\necho measured: \"$@\"\necho '{{\"figures\":{{\"curve\":[{point},{point}]}}}}'\n");
    std::fs::write(&program, says).expect("a folder for tests");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let output =
        run_with("neutrino", "detection", &["--loads", "70"], &[("WHIMBREL_LAB", program.as_os_str())]);
    assert!(output.contains("measured: bench detection --loads 70"), "{output}");
    assert!(output.ends_with("}\n") && output.contains("41.5"), "{output}");
}

#[test] // what is measured is the program's: tests/interop/bench.sh has it measure
fn live_figures_are_drawn() {
    use std::os::unix::fs::PermissionsExt;
    let program = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("measures-nothing-live");
    let run =
        |scheme: &str, us: u32| format!(r#"{{"scheme":"{scheme}","connected":8,"p50_from_found_us":{us}}}"#);
    let row = r#"{"at":500.0,"step":"return","ours":{"p50_us":120},"existing":{"p50_us":130}}"#;
    let figures = format!(r#"{{"runs":[{},{}],"rates":[{row}]}}"#, run("ours", 700), run("existing", 2100));
    let says = format!("#!/bin/sh\necho measured: \"$@\"\necho '{{\"figures\":{figures}}}'\n");
    std::fs::write(&program, says).expect("a folder for tests");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    for figure in ["fig7", "fig10"] {
        let little = [figure, "--quick"];
        let output = run_with("neutrino", "live", &little, &[("WHIMBREL_LAB", program.as_os_str())]);
        assert!(output.contains(&format!("measured: bench neutrino {figure} --quick")), "{output}");
    }
}

/// An experiment of the user plane; returns its output.
fn user_plane(name: &str) -> String {
    run("upf", name, &["--quick"])
}

#[test]
fn user_plane_predictions() {
    user_plane("bloom");
}

#[test]
fn user_plane_classifier() {
    user_plane("classifier");
}

#[test]
fn user_plane_flows() {
    user_plane("flows");
}

#[test]
fn user_plane_harvest() {
    let output = user_plane("harvest");
    assert!(output.contains("inference") && output.contains("aggregation"), "{output}");
}

#[test]
fn user_plane_handover() {
    let output = user_plane("handover");
    let last: serde_json::Value =
        serde_json::from_str(output.lines().last().unwrap_or_default()).expect("JSON");
    // Live where namespaces and XDP programs are permitted.
    let live = &last["figures"]["live"];
    assert!(live.is_null() || live.as_array().is_some_and(|rows| rows.len() == 4), "{output}");
    // TCP needs less of the host.
    assert!(
        live.is_null() || last["figures"]["tcp"].as_array().is_some_and(|rows| rows.len() == 5),
        "{output}"
    );
}

#[test]
fn user_plane_threads() {
    user_plane("threads");
}

#[test]
fn user_plane_throughput() {
    let output = user_plane("throughput");
    let last: serde_json::Value =
        serde_json::from_str(output.lines().last().unwrap_or_default()).expect("JSON");
    let shares = last["figures"]["stage_percent"][0][1].as_object().expect("shares");
    let sum: f64 = shares.values().filter_map(serde_json::Value::as_f64).sum();
    assert!(shares.len() == 7 && (sum - 100.0).abs() < 1.0, "{shares:?}");
}

#[test]
fn bricks_attach() {
    let output = run("bricks", "attach", &["--quick"]);
    let last: serde_json::Value =
        serde_json::from_str(output.lines().last().unwrap_or_default()).expect("JSON");
    let rows = last["figures"]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 3, "{output}");
    for row in rows.iter().filter(|row| row["home_rtt_ms"] != 0.0) {
        let ms = |of: &str| row[of]["total_ms"].as_f64().expect("a number");
        // One round trip in place of two is less whatever the machine does besides.
        assert!(ms("sap") < ms("standard"), "{output}");
    }
}

#[test]
fn bricks_broker() {
    run("bricks", "broker", &["--quick"]);
}

#[test]
fn l25gc_messages() {
    run("l25gc", "messages", &["--quick"]);
}

#[test]
fn l25gc_fabric() {
    run("l25gc", "fabric", &["--quick"]);
}

#[test]
fn l25gc_n4() {
    run("l25gc", "n4", &["--quick"]);
}

#[test]
fn l25gc_procedures() {
    let output = run("l25gc", "procedures", &["--quick"]);
    assert!(!output.contains("NaN"), "every procedure was measured in every build:\n{output}");
}

#[test]
fn l25gc_replica() {
    run("l25gc", "replica", &["--quick"]);
}

#[test] // what is measured is the program's: tests/interop/bench.sh has it measure
fn l25gc_failover() {
    use std::os::unix::fs::PermissionsExt;
    let program = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("measures-no-failover");
    let case = r#"{"case":"CPF","gap_down_ms":1.5,"goodput":[[0.0,29.1],[0.02,28.9]],"rtt":[[0.0,20.1]]}"#;
    let figures = format!(r#"{{"fig15":[{case}],"lost_with_replicas":1}}"#);
    let says = format!("#!/bin/sh\necho measured: \"$@\"\necho '{{\"figures\":{figures}}}'\n");
    let environment = [("WHIMBREL_LAB", program.as_os_str())];
    let write = |text: &str| {
        std::fs::write(&program, text).expect("a folder for tests");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    };
    write(&says);
    let output = run_with("l25gc", "failover", &["--quick"], &environment);
    assert!(output.contains("measured: bench l25gc failover --quick"), "{output}");
    let last: serde_json::Value =
        serde_json::from_str(output.lines().last().unwrap_or_default()).expect("JSON");
    let case = &last["figures"]["fig15"][0];
    assert!(
        case["gap_down_ms"] == 1.5 && case["goodput"].is_null(),
        "what is drawn is not printed: {output}"
    );
    // Packets were lost: the figures are drawn and printed, and the exit status says so.
    write(&(says + "exit 1\n"));
    let lost = Command::new(env!("CARGO_BIN_EXE_whimbrel-bench"))
        .args(["--plots", env!("CARGO_TARGET_TMPDIR"), "l25gc", "failover"])
        .envs(environment)
        .output()
        .expect("the experiments are built");
    assert!(!lost.status.success() && !lost.stdout.is_empty(), "{lost:?}");
}

#[test]
fn loca_tokens() {
    run("loca", "tokens", &["--quick"]);
}

#[test]
fn loca_claims() {
    run("loca", "claims", &["--quick"]);
}

#[test]
fn loca_subset() {
    run("loca", "subset", &["--quick"]);
}

#[test]
fn loca_trajectory() {
    run("loca", "trajectory", &["--quick"]);
}

#[test]
fn bricks_billing() {
    let output = run("bricks", "billing", &["--quick"]);
    assert!(output.contains("false alarms of an honest one: 0.00000"), "{output}");
}
