//! Transport Layer Address (TS 38.414 §5.1): `BIT STRING (SIZE (1..160, ...))`.

use core::net::{Ipv4Addr, Ipv6Addr};

#[cfg(any(test, feature = "samples"))]
use crate::aper::sample::Source;
use crate::aper::{Aper, Fault, Reader, Writer};

/// An IPv4 address (32 bits), an IPv6 address (128 bits), or both (160 bits, IPv4 first).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransportLayerAddress {
    /// An IPv4 address alone.
    V4(Ipv4Addr),
    /// An IPv6 address alone.
    V6(Ipv6Addr),
    /// Both: the receiver chooses.
    V4V6(Ipv4Addr, Ipv6Addr),
}

impl TransportLayerAddress {
    /// The IPv4 address, if there is one.
    pub const fn v4(self) -> Option<Ipv4Addr> {
        match self {
            Self::V4(a) | Self::V4V6(a, _) => Some(a),
            Self::V6(_) => None,
        }
    }

    /// The IPv6 address, if there is one.
    pub const fn v6(self) -> Option<Ipv6Addr> {
        match self {
            Self::V6(a) | Self::V4V6(_, a) => Some(a),
            Self::V4(_) => None,
        }
    }
}

impl From<Ipv4Addr> for TransportLayerAddress {
    fn from(a: Ipv4Addr) -> Self {
        Self::V4(a)
    }
}

impl From<Ipv6Addr> for TransportLayerAddress {
    fn from(a: Ipv6Addr) -> Self {
        Self::V6(a)
    }
}

impl Aper for TransportLayerAddress {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        if r.bit()? {
            return Err(Fault::NotComprehended);
        }
        match r.whole(1, 160)? {
            32 => Ok(Self::V4(<[u8; 4]>::read(r)?.into())),
            128 => Ok(Self::V6(<[u8; 16]>::read(r)?.into())),
            160 => Ok(Self::V4V6(<[u8; 4]>::read(r)?.into(), <[u8; 16]>::read(r)?.into())),
            _ => Err(Fault::NotComprehended),
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.bit(false);
        match self {
            Self::V4(a) => {
                w.whole(32, 1, 160);
                w.octets(&a.octets());
            }
            Self::V6(a) => {
                w.whole(128, 1, 160);
                w.octets(&a.octets());
            }
            Self::V4V6(a, b) => {
                w.whole(160, 1, 160);
                w.octets(&a.octets());
                w.octets(&b.octets());
            }
        }
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        let (v4, v6) = (<[u8; 4]>::sample(s).into(), <[u8; 16]>::sample(s).into());
        match s.number() % 3 {
            0 => Self::V4(v4),
            1 => Self::V6(v6),
            _ => Self::V4V6(v4, v6),
        }
    }
}
