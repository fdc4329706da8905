//! Moves everything from one database to an empty one, of whatever engine, and proves it.
//!
//! - Rows go as they are, table by table in the order of their keys, a chunk with each commit.
//!   Sealed values stay sealed: both databases have the same key.
//! - The progress stands in the target's `meta` and is committed with each chunk, so an interrupted
//!   copy goes on. While it stands there, no server opens the target.
//! - No other process has the source open meanwhile. Still, the proof uses nothing that was read
//!   for the copy: it reads both sides again, each from one snapshot.
//! - Only a proven target gets the check of the key, without which no server opens it. Its journal
//!   gets an entry with that, which says who has moved it.

mod proof;

use serde::{Deserialize, Serialize};

use crate::audit;
use crate::catalogue::{self, Chunk};
use crate::engine::{self, COPY_MARK_NAME, Engine, KEEP_META};
use crate::error::StoreError;
use crate::journal::tail;
use crate::keyring::Keyring;
use crate::origin::Origin;
use crate::sealing;
use crate::server_key;
use crate::sql::{Change, Connection, Row, Shape, Value, Write, transaction};
use crate::verify::{self, Report};

use self::proof::Last;
pub use self::proof::{AccountProof, Contents, Proof, TableProof};

/// Why nothing was moved, or not all.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A server or a command has the source open.
    #[error(
        "another process uses the database that is to be moved: stop every server and command \
         that has it open ({0})"
    )]
    SourceInUse(StoreError),
    /// The source was never served.
    #[error("the database that is to be moved holds nothing")]
    SourceEmpty,
    /// The source breaks what must hold of it, so a copy would as well.
    #[error("the database that is to be moved is not sound; see switchyard verify")]
    SourceUnsound(Box<Report>),
    /// The target has rows that no copy put there.
    #[error("the database to move to holds rows in {0}: name one that is empty")]
    TargetHolds(&'static str),
    /// Another process copies into the target.
    #[error("another copy into the same database is under way, or has just ended")]
    TargetInUse,
    /// A database failed. The rows that were copied stay for the next try.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A step of the copy, for the progress report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The source is verified.
    CheckingSource,
    /// An earlier copy left rows in the target, which it goes on with.
    Resuming {
        /// How many.
        rows: u64,
    },
    /// An earlier copy was finished, and is proven again.
    FoundDone,
    /// An earlier copy was of another source, or of another state of it: its rows are removed.
    StartingOver,
    /// A chunk of rows was committed, or a table is empty.
    Copied {
        /// Their table.
        table: &'static str,
        /// Rows of the table that are in the target.
        rows: u64,
        /// Rows of the table.
        of_rows: u64,
        /// Rows of all tables that are in the target.
        all_rows: u64,
        /// Rows of all tables.
        of_all_rows: u64,
    },
    /// Both sides are read again, this table next.
    Comparing {
        /// The table.
        table: &'static str,
    },
    /// The target is verified.
    CheckingTarget,
}

/// The command that moves a database, as the target's journal names it.
pub const COMMAND: &str = "migrate";

const REPLACE_MARK: &str = "update meta set value = $1 where name = $2 and value = $3";
const DROP_MARK: &str = "delete from meta where name = $1 and value = $2";

fn count_of(shape: &Shape) -> String {
    format!("select count(*) from {}", shape.table)
}

/// Whether there is a row, without looking at all of them.
fn any_of(shape: &Shape) -> String {
    format!("select count(*) from (select 1 as one from {} limit 1) as first", shape.table)
}

/// Every statement of this module, for [`crate::statements`].
pub(crate) fn statements() -> Vec<String> {
    let of_tables = catalogue::tables()
        .iter()
        .flat_map(|shape| [count_of(shape), any_of(shape), shape.texts().insert.clone()]);
    [REPLACE_MARK, DROP_MARK].map(str::to_owned).into_iter().chain(of_tables).collect()
}

/// Copies everything from `source` into `target` and proves that it is there; the target can be
/// opened only if the proof holds. `origin` is who has it moved. `on_step` gets each step.
pub fn copy(
    source: &dyn Engine,
    target: &dyn Engine,
    keyring: &Keyring,
    origin: Origin,
    on_step: &mut dyn FnMut(Step),
) -> Result<Proof, CopyError> {
    let mut source = source.alone().map_err(|error| match error {
        StoreError::Conflict(_) => CopyError::SourceInUse(error),
        error => CopyError::Store(error),
    })?;
    let source = &mut *source;
    if !engine::compare_key(source, keyring)? {
        return Err(CopyError::SourceEmpty);
    }
    on_step(Step::CheckingSource);
    let (report, ledger) = verify::everything(source, keyring)?;
    if !report.is_sound() {
        return Err(CopyError::SourceUnsound(Box::new(report)));
    }
    let mut opened = target.whole(keyring)?;
    if is_done(source, &mut *opened, keyring)? {
        on_step(Step::FoundDone);
        source.rollback()?;
        let mut moved = target.auditor()?;
        let last = Last::SaysWhoMoved;
        let proof = proof::prove(source, (&mut *moved, last), keyring, ledger, on_step)?;

        source.rollback()?;
        return if proof.holds() { Ok(proof) } else { Err(CopyError::TargetHolds("meta")) };
    }
    let mut copying = Copying::start(source, opened, on_step)?;
    while let Some((shape, after)) = copying.next() {
        let limit = catalogue::rows_at_once(shape);
        let chunk = catalogue::chunk(source, shape, after.as_deref(), limit)?;
        copying.put(shape, chunk)?;
        on_step(copying.step(shape));
    }
    source.rollback()?;
    let (mut copied, last) = (target.auditor()?, Last::IsOfSource);
    let proof = proof::prove(source, (&mut *copied, last), keyring, ledger, on_step)?;
    copying.finish(proof.holds().then_some((keyring, origin)))?;
    source.rollback()?;
    Ok(proof)
}

/// Whether an earlier copy of this source was finished, of which perhaps only the command did not
/// come to say so: the target's journal says who has moved it, and nothing behind that.
fn is_done(
    source: &mut dyn Connection,
    target: &mut dyn Connection,
    keyring: &Keyring,
) -> Result<bool, StoreError> {
    let is_other = engine::meta(target, COPY_MARK_NAME)?.is_some()
        || tail::database(target)? != tail::database(source)?
        || server_key::kept(target)? != server_key::kept(source)?;
    if is_other {
        return Ok(false);
    }
    let end = tail::end(source)?;
    audit::ends_with(target, keyring, end, COMMAND)
}

/// How many rows each table has, in the order of the catalogue.
fn counts(connection: &mut dyn Connection) -> Result<Vec<u64>, StoreError> {
    catalogue::tables().iter().map(|shape| count(connection, &count_of(shape))).collect()
}

fn count(connection: &mut dyn Connection, sql: &str) -> Result<u64, StoreError> {
    let count = connection.first(sql, &[], ("a table", &["count"]), Row::int)?;
    Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0))
}

/// How far a copy has come, as it is kept in the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// Rows of each table of the source when the copy began, in the order of the catalogue. A
    /// source with other numbers is not the one that was copied; one that changed and has the same
    /// numbers is found out by the proof, which empties this.
    source: Vec<u64>,
    /// How many tables are done.
    tables: usize,
    /// Where the last row of the present table that is in the target stands in the source; empty
    /// before the first.
    after: Vec<Value>,
    /// Rows of the present table that are in the target.
    rows: u64,
}

impl Mark {
    fn to_value(&self) -> Result<Value, StoreError> {
        let bytes = serde_json::to_vec(self).map_err(|error| StoreError::Engine(error.to_string()));
        bytes.map(Value::Bytes)
    }

    /// A mark that cannot be read is that of another program.
    fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// A copy under way.
struct Copying {
    target: Box<dyn Connection>,
    mark: Mark,
    /// The mark as the target has it.
    kept: Value,
}

impl Copying {
    /// Makes the target this copy's: an empty one, or one that an earlier copy left unfinished.
    fn start(
        source: &mut dyn Connection,
        mut target: Box<dyn Connection>,
        on_step: &mut dyn FnMut(Step),
    ) -> Result<Self, CopyError> {
        let new = Mark { source: counts(source)?, tables: 0, after: Vec::new(), rows: 0 };
        let (database, secret) = (tail::database(source)?, server_key::kept(source)?);
        let sealing = sealing::kept(source)?;
        let claimed = transaction(&mut *target, |target| {
            // The rows of the journal are bound to it.
            database.map_or(Ok(()), |database| tail::keep_database(target, database))?;
            // Everything that is sealed follows from it.
            secret.clone().map_or(Ok(()), |secret| server_key::keep(target, secret))?;
            sealing.clone().map_or(Ok(()), |row| sealing::keep(target, row))?;
            claim(target, &new)
        })?;
        let (mark, kept, is_new) = claimed;
        let mut copying = Self { target, mark, kept };
        if copying.mark.source != new.source {
            on_step(Step::StartingOver);
            copying.clear()?;
            copying.replace_mark(new, |_| Ok(()))?;
        } else if !is_new {
            on_step(Step::Resuming { rows: copying.all_rows() });
        }
        Ok(copying)
    }

    /// Removes the rows of an earlier copy. It voids the mark first, so that no copy goes on with a
    /// part of them.
    fn clear(&mut self) -> Result<(), CopyError> {
        let void = Mark { source: Vec::new(), ..self.mark.clone() };
        self.replace_mark(void, |_| Ok(()))?;
        for shape in catalogue::tables().iter().rev() {
            let limit = catalogue::rows_at_once(shape);
            while transaction(&mut *self.target, |it| catalogue::clear(it, shape, limit))? > 0 {}
        }
        Ok(())
    }

    /// The table that is not done, and the key behind which it goes on.
    fn next(&self) -> Option<(&'static Shape, Option<Vec<Value>>)> {
        let shape = catalogue::tables().get(self.mark.tables)?;
        let after = self.mark.after.clone();
        Some((shape, (!after.is_empty()).then_some(after)))
    }

    /// Puts rows into the target; those with none behind them are the last of their table.
    fn put(&mut self, shape: &'static Shape, chunk: Chunk) -> Result<(), CopyError> {
        let Chunk { rows, last } = chunk;
        let mut mark = self.mark.clone();
        mark.rows += rows.len() as u64;
        match last {
            Some(last) => mark.after = last,
            None => {
                mark = Mark { tables: mark.tables + 1, after: Vec::new(), rows: 0, ..mark };
            }
        }
        self.replace_mark(mark, |target| {
            if rows.is_empty() {
                return Ok(());
            }
            target.write(vec![Write { shape, change: Change::Insert, rows }])
        })
    }

    /// Ends the copy: with the key's check, the target is a database; without it, the next copy
    /// starts over.
    fn finish(mut self, proven: Option<(&Keyring, Origin)>) -> Result<(), CopyError> {
        let Some((keyring, origin)) = proven else {
            let void = Mark { source: Vec::new(), ..self.mark.clone() };
            return self.replace_mark(void, |_| Ok(()));
        };
        let kept = self.kept;
        audit::keep_in(&mut *self.target, keyring, origin, |target| {
            met(target.execute(DROP_MARK, &[COPY_MARK_NAME, kept])?)?;
            Ok(engine::keep_key_check(target, keyring)?)
        })
    }

    /// Commits another mark with `work`.
    fn replace_mark(
        &mut self,
        mark: Mark,
        work: impl FnOnce(&mut dyn Connection) -> Result<(), StoreError>,
    ) -> Result<(), CopyError> {
        let kept = mark.to_value()?;
        let parameters = [kept.clone(), COPY_MARK_NAME, self.kept.clone()];
        transaction(&mut *self.target, |target| -> Result<_, CopyError> {
            met(target.execute(REPLACE_MARK, &parameters)?)?;
            Ok(work(target)?)
        })?;
        (self.mark, self.kept) = (mark, kept);
        Ok(())
    }

    /// Rows of all tables that are in the target.
    fn all_rows(&self) -> u64 {
        self.mark.source.iter().take(self.mark.tables).sum::<u64>() + self.mark.rows
    }

    /// The progress after [`Copying::put`].
    fn step(&self, shape: &'static Shape) -> Step {
        let place = catalogue::tables().iter().position(|table| table.table == shape.table);
        let of_rows = place.and_then(|place| self.mark.source.get(place)).copied().unwrap_or(0);
        let is_done = place.is_some_and(|place| place < self.mark.tables);
        Step::Copied {
            table: shape.table,
            rows: if is_done { of_rows } else { self.mark.rows },
            of_rows,
            all_rows: self.all_rows(),
            of_all_rows: self.mark.source.iter().sum(),
        }
    }
}

/// The mark must be as this copy left it.
fn met(changed: usize) -> Result<(), CopyError> {
    if changed == 1 { Ok(()) } else { Err(CopyError::TargetInUse) }
}

/// Takes up the mark of an earlier copy, or puts that of a new one into an empty target. Gives the
/// mark as it is kept, and whether it is the new one.
fn claim(target: &mut dyn Connection, new: &Mark) -> Result<(Mark, Value, bool), CopyError> {
    if let Some(bytes) = engine::meta(target, COPY_MARK_NAME)? {
        let void = Mark { source: Vec::new(), tables: 0, after: Vec::new(), rows: 0 };
        let mark = Mark::read(&bytes).unwrap_or(void);
        return Ok((mark, Value::Bytes(bytes), false));
    }
    if engine::knows_key(target)? {
        return Err(CopyError::TargetHolds("meta"));
    }
    for shape in catalogue::tables() {
        if count(target, &any_of(shape))? > 0 {
            return Err(CopyError::TargetHolds(shape.table));
        }
    }
    let kept = new.to_value()?;
    target.execute(KEEP_META, &[COPY_MARK_NAME, kept.clone()])?;
    Ok((new.clone(), kept, true))
}
