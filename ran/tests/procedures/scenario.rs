//! Scenarios played on many UEs: without sockets, and over real SCTP and GTP-U.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::{GlobalGnbId, Instant, PlmnId};
use whimbrel_ngap as ngap;
use whimbrel_ngap::TransferSyntax;
use whimbrel_ran::Outbox;
use whimbrel_ran::cells::{Cells, GnbId, Input, Output, UserPlane};
use whimbrel_ran::edge::{Clock, GnbPlace, Mode, RunnerConfig, Silent};
use whimbrel_ran::fleet::{ProvisionedUe, subscriptions};
use whimbrel_ran::gnb::GnbConfig;
use whimbrel_ran::player::Player;
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{ArrivalPattern, Scenario};
use whimbrel_ran::ue::{Profile, SuciSource, UeConfig};
use whimbrel_sctp_io::{Config, Event, Events, Transport, TransportSettings};
use whimbrel_security::UsimSqn;

use crate::fake_core::{NOW, SLICE, tai};
use crate::network::Network;

pub fn fleet(count: u32) -> Vec<ProvisionedUe> {
    subscriptions(&[3; 32], "imsi-999700000000001".parse().unwrap(), count)
}

pub fn ues(fleet: &[ProvisionedUe]) -> Vec<UeConfig> {
    let profile = Arc::new(Profile::new(PlmnId::TEST, vec![SLICE]));
    let ue = |s: &ProvisionedUe| {
        let (k, opc) = s.key();
        let (sqn, suci) = (UsimSqn::default(), SuciSource::Null);
        UeConfig { profile: profile.clone(), supi: s.supi, pei: s.pei, k, opc, sqn, suci }
    };
    fleet.iter().map(ue).collect()
}

pub fn gnb(index: u32) -> GnbConfig {
    let id = GlobalGnbId::new(PlmnId::TEST, index + 1, 24).unwrap();
    GnbConfig::new(id, tai().tac, vec![SLICE], Ipv4Addr::new(127, 0, 9, index as u8 + 1).into())
}

pub fn scenario(text: &str) -> Scenario {
    serde_json::from_str(text).unwrap()
}

struct World {
    now: Instant,
    player: Player,
    network: Network,
    way: VecDeque<(GnbId, Option<u16>, Vec<u8>)>,
}

impl World {
    fn new(text: &str) -> Self {
        Self::of(scenario(text))
    }

    fn of(scenario: Scenario) -> Self {
        let fleet = fleet(scenario.ues);
        let mut cells = Cells::new(UserPlane::Stack, 1);
        let gnbs: Vec<GnbId> = (0..u32::from(scenario.gnbs)).map(|i| cells.add_gnb(gnb(i))).collect();
        for (ue, gnb) in ues(&fleet).into_iter().zip(gnbs.iter().cycle()) {
            cells.add_ue(*gnb, ue);
        }
        let player = Player::new(scenario, cells).unwrap();
        let mut world = Self { now: NOW, player, network: Network::new(&fleet), way: VecDeque::new() };
        for gnb in gnbs {
            world.input(Input::AssociationUp(gnb, 8, TransferSyntax::Per));
        }
        world
    }

    fn input(&mut self, input: Input<'_>) {
        let mut out = Outbox::new();
        self.player.handle(self.now, input, &mut out);
        self.take(out);
        self.arrive();
    }

    fn take(&mut self, mut out: Outbox<Output>) {
        for output in out.drain() {
            match output {
                Output::Ngap { gnb, stream, octets } => {
                    let answers = self.network.ngap(stream, &octets);
                    self.way.extend(answers.into_iter().map(|(stream, octets)| (gnb, Some(stream), octets)));
                }
                Output::Gtpu { gnb, datagram, .. } => {
                    self.way.extend(self.network.gtpu(&datagram).map(|d| (gnb, None, d)));
                }
                _ => {}
            }
        }
    }

    fn arrive(&mut self) {
        while let Some((gnb, stream, octets)) = self.way.pop_front() {
            let mut out = Outbox::new();
            let input = match stream {
                Some(stream) => Input::Ngap { gnb, stream, octets: &octets },
                None => Input::Gtpu { gnb, source: (Ipv4Addr::LOCALHOST.into(), 2152), datagram: &octets },
            };
            self.player.handle(self.now, input, &mut out);
            self.take(out);
        }
    }

    fn start(&mut self) {
        let mut out = Outbox::new();
        self.player.start(self.now, &mut out);
        self.take(out);
        self.arrive();
    }

    fn play(mut self) -> (Vec<ScenarioReport>, Network, Duration) {
        self.start();
        self.end()
    }

    fn end(mut self) -> (Vec<ScenarioReport>, Network, Duration) {
        while !self.player.is_done() {
            self.now = self.now.max(self.player.next_deadline().expect("something is due"));
            self.input(Input::Tick);
        }
        (self.player.reports().to_vec(), self.network, self.now.since(NOW))
    }
}

const EVERYTHING: &str = r#"{"ues": 20, "gnbs": 2, "steps": ["register", {"session": {"dnn": "internet"}},
    {"ping": "10.45.0.1"}, "idle", "return", {"ping": "10.45.0.1"}, "release-session", {"wait": 2}, "deregister"]}"#;

#[test]
fn all_steps_by_many_ues_at_once() {
    let (reports, network, took) = World::new(EVERYTHING).play();
    let report = &reports[0];
    assert!(report.is_clean(), "{}", report.json());
    assert_eq!((report.completed, network.pings), (20, 40));
    for step in ["register", "session", "idle", "return", "release-session", "deregister"] {
        assert_eq!(report.steps[step].latency.count(), 20, "{step}");
    }
    assert_eq!(took, Duration::from_secs(2));
}

#[test] // TS 23.501 §5.8.2.2.3: a session with IPv6 is up when its prefix is known
fn sessions_with_ipv6() {
    for kind in ["ipv6", "ipv4v6"] {
        let steps = format!(r#"["register", {{"session": {{"type": "{kind}"}}}}, "deregister"]"#);
        let (reports, ..) = World::new(&format!(r#"{{"ues": 3, "steps": {steps}}}"#)).play();
        assert!(reports[0].is_clean(), "{}", reports[0].json());
    }
}

#[test] // open load: arrivals by the clock, latency from when it was due
fn rates_one_after_the_other() {
    let text = r#"{"ues": 8, "again": true, "arrival": {"rates": {"rates": [10, 20], "seconds": 2}},
        "steps": ["register", {"wait": 0.1}, "deregister"]}"#;
    let (reports, ..) = World::new(text).play();
    assert_eq!(reports.len(), 2);
    assert_eq!((reports[0].arrived, reports[1].arrived), (20, 40));
    assert!(
        reports.iter().all(ScenarioReport::is_clean),
        "{:?}",
        reports.iter().map(ScenarioReport::json).collect::<Vec<_>>()
    );
    assert_eq!(reports[0].elapsed, Duration::from_secs(2));
}

#[test] // synchronised meters: some at once, and again after a while
fn bursts_come_at_their_times() {
    let text = r#"{"ues": 4, "again": true, "steps": ["register", "deregister"],
        "arrival": {"bursts": {"ues": 4, "within-ms": 100, "every-s": 2, "times": 3}}}"#;
    let (reports, _, took) = World::new(text).play();
    assert_eq!(reports.len(), 1);
    assert!(reports[0].is_clean(), "{}", reports[0].json());
    assert_eq!((reports[0].arrived, took), (12, Duration::from_millis(2 * 2000 + 75)));
}

#[test] // an experiment begins each when it is ready for it
fn bursts_that_are_held_wait_and_keep_their_distance() {
    let text = r#"{"ues": 4, "again": true, "steps": ["register", "deregister"],
        "arrival": {"bursts": {"ues": 4, "within-ms": 0, "every-s": 2, "times": 3}}}"#;
    let mut world = World::new(text);
    world.start();
    let arrived = |world: &World| world.player.reports()[0].arrived;
    for (seconds, held, expected) in [(1, true, 4), (3, true, 4), (5, false, 8), (6, false, 12)] {
        world.player.hold(held);
        world.now = NOW + Duration::from_secs(seconds);
        world.input(Input::Tick);
        world.now = world.now + Duration::from_millis(10);
        world.input(Input::Tick);
        assert_eq!(arrived(&world), expected, "after {seconds} s");
    }
}

const BEFORE: &str = r#"{"ues": 5, "again": true, "before": ["register", {"session": {}}, "idle"], "before-rate": 10,
    "steps": ["return", "idle"], "arrival": {"rates": {"rates": [10, 20], "seconds": 1}}}"#;

#[test]
fn what_ues_do_before_is_not_measured() {
    let (reports, _, took) = World::new(BEFORE).play();
    assert_eq!(reports.iter().map(|r| r.arrived).collect::<Vec<_>>(), [10, 20]);
    for report in &reports {
        assert!(report.is_clean(), "{}", report.json());
        assert_eq!(report.steps.keys().copied().collect::<Vec<_>>(), ["idle", "return"]);
    }
    assert_eq!(took, Duration::from_millis(400 + 900 + 950));
}

#[test] // else a core that is slower than the rate fails UEs before the measurement begins
fn the_preparation_waits_while_many_ues_are_under_way() {
    let text =
        r#"{"ues": 300, "gnbs": 2, "before": ["register"], "before-rate": 1000, "steps": ["deregister"]}"#;
    let mut world = World::new(text);
    let mut unanswered = Outbox::new();
    world.player.start(world.now, &mut unanswered);
    world.now = world.now + Duration::from_secs(1);
    world.player.handle(world.now, Input::Tick, &mut unanswered);
    assert_eq!(world.player.progress(), (0, 0, 256));
    assert!(world.player.next_deadline() > Some(world.now), "no arrival is due");
    world.take(unanswered);
    world.arrive();
    let (reports, ..) = world.end();
    assert!(reports[0].is_clean() && reports[0].completed == 300, "{}", reports[0].json());
}

#[test]
fn prepared_ues_arrive_when_they_are_no_longer_held() {
    let mut world = World::new(BEFORE);
    world.player.hold(true);
    world.start();
    while let Some(due) = world.player.next_deadline().filter(|due| due.since(NOW) < Duration::from_secs(60))
    {
        world.now = world.now.max(due);
        world.input(Input::Tick);
    }
    assert_eq!(world.player.progress(), (5, 0, 0), "all are prepared, and none has arrived");
    world.now = NOW + Duration::from_secs(90);
    world.player.hold(false);
    world.input(Input::Tick);
    let begun = world.now;
    while !world.player.is_done() {
        world.now = world.now.max(world.player.next_deadline().expect("something is due"));
        world.input(Input::Tick);
    }
    let arrived: Vec<u64> = world.player.reports().iter().map(|r| r.arrived).collect();
    assert_eq!((arrived, world.now.since(begun)), (vec![10, 20], Duration::from_millis(900 + 950)));
}

#[test] // TS 38.413 §8.7.7.2: the half that is asked for is kept away, and has not failed
fn ues_that_an_overloaded_amf_does_not_want_are_counted_for_themselves() {
    let mut world = World::new(r#"{"ues": 20, "steps": ["register"], "arrival": {"rate": 10}}"#);
    let mut start = ngap::OverloadStart::new();
    let action = ngap::OverloadAction::PermitHighPrioritySessionsAndMobileTerminatedServicesOnly;
    start.amf_overload_response = Some(ngap::OverloadResponse::OverloadAction(action));
    start.amf_traffic_load_reduction_indication = Some(50);
    let mut octets = Vec::new();
    ngap::Message::from(start).encode(&mut octets);
    world.input(Input::Ngap { gnb: GnbId(0), stream: 0, octets: &octets });
    let (reports, ..) = world.play();
    let report = &reports[0];
    assert_eq!((report.arrived, report.completed, report.barred, report.failed), (20, 10, 10, 0));
    assert!(!report.is_clean(), "they did not do what they were to do");
    assert_eq!(report.json()["barred"], 10);
}

#[test]
fn what_goes_wrong_before_is_reported() {
    let mut world = World::new(BEFORE);
    world.network.cores[0].knobs.reject_registration = Some(whimbrel_nas::ie::MmCause::IllegalUe);
    let (reports, ..) = world.play();
    assert_eq!((reports.len(), reports[0].failed), (3, 1));
}

#[test] // a UE that is at something still is late, and that counts
fn a_trace_starts_procedures_at_their_times() {
    let trace = "0,0,register\n0,0,session\n0.5,1,register\n1,0,idle\n1,0,return\n2,1,switch-off\n";
    let mut scenario = scenario(r#"{"ues": 2}"#);
    scenario.arrival = ArrivalPattern::Trace(whimbrel_ran::trace::read(trace).unwrap());
    let (reports, _, took) = World::of(scenario).play();
    assert!(reports[0].is_clean(), "{}", reports[0].json());
    assert_eq!((reports[0].arrived, took), (6, Duration::from_secs(2)));
    let done = |step: &str| reports[0].steps[step].latency.count();
    assert_eq!(["register", "session", "idle", "return", "switch-off"].map(done), [2, 1, 1, 1, 1]);
}

#[test]
fn a_trace_begins_when_its_ues_are_ready() {
    let mut scenario = scenario(r#"{"ues": 2, "before": ["register", {"session": {}}]}"#);
    scenario.arrival = ArrivalPattern::Trace(whimbrel_ran::trace::read("0,1,idle\n0,1,return\n").unwrap());
    let (reports, ..) = World::of(scenario).play();
    assert!(reports[0].is_clean() && reports.len() == 1, "{}", reports[0].json());
    assert_eq!((reports[0].arrived, reports[0].steps["return"].latency.count()), (2, 1));
}

#[test]
fn a_trace_of_ues_that_are_not_there_is_refused() {
    let mut scenario = scenario(r#"{"ues": 2}"#);
    scenario.arrival = ArrivalPattern::Trace(whimbrel_ran::trace::read("0,2,register").unwrap());
    assert!(scenario.check().unwrap_err().0.contains("UE 2"));
}

#[test]
fn arrivals_without_a_free_ue_are_counted() {
    let text = r#"{"ues": 1, "again": true, "arrival": {"rates": {"rates": [10], "seconds": 1}},
        "steps": ["register", {"wait": 0.25}, "deregister"]}"#;
    let (reports, ..) = World::new(text).play();
    assert_eq!((reports[0].arrived, reports[0].starved), (4, 6));
    assert!(!reports[0].is_clean());
}

/// UE CONTEXT RELEASE COMMAND for the only UE, for which there was no request.
fn release(world: &mut World) {
    let core = &world.network.cores[0];
    let pair = ngap::UeNgapIdPair::new(core.amf_ue_ngap_id, core.ran_ue_ngap_id);
    let (stream, ids) = (core.stream, ngap::UeNgapIds::UeNgapIdPair(pair));
    let cause = ngap::Cause::Nas(ngap::CauseNas::NormalRelease);
    let mut octets = Vec::new();
    ngap::Message::from(ngap::UeContextReleaseCommand::new(ids, cause)).encode(&mut octets);
    world.input(Input::Ngap { gnb: GnbId(0), stream, octets: &octets });
}

#[test] // at a core that has lost its state: Neutrino §4.2.1; the step that the UE was in is done then
fn a_ue_whose_connection_the_core_ends_attaches_again() {
    let text = r#"{"ues": 1, "steps": ["register", {"session": {}}, {"wait": 3}, {"ping": "10.45.0.1"}]}"#;
    for again in [true, false] {
        let mut world = World::new(text);
        world.player.attach_again(again);
        world.start();
        assert_eq!(world.player.in_step("wait").len(), 1);
        world.now = world.now + Duration::from_secs(1);
        release(&mut world);
        world.input(Input::Tick);
        assert_eq!((world.player.attaching(), world.player.in_step("wait").len()), (0, usize::from(!again)));
        assert_eq!(world.network.cores[0].initial.len(), 1 + usize::from(again), "registrations");
    }
}

#[test]
fn failures_name_ue_step_and_reason() {
    let mut world =
        World::new(r#"{"ues": 3, "steps": ["register", {"session": {}}, {"resolve": "no.test"}]}"#);
    world.network.cores[0].knobs.reject_registration = Some(whimbrel_nas::ie::MmCause::IllegalUe);
    world.network.cores[1].knobs.reject_session = Some(whimbrel_nas::ie::SmCause::InsufficientResources);
    let (reports, ..) = world.play();
    let failures: Vec<_> = reports[0].failures.iter().map(|f| (f.step, f.reason.as_str())).collect();
    let expected = [
        ("register", "registration: 5GMM cause #3 Illegal UE"),
        ("session", "session establishment: 5GSM cause #26 Insufficient resources"),
        ("resolve", "nothing came back within 10 s"),
    ];
    assert_eq!(failures, expected);
}

#[test] // the same scenario twice gives the same report
fn a_scenario_is_deterministic() {
    let play = || World::new(EVERYTHING).play().0[0].json();
    assert_eq!(play(), play());
}

/// What the generator itself costs, without sockets and without the core: run it with `--release -- --ignored`.
#[test]
#[ignore = "measures; says nothing in a debug build"]
fn cost_of_the_generator() {
    for steps in [r#"["register"]"#, r#"["register", {"session": {"dnn": "internet"}}]"#] {
        let mut world = World::new(&format!(r#"{{"ues": 4000, "steps": {steps}}}"#));
        world.network.timed = Some(Duration::ZERO);
        let begun = std::time::Instant::now();
        let (reports, network, _) = world.play();
        let all = begun.elapsed();
        assert!(reports[0].is_clean(), "{}", reports[0].json());
        let own = all - network.timed.unwrap();
        println!("{steps}: {:.1} µs a UE, with the scripted core {:.1} µs", micros(own), micros(all));
    }
}

fn micros(all: Duration) -> f64 {
    all.as_secs_f64() * 1e6 / 4000.0
}

/// A core on the real SCTP of this host, until the association is closed.
fn serve(
    network: &mut Network,
    mut transport: Transport,
    upf: &UdpSocket,
    done: &std::sync::atomic::AtomicBool,
) {
    let clock = Clock::default();
    let mut events = Events::default();
    let mut datagram = [0; 2048];
    while !done.load(std::sync::atomic::Ordering::Relaxed) {
        let now = clock.now();
        transport.drain(now, &mut events);
        let mut answers = Vec::new();
        for event in events.iter() {
            if let Event::Data { association, stream, octets, ppid } = event {
                assert_eq!(ppid, 60);
                answers.extend(network.ngap(stream, octets).into_iter().map(|(s, o)| (association, s, o)));
            }
        }
        for (association, stream, octets) in answers {
            transport.send(association, stream, 60, &octets).unwrap();
        }
        transport.flush(now);
        while let Ok((n, from)) = upf.recv_from(&mut datagram) {
            if let Some(answer) = network.gtpu(&datagram[..n]) {
                upf.send_to(&answer, from).unwrap();
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test] // RFC 6951: SCTP over UDP on loopback needs no privilege and no kernel module
fn a_scenario_over_udp_encapsulation() {
    over_sockets(Mode::Udp);
}

#[test]
fn a_scenario_over_raw_sockets() {
    if std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) != 0 {
        eprintln!("skipped: raw sockets need root");
        return;
    }
    over_sockets(Mode::Raw);
}

/// Addresses and ports are the same for all: one at a time.
pub static SOCKETS: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn over_sockets(mode: Mode) {
    let _alone = SOCKETS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let scenario = scenario(EVERYTHING);
    let fleet = fleet(scenario.ues);
    let amf: IpAddr = Ipv4Addr::new(127, 0, 9, 100).into();
    let mut endpoint = Config::new(38412);
    endpoint.local_addresses = vec![amf];
    let mut settings = TransportSettings::new(endpoint);
    settings.mode = mode;
    let transport = Transport::open(&settings, [5; 32], Clock::default().now()).unwrap();
    let upf = UdpSocket::bind("127.0.0.9:2152").unwrap();
    upf.set_nonblocking(true).unwrap();
    let place = |i: u32| GnbPlace {
        config: gnb(i),
        address: Ipv4Addr::new(127, 0, 9, i as u8 + 1).into(),
        amfs: Vec::new(),
    };
    let config = RunnerConfig {
        amf: vec![amf],
        amf_port: 38412,
        sctp: mode,
        sctp_udp_ports: (9899, 9899),
        gnbs: vec![place(0), place(1)],
        ues: ues(&fleet),
        scenario,
        seed: 1,
        namespace: None,
        hold: false,
        spin: Duration::from_micros(50),
        hop_delay: Duration::ZERO,
    };
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut network = Network::new(&fleet);
    let reports = std::thread::scope(|s| {
        s.spawn(|| serve(&mut network, transport, &upf, &done));
        let reports = whimbrel_ran::edge::run(&config, &mut Silent);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        reports
    });
    let report = &reports.unwrap()[0];
    assert!(report.is_clean(), "{}", report.json());
    assert_eq!(report.completed, 20);
}
