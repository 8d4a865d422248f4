//! PATH SWITCH REQUESTs without an answer: they are answered with a failure if the UE is discarded (TS 38.413 §8.4.4.3).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{AssociationId, N2Names, UeId, amf};
use whimbrel_ids::RanUeNgapId;
use whimbrel_ngap::{Message, Peek};

use super::{Cta, Entropy, Inspect, Outbox, is_of_path_switch, send};

/// A PATH SWITCH REQUEST without an answer.
#[derive(Serialize, Deserialize)]
struct PathSwitch {
    association: AssociationId,
    stream: u16,
    /// The RAN-UE-NGAP-ID in it.
    name: Option<RanUeNgapId>,
    octets: Arc<[u8]>,
}

/// The last one of each UE: if several gNBs ask, the UE is at the last.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct PathSwitches(BTreeMap<UeId, PathSwitch>);

impl PathSwitches {
    pub(super) fn insert(
        &mut self,
        ue: UeId,
        (association, stream): (AssociationId, u16),
        peek: &Peek,
        octets: &Arc<[u8]>,
    ) {
        let name = peek.ran_ue_ngap_id;
        self.0.insert(ue, PathSwitch { association, stream, name, octets: octets.clone() });
    }

    /// No answer is due any more.
    pub(super) fn settled(&mut self, ue: UeId) {
        self.0.remove(&ue);
    }

    /// A message of the UE leaves: it may be the answer.
    pub(super) fn leaves(&mut self, ue: UeId, to: AssociationId, octets: &[u8]) {
        let waits = self.0.get(&ue).is_some_and(|p| p.association == to);
        if waits && whimbrel_ngap::peek(octets).is_some_and(|p| is_of_path_switch(&p)) {
            self.settled(ue);
        }
    }

    /// An association is gone, and its requests with it.
    pub(super) fn lost(&mut self, association: AssociationId) {
        self.0.retain(|_, p| p.association != association);
    }

    /// Whether a connection of the UE is the one that waits.
    pub(super) fn is_of(&self, ue: UeId, names: &N2Names) -> bool {
        let waits = self.0.get(&ue);
        waits.is_some_and(|p| p.association == names.association && p.name == names.ran_ue_ngap_id)
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// The UE is discarded: answers its path switch with a failure.
    pub(super) fn refuse_path_switch(&mut self, ue: UeId, out: &mut Outbox) {
        let Some(PathSwitch { association, stream, octets, .. }) = self.path_switches.0.remove(&ue) else {
            return;
        };
        if let Ok(Message::PathSwitchRequest(m)) = Message::decode(&octets) {
            send(association, stream, &amf::build_failure_after_release(&m), out);
        }
    }
}
