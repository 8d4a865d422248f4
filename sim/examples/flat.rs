//! What the forms cost in which UEs, inputs and outputs travel between processes: `./x bench flat`.
//!
//! One UE does one procedure after the other. After each it rests: its checkpoint, and the step from the one before.
//! Of each procedure: its log, which is the inputs at the CTA, and what the core answered. Times are the least of
//! work done over and over, so that it finds its memory warm and the machine free.
//!
//! `-- frames checkpoint|envelope|batch|config` writes some of the frames of that form instead, in hexadecimal digits, a line each:
//! what `control/src/flat/testdata` keeps of every version. `-- frames snapshot` writes what CTAs give their successors, as
//! `resilience/src/cta_replica/testdata` keeps it.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_control::config::Config;
use whimbrel_control::{Batch, Checkpoint, Delta, Envelope, Shard, UeContext};
use whimbrel_ids::{GlobalGnbId, PlmnId, SNssai, Tac};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::gnb::{GnbConfig, Via};
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_sim::{
    ChaosRun, Deployment, GnbIndex, Sim, UeIndex, default_config, home_plmn, open_config, ue_config,
};

const UE: UeIndex = UeIndex(0);
/// Chaos runs of which a CTA's snapshot is written; at the end of some, procedures are running.
const SNAPSHOTS: u64 = 3;

fn establish(net: &mut Sim) {
    let request = SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
    net.command(UE, UeCommand::EstablishSession(request));
}

fn release(net: &mut Sim) {
    net.release(UE, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity));
}

/// A name, and how it begins.
type Step = (&'static str, fn(&mut Sim));

/// What the UE does, in its order.
const STEPS: [Step; 9] = [
    ("registration", |net| net.command(UE, UeCommand::Register)),
    ("session establishment", establish),
    ("AN release", release),
    ("service request", |net| net.command(UE, UeCommand::ServiceRequest)),
    ("Xn path switch", |net| net.hand_over(UE, GnbIndex(1), Via::Xn)),
    ("N2 handover", |net| net.hand_over(UE, GnbIndex(0), Via::N2)),
    ("AN release again", release),
    ("periodic registration", |net| net.command(UE, UeCommand::PeriodicRegistration)),
    ("second session", establish),
];

fn clock() -> std::time::Instant {
    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock that the core must not")]
    std::time::Instant::now()
}

/// Nanoseconds that `f` takes: the least of several means, so that what else the machine does does not count.
fn time<T>(mut f: impl FnMut() -> T) -> f64 {
    const RUNS: u32 = 2000;
    let means = (0..25).map(|_| {
        let began = clock();
        (0..RUNS).for_each(|_| drop(black_box(f())));
        began.elapsed().as_nanos() as f64 / f64::from(RUNS)
    });
    means.fold(f64::INFINITY, f64::min)
}

fn gnb(n: u8) -> GnbConfig {
    let id = GlobalGnbId::new(PlmnId::TEST, n.into(), 28).expect("28 bits");
    GnbConfig::new(id, Tac::new(1).expect("24 bits"), vec![SNssai::sst(1)], [127, 0, 1, n].into())
}

fn network() -> Sim {
    let mut net = Sim::builder(7).recorded().build();
    let gnbs = [1, 2].map(|n| net.add_gnb(gnb(n)));
    net.advance(Duration::from_secs(1));
    net.add_ue(gnbs[0], ue_config(1));
    net
}

/// The UE, once it rests.
fn settled(net: &mut Sim) -> UeContext {
    net.settle(Duration::from_millis(500));
    for _ in 0..60 {
        let ue = net.cta().contexts().next().expect("the UE has a context");
        if ue.is_idle() {
            return ue.clone();
        }
        net.advance(Duration::from_secs(1));
    }
    panic!("the UE does not come to rest");
}

fn checkpoint(ue: &UeContext) -> Checkpoint {
    Checkpoint::of(ue).expect("the UE is at rest")
}

/// The inputs of the UE after the first `from`.
fn log(net: &mut Sim, from: usize) -> Vec<Envelope> {
    let ues = net.recorder().contexts();
    ues.flat_map(|(_, log)| log).skip(from).map(|r| r.envelope.clone()).collect()
}

/// What the inputs led to.
fn batches(log: &[Envelope]) -> Vec<Batch> {
    let mut shard = Shard::new(Arc::new(default_config()));
    log.iter().map(|envelope| shard.handle(envelope)).collect()
}

fn procedures(figures: &mut Vec<String>) -> UeContext {
    println!(
        "{:<22} {:>6} {:>6} {:>7} {:>10} {:>6} {:>7}",
        "octets after", "state", "delta", "inputs", "log", "out", ""
    );
    let mut net = network();
    let mut before: Option<Checkpoint> = None;
    let mut one_session = None;
    let (mut ran, mut logged) = (0, 0);
    for (name, begin) in STEPS {
        begin(&mut net);
        let rests = settled(&mut net);
        let now = checkpoint(&rests);
        let delta = before.as_ref().and_then(|b| Delta::between(b, &now)).map(|d| d.octets().len());
        let inputs = log(&mut net, ran);
        let octets: usize = inputs.iter().map(|e| e.to_flat().octets().len()).sum();
        let out: usize = batches(&log(&mut net, 0))[ran..].iter().map(|b| b.to_flat().octets().len()).sum();
        ran += inputs.len();
        logged = logged.max(octets);
        println!(
            "{name:<22} {:>6} {:>6} {:>7} {octets:>10} {out:>6}",
            now.octets().len(),
            delta.map_or("-".into(), |d| d.to_string()),
            inputs.len(),
        );
        if let Some(delta) = delta {
            figures.push(format!("\"delta_{}_octets\": {delta}", name.replace(' ', "_").to_lowercase()));
        }
        if name == "AN release" {
            one_session = Some(rests);
        }
        before = Some(now);
    }
    figures.push(format!("\"longest_log_octets\": {logged}"));
    one_session.expect("the UE was idle with one session")
}

fn states(one: UeContext, figures: &mut Vec<String>) {
    let mut bare = one.clone();
    bare.amf.radio.capability = None;
    let mut radio = one;
    radio.amf.radio.capability = Some(vec![0x5a; 1500].into());
    let mut five = bare.clone();
    let session = five.sessions.values().next().expect("it has one").clone();
    for psi in 1..=5 {
        let psi = whimbrel_ids::PduSessionId::new(psi).expect("1 to 15");
        let mut session = session.clone();
        session.psi = psi;
        five.sessions.insert(psi, session);
    }
    println!("\n{:<34} {:>6} {:>9} {:>9} {:>9}", "idle UE", "octets", "write ns", "take ns", "read ns");
    let of = [
        ("one session", "one", bare),
        ("five sessions", "five", five),
        ("one, radio capability of 1500", "radio", radio),
    ];
    for (name, key, ue) in of {
        let flat = checkpoint(&ue);
        let write = time(|| Checkpoint::of(&ue));
        let take = time(|| Checkpoint::from_octets(flat.octets()));
        let read = time(|| flat.context());
        let octets = flat.octets().len();
        println!("{name:<34} {octets:>6} {write:>9.0} {take:>9.0} {read:>9.0}");
        figures.push(format!(
            "\"{key}_octets\": {octets}, \"{key}_write_ns\": {write:.0}, \"{key}_read_ns\": {read:.0}"
        ));
    }
}

/// A service request: the envelopes and batches of it, and the delta.
fn exchange(figures: &mut Vec<String>) {
    let mut net = network();
    for (_, begin) in &STEPS[..3] {
        begin(&mut net);
        settled(&mut net);
    }
    let (base, ran) = (checkpoint(&settled(&mut net)), log(&mut net, 0).len());
    STEPS[3].1(&mut net);
    let next = checkpoint(&settled(&mut net));
    let delta = Delta::between(&base, &next).expect("it is smaller");
    let envelopes = log(&mut net, 0);
    let batches = batches(&envelopes);
    let (envelopes, batches) = (&envelopes[ran..], &batches[ran..]);
    let n = envelopes.len() as f64;
    let flat: Vec<_> = envelopes.iter().map(Envelope::to_flat).collect();
    let out: Vec<_> = batches.iter().map(Batch::to_flat).collect();
    let figure = [
        ("envelope_write_ns", time(|| envelopes.iter().map(Envelope::to_flat).collect::<Vec<_>>()) / n),
        (
            "envelope_read_ns",
            time(|| flat.iter().map(|f| Envelope::from_flat(f.octets())).collect::<Vec<_>>()) / n,
        ),
        ("batch_write_ns", time(|| batches.iter().map(Batch::to_flat).collect::<Vec<_>>()) / n),
        ("batch_read_ns", time(|| out.iter().map(|f| Batch::from_flat(f.octets())).collect::<Vec<_>>()) / n),
        ("delta_make_ns", time(|| Delta::between(&base, &next))),
        ("delta_apply_ns", time(|| delta.apply(&base))),
    ];
    println!("\nservice request, means of {n} inputs");
    for (name, nanos) in figure {
        println!("{name:<20} {nanos:>8.0}");
        figures.push(format!("\"{name}\": {nanos:.0}"));
    }
}

const BROKER: &str = "b.example";

/// Users of a broker are served.
fn guest_config() -> Config {
    let mut config = default_config();
    open_config(&mut config);
    if let Some(open) = &mut config.open {
        open.homes.insert(home_plmn(), BROKER.parse().expect("a domain"));
    }
    config
}

/// A SAP UE and an ordinary UE of a broker's, each with a session.
fn guests() -> Sim {
    let mut net = Sim::builder(7).config(guest_config()).recorded().build();
    net.add_broker(BROKER);
    let gnb = net.add_gnb(gnb(1));
    let ues = [net.add_sap_ue(gnb, 1, BROKER), net.add_home_ue(gnb, 2, BROKER, |_| {})];
    net.advance(Duration::from_secs(1));
    for ue in ues {
        net.command(ue, UeCommand::Register);
        let session = SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
        net.command(ue, UeCommand::EstablishSession(session));
        net.advance(Duration::from_secs(2));
    }
    net
}

/// Frames of one form that differ in kind, of chaos runs with many procedures.
fn frames(form: &str) {
    if form == "config" {
        return [default_config(), guest_config()]
            .iter()
            .for_each(|c| println!("{}", hex(c.to_flat().octets())));
    }
    if form == "snapshot" {
        for seed in 0..SNAPSHOTS {
            let snapshot =
                ChaosRun::worst(seed, Deployment::Region(1)).run().snapshot().expect("it has no CTA replica");
            println!("{}", hex(snapshot.octets()));
        }
        return;
    }
    let mut logs: Vec<(Config, Vec<Envelope>)> = Vec::new();
    let mut take = |config: Config, mut net: Sim| {
        let recorded = net.recorder().contexts();
        logs.extend(
            recorded.map(|(_, log)| (config.clone(), log.iter().map(|r| r.envelope.clone()).collect())),
        );
    };
    for seed in 0..20 {
        take(default_config(), ChaosRun::worst(seed, Deployment::Single).run());
    }
    take(guest_config(), guests());
    let mut kinds: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let words = |debug: String| -> String {
        let words = debug.split(|c: char| !c.is_ascii_alphanumeric());
        words.filter(|w| w.starts_with(|c: char| c.is_ascii_uppercase())).collect::<Vec<_>>().join(" ")
    };
    for (config, log) in logs {
        let mut shard = Shard::new(Arc::new(config));
        for envelope in log {
            let batch = shard.handle(&envelope);
            match form {
                "envelope" => {
                    let kind = words(format!("{:?}", envelope.payload));
                    kinds.entry(kind).or_insert_with(|| envelope.to_flat().octets().into());
                }
                "batch" => {
                    kinds
                        .entry(words(format!("{batch:?}")))
                        .or_insert_with(|| batch.to_flat().octets().into());
                }
                _ => {
                    let Some(rests) = shard.checkpoint(envelope.ue) else { continue };
                    kinds
                        .entry(words(format!("{rests:?}")))
                        .or_insert_with(|| checkpoint(&rests).octets().into());
                }
            }
        }
    }
    for frame in kinds.into_values() {
        println!("{}", hex(&frame));
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|o| format!("{o:02x}")).collect()
}

fn main() {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("frames") {
        return frames(&args.next().unwrap_or_default());
    }
    let mut figures = Vec::new();
    let one = procedures(&mut figures);
    states(one, &mut figures);
    exchange(&mut figures);
    println!("{{\"bench\": \"flat\", \"figures\": {{{}}}}}", figures.join(", "));
}
