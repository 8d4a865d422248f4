//! A session whose SMF is another vendor's, as the AMF knows it: a copy of the answers that it needs at once (TS 29.518 §6.1.6.2.37).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, Instant, PduSessionId, SNssai, Supi};

use super::sm_context::UpState;
use crate::services::sm_contexts::{
    HandoverStep, NewSmContext, SmContextChange, SmfMessage, UserPlaneChange,
};

/// Requests of one session that wait for the answer to the one before: more than the procedures of one session can have.
const WORK_MAX: usize = 16;

/// An SM context at another vendor's SMF.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RemoteSession {
    /// Subscriber of the session.
    pub supi: Supi,
    /// Its PDU session identity.
    pub psi: PduSessionId,
    /// Slice of the session.
    pub s_nssai: SNssai,
    /// Its data network.
    pub dnn: Dnn,
    /// An emergency session.
    pub emergency: bool,
    /// When the UE requested it.
    pub(crate) began: Instant,
    /// The SM context at the SMF; empty until the SMF has created it.
    pub reference: Box<str>,
    /// State of its user plane.
    pub up: UpState,
    /// PDU SESSION RESOURCE SETUP REQUEST TRANSFER for the next gNB, of the SMF's last answer.
    pub setup: Vec<u8>,
    /// A release is under way.
    pub(crate) releasing: bool,
    /// HANDOVER REQUEST ACKNOWLEDGE TRANSFER of the target gNB, until the SMF gets it.
    pub(crate) admitted: Vec<u8>,
    /// The handover that the SMF knows of.
    pub(crate) handover: Option<HandoverStep>,
    /// The source gNB of a handover may still forward packets through the UPF.
    pub(crate) forwarding: bool,
    /// The message for which the UE is paged.
    pub(crate) waiting: Option<Box<SmfMessage>>,
    /// Requests that have not been sent yet, in order.
    pub(crate) work: VecDeque<SessionWork>,
}

/// The sessions of another vendor's SMF, by PDU session identity. A UE without any has one pointer for them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[allow(clippy::box_collection, reason = "one pointer in place of three in each UE")]
pub(crate) struct RemoteSessions(Option<Box<BTreeMap<PduSessionId, Box<RemoteSession>>>>);

impl RemoteSessions {
    /// The sessions, in the order of their identities.
    pub(crate) fn all(&self) -> impl Iterator<Item = &RemoteSession> {
        self.0.iter().flat_map(|sessions| sessions.values()).map(|session| &**session)
    }

    /// The same, to be changed.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut RemoteSession> {
        self.0.iter_mut().flat_map(|sessions| sessions.values_mut()).map(|session| &mut **session)
    }

    /// The session with this identity.
    pub(crate) fn get(&self, psi: PduSessionId) -> Option<&RemoteSession> {
        self.0.as_ref()?.get(&psi).map(|session| &**session)
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, psi: PduSessionId) -> Option<&mut RemoteSession> {
        self.0.as_mut()?.get_mut(&psi).map(|session| &mut **session)
    }

    /// Adds a session.
    pub(crate) fn insert(&mut self, session: RemoteSession) {
        self.0.get_or_insert_default().insert(session.psi, session.into());
    }

    /// Takes a session out.
    pub(crate) fn remove(&mut self, psi: PduSessionId) -> Option<Box<RemoteSession>> {
        let session = self.0.as_mut()?.remove(&psi);
        self.0.take_if(|sessions| sessions.is_empty());
        session
    }

    /// True if decoded sessions are within their bounds.
    pub(crate) fn are_bounded(&self) -> bool {
        self.0.iter().flat_map(|sessions| sessions.iter()).all(|(psi, s)| s.psi == *psi && s.is_bounded())
    }
}

/// Work of a session at another vendor's SMF.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum SessionWork {
    /// The SM context is created.
    Create(Box<NewSmContext>),
    /// The SMF learns of a change.
    Update(Box<SmContextChange>),
    /// The gNB is asked for the session's resources, with a 5GSM message for the UE.
    SetUp(Option<Vec<u8>>),
}

impl RemoteSession {
    /// A session that the UE has requested.
    pub(crate) fn new(
        (supi, psi): (Supi, PduSessionId),
        (s_nssai, dnn): (SNssai, Dnn),
        emergency: bool,
        began: Instant,
    ) -> Self {
        Self {
            began,
            supi,
            psi,
            s_nssai,
            dnn,
            emergency,
            reference: Box::default(),
            up: UpState::Establishing,
            setup: Vec::new(),
            releasing: false,
            admitted: Vec::new(),
            handover: None,
            forwarding: false,
            waiting: None,
            work: VecDeque::new(),
        }
    }

    /// Adds work, unless there is too much: a UE that sends without end then loses its newest request.
    pub(crate) fn add(&mut self, work: SessionWork) {
        if self.work.len() < WORK_MAX {
            self.work.push_back(work);
        }
    }

    /// The SMF leads packets to the gNB, unless it has yet to learn that the gNB has released the session's resources. Returns the former state.
    pub(crate) fn activated(&mut self) -> UpState {
        let is_deactivation = |work: &SessionWork| matches!(work, SessionWork::Update(change) if change.user_plane == Some(UserPlaneChange::Deactivated));
        let to = if self.work.iter().any(is_deactivation) { UpState::Inactive } else { UpState::Active };
        std::mem::replace(&mut self.up, to)
    }

    /// True if a decoded session is within its bounds.
    pub(crate) fn is_bounded(&self) -> bool {
        self.work.len() <= WORK_MAX
    }
}
