//! The brokers of a run, and the links of operators to them.
//!
//! A broker is the machine of `whimbrel_open`, driven as the program drives it: requests that came meanwhile are answered as one batch, the
//! batch is made durable, then its answers leave. The database is memory that survives the broker; what it has not committed is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whimbrel_control::open::{BrokerAnswer, Unreachable};
use whimbrel_ids::{Instant, PlmnId, Supi};
use whimbrel_open::admission::{Origin, Peer};
use whimbrel_open::broker::{ANSWER_KEPT, Broker, BrokerEvent, BrokerOutput, HomeUser, Record, User};
use whimbrel_open::crypto::Seed;
use whimbrel_open::id::{Domain, OperatorId, Pseudonym, UserId};
use whimbrel_open::msg::{AnswerBody, AnswerT, Grant, Price, RefusalCause};

use super::PlantedFault;
use super::profile::{OpenFaults, SapLinks};
use crate::Rng;
use crate::open::{Asker, broker, epoch_key, home_network};

/// Answers of one batch, as in the program.
const BATCH_MAX: usize = 64;
/// From a request until a broker works on it.
const WORK_AFTER: Duration = Duration::from_micros(300);
/// Least latency between operator and broker.
const LATENCY_MIN: Duration = Duration::from_millis(3);

/// How a broker is lost, at the n-th batch that it works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerCrash {
    /// It has not taken the requests.
    BeforeWork,
    /// The batch is not durable.
    BeforeCommit,
    /// The batch is durable, and no answer has left.
    BeforeAnswers,
    /// Half of the answers have left.
    BetweenAnswers,
    /// All answers have left.
    AfterAnswers,
}

impl BrokerCrash {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::BeforeWork, Self::BeforeCommit, Self::BeforeAnswers, Self::BetweenAnswers, Self::AfterAnswers];
}

/// An operator of a run, by number.
pub(super) type OperatorIndex = usize;

/// An answer of a broker to an operator.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) operator: OperatorIndex,
    pub(super) to: Asker,
    pub(super) answer: BrokerAnswer,
}

#[derive(Debug)]
enum Due {
    Question {
        operator: OperatorIndex,
        from: Asker,
        broker: usize,
        octets: Vec<u8>,
    },
    Answer {
        broker: Option<usize>,
        arrival: Arrival,
    },
    /// A broker works on what waits. With the broker's life: one that was lost does not.
    Work(usize, u64),
    Commit(usize, u64),
    Starts(usize),
}

/// What survives a broker.
struct Database {
    users: BTreeMap<UserId, User>,
    home_users: BTreeMap<Supi, HomeUser>,
    /// Epochs whose keys are not destroyed, oldest first; the last one is the current.
    epochs: Vec<u8>,
    answers: BTreeMap<UserId, Record>,
    home_answers: BTreeMap<(OperatorId, [u8; 32]), Record>,
    granted: BTreeMap<Pseudonym, Grant>,
}

/// An answer that is to be durable before it leaves.
struct PendingAnswer {
    record: Record,
    ticket: u64,
    grant: Option<Grant>,
}

struct Batch {
    answers: Vec<(u64, Vec<u8>)>,
    records: Vec<PendingAnswer>,
    crash: Option<BrokerCrash>,
}

struct BrokerNode {
    domain: Domain,
    home: PlmnId,
    machine: Broker,
    database: Database,
    up: bool,
    life: u64,
    /// The batch that is being made durable: the thread does nothing else meanwhile.
    batch: Option<Batch>,
    batches: u64,
    crash: Option<(u64, BrokerCrash)>,
    /// It will work soon.
    awake: bool,
    asked: BTreeMap<u64, (OperatorIndex, Asker)>,
    requests: u64,
    entropy: Rng,
    entropy_seed: u64,
    price_cap: Price,
    suspects: BTreeSet<UserId>,
    /// The last answer that left, in whose place others may arrive.
    last: Option<Vec<u8>>,
}

/// What brokers have done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BrokerCounts {
    pub(super) grants: u64,
    pub(super) refusals: u64,
    pub(super) repeated: u64,
    pub(super) lost: u64,
}

/// The brokers, and what is under way between them and operators.
pub(super) struct Market {
    nodes: Vec<BrokerNode>,
    due: BTreeMap<(Instant, u64), Due>,
    sequence: u64,
    rng: Rng,
    /// Links that pass nothing, and until when; whether what is sent meanwhile is lost.
    cuts: BTreeMap<(OperatorIndex, usize), (Instant, bool)>,
    links: SapLinks,
    commit_max: Duration,
    downtime_max: Duration,
    credit_micros: u64,
    validity_s: u64,
    planted: Option<PlantedFault>,
    /// Requests that a broker has refused by a signed answer.
    refused: BTreeMap<[u8; 32], RefusalCause>,
    pub(super) counts: BrokerCounts,
}

impl Market {
    pub(super) fn new(
        homes: &[(Domain, PlmnId)],
        faults: &OpenFaults,
        planted: Option<PlantedFault>,
        seed: u64,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let node = |(domain, home): &(Domain, PlmnId)| {
            let machine = broker(domain, 1, *home);
            let entropy_seed = rng.draw();
            BrokerNode {
                domain: domain.clone(),
                home: *home,
                price_cap: machine.config.policy.price_cap,
                machine,
                database: Database {
                    users: BTreeMap::new(),
                    home_users: BTreeMap::new(),
                    epochs: vec![1],
                    answers: BTreeMap::new(),
                    home_answers: BTreeMap::new(),
                    granted: BTreeMap::new(),
                },
                up: true,
                life: 0,
                batch: None,
                batches: 0,
                crash: None,
                awake: false,
                asked: BTreeMap::new(),
                requests: 0,
                entropy: Rng::new(entropy_seed),
                entropy_seed,
                suspects: BTreeSet::new(),
                last: None,
            }
        };
        let nodes = homes.iter().map(node).collect();
        let mut market = Self {
            nodes,
            due: BTreeMap::new(),
            sequence: 0,
            rng,
            cuts: BTreeMap::new(),
            links: faults.sap,
            commit_max: faults.commit_max,
            downtime_max: faults.downtime_max,
            credit_micros: faults.credit_micros,
            validity_s: faults.validity_s,
            planted,
            refused: BTreeMap::new(),
            counts: BrokerCounts::default(),
        };
        (0..market.nodes.len()).for_each(|broker| market.configure(broker));
        market
    }

    /// The machine gets the policy, which is in the broker's configuration file.
    fn configure(&mut self, broker: usize) {
        let node = &mut self.nodes[broker];
        node.machine.set_home(home_network(node.home, self.credit_micros));
        let policy = &mut node.machine.config.policy;
        (policy.credit_micros, policy.validity_s) = (self.credit_micros, self.validity_s);
        policy.price_cap = node.price_cap;
        for user in &node.suspects {
            node.machine.set_suspect(*user, true);
        }
    }

    pub(super) fn add_user(&mut self, broker: usize, id: UserId, user: User) {
        let node = &mut self.nodes[broker];
        node.machine.set_user(id, user.clone());
        node.database.users.insert(id, user);
    }

    pub(super) fn add_home_user(&mut self, broker: usize, supi: Supi, user: HomeUser) {
        let node = &mut self.nodes[broker];
        node.machine.set_home_user(supi, user.clone());
        node.database.home_users.insert(supi, user);
    }

    pub(super) fn epoch(&self, broker: usize) -> whimbrel_open::msg::EpochKey {
        self.nodes[broker].machine.epoch()
    }

    /// What a broker has granted, durably.
    pub(super) fn granted(&self, grant: &Grant) -> Option<&Grant> {
        let node = self.nodes.iter().find(|n| n.domain == grant.broker)?;
        node.database.granted.get(&grant.pseudonym)
    }

    /// The next moment at which something is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    fn send(&mut self, at: Instant, due: Due) {
        self.sequence += 1;
        self.due.insert((at, self.sequence), due);
    }

    fn latency(&mut self) -> Duration {
        let range = self.links.latency_max.saturating_sub(LATENCY_MIN).as_micros() as u64;
        LATENCY_MIN + Duration::from_micros(self.rng.below(range + 1))
    }

    /// When a message over a link arrives that is sent now; `None` if it does not.
    fn arrives(&mut self, now: Instant, operator: OperatorIndex, broker: usize) -> Option<Instant> {
        let latency = self.latency();
        if self.rng.chance(self.links.lost) {
            return None;
        }
        match self.cuts.get(&(operator, broker)) {
            Some((until, true)) if *until > now => None,
            Some((until, false)) => Some(now.max(*until) + latency),
            _ => Some(now + latency),
        }
    }

    /// An operator asks a broker.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        operator: OperatorIndex,
        from: Asker,
        domain: &Domain,
        octets: &[u8],
    ) {
        let Some(broker) = self.nodes.iter().position(|n| n.domain == *domain) else {
            let answer = BrokerAnswer::Unreachable(Unreachable::NoAddress);
            let arrival = Arrival { operator, to: from, answer };
            return self.send(now + LATENCY_MIN, Due::Answer { broker: None, arrival });
        };
        let copies = 1 + u64::from(self.rng.chance(self.links.repeated));
        let question = || Due::Question { operator, from, broker, octets: octets.to_vec() };
        for _ in 0..copies {
            if let Some(at) = self.arrives(now, operator, broker) {
                self.send(at, question());
            }
        }
        if self.rng.chance(self.links.replayed) {
            let after = self.rng.below(SapLinks::REPLAYED_AFTER_MAX.as_micros() as u64);
            self.send(now + Duration::from_micros(after), question());
        }
    }

    /// The link between an operator and a broker passes nothing for a while.
    pub(super) fn cut(&mut self, operator: OperatorIndex, broker: usize, until: Instant, loses: bool) {
        self.cuts.insert((operator, broker), (until, loses));
    }

    /// A broker is lost at one of its next batches.
    pub(super) fn lose_at(&mut self, broker: usize, batches: u64, how: BrokerCrash) {
        let node = &mut self.nodes[broker];
        node.crash = Some((node.batches + batches, how));
    }

    /// What is due now happens. Gives the answers that arrive at operators.
    pub(super) fn step(&mut self, now: Instant) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        while let Some(((at, _), _)) = self.due.first_key_value()
            && *at <= now
        {
            let Some((_, due)) = self.due.pop_first() else { break };
            match due {
                Due::Question { operator, from, broker, octets } => {
                    self.asked(now, broker, (operator, from), octets);
                }
                Due::Answer { broker, mut arrival } => {
                    self.mix_up(broker, &mut arrival);
                    arrivals.push(arrival);
                }
                Due::Work(broker, life) if self.nodes[broker].life == life => self.work(now, broker),
                Due::Commit(broker, life) if self.nodes[broker].life == life => self.commit(now, broker),
                Due::Work(..) | Due::Commit(..) => {}
                Due::Starts(broker) => self.start(now, broker),
            }
        }
        arrivals
    }

    fn asked(&mut self, now: Instant, broker: usize, from: (OperatorIndex, Asker), octets: Vec<u8>) {
        let node = &mut self.nodes[broker];
        if !node.up {
            return self.unreachable(now, broker, from);
        }
        node.requests += 1;
        let request = node.requests;
        node.asked.insert(request, from);
        let origin = Origin { peer: Peer(from.0 as u64), request };
        if let Some((origin, output)) = node.machine.offer(origin, octets, now) {
            self.answer(now, broker, origin.request, output.octets);
        }
        self.wake(now, broker);
    }

    fn wake(&mut self, now: Instant, broker: usize) {
        let node = &mut self.nodes[broker];
        if node.awake || node.batch.is_some() || node.machine.admission().waiting() == (0, 0) {
            return;
        }
        node.awake = true;
        let life = node.life;
        self.send(now + WORK_AFTER, Due::Work(broker, life));
    }

    fn unreachable(&mut self, now: Instant, broker: usize, (operator, to): (OperatorIndex, Asker)) {
        let arrival = Arrival { operator, to, answer: BrokerAnswer::Unreachable(Unreachable::NotConnected) };
        let at = now + self.latency();
        self.send(at, Due::Answer { broker: Some(broker), arrival });
    }

    /// A batch of those that wait.
    fn work(&mut self, now: Instant, broker: usize) {
        let node = &mut self.nodes[broker];
        node.awake = false;
        node.batches += 1;
        let crash = node.crash.filter(|(at, _)| *at == node.batches).map(|(_, how)| how);
        if crash == Some(BrokerCrash::BeforeWork) {
            return self.lose(now, broker);
        }
        let mut batch = Batch { answers: Vec::new(), records: Vec::new(), crash };
        while batch.answers.len() < BATCH_MAX {
            let mut entropy = [0; 32];
            entropy[..16].copy_from_slice(&node.entropy.octets());
            entropy[16..].copy_from_slice(&node.entropy.octets());
            let Some((origin, output)) = node.machine.serve(now, &Seed::new(entropy)) else { break };
            let BrokerOutput { octets, event, record } = output;
            let refused = matches!(event, BrokerEvent::Refused { .. });
            self.counts.refusals += u64::from(refused);
            self.counts.repeated += u64::from(matches!(event, BrokerEvent::Repeated { .. }));
            let grant = match event {
                BrokerEvent::Granted(session) => Some(session.grant),
                _ => None,
            };
            if self.planted == Some(PlantedFault::RefusalNotDurable) && grant.is_none() && refused {
                batch.answers.push((origin.request, octets));
                continue;
            }
            if let Some(record) = record {
                let ticket = match &record {
                    Record::Attach(r) => node.machine.user(r.user).map_or(0, |user| user.ticket),
                    Record::Home(_) => 0,
                };
                batch.records.push(PendingAnswer { record, ticket, grant });
            }
            batch.answers.push((origin.request, octets));
        }
        let after = if batch.records.is_empty() {
            Duration::ZERO
        } else {
            Duration::from_micros(50 + self.rng.below(self.commit_max.as_micros() as u64))
        };
        if self.planted == Some(PlantedFault::AnswersBeforeCommit) {
            let early = std::mem::take(&mut batch.answers);
            early.into_iter().for_each(|(request, octets)| self.answer(now, broker, request, octets));
        }
        let node = &mut self.nodes[broker];
        node.batch = Some(batch);
        let life = node.life;
        self.send(now + after, Due::Commit(broker, life));
    }

    fn commit(&mut self, now: Instant, broker: usize) {
        let Some(Batch { mut answers, records, crash }) = self.nodes[broker].batch.take() else { return };
        if crash == Some(BrokerCrash::BeforeCommit) {
            return self.lose(now, broker);
        }
        for answered in records {
            self.write(broker, answered);
        }
        match crash {
            Some(BrokerCrash::BeforeAnswers) => answers.clear(),
            Some(BrokerCrash::BetweenAnswers) => answers.truncate(answers.len() / 2),
            _ => {}
        }
        for (request, octets) in answers {
            self.answer(now, broker, request, octets);
        }
        match crash {
            Some(_) => self.lose(now, broker),
            None => self.wake(now, broker),
        }
    }

    /// A record is durable.
    fn write(&mut self, broker: usize, PendingAnswer { record, ticket, grant }: PendingAnswer) {
        let Database { users, home_users, answers, home_answers, granted, .. } =
            &mut self.nodes[broker].database;
        match record {
            Record::Attach(r) => {
                if let Some(user) = users.get_mut(&r.user) {
                    user.counter = user.counter.max(r.counter);
                    user.ticket = user.ticket.max(ticket);
                }
                answers.insert(r.user, Record::Attach(r));
            }
            Record::Home(r) => {
                if let Some(user) = home_users.get_mut(&r.supi) {
                    user.sqn = user.sqn.max(r.sqn);
                }
                home_answers.insert((r.operator, r.request), Record::Home(r));
            }
        }
        let Some(grant) = grant else { return };
        self.counts.grants += 1;
        if let Some(cause) = self.refused.get(&grant.request) {
            panic!(
                "a signed refusal is final: the broker has granted a request that it had refused, {cause:?}"
            );
        }
        let before = granted.insert(grant.pseudonym, grant);
        assert!(before.is_none(), "no grant is used twice: a pseudonym is of one grant");
    }

    fn answer(&mut self, now: Instant, broker: usize, request: u64, octets: Vec<u8>) {
        if let Ok(AnswerT { body: AnswerBody::Refused(refusal), .. }) = AnswerT::parse(&octets) {
            self.refused.insert(refusal.request, refusal.cause);
        }
        let Some((operator, to)) = self.nodes[broker].asked.remove(&request) else { return };
        if let Some(at) = self.arrives(now, operator, broker) {
            let arrival = Arrival { operator, to, answer: BrokerAnswer::Octets(octets) };
            self.send(at, Due::Answer { broker: Some(broker), arrival });
        }
    }

    /// Another answer of the broker's arrives in place of this one.
    fn mix_up(&mut self, broker: Option<usize>, arrival: &mut Arrival) {
        let (Some(broker), BrokerAnswer::Octets(octets)) = (broker, &mut arrival.answer) else { return };
        let last = self.nodes[broker].last.replace(octets.clone());
        if self.links.mixed > 0
            && self.rng.chance(self.links.mixed)
            && let Some(last) = last
        {
            *octets = last;
        }
    }

    /// A broker is lost, with its connections.
    fn lose(&mut self, now: Instant, broker: usize) {
        self.counts.lost += 1;
        let node = &mut self.nodes[broker];
        (node.up, node.awake, node.batch, node.crash) = (false, false, None, None);
        node.life += 1;
        for from in std::mem::take(&mut node.asked).into_values() {
            self.unreachable(now, broker, from);
        }
        let down = Duration::from_micros(self.rng.below(self.downtime_max.as_micros() as u64 + 1));
        self.send(now + down, Due::Starts(broker));
    }

    /// A broker starts with what is in its database.
    fn start(&mut self, now: Instant, broker: usize) {
        let node = &mut self.nodes[broker];
        let Some((current, former)) = node.database.epochs.split_last() else { return };
        node.machine = self::broker(&node.domain, *current, node.home);
        for epoch in former {
            node.machine.keep_epoch(*epoch, epoch_key(&node.domain, *epoch));
        }
        for (id, user) in &node.database.users {
            node.machine.set_user(*id, user.clone());
        }
        for (supi, user) in &node.database.home_users {
            node.machine.set_home_user(*supi, user.clone());
        }
        let kept = |given: Instant| now.since(given) <= ANSWER_KEPT;
        let mut answers: Vec<(Instant, Record)> = Vec::new();
        for record in node.database.answers.values().chain(node.database.home_answers.values()) {
            let given = match record {
                Record::Attach(r) => r.given,
                Record::Home(r) => r.given,
            };
            if kept(given) {
                answers.push((given, record.clone()));
            }
        }
        answers.sort_by_key(|(given, _)| *given);
        answers.into_iter().for_each(|(_, record)| node.machine.restore(record));
        let seed = match self.planted {
            Some(PlantedFault::EntropyRepeats) => node.entropy_seed,
            _ => self.rng.draw(),
        };
        let node = &mut self.nodes[broker];
        node.entropy = Rng::new(seed);
        node.up = true;
        self.configure(broker);
    }

    /// A broker suspects a user, or does no longer.
    pub(super) fn suspect(&mut self, broker: usize, user: UserId, suspected: bool) {
        let node = &mut self.nodes[broker];
        if suspected {
            node.suspects.insert(user);
        } else {
            node.suspects.remove(&user);
        }
        node.machine.set_suspect(user, suspected);
    }

    /// A broker pays this price at most from now on.
    pub(super) fn cap_price(&mut self, broker: usize, micros: u32) {
        let node = &mut self.nodes[broker];
        node.price_cap = Price::new(*b"EUR", micros, micros).expect("a currency");
        node.machine.config.policy.price_cap = node.price_cap;
    }

    /// A broker begins an epoch and destroys the key of the one before the last.
    pub(super) fn begin_epoch(&mut self, broker: usize) {
        let node = &mut self.nodes[broker];
        let next = node.database.epochs.last().map_or(1, |last| last.wrapping_add(1));
        node.database.epochs.push(next);
        node.machine.begin_epoch(next, epoch_key(&node.domain, next));
        if node.database.epochs.len() > 2 {
            let ended = node.database.epochs.remove(0);
            node.machine.end_epoch(ended);
        }
    }

    /// Links pass all messages, and brokers serve everybody and stay.
    pub(super) fn heal(&mut self) {
        (self.links, self.downtime_max) = (SapLinks::GOOD, Duration::ZERO);
        self.cuts.clear();
        for broker in 0..self.nodes.len() {
            let node = &mut self.nodes[broker];
            node.crash = None;
            for user in std::mem::take(&mut node.suspects) {
                node.machine.set_suspect(user, false);
            }
            self.cap_price(broker, 1_000);
        }
        // A grant of seconds would end before the others have theirs.
        self.validity_s = 24 * 3600;
        (0..self.nodes.len()).for_each(|broker| self.configure(broker));
    }
}
