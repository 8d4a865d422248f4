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
    ($($name:ident { $($f:ident: $t:ty),* $(| $($o:ident: $ot:ty),* $(; $($after:ident: $at:ty),*)?)* })*) => { $(
        #[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
        #[rasn(automatic_tags)]
        #[non_exhaustive]
        pub(crate) struct $name {
            $( pub(crate) $f: $t, )*
            $( $( $o: Option<$ot>, )* $($( pub(crate) $after: $at, )*)? )*
            extensions: Option<Extensions>,
        }
    )* };
}

/// A type of one constrained value.
macro_rules! values {
    ($($name:ident($t:ty) [$($constraint:tt)*])*) => { $(
        #[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
        #[rasn(delegate, $($constraint)*)]
        pub(crate) struct $name(pub(crate) $t);
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
    SessionIds(SequenceOf<SessionId>) [size("1..=256")]
    Priority(u8) [value("1..=15")]
    Address(BitString) [size("1..=160")]
    GnbIdBits(BitString) [size("22..=32")]
    QosFlowSetupRequests(SequenceOf<QosFlowSetupRequest>) [size("1..=64")]
    AssociatedQosFlows(SequenceOf<AssociatedQosFlow>) [size("1..=64")]
    QosFlows(SequenceOf<QosFlow>) [size("1..=64")]
    QosFlowsForwarding(SequenceOf<QosFlowForwarding>) [size("1..=64")]
    QosFlowsWithCause(SequenceOf<QosFlowWithCause>) [size("1..=64")]
    QosFlowsPerTnl(SequenceOf<QosFlowPerTnl>) [size("1..=3")]
    Tais(SequenceOf<TaiForInactive>) [size("1..=16")]
    DrbsForwarding(SequenceOf<DrbForwarding>) [size("1..=32")]
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
    PduSessionType { V0, V1, V2, V3, V4 }
    OneOf1 { V0 }
    OneOf2 { V0, V1 }
    OneOf3 { V0, V1, V2 }
    OneOf4 { V0, V1, V2, V3 }
}

type Plmn = FixedOctetString<3>;
type SecurityKey = FixedBitString<256>;

sequences! {
    Tai { plmn: Plmn, tac: FixedOctetString<3> }
    TaiForInactive { tai: Tai }
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
    CoreAssistance {
        index: IdentityIndex
        | drx: OneOf4; periodic_update: FixedBitString<8>
        | mico: OneOf1; tais: Tais
        | expected_behaviour: OctetString
    }
    SessionId { id: U8 }
    UeNgapIdPair { amf: AmfUeNgapId, ran: U32 }
    GlobalGnbId { plmn: Plmn, gnb_id: GnbId }
    TargetRanNode { node: GlobalRanNodeId, selected_tai: Tai }
    GtpTunnel { address: TransportLayerAddress, teid: FixedOctetString<4> }
    QosFlowSetupRequest { qfi: Qfi, parameters: QosParameters | e_rab_id: ERabId }
    QosParameters {
        characteristics: QosCharacteristics, arp: Arp
        | gbr: GbrQos, reflective: OneOf1, additional: OneOf1
    }
    NonDynamic5qi { five_qi: FiveQi | priority: PriorityLevel, window: Window, burst: Window }
    Dynamic5qi {
        priority: PriorityLevel, delay: DelayBudget, error_rate: PacketErrorRate
        | five_qi: FiveQi, delay_critical: OneOf2, window: Window, burst: Window
    }
    PacketErrorRate { scalar: Digit, exponent: Digit }
    Arp { priority: Priority, pre_emption_capability: OneOf2, pre_emption_vulnerability: OneOf2 }
    GbrQos {
        maximum_dl: BitRate, maximum_ul: BitRate, guaranteed_dl: BitRate, guaranteed_ul: BitRate
        | notification: OneOf1, loss_dl: LossRate, loss_ul: LossRate
    }
    SecurityIndication { integrity: OneOf3, confidentiality: OneOf3 | maximum_ul: OneOf2 }
    SecurityResult { integrity: OneOf2, confidentiality: OneOf2 }
    UserPlaneSecurity { result: SecurityResult, indication: SecurityIndication }
    QosFlow { qfi: Qfi }
    AssociatedQosFlow { qfi: Qfi | mapping: OneOf2 }
    QosFlowForwarding { qfi: Qfi | accepted: OneOf1 }
    QosFlowWithCause { qfi: Qfi, cause: Cause }
    QosFlowPerTnl { tunnel: Tunnel, flows: AssociatedQosFlows }
    DrbForwarding { drb: DrbId | dl: Tunnel, ul: Tunnel }
    SetupResponseTransfer {
        tunnel: QosFlowPerTnl
        | additional: QosFlowsPerTnl, security: SecurityResult, failed: QosFlowsWithCause
    }
    HandoverRequiredTransfer { | direct_path: OneOf1 }
    HandoverRequestAcknowledgeTransfer {
        dl: Tunnel
        | dl_forwarding: Tunnel, security: SecurityResult; flows: QosFlowsForwarding
        | failed: QosFlowsWithCause, drbs: DrbsForwarding
    }
    HandoverCommandTransfer { | dl_forwarding: Tunnel, flows: QosFlows, drbs: DrbsForwarding }
    PathSwitchRequestTransfer {
        dl: Tunnel
        | reused: OneOf1, security: UserPlaneSecurity; accepted: QosFlows
    }
    PathSwitchRequestAcknowledgeTransfer { | ul: Tunnel, security: SecurityIndication }
    ReleaseCommandTransfer { cause: Cause }
    ReleaseResponseTransfer {}
}

/// Extensible numbers and sizes, whose first bit is spelt out as that of [`BitRate`] is.
macro_rules! spelt_out {
    ($($name:ident($inner:ident: $t:ty) [$($constraint:tt)*])*) => { $(
        #[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
        #[rasn(automatic_tags)]
        pub(crate) struct $name {
            extended: bool,
            value: $inner,
        }

        values! { $inner($t) [$($constraint)*] }
    )* };
}
spelt_out! {
    DrbId(DrbIdRoot: u8) [value("1..=32")]
    DelayBudget(DelayBudgetRoot: u16) [value("0..=1023")]
    Window(WindowRoot: u16) [value("0..=4095")]
    ERabId(ERabIdRoot: u8) [value("0..=15")]
    FiveQi(FiveQiRoot: u8) [value("0..=255")]
    Qfi(QfiRoot: u8) [value("0..=63")]
    PriorityLevel(PriorityLevelRoot: u8) [value("1..=127")]
    LossRate(LossRateRoot: u16) [value("0..=1000")]
    Digit(DigitRoot: u8) [value("0..=9")]
}

/// `TransportLayerAddress`, of an extensible size.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(automatic_tags)]
pub(crate) struct TransportLayerAddress {
    extended: bool,
    bits: Address,
}

/// Choices of NGAP: what extends them is a field.
macro_rules! choices {
    ($($name:ident { $($v:ident($t:ty)),* })*) => { $(
        #[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
        #[rasn(choice, automatic_tags)]
        pub(crate) enum $name {
            $( $v($t), )*
            Extensions(ProtocolIeField),
        }
    )* };
}
choices! {
    IdentityIndex { Length10(FixedBitString<10>) }
    GnbId { Gnb(GnbIdBits) }
    GlobalRanNodeId { Gnb(GlobalGnbId), NgEnb(OctetString), N3iwf(OctetString) }
    TargetId { RanNode(TargetRanNode), Enb(OctetString) }
    Tunnel { Gtp(GtpTunnel) }
    QosCharacteristics { NonDynamic(NonDynamic5qi), Dynamic(Dynamic5qi) }
    UserLocationInformation { Eutra(OctetString), Nr(LocationNr), N3iwf(OctetString) }
    UeNgapIds { Pair(UeNgapIdPair), Amf(AmfUeNgapId) }
    Cause {
        RadioNetwork(CauseRadioNetwork), Transport(CauseTransport), Nas(CauseNas), Protocol(CauseProtocol),
        Misc(CauseMisc)
    }
}

/// `BitRate`, an extensible number: the bit before it is spelt out, for `rasn` 0.30 reads such numbers wrongly.
#[derive(AsnType, Encode, Decode, Debug, Clone, PartialEq)]
#[rasn(automatic_tags)]
pub(crate) struct BitRate {
    extended: bool,
    rate: Rate,
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
