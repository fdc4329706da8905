//! Moving the log into the database file, beside the one who writes.
//!
//! SQLite does it within a commit, which then takes as long as thousands of pages do. Here a thread
//! with a connection of its own moves the bulk. What was written meanwhile is little, and once the
//! log is long enough to be worth starting anew, the writer moves that between two commits: only
//! when all of it has been moved does the next commit begin the log from its start.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::error::StoreError;
use crate::sqlite::{Sqlite, failure};

/// Pages that wait to be moved before the thread is woken. A move costs two flushes; 8 MiB are
/// worth them.
const MOVED_TOGETHER: i64 = 2_000;

/// Pages of the log from which it is started anew: 64 MiB, as much as it may keep of the disk.
const RESTARTED_FROM: i64 = 16_000;

/// Pages that the writer itself moves to have the log empty: about as many as a commit writes.
const MOVED_BY_WRITER: i64 = 400;

/// The thread that moves pages. It ends with the connection that writes.
pub(super) struct Checkpoints {
    /// `None` only while it is dropped: without it the thread ends.
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.wake = None;
        // Whoever closes the database wants no connection of ours left when it is closed. A thread
        // that panicked has none.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// How long the log is.
struct Log {
    pages: i64,
    moved: i64,
}

impl Checkpoints {
    /// Starts the thread.
    pub(super) fn start(connection: Sqlite) -> Result<Self, StoreError> {
        let (wake, woken) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || run(&connection, &woken))
            .map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))?;
        Ok(Self { wake: Some(wake), thread: Some(thread) })
    }

    /// Does what a commit makes due. A failure is one of the disk, of which the next commit or
    /// flush tells; nothing is lost by leaving the log as it is.
    pub(super) fn committed(&self, connection: &rusqlite::Connection) {
        let Ok(log) = checkpoint(connection, "noop") else { return };
        let waiting = log.pages - log.moved;
        let is_long = log.pages >= RESTARTED_FROM;
        if is_long && (1..=MOVED_BY_WRITER).contains(&waiting) {
            report(checkpoint(connection, "passive"));
        } else if waiting >= MOVED_TOGETHER || (is_long && waiting > 0) {
            // One that is awake already will see these pages too.
            let _ = self.wake.as_ref().map(|wake| wake.try_send(()));
        }
    }
}

fn run(connection: &Sqlite, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        report(checkpoint(&connection.connection, "passive"));
    }
}

fn report(moved: Result<Log, StoreError>) {
    if let Err(error) = moved {
        tracing::warn!(%error, "the log could not be moved into the database; it grows until it can");
    }
}

/// Moves what can be moved without anybody waiting, or only looks (`noop`).
fn checkpoint(connection: &rusqlite::Connection, mode: &str) -> Result<Log, StoreError> {
    let mut statement =
        connection.prepare_cached(&format!("pragma wal_checkpoint({mode})")).map_err(failure)?;
    let log = statement.query_row([], |row| Ok(Log { pages: row.get(1)?, moved: row.get(2)? }));
    log.map_err(failure)
}
