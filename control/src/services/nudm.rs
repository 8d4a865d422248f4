//! Nudm_UEAuthentication, Nudm_UECM, Nudm_SDM (TS 29.503) and Nnsacf_NSAC (TS 29.536): the UDM's services for AMF and AUSF. A request is an
//! output of the UE, the answer a later input.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{PlmnId, SNssai, Supi};
use whimbrel_nas::ie::Suci;
use whimbrel_security::{AuthenticationVector, Auts, EapAkaPrimeVector, EapIdentity, Rand};

use crate::state::Subscription;

/// A request to the UDM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum UdmRequest {
    /// Nudm_UEAuthentication_Get (TS 29.503 §5.4.2): de-conceals the SUPI and generates an authentication vector.
    GenerateAuthData {
        /// The subscriber that is to be authenticated.
        identity: Identity,
        /// The random challenge, from the UE's entropy.
        rand: [u8; 16],
        /// The USIM's AUTS (TS 33.102 §6.3.5).
        resynchronisation: Option<Resynchronisation>,
    },
    /// Nudm_UECM_Registration and Nudm_SDM_Get in one (TS 23.502 §4.2.2.2.2 step 14).
    Register(Supi),
    /// Nnsacf_NSAC_NumOfUEsUpdate (TS 23.501 §5.15.11): counts this UE in these slices, each with its maximum number of
    /// UEs; the UE leaves slices that are not listed.
    EnterSlices(Vec<(SNssai, u32)>),
    /// Nudm_SDM_Get alone (TS 23.502 §4.5.1).
    Subscription(Supi),
    /// Nudm_UECM_Deregistration (TS 23.502 §4.2.2.3.2).
    Deregister(Supi),
    /// Registers a broker's user, whose subscription is the broker's grant.
    RegisterGuest {
        /// The pseudonym of its session.
        supi: Supi,
        /// The pseudonym of its former session, which is deregistered.
        former: Option<Supi>,
    },
}

impl UdmRequest {
    /// The request as octets, for digests: not redacted, and different for different requests.
    pub(crate) fn digest_octets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            UdmRequest::GenerateAuthData { identity, rand, resynchronisation } => {
                out.push(1);
                match identity {
                    Identity::Supi(supi) => out.extend_from_slice(supi.value().as_bytes()),
                    Identity::Suci(suci) => write_suci(suci, &mut out),
                }
                out.extend_from_slice(rand);
                if let Some(Resynchronisation { rand, auts }) = resynchronisation {
                    out.extend_from_slice(&rand.0);
                    out.extend_from_slice(&auts.0);
                }
            }
            UdmRequest::Register(supi) => {
                out.push(2);
                out.extend_from_slice(supi.value().as_bytes());
            }
            UdmRequest::EnterSlices(slices) => {
                out.push(5);
                for (s, most) in slices {
                    out.extend_from_slice(s.to_string().as_bytes());
                    out.extend_from_slice(&most.to_be_bytes());
                }
            }
            UdmRequest::Subscription(supi) => {
                out.push(4);
                out.extend_from_slice(supi.value().as_bytes());
            }
            UdmRequest::RegisterGuest { supi, former } => {
                out.push(6);
                out.extend_from_slice(supi.value().as_bytes());
                out.extend(former.iter().flat_map(|f| f.value().into_bytes()));
            }
            UdmRequest::Deregister(supi) => {
                out.push(3);
                out.extend_from_slice(supi.value().as_bytes());
            }
        }
        out
    }
}

fn write_suci(suci: &Suci, out: &mut Vec<u8>) {
    let identity = whimbrel_nas::ie::MobileIdentity::Suci(suci.clone());
    let question = whimbrel_nas::mm::IdentityResponse::new(identity);
    whimbrel_nas::mm::Message::from(question).encode(out);
}

/// The identity of a subscriber.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    /// Concealed; the SIDF de-conceals it (TS 33.501 §6.12.5).
    Suci(Suci),
    /// A SUPI in clear.
    Supi(Supi),
}

/// Resynchronisation info of an AUTHENTICATION FAILURE.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resynchronisation {
    /// The challenge that the USIM refused.
    pub rand: Rand,
    /// The UE's token with its SQN.
    pub auts: Auts,
}

/// The UDM's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum UdmAnswer {
    /// To [`UdmRequest::GenerateAuthData`]; a refusal has the SUPI, if it was de-concealed.
    AuthData(Result<AuthData, (UdmError, Option<Supi>)>),
    /// To [`UdmRequest::Register`] and to [`UdmRequest::Subscription`].
    Registered(Result<Arc<Subscription>, UdmError>),
    /// To [`UdmRequest::EnterSlices`]: the slices that are full.
    Full(Vec<SNssai>),
    /// Answer to [`UdmRequest::Deregister`].
    Deregistered,
    /// Answer to [`UdmRequest::RegisterGuest`].
    GuestRegistered,
}

/// An authentication vector (TS 33.501 §6.1.3) and its subscriber.
#[derive(Clone, Serialize, Deserialize)]
pub struct AuthData {
    /// SUPI of the authenticated subscriber.
    pub supi: Supi,
    /// The vector, for the subscriber's method.
    pub vector: Vector,
}

/// A vector of either method. It is used for one procedure and not stored.
#[derive(Clone, Serialize, Deserialize)]
pub enum Vector {
    /// A 5G home-environment vector (TS 33.501 §6.1.3.2 step 1).
    FiveGAka(Box<AuthenticationVector>),
    /// A transformed vector, and the identity to which its keys are bound (TS 33.501 §6.1.3.1 step 2).
    EapAkaPrime(Box<EapAkaPrimeVector>, EapIdentity),
}

/// Redacted: with a vector the network can be impersonated.
impl fmt::Debug for AuthData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthData(…)")
    }
}

/// An error of the UDM (TS 29.503 §6.3.7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UdmError {
    /// No such subscriber.
    UserNotFound,
    /// The subscriber is barred.
    Barred,
    /// The SUCI names a home-network key that is not configured.
    UnknownHomeNetworkKey(u8),
    /// The SUCI is of another network.
    OtherHomeNetwork(PlmnId),
    /// The SUCI does not decrypt: its tag is wrong or its scheme output is malformed.
    BadSchemeOutput,
    /// AUTS does not verify under the subscriber's key.
    BadAuts,
    /// The store failed; the log has the error.
    Unavailable,
}
