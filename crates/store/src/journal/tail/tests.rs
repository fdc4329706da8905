use domain::bulk_import::{Part, PartContent, Row as ImportRow};
use domain::delivery::{Attempt, Delivery, Draft, Outcome, Plan};
use domain::erasure::Erase as _;
use domain::event::{Event, EventKind, event_id};
use domain::id::{CustomerId, Id};
use domain::lookup::{Lookup, PayWay, Receiver};
use domain::uma_address::UmaAddress;

use super::*;
use crate::bulk_imports::PartKey;
use crate::engine::Engine as _;
use crate::idempotency::{Given, day};
use crate::journal::change_set::{Kind, RowChange, TableChange};
use crate::origin::{Actor, Origin};
use crate::unit::Unit;
use crate::{SqliteFile, Store};

fn set(bytes: usize) -> ChangeSet {
    let values = vec![Value::Bytes(vec![0; bytes])];
    let change = TableChange::new(1, Kind::Insert, values);
    let rows = vec![RowChange { of_person: None, change }];
    ChangeSet { actor: Actor::job("TEST"), request: None, rows }
}

#[test]
fn change_sets_stay_whole_and_rows_short() {
    let lengths = |sizes: &[usize]| {
        let sets = sizes.iter().map(|bytes| set(*bytes)).collect();
        in_rows(sets).map(|sets| sets.len()).collect::<Vec<_>>()
    };
    assert_eq!(lengths(&[]), [] as [usize; 0]);
    assert_eq!(lengths(&[0, 10, 1_000]), [3]);
    assert_eq!(lengths(&[BODY_MAX * 3]), [1], "one that is longer stands alone");
    assert_eq!(lengths(&[BODY_MAX / 2, BODY_MAX / 3, BODY_MAX / 2, 1]), [2, 2]);
    assert_eq!(lengths(&[1, BODY_MAX, BODY_MAX, 1]), [1, 1, 1, 1]);
}

const CUSTOMER: CustomerId = Id::from_uuid(Uuid::from_u128(7 << 120));

/// It is part of all that is known of the person.
const MARK: &str = "quagmire";

/// So it is in what an endpoint has answered.
const MARK_IN_BASE64: &str = "cXVhZ21pcmU=";

fn keyring() -> Keyring {
    Keyring::new(&[7; 32])
}

async fn write(store: &Store, at: i64, mut work: impl FnMut(&mut Unit<'_, '_>) + Send + 'static) {
    let origin =
        Origin { actor: Actor::job("TEST"), request: None, at: Timestamp::from_millis(at) };
    let work = move |unit: &mut Unit<'_, '_>| {
        work(unit);
        Ok::<_, StoreError>(())
    };
    store.write(origin, work).await.expect("a commit");
}

/// How many rows of change sets that can be read have the mark.
fn marked(file: &SqliteFile) -> usize {
    let mut connection = file.auditor().expect("a connection");
    let mut marked = 0;
    each(&mut *connection, &keyring(), Rows::behind(0), &mut |_, sets| {
        let tells = |text: &str| [MARK, MARK_IN_BASE64].iter().any(|mark| text.contains(mark));
        let is_marked = |value: &Value| match value {
            Value::Text(text) => tells(text),
            Value::Bytes(bytes) => tells(&String::from_utf8_lossy(bytes)),
            Value::Null | Value::Int(_) => false,
        };
        let rows = sets.iter().flat_map(|set| &set.rows);
        marked += rows.filter(|row| row.change.values.iter().any(is_marked)).count();
        Ok(())
    })
    .expect("a journal");
    marked
}

fn lookup() -> Lookup {
    let way = PayWay {
        callback: format!("https://bank.example/{MARK}"),
        version: "1.0".to_owned(),
        is_subject_to_travel_rule: false,
        comment_max: 0,
    };
    let address = UmaAddress::parse("$quagmire@bank.example").expect("an address");
    Lookup {
        id: Id::from_uuid(Uuid::from_u128(8)),
        platform: Id::from_uuid(Uuid::from_u128(9)),
        sender: CUSTOMER,
        receiver: Receiver::Peer { address, way },
        offers: Vec::new(),
        payer_fields: Vec::new(),
        expires_at: Timestamp::from_millis(1),
    }
}

fn delivery() -> Delivery {
    let at = Timestamp::from_millis(1);
    let (platform, resource) = (Id::from_uuid(Uuid::from_u128(9)), Uuid::from_u128(11 << 120));
    let (id, kind) = (event_id(resource, 1), EventKind::OutgoingPayment);
    let event = Event { id, platform, kind, resource, number: 1, at, body: Vec::new() };
    let mut progress =
        Delivery::pending(Draft::new(&event, 1, Plan::Retried), at).progress().clone();
    let outcome = Outcome::Answered { status: 500, body: MARK.into() };
    progress.attempts = vec![Attempt { at, millis: 1, peer: None, outcome }];
    Delivery::restore(Draft::new(&event, 1, Plan::Retried), progress).expect("a delivery")
}

#[tokio::test]
async fn what_an_erased_key_has_sealed_is_unreadable_in_every_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = SqliteFile::new(&folder.path().join("a.db"));
    let (store, _threads) = Store::open(&file, keyring()).expect("a store");
    let (at, month) = (Timestamp::from_millis(1), 30 * 86_400_000);
    // One answer is about the customer, whom its unit has met, and one is not.
    write(&store, 1, move |unit| {
        unit.put(lookup());
        unit.keep_answer([1; 16], at, &Given::new(200, MARK));
    })
    .await;
    write(&store, 1, move |unit| unit.keep_answer([2; 16], at, &Given::new(400, MARK))).await;
    let import = Id::from_uuid(Uuid::from_u128(10 << 120));
    let rows = vec![ImportRow { label: MARK.to_owned(), content: Err(String::new()) }];
    let waiting = Part { import, number: 0, content: PartContent::Waiting(rows) };
    write(&store, 1, move |unit| unit.put(waiting.clone())).await;
    // An endpoint has answered with what it was sent.
    let answered = delivery();
    let of_delivery = answered.draft().resource;
    write(&store, 1, move |unit| unit.put(answered.clone())).await;
    assert_eq!(marked(&file), 5);

    // Another server has remembered the keys. It finds out that they were erased.
    let (other, _threads) = Store::open(&file, keyring()).expect("a store");
    let change = |unit: &mut Unit<'_, '_>, changed: Lookup| {
        unit.get::<Lookup>(&changed.id).expect("a read");
        unit.put(changed);
    };
    let later = Lookup { expires_at: Timestamp::from_millis(2), ..lookup() };
    write(&other, 2, move |unit| change(unit, later.clone())).await;
    write(&store, 3, move |unit| {
        change(unit, lookup().erased());
        unit.get::<Part>(&PartKey(import, 0)).expect("a read");
        unit.change_answer([1; 16], 410, b"erased").expect("a read");
        unit.put(Part { import, number: 0, content: PartContent::Done(Vec::new()) });
        unit.get::<Delivery>(&delivery().id()).expect("a read");
        unit.put(delivery().erased());
        for key in [CUSTOMER.uuid(), import.uuid(), of_delivery] {
            unit.erase_key(key);
        }
    })
    .await;
    assert_eq!(marked(&file), 1, "the answer of that day that is about no customer");
    write(&other, 4, move |unit| change(unit, lookup().erased())).await;
    let later = Timestamp::from_millis(month);
    write(&store, month, move |unit| {
        unit.remove_answers(&[[1; 16], [2; 16]], later).expect("a read");
        unit.erase_key(day(at));
    })
    .await;
    assert_eq!(marked(&file), 0);
    // The tables follow.
    let read = store.read(|view| view.get::<Lookup>(&lookup().id)).await;
    read.expect("a read");
    let scratch = SqliteFile::new(&folder.path().join("replay.db"));
    let replayed = crate::verify::replay(&file, &keyring(), &scratch).expect("a journal");
    assert!(replayed.holds(), "{replayed:?}");
    let report = crate::verify::verify(&file, Some(&keyring())).expect("a report");
    let of_journal = report.checks.iter().filter(|check| check.predicate.starts_with('J'));
    let broken: Vec<_> = of_journal.filter(|check| !check.holds()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[tokio::test]
async fn the_days_whose_answers_are_gone_are_found() {
    const DAY: i64 = 86_400_000;
    let folder = tempfile::tempdir().expect("a folder");
    let file = SqliteFile::new(&folder.path().join("a.db"));
    let (store, _threads) = Store::open(&file, keyring()).expect("a store");
    let time = Timestamp::from_millis;
    for number in 0..3 {
        let at = time(i64::from(number) * DAY);
        write(&store, at.millis(), move |unit| {
            unit.keep_answer([number; 16], at, &Given::new(200, ""))
        })
        .await;
    }
    write(&store, 0, |unit| unit.put(lookup())).await;
    let before = async |millis| {
        let found = store.read(move |view| view.outdated_days(time(millis), 10)).await;
        Result::<_, StoreError>::expect(found, "a read")
    };
    assert!(before(DAY - 1).await.is_empty());
    assert_eq!(before(3 * DAY - 1).await, [day(time(0)), day(time(DAY))]);
    write(&store, 0, move |unit| unit.erase_key(day(time(0)))).await;
    assert_eq!(before(3 * DAY - 1).await, [day(time(DAY))]);
    assert_eq!(before(9 * DAY).await.len(), 2, "and no customer's");
}
