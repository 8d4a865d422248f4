//! The charging function over its file: each method is one transaction.

use core::fmt;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use whimbrel_ids::{Instant, Supi};

use crate::account::{Account, AccountKind, AccountStatus};
use crate::error::{ChargingError, CreditRefusal};
use crate::ledger::{ACCOUNT, Ended, Ledger, account_in, damaged, octets, sql, supi_in};
use crate::record::{ChargingRecord, ClosingCause, OpenSession, RatingGroupUsage};
use crate::request::{
    ChargingDataRequest, ChargingDataResponse, ChargingPolicy, ChargingRefusal, Notification,
    NotificationType,
};
use crate::schema;

/// Accounts or records of one page at most.
pub const PAGE_MAX: usize = 1_000;

/// Sessions, and as many records, that one call of [`ChargingFunction::expire`] closes or deletes: some milliseconds.
pub const EXPIRED_AT_ONCE_MAX: usize = 256;

/// Notifications that are read at once.
const NOTIFICATIONS_MAX: i64 = 256;

/// The charging function. One thread uses it at a time; threads and processes that need it each open their own.
pub struct ChargingFunction {
    db: Connection,
    path: PathBuf,
    policy: ChargingPolicy,
}

impl fmt::Debug for ChargingFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChargingFunction({})", self.path.display())
    }
}

impl ChargingFunction {
    /// Opens the file, or creates it, readable by its owner alone.
    pub fn open(path: &Path, policy: ChargingPolicy) -> Result<Self, ChargingError> {
        Ok(Self { db: schema::open(path)?, path: path.to_owned(), policy })
    }

    /// Copies the accounts, open sessions and records into a new file, whole, while others use them.
    ///
    /// Errors: there is a file already; those of the disk.
    pub fn copy_to(&self, to: &Path) -> Result<(), ChargingError> {
        schema::create_private(to)?;
        // Not within a transaction, as `Self::read` would do it.
        let copied = self.db.execute("VACUUM INTO ?1", [to.to_string_lossy()]);
        copied.map(drop).map_err(|e| ChargingError::of_sqlite(&self.path, e))
    }

    /// Makes the file whole without its WAL, so that it can be moved.
    ///
    /// Errors: [`ChargingError::Locked`] while another process, such as a running core, has it open; [`ChargingError::Corrupt`].
    pub fn release(path: &Path) -> Result<(), ChargingError> {
        schema::release(path)
    }

    /// Executes requests in order, all in one transaction. The answers may leave when it returns: they are on the disk.
    pub fn handle(
        &mut self,
        now: Instant,
        requests: &[ChargingDataRequest],
    ) -> Result<Vec<Result<ChargingDataResponse, ChargingRefusal>>, ChargingError> {
        self.change(now, |ledger| {
            requests
                .iter()
                .map(|request| {
                    ledger.db.execute_batch("SAVEPOINT request")?;
                    let answer = match ledger.handle(request) {
                        Ok(response) => Ok(response),
                        Err(Ended::Refused(refusal)) => {
                            ledger.db.execute_batch("ROLLBACK TO request")?;
                            Err(refusal)
                        }
                        Err(Ended::Failed(e)) => return Err(e),
                    };
                    ledger.db.execute_batch("RELEASE request")?;
                    Ok(answer)
                })
                .collect()
        })
    }

    /// Closes sessions whose consumers have not reported for two validity times, and deletes records that are old enough. Returns how many
    /// sessions were closed; after [`EXPIRED_AT_ONCE_MAX`] there may be more.
    pub fn expire(&mut self, now: Instant) -> Result<usize, ChargingError> {
        self.change(now, |ledger| ledger.expire(EXPIRED_AT_ONCE_MAX))
    }

    /// Numbers of open sessions and of accounts.
    pub fn totals(&self) -> Result<(u64, u64), ChargingError> {
        self.read(|db| {
            let ledger = Ledger { db, policy: &self.policy, now: Instant::ZERO };
            Ok((ledger.total("sessions")?, ledger.total("accounts")?))
        })
    }

    /// The account of a subscriber, if it has one.
    pub fn account(&self, supi: Supi) -> Result<Option<Account>, ChargingError> {
        self.read(|db| Ledger { db, policy: &self.policy, now: Instant::ZERO }.account(supi))
    }

    /// Up to `limit` (and [`PAGE_MAX`]) accounts whose SUPI comes after `after`, in the order of SUPIs.
    pub fn accounts(&self, after: Option<Supi>, limit: usize) -> Result<Vec<Account>, ChargingError> {
        let after = after.map(|supi| supi.to_string()).unwrap_or_default();
        let text = format!("SELECT {ACCOUNT} FROM account WHERE supi > ?1 ORDER BY supi LIMIT ?2");
        self.read(|db| {
            let page = params![after, limit.min(PAGE_MAX) as i64];
            db.prepare_cached(&text)?.query_map(page, account_in)?.collect()
        })
    }

    /// Makes an account, or changes its kind and status. The consumers of a barred subscriber's sessions are notified. Returns the account,
    /// and whether it is new.
    pub fn put_account(
        &mut self,
        supi: Supi,
        kind: AccountKind,
        status: AccountStatus,
    ) -> Result<(Account, bool), ChargingError> {
        self.change(Instant::ZERO, |ledger| {
            let former = ledger.account(supi)?;
            let is_new = former.is_none();
            let mut account = former.unwrap_or_else(|| Account::new(supi, kind));
            let changes = !is_new && (account.kind, account.status) != (kind, status);
            (account.kind, account.status) = (kind, status);
            ledger.put_account(&account)?;
            if changes {
                notify(ledger.db, supi, NotificationType::Reauthorization, "")?;
            }
            Ok((account, is_new))
        })
    }

    /// Removes an account, and returns whether it existed.
    ///
    /// The charging of its sessions is aborted; what they use until then is in their records.
    pub fn remove_account(&mut self, supi: Supi) -> Result<bool, ChargingError> {
        self.change(Instant::ZERO, |ledger| {
            let db = ledger.db;
            if db.execute("DELETE FROM account WHERE supi = ?1", [supi.to_string()])? == 0 {
                return Ok(false);
            }
            db.execute("DELETE FROM credit WHERE supi = ?1", [supi.to_string()])?;
            let freed = "UPDATE usage SET reserved = 0 WHERE session IN (SELECT id FROM session WHERE supi = ?1 AND end IS NULL)";
            db.execute(freed, [supi.to_string()])?;
            ledger.add_to_total("accounts", -1)?;
            notify(db, supi, NotificationType::AbortCharging, "")?;
            Ok(true)
        })
    }

    /// Adds octets to the credit of an account, or takes back what is left of it. The same `reference` again changes nothing. Consumers that
    /// have got the last quota, or none, are notified.
    pub fn credit(
        &mut self,
        now: Instant,
        supi: Supi,
        change: i64,
        reference: Option<&str>,
    ) -> Result<Result<Account, CreditRefusal>, ChargingError> {
        self.change(now, |ledger| {
            let Some(mut account) = ledger.account(supi)? else {
                return Ok(Err(CreditRefusal::Unknown(supi)));
            };
            if let Some(reference) = reference {
                let known = "SELECT octets FROM credit WHERE supi = ?1 AND reference = ?2";
                let known: Option<i64> = ledger
                    .db
                    .query_row(known, params![supi.to_string(), reference], |row| row.get(0))
                    .optional()?;
                match known {
                    Some(octets) if octets == change => return Ok(Ok(account)),
                    Some(_) => return Ok(Err(CreditRefusal::ReferenceUsed)),
                    None => {}
                }
            }
            let balance = account.balance_octets;
            if account.credit(change).is_none() {
                return Ok(Err(CreditRefusal::OutOfRange { balance }));
            }
            if let Some(reference) = reference {
                let noted = "INSERT INTO credit VALUES (?1, ?2, ?3, ?4)";
                ledger.db.execute(noted, params![supi.to_string(), reference, change, sql(now.0)])?;
            }
            ledger.put_account(&account)?;
            if change > 0 {
                notify(ledger.db, supi, NotificationType::Reauthorization, "AND is_last")?;
            }
            Ok(Ok(account))
        })
    }

    /// The open sessions of a subscriber, oldest first, up to [`PAGE_MAX`].
    pub fn open_sessions(&self, supi: Supi) -> Result<Vec<OpenSession>, ChargingError> {
        self.read(|db| {
            let text = "SELECT id, resource, consumer, pdu_session_id, dnn, s_nssai, start FROM session \
                        WHERE supi = ?1 AND end IS NULL ORDER BY id LIMIT ?2";
            let read = |row: &Row<'_>| {
                let (rating_groups, reserved_octets) = rating_groups(db, row.get(0)?)?;
                Ok(OpenSession {
                    session: row.get(1)?,
                    consumer: row.get(2)?,
                    pdu_session_id: row.get(3)?,
                    dnn: row.get(4)?,
                    s_nssai: row.get(5)?,
                    start: Instant(octets(row, 6)?),
                    reserved_octets,
                    rating_groups,
                })
            };
            db.prepare_cached(text)?.query_map(params![supi.to_string(), PAGE_MAX as i64], read)?.collect()
        })
    }

    /// Up to `limit` (and [`PAGE_MAX`]) records, of all subscribers or one, whose number is greater than `after`, in order.
    pub fn records(
        &self,
        supi: Option<Supi>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<ChargingRecord>, ChargingError> {
        let of_one = if supi.is_some() { "supi = ?3" } else { "?3 = ''" };
        let text = format!(
            "SELECT id, record, resource, supi, consumer, charging_id, pdu_session_id, dnn, s_nssai, start, end, cause FROM session \
             WHERE record IS NOT NULL AND record > ?1 AND {of_one} ORDER BY record LIMIT ?2"
        );
        self.read(|db| {
            let read = |row: &Row<'_>| {
                let cause: String = row.get(11)?;
                Ok(ChargingRecord {
                    number: octets(row, 1)?,
                    session: row.get(2)?,
                    supi: supi_in(row, 3)?,
                    consumer: row.get(4)?,
                    charging_id: row.get(5)?,
                    pdu_session_id: row.get(6)?,
                    dnn: row.get(7)?,
                    s_nssai: row.get(8)?,
                    start: Instant(octets(row, 9)?),
                    end: Instant(octets(row, 10)?),
                    rating_groups: rating_groups(db, row.get(0)?)?.0,
                    cause: ClosingCause::read(&cause).ok_or_else(|| damaged(11))?,
                })
            };
            let supi = supi.map(|supi| supi.to_string()).unwrap_or_default();
            let page = params![sql(after), limit.min(PAGE_MAX) as i64, supi];
            db.prepare_cached(&text)?.query_map(page, read)?.collect()
        })
    }

    /// Orders to consumers of open sessions that were not sent yet, oldest first.
    pub fn notifications(&self) -> Result<Vec<Notification>, ChargingError> {
        self.read(|db| {
            let text = "SELECT n.id, n.abort, s.consumer, s.notify_uri, s.supi, s.pdu_session_id FROM notification n \
                        JOIN session s ON s.id = n.session ORDER BY n.id LIMIT ?1";
            let read = |row: &Row<'_>| {
                let abort: bool = row.get(1)?;
                Ok(Notification {
                    id: row.get(0)?,
                    order: match abort {
                        true => NotificationType::AbortCharging,
                        false => NotificationType::Reauthorization,
                    },
                    consumer: row.get(2)?,
                    notify_uri: row.get(3)?,
                    supi: supi_in(row, 4)?,
                    pdu_session_id: row.get(5)?,
                })
            };
            db.prepare_cached(text)?.query_map([NOTIFICATIONS_MAX], read)?.collect()
        })
    }

    /// These orders were sent.
    pub fn notified(&mut self, sent: &[Notification]) -> Result<(), ChargingError> {
        self.change(Instant::ZERO, |ledger| {
            let mut delete = ledger.db.prepare_cached("DELETE FROM notification WHERE id = ?1")?;
            sent.iter().try_for_each(|notification| delete.execute([notification.id]).map(drop))
        })
    }

    /// Checks that the octets that are reserved for open sessions are those of the accounts, and that each account is balanced. Errors: one
    /// sentence.
    pub fn verify(&self) -> Result<Result<(), String>, ChargingError> {
        self.read(|db| {
            let text = format!("SELECT {ACCOUNT} FROM account");
            let accounts = db.prepare(&text)?.query_map([], account_in)?.collect::<Result<Vec<_>, _>>()?;
            let text = "SELECT s.supi, sum(u.reserved) FROM usage u JOIN session s ON s.id = u.session \
                        WHERE s.end IS NULL GROUP BY s.supi";
            let reserved: BTreeMap<Supi, u64> = db
                .prepare(text)?
                .query_map([], |row| Ok((supi_in(row, 0)?, octets(row, 1)?)))?
                .collect::<Result<_, _>>()?;
            for account in &accounts {
                let reserved = reserved.get(&account.supi).copied().unwrap_or(0);
                if !account.is_balanced() || account.reserved_octets != reserved {
                    return Ok(Err(format!(
                        "{reserved} octets are reserved for the sessions of {account:?}"
                    )));
                }
            }
            let open: u64 =
                db.query_row("SELECT count(*) FROM session WHERE end IS NULL", [], |row| octets(row, 0))?;
            let ledger = Ledger { db, policy: &self.policy, now: Instant::ZERO };
            let counted = (ledger.total("sessions")?, ledger.total("accounts")?);
            Ok(match counted == (open, accounts.len() as u64) {
                true => Ok(()),
                false => Err(format!("{open} sessions and {} accounts, counted {counted:?}", accounts.len())),
            })
        })
    }

    fn change<T>(
        &mut self,
        now: Instant,
        f: impl FnOnce(&Ledger<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, ChargingError> {
        let Self { db, path, policy } = self;
        let failed = |e| ChargingError::of_sqlite(path, e);
        let tx = Transaction::new(db, TransactionBehavior::Immediate).map_err(failed)?;
        let done = f(&Ledger { db: &tx, policy, now }).map_err(failed)?;
        tx.commit().map_err(failed)?;
        Ok(done)
    }

    /// Reads within one transaction, so that what is read is of one moment.
    fn read<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, ChargingError> {
        let failed = |e| ChargingError::of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Deferred).map_err(failed)?;
        f(&tx).map_err(failed)
    }
}

/// Notes an order to the consumers of a subscriber's open sessions, each of which waits once.
fn notify(
    db: &Connection,
    supi: Supi,
    order: NotificationType,
    condition: &'static str,
) -> rusqlite::Result<()> {
    let text = format!(
        "INSERT INTO notification (session, abort) SELECT id, ?2 FROM session \
         WHERE supi = ?1 AND end IS NULL {condition} AND id NOT IN (SELECT session FROM notification WHERE abort = ?2)"
    );
    let abort = order == NotificationType::AbortCharging;
    db.prepare_cached(&text)?.execute(params![supi.to_string(), abort]).map(drop)
}

/// The rating groups of a session, and the sum of what is reserved for them.
fn rating_groups(db: &Connection, session: i64) -> rusqlite::Result<(Vec<RatingGroupUsage>, u64)> {
    let text = "SELECT rating_group, uplink, downlink, total, time_s, reserved FROM usage WHERE session = ?1 ORDER BY rating_group";
    let read = |row: &Row<'_>| {
        let usage = RatingGroupUsage {
            rating_group: row.get(0)?,
            uplink_octets: octets(row, 1)?,
            downlink_octets: octets(row, 2)?,
            total_octets: octets(row, 3)?,
            time_s: octets(row, 4)?,
        };
        Ok((usage, octets(row, 5)?))
    };
    let groups =
        db.prepare_cached(text)?.query_map([session], read)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let reserved = groups.iter().map(|(_, reserved)| reserved).sum();
    Ok((groups.into_iter().map(|(usage, _)| usage).collect(), reserved))
}
