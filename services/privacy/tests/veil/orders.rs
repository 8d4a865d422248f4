//! Orders of an agency (chapter 4.4.4): passed on to the owner of the session group alone, answered to the agency alone.

use whimbrel_broker_common::certificate::Validity;
use whimbrel_broker_common::crypto::PrivateKey;
use whimbrel_privacy::broker::{Broker, BrokerEvent, OrderError, Record};
use whimbrel_privacy::msg::{
    Finding, Order, OrderAnswer, OrderKind, Orders, OrdersRequest, ReportError, SealedCopy,
};
use whimbrel_privacy::operator::{Group, OperatorAttach};
use whimbrel_privacy::user::UserAttach;

use crate::messages::read_as_every_message;
use crate::world::*;

fn agency() -> PrivateKey {
    PrivateKey::new([0xa9; 32])
}

struct Net {
    broker: Broker,
    group: Group,
    session: [u8; 32],
}

impl Net {
    fn new() -> Self {
        let mut broker = broker();
        broker.set_agencies([key("agency").verifying_key()]);
        let group = open_group(&mut broker);
        let (_, request) =
            UserAttach::begin(&mut sim("alice", ALICE, &broker), group.hash(), &seed("u", 1)).unwrap();
        let session = request.hash();
        let (_, question) = OperatorAttach::ask(contract(), request, &seed("o", 1)).unwrap();
        let answered = broker.attach(&question.sign(&group).unwrap(), at(AGE_S), &seed("b", 1));
        assert!(matches!(answered.event, BrokerEvent::Granted(_)));
        Self { broker, group, session }
    }

    fn order(&self, kind: OrderKind, nonce: u8) -> Order {
        let validity = Validity { from: NOW_S, until: NOW_S + AGE_S + 900 };
        Order::signed(kind, (self.session, self.group.hash()), validity, [nonce; 16], &key("agency"))
    }

    fn poll(&self) -> Vec<Order> {
        let output = self.broker.orders(&self.group.orders(domain(), [9; 16]).to_octets(), at(AGE_S));
        Orders::parse(&output.octets).unwrap().0
    }

    fn answer(&self, order: &Order, finding: &Finding) -> OrderAnswer {
        let to = (order.hash(), &agency().share());
        self.group.answer(domain(), to, finding, &seed("answer", 1)).unwrap()
    }
}

#[test]
fn an_order_reaches_the_owner_of_the_session_group_and_its_answer_the_agency_alone() {
    let mut net = Net::new();
    assert_eq!(net.poll(), []);
    let order = net.order(OrderKind::Locate, 1);
    net.broker.order(order.clone(), at(AGE_S)).unwrap();
    assert_eq!(net.poll(), std::slice::from_ref(&order));
    assert!(order.is_signed() && order.is_valid(at(AGE_S)));
    let place = Finding::Place(*b"tai and nr cgi");
    let answer = net.answer(&order, &place);
    let output = net.broker.order_answer(&answer.to_octets());
    assert!(matches!(output.event, BrokerEvent::OrderAnswered));
    let Some(record) = output.record else { panic!("it is durable") };
    let stored = record.to_octets();
    assert!(!stored.windows(14).any(|w| w == b"tai and nr cgi"), "B does not learn the place");
    assert_eq!(OrderAnswer::parse(&answer.to_octets()).unwrap().open(&agency()), Some(place));
    assert_eq!(answer.open(&PrivateKey::new([1; 32])), None);
    // It is asked no more, also of a broker that begins again, and the same answer is taken again.
    assert_eq!(net.poll(), []);
    net.broker.order(order.clone(), at(AGE_S)).unwrap();
    assert_eq!(net.poll(), []);
    assert!(matches!(net.broker.order_answer(&answer.to_octets()).event, BrokerEvent::Repeated));
    for octets in [order.to_octets(), answer.to_octets(), Orders(vec![order.clone(); 3]).to_octets()] {
        assert_eq!(read_as_every_message(&octets), 1);
    }
    let mut again = Net::new();
    again.broker.order(order, at(AGE_S)).unwrap();
    again.broker.restore(Record::OrderAnswered { order: answer.order, octets: answer.to_octets() });
    assert_eq!(again.poll(), []);
}

#[test]
fn an_order_of_no_known_agency_or_session_is_not_passed_on() {
    let mut net = Net::new();
    let good = net.order(OrderKind::Intercept, 1);
    let change = |f: &dyn Fn(&mut Order)| {
        let mut order = good.clone();
        f(&mut order);
        order
    };
    let signed = |by: &str, session, group, validity| {
        Order::signed(OrderKind::Locate, (session, group), validity, [1; 16], &key(by))
    };
    let mut other = good.group;
    other.0[0] ^= 1;
    for (order, error) in [
        (signed("eve", good.session, good.group, good.validity), OrderError::UnknownAgency),
        (change(&|o| o.kind = OrderKind::Locate), OrderError::Signature),
        (change(&|o| o.validity.until += 1), OrderError::Signature),
        (signed("agency", [1; 32], good.group, good.validity), OrderError::UnknownSession),
        (signed("agency", good.session, other, good.validity), OrderError::UnknownSession),
        (
            signed("agency", good.session, good.group, Validity { from: 0, until: NOW_S }),
            OrderError::NotValidNow,
        ),
    ] {
        assert_eq!(net.broker.order(order, at(AGE_S)), Err(error));
    }
    assert_eq!(net.poll(), []);
}

#[test]
fn another_party_than_the_owner_of_the_session_group_gets_no_order_and_answers_none() {
    let mut net = Net::new();
    let order = net.order(OrderKind::Locate, 1);
    net.broker.order(order.clone(), at(AGE_S)).unwrap();
    let eve = OrdersRequest::signed(domain(), net.group.hash(), [9; 16], &key("eve"));
    for octets in [eve.to_octets(), Vec::new()] {
        assert_eq!(Orders::parse(&net.broker.orders(&octets, at(AGE_S)).octets), Ok(Orders::default()));
    }
    let refused = |net: &mut Net, answer: &OrderAnswer, cause| {
        let event = net.broker.order_answer(&answer.to_octets()).event;
        assert!(matches!(event, BrokerEvent::OrderNotAnswered(c) if c == cause), "{event:?}");
    };
    let good = net.answer(&order, &Finding::NotHere);
    refused(&mut net, &OrderAnswer { order: [7; 32], ..good.clone() }, ReportError::TokenSignature);
    let of_none = net.answer(&net.order(OrderKind::Locate, 2), &Finding::NotHere);
    refused(&mut net, &of_none, ReportError::UnknownSession);
    assert_eq!(net.poll(), [order]);
    assert!(matches!(net.broker.order_answer(&good.to_octets()).event, BrokerEvent::OrderAnswered));
}

#[test]
fn a_copy_opens_with_the_agencys_key_and_in_its_place_alone() {
    let copy = SealedCopy::seal([3; 32], 5, b"a packet", &agency().share(), &seed("copy", 1)).unwrap();
    let read = SealedCopy::parse(&copy.to_octets()).unwrap();
    assert_eq!(read.open(&agency()).unwrap()[..], b"a packet"[..]);
    assert!(read.open(&PrivateKey::new([1; 32])).is_none());
    let (mut renumbered, mut reordered) = (read.clone(), read.clone());
    (renumbered.number, reordered.order) = (6, [4; 32]);
    assert!(renumbered.open(&agency()).is_none() && reordered.open(&agency()).is_none());
    assert_eq!(read_as_every_message(&copy.to_octets()), 1);
    for finding in [Finding::NotHere, Finding::Intercepted, Finding::Place([1; 14])] {
        assert_eq!(Finding::parse(&finding.to_octets()), Ok(finding));
    }
    assert!(Finding::parse(&[&[1], &[1; 14][..]].concat()).is_err());
}
