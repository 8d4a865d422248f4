//! Veiled users (LOCA, chapter 4) as an operator reaches their broker: what it asks, and the channels that do not show where it is.
//!
//! | part | here |
//! | --- | --- |
//! | the operator's channels: direct, and through a relay pair | [`channel`] |
//! | everything that a party received, sent and stored, for the knowledge ledger | [`record`] |
//! | the file of reported sessions that are not paid | [`session_file`] |

pub mod channel;
pub mod record;
pub mod session_file;

use whimbrel_open::id::Domain;
use whimbrel_privacy::log::LogRequest;
use whimbrel_privacy::msg::{
    ClaimRequest, Failure, GroupRequest, OperatorRequest, OrderAnswer, OrdersRequest, TableRequest,
    UsageReport,
};
use whimbrel_privacy::relay::Resource;

/// The path of requests that go through the relays, at a relay and at a gateway.
pub const RELAY_PATH: &str = "/veil/v1/relay";

/// Octets of a token request: a batch of blinded tokens, and the operator's certificate.
const TOKENS_OCTETS_MAX: usize = 8 << 10;

/// What the broker is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuestionKind {
    /// Its log of issuing keys, under the operator's name.
    Log,
    /// A batch of tokens, under the operator's name.
    Tokens,
    /// To open a session group.
    Group,
    /// To attach a user.
    Attach,
    /// To take a usage report.
    Report,
    /// To take a user's failure.
    Failure,
    /// For rows of a settlement period's table.
    Table,
    /// To pay a claim, under the operator's name.
    Claim,
    /// For the orders of agencies.
    Orders,
    /// To take the answer to an order.
    OrderAnswer,
}

impl QuestionKind {
    /// All kinds, in their order on the wire.
    pub const ALL: [Self; 10] = [
        Self::Log,
        Self::Tokens,
        Self::Group,
        Self::Attach,
        Self::Report,
        Self::Failure,
        Self::Table,
        Self::Claim,
        Self::Orders,
        Self::OrderAnswer,
    ];

    /// Its path at the broker.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Log => "/veil/v1/log",
            Self::Tokens => "/veil/v1/tokens",
            Self::Group => "/veil/v1/group",
            Self::Attach => "/veil/v1/attach",
            Self::Report => "/veil/v1/report",
            Self::Failure => "/veil/v1/failure",
            Self::Table => "/veil/v1/table",
            Self::Claim => "/veil/v1/claim",
            Self::Orders => "/veil/v1/orders",
            Self::OrderAnswer => "/veil/v1/order-answer",
        }
    }

    /// The one of a path.
    pub fn of_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.path() == path)
    }

    /// Octets of the longest request.
    pub const fn octets_max(self) -> usize {
        match self {
            Self::Log => LogRequest::OCTETS_MAX,
            Self::Tokens => TOKENS_OCTETS_MAX,
            Self::Group => GroupRequest::OCTETS_MAX,
            Self::Attach => OperatorRequest::OCTETS_MAX,
            Self::Report => UsageReport::OCTETS_MAX,
            Self::Failure => Failure::OCTETS,
            Self::Table => TableRequest::OCTETS_MAX,
            Self::Claim => ClaimRequest::OCTETS_MAX,
            Self::Orders => OrdersRequest::OCTETS_MAX,
            Self::OrderAnswer => OrderAnswer::OCTETS_MAX,
        }
    }

    /// How recordings name a request and its answer.
    pub const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Log => ("key log asked", "key log"),
            Self::Tokens => ("tokens requested", "tokens issued"),
            Self::Group => ("group request", "group answer"),
            Self::Attach => ("operator request", "answer"),
            Self::Report => ("usage report", "report answer"),
            Self::Failure => ("failure", "failure answer"),
            Self::Table => ("table asked", "table"),
            Self::Claim => ("claim, proof left out", "claim answer"),
            Self::Orders => ("orders asked", "orders"),
            Self::OrderAnswer => ("order answer", "order answer taken"),
        }
    }
}

impl From<Resource> for QuestionKind {
    fn from(resource: Resource) -> Self {
        match resource {
            Resource::Group => Self::Group,
            Resource::Attach => Self::Attach,
            Resource::Report => Self::Report,
            Resource::Failure => Self::Failure,
            Resource::Orders => Self::Orders,
            Resource::OrderAnswer => Self::OrderAnswer,
        }
    }
}

/// An endpoint: the domain in its TLS certificate, and the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsEndpoint {
    /// The name that its TLS certificate is of.
    pub domain: Domain,
    /// Address and TCP port.
    pub address: std::net::SocketAddr,
}
