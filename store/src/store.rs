//! Subscribers in a file: each operation is one transaction.

use core::fmt;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use whimbrel_ids::Supi;
use whimbrel_security::{AuthenticationManagementField, SqnOffset};

use crate::cache::{Cache, Changes};
use crate::error::{StoreError, of_sqlite};
use crate::record::SubscriberRecord;
use crate::replica::{add_pending, is_replica};
use crate::schema;
use crate::seal::Sealer;
use crate::shared::{SealedSubscriber, SharedStore};
use crate::subscription::Subscription;

/// Records of one page at most.
pub const PAGE_MAX: usize = 1_000;
/// Entries that the log of changes keeps: a process that looks once a second misses none until there are as many
/// edits in that second.
const CHANGES_KEPT: i64 = 4_096;

/// The subscribers' file, open.
///
/// One thread uses it at a time; processes and threads that need it each open their own.
pub struct Store {
    pub(crate) db: Connection,
    sealer: Sealer,
    pub(crate) path: PathBuf,
    cache: Cache,
    /// SQLite's count of other connections' commits, at the last look.
    data_version: i64,
    /// The newest entry of the log of changes, at the last look.
    generation: i64,
    /// When what changed between the last look and the one before was changed.
    times: HashMap<Option<Supi>, u64>,
    /// The key file in force.
    pub(crate) key_file: PathBuf,
    /// The database of which this file is a replica, and to which changes go.
    pub(crate) shared: Option<Box<dyn SharedStore>>,
    /// The file was a replica when it was opened.
    is_replica: bool,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.path.display())
    }
}

/// The columns of a record, in the order that [`Store::record`] reads.
const COLUMNS: &str = "supi, msisdn, status, algorithm, auth, amf, sqn_offset, keys, subscription";

impl Store {
    /// Opens the subscribers' file, or creates it and its key file, both with mode 0600.
    pub fn open(path: &Path, key_file: &Path) -> Result<Self, StoreError> {
        let (db, sealer) = schema::open(path, key_file)?;
        let path = path.to_owned();
        let is_replica = is_replica(&db).map_err(|e| of_sqlite(&path, e))?;
        let mut store = Self {
            db,
            sealer,
            path,
            cache: Cache::default(),
            data_version: 0,
            generation: 0,
            times: HashMap::new(),
            key_file: key_file.to_owned(),
            shared: None,
            is_replica,
        };
        store.refresh()?;
        Ok(store)
    }

    /// A name for a subscriber, or for anything, that only the holder of the key file can lead back: the same text has the same
    /// name each time. `None` for a text of more than the cipher takes.
    pub fn pseudonym(&self, text: &str) -> Option<String> {
        self.sealer.pseudonym(text)
    }

    /// How many subscribers there are.
    pub fn count(&self) -> Result<u64, StoreError> {
        let count = self
            .db
            .prepare_cached("SELECT count(*) FROM subscriber")
            .and_then(|mut s| s.query_row([], |r| r.get::<_, i64>(0)));
        count.map(i64::unsigned_abs).map_err(|e| self.failed(e))
    }

    /// Adds a subscriber. Errors: [`StoreError::Exists`], [`StoreError::MsisdnTaken`], [`StoreError::Invalid`].
    pub fn add(&mut self, record: &SubscriberRecord) -> Result<(), StoreError> {
        record.check()?;
        self.change(|w| {
            if w.exists(record.supi)? {
                return Err(StoreError::Exists(record.supi));
            }
            w.put(record)?;
            w.log(Some(record.supi))
        })?;
        self.cache.forget(record.supi);
        Ok(())
    }

    /// A subscriber, read from the file.
    pub fn get(&mut self, supi: Supi) -> Result<Option<Arc<SubscriberRecord>>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM subscriber WHERE supi = ?1");
        let row = self
            .db
            .prepare_cached(&sql)
            .and_then(|mut s| s.query_row([supi.imsi()], Columns::read).optional());
        match row.map_err(|e| self.failed(e))? {
            Some(columns) => self.record(columns).map(|r| Some(Arc::new(r))),
            None => Ok(None),
        }
    }

    /// A subscriber as of the last [`Store::refresh`]: from memory if it was used before, else from the file.
    pub fn cached(&mut self, supi: Supi) -> Result<Option<Arc<SubscriberRecord>>, StoreError> {
        if let Some(record) = self.cache.get(supi) {
            return Ok(Some(record));
        }
        let record = self.get(supi)?;
        if let Some(record) = &record {
            self.cache.insert(Arc::clone(record));
        }
        Ok(record)
    }

    /// Up to `limit` (and [`PAGE_MAX`]) subscribers whose SUPI comes after `after`, in the order of SUPIs' digits.
    pub fn list(&mut self, after: Option<Supi>, limit: usize) -> Result<Vec<SubscriberRecord>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM subscriber WHERE supi > ?1 ORDER BY supi LIMIT ?2");
        let after = after.map(Supi::imsi).unwrap_or_default();
        let page = self.db.prepare_cached(&sql).and_then(|mut s| {
            s.query_map(params![after, limit.min(PAGE_MAX) as i64], Columns::read)?
                .collect::<Result<Vec<_>, _>>()
        });
        page.map_err(|e| self.failed(e))?.into_iter().map(|c| self.record(c)).collect()
    }

    /// Changes a subscriber by `edit` and returns what it has become.
    ///
    /// Errors: [`StoreError::Unknown`], [`StoreError::SupiChanged`], [`StoreError::MsisdnTaken`],
    /// [`StoreError::Invalid`].
    pub fn edit(
        &mut self,
        supi: Supi,
        edit: impl FnOnce(&mut SubscriberRecord),
    ) -> Result<Arc<SubscriberRecord>, StoreError> {
        if self.shared.is_some() {
            return self.edit_shared(supi, edit);
        }
        self.check_is_own()?;
        // Taken before reading, so that no other process edits in between.
        self.db.execute_batch("BEGIN IMMEDIATE").map_err(|e| self.failed(e))?;
        let edited = self.edit_in_transaction(supi, edit);
        let end = if edited.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.db.execute_batch(end).map_err(|e| self.failed(e));
        if ended.is_err() && !self.db.is_autocommit() {
            let _ = self.db.execute_batch("ROLLBACK");
        }
        self.cache.forget(supi);
        let edited = edited?;
        ended.map(|()| edited)
    }

    /// An edit of the shared database, prepared from what the replica has.
    fn edit_shared(
        &mut self,
        supi: Supi,
        edit: impl FnOnce(&mut SubscriberRecord),
    ) -> Result<Arc<SubscriberRecord>, StoreError> {
        self.catch_up()?;
        let old = self.get(supi)?.ok_or(StoreError::Unknown(supi))?;
        let sealed = self.sealed_one(supi)?;
        let record = edited(&old, edit)?;
        if record == *old {
            return Ok(old);
        }
        self.change(|w| {
            if w.sealed(supi)? != sealed {
                return Err(StoreError::ChangedMeanwhile(supi));
            }
            w.put(&record)
        })?;
        Ok(Arc::new(record))
    }

    fn sealed_one(&self, supi: Supi) -> Result<Option<SealedSubscriber>, StoreError> {
        self.writer(&self.db).sealed(supi)
    }

    fn edit_in_transaction(
        &mut self,
        supi: Supi,
        edit: impl FnOnce(&mut SubscriberRecord),
    ) -> Result<Arc<SubscriberRecord>, StoreError> {
        let old = self.get(supi)?.ok_or(StoreError::Unknown(supi))?;
        let record = edited(&old, edit)?;
        let mut w = TransactionWriter::new(&self.db, &self.sealer, &self.path);
        let row = w.subscription_of(supi)?;
        w.put(&record)?;
        w.log(Some(supi))?;
        w.sweep(row)?;
        Ok(Arc::new(record))
    }

    /// Removes a subscriber. Errors: [`StoreError::Unknown`].
    pub fn remove(&mut self, supi: Supi) -> Result<(), StoreError> {
        self.change(|w| {
            let row = w.subscription_of(supi)?;
            w.touch(&supi.imsi())?;
            if w.run("DELETE FROM subscriber WHERE supi = ?1", [supi.imsi()])? == 0 {
                return Err(StoreError::Unknown(supi));
            }
            w.log(Some(supi))?;
            w.sweep(row)
        })?;
        self.cache.forget(supi);
        Ok(())
    }

    /// Makes the offsets of resynchronised subscribers durable, all in one commit; unknown SUPIs are passed over.
    pub fn set_sqn_offsets(&mut self, offsets: &[(Supi, SqnOffset)]) -> Result<(), StoreError> {
        // In this file whether or not it is a replica: the UE waits, and a database may not answer.
        let follows = self.shared.is_some();
        self.change_own(true, |w| {
            for (supi, offset) in offsets {
                let sql = "UPDATE subscriber SET sqn_offset = ?2 WHERE supi = ?1";
                w.run(sql, params![supi.imsi(), offset.value() as i64])?;
                w.log(Some(*supi))?;
                if follows {
                    add_pending(w.db, &supi.imsi(), offset.value() as i64)
                        .map_err(|e| of_sqlite(w.path, e))?;
                }
            }
            Ok(())
        })?;
        for (supi, _) in offsets {
            self.cache.forget(*supi);
        }
        Ok(())
    }

    /// Looks whether the file was changed, by this or another process, and forgets the cached records concerned.
    ///
    /// Without changes by others this costs a microsecond; call it as often as edits should be seen.
    pub fn refresh(&mut self) -> Result<Changes, StoreError> {
        let changes = self.look().map_err(|e| self.failed(e))?;
        match &changes {
            Changes::None => {}
            Changes::Some(supis) => {
                for supi in supis {
                    // Until now the former record was in force here.
                    if self.cache.forget(*supi) {
                        self.times.remove(&Some(*supi));
                    }
                }
            }
            Changes::All => self.cache.clear(),
        }
        Ok(changes)
    }

    /// When a change that the last [`refresh`](Self::refresh) found was made, in microseconds since 1970 by the clock of its author; with `None`, the
    /// last one of all. It is unknown for a change by a program that writes no times, and for a record that was used as it was before until
    /// that refresh.
    pub fn changed_at(&self, supi: Option<Supi>) -> Option<u64> {
        self.times.get(&supi).copied()
    }

    fn look(&mut self) -> rusqlite::Result<Changes> {
        self.times.clear();
        let version = self.db.prepare_cached("PRAGMA data_version")?.query_row([], |r| r.get(0))?;
        if version == self.data_version {
            return Ok(Changes::None);
        }
        let sql = "SELECT generation, supi, at FROM change WHERE generation > ?1 ORDER BY generation";
        let mut statement = self.db.prepare_cached(sql)?;
        let mut rows = statement.query([self.generation])?;
        let (mut supis, mut newest, mut all) = (Vec::new(), self.generation, false);
        while let Some(row) = rows.next()? {
            let generation = row.get(0)?;
            // A gap means that the log was shortened meanwhile.
            all |= generation != newest + 1;
            newest = generation;
            let supi = row.get::<_, Option<String>>(1)?.and_then(|s| s.parse().ok());
            let at = row.get::<_, Option<i64>>(2)?.and_then(|at| u64::try_from(at).ok());
            for changed in [supi, None] {
                match at {
                    Some(at) => drop(self.times.insert(changed, at)),
                    None => drop(self.times.remove(&changed)),
                }
            }
            match supi {
                Some(supi) => supis.push(supi),
                None => all = true,
            }
        }
        (self.data_version, self.generation) = (version, newest);
        Ok(match supis {
            _ if all => Changes::All,
            supis if supis.is_empty() => Changes::None,
            supis => Changes::Some(supis),
        })
    }

    /// The digits of all subscribers after these, up to those.
    pub(crate) fn imsis(&self, after: &str, upto: Option<&str>) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT supi FROM subscriber WHERE supi > ?1 AND (?2 IS NULL OR supi <= ?2) ORDER BY supi";
        let found = self.db.prepare_cached(sql).and_then(|mut s| {
            s.query_map(params![after, upto], |row| row.get(0))?.collect::<Result<Vec<_>, _>>()
        });
        found.map_err(|e| self.failed(e))
    }

    /// Reads the whole file for damage: some 100 ms for 100,000 subscribers. Errors: [`StoreError::Corrupt`].
    pub fn verify(&self) -> Result<(), StoreError> {
        let found = self.db.pragma_query_value(None, "quick_check", |r| r.get::<_, String>(0));
        match found.map_err(|e| self.failed(e))?.as_str() {
            "ok" => Ok(()),
            _ => Err(StoreError::Corrupt { path: self.path.clone() }),
        }
    }

    /// One transaction of changes, kept only if `f` succeeds.
    pub(crate) fn change<T>(
        &mut self,
        f: impl FnOnce(&mut TransactionWriter<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.change_if(true, f)
    }

    /// One transaction of changes, kept only if `keep` and if `f` succeeds.
    pub(crate) fn change_if<T>(
        &mut self,
        keep: bool,
        f: impl FnOnce(&mut TransactionWriter<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.shared.is_some() {
            return self.change_shared(keep, f);
        }
        self.check_is_own()?;
        self.change_own(keep, f)
    }

    /// Errors: [`StoreError::Replica`]: what is written into a replica alone would be lost.
    pub(crate) fn check_is_own(&self) -> Result<(), StoreError> {
        if self.is_replica { Err(StoreError::Replica { path: self.path.clone() }) } else { Ok(()) }
    }

    /// One transaction of changes of this file alone.
    pub(crate) fn change_own<T>(
        &mut self,
        keep: bool,
        f: impl FnOnce(&mut TransactionWriter<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let failed = |e| of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        let done = f(&mut TransactionWriter::new(&tx, &self.sealer, &self.path))?;
        if keep { tx.commit() } else { tx.rollback() }.map_err(failed)?;
        Ok(done)
    }

    /// A writer for a transaction of this file.
    pub(crate) fn writer<'a>(&'a self, db: &'a Connection) -> TransactionWriter<'a> {
        TransactionWriter::new(db, &self.sealer, &self.path)
    }

    pub(crate) fn set_sealer(&mut self, sealer: Sealer) {
        self.sealer = sealer;
    }

    pub(crate) fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    pub(crate) fn forget(&mut self, supi: Supi) {
        self.cache.forget(supi);
    }

    pub(crate) fn clear_cache(&mut self) {
        self.cache.clear();
    }

    pub(crate) fn failed(&self, e: rusqlite::Error) -> StoreError {
        of_sqlite(&self.path, e)
    }

    fn corrupt(&self) -> StoreError {
        StoreError::Corrupt { path: self.path.clone() }
    }

    /// A record from its columns: opens the keys, shares the subscription.
    fn record(&mut self, c: Columns) -> Result<SubscriberRecord, StoreError> {
        let supi = c.supi.parse().map_err(|_| self.corrupt())?;
        let mut opened = self.sealer.open_keys(supi, &c.keys);
        if opened.is_none() && self.reload_key()? {
            // The key was rotated since this process read its file.
            opened = self.sealer.open_keys(supi, &c.keys);
        }
        let (k, operator_code) = opened.ok_or_else(|| self.corrupt())?;
        let record = SubscriberRecord {
            supi,
            k,
            operator_code,
            amf: AuthenticationManagementField(c.amf.as_slice().try_into().map_err(|_| self.corrupt())?),
            algorithm: c.algorithm.parse().map_err(|_| self.corrupt())?,
            auth: c.auth.parse().map_err(|_| self.corrupt())?,
            sqn_offset: SqnOffset::new(c.sqn_offset as u64),
            status: c.status.parse().map_err(|_| self.corrupt())?,
            msisdn: c.msisdn.map(|m| m.parse().map_err(|_| self.corrupt())).transpose()?,
            subscription: self.subscription(c.subscription)?,
        };
        Ok(record)
    }

    fn subscription(&mut self, row: i64) -> Result<Arc<Subscription>, StoreError> {
        if let Some(shared) = self.cache.subscription(row) {
            return Ok(shared);
        }
        let content = self.db.prepare_cached("SELECT content FROM subscription WHERE id = ?1");
        let content: String =
            content.and_then(|mut s| s.query_row([row], |r| r.get(0))).map_err(|e| self.failed(e))?;
        let subscription = Arc::new(serde_json::from_str(&content).map_err(|_| self.corrupt())?);
        self.cache.share_subscription(row, &subscription);
        Ok(subscription)
    }
}

/// The record that an edit makes.
fn edited(
    old: &SubscriberRecord,
    edit: impl FnOnce(&mut SubscriberRecord),
) -> Result<SubscriberRecord, StoreError> {
    let mut record = old.clone();
    edit(&mut record);
    if record.supi != old.supi {
        return Err(StoreError::SupiChanged(old.supi));
    }
    record.check()?;
    Ok(record)
}

/// The columns of one row.
struct Columns {
    supi: String,
    msisdn: Option<String>,
    status: String,
    algorithm: String,
    auth: String,
    amf: Vec<u8>,
    sqn_offset: i64,
    keys: Vec<u8>,
    subscription: i64,
}

impl Columns {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
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
}

/// What a transaction writes.
pub(crate) struct TransactionWriter<'a> {
    pub(crate) db: &'a Connection,
    sealer: &'a Sealer,
    pub(crate) path: &'a Path,
    /// The subscription written last and its row: in an import it is mostly the next one's too.
    last_subscription: Option<(Arc<Subscription>, i64)>,
    /// Subscribers as they were before this transaction, if it prepares a change of a shared database.
    pub(crate) touched: Option<BTreeMap<String, Option<SealedSubscriber>>>,
}

impl<'a> TransactionWriter<'a> {
    fn new(db: &'a Connection, sealer: &'a Sealer, path: &'a Path) -> Self {
        Self { db, sealer, path, last_subscription: None, touched: None }
    }

    pub(crate) fn exists(&self, supi: Supi) -> Result<bool, StoreError> {
        self.exists_digits(&supi.imsi())
    }

    pub(crate) fn exists_digits(&self, supi: &str) -> Result<bool, StoreError> {
        let found = self.db.prepare_cached("SELECT 1 FROM subscriber WHERE supi = ?1");
        found.and_then(|mut s| s.exists([supi])).map_err(|e| of_sqlite(self.path, e))
    }

    /// Writes a record over whatever the SUPI had before.
    pub(crate) fn put(&mut self, r: &SubscriberRecord) -> Result<(), StoreError> {
        self.touch(&r.supi.imsi())?;
        let keys = self.sealer.seal_keys(r.supi, &r.k, &r.operator_code)?;
        let subscription = self.subscription_row(&r.subscription)?;
        let sql = "INSERT INTO subscriber (supi, msisdn, status, algorithm, auth, amf, sqn_offset, keys, subscription) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (supi) DO UPDATE SET msisdn = ?2, status = ?3, \
                   algorithm = ?4, auth = ?5, amf = ?6, sqn_offset = ?7, keys = ?8, subscription = ?9";
        let written = self.db.prepare_cached(sql).and_then(|mut s| {
            s.execute(params![
                r.supi.imsi(),
                r.msisdn.as_ref().map(|m| m.digits()),
                r.status.to_string(),
                r.algorithm.to_string(),
                r.auth.to_string(),
                r.amf.0.as_slice(),
                r.sqn_offset.value() as i64,
                keys,
                subscription,
            ])
        });
        match written {
            Ok(_) => Ok(()),
            // The SUPI's own conflict is resolved above: only the MSISDN is left.
            Err(e) if e.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                Err(StoreError::MsisdnTaken)
            }
            Err(e) => Err(of_sqlite(self.path, e)),
        }
    }

    /// The row of a subscription, written if it is new.
    fn subscription_row(&mut self, subscription: &Arc<Subscription>) -> Result<i64, StoreError> {
        match &self.last_subscription {
            Some((last, row)) if Arc::ptr_eq(last, subscription) || last == subscription => return Ok(*row),
            _ => {}
        }
        let content = serde_json::to_string(&**subscription).map_err(|e| StoreError::Io(e.into()))?;
        let row = self.content_row(&content)?;
        self.last_subscription = Some((Arc::clone(subscription), row));
        Ok(row)
    }

    /// The row of a subscription's JSON, written if it is new.
    pub(crate) fn content_row(&mut self, content: &str) -> Result<i64, StoreError> {
        let find = "SELECT id FROM subscription WHERE content = ?1";
        let found =
            self.db.prepare_cached(find).and_then(|mut s| s.query_row([content], |r| r.get(0)).optional());
        match found.map_err(|e| of_sqlite(self.path, e))? {
            Some(row) => Ok(row),
            None => {
                self.run("INSERT INTO subscription (content) VALUES (?1)", [content])?;
                Ok(self.db.last_insert_rowid())
            }
        }
    }

    /// Writes a record and logs the change; an earlier owner of its MSISDN loses it.
    pub(crate) fn replace(&mut self, record: &SubscriberRecord) -> Result<(), StoreError> {
        if let Some(msisdn) = &record.msisdn {
            self.touch_owner_of(msisdn.digits(), &record.supi.imsi())?;
            let sql = "UPDATE subscriber SET msisdn = NULL WHERE msisdn = ?1 AND supi <> ?2";
            self.run(sql, params![msisdn.digits(), record.supi.imsi()])?;
        }
        self.put(record)?;
        self.log(Some(record.supi))
    }

    /// Removes a subscriber and logs the change. Returns whether it existed.
    pub(crate) fn remove(&mut self, imsi: &str) -> Result<bool, StoreError> {
        self.touch(imsi)?;
        let removed = self.run("DELETE FROM subscriber WHERE supi = ?1", [imsi])? > 0;
        if removed {
            self.log(imsi.parse().ok())?;
        }
        Ok(removed)
    }

    /// Logs for other processes that a subscriber changed, or with `None` that many did; shortens the log.
    pub(crate) fn log(&mut self, supi: Option<Supi>) -> Result<(), StoreError> {
        let supi = supi.map_or(Value::Null, |s| Value::Text(s.imsi()));
        self.run(
            "INSERT INTO change (supi, at) VALUES (?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER))",
            [supi],
        )?;
        self.run("DELETE FROM change WHERE generation <= ?1", [self.db.last_insert_rowid() - CHANGES_KEPT])?;
        Ok(())
    }

    /// The row of a subscriber's subscription.
    fn subscription_of(&self, supi: Supi) -> Result<Option<i64>, StoreError> {
        let find = self.db.prepare_cached("SELECT subscription FROM subscriber WHERE supi = ?1");
        let row = find.and_then(|mut s| s.query_row([supi.imsi()], |r| r.get(0)).optional());
        row.map_err(|e| of_sqlite(self.path, e))
    }

    /// Drops the subscription of this row if no subscriber has it any more.
    fn sweep(&self, row: Option<i64>) -> Result<(), StoreError> {
        let sql = "DELETE FROM subscription WHERE id = ?1 AND NOT EXISTS \
                   (SELECT 1 FROM subscriber WHERE subscription = ?1)";
        self.run(sql, [row]).map(|_| ())
    }

    /// Drops all subscriptions that no subscriber has any more.
    pub(crate) fn sweep_all(&self) -> Result<(), StoreError> {
        let sql = "DELETE FROM subscription WHERE NOT EXISTS \
                   (SELECT 1 FROM subscriber WHERE subscriber.subscription = subscription.id)";
        self.run(sql, []).map(|_| ())
    }

    pub(crate) fn run(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, StoreError> {
        self.db.prepare_cached(sql).and_then(|mut s| s.execute(params)).map_err(|e| of_sqlite(self.path, e))
    }
}

#[cfg(test)]
mod tests;
