//! Node ID and F-SEID.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_ids::{DecodeErrorKind, Reader, Seid};

use crate::codec::Ie;
use crate::error::Error;
use crate::ie::identity::{read_name, write_labels};

/// A node's unique name (TS 29.244 §8.2.38).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeId {
    /// By an IPv4 address.
    Ipv4(Ipv4Addr),
    /// By an IPv6 address.
    Ipv6(Ipv6Addr),
    /// By a domain name, in lower case.
    Fqdn(Box<str>),
}

impl From<IpAddr> for NodeId {
    fn from(a: IpAddr) -> Self {
        match a {
            IpAddr::V4(a) => Self::Ipv4(a),
            IpAddr::V6(a) => Self::Ipv6(a),
        }
    }
}

impl Ie for NodeId {
    const NAME: &'static str = "Node ID";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let at = r.offset();
        match r.u8(Self::NAME)? & 0xf {
            0 => Ok(Self::Ipv4(r.array::<4>(Self::NAME)?.into())),
            1 => Ok(Self::Ipv6(r.array::<16>(Self::NAME)?.into())),
            2 => Ok(Self::Fqdn(read_name(r.take_rest(), Self::NAME, at)?.to_ascii_lowercase().into())),
            _ => Err(Error::new(DecodeErrorKind::InvalidValue, Self::NAME, at)),
        }
    }
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ipv4(a) => {
                out.push(0);
                out.extend_from_slice(&a.octets());
            }
            Self::Ipv6(a) => {
                out.push(1);
                out.extend_from_slice(&a.octets());
            }
            Self::Fqdn(name) => {
                out.push(2);
                write_labels(name, out);
            }
        }
    }
}

/// SMF Set ID (TS 29.244 §8.2.150, TS 23.003 §28.14): the name of the SMFs that may go on with each other's sessions, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmfSetId(pub Box<str>);

impl Ie for SmfSetId {
    const NAME: &'static str = "SMF Set ID";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.u8(Self::NAME)?; // spare
        let at = r.offset();
        Ok(Self(read_name(r.take_rest(), Self::NAME, at)?.to_ascii_lowercase().into()))
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(0);
        write_labels(&self.0, out);
    }
}

/// Fully qualified session endpoint identifier (TS 29.244 §8.2.37): the SEID to write in messages to this
/// end, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FSeid {
    /// The session endpoint identifier.
    pub seid: Seid,
    /// IPv4 address of the endpoint.
    pub ipv4: Option<Ipv4Addr>,
    /// IPv6 address of the endpoint; at least one of the two is there.
    pub ipv6: Option<Ipv6Addr>,
}

impl FSeid {
    /// An endpoint of one address.
    pub const fn new(seid: Seid, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(a) => Self { seid, ipv4: Some(a), ipv6: None },
            IpAddr::V6(a) => Self { seid, ipv4: None, ipv6: Some(a) },
        }
    }
}

impl Ie for FSeid {
    const NAME: &'static str = "F-SEID";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let at = r.offset();
        let flags = r.u8(Self::NAME)?;
        if flags & 3 == 0 {
            return Err(Error::new(DecodeErrorKind::InvalidValue, Self::NAME, at));
        }
        let seid = Seid(r.u64(Self::NAME)?);
        let ipv4 = if flags & 2 != 0 { Some(r.array::<4>(Self::NAME)?.into()) } else { None };
        let ipv6 = if flags & 1 != 0 { Some(r.array::<16>(Self::NAME)?.into()) } else { None };
        Ok(Self { seid, ipv4, ipv6 })
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.ipv4.is_some()) << 1 | u8::from(self.ipv6.is_some()));
        out.extend_from_slice(&self.seid.0.to_be_bytes());
        if let Some(a) = self.ipv4 {
            out.extend_from_slice(&a.octets());
        }
        if let Some(a) = self.ipv6 {
            out.extend_from_slice(&a.octets());
        }
    }
}
