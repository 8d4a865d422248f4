//! Framed routes: networks behind a UE (TS 29.244 §5.16, TS 23.501 §5.6.14).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_ids::{DecodeErrorKind, Reader};

use crate::codec::Ie;
use crate::error::Error;

/// Longest text taken: what one RADIUS attribute holds (RFC 2865 §5).
const ROUTE_OCTETS_MAX: usize = 253;

/// The network of a route, whose host bits are zero, and the length of its prefix.
pub type RouteNetwork = (IpAddr, u8);

macro_rules! framed_route {
    ($( $(#[$meta:meta])* $name:ident: $text:literal, $address:ident, $bits:literal; )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            address: $address,
            length: u8,
        }

        impl $name {
            /// `None` if the prefix is longer than an address, or host bits are set.
            pub fn new(address: $address, length: u8) -> Option<Self> {
                let hosts = $address::from_bits(!0).to_bits().checked_shr(length.into()).unwrap_or(0);
                (length <= $bits && address.to_bits() & hosts == 0).then_some(Self { address, length })
            }

            /// The network of the route.
            pub fn network(self) -> RouteNetwork {
                (self.address.into(), self.length)
            }

            /// The prefix; gateway and metrics after it are ignored (RFC 2865 §5.22, RFC 3162 §2.5). Without a length it is
            /// one address.
            fn from_text(text: &str) -> Option<Self> {
                let prefix = text.split_ascii_whitespace().next()?;
                let (address, length) = match prefix.split_once('/') {
                    Some((address, length)) => (address, length.parse().ok()?),
                    None => (prefix, $bits),
                };
                Self::new(address.parse().ok()?, length)
            }
        }

        impl Ie for $name {
            const NAME: &'static str = $text;
            fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
                let at = r.offset();
                let octets = r.take_rest();
                let text = core::str::from_utf8(octets).ok().filter(|t| t.len() <= ROUTE_OCTETS_MAX);
                let bad = Error::new(DecodeErrorKind::InvalidValue, Self::NAME, at);
                text.and_then(Self::from_text).ok_or(bad)
            }
            fn write(&self, out: &mut Vec<u8>) {
                // The gateway is unspecified: the UE itself. One metric, of one hop.
                let unspecified = $address::from_bits(0);
                out.extend_from_slice(format!("{}/{} {unspecified} 1", self.address, self.length).as_bytes());
            }
        }
    )* };
}

framed_route! {
    /// Framed-Route (table 8.1.2-1, type 153; RFC 2865 §5.22).
    FramedRoute: "Framed-Route", Ipv4Addr, 32;
    /// Framed-IPv6-Route (table 8.1.2-1, type 155; RFC 3162 §2.5).
    FramedIpv6Route: "Framed-IPv6-Route", Ipv6Addr, 128;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<FramedRoute> {
        FramedRoute::read(&mut Reader::new(text.as_bytes())).ok()
    }

    #[test] // RFC 2865 §5.22: prefix, gateway, metrics; RFC 3162 §2.5
    fn routes_in_their_text() {
        let network = |text: &str| read(text).map(FramedRoute::network);
        assert_eq!(
            network("192.168.1.0/24 192.168.1.1 1 2 -1 3"),
            Some((Ipv4Addr::new(192, 168, 1, 0).into(), 24))
        );
        assert_eq!(network("192.168.1.9"), Some((Ipv4Addr::new(192, 168, 1, 9).into(), 32)));
        assert_eq!(network("0.0.0.0/0"), Some((Ipv4Addr::UNSPECIFIED.into(), 0)));
        for wrong in
            ["", " ", "192.168.1.0/33", "192.168.1.1/24", "192.168.1/24", "::/0", "1.2.3.4/x", "\u{1f427}"]
        {
            assert_eq!(network(wrong), None, "{wrong}");
        }
        assert_eq!(read(&"9".repeat(300)), None);
        let six = FramedIpv6Route::read(&mut Reader::new(b"2000:0:0:106::/64 2000::106 1")).unwrap();
        assert_eq!(six.network(), ("2000:0:0:106::".parse().unwrap(), 64));
        assert_eq!(FramedIpv6Route::new(Ipv6Addr::LOCALHOST, 64), None);
    }
}
