//! Address and port mappings of UEs (RFC 3022, RFC 4787 §4, RFC 6056).
//!
//! Mapping is endpoint-independent, and lasts as long as one of its flows. A UE has one outside address as long as it has ports; these are
//! random, for UDP with the parity of the UE's port while one is free (RFC 4787 §4.2.2).
//!
//! A UE's first port is of the address that the hash of its own names, or of the least used one if that is half full. Where an address has no free port, the
//! UE with most ports there gives one up, so that the share of each UE is what the address has, divided by its UEs.
//!
//! With several shards, the bits of a port above the lowest identify the shard that assigned it.

use std::net::Ipv4Addr;

use super::flows::{Hash, NIL};
use crate::firewall::Nat;
use crate::pipeline::inner::protocol;
use crate::pipeline::shard::{Shard, shard_of};

/// The first assigned port: lower ones are for servers.
const PORT_FIRST: u16 = 1_024;
/// Attempts to find a free port. With nine tenths in use one in 10^46 searches fails.
const LOOKS: u32 = 1_024;
/// Free ports of an address below which the one that was given up last is taken without a search.
const FEW_PORTS: u32 = 64;
/// Ports of a full address whose owners are compared: UEs that own half of it are missed once in 65,536 searches.
const OWNERS_COMPARED: u32 = 16;

const _: () = assert!((PORT_FIRST as u32).is_multiple_of(2 * crate::limits::SHARDS_MAX as u32));

/// A UE's endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inside {
    pub(super) ue: Ipv4Addr,
    pub(super) port: u16,
    pub(super) kind: MappedProtocol,
}

/// Protocols, each with its own port space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum MappedProtocol {
    Tcp,
    Udp,
    Icmp,
}

pub(super) const KINDS: usize = 3;

impl MappedProtocol {
    pub(super) const fn of(protocol: u8) -> Option<Self> {
        match protocol {
            protocol::TCP => Some(Self::Tcp),
            protocol::UDP => Some(Self::Udp),
            protocol::ICMP => Some(Self::Icmp),
            _ => None,
        }
    }
}

struct PortMapping {
    inside: Inside,
    session: u32,
    address: u16,
    port: u16,
    flows: u32,
    next_in_bucket: u32,
}

/// The ports of a session, all of one outside address.
#[derive(Clone, Copy, Default)]
struct Ports {
    by_kind: [u16; KINDS],
    address: u16,
}

impl Ports {
    fn all(&self) -> u32 {
        self.by_kind.iter().map(|n| u32::from(*n)).sum()
    }
}

/// All of them.
pub(super) struct Mappings {
    hash: Hash,
    shard: Shard,
    addresses: Box<[Ipv4Addr]>,
    /// By address, protocol and port: the mapping's index plus one, or zero.
    ports: Box<[u32]>,
    buckets: Box<[u32]>,
    mappings: Vec<PortMapping>,
    max: usize,
    free: u32,
    standing: usize,
    /// Numbers of ports in use, and their outside address, by session.
    used: Vec<Ports>,
    /// Number of ports in use, by outside address and protocol.
    taken: Box<[u32]>,
    /// The place of the port that was given up last.
    given_up: usize,
    ports_per_ue: u16,
    pub(super) reachable: bool,
    /// State of the port generator.
    random: u64,
}

impl Mappings {
    pub(super) fn new(nat: &Nat, flows_max: u32, hash: Hash, shard: Shard) -> Self {
        let every = |p: &crate::config::Ipv4Net| {
            let count = 1u64 << 32u8.saturating_sub(p.prefix);
            (0..count).map({
                let first = p.first();
                move |i| Ipv4Addr::from_bits(first.wrapping_add(i as u32))
            })
        };
        let addresses: Box<[Ipv4Addr]> = nat.pools.iter().flat_map(every).collect();
        let ports = (addresses.len() * KINDS) << 16;
        // Each mapping has a flow, and each a port.
        let max = (flows_max as usize).min(ports);
        Self {
            hash,
            shard,
            ports: vec![0; ports].into(),
            taken: vec![0; addresses.len() * KINDS].into(),
            given_up: 0,
            addresses,
            buckets: vec![0; max.next_power_of_two()].into(),
            mappings: Vec::with_capacity(max),
            max,
            free: NIL,
            standing: 0,
            used: Vec::new(),
            ports_per_ue: nat.ports_per_ue,
            reachable: nat.reachable,
            random: hash.of(&[0x706f_7274, shard.number().into()]),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.standing
    }

    pub(super) fn welcome(&mut self, session: u32) {
        let needed = session as usize + 1;
        if self.used.len() < needed {
            self.used.resize(needed, Ports::default());
        }
    }

    /// Whether packets to this address are translated.
    pub(super) fn holds(&self, address: Ipv4Addr) -> bool {
        self.address(address).is_some()
    }

    fn address(&self, address: Ipv4Addr) -> Option<usize> {
        self.addresses.iter().position(|a| *a == address)
    }

    fn place(&self, address: usize, kind: MappedProtocol, port: u16) -> usize {
        (address * KINDS + kind as usize) << 16 | usize::from(port)
    }

    fn bucket(&self, i: &Inside) -> usize {
        let word = u64::from(i.ue.to_bits()) << 32 | u64::from(i.port) << 8 | i.kind as u64;
        self.hash.of(&[word]) as usize & (self.buckets.len() - 1)
    }

    /// The mapping of a UE's port, if there is one.
    pub(super) fn find(&self, inside: &Inside) -> Option<u32> {
        let mut at = self.buckets[self.bucket(inside)].checked_sub(1)?;
        loop {
            let m = self.mappings.get(at as usize)?;
            if m.inside == *inside {
                return Some(at);
            }
            at = m.next_in_bucket;
        }
    }

    /// The mapping of an outside port, and the UE's endpoint.
    pub(super) fn behind(&self, outside: Ipv4Addr, kind: MappedProtocol, port: u16) -> Option<(u32, Inside)> {
        let at = self.ports[self.place(self.address(outside)?, kind, port)].checked_sub(1)?;
        self.mappings.get(at as usize).map(|m| (at, m.inside))
    }

    /// The outside address and port of a mapping.
    pub(super) fn outside(&self, at: u32) -> Option<(Ipv4Addr, u16)> {
        let m = self.mappings.get(at as usize)?;
        Some((*self.addresses.get(usize::from(m.address))?, m.port))
    }

    /// Whether a session is at its limit of ports.
    pub(super) fn has_all(&self, session: u32) -> bool {
        self.used.get(session as usize).is_none_or(|p| p.all() >= self.ports_per_ue.into())
    }

    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.hash.of(&[self.random])
    }

    /// The shard that assigned a port, if it is another one.
    pub(super) fn shard_of(&self, port: u16) -> Option<u8> {
        let shard = shard_of(u64::from(port >> 1), self.shard.of());
        (shard != self.shard.number()).then_some(shard)
    }

    /// Ports between two of this shard's pairs: of each stride of ports two are this shard's, one even and one odd.
    fn stride(&self) -> u32 {
        2 * u32::from(self.shard.of())
    }

    fn strides(&self) -> u32 {
        ((1 << 16) - u32::from(PORT_FIRST)) / self.stride()
    }

    /// This shard's port of a stride.
    fn port(&self, stride: u32, odd: u32) -> u16 {
        let first = u32::from(PORT_FIRST) + stride % self.strides() * self.stride();
        (first + 2 * u32::from(self.shard.number()) + odd) as u16
    }

    /// How many ports of an address this shard has left.
    fn left(&self, address: usize, kind: usize) -> u32 {
        (2 * self.strides()).saturating_sub(self.taken[address * KINDS + kind])
    }

    /// Chooses the outside address of a UE that has no port.
    pub(super) fn settle(&mut self, inside: &Inside, session: u32) {
        if self.used.get(session as usize).is_none_or(|ports| ports.all() > 0) {
            return;
        }
        let kind = inside.kind as usize;
        let first = self.hash.of(&[u64::from(inside.ue.to_bits())]) as usize % self.addresses.len();
        let all = (first..self.addresses.len()).chain(0..first);
        let address = match self.left(first, kind) > self.strides() {
            true => Some(first),
            false => all.min_by_key(|at| std::cmp::Reverse(self.left(*at, kind))),
        };
        self.used[session as usize].address = address.unwrap_or(first) as u16;
    }

    /// A free port of an outside address, and its index.
    fn free_port(&mut self, address: usize, inside: &Inside) -> Option<(u16, usize)> {
        let left = self.left(address, inside.kind as usize);
        let given_up = Some(self.given_up)
            .filter(|place| place >> 16 == address * KINDS + inside.kind as usize && self.ports[*place] == 0);
        if left < FEW_PORTS {
            if left == 0 { given_up } else { given_up.or_else(|| self.search(address, inside)) }
        } else {
            self.search(address, inside).or(given_up)
        }
        .map(|place| (place as u16, place))
    }

    /// Looks for a free port from a random place on.
    fn search(&mut self, address: usize, inside: &Inside) -> Option<usize> {
        let random = self.next_random();
        let (from, odd) = ((random >> 33) as u32 % self.strides(), random as u32 & 1);
        let (parity, other) = match inside.kind {
            MappedProtocol::Udp => (u32::from(inside.port) & 1, LOOKS),
            // Both of a stride, one after the other.
            MappedProtocol::Tcp | MappedProtocol::Icmp => (odd, 0),
        };
        let port = |n: u32| match inside.kind {
            MappedProtocol::Udp => self.port(from + n, parity ^ u32::from(n >= LOOKS)),
            MappedProtocol::Tcp | MappedProtocol::Icmp => self.port(from + n / 2, (parity + n) & 1),
        };
        let look = |n| self.place(address, inside.kind, port(n));
        (0..LOOKS + other).map(look).find(|place| self.ports[*place] == 0)
    }

    /// The session that gives up a port of the address of `beginner`'s, where none is free: that with most, `beginner` itself if none is found with more.
    pub(super) fn largest(&mut self, beginner: u32, kind: MappedProtocol) -> u32 {
        let ports_of =
            |session: u32| self.used.get(session as usize).map_or(0, |ports| ports.by_kind[kind as usize]);
        let address = self.used.get(beginner as usize).map_or(0, |ports| usize::from(ports.address));
        let (random, step) =
            (self.hash.of(&[self.random]) as u32 >> 1, self.strides().div_ceil(OWNERS_COMPARED));
        let mut most = (beginner, ports_of(beginner));
        for n in 0..OWNERS_COMPARED {
            let port = self.port(random + n * step, n & 1);
            let at = self.ports[self.place(address, kind, port)].checked_sub(1);
            let Some(m) = at.and_then(|at| self.mappings.get(at as usize)) else { continue };
            if ports_of(m.session) > most.1 {
                most = (m.session, ports_of(m.session));
            }
        }
        self.random = self.random.wrapping_add(1);
        most.0
    }

    /// Adds a mapping for a UE's port, of the address on which [`Self::settle`] has settled; `None` if no port is free.
    pub(super) fn add(&mut self, inside: Inside, session: u32) -> Option<u32> {
        if self.standing == self.max || self.has_all(session) {
            return None;
        }
        let address = usize::from(self.used[session as usize].address);
        let (port, place) = self.free_port(address, &inside)?;
        let bucket = self.bucket(&inside);
        let next_in_bucket = self.buckets[bucket].checked_sub(1).unwrap_or(NIL);
        let mapping =
            PortMapping { inside, session, address: address as u16, port, flows: 0, next_in_bucket };
        let at = match self.mappings.get_mut(self.free as usize) {
            Some(free) => {
                let at = std::mem::replace(&mut self.free, free.next_in_bucket);
                *free = mapping;
                at
            }
            None => {
                self.mappings.push(mapping);
                self.mappings.len() as u32 - 1
            }
        };
        self.buckets[bucket] = at + 1;
        self.ports[place] = at + 1;
        self.standing += 1;
        self.used[session as usize].by_kind[inside.kind as usize] += 1;
        self.taken[place >> 16] += 1;
        Some(at)
    }

    /// A further flow uses it.
    pub(super) fn begin(&mut self, at: u32) {
        if let Some(m) = self.mappings.get_mut(at as usize) {
            m.flows += 1;
        }
    }

    /// A flow no longer uses it; the mapping ends with its last flow.
    pub(super) fn end(&mut self, at: u32) {
        let Some(m) = self.mappings.get_mut(at as usize) else { return };
        m.flows = m.flows.saturating_sub(1);
        if m.flows > 0 {
            return;
        }
        let (inside, session, next) = (m.inside, m.session, m.next_in_bucket);
        let place = (usize::from(m.address) * KINDS + inside.kind as usize) << 16 | usize::from(m.port);
        m.next_in_bucket = self.free;
        self.ports[place] = 0;
        self.given_up = place;
        self.taken[place >> 16] -= 1;
        let bucket = self.bucket(&inside);
        let mut before = self.buckets[bucket].wrapping_sub(1);
        if before == at {
            self.buckets[bucket] = next.wrapping_add(1);
        } else {
            while let Some(m) = self.mappings.get_mut(before as usize) {
                if m.next_in_bucket == at {
                    m.next_in_bucket = next;
                    break;
                }
                before = m.next_in_bucket;
            }
        }
        self.free = at;
        self.standing -= 1;
        if let Some(used) = self.used.get_mut(session as usize) {
            used.by_kind[inside.kind as usize] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Ipv4Net;

    fn mappings(prefix: u8, ports_per_ue: u16) -> Mappings {
        let pools = vec![Ipv4Net { address: Ipv4Addr::new(192, 0, 2, 0), prefix }];
        let nat = Nat { pools, ports_per_ue, reachable: false };
        let mut m = Mappings::new(&nat, 1 << 20, Hash::new(7), Shard::new(0, 1));
        (0..200).for_each(|session| m.welcome(session));
        m
    }

    fn inside(session: u32, port: u16) -> Inside {
        Inside { ue: Ipv4Addr::from_bits(0x0a2d_0000 + session), port, kind: MappedProtocol::Udp }
    }

    /// Opens flows from `ports` ports of a UE, and returns how many of them got an outside port.
    fn take(m: &mut Mappings, session: u32, ports: u16) -> usize {
        let add = |m: &mut Mappings, port| {
            m.settle(&inside(session, port), session);
            m.add(inside(session, port), session)
        };
        (0..ports).filter_map(|port| add(m, port)).count()
    }

    #[test] // RFC 4787 §4.1
    fn ue_without_ports_takes_an_address_that_has_room() {
        // Three ports of four are used in the end: by hash, some of the four addresses would be asked for more than they have.
        let quarter = 16_000;
        let mut m = mappings(30, quarter);
        for session in 0..12 {
            assert_eq!(take(&mut m, session, quarter), usize::from(quarter), "UE {session}");
        }
        let on = |address| (0..12).filter(|s| m.used[*s].address == address).count();
        assert!((0..4).all(|address| (2..=4).contains(&on(address))));
        // It stays there as long as it has ports.
        let outside = (0..12).map(|s| m.used[s].address).collect::<Vec<_>>();
        (0..12).for_each(|session| m.settle(&inside(session, 0), session));
        assert_eq!((0..12).map(|s| m.used[s].address).collect::<Vec<_>>(), outside);
    }

    #[test]
    fn last_port_of_an_address_is_found_and_the_ue_with_most_ports_gives_one_up() {
        let mut m = mappings(32, 1_024);
        let taken: usize = (0..70).map(|session| take(&mut m, session, 1_024)).sum();
        // Searches begin to miss when few ports are left.
        assert!((64_000..=64_512).contains(&taken), "{taken}");
        m.settle(&inside(100, 1), 100);
        while m.add(inside(100, m.used[100].all() as u16), 100).is_some() {}
        let before = m.used[100].all();
        let largest = m.largest(100, MappedProtocol::Udp);
        assert!(largest < 70 && m.used[largest as usize].all() == 1_024);
        let given_up = m.find(&inside(largest, 7)).unwrap();
        let outside = m.outside(given_up);
        m.end(given_up);
        let got = m.add(inside(100, 60_000), 100).unwrap();
        assert_eq!((m.outside(got), m.used[100].all()), (outside, before + 1));
    }
}
