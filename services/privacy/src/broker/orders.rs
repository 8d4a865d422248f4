//! Orders of agencies (chapter 4.4.4). The broker passes on what an agency that it trusts has signed for one
//! of its sessions, when the owner of the session group asks; it keeps the answer, which only the agency can
//! read.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_ids::Instant;

use super::{Broker, BrokerEvent, BrokerOutput, Record};
use crate::crypto::VerifyingKey;
use crate::msg::{Order, OrderAnswer, Orders, OrdersRequest, ReportAnswer, ReportError};

/// Why an order is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// The broker does not know the agency.
    UnknownAgency,
    /// The agency did not sign it.
    Signature,
    /// It has expired, or does not hold yet.
    NotValidNow,
    /// There is no such session in the session group.
    UnknownSession,
}

impl core::fmt::Display for OrderError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::UnknownAgency => "the agency is not known",
            Self::Signature => "the agency's signature is wrong",
            Self::NotValidNow => "the order does not hold now",
            Self::UnknownSession => "there is no such session",
        })
    }
}

/// The orders that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct OrderState {
    agencies: BTreeSet<[u8; 32]>,
    pending: BTreeMap<[u8; 32], Order>,
    answered: BTreeMap<[u8; 32], u64>,
}

impl OrderState {
    pub(super) fn answered(&mut self, order: &[u8; 32]) {
        let until = self.pending.remove(order).map_or(u64::MAX, |order| order.validity.until);
        self.answered.insert(*order, until);
    }

    pub(super) fn forget(&mut self, now_s: u64) {
        self.pending.retain(|_, order| now_s <= order.validity.until);
        self.answered.retain(|_, until| now_s <= *until);
    }
}

impl Broker {
    /// Whose orders are passed on.
    pub fn set_agencies(&mut self, agencies: impl IntoIterator<Item = VerifyingKey>) {
        self.orders.agencies = agencies.into_iter().map(|key| key.octets()).collect();
    }

    /// Takes an order, which is durable already. One that was taken, or answered, changes nothing.
    pub fn order(&mut self, order: Order, now: Instant) -> Result<(), OrderError> {
        if !self.orders.agencies.contains(&order.agency.octets()) {
            return Err(OrderError::UnknownAgency);
        }
        if !order.is_signed() {
            return Err(OrderError::Signature);
        }
        if !order.is_valid(now) {
            return Err(OrderError::NotValidNow);
        }
        if self.sessions.get(&order.session).is_none_or(|session| session.group != order.group) {
            return Err(OrderError::UnknownSession);
        }
        let hash = order.hash();
        if !self.orders.answered.contains_key(&hash) {
            self.orders.pending.insert(hash, order);
        }
        Ok(())
    }

    /// Gives the owner of a session group the orders for it, and another party none.
    pub fn orders(&self, octets: &[u8], now: Instant) -> BrokerOutput {
        let orders = OrdersRequest::parse(octets).ok().and_then(|request| {
            let group = self.groups.get(&request.group)?;
            let own = request.broker == self.config.domain && request.is_signed_by(&group.key);
            let of = |order: &&Order| order.group == request.group && order.is_valid(now);
            let pending = self.orders.pending.values().filter(of).take(Orders::MAX);
            own.then(|| Orders(pending.cloned().collect()))
        });
        let orders = orders.unwrap_or_default();
        let event = BrokerEvent::Ordered(orders.0.len());
        BrokerOutput { octets: orders.to_octets(), event, record: None }
    }

    /// Takes the answer to an order.
    pub fn order_answer(&mut self, octets: &[u8]) -> BrokerOutput {
        let (answer, event, record) = match self.judge_answer(octets) {
            Ok(None) => (ReportAnswer::Taken, BrokerEvent::Repeated, None),
            Ok(Some(order)) => {
                let record = Record::OrderAnswered { order, octets: octets.to_vec() };
                self.restore(record.clone());
                (ReportAnswer::Taken, BrokerEvent::OrderAnswered, Some(record))
            }
            Err(cause) => (ReportAnswer::Refused(cause), BrokerEvent::OrderNotAnswered(cause), None),
        };
        BrokerOutput { octets: answer.to_octets(), event, record }
    }

    /// H(order); `None` if it was answered before.
    fn judge_answer(&self, octets: &[u8]) -> Result<Option<[u8; 32]>, ReportError> {
        let answer = OrderAnswer::parse(octets).map_err(|_| ReportError::Malformed)?;
        if answer.broker != self.config.domain {
            return Err(ReportError::OtherBroker);
        }
        let group = self.groups.get(&answer.group).ok_or(ReportError::UnknownGroup)?;
        if !answer.is_signed_by(&group.key) {
            return Err(ReportError::TokenSignature);
        }
        if self.orders.answered.contains_key(&answer.order) {
            return Ok(None);
        }
        let order = self.orders.pending.get(&answer.order).filter(|order| order.group == answer.group);
        order.map(|_| Some(answer.order)).ok_or(ReportError::UnknownSession)
    }
}
