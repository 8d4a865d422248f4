//! One attach that another implementation made after `MESSAGES.md` (`testdata/attach.py`): the crate reads and verifies all of it.

use std::collections::BTreeMap;

use whimbrel_broker_common::crypto::k_seaf;
use whimbrel_open::broker::BrokerEvent;
use whimbrel_open::carriage::SuciNai;
use whimbrel_open::crypto::{self, PrivateKey, SigningKey};
use whimbrel_open::id::UserId;
use whimbrel_open::msg::{
    AnswerBody, AnswerKey, AnswerT, AuthReqT, AuthReqU, OperatorOrders, SignedRefusal, Trust, UserAnswer,
    UserVector,
};

use super::world::{NOW, broker, seed, user};

struct Vectors(BTreeMap<&'static str, Vec<u8>>);

impl Vectors {
    fn read() -> Self {
        let octets = |hex: &str| {
            let pair = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (0..hex.len()).step_by(2).map(pair).collect()
        };
        let lines = include_str!("../../testdata/attach.txt").lines().filter(|line| !line.starts_with('#'));
        Self(
            lines
                .map(|line| line.split_once(" = ").unwrap())
                .map(|(name, hex)| (name, octets(hex)))
                .collect(),
        )
    }

    fn octets(&self, name: &str) -> &[u8] {
        &self.0[name]
    }

    fn private(&self, name: &str) -> PrivateKey {
        PrivateKey::new(self.octets(name).try_into().unwrap())
    }

    fn signing(&self, name: &str) -> SigningKey {
        SigningKey::new(self.octets(name).try_into().unwrap())
    }

    fn trust(&self) -> Trust {
        Trust::new(vec![self.signing("key of authority").verifying_key()]).unwrap()
    }
}

#[test]
fn the_request_of_another_implementation_is_read_and_granted() {
    let v = Vectors::read();
    let asked = AuthReqT::parse(v.octets("authReqT")).unwrap();
    let request = &asked.request;
    assert_eq!(request.to_octets(), v.octets("authReqU"));
    assert_eq!(SuciNai::parse(v.octets("SUCI")).unwrap().to_request().as_ref(), Ok(request));
    let operator = v.trust().operator(&asked.certificate, NOW).unwrap();
    assert_eq!(operator.to_string(), "310/260:0abcdef0123");
    assert!(asked.is_signed_by(operator));
    let key = AnswerKey::new(&request.hash(), operator, &asked.terms, &asked.share);
    assert_eq!(key.0, v.octets("answer key"));

    let (plain, exporter) = request.open(&v.private("key of epoch")).unwrap();
    let vector = UserVector::parse(&plain).unwrap();
    assert!(vector.is_signed_by(&v.signing("key of user").verifying_key(), &request.head()));
    assert_eq!((vector.asker, vector.counter), (operator, 41));
    assert_eq!(vector.share, v.private("key of share u").share());
    assert_eq!(exporter.k_ausf().octets(), v.octets("K_AUSF"));

    let mut broker = broker("broker.example");
    broker.config.trust = v.trust();
    broker.begin_epoch(request.key_id(), v.private("key of epoch"));
    let mut known = user("user");
    known.key = v.signing("key of user").verifying_key();
    broker.set_user(UserId(vector.user.0), known);
    let event = broker.answer(v.octets("authReqT"), NOW, &seed("b", 1)).event;
    assert!(matches!(event, BrokerEvent::Granted(_)), "{event:?}");
}

#[test]
fn the_answer_of_another_implementation_gives_its_keys() {
    let v = Vectors::read();
    let answer = AnswerT::parse(v.octets("answerT")).unwrap();
    assert_eq!(v.trust().broker(&answer.certificate, NOW).unwrap().as_str(), "broker.example");
    let AnswerBody::Granted { grant, orders, answer_u } = answer.body else { panic!() };
    assert!(grant.is_signed_by(&answer.certificate.key));
    assert_eq!(grant.grant.request, AuthReqU::parse(v.octets("authReqU")).unwrap().hash());
    assert_eq!(grant.grant.supi().as_bytes(), v.octets("SUPI"));
    assert_eq!(grant.grant.orders, crypto::hash(&orders));

    let key = AnswerKey(v.octets("answer key").try_into().unwrap());
    let own = v.private("key of share t");
    let orders = OperatorOrders::open(&own, &key, &orders).unwrap();
    assert!(orders.intercept && orders.filters.len() == 2);
    let transcript = grant.grant.transcript();
    let at_t = k_seaf(b"SAP-v1 K_SEAF", &orders.ss, &own, &grant.grant.user_share, &transcript).unwrap();
    assert_eq!(at_t.octets(), v.octets("K_SEAF"));

    assert_eq!(answer_u.to_octets(), v.octets("answerU"));
    let (_, exporter) =
        AuthReqU::parse(v.octets("authReqU")).unwrap().open(&v.private("key of epoch")).unwrap();
    let opened = UserAnswer::parse(&exporter.open(&answer_u.salt, &answer_u.sealed).unwrap()).unwrap();
    assert_eq!((&opened.grant, &opened.ss), (&grant, &orders.ss));
    assert_eq!(opened.next_key.map(|key| key.id), Some(6));
    let own = v.private("key of share u");
    let at_u = k_seaf(b"SAP-v1 K_SEAF", &opened.ss, &own, &grant.grant.operator_share, &transcript).unwrap();
    assert_eq!(at_u, at_t);
}

#[test]
fn the_refusal_of_another_implementation_is_believed() {
    let v = Vectors::read();
    let refusal = SignedRefusal::parse(v.octets("refusal")).unwrap();
    assert!(refusal.is_signed_by(&v.signing("key of broker").verifying_key()));
    assert_eq!(refusal.key.map(|key| key.id), Some(6));
}
