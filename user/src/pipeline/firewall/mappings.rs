//! Address and port mappings of UEs (RFC 3022, RFC 4787 §4, RFC 6056).
//!
//! Mapping is endpoint-independent, and lasts as long as one of its flows. A UE always has the same outside address; its ports are
//! random, for UDP with the parity of the UE's port (RFC 4787 §4.2.2).
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

const _: () = assert!((PORT_FIRST as u32).is_multiple_of(2 * crate::limits::SHARDS_MAX as u32));

/// A UE's endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inside {
    pub(super) ue: Ipv4Addr,
    pub(super) port: u16,
    pub(super) kind: Kind,
}

/// Protocols, each with its own port space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Tcp,
    Udp,
    Icmp,
}

const KINDS: usize = 3;

impl Kind {
    pub(super) const fn of(protocol: u8) -> Option<Self> {
        match protocol {
            protocol::TCP => Some(Self::Tcp),
            protocol::UDP => Some(Self::Udp),
            protocol::ICMP => Some(Self::Icmp),
            _ => None,
        }
    }
}

struct Mapping {
    inside: Inside,
    session: u32,
    address: u16,
    port: u16,
    flows: u32,
    next_in_bucket: u32,
}

/// All of them.
pub(super) struct Mappings {
    hash: Hash,
    shard: Shard,
    addresses: Box<[Ipv4Addr]>,
    /// By address, protocol and port: the mapping's index plus one, or zero.
    ports: Box<[u32]>,
    buckets: Box<[u32]>,
    mappings: Vec<Mapping>,
    max: usize,
    free: u32,
    standing: usize,
    /// Number of ports of each session.
    used: Vec<u16>,
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
            self.used.resize(needed, 0);
        }
    }

    /// Whether packets to this address are translated.
    pub(super) fn holds(&self, address: Ipv4Addr) -> bool {
        self.address(address).is_some()
    }

    fn address(&self, address: Ipv4Addr) -> Option<usize> {
        self.addresses.iter().position(|a| *a == address)
    }

    fn place(&self, address: usize, kind: Kind, port: u16) -> usize {
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
    pub(super) fn behind(&self, outside: Ipv4Addr, kind: Kind, port: u16) -> Option<(u32, Inside)> {
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
        self.used.get(session as usize).is_none_or(|n| *n >= self.ports_per_ue)
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

    /// A free port of an outside address, and its index.
    fn free_port(&mut self, address: usize, inside: &Inside) -> Option<(u16, usize)> {
        // Of each stride of ports two are this shard's, one even and one odd.
        let stride = 2 * u32::from(self.shard.of());
        let strides = ((1 << 16) - u32::from(PORT_FIRST)) / stride;
        let random = self.next_random();
        let (from, odd) = ((random >> 33) as u32 % strides, random as u32 & 1);
        let port = |n: u32| {
            // For TCP and ICMP both of a stride, one after the other.
            let (n, odd) = match inside.kind {
                Kind::Udp => (n, u32::from(inside.port) & 1),
                Kind::Tcp | Kind::Icmp => (n / 2, (odd + n) & 1),
            };
            let first = u32::from(PORT_FIRST) + (from + n) % strides * stride;
            (first + 2 * u32::from(self.shard.number()) + odd) as u16
        };
        let look = |n| (port(n), self.place(address, inside.kind, port(n)));
        (0..LOOKS).map(look).find(|(_, place)| self.ports[*place] == 0)
    }

    /// Adds a mapping for a UE's port; `None` if no port is free.
    pub(super) fn add(&mut self, inside: Inside, session: u32) -> Option<u32> {
        if self.standing == self.max || self.has_all(session) {
            return None;
        }
        let address = self.hash.of(&[u64::from(inside.ue.to_bits())]) as usize % self.addresses.len();
        let (port, place) = self.free_port(address, &inside)?;
        let bucket = self.bucket(&inside);
        let next_in_bucket = self.buckets[bucket].checked_sub(1).unwrap_or(NIL);
        let mapping = Mapping { inside, session, address: address as u16, port, flows: 0, next_in_bucket };
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
        self.used[session as usize] += 1;
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
            *used -= 1;
        }
    }
}
