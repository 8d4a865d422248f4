//! Requests of UEs to another vendor's SMF, and its orders.

use whimbrel_control::envelope::Payload;
use whimbrel_control::sm_contexts::{SmfAnswer, SmfOrder, SmfRequest};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{OutputId, UeId};
use whimbrel_ids::PduSessionId;

use super::{Cta, Entropy, Inspect};

/// A request of a UE to another vendor's SMF.
#[derive(Clone, Debug)]
pub struct SmfQuery {
    /// The UE whose session it is.
    pub ue: UeId,
    /// The output that the answer names.
    pub to: OutputId,
    /// Operation of the SMF.
    pub request: SmfRequest,
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// The SMF has answered, or was not reached.
    pub(super) fn smf_answered(&mut self, ue: UeId, to: OutputId, psi: PduSessionId, answer: Box<SmfAnswer>) {
        if self.is_served(ue) {
            self.inbox.push_back((ue, Payload::SmContext { to, psi, answer }));
        }
    }

    /// The SMF has an order for a session.
    pub(super) fn smf_ordered(&mut self, ue: UeId, psi: PduSessionId, order: Box<SmfOrder>) {
        if self.is_served(ue) {
            self.inbox.push_back((ue, Payload::SmfOrdered { psi, order }));
        }
    }
}
