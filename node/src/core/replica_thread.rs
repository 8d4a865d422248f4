//! The thread that brings the subscribers' file up to date with the PostgreSQL database of which it is a replica.
//!
//! UEs are served from the file, and nothing of a UE waits for this thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_postgres::PostgresDatabase;
use whimbrel_store::{DatabaseFailure, SharedStore, Store, StoreError};

use crate::config::StoreConfig;
use crate::observation::{Condition, Console, Metric};
use crate::subscribers;

/// Between two looks at the log of changes. A notification of the database comes sooner, but a connection pooler or a lost connection passes none on.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Between two attempts at a database that refuses until the operator changes something, such as a password.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The running thread. Dropped, it ends within a second or with its request.
pub struct ReplicaThread {
    stop: Arc<AtomicBool>,
    _thread: JoinHandle<()>,
}

impl ReplicaThread {
    /// Starts it, if the configuration names a database. Errors: one sentence.
    pub fn start(config: &StoreConfig, console: &Arc<Console>) -> Result<Option<Self>, String> {
        let Some(settings) = &config.postgres else { return Ok(None) };
        let database = PostgresDatabase::new(settings.clone())?;
        let replica = subscribers::open(config)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut following =
            Following { hosts: database.hosts(), database, replica, console: console.clone(), logged: None };
        // Once before any UE is served: a subscriber that was added while this core was stopped is not to be refused.
        following.look();
        let until = stop.clone();
        let thread = std::thread::Builder::new().name("postgres".into()).spawn(move || {
            while !until.load(Ordering::Relaxed) {
                following.turn();
            }
        });
        let thread =
            thread.map_err(|e| format!("the thread that follows PostgreSQL cannot be started: {e}"))?;
        Ok(Some(Self { stop, _thread: thread }))
    }
}

impl Drop for ReplicaThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Following {
    database: PostgresDatabase,
    replica: Store,
    console: Arc<Console>,
    hosts: String,
    /// The failure that was logged last; none: it answers.
    logged: Option<String>,
}

impl Following {
    fn turn(&mut self) {
        match self.look() {
            None => {
                self.database.listen();
                self.database.wait(LOOK_INTERVAL);
            }
            Some(pause) => std::thread::sleep(pause),
        }
    }

    /// Brings the replica up to date; if that fails, the time after which to try again.
    fn look(&mut self) -> Option<Duration> {
        let looked = self.database.catch_up(&mut self.replica);
        let looked = looked.and_then(|()| self.database.merge_offsets(&mut self.replica));
        if let Some(copy) = self.database.take_copy() {
            match copy.differences.saved {
                Some(_) => warn!("{copy}"),
                None => info!("{copy}"),
            }
        }
        match looked {
            Ok(merged) => {
                if merged > 0 {
                    info!(merged, "SQN offsets of resynchronised UEs are in PostgreSQL");
                }
                self.answered();
                None
            }
            Err(e) => {
                let passes = matches!(&e, StoreError::Database(failure) if failure.passes());
                self.failed(&e);
                self.console.metrics.add(Metric::PostgresFailures, 1);
                Some(if passes { LOOK_INTERVAL } else { RETRY_INTERVAL })
            }
        }
    }

    fn answered(&mut self) {
        if self.logged.take().is_some() {
            info!("PostgreSQL answers: the subscribers of this home are as it has them");
        }
        let number = self.replica.replica_position().ok().flatten().map_or(0, |at| at.generation);
        let saved = self.replica.saved_before_loss();
        match saved.first() {
            None => self.show(Condition::Up, format!("change {number} of PostgreSQL at {} is in force", self.hosts)),
            Some(saved) => self.show(
                Condition::Limited,
                format!(
                    "PostgreSQL has lost changes; what this home had before is in {0}: compare it, bring back what is missing with `whimbrel store copy \
                     {0} postgres --on-existing skip`, and then remove the file",
                    saved.display()
                ),
            ),
        }
    }

    fn failed(&mut self, e: &StoreError) {
        let sentence = match self.replica.replica_position() {
            // A new home has no subscribers to serve yet.
            Ok(None) if matches!(e, StoreError::Database(DatabaseFailure::Unreachable { .. })) => {
                format!("{e}; this home has no subscribers before PostgreSQL has answered once")
            }
            _ => e.to_string(),
        };
        // What follows the first sentence of a failure, such as the reason of a connection, may change with each attempt.
        if self.logged.as_ref() != Some(&sentence) {
            warn!("{sentence}");
            self.logged = Some(sentence.clone());
        }
        self.show(Condition::Limited, sentence);
    }

    fn show(&self, condition: Condition, sentence: String) {
        self.console.components(|c| c.set("postgres", condition, sentence));
    }
}
