//! Periods, their tables, and paid claims, in the file of veiled users.
//!
//! A session is in one period, and a nullifier is in one claim: the keys of the tables say so, whatever the nodes of a broker do at the same
//! time.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use whimbrel_claims::Slots;
use whimbrel_claims::table::{Row as TableEntry, Table};
use whimbrel_open::crypto::Signature;
use whimbrel_open::id::{Domain, OperatorId};
use whimbrel_privacy::crypto::{SigningKey, VerifyingKey};
use whimbrel_privacy::log::Cosignature;
use whimbrel_privacy::msg::{PeriodHead, TablePart};

use super::super::storage::VeilStorage;
use crate::storage::{StorageError, octets_of, open_configured};

const LAYOUT: &str = "
    CREATE TABLE IF NOT EXISTS period (number INTEGER PRIMARY KEY, head BLOB NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS period_cosignature (
        period INTEGER NOT NULL,
        witness BLOB NOT NULL,
        signature BLOB NOT NULL,
        PRIMARY KEY (period, witness)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS period_row (
        period INTEGER NOT NULL,
        place INTEGER NOT NULL,
        nonce BLOB NOT NULL UNIQUE,
        units INTEGER NOT NULL,
        PRIMARY KEY (period, place)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS claim (
        claim BLOB PRIMARY KEY,
        operator TEXT NOT NULL,
        period INTEGER NOT NULL,
        units INTEGER NOT NULL,
        answer BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS nullifier (nullifier BLOB PRIMARY KEY, claim BLOB NOT NULL) STRICT, WITHOUT ROWID;
";

/// A claim that is paid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaidClaim {
    /// Hash of the claim.
    pub claim: [u8; 32],
    /// The operator that is paid.
    pub operator: OperatorId,
    /// Of which period.
    pub period: u32,
    /// Units that were claimed.
    pub units: u64,
}

/// What an operator was paid for a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paid {
    /// Identity of the operator as text.
    pub operator: String,
    /// Number of the period.
    pub period: u32,
    /// Number of claims.
    pub claims: u64,
    /// Units of 1,000,000 octets.
    pub units: u64,
}

/// The database. One thread uses it at a time; each process opens its own.
pub struct ClaimsStorage {
    db: Connection,
    path: PathBuf,
}

impl core::fmt::Debug for ClaimsStorage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ClaimsStorage({})", self.path.display())
    }
}

impl ClaimsStorage {
    /// Opens the file of veiled users.
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        // It makes the file, or refuses what is none.
        drop(VeilStorage::open(path)?);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |e| StorageError::of_sqlite(path, e);
        let db = open_configured(path, flags).map_err(failed)?;
        db.execute_batch(LAYOUT).map_err(failed)?;
        Ok(Self { db, path: path.to_owned() })
    }

    fn failed(&self, e: rusqlite::Error) -> StorageError {
        StorageError::of_sqlite(&self.path, e)
    }

    fn change<T>(&self, f: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, StorageError> {
        let changed = (|| {
            let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate)?;
            let done = f(&tx)?;
            tx.commit()?;
            Ok(done)
        })();
        changed.map_err(|e| self.failed(e))
    }

    /// Closes a period: all sessions reported so far that are in none are its table, at most [`PeriodHead::ROWS_MAX`] of them. Gives the
    /// head, for the witnesses; `None` if there is no such session. Errors: also if another process closed a period meanwhile.
    pub fn close_period(
        &mut self,
        broker: &Domain,
        slots: Slots,
        signing: &SigningKey,
    ) -> Result<Option<PeriodHead>, StorageError> {
        // The tree takes seconds for a million rows: meanwhile, sessions are reported.
        let (number, rows) = self.open_rows().map_err(|e| self.failed(e))?;
        if rows.is_empty() {
            return Ok(None);
        }
        let table = Table::new(rows).map_err(|_| StorageError::Corrupt(self.path.clone()))?;
        let numbers = (number, table.rows().len() as u32, slots.get() as u16);
        let head = PeriodHead::signed(broker.clone(), numbers, table.root(), signing);
        self.change(|tx| {
            tx.execute("INSERT INTO period VALUES (?1, ?2)", params![number, head.to_octets()])?;
            let mut insert = tx.prepare("INSERT INTO period_row VALUES (?1, ?2, ?3, ?4)")?;
            for (place, row) in table.rows().iter().enumerate() {
                insert.execute(params![number, place as i64, row.nonce, row.units])?;
            }
            Ok(())
        })?;
        Ok(Some(head))
    }

    /// The number of the next period, and its rows.
    fn open_rows(&self) -> rusqlite::Result<(u32, Vec<TableEntry>)> {
        let next = "SELECT coalesce(max(number) + 1, 0) FROM period";
        let number = self.db.query_row(next, [], |r| r.get(0))?;
        let sql = "SELECT nonce, units FROM reported WHERE nonce NOT IN (SELECT nonce FROM period_row) \
                   ORDER BY nonce LIMIT ?1";
        let rows = self
            .db
            .prepare(sql)?
            .query_map([PeriodHead::ROWS_MAX], |r| {
                Ok(TableEntry { nonce: octets_of(r, 0)?, units: r.get(1)? })
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        Ok((number, rows))
    }

    /// Keeps a witness's signature over the head of a period.
    pub fn add_cosignature(&mut self, period: u32, cosignature: &Cosignature) -> Result<(), StorageError> {
        self.change(|tx| {
            tx.execute(
                "INSERT OR REPLACE INTO period_cosignature VALUES (?1, ?2, ?3)",
                params![period, cosignature.witness.octets(), cosignature.signature.0],
            )
        })?;
        Ok(())
    }

    /// The head of a period.
    pub fn head(&self, period: u32) -> Result<Option<PeriodHead>, StorageError> {
        let sql = "SELECT head FROM period WHERE number = ?1";
        let head = self.db.query_row(sql, [period], head_of).optional();
        head.map_err(|e| self.failed(e))
    }

    /// The rows of a period from one on, as many as an answer has, with the head.
    pub fn table_part(&self, period: u32, from: u32) -> Result<Option<TablePart>, StorageError> {
        let Some(head) = self.head(period)? else { return Ok(None) };
        let read = || -> rusqlite::Result<TablePart> {
            let sql = "SELECT witness, signature FROM period_cosignature WHERE period = ?1 ORDER BY witness LIMIT ?2";
            let most = whimbrel_privacy::log::LogProof::COSIGNATURES_MAX as i64;
            let cosignatures = self
                .db
                .prepare_cached(sql)?
                .query_map(params![period, most], |r| {
                    let witness = VerifyingKey::from_octets(octets_of(r, 0)?);
                    let witness = witness.ok_or_else(|| damaged(0))?;
                    Ok(Cosignature { witness, signature: Signature(octets_of(r, 1)?) })
                })?
                .collect::<rusqlite::Result<Vec<_>>>()?;
            let sql = "SELECT nonce, units FROM period_row WHERE period = ?1 AND place >= ?2 ORDER BY place LIMIT ?3";
            let rows = self
                .db
                .prepare_cached(sql)?
                .query_map(params![period, from, TablePart::ROWS_MAX as i64], |r| {
                    Ok((octets_of(r, 0)?, r.get(1)?))
                })?
                .collect::<rusqlite::Result<Vec<_>>>()?;
            Ok(TablePart { head, cosignatures, rows })
        };
        read().map(Some).map_err(|e| self.failed(e))
    }

    /// The answer to a claim that was paid.
    pub fn answer(&self, claim: &[u8; 32]) -> Result<Option<Vec<u8>>, StorageError> {
        let sql = "SELECT answer FROM claim WHERE claim = ?1";
        let answer = self.db.query_row(sql, params![claim], |r| r.get(0)).optional();
        answer.map_err(|e| self.failed(e))
    }

    /// How many claims of a period an operator was paid.
    pub fn claims_of(&self, operator: &OperatorId, period: u32) -> Result<u64, StorageError> {
        let sql = "SELECT count(*) FROM claim WHERE operator = ?1 AND period = ?2";
        let count = self.db.query_row(sql, params![operator.to_string(), period], |r| r.get::<_, i64>(0));
        count.map(i64::cast_unsigned).map_err(|e| self.failed(e))
    }

    /// Whether one of these nullifiers stands in a claim that was paid.
    pub fn is_claimed(&self, nullifiers: &[[u8; 32]]) -> Result<bool, StorageError> {
        let any = || -> rusqlite::Result<bool> {
            let mut find = self.db.prepare_cached("SELECT 1 FROM nullifier WHERE nullifier = ?1")?;
            for nullifier in nullifiers {
                if find.exists(params![nullifier])? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        any().map_err(|e| self.failed(e))
    }

    /// Pays a claim, in one transaction. `false`, and nothing is changed, if one of its nullifiers stands in a claim that was paid.
    pub fn pay(
        &mut self,
        paid: &PaidClaim,
        nullifiers: &[[u8; 32]],
        answer: &[u8],
    ) -> Result<bool, StorageError> {
        let done = (|| {
            let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate)?;
            let mut insert =
                tx.prepare_cached("INSERT INTO nullifier VALUES (?1, ?2) ON CONFLICT DO NOTHING")?;
            for nullifier in nullifiers {
                if insert.execute(params![nullifier, paid.claim])? == 0 {
                    // The transaction is rolled back.
                    return Ok(false);
                }
            }
            drop(insert);
            let row =
                params![paid.claim, paid.operator.to_string(), paid.period, paid.units.cast_signed(), answer];
            tx.execute("INSERT INTO claim VALUES (?1, ?2, ?3, ?4, ?5)", row)?;
            tx.commit()?;
            Ok(true)
        })();
        done.map_err(|e| self.failed(e))
    }

    /// What was paid, by operator and period.
    pub fn paid(&self) -> Result<Vec<Paid>, StorageError> {
        let sql = "SELECT operator, period, count(*), sum(units) FROM claim GROUP BY operator, period \
                   ORDER BY operator, period";
        let read = || -> rusqlite::Result<Vec<Paid>> {
            self.db
                .prepare(sql)?
                .query_map([], |r| {
                    let of = |column| r.get::<_, i64>(column).map(i64::cast_unsigned);
                    Ok(Paid { operator: r.get(0)?, period: r.get(1)?, claims: of(2)?, units: of(3)? })
                })?
                .collect()
        };
        read().map_err(|e| self.failed(e))
    }

    /// The heads of all periods.
    pub fn heads(&self) -> Result<Vec<PeriodHead>, StorageError> {
        let read = || -> rusqlite::Result<Vec<PeriodHead>> {
            self.db.prepare("SELECT head FROM period ORDER BY number")?.query_map([], head_of)?.collect()
        };
        read().map_err(|e| self.failed(e))
    }
}

fn head_of(row: &Row<'_>) -> rusqlite::Result<PeriodHead> {
    PeriodHead::parse(&row.get::<_, Vec<u8>>(0)?).map_err(|_| damaged(0))
}

fn damaged(column: usize) -> rusqlite::Error {
    let what = "the value is not of the form that this program writes".into();
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Blob, what)
}
