//! PostgreSQL's errors as errors of the store.
//!
//! The session goes on after every error but [`StoreError::Unavailable`]: then it is lost, and its
//! transaction may have done anything.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::values::WrongType;
use crate::error::StoreError;

/// Classes of errors about a value: what it is, what a constraint allows, and what an index takes.
const REFUSALS: [&str; 3] = ["22", "23", "54"];

/// Nothing came back in time.
pub(super) fn silence() -> StoreError {
    StoreError::Unavailable("it does not answer in time".to_owned())
}

/// There is no session.
pub(super) fn disconnected() -> StoreError {
    StoreError::Unavailable("the connection was lost".to_owned())
}

/// The server has done something and warns of what that is worth.
pub(super) fn doubtful(warning: &DbError) -> StoreError {
    StoreError::Unavailable(said_text(warning))
}

/// Whether the session is lost.
pub(super) fn is_lost(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(_))
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        if let Some(said) = error.as_db_error() {
            return meaning(said);
        }
        match error.source() {
            Some(cause) if cause.is::<WrongType>() => Self::Refused(format!("{error}: {cause}")),
            _ => Self::Unavailable(text(&error)),
        }
    }
}

/// Whether the server says that something was not done as it was asked for.
pub(super) fn is_warning(said: &DbError) -> bool {
    said.parsed_severity() == Some(Severity::Warning)
}

/// The error with everything that caused it, in one line.
pub(super) fn text(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        return said_text(said);
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// The server's message without its detail, which repeats stored values.
fn said_text(said: &DbError) -> String {
    format!("{} (SQLSTATE {})", said.message(), said.code().code())
}

/// The error of the store that stands for one of the server.
pub(super) fn meaning(said: &DbError) -> StoreError {
    let (code, text) = (said.code(), said_text(said));
    let ends = [Some(Severity::Fatal), Some(Severity::Panic)].contains(&said.parsed_severity());
    let conflicts = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
    // The server ends, has just started, is now one that only reads, or has thrown us out.
    let absences = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::DATABASE_DROPPED,
        SqlState::QUERY_CANCELED,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::OUT_OF_MEMORY,
    ];
    if *code == SqlState::TOO_MANY_CONNECTIONS {
        StoreError::Unavailable(format!(
            "{text}; raise max_connections of the server, or end sessions that hold its connections"
        ))
    } else if ends || absences.contains(code) || code.code().starts_with("08") {
        StoreError::Unavailable(text)
    } else if conflicts.contains(code) {
        StoreError::Conflict(text)
    } else if *code == SqlState::LOCK_NOT_AVAILABLE {
        StoreError::Conflict(format!("{text}; pg_locks shows which session holds the lock"))
    } else if *code == SqlState::DISK_FULL {
        StoreError::DiskFull
    } else if REFUSALS.iter().any(|class| code.code().starts_with(class)) {
        StoreError::Refused(text)
    } else {
        StoreError::Engine(text)
    }
}
