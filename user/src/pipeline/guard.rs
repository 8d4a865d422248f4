//! Destinations that UEs must not reach: the core, this host, other UEs, and those that the operator denies
//! ([`Isolation`]).
//!
//! An uplink packet is checked at most twice. [`UeIsolation::suspects`] reads a bitmap that fits in the L1 cache;
//! it clears almost every destination. For the others [`UeIsolation::judge`] compares addresses, ports and the
//! operator's exceptions. A fast path in the driver reads the same bitmap ([`DestinationFilter`]) and hands
//! up what it does not clear. The host's addresses change while packets flow ([`HostAddresses`]): bits are
//! set before an address is compared, and never taken back; a stale one costs a longer look and no packet.
//!
//! TS 33.513 §4.2.2 requires this for the UPF's own interfaces; a UE has no reason to reach the others.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::DropReason;
use super::firewall::Fragment;
use super::inner::{InnerPacket, protocol};
use super::peers::Peers;
use crate::config::{Config, Ipv4Net, Ipv6Net};
use crate::firewall::FirewallRule;
use crate::isolation::{CoreEndpoint, HostAddresses, IpNetwork, Isolation, is_special, translated};
use crate::rules::upper;

/// Words of [`DestinationFilter`]: two kilobytes, of which each thread's first cache has room.
const WORDS: usize = 256;
/// Multipliers of [`DestinationFilter::bit_index`], odd and less than 2^31, as an instruction of BPF takes them.
const MULTIPLIERS: [u32; 4] = [0x5bd1_e995, 0x2c1b_3c6d, 0x297a_2d39, 0x6b43_a9b5];
/// Bits of a product below those that are a place.
const HASH_SHIFT: u32 = 18;

/// Types of ICMP and ICMPv6 Echo Request and Echo Reply: RFC 792, RFC 4443.
const ECHO: [[u8; 2]; 2] = [[8, 0], [128, 129]];

/// One bit for each of 16,384 places of destination addresses: set for every address that may be denied.
#[derive(Debug)]
#[repr(transparent)]
pub struct DestinationFilter([AtomicU64; WORDS]);

impl Default for DestinationFilter {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }
}

impl DestinationFilter {
    /// Words that a fast path shares.
    pub const WORDS: usize = WORDS;
    /// As of [`Self::bit_index`], for a program in the driver: what the words of an address, in the order of memory, are multiplied with before
    /// they are added up, and the bits of the sum below the place.
    pub const HASH: ([u32; 4], u32) = (MULTIPLIERS, HASH_SHIFT);

    /// Where the bit of an address is, by its words in the order of memory.
    #[inline]
    fn bit_index(words: &[u32]) -> usize {
        let products = words.iter().zip(MULTIPLIERS).map(|(w, m)| u64::from(*w).wrapping_mul(m.into()));
        let sum = products.fold(0u64, u64::wrapping_add);
        (sum >> HASH_SHIFT) as usize % (WORDS * 64)
    }

    #[inline]
    fn bit_index_of(address: IpAddr) -> usize {
        match address {
            IpAddr::V4(a) => Self::bit_index(&[u32::from_ne_bytes(a.octets())]),
            IpAddr::V6(a) => {
                let octets = a.octets();
                let (words, _) = octets.as_chunks::<4>();
                let mut all = [0; 4];
                all.iter_mut().zip(words).for_each(|(to, word)| *to = u32::from_ne_bytes(*word));
                Self::bit_index(&all)
            }
        }
    }

    #[inline]
    fn has(&self, address: IpAddr) -> bool {
        let place = Self::bit_index_of(address);
        self.0[place / 64].load(Ordering::Relaxed) >> (place % 64) & 1 != 0
    }

    /// An address may be denied from now on.
    pub(super) fn set(&self, address: IpAddr) {
        let place = Self::bit_index_of(address);
        self.0[place / 64].fetch_or(1 << (place % 64), Ordering::Relaxed);
    }

    /// Marks every address as possibly denied.
    fn set_all(&self) {
        self.0.iter().for_each(|w| w.store(u64::MAX, Ordering::Relaxed));
    }

    /// Merges this filter into the words that a fast path shares.
    pub fn merge_into(&self, words: &[AtomicU64; WORDS]) {
        words.iter().zip(&self.0).for_each(|(to, from)| {
            to.fetch_or(from.load(Ordering::Relaxed), Ordering::Relaxed);
        });
    }
}

/// UEs' addresses of both families, as first address and mask.
#[derive(Default)]
struct UePrefixes {
    ipv4: Box<[(u32, u32)]>,
    /// Of prefixes of 64 bits.
    ipv6: Box<[(u64, u64)]>,
}

impl UePrefixes {
    fn of(ipv4: impl Iterator<Item = Ipv4Net>, ipv6: impl Iterator<Item = Ipv6Net>) -> Self {
        let of_4 =
            |n: Ipv4Net| (n.first(), u32::MAX.checked_shl(32 - u32::from(n.prefix.min(32))).unwrap_or(0));
        let of_6 =
            |n: Ipv6Net| (n.first(), u64::MAX.checked_shl(64 - u32::from(n.prefix.min(64))).unwrap_or(0));
        Self { ipv4: ipv4.map(of_4).collect(), ipv6: ipv6.map(of_6).collect() }
    }

    #[inline]
    fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => self.ipv4.iter().any(|(first, mask)| a.to_bits() & mask == *first),
            IpAddr::V6(a) => self.ipv6.iter().any(|(first, mask)| upper(a) & mask == *first),
        }
    }
}

/// The isolation rules of one pipeline.
pub(super) struct UeIsolation {
    ue_to_host: bool,
    ue_to_ue: bool,
    allow: Box<[FirewallRule]>,
    deny: Box<[IpNetwork]>,
    core: Box<[CoreEndpoint]>,
    gnb_networks: Box<[IpNetwork]>,
    /// All addresses of UEs, and what they are translated to.
    ues: UePrefixes,
    /// Gateways of the pools: addresses of this host that no UE gets.
    gateways: Box<[IpAddr]>,
    host: Arc<HostAddresses>,
}

impl UeIsolation {
    pub(super) fn new(config: &Config) -> Self {
        let Isolation { ue_to_host, ue_to_ue, allow, deny, core, gnb_networks } = config.isolation.clone();
        let networks = &config.data_networks;
        let ipv4 = networks.iter().flat_map(|d| d.all_ipv4_pools().chain(d.nat_pools()));
        let ipv6 = networks.iter().flat_map(|d| d.all_ipv6_pools());
        let ipv4_gateways = networks.iter().flat_map(|d| d.all_ipv4_pools()).map(|p| p.gateway().into());
        let ipv6_gateways = networks.iter().flat_map(|d| d.all_ipv6_pools()).map(|p| p.gateway().into());
        Self {
            ue_to_host,
            ue_to_ue,
            allow: allow.into(),
            deny: deny.into(),
            core: core.into(),
            gnb_networks: gnb_networks.into(),
            ues: UePrefixes::of(ipv4, ipv6),
            gateways: ipv4_gateways.chain(ipv6_gateways).collect(),
            host: Arc::default(),
        }
    }

    /// Sets the bits of what the configuration denies.
    pub(super) fn suspect_configured(&self, config: &Config, suspects: &DestinationFilter) {
        let own = [config.n3_ipv4.map(IpAddr::V4), config.n3_ipv6.map(IpAddr::V6), Some(config.n4)];
        let core = self.core.iter().map(|c| c.address);
        let all = own.into_iter().flatten().chain(core).chain(self.gateways.iter().copied());
        all.for_each(|a| suspects.set(a));
        self.deny.iter().for_each(|n| n.single().into_iter().for_each(|a| suspects.set(a)));
    }

    /// The host takes packets for these addresses from now on.
    pub(super) fn set_host(&mut self, host: Arc<HostAddresses>, suspects: &DestinationFilter) {
        host.singles().iter().for_each(|a| suspects.set(*a));
        // Loopback is looked at in any case; a host that has other whole networks is rare.
        if host.networks().iter().any(|n| !is_special(n.address)) {
            suspects.set_all();
        }
        self.host = host;
    }

    /// Whether a UE's packet to a destination is to be judged.
    #[inline]
    pub(super) fn suspects(&self, to: IpAddr, suspects: &DestinationFilter) -> bool {
        let unusual = match to {
            IpAddr::V4(_) => is_special(to),
            // Among others what a NAT64 translates (RFC 6052 §2.1).
            IpAddr::V6(a) => matches!(a.octets()[0], 0 | 0xfe | 0xff),
        };
        unusual
            || suspects.has(to)
            || !self.ue_to_ue && self.ues.contains(to)
            || !self.deny.is_empty() && self.deny.iter().any(|n| n.contains(to))
    }

    /// Whether a UE's packet may go into its data network. Errors: why not.
    #[cold]
    pub(super) fn judge(&self, inner: &InnerPacket, packet: &[u8], peers: &Peers) -> Result<(), DropReason> {
        let flow = inner.uplink();
        let later = Fragment::of(packet, inner).is_some_and(|f| !f.is_first);
        if self.allow.iter().any(|r| r.permits_from_ue() && r.is_for(&flow, later)) {
            return Ok(());
        }
        let to = translated(inner.destination);
        let special = is_special(to);
        let host = self.host.contains(to) || self.gateways.contains(&to);
        let listens = |c: &CoreEndpoint| {
            let any = c.address.is_unspecified() || self.host.contains(c.address);
            // Multicast and broadcast packets reach sockets bound to any address.
            (c.address == to || any && (host || special))
                && c.protocol == inner.protocol
                && inner.ports().is_none_or(|(_, port)| port == c.port)
        };
        if !later && self.core.iter().any(listens) {
            return Err(DropReason::UeToCore);
        }
        if special {
            return Err(DropReason::LinkScope);
        }
        if self.deny.iter().any(|n| n.contains(to)) {
            return Err(DropReason::UeToDenied);
        }
        if host {
            let reached = self.ue_to_host || self.gateways.contains(&to) && asks_router(inner, packet, later);
            return if reached { Ok(()) } else { Err(DropReason::UeToHost) };
        }
        if self.core.iter().any(|c| c.address == to) || peers.has(to) {
            return Err(DropReason::UeToCore);
        }
        if !self.ue_to_ue && self.ues.contains(to) {
            return Err(DropReason::UeToUe);
        }
        Ok(())
    }

    /// True if the source of a downlink packet is another UE's address, from which it may not come.
    #[inline]
    pub(super) fn is_foreign_ue_source(&self, source: IpAddr) -> bool {
        !self.ue_to_ue && self.is_ue(source)
    }

    /// Whether an address is a UE's, or may become one's.
    #[inline]
    pub(super) fn is_ue(&self, address: IpAddr) -> bool {
        self.ues.contains(address) && !self.is_gateway(address)
    }

    fn is_gateway(&self, address: IpAddr) -> bool {
        self.gateways.contains(&address)
    }

    /// True if the address is in a network configured for gNBs and other UPFs.
    pub(super) fn is_in_gnb_networks(&self, address: IpAddr) -> bool {
        self.gnb_networks.iter().any(|n| n.contains(address))
    }
}

/// True if a packet is an ICMP Echo Request or Reply to the UE's gateway, the only traffic that the gateway
/// accepts.
fn asks_router(inner: &InnerPacket, packet: &[u8], later: bool) -> bool {
    let family = match inner.protocol {
        protocol::ICMP => 0,
        protocol::ICMPV6 => 1,
        _ => return false,
    };
    later || packet.get(inner.payload_at).is_some_and(|kind| ECHO[family].contains(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_suspected_once_it_is_set_and_few_others_are() {
        let suspects = DestinationFilter::default();
        let address = |n: u32| -> [IpAddr; 2] {
            let v6 = (0x2001_0db8_u128 << 96) | u128::from(n) << 17;
            [IpAddr::V4((0xc000_0000 + n).into()), IpAddr::V6(v6.into())]
        };
        (0..400).flat_map(address).for_each(|a| suspects.set(a));
        assert!((0..400).flat_map(address).all(|a| suspects.has(a)));
        let others = (1_000..21_000).flat_map(address).filter(|a| suspects.has(*a)).count();
        assert!(others < 40_000 / 12, "{others} of 40,000; 800 of 16,384 bits are set");
    }
}
