//! The symbolic acts of the model, done with real keys and octets to the real machines.

use std::collections::BTreeMap;

use whimbrel_open::broker::{Broker, BrokerEvent};
use whimbrel_open::crypto::{self, PrivateKey, SharedSecret, SigningKey};
use whimbrel_open::id::{OperatorId, Pseudonym};
use whimbrel_open::msg::{
    self, AnswerBody, AnswerKey, AnswerT, AuthReqT, AuthReqU, Certificate, EpochKey, OperatorOrders,
    RefusalCause, SignedGrant, SignedRefusal, UserAnswer, UserVector,
};
use whimbrel_open::operator::{Operator, OperatorAttach, OperatorSession};
use whimbrel_open::user::{TentativeSession, UserAttach, UserSim};

use super::model::{
    Act, AuthReq, Bro, Ctx, Grant, Op, Orders, Refusal, Request, Share, Signer, Ss, User, Verdict, World,
};
use super::world::*;

pub(crate) struct Real {
    sim: UserSim,
    t1: Operator,
    broker: Broker,
    /// Alice's runs: the attach while it waits, its request, and what came of it.
    alice: Vec<(Option<UserAttach>, AuthReqU, Option<TentativeSession>)>,
    /// T1's runs, alike.
    t1_runs: Vec<(Option<OperatorAttach>, AuthReqT, Option<OperatorSession>)>,
    /// What the broker has granted.
    grants: Vec<(SignedGrant, Box<[u8]>, msg::AnswerU)>,
    refusals: Vec<SignedRefusal>,
    /// The attacker's requests: the same term is the same octets.
    made: BTreeMap<AuthReq, AuthReqU>,
    steps: u64,
}

const MALLORY: &str = "mallory.example";

fn eve() -> PrivateKey {
    PrivateKey::new([0xee; 32])
}

fn id(op: Op) -> OperatorId {
    if op == Op::T1 { t1() } else { t2() }
}

fn certificate(op: Op) -> Certificate {
    if op == Op::T1 { operator_certificate(t1(), "t1") } else { operator_certificate(t2(), "t2") }
}

fn name(bro: Bro) -> &'static str {
    if bro == Bro::B { "b.example" } else { MALLORY }
}

fn signer(signer: Signer) -> SigningKey {
    key(match signer {
        Signer::B => "b.example",
        Signer::Mallory => MALLORY,
        Signer::Eve => "eve",
    })
}

fn price(terms: u8) -> msg::Terms {
    super::world::terms(200 + u32::from(terms))
}

impl Real {
    pub(crate) fn new() -> Self {
        let broker = broker("b.example");
        let (alice, t1_runs, grants, refusals, made) = Default::default();
        let (sim, t1) = (sim("alice", ALICE, &broker), operator(t1(), "t1"));
        Self { sim, t1, broker, alice, t1_runs, grants, refusals, made, steps: 0 }
    }

    /// Does what the model does in `world`. Gives the verdict and, of a refusal, the reason.
    pub(crate) fn act(&mut self, world: &World, act: Act) -> (Verdict, String) {
        self.steps += 1;
        match act {
            Act::Begin(to) => {
                let (attach, request) =
                    UserAttach::begin(&mut self.sim, id(to), &seed("u", self.steps)).unwrap();
                self.alice.push((Some(attach), request, None));
                (Verdict::Done, String::new())
            }
            Act::Forward(req) => {
                let request = self.request(req);
                let (attach, asked) = OperatorAttach::begin(&self.t1, request, NOW, &seed("t", self.steps));
                self.t1_runs.push((Some(attach), AuthReqT::parse(&asked).unwrap(), None));
                (Verdict::Done, String::new())
            }
            Act::Ask(request) => self.ask(&request),
            Act::Answer(run, answer) => {
                let orders = self.orders(run, answer.orders);
                let grant = self.grant(world, answer.grant, answer.signer, &orders);
                let certificate = broker_certificate(name(answer.cert));
                let answer_u = msg::AnswerU { salt: [0; 16], sealed: Box::new([]) };
                let octets = AnswerT { certificate, body: AnswerBody::Granted { grant, orders, answer_u } }
                    .to_octets();
                let (attach, _, session) = &mut self.t1_runs[usize::from(run)];
                let Some(waiting) = attach else { return (Verdict::Ignored, "served".to_owned()) };
                match waiting.answer(&octets, &self.t1.trust, NOW) {
                    Ok(served) => {
                        (*attach, *session) = (None, Some(served));
                        (Verdict::Accepted, String::new())
                    }
                    Err(e) => (Verdict::Ignored, format!("{e:?}")),
                }
            }
            Act::AnswerUser(run, answer) => {
                let octets = self.user_answer(world, answer).to_octets();
                let (attach, _, session) = &mut self.alice[usize::from(run)];
                let (Some(waiting), None) = (attach, &session) else {
                    return (Verdict::Ignored, "over".to_owned());
                };
                match waiting.answer(&octets, NOW) {
                    Ok(tentative) => {
                        *session = Some(tentative);
                        (Verdict::Accepted, String::new())
                    }
                    Err(e) => (Verdict::Ignored, format!("{e:?}")),
                }
            }
            Act::Refuse(run, refusal) => {
                let octets = self.refusal(world, refusal).to_octets();
                let (attach, _, session) = &mut self.alice[usize::from(run)];
                let (Some(waiting), None) = (&attach, session) else {
                    return (Verdict::Ignored, "over".to_owned());
                };
                match waiting.refusal(&octets) {
                    Ok(_) => {
                        *attach = None;
                        (Verdict::Accepted, String::new())
                    }
                    Err(e) => (Verdict::Ignored, format!("{e:?}")),
                }
            }
            Act::Commit(run) => self.commit(world, usize::from(run)),
            Act::LeakEpoch | Act::LeakShare(_) => (Verdict::Done, String::new()),
        }
    }

    /// The MAC of SECURITY MODE COMMAND is right if it is made under the key that the user has derived: by T1, or by the attacker.
    fn commit(&mut self, world: &World, run: usize) -> (Verdict, String) {
        let (attach, _, session) = &mut self.alice[run];
        let (Some(_), Some(tentative)) = (&attach, &session) else {
            return (Verdict::Ignored, "nothing".to_owned());
        };
        let mut served = self.t1_runs.iter().filter_map(|(_, _, session)| session.as_ref());
        let by_t1 = served.any(|served| served.k_seaf == *tentative.k_seaf());
        let by_attacker = world.alice[run].to == Op::T2 && self.attacker_has(run);
        let (attach, _, session) = &mut self.alice[run];
        if by_t1 || by_attacker {
            let (attach, tentative) = (attach.take().unwrap(), session.take().unwrap());
            tentative.commit(attach, &mut self.sim);
            (Verdict::Accepted, String::new())
        } else {
            (Verdict::Ignored, "another key".to_owned())
        }
    }

    /// True if the attacker, as T2, can derive the key of Alice's run from the broker's answer: by the
    /// machine of the operator, whose ephemeral key is the attacker's.
    fn attacker_has(&self, run: usize) -> bool {
        let hash = self.alice[run].1.hash();
        self.grants.iter().any(|(signed, orders, _)| {
            let grant = &signed.grant;
            let key = AnswerKey::new(&hash, t2(), &grant.terms, &grant.operator_share);
            grant.request == hash && OperatorOrders::open(&eve(), &key, orders).is_some()
        })
    }

    fn ask(&mut self, q: &Request) -> (Verdict, String) {
        let request = self.request(q.req);
        let (terms, share) = (price(q.terms), self.share(q.share));
        let mut asked =
            AuthReqT::signed(request, certificate(q.op), id(q.op), (terms, share), NOW, &key("t2"));
        if q.sig.by == Op::T1 {
            let Share::T1(run) = q.sig.share else { panic!("T1 signs its own shares") };
            asked.signature = self.t1_runs[usize::from(run)].1.signature;
        }
        let output = self.broker.answer(&asked.to_octets(), NOW, &seed("b", self.steps));
        match output.event {
            BrokerEvent::Rejected(cause) => (Verdict::Rejected, format!("{cause:?}")),
            BrokerEvent::Refused { cause, .. } => {
                let AnswerBody::Refused(refusal) = AnswerT::parse(&output.octets).unwrap().body else {
                    panic!()
                };
                let known = |r: &SignedRefusal| (r.asker, r.request) == (refusal.asker, refusal.request);
                if !self.refusals.iter().any(known) {
                    self.refusals.push(refusal);
                }
                (Verdict::Refused(cause), format!("{cause:?}"))
            }
            BrokerEvent::Repeated { .. } => (Verdict::Repeated, String::new()),
            BrokerEvent::Granted(_) => {
                let body = AnswerT::parse(&output.octets).unwrap().body;
                let AnswerBody::Granted { grant, orders, answer_u } = body else { panic!() };
                self.grants.push((grant, orders, answer_u));
                (Verdict::Granted, String::new())
            }
            BrokerEvent::Challenged { .. } => panic!("no request here is for a challenge"),
        }
    }

    fn vector(&self, run: u8) -> (UserVector, crypto::Exporter) {
        let (plain, exporter) = self.alice[usize::from(run)].1.open(&epoch_key("b.example")).unwrap();
        (UserVector::parse(&plain).unwrap(), exporter)
    }

    fn share(&self, share: Share) -> crypto::Share {
        match share {
            Share::Alice(run) => self.vector(run).0.share,
            Share::T1(run) => self.t1_runs[usize::from(run)].1.share,
            Share::Eve => eve().share(),
        }
    }

    fn request(&mut self, req: AuthReq) -> AuthReqU {
        if let Ctx::Alice(run) = req.ctx {
            return self.alice[usize::from(run)].1.clone();
        }
        if let Some(made) = self.made.get(&req) {
            return made.clone();
        }
        let epoch = EpochKey { id: EPOCH, public: epoch_key(name(req.bro)).share() };
        let copied = match req.signed_ctx {
            Ctx::Alice(run) => Some(self.vector(run).0),
            Ctx::Eve => None,
        };
        let user = if req.user == User::Alice { ALICE } else { EVE };
        let identity = (user, id(req.to), u64::from(req.counter));
        let seed = seed("eve", self.made.len() as u64);
        let (made, _) = AuthReqU::seal(domain(name(req.bro)), &epoch, None, &seed, |head| {
            copied.unwrap_or_else(|| UserVector::signed(head, identity, [0; 16], eve().share(), &key("eve")))
        })
        .unwrap();
        self.made.insert(req, made.clone());
        made
    }

    fn orders(&mut self, run: u8, orders: Orders) -> Box<[u8]> {
        if let Ss::B(n) = orders.ss {
            return self.grants[usize::from(n)].1.clone();
        }
        let asked = &self.t1_runs[usize::from(run)].1;
        let key = AnswerKey::new(&asked.request.hash(), t1(), &asked.terms, &asked.share);
        let own = OperatorOrders { ss: SharedSecret::new([0xee; 32]), intercept: false, filters: Vec::new() };
        own.seal(&self.share(orders.to), &key, &seed("eve", 0)).unwrap()
    }

    fn grant(&mut self, world: &World, grant: Grant, by: Signer, orders: &[u8]) -> SignedGrant {
        if let (Signer::B, Some(n)) = (by, world.grants.iter().position(|g| *g == grant)) {
            return self.grants[n].0.clone();
        }
        let real = msg::Grant {
            broker: domain(name(grant.bro)),
            pseudonym: Pseudonym([0xee; 16]),
            operator: id(grant.op),
            terms: price(grant.terms),
            qos: user("eve").qos,
            validity: VALIDITY,
            credit_micros: 1,
            request: self.request(grant.req).hash(),
            user_share: self.share(grant.user_share),
            operator_share: self.share(grant.op_share),
            orders: crypto::hash(orders),
        };
        SignedGrant::sign(real, &signer(by))
    }

    fn user_answer(&mut self, world: &World, answer: super::model::AnswerU) -> msg::AnswerU {
        if let Ss::B(n) = answer.ss {
            return self.grants[usize::from(n)].2.clone();
        }
        let Ctx::Alice(run) = answer.ctx else { panic!("the attacker has no use for its own context") };
        let grant = self.grant(world, answer.grant, answer.signer, b"");
        let ss = SharedSecret::new([0xee; 32]);
        let plain = UserAnswer { grant, ss, ticket: None, next_key: None }.to_octets();
        let (_, exporter) = self.vector(run);
        msg::AnswerU { salt: [0xee; 16], sealed: exporter.seal(&[0xee; 16], &plain).into() }
    }

    fn refusal(&mut self, world: &World, refusal: Refusal) -> SignedRefusal {
        let request = self.request(refusal.req).hash();
        if world.refusals.contains(&refusal) {
            let same = |r: &&SignedRefusal| (r.asker, r.request) == (id(refusal.op), request);
            return self.refusals.iter().find(same).expect("B refused it").clone();
        }
        let by = signer(refusal.signer);
        SignedRefusal::sign(
            domain("b.example"),
            RefusalCause::UserRevoked,
            id(refusal.op),
            request,
            None,
            &by,
        )
    }
}
