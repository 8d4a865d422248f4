//! A copy of the subscribers in another store: excerpts of one, which the other takes over.

use std::collections::BTreeSet;
use std::io;

use serde::{Deserialize, Serialize};
use whimbrel_ids::Supi;
use zeroize::Zeroizing;

use crate::error::StoreError;
use crate::record::{SubscriberRecord, WithSecrets};
use crate::store::Store;

/// Subscribers of an excerpt at most: to read them takes a millisecond.
pub const EXCERPT_MAX: usize = 64;

/// The range of an excerpt: a subscriber in the range that is not in the excerpt does not exist.
#[derive(Serialize, Deserialize)]
enum ExcerptRange {
    /// All SUPIs after the first up to the second.
    Range { after: String, upto: Option<String> },
    /// The subscribers of these SUPIs.
    Some(BTreeSet<String>),
}

#[derive(Serialize)]
struct WrittenExcerpt<'a> {
    of: ExcerptRange,
    records: Vec<WithSecrets<'a>>,
}

#[derive(Deserialize)]
struct ReadExcerpt {
    of: ExcerptRange,
    records: Vec<SubscriberRecord>,
}

/// Subscribers with their keys, for another store. It is wiped when it is dropped.
pub struct Excerpt {
    octets: Zeroizing<Vec<u8>>,
    /// Where the next one begins; `None`: this is the last.
    pub last: Option<Supi>,
}

impl Excerpt {
    /// What [`Store::take_over`] takes.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    fn of(of: ExcerptRange, records: &[SubscriberRecord], last: Option<Supi>) -> Result<Self, StoreError> {
        let written = WrittenExcerpt { of, records: records.iter().map(WithSecrets).collect() };
        // Allocated at once: what a growing buffer leaves behind is not wiped.
        let mut octets = Zeroizing::new(Vec::with_capacity(4096 * (records.len() + 1)));
        serde_json::to_writer(&mut *octets, &written).map_err(|e| StoreError::Io(e.into()))?;
        Ok(Self { octets, last })
    }
}

/// The result of taking an excerpt over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExcerptChanges {
    /// Subscribers that were added or changed.
    pub written: usize,
    /// Subscribers that were removed.
    pub removed: usize,
}

impl Store {
    /// The next subscribers after this one, in the order of their digits.
    pub fn excerpt_after(&mut self, after: Option<Supi>) -> Result<Excerpt, StoreError> {
        let records = self.list(after, EXCERPT_MAX)?;
        let last = records.last().filter(|_| records.len() == EXCERPT_MAX).map(|r| r.supi);
        let of = ExcerptRange::Range {
            after: after.map(Supi::imsi).unwrap_or_default(),
            upto: last.map(Supi::imsi),
        };
        Excerpt::of(of, &records, last)
    }

    /// These subscribers, as far as they are there; at most [`EXCERPT_MAX`] are to be asked for.
    pub fn excerpt_of(&mut self, supis: &[Supi]) -> Result<Excerpt, StoreError> {
        let mut records = Vec::new();
        for supi in supis {
            records.extend(self.get(*supi)?.map(|r| SubscriberRecord::clone(&r)));
        }
        Excerpt::of(ExcerptRange::Some(supis.iter().map(|s| s.imsi()).collect()), &records, None)
    }

    /// Makes this store equal to another store's excerpt within its range. Equal records are not written.
    ///
    /// Errors: [`StoreError::Io`] where it is no excerpt; nothing is changed then.
    pub fn take_over(&mut self, excerpt: &[u8]) -> Result<ExcerptChanges, StoreError> {
        // Each home follows the database itself.
        if self.is_following() {
            return Ok(ExcerptChanges::default());
        }
        let ReadExcerpt { of, records } =
            serde_json::from_slice(excerpt).map_err(|e| StoreError::Io(e.into()))?;
        let within = |imsi: &str| match &of {
            ExcerptRange::Range { after, upto } => {
                imsi > after.as_str() && upto.as_ref().is_none_or(|upto| imsi <= upto.as_str())
            }
            ExcerptRange::Some(supis) => supis.contains(imsi),
        };
        let named: BTreeSet<String> = records.iter().map(|r| r.supi.imsi()).collect();
        if !named.iter().all(|imsi| within(imsi)) {
            return Err(StoreError::Io(io::ErrorKind::InvalidData.into()));
        }
        let mut changed = Vec::new();
        for record in &records {
            record.check()?;
            if self.get(record.supi)?.is_none_or(|own| *own != *record) {
                changed.push(record);
            }
        }
        let here: Vec<String> = match &of {
            ExcerptRange::Some(supis) => supis.iter().cloned().collect(),
            ExcerptRange::Range { after, upto } => self.imsis(after, upto.as_deref())?,
        };
        let gone: Vec<&String> = here.iter().filter(|imsi| !named.contains(*imsi)).collect();
        if changed.is_empty() && gone.is_empty() {
            return Ok(ExcerptChanges::default());
        }
        let done = self.change(|w| {
            let mut done = ExcerptChanges { written: changed.len(), removed: 0 };
            for imsi in gone {
                done.removed += usize::from(w.remove(imsi)?);
            }
            for record in &changed {
                w.replace(record)?;
            }
            w.sweep_all()?;
            Ok(done)
        })?;
        self.clear_cache();
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_security::{K, Opc, SqnOffset};

    use super::*;
    use crate::record::OperatorCode;
    use crate::{Changes, SubscriberStatus};

    struct StorePair {
        folder: std::path::PathBuf,
        one: Store,
        other: Store,
    }

    impl StorePair {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("whimbrel-copy-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            let open = |n: &str| {
                Store::open(&folder.join(format!("{n}.db")), &folder.join(format!("{n}.key"))).unwrap()
            };
            let (one, other) = (open("one"), open("other"));
            Self { folder, one, other }
        }

        /// Carries all; how many excerpts that were, and what they changed.
        fn carry_all(&mut self) -> (usize, ExcerptChanges) {
            let (mut after, mut excerpts, mut all) = (None, 0, ExcerptChanges::default());
            loop {
                let excerpt = self.one.excerpt_after(after).unwrap();
                let done = self.other.take_over(excerpt.octets()).unwrap();
                excerpts += 1;
                (all.written, all.removed) = (all.written + done.written, all.removed + done.removed);
                match excerpt.last {
                    Some(last) => after = Some(last),
                    None => return (excerpts, all),
                }
            }
        }

        fn same(&mut self) {
            let [one, other] = [&mut self.one, &mut self.other].map(|s| s.list(None, 1000).unwrap());
            assert_eq!(one, other);
        }
    }

    impl Drop for StorePair {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    fn supi(n: u32) -> Supi {
        format!("imsi-99970{n:010}").parse().unwrap()
    }

    fn record(n: u32) -> SubscriberRecord {
        let mut record =
            SubscriberRecord::new(supi(n), K::new([n as u8; 16]), OperatorCode::Opc(Opc::new([2; 16])));
        record.msisdn = Some(format!("49{n:08}").parse().unwrap());
        record
    }

    #[test]
    fn another_store_has_the_same_whatever_it_had_and_is_not_written_again() {
        let mut pair = StorePair::new("all");
        for n in 0..150 {
            pair.one.add(&record(n)).unwrap();
        }
        for n in [3, 149, 150, 700] {
            let mut other = record(n);
            other.status = SubscriberStatus::Barred;
            pair.other.add(&other).unwrap();
        }
        assert_eq!(pair.carry_all(), (3, ExcerptChanges { written: 150, removed: 2 }));
        pair.same();
        assert_eq!(pair.carry_all(), (3, ExcerptChanges::default()));
        assert_eq!(pair.other.refresh().unwrap(), Changes::None, "nothing was written the second time");
    }

    #[test]
    fn a_change_an_addition_a_removal_and_an_offset_are_carried_by_their_names() {
        let mut pair = StorePair::new("some");
        (1..5).for_each(|n| pair.one.add(&record(n)).unwrap());
        pair.carry_all();
        pair.one.set_sqn_offsets(&[(supi(1), SqnOffset::new(99))]).unwrap();
        pair.one.remove(supi(2)).unwrap();
        pair.one.add(&record(9)).unwrap();
        // Two subscribers that swap their numbers: neither may block the other.
        let [three, four] = [3, 4].map(|n| record(n).msisdn);
        pair.one.edit(supi(3), |r| r.msisdn = None).unwrap();
        pair.one.edit(supi(4), |r| r.msisdn = three).unwrap();
        pair.one.edit(supi(3), |r| r.msisdn = four).unwrap();
        let excerpt = pair.one.excerpt_of(&[1, 2, 3, 4, 9].map(supi)).unwrap();
        assert_eq!(excerpt.last, None);
        let done = pair.other.take_over(excerpt.octets()).unwrap();
        assert_eq!(done, ExcerptChanges { written: 4, removed: 1 });
        pair.same();
        assert_eq!(pair.other.get(supi(1)).unwrap().unwrap().sqn_offset.value(), 99);
    }

    #[test]
    fn what_is_no_excerpt_changes_nothing() {
        let mut pair = StorePair::new("bad");
        let held = record(1); // made once: its SQN offset is the time of making
        pair.other.add(&held).unwrap();
        pair.one.add(&record(2)).unwrap();
        let good = pair.one.excerpt_of(&[supi(2)]).unwrap();
        let other =
            String::from_utf8(good.octets().to_vec()).unwrap().replacen("0000000002", "0000000001", 1);
        let cut = &good.octets()[..good.octets().len() - 1];
        for bad in [b"".as_slice(), b"{}", cut, other.as_bytes()] {
            assert!(matches!(pair.other.take_over(bad), Err(StoreError::Io(_))));
        }
        assert_eq!(pair.other.list(None, 9).unwrap(), [held]);
    }
}
