//! What a broker of veiled users must not lose: one SQLite file beside that of the other users, readable by its owner alone.
//!
//! A token is spent by inserting its row, and only the first insertion counts: where several nodes share the file, the one that comes
//! second reads what the first has written.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use whimbrel_ids::{Instant, Supi};
use whimbrel_open::crypto::{PrivateKey, Signature};
use whimbrel_open::id::{Domain, UserId};
use whimbrel_open::msg::Validity;
use whimbrel_privacy::broker::{Answered, Counters, HomeAnswered, HomeUser, REPORT_WITHIN_S, Record, User};
use whimbrel_privacy::crypto::{SigningKey, VerifyingKey};
use whimbrel_privacy::log::{Cosignature, KeyEntry, KeyLog, TreeHead};
use whimbrel_privacy::msg::{Answer, AnswerBody, AnswerKey, Grant, Order, OrderAnswer};
use whimbrel_privacy::token::TokenHash;
use whimbrel_privacy::voprf::IssuerKey;
use whimbrel_security::Sqn;

use crate::storage::{StorageError, UsimKeys, octets_of, open_configured};

/// "WhVB": a file of another program is refused.
const APPLICATION_ID: i64 = 0x5768_5642;
/// Version of the layout.
const VERSION: i64 = 1;
/// How long answers are kept for their sessions' reports, in seconds beside [`REPORT_WITHIN_S`]: the longest grant.
const GRANT_S_MAX: u64 = 7 * 86_400;

const LAYOUT: &str = "
    CREATE TABLE epoch (id INTEGER PRIMARY KEY, private BLOB NOT NULL) STRICT;
    CREATE TABLE issuer (epoch INTEGER PRIMARY KEY, seed BLOB NOT NULL, entry BLOB NOT NULL) STRICT;
    CREATE TABLE cosignature (
        size INTEGER NOT NULL,
        witness BLOB NOT NULL,
        signature BLOB NOT NULL,
        PRIMARY KEY (size, witness)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE user (
        id BLOB PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        key BLOB NOT NULL,
        revoked INTEGER NOT NULL,
        class INTEGER NOT NULL,
        prepaid INTEGER NOT NULL,
        intercept INTEGER NOT NULL,
        highest INTEGER NOT NULL,
        used INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE issued (
        operator TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        request BLOB NOT NULL,
        ordinal INTEGER NOT NULL,
        PRIMARY KEY (operator, epoch, request)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE opened (
        token BLOB PRIMARY KEY,
        key BLOB NOT NULL,
        nonce BLOB NOT NULL,
        until INTEGER NOT NULL,
        kept_until INTEGER NOT NULL,
        octets BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE answered (
        key BLOB PRIMARY KEY,
        user BLOB NOT NULL,
        counter INTEGER NOT NULL,
        given INTEGER NOT NULL,
        octets BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE reported (
        session BLOB PRIMARY KEY,
        user BLOB NOT NULL,
        units INTEGER NOT NULL,
        nonce BLOB NOT NULL UNIQUE,
        report BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// Tables that a file may lack: they came later.
const ADDED: &str = "
    CREATE TABLE IF NOT EXISTS home_user (
        supi TEXT PRIMARY KEY,
        id BLOB NOT NULL UNIQUE,
        name TEXT NOT NULL UNIQUE,
        k BLOB NOT NULL,
        opc BLOB NOT NULL,
        revoked INTEGER NOT NULL,
        class INTEGER NOT NULL,
        prepaid INTEGER NOT NULL,
        intercept INTEGER NOT NULL,
        sqn INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS home_answered (
        key BLOB PRIMARY KEY,
        supi TEXT NOT NULL,
        user BLOB NOT NULL,
        sqn INTEGER NOT NULL,
        given INTEGER NOT NULL,
        octets BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS agency_order (
        hash BLOB PRIMARY KEY,
        octets BLOB NOT NULL,
        answer BLOB
    ) STRICT, WITHOUT ROWID;
";

/// A session of a user, as the agency names it in orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionName {
    /// H(the user's request), the session.
    pub session: [u8; 32],
    /// H(token), the session group.
    pub group: TokenHash,
    /// Until when its grant holds, in seconds since the Unix epoch.
    pub until_s: u64,
}

/// An order, and its answer if there is one, which only the agency can read.
pub type KeptOrder = (Order, Option<OrderAnswer>);

/// A user with a USIM, with the name under which the broker's staff know it.
#[derive(Clone, Debug)]
pub struct NamedHomeUser {
    /// The name, unique at this broker.
    pub name: String,
    /// IMSI of the user's USIM.
    pub supi: Supi,
    /// The keys of the USIM.
    pub keys: UsimKeys,
    /// The user as the machine has it.
    pub user: HomeUser,
}

/// A user with the name under which the broker's staff know it.
#[derive(Clone, Debug)]
pub struct NamedUser {
    /// The name, unique at this broker.
    pub name: String,
    /// The identity in requests.
    pub id: UserId,
    /// The user as the machine has it.
    pub user: User,
}

/// All that the broker needs to go on where it stopped.
#[derive(Debug)]
pub struct StoredVeilBroker {
    /// Keys to which users seal, oldest first; the last is the current one. Never empty.
    pub epochs: Vec<(u8, PrivateKey)>,
    /// Issuing keys with their entries of the log.
    pub issuers: Vec<(KeyEntry, IssuerKey)>,
    /// Witnesses' signatures over the log as it is.
    pub cosignatures: Vec<Cosignature>,
    /// All users with their names.
    pub users: Vec<NamedUser>,
    /// Users with a USIM.
    pub home_users: Vec<NamedHomeUser>,
    /// What was answered, oldest first.
    pub records: Vec<Record>,
    /// Orders that are not answered.
    pub orders: Vec<Order>,
}

/// A session that was reported, for bills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BilledSession {
    /// Name of the user.
    pub user: String,
    /// Number of sessions.
    pub sessions: u64,
    /// Units of 1,000,000 octets.
    pub units: u64,
}

/// The database. One thread uses it at a time; each process opens its own.
pub struct VeilStorage {
    db: Connection,
    path: PathBuf,
    /// As of the last look for changes of others.
    data_version: i64,
}

impl core::fmt::Debug for VeilStorage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "VeilStorage({})", self.path.display())
    }
}

impl VeilStorage {
    /// Opens the file, or creates it with mode 0600 and a first key to which users seal.
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        let denied = |e| StorageError::Denied(path.to_owned(), e);
        let file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path).map_err(denied)?;
        if file.metadata().map_err(denied)?.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(denied)?;
        }
        let failed = |e| StorageError::of_sqlite(path, e);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = open_configured(path, flags).map_err(failed)?;
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let pragma = |name| tx.pragma_query_value(None, name, |r| r.get::<_, i64>(0));
        match (pragma("application_id").map_err(failed)?, pragma("user_version").map_err(failed)?) {
            (0, 0) => {
                let key = whimbrel_broker_client::random::<32>().map_err(StorageError::NoRandomness)?;
                tx.execute_batch(LAYOUT).map_err(failed)?;
                tx.execute("INSERT INTO epoch VALUES (1, ?1)", params![key]).map_err(failed)?;
                tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
                tx.pragma_update(None, "user_version", VERSION).map_err(failed)?;
            }
            (APPLICATION_ID, VERSION) => {}
            (APPLICATION_ID, version) => return Err(StorageError::Newer(path.to_owned(), version)),
            _ => return Err(StorageError::Corrupt(path.to_owned())),
        }
        tx.execute_batch(ADDED).map_err(failed)?;
        tx.commit().map_err(failed)?;
        Ok(Self { db, path: path.to_owned(), data_version: 0 })
    }

    fn failed(&self, e: rusqlite::Error) -> StorageError {
        StorageError::of_sqlite(&self.path, e)
    }

    fn change<T>(
        &mut self,
        f: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StorageError> {
        let changed = (|| {
            let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate)?;
            let done = f(&tx)?;
            tx.commit()?;
            Ok(done)
        })();
        changed.map_err(|e| self.failed(e))
    }

    /// Reads everything that matters at `now`.
    pub fn load(&self, now: Instant) -> Result<StoredVeilBroker, StorageError> {
        self.read(now).map_err(|e| self.failed(e))
    }

    fn read(&self, now: Instant) -> rusqlite::Result<StoredVeilBroker> {
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let epochs = self
            .db
            .prepare("SELECT id, private FROM epoch ORDER BY id")?
            .query_map([], |r| Ok((r.get(0)?, PrivateKey::new(octets_of(r, 1)?))))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let issuers = self
            .db
            .prepare("SELECT seed, entry FROM issuer ORDER BY epoch")?
            .query_map([], issuer_of)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let cosignatures = self
            .db
            .prepare("SELECT witness, signature FROM cosignature WHERE size = ?1 ORDER BY witness")?
            .query_map([issuers.len() as i64], |r| {
                let witness = VerifyingKey::from_octets(octets_of(r, 0)?).ok_or_else(|| damaged(0))?;
                Ok(Cosignature { witness, signature: Signature(octets_of(r, 1)?) })
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let sql =
            "SELECT id, name, key, revoked, class, prepaid, intercept, highest, used FROM user ORDER BY name";
        let users = self.db.prepare(sql)?.query_map([], user_of)?.collect::<rusqlite::Result<Vec<_>>>()?;
        let home_users = self
            .db
            .prepare("SELECT supi, id, name, k, opc, revoked, class, prepaid, intercept, sqn FROM home_user ORDER BY name")?
            .query_map([], home_user_of)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let mut records = Vec::new();
        let mut issued = self.db.prepare("SELECT operator, epoch, request FROM issued ORDER BY ordinal")?;
        for record in issued.query_map([], |r| {
            let operator: String = r.get(0)?;
            let operator = operator.parse().map_err(|_| damaged(0))?;
            Ok(Record::Issued { operator, epoch: r.get(1)?, request: octets_of(r, 2)? })
        })? {
            records.push(record?);
        }
        let sql = "SELECT token, key, nonce, until, kept_until, octets FROM opened WHERE kept_until >= ?1";
        let mut opened = self.db.prepare(sql)?;
        for record in opened.query_map([now_s], opened_of)? {
            records.push(record?);
        }
        let mut answered =
            self.db.prepare("SELECT key, user, counter, given, octets FROM answered ORDER BY given")?;
        for record in answered.query_map([], |r| {
            Ok(Record::Answered(Answered {
                key: AnswerKey(octets_of(r, 0)?),
                user: UserId(octets_of(r, 1)?),
                counter: r.get::<_, i64>(2)?.cast_unsigned(),
                given_s: r.get::<_, i64>(3)?.cast_unsigned(),
                octets: r.get(4)?,
            }))
        })? {
            records.push(record?);
        }
        let sql = "SELECT key, supi, user, sqn, given, octets FROM home_answered ORDER BY given";
        for record in self.db.prepare(sql)?.query_map([], |r| {
            Ok(Record::Home(HomeAnswered {
                key: AnswerKey(octets_of(r, 0)?),
                supi: supi_of(r, 1)?,
                user: UserId(octets_of(r, 2)?),
                sqn: Sqn::from_value(r.get::<_, i64>(3)?.cast_unsigned()),
                given_s: r.get::<_, i64>(4)?.cast_unsigned(),
                octets: r.get(5)?,
            }))
        })? {
            records.push(record?);
        }
        let mut reported = self.db.prepare("SELECT session, user, units, nonce, report FROM reported")?;
        for record in reported.query_map([], |r| {
            let (session, user) = (octets_of(r, 0)?, UserId(octets_of(r, 1)?));
            Ok(Record::Reported {
                session,
                user,
                units: r.get(2)?,
                nonce: octets_of(r, 3)?,
                report: octets_of(r, 4)?,
            })
        })? {
            records.push(record?);
        }
        let orders = self.kept_orders()?;
        for (order, answer) in &orders {
            let answered = |answer: &OrderAnswer| (order.hash(), answer.to_octets());
            let answered = answer.as_ref().map(answered);
            records.extend(answered.map(|(order, octets)| Record::OrderAnswered { order, octets }));
        }
        let orders =
            orders.into_iter().filter(|(_, answer)| answer.is_none()).map(|(order, _)| order).collect();
        Ok(StoredVeilBroker { epochs, issuers, cosignatures, users, home_users, records, orders })
    }

    fn kept_orders(&self) -> rusqlite::Result<Vec<KeptOrder>> {
        let read = |r: &Row<'_>| {
            let (octets, answer): (Vec<u8>, Option<Vec<u8>>) = (r.get(0)?, r.get(1)?);
            let answer = answer.map(|octets| OrderAnswer::parse(&octets)).transpose();
            Ok((Order::parse(&octets).map_err(|_| damaged(0))?, answer.map_err(|_| damaged(1))?))
        };
        self.db
            .prepare("SELECT octets, answer FROM agency_order ORDER BY hash")?
            .query_map([], read)?
            .collect()
    }

    /// The orders of agencies, with their answers.
    pub fn orders(&self) -> Result<Vec<KeptOrder>, StorageError> {
        self.kept_orders().map_err(|e| self.failed(e))
    }

    /// Keeps an agency's order; a running broker judges it and passes it on.
    pub fn add_order(&mut self, order: &Order) -> Result<(), StorageError> {
        self.change(|tx| {
            let sql = "INSERT OR IGNORE INTO agency_order VALUES (?1, ?2, NULL)";
            tx.execute(sql, params![order.hash(), order.to_octets()])
        })?;
        Ok(())
    }

    /// The latest sessions of a user, newest first. Empty also for a name that no user has.
    pub fn sessions_of(&self, name: &str, limit: u32) -> Result<Vec<SessionName>, StorageError> {
        let sql = "SELECT octets, given FROM answered WHERE user = (SELECT id FROM user WHERE name = ?1) UNION ALL \
                   SELECT octets, given FROM home_answered WHERE user = (SELECT id FROM home_user WHERE name = ?1) \
                   ORDER BY given DESC LIMIT ?2";
        let read = || -> rusqlite::Result<Vec<Vec<u8>>> {
            self.db.prepare(sql)?.query_map(params![name, limit], |r| r.get(0))?.collect()
        };
        let named = |octets: Vec<u8>| match Answer::parse(&octets) {
            Ok(Answer(AnswerBody::Granted { grant, .. } | AnswerBody::Challenged { grant, .. })) => {
                let Grant { request, group, validity, .. } = grant.grant;
                Some(SessionName { session: request, group, until_s: validity.until })
            }
            _ => None,
        };
        Ok(read().map_err(|e| self.failed(e))?.into_iter().filter_map(named).collect())
    }

    /// Whether another connection has written since the last call.
    pub fn has_changed(&mut self) -> Result<bool, StorageError> {
        let read = || self.db.query_row("PRAGMA data_version", [], |r| r.get::<_, i64>(0));
        let version = read().map_err(|e| self.failed(e))?;
        Ok(std::mem::replace(&mut self.data_version, version) != version)
    }

    /// Makes records durable, and the counters that they used, in one transaction. Gives those of tokens that were spent before by
    /// another request, as they were written then; of these nothing is changed.
    pub fn commit(
        &mut self,
        records: &[Record],
        counters: &[(UserId, Counters)],
    ) -> Result<Vec<Record>, StorageError> {
        self.change(|tx| {
            let mut before = Vec::new();
            for record in records {
                before.extend(insert(tx, record)?);
            }
            for (user, counters) in counters {
                let (highest, used) = counters.parts();
                tx.prepare_cached("UPDATE user SET highest = ?2, used = ?3 WHERE id = ?1")?
                    .execute(params![user.0, highest.cast_signed(), used.cast_signed()])?;
            }
            Ok(before)
        })
    }

    /// Adds a user.
    pub fn add_user(&mut self, named: &NamedUser) -> Result<(), StorageError> {
        let NamedUser { name, id, user } = named;
        let (highest, used) = user.counters.parts();
        let added = self.change(|tx| {
            tx.execute(
                "INSERT INTO user VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
                params![
                    id.0,
                    name,
                    user.key.octets(),
                    user.revoked,
                    user.class,
                    user.prepaid,
                    user.intercept,
                    highest.cast_signed(),
                    used.cast_signed()
                ],
            )
        })?;
        if added == 0 { Err(StorageError::UserExists(name.clone())) } else { Ok(()) }
    }

    /// Revokes the key or the USIM of a user. Errors: also if no user has this name.
    pub fn revoke(&mut self, name: &str) -> Result<(), StorageError> {
        let changed = self.change(|tx| {
            let veiled = tx.execute("UPDATE user SET revoked = 1 WHERE name = ?1", [name])?;
            Ok(veiled + tx.execute("UPDATE home_user SET revoked = 1 WHERE name = ?1", [name])?)
        })?;
        if changed == 0 { Err(StorageError::UnknownUser(name.to_owned())) } else { Ok(()) }
    }

    /// Makes a new key to which users seal; the former ones stay. Gives its identifier.
    pub fn begin_epoch(&mut self) -> Result<u8, StorageError> {
        let key = whimbrel_broker_client::random::<32>().map_err(StorageError::NoRandomness)?;
        self.change(|tx| {
            let id: u8 = tx.query_row("SELECT coalesce(max(id), 0) + 1 FROM epoch", [], |r| r.get(0))?;
            tx.execute("INSERT INTO epoch VALUES (?1, ?2)", params![id, key])?;
            Ok(id)
        })
    }

    /// Destroys a former key. Gives whether there was one.
    pub fn end_epoch(&mut self, id: u8) -> Result<bool, StorageError> {
        let sql = "DELETE FROM epoch WHERE id = ?1 AND id < (SELECT max(id) FROM epoch)";
        self.change(|tx| Ok(tx.execute(sql, [id])? > 0))
    }

    /// Adds a user with a USIM.
    pub fn add_home_user(&mut self, named: &NamedHomeUser) -> Result<(), StorageError> {
        let NamedHomeUser { name, supi, keys, user } = named;
        let added = self.change(|tx| {
            tx.execute(
                "INSERT INTO home_user VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING",
                params![
                    supi.value(),
                    user.user.0,
                    name,
                    keys.k,
                    keys.opc,
                    user.revoked,
                    user.class,
                    user.prepaid,
                    user.intercept,
                    user.sqn.value().cast_signed()
                ],
            )
        })?;
        if added == 0 { Err(StorageError::UserExists(name.clone())) } else { Ok(()) }
    }

    /// The log of issuing keys.
    pub fn log(&self, broker: &Domain) -> Result<KeyLog, StorageError> {
        let state = self.load(Instant(0))?;
        let mut log = KeyLog::new(broker.clone());
        for (entry, _) in state.issuers {
            log.append(entry).map_err(|_| StorageError::Corrupt(self.path.clone()))?;
        }
        Ok(log)
    }

    /// Begins an epoch of tokens, with a new issuing key at its place of the log. Gives the head for the witnesses. Errors: also if
    /// the epoch begins too early after the one before.
    pub fn begin_issuing(
        &mut self,
        broker: &Domain,
        validity: Validity,
        signing: &SigningKey,
    ) -> Result<TreeHead, StorageError> {
        let mut log = self.log(broker)?;
        let seed = whimbrel_broker_client::random::<32>().map_err(StorageError::NoRandomness)?;
        let key = IssuerKey::derive(&seed, b"").ok_or(StorageError::NoRandomness("no key".into()))?;
        let epoch = log.entries().len() as u32;
        let entry = KeyEntry { broker: broker.clone(), epoch, key: *key.public(), validity };
        log.append(entry.clone()).map_err(|e| StorageError::Log(e.to_string()))?;
        self.change(|tx| {
            tx.execute("INSERT INTO issuer VALUES (?1, ?2, ?3)", params![epoch, seed, entry.to_octets()])
        })?;
        Ok(log.head(signing))
    }

    /// Keeps a witness's signature over the head of this size.
    pub fn add_cosignature(&mut self, size: u64, cosignature: &Cosignature) -> Result<(), StorageError> {
        self.change(|tx| {
            tx.execute(
                "INSERT OR REPLACE INTO cosignature VALUES (?1, ?2, ?3)",
                params![size.cast_signed(), cosignature.witness.octets(), cosignature.signature.0],
            )
        })?;
        Ok(())
    }

    /// What each user is billed for.
    pub fn billed(&self) -> Result<Vec<BilledSession>, StorageError> {
        let sql = "SELECT u.name, count(*), sum(r.units) FROM reported r \
                   JOIN (SELECT id, name FROM user UNION ALL SELECT id, name FROM home_user) u ON u.id = r.user \
                   GROUP BY u.name ORDER BY u.name";
        let read = || -> rusqlite::Result<Vec<BilledSession>> {
            self.db
                .prepare(sql)?
                .query_map([], |r| {
                    let of = |column| r.get::<_, i64>(column).map(i64::cast_unsigned);
                    Ok(BilledSession { user: r.get(0)?, sessions: of(1)?, units: of(2)? })
                })?
                .collect()
        };
        read().map_err(|e| self.failed(e))
    }

    /// How many tokens were spent.
    pub fn spent(&self) -> Result<u64, StorageError> {
        let count = || self.db.query_row("SELECT count(*) FROM opened", [], |r| r.get::<_, i64>(0));
        count().map(i64::cast_unsigned).map_err(|e| self.failed(e))
    }

    /// Deletes what is too old to matter.
    pub fn tidy(&mut self, now: Instant) -> Result<(), StorageError> {
        let now = now.as_secs();
        let old = now.saturating_sub(REPORT_WITHIN_S + GRANT_S_MAX);
        self.change(|tx| {
            tx.execute("DELETE FROM opened WHERE kept_until < ?1", [now.cast_signed()])?;
            tx.execute("DELETE FROM home_answered WHERE given < ?1", [old.cast_signed()])?;
            tx.execute("DELETE FROM answered WHERE given < ?1", [old.cast_signed()])
        })?;
        Ok(())
    }
}

/// Writes a record. Gives what stands there already, if it is of another request.
fn insert(tx: &Transaction<'_>, record: &Record) -> rusqlite::Result<Option<Record>> {
    match record {
        Record::Issued { operator, epoch, request } => {
            let sql = "INSERT OR IGNORE INTO issued VALUES (?1, ?2, ?3, (SELECT count(*) FROM issued))";
            tx.prepare_cached(sql)?.execute(params![operator.to_string(), epoch, request])?;
        }
        Record::Opened { group, key, nonce, until, kept_until, octets } => {
            let sql = "INSERT INTO opened VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
            let (until, kept) = (until.cast_signed(), kept_until.cast_signed());
            let row = params![group.0, key.octets(), nonce, until, kept, octets];
            if tx.prepare_cached(sql)?.execute(row)? == 0 {
                let sql = "SELECT token, key, nonce, until, kept_until, octets FROM opened WHERE token = ?1";
                let before = tx.prepare_cached(sql)?.query_row(params![group.0], opened_of).optional()?;
                return Ok(before.filter(|before| before != record));
            }
        }
        Record::Answered(Answered { user, counter, key, given_s, octets }) => {
            let sql = "INSERT OR IGNORE INTO answered VALUES (?1, ?2, ?3, ?4, ?5)";
            let (counter, given) = (counter.cast_signed(), given_s.cast_signed());
            tx.prepare_cached(sql)?.execute(params![key.0, user.0, counter, given, octets])?;
        }
        Record::OrderAnswered { order, octets } => {
            let sql = "UPDATE agency_order SET answer = ?2 WHERE hash = ?1 AND answer IS NULL";
            tx.prepare_cached(sql)?.execute(params![order, octets])?;
        }
        Record::Home(HomeAnswered { supi, user, sqn, key, given_s, octets }) => {
            let (supi, sqn, given) = (supi.value(), sqn.value().cast_signed(), given_s.cast_signed());
            let sql = "INSERT OR IGNORE INTO home_answered VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            tx.prepare_cached(sql)?.execute(params![key.0, supi, user.0, sqn, given, octets])?;
            let sql = "UPDATE home_user SET sqn = max(sqn, ?2) WHERE supi = ?1";
            tx.prepare_cached(sql)?.execute(params![supi, sqn])?;
        }
        Record::Reported { session, user, units, nonce, report } => {
            let sql = "INSERT OR IGNORE INTO reported VALUES (?1, ?2, ?3, ?4, ?5)";
            tx.prepare_cached(sql)?.execute(params![session, user.0, units, nonce, report])?;
        }
    }
    Ok(None)
}

fn damaged(column: usize) -> rusqlite::Error {
    let what = "the value is not of the form that this program writes".into();
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Blob, what)
}

fn issuer_of(row: &Row<'_>) -> rusqlite::Result<(KeyEntry, IssuerKey)> {
    let entry: Vec<u8> = row.get(1)?;
    let key = IssuerKey::derive(&octets_of(row, 0)?, b"").ok_or_else(|| damaged(0))?;
    Ok((KeyEntry::parse(&entry).map_err(|_| damaged(1))?, key))
}

fn opened_of(row: &Row<'_>) -> rusqlite::Result<Record> {
    Ok(Record::Opened {
        group: TokenHash(octets_of(row, 0)?),
        key: VerifyingKey::from_octets(octets_of(row, 1)?).ok_or_else(|| damaged(1))?,
        nonce: octets_of(row, 2)?,
        until: row.get::<_, i64>(3)?.cast_unsigned(),
        kept_until: row.get::<_, i64>(4)?.cast_unsigned(),
        octets: row.get(5)?,
    })
}

fn supi_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Supi> {
    row.get::<_, String>(column)?.parse().map_err(|_| damaged(column))
}

fn home_user_of(row: &Row<'_>) -> rusqlite::Result<NamedHomeUser> {
    let keys = UsimKeys { k: octets_of(row, 3)?, opc: octets_of(row, 4)? };
    let user = HomeUser {
        user: UserId(octets_of(row, 1)?),
        functions: keys.functions(),
        revoked: row.get(5)?,
        class: row.get(6)?,
        prepaid: row.get(7)?,
        intercept: row.get(8)?,
        sqn: Sqn::from_value(row.get::<_, i64>(9)?.cast_unsigned()),
    };
    Ok(NamedHomeUser { name: row.get(2)?, supi: supi_of(row, 0)?, keys, user })
}

fn user_of(row: &Row<'_>) -> rusqlite::Result<NamedUser> {
    let counters = (row.get::<_, i64>(7)?.cast_unsigned(), row.get::<_, i64>(8)?.cast_unsigned());
    let user = User {
        key: VerifyingKey::from_octets(octets_of(row, 2)?).ok_or_else(|| damaged(2))?,
        revoked: row.get(3)?,
        class: row.get(4)?,
        prepaid: row.get(5)?,
        intercept: row.get(6)?,
        counters: Counters::from_parts(counters),
    };
    Ok(NamedUser { id: UserId(octets_of(row, 0)?), name: row.get(1)?, user })
}
