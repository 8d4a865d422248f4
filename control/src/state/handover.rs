//! The gNB that takes a connected UE over, as long as it is not certain that it does.
//!
//! A UE in handover has two N2 connections: the one that serves it, and that of the target. What is kept of the second
//! stands in the UE's context, so that whatever ends the handover can release the target.

use serde::{Deserialize, Serialize};
use whimbrel_ids::{AmfUeNgapId, PduSessionId, RanUeNgapId};
use whimbrel_nas::mm;
use whimbrel_ngap::msg::PathSwitchRequest;

use super::amf_context::Security;
use crate::envelope::{AssociationId, HandoverTarget};

/// The target's end of a handover.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    /// The gNB's association.
    pub association: AssociationId,
    /// Our name of the UE there.
    pub amf_ue_ngap_id: AmfUeNgapId,
    /// The gNB's identity of it, once known.
    pub ran_ue_ngap_id: Option<RanUeNgapId>,
    /// The serving gNB is gone: the UE has nowhere else to be.
    pub source_lost: bool,
    /// How the UE comes there.
    pub(crate) by: By,
    /// NAS messages that are sent when the handover has ended.
    pub(crate) held: Vec<(mm::Message, Security)>,
    /// The UE has gone on from here already. Nothing travels that is at something, so neither does this.
    #[serde(skip)]
    pub(crate) further: Option<QueuedPathSwitch>,
}

impl Target {
    /// The gNB that a source names for a handover through the core.
    pub(crate) fn asked_for(to: &HandoverTarget) -> Self {
        Self {
            association: to.association,
            amf_ue_ngap_id: to.amf_ue_ngap_id,
            ran_ue_ngap_id: None,
            source_lost: false,
            by: By::N2(Phase::Waiting),
            held: Vec::new(),
            further: None,
        }
    }
}

/// A gNB to which the UE went from its target, over Xn: its PATH SWITCH REQUEST has overtaken the target's HANDOVER NOTIFY,
/// which comes over another association, and waits for that one (TS 23.502 §4.9.1.2.2, §4.9.1.3.3 step 5).
#[derive(Clone, Debug)]
pub(crate) struct QueuedPathSwitch {
    /// The gNB's association.
    pub(crate) association: AssociationId,
    /// What it asks for.
    pub(crate) request: Box<PathSwitchRequest>,
}

/// How a UE comes to its target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum By {
    /// Over Xn: it is there already and wants these sessions' paths switched (TS 38.413 §8.4.4).
    PathSwitch(Vec<PduSessionId>),
    /// Through the core (TS 38.413 §8.4.1 to §8.4.3).
    N2(Phase),
}

impl By {
    pub(crate) fn phase(&self) -> Option<Phase> {
        match self {
            By::PathSwitch(_) => None,
            By::N2(phase) => Some(*phase),
        }
    }

    /// Whether the UE is where it was: its source awaits the answer to HANDOVER REQUIRED.
    pub(crate) fn is_at_source(&self) -> bool {
        matches!(self, By::N2(Phase::Waiting | Phase::Preparing))
    }
}

/// How far an N2 handover is (TS 23.502 §4.9.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// The target was not asked yet: a session to be handed over is being set up at the source.
    Waiting,
    /// The target is being asked (§4.9.1.3.2): the UE is at its source.
    Preparing,
    /// HANDOVER COMMAND was sent (§4.9.1.3.3): the UE is at either gNB.
    Executing,
}
