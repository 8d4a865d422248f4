//! Configuration of a UE, and its faults.

use std::sync::Arc;

use whimbrel_ids::{Dnn, Pei, PlmnId, SNssai, Supi};
use whimbrel_nas::ie::{
    DrxParameters, GprsTimer3, MicoIndication, MmCapability, Opaque, PduSessionType, QosFlowDescription,
    QosRule, RoutingIndicator, SscMode, Suci, UeSecurityCapability,
};
use whimbrel_nas::mm::{MessageType, RegistrationRequest};
use whimbrel_ngap::RrcEstablishmentCause;
use whimbrel_open::crypto::Seed;
use whimbrel_open::user;
use whimbrel_security::{HomeNetworkPublicKey, K, Milenage, Opc, UsimSqn};

/// Configuration shared by many UEs.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The network that it has selected.
    pub plmn: PlmnId,
    /// The network of its subscription, whose digits begin the SUPI.
    pub home_plmn: PlmnId,
    /// Routing indicator of the USIM.
    pub routing_indicator: RoutingIndicator,
    /// The requested slices.
    pub requested_nssai: Vec<SNssai>,
    /// Its algorithms. With only NIA0 set it has no algorithm in common with a correct core.
    pub security_capability: UeSecurityCapability,
    /// Its 5GMM capability.
    pub mm_capability: MmCapability,
    /// Registrations carry Follow-on request.
    pub follow_on_request: bool,
    /// It requests DNS servers by IPCP too, as many UEs do.
    pub ipcp: bool,
    /// The requested SSC mode.
    pub ssc_mode: SscMode,
    /// It indicates reflective QoS (RQoS, TS 24.501 §9.11.4.1), but uses only signalled rules.
    pub reflective_qos: bool,
    /// Its initial faults, for tests of the core.
    pub faults: Option<Box<Faults>>,
}

impl Profile {
    /// A UE of the network `plmn`, at home in it, with NEA0 to NEA3 and NIA1 to NIA3, EPS likewise.
    pub fn new(plmn: PlmnId, requested_nssai: Vec<SNssai>) -> Self {
        Self {
            plmn,
            home_plmn: plmn,
            routing_indicator: RoutingIndicator::NONE,
            requested_nssai,
            security_capability: UeSecurityCapability::with_eps(0xf0, 0x70, 0xf0, 0x70),
            mm_capability: MmCapability::default(),
            follow_on_request: true,
            ipcp: true,
            ssc_mode: SscMode::One,
            reflective_qos: false,
            faults: None,
        }
    }
}

/// The source of a UE's SUCI (TS 33.501 §6.12.2).
#[derive(Clone)]
pub enum SuciSource {
    /// The null scheme.
    Null,
    /// Concealed for the home network, computed again whenever T3519 does not run.
    Concealed {
        /// The home network's key; it names the profile.
        key: Arc<HomeNetworkPublicKey>,
        /// Home network public key identifier.
        key_id: u8,
        /// Seed of ephemeral keys, different for each UE.
        seed: [u8; 32],
    },
    /// Precomputed, for load generation.
    Precomputed(Suci),
    /// A broker's SIM: each registration asks the broker by SAP (CellBricks, chapter 3.4.1), and there is no K.
    Sap(Box<SapCard>),
    /// A broker's SIM of a UE that attaches veiled (LOCA, chapter 4.4.2).
    Veil(Box<VeilCard>),
}

/// A broker's SIM, with keys in place of K.
#[derive(Clone, Debug)]
pub struct SapCard {
    /// The broker's data. The counter increases with each request.
    pub sim: user::UserSim,
    /// Seed of the entropy of attaches, different for each UE.
    pub seed: Seed,
}

/// A SIM for veiled attaches, and the token that the UE's cell broadcasts.
#[derive(Clone, Debug)]
pub struct VeilCard {
    /// What the broker has issued. Its counter goes on with each request.
    pub sim: whimbrel_privacy::user::UserSim,
    /// What the entropy of attaches is drawn from; of each UE its own.
    pub seed: Seed,
    /// H(token) of the operator that the UE hears.
    pub(super) token: Option<whimbrel_privacy::token::TokenHash>,
    pub(super) state: super::veil::VeiledAttach,
}

impl VeilCard {
    /// Of a UE that hears no token yet.
    pub fn new(sim: whimbrel_privacy::user::UserSim, seed: Seed) -> Self {
        Self { sim, seed, token: None, state: Default::default() }
    }
}

/// Redacted: it holds a seed.
impl core::fmt::Debug for SuciSource {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Concealed { key_id, .. } => write!(f, "Concealed {{ key_id: {key_id}, .. }}"),
            Self::Precomputed(suci) => write!(f, "Precomputed({suci:?})"),
            Self::Sap(card) => write!(f, "Sap({})", card.sim.broker),
            Self::Veil(card) => write!(f, "Veil({})", card.sim.broker),
        }
    }
}

/// One UE with its USIM.
#[derive(Clone, Debug)]
pub struct UeConfig {
    /// The shared configuration.
    pub profile: Arc<Profile>,
    /// SUPI of the subscription.
    pub supi: Supi,
    /// IMEISV of the equipment.
    pub pei: Pei,
    /// Subscriber key K.
    pub k: K,
    /// OPc of the USIM.
    pub opc: Opc,
    /// The sequence numbers that the USIM has accepted.
    pub sqn: UsimSqn,
    /// The source of its SUCI.
    pub suci: SuciSource,
}

impl UeConfig {
    pub(super) fn milenage(&self) -> Milenage {
        Milenage::new(&self.k, self.opc.clone())
    }
}

/// Faults of a UE, for tests of the core. A wrong key, SQN, slice, DNN or algorithm is set in its configuration
/// instead.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Answer challenges with a wrong RES*.
    pub wrong_res_star: bool,
    /// Ignore the next messages of these types, as if the radio had lost them.
    pub ignore: Vec<(MessageType, u32)>,
    /// Ignore the next handover commands, as if the radio had lost them.
    pub ignore_handovers: u32,
    /// Corrupt the MAC of the next protected messages.
    pub wrong_mac: u32,
    /// Send other security capabilities in the initial message than those that the UE expects to be replayed, as in a
    /// bidding-down attack.
    pub bid_down: Option<UeSecurityCapability>,
    /// Alter the next message before it is protected, so that it passes the integrity check.
    pub alter: Option<Alter>,
    /// No USIM: the UE identifies itself by its PEI, and accepts null integrity for an emergency.
    pub no_usim: bool,
    /// Its establishment cause, regardless of entitlement (TS 24.501 §4.5.6).
    pub claim: Option<RrcEstablishmentCause>,
    /// Additional IEs of its registration requests.
    pub ask_for: Option<Box<AskFor>>,
    /// It registers again on its connection at once instead of waiting for the release under T3540 (TS 24.501 §5.3.1.3): after a reject
    /// that allows it, and after DEREGISTRATION ACCEPT if it is to register next.
    pub at_once: Option<AtOnce>,
}

/// How a UE registers without waiting for the release of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// Protected with its keys.
    WithKeys,
    /// Unprotected: it has deleted its keys.
    WithoutKeys,
}

impl Faults {
    /// A UE without faults.
    pub(super) const NONE: Self = Self {
        wrong_res_star: false,
        ignore: Vec::new(),
        ignore_handovers: 0,
        wrong_mac: 0,
        bid_down: None,
        alter: None,
        no_usim: false,
        claim: None,
        ask_for: None,
        at_once: None,
    };
}

type AlterOctets = dyn Fn(&mut Vec<u8>) + Send + Sync;

/// An alteration of a plain message.
#[derive(Clone)]
pub struct Alter(pub Arc<AlterOctets>);

impl core::fmt::Debug for Alter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Alter")
    }
}

/// QoS requested by a UE (TS 24.501 §6.4.2.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosRequest {
    /// Requested QoS rules.
    pub rules: Vec<QosRule>,
    /// Requested QoS flow descriptions.
    pub flows: Vec<QosFlowDescription>,
}

/// Optional IEs of REGISTRATION REQUEST (TS 24.501 §8.2.6).
#[derive(Clone, Debug, Default)]
pub struct AskFor {
    /// MICO indication that the UE sends.
    pub mico: Option<MicoIndication>,
    /// Active time that the UE asks for.
    pub t3324: Option<GprsTimer3>,
    /// Periodic registration timer.
    pub t3512: Option<GprsTimer3>,
    /// Paging cycle that the UE asks for.
    pub drx: Option<DrxParameters>,
    /// Extended paging cycle and window, as their octet.
    pub edrx: Option<u8>,
}

impl AskFor {
    pub(super) fn ask(&self, m: &mut RegistrationRequest) {
        m.mico_indication = self.mico;
        m.t3324 = self.t3324;
        m.requested_t3512 = self.t3512;
        m.requested_drx_parameters = self.drx;
        m.requested_extended_drx = self.edrx.and_then(|octet| Opaque::new([octet]));
    }
}

/// A session to set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// The data network; without one the network chooses.
    pub dnn: Option<Dnn>,
    /// The slice; without one the network chooses.
    pub s_nssai: Option<SNssai>,
    /// Type of the session.
    pub pdu_session_type: PduSessionType,
}

impl Default for SessionRequest {
    fn default() -> Self {
        Self { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 }
    }
}
