//! The final output of `whimbrel-lab ran`: a table, the first failures, and one line of JSON.

use serde_json::json;
use whimbrel_cli::{Done, print, table};
use whimbrel_ran::report::ScenarioReport;

/// Failures that are printed; the line of JSON has more.
const SHOWN_MAX: usize = 10;

/// Prints all reports.
pub(super) fn print_all(reports: &[ScenarioReport]) -> Done {
    for report in reports {
        print(&text(report))?;
    }
    let sum = |f: fn(&ScenarioReport) -> u64| reports.iter().map(f).sum::<u64>();
    let line = json!({"bench": "ran", "figures": {
        "arrived": sum(|r| r.arrived),
        "completed": sum(|r| r.completed),
        "failed": sum(|r| r.failed),
        "barred": sum(|r| r.barred),
        "violations": sum(|r| r.violated),
        "reports": reports.iter().map(ScenarioReport::json).collect::<Vec<_>>(),
    }});
    print(&format!("{line}\n"))
}

/// A report as text.
pub(super) fn text(report: &ScenarioReport) -> String {
    let mut text = report.rate.map(|r| format!("{r} UEs a second\n")).unwrap_or_default();
    let rows: Vec<Vec<String>> = report
        .steps
        .iter()
        .map(|(name, step)| {
            let quantile = |q| {
                let times = if step.wire.count() > 0 { &step.wire } else { &step.latency };
                if times.count() > 0 { times.quantile_micros(q).to_string() } else { "-".into() }
            };
            let counts = [step.begun.to_string(), step.failed.to_string()];
            let times = [0.5, 0.99, 0.999].map(quantile);
            std::iter::once((*name).to_owned()).chain(counts).chain(times).collect()
        })
        .collect();
    text += &table(&["step", "begun", "failed", "wire p50 us", "p99", "p99.9"], &rows);
    text += &format!(
        "{} of {} UEs completed all steps in {:.3} s\n",
        report.completed,
        report.arrived,
        report.elapsed.as_secs_f64()
    );
    if report.starved > 0 {
        text += &format!("{} arrivals found no free UE: give the scenario more UEs\n", report.starved);
    }
    if report.barred > 0 {
        text +=
            &format!("{} UEs were barred because the core is overloaded (OVERLOAD START)\n", report.barred);
    }
    for f in report.failures.iter().take(SHOWN_MAX) {
        text += &format!("failed: {} at step {}: {}\n", f.supi, f.step, f.reason);
    }
    for violation in report.violations.iter().take(SHOWN_MAX) {
        text += &format!("violation: {violation}\n");
    }
    text
}

/// The result of the run. `interrupted`: UEs that were still running have not failed.
pub(super) fn verdict(reports: &[ScenarioReport], interrupted: bool) -> Done {
    let sum = |f: fn(&ScenarioReport) -> u64| reports.iter().map(f).sum::<u64>();
    let (failed, violated) = (sum(|r| r.failed), sum(|r| r.violated));
    if failed > 0 || violated > 0 {
        return Err(format!(
            "failed UEs: {failed}; protocol violations of the core: {violated}; `whimbrel why IMSI` shows the reason"
        ));
    }
    if interrupted || (!reports.is_empty() && reports.iter().all(ScenarioReport::is_clean)) {
        return Ok(());
    }
    Err("not every UE arrived and completed all steps".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clean_run_is_a_success() {
        let clean = ScenarioReport { arrived: 2, completed: 2, ..ScenarioReport::default() };
        assert!(verdict(std::slice::from_ref(&clean), false).is_ok());
        assert!(verdict(&[], false).is_err());
        assert!(
            verdict(&[ScenarioReport { arrived: 2, completed: 1, ..ScenarioReport::default() }], false)
                .is_err()
        );
        assert!(
            verdict(&[ScenarioReport { arrived: 2, completed: 1, ..ScenarioReport::default() }], true)
                .is_ok()
        );
        assert!(verdict(&[ScenarioReport { failed: 1, ..clean.clone() }], true).is_err());
        assert!(text(&clean).contains("2 of 2 UEs"));
        let barred = ScenarioReport { completed: 1, barred: 1, ..clean };
        assert!(verdict(std::slice::from_ref(&barred), false).is_err_and(|e| !e.contains("failed")));
        assert!(text(&barred).contains("1 UEs were barred"));
    }
}
