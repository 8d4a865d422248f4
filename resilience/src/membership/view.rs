//! What is known of the cluster.

use std::collections::BTreeMap;

use super::record::MemberRecord;
use super::{ClaimAction, ClaimError, Configuration, CtaHome, CtaInstance, HomeClaim, Kv, Member, MemberId};
use crate::detector::Incarnation;

/// Octets of a record at most: the largest is a configuration of some thousand regions.
const RECORD_OCTETS_MAX: usize = 64 * 1024;

/// A member that is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedMember {
    /// Incarnation of the process.
    pub incarnation: Incarnation,
    /// What it says of itself.
    pub member: Member,
    revision: u64,
}

impl ListedMember {
    /// The revision that wrote its record.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }
}

/// A change of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// A member came, or its record has changed.
    Member(MemberId),
    /// A member is listed no longer, in this incarnation.
    Gone(MemberId, Incarnation),
    /// A home's record.
    Home(u16),
    /// The configuration, to this version.
    Configuration(u64),
    /// A record does not say what it should: what was known before stays.
    Ignored {
        /// Key of the record.
        key: String,
        /// Reason why it is ignored.
        why: String,
    },
}

/// The last known records. They stay while etcd is away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MembershipView {
    members: BTreeMap<MemberId, ListedMember>,
    homes: BTreeMap<u16, (u64, CtaHome)>,
    configuration: Option<(u64, Configuration)>,
}

impl MembershipView {
    /// Those that are listed.
    pub fn members(&self) -> impl Iterator<Item = (MemberId, &ListedMember)> {
        self.members.iter().map(|(id, listed)| (*id, listed))
    }

    /// One of them.
    pub fn member(&self, id: MemberId) -> Option<&ListedMember> {
        self.members.get(&id)
    }

    /// A home's record. Only the CTA that it names acts as primary.
    pub fn home(&self, home: u16) -> Option<&CtaHome> {
        self.homes.get(&home).map(|(_, record)| record)
    }

    /// The configuration and its version.
    pub fn configuration(&self) -> Option<(u64, &Configuration)> {
        self.configuration.as_ref().map(|(version, configuration)| (*version, configuration))
    }

    /// What there is to be done for a claim, and the revision that the record must still have. Errors: [`CtaHome::course`].
    pub(super) fn claim(
        &self,
        home: u16,
        me: CtaInstance,
        claim: HomeClaim,
        proposed: Option<&CtaHome>,
    ) -> Result<(u64, ClaimAction), ClaimError> {
        let listed = |place: &CtaInstance| {
            self.members.get(&MemberId::Cta(place.cta)).is_some_and(|l| l.incarnation == place.incarnation)
        };
        let before = self.homes.get(&home);
        let course = CtaHome::course(before.map(|(_, record)| record), me, claim, proposed, listed)?;
        Ok((before.map_or(0, |(revision, _)| *revision), course))
    }

    /// All that there is, at once.
    pub(super) fn snapshot(&mut self, revision: u64, kvs: Vec<Kv>, prefix: &str) -> Vec<MembershipChange> {
        let present: Vec<EtcdKey> = kvs.iter().filter_map(|kv| EtcdKey::parse(&kv.key, prefix)).collect();
        let gone: Vec<EtcdKey> = (self.members.keys().map(|id| EtcdKey::Member(*id)))
            .chain(self.homes.keys().map(|home| EtcdKey::Home(*home)))
            .filter(|key| !present.contains(key))
            .collect();
        let mut changes: Vec<MembershipChange> =
            gone.into_iter().filter_map(|key| self.delete(key, revision)).collect();
        changes.extend(kvs.into_iter().filter_map(|kv| self.put(kv, prefix)));
        changes
    }

    /// A record was written. One that is older than what is known changes nothing.
    pub(super) fn put(&mut self, kv: Kv, prefix: &str) -> Option<MembershipChange> {
        let Kv { key, value, mod_revision: revision, .. } = kv;
        let ignored = |why: String| Some(MembershipChange::Ignored { key: key.clone(), why });
        if value.len() > RECORD_OCTETS_MAX {
            return ignored(format!("it is larger than {RECORD_OCTETS_MAX} octets"));
        }
        match EtcdKey::parse(&key, prefix) {
            Some(EtcdKey::Member(id)) => {
                if self.members.get(&id).is_some_and(|l| l.revision >= revision) {
                    return None;
                }
                let MemberRecord { member, incarnation } = match serde_json::from_slice(&value) {
                    Ok(record) => record,
                    Err(e) => return ignored(e.to_string()),
                };
                let incarnation = Incarnation(incarnation.unwrap_or(revision));
                self.members.insert(id, ListedMember { incarnation, member, revision });
                Some(MembershipChange::Member(id))
            }
            Some(EtcdKey::Home(home)) => {
                let before = self.homes.get(&home);
                if before.is_some_and(|(known, _)| *known >= revision) {
                    return None;
                }
                match serde_json::from_slice::<CtaHome>(&value) {
                    Ok(record) if before.is_some_and(|(_, before)| record.term < before.term) => {
                        ignored(format!("the term {} has been before", record.term))
                    }
                    Ok(record) => {
                        self.homes.insert(home, (revision, record));
                        Some(MembershipChange::Home(home))
                    }
                    Err(e) => ignored(e.to_string()),
                }
            }
            Some(EtcdKey::Configuration) => {
                if self.configuration.as_ref().is_some_and(|(known, _)| *known >= revision) {
                    return None;
                }
                match Configuration::read(&value) {
                    Ok(configuration) => {
                        self.configuration = Some((revision, configuration));
                        Some(MembershipChange::Configuration(revision))
                    }
                    Err(why) => ignored(why),
                }
            }
            None => ignored("no record has such a key".into()),
        }
    }

    /// A record is gone. A home's and the configuration stay known: they are deleted only by mistake, and terms never restart.
    pub(super) fn deleted(&mut self, key: &str, revision: u64, prefix: &str) -> Option<MembershipChange> {
        self.delete(EtcdKey::parse(key, prefix)?, revision)
    }

    fn delete(&mut self, key: EtcdKey, revision: u64) -> Option<MembershipChange> {
        match key {
            EtcdKey::Member(id) if self.members.get(&id).is_some_and(|l| l.revision < revision) => {
                self.members.remove(&id).map(|listed| MembershipChange::Gone(id, listed.incarnation))
            }
            EtcdKey::Home(home) => {
                let (known, _) =
                    self.homes.get_mut(&home).filter(|(known, _)| *known != 0 && *known < revision)?;
                *known = 0; // the next write creates it
                let why = "it was deleted; its former value holds until it is written again".into();
                Some(MembershipChange::Ignored { key: format!("home/{home}"), why })
            }
            _ => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EtcdKey {
    Member(MemberId),
    Home(u16),
    Configuration,
}

impl EtcdKey {
    pub(super) fn write(self, prefix: &str) -> String {
        match self {
            Self::Member(id) => format!("{prefix}member/{id}"),
            Self::Home(home) => format!("{prefix}home/{home}"),
            Self::Configuration => format!("{prefix}configuration"), // written by the operator
        }
    }

    fn parse(key: &str, prefix: &str) -> Option<Self> {
        let name = key.strip_prefix(prefix)?;
        match name.split_once('/') {
            Some(("member", id)) => id.parse().ok().map(Self::Member),
            Some(("home", home)) => home.parse().ok().map(Self::Home),
            _ => (name == "configuration").then_some(Self::Configuration),
        }
    }
}
