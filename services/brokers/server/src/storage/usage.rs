//! Usage reports, receipts and what they say of operators and users, in the same file.
//!
//! Reports are stored as their parties signed them, in the order in which they were accepted: a broker that starts again takes them in
//! that order and knows the same. Receipts are stored as they left.

use rusqlite::{Connection, params};
use whimbrel_ids::Instant;
use whimbrel_open::id::{OperatorId, UserId};
use whimbrel_open::msg::Grant;
use whimbrel_open::usage::{SignedReceipt, SignedReport, Standing};

use super::sqlite::{damaged, octets};
use super::{GRANT_KEPT_S, Sqlite, StorageError};

const LAYOUT: &str = "
    CREATE TABLE IF NOT EXISTS report (
        ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
        at INTEGER NOT NULL,
        octets BLOB NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS receipt (
        operator TEXT NOT NULL,
        serial INTEGER NOT NULL,
        octets BLOB NOT NULL,
        PRIMARY KEY (operator, serial)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS standing (
        party TEXT PRIMARY KEY,
        is_operator INTEGER NOT NULL,
        reputation INTEGER NOT NULL,
        suspect INTEGER NOT NULL,
        reports INTEGER NOT NULL,
        mismatches INTEGER NOT NULL,
        mismatch_octets INTEGER NOT NULL,
        blames INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

pub(super) fn create(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(LAYOUT)
}

/// What a broker needs to go on with its accounts.
#[derive(Debug, Default)]
pub struct UsageState {
    /// Grants of which reports may still come, and whose they are.
    pub grants: Vec<(UserId, Grant)>,
    /// Reports, and when each was accepted, in that order.
    pub reports: Vec<(Instant, SignedReport)>,
    /// The number of each operator's last receipt.
    pub serials: Vec<(OperatorId, u64)>,
}

/// What is made durable before the operator gets its answer.
#[derive(Debug, Default)]
pub struct UsageBatch {
    /// Reports that were accepted.
    pub reports: Vec<(Instant, SignedReport)>,
    /// Receipts that were issued.
    pub receipts: Vec<SignedReceipt>,
    /// Standings that have changed.
    pub standings: Vec<NamedStanding>,
}

/// The reputation of a party at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedStanding {
    /// The operator, or the name of the user.
    pub party: String,
    /// Whether it is an operator.
    pub is_operator: bool,
    /// The reputation, 0 to 100.
    pub reputation: u16,
    /// Whether it is a user that gets no grant.
    pub suspect: bool,
    /// What it comes from.
    pub standing: Standing,
}

/// What a broker's accounts need of a database. Each method is one transaction.
pub trait UsageStorage {
    /// Reads all that is stored.
    fn load_usage(&mut self, now: Instant) -> Result<UsageState, StorageError>;
    /// Makes reports, receipts and standings durable, all or none.
    fn commit_usage(&mut self, batch: &UsageBatch) -> Result<(), StorageError>;
    /// Up to `limit` receipts of an operator whose number comes after `after`, ascending.
    fn receipts(
        &mut self,
        operator: OperatorId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SignedReceipt>, StorageError>;
    /// All standings, operators first.
    fn standings(&mut self) -> Result<Vec<NamedStanding>, StorageError>;
    /// Deletes reports of sessions that are long settled. Receipts stay.
    fn tidy_usage(&mut self, now: Instant) -> Result<(), StorageError>;
}

impl UsageStorage for Sqlite {
    fn load_usage(&mut self, now: Instant) -> Result<UsageState, StorageError> {
        // Of reports that are older, the grants are gone.
        let since = now.as_secs().saturating_sub(GRANT_KEPT_S).cast_signed();
        self.read(|db| {
            let mut granted = db.prepare("SELECT user, octets FROM granted WHERE valid_until >= ?1")?;
            let grants = granted.query_map([since], |r| {
                let grant = Grant::parse(&r.get::<_, Vec<u8>>(1)?).map_err(|_| damaged(1))?;
                Ok((UserId(octets(r, 0)?), grant))
            })?;
            let grants = grants.collect::<rusqlite::Result<_>>()?;
            let mut reported = db.prepare("SELECT at, octets FROM report ORDER BY ordinal")?;
            let reports = reported.query_map([], |r| {
                let report = SignedReport::parse(&r.get::<_, Vec<u8>>(1)?).map_err(|_| damaged(1))?;
                Ok((Instant(r.get::<_, i64>(0)?.cast_unsigned()), report))
            })?;
            let reports = reports.collect::<rusqlite::Result<_>>()?;
            let mut last = db.prepare("SELECT operator, max(serial) FROM receipt GROUP BY operator")?;
            let serials = last.query_map([], |r| {
                let operator: String = r.get(0)?;
                Ok((operator.parse().map_err(|_| damaged(0))?, r.get::<_, i64>(1)?.cast_unsigned()))
            })?;
            Ok(UsageState { grants, reports, serials: serials.collect::<rusqlite::Result<_>>()? })
        })
    }

    fn commit_usage(&mut self, batch: &UsageBatch) -> Result<(), StorageError> {
        self.change(|tx| {
            let mut report = tx.prepare_cached("INSERT INTO report (at, octets) VALUES (?1, ?2)")?;
            for (at, signed) in &batch.reports {
                report.execute(params![at.0.cast_signed(), signed.to_octets()])?;
            }
            let mut receipt = tx.prepare_cached("INSERT INTO receipt VALUES (?1, ?2, ?3)")?;
            for signed in &batch.receipts {
                let of = &signed.receipt;
                let (operator, serial) = (of.operator.to_string(), of.serial.cast_signed());
                receipt.execute(params![operator, serial, signed.to_octets()])?;
            }
            let sql = "INSERT OR REPLACE INTO standing VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
            let mut standing = tx.prepare_cached(sql)?;
            for NamedStanding { party, is_operator, reputation, suspect, standing: of } in &batch.standings {
                standing.execute(params![
                    party,
                    is_operator,
                    reputation,
                    suspect,
                    of.reports.cast_signed(),
                    of.mismatches.cast_signed(),
                    of.mismatch_octets.cast_signed(),
                    of.blames
                ])?;
            }
            Ok(())
        })
    }

    fn receipts(
        &mut self,
        operator: OperatorId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SignedReceipt>, StorageError> {
        let (after, limit) =
            (i64::try_from(after).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX));
        self.read(|db| {
            let sql =
                "SELECT octets FROM receipt WHERE operator = ?1 AND serial > ?2 ORDER BY serial LIMIT ?3";
            let mut found = db.prepare_cached(sql)?;
            let receipts = found.query_map(params![operator.to_string(), after, limit], |r| {
                SignedReceipt::parse(&r.get::<_, Vec<u8>>(0)?).map_err(|_| damaged(0))
            })?;
            receipts.collect()
        })
    }

    fn standings(&mut self) -> Result<Vec<NamedStanding>, StorageError> {
        self.read(|db| {
            let sql = "SELECT party, is_operator, reputation, suspect, reports, mismatches, mismatch_octets, blames \
                       FROM standing ORDER BY is_operator DESC, party";
            let mut found = db.prepare_cached(sql)?;
            let standings = found.query_map([], |r| {
                let mut standing = Standing::default();
                standing.reports = r.get::<_, i64>(4)?.cast_unsigned();
                standing.mismatches = r.get::<_, i64>(5)?.cast_unsigned();
                standing.mismatch_octets = r.get::<_, i64>(6)?.cast_unsigned();
                standing.blames = r.get(7)?;
                let (party, is_operator) = (r.get(0)?, r.get(1)?);
                Ok(NamedStanding { party, is_operator, reputation: r.get(2)?, suspect: r.get(3)?, standing })
            })?;
            standings.collect()
        })
    }

    fn tidy_usage(&mut self, now: Instant) -> Result<(), StorageError> {
        let before = now.0.saturating_sub(GRANT_KEPT_S.saturating_mul(1_000_000)).cast_signed();
        self.change(|tx| tx.execute("DELETE FROM report WHERE at < ?1", [before]))?;
        Ok(())
    }
}
