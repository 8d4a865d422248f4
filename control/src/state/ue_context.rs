//! The state of one UE: a small, plain, movable object, driven by an ordered log of inputs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Instant, PduSessionId, RanUeNgapId, Tmsi};

use super::amf_context::AmfContext;
use super::connection::Connection;
use super::session_grant::SessionGrant;
use super::sm_context::SmContext;
use crate::envelope::{Batch, N2Names, Subject, UeId};
use crate::procedure::{Lane, Lanes};

/// Everything the core knows of one UE.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UeContext {
    /// Whose slot it is.
    pub id: UeId,
    /// Clock of the last input.
    pub clock: u64,
    /// The highest terms that stamped an input: of the CTA, and of the UE's assignment to its shard.
    pub terms: (u32, u32),
    /// The AMF's part.
    pub amf: AmfContext,
    /// The SMF's part, by PDU session identity.
    pub sessions: BTreeMap<PduSessionId, Box<SmContext>>,
    /// What its broker has granted, if it is a broker's user.
    pub grant: Option<Box<SessionGrant>>,
    /// Procedures in flight.
    #[serde(skip)]
    pub(crate) lanes: Lanes,
}

impl UeContext {
    /// A UE of which nothing is known.
    pub fn new(id: UeId) -> Self {
        Self {
            id,
            clock: 0,
            terms: (0, 0),
            amf: AmfContext::default(),
            sessions: BTreeMap::new(),
            grant: None,
            lanes: Lanes::default(),
        }
    }

    /// Its subscriber and equipment, as far as known.
    pub fn subject(&self) -> Subject {
        Subject { supi: self.amf.supi.or(self.amf.claimed), pei: self.amf.pei }
    }

    /// The serving gNB's name of the UE, while it is connected.
    pub(crate) fn ran_ue_ngap_id(&self) -> Option<RanUeNgapId> {
        self.amf.connection.as_ref().map(|c| c.ran_ue_ngap_id)
    }

    /// 5GMM-REGISTERED, 5GMM-CONNECTED or idle: in words, for people.
    pub fn is_connected(&self) -> bool {
        self.amf.connection.is_some()
    }

    /// Whether nothing is left of the UE here but a connection that is released after a while: it was rejected, or has deregistered, and may
    /// register again on it (TS 24.501 §5.3.1.3).
    pub fn awaits_release(&self) -> bool {
        !self.amf.registered && self.amf.connection_until.is_some() && self.amf.connection.is_some()
    }

    /// Whether a 5G-TMSI names this UE.
    pub(crate) fn bears(&self, tmsi: Tmsi) -> bool {
        self.amf.tmsi == Some(tmsi) || self.amf.former_tmsi == Some(tmsi)
    }

    /// When the first lifetime of a session of SSC mode 3 ends (TS 23.502 §4.3.5.2 step 5).
    pub(crate) fn leaving_until(&self) -> Option<Instant> {
        self.sessions.values().map(|s| s.until).min().filter(|until| *until != Instant::FAR_FUTURE)
    }

    /// When its broker's grant ends. While a procedure of mobility management runs, that waits for the procedure's end.
    fn grant_until(&self) -> Option<Instant> {
        let grant = self.grant.as_ref().filter(|_| self.amf.registered)?;
        self.lanes.procedure(Lane::Mobility).is_none().then(|| grant.until())
    }

    /// The connections that it has: at the gNB that serves it, at the one that takes it over, at the one that it has left.
    pub fn n2_names(&self) -> [Option<N2Names>; 3] {
        let of = |c: &Connection| N2Names {
            association: c.association,
            amf_ue_ngap_id: c.amf_ue_ngap_id,
            ran_ue_ngap_id: Some(c.ran_ue_ngap_id),
        };
        let target = self.amf.target.as_ref().map(|t| N2Names {
            association: t.association,
            amf_ue_ngap_id: t.amf_ue_ngap_id,
            ran_ue_ngap_id: t.ran_ue_ngap_id,
        });
        let source = self.amf.source.as_ref().and_then(|s| s.connection.as_ref());
        [self.amf.connection.as_deref().map(of), target, source.map(of)]
    }

    /// Whether no procedure is in flight.
    pub fn is_idle(&self) -> bool {
        self.lanes.idle()
    }

    /// Completes the batch of an input with what holds after it.
    pub(crate) fn conclude(&self, batch: &mut Batch) {
        batch.idle = self.lanes.idle();
        let [serving, target, _] = self.n2_names();
        (batch.connected, batch.target) = (serving, target);
        batch.upfs = self.sessions.values().map(|s| s.upf).collect();
        let own = [
            self.lanes.next_deadline(),
            self.amf.reachable_until,
            self.amf.connection_until,
            self.amf.source.as_ref().and_then(|s| s.until),
            self.leaving_until(),
            self.grant_until(),
        ];
        batch.next_deadline = own.into_iter().flatten().min();
    }
}
