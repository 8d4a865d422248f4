//! Error Indication that concerns no UE: TS 38.413 §8.7.5, §10.5.

use whimbrel_ids::Instant;
use whimbrel_ngap::ie::Cause;
use whimbrel_ngap::msg::ErrorIndication;

use super::{RanNodes, RanOutput};
use crate::envelope::AssociationId;
use crate::event::RanEvent;

/// ERROR INDICATIONs a second to one gNB: bounds two peers that answer each other's errors.
const SENT_PER_S: u32 = 100;

/// Logged ERROR INDICATIONs a second of one gNB: a faulty gNB does not fill the log.
const LOGGED_PER_S: u32 = 10;

/// An ERROR INDICATION for a message that names no UE, or a wrong one.
pub(crate) fn error_indication(cause: impl Into<Cause>) -> ErrorIndication {
    let mut m = ErrorIndication::new();
    m.cause = Some(cause.into());
    m
}

impl RanNodes {
    /// ERROR INDICATION from a gNB. It is never answered (§10.3.1).
    pub(super) fn error_indicated(
        &mut self,
        now: Instant,
        association: AssociationId,
        m: &ErrorIndication,
        out: &mut RanOutput,
    ) {
        let logged =
            self.nodes.get_mut(&association).is_some_and(|n| n.errors_logged.take(now, LOGGED_PER_S));
        if !logged {
            let limit = "error_indications_received";
            return out.events.push(RanEvent::Limited { association: Some(association), limit });
        }
        let cause = m.cause.as_ref().map_or_else(|| "no cause".to_owned(), ToString::to_string);
        out.events.push(RanEvent::ErrorIndication { association, cause });
    }

    /// Whether a gNB may be sent one more ERROR INDICATION.
    pub fn may_send_error_indication(&mut self, now: Instant, association: AssociationId) -> bool {
        self.nodes.get_mut(&association).is_some_and(|n| n.errors_sent.take(now, SENT_PER_S))
    }

    /// Answers a faulty message with ERROR INDICATION and reports it.
    pub(super) fn refuse_message(
        &mut self,
        now: Instant,
        association: AssociationId,
        answer: Option<ErrorIndication>,
        what: &str,
        out: &mut RanOutput,
    ) {
        if !self.may_send_error_indication(now, association) {
            let limit = "error_indications";
            return out.events.push(RanEvent::Limited { association: Some(association), limit });
        }
        out.messages.extend(answer.map(|m| (association, m.into())));
        out.events.push(RanEvent::Refused { association, what: what.to_owned() });
    }
}
