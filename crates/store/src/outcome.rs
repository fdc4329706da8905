//! What ends the process when nobody knows what is on the disk.

/// The exit code: `EX_IOERR`.
const EXIT_IO_ERROR: i32 = 74;

/// Ends the process: after a failed flush, what this process believes about the database may be
/// wrong. The next start reads what is there, and idempotency keys tell clients the truth.
pub(crate) fn stop(what: &str) -> ! {
    tracing::error!(what, "nobody knows what is on the disk; stopping so that a restart decides");
    std::process::exit(EXIT_IO_ERROR)
}
