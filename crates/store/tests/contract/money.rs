//! Asks: can money be set aside, moved and given back, once, and never more than there is?

use domain::money::AMOUNT_MAX;
use domain::rail::Rail;
use ledger::account::{AccountKey, Counters};
use ledger::apply::Refusal;
use ledger::movements;
use ledger::posting::Resolution;
use store::books::{BookError, RowPhase};
use store::unit::Unit;

use crate::support::*;
use crate::units::hold;
use crate::{Opened, Provider, open};

fn account() -> AccountKey {
    AccountKey::Internal(customer_account(1, "USD"))
}

async fn deposited<P: Provider>(minor: i64) -> Opened<P> {
    let opened = open::<P>();
    opened
        .write(move |unit| {
            unit.put(platform(1));
            begin(unit, deposit(1, 1, 1, minor, "USD"))?;
            let to = customer_account(1, "USD");
            let posting =
                movements::deposit(platform_id(1), Rail::Ach, to, money(minor, "USD")).unwrap();
            Ok(unit.post(transaction_id(1), &posting, at(1))?)
        })
        .await;
    opened
}

pub(crate) fn take(unit: &mut Unit<'_, '_>, number: u128, minor: i64) -> Result {
    begin(unit, transfer_out(number, 1, 1, minor))?;
    let source = customer_account(1, "USD");
    let posting =
        movements::transfer_out(platform_id(1), source, Rail::Ach, money(minor, "USD")).unwrap();
    Ok(unit.pend(transaction_id(number), &posting, at(2))?)
}

async fn counters<P: Provider>(opened: &Opened<P>) -> Counters {
    opened.read(|view| Ok(view.ledger_account(&account())?.unwrap().balance.counters())).await
}

pub async fn what_is_pended_is_posted_or_voided_once<P: Provider>() {
    let opened = deposited::<P>(100).await;
    for (number, resolution) in [(2, Resolution::Post), (3, Resolution::Void)] {
        opened.write(move |unit| take(unit, number, 30)).await;
        assert_eq!(counters(&opened).await.debits_pending, 30);
        opened
            .write(move |unit| Ok(unit.resolve(transaction_id(number), resolution, at(3))?))
            .await;
        for again in [Resolution::Post, Resolution::Void] {
            let id = transaction_id(number);
            let refused = opened.refused(move |unit| Ok(unit.resolve(id, again, at(4))?)).await;
            assert_eq!(refused, Refused::Book(BookError::NothingPending(id)));
        }
    }
    let expected = Counters { credits_posted: 100, debits_posted: 30, ..Counters::default() };
    assert_eq!(counters(&opened).await, expected);
    let opened = opened.reopen();
    let rows = opened.read(|view| Ok(view.postings(transaction_id(3))?)).await;
    let phases: Vec<_> = rows.iter().map(|row| (row.number, row.phase, row.at)).collect();
    assert_eq!(
        phases,
        // Nothing is booked for a payment before it was made, whatever the clock says by then.
        [(1, RowPhase::Pending, at(3)), (2, RowPhase::Resolves(1, Resolution::Void), at(3))]
    );
    assert_eq!((rows[0].entries.len(), rows[1].entries.len()), (2, 0));
}

pub async fn what_is_not_there_cannot_be_taken<P: Provider>() {
    let opened = deposited::<P>(100).await;
    let refused = opened.refused(|unit| take(unit, 2, 101)).await;
    let refusal = Refusal::InsufficientFunds { account: account(), available: 100, needed: 101 };
    assert_eq!(refused, Refused::Book(BookError::Refused(refusal)));
    let expected = Counters { credits_posted: 100, ..Counters::default() };
    assert_eq!(counters(&opened).await, expected);
    let rows = opened
        .read(|view| Ok(view.postings(transaction_id(2))?.len() + events_of(view, uuid(2))?.len()))
        .await;
    assert_eq!(rows, 0);
}

/// Totals of a rail only grow, with everything that ever moved over it.
pub async fn counters_outgrow_64_bits<P: Provider>() {
    // Each is of the largest amount; 1,025 of them are more than 64 bits say.
    const PAYMENTS: i128 = 1_100;
    let opened = deposited::<P>(AMOUNT_MAX).await;
    let rail = AccountKey::Rail {
        platform: platform_id(1),
        rail: Rail::Ach,
        currency: money(1, "USD").currency(),
    };
    let moved = async |opened: &Opened<P>, payments: i128| {
        opened
            .write(move |unit| {
                let (platform, customer) = (platform_id(1), customer_account(1, "USD"));
                let all = money(AMOUNT_MAX, "USD");
                for _ in 0..payments {
                    let out = movements::transfer_out(platform, customer, Rail::Ach, all).unwrap();
                    unit.post(transaction_id(1), &out, at(3))?;
                    let back = movements::deposit(platform, Rail::Ach, customer, all).unwrap();
                    unit.post(transaction_id(1), &back, at(3))?;
                }
                Ok(())
            })
            .await;
    };
    moved(&opened, PAYMENTS).await;
    let opened = opened.reopen();
    moved(&opened, 1).await;
    let opened = opened.reopen();
    let found = opened.read(move |view| Ok(view.ledger_account(&rail)?)).await.unwrap();
    let counted = i128::from(AMOUNT_MAX) * (PAYMENTS + 1);
    let expected = Counters {
        debits_posted: counted + i128::from(AMOUNT_MAX),
        credits_posted: counted,
        ..Counters::default()
    };
    assert_eq!(found.balance.counters(), expected);
    let engine = opened.provider.engine();
    let report = store::verify::verify(&*engine, Some(&keyring())).unwrap();
    let books = report.checks.iter().filter(|check| ["L2", "L3", "L5"].contains(&check.predicate));
    for check in books {
        assert!(check.holds(), "{check:?}");
    }
}

pub async fn many_who_drain_one_account_take_what_was_on_it<P: Provider>() {
    const THREADS: u128 = 32;
    const EACH: u128 = 8;
    const UNITS: i64 = 100;
    let opened = deposited::<P>(UNITS).await;
    let runtime = tokio::runtime::Handle::current();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (store, runtime) = (opened.store.clone(), runtime.clone());
            std::thread::spawn(move || {
                let numbers = (0..EACH).map(|index| 10 + thread * EACH + index);
                let taken = numbers.map(|number| {
                    runtime.block_on(store.write(origin(), move |unit| take(unit, number, 1)))
                });
                taken.filter(std::result::Result::is_ok).count()
            })
        })
        .collect();
    let join = move || threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>();
    let taken = tokio::task::spawn_blocking(join).await.unwrap();
    assert_eq!(taken as i64, UNITS);
    let expected = Counters {
        credits_posted: UNITS.into(),
        debits_pending: UNITS.into(),
        ..Counters::default()
    };
    assert_eq!(counters(&opened).await, expected);
    let engine = opened.provider.engine();
    let report = store::verify::verify(&*engine, Some(&keyring())).unwrap();
    let money = report.checks.iter().filter(|check| check.predicate.starts_with(['L', 'H']));
    // The payments of these postings are not there.
    for check in money.filter(|check| !["L6", "L8", "H3"].contains(&check.predicate)) {
        assert!(check.holds(), "{check:?}");
    }
}

pub async fn a_batch_of_units_has_one_balance<P: Provider>() {
    let opened = deposited::<P>(100).await;
    let held = hold(&opened).await;
    let letting_go = async { drop(held) };
    let write = |number, minor| opened.store.write(origin(), move |unit| take(unit, number, minor));
    let (first, second, third, ()) =
        tokio::join!(biased; write(2, 60), write(3, 60), write(4, 40), letting_go);
    assert_eq!((first, third), (Ok(()), Ok(())));
    let refusal = Refusal::InsufficientFunds { account: account(), available: 40, needed: 60 };
    assert_eq!(second, Err(Refused::Book(BookError::Refused(refusal))));
}
