//! Firewall and address translation, packet for packet against a simple model.

use super::common;
mod model;
mod packets;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use common::*;
use model::*;
use packets::*;
use proptest::prelude::*;
use whimbrel_ids::Instant;
use whimbrel_user::*;

const POOL: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 100), Ipv4Addr::new(192, 0, 2, 101)];
const SEATS: usize = 3;

fn firewall(reachable: bool, between_ues: bool, flows_max: u32) -> Firewall {
    let [udp, tcp, tcp_transitory, icmp, other] = TIMEOUTS_US.map(Duration::from_micros);
    Firewall {
        rules: RULES.map(|r| r.parse().unwrap()).into(),
        between_ues,
        flows_max,
        flows_per_ue: FLOWS_PER_UE as u16,
        timeouts: Timeouts { udp, tcp, tcp_transitory, icmp, other },
        nat: Some(Nat {
            pools: vec![Ipv4Net { address: POOL[0], prefix: 31 }],
            ports_per_ue: PORTS_PER_UE as u16,
            reachable,
        }),
    }
}

/// A UPF with a firewall, and the model beside it.
struct Both {
    net: Net,
    model: Model,
    shards: u8,
    seats: [Option<Session>; SEATS],
    next_seid: u64,
    /// The last first fragment that passed: by which UE it was sent, if by one.
    first: Option<(Option<usize>, Plain)>,
}

/// A random choice.
struct Dice(u64);

impl Dice {
    fn next(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.next(all.len())].clone()
    }
}

fn remotes(six: bool) -> Vec<IpAddr> {
    let all = if six { ["2001:db8:5::", "2001:db8:6::"] } else { ["198.51.100.1", "198.51.100.66"] };
    all.map(|a| a.parse().unwrap()).into()
}

/// What stands for ports: an ICMP query has its type and an identifier, GRE nothing.
fn ends(p: &Plain, identifier: u16, ports: (u16, u16)) -> (u16, u16) {
    match p.protocol {
        ICMP | ICMPV6 => (p.ports.0, identifier),
        TCP | UDP => ports,
        _ => (0, 0),
    }
}

impl Both {
    fn new(reachable: bool, between_ues: bool) -> Self {
        Self::with(reachable, between_ues, 1)
    }

    /// Where there are several shards, each has its part of the flows: here more than are used.
    fn with(reachable: bool, between_ues: bool, shards: u8) -> Self {
        let flows_max = if shards == 1 { model::FLOWS_MAX } else { 10_000 };
        let mut config = Config { shards, ..config() };
        config.data_networks[0].firewall = Some(firewall(reachable, between_ues, flows_max as u32));
        config.isolation.ue_to_ue = true; // that is the firewall's to judge here
        let model = Model::new(reachable, between_ues, &POOL, flows_max);
        let mut both = Self {
            net: Net::with(config),
            model,
            shards,
            seats: [const { None }; SEATS],
            next_seid: 1,
            first: None,
        };
        (0..SEATS).for_each(|at| both.sit(at));
        both
    }

    fn sit(&mut self, at: usize) {
        let session = self.net.session(self.next_seid, true, true);
        self.next_seid += 1;
        self.model.own[at] = session.ipv4;
        self.model.number[at] = session.id().index;
        self.model.outside[at] = None;
        self.seats[at] = Some(session);
    }

    fn session(&self, at: usize) -> &Session {
        self.seats[at].as_ref().unwrap()
    }

    fn address(&self, at: usize, six: bool) -> IpAddr {
        let s = self.session(at);
        match six {
            true => Ipv6Addr::from_bits(s.ipv6.unwrap().to_bits() | 5).into(),
            false => s.ipv4.unwrap().into(),
        }
    }

    fn random(&self, dice: &mut Dice, source: IpAddr, destination: IpAddr) -> Plain {
        let six = source.is_ipv6();
        let icmp = if six { ICMPV6 } else { ICMP };
        let protocol = dice.of(&[UDP, UDP, TCP, TCP, TCP, icmp, 47]);
        let kinds: [u16; 2] = if six { [128, 129] } else { [8, 0] };
        let part =
            dice.of(&[Part::Whole, Part::Whole, Part::Whole, Part::First(1), Part::Later(1), Part::Later(2)]);
        Plain {
            source,
            destination,
            protocol,
            ports: (dice.of(&kinds) << 8, 0),
            flags: dice.of(&[SYN, SYN | ACK, ACK, ACK, FIN | ACK, RST]),
            payload: [0, 8, 33][dice.next(3)] & !(if part == Part::Whole { 0 } else { 7 }),
            part,
            unsummed: !six && dice.next(3) == 0,
        }
    }

    fn ue_sends(&mut self, dice: &mut Dice) -> Fate {
        let (at, six) = (dice.next(SEATS), dice.next(3) == 0);
        let mut to = remotes(six);
        to.push(if six { self.address(dice.next(SEATS), true) } else { dice.of(&POOL).into() });
        let (source, destination) = (self.address(at, six), dice.of(&to));
        let mut p = self.random(dice, source, destination);
        let (own, far) = (dice.of(&[443, 40_000, 40_001, 40_002]), dice.of(&[80, 7]));
        p.ports = ends(&p, own, (own, far));
        self.leaves(at, &p)
    }

    fn leaves(&mut self, at: usize, p: &Plain) -> Fate {
        let now = self.net.now.0;
        if let (None, IpAddr::V4(_)) = (self.model.outside[at], p.source) {
            // A UE's outside address is the translator's choice; the first packet shows it. The model is asked for a fate only.
            self.model.outside[at] = Some(Ipv4Addr::UNSPECIFIED);
        }
        let fate = self.model.leaves(now, at, p);
        let (verdict, octets) = self.net.uplink(&self.session(at).clone(), &p.octets());
        let network = PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) });
        match &fate {
            Fate::Dropped(reason) => assert_eq!(verdict, PacketVerdict::Drop(*reason), "{p:?}"),
            Fate::Passed(is) => assert_eq!((verdict, &octets), (network, &is.octets()), "{p:?}"),
            Fate::PassedError(_) => unreachable!(),
            Fate::Mapped(is) => {
                assert_eq!(verdict, network, "{p:?}");
                let outside = Ipv4Addr::from(<[u8; 4]>::try_from(&octets[12..16]).unwrap());
                assert!(POOL.contains(&outside), "{outside}");
                let known = self.model.outside[at].filter(|a| !a.is_unspecified());
                assert!(known.is_none_or(|k| k == outside), "one outside address a UE");
                self.model.outside[at] = Some(outside);
                let port_at = if p.protocol == ICMP { 24 } else { 20 };
                let port = u16::from_be_bytes([octets[port_at], octets[port_at + 1]]);
                self.model.mapped_to(port);
                let mut is = Plain { source: outside.into(), ..is.clone() };
                *own_port(&mut is, true) = port;
                self.model.first_fragment_went_out_as(&is, p);
                assert_eq!(octets, is.octets(), "{p:?}");
            }
        }
        if let (Fate::Passed(_) | Fate::Mapped(_), Part::First(_)) = (&fate, p.part) {
            self.first = Some((Some(at), p.clone()));
        }
        fate
    }

    fn outside_sends(&mut self, dice: &mut Dice) -> Fate {
        let (at, six) = (dice.next(SEATS), dice.next(3) == 0);
        let direct = six || dice.next(6) == 0;
        let mapped = self.model.mapped();
        let mut p;
        if direct {
            let (source, destination) = (dice.of(&remotes(six)), self.address(at, six));
            p = self.random(dice, source, destination);
            let (own, far) = (dice.of(&[443, 40_000, 40_001, 40_002]), dice.of(&[80, 7]));
            p.ports = ends(&p, own, (far, own));
        } else {
            let (source, outside) = (dice.of(&remotes(false)), dice.of(&POOL));
            p = self.random(dice, source, outside.into());
            let (mut port, far) = (dice.of(&[1024, 40_000, 443]), dice.of(&[80, 7]));
            if !mapped.is_empty() && dice.next(8) != 0 {
                let (seat, protocol, _, outside) = dice.of(&mapped);
                (p.protocol, port) = (protocol, outside);
                p.destination = self.model.outside[seat].unwrap().into();
            }
            p.ports.0 = dice.of(&[0, 0, 8]) << 8;
            p.ports = ends(&p, port, (far, port));
            if self.shards > 1 {
                // Each keeps the fragments of its own UEs: one identification for two of them at once is answered by either.
                p.part = p.part.of_port(port);
            }
        }
        self.enters(direct.then_some(at), &p)
    }

    fn enters(&mut self, seat: Option<usize>, p: &Plain) -> Fate {
        let fate = self.model.enters(self.net.now.0, seat, p);
        let (verdict, octets) = self.net.downlink(&p.octets());
        match &fate {
            Fate::Dropped(reason) => assert_eq!(verdict, PacketVerdict::Drop(*reason), "{p:?}"),
            Fate::Passed(is) => {
                assert_eq!(verdict, PacketVerdict::Send(to_gnb()), "{p:?}");
                assert_eq!(at_gnb(&octets).2, is.octets(), "{p:?}");
            }
            Fate::PassedError(_) | Fate::Mapped(_) => unreachable!(),
        }
        if let (Fate::Passed(_), Part::First(_)) = (&fate, p.part) {
            self.first = Some((None, p.clone()));
        }
        fate
    }

    /// The rest of a packet whose first fragment has passed.
    fn rest(&mut self) -> Option<Fate> {
        let (by, first) = self.first.clone()?;
        let Part::First(id) = first.part else { return None };
        let later = Plain { part: Part::Later(id), ..first };
        Some(match by {
            Some(at) => self.leaves(at, &later),
            None => {
                let seat =
                    (0..SEATS).find(|at| self.address(*at, later.source.is_ipv6()) == later.destination);
                self.enters(seat, &later)
            }
        })
    }

    fn error(&mut self, dice: &mut Dice) -> Fate {
        let (at, six, from_ue) = (dice.next(SEATS), dice.next(3) == 0, dice.next(2) == 0);
        let remote = dice.of(&remotes(six));
        let router: IpAddr =
            dice.of(&[remote, if six { "2001:db8:9::9" } else { "203.0.113.9" }.parse().unwrap()]);
        let own = self.address(at, six);
        let mapped = self.model.mapped();
        let mut about = self.random(dice, own, remote);
        (about.part, about.payload) = (Part::Whole, 8);
        let (mut port, far) = (dice.of(&[443, 40_000, 40_001]), dice.of(&[80, 7]));
        let shown = if six { 1_000 } else { dice.of(&[28, 40, 1_000]) };
        let mut e = Error { source: own, destination: remote, about, shown };
        if from_ue {
            (e.about.source, e.about.destination) = (remote, own);
            e.about.ports = ends(&e.about, port, (far, port));
            let fate = self.model.error_leaves(at, &e);
            let (verdict, octets) = self.net.uplink(&self.session(at).clone(), &e.octets());
            return judged(
                fate,
                verdict,
                PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }),
                octets,
                &e,
            );
        }
        (e.source, e.destination) = (router, own);
        if !six && !mapped.is_empty() && dice.next(4) != 0 {
            let (seat, protocol, _, outside) = dice.of(&mapped);
            (e.about.protocol, port) = (protocol, outside);
            e.destination = self.model.outside[seat].unwrap().into();
            e.about.source = e.destination;
        }
        e.about.ports = ends(&e.about, port, (port, far));
        let fate = self.model.error_enters(&e);
        let (verdict, octets) = self.net.downlink(&e.octets());
        let inner = if verdict == PacketVerdict::Send(to_gnb()) { at_gnb(&octets).2 } else { octets };
        judged(fate, verdict, PacketVerdict::Send(to_gnb()), inner, &e)
    }

    fn step(&mut self, random: u64) -> Fate {
        let mut dice = Dice(random);
        let passed = dice.of(&[1, 1, 1_000, 1_000, 1_000, 500_000, 500_000, 6_000_000, 40_000_000])
            + dice.next(1_000) as u64;
        self.net.advance(Instant(self.net.now.0 + passed));
        // What is over is cleared away before the packet: what is not yet, is over all the same.
        if dice.next(2) == 0 {
            self.net.upf.u.tick(self.net.now);
        }
        self.model.sweep(self.net.now.0);
        let fate = match dice.next(40) {
            0 => {
                let at = dice.next(SEATS);
                let session = self.session(at).clone();
                self.net.delete(&session);
                self.model.forget(at);
                self.sit(at);
                self.first = None;
                return Fate::Dropped(DropReason::FirewallUnasked);
            }
            1..=4 => self.rest().unwrap_or_else(|| self.ue_sends(&mut dice)),
            5..=12 => self.error(&mut dice),
            13..=26 => self.outside_sends(&mut dice),
            _ => self.ue_sends(&mut dice),
        };
        self.net.upf.u.tick(self.net.now);
        self.net.upf.u.collect_counters();
        let counted = self.net.upf.u.counters().firewalls.remove(0);
        assert_eq!(
            (counted.flows, counted.ports),
            (self.model.len() as u64, self.model.mapped().len() as u64),
            "{fate:?}"
        );
        fate
    }
}

fn judged(fate: Fate, verdict: PacketVerdict, passes: PacketVerdict, octets: Vec<u8>, e: &Error) -> Fate {
    match &fate {
        Fate::Dropped(reason) => assert_eq!(verdict, PacketVerdict::Drop(*reason), "{e:?}"),
        Fate::PassedError(is) => assert_eq!((verdict, octets), (passes, is.octets()), "{e:?}"),
        Fate::Passed(_) | Fate::Mapped(_) => unreachable!(),
    }
    fate
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_is_what_the_model_says(
        reachable: bool,
        between_ues: bool,
        shards in prop::sample::select(vec![1, 4]),
        steps in prop::collection::vec(any::<u64>(), 1..400),
    ) {
        let mut both = Both::with(reachable, between_ues, shards);
        for random in steps {
            both.step(random);
        }
    }
}

#[test]
fn the_random_steps_reach_every_fate() {
    let mut both = [Both::new(false, false), Both::new(true, true)];
    let mut reasons = std::collections::BTreeSet::new();
    let (mut passed, mut errors, mut mapped, mut later) = (0, 0, 0, 0);
    for n in 0..40_000u64 {
        match both[n as usize % 2].step(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            Fate::Dropped(reason) => {
                reasons.insert(reason);
            }
            Fate::Passed(p) => {
                passed += 1;
                later += u32::from(matches!(p.part, Part::Later(_)));
            }
            Fate::PassedError(_) => errors += 1,
            Fate::Mapped(_) => mapped += 1,
        }
    }
    assert!(
        passed > 2_000 && errors > 100 && mapped > 1_000 && later > 100,
        "{passed} {errors} {mapped} {later}"
    );
    use DropReason::*;
    let expected =
        [FirewallDenied, FirewallUnasked, FirewallState, FirewallFragment, FirewallBetweenUes, NatProtocol];
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn packets_that_the_firewall_denies_are_not_charged() {
    let mut both = Both::new(false, true);
    let session = both.session(0).clone();
    let (source, destination) = (both.address(0, true), remotes(true)[0]);
    let to = |far| Plain {
        source,
        destination,
        protocol: UDP,
        ports: (40_000, far),
        flags: 0,
        payload: 8,
        part: Part::Whole,
        unsummed: false,
    };
    for far in [7, 80, 7] {
        both.leaves(0, &to(far));
    }
    let counters = both.net.upf.u.session_counters(session.id()).unwrap();
    assert_eq!((counters.ul_packets, counters.dropped), (1, 2));
    assert_eq!(both.net.upf.u.counters().ul_packets, 1);
    both.net.upf.u.collect_counters();
    assert_eq!(both.net.upf.u.counters().firewalls[0].rules, [2, 0, 0, 0]);
}

#[test]
fn one_ue_takes_no_more_than_its_own_and_the_network_no_more_than_all() {
    let mut both = Both::new(false, true);
    let far = remotes(true)[0];
    for at in 0..SEATS {
        for port in 0..20 {
            let source = both.address(at, true);
            let packet = Plain {
                source,
                destination: far,
                protocol: UDP,
                ports: (port, 80),
                flags: 0,
                payload: 0,
                part: Part::Whole,
                unsummed: false,
            };
            both.leaves(at, &packet);
        }
    }
    both.net.upf.u.collect_counters();
    let counted = both.net.upf.u.counters().firewalls.remove(0);
    assert_eq!((counted.flows, counted.flows_begun), (model::FLOWS_MAX as u64, 60));
    assert_eq!(counted.flows_evicted, 60 - model::FLOWS_MAX as u64);
}

/// A network whose UEs are translated to the addresses of a prefix of this length, and its first sessions.
fn translated(prefix: u8, firewall: Firewall, ues: u64) -> (Net, Vec<Session>) {
    let mut config = config();
    let pools = vec![Ipv4Net { address: Ipv4Addr::new(192, 0, 2, 96), prefix }];
    let nat = Some(Nat { pools, ports_per_ue: Nat::PORTS_PER_UE, reachable: false });
    config.data_networks[0].firewall = Some(Firewall { nat, ..firewall });
    config.data_networks[0].ipv4_pools = vec![Ipv4Net { address: Ipv4Addr::new(10, 45, 0, 0), prefix: 20 }];
    config.sessions_max = 1_000;
    let mut net = Net::with(config);
    let sessions = (1..=ues).map(|seid| net.session(seid, true, false)).collect();
    (net, sessions)
}

/// A datagram of a UE leaves from this outside address and port; `None`: it was dropped.
fn leaves_from(net: &mut Net, s: &Session, own: u16, far: u16) -> Option<(Ipv4Addr, u16)> {
    let packet = udp4(s.ipv4.unwrap(), SERVER, (own, far), 0);
    let (verdict, octets) = net.uplink(s, &packet);
    let port = u16::from_be_bytes([octets[20], octets[21]]);
    let address = Ipv4Addr::from(<[u8; 4]>::try_from(&octets[12..16]).unwrap());
    (verdict == PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) })).then_some((address, port))
}

#[test] // RFC 4787 §4.1, §4.2: ports of one outside address
fn ues_that_have_all_ports_of_an_address_give_some_up_for_one_that_has_few() {
    let (mut net, ues) = translated(32, Firewall::default(), 66);
    let (few, greedy) = ((&ues[0], &ues[1]), &ues[2..]);
    let first = leaves_from(&mut net, few.0, 5_000, 53);
    assert!(first.is_some());
    for s in greedy {
        for own in 0..Nat::PORTS_PER_UE {
            assert!(leaves_from(&mut net, s, 10_000 + own, 53).is_some(), "{own}");
        }
    }
    net.upf.u.collect_counters();
    let counted = net.upf.u.counters().firewalls.remove(0);
    assert!(counted.ports > 64_000 && counted.ports_given_up > 0, "{counted:?}");
    // The address is full. A UE with few ports gets more, and keeps those that it has while the others go on.
    let held: Vec<_> = (0..200).map(|own| leaves_from(&mut net, few.1, 20_000 + own, 53)).collect();
    assert!(held.iter().all(Option::is_some), "{held:?}");
    for s in greedy {
        for own in 0..20 {
            assert!(leaves_from(&mut net, s, 30_000 + own, 53).is_some());
        }
    }
    assert_eq!(leaves_from(&mut net, few.0, 5_000, 53), first);
    for (own, at) in (0..).zip(held) {
        assert_eq!(leaves_from(&mut net, few.1, 20_000 + own, 53), at);
    }
    assert_eq!(net.dropped(DropReason::NatNoPort), 0);
}

#[test] // RFC 4787 §4.1: paired pooling
fn ue_keeps_its_outside_address_while_it_has_ports() {
    let (mut net, ues) = translated(30, Firewall::default(), 12);
    let mut by_address = std::collections::BTreeMap::new();
    for s in &ues {
        let (address, _) = leaves_from(&mut net, s, 1, 53).unwrap();
        for own in 2..500 {
            assert_eq!(leaves_from(&mut net, s, own, 53).map(|(a, _)| a), Some(address));
        }
        *by_address.entry(address).or_insert(0) += 1;
    }
    assert!(by_address.len() > 1, "{by_address:?}");
}

#[test]
fn ues_with_most_flows_of_a_full_table_do_not_displace_the_flows_of_others() {
    let firewall = Firewall { flows_max: 256, flows_per_ue: 32, ..Firewall::default() };
    let (mut net, ues) = translated(32, firewall, 40);
    let (quiet, busy) = ues.split_at(10);
    let open = |net: &mut Net, s: &Session, n: u16| leaves_from(net, s, 4_000 + n, 53).unwrap();
    let held: Vec<_> = quiet.iter().map(|s| [open(&mut net, s, 0), open(&mut net, s, 1)]).collect();
    // Others take all the table, and go on for long.
    for round in 0..20 {
        for s in busy {
            for n in 0..32 {
                open(&mut net, s, 100 + round * 40 + n);
            }
        }
        net.advance(Instant(net.now.0 + 1_000_000));
    }
    net.upf.u.collect_counters();
    let counted = net.upf.u.counters().firewalls.remove(0);
    assert_eq!(counted.flows, 256);
    let evicted = counted.flows_evicted;
    for (s, held) in quiet.iter().zip(held) {
        assert_eq!([open(&mut net, s, 0), open(&mut net, s, 1)], held, "the same ports: the flows stood");
    }
    net.upf.u.collect_counters();
    assert_eq!(net.upf.u.counters().firewalls[0].flows_evicted, evicted);
}
