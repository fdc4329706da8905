//! The server's key, the secret of a database, and the keys of its journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use domain::customer::Customer;
use domain::erasure::Erase as _;
use domain::id::CustomerId;
use store::copy::copy;
use store::engine::Engine;
use store::error::StoreError;
use store::keyring::{KEY_LENGTH, Keyring, Purpose};
use store::record::Record as _;
use store::reseal::reseal;
use store::server_key::{
    Key, Step, draw_secret, drop_older_secret, has_older_secret, replace, replace_journal_key,
    unlock, unlock_or_begin,
};
use store::sql::{Connection, Value};
use store::verify::{replay, verify};
use store::{SqliteFile, Store};

use crate::Provider;
use crate::support::*;
use crate::tampered::{self, Tamper};

type Outcome<T = ()> = std::result::Result<T, StoreError>;

const FIRST: [u8; KEY_LENGTH] = [1; KEY_LENGTH];
const SECOND: [u8; KEY_LENGTH] = [2; KEY_LENGTH];

/// What shows which secret a keyring has.
fn shown(keyring: &Keyring) -> [u8; 32] {
    keyring.hash(Purpose::Cursor, &[])
}

/// Begins a database with a secret of this byte.
fn begun<P: Provider>(provider: &P, key: [u8; KEY_LENGTH], secret: u8) -> Keyring {
    unlock_or_begin(&*provider.engine(), &key, || [secret; KEY_LENGTH]).unwrap().0
}

fn refused<P: Provider>(provider: &P, key: [u8; KEY_LENGTH]) {
    let refused = unlock(&*provider.engine(), &key).unwrap_err();
    let is_clear = matches!(&refused, StoreError::Engine(what) if what.contains("the key is not"));
    assert!(is_clear, "{refused}");
}

pub async fn a_database_opens_with_the_key_of_its_server<P: Provider>() {
    let provider = P::new();
    let keyring = begun(&provider, FIRST, 9);
    // The secret is not the key, and is drawn once.
    assert_ne!(shown(&keyring), shown(&Keyring::new(&FIRST)));
    assert_eq!(shown(&keyring), shown(&Keyring::new(&[9; KEY_LENGTH])));
    assert_eq!(shown(&begun(&provider, FIRST, 8)), shown(&keyring));
    refused(&provider, SECOND);
    let other = unlock_or_begin(&*provider.engine(), &SECOND, || [7; KEY_LENGTH]);
    assert!(other.is_err(), "a database that is there is not begun anew");
    drop(Store::open(&*provider.engine(), keyring).unwrap());
    // A store that was opened with its secret alone has that for its key.
    let bare = crate::open::<P>().close();
    assert_eq!(shown(&begun(&bare, [7; KEY_LENGTH], 8)), shown(&crate::support::keyring()));
}

pub async fn servers_that_begin_at_once_have_one_secret<P: Provider>() {
    let provider = P::new();
    let begins = |secret: u8| {
        let engine = provider.engine();
        move || shown(&unlock_or_begin(&*engine, &FIRST, || [secret; KEY_LENGTH]).unwrap().0)
    };
    let servers: Vec<_> = (1..=4).map(|secret| std::thread::spawn(begins(secret))).collect();
    let secrets: Vec<_> = servers.into_iter().map(|server| server.join().unwrap()).collect();
    assert!(secrets.iter().all(|secret| *secret == secrets[0]), "{secrets:?}");
}

pub async fn another_key_takes_the_place_of_the_servers<P: Provider>() {
    let provider = P::new();
    let keyring = begun(&provider, FIRST, 9);
    let secret = shown(&keyring);
    let (store, _threads) = Store::open(&*provider.engine(), keyring).unwrap();
    let is_opened = |key| shown(&unlock(&*provider.engine(), &key).unwrap()) == secret;
    let wrong = replace(&*provider.engine(), (&SECOND, &FIRST, &SECOND), Step::NewOnly);
    assert!(wrong.is_err(), "only one who knows the key replaces it");
    replace(&*provider.engine(), (&FIRST, &FIRST, &SECOND), Step::Both).unwrap();
    assert!(is_opened(FIRST) && is_opened(SECOND));
    replace(&*provider.engine(), (&SECOND, &FIRST, &SECOND), Step::NewOnly).unwrap();
    assert!(is_opened(SECOND));
    refused(&provider, FIRST);
    // A server goes on, and nothing was sealed anew.
    let written = store.write(origin(), |unit| {
        unit.put(platform(1));
        Ok::<_, StoreError>(())
    });
    written.await.unwrap();
    let report = verify(&*provider.engine(), Some(&unlock(&*provider.engine(), &SECOND).unwrap()));
    assert!(report.unwrap().is_sound());
}

/// The numbers of the keys with which the rows of the journal are sealed.
fn numbers<P: Provider>(provider: &P) -> Vec<u8> {
    let mut connection = provider.engine().auditor().unwrap();
    let mut numbers = Vec::new();
    connection.begin_read().unwrap();
    connection
        .query("select body from journal order by seq", &[], 1, &mut |values| {
            let [Value::Bytes(body)] = &values[..] else { panic!("no body") };
            numbers.push(body[4]);
            Ok(())
        })
        .unwrap();
    numbers
}

pub async fn rows_of_the_journal_are_sealed_with_its_newest_key<P: Provider>() {
    let opened = crate::open::<P>();
    let (other, _threads) = Store::open(&*opened.provider.engine(), keyring()).unwrap();
    let write = async |store: &Store, number| {
        let work = move |unit: &mut store::unit::Unit<'_, '_>| {
            unit.put(platform(number));
            Ok::<_, StoreError>(())
        };
        store.write(origin(), work).await.unwrap();
    };
    write(&opened.store, 1).await;
    write(&other, 2).await;
    replace_journal_key(&*opened.provider.engine(), &keyring(), origin()).unwrap();
    write(&opened.store, 3).await;
    write(&other, 4).await;
    assert_eq!(numbers(&opened.provider), [1, 1, 2, 2, 2]);
    let report = verify(&*opened.provider.engine(), Some(&keyring())).unwrap();
    let of_journal = report.checks.iter().filter(|check| check.predicate.starts_with('J'));
    assert!(of_journal.into_iter().all(|check| check.holds()), "{report:?}");
    let folder = tempfile::tempdir().unwrap();
    let scratch = SqliteFile::new(&folder.path().join("replay.db"));
    let replayed = replay(&*opened.provider.engine(), &keyring(), &scratch).unwrap();
    assert!(replayed.holds(), "{replayed:?}");
}

/// Writes a customer whom verify finds to be in order.
async fn put(store: &Store, number: u128) -> Outcome {
    let work = move |unit: &mut store::unit::Unit<'_, '_>| {
        unit.put(platform(1));
        let customer = bare_customer(number, 1);
        unit.put_claim(&customer.uma_address, customer.id);
        unit.put(customer);
        Ok::<_, StoreError>(())
    };
    store.write(origin(), work).await
}

/// How many customers of these numbers are read, both by their keys and from the tables.
async fn there(store: &Store, numbers: std::ops::Range<u128>) -> bool {
    let ids: Vec<CustomerId> = numbers.map(customer_id).collect();
    for id in ids.clone() {
        if !matches!(store.get::<Customer>(id).await, Ok(Some(_))) {
            return false;
        }
    }
    let all = store.read::<_, StoreError, _>(move |view| {
        ids.iter().map(|id| Ok(view.get::<Customer>(id)?.is_some())).collect::<Outcome<Vec<_>>>()
    });
    all.await.is_ok_and(|all| all.into_iter().all(|is_there| is_there))
}

/// Whether everything holds and opens, and the tables follow from the journal.
fn holds(engine: &dyn Engine, keyring: &Keyring) {
    let report = verify(engine, Some(keyring)).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let folder = tempfile::tempdir().unwrap();
    let scratch = SqliteFile::new(&folder.path().join("replay.db"));
    let replayed = replay(engine, keyring, &scratch).unwrap();
    assert!(replayed.holds(), "{replayed:?}");
}

/// How many sealed values of tables and keys there are, and how many of them open.
fn opened(engine: &dyn Engine, keyring: &Keyring) -> (usize, usize) {
    let mut connection = engine.auditor().unwrap();
    connection.begin_read().unwrap();
    let (mut all, mut opened) = (0, 0);
    let customers = Customer::shape();
    let sql = format!("select {} from customers", customers.columns.join(", "));
    let mut each = |row: Vec<Value>| {
        all += 1;
        opened += usize::from(customers.opened(row, keyring).is_ok());
        Ok(())
    };
    connection.query(&sql, &[], customers.columns.len(), &mut each).unwrap();
    for (table, key) in [("data_keys", "owner"), ("journal_keys", "number")] {
        let sql = format!("select {key}, sealed from {table}");
        let mut each = |values: Vec<Value>| {
            let [key, Value::Bytes(sealed)] = &values[..] else { panic!("{values:?}") };
            let key = match key {
                Value::Bytes(key) => key.clone(),
                Value::Int(number) => u32::try_from(*number).unwrap().to_be_bytes().to_vec(),
                other => panic!("{other:?}"),
            };
            all += 1;
            opened += usize::from(keyring.open(table, &key, sealed).is_ok());
            Ok(())
        };
        connection.query(&sql, &[], 2, &mut each).unwrap();
    }
    connection.rollback().unwrap();
    (all, opened)
}

pub async fn everything_is_sealed_anew_beside_servers<P: Provider>() {
    let provider = P::new();
    let engine = provider.engine();
    drop(begun(&provider, FIRST, 9));
    // A thief has the old key and a copy of the database.
    let thief = unlock(&*engine, &FIRST).unwrap();
    let hashes = shown(&thief);
    let open = |key| Store::open(&*provider.engine(), unlock(&*provider.engine(), &key).unwrap());
    let (one, one_threads) = open(FIRST).unwrap();
    let (other, other_threads) = open(FIRST).unwrap();
    put(&one, 1).await.unwrap();
    put(&other, 2).await.unwrap();
    assert!(there(&one, 1..3).await);
    let (all, of_thief) = opened(&*engine, &thief);
    assert!(all == of_thief && all > 4, "{of_thief} of {all}");

    assert!(!has_older_secret(&*engine, &FIRST).unwrap());
    draw_secret(&*engine, (&FIRST, &SECOND), origin()).unwrap();
    refused(&provider, FIRST);
    assert!(has_older_secret(&*engine, &SECOND).unwrap());
    // Another rotation waits for the end of this one.
    for refused in [
        draw_secret(&*engine, (&SECOND, &FIRST), origin()),
        replace(&*engine, (&SECOND, &SECOND, &FIRST), Step::NewOnly),
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("not sealed anew yet"), "{refused}");
    }
    // Both go on, one without having read what the other has.
    put(&one, 3).await.unwrap();
    assert!(there(&other, 1..4).await);
    let keyring = unlock(&*engine, &SECOND).unwrap();
    holds(&*engine, &keyring);
    let runtime = tokio::runtime::Handle::current();
    let mut number = 3;
    let mut on_step = |step: store::reseal::Step| {
        if step.table == "customers" && number < 8 {
            number += 1;
            // Servers write between the steps of the resealing.
            let store = if number % 2 == 0 { &one } else { &other };
            tokio::task::block_in_place(|| runtime.block_on(put(store, number)))?;
        }
        Ok(())
    };
    reseal(&*engine, &keyring, &mut on_step).unwrap();
    let (last, _last_threads) = open(SECOND).unwrap();
    drop_older_secret(&*engine, &SECOND, &keyring, origin()).unwrap();
    let all = 1..number + 1;
    for store in [&one, &other, &last] {
        assert!(there(store, all.clone()).await);
    }
    put(&one, number + 1).await.unwrap();
    assert!(there(&other, 1..number + 2).await);
    drop((one, other));
    one_threads.join();
    other_threads.join();

    // Everything is under the new secret; hashes are what they were.
    let keyring = unlock(&*engine, &SECOND).unwrap();
    assert!(!has_older_secret(&*engine, &SECOND).unwrap());
    assert_eq!(shown(&keyring), hashes);
    holds(&*engine, &keyring);
    let (all, of_us) = opened(&*engine, &keyring);
    assert_eq!(all, of_us);
    assert_eq!(opened(&*engine, &thief), (all, 0));
    assert!(numbers(&provider).ends_with(&[2, 2]), "{:?}", numbers(&provider));
    let (again, _threads) = open(SECOND).unwrap();
    assert!(there(&again, 1..number + 2).await);
}

/// Ends a process at one of its commits: before it, or when it was made.
struct Dies {
    commits: AtomicUsize,
    is_made: bool,
}

impl Tamper for Dies {
    fn commit(&self, inner: &mut dyn Connection) -> Outcome {
        let before = |left: usize| left.checked_sub(1);
        let is_dead =
            self.commits.fetch_update(Ordering::SeqCst, Ordering::SeqCst, before).is_err();
        if !is_dead || self.is_made {
            inner.commit()?;
        } else {
            inner.rollback()?;
        }
        if is_dead { Err(StoreError::Engine("killed".to_owned())) } else { Ok(()) }
    }
}

/// An operator who runs `switchyard key rotate --reencrypt`.
struct Operator {
    file: Key,
    drawn: u8,
}

impl Operator {
    fn rotate(&mut self, engine: &dyn Engine) -> Outcome {
        if !has_older_secret(engine, &self.file)? {
            self.drawn += 1;
            let new = [self.drawn; KEY_LENGTH];
            replace(engine, (&self.file, &self.file, &new), Step::Both)?;
            self.file = new;
            draw_secret(engine, (&new, &new), origin())?;
        }
        let keyring = unlock(engine, &self.file)?;
        reseal(engine, &keyring, &mut |_| Ok(()))?;
        drop_older_secret(engine, &self.file, &keyring, origin())
    }
}

pub async fn sealing_anew_that_dies_anywhere_goes_on<P: Provider>() {
    let provider = P::new();
    drop(begun(&provider, FIRST, 9));
    let mut operator = Operator { file: FIRST, drawn: 1 };
    let open = |key: &Key| Store::open(&*provider.engine(), unlock(&*provider.engine(), key)?);
    let (mut written, mut killed) = (0, 0);
    for is_made in [false, true] {
        // Most of the later ones are steps over a table, one like the other.
        for commits in (0..4).chain((4..).step_by(16)) {
            // A server works before each try and after it.
            let (store, threads) = open(&operator.file).unwrap();
            written += 1;
            put(&store, written).await.unwrap();
            drop(store);
            threads.join();
            let dies = Arc::new(Dies { commits: AtomicUsize::new(commits), is_made });
            let rotated = operator.rotate(&tampered::engine(&provider, &dies));
            let keyring = unlock(&*provider.engine(), &operator.file).unwrap();
            holds(&*provider.engine(), &keyring);
            if rotated.is_ok() {
                break;
            }
            killed += 1;
            let (store, threads) = open(&operator.file).unwrap();
            written += 1;
            put(&store, written).await.unwrap();
            assert!(there(&store, 1..written + 1).await, "killed at commit {commits}");
            drop(store);
            threads.join();
            operator.rotate(&*provider.engine()).unwrap();
            assert!(!has_older_secret(&*provider.engine(), &operator.file).unwrap());
        }
    }
    assert!(killed > 9, "{killed} times");
    let keyring = unlock(&*provider.engine(), &operator.file).unwrap();
    holds(&*provider.engine(), &keyring);
}

pub async fn a_server_that_was_away_while_all_was_sealed_anew_changes_nothing<P: Provider>() {
    let provider = P::new();
    let engine = provider.engine();
    let keyring = begun(&provider, FIRST, 9);
    let (store, threads) = Store::open(&*engine, keyring).unwrap();
    put(&store, 1).await.unwrap();
    assert!(there(&store, 1..2).await);
    // It reads nothing until all is over.
    let mut operator = Operator { file: FIRST, drawn: 1 };
    operator.rotate(&*engine).unwrap();
    let refused = put(&store, 2).await.unwrap_err().to_string();
    assert!(refused.contains("sealed with another secret"), "{refused}");
    assert!(!there(&store, 1..2).await);
    drop(store);
    threads.join();
    let keyring = unlock(&*engine, &operator.file).unwrap();
    holds(&*engine, &keyring);
    let (store, _threads) = Store::open(&*engine, keyring).unwrap();
    put(&store, 2).await.unwrap();
    assert!(there(&store, 1..3).await);
}

pub async fn a_database_that_is_being_sealed_anew_moves<P: Provider>() {
    let provider = P::new();
    let engine = provider.engine();
    let (store, threads) = Store::open(&*engine, begun(&provider, FIRST, 9)).unwrap();
    for number in 1..4 {
        put(&store, number).await.unwrap();
    }
    drop(store);
    threads.join();
    draw_secret(&*engine, (&FIRST, &SECOND), origin()).unwrap();
    let keyring = unlock(&*engine, &SECOND).unwrap();
    let mut steps = 0;
    let stopped = reseal(&*engine, &keyring, &mut |_| {
        steps += 1;
        if steps < 6 { Ok(()) } else { Err(StoreError::Busy) }
    });
    assert_eq!(stopped, Err(StoreError::Busy));
    let folder = tempfile::tempdir().unwrap();
    let moved = SqliteFile::new(&folder.path().join("moved.db"));
    let proof = copy(&*engine, &moved, &keyring, origin(), &mut |_| {}).unwrap();
    assert!(proof.holds(), "{proof:?}");
    // The resealing goes on in the source and in the copy.
    for engine in [&*engine, &moved] {
        let keyring = unlock(engine, &SECOND).unwrap();
        let (store, threads) = Store::open(engine, keyring).unwrap();
        put(&store, 4).await.unwrap();
        assert!(there(&store, 1..5).await);
        drop(store);
        threads.join();
        Operator { file: SECOND, drawn: 2 }.rotate(engine).unwrap();
        holds(engine, &unlock(engine, &SECOND).unwrap());
    }
}

pub async fn an_erased_customer_is_in_no_page<P: Provider>() {
    // A column has the hash of the name, by which the customer is found.
    let hash = keyring().hash(Purpose::Hidden, &[b"quagmire-7"]);
    let hash: String = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let has_name = |bytes: Vec<u8>| bytes.windows(hash.len()).any(|it| it == hash.as_bytes());
    let opened = crate::open_with_platform::<P>().await;
    opened
        .write(|unit| {
            for number in 1..=50 {
                let platform_customer_id = format!("quagmire-{number}");
                unit.put(Customer { platform_customer_id, ..bare_customer(number, 1) });
            }
            Ok(())
        })
        .await;
    let provider = opened.close();
    assert!(has_name(provider.bytes()));
    let opened = crate::open_again(provider);
    opened
        .write(|unit| {
            for number in 1..=50 {
                let customer = unit.get::<Customer>(&customer_id(number))?.unwrap();
                unit.put(customer.erased());
            }
            Ok(())
        })
        .await;
    assert!(!has_name(opened.close().bytes()));
}
