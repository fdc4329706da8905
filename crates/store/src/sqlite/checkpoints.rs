//! Moving the log into the database file, beside the one who writes.
//!
//! SQLite does it within a commit, which then takes as long as thousands of pages do. Here a thread
//! with a connection of its own moves the bulk. What was written meanwhile is little, and once the
//! log is long enough to be worth starting anew, the writer moves that between two commits: only
//! when all of it has been moved does the next commit begin the log from its start.
//!
//! Before a log is begun anew, the file must be flushed with all that was moved, which SQLite
//! leaves to whoever moves the last page. The pages of a long log lie all over a large file and
//! take the disk a tenth of a second, so that the thread flushes them first, and the writer only
//! what is moved after that (docs/performance.md).

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
use crate::sqlite::{BUSY_TIMEOUT, Sqlite, failure};

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

/// Pages that the writer itself moves, and that others have moved and it flushes, to have the log
/// empty: about as many as a commit writes.
const MOVED_BY_WRITER: i64 = 400;

/// How often the thread flushes what it has moved of a long log, to leave the writer little. While
/// it does, pages come; where the disk is busy enough that they come as fast as it flushes them,
/// there is no use in going on.
const FLUSHES_MAX: u32 = 4;

/// Pages of the log from which the writer moves whatever is left: pages come faster than the thread
/// moves them, and the disk is not there to be filled by the log.
const MOVED_WHOLE_FROM: i64 = 2 * RESTARTED_FROM;

/// Pages of the log from which the writer waits for those who read, 512 MiB, and again whenever it
/// is twice as long. While one read begins before the one before it has ended, and commits come,
/// not all of the log is ever moved. Whoever reads for long, such as a backup, has it waited for in
/// vain, but seldom.
const WAITED_FROM: i64 = 8 * RESTARTED_FROM;

/// How long it waits each time. Lists are read in less.
const WAIT: Duration = Duration::from_millis(500);

/// The thread that moves pages. It ends with the connection that writes.
pub(super) struct Checkpoints {
    /// How long the log was after the commit before.
    length: Cell<i64>,
    /// How long it is when the writer waits for those who read next.
    waits_at: Cell<i64>,
    found: Arc<Found>,
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

/// What whoever moved pages last has found.
#[derive(Default)]
struct Found {
    /// Whether somebody who reads an old state kept pages from being moved. Once they end there is
    /// much to move, and it is for the thread to do.
    is_held: AtomicBool,
    /// Whether the writer may have the log begun anew: nearly all that was moved is flushed.
    is_flushed: AtomicBool,
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
        let found = Arc::default();
        let mut mover = Mover::new(connection, path, Arc::clone(&found))?;
        let thread = std::thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || {
                while woken.recv().is_ok() {
                    mover.work();
                }
            })
            .map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))?;
        let (length, waits_at) = (Cell::new(0), Cell::new(WAITED_FROM));
        Ok(Self { length, waits_at, found, wake: Some(wake), thread: Some(thread) })
    }

    /// Does what a commit makes due. A failure is one of the disk, of which the next commit or
    /// flush tells; nothing is lost by leaving the log as it is.
    pub(super) fn committed(&self, connection: &rusqlite::Connection) {
        let Ok(log) = checkpoint(connection, "noop") else { return };
        let waiting = log.pages - log.moved;
        // A log that was begun anew has the pages of this commit, and nothing of it was moved.
        let written = match log.pages - self.length.replace(log.pages) {
            written @ 1.. => written,
            _ => {
                self.found.is_flushed.store(false, Ordering::Relaxed);
                self.waits_at.set(WAITED_FROM);
                log.pages
            }
        };
        if log.pages >= self.waits_at.get() && restart(connection, &self.found) {
            self.waits_at.set(log.pages.saturating_mul(2));
            return;
        }
        let together = MOVED_TOGETHER.max(written.saturating_mul(COMMITS_MOVED_TOGETHER));
        let is_long = log.pages >= RESTARTED_FROM;
        let is_ready = is_long && self.found.is_flushed.load(Ordering::Relaxed);
        let is_held = self.found.is_held.load(Ordering::Relaxed);
        let is_too_long = log.pages >= MOVED_WHOLE_FROM && !is_held;
        if waiting > 0 && (is_too_long || (is_ready && waiting <= MOVED_BY_WRITER)) {
            // While the thread is at it this does nothing, and the next commit tries again.
            pass(connection, &self.found);
        } else if waiting >= together || (is_long && waiting > 0) {
            // One that is awake already will see these pages too.
            let _ = self.wake.as_ref().map(|wake| wake.try_send(()));
        }
    }
}

/// What the thread works with.
struct Mover {
    connection: Sqlite,
    /// The file, to flush it. It is never closed: closing any file takes the locks away that SQLite
    /// has on the same one for all connections of this process. A process opens few databases.
    file: &'static File,
    found: Arc<Found>,
    /// Pages of the log that are moved and flushed.
    flushed: i64,
    /// How often that was done since the log was begun.
    flushes: u32,
}

impl Mover {
    fn new(connection: Sqlite, path: &Path, found: Arc<Found>) -> Result<Self, StoreError> {
        let file = File::options().write(true).open(path).map_err(|error| {
            StoreError::Engine(format!("{} cannot be opened: {error}", path.display()))
        })?;
        let file = Box::leak(Box::new(file));
        Ok(Self { connection, file, found, flushed: 0, flushes: 0 })
    }

    /// Moves what can be moved, and of a long log has the disk keep it.
    fn work(&mut self) {
        while let Some(log) = pass(&self.connection.connection, &self.found) {
            if log.moved < self.flushed {
                // It was begun anew.
                (self.flushed, self.flushes) = (0, 0);
            }
            let left = log.moved - self.flushed;
            // What somebody who reads for long has kept is more than any commit should wait for.
            let max = if self.flushes < FLUSHES_MAX { MOVED_BY_WRITER } else { RESTARTED_FROM };
            self.found.is_flushed.store(left <= max, Ordering::Relaxed);
            if left <= max || log.pages < RESTARTED_FROM {
                return;
            }
            if let Err(error) = self.file.sync_data() {
                stop(&format!("the database file cannot be flushed: {error}"));
            }
            self.flushed = log.moved;
            self.flushes += 1;
        }
    }
}

/// Moves all of the log once those who read an old state have ended, and has the next commit begin
/// it anew, unless that is too long to wait. Whether it was tried: the thread may be at it.
fn restart(connection: &rusqlite::Connection, found: &Found) -> bool {
    if connection.busy_timeout(WAIT).is_err() {
        return false;
    }
    let log = moved(connection, "restart", found);
    // The same call has just succeeded.
    let _ = connection.busy_timeout(BUSY_TIMEOUT);
    log.is_some()
}

/// Moves what can be moved at once.
fn pass(connection: &rusqlite::Connection, found: &Found) -> Option<Log> {
    moved(connection, "passive", found)
}

/// Moves pages, and keeps in mind whether those were less than there are. How long the log is then,
/// if that is known.
fn moved(connection: &rusqlite::Connection, mode: &str, found: &Found) -> Option<Log> {
    match checkpoint(connection, mode) {
        // Somebody else is at it.
        Ok(log) if log.pages < 0 => None,
        Ok(log) => {
            found.is_held.store(log.moved < log.pages, Ordering::Relaxed);
            Some(log)
        }
        Err(StoreError::OutcomeUnknown(what)) => stop(&what),
        Err(error) => {
            tracing::warn!(%error, "the log could not be moved into the database; it grows until it can");
            None
        }
    }
}

/// Moves what can be moved without anybody waiting (`passive`) or all of it (`restart`), or only
/// looks (`noop`).
fn checkpoint(connection: &rusqlite::Connection, mode: &str) -> Result<Log, StoreError> {
    let mut statement =
        connection.prepare_cached(&format!("pragma wal_checkpoint({mode})")).map_err(failure)?;
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
        let (length, waits_at) = (Cell::new(0), Cell::new(WAITED_FROM));
        let (found, wake) = (Arc::default(), Some(wake));
        connection.checkpoints = Some(Checkpoints { length, waits_at, found, wake, thread: None });
        woken
    }

    fn found(connection: &Sqlite) -> Arc<Found> {
        Arc::clone(&connection.checkpoints.as_ref().expect("one that serves").found)
    }

    fn look(connection: &Sqlite) -> Log {
        checkpoint(&connection.connection, "noop").expect("a look")
    }

    /// Begins to read what there is now.
    fn hold(reader: &mut Sqlite) {
        reader.begin_read().expect("a snapshot");
        reader.query("select count(*) from t", &[], 1, &mut |_| Ok(())).expect("a count");
    }

    #[test]
    fn a_long_log_is_flushed_before_the_writer_ends_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.db");
        let mut connection = with_a_table(&path);
        let woken = without_thread(&mut connection);
        let mut reader = Sqlite::open(&path, crate::sqlite::Access::Read).expect("a reader");
        let other = Sqlite::open(&path, crate::sqlite::Access::Write).expect("another");
        let mut mover = Mover::new(other, &path, found(&connection)).expect("what the thread has");
        let bytes = vec![7; BYTES_OF_A_COMMIT];
        (0..=RESTARTED_FROM / 1_024).for_each(|_| write(&mut connection, &bytes));
        assert!(look(&connection).pages >= RESTARTED_FROM);

        // All but a few pages is moved, and not flushed.
        hold(&mut reader);
        write(&mut connection, b"row");
        pass(&mover.connection.connection, &mover.found).expect("a pass");
        reader.rollback().expect("the end of the snapshot");
        while woken.try_recv().is_ok() {}
        write(&mut connection, b"row");
        let log = look(&connection);
        assert!((1..10).contains(&(log.pages - log.moved)), "the writer did it");
        woken.try_recv().expect("the thread is woken");

        hold(&mut reader);
        write(&mut connection, b"row");
        mover.work();
        assert_eq!((mover.flushes, mover.flushed), (1, look(&connection).moved));
        mover.work();
        assert_eq!(mover.flushes, 1, "there was nothing to flush");
        reader.rollback().expect("the end of the snapshot");
        write(&mut connection, b"row");
        let log = look(&connection);
        assert_eq!(log.pages, log.moved, "the writer left some");
        write(&mut connection, b"row");
        assert!(look(&connection).pages < 10, "it was not begun anew");
        assert!(!mover.found.is_flushed.load(Ordering::Relaxed));
        mover.work();
        assert_eq!((mover.flushes, mover.flushed), (0, 0), "those of the log before");
    }

    #[test]
    fn pages_of_large_commits_are_moved_for_ten_of_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut connection = with_a_table(&folder.path().join("test.db"));
        let woken = without_thread(&mut connection);
        // More pages each than are moved together at least, and fewer in all than begin a log anew.
        let bytes = vec![7; 4_096 * 600];
        write(&mut connection, &bytes);
        pass(&connection.connection, &Found::default());
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
        hold(&mut reader);
        let is_far_too_long = |log: &Log| log.pages > 2 * MOVED_WHOLE_FROM;
        while !is_far_too_long(&look(&connection)) {
            write(&mut connection, &bytes);
        }
        reader.rollback().expect("the end of the snapshot");
        write(&mut connection, &bytes);
        let log = look(&connection);
        assert!(is_far_too_long(&Log { pages: log.pages - log.moved, moved: 0 }), "it was moved");
        woken.try_recv().expect("the thread is woken");
        pass(&connection.connection, &found(&connection));
        write(&mut connection, &bytes);
        let log = look(&connection);
        assert!(log.pages < RESTARTED_FROM, "the log does not begin anew: {} pages", log.pages);
    }

    /// There is always somebody who reads, each of them for a moment.
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
