//! `whimbrel-lab demo --scenario seams`: a core whose UDM, PCF and CHF are processes of their own, which it finds through an NRF (docs/sbi.md).
//! Each is killed in turn, the PCF changes the QoS of a session, and prepaid credit ends.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use whimbrel_cli::{Done, print};
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{ArrivalPattern, Scenario, SessionStep, SessionType, Step};
use whimbrel_sctp_io::Mode;

use crate::playground::seams::{Function, SeamFunctions};
use crate::playground::{GATEWAY, NAME, Playground, Servers, SuciScheme, Wish};

/// UEs of each step of the demonstration.
const UES: u32 = 10;
/// Octets that a UE may use.
const CREDIT: u64 = 3_000_000;
/// The rate that the PCF sets in mid-session.
const CHANGED_KBPS: u64 = 7_000;
/// How long a change may take until it is in force, and a function until it is found again.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(40);

struct Unwatched;

impl Watch for Unwatched {}

pub(super) fn run() -> Done {
    print(
        "starting a core, and its NRF, UDM, PCF and CHF as processes of their own, with mutual TLS and access tokens\n",
    )?;
    let mut functions = SeamFunctions::prepare()?;
    let wish = Wish {
        ues: UES,
        gnbs: 2,
        slices: ["1"].iter().filter_map(|s| s.parse().ok()).collect(),
        configuration: functions.core_configuration(),
        capture: None,
        core_cpu: None,
        suci: SuciScheme::Null,
        unit: false,
        added_ues: 0,
        data_limit: None,
        keeps_ues: false,
        cpfs: Vec::new(),
    };
    let playground = Playground::start(&wish)?;
    let _servers = Servers::start(GATEWAY)?;
    let shown = functions.start(&playground, CREDIT).and_then(|()| show(&playground, &mut functions));
    let logs = || format!("core:\n{}\n{}", playground.log(), functions.logged());
    shown.map_err(|e| format!("{e}\n{}", logs()))?;
    playground.stop()
}

fn show(playground: &Playground, functions: &mut SeamFunctions) -> Done {
    until("UEs are served", || served(playground, page()).map(|report| report.completed == u64::from(UES)))?;
    print(&format!(
        "all up: {UES} of {UES} UEs authenticated by the UDM, with policies of the PCF and a quota of the CHF\n"
    ))?;
    for function in Function::ALL {
        killed(playground, functions, function)?;
    }
    changed(playground, functions)?;
    exhausted(playground, functions)
}

/// A function is killed; UEs come while it is gone, and when it is back.
fn killed(playground: &Playground, functions: &mut SeamFunctions, function: Function) -> Done {
    functions.kill(function);
    let without = served(playground, page())?;
    let expected = match function {
        // New authentications need the UDM; what a lost PCF or CHF costs is configured: nothing.
        Function::Udm => 0,
        Function::Nrf | Function::Pcf | Function::Chf => u64::from(UES),
    };
    functions.start_one(function, CREDIT)?;
    let name = function.name();
    until(&format!("UEs are served after the {name} is back"), || {
        served(playground, page()).map(|report| report.completed == u64::from(UES))
    })?;
    print(&format!(
        "{name} killed: {} of {UES} UEs served without it (expected {expected}), {UES} of {UES} when it is back\n",
        without.completed
    ))?;
    match without.completed == expected {
        true => Ok(()),
        false => Err(format!(
            "without the {name}, {} UEs are served: {:?}",
            without.completed,
            without.failures.first()
        )),
    }
}

/// The PCF changes the session AMBR of a subscriber, which is in force in its session then.
fn changed(playground: &Playground, functions: &SeamFunctions) -> Done {
    let ues = playground.ues();
    let supi = ues.first().map(|ue| ue.supi.to_string()).ok_or("there are no UEs")?;
    let session = |client: &whimbrel_node::client::Client| -> Result<u64, String> {
        let ue: Value = client.get(&format!("/api/v1/ues/{supi}"))?;
        Ok(ue["sessions"][0]["ambr"]["dl_kbps"].as_u64().unwrap_or(0))
    };
    let steps = vec![Step::Register, internet(), Step::Wait(6.0), Step::Deregister];
    std::thread::scope(|scope| {
        let played = scope.spawn(|| served(playground, steps));
        let mut before = 0;
        until("a UE has a session", || {
            before = session(playground.client()).unwrap_or(0);
            Ok(before > 0)
        })?;
        let pcf = functions.client(Function::Pcf);
        let path = format!("/api/v1/subscribers/{supi}");
        let mut subscriber: Value = pcf.get(&path)?;
        let ambr = &mut subscriber["subscription"]["slices"][0]["dnns"][0]["session_ambr"];
        ambr["downlink"] = json!(format!("{CHANGED_KBPS} Kbps"));
        let patch = json!({ "subscription": { "slices": subscriber["subscription"]["slices"] } });
        let sent = Instant::now();
        let _: Value = pcf.send("PATCH", &path, Some(&patch))?;
        until("the session has the new rate", || {
            Ok(session(playground.client()).unwrap_or(0) == CHANGED_KBPS)
        })?;
        print(&format!(
            "the PCF changes a session: downlink {before} kbit/s before, {CHANGED_KBPS} kbit/s after {} ms\n",
            sent.elapsed().as_millis()
        ))?;
        let report = played.join().map_err(|_| "the UEs ended in a panic".to_owned())??;
        match report.completed == u64::from(UES) {
            true => Ok(()),
            false => Err(format!("a UE of the changed session failed: {:?}", report.failures.first())),
        }
    })
}

/// UEs load pictures until their credit is used up: the sessions end, and further ones are refused.
fn exhausted(playground: &Playground, functions: &SeamFunctions) -> Done {
    // The CHF was killed before it had the ends of some sessions, which are sent again.
    settled(functions)?;
    let picture = || Step::Fetch(format!("http://{NAME}/picture"));
    let mut steps = vec![Step::Register, internet(), Step::Resolve(NAME.into())];
    steps.extend((0..2 * CREDIT / (128 << 10)).map(|_| picture()));
    let report = served(playground, steps)?;
    let accounts = settled(functions)?;
    let of = |member: &str| accounts.iter().filter_map(|a| a[member].as_u64()).sum::<u64>();
    let (balance, reserved) = (of("balance_octets"), of("reserved_octets"));
    let (used, overdraft) = (of("used_octets"), of("overdraft_octets"));
    print(&format!(
        "credit of {CREDIT} octets each: {} of {UES} sessions ended; used {used}, left {balance}, reserved {reserved}, beyond the credit {overdraft}\n",
        report.failed
    ))?;
    let again = served(playground, page())?;
    print(&format!("without credit: {} of {UES} UEs served\n", again.completed))?;
    let is_used = used == u64::from(UES) * CREDIT + overdraft && balance + reserved == 0;
    // What passes beyond the credit is the packet that crosses it.
    let is_right =
        report.completed == 0 && again.completed == 0 && is_used && overdraft <= u64::from(UES) * 1_500;
    if is_right { Ok(()) } else { Err(format!("traffic passes without credit: {accounts:?}")) }
}

/// The accounts, once nothing is reserved for a session.
fn settled(functions: &SeamFunctions) -> Result<Vec<Value>, String> {
    let mut accounts = Vec::new();
    until("the usage of all sessions is settled", || {
        let page: Value = functions.client(Function::Chf).get("/api/v1/charging/accounts")?;
        accounts = page["accounts"].as_array().cloned().unwrap_or_default();
        Ok(accounts.iter().all(|account| account["reserved_octets"] == 0))
    })?;
    Ok(accounts)
}

fn internet() -> Step {
    Step::Session(SessionStep {
        dnn: Some("internet".into()),
        s_nssai: None,
        pdu_session_type: SessionType::Ipv4,
    })
}

/// A UE registers, loads a page and goes.
fn page() -> Vec<Step> {
    let fetch = Step::Fetch(format!("http://{NAME}/"));
    vec![Step::Register, internet(), Step::Resolve(NAME.into()), fetch, Step::Deregister]
}

fn served(playground: &Playground, steps: Vec<Step>) -> Result<ScenarioReport, String> {
    let gnbs = playground.gnb_places();
    let scenario = Scenario {
        ues: UES,
        gnbs: gnbs.len() as u16,
        before: Vec::new(),
        before_rate: 500.0,
        arrival: ArrivalPattern::AtOnce,
        steps,
        groups: Vec::new(),
        seconds: 0.0,
        patience_s: 12.0,
        again: false,
        tun: false,
    };
    let config = RunnerConfig {
        amf: vec![playground.amf()],
        amf_port: 38412,
        sctp: Mode::Auto,
        sctp_udp_ports: (9900, 9899),
        gnbs,
        ues: playground.ues(),
        scenario,
        seed: 1,
        namespace: None,
        hold: false,
        spin: Duration::from_micros(20),
        hop_delay: Duration::ZERO,
    };
    let reports = edge::run(&config, &mut Unwatched).map_err(|e| e.to_string())?;
    reports.into_iter().next().ok_or_else(|| "no UE arrived".into())
}

fn until(what: &str, mut is: impl FnMut() -> Result<bool, String>) -> Done {
    let begin = Instant::now();
    while !is()? {
        if begin.elapsed() > IN_FORCE_WITHIN {
            return Err(format!("{what}: not within {IN_FORCE_WITHIN:?}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
