//! What a registration asks for and gets: types, results and indications of TS 24.501 §9.11.3.

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use super::octets::{bit_half, bit_octets, code_half};
use crate::codec::{HalfIe, Ie};

code_half! {
    /// What kind of registration (TS 24.501 §9.11.3.7, bits 3 to 1). The unused code means initial registration.
    RegistrationKind, 0x07 {
        /// The initial registration of a UE.
        Initial = 1 | 0,
        /// Mobility registration updating.
        MobilityUpdating = 2,
        /// Periodic registration updating.
        PeriodicUpdating = 3,
        /// A registration for emergency services.
        Emergency = 4,
        /// SNPN onboarding registration.
        SnpnOnboarding = 5,
        /// Disaster roaming mobility registration updating.
        DisasterMobilityUpdating = 6,
        /// Disaster roaming initial registration.
        DisasterInitial = 7,
    }
}

/// 5GS registration type (TS 24.501 §9.11.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationType {
    /// A follow-on request is pending: the connection is to be kept.
    pub follow_on_request: bool,
    /// What kind of registration.
    pub kind: RegistrationKind,
}

impl HalfIe for RegistrationType {
    fn from_half(bits: u8) -> Option<Self> {
        Some(Self { follow_on_request: bits & 0x08 != 0, kind: RegistrationKind::from_half(bits & 0x07)? })
    }

    fn half(&self) -> u8 {
        u8::from(self.follow_on_request) << 3 | self.kind.half()
    }
}

code_half! {
    /// Over which accesses something holds (TS 24.501 §9.11.3.6, §9.11.3.20).
    Accesses, 0x03 {
        /// The access of 3GPP.
        ThreeGpp = 1,
        /// Access that is not 3GPP's.
        NonThreeGpp = 2,
        /// 3GPP access and non-3GPP access.
        Both = 3,
    }
}

/// 5GS registration result (TS 24.501 §9.11.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationResult {
    /// Where the UE is registered now.
    pub registered: Accesses,
    /// SMS over NAS is allowed.
    pub sms_allowed: bool,
    /// Network slice-specific authentication and authorization is to be performed.
    pub nssaa_to_be_performed: bool,
    /// Registered for emergency services.
    pub emergency_registered: bool,
    /// Registered for disaster roaming services although this was not asked for.
    pub disaster_roaming: bool,
}

impl RegistrationResult {
    /// Registered over these accesses, without further flags.
    pub const fn over(registered: Accesses) -> Self {
        Self {
            registered,
            sms_allowed: false,
            nssaa_to_be_performed: false,
            emergency_registered: false,
            disaster_roaming: false,
        }
    }
}

impl Ie for RegistrationResult {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let invalid = r.error(DecodeErrorKind::InvalidValue, "5GS registration result value");
        let octet = r.u8("5GS registration result")?;
        let registered = match octet & 0x07 {
            1 => Accesses::ThreeGpp,
            2 => Accesses::NonThreeGpp,
            3 => Accesses::Both,
            7 => return Err(invalid),
            _ => Accesses::ThreeGpp, // unused values mean 3GPP access
        };
        Ok(Self {
            registered,
            sms_allowed: octet & 0x08 != 0,
            nssaa_to_be_performed: octet & 0x10 != 0,
            emergency_registered: octet & 0x20 != 0,
            disaster_roaming: octet & 0x40 != 0,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(
            self.registered.half()
                | u8::from(self.sms_allowed) << 3
                | u8::from(self.nssaa_to_be_performed) << 4
                | u8::from(self.emergency_registered) << 5
                | u8::from(self.disaster_roaming) << 6,
        );
    }
}

/// De-registration type (TS 24.501 §9.11.3.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeregistrationType {
    /// The UE is being switched off (only from the UE): no accept is sent.
    pub switch_off: bool,
    /// The UE shall register again (only from the network).
    pub re_registration_required: bool,
    /// For which accesses.
    pub accesses: Accesses,
}

impl HalfIe for DeregistrationType {
    fn from_half(bits: u8) -> Option<Self> {
        Some(Self {
            switch_off: bits & 0x08 != 0,
            re_registration_required: bits & 0x04 != 0,
            accesses: Accesses::from_half(bits & 0x03)?,
        })
    }

    fn half(&self) -> u8 {
        u8::from(self.switch_off) << 3 | u8::from(self.re_registration_required) << 2 | self.accesses.half()
    }
}

code_half! {
    /// Service type (TS 24.501 §9.11.3.50).
    ServiceType, 0x0f {
        /// Signalling without user data.
        Signalling = 0 | 7 | 8,
        /// Signalling for user data.
        Data = 1 | 9 | 10 | 11,
        /// Mobile terminated services.
        MobileTerminatedServices = 2,
        /// Signalling for emergency services.
        EmergencyServices = 3,
        /// Emergency services fallback.
        EmergencyServicesFallback = 4,
        /// High priority access.
        HighPriorityAccess = 5,
        /// Signalling with elevated priority.
        ElevatedSignalling = 6,
    }
}

code_half! {
    /// Control plane service type (TS 24.501 §9.11.3.18D).
    ControlPlaneServiceType, 0x07 {
        /// Mobile originating request; unused codes mean it too.
        MobileOriginating = 0 | 3 | 4 | 5 | 6 | 7,
        /// Mobile terminating request.
        MobileTerminating = 1,
        /// Emergency services or emergency services fallback.
        Emergency = 2,
    }
}

code_half! {
    /// Access type (TS 24.501 §9.11.2.1A).
    AccessType, 0x03 {
        /// The access of 3GPP.
        ThreeGpp = 1,
        /// Access that is not 3GPP's.
        NonThreeGpp = 2,
    }
}

bit_half! {
    /// MICO indication (TS 24.501 §9.11.3.31).
    MicoIndication {
        /// All PLMN registration area allocated (RAAI).
        all_plmn_registration_area: 0x01,
        /// Strictly periodic registration timer (SPRTI).
        strictly_periodic: 0x02,
    }
}

bit_half! {
    /// Network slicing indication (TS 24.501 §9.11.3.36).
    NetworkSlicingIndication {
        /// Network slicing subscription has changed (NSSCI).
        subscription_changed: 0x01,
        /// The requested NSSAI was made from the default configured NSSAI (DCNI).
        default_configured_nssai: 0x02,
    }
}

bit_half! {
    /// Configuration update indication (TS 24.501 §9.11.3.18).
    ConfigurationUpdateIndication {
        /// An acknowledgement is requested (ACK).
        acknowledgement_requested: 0x01,
        /// Registration is requested (RED).
        registration_requested: 0x02,
    }
}

bit_half! {
    /// SMS indication (TS 24.501 §9.11.3.50A).
    SmsIndication {
        /// SMS over NAS is available (SAI).
        available: 0x01,
    }
}

bit_half! {
    /// N5GC indication (TS 24.501 §9.11.3.72).
    N5gcIndication {
        /// The registration is for a device that has no NAS of its own.
        requested: 0x01,
    }
}

bit_half! {
    /// Release assistance indication (TS 24.501 §9.11.3.46A): downlink data that is expected, as its two bits.
    ReleaseAssistanceIndication {
        /// Bit 1: no further data in either direction is expected.
        no_further_data: 0x01,
        /// Bit 2: only a single downlink data and no further uplink data is expected.
        single_downlink_data: 0x02,
    }
}

bit_half! {
    /// Non-3GPP NW provided policies (TS 24.501 §9.11.3.36A).
    Non3gppProvidedPolicies {
        /// Emergency numbers over non-3GPP access may be used (N3EN).
        emergency_numbers: 0x01,
    }
}

bit_half! {
    /// UE radio capability ID deletion indication (TS 24.501 §9.11.3.69).
    RadioCapabilityIdDeletion {
        /// Network-assigned identifiers are to be deleted.
        delete_network_assigned: 0x01,
    }
}

bit_half! {
    /// Additional configuration indication (TS 24.501 §9.11.3.74).
    AdditionalConfigurationIndication {
        /// The signalling connection is to be maintained (SCMR).
        maintain_connection: 0x01,
    }
}

bit_half! {
    /// Priority indicator (TS 24.501 §9.11.3.91).
    PriorityIndicator {
        /// MPS access identity 1 is valid.
        mps: 0x01,
        /// MCS access identity 2 is valid.
        mcs: 0x02,
    }
}

bit_half! {
    /// MA PDU session information (TS 24.501 §9.11.3.31A).
    MaPduSessionInformation {
        /// Upgrade to a multi-access PDU session is allowed.
        upgrade_allowed: 0x01,
    }
}

code_half! {
    /// NSSAI inclusion mode (TS 24.501 §9.11.3.37A).
    NssaiInclusionMode, 0x03 {
        /// Inclusion mode A of the NSSAI.
        A = 0,
        /// Inclusion mode B of the NSSAI.
        B = 1,
        /// Inclusion mode C of the NSSAI.
        C = 2,
        /// Inclusion mode D of the NSSAI.
        D = 3,
    }
}

bit_octets! {
    /// 5GS update type (TS 24.501 §9.11.3.9A).
    UpdateType [1..=1] {
        /// SMS over NAS is requested.
        sms_requested with_sms_requested: 0, 0x01;
        /// The UE radio capability needs an update (NG-RAN-RCU).
        radio_capability_update with_radio_capability_update: 0, 0x02;
    }
}

bit_octets! {
    /// UE status (TS 24.501 §9.11.3.56).
    UeStatus [1..=1] {
        /// EMM-REGISTERED: known to an EPC (S1 mode reg).
        emm_registered with_emm_registered: 0, 0x01;
        /// 5GMM-REGISTERED (N1 mode reg).
        mm_registered with_mm_registered: 0, 0x02;
    }
}

bit_octets! {
    /// UE's usage setting (TS 24.501 §9.11.3.55).
    UsageSetting [1..=1] {
        /// Data centric; voice centric if not set.
        data_centric with_data_centric: 0, 0x01;
    }
}

bit_octets! {
    /// Additional information requested (TS 24.501 §9.11.3.12A).
    AdditionalInformationRequested [1..=1] {
        /// Ciphering keys for positioning data are requested (CipherKey).
        ciphering_key with_ciphering_key: 0, 0x01;
    }
}

/// 5GS DRX parameters (TS 24.501 §9.11.3.2A): the paging cycle that the UE asks for, or is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DrxParameters {
    /// No value of its own.
    NotSpecified = 0,
    /// T = 32 radio frames.
    T32 = 1,
    /// T = 64 radio frames.
    T64 = 2,
    /// T = 128 radio frames.
    T128 = 3,
    /// T = 256 radio frames.
    T256 = 4,
}

impl DrxParameters {
    /// The cycle in radio frames of 10 ms, if one is specified.
    pub const fn cycle_frames(self) -> Option<u16> {
        match self {
            Self::NotSpecified => None,
            Self::T32 => Some(32),
            Self::T64 => Some(64),
            Self::T128 => Some(128),
            Self::T256 => Some(256),
        }
    }
}

impl Ie for DrxParameters {
    /// Undefined values mean "not specified".
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8("5GS DRX parameters")? & 0x0f {
            1 => Self::T32,
            2 => Self::T64,
            3 => Self::T128,
            4 => Self::T256,
            _ => Self::NotSpecified,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}
