//! What the AMF stores of a UE (TS 23.502 Table 4.2.2.2.2-1, TS 29.518 §6.1.6.2.25).

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Instant, Pei, SNssai, Supi, Tai, Tmsi};
use whimbrel_nas::ie::{DrxParameters, NgKsi, UeSecurityCapability};
use whimbrel_ngap::ie::{AmfPagingTarget, NgranCgi, RecommendedCellItem, UeRadioCapabilityForPaging};
use whimbrel_security::{KAmf, NasCount, NasSecurityContext, Nh};

use super::connection::{Connection, RecentlyReleased, Source};
use super::context_transfer::{ContextTransfer, InboundTransfer, OutboundTransfer, PEER_AMF_DOWNLINK_COUNTS};
use super::handover::Target;
use super::subscription::Subscription;
use crate::flat::octets;

/// The allowed NSSAI holds eight slices (TS 24.501 §9.11.3.37).
pub(crate) const ALLOWED_SLICES_MAX: usize = 8;

/// What the AMF knows of a UE (TS 23.502 Table 4.2.2.2.2-1, TS 29.518 §6.1.6.2.25).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AmfContext {
    /// The subscriber, once authenticated.
    pub supi: Option<Supi>,
    /// The equipment, once received under protection.
    pub pei: Option<Pei>,
    /// 5GMM-REGISTERED.
    pub registered: bool,
    /// The 5G-TMSI in force.
    pub tmsi: Option<Tmsi>,
    /// The one before it, still good until the UE confirms the new one (TS 24.501 §5.5.1.2.4).
    pub former_tmsi: Option<Tmsi>,
    /// The security context in force.
    pub security: Option<Box<NasSecurityContext>>,
    /// The one that a security mode command proposes.
    pub(crate) proposed: Option<Box<NasSecurityContext>>,
    /// As the UE sent it, for verbatim replay (TS 24.501 §5.4.2.2).
    pub ue_security_capability: Option<UeSecurityCapability>,
    /// The N2 connection.
    pub connection: Option<Box<Connection>>,
    /// Where the UE was last seen.
    pub tai: Option<Tai>,
    /// The cell where it was last seen (TS 23.501 §5.4.7).
    pub seen: Option<Seen>,
    /// What the operator wants to hear of its place.
    pub(crate) locating: Option<Box<Locating>>,
    /// It was elsewhere before, and what may be had there has yet to be judged (TS 23.501 §5.3.4.1.1, §5.6.5).
    pub(crate) moved: bool,
    /// The registration area: where the UE may move without registering, and is paged (TS 23.501 §5.9.4, TS 24.501 §5.3.4).
    pub registration_area: Box<[Tai]>,
    /// The slices that the UE may use here.
    pub allowed_nssai: Vec<SNssai>,
    /// Those that it asked for last.
    pub(crate) requested_nssai: Box<[SNssai]>,
    /// Registered for emergency services (TS 24.501 §3.1): nothing else is served.
    pub emergency: bool,
    /// When the key in force was proved, and how many registrations it has carried since.
    pub(crate) authenticated_at: Option<Instant>,
    pub(crate) registrations: u32,
    /// The UDM's notification that the subscription has changed waits to be looked into.
    pub(crate) subscription_stale: bool,
    /// The UE has yet to get its changed slices.
    pub(crate) slicing_changed: bool,
    /// What was agreed on reaching it while it is idle, where that is not what is agreed with everybody.
    pub(crate) reach: Option<Box<Reach>>,
    /// What the subscriber may use; shared.
    pub subscription: Option<Arc<Subscription>>,
    /// The radio's view of the UE, stored and returned unread (TS 23.501 §5.4.4.1).
    #[serde(with = "octets::shared_or_none")]
    pub radio_capability: Option<Arc<[u8]>>,
    /// Whether that radio carries IMS voice here.
    pub(crate) voice_match: VoiceMatch,
    /// When the UE is deregistered unless it shows up (TS 24.501 §5.3.7).
    pub reachable_until: Option<Instant>,
    /// When an unused connection is released.
    pub connection_until: Option<Instant>,
    /// Digest of the initial NAS message that the running or last procedure answers: recognises a retransmission
    /// (TS 24.501 §5.5.1.2.8 d).
    pub(crate) initial_nas_digest: u64,
    /// The identity that the UE claims before it is authenticated: for explanations only.
    pub(crate) claimed: Option<Supi>,
    /// K_AMF of the context in force, from which the keys of the radio are derived.
    pub(crate) k_amf: Option<KAmf>,
    /// Its name.
    pub ng_ksi: Option<NgKsi>,
    /// The chain of keys of the radio.
    pub(crate) next_hop: Option<Box<NextHop>>,
    /// The gNB that takes the UE over, while that is not certain.
    pub target: Option<Box<Target>>,
    /// The other AMF of a handover between two. What is at something does not travel, so neither does this.
    #[serde(skip)]
    pub(crate) context_transfer: Option<Box<ContextTransfer>>,
    /// The gNB that the UE has left, while packets of it are still forwarded.
    pub source: Option<Box<Source>>,
    /// The connections that it had until just now and whose gNBs may not have heard so yet.
    pub(crate) recently_released: Option<Box<RecentlyReleased>>,
    /// Reports of gNBs that help to page it.
    pub(crate) paging_aid: Option<Box<PagingAid>>,
    /// The operator wants it deregistered, and it has yet to be reached (TS 23.502 §4.2.2.3.3).
    pub(crate) deregistration_requested: bool,
    /// A reachability notification is requested (TS 23.502 §4.2.5.2).
    pub(crate) reachability_requested: bool,
    /// The uplink COUNT that K_gNB is derived with (TS 33.501 §6.8.1.2.2).
    pub(crate) as_count: Option<NasCount>,
}

impl AmfContext {
    /// What was agreed on reaching it while it is idle.
    pub(crate) fn reach(&self) -> Reach {
        self.reach.as_deref().copied().unwrap_or_default()
    }

    /// The AMF that takes the UE over, as long as its record is here.
    pub(crate) fn outbound(&self) -> Option<&OutboundTransfer> {
        match self.context_transfer.as_deref() {
            Some(ContextTransfer::Outbound(d)) => Some(d),
            _ => None,
        }
    }

    pub(crate) fn outbound_mut(&mut self) -> Option<&mut OutboundTransfer> {
        match self.context_transfer.as_deref_mut() {
            Some(ContextTransfer::Outbound(d)) => Some(d),
            _ => None,
        }
    }

    /// The UE does not leave. Where it may have been heard there, COUNTs of its keys may have been used.
    pub(crate) fn take_outbound(&mut self) -> Option<OutboundTransfer> {
        match *self.context_transfer.take_if(|b| matches!(**b, ContextTransfer::Outbound(_)))? {
            ContextTransfer::Outbound(d) => {
                if d.may_have_come() {
                    self.security.iter_mut().for_each(|s| s.leave_out(PEER_AMF_DOWNLINK_COUNTS));
                }
                Some(d)
            }
            ContextTransfer::Inbound(_) => None,
        }
    }

    /// The AMF that the UE comes from, as long as it is not certain what came along.
    pub(crate) fn inbound(&self) -> Option<&InboundTransfer> {
        match self.context_transfer.as_deref() {
            Some(ContextTransfer::Inbound(a)) => Some(a),
            _ => None,
        }
    }

    pub(crate) fn set_reach(&mut self, reach: Reach) {
        self.reach = (reach != Reach::default()).then(|| reach.into());
    }
}

/// Where and when a UE was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The cell.
    pub cell: NgranCgi,
    /// The time.
    pub at: Instant,
}

/// How an idle UE is reached (TS 23.501 §5.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reach {
    /// The periodic registration timer that it was given, where that is not everybody's.
    pub(crate) t3512: Option<Duration>,
    /// It is not paged (MICO), but for this long after it went idle (T3324).
    pub(crate) mico: Option<Duration>,
    /// T3512 runs while it is connected too, from here on (TS 24.501 §5.3.7, strictly periodic).
    pub(crate) strictly_periodic: Option<Instant>,
    /// Until when it can be paged; `None`: always.
    pub(crate) until: Option<Instant>,
    /// Its paging cycle, where it asked for one (TS 24.501 §9.11.3.2A).
    pub(crate) drx: Option<DrxParameters>,
    /// Its extended paging cycle and paging time window (TS 24.008 §10.5.5.32).
    pub(crate) edrx: Option<u8>,
}

/// The next hop that the AMF keeps of a UE whose radio is secured, and its chaining count.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NextHop {
    pub(crate) nh: Nh,
    /// NH chaining count: three bits (TS 38.413 §9.3.1.88).
    pub(crate) ncc: u8,
    /// Name of the K_AMF that the chain began with. The keys of the radio are those of another context if a newer one is
    /// in force.
    pub(crate) of: Option<NgKsi>,
}

/// How a downlink message is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Security {
    /// Not at all: before there is a context (TS 24.501 §4.4.4.2 lists what UEs take so).
    Plain,
    /// Integrity and cipher under the context in force; plain where there is none.
    Current,
    /// Integrity under the context that is being proposed (SECURITY MODE COMMAND).
    Proposed,
}

/// What is known of a UE's radio and IMS voice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum VoiceMatch {
    /// No gNB was asked.
    #[default]
    Unknown,
    /// The gNB is asked.
    Asked,
    /// It carries voice.
    Supported,
    /// It does not.
    NotSupported,
}

/// Cells, and gNBs and areas, that a gNB recommends (maxnoofRecommendedCells, maxnoofRecommendedRANNodes of TS 38.413 §9.4.7).
pub(crate) const RECOMMENDED_MAX: usize = 16;

/// Reports of gNBs that help to page a UE: returned to them unread.
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
    /// Whether PAGING has room for it.
    pub(crate) fn is_bounded(&self) -> bool {
        self.recommended.len() <= RECOMMENDED_MAX && self.nodes.len() <= RECOMMENDED_MAX
    }
}

/// Areas that are watched for one UE at most; TS 38.413 §9.3.1.65 counts 64 references.
pub(crate) const AREAS_MAX: usize = 16;

/// What the operator wants to hear of a UE's place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Locating {
    /// Its present location is requested, until then.
    pub(crate) now: Option<Instant>,
    /// Each change of its cell.
    pub(crate) cells: bool,
    /// Tracking areas that are watched, each under the reference of its place here.
    pub(crate) areas: Vec<Option<Tai>>,
    /// The request could not be sent yet: the UE is in handover, or its context is being set up.
    pub(crate) unsent: bool,
}
