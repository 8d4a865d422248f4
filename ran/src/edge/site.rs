//! The sockets of one gNB, and its associations with the AMF.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_ngap::{TransferSyntax, fast, to_per};
use whimbrel_sctp_io::{AssociationId, Config, RequestRefusal, Transport, TransportSettings};

use super::runner::{GnbPlace, RunError, RunnerConfig};
use crate::cells::{GnbId, Input};
use crate::gnb::{AmfIndex, AmfInput};

/// First SCTP port of gNBs; one each, so that they may share an address. Outside Linux's ephemeral range (32768 to
/// 60999).
const SCTP_PORTS_FROM: u16 = 61_000;
/// Streams that a gNB requests: stream 0, and the core's default number of further ones.
const STREAMS: u16 = 32;
/// Receive buffer: one second of voice of a thousand UEs.
const RECEIVE_BUFFER_OCTETS: usize = 16 << 20;
/// How long a gNB waits before it connects again: at first, then twice as long each time, up to the longer time. An AMF that restarts is back within
/// tenths of a second.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How long one of several endpoints may take to answer before the next is tried.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an endpoint that has served may take at first to answer again: INIT would be repeated after a second (RFC 9260 §16, RTO.Initial).
const PATIENCE_AT_FIRST: Duration = Duration::from_millis(40);
/// With several AMFs, a dead one is given up after at most about 5 s, since its UEs are served by another one then: a HEARTBEAT each second, and three
/// repetitions at most. An AMF that hangs for less keeps its association.
const AMF_HEARTBEAT: Duration = Duration::from_secs(1);
const AMF_RTO_MAX: Duration = Duration::from_secs(1);
const AMF_RETRANSMISSIONS: u32 = 4;
/// Endpoints that a gNB stores (maxnoofTNLAssociations, TS 38.413 §9.2.6.7).
const ENDPOINTS_MAX: usize = 32;

/// Which of a gNB's associations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AssociationRole {
    /// The serving one.
    Serving,
    /// The further one (TS 38.412 §7).
    Further,
    /// The one with this AMF, at a gNB that selects among several.
    Amf(AmfIndex),
}

impl AssociationRole {
    /// The RAN's input for a message that came over it.
    pub(super) fn received(self, gnb: GnbId, stream: u16, octets: &[u8]) -> Input<'_> {
        match self {
            Self::Serving => Input::Ngap { gnb, stream, octets },
            Self::Further => Input::FurtherNgap { gnb, stream, octets },
            Self::Amf(amf) => Input::Amf(gnb, amf, AmfInput::Ngap { stream, octets }),
        }
    }
}

/// The association of a gNB with one of several AMFs.
#[derive(Clone, Copy, Debug)]
struct AmfLine {
    address: IpAddr,
    association: Option<AssociationId>,
    /// When to connect again.
    reconnect: Instant,
    /// Attempts since it was up.
    attempts: u32,
}

impl AmfLine {
    fn is(&self, association: AssociationId) -> bool {
        self.association == Some(association)
    }
}

/// An association that is up or being set up.
#[derive(Clone, Copy, Debug)]
struct SiteAssociation {
    association: AssociationId,
    /// Index of the AMF's endpoint.
    endpoint: usize,
    since: Instant,
    up: bool,
    /// The agreed parameters.
    syntax: TransferSyntax,
}

/// The sockets of one gNB.
pub(super) struct Site {
    pub(super) transport: Transport,
    pub(super) gtp: UdpSocket,
    /// The gNB offers fastwire.
    fastwire: bool,
    /// The AMF's endpoints, each with its addresses: the configured one, and those that the AMF has announced.
    endpoints: Vec<Vec<IpAddr>>,
    /// Their SCTP port, and their UDP port of SCTP encapsulation.
    ports: (u16, u16),
    /// The associations with the AMFs, if the gNB selects among several; those below are not used then.
    amfs: Vec<AmfLine>,
    serving: Option<SiteAssociation>,
    further: Option<SiteAssociation>,
    /// The endpoint that the AMF has announced for a further association.
    announced: Option<usize>,
    /// The endpoint that is tried next.
    next: usize,
    /// When to connect again, the serving and the further association.
    reconnect: (Instant, Instant),
    /// Attempts to set up the serving association since one was up; `None`: none has been up yet.
    attempts: Option<u32>,
    /// While the serving association is being shut down: the messages to be sent after it has ended.
    leaving: Option<Vec<(u16, Vec<u8>)>>,
    /// Messages that were unacknowledged when the serving association ended.
    unacknowledged: Vec<(u16, Vec<u8>)>,
    /// Messages wait in the transport.
    pub(super) unflushed: bool,
}

impl Site {
    pub(super) fn open(
        config: &RunnerConfig,
        place: &GnbPlace,
        index: u16,
        now: Instant,
    ) -> Result<Self, RunError> {
        let mut endpoint = Config::new(SCTP_PORTS_FROM.saturating_add(index));
        endpoint.local_addresses = vec![place.address];
        endpoint.accept_inbound = false;
        endpoint.outbound_streams = STREAMS;
        endpoint.return_unacknowledged = true;
        if place.amfs.len() > 1 {
            (endpoint.heartbeat_interval, endpoint.rto_max) = (AMF_HEARTBEAT, AMF_RTO_MAX);
            endpoint.association_max_retrans = AMF_RETRANSMISSIONS;
            endpoint.init_max_retrans = AMF_RETRANSMISSIONS;
        }
        endpoint.adaptation = place.config.fastwire.then_some(fast::DIGEST);
        let mut settings = TransportSettings::new(endpoint);
        settings.mode = config.sctp;
        settings.udp_port = config.sctp_udp_ports.0;
        let transport =
            Transport::open(&settings, secret().map_err(RunError::Random)?, now).map_err(RunError::Sctp)?;
        let address = SocketAddr::new(place.config.gtp_address, whimbrel_gtpu::PORT);
        let failed = |e| RunError::Gtp(address, e);
        let gtp = UdpSocket::bind(address).map_err(failed)?;
        gtp.set_nonblocking(true).map_err(failed)?;
        let line =
            |address: &IpAddr| AmfLine { address: *address, association: None, reconnect: now, attempts: 0 };
        // Beyond the usual limit if the system allows it, so that a busy loop loses no packets.
        let _as_it_is = rustix::net::sockopt::set_socket_recv_buffer_size_force(&gtp, RECEIVE_BUFFER_OCTETS);
        Ok(Self {
            transport,
            gtp,
            fastwire: place.config.fastwire,
            endpoints: vec![place.amfs.first().map_or_else(|| config.amf.clone(), |amf| vec![*amf])],
            ports: (config.amf_port, config.sctp_udp_ports.1),
            amfs: if place.amfs.len() > 1 { place.amfs.iter().map(line).collect() } else { Vec::new() },
            serving: None,
            further: None,
            announced: None,
            next: 0,
            reconnect: (now, now),
            attempts: None,
            leaving: None,
            unacknowledged: Vec::new(),
            unflushed: false,
        })
    }

    /// The role of an association; none: it was abandoned.
    pub(super) fn role(&self, association: AssociationId) -> Option<AssociationRole> {
        let is = |line: Option<SiteAssociation>| line.is_some_and(|l| l.association == association);
        match (is(self.serving), is(self.further)) {
            (true, _) => Some(AssociationRole::Serving),
            (_, true) => Some(AssociationRole::Further),
            _ => {
                let amf = self.amfs.iter().position(|line| line.is(association))?;
                Some(AssociationRole::Amf(AmfIndex(amf as u8)))
            }
        }
    }

    /// An association is up, with the AMF's adaptation code point. Returns the agreed parameters.
    pub(super) fn up(&mut self, role: AssociationRole, adaptation: Option<u32>) -> TransferSyntax {
        let agreed = self.fastwire && adaptation == Some(fast::DIGEST);
        let syntax = if agreed { TransferSyntax::Fastwire } else { TransferSyntax::Per };
        let line = match role {
            AssociationRole::Serving => {
                self.attempts = Some(0);
                &mut self.serving
            }
            AssociationRole::Further => &mut self.further,
            AssociationRole::Amf(amf) => {
                self.amfs.get_mut(usize::from(amf.0)).into_iter().for_each(|line| line.attempts = 0);
                return TransferSyntax::Per;
            }
        };
        line.as_mut().into_iter().for_each(|l| (l.up, l.syntax) = (true, syntax));
        syntax
    }

    /// The serving association ends, with these unacknowledged messages.
    pub(super) fn keep(&mut self, stream: u16, octets: &[u8]) {
        self.unacknowledged.push((stream, octets.to_vec()));
    }

    /// The serving association is lost. The gNB continues over the further one, first with the unacknowledged messages (RFC 9260
    /// §11.1), or has to connect again.
    pub(super) fn serving_down(&mut self, now: Instant, goes_on: bool) {
        let lost = self.serving.take();
        let further = self.further.take();
        let lost_with_it = std::mem::take(&mut self.unacknowledged);
        let kept = self.leaving.take().unwrap_or_default();
        if goes_on && further.is_some() {
            self.serving = further;
            self.announced.take_if(|announced| further.is_some_and(|l| l.endpoint == *announced));
            for (stream, octets) in lost_with_it.iter().chain(&kept) {
                self.send(now, AssociationRole::Serving, *stream, octets);
            }
            return;
        }
        self.announced = None;
        if let Some(further) = further {
            self.transport.abort(now, further.association);
        }
        // An endpoint that served is tried again; for one that did not answer, the next is tried.
        if lost.is_some_and(|l| !l.up) {
            self.try_next();
        }
        self.reconnect.0 = now + self.pause();
    }

    /// The pause before the next attempt to set up the serving association.
    fn pause(&self) -> Duration {
        let (first, longest) = RECONNECT;
        self.attempts.map_or(longest, |n| first.saturating_mul(1 << n.min(16)).min(longest))
    }

    /// The further association is lost; it is set up again.
    pub(super) fn further_down(&mut self, now: Instant) {
        self.further = None;
        self.reconnect.1 = now + RECONNECT.1;
    }

    /// The association with one of several AMFs is lost, or could not be set up.
    pub(super) fn amf_down(&mut self, now: Instant, amf: AmfIndex) {
        let (first, longest) = RECONNECT;
        let Some(line) = self.amfs.get_mut(usize::from(amf.0)) else { return };
        line.association = None;
        line.reconnect = now + first.saturating_mul(1 << line.attempts.min(16)).min(longest);
        line.attempts = line.attempts.saturating_add(1);
    }

    /// Sets up missing associations with the AMFs when that is due.
    fn connect_amfs(&mut self, now: Instant) -> Result<(), RequestRefusal> {
        let (port, udp_port) = self.ports;
        for line in self.amfs.iter_mut().filter(|line| line.association.is_none() && line.reconnect <= now) {
            line.reconnect = now + RECONNECT.1;
            line.association = Some(self.transport.connect(now, &[line.address], port, udp_port)?);
        }
        Ok(())
    }

    /// The AMF has a further endpoint.
    pub(super) fn associate(&mut self, now: Instant, address: IpAddr) {
        let known = self.endpoints.iter().position(|e| e.contains(&address));
        let endpoint = known.unwrap_or(self.endpoints.len());
        if known.is_none() {
            if self.endpoints.len() >= ENDPOINTS_MAX {
                return;
            }
            self.endpoints.push(vec![address]);
        }
        if self.leaving.is_none() && self.serving.is_some_and(|l| l.endpoint == endpoint) {
            return;
        }
        let other = self.further.filter(|l| l.endpoint != endpoint && self.leaving.is_none());
        if let Some(other) = other {
            self.transport.abort(now, other.association);
        }
        self.announced = Some(endpoint);
        self.reconnect.1 = now;
    }

    /// The AMF's endpoint at this address was removed; its association may not end by itself.
    pub(super) fn dissociate(&mut self, now: Instant, address: IpAddr) {
        let Some(endpoint) = self.endpoints.iter().position(|e| e.contains(&address)) else { return };
        self.announced.take_if(|announced| *announced == endpoint);
        if let Some(further) = self.further.filter(|l| l.endpoint == endpoint) {
            self.transport.abort(now, further.association);
        }
        if let Some(serving) = self.serving.filter(|l| l.endpoint == endpoint) {
            self.leaving.get_or_insert_default();
            self.transport.abort(now, serving.association);
        }
    }

    /// The endpoint refused the gNB: tries another one.
    pub(super) fn refused(&mut self, now: Instant) {
        if self.endpoints.len() > 1
            && let Some(serving) = self.serving.as_mut()
        {
            serving.up = false;
            self.transport.abort(now, serving.association);
        }
    }

    fn try_next(&mut self) {
        self.next = (self.next + 1) % self.endpoints.len().max(1);
    }

    /// Sets up missing associations when that is due.
    ///
    /// Errors: the serving association cannot be started.
    pub(super) fn connect(&mut self, now: Instant) -> Result<(), RequestRefusal> {
        if !self.amfs.is_empty() {
            return self.connect_amfs(now);
        }
        if let Some(stuck) = self.serving.filter(|_| self.patience_ends().is_some_and(|at| at <= now)) {
            self.transport.abort(now, stuck.association);
        }
        if self.serving.is_none() && self.reconnect.0 <= now {
            self.attempts = self.attempts.map(|n| n.saturating_add(1));
            let tried = self.open_to(now, self.next);
            self.serving = tried.as_ref().ok().copied();
            if let Err(refusal) = tried {
                self.try_next();
                self.reconnect.0 = now + self.pause();
                return Err(refusal);
            }
        }
        if let Some(endpoint) = self.missing()
            && self.reconnect.1 <= now
        {
            self.reconnect.1 = now + RECONNECT.1;
            self.further = self.open_to(now, endpoint).ok();
        }
        Ok(())
    }

    /// Where the further association should be set up.
    fn missing(&self) -> Option<usize> {
        self.announced.filter(|_| self.further.is_none() && self.serving.is_some_and(|l| l.up))
    }

    /// When the next endpoint is tried instead of a silent one, or the same one again if it has served.
    fn patience_ends(&self) -> Option<Instant> {
        let waiting =
            self.serving.filter(|l| !l.up && (self.endpoints.len() > 1 || self.attempts.is_some()))?;
        let grown = |n: u32| PATIENCE_AT_FIRST.saturating_mul(1 << n.saturating_sub(1).min(16)).min(PATIENCE);
        Some(waiting.since + self.attempts.map_or(PATIENCE, grown))
    }

    fn open_to(&mut self, now: Instant, endpoint: usize) -> Result<SiteAssociation, RequestRefusal> {
        let addresses = self.endpoints.get(endpoint).map(Vec::as_slice).unwrap_or_default();
        let (port, udp_port) = self.ports;
        let association = self.transport.connect(now, addresses, port, udp_port)?;
        Ok(SiteAssociation { association, endpoint, since: now, up: false, syntax: TransferSyntax::Per })
    }

    /// The next deadline.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if !self.amfs.is_empty() {
            let missing =
                self.amfs.iter().filter(|line| line.association.is_none()).map(|line| line.reconnect);
            return missing.chain(self.transport.next_deadline()).min();
        }
        let serving = self.serving.is_none().then_some(self.reconnect.0);
        let further = self.missing().map(|_| self.reconnect.1);
        let all = [self.transport.next_deadline(), serving, further, self.patience_ends()];
        all.into_iter().flatten().min()
    }

    /// Sends an NGAP message, over the remaining association if the intended one is lost.
    pub(super) fn send(&mut self, now: Instant, role: AssociationRole, stream: u16, octets: &[u8]) {
        if let Some(kept) = &mut self.leaving {
            return kept.push((stream, octets.to_vec()));
        }
        let line = match role {
            AssociationRole::Serving => self.serving.map(|l| (l.association, l.syntax)),
            AssociationRole::Further => self.further.or(self.serving).map(|l| (l.association, l.syntax)),
            AssociationRole::Amf(amf) => {
                let line = self.amfs.get(usize::from(amf.0));
                line.and_then(|line| Some((line.association?, TransferSyntax::Per)))
            }
        };
        let Some((association, syntax)) = line else { return };
        // The gNB encodes for its first association.
        let per = if syntax == TransferSyntax::Per { to_per(octets) } else { None };
        let octets = per.as_deref().unwrap_or(octets);
        self.unflushed = true;
        if self.transport.send(association, stream, whimbrel_ngap::PPID, octets).is_err() {
            // The buffer is full: flushes it and tries once more; then the message is lost.
            self.transport.flush(now);
            let _lost = self.transport.send(association, stream, whimbrel_ngap::PPID, octets);
        }
    }

    /// Closes the associations gracefully.
    pub(super) fn close(&mut self, now: Instant) {
        let amfs = self.amfs.iter().filter_map(|line| line.association);
        let lines = [self.serving, self.further].into_iter().flatten().map(|line| line.association);
        for association in lines.chain(amfs) {
            self.transport.shutdown(now, association);
        }
    }
}

/// Fresh random octets.
fn secret() -> io::Result<[u8; 32]> {
    use std::io::Read;
    let mut octets = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut octets)?;
    Ok(octets)
}
