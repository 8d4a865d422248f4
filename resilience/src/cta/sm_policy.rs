//! Requests of UEs to the PCF, and its orders.

use whimbrel_control::envelope::Payload;
use whimbrel_control::sm_policy::{PolicyAnswer, PolicyNotification, PolicyRequest};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{OutputId, UeId};
use whimbrel_ids::PduSessionId;

use super::{Cta, Entropy, Inspect};

/// A request of a UE to the PCF.
#[derive(Clone, Debug)]
pub struct PolicyQuery {
    /// The UE whose session it is.
    pub ue: UeId,
    /// The output that the answer names.
    pub to: OutputId,
    /// Operation of the PCF.
    pub request: PolicyRequest,
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// The PCF has answered, or was not reached.
    pub(super) fn pcf_answered(&mut self, ue: UeId, to: OutputId, answer: Box<PolicyAnswer>) {
        if self.is_served(ue) {
            self.inbox.push_back((ue, Payload::Policy { to, answer }));
        }
    }

    /// The PCF has an order for a session.
    pub(super) fn pcf_notified(
        &mut self,
        ue: UeId,
        psi: PduSessionId,
        notification: Box<PolicyNotification>,
    ) {
        if self.is_served(ue) {
            self.inbox.push_back((ue, Payload::PolicyNotified { psi, notification }));
        }
    }
}
