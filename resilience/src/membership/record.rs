//! The records at etcd.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::CodeVersion;
use crate::detector::{Discriminator, Incarnation};
use crate::replication::CpfId;

/// Names a process of the cluster, in any incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberId {
    /// A CTA, by its number.
    Cta(u16),
    /// A CPF, by its number.
    Cpf(CpfId),
}

impl MemberId {
    /// Its name in heartbeats.
    pub fn discriminator(self) -> Discriminator {
        Discriminator(match self {
            Self::Cta(n) => 1 << 16 | u32::from(n),
            Self::Cpf(CpfId(n)) => 2 << 16 | u32::from(n),
        })
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cta(n) => write!(f, "cta-{n}"),
            Self::Cpf(CpfId(n)) => write!(f, "cpf-{n}"),
        }
    }
}

impl FromStr for MemberId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (role, n) = text.split_once('-').ok_or(())?;
        let n = n.parse().map_err(|_| ())?;
        let id = match role {
            "cta" => Self::Cta(n),
            "cpf" => Self::Cpf(CpfId(n)),
            _ => return Err(()),
        };
        if id.to_string() == text { Ok(id) } else { Err(()) } // one spelling for one key
    }
}

/// The record of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its region, as configured.
    pub region: String,
    /// Where the others reach it.
    pub address: SocketAddr,
    /// It gets no new UEs.
    #[serde(default)]
    pub draining: bool,
    /// What code it runs.
    pub code_version: CodeVersion,
}

/// A member as it is written: a record without an incarnation begins a life, whose incarnation is the revision that wrote it.
#[derive(Serialize, Deserialize)]
pub(super) struct MemberRecord {
    #[serde(flatten)]
    pub(super) member: Member,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) incarnation: Option<u64>,
}

/// A CTA in one incarnation: only that one has the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CtaInstance {
    /// Number of the CTA.
    pub cta: u16,
    /// Incarnation of the CTA's process.
    #[serde(with = "number")]
    pub incarnation: Incarnation,
}

mod number {
    use super::{Deserialize, Incarnation};

    pub(super) fn serialize<S: serde::Serializer>(i: &Incarnation, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(i.0)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Incarnation, D::Error> {
        u64::deserialize(d).map(Incarnation)
    }
}

/// The UEs of one CTA's numbers, and their primary CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CtaHome {
    /// Rises with every change; lower ones are refused everywhere.
    pub term: u32,
    /// The CTA that serves the home.
    pub primary: CtaInstance,
    /// Holds its log too: nothing leaves without it.
    pub cta_replica: Option<CtaInstance>,
}

/// What a CTA wants of a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HomeClaim {
    /// To become primary of a new home, or of one that this CTA served in a former incarnation and whose log is lost.
    Found,
    /// The CTA replica becomes primary: the former one has failed.
    Promote,
    /// The primary continues without a replica, and an earlier claim can name none any more.
    Alone,
    /// The primary names a replica, which holds the log by now.
    Pair(CtaInstance),
}

/// The next step for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAction {
    /// None: the record says so.
    Granted(CtaHome),
    /// Write this, if the record is still the same.
    Write(CtaHome),
}

/// Why a claim is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// The record does not name this CTA, in this incarnation and in the role that the claim needs.
    NotYours,
    /// Another CTA was faster: the record is in the view.
    Outrun,
    /// Etcd did not answer in time, or has lost data. If it received the claim, the record will show it, and counts.
    NoAnswer,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotYours => "the home's record does not name this CTA in the role that this needs",
            Self::Outrun => "another CTA was faster",
            Self::NoAnswer => "etcd does not answer, or has forgotten: without it no CTA is promoted",
        })
    }
}

impl std::error::Error for ClaimError {}

impl CtaHome {
    /// What there is to be done for a claim of `me`, as the record stands. `proposed`: what this claim has asked etcd for before, without an
    /// answer; `listed`: whether a CTA is a member in that life. Errors: [`ClaimError::NotYours`], [`ClaimError::Outrun`].
    pub fn course(
        before: Option<&CtaHome>,
        me: CtaInstance,
        claim: HomeClaim,
        proposed: Option<&CtaHome>,
        listed: impl Fn(&CtaInstance) -> bool,
    ) -> Result<ClaimAction, ClaimError> {
        if let Some(record) = before
            && (proposed == before || record.grants(me, claim))
        {
            return Ok(ClaimAction::Granted(*record));
        }
        match Self::after(before, me, claim, listed) {
            Ok(record) => Ok(ClaimAction::Write(record)),
            Err(_) if proposed.is_some() => Err(ClaimError::Outrun),
            Err(why) => Err(why),
        }
    }

    /// Whether the record says already what a claim of `me` is for. To go on alone it has to be written once more: a former try to pair
    /// may still be on its way to etcd, and comes to nothing only when the record has changed.
    fn grants(&self, me: CtaInstance, claim: HomeClaim) -> bool {
        let cta_replica = match claim {
            HomeClaim::Found | HomeClaim::Promote => None,
            HomeClaim::Pair(other) => Some(other),
            HomeClaim::Alone => return false,
        };
        self.primary == me && self.cta_replica == cta_replica
    }

    fn after(
        before: Option<&CtaHome>,
        me: CtaInstance,
        claim: HomeClaim,
        listed: impl Fn(&CtaInstance) -> bool,
    ) -> Result<CtaHome, ClaimError> {
        let term = before.map_or(1, |home| home.term.saturating_add(1));
        let (primary, cta_replica) = match (claim, before) {
            (HomeClaim::Found, None) => (me, None),
            // Only a later incarnation of the former primary: another CTA would assign the same numbers while the former one may live.
            (HomeClaim::Found, Some(home))
                if home.primary.cta == me.cta
                    && home.primary.incarnation < me.incarnation
                    && !home.cta_replica.as_ref().is_some_and(&listed) =>
            {
                (me, None)
            }
            (HomeClaim::Promote, Some(home)) if home.cta_replica == Some(me) => (me, None),
            (HomeClaim::Alone, Some(home)) if home.primary == me => (me, None),
            (HomeClaim::Pair(other), Some(home))
                if home.primary == me
                    && home.cta_replica.is_none()
                    && other.cta != me.cta
                    && listed(&other) =>
            {
                (me, Some(other))
            }
            _ => return Err(ClaimError::NotYours),
        };
        Ok(CtaHome { term, primary, cta_replica })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: CtaInstance = CtaInstance { cta: 1, incarnation: Incarnation(10) };
    const B: CtaInstance = CtaInstance { cta: 2, incarnation: Incarnation(11) };
    const A_AGAIN: CtaInstance = CtaInstance { cta: 1, incarnation: Incarnation(20) };

    fn after(before: &CtaHome, me: CtaInstance, claim: HomeClaim) -> Result<CtaHome, ClaimError> {
        CtaHome::after(Some(before), me, claim, |place| [A, B].contains(place))
    }

    #[test]
    fn the_primary_of_a_home_changes_only_as_its_record_allows() {
        let alone = CtaHome::after(None, A, HomeClaim::Found, |_| false).unwrap();
        assert_eq!(alone, CtaHome { term: 1, primary: A, cta_replica: None });
        let pair = after(&alone, A, HomeClaim::Pair(B)).unwrap();
        assert_eq!(pair, CtaHome { term: 2, primary: A, cta_replica: Some(B) });
        assert_eq!(
            after(&pair, B, HomeClaim::Promote),
            Ok(CtaHome { term: 3, primary: B, cta_replica: None })
        );
        assert_eq!(after(&pair, A, HomeClaim::Alone), Ok(CtaHome { term: 3, primary: A, cta_replica: None }));
        assert_eq!(
            after(&alone, A, HomeClaim::Alone),
            Ok(CtaHome { term: 2, primary: A, cta_replica: None })
        );

        for (home, cta, claim) in [
            (&alone, B, HomeClaim::Promote),
            (&alone, B, HomeClaim::Found),
            (&alone, A, HomeClaim::Pair(A)),
            (&alone, A, HomeClaim::Pair(A_AGAIN)),
            (&pair, A, HomeClaim::Promote),
            (&pair, B, HomeClaim::Alone),
            (&pair, A, HomeClaim::Pair(B)),
            (&pair, A_AGAIN, HomeClaim::Alone), // a life that has not the log
            (&pair, CtaInstance { incarnation: Incarnation(12), ..B }, HomeClaim::Promote),
        ] {
            assert_eq!(
                after(home, cta, claim),
                Err(ClaimError::NotYours),
                "{claim:?} by {cta:?} of {home:?}"
            );
        }
    }

    #[test]
    fn a_home_is_created_again_only_by_its_former_primary_and_without_a_listed_replica() {
        let pair = CtaHome { term: 4, primary: A, cta_replica: Some(B) };
        let found = |me, listed: &[CtaInstance]| {
            CtaHome::after(Some(&pair), me, HomeClaim::Found, |p| listed.contains(p))
        };
        assert_eq!(found(A_AGAIN, &[A_AGAIN, B]), Err(ClaimError::NotYours));
        assert_eq!(found(A, &[A]), Err(ClaimError::NotYours));
        assert_eq!(
            found(CtaInstance { cta: 3, incarnation: Incarnation(20) }, &[]),
            Err(ClaimError::NotYours)
        );
        assert_eq!(found(A_AGAIN, &[A_AGAIN]), Ok(CtaHome { term: 5, primary: A_AGAIN, cta_replica: None }));
    }

    #[test]
    fn names_have_one_spelling() {
        for id in [MemberId::Cta(1), MemberId::Cpf(CpfId(1)), MemberId::Cpf(CpfId(65535))] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in ["cta", "cta-", "cta-01", "cta-+1", "cta-65536", "upf-1", "cta-1-2", ""] {
            assert_eq!(text.parse::<MemberId>(), Err(()), "{text}");
        }
        assert_ne!(MemberId::Cta(1).discriminator(), MemberId::Cpf(CpfId(1)).discriminator());
    }
}
