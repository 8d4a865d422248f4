//! What a gNB holds of its UEs, to be compared with what the core holds of them.

use core::net::IpAddr;

use whimbrel_ids::{AmfUeNgapId, PduSessionId, Qfi, RanUeNgapId, Teid};

use super::Gnb;
use crate::radio::UeId;

/// A UE that a gNB has a context of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Which.
    pub ue: UeId,
    /// The AMF's name of the context, once it is known.
    pub amf_ue_ngap_id: Option<AmfUeNgapId>,
    /// The gNB's name of it.
    pub ran_ue_ngap_id: RanUeNgapId,
    /// INITIAL CONTEXT SETUP, or a handover in its place, has succeeded.
    pub set_up: bool,
    /// The sessions whose user plane stands, in the order in which it was set up.
    pub sessions: Vec<ServedSession>,
}

/// A session of a UE at a gNB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedSession {
    /// Which.
    pub id: PduSessionId,
    /// Where its downlink packets are awaited.
    pub downlink_teid: Teid,
    /// Where its uplink packets go: address and TEID.
    pub uplink: (IpAddr, Teid),
    /// Its QoS flows.
    pub flows: Vec<Qfi>,
}

impl Gnb {
    /// The UEs that have a context here; one that is being handed over has one at both its gNBs.
    pub fn served(&self) -> impl Iterator<Item = Served> {
        let contexts = self.contexts.ids().filter_map(|id| self.contexts.get(id));
        contexts.map(|context| Served {
            ue: context.ue,
            amf_ue_ngap_id: context.amf_ue_ngap_id,
            ran_ue_ngap_id: context.ran_ue_ngap_id,
            set_up: context.set_up,
            sessions: context.sessions.iter().map(served_session).collect(),
        })
    }
}

fn served_session(session: &super::tunnel::Session) -> ServedSession {
    ServedSession {
        id: session.id,
        downlink_teid: session.downlink_teid,
        uplink: session.uplink,
        flows: session.flows.iter().map(|f| f.qfi).collect(),
    }
}
