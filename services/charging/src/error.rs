//! Failures of the file, each with one sentence of the fact and the remedy.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use whimbrel_ids::Supi;

/// A failure of the file. Nothing of the operation was done.
#[derive(Debug)]
#[non_exhaustive]
pub enum ChargingError {
    /// The file may not be read or written, or its folder is absent.
    Denied(PathBuf, io::Error),
    /// The file is not one of this program, or is damaged.
    Corrupt(PathBuf),
    /// The file was written by a later version of this program.
    Newer(PathBuf, i64),
    /// No room is left.
    DiskFull(PathBuf),
    /// Another process, such as a running core, has the file open.
    Locked(PathBuf),
    /// Another error of SQLite.
    Sqlite(PathBuf, rusqlite::Error),
}

impl ChargingError {
    pub(crate) fn of_sqlite(path: &Path, e: rusqlite::Error) -> Self {
        match e.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt(path.to_owned()),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked(path.to_owned()),
            Some(ErrorCode::DiskFull) => Self::DiskFull(path.to_owned()),
            _ => Self::Sqlite(path.to_owned(), e),
        }
    }
}

impl fmt::Display for ChargingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(path, e) => write!(f, "the accounts {} cannot be opened: {e}", path.display()),
            Self::Corrupt(path) => write!(
                f,
                "{} does not hold accounts of this program, or is damaged: restore it from its backup",
                path.display()
            ),
            Self::Newer(path, version) => write!(
                f,
                "the accounts {} are of layout {version}, which a later version of this program has written: install that version",
                path.display()
            ),
            Self::DiskFull(path) => {
                write!(f, "the accounts {} cannot be written: no room is left on the disk", path.display())
            }
            Self::Locked(path) => write!(
                f,
                "the accounts {} are in use: stop the core (`systemctl stop whimbrel`), and try again",
                path.display()
            ),
            Self::Sqlite(path, e) => write!(f, "the accounts {} cannot be used: {e}", path.display()),
        }
    }
}

impl std::error::Error for ChargingError {}

/// Why the credit of an account was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreditRefusal {
    /// The subscriber has no account.
    Unknown(Supi),
    /// More would be credited than an account holds, or more taken back than is left.
    OutOfRange {
        /// Octets that are left and not reserved.
        balance: u64,
    },
    /// Another amount was credited under the same reference.
    ReferenceUsed,
}

impl fmt::Display for CreditRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(supi) => write!(f, "{supi} has no account: make one first"),
            Self::OutOfRange { balance } => write!(
                f,
                "an account holds a credit of 0 to {} octets, and at most the {balance} octets that are left can be taken back",
                super::CREDIT_MAX
            ),
            Self::ReferenceUsed => {
                f.write_str("another amount was credited under this reference: use a new one")
            }
        }
    }
}
