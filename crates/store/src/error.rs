//! Errors of the store, each with its remedy for the caller.

use tokio::sync::mpsc;

/// A failure of the store. None of them leaves part of a change behind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The queue of the group commit or of the readers is full. Nothing was done; try again.
    #[error("the store is busy: its queue is full; try again")]
    Busy,
    /// The tables do not follow the journal in time, so that lists cannot be read: how far they are
    /// behind, and why. Nothing was done; try again.
    #[error("lists cannot be read: {0}")]
    Behind(String),
    /// The store is closing. Nothing was done.
    #[error("the store is shutting down")]
    Closed,
    /// The disk is full. Nothing was done; it goes on by itself when there is room.
    #[error("the disk that holds the database is full")]
    DiskFull,
    /// The database cannot be reached or does not answer in time. A change that was on its way may
    /// have been made: a repeat with the same idempotency key gets the outcome.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// A row is needed that was not fetched yet: the unit is run again with it. Never seen outside
    /// the store.
    #[error("a row was not fetched yet")]
    NotFetched,
    /// The transaction lost against another one and can be tried again.
    #[error("the transaction lost against another one: {0}")]
    Conflict(String),
    /// The commit may or may not have happened; the process must stop, and the next start reads it.
    #[error("the outcome of a commit is unknown: {0}")]
    OutcomeUnknown(String),
    /// A file of the database was removed, renamed or replaced while it was in use. A change may be
    /// in the file that was: the process must stop, and a repeat with the same idempotency key gets
    /// the outcome once the file is back.
    #[error(
        "the files of the database were moved away, and the server stops; whether the change was \
         kept is unknown: repeat it with the same idempotency key"
    )]
    FilesMoved,
    /// A stored row breaks a rule of this program.
    #[error("the database holds something impossible at {place}: {what}")]
    Corrupt {
        /// Table and column.
        place: String,
        /// The fault, without the value.
        what: String,
    },
    /// The key does not open what is sealed, or a row is not as it was sealed.
    #[error(
        "{place} does not open with this key, or was edited or damaged in the database; \
         switchyard verify names every such row"
    )]
    Sealed {
        /// Table, and the key of the row where it is known.
        place: String,
    },
    /// The database does not take a value, such as one that a constraint of a table refuses.
    #[error("the database refuses a value: {0}")]
    Refused(String),
    /// Any other failure of the engine.
    #[error("database: {0}")]
    Engine(String),
    /// The unit of work panicked. Its changes were dropped.
    #[error("a unit of work panicked: {0}")]
    Panicked(String),
}

/// A queue that does not take what was sent.
impl<T> From<mpsc::error::TrySendError<T>> for StoreError {
    fn from(refused: mpsc::error::TrySendError<T>) -> Self {
        match refused {
            mpsc::error::TrySendError::Full(_) => Self::Busy,
            mpsc::error::TrySendError::Closed(_) => Self::Closed,
        }
    }
}
