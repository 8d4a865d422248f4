//! Nudm_UEAuthentication, Nudm_UECM, Nudm_SDM (TS 29.503) and Nnsacf_NSAC (TS 29.536): the UDM's services for AMF and AUSF. A request is an
//! output of the UE, the answer a later input.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, PduSessionId, PlmnId, SNssai, Supi};
use whimbrel_nas::ie::Suci;
use whimbrel_security::{AuthenticationVector, Auts, EapAkaPrimeVector, EapIdentity, Rand};

use super::ServiceFault;
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
    /// Nudm_UEAuthentication_ResultConfirmation (TS 29.503 §5.4.2.3): the outcome of an authentication, for a remote UDM.
    ConfirmAuthentication {
        /// The subscriber that was challenged.
        supi: Supi,
        /// The method of its vector.
        method: AuthMethod,
        /// The UE is authenticated.
        success: bool,
    },
    /// Nudm_UECM_Registration of the SMF (TS 23.502 §4.3.2.2.1 step 4), for a remote UDM.
    RegisterSession {
        /// The UE's subscriber.
        supi: Supi,
        /// Identity of the session.
        psi: PduSessionId,
        /// The slice of the session.
        s_nssai: SNssai,
        /// Its data network.
        dnn: Dnn,
    },
    /// Nudm_UECM_Deregistration of the SMF (TS 23.502 §4.3.4.2 step 12), for a remote UDM.
    DeregisterSession(Supi, PduSessionId),
    /// Registers a broker's user, whose subscription is the broker's grant.
    RegisterGuest {
        /// The pseudonym of its session.
        supi: Supi,
        /// The pseudonym of its former session, which is deregistered.
        former: Option<Supi>,
    },
}

impl UdmRequest {
    /// True if a remote UDM answers it, where there is one. Slices are counted here, and the broker's grant is the subscription of its user.
    pub fn is_for_remote_udm(&self) -> bool {
        match self {
            Self::GenerateAuthData { .. }
            | Self::Register(_)
            | Self::Subscription(_)
            | Self::Deregister(_)
            | Self::ConfirmAuthentication { .. }
            | Self::RegisterSession { .. }
            | Self::DeregisterSession(..) => true,
            Self::EnterSlices(_) | Self::RegisterGuest { .. } => false,
        }
    }

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
            UdmRequest::ConfirmAuthentication { supi, method, success } => {
                out.extend_from_slice(&[7, *method as u8, u8::from(*success)]);
                out.extend_from_slice(supi.value().as_bytes());
            }
            UdmRequest::RegisterSession { supi, psi, s_nssai, dnn } => {
                out.extend_from_slice(&[8, psi.value()]);
                for text in [supi.value(), s_nssai.to_string(), dnn.to_string()] {
                    out.extend_from_slice(text.as_bytes());
                    out.push(0);
                }
            }
            UdmRequest::DeregisterSession(supi, psi) => {
                out.extend_from_slice(&[9, psi.value()]);
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
    /// To [`UdmRequest::ConfirmAuthentication`], [`UdmRequest::RegisterSession`] and [`UdmRequest::DeregisterSession`].
    Noted,
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

impl Vector {
    /// The method of the vector.
    pub fn method(&self) -> AuthMethod {
        match self {
            Self::FiveGAka(_) => AuthMethod::FiveGAka,
            Self::EapAkaPrime(..) => AuthMethod::EapAkaPrime,
        }
    }
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
    /// The UDM does not accept this serving network (SERVING_NETWORK_NOT_AUTHORIZED).
    ServingNetworkNotAuthorized,
    /// The subscriber may not roam here (ROAMING_NOT_ALLOWED).
    RoamingNotAllowed,
    /// The remote UDM failed; the log has the details.
    Remote(ServiceFault),
}

/// How a subscriber is authenticated (TS 33.501 §6.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthMethod {
    /// TS 33.501 §6.1.3.2.
    #[default]
    FiveGAka,
    /// TS 33.501 §6.1.3.1.
    EapAkaPrime,
}
