//! A UE whose context moves between this AMF and another one (TS 23.502 §4.9.1.3, §4.2.2.2.2).

use whimbrel_ids::{PduSessionId, Seid};
use whimbrel_nas::mm;

use super::amf_context::Security;
use super::handover::Phase;
use crate::n14::{HandedOverSession, PeerAmfId, Relation};
use crate::upf::UpfId;

/// What a UE's record says of the other AMF, while the UE goes over.
#[derive(Clone, Debug)]
pub(crate) enum ContextTransfer {
    /// It leaves.
    Outbound(OutboundTransfer),
    /// It comes.
    Inbound(InboundTransfer),
}

/// A UE that goes over to another AMF's gNB, as long as it has a record here.
#[derive(Clone, Debug)]
pub(crate) struct OutboundTransfer {
    pub(crate) to: PeerAmfId,
    pub(crate) relation: Relation,
    pub(crate) phase: Phase,
    /// The serving gNB is gone: the UE has nowhere else to be.
    pub(crate) source_lost: bool,
    /// NAS messages that are sent if the UE stays.
    pub(crate) held: Vec<(mm::Message, Security)>,
    /// It has come there, and these sessions with it.
    pub(crate) given: Option<Vec<HandedOverSession>>,
}

impl OutboundTransfer {
    /// Of an idle UE that registers there.
    pub(crate) fn idle(to: PeerAmfId, relation: Relation) -> Self {
        Self { to, relation, phase: Phase::Waiting, source_lost: false, held: Vec::new(), given: None }
    }

    /// Whether it is this one.
    pub(crate) fn is(&self, to: PeerAmfId, relation: Relation) -> bool {
        (self.to, self.relation) == (to, relation)
    }

    /// Its state is under way.
    pub(crate) fn executing(&mut self) {
        self.phase = Phase::Executing;
    }

    /// The other AMF may have spoken to it.
    pub(crate) fn may_have_come(&self) -> bool {
        self.phase == Phase::Executing
    }
}

/// COUNTs that another AMF may have used before a UE's way there came to nothing: more than it says before it has keys of its own, two
/// challenges, each five times (T3560), what it says to a message that it does not serve, a refusal. Ten such ways of which
/// the UE hears nothing are less than a run of the sequence number, so it finds the next COUNT (TS 24.501 §4.4.3.1).
pub(crate) const PEER_AMF_DOWNLINK_COUNTS: u8 = 24;

/// Where a UE comes from.
#[derive(Clone, Debug)]
pub(crate) struct InboundTransfer {
    pub(crate) from: PeerAmfId,
    pub(crate) relation: Relation,
    /// The sessions that come along, from when the UE is here until it is certain that they are ours.
    pub(crate) coming: Vec<IncomingSession>,
    pub(crate) by: ArrivalBy,
}

/// How a UE comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrivalBy {
    Handover,
    /// Idle; its context was asked for, and the relation names the question.
    Question,
    /// Idle, and its source has answered.
    Answer,
}

impl InboundTransfer {
    pub(crate) fn new(from: PeerAmfId, relation: Relation) -> Self {
        Self { from, relation, coming: Vec::new(), by: ArrivalBy::Handover }
    }

    /// Of an idle UE, of which the source is asked.
    pub(crate) fn asked(from: PeerAmfId, relation: Relation) -> Self {
        Self { by: ArrivalBy::Question, ..Self::new(from, relation) }
    }

    /// The source answers, and names the UE. Whether it was asked.
    pub(crate) fn answered(&mut self, from: PeerAmfId, relation: Relation) -> bool {
        let asked = (ArrivalBy::Question, self.from, self.relation.token);
        let ours = asked == (self.by, from, relation.token);
        if ours {
            (self.relation, self.by) = (relation, ArrivalBy::Answer);
        }
        ours
    }

    pub(crate) fn is_handover(&self) -> bool {
        self.by == ArrivalBy::Handover
    }

    /// Where the source of an idle UE hears what became of it, once it has answered.
    pub(crate) fn status_to(&self) -> Option<(PeerAmfId, Relation)> {
        (self.by == ArrivalBy::Answer).then_some((self.from, self.relation))
    }
}

/// A session that may come, as its present SMF has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IncomingSession {
    /// Which.
    pub(crate) psi: PduSessionId,
    /// Our name of it towards the UPF.
    pub(crate) cp_seid: Seid,
    pub(crate) upf: UpfId,
    /// The UPF's session, which is not ours yet: until it is, the UE's record does not have it.
    pub(crate) up_seid: Seid,
}
