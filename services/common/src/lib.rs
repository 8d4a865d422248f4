//! What the protocols between a user, an operator and a broker share: SAP (the crate `open`) and the veiled attach (the
//! crate `privacy`). They differ in their labels and in some fields; the rest is here once.
//!
//! | part | here |
//! | --- | --- |
//! | names of the parties | [`id`] |
//! | octets of messages: heads, fields, parts, causes, signed messages | [`codec`] |
//! | secrets, keys, signatures with a domain | [`crypto`] |
//! | HPKE under a protocol's labels | [`envelope`] |
//! | certificates of operators and brokers, and the anchors that are trusted | [`certificate`] |
//! | the user's request, sealed to the broker | [`request`] |
//! | the broker's signed refusal | [`refusal`] |
//! | QoS and filters of a session | [`session`] |
//! | 5G-AKA with a broker as home network | [`home`] |
//!
//! Time, octets and entropy come in; octets and keys go out.
#![forbid(unsafe_code)]

pub mod certificate;
pub mod codec;
pub mod crypto;
pub mod envelope;
pub mod home;
pub mod id;
pub mod refusal;
pub mod request;
#[cfg(feature = "serde")]
mod serde_as;
pub mod session;

use core::fmt::Debug;

use codec::{CauseCode, MessageField, MessageHead};
use crypto::SignedKind;
use envelope::{ExportedSecret, Protocol};

/// How far the clocks of two parties may be apart, in seconds: what certificates of short life and a UE that takes its time from
/// the network allow.
pub const CLOCK_SKEW_MAX_S: u64 = 300;

/// A protocol by which a user attaches to an operator that its broker has to answer: its labels, and the fields in which its
/// requests and refusals differ from those of the others.
pub trait AttachProtocol: Clone + Debug + PartialEq + Eq {
    /// Labels of what is sealed and derived.
    const LABELS: Protocol;
    /// Head of the user's request.
    const REQUEST: MessageHead;
    /// `info` of the HPKE context of the user's request, before the key's identifier and the broker's domain.
    const REQUEST_INFO: &'static [u8];
    /// Whether the sealed part of a request stands behind its length; if not, all are of one length.
    const SEALED_HAS_LENGTH: bool;
    /// Head of the broker's refusal.
    const REFUSAL: MessageHead;
    /// The kinds of its signatures.
    type Signed: SignedKind;
    /// Kind of the user's signature.
    const SIGNED_REQUEST: Self::Signed;
    /// Kind of the broker's signature of a refusal.
    const SIGNED_REFUSAL: Self::Signed;
    /// How user and broker name the operator that asks: by its identity, or by its session group.
    type Asker: MessageField + Clone + Debug + PartialEq + Eq;
    /// The part of a request that the operator or the broker reads before it is opened.
    type ClearPart: MessageField + Clone + Debug + PartialEq + Eq;
    /// Why the broker refuses.
    type Cause: CauseCode + Debug + PartialEq + Eq;
    /// The secret that the user and the broker share once a request is sealed.
    type Exporter: From<ExportedSecret>;
}

/// The error of the first check that fails.
pub fn check_all<E, const N: usize>(checks: [(bool, E); N]) -> Result<(), E> {
    checks.into_iter().try_for_each(|(holds, error)| if holds { Ok(()) } else { Err(error) })
}
