//! Definitions of applications (TS 23.503 §6.1.2.3): the packets that a rule's Application ID means.
//!
//! By an operator, in the UPF's configuration, or by an SMF, as packet flow descriptions (PFDs, TS 29.244 §6.2.5).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use whimbrel_pfcp::ie::SdfFilter;

use crate::limits::{APPLICATION_FLOWS_MAX, APPLICATION_NAMES_MAX, APPLICATIONS_MAX};
use crate::rules::PdiFilter;
use crate::state::{Stored, StoredReader, stored};

/// An operator's definitions of applications.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applications {
    /// Those that are known from the start, at most [`APPLICATIONS_MAX`].
    pub known: Vec<Application>,
    /// Resolvers whose DNS answers are used; where the list is empty, those of every resolver that the UE asks.
    pub resolvers: Vec<IpAddr>,
}

impl Applications {
    /// Checks the definitions. Errors: the first that cannot be used.
    pub fn check(&self) -> Result<(), ApplicationError> {
        if self.known.len() > APPLICATIONS_MAX {
            return Err(ApplicationError::TooMany);
        }
        for (n, a) in self.known.iter().enumerate() {
            if self.known[..n].iter().any(|b| a.id == b.id) {
                return Err(ApplicationError::Twice(a.id.clone()));
            }
            a.check()?;
        }
        Ok(())
    }
}

/// An application: what meets one of its descriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// Its Application ID.
    pub id: Box<str>,
    /// Its packet flow descriptions.
    pub pfds: Vec<Pfd>,
}

impl Application {
    pub(crate) fn check(&self) -> Result<(), ApplicationError> {
        let flows: usize = self.pfds.iter().map(|p| p.flows.len()).sum();
        let names: usize = self.pfds.iter().map(|p| p.names.len()).sum();
        if flows > APPLICATION_FLOWS_MAX || names > APPLICATION_NAMES_MAX {
            return Err(ApplicationError::TooLong(self.id.clone()));
        }
        match self.pfds.iter().any(|p| p.flows.is_empty() && p.names.is_empty()) {
            true => Err(ApplicationError::Empty(self.id.clone())),
            false => Ok(()),
        }
    }
}

/// A packet flow description: of each kind that it has, a packet meets one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pfd {
    /// Flows of the application.
    pub flows: Vec<FlowDescription>,
    /// The names of its servers.
    pub names: Vec<DomainName>,
}

/// Why a definition of an application cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationError {
    /// More than [`APPLICATIONS_MAX`].
    TooMany,
    /// Two of one name.
    Twice(Box<str>),
    /// More flows than [`APPLICATION_FLOWS_MAX`], or more names than [`APPLICATION_NAMES_MAX`].
    TooLong(Box<str>),
    /// A description without flows and names.
    Empty(Box<str>),
}

impl fmt::Display for ApplicationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "there are more than {APPLICATIONS_MAX} applications"),
            Self::Twice(id) => write!(f, "the application {id:?} stands there twice"),
            Self::TooLong(id) => write!(
                f,
                "the application {id:?} has more than {APPLICATION_FLOWS_MAX} flows or {APPLICATION_NAMES_MAX} names"
            ),
            Self::Empty(id) => {
                write!(f, "a description of the application {id:?} has neither flows nor names")
            }
        }
    }
}

/// A flow description (TS 29.212 §5.4.2): `permit out 6 from 192.0.2.0/24 443 to assigned`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowDescription {
    pub(crate) filter: PdiFilter,
    text: Box<str>,
}

impl fmt::Display for FlowDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// It is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowDescriptionError;

impl FromStr for FlowDescription {
    type Err = FlowDescriptionError;

    fn from_str(text: &str) -> Result<Self, FlowDescriptionError> {
        let filter = PdiFilter::new(&SdfFilter::flow(text)).ok_or(FlowDescriptionError)?;
        Ok(Self { filter, text: text.into() })
    }
}

/// The protocol in whose messages a name is looked for (TS 29.122 §5.14.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DomainNameProtocol {
    /// The name counts in DNS and in TLS.
    #[default]
    Anywhere,
    /// In what UEs ask name servers (DNS_QNAME).
    Query,
    /// In the greeting of TLS (TLS_SNI).
    ServerName,
}

/// Names of servers: one, or with `*.` before it all below it. `dns` or `tls` before it says where it is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainName {
    /// In lower case, without a dot at its end.
    name: Box<str>,
    /// Names below it are meant.
    below: bool,
    protocol: DomainNameProtocol,
}

/// Octets of a name (RFC 1035 §2.3.4).
pub(crate) const NAME_OCTETS_MAX: usize = 255;

stored!(DomainName { name, below, protocol });

impl Stored for DomainNameProtocol {
    fn store(&self, to: &mut Vec<u8>) {
        to.push(match self {
            Self::Anywhere => 0,
            Self::Query => 1,
            Self::ServerName => 2,
        });
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        match u8::restore(from)? {
            0 => Some(Self::Anywhere),
            1 => Some(Self::Query),
            2 => Some(Self::ServerName),
            _ => None,
        }
    }
}

impl DomainName {
    /// Of a name, or of `*.` and a name. Errors: where it is neither, as other expressions are not.
    pub fn new(text: &str, protocol: DomainNameProtocol) -> Result<Self, FlowDescriptionError> {
        let (name, below) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
        let name = name.strip_suffix('.').unwrap_or(name);
        let fits = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        let label = |l: &str| (1..=63).contains(&l.len()) && l.bytes().all(fits);
        if name.len() > NAME_OCTETS_MAX || !name.split('.').all(label) {
            return Err(FlowDescriptionError);
        }
        Ok(Self { name: name.to_ascii_lowercase().into(), below, protocol })
    }

    /// Whether a name, in lower case, is one of those.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        let own = self.name.as_bytes();
        match self.below {
            false => name == own,
            true => name.strip_suffix(own).is_some_and(|below| below.len() > 1 && below.ends_with(b".")),
        }
    }

    /// Whether it is looked for in messages of this protocol.
    pub(crate) fn is_of(&self, protocol: DomainNameProtocol) -> bool {
        self.protocol == DomainNameProtocol::Anywhere || self.protocol == protocol
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            DomainNameProtocol::Anywhere => "",
            DomainNameProtocol::Query => "dns ",
            DomainNameProtocol::ServerName => "tls ",
        };
        write!(f, "{protocol}{}{}", if self.below { "*." } else { "" }, self.name)
    }
}

impl FromStr for DomainName {
    type Err = FlowDescriptionError;

    fn from_str(text: &str) -> Result<Self, FlowDescriptionError> {
        match text.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            [name] => Self::new(name, DomainNameProtocol::Anywhere),
            ["dns", name] => Self::new(name, DomainNameProtocol::Query),
            ["tls", name] => Self::new(name, DomainNameProtocol::ServerName),
            _ => Err(FlowDescriptionError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_itself_and_a_star_is_all_below() {
        let name = |text: &str| text.parse::<DomainName>().unwrap();
        let one = name("Video.Example.");
        assert!(one.has(b"video.example") && !one.has(b"www.video.example") && !one.has(b"avideo.example"));
        let below = name("*.video.example");
        assert!(below.has(b"www.video.example") && below.has(b"a.b.video.example"));
        assert!(
            !below.has(b"video.example") && !below.has(b"avideo.example") && !below.has(b".video.example")
        );
        assert!(
            name("dns a.b").is_of(DomainNameProtocol::Query)
                && !name("dns a.b").is_of(DomainNameProtocol::ServerName)
        );
        assert_eq!(name("tls *.A.b").to_string(), "tls *.a.b");
    }

    #[test]
    fn expressions_that_are_not_known_are_refused() {
        for bad in
            ["", ".", "a..b", "*", "*.", "a.*.b", "[a-z]+.example", "http a.b", "a.b c", "ex\u{e4}mple"]
        {
            assert_eq!(bad.parse::<DomainName>(), Err(FlowDescriptionError), "{bad}");
        }
        assert!(DomainName::new(&"a.".repeat(200), DomainNameProtocol::Anywhere).is_err());
    }
}
