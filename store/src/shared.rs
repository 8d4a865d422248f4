//! A database that several homes share, of which each home's file is a replica: the operations that a store asks for, and how it fails.

use core::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::documents::DocumentChange;
use crate::error::StoreError;
use crate::store::Store;

/// A subscriber as it is stored, its keys sealed: the same octets in the shared database and in each replica.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedSubscriber {
    /// Digits of the SUPI.
    pub supi: String,
    /// Digits of the MSISDN.
    pub msisdn: Option<String>,
    /// `enabled` or `barred`.
    pub status: String,
    /// Authentication algorithm of the USIM.
    pub algorithm: String,
    /// Authentication method that the UDM chooses.
    pub auth: String,
    /// Authentication management field, two octets.
    pub amf: Vec<u8>,
    /// Offset of SEQ, under 2^43.
    pub sqn_offset: i64,
    /// K and the operator's code, sealed for this SUPI. Sealed again they have other octets.
    pub keys: Vec<u8>,
    /// JSON of the subscription.
    pub subscription: String,
}

impl SealedSubscriber {
    /// True if two differ in their SQN offset at most.
    pub fn equals_but_for_offset(&self, other: &Self) -> bool {
        Self { sqn_offset: other.sqn_offset, ..self.clone() } == *other
    }
}

/// The octets are of a subscriber and stay out of logs.
impl fmt::Debug for SealedSubscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealedSubscriber")
    }
}

/// A change of one subscriber that a replica asks the shared database for.
#[derive(Debug)]
pub struct SubscriberChange {
    /// Digits of the SUPI.
    pub supi: String,
    /// The subscriber in the replica; `None`: there is none.
    pub before: Option<SealedSubscriber>,
    /// The subscriber afterwards; `None`: it is removed.
    pub after: Option<SealedSubscriber>,
}

/// The point of the shared database's log up to which a replica has all changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaPosition {
    /// Random name of the set of subscribers, made with it and kept by dumps and backups.
    pub database: String,
    /// Identifier of the database system; a restored dump is in another one.
    pub system: i64,
    /// Timeline of the system: a promotion and a restored base backup begin another one.
    pub timeline: i32,
    /// Number of the last change. They have no gaps, and their order is that of their commits.
    pub generation: i64,
    /// Random name of that change: a database that lost it and took others has another one under this number.
    pub mark: String,
}

/// The database that several homes share, as the store of one home uses it.
pub trait SharedStore: Send {
    /// Brings the replica up to date.
    ///
    /// Errors: [`StoreError::Database`]; those of the replica's file.
    fn catch_up(&mut self, replica: &mut Store) -> Result<(), StoreError>;

    /// Makes changes that were prepared by a replica at this position: all of them, or none.
    ///
    /// Errors: [`StoreError::ChangedMeanwhile`]; [`StoreError::MsisdnTaken`]; [`StoreError::Database`].
    fn commit(
        &mut self,
        replica: &Store,
        at: &ReplicaPosition,
        changes: &[SubscriberChange],
    ) -> Result<(), StoreError>;

    /// Makes changes of sealed documents that were prepared by a replica at this position: all of them, or none.
    ///
    /// Errors: [`StoreError::DocumentsChangedMeanwhile`]: any document was changed since; [`StoreError::Database`].
    fn commit_documents(
        &mut self,
        replica: &Store,
        at: &ReplicaPosition,
        changes: &[DocumentChange],
    ) -> Result<(), StoreError>;
}

/// Changes that the log of the database names, each with what it is now; `None`: it was removed.
#[derive(Debug, Default)]
pub struct DatabaseChanges {
    /// Subscribers, by the digits of their SUPIs.
    pub subscribers: Vec<(String, Option<SealedSubscriber>)>,
    /// Documents, by their names.
    pub documents: Vec<DocumentChange>,
}

/// Why the shared database cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatabaseFailure {
    /// No connection, or it was lost.
    Unreachable {
        /// The system's sentence.
        why: String,
    },
    /// No answer came in time; nothing was changed.
    Late {
        /// How long was waited.
        after: Duration,
    },
    /// The connection was lost, or no answer came, while a change was being made.
    UnknownOutcome,
    /// User or password are refused.
    Login {
        /// The database's sentence.
        why: String,
    },
    /// The user may not do this.
    NotPermitted {
        /// The database's sentence.
        why: String,
    },
    /// All servers that answer are replicas of the primary, or the database is read-only.
    ReadOnly,
    /// Another writer keeps the database locked.
    Busy,
    /// The schema `whimbrel` of the database is not this program's.
    OtherSchema {
        /// The difference that was found.
        why: String,
    },
    /// A later version of this program made the schema.
    NewerSchema {
        /// Layout of the schema.
        layout: i32,
        /// The newest layout that this program knows.
        known: i32,
    },
    /// The subscribers in it were sealed with another key.
    OtherKey {
        /// The key file in force.
        key_file: PathBuf,
    },
    /// The subscribers in it are sealed with the former key of the key file: a rotation was not finished.
    FormerKey,
    /// The file is the replica of another database.
    OtherDatabase {
        /// Path of the replica's file.
        path: PathBuf,
    },
    /// The file has subscribers, users or tokens of its own, which a replica would lose.
    OwnSubscribers {
        /// The subscribers' file.
        path: PathBuf,
        /// How many of its subscribers, users and tokens are not in the database.
        count: u64,
    },
    /// Another home has the AMF identifier of this one.
    AmfTaken {
        /// Name of the other home.
        by: String,
        /// Seconds since it was connected to PostgreSQL last.
        seconds_ago: u64,
    },
    /// A home is not to be removed while it runs.
    HomeRuns {
        /// Name of the home.
        name: String,
    },
    /// There is no such home.
    NoSuchHome,
    /// Another error of the database.
    Other {
        /// The database's sentence.
        why: String,
    },
}

impl DatabaseFailure {
    /// True if the same may succeed later without a change.
    pub fn passes(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Late { .. }
                | Self::UnknownOutcome
                | Self::Busy
                | Self::ReadOnly
                | Self::AmfTaken { .. }
                | Self::Other { .. }
        )
    }
}

impl fmt::Display for DatabaseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { why } => {
                write!(f, "PostgreSQL cannot be reached ({why}), so no subscriber can be changed; UEs are served on")
            }
            Self::Late { after } => write!(
                f,
                "PostgreSQL did not answer within {} s: nothing was changed; UEs are served on",
                after.as_secs()
            ),
            Self::UnknownOutcome => f.write_str(
                "the connection to PostgreSQL was lost while the change was being made: look at the subscriber once PostgreSQL answers, \
                 the change was made whole or not at all",
            ),
            Self::Login { why } => write!(
                f,
                "PostgreSQL refuses the login ({why}): correct the user in store.postgres or the password in store.postgres_password_file"
            ),
            Self::NotPermitted { why } => write!(
                f,
                "PostgreSQL does not permit this to the user of store.postgres ({why}): make that user the owner of the database"
            ),
            Self::ReadOnly => f.write_str(
                "PostgreSQL is read-only (a replica of the primary, or default_transaction_read_only), so no subscriber can be changed: promote a replica, or \
                 name the primary in store.postgres; UEs are served on",
            ),
            Self::Busy => f.write_str(
                "another change, such as an import, keeps PostgreSQL's subscribers locked: nothing was changed; try again when it has ended",
            ),
            Self::OtherSchema { why } => write!(
                f,
                "the schema `whimbrel` of the PostgreSQL database is not this program's ({why}): name another database in store.postgres"
            ),
            Self::NewerSchema { layout, known } => write!(
                f,
                "the subscribers in PostgreSQL have layout {layout}, which a later version of this program wrote, and this one knows {known}: use \
                 that version; UEs are served on"
            ),
            Self::OtherKey { key_file } => write!(
                f,
                "the key file {} is not the one that sealed the subscribers in PostgreSQL: all homes need the same key file; UEs are \
                 served on from what this home has",
                key_file.display()
            ),
            Self::FormerKey => f.write_str(
                "the subscribers in PostgreSQL are still sealed with the former key of the key file: finish `whimbrel store rotate-key`; UEs are served on",
            ),
            Self::OtherDatabase { path } => write!(
                f,
                "{} is the replica of another PostgreSQL database than that of store.postgres: correct store.postgres, or move the file away \
                 for a new replica",
                path.display()
            ),
            Self::OwnSubscribers { path, count } => write!(
                f,
                "{count} subscribers, users or tokens in {} are not in PostgreSQL, and a replica would lose them: copy them with `whimbrel store copy`, or move \
                 the file away",
                path.display()
            ),
            Self::AmfTaken { by, seconds_ago } => write!(
                f,
                "the home {by}, which was connected to PostgreSQL {seconds_ago} s ago, has the AMF identifier of this one, so this home changes no subscriber and \
                 writes no registration: give one of them another amf.pointer, or stop the other; UEs are served on"
            ),
            Self::HomeRuns { name } => {
                write!(f, "the home {name} runs, and was not removed: stop it first, and try again after 30 s")
            }
            Self::NoSuchHome => {
                f.write_str("PostgreSQL has no home of this AMF: `whimbrel store homes` lists them")
            }
            Self::Other { why } => write!(f, "PostgreSQL refuses: {why}"),
        }
    }
}

impl From<DatabaseFailure> for StoreError {
    fn from(failure: DatabaseFailure) -> Self {
        Self::Database(failure)
    }
}
