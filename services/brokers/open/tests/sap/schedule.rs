//! Attaches while messages are lost, doubled and late, operators go on at a replica, and the broker is replaced: no session without a
//! grant, no grant used twice.

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;
use whimbrel_ids::Instant;
use whimbrel_open::admission::{Origin, Peer};
use whimbrel_open::broker::{Broker, BrokerEvent, Record};
use whimbrel_open::id::UserId;
use whimbrel_open::msg::AuthReqU;
use whimbrel_open::operator::{Operator, OperatorAttach, OperatorError, OperatorSession};
use whimbrel_open::user::{UserAttach, UserSim};

use super::world::*;

/// What an operator has logged of an attach: a replica goes on from it.
struct Logged {
    request: AuthReqU,
    begun: Instant,
    seed: u64,
    session: Option<OperatorSession>,
}

struct Country {
    random: u64,
    now: Instant,
    sims: Vec<UserSim>,
    waiting: Vec<Option<UserAttach>>,
    operators: [Operator; 2],
    logs: [Vec<Logged>; 2],
    broker: Broker,
    records: Vec<Record>,
    /// Under way to the broker, and from it: the operator, which of its attaches, the octets.
    asked: Vec<(usize, usize, Vec<u8>)>,
    answered: Vec<(usize, usize, Vec<u8>)>,
    committed: usize,
    refused: usize,
    /// What was granted, by user and counter.
    grants: BTreeMap<(UserId, u64), [u8; 32]>,
}

const USERS: u8 = 4;

fn with_users(mut broker: Broker) -> Broker {
    for n in 0..USERS {
        broker.set_user(UserId([n; 16]), user(&format!("user {n}")));
    }
    broker
}

impl Country {
    fn new(random: u64) -> Self {
        let broker = with_users(broker("b.example"));
        let sims = (0..USERS).map(|n| sim(&format!("user {n}"), UserId([n; 16]), &broker)).collect();
        let operators = [operator(t1(), "t1"), operator(t2(), "t2")];
        Self {
            random,
            now: NOW,
            sims,
            waiting: (0..USERS).map(|_| None).collect(),
            operators,
            logs: Default::default(),
            broker,
            records: Vec::new(),
            asked: Vec::new(),
            answered: Vec::new(),
            committed: 0,
            refused: 0,
            grants: BTreeMap::new(),
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % n
    }

    /// One of those under way. It stays there now and then, and comes again later.
    fn take<T: Clone>(&mut self, from: impl Fn(&mut Self) -> &mut Vec<T>) -> Option<T> {
        let n = from(self).len();
        if n == 0 {
            return None;
        }
        let (at, doubled) = (self.below(n), self.below(4) == 0);
        let all = from(self);
        Some(if doubled { all[at].clone() } else { all.swap_remove(at) })
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(100);
        let choice = self.below(20);
        match choice {
            // A UE attaches somewhere, whatever became of its last try.
            0..4 => {
                let (user_index, at, seed_of) = (self.below(usize::from(USERS)), self.below(2), self.random);
                let id = self.operators[at].id();
                let (attach, request) =
                    UserAttach::begin(&mut self.sims[user_index], id, &seed("u", seed_of)).unwrap();
                self.waiting[user_index] = Some(attach);
                self.logs[at].push(Logged { request, begun: self.now, seed: seed_of, session: None });
                self.ask(at, self.logs[at].len() - 1);
            }
            // An operator, or its replica, asks again.
            4..7 => {
                let at = self.below(2);
                if !self.logs[at].is_empty() {
                    let which = self.below(self.logs[at].len());
                    self.ask(at, which);
                }
            }
            7..13 => self.serve(),
            13..18 => self.deliver(),
            18 => {
                // The network loses what is under way.
                self.take(|c| &mut c.asked);
                self.take(|c| &mut c.answered);
            }
            // The broker is replaced by one that knows what was made durable.
            _ => {
                self.broker = with_users(broker("b.example"));
                for record in self.records.clone() {
                    self.broker.restore(record);
                }
            }
        }
    }

    fn attach(&self, at: usize, which: usize) -> (OperatorAttach, Vec<u8>) {
        let log = &self.logs[at][which];
        OperatorAttach::begin(&self.operators[at], log.request.clone(), log.begun, &seed("t", log.seed))
    }

    fn ask(&mut self, at: usize, which: usize) {
        let (_, octets) = self.attach(at, which);
        self.asked.push((at, which, octets));
    }

    fn serve(&mut self) {
        let Some((at, which, octets)) = self.take(|c| &mut c.asked) else { return };
        assert!(
            self.broker
                .offer(Origin { peer: Peer(at as u64), request: which as u64 }, octets, self.now)
                .is_none()
        );
        let (_, output) = self.broker.serve(self.now, &seed("b", self.random)).unwrap();
        if let (BrokerEvent::Granted(session), Some(Record::Attach(record))) = (&output.event, &output.record)
        {
            let before = self.grants.insert((session.user, record.counter), session.grant.request);
            assert_eq!(before, None, "one counter is granted once");
        }
        self.records.extend(output.record);
        self.answered.push((at, which, output.octets));
    }

    fn deliver(&mut self) {
        let Some((at, which, octets)) = self.take(|c| &mut c.answered) else { return };
        // Each answer is judged by a replica that knows the log alone.
        let (attach, _) = self.attach(at, which);
        let session = match attach.answer(&octets, &self.operators[at].trust, self.now) {
            Ok(session) => session,
            Err(OperatorError::Refused(_)) => {
                self.refused += 1;
                return;
            }
            Err(error) => panic!("{error}"),
        };
        if let Some(before) = &self.logs[at][which].session {
            assert_eq!((&before.grant, &before.k_seaf), (&session.grant, &session.k_seaf), "the same answer");
        }
        let answer_u = session.answer_u.to_octets();
        for user_index in 0..self.waiting.len() {
            let Some(user) = &self.waiting[user_index] else { continue };
            let Ok(tentative) = user.answer(&answer_u, self.now) else { continue };
            assert_eq!(tentative.k_seaf(), &session.k_seaf);
            let user = self.waiting[user_index].take().unwrap();
            let at_user = tentative.commit(user, &mut self.sims[user_index]);
            assert_eq!(at_user.grant, session.grant.grant);
            self.committed += 1;
        }
        self.logs[at][which].session = Some(session);
    }
}

#[test]
fn no_session_without_a_grant_and_no_grant_used_twice() {
    let (mut committed, mut refused) = (0, 0);
    for random in 1..=8 {
        let mut country = Country::new(random);
        for _ in 0..150 {
            country.step();
        }
        let sessions = || country.logs.iter().flatten().filter_map(|log| log.session.as_ref());
        let pseudonyms: BTreeSet<_> = sessions().map(|session| session.grant.grant.pseudonym).collect();
        assert_eq!(pseudonyms.len(), sessions().count(), "each session has a grant of its own");
        let granted: BTreeSet<_> = country.grants.values().collect();
        assert!(sessions().all(|session| granted.contains(&session.grant.grant.request)));
        (committed, refused) = (committed + country.committed, refused + country.refused);
    }
    assert!(committed >= 40 && refused >= 10, "{committed} committed, {refused} refused");
}
