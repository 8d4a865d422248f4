//! What a procedure's processor time is made of: each part is measured alone, on the messages of one UE's procedure. So it shows which parts
//! are the same whatever the codec, and how much faster ours could be at most.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant as Clock};

use serde_json::{Value, json};
use whimbrel_ids::{Instant, PlmnId, Supi};
use whimbrel_link::{ClusterKey, Event as LinkEvent, LinkEvents, LinkId, LinkSettings, Links};
use whimbrel_ngap::Message;
use whimbrel_pfcp::Frame;
use whimbrel_sctp::{AssociationId, Config, Connect, Endpoint, Input, Outbox, Path, Send};
use whimbrel_security::{
    Abba, AkaFunctions, AuthenticationManagementField, AuthenticationVector, Bearer, CipheringAlgorithm,
    IntegrityAlgorithm, K, KAmf, Milenage, NasCount, NasCounts, NasSecurityContext, NasSide, Op, Rand,
    SecurityHeaderType, ServingNetworkName, Sqn,
};
use whimbrel_shm::create;

use super::clock::timed;
use super::codec::Codec;
use super::load::Procedure;
use super::scheme::{OURS, Scheme};
use super::sweep::{ready, round};
use crate::measure::{median, nanoseconds};

/// How often a part is measured whose pieces are timed one by one: the median counts.
const ROUNDS: usize = 101;

/// The messages of a procedure, as the deployment carries them.
#[derive(Default)]
pub(super) struct Tap {
    /// NGAP of gNBs, and to gNBs.
    pub(super) up: Vec<Vec<u8>>,
    pub(super) down: Vec<Vec<u8>>,
    /// PFCP of the UPF, and to it.
    pub(super) from_upf: Vec<Vec<u8>>,
    pub(super) to_upf: Vec<Vec<u8>>,
    /// What CTA and CPFs say to each other.
    pub(super) frames: Vec<Vec<u8>>,
}

/// Microseconds of a procedure.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    /// Reading and writing NGAP with rasn, and with our own codec.
    rasn: f64,
    lean: f64,
    /// Ciphering and integrity of NAS (TS 24.501 §4.4), keys that are expanded for it included.
    nas: f64,
    /// Keys that are derived, and vectors (TS 33.501 Annex A).
    keys: f64,
    /// Reading and writing PFCP.
    n4: f64,
    /// SCTP of the messages with gNBs, and links between processes, which are sealed: with their system calls, one message at a time.
    sctp: f64,
    links: f64,
}

impl std::ops::Add for Parts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            rasn: self.rasn + other.rasn,
            lean: self.lean + other.lean,
            nas: self.nas + other.nas,
            keys: self.keys + other.keys,
            n4: self.n4 + other.n4,
            sctp: self.sctp + other.sctp,
            links: self.links + other.links,
        }
    }
}

/// Median completion times in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Medians {
    pub(super) existing: f64,
    /// `existing` with our codec.
    pub(super) lean: f64,
    pub(super) ours: f64,
    /// The least that was measured with our codec: all that is left to save is what that codec takes.
    pub(super) least: f64,
}

impl Medians {
    /// How many times as fast as `existing` ours is, and would be with codec, log and replicas that took no time at all; where both take so much more.
    fn times(&self, our_codec: f64, more: f64) -> [f64; 2] {
        let existing = self.existing + more;
        [existing / (self.ours + more), existing / (self.least - our_codec + more)]
    }
}

impl Parts {
    /// Those of a procedure.
    pub(super) fn of(scheme: Scheme, procedure: Procedure) -> Self {
        let tap = tapped(scheme, procedure);
        let [nas, keys, n4] = in_memory(&tap, procedure);
        let (rasn, lean) = codecs(&tap);
        Self { rasn, lean, nas, keys, n4, sctp: sctp(&tap), links: links(&tap, false) }
    }

    /// Says what they are and what follows from them for the ratio between ours and `existing`, with links and, where it is known, without.
    pub(super) fn say(&self, with_links: Medians, without_links: Option<Medians>) -> Value {
        let Self { rasn, lean, nas, keys, n4, sctp, links } = *self;
        println!(
            "parts, each measured alone on one UE's messages, us of processor time: NGAP {rasn:.2} with rasn, {lean:.2} ours; the same for both: NAS's \
             ciphering and integrity {nas:.2}, keys {keys:.2}, N4's messages {n4:.2}"
        );
        println!(
            "the same for both too, and not in the completion times here: SCTP {sctp:.1}, sealed links between processes {links:.1}, with a system call \
             for each message"
        );
        let codec = with_links.existing - with_links.lean;
        println!(
            "of the median of `existing`, {:.1} us, the codec is {codec:.1}: {:.0} %",
            with_links.existing,
            codec / with_links.existing * 100.0
        );
        let beside = sctp + links;
        let cases = [
            ("as measured here", Some(with_links), 0.0),
            ("without links", without_links, 0.0),
            ("with SCTP and sealed links in both", Some(with_links), beside),
        ];
        let mut ratios = BTreeMap::new();
        for (case, medians, more) in cases {
            let Some([now, at_most]) = medians.map(|m| m.times(lean, more)) else { continue };
            println!(
                "{case}: ours is {now:.2} times as fast as `existing`; with a codec, log and replicas that took no time at all it would be {at_most:.2}"
            );
            ratios.insert(case, [round(now), round(at_most)]);
        }
        json!({
            "us": {
                "rasn": round(rasn), "our_codec": round(lean), "nas": round(nas), "keys": round(keys), "n4": round(n4),
                "sctp": round(sctp), "links": round(links),
            },
            "codec_share": round(codec / with_links.existing),
            "times_as_fast_now_and_at_most": ratios,
        })
    }
}

/// NAS, keys, N4.
fn in_memory(tap: &Tap, procedure: Procedure) -> [f64; 3] {
    let k_amf = KAmf::new([7; 32]);
    let context = |side| {
        let (nea, nia) = (CipheringAlgorithm::Nea2, IntegrityAlgorithm::Nia2);
        NasSecurityContext::new(side, Bearer::NAS_3GPP, &k_amf, nea, nia, NasCounts::default())
    };
    let header = SecurityHeaderType::IntegrityProtectedAndCiphered;
    let mut ue = context(NasSide::Ue);
    let uplink: Vec<Vec<u8>> = protected(&tap.up)
        .map(|plain| {
            let mut message = Vec::new();
            ue.protect(header, &vec![0; plain], &mut message).expect("COUNTs are left");
            message
        })
        .collect();
    let downlink: Vec<Vec<u8>> = protected(&tap.down).map(|plain| vec![0; plain]).collect();
    let network = context(NasSide::Network);
    let mut nas = || {
        // Its keys are expanded again, as those of a UE that was idle.
        let (mut context, mut out) = (network.clone(), Vec::with_capacity(512));
        for message in &uplink {
            let taken = context.unprotect(black_box(message), &mut out);
            assert!(taken.is_ok(), "the UE's own");
        }
        for plain in &downlink {
            out.clear();
            let _ = black_box(context.protect(header, plain, &mut out));
        }
    };
    let functions = AkaFunctions::from(Milenage::from_op(&K::new([1; 16]), &Op::new([2; 16])));
    let name = ServingNetworkName::new(PlmnId::TEST);
    let supi: Supi = "imsi-999700000000001".parse().expect("fifteen digits");
    let mut keys = || match procedure {
        Procedure::Attach => {
            let field = AuthenticationManagementField::FIVE_G;
            let vector = AuthenticationVector::generate(&functions, Rand([3; 16]), Sqn::ZERO, field, &name);
            assert!(vector.hres_star_matches(&vector.xres_star), "it is its own");
            let k_amf = vector.k_seaf.k_amf(supi, Abba::RELEASE_15);
            black_box(k_amf.k_nas_enc(CipheringAlgorithm::Nea2));
            black_box(k_amf.k_nas_int(IntegrityAlgorithm::Nia2));
            black_box(k_amf.first_nh(&k_amf.k_gnb(NasCount::default())));
        }
        Procedure::ServiceRequest => {
            black_box(k_amf.first_nh(&k_amf.k_gnb(NasCount::default())));
        }
        Procedure::Handover => {
            black_box(k_amf.next_nh(&k_amf.first_nh(&k_amf.k_gnb(NasCount::default()))));
        }
    };
    let parse = |octets: &Vec<u8>| {
        let frame = Frame::parse(octets).ok()?;
        Some((frame.header.seid, frame.header.sequence, whimbrel_pfcp::Message::parse(&frame).ok()?))
    };
    let asked: Vec<_> = tap.to_upf.iter().filter_map(parse).collect();
    let mut n4 = || {
        for octets in &tap.from_upf {
            black_box(parse(black_box(octets)));
        }
        for (seid, sequence, message) in &asked {
            black_box(message.to_octets(*seid, *sequence));
        }
    };
    let measured = nanoseconds(&mut [&mut nas, &mut keys, &mut n4]);
    [0, 1, 2].map(|i| measured[i] / 1000.0)
}

/// Octets of the plain messages that travel protected.
fn protected(messages: &[Vec<u8>]) -> impl Iterator<Item = usize> {
    let pdus = messages.iter().flat_map(|octets| match Message::decode(octets) {
        Ok(Message::InitialUeMessage(m)) => vec![m.nas_pdu],
        Ok(Message::UplinkNasTransport(m)) => vec![m.nas_pdu],
        Ok(Message::DownlinkNasTransport(m)) => vec![m.nas_pdu],
        Ok(Message::InitialContextSetupRequest(m)) => {
            let items = m.pdu_session_resource_setup_list_cxt_req.into_iter().map(|i| i.nas_pdu);
            items.chain([m.nas_pdu]).flatten().collect()
        }
        Ok(Message::PduSessionResourceSetupRequest(m)) => {
            let items = m.pdu_session_resource_setup_list_su_req.into_iter().map(|i| i.pdu_session_nas_pdu);
            items.chain([m.nas_pdu]).flatten().collect()
        }
        _ => Vec::new(),
    });
    // The header: discriminator, type, MAC, sequence number (TS 24.501 §9.1.1).
    pdus.filter(|pdu| pdu.get(1).is_some_and(|header| *header != 0)).map(|pdu| pdu.len().saturating_sub(7))
}

/// With rasn, and with our own.
fn codecs(tap: &Tap) -> (f64, f64) {
    let (mut rasn, mut lean) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let read = tap.up.iter().map(|octets| Codec::Conventional.read(octets));
        let written = tap.down.iter().map(|octets| Codec::Conventional.write(octets));
        let all = read.chain(written).fold((0, 0), |(theirs, ours), c| (theirs + c.theirs, ours + c.ours));
        rasn.push(all.0 as f64 / 1000.0);
        lean.push(all.1 as f64 / 1000.0);
    }
    (median(rasn), median(lean))
}

const GNB: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const CORE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const PORT: u16 = 38412;

/// An endpoint of SCTP, and a socket of UDP that its packets take.
struct End {
    at: IpAddr,
    endpoint: Endpoint,
    socket: UdpSocket,
    out: Outbox,
}

impl End {
    fn new(at: IpAddr, port: u16) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        let endpoint = Endpoint::new(Config::new(port), [at == CORE; 32].map(u8::from), Instant(1));
        Self { at, endpoint, socket, out: Outbox::default() }
    }

    fn send(&mut self, association: AssociationId, octets: &[u8]) {
        let send = Send { association, stream: 1, ppid: whimbrel_ngap::PPID, unordered: false, octets };
        self.endpoint.send(send).expect("there is room");
    }

    /// What waits leaves. How many packets that is.
    fn flush(&mut self, now: Instant) -> usize {
        self.endpoint.flush(now, &mut self.out);
        let packets = self.out.packets.len();
        for (_, octets) in self.out.packets.iter() {
            self.socket.send(octets).expect("the other end is there");
        }
        self.out.packets.clear();
        self.out.events.clear();
        packets
    }

    /// Takes so many packets, and answers them. How many packets that is.
    fn take(&mut self, now: Instant, packets: usize) -> usize {
        let mut octets = [0; 2048];
        for _ in 0..packets {
            let length = self.socket.recv(&mut octets).expect("what was sent arrives");
            let remote = if self.at == CORE { GNB } else { CORE };
            let path = Path { local: self.at, remote, udp_port: 0 };
            self.endpoint.handle(now, Input::Packet { path, octets: &octets[..length] }, &mut self.out);
        }
        self.flush(now)
    }
}

/// Of the core's end: messages of gNBs come and are acknowledged, its own leave and their acknowledgements come.
fn sctp(tap: &Tap) -> f64 {
    let (mut gnb, mut core) = (End::new(GNB, 40_000), End::new(CORE, PORT));
    gnb.socket.connect(core.socket.local_addr().expect("it is bound")).expect("it is there");
    core.socket.connect(gnb.socket.local_addr().expect("it is bound")).expect("it is there");
    let mut now = Instant(1_000_000);
    let to = Connect { addresses: &[CORE], port: PORT, udp_port: 0 };
    let there = gnb.endpoint.connect(now, to, &mut gnb.out).expect("an address");
    let mut packets = gnb.flush(now);
    while packets > 0 {
        packets = core.take(now, packets);
        packets = gnb.take(now, packets);
    }
    let here = core.endpoint.associations().next().expect("the association stands");
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let mut nanos = 0;
        for octets in &tap.up {
            now = now + Duration::from_millis(1);
            gnb.send(there, octets);
            let sent = gnb.flush(now);
            let (answered, took) = timed(|| core.take(now, sent));
            nanos += took;
            gnb.take(now, answered);
        }
        for octets in &tap.down {
            now = now + Duration::from_millis(1);
            let (sent, took) = timed(|| {
                core.send(here, octets);
                core.flush(now)
            });
            nanos += took;
            let answered = gnb.take(now, sent);
            nanos += timed(|| core.take(now, answered)).1;
        }
        rounds.push(nanos as f64 / 1000.0);
    }
    median(rounds)
}

/// Microseconds of the messages between CTA and CPFs in a service request: over sealed sockets, and through shared memory.
pub(crate) fn links_of_a_service_request() -> [f64; 2] {
    let tap = tapped(OURS, Procedure::ServiceRequest);
    [links(&tap, false), links(&tap, true)]
}

/// The messages of one UE's procedure.
fn tapped(scheme: Scheme, procedure: Procedure) -> Tap {
    let mut region = ready(scheme, procedure, 1);
    if procedure == Procedure::ServiceRequest {
        region.release_all();
    }
    region.tap = Some(Tap::default());
    region.measure(procedure, &[(0, 0)], &[]);
    region.tap.take().unwrap_or_default()
}

/// Of both ends: frames are sealed, written, read and opened; or go through shared memory.
fn links(tap: &Tap, shared: bool) -> f64 {
    let mut settings = LinkSettings::new(b"one end".to_vec());
    settings.keys = vec![ClusterKey::new([1; 32])];
    settings.listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let mut other = Links::open(settings.clone()).expect("a listener");
    let at = other.local_addr().expect("its address");
    settings.listen = None;
    let mut links = Links::open(settings).expect("links");
    if shared {
        let made = create().expect("shared memory");
        for (area, links) in [&mut links, &mut other].into_iter().enumerate() {
            links.share(made.open(area).expect("the pool that was just made")).expect("room for a bell");
        }
    }
    let link: LinkId = links.connect(Instant(1), at);
    let (mut events, mut theirs, mut up) = (LinkEvents::default(), LinkEvents::default(), 0);
    let begun = Clock::now();
    while up < 2 || links.shared() < usize::from(shared) || other.shared() < usize::from(shared) {
        assert!(begun.elapsed() < Duration::from_secs(60), "a link within one machine stands");
        for (links, events) in [(&mut links, &mut events), (&mut other, &mut theirs)] {
            links.flush();
            links.drain(Instant(1), events);
            up += events.iter().filter(|e| matches!(e, LinkEvent::Up { .. })).count();
        }
    }
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let ((), took) = timed(|| {
            for frame in &tap.frames {
                links.send(link, frame);
                links.flush();
                let came = |events: &LinkEvents| events.iter().any(|e| matches!(e, LinkEvent::Frame { .. }));
                loop {
                    other.drain(Instant(1), &mut theirs);
                    if came(&theirs) {
                        break;
                    }
                }
            }
        });
        rounds.push(took as f64 / 1000.0);
    }
    median(rounds)
}
