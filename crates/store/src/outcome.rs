//! The end of the process when the outcome of a commit is unknown, and that of a connection.

use crate::error::StoreError;
use crate::sql::Connection;

/// The exit code of a process that cannot rely on its database's files any more: `EX_IOERR`.
pub const EXIT_IO_ERROR: u8 = 74;

/// Ends the process: after a failed flush, what this process believes about the database may be
/// wrong. The next start reads what is there, and idempotency keys give clients the outcome.
pub(crate) fn stop(what: &str) -> ! {
    tracing::error!(
        what,
        "outcome of a commit unknown; the server stops, and the next start reads the disk"
    );
    std::process::exit(EXIT_IO_ERROR.into())
}

/// Leaves a database so that its main files alone are complete, where that can be done now.
pub(crate) fn settle(connection: &mut dyn Connection) {
    match connection.settle() {
        Ok(()) => {}
        // Closing the file could move the log once more, and then remove it.
        Err(StoreError::OutcomeUnknown(what)) => stop(&what),
        Err(error) => {
            tracing::warn!(%error, "log not moved into the database; the next start does it");
        }
    }
}
