//! A connection to a database, in or out of a transaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row as ServerRow;
use tokio_postgres::types::Type;

use super::address::Address;
use super::client::{Answer, Client, Purpose, Query};
use super::texts::{self, ROWS_MAX, Texts};
use super::{failure, refusals, soundness};
use crate::error::StoreError;
use crate::sql::{Connection, Keys, LEADERSHIP, Row, Shape, Value, Write, collect_values};

/// Begins to write: the write lock is one row that each transaction which writes locks first, so
/// that batches of all servers run one after the other. Behind it, each statement sees everything
/// that was committed before.
const BEGIN: &[&str] =
    &["begin isolation level read committed read write", "select one from write_lock for update"];

const COMMIT: &str = "commit";

/// How long a commit may take: one that waits for a standby far away is no reason to ask whether it
/// happened. A lost one is looked for a little longer (`journal::lost_commit`).
const COMMIT_TIME: Duration = Duration::from_secs(6);

/// Reads from one snapshot.
const SNAPSHOT: &[&str] = &["begin isolation level repeatable read read only"];

/// Reads from one snapshot, and keeps every server from writing until its end. A lock of the table
/// takes no snapshot: that is taken once all others have committed.
const SNAPSHOT_ALONE: &[&str] =
    &["begin isolation level repeatable read", "lock table write_lock in exclusive mode"];

/// Begins to write without the lock. Its commit waits for no disk and no standby: rows that the
/// server loses follow the journal again.
const BEGIN_BESIDE: &[&str] =
    &["begin isolation level read committed read write", "set local synchronous_commit = off"];

const ROLLBACK: &str = "rollback";

/// The leadership lease.
const LEASE: &str = "select holder, epoch, until from leases where name = $1";

/// The transaction that a connection is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// None.
    Free,
    /// One that reads.
    Reads,
    /// One that writes with the write lock.
    Writes,
    /// One that writes without the write lock.
    WritesBeside,
}

/// The use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// To read.
    Reads,
    /// To write with the write lock.
    Writes,
    /// To write without it: tables that follow the journal, which have a fence of their own.
    WritesBeside,
}

/// A connection to a database.
pub(crate) struct Postgres {
    client: Client,
    state: State,
    /// How it begins to read.
    snapshot: &'static [&'static str],
    is_for: Use,
    /// By the address of the shape: a table can have several.
    texts: HashMap<usize, Arc<Texts>>,
}

impl Postgres {
    pub(super) fn new(address: Address, purpose: Purpose) -> Self {
        Self {
            client: Client::new(address, purpose),
            state: State::Free,
            snapshot: SNAPSHOT,
            is_for: Use::Reads,
            texts: HashMap::new(),
        }
    }

    /// Lets it write, with the write lock.
    pub(super) fn write_with_lock(&mut self) {
        self.is_for = Use::Writes;
    }

    /// Lets it write without the write lock: tables that follow the journal.
    pub(super) fn write_beside(&mut self) {
        self.is_for = Use::WritesBeside;
    }

    /// Keeps every server from writing while it reads.
    pub(super) fn lock_snapshots(&mut self) {
        self.snapshot = SNAPSHOT_ALONE;
    }

    /// Runs migrations, each in a transaction. A [`StoreError::Conflict`] is a migration that
    /// another server was faster with, [`StoreError::Busy`] one of a table that is in use.
    pub(crate) fn migrate(&mut self, runner: &refinery::Runner) -> Result<(), StoreError> {
        self.client.migrate(runner)?.map(drop).map_err(|error| refusals::of_migration(&error))
    }

    /// Makes sure that there is a session.
    pub(super) fn connect(&mut self) -> Result<(), StoreError> {
        self.client.connect()
    }

    /// The leadership lease, as it is stored.
    pub(super) fn lease(&mut self) -> Result<Option<Vec<Value>>, StoreError> {
        let mut lease = None;
        self.query(LEASE, &[Value::name(LEADERSHIP)], 3, &mut |values| {
            lease = Some(values);
            Ok(())
        })?;
        Ok(lease)
    }

    /// Keeps in mind that a transaction is over if its session is.
    fn after<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if result.as_ref().is_err_and(failure::is_lost) {
            self.state = State::Free;
        }
        result
    }

    /// Refuses to write outside a transaction: its session may be gone, and each statement would be
    /// a commit of its own.
    fn in_transaction(&self) -> Result<(), StoreError> {
        match self.state {
            State::Writes | State::WritesBeside => Ok(()),
            State::Free | State::Reads => {
                Err(StoreError::Unavailable("the transaction was lost".to_owned()))
            }
        }
    }

    /// The first column of a query.
    fn names(&mut self, sql: &str) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        self.query(sql, &[], 1, &mut |values| {
            names.push(Row::new("pg_catalog", &["name"], values).text()?);
            Ok(())
        })?;
        Ok(names)
    }

    /// The damage that the server finds in an index, inside a transaction.
    fn damage_of(&mut self, index: &str) -> Result<Option<String>, StoreError> {
        let check = Query::new(soundness::CHECK_INDEX, [index]);
        match self.client.run(&[Query::plain(soundness::BEFORE_INDEX), check]) {
            Ok(_) => Ok(None),
            // The transaction goes on.
            Err(StoreError::Engine(what) | StoreError::Refused(what)) => {
                self.client.run(&[Query::plain(soundness::AFTER_DAMAGE)])?;
                Ok(Some(what))
            }
            Err(error) => self.after(Err(error)),
        }
    }

    /// The statements of a table.
    fn texts(&mut self, shape: &'static Shape) -> Result<Arc<Texts>, StoreError> {
        let key = std::ptr::from_ref(shape).addr();
        if let Some(texts) = self.texts.get(&key) {
            return Ok(Arc::clone(texts));
        }
        let probe = self.client.describe(&texts::probe(shape))?;
        let types: Vec<&Type> = probe.columns().iter().map(|column| column.type_()).collect();
        let texts = Arc::new(Texts::new(shape, &types)?);
        self.texts.insert(key, Arc::clone(&texts));
        Ok(texts)
    }

    /// Makes all changes, in one round trip.
    fn write_all(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let texts = writes.iter().map(|write| self.texts(write.shape));
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let queries = writes.iter().zip(&texts).flat_map(|(write, texts)| {
            let Write { shape, change, rows } = write;
            rows.chunks(ROWS_MAX).map(|rows| texts.query(shape, *change, rows))
        });
        self.client.run(&queries.collect::<Vec<_>>()).map(drop)
    }

    /// The rows of a query and of several tables, in one round trip. Each comes with the place of
    /// its table, from 1.
    fn rows_of_all(
        &mut self,
        sql: &str,
        wanted: &[Keys],
    ) -> Result<Vec<(usize, ServerRow)>, StoreError> {
        let texts = wanted.iter().map(|Keys { shape, .. }| self.texts(shape));
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let (mut queries, mut places) = (vec![Query::plain(sql)], vec![0]);
        for (place, (Keys { keys, .. }, texts)) in (1..).zip(wanted.iter().zip(&texts)) {
            for keys in keys.chunks(ROWS_MAX) {
                queries.push(Query::new(&texts.fetch, [keys]));
                places.push(place);
            }
        }
        let answers = places.into_iter().zip(self.client.run(&queries)?);
        let rows =
            |(place, answer): (usize, Answer)| answer.rows.into_iter().map(move |row| (place, row));
        Ok(answers.flat_map(rows).collect())
    }

    /// Hands over the first columns of each row.
    fn stream(
        &mut self,
        query: Query<'_>,
        columns: usize,
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let result = self.client.stream(query, &mut |row| each(values_of(row, columns)?));
        self.after(result)
    }
}

/// The first columns of a row.
fn values_of(row: &ServerRow, columns: usize) -> Result<Vec<Value>, StoreError> {
    collect_values(columns, |column| Ok(row.try_get(column)?))
}

impl Connection for Postgres {
    fn begin(&mut self) -> Result<(), StoreError> {
        self.rollback()?;
        self.connect()?;
        let (begin, state) = match self.is_for {
            Use::Writes => (BEGIN, State::Writes),
            Use::WritesBeside => (BEGIN_BESIDE, State::WritesBeside),
            Use::Reads => {
                return Err(StoreError::Engine("this connection only reads".to_owned()));
            }
        };
        self.client.begin_with_next(begin);
        self.state = state;
        Ok(())
    }

    fn begin_read(&mut self) -> Result<(), StoreError> {
        self.begin_point_read()?;
        self.client.begin_with_next(self.snapshot);
        self.state = State::Reads;
        Ok(())
    }

    fn begin_point_read(&mut self) -> Result<(), StoreError> {
        self.rollback()?;
        self.connect()
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        let state = std::mem::replace(&mut self.state, State::Free);
        if self.client.forget_beginning() {
            return Ok(());
        }
        match state {
            State::Free => Ok(()),
            State::Reads | State::WritesBeside => {
                self.client.run(&[Query::plain(COMMIT)]).map(drop)
            }
            State::Writes => {
                let committed = self.client.commit(COMMIT_TIME, &[Query::plain(COMMIT)]);
                committed.map_err(|error| match failure::is_lost(&error) {
                    true => StoreError::OutcomeUnknown(error.to_string()),
                    false => error,
                })
            }
        }
    }

    fn rollback(&mut self) -> Result<(), StoreError> {
        let state = std::mem::replace(&mut self.state, State::Free);
        // A transaction without a statement has not begun.
        if state != State::Free && !self.client.forget_beginning() {
            self.client.run(&[Query::plain(ROLLBACK)])?;
        }
        Ok(())
    }

    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<usize, StoreError> {
        self.in_transaction()?;
        let answers = self.client.run(&[Query::new(sql, parameters)]);
        Ok(self.after(answers)?.iter().map(|answer| answer.changed).sum())
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: &[Value],
        columns: usize,
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.stream(Query::new(sql, parameters), columns, each)
    }

    fn fetch(
        &mut self,
        shape: &'static Shape,
        keys: &[Value],
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let texts = self.texts(shape);
        let texts = self.after(texts)?;
        for keys in keys.chunks(ROWS_MAX) {
            self.stream(Query::new(&texts.fetch, [keys]), shape.columns.len(), each)?;
        }
        Ok(())
    }

    fn fetch_all(
        &mut self,
        (sql, columns): (&str, usize),
        wanted: &[Keys],
        each: &mut dyn FnMut(usize, Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let rows = self.rows_of_all(sql, wanted);
        for (place, row) in self.after(rows)? {
            let columns = place.checked_sub(1).map_or(columns, |at| wanted[at].shape.columns.len());
            each(place, values_of(&row, columns)?)?;
        }
        Ok(())
    }

    fn write(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        self.in_transaction()?;
        let result = self.write_all(&writes);
        self.after(result)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn is_connected(&self) -> bool {
        self.client.has_session()
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        // The server keeps its own files in order.
        Ok(())
    }

    fn prepare(&mut self, sql: &str) -> Result<(), StoreError> {
        let result = self.client.describe(sql).map(drop);
        self.after(result)
    }

    fn integrity(&mut self) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        for (sql, what) in soundness::CHECKS {
            found.extend(self.names(sql)?.into_iter().map(|name| format!("{name} {what}")));
        }
        for index in self.names(soundness::INDEXES)? {
            found.extend(self.damage_of(&index)?.map(|what| format!("index {index}: {what}")));
        }
        Ok(found)
    }
}
