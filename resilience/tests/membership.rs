//! Membership on a simulated etcd: lost requests and answers, cuts, expired leases, an etcd without majority, one that forgot.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::detector::Incarnation;
use whimbrel_resilience::membership::{
    ClaimError, ConnectedCpf, CpfRoster, CtaHome, CtaInstance, EtcdAnswer, EtcdFailure, EtcdReply,
    EtcdRequest, Event, HomeClaim, Input, Kv, Member, MemberId, Membership, MembershipChange,
    MembershipCommand, MembershipSettings, Outbox, WatchedChange,
};
use whimbrel_resilience::replication::CpfId;

const STEP: Duration = Duration::from_millis(10);
const LEASE: Duration = Duration::from_secs(10);
const A: MemberId = MemberId::Cta(1);
const B: MemberId = MemberId::Cta(2);
const CPF: MemberId = MemberId::Cpf(CpfId(7));
const HOME: u16 = 1;

fn s(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The random numbers of SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n.max(1)
    }
}

/// What etcd promises, of what membership uses.
#[derive(Default)]
struct Etcd {
    cluster: u64,
    revision: u64,
    kvs: BTreeMap<String, Kv>,
    /// Seconds, and when it ends.
    leases: BTreeMap<i64, (u32, Instant)>,
    granted: i64,
    without_majority: bool,
    /// What an etcd that had just lost its majority took, to do it when it has it again.
    taken: Vec<EtcdRequest>,
    history: Vec<(u64, WatchedChange)>,
}

impl Etcd {
    fn do_it(&mut self, now: Instant, request: &EtcdRequest) -> Result<EtcdReply, EtcdFailure> {
        let answer = match request {
            EtcdRequest::Grant { ttl_s } => {
                self.granted += 1;
                self.leases.insert(self.granted, (*ttl_s, now + s((*ttl_s).into())));
                EtcdAnswer::Granted { lease: self.granted, ttl_s: *ttl_s }
            }
            EtcdRequest::KeepAlive { lease } => match self.leases.get_mut(lease) {
                Some((ttl_s, until)) => {
                    *until = now + s((*ttl_s).into());
                    EtcdAnswer::KeptAlive { ttl_s: *ttl_s }
                }
                None => EtcdAnswer::KeptAlive { ttl_s: 0 },
            },
            EtcdRequest::Revoke { lease } => {
                self.end(*lease);
                EtcdAnswer::Revoked
            }
            EtcdRequest::Swap { key, expected, value, lease } => {
                let present = self.kvs.get(key);
                if present.map_or(0, |kv| kv.mod_revision) != *expected {
                    EtcdAnswer::Differs(present.cloned())
                } else if *lease != 0 && !self.leases.contains_key(lease) {
                    return Err(EtcdFailure::NoLease);
                } else {
                    self.put(key, value, *lease);
                    EtcdAnswer::Swapped
                }
            }
            EtcdRequest::List { prefix } => EtcdAnswer::Listed(
                self.kvs.values().filter(|kv| kv.key.starts_with(prefix)).cloned().collect(),
            ),
            EtcdRequest::Watch { .. } => unreachable!("reported, not answered"),
        };
        Ok(EtcdReply { cluster: self.cluster, revision: self.revision, answer })
    }

    fn put(&mut self, key: &str, value: &[u8], lease: i64) {
        self.revision += 1;
        let kv = Kv { key: key.into(), value: value.into(), mod_revision: self.revision, lease };
        self.kvs.insert(key.into(), kv.clone());
        self.history.push((self.revision, WatchedChange::Put(kv)));
    }

    fn delete(&mut self, key: &str) {
        self.revision += 1;
        self.kvs.remove(key);
        self.history
            .push((self.revision, WatchedChange::Deleted { key: key.into(), revision: self.revision }));
    }

    fn end(&mut self, lease: i64) {
        self.leases.remove(&lease);
        let gone: Vec<String> =
            self.kvs.values().filter(|kv| kv.lease == lease).map(|kv| kv.key.clone()).collect();
        gone.iter().for_each(|key| self.delete(key));
    }

    fn expire(&mut self, now: Instant) {
        if !self.without_majority {
            let ended: Vec<i64> =
                self.leases.iter().filter(|(_, (_, until))| *until <= now).map(|(id, _)| *id).collect();
            ended.into_iter().for_each(|lease| self.end(lease));
        }
    }

    /// A new leader renews every lease.
    fn majority_is_back(&mut self, now: Instant) {
        self.without_majority = false;
        for request in std::mem::take(&mut self.taken) {
            let _ = self.do_it(now, &request);
        }
        self.leases.values_mut().for_each(|(ttl_s, until)| *until = now + s((*ttl_s).into()));
    }
}

struct Node {
    machine: Membership,
    /// It reaches etcd not.
    cut: bool,
    watch: Option<(u64, u64)>,
    events: Vec<Event>,
}

enum Leg {
    There(u64, EtcdRequest),
    Back(u64, Result<EtcdReply, EtcdFailure>),
}

struct World {
    now: Instant,
    etcd: Etcd,
    nodes: Vec<Node>,
    under_way: BTreeMap<(Instant, u64), (usize, Leg)>,
    sent: u64,
    rng: Rng,
    loss_per_mille: u64,
}

fn member(id: MemberId) -> Member {
    let last = match id {
        MemberId::Cta(n) => n,
        MemberId::Cpf(CpfId(n)) => n,
    };
    let address = format!("192.0.2.{last}:7000").parse().unwrap();
    Member { region: "1220".into(), address, draining: false, code_version: CodeVersion(1) }
}

fn machine(id: MemberId) -> Membership {
    Membership::new(MembershipSettings { cluster: "west".into(), me: id, member: member(id), lease: LEASE })
}

impl World {
    fn new(seed: u64, loss_per_mille: u64, members: &[MemberId]) -> Self {
        let mut world = Self {
            now: Instant(1_000_000),
            etcd: Etcd { cluster: 77, revision: 1, ..Etcd::default() },
            nodes: Vec::new(),
            under_way: BTreeMap::new(),
            sent: 0,
            rng: Rng(seed),
            loss_per_mille,
        };
        members.iter().for_each(|id| world.start(*id));
        world
    }

    /// All of them are listed, and A and B are a pair for A's home.
    fn pair(seed: u64) -> Self {
        let mut world = Self::new(seed, 0, &[A, B, CPF]);
        world.run(s(2));
        world.command(0, MembershipCommand::Claim(HOME, HomeClaim::Found));
        world.run(s(1));
        let cta_replica = world.place(1);
        world.command(0, MembershipCommand::Claim(HOME, HomeClaim::Pair(cta_replica)));
        world.run(s(1));
        assert_eq!(
            world.home(2),
            CtaHome { term: 2, primary: world.place(0), cta_replica: Some(cta_replica) }
        );
        world.nodes.iter_mut().for_each(|n| n.events.clear());
        world
    }

    fn start(&mut self, id: MemberId) {
        self.nodes.push(Node { machine: machine(id), cut: false, watch: None, events: Vec::new() });
        self.input(self.nodes.len() - 1, Input::Tick);
    }

    fn place(&self, node: usize) -> CtaInstance {
        let cta = [1, 2][node];
        CtaInstance { cta, incarnation: self.nodes[node].machine.incarnation().unwrap() }
    }

    fn home(&self, node: usize) -> CtaHome {
        *self.nodes[node].machine.view().home(HOME).unwrap()
    }

    fn command(&mut self, node: usize, command: MembershipCommand) {
        self.input(node, Input::Command(command));
    }

    fn input(&mut self, node: usize, input: Input) {
        let mut out = Outbox::default();
        let to = &mut self.nodes[node];
        to.machine.handle(self.now, input, &mut out);
        to.events.extend(out.events);
        for (id, request) in out.requests {
            if let EtcdRequest::Watch { from, .. } = request {
                self.nodes[node].watch = Some((id, from));
                continue;
            }
            self.send(node, Leg::There(id, request));
        }
    }

    fn send(&mut self, node: usize, leg: Leg) {
        self.sent += 1;
        if self.rng.below(1000) >= self.loss_per_mille {
            let delay = Duration::from_millis(1 + self.rng.below(40));
            self.under_way.insert((self.now + delay, self.sent), (node, leg));
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + STEP;
            self.etcd.expire(self.now);
            while let Some(entry) = self.under_way.first_entry().filter(|e| e.key().0 <= self.now) {
                let (node, leg) = entry.remove();
                let reached = !self.nodes[node].cut && !self.etcd.without_majority;
                match leg {
                    Leg::There(id, request) if reached => {
                        let answer = self.etcd.do_it(self.now, &request);
                        self.send(node, Leg::Back(id, answer));
                    }
                    Leg::Back(id, answer) if !self.nodes[node].cut => {
                        self.input(node, Input::Answered(id, answer))
                    }
                    Leg::There(_, swap @ EtcdRequest::Swap { .. })
                        if !self.nodes[node].cut && self.rng.below(4) == 0 =>
                    {
                        self.etcd.taken.push(swap);
                    }
                    // Half of those that are not reached refuse, the others are silent.
                    Leg::There(id, _) if self.rng.below(2) == 0 => {
                        self.input(
                            node,
                            Input::Answered(id, Err(EtcdFailure::Unreachable("refused".into()))),
                        );
                    }
                    _ => {}
                }
            }
            for node in 0..self.nodes.len() {
                if let Some((id, from)) = self.nodes[node].watch.filter(|_| !self.nodes[node].cut) {
                    let changes: Vec<WatchedChange> = self
                        .etcd
                        .history
                        .iter()
                        .filter(|(r, _)| *r >= from)
                        .map(|(_, w)| w.clone())
                        .collect();
                    if !changes.is_empty() {
                        self.nodes[node].watch = Some((id, self.etcd.revision + 1));
                        self.input(node, Input::Watched(id, changes));
                    }
                }
                if self.nodes[node].machine.next_deadline().is_some_and(|at| at <= self.now) {
                    self.input(node, Input::Tick);
                }
            }
        }
    }

    fn events(&mut self, node: usize) -> Vec<Event> {
        std::mem::take(&mut self.nodes[node].events)
    }
}

/// Without what changed in the view.
fn own(events: Vec<Event>) -> Vec<Event> {
    events.into_iter().filter(|e| !matches!(e, Event::Changed(_))).collect()
}

fn changes(events: Vec<Event>) -> Vec<MembershipChange> {
    let change = |e| if let Event::Changed(change) = e { Some(change) } else { None };
    events.into_iter().filter_map(change).collect()
}

#[test]
fn members_find_each_other_and_an_incarnation_is_the_revision_of_the_joining() {
    let mut world = World::new(1, 0, &[A, B, CPF]);
    world.run(s(1));
    let mut incarnations: Vec<u64> = Vec::new();
    for node in 0..3 {
        let incarnation = world.nodes[node].machine.incarnation().unwrap();
        assert_eq!(own(world.events(node)), [Event::Reached, Event::Joined(incarnation)]);
        let seen: Vec<MemberId> = world.nodes[node].machine.view().members().map(|(id, _)| id).collect();
        assert_eq!(seen, [A, B, CPF]);
        incarnations.push(incarnation.0);
    }
    incarnations.sort_unstable();
    assert_eq!(incarnations, [2, 3, 4]);
    world.run(s(60));
    assert_eq!((0..3).flat_map(|n| world.events(n)).collect::<Vec<_>>(), [], "leases are renewed");
}

#[test]
fn a_stopped_process_is_gone_at_once_and_a_killed_one_when_its_lease_ends() {
    let mut world = World::pair(2);
    let incarnation = world.nodes[2].machine.incarnation().unwrap();
    world.command(2, MembershipCommand::Leave);
    world.run(s(1));
    assert_eq!(own(world.events(2)), [Event::Left]);
    assert_eq!(world.events(0), [Event::Changed(MembershipChange::Gone(CPF, incarnation))]);

    let killed = world.place(1).incarnation;
    world.nodes[1].cut = true;
    world.run(LEASE / 2);
    assert_eq!(world.events(0), []);
    world.run(LEASE / 2 + s(1));
    assert_eq!(world.events(0), [Event::Changed(MembershipChange::Gone(B, killed))]);
}

#[test]
fn of_two_processes_with_one_name_the_second_waits() {
    let mut world = World::new(3, 0, &[A]);
    world.run(s(1));
    let first = world.nodes[0].machine.incarnation().unwrap();
    world.start(A);
    world.run(s(30));
    assert_eq!(own(world.events(1)), [Event::Reached, Event::Occupied(first)], "reported once");
    assert_eq!(world.nodes[1].machine.incarnation(), None);
    world.nodes[0].cut = true; // killed
    world.run(LEASE + s(2));
    let second = world.nodes[1].machine.incarnation().unwrap();
    assert!(second > first);
    assert_eq!(own(world.events(1)), [Event::Joined(second)]);
}

#[test]
fn a_minute_without_etcd_changes_nothing_and_promotes_no_cta() {
    let mut world = World::pair(4);
    let before: Vec<_> = (0..3).map(|n| world.nodes[n].machine.view().clone()).collect();
    world.etcd.without_majority = true;
    world.run(s(30));
    world.command(1, MembershipCommand::Claim(HOME, HomeClaim::Promote));
    world.run(s(30));
    for (node, before) in before.iter().enumerate() {
        assert_eq!(world.nodes[node].machine.view(), before);
        let events = world.events(node);
        assert_eq!(events.iter().filter(|e| matches!(e, Event::Unreachable(_))).count(), 1, "reported once");
        assert_eq!(events.iter().filter(|e| matches!(e, Event::Doubtful(_))).count(), 1);
        let refused = events.contains(&Event::Refused(HOME, ClaimError::NoAnswer));
        assert_eq!((refused, events.len()), (node == 1, if node == 1 { 3 } else { 2 }), "{events:?}");
    }
    world.etcd.majority_is_back(world.now);
    world.run(s(20));
    for (node, before) in before.iter().enumerate() {
        let incarnation = world.nodes[node].machine.incarnation().unwrap();
        assert_eq!(world.events(node), [Event::Reached, Event::Renewed(incarnation)]);
        assert_eq!(world.nodes[node].machine.view(), before);
    }
}

#[test]
fn a_process_cut_off_from_etcd_is_expelled_and_returns_in_the_same_incarnation() {
    let mut world = World::pair(5);
    let life = world.nodes[2].machine.incarnation().unwrap();
    world.nodes[2].cut = true;
    world.run(LEASE + s(5));
    assert!(world.events(2).ends_with(&[Event::Doubtful(life)]), "it cannot know more");
    assert_eq!(changes(world.events(0)), [MembershipChange::Gone(CPF, life)]);
    world.nodes[2].cut = false;
    world.run(s(5));
    assert_eq!(own(world.events(2)), [Event::Reached, Event::Expelled(life), Event::Joined(life)]);
    assert_eq!(changes(world.events(0)), [MembershipChange::Member(CPF)]);
    assert_eq!(world.nodes[0].machine.view().member(CPF).unwrap().incarnation, life);

    world.command(2, MembershipCommand::Rejoin); // it was replaced meanwhile
    world.run(s(1));
    let next = world.nodes[2].machine.incarnation().unwrap();
    assert!(next > life);
    assert_eq!(own(world.events(2)), [Event::Joined(next)]);
    assert_eq!(world.nodes[0].machine.view().member(CPF).unwrap().incarnation, next);
}

#[test]
fn of_a_pair_that_is_cut_apart_one_goes_on() {
    for seed in 0..200 {
        let mut world = World::pair(seed);
        world.command(0, MembershipCommand::Claim(HOME, HomeClaim::Alone));
        world.command(1, MembershipCommand::Claim(HOME, HomeClaim::Promote));
        world.run(s(2));
        let outcome = [0, 1].map(|node| own(world.events(node)));
        let record = world.home(0);
        assert_eq!((record.term, record.cta_replica, world.home(1)), (3, None, record));
        let winner = usize::from(record.primary == world.place(1));
        assert_eq!(record.primary, world.place(winner));
        assert_eq!(outcome[winner], [Event::Claimed(HOME, record)]);
        let refused = [ClaimError::Outrun, ClaimError::NotYours].map(|why| vec![Event::Refused(HOME, why)]);
        assert!(refused.contains(&outcome[1 - winner]), "{outcome:?}");
    }
}

#[test] // the answer is lost, not the swap
fn a_claim_that_was_granted_unheard_is_found_out() {
    let mut world = World::pair(6);
    world.command(1, MembershipCommand::Claim(HOME, HomeClaim::Promote));
    let term = |world: &World| -> u32 {
        serde_json::from_slice::<CtaHome>(&world.etcd.kvs["whimbrel/west/home/1"].value).unwrap().term
    };
    while term(&world) == 2 {
        world.run(STEP);
        let swapped = |leg: &Leg| matches!(leg, Leg::Back(_, Ok(a)) if a.answer == EtcdAnswer::Swapped);
        world.under_way.retain(|_, (_, leg)| !swapped(leg));
    }
    world.run(s(10));
    let record = world.home(0);
    assert_eq!((record.term, record.primary), (3, world.place(1)));
    let granted = own(world.events(1)).into_iter().filter(|e| *e == Event::Claimed(HOME, record)).count();
    assert_eq!(granted, 1);
}

#[test]
fn a_cpf_that_drained_is_back_on_the_rings() {
    let mut world = World::pair(7);
    let configuration = br#"{"regions":["1220","1221"],"replicas":1}"#;
    world.etcd.put("whimbrel/west/configuration", configuration, 0);
    let rings = |world: &World| {
        let roll = CpfRoster::of(world.nodes[0].machine.view());
        let regions = roll.configuration().and_then(|c| c.regions.clone()).unwrap();
        let (here, cpf) = (regions[0].clone(), CpfId(7));
        let others = ConnectedCpf {
            id: CpfId(8),
            region: &regions[1],
            code: CodeVersion::own(),
            slice: None,
            leaves: false,
            listed: None,
        };
        let present = [
            ConnectedCpf {
                id: cpf,
                region: &here,
                code: CodeVersion::own(),
                slice: None,
                leaves: false,
                listed: Some(cpf),
            },
            others,
        ];
        roll.map(regions.clone(), &present).unwrap().rings(&here, 1).unwrap()
    };
    world.run(s(1));
    assert!(rings(&world).serves(CpfId(7)));
    let life = world.nodes[2].machine.incarnation();
    world.command(2, MembershipCommand::Drain(true));
    world.run(s(1));
    assert!(!rings(&world).serves(CpfId(7)));
    world.command(2, MembershipCommand::Drain(false));
    world.run(s(1));
    assert!(rings(&world).serves(CpfId(7)));
    world.etcd.put("whimbrel/west/configuration", br#"{"regions":["1220","1221"],"draining":["cpf-7"]}"#, 0);
    world.run(s(1));
    assert!(!rings(&world).serves(CpfId(7)), "the operator says so");
    assert_eq!(world.nodes[2].machine.incarnation(), life);
    assert_eq!(own(world.events(2)), []);
}

#[test]
fn invalid_records_are_reported_and_change_nothing() {
    let mut world = World::pair(8);
    world.etcd.put("whimbrel/west/configuration", br#"{"regions":["n/a"],"replicas":1}"#, 0);
    world.run(s(1));
    let before = world.nodes[0].machine.view().clone();
    world.events(0);
    let large = vec![b' '; 100_000];
    for (key, value) in [
        ("configuration", &br#"{"regions":["n/a","s/a"],"replicas":1}"#[..]),
        ("configuration", b"{"),
        ("configuration", br#"{"replicas":8}"#),
        ("configuration", &large),
        ("member/cpf-7", b"null"),
        ("member/upf-1", b"{}"),
        ("home/1", br#"{"term":1,"primary":{"cta":2,"incarnation":3},"cta_replica":null}"#),
        ("home/1", br#"{"term":-1}"#),
        ("home/99999", b"{}"),
        ("other", b""),
    ] {
        world.etcd.put(&format!("whimbrel/west/{key}"), value, 0);
        world.run(s(1));
        let reported = changes(world.events(0));
        assert!(
            matches!(&reported[..], [MembershipChange::Ignored { key: of, .. }] if of.ends_with(key)),
            "{key}: {reported:?}"
        );
        assert_eq!(world.nodes[0].machine.view(), &before, "{key}");
    }
    world.etcd.delete("whimbrel/west/home/1");
    world.run(s(1));
    assert_eq!(world.home(0).term, 2, "terms never begin again");
    world.command(1, MembershipCommand::Claim(HOME, HomeClaim::Promote));
    world.run(s(1));
    assert_eq!(world.home(0), CtaHome { term: 3, primary: world.place(1), cta_replica: None });
}

#[test]
fn an_etcd_that_has_forgotten_is_not_believed() {
    let mut world = World::pair(9);
    let before = world.nodes[1].machine.view().clone();
    let kept = std::mem::replace(&mut world.etcd, Etcd { cluster: 77, revision: 1, ..Etcd::default() });
    world.nodes.iter_mut().for_each(|n| n.watch = None);
    world.nodes.iter_mut().for_each(|n| n.cut = true);
    world.run(s(4));
    world.nodes.iter_mut().for_each(|n| n.cut = false);
    world.command(1, MembershipCommand::Claim(HOME, HomeClaim::Promote));
    world.run(s(10));
    let events = own(world.events(1));
    assert!(
        events.contains(&Event::Replaced) && events.contains(&Event::Refused(HOME, ClaimError::NoAnswer)),
        "{events:?}"
    );
    assert_eq!(world.nodes[1].machine.view(), &before);
    assert!(!world.etcd.kvs.contains_key("whimbrel/west/home/1"));

    world.etcd = kept;
    world.etcd.majority_is_back(world.now);
    world.command(1, MembershipCommand::Claim(HOME, HomeClaim::Promote));
    world.run(s(5));
    assert_eq!(world.home(0).primary, world.place(1));
}

/// Two CTAs and a CPF under loss, cuts and elections, while both CTAs want the home all the time.
#[test]
fn whatever_is_lost_terms_rise_each_is_one_ctas_and_all_agree_in_the_end() {
    let mut granted = 0;
    for seed in 0..150 {
        let mut world = World::pair(seed);
        world.loss_per_mille = 150;
        let mut claimed: BTreeMap<u32, CtaInstance> = BTreeMap::new();
        let mut lives: BTreeMap<Incarnation, usize> = BTreeMap::new();
        let mut term = 2;
        for _ in 0..60 {
            let node = world.rng.below(2) as usize;
            let other = world.place(1 - node);
            match world.rng.below(20) {
                0 => world.nodes[node].cut = true,
                1 => world.etcd.without_majority = true,
                2..5 => {
                    world.nodes[node].cut = false;
                    world.etcd.majority_is_back(world.now);
                }
                5 => world.command(node, MembershipCommand::Rejoin),
                6..9 => world.command(node, MembershipCommand::Claim(HOME, HomeClaim::Found)),
                9..12 => world.command(node, MembershipCommand::Claim(HOME, HomeClaim::Alone)),
                12..15 => world.command(node, MembershipCommand::Claim(HOME, HomeClaim::Promote)),
                _ => world.command(node, MembershipCommand::Claim(HOME, HomeClaim::Pair(other))),
            }
            let time = 100 * world.rng.below(40);
            world.run(Duration::from_millis(time));
            for node in 0..2 {
                for event in world.events(node) {
                    match event {
                        Event::Claimed(_, record) => {
                            assert_eq!(record.primary.cta, [1, 2][node], "seed {seed}");
                            assert_eq!(
                                *claimed.entry(record.term).or_insert(record.primary),
                                record.primary,
                                "seed {seed}"
                            );
                        }
                        Event::Joined(life) => {
                            assert_eq!(*lives.entry(life).or_insert(node), node, "seed {seed}")
                        }
                        _ => {}
                    }
                }
            }
            let kv = &world.etcd.kvs["whimbrel/west/home/1"];
            let record: CtaHome = serde_json::from_slice(&kv.value).unwrap();
            assert!(record.term >= term, "seed {seed}");
            term = record.term;
        }
        world.loss_per_mille = 0;
        world.nodes.iter_mut().for_each(|n| n.cut = false);
        world.etcd.majority_is_back(world.now);
        world.run(s(40));
        let view = world.nodes[0].machine.view().clone();
        assert_eq!(view.members().count(), 3, "seed {seed}");
        assert!(world.nodes.iter().all(|n| *n.machine.view() == view), "seed {seed}");
        for node in 0..3 {
            let listed = view.member([A, B, CPF][node]).unwrap();
            assert_eq!(Some(listed.incarnation), world.nodes[node].machine.incarnation(), "seed {seed}");
        }
        granted += claimed.len();
    }
    assert!(granted > 300, "{granted}");
}
