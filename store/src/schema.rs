//! The layout of the subscribers' file, and how a connection to it is opened.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};

use crate::documents;
use crate::error::{StoreError, of_file, of_sqlite};
use crate::seal::Sealer;

/// How long an operation waits for another process's transaction: longer than an import of 100,000 takes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a process that needs the file for itself waits for the others: a command's transaction, not the core's life.
const ALONE_TIMEOUT: Duration = Duration::from_millis(500);
/// Pages of the file kept in memory, in KiB: those that an import of 100,000 touches, taken only as they are used.
const CACHE_KIB: i64 = 32_768;
/// Marks the file as ours in its header (`WBRL`).
const APPLICATION_ID: i64 = 0x5742_524c;
/// The layout that this version writes.
pub(crate) const VERSION: i64 = 2;
/// Statements kept compiled: as many as there are in this crate.
const STATEMENTS: usize = 48;

/// Layout 2. A subscription is stored once for all subscribers that have it, and its `id` is never used again. `change`
/// is the log from which other processes learn what to read again; a `supi` of NULL means everything, and `at` is the time in microseconds since
/// 1970. Programs that know no `at` leave it out and do not see it, so it needs no layout of its own.
const LAYOUT: &str = "
    CREATE TABLE key_check (sealed BLOB NOT NULL) STRICT;
    CREATE TABLE subscription (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        content TEXT NOT NULL UNIQUE
    ) STRICT;
    CREATE TABLE subscriber (
        supi TEXT PRIMARY KEY,
        msisdn TEXT UNIQUE,
        status TEXT NOT NULL,
        algorithm TEXT NOT NULL,
        auth TEXT NOT NULL,
        amf BLOB NOT NULL,
        sqn_offset INTEGER NOT NULL,
        keys BLOB NOT NULL,
        subscription INTEGER NOT NULL REFERENCES subscription (id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX subscriber_subscription ON subscriber (subscription);
    CREATE TABLE change (
        generation INTEGER PRIMARY KEY AUTOINCREMENT,
        supi TEXT,
        at INTEGER
    ) STRICT;
";

/// How one layout becomes the next one, and back.
struct LayoutStep {
    up: &'static str,
    down: &'static str,
    /// Counts the subscribers that the former layout cannot hold.
    lost: &'static str,
    /// What they have that it cannot hold.
    what: &'static str,
}

/// The steps in order, from layout 1 on. Layout 1 had no method of authentication and no TUAK: there were 5G-AKA and Milenage alone.
const STEPS: [LayoutStep; VERSION as usize - 1] = [LayoutStep {
    up: "ALTER TABLE subscriber ADD COLUMN auth TEXT NOT NULL DEFAULT '5g-aka'",
    down: "ALTER TABLE subscriber DROP COLUMN auth",
    lost: "SELECT count(*) FROM subscriber WHERE auth <> '5g-aka' OR algorithm <> 'milenage'",
    what: "EAP-AKA' or TUAK",
}];

/// What the key check seals, under its own name.
pub(crate) const KEY_CHECK: (&[u8], [u8; 8]) = (b"whimbrel key check", *b"whimbrel");

/// Opens the file, creating it and its key where there is none.
pub(crate) fn open(path: &Path, key_file: &Path) -> Result<(Connection, Sealer), StoreError> {
    let empty = create_private(path)?;
    let sealer = Sealer::open(key_file, empty, path)?;
    let failed = |e| of_sqlite(path, e);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags).map_err(failed)?;
    configure(&db).map_err(failed)?;
    match layout(&db).map_err(failed)? {
        (APPLICATION_ID, VERSION) => {}
        (APPLICATION_ID, 1..VERSION) => migrate(&mut db).map_err(failed)?,
        (APPLICATION_ID, version) => return Err(StoreError::Newer { path: path.to_owned(), version }),
        (0, 0) => create(&mut db, &sealer, path)?,
        _ => return Err(StoreError::Corrupt { path: path.to_owned() }),
    }
    add_time_of_change(&mut db).map_err(failed)?;
    documents::make_tables(&mut db).map_err(failed)?;
    let check = db.query_row("SELECT sealed FROM key_check", [], |r| r.get::<_, Vec<u8>>(0)).optional();
    let check = check.map_err(failed)?.ok_or_else(|| StoreError::Corrupt { path: path.to_owned() })?;
    match sealer.open_sealed::<8>(KEY_CHECK.0, &check) {
        Some(plain) if *plain == KEY_CHECK.1 => Ok((db, sealer)),
        _ => Err(StoreError::WrongKeyFile { key_file: key_file.to_owned(), path: path.to_owned() }),
    }
}

/// Makes sure that the file exists with mode 0600; returns whether it is empty.
pub(crate) fn create_private(path: &Path) -> Result<bool, StoreError> {
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let meta = file.and_then(|f| f.metadata()).map_err(|e| of_file(path, e))?;
    if meta.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(|e| of_file(path, e))?;
    }
    Ok(meta.len() == 0)
}

fn configure(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // FULL: what was acknowledged survives a power failure. Edits are rare; imports are one commit.
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "trusted_schema", false)?;
    // Overwrite what is deleted: removed subscribers' records are gone from the file.
    db.pragma_update(None, "secure_delete", true)
}

fn layout(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let pragma = |name| db.pragma_query_value(None, name, |r| r.get(0));
    Ok((pragma("application_id")?, pragma("user_version")?))
}

/// Brings a former layout to this one, unless another process did so meanwhile.
fn migrate(db: &mut Connection) -> rusqlite::Result<()> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if let (APPLICATION_ID, from @ 1..VERSION) = layout(&tx)? {
        for step in STEPS.iter().skip(from as usize - 1) {
            tx.execute_batch(step.up)?;
        }
        tx.pragma_update(None, "user_version", VERSION)?;
    }
    tx.commit()
}

/// Gives the log of changes its times, if a program that knew none has made the file.
fn add_time_of_change(db: &mut Connection) -> rusqlite::Result<()> {
    let has_time = |db: &Connection| {
        db.query_row("SELECT count(*) FROM pragma_table_info('change') WHERE name = 'at'", [], |row| {
            row.get::<_, bool>(0)
        })
    };
    if has_time(db)? {
        return Ok(());
    }
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !has_time(&tx)? {
        tx.execute_batch("ALTER TABLE change ADD COLUMN at INTEGER")?;
    }
    tx.commit()
}

/// Brings the file from this layout to the one before, for a return to the release that wrote that. No other process may have it open.
/// Returns the layout that it has now.
///
/// Errors: [`StoreError::Locked`]; [`StoreError::NotInPreviousLayout`] if a subscriber would lose something.
pub(crate) fn downgrade(path: &Path) -> Result<i64, StoreError> {
    let failed = |e| of_sqlite(path, e);
    let mut db = open_existing(path)?;
    alone(&db).map_err(failed)?;
    match layout(&db).map_err(failed)? {
        (APPLICATION_ID, VERSION) => {}
        (APPLICATION_ID, version) if version > VERSION => {
            return Err(StoreError::Newer { path: path.to_owned(), version });
        }
        (APPLICATION_ID, version) => return Ok(version),
        _ => return Err(StoreError::Corrupt { path: path.to_owned() }),
    }
    let [.., step] = &STEPS;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let subscribers: i64 = tx.query_row(step.lost, [], |r| r.get(0)).map_err(failed)?;
    if subscribers > 0 {
        return Err(StoreError::NotInPreviousLayout {
            subscribers: subscribers.unsigned_abs(),
            what: step.what,
        });
    }
    tx.execute_batch(step.down).map_err(failed)?;
    tx.pragma_update(None, "user_version", VERSION - 1).map_err(failed)?;
    tx.commit().map_err(failed)?;
    Ok(VERSION - 1)
}

/// Writes the WAL back into the file and removes it, which SQLite does only if no other connection is open: so the file can be moved.
///
/// Errors: [`StoreError::Locked`] while another process has the file open.
pub(crate) fn release(path: &Path) -> Result<(), StoreError> {
    alone(&open_existing(path)?).map_err(|e| of_sqlite(path, e))
}

fn open_existing(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|e| of_sqlite(path, e))
}

/// Leaves WAL mode: fails as locked while another connection is open.
fn alone(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(ALONE_TIMEOUT)?;
    db.pragma_update(None, "journal_mode", "DELETE")
}

/// Creates the layout, unless another process did so meanwhile.
fn create(db: &mut Connection, sealer: &Sealer, path: &Path) -> Result<(), StoreError> {
    let sealed = sealer.seal(KEY_CHECK.0, KEY_CHECK.1)?;
    let build = |db: &mut Connection| {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if layout(&tx)? == (0, 0) {
            tx.execute_batch(LAYOUT)?;
            tx.execute("INSERT INTO key_check VALUES (?1)", [&sealed])?;
            tx.pragma_update(None, "application_id", APPLICATION_ID)?;
            tx.pragma_update(None, "user_version", VERSION)?;
        }
        tx.commit()
    };
    build(db).map_err(|e| of_sqlite(path, e))
}
