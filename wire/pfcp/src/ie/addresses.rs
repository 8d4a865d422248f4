//! UE IP Address: a UE's addresses, or the wish that the UP function choose them.

use std::net::{Ipv4Addr, Ipv6Addr};

use whimbrel_ids::Reader;

use crate::codec::Ie;
use crate::error::Error;

/// A value, or the wish that the UP function choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice<T> {
    /// The UP function is to choose (CHV4, CHV6).
    Choose,
    /// The value is given.
    Given(T),
}

impl<T: Copy> Choice<T> {
    /// The value, if given.
    pub const fn given(self) -> Option<T> {
        match self {
            Self::Choose => None,
            Self::Given(v) => Some(v),
        }
    }
}

/// UE IP Address (TS 29.244 §8.2.62).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UeIpAddress {
    /// S/D: compare with the packet's destination (downlink) instead of its source (uplink).
    pub destination: bool,
    /// IPv4 address of the UE.
    pub ipv4: Option<Choice<Ipv4Addr>>,
    /// IPv6 prefix, as an address; its length is 64 unless given.
    pub ipv6: Option<Choice<Ipv6Addr>>,
    /// IPv6D: bits by which the prefix is shorter than 64 for prefix delegation.
    pub ipv6_prefix_delegation_bits: Option<u8>,
    /// IP6PL: length of the prefix, bits.
    pub ipv6_prefix_length: Option<u8>,
}

impl Ie for UeIpAddress {
    const NAME: &'static str = "UE IP Address";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let flags = r.u8(Self::NAME)?;
        let ipv4 = match (flags & 0x02 != 0, flags & 0x10 != 0) {
            (true, _) => Some(Choice::Given(r.array::<4>(Self::NAME)?.into())),
            (false, true) => Some(Choice::Choose),
            (false, false) => None,
        };
        let ipv6 = match (flags & 0x01 != 0, flags & 0x20 != 0) {
            (true, _) => Some(Choice::Given(r.array::<16>(Self::NAME)?.into())),
            (false, true) => Some(Choice::Choose),
            (false, false) => None,
        };
        let delegation = ipv6.is_some() && flags & 0x08 != 0;
        let ipv6_prefix_delegation_bits = if delegation { Some(r.u8(Self::NAME)?) } else { None };
        let length = ipv6.is_some() && flags & 0x40 != 0;
        let ipv6_prefix_length = if length { Some(r.u8(Self::NAME)?) } else { None };
        let destination = flags & 0x04 != 0;
        Ok(Self { destination, ipv4, ipv6, ipv6_prefix_delegation_bits, ipv6_prefix_length })
    }
    fn write(&self, out: &mut Vec<u8>) {
        let mut flags = u8::from(self.destination) << 2;
        flags |= match self.ipv4 {
            Some(Choice::Given(_)) => 0x02,
            Some(Choice::Choose) => 0x10,
            None => 0,
        };
        flags |= match self.ipv6 {
            Some(Choice::Given(_)) => 0x01,
            Some(Choice::Choose) => 0x20,
            None => 0,
        };
        let of_ipv6 = |v: Option<u8>| v.filter(|_| self.ipv6.is_some());
        let (delegation, length) =
            (of_ipv6(self.ipv6_prefix_delegation_bits), of_ipv6(self.ipv6_prefix_length));
        flags |= u8::from(delegation.is_some()) << 3 | u8::from(length.is_some()) << 6;
        out.push(flags);
        if let Some(Choice::Given(a)) = self.ipv4 {
            out.extend_from_slice(&a.octets());
        }
        if let Some(Choice::Given(a)) = self.ipv6 {
            out.extend_from_slice(&a.octets());
        }
        out.extend(delegation);
        out.extend(length);
    }
}
