//! Moving the log of a file into it, beside the connection that writes.
//!
//! Within a commit, SQLite's own checkpoint takes as long as thousands of pages do. So a thread
//! with a connection of its own moves the bulk and flushes the file. The writer moves between two
//! commits what was written meanwhile: only when all of the log is moved does the next commit begin
//! it anew.

use std::cell::Cell;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::StoreError;
use crate::outcome::stop;
use crate::sqlite::{Sqlite, failure, wait_for_lock};
use crate::threads;

/// Pages that wait to be moved before the thread is woken. Most pages are written again by one of
/// the next commits, and are moved once for all of them.
const MOVED_TOGETHER: i64 = 500;

/// Pages of the log from which it is begun anew: 8 MiB. The pages of a longer one take the disk so
/// long when they are flushed that commits wait.
const RESTARTED_FROM: i64 = 2_000;

/// Pages of the log from which the writer waits for readers, 512 MiB, and again whenever it is
/// twice as long. Where reads overlap for ever, the log would never be moved whole otherwise.
const WAITED_FROM: i64 = 64 * RESTARTED_FROM;

/// How long it waits each time. Lists are read in less.
const WAIT: Duration = Duration::from_millis(500);

/// The thread that moves pages. It ends with the connection that writes.
pub(super) struct Checkpoints {
    /// How long the log is when the writer waits for readers next.
    waits_at: Cell<i64>,
    /// Whether the thread has moved and flushed a long log, so that little is left to the writer.
    is_ready: Arc<AtomicBool>,
    /// `None` only while it is dropped: without it the thread ends.
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.wake = None;
        // No connection may be left when the database is closed. A thread that panicked has none.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// How long the log is.
struct Log {
    pages: i64,
    moved: i64,
}

impl Checkpoints {
    /// Starts the thread, for the database in the file at `path`, to which it has a connection.
    pub(super) fn start(connection: Sqlite, path: &Path) -> Result<Self, StoreError> {
        let (wake, woken) = sync_channel(1);
        let is_ready = Arc::<AtomicBool>::default();
        let file = File::options().write(true).open(path).map_err(|error| {
            StoreError::Engine(format!("{} cannot be opened: {error}", path.display()))
        })?;
        // It is never closed: that would take away all locks that SQLite has on the file in this
        // process. A process opens few databases.
        let file = Box::leak(Box::new(file));
        let ready = Arc::clone(&is_ready);
        let thread = threads::start("checkpoints", move || {
            while woken.recv().is_ok() {
                ready.store(move_log(&connection.connection, file), Ordering::Relaxed);
            }
        })?;
        Ok(Self {
            waits_at: Cell::new(WAITED_FROM),
            is_ready,
            wake: Some(wake),
            thread: Some(thread),
        })
    }

    /// Moves a long log after a commit, or wakes the thread for it. The next commit or flush
    /// reports a failure of the disk; nothing is lost by leaving the log as it is.
    pub(super) fn committed(&self, connection: &mut rusqlite::Connection) {
        let Ok(log) = checkpoint(connection, "noop") else { return };
        let done = if log.pages >= self.waits_at.get() {
            self.waits_at.set(log.pages.saturating_mul(2));
            wait_for_readers(connection)
        } else if self.is_ready.swap(false, Ordering::Relaxed) {
            moved(connection, "passive")
        } else {
            None
        };
        if done.is_some_and(|log| log.moved == log.pages) {
            return self.waits_at.set(WAITED_FROM);
        }
        if log.pages - log.moved >= MOVED_TOGETHER {
            // One that is awake already will see these pages too.
            let _ = self.wake.as_ref().map(|wake| wake.try_send(()));
        }
    }
}

/// Moves what can be moved, and flushes a long log's pages, which lie all over the file and would
/// take the writer a tenth of a second. Whether only what is written meanwhile is left of it.
fn move_log(connection: &rusqlite::Connection, file: &File) -> bool {
    if moved(connection, "passive").is_none_or(|log| log.pages < RESTARTED_FROM) {
        return false;
    }
    if let Err(error) = file.sync_data() {
        stop(&format!("the database file cannot be flushed: {error}"));
    }
    // A reader may have kept more than a commit should wait for.
    moved(connection, "passive").is_some_and(|log| log.moved == log.pages)
}

/// Moves all of the log once the readers of an old state have ended, unless they take too long.
fn wait_for_readers(connection: &mut rusqlite::Connection) -> Option<Log> {
    connection.busy_timeout(WAIT).ok()?;
    let log = moved(connection, "restart");
    // The same call has just succeeded.
    let _ = connection.busy_handler(Some(wait_for_lock));
    log
}

/// Moves pages. How long the log is then, if that is known: another connection may be at it.
fn moved(connection: &rusqlite::Connection, mode: &str) -> Option<Log> {
    match checkpoint(connection, mode) {
        Ok(log) => Some(log).filter(|log| log.pages >= 0),
        Err(StoreError::OutcomeUnknown(what)) => stop(&what),
        Err(error) => {
            tracing::warn!(%error, "log not moved into the database; it grows until it can be");
            None
        }
    }
}

/// Moves what can be moved at once (`passive`) or all of it (`restart`), or only looks (`noop`).
fn checkpoint(connection: &rusqlite::Connection, mode: &str) -> Result<Log, StoreError> {
    let mut statement = connection
        .prepare_cached(&format!("pragma main.wal_checkpoint({mode})"))
        .map_err(failure)?;
    let log = statement.query_row([], |row| Ok(Log { pages: row.get(1)?, moved: row.get(2)? }));
    log.map_err(failure)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;
    use crate::pause::pause;
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
        let (waits_at, is_ready) = (Cell::new(WAITED_FROM), Arc::default());
        let wake = Some(wake);
        connection.checkpoints = Some(Checkpoints { waits_at, is_ready, wake, thread: None });
        woken
    }

    fn look(connection: &Sqlite) -> Log {
        checkpoint(&connection.connection, "noop").expect("a look")
    }

    /// Begins to read what there is now.
    fn hold(reader: &mut Sqlite) {
        reader.begin_read().expect("a snapshot");
        reader.query("select count(*) from t", &[], 1, &mut |_| Ok(())).expect("a count");
    }

    /// A thread that moves what it can when the test says so.
    fn pass(connection: &Sqlite, path: &std::path::Path) {
        let other = Sqlite::open(path, crate::sqlite::Access::Write).expect("another");
        let file = Box::leak(Box::new(File::options().write(true).open(path).expect("the file")));
        let is_ready = move_log(&other.connection, file);
        let checkpoints = connection.checkpoints.as_ref().expect("one that serves");
        checkpoints.is_ready.store(is_ready, Ordering::Relaxed);
    }

    #[test]
    fn a_long_log_is_moved_by_the_thread_and_ended_by_the_writer() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.db");
        let mut connection = with_a_table(&path);
        let woken = without_thread(&mut connection);
        let bytes = vec![7; BYTES_OF_A_COMMIT];
        (0..=RESTARTED_FROM / 1_024).for_each(|_| write(&mut connection, &bytes));
        let log = look(&connection);
        assert!(log.pages >= RESTARTED_FROM && log.moved == 0, "it was moved within a commit");
        woken.try_recv().expect("the thread is woken");
        pass(&connection, &path);
        write(&mut connection, b"row");
        let log = look(&connection);
        assert_eq!(log.pages, log.moved, "the writer left some");
        write(&mut connection, b"row");
        assert!(look(&connection).pages < 10, "it was not begun anew");
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
        hold(&mut reader);
        let is_far_too_long = |log: &Log| log.pages > 4 * RESTARTED_FROM;
        while !is_far_too_long(&look(&connection)) {
            write(&mut connection, &bytes);
        }
        pass(&connection, &path);
        reader.rollback().expect("the end of the snapshot");
        write(&mut connection, &bytes);
        let log = look(&connection);
        assert!(is_far_too_long(&Log { pages: log.pages - log.moved, moved: 0 }), "it was moved");
        woken.try_recv().expect("the thread is woken");
        pass(&connection, &path);
        write(&mut connection, b"row");
        write(&mut connection, b"row");
        let log = look(&connection);
        assert!(log.pages < RESTARTED_FROM, "the log does not begin anew: {} pages", log.pages);
    }

    /// Reads overlap, each of them for a moment.
    #[test]
    fn the_log_begins_anew_although_reads_overlap_for_ever() {
        /// As many as a commit of the test has, four times.
        const WAITED_FROM: i64 = 4 * 1_024;
        const READ: Duration = Duration::from_millis(25);
        /// On a busy machine, reads last longer than they should, and it is tried again.
        const COMMITS_MAX: u32 = 200;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.db");
        let mut connection = with_a_table(&path);
        let checkpoints = connection.checkpoints.as_ref().expect("one that serves");
        checkpoints.waits_at.set(WAITED_FROM);
        let bytes = vec![7; BYTES_OF_A_COMMIT];
        let is_over = AtomicBool::new(false);
        let reader = || Sqlite::open(&path, crate::sqlite::Access::Read).expect("a reader");
        let commits = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut now, mut next) = (reader(), reader());
                hold(&mut now);
                while !is_over.load(Ordering::Relaxed) {
                    // It begins before the other has ended, and lasts for some commits.
                    hold(&mut next);
                    pause(READ);
                    now.rollback().expect("the end of a snapshot");
                    std::mem::swap(&mut now, &mut next);
                }
            });
            let mut length = 0;
            let commits = (0..COMMITS_MAX).find(|_| {
                write(&mut connection, &bytes);
                let before = std::mem::replace(&mut length, look(&connection).pages);
                length < before
            });
            is_over.store(true, Ordering::Relaxed);
            commits
        });
        assert!(
            commits.is_some_and(|commits| commits >= 4),
            "begun anew after {commits:?} commits"
        );
    }

    /// A server that ends is answered by its last list only after those who asked have gone.
    #[test]
    fn what_is_closed_waits_for_who_still_reads() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.db");
        let mut connection = with_a_table(&path);
        let mut reader = Sqlite::open(&path, crate::sqlite::Access::Read).expect("a reader");
        hold(&mut reader);
        write(&mut connection, b"row");
        let other = Sqlite::open(&path, crate::sqlite::Access::Write).expect("another");
        let closed = std::thread::spawn(move || connection.settle());
        while look(&other).moved == 0 {
            assert!(!closed.is_finished(), "it was given up at once");
        }
        reader.rollback().expect("the end of the snapshot");
        closed.join().expect("an end").expect("settled");
        let log = std::fs::metadata(folder.path().join("test.db-wal")).expect("a log").len();
        assert_eq!(log, 0);
    }

    #[test]
    fn the_log_stays_short_however_fast_pages_come() {
        const COMMITS: usize = 100;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.db");
        let mut connection = with_a_table(&path);
        let bytes = vec![7; BYTES_OF_A_COMMIT];
        let log = folder.path().join("test.db-wal");
        // On a busy machine, the thread may get its turn late. Without it, all stays in the log.
        let bound = (COMMITS * BYTES_OF_A_COMMIT / 2) as u64;
        for _ in 0..COMMITS {
            write(&mut connection, &bytes);
            let length = std::fs::metadata(&log).expect("a log").len();
            assert!(length <= bound, "{length} bytes of log, of at most {bound}");
        }
        connection.settle().expect("settled");
        assert_eq!(std::fs::metadata(&log).expect("a log").len(), 0);
    }
}
