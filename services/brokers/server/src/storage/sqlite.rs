//! The embedded database: one SQLite file in WAL mode, readable by its owner alone.

use core::time::Duration;
use std::fs::{self, OpenOptions};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior, params,
};
use whimbrel_ids::Instant;
use whimbrel_open::broker::{ANSWER_KEPT, AnswerRecord, HomeRecord, HomeUser, Record, User};
use whimbrel_open::crypto::{PrivateKey, VerifyingKey};
use whimbrel_open::id::{OperatorId, UserId};
use whimbrel_open::msg::{AnswerKey, Filter, OperatorOrders, Qos};
use whimbrel_security::Sqn;
use zeroize::Zeroizing;

use super::{
    Changes, Epoch, GRANT_KEPT_S, GivenGrant, KnownOperator, NamedHomeUser, NamedUser, Storage, StorageError,
    StoredBroker, UnstoredAnswer, UsimKeys,
};

/// "WhBr": a file of another program is refused.
const APPLICATION_ID: i64 = 0x5768_4272;
/// Version of the layout.
const VERSION: i64 = 2;
/// A command waits this long for the broker's commit, and the broker for a command's.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const LAYOUT: &str = "
    CREATE TABLE setting (name TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE user (
        id BLOB PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        key BLOB NOT NULL,
        revoked INTEGER NOT NULL,
        ul_kbps INTEGER NOT NULL,
        dl_kbps INTEGER NOT NULL,
        five_qi INTEGER NOT NULL,
        intercept INTEGER NOT NULL,
        filters TEXT NOT NULL,
        counter INTEGER NOT NULL,
        ticket INTEGER NOT NULL,
        generation INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX user_generation ON user (generation);
    CREATE TABLE operator (id TEXT PRIMARY KEY, allowed INTEGER NOT NULL, reputation INTEGER) STRICT, WITHOUT ROWID;
    CREATE TABLE epoch (
        ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
        id INTEGER NOT NULL UNIQUE,
        private BLOB NOT NULL,
        begun INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE answer (
        user BLOB PRIMARY KEY,
        counter INTEGER NOT NULL,
        key BLOB NOT NULL,
        given INTEGER NOT NULL,
        octets BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE granted (
        pseudonym BLOB PRIMARY KEY,
        user BLOB NOT NULL,
        operator TEXT NOT NULL,
        valid_from INTEGER NOT NULL,
        valid_until INTEGER NOT NULL,
        octets BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX granted_from ON granted (valid_from);
    INSERT INTO setting VALUES ('generation', 0);
";

/// What version 2 has beside version 1: users with a USIM. K and OPc are as secret as the epoch keys beside them: the file is its owner's.
const HOME_LAYOUT: &str = "
    CREATE TABLE home_user (
        supi TEXT PRIMARY KEY,
        id BLOB NOT NULL UNIQUE,
        name TEXT NOT NULL UNIQUE,
        k BLOB NOT NULL,
        opc BLOB NOT NULL,
        revoked INTEGER NOT NULL,
        ul_kbps INTEGER NOT NULL,
        dl_kbps INTEGER NOT NULL,
        five_qi INTEGER NOT NULL,
        sqn INTEGER NOT NULL,
        generation INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX home_user_generation ON home_user (generation);
    CREATE TABLE home_answer (
        operator TEXT NOT NULL,
        request BLOB NOT NULL,
        supi TEXT NOT NULL,
        user BLOB NOT NULL,
        sqn INTEGER NOT NULL,
        rand BLOB NOT NULL,
        confirmation BLOB,
        given INTEGER NOT NULL,
        octets BLOB NOT NULL,
        PRIMARY KEY (operator, request)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX home_answer_given ON home_answer (given);
";

const HOME_USER_COLUMNS: &str = "supi, id, name, k, opc, revoked, ul_kbps, dl_kbps, five_qi, sqn, generation";

const USER_COLUMNS: &str =
    "id, name, key, revoked, ul_kbps, dl_kbps, five_qi, intercept, filters, counter, ticket, generation";

/// A broker's database in one file. One thread uses it at a time; each process opens its own.
pub struct Sqlite {
    db: Connection,
    path: PathBuf,
    /// SQLite's count of other connections' commits, at the last look.
    data_version: i64,
    /// The newest generation of users that was seen.
    generation: i64,
}

impl core::fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Sqlite({})", self.path.display())
    }
}

impl Sqlite {
    /// Opens the file, or creates it with mode 0600.
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        let denied = |e| StorageError::Denied(path.to_owned(), e);
        let file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path).map_err(denied)?;
        if file.metadata().map_err(denied)?.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(denied)?;
        }
        let failed = |e| failed(path, e);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = open_configured(path, flags).map_err(failed)?;
        create(&mut db).map_err(failed)?;
        match layout(&db).map_err(failed)? {
            (APPLICATION_ID, VERSION) => {}
            (APPLICATION_ID, version) => return Err(StorageError::Newer(path.to_owned(), version)),
            _ => return Err(StorageError::Corrupt(path.to_owned())),
        }
        super::usage::create(&db).map_err(failed)?;
        Ok(Self { db, path: path.to_owned(), data_version: 0, generation: 0 })
    }

    pub(super) fn change<T>(
        &mut self,
        f: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StorageError> {
        let failed = |e| failed(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        let done = f(&tx).map_err(failed)?;
        tx.commit().map_err(failed)?;
        Ok(done)
    }

    pub(super) fn read<T>(
        &self,
        f: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StorageError> {
        f(&self.db).map_err(|e| failed(&self.path, e))
    }

    fn setting<const N: usize>(&mut self, name: &str) -> Result<[u8; N], StorageError> {
        let found: Option<Vec<u8>> = self.read(|db| {
            db.query_row("SELECT value FROM setting WHERE name = ?1", [name], |r| r.get(0)).optional()
        })?;
        match found {
            Some(octets) => octets.try_into().map_err(|_| StorageError::Corrupt(self.path.clone())),
            None => {
                let made = whimbrel_broker_client::random::<N>().map_err(StorageError::NoRandomness)?;
                self.change(|tx| tx.execute("INSERT INTO setting VALUES (?1, ?2)", params![name, made]))?;
                Ok(made)
            }
        }
    }

    fn newest(&self) -> Result<(i64, i64), StorageError> {
        self.read(|db| {
            let version = db.prepare_cached("PRAGMA data_version")?.query_row([], |r| r.get(0))?;
            let generation = db
                .prepare_cached("SELECT value FROM setting WHERE name = 'generation'")?
                .query_row([], |r| r.get(0))?;
            Ok((version, generation))
        })
    }

    fn users_after(&self, generation: i64) -> Result<Vec<NamedUser>, StorageError> {
        self.read(|db| {
            let sql = format!("SELECT {USER_COLUMNS} FROM user WHERE generation > ?1");
            db.prepare_cached(&sql)?.query_map([generation], user_of)?.collect()
        })
    }

    fn home_users_after(&self, generation: i64) -> Result<Vec<NamedHomeUser>, StorageError> {
        self.read(|db| {
            let sql =
                format!("SELECT {HOME_USER_COLUMNS} FROM home_user WHERE generation > ?1 ORDER BY name");
            db.prepare_cached(&sql)?.query_map([generation], home_user_of)?.collect()
        })
    }

    /// What was answered since then, oldest first.
    fn home_answers(&self, since: i64) -> Result<Vec<HomeRecord>, StorageError> {
        self.read(|db| {
            let sql = "SELECT operator, request, supi, user, sqn, rand, confirmation, given, octets FROM home_answer \
                       WHERE given >= ?1 ORDER BY given";
            db.prepare(sql)?.query_map([since], home_record_of)?.collect()
        })
    }

    fn is_changed(&mut self, changed: usize, otherwise: StorageError) -> Result<(), StorageError> {
        if changed == 0 { Err(otherwise) } else { Ok(()) }
    }
}

fn failed(path: &Path, e: rusqlite::Error) -> StorageError {
    StorageError::of_sqlite(path, e)
}

impl StorageError {
    /// What SQLite says of the file at `path`.
    pub(crate) fn of_sqlite(path: &Path, e: rusqlite::Error) -> Self {
        match e.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt(path.to_owned()),
            _ => Self::Sqlite(path.to_owned(), e),
        }
    }
}

/// A connection that loses nothing in a power failure, and leaves nothing of what was deleted.
pub(crate) fn open_configured(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, flags)?;
    configure(&db)?;
    Ok(db)
}

fn configure(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.set_prepared_statement_cache_capacity(32);
    db.pragma_update(None, "journal_mode", "WAL")?;
    // FULL: a counter that was used stays used after a power failure.
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "trusted_schema", false)?;
    // The private key of an epoch that has ended is overwritten.
    db.pragma_update(None, "secure_delete", true)
}

fn layout(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let pragma = |name| db.pragma_query_value(None, name, |r| r.get(0));
    Ok((pragma("application_id")?, pragma("user_version")?))
}

fn create(db: &mut Connection) -> rusqlite::Result<()> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = layout(&tx)?;
    if found == (0, 0) {
        tx.execute_batch(LAYOUT)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    if matches!(found, (0, 0) | (APPLICATION_ID, 1)) {
        tx.execute_batch(HOME_LAYOUT)?;
        tx.pragma_update(None, "user_version", VERSION)?;
    }
    tx.commit()
}

/// The next generation, by which the running broker notices a change of users.
fn next_generation(tx: &Transaction<'_>) -> rusqlite::Result<i64> {
    tx.query_row("UPDATE setting SET value = value + 1 WHERE name = 'generation' RETURNING value", [], |r| {
        r.get(0)
    })
}

/// A column of exactly `N` octets.
pub(crate) fn octets<const N: usize>(row: &Row<'_>, column: usize) -> rusqlite::Result<[u8; N]> {
    let octets: Vec<u8> = row.get(column)?;
    octets.try_into().map_err(|_| damaged(column))
}

pub(super) fn damaged(column: usize) -> rusqlite::Error {
    let what = "the value is not of the form that this program writes".into();
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Blob, what)
}

fn user_of(row: &Row<'_>) -> rusqlite::Result<NamedUser> {
    let filters: String = row.get(8)?;
    let filters: Option<Vec<Filter>> = filters.split_whitespace().map(filter_of).collect();
    let user = User {
        key: VerifyingKey::from_octets(octets(row, 2)?).ok_or_else(|| damaged(2))?,
        revoked: row.get(3)?,
        qos: Qos { ul_kbps: row.get(4)?, dl_kbps: row.get(5)?, five_qi: row.get(6)? },
        intercept: row.get(7)?,
        filters: filters.filter(|f| f.len() <= OperatorOrders::FILTERS_MAX).ok_or_else(|| damaged(8))?,
        counter: row.get::<_, i64>(9)?.cast_unsigned(),
        ticket: row.get::<_, i64>(10)?.cast_unsigned(),
    };
    Ok(NamedUser { id: UserId(octets(row, 0)?), name: row.get(1)?, user })
}

fn home_user_of(row: &Row<'_>) -> rusqlite::Result<NamedHomeUser> {
    let supi: String = row.get(0)?;
    let keys = UsimKeys { k: octets(row, 3)?, opc: octets(row, 4)? };
    let user = HomeUser {
        user: UserId(octets(row, 1)?),
        functions: keys.functions(),
        revoked: row.get(5)?,
        qos: Qos { ul_kbps: row.get(6)?, dl_kbps: row.get(7)?, five_qi: row.get(8)? },
        intercept: false,
        filters: Vec::new(),
        sqn: sqn(row, 9)?,
    };
    Ok(NamedHomeUser { name: row.get(2)?, supi: supi.parse().map_err(|_| damaged(0))?, keys, user })
}

fn home_record_of(row: &Row<'_>) -> rusqlite::Result<HomeRecord> {
    let (operator, supi): (String, String) = (row.get(0)?, row.get(2)?);
    let confirmation: Option<Vec<u8>> = row.get(6)?;
    Ok(HomeRecord {
        operator: operator.parse().map_err(|_| damaged(0))?,
        request: octets(row, 1)?,
        supi: supi.parse().map_err(|_| damaged(2))?,
        user: UserId(octets(row, 3)?),
        sqn: sqn(row, 4)?,
        rand: octets(row, 5)?,
        confirmation: confirmation.map(|c| c.try_into().map_err(|_| damaged(6))).transpose()?,
        given: Instant(row.get::<_, i64>(7)?.cast_unsigned()),
        octets: row.get(8)?,
    })
}

fn sqn(row: &Row<'_>, column: usize) -> rusqlite::Result<Sqn> {
    Ok(Sqn::from_value(row.get::<_, i64>(column)?.cast_unsigned()))
}

/// `192.0.2.0/24`.
fn filter_of(text: &str) -> Option<Filter> {
    let (address, prefix) = text.split_once('/')?;
    Filter::new(address.parse::<IpAddr>().ok()?, prefix.parse().ok()?)
}

fn operator_of(row: &Row<'_>) -> rusqlite::Result<KnownOperator> {
    let id: String = row.get(0)?;
    let id = id.parse().map_err(|_| damaged(0))?;
    Ok(KnownOperator { id, allowed: row.get(1)?, reputation: row.get(2)? })
}

impl Storage for Sqlite {
    fn load(&mut self, now: Instant) -> Result<StoredBroker, StorageError> {
        let ticket_key = self.setting("ticket key")?;
        if self.epochs()?.is_empty() {
            let key = whimbrel_broker_client::random::<32>().map_err(StorageError::NoRandomness)?;
            self.begin_epoch(PrivateKey::new(key), now)?;
        }
        (self.data_version, self.generation) = self.newest()?;
        let since = Instant(now.0.saturating_sub(ANSWER_KEPT.as_micros() as u64));
        let mut answers: Vec<Record> = self.read(|db| {
            let sql = "SELECT user, counter, key, given, octets FROM answer WHERE given >= ?1 ORDER BY given";
            let record = |row: &Row<'_>| {
                Ok(Record::Attach(AnswerRecord {
                    user: UserId(octets(row, 0)?),
                    counter: row.get::<_, i64>(1)?.cast_unsigned(),
                    key: AnswerKey(octets(row, 2)?),
                    given: Instant(row.get::<_, i64>(3)?.cast_unsigned()),
                    octets: row.get(4)?,
                }))
            };
            db.prepare(sql)?.query_map([since.0.cast_signed()], record)?.collect()
        })?;
        answers.extend(self.home_answers(since.0.cast_signed())?.into_iter().map(Record::Home));
        let (epochs, operators) = (self.epochs()?, self.operators()?);
        let (users, home_users) = (self.users_after(-1)?, self.home_users_after(-1)?);
        Ok(StoredBroker { ticket_key, epochs, users, home_users, operators, answers })
    }

    fn changes(&mut self) -> Result<Option<Changes>, StorageError> {
        let (version, generation) = self.newest()?;
        if version == self.data_version {
            return Ok(None);
        }
        let users = self.users_after(self.generation)?;
        let home_users = self.home_users_after(self.generation)?;
        (self.data_version, self.generation) = (version, generation);
        Ok(Some(Changes { users, home_users, operators: self.operators()?, epochs: self.epochs()? }))
    }

    fn commit(&mut self, batch: &[UnstoredAnswer]) -> Result<(), StorageError> {
        self.change(|tx| {
            let mut user = tx.prepare_cached(
                "UPDATE user SET counter = max(counter, ?2), ticket = max(ticket, ?3) WHERE id = ?1",
            )?;
            let mut answer =
                tx.prepare_cached("INSERT OR REPLACE INTO answer VALUES (?1, ?2, ?3, ?4, ?5)")?;
            let mut granted = tx.prepare_cached("INSERT INTO granted VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
            let mut home_user =
                tx.prepare_cached("UPDATE home_user SET sqn = max(sqn, ?2) WHERE supi = ?1")?;
            let mut home_answer = tx.prepare_cached(
                "INSERT OR REPLACE INTO home_answer VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?;
            for UnstoredAnswer { record, ticket, grant } in batch {
                let id = match record {
                    Record::Attach(r) => {
                        let (id, counter) = (r.user.0, r.counter.cast_signed());
                        user.execute(params![id, counter, ticket.cast_signed()])?;
                        let given = r.given.0.cast_signed();
                        answer.execute(params![id, counter, r.key.0, given, r.octets])?;
                        id
                    }
                    Record::Home(r) => {
                        let (supi, sqn) = (r.supi.value(), r.sqn.value().cast_signed());
                        home_user.execute(params![supi, sqn])?;
                        let (operator, given) = (r.operator.to_string(), r.given.0.cast_signed());
                        home_answer.execute(params![
                            operator,
                            r.request,
                            supi,
                            r.user.0,
                            sqn,
                            r.rand,
                            r.confirmation,
                            given,
                            r.octets
                        ])?;
                        r.user.0
                    }
                };
                if let Some(g) = grant {
                    let (from, until) = (g.validity.from.cast_signed(), g.validity.until.cast_signed());
                    let operator = g.operator.to_string();
                    granted.execute(params![g.pseudonym.0, id, operator, from, until, g.to_octets()])?;
                }
            }
            Ok(())
        })
    }

    fn tidy(&mut self, now: Instant) -> Result<(), StorageError> {
        let answers = now.0.saturating_sub(ANSWER_KEPT.as_micros() as u64).cast_signed();
        let grants = now.as_secs().saturating_sub(GRANT_KEPT_S).cast_signed();
        self.change(|tx| {
            tx.execute("DELETE FROM answer WHERE given < ?1", [answers])?;
            tx.execute("DELETE FROM home_answer WHERE given < ?1", [answers])?;
            tx.execute("DELETE FROM granted WHERE valid_until < ?1", [grants])
        })?;
        Ok(())
    }

    fn add_users(&mut self, users: &[NamedUser]) -> Result<(), StorageError> {
        let mut at = 0;
        let added = self.change(|tx| {
            let generation = next_generation(tx)?;
            let sql =
                format!("INSERT INTO user ({USER_COLUMNS}) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)");
            let mut insert = tx.prepare(&sql)?;
            let mut taken = tx.prepare("SELECT EXISTS (SELECT 1 FROM home_user WHERE name = ?1)")?;
            for (i, NamedUser { name, id, user }) in users.iter().enumerate() {
                at = i;
                if taken.query_row([name], |r| r.get(0))? {
                    let constraint = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CONSTRAINT);
                    return Err(rusqlite::Error::SqliteFailure(constraint, None));
                }
                let filters: Vec<String> =
                    user.filters.iter().map(|f| format!("{}/{}", f.address(), f.prefix())).collect();
                let Qos { ul_kbps, dl_kbps, five_qi } = user.qos;
                insert.execute(params![
                    id.0,
                    name,
                    user.key.octets(),
                    user.revoked,
                    ul_kbps,
                    dl_kbps,
                    five_qi,
                    user.intercept,
                    filters.join(" "),
                    user.counter.cast_signed(),
                    user.ticket.cast_signed(),
                    generation,
                ])?;
            }
            Ok(())
        });
        match added {
            Err(StorageError::Sqlite(_, e))
                if e.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) =>
            {
                Err(StorageError::UserExists(users.get(at).map(|u| u.name.clone()).unwrap_or_default()))
            }
            added => added,
        }
    }

    fn list_users(&mut self, after: &str, limit: usize) -> Result<Vec<NamedUser>, StorageError> {
        self.read(|db| {
            let sql = format!("SELECT {USER_COLUMNS} FROM user WHERE name > ?1 ORDER BY name LIMIT ?2");
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            db.prepare_cached(&sql)?.query_map(params![after, limit], user_of)?.collect()
        })
    }

    fn user(&mut self, name: &str) -> Result<NamedUser, StorageError> {
        let found = self.read(|db| {
            let sql = format!("SELECT {USER_COLUMNS} FROM user WHERE name = ?1");
            db.prepare_cached(&sql)?.query_row([name], user_of).optional()
        })?;
        found.ok_or_else(|| StorageError::UnknownUser(name.into()))
    }

    fn add_home_user(&mut self, new: &NamedHomeUser) -> Result<(), StorageError> {
        let added = self.change(|tx| {
            let taken: bool =
                tx.query_row("SELECT EXISTS (SELECT 1 FROM user WHERE name = ?1)", [&new.name], |r| {
                    r.get(0)
                })?;
            if taken {
                return Ok(false);
            }
            let generation = next_generation(tx)?;
            let sql = format!(
                "INSERT INTO home_user ({HOME_USER_COLUMNS}) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)"
            );
            let NamedHomeUser { name, supi, keys, user } = new;
            let Qos { ul_kbps, dl_kbps, five_qi } = user.qos;
            let sqn = user.sqn.value().cast_signed();
            tx.prepare(&sql)?.execute(params![
                supi.value(),
                user.user.0,
                name,
                keys.k,
                keys.opc,
                user.revoked,
                ul_kbps,
                dl_kbps,
                five_qi,
                sqn,
                generation,
            ])?;
            Ok(true)
        });
        match added {
            Ok(true) => Ok(()),
            Ok(false) => Err(StorageError::UserExists(new.name.clone())),
            Err(StorageError::Sqlite(_, e))
                if e.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) =>
            {
                Err(StorageError::UserExists(new.name.clone()))
            }
            Err(e) => Err(e),
        }
    }

    fn home_users(&mut self) -> Result<Vec<NamedHomeUser>, StorageError> {
        self.home_users_after(-1)
    }

    fn revoke_user(&mut self, name: &str) -> Result<(), StorageError> {
        let changed = self.change(|tx| {
            let generation = next_generation(tx)?;
            let of = |table: &str| {
                let sql = format!("UPDATE {table} SET revoked = 1, generation = ?2 WHERE name = ?1");
                tx.execute(&sql, params![name, generation])
            };
            Ok(of("user")? + of("home_user")?)
        })?;
        self.is_changed(changed, StorageError::UnknownUser(name.into()))
    }

    fn set_operator(&mut self, operator: KnownOperator) -> Result<(), StorageError> {
        let KnownOperator { id, allowed, reputation } = operator;
        let row = params![id.to_string(), allowed, reputation];
        self.change(|tx| tx.execute("INSERT OR REPLACE INTO operator VALUES (?1, ?2, ?3)", row)).map(|_| ())
    }

    fn remove_operator(&mut self, id: OperatorId) -> Result<(), StorageError> {
        let changed = self.change(|tx| tx.execute("DELETE FROM operator WHERE id = ?1", [id.to_string()]))?;
        self.is_changed(changed, StorageError::UnknownOperator(id))
    }

    fn operators(&mut self) -> Result<Vec<KnownOperator>, StorageError> {
        self.read(|db| {
            let sql = "SELECT id, allowed, reputation FROM operator ORDER BY id";
            db.prepare_cached(sql)?.query_map([], operator_of)?.collect()
        })
    }

    fn epochs(&mut self) -> Result<Vec<Epoch>, StorageError> {
        self.read(|db| {
            let epoch = |row: &Row<'_>| {
                let key = Zeroizing::new(octets(row, 1)?);
                let begun_s = row.get::<_, i64>(2)?.cast_unsigned();
                Ok(Epoch { id: row.get(0)?, key: PrivateKey::new(*key), begun_s })
            };
            let sql = "SELECT id, private, begun FROM epoch ORDER BY ordinal";
            db.prepare_cached(sql)?.query_map([], epoch)?.collect()
        })
    }

    fn begin_epoch(&mut self, key: PrivateKey, now: Instant) -> Result<u8, StorageError> {
        let used = self.epochs()?;
        let last = used.last().map_or(0, |e| e.id);
        let free = (1..=256u16).map(|step| (u16::from(last) + step) as u8);
        let id =
            free.into_iter().find(|id| used.iter().all(|e| e.id != *id)).ok_or(StorageError::EpochsFull)?;
        let (octets, begun) = (Zeroizing::new(key.to_octets()), now.as_secs().cast_signed());
        self.change(|tx| {
            tx.execute(
                "INSERT INTO epoch (id, private, begun) VALUES (?1, ?2, ?3)",
                params![id, *octets, begun],
            )
        })?;
        Ok(id)
    }

    fn end_epoch(&mut self, id: u8) -> Result<(), StorageError> {
        if self.epochs()?.last().is_some_and(|e| e.id == id) {
            return Err(StorageError::CurrentEpoch(id));
        }
        let changed = self.change(|tx| tx.execute("DELETE FROM epoch WHERE id = ?1", [id]))?;
        // Also out of the write-ahead log, which would keep the key until it is written over.
        self.read(|db| db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())))?;
        self.is_changed(changed, StorageError::UnknownEpoch(id))
    }

    fn grants(&mut self, limit: usize) -> Result<Vec<GivenGrant>, StorageError> {
        self.read(|db| {
            let sql = "SELECT coalesce(user.name, home_user.name, '(removed)'), granted.operator, pseudonym, valid_from, valid_until \
                       FROM granted LEFT JOIN user ON user.id = granted.user LEFT JOIN home_user ON home_user.id = granted.user \
                       ORDER BY valid_from DESC LIMIT ?1";
            let grant = |row: &Row<'_>| {
                Ok(GivenGrant {
                    user: row.get(0)?,
                    operator: row.get(1)?,
                    pseudonym: octets(row, 2)?,
                    validity_s: (row.get::<_, i64>(3)?.cast_unsigned(), row.get::<_, i64>(4)?.cast_unsigned()),
                })
            };
            db.prepare_cached(sql)?.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], grant)?.collect()
        })
    }
}
