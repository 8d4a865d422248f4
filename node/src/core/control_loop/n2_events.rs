//! N2 in the control loop: what SCTP reports, and the NGAP messages that leave.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tracing::{debug, info, warn};
use whimbrel_control::AssociationId;
use whimbrel_ids::Instant;
use whimbrel_resilience::Input;
use whimbrel_resilience::cta_replica::{LocalAssociation, MessageRoute};
use whimbrel_sctp_io::{
    AdoptedAssociation, AssociationId as SctpAssociation, Event, Events, Former, Transport,
};

use super::ControlLoop;
use super::cpf_processes::CpfProcesses;
use crate::core::n2::{self, N2Associations};
use crate::observation::Metric;

/// A gNB that takes no data at all for this long has stopped, and its association is aborted. A slow gNB takes what it has room for.
const N2_STALLED: Duration = Duration::from_secs(10);

/// How long messages that a gNB's window keeps back count as not sent, a few round trips. Meanwhile a CTA that takes over sends all that was sent
/// since again, to every gNB.
const KEPT_BACK_FOR: Duration = Duration::from_millis(200);

/// Probes of one gNB are no further apart than this (the CTA asks four times a second); what is further apart is another round.
const PROBED_LATELY: Duration = Duration::from_secs(1);

/// An NGAP message that leaves: association, stream, octets.
type NgapMessage = (AssociationId, u16, Vec<u8>);

/// N2: its transport, and what is known of the associations.
pub(super) struct N2 {
    /// `None` where the host has no way for SCTP.
    pub(super) transport: Option<Transport>,
    pub(super) links: N2Associations,
    /// Reused from turn to turn.
    pub(super) events: Events,
    /// The associations as the file for the next start has them.
    pub(super) remembered: Vec<Former>,
    pub(super) remembered_in: Option<PathBuf>,
    /// Whether acknowledgements wait for the CTA replica.
    pub(super) holds_acknowledgements: bool,
    /// Those that wait: for which input, on which association, of how many messages.
    pub(super) unacknowledged: VecDeque<(u64, SctpAssociation, u64)>,
    /// How much had come from gNBs when they were probed, and when they were last.
    pub(super) probed: BTreeMap<AssociationId, (u64, Instant)>,
    /// Since when there is a gNB whose window keeps messages back.
    pub(super) unsent_since: Option<Instant>,
}

impl N2 {
    /// Whether all messages have left this host, but for gNBs that have taken none for [`KEPT_BACK_FOR`].
    pub(super) fn has_sent(&mut self, now: Instant) -> bool {
        let unsent = self.transport.as_ref().is_some_and(Transport::has_unsent);
        self.unsent_since = unsent.then(|| self.unsent_since.unwrap_or(now));
        self.unsent_since.is_none_or(|since| now.since(since) >= KEPT_BACK_FOR)
    }

    /// Aborts all associations, because another CTA has taken over. What they have not acknowledged goes to that one: the gNBs send it again.
    pub(super) fn abort_all(&mut self) {
        let Some(transport) = &mut self.transport else { return };
        let now = crate::clock::now();
        self.links.all().for_each(|link| transport.abort(now, link.sctp));
        transport.hold_acknowledgements(false);
        transport.flush(now);
    }
}

impl ControlLoop {
    /// Takes what SCTP reports. Returns whether there was anything.
    pub(super) fn receive_n2(&mut self, now: Instant) -> bool {
        let Some(transport) = &mut self.n2.transport else { return false };
        if transport.is_fenced()
            && let Some(CpfProcesses { pair: Some(pair), .. }) = &mut self.cpfs
        {
            pair.replaced = true; // this process was frozen, and the other CTA of the unit has its associations
        }
        let mut events = std::mem::take(&mut self.n2.events);
        transport.drain(now, &mut events);
        let busy = !events.is_empty();
        for event in events.iter() {
            self.n2_event(now, event);
        }
        self.n2.events = events;
        busy
    }

    fn n2_event(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Up { association, peer, peer_port, outbound_streams, adaptation, .. } => {
                let peer = n2::peer(peer, peer_port);
                let syntax = n2::syntax(self.config.n2.fastwire, peer, adaptation);
                let physical = self.n2.links.up(now, association, peer, outbound_streams, syntax);
                if !self.n2.links.awaits() {
                    self.new_association(now, physical);
                } else if let Some(dropped) =
                    self.n2.links.stands_by(now, physical, self.config.limits.ran_nodes_waiting)
                {
                    self.abort_unnamed(now, dropped);
                }
            }
            Event::Data { association, stream, ppid, octets } => {
                let Some(physical) = self.n2.links.received(association) else { return };
                if ppid != whimbrel_ngap::PPID {
                    self.console.metrics.add(Metric::N2ForeignPpid, 1);
                    return;
                }
                self.n2_message(now, physical, stream, octets);
                let link = self.n2.links.link(physical);
                if let (true, Some(link)) = (self.n2.holds_acknowledgements, link) {
                    self.n2.unacknowledged.push_back((self.active.last(), association, link.received));
                }
            }
            Event::Down { association, reason } => {
                debug!(?reason, "an SCTP association ended");
                if let Some(name) = self.n2.links.down(association) {
                    self.observer.association_down(name, &reason);
                    self.handle_input(now, Input::AssociationDown(name));
                }
            }
            Event::Restarted { association, outbound_streams, adaptation, .. } => {
                let link = self.n2.links.physical(association).and_then(|p| self.n2.links.link(p));
                let Some(link) = link else { return };
                info!(peer = %link.peer, "a gNB restarted its SCTP association");
                let former = self.n2.links.physical(association);
                let addresses = former.map(|p| self.n2.links.addresses(p)).unwrap_or_default();
                if let Some(name) = self.n2.links.down(association) {
                    self.handle_input(now, Input::AssociationDown(name));
                    self.deliver(now); // the end of the former association comes before the new one
                }
                let syntax = n2::syntax(self.config.n2.fastwire, link.peer, adaptation);
                // SCTP counts the association's messages on.
                let agreed = (outbound_streams, syntax);
                let links = &mut self.n2.links;
                let physical = links.continues(now, association, link.peer, agreed, link.received);
                for address in addresses {
                    links.confirm_address(physical, address);
                }
                self.new_association(now, physical);
            }
            Event::PathDown { remote, .. } => warn!(%remote, "a path of an SCTP association does not answer"),
            Event::PathUp { association, remote } => {
                debug!(%remote, "a path of an SCTP association answers");
                let Some(physical) = self.n2.links.physical(association) else { return };
                let is_new = self.n2.links.confirm_address(physical, remote);
                if let (true, Some(name)) = (is_new, self.n2.links.name_of(physical)) {
                    self.handle_input(now, Input::AddressConfirmed(name, remote));
                }
            }
            Event::Refused { .. } => debug!(?event, "SCTP refused a request"),
            Event::Unacknowledged { .. } => {} // procedures repeat what their UE did not get
        }
        self.deliver(now);
    }

    /// An association is a new one to the CTA.
    pub(super) fn new_association(&mut self, now: Instant, physical: LocalAssociation) -> AssociationId {
        let name = self.n2.links.name_it(physical);
        if let Some(link) = self.n2.links.link(physical) {
            if let Some(transport) = &mut self.n2.transport {
                transport.set_label(link.sctp, n2::label(name));
            }
            self.observer.association_up(name, &link.peer.to_string());
            let outbound_streams = link.outbound_streams;
            let addresses = self.n2.links.addresses(physical);
            self.handle_input(now, Input::AssociationUp { association: name, outbound_streams, addresses });
        }
        name
    }

    pub(super) fn n2_message(
        &mut self,
        now: Instant,
        physical: LocalAssociation,
        stream: u16,
        received: &[u8],
    ) {
        self.console.metrics.add(Metric::N2Received, 1);
        self.console.metrics.add(Metric::N2ReceivedBytes, received.len() as u64);
        let Some(link) = self.n2.links.link(physical) else { return };
        let octets = link.readable(received);
        let name = match self.n2.links.take(physical, octets) {
            MessageRoute::ToAssociation(name) => name,
            MessageRoute::NewAssociation => self.new_association(now, physical),
            MessageRoute::Answered(answer) => {
                if let Some(transport) = &mut self.n2.transport {
                    // A gNB that does not get the answer asks again.
                    let _ = transport.send(link.sctp, 0, whimbrel_ngap::PPID, &answer);
                }
                // A gNB that was expected after the takeover has come.
                return self.announce_takeover(now);
            }
            MessageRoute::Dropped => return,
        };
        self.capture_ngap(now, name, stream, received, true);
        self.active.set_next_message(name, link.received);
        self.keep_ngap(now, name, octets, true);
        self.handle_input(now, Input::Ngap(name, stream, octets));
    }

    pub(super) fn send_ngap(&mut self, now: Instant, name: AssociationId, stream: u16, octets: &[u8]) {
        let (Some(link), Some(transport)) = (self.n2.links.get(name), &mut self.n2.transport) else { return };
        let octets = &*link.agreed(octets);
        match transport.send(link.sctp, link.stream(stream), whimbrel_ngap::PPID, octets) {
            Ok(()) => {
                self.n2.links.took(now, name, true);
                self.console.metrics.add(Metric::N2Sent, 1);
                self.console.metrics.add(Metric::N2SentBytes, octets.len() as u64);
                self.capture_ngap(now, name, stream, octets, false);
                self.keep_ngap(now, name, octets, false);
            }
            Err(refusal) => {
                // The procedures that wait for this gNB's answer end by their timers.
                self.console.metrics.add(Metric::N2Unsent, 1);
                debug!(?refusal, association = name.0, "an NGAP message was not sent");
                if self.n2.links.took(now, name, false) >= N2_STALLED {
                    self.console.metrics.add(Metric::N2Stalled, 1);
                    warn!(
                        association = name.0,
                        "a gNB has taken no data for 10 s: its association is aborted"
                    );
                    self.abort(now, name);
                    self.handle_input(now, Input::AssociationDown(name));
                }
            }
        }
    }

    /// Sends NGAP messages in order, with the mark of each: the next primary sends none again that has one up to that of its association.
    pub(super) fn send_marked(&mut self, now: Instant, messages: Vec<NgapMessage>, marks: &[u64]) {
        for (at, (name, stream, octets)) in messages.into_iter().enumerate() {
            self.send_ngap(now, name, stream, &octets);
            if let (Some(mark), Some(link)) = (marks.get(at), self.n2.links.get(name))
                && let Some(transport) = &mut self.n2.transport
            {
                transport.set_mark(link.sctp, *mark);
            }
        }
    }

    /// Continues the associations that N2 has from the former primary, after the messages that its replica, this CTA, `received`. Returns the names
    /// of gNBs whose association did not come along.
    pub(super) fn continue_associations(
        &mut self,
        now: Instant,
        adopted: Vec<AdoptedAssociation>,
        names: &[AssociationId],
        received: &BTreeMap<AssociationId, u64>,
    ) -> Vec<AssociationId> {
        let mut down: BTreeSet<AssociationId> = names.iter().copied().collect();
        for a in adopted {
            let peer = SocketAddr::new(a.primary.remote, a.peer_port);
            let syntax = n2::syntax(self.config.n2.fastwire, peer, a.adaptation);
            let name = n2::labelled(a.notes.label).filter(|name| down.remove(name));
            let has =
                name.and_then(|name| received.get(&name)).map_or(a.released, |has| a.released.max(*has));
            let agreed = (a.outbound_streams, syntax);
            let physical = self.n2.links.continues(now, a.association, peer, agreed, has);
            match name {
                Some(name) => self.n2.links.keep_name(physical, name),
                // The former primary was lost before its replica had the association.
                None => drop(self.new_association(now, physical)),
            }
            if let Some(transport) = &mut self.n2.transport {
                transport.resume(now, a.association, has);
            }
        }
        if let Some(transport) = &mut self.n2.transport {
            transport.settle();
        }
        down.into_iter().collect()
    }

    /// Of the messages that the former primary may not have sent, those that it has not, and their marks.
    pub(super) fn unsent(&self, messages: Vec<NgapMessage>, marks: Vec<u64>) -> (Vec<NgapMessage>, Vec<u64>) {
        let sent = |name: AssociationId| {
            let link = self.n2.links.get(name)?;
            Some(self.n2.transport.as_ref()?.notes(link.sctp)?.mark)
        };
        let both = messages.into_iter().zip(marks);
        both.filter(|((name, ..), mark)| sent(*name).is_none_or(|sent| *mark > sent)).unzip()
    }

    /// Asks gNBs for a sign of life, and reports to the CTA those that have given one since they were asked before.
    pub(super) fn probe(&mut self, now: Instant, names: Vec<AssociationId>) {
        for name in names {
            let (Some(link), Some(transport)) = (self.n2.links.get(name), &mut self.n2.transport) else {
                continue;
            };
            // Where SCTP cannot say, the association stands: no gNB loses its identity for that.
            let Some(heard) = transport.heard(link.sctp) else {
                self.handle_input(now, Input::AssociationAnswered(name));
                continue;
            };
            let before = self.n2.probed.get(&name).filter(|(_, at)| now.since(*at) < PROBED_LATELY).copied();
            if before.is_some_and(|(before, _)| heard > before) {
                self.n2.probed.remove(&name);
                self.handle_input(now, Input::AssociationAnswered(name));
                continue;
            }
            transport.probe(now, link.sctp);
            self.n2.probed.retain(|_, (_, at)| now.since(*at) < PROBED_LATELY);
            self.n2.probed.insert(name, (before.map_or(heard, |(before, _)| before), now));
        }
    }

    /// Aborts an association that the CTA does not know.
    pub(super) fn abort_unnamed(&mut self, now: Instant, association: SctpAssociation) {
        self.n2.links.down(association);
        if let Some(transport) = &mut self.n2.transport {
            transport.abort(now, association);
        }
    }

    /// Aborts an SCTP association. The CTA has forgotten it, or the caller reports it down.
    pub(super) fn abort(&mut self, now: Instant, name: AssociationId) {
        if let (Some(link), Some(transport)) = (self.n2.links.forget(name), &mut self.n2.transport) {
            transport.abort(now, link.sctp);
        }
    }

    /// Acknowledges gNBs' messages whose inputs can no longer be lost with this host: gNBs need not send them to another CTA.
    pub(super) fn acknowledge(&mut self) {
        let (safe, Some(transport)) = (self.active.last_durable_input(), &mut self.n2.transport) else {
            return;
        };
        while let Some(&(input, association, messages)) = self.n2.unacknowledged.front()
            && input <= safe
        {
            transport.release(association, messages);
            self.n2.unacknowledged.pop_front();
        }
        let holds = safe != u64::MAX;
        if holds != self.n2.holds_acknowledgements {
            // The kernel's SCTP acknowledges by itself.
            self.n2.holds_acknowledgements = transport.hold_acknowledgements(holds) && holds;
        }
    }
}
