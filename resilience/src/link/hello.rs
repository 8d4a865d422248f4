//! Who calls: what each end of a link between processes says before anything else.

use std::fmt;

use serde::{Deserialize, Serialize};
use whimbrel_control::FORMS;
use whimbrel_ids::AmfId;

use crate::CodeVersion;

/// Version of the links: another number with every change of a message, or of what a CTA's successor is given ([`crate::cta_replica::Snapshot`]).
/// The test of `stored.rs` guards the former, that of `cta_replica/record.rs` the latter.
pub(super) const LINK_VERSION: u16 = 12;
/// What links of this program begin with.
const MAGIC: [u8; 8] = *b"whimbrel";
/// Octets of [`LinkVersions`].
const LANGUAGE: usize = 2 * (1 + FORMS.len());

/// What an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A CTA.
    Cta,
    /// A CPF.
    Cpf,
}

/// The versions of all that is said: of the links, then of the flat forms on them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LinkVersions([u8; LANGUAGE]);

impl LinkVersions {
    /// That of this process. Where [`CodeVersion::own`] can be another's, `WHIMBREL_LINK_VERSION` has this one speak another language.
    pub(crate) fn own() -> Self {
        let mut versions = [LINK_VERSION; 1 + FORMS.len()];
        versions[1..].copy_from_slice(&FORMS);
        #[cfg(any(debug_assertions, feature = "faults"))]
        if let Some(wanted) = std::env::var("WHIMBREL_LINK_VERSION").ok().and_then(|v| v.parse().ok()) {
            versions[0] = wanted;
        }
        let mut octets = [0; LANGUAGE];
        for (to, version) in octets.chunks_exact_mut(2).zip(versions) {
            to.copy_from_slice(&version.to_be_bytes());
        }
        Self(octets)
    }
}

impl LinkVersions {
    /// What stands in front of whatever is said in it.
    pub(crate) fn octets(self) -> [u8; LANGUAGE] {
        self.0
    }
}

/// `9.3.1.2.2.4`: as an operator compares it.
impl fmt::Display for LinkVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, version) in self.0.as_chunks::<2>().0.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { "." }, u16::from_be_bytes(*version))?;
        }
        Ok(())
    }
}

impl fmt::Debug for LinkVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The first message of each end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What it is.
    pub role: Role,
    /// By which code it runs logs.
    pub code: CodeVersion,
}

/// Why an end is not spoken with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelloError {
    /// It is no end of ours.
    Stranger,
    /// It is of a version of the program whose messages are others.
    LinkVersions {
        /// In which versions it speaks.
        theirs: LinkVersions,
        /// In which this program does.
        ours: LinkVersions,
    },
    /// It says what cannot be.
    Malformed,
}

impl HelloError {
    /// For logs that say once of each, and metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Stranger => "stranger",
            Self::LinkVersions { .. } => "version",
            Self::Malformed => "malformed",
        }
    }
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stranger => f.write_str("it does not speak as a part of whimbrel"),
            Self::LinkVersions { theirs, ours } => write!(
                f,
                "it is a version of whimbrel whose messages are others ({theirs}; here {ours}): there is no upgrade between the two \
                 while UEs are served"
            ),
            Self::Malformed => f.write_str("its first message is malformed"),
        }
    }
}

impl std::error::Error for HelloError {}

impl Hello {
    /// That of this process.
    pub fn own(role: Role) -> Self {
        Self { role, code: CodeVersion::own() }
    }

    /// Its octets.
    pub fn to_octets(self) -> Vec<u8> {
        let octets = [&MAGIC[..], &LinkVersions::own().0].concat();
        postcard::to_extend(&(self.role, self.code), octets).expect("a role can be written")
    }

    /// Reads what [`Self::to_octets`] wrote. Errors: each [`HelloError`].
    pub fn from_octets(octets: &[u8]) -> Result<Self, HelloError> {
        let rest = octets.strip_prefix(&MAGIC).ok_or(HelloError::Stranger)?;
        let (theirs, body) = rest.split_first_chunk().ok_or(HelloError::Stranger)?;
        let (theirs, ours) = (LinkVersions(*theirs), LinkVersions::own());
        if theirs != ours {
            return Err(HelloError::LinkVersions { theirs, ours });
        }
        match postcard::take_from_bytes(body) {
            Ok(((role, code), [])) => Ok(Self { role, code }),
            _ => Err(HelloError::Malformed),
        }
    }
}

/// The first message of each end of a link between two AMFs (N14): who it is. What is said then is judged message by message, by its form's
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAmfHello(pub AmfId);

/// What links between AMFs begin with.
const N14_MAGIC: [u8; 12] = *b"whimbrel n14";

impl PeerAmfHello {
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
    fn each_role_and_version_is_read_as_it_was_written() {
        for hello in [
            Hello::own(Role::Cta),
            Hello::own(Role::Cpf),
            Hello { role: Role::Cpf, code: CodeVersion(u32::MAX) },
        ] {
            assert_eq!(Hello::from_octets(&hello.to_octets()), Ok(hello));
        }
    }

    #[test]
    fn an_amf_is_read_as_it_was_written_and_nothing_else_is() {
        let hello = PeerAmfHello(AmfId::new(2, 1023, 63).expect("within its bits"));
        let octets = hello.to_octets();
        assert_eq!(PeerAmfHello::from_octets(&octets), Some(hello));
        for wrong in [&octets[1..], &octets[..octets.len() - 1], &Hello::own(Role::Cta).to_octets()] {
            assert_eq!(PeerAmfHello::from_octets(wrong), None);
        }
    }

    #[test]
    fn strangers_other_languages_and_nonsense_are_told_apart() {
        assert_eq!(Hello::from_octets(b"GET / HTTP/1.1"), Err(HelloError::Stranger));
        assert_eq!(Hello::from_octets(b"whimbrel\0"), Err(HelloError::Stranger));
        let whole = Hello::own(Role::Cpf).to_octets();
        let head = MAGIC.len() + LANGUAGE;
        for at in MAGIC.len()..head {
            let mut other = whole.clone();
            other[at] ^= 0x40;
            assert!(matches!(Hello::from_octets(&other), Err(HelloError::LinkVersions { .. })), "octet {at}");
        }
        for wrong in [&whole[..head], &[&whole[..], &[0]].concat(), &[&whole[..head], &[9, 1]].concat()] {
            assert_eq!(Hello::from_octets(wrong), Err(HelloError::Malformed));
        }
    }
}
