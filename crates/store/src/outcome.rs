//! The end of the process when the outcome of a commit is unknown.

/// The exit code: `EX_IOERR`.
const EXIT_IO_ERROR: i32 = 74;

/// Ends the process: after a failed flush, what this process believes about the database may be
/// wrong. The next start reads what is there, and idempotency keys give clients the outcome.
pub(crate) fn stop(what: &str) -> ! {
    tracing::error!(
        what,
        "outcome of a commit unknown; the server stops, and the next start reads the disk"
    );
    std::process::exit(EXIT_IO_ERROR)
}
