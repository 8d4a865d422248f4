//! `whimbrel-lab demo --scenario commute`: UEs drive among the sixteen gNBs of a small city, first without prediction, then with it; a CPF is killed in the
//! middle of each drive. The city's western half is the area of the core's own UPF, its eastern half that of a UPF elsewhere.

mod east;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use whimbrel_cli::{Done, print, table};
use whimbrel_ids::Tac;
use whimbrel_node::observation::ForesightView;
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::report::{Gaps, ScenarioReport, Times};
use whimbrel_ran::scenario::{
    ArrivalPattern, Group, HandoverKind, HandoverStep, Scenario, SessionStep, SessionType, Step, StreamStep,
};
use whimbrel_ran::{UeId, gnb, ue};
use whimbrel_sctp_io::Mode;

use self::east::East;
use super::Options;
use super::survive::{Signal, await_complete, signal};
use crate::playground::{GATEWAY, Playground, Servers, SuciScheme, Wish};

/// The gNBs stand in a square of this side.
const SIDE: u16 = 4;
const GNBS: u16 = SIDE * SIDE;
/// Share of junctions where a UE drives straight on, in percent; else it turns.
const STRAIGHT_PERCENT: u64 = 88;
/// Every so many-th UE is handed over by Xn, the others by N2.
const XN_EVERY: u32 = 4;
/// Milliseconds between packets of a UE, in each direction: times without packets are seen to this precision.
const INTERVAL_MS: u16 = 2;
/// UEs by default: with their packets one host is not busy.
const UES: u32 = 24;
/// Tracking areas of the western and the eastern half.
const TACS: [u32; 2] = [1, 2];
/// Time that a handover takes in the scenario beside the wait: it is watched for as long.
const WATCHED_S: f64 = 0.7;

/// A way through the city: the gNBs after the first one, with the seconds before each handover.
fn way(first: u16, seed: u64, seconds: f64) -> Vec<(f64, u16)> {
    let mut random = whimbrel_prediction::Random::new(seed);
    let mut draw = |below: u64| random.number() % below;
    let (mut x, mut y) = (i32::from(first % SIDE), i32::from(first / SIDE));
    let (mut dx, mut dy) = [(1, 0), (0, 1), (-1, 0), (0, -1)][draw(4) as usize];
    let inside = |x: i32, y: i32| (0..i32::from(SIDE)).contains(&x) && (0..i32::from(SIDE)).contains(&y);
    let (mut all, mut spent) = (Vec::new(), 0.0);
    while spent < seconds {
        if !inside(x + dx, y + dy) || draw(100) >= STRAIGHT_PERCENT {
            (dx, dy) = (-dy, dx); // right
            if !inside(x + dx, y + dy) {
                (dx, dy) = (-dx, -dy);
            }
        }
        (x, y) = (x + dx, y + dy);
        let wait = 0.8 + draw(100) as f64 / 200.0;
        spent += wait + WATCHED_S;
        all.push((wait, (y * i32::from(SIDE) + x) as u16));
    }
    all
}

fn scenario(ues: u32, seconds: u32) -> Scenario {
    let session =
        SessionStep { dnn: Some("internet".into()), s_nssai: None, pdu_session_type: SessionType::Ipv4 };
    let to = std::net::SocketAddrV4::new(GATEWAY, 5001);
    let group = |n: u32| {
        let via = if n % XN_EVERY == XN_EVERY - 1 { HandoverKind::Xn } else { HandoverKind::N2 };
        let first = (n % u32::from(GNBS)) as u16;
        let mut begin = vec![
            Step::Register,
            Step::Session(session.clone()),
            Step::Stream(StreamStep { to, interval_ms: INTERVAL_MS, octets: 100 }),
        ];
        for (wait, to) in way(first, u64::from(n) + 1, f64::from(seconds)) {
            begin.extend([Step::Wait(wait), Step::Handover(HandoverStep { via, to: Some(to) })]);
        }
        let end = vec![Step::StopStream, Step::Deregister];
        Group { name: format!("ue-{n}"), ues: 1, begin, repeat: Vec::new(), end }
    };
    Scenario {
        ues: 1,
        gnbs: GNBS,
        before: Vec::new(),
        before_rate: 500.0,
        arrival: ArrivalPattern::AtOnce,
        steps: Vec::new(),
        groups: (0..ues).map(group).collect(),
        seconds: 0.1,
        patience_s: 30.0,
        again: false,
        tun: false,
    }
}

/// What one drive showed.
struct Drive {
    report: ScenarioReport,
    foresight: ForesightView,
    /// Sessions that the core ended, and UEs that registered again.
    lost: (u64, u64),
    /// Handovers between two gNBs.
    moves: Vec<Vec<u64>>,
}

#[derive(Default)]
struct Observer {
    /// Registrations of UEs that had registered before.
    again: u64,
    registered: BTreeSet<UeId>,
    /// UEs whose session ended without their request.
    released: BTreeSet<UeId>,
    /// UEs that ended their registration, and with it their session.
    deregistered: BTreeSet<UeId>,
    at: BTreeMap<UeId, u16>,
    moves: Vec<Vec<u64>>,
}

impl Watch for Observer {
    fn gnb(&mut self, at: whimbrel_ran::cells::GnbId, event: &gnb::Event) {
        let (ue, to) = match event {
            gnb::Event::ContextSetUp(ue) => {
                self.at.insert(*ue, at.0);
                return;
            }
            gnb::Event::HandedOver { ue, .. } => (*ue, at.0),
            _ => return,
        };
        if let Some(from) = self.at.insert(ue, to)
            && let Some(count) =
                self.moves.get_mut(usize::from(from)).and_then(|m| m.get_mut(usize::from(to)))
        {
            *count += 1;
        }
    }

    fn ue(&mut self, ue: UeId, event: &ue::Event) {
        match event {
            ue::Event::Registered { .. } => self.again += u64::from(!self.registered.insert(ue)),
            ue::Event::SessionReleased { since: None, .. } => {
                self.released.insert(ue);
            }
            ue::Event::Deregistered { .. } => {
                self.deregistered.insert(ue);
            }
            _ => {}
        }
    }
}

pub(super) fn run(options: &Options) -> Done {
    if options.capture.is_some() {
        return Err("this scenario writes no capture: leave --capture out".into());
    }
    print(&format!(
        "{} UEs drive among {GNBS} gNBs and two UPFs for {} s, without prediction and with it; a CPF is killed in the middle; a hop takes {:?}\n",
        ues(options),
        options.seconds,
        options.hop_delay
    ))?;
    let mut servers = None;
    let without = drive(options, false, &mut servers)?;
    let with = drive(options, true, &mut servers)?;
    show(&without, &with)?;
    if let Some(folder) = plots(options) {
        let written = [("commute.svg", plot(&without, &with)), ("commute-map.svg", map(&with))]
            .into_iter()
            .try_for_each(|(name, svg)| std::fs::write(folder.join(name), svg));
        written.map_err(|e| format!("a plot in {} cannot be written: {e}", folder.display()))?;
        print(&format!("plot and map: {0}/commute.svg, {0}/commute-map.svg\n", folder.display()))?;
    }
    let failed = [&without, &with].map(|d| d.report.failed + d.report.violated + d.lost.0 + d.lost.1);
    if failed != [0, 0] {
        return Err("a UE failed at a step, registered again or lost a session".into());
    }
    match with.foresight.hits {
        0 => Err("no prediction came true".into()),
        _ => Ok(()),
    }
}

/// Where plots go: the option, or the tree's folder for plots.
fn plots(options: &Options) -> Option<PathBuf> {
    let folder = options.plots.clone().or_else(|| PathBuf::from(".x").exists().then(|| ".x/plots".into()))?;
    std::fs::create_dir_all(&folder).ok().map(|()| folder)
}

/// `servers`: those of the data network, which both drives use.
fn drive(options: &Options, predicting: bool, servers: &mut Option<Servers>) -> Result<Drive, String> {
    let scenario = scenario(ues(options), options.seconds);
    let east = East::start(options.hop_delay)?;
    let wish = Wish {
        ues: scenario.count(),
        gnbs: GNBS as u8,
        slices: ["1"].iter().filter_map(|s| s.parse().ok()).collect(),
        configuration: format!(
            "data_networks: [{{ dnn: internet, dns: [{GATEWAY}] }}]\n\
             tacs: [{}, {}]\n\
             upfs:\n  - {{ name: west, tacs: [{}] }}\n  - {}\n\
             foresight: {{ enabled: {predicting}, early_containers: {predicting} }}\n",
            TACS[0],
            TACS[1],
            TACS[0],
            east.configuration(TACS[1], predicting)
        ),
        capture: None,
        core_cpu: None,
        suci: SuciScheme::Null,
        cpfs: Vec::new(),
        added_ues: 0,
        data_limit: None,
        keeps_ues: false,
        unit: true,
    };
    let playground = Playground::start(&wish)?;
    let directory = playground.unit_directory();
    await_complete(&playground, None)?;
    match servers {
        Some(servers) => servers.forget_streams(),
        None => *servers = Some(Servers::start(GATEWAY)?),
    }
    let mut gnbs = playground.gnb_places();
    for (n, place) in (0..).zip(&mut gnbs) {
        place.config.hands_over_early = true;
        let tac =
            Tac::new(TACS[usize::from(n % SIDE >= SIDE / 2)]).ok_or("a tracking area code is too large")?;
        place.config.supported_tas.iter_mut().for_each(|area| area.tac = tac);
    }
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
        hop_delay: options.hop_delay,
    };
    let moves = vec![vec![0; usize::from(GNBS)]; usize::from(GNBS)];
    let mut observer = Observer { moves, ..Observer::default() };
    let before_end: Mutex<Option<ForesightView>> = Mutex::default();
    let (killed, reports) = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            std::thread::sleep(Duration::from_secs_f64(f64::from(options.seconds) / 2.0));
            let killed = signal(&directory, Signal::KILL, |f| f.name.starts_with("cpf-"));
            std::thread::sleep(Duration::from_secs_f64(f64::from(options.seconds) * 0.4));
            *before_end.lock().unwrap_or_else(PoisonError::into_inner) =
                playground.client().get("/api/v1/foresight").ok();
            killed
        });
        let reports = edge::run(&config, &mut observer);
        (killer.join().unwrap_or_else(|_| Err("the demonstration ended in a panic".into())), reports)
    });
    let log = playground.log() + &east.log();
    killed.map_err(|e| format!("{e}\n{log}"))?;
    let reports = reports.map_err(|e| format!("{e}\n{log}"))?;
    let report = reports.into_iter().next().ok_or("no UE arrived")?;
    let foresight = before_end.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_default();
    playground.stop()?;
    let lost = observer.released.difference(&observer.deregistered).count() as u64;
    Ok(Drive { report, foresight, lost: (lost, observer.again), moves: observer.moves })
}

fn ues(options: &Options) -> u32 {
    options.ues.unwrap_or(UES)
}

const KINDS: [&str; 2] = ["handover-n2", "handover-xn"];

fn show(without: &Drive, with: &Drive) -> Done {
    let ms = |times: &Times, part: f64| format!("{:.1}", times.quantile_micros(part) as f64 / 1_000.0);
    let mut rows = Vec::new();
    for (name, drive) in [("off", without), ("on", with)] {
        for kind in KINDS {
            let Some(Gaps { uplink, downlink, arrived, first_downlink, silence }) =
                drive.report.gaps.get(kind)
            else {
                continue;
            };
            rows.push(vec![
                name.to_owned(),
                kind.to_owned(),
                first_downlink.count().to_string(),
                ms(arrived, 0.5),
                ms(first_downlink, 0.5),
                ms(first_downlink, 0.9),
                ms(silence, 0.5),
                ms(silence, 0.9),
                ms(downlink, 0.5),
                ms(uplink, 0.5),
            ]);
        }
    }
    let heads = [
        "prediction",
        "handover",
        "times",
        "UE at target p50 ms",
        "1st downlink p50",
        "p90",
        "without packets p50",
        "p90",
        "longest gap in 0.7 s: down p50",
        "up p50",
    ];
    print(&table(&heads, &rows))?;
    for (name, d) in [("off", without), ("on", with)] {
        let s = &d.report.streams;
        print(&format!(
            "prediction {name}: lost packets {} of {} up, {} of {} down; UEs failed {}, sessions lost {}, registrations again {}, violations {}\n",
            s.lost.0, s.sent.0, s.lost.1, s.sent.1, d.report.failed, d.lost.0, d.lost.1, d.report.violated
        ))?;
        for failure in d.report.failures.iter().take(5) {
            print(&format!("failed: {} at step {}: {}\n", failure.supi, failure.step, failure.reason))?;
        }
        for violation in d.report.violations.iter().take(5) {
            print(&format!("violation: {violation}\n"))?;
        }
    }
    let f = &with.foresight;
    print(&format!(
        "predictions {}: hits {}, misses {}, late {}, expired {}; targets prepared {}; handovers without prediction {}\n",
        f.made, f.hits, f.misses, f.late, f.expired, f.prepared, f.unpredicted
    ))?;
    let figures = |d: &Drive| {
        let of = |kind: &str| d.report.gaps.get(kind).map_or(0, |g| g.first_downlink.quantile_micros(0.5));
        let silence = |kind: &str| d.report.gaps.get(kind).map_or(0, |g| g.silence.quantile_micros(0.5));
        json!({"n2_us_p50": of(KINDS[0]), "xn_us_p50": of(KINDS[1]), "n2_silence_us_p50": silence(KINDS[0]),
            "xn_silence_us_p50": silence(KINDS[1]), "lost_down": d.report.streams.lost.1,
            "lost_up": d.report.streams.lost.0, "failed": d.report.failed, "sessions_lost": d.lost.0, "registrations": d.lost.1})
    };
    print(&format!(
        "{}\n",
        json!({"bench": "commute", "figures": {"off": figures(without), "on": figures(with),
            "made": f.made, "hits": f.hits, "misses": f.misses, "late": f.late, "expired": f.expired, "prepared": f.prepared}})
    ))
}

/// The distributions of handover times by N2 and of the times without packets (dashed), off and on.
fn plot(without: &Drive, with: &Drive) -> String {
    let of = |d: &Drive| d.report.gaps.get(KINDS[0]).cloned().unwrap_or_default();
    let (off, on) = (of(without), of(with));
    let all = [&off.first_downlink, &on.first_downlink, &off.silence, &on.silence];
    let longest = all.iter().map(|times| times.quantile_micros(0.98)).max().unwrap_or(1).max(1) as f64;
    let line = |times: &Times, colour: &str, dashes: &str| {
        let points: Vec<String> = (0..=100)
            .map(|n| {
                let x =
                    60.0 + 520.0 * (times.quantile_micros(f64::from(n) / 100.0) as f64 / longest).min(1.0);
                format!("{x:.1},{:.1}", 320.0 - 2.8 * f64::from(n))
            })
            .collect();
        let points = points.join(" ");
        format!(
            "<polyline fill='none' stroke='{colour}' stroke-width='2' stroke-dasharray='{dashes}' points='{points}'/>\n"
        )
    };
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='620' height='380' font-family='sans-serif' font-size='13'>\n\
         <rect width='620' height='380' fill='white'/>\n\
         <text x='60' y='24'>N2 handover: to the first downlink packet at the target; dashed: time without downlink packets</text>\n\
         <path d='M60 40V320H580' fill='none' stroke='black'/>\n\
         <text x='20' y='46'>100 %</text><text x='34' y='324'>0 %</text>\n\
         <text x='60' y='342'>0</text><text x='530' y='342'>{:.1} ms</text>\n{}{}{}{}\
         <text x='70' y='366' fill='#c0392b'>prediction off</text><text x='200' y='366' fill='#2471a3'>prediction on</text>\n</svg>\n",
        longest / 1_000.0,
        line(&off.first_downlink, "#c0392b", "none"),
        line(&on.first_downlink, "#2471a3", "none"),
        line(&off.silence, "#c0392b", "6 4"),
        line(&on.silence, "#2471a3", "6 4")
    )
}

/// The city: gNBs, and how many UEs went from each to the next.
fn map(drive: &Drive) -> String {
    let at = |n: usize| {
        (70.0 + 140.0 * (n % usize::from(SIDE)) as f64, 70.0 + 140.0 * (n / usize::from(SIDE)) as f64)
    };
    let most = drive.moves.iter().flatten().copied().max().unwrap_or(1).max(1) as f64;
    let mut svg = String::from(
        "<svg xmlns='http://www.w3.org/2000/svg' width='560' height='560' font-family='sans-serif' font-size='13'>\n\
         <rect width='560' height='560' fill='white'/>\n<rect x='280' width='280' height='560' fill='#eef5fb'/>\n\
         <text x='20' y='24'>UPF west</text><text x='480' y='24'>UPF east</text>\n",
    );
    for (from, row) in drive.moves.iter().enumerate() {
        for (to, count) in row.iter().enumerate().filter(|(_, count)| **count > 0) {
            let ((x1, y1), (x2, y2)) = (at(from), at(to));
            // Each direction has its own line, on the right of the road.
            let (ox, oy) = ((y1 - y2) / 20.0, (x2 - x1) / 20.0);
            let _ = writeln!(
                svg,
                "<line x1='{:.1}' y1='{:.1}' x2='{:.1}' y2='{:.1}' stroke='#2471a3' stroke-width='{:.1}'><title>{count}</title></line>",
                x1 + ox,
                y1 + oy,
                x2 + ox,
                y2 + oy,
                1.0 + 7.0 * *count as f64 / most
            );
        }
    }
    for n in 0..drive.moves.len() {
        let (x, y) = at(n);
        let _ = writeln!(
            svg,
            "<circle cx='{x}' cy='{y}' r='20' fill='#fdebd0' stroke='black'/><text x='{x}' y='{:.1}' text-anchor='middle'>{}</text>",
            y + 5.0,
            n + 1
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_lead_from_gnb_to_neighbour() {
        for seed in 0..100 {
            let first = (seed % u64::from(GNBS)) as u16;
            let mut before = first;
            for (_, to) in way(first, seed, 60.0) {
                let step = (to % SIDE).abs_diff(before % SIDE) + (to / SIDE).abs_diff(before / SIDE);
                assert_eq!(step, 1, "seed {seed}: {before} to {to}");
                before = to;
            }
        }
        scenario(40, 10).check().unwrap();
    }
}
