//! Ordinary UEs that are hidden from the operator (the second class of chapter 4.4.2): with real cryptography, and every bad input.

use whimbrel_broker_common::home::Resynchronisation;
use whimbrel_broker_common::id::UserId;
use whimbrel_ids::{PlmnId, Supi};
use whimbrel_privacy::broker::{Broker, BrokerEvent, HomeUser, Record};
use whimbrel_privacy::msg::{HomeQuestion, HomeRequest, RefusalCause, Rejection, ReportError, Suci};
use whimbrel_privacy::operator::{Group, HomeAttach, HomeChallenging, OperatorError};
use whimbrel_security::{
    Abba, Autn, HomeNetworkKeys, HomeNetworkPrivateKey, K, Milenage, Opc, Rand, ServingNetworkName, Sqn,
    Usim, UsimSqn,
};

use crate::messages::read_as_every_message;
use crate::world::*;

const BOB: UserId = UserId([0xb0; 16]);
const KEY_ID: u8 = 4;

fn supi() -> Supi {
    Supi::from_digits([9, 9, 9, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 2]).unwrap()
}

fn functions() -> Milenage {
    Milenage::new(&K::new([0x46; 16]), Opc::new([0xcd; 16]))
}

fn suci_key() -> HomeNetworkPrivateKey {
    HomeNetworkPrivateKey::profile_a([6; 32])
}

fn suci(n: u8) -> Suci {
    let msin = whimbrel_security::suci::msin_of_supi(PlmnId::TEST, supi()).unwrap();
    let output = suci_key().public_key().conceal(&[n; 32], &msin).unwrap();
    Suci::new(1, KEY_ID, output.into()).unwrap()
}

struct Net {
    broker: Broker,
    group: Group,
    usim: Usim,
    run: u64,
}

impl Net {
    fn new() -> Self {
        let mut broker = with_home(broker());
        let group = open_group(&mut broker);
        Self { broker, group, usim: Usim::new(functions(), UsimSqn::default()), run: 0 }
    }

    fn ask(&mut self, token: Option<Resynchronisation>) -> (HomeAttach, HomeQuestion) {
        self.run += 1;
        HomeAttach::ask(contract(), suci(self.run as u8), token, &seed("o", self.run))
    }

    fn attach(&mut self, octets: &[u8]) -> (Vec<u8>, BrokerEvent, Option<Record>) {
        let output = self.broker.attach(octets, at(AGE_S), &seed("b", self.run));
        (output.octets, output.event, output.record)
    }

    fn challenged(&mut self, token: Option<Resynchronisation>) -> Result<HomeChallenging, OperatorError> {
        let (operator, question) = self.ask(token);
        let (octets, ..) = self.attach(&self.group.sign_home(&question));
        operator.answer(&octets, at(AGE_S))
    }

    /// The UE's RES* and its own K_AMF.
    fn respond(&mut self, challenging: &HomeChallenging) -> ([u8; 16], whimbrel_security::KAmf) {
        let (vector, name) = (challenging.vector(), ServingNetworkName::new(PlmnId::TEST));
        let proved = self.usim.authenticate(&Rand(vector.rand), &Autn(vector.autn), &name).unwrap();
        let k_amf = proved.k_ausf.k_seaf(&name).k_amf(supi(), Abba::RELEASE_15);
        (*proved.res_star.octets(), k_amf)
    }
}

fn with_home(mut broker: Broker) -> Broker {
    let mut keys = HomeNetworkKeys::new();
    keys.insert(KEY_ID, suci_key());
    broker.set_home_keys(keys);
    let functions = functions().into();
    let (revoked, class, prepaid, intercept, sqn) = (false, 0, false, false, Sqn::ZERO);
    let user = HomeUser { user: BOB, functions, revoked, class, prepaid, intercept, sqn };
    broker.set_home_user(supi(), user);
    broker
}

#[test] // TS 33.501 §6.1.3.2
fn the_response_of_an_ordinary_ue_opens_the_key_that_it_derives_itself() {
    let mut net = Net::new();
    for secret in 1..=2 {
        let challenging = net.challenged(None).unwrap();
        let (res_star, k_amf) = net.respond(&challenging);
        let session = challenging.respond(&res_star).unwrap();
        assert_eq!(session.k_amf.octets(), k_amf.octets());
        assert_eq!(session.presence.expected(), session.grant.grant.expected);
        let report =
            net.group.report(domain(), (session.grant.grant.request, &session.presence), 3, [secret; 32]);
        let reported = net.broker.report(&report.to_octets());
        assert!(
            matches!(reported.event, BrokerEvent::Reported(user, 3) if user == BOB),
            "{:?}",
            reported.event
        );
    }
}

#[test] // the operator has no key, and cannot bill, for a UE that is not there
fn without_the_response_nothing_opens_and_nothing_is_billed() {
    let mut net = Net::new();
    let challenging = net.challenged(None).unwrap();
    let (res_star, _) = net.respond(&challenging);
    let mut wrong = res_star;
    wrong[3] ^= 1;
    assert_eq!(challenging.respond(&wrong).unwrap_err(), OperatorError::Response);
    let session = challenging.grant().grant.request;
    let forged = whimbrel_privacy::crypto::Response::new([7; 32]);
    let report = net.group.report(domain(), (session, &forged), 3, [1; 32]);
    let reported = net.broker.report(&report.to_octets());
    assert!(
        matches!(reported.event, BrokerEvent::NotReported(ReportError::Response)),
        "{:?}",
        reported.event
    );
    // RES* of one challenge opens no other.
    let second = net.challenged(None).unwrap();
    assert_eq!(second.respond(&res_star).unwrap_err(), OperatorError::Response);
}

#[test]
fn what_the_operator_has_names_neither_supi_nor_k_seaf() {
    let mut net = Net::new();
    let (operator, question) = net.ask(None);
    let asked = net.group.sign_home(&question);
    let (answer, event, record) = net.attach(&asked);
    assert!(matches!(event, BrokerEvent::Challenged(_)));
    let challenging = operator.answer(&answer, at(AGE_S)).unwrap();
    let (res_star, k_amf) = net.respond(&challenging);
    challenging.respond(&res_star).unwrap();
    let digits: Vec<u8> = supi().digits().map(|d| b'0' + d).collect();
    let holds = |octets: &[u8], value: &[u8]| octets.windows(value.len()).any(|w| w == value);
    for octets in [&asked, &answer] {
        assert!(!holds(octets, &digits) && !holds(octets, &BOB.0) && !holds(octets, k_amf.octets()));
        assert_eq!(read_as_every_message(octets), 1);
    }
    assert_eq!(read_as_every_message(&question.to_octets()), 1);
    // What the broker stores names its user, and no key.
    let stored = record.unwrap().to_octets();
    assert!(holds(&stored, &digits) && !holds(&stored, k_amf.octets()));
}

#[test]
fn the_same_request_gets_the_same_answer_after_a_restart_and_the_sqn_goes_on() {
    let mut net = Net::new();
    let (_, question) = net.ask(None);
    let asked = net.group.sign_home(&question);
    let (first, _, record) = net.attach(&asked);
    let (again, event, none) = net.attach(&asked);
    assert!(matches!(event, BrokerEvent::Repeated) && none.is_none() && again == first);
    let mut other = with_home(broker());
    open_group(&mut other);
    other.restore(record.unwrap());
    assert_eq!(other.attach(&asked, at(AGE_S), &seed("another", 1)).octets, first);
    assert_eq!(other.home_user(supi()).unwrap().sqn, net.broker.home_user(supi()).unwrap().sqn);
    assert!(other.home_user(supi()).unwrap().sqn > Sqn::ZERO);
}

#[test] // TS 33.102 §6.3.5
fn a_usim_that_is_ahead_resynchronises_the_broker() {
    let mut net = Net::new();
    let mut ahead = UsimSqn::default();
    ahead.accept(Sqn::new(900, 1)).unwrap();
    net.usim = Usim::new(functions(), ahead);
    let challenging = net.challenged(None).unwrap();
    let vector = challenging.vector();
    let name = ServingNetworkName::new(PlmnId::TEST);
    let failed = net.usim.authenticate(&Rand(vector.rand), &Autn(vector.autn), &name);
    let Err(whimbrel_security::AuthenticationFailure::SynchFailure(auts)) = failed else {
        panic!("{failed:?}")
    };
    let token = Resynchronisation { rand: vector.rand, auts: auts.0 };
    let mut altered = token;
    altered.auts[13] ^= 1;
    let refused = net.challenged(Some(altered)).unwrap_err();
    let OperatorError::Refused(refused) = refused else { panic!("{refused:?}") };
    assert_eq!(refused.cause, RefusalCause::Resynchronisation);
    let challenging = net.challenged(Some(token)).unwrap();
    let (res_star, _) = net.respond(&challenging);
    assert!(challenging.respond(&res_star).is_ok());
}

#[test]
fn each_request_that_is_not_good_is_refused_with_its_cause() {
    let mut net = Net::new();
    let (operator, question) = net.ask(None);
    let asked = HomeRequest::parse(&net.group.sign_home(&question)).unwrap();
    let rejected = |net: &mut Net, request: HomeRequest, cause| {
        let (_, event, record) = net.attach(&request.to_octets());
        assert!(matches!(event, BrokerEvent::Rejected(c) if c == cause), "{event:?} for {cause}");
        assert!(record.is_none());
    };
    let of = |change: &dyn Fn(&mut HomeRequest)| {
        let mut request = asked.clone();
        change(&mut request);
        request
    };
    rejected(&mut net, of(&|r| r.group.0[1] ^= 1), Rejection::UnknownGroup);
    rejected(&mut net, of(&|r| r.question.nonce[1] ^= 1), Rejection::TokenSignature);
    rejected(&mut net, of(&|r| r.question.broker = "c.example".parse().unwrap()), Rejection::OtherBroker);
    let late = net.broker.attach(&asked.to_octets(), at(AGE_S + 61), &seed("b", 1));
    assert!(matches!(late.event, BrokerEvent::Rejected(Rejection::GroupOver)));
    let refused = |net: &mut Net, question: &HomeQuestion, cause| {
        let (_, event, record) = net.attach(&net.group.sign_home(question));
        assert!(matches!(event, BrokerEvent::Refused(c) if c == cause), "{event:?} for {cause}");
        assert!(record.is_none());
    };
    let (scheme, _, output) = question.suci.parts();
    let with = |suci: Option<Suci>| HomeQuestion { suci: suci.unwrap(), ..question.clone() };
    refused(&mut net, &with(Suci::new(scheme, 9, output.into())), RefusalCause::UnknownKey);
    refused(&mut net, &with(Suci::new(scheme, KEY_ID, [1; 40].into())), RefusalCause::Envelope);
    let mut weak = question.clone();
    weak.share.0 = [0; 32];
    refused(&mut net, &weak, RefusalCause::WeakShare);
    // The null scheme would show the operator the identity.
    assert_eq!(Suci::new(0, 0, [0; 8].into()), None);
    let mut user = net.broker.home_user(supi()).unwrap().clone();
    user.revoked = true;
    net.broker.set_home_user(supi(), user);
    let (octets, ..) = net.attach(&net.group.sign_home(&question));
    let error = operator.answer(&octets, at(AGE_S)).unwrap_err();
    assert!(matches!(&error, OperatorError::Refused(r) if r.cause == RefusalCause::User), "{error}");
}

#[test]
fn the_operator_takes_no_answer_of_another_request_and_none_that_was_changed() {
    let mut net = Net::new();
    let (operator, question) = net.ask(None);
    let (octets, ..) = net.attach(&net.group.sign_home(&question));
    let (other, _) = net.ask(None);
    assert_eq!(other.answer(&octets, at(AGE_S)).unwrap_err(), OperatorError::OtherRequest);
    for place in (4..octets.len()).step_by(7) {
        let mut changed = octets.clone();
        changed[place] ^= 0x40;
        assert!(operator.answer(&changed, at(AGE_S)).is_err(), "octet {place}");
    }
    assert!(operator.answer(&octets, at(AGE_S)).is_ok());
}
