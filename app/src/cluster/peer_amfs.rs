//! Links to the other AMFs of this network (N14): who calls whom, and what comes. Of two, the one of the lesser AMF identifier calls. A link
//! that ended is called again; what was on its way is lost, and the timers of the handovers that it was about end them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_control::amf::PeerAmfId;
use whimbrel_ids::{AmfId, Instant};
use whimbrel_link::{Event, Events, Key, LinkId, Links, Settings};
use whimbrel_resilience::N14Error;
use whimbrel_resilience::link::PeerAmfHello;

use super::rejected_peers::RejectedPeers;
use crate::config::Neighbours as Config;
use crate::console::Sample;

/// Between two calls of one that is not there.
const AGAIN: Duration = Duration::from_secs(1);
/// A link that stands for so long is no mistake of a configuration, and is told.
const STANDS: Duration = Duration::from_secs(2);

/// One of them.
struct Neighbour {
    name: String,
    amf_id: AmfId,
    addresses: Vec<SocketAddr>,
    /// Which of its addresses is called next.
    next: usize,
    link: Option<LinkId>,
    calling: Option<LinkId>,
    call_at: Instant,
    /// What the operator was told of it already, so that it is told once.
    told: BTreeSet<N14Error>,
    told_away: bool,
    /// Since when it is there, if that is still to be told.
    came: Option<Instant>,
}

/// All of them, by [`PeerAmfId`].
pub(crate) struct PeerAmfs {
    links: Links,
    events: Events,
    own: AmfId,
    all: Vec<Neighbour>,
    unsent: u64,
    not_taken: u64,
    refused: RejectedPeers,
}

impl PeerAmfs {
    /// Opens where they call; `None` where there are none. Errors: one sentence.
    pub(crate) fn open(config: &Config, own: AmfId, now: Instant) -> Result<Option<Self>, String> {
        if config.amfs.is_empty() {
            return Ok(None);
        }
        let mut settings = Settings::new(PeerAmfHello(own).to_octets());
        settings.listen = config.listen;
        if let Some(file) = &config.key_file {
            settings.keys = Key::read(file).map_err(|e| format!("neighbours.key_file: {e}"))?;
        }
        let links = Links::open(settings).map_err(|e| format!("neighbours.listen: {e}"))?;
        let all = config.amfs.iter().map(|n| Neighbour {
            name: n.name.clone(),
            amf_id: n.amf_id,
            addresses: n.addresses.clone(),
            next: 0,
            link: None,
            calling: None,
            call_at: now,
            told: BTreeSet::new(),
            told_away: false,
            came: None,
        });
        let all = all.collect();
        let (events, refused) = (Events::default(), RejectedPeers::default());
        Ok(Some(Self { links, events, own, all, unsent: 0, not_taken: 0, refused }))
    }

    /// Where they call.
    #[cfg(test)]
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.links.local_addr()
    }

    /// Calls those that are to be called, and takes what came.
    pub(crate) fn turn(&mut self, now: Instant) -> Vec<(PeerAmfId, Vec<u8>)> {
        for n in self.all.iter_mut().filter(|n| n.is_called_by(self.own) && n.call_at <= now) {
            if let Some(&to) = n.addresses.get(n.next % n.addresses.len().max(1)) {
                n.next = n.next.wrapping_add(1);
                n.calling = Some(self.links.connect(now, to));
            }
        }
        let mut said = Vec::new();
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(now, &mut events);
        for event in events.iter() {
            match event {
                Event::Up { link, peer, hello, we_called } => self.up(now, link, peer, hello, we_called),
                Event::Frame { link, octets } => {
                    let from = (0u8..).zip(&self.all).find(|(_, n)| n.link == Some(link));
                    said.extend(from.map(|(id, _)| (PeerAmfId(id), octets.to_vec())));
                }
                Event::Down { link, reason } => {
                    let Some(n) =
                        self.all.iter_mut().find(|n| n.link == Some(link) || n.calling == Some(link))
                    else {
                        continue;
                    };
                    n.link.take_if(|l| *l == link);
                    if !std::mem::replace(&mut n.told_away, true) {
                        warn!(peer_amf = %n.name, %reason, "a peer AMF cannot be reached: no UE is handed over to it");
                    }
                    (n.calling, n.call_at, n.came) = (None, now + AGAIN, None);
                }
                Event::TurnedAway { peer, reason } => {
                    if self.refused.allows(now, peer, reason.label()) {
                        warn!(%peer, %reason, "an incoming link on the N14 address was rejected; further ones from this address are only counted");
                    }
                }
            }
        }
        self.events = events;
        for n in &mut self.all {
            if n.came.take_if(|came| now >= *came + STANDS).is_some() {
                n.told_away = false;
                info!(peer_amf = %n.name, "a peer AMF is connected");
            }
        }
        said
    }

    fn up(&mut self, now: Instant, link: LinkId, peer: SocketAddr, hello: &[u8], we_called: bool) {
        let who = PeerAmfHello::from_octets(hello).map(|hello| hello.0);
        if let Some(called) = self.all.iter_mut().find(|n| n.calling == Some(link)) {
            (called.calling, called.call_at) = (None, now + AGAIN);
        }
        let known = self.all.iter_mut().find(|n| Some(n.amf_id) == who);
        let Some(n) = known.filter(|n| (n.amf_id > self.own) == we_called) else {
            if self.refused.allows(now, peer, "stranger") {
                let amf =
                    who.map_or("none".into(), |id| format!("{}-{}-{}", id.region, id.set(), id.pointer()));
                warn!(%peer, amf, "a link is closed: its other end is not a peer AMF of this one, or is one that this AMF has to connect to");
            }
            return self.links.close(link);
        };
        if let Some(former) = n.link.replace(link) {
            self.links.close(former);
        }
        n.came = Some(now);
    }

    /// Says something to one of them. Where it is not reached nothing is said.
    pub(crate) fn send(&mut self, to: PeerAmfId, octets: &[u8]) {
        match self.all.get(usize::from(to.0)).and_then(|n| n.link) {
            Some(link) => self.links.send(link, octets),
            None => self.unsent += 1,
        }
    }

    /// What one of them said is not taken: counted, and told once.
    pub(crate) fn not_taken(&mut self, from: PeerAmfId, why: N14Error) {
        self.not_taken += 1;
        let Some(n) = self.all.get_mut(usize::from(from.0)) else { return };
        // It may say any number, and each would be a line.
        let kind = if let N14Error::Version(_) = why { N14Error::Version(0) } else { why };
        if n.told.insert(kind) {
            warn!(peer_amf = %n.name, %why, "a message of a peer AMF is rejected; this is logged once");
        }
    }

    /// Sends what waits.
    pub(crate) fn flush(&mut self) {
        self.links.flush();
    }

    /// What to wait on.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.links.fd()
    }

    /// When [`Self::turn`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let calls = self.all.iter().filter(|n| n.is_called_by(self.own)).map(|n| n.call_at);
        let told = self.all.iter().filter_map(|n| n.came).map(|came| came + STANDS);
        self.links.next_deadline().into_iter().chain(calls).chain(told).min()
    }

    /// For the metrics.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let one = |name, help, value| Sample { name, help, label: None, value };
        let there = self.all.iter().filter(|n| n.link.is_some()).count() as u64;
        let links = self.links.counters();
        vec![
            one("whimbrel_peer_amfs", "Peer AMFs that are connected", there),
            one("whimbrel_peer_amf_messages_in_total", "Messages from peer AMFs", links.frames_in),
            one("whimbrel_peer_amf_messages_out_total", "Messages to peer AMFs", links.frames_out),
            one(
                "whimbrel_peer_amf_unsent_total",
                "Messages to peer AMFs that were not connected",
                self.unsent,
            ),
            one(
                "whimbrel_peer_amf_rejected_messages_total",
                "Messages from peer AMFs that were rejected",
                self.not_taken,
            ),
            one(
                "whimbrel_peer_amf_rejected_calls_total",
                "Incoming links that were rejected",
                self.refused.total(),
            ),
        ]
    }
}

impl Neighbour {
    /// Whether it is to be called and is not there.
    fn is_called_by(&self, own: AmfId) -> bool {
        own < self.amf_id && self.link.is_none() && self.calling.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::clock;
    use crate::config::Neighbour as Of;
    use crate::log_limiter::Lines;

    fn amf(pointer: u8) -> AmfId {
        AmfId::new(2, 1, pointer).expect("within its bits")
    }

    fn of(pointer: u8, addresses: Vec<SocketAddr>) -> Config {
        let other = Of { name: format!("amf {pointer}"), amf_id: amf(pointer), tacs: Vec::new(), addresses };
        Config { listen: Some("127.0.0.1:0".parse().expect("an address")), key_file: None, amfs: vec![other] }
    }

    /// Turns both until something is as wanted.
    fn until(both: &mut [&mut PeerAmfs], mut done: impl FnMut(&mut [&mut PeerAmfs]) -> bool) -> Vec<Vec<u8>> {
        let mut came = Vec::new();
        for _ in 0..2000 {
            for n in both.iter_mut() {
                came.extend(n.turn(clock::now()).into_iter().map(|(_, octets)| octets));
                n.flush();
            }
            if done(both) {
                return came;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it does not come about");
    }

    fn there(n: &PeerAmfs) -> bool {
        n.all[0].link.is_some()
    }

    #[test]
    fn two_find_each_other_again_after_one_was_away() {
        let mut b = PeerAmfs::open(&of(1, Vec::new()), amf(2), clock::now()).expect("opens").expect("one");
        let at = b.address().expect("it listens");
        let mut a = PeerAmfs::open(&of(2, vec![at]), amf(1), clock::now()).expect("opens").expect("one");
        until(&mut [&mut a, &mut b], |both| both.iter().all(|n| there(n)));
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
        until(&mut [&mut a], |one| !there(one[0]));
        a.send(PeerAmfId(0), b"to nobody");
        assert_eq!(a.unsent, 1);
        let config = Config { listen: Some(at), ..of(1, Vec::new()) };
        let mut b = PeerAmfs::open(&config, amf(2), clock::now()).expect("opens").expect("one");
        until(&mut [&mut a, &mut b], |both| both.iter().all(|n| there(n)));
    }

    #[test]
    fn who_is_no_neighbour_is_let_go_and_counted() {
        let mut b = PeerAmfs::open(&of(1, Vec::new()), amf(2), clock::now()).expect("opens").expect("one");
        let at = b.address().expect("it listens");
        // It says that it is an AMF that nobody has configured.
        let mut stranger =
            PeerAmfs::open(&of(2, vec![at]), amf(0), clock::now()).expect("opens").expect("one");
        until(&mut [&mut stranger, &mut b], |both| both[1].refused.total() > 0);
        assert!(!there(&b));
    }

    #[test]
    fn a_neighbour_that_says_to_be_of_each_version_is_told_once_and_counted() {
        let mut a = PeerAmfs::open(&of(2, Vec::new()), amf(1), clock::now()).expect("opens").expect("one");
        let lines = Arc::new(AtomicUsize::new(0));
        tracing::subscriber::with_default(Lines(lines.clone()), || {
            (0..=u16::MAX).for_each(|v| a.not_taken(PeerAmfId(0), N14Error::Version(v)));
            (0..9).for_each(|_| a.not_taken(PeerAmfId(0), N14Error::Malformed));
        });
        assert_eq!((lines.load(Ordering::Relaxed), a.not_taken), (2, 65_536 + 9), "one of each kind");
    }

    #[test] // one lists the other, which does not list it: it calls, is let go, and calls again
    fn who_is_let_go_again_and_again_does_not_fill_the_log() {
        let mut b = PeerAmfs::open(&of(3, Vec::new()), amf(2), clock::now()).expect("opens").expect("one");
        let at = b.address().expect("it listens");
        let mut a = PeerAmfs::open(&of(2, vec![at]), amf(1), clock::now()).expect("opens").expect("one");
        let lines = Arc::new(AtomicUsize::new(0));
        tracing::subscriber::with_default(Lines(lines.clone()), || {
            for call in 0..20u32 {
                let now = clock::now() + (AGAIN + Duration::from_millis(100)) * call;
                while b.refused.total() <= u64::from(call) || there(&a) || a.all[0].calling.is_some() {
                    for n in [&mut a, &mut b] {
                        n.turn(now);
                        n.flush();
                    }
                }
            }
        });
        assert_eq!(lines.load(Ordering::Relaxed), 2, "each of them tells it once");
    }
}
