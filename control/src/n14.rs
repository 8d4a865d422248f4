//! N14: messages between two AMFs of one network about a UE that moves from one to the other, connected (TS 23.502 §4.9.1.3) or idle
//! (§4.2.2.2.2): TS 29.518 §5.2.2.2.
//!
//! | here | TS 29.518 |
//! | --- | --- |
//! | [`N14Body::CreateUeContext`] and its two answers | CreateUEContext, §5.2.2.2.3 |
//! | [`N14Body::ReleaseUeContext`] | ReleaseUEContext, §5.2.2.2.4 |
//! | [`N14Body::RanStatus`] | N1N2MessageTransfer with RAN status, TS 23.502 §4.9.1.3.3 step 2b |
//! | [`N14Body::HandoverComplete`] and its answer | N2InfoNotify, §5.2.2.3.6 |
//! | [`N14Body::TransferUeContext`] and its two answers | UEContextTransfer, §5.2.2.2.1 |
//! | [`N14Body::Registered`] and its answer, [`N14Body::NotRegistered`] | RegistrationStatusUpdate, §5.2.2.2.2 |
//! | [`N14Body::ForwardUeContext`], [`N14Body::DownlinkDataWaits`] | none: TS 23.501 §5.21.2.2.1, §5.21.2.3 have them between the AMFs of a set |
//! | [`N14Body::Replica`], [`N14Body::ReplicaGone`], [`N14Body::WholeRequested`] | none: Neutrino §4.3 |
//!
//! The UE context is the UE's flat form ([`Checkpoint`](crate::Checkpoint)); gNBs' messages are contained as received. The SMF is a part
//! of this program, so a UE's sessions move with it: the UPF stays, and the former SMF sends it the new CP F-SEID. In a handover
//! [`source`] is the AMF that the UE leaves, [`target`] the one that it comes to; [`registration`] has both sides for an idle UE.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{AmfId, AmfUeNgapId, GlobalGnbId, PduSessionId, Seid, Tmsi};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::Cause;
use whimbrel_ngap::msg::HandoverFailure;

use crate::envelope::UeId;
use crate::flat::Flat;

/// Another AMF of this network: its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PeerAmfId(pub u8);

/// Identifies one transfer of a UE between two AMFs. The source assigns it, in a handover request or in its answer to the AMF that
/// asks for a context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Relation {
    /// The source's identifier of the UE.
    pub source: UeId,
    /// Random, drawn by the AMF that starts the transfer.
    pub token: [u8; 16],
}

impl fmt::Debug for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Relation({}/{}, …)", self.source.slot, self.source.generation)
    }
}

/// One message. It may hold keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct N14 {
    /// Which transfer. An AMF that asks for a context does not know the source's identifier yet, and gives its own of
    /// the unauthenticated UE.
    pub relation: Relation,
    /// Content of the message.
    pub body: N14Body,
}

/// The content of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum N14Body {
    /// Source to target: take this UE over.
    CreateUeContext(Box<UeContextCreateData>),
    /// Target to source: its gNB is ready for the UE.
    UeContextCreated(Box<PreparedResources>),
    /// Target to source: it refuses the UE, or has lost it before it arrived. HANDOVER FAILURE.
    UeContextNotCreated(#[serde(with = "crate::flat::octets::owned")] Vec<u8>),
    /// Source to target: the handover is cancelled.
    ReleaseUeContext,
    /// Source to target: UPLINK RAN STATUS TRANSFER, or the early one.
    RanStatus(#[serde(with = "crate::flat::octets::owned")] Vec<u8>),
    /// Target to source: the UE has arrived. Repeated until it is answered.
    HandoverComplete,
    /// Source to target: the outcome there.
    Completed(TransferCompletion),
    /// Target to source: a UE of the source requests registration or service here. Repeated until it is answered.
    TransferUeContext(UeProof),
    /// Source to target: the UE's context.
    UeContextTransferred(Box<TransferredUe>),
    /// Source to target, to the slot that asked: the request does not verify, or the UE cannot be transferred now.
    UeContextNotTransferred(UeId),
    /// Target to source: the UE is registered there. Repeated until it is answered, by [`Self::Completed`].
    Registered {
        /// The target's N4 address.
        smf: IpAddr,
        /// The sessions that it takes over, and its CP SEID of each.
        sessions: Vec<(PduSessionId, Seid)>,
    },
    /// Target to source: the UE is not registered there with what was transferred.
    NotRegistered,
    /// Target to source: the UE that it forwards has registered at the target by itself, so that the source's context is out of date.
    RegisteredThere,
    /// Source to target: the source is to be removed, and gives this UE to another AMF of its set (TS 23.501 §5.21.2.2.1).
    ForwardUeContext(Box<ForwardedUe>),
    /// Source to target: a message of the gNB about a connected UE that was forwarded, from a gNB that does not know of the removal yet.
    Uplink(#[serde(with = "crate::flat::octets::owned")] Vec<u8>),
    /// Source to target, ahead of any transfer: the checkpoint of a UE, or the delta from the one before. The relation names the UE alone, as in the two that
    /// follow. These three are exchanged beside the CTAs, which take and send whole messages: `PeerReplicas` in `resilience`.
    Replica(Box<UeTransferState>),
    /// Source to target: the UE is gone, or its checkpoint is not sent any more.
    ReplicaGone,
    /// Target to source: the checkpoint that a delta of the UE begins at is not here; the message that had it is to be sent whole.
    WholeRequested,
    /// Target to source: a UPF has downlink data for an idle UE of the source, whose SMF does not answer it, and has reported that to the target's SMF, of the
    /// same SMF set (TS 29.244 §5.22.3). In place of a lost source, its replica forwards the UE. The relation names the UE alone.
    DownlinkDataWaits {
        /// The N4 address of the source's SMF, as the UPF knows it.
        smf: IpAddr,
    },
}

impl N14Body {
    /// HANDOVER FAILURE: the UE is refused, or was lost before it arrived.
    pub fn not_created(cause: impl Into<Cause>, container: Option<Vec<u8>>) -> Self {
        let mut failure = HandoverFailure::new(NO_UE, cause.into());
        failure.target_to_source_failure_transparent_container = container;
        let mut octets = Vec::new();
        Message::from(failure).encode(&mut octets);
        Self::UeContextNotCreated(octets)
    }

    /// Whether it is sent by the source to the target.
    pub fn is_of_source(&self) -> bool {
        match self {
            Self::CreateUeContext(_)
            | Self::ReleaseUeContext
            | Self::RanStatus(_)
            | Self::Completed(_)
            | Self::UeContextTransferred(_)
            | Self::UeContextNotTransferred(_)
            | Self::ForwardUeContext(_)
            | Self::Uplink(_)
            | Self::Replica(_)
            | Self::ReplicaGone => true,
            Self::UeContextCreated(_)
            | Self::UeContextNotCreated(_)
            | Self::HandoverComplete
            | Self::TransferUeContext(_)
            | Self::Registered { .. }
            | Self::NotRegistered
            | Self::RegisteredThere
            | Self::WholeRequested
            | Self::DownlinkDataWaits { .. } => false,
        }
    }
}

/// The AMF-UE-NGAP-ID in a HANDOVER FAILURE between AMFs: unused, as the relation identifies the UE.
const NO_UE: AmfUeNgapId = match AmfUeNgapId::new(0) {
    Some(id) => id,
    None => panic!("0 is an AMF-UE-NGAP-ID"),
};

/// UeContextCreateData (TS 29.518 §6.1.6.2.26): a UE to be taken over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UeContextCreateData {
    /// Its state: a [`Checkpoint`](crate::Checkpoint); on the way to an AMF that has an earlier one, the [`Delta`](crate::Delta) from that.
    pub state: Flat,
    /// HANDOVER REQUIRED of its gNB.
    #[serde(with = "crate::flat::octets::owned")]
    pub required: Vec<u8>,
    /// The key for the next gNB.
    pub keys: Keys,
    /// The N4 address of each session's UPF. A session whose UPF other SMFs do not reach is left out.
    pub upfs: Vec<(PduSessionId, IpAddr)>,
}

/// {NH, NCC} as the source derived them (TS 33.501 §6.9.2.3.3).
#[derive(Clone, Serialize, Deserialize)]
pub struct Keys {
    pub(crate) nh: [u8; 32],
    pub(crate) ncc: u8,
    /// They derive from a K_AMF that is not yet in use on the radio.
    pub(crate) new: bool,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys(NCC {}, …)", self.ncc)
    }
}

/// The proof of a UE that comes to another AMF: it registers there, or requests service from another AMF of its set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UeProof {
    /// The AMF that gave it its 5G-GUTI: the source, or an AMF of its set that has given the UE to it.
    pub amf_id: AmfId,
    /// Its 5G-TMSI there.
    pub tmsi: Tmsi,
    /// Its REGISTRATION REQUEST or SERVICE REQUEST as received, protected under the keys that the source has.
    #[serde(with = "crate::flat::octets::owned")]
    pub nas: Vec<u8>,
    /// No other AMF of the set has the UE: in place of a lost source, its replica may answer.
    pub by_replica: bool,
}

/// The context of a UE that registers elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransferredUe {
    /// The slot that asked.
    pub asker: UeId,
    /// Its state before it sent its request, as in [`UeContextCreateData::state`].
    pub state: Flat,
    /// As in [`UeContextCreateData::upfs`].
    pub upfs: Vec<(PduSessionId, IpAddr)>,
}

/// The context of a UE that an AMF gives up, or a replica of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UeTransferState {
    /// Its state, as in [`UeContextCreateData::state`]; of a replica perhaps the [`Delta`](crate::Delta) from the one before.
    pub state: Flat,
    /// As in [`UeContextCreateData::upfs`].
    pub upfs: Vec<(PduSessionId, IpAddr)>,
}

/// A UE that its AMF gives up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForwardedUe {
    /// Its context, and where its sessions are.
    pub ue: UeTransferState,
    /// The gNB that serves it: its connection goes along, under its names.
    pub gnb: Option<GlobalGnbId>,
}

/// The target's prepared resources.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PreparedResources {
    /// HANDOVER REQUEST ACKNOWLEDGE of its gNB, with the sessions that the target AMF itself refused.
    #[serde(with = "crate::flat::octets::owned")]
    pub acknowledge: Vec<u8>,
    /// The target's N4 address.
    pub smf: IpAddr,
    /// The sessions that it takes over, admitted by its gNB or not, and its CP SEID of each.
    pub sessions: Vec<(PduSessionId, Seid)>,
}

/// The source's answer about a UE that has arrived at the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransferCompletion {
    /// These sessions are the target's now.
    HandedOver(Vec<HandedOverSession>),
    /// The handover was cancelled before the UE arrived: the source keeps it.
    Cancelled,
    /// The source has deleted the UE's context already.
    Gone,
}

/// A session that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOverSession {
    /// Identity of the session.
    pub psi: PduSessionId,
    /// The N4 address of its UPF, as in [`UeContextCreateData::upfs`].
    pub upf: IpAddr,
    /// The UPF's SEID.
    pub up_seid: Seid,
    /// Number of forwarding rules at the UPF; none: the gNBs forward directly.
    pub forwarding: Option<u8>,
}
