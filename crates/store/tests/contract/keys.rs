//! The server's key, the secret of a database, and the keys of its journal.

use domain::customer::Customer;
use domain::erasure::Erase as _;
use store::error::StoreError;
use store::keyring::{KEY_LENGTH, Keyring, Purpose};
use store::server_key::{Step, replace, replace_journal_key, unlock, unlock_or_begin};
use store::sql::Value;
use store::verify::{replay, verify};
use store::{SqliteFile, Store};

use crate::Provider;
use crate::support::*;

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

pub async fn an_erased_customer_is_in_no_page<P: Provider>() {
    const NAME: &[u8] = b"quagmire";
    let has_name =
        |bytes: Vec<u8>| bytes.windows(NAME.len()).any(|it| it.eq_ignore_ascii_case(NAME));
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
