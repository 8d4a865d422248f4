//! The target gNB of a handover, until the UE has arrived.
//!
//! A UE in handover has two N2 connections: the serving one, and that of the target. The second is stored in the UE's
//! context, so that any procedure that ends the handover can release the target.

use serde::{Deserialize, Serialize};
use whimbrel_ids::{AmfUeNgapId, GlobalGnbId, Instant, PduSessionId, RanUeNgapId, Tai};
use whimbrel_nas::mm;
use whimbrel_ngap::ie::Cause;
use whimbrel_ngap::msg::{HandoverRequestAcknowledge, HandoverRequired, PathSwitchRequest};

use super::amf_context::DownlinkProtection;
use crate::envelope::{AssociationId, HandoverTarget};

/// The target's end of a handover.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    /// The gNB's association.
    pub association: AssociationId,
    /// The AMF's identifier of the UE there.
    pub amf_ue_ngap_id: AmfUeNgapId,
    /// The gNB's identifier of it, once known.
    pub ran_ue_ngap_id: Option<RanUeNgapId>,
    /// The serving gNB is lost: if the handover fails, the UE is idle.
    pub source_lost: bool,
    /// The kind of handover.
    pub(crate) by: HandoverKind,
    /// Held NAS messages, sent when the handover has ended.
    pub(crate) held: Vec<(mm::Message, DownlinkProtection)>,
    /// The UE has moved on by Xn already. Not part of a checkpoint, as the UE is not idle.
    #[serde(skip)]
    pub(crate) further: Option<QueuedPathSwitch>,
}

impl Target {
    /// The target of an N2 handover.
    pub(crate) fn asked_for(to: &HandoverTarget) -> Self {
        Self {
            association: to.association,
            amf_ue_ngap_id: to.amf_ue_ngap_id,
            ran_ue_ngap_id: None,
            source_lost: false,
            by: HandoverKind::N2(Phase::Waiting),
            held: Vec::new(),
            further: None,
        }
    }
}

/// A predicted handover (Synergy §III-C): what is prepared for it, until the UE's gNB asks for it or the prediction expires.
#[derive(Clone, Debug)]
pub(crate) struct PredictedHandover {
    /// The expected target gNB. Its phase is [`Phase::Waiting`] while the core alone is prepared.
    pub(crate) target: Target,
    /// What the target broadcasts, as HANDOVER REQUIRED would get it.
    pub(crate) to: HandoverTarget,
    /// The gNB that is predicted as target.
    pub(crate) gnb: GlobalGnbId,
    /// The tracking area there.
    pub(crate) tai: Tai,
    /// When the prediction expires.
    pub(crate) until: Instant,
    /// What the target gNB was asked for, after the source handed its container over early.
    pub(crate) request: Option<PredictedRequest>,
}

/// HANDOVER REQUEST of a predicted handover.
#[derive(Clone, Debug)]
pub(crate) struct PredictedRequest {
    /// HANDOVER REQUIRED as the source will send it.
    pub(crate) required: Box<HandoverRequired>,
    /// Which sessions the target was asked for.
    pub(crate) asked: HandoverSessions,
    /// The target's answer.
    pub(crate) answer: Option<Box<HandoverRequestAcknowledge>>,
}

/// The sessions that HANDOVER REQUIRED lists.
#[derive(Clone, Debug)]
pub(crate) struct HandoverSessions {
    /// Those in HANDOVER REQUEST.
    pub(crate) sessions: Vec<PduSessionId>,
    /// Those not in HANDOVER REQUEST, with the cause.
    pub(crate) refused: Vec<(PduSessionId, Cause)>,
}

/// A gNB to which the UE moved from its target, over Xn: its PATH SWITCH REQUEST has overtaken the target's HANDOVER NOTIFY
/// on another association, and waits for it (TS 23.502 §4.9.1.2.2, §4.9.1.3.3 step 5).
#[derive(Clone, Debug)]
pub(crate) struct QueuedPathSwitch {
    /// The gNB's association.
    pub(crate) association: AssociationId,
    /// The request that waits.
    pub(crate) request: Box<PathSwitchRequest>,
}

/// The kind of handover.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum HandoverKind {
    /// Xn handover: the UE is at the target, and the paths of these sessions are to be switched (TS 38.413 §8.4.4).
    PathSwitch(Vec<PduSessionId>),
    /// N2 handover (TS 38.413 §8.4.1 to §8.4.3).
    N2(Phase),
}

impl HandoverKind {
    pub(crate) fn phase(&self) -> Option<Phase> {
        match self {
            HandoverKind::PathSwitch(_) => None,
            HandoverKind::N2(phase) => Some(*phase),
        }
    }

    /// Whether the UE is still at its source, which awaits the answer to HANDOVER REQUIRED.
    pub(crate) fn is_at_source(&self) -> bool {
        matches!(self, HandoverKind::N2(Phase::Waiting | Phase::Preparing))
    }
}

/// The phase of an N2 handover (TS 23.502 §4.9.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// The target was not asked yet: a session to be handed over is being set up at the source.
    Waiting,
    /// The target is being asked (§4.9.1.3.2): the UE is at its source.
    Preparing,
    /// HANDOVER COMMAND was sent (§4.9.1.3.3): the UE is at either gNB.
    Executing,
}
