//! The connection, with its schema and its changes.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row};
use whimbrel_security::SqnOffset;
use whimbrel_store::{
    DatabaseFailure, DocumentChange, ReplicaPosition, SealedSubscriber, SharedStore, Store, StoreError,
    SubscriberChange, later_offset,
};

use crate::documents::put_documents;
use crate::failure::{failure_of, is_lost, store_error};
use crate::follow::{CaughtUp, catch_up};
use crate::homes::check_place;
use crate::schema::{LAYOUT, MIGRATIONS};
use crate::settings::PostgresSettings;

/// How long a request may take. A user waits for it, and a lost server shows itself by silence.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// More time for each subscriber of a change: a database on a slow disk writes some thousand a second.
const PER_SUBSCRIBER: Duration = Duration::from_millis(2);
/// How long a change waits for another one.
const LOCK_TIMEOUT_MS: u64 = 3_000;
/// Subscribers of one statement: 5 MB.
pub(crate) const CHUNK: usize = 4_096;
/// The lock under which the schema is made, of the database's 2^64.
const SCHEMA_LOCK: i64 = 0x5742_524c;

/// The columns of a subscriber, in the order that [`sealed`] reads.
pub(crate) const COLUMNS: &str = "supi, msisdn, status, algorithm, auth, amf, sqn_offset, keys, subscription";

/// A PostgreSQL database, connected when it is used, and again after a failure.
pub struct PostgresDatabase {
    settings: PostgresSettings,
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
    session: Option<Session>,
    /// Notified of what the database says, and by [`DatabaseWaker`]s.
    notified: Arc<Notify>,
    /// The channel for what concerns this home alone, if it has one.
    own_channel: Option<String>,
    /// How often this home has written, by the database's last answer.
    pub(crate) writes: i64,
    /// The last full copy, until it is taken.
    last_copy: Option<CaughtUp>,
}

/// An open connection to a database with our schema.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// The key check that was compared with this home's key.
    pub(crate) key_check: Vec<u8>,
    listens: bool,
}

/// Ends [`PostgresDatabase::wait`] from another thread.
#[derive(Clone)]
pub struct DatabaseWaker(Arc<Notify>);

impl DatabaseWaker {
    /// Ends the present wait, or the next one.
    pub fn wake(&self) {
        self.0.notify_one();
    }
}

impl Session {
    /// Errors: the key was rotated since this connection was made, and another one has to compare it.
    pub(crate) fn check_key(&self, now: &[u8]) -> Result<(), StoreError> {
        match now == self.key_check {
            true => Ok(()),
            false => Err(DatabaseFailure::Unreachable { why: "its key was rotated".into() }.into()),
        }
    }

    /// The connection for the next work: a refusal leaves it as it was, and a failure may have left it in a transaction.
    fn after<T>(self, done: &Result<T, StoreError>) -> Option<Self> {
        (!matches!(done, Err(StoreError::Database(_)))).then_some(self)
    }
}

impl PostgresDatabase {
    /// For a database; nothing is connected yet. Errors: one sentence.
    pub fn new(settings: PostgresSettings) -> Result<Self, String> {
        settings.connection()?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| format!("the connection to PostgreSQL cannot be run: {e}"))?;
        let notified = Arc::new(Notify::new());
        Ok(Self {
            settings,
            runtime: Some(runtime),
            session: None,
            notified,
            own_channel: None,
            writes: 0,
            last_copy: None,
        })
    }

    /// A handle that ends [`Self::wait`].
    pub fn waker(&self) -> DatabaseWaker {
        DatabaseWaker(self.notified.clone())
    }

    /// Has the database say, too, when something changes for this AMF.
    pub fn listen_for(&mut self, amf: &str) {
        self.own_channel = Some(format!("whimbrel_{amf}"));
    }

    /// The full copy that was made since this was called last, if there was one.
    pub fn take_copy(&mut self) -> Option<CaughtUp> {
        self.last_copy.take()
    }

    /// The hosts of the database.
    pub fn hosts(&self) -> String {
        self.settings.hosts()
    }

    /// Runs work on a connection, which is made if there is none. A connection that was lost meanwhile is made again once. Errors: the
    /// connection is given up, if it may be in the middle of something.
    pub(crate) fn run<T>(
        &mut self,
        within: Duration,
        replica: &Store,
        work: impl AsyncFn(&mut Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let check = |check: &[u8]| {
            if replica.has_key_of(check) { Ok(()) } else { Err(replica.other_key_than(check)) }
        };
        let key_check = || replica.key_check();
        self.run_checked(within, &check, &key_check, work)
    }

    pub(crate) fn run_checked<T>(
        &mut self,
        within: Duration,
        check: &dyn Fn(&[u8]) -> Result<(), DatabaseFailure>,
        key_check: &dyn Fn() -> Result<Vec<u8>, StoreError>,
        work: impl AsyncFn(&mut Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Self { settings, runtime, session, notified, .. } = self;
        let all = async {
            let former = session.take().filter(|s| !s.client.is_closed());
            if let Some(mut own) = former {
                match work(&mut own).await {
                    // The server was restarted since.
                    Err(StoreError::Database(DatabaseFailure::Unreachable { .. })) => {}
                    done => {
                        *session = own.after(&done);
                        return done;
                    }
                }
            }
            let mut own = connect(settings, notified, check, key_check).await?;
            let done = work(&mut own).await;
            *session = own.after(&done);
            done
        };
        let late = || Err(DatabaseFailure::Late { after: within }.into());
        let Some(runtime) = runtime else { return late() };
        runtime.block_on(async { tokio::time::timeout(within, all).await.unwrap_or_else(|_| late()) })
    }

    /// Runs a change of `size` rows by this home. `work` says when it begins to commit: after that, the outcome of a lost connection is unknown.
    fn run_change(
        &mut self,
        size: usize,
        replica: &Store,
        work: impl AsyncFn(&Session, &Cell<bool>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let committing = Cell::new(false);
        let home = replica.home()?;
        let done = self.run(within(size), replica, async |session| {
            check_place(session, &home).await?;
            let client = &session.client;
            let done = work(session, &committing).await;
            if done.as_ref().is_err_and(|e| !matches!(e, StoreError::Database(_))) {
                // A refusal: the connection stays.
                client.batch_execute("ROLLBACK").await.map_err(|e| failure_of(&e))?;
            }
            done
        });
        match done {
            Err(StoreError::Database(DatabaseFailure::Late { .. })) if committing.get() => {
                Err(DatabaseFailure::UnknownOutcome.into())
            }
            done => done,
        }
    }

    /// Waits until the database says that something has changed, and `at_most` that long.
    pub fn wait(&mut self, at_most: Duration) {
        let Self { runtime: Some(runtime), notified, .. } = self else {
            std::thread::sleep(at_most);
            return;
        };
        runtime.block_on(async {
            let _ = tokio::time::timeout(at_most, notified.notified()).await;
        });
    }

    /// Asks the database to say when something changes. A connection pooler may not pass that on, so the log is read each second all the same.
    pub fn listen(&mut self) {
        let Self { runtime, session, own_channel, .. } = self;
        if let (Some(session), Some(runtime)) = (session.as_mut().filter(|s| !s.listens), runtime) {
            let own = own_channel.as_ref().map(|own| format!("; LISTEN \"{own}\"")).unwrap_or_default();
            let listen = format!("LISTEN whimbrel{own}");
            let listened = runtime.block_on(async {
                tokio::time::timeout(ANSWER_WITHIN, session.client.batch_execute(&listen)).await
            });
            session.listens = matches!(listened, Ok(Ok(())));
        }
    }

    /// Merges the offsets of resynchronised subscribers, those with the larger SEQ, and notes so in the replica.
    pub fn merge_offsets(&mut self, replica: &mut Store) -> Result<usize, StoreError> {
        let mut merged = 0;
        loop {
            let pending = replica.pending_offsets(CHUNK)?;
            if pending.is_empty() {
                return Ok(merged);
            }
            self.run(within(pending.len()), replica, async |session| merge(session, &pending).await)?;
            replica.offsets_merged(&pending)?;
            merged += pending.len();
        }
    }

    /// Writes subscribers of a file as they are: those that are there already are replaced, or stay if not `replace`. Returns how many were written.
    pub fn put_sealed(
        &mut self,
        source: &Store,
        rows: &[SealedSubscriber],
        replace: bool,
    ) -> Result<u64, StoreError> {
        self.run(within(rows.len()), source, async |session| {
            let client = &session.client;
            begin_change(session).await?;
            let mut written = 0;
            for chunk in rows.chunks(CHUNK) {
                let chunk: Vec<&SealedSubscriber> = chunk.iter().collect();
                written += put(client, &chunk, replace).await?;
            }
            commit(client).await?;
            Ok(written)
        })
    }

    /// The next subscribers after `after`, in the order of their SUPIs.
    pub fn sealed_after(
        &mut self,
        source: &Store,
        after: &str,
        limit: usize,
    ) -> Result<Vec<SealedSubscriber>, StoreError> {
        self.run(within(limit), source, async |session| page(&session.client, after, limit).await)
    }
}

/// The time for a request about so many subscribers.
pub(crate) fn within(subscribers: usize) -> Duration {
    ANSWER_WITHIN + PER_SUBSCRIBER * u32::try_from(subscribers).unwrap_or(u32::MAX)
}

impl Drop for PostgresDatabase {
    fn drop(&mut self) {
        // Its owner may be dropped by a thread that runs futures, where the end of a runtime must not be waited for.
        self.runtime.take().map(Runtime::shutdown_background).unwrap_or_default();
    }
}

impl SharedStore for PostgresDatabase {
    fn catch_up(&mut self, replica: &mut Store) -> Result<(), StoreError> {
        let mut done = catch_up(self, replica);
        if let Err(StoreError::Database(DatabaseFailure::OtherKey { .. })) = &done
            && replica.reload_key()?
        {
            // The operator has given this home the key that was rotated to.
            done = catch_up(self, replica);
        }
        if let Some(done) = done? {
            self.last_copy = Some(done);
        }
        replica.note_key()
    }

    fn commit(
        &mut self,
        replica: &Store,
        at: &ReplicaPosition,
        changes: &[SubscriberChange],
    ) -> Result<(), StoreError> {
        self.run_change(changes.len(), replica, async |session, committing| {
            change(session, at, changes, committing).await
        })
    }

    fn commit_documents(
        &mut self,
        replica: &Store,
        at: &ReplicaPosition,
        changes: &[DocumentChange],
    ) -> Result<(), StoreError> {
        self.run_change(changes.len(), replica, async |session, committing| {
            change_documents(session, at, changes, committing).await
        })
    }
}

/// Opens a connection to a database with our schema, which is made in an empty database.
async fn connect(
    settings: &PostgresSettings,
    notified: &Arc<Notify>,
    check: &dyn Fn(&[u8]) -> Result<(), DatabaseFailure>,
    key_check: &dyn Fn() -> Result<Vec<u8>, StoreError>,
) -> Result<Session, StoreError> {
    let (config, tls) = settings.connection().map_err(|why| DatabaseFailure::Unreachable { why })?;
    let (client, mut connection) = config.connect(tls).await.map_err(|e| failure_of(&e))?;
    let notify = notified.clone();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(_) = message {
                notify.notify_one();
            }
        }
        // A waiting reader finds the connection closed.
        notify.notify_one();
    });
    prepare_schema(&client, key_check).await?;
    let row = one(&client, "SELECT layout, key_check FROM whimbrel.state", &[]).await?;
    let layout: i32 = get(&row, 0)?;
    if layout > LAYOUT {
        return Err(DatabaseFailure::NewerSchema { layout, known: LAYOUT }.into());
    }
    let key_check: Vec<u8> = get(&row, 1)?;
    check(&key_check)?;
    Ok(Session { client, key_check, listens: false })
}

/// Makes the schema, or brings it to this version's layout.
async fn prepare_schema(
    client: &Client,
    key_check: &dyn Fn() -> Result<Vec<u8>, StoreError>,
) -> Result<(), StoreError> {
    let from = layout(client).await?;
    if from >= LAYOUT {
        return Ok(());
    }
    let begin = format!(
        "BEGIN; SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}; SELECT pg_advisory_xact_lock({SCHEMA_LOCK})"
    );
    batch(client, &begin).await?;
    // Another home may have made it while this one waited.
    let from = layout(client).await?;
    for step in MIGRATIONS.iter().skip(usize::try_from(from).unwrap_or(0)) {
        batch(client, step).await?;
    }
    if from == 0 {
        let check = key_check()?;
        let values: [(&(dyn ToSql + Sync), Type); 2] = [(&LAYOUT, Type::INT4), (&check, Type::BYTEA)];
        let sql = "INSERT INTO whimbrel.state (layout, key_check) VALUES ($1, $2)";
        client.execute_typed(sql, &values).await.map_err(|e| failure_of(&e))?;
    } else {
        let sql = "UPDATE whimbrel.state SET layout = $1";
        client.execute_typed(sql, &[(&LAYOUT, Type::INT4)]).await.map_err(|e| failure_of(&e))?;
    }
    batch(client, "COMMIT").await
}

/// The layout of the schema; 0: there is none.
async fn layout(client: &Client) -> Result<i32, StoreError> {
    let sql = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'whimbrel'), to_regclass('whimbrel.state') IS NOT NULL";
    let row = one(client, sql, &[]).await?;
    match (get(&row, 0)?, get(&row, 1)?) {
        (false, _) => Ok(0),
        (true, false) => Err(DatabaseFailure::OtherSchema { why: "it has no table `state`".into() }.into()),
        (true, true) => {
            let row = client.query_typed_opt("SELECT layout FROM whimbrel.state", &[]).await;
            let row = row.map_err(|e| failure_of(&e))?;
            let row =
                row.ok_or_else(|| DatabaseFailure::OtherSchema { why: "its table `state` is empty".into() })?;
            get(&row, 0)
        }
    }
}

/// Begins a change: no other one is made until it ends.
pub(crate) async fn begin_change(session: &Session) -> Result<(), StoreError> {
    let client = &session.client;
    batch(client, &format!("BEGIN; SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")).await?;
    let row = one(client, "SELECT key_check FROM whimbrel.state FOR UPDATE", &[]).await?;
    session.check_key(get(&row, 0)?)
}

/// Ends a change. If the connection is lost meanwhile, its outcome is unknown.
pub(crate) async fn commit(client: &Client) -> Result<(), StoreError> {
    client.batch_execute("COMMIT").await.map_err(|e| match is_lost(&e) {
        true => DatabaseFailure::UnknownOutcome.into(),
        false => store_error(&e),
    })
}

/// The number of the last change, within a change that was prepared at this position.
///
/// Errors: [`DatabaseFailure::Busy`] if the database was restored since.
async fn check_position(client: &Client, at: &ReplicaPosition) -> Result<i64, StoreError> {
    let sql = "SELECT database::text, generation, (SELECT mark::text FROM whimbrel.generation WHERE generation = $1) FROM whimbrel.state";
    let row = one(client, sql, &[(&at.generation, Type::INT8)]).await?;
    let (database, generation, mark) =
        (get::<String>(&row, 0)?, get::<i64>(&row, 1)?, get::<Option<String>>(&row, 2)?);
    let is_same = database == at.database && generation >= at.generation;
    if !is_same || (at.generation > 0 && mark.as_deref().is_some_and(|mark| mark != at.mark)) {
        // It was restored since the replica looked: the next look takes a full copy.
        return Err(DatabaseFailure::Busy.into());
    }
    Ok(generation)
}

/// Changes documents, of which none was changed since the position at which the replica read them.
pub(crate) async fn change_documents(
    session: &Session,
    at: &ReplicaPosition,
    changes: &[DocumentChange],
    committing: &Cell<bool>,
) -> Result<(), StoreError> {
    let client = &session.client;
    begin_change(session).await?;
    check_position(client, at).await?;
    let sql = "SELECT EXISTS (SELECT FROM whimbrel.change WHERE generation > $1 AND supi LIKE '%:%')";
    if get(&one(client, sql, &[(&at.generation, Type::INT8)]).await?, 0)? {
        return Err(StoreError::DocumentsChangedMeanwhile);
    }
    put_documents(client, changes, true).await?;
    committing.set(true);
    commit(client).await
}

async fn change(
    session: &Session,
    at: &ReplicaPosition,
    changes: &[SubscriberChange],
    committing: &Cell<bool>,
) -> Result<(), StoreError> {
    let client = &session.client;
    begin_change(session).await?;
    let generation = check_position(client, at).await?;
    let mut offsets: Vec<(String, i64)> = Vec::new();
    if generation > at.generation {
        let supis: Vec<&str> = changes.iter().map(|c| c.supi.as_str()).collect();
        for part in supis.chunks(CHUNK) {
            let sql = format!(
                "SELECT c.supi AS named, s.* FROM (SELECT DISTINCT supi FROM whimbrel.change WHERE generation > $1 AND supi = ANY ($2)) c \
                 LEFT JOIN (SELECT {COLUMNS} FROM whimbrel.subscriber) s ON s.supi = c.supi"
            );
            let values: [(&(dyn ToSql + Sync), Type); 2] =
                [(&at.generation, Type::INT8), (&part, Type::TEXT_ARRAY)];
            for row in client.query_typed(&sql, &values).await.map_err(|e| failure_of(&e))? {
                let now = optional_sealed(&row, 1)?;
                let named: &str = get(&row, 0)?;
                let before = changes.iter().find(|c| c.supi == named).and_then(|c| c.before.as_ref());
                let is_unchanged = match (&now, before) {
                    (Some(now), Some(before)) => now.equals_but_for_offset(before),
                    (None, None) => true,
                    _ => false,
                };
                if !is_unchanged {
                    let supi = named
                        .parse()
                        .map_err(|_| DatabaseFailure::Other { why: "a SUPI in it is none".into() })?;
                    return Err(StoreError::ChangedMeanwhile(supi));
                }
                offsets.extend(now.map(|now| (now.supi, now.sqn_offset)));
            }
        }
    }
    let removed: Vec<&str> = changes.iter().filter(|c| c.after.is_none()).map(|c| c.supi.as_str()).collect();
    if !removed.is_empty() {
        let sql = "DELETE FROM whimbrel.subscriber WHERE supi = ANY ($1)";
        client.execute_typed(sql, &[(&removed, Type::TEXT_ARRAY)]).await.map_err(|e| failure_of(&e))?;
    }
    let mut written: Vec<SealedSubscriber> = Vec::new();
    for one in changes {
        let Some(mut after) = one.after.clone() else { continue };
        // A resynchronisation at another home meanwhile stays, unless this change is about the offset.
        if one.before.as_ref().is_some_and(|before| before.sqn_offset == after.sqn_offset)
            && let Some((_, offset)) = offsets.iter().find(|(supi, _)| *supi == one.supi)
        {
            after.sqn_offset = *offset;
        }
        written.push(after);
    }
    for chunk in written.chunks(CHUNK) {
        let chunk: Vec<&SealedSubscriber> = chunk.iter().collect();
        put(client, &chunk, true).await?;
    }
    committing.set(true);
    commit(client).await
}

/// Writes subscribers within a transaction; returns how many.
async fn put(client: &Client, rows: &[&SealedSubscriber], replace: bool) -> Result<u64, StoreError> {
    fn column<'a, T>(rows: &[&'a SealedSubscriber], of: impl Fn(&'a SealedSubscriber) -> T) -> Vec<T> {
        rows.iter().map(|r| of(r)).collect()
    }
    let on_conflict = match replace {
        true => {
            "DO UPDATE SET msisdn = excluded.msisdn, status = excluded.status, algorithm = excluded.algorithm, auth = excluded.auth, \
             amf = excluded.amf, sqn_offset = excluded.sqn_offset, keys = excluded.keys, subscription = excluded.subscription"
        }
        false => "DO NOTHING",
    };
    let sql = format!(
        "INSERT INTO whimbrel.subscriber ({COLUMNS}) SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], \
         $7::bigint[], $8::bytea[], $9::text[]) ON CONFLICT (supi) {on_conflict}"
    );
    let supi = column(rows, |r| r.supi.as_str());
    let msisdn = column(rows, |r| r.msisdn.as_deref());
    let status = column(rows, |r| r.status.as_str());
    let algorithm = column(rows, |r| r.algorithm.as_str());
    let auth = column(rows, |r| r.auth.as_str());
    let amf = column(rows, |r| r.amf.as_slice());
    let sqn_offset = column(rows, |r| r.sqn_offset);
    let keys = column(rows, |r| r.keys.as_slice());
    let subscription = column(rows, |r| r.subscription.as_str());
    let (text, octets) = (Type::TEXT_ARRAY, Type::BYTEA_ARRAY);
    let values: [(&(dyn ToSql + Sync), Type); 9] = [
        (&supi, text.clone()),
        (&msisdn, text.clone()),
        (&status, text.clone()),
        (&algorithm, text.clone()),
        (&auth, text.clone()),
        (&amf, octets.clone()),
        (&sqn_offset, Type::INT8_ARRAY),
        (&keys, octets),
        (&subscription, text),
    ];
    client.execute_typed(&sql, &values).await.map_err(|e| failure_of(&e).into())
}

async fn merge(session: &Session, pending: &[(String, SqnOffset)]) -> Result<(), StoreError> {
    let client = &session.client;
    begin_change(session).await?;
    let supis: Vec<&str> = pending.iter().map(|(supi, _)| supi.as_str()).collect();
    let sql = "SELECT supi, sqn_offset FROM whimbrel.subscriber WHERE supi = ANY ($1)";
    let there = client.query_typed(sql, &[(&supis, Type::TEXT_ARRAY)]).await.map_err(|e| failure_of(&e))?;
    let (mut larger, mut offsets) = (Vec::new(), Vec::new());
    for row in &there {
        let (supi, now): (&str, i64) = (get(row, 0)?, get(row, 1)?);
        let own = pending.iter().find(|(p, _)| p == supi).map(|(_, offset)| *offset);
        if let Some(own) = own
            && later_offset(SqnOffset::new(now as u64), own) != SqnOffset::new(now as u64)
        {
            larger.push(supi);
            offsets.push(own.value() as i64);
        }
    }
    if !larger.is_empty() {
        let sql = "UPDATE whimbrel.subscriber s SET sqn_offset = n.sqn_offset FROM unnest($1::text[], $2::bigint[]) AS n (supi, sqn_offset) \
                   WHERE s.supi = n.supi";
        let values: [(&(dyn ToSql + Sync), Type); 2] =
            [(&larger, Type::TEXT_ARRAY), (&offsets, Type::INT8_ARRAY)];
        client.execute_typed(sql, &values).await.map_err(|e| failure_of(&e))?;
    }
    batch(client, "COMMIT").await
}

/// A page of subscribers.
pub(crate) async fn page(
    client: &Client,
    after: &str,
    limit: usize,
) -> Result<Vec<SealedSubscriber>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM whimbrel.subscriber WHERE supi > $1 ORDER BY supi LIMIT $2");
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let values: [(&(dyn ToSql + Sync), Type); 2] = [(&after, Type::TEXT), (&limit, Type::INT8)];
    let rows = client.query_typed(&sql, &values).await.map_err(|e| failure_of(&e))?;
    rows.iter()
        .map(|row| {
            optional_sealed(row, 0)?
                .ok_or_else(|| DatabaseFailure::OtherSchema { why: "a row has no SUPI".into() }.into())
        })
        .collect()
}

/// The subscriber in the columns from `at` on.
pub(crate) fn optional_sealed(row: &Row, at: usize) -> Result<Option<SealedSubscriber>, StoreError> {
    let Some(supi) = get::<Option<String>>(row, at)? else { return Ok(None) };
    Ok(Some(SealedSubscriber {
        supi,
        msisdn: get(row, at + 1)?,
        status: get(row, at + 2)?,
        algorithm: get(row, at + 3)?,
        auth: get(row, at + 4)?,
        amf: get(row, at + 5)?,
        sqn_offset: get(row, at + 6)?,
        keys: get(row, at + 7)?,
        subscription: get(row, at + 8)?,
    }))
}

/// A column. Errors: another type, in a schema that is not ours.
pub(crate) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    at: usize,
) -> Result<T, StoreError> {
    row.try_get(at).map_err(|e| DatabaseFailure::OtherSchema { why: e.to_string() }.into())
}

pub(crate) async fn batch(client: &Client, sql: &str) -> Result<(), StoreError> {
    client.batch_execute(sql).await.map_err(|e| failure_of(&e).into())
}

pub(crate) async fn one(
    client: &Client,
    sql: &str,
    values: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Row, StoreError> {
    client.query_typed_one(sql, values).await.map_err(|e| failure_of(&e).into())
}
