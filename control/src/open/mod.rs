//! What the AMF asks brokers (CellBricks, chapter 3.4.1, crate `whimbrel_open`; LOCA, chapter 4.4.2, crate `whimbrel_veil`).
//!
//! A UE's machine asks with a [`BrokerQuestion`] among its outputs and gets a [`BrokerAnswer`] as a later input. The machine holds no key of the
//! operator's: the process that sends the question signs it ([`Question::sign`], [`VeilQuestion::sign`]). The octets of the answer are unverified; the machine checks
//! them. The machine asks the same again while nothing comes, and the broker gives the same answer, so that neither a lost question
//! nor a lost answer costs the UE anything.

use serde::{Deserialize, Serialize};
use whimbrel_open::id::Domain;
pub use whimbrel_open::operator::Question;
pub use whimbrel_privacy::msg::HomeQuestion as VeilHomeQuestion;
pub use whimbrel_privacy::operator::Question as VeilQuestion;

/// A question to a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BrokerQuestion {
    /// Under the operator's name.
    Sap(Question),
    /// Under a token, over an anonymous channel.
    Veil(VeilQuestion),
    /// The same for an ordinary UE.
    VeilHome(VeilHomeQuestion),
}

impl BrokerQuestion {
    /// The broker that is asked.
    pub const fn broker(&self) -> &Domain {
        match self {
            Self::Sap(question) => question.broker(),
            Self::Veil(question) => question.request.broker(),
            Self::VeilHome(question) => &question.broker,
        }
    }

    /// Its octets, for digests.
    pub(crate) fn to_octets(&self) -> Vec<u8> {
        match self {
            Self::Sap(question) => question.to_octets(),
            Self::Veil(question) => question.to_octets(),
            Self::VeilHome(question) => question.to_octets(),
        }
    }
}

/// What came of a question.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BrokerAnswer {
    /// The broker answered with these octets, which are not verified yet.
    Octets(#[serde(with = "crate::flat::octets::owned")] Vec<u8>),
    /// The broker was not reached.
    Unreachable(Unreachable),
}

impl BrokerAnswer {
    /// The longest answer of a broker, in octets, that is taken.
    pub const OCTETS_MAX: usize = 4096;
}

impl core::fmt::Debug for BrokerAnswer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Octets(octets) => write!(f, "Octets({} octets)", octets.len()),
            Self::Unreachable(why) => write!(f, "Unreachable({why:?})"),
        }
    }
}

/// Why a broker was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Unreachable {
    /// Its domain has no address.
    NoAddress,
    /// Its domain leads to an address that is not public, or to the operator's own network.
    ForbiddenAddress,
    /// No connection was set up.
    NotConnected,
    /// Its TLS certificate is not valid for the domain.
    Tls,
    /// It did not answer in time.
    TimedOut,
    /// It answered with this HTTP status instead of 200.
    Status(u16),
    /// Its answer is longer than [`BrokerAnswer::OCTETS_MAX`].
    TooLong,
    /// Too many questions are under way.
    Busy,
    /// It has paid for too little of what its users were served: it is not asked.
    DoesNotPay,
    /// The session group of the token that the UE heard is not open: the UE hears another one by now.
    NoToken,
}

impl Unreachable {
    /// Whether asking again within seconds is of no use.
    pub const fn is_lasting(self) -> bool {
        match self {
            Self::NoAddress
            | Self::ForbiddenAddress
            | Self::Tls
            | Self::TooLong
            | Self::DoesNotPay
            | Self::NoToken => true,
            Self::NotConnected | Self::TimedOut | Self::Status(_) | Self::Busy => false,
        }
    }
}

impl core::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NoAddress => "its domain has no address",
            Self::ForbiddenAddress => "its domain leads to an address that is not public",
            Self::NotConnected => "no connection was set up",
            Self::Tls => "its TLS certificate is not valid for its domain",
            Self::TimedOut => "it did not answer in time",
            Self::Status(status) => return write!(f, "it answered with HTTP status {status}"),
            Self::TooLong => "its answer is too long",
            Self::Busy => "too many questions to brokers are under way",
            Self::DoesNotPay => "it has paid for too little of what its users were served",
            Self::NoToken => "the token that the UE heard opens no session group now",
        })
    }
}
