//! What each procedure costs the core: `./x bench procedures [UES]`.
//!
//! UEs do one procedure after the other, without faults. Only the time within `Cta::handle` counts: CTA, machines,
//! directory, NAS security and the codecs of N1, N2 and N4; UEs, gNBs, UPF and sockets do not. The parts are measured by doing
//! the codecs' and the keys' work again, alone, on the very messages of the procedure; what is left is logic: machines, tables,
//! allocation, and that a procedure finds its memory cold where the parts, done over and over, find it warm. A busy machine shows
//! in p99.

use std::hint::black_box;
use std::time::Duration;

use whimbrel_ids::{GlobalGnbId, PlmnId, SNssai, Tac};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_nas::{mm, sm};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::gnb::{GnbConfig, Via};
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_security::{
    AuthenticationManagementField, AuthenticationVector, Bearer, CipheringAlgorithm, IntegrityAlgorithm, K,
    KAmf, Milenage, NasCount, NasCounts, NasSecurityContext, NasSide, Opc, Rand, SecurityHeaderType,
    ServingNetworkName, Sqn,
};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, Wire, Work, default_config, ue_config};

/// What is measured, in the order in which a UE does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Registration,
    SessionEstablishment,
    AnRelease,
    ServiceRequest,
    XnPathSwitch,
    N2Handover,
    SecondAnRelease,
    PeriodicRegistration,
    Deregistration,
}

const STEPS: [Step; 9] = [
    Step::Registration,
    Step::SessionEstablishment,
    Step::AnRelease,
    Step::ServiceRequest,
    Step::XnPathSwitch,
    Step::N2Handover,
    Step::SecondAnRelease,
    Step::PeriodicRegistration,
    Step::Deregistration,
];

/// What must be reached at the median, in microseconds.
const GOAL_US: f64 = 100.0;

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Registration => "registration",
            Self::SessionEstablishment => "session establishment",
            Self::AnRelease | Self::SecondAnRelease => "AN release",
            Self::ServiceRequest => "service request",
            Self::XnPathSwitch => "Xn path switch",
            Self::N2Handover => "N2 handover",
            Self::PeriodicRegistration => "periodic registration",
            Self::Deregistration => "deregistration",
        }
    }

    fn has_goal(self) -> bool {
        matches!(self, Self::ServiceRequest | Self::XnPathSwitch | Self::N2Handover)
    }

    fn begin(self, net: &mut Sim, ue: UeIndex) {
        let release = |net: &mut Sim| net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity));
        match self {
            Self::Registration => net.command(ue, UeCommand::Register),
            Self::SessionEstablishment => {
                let pdu_session_type = PduSessionType::Ipv4;
                let request = SessionRequest { dnn: None, s_nssai: None, pdu_session_type };
                net.command(ue, UeCommand::EstablishSession(request));
            }
            Self::AnRelease | Self::SecondAnRelease => release(net),
            Self::ServiceRequest => net.command(ue, UeCommand::ServiceRequest),
            Self::XnPathSwitch => net.hand_over(ue, GnbIndex(1), Via::Xn),
            Self::N2Handover => net.hand_over(ue, GnbIndex(0), Via::N2),
            Self::PeriodicRegistration => net.command(ue, UeCommand::PeriodicRegistration),
            Self::Deregistration => net.command(ue, UeCommand::Deregister { switch_off: false }),
        }
    }

    /// Keys that are made beside those of the NAS messages.
    fn keys(self) -> u64 {
        let (k_amf, count) = (KAmf::new([7; 32]), NasCount::new(5).expect("24 bits"));
        match self {
            Self::Registration => time(|| {
                let vector = AuthenticationVector::generate(
                    &Milenage::new(&K::new([1; 16]), Opc::new([2; 16])).into(),
                    Rand([3; 16]),
                    Sqn::new(77, 0),
                    AuthenticationManagementField::FIVE_G,
                    &ServingNetworkName::new(PlmnId::TEST),
                );
                black_box(vector);
                black_box(k_amf.k_gnb(count));
                black_box(context());
            }),
            // K_gNB, or NH (TS 33.501 Annex A.9, A.10).
            Self::ServiceRequest | Self::XnPathSwitch | Self::N2Handover => time(|| {
                black_box(k_amf.k_gnb(count));
            }),
            _ => 0,
        }
    }
}

fn context() -> NasSecurityContext {
    NasSecurityContext::new(
        NasSide::Network,
        Bearer::NAS_3GPP,
        &KAmf::new([7; 32]),
        CipheringAlgorithm::Nea2,
        IntegrityAlgorithm::Nia2,
        NasCounts::default(),
    )
}

fn clock() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock that the core must not")]
    let now = Instant::now();
    now.duration_since(*BEGAN.get_or_init(|| now)).as_nanos() as u64
}

/// Nanoseconds that `f` takes: the median of several means, so that what else the machine does does not count.
fn time(mut f: impl FnMut()) -> u64 {
    const RUNS: u64 = 16;
    let mut means = [0; 9];
    f();
    for mean in &mut means {
        let began = clock();
        for _ in 0..RUNS {
            f();
        }
        *mean = (clock() - began) / RUNS;
    }
    means.sort_unstable();
    means[means.len() / 2]
}

fn network(ciphering: CipheringAlgorithm, ues: u32) -> Sim {
    let mut config = default_config();
    config.amf.ciphering = vec![ciphering];
    let mut net = Sim::builder(7).config(config).build();
    net.discard_events();
    let gnbs: Vec<_> = (1..=2).map(|n| net.add_gnb(gnb(n))).collect();
    net.advance(Duration::from_secs(1));
    for n in 0..ues {
        net.add_ue(gnbs[0], ue_config(n));
    }
    net.measure(clock);
    net
}

fn gnb(n: u8) -> GnbConfig {
    let id = GlobalGnbId::new(PlmnId::TEST, n.into(), 28).expect("28 bits");
    GnbConfig::new(id, Tac::new(1).expect("24 bits"), vec![SNssai::sst(1)], [127, 0, 1, n].into())
}

/// What one procedure of one UE made the core do; nothing if it did not come about.
fn one(net: &mut Sim, ue: UeIndex, step: Step) -> Option<Work> {
    let before = net.tally().completed.values().sum::<u64>();
    net.work();
    step.begin(net, ue);
    net.settle(Duration::from_millis(500));
    let done = net.tally().completed.values().sum::<u64>() > before;
    let moved = step != Step::N2Handover || net.gnb_of(ue) == GnbIndex(0);
    Some(net.work()).filter(|_| done && moved)
}

/// The NAS messages in an NGAP message.
fn nas(message: &Message) -> Vec<&[u8]> {
    match message {
        Message::InitialUeMessage(m) => vec![&m.nas_pdu],
        Message::UplinkNasTransport(m) => vec![&m.nas_pdu],
        Message::DownlinkNasTransport(m) => vec![&m.nas_pdu],
        Message::InitialContextSetupRequest(m) => m.nas_pdu.iter().map(Vec::as_slice).collect(),
        Message::PduSessionResourceReleaseCommand(m) => m.nas_pdu.iter().map(Vec::as_slice).collect(),
        Message::PduSessionResourceSetupRequest(m) => {
            let items = m.pdu_session_resource_setup_list_su_req.iter();
            items.filter_map(|i| i.pdu_session_nas_pdu.as_deref()).collect()
        }
        _ => Vec::new(),
    }
}

/// Under null ciphering the plain message follows the header of seven octets (TS 24.501 §9.1.1).
fn plain(pdu: &[u8]) -> &[u8] {
    if pdu.get(1).is_some_and(|h| *h != 0) { pdu.get(7..).unwrap_or_default() } else { pdu }
}

/// Nanoseconds of a procedure's decoding, security and encoding.
#[derive(Clone, Copy, Default)]
struct Parts {
    decode: u64,
    security: u64,
    encode: u64,
}

/// Does the parts of a procedure again. Its messages are of a network with null ciphering; the keys' work is done with NEA2.
fn parts(step: Step, work: &Work) -> Parts {
    let mut parts = Parts { security: step.keys(), ..Parts::default() };
    let mut keys = context();
    for wire in &work.received {
        match wire {
            Wire::N2(octets) => {
                parts.decode += time(|| {
                    let _ = black_box(Message::decode(octets));
                });
                let Ok(message) = Message::decode(octets) else { continue };
                for pdu in nas(&message) {
                    parts.security += protection(&mut keys, pdu);
                    parts.decode += time(|| read(plain(pdu)));
                }
            }
            Wire::N4(octets) => {
                parts.decode += time(|| {
                    if let Ok(frame) = whimbrel_pfcp::Frame::parse(octets) {
                        let _ = black_box(whimbrel_pfcp::Message::parse(&frame));
                    }
                });
            }
        }
    }
    for wire in &work.sent {
        match wire {
            Wire::N2(octets) => {
                let Ok(message) = Message::decode(octets) else { continue };
                parts.encode += time(|| {
                    let mut out = Vec::with_capacity(128);
                    message.encode(&mut out);
                    black_box(out);
                });
                for pdu in nas(&message) {
                    parts.security += protection(&mut keys, pdu);
                    let Ok(message) = mm::Message::decode(plain(pdu)) else { continue };
                    parts.encode += time(|| {
                        black_box(message.to_octets());
                    });
                }
            }
            Wire::N4(octets) => {
                let Ok(frame) = whimbrel_pfcp::Frame::parse(octets) else { continue };
                let Ok(message) = whimbrel_pfcp::Message::parse(&frame) else { continue };
                let (seid, sequence) = (frame.header.seid, frame.header.sequence);
                parts.encode += time(|| {
                    black_box(message.to_octets(seid, sequence));
                });
            }
        }
    }
    parts
}

fn read(plain: &[u8]) {
    if let Ok(mm::Message::UlNasTransport(m)) = black_box(mm::Message::decode(plain)) {
        let _ = black_box(sm::Message::decode(&m.payload_container));
    }
}

fn protection(keys: &mut NasSecurityContext, pdu: &[u8]) -> u64 {
    if pdu.get(1).is_none_or(|h| *h == 0) {
        return 0;
    }
    let body = plain(pdu);
    time(|| {
        let mut out = Vec::with_capacity(body.len() + 7);
        let _ = black_box(keys.protect(SecurityHeaderType::IntegrityProtectedAndCiphered, body, &mut out));
    })
}

fn quantile(sorted: &[u64], q: f64) -> f64 {
    let at = ((sorted.len() as f64 - 1.0) * q).round() as usize;
    sorted.get(at).copied().unwrap_or(0) as f64 / 1000.0
}

fn main() {
    let ues: u32 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(2000);
    let (mut net, mut bare) = (network(CipheringAlgorithm::Nea2, ues), network(CipheringAlgorithm::Nea0, 1));
    println!("core time of one procedure in microseconds, {ues} UEs one after the other\n");
    println!(
        "{:<22} {:>8} {:>8} {:>8} {:>9} {:>8} {:>8} {:>7} {:>8} {:>8}",
        "procedure", "p50", "p99", "decode", "security", "encode", "logic", "inputs", "octets", "distance"
    );
    let mut samples: Vec<(Vec<u64>, Option<Work>)> = vec![Default::default(); STEPS.len()];
    for ue in 0..ues {
        for (step, (nanos, last)) in STEPS.iter().zip(&mut samples) {
            if let Some(work) = one(&mut net, UeIndex(ue as usize), *step) {
                nanos.push(work.nanos);
                *last = Some(work);
            }
        }
    }
    let mut figures = Vec::new();
    for (step, (mut nanos, last)) in STEPS.into_iter().zip(samples) {
        let in_clear = one(&mut bare, UeIndex(0), step);
        if step == Step::SecondAnRelease {
            continue;
        }
        let (Some(last), Some(in_clear)) = (last, in_clear) else {
            println!("{:<22} not served yet", step.name());
            continue;
        };
        nanos.sort_unstable();
        let (p50, p99) = (quantile(&nanos, 0.5), quantile(&nanos, 0.99));
        let parts = parts(step, &in_clear);
        let us = |n: u64| n as f64 / 1000.0;
        let logic = (p50 - us(parts.decode + parts.security + parts.encode)).max(0.0);
        let octets: usize = last.received.iter().chain(&last.sent).map(|w| w.octets().len()).sum();
        let distance =
            if step.has_goal() { format!("{:+.0} %", (p50 / GOAL_US - 1.0) * 100.0) } else { String::new() };
        println!(
            "{:<22} {p50:>8.1} {p99:>8.1} {:>8.1} {:>9.1} {:>8.1} {logic:>8.1} {:>7} {octets:>8} {distance:>8}",
            step.name(),
            us(parts.decode),
            us(parts.security),
            us(parts.encode),
            last.inputs,
        );
        figures.push(format!(
            "\"{}\": {{\"p50_us\": {p50:.1}, \"p99_us\": {p99:.1}, \"decode_us\": {:.1}, \"security_us\": {:.1}, \
             \"encode_us\": {:.1}, \"logic_us\": {logic:.1}, \"inputs\": {}, \"octets\": {octets}}}",
            step.name().replace(' ', "_"),
            us(parts.decode),
            us(parts.security),
            us(parts.encode),
            last.inputs,
        ));
    }
    println!("\ndistance: of the median to the goal of {GOAL_US:.0} us");
    println!("{{\"bench\": \"procedures\", \"figures\": {{\"ues\": {ues}, {}}}}}", figures.join(", "));
}
