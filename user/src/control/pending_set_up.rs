//! ASSOCIATION SETUP REQUESTs that would end the sessions of an SMF that lives, or take its association elsewhere. One datagram with the
//! SMF's node identity could do so, and TS 29.244 §6.2.6.2.2 names no proof of the sender. The SMF that has the association is therefore
//! asked first, by a HEARTBEAT REQUEST: it alone knows whether it has restarted (TS 23.527 §4.2).

use std::net::{IpAddr, SocketAddr};

use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::{Cause, CpFunctionFeatures, NodeId, RecoveryTimeStamp};
use whimbrel_pfcp::msg::{AssociationSetupRequest, HeartbeatRequest};

use super::association::addresses;
use super::replies::ReplyKey;
use super::{Outbox, UpfC};
use crate::event::Event;
use crate::limits::{PENDING_SET_UPS_MAX, PENDING_SET_UPS_PER_ASSOCIATION_MAX};

/// An ASSOCIATION SETUP REQUEST, as far as it matters here.
pub(super) struct SetUp {
    pub(super) key: ReplyKey,
    pub(super) node: NodeId,
    pub(super) recovery: RecoveryTimeStamp,
    pub(super) features: Option<CpFunctionFeatures>,
    pub(super) alternatives: Vec<IpAddr>,
    pub(super) smf_set: Option<Box<str>>,
    /// The sessions are to be retained.
    pub(super) retains: bool,
}

impl SetUp {
    pub(super) fn of(key: ReplyKey, m: AssociationSetupRequest) -> Self {
        Self {
            key,
            recovery: m.recovery_time_stamp,
            features: m.cp_function_features,
            alternatives: addresses(&m.alternative_smf_ip_addresses, key.peer.ip()),
            smf_set: m.smf_set_id.map(|set| set.0),
            retains: m.session_retention_information.is_some(),
            node: m.node_id,
        }
    }
}

/// One that waits for the answer of the SMF that has the association.
pub(super) struct PendingSetUp {
    pub(super) set_up: SetUp,
    /// The Recovery Time Stamp of the association when the request came.
    known: RecoveryTimeStamp,
    /// The sequence number of the HEARTBEAT REQUEST.
    heartbeat: u32,
}

impl UpfC {
    /// Lets a request wait until the SMF at `holder`, which has the association, is asked; `known`: its Recovery Time Stamp.
    pub(super) fn ask_holder(
        &mut self,
        now: Instant,
        (holder, known): (SocketAddr, RecoveryTimeStamp),
        set_up: SetUp,
        out: &mut Outbox,
    ) {
        let peer = set_up.key.peer;
        let of_node = |p: &PendingSetUp| p.set_up.node == set_up.node;
        // The same peer asks again, under another number: its former request is superseded.
        if let Some(p) = self.pending_set_ups.iter_mut().find(|p| of_node(p) && p.set_up.key.peer == peer) {
            self.replies.keep(now, set_up.key, None);
            (p.set_up, p.known) = (set_up, known);
            return;
        }
        if self.pending_set_ups.iter().filter(|p| of_node(p)).count() >= PENDING_SET_UPS_PER_ASSOCIATION_MAX {
            // What comes from the holder's own address is never kept out by others.
            let other = |p: &PendingSetUp| of_node(p) && p.set_up.key.peer.ip() != holder.ip();
            match self.pending_set_ups.iter().position(other) {
                Some(oldest) if peer.ip() == holder.ip() => {
                    let evicted = self.pending_set_ups.remove(oldest);
                    self.refuse_set_up(now, evicted.set_up, Cause::NoResourcesAvailable, out);
                }
                _ => return self.refuse_set_up(now, set_up, Cause::NoResourcesAvailable, out),
            }
        }
        let request = HeartbeatRequest { recovery_time_stamp: self.recovery }.into();
        let sent = match self.pending_set_ups.len() < PENDING_SET_UPS_MAX {
            true => self.requests.send(now, holder, &request, out),
            false => None,
        };
        match sent {
            Some(heartbeat) => {
                self.replies.keep(now, set_up.key, None);
                self.pending_set_ups.push(PendingSetUp { set_up, known, heartbeat });
            }
            None => self.refuse_set_up(now, set_up, Cause::NoResourcesAvailable, out),
        }
    }

    /// The SMF that has an association has answered the HEARTBEAT REQUEST of this number. If the Recovery Time Stamp is the request's and
    /// not the known one, the SMF has restarted and the request is its own; in any other case the SMF lives and keeps what it has.
    pub(super) fn holder_answered(
        &mut self,
        now: Instant,
        heartbeat: u32,
        at: RecoveryTimeStamp,
        out: &mut Outbox,
    ) {
        for PendingSetUp { set_up, known, .. } in self.take_pending(|p| p.heartbeat == heartbeat) {
            let holder = self.associations.get(&set_up.node).map(|a| a.peer.ip());
            let is_restart = at == set_up.recovery && at != known;
            if at != known {
                self.note_abandoned(now, &set_up.node);
            }
            // A Recovery Time Stamp is no secret: any host may ask for it. Hence the address, too. An SMF that has moved, and whose former
            // address another node has, gets the association when that one has not set it up in time ([`Self::set_up`]).
            match holder.is_none_or(|holder| is_restart && holder == set_up.key.peer.ip()) {
                true => self.grant(now, set_up, false, out),
                false => {
                    let (node, peer) = (set_up.node.clone(), set_up.key.peer);
                    out.events.push(Event::AssociationContested { node, peer });
                    self.refuse_set_up(now, set_up, Cause::RequestRejected, out);
                }
            }
        }
    }

    /// The SMF at this address has left a HEARTBEAT REQUEST unanswered: the first that asks for an association of it gets it.
    pub(super) fn holder_is_silent(&mut self, now: Instant, holder: SocketAddr, out: &mut Outbox) {
        let of = |node: &NodeId| self.associations.get(node).is_none_or(|a| a.peer == holder);
        let nodes: Vec<NodeId> =
            self.pending_set_ups.iter().map(|p| p.set_up.node.clone()).filter(of).collect();
        let mut granted: Vec<NodeId> = Vec::new();
        for p in self.take_pending(|p| nodes.contains(&p.set_up.node)) {
            if granted.contains(&p.set_up.node) {
                self.refuse_set_up(now, p.set_up, Cause::RequestRejected, out);
                continue;
            }
            granted.push(p.set_up.node.clone());
            let retains = p.set_up.retains;
            self.grant(now, p.set_up, retains, out);
        }
    }

    pub(super) fn take_pending(&mut self, is_taken: impl Fn(&PendingSetUp) -> bool) -> Vec<PendingSetUp> {
        self.pending_set_ups.extract_if(.., |p| is_taken(p)).collect()
    }

    pub(super) fn refuse_set_up(&mut self, now: Instant, set_up: SetUp, cause: Cause, out: &mut Outbox) {
        let response = self.set_up_response(cause, None);
        self.answer(now, set_up.key, None, &response.into(), out);
    }
}
