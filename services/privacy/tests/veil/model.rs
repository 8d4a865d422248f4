//! A bounded Dolev–Yao model of the veiled attach, checked in every order.
//!
//! The attacker is that of SAP's model (crate `open`): the network, which hears, withholds, repeats and mixes
//! all messages and makes any that it has the keys for; a user of the broker (Eve); and an operator with a
//! token of its own (O2). It may learn either the broker's epoch key at any time or an ephemeral key of
//! Alice's after she has accepted. Honest are Alice, O1 and the broker.
//!
//! Terms are symbolic: a hash is what is hashed, a seal opens for the owner of the key, a signature covers the fields beside it. Each check
//! is left out in turn, and the attack that appears is found; `attach.rs` has the machines refuse the same faults.

use stateright::{Checker, HasDiscoveries, Model, Property};

/// Declares plain symbolic terms.
macro_rules! terms {
    ($($(#[$doc:meta])* $kind:ident $name:ident { $($body:tt)* })+) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $kind $name { $($body)* })+
    };
}

terms! {
    enum User { Alice, Eve }
    /// A token, and the operator that owns it.
    enum Tok { O1, O2 }
    /// An ephemeral key, by its maker and the maker's run.
    enum Share { Alice(u8), O1(u8), Eve }
    /// The HPKE context of a user request.
    enum Ctx { Alice(u8), Eve }
    enum Signer { B, Eve }
    /// Half of the secret and challenge of the broker's nth grant, or the attacker's own.
    enum Nonce { B(u8), Eve }
    struct Req {
        ctx: Ctx, user: User, token: Tok, counter: u8, share: Share,
        /// The signer of the fields above, with the encapsulated key of which context.
        signed_by: User, signed_ctx: Ctx,
    }
    struct Sig { by: Tok, req: Req, group: Tok, share: Share }
    struct Ask { req: Req, group: Tok, share: Share, sig: Sig }
    struct Orders { to: Share, half: Nonce }
    struct Response { ctx: Ctx, challenge: Nonce, req: Req }
    struct Grant { group: Tok, req: Req, user_share: Share, op_share: Share, orders: Orders, expected: Response }
    struct Answer { signer: Signer, grant: Grant, orders: Orders }
    struct Challenge { ctx: Ctx, signer: Signer, grant: Grant, half: Nonce, challenge: Nonce }
    /// What a key is made of, beside the shares and the grant.
    struct Key { grant: Grant, half: Nonce, response: Response }
    enum AliceState { Waiting, Responded(Key), Committed(Key) }
    struct AliceRun { token: Tok, req: Req, state: AliceState }
    enum O1State { Waiting, Challenging(Answer), Serving(Key) }
    struct O1Run { req: Req, state: O1State }
    enum Leak { Nothing, Epoch, AliceShare(u8) }
    enum Act {
        Begin(Tok), Forward(Req), Asked(Ask), Answered(u8, Answer), Challenged(u8, Challenge), Responds(u8, Response), Commit(u8),
        LeakEpoch, LeakShare(u8),
    }
    /// A check of the protocol, or a part of it, that a mutation leaves out.
    enum Check {
        Sealing, Pseudonym, UserSignature, SignedContext, TokenBinding, Counter, TokenSignature, SignedRequest, SignedShare,
        SignatureAtO, GroupAtO, RequestAtO, ShareAtO, OrdersAtO, Expected, SignatureAtU, TokenAtU, RequestAtU, ShareAtU,
        Confirmation, HalfInKey, DhInKey, ResponseInKey,
    }
}

const ALICE_RUNS: usize = 2;
const GRANTS: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    alice: Vec<AliceRun>,
    o1: Vec<O1Run>,
    counters: [u8; 2],
    /// All messages that the broker has signed; the attacker has heard them.
    grants: Vec<Grant>,
    asked: Vec<(Req, Tok, Share)>,
    leak: Leak,
}

impl World {
    fn knows_context(&self, ctx: Ctx) -> bool {
        ctx == Ctx::Eve || self.leak == Leak::Epoch
    }

    fn knows_share(&self, share: Share) -> bool {
        match share {
            Share::Eve => true,
            Share::Alice(run) => self.leak == Leak::AliceShare(run),
            Share::O1(_) => false,
        }
    }

    fn knows_half(&self, half: Nonce) -> bool {
        let Nonce::B(n) = half else { return true };
        let grant = &self.grants[usize::from(n)];
        self.knows_share(grant.orders.to) || self.knows_context(grant.req.ctx)
    }

    /// A response is heard once it is sent, and made by the owner of its context.
    fn knows_response(&self, response: &Response) -> bool {
        self.knows_context(response.ctx) || self.responded().any(|(_, _, key)| key.response == *response)
    }

    fn responded(&self) -> impl Iterator<Item = (u8, &AliceRun, Key)> {
        (0..).zip(&self.alice).filter_map(|(n, run)| match run.state {
            AliceState::Responded(key) | AliceState::Committed(key) => Some((n, run, key)),
            AliceState::Waiting => None,
        })
    }

    fn serving(&self) -> impl Iterator<Item = (u8, &O1Run, Key)> {
        (0..).zip(&self.o1).filter_map(|(n, run)| match run.state {
            O1State::Serving(key) => Some((n, run, key)),
            O1State::Waiting | O1State::Challenging(_) => None,
        })
    }

    /// The user requests that the attacker has heard or can make.
    fn requests(&self) -> Vec<Req> {
        let mut all: Vec<_> = self.alice.iter().map(|run| run.req).collect();
        let eve = |user, token, counter| Req {
            ctx: Ctx::Eve,
            user,
            token,
            counter,
            share: Share::Eve,
            signed_by: User::Eve,
            signed_ctx: Ctx::Eve,
        };
        all.extend([eve(User::Eve, Tok::O1, 1), eve(User::Eve, Tok::O2, 1), eve(User::Alice, Tok::O1, 9)]);
        // What Alice has signed, opened and sealed again.
        let opened = self.alice.iter().filter(|run| self.knows_context(run.req.ctx));
        all.extend(opened.map(|run| Req { ctx: Ctx::Eve, ..run.req }));
        all
    }

    /// The operator requests that the attacker has heard or can make.
    fn asks(&self) -> Vec<Ask> {
        let mut all = Vec::new();
        let requests = self.requests();
        for (run, o1) in (0..).zip(&self.o1) {
            let (group, share) = (Tok::O1, Share::O1(run));
            let sig = Sig { by: Tok::O1, req: o1.req, group, share };
            let honest = Ask { req: o1.req, group, share, sig };
            all.extend([honest, Ask { share: Share::Eve, ..honest }]);
            all.extend(requests.iter().map(|&req| Ask { req, ..honest }));
        }
        for group in [Tok::O1, Tok::O2] {
            let shares = (0..self.o1.len() as u8).map(Share::O1).chain([Share::Eve]);
            for share in shares.filter(|share| group == Tok::O2 || *share == Share::Eve) {
                all.extend(requests.iter().map(|&req| {
                    let sig = Sig { by: Tok::O2, req, group, share };
                    Ask { req, group, share, sig }
                }));
            }
        }
        all
    }

    /// The answers for a run of O1 that the attacker has heard or can make.
    fn answers(&self, run: u8) -> Vec<Answer> {
        let own = Orders { to: Share::O1(run), half: Nonce::Eve };
        let req = self.o1[usize::from(run)].req;
        let mut all = Vec::new();
        for &grant in &self.grants {
            let heard = Answer { signer: Signer::B, grant, orders: grant.orders };
            all.extend([heard, Answer { orders: own, ..heard }]);
        }
        let expected = Response { ctx: Ctx::Eve, challenge: Nonce::Eve, req };
        let (user_share, op_share) = (Share::Eve, Share::O1(run));
        let grant = Grant { group: Tok::O1, req, user_share, op_share, orders: own, expected };
        all.push(Answer { signer: Signer::Eve, grant, orders: own });
        all
    }

    /// The challenges for a run of Alice's that the attacker has heard or can make.
    fn challenges(&self, run: u8) -> Vec<Challenge> {
        let alice = &self.alice[usize::from(run)];
        let (ctx, req) = (alice.req.ctx, alice.req);
        let mut all = Vec::new();
        for (n, &grant) in (0..).zip(&self.grants) {
            let (half, challenge) = (Nonce::B(n), Nonce::B(n));
            all.push(Challenge { ctx: grant.req.ctx, signer: Signer::B, grant, half, challenge });
            if self.knows_context(ctx) {
                let (half, challenge) = (Nonce::Eve, grant.expected.challenge);
                all.push(Challenge { ctx, signer: Signer::B, grant, half, challenge });
            }
        }
        if self.knows_context(ctx) {
            let orders = Orders { to: Share::Eve, half: Nonce::Eve };
            let expected = Response { ctx, challenge: Nonce::Eve, req };
            let (user_share, op_share) = (Share::Alice(run), Share::Eve);
            let grant = Grant { group: alice.token, req, user_share, op_share, orders, expected };
            let (half, challenge) = (Nonce::Eve, Nonce::Eve);
            all.push(Challenge { ctx, signer: Signer::Eve, grant, half, challenge });
        }
        all
    }

    /// The responses for a run of O1 that the attacker has heard or can make.
    fn responses(&self, run: u8) -> Vec<Response> {
        let O1State::Challenging(answer) = self.o1[usize::from(run)].state else { return Vec::new() };
        let heard = self.responded().map(|(_, _, key)| key.response);
        let own = Response { ctx: Ctx::Eve, ..answer.grant.expected };
        let made = self.knows_context(answer.grant.expected.ctx).then_some(answer.grant.expected);
        heard.chain([own]).chain(made).collect()
    }
}

/// The protocol without some of its checks.
#[derive(Clone, Copy)]
struct Veil {
    without: &'static [Check],
    /// Runs of O1.
    o1_runs: usize,
}

impl Veil {
    const fn without(without: &'static [Check]) -> Self {
        Self { without, o1_runs: 2 }
    }

    /// Whether a condition holds or is not checked.
    fn check(&self, check: Check, holds: bool) -> bool {
        holds || self.without.contains(&check)
    }

    fn knows_key(&self, w: &World, key: &Key) -> bool {
        let dh = w.knows_share(key.grant.user_share) || w.knows_share(key.grant.op_share);
        self.check(Check::HalfInKey, w.knows_half(key.half))
            && self.check(Check::DhInKey, dh)
            && self.check(Check::ResponseInKey, w.knows_response(&key.response))
    }

    fn step(&self, w: &mut World, act: Act) {
        match act {
            Act::Begin(token) => {
                let run = w.alice.len() as u8;
                let (ctx, share) = (Ctx::Alice(run), Share::Alice(run));
                let (user, signed_by, signed_ctx) = (User::Alice, User::Alice, ctx);
                let req = Req { ctx, user, token, counter: run + 1, share, signed_by, signed_ctx };
                w.alice.push(AliceRun { token, req, state: AliceState::Waiting });
            }
            Act::Forward(req) => w.o1.push(O1Run { req, state: O1State::Waiting }),
            Act::Asked(ask) => self.ask(w, &ask),
            Act::Answered(run, answer) => {
                let o1 = &mut w.o1[usize::from(run)];
                if o1.state == O1State::Waiting && self.takes(run, o1.req, &answer) {
                    o1.state = O1State::Challenging(answer);
                }
            }
            Act::Challenged(run, challenge) => {
                let alice = &mut w.alice[usize::from(run)];
                let (ctx, req) = (alice.req.ctx, alice.req);
                if alice.state == AliceState::Waiting && self.believes(run, alice, &challenge) {
                    let response = Response { ctx, challenge: challenge.challenge, req };
                    let key = Key { grant: challenge.grant, half: challenge.half, response };
                    alice.state = AliceState::Responded(key);
                }
            }
            Act::Responds(run, response) => {
                let o1 = &mut w.o1[usize::from(run)];
                let O1State::Challenging(answer) = o1.state else { return };
                if self.check(Check::Expected, response == answer.grant.expected) {
                    let Answer { grant, orders, .. } = answer;
                    o1.state = O1State::Serving(Key { grant, half: orders.half, response });
                }
            }
            Act::Commit(run) => {
                let AliceState::Responded(key) = w.alice[usize::from(run)].state else { return };
                // A right MAC is made by an O1 that has the same key, or by an attacker that knows it.
                let same = w.serving().any(|(_, _, other)| other == key);
                if self.check(Check::Confirmation, same || self.knows_key(w, &key)) {
                    w.alice[usize::from(run)].state = AliceState::Committed(key);
                }
            }
            Act::LeakEpoch => w.leak = Leak::Epoch,
            Act::LeakShare(run) => w.leak = Leak::AliceShare(run),
        }
    }

    fn ask(&self, w: &mut World, ask: &Ask) {
        let signed = self.check(Check::TokenSignature, ask.sig.by == ask.group)
            && self.check(Check::SignedRequest, ask.sig.req == ask.req)
            && self.check(Check::SignedShare, ask.sig.share == ask.share);
        let req = ask.req;
        let user = self.check(Check::UserSignature, req.signed_by == req.user)
            && self.check(Check::SignedContext, req.signed_ctx == req.ctx)
            && self.check(Check::TokenBinding, req.token == ask.group);
        let repeated = w.asked.contains(&(req, ask.group, ask.share));
        let unused = self.check(Check::Counter, req.counter > w.counters[req.user as usize]);
        if !signed || !user || repeated || !unused || w.grants.len() == GRANTS {
            return;
        }
        let n = w.grants.len() as u8;
        let orders = Orders { to: ask.share, half: Nonce::B(n) };
        let expected = Response { ctx: req.ctx, challenge: Nonce::B(n), req };
        let (group, user_share, op_share) = (ask.group, req.share, ask.share);
        w.grants.push(Grant { group, req, user_share, op_share, orders, expected });
        w.asked.push((req, ask.group, ask.share));
        w.counters[req.user as usize] = req.counter;
    }

    fn takes(&self, run: u8, req: Req, answer: &Answer) -> bool {
        let grant = &answer.grant;
        self.check(Check::SignatureAtO, answer.signer == Signer::B)
            && self.check(Check::GroupAtO, grant.group == Tok::O1)
            && self.check(Check::RequestAtO, grant.req == req)
            && self.check(Check::ShareAtO, grant.op_share == Share::O1(run))
            && self.check(Check::OrdersAtO, grant.orders == answer.orders)
            && answer.orders.to == Share::O1(run)
    }

    fn believes(&self, run: u8, alice: &AliceRun, challenge: &Challenge) -> bool {
        let grant = &challenge.grant;
        let expected = Response { ctx: alice.req.ctx, challenge: challenge.challenge, req: alice.req };
        challenge.ctx == alice.req.ctx
            && self.check(Check::SignatureAtU, challenge.signer == Signer::B)
            && self.check(Check::TokenAtU, grant.group == alice.token)
            && self.check(Check::RequestAtU, grant.req == alice.req && grant.expected == expected)
            && self.check(Check::ShareAtU, grant.user_share == Share::Alice(run))
    }

    fn secret(&self, w: &World) -> bool {
        let at_user = w.responded().filter(|(_, run, _)| run.token == Tok::O1).map(|(.., key)| key);
        let asked = |req: Req| w.alice.iter().any(|alice| alice.req == req);
        let at_o1 = w.serving().filter(|(_, run, _)| asked(run.req)).map(|(.., key)| key);
        at_user.chain(at_o1).all(|key| !self.knows_key(w, &key))
    }
}

const USER_AGREES: &str = "what U responds to, B has granted, for this request and token, once";
const BROKER_AGREES_WITH_USER: &str = "what B grants for U, U has asked for, at this token, once";
const OPERATOR_AGREES: &str =
    "what O serves, B has granted and ordered, for this token, request and share, once";
const BROKER_AGREES_WITH_OPERATOR: &str = "what B grants to a token, its owner has asked for";
const PRESENT: &str = "no operator has a key for a user that has not responded";
const SECRET: &str = "K_SEAF of U and O is secret";
const FORWARD_SECRET: &str = "K_SEAF stays secret when a key leaks";
const CONFIRMED: &str = "U commits only with the O that has the same key";
const PRIVATE: &str = "O and the air do not learn idU";
const COMPLETES: &str = "an attach completes";

/// Whether no two are equal.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> bool {
    let all: Vec<_> = all.collect();
    all.iter().enumerate().all(|(n, one)| !all[..n].contains(one))
}

impl Model for Veil {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let (alice, o1, grants, asked) = Default::default();
        vec![World { alice, o1, counters: [0; 2], grants, asked, leak: Leak::Nothing }]
    }

    fn actions(&self, w: &World, acts: &mut Vec<Act>) {
        if w.alice.len() < ALICE_RUNS {
            acts.extend([Act::Begin(Tok::O1), Act::Begin(Tok::O2)]);
        }
        if w.o1.len() < self.o1_runs {
            // O1 passes on what is for its token.
            acts.extend(w.requests().into_iter().filter(|req| req.token == Tok::O1).map(Act::Forward));
        }
        acts.extend(w.asks().into_iter().map(Act::Asked));
        for run in 0..w.o1.len() as u8 {
            acts.extend(w.answers(run).into_iter().map(|a| Act::Answered(run, a)));
            acts.extend(w.responses(run).into_iter().map(|r| Act::Responds(run, r)));
        }
        for run in 0..w.alice.len() as u8 {
            acts.extend(w.challenges(run).into_iter().map(|c| Act::Challenged(run, c)));
            acts.push(Act::Commit(run));
        }
        if w.leak == Leak::Nothing {
            acts.push(Act::LeakEpoch);
            acts.extend(w.responded().map(|(run, ..)| Act::LeakShare(run)));
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
                w.responded().all(|(n, run, key)| {
                    let grant = key.grant;
                    let own =
                        (grant.req, grant.group, grant.user_share) == (run.req, run.token, Share::Alice(n));
                    own && w.grants.contains(&grant)
                }) && distinct(w.responded().map(|(.., key)| key.grant))
            }),
            Property::always(BROKER_AGREES_WITH_USER, |_, w: &World| {
                let of_alice = || w.grants.iter().filter(|grant| grant.req.user == User::Alice);
                let asked = |g: &Grant| w.alice.iter().any(|run| (run.req, run.token) == (g.req, g.group));
                of_alice().all(asked) && distinct(of_alice().map(|grant| grant.req))
            }),
            Property::always(OPERATOR_AGREES, |_, w: &World| {
                w.serving().all(|(n, run, key)| {
                    let grant = key.grant;
                    let own = (grant.group, grant.req, grant.op_share) == (Tok::O1, run.req, Share::O1(n));
                    own && w.grants.contains(&grant) && grant.orders.half == key.half
                }) && distinct(w.serving().map(|(.., key)| key.grant))
            }),
            Property::always(BROKER_AGREES_WITH_OPERATOR, |_, w: &World| {
                let asked = |g: &Grant| {
                    (0..).zip(&w.o1).any(|(n, run)| (g.req, g.op_share) == (run.req, Share::O1(n)))
                };
                w.grants.iter().filter(|grant| grant.group == Tok::O1).all(asked)
            }),
            Property::always(PRESENT, |veil: &Veil, w: &World| {
                let asked = |grant: &&Grant| w.alice.iter().any(|run| run.req == grant.req);
                let responded = |grant: &Grant| w.responded().any(|(.., key)| key.response == grant.expected);
                let has_key = |grant: &Grant| {
                    let key = Key { grant: *grant, half: grant.orders.half, response: grant.expected };
                    let serves = w.serving().any(|(.., key)| key.grant == *grant);
                    serves || grant.group == Tok::O2 && veil.knows_key(w, &key)
                };
                let absent = |grant: &&Grant| asked(grant) && !responded(grant);
                w.leak == Leak::Epoch || w.grants.iter().filter(absent).all(|grant| !has_key(grant))
            }),
            Property::always(SECRET, |veil: &Veil, w: &World| w.leak != Leak::Nothing || veil.secret(w)),
            Property::always(FORWARD_SECRET, |veil: &Veil, w: &World| {
                w.leak == Leak::Nothing || veil.secret(w)
            }),
            Property::always(CONFIRMED, |_, w: &World| {
                w.alice.iter().all(|run| match run.state {
                    AliceState::Committed(key) if run.token == Tok::O1 => {
                        w.serving().any(|(_, _, other)| other == key)
                    }
                    _ => true,
                })
            }),
            Property::always(PRIVATE, |veil: &Veil, w: &World| {
                let sealed = veil.check(Check::Sealing, false);
                let named = veil.check(Check::Pseudonym, false);
                // An epoch key that leaks opens the requests of its epoch.
                let opened = |req: &Req| w.leak != Leak::Epoch && w.knows_context(req.ctx);
                let in_request = w.alice.iter().any(|run| sealed || opened(&run.req));
                !in_request && !w.grants.iter().any(|grant| grant.req.user == User::Alice && named)
            }),
            Property::sometimes(COMPLETES, |_, w: &World| {
                w.alice
                    .iter()
                    .any(|run| run.token == Tok::O1 && matches!(run.state, AliceState::Committed(_)))
            }),
        ]
    }
}

#[test]
fn no_attack_within_the_bounds() {
    let checker = Veil::without(&[]).checker().threads(1).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

/// Whether the attacker breaks `property`.
fn attacked(veil: Veil, property: &'static str) -> bool {
    let found = HasDiscoveries::AnyOf([property].into());
    let checker = veil.checker().threads(1).finish_when(found).spawn_bfs().join();
    checker.discovery(property).is_some()
}

#[test]
fn every_check_and_every_part_of_the_key_is_missed_when_it_is_left_out() {
    use Check::*;
    let mutations: [(&'static [Check], &'static str); 18] = [
        (&[UserSignature], BROKER_AGREES_WITH_USER),
        (&[SignedContext], BROKER_AGREES_WITH_USER),
        (&[TokenBinding], BROKER_AGREES_WITH_USER),
        (&[Counter], BROKER_AGREES_WITH_USER),
        (&[TokenSignature], SECRET),
        (&[SignedRequest], BROKER_AGREES_WITH_OPERATOR),
        (&[SignedShare], SECRET),
        (&[SignatureAtO], OPERATOR_AGREES),
        (&[GroupAtO, TokenBinding], OPERATOR_AGREES),
        (&[RequestAtO, SignedRequest], OPERATOR_AGREES),
        (&[OrdersAtO], OPERATOR_AGREES),
        (&[Expected], PRESENT),
        (&[SignatureAtU], USER_AGREES),
        (&[RequestAtU, ShareAtU], USER_AGREES),
        (&[Confirmation], CONFIRMED),
        (&[ResponseInKey], PRESENT),
        (&[HalfInKey], FORWARD_SECRET),
        (&[DhInKey], FORWARD_SECRET),
    ];
    for (without, property) in mutations {
        assert!(attacked(Veil::without(without), property), "{without:?} is not missed");
    }
    for part in [&[Sealing], &[Pseudonym]] {
        assert!(attacked(Veil::without(part), PRIVATE), "{part:?} is not missed");
    }
}

#[test] // these checks stand behind others: an attack needs two of them to be left out, and O's share is in its orders' seal too
fn checks_that_stand_for_each_other_are_not_missed_alone() {
    use Check::*;
    for (one, property) in [
        (&[TokenAtU], USER_AGREES),
        (&[ShareAtU], USER_AGREES),
        (&[RequestAtU], USER_AGREES),
        (&[GroupAtO], OPERATOR_AGREES),
        (&[RequestAtO], OPERATOR_AGREES),
        (&[ShareAtO], OPERATOR_AGREES),
    ] {
        assert!(!attacked(Veil { without: one, o1_runs: 1 }, property), "{one:?}");
    }
    assert!(attacked(Veil { without: &[TokenAtU, TokenBinding], o1_runs: 1 }, USER_AGREES));
}
