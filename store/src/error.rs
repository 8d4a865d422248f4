//! Errors of a store, each with one sentence of the fact and the remedy.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};
use whimbrel_ids::Supi;

use crate::import::BadLine;
use crate::record::InvalidRecord;
use crate::shared::DatabaseFailure;

/// An error of an operation. Each operation is one transaction, so nothing is half-done.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The subscribers' file exists, its key file does not.
    KeyFileMissing {
        /// Where it was looked for.
        key_file: PathBuf,
        /// The subscribers' file.
        path: PathBuf,
    },
    /// The key file holds no key.
    KeyFileInvalid {
        /// Path of the key file.
        key_file: PathBuf,
    },
    /// Others can read the key file.
    KeyFileExposed {
        /// Path of the key file.
        key_file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The subscribers' keys were sealed with another key file.
    WrongKeyFile {
        /// The file given.
        key_file: PathBuf,
        /// The subscribers' file.
        path: PathBuf,
    },
    /// The file is no store, or is damaged.
    Corrupt {
        /// The subscribers' file.
        path: PathBuf,
    },
    /// The file was written by a later version of this program.
    Newer {
        /// The subscribers' file.
        path: PathBuf,
        /// The version of its layout.
        version: i64,
    },
    /// Subscribers have what the previous layout cannot hold.
    NotInPreviousLayout {
        /// Number of subscribers that have it.
        subscribers: u64,
        /// What they have.
        what: &'static str,
    },
    /// Another process kept the file locked.
    Locked {
        /// The subscribers' file.
        path: PathBuf,
    },
    /// No room is left.
    DiskFull {
        /// The subscribers' file.
        path: PathBuf,
    },
    /// The file may not be read or written, or its folder is absent.
    Denied {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: Option<io::Error>,
    },
    /// The SUPI is in the store already.
    Exists(Supi),
    /// The SUPI is not in the store.
    Unknown(Supi),
    /// Another subscriber has this MSISDN.
    MsisdnTaken,
    /// An edit changed the SUPI.
    SupiChanged(Supi),
    /// The record is not valid.
    Invalid(InvalidRecord),
    /// Lines of an import are not valid; nothing was imported.
    Import(Vec<BadLine>),
    /// Reading an import or writing an export failed.
    Io(io::Error),
    /// Another user changed the subscriber in the shared database at the same moment.
    ChangedMeanwhile(Supi),
    /// A user of the console or a token was changed at the same moment, here or at another home.
    DocumentsChangedMeanwhile,
    /// A subscriber's keys or a document were sealed with another key, or are damaged.
    Unreadable(String),
    /// The former key is still needed.
    NeedsFormerKey {
        /// The subscribers' file.
        path: PathBuf,
    },
    /// The file is the replica of a database that the configuration does not name.
    Replica {
        /// The subscribers' file.
        path: PathBuf,
    },
    /// The database that several homes share cannot be used.
    Database(DatabaseFailure),
    /// No random octets could be had from the system.
    NoRandomness,
    /// Another error of SQLite.
    Sqlite {
        /// The subscribers' file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyFileMissing { key_file, path } => write!(
                f,
                "the key file {} is missing, so the keys of the subscribers in {} cannot be read: restore it from its backup",
                key_file.display(),
                path.display()
            ),
            Self::KeyFileInvalid { key_file } => write!(
                f,
                "the key file {} does not hold a key of 64 hexadecimal digits: restore it from its backup",
                key_file.display()
            ),
            Self::KeyFileExposed { key_file, mode } => write!(
                f,
                "every user can read the key file {0} (mode {mode:o}): run chmod 600 {0}",
                key_file.display()
            ),
            Self::WrongKeyFile { key_file, path } => write!(
                f,
                "the key file {} is not the one that sealed the subscribers in {}: give the right one",
                key_file.display(),
                path.display()
            ),
            Self::Corrupt { path } => write!(
                f,
                "the subscribers' file {} is damaged or is no subscribers' file: restore it from a backup or an export",
                path.display()
            ),
            Self::Newer { path, version } => write!(
                f,
                "the subscribers' file {} has layout {version}, which a later version of this program wrote: use that version",
                path.display()
            ),
            Self::NotInPreviousLayout { subscribers, what } => write!(
                f,
                "{subscribers} subscribers use {what}, which the previous layout cannot hold: nothing was changed; remove them, or \
                 stay with this version"
            ),
            Self::Locked { path } => write!(
                f,
                "another process keeps the subscribers' file {} locked: wait for it, or stop it, and try again",
                path.display()
            ),
            Self::DiskFull { path } => write!(
                f,
                "no room is left for the subscribers' file {}: nothing was changed; free space and try again",
                path.display()
            ),
            Self::Denied { path, source } => {
                write!(f, "{} cannot be opened or written", path.display())?;
                if let Some(source) = source {
                    write!(f, " ({source})")?;
                }
                f.write_str(": check that its folder exists and belongs to this user")
            }
            Self::Exists(supi) => write!(f, "{supi} is a subscriber already: edit or remove it"),
            Self::Unknown(supi) => write!(f, "{supi} is no subscriber"),
            Self::MsisdnTaken => f.write_str("another subscriber has this MSISDN"),
            Self::SupiChanged(supi) => {
                write!(f, "the SUPI of {supi} cannot be changed: remove the subscriber and add another")
            }
            Self::Invalid(e) => write!(f, "the subscriber is not valid: {e}"),
            Self::Import(lines) => {
                f.write_str("nothing was imported")?;
                lines
                    .iter()
                    .enumerate()
                    .try_for_each(|(i, l)| write!(f, "{}{l}", if i == 0 { ": " } else { "; " }))
            }
            Self::Io(e) => write!(f, "reading or writing the subscribers' list failed: {e}"),
            Self::ChangedMeanwhile(supi) => write!(
                f,
                "{supi} was changed by another user at the same moment, and your change was not made: read it again, and make your change to \
                 what it is now"
            ),
            Self::DocumentsChangedMeanwhile => f.write_str(
                "a user or a token was changed by another user at the same moment, and your change was not made: look at them again, and \
                 make your change to what they are now",
            ),
            Self::Unreadable(name) => {
                write!(f, "{name} in the store is damaged, or was sealed with another key: restore the store from its backup")
            }
            Self::NeedsFormerKey { path } => write!(
                f,
                "some of {} is still sealed with the former key, so that key stays: finish `whimbrel store rotate-key` first",
                path.display()
            ),
            Self::Replica { path } => write!(
                f,
                "{} is the replica of a PostgreSQL database, and a change of it alone would be lost: name the database in store.postgres",
                path.display()
            ),
            Self::Database(failure) => failure.fmt(f),
            Self::NoRandomness => f.write_str("the system gives no random octets, so no key can be sealed"),
            Self::Sqlite { path, source } => {
                write!(f, "the subscribers' file {} failed: {source}", path.display())
            }
        }
    }
}

impl core::error::Error for StoreError {}

impl From<InvalidRecord> for StoreError {
    fn from(e: InvalidRecord) -> Self {
        Self::Invalid(e)
    }
}

impl From<io::Error> for StoreError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// Maps an error of SQLite on the file at `path`.
pub(crate) fn of_sqlite(path: &Path, e: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    // The index of the WAL finds no room for itself: SQLite has no other word for that.
    let extended = e.sqlite_error().map(|f| f.extended_code);
    match e.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked { path },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt { path },
        Some(ErrorCode::DiskFull) => StoreError::DiskFull { path },
        _ if extended == Some(ffi::SQLITE_IOERR_SHMSIZE) => StoreError::DiskFull { path },
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            StoreError::Denied { path, source: None }
        }
        _ => StoreError::Sqlite { path, source: e },
    }
}

/// Maps an error of opening or creating the file at `path`.
pub(crate) fn of_file(path: &Path, e: io::Error) -> StoreError {
    let path = path.to_owned();
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::DiskFull { path },
        _ => StoreError::Denied { path, source: Some(e) },
    }
}
