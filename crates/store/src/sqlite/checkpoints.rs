//! Moving the log into the database file, beside the one who writes.
//!
//! SQLite does it within a commit, which then takes as long as thousands of pages do. Here a thread
//! with a connection of its own moves the bulk. What was written meanwhile is little, and once the
//! log is long enough to be worth starting anew, the writer moves that between two commits: only
//! when all of it has been moved does the next commit begin the log from its start.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::error::StoreError;
use crate::sqlite::{Sqlite, failure};

/// Pages that wait to be moved before the thread is woken. A move costs two flushes, and commits
/// that are flushed meanwhile wait for its pages: with 2,000 at a time, one request in a hundred
/// mostly waited for 14 to 19 ms at half of the peak; with 500, for 9 to 17.
const MOVED_TOGETHER: i64 = 500;

/// Commits whose pages wait before the thread is woken, if they are more than that. Most pages are
/// written again by one of the next commits, and are moved once for all of them; and where commits
/// are large, whoever waits does so for them rather than for the disk.
const COMMITS_MOVED_TOGETHER: i64 = 10;

/// Pages of the log from which it is started anew: 64 MiB, as much as it may keep of the disk.
const RESTARTED_FROM: i64 = 16_000;

/// Pages that the writer itself moves to have the log empty: about as many as a commit writes.
const MOVED_BY_WRITER: i64 = 400;

/// Pages of the log from which the writer moves whatever is left: pages come faster than the thread
/// moves them, and the disk is not there to be filled by the log.
const MOVED_WHOLE_FROM: i64 = 2 * RESTARTED_FROM;

/// The thread that moves pages. It ends with the connection that writes.
pub(super) struct Checkpoints {
    /// How long the log was after the commit before.
    length: Cell<i64>,
    /// Whether somebody who reads an old state kept pages from being moved. Once they end there is
    /// much to move, and it is for the thread to do.
    is_held: Arc<AtomicBool>,
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
        let is_held = Arc::default();
        let held = Arc::clone(&is_held);
        let thread = std::thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || run(&connection, &held, &woken))
            .map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))?;
        Ok(Self { length: Cell::new(0), is_held, wake: Some(wake), thread: Some(thread) })
    }

    /// Does what a commit makes due. A failure is one of the disk, of which the next commit or
    /// flush tells; nothing is lost by leaving the log as it is.
    pub(super) fn committed(&self, connection: &rusqlite::Connection) {
        let Ok(log) = checkpoint(connection, "noop") else { return };
        let waiting = log.pages - log.moved;
        // A log that was begun anew has the pages of this commit.
        let written = match log.pages - self.length.replace(log.pages) {
            written @ 1.. => written,
            _ => log.pages,
        };
        let together = MOVED_TOGETHER.max(written.saturating_mul(COMMITS_MOVED_TOGETHER));
        let is_long = log.pages >= RESTARTED_FROM;
        let is_too_long = log.pages >= MOVED_WHOLE_FROM && !self.is_held.load(Ordering::Relaxed);
        if waiting > 0 && (is_too_long || (is_long && waiting <= MOVED_BY_WRITER)) {
            // While the thread is at it this does nothing, and the next commit tries again.
            pass(connection, &self.is_held);
        } else if waiting >= together || (is_long && waiting > 0) {
            // One that is awake already will see these pages too.
            let _ = self.wake.as_ref().map(|wake| wake.try_send(()));
        }
    }
}

fn run(connection: &Sqlite, is_held: &AtomicBool, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        pass(&connection.connection, is_held);
    }
}

/// Moves what can be moved, and keeps in mind whether that was less than there is.
fn pass(connection: &rusqlite::Connection, is_held: &AtomicBool) {
    match checkpoint(connection, "passive") {
        // Somebody else is at it.
        Ok(log) if log.pages < 0 => {}
        Ok(log) => is_held.store(log.moved < log.pages, Ordering::Relaxed),
        Err(error) => {
            tracing::warn!(%error, "the log could not be moved into the database; it grows until it can");
        }
    }
}

/// Moves what can be moved without anybody waiting, or only looks (`noop`).
fn checkpoint(connection: &rusqlite::Connection, mode: &str) -> Result<Log, StoreError> {
    let mut statement =
        connection.prepare_cached(&format!("pragma wal_checkpoint({mode})")).map_err(failure)?;
    let log = statement.query_row([], |row| Ok(Log { pages: row.get(1)?, moved: row.get(2)? }));
    log.map_err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Connection as _, Value};

    /// More than a commit may move by itself, and faster than the thread.
    const BYTES_OF_A_COMMIT: usize = 4 << 20;

    fn write(connection: &mut Sqlite, bytes: &[u8]) {
        connection.begin().expect("a transaction");
        connection.execute("insert into t values ($1)", &[Value::from(bytes)]).expect("a row");
        connection.commit().expect("a commit");
    }

    fn with_a_table(path: &std::path::Path) -> Sqlite {
        let mut connection = Sqlite::open_to_serve(path).expect("a database");
        connection.begin().expect("a transaction");
        connection.execute("create table t (a blob)", &[]).expect("a table");
        connection.commit().expect("a commit");
        connection
    }

    /// Leaves it to the test to move pages when the thread would be woken.
    fn without_thread(connection: &mut Sqlite) -> Receiver<()> {
        let (wake, woken) = sync_channel(1);
        let (length, is_held) = (Cell::new(0), Arc::default());
        connection.checkpoints =
            Some(Checkpoints { length, is_held, wake: Some(wake), thread: None });
        woken
    }

    #[test]
    fn pages_of_large_commits_are_moved_for_ten_of_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut connection = with_a_table(&folder.path().join("test.db"));
        let woken = without_thread(&mut connection);
        // More pages each than are moved together at least, and fewer in all than begin a log anew.
        let bytes = vec![7; 4_096 * 600];
        write(&mut connection, &bytes);
        pass(&connection.connection, &AtomicBool::new(false));
        while woken.try_recv().is_ok() {}
        let commits = (1..100).find(|_| {
            write(&mut connection, &bytes);
            woken.try_recv().is_ok()
        });
        // One of them may have written a page of the tree besides.
        assert!(matches!(commits, Some(9..=11)), "{commits:?}");
    }

    #[test]
    fn what_a_long_reader_kept_is_not_moved_within_a_commit() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.db");
        let mut connection = with_a_table(&path);
        // The thread is not there: what is moved is moved within a commit.
        let woken = without_thread(&mut connection);
        let bytes = vec![7; BYTES_OF_A_COMMIT];
        let mut reader = Sqlite::open(&path, crate::sqlite::Access::Read).expect("a reader");
        reader.begin_read().expect("a snapshot");
        let count = &mut |_| Ok(());
        reader.query("select count(*) from t", &[], 1, count).expect("a count");
        let is_far_too_long = |log: &Log| log.pages > 2 * MOVED_WHOLE_FROM;
        let look =
            |connection: &Sqlite| checkpoint(&connection.connection, "noop").expect("a look");
        while !is_far_too_long(&look(&connection)) {
            write(&mut connection, &bytes);
        }
        reader.rollback().expect("the end of the snapshot");
        write(&mut connection, &bytes);
        let log = look(&connection);
        assert!(is_far_too_long(&Log { pages: log.pages - log.moved, moved: 0 }), "it was moved");
        woken.try_recv().expect("the thread is woken");
        let is_held = connection.checkpoints.as_ref().map(|own| Arc::clone(&own.is_held));
        pass(&connection.connection, &is_held.expect("it was set above"));
        write(&mut connection, &bytes);
        let log = look(&connection);
        assert!(log.pages < RESTARTED_FROM, "the log does not begin anew: {} pages", log.pages);
    }

    /// A server that ends is answered by its last list only after those who asked have gone.
    #[test]
    fn what_is_closed_waits_for_who_still_reads() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.db");
        let mut connection = with_a_table(&path);
        let mut reader = Sqlite::open(&path, crate::sqlite::Access::Read).expect("a reader");
        reader.begin_read().expect("a snapshot");
        reader.query("select count(*) from t", &[], 1, &mut |_| Ok(())).expect("a count");
        write(&mut connection, b"row");
        let other = Sqlite::open(&path, crate::sqlite::Access::Write).expect("another");
        let closed = std::thread::spawn(move || connection.settle());
        let moved = || checkpoint(&other.connection, "noop").expect("a look").moved;
        while moved() == 0 {
            assert!(!closed.is_finished(), "it was given up at once");
        }
        reader.rollback().expect("the end of the snapshot");
        closed.join().expect("an end").expect("settled");
        let log = std::fs::metadata(folder.path().join("test.db-wal")).expect("a log").len();
        assert_eq!(log, 0);
    }

    #[test]
    fn the_log_stays_short_however_fast_pages_come() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.db");
        let mut connection = with_a_table(&path);
        let bytes = vec![7; BYTES_OF_A_COMMIT];
        let log = folder.path().join("test.db-wal");
        let bound = 4_096 * MOVED_WHOLE_FROM as u64 + 16 * BYTES_OF_A_COMMIT as u64;
        for _ in 0..100 {
            write(&mut connection, &bytes);
            let length = std::fs::metadata(&log).expect("a log").len();
            assert!(length <= bound, "{length} bytes of log, of at most {bound}");
        }
        connection.settle().expect("settled");
        assert_eq!(std::fs::metadata(&log).expect("a log").len(), 0);
    }
}
