//! The layout of the file, and how a connection to it is opened.

use core::time::Duration;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::error::ChargingError;

/// Marks the file as ours in its header ("WhCh").
const APPLICATION_ID: i64 = 0x5768_4368;
/// Version of the layout.
const VERSION: i64 = 1;
/// A command waits this long for the function's commit, and the function for a command's.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long other connections may take to close.
const ALONE_TIMEOUT: Duration = Duration::from_secs(1);
/// Statements kept compiled: as many as there are in this crate.
const STATEMENTS: usize = 32;

/// A session that is closed is the record of it, and has its number. `usage` has the rating groups of a session; `number` there is the last
/// localSequenceNumber that was counted. Times are microseconds since 1970.
const LAYOUT: &str = "
    CREATE TABLE total (sessions INTEGER NOT NULL, accounts INTEGER NOT NULL, records INTEGER NOT NULL) STRICT;
    INSERT INTO total VALUES (0, 0, 0);
    CREATE TABLE account (
        supi TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        status TEXT NOT NULL,
        credited INTEGER NOT NULL,
        balance INTEGER NOT NULL,
        reserved INTEGER NOT NULL,
        used INTEGER NOT NULL,
        overdraft INTEGER NOT NULL,
        postpaid INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE credit (
        supi TEXT NOT NULL,
        reference TEXT NOT NULL,
        octets INTEGER NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (supi, reference)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX credit_at ON credit (at);
    CREATE TABLE session (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        resource TEXT NOT NULL UNIQUE,
        key TEXT,
        supi TEXT NOT NULL,
        consumer TEXT,
        charging_id INTEGER,
        pdu_session_id INTEGER,
        notify_uri TEXT,
        dnn TEXT,
        s_nssai TEXT,
        start INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        is_last INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        digest BLOB NOT NULL,
        answer TEXT NOT NULL,
        end INTEGER,
        cause TEXT,
        record INTEGER
    ) STRICT;
    CREATE UNIQUE INDEX session_open_key ON session (key) WHERE end IS NULL;
    CREATE INDEX session_key ON session (key);
    CREATE INDEX session_supi ON session (supi) WHERE end IS NULL;
    CREATE INDEX session_expires ON session (expires) WHERE end IS NULL;
    CREATE INDEX session_end ON session (end) WHERE end IS NOT NULL;
    CREATE UNIQUE INDEX session_record ON session (record) WHERE record IS NOT NULL;
    CREATE INDEX session_supi_record ON session (supi, record) WHERE record IS NOT NULL;
    CREATE TABLE usage (
        session INTEGER NOT NULL REFERENCES session (id) ON DELETE CASCADE,
        rating_group INTEGER NOT NULL,
        reserved INTEGER NOT NULL,
        number INTEGER NOT NULL,
        uplink INTEGER NOT NULL,
        downlink INTEGER NOT NULL,
        total INTEGER NOT NULL,
        time_s INTEGER NOT NULL,
        PRIMARY KEY (session, rating_group)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE notification (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session INTEGER NOT NULL REFERENCES session (id) ON DELETE CASCADE,
        abort INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX notification_session ON notification (session);
";

/// Opens the file, or creates it with mode 0600.
pub(crate) fn open(path: &Path) -> Result<Connection, ChargingError> {
    let denied = |e| ChargingError::Denied(path.to_owned(), e);
    let file =
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path).map_err(denied)?;
    if file.metadata().map_err(denied)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(denied)?;
    }
    let failed = |e| ChargingError::of_sqlite(path, e);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags).map_err(failed)?;
    configure(&db).map_err(failed)?;
    create(&mut db).map_err(failed)?;
    match layout(&db).map_err(failed)? {
        (APPLICATION_ID, VERSION) => Ok(db),
        (APPLICATION_ID, version) => Err(ChargingError::Newer(path.to_owned(), version)),
        _ => Err(ChargingError::Corrupt(path.to_owned())),
    }
}

/// Creates an empty file with mode 0600. Errors: there is one already.
pub(crate) fn create_private(path: &Path) -> Result<(), ChargingError> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.map(drop).map_err(|e| ChargingError::Denied(path.to_owned(), e))
}

/// Writes the WAL back into the file and removes it, which SQLite does only if no other connection is open.
pub(crate) fn release(path: &Path) -> Result<(), ChargingError> {
    let alone = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags)?;
        db.busy_timeout(ALONE_TIMEOUT)?;
        db.pragma_update(None, "journal_mode", "DELETE")
    };
    alone().map_err(|e: rusqlite::Error| ChargingError::of_sqlite(path, e))
}

fn configure(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    db.pragma_update(None, "journal_mode", "WAL")?;
    // FULL: usage that was confirmed stays charged after a power failure.
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "trusted_schema", false)
}

fn layout(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let pragma = |name| db.pragma_query_value(None, name, |r| r.get(0));
    Ok((pragma("application_id")?, pragma("user_version")?))
}

fn create(db: &mut Connection) -> rusqlite::Result<()> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let tables: i64 = tx.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
    if (layout(&tx)?, tables) == ((0, 0), 0) {
        tx.execute_batch(LAYOUT)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", VERSION)?;
    }
    tx.commit()
}
