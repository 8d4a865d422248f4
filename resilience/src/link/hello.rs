//! Who calls: what each end of a link between processes says before anything else.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use whimbrel_control::CODE_VERSION;

use crate::region::Region;
use crate::replication::CpfId;

/// Version of the links: another number with every change of a message or of a form in it.
const LINK_VERSION: u16 = 1;
/// What links of this program begin with.
const MAGIC: [u8; 8] = *b"whimbrel";

/// What an end is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// An aggregator.
    Aggregator,
    /// A control function that offers itself to an aggregator.
    Cpf {
        /// Its region.
        region: Region,
        /// Where other control functions reach it; an unspecified address stands for the one that it calls from.
        address: SocketAddr,
    },
    /// A control function that has states of phones for another.
    Peer {
        /// The aggregator's life that gave it its number.
        life: u64,
        /// That number.
        id: CpfId,
    },
}

/// The first message of each end.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// A role as it travels.
#[derive(Serialize, Deserialize)]
enum Wire {
    Aggregator,
    Cpf { region: String, address: SocketAddr },
    Peer { life: u64, id: CpfId },
}

impl Hello {
    /// Octets of one at most: the region's name is the longest part.
    pub const OCTETS_MAX: usize = 128;

    /// Its octets.
    pub fn to_octets(&self) -> Vec<u8> {
        let wire = match &self.0 {
            Role::Aggregator => Wire::Aggregator,
            Role::Cpf { region, address } => Wire::Cpf { region: region.to_string(), address: *address },
            Role::Peer { life, id } => Wire::Peer { life: *life, id: *id },
        };
        let mut octets = MAGIC.to_vec();
        octets.extend_from_slice(&LINK_VERSION.to_be_bytes());
        octets.extend_from_slice(&CODE_VERSION.to_be_bytes());
        postcard::to_extend(&wire, octets).expect("a role can be written")
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
        let wire: Wire = postcard::from_bytes(body).map_err(|_| BadHello::Malformed)?;
        Ok(Self(match wire {
            Wire::Aggregator => Role::Aggregator,
            Wire::Cpf { region, address } => {
                Role::Cpf { region: region.parse().map_err(|_| BadHello::Malformed)?, address }
            }
            Wire::Peer { life, id } => Role::Peer { life, id },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpf() -> Hello {
        let region = "north/harbour".parse().expect("a region");
        Hello(Role::Cpf { region, address: ([192, 0, 2, 7], 7380).into() })
    }

    #[test]
    fn each_role_is_read_as_it_was_written() {
        for hello in [Hello(Role::Aggregator), cpf(), Hello(Role::Peer { life: u64::MAX, id: CpfId(7) })] {
            let octets = hello.to_octets();
            assert!(octets.len() <= Hello::OCTETS_MAX);
            assert_eq!(Hello::from_octets(&octets), Ok(hello));
        }
    }

    #[test]
    fn strangers_other_versions_and_nonsense_are_told_apart() {
        assert_eq!(Hello::from_octets(b"GET / HTTP/1.1"), Err(BadHello::Stranger));
        assert_eq!(Hello::from_octets(b"whimbrel\0"), Err(BadHello::Stranger));
        let mut other = cpf().to_octets();
        other[9] ^= 0x40;
        assert!(matches!(Hello::from_octets(&other), Err(BadHello::Version { theirs: (65, 1), .. })));
        let mut no_region = cpf().to_octets();
        no_region[14] = b'4';
        assert_eq!(Hello::from_octets(&no_region), Err(BadHello::Malformed));
        let whole = cpf().to_octets();
        for n in 12..whole.len() {
            assert_eq!(Hello::from_octets(&whole[..n]), Err(BadHello::Malformed), "{n} octets of it");
        }
    }
}
