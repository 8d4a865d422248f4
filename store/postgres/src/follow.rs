//! How a replica is brought up to date.

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};
use whimbrel_store::{
    CopyDifferences, CopyKind, DatabaseChanges, DatabaseFailure, ReplicaPosition, Store, StoreError,
    is_document,
};

use crate::database::{CHUNK, COLUMNS, PostgresDatabase, Session, get, one, optional_sealed, page, within};
use crate::documents::all_documents;
use crate::failure::failure_of;
use crate::schema::{CHANGES_KEPT, LAYOUT};

/// Changed subscribers that are read at once; after more, all are copied page by page. They take 20 MB of memory.
const CHANGED_MAX: i64 = 16_384;
/// Looks in a row in which another process of the host was faster.
const TRIES: usize = 8;

/// The reason of a full copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyReason {
    /// There was none.
    First,
    /// The log of changes does not reach back to where the replica was, or too many changed at once.
    LogCut,
    /// The database is in another system: a dump was restored.
    OtherSystem,
    /// Another timeline: a replica server was promoted, or a base backup restored.
    OtherTimeline,
    /// The database lacks changes that the replica has.
    Lost {
        /// The number of the last change that the replica had.
        had: i64,
        /// That of the database.
        has: i64,
    },
}

/// A full copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaughtUp {
    /// Reason of the copy.
    pub reason: CopyReason,
    /// Changes that it made in the replica.
    pub differences: CopyDifferences,
}

impl std::fmt::Display for CaughtUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let changed = self.differences.changed;
        match &self.reason {
            CopyReason::First => {
                write!(f, "{changed} subscribers were copied from PostgreSQL for the first time")?
            }
            CopyReason::LogCut => {
                write!(
                    f,
                    "all subscribers were compared with PostgreSQL, as more were changed than its log names: {changed} were taken over"
                )?;
            }
            CopyReason::OtherSystem => {
                write!(f, "PostgreSQL was restored from a dump: {changed} subscribers differed")?
            }
            CopyReason::OtherTimeline => write!(
                f,
                "a replica server of PostgreSQL was promoted, or a backup of it restored, and no change is lost: {changed} subscribers differed"
            )?,
            CopyReason::Lost { had, has } => write!(
                f,
                "PostgreSQL has lost changes: it was restored from a backup, or is a replica server that lagged when it was promoted (change {had} was seen \
                 here, and its last one now is another one, {has}): {changed} subscribers differed"
            )?,
        }
        match self.differences.documents {
            0 => {}
            count => write!(f, ", and {count} users of the console and API tokens")?,
        }
        if let Some(saved) = &self.differences.saved {
            write!(
                f,
                ", the first {}; what they were is in {}: `whimbrel store copy {} postgres --on-existing skip` brings back those that are missing",
                self.differences.first.as_deref().unwrap_or("?"),
                saved.display(),
                saved.display()
            )?;
        }
        Ok(())
    }
}

/// The state of the database, by its own answer.
struct DatabaseState {
    position: ReplicaPosition,
    /// The mark of the change that the replica had last.
    mark_of_own: Option<String>,
}

/// Brings a replica up to date; returns what a full copy did, if one was needed.
pub(crate) fn catch_up(
    db: &mut PostgresDatabase,
    replica: &mut Store,
) -> Result<Option<CaughtUp>, StoreError> {
    let mut reason = None;
    for _ in 0..TRIES {
        let own = replica.replica_position()?;
        let generation = own.as_ref().map_or(0, |own| own.generation);
        let state = db.run(within(0), replica, async |s| state(s, generation).await)?;
        let Some(own) = own else {
            check_own_subscribers(db, replica)?;
            return copy(db, replica, CopyReason::First, CopyKind::Complete, &state.position).map(Some);
        };
        let now = &state.position;
        if now.database != own.database {
            return Err(DatabaseFailure::OtherDatabase { path: replica.path().to_owned() }.into());
        }
        let is_named = now.generation - own.generation < CHANGES_KEPT;
        let is_other = own.generation > 0 && is_named && state.mark_of_own.as_ref() != Some(&own.mark);
        if now.generation < own.generation || is_other {
            let lost = CopyReason::Lost { had: own.generation, has: now.generation };
            return copy(db, replica, lost, CopyKind::AfterLoss, now).map(Some);
        }
        if now.system != own.system {
            reason = Some(CopyReason::OtherSystem);
        } else if now.timeline != own.timeline {
            reason = Some(CopyReason::OtherTimeline);
        }
        if now.generation == own.generation {
            // All changes that the log names are here: what differs now is no change that this home has yet to see.
            return reason.map(|reason| copy(db, replica, reason, CopyKind::AfterLoss, now)).transpose();
        }
        let count = match is_named {
            true => db.run(within(0), replica, async |s| changed(&s.client, &own, now).await)?,
            false => i64::MAX,
        };
        if count > CHANGED_MAX {
            return copy(db, replica, CopyReason::LogCut, CopyKind::Complete, now).map(Some);
        }
        let of = within(usize::try_from(count).unwrap_or(0));
        let changes = db.run(of, replica, async |s| changes(&s.client, &own, now).await)?;
        // The system stays as it was seen, until the replica was compared with the other one.
        let to = match reason {
            Some(_) => ReplicaPosition { system: own.system, timeline: own.timeline, ..now.clone() },
            None => now.clone(),
        };
        if replica.apply(&own, &changes, &to)? && reason.is_none() {
            return Ok(None);
        }
    }
    // Another process of this host brings the replica up to date.
    Ok(None)
}

async fn state(session: &Session, generation: i64) -> Result<DatabaseState, StoreError> {
    let client = &session.client;
    let sql = "SELECT s.database::text, (SELECT system_identifier FROM pg_control_system()), (SELECT timeline_id FROM pg_control_checkpoint()), \
               s.generation, (SELECT mark::text FROM whimbrel.generation g WHERE g.generation = s.generation), \
               (SELECT mark::text FROM whimbrel.generation g WHERE g.generation = $1), s.layout, s.key_check FROM whimbrel.state s";
    let row = one(client, sql, &[(&generation, Type::INT8)]).await?;
    // Another home may have brought a later version while this connection was open.
    let layout: i32 = get(&row, 6)?;
    if layout > LAYOUT {
        return Err(DatabaseFailure::NewerSchema { layout, known: LAYOUT }.into());
    }
    session.check_key(get(&row, 7)?)?;
    let position = ReplicaPosition {
        database: get(&row, 0)?,
        system: get(&row, 1)?,
        timeline: get(&row, 2)?,
        generation: get(&row, 3)?,
        mark: get::<Option<String>>(&row, 4)?.unwrap_or_default(),
    };
    Ok(DatabaseState { position, mark_of_own: get(&row, 5)? })
}

/// The number of names in the log between two positions.
async fn changed(client: &Client, from: &ReplicaPosition, to: &ReplicaPosition) -> Result<i64, StoreError> {
    let sql = "SELECT count(*) FROM whimbrel.change WHERE generation > $1 AND generation <= $2";
    let values: [(&(dyn ToSql + Sync), Type); 2] =
        [(&from.generation, Type::INT8), (&to.generation, Type::INT8)];
    get(&one(client, sql, &values).await?, 0)
}

async fn changes(
    client: &Client,
    from: &ReplicaPosition,
    to: &ReplicaPosition,
) -> Result<DatabaseChanges, StoreError> {
    let sql = format!(
        "SELECT c.supi AS named, d.content, s.* FROM (SELECT DISTINCT supi FROM whimbrel.change WHERE generation > $1 AND generation <= $2) c \
         LEFT JOIN whimbrel.document d ON d.name = c.supi \
         LEFT JOIN (SELECT {COLUMNS} FROM whimbrel.subscriber) s ON s.supi = c.supi"
    );
    let values: [(&(dyn ToSql + Sync), Type); 2] =
        [(&from.generation, Type::INT8), (&to.generation, Type::INT8)];
    let rows = client.query_typed(&sql, &values).await.map_err(|e| failure_of(&e))?;
    let mut changes = DatabaseChanges::default();
    for row in &rows {
        let name: String = get(row, 0)?;
        match is_document(&name) {
            true => changes.documents.push((name, get(row, 1)?)),
            false => changes.subscribers.push((name, optional_sealed(row, 2)?)),
        }
    }
    Ok(changes)
}

/// Subscribers, users and tokens of a file that was no replica must be in the database, too: the replica would lose them.
fn check_own_subscribers(db: &mut PostgresDatabase, replica: &Store) -> Result<(), StoreError> {
    let mut missing = 0;
    for part in replica.all_imsis()?.chunks(CHUNK) {
        let there = db.run(within(part.len()), replica, async |s| {
            let sql = "SELECT count(*) FROM whimbrel.subscriber WHERE supi = ANY ($1)";
            get::<i64>(&one(&s.client, sql, &[(&part, Type::TEXT_ARRAY)]).await?, 0)
        })?;
        missing += (part.len() as u64).saturating_sub(there.unsigned_abs());
    }
    let own = replica.sealed_documents()?;
    if !own.is_empty() {
        let there = db.run(within(0), replica, async |s| all_documents(&s.client).await)?;
        missing += own.iter().filter(|own| !there.iter().any(|row| row.name == own.name)).count() as u64;
    }
    match missing {
        0 => Ok(()),
        count => Err(DatabaseFailure::OwnSubscribers { path: replica.path().to_owned(), count }.into()),
    }
}

/// Copies all subscribers, page by page. What changes meanwhile is in the log after `to`, and is read again from there.
fn copy(
    db: &mut PostgresDatabase,
    replica: &mut Store,
    reason: CopyReason,
    kind: CopyKind,
    to: &ReplicaPosition,
) -> Result<CaughtUp, StoreError> {
    let mut differences = CopyDifferences::default();
    let mut after = String::new();
    loop {
        let rows = db.run(within(CHUNK), replica, async |s| page(&s.client, &after, CHUNK).await)?;
        let last = rows.last().filter(|_| rows.len() == CHUNK).map(|row| row.supi.clone());
        replica.apply_page(&after, last.as_deref(), &rows, kind, &mut differences)?;
        match last {
            Some(last) => after = last,
            None => break,
        }
    }
    let documents = db.run(within(0), replica, async |s| all_documents(&s.client).await)?;
    replica.apply_all_documents(&documents, kind, &mut differences)?;
    replica.set_replica_position(to)?;
    Ok(CaughtUp { reason, differences })
}
