//! Asks: is a unit of work all or nothing, whatever ends it?

use std::sync::mpsc;

use domain::customer::Customer;
use domain::platform::Platform;
use domain::rail::Rail;
use domain::transaction::Transaction;
use ledger::account::AccountKey;
use ledger::movements;
use store::Store;
use store::engine::Engine;
use store::error::StoreError;
use store::keyring::Keyring;
use store::sql::{Change, Connection, Shape, Turn, Value, Write};
use store::timers::TimerKind;
use store::unit::Unit;

use crate::support::*;
use crate::{Opened, Provider, open, open_again};

/// Holds the lane inside a unit until the returned sender is used or dropped, so that what is
/// written meanwhile becomes one batch.
pub async fn hold<P: Provider>(opened: &Opened<P>) -> mpsc::Sender<()> {
    let (inside, arrived) = tokio::sync::oneshot::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let (store, mut inside) = (opened.store.clone(), Some(inside));
    tokio::spawn(async move {
        let write = store.write(move |_| {
            if let Some(inside) = inside.take() {
                inside.send(()).unwrap();
                let _ = wait.recv();
            }
            Ok::<_, StoreError>(())
        });
        write.await.unwrap();
    });
    arrived.await.unwrap();
    go_on
}

/// Leaves something of every kind.
fn leave_everything(unit: &mut Unit<'_, '_>) -> Result {
    unit.put_platform(platform(1));
    unit.put_customer(customer(1, 1));
    begin(unit, deposit(1, 1, 1, 10, "USD"))?;
    let posting =
        movements::deposit(Rail::Ach, customer_account(1, "USD"), money(10, "USD")).unwrap();
    unit.post(transaction_id(1), &posting, at(1))?;
    unit.set_timer(timer(uuid(1), TimerKind::AskRail, at(1), at(0)));
    Ok(())
}

/// How many things of [`leave_everything`] are there.
async fn left<P: Provider>(opened: &Opened<P>) -> usize {
    opened
        .read(|view| {
            let account = AccountKey::Internal(customer_account(1, "USD"));
            let found = [
                view.get::<Platform>(&platform_id(1))?.is_some(),
                view.get::<Customer>(&customer_id(1))?.is_some(),
                view.get::<Transaction>(&transaction_id(1))?.is_some(),
                view.ledger_account(&account)?.is_some(),
                !view.postings(transaction_id(1))?.is_empty(),
                !events_of(view, uuid(1))?.is_empty(),
                view.next_due()?.is_some(),
            ];
            Ok(found.into_iter().filter(|found| *found).count())
        })
        .await
}

pub async fn a_unit_sees_those_before_it_in_its_batch<P: Provider>() {
    let opened = open::<P>();
    let held = hold(&opened).await;
    let first = opened.store.write(leave_everything);
    let second = opened.store.write(|unit| {
        let seen = unit.get::<Customer>(&customer_id(1))?.unwrap();
        unit.put_customer(Customer { is_deleted: true, ..Customer::clone(&seen) });
        let balance = unit.balance(&AccountKey::Internal(customer_account(1, "USD")))?;
        Ok::<_, Refused>((balance.credits_posted(), unit.postings(transaction_id(1))?.len()))
    });
    let third = opened
        .store
        .write(|unit| Ok::<_, Refused>(unit.get::<Customer>(&customer_id(1))?.unwrap().is_deleted));
    let letting_go = async { drop(held) };
    // They are queued in this order before the lane goes on.
    let (first, second, third, ()) = tokio::join!(biased; first, second, third, letting_go);
    first.unwrap();
    assert_eq!(second.unwrap(), (10, 1));
    assert!(third.unwrap());
    assert_eq!(left(&opened).await, 7);
}

pub async fn a_refused_unit_leaves_nothing<P: Provider>() {
    let opened = open::<P>();
    let refused = opened.refused(|unit| {
        leave_everything(unit)?;
        Err(Refused::Wanted)
    });
    assert_eq!(refused.await, Refused::Wanted);
    assert_eq!(left(&opened).await, 0);
    opened.write(leave_everything).await;
    assert_eq!(left(&opened).await, 7);
}

pub async fn a_panicking_unit_leaves_nothing_and_its_neighbours_commit<P: Provider>() {
    let opened = open::<P>();
    let held = hold(&opened).await;
    let before = opened.store.write(|unit| {
        unit.put_platform(platform(2));
        Ok::<_, Refused>(())
    });
    let panicking = opened.store.write(|unit| -> Result {
        leave_everything(unit)?;
        panic!("a bug");
    });
    let after = opened.store.write(|unit| {
        unit.put_platform(platform(3));
        Ok::<_, Refused>(())
    });
    let letting_go = async { drop(held) };
    let (before, panicking, after, ()) = tokio::join!(biased; before, panicking, after, letting_go);
    let panicked = Refused::Store(StoreError::Panicked("a bug".to_owned()));
    assert_eq!((before, panicking, after), (Ok(()), Err(panicked), Ok(())));
    assert_eq!(left(&opened).await, 0);
    let platforms = opened.read(|view| Ok(view.platforms()?.len())).await;
    assert_eq!(platforms, 2);
}

pub async fn what_the_database_refuses_fails_alone<P: Provider>() {
    let opened = open::<P>();
    opened
        .write(|unit| {
            unit.put_platform(platform(1));
            Ok(())
        })
        .await;
    // A unit that has not read cannot know that the key is taken, nor does a lane that has started
    // since.
    let opened = open_again(opened.close());
    let again = |number: u128| {
        opened.store.write(move |unit| {
            unit.put_platform(platform(number));
            begin(unit, deposit(number, number, 1, 10, "USD"))?;
            Ok::<_, Refused>(())
        })
    };
    let held = hold(&opened).await;
    let letting_go = async { drop(held) };
    let (two, one, three, ()) = tokio::join!(biased; again(2), again(1), again(3), letting_go);
    assert_eq!((two, three), (Ok(()), Ok(())));
    assert!(matches!(one, Err(Refused::Store(StoreError::Engine(_)))), "{one:?}");
    let there = opened
        .read(|view| {
            let there = (1..=3).map(|number| view.get::<Transaction>(&transaction_id(number)));
            Ok(there.map(|found| found.unwrap().is_some()).collect::<Vec<_>>())
        })
        .await;
    assert_eq!(there, [false, true, true]);
}

/// An engine on which somebody else changes every row just before it is updated.
struct Crowded(Box<dyn Engine>);

struct CrowdedConnection(Box<dyn Connection>);

impl Engine for Crowded {
    fn prepare(&self, keyring: &Keyring) -> std::result::Result<Box<dyn Connection>, StoreError> {
        Ok(Box::new(CrowdedConnection(self.0.prepare(keyring)?)))
    }

    fn reader(&self) -> std::result::Result<Box<dyn Connection>, StoreError> {
        self.0.reader()
    }

    fn readers(&self) -> usize {
        self.0.readers()
    }

    fn holds_data(&self) -> std::result::Result<bool, StoreError> {
        self.0.holds_data()
    }

    fn alone(&self) -> std::result::Result<Box<dyn Connection>, StoreError> {
        self.0.alone()
    }
}

impl Connection for CrowdedConnection {
    fn begin(&mut self) -> std::result::Result<Turn, StoreError> {
        self.0.begin()
    }

    fn begin_read(&mut self) -> std::result::Result<(), StoreError> {
        self.0.begin_read()
    }

    fn commit(&mut self) -> std::result::Result<(), StoreError> {
        self.0.commit()
    }

    fn rollback(&mut self) -> std::result::Result<(), StoreError> {
        self.0.rollback()
    }

    fn execute(
        &mut self,
        sql: &str,
        parameters: &[Value],
    ) -> std::result::Result<usize, StoreError> {
        self.0.execute(sql, parameters)
    }

    fn fetch(
        &mut self,
        shape: &'static Shape,
        keys: &[Value],
        each: &mut dyn FnMut(Vec<Value>) -> std::result::Result<(), StoreError>,
    ) -> std::result::Result<(), StoreError> {
        self.0.fetch(shape, keys, each)
    }

    fn write(&mut self, writes: Vec<Write>) -> std::result::Result<(), StoreError> {
        for write in writes.iter().filter(|write| write.change == Change::Update) {
            let table = write.shape.table;
            self.0.execute(&format!("update {table} set version = version + 1"), &[])?;
        }
        self.0.write(writes)
    }

    fn is_remote(&self) -> bool {
        self.0.is_remote()
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: &[Value],
        columns: usize,
        each: &mut dyn FnMut(Vec<Value>) -> std::result::Result<(), StoreError>,
    ) -> std::result::Result<(), StoreError> {
        self.0.query(sql, parameters, columns, each)
    }

    fn prepare(&mut self, sql: &str) -> std::result::Result<(), StoreError> {
        self.0.prepare(sql)
    }

    fn settle(&mut self) -> std::result::Result<(), StoreError> {
        self.0.settle()
    }

    fn integrity(&mut self) -> std::result::Result<Vec<String>, StoreError> {
        self.0.integrity()
    }
}

pub async fn a_row_that_changed_behind_the_back_is_a_conflict<P: Provider>() {
    let provider = P::new();
    let (store, threads) = Store::open(&Crowded(provider.engine()), keyring()).unwrap();
    let added = store.write(|unit| {
        unit.put_platform(platform(1));
        Ok::<_, StoreError>(())
    });
    added.await.unwrap();
    let changed = store.write(|unit| {
        let old = unit.get::<Platform>(&platform_id(1))?.unwrap();
        unit.put_platform(Platform { name: "New".to_owned(), ..Platform::clone(&old) });
        Ok::<_, StoreError>(())
    });
    let refused = changed.await.unwrap_err();
    assert!(matches!(refused, StoreError::Conflict(_)), "{refused}");
    let name = store.read(|view| {
        Ok::<_, StoreError>(view.get::<Platform>(&platform_id(1))?.unwrap().name.clone())
    });
    assert_eq!(name.await.unwrap(), "Platform 1");
    drop(store);
    threads.join();
}

pub async fn a_discarded_change_is_not_written<P: Provider>() {
    let opened = open::<P>();
    opened
        .write(|unit| {
            leave_everything(unit)?;
            unit.discard();
            unit.put_platform(platform(2));
            Ok(())
        })
        .await;
    assert_eq!(left(&opened).await, 0);
    assert_eq!(opened.read(|view| Ok(view.platforms()?.len())).await, 1);
}
