//! F-TEID: a tunnel's end, or the wish that the UP function choose one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_ids::{DecodeErrorKind, Reader, Teid};

use crate::codec::Ie;
use crate::error::Error;

/// Fully qualified tunnel endpoint identifier (TS 29.244 §8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FTeid {
    /// The UP function is to choose it (CHOOSE).
    Choose {
        /// With an IPv4 address.
        ipv4: bool,
        /// With an IPv6 address; at least one of the two.
        ipv6: bool,
        /// PDRs of one request with the same CHOOSE ID get the same F-TEID.
        choose_id: Option<u8>,
    },
    /// The tunnel endpoint is given.
    Given {
        /// The tunnel at that address.
        teid: Teid,
        /// IPv4 address of the endpoint.
        ipv4: Option<Ipv4Addr>,
        /// IPv6 address of the endpoint; at least one of the two is there.
        ipv6: Option<Ipv6Addr>,
    },
}

impl FTeid {
    /// The end of a tunnel at one address.
    pub const fn given(teid: Teid, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(a) => Self::Given { teid, ipv4: Some(a), ipv6: None },
            IpAddr::V6(a) => Self::Given { teid, ipv4: None, ipv6: Some(a) },
        }
    }
}

impl Ie for FTeid {
    const NAME: &'static str = "F-TEID";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let at = r.offset();
        let flags = r.u8(Self::NAME)?;
        let (v4, v6) = (flags & 1 != 0, flags & 2 != 0);
        if !v4 && !v6 {
            return Err(Error::new(DecodeErrorKind::InvalidValue, Self::NAME, at));
        }
        if flags & 4 != 0 {
            let choose_id = if flags & 8 != 0 { Some(r.u8(Self::NAME)?) } else { None };
            return Ok(Self::Choose { ipv4: v4, ipv6: v6, choose_id });
        }
        let teid = Teid(r.u32(Self::NAME)?);
        let ipv4 = if v4 { Some(r.array::<4>(Self::NAME)?.into()) } else { None };
        let ipv6 = if v6 { Some(r.array::<16>(Self::NAME)?.into()) } else { None };
        Ok(Self::Given { teid, ipv4, ipv6 })
    }
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Choose { ipv4, ipv6, choose_id } => {
                out.push(u8::from(*ipv4) | u8::from(*ipv6) << 1 | 4 | u8::from(choose_id.is_some()) << 3);
                out.extend(choose_id);
            }
            Self::Given { teid, ipv4, ipv6 } => {
                out.push(u8::from(ipv4.is_some()) | u8::from(ipv6.is_some()) << 1);
                out.extend_from_slice(&teid.0.to_be_bytes());
                if let Some(a) = ipv4 {
                    out.extend_from_slice(&a.octets());
                }
                if let Some(a) = ipv6 {
                    out.extend_from_slice(&a.octets());
                }
            }
        }
    }
}
