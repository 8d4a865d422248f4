//! Firewall and address translation as simply as possible: everything is a list that is searched.

use std::net::{IpAddr, Ipv4Addr};

use whimbrel_user::DropReason;

use super::packets::*;

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Dropped(DropReason),
    /// It passes as this.
    Passed(Plain),
    PassedError(Error),
    /// It passes as this but for its source port, which is an unused one.
    Mapped(Plain),
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    greeted: [bool; 2],
    parted: [bool; 2],
    reset: bool,
    open: bool,
    found: bool,
}

impl Connection {
    fn ending(&self) -> bool {
        self.reset || self.parted == [true; 2]
    }

    fn segment(&mut self, flags: u8, by: usize) {
        if flags & RST != 0 {
            self.reset = true;
        } else if flags & SYN != 0 {
            if self.ending() && flags & ACK == 0 {
                *self = Self::default();
            }
            self.greeted[by] = true;
        } else {
            self.reset = false;
            self.greeted[by] |= self.found;
            self.parted[by] |= flags & FIN != 0;
            self.open |= self.greeted == [true; 2] && flags & ACK != 0;
        }
    }
}

/// A flow, in the order of the last packets.
#[derive(Clone, Debug)]
struct Flow {
    seat: usize,
    ue: IpAddr,
    remote: IpAddr,
    protocol: u8,
    /// The UE's port or identifier, and the far end's port.
    ports: (u16, u16),
    last: u64,
    connection: Connection,
    /// The outside port.
    outside: Option<u16>,
}

impl Flow {
    fn class(&self) -> usize {
        match self.protocol {
            UDP => 0,
            TCP if self.connection.open && !self.connection.ending() => 1,
            TCP => 2,
            ICMP | ICMPV6 => 3,
            _ => 4,
        }
    }

    fn end(&self) -> u64 {
        self.last + TIMEOUTS_US[self.class()]
    }
}

/// By class: UDP, TCP, TCP in transition, ICMP, others.
pub(crate) const TIMEOUTS_US: [u64; 5] = [30_000_000, 700_000_000, 24_000_000, 6_000_000, 31_000_000];
pub(crate) const FLOWS_MAX: usize = 12;
pub(crate) const FLOWS_PER_UE: usize = 6;
pub(crate) const PORTS_PER_UE: usize = 3;
pub(crate) const RULES: [&str; 4] = [
    "deny in 17 from any to any 7",
    "deny out ip from 198.51.100.66 to assigned",
    "permit out 6 from any to assigned 443",
    "permit out 58 from 2001:db8:6:: to assigned",
];

/// What the first rule that a packet meets says.
fn rules(from_ue: bool, protocol: u8, remote: IpAddr, far_port: u16, ue_port: u16) -> Option<bool> {
    match (from_ue, protocol) {
        (true, UDP) if far_port == 7 => Some(false),
        (false, _) if remote == IpAddr::V4(Ipv4Addr::new(198, 51, 100, 66)) => Some(false),
        (false, TCP) if ue_port == 443 => Some(true),
        (false, ICMPV6) if remote.to_string() == "2001:db8:6::" => Some(true),
        _ => None,
    }
}

fn is_query(p: &Plain) -> bool {
    matches!(p.protocol, ICMP | ICMPV6)
}

/// ICMP types that stand in the upper octet of the first port.
fn answers(p: &Plain) -> bool {
    matches!((p.protocol, p.ports.0 >> 8), (ICMP, 0 | 14) | (ICMPV6, 129))
}

fn begins(p: &Plain, from_ue: bool) -> bool {
    match p.protocol {
        TCP if p.flags & (SYN | RST | FIN | ACK) == SYN => true,
        TCP => from_ue && p.flags & (SYN | RST | FIN | ACK) == ACK,
        _ => !answers(p),
    }
}

/// Later fragments that are awaited: source, destination, protocol, identification, until when, the address to be written, the seat.
type Awaited = (IpAddr, IpAddr, u8, u16, u64, Option<IpAddr>, usize);

#[derive(Default)]
pub(crate) struct Model {
    flows: Vec<Flow>,
    fragments: Vec<Awaited>,
    /// Outside addresses by seat.
    pub(crate) outside: [Option<Ipv4Addr>; 8],
    pub(crate) own: [Option<Ipv4Addr>; 8],
    /// The session's number at the UPF.
    pub(crate) number: [u32; 8],
    reachable: bool,
    between_ues: bool,
    pool: Vec<Ipv4Addr>,
    flows_max: usize,
}

impl Model {
    pub(crate) fn new(reachable: bool, between_ues: bool, pool: &[Ipv4Addr], flows_max: usize) -> Self {
        Self { reachable, between_ues, flows_max, pool: pool.into(), ..Self::default() }
    }

    pub(crate) fn sweep(&mut self, now: u64) {
        self.flows.retain(|f| now < f.end());
        self.fragments.retain(|f| now < f.4);
    }

    pub(crate) fn forget(&mut self, seat: usize) {
        self.flows.retain(|f| f.seat != seat);
        self.fragments.retain(|f| f.6 != seat);
    }

    /// Outside ports in use: seat, protocol, UE's port, outside port.
    pub(crate) fn mapped(&self) -> Vec<(usize, u8, u16, u16)> {
        let mut all: Vec<_> =
            self.flows.iter().filter_map(|f| Some((f.seat, f.protocol, f.ports.0, f.outside?))).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    fn find(&self, ue: IpAddr, remote: IpAddr, protocol: u8, ports: (u16, u16)) -> Option<usize> {
        let is = |f: &Flow| (f.ue, f.remote, f.protocol, f.ports) == (ue, remote, protocol, ports);
        self.flows.iter().position(is)
    }

    /// Moves a flow behind all others.
    fn touch(&mut self, at: usize, now: u64, flags: u8, by: usize) {
        let mut flow = self.flows.remove(at);
        flow.last = now;
        flow.connection.segment(flags, by);
        self.flows.push(flow);
    }

    /// Makes room for one more flow of a seat; then for a port.
    fn make_room(&mut self, seat: usize) {
        if self.flows.iter().filter(|f| f.seat == seat).count() >= FLOWS_PER_UE {
            let at = self.flows.iter().position(|f| f.seat == seat).unwrap();
            self.flows.remove(at);
        }
        if self.flows.len() >= self.flows_max {
            // The UE with most flows loses its oldest: its own seat, else that of the lowest number.
            let of = |seat: usize| self.flows.iter().filter(|f| f.seat == seat).count();
            let most = self.flows.iter().map(|f| of(f.seat)).max().unwrap();
            let largest = self.flows.iter().map(|f| f.seat).filter(|s| of(*s) == most);
            let largest =
                if of(seat) == most { seat } else { largest.min_by_key(|s| self.number[*s]).unwrap() };
            let at = self.flows.iter().position(|f| f.seat == largest).unwrap();
            self.flows.remove(at);
        }
    }

    /// A UE that has all its ports gives up those that it used longest ago.
    fn give_up_port(&mut self, seat: usize) {
        while self.mapped().into_iter().filter(|m| m.0 == seat).count() >= PORTS_PER_UE {
            let at = self.flows.iter().position(|f| f.seat == seat && f.outside.is_some()).unwrap();
            self.flows.remove(at);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a flow's parts")]
    fn begin(
        &mut self,
        now: u64,
        seat: usize,
        (ue, remote): (IpAddr, IpAddr),
        protocol: u8,
        ports: (u16, u16),
        flags: u8,
        by: usize,
        outside: Option<u16>,
    ) {
        let mut connection = Connection { found: flags & SYN == 0, ..Connection::default() };
        connection.segment(flags, by);
        self.flows.push(Flow { seat, ue, remote, protocol, ports, last: now, connection, outside });
    }

    /// A UE sends it. After [`Fate::Mapped`], [`Self::mapped_to`] says which port it got.
    pub(crate) fn leaves(&mut self, now: u64, seat: usize, p: &Plain) -> Fate {
        let translated = p.source.is_ipv4().then_some(self.outside[seat]).flatten();
        if let Part::Later(id) = p.part {
            let is = |f: &&Awaited| (f.0, f.1, f.2, f.3) == (p.source, p.destination, p.protocol, id);
            return match self.fragments.iter().find(is) {
                Some(f) => Fate::Passed(Plain { source: f.5.unwrap_or(p.source), ..p.clone() }),
                None => Fate::Dropped(DropReason::FirewallFragment),
            };
        }
        let ports = if is_query(p) { (p.ports.1, 0) } else { p.ports };
        let mut mapped = None;
        match self.find(p.source, p.destination, p.protocol, ports) {
            Some(at) => {
                mapped = self.flows[at].outside;
                self.touch(at, now, p.flags, 0);
            }
            None if !begins(p, true) => return Fate::Dropped(DropReason::FirewallState),
            None => {
                let to_ue = match p.destination {
                    IpAddr::V4(a) => self.pool.contains(&a) || a.octets()[..2] == [10, 45],
                    IpAddr::V6(a) => a.segments()[..3] == [0x2001, 0xdb8, 0x45],
                };
                if to_ue && !self.between_ues {
                    return Fate::Dropped(DropReason::FirewallBetweenUes);
                }
                if rules(true, p.protocol, p.destination, p.ports.1, p.ports.0) == Some(false) {
                    return Fate::Dropped(DropReason::FirewallDenied);
                }
                if translated.is_some() && !matches!(p.protocol, TCP | UDP | ICMP) {
                    return Fate::Dropped(DropReason::NatProtocol);
                }
                if translated.is_some() {
                    let mine =
                        self.mapped().into_iter().find(|m| (m.0, m.1, m.2) == (seat, p.protocol, ports.0));
                    mapped = mine.map(|m| m.3);
                }
                self.make_room(seat);
                if translated.is_some() && mapped.is_none() {
                    self.give_up_port(seat);
                }
                // Zero until it is known.
                let outside = translated.map(|_| mapped.unwrap_or(0));
                self.begin(now, seat, (p.source, p.destination), p.protocol, ports, p.flags, 0, outside);
            }
        }
        let is_new = self.flows.last().is_some_and(|f| f.outside == Some(0));
        // A flow that began from outside by the UE's own address is not translated.
        let translated = translated.filter(|_| is_new || mapped.is_some());
        if let Part::First(id) = p.part {
            self.fragments.retain(|f| (f.0, f.1, f.2, f.3) != (p.source, p.destination, p.protocol, id));
            let source = translated.map(IpAddr::V4);
            self.fragments.push((p.source, p.destination, p.protocol, id, now + 60_000_000, source, seat));
        }
        let Some(outside) = translated else { return Fate::Passed(p.clone()) };
        let mut p = Plain { source: outside.into(), ..p.clone() };
        let Some(port) = mapped else { return Fate::Mapped(p) };
        *own_port(&mut p, true) = port;
        Fate::Passed(p)
    }

    /// The port that the last packet got.
    pub(crate) fn mapped_to(&mut self, port: u16) {
        let flow = self.flows.last_mut().expect("a flow");
        let (seat, protocol, from) = (flow.seat, flow.protocol, flow.ports.0);
        flow.outside = None;
        let outside = self.outside[seat];
        let taken =
            self.mapped().into_iter().any(|m| (m.1, m.3) == (protocol, port) && self.outside[m.0] == outside);
        assert!(!taken, "two UEs have port {port}");
        assert!(port >= 1024);
        assert!(protocol != UDP || port % 2 == from % 2, "{from} became {port}");
        self.flows.last_mut().expect("a flow").outside = Some(port);
    }

    /// The first fragment that went out with a new port: the later ones get the same address.
    pub(crate) fn first_fragment_went_out_as(&mut self, is: &Plain, was: &Plain) {
        let Part::First(id) = was.part else { return };
        let of_it = (was.source, was.destination, was.protocol, id);
        for f in self.fragments.iter_mut().filter(|f| (f.0, f.1, f.2, f.3) == of_it) {
            f.5 = Some(is.source);
        }
    }

    /// Whose an outside port is: seat and the UE's port.
    fn behind(&self, to: IpAddr, protocol: u8, port: u16) -> Option<(usize, u16)> {
        let is = |m: &(usize, u8, u16, u16)| {
            self.outside[m.0].map(IpAddr::V4) == Some(to) && (m.1, m.3) == (protocol, port)
        };
        self.mapped().into_iter().find(is).map(|m| (m.0, m.2))
    }

    /// It comes from outside; `seat` is the UE's whose address it has, if any.
    pub(crate) fn enters(&mut self, now: u64, seat: Option<usize>, p: &Plain) -> Fate {
        let to_pool = matches!(p.destination, IpAddr::V4(a) if self.pool.contains(&a));
        if let Part::Later(id) = p.part {
            let is = |f: &&Awaited| (f.0, f.1, f.2, f.3) == (p.source, p.destination, p.protocol, id);
            return match self.fragments.iter().find(is) {
                Some(f) => Fate::Passed(Plain { destination: f.5.unwrap(), ..p.clone() }),
                None => Fate::Dropped(DropReason::FirewallFragment),
            };
        }
        if to_pool && !matches!(p.protocol, TCP | UDP | ICMP) {
            return Fate::Dropped(DropReason::NatProtocol);
        }
        let behind = self.behind(p.destination, p.protocol, p.ports.1).filter(|_| to_pool);
        let Some(seat) = behind.map(|b| b.0).or(seat.filter(|_| !to_pool)) else {
            return Fate::Dropped(DropReason::FirewallUnasked);
        };
        let ue = behind.map_or(p.destination, |(seat, _)| IpAddr::V4(self.own[seat].unwrap()));
        let own = behind.map_or(p.ports.1, |b| b.1);
        let far = if is_query(p) { 0 } else { p.ports.0 };
        match self.find(ue, p.source, p.protocol, (own, far)) {
            Some(at) if self.flows[at].outside.is_some() != to_pool => {
                return Fate::Dropped(DropReason::FirewallUnasked);
            }
            Some(at) => self.touch(at, now, p.flags, 1),
            None => {
                match rules(false, p.protocol, p.source, p.ports.0, own) {
                    Some(false) => return Fate::Dropped(DropReason::FirewallDenied),
                    None if !(to_pool && self.reachable) => {
                        return Fate::Dropped(DropReason::FirewallUnasked);
                    }
                    _ => {}
                }
                if !begins(p, false) {
                    return Fate::Dropped(DropReason::FirewallState);
                }
                let outside = to_pool.then_some(p.ports.1);
                self.make_room(seat);
                self.begin(now, seat, (ue, p.source), p.protocol, (own, far), p.flags, 1, outside);
            }
        }
        if let Part::First(id) = p.part {
            self.fragments.retain(|f| (f.0, f.1, f.2, f.3) != (p.source, p.destination, p.protocol, id));
            self.fragments.push((p.source, p.destination, p.protocol, id, now + 60_000_000, Some(ue), seat));
        }
        let mut p = Plain { destination: ue, ..p.clone() };
        *own_port(&mut p, false) = own;
        Fate::Passed(p)
    }

    /// A UE's error about a packet that it got.
    pub(crate) fn error_leaves(&mut self, seat: usize, e: &Error) -> Fate {
        let a = &e.about;
        let ports = if is_query(a) { (a.ports.1, 0) } else { (a.ports.1, a.ports.0) };
        let Some(at) = self.find(a.destination, a.source, a.protocol, ports) else {
            return Fate::Dropped(DropReason::FirewallState);
        };
        let mut e = e.clone();
        if let (Some(port), Some(outside)) = (self.flows[at].outside, self.outside[seat]) {
            (e.source, e.about.destination) = (outside.into(), outside.into());
            *own_port(&mut e.about, false) = port;
        }
        Fate::PassedError(e)
    }

    /// An error from outside.
    pub(crate) fn error_enters(&mut self, e: &Error) -> Fate {
        let a = &e.about;
        let to_pool = matches!(e.destination, IpAddr::V4(a) if self.pool.contains(&a));
        let own_outside = if is_query(a) { a.ports.1 } else { a.ports.0 };
        let unknown = Fate::Dropped(DropReason::FirewallState);
        let (ue, own) = if to_pool {
            // The error is for the address from which its packet came.
            match self.behind(e.destination, a.protocol, own_outside).filter(|_| a.source == e.destination) {
                Some((seat, own)) => (IpAddr::V4(self.own[seat].unwrap()), own),
                None => return unknown,
            }
        } else if a.source == e.destination {
            (a.source, own_outside)
        } else {
            return unknown;
        };
        let far = if is_query(a) { 0 } else { a.ports.1 };
        match self.find(ue, a.destination, a.protocol, (own, far)) {
            Some(at) if self.flows[at].outside.is_some() == to_pool => {
                let mut e = e.clone();
                if to_pool {
                    (e.destination, e.about.source) = (ue, ue);
                    *own_port(&mut e.about, true) = own;
                }
                Fate::PassedError(e)
            }
            _ => unknown,
        }
    }
}

/// The port or identifier that is translated: of the source, or the destination.
pub(crate) fn own_port(p: &mut Plain, of_source: bool) -> &mut u16 {
    if of_source && !is_query(p) { &mut p.ports.0 } else { &mut p.ports.1 }
}
