//! Attaches with real cryptography, and every bad input that a party may meet (chapter 4.4.2).

use whimbrel_broker_common::crypto::{PrivateKey, Share};
use whimbrel_privacy::broker::{Broker, BrokerEvent, Record};
use whimbrel_privacy::crypto::Response;
use whimbrel_privacy::msg::{
    Answer, AnswerBody, Challenge, FailureCause, OperatorOrders, OperatorRequest, RefusalCause, Rejection,
    SignedGrant, SignedRefusal, UserRequest, UserVector,
};
use whimbrel_privacy::operator::{Challenging, Group, OperatorAttach, OperatorError, Question};
use whimbrel_privacy::token::TokenTag;
use whimbrel_privacy::user::{UserAttach, UserError, UserSim};

use crate::world::*;

/// Now, in these tests: once tokens have rested.
fn now() -> whimbrel_ids::Instant {
    at(AGE_S)
}

struct Net {
    sim: UserSim,
    broker: Broker,
    group: Group,
    run: u64,
}

impl Net {
    fn new() -> Self {
        let mut broker = broker();
        let group = open_group(&mut broker);
        Self { sim: sim("alice", ALICE, &broker), broker, group, run: 0 }
    }

    fn ask(&mut self) -> (UserAttach, UserRequest) {
        self.run += 1;
        UserAttach::begin(&mut self.sim, self.group.hash(), &seed("u", self.run)).unwrap()
    }

    fn pass(&self, request: UserRequest) -> (OperatorAttach, Question) {
        OperatorAttach::ask(contract(), request, &seed("o", self.run)).unwrap()
    }

    fn answer(&mut self, octets: &[u8]) -> (Vec<u8>, BrokerEvent) {
        let output = self.broker.attach(octets, now(), &seed("b", self.run));
        (output.octets, output.event)
    }

    /// Up to the operator's judgement of the broker's answer.
    fn attach(&mut self) -> Result<(UserAttach, Challenging), OperatorError> {
        let (user, request) = self.ask();
        let (operator, question) = self.pass(request);
        let (answer, _) = self.answer(&question.sign(&self.group).unwrap());
        operator.answer(&answer, now()).map(|challenging| (user, challenging))
    }

    /// The cause of a refusal that is the same for the operator and the user.
    fn refused(&mut self) -> RefusalCause {
        let (user, request) = self.ask();
        let (operator, question) = self.pass(request);
        let (answer, event) = self.answer(&question.sign(&self.group).unwrap());
        let Err(OperatorError::Refused(refusal)) = operator.answer(&answer, now()) else {
            panic!("{event:?}")
        };
        assert_eq!(user.refusal(&refusal.to_octets()).as_ref(), Ok(&*refusal));
        refusal.cause
    }

    fn rejected(&mut self, octets: &[u8], at: whimbrel_ids::Instant) -> Rejection {
        let output = self.broker.attach(octets, at, &seed("b", 0));
        let BrokerEvent::Rejected(cause) = output.event else { panic!("{:?}", output.event) };
        assert!(output.record.is_none());
        cause
    }
}

#[test]
fn user_and_operator_have_the_same_key_after_challenge_and_response() {
    let mut net = Net::new();
    let mut alice = user("alice");
    (alice.class, alice.prepaid, alice.intercept) = (1, true, true);
    net.broker.set_user(ALICE, alice);
    let (user, request) = net.ask();
    let (operator, question) = net.pass(request);
    assert_eq!(Question::parse(&question.to_octets()).as_ref(), Ok(&question));
    let (answer, event) = net.answer(&question.sign(&net.group).unwrap());
    let BrokerEvent::Granted(at_broker) = event else { panic!("{event:?}") };
    let challenging = operator.answer(&answer, now()).unwrap();
    let responding = user.challenge(&challenging.challenge().to_octets(), now()).unwrap();
    let session = challenging.respond(responding.response()).unwrap();
    assert_eq!(responding.k_seaf(), &session.k_seaf);
    // QoS of the class, an equal slice, intercept, filters of the class, and how often to ask for later orders.
    let grant = &session.grant.grant;
    assert_eq!((grant.qos.dl_kbps, grant.slice_octets), (20_000, Some(10_000_000)));
    assert_eq!((session.intercept, session.poll_s, &session.filters[..]), (true, 2, &[filter()][..]));
    // The serving network is the broker's.
    assert_eq!(grant.network, net.sim.network);
    assert_eq!(responding.grant().supi(), grant.supi());
    // By the user's response the operator shows the broker later that the user was there.
    assert_eq!(session.presence.expected(), at_broker.grant.expected);
    assert_eq!(at_broker.user, ALICE);
    assert_eq!(responding.commit(user, &mut net.sim).grant, *grant);
}

#[test]
fn the_operator_has_no_key_without_the_response_of_this_user() {
    let mut net = Net::new();
    let (first, challenging) = net.attach().unwrap();
    let (second, other) = net.attach().unwrap();
    for response in [
        Response::new([0; 32]),
        second.challenge(&other.challenge().to_octets(), now()).unwrap().response().clone(),
    ] {
        assert_eq!(challenging.respond(&response).unwrap_err(), OperatorError::Response);
    }
    let responding = first.challenge(&challenging.challenge().to_octets(), now()).unwrap();
    assert!(challenging.respond(responding.response()).is_ok());
}

#[test]
fn the_same_request_gets_the_same_answer_and_another_one_does_not_use_its_counter() {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let (_, question) = net.pass(request.clone());
    let octets = question.sign(&net.group).unwrap();
    let first = net.broker.attach(&octets, now(), &seed("b", 1));
    let again = net.broker.attach(&octets, now(), &seed("b", 2));
    assert_eq!(first.octets, again.octets);
    assert!(matches!(again.event, BrokerEvent::Repeated) && again.record.is_none());
    // The same request of the user's under another share of the operator's: the user has asked once.
    let share = PrivateKey::new([9; 32]).share();
    let other = Question { request, share }.sign(&net.group).unwrap();
    let event = net.answer(&other).1;
    assert!(matches!(event, BrokerEvent::Refused(RefusalCause::CounterUsed)), "{event:?}");
    // A broker that has the records alone answers alike.
    let mut restarted = broker();
    let opened = open_group_records(&mut restarted);
    assert_eq!(opened, net.group.hash());
    restarted.restore(first.record.unwrap());
    assert_eq!(restarted.attach(&octets, now(), &seed("b", 3)).octets, first.octets);
    let event = restarted.attach(&other, now(), &seed("b", 4)).event;
    assert!(matches!(event, BrokerEvent::Refused(RefusalCause::CounterUsed)), "{event:?}");
    restarted.forget(at(AGE_S + 61));
    assert_eq!(restarted.kept().1, 0);
}

/// Restores the same open group by its record alone.
fn open_group_records(broker: &mut Broker) -> whimbrel_privacy::token::TokenHash {
    let mut first = crate::world::broker();
    let mut wallet = wallet();
    fill(&mut wallet, &mut first, 1, NOW, 1);
    let (group, record) = spend(&mut wallet, &mut first, at(AGE_S), 1);
    assert!(matches!(record, Record::Opened { .. }));
    broker.restore(record);
    group.hash()
}

#[test]
fn two_instances_of_a_ue_may_overtake_each_other() {
    let mut net = Net::new();
    let (_, first) = net.ask();
    let (_, second) = net.ask();
    for request in [second, first] {
        let (_, question) = net.pass(request);
        let event = net.answer(&question.sign(&net.group).unwrap()).1;
        assert!(matches!(event, BrokerEvent::Granted(_)), "{event:?}");
        net.run += 1;
    }
}

#[test]
fn the_broker_refuses_what_is_wrong_with_the_user_and_says_no_more_than_that() {
    let mut net = Net::new();
    assert_eq!(net.ask().1.to_octets().len(), net.ask().1.to_octets().len());
    let signing = net.sim.signing.clone();
    net.sim.signing = key("eve");
    assert_eq!(net.refused(), RefusalCause::User);
    net.sim.signing = signing;
    let known = net.sim.user;
    net.sim.user.0[0] ^= 1;
    assert_eq!(net.refused(), RefusalCause::User);
    net.sim.user = known;
    let mut alice = user("alice");
    alice.class = 9;
    net.broker.set_user(ALICE, alice);
    assert_eq!(net.refused(), RefusalCause::User);
    net.broker.set_user(ALICE, user("alice"));
    net.sim.epoch.id += 1;
    assert_eq!(net.refused(), RefusalCause::UnknownKey);
    net.sim.epoch.id -= 1;
    let right = net.sim.epoch.public;
    net.sim.epoch.public = PrivateKey::new([5; 32]).share();
    assert_eq!(net.refused(), RefusalCause::Envelope);
    net.sim.epoch.public = right;
    net.sim.counter = 3;
    net.attach().unwrap();
    net.sim.counter = 3;
    assert_eq!(net.refused(), RefusalCause::CounterUsed);
    net.broker.revoke_user(ALICE);
    assert_eq!(net.refused(), RefusalCause::User);
}

#[test]
fn a_request_for_another_token_is_not_served() {
    let mut net = Net::new();
    let mut other = net.group.hash();
    other.0[0] ^= 1;
    let (_, request) = UserAttach::begin(&mut net.sim, other, &seed("u", 8)).unwrap();
    let (_, question) = net.pass(request);
    assert!(question.sign(&net.group).is_none());
    // A token that only looks alike: the tag is the same, the rest is not; what the user has sealed says so to the broker.
    let mut alike = net.group.hash();
    alike.0[31] ^= 1;
    let (user, request) = UserAttach::begin(&mut net.sim, alike, &seed("u", 9)).unwrap();
    let (_, question) = net.pass(request);
    let (answer, event) = net.answer(&question.sign(&net.group).unwrap());
    assert!(matches!(event, BrokerEvent::Refused(RefusalCause::OtherToken)), "{event:?}");
    let AnswerBody::Refused(refusal) = Answer::parse(&answer).unwrap().0 else { panic!() };
    assert_eq!(user.refusal(&refusal.to_octets()), Err(UserError::OtherToken));
}

#[test]
fn a_request_without_an_open_group_is_rejected() {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let (_, question) = net.pass(request);
    let good = OperatorRequest::parse(&question.sign(&net.group).unwrap()).unwrap();
    let octets = good.to_octets();
    assert_eq!(net.rejected(&octets[1..], now()), Rejection::Malformed);
    let mut unknown = good.clone();
    unknown.group.0[0] ^= 1;
    assert_eq!(net.rejected(&unknown.to_octets(), now()), Rejection::UnknownGroup);
    let stolen = OperatorRequest::signed(good.request.clone(), good.group, good.share, &key("operator 2"));
    assert_eq!(net.rejected(&stolen.to_octets(), now()), Rejection::TokenSignature);
    let moved = OperatorRequest { share: PrivateKey::new([9; 32]).share(), ..good.clone() };
    assert_eq!(net.rejected(&moved.to_octets(), now()), Rejection::TokenSignature);
    assert_eq!(net.rejected(&octets, at(AGE_S + 61)), Rejection::GroupOver);
    let text = octets.windows(9).position(|w| w == b"b.example").unwrap();
    let mut other = octets.clone();
    other[text] = b'c';
    assert_eq!(net.rejected(&other, now()), Rejection::OtherBroker);
    assert!(matches!(net.answer(&octets).1, BrokerEvent::Granted(_)));
}

#[test]
fn a_share_of_small_order_is_refused() {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let weak = Question { request, share: Share([0; 32]) };
    let event = net.answer(&weak.sign(&net.group).unwrap()).1;
    assert!(matches!(event, BrokerEvent::Refused(RefusalCause::WeakShare)), "{event:?}");
    // The user's share within the sealed vector.
    let (mut sim, group) = (net.sim.clone(), net.group.hash());
    sim.counter += 10;
    let (request, _) =
        UserRequest::seal(domain(), &sim.epoch, TokenTag::new(&group), &seed("u", 77), |head| {
            UserVector::signed(head, (ALICE, group, sim.counter), [0; 16], Share([0; 32]), &sim.signing)
        })
        .unwrap();
    let (_, question) = net.pass(request);
    let event = net.answer(&question.sign(&net.group).unwrap()).1;
    assert!(matches!(event, BrokerEvent::Refused(RefusalCause::WeakShare)), "{event:?}");
}

#[test]
fn the_operator_takes_no_altered_answer() {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let (operator, question) = net.pass(request);
    let (octets, _) = net.answer(&question.sign(&net.group).unwrap());
    let AnswerBody::Granted { grant, orders, challenge } = Answer::parse(&octets).unwrap().0 else {
        panic!()
    };
    let judge = |grant: SignedGrant, orders: &[u8]| {
        let challenge = challenge.clone();
        let octets = Answer(AnswerBody::Granted { grant, orders: orders.into(), challenge }).to_octets();
        operator.answer(&octets, now()).map(|_| ()).unwrap_err()
    };
    let resigned = |change: &dyn Fn(&mut SignedGrant)| {
        let mut grant = grant.clone();
        change(&mut grant);
        SignedGrant::sign(grant.grant, &key("broker"))
    };
    let mut unsigned = grant.clone();
    unsigned.grant.qos.dl_kbps += 1;
    assert_eq!(judge(unsigned, &orders), OperatorError::BrokerSignature);
    type Change<'a> = (&'a dyn Fn(&mut SignedGrant), OperatorError);
    let changes: [Change<'_>; 7] = [
        (&|g| g.grant.broker = "c.example".parse().unwrap(), OperatorError::OtherBroker),
        (
            &|g| g.grant.network = whimbrel_ids::PlmnId::from_nas_octets([0x00, 0xf1, 0x10]).unwrap(),
            OperatorError::OtherNetwork,
        ),
        (&|g| g.grant.group.0[0] ^= 1, OperatorError::OtherGroup),
        (&|g| g.grant.request[0] ^= 1, OperatorError::OtherRequest),
        (&|g| g.grant.operator_share.0[0] ^= 1, OperatorError::OtherShare),
        (&|g| g.grant.validity.until = NOW_S - 1_000, OperatorError::NotValidNow),
        (&|g| g.grant.orders[0] ^= 1, OperatorError::OtherOrders),
    ];
    for (change, error) in changes {
        assert_eq!(judge(resigned(change), &orders), error);
    }
    // Orders that the broker signed but that do not open for this request.
    let mut garbled = orders.clone();
    garbled[40] ^= 1;
    let of_garbled = resigned(&|g| g.grant.orders = whimbrel_privacy::crypto::hash(&[&garbled]));
    assert_eq!(judge(of_garbled, &garbled), OperatorError::Orders);
    assert!(operator.answer(&octets, now()).is_ok());
}

#[test]
fn the_user_takes_no_challenge_of_another_attach_and_only_the_broker_reads_the_cause() {
    let mut net = Net::new();
    let (first, of_first) = net.attach().unwrap();
    let (second, of_second) = net.attach().unwrap();
    let (good, replayed) = (of_first.challenge().to_octets(), of_second.challenge().to_octets());
    let error = first.challenge(&replayed, now()).unwrap_err();
    assert_eq!(error, UserError::Sealed);
    // Of another UE, garbled, or of no UE at all: the same.
    let mut eve = Net::new();
    (eve.sim, eve.run) = (sim("eve", EVE, &eve.broker), 50);
    let (_, of_eve) = eve.attach().unwrap();
    let mut garbled = Challenge::parse(&good).unwrap();
    garbled.sealed[9] ^= 1;
    for octets in [of_eve.challenge().to_octets(), garbled.to_octets(), replayed] {
        let error = first.challenge(&octets, now()).unwrap_err();
        assert_eq!(error, UserError::Sealed);
    }
    let late = first.challenge(&good, at(AGE_S + 3_600 + 301)).unwrap_err();
    assert_eq!(late, UserError::NotValidNow);
    // What goes out is of one length and shows the operator nothing; the broker reads the cause.
    let failures = [(&error, FailureCause::Sealed), (&late, FailureCause::NotValidNow)];
    let sent: Vec<_> =
        (0..).zip(failures).map(|(n, (error, _))| first.fail(error, &seed("f", n)).unwrap()).collect();
    for (failure, (_, cause)) in sent.iter().zip(failures) {
        let octets = failure.to_octets();
        assert_eq!(octets.len(), whimbrel_privacy::msg::Failure::OCTETS);
        let (read, _) = net.broker.failure(&octets).unwrap();
        assert_eq!(read, cause);
    }
    assert!(second.challenge(&of_second.challenge().to_octets(), now()).is_ok());
    assert!(first.challenge(&good, now()).is_ok());
}

#[test]
fn the_user_takes_no_refusal_of_another_request() {
    let mut net = Net::new();
    let (user, request) = net.ask();
    let (hash, group) = (request.hash(), net.group.hash());
    let sign = |broker: &str, group, hash, by: &str| {
        let broker = broker.parse().unwrap();
        SignedRefusal::sign(broker, RefusalCause::User, group, hash, None, &key(by)).to_octets()
    };
    let mut other = group;
    other.0[9] ^= 1;
    for (octets, error) in [
        (sign("b.example", group, hash, "eve"), UserError::BrokerSignature),
        (sign("c.example", group, hash, "broker"), UserError::OtherBroker),
        (sign("b.example", other, hash, "broker"), UserError::OtherToken),
        (sign("b.example", group, [0; 32], "broker"), UserError::OtherRequest),
    ] {
        assert_eq!(user.refusal(&octets), Err(error));
    }
    assert!(user.refusal(&sign("b.example", group, hash, "broker")).is_ok());
}

#[test]
fn a_new_epoch_key_reaches_the_user_and_does_not_show_in_the_length() {
    let mut net = Net::new();
    let (_, before) = net.attach().unwrap();
    net.broker.begin_epoch(EPOCH + 1, PrivateKey::new([8; 32]));
    let (user, challenging) = net.attach().unwrap();
    assert_eq!(challenging.challenge().to_octets().len(), before.challenge().to_octets().len());
    let responding = user.challenge(&challenging.challenge().to_octets(), now()).unwrap();
    responding.commit(user, &mut net.sim);
    assert_eq!(net.sim.epoch, net.broker.epoch());
    net.broker.end_epoch(EPOCH);
    assert!(net.attach().is_ok());
}

#[test]
fn a_suci_carries_the_request() {
    let (_, request) = Net::new().ask();
    let read = UserRequest::from_scheme_output(domain(), request.key_id(), &request.to_scheme_output());
    assert_eq!(read, Ok(request));
}

#[test]
fn what_the_operator_reads_is_alike_for_all_users_of_a_class() {
    // Sealed orders are of one length with and without filters.
    let key = whimbrel_privacy::msg::AnswerKey([1; 32]);
    let share = PrivateKey::new([4; 32]).share();
    let of = |filters: usize| {
        let filters = vec![filter(); filters];
        let orders = OperatorOrders { half: [0; 32], intercept: false, poll_s: 2, filters };
        orders.seal(&share, &key, &seed("s", 1)).unwrap().len()
    };
    assert_eq!(of(0), OperatorOrders::SEALED_OCTETS);
    assert_eq!(of(8), OperatorOrders::SEALED_OCTETS);
    // Two users of a class: the grants differ in random parts and in none that depends on the user.
    let mut net = Net::new();
    let (_, alice) = net.attach().unwrap();
    net.sim = sim("eve", EVE, &net.broker);
    let (_, eve) = net.attach().unwrap();
    let plain = |c: &Challenging| {
        let g = &c.grant().grant;
        (g.broker.clone(), g.network, g.group, g.qos, g.validity.from, g.validity.until, g.slice_octets)
    };
    assert_eq!(plain(&alice), plain(&eve));
    assert_ne!(alice.grant().grant.pseudonym, eve.grant().grant.pseudonym);
}
