//! Links to peer AMFs (N14). Of two AMFs, the one with the lower AMF identifier connects. A lost link is set up again; messages that were on their
//! way are lost, and timers end their handovers.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_control::Flat;
use whimbrel_control::amf::PeerAmfId;
use whimbrel_ids::{AmfId, Instant};
use whimbrel_link::{ClusterKey, Event, LinkEvents, LinkId, LinkSettings, Links};
use whimbrel_resilience::link::PeerAmfHello;
use whimbrel_resilience::{
    N14Error, PEER_LOST_AFTER, PeerMessageOutcome, PeerReplicas, ToStore, handover_not_reached,
};

use super::rejected_peers::RejectedPeers;
use crate::config::PeerAmfs as Config;
use crate::observation::{Metric, MetricSample};

/// Between two attempts to connect.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);
/// How often peer AMFs are sent the UEs that have changed, if they are sent any: more often than UEs move from one to the other.
const REPLICATE_EVERY: Duration = Duration::from_millis(100);
/// A link that stays up this long is not a configuration error, and is logged.
const STABLE_AFTER: Duration = Duration::from_secs(2);

/// One peer AMF.
struct PeerAmfLink {
    name: String,
    amf_id: AmfId,
    addresses: Vec<SocketAddr>,
    /// The index of the address that is tried next.
    next: usize,
    link: Option<LinkId>,
    connecting: Option<LinkId>,
    connect_at: Instant,
    /// Reasons that have been logged, each once.
    logged: BTreeSet<N14Error>,
    /// Its absence has been logged.
    logged_lost: bool,
    /// The disagreement between it and this AMF that was logged.
    disagreement: Option<String>,
    /// Since when it has no link.
    down_since: Option<Instant>,
    /// Since when its link is up, until that is logged.
    up_since: Option<Instant>,
}

/// All peer AMFs, by [`PeerAmfId`].
pub struct PeerAmfs {
    links: Links,
    events: LinkEvents,
    own: PeerAmfHello,
    all: Vec<PeerAmfLink>,
    replicas: PeerReplicas,
    /// When UEs that have changed are sent next, and whether all are then.
    replicate: (Instant, bool),
    /// Answers to this AMF's requests to peers that are not connected.
    answers: Vec<(PeerAmfId, Flat)>,
    unsent: u64,
    rejected_messages: u64,
    rejected: RejectedPeers,
}

impl PeerAmfs {
    /// Opens the address to which peer AMFs connect; `None` where none is configured. Errors: one sentence.
    /// `upfs`: the N4 addresses of the UPFs, by their numbers.
    pub fn open(
        config: &Config,
        own: PeerAmfHello,
        upfs: Vec<Option<IpAddr>>,
        now: Instant,
    ) -> Result<Option<Self>, String> {
        if config.amfs.is_empty() {
            return Ok(None);
        }
        let mut settings = LinkSettings::new(own.to_octets());
        settings.listen = config.listen;
        if let Some(file) = &config.key_file {
            settings.keys = ClusterKey::read(file).map_err(|e| format!("peer_amfs.key_file: {e}"))?;
        }
        let links = Links::open(settings).map_err(|e| format!("peer_amfs.listen: {e}"))?;
        let all = config.amfs.iter().map(|n| PeerAmfLink {
            name: n.name.clone(),
            amf_id: n.amf_id,
            addresses: n.addresses.clone(),
            next: 0,
            link: None,
            connecting: None,
            connect_at: now,
            logged: BTreeSet::new(),
            logged_lost: false,
            disagreement: None,
            down_since: Some(now),
            up_since: None,
        });
        let all = all.collect();
        let peers = (0u8..).map(PeerAmfId).zip(&config.amfs);
        let peers = peers.map(|(id, peer)| (id, peer.amf_id, peer.replicas as usize));
        let replicas = PeerReplicas::new(peers, upfs);
        let (events, rejected) = (LinkEvents::default(), RejectedPeers::default());
        Ok(Some(Self {
            links,
            events,
            own,
            all,
            replicas,
            replicate: (now, true),
            answers: Vec::new(),
            unsent: 0,
            rejected_messages: 0,
            rejected,
        }))
    }

    /// Where peer AMFs connect to.
    #[cfg(test)]
    pub fn address(&self) -> Option<SocketAddr> {
        self.links.local_addr()
    }

    /// Connects to peer AMFs and receives their messages.
    pub fn turn(&mut self, now: Instant) -> Vec<(PeerAmfId, Vec<u8>)> {
        for n in
            self.all.iter_mut().filter(|n| n.is_to_be_connected_by(self.own.amf_id) && n.connect_at <= now)
        {
            if let Some(&to) = n.addresses.get(n.next % n.addresses.len().max(1)) {
                n.next = n.next.wrapping_add(1);
                n.connecting = Some(self.links.connect(now, to));
            }
        }
        let mut messages: Vec<_> =
            self.answers.drain(..).map(|(from, answer)| (from, answer.octets().to_vec())).collect();
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(now, &mut events);
        for event in events.iter() {
            match event {
                Event::Up { link, peer, hello, we_called } => self.link_up(now, link, peer, hello, we_called),
                Event::Frame { link, octets } => {
                    let from = (0u8..).map(PeerAmfId).zip(&self.all).find(|(_, n)| n.link == Some(link));
                    let Some((from, _)) = from else { continue };
                    match self.replicas.receive(from, octets) {
                        PeerMessageOutcome::Input => messages.push((from, octets.to_vec())),
                        PeerMessageOutcome::Completed(whole) => {
                            messages.push((from, whole.octets().to_vec()))
                        }
                        PeerMessageOutcome::Answer(answer) => self.links.send(link, answer.octets()),
                        PeerMessageOutcome::Taken => {}
                    }
                }
                Event::Down { link, reason } => {
                    let Some(n) =
                        self.all.iter_mut().find(|n| n.link == Some(link) || n.connecting == Some(link))
                    else {
                        continue;
                    };
                    if n.link.take_if(|l| *l == link).is_some() {
                        n.down_since = Some(now);
                    }
                    if !std::mem::replace(&mut n.logged_lost, true) {
                        warn!(peer_amf = %n.name, %reason, "a peer AMF cannot be reached: no UE is handed over to it");
                    }
                    (n.connecting, n.connect_at, n.up_since) = (None, now + RECONNECT_AFTER, None);
                }
                Event::Rejected { peer, reason } => {
                    if self.rejected.allows(now, peer, reason.label()) {
                        warn!(%peer, %reason, "an incoming link on the N14 address was rejected; further ones from this address are only counted");
                    }
                }
            }
        }
        self.events = events;
        for n in &mut self.all {
            if n.up_since.take_if(|since| now >= *since + STABLE_AFTER).is_some() {
                n.logged_lost = false;
                info!(peer_amf = %n.name, "a peer AMF is connected");
            }
        }
        messages
    }

    fn link_up(&mut self, now: Instant, link: LinkId, peer: SocketAddr, hello: &[u8], we_called: bool) {
        let hello = PeerAmfHello::from_octets(hello);
        let amf_id = hello.as_ref().map(|hello| hello.amf_id);
        if let Some(called) = self.all.iter_mut().find(|n| n.connecting == Some(link)) {
            (called.connecting, called.connect_at) = (None, now + RECONNECT_AFTER);
        }
        let known = self.all.iter_mut().find(|n| Some(n.amf_id) == amf_id);
        let Some(n) = known.filter(|n| (n.amf_id > self.own.amf_id) == we_called) else {
            if self.rejected.allows(now, peer, "unknown") {
                let amf =
                    amf_id.map_or("none".into(), |id| format!("{}-{}-{}", id.region, id.set(), id.pointer()));
                warn!(%peer, amf, "a link is closed: its other end is not a peer AMF of this one, or is one that this AMF has to connect to");
            }
            return self.links.close(link);
        };
        let disagreement = hello.as_ref().and_then(|hello| self.own.disagreement(hello));
        if let Some(what) = disagreement.as_ref().filter(|what| n.disagreement.as_ref() != Some(*what)) {
            warn!(peer_amf = %n.name, "{what}");
        }
        n.disagreement = disagreement;
        if hello.as_ref().is_some_and(|hello| hello.plmn != self.own.plmn) {
            return self.links.close(link);
        }
        if let Some(former) = n.link.replace(link) {
            self.links.close(former);
        }
        (n.up_since, n.down_since) = (Some(now), None);
        if let Some((at, hello)) = self.all.iter().position(|n| n.link == Some(link)).zip(hello) {
            self.replicas.connected(PeerAmfId(at as u8), hello.smf);
        }
        self.replicate.1 = true;
    }

    /// Whether the CTA is to be asked for UEs that have changed: `Some(true)` for all of them.
    pub fn replicates(&mut self, now: Instant) -> Option<bool> {
        let (at, all) = self.replicate;
        let due = self.replicas.is_used() && at <= now && self.all.iter().any(|n| n.link.is_some());
        if due {
            self.replicate = (now + REPLICATE_EVERY, false);
        }
        due.then_some(all)
    }

    /// A UE of this AMF has changed, or is gone.
    pub fn changed(&mut self, stored: &ToStore) {
        let mut messages = Vec::new();
        self.replicas.changed(stored, &mut messages);
        messages.into_iter().for_each(|(to, message)| self.send(to, message.octets()));
    }

    /// True for a peer AMF with a link.
    pub fn is_connected(&self, peer: PeerAmfId) -> bool {
        self.all.get(usize::from(peer.0)).is_some_and(|n| n.link.is_some())
    }

    /// Sends a message of the CTA, without a UE's state where the peer AMF has it. For one that is not connected, its replicas answer, so that no UE waits.
    pub fn send_message(&mut self, now: Instant, to: PeerAmfId, message: Flat) {
        if !self.is_connected(to)
            && let Some(answer) = handover_not_reached(&message)
        {
            return self.answers.push((to, answer));
        }
        let lost = self.all.get(usize::from(to.0)).and_then(|n| n.down_since);
        if lost.is_some_and(|since| now.since(since) >= PEER_LOST_AFTER)
            && let Some(answer) = self.replicas.answer_in_place_of(to, &message)
        {
            return self.answers.push((to, answer));
        }
        let message = self.replicas.send(to, message);
        self.send(to, message.octets());
    }

    /// Sends to a peer AMF; if it is not connected, the message is only counted.
    pub fn send(&mut self, to: PeerAmfId, octets: &[u8]) {
        match self.all.get(usize::from(to.0)).and_then(|n| n.link) {
            Some(link) => self.links.send(link, octets),
            None => self.unsent += 1,
        }
    }

    /// A message of a peer AMF was rejected: it is counted, and each reason logged once.
    pub fn message_rejected(&mut self, from: PeerAmfId, why: N14Error) {
        self.rejected_messages += 1;
        let Some(n) = self.all.get_mut(usize::from(from.0)) else { return };
        // The version may be any number, and each would be a line.
        let kind = if let N14Error::Version(_) = why { N14Error::Version(0) } else { why };
        if n.logged.insert(kind) {
            warn!(peer_amf = %n.name, %why, "a message of a peer AMF is rejected; this is logged once");
        }
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        self.links.flush();
    }

    /// What to wait on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.links.fd()
    }

    /// When [`Self::turn`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let calls =
            self.all.iter().filter(|n| n.is_to_be_connected_by(self.own.amf_id)).map(|n| n.connect_at);
        let logged = self.all.iter().filter_map(|n| n.up_since).map(|since| since + STABLE_AFTER);
        let connected = self.replicas.is_used() && self.all.iter().any(|n| n.link.is_some());
        let replicates = connected.then_some(self.replicate.0);
        let answers = (!self.answers.is_empty()).then_some(Instant::ZERO);
        self.links
            .next_deadline()
            .into_iter()
            .chain(answers)
            .chain(calls)
            .chain(logged)
            .chain(replicates)
            .min()
    }

    /// For the metrics.
    pub fn samples(&self) -> Vec<MetricSample> {
        let one = |metric, value| MetricSample { metric, label: None, value };
        let connected = self.all.iter().filter(|n| n.link.is_some()).count() as u64;
        let (links, replicas) = (self.links.counters(), self.replicas.counters());
        vec![
            one(Metric::PeerAmfs, connected),
            one(Metric::PeerAmfMessagesIn, links.frames_in),
            one(Metric::PeerAmfMessagesOut, links.frames_out),
            one(Metric::PeerAmfUnsent, self.unsent),
            one(Metric::PeerAmfRejectedMessages, self.rejected_messages),
            one(Metric::PeerAmfRejectedCalls, self.rejected.total()),
            one(Metric::PeerReplicas, self.replicas.held() as u64),
            one(Metric::PeerReplicasSent, replicas.sent),
            one(Metric::PeerReplicasUsed, replicas.completed),
            one(Metric::PeerReplicasStale, replicas.requested),
            one(Metric::PeerReplicasPromoted, replicas.promoted),
        ]
    }
}

impl PeerAmfLink {
    /// Whether this AMF has to connect to it, and is not connected.
    fn is_to_be_connected_by(&self, own: AmfId) -> bool {
        own < self.amf_id && self.link.is_none() && self.connecting.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use whimbrel_ids::{PlmnId, SNssai};

    use super::*;
    use crate::clock;
    use crate::config::PeerAmfConfig as Of;
    use crate::log_limiter::Lines;

    fn amf(pointer: u8) -> AmfId {
        AmfId::new(2, 1, pointer).expect("within its bits")
    }

    fn hello(pointer: u8) -> PeerAmfHello {
        let (plmn, slices) = (PlmnId::TEST, vec![SNssai::sst(1)]);
        PeerAmfHello { amf_id: amf(pointer), plmn, slices, smf: [127, 0, 0, pointer].into() }
    }

    fn of(pointer: u8, addresses: Vec<SocketAddr>) -> Config {
        let name = format!("amf {pointer}");
        let other = Of { name, amf_id: amf(pointer), tacs: Vec::new(), addresses, replicas: 0 };
        Config { listen: Some("127.0.0.1:0".parse().expect("an address")), key_file: None, amfs: vec![other] }
    }

    /// Turns both until a condition holds.
    fn until(both: &mut [&mut PeerAmfs], mut done: impl FnMut(&mut [&mut PeerAmfs]) -> bool) -> Vec<Vec<u8>> {
        let mut received = Vec::new();
        for _ in 0..2000 {
            for n in both.iter_mut() {
                received.extend(n.turn(clock::now()).into_iter().map(|(_, octets)| octets));
                n.flush();
            }
            if done(both) {
                return received;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the condition does not hold in time");
    }

    fn is_connected(n: &PeerAmfs) -> bool {
        n.all[0].link.is_some()
    }

    #[test]
    fn a_link_is_set_up_again_after_one_amf_restarted() {
        let mut b = PeerAmfs::open(&of(1, Vec::new()), hello(2), Vec::new(), clock::now())
            .expect("opens")
            .expect("one");
        let at = b.address().expect("it listens");
        let mut a = PeerAmfs::open(&of(2, vec![at]), hello(1), Vec::new(), clock::now())
            .expect("opens")
            .expect("one");
        until(&mut [&mut a, &mut b], |both| both.iter().all(|n| is_connected(n)));
        for (n, what) in [(&mut a, b"from a"), (&mut b, b"from b")] {
            n.send(PeerAmfId(0), what);
        }
        let mut all = Vec::new();
        while all.len() < 2 {
            all.extend(until(&mut [&mut a, &mut b], |_| true));
        }
        all.sort();
        assert_eq!(all, [b"from a".to_vec(), b"from b".to_vec()]);
        drop(b);
        until(&mut [&mut a], |one| !is_connected(one[0]));
        a.send(PeerAmfId(0), b"lost");
        assert_eq!(a.unsent, 1);
        let config = Config { listen: Some(at), ..of(1, Vec::new()) };
        let mut b = PeerAmfs::open(&config, hello(2), Vec::new(), clock::now()).expect("opens").expect("one");
        until(&mut [&mut a, &mut b], |both| both.iter().all(|n| is_connected(n)));
    }

    #[test]
    fn a_link_of_an_unknown_amf_is_closed_and_counted() {
        let mut b = PeerAmfs::open(&of(1, Vec::new()), hello(2), Vec::new(), clock::now())
            .expect("opens")
            .expect("one");
        let at = b.address().expect("it listens");
        // Its AMF identifier is not configured at the other end.
        let mut unknown = PeerAmfs::open(&of(2, vec![at]), hello(0), Vec::new(), clock::now())
            .expect("opens")
            .expect("one");
        until(&mut [&mut unknown, &mut b], |both| both[1].rejected.total() > 0);
        assert!(!is_connected(&b));
    }

    #[test]
    fn an_amf_of_another_network_has_no_link_and_is_logged_once() {
        let mut b = PeerAmfs::open(&of(1, Vec::new()), hello(2), Vec::new(), clock::now())
            .expect("opens")
            .expect("one");
        let at = b.address().expect("it listens");
        let other = PeerAmfHello { plmn: "001/01".parse().expect("a PLMN"), ..hello(1) };
        let mut a =
            PeerAmfs::open(&of(2, vec![at]), other, Vec::new(), clock::now()).expect("opens").expect("one");
        let lines = Arc::new(AtomicUsize::new(0));
        crate::log_limiter::with_subscriber(Lines(lines.clone()), || {
            until(&mut [&mut a, &mut b], |both| both.iter().all(|n| n.all[0].disagreement.is_some()));
        });
        assert!(!is_connected(&a) && !is_connected(&b));
        assert_eq!(lines.load(Ordering::Relaxed), 2, "one of each");
    }

    #[test]
    fn messages_of_many_versions_are_logged_once_and_counted() {
        let mut a = PeerAmfs::open(&of(2, Vec::new()), hello(1), Vec::new(), clock::now())
            .expect("opens")
            .expect("one");
        let lines = Arc::new(AtomicUsize::new(0));
        crate::log_limiter::with_subscriber(Lines(lines.clone()), || {
            (0..=u16::MAX).for_each(|v| a.message_rejected(PeerAmfId(0), N14Error::Version(v)));
            (0..9).for_each(|_| a.message_rejected(PeerAmfId(0), N14Error::Malformed));
        });
        assert_eq!((lines.load(Ordering::Relaxed), a.rejected_messages), (2, 65_536 + 9), "one of each kind");
    }

    #[test] // one AMF is not configured at the other, whose link is closed again and again
    fn links_that_are_closed_again_and_again_do_not_fill_the_log() {
        let mut b = PeerAmfs::open(&of(3, Vec::new()), hello(2), Vec::new(), clock::now())
            .expect("opens")
            .expect("one");
        let at = b.address().expect("it listens");
        let mut a = PeerAmfs::open(&of(2, vec![at]), hello(1), Vec::new(), clock::now())
            .expect("opens")
            .expect("one");
        let lines = Arc::new(AtomicUsize::new(0));
        crate::log_limiter::with_subscriber(Lines(lines.clone()), || {
            for attempt in 0..20u32 {
                let now = clock::now() + (RECONNECT_AFTER + Duration::from_millis(100)) * attempt;
                while b.rejected.total() <= u64::from(attempt)
                    || is_connected(&a)
                    || a.all[0].connecting.is_some()
                {
                    for n in [&mut a, &mut b] {
                        n.turn(now);
                        n.flush();
                    }
                }
            }
        });
        assert_eq!(lines.load(Ordering::Relaxed), 2, "one line of each AMF");
    }
}
