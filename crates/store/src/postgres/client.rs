//! A client of a PostgreSQL server: one session at a time, opened again after it was lost.
//!
//! A server that hangs keeps its sockets open and its own time limits asleep, so each wait has a
//! deadline here. A session that missed one, or ended otherwise than by an answer, is dropped: its
//! transaction may have done anything.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::yield_now;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_postgres::error::DbError;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Connection, Error, Row, Statement};

use super::address::{Address, Server};
use super::failure;
use super::refusals;
use crate::error::StoreError;

/// Prepared statements that a session keeps: more than the store has, so that none is made twice
/// but for lists with rare filters.
const STATEMENTS_KEPT: usize = 256;

/// How much longer we wait than the server lets a statement run, so that a slow statement is not
/// mistaken for a silent server.
const MARGIN: Duration = Duration::from_secs(1);

/// Rows that are taken off the wire before they are handed on.
const ROWS_AT_ONCE: usize = 1_024;

/// The purpose of sessions: how long things may take in them, and how rows are found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Purpose {
    /// One statement.
    pub(super) statement: Duration,
    /// Waiting for a row or table that another session has locked.
    pub(super) lock: Duration,
    /// Between two statements of a transaction.
    pub(super) idle: Duration,
    /// Whether all rows are found by key or along an index.
    pub(super) goes_by_keys: bool,
}

impl Purpose {
    /// For requests. The wait for the write lock is shorter than the wait for an answer. Together
    /// with one more try, it is longer than the time after which a hanging server loses the lock.
    ///
    /// `idle` frees the write lock of a server of ours that hangs, by the time that its lease runs
    /// out. It also bounds how long the units of a batch may compute between two statements. There
    /// are 768 of them at most (`commit::queue`), so each has 4 ms, and the slowest takes one. A
    /// batch that is ended so loses nothing: no unit was acknowledged, requests get 503, and jobs
    /// run again.
    pub(super) const REQUESTS: Self = Self {
        statement: Duration::from_secs(5),
        lock: Duration::from_secs(4),
        idle: Duration::from_secs(3),
        goes_by_keys: true,
    };

    /// For probes of one row, which take a millisecond as a rule.
    pub(super) const PROBES: Self = Self { statement: Duration::from_secs(1), ..Self::REQUESTS };

    /// For work that takes as long as there is data, such as a copy: an hour, so that it ends one
    /// day.
    pub(super) const WHOLE: Self = Self {
        statement: Duration::from_secs(3_600),
        lock: Duration::from_secs(3_600),
        idle: Duration::from_secs(3_600),
        goes_by_keys: false,
    };

    /// For reads of a command. They find rows as requests do, and some go through a whole table.
    pub(super) const COMMANDS: Self = Self { statement: Self::WHOLE.statement, ..Self::REQUESTS };

    /// For changes of tables, which take as long as there is data. A dump or an operator may have a
    /// table in use for long. All sessions that come later queue behind the change, so it waits
    /// briefly and is refused then.
    pub(super) const SCHEMA: Self = Self { lock: Duration::from_secs(1), ..Self::WHOLE };
}

/// A statement with its parameters.
pub(super) struct Query<'a> {
    pub(super) sql: &'a str,
    pub(super) parameters: Vec<Box<dyn ToSql + Send + Sync + 'a>>,
}

impl<'a> Query<'a> {
    /// A statement without parameters.
    pub(super) const fn plain(sql: &'a str) -> Self {
        Self { sql, parameters: Vec::new() }
    }

    /// A statement with one value for each parameter.
    pub(super) fn new(
        sql: &'a str,
        parameters: impl IntoIterator<Item = impl ToSql + Send + Sync + 'a>,
    ) -> Self {
        let boxed = |parameter| Box::new(parameter) as Box<dyn ToSql + Send + Sync + 'a>;
        Self { sql, parameters: parameters.into_iter().map(boxed).collect() }
    }

    fn parameters(&self) -> impl ExactSizeIterator<Item = &(dyn ToSql + Sync)> {
        self.parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync))
    }
}

/// The answer to a [`Query`].
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) rows: Vec<Row>,
    /// How many rows were changed.
    pub(super) changed: usize,
}

/// Messages of the server beside its answers.
#[derive(Default)]
struct Heard {
    warning: Option<DbError>,
    /// Why the session ended.
    end: Option<Error>,
}

struct Session {
    driver: Driver,
    client: tokio_postgres::Client,
    statements: HashMap<String, Statement>,
    heard: Arc<Mutex<Heard>>,
}

/// A client, which connects when it is used first.
pub(super) struct Client {
    session: Option<Session>,
    address: Address,
    purpose: Purpose,
    /// The server of the last session.
    server: usize,
    /// Statements that are sent in front of the next ones.
    before: &'static [&'static str],
}

impl Client {
    pub(super) fn new(address: Address, purpose: Purpose) -> Self {
        Self { session: None, address, purpose, server: 0, before: &[] }
    }

    /// Makes sure that there is a session, as far as that can be seen without asking.
    pub(super) fn connect(&mut self) -> Result<(), StoreError> {
        self.before = &[];
        if self.session.as_ref().is_some_and(Session::is_open) {
            return Ok(());
        }
        self.session = None;
        let count = self.address.servers.len();
        let mut errors = Vec::new();
        for number in (self.server..self.server + count).map(|number| number % count) {
            match Session::open(&self.address.servers[number], self.purpose) {
                Ok(session) => {
                    self.session = Some(session);
                    self.server = number;
                    return Ok(());
                }
                Err(error) => errors.push(error),
            }
        }
        Err(refusals::of_all(errors))
    }

    /// Whether there is a session, as far as is known.
    pub(super) fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Begins a transaction with the next statements, which saves a round trip.
    pub(super) fn begin_with_next(&mut self, statements: &'static [&'static str]) {
        self.before = statements;
    }

    /// Forgets a transaction that has not begun. Returns whether there was one.
    pub(super) fn forget_beginning(&mut self) -> bool {
        !std::mem::take(&mut self.before).is_empty()
    }

    /// Sends all queries at once and waits for all answers. The server runs them in order; in a
    /// transaction it does nothing more after the first failure, which is the one that is returned.
    pub(super) fn run(&mut self, queries: &[Query<'_>]) -> Result<Vec<Answer>, StoreError> {
        self.run_within(self.deadline(), queries)
    }

    fn run_within(
        &mut self,
        deadline: Duration,
        queries: &[Query<'_>],
    ) -> Result<Vec<Answer>, StoreError> {
        let before: Vec<_> = self.take_before();
        let Session { driver, client, statements, .. } = self.session()?;
        let work = async {
            let queries = || before.iter().chain(queries);
            let prepared = prepared(client, statements, queries()).await?;
            let pairs = prepared.iter().zip(queries());
            let answers = pairs.map(|(statement, query)| answer(client, statement, query));
            let answers: Result<Vec<_>, _> = join_all(answers).await.into_iter().collect();
            answers.map(|mut answers| answers.split_off(before.len()))
        };
        let result = driver.wait(deadline, work);
        self.settle(result)
    }

    /// Sends all queries at once, the last of which is a commit.
    ///
    /// A commit that waits for a standby may be cut short: the server says then that it has
    /// happened, and warns that the standby may not have it. It is as good as lost until it is
    /// found there.
    pub(super) fn commit(
        &mut self,
        deadline: Duration,
        queries: &[Query<'_>],
    ) -> Result<(), StoreError> {
        self.take_warning();
        self.run_within(deadline, queries)?;
        match self.take_warning() {
            Some(warning) => Err(failure::doubtful(&warning)),
            None => Ok(()),
        }
    }

    fn take_warning(&mut self) -> Option<DbError> {
        self.session.as_ref()?.heard.lock().warning.take()
    }

    /// Sends a query and hands over its rows as they come. There is a deadline for each part.
    pub(super) fn stream(
        &mut self,
        query: Query<'_>,
        each: &mut dyn FnMut(&Row) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (deadline, before) = (self.deadline(), self.take_before());
        let Session { driver, client, statements, .. } = self.session()?;
        let work = async {
            let all = before.iter().chain([&query]);
            let prepared = prepared(client, statements, all).await?;
            let first = prepared.iter().zip(&before);
            let first = first.map(|(statement, query)| answer(client, statement, query));
            let rows = client.query_raw(&prepared[before.len()], query.parameters());
            let (first, rows) = join(join_all(first), rows).await;
            first.into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok(Box::pin(rows?))
        };
        let result = driver.wait(deadline, work);
        let mut rows = self.settle(result)?;
        loop {
            let part = rows.by_ref().take(ROWS_AT_ONCE).try_collect::<Vec<_>>();
            let result = self.session()?.driver.wait(deadline, part);
            let part = self.settle(result)?;
            for row in &part {
                each(row)?;
            }
            if part.len() < ROWS_AT_ONCE {
                return Ok(());
            }
        }
    }

    /// The statement with the types of its columns, without running it.
    pub(super) fn describe(&mut self, sql: &str) -> Result<Statement, StoreError> {
        let deadline = self.deadline();
        let Session { driver, client, .. } = self.session()?;
        let result = driver.wait(deadline, client.prepare(sql));
        self.settle(result)
    }

    /// Runs migrations.
    pub(super) fn migrate(
        &mut self,
        runner: &refinery::Runner,
    ) -> Result<Result<refinery::Report, refinery::Error>, StoreError> {
        let deadline = self.deadline();
        let Session { driver, client, .. } = self.session()?;
        let result = driver.wait(deadline, runner.run_async(client));
        result.map_err(|_| failure::silence())
    }

    fn deadline(&self) -> Duration {
        self.purpose.statement + MARGIN
    }

    fn take_before(&mut self) -> Vec<Query<'static>> {
        std::mem::take(&mut self.before).iter().map(|sql| Query::plain(sql)).collect()
    }

    fn session(&mut self) -> Result<&mut Session, StoreError> {
        self.session.as_mut().ok_or_else(failure::disconnected)
    }

    /// The result of work in the session, which ends unless the server has answered.
    fn settle<T>(&mut self, result: Result<Result<T, Error>, Elapsed>) -> Result<T, StoreError> {
        let error = match result {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) if error.is_closed() => {
                let end = self.session.as_ref().and_then(|session| session.heard.lock().end.take());
                end.unwrap_or(error).into()
            }
            Ok(Err(error)) => error.into(),
            Err(_) => failure::silence(),
        };
        if failure::is_lost(&error) {
            self.session = None;
        }
        Err(error)
    }
}

impl Session {
    /// A session on one server, which is one that takes writes and keeps what it acknowledges.
    fn open(server: &Server, purpose: Purpose) -> Result<Self, StoreError> {
        let driver = Driver::new()?;
        let heard = Arc::<Mutex<Heard>>::default();
        let connect = async {
            let (client, connection) = server.config.connect(server.tls.clone()).await?;
            tokio::spawn(carry(connection, Arc::clone(&heard)));
            let said = client.simple_query(&refusals::setup(purpose)).await?;
            Ok((client, said))
        };
        let (client, said) = match driver.wait(server.connect_time, connect) {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return Err(refusals::of_connection(server, &error)),
            Err(_) => return Err(refusals::of_server(server, failure::silence())),
        };
        refusals::check(&said).map_err(|error| refusals::of_server(server, error))?;
        Ok(Self { driver, client, statements: HashMap::new(), heard })
    }

    /// Whether the server has not ended it. If it has, it has sent word of it.
    fn is_open(&self) -> bool {
        let look = async {
            // The first lets the runtime see what has arrived, the others let the task read it.
            for _ in 0..3 {
                yield_now().await;
            }
        };
        self.driver.wait(MARGIN, look).is_ok() && !self.client.is_closed()
    }
}

/// A runtime on the thread that waits: no hand-over to another thread in each round trip.
struct Driver {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl Driver {
    fn new() -> Result<Self, StoreError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime
            .map_err(|error| StoreError::Engine(format!("cannot wait for a network: {error}")))?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Waits for work on this thread, or on another if this one runs tasks and must not wait: only
    /// tests and a server that starts come from such a thread.
    fn wait<T: Send>(
        &self,
        deadline: Duration,
        work: impl Future<Output = T> + Send,
    ) -> Result<T, Elapsed> {
        let runtime = self.runtime.as_ref().expect("it is there until this is dropped");
        let work = async { timeout(deadline, work).await };
        if Handle::try_current().is_err() {
            return runtime.block_on(work);
        }
        let joined = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(work)).join());
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting for its end is not allowed everywhere, and there is nothing to wait for.
            runtime.shutdown_background();
        }
    }
}

/// Prepares the statements that the session does not have yet, all at once.
async fn prepared<'q>(
    client: &tokio_postgres::Client,
    statements: &mut HashMap<String, Statement>,
    queries: impl Iterator<Item = &'q Query<'q>>,
) -> Result<Vec<Statement>, Error> {
    if statements.len() > STATEMENTS_KEPT {
        statements.clear();
    }
    let all: Vec<_> = queries.map(|query| query.sql).collect();
    let mut missing = all.clone();
    missing.retain(|sql| !statements.contains_key(*sql));
    missing.sort_unstable();
    missing.dedup();
    let made = join_all(missing.iter().map(|sql| client.prepare(sql))).await;
    for (sql, statement) in missing.into_iter().zip(made) {
        statements.insert(sql.to_owned(), statement?);
    }
    Ok(all.into_iter().map(|sql| statements[sql].clone()).collect())
}

/// The answer to one query. The first poll sends the query, so those of several stay in order.
async fn answer(
    client: &tokio_postgres::Client,
    statement: &Statement,
    query: &Query<'_>,
) -> Result<Answer, Error> {
    let mut stream = pin!(client.query_raw(statement, query.parameters()).await?);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(row);
    }
    let changed = stream.rows_affected().unwrap_or(0);
    Ok(Answer { rows, changed: usize::try_from(changed).unwrap_or(usize::MAX) })
}

/// Carries a session's bytes to its end, and keeps what the server says beside its answers.
async fn carry<S, T>(mut connection: Connection<S, T>, heard: Arc<Mutex<Heard>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(AsyncMessage::Notice(said)) if failure::is_warning(&said) => {
                heard.lock().warning = Some(said);
            }
            Ok(_) => {}
            Err(error) => {
                heard.lock().end = Some(error);
                return;
            }
        }
    }
}
