//! What PostgreSQL's errors mean for who asked.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::values::WrongType;
use crate::error::StoreError;
use crate::idempotency::Answer;
use crate::record::Record as _;

/// Why a question has no answer, and whether the connection is good for another.
#[derive(Debug)]
pub(super) struct Failure {
    /// What the caller is told.
    pub(super) error: StoreError,
    /// Whether the server has said no and is there for the next question. Anything else, and nobody
    /// knows what it has done.
    pub(super) is_answer: bool,
}

impl Failure {
    /// Nothing came back in time.
    pub(super) fn silence() -> Self {
        let what = "it does not answer in time".to_owned();
        Self { error: StoreError::Unavailable(what), is_answer: false }
    }

    /// There is no connection.
    pub(super) fn disconnected() -> Self {
        let what = "the connection was lost".to_owned();
        Self { error: StoreError::Unavailable(what), is_answer: false }
    }

    /// The server has done it and warns of what that is worth.
    pub(super) fn doubtful(warning: &DbError) -> Self {
        Self { error: StoreError::Unavailable(said_text(warning)), is_answer: false }
    }

    /// Something that we know without asking the server.
    pub(super) fn known(error: StoreError) -> Self {
        Self { error, is_answer: true }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if let Some(said) = error.as_db_error() {
            return said.into();
        }
        match error.source() {
            Some(cause) if cause.is::<WrongType>() => {
                Self::known(StoreError::Engine(format!("{error}: {cause}")))
            }
            _ => Self { error: StoreError::Unavailable(text(&error)), is_answer: false },
        }
    }
}

impl From<&DbError> for Failure {
    fn from(said: &DbError) -> Self {
        let fatal = [Some(Severity::Fatal), Some(Severity::Panic)];
        let error = meaning(said);
        let is_lost = matches!(error, StoreError::Unavailable(_));
        Self { error, is_answer: !is_lost && !fatal.contains(&said.parsed_severity()) }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// Whether the server says that something was not as whoever asked may think.
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

/// What the server said, without the detail, which repeats stored values.
fn said_text(said: &DbError) -> String {
    format!("{} (SQLSTATE {})", said.message(), said.code().code())
}

fn meaning(said: &DbError) -> StoreError {
    let (code, text) = (said.code(), said_text(said));
    let conflicts = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
    ];
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
    // A request was taken for new that was answered before (`unit::Repeats`).
    let is_repeated = *code == SqlState::UNIQUE_VIOLATION && said.table() == Some(Answer::TABLE);
    if is_repeated || conflicts.contains(code) {
        StoreError::Conflict(text)
    } else if *code == SqlState::DISK_FULL {
        StoreError::DiskFull
    } else if *code == SqlState::TOO_MANY_CONNECTIONS {
        StoreError::Unavailable(format!(
            "{text}; raise max_connections of the server, or end who holds its connections"
        ))
    } else if absences.contains(code) || code.code().starts_with("08") {
        StoreError::Unavailable(text)
    } else {
        StoreError::Engine(text)
    }
}
