//! Key set, algorithms and authentication elements (TS 24.501 §9.11.3.10 to §9.11.3.34, TS 24.008 §10.5.3).

use core::fmt;

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use super::Octets;
use super::octets::{bit_half, bit_octets};
use crate::codec::{HalfIe, Ie};

/// NAS key set identifier, ngKSI (TS 24.501 §9.11.3.32): identifies a security context, or none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NgKsi(u8);

impl NgKsi {
    /// No key is available (from the UE).
    pub const NO_KEY: NgKsi = NgKsi(7);

    /// A native security context (KSI_AMF), 0 to 6; `None` above.
    pub const fn native(value: u8) -> Option<Self> {
        if value < 7 { Some(Self(value)) } else { None }
    }

    /// A security context mapped from EPS (KSI_ASME), 0 to 6; `None` above.
    pub const fn mapped(value: u8) -> Option<Self> {
        if value < 7 { Some(Self(value | 8)) } else { None }
    }

    /// The identifier, 0 to 6, or 7 for no key.
    pub const fn value(self) -> u8 {
        self.0 & 7
    }

    /// Whether the context was mapped from EPS.
    pub const fn is_mapped(self) -> bool {
        self.0 & 8 != 0
    }

    /// Whether a key is available.
    pub const fn has_key(self) -> bool {
        self.value() != 7
    }
}

impl HalfIe for NgKsi {
    fn from_half(bits: u8) -> Option<Self> {
        Some(if bits & 7 == 7 { Self::NO_KEY } else { Self(bits & 0x0f) })
    }

    fn half(&self) -> u8 {
        self.0
    }
}

impl fmt::Debug for NgKsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.has_key(), self.is_mapped()) {
            (false, _) => f.write_str("no key"),
            (true, false) => write!(f, "native {}", self.value()),
            (true, true) => write!(f, "mapped {}", self.value()),
        }
    }
}

macro_rules! algorithms {
    ( $(#[$meta:meta])* $name:ident { $( $code:literal $variant:ident $doc:literal, )* } ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $( #[doc = $doc] $variant = $code, )* }

        impl $name {
            /// From the identifier, 0 to 7; `None` above.
            pub const fn from_u8(value: u8) -> Option<Self> {
                match value { $( $code => Some(Self::$variant), )* _ => None }
            }

            /// The identifier as sent.
            pub const fn value(self) -> u8 {
                self as u8
            }
        }
    };
}

algorithms! {
    /// Type of ciphering algorithm (TS 24.501 §9.11.3.34; 4 to 7 are not yet defined).
    CipheringAlgorithm {
        0 Nea0 "5G-EA0: null.",
        1 Nea1 "128-5G-EA1: SNOW 3G.",
        2 Nea2 "128-5G-EA2: AES.",
        3 Nea3 "128-5G-EA3: ZUC.",
        4 Nea4 "5G-EA4.",
        5 Nea5 "5G-EA5.",
        6 Nea6 "5G-EA6.",
        7 Nea7 "5G-EA7.",
    }
}

algorithms! {
    /// Type of integrity protection algorithm (TS 24.501 §9.11.3.34; 4 to 7 are not yet defined).
    IntegrityAlgorithm {
        0 Nia0 "5G-IA0: null.",
        1 Nia1 "128-5G-IA1: SNOW 3G.",
        2 Nia2 "128-5G-IA2: AES.",
        3 Nia3 "128-5G-IA3: ZUC.",
        4 Nia4 "5G-IA4.",
        5 Nia5 "5G-IA5.",
        6 Nia6 "5G-IA6.",
        7 Nia7 "5G-IA7.",
    }
}

/// NAS security algorithms (TS 24.501 §9.11.3.34); also the shape of the selected EPS NAS security algorithms
/// (§9.11.3.25, TS 24.301 §9.9.3.23), whose numbers name EEA and EIA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecurityAlgorithms {
    /// Algorithm of the ciphering.
    pub ciphering: CipheringAlgorithm,
    /// Algorithm of the integrity protection.
    pub integrity: IntegrityAlgorithm,
}

impl Ie for SecurityAlgorithms {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let invalid = r.error(DecodeErrorKind::InvalidValue, "NAS security algorithms");
        let octet = r.u8("NAS security algorithms")?;
        Ok(Self {
            ciphering: CipheringAlgorithm::from_u8(octet >> 4).ok_or(invalid)?,
            integrity: IntegrityAlgorithm::from_u8(octet & 0x0f).ok_or(invalid)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.ciphering.value() << 4 | self.integrity.value());
    }
}

bit_half! {
    /// IMEISV request (TS 24.501 §9.11.3.28).
    ImeisvRequest {
        /// The IMEISV is requested.
        requested: 0x01,
    }
}

bit_octets! {
    /// Additional 5G security information (TS 24.501 §9.11.3.12).
    AdditionalSecurityInformation [1..=1] {
        /// A horizontal derivation of KAMF is required (HDP).
        horizontal_derivation with_horizontal_derivation: 0, 0x01;
        /// The whole initial NAS message is requested again (RINMR).
        retransmission_requested with_retransmission_requested: 0, 0x02;
    }
}

/// ABBA: an input of the key hierarchy against bidding down of new features (TS 24.501 §9.11.3.10).
pub type Abba = Octets<2, 255>;

/// EAP message (TS 24.501 §9.11.2.2): 4 to 1500 octets.
pub type EapMessage = Octets<4, 1500>;

macro_rules! vector_part {
    ( $(#[$meta:meta])* $name:ident [$n:literal] ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name(pub [u8; $n]);

        /// Redacted: part of an authentication vector.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(…)"))
            }
        }

        impl Ie for $name {
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                r.array(stringify!($name)).map(Self)
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.0);
            }
        }
    };
}

vector_part! {
    /// Authentication parameter RAND (TS 24.501 §9.11.3.16).
    Rand[16]
}
vector_part! {
    /// Authentication parameter AUTN: SQN xor AK, AMF, MAC (TS 24.501 §9.11.3.15).
    Autn[16]
}
vector_part! {
    /// Authentication failure parameter AUTS (TS 24.501 §9.11.3.14).
    Auts[14]
}
vector_part! {
    /// Authentication response parameter RES* (TS 24.501 §9.11.3.17).
    ResStar[16]
}
