//! Attaches with real cryptography, and every bad input that a party may meet.

use whimbrel_ids::Instant;
use whimbrel_open::admission::{Origin, Peer, WAIT_MAX};
use whimbrel_open::broker::{ANSWER_KEPT, Broker, BrokerConfig, BrokerEvent};
use whimbrel_open::carriage::{Scheme, SuciNai};
use whimbrel_open::crypto::{PrivateKey, Share, SigningKey};
use whimbrel_open::id::OperatorId;
use whimbrel_open::msg::{
    AnswerBody, AnswerT, AuthReqT, AuthReqU, Certificate, CertificateError, Filter, Price, RefusalCause,
    Rejection, SignedGrant, SignedRefusal, Subject, UserVector, Validity,
};
use whimbrel_open::operator::{Operator, OperatorAttach, OperatorError, OperatorSession};
use whimbrel_open::user::{UserAttach, UserError, UserSim};

use super::world::*;

struct Net {
    sim: UserSim,
    operator: Operator,
    broker: Broker,
    /// Of the user and the operator; each has other keys.
    run: u64,
    answers: u64,
}

impl Net {
    fn new() -> Self {
        let broker = broker("b.example");
        Self { sim: sim("alice", ALICE, &broker), operator: operator(t1(), "t1"), broker, run: 0, answers: 0 }
    }

    fn ask(&mut self) -> (UserAttach, AuthReqU) {
        self.run += 1;
        UserAttach::begin(&mut self.sim, t1(), &seed("u", self.run)).unwrap()
    }

    fn pass(&self, request: AuthReqU, now: Instant) -> (OperatorAttach, Vec<u8>) {
        OperatorAttach::begin(&self.operator, request, now, &seed("t", self.run))
    }

    fn answer(&mut self, octets: &[u8], now: Instant) -> (Vec<u8>, BrokerEvent) {
        self.answers += 1;
        let output = self.broker.answer(octets, now, &seed("b", self.answers));
        (output.octets, output.event)
    }

    /// The whole attach up to the operator's judgement.
    fn attach(&mut self) -> Result<(UserAttach, OperatorSession), OperatorError> {
        let (user, request) = self.ask();
        let (operator, asked) = self.pass(request, NOW);
        let (answer, _) = self.answer(&asked, NOW);
        operator.answer(&answer, &self.operator.trust, NOW).map(|session| (user, session))
    }

    /// The cause of a refusal that is the same for the operator and the user.
    fn refused(&mut self) -> RefusalCause {
        let (user, request) = self.ask();
        let (operator, asked) = self.pass(request, NOW);
        let (answer, event) = self.answer(&asked, NOW);
        let Err(OperatorError::Refused(refusal)) = operator.answer(&answer, &self.operator.trust, NOW) else {
            panic!("{event:?}")
        };
        assert_eq!(user.refusal(&refusal.to_octets()).as_ref(), Ok(&*refusal));
        refusal.cause
    }

    fn rejected(&mut self, octets: &[u8], now: Instant) -> Rejection {
        let (_, event) = self.answer(octets, now);
        let BrokerEvent::Rejected(cause) = event else { panic!("{event:?}") };
        cause
    }
}

#[test]
fn user_and_operator_have_the_same_keys_after_one_round_trip() {
    let mut net = Net::new();
    let filter = Filter::new([10, 0, 0, 0].into(), 8).unwrap();
    let mut alice = user("alice");
    (alice.intercept, alice.filters) = (true, vec![filter]);
    net.broker.set_user(ALICE, alice);
    let (user, request) = net.ask();
    let (operator, asked) = net.pass(request, NOW);
    let (answer, event) = net.answer(&asked, NOW);
    let BrokerEvent::Granted(at_broker) = event else { panic!("{event:?}") };
    let session = operator.answer(&answer, &net.operator.trust, NOW).unwrap();
    assert!(session.intercept && session.filters == [filter]);
    let tentative = user.answer(&session.answer_u.to_octets(), NOW).unwrap();
    assert_eq!(tentative.k_seaf(), &session.k_seaf);
    assert_eq!(tentative.grant().supi(), session.grant.grant.supi());
    let at_user = tentative.commit(user, &mut net.sim);
    assert_eq!(at_user.grant, session.grant.grant);
    assert_eq!(at_user.k_ausf, at_broker.k_ausf);
    assert_eq!(at_broker.user, ALICE);
    assert!(net.sim.ticket.is_some());
}

#[test]
fn the_next_attach_carries_a_ticket_and_another_pseudonym() {
    let mut net = Net::new();
    let (user, first) = net.attach().unwrap();
    user.answer(&first.answer_u.to_octets(), NOW).unwrap().commit(user, &mut net.sim);
    let (_, request) = net.ask();
    assert!(request.clear_part().is_some());
    let (_, second) = net.attach().unwrap();
    assert_ne!(first.grant.grant.pseudonym, second.grant.grant.pseudonym);
}

#[test]
fn a_suci_carries_the_request() {
    let (_, request) = Net::new().ask();
    let suci = SuciNai::of_request(&request, Scheme::C);
    let received = SuciNai::parse(suci.to_text().as_bytes()).unwrap();
    assert_eq!(received.to_request(), Ok(request));
}

#[test]
fn the_operator_reads_no_identity_and_all_requests_are_of_one_length() {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let octets = request.to_octets();
    assert!(!octets.windows(16).any(|w| w == ALICE.0));
    let mut eve = sim("eve", EVE, &net.broker);
    let (_, other) = UserAttach::begin(&mut eve, t1(), &seed("u", 99)).unwrap();
    assert_eq!(other.to_octets().len(), octets.len());
}

#[test]
fn the_same_request_gets_the_same_answer_until_it_is_forgotten() {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let (operator, asked) = net.pass(request.clone(), NOW);
    let (answer, _) = net.answer(&asked, NOW);
    // The replica of a failed operator asks again, later, and so under another signature.
    let (_, again) = net.pass(request, NOW + ANSWER_KEPT);
    assert_ne!(asked, again);
    let (repeated, event) = net.answer(&again, NOW + ANSWER_KEPT);
    assert!(matches!(event, BrokerEvent::Repeated { user: ALICE }));
    assert_eq!(answer, repeated);
    assert!(operator.answer(&repeated, &net.operator.trust, NOW).is_ok());
    let late = NOW + ANSWER_KEPT * 2;
    let (_, event) = net.answer(&again, late);
    assert!(matches!(event, BrokerEvent::Refused { cause: RefusalCause::CounterUsed, .. }), "{event:?}");
}

#[test]
fn a_used_counter_is_refused_under_any_other_key() {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let (_, asked) = net.pass(request.clone(), NOW);
    net.answer(&asked, NOW);
    net.operator.terms = terms(100);
    let (_, cheaper) = net.pass(request.clone(), NOW);
    let (_, event) = net.answer(&cheaper, NOW);
    assert!(matches!(event, BrokerEvent::Refused { cause: RefusalCause::CounterUsed, .. }), "{event:?}");
    net.operator.terms = terms(200);
    net.run += 1; // another share
    let (_, other) = net.pass(request, NOW);
    let (_, event) = net.answer(&other, NOW);
    assert!(matches!(event, BrokerEvent::Refused { cause: RefusalCause::CounterUsed, .. }), "{event:?}");
}

#[test]
fn a_broker_that_takes_over_gives_the_same_answer_and_takes_no_used_counter() {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let (_, asked) = net.pass(request.clone(), NOW);
    let output = net.broker.answer(&asked, NOW, &seed("b", 1));
    let mut other = broker("b.example");
    other.restore(output.record.unwrap());
    let again = other.answer(&asked, NOW, &seed("b", 2));
    assert!(matches!(again.event, BrokerEvent::Repeated { .. }) && again.record.is_none());
    assert_eq!(again.octets, output.octets);
    net.run += 1;
    let (_, asked) = net.pass(request, NOW);
    let event = other.answer(&asked, NOW, &seed("b", 3)).event;
    assert!(matches!(event, BrokerEvent::Refused { cause: RefusalCause::CounterUsed, .. }), "{event:?}");
    other.set_user(ALICE, user("alice"));
    let event = other.answer(&asked, NOW, &seed("b", 3)).event;
    assert!(matches!(event, BrokerEvent::Refused { cause: RefusalCause::CounterUsed, .. }), "{event:?}");
}

const fn from(peer: u64, request: u64) -> Origin {
    Origin { peer: Peer(peer), request }
}

#[test]
fn a_user_with_a_ticket_is_served_before_a_flood_of_ten_times_as_many() {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let mut garbage = request.to_octets();
    *garbage.last_mut().unwrap() ^= 1;
    let (_, garbage) = net.pass(AuthReqU::parse(&garbage).unwrap(), NOW);
    for n in 0..10 {
        assert!(net.broker.offer(from(1, n), garbage.clone(), NOW).is_none());
    }
    let (user, session) = net.attach().unwrap();
    user.answer(&session.answer_u.to_octets(), NOW).unwrap().commit(user, &mut net.sim);
    let (_, request) = net.ask();
    let (_, asked) = net.pass(request, NOW);
    // A ticket is good once: a copy from the air has no precedence.
    assert!(net.broker.offer(from(1, 10), asked.clone(), NOW).is_none());
    assert!(net.broker.offer(from(1, 11), asked, NOW).is_none());
    assert_eq!(net.broker.admission().waiting(), (1, 11));
    let (origin, output) = net.broker.serve(NOW, &seed("b", 90)).unwrap();
    assert_eq!(origin, from(1, 10));
    assert!(matches!(output.event, BrokerEvent::Granted(_)), "{:?}", output.event);
    let (origin, output) = net.broker.serve(NOW, &seed("b", 91)).unwrap();
    assert_eq!(origin, from(1, 0));
    assert!(matches!(output.event, BrokerEvent::Refused { cause: RefusalCause::Envelope, .. }));
    let (origin, output) = net.broker.serve(NOW + WAIT_MAX * 2, &seed("b", 92)).unwrap();
    assert_eq!(origin, from(1, 1));
    assert!(matches!(output.event, BrokerEvent::Rejected(Rejection::Busy)));
    let (origin, output) = net.broker.offer(from(2, 0), vec![0], NOW).unwrap();
    assert_eq!(origin, from(2, 0));
    assert!(matches!(output.event, BrokerEvent::Rejected(Rejection::Malformed)));
}

#[test]
fn a_ticket_of_a_revoked_user_is_not_taken_and_one_of_a_renewed_key_is() {
    for (revoked, waiting) in [(false, (1, 0)), (true, (0, 1))] {
        let mut net = Net::new();
        let (user, session) = net.attach().unwrap();
        user.answer(&session.answer_u.to_octets(), NOW).unwrap().commit(user, &mut net.sim);
        net.broker.renew_ticket_key([3; 16]);
        if revoked {
            net.broker.revoke_user(ALICE);
        }
        let (_, request) = net.ask();
        let (_, asked) = net.pass(request, NOW);
        assert!(net.broker.offer(from(1, 0), asked, NOW).is_none());
        assert_eq!(net.broker.admission().waiting(), waiting);
    }
}

#[test]
fn an_operator_and_a_broker_begin_with_a_certificate_of_their_own_only() {
    let (id, name) = (operator_certificate(t1(), "t1"), broker_certificate("b.example"));
    let begin = |certificate: &Certificate, key| {
        Operator::new(certificate.clone(), key, trust(), terms(200)).map(|operator| operator.id())
    };
    assert_eq!(begin(&id, key("t1")), Some(t1()));
    assert_eq!((begin(&id, key("t2")), begin(&name, key("b.example"))), (None, None));
    let config = broker("b.example").config;
    let begin = |config| Broker::new(config, (EPOCH, epoch_key("b.example")), [9; 16]).is_some();
    assert!(begin(config.clone()));
    assert!(!begin(BrokerConfig { domain: domain("x.example"), ..config.clone() }));
    assert!(!begin(BrokerConfig { signing: key("t1"), ..config }));
}

#[test]
fn each_refusal_of_the_brokers_policy_is_signed_and_named() {
    let mut net = Net::new();
    net.broker.config.policy.price_cap = Price::new(*b"EUR", 100, 199).unwrap();
    assert_eq!(net.refused(), RefusalCause::PriceTooHigh);
    net.broker.config.policy.price_cap = Price::new(*b"USD", 1_000, 1_000).unwrap();
    assert_eq!(net.refused(), RefusalCause::PriceTooHigh);
    net = Net::new();
    net.broker.config.policy.operators = Some([t2()].into());
    assert_eq!(net.refused(), RefusalCause::OperatorNotAllowed);
    net = Net::new();
    net.broker.set_reputation(t1(), 9);
    assert_eq!(net.refused(), RefusalCause::OperatorReputation);
    net = Net::new();
    net.operator.terms.qos.dl_kbps_max = 99_999;
    assert_eq!(net.refused(), RefusalCause::QosTooLow);
    net = Net::new();
    net.broker.revoke_user(ALICE);
    assert_eq!(net.refused(), RefusalCause::UserRevoked);
}

#[test]
fn a_revoked_user_does_not_get_an_earlier_answer_again() {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let (_, asked) = net.pass(request, NOW);
    net.answer(&asked, NOW);
    net.broker.revoke_user(ALICE);
    let (_, event) = net.answer(&asked, NOW);
    assert!(matches!(event, BrokerEvent::Refused { cause: RefusalCause::UserRevoked, .. }), "{event:?}");
}

/// Bars a user, or no longer.
type Bar = fn(&mut Broker, bool);

#[test]
fn a_request_that_was_refused_is_not_granted_when_the_reason_is_gone() {
    let too_dear = Price::new(*b"EUR", 100, 199).unwrap();
    let bars: [(Bar, RefusalCause); 2] = [
        (|broker, bars| broker.set_suspect(ALICE, bars), RefusalCause::UserRevoked),
        (
            |broker, bars| {
                let cap = if bars { 199 } else { 1_000 };
                broker.config.policy.price_cap = Price::new(*b"EUR", 100, cap).unwrap();
            },
            RefusalCause::PriceTooHigh,
        ),
    ];
    assert!(!terms(200).price.is_within(&too_dear));
    for (bar, cause) in bars {
        let mut net = Net::new();
        let (_, request) = net.ask();
        let (_, asked) = net.pass(request, NOW);
        bar(&mut net.broker, true);
        let (refused, event) = net.answer(&asked, NOW);
        assert!(matches!(event, BrokerEvent::Refused { cause: c, .. } if c == cause), "{event:?}");
        bar(&mut net.broker, false);
        let (again, event) = net.answer(&asked, NOW);
        assert!(matches!(event, BrokerEvent::Repeated { .. }), "{event:?}");
        assert_eq!(again, refused, "a signed refusal is final");
        let (_, request) = net.ask();
        let (_, asked) = net.pass(request, NOW);
        let (_, event) = net.answer(&asked, NOW);
        assert!(matches!(event, BrokerEvent::Granted(_)), "another request is judged again: {event:?}");
    }
}

#[test]
fn a_stolen_or_unknown_identity_is_refused() {
    let mut net = Net::new();
    net.sim.signing = key("eve");
    assert_eq!(net.refused(), RefusalCause::UserSignature);
    net = Net::new();
    net.sim.user.0[0] ^= 1;
    assert_eq!(net.refused(), RefusalCause::UnknownUser);
}

#[test]
fn an_envelope_that_does_not_open_is_refused_without_using_the_counter() {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let mut octets = request.to_octets();
    *octets.last_mut().unwrap() ^= 1;
    let (_, asked) = net.pass(AuthReqU::parse(&octets).unwrap(), NOW);
    let (_, event) = net.answer(&asked, NOW);
    assert!(
        matches!(event, BrokerEvent::Refused { cause: RefusalCause::Envelope, user: None, .. }),
        "{event:?}"
    );
    let (operator, asked) = net.pass(request, NOW);
    let (answer, _) = net.answer(&asked, NOW);
    assert!(operator.answer(&answer, &net.operator.trust, NOW).is_ok());
}

#[test]
fn a_user_whose_epoch_is_over_learns_the_new_key_from_the_refusal_or_from_the_grant() {
    let mut net = Net::new();
    net.broker.begin_epoch(8, PrivateKey::new([8; 32]));
    let (user, session) = net.attach().unwrap();
    user.answer(&session.answer_u.to_octets(), NOW).unwrap().commit(user, &mut net.sim);
    assert_eq!(net.sim.epoch, net.broker.epoch());
    net.broker.begin_epoch(9, PrivateKey::new([9; 32]));
    net.broker.end_epoch(8);
    let (user, request) = net.ask();
    let (operator, asked) = net.pass(request, NOW);
    let (answer, _) = net.answer(&asked, NOW);
    let Err(OperatorError::Refused(refusal)) = operator.answer(&answer, &net.operator.trust, NOW) else {
        panic!()
    };
    let refusal = user.refusal(&refusal.to_octets()).unwrap();
    assert_eq!((refusal.cause, refusal.key), (RefusalCause::UnknownKey, Some(net.broker.epoch())));
    net.sim.epoch = refusal.key.unwrap();
    assert!(net.attach().is_ok());
}

#[test]
fn an_operator_whose_certificate_proves_nothing_gets_no_signed_word() {
    let issue = |authority: &str, subject, validity| {
        Certificate::issue(&key(authority), subject, key("t1").verifying_key(), validity, 77)
    };
    let subject = Subject::Operator(t1());
    let (before, after) = (Validity { from: 0, until: 1 }, Validity { from: u64::MAX, until: u64::MAX });
    for (certificate, cause) in [
        (issue("eve", subject.clone(), VALIDITY), Rejection::CertificateUntrusted),
        (issue("authority", subject.clone(), before), Rejection::CertificateExpired),
        (issue("authority", subject.clone(), after), Rejection::CertificateNotYetValid),
        (issue("authority", subject, VALIDITY), Rejection::CertificateRevoked),
    ] {
        let mut net = Net::new();
        net.broker.config.trust.revoke(77);
        net.operator = Operator::new(certificate, key("t1"), trust(), terms(200)).unwrap();
        let (_, request) = net.ask();
        let (operator, asked) = net.pass(request, NOW);
        assert_eq!(net.rejected(&asked, NOW), cause);
        let (answer, _) = net.answer(&asked, NOW);
        let error = operator.answer(&answer, &net.operator.trust, NOW).unwrap_err();
        assert_eq!(error, OperatorError::Rejected(cause));
    }
}

#[test]
fn a_broker_is_no_operator() {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let (certificate, offer) =
        (broker_certificate("b.example"), (terms(200), PrivateKey::new([1; 32]).share()));
    let asked = AuthReqT::signed(request, certificate, t1(), offer, NOW, &key("b.example"));
    assert_eq!(net.rejected(&asked.to_octets(), NOW), Rejection::CertificateUntrusted);
}

#[test]
fn a_wrong_clock_is_rejected_and_one_that_is_minutes_off_is_not() {
    let mut net = Net::new();
    for (off, cause) in [(DAY, Some(Rejection::ClockSkew)), (DAY / 300, None)] {
        let (_, request) = net.ask();
        let (_, asked) = net.pass(request, NOW - off);
        let (_, event) = net.answer(&asked, NOW);
        match cause {
            Some(cause) => assert!(matches!(event, BrokerEvent::Rejected(c) if c == cause), "{event:?}"),
            None => assert!(matches!(event, BrokerEvent::Granted(_)), "{event:?}"),
        }
    }
}

#[test]
fn a_request_for_another_broker_or_none_at_all_is_rejected() {
    let mut net = Net::new();
    let mut other = sim("alice", ALICE, &broker("other.example"));
    let (_, request) = UserAttach::begin(&mut other, t1(), &seed("u", 1)).unwrap();
    let (_, asked) = net.pass(request, NOW);
    assert_eq!(net.rejected(&asked, NOW), Rejection::OtherBroker);
    assert_eq!(net.rejected(b"", NOW), Rejection::Malformed);
    assert_eq!(net.rejected(&vec![2; AuthReqT::OCTETS_MAX + 1], NOW), Rejection::Malformed);
}

#[test]
fn shares_of_small_order_are_refused() {
    let mut net = Net::new();
    let (sim, mut head) = (sim("alice", ALICE, &net.broker), Vec::new());
    let (request, _) = AuthReqU::seal(sim.broker, &sim.epoch, None, &seed("u", 1), |h| {
        head = h.to_vec();
        UserVector::signed(h, (ALICE, t1(), 1), [0; 16], Share([0; 32]), &key("alice"))
    })
    .unwrap();
    assert_eq!(head, request.head());
    let (_, asked) = net.pass(request, NOW);
    let (_, event) = net.answer(&asked, NOW);
    assert!(matches!(event, BrokerEvent::Refused { cause: RefusalCause::WeakShare, .. }), "{event:?}");
    let (_, request) = UserAttach::begin(&mut net.sim, t1(), &seed("u", 2)).unwrap();
    net.sim.counter = 2;
    let offer = (terms(200), Share([0; 32]));
    let certificate = operator_certificate(t1(), "t1");
    let asked = AuthReqT::signed(request, certificate, t1(), offer, NOW, &key("t1")).to_octets();
    let (_, event) = net.answer(&asked, NOW);
    assert!(matches!(event, BrokerEvent::Refused { .. }), "{event:?}");
}

/// The answer of an attach with its grant changed and signed again by the broker that the user and the operator trust.
fn changed(change: impl FnOnce(&mut SignedGrant)) -> Result<OperatorSession, OperatorError> {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let (operator, asked) = net.pass(request, NOW);
    let (answer, _) = net.answer(&asked, NOW);
    let AnswerT { certificate, body } = AnswerT::parse(&answer).unwrap();
    let AnswerBody::Granted { mut grant, orders, answer_u } = body else { panic!() };
    change(&mut grant);
    let grant = SignedGrant::sign(grant.grant, &key("b.example"));
    let body = AnswerBody::Granted { grant, orders, answer_u };
    operator.answer(&AnswerT { certificate, body }.to_octets(), &net.operator.trust, NOW)
}

#[test]
fn an_operator_serves_on_no_grant_that_it_did_not_ask_for() {
    assert!(changed(|_| {}).is_ok());
    assert_eq!(changed(|g| g.grant.terms = terms(201)).unwrap_err(), OperatorError::TermsNotOffered);
    assert_eq!(changed(|g| g.grant.qos.dl_kbps = 200_001).unwrap_err(), OperatorError::QosNotOffered);
    assert_eq!(changed(|g| g.grant.qos.five_qi = 1).unwrap_err(), OperatorError::QosNotOffered);
    assert_eq!(changed(|g| g.grant.request[0] ^= 1).unwrap_err(), OperatorError::OtherRequest);
    assert_eq!(changed(|g| g.grant.operator = t2()).unwrap_err(), OperatorError::OtherOperator);
    assert_eq!(changed(|g| g.grant.operator_share.0[0] ^= 1).unwrap_err(), OperatorError::OtherShare);
    assert_eq!(changed(|g| g.grant.broker = domain("x.example")).unwrap_err(), OperatorError::OtherBroker);
    assert_eq!(changed(|g| g.grant.orders[0] ^= 1).unwrap_err(), OperatorError::OtherOrders);
    assert_eq!(changed(|g| g.grant.user_share = Share([0; 32])).unwrap_err(), OperatorError::WeakShare);
    let past = Validity { from: 0, until: NOW.as_secs() - 301 };
    assert_eq!(changed(|g| g.grant.validity = past).unwrap_err(), OperatorError::NotValidNow);
    let future = Validity { from: NOW.as_secs() + 301, until: u64::MAX };
    assert_eq!(changed(|g| g.grant.validity = future).unwrap_err(), OperatorError::NotValidNow);
}

#[test]
fn a_broker_whose_certificate_is_expired_or_revoked_or_of_another_is_not_believed() {
    let mut net = Net::new();
    let (_, request) = net.ask();
    let (_, asked) = net.pass(request.clone(), NOW);
    let (answer, _) = net.answer(&asked, NOW);
    net.operator.trust.revoke(2);
    let (operator, _) = net.pass(request.clone(), NOW);
    let revoked = OperatorError::BrokerCertificate(CertificateError::Revoked);
    assert_eq!(operator.answer(&answer, &net.operator.trust, NOW).unwrap_err(), revoked);
    net.operator.trust = trust();
    let (operator, _) = net.pass(request, NOW);
    let expired = OperatorError::BrokerCertificate(CertificateError::Expired);
    assert_eq!(operator.answer(&answer, &net.operator.trust, NOW + DAY * 100).unwrap_err(), expired);
    let mut other = AnswerT::parse(&answer).unwrap();
    other.certificate = broker_certificate("other.example");
    assert_eq!(
        operator.answer(&other.to_octets(), &net.operator.trust, NOW).unwrap_err(),
        OperatorError::OtherBroker
    );
}

#[test]
fn an_answer_or_refusal_of_another_session_changes_nothing() {
    let mut net = Net::new();
    let (first, earlier) = net.attach().unwrap();
    let (user, request) = net.ask();
    let (operator, asked) = net.pass(request, NOW);
    let (answer, _) = net.answer(&asked, NOW);
    let old = earlier.answer_u.to_octets();
    assert!(first.answer(&old, NOW).is_ok());
    assert_eq!(user.answer(&old, NOW).unwrap_err(), UserError::Sealed);
    let session = operator.answer(&answer, &net.operator.trust, NOW).unwrap();
    assert!(user.answer(&session.answer_u.to_octets(), NOW).is_ok());
}

#[test]
fn a_user_believes_no_refusal_but_its_brokers_for_this_request_and_operator() {
    let mut net = Net::new();
    let (user, request) = net.ask();
    let refusal = |broker: &str, operator: OperatorId, hash, key: &SigningKey| {
        SignedRefusal::sign(domain(broker), RefusalCause::UserRevoked, operator, hash, None, key).to_octets()
    };
    let (own, hash) = (key("b.example"), request.hash());
    assert!(user.refusal(&refusal("b.example", t1(), hash, &own)).is_ok());
    for (octets, error) in [
        (refusal("b.example", t1(), hash, &key("t1")), UserError::BrokerSignature),
        (refusal("x.example", t1(), hash, &own), UserError::OtherBroker),
        (refusal("b.example", t2(), hash, &own), UserError::OtherOperator),
        (refusal("b.example", t1(), [0; 32], &own), UserError::OtherRequest),
    ] {
        assert_eq!(user.refusal(&octets).unwrap_err(), error);
    }
}

#[test]
fn an_expired_grant_is_of_no_use_to_the_user() {
    let mut net = Net::new();
    let (user, session) = net.attach().unwrap();
    let answer = session.answer_u.to_octets();
    assert_eq!(user.answer(&answer, NOW + DAY).unwrap_err(), UserError::NotValidNow);
    assert_eq!(user.answer(&answer, NOW - DAY).unwrap_err(), UserError::NotValidNow);
    assert!(user.answer(&answer, NOW).is_ok());
}

#[test]
fn no_octet_of_a_message_can_be_changed() {
    let mut net = Net::new();
    let (user, request) = net.ask();
    let (operator, asked) = net.pass(request.clone(), NOW);
    for at in 0..asked.len() {
        let mut changed = asked.clone();
        changed[at] ^= 1 << (at % 8);
        let (_, event) = net.answer(&changed, NOW);
        assert!(matches!(event, BrokerEvent::Rejected(_)), "octet {at}: {event:?}");
    }
    let (answer, _) = net.answer(&asked, NOW);
    let answer_u = operator.answer(&answer, &net.operator.trust, NOW).unwrap().answer_u.to_octets();
    // The operator cannot read what is sealed to the user, which ends the answer.
    for at in 0..answer.len() - answer_u.len() {
        let mut changed = answer.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(operator.answer(&changed, &net.operator.trust, NOW).is_err(), "octet {at}");
    }
    let cause = RefusalCause::QosTooLow;
    let refusal =
        SignedRefusal::sign(domain("b.example"), cause, t1(), request.hash(), None, &key("b.example"));
    let refusal = refusal.to_octets();
    for at in 0..answer_u.len().max(refusal.len()) {
        let change = |octets: &[u8]| {
            let mut changed = octets.to_vec();
            changed[at] ^= 1 << (at % 8);
            changed
        };
        assert!(at >= answer_u.len() || user.answer(&change(&answer_u), NOW).is_err(), "octet {at}");
        assert!(at >= refusal.len() || user.refusal(&change(&refusal)).is_err(), "octet {at}");
    }
    assert!(user.answer(&answer_u, NOW).is_ok() && user.refusal(&refusal).is_ok());
}

#[test]
fn a_message_sent_back_or_to_the_wrong_party_is_no_message_there() {
    let mut net = Net::new();
    let (user, request) = net.ask();
    let (operator, asked) = net.pass(request.clone(), NOW);
    let (answer, _) = net.answer(&asked, NOW);
    for octets in [&request.to_octets(), &asked, &answer] {
        assert!(matches!(user.answer(octets, NOW), Err(UserError::Malformed(_))));
        assert!(matches!(user.refusal(octets), Err(UserError::Malformed(_))));
    }
    for octets in [&request.to_octets(), &asked] {
        let error = operator.answer(octets, &net.operator.trust, NOW).unwrap_err();
        assert!(matches!(error, OperatorError::Malformed(_)));
    }
    for octets in [&request.to_octets(), &answer] {
        assert_eq!(net.rejected(octets, NOW), Rejection::Malformed);
    }
}

#[test]
fn the_same_inputs_give_the_same_octets() {
    let run = || {
        let mut net = Net::new();
        let (_, request) = net.ask();
        let (_, asked) = net.pass(request, NOW);
        net.answer(&asked, NOW).0
    };
    assert_eq!(run(), run());
}
