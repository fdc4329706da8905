//! PostgreSQL: the same units of work on a database that several servers share.
//!
//! - Everything that a batch reads or writes of a table is one statement over arrays, and what does
//!   not depend on an answer is asked at once (`link`).
//! - Servers take turns: a batch locks one row first, so none sees half of another's and none can
//!   lose against another (`docs/decisions/0013`). Who had the turn last is told by a number in
//!   that row.
//! - Each commit leaves its number. When the answer to a commit is lost, the next transaction sees
//!   whether it happened.
//!
//! It uses no triggers, functions, notifications or advisory locks.

mod acknowledged;
mod address;
mod failure;
mod link;
#[cfg(test)]
mod portable;
mod refusals;
mod soundness;
mod statistics;
mod texts;
mod tls;
mod values;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::Error;
use tokio_postgres::types::{ToSql, Type};

use self::acknowledged::Acknowledged;
use self::address::Address;
use self::failure::Failure;
use self::link::{Answer, Link, Purpose, Question, Reached};
use self::texts::Texts;
use crate::engine::{self, COPY_MARK_NAME, Engine};
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::leases::Duty;
use crate::migrate;
use crate::pause::pause;
use crate::sql::{Change, Connection, Keys, Row, Shape, Turn, Value, Write, collect_values};

/// Reader connections. Each waits for a network most of the time, and each is a process of the
/// server, of which there are a hundred by default for all servers of ours.
const READERS: usize = 8;

/// How long a commit may take: one that waits for a standby far away is no reason to ask whether it
/// happened.
const COMMIT_TIME: Duration = Duration::from_secs(6);

/// How long it is looked whether a commit happened: longer than a restart or a failover takes, and
/// no longer than somebody waits who can ask again. A look may take some seconds more.
const LOOKED_FOR: Duration = Duration::from_secs(8);

/// Between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// Rows in one statement: some hundred kilobytes.
const ROWS_MAX: usize = 2_000;

const BEGIN: Question<'_> = Question::plain("begin isolation level read committed read write");
const BEGIN_READ: Question<'_> = Question::plain("begin isolation level repeatable read read only");
const BEGIN_ALONE: Question<'_> = Question::plain("begin isolation level repeatable read");
const COMMIT: Question<'_> = Question::plain("commit");
const ROLLBACK: Question<'_> = Question::plain("rollback");

/// The member that stands for all of them: whoever holds its row has the turn.
const EVERYBODY: i64 = 0;

/// The member that stands for tables of nouns ([`Shape::nouns`]): its turn is the last in which one
/// of them was changed.
const NOUNS: i64 = 1;

/// Takes the turn and tells the number of the last one, and of the last one of this member.
const TAKE_TURN: &str =
    "select member, turn from lane where member in ($1, $2, $3) order by member for update";

/// Tells the same without taking the turn.
const LAST_TURNS: &str = "select member, turn from lane where member in ($1, $2, $3)";

/// Leaves the number of the turn.
const LEAVE_TURN: &str = "insert into lane (member, turn) values ($1, $3), ($2, $3) \
    on conflict (member) do update set turn = excluded.turn";

/// Leaves the number of a turn in which nouns were changed.
const LEAVE_TURN_OF_NOUNS: &str = "insert into lane (member, turn) values ($1, $2) \
    on conflict (member) do update set turn = excluded.turn";

/// Writes without changing anything.
const TOUCH: &str = "update lane set turn = turn where member = $1";

/// Keeps the turn without taking it.
const HOLD_TURN: Question<'_> =
    Question::plain("select turn from lane where member = 0 for update");

/// Who does what is due, and until when.
const LEASE: &str = "select holder, epoch, until from leases where duty = $1";

/// A server that runs renews its lease more often than this (`service::tenure`).
const LEASE_RENEWED_WITHIN: Duration = Duration::from_secs(4);

/// What a transaction that reads begins with.
type Beginning = &'static [Question<'static>];

/// One snapshot.
const SNAPSHOT: Beginning = &[BEGIN_READ];

/// One snapshot, and nobody writes until its end.
const SNAPSHOT_ALONE: Beginning = &[BEGIN_ALONE, HOLD_TURN];

/// What a transaction consists of beside the statements over tables.
#[cfg(test)]
fn statements() -> Vec<String> {
    let turns = [TAKE_TURN, LAST_TURNS, LEAVE_TURN, LEAVE_TURN_OF_NOUNS, TOUCH, LEASE];
    let frame = [BEGIN, BEGIN_READ, BEGIN_ALONE, HOLD_TURN, COMMIT, ROLLBACK];
    let frame = frame.map(|question| question.sql);
    turns.into_iter().chain(frame).map(str::to_owned).collect()
}

/// A database on a PostgreSQL server.
#[derive(Clone)]
pub struct PostgresServer {
    address: Arc<Address>,
}

impl PostgresServer {
    /// The database that a `postgres://` URL names, with the parameters that libpq knows. An error
    /// says what is wrong with the URL and never repeats it.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        Ok(Self { address: Arc::new(Address::from_str(url)?) })
    }

    /// A connection that connects when it is used first: who asks for eight readers at the start
    /// needs one.
    fn connection(&self, purpose: Purpose) -> Result<Postgres, StoreError> {
        let link = Link::new(Address::clone(&self.address), purpose)?;
        let (state, texts) = (State::Free, HashMap::new());
        Ok(Postgres {
            link,
            state,
            beginning: SNAPSHOT,
            member: None,
            seen: None,
            changes_nouns: false,
            acknowledged: Acknowledged::default(),
            texts,
        })
    }
}

impl fmt::Display for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl Engine for PostgresServer {
    fn prepare(&self, _: &Keyring) -> Result<Box<dyn Connection>, StoreError> {
        let mut migrator = self.connection(Purpose::SCHEMA)?;
        migrator.reach()?;
        migrate::postgres(&mut migrator)?;
        migrator.look_seldom_through_tables()?;
        let mut connection = self.connection(Purpose::REQUESTS)?;
        connection.reach()?;
        connection.member = Some(new_member()?);
        Ok(Box::new(connection))
    }

    fn reader(&self) -> Result<Box<dyn Connection>, StoreError> {
        Ok(Box::new(self.connection(Purpose::REQUESTS)?))
    }

    fn auditor(&self) -> Result<Box<dyn Connection>, StoreError> {
        Ok(Box::new(self.connection(Purpose::WHOLE)?))
    }

    fn readers(&self) -> usize {
        READERS
    }

    fn holds_data(&self) -> Result<bool, StoreError> {
        let mut connection = self.connection(Purpose::REQUESTS)?;
        connection.reach()?;
        // A copy that is not finished has no key yet.
        Ok(migrate::has_schema(&mut connection)?
            && (engine::knows_key(&mut connection)?
                || engine::meta(&mut connection, COPY_MARK_NAME)?.is_some()))
    }

    fn alone(&self) -> Result<Box<dyn Connection>, StoreError> {
        let mut connection = self.connection(Purpose::WHOLE)?;
        connection.reach()?;
        let lease = connection.lease()?;
        // One that was given up says so. Any other is looked at for so long that a server that is
        // there must have renewed it, whatever its clock says.
        if lease.as_ref().is_some_and(|lease| lease.last() != Some(&Value::Int(0))) {
            pause(LEASE_RENEWED_WITHIN);
        }
        connection.beginning = SNAPSHOT_ALONE;
        connection.begin_read()?;
        if connection.lease()? != lease {
            return Err(StoreError::Conflict("a server does what is due in it".to_owned()));
        }
        Ok(Box::new(connection))
    }
}

/// What tells a connection that writes from every other, on every server and for all time.
fn new_member() -> Result<i64, StoreError> {
    #[expect(clippy::disallowed_methods, reason = "it is a name, and nothing is decided by it")]
    let random = getrandom::u64()
        .map_err(|error| StoreError::Engine(format!("no random bits from the system: {error}")))?;
    // Half of the numbers are positive, which is plenty.
    Ok(i64::try_from(random >> 1).unwrap_or(i64::MAX).max(NOUNS + 1))
}

/// Numbers of turns that a member finds.
struct Turns {
    /// The last one of anybody.
    last: i64,
    /// The last one in which a table of nouns was changed.
    nouns: i64,
    /// The last one of this member; 0 if there was none.
    ours: i64,
}

impl Turns {
    /// What [`TAKE_TURN`] or [`LAST_TURNS`] has found, the last of these.
    fn of(answers: &[Answer]) -> Result<Self, Failure> {
        let (mut last, mut nouns, mut ours) = (None, None, 0);
        for row in answers.last().into_iter().flat_map(|answer| &answer.rows) {
            let turn = row.try_get(1)?;
            match row.try_get(0)? {
                EVERYBODY => last = Some(turn),
                NOUNS => nouns = Some(turn),
                _ => ours = turn,
            }
        }
        let (Some(last), Some(nouns)) = (last, nouns) else {
            let what = "the rows that servers take turns by are missing".to_owned();
            let place = "lane".to_owned();
            return Err(Failure::known(StoreError::Corrupt { place, what }));
        };
        Ok(Self { last, nouns, ours })
    }
}

/// Changes that one statement makes.
struct Part<'w> {
    shape: &'static Shape,
    change: Change,
    texts: Arc<Texts>,
    rows: &'w [Vec<Value>],
}

impl Part<'_> {
    /// The statement, and how many columns of each row are its parameters.
    fn text(&self) -> (&str, usize) {
        // Nothing that is no change of a table becomes a part.
        self.texts.of(self.shape, self.change).unwrap_or_default()
    }

    /// Has the statements of all asked, behind these questions.
    fn ask<T>(
        parts: &[Self],
        before: &[Question<'_>],
        ask: impl FnOnce(&[Question<'_>]) -> T,
    ) -> T {
        let texts = || parts.iter().map(Self::text);
        let columns = parts.iter().zip(texts());
        let columns: Vec<_> =
            columns.map(|(part, (_, width))| columns_of(part.rows, width)).collect();
        let parameters: Vec<_> = columns.iter().map(|columns| arrays(columns)).collect();
        let questions = texts().zip(&parameters);
        let questions = questions.map(|((sql, _), parameters)| Question { sql, parameters });
        ask(&before.iter().copied().chain(questions).collect::<Vec<_>>())
    }

    /// Refuses an update of rows that were not all as they had been read.
    fn check(parts: &[Self], answers: &[Answer]) -> Result<(), Failure> {
        for (Part { shape, change, rows, .. }, answer) in parts.iter().zip(answers) {
            if *change == Change::Update && answer.changed != rows.len() {
                let what = format!("a row of {} was not as read", shape.table);
                return Err(Failure::known(StoreError::Conflict(what)));
            }
        }
        Ok(())
    }
}

/// The end of a transaction: it leaves the number of its turn and is committed.
struct End {
    member: i64,
    turn: i64,
    changes_nouns: bool,
}

impl End {
    /// Has its questions asked.
    fn ask<T>(&self, ask: impl FnOnce(&[Question<'_>]) -> T) -> T {
        let Self { member, turn, changes_nouns } = self;
        let leave = Question { sql: LEAVE_TURN, parameters: &[&EVERYBODY, member, turn] };
        let nouns = Question { sql: LEAVE_TURN_OF_NOUNS, parameters: &[&NOUNS, turn] };
        if *changes_nouns { ask(&[leave, nouns, COMMIT]) } else { ask(&[leave, COMMIT]) }
    }
}

/// What a connection is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No transaction.
    Free,
    /// A transaction that reads begins with its first question.
    WillRead,
    /// A transaction that reads.
    Reads,
    /// A transaction that writes; the number of the turn before it.
    Writes(i64),
}

/// A connection to a database.
pub(crate) struct Postgres {
    link: Link,
    state: State,
    /// How it begins to read.
    beginning: Beginning,
    /// Its number among those that take turns; none for a connection that only reads.
    member: Option<i64>,
    /// The number of the last turn that it has seen in this session.
    seen: Option<i64>,
    /// Whether the transaction that it is in has changed tables of nouns.
    changes_nouns: bool,
    /// What it was told to be there, in whatever session.
    acknowledged: Acknowledged,
    /// By the address of the shape: a table can have several.
    texts: HashMap<usize, Arc<Texts>>,
}

impl Postgres {
    /// Runs migrations, each in a transaction. A [`StoreError::Conflict`] is a migration that
    /// somebody else was faster with, [`StoreError::Busy`] one of a table that is in use.
    pub(crate) fn migrate(&mut self, runner: &refinery::Runner) -> Result<(), StoreError> {
        self.link.migrate(runner)?.map(drop).map_err(|error| refusals::of_migration(&error))
    }

    /// Makes sure that there is a session. In a new one, what was known from the last is not: the
    /// server may be another one, to which not everything had come.
    fn reach(&mut self) -> Result<(), Failure> {
        if self.link.connect()? == Reached::Anew {
            self.seen = None;
        }
        Ok(())
    }

    /// Who does what is due, as it is stored.
    fn lease(&mut self) -> Result<Option<Vec<Value>>, StoreError> {
        let mut lease = None;
        self.query(LEASE, &[Value::name(Duty::Jobs.name())], 3, &mut |values| {
            lease = Some(values);
            Ok(())
        })?;
        Ok(lease)
    }

    /// Takes the turn.
    fn take_turn(&mut self) -> Result<Turns, Failure> {
        self.take_turn_after(&[BEGIN])
    }

    /// Takes the turn after these questions.
    fn take_turn_after(&mut self, before: &[Question<'_>]) -> Result<Turns, Failure> {
        let member = self.writing_member()?;
        let take = Question { sql: TAKE_TURN, parameters: &[&EVERYBODY, &NOUNS, &member] };
        let questions: Vec<_> = before.iter().copied().chain([take]).collect();
        Turns::of(&self.link.ask(&questions)?)
    }

    /// Its number among those that take turns.
    fn writing_member(&self) -> Result<i64, Failure> {
        self.member.ok_or_else(|| {
            Failure::known(StoreError::Engine("this connection only reads".to_owned()))
        })
    }

    /// Takes the turn and changes rows at once; whether the turn before was the one that was seen
    /// last, as otherwise nothing of it may stay. `ask` asks.
    fn begin_and_write(
        &mut self,
        seen: i64,
        writes: &[Write],
        parts: &[Part<'_>],
        ask: impl FnOnce(&mut Self, &[Question<'_>]) -> Result<Vec<Result<Answer, Error>>, Failure>,
    ) -> Result<bool, Failure> {
        let member = self.writing_member()?;
        let take: [&(dyn ToSql + Sync); 3] = [&EVERYBODY, &NOUNS, &member];
        let before = [BEGIN, Question { sql: TAKE_TURN, parameters: &take }];
        self.state = State::Writes(seen);
        let mut answers = Part::ask(parts, &before, |questions| ask(self, questions))?;
        let written = answers.split_off(before.len());
        let Turns { last, ours, .. } = Turns::of(&self.link.all_of(answers)?)?;
        if last != seen {
            return Ok(false);
        }
        self.began(ours, writes);
        Part::check(parts, &self.link.all_of(written)?)?;
        Ok(true)
    }

    /// Goes on with a transaction that was begun with changes, if its turn was the next one.
    fn own_or_anew(&mut self, begun: Result<bool, StoreError>) -> Result<Turn, StoreError> {
        if begun? { Ok(Turn::Own) } else { self.begin() }
    }

    /// Keeps in mind that a transaction has begun whose turn comes after this one of ours, and what
    /// it changes.
    fn began(&mut self, ours: i64, writes: &[Write]) {
        if let Some(missing) = self.acknowledged.missing_behind(ours) {
            missing.tell();
        }
        self.acknowledged.begin();
        self.changes_nouns = false;
        self.changes(writes);
    }

    /// Keeps in mind what the transaction changes.
    fn changes(&mut self, writes: &[Write]) {
        self.changes_nouns |= writes.iter().any(|write| write.shape.nouns);
        self.acknowledged.write(writes);
    }

    /// Whether a turn of ours is in the database: the answer to its commit was lost.
    ///
    /// Nobody else is under way while we look, as we have the turn. What is looked at is written
    /// again, and its commit takes as long as the database needs to make sure of everything before
    /// it: after a standby was waited for in vain, what is seen may not be safe yet.
    fn is_there(&mut self, turn: i64) -> Result<bool, Failure> {
        self.reach()?;
        // The first turn of a server inserts its row, which a statement does not see that began
        // before that was committed, however long it waits: the wait has a statement of its own.
        let Turns { ours, .. } = self.take_turn_after(&[BEGIN, HOLD_TURN])?;
        let touch = Question { sql: TOUCH, parameters: &[&EVERYBODY] };
        self.link.commit(COMMIT_TIME, &[touch, COMMIT])?;
        Ok(ours == turn)
    }

    /// Finds out how a commit went whose answer was lost.
    fn find_out(&mut self, turn: i64, lost: StoreError) -> Result<(), StoreError> {
        tracing::warn!(error = %lost, "the answer to a commit was lost: looking for what it left");
        #[expect(clippy::disallowed_methods, reason = "it is how long we wait, not what is true")]
        let began = Instant::now();
        loop {
            match self.is_there(turn) {
                // What was seen is not known any more: the session is a new one.
                Ok(true) => return Ok(()),
                Ok(false) => {
                    let what = "the connection was lost before the commit".to_owned();
                    return Err(StoreError::Conflict(what));
                }
                Err(failure) => {
                    tracing::warn!(error = %failure, "it cannot be seen yet whether it happened");
                    // Whatever transaction this was in, the next look begins its own.
                    self.link.disconnect();
                    if began.elapsed() > LOOKED_FOR {
                        return Err(lost);
                    }
                    pause(LOOK_PAUSE);
                }
            }
        }
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

    /// Makes all changes at once.
    fn write_all(&mut self, writes: &[Write]) -> Result<(), Failure> {
        let parts = self.parts_of(writes)?;
        let answers = Part::ask(&parts, &[], |questions| self.link.ask(questions))?;
        Part::check(&parts, &answers)
    }

    /// The statements that make changes.
    fn parts_of<'w>(&mut self, writes: &'w [Write]) -> Result<Vec<Part<'w>>, Failure> {
        let mut parts = Vec::new();
        for Write { shape, change, rows } in writes {
            let texts = self.texts(shape)?;
            if texts.of(shape, *change).is_none() {
                let what = format!("{change:?} is no change of {}", shape.table);
                return Err(Failure::known(StoreError::Engine(what)));
            }
            let part = |rows| Part { shape, change: *change, texts: Arc::clone(&texts), rows };
            parts.extend(rows.chunks(ROWS_MAX).map(part));
        }
        Ok(parts)
    }

    /// Spares the server what it would do to know tables that it need not know
    /// ([`statistics`]). An operator's own settings stay, and one who lets us alter nothing is let
    /// alone.
    fn look_seldom_through_tables(&mut self) -> Result<(), StoreError> {
        let mut tables = Vec::new();
        self.names(statistics::TABLES_AS_THEY_CAME, &mut |table| tables.push(table))?;
        for table in tables {
            match self.query(&statistics::seldom(&table), &[], 0, &mut |_| Ok(())) {
                Ok(()) => {}
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(error) => tracing::warn!(table, %error, "a table is analyzed often"),
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

    /// Asks for rows of several tables at once, behind these questions. Gives the answers to the
    /// latter, and the rows with the place of their table.
    fn rows_of_all(
        &mut self,
        before: &[Question<'_>],
        wanted: &[Keys],
    ) -> Result<(Vec<Answer>, Placed), Failure> {
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
        let mut first = self.link.ask(&questions)?;
        let answers = first.split_off(before.len());
        Ok((first, parts.iter().map(|(place, _)| *place).zip(answers).collect()))
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

/// The first columns of rows, each with its value of every row.
fn columns_of(rows: &[Vec<Value>], width: usize) -> Vec<Vec<&Value>> {
    (0..width).map(|column| rows.iter().map(|row| &row[column]).collect()).collect()
}

/// Columns as parameters.
fn arrays<'a>(columns: &'a [Vec<&'a Value>]) -> Vec<&'a (dyn ToSql + Sync)> {
    columns.iter().map(|column| column as &(dyn ToSql + Sync)).collect()
}

/// The first columns of a row.
fn values_of(row: &tokio_postgres::Row, columns: usize) -> Result<Vec<Value>, StoreError> {
    collect_values(columns, |column| {
        row.try_get(column).map_err(|error| Failure::from(error).error)
    })
}

/// Answers, each with the place of the table that was asked for rows.
type Placed = Vec<(usize, Answer)>;

/// Hands over rows with the place of their table.
fn hand_over(
    wanted: &[Keys],
    answers: Placed,
    each: &mut dyn FnMut(usize, Vec<Value>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    for (place, answer) in answers {
        for row in &answer.rows {
            each(place, values_of(row, wanted[place].shape.width())?)?;
        }
    }
    Ok(())
}

impl Connection for Postgres {
    fn begin(&mut self) -> Result<Turn, StoreError> {
        self.rollback()?;
        self.reach()?;
        match self.take_turn() {
            Ok(Turns { last, nouns, ours }) => {
                self.state = State::Writes(last);
                self.began(ours, &[]);
                Ok(match self.seen.replace(last) {
                    Some(seen) if seen == last => Turn::Own,
                    Some(seen) => Turn::Others { nouns: nouns > seen },
                    None => Turn::Others { nouns: true },
                })
            }
            Err(failure) => {
                if failure.is_answer {
                    self.link.ask(&[ROLLBACK])?;
                }
                Err(failure.error)
            }
        }
    }

    fn begin_with(&mut self, writes: Vec<Write>) -> Result<Turn, StoreError> {
        self.rollback()?;
        self.reach()?;
        // In a new session, the turn is somebody else's, whatever it is.
        let (Some(seen), false) = (self.seen, writes.is_empty()) else { return self.begin() };
        let parts = self.parts_of(&writes)?;
        let begun = self.begin_and_write(seen, &writes, &parts, |it, questions| {
            it.link.ask_each(it.link.deadline(), questions)
        });
        let begun = self.after(begun);
        self.own_or_anew(begun)
    }

    fn connect(&mut self) -> Result<(), StoreError> {
        self.rollback()?;
        Ok(self.reach()?)
    }

    fn begin_read(&mut self) -> Result<(), StoreError> {
        self.rollback()?;
        self.reach()?;
        self.state = State::WillRead;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        let (State::Writes(last), Some(member)) = (self.state, self.member) else {
            return self.rollback();
        };
        let turn = last + 1;
        let end = End { member, turn, changes_nouns: self.changes_nouns };
        let committed = end.ask(|questions| self.link.commit(COMMIT_TIME, questions));
        self.state = State::Free;
        match committed {
            Ok(()) => self.seen = Some(turn),
            Err(failure) if failure.is_answer => return Err(failure.error),
            Err(failure) => self.find_out(turn, failure.error)?,
        }
        self.acknowledged.commit(turn);
        Ok(())
    }

    fn commit_and_begin_with(
        &mut self,
        next: Vec<Write>,
        committed: &mut (dyn FnMut() + Send),
    ) -> Result<Result<Turn, StoreError>, StoreError> {
        let (State::Writes(last), Some(member), false) = (self.state, self.member, next.is_empty())
        else {
            self.commit()?;
            committed();
            return Ok(self.begin_with(next));
        };
        let parts = self.parts_of(&next);
        let parts = self.after(parts)?;
        let turn = last + 1;
        let end = End { member, turn, changes_nouns: self.changes_nouns };
        let mut commit = Err(Failure::disconnected());
        let begun = self.begin_and_write(turn, &next, &parts, |it, others| {
            let link = &mut it.link;
            let asked = end.ask(|end| link.commit_and_ask(COMMIT_TIME, end, others, committed));
            match asked {
                Ok(answers) => {
                    // What comes next counts from it.
                    it.acknowledged.commit(turn);
                    it.seen = Some(turn);
                    commit = Ok(());
                    answers
                }
                Err(failure) => {
                    commit = Err(failure);
                    Err(Failure::disconnected())
                }
            }
        });
        let begun = self.after(begun);
        match commit {
            Ok(()) => return Ok(self.own_or_anew(begun)),
            Err(failure) if failure.is_answer => return Err(failure.error),
            Err(failure) => self.find_out(turn, failure.error)?,
        }
        self.acknowledged.commit(turn);
        committed();
        Ok(self.begin_with(next))
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
        let (_, answers) = self.after(asked)?;
        hand_over(wanted, answers, each)
    }

    fn look(
        &mut self,
        member: i64,
        wanted: &[Keys],
        each: &mut dyn FnMut(usize, Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let members: [&(dyn ToSql + Sync); 3] = [&EVERYBODY, &NOUNS, &member];
        let turns = Question { sql: LAST_TURNS, parameters: &members };
        let asked = self.rows_of_all(&[turns], wanted);
        let (turns, answers) = self.after(asked)?;
        let turns = Turns::of(&turns);
        let Turns { last, ours, .. } = self.after(turns)?;
        let seen = self.seen.replace(last);
        hand_over(wanted, answers, each)?;
        Ok(seen.is_some_and(|seen| last == seen || last == ours))
    }

    fn write(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        self.in_transaction()?;
        self.changes(&writes);
        let result = self.write_all(&writes);
        self.after(result)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn member(&self) -> Option<i64> {
        self.member
    }

    fn disconnect(&mut self) {
        self.link.disconnect();
        self.state = State::Free;
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
