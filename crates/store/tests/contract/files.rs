//! The two files of a SQLite database: each is nothing without the other, and a backup is one file
//! that becomes two when it is opened.

use std::path::Path;

use domain::platform::Platform;
use store::backup::{copy_file, project};
use store::verify::{replay, verify};
use store::{SqliteFile, Store};

use crate::support::*;
use crate::{Opened, Provider, Sqlite, open, open_again};

/// Writes a platform.
async fn put(opened: &Opened<Sqlite>, number: u128) {
    opened
        .write(move |unit| {
            unit.put(platform(number));
            Ok(())
        })
        .await;
}

/// Whether a platform is found, by key and in its table.
async fn has(opened: &Opened<Sqlite>, number: u128) -> bool {
    let id = platform_id(number);
    let by_key = opened.store.get::<Platform>(id).await.unwrap().is_some();
    let in_table = opened.read(move |view| Ok(view.get::<Platform>(&id)?)).await.is_some();
    assert_eq!(by_key, in_table);
    by_key
}

/// A backup of a database, in the place of another one's tables.
fn back_up(from: &Sqlite, to: &Path) {
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{ending}", to.display()));
    }
    std::fs::File::create(to).unwrap();
    copy_file(&from.path(), to, &mut |_| {}).unwrap();
    project(to, &keyring()).unwrap();
}

/// How many tables of the journal are among the others.
fn journals_in(path: &Path) -> i64 {
    let sql = "select count(*) from sqlite_schema \
        where name in ('journal', 'journal_keys', 'data_keys', 'meta', 'leases')";
    let file = rusqlite::Connection::open(path).unwrap();
    file.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Everything holds, and the tables are what the journal says.
fn prove(place: &Sqlite) {
    let report = verify(&*place.engine(), Some(&keyring())).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let folder = tempfile::tempdir().unwrap();
    let scratch = SqliteFile::new(&folder.path().join("scratch.db"));
    let check = replay(&*place.engine(), &keyring(), &scratch).unwrap();
    assert!(check.holds(), "{check:?}");
}

fn refused(place: &Sqlite) -> String {
    let opened = Store::open(&*place.engine(), keyring());
    opened.err().expect("it is refused").to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_one_file_and_opened_where_it_is() {
    let opened = open::<Sqlite>();
    put(&opened, 1).await;
    // The server runs.
    let copy = Sqlite::new();
    back_up(&opened.provider, &copy.path());
    assert_eq!(journals_in(&copy.path()), 5);
    assert!(!journal_of(&copy.path()).exists());
    prove(&copy);
    opened.close();

    let opened = open_again(copy);
    assert!(has(&opened, 1).await);
    put(&opened, 2).await;
    let copy = opened.close();
    assert_eq!(journals_in(&copy.path()), 0);
    assert!(journal_of(&copy.path()).exists());
    prove(&copy);
    let opened = open_again(copy);
    assert!(has(&opened, 1).await && has(&opened, 2).await);
    opened.close();
}

/// So does a start that follows a crash in which the journal had its file already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_goes_on_with_the_journal_that_it_is_a_part_of() {
    let opened = open::<Sqlite>();
    put(&opened, 1).await;
    let place = opened.close();
    let backup = Sqlite::new();
    back_up(&place, &backup.path());
    let opened = open_again(place);
    put(&opened, 2).await;
    let place = opened.close();
    back_up(&backup, &place.path());
    let opened = open_again(place);
    assert!(has(&opened, 1).await && has(&opened, 2).await);
    let place = opened.close();
    assert_eq!(journals_in(&place.path()), 0);
    prove(&place);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_beside_the_journal_of_another_database_is_refused() {
    let (place, other) = (open::<Sqlite>(), open::<Sqlite>());
    put(&place, 1).await;
    put(&other, 1).await;
    let (place, other) = (place.close(), other.close());
    let journal = std::fs::read(journal_of(&place.path())).unwrap();
    back_up(&other, &place.path());
    let error = refused(&place);
    assert!(error.contains("is that of another database: move that one away"), "{error}");
    assert_eq!(std::fs::read(journal_of(&place.path())).unwrap(), journal, "it was changed");
    std::fs::remove_file(journal_of(&place.path())).unwrap();
    prove(&open_again(place).close());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_without_their_journal_are_refused_and_never_given_a_new_one() {
    let opened = open::<Sqlite>();
    put(&opened, 1).await;
    let place = opened.close();
    std::fs::rename(journal_of(&place.path()), place.path().with_extension("away")).unwrap();
    let error = refused(&place);
    assert!(error.contains("has no journal") && error.contains("store.db.journal"), "{error}");
    let error = verify(&*place.engine(), Some(&keyring())).unwrap_err().to_string();
    assert!(error.contains("has no journal"), "{error}");
    assert!(!journal_of(&place.path()).exists());
    std::fs::rename(place.path().with_extension("away"), journal_of(&place.path())).unwrap();
    let opened = open_again(place);
    assert!(has(&opened, 1).await);
    opened.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_databases_journal_is_refused() {
    let (place, other) = (open::<Sqlite>(), open::<Sqlite>());
    put(&place, 1).await;
    put(&other, 1).await;
    let (place, other) = (place.close(), other.close());
    std::fs::copy(journal_of(&other.path()), journal_of(&place.path())).unwrap();
    let error = refused(&place);
    assert!(error.contains("tables and journal do not belong together"), "{error}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_to_the_tables_leads_to_their_journal() {
    let opened = open::<Sqlite>();
    put(&opened, 1).await;
    let place = opened.close();
    let elsewhere = Sqlite::new();
    std::os::unix::fs::symlink(place.path(), elsewhere.path()).unwrap();
    let opened = open_again(elsewhere);
    assert!(has(&opened, 1).await);
    put(&opened, 2).await;
    assert!(!journal_of(&opened.close().path()).exists(), "it has a journal of its own");
    let opened = open_again(place);
    assert!(has(&opened, 2).await);
    prove(&opened.close());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_were_lost_are_made_again_from_the_journal() {
    let opened = open::<Sqlite>();
    put(&opened, 1).await;
    let place = opened.close();
    std::fs::remove_file(place.path()).unwrap();
    let opened = open_again(place);
    assert!(has(&opened, 1).await);
    prove(&opened.close());
}
