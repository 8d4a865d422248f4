//! Users of brokers, served by the operator without a contract (CellBricks, chapter 3).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, PlmnId, SNssai};
use whimbrel_open::id::{Domain, Nid, OperatorId};
use whimbrel_open::msg::{Terms, Trust};

/// The operator's part in SAP. It holds no key: questions to brokers are signed where they leave ([`crate::open::Question::sign`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The network identifier, where the network is a non-public one (TS 23.501 §5.30.2).
    pub nid: Option<Nid>,
    /// The authorities that certify brokers.
    pub trust: Trust,
    /// The terms on which users of brokers are served.
    pub terms: Terms,
    /// Brokers whose SAP UEs are served; `None`: those of every broker that `trust` certifies.
    pub brokers: Option<BTreeSet<Domain>>,
    /// Brokers whose ordinary UEs are served, by the PLMN of their subscriptions.
    pub homes: BTreeMap<PlmnId, Domain>,
    /// The slice of users of brokers.
    pub s_nssai: SNssai,
    /// The data network of users of brokers.
    pub dnn: Dnn,
    /// How long a broker may take to answer.
    pub answer_timeout: Duration,
    /// Questions to brokers that UEs of one gNB may cause in a second.
    pub questions_per_gnb: u32,
}

impl Open {
    /// Questions of one gNB where the operator says nothing: a busy gNB has some ten attaches a second, of up to two questions.
    pub const QUESTIONS_PER_GNB: u32 = 100;

    /// Default of the time that a broker may take: less than T3510, 15 s, after which the UE gives up (TS 24.501 Table
    /// 10.2.1).
    pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

    /// The operator as brokers know it.
    pub fn operator(&self, plmn: PlmnId) -> OperatorId {
        OperatorId { plmn, nid: self.nid }
    }

    /// Whether SAP UEs of this broker are served.
    pub fn serves(&self, broker: &Domain) -> bool {
        self.brokers.as_ref().is_none_or(|brokers| brokers.contains(broker))
    }
}
