//! The transfer of a UE's context between this AMF and another one (TS 23.502 §4.9.1.3, §4.2.2.2.2).

use std::sync::Arc;

use whimbrel_ids::{PduSessionId, Seid};
use whimbrel_nas::mm;

use super::amf_context::DownlinkProtection;
use super::handover::Phase;
use crate::envelope::AssociationId;
use crate::n14::{HandedOverSession, PeerAmfId, Relation};
use crate::upf::UpfId;

/// The transfer of a UE.
#[derive(Clone, Debug)]
pub(crate) enum ContextTransfer {
    /// To another AMF.
    Outbound(OutboundTransfer),
    /// From another AMF.
    Inbound(InboundTransfer),
}

/// A UE that moves to another AMF, while its context is here.
#[derive(Clone, Debug)]
pub(crate) struct OutboundTransfer {
    pub(crate) to: PeerAmfId,
    pub(crate) relation: Relation,
    pub(crate) phase: Phase,
    /// The serving gNB is lost: if the transfer fails, the UE is idle.
    pub(crate) source_lost: bool,
    /// Held NAS messages, sent if the UE stays.
    pub(crate) held: Vec<(mm::Message, DownlinkProtection)>,
    /// Messages of its gNB while it was not known which AMF has the UE.
    pub(crate) held_uplink: Vec<(AssociationId, Arc<[u8]>)>,
    /// Its connection goes along.
    pub(crate) is_connected: bool,
    /// The UE has arrived there, and its sessions are being given to the target.
    pub(crate) is_leaving: bool,
    /// It has arrived there, with these sessions.
    pub(crate) given: Option<Vec<HandedOverSession>>,
}

impl OutboundTransfer {
    /// For an idle UE that registers there.
    pub(crate) fn idle(to: PeerAmfId, relation: Relation) -> Self {
        Self {
            to,
            relation,
            phase: Phase::Waiting,
            source_lost: false,
            held: Vec::new(),
            held_uplink: Vec::new(),
            is_connected: false,
            is_leaving: false,
            given: None,
        }
    }

    /// Whether it is this transfer.
    pub(crate) fn is(&self, to: PeerAmfId, relation: Relation) -> bool {
        (self.to, self.relation) == (to, relation)
    }

    /// Whether its state was sent.
    pub(crate) fn executing(&mut self) {
        self.phase = Phase::Executing;
    }

    /// Whether the other AMF may have sent messages to it.
    pub(crate) fn may_have_come(&self) -> bool {
        self.phase == Phase::Executing
    }
}

/// COUNTs that another AMF may have used before a transfer failed: more than its messages before it has keys of its own, two
/// challenges, each five times (T3560), a status and a reject. Ten failed transfers use less than the range of the sequence number, so
/// the UE can still derive the next COUNT (TS 24.501 §4.4.3.1).
pub(crate) const PEER_AMF_DOWNLINK_COUNTS: u8 = 24;

/// A UE that comes from another AMF.
#[derive(Clone, Debug)]
pub(crate) struct InboundTransfer {
    pub(crate) from: PeerAmfId,
    pub(crate) relation: Relation,
    /// The sessions whose handover is not confirmed yet.
    pub(crate) coming: Vec<IncomingSession>,
    pub(crate) by: ArrivalBy,
}

/// The kind and state of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrivalBy {
    Handover,
    /// Idle; its context was requested, and the relation identifies the request.
    Question,
    /// Idle; its source has answered.
    Answer,
    /// Its source gives it up without having been asked.
    Forward,
}

impl InboundTransfer {
    pub(crate) fn new(from: PeerAmfId, relation: Relation) -> Self {
        Self { from, relation, coming: Vec::new(), by: ArrivalBy::Handover }
    }

    /// For an idle UE whose context is requested.
    pub(crate) fn asked(from: PeerAmfId, relation: Relation) -> Self {
        Self { by: ArrivalBy::Question, ..Self::new(from, relation) }
    }

    /// For an idle UE that its AMF gives up.
    pub(crate) fn forwarded(from: PeerAmfId, relation: Relation) -> Self {
        Self { by: ArrivalBy::Forward, ..Self::new(from, relation) }
    }

    /// Stores the source's identifier of the UE from its answer. Returns whether a request was outstanding.
    pub(crate) fn answered(&mut self, from: PeerAmfId, relation: Relation) -> bool {
        let asked = (ArrivalBy::Question, self.from, self.relation.token);
        let ours = asked == (self.by, from, relation.token);
        if ours {
            (self.relation, self.by) = (relation, ArrivalBy::Answer);
        }
        ours
    }

    pub(crate) fn is_forwarded(&self) -> bool {
        self.by == ArrivalBy::Forward
    }

    pub(crate) fn is_handover(&self) -> bool {
        self.by == ArrivalBy::Handover
    }

    /// Where the outcome is sent to, for an idle UE whose source has answered.
    pub(crate) fn status_to(&self) -> Option<(PeerAmfId, Relation)> {
        matches!(self.by, ArrivalBy::Answer | ArrivalBy::Forward).then_some((self.from, self.relation))
    }
}

/// A session to be handed over, as its present SMF has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IncomingSession {
    /// Identity of the session.
    pub(crate) psi: PduSessionId,
    /// This SMF's CP SEID of it.
    pub(crate) cp_seid: Seid,
    pub(crate) upf: UpfId,
    /// The UPF's SEID. It is stored in the UE's context only when the session was handed over.
    pub(crate) up_seid: Seid,
}
