//! The firewall of a data network: a stateful firewall and, for IPv4 UEs, address translation.
//!
//! A packet of an existing flow passes. One that would start a flow is judged by the operator's rules, which are conditions of the
//! classifier; without a matching rule it passes if a UE sends it. So outside hosts may answer, and start flows that a rule permits.
//!
//! Spec: RFC 4787 (UDP), RFC 5382 and RFC 7857 (TCP), RFC 5508 (ICMP); RFC 6092 for the IPv6 part.
//!
//! A UE's packet is judged when its FAR forwards it to N6, before rates and usage ([`N6Firewall::leave`]). A packet from outside is judged
//! when its session is found ([`N6Firewall::ue_of`], [`N6Firewall::enter`]), before that session's rules, so buffered packets have passed
//! already. Flows belong to sessions: a UE that gets the address of an ended session has none of its flows.

mod flows;
mod fragments;
mod mappings;
mod rewrite;
mod tcp;

use std::net::{IpAddr, Ipv4Addr};

use whimbrel_classifier::{Classifier, Fields, PacketKey, Pdi, Rank, Rule};
use whimbrel_ids::Instant;

use super::DropReason;
use super::drops::FirewallCounters;
use super::inner::{InnerPacket, protocol};
use super::packet::Packet;
use super::shard::Shard;
use crate::config::{DataNetwork, DnIndex, Ipv4Net, Ipv6Net};
use crate::firewall::Firewall;
use flows::{FlowClass, FlowEndpoints, Flows, Hash, NIL};
pub(super) use fragments::Fragment;
use fragments::{Fragments, Word};
use mappings::{Inside, MappedProtocol, Mappings};
use rewrite::{PacketEnd, checksum, readdress, sum_icmp, transport_octets_min};
use tcp::Tcp;

/// Bound on expired flows that one packet removes: twice the number that it can start, so that they do not accumulate.
const SWEPT_BY_PACKET: usize = 4;
/// The same between bursts.
const SWEPT_BY_TICK: usize = 256;
/// The two sides, as [`Fields::source_interface`].
const ACCESS: u8 = 0;
const CORE: u8 = 1;

/// Types of ICMP (RFC 792) and ICMPv6 (RFC 4443) messages that are handled.
mod icmp {
    pub(super) const ECHO_REPLY: u8 = 0;
    pub(super) const ECHO: u8 = 8;
    pub(super) const TIMESTAMP: u8 = 13;
    pub(super) const TIMESTAMP_REPLY: u8 = 14;
    /// Destination unreachable, time exceeded, parameter problem: ICMP errors.
    pub(super) const ERRORS: [u8; 3] = [3, 11, 12];
    pub(super) const V6_ECHO: u8 = 128;
    pub(super) const V6_ECHO_REPLY: u8 = 129;
    /// Destination unreachable, packet too big, time exceeded, parameter problem.
    pub(super) const V6_ERRORS: std::ops::RangeInclusive<u8> = 1..=4;
}

/// A packet as the firewall sees it.
#[derive(Clone, Copy)]
enum Sort {
    /// A packet of a flow.
    Flow {
        /// Source and destination port; of an ICMP query, its identifier twice.
        ports: (u16, u16),
        /// Whether its protocol allows it to start a flow: an answer cannot.
        begins: bool,
    },
    /// An ICMP error.
    Error,
    /// A later fragment.
    Later(Fragment),
}

/// The UE behind the destination of a packet from outside.
pub(super) enum Behind {
    /// The UE that has this address.
    Ue(IpAddr),
    /// None, or the packet cannot be attributed to a UE.
    NoUe(DropReason),
    /// The outside port belongs to a session of this shard.
    Shard(u8),
    /// A later fragment, whose first one may have been handled by another shard.
    Unknown,
}

/// The firewall of one data network in one shard: a session's flows are in the session's shard.
pub(super) struct N6Firewall {
    rules: Classifier,
    /// By index: whether a rule permits.
    permits: Box<[bool]>,
    between_ues: bool,
    ues: Box<[(u128, u8)]>,
    flows_per_ue: u32,
    flows: Flows,
    mappings: Option<Mappings>,
    fragments: Fragments,
    counters: FirewallCounters,
}

/// An address among those of IPv6 (RFC 4291 §2.5.5.2).
fn wide(a: IpAddr) -> u128 {
    match a {
        IpAddr::V4(a) => a.to_ipv6_mapped().to_bits(),
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn of_v4(n: Ipv4Net) -> (u128, u8) {
    (wide(IpAddr::V4(Ipv4Addr::from_bits(n.first()))), 96 + n.prefix.min(32))
}

fn of_v6(n: Ipv6Net) -> (u128, u8) {
    (u128::from(n.first()) << 64, n.prefix.min(64))
}

impl N6Firewall {
    /// `None` where the network has no firewall.
    pub(super) fn of(at: usize, dn: &DataNetwork, seed: u64, shard: Shard) -> Option<Self> {
        let f: &Firewall = dn.firewall.as_ref()?;
        let mut rules = Classifier::new(seed);
        for (place, rule) in (0u32..).zip(&f.rules) {
            let side = if rule.from_ue { ACCESS } else { CORE };
            for pdi in rule.conditions(Pdi { source_interface: Some(side), ..Pdi::default() }) {
                if let Some(rule) = Rule::new(Rank::new(place, rules.len() as u32), &pdi) {
                    rules.insert(rule);
                }
            }
        }
        let hash = Hash::new(seed ^ at as u64);
        let flows_max = f.flows_max.div_ceil(shard.of().into());
        let own = dn.all_ipv4_pools().map(of_v4).chain(dn.all_ipv6_pools().map(of_v6));
        Some(Self {
            rules,
            permits: f.rules.iter().map(|r| r.permits).collect(),
            between_ues: f.between_ues,
            ues: own.chain(dn.nat_pools().map(of_v4)).collect(),
            flows_per_ue: f.flows_per_ue.into(),
            flows: Flows::new(flows_max, &f.timeouts, hash),
            mappings: f.nat.as_ref().map(|n| Mappings::new(n, flows_max, hash, shard)),
            fragments: Fragments::new(hash),
            counters: FirewallCounters {
                dn: DnIndex(at as u8),
                rules: vec![0; f.rules.len()],
                ..FirewallCounters::default()
            },
        })
    }

    /// Counters of the firewall.
    pub(super) fn counters(&self) -> &FirewallCounters {
        &self.counters
    }

    /// Allocates for a session, not while a packet is processed.
    pub(super) fn welcome(&mut self, session: u32) {
        self.flows.welcome(session);
        self.fragments.welcome(session);
        if let Some(m) = &mut self.mappings {
            m.welcome(session);
        }
    }

    /// Ends all flows of a session.
    pub(super) fn forget(&mut self, session: u32) {
        while let Some(at) = self.flows.oldest_of(session) {
            self.end(at);
        }
        self.fragments.forget(session);
    }

    /// Removes expired flows.
    pub(super) fn tick(&mut self, now: Instant) {
        self.sweep(now, SWEPT_BY_TICK);
    }

    fn sweep(&mut self, now: Instant, at_most: usize) {
        for _ in 0..at_most {
            let Some(at) = self.flows.over(now) else { return };
            self.end(at);
        }
    }

    fn end(&mut self, at: u32) {
        let mapping = self.flows.remove(at);
        if let Some(m) = self.mappings.as_mut().filter(|_| mapping != NIL) {
            m.end(mapping);
        }
        self.count_standing();
    }

    fn count_standing(&mut self) {
        self.counters.flows = self.flows.len() as u64;
        self.counters.ports = self.mappings.as_ref().map_or(0, |m| m.len() as u64);
    }

    /// An existing flow.
    fn standing(&mut self, now: Instant, key: &FlowEndpoints) -> Option<u32> {
        let at = self.flows.find(key)?;
        if self.flows.is_over(at, now) {
            self.end(at);
            return None;
        }
        Some(at)
    }

    /// A packet of a session leaves for the data network, with another source if `own` is the UE's IPv4 address.
    pub(super) fn leave(
        &mut self,
        now: Instant,
        session: u32,
        own: Option<Ipv4Addr>,
        inner: &InnerPacket,
        packet: &mut Packet,
    ) -> Result<(), DropReason> {
        self.sweep(now, SWEPT_BY_PACKET);
        let own = own.filter(|a| self.mappings.is_some() && inner.source == IpAddr::V4(*a));
        let (ports, begins) = match sort(inner, packet.octets(), true)? {
            Sort::Flow { ports, begins } => (ports, begins),
            Sort::Error => return self.error_leaves(now, own, inner, packet),
            Sort::Later(f) => {
                let word = self.fragments.find(now, inner, f).ok_or(DropReason::FirewallFragment)?;
                if let Some(IpAddr::V4(a)) = word.address {
                    self.counters.translated += 1;
                    readdress(packet.octets_mut(), 0, inner, PacketEnd::Source, a, None);
                }
                return Ok(());
            }
        };
        let key = key_of(inner.source, inner.destination, ports, inner.protocol);
        let at = match self.standing(now, &key) {
            Some(at) => self.go_on(now, at, inner, packet, true),
            None if !begins => return Err(DropReason::FirewallState),
            None => {
                if !self.between_ues && self.is_of_ues(key.remote) {
                    return Err(DropReason::FirewallBetweenUes);
                }
                self.judge(ACCESS, inner, inner.source, inner.ports()).unwrap_or(Ok(()))?;
                let inside = match own {
                    Some(ue) => Some(Inside {
                        ue,
                        port: key.ue_port,
                        kind: MappedProtocol::of(key.protocol).ok_or(DropReason::NatProtocol)?,
                    }),
                    None => None,
                };
                self.begin(now, key, session, inside, tcp_flags(inner, packet.octets()), true)?
            }
        };
        let outside = self.outside(at);
        if let Some(f) = Fragment::of(packet.octets(), inner) {
            let address = outside.map(|(a, _)| IpAddr::V4(a));
            self.fragments.passed(now, inner, f, session, Word { address });
        }
        if let Some((address, port)) = outside {
            self.counters.translated += 1;
            readdress(packet.octets_mut(), 0, inner, PacketEnd::Source, address, Some(port));
        }
        Ok(())
    }

    /// The outside address and port of a flow, if it is translated.
    fn outside(&self, at: u32) -> Option<(Ipv4Addr, u16)> {
        let mapping = self.flows.get(at)?.mapping;
        self.mappings.as_ref().filter(|_| mapping != NIL)?.outside(mapping)
    }

    /// The UE of a packet from outside, by its destination address, or by the mapping if that is translated.
    pub(super) fn ue_of(&self, now: Instant, inner: &InnerPacket, p: &[u8]) -> Behind {
        let itself = Behind::Ue(inner.destination);
        let (Some(m), IpAddr::V4(to)) = (&self.mappings, inner.destination) else { return itself };
        if !m.holds(to) {
            return itself;
        }
        let (kind, port, no_ue) = match sort(inner, p, false) {
            Err(reason) => return Behind::NoUe(reason),
            Ok(Sort::Later(f)) => {
                let word = self.fragments.find(now, inner, f);
                return word.and_then(|w| w.address).map_or(Behind::Unknown, Behind::Ue);
            }
            Ok(Sort::Flow { ports, .. }) => match MappedProtocol::of(inner.protocol) {
                Some(kind) => (kind, ports.1, DropReason::FirewallUnasked),
                None => return Behind::NoUe(DropReason::NatProtocol),
            },
            Ok(Sort::Error) => {
                let about = ErrorSubject::of(inner, p)
                    .and_then(|a| Some((MappedProtocol::of(a.inner.protocol)?, a.ports.0)));
                let Some((kind, port)) = about else { return Behind::NoUe(DropReason::FirewallState) };
                (kind, port, DropReason::FirewallState)
            }
        };
        match (m.shard_of(port), m.behind(to, kind, port)) {
            (Some(shard), _) => Behind::Shard(shard),
            (None, Some((_, inside))) => Behind::Ue(inside.ue.into()),
            (None, None) => Behind::NoUe(no_ue),
        }
    }

    /// A packet comes from the data network for a UE of this session, whose address [`Self::ue_of`] has returned. Returns the packet as
    /// translated.
    pub(super) fn enter(
        &mut self,
        now: Instant,
        session: u32,
        ue: IpAddr,
        inner: &InnerPacket,
        packet: &mut Packet,
    ) -> Result<InnerPacket, DropReason> {
        self.sweep(now, SWEPT_BY_PACKET);
        let translated = ue != inner.destination;
        let (ports, begins) = match sort(inner, packet.octets(), false)? {
            Sort::Flow { ports, begins } => (ports, begins),
            Sort::Error => return self.error_enters(now, ue, inner, packet),
            Sort::Later(f) => {
                self.fragments.find(now, inner, f).ok_or(DropReason::FirewallFragment)?;
                return Ok(self.readdressed(ue, None, inner, packet));
            }
        };
        let behind = match (inner.destination, MappedProtocol::of(inner.protocol)) {
            (IpAddr::V4(to), Some(kind)) if translated => {
                self.mappings.as_ref().and_then(|m| m.behind(to, kind, ports.1))
            }
            _ => None,
        };
        if translated && behind.is_none() {
            return Err(DropReason::FirewallUnasked);
        }
        let own_port = behind.map_or(ports.1, |(_, inside)| inside.port);
        let key = key_of(ue, inner.source, (own_port, ports.0), inner.protocol);
        match self.standing(now, &key) {
            // A host that sends to the UE's inside address cannot have seen the flow.
            Some(at) if self.flows.get(at).is_some_and(|f| f.mapping != behind.map_or(NIL, |(m, _)| m)) => {
                return Err(DropReason::FirewallUnasked);
            }
            Some(at) => self.go_on(now, at, inner, packet, false),
            None => {
                let gone = |m: &Mappings| behind.is_some_and(|(_, inside)| m.find(&inside).is_none());
                if self.mappings.as_ref().is_some_and(gone) {
                    return Err(DropReason::FirewallUnasked); // the mapping has just ended with its last flow
                }
                let rule_ports = inner.ports().map(|(from, _)| (from, own_port));
                let reachable = behind.is_some() && self.mappings.as_ref().is_some_and(|m| m.reachable);
                let unasked = if reachable { Ok(()) } else { Err(DropReason::FirewallUnasked) };
                self.judge(CORE, inner, ue, rule_ports).unwrap_or(unasked)?;
                if !begins {
                    return Err(DropReason::FirewallState);
                }
                let inside = behind.map(|(_, inside)| inside);
                self.begin(now, key, session, inside, tcp_flags(inner, packet.octets()), false)?
            }
        };
        if let Some(f) = Fragment::of(packet.octets(), inner) {
            self.fragments.passed(now, inner, f, session, Word { address: Some(ue) });
        }
        Ok(self.readdressed(ue, behind.map(|(_, inside)| inside.port), inner, packet))
    }

    /// Replaces the destination by the UE's address and port.
    fn readdressed(
        &mut self,
        ue: IpAddr,
        port: Option<u16>,
        inner: &InnerPacket,
        packet: &mut Packet,
    ) -> InnerPacket {
        let IpAddr::V4(to) = ue else { return *inner };
        if ue == inner.destination {
            return *inner;
        }
        self.counters.translated += 1;
        readdress(packet.octets_mut(), 0, inner, PacketEnd::Destination, to, port);
        // It was a packet before, and is one with another destination.
        InnerPacket::parse(packet.octets()).unwrap_or(*inner)
    }

    /// The rules' verdict on a packet that would start a flow; `None`: no rule matches.
    fn judge(
        &mut self,
        side: u8,
        inner: &InnerPacket,
        ue: IpAddr,
        ports: Option<(u16, u16)>,
    ) -> Option<Result<(), DropReason>> {
        if self.permits.is_empty() {
            return None;
        }
        let flow = if side == ACCESS { inner.uplink() } else { inner.downlink() };
        let packed = PacketKey::new(&Fields {
            remote: flow.remote,
            local: ue,
            ports: if side == ACCESS { flow.ports } else { ports },
            protocol: flow.protocol,
            tos: flow.tos,
            flow_label: flow.flow_label,
            spi: flow.spi,
            teid: None,
            f_teid_address: 0,
            qfi: None,
            source_interface: side,
            interface_type: None,
            network_instance: 0,
            traffic_endpoint: None,
            application: None,
        });
        let place = self.rules.lookup(&packed)?.precedence() as usize;
        if let Some(n) = self.counters.rules.get_mut(place) {
            *n += 1;
        }
        let permits = self.permits.get(place).copied().unwrap_or(false);
        Some(if permits { Ok(()) } else { Err(DropReason::FirewallDenied) })
    }

    fn is_of_ues(&self, remote: u128) -> bool {
        self.ues.iter().any(|(first, prefix)| {
            let mask = u128::MAX.checked_shl(128 - u32::from(*prefix)).unwrap_or(0);
            (remote ^ first) & mask == 0
        })
    }

    /// Starts a flow, translated if `inside` is given; evicts others if there is no room.
    fn begin(
        &mut self,
        now: Instant,
        key: FlowEndpoints,
        session: u32,
        inside: Option<Inside>,
        flags: u8,
        from_ue: bool,
    ) -> Result<u32, DropReason> {
        // Keeps the mapping of this flow while others are evicted.
        let found = inside.and_then(|i| self.mappings.as_ref()?.find(&i));
        self.hold(found);
        if self.flows.of_session(session) >= self.flows_per_ue
            && let Some(oldest) = self.flows.oldest_of(session)
        {
            self.evict(oldest);
        }
        if self.flows.is_full() {
            let largest = self.flows.largest(session);
            if let Some(oldest) = self.flows.oldest_of(largest) {
                self.evict(oldest);
            }
        }
        let mapping = match (found, inside) {
            (Some(found), _) => found,
            (None, Some(inside)) => {
                let made = self.mapping(inside, session)?;
                self.hold(Some(made));
                made
            }
            (None, None) => NIL,
        };
        let tcp = if key.protocol == protocol::TCP { Tcp::begin(flags, from_ue) } else { Tcp::default() };
        let class = class_of(key.protocol, tcp);
        // There is room after the eviction.
        let at = self.flows.begin(now, key, class, session, mapping, tcp).ok_or(DropReason::FirewallState)?;
        self.counters.flows_begun += 1;
        self.count_standing();
        Ok(at)
    }

    /// A flow has a mapping.
    fn hold(&mut self, mapping: Option<u32>) {
        if let (Some(m), Some(at)) = (&mut self.mappings, mapping) {
            m.begin(at);
        }
    }

    /// A new mapping for a UE's port. A UE at its limit gives up the port that it used longest ago; where its outside address has none that is free, the
    /// UE with most ports there does.
    fn mapping(&mut self, inside: Inside, session: u32) -> Result<u32, DropReason> {
        if self.mappings.as_ref().is_some_and(|m| m.has_all(session)) {
            self.give_up_port(session, None);
        }
        if let Some(m) = &mut self.mappings {
            m.settle(&inside, session);
        }
        if let Some(made) = self.mappings.as_mut().and_then(|m| m.add(inside, session)) {
            return Ok(made);
        }
        let largest = self.mappings.as_mut().map(|m| m.largest(session, inside.kind));
        if largest.is_some_and(|largest| self.give_up_port(largest, Some(inside.kind))) {
            self.counters.ports_given_up += 1;
        }
        self.mappings.as_mut().and_then(|m| m.add(inside, session)).ok_or(DropReason::NatNoPort)
    }

    /// Ends the flows of a session that were idle longest, until one of its ports is free. Each flow that ends here has begun once, so that the flows of one
    /// UE, which are bounded, bound the work of one packet, and what began them that of all.
    fn give_up_port(&mut self, session: u32, kind: Option<MappedProtocol>) -> bool {
        let ports = self.counters.ports;
        while self.counters.ports == ports {
            let Some(oldest) = self.flows.oldest_with_port(session, kind) else { return false };
            self.evict(oldest);
        }
        true
    }

    fn evict(&mut self, at: u32) {
        self.counters.flows_evicted += 1;
        self.end(at);
    }

    /// A packet of an existing flow passes; returns the flow.
    fn go_on(&mut self, now: Instant, at: u32, inner: &InnerPacket, packet: &Packet, from_ue: bool) -> u32 {
        let Some(flow) = self.flows.get_mut(at) else { return at };
        if inner.protocol == protocol::TCP {
            flow.tcp = flow.tcp.after(tcp_flags(inner, packet.octets()), from_ue);
        }
        let class = class_of(inner.protocol, flow.tcp);
        self.flows.touch(now, at, class);
        at
    }

    /// RFC 5508 §4.2: a UE's error about a packet that it got.
    fn error_leaves(
        &mut self,
        now: Instant,
        own: Option<Ipv4Addr>,
        inner: &InnerPacket,
        packet: &mut Packet,
    ) -> Result<(), DropReason> {
        let about = ErrorSubject::of(inner, packet.octets()).ok_or(DropReason::FirewallState)?;
        let ports = (about.ports.1, about.ports.0);
        let key = key_of(about.inner.destination, about.inner.source, ports, about.inner.protocol);
        let at = self.standing(now, &key).ok_or(DropReason::FirewallState)?;
        if let Some((address, port)) = self.outside(at) {
            self.counters.translated += 1;
            let p = packet.octets_mut();
            readdress(p, about.begins_at, &about.inner, PacketEnd::Destination, address, Some(port));
            sum_icmp(p, inner.payload_at);
            // The error is from a router behind the UE.
            if own.is_some() {
                readdress(p, 0, inner, PacketEnd::Source, address, None);
            }
        }
        Ok(())
    }

    /// RFC 5508 §4.2: an error about a packet that a UE sent, from a router or the destination.
    fn error_enters(
        &mut self,
        now: Instant,
        ue: IpAddr,
        inner: &InnerPacket,
        packet: &mut Packet,
    ) -> Result<InnerPacket, DropReason> {
        let about = ErrorSubject::of(inner, packet.octets()).ok_or(DropReason::FirewallState)?;
        let translated = ue != inner.destination;
        let mapped = match (about.inner.source, MappedProtocol::of(about.inner.protocol), &self.mappings) {
            (IpAddr::V4(from), Some(kind), Some(m)) if translated => m.behind(from, kind, about.ports.0),
            _ => None,
        };
        let own_port = match mapped {
            Some((_, inside)) if IpAddr::V4(inside.ue) == ue => inside.port,
            _ if translated || about.inner.source != ue => return Err(DropReason::FirewallState),
            _ => about.ports.0,
        };
        let ports = (own_port, about.ports.1);
        let key = key_of(ue, about.inner.destination, ports, about.inner.protocol);
        let at = self.standing(now, &key).ok_or(DropReason::FirewallState)?;
        if self.outside(at).is_some() != translated {
            return Err(DropReason::FirewallState);
        }
        if let (IpAddr::V4(own), true) = (ue, translated) {
            let p = packet.octets_mut();
            readdress(p, about.begins_at, &about.inner, PacketEnd::Source, own, Some(own_port));
            sum_icmp(p, inner.payload_at);
        }
        Ok(self.readdressed(ue, None, inner, packet))
    }
}

/// The packet that an ICMP error is about, whose end may be missing.
struct ErrorSubject {
    inner: InnerPacket,
    begins_at: usize,
    ports: (u16, u16),
}

impl ErrorSubject {
    /// `None` where it cannot be read: its headers are cut, it is a later fragment, or the error's checksum is wrong (RFC 5508
    /// §4.1).
    fn of(error: &InnerPacket, p: &[u8]) -> Option<Self> {
        let begins_at = error.payload_at + 8;
        let message = p.get(error.payload_at..)?;
        if error.protocol == protocol::ICMP && checksum(message) != 0 {
            return None;
        }
        let about = p.get(begins_at..)?;
        let inner = InnerPacket::parse_cut(about)?;
        if inner.source.is_ipv4() != error.source.is_ipv4() {
            return None;
        }
        let query = |p: &[u8]| Some((*p.get(inner.payload_at)?, identifier(&inner, p)?));
        let ports = match inner.protocol {
            protocol::TCP | protocol::UDP | protocol::SCTP => inner.ports()?,
            protocol::ICMP | protocol::ICMPV6 => {
                let (kind, id) = query(about)?;
                matches!(
                    kind,
                    icmp::ECHO | icmp::ECHO_REPLY | icmp::TIMESTAMP | icmp::V6_ECHO | icmp::V6_ECHO_REPLY
                )
                .then_some((id, id))?
            }
            _ if Fragment::of(about, &inner).is_some_and(|f| !f.is_first) => return None,
            _ => (0, 0),
        };
        Some(Self { inner, begins_at, ports })
    }
}

/// Ports are the UE's and the far end's; of ICMP both are the identifier, and the key has it once.
fn key_of(ue: IpAddr, remote: IpAddr, ports: (u16, u16), p: u8) -> FlowEndpoints {
    let remote_port = if matches!(p, protocol::ICMP | protocol::ICMPV6) { 0 } else { ports.1 };
    FlowEndpoints { ue: wide(ue), remote: wide(remote), ue_port: ports.0, remote_port, protocol: p }
}

fn class_of(p: u8, tcp: Tcp) -> FlowClass {
    match p {
        protocol::UDP => FlowClass::Udp,
        protocol::TCP if tcp.lasts() => FlowClass::Tcp,
        protocol::TCP => FlowClass::TcpTransitory,
        protocol::ICMP | protocol::ICMPV6 => FlowClass::Icmp,
        _ => FlowClass::Other,
    }
}

/// The identifier of an ICMP query.
fn identifier(inner: &InnerPacket, p: &[u8]) -> Option<u16> {
    let at = inner.payload_at + 4;
    p.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

/// The flags of a TCP segment; none for other protocols.
fn tcp_flags(inner: &InnerPacket, p: &[u8]) -> u8 {
    p.get(inner.payload_at + 13).copied().unwrap_or(0)
}

/// Classifies a packet. Errors: a truncated transport header.
fn sort(inner: &InnerPacket, p: &[u8], from_ue: bool) -> Result<Sort, DropReason> {
    if let Some(f) = Fragment::of(p, inner)
        && !f.is_first
    {
        return Ok(Sort::Later(f));
    }
    if inner.octets.saturating_sub(inner.payload_at) < transport_octets_min(inner.protocol) {
        return Err(DropReason::InnerMalformed);
    }
    let of_ports = |begins| match inner.ports() {
        Some(ports) => Ok(Sort::Flow { ports, begins }),
        None => Err(DropReason::InnerMalformed),
    };
    let query = |begins| {
        let id = identifier(inner, p).ok_or(DropReason::InnerMalformed)?;
        Ok(Sort::Flow { ports: (id, id), begins })
    };
    match inner.protocol {
        protocol::TCP => of_ports(Tcp::may_begin(tcp_flags(inner, p), from_ue)),
        protocol::UDP | protocol::SCTP => of_ports(true),
        protocol::ICMP => match p.get(inner.payload_at).copied().unwrap_or(0) {
            icmp::ECHO | icmp::TIMESTAMP => query(true),
            icmp::ECHO_REPLY | icmp::TIMESTAMP_REPLY => query(false),
            kind if icmp::ERRORS.contains(&kind) => Ok(Sort::Error),
            _ => Err(DropReason::FirewallState),
        },
        protocol::ICMPV6 => match p.get(inner.payload_at).copied().unwrap_or(0) {
            icmp::V6_ECHO => query(true),
            icmp::V6_ECHO_REPLY => query(false),
            kind if icmp::V6_ERRORS.contains(&kind) => Ok(Sort::Error),
            _ => Err(DropReason::FirewallState),
        },
        _ => Ok(Sort::Flow { ports: (0, 0), begins: true }),
    }
}
