//! UEs that attach veiled: the operator does not learn their identity, their broker not the place (LOCA, chapter 4).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, PlmnId, SNssai};
use whimbrel_open::id::Domain;
use whimbrel_privacy::crypto::VerifyingKey;
use whimbrel_privacy::operator::Contract;

/// The operator's part in a veiled attach. It holds no token: questions are signed where they leave
/// ([`crate::open::BrokerQuestion`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VeilPolicy {
    /// The broker, whose PLMN this network broadcasts.
    pub broker: Domain,
    /// Under which it signs.
    pub broker_key: VerifyingKey,
    /// The slice of veiled UEs.
    pub s_nssai: SNssai,
    /// Their data network.
    pub dnn: Dnn,
    /// How long the broker may take to answer.
    pub answer_timeout: Duration,
    /// Questions that UEs of one gNB may cause in a second.
    pub questions_per_gnb: u32,
    /// Whether ordinary UEs of the broker's PLMN are authenticated by the broker, and hidden from this operator.
    pub ordinary_ues: bool,
}

impl VeilPolicy {
    /// How the operator knows its broker, in the network of this PLMN.
    pub fn contract(&self, network: PlmnId) -> Contract {
        Contract { broker: self.broker.clone(), broker_key: self.broker_key, network }
    }
}
