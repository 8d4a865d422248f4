//! The gNB's view of its UEs, to be compared with the core's.

use core::net::IpAddr;

use whimbrel_ids::{AmfUeNgapId, PduSessionId, Qfi, RanUeNgapId, Teid};

use super::Gnb;
use crate::radio::UeId;

/// A UE with a context at a gNB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedUe {
    /// The UE that is served.
    pub ue: UeId,
    /// The AMF's identifier of the context, once known.
    pub amf_ue_ngap_id: Option<AmfUeNgapId>,
    /// The gNB's identifier of it.
    pub ran_ue_ngap_id: RanUeNgapId,
    /// INITIAL CONTEXT SETUP, or a handover, has succeeded.
    pub set_up: bool,
    /// The active sessions, in the order of their setup.
    pub sessions: Vec<ServedSession>,
}

/// A session of a UE at a gNB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedSession {
    /// Identity of the session.
    pub id: PduSessionId,
    /// Its downlink tunnel.
    pub downlink_teid: Teid,
    /// Its uplink tunnel: address and TEID.
    pub uplink: (IpAddr, Teid),
    /// Its QoS flows.
    pub flows: Vec<Qfi>,
}

impl Gnb {
    /// The UEs that have a context here; one that is being handed over has one at both its gNBs.
    pub fn served(&self) -> impl Iterator<Item = ServedUe> {
        let contexts = self.contexts.ids().filter_map(|id| self.contexts.get(id));
        contexts.map(|context| ServedUe {
            ue: context.ue,
            amf_ue_ngap_id: context.amf_ue_ngap_id,
            ran_ue_ngap_id: context.ran_ue_ngap_id,
            set_up: context.set_up,
            sessions: context.sessions.iter().map(served_session).collect(),
        })
    }
}

fn served_session(session: &super::tunnel::GnbSession) -> ServedSession {
    ServedSession {
        id: session.id,
        downlink_teid: session.downlink_teid,
        uplink: session.uplink,
        flows: session.flows.iter().map(|f| f.qfi).collect(),
    }
}
