//! A CTA of a pair while another one serves: it follows, and keeps the gNBs' associations with this host.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{info, warn};
use whimbrel_control::udm::Directory;
use whimbrel_ids::Instant;
use whimbrel_resilience::cta_replica::MessageRoute;
use whimbrel_sctp_io::{Event, Events, Transport};

use super::control_thread::{NGAP_PPID, Parts, ReplicaCta, SPIN, StopRequest, TakeoverState};
use super::core_time::CoreTime;
use super::early::EarlyMessages;
use super::n2::{self, Links};
use super::subscriber_copy::SubscriberCopy;
use super::subscribers::StoredSubscribers;
use crate::clock;
use crate::cluster::{PairReplica, ReplicaEvent};
use crate::console::Gauge;
use crate::entropy::SystemEntropy;

/// How long a signal to stop waits at most.
const LOOK: Duration = Duration::from_millis(200);

/// Stands by until this CTA serves; `None`: until told to stop.
pub(super) fn run_as_replica(mut parts: Parts, stop: &StopRequest) -> Option<(Parts, TakeoverState)> {
    let standby = parts.standby.take()?;
    let mut waiting = Waiting {
        parts,
        standby,
        cta_replica: None,
        subscriber_copy: None,
        links: Links::default(),
        early: EarlyMessages::default(),
        events: Events::default(),
    };
    let mut spin_until = Instant::ZERO;
    while !stop.is_asked() {
        let now = clock::now();
        waiting.n2(now);
        // Nobody is here to answer: whoever asks hears so.
        while waiting.parts.console.commands.take().is_some() {}
        let heard = waiting.standby.turn(now);
        if !heard.is_empty() {
            spin_until = now + SPIN;
        }
        for heard in heard {
            match heard {
                ReplicaEvent::Serve(home, former) => {
                    let Waiting { parts, standby, cta_replica, subscriber_copy, links, early, .. } = waiting;
                    drop(subscriber_copy); // the store has all that came
                    let early = early.into_messages();
                    let succession = standby.succeed(home, former);
                    return Some((parts, TakeoverState { succession, cta_replica, links, early }));
                }
                ReplicaEvent::Snapshot(octets) => waiting.begins(now, &octets),
                ReplicaEvent::Record(octets) => waiting.follows(now, &octets),
                ReplicaEvent::Subscribers(octets) => waiting.copies(octets),
                ReplicaEvent::Nothing => waiting.cta_replica = None,
            }
        }
        if let Some(cta_replica) = &waiting.cta_replica {
            waiting.standby.held(cta_replica.held());
        }
        waiting.standby.flush();
        if let Some(n2) = &mut waiting.parts.n2 {
            n2.flush(now);
        }
        if clock::now() < spin_until {
            std::hint::spin_loop();
        } else {
            waiting.block(clock::now());
        }
    }
    if let Some(n2) = &mut waiting.parts.n2 {
        n2::end_associations(n2, stop);
    }
    waiting.standby.leave();
    None
}

struct Waiting {
    parts: Parts,
    standby: PairReplica,
    cta_replica: Option<ReplicaCta>,
    /// The subscribers of the one that serves, on their way into the store of this one.
    subscriber_copy: Option<SubscriberCopy>,
    links: Links,
    early: EarlyMessages,
    events: Events,
}

impl Waiting {
    /// The one that serves is followed from here.
    fn begins(&mut self, now: Instant, snapshot: &[u8]) {
        let begun = clock::now();
        let config = &self.parts.config;
        let made = SystemEntropy::new().and_then(|entropy| {
            let store = crate::subscribers::open(&config.store)?;
            let directory = Directory::new(config.amf.plmn, config.home_network_keys());
            let subscribers = StoredSubscribers::new(store);
            ReplicaCta::new(snapshot, directory, subscribers, entropy, CoreTime::default())
                .map_err(|fault| format!("a snapshot of {} octets cannot be used: {fault}", snapshot.len()))
        });
        match made {
            Ok(mut cta_replica) => {
                cta_replica.timed(now);
                let took_ms = clock::now().since(begun).as_millis();
                info!(octets = snapshot.len(), took_ms, "the snapshot of the primary CTA is loaded");
                self.cta_replica = Some(cta_replica);
            }
            Err(sentence) => self.standby.give_up(now, "snapshot", sentence),
        }
    }

    fn follows(&mut self, now: Instant, record: &[u8]) {
        let Some(cta_replica) = &mut self.cta_replica else { return };
        let taken = cta_replica.take(record);
        cta_replica.timed(now);
        if let Err(fault) = taken {
            self.cta_replica = None;
            self.standby.give_up(now, "record", fault);
        }
    }

    /// Subscribers as the one that serves has them.
    fn copies(&mut self, excerpt: Vec<u8>) {
        if self.subscriber_copy.is_none() {
            let store = crate::subscribers::open(&self.parts.config.store);
            self.subscriber_copy =
                store.and_then(SubscriberCopy::start).inspect_err(|sentence| warn!("{sentence}")).ok();
        }
        if let Some(subscriber_copy) = &self.subscriber_copy {
            subscriber_copy.take(excerpt);
        }
    }

    /// gNBs come here too: both hosts are one AMF (TS 23.501 §5.21.1.2).
    fn n2(&mut self, now: Instant) {
        let offered = self.parts.config.n2.fastwire;
        let Some(n2) = &mut self.parts.n2 else { return };
        n2.drain(now, &mut self.events);
        for event in self.events.iter() {
            match event {
                Event::Up { association, peer, peer_port, outbound_streams, adaptation, .. } => {
                    let peer = n2::peer(peer, peer_port);
                    let syntax = n2::syntax(offered, peer, adaptation);
                    self.links.up(now, association, peer, outbound_streams, syntax);
                }
                Event::Data { association, stream, ppid, octets } => {
                    let Some(from) = self.links.received(association) else { continue };
                    let Some(link) = self.links.link(from) else { continue };
                    let octets = link.readable(octets);
                    if ppid != NGAP_PPID {
                        continue;
                    }
                    match self.links.take(from, octets) {
                        MessageRoute::Answered(answer) => {
                            // One that does not get it asks again.
                            let _ = n2.send(association, 0, NGAP_PPID, &answer);
                        }
                        _ => {
                            let from = (from, link.peer.ip());
                            self.early.keep(now, from, stream, octets, &self.parts.console.metrics);
                        }
                    }
                }
                Event::Down { association, .. } => {
                    self.links.physical(association).iter().for_each(|physical| self.early.down(*physical));
                    self.links.down(association);
                }
                Event::Restarted { association, outbound_streams, adaptation, .. } => {
                    let physical = self.links.physical(association);
                    physical.iter().for_each(|physical| self.early.down(*physical));
                    let link = physical.and_then(|p| self.links.link(p));
                    self.links.down(association);
                    if let Some(link) = link {
                        let syntax = n2::syntax(offered, link.peer, adaptation);
                        self.links.up(now, association, link.peer, outbound_streams, syntax);
                    }
                }
                _ => {}
            }
        }
        self.early.turn(now);
        self.parts.console.metrics.set(Gauge::Gnbs, self.links.waiting() as u64);
    }

    fn block(&self, now: Instant) {
        let n2 = self.parts.n2.as_ref();
        let deadlines =
            [self.standby.next_deadline(), n2.and_then(Transport::next_deadline), Some(now + LOOK)];
        let wait = deadlines.into_iter().flatten().min().unwrap_or(now).since(now);
        if wait.is_zero() {
            return;
        }
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let console: &Arc<_> = &self.parts.console;
        let fds = std::iter::once(console.commands.wake_fd()).chain(self.standby.fds());
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let n2 = n2.map(Transport::fds).unwrap_or_default();
        fds.extend(n2.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&timeout));
    }
}
