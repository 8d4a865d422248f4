//! NG Reset: TS 38.413 §8.7.4.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{Cause, ResetAll, ResetType, UeAssociatedLogicalNgConnectionItem};
use whimbrel_ngap::msg::{NgReset, NgResetAcknowledge};

use super::{ANSWER_WITHIN, RanNodes, RanOutput, Reset};
use crate::envelope::AssociationId;
use crate::event::{RanEvent, ResetBy};

/// Unanswered resets of the AMF after which the next one resets the whole interface.
const UNANSWERED_MAX: usize = 16;

/// The most connections that one partial reset names (maxnoofNGConnectionsToReset, TS 38.413 §9.3.1.148).
const CONNECTIONS_MAX: usize = 65_536;

/// Resets sent to a gNB that it has not acknowledged, oldest first, and how often each was sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Resets(VecDeque<SentReset>);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SentReset {
    what: ResetType,
    due: Instant,
    repeated: bool,
}

impl Resets {
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.front().map(|s| s.due)
    }
}

/// §8.7.4.2.2: the connections are released here, then the reset is acknowledged.
pub(super) fn by_gnb(m: NgReset, out: &mut RanOutput) {
    out.reset = Some(Reset { what: m.reset_type, acknowledge: true, by: ResetBy::Gnb });
}

/// The acknowledgement of a gNB's reset, sent after the last release: it lists the same connections as the reset, known
/// or not.
pub fn reset_acknowledge(reset: ResetType) -> Message {
    let list: Vec<UeAssociatedLogicalNgConnectionItem> = match reset {
        ResetType::NgInterface(_) => Vec::new(),
        ResetType::PartOfNgInterface(list) => list,
    };
    let mut acknowledge = NgResetAcknowledge::new();
    acknowledge.ue_associated_logical_ng_connection_list = list;
    acknowledge.into()
}

impl RanNodes {
    /// §8.7.4.2.1: the operator resets these connections of a gNB; an empty list means all.
    pub fn reset(
        &mut self,
        now: Instant,
        association: AssociationId,
        cause: impl Into<Cause>,
        mut connections: Vec<UeAssociatedLogicalNgConnectionItem>,
    ) -> RanOutput {
        let mut out = RanOutput::default();
        let Some(node) = self.nodes.get_mut(&association).filter(|n| n.gnb.is_some()) else { return out };
        connections.truncate(CONNECTIONS_MAX);
        let whole = connections.is_empty() || node.resets.0.len() >= UNANSWERED_MAX;
        let what = match whole {
            true => ResetType::NgInterface(ResetAll::ResetAll),
            false => ResetType::PartOfNgInterface(connections),
        };
        if whole {
            // It includes all unanswered resets.
            node.resets.0.clear();
            out.reset = Some(Reset { what: what.clone(), acknowledge: false, by: ResetBy::Operator });
        }
        node.resets.0.push_back(SentReset { what: what.clone(), due: now + ANSWER_WITHIN, repeated: false });
        out.messages.push((association, NgReset::new(cause.into(), what).into()));
        out
    }

    /// §8.7.4.2.1: acknowledgements come in the order of the resets.
    pub(super) fn reset_acknowledged(
        &mut self,
        association: AssociationId,
        _: &NgResetAcknowledge,
        out: &mut RanOutput,
    ) {
        let sent = self.nodes.get_mut(&association).and_then(|n| n.resets.0.pop_front());
        if sent.is_some() {
            out.events.push(RanEvent::ResetAcknowledged { association });
        }
    }

    /// A reset is repeated once; after that no answer is awaited.
    pub(super) fn resets_due(&mut self, now: Instant, out: &mut RanOutput) {
        for (&association, node) in &mut self.nodes {
            while node.resets.due().is_some_and(|due| due <= now)
                && let Some(mut sent) = node.resets.0.pop_front()
            {
                if sent.repeated {
                    out.events.push(RanEvent::ResetUnacknowledged { association });
                    continue;
                }
                (sent.repeated, sent.due) = (true, now + ANSWER_WITHIN);
                let cause = whimbrel_ngap::ie::CauseMisc::Unspecified.into();
                out.messages.push((association, NgReset::new(cause, sent.what.clone()).into()));
                node.resets.0.push_back(sent);
            }
        }
    }
}
