//! Ordinary 3GPP UEs of a broker's (class 2): 5G-AKA with real cryptography, and what each party may meet.

use whimbrel_ids::{Instant, PlmnId, Supi};
use whimbrel_open::broker::{ANSWER_KEPT, Broker, BrokerEvent, BrokerOutput, Home, HomeUser, Record};
use whimbrel_open::id::UserId;
use whimbrel_open::msg::{
    AnswerBody, AnswerT, Confirmation, Price, Qos, RefusalCause, Rejection, Resynchronisation, Subscriber,
};
use whimbrel_open::operator::{HomeAttach, HomeSession, Operator, OperatorAttach, OperatorError};
use whimbrel_open::user::UserAttach;
use whimbrel_security::{
    AkaFunctions, AuthenticationFailure, Autn, HomeNetworkKeys, HomeNetworkPrivateKey, K, Milenage, Opc,
    Rand, ServingNetworkName, Sqn, UeAuthentication, Usim, UsimSqn,
};

use super::world::*;

fn home() -> PlmnId {
    "999/71".parse().unwrap()
}

fn supi() -> Supi {
    Supi::from_digits([9, 9, 9, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap()
}

fn functions() -> AkaFunctions {
    Milenage::new(&K::new([0x46; 16]), Opc::new([0xcd; 16])).into()
}

fn home_key() -> HomeNetworkPrivateKey {
    HomeNetworkPrivateKey::profile_a([0x77; 32])
}

fn home_user() -> HomeUser {
    HomeUser {
        user: UserId([0xbb; 16]),
        functions: functions(),
        revoked: false,
        qos: Qos { ul_kbps: 10_000, dl_kbps: 100_000, five_qi: 9 },
        intercept: false,
        filters: Vec::new(),
        sqn: Sqn::ZERO,
    }
}

fn home_broker() -> Broker {
    let mut broker = broker("b.example");
    let mut keys = HomeNetworkKeys::new();
    keys.insert(3, home_key());
    broker.set_home(Home { plmn: home(), keys, credit_micros: 1_000 });
    broker.set_home_user(supi(), home_user());
    broker
}

struct Net {
    usim: Usim,
    operator: Operator,
    broker: Broker,
    run: u64,
}

/// What the broker's answer is about.
type Answered = (Vec<u8>, BrokerEvent, Option<Record>);

impl Net {
    fn new() -> Self {
        let usim = Usim::new(functions(), UsimSqn::default());
        Self { usim, operator: operator(t1(), "t1"), broker: home_broker(), run: 0 }
    }

    fn ask(&mut self, subscriber: Subscriber, token: Option<Resynchronisation>) -> (HomeAttach, Vec<u8>) {
        self.run += 1;
        let offer = (self.operator.id(), self.operator.terms.clone());
        let (attach, question) =
            HomeAttach::ask(offer, domain("b.example"), subscriber, token, &seed("t", self.run));
        (attach, question.sign(&self.operator, NOW))
    }

    fn answer(&mut self, octets: &[u8]) -> Answered {
        self.run += 1;
        let BrokerOutput { octets, event, record } = self.broker.answer(octets, NOW, &seed("b", self.run));
        (octets, event, record)
    }

    /// What the USIM makes of a challenge, in the network of `plmn`.
    fn respond(
        &mut self,
        attach: &HomeAttach,
        answer: &[u8],
        plmn: PlmnId,
    ) -> Result<UeAuthentication, AuthenticationFailure> {
        let challenge = attach.challenge(answer, &self.operator.trust, NOW).expect("a challenge");
        self.usim.authenticate(&Rand(challenge.rand), &Autn(challenge.autn), &ServingNetworkName::new(plmn))
    }

    fn confirm(&self, attach: &HomeAttach, res_star: [u8; 16]) -> Vec<u8> {
        attach.confirm(res_star).sign(&self.operator, NOW)
    }

    /// The whole attach.
    fn attach(&mut self, subscriber: Subscriber) -> Result<(HomeSession, UeAuthentication), OperatorError> {
        let (attach, asked) = self.ask(subscriber, None);
        let (answer, _, _) = self.answer(&asked);
        attach.challenge(&answer, &self.operator.trust, NOW)?;
        let ue = self.respond(&attach, &answer, t1().plmn).expect("it accepts");
        let res_star = *ue.res_star.octets();
        let (answer, _, _) = self.answer(&self.confirm(&attach, res_star));
        attach.release(&answer, res_star, &self.operator.trust, NOW).map(|session| (session, ue))
    }

    fn refused(&mut self, subscriber: Subscriber) -> RefusalCause {
        match self.attach(subscriber) {
            Err(OperatorError::Refused(refusal)) => refusal.cause,
            other => panic!("{other:?}"),
        }
    }
}

fn by_supi() -> Subscriber {
    Subscriber::Supi(supi())
}

fn suci(plmn: PlmnId, scheme: u8, key_id: u8, output: &[u8]) -> Subscriber {
    Subscriber::Suci { plmn, scheme, key_id, output: output.into() }
}

const MSIN: [u8; 5] = [0, 0, 0, 0, 0x10];

#[test] // TS 33.501 §6.1.3.2
fn ue_and_operator_share_the_key_that_the_broker_released() {
    let concealed = home_key().public_key().conceal(&[9; 32], &MSIN).unwrap();
    let mut net = Net::new();
    for subscriber in [by_supi(), suci(home(), 0, 0, &MSIN), suci(home(), 1, 3, &concealed)] {
        let (session, ue) = net.attach(subscriber).unwrap();
        assert_eq!((session.supi, session.k_seaf.octets()), (supi(), ue.k_seaf.octets()));
        let grant = &session.grant.grant;
        assert!(grant.is_of_ordinary_ue() && grant.credit_micros == 1_000 && grant.operator == t1());
    }
    assert_eq!(
        net.broker.home_user(supi()).unwrap().sqn,
        Sqn::new(3, 3),
        "each vector has an SQN of its own"
    );
}

#[test] // TS 33.501 §6.1.1.4: no other network can use the vector
fn a_vector_is_bound_to_the_network_in_the_operators_certificate() {
    let mut net = Net::new();
    let (attach, asked) = net.ask(by_supi(), None);
    let (answer, _, _) = net.answer(&asked);
    let elsewhere = net.respond(&attach, &answer, "999/72".parse().unwrap()).unwrap();
    let (answer, _, _) = net.answer(&net.confirm(&attach, *elsewhere.res_star.octets()));
    let refused = attach.release(&answer, *elsewhere.res_star.octets(), &trust(), NOW).unwrap_err();
    assert!(matches!(refused, OperatorError::Refused(r) if r.cause == RefusalCause::Response));
}

#[test] // home control: TS 33.501 §6.1.3.2 step 11
fn a_wrong_response_uses_the_challenge_up() {
    let mut net = Net::new();
    let (attach, asked) = net.ask(by_supi(), None);
    let (answer, _, _) = net.answer(&asked);
    let right = *net.respond(&attach, &answer, t1().plmn).unwrap().res_star.octets();
    let mut refused = |res_star: [u8; 16]| {
        let (answer, event, record) = net.answer(&net.confirm(&attach, res_star));
        assert!(!matches!(event, BrokerEvent::Granted(_)));
        match attach.release(&answer, res_star, &trust(), NOW) {
            Err(OperatorError::Refused(refusal)) => (refusal.cause, record.is_some()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused([7; 16]), (RefusalCause::Response, true));
    assert_eq!(refused([7; 16]), (RefusalCause::Response, false), "the same answer again");
    assert_eq!(refused(right), (RefusalCause::CounterUsed, false), "no second try");
}

#[test]
fn the_same_question_gets_the_same_answer_after_a_failover_of_either_side() {
    let mut net = Net::new();
    let (attach, asked) = net.ask(by_supi(), None);
    let (first, _, challenge) = net.answer(&asked);
    net.broker = home_broker();
    net.broker.restore(challenge.unwrap());
    let (second, event, record) = net.answer(&asked);
    assert!(first == second && matches!(event, BrokerEvent::Repeated { .. }) && record.is_none());
    let res_star = *net.respond(&attach, &first, t1().plmn).unwrap().res_star.octets();
    let confirmation = net.confirm(&attach, res_star);
    let (first, event, released) = net.answer(&confirmation);
    assert!(matches!(event, BrokerEvent::Granted(_)));
    net.broker = home_broker();
    net.broker.restore(released.unwrap());
    let (second, event, _) = net.answer(&confirmation);
    assert!(first == second && matches!(event, BrokerEvent::Repeated { .. }));
    // A question that was confirmed leads to no other challenge.
    let (late, _, record) = net.answer(&asked);
    let refused = attach.challenge(&late, &trust(), NOW).unwrap_err();
    assert!(matches!(refused, OperatorError::Refused(r) if r.cause == RefusalCause::CounterUsed));
    assert!(record.is_none() && net.broker.home_user(supi()).unwrap().sqn == Sqn::new(1, 1));
}

#[test] // TS 33.102 §6.3.5
fn a_usim_that_is_ahead_is_resynchronised_and_a_forged_token_is_refused() {
    let mut net = Net::new();
    net.usim.sqn.accept(Sqn::new(90, 1)).unwrap();
    let (attach, asked) = net.ask(by_supi(), None);
    let (answer, _, _) = net.answer(&asked);
    let rand = attach.challenge(&answer, &trust(), NOW).unwrap().rand;
    let Err(AuthenticationFailure::SynchFailure(auts)) = net.respond(&attach, &answer, t1().plmn) else {
        panic!("SQN 1 is not fresh")
    };
    let mut forged = auts.0;
    forged[13] ^= 1;
    for (auts, taken) in [(forged, false), (auts.0, true)] {
        let (attach, asked) = net.ask(by_supi(), Some(Resynchronisation { rand, auts }));
        let (answer, _, _) = net.answer(&asked);
        match attach.challenge(&answer, &trust(), NOW) {
            Err(OperatorError::Refused(r)) => assert!(!taken && r.cause == RefusalCause::Resynchronisation),
            Ok(_) => assert!(taken && net.respond(&attach, &answer, t1().plmn).is_ok()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(net.broker.home_user(supi()).unwrap().sqn.seq(), 91);
}

#[test]
fn what_a_broker_does_not_serve_it_refuses_for_that_reason() {
    let mut net = Net::new();
    let unknown = Supi::from_digits([9, 9, 9, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]).unwrap();
    for (subscriber, cause) in [
        (Subscriber::Supi(unknown), RefusalCause::UnknownUser),
        (suci("999/72".parse().unwrap(), 0, 0, &MSIN), RefusalCause::UnknownUser),
        (suci(home(), 1, 4, &[7; 45]), RefusalCause::UnknownKey),
        (suci(home(), 1, 3, &[7; 45]), RefusalCause::Envelope),
        (suci(home(), 0xc, 3, &[7; 45]), RefusalCause::Envelope),
        (suci(home(), 0, 0, &[]), RefusalCause::Envelope),
    ] {
        assert_eq!(net.refused(subscriber), cause);
    }
    net.broker.set_home_user(supi(), HomeUser { revoked: true, ..home_user() });
    assert_eq!(net.refused(by_supi()), RefusalCause::UserRevoked);
    net.broker.set_home_user(supi(), home_user());
    net.broker.config.policy.price_cap = Price::new(*b"EUR", 1, 1).unwrap();
    assert_eq!(net.refused(by_supi()), RefusalCause::PriceTooHigh);
    net.broker = broker("b.example");
    assert_eq!(net.refused(by_supi()), RefusalCause::UnknownUser);
    // A non-public network has a serving network name that no ordinary UE is bound to here.
    let mut net = Net::new();
    net.operator = operator(t2(), "t2");
    assert_eq!(net.refused(by_supi()), RefusalCause::OperatorNotAllowed);
}

#[test]
fn a_vector_request_that_was_refused_is_not_answered_otherwise_when_the_policy_has_changed() {
    let mut net = Net::new();
    let cap = net.broker.config.policy.price_cap;
    let (attach, asked) = net.ask(by_supi(), None);
    net.broker.config.policy.price_cap = Price::new(*b"EUR", 1, 1).unwrap();
    let (refused, _, record) = net.answer(&asked);
    let is_refused = |r: Result<_, OperatorError>| matches!(r, Err(OperatorError::Refused(r)) if r.cause == RefusalCause::PriceTooHigh);
    assert!(is_refused(attach.challenge(&refused, &trust(), NOW)));
    net.broker.config.policy.price_cap = cap;
    assert_eq!(net.answer(&asked).0, refused, "a signed refusal is final");
    // A broker that takes the place of this one has it from the record.
    net.broker = home_broker();
    net.broker.restore(record.expect("it is durable before it leaves"));
    assert_eq!(net.answer(&asked).0, refused);
    let sqn = net.broker.home_user(supi()).unwrap().sqn;
    let (attach, asked) = net.ask(by_supi(), None);
    let (answer, _, _) = net.answer(&asked);
    assert!(attach.challenge(&answer, &trust(), NOW).is_ok(), "another request is judged again");
    assert_eq!(net.broker.home_user(supi()).unwrap().sqn, sqn.next());
}

#[test]
fn an_operator_that_is_not_authenticated_learns_nothing() {
    let mut net = Net::new();
    let (attach, asked) = net.ask(by_supi(), None);
    let mut forged = asked.clone();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    for (octets, cause) in [(forged, Rejection::OperatorSignature), (vec![14, 1], Rejection::Malformed)] {
        let (answer, _, _) = net.answer(&octets);
        assert_eq!(attach.challenge(&answer, &trust(), NOW), Err(OperatorError::Rejected(cause)));
    }
    // Another operator cannot confirm this one's challenge.
    let (answer, _, _) = net.answer(&asked);
    let res_star = *net.respond(&attach, &answer, t1().plmn).unwrap().res_star.octets();
    let other = operator(t2(), "t2");
    let stolen = attach.confirm(res_star).sign(&other, NOW);
    let (answer, _, _) = net.answer(&stolen);
    let AnswerBody::Refused(refusal) = AnswerT::parse(&answer).unwrap().body else { panic!() };
    assert_eq!((refusal.cause, refusal.asker), (RefusalCause::NoChallenge, t2()));
}

#[test]
fn an_answer_of_another_session_or_kind_is_not_taken() {
    let mut net = Net::new();
    let (first, asked) = net.ask(by_supi(), None);
    let (answer_1, _, _) = net.answer(&asked);
    let (second, asked) = net.ask(by_supi(), None);
    let (answer_2, _, _) = net.answer(&asked);
    assert_eq!(second.challenge(&answer_1, &trust(), NOW), Err(OperatorError::OtherRequest));
    let res_star = *net.respond(&first, &answer_1, t1().plmn).unwrap().res_star.octets();
    let (released, _, _) = net.answer(&net.confirm(&first, res_star));
    assert_eq!(second.release(&released, res_star, &trust(), NOW).unwrap_err(), OperatorError::OtherRequest);
    assert_eq!(first.release(&released, [0; 16], &trust(), NOW).unwrap_err(), OperatorError::Orders);
    assert_eq!(first.release(&answer_2, res_star, &trust(), NOW).unwrap_err(), OperatorError::OtherAnswer);
    assert_eq!(first.challenge(&released, &trust(), NOW), Err(OperatorError::OtherAnswer));
    // Nor is it an answer to authReqT.
    let broker = home_broker();
    let (_, request) = UserAttach::begin(&mut sim("alice", ALICE, &broker), t1(), &seed("u", 1)).unwrap();
    let (sap, _) = OperatorAttach::begin(&net.operator, request, NOW, &seed("t", 99));
    for answer in [&released, &answer_2] {
        assert_eq!(sap.answer(answer, &trust(), NOW).unwrap_err(), OperatorError::OtherAnswer);
    }
}

#[test]
fn a_challenge_is_forgotten_after_a_minute() {
    let mut net = Net::new();
    let (attach, asked) = net.ask(by_supi(), None);
    let (answer, _, _) = net.answer(&asked);
    let res_star = *net.respond(&attach, &answer, t1().plmn).unwrap().res_star.octets();
    let later = Instant(NOW.0 + ANSWER_KEPT.as_micros() as u64 + 1);
    let confirmation = attach.confirm(res_star).sign(&net.operator, later);
    let output = net.broker.answer(&confirmation, later, &seed("b", 50));
    let refused = attach.release(&output.octets, res_star, &trust(), later).unwrap_err();
    assert!(matches!(refused, OperatorError::Refused(r) if r.cause == RefusalCause::NoChallenge));
}

#[test]
fn a_confirmation_goes_before_questions_of_unknown_origin() {
    use whimbrel_open::admission::{Origin, Peer};
    let mut net = Net::new();
    let (attach, asked) = net.ask(by_supi(), None);
    let (answer, _, _) = net.answer(&asked);
    let res_star = *net.respond(&attach, &answer, t1().plmn).unwrap().res_star.octets();
    let confirmation = net.confirm(&attach, res_star);
    assert!(Confirmation::parse(&confirmation).is_ok());
    for request in 0..5 {
        let (_, asked) = net.ask(by_supi(), None);
        assert!(net.broker.offer(Origin { peer: Peer(1), request }, asked, NOW).is_none());
    }
    assert!(net.broker.offer(Origin { peer: Peer(1), request: 9 }, confirmation, NOW).is_none());
    let (origin, output) = net.broker.serve(NOW, &seed("b", 60)).unwrap();
    assert!(origin.request == 9 && matches!(output.event, BrokerEvent::Granted(_)));
}
