//! gNBs that wait for a UE's paths: what they are told if nobody goes on with the UE (TS 38.413 §8.4.4.3).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{AssociationId, N2Names, UeId, amf};
use whimbrel_ids::RanUeNgapId;
use whimbrel_ngap::{Message, Peek};

use super::{Cta, Entropy, Inspect, Outbox, is_of_path_switch, send};

/// PATH SWITCH REQUEST that has no answer yet.
#[derive(Serialize, Deserialize)]
struct PathSwitch {
    association: AssociationId,
    stream: u16,
    /// What the gNB calls the UE.
    name: Option<RanUeNgapId>,
    octets: Arc<[u8]>,
}

/// The last one of each UE: where several gNBs want it, that is where it is.
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

    /// Nobody waits any more.
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

    /// An association is gone, and who waited there with it.
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
    /// Nobody goes on with the UE: who waits for its paths gets none.
    pub(super) fn refuse_path_switch(&mut self, ue: UeId, out: &mut Outbox) {
        let Some(PathSwitch { association, stream, octets, .. }) = self.path_switches.0.remove(&ue) else {
            return;
        };
        if let Ok(Message::PathSwitchRequest(m)) = Message::decode(&octets) {
            send(association, stream, &amf::came_too_late(&m), out);
        }
    }
}
