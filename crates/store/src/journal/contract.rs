//! The rules of a journal, on every engine and in memory: each test has two connections to one.

use domain::time::Timestamp;
use tempfile::TempDir;
use testbed::postgres::Database;
use uuid::Uuid;

use super::memory::{Fault, MemoryJournal};
use super::*;
use crate::postgres::PostgresServer;
use crate::postgres::journal::PostgresJournal;
use crate::sqlite::journal::{ENDING, SqliteJournal};

const DATABASE: Uuid = Uuid::from_u128(7);

/// The place of a journal, which lasts as long as the value.
enum Place {
    Memory(MemoryJournal),
    Sqlite(TempDir),
    Postgres(Database),
}

impl Place {
    fn connect(&self) -> Box<dyn Journal> {
        match self {
            Self::Memory(journal) => Box::new(journal.clone()),
            Self::Sqlite(folder) => {
                let path = folder.path().join(format!("test.db{ENDING}"));
                Box::new(SqliteJournal::open(&path).expect("a file"))
            }
            Self::Postgres(database) => {
                let server = PostgresServer::new(&database.url()).expect("a URL");
                Box::new(PostgresJournal::open(&server).expect("a database"))
            }
        }
    }
}

/// Runs a test on every kind of journal, with two connections.
fn on_each(test: impl Fn(&mut dyn Journal, &mut dyn Journal)) {
    let places = [
        Place::Memory(MemoryJournal::default()),
        Place::Sqlite(TempDir::new().expect("a folder")),
        Place::Postgres(Database::fresh()),
    ];
    for place in places {
        let (mut first, mut second) = (place.connect(), place.connect());
        test(&mut *first, &mut *second);
    }
}

fn holder(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// The next rows of a chain, which goes on behind them.
fn next(chain: &mut Chain, epoch: u64, bodies: &[&[u8]]) -> Vec<Row> {
    bodies
        .iter()
        .map(|body| {
            let row = chain.next(epoch, Timestamp::from_millis(5), body.to_vec());
            chain.take(&row).expect("the next row");
            row
        })
        .collect()
}

fn lead(journal: &mut dyn Journal, number: u128) -> Leader {
    let seen = journal.leadership().expect("an answer");
    journal.take_over(seen, holder(number)).expect("an answer").expect("the leadership")
}

fn is_deposed(result: &Result<Appended, AppendError>) -> bool {
    matches!(result, Err(AppendError::Deposed))
}

#[test]
fn rows_come_back_as_they_were_appended() {
    on_each(|one, other| {
        let leader = lead(one, 1);
        let mut chain = Chain::new(DATABASE);
        let large = vec![0xab; 300_000];
        let all = next(&mut chain, 1, &[b"", b"first", &large, &[0, 255]]);
        assert_eq!(one.append(leader, &all[..1]).expect("an append"), Appended::Now);
        assert_eq!(one.append(leader, &all[1..]).expect("an append"), Appended::Now);
        assert_eq!(one.append(leader, &[]).expect("nothing"), Appended::Now);
        assert_eq!(other.rows(0, 10).expect("rows"), all);
        assert_eq!(other.rows(1, 2).expect("rows"), all[1..3]);
        assert_eq!(other.rows(4, 10).expect("rows"), []);
        let mut read = Chain::new(DATABASE);
        all.iter().try_for_each(|row| read.take(row)).expect("a chain");
        assert_eq!(read.end(), chain.end());
    });
}

#[test]
fn an_append_that_is_repeated_is_there_once() {
    on_each(|one, other| {
        let leader = lead(one, 1);
        let rows = next(&mut Chain::new(DATABASE), 1, &[b"a", b"b"]);
        assert_eq!(one.append(leader, &rows).expect("an append"), Appended::Now);
        assert_eq!(other.append(leader, &rows).expect("an append"), Appended::Before);
        assert_eq!(one.rows(0, 10).expect("rows"), rows);
        // Also when another leads meanwhile: it was there, and its leader asks whether it leads.
        let next_leader = lead(other, 2);
        assert_eq!(one.append(leader, &rows).expect("an append"), Appended::Before);
        assert!(one.leads(next_leader).expect("an answer"));
    });
}

#[test]
fn an_old_leader_appends_nothing() {
    on_each(|one, other| {
        let old = lead(one, 1);
        let mut chain = Chain::new(DATABASE);
        let first = next(&mut chain, 1, &[b"a"]);
        one.append(old, &first).expect("an append");
        let new = lead(other, 2);
        assert_eq!(new, Leader { epoch: 2, holder: holder(2) });
        let mut fork = chain;
        let late = next(&mut fork, 1, &[b"late"]);
        assert!(is_deposed(&one.append(old, &late)));
        let second = next(&mut chain, 2, &[b"b"]);
        assert_eq!(other.append(new, &second).expect("an append"), Appended::Now);
        assert!(is_deposed(&one.append(old, &late)), "also behind the new leader's rows");
        // The same number does not help: a failover can give it twice.
        let twin = Leader { epoch: 2, holder: holder(1) };
        assert!(is_deposed(&one.append(twin, &next(&mut chain, 2, &[b"c"]))));
        assert_eq!(one.rows(0, 10).expect("rows"), [first, second].concat());
    });
}

#[test]
fn rows_follow_the_last_one() {
    on_each(|one, _| {
        let leader = lead(one, 1);
        let mut chain = Chain::new(DATABASE);
        let rows = next(&mut chain, 1, &[b"a", b"b", b"c"]);
        assert!(is_deposed(&one.append(leader, &rows[1..])), "the first is missing");
        one.append(leader, &rows[..1]).expect("an append");
        assert!(is_deposed(&one.append(leader, &rows[2..])), "one between is missing");
        let mut fork = Chain::new(DATABASE);
        let others = next(&mut fork, 1, &[b"x", b"y"]);
        assert!(is_deposed(&one.append(leader, &others)), "another first");
        assert!(is_deposed(&one.append(leader, &others[1..])), "behind another first");
        assert_eq!(one.append(leader, &rows[1..]).expect("an append"), Appended::Now);
        assert_eq!(one.rows(0, 10).expect("rows"), rows);
    });
}

#[test]
fn the_leadership_is_taken_as_it_was_seen() {
    on_each(|one, other| {
        assert_eq!(one.leadership().expect("an answer"), None);
        let first = lead(one, 1);
        assert_eq!(other.take_over(None, holder(2)).expect("an answer"), None, "there is one");
        let seen = other.leadership().expect("an answer");
        assert_eq!(seen, Some(Leadership { leader: first, beat: 0 }));
        assert!(one.renew(first).expect("an answer"));
        assert_eq!(other.take_over(seen, holder(2)).expect("an answer"), None, "it lives");
        let seen = other.leadership().expect("an answer");
        assert_eq!(seen, Some(Leadership { leader: first, beat: 1 }));
        let second = other.take_over(seen, holder(2)).expect("an answer").expect("the leadership");
        assert_eq!(second, Leader { epoch: 2, holder: holder(2) });
        assert_eq!(one.take_over(seen, holder(3)).expect("an answer"), None, "outdated");
        assert!(!one.renew(first).expect("an answer"));
        assert!(one.leads(second).expect("an answer") && !one.leads(first).expect("an answer"));
    });
}

#[test]
fn a_lost_answer_is_found_by_asking_again() {
    let mut journal = MemoryJournal::default();
    let leader = lead(&mut journal, 1);
    let mut chain = Chain::new(DATABASE);
    let first = next(&mut chain, 1, &[b"a"]);
    for (fault, again) in
        [(Fault::LosesRequest, Appended::Now), (Fault::LosesAnswer, Appended::Before)]
    {
        let rows =
            if again == Appended::Now { first.clone() } else { next(&mut chain, 1, &[b"b"]) };
        journal.fail(fault);
        assert!(matches!(journal.append(leader, &rows), Err(AppendError::Lost(_))));
        assert_eq!(journal.append(leader, &rows).expect("an append"), again);
    }
    journal.fail(Fault::IsFull);
    let third = next(&mut chain, 1, &[b"c"]);
    let full = journal.append(leader, &third);
    assert!(matches!(full, Err(AppendError::Failed(StoreError::DiskFull))), "{full:?}");
    assert_eq!(journal.append(leader, &third).expect("an append"), Appended::Now);
    // Rows that a failover lost are missed by the next append.
    journal.lose(1);
    let fourth = next(&mut chain, 1, &[b"d"]);
    assert!(is_deposed(&journal.append(leader, &fourth)));
    assert_eq!(journal.append(leader, &third).expect("an append"), Appended::Now);
    assert_eq!(journal.append(leader, &fourth).expect("an append"), Appended::Now);
}
