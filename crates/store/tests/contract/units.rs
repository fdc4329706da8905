//! Asks: is a unit of work all or nothing, whatever ends it?

use std::collections::HashSet;
use std::sync::mpsc;

use domain::customer::Customer;
use domain::platform::Platform;
use domain::rail::Rail;
use domain::transaction::Transaction;
use ledger::account::AccountKey;
use ledger::movements;
use store::error::StoreError;
use store::timers::TimerKind;
use store::unit::Unit;

use crate::support::*;
use crate::{Opened, Provider, open, open_again, open_with_platform};

/// Holds the writer inside a unit until the returned sender is used or dropped, so that what is
/// written meanwhile becomes one batch.
pub async fn hold<P: Provider>(opened: &Opened<P>) -> mpsc::Sender<()> {
    let (inside, arrived) = tokio::sync::oneshot::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let (store, mut inside) = (opened.store.clone(), Some(inside));
    tokio::spawn(async move {
        let write = store.write(origin(), move |_| {
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
    unit.put(platform(1));
    unit.put(customer(1, 1));
    begin(unit, deposit(1, 1, 1, 10, "USD"))?;
    let posting =
        movements::deposit(platform_id(1), Rail::Ach, customer_account(1, "USD"), money(10, "USD"))
            .unwrap();
    unit.post(transaction_id(1), &posting, at(1))?;
    unit.set_timer(timer(uuid(1), TimerKind::AskRail, at(1), at(0)));
    Ok(())
}

/// How many things of [`leave_everything`] are there.
async fn left<P: Provider>(opened: &Opened<P>) -> usize {
    let due = opened.store.due_timers(at(1_000_000), 1, &HashSet::new()).await.unwrap();
    opened
        .read(move |view| {
            let account = AccountKey::Internal(customer_account(1, "USD"));
            let found = [
                view.get::<Platform>(&platform_id(1))?.is_some(),
                view.get::<Customer>(&customer_id(1))?.is_some(),
                view.get::<Transaction>(&transaction_id(1))?.is_some(),
                view.ledger_account(&account)?.is_some(),
                !view.postings(transaction_id(1))?.is_empty(),
                !events_of(view, uuid(1))?.is_empty(),
                !due.timers.is_empty(),
            ];
            Ok(found.into_iter().filter(|found| *found).count())
        })
        .await
}

pub async fn a_unit_sees_those_before_it_in_its_batch<P: Provider>() {
    let opened = open::<P>();
    let held = hold(&opened).await;
    let first = opened.store.write(origin(), leave_everything);
    let second = opened.store.write(origin(), |unit| {
        let seen = unit.get::<Customer>(&customer_id(1))?.unwrap();
        unit.put(Customer { is_deleted: true, ..Customer::clone(&seen) });
        let balance = unit.balance(&AccountKey::Internal(customer_account(1, "USD")))?;
        Ok::<_, Refused>((balance.credits_posted(), unit.postings(transaction_id(1))?.len()))
    });
    let third = opened.store.write(origin(), |unit| {
        Ok::<_, Refused>(unit.get::<Customer>(&customer_id(1))?.unwrap().is_deleted)
    });
    let letting_go = async { drop(held) };
    // They are queued in this order before the writer goes on.
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
    let before = opened.store.write(origin(), |unit| {
        unit.put(platform(2));
        Ok::<_, Refused>(())
    });
    let panicking = opened.store.write(origin(), |unit| -> Result {
        leave_everything(unit)?;
        panic!("a bug");
    });
    let after = opened.store.write(origin(), |unit| {
        unit.put(platform(3));
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

pub async fn what_cannot_be_sealed_fails_alone<P: Provider>() {
    let opened = open_with_platform::<P>().await;
    opened
        .write(|unit| {
            unit.put(customer(1, 1));
            Ok(())
        })
        .await;
    // A server that was started since has not remembered the person's data key.
    let opened = open_again(opened.close());
    opened.provider.run("update data_keys set sealed = owner");
    let add = |number: u128| {
        opened.store.write(origin(), move |unit| {
            unit.put(platform(number));
            Ok::<_, Refused>(())
        })
    };
    let change = opened.store.write(origin(), |unit| {
        let found = unit.get::<Customer>(&customer_id(1))?.unwrap();
        unit.put(Customer { updated_at: at(7), ..Customer::clone(&found) });
        Ok::<_, Refused>(())
    });
    let held = hold(&opened).await;
    let letting_go = async { drop(held) };
    let (two, one, three, ()) = tokio::join!(biased; add(2), change, add(3), letting_go);
    assert_eq!((two, three), (Ok(()), Ok(())));
    assert_eq!(one, Err(Refused::Store(StoreError::Sealed { place: "data_keys".to_owned() })));
    let platforms = opened.read(|view| Ok(view.platforms()?.len())).await;
    assert_eq!(platforms, 3);
    let customer = opened.store.get::<Customer>(customer_id(1)).await.unwrap().unwrap();
    assert_eq!(*customer, self::customer(1, 1));
}

pub async fn a_discarded_change_is_not_written<P: Provider>() {
    let opened = open::<P>();
    opened
        .write(|unit| {
            leave_everything(unit)?;
            unit.discard();
            unit.put(platform(2));
            Ok(())
        })
        .await;
    assert_eq!(left(&opened).await, 0);
    assert_eq!(opened.read(|view| Ok(view.platforms()?.len())).await, 1);
}
