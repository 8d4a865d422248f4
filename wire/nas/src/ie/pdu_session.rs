//! What a PDU session is: type, SSC mode, address, rates and limits (TS 24.501 §9.11.4).

use core::net::Ipv4Addr;

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use super::Octets;
use super::octets::{bit_half, bit_octets, code_half};
use crate::codec::Ie;

code_half! {
    /// PDU session type (TS 24.501 §9.11.4.11). Unused codes mean IPv4v6.
    PduSessionType, 0x07 {
        /// A session of type IPv4.
        Ipv4 = 1,
        /// A session of type IPv6.
        Ipv6 = 2,
        /// A session of both IP types.
        Ipv4v6 = 3 | 0 | 6,
        /// A session of unstructured data.
        Unstructured = 4,
        /// A session of Ethernet frames.
        Ethernet = 5,
    }
}

code_half! {
    /// SSC mode (TS 24.501 §9.11.4.16).
    SscMode, 0x07 {
        /// SSC mode 1: the address stays.
        One = 1 | 4,
        /// SSC mode 2: break before make.
        Two = 2 | 5,
        /// SSC mode 3: make before break.
        Three = 3 | 6,
    }
}

bit_half! {
    /// Allowed SSC mode (TS 24.501 §9.11.4.5).
    AllowedSscMode {
        /// SSC mode 1 is allowed.
        one: 0x01,
        /// SSC mode 2 is allowed.
        two: 0x02,
        /// SSC mode 3 is allowed.
        three: 0x04,
    }
}

bit_half! {
    /// Always-on PDU session requested (TS 24.501 §9.11.4.4), or always-on PDU session indication (§9.11.4.3).
    AlwaysOn {
        /// It is requested, or required.
        on: 0x01,
    }
}

bit_half! {
    /// Control plane only indication (TS 24.501 §9.11.4.23).
    ControlPlaneOnly {
        /// The session is for control plane CIoT 5GS optimization only.
        only: 0x01,
    }
}

bit_octets! {
    /// Re-attempt indicator (TS 24.501 §9.11.4.17).
    ReattemptIndicator [1..=1] {
        /// Another attempt in S1 mode is *not* allowed (RATC).
        not_in_s1_mode with_not_in_s1_mode: 0, 0x01;
        /// Another attempt in an equivalent PLMN is *not* allowed (EPLMNC).
        not_in_equivalent_plmn with_not_in_equivalent_plmn: 0, 0x02;
    }
}

bit_octets! {
    /// 5GSM congestion re-attempt indicator (TS 24.501 §9.11.4.21).
    CongestionReattemptIndicator [1..=1] {
        /// The back-off timer holds in all PLMNs (ABO).
        all_plmns with_all_plmns: 0, 0x01;
        /// The back-off timer holds for the current access only (CATBO).
        current_access_only with_current_access_only: 0, 0x02;
    }
}

/// A data rate up to which user-plane integrity protection works (TS 24.501 §9.11.4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum IntegrityDataRate {
    /// 64 kbit/s; spare values mean it too.
    Kbps64 = 0,
    /// None at all.
    Null = 1,
    /// The full data rate.
    Full = 255,
}

impl IntegrityDataRate {
    const fn from_u8(value: u8) -> Self {
        match value {
            1 => Self::Null,
            255 => Self::Full,
            _ => Self::Kbps64,
        }
    }
}

/// Integrity protection maximum data rate (TS 24.501 §9.11.4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegrityMaxDataRate {
    /// Data rate of the uplink.
    pub uplink: IntegrityDataRate,
    /// Data rate of the downlink.
    pub downlink: IntegrityDataRate,
}

impl Ie for IntegrityMaxDataRate {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [uplink, downlink] = r.array("integrity protection maximum data rate")?;
        Ok(Self {
            uplink: IntegrityDataRate::from_u8(uplink),
            downlink: IntegrityDataRate::from_u8(downlink),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.uplink as u8, self.downlink as u8]);
    }
}

/// Maximum number of supported packet filters (TS 24.501 §9.11.4.9): 17 to 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPacketFilters(u16);

impl MaxPacketFilters {
    /// `None` outside 17 to 1024.
    pub const fn new(value: u16) -> Option<Self> {
        if value >= 17 && value <= 1024 { Some(Self(value)) } else { None }
    }

    /// Number of packet filters.
    pub const fn value(self) -> u16 {
        self.0
    }
}

impl Ie for MaxPacketFilters {
    /// Values outside 17 to 1024 are brought to the nearer end, as a session needs at least the lower.
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self((r.u16("maximum number of supported packet filters")? >> 5).clamp(17, 1024)))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.0 << 5).to_be_bytes());
    }
}

/// A bit rate as a value in a unit (TS 24.501 §9.11.4.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitRate {
    unit: u8,
    value: u16,
}

impl BitRate {
    /// The largest unit, 256 Pbit/s; each is four times the one before, but for the steps to a thousand of the
    /// next prefix.
    const UNIT_MAX: u8 = 25;

    /// kbit/s of a unit, 1 to 25; other values are read by their clause.
    const fn unit_kbps(unit: u8) -> u64 {
        let unit = if unit == 0 {
            return 0;
        } else if unit > Self::UNIT_MAX {
            Self::UNIT_MAX
        } else {
            unit
        } as u32
            - 1;
        1000u64.pow(unit / 5) * 4u64.pow(unit % 5)
    }

    /// The smallest rate that is not below `kbps` and can be written.
    pub const fn from_kbps(kbps: u64) -> Self {
        let mut unit = 1;
        while unit < Self::UNIT_MAX && kbps.div_ceil(Self::unit_kbps(unit)) > u16::MAX as u64 {
            unit += 1;
        }
        let value = kbps.div_ceil(Self::unit_kbps(unit));
        Self { unit, value: if value > u16::MAX as u64 { u16::MAX } else { value as u16 } }
    }

    /// The rate in kbit/s, rounded down.
    pub const fn kbps(self) -> u64 {
        Self::unit_kbps(self.unit).saturating_mul(self.value as u64)
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { unit: r.u8("unit of bit rate")?, value: r.u16("bit rate")? })
    }

    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.push(self.unit);
        out.extend_from_slice(&self.value.to_be_bytes());
    }
}

/// Session aggregate maximum bit rate (TS 24.501 §9.11.4.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionAmbr {
    /// Rate of the downlink.
    pub downlink: BitRate,
    /// Rate of the uplink.
    pub uplink: BitRate,
}

impl Ie for SessionAmbr {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { downlink: BitRate::decode(r)?, uplink: BitRate::decode(r)? })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.downlink.encode(out);
        self.uplink.encode(out);
    }
}

/// The address of a PDU address element, by its PDU session type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PduAddressKind {
    /// An IPv4 address; 0.0.0.0 if it is to come by DHCP.
    Ipv4(Ipv4Addr),
    /// The interface identifier of the IPv6 link-local address.
    Ipv6 {
        /// Its 64 bits.
        interface_id: [u8; 8],
    },
    /// An IPv4 address and an interface identifier.
    Ipv4v6 {
        /// The IPv4 address.
        ipv4: Ipv4Addr,
        /// The interface identifier of the IPv6 link-local address.
        interface_id: [u8; 8],
    },
}

/// PDU address (TS 24.501 §9.11.4.10).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PduAddress {
    /// The address, by its type.
    pub kind: PduAddressKind,
    /// The SMF's IPv6 link-local address, for a wireline residential gateway.
    pub smf_link_local: Option<[u8; 16]>,
}

impl From<PduAddressKind> for PduAddress {
    fn from(kind: PduAddressKind) -> Self {
        Self { kind, smf_link_local: None }
    }
}

/// Redacted: with a time it names a person.
impl core::fmt::Debug for PduAddress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self.kind {
            PduAddressKind::Ipv4(_) => "PduAddress(IPv4 …)",
            PduAddressKind::Ipv6 { .. } => "PduAddress(IPv6 …)",
            PduAddressKind::Ipv4v6 { .. } => "PduAddress(IPv4v6 …)",
        })
    }
}

impl Ie for PduAddress {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "PDU address";
        let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
        let head = r.u8(IE)?;
        let kind = match head & 0x07 {
            1 => PduAddressKind::Ipv4(r.array::<4>(IE)?.into()),
            2 => PduAddressKind::Ipv6 { interface_id: r.array(IE)? },
            3 => {
                let interface_id = r.array(IE)?;
                PduAddressKind::Ipv4v6 { ipv4: r.array::<4>(IE)?.into(), interface_id }
            }
            _ => return Err(invalid),
        };
        let smf_link_local = if head & 0x08 != 0 { Some(r.array(IE)?) } else { None };
        Ok(Self { kind, smf_link_local })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let si6lla = if self.smf_link_local.is_some() { 0x08 } else { 0 };
        match self.kind {
            PduAddressKind::Ipv4(ipv4) => {
                out.push(si6lla | 1);
                out.extend_from_slice(&ipv4.octets());
            }
            PduAddressKind::Ipv6 { interface_id } => {
                out.push(si6lla | 2);
                out.extend_from_slice(&interface_id);
            }
            PduAddressKind::Ipv4v6 { ipv4, interface_id } => {
                out.push(si6lla | 3);
                out.extend_from_slice(&interface_id);
                out.extend_from_slice(&ipv4.octets());
            }
        }
        if let Some(address) = self.smf_link_local {
            out.extend_from_slice(&address);
        }
    }
}

/// SM PDU DN request container (TS 24.501 §9.11.4.15): the DN-specific identity as an NAI.
pub type SmPduDnRequestContainer = Octets<1, 253>;
