//! A connection to a database, in or out of a transaction.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};

use super::acknowledged::Acknowledged;
use super::address::Address;
use super::changes::{Part, ROWS_MAX};
use super::failure::Failure;
use super::link::{Answer, Link, Purpose, Question, Reached};
use super::texts::{self, Texts};
use super::write_lock::{self, BEGIN, Epochs};
use super::{refusals, soundness, statistics};
use crate::error::StoreError;
use crate::leases::Duty;
use crate::sql::{Connection, Keys, LastWriter, Row, Shape, Value, Write, collect_values};

const BEGIN_READ: Question<'_> = Question::plain("begin isolation level repeatable read read only");
const BEGIN_ALONE: Question<'_> = Question::plain("begin isolation level repeatable read");
const ROLLBACK: Question<'_> = Question::plain("rollback");

/// The leadership lease.
const LEASE: &str = "select holder, epoch, until from leases where duty = $1";

/// What a transaction that reads begins with.
type Beginning = &'static [Question<'static>];

/// One snapshot.
const SNAPSHOT: Beginning = &[BEGIN_READ];

/// One snapshot, and nobody writes until its end.
const SNAPSHOT_ALONE: Beginning = &[BEGIN_ALONE, write_lock::HOLD];

/// The statements of transactions beside those over tables.
#[cfg(test)]
pub(super) fn statements() -> Vec<String> {
    let all = [write_lock::TAKE, write_lock::LEAVE, write_lock::TOUCH, LEASE];
    let frame = [BEGIN, BEGIN_READ, BEGIN_ALONE, write_lock::HOLD, write_lock::COMMIT, ROLLBACK];
    let frame = frame.map(|question| question.sql);
    all.into_iter().chain(frame).map(str::to_owned).collect()
}

/// The transaction that a connection is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// None.
    Free,
    /// One that reads and begins with its first question.
    WillRead,
    /// One that reads.
    Reads,
    /// One that writes; the epoch of the commit before it.
    Writes(i64),
}

/// A connection to a database.
pub(crate) struct Postgres {
    link: Link,
    state: State,
    /// How it begins to read.
    beginning: Beginning,
    /// Its number among those that write; none for a connection that only reads.
    node: Option<i64>,
    /// The last commit epoch that it has seen in this session.
    seen: Option<i64>,
    /// Commits that were acknowledged to it, in whatever session.
    acknowledged: Acknowledged,
    /// By the address of the shape: a table can have several.
    texts: HashMap<usize, Arc<Texts>>,
}

impl Postgres {
    pub(super) fn new(address: Address, purpose: Purpose) -> Result<Self, StoreError> {
        Ok(Self {
            link: Link::new(address, purpose)?,
            state: State::Free,
            beginning: SNAPSHOT,
            node: None,
            seen: None,
            acknowledged: Acknowledged::default(),
            texts: HashMap::new(),
        })
    }

    /// Lets it write, as a node of its own.
    pub(super) fn write_as_new_node(&mut self) -> Result<(), StoreError> {
        self.node = Some(write_lock::new_node()?);
        Ok(())
    }

    /// Keeps every node from writing while it reads.
    pub(super) fn lock_snapshots(&mut self) {
        self.beginning = SNAPSHOT_ALONE;
    }

    /// Runs migrations, each in a transaction. A [`StoreError::Conflict`] is a migration that
    /// another server was faster with, [`StoreError::Busy`] one of a table that is in use.
    pub(crate) fn migrate(&mut self, runner: &refinery::Runner) -> Result<(), StoreError> {
        self.link.migrate(runner)?.map(drop).map_err(|error| refusals::of_migration(&error))
    }

    /// Makes sure that there is a session. In a new one, what was known from the last is not: the
    /// server may be another one, to which not everything had come.
    pub(super) fn reach(&mut self) -> Result<(), Failure> {
        if self.link.connect()? == Reached::Anew {
            self.seen = None;
        }
        Ok(())
    }

    /// The leadership lease, as it is stored.
    pub(super) fn lease(&mut self) -> Result<Option<Vec<Value>>, StoreError> {
        let mut lease = None;
        self.query(LEASE, &[Value::name(Duty::Jobs.name())], 3, &mut |values| {
            lease = Some(values);
            Ok(())
        })?;
        Ok(lease)
    }

    /// Keeps in mind that a transaction is over if its session is.
    fn after<T>(&mut self, result: Result<T, Failure>) -> Result<T, StoreError> {
        result.map_err(|failure| {
            if !failure.is_answer {
                self.state = State::Free;
            }
            failure.error
        })
    }

    /// Refuses to write outside a transaction: its session may be gone, and each statement would be
    /// a commit of its own.
    fn in_transaction(&self) -> Result<(), StoreError> {
        match self.state {
            State::Writes(_) => Ok(()),
            State::Free | State::WillRead | State::Reads => {
                Err(StoreError::Unavailable("the transaction was lost".to_owned()))
            }
        }
    }

    /// Makes all changes, in one round trip.
    fn write_all(&mut self, writes: &[Write]) -> Result<(), Failure> {
        let mut parts = Vec::new();
        for write in writes {
            parts.extend(Part::of(write, &self.texts(write.shape)?)?);
        }
        let answers = Part::ask(&parts, |questions| self.link.ask(questions))?;
        Part::check(&parts, &answers)
    }

    /// Spares the server what it would do to know tables that it need not know
    /// ([`statistics`]). An operator's own settings stay, and one who lets us alter nothing is let
    /// alone.
    pub(super) fn analyze_tables_seldom(&mut self) -> Result<(), StoreError> {
        let mut tables = Vec::new();
        self.names(statistics::TABLES_AS_THEY_CAME, &mut |table| tables.push(table))?;
        for table in tables {
            match self.query(&statistics::seldom(&table), &[], 0, &mut |_| Ok(())) {
                Ok(()) => {}
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(error) => tracing::warn!(table, %error, "table keeps its analyze settings"),
            }
        }
        Ok(())
    }

    /// The first column of what is asked for.
    fn names(&mut self, sql: &str, each: &mut dyn FnMut(String)) -> Result<(), StoreError> {
        self.query(sql, &[], 1, &mut |values| {
            each(Row::new("pg_catalog", &["name"], values).text()?);
            Ok(())
        })
    }

    /// What the server finds wrong with an index, inside a transaction.
    fn damage_of(&mut self, index: &str) -> Result<Option<String>, StoreError> {
        let check = Question { sql: soundness::CHECK_INDEX, parameters: &[&index] };
        match self.link.ask(&[soundness::BEFORE_INDEX, check]) {
            Ok(_) => Ok(None),
            // The transaction goes on.
            Err(Failure { error: StoreError::Engine(what), is_answer: true }) => {
                self.link.ask(&[soundness::AFTER_DAMAGE])?;
                Ok(Some(what))
            }
            Err(failure) => self.after(Err(failure)),
        }
    }

    /// The statements of a table.
    fn texts(&mut self, shape: &'static Shape) -> Result<Arc<Texts>, Failure> {
        let key = std::ptr::from_ref(shape).addr();
        if let Some(texts) = self.texts.get(&key) {
            return Ok(Arc::clone(texts));
        }
        let probe = self.link.describe(&texts::probe(shape))?;
        let types: Vec<&Type> = probe.columns().iter().map(|column| column.type_()).collect();
        let texts = Arc::new(Texts::new(shape, &types).map_err(Failure::known)?);
        self.texts.insert(key, Arc::clone(&texts));
        Ok(texts)
    }

    /// What stands before the next question: the beginning of a transaction that reads, if one is
    /// to begin.
    fn beginning(&mut self) -> Beginning {
        match self.state {
            State::WillRead => {
                self.state = State::Reads;
                self.beginning
            }
            State::Free | State::Reads | State::Writes(_) => &[],
        }
    }

    /// Asks for rows of several tables at once, behind these questions. Each answer comes with the
    /// place of its table.
    fn rows_of_all(
        &mut self,
        before: &[Question<'_>],
        wanted: &[Keys],
    ) -> Result<Vec<(usize, Answer)>, Failure> {
        let texts = wanted.iter().map(|Keys { shape, .. }| self.texts(shape));
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let mut parts = Vec::new();
        for (place, Keys { keys, .. }) in wanted.iter().enumerate() {
            parts.extend(keys.chunks(ROWS_MAX).map(|keys| (place, keys)));
        }
        let parameters: Vec<_> =
            parts.iter().map(|(_, keys)| [keys as &(dyn ToSql + Sync)]).collect();
        let questions = parts.iter().zip(&parameters);
        let questions = questions
            .map(|((place, _), parameters)| Question { sql: &texts[*place].fetch, parameters });
        let questions: Vec<_> = before.iter().copied().chain(questions).collect();
        let answers = self.link.ask(&questions)?.split_off(before.len());
        Ok(parts.iter().map(|(place, _)| *place).zip(answers).collect())
    }

    /// Asks something, within a transaction that reads if one is to begin.
    fn stream(
        &mut self,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
        columns: usize,
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), Failure> {
        let before = self.beginning();
        self.link
            .stream(before, Question { sql, parameters }, &mut |row| each(values_of(row, columns)?))
    }
}

/// The first columns of a row.
fn values_of(row: &tokio_postgres::Row, columns: usize) -> Result<Vec<Value>, StoreError> {
    collect_values(columns, |column| {
        row.try_get(column).map_err(|error| Failure::from(error).error)
    })
}

impl Connection for Postgres {
    fn begin(&mut self) -> Result<LastWriter, StoreError> {
        self.rollback()?;
        self.reach()?;
        let only_reads = || StoreError::Engine("this connection only reads".to_owned());
        let node = self.node.ok_or_else(only_reads)?;
        match write_lock::take(&mut self.link, &[BEGIN], node) {
            Ok(Epochs { last, ours }) => {
                self.state = State::Writes(last);
                self.acknowledged.begin_behind(ours);
                let is_seen = self.seen.replace(last) == Some(last);
                Ok(if is_seen { LastWriter::ThisNode } else { LastWriter::Unknown })
            }
            Err(failure) => {
                if failure.is_answer {
                    self.link.ask(&[ROLLBACK])?;
                }
                Err(failure.error)
            }
        }
    }

    fn begin_read(&mut self) -> Result<(), StoreError> {
        self.rollback()?;
        self.reach()?;
        self.state = State::WillRead;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        let (State::Writes(last), Some(node)) = (self.state, self.node) else {
            return self.rollback();
        };
        let epoch = last + 1;
        let committed = write_lock::commit(&mut self.link, node, epoch);
        self.state = State::Free;
        match committed {
            Ok(()) => self.seen = Some(epoch),
            Err(failure) if failure.is_answer => return Err(failure.error),
            // The session is a new one then, in which nothing was seen yet.
            Err(failure) => {
                self.seen = None;
                write_lock::find_out(&mut self.link, node, epoch, failure.error)?;
            }
        }
        self.acknowledged.commit(epoch);
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), StoreError> {
        match std::mem::replace(&mut self.state, State::Free) {
            State::Free | State::WillRead => Ok(()),
            // Nobody needs the answer: whatever goes wrong with it ends the session, and the next
            // transaction finds that out.
            State::Reads => Ok(self.link.tell(ROLLBACK)?),
            State::Writes(_) => Ok(self.link.ask(&[ROLLBACK]).map(drop)?),
        }
    }

    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<usize, StoreError> {
        self.in_transaction()?;
        let parameters: Vec<_> = parameters.iter().map(|it| it as &(dyn ToSql + Sync)).collect();
        let answers = self.link.ask(&[Question { sql, parameters: &parameters }]);
        Ok(self.after(answers)?.iter().map(|answer| answer.changed).sum())
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: &[Value],
        columns: usize,
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let parameters: Vec<_> = parameters.iter().map(|it| it as &(dyn ToSql + Sync)).collect();
        let result = self.stream(sql, &parameters, columns, each);
        self.after(result)
    }

    fn fetch(
        &mut self,
        shape: &'static Shape,
        keys: &[Value],
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if let [key] = keys {
            // The server keeps one plan for whatever key, which takes less time than it saves to
            // plan for one of several.
            return self.query(
                &shape.texts().select,
                std::slice::from_ref(key),
                shape.width(),
                each,
            );
        }
        let texts = self.texts(shape);
        let texts = self.after(texts)?;
        for keys in keys.chunks(ROWS_MAX) {
            let result = self.stream(&texts.fetch, &[&keys], shape.width(), each);
            self.after(result)?;
        }
        Ok(())
    }

    fn fetch_all(
        &mut self,
        wanted: &[Keys],
        each: &mut dyn FnMut(usize, Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let before = self.beginning();
        let asked = self.rows_of_all(before, wanted);
        for (place, answer) in self.after(asked)? {
            for row in &answer.rows {
                each(place, values_of(row, wanted[place].shape.width())?)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        self.in_transaction()?;
        self.acknowledged.write(&writes);
        let result = self.write_all(&writes);
        self.after(result)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn is_connected(&self) -> bool {
        self.link.has_session()
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        // The server keeps its own files in order.
        Ok(())
    }

    fn prepare(&mut self, sql: &str) -> Result<(), StoreError> {
        let result = self.link.describe(sql).map(drop);
        self.after(result)
    }

    fn integrity(&mut self) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        for (sql, what) in soundness::QUESTIONS {
            self.names(sql, &mut |name| found.push(format!("{name} {what}")))?;
        }
        let mut indexes = Vec::new();
        self.names(soundness::INDEXES, &mut |name| indexes.push(name))?;
        for index in indexes {
            found.extend(self.damage_of(&index)?.map(|what| format!("index {index}: {what}")));
        }
        Ok(found)
    }
}
