//! The state cookie (RFC 9260 §5.1.3) and the keyed source of tags and sequence numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use whimbrel_ids::{Instant, Reader};

use crate::outbox::Path;

/// Octets of the signature at the end of a cookie.
const MAC_LEN: usize = 32;
/// Most addresses of one peer that we keep. Two or three are usual; eight leave room and keep a cookie in a packet.
pub(crate) const PEER_ADDRESSES_MAX: usize = 8;

/// What INIT and INIT ACK have agreed on, so that no state is needed until the cookie returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    pub(crate) created: Instant,
    pub(crate) local_port: u16,
    pub(crate) peer_port: u16,
    pub(crate) local_tag: u32,
    pub(crate) peer_tag: u32,
    pub(crate) local_tsn: u32,
    pub(crate) peer_tsn: u32,
    pub(crate) peer_rwnd: u32,
    pub(crate) inbound_streams: u16,
    pub(crate) outbound_streams: u16,
    /// Tags of the association that existed when the INIT came; zero if none (RFC 9260 §5.2.2).
    pub(crate) local_tie_tag: u32,
    pub(crate) peer_tie_tag: u32,
    /// The peer's adaptation code point.
    pub(crate) adaptation: Option<u32>,
    /// Where the INIT came from and went to.
    pub(crate) path: Path,
    /// Other addresses that the peer listed.
    pub(crate) addresses: Vec<IpAddr>,
}

/// A keyed pseudo-random function: signs cookies and draws tags. The same secret gives the same draws.
#[derive(Clone)]
pub(crate) struct Prf {
    mac: Hmac<Sha256>,
    draws: u64,
}

impl core::fmt::Debug for Prf {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Prf(…)")
    }
}

impl Prf {
    /// `generation`: how many endpoints had this secret before. Each draws other values.
    pub(crate) fn new(secret: [u8; 32], generation: u32) -> Self {
        // HMAC takes keys of a block's length as they are (RFC 2104 §2); a shorter one is padded with zeros.
        let mut key = [0; 64];
        key[..32].copy_from_slice(&secret);
        Self { mac: Hmac::new(&key.into()), draws: u64::from(generation) << 40 }
    }

    /// Sixteen octets that cannot be guessed without the secret.
    fn draw(&mut self) -> [u32; 4] {
        self.draws += 1;
        let mut mac = self.mac.clone();
        mac.update(b"draw");
        mac.update(&self.draws.to_be_bytes());
        let octets = mac.finalize().into_bytes();
        let word = |i: usize| crate::packet::be32(&octets, 4 * i).unwrap_or_default();
        [word(0), word(1), word(2), word(3)]
    }

    /// A verification tag, never zero, and an initial TSN.
    pub(crate) fn tag_and_tsn(&mut self) -> (u32, u32) {
        let [tag, tsn, spare, _] = self.draw();
        (if tag == 0 { spare | 1 } else { tag }, tsn)
    }

    /// A nonce for a HEARTBEAT.
    pub(crate) fn nonce(&mut self) -> u64 {
        let [a, b, ..] = self.draw();
        u64::from(a) << 32 | u64::from(b)
    }

    fn cookie_mac(&self, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(b"cookie");
        mac.update(body);
        mac
    }

    /// Appends the signed cookie.
    pub(crate) fn seal(&self, cookie: &Cookie, out: &mut Vec<u8>) {
        let start = out.len();
        cookie.write(out);
        let mac = self.cookie_mac(&out[start..]).finalize().into_bytes();
        out.extend_from_slice(&mac);
    }

    /// Reads a cookie; `None` if we did not sign it. The caller checks its age.
    pub(crate) fn open(&self, octets: &[u8]) -> Option<Cookie> {
        let (body, mac) = octets.split_at_checked(octets.len().checked_sub(MAC_LEN)?)?;
        self.cookie_mac(body).verify_slice(mac).ok()?;
        Cookie::read(&mut Reader::new(body))
    }
}

impl Cookie {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.created.0.to_be_bytes());
        for v in [self.local_tag, self.peer_tag, self.local_tsn, self.peer_tsn, self.peer_rwnd] {
            out.extend_from_slice(&v.to_be_bytes());
        }
        for v in [self.local_tie_tag, self.peer_tie_tag] {
            out.extend_from_slice(&v.to_be_bytes());
        }
        out.push(self.adaptation.is_some().into());
        out.extend_from_slice(&self.adaptation.unwrap_or_default().to_be_bytes());
        let streams = [self.inbound_streams, self.outbound_streams];
        for v in [self.local_port, self.peer_port, self.path.udp_port].into_iter().chain(streams) {
            out.extend_from_slice(&v.to_be_bytes());
        }
        for a in [self.path.local, self.path.remote].iter().chain(&self.addresses) {
            write_ip(out, *a);
        }
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        const IE: &str = "state cookie";
        let created = Instant(r.u64(IE).ok()?);
        let mut word = || r.u32(IE).ok();
        let (local_tag, peer_tag, local_tsn, peer_tsn, peer_rwnd) =
            (word()?, word()?, word()?, word()?, word()?);
        let (local_tie_tag, peer_tie_tag) = (word()?, word()?);
        let indicated = r.u8(IE).ok()? != 0;
        let adaptation = Some(r.u32(IE).ok()?).filter(|_| indicated);
        let mut half = || r.u16(IE).ok();
        let (local_port, peer_port, udp_port) = (half()?, half()?, half()?);
        let (inbound_streams, outbound_streams) = (half()?, half()?);
        let path = Path { local: read_ip(r)?, remote: read_ip(r)?, udp_port };
        let mut addresses = Vec::new();
        while !r.is_empty() && addresses.len() < PEER_ADDRESSES_MAX {
            addresses.push(read_ip(r)?);
        }
        Some(Self {
            created,
            local_port,
            peer_port,
            local_tag,
            peer_tag,
            local_tsn,
            peer_tsn,
            peer_rwnd,
            inbound_streams,
            outbound_streams,
            local_tie_tag,
            peer_tie_tag,
            adaptation,
            path,
            addresses,
        })
    }
}

pub(crate) fn write_ip(out: &mut Vec<u8>, a: IpAddr) {
    match a {
        IpAddr::V4(a) => {
            out.push(4);
            out.extend_from_slice(&a.octets());
        }
        IpAddr::V6(a) => {
            out.push(6);
            out.extend_from_slice(&a.octets());
        }
    }
}

pub(crate) fn read_ip(r: &mut Reader<'_>) -> Option<IpAddr> {
    const IE: &str = "state cookie address";
    match r.u8(IE).ok()? {
        4 => Some(Ipv4Addr::from(r.array::<4>(IE).ok()?).into()),
        6 => Some(Ipv6Addr::from(r.array::<16>(IE).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie() -> Cookie {
        Cookie {
            created: Instant(77),
            local_port: 38412,
            peer_port: 9,
            local_tag: 1,
            peer_tag: 2,
            local_tsn: 3,
            peer_tsn: 4,
            peer_rwnd: 5,
            inbound_streams: 6,
            outbound_streams: 7,
            local_tie_tag: 8,
            peer_tie_tag: 9,
            adaptation: Some(10),
            path: Path {
                local: Ipv4Addr::LOCALHOST.into(),
                remote: Ipv6Addr::LOCALHOST.into(),
                udp_port: 9899,
            },
            addresses: vec![Ipv4Addr::new(10, 0, 0, 1).into(), Ipv6Addr::UNSPECIFIED.into()],
        }
    }

    #[test] // RFC 9260 §5.1.3: any change to a cookie is noticed
    fn a_changed_cookie_is_refused() {
        let prf = Prf::new([7; 32], 0);
        let mut octets = Vec::new();
        prf.seal(&cookie(), &mut octets);
        assert_eq!(prf.open(&octets), Some(cookie()));
        for i in 0..octets.len() {
            octets[i] ^= 0x10;
            assert_eq!(prf.open(&octets), None, "octet {i}");
            octets[i] ^= 0x10;
        }
        assert_eq!(prf.open(&octets[..octets.len() - 1]), None);
        assert_eq!(prf.open(&[]), None);
        assert_eq!(Prf::new([8; 32], 0).open(&octets), None, "another secret");
    }

    #[test]
    fn draws_differ_and_repeat_with_the_secret() {
        let (mut a, mut b) = (Prf::new([1; 32], 0), Prf::new([1; 32], 0));
        assert_eq!(a.tag_and_tsn(), b.tag_and_tsn());
        assert_ne!(a.tag_and_tsn(), Prf::new([1; 32], 1).tag_and_tsn(), "a successor's differ");
        assert_ne!(a.tag_and_tsn(), a.tag_and_tsn());
        assert_ne!(a.nonce(), a.nonce());
    }
}
