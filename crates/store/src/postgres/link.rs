//! The way to a server: one session at a time, made again when it was lost, and never waited for
//! longer than a deadline.
//!
//! A server that hangs keeps its sockets alive and its own time limits asleep, so every wait has an
//! end of ours. A session in which a wait ended so, or any other than by an answer, is dropped:
//! nobody knows what it has done.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Handle, Runtime};
use tokio::time::timeout;
use tokio_postgres::error::DbError;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Error, Row, Statement};

use super::address::{Address, Server};
use super::failure::{self, Failure};
use super::refusals;
use crate::error::StoreError;

/// Prepared statements that a session keeps: more than the store has, so that none is made twice
/// but for lists with rare filters.
const STATEMENTS_KEPT: usize = 256;

/// How much longer we wait than the server lets a statement run: a slow statement is told from a
/// silent server.
const MARGIN: Duration = Duration::from_secs(1);

/// Rows that are taken off the wire before they are handed on.
const ROWS_AT_ONCE: usize = 1_024;

/// What a session is for, which tells how long things may take in it and how they are found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Purpose {
    /// One statement.
    pub(super) statement: Duration,
    /// Waiting for a row that somebody else holds.
    pub(super) lock: Duration,
    /// Between two statements of a transaction. A server of ours that hangs must not keep the
    /// others from the write lock, nor the database from clearing up.
    pub(super) idle: Duration,
    /// Whether all that is asked for is found by its key or along an index.
    pub(super) goes_by_keys: bool,
}

impl Purpose {
    /// For requests. The wait for the write lock is shorter than that for an answer. Together with
    /// one more try, it is longer than the time after which a server that hangs loses the lock.
    pub(super) const REQUESTS: Self = Self {
        statement: Duration::from_secs(5),
        lock: Duration::from_secs(4),
        idle: Duration::from_secs(5),
        goes_by_keys: true,
    };

    /// For work that takes as long as there is data, such as a copy: an hour, so that it ends one
    /// day.
    pub(super) const WHOLE: Self = Self {
        statement: Duration::from_secs(3_600),
        lock: Duration::from_secs(3_600),
        idle: Duration::from_secs(3_600),
        goes_by_keys: false,
    };

    /// For changes of tables, which take as long as there is data. Somebody may have one in use for
    /// long, such as a dump or an operator who vacuums it. Whoever waits for it then has all who
    /// come later wait too, also a running server for its lease.
    pub(super) const SCHEMA: Self = Self { lock: Duration::from_secs(1), ..Self::WHOLE };
}

/// Something to ask.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// The statement.
    pub(super) sql: &'a str,
    /// Its parameters.
    pub(super) parameters: &'a [&'a (dyn ToSql + Sync)],
}

impl<'a> Question<'a> {
    /// A question without parameters.
    pub(super) const fn plain(sql: &'a str) -> Self {
        Self { sql, parameters: &[] }
    }
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    /// The rows that were asked for.
    pub(super) rows: Vec<Row>,
    /// How many rows were changed.
    pub(super) changed: usize,
}

/// Which session there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// The one that there was.
    Still,
    /// A new one, perhaps on another server.
    Anew,
}

/// What carries a session's bytes, and how it ended.
enum Wire {
    Open(Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>),
    Ended(Option<Error>),
}

/// Statements by their text.
type Statements = HashMap<String, Statement>;

/// What the server has warned of last, until somebody takes it.
type Warning = Arc<Mutex<Option<DbError>>>;

struct Session {
    client: Client,
    wire: Wire,
    statements: Statements,
    warning: Warning,
}

/// The way to a server.
pub(super) struct Link {
    /// Before the runtime, which it needs to its end.
    session: Option<Session>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    address: Address,
    purpose: Purpose,
    /// The server that let us in last.
    server: usize,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.session = None;
        if let Some(runtime) = self.runtime.take() {
            // Waiting for its end is not allowed everywhere, and there is nothing to wait for.
            runtime.shutdown_background();
        }
    }
}

impl Link {
    /// A way that was not gone yet.
    pub(super) fn new(address: Address, purpose: Purpose) -> Result<Self, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| StoreError::Engine(format!("cannot wait for a network: {error}")))?;
        Ok(Self { session: None, runtime: Some(runtime), address, purpose, server: 0 })
    }

    /// Makes sure that there is a session, as far as that can be seen without asking.
    pub(super) fn connect(&mut self) -> Result<Reached, Failure> {
        if self.is_connected() {
            return Ok(Reached::Still);
        }
        self.session = None;
        let count = self.address.servers.len();
        let mut failures = Vec::new();
        for number in (self.server..self.server + count).map(|number| number % count) {
            let Some(runtime) = &self.runtime else { break };
            match wait(runtime, open(&self.address.servers[number], self.purpose)) {
                Ok(session) => {
                    self.session = Some(session);
                    self.server = number;
                    return Ok(Reached::Anew);
                }
                Err(failure) => failures.push(failure),
            }
        }
        Err(refusals::of_all(failures))
    }

    /// Whether there is a session that was not closed yet. A server that has ended one while nobody
    /// looked has sent word of it.
    fn is_connected(&mut self) -> bool {
        let (Some(session), Some(runtime)) = (&mut self.session, &self.runtime) else {
            return false;
        };
        let look = async {
            // The first lets the runtime see what has arrived, the second lets the wire read it.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        };
        let looked = wait(runtime, drive(&mut session.wire, MARGIN, look));
        looked.is_some() && matches!(session.wire, Wire::Open(_))
    }

    /// Whether there is a session, as far as is known.
    pub(super) fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Drops the session: what it was about is over for the server as soon as it notices.
    pub(super) fn disconnect(&mut self) {
        self.session = None;
    }

    /// Asks everything at once and waits for all answers. The server goes through the questions in
    /// order; in a transaction it does nothing more after the first failure, which is the one that
    /// is returned.
    pub(super) fn ask(&mut self, questions: &[Question<'_>]) -> Result<Vec<Answer>, Failure> {
        self.ask_within(self.deadline(), questions)
    }

    fn ask_within(
        &mut self,
        deadline: Duration,
        questions: &[Question<'_>],
    ) -> Result<Vec<Answer>, Failure> {
        let (runtime, Session { client, wire, statements, .. }) = self.parts()?;
        let work = async {
            let prepared = prepared(client, statements, questions).await?;
            let pairs = prepared.iter().zip(questions);
            let answers = pairs.map(|(statement, question)| answer(client, statement, question));
            join_all(answers).await.into_iter().collect()
        };
        let result = wait(runtime, drive(wire, deadline, work));
        self.settle(result)
    }

    /// Asks everything at once, the last of which is a commit.
    ///
    /// A commit that waits for a standby may be cut short: the server says then that it has
    /// happened, and warns that the standby may not have it. It is as good as lost until it is
    /// found there.
    pub(super) fn commit(
        &mut self,
        deadline: Duration,
        questions: &[Question<'_>],
    ) -> Result<(), Failure> {
        self.warning();
        self.ask_within(deadline, questions)?;
        match self.warning() {
            Some(warning) => Err(Failure::doubtful(&warning)),
            None => Ok(()),
        }
    }

    /// What the server has warned of since this was asked last.
    fn warning(&mut self) -> Option<DbError> {
        self.session.as_ref()?.warning.lock().take()
    }

    /// Asks something whose answer is of no interest. It is on its way when this returns; what is
    /// asked next stands behind it.
    pub(super) fn tell(&mut self, question: Question<'_>) -> Result<(), Failure> {
        let deadline = self.deadline();
        let (runtime, Session { client, wire, statements, .. }) = self.parts()?;
        let work = async {
            let prepared = prepared(client, statements, &[question]).await?;
            let mut answer = pin!(answer(client, &prepared[0], &question));
            // The first look sends it to the wire, which gets its own look meanwhile.
            tokio::select! {
                biased;
                answer = &mut answer => return answer.map(drop),
                () = tokio::task::yield_now() => {}
            }
            Ok(())
        };
        let result = wait(runtime, drive(wire, deadline, work));
        self.settle(result)
    }

    /// Asks `before` and `question` at once, and hands over the rows of the latter as they come.
    /// There is a deadline for each part of them.
    pub(super) fn stream(
        &mut self,
        before: &[Question<'_>],
        question: Question<'_>,
        each: &mut dyn FnMut(&Row) -> Result<(), StoreError>,
    ) -> Result<(), Failure> {
        let deadline = self.deadline();
        let (runtime, Session { client, wire, statements, .. }) = self.parts()?;
        let work = async {
            let first = prepared(client, statements, before).await?;
            let last = prepared(client, statements, &[question]).await?;
            let first = first.iter().zip(before);
            let first = first.map(|(statement, question)| answer(client, statement, question));
            let rows = client.query_raw(&last[0], question.parameters.iter().copied());
            let (first, rows) = join(join_all(first), rows).await;
            first.into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok(Box::pin(rows?))
        };
        let result = wait(runtime, drive(wire, deadline, work));
        let mut rows = self.settle(result)?;
        loop {
            let (runtime, Session { wire, .. }) = self.parts()?;
            let work = async {
                let mut part = Vec::new();
                while part.len() < ROWS_AT_ONCE
                    && let Some(row) = rows.next().await
                {
                    part.push(row?);
                }
                Ok(part)
            };
            let result = wait(runtime, drive(wire, deadline, work));
            let part = self.settle(result)?;
            for row in &part {
                each(row).map_err(Failure::known)?;
            }
            if part.len() < ROWS_AT_ONCE {
                return Ok(());
            }
        }
    }

    /// The statement with the types of its columns, without running it.
    pub(super) fn describe(&mut self, sql: &str) -> Result<Statement, Failure> {
        let deadline = self.deadline();
        let (runtime, Session { client, wire, .. }) = self.parts()?;
        let result = wait(runtime, drive(wire, deadline, client.prepare(sql)));
        self.settle(result)
    }

    /// Runs migrations.
    pub(super) fn migrate(
        &mut self,
        runner: &refinery::Runner,
    ) -> Result<Result<refinery::Report, refinery::Error>, Failure> {
        let deadline = self.deadline();
        let (runtime, Session { client, wire, .. }) = self.parts()?;
        let result = wait(runtime, drive(wire, deadline, runner.run_async(client)));
        result.ok_or_else(Failure::silence)
    }

    /// How long questions may take.
    pub(super) fn deadline(&self) -> Duration {
        self.purpose.statement + MARGIN
    }

    fn parts(&mut self) -> Result<(&Runtime, &mut Session), Failure> {
        match (&self.runtime, &mut self.session) {
            (Some(runtime), Some(session)) => Ok((runtime, session)),
            _ => Err(Failure::disconnected()),
        }
    }

    /// What came of work in the session, which ends unless the server has answered.
    fn settle<T>(&mut self, result: Option<Result<T, Error>>) -> Result<T, Failure> {
        let failure = match result {
            Some(Ok(value)) => return Ok(value),
            // The wire knows better than who waited on it why it is gone.
            Some(Err(error)) if error.is_closed() => match self.session.take() {
                Some(Session { wire: Wire::Ended(Some(cause)), .. }) => cause.into(),
                _ => Failure::from(error),
            },
            Some(Err(error)) => error.into(),
            None => Failure::silence(),
        };
        if !failure.is_answer {
            self.session = None;
        }
        Err(failure)
    }
}

/// Waits for work on this thread, or on another if this one runs tasks and must not wait: only
/// tests and a server that starts come from such a thread.
fn wait<T: Send>(runtime: &Runtime, work: impl Future<Output = T> + Send) -> T {
    if Handle::try_current().is_err() {
        return runtime.block_on(work);
    }
    let joined = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(work)).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Goes on with `work` and the wire that it needs until the work is done; `None` if that takes too
/// long.
async fn drive<T>(wire: &mut Wire, deadline: Duration, work: impl Future<Output = T>) -> Option<T> {
    let both = async {
        let mut work = pin!(work);
        if let Wire::Open(open) = wire {
            let ended = tokio::select! {
                biased;
                done = &mut work => return done,
                ended = open => ended,
            };
            // Without a wire, the work fails by itself unless its answer has come.
            *wire = Wire::Ended(ended.err());
        }
        work.await
    };
    timeout(deadline, both).await.ok()
}

/// Makes the statements of questions that the session does not have yet, all at once.
async fn prepared(
    client: &Client,
    statements: &mut Statements,
    questions: &[Question<'_>],
) -> Result<Vec<Statement>, Error> {
    if statements.len() > STATEMENTS_KEPT {
        statements.clear();
    }
    let mut missing: Vec<_> = questions.iter().map(|question| question.sql).collect();
    missing.retain(|sql| !statements.contains_key(*sql));
    missing.sort_unstable();
    missing.dedup();
    let made = join_all(missing.iter().map(|sql| client.prepare(sql))).await;
    for (sql, statement) in missing.into_iter().zip(made) {
        statements.insert(sql.to_owned(), statement?);
    }
    Ok(questions.iter().map(|question| statements[question.sql].clone()).collect())
}

/// One question's answer. The first poll sends the question, so those of several stay in order.
async fn answer(
    client: &Client,
    statement: &Statement,
    question: &Question<'_>,
) -> Result<Answer, Error> {
    let rows = client.query_raw(statement, question.parameters.iter().copied()).await?;
    let mut rows = pin!(rows);
    let mut found = Vec::new();
    while let Some(row) = rows.try_next().await? {
        found.push(row);
    }
    let changed = rows.rows_affected().unwrap_or(0);
    Ok(Answer { rows: found, changed: usize::try_from(changed).unwrap_or(usize::MAX) })
}

/// Carries a session's bytes to its end, and keeps what the server warns of.
async fn carry<S, T>(
    mut wire: tokio_postgres::Connection<S, T>,
    warning: Warning,
) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| wire.poll_message(context)).await {
        if let AsyncMessage::Notice(said) = message?
            && failure::is_warning(&said)
        {
            *warning.lock() = Some(said);
        }
    }
    Ok(())
}

/// A session on one server, which is one that we want to write to.
async fn open(server: &Server, purpose: Purpose) -> Result<Session, Failure> {
    let work = async {
        let (client, wire) = server.config.connect(server.tls.clone()).await?;
        let warning = Warning::default();
        let mut wire = Wire::Open(Box::pin(carry(wire, Warning::clone(&warning))));
        let setup = refusals::setup(purpose);
        let said = drive(&mut wire, server.connect_time, client.simple_query(&setup)).await;
        Ok((Session { client, wire, statements: HashMap::new(), warning }, said))
    };
    let opened = timeout(server.connect_time, work).await;
    match opened {
        Ok(Ok((session, Some(Ok(said))))) => {
            refusals::check(&said).map_err(|failure| failure.of(server))?;
            Ok(session)
        }
        Ok(Ok((_, Some(Err(error))))) | Ok(Err(error)) => {
            Err(refusals::of_connection(server, &error))
        }
        Ok(Ok((_, None))) | Err(_) => Err(Failure::silence().of(server)),
    }
}
