//! N14: what two AMFs of one network say to each other of a UE that goes from one to the other, connected (TS 23.502 §4.9.1.3) or idle
//! (§4.2.2.2.2): TS 29.518 §5.2.2.2.
//!
//! | here | TS 29.518 |
//! | --- | --- |
//! | [`Body::CreateUeContext`] and its two answers | CreateUEContext, §5.2.2.2.3 |
//! | [`Body::ReleaseUeContext`] | ReleaseUEContext, §5.2.2.2.4 |
//! | [`Body::RanStatus`] | N1N2MessageTransfer with RAN status, TS 23.502 §4.9.1.3.3 step 2b |
//! | [`Body::HandoverComplete`] and its answer | N2InfoNotify, §5.2.2.3.6 |
//! | [`Body::TransferUeContext`] and its two answers | UEContextTransfer, §5.2.2.2.1 |
//! | [`Body::Registered`] and its answer, [`Body::NotRegistered`] | RegistrationStatusUpdate, §5.2.2.2.2 |
//!
//! The UE context is the UE's flat form ([`Checkpoint`](crate::Checkpoint)), and what gNBs say goes along as they said it. The SMF is a
//! part of this program, so a UE's sessions go with it: their UPF stays and is told of the new CP F-SEID. In a handover [`source`] is the
//! side that the UE leaves, [`target`] the one that it comes to; [`registration`] has both sides of an idle UE's move.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{AmfUeNgapId, PduSessionId, Seid, Tmsi};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::Cause;
use whimbrel_ngap::msg::HandoverFailure;

use crate::envelope::UeId;
use crate::flat::Flat;

/// Another AMF of this network: its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PeerAmfId(pub u8);

/// The name of one UE's way from one AMF to another. The source gives it, to a handover or in its answer to the AMF that asks for a
/// context; an AMF that does not know it has no part in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Relation {
    /// The UE, as the source calls it.
    pub source: UeId,
    /// Random, drawn for this one by the AMF that starts.
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
    /// Of which UE's way. Who asks for a context does not know the UE yet, and names itself: the stranger's slot.
    pub relation: Relation,
    /// The content.
    pub body: Body,
}

/// The content of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Body {
    /// Source to target: take this UE over.
    CreateUeContext(Box<UeContextCreateData>),
    /// Target to source: its gNB is ready for the UE.
    UeContextCreated(Box<Created>),
    /// Target to source: it does not take the UE, or has lost it before it came. HANDOVER FAILURE.
    UeContextNotCreated(#[serde(with = "crate::flat::octets::owned")] Vec<u8>),
    /// Source to target: the handover is off.
    ReleaseUeContext,
    /// Source to target: UPLINK RAN STATUS TRANSFER, or the early one.
    RanStatus(#[serde(with = "crate::flat::octets::owned")] Vec<u8>),
    /// Target to source: the UE has come. Repeated until it is answered.
    HandoverComplete,
    /// Source to target: what became of the UE there.
    Completed(Completed),
    /// Target to source: a UE that is the source's wants to register here. Repeated until it is answered.
    TransferUeContext(Shown),
    /// Source to target: so it is.
    UeContextTransferred(Box<Transferred>),
    /// Source to target, to the slot that asked: so it is not, or the UE cannot go now.
    UeContextNotTransferred(UeId),
    /// Target to source: the UE is registered there. Repeated until it is answered, by [`Self::Completed`].
    Registered {
        /// Where the target takes PFCP of UPFs.
        smf: IpAddr,
        /// The sessions that it takes, and its name of each towards the UPF.
        sessions: Vec<(PduSessionId, Seid)>,
    },
    /// Target to source: the UE is not registered there with what was transferred.
    NotRegistered,
}

impl Body {
    /// A UE is not taken, or was lost before it came.
    pub fn not_created(cause: impl Into<Cause>, container: Option<Vec<u8>>) -> Self {
        let mut failure = HandoverFailure::new(NO_UE, cause.into());
        failure.target_to_source_failure_transparent_container = container;
        let mut octets = Vec::new();
        Message::from(failure).encode(&mut octets);
        Self::UeContextNotCreated(octets)
    }

    /// Whether the source says it to the target.
    pub fn is_of_source(&self) -> bool {
        match self {
            Self::CreateUeContext(_)
            | Self::ReleaseUeContext
            | Self::RanStatus(_)
            | Self::Completed(_)
            | Self::UeContextTransferred(_)
            | Self::UeContextNotTransferred(_) => true,
            Self::UeContextCreated(_)
            | Self::UeContextNotCreated(_)
            | Self::HandoverComplete
            | Self::TransferUeContext(_)
            | Self::Registered { .. }
            | Self::NotRegistered => false,
        }
    }
}

/// What a HANDOVER FAILURE between AMFs calls the UE: the relation says which it is.
const NO_UE: AmfUeNgapId = match AmfUeNgapId::new(0) {
    Some(id) => id,
    None => panic!("0 is an AMF-UE-NGAP-ID"),
};

/// A UE that is to be taken over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UeContextCreateData {
    /// Its state: a [`Checkpoint`](crate::Checkpoint).
    pub state: Flat,
    /// What its gNB wants: HANDOVER REQUIRED.
    #[serde(with = "crate::flat::octets::owned")]
    pub required: Vec<u8>,
    /// The key for the next gNB.
    pub keys: Keys,
    /// Where each of its sessions is: the address at which the UPF takes PFCP. A UPF that other SMFs do not reach is not named.
    pub upfs: Vec<(PduSessionId, IpAddr)>,
}

/// {NH, NCC} as the source derived them (TS 33.501 §6.9.2.3.3).
#[derive(Clone, Serialize, Deserialize)]
pub struct Keys {
    pub(crate) nh: [u8; 32],
    pub(crate) ncc: u8,
    /// They come from a K_AMF that the radio does not know yet.
    pub(crate) new: bool,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys(NCC {}, …)", self.ncc)
    }
}

/// What a UE shows that registers elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shown {
    /// Its 5G-TMSI at the source.
    pub tmsi: Tmsi,
    /// Its REGISTRATION REQUEST as it came, protected under the keys that the source has.
    #[serde(with = "crate::flat::octets::owned")]
    pub nas: Vec<u8>,
}

/// The context of a UE that registers elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transferred {
    /// The slot that asked.
    pub asker: UeId,
    /// Its state before it sent its request: a [`Checkpoint`](crate::Checkpoint).
    pub state: Flat,
    /// As in [`UeContextCreateData::upfs`].
    pub upfs: Vec<(PduSessionId, IpAddr)>,
}

/// What the target has made ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Created {
    /// What its gNB answered, and of sessions that the target itself refused why: HANDOVER REQUEST ACKNOWLEDGE.
    #[serde(with = "crate::flat::octets::owned")]
    pub acknowledge: Vec<u8>,
    /// Where the target takes PFCP of UPFs.
    pub smf: IpAddr,
    /// The sessions that it takes, admitted by its gNB or not, and its name of each towards the UPF.
    pub sessions: Vec<(PduSessionId, Seid)>,
}

/// What the source says of a UE that has come to the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Completed {
    /// These sessions are the target's now.
    Given(Vec<Given>),
    /// The handover was off before the UE came: it is the source's.
    Cancelled,
    /// The source has let the UE go already, or knows nothing of it any more.
    Gone,
}

/// A session that has come along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Which.
    pub psi: PduSessionId,
    /// Its UPF, as in [`UeContextCreateData::upfs`].
    pub upf: IpAddr,
    /// The UPF's session.
    pub up_seid: Seid,
    /// Rules there that still forward its packets; none: gNBs forward themselves.
    pub forwarding: Option<u8>,
}
