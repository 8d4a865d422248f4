//! Questions to brokers: UEs of one gNB may cause so many a second. A flood of SUCIs behind one gNB must not make this operator flood
//! brokers, nor take the service of users at other gNBs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use whimbrel_control::amf::Rate;
use whimbrel_control::envelope::Payload;
use whimbrel_control::open::{BrokerAnswer, BrokerQuestion, Unreachable};
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{AssociationId, OutputId, UeId};
use whimbrel_ids::Instant;

use super::{Cta, Entropy, Inspect, Outbox};

/// What each gNB has left. UEs whose gNB has gone share a budget.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Questions(BTreeMap<Option<AssociationId>, Rate>);

impl Questions {
    /// An association ended: the next one begins with a full budget.
    pub(super) fn lost(&mut self, association: AssociationId) {
        self.0.remove(&Some(association));
    }

    fn take(&mut self, now: Instant, gnb: Option<AssociationId>, per_s: u32) -> bool {
        self.0.entry(gnb).or_default().take(now, per_s)
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// Passes a question on, or answers that there are too many.
    pub(super) fn ask_broker(
        &mut self,
        now: Instant,
        gnb: Option<AssociationId>,
        (ue, to, request): (UeId, OutputId, BrokerQuestion),
        out: &mut Outbox,
    ) {
        let (open, veil) = (self.config.open.as_ref(), self.config.veil.as_ref());
        let per_s = match &request {
            BrokerQuestion::Sap(_) => open.map_or(0, |open| open.questions_per_gnb),
            BrokerQuestion::Veil(_) | BrokerQuestion::VeilHome(_) => {
                veil.map_or(0, |veil| veil.questions_per_gnb)
            }
        };
        if self.questions.take(now, gnb, per_s) {
            return out.brokers.push((ue, to, request));
        }
        self.inbox
            .push_back((ue, Payload::Broker { to, answer: BrokerAnswer::Unreachable(Unreachable::Busy) }));
        self.limited(now, gnb, "questions_per_gnb", out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gnb_that_exceeds_its_budget_takes_nothing_from_another() {
        let mut questions = Questions::default();
        let (a, b) = (Some(AssociationId(1)), Some(AssociationId(2)));
        let now = Instant(1_000_000);
        assert_eq!([a, a, a, b].map(|gnb| questions.take(now, gnb, 2)), [true, true, false, true]);
        assert!(questions.take(Instant(2_000_000), a, 2));
        questions.take(Instant(2_000_000), a, 2);
        questions.lost(AssociationId(1));
        assert!(questions.take(Instant(2_000_000), a, 2));
    }
}
