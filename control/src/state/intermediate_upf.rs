//! Intermediate UPFs (I-UPF): a UPF between the gNB and the PDU session anchor of a session, whose area the UE has left (TS 23.501 §6.3.3.1, TS
//! 23.502 §4.9.1.2.3, §4.9.1.2.4).

use serde::{Deserialize, Serialize};
use whimbrel_ids::{PduSessionId, Seid};

use super::sm_context::Tunnel;
use super::ue_context::UeContext;
use crate::upf::UpfId;

/// An N4 session of a PDU session at an intermediate UPF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntermediateUpf {
    /// The PDU session.
    pub psi: PduSessionId,
    /// The UPF between gNB and anchor.
    pub upf: UpfId,
    /// The CP SEID.
    pub cp_seid: Seid,
    /// The UP SEID.
    pub up_seid: Seid,
    /// Its end of the N3 tunnel: uplink packets of the gNB arrive there.
    pub n3: Tunnel,
    /// Its end of the N9 tunnel: downlink packets of the anchor arrive there.
    pub n9: Tunnel,
    /// Its part in a handover.
    pub stage: IntermediateUpfStage,
    /// The number of its rules that forward packets between gNBs during a handover.
    pub forwarding: u8,
}

/// The part of an intermediate UPF in a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IntermediateUpfStage {
    /// The session's packets pass it.
    Serving,
    /// The same; the UE is being handed over to where the anchor itself serves.
    ToBeRemoved,
    /// It is prepared for the target of a handover.
    Prepared,
    /// The UE has left. It passes packets that are under way, until the source gNB is released.
    Left,
}

impl UeContext {
    /// The intermediate UPF that a session's packets pass.
    pub fn serving_intermediate_upf(&self, psi: PduSessionId) -> Option<&IntermediateUpf> {
        let serves = |i: &&IntermediateUpf| {
            matches!(i.stage, IntermediateUpfStage::Serving | IntermediateUpfStage::ToBeRemoved)
        };
        self.intermediate_upfs.iter().filter(|i| i.psi == psi).find(serves)
    }

    /// The intermediate UPF that is prepared for the target of the session's handover.
    pub(crate) fn prepared_intermediate_upf(&self, psi: PduSessionId) -> Option<&IntermediateUpf> {
        self.intermediate_upfs.iter().find(|i| i.psi == psi && i.stage == IntermediateUpfStage::Prepared)
    }

    /// The core's end of a session's N3 tunnel: where the serving gNB sends uplink packets to. `None` before a UPF has given it.
    pub fn uplink_tunnel(&self, psi: PduSessionId) -> Option<Tunnel> {
        let anchor = self.sessions.get(&psi)?.n3?;
        Some(self.serving_intermediate_upf(psi).map_or(anchor, |i| i.n3))
    }
}
