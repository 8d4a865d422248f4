//! Which failure an error of the connection is.

use std::error::Error as _;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use whimbrel_store::{DatabaseFailure, StoreError};

/// Characters of the database's sentence that are repeated: it is outside's text.
const SENTENCE_MAX: usize = 200;

/// The failure that an error is.
pub(crate) fn failure_of(e: &Error) -> DatabaseFailure {
    let Some(db) = e.as_db_error() else {
        return of_connection(e);
    };
    let why = sentence(db.message());
    let code = db.code();
    match code {
        _ if *code == SqlState::INVALID_PASSWORD
            || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION =>
        {
            DatabaseFailure::Login { why }
        }
        _ if *code == SqlState::INVALID_CATALOG_NAME => DatabaseFailure::Login { why },
        _ if *code == SqlState::INSUFFICIENT_PRIVILEGE => DatabaseFailure::NotPermitted { why },
        _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION => DatabaseFailure::ReadOnly,
        _ if *code == SqlState::LOCK_NOT_AVAILABLE
            || *code == SqlState::T_R_DEADLOCK_DETECTED
            || *code == SqlState::T_R_SERIALIZATION_FAILURE =>
        {
            DatabaseFailure::Busy
        }
        _ if *code == SqlState::UNDEFINED_TABLE
            || *code == SqlState::UNDEFINED_COLUMN
            || *code == SqlState::UNDEFINED_FUNCTION
            || *code == SqlState::DATATYPE_MISMATCH
            || *code == SqlState::DUPLICATE_SCHEMA
            || *code == SqlState::NOT_NULL_VIOLATION =>
        {
            DatabaseFailure::OtherSchema { why }
        }
        _ if code.code().starts_with("57P") || code.code().starts_with("08") || code.code() == "53300" => {
            DatabaseFailure::Unreachable { why }
        }
        _ => DatabaseFailure::Other { why },
    }
}

/// True if the connection may have ended before the answer came.
pub(crate) fn is_lost(e: &Error) -> bool {
    e.is_closed() || e.as_db_error().is_none_or(|db| db.code().code().starts_with("57P"))
}

fn of_connection(e: &Error) -> DatabaseFailure {
    let mut source = e.source();
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return match io.kind() {
                // Both are the crate's own words for `target_session_attrs`.
                io::ErrorKind::PermissionDenied if io.to_string().contains("does not allow writes") => {
                    DatabaseFailure::ReadOnly
                }
                _ => DatabaseFailure::Unreachable { why: sentence(&io.to_string()) },
            };
        }
        source = cause.source();
    }
    let text = match e.source() {
        Some(cause) => format!("{e}: {cause}"),
        None => e.to_string(),
    };
    if text.contains("password missing") {
        return DatabaseFailure::Login { why: "it asks for a password, and none is given".into() };
    }
    DatabaseFailure::Unreachable { why: sentence(&text) }
}

/// One line of bounded length.
fn sentence(text: &str) -> String {
    let line: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SENTENCE_MAX).collect();
    line.trim_end_matches('.').to_owned()
}

/// The error of a change: a number of two subscribers is found when it is committed.
pub(crate) fn store_error(e: &Error) -> StoreError {
    match e.code() {
        Some(code) if *code == SqlState::UNIQUE_VIOLATION => StoreError::MsisdnTaken,
        _ => failure_of(e).into(),
    }
}
