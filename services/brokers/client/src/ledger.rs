//! An operator's ledger: the grants on which it served, the reports that it sent, and the receipts that brokers gave for them. With it the
//! operator checks a broker's statement line by line.

use core::time::Duration;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};
use whimbrel_open::crypto::hash;
use whimbrel_open::id::{Domain, Pseudonym};
use whimbrel_open::msg::{Price, SignedGrant};
use whimbrel_open::usage::{ReceiptCheck, Report, SignedReceipt, SignedReport, Statement, Totals};

/// "WhOl": a file of another program is refused.
const APPLICATION_ID: i64 = 0x5768_4f6c;
/// A command waits this long for the core's commit.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const LAYOUT: &str = "
    CREATE TABLE granted (pseudonym BLOB PRIMARY KEY, octets BLOB NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE report (hash BLOB PRIMARY KEY, octets BLOB NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE receipt (
        broker TEXT NOT NULL,
        serial INTEGER NOT NULL,
        octets BLOB NOT NULL,
        PRIMARY KEY (broker, serial)
    ) STRICT, WITHOUT ROWID;
";

/// The ledger in one file.
pub struct LedgerFile {
    db: Connection,
}

impl core::fmt::Debug for LedgerFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("LedgerFile(…)")
    }
}

/// What a statement comes to, as the operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedStatement {
    /// Number of receipts.
    pub lines: usize,
    /// Sum of the receipts.
    pub totals: Totals,
    /// Receipts that this operator has, and the statement has not.
    pub missing: usize,
}

impl LedgerFile {
    /// Opens the file, or creates it. Errors: one sentence.
    pub fn open(path: &Path) -> Result<Self, String> {
        let failed = |e: rusqlite::Error| format!("the ledger {} cannot be opened: {e}", path.display());
        let mut db = Connection::open(path).map_err(failed)?;
        db.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        db.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
        let tx = db.transaction().map_err(failed)?;
        let id: i64 = tx.pragma_query_value(None, "application_id", |r| r.get(0)).map_err(failed)?;
        match id {
            0 => {
                tx.execute_batch(LAYOUT).map_err(failed)?;
                tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
            }
            APPLICATION_ID => {}
            _ => return Err(format!("{} is no operator's ledger", path.display())),
        }
        tx.commit().map_err(failed)?;
        Ok(Self { db })
    }

    fn change(
        &mut self,
        f: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), String> {
        let failed = |e: rusqlite::Error| format!("the ledger cannot be written: {e}");
        let tx = self.db.transaction().map_err(failed)?;
        f(&tx).map_err(failed)?;
        tx.commit().map_err(failed)
    }

    /// Keeps a grant.
    pub fn keep_grant(&mut self, grant: &SignedGrant) -> Result<(), String> {
        self.change(|tx| {
            let row = params![grant.grant.pseudonym.0, grant.to_octets()];
            tx.execute("INSERT OR REPLACE INTO granted VALUES (?1, ?2)", row).map(drop)
        })
    }

    /// Keeps reports before they are sent.
    pub fn keep_reports(&mut self, reports: &[SignedReport]) -> Result<(), String> {
        self.change(|tx| {
            let mut insert = tx.prepare_cached("INSERT OR REPLACE INTO report VALUES (?1, ?2)")?;
            for report in reports {
                let octets = report.to_octets();
                insert.execute(params![hash(&octets), octets])?;
            }
            Ok(())
        })
    }

    /// Keeps receipts of a broker.
    pub fn keep_receipts(&mut self, receipts: &[SignedReceipt]) -> Result<(), String> {
        self.change(|tx| {
            let mut insert = tx.prepare_cached("INSERT OR REPLACE INTO receipt VALUES (?1, ?2, ?3)")?;
            for signed in receipts {
                let of = &signed.receipt;
                let (broker, serial) = (of.broker.as_str(), of.serial.cast_signed());
                insert.execute(params![broker, serial, signed.to_octets()])?;
            }
            Ok(())
        })
    }

    /// The number of a broker's last receipt; 0: there is none.
    pub fn last_receipt(&self, broker: &Domain) -> Result<u64, String> {
        let sql = "SELECT coalesce(max(serial), 0) FROM receipt WHERE broker = ?1";
        let last = self.db.query_row(sql, [broker.as_str()], |r| r.get::<_, i64>(0));
        last.map(i64::cast_unsigned).map_err(|e| format!("the ledger cannot be read: {e}"))
    }

    /// The receipts of a broker, ascending.
    pub fn receipts(&self, broker: &Domain) -> Result<Vec<SignedReceipt>, String> {
        let failed = |e: rusqlite::Error| format!("the ledger cannot be read: {e}");
        let sql = "SELECT octets FROM receipt WHERE broker = ?1 ORDER BY serial";
        let mut found = self.db.prepare(sql).map_err(failed)?;
        let rows = found.query_map([broker.as_str()], |r| r.get::<_, Vec<u8>>(0)).map_err(failed)?;
        rows.map(|octets| {
            SignedReceipt::parse(&octets.map_err(failed)?).map_err(|e| format!("the ledger is damaged: {e}"))
        })
        .collect()
    }

    fn octets(&self, sql: &str, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let found = self.db.prepare_cached(sql).and_then(|mut q| q.query_row([key], |r| r.get(0)).optional());
        found.map_err(|e| format!("the ledger cannot be read: {e}"))
    }

    /// The report that has this hash.
    pub fn report(&self, hash: &[u8; 32]) -> Result<Option<Report>, String> {
        let octets = self.octets("SELECT octets FROM report WHERE hash = ?1", hash)?;
        Ok(octets.and_then(|o| SignedReport::parse(&o).ok()).map(|r| r.report))
    }

    /// The price of a session.
    fn price(&self, pseudonym: Pseudonym) -> Result<Option<Price>, String> {
        let octets = self.octets("SELECT octets FROM granted WHERE pseudonym = ?1", &pseudonym.0)?;
        Ok(octets.and_then(|o| SignedGrant::parse(&o).ok()).map(|g| g.grant.terms.price))
    }

    /// Checks a statement, whose signatures the caller has verified, against what this operator has sent and received: each receipt is
    /// for a report of its own, with the octets of that report and the amount of the granted price. Errors: one sentence that names the
    /// first line that is wrong.
    pub fn check(&self, statement: &Statement) -> Result<CheckedStatement, String> {
        let own = self.receipts(&statement.broker)?;
        let first = statement.lines.first().map_or(u64::MAX, |l| l.receipt.serial);
        let mut check = ReceiptCheck::default();
        // Those before the statement say what was claimed and paid of its sessions before.
        let earlier = own.iter().take_while(|r| r.receipt.serial < first);
        for line in earlier.chain(&statement.lines) {
            let receipt = &line.receipt;
            let report = self.report(&receipt.report)?;
            let price = self.price(receipt.pseudonym)?;
            let price =
                price.ok_or_else(|| format!("receipt {}: no grant of that session", receipt.serial))?;
            check.take(receipt, report.as_ref(), &price).map_err(|e| e.to_string())?;
        }
        let last = statement.lines.last().map_or(0, |l| l.receipt.serial);
        let missing = own.iter().filter(|r| r.receipt.serial > last).count();
        Ok(CheckedStatement { lines: statement.lines.len(), totals: statement.totals, missing })
    }
}
