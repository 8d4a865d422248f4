//! Payload container type (TS 24.501 §9.11.3.40), payload container (§9.11.3.39) and request type (§9.11.3.47).

use core::fmt;

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use super::Octets;
use super::octets::code_half;
use crate::codec::{HalfIe, Ie};

/// What a payload container holds (TS 24.501 §9.11.3.40); values that are not named here are kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayloadContainerType(u8);

macro_rules! payload_types {
    ( $( $code:literal $name:ident $text:literal, )* ) => {
        impl PayloadContainerType {
            $( #[doc = concat!($text, ".")] pub const $name: Self = Self($code); )*

            /// The value, 0 to 15.
            pub const fn value(self) -> u8 {
                self.0
            }
        }

        impl fmt::Display for PayloadContainerType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 { $( $code => f.write_str($text), )* other => write!(f, "payload container type {other}") }
            }
        }
    };
}

payload_types! {
    1 N1_SM_INFORMATION "N1 SM information",
    2 SMS "SMS",
    3 LPP "LTE positioning protocol message container",
    4 SOR "SOR transparent container",
    5 UE_POLICY "UE policy container",
    6 UE_PARAMETERS_UPDATE "UE parameters update transparent container",
    7 LOCATION_SERVICES "Location services message container",
    8 CIOT_USER_DATA "CIoT user data container",
    9 SERVICE_LEVEL_AA "Service-level-AA container",
    10 EVENT_NOTIFICATION "Event notification",
    15 MULTIPLE_PAYLOADS "Multiple payloads",
}

impl fmt::Debug for PayloadContainerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl HalfIe for PayloadContainerType {
    fn from_half(bits: u8) -> Option<Self> {
        Some(Self(bits & 0x0f))
    }

    fn half(&self) -> u8 {
        self.0
    }
}

/// Payload container contents (TS 24.501 §9.11.3.39), by the type.
pub type PayloadContainer = Octets<1, 65535>;

code_half! {
    /// Request type (TS 24.501 §9.11.3.47).
    RequestType, 0x07 {
        /// A session that is established newly.
        InitialRequest = 1,
        /// Existing PDU session.
        ExistingPduSession = 2,
        /// Initial emergency request.
        InitialEmergencyRequest = 3,
        /// Existing emergency PDU session.
        ExistingEmergencyPduSession = 4,
        /// A session that is modified.
        ModificationRequest = 5,
        /// MA PDU request.
        MaPduRequest = 6,
    }
}

/// Optional elements in one entry of multiple payloads: four bits count them.
const ENTRY_OPTIONAL_MAX: usize = 15;
/// Contents of one entry: the maximum of its length of two octets less its head and its optional elements.
const ENTRY_CONTENTS_MAX: usize = 65535 - 1 - ENTRY_OPTIONAL_MAX * 257;
/// Entries in multiple payloads: one octet counts them.
const ENTRIES_MAX: usize = 255;

/// One of several payloads in a container of type [`PayloadContainerType::MULTIPLE_PAYLOADS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadEntry {
    /// What it holds.
    pub container_type: PayloadContainerType,
    /// Its optional elements (PDU session ID, request type, DNN …) as identifier and value, kept as received.
    pub optional: Vec<(u8, Octets<0, 255>)>,
    /// Contents of the entry.
    pub contents: Octets<0, ENTRY_CONTENTS_MAX>,
}

/// The payloads of a container of type "multiple payloads" (TS 24.501 §9.11.3.39).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultiplePayloads(pub Vec<PayloadEntry>);

impl Ie for PayloadEntry {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "payload container entry";
        let head = r.u8(IE)?;
        let mut optional = Vec::new();
        for _ in 0..head >> 4 {
            let iei = r.u8(IE)?;
            let len = r.u8(IE)?;
            optional.push((iei, Octets::decode(&mut r.sub(usize::from(len), IE)?)?));
        }
        Ok(Self { container_type: PayloadContainerType(head & 0x0f), optional, contents: Octets::decode(r)? })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let optional = self.optional.get(..ENTRY_OPTIONAL_MAX).unwrap_or(&self.optional);
        out.push((optional.len() as u8) << 4 | self.container_type.0);
        for (iei, value) in optional {
            out.push(*iei);
            crate::codec::write::lv(value, out);
        }
        out.extend_from_slice(&self.contents);
    }
}

impl Ie for MultiplePayloads {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "multiple payloads";
        let count = r.u8(IE)?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let len = r.u16(IE)?;
            entries.push(PayloadEntry::decode(&mut r.sub(usize::from(len), IE)?)?);
        }
        if entries.is_empty() {
            return Err(r.error(DecodeErrorKind::InvalidValue, IE));
        }
        Ok(Self(entries))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let entries = self.0.get(..ENTRIES_MAX).unwrap_or(&self.0);
        out.push(entries.len() as u8);
        entries.iter().for_each(|entry| crate::codec::write::lve(entry, out));
    }
}
