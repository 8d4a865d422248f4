//! `whimbrel-lab demo --scenario open`: users of two brokers move among three operators with which their brokers have no contract.

mod billing;

use std::time::Duration;

use serde_json::json;
use whimbrel_cli::{Done, print, table};
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{ArrivalPattern, Scenario, SessionStep, SessionType, Step};
use whimbrel_sctp_io::Mode;

use super::Options;
use crate::playground::open::{BROKERS, OPERATORS, OpenPlayground, Operator};
use crate::playground::{NAME, Servers};

/// Rounds: each UE is at each operator once.
const ROUNDS: usize = OPERATORS;

/// An observer that ignores all.
struct Unwatched;

impl Watch for Unwatched {}

pub(super) fn run(options: &Options) -> Done {
    super::announce_demonstration_build("a core that reports more than it measured")?;
    print(&format!(
        "starting {OPERATORS} operators and {BROKERS} brokers in a network namespace of their own; no operator has a contract with a broker\n"
    ))?;
    let gnbs = options.gnbs.div_ceil(OPERATORS as u8);
    let mut playground = OpenPlayground::start(options.ues(), gnbs)?;
    let servers =
        playground.operators.iter().map(|o| Servers::start(o.gateway)).collect::<Result<Vec<_>, _>>()?;
    print(&format!(
        "{} SAP UEs, which attach in one round trip to the broker, and {} ordinary UEs with a USIM of the broker: attach, session, DNS, \
         page, deregister; then to the next operator\n",
        options.ues() as usize - playground.ordinary(),
        playground.ordinary()
    ))?;
    let mut reports: Vec<Vec<ScenarioReport>> = (0..OPERATORS).map(|_| Vec::new()).collect();
    for round in 0..ROUNDS {
        let played = play(&playground, round).map_err(|e| format!("{e}\n{}", playground.logged()))?;
        for (operator, report) in played {
            reports[operator].push(report);
        }
    }
    let grants = playground.grants()?;
    let mut left = 0;
    for operator in &playground.operators {
        left += operator.client.get::<serde_json::Value>("/api/v1/ues")?["total"].as_u64().unwrap_or(0);
    }
    let pages: u64 = servers.iter().map(|s| s.served().1).sum();
    let billed = billing::run(&mut playground, u64::from(options.ues()) * ROUNDS as u64);
    let logged = playground.logged();
    let ids: Vec<String> = playground.operators.iter().map(|o| o.id.to_string()).collect();
    let ordinary = playground.ordinary();
    let stopped = playground.stop();
    let summary = Summary::of(&reports);
    summarise(&ids, &reports, &grants, pages)?;
    for failure in reports.iter().flatten().flat_map(|r| &r.failures).take(10) {
        print(&format!("failed: {} in {}: {}\n", failure.supi, failure.step, failure.reason))?;
    }
    if let Ok(billed) = &billed {
        print(&format!("{}\n", json!({"bench": "open billing", "figures": billed})))?;
    }
    let granted: u64 = grants.iter().map(|(_, n)| n).sum();
    let line = json!({"bench": "open", "figures": {
        "operators": OPERATORS, "brokers": BROKERS, "ues": options.ues(), "class_2_ues": ordinary, "attaches": summary.attaches,
        "grants": granted, "failed": summary.failed, "violations": summary.violated, "pages": pages,
        "attach_us_p50": summary.attach_us_p50, "attach_us_p99": summary.attach_us_p99,
    }});
    print(&format!("{line}\n"))?;
    if summary.failed > 0 || summary.violated > 0 || left > 0 {
        let (failed, violated) = (summary.failed, summary.violated);
        return Err(format!(
            "{failed} UEs failed, {violated} violations, {left} UEs are left in the cores\n{logged}"
        ));
    }
    let expected = u64::from(options.ues()) * ROUNDS as u64;
    if granted != expected || pages != expected {
        return Err(format!(
            "{granted} grants and {pages} pages, but {expected} attaches were due\n{logged}"
        ));
    }
    billed.map_err(|e| format!("{e}\n{logged}"))?;
    stopped
}

/// One round at all operators at once.
fn play(playground: &OpenPlayground, round: usize) -> Result<Vec<(usize, ScenarioReport)>, String> {
    std::thread::scope(|scope| {
        let runs: Vec<_> = playground
            .operators
            .iter()
            .enumerate()
            .filter_map(|(n, operator)| {
                let ues = playground.ues(n, round);
                let seed = (round * OPERATORS + n) as u64;
                (!ues.is_empty()).then(|| (n, scope.spawn(move || at(operator, ues, seed))))
            })
            .collect();
        let mut reports = Vec::new();
        for (n, run) in runs {
            let report = run.join().map_err(|_| "the UEs of an operator ended in a panic".to_owned())??;
            reports.push((n, report));
        }
        Ok(reports)
    })
}

/// UEs at an operator: each loads a page.
fn at(
    operator: &Operator,
    ues: Vec<whimbrel_ran::ue::UeConfig>,
    seed: u64,
) -> Result<ScenarioReport, String> {
    at_operator(operator, ues, seed, steps(format!("http://{NAME}/")))
}

/// UEs at an operator, and what they do.
fn at_operator(
    operator: &Operator,
    ues: Vec<whimbrel_ran::ue::UeConfig>,
    seed: u64,
    steps: Vec<Step>,
) -> Result<ScenarioReport, String> {
    let gnbs = operator.gnb_places();
    let scenario = scenario(ues.len() as u32, gnbs.len() as u16, steps);
    let config = RunnerConfig {
        amf: vec![operator.amf],
        amf_port: 38412,
        sctp: Mode::Auto,
        sctp_udp_ports: (9900, 9899),
        gnbs,
        ues,
        scenario,
        seed,
        namespace: None,
        hold: false,
        spin: Duration::from_micros(20),
        hop_delay: Duration::ZERO,
    };
    let reports =
        edge::run(&config, &mut Unwatched).map_err(|e| format!("at operator {}: {e}", operator.id))?;
    reports.into_iter().next().ok_or_else(|| format!("no UE arrived at operator {}", operator.id))
}

/// After the page the UE waits until the last packets of the connection have come, so that it counts them.
fn steps(url: String) -> Vec<Step> {
    let session =
        SessionStep { dnn: Some("internet".into()), s_nssai: None, pdu_session_type: SessionType::Ipv4 };
    vec![
        Step::Register,
        Step::Session(session),
        Step::Resolve(NAME.into()),
        Step::Fetch(url),
        Step::Wait(0.3),
        Step::Deregister,
    ]
}

fn scenario(ues: u32, gnbs: u16, steps: Vec<Step>) -> Scenario {
    Scenario {
        ues,
        gnbs,
        before: Vec::new(),
        before_rate: 500.0,
        arrival: ArrivalPattern::AtOnce,
        steps,
        groups: Vec::new(),
        seconds: 0.0,
        patience_s: 30.0,
        again: false,
        tun: false,
    }
}

/// What came of all rounds.
struct Summary {
    attaches: u64,
    failed: u64,
    violated: u64,
    attach_us_p50: u64,
    attach_us_p99: u64,
}

impl Summary {
    fn of(reports: &[Vec<ScenarioReport>]) -> Self {
        let all = || reports.iter().flatten();
        let register = || all().filter_map(|r| r.steps.get("register"));
        // The slowest operator's: an upper bound of the percentile over all.
        let quantile = |q| register().map(|s| s.wire.quantile_micros(q)).max().unwrap_or(0);
        Self {
            attaches: register().map(|s| s.begun).sum(),
            failed: all().map(|r| r.failed).sum(),
            violated: all().map(|r| r.violated).sum(),
            attach_us_p50: quantile(0.5),
            attach_us_p99: quantile(0.99),
        }
    }
}

fn summarise(ids: &[String], reports: &[Vec<ScenarioReport>], grants: &[(String, u64)], pages: u64) -> Done {
    let mut rows = Vec::new();
    for (id, of) in ids.iter().zip(reports) {
        let s = Summary::of(std::slice::from_ref(of));
        let (p50, p99) = (s.attach_us_p50.to_string(), s.attach_us_p99.to_string());
        rows.push(vec![id.clone(), s.attaches.to_string(), s.failed.to_string(), p50, p99]);
    }
    print(&table(&["operator", "attaches", "failed", "attach p50 us", "p99"], &rows))?;
    let rows: Vec<_> = grants.iter().map(|(domain, n)| vec![domain.clone(), n.to_string()]).collect();
    print(&table(&["broker", "grants"], &rows))?;
    print(&format!(
        "{pages} pages were loaded through the tunnels; each attach was granted by the user's broker\n"
    ))
}
