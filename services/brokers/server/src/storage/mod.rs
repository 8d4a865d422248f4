//! What a broker must not lose: users and their counters, epoch keys, operators, answers, grants.
//!
//! [`Storage`] is what the broker needs of a database; [`Sqlite`] is the embedded one. Each method is one transaction.

mod sqlite;
mod usage;

use core::fmt;
use std::path::PathBuf;

use whimbrel_ids::{Instant, Supi};
use whimbrel_open::broker::{HomeUser, Record, User};
use whimbrel_open::crypto::PrivateKey;
use whimbrel_open::id::{OperatorId, UserId};
use whimbrel_open::msg::Grant;
use whimbrel_security::{AkaFunctions, K, Milenage, Opc};

pub use sqlite::Sqlite;
pub(crate) use sqlite::{octets as octets_of, open_configured};
pub use usage::{NamedStanding, UsageBatch, UsageState, UsageStorage};

/// How long a grant stays after its end, for settlement: 90 days.
pub const GRANT_KEPT_S: u64 = 90 * 86_400;

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

/// A user with a USIM, and the keys from which its vectors are made.
#[derive(Clone, Debug)]
pub struct NamedHomeUser {
    /// The name, unique at this broker.
    pub name: String,
    /// SUPI of the subscriber.
    pub supi: Supi,
    /// K and OPc of Milenage (TS 35.206). Redacted in `Debug`.
    pub keys: UsimKeys,
    /// The rest; its functions are those of the keys.
    pub user: HomeUser,
}

/// K and OPc.
#[derive(Clone, PartialEq, Eq, zeroize::Zeroize, zeroize::ZeroizeOnDrop)]
pub struct UsimKeys {
    /// The permanent key K.
    pub k: [u8; 16],
    /// OPc of the USIM.
    pub opc: [u8; 16],
}

impl fmt::Debug for UsimKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UsimKeys(…)")
    }
}

impl UsimKeys {
    /// The functions that they key.
    pub fn functions(&self) -> AkaFunctions {
        Milenage::new(&K::new(self.k), Opc::new(self.opc)).into()
    }
}

/// What the broker knows of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownOperator {
    /// PLMN and NID.
    pub id: OperatorId,
    /// Whether it is allowed where the policy allows only operators that are listed.
    pub allowed: bool,
    /// Its reputation; `None` is that of a newcomer.
    pub reputation: Option<u16>,
}

/// A key to which users seal their requests.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// Identifier of the epoch.
    pub id: u8,
    /// The private key.
    pub key: PrivateKey,
    /// When it began, in seconds since the Unix epoch.
    pub begun_s: u64,
}

/// A grant that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenGrant {
    /// Name of the user.
    pub user: String,
    /// Identity of the operator as text.
    pub operator: String,
    /// The session's pseudonym.
    pub pseudonym: [u8; 16],
    /// First and last second of its validity.
    pub validity_s: (u64, u64),
}

/// All that a broker needs to go on where it stopped.
#[derive(Debug)]
pub struct StoredBroker {
    /// The key of tickets.
    pub ticket_key: [u8; 16],
    /// Epoch keys, oldest first; the last is the current one. Never empty.
    pub epochs: Vec<Epoch>,
    /// All users with their names.
    pub users: Vec<NamedUser>,
    /// Users with a USIM.
    pub home_users: Vec<NamedHomeUser>,
    /// All operators that are known.
    pub operators: Vec<KnownOperator>,
    /// Answers that may be asked for again, oldest first.
    pub answers: Vec<Record>,
}

/// What another process changed.
#[derive(Debug)]
pub struct Changes {
    /// The users that were added or changed.
    pub users: Vec<NamedUser>,
    /// The users with a USIM that were added or changed.
    pub home_users: Vec<NamedHomeUser>,
    /// The operators that are known.
    pub operators: Vec<KnownOperator>,
    /// All epoch keys, oldest first.
    pub epochs: Vec<Epoch>,
}

/// An answer to be made durable before it leaves.
#[derive(Debug)]
pub struct UnstoredAnswer {
    /// The answer, and the counter or SQN that it used up.
    pub record: Record,
    /// The lowest number of the user's tickets that is not used up; 0 of an ordinary UE, which has none.
    pub ticket: u64,
    /// What was granted, unless it is a refusal.
    pub grant: Option<Grant>,
}

/// A broker's database.
pub trait Storage: UsageStorage + Send {
    /// Reads everything. Makes the first epoch key and the ticket key where there are none.
    fn load(&mut self, now: Instant) -> Result<StoredBroker, StorageError>;
    /// What other processes changed since the last look; `None` if nothing.
    fn changes(&mut self) -> Result<Option<Changes>, StorageError>;
    /// Makes answers durable, all in one transaction.
    fn commit(&mut self, batch: &[UnstoredAnswer]) -> Result<(), StorageError>;
    /// Deletes answers that are too old to be asked for again, and grants that are settled.
    fn tidy(&mut self, now: Instant) -> Result<(), StorageError>;

    /// Adds users, all or none.
    fn add_users(&mut self, users: &[NamedUser]) -> Result<(), StorageError>;
    /// Up to `limit` users whose name comes after `after`.
    fn list_users(&mut self, after: &str, limit: usize) -> Result<Vec<NamedUser>, StorageError>;
    /// The user of this name.
    fn user(&mut self, name: &str) -> Result<NamedUser, StorageError>;
    /// Adds a user with a USIM.
    fn add_home_user(&mut self, user: &NamedHomeUser) -> Result<(), StorageError>;
    /// All users with a USIM, by name.
    fn home_users(&mut self) -> Result<Vec<NamedHomeUser>, StorageError>;
    /// Revokes a user's key, or ends the subscription of a USIM.
    fn revoke_user(&mut self, name: &str) -> Result<(), StorageError>;
    /// Adds an operator or replaces what is known of it.
    fn set_operator(&mut self, operator: KnownOperator) -> Result<(), StorageError>;
    /// Removes an operator.
    fn remove_operator(&mut self, id: OperatorId) -> Result<(), StorageError>;
    /// All operators that are known.
    fn operators(&mut self) -> Result<Vec<KnownOperator>, StorageError>;
    /// All epoch keys, oldest first.
    fn epochs(&mut self) -> Result<Vec<Epoch>, StorageError>;
    /// Begins an epoch with a new key.
    fn begin_epoch(&mut self, key: PrivateKey, now: Instant) -> Result<u8, StorageError>;
    /// Ends an epoch and destroys its key.
    fn end_epoch(&mut self, id: u8) -> Result<(), StorageError>;
    /// The latest grants, newest first.
    fn grants(&mut self, limit: usize) -> Result<Vec<GivenGrant>, StorageError>;
}

/// Why the database did not do what was asked. Nothing is half-done.
#[derive(Debug)]
pub enum StorageError {
    /// The file cannot be opened or created.
    Denied(PathBuf, std::io::Error),
    /// The file is no broker's database, or is damaged.
    Corrupt(PathBuf),
    /// A later version of this program wrote the file.
    Newer(PathBuf, i64),
    /// The database failed.
    Sqlite(PathBuf, rusqlite::Error),
    /// There is a user of this name or identity already.
    UserExists(String),
    /// There is no such user.
    UnknownUser(String),
    /// There is no such operator.
    UnknownOperator(OperatorId),
    /// There is no such epoch key.
    UnknownEpoch(u8),
    /// The current epoch cannot end.
    CurrentEpoch(u8),
    /// All 256 key identifiers are in use.
    EpochsFull,
    /// The system gives no random octets.
    NoRandomness(String),
    /// The log of issuing keys takes no such entry; why.
    Log(String),
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(path, e) => write!(f, "{} cannot be opened: {e}", path.display()),
            Self::Corrupt(path) => {
                write!(f, "{} is no broker's database or is damaged; restore a copy", path.display())
            }
            Self::Newer(path, version) => write!(
                f,
                "{} has layout {version}, which a later version of this program wrote; use that version",
                path.display()
            ),
            Self::Sqlite(path, e) => write!(f, "{}: {e}", path.display()),
            Self::UserExists(name) => write!(f, "there is a user {name} already; choose another name"),
            Self::UnknownUser(name) => {
                write!(f, "there is no user {name}; `whimbrel-broker user list` shows all")
            }
            Self::UnknownOperator(id) => {
                write!(f, "operator {id} is not listed; `whimbrel-broker operator list` shows all")
            }
            Self::UnknownEpoch(id) => {
                write!(f, "there is no epoch key {id}; `whimbrel-broker epoch list` shows all")
            }
            Self::CurrentEpoch(id) => {
                write!(f, "epoch {id} is the current one; begin another with `whimbrel-broker epoch begin`")
            }
            Self::EpochsFull => f.write_str("all 256 key identifiers are in use; end epochs first"),
            Self::NoRandomness(e) | Self::Log(e) => f.write_str(e),
        }
    }
}

impl core::error::Error for StorageError {}
