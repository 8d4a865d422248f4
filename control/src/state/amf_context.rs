//! What the AMF stores of a UE (TS 23.502 Table 4.2.2.2.2-1, TS 29.518 §6.1.6.2.25).

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{AmfId, Instant, Pei, SNssai, Supi, Tai, Tmsi};
use whimbrel_nas::ie::{DrxParameters, NgKsi, UeSecurityCapability};
use whimbrel_ngap::ie::{AmfPagingTarget, NgranCgi, RecommendedCellItem, UeRadioCapabilityForPaging};
use whimbrel_security::{KAmf, NasCount, NasSecurityContext, Nh};

use super::connection::{Connection, HandoverSource, RecentlyReleased};
use super::context_transfer::{ContextTransfer, InboundTransfer, OutboundTransfer, PEER_AMF_DOWNLINK_COUNTS};
use super::handover::{PredictedHandover, Target};
use super::subscription::Subscription;
use crate::flat::octets;

/// The allowed NSSAI holds eight slices (TS 24.501 §9.11.3.37).
pub(crate) const ALLOWED_SLICES_MAX: usize = 8;

/// A 5G-GUTI of this PLMN: the AMF that gave it, and the UE there.
pub(crate) type PeerGuti = (AmfId, Tmsi);

/// The UE context in the AMF (TS 23.502 Table 4.2.2.2.2-1, TS 29.518 §6.1.6.2.25).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AmfContext {
    /// The subscriber, once authenticated.
    pub supi: Option<Supi>,
    /// The equipment, once received under protection.
    pub pei: Option<Pei>,
    /// True in 5GMM-REGISTERED.
    pub registered: bool,
    /// Registered for emergency services (TS 24.501 §3.1): nothing else is served.
    pub emergency: bool,
    /// The 5G-TMSI in force.
    pub tmsi: Option<Tmsi>,
    /// The former one, valid until the UE confirms the new one (TS 24.501 §5.5.1.2.4).
    pub former_tmsi: Option<Tmsi>,
    /// The 5G-GUTIs that the UE may still have of another AMF of the set, which served it before (TS 23.501 §5.21.2.2), newest first: it is paged by them, and shows
    /// them, until it has one of this AMF.
    pub(crate) peer_gutis: Option<Box<[Option<PeerGuti>; 2]>>,
    /// The identity that the UE claims before it is authenticated: for explanations only.
    pub(crate) claimed: Option<Supi>,
    /// Digest of the initial NAS message that the running or last procedure answers: recognises a retransmission
    /// (TS 24.501 §5.5.1.2.8 d).
    pub(crate) initial_nas_digest: u64,
    /// As the UE sent it, for verbatim replay (TS 24.501 §5.4.2.2).
    pub ue_security_capability: Option<UeSecurityCapability>,
    /// Its security contexts and keys.
    pub security: UeSecurity,
    /// The N2 connection.
    pub connection: Option<Box<Connection>>,
    /// When an unused connection is released.
    pub inactivity_deadline: Option<Instant>,
    /// Recently released connections, whose gNBs may not know that yet.
    pub(crate) recently_released: Option<Box<RecentlyReleased>>,
    /// Where it is.
    pub location: UeLocation,
    /// Slices that are allowed to the UE.
    pub slices: UeSlices,
    /// Its radio capabilities.
    pub radio: UeRadio,
    /// Its handover, or its transfer from or to a peer AMF.
    pub mobility: Mobility,
    /// Negotiated reachability in idle mode (MICO, eDRX), if not the default.
    pub(crate) reach: Option<Box<ReachabilityParameters>>,
    /// When the implicit deregistration timer expires (TS 24.501 §5.3.7).
    pub implicit_deregistration_at: Option<Instant>,
    /// A reachability notification is requested (TS 23.502 §4.2.5.2).
    pub(crate) reachability_requested: bool,
    /// The subscription; shared.
    pub subscription: Option<Arc<Subscription>>,
    /// Nudm_SDM_Notification was received, and the change is to be applied.
    pub(crate) subscription_stale: bool,
    /// The operator has ordered its deregistration, for which it is being paged (TS 23.502 §4.2.2.3.3).
    pub(crate) deregistration_requested: bool,
}

/// The security contexts and keys of a UE (TS 33.501 §3.1, §6.2).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UeSecurity {
    /// The NAS security context in force.
    pub current: Option<Box<NasSecurityContext>>,
    /// The one that a security mode command proposes.
    pub(crate) proposed: Option<Box<NasSecurityContext>>,
    /// K_AMF of the context in force, from which the AS keys are derived.
    pub(crate) k_amf: Option<KAmf>,
    /// Its key set identifier.
    pub ng_ksi: Option<NgKsi>,
    /// The uplink COUNT that K_gNB is derived with (TS 33.501 §6.8.1.2.2).
    pub(crate) as_count: Option<NasCount>,
    /// The AS key chain.
    pub(crate) next_hop: Option<Box<NextHop>>,
    /// When the UE was authenticated with the current K_AMF. [`Instant::ZERO`]: NAS COUNTs may have been used
    /// that this context does not show, and the UE has to be authenticated again.
    pub(crate) authenticated_at: Option<Instant>,
    /// Registrations since then.
    pub(crate) registrations: u32,
}

/// Where a UE is, and where it may move.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UeLocation {
    /// The tracking area where it was last seen.
    pub tai: Option<Tai>,
    /// The cell where it was last seen (TS 23.501 §5.4.7).
    pub seen: Option<LastSeenCell>,
    /// The tracking area has changed, and area restrictions are to be checked again (TS 23.501 §5.3.4.1.1, §5.6.5).
    pub(crate) is_area_check_pending: bool,
    /// The registration area: where the UE may move without registering, and is paged (TS 23.501 §5.9.4, TS 24.501 §5.3.4).
    pub registration_area: Box<[Tai]>,
    /// The operator's location requests.
    pub(crate) requests: Option<Box<LocationRequests>>,
}

/// The slices of a UE.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UeSlices {
    /// Those that it may use here.
    pub allowed: Vec<SNssai>,
    /// The last requested NSSAI.
    pub(crate) requested: Box<[SNssai]>,
    /// The changed slices are to be sent to the UE.
    pub(crate) is_update_pending: bool,
}

/// Radio capabilities of a UE.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UeRadio {
    /// UE radio capability, stored and returned unread (TS 23.501 §5.4.4.1).
    #[serde(with = "octets::shared_or_none")]
    pub capability: Option<Arc<[u8]>>,
    /// Whether the radio supports IMS voice here.
    pub(crate) voice_match: VoiceMatch,
    /// gNBs' assistance data for paging.
    pub(crate) paging_aid: Option<Box<PagingAid>>,
}

/// The handover of a UE, or its transfer between AMFs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Mobility {
    /// The target gNB of a handover, until the UE has arrived.
    pub target: Option<Box<Target>>,
    /// The former gNB, while packets are still forwarded.
    pub forwarding_source: Option<Box<HandoverSource>>,
    /// The gNB where the UE is expected soon. Not part of a checkpoint, as the UE is not idle meanwhile.
    #[serde(skip)]
    pub(crate) predicted: Option<Box<PredictedHandover>>,
    /// The transfer of the UE to or from a peer AMF. Not part of a checkpoint, as the UE is not idle.
    #[serde(skip)]
    pub(crate) context_transfer: Option<Box<ContextTransfer>>,
}

impl AmfContext {
    /// Whether a 5G-TMSI is this UE's.
    pub(crate) fn bears(&self, tmsi: Tmsi) -> bool {
        self.tmsi == Some(tmsi)
            || self.former_tmsi == Some(tmsi)
            || self.of_peers().any(|(_, of_peer)| of_peer == tmsi)
    }

    /// The UE has the 5G-TMSI in force, and no other one any more.
    pub(crate) fn confirm_tmsi(&mut self) {
        self.former_tmsi = None;
        self.peer_gutis = None;
    }

    /// The 5G-GUTIs that the UE may have, of this AMF and of others.
    pub fn gutis(&self, own: AmfId) -> impl Iterator<Item = (AmfId, Tmsi)> {
        let ours = [self.former_tmsi, self.tmsi].into_iter().flatten().map(move |tmsi| (own, tmsi));
        self.of_peers().chain(ours)
    }

    fn of_peers(&self) -> impl Iterator<Item = (AmfId, Tmsi)> {
        self.peer_gutis.iter().flat_map(|gutis| gutis.iter().flatten().copied())
    }

    /// The core crashed, and NAS COUNTs may have been used that this context does not show. No message is
    /// protected with these keys any more; the UE is authenticated before it is served (TS 33.501 §6.4.3.1).
    pub fn has_unknown_nas_counts(&self) -> bool {
        self.security.authenticated_at == Some(Instant::ZERO)
    }

    /// Negotiated reachability in idle mode.
    pub(crate) fn reach(&self) -> ReachabilityParameters {
        self.reach.as_deref().copied().unwrap_or_default()
    }

    /// The transfer to a peer AMF.
    pub(crate) fn outbound(&self) -> Option<&OutboundTransfer> {
        match self.mobility.context_transfer.as_deref() {
            Some(ContextTransfer::Outbound(d)) => Some(d),
            _ => None,
        }
    }

    pub(crate) fn outbound_mut(&mut self) -> Option<&mut OutboundTransfer> {
        match self.mobility.context_transfer.as_deref_mut() {
            Some(ContextTransfer::Outbound(d)) => Some(d),
            _ => None,
        }
    }

    /// Aborts the transfer: the UE stays. Skips NAS COUNTs that the peer AMF may have used.
    pub(crate) fn abort_outbound(&mut self) -> Option<OutboundTransfer> {
        let d = self.abort_unused_outbound()?;
        if d.may_have_come() {
            self.security.current.iter_mut().for_each(|s| s.leave_out(PEER_AMF_DOWNLINK_COUNTS));
        }
        Some(d)
    }

    /// The same where the peer AMF has used none.
    pub(crate) fn abort_unused_outbound(&mut self) -> Option<OutboundTransfer> {
        match *self.mobility.context_transfer.take_if(|b| matches!(**b, ContextTransfer::Outbound(_)))? {
            ContextTransfer::Outbound(d) => Some(d),
            ContextTransfer::Inbound(_) => None,
        }
    }

    /// The transfer from a peer AMF.
    pub(crate) fn inbound(&self) -> Option<&InboundTransfer> {
        match self.mobility.context_transfer.as_deref() {
            Some(ContextTransfer::Inbound(a)) => Some(a),
            _ => None,
        }
    }

    /// Another AMF is giving the UE to this one.
    pub fn comes_from_peer(&self) -> bool {
        self.inbound().is_some()
    }

    pub(crate) fn set_reach(&mut self, reach: ReachabilityParameters) {
        self.reach = (reach != ReachabilityParameters::default()).then(|| reach.into());
    }
}

/// Where and when a UE was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastSeenCell {
    /// The cell in which it was.
    pub cell: NgranCgi,
    /// The time at which it was there.
    pub at: Instant,
}

/// How an idle UE is reached (TS 23.501 §5.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReachabilityParameters {
    /// The negotiated periodic registration timer, if not the default.
    pub(crate) t3512: Option<Duration>,
    /// MICO mode: it is paged only for this time after it became idle (T3324).
    pub(crate) mico_active_time: Option<Duration>,
    /// Strictly periodic registration: when T3512 was started, which runs in 5GMM-CONNECTED too (TS 24.501 §5.3.7).
    pub(crate) strictly_periodic_since: Option<Instant>,
    /// Time until which it can be paged; `None`: no limit.
    pub(crate) pageable_until: Option<Instant>,
    /// Its requested DRX (TS 24.501 §9.11.3.2A).
    pub(crate) drx: Option<DrxParameters>,
    /// Its eDRX cycle and paging time window (TS 24.008 §10.5.5.32).
    pub(crate) edrx: Option<u8>,
}

/// {NH, NCC} of a UE with AS security.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NextHop {
    pub(crate) nh: Nh,
    /// NH chaining count: three bits (TS 38.413 §9.3.1.88).
    pub(crate) ncc: u8,
    /// Key set identifier of the K_AMF with which the chain began. A newer context in force has another one.
    pub(crate) ng_ksi: Option<NgKsi>,
}

/// Protection of one downlink NAS message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DownlinkProtection {
    /// Unprotected: no NAS security context exists yet (TS 24.501 §4.4.4.2 lists the messages).
    Plain,
    /// Integrity protected and ciphered under the context in force; plain if there is none.
    Current,
    /// Integrity protected under the proposed context (SECURITY MODE COMMAND).
    Proposed,
}

/// The UE radio capability check for IMS voice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum VoiceMatch {
    /// No gNB was asked.
    #[default]
    Unknown,
    /// The gNB is asked.
    Asked,
    /// The radio capabilities support IMS voice.
    Supported,
    /// The radio capabilities do not support IMS voice.
    NotSupported,
}

/// Bound on recommended cells, and on recommended RAN nodes (maxnoofRecommendedCells, maxnoofRecommendedRANNodes of TS 38.413
/// §9.4.7).
pub(crate) const RECOMMENDED_MAX: usize = 16;

/// gNBs' assistance data for paging, returned unread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PagingAid {
    /// UE radio capability for paging (TS 38.413 §9.3.1.68, TS 23.501 §5.4.4.2).
    pub(crate) capability: Option<UeRadioCapabilityForPaging>,
    /// The cells that the last gNB recommends (TS 38.413 §9.3.1.71, TS 23.501 §5.4.6.2); 16 at most.
    pub(crate) recommended: Vec<RecommendedCellItem>,
    /// The gNBs and areas that it recommends; 16 at most.
    pub(crate) nodes: Vec<AmfPagingTarget>,
}

impl PagingAid {
    /// True if the lists are within the bounds of PAGING.
    pub(crate) fn is_bounded(&self) -> bool {
        self.recommended.len() <= RECOMMENDED_MAX && self.nodes.len() <= RECOMMENDED_MAX
    }
}

/// Bound on watched areas of one UE; TS 38.413 §9.3.1.65 allows 64 references.
pub(crate) const AREAS_MAX: usize = 16;

/// The operator's location requests for a UE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LocationRequests {
    /// The present location is requested (direct reporting), until this time.
    pub(crate) direct_until: Option<Instant>,
    /// Each change of its cell.
    pub(crate) is_cell_change_requested: bool,
    /// Watched tracking areas; the index is the reference.
    pub(crate) areas: Vec<Option<Tai>>,
    /// The request could not be sent yet: the UE is in handover, or its context is being set up.
    pub(crate) unsent: bool,
}
