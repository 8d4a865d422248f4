//! The UDM and the ARPF: who subscribes to what, and vectors to prove it (TS 23.501 §6.2.7, TS 29.503).
//!
//! A UE's machine asks with a [`Request`] among its outputs and gets an [`Answer`] as a later input. What
//! several UEs may touch, the registration and the SQN of one subscriber, is the [`Directory`]'s alone.

mod directory;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, FiveQi, PlmnId, SNssai, Supi, Tac};
use whimbrel_nas::ie::{SscMode, Suci};
use whimbrel_security::{
    AkaFunctions, AuthenticationManagementField, AuthenticationVector, Auts, EapAkaPrimeVector, EapIdentity,
    Rand, SqnOffset,
};

use crate::config::UpSecurity;
use crate::policy::FlowPolicy;

pub use directory::{Directory, Outcome, Registrations};

/// A service operation asked of the UDM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Nudm_UEAuthentication_Get (TS 29.503 §5.4.2): reveals the SUPI and makes a 5G home-environment vector.
    GenerateAuthData {
        /// Who.
        identity: Identity,
        /// The random challenge, from the asking UE's entropy.
        rand: [u8; 16],
        /// What the USIM sent to resynchronise (TS 33.102 §6.3.5).
        resynchronisation: Option<Resynchronisation>,
    },
    /// Nudm_UECM_Registration and Nudm_SDM_Get in one (TS 23.502 §4.2.2.2.2 step 14).
    Register(Supi),
    /// Nnsacf_NSAC_NumOfUEsUpdate (TS 23.501 §5.15.11): counts this UE in these slices, each with the most that it
    /// may have; slices that it was counted in before and that are not named are left.
    EnterSlices(Vec<(SNssai, u32)>),
    /// Nudm_SDM_Get alone (TS 23.502 §4.5.1).
    Subscription(Supi),
    /// Nudm_UECM_Deregistration (TS 23.502 §4.2.2.3.2).
    Deregister(Supi),
}

impl Request {
    /// All that it says, as octets, for digests: nothing is redacted, and different requests differ.
    pub(crate) fn digest_octets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Request::GenerateAuthData { identity, rand, resynchronisation } => {
                out.push(1);
                match identity {
                    Identity::Supi(supi) => out.extend(supi.digits()),
                    Identity::Suci(suci) => write_suci(suci, &mut out),
                }
                out.extend_from_slice(rand);
                if let Some(Resynchronisation { rand, auts }) = resynchronisation {
                    out.extend_from_slice(&rand.0);
                    out.extend_from_slice(&auts.0);
                }
            }
            Request::Register(supi) => {
                out.push(2);
                out.extend(supi.digits());
            }
            Request::EnterSlices(slices) => {
                out.push(5);
                for (s, most) in slices {
                    out.extend_from_slice(s.to_string().as_bytes());
                    out.extend_from_slice(&most.to_be_bytes());
                }
            }
            Request::Subscription(supi) => {
                out.push(4);
                out.extend(supi.digits());
            }
            Request::Deregister(supi) => {
                out.push(3);
                out.extend(supi.digits());
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

/// How a subscriber is named to the UDM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    /// Concealed; the SIDF reveals it (TS 33.501 §6.12.5).
    Suci(Suci),
    /// Already revealed.
    Supi(Supi),
}

/// A synchronisation failure to be repaired.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resynchronisation {
    /// The challenge that the USIM refused.
    pub rand: Rand,
    /// Its answer.
    pub auts: Auts,
}

/// The UDM's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Request::GenerateAuthData`]; a refusal says whose it is, if that was revealed.
    AuthData(Result<AuthData, (UdmError, Option<Supi>)>),
    /// To [`Request::Register`] and to [`Request::Subscription`].
    Registered(Result<Arc<Subscription>, UdmError>),
    /// To [`Request::EnterSlices`]: those that are full.
    Full(Vec<SNssai>),
    /// To [`Request::Deregister`].
    Deregistered,
}

/// An authentication vector (TS 33.501 §6.1.3) and whose it is.
#[derive(Clone, Serialize, Deserialize)]
pub struct AuthData {
    /// The subscriber.
    pub supi: Supi,
    /// The vector, of the method that the subscriber has.
    pub vector: Vector,
}

/// A vector of either method. It is made for one procedure: neither is kept.
#[derive(Clone, Serialize, Deserialize)]
pub enum Vector {
    /// A 5G home-environment vector (TS 33.501 §6.1.3.2 step 1).
    FiveGAka(Box<AuthenticationVector>),
    /// A transformed vector, and the identity that its keys are bound to (TS 33.501 §6.1.3.1 step 2).
    EapAkaPrime(Box<EapAkaPrimeVector>, EapIdentity),
}

/// How a subscriber is authenticated (TS 33.501 §6.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMethod {
    /// TS 33.501 §6.1.3.2.
    #[default]
    FiveGAka,
    /// TS 33.501 §6.1.3.1.
    EapAkaPrime,
}

/// Redacted: a vector lets its holder impersonate the network.
impl fmt::Debug for AuthData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthData(…)")
    }
}

/// Why the UDM has no answer (TS 29.503 §6.3.7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UdmError {
    /// No such subscriber.
    UserNotFound,
    /// The operator barred the subscriber.
    Barred,
    /// The SUCI names a home-network key that is not configured.
    UnknownHomeNetworkKey(u8),
    /// The SUCI is of another network.
    OtherHomeNetwork(PlmnId),
    /// The SUCI does not decrypt: its tag is wrong or its scheme output is malformed.
    BadSchemeOutput,
    /// AUTS does not prove to come from the subscriber's USIM.
    BadAuts,
    /// The store failed; the operator's log says how.
    Unavailable,
}

/// What authentication needs of a subscriber (TS 29.503 §6.3.6.2.2 of the AuthenticationSubscription).
pub struct AuthenticationSubscription {
    /// The keyed functions of the subscriber's USIM.
    pub functions: AkaFunctions,
    /// The method that is used with it.
    pub method: AuthMethod,
    /// Authentication management field; its separation bit must be set (TS 33.501 §6.1.3.2).
    pub amf: AuthenticationManagementField,
    /// Where the sequence stands against the clock; durable.
    pub sqn_offset: SqnOffset,
}

/// What a subscriber may use (TS 29.503 §6.1.6.2.4, §6.1.6.2.8). Shared by all subscribers with the same terms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subscription {
    /// Aggregate maximum bit rate over all sessions.
    pub ue_ambr: Ambr,
    /// Slices, in order of preference.
    pub slices: Vec<SubscribedSlice>,
    /// Index to RAT/frequency selection priority, 1 to 256 (TS 38.413 §9.3.1.61).
    pub rfsp: Option<u16>,
    /// Where and how the UE may be.
    pub restrictions: MobilityRestrictions,
    /// What it may have before others.
    pub priority: Priority,
}

/// Subscribed priority (TS 23.501 §5.22.2, TS 29.503 §6.1.6.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Priority {
    /// Multimedia priority service: access identity 1 is valid.
    pub mps: bool,
    /// Mission critical services: access identity 2 is valid.
    pub mcs: bool,
}

/// Subscribed mobility restrictions (TS 23.501 §5.3.4.1, TS 29.503 §6.1.6.2.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MobilityRestrictions {
    /// New Radio is barred.
    pub nr_barred: bool,
    /// Tracking areas in which the UE gets no service.
    pub forbidden_areas: Vec<Tac>,
    /// Where the UE may start services; `None`: everywhere.
    pub service_area: Option<ServiceArea>,
}

/// Where a UE may start services (TS 23.501 §5.3.4.1.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ServiceArea {
    /// In these alone.
    Allowed(Vec<Tac>),
    /// Everywhere but in these.
    NotAllowed(Vec<Tac>),
}

impl ServiceArea {
    /// Whether services may be started in a tracking area.
    pub fn allows(&self, tac: Tac) -> bool {
        match self {
            Self::Allowed(tacs) => tacs.contains(&tac),
            Self::NotAllowed(tacs) => !tacs.contains(&tac),
        }
    }
}

impl Subscription {
    /// The subscribed slice of this name.
    pub fn slice(&self, s_nssai: SNssai) -> Option<&SubscribedSlice> {
        self.slices.iter().find(|s| s.s_nssai == s_nssai)
    }
}

/// Aggregate maximum bit rate, in kbit/s (1 kbit = 1000 bit).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ambr {
    /// Uplink.
    pub ul_kbps: u64,
    /// Downlink.
    pub dl_kbps: u64,
}

/// A slice that a subscriber may use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SubscribedSlice {
    /// Its name.
    pub s_nssai: SNssai,
    /// Used where the UE asks for none (TS 23.501 §5.15.3).
    pub default: bool,
    /// Data networks within it.
    pub dnns: Vec<SubscribedDnn>,
}

/// A data network that a subscriber may use within a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SubscribedDnn {
    /// Its name.
    pub dnn: Dnn,
    /// Used where the UE names none.
    pub default: bool,
    /// Session types allowed.
    pub session_types: SessionTypes,
    /// SSC mode where the UE asks for none; mode 1 may be asked for besides (TS 23.501 §5.6.9.3).
    pub ssc_mode: SscMode,
    /// 5QI of the default QoS flow.
    pub five_qi: FiveQi,
    /// Allocation and retention priority of the default QoS flow.
    pub arp: Arp,
    /// Session aggregate maximum bit rate.
    pub session_ambr: Ambr,
    /// The address that the subscriber always gets.
    pub static_ipv4: Option<Ipv4Addr>,
    /// The /64 prefix that the subscriber always gets.
    pub static_ipv6: Option<Ipv6Addr>,
    /// QoS flows on top of those of the data network.
    pub flows: Vec<FlowPolicy>,
    /// Networks behind the UE, and the lengths of their prefixes (TS 23.501 §5.6.14).
    pub framed_routes: Vec<(IpAddr, u8)>,
    /// How its user plane is to be protected, whatever the operator says of the data network (TS 23.501 §5.10.3).
    pub up_security: Option<UpSecurity>,
}

/// PDU session types (TS 24.501 §9.11.4.11) that a subscription allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionTypes {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
    /// Ethernet.
    pub ethernet: bool,
    /// Unstructured.
    pub unstructured: bool,
}

impl SessionTypes {
    /// None at all.
    pub const NONE: Self = Self { ipv4: false, ipv6: false, ethernet: false, unstructured: false };
    /// IPv4, IPv6, and both in one.
    pub const IP: Self = Self { ipv4: true, ipv6: true, ..Self::NONE };
}

impl fmt::Display for SessionTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.ipv4, "IPv4"),
            (self.ipv6, "IPv6"),
            (self.ethernet, "Ethernet"),
            (self.unstructured, "unstructured"),
        ];
        let mut names = all.iter().filter(|(allowed, _)| *allowed).map(|(_, name)| *name);
        f.write_str(names.next().unwrap_or("none"))?;
        names.try_for_each(|name| write!(f, ", {name}"))
    }
}

/// Allocation and retention priority (TS 23.501 §5.7.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Arp {
    /// 1 (highest) to 15.
    pub priority: u8,
    /// May take resources from others.
    pub may_preempt: bool,
    /// May lose resources to others.
    pub preemptable: bool,
}

/// Where subscribers are kept.
pub trait Subscribers {
    /// What authentication needs.
    fn authentication(&mut self, supi: Supi) -> Result<AuthenticationSubscription, UdmError>;
    /// What the subscriber may use.
    fn subscription(&mut self, supi: Supi) -> Result<Arc<Subscription>, UdmError>;
    /// Keeps what a resynchronisation found, durably, before it is used.
    fn save_sqn_offset(&mut self, supi: Supi, offset: SqnOffset) -> Result<(), UdmError>;
}
