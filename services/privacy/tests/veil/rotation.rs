//! The operator's tokens over time, through a direct channel to a broker: rotation, late UEs, a channel that fails, a process that dies.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use whimbrel_ids::Instant;
use whimbrel_privacy::broker::{Broker, BrokerEvent};
use whimbrel_privacy::msg::{GroupAnswer, GroupError};
use whimbrel_privacy::operator::{Group, OperatorAttach};
use whimbrel_privacy::rotation::{Input, Output, Rotation, RotationConfig};
use whimbrel_privacy::token::TokenHash;
use whimbrel_privacy::user::{UserAttach, UserSim};
use whimbrel_privacy::wallet::Wallet;

use crate::world::*;

/// The broker, and whether it is reached.
struct Reached {
    broker: Broker,
    up: bool,
    now: Instant,
    opened: usize,
    repeated: usize,
    double_spent: usize,
}

/// An operator's edge: the rotation, its channel, what is on disk, and what is on the air.
struct Edge {
    rotation: Rotation,
    channel: Channels,
    stored: Vec<u8>,
    on_air: Option<TokenHash>,
    heard: Vec<TokenHash>,
    no_token: usize,
    draws: u64,
    /// After how many outputs the process dies, once.
    dies_after: Option<usize>,
    deaths: usize,
}

/// Channels to the broker, one for each token; without an open one nothing leaves.
struct Channels {
    to: Rc<RefCell<Reached>>,
    open: BTreeSet<TokenHash>,
}

impl Channels {
    fn new(to: &Rc<RefCell<Reached>>) -> Self {
        Self { to: to.clone(), open: BTreeSet::new() }
    }

    fn ask(&self, token: TokenHash, octets: &[u8]) -> Option<Vec<u8>> {
        assert!(self.open.contains(&token), "a token without a channel of its own");
        let mut to = self.to.borrow_mut();
        let now = to.now;
        if !to.up {
            return None;
        }
        let output = to.broker.open_group(octets, now);
        match output.event {
            BrokerEvent::Opened(_) => to.opened += 1,
            BrokerEvent::Repeated => to.repeated += 1,
            BrokerEvent::NotOpened(GroupError::DoubleSpent) => to.double_spent += 1,
            other => panic!("{other:?}"),
        }
        Some(output.octets)
    }
}

impl Edge {
    fn new(to: &Rc<RefCell<Reached>>) -> Self {
        let mut wallet = wallet();
        fill(&mut wallet, &mut to.borrow_mut().broker, 1, NOW, 1);
        let stored = wallet.to_octets().to_vec();
        let rotation = Rotation::new(RotationConfig::DEFAULT, wallet);
        let (on_air, heard, no_token, draws, dies_after, deaths) = Default::default();
        Self {
            rotation,
            channel: Channels::new(to),
            stored,
            on_air,
            heard,
            no_token,
            draws,
            dies_after,
            deaths,
        }
    }

    fn handle(&mut self, to: &Rc<RefCell<Reached>>, now: Instant, token: TokenHash, answer: Option<&[u8]>) {
        let input = match answer {
            Some(octets) => Input::Answered(token, octets),
            None => Input::Failed(token, whimbrel_privacy::channel::Failure::TimedOut),
        };
        self.run(to, now, input);
    }

    fn run(&mut self, to: &Rc<RefCell<Reached>>, now: Instant, input: Input<'_>) {
        self.draws += 1;
        let mut out = Vec::new();
        self.rotation.handle(now, input, &seed("rotation", self.draws), &mut out);
        for output in out {
            if self.dies_after == Some(0) {
                self.dies_after = None;
                self.deaths += 1;
                // What is on disk is all that is left, and another process begins with other entropy.
                self.rotation = Rotation::new(RotationConfig::DEFAULT, Wallet::parse(&self.stored).unwrap());
                (self.channel, self.on_air) = (Channels::new(to), None);
                return;
            }
            self.dies_after = self.dies_after.map(|left| left - 1);
            match output {
                Output::Store => self.stored = self.rotation.wallet.to_octets().to_vec(),
                Output::Open(token) => assert!(self.channel.open.insert(token), "no two share one"),
                Output::Close(token) => {
                    self.channel.open.remove(&token);
                }
                Output::Broadcast(token) => {
                    self.on_air = token;
                    self.heard.extend(token);
                }
                Output::NoToken => self.no_token += 1,
                Output::NotOpened(cause) => panic!("{cause}"),
                Output::BadAnswer(error) => panic!("{error}"),
                Output::Ask(token, octets) => {
                    let answer = self.channel.ask(token, &octets);
                    self.handle(to, now, token, answer.as_deref());
                }
            }
        }
    }

    /// A second passes.
    fn tick(&mut self, to: &Rc<RefCell<Reached>>, s: u64) {
        to.borrow_mut().now = at(s);
        self.run(to, at(s), Input::Tick);
        assert_eq!(self.rotation.broadcast(), self.on_air, "at {s} s");
    }
}

fn reached() -> Rc<RefCell<Reached>> {
    let (opened, repeated, double_spent) = (0, 0, 0);
    Rc::new(RefCell::new(Reached { broker: broker(), up: true, now: NOW, opened, repeated, double_spent }))
}

/// A UE attaches with a token that it heard, at `s`.
fn attaches(edge: &Edge, to: &Rc<RefCell<Reached>>, sim: &mut UserSim, token: TokenHash, s: u64) -> bool {
    let n = u64::from(sim.counter as u32) + 1_000;
    let (user, request) = UserAttach::begin(sim, token, &seed("u", n)).unwrap();
    let (operator, question) = OperatorAttach::ask(contract(), request, &seed("o", n)).unwrap();
    let Some((signed_in, octets)) = edge.rotation.sign(&question, at(s)) else { return false };
    assert_eq!(signed_in, token);
    let answer = to.borrow_mut().broker.attach(&octets, at(s), &seed("b", n)).octets;
    let challenging = operator.answer(&answer, at(s)).unwrap();
    let responding = user.challenge(&challenging.challenge().to_octets(), at(s)).unwrap();
    challenging.respond(responding.response()).is_ok()
}

#[test]
fn a_token_follows_another_every_20_seconds_and_late_ues_are_served() {
    let to = reached();
    let mut edge = Edge::new(&to);
    let mut sim = sim("alice", ALICE, &to.borrow().broker);
    let mut before = None;
    for s in AGE_S..AGE_S + 601 {
        edge.tick(&to, s);
        let token = edge.on_air.expect("always one on the air");
        if s % 30 == 0 {
            assert!(attaches(&edge, &to, &mut sim, token, s), "at {s} s");
        }
        if let Some(before) = before.filter(|before| *before != token) {
            assert!(attaches(&edge, &to, &mut sim, before, s), "a UE that heard the token before, at {s} s");
        }
        before = Some(token);
    }
    assert_eq!(edge.heard.len(), 31);
    let long_ago = edge.heard[0];
    assert!(!attaches(&edge, &to, &mut sim, long_ago, AGE_S + 600), "a UE that heard a token long ago");
    let to = to.borrow();
    // The next token is open, besides those that were broadcast, when the run ends.
    assert!((31..=32).contains(&to.opened), "{}", to.opened);
    assert_eq!((to.repeated, to.double_spent), (0, 0));
}

#[test]
fn a_channel_that_fails_ends_the_broadcast_and_nothing_else_is_used() {
    let to = reached();
    let mut edge = Edge::new(&to);
    (AGE_S..AGE_S + 30).for_each(|s| edge.tick(&to, s));
    assert!(edge.on_air.is_some());
    to.borrow_mut().up = false;
    let opened = to.borrow().opened;
    (AGE_S + 30..AGE_S + 150).for_each(|s| edge.tick(&to, s));
    assert_eq!(edge.on_air, None, "no group is open");
    assert_eq!(to.borrow().opened, opened);
    to.borrow_mut().up = true;
    (AGE_S + 150..AGE_S + 160).for_each(|s| edge.tick(&to, s));
    assert!(edge.on_air.is_some());
    assert_eq!(to.borrow().double_spent, 0);
}

#[test]
fn a_process_that_dies_between_any_two_steps_spends_no_token_twice() {
    for dies_after in 0..24 {
        let to = reached();
        let mut edge = Edge::new(&to);
        edge.dies_after = Some(dies_after);
        for s in AGE_S..AGE_S + 120 {
            to.borrow_mut().now = at(s);
            edge.run(&to, at(s), Input::Tick);
        }
        assert_eq!(edge.deaths, 1, "after {dies_after}");
        assert!(edge.on_air.is_some(), "after {dies_after}");
        assert_eq!(to.borrow().double_spent, 0, "after {dies_after}");
        // At most the groups that were open are lost with their keys: the one on the air and the next.
        let used = to.borrow().opened;
        assert!(used <= edge.heard.len() + 2, "after {dies_after}: {used} for {}", edge.heard.len());
    }
}

#[test]
fn a_wallet_without_rested_tokens_is_reported_once_until_there_are_some() {
    let to = reached();
    let mut edge = Edge::new(&to);
    (0..30).for_each(|s| edge.tick(&to, s));
    assert_eq!((edge.no_token, edge.on_air), (1, None));
    edge.tick(&to, AGE_S);
    assert!(edge.on_air.is_some());
}

#[test]
fn the_machine_wakes_when_it_has_something_to_do() {
    let to = reached();
    let mut edge = Edge::new(&to);
    edge.tick(&to, AGE_S);
    // Half of the broadcast: the next group opens. Its end: the next token is broadcast. Between, nothing is due.
    for expected in [10, 20, 30, 40] {
        let deadline = edge.rotation.next_deadline().unwrap();
        assert_eq!(deadline, at(AGE_S + expected));
        edge.tick(&to, AGE_S + expected);
    }
    let octets = GroupAnswer::Refused(GroupError::Malformed).to_octets();
    let before = edge.rotation.next_deadline();
    edge.handle(&to, at(AGE_S + 40), TokenHash([0; 32]), Some(&octets));
    assert_eq!(edge.rotation.next_deadline(), before, "an answer for an unknown token changes nothing");
}

#[test] // chapter 4.4.2, step i: UEs that heard a token are served until its group ends
fn a_group_of_a_former_process_takes_ues_that_heard_its_token() {
    let to = reached();
    let mut edge = Edge::new(&to);
    edge.tick(&to, AGE_S);
    let heard = edge.on_air.expect("a token");
    let kept: Vec<Vec<u8>> = edge.rotation.groups().map(|group| group.to_octets().to_vec()).collect();
    let mut next = Rotation::new(RotationConfig::DEFAULT, Wallet::parse(&edge.stored).unwrap());
    let asked = |rotation: &Rotation, s: u64| {
        let (_, request) =
            UserAttach::begin(&mut sim("alice", ALICE, &to.borrow().broker), heard, &seed("u", 1))?;
        let (_, question) = OperatorAttach::ask(contract(), request, &seed("o", 1)).ok()?;
        rotation.sign(&question, at(s)).map(|(token, _)| token)
    };
    assert_eq!(asked(&next, AGE_S + 1), None);
    kept.iter().for_each(|octets| next.resume(Group::parse(octets).unwrap()));
    assert_eq!(asked(&next, AGE_S + 1), Some(heard));
    assert_eq!(asked(&next, AGE_S + 61), None, "the group is over");
}
