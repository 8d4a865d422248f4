//! UEs that AMFs of other vendors serve: their requests about SM contexts, and what the SMF asks of them. Such a UE has a slot of its own, found by
//! its SUPI, as long as it has SM contexts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use whimbrel_control::envelope::Payload;
use whimbrel_control::remote_amf::{
    AmfRequest, N2SmKind, SmContextAnswer, SmContextError, SmContextExchange, SmContextOperation,
    SmContextRequest, TransferAnswer,
};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{AssociationId, Command, OutputId, UeId};
use whimbrel_ids::{Instant, Supi};

use super::{Cta, Entropy, Inspect, Outbox};

/// The association of unauthenticated UEs, by which those of other AMFs are counted until they have an SM context: no gNB has it.
pub(super) const NO_GNB: AssociationId = AssociationId(0);

/// A request to the AMF of a UE.
#[derive(Clone, Debug)]
pub struct AmfQuery {
    /// The UE of the session.
    pub ue: UeId,
    /// The output that it is.
    pub to: OutputId,
    /// Operation of the AMF.
    pub request: AmfRequest,
}

/// The UEs of other AMFs, by their subscribers.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct RemoteUes {
    by_supi: BTreeMap<Supi, UeId>,
    by_ue: BTreeMap<UeId, Supi>,
}

impl RemoteUes {
    pub(super) fn insert(&mut self, supi: Supi, ue: UeId) {
        self.by_supi.insert(supi, ue);
        self.by_ue.insert(ue, supi);
    }

    /// A UE is gone.
    pub(super) fn remove(&mut self, ue: UeId) {
        let Some(supi) = self.by_ue.remove(&ue) else { return };
        if self.by_supi.get(&supi) == Some(&ue) {
            self.by_supi.remove(&supi);
        }
    }

    fn get(&self, supi: Supi) -> Option<UeId> {
        self.by_supi.get(&supi).copied()
    }

    fn contains(&self, ue: UeId) -> bool {
        self.by_ue.contains_key(&ue)
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// A request of an AMF. One that reaches no UE is answered here.
    pub(super) fn sm_context_requested(
        &mut self,
        now: Instant,
        request: Box<SmContextRequest>,
        out: &mut Outbox,
    ) {
        let exchange = request.exchange;
        match self.ue_of(now, &request.operation, out) {
            Ok(ue) => self.inbox.push_back((ue, Payload::SmContextRequested(request))),
            // The session has ended with the UE's message, which came before the gNB's.
            Err(SmContextError::ContextNotFound) if is_release_response(&request.operation) => {
                out.sm_context_answers.push((exchange, SmContextAnswer::Updated(Box::default()).into()));
            }
            Err(error) => refuse(exchange, error, out),
        }
    }

    fn ue_of(
        &mut self,
        now: Instant,
        operation: &SmContextOperation,
        out: &mut Outbox,
    ) -> Result<UeId, SmContextError> {
        let (known, supi) = match operation {
            SmContextOperation::Create(creation) => (self.remote_ues.get(creation.supi), Some(creation.supi)),
            SmContextOperation::Update(reference, _)
            | SmContextOperation::Release(reference)
            | SmContextOperation::TransferFailed(reference) => {
                let named = UeId::from_seid(*reference).map(|(ue, _)| ue);
                (named.filter(|ue| self.remote_ues.contains(*ue)), None)
            }
        };
        match (known, supi) {
            (Some(ue), _) if self.is_served(ue) => Ok(ue),
            (Some(_), _) => Err(SmContextError::Congestion),
            (None, None) => Err(SmContextError::ContextNotFound),
            (None, Some(supi)) => {
                let limits = self.config.limits;
                let room = self.slots.unauthenticated_ues() < limits.unauthenticated_ues;
                let ue = room.then(|| self.slots.allocate(limits.ues, NO_GNB)).flatten();
                let ue = ue.ok_or(SmContextError::InsufficientResources)?;
                if !self.can_place(ue) {
                    self.vacate(now, ue, out);
                    return Err(SmContextError::Congestion);
                }
                self.remote_ues.insert(supi, ue);
                Ok(ue)
            }
        }
    }

    /// An AMF has answered, or was not reached.
    pub(super) fn amf_answered(&mut self, ue: UeId, answer: TransferAnswer) {
        if self.remote_ues.contains(ue) && self.is_served(ue) {
            self.inbox.push_back((ue, Payload::TransferAnswered(answer)));
        }
    }

    /// The UEs of other AMFs whose subscriptions have changed; all of them with `None`.
    pub(super) fn notify_remote_ues(&mut self, changed: Option<&[Supi]>) {
        let ues: Vec<UeId> = match changed {
            Some(supis) => supis.iter().filter_map(|supi| self.remote_ues.get(*supi)).collect(),
            None => self.remote_ues.by_ue.keys().copied().collect(),
        };
        let notice = |ue| (ue, Payload::Command(Command::SubscriptionChanged));
        self.inbox.extend(ues.into_iter().map(notice));
    }

    /// The UE whose sessions this SMF has: of another AMF, or registered here.
    pub fn find_sessions(&self, supi: Supi) -> Option<UeId> {
        self.remote_ues.get(supi).or_else(|| self.find(supi))
    }

    /// UEs of other AMFs.
    pub fn remote_ues(&self) -> usize {
        self.remote_ues.by_ue.len()
    }
}

fn is_release_response(operation: &SmContextOperation) -> bool {
    let SmContextOperation::Update(_, update) = operation else { return false };
    matches!(update.n2, Some((N2SmKind::PduResRelRsp, _))) && !update.release
}

fn refuse(exchange: SmContextExchange, error: SmContextError, out: &mut Outbox) {
    let answer = SmContextAnswer::Refused { error, n1: None, n2: None };
    out.sm_context_answers.push((exchange, answer.into()));
}
