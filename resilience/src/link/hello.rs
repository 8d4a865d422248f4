//! The first message of each end of a link between processes.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use whimbrel_control::FORMS;
use whimbrel_ids::{AmfId, PlmnId, SNssai};

use crate::CodeVersion;

/// Version of the link messages, raised with every change of a message or of a snapshot ([`crate::cta_replica::Snapshot`]). The test of
/// `stored.rs` guards the former, that of `cta_replica/record.rs` the latter.
pub(super) const LINK_VERSION: u16 = 27;
/// What links of this program begin with.
const MAGIC: [u8; 8] = *b"whimbrel";
/// Octets of [`LinkVersions`].
const LANGUAGE: usize = 2 * (1 + FORMS.len());

/// The role of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkRole {
    /// A CTA sends it.
    Cta,
    /// A CPF sends it.
    Cpf,
    /// The UPF of a unit, which a CTA connects to for N4.
    Upf,
    /// A network function of a unit, which a CTA connects to.
    Function,
}

/// The versions of the link messages, then of the flat forms on them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LinkVersions([u8; LANGUAGE]);

impl LinkVersions {
    /// Those of this process. Where [`CodeVersion::own`] can be overridden, `WHIMBREL_LINK_VERSION` overrides the version of the link
    /// messages.
    pub(crate) fn own() -> Self {
        let mut versions = [LINK_VERSION; 1 + FORMS.len()];
        versions[1..].copy_from_slice(&FORMS);
        #[cfg(any(debug_assertions, feature = "faults"))]
        if let Some(version) = std::env::var("WHIMBREL_LINK_VERSION").ok().and_then(|v| v.parse().ok()) {
            versions[0] = version;
        }
        let mut octets = [0; LANGUAGE];
        for (to, version) in octets.chunks_exact_mut(2).zip(versions) {
            to.copy_from_slice(&version.to_be_bytes());
        }
        Self(octets)
    }
}

impl LinkVersions {
    /// The octets in front of messages of these versions.
    pub(crate) fn octets(self) -> [u8; LANGUAGE] {
        self.0
    }
}

/// `9.3.1.2.2.4`: as shown to operators.
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
    pub role: LinkRole,
    /// The code version by which it runs logs.
    pub code: CodeVersion,
}

/// Why a link is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelloError {
    /// The peer is not a part of Whimbrel.
    NotWhimbrel,
    /// Its versions of the messages differ.
    LinkVersions {
        /// The peer's versions.
        theirs: LinkVersions,
        /// This program's versions.
        ours: LinkVersions,
    },
    /// The message is malformed.
    Malformed,
}

impl HelloError {
    /// The reason in metrics, and in logs that are limited to one line for each.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotWhimbrel => "not_whimbrel",
            Self::LinkVersions { .. } => "version",
            Self::Malformed => "malformed",
        }
    }
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWhimbrel => f.write_str("it is not a part of whimbrel"),
            Self::LinkVersions { theirs, ours } => write!(
                f,
                "it is another version of whimbrel: its message versions are {theirs}, here {ours}; there is no upgrade between the two \
                 while UEs are served"
            ),
            Self::Malformed => f.write_str("its first message is malformed"),
        }
    }
}

impl std::error::Error for HelloError {}

impl Hello {
    /// That of this process.
    pub fn own(role: LinkRole) -> Self {
        Self { role, code: CodeVersion::own() }
    }

    /// The encoded form, as it is sent.
    pub fn to_octets(self) -> Vec<u8> {
        let octets = [&MAGIC[..], &LinkVersions::own().0].concat();
        postcard::to_extend(&(self.role, self.code), octets).expect("a role can be written")
    }

    /// Reads what [`Self::to_octets`] wrote. Errors: each [`HelloError`].
    pub fn from_octets(octets: &[u8]) -> Result<Self, HelloError> {
        let rest = octets.strip_prefix(&MAGIC).ok_or(HelloError::NotWhimbrel)?;
        let (theirs, body) = rest.split_first_chunk().ok_or(HelloError::NotWhimbrel)?;
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

/// The first message of each end of a link between two AMFs (N14). Later messages are checked one by one, by the version of their form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerAmfHello {
    /// Its AMF identifier.
    pub amf_id: AmfId,
    /// The network that it serves.
    pub plmn: PlmnId,
    /// The slices that it offers, [`HELLO_SLICES_MAX`] at most.
    pub slices: Vec<SNssai>,
    /// The N4 address of its SMF.
    pub smf: IpAddr,
}

/// What links between AMFs begin with.
const N14_MAGIC: [u8; 12] = *b"whimbrel n14";
/// Slices in a [`PeerAmfHello`]: a link's first message has 1,024 octets at most.
pub const HELLO_SLICES_MAX: usize = 64;

impl PeerAmfHello {
    /// The encoded form, as it is sent.
    pub fn to_octets(&self) -> Vec<u8> {
        postcard::to_extend(self, N14_MAGIC.to_vec()).expect("numbers and addresses can be written")
    }

    /// Reads what [`Self::to_octets`] wrote; `None`: it is not such a message.
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(octets.strip_prefix(&N14_MAGIC)?) {
            Ok((hello, [])) => Some(hello),
            _ => None,
        }
    }

    /// A disagreement of two AMFs of one network, as a sentence about the other one.
    pub fn disagreement(&self, other: &Self) -> Option<String> {
        let list = |slices: &[SNssai]| slices.iter().map(SNssai::to_string).collect::<Vec<_>>().join(", ");
        let of_set = (self.amf_id.region, self.amf_id.set()) == (other.amf_id.region, other.amf_id.set());
        let sorted = |of: &Self| of.slices.iter().map(SNssai::to_string).collect::<BTreeSet<_>>();
        if self.plmn != other.plmn {
            return Some(format!(
                "it is an AMF of the network {}, and this one of {}: it has no link; write the same `plmn` for both",
                other.plmn, self.plmn
            ));
        }
        (of_set && sorted(self) != sorted(other)).then(|| {
            format!(
                "it is of the same AMF set and offers the slices {}, and this one {}: UEs lose slices when they go from one to the other; write the same `slices` for both",
                list(&other.slices),
                list(&self.slices)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_and_version_is_read_as_it_was_written() {
        for hello in [
            Hello::own(LinkRole::Cta),
            Hello::own(LinkRole::Cpf),
            Hello::own(LinkRole::Upf),
            Hello::own(LinkRole::Function),
            Hello { role: LinkRole::Cpf, code: CodeVersion(u32::MAX) },
        ] {
            assert_eq!(Hello::from_octets(&hello.to_octets()), Ok(hello));
        }
    }

    #[test]
    fn an_amf_is_read_as_it_was_written_and_nothing_else_is() {
        let amf_id = AmfId::new(2, 1023, 63).expect("within its bits");
        let slices = vec![SNssai::new(255, Some(0x12_3456)); HELLO_SLICES_MAX];
        let hello = PeerAmfHello { amf_id, plmn: PlmnId::TEST, slices, smf: [0xfd; 16].into() };
        let octets = hello.to_octets();
        assert_eq!(PeerAmfHello::from_octets(&octets), Some(hello));
        assert!(octets.len() <= 1024, "a link takes no longer first message");
        for wrong in [&octets[1..], &octets[..octets.len() - 1], &Hello::own(LinkRole::Cta).to_octets()] {
            assert_eq!(PeerAmfHello::from_octets(wrong), None);
        }
    }

    #[test] // two AMFs of a network have one PLMN, and those of a set the same slices
    fn amfs_that_disagree_are_named_in_a_sentence() {
        let of = |pointer, plmn: &str, slices: &[u8]| PeerAmfHello {
            amf_id: AmfId::new(2, if pointer > 9 { 7 } else { 1 }, pointer).expect("within its bits"),
            plmn: plmn.parse().unwrap(),
            slices: slices.iter().map(|sst| SNssai::sst(*sst)).collect(),
            smf: [127, 0, 0, 1].into(),
        };
        let own = of(0, "999/70", &[1, 2]);
        assert_eq!(own.disagreement(&of(1, "999/70", &[2, 1])), None);
        assert_eq!(own.disagreement(&of(10, "999/70", &[1])), None, "it is of another set");
        let says = |other| own.disagreement(&other).unwrap_or_default();
        assert!(
            says(of(1, "001/01", &[1, 2]))
                .starts_with("it is an AMF of the network 001/01, and this one of 999/70")
        );
        assert!(
            says(of(1, "999/70", &[1])).contains("offers the slices 1, and this one 1, 2: UEs lose slices")
        );
    }

    #[test]
    fn other_protocols_other_versions_and_malformed_messages_have_errors_of_their_own() {
        assert_eq!(Hello::from_octets(b"GET / HTTP/1.1"), Err(HelloError::NotWhimbrel));
        assert_eq!(Hello::from_octets(b"whimbrel\0"), Err(HelloError::NotWhimbrel));
        let whole = Hello::own(LinkRole::Cpf).to_octets();
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
