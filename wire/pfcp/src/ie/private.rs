//! Elements of ours: enterprise-specific ones (TS 29.244 §8.1.1), which other implementations skip.

use std::fmt;
use std::net::IpAddr;

use whimbrel_ids::{DecodeErrorKind, Reader};

use crate::codec::Ie;
use crate::error::Error;

/// Whose they are: the number that RFC 5612 keeps for examples, for the project has none of its own.
const ENTERPRISE_ID: u16 = 32473;

/// The request is for the time when its UE arrives, as the CP function will send it then: its rules wait until a packet shows that the
/// UE has come by way of where they lead. A UP function that does not know this element would apply them at once, so it is only sent to
/// UP functions that are known to support it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnArrival;

impl Ie for OnArrival {
    const NAME: &'static str = "On Arrival";

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let at = r.offset();
        match r.u16("Enterprise ID")? {
            ENTERPRISE_ID => Ok(Self),
            _ => Err(Error::new(DecodeErrorKind::Unknown, Self::NAME, at)),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&ENTERPRISE_ID.to_be_bytes());
    }
}

/// The pools of UE addresses of a UP function: an SMF sees by them that two UP functions would give the same address. The standard's UE IP Address Pool
/// Information (TS 29.244 §8.2.161) has names of pools alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnouncedPools(pub Vec<AnnouncedPool>);

/// A network of UE addresses: all whose first `length` bits are those of `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnouncedPool {
    /// Any address of it.
    pub address: IpAddr,
    /// Length of the prefix, in bits.
    pub length: u8,
}

/// More networks than a UP function has data networks; further ones are not read.
const POOLS_MAX: usize = 64;

impl AnnouncedPool {
    /// True if an address is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        let bits = |address| match address {
            IpAddr::V4(a) => (u128::from(a.to_bits()) << 96, false),
            IpAddr::V6(a) => (a.to_bits(), true),
        };
        let ((a, a_is_v6), (b, b_is_v6)) = (bits(self.address), bits(other.address));
        let common = u32::from(self.length.min(other.length));
        a_is_v6 == b_is_v6 && (a ^ b).checked_shr(128 - common).unwrap_or(0) == 0
    }
}

impl fmt::Display for AnnouncedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Ie for AnnouncedPools {
    const NAME: &'static str = "Announced Pools";

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let at = r.offset();
        if r.u16("Enterprise ID")? != ENTERPRISE_ID {
            return Err(Error::new(DecodeErrorKind::Unknown, Self::NAME, at));
        }
        let mut pools = Vec::new();
        while !r.is_empty() && pools.len() < POOLS_MAX {
            let at = r.offset();
            let (family, length) = (r.u8(Self::NAME)?, r.u8(Self::NAME)?);
            let (address, most): (IpAddr, u8) = match family {
                4 => (r.array::<4>(Self::NAME)?.into(), 32),
                6 => (r.array::<16>(Self::NAME)?.into(), 128),
                _ => return Err(Error::new(DecodeErrorKind::InvalidValue, Self::NAME, at)),
            };
            if length > most {
                return Err(Error::new(DecodeErrorKind::InvalidValue, Self::NAME, at));
            }
            pools.push(AnnouncedPool { address, length });
        }
        Ok(Self(pools))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&ENTERPRISE_ID.to_be_bytes());
        for AnnouncedPool { address, length } in self.0.iter().take(POOLS_MAX) {
            match address {
                IpAddr::V4(a) => {
                    out.extend_from_slice(&[4, *length]);
                    out.extend_from_slice(&a.octets());
                }
                IpAddr::V6(a) => {
                    out.extend_from_slice(&[6, *length]);
                    out.extend_from_slice(&a.octets());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(address: &str, length: u8) -> AnnouncedPool {
        AnnouncedPool { address: address.parse().unwrap(), length }
    }

    #[test]
    fn pools_overlap_if_one_has_a_part_of_the_other() {
        let a = pool("10.45.0.0", 16);
        assert!(a.overlaps(&pool("10.0.0.0", 8)) && a.overlaps(&pool("10.45.3.0", 24)) && a.overlaps(&a));
        assert!(!a.overlaps(&pool("10.46.0.0", 16)) && !a.overlaps(&pool("fd00::", 8)));
        assert!(pool("::", 0).overlaps(&pool("fd00:5::", 48)) && !pool("::", 0).overlaps(&a));
        assert!(pool("0.0.0.0", 0).overlaps(&a));
    }

    #[test]
    fn announced_pools_that_cannot_be_understood_are_refused() {
        let read = |octets: &[u8]| AnnouncedPools::read(&mut Reader::new(octets));
        let mut octets = Vec::new();
        let pools = AnnouncedPools(vec![pool("10.45.0.0", 16), pool("fd00:1::", 48)]);
        pools.write(&mut octets);
        assert_eq!(read(&octets), Ok(pools));
        for bad in
            [&octets[..octets.len() - 1], &[0x7e, 0xd9, 4, 33, 1, 2, 3, 4], &[0x7e, 0xd9, 5, 1], &[0, 10, 1]]
        {
            assert!(read(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            read(&[&octets[..2], &[4, 0, 1, 2, 3, 4].repeat(500)].concat()).map(|p| p.0.len()),
            Ok(POOLS_MAX)
        );
    }
}
