//! N2 in the control loop: what SCTP reports, and the NGAP messages that leave.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use tracing::{debug, info, warn};
use whimbrel_control::AssociationId;
use whimbrel_ids::Instant;
use whimbrel_resilience::Input;
use whimbrel_resilience::cta_replica::{LocalAssociation, MessageRoute};
use whimbrel_sctp_io::{Adopted, AssociationId as SctpAssociation, Event, Events, Former, Resume, Transport};

use super::ControlLoop;
use crate::console::Metric;
use crate::core::n2::{self, Links};

/// A gNB that takes no data at all for this long has stopped, and its association is aborted. A slow gNB takes what it has room for.
const N2_STALLED: Duration = Duration::from_secs(10);

/// What a successor reads of an association that has a name: zero stands for none.
fn label_of(name: AssociationId) -> u64 {
    1 << 32 | u64::from(name.0)
}

fn name_of(label: u64) -> Option<AssociationId> {
    (label >> 32 == 1).then_some(AssociationId(label as u32))
}

/// N2: its transport, and what is known of the associations.
pub(super) struct N2 {
    /// `None` where the host has no way for SCTP.
    pub(super) transport: Option<Transport>,
    pub(super) links: Links,
    /// Reused from turn to turn.
    pub(super) events: Events,
    /// The associations as the file for the next start has them.
    pub(super) remembered: Vec<Former>,
    pub(super) remembered_in: Option<PathBuf>,
    /// Whether acknowledgements wait for the CTA replica.
    pub(super) holds_acknowledgements: bool,
    /// Those that wait: for which input, on which association, of how many messages.
    pub(super) unacknowledged: VecDeque<(u64, SctpAssociation, u64)>,
}

impl N2 {
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
    /// Continues the associations of the primary that this CTA replaces. `knows`: it has the primary's state; without that, gNBs have to set
    /// up anew.
    pub(super) fn adopt(&mut self, now: Instant, adopted: Vec<Adopted>, knows: bool) {
        let Some(transport) = &mut self.n2.transport else { return };
        if adopted.is_empty() {
            return transport.settle();
        }
        let mut continued = 0;
        for former in &adopted {
            let known =
                |name: &AssociationId| self.active.cta().ran_nodes().iter().any(|(of, _)| of == *name);
            match name_of(former.notes.label).filter(known) {
                Some(name) if knows => {
                    continued += 1;
                    let peer = n2::peer(&[former.primary.remote], former.peer_port);
                    let syntax = n2::syntax(self.config.n2.fastwire, peer, former.adaptation);
                    self.n2.links.adopt(now, former, syntax, name);
                    // What the primary before had not released may be unknown to this one. What it knows, it drops as a duplicate.
                    transport.resume(now, former.association, Resume::After(0));
                }
                _ if knows => transport.resume(now, former.association, Resume::AsNew),
                _ => transport.abort(now, former.association),
            }
        }
        transport.settle();
        let (all, others) = (adopted.len(), adopted.len() - continued);
        info!(continued, others, "this CTA goes on with {all} associations of gNBs");
    }

    /// Takes what SCTP reports. Returns whether there was anything.
    pub(super) fn receive_n2(&mut self, now: Instant) -> bool {
        let Some(transport) = &mut self.n2.transport else { return false };
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
                if let Some(name) = self.n2.links.down(association) {
                    self.handle_input(now, Input::AssociationDown(name));
                    self.deliver(now); // the end of the former association comes before the new one
                }
                let syntax = n2::syntax(self.config.n2.fastwire, link.peer, adaptation);
                let physical = self.n2.links.up(now, association, link.peer, outbound_streams, syntax);
                self.new_association(now, physical);
            }
            Event::PathDown { remote, .. } => warn!(%remote, "a path of an SCTP association does not answer"),
            Event::PathUp { remote, .. } => debug!(%remote, "a path of an SCTP association answers"),
            Event::Refused { .. } => debug!(?event, "SCTP refused a request"),
            Event::Unacknowledged { .. } => {} // procedures repeat what their UE did not get
        }
        self.deliver(now);
    }

    /// An association is a new one to the CTA.
    fn new_association(&mut self, now: Instant, physical: LocalAssociation) -> AssociationId {
        let name = self.n2.links.name_it(physical);
        if let Some(link) = self.n2.links.link(physical) {
            if let Some(transport) = &mut self.n2.transport {
                transport.set_label(link.sctp, label_of(name));
            }
            self.observer.association_up(name, &link.peer.to_string());
            let outbound_streams = link.outbound_streams;
            self.handle_input(now, Input::AssociationUp { association: name, outbound_streams });
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

    /// Aborts an SCTP association. The CTA has forgotten it, or the caller reports it down.
    pub(super) fn abort(&mut self, now: Instant, name: AssociationId) {
        if let (Some(link), Some(transport)) = (self.n2.links.forget(name), &mut self.n2.transport) {
            transport.abort(now, link.sctp);
        }
    }

    /// Acknowledges gNBs' messages whose inputs can no longer be lost with this host: gNBs need not send them to another CTA.
    pub(super) fn acknowledge(&mut self) {
        let (safe, Some(transport)) = (self.active.safe(), &mut self.n2.transport) else { return };
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
