//! Planned removal of this AMF (TS 23.501 §5.21.2.2.1): its UEs go to another AMF of the set, the connected ones with their connections. Then gNBs get AMF
//! STATUS INDICATION. UEs that are left, as their gNBs are not connected to the other AMF, are released when no procedure runs, and go too.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::amf::PeerAmfId;
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{Command, Payload, UeId};
use whimbrel_ids::{GlobalGnbId, Instant};

use super::{Cta, Entropy, Inspect, Outbox};

/// UEs that one slice orders to go: each takes some messages to the other AMF and to its UPF.
const SLICE: usize = 32;
/// Pause between two slices: 3,200 UEs a second.
const BETWEEN_SLICES: Duration = Duration::from_millis(10);
/// Pause between two rounds over all UEs, for procedures to end.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(100);

/// A removal that goes on.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Removal {
    to: PeerAmfId,
    /// The slot at which the next slice begins.
    next: u32,
    due: Instant,
    began: Instant,
    /// Rounds over all UEs until now.
    rounds: u8,
    /// A UE that is still connected was found in this round.
    connected_left: bool,
    /// gNBs have AMF STATUS INDICATION: connected UEs are released.
    announced: bool,
}

/// Rounds before gNBs are informed: a procedure that runs in the first may have ended in the last.
const ROUNDS_BEFORE: u8 = 4;
/// How much later they are informed while a connected UE is left, such as one with packet forwarding after a handover: from then on gNBs send the messages of its connection
/// to the other AMF. A UE that has gone can be reached by way of this AMF for longer (`REPEAT_ANSWER` in control/src/amf/n14/source.rs).
const CONNECTED_FOR: Duration = Duration::from_secs(2);

/// How far a removal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalProgress {
    /// The AMF that takes the UEs over.
    pub to: PeerAmfId,
    /// UEs that are still here.
    pub left: usize,
    /// gNBs were informed that this AMF is not available any more.
    pub announced: bool,
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// This AMF is to be removed, and this one of the set takes its UEs over; or the removal ends, and this AMF serves on.
    pub fn remove(&mut self, now: Instant, to: Option<PeerAmfId>, out: &mut Outbox) {
        let successor = to.and_then(|to| self.config.amf.peer_amfs.get(usize::from(to.0)));
        let name = successor.filter(|peer| self.config.amf.is_of_set(peer.amf_id)).map(|p| p.name.clone());
        let to = to.filter(|_| name.is_some());
        self.removal = to.map(|to| Removal {
            to,
            next: 0,
            due: now,
            began: now,
            rounds: 0,
            connected_left: false,
            announced: false,
        });
        let result = self.ran.hand_over_to(now, name);
        self.operator_output(now, result, out);
    }

    /// How far the removal is, if there is one.
    pub fn removal(&self) -> Option<RemovalProgress> {
        let Removal { to, announced, .. } = self.removal?;
        Some(RemovalProgress { to, left: self.slots.used(), announced })
    }

    pub(super) fn removal_due(&self) -> Option<Instant> {
        self.removal.map(|r| r.due)
    }

    /// The next slice of UEs is ordered to go.
    pub(super) fn continue_removal(&mut self, now: Instant, out: &mut Outbox) {
        let Some(mut removal) = self.removal.filter(|r| r.due <= now) else { return };
        let (ues, end) = self.slots.authenticated_from(removal.next, SLICE);
        for &ue in &ues {
            removal.connected_left |= self.slots.names(ue).next().is_some();
            let at = self.slots.names(ue).next();
            let gnb = at.and_then(|at| self.ran.get(at.association)?.gnb).filter(|_| !removal.announced);
            if at.is_none() || gnb.is_some() || removal.announced {
                self.order_to_go(ue, removal.to, gnb);
            }
        }
        match end {
            Some(next) => (removal.next, removal.due) = (next, now + BETWEEN_SLICES),
            None => {
                removal.rounds = removal.rounds.saturating_add(1);
                let connected_left = removal.connected_left;
                removal.connected_left = false;
                let is_late = now >= removal.began + CONNECTED_FOR;
                let is_time = removal.rounds >= ROUNDS_BEFORE && (!connected_left || is_late);
                if is_time && !removal.announced {
                    removal.announced = true;
                    let result = self.ran.retire();
                    self.operator_output(now, result, out);
                }
                (removal.next, removal.due) = (0, now + BETWEEN_ROUNDS);
            }
        }
        self.removal = Some(removal);
        self.run(now, out);
    }

    /// A UE became idle while this AMF is being removed: it goes before it comes back.
    pub(super) fn relocate_idle(&mut self, ue: UeId, was_connected: bool) {
        if let Some(removal) = self.removal.filter(|r| r.announced)
            && was_connected
            && self.slots.names(ue).next().is_none()
        {
            self.order_to_go(ue, removal.to, None);
        }
    }

    fn order_to_go(&mut self, ue: UeId, to: PeerAmfId, gnb: Option<GlobalGnbId>) {
        self.inbox.push_back((ue, Payload::Command(Command::Relocate { to, gnb })));
    }
}
