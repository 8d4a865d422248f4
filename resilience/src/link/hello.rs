//! Who calls: what each end of a link between processes says before anything else.

use std::fmt;

use serde::{Deserialize, Serialize};
use whimbrel_control::CODE_VERSION;
use whimbrel_ids::AmfId;

/// Version of the links: another number with every change of a message or of a form in it.
const LINK_VERSION: u16 = 7;
/// What links of this program begin with.
const MAGIC: [u8; 8] = *b"whimbrel";

/// What an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// An aggregator.
    Aggregator,
    /// A control function.
    Cpf,
}

/// The first message of each end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello(pub Role);

/// Why an end is not spoken with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadHello {
    /// It is no end of ours.
    Stranger,
    /// It is another version of the program: a log is run by the version that began it.
    Version {
        /// Version of its links, and of the code of its procedures.
        theirs: (u16, u16),
        /// Ours.
        ours: (u16, u16),
    },
    /// It says what cannot be.
    Malformed,
}

impl fmt::Display for BadHello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stranger => f.write_str("it does not speak as a part of whimbrel"),
            Self::Version { theirs, ours } => write!(
                f,
                "it is another version of whimbrel (links {}, procedures {}; here {} and {}): all processes of a cluster run \
                 the same",
                theirs.0, theirs.1, ours.0, ours.1
            ),
            Self::Malformed => f.write_str("its first message is malformed"),
        }
    }
}

impl std::error::Error for BadHello {}

impl Hello {
    /// Its octets.
    pub fn to_octets(self) -> Vec<u8> {
        let mut octets = MAGIC.to_vec();
        octets.extend_from_slice(&LINK_VERSION.to_be_bytes());
        octets.extend_from_slice(&CODE_VERSION.to_be_bytes());
        postcard::to_extend(&self.0, octets).expect("a role can be written")
    }

    /// Reads what [`Self::to_octets`] wrote. Errors: each [`BadHello`].
    pub fn from_octets(octets: &[u8]) -> Result<Self, BadHello> {
        let rest = octets.strip_prefix(&MAGIC).ok_or(BadHello::Stranger)?;
        let (&[l0, l1, c0, c1], body) = rest.split_first_chunk::<4>().ok_or(BadHello::Stranger)?;
        let theirs = (u16::from_be_bytes([l0, l1]), u16::from_be_bytes([c0, c1]));
        let ours = (LINK_VERSION, CODE_VERSION);
        if theirs != ours {
            return Err(BadHello::Version { theirs, ours });
        }
        match postcard::take_from_bytes(body) {
            Ok((role, [])) => Ok(Self(role)),
            _ => Err(BadHello::Malformed),
        }
    }
}

/// The first message of each end of a link between two AMFs (N14): who it is. What is said then is judged message by message, by its form's
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourHello(pub AmfId);

/// What links between AMFs begin with.
const N14_MAGIC: [u8; 12] = *b"whimbrel n14";

impl NeighbourHello {
    /// Its octets.
    pub fn to_octets(self) -> Vec<u8> {
        [&N14_MAGIC[..], &self.0.octets()].concat()
    }

    /// Reads what [`Self::to_octets`] wrote; `None`: it does not speak as one of ours.
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        let amf_id = octets.strip_prefix(&N14_MAGIC)?.try_into().ok()?;
        Some(Self(AmfId::from_octets(amf_id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_is_read_as_it_was_written() {
        for hello in [Hello(Role::Aggregator), Hello(Role::Cpf)] {
            assert_eq!(Hello::from_octets(&hello.to_octets()), Ok(hello));
        }
    }

    #[test]
    fn an_amf_is_read_as_it_was_written_and_nothing_else_is() {
        let hello = NeighbourHello(AmfId::new(2, 1023, 63).expect("within its bits"));
        let octets = hello.to_octets();
        assert_eq!(NeighbourHello::from_octets(&octets), Some(hello));
        for wrong in [&octets[1..], &octets[..octets.len() - 1], &Hello(Role::Aggregator).to_octets()] {
            assert_eq!(NeighbourHello::from_octets(wrong), None);
        }
    }

    #[test]
    fn strangers_other_versions_and_nonsense_are_told_apart() {
        assert_eq!(Hello::from_octets(b"GET / HTTP/1.1"), Err(BadHello::Stranger));
        assert_eq!(Hello::from_octets(b"whimbrel\0"), Err(BadHello::Stranger));
        let mut other = Hello(Role::Cpf).to_octets();
        other[8] ^= 0x40;
        const OTHER: u16 = LINK_VERSION ^ 0x4000;
        assert!(matches!(Hello::from_octets(&other), Err(BadHello::Version { theirs: (OTHER, _), .. })));
        let whole = Hello(Role::Cpf).to_octets();
        for wrong in [&whole[..12], &[&whole[..], &[0]].concat(), &[&whole[..12], &[9]].concat()] {
            assert_eq!(Hello::from_octets(wrong), Err(BadHello::Malformed));
        }
    }
}
