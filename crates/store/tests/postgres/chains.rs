//! Asks: is a commit, with which what comes next is on its way, what it says, whatever becomes of
//! either?

use std::result::Result;
use std::sync::atomic::{AtomicBool, Ordering};

use store::engine::{Engine as _, PostgresServer};
use store::error::StoreError;
use store::sql::{Change, Connection, Shape, Turn, Value, Write};
use testbed::postgres::{Cluster, Database, Replication, Shutdown, shared};
use testbed::proxy::{Chosen, Moment, Proxy};

use crate::absences::cut_wait_short;
use crate::support::keyring;

/// A table of the tests' own.
static NOTES: Shape = Shape::new("notes", &["number"], 1, None);

/// Adds notes, of which each number is there once at most.
fn notes(numbers: impl IntoIterator<Item = i64>) -> Vec<Write> {
    let rows = numbers.into_iter().map(|number| vec![Value::Int(number)]).collect();
    vec![Write { shape: &NOTES, change: Change::Insert, rows }]
}

fn open(url: &str) -> Box<dyn Connection> {
    PostgresServer::new(url).unwrap().prepare(&keyring()).unwrap()
}

/// The first turn of a session is somebody else's.
fn take_first_turn(connection: &mut dyn Connection) {
    assert_eq!(connection.begin(), Ok(Turn::Others { nouns: true }));
    connection.commit().unwrap();
}

const MAKE: &str = "create table notes (number bigint primary key)";

const FOUND: &str = "select string_agg(number::text, ' ' order by number) from notes";

/// A database with a connection that goes through a proxy, and one that does not.
struct Pair {
    proxy: Proxy,
    ours: Box<dyn Connection>,
    theirs: Box<dyn Connection>,
    database: Database,
}

impl Pair {
    fn new() -> Self {
        let database = Database::fresh();
        let proxy = Proxy::start(shared()).unwrap();
        let mut ours = open(&proxy.server().url_of(database.name()));
        let theirs = open(&database.url());
        database.query(MAKE).unwrap();
        take_first_turn(&mut *ours);
        Self { proxy, ours, theirs, database }
    }

    /// Adds a note and commits it, with the next note behind it. Tells whether it was said that the
    /// first is committed.
    fn chain(&mut self, next: Vec<Write>) -> (Result<Result<Turn, StoreError>, StoreError>, bool) {
        assert_eq!(self.ours.begin_with(notes([1])), Ok(Turn::Own));
        let (database, mut is_said) = (&self.database, false);
        let done = self.ours.commit_and_begin_with(next, &mut || {
            assert!(!is_said, "it is said twice");
            assert_eq!(database.query(FOUND).unwrap(), "1", "it is not so");
            is_said = true;
        });
        (done, is_said)
    }

    fn found(&self) -> String {
        self.database.query(FOUND).unwrap()
    }
}

#[test]
fn a_commit_is_said_before_what_comes_next_is_committed() {
    let mut pair = Pair::new();
    assert_eq!(pair.chain(notes([2])), (Ok(Ok(Turn::Own)), true));
    pair.ours.write(notes([3])).unwrap();
    assert_eq!(pair.found(), "1");
    pair.ours.commit().unwrap();
    assert_eq!(pair.found(), "1 2 3");
    assert_eq!(pair.ours.begin(), Ok(Turn::Own));
}

#[test]
fn nothing_may_come_next() {
    let mut pair = Pair::new();
    assert_eq!(pair.chain(Vec::new()), (Ok(Ok(Turn::Own)), true));
    pair.ours.rollback().unwrap();
    assert_eq!(pair.found(), "1");
}

#[test]
fn what_comes_next_may_be_refused() {
    let mut pair = Pair::new();
    let (done, is_said) = pair.chain(notes([2, 1]));
    assert!(matches!(&done, Ok(Err(StoreError::Engine(_)))) && is_said, "{done:?}");
    pair.ours.rollback().unwrap();
    assert_eq!(pair.ours.begin_with(notes([2])), Ok(Turn::Own));
    pair.ours.commit().unwrap();
    assert_eq!(pair.found(), "1 2");
}

#[test]
fn what_somebody_else_has_written_before_is_noticed_and_nothing_is_changed() {
    for theirs in [1, 2] {
        let mut pair = Pair::new();
        pair.theirs.begin().unwrap();
        pair.theirs.write(notes([theirs])).unwrap();
        pair.theirs.commit().unwrap();
        // Even where it could not be written at all.
        assert_eq!(pair.ours.begin_with(notes([1])), Ok(Turn::Others { nouns: false }));
        pair.ours.write(notes([3])).unwrap();
        pair.ours.commit().unwrap();
        assert_eq!(pair.found(), format!("{theirs} 3"));
        assert_eq!(pair.ours.begin_with(notes([4])), Ok(Turn::Own));
        pair.ours.rollback().unwrap();
    }
}

/// The database refuses it only as it is committed.
const REFUSES_TWO: &str = "create function refuse() returns trigger language plpgsql as $$ begin \
        raise exception 'not with two'; end $$; \
    create constraint trigger refuse after insert on notes deferrable initially deferred \
        for each row when (new.number = 2) execute function refuse()";

#[test]
fn what_stands_behind_a_commit_that_is_refused_is_gone_with_it() {
    let mut pair = Pair::new();
    pair.database.query(REFUSES_TWO).unwrap();
    assert_eq!(pair.ours.begin_with(notes([2])), Ok(Turn::Own));
    let mut said = || panic!("it is not committed");
    let done = pair.ours.commit_and_begin_with(notes([3]), &mut said);
    assert!(matches!(&done, Err(StoreError::Engine(what)) if what.contains("two")), "{done:?}");
    pair.ours.rollback().unwrap();
    assert_eq!(pair.found(), "");
    assert_eq!(pair.ours.begin_with(notes([3])), Ok(Turn::Others { nouns: true }));
    pair.ours.commit().unwrap();
    assert_eq!(pair.found(), "");
}

#[test]
fn a_commit_that_never_arrived_is_not_said_and_nothing_of_it_is_there() {
    let mut pair = Pair::new();
    pair.proxy.cut_commits(Moment::Before, Chosen::Next(1));
    let (done, is_said) = pair.chain(notes([2]));
    assert!(matches!(&done, Err(StoreError::Conflict(_))) && !is_said, "{done:?}");
    assert_eq!(pair.proxy.counts().cut_before, 1);
    pair.ours.rollback().unwrap();
    assert_eq!(pair.found(), "");
}

#[test]
fn a_commit_whose_answer_is_lost_is_said_and_what_stood_behind_it_is_not_there() {
    for moment in [Moment::During, Moment::After] {
        let mut pair = Pair::new();
        pair.proxy.cut_commits(moment, Chosen::Next(1));
        let lost = (Ok(Ok(Turn::Others { nouns: true })), true);
        assert_eq!(pair.chain(notes([2])), lost, "{moment:?}");
        let counts = pair.proxy.counts();
        assert_eq!(counts.cut_during + counts.cut_after, 1);
        pair.ours.write(notes([3])).unwrap();
        pair.ours.commit().unwrap();
        assert_eq!(pair.found(), "1 3", "{moment:?}");
    }
}

/// Whoever cuts its wait for a standby short must not be taken at their word.
#[test]
fn a_commit_that_no_standby_has_is_not_said() {
    for cut in ["pg_terminate_backend", "pg_cancel_backend"] {
        let primary = Cluster::start().unwrap();
        let mut replica = primary.replica(Replication::Synchronous).unwrap();
        let mut ours = open(&primary.server().url_of("postgres"));
        primary.server().query(MAKE).unwrap();
        take_first_turn(&mut *ours);
        assert_eq!(ours.begin_with(notes([1])), Ok(Turn::Own));
        replica.stop(Shutdown::Fast).unwrap();
        let is_said = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cut_wait_short(primary.server(), cut, &is_said);
                replica.resume().unwrap();
            });
            let mut say = || is_said.store(true, Ordering::SeqCst);
            let done = ours.commit_and_begin_with(notes([2]), &mut say);
            assert_eq!(done, Ok(Ok(Turn::Others { nouns: true })), "{cut}");
        });
        assert!(is_said.load(Ordering::SeqCst));
        ours.rollback().unwrap();
        assert_eq!(primary.server().query(FOUND).unwrap(), "1");
    }
}
