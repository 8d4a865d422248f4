//! Types of NGAP (TS 38.413 §9.4) for `rasn`, an ASN.1 codec that builds values and allocates for them.

use rasn::prelude::*;

/// `INTEGER (0..4294967295)`.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(delegate, value("0..=4294967295"))]
pub(crate) struct U32(pub(crate) u32);

/// `INTEGER (0..4000000000000)`.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(delegate, value("0..=4000000000000"))]
pub(crate) struct Rate(pub(crate) u64);

/// `INTEGER (0..255)`.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(delegate, value("0..=255"))]
pub(crate) struct U8(pub(crate) u8);

impl From<u32> for U32 {
    fn from(v: u32) -> Self {
        Self(v)
    }
}

impl From<u64> for Rate {
    fn from(v: u64) -> Self {
        Self(v)
    }
}

impl From<u8> for U8 {
    fn from(v: u8) -> Self {
        Self(v)
    }
}

/// `BOOLEAN`.
pub(crate) type Bit = bool;

/// `OCTET STRING`.
pub(crate) type Octets = OctetString;

/// `ProtocolExtensionContainer`: never there, and one bit of each sequence.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(delegate, size("1..=65535"))]
pub(crate) struct Extensions(SequenceOf<ProtocolIeField>);

/// `Criticality`.
#[derive(AsnType, Encode, Decode, Debug, Clone, Copy, PartialEq)]
#[rasn(enumerated)]
pub(crate) enum Criticality {
    Reject,
    Ignore,
    Notify,
}

/// `ProtocolIE-Field` or `ProtocolExtensionField`: the value is an open type, encoded on its own.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(automatic_tags)]
pub(crate) struct ProtocolIeField {
    #[rasn(value("0..=65535"))]
    pub(crate) id: u16,
    pub(crate) criticality: Criticality,
    pub(crate) value: OctetString,
}

/// Sequences of NGAP: extensible, with `iE-Extensions` last; what stands after `|` is optional. (The derive macros see
/// an `Option` only where it is spelt out.)
macro_rules! sequences {
    ($($name:ident { $($f:ident: $t:ty),* $(| $($o:ident: $ot:ty),* $(; $($after:ident: $at:ty),*)?)? })*) => { $(
        #[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
        #[rasn(automatic_tags)]
        #[non_exhaustive]
        pub(crate) struct $name {
            $( $f: $t, )*
            $( $( $o: Option<$ot>, )* $($( $after: $at, )*)? )?
            extensions: Option<Extensions>,
        }
    )* };
}

/// A type of one constrained value.
macro_rules! values {
    ($($name:ident($t:ty) [$($constraint:tt)*])*) => { $(
        #[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
        #[rasn(delegate, $($constraint)*)]
        pub(crate) struct $name($t);
    )* };
}

values! {
    AmfUeNgapId(u64) [value("0..=1099511627775")]
    Algorithms(BitString) [size("16", extensible)]
    NextHopChainingCount(u8) [value("0..=7")]
    TimeStamp(OctetString) [size("4")]
    Sd(OctetString) [size("3")]
    AllowedNssai(SequenceOf<AllowedNssaiItem>) [size("1..=8")]
    SetupListCxtReq(SequenceOf<SetupItemCxtReq>) [size("1..=256")]
    SetupListHoReq(SequenceOf<SetupItemHoReq>) [size("1..=256")]
    SessionList(SequenceOf<SessionItem>) [size("1..=256")]
}

/// Enumerated types: their root values, numbered.
macro_rules! enumerated {
    ($($name:ident { $($v:ident),* $(,)? })*) => { $(
        #[derive(AsnType, Encode, Decode, Debug, Clone, Copy, PartialEq)]
        #[rasn(enumerated)]
        #[non_exhaustive]
        pub(crate) enum $name { $($v),* }
    )* };
}
enumerated! {
    CauseRadioNetwork { V0, V1, V2, V3, V4, V5, V6, V7, V8, V9, V10, V11, V12, V13, V14, V15, V16, V17, V18, V19, V20, V21, V22, V23, V24, V25, V26, V27, V28, V29, V30, V31, V32, V33, V34, V35, V36, V37, V38, V39, V40, V41, V42, V43, V44 }
    CauseTransport { V0, V1 }
    CauseNas { V0, V1, V2, V3 }
    CauseProtocol { V0, V1, V2, V3, V4, V5, V6 }
    CauseMisc { V0, V1, V2, V3, V4, V5 }
    RrcEstablishmentCause { V0, V1, V2, V3, V4, V5, V6, V7, V8, V9 }
    UeContextRequest { V0 }
    HandoverType { V0, V1, V2 }
}

type Plmn = FixedOctetString<3>;
type SecurityKey = FixedBitString<256>;

sequences! {
    Tai { plmn: Plmn, tac: FixedOctetString<3> }
    NrCgi { plmn: Plmn, cell: FixedBitString<36> }
    LocationNr { nr_cgi: NrCgi, tai: Tai | time_stamp: TimeStamp }
    FiveGSTmsi { set: FixedBitString<10>, pointer: FixedBitString<6>, tmsi: FixedOctetString<4> }
    Guami { plmn: Plmn, region: FixedBitString<8>, set: FixedBitString<10>, pointer: FixedBitString<6> }
    SNssai { sst: FixedOctetString<1> | sd: Sd }
    AllowedNssaiItem { s_nssai: SNssai }
    Ambr { dl: BitRate, ul: BitRate }
    SecurityCapabilities { nea: Algorithms, nia: Algorithms, eea: Algorithms, eia: Algorithms }
    SecurityContext { ncc: NextHopChainingCount, nh: SecurityKey }
    SetupItemCxtReq { id: U8 | nas: OctetString; s_nssai: SNssai, transfer: OctetString }
    SetupItemHoReq { id: U8, s_nssai: SNssai, transfer: OctetString }
    SessionItem { id: U8, transfer: OctetString }
    UeNgapIdPair { amf: AmfUeNgapId, ran: U32 }
}

/// `BitRate`, an extensible number: the bit before it is spelt out, for `rasn` 0.30 reads such numbers wrongly.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(automatic_tags)]
pub(crate) struct BitRate {
    extended: bool,
    rate: Rate,
}

/// `UserLocationInformation`: NR's alone is spelt out.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(choice, automatic_tags)]
pub(crate) enum UserLocationInformation {
    Eutra(OctetString),
    Nr(LocationNr),
    N3iwf(OctetString),
    Extensions(ProtocolIeField),
}

/// `UE-NGAP-IDs`.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(choice, automatic_tags)]
pub(crate) enum UeNgapIds {
    Pair(UeNgapIdPair),
    Amf(AmfUeNgapId),
    Extensions(ProtocolIeField),
}

/// `Cause`.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(choice, automatic_tags)]
pub(crate) enum Cause {
    RadioNetwork(CauseRadioNetwork),
    Transport(CauseTransport),
    Nas(CauseNas),
    Protocol(CauseProtocol),
    Misc(CauseMisc),
    Extensions(ProtocolIeField),
}

/// `InitiatingMessage` and the two outcomes.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(automatic_tags)]
pub(crate) struct Outcome {
    #[rasn(value("0..=255"))]
    pub(crate) procedure_code: u8,
    pub(crate) criticality: Criticality,
    pub(crate) value: OctetString,
}

/// `NGAP-PDU`.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(choice, automatic_tags)]
#[non_exhaustive]
pub(crate) enum NgapPdu {
    Initiating(Outcome),
    Successful(Outcome),
    Unsuccessful(Outcome),
}

/// The content of each message.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(automatic_tags)]
#[non_exhaustive]
pub(crate) struct Body {
    #[rasn(size("0..=65535"))]
    pub(crate) protocol_ies: SequenceOf<ProtocolIeField>,
}
