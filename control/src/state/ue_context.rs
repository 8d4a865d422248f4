//! The state of one UE: plain data, driven by an ordered log of inputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Instant, PduSessionId, RanUeNgapId};

use super::amf_context::AmfContext;
use super::connection::Connection;
use super::intermediate_upf::IntermediateUpf;
use super::remote_amf::RemoteAmfContext;
use super::remote_session::RemoteSessions;
use super::session_grant::SessionGrant;
use super::sm_context::SmContext;
use super::subscription::Subscription;
use super::veil_session::VeilSession;
use crate::envelope::{Batch, N2Names, UeId, UeIdentities};
use crate::procedure::{Lane, Lanes};

/// The state of one UE.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UeContext {
    /// The UE, by its slot.
    pub id: UeId,
    /// Clock of the last input.
    pub clock: u64,
    /// The highest terms of its inputs: of the CTA, and of the UE's assignment.
    pub terms: (u32, u32),
    /// The AMF's part.
    pub amf: AmfContext,
    /// The SMF's part, by PDU session identity.
    pub sessions: BTreeMap<PduSessionId, Box<SmContext>>,
    /// The sessions of another vendor's SMF.
    pub(crate) remote_sessions: RemoteSessions,
    /// The broker's grant, if the UE is a broker's user.
    pub grant: Option<Box<SessionGrant>>,
    /// The broker's grant, if the UE attached veiled.
    pub veil: Option<Box<VeilSession>>,
    /// The N4 sessions at intermediate UPFs; none while anchors serve the UE's area.
    pub intermediate_upfs: Vec<IntermediateUpf>,
    /// The AMF of another vendor that serves the UE; none: this core's AMF does.
    pub remote_amf: Option<Box<RemoteAmfContext>>,
    /// Lanes of the procedures that run.
    #[serde(skip)]
    pub(crate) lanes: Lanes,
}

impl UeContext {
    /// An empty context.
    pub fn new(id: UeId) -> Self {
        Self {
            id,
            clock: 0,
            terms: (0, 0),
            amf: AmfContext::default(),
            sessions: BTreeMap::new(),
            remote_sessions: RemoteSessions::default(),
            grant: None,
            veil: None,
            intermediate_upfs: Vec::new(),
            remote_amf: None,
            lanes: Lanes::default(),
        }
    }

    /// Its subscription, as read from the UDM (Nudm_SDM_Get): one copy for AMF and SMF.
    pub(crate) fn subscription(&self) -> Option<&Arc<Subscription>> {
        self.amf.subscription.as_ref()
    }

    /// Its known identities.
    pub fn subject(&self) -> UeIdentities {
        UeIdentities { supi: self.amf.supi.or(self.amf.claimed), pei: self.amf.pei }
    }

    /// The serving gNB's identifier of the UE, while it is connected.
    pub(crate) fn ran_ue_ngap_id(&self) -> Option<RanUeNgapId> {
        self.amf.connection.as_ref().map(|c| c.ran_ue_ngap_id)
    }

    /// True in 5GMM-CONNECTED.
    pub fn is_connected(&self) -> bool {
        self.amf.connection.is_some()
    }

    /// Whether only a connection is left of the UE that is released after a while: it was rejected, or has deregistered, and may register
    /// again on it (TS 24.501 §5.3.1.3).
    pub fn awaits_release(&self) -> bool {
        !self.amf.registered && self.amf.inactivity_deadline.is_some() && self.amf.connection.is_some()
    }

    /// When the first lifetime of a session of SSC mode 3 ends (TS 23.502 §4.3.5.2 step 5).
    pub(crate) fn leaving_until(&self) -> Option<Instant> {
        self.sessions.values().map(|s| s.until).min().filter(|until| *until != Instant::FAR_FUTURE)
    }

    /// When its broker's grant ends. While a procedure of mobility management runs, that waits for the procedure's end.
    fn grant_until(&self) -> Option<Instant> {
        let open = self.grant.as_ref().map(|grant| grant.until());
        let until = open.or(self.veil.as_ref().map(|session| session.until()))?;
        (self.amf.registered && self.lanes.procedure(Lane::Mobility).is_none()).then_some(until)
    }

    /// Its connections: at the serving gNB, at the target and at the former gNB of a handover.
    pub fn n2_names(&self) -> [Option<N2Names>; 3] {
        let of = |c: &Connection| N2Names {
            association: c.association,
            amf_ue_ngap_id: c.amf_ue_ngap_id,
            ran_ue_ngap_id: Some(c.ran_ue_ngap_id),
        };
        // A predicted target that was asked has a connection too.
        let predicted =
            self.amf.mobility.predicted.as_ref().filter(|p| p.request.is_some()).map(|p| &p.target);
        let target = self.amf.mobility.target.as_deref().or(predicted).map(|t| N2Names {
            association: t.association,
            amf_ue_ngap_id: t.amf_ue_ngap_id,
            ran_ue_ngap_id: t.ran_ue_ngap_id,
        });
        let source = self.amf.mobility.forwarding_source.as_ref().and_then(|s| s.connection.as_ref());
        [self.amf.connection.as_deref().map(of), target, source.map(of)]
    }

    /// Whether no procedure runs.
    pub fn is_idle(&self) -> bool {
        self.lanes.idle() && self.amf.mobility.predicted.is_none()
    }

    /// Whether a restart of the core can go on from it: no procedure runs but paging.
    pub(crate) fn can_be_restarted(&self) -> bool {
        self.lanes.idle_or_paging() && self.amf.mobility.predicted.is_none()
    }

    /// Whether its stored form has all of it: what only running procedures need is not stored.
    pub(crate) fn is_complete_at_rest(&self) -> bool {
        self.is_idle()
            && self.amf.mobility.context_transfer.is_none()
            && self.amf.connection.as_ref().is_none_or(|c| c.pending_setups.is_empty())
            && self.sessions.values().all(|s| !s.departing)
    }

    /// What a CTA stores of a UE that was authenticated and has no input yet.
    pub fn as_batch(&self) -> Batch {
        let mut batch = Batch { authenticated: true, ..Batch::default() };
        self.conclude(&mut batch);
        batch
    }

    /// Completes the batch of an input with the state after it.
    pub(crate) fn conclude(&self, batch: &mut Batch) {
        batch.idle = self.is_idle();
        let [serving, target, _] = self.n2_names();
        (batch.connected, batch.target) = (serving, target);
        let intermediate = self.intermediate_upfs.iter().map(|i| i.upf);
        batch.upfs = self.sessions.values().map(|s| s.upf).chain(intermediate).collect();
        let own = [
            self.lanes.next_deadline(),
            self.amf.implicit_deregistration_at,
            self.amf.inactivity_deadline,
            self.amf.mobility.forwarding_source.as_ref().and_then(|s| s.until),
            self.amf.mobility.predicted.as_ref().map(|p| p.until),
            self.leaving_until(),
            self.grant_until(),
        ];
        batch.next_deadline = own.into_iter().flatten().min();
    }
}
