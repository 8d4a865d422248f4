//! The part of this home's file that is for the database that homes share: the identity of the home, and the registrations of its UEs.
//!
//! A row of a registration has the time of the registration, and whether the database has it. So nothing is lost while the database is away or when this home is
//! killed, and the rows can be written again to a database that has lost them. There is one row for each SUPI, its last state.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{OptionalExtension, Row, Transaction, TransactionBehavior, params};
use whimbrel_ids::{Instant, SNssai, Supi};

use crate::error::{StoreError, of_sqlite};
use crate::store::Store;
use crate::text::to_hex;

/// The tables beside those of the replica. A program that does not know them does not see them.
pub(crate) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS registration (
        supi TEXT PRIMARY KEY,
        at INTEGER,
        is_written INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS home (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        file TEXT NOT NULL,
        amf TEXT,
        cta INTEGER NOT NULL DEFAULT 0,
        writes INTEGER NOT NULL DEFAULT 0,
        sqn_slot INTEGER
    ) STRICT;
    CREATE TABLE IF NOT EXISTS slice_share (
        slice TEXT PRIMARY KEY,
        share INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS registration_unwritten ON registration (supi) WHERE is_written = 0;
";

/// The identity of this home, and what it has leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeRecord {
    /// Random name of this file.
    pub file: String,
    /// The AMF as which it was entered last: the digits of its PLMN, `-`, and its AMF identifier in six hexadecimal digits.
    pub amf: Option<String>,
    /// The number of its CTA, where an AMF has two.
    pub cta: i32,
    /// How often this home has written to the database, or fewer.
    pub writes: i64,
    /// The IND of its SQNs.
    pub sqn_slot: Option<u8>,
}

/// The registration of a subscriber at this home, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRegistration {
    /// Digits of the SUPI.
    pub supi: String,
    /// When the subscriber registered, by this home's clock; `None`: it is registered here no more.
    pub at: Option<Instant>,
}

impl OwnRegistration {
    /// The registration of a UE, or its end.
    pub fn new(supi: Supi, at: Option<Instant>) -> Self {
        Self { supi: supi.imsi(), at }
    }
}

impl Store {
    /// The identity of this home. The file gets its name when it is read first.
    pub fn home(&self) -> Result<HomeRecord, StoreError> {
        let sql = "SELECT file, amf, cta, writes, sqn_slot FROM home";
        let read = self.db.prepare_cached(sql).and_then(|mut s| {
            let of = |row: &Row<'_>| {
                let slot = row.get::<_, Option<i64>>(4)?;
                Ok(HomeRecord {
                    file: row.get(0)?,
                    amf: row.get(1)?,
                    cta: row.get(2)?,
                    writes: row.get(3)?,
                    sqn_slot: slot.and_then(|slot| u8::try_from(slot).ok()),
                })
            };
            s.query_row([], of).optional()
        });
        if let Some(home) = read.map_err(|e| self.failed(e))? {
            return Ok(home);
        }
        let mut name = [0; 16];
        getrandom::fill(&mut name).map_err(|_| StoreError::NoRandomness)?;
        let sql = "INSERT INTO home (only, file) VALUES (1, ?1) ON CONFLICT (only) DO NOTHING";
        self.db.execute(sql, [to_hex(&name)]).map_err(|e| self.failed(e))?;
        self.home()
    }

    /// Keeps the identity of this home, and what it has leased.
    pub fn set_home(&mut self, home: &HomeRecord) -> Result<(), StoreError> {
        let sql = "UPDATE home SET amf = ?1, cta = ?2, writes = ?3, sqn_slot = ?4";
        let done = self.db.execute(sql, params![home.amf, home.cta, home.writes, home.sqn_slot]);
        done.map(drop).map_err(|e| self.failed(e))
    }

    /// This home's share of the limit of each slice.
    pub fn slice_shares(&self) -> Result<BTreeMap<SNssai, u32>, StoreError> {
        let shares = self.db.prepare_cached("SELECT slice, share FROM slice_share").and_then(|mut s| {
            s.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?
                .collect::<Result<Vec<_>, _>>()
        });
        let shares = shares.map_err(|e| self.failed(e))?.into_iter();
        let share = |(slice, share): (String, i64)| Some((slice.parse().ok()?, u32::try_from(share).ok()?));
        Ok(shares.filter_map(share).collect())
    }

    /// Keeps the shares, durably.
    pub fn set_slice_shares(&mut self, shares: &BTreeMap<SNssai, u32>) -> Result<(), StoreError> {
        if self.slice_shares()? == *shares {
            return Ok(());
        }
        let failed = |e| of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        tx.execute("DELETE FROM slice_share", []).map_err(failed)?;
        for (slice, share) in shares {
            let sql = "INSERT INTO slice_share (slice, share) VALUES (?1, ?2)";
            tx.execute(sql, params![slice.to_string(), share]).map_err(failed)?;
        }
        tx.commit().map_err(failed)
    }

    /// Keeps registrations and ends of registrations for the database, durably.
    pub fn note_registrations(&mut self, changes: &[OwnRegistration]) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let failed = |e| of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        for OwnRegistration { supi, at } in changes {
            put(&tx, supi, *at).map_err(failed)?;
        }
        tx.commit().map_err(failed)
    }

    /// The registrations and ends of registrations that the database does not have yet, in the order of SUPIs.
    pub fn unwritten_registrations(&self, limit: usize) -> Result<Vec<OwnRegistration>, StoreError> {
        let sql = "SELECT supi, at FROM registration WHERE is_written = 0 ORDER BY supi LIMIT ?1";
        let pending = self.db.prepare_cached(sql).and_then(|mut s| {
            s.query_map([limit as i64], |row| {
                let at = row.get::<_, Option<i64>>(1)?.map(|at| Instant(at.unsigned_abs()));
                Ok(OwnRegistration { supi: row.get(0)?, at })
            })?
            .collect::<Result<Vec<_>, _>>()
        });
        pending.map_err(|e| self.failed(e))
    }

    /// How many of them there are.
    pub fn unwritten_registrations_count(&self) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM registration WHERE is_written = 0";
        let count = self.db.prepare_cached(sql).and_then(|mut s| s.query_row([], |row| row.get::<_, i64>(0)));
        count.map(i64::unsigned_abs).map_err(|e| self.failed(e))
    }

    /// The database has these now. What has changed since stays.
    pub fn registrations_written(&mut self, written: &[OwnRegistration]) -> Result<(), StoreError> {
        let failed = |e| of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        for OwnRegistration { supi, at } in written {
            let sql = match at {
                Some(_) => "UPDATE registration SET is_written = 1 WHERE supi = ?1 AND at = ?2",
                None => "DELETE FROM registration WHERE supi = ?1 AND at IS ?2",
            };
            tx.prepare_cached(sql).and_then(|mut s| s.execute(params![supi, micros(*at)])).map_err(failed)?;
        }
        tx.commit().map_err(failed)
    }

    /// The database may have none of them: all are to be written again.
    pub fn forget_written_registrations(&mut self) -> Result<(), StoreError> {
        self.db.execute("UPDATE registration SET is_written = 0", []).map(drop).map_err(|e| self.failed(e))
    }

    /// Compares the file with the UEs that are registered when a core has started, or taken over from another one. Of a UE of which the file
    /// has nothing, the time of its registration is unknown: it counts as earlier than any other.
    pub fn compare_registrations(&mut self, registered: &BTreeSet<Supi>) -> Result<(), StoreError> {
        let failed = |e| of_sqlite(&self.path, e);
        let sql = "SELECT supi FROM registration WHERE at IS NOT NULL";
        let here = self.db.prepare_cached(sql).and_then(|mut s| {
            s.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<BTreeSet<_>, _>>()
        });
        let here = here.map_err(failed)?;
        let there: BTreeSet<String> = registered.iter().map(|supi| supi.imsi()).collect();
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        for supi in here.difference(&there) {
            put(&tx, supi, None).map_err(failed)?;
        }
        for supi in there.difference(&here) {
            put(&tx, supi, Some(Instant(0))).map_err(failed)?;
        }
        tx.commit().map_err(failed)
    }

    /// Those of these SUPIs that the file does not have as registered: rows of the database that nothing stands for.
    pub fn not_registered(&self, supis: Vec<String>) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT 1 FROM registration WHERE supi = ?1 AND at IS NOT NULL";
        let mut statement = self.db.prepare_cached(sql).map_err(|e| self.failed(e))?;
        let mut missing = Vec::new();
        for supi in supis {
            if !statement.exists([&supi]).map_err(|e| self.failed(e))? {
                missing.push(supi);
            }
        }
        Ok(missing)
    }
}

fn micros(at: Option<Instant>) -> Option<i64> {
    at.map(|at| i64::try_from(at.0).unwrap_or(i64::MAX))
}

fn put(tx: &Transaction<'_>, supi: &str, at: Option<Instant>) -> rusqlite::Result<()> {
    let sql = "INSERT INTO registration (supi, at, is_written) VALUES (?1, ?2, 0) \
               ON CONFLICT (supi) DO UPDATE SET at = ?2, is_written = 0";
    tx.prepare_cached(sql)?.execute(params![supi, micros(at)]).map(drop)
}
