//! This file as the replica of a database that several homes share.
//!
//! All reads are of the file, so UEs need no database. A change is prepared in a transaction of the file that is undone, made in the shared
//! database, and comes back with the database's log, as at each other home. So no lock of the file is held while the database works.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use whimbrel_ids::{Instant, Supi};
use whimbrel_security::SqnOffset;

use crate::documents::{self, SealedDocument};
use crate::error::{StoreError, of_sqlite};
use crate::home;
use crate::schema::KEY_CHECK;
use crate::seal::Sealer;
use crate::shared::{
    DatabaseChanges, DatabaseFailure, ReplicaPosition, SealedSubscriber, SharedStore, SubscriberChange,
};
use crate::store::{Store, TransactionWriter};

/// The tables of a replica beside the subscribers': its position in the log of the database, and the offsets of resynchronised subscribers that the
/// database does not have yet. A program that knows neither does not see them, so they need no layout of their own.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS replica (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        database TEXT NOT NULL,
        system INTEGER NOT NULL,
        timeline INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        mark TEXT NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS pending_offset (
        supi TEXT PRIMARY KEY,
        sqn_offset INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// The columns of a sealed subscriber, in the order that [`read_sealed`] reads.
const SEALED: &str = "SELECT s.supi, s.msisdn, s.status, s.algorithm, s.auth, s.amf, s.sqn_offset, s.keys, c.content \
                      FROM subscriber s JOIN subscription c ON c.id = s.subscription";

fn read_sealed(row: &Row<'_>) -> rusqlite::Result<SealedSubscriber> {
    Ok(SealedSubscriber {
        supi: row.get(0)?,
        msisdn: row.get(1)?,
        status: row.get(2)?,
        algorithm: row.get(3)?,
        auth: row.get(4)?,
        amf: row.get(5)?,
        sqn_offset: row.get(6)?,
        keys: row.get(7)?,
        subscription: row.get(8)?,
    })
}

fn sealed(db: &Connection, supi: &str) -> rusqlite::Result<Option<SealedSubscriber>> {
    db.prepare_cached(&format!("{SEALED} WHERE s.supi = ?1"))?.query_row([supi], read_sealed).optional()
}

pub(crate) fn position(db: &Connection) -> rusqlite::Result<Option<ReplicaPosition>> {
    let table = "SELECT count(*) FROM sqlite_master WHERE name = 'replica'";
    if !db.prepare_cached(table)?.query_row([], |row| row.get::<_, bool>(0))? {
        return Ok(None);
    }
    let sql = "SELECT database, system, timeline, generation, mark FROM replica";
    let read = |row: &Row<'_>| {
        Ok(ReplicaPosition {
            database: row.get(0)?,
            system: row.get(1)?,
            timeline: row.get(2)?,
            generation: row.get(3)?,
            mark: row.get(4)?,
        })
    };
    db.prepare_cached(sql)?.query_row([], read).optional()
}

/// True if the file is the replica of a database.
pub(crate) fn is_replica(db: &Connection) -> rusqlite::Result<bool> {
    Ok(position(db)?.is_some())
}

/// Of two offsets, the one with the larger SEQ at this time.
pub fn later_offset(one: SqnOffset, other: SqnOffset) -> SqnOffset {
    let micros = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64);
    one.with_larger_seq(other, Instant(micros))
}

fn later(one: i64, other: i64) -> i64 {
    later_offset(SqnOffset::new(one as u64), SqnOffset::new(other as u64)).value() as i64
}

/// The changes that a full copy made in a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyDifferences {
    /// Subscribers that were written or removed.
    pub changed: u64,
    /// Users of the console and tokens that were written or removed.
    pub documents: u64,
    /// The first of them all.
    pub first: Option<String>,
    /// Where the replica as it was before was saved.
    pub saved: Option<PathBuf>,
}

/// How a full copy treats what the replica has and the database has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyKind {
    /// The database has all that the replica has had.
    Complete,
    /// The database may have lost changes: the replica's file is saved before it is changed. Offsets with the larger SEQ stay, and are written to
    /// the database again.
    AfterLoss,
}

impl Store {
    /// Makes this file follow a database: it becomes the replica when it is brought up to date first.
    pub fn follow(&mut self, shared: Box<dyn SharedStore>) -> Result<(), StoreError> {
        self.make_replica_tables()?;
        self.shared = Some(shared);
        Ok(())
    }

    /// True if changes go to a database that several homes share.
    pub fn is_following(&self) -> bool {
        self.shared.is_some()
    }

    fn make_replica_tables(&mut self) -> Result<(), StoreError> {
        self.db
            .execute_batch(TABLES)
            .and_then(|()| self.db.execute_batch(home::TABLES))
            .map_err(|e| self.failed(e))
    }

    /// Brings the replica up to date, if it is one. Errors: [`StoreError::Database`]; what the file has is still valid then.
    pub fn catch_up(&mut self) -> Result<(), StoreError> {
        self.with_shared(|store, shared| shared.catch_up(store)).unwrap_or(Ok(()))
    }

    pub(crate) fn with_shared<T>(
        &mut self,
        work: impl FnOnce(&mut Self, &mut dyn SharedStore) -> T,
    ) -> Option<T> {
        let mut shared = self.shared.take()?;
        let done = work(self, &mut *shared);
        self.shared = Some(shared);
        Some(done)
    }

    /// A change of the shared database, prepared by `f` in this file.
    pub(crate) fn change_shared<T>(
        &mut self,
        keep: bool,
        f: impl FnOnce(&mut TransactionWriter<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let done = self.with_shared(|store, shared| {
            shared.catch_up(store)?;
            let (done, at, changes) = store.prepare(f)?;
            if keep && !changes.is_empty() {
                shared.commit(store, &at, &changes)?;
                // Made it is; if it cannot be read back now, the core does so within a second of the database's return.
                let _ = shared.catch_up(store);
            }
            Ok(done)
        });
        done.unwrap_or_else(|| Err(StoreError::Replica { path: self.path.clone() }))
    }

    /// Runs `f` on the file and undoes it; returns its result and the changes that it would have made.
    fn prepare<T>(
        &mut self,
        f: impl FnOnce(&mut TransactionWriter<'_>) -> Result<T, StoreError>,
    ) -> Result<(T, ReplicaPosition, Vec<SubscriberChange>), StoreError> {
        let failed = |e| of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        let Some(at) = position(&tx).map_err(failed)? else {
            return Err(StoreError::Corrupt { path: self.path.clone() });
        };
        let mut writer = self.writer(&tx);
        writer.touched = Some(BTreeMap::new());
        let done = f(&mut writer)?;
        let touched = writer.touched.take().unwrap_or_default();
        let mut changes = Vec::new();
        for (supi, before) in touched {
            let after = sealed(&tx, &supi).map_err(failed)?;
            if before != after {
                changes.push(SubscriberChange { supi, before, after });
            }
        }
        tx.rollback().map_err(failed)?;
        // Records that were read within the transaction may share subscriptions whose rows were undone.
        self.clear_cache();
        Ok((done, at, changes))
    }

    /// Where this replica stands; `None`: it has not been copied yet.
    pub fn replica_position(&self) -> Result<Option<ReplicaPosition>, StoreError> {
        position(&self.db).map_err(|e| self.failed(e))
    }

    /// Takes changes over from the database, each the subscriber as it is now, unless the replica has moved from `from` meanwhile. Returns
    /// whether it took them.
    pub fn apply(
        &mut self,
        from: &ReplicaPosition,
        changes: &DatabaseChanges,
        to: &ReplicaPosition,
    ) -> Result<bool, StoreError> {
        let failed = |e| of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        if position(&tx).map_err(failed)?.as_ref() != Some(from) {
            return Ok(false);
        }
        documents::put(&tx, &changes.documents).map_err(failed)?;
        let changes = &changes.subscribers;
        let mut writer = self.writer(&tx);
        // Numbers first: two subscribers may have swapped theirs.
        for (supi, _) in changes {
            writer.run("UPDATE subscriber SET msisdn = NULL WHERE supi = ?1", [supi])?;
        }
        for (supi, row) in changes {
            writer.put_replica_row(supi, row.as_ref(), true)?;
        }
        writer.sweep_all()?;
        set_position(&tx, to).map_err(failed)?;
        tx.commit().map_err(failed)?;
        for (supi, _) in changes {
            if let Ok(supi) = supi.parse::<Supi>() {
                self.forget(supi);
            }
        }
        Ok(true)
    }

    /// Makes the part of this replica between `after` and `upto` equal to these subscribers of the database, in the order of their SUPIs.
    /// Equal ones are not written.
    pub fn apply_page(
        &mut self,
        after: &str,
        upto: Option<&str>,
        rows: &[SealedSubscriber],
        kind: CopyKind,
        differences: &mut CopyDifferences,
    ) -> Result<(), StoreError> {
        self.make_replica_tables()?;
        let here: BTreeSet<String> = self.imsis(after, upto)?.into_iter().collect();
        let mut changed: Vec<(&str, Option<&SealedSubscriber>)> = Vec::new();
        for row in rows {
            let own = sealed(&self.db, &row.supi).map_err(|e| self.failed(e))?;
            match own {
                Some(own) if own == *row => {}
                // After a loss the larger SEQ is kept here, and goes to the database.
                Some(own) if own.equals_but_for_offset(row) => changed.push((&row.supi, Some(row))),
                _ => {
                    differences.count(&row.supi);
                    changed.push((&row.supi, Some(row)));
                }
            }
        }
        let there: BTreeSet<&str> = rows.iter().map(|r| r.supi.as_str()).collect();
        for gone in here.iter().filter(|supi| !there.contains(supi.as_str())) {
            differences.count(gone);
            changed.push((gone, None));
        }
        if kind == CopyKind::AfterLoss && differences.changed > 0 && differences.saved.is_none() {
            differences.saved = Some(self.save_before_loss()?);
        }
        if changed.is_empty() {
            return Ok(());
        }
        let failed = |e| of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        let mut writer = self.writer(&tx);
        for (supi, _) in &changed {
            writer.run("UPDATE subscriber SET msisdn = NULL WHERE supi = ?1", [supi])?;
        }
        for (supi, row) in changed {
            if kind == CopyKind::AfterLoss
                && let (Some(row), Some(own)) = (row, sealed(&tx, supi).map_err(failed)?)
                && later(row.sqn_offset, own.sqn_offset) != row.sqn_offset
            {
                add_pending(&tx, supi, own.sqn_offset).map_err(failed)?;
            }
            writer.put_replica_row(supi, row, true)?;
        }
        writer.sweep_all()?;
        tx.commit().map_err(failed)?;
        self.clear_cache();
        Ok(())
    }

    /// Makes the documents of this replica equal to all those of the database, as [`Self::apply_page`] does with subscribers.
    pub fn apply_all_documents(
        &mut self,
        rows: &[SealedDocument],
        kind: CopyKind,
        differences: &mut CopyDifferences,
    ) -> Result<(), StoreError> {
        let changes = self.document_differences(rows)?;
        changes.iter().for_each(|(name, _)| differences.count_document(name));
        if kind == CopyKind::AfterLoss && !changes.is_empty() && differences.saved.is_none() {
            differences.saved = Some(self.save_before_loss()?);
        }
        let failed = |e| of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        documents::put(&tx, &changes).and_then(|()| tx.commit()).map_err(failed)
    }

    /// Notes that this replica has all up to this position.
    pub fn set_replica_position(&mut self, to: &ReplicaPosition) -> Result<(), StoreError> {
        self.make_replica_tables()?;
        set_position(&self.db, to).map_err(|e| self.failed(e))
    }

    /// Saves the replica as it is to a file beside it, where a loss of the database cannot reach it.
    fn save_before_loss(&self) -> Result<PathBuf, StoreError> {
        for n in 1.. {
            let mut name = self.path.as_os_str().to_owned();
            name.push(format!(".before-loss-{n}"));
            let to = PathBuf::from(name);
            if !to.exists() {
                self.copy_to(&to)?;
                return Ok(to);
            }
        }
        unreachable!("there is a free number")
    }

    /// Saved replicas that an operator has not removed yet: what the database has lost may be in them.
    pub fn saved_before_loss(&self) -> Vec<PathBuf> {
        let Some((folder, name)) = self.path.parent().zip(self.path.file_name()) else { return Vec::new() };
        let begin = format!("{}.before-loss-", name.to_string_lossy());
        let folder = if folder.as_os_str().is_empty() { ".".as_ref() } else { folder };
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut saved: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&begin))
            .map(|entry| entry.path())
            .collect();
        saved.sort();
        saved
    }

    /// The next subscribers after `after` as they are sealed, in the order of their SUPIs.
    pub fn sealed_after(&self, after: &str, limit: usize) -> Result<Vec<SealedSubscriber>, StoreError> {
        let sql = format!("{SEALED} WHERE s.supi > ?1 ORDER BY s.supi LIMIT ?2");
        let page = self.db.prepare_cached(&sql).and_then(|mut s| {
            s.query_map(params![after, limit as i64], read_sealed)?.collect::<Result<Vec<_>, _>>()
        });
        page.map_err(|e| self.failed(e))
    }

    /// The digits of all subscribers.
    pub fn all_imsis(&self) -> Result<Vec<String>, StoreError> {
        self.imsis("", None)
    }

    /// Offsets of resynchronised subscribers that the database does not have yet, by the digits of their SUPIs.
    pub fn pending_offsets(&self, limit: usize) -> Result<Vec<(String, SqnOffset)>, StoreError> {
        let sql = "SELECT supi, sqn_offset FROM pending_offset ORDER BY supi LIMIT ?1";
        let pending = self.db.prepare_cached(sql).and_then(|mut s| {
            s.query_map([limit as i64], |row| {
                Ok((row.get(0)?, SqnOffset::new(row.get::<_, i64>(1)? as u64)))
            })?
            .collect::<Result<Vec<_>, _>>()
        });
        pending.map_err(|e| self.failed(e))
    }

    /// The database has these offsets, or later ones.
    pub fn offsets_merged(&mut self, merged: &[(String, SqnOffset)]) -> Result<(), StoreError> {
        let failed = |e| of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        for (supi, offset) in merged {
            let sql = "DELETE FROM pending_offset WHERE supi = ?1 AND sqn_offset = ?2";
            tx.execute(sql, params![supi, offset.value() as i64]).map_err(failed)?;
        }
        tx.commit().map_err(failed)
    }

    /// Octets by which another holder of the key file can tell that it is the same.
    pub fn key_check(&self) -> Result<Vec<u8>, StoreError> {
        self.sealer().seal(KEY_CHECK.0, KEY_CHECK.1)
    }

    /// True if [`Self::key_check`] was made under the same key as that in force.
    pub fn has_key_of(&self, check: &[u8]) -> bool {
        is_key_of(&self.sealer().without_former(), check)
    }

    /// The failure that the key of a database is not this file's: its former one, or another.
    pub fn other_key_than(&self, check: &[u8]) -> DatabaseFailure {
        match is_key_of(self.sealer(), check) {
            true => DatabaseFailure::FormerKey,
            false => self.other_key(),
        }
    }

    /// The failure that the key of a database is another one than this file's.
    fn other_key(&self) -> DatabaseFailure {
        DatabaseFailure::OtherKey { key_file: self.key_file.clone() }
    }

    /// Path of the subscribers' file.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Adds sealed subscribers to a file that is no replica. Returns how many were written: those that are there already are replaced, or stay
    /// if not `replace`.
    ///
    /// Errors: [`StoreError::Replica`].
    pub fn put_sealed(&mut self, rows: &[SealedSubscriber], replace: bool) -> Result<u64, StoreError> {
        self.check_is_own()?;
        let mut written = 0;
        self.change_own(true, |writer| {
            for row in rows {
                if replace || !writer.exists_digits(&row.supi)? {
                    writer.put_replica_row(&row.supi, Some(row), false)?;
                    written += 1;
                }
            }
            writer.sweep_all()
        })?;
        self.clear_cache();
        Ok(written)
    }
}

impl CopyDifferences {
    fn count_document(&mut self, name: &str) {
        self.documents += 1;
        self.first.get_or_insert_with(|| name.to_owned());
    }

    fn count(&mut self, supi: &str) {
        self.changed += 1;
        self.first.get_or_insert_with(|| format!("imsi-{supi}"));
    }
}

fn is_key_of(sealer: &Sealer, check: &[u8]) -> bool {
    sealer.open_sealed::<8>(KEY_CHECK.0, check).is_some_and(|plain| *plain == KEY_CHECK.1)
}

fn set_position(db: &Connection, to: &ReplicaPosition) -> rusqlite::Result<()> {
    let sql = "INSERT INTO replica (only, database, system, timeline, generation, mark) VALUES (1, ?1, ?2, ?3, ?4, ?5) \
               ON CONFLICT (only) DO UPDATE SET database = ?1, system = ?2, timeline = ?3, generation = ?4, mark = ?5";
    let values = params![to.database, to.system, to.timeline, to.generation, to.mark];
    db.prepare_cached(sql)?.execute(values).map(drop)
}

/// Keeps an offset for the database.
pub(crate) fn add_pending(db: &Connection, supi: &str, offset: i64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO pending_offset (supi, sqn_offset) VALUES (?1, ?2) ON CONFLICT (supi) DO UPDATE SET sqn_offset = ?2";
    db.prepare_cached(sql)?.execute(params![supi, offset]).map(drop)
}

impl TransactionWriter<'_> {
    /// Writes a sealed subscriber as it is, or removes it, and logs the change for this host's processes. An offset that waits for the database
    /// stays if its SEQ is larger.
    fn put_replica_row(
        &mut self,
        supi: &str,
        row: Option<&SealedSubscriber>,
        is_replica: bool,
    ) -> Result<(), StoreError> {
        let Some(row) = row else {
            self.run("DELETE FROM subscriber WHERE supi = ?1", [supi])?;
            if is_replica {
                self.run("DELETE FROM pending_offset WHERE supi = ?1", [supi])?;
            }
            return self.log(supi.parse().ok());
        };
        let mut offset = row.sqn_offset;
        if is_replica {
            let sql = "SELECT sqn_offset FROM pending_offset WHERE supi = ?1";
            let pending =
                self.db.prepare_cached(sql).and_then(|mut s| s.query_row([supi], |r| r.get(0)).optional());
            if let Some(pending) = pending.map_err(|e| of_sqlite(self.path, e))? {
                offset = later(offset, pending);
            }
        }
        if let Some(msisdn) = &row.msisdn {
            let sql = "UPDATE subscriber SET msisdn = NULL WHERE msisdn = ?1 AND supi <> ?2";
            self.run(sql, params![msisdn, supi])?;
        }
        let subscription = self.content_row(&row.subscription)?;
        let sql = "INSERT INTO subscriber (supi, msisdn, status, algorithm, auth, amf, sqn_offset, keys, subscription) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (supi) DO UPDATE SET msisdn = ?2, status = ?3, \
                   algorithm = ?4, auth = ?5, amf = ?6, sqn_offset = ?7, keys = ?8, subscription = ?9";
        self.run(
            sql,
            params![
                supi,
                row.msisdn,
                row.status,
                row.algorithm,
                row.auth,
                row.amf,
                offset,
                row.keys,
                subscription
            ],
        )?;
        self.log(supi.parse().ok())
    }

    /// Notes what a subscriber is before it is changed, if the change is prepared for a database.
    pub(crate) fn touch(&mut self, supi: &str) -> Result<(), StoreError> {
        let Some(touched) = &mut self.touched else { return Ok(()) };
        if !touched.contains_key(supi) {
            let before = sealed(self.db, supi).map_err(|e| of_sqlite(self.path, e))?;
            touched.insert(supi.to_owned(), before);
        }
        Ok(())
    }

    /// As [`Self::touch`], of the other subscriber that has this MSISDN.
    pub(crate) fn touch_owner_of(&mut self, msisdn: &str, supi: &str) -> Result<(), StoreError> {
        if self.touched.is_none() {
            return Ok(());
        }
        let sql = "SELECT supi FROM subscriber WHERE msisdn = ?1 AND supi <> ?2";
        let owner: Option<String> = self
            .db
            .prepare_cached(sql)
            .and_then(|mut s| s.query_row([msisdn, supi], |r| r.get(0)).optional())
            .map_err(|e| of_sqlite(self.path, e))?;
        owner.map_or(Ok(()), |owner| self.touch(&owner))
    }

    /// A subscriber as it is sealed.
    pub(crate) fn sealed(&self, supi: Supi) -> Result<Option<SealedSubscriber>, StoreError> {
        sealed(self.db, &supi.imsi()).map_err(|e| of_sqlite(self.path, e))
    }
}
