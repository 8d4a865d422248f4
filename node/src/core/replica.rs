//! The control thread while this CTA is the replica of a pair: it replicates the primary, and keeps gNBs' associations with this host.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{debug, info, warn};
use whimbrel_control::udm::Directory;
use whimbrel_ids::Instant;
use whimbrel_link::Spin;
use whimbrel_resilience::cta_replica::{LocalAssociation, MessageRoute};
use whimbrel_sctp_io::{AssociationId as SctpAssociation, Event, Events, Transport};

use super::control_thread::{Parts, ReplicaCta, SPIN, StopRequest};
use super::core_time::CoreTime;
use super::early::{EarlyMessage, EarlyMessages};
use super::n2::{self, N2Associations};
use super::subscriber_copy::SubscriberCopy;
use super::subscribers::{StoredSubscribers, sqn_slot};
use crate::clock;
use crate::cluster::{PairReplica, Promotion, ReplicaEvent};
use crate::entropy::SystemEntropy;
use crate::observation::Metric;

/// The longest time until a signal to stop is noticed.
const STOP_CHECKED_EVERY: Duration = Duration::from_millis(200);

/// What a replica has when it takes over.
pub(super) struct TakeoverState {
    pub(super) promotion: Promotion,
    /// `None` if it replicated no primary.
    pub(super) cta_replica: Option<ReplicaCta>,
    /// The gNBs' associations with this host, and messages that may have been for the former primary.
    pub(super) links: N2Associations,
    pub(super) early: Vec<EarlyMessage>,
}

/// Replicates the primary until this CTA takes over; `None`: until the core stops.
pub(super) fn run_as_replica(
    parts: Parts,
    pair: PairReplica,
    stop: &StopRequest,
) -> Option<(Parts, TakeoverState)> {
    let mut replica = Replica {
        parts,
        pair,
        cta_replica: None,
        subscriber_copy: None,
        links: N2Associations::default(),
        early: EarlyMessages::default(),
        events: Events::default(),
    };
    let mut spin = Spin::new(SPIN);
    while !stop.is_asked() {
        let now = clock::now();
        replica.receive_n2(now);
        // A replica answers no command: dropped, the command fails at its sender.
        while replica.parts.console.commands.take().is_some() {}
        let events = replica.pair.turn(now);
        if !events.is_empty() {
            spin.came(now);
        }
        for event in events {
            match event {
                ReplicaEvent::Promoted(home, former) => {
                    let Replica { parts, pair, cta_replica, subscriber_copy, links, early, .. } = replica;
                    drop(subscriber_copy); // it writes what has come
                    let early = early.into_messages();
                    let promotion = pair.promote(home, former);
                    return Some((parts, TakeoverState { promotion, cta_replica, links, early }));
                }
                ReplicaEvent::Snapshot(octets) => replica.load(now, &octets),
                ReplicaEvent::Record(octets) => replica.apply(now, &octets),
                ReplicaEvent::Subscribers(octets) => replica.copy_subscribers(octets),
                ReplicaEvent::Reset => replica.cta_replica = None,
            }
        }
        if let Some(cta_replica) = &replica.cta_replica {
            replica.pair.confirm(cta_replica.held());
        }
        replica.pair.flush();
        if let Some(n2) = &mut replica.parts.n2 {
            n2.flush(now);
        }
        if spin.looks_again(clock::now()) {
            std::hint::spin_loop();
        } else {
            replica.block(clock::now());
        }
    }
    if let Some(n2) = &mut replica.parts.n2 {
        n2::end_associations(n2, stop);
    }
    replica.pair.leave();
    None
}

struct Replica {
    parts: Parts,
    pair: PairReplica,
    cta_replica: Option<ReplicaCta>,
    /// Writes the primary's subscribers into the store of this CTA.
    subscriber_copy: Option<SubscriberCopy>,
    links: N2Associations,
    early: EarlyMessages,
    events: Events,
}

impl Replica {
    /// Begins from a snapshot of the primary.
    fn load(&mut self, now: Instant, snapshot: &[u8]) {
        let begun = clock::now();
        let config = &self.parts.config;
        let loaded = SystemEntropy::new().and_then(|entropy| {
            let store = crate::subscribers::open(&config.store)?;
            let directory = Directory::new(config.amf.plmn, config.home_network_keys())
                .with_sqn_slot(sqn_slot(config, &store));
            let subscribers = StoredSubscribers::new(store);
            ReplicaCta::new(snapshot, directory, subscribers, entropy, CoreTime::default())
                .map_err(|fault| format!("a snapshot of {} octets cannot be used: {fault}", snapshot.len()))
        });
        match loaded {
            Ok(mut cta_replica) => {
                cta_replica.timed(now);
                let took_ms = clock::now().since(begun).as_millis();
                info!(octets = snapshot.len(), took_ms, "the snapshot of the primary CTA is loaded");
                self.cta_replica = Some(cta_replica);
            }
            Err(sentence) => self.pair.give_up(now, "snapshot", sentence),
        }
    }

    /// Applies a record of the primary.
    fn apply(&mut self, now: Instant, record: &[u8]) {
        let Some(cta_replica) = &mut self.cta_replica else { return };
        let applied = cta_replica.take(record);
        cta_replica.timed(now);
        if let Err(fault) = applied {
            self.cta_replica = None;
            self.pair.give_up(now, "record", fault);
        }
    }

    /// Takes subscribers of the primary.
    fn copy_subscribers(&mut self, excerpt: Vec<u8>) {
        if self.subscriber_copy.is_none() {
            let store = crate::subscribers::open(&self.parts.config.store);
            self.subscriber_copy =
                store.and_then(SubscriberCopy::start).inspect_err(|sentence| warn!("{sentence}")).ok();
        }
        if let Some(copy) = &self.subscriber_copy {
            copy.take(excerpt);
        }
    }

    /// gNBs connect to the replica, too: both CTAs are one AMF (TS 23.501 §5.21.1.2).
    fn receive_n2(&mut self, now: Instant) {
        let Some(mut n2) = self.parts.n2.take() else { return };
        let mut events = std::mem::take(&mut self.events);
        n2.drain(now, &mut events);
        for event in events.iter() {
            self.n2_event(now, event, &mut n2);
        }
        self.abort_silent(now, &mut n2);
        self.events = events;
        self.parts.n2 = Some(n2);
        self.early.turn(now);
        self.parts.console.metrics.set(Metric::Gnbs, self.links.waiting() as u64);
    }

    fn n2_event(&mut self, now: Instant, event: Event<'_>, n2: &mut Transport) {
        let fastwire = self.parts.config.n2.fastwire;
        match event {
            Event::Up { association, peer, peer_port, outbound_streams, adaptation, .. } => {
                let peer = n2::peer(peer, peer_port);
                let syntax = n2::syntax(fastwire, peer, adaptation);
                let physical = self.links.up(now, association, peer, outbound_streams, syntax);
                self.stands_by(now, physical, n2);
            }
            Event::PathUp { association, remote } => {
                if let Some(physical) = self.links.physical(association) {
                    self.links.confirm_address(physical, remote);
                }
            }
            Event::Data { association, stream, ppid, octets } => {
                let Some(from) = self.links.received(association) else { return };
                let Some(link) = self.links.link(from) else { return };
                let octets = link.readable(octets);
                if ppid != whimbrel_ngap::PPID {
                    return;
                }
                match self.links.take(from, octets) {
                    MessageRoute::Answered(answer) => {
                        // A gNB that does not get the answer asks again.
                        let _ = n2.send(association, 0, whimbrel_ngap::PPID, &answer);
                        let most = self.parts.config.limits.ran_nodes;
                        if let Some(dropped) = self.links.crowded_out(from, most) {
                            self.make_room(now, dropped, "ran_nodes", n2);
                        }
                    }
                    _ => {
                        let from = (from, link.peer.ip());
                        self.early.keep(now, from, stream, octets, &self.parts.console.metrics);
                    }
                }
            }
            Event::Down { association, .. } => self.association_down(association),
            Event::Restarted { association, outbound_streams, adaptation, .. } => {
                let link = self.links.physical(association).and_then(|p| self.links.link(p));
                self.association_down(association);
                if let Some(link) = link {
                    let syntax = n2::syntax(fastwire, link.peer, adaptation);
                    let physical = self.links.up(now, association, link.peer, outbound_streams, syntax);
                    self.stands_by(now, physical, n2);
                }
            }
            _ => {}
        }
    }

    /// An association has come up: its share is the same as at the primary.
    fn stands_by(&mut self, now: Instant, physical: LocalAssociation, n2: &mut Transport) {
        let most = self.parts.config.limits.ran_nodes_waiting;
        if let Some(dropped) = self.links.stands_by(now, physical, most) {
            self.make_room(now, dropped, "ran_nodes_waiting", n2);
        }
    }

    fn make_room(&mut self, now: Instant, dropped: SctpAssociation, limit: &str, n2: &mut Transport) {
        debug!(limit, "an association makes room for others: its source has most of them");
        self.association_down(dropped);
        n2.abort(now, dropped);
    }

    /// Aborts associations whose gNB has not sent its identity in time.
    fn abort_silent(&mut self, now: Instant, n2: &mut Transport) {
        for (association, peer) in self.links.silent(now) {
            self.parts.console.metrics.add(Metric::NgSetupTimeouts, 1);
            info!(%peer, "an association is aborted: its gNB has not sent its identity within 30 s");
            self.association_down(association);
            n2.abort(now, association);
        }
    }

    fn association_down(&mut self, association: SctpAssociation) {
        self.links.physical(association).iter().for_each(|physical| self.early.down(*physical));
        self.links.down(association);
    }

    fn block(&self, now: Instant) {
        let n2 = self.parts.n2.as_ref();
        let deadlines = [
            self.pair.next_deadline(),
            n2.and_then(Transport::next_deadline),
            Some(now + STOP_CHECKED_EVERY),
        ];
        let wait = deadlines.into_iter().flatten().min().unwrap_or(now).since(now);
        if wait.is_zero() {
            return;
        }
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let wake = self.parts.console.commands.wake_fd();
        let n2 = n2.map(Transport::fds).unwrap_or_default();
        let fds = std::iter::once(wake).chain(self.pair.fds()).chain(n2.iter().map(|fd| fd.as_fd()));
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&timeout));
    }
}
