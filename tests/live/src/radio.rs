//! The fuzzer's own gNBs and UEs: conversations as they should be, altered on their way to the core; and messages by
//! hand between them.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use whimbrel_ids::{AmfUeNgapId, GlobalGnbId, Instant, PlmnId, RanUeNgapId, SNssai, Tac};
use whimbrel_ngap::{Cause, CauseRadioNetwork, Message, Source, TransferSyntax, UplinkNasTransport};
use whimbrel_ran::cells::{Cells, GnbId, Input, Output, UserPlane};
use whimbrel_ran::edge::{Clock, GnbPlace, Mode};
use whimbrel_ran::fleet::ProvisionedUe;
use whimbrel_ran::gnb::{GnbConfig, Via};
use whimbrel_ran::ue::{Alter, Profile, SessionRequest, SuciSource, UeCommand, UeConfig};
use whimbrel_ran::user_plane::Task;
use whimbrel_ran::{Outbox, UeId};
use whimbrel_sctp_io::{AssociationId, Config, Event, Events, Transport, TransportSettings};
use whimbrel_security::UsimSqn;

use crate::handover;
use crate::mutate::{self, Pdu};
use crate::nas::{self, Names};
use crate::op::{Act, Op};
use crate::program::{CORE, GATEWAY};
use crate::rng::Rng;

/// gNBs and UEs of one part of the fuzzer.
pub(crate) const GNBS: u8 = 3;
pub(crate) const UES: u16 = 18;
/// Messages, names and tunnels that are remembered to be used again.
const KEPT_MAX: usize = 64;
/// How long a gNB waits before it connects again.
const RECONNECT: Duration = Duration::from_millis(50);
/// Elements of NGAP (TS 38.413 §9.4.7).
const ID_AMF_UE_NGAP_ID: u16 = 10;
const ID_NAS_PDU: u16 = 38;
const ID_RAN_UE_NGAP_ID: u16 = 85;
const ID_SOURCE_AMF_UE_NGAP_ID: u16 = 100;
const ID_UE_PAGING_IDENTITY: u16 = 115;

/// A gNB of that name at that address.
pub(crate) fn place(id: u32, address: IpAddr) -> GnbPlace {
    let id = GlobalGnbId::new(PlmnId::TEST, id, 28).expect("28 bits hold it");
    let tac = Tac::new(1).expect("24 bits hold it");
    GnbPlace { config: GnbConfig::new(id, tac, vec![SNssai::sst(1)], address), address, amfs: Vec::new() }
}

/// A UE of that subscription, whose SUCI hides nothing.
pub(crate) fn ue(s: &ProvisionedUe) -> UeConfig {
    let (k, opc) = s.key();
    let profile = Arc::new(Profile::new(PlmnId::TEST, vec![SNssai::sst(1)]));
    UeConfig { profile, supi: s.supi, pei: s.pei, k, opc, sqn: UsimSqn::default(), suci: SuciSource::Null }
}

/// Streams that a gNB asks for.
const STREAMS: u16 = 32;

/// A gNB's endpoint.
fn transport(
    address: Ipv4Addr,
    streams: u16,
    now: Instant,
) -> Result<Transport, whimbrel_sctp_io::OpenError> {
    let mut endpoint = Config::new(0);
    endpoint.local_addresses = vec![address.into()];
    endpoint.accept_inbound = false;
    endpoint.outbound_streams = streams;
    endpoint.inbound_streams_max = streams; // which is what the core may use
    let mut settings = TransportSettings::new(endpoint);
    settings.mode = Mode::Udp;
    let mut secret = [0; 32];
    secret[..4].copy_from_slice(&address.octets());
    secret[8..16].copy_from_slice(&now.0.to_be_bytes());
    Transport::open(&settings, secret, now)
}

/// INITIAL UE MESSAGE of an unknown UE, which the core identifies.
fn unknown_ue(ran: u32) -> Vec<u8> {
    let nas =
        [0x7e, 0, 0x41, 0x79, 0, 7, 0xf4, 0, 0x40, 1, 2, 3, 4, 0x2e, 4, 0xf0, 0x70, 0xf0, 0x70].to_vec();
    let cell =
        whimbrel_ngap::NrCgi::new(PlmnId::TEST, whimbrel_ids::NrCellId::new(1).expect("36 bits hold 1"));
    let tai = whimbrel_ids::Tai { plmn: PlmnId::TEST, tac: Tac::new(1).expect("24 bits hold it") };
    let location = whimbrel_ngap::UserLocationInformationNr::new(cell, tai);
    let location = whimbrel_ngap::UserLocationInformation::UserLocationInformationNr(location);
    let cause = whimbrel_ngap::RrcEstablishmentCause::MoSignalling;
    let mut octets = Vec::new();
    Message::from(whimbrel_ngap::InitialUeMessage::new(RanUeNgapId(ran), nas, location, cause))
        .encode(&mut octets);
    octets
}

/// The address of one of a radio's gNBs.
fn address(which: u8, n: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 2, which * 16 + n + 1)
}

/// gNBs and UEs that have done nothing yet.
fn cells(which: u8, ues: &[ProvisionedUe]) -> Cells {
    let mut cells = Cells::new(UserPlane::Stack, u64::from(which));
    for n in 0..GNBS {
        cells.add_gnb(place(0x10 + u32::from(which) * 16 + u32::from(n), address(which, n).into()).config);
    }
    for (i, s) in ues.iter().enumerate() {
        cells.add_ue(GnbId(i as u16 % u16::from(GNBS)), ue(s));
    }
    cells
}

struct Site {
    address: Ipv4Addr,
    transport: Transport,
    streams: u16,
    association: Option<AssociationId>,
    up: bool,
    gtp: UdpSocket,
    reconnect: Instant,
    alter: Option<u64>,
    lose: bool,
    twice: bool,
    hold: bool,
    held: Option<(u16, Vec<u8>)>,
    alter_gtpu: Option<u64>,
    /// Names of UEs as they stood in messages of the core: element values.
    ids: VecDeque<(Vec<u8>, Vec<u8>)>,
}

/// gNBs and UEs.
pub(crate) struct Radio {
    which: u8,
    subscriptions: Vec<ProvisionedUe>,
    clock: Clock,
    cells: Cells,
    sites: Vec<Site>,
    names: Names,
    sent: VecDeque<(u16, Vec<u8>)>,
    tunnels: VecDeque<[u8; 4]>,
    out: Outbox<Output>,
    events: Events,
    buffer: Vec<u8>,
    /// Pairs of a UE's state and a message sent in its name.
    pub(crate) pairs: BTreeSet<(u8, u8, u8)>,
    /// UEs were moved so often: the next goes to the gNB after that of the last.
    moves: u16,
    /// The core's last message to any UE.
    last: u8,
    pub(crate) messages: u64,
}

impl Radio {
    /// gNBs of their own addresses and names (`which` distinguishes several radios), and UEs of these subscriptions.
    ///
    /// Errors: a socket that cannot be had.
    pub(crate) fn open(which: u8, ues: &[ProvisionedUe], canaries: &[ProvisionedUe]) -> Result<Self, String> {
        let clock = Clock::default();
        let cells = cells(which, ues);
        let sites = (0..GNBS).map(|n| Site::open(address(which, n), clock.now()));
        let sites = sites.collect::<Result<Vec<_>, _>>()?;
        let msin = |s: &ProvisionedUe| {
            let digits: Vec<u8> = s.supi.digits().skip(5).collect();
            let mut bcd = [0xff; 5];
            for (octet, pair) in bcd.iter_mut().zip(digits.chunks(2)) {
                *octet = pair.first().copied().unwrap_or(0xf) | pair.get(1).copied().unwrap_or(0xf) << 4;
            }
            bcd
        };
        let names = Names { tmsis: vec![], msins: ues.iter().chain(canaries).map(msin).collect() };
        let mut radio = Self {
            which,
            subscriptions: ues.to_vec(),
            clock,
            cells,
            sites,
            names,
            sent: VecDeque::new(),
            tunnels: VecDeque::new(),
            out: Outbox::new(),
            events: Events::default(),
            buffer: vec![0; 70_000],
            pairs: BTreeSet::new(),
            moves: 0,
            last: 0,
            messages: 0,
        };
        radio.begin();
        Ok(radio)
    }

    /// Waits until the gNBs have set up.
    fn begin(&mut self) {
        let begin = self.clock.now();
        while !self.cells.all_up() && self.clock.now().since(begin) < Duration::from_secs(5) {
            self.pump(Duration::from_millis(20));
        }
    }

    /// New gNBs and UEs of the same names, on new associations: what the core holds of the former is the core's to clear up.
    fn renew(&mut self, now: Instant) {
        for gnb in 0..GNBS {
            self.restart(now, gnb, gnb % 2 == 0);
        }
        self.out = Outbox::new();
        self.cells = cells(self.which, &self.subscriptions);
        for site in &mut self.sites {
            (site.alter, site.alter_gtpu, site.held) = (None, None, None);
            (site.lose, site.twice, site.hold) = (false, false, false);
        }
        self.begin();
    }

    fn site(&mut self, gnb: u8) -> Option<&mut Site> {
        let n = usize::from(gnb) % self.sites.len().max(1);
        self.sites.get_mut(n)
    }

    fn command(&mut self, ue: u16, command: UeCommand) {
        let now = self.clock.now();
        self.cells.handle(now, Input::Command(UeId(ue.into()), command), &mut self.out);
    }

    /// Does one thing, and waits for what it brings.
    pub(crate) fn perform(&mut self, op: &Op) {
        let now = self.clock.now();
        match *op {
            Op::Ue { ue, act } => self.act(now, ue, act),
            Op::AlterNas { ue, seed } => {
                if let Some(ue) = self.cells.ue_mut(UeId(ue.into())) {
                    let alter = move |m: &mut Vec<u8>| mutate::octets(&mut Rng::new(seed), m);
                    ue.faults_mut().alter = Some(Alter(Arc::new(alter)));
                }
            }
            Op::SayNas { ue, seed } => {
                let plain = nas::message(&mut Rng::new(seed), &self.names);
                let state = self.cells.ue(UeId(ue.into())).map_or(0, |ue| {
                    ue.state() as u8 * 4
                        + u8::from(ue.is_connected()) * 2
                        + u8::from(ue.sessions().next().is_some())
                });
                self.pairs.insert((state, self.last, plain.get(2).copied().unwrap_or(0)));
                self.command(ue, UeCommand::Say(plain));
            }
            Op::AlterNgap { gnb, seed } => self.with(gnb, |s| s.alter = Some(seed)),
            Op::Lose { gnb } => self.with(gnb, |s| s.lose = true),
            Op::Twice { gnb } => self.with(gnb, |s| s.twice = true),
            Op::Hold { gnb } => self.with(gnb, |s| s.hold = true),
            Op::Ngap { gnb, seed } => self.ngap(gnb, &mut Rng::new(seed)),
            Op::Handover { gnb, seed } => self.handover(gnb, &mut Rng::new(seed)),
            Op::Renew => self.renew(now),
            Op::UnknownUe { gnb, seed } => self.unknown_ue(gnb, &mut Rng::new(seed)),
            Op::Again { gnb, seed } => {
                let n = Rng::new(seed).below(self.sent.len());
                if let Some((stream, octets)) = self.sent.get(n).cloned() {
                    self.emit(gnb, stream, &octets);
                }
            }
            Op::Transport { gnb, seed } => self.transport(gnb, &mut Rng::new(seed)),
            Op::Restart { gnb, gracefully } => self.restart(now, gnb, gracefully),
            Op::AlterGtpu { gnb, seed } => self.with(gnb, |s| s.alter_gtpu = Some(seed)),
            Op::Gtpu { gnb, seed } => self.gtpu(gnb, &mut Rng::new(seed)),
            Op::Downlink { seed } => self.downlink(&mut Rng::new(seed)),
            Op::Pause { ms } => self.pump_for(Duration::from_millis(ms.into())),
            Op::Sctp { .. }
            | Op::Pfcp { .. }
            | Op::Http { .. }
            | Op::Console { .. }
            | Op::Unit { .. }
            | Op::Broker { .. } => {}
        }
        self.pump(Duration::from_millis(2));
    }

    fn with(&mut self, gnb: u8, f: impl FnOnce(&mut Site)) {
        if let Some(site) = self.site(gnb) {
            f(site);
        }
    }

    fn act(&mut self, now: Instant, ue: u16, act: Act) {
        let id = UeId(ue.into());
        let session = self.cells.ue(id).and_then(|ue| ue.sessions().last().map(|s| s.id));
        let command = match act {
            Act::Register => UeCommand::Register,
            Act::Periodic => UeCommand::PeriodicRegistration,
            Act::Session => {
                let kinds = [
                    whimbrel_nas::ie::PduSessionType::Ipv4,
                    whimbrel_nas::ie::PduSessionType::Ipv6,
                    whimbrel_nas::ie::PduSessionType::Ipv4v6,
                ];
                let pdu_session_type = kinds[usize::from(ue) % 3];
                UeCommand::EstablishSession(SessionRequest { dnn: None, s_nssai: None, pdu_session_type })
            }
            Act::ReleaseSession => match session {
                Some(id) => UeCommand::ReleaseSession(id),
                None => return,
            },
            Act::Service => UeCommand::ServiceRequest,
            Act::Deregister => UeCommand::Deregister { switch_off: false },
            Act::SwitchOff => UeCommand::Deregister { switch_off: true },
            Act::Idle => {
                let cause = Cause::RadioNetwork(CauseRadioNetwork::UserInactivity);
                return self.cells.handle(now, Input::Release(id, cause), &mut self.out);
            }
            Act::XnHandover | Act::N2Handover | Act::Camp => {
                self.moves = self.moves.wrapping_add(1);
                let to = GnbId(self.moves % u16::from(GNBS));
                let input = match act {
                    Act::XnHandover => Input::HandOver(id, to, Via::Xn),
                    Act::N2Handover => Input::HandOver(id, to, Via::N2),
                    _ => Input::Camp(id, to),
                };
                return self.cells.handle(now, input, &mut self.out);
            }
            Act::Ping => {
                return self.cells.handle(
                    now,
                    Input::Task(id, Task::Ping { to: GATEWAY.into() }),
                    &mut self.out,
                );
            }
        };
        self.command(ue, command);
        self.names.tmsis.extend(self.cells.ue(id).and_then(|ue| ue.s_tmsi()).map(|t| {
            let head = t.set << 6 | u16::from(t.pointer);
            let (h, t) = (head.to_be_bytes(), t.tmsi.0.to_be_bytes());
            [h[0], h[1], t[0], t[1], t[2], t[3]]
        }));
        self.forget();
    }

    fn forget(&mut self) {
        let more = self.names.tmsis.len().saturating_sub(KEPT_MAX);
        self.names.tmsis.drain(..more);
        self.tunnels.truncate(KEPT_MAX);
        self.sent.truncate(KEPT_MAX);
    }

    /// Names for a message: of this gNB, of another, mixed, near, or unknown.
    fn ids(&self, gnb: u8, rng: &mut Rng) -> (Vec<u8>, Vec<u8>) {
        let n = self.sites.len().max(1);
        let own = self.sites.get(usize::from(gnb) % n);
        let other = self.sites.get((usize::from(gnb) + 1) % n);
        let of = |site: Option<&Site>, rng: &mut Rng| {
            site.and_then(|s| s.ids.get(rng.below(s.ids.len())).cloned())
        };
        let unknown = |rng: &mut Rng| {
            let amf = AmfUeNgapId::new(rng.number() >> (24 + rng.below(38)))
                .unwrap_or_else(|| AmfUeNgapId::new(AmfUeNgapId::MAX).expect("the largest is one"));
            values(amf, RanUeNgapId(rng.number() as u32 >> rng.below(32)))
        };
        match rng.below(8) {
            0..=3 => of(own, rng),
            4 => of(other, rng),
            5 => of(own, rng).zip(of(other, rng)).map(|(a, b)| (a.0, b.1)),
            6 => of(own, rng).map(|(mut amf, ran)| {
                // Near: the identifiers just before and after.
                if let Some(last) = amf.last_mut() {
                    *last = last.wrapping_add([1, 2, 255, 16][rng.below(4)]);
                }
                (amf, ran)
            }),
            _ => None,
        }
        .unwrap_or_else(|| unknown(rng))
    }

    fn ngap(&mut self, gnb: u8, rng: &mut Rng) {
        let mut source = Source::new(rng.number());
        let mut octets = Vec::new();
        Message::sample(&mut source).encode(&mut octets);
        if let Some(mut pdu) = Pdu::parse(&octets) {
            let (amf, ran) = self.ids(gnb, rng);
            pdu.set(ID_AMF_UE_NGAP_ID, &amf);
            pdu.set(ID_SOURCE_AMF_UE_NGAP_ID, &amf);
            pdu.set(ID_RAN_UE_NGAP_ID, &ran);
            octets = pdu.to_octets();
        }
        if rng.once_in(2) {
            mutate::ngap(rng, &mut octets);
        }
        self.emit(gnb, rng.below(8) as u16, &octets);
    }

    /// A message of a handover, mostly as it should be, for whatever state the UE is in.
    fn handover(&mut self, gnb: u8, rng: &mut Rng) {
        let target = rng.below(usize::from(GNBS)) as u8;
        let neighbour = self.cells.gnb(GnbId(target.into())).map(|g| g.config().id);
        let Some(neighbour) = neighbour else { return };
        let near = self.ids(gnb, rng).1.last().copied().unwrap_or(1);
        let octets = handover::message(rng, neighbour, near);
        let Some(mut pdu) = Pdu::parse(&octets) else { return };
        let (amf, ran) = self.ids(gnb, rng);
        pdu.set(ID_AMF_UE_NGAP_ID, &amf);
        pdu.set(ID_SOURCE_AMF_UE_NGAP_ID, &amf);
        if !handover::has_new_id(&pdu) || rng.once_in(4) {
            pdu.set(ID_RAN_UE_NGAP_ID, &ran);
        }
        let mut octets = pdu.to_octets();
        if rng.once_in(3) {
            mutate::ngap(rng, &mut octets);
        }
        self.emit(gnb, 1 + rng.below(4) as u16, &octets);
    }

    fn unknown_ue(&mut self, gnb: u8, rng: &mut Rng) {
        let mut nas = match rng.below(6) {
            0 => {
                let n = rng.below(8);
                rng.octets(n)
            }
            1 => vec![0x7e, 0x02, 0x5f, 0x74],
            2 => {
                // As if protected, under a MAC and a COUNT made up.
                let inner = nas::valid(rng, &self.names);
                let mac = rng.octets(5);
                [&[0x7e, 1 + rng.below(4) as u8][..], &mac, &inner].concat()
            }
            _ => nas::message(rng, &self.names),
        };
        if rng.once_in(40) {
            nas.resize(8000, 0);
        }
        let ran = match rng.below(3) {
            0 => RanUeNgapId(rng.below(24) as u32),
            _ => RanUeNgapId(0x4000_0000 | rng.number() as u32),
        };
        let Some(location) = self.cells.gnb(GnbId(gnb.into())).map(|g| g.config().tai()) else { return };
        let cell =
            whimbrel_ngap::NrCgi::new(PlmnId::TEST, whimbrel_ids::NrCellId::new(1).expect("36 bits hold 1"));
        let location = whimbrel_ngap::UserLocationInformationNr::new(cell, location);
        let location = whimbrel_ngap::UserLocationInformation::UserLocationInformationNr(location);
        let cause = whimbrel_ngap::RrcEstablishmentCause::MoSignalling;
        let mut m = whimbrel_ngap::InitialUeMessage::new(ran, nas, location, cause);
        m.ue_context_request = Some(whimbrel_ngap::UeContextRequest::Requested);
        if rng.once_in(2)
            && let Some(t) = self.names.tmsis.get(rng.below(self.names.tmsis.len()))
        {
            let head = u16::from_be_bytes([t[0], t[1]]);
            m.five_g_s_tmsi = Some(whimbrel_ids::STmsi {
                set: head >> 6,
                pointer: (head & 0x3f) as u8,
                tmsi: whimbrel_ids::Tmsi(u32::from_be_bytes([t[2], t[3], t[4], t[5]])),
            });
        }
        let mut octets = Vec::new();
        Message::from(m).encode(&mut octets);
        if rng.once_in(4) {
            mutate::ngap(rng, &mut octets);
        }
        self.emit(gnb, 1 + rng.below(4) as u16, &octets);
    }

    /// Sends something on a stream under a payload protocol, and lets the core answer now and then.
    pub(crate) fn raw(&mut self, gnb: u8, stream: u16, ppid: u32, octets: &[u8]) {
        self.messages += 1;
        for _ in 0..200 {
            let Some(site) = self.site(gnb) else { return };
            let Some(association) = site.association.filter(|_| site.up) else { return };
            if site.transport.send(association, stream, ppid, octets).is_ok() {
                return;
            }
            self.pump(Duration::from_millis(2)); // no room: what was sent goes first
        }
    }

    /// Sends one message over and over: as many as fit go out in one packet.
    pub(crate) fn flood(&mut self, times: usize, octets: &[u8]) {
        for n in 0..times {
            self.raw(1, 0, whimbrel_ngap::PPID, octets);
            if n % 500 == 0 {
                self.pump(Duration::from_millis(1));
            }
        }
        self.pump_for(Duration::from_millis(200));
    }

    /// A gNB sets up with so many streams, and its UEs use the core.
    pub(crate) fn with_streams(&mut self, streams: u16) {
        let now = self.clock.now();
        for gnb in 0..GNBS {
            self.restart(now, gnb, true);
            self.with(gnb, |s| s.streams = streams);
        }
        self.reopen();
        for act in [
            Act::Register,
            Act::Session,
            Act::Ping,
            Act::Idle,
            Act::Service,
            Act::XnHandover,
            Act::N2Handover,
        ] {
            (0..UES).for_each(|ue| self.perform(&Op::Ue { ue, act }));
            self.pump_for(Duration::from_millis(100));
        }
        for gnb in 0..GNBS {
            self.restart(now, gnb, false);
            self.with(gnb, |s| s.streams = STREAMS);
        }
        self.reopen();
    }

    /// Reopens the gNBs' endpoints.
    fn reopen(&mut self) {
        self.pump_for(Duration::from_millis(100));
        let now = self.clock.now();
        for site in &mut self.sites {
            // One that cannot be had stays as it was.
            if let Ok(transport) = transport(site.address, site.streams, now) {
                (site.transport, site.association, site.up) = (transport, None, false);
            }
        }
        self.begin();
    }

    /// Associations that come and go, with and without a set-up.
    pub(crate) fn come_and_go(&mut self, times: usize, gracefully: bool) {
        for n in 0..times {
            let now = self.clock.now();
            let gnb = (n % usize::from(GNBS)) as u8;
            self.restart(now, gnb, gracefully);
            self.with(gnb, |s| s.reconnect = now);
            self.pump(Duration::from_millis(1 + n as u64 % 4));
        }
        self.pump_for(Duration::from_millis(200));
    }

    /// A gNB starts a number of UEs, and then reads no more messages of the core.
    pub(crate) fn deaf(&mut self, ues: u32) {
        let mut thrown_away = Events::default();
        for n in 0..ues {
            let octets = unknown_ue(0x2000_0000 + n);
            for _ in 0..50 {
                let now = self.clock.now();
                let Some(site) = self.site(2) else { return };
                let Some(association) = site.association.filter(|_| site.up) else { return };
                if site.transport.send(association, 1, whimbrel_ngap::PPID, &octets).is_ok() {
                    site.transport.flush(now);
                    break;
                }
                // Its own messages need their acknowledgements.
                site.transport.drain(now, &mut thrown_away);
                site.transport.flush(now);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // What is repeated to the UEs fills the send queue; then the core has patience for a while (docs/limits.md).
        std::thread::sleep(Duration::from_secs(18));
    }

    fn transport(&mut self, gnb: u8, rng: &mut Rng) {
        let mut sample = Vec::new();
        Message::sample(&mut Source::new(rng.number())).encode(&mut sample);
        let now = self.clock.now();
        let Some(site) = self.site(gnb) else { return };
        let Some(association) = site.association.filter(|_| site.up) else { return };
        let mut send =
            |stream, ppid, octets: &[u8]| _ = site.transport.send(association, stream, ppid, octets);
        match rng.below(6) {
            0 => send(0, rng.number() as u32, &sample),
            1 => send(rng.below(32) as u16, whimbrel_ngap::PPID, &sample),
            2 => (0..50).for_each(|_| send(0, whimbrel_ngap::PPID, &[0])),
            3 => {
                let n = 32_000 + rng.below(40_000);
                send(1, whimbrel_ngap::PPID, &rng.octets(n));
            }
            4 => (0..200).for_each(|_| send(1, whimbrel_ngap::PPID, &sample)),
            _ => {
                let n = 1 + rng.below(40);
                send(0, whimbrel_ngap::PPID, &rng.octets(n));
            }
        }
        site.transport.flush(now);
    }

    fn restart(&mut self, now: Instant, gnb: u8, gracefully: bool) {
        let Some(site) = self.site(gnb) else { return };
        let Some(association) = site.association.take() else { return };
        site.up = false;
        match gracefully {
            true => site.transport.shutdown(now, association),
            false => site.transport.abort(now, association),
        }
        site.ids.clear();
        site.reconnect = now + RECONNECT;
        let id = GnbId(u16::from(gnb) % u16::from(GNBS));
        self.cells.handle(now, Input::AssociationDown(id), &mut self.out);
    }

    fn gtpu(&mut self, gnb: u8, rng: &mut Rng) {
        let teid = match self.tunnels.get(rng.below(self.tunnels.len())).filter(|_| !rng.once_in(5)) {
            Some(teid) => *teid,
            None => (rng.number() as u32 >> rng.below(32)).to_be_bytes(),
        };
        let inner = inner(rng);
        let mut m = match rng.below(10) {
            0 => vec![0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0],
            1 => {
                // An error indication for a tunnel, here of a canary's gNB: small numbers are likely ones.
                let of: [u8; 4] = if rng.once_in(2) { teid } else { (rng.below(20) as u32).to_be_bytes() };
                let peer = [127, [0, 1, 2][rng.below(3)], [0, 1, 2][rng.below(3)], 1 + rng.below(5) as u8];
                [&[0x32, 26, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 16][..], &of, &[133, 0, 4], &peer].concat()
            }
            2 => [&[0x30, 254, 0, 0][..], &teid].concat(),
            3 => {
                let kind = rng.number() as u8;
                [&[0x30, kind, 0, inner.len() as u8][..], &teid, &inner].concat()
            }
            4 => {
                // Extension headers, one after the other, perhaps without end or of no length.
                let chain: Vec<u8> =
                    (0..rng.below(30)).flat_map(|_| [[0, 1, 1, 1][rng.below(4)], 0x10, 9, 0x85]).collect();
                let n = (4 + chain.len() + inner.len()) as u16;
                [&[0x34, 255][..], &n.to_be_bytes(), &teid, &[0, 0, 0, 0x85], &chain, &inner].concat()
            }
            _ => {
                let n = (8 + inner.len()) as u16;
                let qfi = if rng.once_in(3) { rng.number() as u8 } else { 1 };
                let head =
                    [&[0x34, 255][..], &n.to_be_bytes(), &teid, &[0, 0, 0, 0x85, 1, 0x10, qfi, 0]].concat();
                [head, inner].concat()
            }
        };
        if rng.once_in(2) {
            mutate::octets(rng, &mut m);
        }
        let times = if rng.once_in(30) { 300 } else { 1 };
        let Some(site) = self.site(gnb) else { return };
        (0..times).for_each(|_| drop(site.gtp.send_to(&m, (CORE, 2152))));
    }

    fn downlink(&mut self, rng: &mut Rng) {
        let to =
            Ipv4Addr::new(10, 45, if rng.once_in(8) { rng.number() as u8 } else { 0 }, rng.number() as u8);
        if to == GATEWAY {
            return;
        }
        let n = [0, 1, 64, 1372, 1373, 9000][rng.below(6)];
        let burst = if rng.once_in(8) { 200 } else { 3 };
        if let Ok(socket) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) {
            let packet = rng.octets(n);
            (0..burst).for_each(|_| drop(socket.send_to(&packet, (to, 9))));
        }
    }

    /// Sends a message of a gNB as it is.
    fn emit(&mut self, gnb: u8, stream: u16, octets: &[u8]) {
        self.messages += 1;
        if let Some(site) = self.site(gnb) {
            site.emit(stream, octets);
        }
    }

    /// Works until nothing has come for so long.
    pub(crate) fn pump(&mut self, quiet: Duration) {
        /// However much comes: the next thing has its turn.
        const MOST: Duration = Duration::from_millis(60);
        let begin = self.clock.now();
        let mut last = begin;
        loop {
            let now = self.clock.now();
            if self.turn(now) {
                last = now;
            }
            if now.since(last) >= quiet || now.since(begin) >= MOST {
                return;
            }
            self.sleep(quiet);
        }
    }

    /// Works for so long.
    fn pump_for(&mut self, time: Duration) {
        let begin = self.clock.now();
        while self.clock.now().since(begin) < time {
            self.pump(Duration::from_millis(10));
        }
    }

    fn sleep(&self, most: Duration) {
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        for site in &self.sites {
            fds.extend(
                site.transport.fds().into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            );
            fds.push(PollFd::from_borrowed_fd(site.gtp.as_fd(), PollFlags::IN));
        }
        let timeout = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
        let _ = poll(&mut fds, Some(&timeout));
    }

    fn turn(&mut self, now: Instant) -> bool {
        let mut worked = false;
        for i in 0..self.sites.len() {
            worked |= self.take(now, i);
        }
        if self.cells.next_deadline().is_some_and(|at| at <= now) {
            self.cells.handle(now, Input::Tick, &mut self.out);
        }
        worked |= !self.out.is_empty();
        self.send();
        for site in &mut self.sites {
            site.transport.flush(now);
        }
        worked
    }

    fn take(&mut self, now: Instant, i: usize) -> bool {
        let Some(site) = self.sites.get_mut(i) else { return false };
        let gnb = GnbId(i as u16);
        let mut events = std::mem::take(&mut self.events);
        site.transport.drain(now, &mut events);
        let mut worked = !events.is_empty();
        for event in events.iter() {
            match event {
                Event::Up { outbound_streams, .. } | Event::Restarted { outbound_streams, .. } => {
                    site.up = true;
                    self.cells.handle(
                        now,
                        Input::AssociationUp(gnb, outbound_streams, TransferSyntax::Per),
                        &mut self.out,
                    );
                }
                Event::Data { stream, octets, .. } => {
                    if let Some(pdu) = Pdu::parse(octets) {
                        learn(&pdu, site, &mut self.names, &mut self.last);
                    }
                    self.cells.handle(now, Input::Ngap { gnb, stream, octets }, &mut self.out);
                }
                Event::Down { .. } => {
                    (site.association, site.up) = (None, false);
                    site.ids.clear();
                    site.reconnect = now + RECONNECT;
                    self.cells.handle(now, Input::AssociationDown(gnb), &mut self.out);
                }
                _ => {}
            }
        }
        self.events = events;
        for _ in 0..64 {
            let Ok((n, from)) = site.gtp.recv_from(&mut self.buffer) else { break };
            worked = true;
            let datagram = self.buffer.get(..n).unwrap_or_default();
            let source = (from.ip(), from.port());
            self.cells.handle(now, Input::Gtpu { gnb, source, datagram }, &mut self.out);
        }
        if site.association.is_none() && site.reconnect <= now {
            site.association = site.transport.connect(now, &[CORE.into()], 38412, 9899).ok();
            site.reconnect = now + RECONNECT;
        }
        worked
    }

    fn send(&mut self) {
        let mut out = std::mem::take(&mut self.out);
        for output in out.drain() {
            match output {
                Output::Ngap { gnb, stream, octets } => {
                    self.messages += 1;
                    self.sent.push_front((stream, octets.clone()));
                    if let Some(site) = self.sites.get_mut(usize::from(gnb.0)) {
                        site.pass(stream, octets);
                    }
                }
                Output::Gtpu { gnb, to, mut datagram } => {
                    if let Some(teid) = datagram.get(4..).and_then(|d| d.first_chunk::<4>()) {
                        self.tunnels.push_front(*teid);
                    }
                    let Some(site) = self.sites.get_mut(usize::from(gnb.0)) else { continue };
                    if let Some(seed) = site.alter_gtpu.take() {
                        mutate::octets(&mut Rng::new(seed), &mut datagram);
                    }
                    let _ = site.gtp.send_to(&datagram, SocketAddr::new(to.0, to.1));
                }
                _ => {}
            }
        }
        self.out = out;
        self.forget();
    }

    /// Everybody leaves: UEs are switched off, then the gNBs go.
    pub(crate) fn leave(&mut self) {
        for ue in 0..self.cells.ues() as u16 {
            self.command(ue, UeCommand::Deregister { switch_off: true });
            self.pump(Duration::from_millis(2));
        }
        for gnb in 0..GNBS {
            let now = self.clock.now();
            self.restart(now, gnb, true);
            if let Some(site) = self.site(gnb) {
                site.reconnect = Instant::FAR_FUTURE;
            }
        }
        self.pump_for(Duration::from_millis(500));
    }
}

/// The names of a UE as element values.
fn values(amf: AmfUeNgapId, ran: RanUeNgapId) -> (Vec<u8>, Vec<u8>) {
    let mut octets = Vec::new();
    Message::from(UplinkNasTransport::new(amf, ran, vec![])).encode(&mut octets);
    let pdu = Pdu::parse(&octets);
    let value = |id| pdu.as_ref().and_then(|p| p.value(id)).unwrap_or_default().to_vec();
    (value(ID_AMF_UE_NGAP_ID), value(ID_RAN_UE_NGAP_ID))
}

/// Learns the identifiers in a message of the core.
fn learn(pdu: &Pdu, site: &mut Site, names: &mut Names, last: &mut u8) {
    if let (Some(amf), Some(ran)) = (pdu.value(ID_AMF_UE_NGAP_ID), pdu.value(ID_RAN_UE_NGAP_ID)) {
        let pair = (amf.to_vec(), ran.to_vec());
        if !site.ids.contains(&pair) {
            site.ids.push_front(pair);
            site.ids.truncate(KEPT_MAX);
        }
        *last = pdu.value(ID_NAS_PDU).and_then(|nas| nas.get(3)).copied().unwrap_or(pdu.head[1]);
    }
    // PAGING names UEs to every gNB of their area, canaries too.
    if let Some(t) = pdu.value(ID_UE_PAGING_IDENTITY).and_then(|v| v.last_chunk::<6>())
        && !names.tmsis.contains(t)
    {
        names.tmsis.push(*t);
    }
}

impl Site {
    fn open(address: Ipv4Addr, now: Instant) -> Result<Self, String> {
        let cannot = |what: &str, e: &dyn std::fmt::Display| format!("{what} at {address}: {e}");
        let transport = transport(address, STREAMS, now).map_err(|e| cannot("SCTP", &e))?;
        let gtp = UdpSocket::bind((address, 2152)).map_err(|e| cannot("GTP-U", &e))?;
        gtp.set_nonblocking(true).map_err(|e| cannot("GTP-U", &e))?;
        Ok(Self {
            address,
            transport,
            streams: STREAMS,
            association: None,
            up: false,
            gtp,
            reconnect: now,
            alter: None,
            lose: false,
            twice: false,
            hold: false,
            held: None,
            alter_gtpu: None,
            ids: VecDeque::new(),
        })
    }

    /// Sends what a gNB wants sent, with what is to be done to it.
    fn pass(&mut self, stream: u16, mut octets: Vec<u8>) {
        if std::mem::take(&mut self.lose) {
            return;
        }
        if let Some(seed) = self.alter.take() {
            mutate::ngap(&mut Rng::new(seed), &mut octets);
        }
        if std::mem::take(&mut self.hold) {
            self.held = Some((stream, octets));
            return;
        }
        self.emit(stream, &octets);
        if std::mem::take(&mut self.twice) {
            self.emit(stream, &octets);
        }
        if let Some((stream, octets)) = self.held.take() {
            self.emit(stream, &octets);
        }
    }

    fn emit(&mut self, stream: u16, octets: &[u8]) {
        if let Some(association) = self.association.filter(|_| self.up && !octets.is_empty()) {
            // A message for which there is no room is lost, as on any network.
            let _ = self.transport.send(association, stream, whimbrel_ngap::PPID, octets);
        }
    }
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "gNB at {}", self.address)
    }
}

/// A packet within a tunnel: a ping, UDP, IPv6, or something else.
fn inner(rng: &mut Rng) -> Vec<u8> {
    let source = Ipv4Addr::new(10, 45, 0, 1 + rng.below(40) as u8).octets();
    let to = if rng.once_in(2) { GATEWAY } else { Ipv4Addr::new(10, 45, 0, rng.number() as u8) }.octets();
    match rng.below(6) {
        0 => {
            let n = [0, 1, 19, 1400, 1500][rng.below(5)];
            rng.octets(n)
        }
        1 => {
            let mut p = vec![0x60, 0, 0, 0, 0, 8, 58, 255];
            p.extend_from_slice(&rng.octets(32));
            p.extend_from_slice(&[133, 0, 0, 0, 0, 0, 0, 0]);
            p
        }
        _ => {
            let n = [0, 8, 100, 1372, 4000][rng.below(5)];
            let total = (20 + n) as u16;
            let mut p = vec![0x45, 0];
            p.extend_from_slice(&total.to_be_bytes());
            p.extend_from_slice(&[0, 1, 0, 0, 64, [1, 17, 6, 0][rng.below(4)], 0, 0]);
            p.extend_from_slice(&source);
            p.extend_from_slice(&to);
            p.extend_from_slice(&rng.octets(n));
            p
        }
    }
}
