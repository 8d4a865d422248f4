//! The N2 connections of a UE: the one that serves it, and those that have ended (TS 38.413 §3.1).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{AmfUeNgapId, Instant, PduSessionId, RanUeNgapId};
use whimbrel_ngap::ie::RrcEstablishmentCause;

use super::subscription::Ambr;
use crate::envelope::AssociationId;

/// A UE's connection to a gNB: the NGAP UE association (TS 38.413 §3.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The gNB's association.
    pub association: AssociationId,
    /// The AMF's identifier.
    pub amf_ue_ngap_id: AmfUeNgapId,
    /// The gNB's identifier.
    pub ran_ue_ngap_id: RanUeNgapId,
    /// The gNB holds a UE context (INITIAL CONTEXT SETUP succeeded).
    pub context_set_up: bool,
    /// INITIAL CONTEXT SETUP REQUEST was sent and is not answered yet.
    pub context_pending: bool,
    /// The gNB asked for one (UE Context Request, TS 38.413 §8.6.1).
    pub context_requested: bool,
    /// The UE-AMBR that the gNB has (TS 38.413 §8.2.1.2).
    pub ambr_sent: Option<Ambr>,
    /// Follow-on request: the connection is kept (TS 24.501 §5.5.1.2.4).
    pub follow_on: bool,
    /// The NAS messages on this connection are protected (TS 24.501 §4.4.4.1).
    pub secured: bool,
    /// UE CONTEXT RELEASE COMMAND was sent: nothing more is sent on it (TS 38.413 §8.3.3).
    pub releasing: bool,
    /// The RRC establishment cause (TS 38.413 §9.3.1.111).
    pub establishment_cause: RrcEstablishmentCause,
    /// The UE is in RRC_INACTIVE, as last reported (TS 38.413 §8.3.5).
    pub rrc_inactive: bool,
    /// Session resource setups without an answer. A lane awaits each of them, so a checkpoint has none.
    #[serde(skip)]
    pub(crate) pending_setups: Vec<PendingSetup>,
}

/// The former gNB after a handover (TS 23.502 §4.9.1.3.3 steps 14 and 15).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverSource {
    /// The connection there; none if the gNB has released it, or belongs to another AMF.
    pub(crate) connection: Option<Connection>,
    /// Until when packets are forwarded; none before the path switch.
    pub(crate) until: Option<Instant>,
}

/// Released connections, without the gNB's confirmation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RecentlyReleased(pub(crate) Vec<(AssociationId, AmfUeNgapId, Instant)>);

/// How long messages of a gNB may cross the release command: SCTP repeats a lost message after a second (RTO.Initial of RFC
/// 9260 §16).
pub const RELEASE_GRACE: Duration = Duration::from_secs(2);

impl RecentlyReleased {
    /// Bound on stored connections of one UE.
    const MAX: usize = 4;

    /// Adds a released connection.
    pub(crate) fn add(&mut self, now: Instant, association: AssociationId, id: AmfUeNgapId) {
        self.forget(now);
        if self.0.len() == Self::MAX {
            self.0.remove(0);
        }
        self.0.push((association, id, now + RELEASE_GRACE));
    }

    /// Whether this connection was released and its gNB may not know that yet.
    pub(crate) fn has(&self, now: Instant, association: AssociationId, id: AmfUeNgapId) -> bool {
        self.0.iter().any(|&(a, i, until)| (a, i) == (association, id) && until > now)
    }

    /// Whether such a connection had this identifier, at any gNB.
    pub(crate) fn names(&self, now: Instant, id: AmfUeNgapId) -> bool {
        self.0.iter().any(|&(_, i, until)| i == id && until > now)
    }

    /// Removes it: the gNB knows.
    pub(crate) fn confirmed(&mut self, association: AssociationId, id: AmfUeNgapId) {
        self.0.retain(|&(a, i, _)| (a, i) != (association, id));
    }

    /// Removes expired ones; returns whether none is left.
    pub(crate) fn forget(&mut self, now: Instant) -> bool {
        self.0.retain(|&(.., until)| until > now);
        self.0.is_empty()
    }
}

/// A setup that the gNB has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingSetup {
    pub(crate) psi: PduSessionId,
    /// The request was INITIAL CONTEXT SETUP REQUEST.
    pub(crate) in_context: bool,
    pub(crate) use_of: SetupUse,
}

/// What is done with resources that the gNB sets up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetupUse {
    /// The session uses them.
    Session,
    /// The session has ended: they are released.
    Obsolete,
    /// PDU SESSION RESOURCE RELEASE COMMAND was sent after the request: the gNB releases them itself.
    ReleaseSent,
}
