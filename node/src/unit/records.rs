//! The manager's substitute for etcd within a unit: which CTA is primary, and which CPFs exist. A lease
//! belongs to a process: its records are deleted when the manager sees that the process has ended.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use whimbrel_resilience::detector::Incarnation;
use whimbrel_resilience::membership::{
    CtaHome, CtaInstance, EtcdAnswer, EtcdFailure, EtcdReply, EtcdRequest, Kv, WatchedChange,
};

use crate::function::{CLUSTER, HOME};

/// Changes that are kept for watches that begin a little in the past.
const MAX_CHANGES: usize = 256;
/// Records, and octets of one: a unit has some ten, of some hundred octets each.
const RECORDS_MAX: usize = 1024;
const VALUE_OCTETS_MAX: usize = 4096;
/// Octets of a record's key: the longest is the name of a region with a number.
const KEY_OCTETS_MAX: usize = 512;
/// Leases of one process: it uses one, and a second one for a moment if it has lost the first.
const LEASES_MAX: usize = 16;
/// TTL that is granted at least. A lease that is never renewed would end after it at etcd; here it ends with
/// its process.
const MIN_LEASE_TTL_S: u32 = 60;

/// One run of a process: PIDs are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ProcessRun {
    pub(super) pid: i32,
    /// When it started, in ticks since the boot (proc(5)).
    pub(super) started: u64,
}

/// The records of the functions.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Records {
    /// A random number per unit, by which a process that outlived an earlier unit notices the change.
    unit: u64,
    revision: u64,
    leases: BTreeMap<i64, ProcessRun>,
    records: BTreeMap<String, Kv>,
    #[serde(skip)]
    changes: VecDeque<WatchedChange>,
}

impl Records {
    /// Empty records of a new manager.
    pub(super) fn new(unit: u64) -> Self {
        // Zero is no revision and no unit at etcd.
        Self {
            unit: unit.max(1),
            revision: 1,
            leases: BTreeMap::new(),
            records: BTreeMap::new(),
            changes: VecDeque::new(),
        }
    }

    /// The number of this unit.
    pub(super) fn unit_id(&self) -> u64 {
        self.unit
    }

    /// Carries out a request of a process; a watch is not one of these. Returns what has changed.
    pub(super) fn handle(
        &mut self,
        run: ProcessRun,
        request: EtcdRequest,
    ) -> (Result<EtcdReply, EtcdFailure>, Vec<WatchedChange>) {
        let mut changes = Vec::new();
        let answer = match request {
            EtcdRequest::Grant { .. } if !self.make_room_for_lease(run) => Err(EtcdFailure::Unreachable(
                format!("this process holds {LEASES_MAX} leases, which is the limit"),
            )),
            EtcdRequest::Grant { ttl_s } => {
                self.revision += 1;
                let lease = i64::try_from(self.revision).unwrap_or(i64::MAX);
                self.leases.insert(lease, run);
                Ok(EtcdAnswer::Granted { lease, ttl_s: ttl_s.max(MIN_LEASE_TTL_S) })
            }
            EtcdRequest::KeepAlive { lease } => {
                let lives = self.leases.get(&lease) == Some(&run);
                Ok(EtcdAnswer::KeptAlive { ttl_s: if lives { MIN_LEASE_TTL_S } else { 0 } })
            }
            EtcdRequest::Revoke { lease } => {
                if self.leases.get(&lease) == Some(&run) {
                    changes = self.revoke(lease);
                }
                Ok(EtcdAnswer::Revoked)
            }
            EtcdRequest::Swap { lease, .. } if lease != 0 && self.leases.get(&lease) != Some(&run) => {
                Err(EtcdFailure::NoLease)
            }
            EtcdRequest::Swap { key, value, .. }
                if value.len() > VALUE_OCTETS_MAX
                    || key.len() > KEY_OCTETS_MAX
                    || self.records.len() >= RECORDS_MAX && !self.records.contains_key(&key) =>
            {
                Err(EtcdFailure::Unreachable(format!(
                    "the record is too large, or the manager stores {RECORDS_MAX} records already"
                )))
            }
            EtcdRequest::Swap { key, expected, value, lease } => {
                let present = self.records.get(&key);
                if present.map_or(0, |kv| kv.mod_revision) == expected {
                    self.revision += 1;
                    let kv = Kv { key: key.clone(), value, mod_revision: self.revision, lease };
                    self.records.insert(key, kv.clone());
                    changes.push(WatchedChange::Put(kv));
                    Ok(EtcdAnswer::Swapped)
                } else {
                    Ok(EtcdAnswer::Differs(present.cloned()))
                }
            }
            EtcdRequest::List { prefix } => {
                let all = self.records.values().filter(|kv| kv.key.starts_with(&prefix));
                Ok(EtcdAnswer::Listed(all.cloned().collect()))
            }
            EtcdRequest::Watch { .. } => Err(EtcdFailure::Unreachable("a watch is not answered here".into())),
        };
        self.remember_changes(&changes);
        let answered = answer.map(|answer| EtcdReply { cluster: self.unit, revision: self.revision, answer });
        (answered, changes)
    }

    /// Writes the unit's configuration, which in a cluster the operator writes to etcd. Returns what has
    /// changed.
    pub(super) fn configure(&mut self, value: &[u8]) -> Vec<WatchedChange> {
        self.revision += 1;
        let key = format!("whimbrel/{CLUSTER}/configuration");
        let kv = Kv { key: key.clone(), value: value.to_vec(), mod_revision: self.revision, lease: 0 };
        self.records.insert(key, kv.clone());
        let changes = vec![WatchedChange::Put(kv)];
        self.remember_changes(&changes);
        changes
    }

    /// Revokes the leases of a process that has ended. Returns what has changed.
    pub(super) fn end_run(&mut self, run: ProcessRun) -> Vec<WatchedChange> {
        let its: Vec<i64> = self.leases.iter().filter(|(_, of)| **of == run).map(|(l, _)| *l).collect();
        let changes: Vec<WatchedChange> = its.into_iter().flat_map(|lease| self.revoke(lease)).collect();
        self.remember_changes(&changes);
        changes
    }

    /// The processes that hold leases.
    pub(super) fn holders(&self) -> impl Iterator<Item = ProcessRun> + '_ {
        self.leases.values().copied()
    }

    /// Makes room for a lease of a process. If the process is at its limit, a lease without records is
    /// dropped: its process never received the grant.
    fn make_room_for_lease(&mut self, run: ProcessRun) -> bool {
        let its: Vec<i64> = self.leases.iter().filter(|(_, of)| **of == run).map(|(l, _)| *l).collect();
        if its.len() < LEASES_MAX {
            return true;
        }
        let unused = its.into_iter().find(|lease| self.records.values().all(|kv| kv.lease != *lease));
        unused.is_some_and(|lease| self.leases.remove(&lease).is_some())
    }

    fn revoke(&mut self, lease: i64) -> Vec<WatchedChange> {
        self.leases.remove(&lease);
        self.revision += 1;
        let revision = self.revision;
        let its = self.records.values().filter(|kv| kv.lease == lease);
        let gone: Vec<String> = its.map(|kv| kv.key.clone()).collect();
        self.records.retain(|_, kv| kv.lease != lease);
        gone.into_iter().map(|key| WatchedChange::Deleted { key, revision }).collect()
    }

    fn remember_changes(&mut self, changes: &[WatchedChange]) {
        self.changes.extend(changes.iter().cloned());
        while self.changes.len() > MAX_CHANGES {
            self.changes.pop_front();
        }
    }

    /// The changes of keys with this prefix from a revision on; `None` if not all of them are known any more.
    pub(super) fn changes_since(&self, prefix: &str, from: u64) -> Option<Vec<WatchedChange>> {
        let known_from = self.changes.front().map_or(self.revision + 1, revision_of);
        if from < known_from && from <= self.revision {
            return None;
        }
        let later = self.changes.iter().filter(|change| revision_of(change) >= from);
        Some(later.filter(|change| key_of(change).starts_with(prefix)).cloned().collect())
    }

    /// The primary CTA, and its replica.
    pub(super) fn serving_ctas(&self) -> Option<CtaHome> {
        let record = self.records.get(&format!("whimbrel/{CLUSTER}/home/{HOME}"))?;
        serde_json::from_slice(&record.value).ok()
    }

    /// A listed CTA, with its current incarnation.
    pub(super) fn cta(&self, number: u16) -> Option<CtaInstance> {
        #[derive(Deserialize)]
        struct Life {
            incarnation: Option<u64>,
        }
        let record = self.records.get(&format!("whimbrel/{CLUSTER}/member/cta-{number}"))?;
        let Life { incarnation } = serde_json::from_slice(&record.value).ok()?;
        Some(CtaInstance {
            cta: number,
            incarnation: Incarnation(incarnation.unwrap_or(record.mod_revision)),
        })
    }

    /// The number of CPFs that are listed.
    pub(super) fn cpf_count(&self) -> usize {
        let of_cpf = format!("whimbrel/{CLUSTER}/member/cpf-");
        self.records.keys().filter(|key| key.starts_with(&of_cpf)).count()
    }
}

fn revision_of(change: &WatchedChange) -> u64 {
    match change {
        WatchedChange::Put(kv) => kv.mod_revision,
        WatchedChange::Deleted { revision, .. } => *revision,
    }
}

/// The key that has changed.
pub(super) fn key_of(change: &WatchedChange) -> &str {
    match change {
        WatchedChange::Put(kv) => &kv.key,
        WatchedChange::Deleted { key, .. } => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ProcessRun = ProcessRun { pid: 10, started: 1 };
    const TWO: ProcessRun = ProcessRun { pid: 10, started: 2 };

    fn lease_of(records: &mut Records, run: ProcessRun) -> i64 {
        match records.handle(run, EtcdRequest::Grant { ttl_s: 5 }).0.unwrap().answer {
            EtcdAnswer::Granted { lease, .. } => lease,
            other => panic!("{other:?}"),
        }
    }

    fn swap(
        records: &mut Records,
        run: ProcessRun,
        key: &str,
        expected: u64,
        lease: i64,
    ) -> Result<EtcdReply, EtcdFailure> {
        records.handle(run, EtcdRequest::Swap { key: key.into(), expected, value: vec![1], lease }).0
    }

    #[test]
    fn of_two_that_write_one_record_one_succeeds_and_the_other_learns_what_is_there() {
        let mut records = Records::new(7);
        let first = swap(&mut records, ONE, "a/x", 0, 0).unwrap();
        assert_eq!((first.cluster, first.answer), (7, EtcdAnswer::Swapped));
        let EtcdAnswer::Differs(Some(there)) = swap(&mut records, TWO, "a/x", 0, 0).unwrap().answer else {
            panic!("it was written twice")
        };
        assert_eq!(there.mod_revision, first.revision);
        let second = swap(&mut records, TWO, "a/x", there.mod_revision, 0).unwrap();
        assert_eq!((second.answer, second.revision > first.revision), (EtcdAnswer::Swapped, true));
    }

    #[test]
    fn the_records_of_a_process_are_deleted_when_it_ends_and_those_of_its_successor_stay() {
        let mut records = Records::new(7);
        let (first, second) = (lease_of(&mut records, ONE), lease_of(&mut records, TWO));
        swap(&mut records, ONE, "a/one", 0, first).unwrap();
        swap(&mut records, TWO, "a/two", 0, second).unwrap();
        swap(&mut records, ONE, "a/home", 0, 0).unwrap();
        assert_eq!(
            swap(&mut records, TWO, "a/three", 0, first),
            Err(EtcdFailure::NoLease),
            "another's lease"
        );
        let changes = records.end_run(ONE);
        assert_eq!(changes.iter().map(key_of).collect::<Vec<_>>(), ["a/one"]);
        assert_eq!(records.holders().collect::<Vec<_>>(), [TWO]);
        let gone = records.handle(ONE, EtcdRequest::KeepAlive { lease: first }).0.unwrap().answer;
        assert_eq!(gone, EtcdAnswer::KeptAlive { ttl_s: 0 });
        let EtcdAnswer::Listed(all) =
            records.handle(TWO, EtcdRequest::List { prefix: "a/".into() }).0.unwrap().answer
        else {
            panic!("no list")
        };
        assert_eq!(all.iter().map(|kv| kv.key.as_str()).collect::<Vec<_>>(), ["a/home", "a/two"]);
    }

    #[test]
    fn a_watch_gets_the_changes_from_its_revision_on_or_none_if_they_are_forgotten() {
        let mut records = Records::new(7);
        let first = swap(&mut records, ONE, "a/x", 0, 0).unwrap().revision;
        swap(&mut records, ONE, "b/x", 0, 0).unwrap();
        let keys = |records: &Records, from| {
            records
                .changes_since("a/", from)
                .map(|all| all.iter().map(|c| key_of(c).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(keys(&records, first), Some(vec!["a/x".into()]));
        assert_eq!(keys(&records, first + 2), Some(vec![]));
        // The next manager reads the records, not the changes.
        let text = serde_json::to_vec(&records).unwrap();
        let again: Records = serde_json::from_slice(&text).unwrap();
        assert_eq!(keys(&again, first), None);
        assert_eq!(keys(&again, first + 2), Some(vec![]));
        assert_eq!((again.unit, again.revision), (records.unit, records.revision));
    }

    #[test]
    fn records_without_room_are_refused() {
        let mut records = Records::new(7);
        let long = EtcdRequest::Swap {
            key: "k".into(),
            expected: 0,
            value: vec![0; VALUE_OCTETS_MAX + 1],
            lease: 0,
        };
        assert!(records.handle(ONE, long).0.is_err());
        let key = "k".repeat(KEY_OCTETS_MAX + 1);
        assert!(swap(&mut records, ONE, &key, 0, 0).is_err());
        for n in 0..RECORDS_MAX {
            swap(&mut records, ONE, &format!("k{n}"), 0, 0).unwrap();
        }
        assert!(swap(&mut records, ONE, "one more", 0, 0).is_err());
    }

    #[test]
    fn a_process_that_asks_for_leases_without_end_holds_a_few_and_loses_none_that_it_uses() {
        let mut records = Records::new(7);
        let used = lease_of(&mut records, ONE);
        swap(&mut records, ONE, "a/one", 0, used).unwrap();
        (0..3 * LEASES_MAX).for_each(|_| _ = lease_of(&mut records, ONE));
        assert_eq!(records.holders().count(), LEASES_MAX);
        let kept = records.handle(ONE, EtcdRequest::KeepAlive { lease: used }).0.unwrap().answer;
        assert_eq!(kept, EtcdAnswer::KeptAlive { ttl_s: MIN_LEASE_TTL_S });
        for n in 1..LEASES_MAX {
            let lease = lease_of(&mut records, ONE);
            swap(&mut records, ONE, &format!("a/{n}"), 0, lease).unwrap();
        }
        assert!(records.handle(ONE, EtcdRequest::Grant { ttl_s: 5 }).0.is_err(), "each has a record");
        lease_of(&mut records, TWO);
    }
}
