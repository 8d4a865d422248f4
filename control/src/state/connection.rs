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
    /// Our name of it.
    pub amf_ue_ngap_id: AmfUeNgapId,
    /// The gNB's name of it.
    pub ran_ue_ngap_id: RanUeNgapId,
    /// The gNB holds a UE context (INITIAL CONTEXT SETUP succeeded).
    pub context_set_up: bool,
    /// It was asked to, and has not answered yet.
    pub context_pending: bool,
    /// The gNB asked for one (UE Context Request, TS 38.413 §8.6.1).
    pub context_requested: bool,
    /// The UE-AMBR that the gNB has (TS 38.413 §8.2.1.2).
    pub ambr_sent: Option<Ambr>,
    /// Mobile-originated data or signalling that follows: the connection is kept (TS 24.501 §5.5.1.2.4).
    pub follow_on: bool,
    /// The NAS messages on this connection are protected (TS 24.501 §4.4.4.1).
    pub secured: bool,
    /// UE CONTEXT RELEASE COMMAND was sent: nothing more is sent on it (TS 38.413 §8.3.3).
    pub releasing: bool,
    /// Why it was set up, by the UE's RRC establishment cause (TS 38.413 §9.3.1.111).
    pub establishment_cause: RrcEstablishmentCause,
    /// The UE is in RRC_INACTIVE, as last reported (TS 38.413 §8.3.5).
    pub rrc_inactive: bool,
    /// Setups of session resources that the gNB has yet to answer. A lane awaits each of them, so no checkpoint has any.
    #[serde(skip)]
    pub(crate) pending_setups: Vec<PendingSetup>,
}

/// The gNB that a UE has left (TS 23.502 §4.9.1.3.3 steps 14 and 15).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The connection there; none where the gNB has released it, or is another AMF's.
    pub(crate) connection: Option<Connection>,
    /// How long packets are still forwarded; none before the UE's paths have followed it.
    pub(crate) until: Option<Instant>,
}

/// Connections that have ended, without the gNB's confirmation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RecentlyReleased(pub(crate) Vec<(AssociationId, AmfUeNgapId, Instant)>);

/// How long messages of a gNB may cross the one that lets it know that a connection is over: SCTP repeats what was lost after
/// a second (RTO.Initial of RFC 9260 §16).
pub const RELEASE_GRACE: Duration = Duration::from_secs(2);

impl RecentlyReleased {
    /// Connections that one UE can leave within that time, and that are kept in mind.
    const MAX: usize = 4;

    /// A connection is over.
    pub(crate) fn add(&mut self, now: Instant, association: AssociationId, id: AmfUeNgapId) {
        self.forget(now);
        if self.0.len() == Self::MAX {
            self.0.remove(0);
        }
        self.0.push((association, id, now + RELEASE_GRACE));
    }

    /// Whether a gNB may not have heard yet that this connection is over.
    pub(crate) fn has(&self, now: Instant, association: AssociationId, id: AmfUeNgapId) -> bool {
        self.0.iter().any(|&(a, i, until)| (a, i) == (association, id) && until > now)
    }

    /// Whether this was the name of such a connection, at whatever gNB.
    pub(crate) fn names(&self, now: Instant, id: AmfUeNgapId) -> bool {
        self.0.iter().any(|&(_, i, until)| i == id && until > now)
    }

    /// The gNB has heard.
    pub(crate) fn confirmed(&mut self, association: AssociationId, id: AmfUeNgapId) {
        self.0.retain(|&(a, i, _)| (a, i) != (association, id));
    }

    /// Whether none is left, after those whose time is over.
    pub(crate) fn forget(&mut self, now: Instant) -> bool {
        self.0.retain(|&(.., until)| until > now);
        self.0.is_empty()
    }
}

/// A setup that the gNB has yet to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingSetup {
    pub(crate) psi: PduSessionId,
    /// The request was INITIAL CONTEXT SETUP REQUEST.
    pub(crate) in_context: bool,
    pub(crate) use_of: SetupUse,
}

/// What becomes of resources that the gNB sets up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetupUse {
    /// The session takes them.
    Session,
    /// The session has ended: they are released.
    Obsolete,
    /// PDU SESSION RESOURCE RELEASE COMMAND was sent after the request: the gNB releases them itself.
    ReleaseSent,
}
