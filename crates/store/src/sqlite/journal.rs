//! The journal in a SQLite file of its own. In the file of the tables, an append would wait for
//! whole steps of the projector.

use std::path::Path;

use domain::time::Timestamp;
use rusqlite::{OptionalExtension as _, Transaction, TransactionBehavior, params};
use uuid::Uuid;

use super::{Access, Sqlite, failure};
use crate::error::StoreError;
use crate::journal::{AppendError, Appended, Journal, Leader, Leadership, Row, RowHash, number};

/// The ending of the file's name behind that of the tables. A name that ends in `-journal`, `-wal`
/// or `-shm` is SQLite's: it deletes a file that it takes for its own.
pub const ENDING: &str = ".journal";

const TABLES: &str = "
    create table if not exists journal (
        seq integer primary key, epoch integer not null, at integer not null,
        previous blob not null, hash blob not null, body blob not null
    ) strict;
    create table if not exists leadership (
        one integer primary key check (one = 1), epoch integer not null, holder blob not null,
        beat integer not null
    ) strict;
";

const LAST: &str = "select seq, hash from journal order by seq desc limit 1";

const INSERT: &str = "insert into journal (seq, epoch, at, previous, hash, body) \
    values (?1, ?2, ?3, ?4, ?5, ?6)";

const ROWS: &str = "select seq, epoch, at, previous, hash, body from journal \
    where seq > ?1 order by seq limit ?2";

const LEADERSHIP: &str = "select epoch, holder, beat from leadership";

const RENEW: &str = "update leadership set beat = beat + 1 where epoch = ?1 and holder = ?2";

const TAKE_OVER: &str = "insert into leadership (one, epoch, holder, beat) values (1, ?1, ?2, 0) \
    on conflict do update set epoch = excluded.epoch, holder = excluded.holder, beat = 0";

/// A connection to a journal.
pub struct SqliteJournal(Sqlite);

impl SqliteJournal {
    /// Opens the journal in a file, which is made if it is missing.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let mut opened = Sqlite::open(path, Access::Write)?;
        opened.driver().execute_batch(TABLES).map_err(failure)?;
        Ok(Self(opened))
    }

    fn begin(&mut self) -> Result<Transaction<'_>, StoreError> {
        let driver = self.0.driver();
        driver.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failure)
    }
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        seq: row.get::<_, i64>(0)?.cast_unsigned(),
        epoch: row.get::<_, i64>(1)?.cast_unsigned(),
        at: Timestamp::from_millis(row.get(2)?),
        previous: RowHash(row.get(3)?),
        hash: RowHash(row.get(4)?),
        body: row.get(5)?,
    })
}

fn leadership(connection: &rusqlite::Connection) -> Result<Option<Leadership>, StoreError> {
    let mut statement = connection.prepare_cached(LEADERSHIP).map_err(failure)?;
    let found = statement.query_row([], |row| {
        let holder = Uuid::from_bytes(row.get(1)?);
        let leader = Leader { epoch: row.get::<_, i64>(0)?.cast_unsigned(), holder };
        Ok(Leadership { leader, beat: row.get::<_, i64>(2)?.cast_unsigned() })
    });
    found.optional().map_err(failure)
}

fn rows(connection: &rusqlite::Connection, after: u64, max: u32) -> Result<Vec<Row>, StoreError> {
    let mut statement = connection.prepare_cached(ROWS).map_err(failure)?;
    let found = statement.query_map(params![number(after)?, max], read).map_err(failure)?;
    found.collect::<Result<_, _>>().map_err(failure)
}

impl Journal for SqliteJournal {
    fn append(&mut self, leader: Leader, new: &[Row]) -> Result<Appended, AppendError> {
        let Some(first) = new.first() else { return Ok(Appended::Now) };
        let transaction = self.begin()?;
        let count = u32::try_from(new.len()).unwrap_or(u32::MAX);
        if rows(&transaction, first.seq - 1, count)? == new {
            return Ok(Appended::Before);
        }
        let last = transaction
            .prepare_cached(LAST)
            .map_err(failure)?
            .query_row([], |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), RowHash(row.get(1)?))));
        let last = last.optional().map_err(failure)?.unwrap_or((0, RowHash::NONE));
        let leads = leadership(&transaction)?.is_some_and(|found| found.leader == leader);
        if !leads || last != (first.seq - 1, first.previous) {
            return Err(AppendError::Deposed);
        }
        {
            let mut insert = transaction.prepare_cached(INSERT).map_err(failure)?;
            for row in new {
                let numbers = (number(row.seq)?, number(row.epoch)?, row.at.millis());
                let (previous, hash) = (row.previous.0, row.hash.0);
                let (seq, epoch, at) = numbers;
                let values = params![seq, epoch, at, previous, hash, row.body];
                insert.execute(values).map_err(failure)?;
            }
        }
        // The system may have lost what it could not flush: only the next start knows.
        let committed = transaction.commit();
        committed.map_err(|error| StoreError::OutcomeUnknown(error.to_string()))?;
        Ok(Appended::Now)
    }

    fn take_over(
        &mut self,
        seen: Option<Leadership>,
        holder: Uuid,
    ) -> Result<Option<Leader>, StoreError> {
        let transaction = self.begin()?;
        if leadership(&transaction)? != seen {
            return Ok(None);
        }
        let epoch = seen.map_or(0, |seen| seen.leader.epoch) + 1;
        let values = params![number(epoch)?, holder.as_bytes()];
        transaction.execute(TAKE_OVER, values).map_err(failure)?;
        transaction.commit().map_err(failure)?;
        Ok(Some(Leader { epoch, holder }))
    }

    fn renew(&mut self, leader: Leader) -> Result<bool, StoreError> {
        let values = params![number(leader.epoch)?, leader.holder.as_bytes()];
        Ok(self.0.driver().execute(RENEW, values).map_err(failure)? == 1)
    }

    fn leadership(&mut self) -> Result<Option<Leadership>, StoreError> {
        leadership(self.0.driver())
    }

    fn rows(&mut self, after: u64, max: u32) -> Result<Vec<Row>, StoreError> {
        rows(self.0.driver(), after, max)
    }
}
