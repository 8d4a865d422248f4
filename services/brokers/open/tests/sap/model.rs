//! A bounded Dolev–Yao model of SAP, checked in every order, and tied to the machines (`real.rs`).
//!
//! The network is the attacker's: it hears, withholds, repeats and mixes all messages, and makes any that it has the keys for. It
//! is also a user of the broker (Eve), an operator with a valid certificate (T2) and a broker with a valid certificate (Mallory).
//! It knows the identity of Alice, except where that identity's secrecy is judged, and may learn either the broker's epoch key at
//! any time or an ephemeral key of Alice's after its session has begun. Honest are Alice, T1 and the broker.
//!
//! Terms are symbolic: a hash is what is hashed, a seal opens with its key, a signature covers the fields beside it.

use stateright::{Checker, HasDiscoveries, Model, Property};
use whimbrel_open::msg::RefusalCause;

use super::real::Real;

/// Declares plain symbolic terms.
macro_rules! terms {
    ($($(#[$doc:meta])* $kind:ident $name:ident { $($body:tt)* })+) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) $kind $name { $($body)* })+
    };
}

terms! {
    enum User { Alice, Eve }
    enum Op { T1, T2 }
    enum Bro { B, Mallory }
    /// An ephemeral key, by its owner and the run.
    enum Share { Alice(u8), T1(u8), Eve }
    /// The HPKE context of a request.
    enum Ctx { Alice(u8), Eve }
    enum Signer { B, Mallory, Eve }
    /// The shared secret of the broker's nth grant, or the attacker's own.
    enum Ss { B(u8), Eve }
    struct AuthReq {
        pub(crate) bro: Bro, pub(crate) ctx: Ctx, pub(crate) user: User, pub(crate) to: Op, pub(crate) counter: u8, pub(crate) share: Share,
        /// The signer of the fields above, and the context of the encapsulated key.
        pub(crate) signed_by: User, pub(crate) signed_ctx: Ctx,
    }
    struct Sig { pub(crate) by: Op, pub(crate) req: AuthReq, pub(crate) terms: u8, pub(crate) share: Share }
    struct Request { pub(crate) req: AuthReq, pub(crate) op: Op, pub(crate) terms: u8, pub(crate) share: Share, pub(crate) sig: Sig }
    struct Orders { pub(crate) to: Share, pub(crate) ss: Ss }
    struct Grant {
        pub(crate) bro: Bro, pub(crate) op: Op, pub(crate) terms: u8, pub(crate) req: AuthReq, pub(crate) user_share: Share, pub(crate) op_share: Share,
        pub(crate) orders: Orders,
    }
    struct Answer { pub(crate) cert: Bro, pub(crate) signer: Signer, pub(crate) grant: Grant, pub(crate) orders: Orders }
    struct AnswerU { pub(crate) ctx: Ctx, pub(crate) signer: Signer, pub(crate) grant: Grant, pub(crate) ss: Ss }
    struct Refusal { pub(crate) op: Op, pub(crate) req: AuthReq, pub(crate) signer: Signer }
    enum AliceState { Waiting, Tentative(Grant, Ss), Committed(Grant, Ss), Refused(Refusal) }
    struct AliceRun { pub(crate) to: Op, pub(crate) req: AuthReq, pub(crate) state: AliceState }
    struct T1Run { pub(crate) req: AuthReq, pub(crate) served: Option<(Grant, Ss)> }
    enum Leak { Nothing, Epoch, AliceShare(u8) }
    enum Act {
        Begin(Op), Forward(AuthReq), Ask(Request), Answer(u8, Answer), AnswerUser(u8, AnswerU), Refuse(u8, Refusal),
        Commit(u8), LeakEpoch, LeakShare(u8),
    }
    /// What the party that an act addresses makes of it.
    enum Verdict {
        Done, Accepted, Ignored, Rejected, Refused(RefusalCause), Repeated, Granted,
        /// The bounds of the model end here.
        Beyond,
    }
    /// A check of the protocol, or a part of it, that a mutation leaves out.
    enum Check {
        Sealing, Pseudonym, UserSignature, SignedContext, OperatorBinding, Counter, OperatorSignature, SignedRequest,
        SignedTerms, SignedShare, RejectionUnsigned, SignatureAtT, BrokerAtT, OperatorAtT, RequestAtT, ShareAtT, TermsAtT,
        OrdersAtT, SignatureAtU, OperatorAtU, RequestAtU, ShareAtU, Confirmation, RefusalSignature, RefusalOperator,
        RefusalRequest, SsInKey, DhInKey,
    }
}

const ALICE_RUNS: usize = 2;
const GRANTS: usize = 2;
const REFUSALS: usize = 1;
const OWN_TERMS: u8 = 0;
const OTHER_TERMS: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) alice: Vec<AliceRun>,
    pub(crate) t1: Vec<T1Run>,
    counters: [u8; 2],
    answered: [Option<(AuthReq, Op, u8, Share)>; 2],
    /// All messages that the broker has signed; the attacker has heard them.
    pub(crate) grants: Vec<Grant>,
    pub(crate) refusals: Vec<Refusal>,
    leak: Leak,
}

impl World {
    pub(crate) fn new() -> Self {
        let (alice, t1, grants, refusals) = Default::default();
        Self { alice, t1, counters: [0; 2], answered: [None; 2], grants, refusals, leak: Leak::Nothing }
    }

    fn knows_context(&self, ctx: Ctx) -> bool {
        ctx == Ctx::Eve || self.leak == Leak::Epoch
    }

    fn knows_share(&self, share: Share) -> bool {
        match share {
            Share::Eve => true,
            Share::Alice(run) => self.leak == Leak::AliceShare(run),
            Share::T1(_) => false,
        }
    }

    fn knows_ss(&self, ss: Ss) -> bool {
        match ss {
            Ss::Eve => true,
            Ss::B(n) => {
                let grant = &self.grants[usize::from(n)];
                self.knows_share(grant.orders.to) || self.knows_context(grant.req.ctx)
            }
        }
    }

    /// The requests of the user that the attacker has heard or can make.
    fn requests(&self) -> Vec<AuthReq> {
        let mut all: Vec<_> = self.alice.iter().map(|run| run.req).collect();
        let eve = |bro, user, to, counter| AuthReq {
            bro,
            ctx: Ctx::Eve,
            user,
            to,
            counter,
            share: Share::Eve,
            signed_by: User::Eve,
            signed_ctx: Ctx::Eve,
        };
        all.extend([eve(Bro::B, User::Eve, Op::T1, 1), eve(Bro::B, User::Eve, Op::T2, 1)]);
        all.extend([eve(Bro::B, User::Alice, Op::T1, 9), eve(Bro::Mallory, User::Eve, Op::T1, 1)]);
        // What Alice has signed, opened and sealed again.
        let opened = self.alice.iter().filter(|run| self.knows_context(run.req.ctx));
        all.extend(opened.map(|run| AuthReq { ctx: Ctx::Eve, ..run.req }));
        all
    }

    /// The requests of the operator that the attacker has heard or can make.
    fn asked(&self) -> Vec<Request> {
        let mut all = Vec::new();
        let requests = self.requests();
        let of_b = || requests.iter().copied().filter(|req| req.bro == Bro::B);
        for (run, t1) in (0..).zip(&self.t1) {
            let (terms, share) = (OWN_TERMS, Share::T1(run));
            let sig = Sig { by: Op::T1, req: t1.req, terms, share };
            let honest = Request { req: t1.req, op: Op::T1, terms, share, sig };
            all.extend([
                honest,
                Request { terms: OTHER_TERMS, ..honest },
                Request { share: Share::Eve, ..honest },
            ]);
            all.extend(of_b().map(|req| Request { req, ..honest }));
        }
        for op in [Op::T1, Op::T2] {
            let shares = (0..self.t1.len() as u8).map(Share::T1).chain([Share::Eve]);
            for share in shares.filter(|share| op == Op::T2 || *share == Share::Eve) {
                all.extend(of_b().map(|req| {
                    let sig = Sig { by: Op::T2, req, terms: OWN_TERMS, share };
                    Request { req, op, terms: OWN_TERMS, share, sig }
                }));
            }
        }
        all
    }

    /// The answers for a run of T1 that the attacker has heard or can make.
    fn answers(&self, run: u8) -> Vec<Answer> {
        let own = Orders { to: Share::T1(run), ss: Ss::Eve };
        let mut all = Vec::new();
        for &grant in &self.grants {
            let heard = Answer { cert: Bro::B, signer: Signer::B, grant, orders: grant.orders };
            all.extend([heard, Answer { orders: own, ..heard }]);
        }
        let req = self.t1[usize::from(run)].req;
        let grant = Grant {
            bro: Bro::Mallory,
            op: Op::T1,
            terms: OWN_TERMS,
            req,
            user_share: Share::Eve,
            op_share: Share::T1(run),
            orders: own,
        };
        let other = self.requests().into_iter().find(|other| *other != req).unwrap();
        let forged = Answer {
            cert: Bro::B,
            signer: Signer::Mallory,
            grant: Grant { bro: Bro::B, ..grant },
            orders: own,
        };
        all.push(forged);
        for grant in [
            grant,
            Grant { terms: OTHER_TERMS, ..grant },
            Grant { op: Op::T2, ..grant },
            Grant { req: other, ..grant },
            Grant { op_share: Share::Eve, ..grant },
        ] {
            all.push(Answer { cert: Bro::Mallory, signer: Signer::Mallory, grant, orders: own });
        }
        all
    }

    /// The answers for a run of Alice's that the attacker has heard or can make.
    fn user_answers(&self, run: u8) -> Vec<AnswerU> {
        let alice = &self.alice[usize::from(run)];
        let mut all = Vec::new();
        for (n, &grant) in (0..).zip(&self.grants) {
            all.push(AnswerU { ctx: grant.req.ctx, signer: Signer::B, grant, ss: Ss::B(n) });
            if self.knows_context(alice.req.ctx) {
                all.push(AnswerU { ctx: alice.req.ctx, signer: Signer::B, grant, ss: Ss::Eve });
            }
        }
        if self.knows_context(alice.req.ctx) {
            let orders = Orders { to: Share::Eve, ss: Ss::Eve };
            let (op, req, user_share) = (alice.to, alice.req, Share::Alice(run));
            let grant =
                Grant { bro: Bro::B, op, terms: OWN_TERMS, req, user_share, op_share: Share::Eve, orders };
            all.push(AnswerU { ctx: alice.req.ctx, signer: Signer::Eve, grant, ss: Ss::Eve });
        }
        all
    }

    fn user_refusals(&self, run: u8) -> Vec<Refusal> {
        let alice = &self.alice[usize::from(run)];
        let forged = Refusal { op: alice.to, req: alice.req, signer: Signer::Eve };
        self.refusals.iter().copied().chain([forged]).collect()
    }

    fn accepted(&self) -> impl Iterator<Item = (u8, &AliceRun, Grant, Ss)> {
        (0..).zip(&self.alice).filter_map(|(n, run)| match run.state {
            AliceState::Tentative(grant, ss) | AliceState::Committed(grant, ss) => Some((n, run, grant, ss)),
            AliceState::Waiting | AliceState::Refused(_) => None,
        })
    }

    fn served(&self) -> impl Iterator<Item = (u8, &T1Run, Grant, Ss)> {
        (0..).zip(&self.t1).filter_map(|(n, run)| run.served.map(|(grant, ss)| (n, run, grant, ss)))
    }
}

/// The protocol without some of its checks.
#[derive(Clone, Copy)]
pub(crate) struct Sap {
    without: &'static [Check],
    /// Runs of T1, which has more acts than others.
    t1_runs: usize,
}

impl Sap {
    const fn without(without: &'static [Check]) -> Self {
        Self { without, t1_runs: 2 }
    }
}

impl Sap {
    /// Whether a condition holds or is not checked.
    fn check(&self, check: Check, holds: bool) -> bool {
        holds || self.without.contains(&check)
    }

    fn knows_key(&self, w: &World, grant: &Grant, ss: Ss) -> bool {
        let dh = w.knows_share(grant.user_share) || w.knows_share(grant.op_share);
        self.check(Check::SsInKey, w.knows_ss(ss)) && self.check(Check::DhInKey, dh)
    }

    /// Does `act` and says what became of it.
    pub(crate) fn step(&self, w: &mut World, act: Act) -> Verdict {
        match act {
            Act::Begin(to) => {
                let run = w.alice.len() as u8;
                let (ctx, share) = (Ctx::Alice(run), Share::Alice(run));
                let (user, signed_by, signed_ctx) = (User::Alice, User::Alice, ctx);
                let req =
                    AuthReq { bro: Bro::B, ctx, user, to, counter: run + 1, share, signed_by, signed_ctx };
                w.alice.push(AliceRun { to, req, state: AliceState::Waiting });
                Verdict::Done
            }
            Act::Forward(req) => {
                w.t1.push(T1Run { req, served: None });
                Verdict::Done
            }
            Act::Ask(request) => self.ask(w, &request),
            Act::Answer(run, answer) => {
                if w.t1[usize::from(run)].served.is_none() && self.serves(w, run, &answer) {
                    w.t1[usize::from(run)].served = Some((answer.grant, answer.orders.ss));
                    Verdict::Accepted
                } else {
                    Verdict::Ignored
                }
            }
            Act::AnswerUser(run, answer) => {
                let alice = w.alice[usize::from(run)];
                if alice.state == AliceState::Waiting && self.believes(run, &alice, &answer) {
                    w.alice[usize::from(run)].state = AliceState::Tentative(answer.grant, answer.ss);
                    Verdict::Accepted
                } else {
                    Verdict::Ignored
                }
            }
            Act::Refuse(run, refusal) => {
                let alice = &mut w.alice[usize::from(run)];
                let believed = self.check(Check::RefusalSignature, refusal.signer == Signer::B)
                    && self.check(Check::RefusalOperator, refusal.op == alice.to)
                    && self.check(Check::RefusalRequest, refusal.req == alice.req);
                if alice.state == AliceState::Waiting && believed {
                    alice.state = AliceState::Refused(refusal);
                    Verdict::Accepted
                } else {
                    Verdict::Ignored
                }
            }
            Act::Commit(run) => {
                let AliceState::Tentative(grant, ss) = w.alice[usize::from(run)].state else {
                    return Verdict::Ignored;
                };
                // A right MAC is made by a T1 that has the same key, or by an attacker that knows it.
                let same = w.served().any(|(_, _, g, s)| (g, s) == (grant, ss));
                if self.check(Check::Confirmation, same || self.knows_key(w, &grant, ss)) {
                    w.alice[usize::from(run)].state = AliceState::Committed(grant, ss);
                    Verdict::Accepted
                } else {
                    Verdict::Ignored
                }
            }
            Act::LeakEpoch => {
                w.leak = Leak::Epoch;
                Verdict::Done
            }
            Act::LeakShare(run) => {
                w.leak = Leak::AliceShare(run);
                Verdict::Done
            }
        }
    }

    fn ask(&self, w: &mut World, q: &Request) -> Verdict {
        let signed = q.sig.by == q.op
            && self.check(Check::SignedRequest, q.sig.req == q.req)
            && self.check(Check::SignedTerms, q.sig.terms == q.terms)
            && self.check(Check::SignedShare, q.sig.share == q.share);
        if !self.check(Check::OperatorSignature, signed) {
            let unsigned = self.check(Check::RejectionUnsigned, false);
            return if unsigned { self.refuse(w, q, RefusalCause::OtherOperator) } else { Verdict::Rejected };
        }
        if q.req.bro != Bro::B {
            return Verdict::Rejected;
        }
        let context = self.check(Check::SignedContext, q.req.signed_ctx == q.req.ctx);
        if !self.check(Check::UserSignature, q.req.signed_by == q.req.user && context) {
            return self.refuse(w, q, RefusalCause::UserSignature);
        }
        if !self.check(Check::OperatorBinding, q.req.to == q.op) {
            return self.refuse(w, q, RefusalCause::OtherOperator);
        }
        let (user, key) = (q.req.user as usize, (q.req, q.op, q.terms, q.share));
        if w.answered[user] == Some(key) {
            return Verdict::Repeated;
        }
        if !self.check(Check::Counter, q.req.counter > w.counters[user]) {
            return self.refuse(w, q, RefusalCause::CounterUsed);
        }
        if w.grants.len() == GRANTS {
            return Verdict::Beyond;
        }
        let orders = Orders { to: q.share, ss: Ss::B(w.grants.len() as u8) };
        let (user_share, op_share) = (q.req.share, q.share);
        w.grants.push(Grant {
            bro: Bro::B,
            op: q.op,
            terms: q.terms,
            req: q.req,
            user_share,
            op_share,
            orders,
        });
        (w.answered[user], w.counters[user]) = (Some(key), q.req.counter);
        Verdict::Granted
    }

    fn refuse(&self, w: &mut World, q: &Request, cause: RefusalCause) -> Verdict {
        let refusal = Refusal { op: q.op, req: q.req, signer: Signer::B };
        // Only those of Alice's own requests are of use against her.
        let of_alice = matches!(q.req.ctx, Ctx::Alice(_));
        if !of_alice || w.refusals.contains(&refusal) {
            return Verdict::Refused(cause);
        }
        if w.refusals.len() == REFUSALS {
            return Verdict::Beyond;
        }
        w.refusals.push(refusal);
        Verdict::Refused(cause)
    }

    fn serves(&self, w: &World, run: u8, answer: &Answer) -> bool {
        let (req, grant) = (w.t1[usize::from(run)].req, &answer.grant);
        let signer = if answer.cert == Bro::B { Signer::B } else { Signer::Mallory };
        self.check(Check::SignatureAtT, answer.signer == signer)
            && self.check(Check::BrokerAtT, answer.cert == req.bro)
            && self.check(Check::OperatorAtT, grant.op == Op::T1)
            && self.check(Check::RequestAtT, grant.req == req)
            && self.check(Check::ShareAtT, grant.op_share == Share::T1(run))
            && self.check(Check::TermsAtT, grant.terms == OWN_TERMS)
            && self.check(Check::OrdersAtT, grant.orders == answer.orders)
            && answer.orders.to == Share::T1(run)
    }

    fn believes(&self, run: u8, alice: &AliceRun, answer: &AnswerU) -> bool {
        let grant = &answer.grant;
        answer.ctx == alice.req.ctx
            && self.check(Check::SignatureAtU, answer.signer == Signer::B)
            && self.check(Check::OperatorAtU, grant.op == alice.to)
            && self.check(Check::RequestAtU, grant.req == alice.req)
            && self.check(Check::ShareAtU, grant.user_share == Share::Alice(run))
    }
}

const USER_AGREES: &str = "what U accepts, B has granted, for this request and operator, once";
const BROKER_AGREES_WITH_USER: &str = "what B grants for U, U has asked for, once";
const OPERATOR_AGREES: &str = "what T serves, B has granted and ordered, once";
const OPERATORS_GRANT: &str = "a grant that T serves names T, its request, its terms and its share";
const BROKER_AGREES_WITH_OPERATOR: &str = "what B grants to T, T has asked for";
const SECRET: &str = "K_SEAF of U and T is secret";
const FORWARD_SECRET: &str = "K_SEAF stays secret when a key leaks";
const CONFIRMED: &str = "U commits only with the T that has the same grant and key";
const REFUSED: &str = "a refusal that U believes is B's, for this request, and T had asked";
const PRIVATE: &str = "T and the air do not learn idU";
const COMPLETES: &str = "an attach completes";

impl Sap {
    fn secret(&self, w: &World) -> bool {
        let at_user = w.accepted().filter(|(_, run, ..)| run.to == Op::T1).map(|(.., grant, ss)| (grant, ss));
        let asked = |req: AuthReq| w.alice.iter().any(|alice| alice.req == req);
        let at_t1 = w.served().filter(|(_, run, ..)| asked(run.req)).map(|(.., grant, ss)| (grant, ss));
        at_user.chain(at_t1).all(|(grant, ss)| !self.knows_key(w, &grant, ss))
    }
}

/// Whether no two are equal.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> bool {
    let all: Vec<_> = all.collect();
    all.iter().enumerate().all(|(n, one)| !all[..n].contains(one))
}

impl Model for Sap {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        vec![World::new()]
    }

    fn actions(&self, w: &World, acts: &mut Vec<Act>) {
        if w.alice.len() < ALICE_RUNS {
            acts.extend([Act::Begin(Op::T1), Act::Begin(Op::T2)]);
        }
        if w.t1.len() < self.t1_runs {
            acts.extend(w.requests().into_iter().map(Act::Forward));
        }
        acts.extend(w.asked().into_iter().map(Act::Ask));
        for run in 0..w.t1.len() as u8 {
            acts.extend(w.answers(run).into_iter().map(|a| Act::Answer(run, a)));
        }
        for run in 0..w.alice.len() as u8 {
            acts.extend(w.user_answers(run).into_iter().map(|a| Act::AnswerUser(run, a)));
            acts.extend(w.user_refusals(run).into_iter().map(|r| Act::Refuse(run, r)));
            acts.push(Act::Commit(run));
        }
        if w.leak == Leak::Nothing {
            acts.push(Act::LeakEpoch);
            acts.extend(w.accepted().map(|(run, ..)| Act::LeakShare(run)));
        }
    }

    fn next_state(&self, w: &World, act: Act) -> Option<World> {
        let mut next = w.clone();
        self.step(&mut next, act);
        (next != *w).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(USER_AGREES, |_, w: &World| {
                w.accepted().all(|(n, run, grant, _)| {
                    let own = (grant.req, grant.op, grant.user_share) == (run.req, run.to, Share::Alice(n));
                    own && w.grants.contains(&grant)
                }) && distinct(w.accepted().map(|(_, _, grant, _)| grant))
            }),
            Property::always(BROKER_AGREES_WITH_USER, |_, w: &World| {
                let of_alice = || w.grants.iter().filter(|grant| grant.req.user == User::Alice);
                let asked = |g: &Grant| w.alice.iter().any(|run| (run.req, run.to) == (g.req, g.op));
                of_alice().all(asked) && distinct(of_alice().map(|grant| grant.req))
            }),
            Property::always(OPERATOR_AGREES, |_, w: &World| {
                let of_b = || w.served().filter(|(_, run, ..)| run.req.bro == Bro::B);
                of_b().all(|(.., grant, ss)| w.grants.contains(&grant) && grant.orders.ss == ss)
                    && distinct(of_b().map(|(.., grant, _)| grant))
            }),
            Property::always(OPERATORS_GRANT, |_, w: &World| {
                w.served().all(|(n, run, grant, _)| {
                    let own = (Op::T1, run.req, OWN_TERMS, Share::T1(n));
                    (grant.op, grant.req, grant.terms, grant.op_share) == own
                })
            }),
            Property::always(BROKER_AGREES_WITH_OPERATOR, |_, w: &World| {
                let asked = |g: &Grant| {
                    (0..)
                        .zip(&w.t1)
                        .any(|(n, run)| (g.req, g.terms, g.op_share) == (run.req, OWN_TERMS, Share::T1(n)))
                };
                w.grants.iter().filter(|grant| grant.op == Op::T1).all(asked)
            }),
            Property::always(SECRET, |sap: &Sap, w: &World| w.leak != Leak::Nothing || sap.secret(w)),
            Property::always(FORWARD_SECRET, |sap: &Sap, w: &World| w.leak == Leak::Nothing || sap.secret(w)),
            Property::always(CONFIRMED, |_, w: &World| {
                w.alice.iter().all(|run| match run.state {
                    AliceState::Committed(grant, ss) if run.to == Op::T1 => {
                        w.served().any(|(_, _, g, s)| (g, s) == (grant, ss))
                    }
                    _ => true,
                })
            }),
            Property::always(REFUSED, |_, w: &World| {
                w.alice.iter().all(|run| {
                    let AliceState::Refused(refusal) = run.state else { return true };
                    let asked = refusal.op == Op::T2 || w.t1.iter().any(|t1| t1.req == run.req);
                    w.refusals.contains(&refusal) && (refusal.req, refusal.op) == (run.req, run.to) && asked
                })
            }),
            Property::always(PRIVATE, |sap: &Sap, w: &World| {
                let sealed = sap.check(Check::Sealing, false);
                let named = sap.check(Check::Pseudonym, false);
                // An epoch key that leaks opens the requests of its epoch, and says so in README.md.
                let opened = |req: &AuthReq| w.leak != Leak::Epoch && w.knows_context(req.ctx);
                let in_request = w.alice.iter().any(|run| sealed || opened(&run.req));
                !in_request && !w.grants.iter().any(|grant| grant.req.user == User::Alice && named)
            }),
            Property::sometimes(COMPLETES, |_, w: &World| {
                w.alice.iter().any(|run| run.to == Op::T1 && matches!(run.state, AliceState::Committed(..)))
            }),
        ]
    }
}

#[test] // the model of the protocol as it is
fn no_attack_within_the_bounds() {
    let checker = Sap::without(&[]).checker().threads(1).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

/// What the attacker does to break `property`.
fn attack(sap: Sap, property: &'static str) -> Option<Vec<Act>> {
    let found = HasDiscoveries::AnyOf([property].into());
    let checker = sap.checker().threads(1).finish_when(found).spawn_bfs().join();
    checker.discovery(property).map(|path| path.into_actions())
}

/// The attack on the protocol without `check` breaks `property`; at the machines, it fails with `refusal`.
fn attack_is_found_and_refused(check: &'static [Check], property: &'static str, refusal: &str) {
    let acts = attack(Sap::without(check), property).unwrap_or_else(|| panic!("{check:?} is not missed"));
    let (mut world, mut real) = (World::new(), Real::new());
    let mutated = Sap::without(check);
    for &act in &acts {
        let expected = mutated.step(&mut world.clone(), act);
        let (verdict, why) = real.act(&world, act);
        if verdict != expected {
            assert_eq!(why, refusal, "{check:?}: {acts:#?}");
            return;
        }
        mutated.step(&mut world, act);
    }
    panic!("the machines let through what is refused with {check:?}: {acts:#?}");
}

#[test]
fn every_check_at_the_broker_is_missed_when_it_is_left_out() {
    use Check::*;
    attack_is_found_and_refused(&[UserSignature], BROKER_AGREES_WITH_USER, "UserSignature");
    attack_is_found_and_refused(&[SignedContext], BROKER_AGREES_WITH_USER, "UserSignature");
    attack_is_found_and_refused(&[OperatorBinding], BROKER_AGREES_WITH_USER, "OtherOperator");
    attack_is_found_and_refused(&[Counter], BROKER_AGREES_WITH_USER, "CounterUsed");
    attack_is_found_and_refused(&[OperatorSignature], SECRET, "OperatorSignature");
    attack_is_found_and_refused(&[SignedRequest], BROKER_AGREES_WITH_OPERATOR, "OperatorSignature");
    attack_is_found_and_refused(&[SignedTerms], BROKER_AGREES_WITH_OPERATOR, "OperatorSignature");
    attack_is_found_and_refused(&[SignedShare], SECRET, "OperatorSignature");
    attack_is_found_and_refused(&[RejectionUnsigned], REFUSED, "OperatorSignature");
}

#[test]
fn every_check_at_the_operator_is_missed_when_it_is_left_out() {
    use Check::*;
    attack_is_found_and_refused(&[SignatureAtT], OPERATOR_AGREES, "BrokerSignature");
    attack_is_found_and_refused(&[BrokerAtT], OPERATOR_AGREES, "OtherBroker");
    attack_is_found_and_refused(&[OperatorAtT], OPERATORS_GRANT, "OtherOperator");
    attack_is_found_and_refused(&[RequestAtT], OPERATORS_GRANT, "OtherRequest");
    attack_is_found_and_refused(&[ShareAtT], OPERATORS_GRANT, "OtherShare");
    attack_is_found_and_refused(&[TermsAtT], OPERATORS_GRANT, "TermsNotOffered");
    attack_is_found_and_refused(&[OrdersAtT], OPERATOR_AGREES, "OtherOrders");
}

#[test]
fn every_check_at_the_user_is_missed_when_it_is_left_out() {
    use Check::*;
    attack_is_found_and_refused(&[SignatureAtU], USER_AGREES, "BrokerSignature");
    // Request and share stand for each other: neither alone is missed.
    attack_is_found_and_refused(&[RequestAtU, ShareAtU], USER_AGREES, "OtherRequest");
    attack_is_found_and_refused(&[Confirmation], CONFIRMED, "another key");
    attack_is_found_and_refused(&[RefusalSignature], REFUSED, "BrokerSignature");
    attack_is_found_and_refused(&[RefusalOperator], REFUSED, "OtherOperator");
    attack_is_found_and_refused(&[RefusalRequest], REFUSED, "OtherRequest");
}

#[test] // tied to the machines by `the_operator_reads_no_identity…` and `k_seaf_depends_on_each_of_its_parts`
fn every_part_of_the_keys_and_of_the_privacy_is_missed_when_it_is_left_out() {
    for (check, property) in [
        (&[Check::Sealing], PRIVATE),
        (&[Check::Pseudonym], PRIVATE),
        (&[Check::SsInKey], FORWARD_SECRET),
        (&[Check::DhInKey], FORWARD_SECRET),
    ] {
        assert!(attack(Sap::without(check), property).is_some(), "{check:?} is not missed");
    }
}

#[test] // these checks stand behind others, so an attack needs two of them to be left out
fn checks_at_the_user_that_stand_for_each_other_are_missed_together() {
    use Check::*;
    let attacked = |without| attack(Sap { without, t1_runs: 1 }, USER_AGREES).is_some();
    for one in [&[OperatorAtU], &[ShareAtU], &[RequestAtU]] {
        assert!(!attacked(one), "{one:?}");
    }
    for two in [&[OperatorAtU, OperatorBinding], &[ShareAtU, RequestAtU]] {
        assert!(attacked(two), "{two:?}");
    }
}

#[test]
fn the_machines_judge_as_the_model_does() {
    let sap = Sap::without(&[]);
    let (mut random, mut met) = (1u64, std::collections::BTreeMap::new());
    let mut below = |n: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % n
    };
    for _ in 0..60 {
        let (mut world, mut real) = (World::new(), Real::new());
        for _ in 0..14 {
            let mut acts = Vec::new();
            sap.actions(&world, &mut acts);
            // Every other act changes something, if one does.
            let changes = |act: &Act| sap.next_state(&world, *act).is_some();
            let changing: Vec<_> = acts.iter().copied().filter(changes).collect();
            let from = if below(3) > 0 && !changing.is_empty() { &changing } else { &acts };
            let act = from[below(from.len())];
            let before = world.clone();
            let verdict = sap.step(&mut world, act);
            if verdict == Verdict::Beyond {
                continue;
            }
            let (found, why) = real.act(&before, act);
            assert_eq!(found, verdict, "{why}: {act:#?} in {before:#?}");
            let kind = format!("{act:?}").split('(').next().unwrap().to_owned();
            *met.entry((kind, verdict)).or_insert(0) += 1;
        }
    }
    let acceptances = met.keys().filter(|(_, v)| matches!(v, Verdict::Accepted | Verdict::Granted)).count();
    let refusals = met.keys().filter(|(_, v)| matches!(v, Verdict::Refused(_) | Verdict::Rejected)).count();
    assert!(acceptances >= 4 && refusals >= 4, "{met:#?}");
}
