//! Asks: does a list show what its filter names, in pages that fit together?

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use domain::customer::Customer;
use domain::id::Owner;
use domain::quote::{self, Quote};
use domain::token::Token;
use domain::transaction::{
    self, AccountRef, Destination, Direction, Source, StatusReason, Transaction,
};
use domain::uma_address::UmaAddress;
use proptest::array::uniform4;
use proptest::collection;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use store::customers::CustomerFilter;
use store::external_accounts::AccountsOf;
use store::list::{Order, Page, PageRequest};
use store::quotes::QuoteFilter;
use store::reader::View;
use store::record::Record;
use store::tokens::TokenFilter;
use store::transactions::{Named, TransactionFilter};
use store::unit::Unit;
use uuid::Uuid;

use crate::support::*;
use crate::{Opened, Provider, open};

const ALL: PageRequest = PageRequest::ALL;

/// Which rows a page shows, by key.
fn keys<R: Record>(page: &Page<R>) -> Vec<R::Key> {
    assert_eq!(page.total, Some(page.rows.len() as u64), "everything fits on one page");
    page.rows.iter().map(|row| row.key()).collect()
}

/// Compares what was listed with what should be, in any order.
fn assert_shown<K: Ord + Debug>(mut shown: Vec<K>, mut expected: Vec<K>, filter: &dyn Debug) {
    shown.sort();
    expected.sort();
    assert_eq!(shown, expected, "{filter:?}");
}

/// Two platforms: customers 1 to 9 of the first and 10 of the second.
async fn customers<P: Provider>() -> Opened<P> {
    let opened = open::<P>();
    opened
        .write(|unit| {
            for number in [1, 2] {
                unit.put(platform(number));
            }
            for number in 1..=8 {
                unit.put(customer(number, 1));
            }
            let shared = business(9, 1);
            unit.put(Customer { platform_customer_id: "user-8".to_owned(), ..shared });
            unit.put(Customer { is_deleted: true, ..customer(11, 1) });
            unit.put(customer(10, 2));
            Ok(())
        })
        .await;
    opened
}

pub async fn pages_follow_one_another_in_both_orders<P: Provider>() {
    let opened = customers::<P>().await;
    let ascending: Vec<_> = (1..=9).map(customer_id).collect();
    let descending: Vec<_> = ascending.iter().rev().copied().collect();
    for (order, expected) in [(Order::Ascending, ascending), (Order::Descending, descending)] {
        for limit in [1, 2, 4, 9, 10] {
            let (mut after, mut shown) = (None, Vec::new());
            loop {
                let request = PageRequest { limit, after, order };
                let page = opened
                    .read(move |view| {
                        let filter = CustomerFilter::default();
                        Ok(view.customers(platform_id(1), &filter, request)?)
                    })
                    .await;
                assert_eq!(page.total, Some(9));
                assert!(page.rows.len() <= limit as usize);
                shown.extend(page.rows.iter().map(|row| row.id));
                assert_eq!(page.has_more, shown.len() < expected.len());
                after = page.rows.last().map(|row| row.id.uuid());
                if !page.has_more {
                    break;
                }
            }
            assert_eq!(shown, expected, "{order:?} by {limit}");
        }
    }
    // Behind a row that is not in the list, and behind the last one.
    for (after, shown) in [(customer_id(3).uuid(), 6), (Uuid::max(), 0)] {
        let request = PageRequest { limit: 100, after: Some(after), order: Order::Ascending };
        let page = opened
            .read(move |view| {
                Ok(view.customers(platform_id(1), &CustomerFilter::default(), request)?)
            })
            .await;
        assert_eq!((page.rows.len(), page.has_more, page.total), (shown, false, Some(9)));
    }
}

pub async fn lists_show_one_platform_only<P: Provider>() {
    let opened = customers::<P>().await;
    let page = opened
        .read(|view| Ok(view.customers(platform_id(2), &CustomerFilter::default(), ALL)?))
        .await;
    assert_eq!(keys(&page), [customer_id(10)]);
    let platforms: Vec<_> =
        opened.read(|view| Ok(view.platforms()?)).await.iter().map(|row| row.id).collect();
    assert_eq!(platforms, [platform_id(2), platform_id(1)]);
}

pub async fn every_filter_of_customers<P: Provider>() {
    let opened = customers::<P>().await;
    let none = CustomerFilter::default;
    let cases: Vec<(CustomerFilter, Vec<u128>)> = vec![
        (none(), (1..=9).collect()),
        (CustomerFilter { platform_customer_id: Some("user-8".to_owned()), ..none() }, vec![8, 9]),
        (CustomerFilter { customer_type: Some("BUSINESS"), ..none() }, vec![9]),
        (CustomerFilter { uma_address: Some(uma_address(4)), ..none() }, vec![4]),
        (CustomerFilter { uma_address: Some(uma_address(10)), ..none() }, vec![]),
        // Bounds are inclusive; customer n was made at n and changed at n + 1.
        (CustomerFilter { created_after: Some(at(7)), ..none() }, vec![7, 8, 9]),
        (CustomerFilter { created_before: Some(at(2)), ..none() }, vec![1, 2]),
        (CustomerFilter { updated_after: Some(at(9)), ..none() }, vec![8, 9]),
        (CustomerFilter { updated_before: Some(at(3)), ..none() }, vec![1, 2]),
        (CustomerFilter { including_deleted: true, ..none() }, (1..=9).chain([11]).collect()),
        (
            CustomerFilter {
                platform_customer_id: Some("user-8".to_owned()),
                customer_type: Some("INDIVIDUAL"),
                created_after: Some(at(1)),
                ..none()
            },
            vec![8],
        ),
    ];
    for (filter, expected) in cases {
        let given = filter.clone();
        let page = opened.read(move |view| Ok(view.customers(platform_id(1), &given, ALL)?)).await;
        assert_shown(keys(&page), expected.into_iter().map(customer_id).collect(), &filter);
    }
}

async fn tokens<P: Provider>() -> Opened<P> {
    let opened = open::<P>();
    opened
        .write(|unit| {
            for number in [1, 2] {
                unit.put(platform(number));
            }
            for number in 1..=4 {
                unit.put(token(number, 1));
            }
            unit.put(Token { revoked: true, ..token(5, 1) });
            unit.put(token(6, 2));
            Ok(())
        })
        .await;
    opened
}

pub async fn every_filter_of_tokens<P: Provider>() {
    let opened = tokens::<P>().await;
    let none = TokenFilter::default;
    let cases: Vec<(TokenFilter, Vec<u128>)> = vec![
        (none(), vec![1, 2, 3, 4]),
        (TokenFilter { name: Some("Token 3".to_owned()), ..none() }, vec![3]),
        (TokenFilter { name: Some("Token 5".to_owned()), ..none() }, vec![]),
        (TokenFilter { created_after: Some(at(3)), ..none() }, vec![3, 4]),
        (TokenFilter { created_before: Some(at(1)), ..none() }, vec![1]),
        (TokenFilter { updated_after: Some(at(5)), ..none() }, vec![4]),
        (TokenFilter { updated_before: Some(at(2)), ..none() }, vec![1]),
    ];
    for (filter, expected) in cases {
        let given = filter.clone();
        let page = opened.read(move |view| Ok(view.tokens(platform_id(1), &given, ALL)?)).await;
        let expected = expected.into_iter().map(|number| token(number, 1).id).collect();
        assert_shown(keys(&page), expected, &filter);
    }
}

pub async fn tokens_are_found_by_their_client_id<P: Provider>() {
    let opened = tokens::<P>().await;
    for (client_id, found) in [("client-2", Some(2)), ("client-5", Some(5)), ("client-9", None)] {
        let token = opened.read(move |view| Ok(view.token_by_client_id(client_id)?)).await;
        let expected = found.map(token_id);
        assert_eq!(token.map(|token| token.id), expected, "{client_id}");
    }
}

fn token_id(number: u128) -> domain::id::TokenId {
    token(number, 1).id
}

pub async fn every_filter_of_external_accounts<P: Provider>() {
    let opened = open::<P>();
    let (one, two) = (Owner::Customer(customer_id(1)), Owner::Customer(customer_id(2)));
    let own = Owner::Platform(platform_id(1));
    opened
        .write(move |unit| {
            for number in [1, 2] {
                unit.put(platform(number));
            }
            for number in [1, 2] {
                unit.put(customer(number, 1));
            }
            unit.put(usd_account(1, 1, one));
            unit.put(eur_account(2, 1, one));
            unit.put(usd_account(3, 1, two));
            unit.put(wallet(4, 1, own));
            unit.put(usd_account(5, 2, Owner::Platform(platform_id(2))));
            Ok(())
        })
        .await;
    let usd = Some(currency("USD"));
    let cases = [
        (AccountsOf::Platform, None, vec![4]),
        (AccountsOf::Platform, usd, vec![]),
        (AccountsOf::Customers, None, vec![1, 2, 3]),
        (AccountsOf::Customers, usd, vec![1, 3]),
        (AccountsOf::Customer(customer_id(1)), None, vec![1, 2]),
        (AccountsOf::Customer(customer_id(1)), usd, vec![1]),
        (AccountsOf::Customer(customer_id(9)), None, vec![]),
    ];
    for (of, currency, expected) in cases {
        let given = of.clone();
        let page = opened
            .read(move |view| Ok(view.external_accounts(platform_id(1), &given, currency, ALL)?))
            .await;
        assert_shown(keys(&page), expected.into_iter().map(account_id).collect(), &of);
    }
}

/// Two deposits, two transfers that are under way and one that has ended.
async fn transactions<P: Provider>() -> Opened<P> {
    let opened = open::<P>();
    opened
        .write(|unit| {
            for number in [1, 2] {
                unit.put(platform(number));
            }
            for number in [1, 2] {
                unit.put(customer(number, 1));
            }
            unit.put(customer(3, 2));
            unit.put(usd_account(7, 1, Owner::Customer(customer_id(1))));
            begin(unit, deposit(1, 1, 1, 10, "USD"))?;
            begin(unit, deposit(2, 1, 2, 10, "EUR"))?;
            begin(unit, transfer_out(3, 1, 7, 10))?;
            begin(unit, transfer_out(4, 2, 7, 10))?;
            advance(
                unit,
                4,
                &[transaction::Event::Refused(StatusReason::REJECTED_BY_RECEIVER)],
                at(40),
            )?;
            begin(unit, deposit(5, 2, 3, 10, "USD"))?;
            begin(unit, uma_in(6, 2, 3, money(10, "EUR"), None))?;
            unit.put(usd_account(8, 1, Owner::Customer(customer_id(2))));
            begin(unit, transfer_out(7, 2, 8, 10))?;
            Ok(())
        })
        .await;
    opened
}

pub async fn every_filter_of_transactions<P: Provider>() {
    let opened = transactions::<P>().await;
    let none = TransactionFilter::default;
    let dollars = || Some(Named::Account(customer_account(1, "USD").uuid()));
    let bank = || Some(Named::Account(account_id(7).uuid()));
    let pending = Some(transaction::Status::Pending);
    let address = |name: &str| Some(Named::Address(UmaAddress::parse(name).unwrap()));
    let own = || Some(Named::Address(uma_address(3)));
    let cases: Vec<(TransactionFilter, Vec<u128>)> = vec![
        (none(), vec![1, 2, 3, 4, 7]),
        (TransactionFilter { owner: Some(Owner::Customer(customer_id(1))), ..none() }, vec![1, 3]),
        (
            TransactionFilter { platform_customer_id: Some("user-2".to_owned()), ..none() },
            vec![2, 4, 7],
        ),
        (TransactionFilter { source_account: dollars(), ..none() }, vec![3]),
        (TransactionFilter { destination_account: dollars(), ..none() }, vec![1]),
        (TransactionFilter { destination_account: bank(), ..none() }, vec![3, 4]),
        (TransactionFilter { either_account: dollars(), ..none() }, vec![1, 3]),
        // Another platform was paid from this address, and this one was not.
        (TransactionFilter { source_account: Some(Named::Address(peer())), ..none() }, vec![]),
        (TransactionFilter { destination_account: own(), ..none() }, vec![]),
        (TransactionFilter { either_account: address("$unpaid@b.c"), ..none() }, vec![]),
        (TransactionFilter { status: Some(transaction::Status::Rejected), ..none() }, vec![4]),
        (TransactionFilter { destination_account: bank(), status: pending, ..none() }, vec![3]),
        (TransactionFilter { source_account: dollars(), status: pending, ..none() }, vec![3]),
        (
            TransactionFilter { direction: Some(Direction::Outgoing), status: pending, ..none() },
            vec![3, 7],
        ),
        (TransactionFilter { direction: Some(Direction::Incoming), ..none() }, vec![1, 2]),
        (
            TransactionFilter {
                reference: Some(transaction::reference(transaction_id(2))),
                ..none()
            },
            vec![2],
        ),
        (TransactionFilter { created_after: Some(at(3)), ..none() }, vec![3, 4, 7]),
        (TransactionFilter { created_before: Some(at(1)), ..none() }, vec![1]),
        (
            TransactionFilter {
                either_account: dollars(),
                direction: Some(Direction::Outgoing),
                created_after: Some(at(2)),
                ..none()
            },
            vec![3],
        ),
    ];
    for (filter, expected) in cases {
        let given = filter.clone();
        let page: Page<Transaction> =
            opened.read(move |view| Ok(view.transactions(platform_id(1), &given, ALL)?)).await;
        assert_shown(keys(&page), expected.into_iter().map(transaction_id).collect(), &filter);
    }
}

/// A payment that is drawn.
#[derive(Debug, Clone, Copy)]
struct Plan {
    kind: u8,
    customer: u128,
    account: u128,
    /// The events of the payment, each as its place among all events, and how many of these.
    events: [usize; ROUNDS],
    count: usize,
}

/// Times at which something may happen to each payment.
const ROUNDS: usize = 4;

/// The platform of a customer: the third is another one's.
fn platform_of(customer: u128) -> u128 {
    if customer == 3 { 2 } else { 1 }
}

/// A payment; external accounts 7 to 9 are those of customers 1 to 3.
fn planned(number: u128, plan: &Plan) -> Transaction {
    let Plan { kind, customer, account, .. } = *plan;
    let platform = platform_of(customer);
    match kind {
        0 => deposit(number, platform, customer, 10, "USD"),
        1 => uma_in(number, platform, customer, money(10, "EUR"), None),
        2 => uma_out(number, platform, customer),
        _ => {
            // Each platform pays to accounts of its own.
            let account = if platform_of(account - 6) == platform { account } else { customer + 6 };
            let draft = transfer_out(number, customer, account, 10).draft().clone();
            Transaction::pending(transaction::Draft { platform: platform_id(platform), ..draft })
        }
    }
}

/// A payment to the address that others are paid from.
fn uma_out(number: u128, platform: u128, customer: u128) -> Transaction {
    let other_way = uma_in(number, platform, customer, money(10, "USD"), None).draft().clone();
    let uma = other_way.uma.unwrap();
    let (sender, receiver) = (uma.receiver, uma.sender);
    let destination = Destination::Uma { address: receiver.clone(), currency: currency("USD") };
    let uma = transaction::Uma { sender, receiver, rate_details: None, ..uma };
    let draft = transfer_out(number, customer, customer + 6, 10).draft().clone();
    let platform = platform_id(platform);
    Transaction::pending(transaction::Draft { platform, destination, uma: Some(uma), ..draft })
}

/// Whether a filter names a payment, as the specification says it.
fn names(filter: &TransactionFilter, transaction: &Transaction) -> bool {
    let draft = transaction.draft();
    let uuid = |account| match account {
        AccountRef::Internal(id) => Named::Account(id.uuid()),
        AccountRef::External(id) => Named::Account(id.uuid()),
    };
    let account = draft.source.as_ref().and_then(Source::account).map(uuid);
    let address = draft.uma.as_ref().map(|uma| Named::Address(uma.sender.clone()));
    let source = [account, address];
    let account = draft.destination.account().map(uuid);
    let address = draft.uma.as_ref().map(|uma| Named::Address(uma.receiver.clone()));
    let destination = [account, address];
    let is = |wanted: &Option<Named>, sides: &[&[Option<Named>; 2]]| {
        wanted.is_none() || sides.iter().any(|names| names.contains(wanted))
    };
    filter.owner.is_none_or(|owner| owner == draft.owner)
        && { filter.platform_customer_id.as_ref() }
            .is_none_or(|name| *name == draft.platform_customer_id)
        && is(&filter.source_account, &[&source])
        && is(&filter.destination_account, &[&destination])
        && is(&filter.either_account, &[&source, &destination])
        && filter.status.is_none_or(|status| status == transaction.status())
        && filter.direction.is_none_or(|direction| direction == draft.direction)
        && filter.created_after.is_none_or(|after| transaction.created_at() >= after)
        && filter.created_before.is_none_or(|before| transaction.created_at() <= before)
}

/// Filters by up to all that can be asked for at once, most of them by little, and times up to the
/// latest.
fn filters(latest: i64) -> impl Strategy<Value = TransactionFilter> {
    let customer = || option::weighted(0.2, 1..=3_u128);
    let account = || {
        let internal = (1..=3_u128).prop_map(|owner| customer_account(owner, "USD").uuid());
        let external = (7..=9_u128).prop_map(|number| account_id(number).uuid());
        let account = prop_oneof![internal, external].prop_map(Named::Account);
        let own = (1..=3_u128).prop_map(uma_address);
        let address = prop_oneof![3 => own, 1 => Just(peer())];
        option::weighted(0.3, prop_oneof![2 => account, 1 => address.prop_map(Named::Address)])
    };
    let time = || option::weighted(0.2, (1..latest).prop_map(at));
    let whose = (customer(), customer(), account(), account(), account());
    let what = (
        option::weighted(0.4, select(&transaction::Status::ALL[..])),
        option::weighted(0.3, select(vec![Direction::Incoming, Direction::Outgoing])),
        time(),
        time(),
    );
    (whose, what).prop_map(|((owner, name, source, destination, either), what)| TransactionFilter {
        owner: owner.map(|number| Owner::Customer(customer_id(number))),
        platform_customer_id: name.map(|number| format!("user-{number}")),
        source_account: source,
        destination_account: destination,
        either_account: either,
        status: what.0,
        direction: what.1,
        reference: None,
        created_after: what.2,
        created_before: what.3,
    })
}

/// Payments of the test.
const PLANNED: i64 = 60;

/// Filters of the test.
const FILTERS: usize = 200;

/// Two platforms with three customers, each of whom has an account elsewhere.
async fn open_with_customers<P: Provider>() -> Opened<P> {
    let opened = open::<P>();
    let platforms = |unit: &mut Unit<'_, '_>| {
        unit.put(platform(1));
        unit.put(platform(2));
        for number in 1..=3 {
            unit.put(customer(number, platform_of(number)));
            let owner = Owner::Customer(customer_id(number));
            unit.put(usd_account(number + 6, platform_of(number), owner));
        }
        Ok(())
    };
    opened.write(platforms).await;
    opened
}

/// Payments that are drawn.
fn plans() -> impl Strategy<Value = Plan> {
    let events = uniform4(0..transaction::Event::ALL.len());
    let plan = (0..5_u8, 1..=3_u128, 7..=9_u128, events, 0..=ROUNDS);
    plan.prop_map(|(kind, customer, account, events, count)| Plan {
        kind,
        customer,
        account,
        events,
        count,
    })
}

pub async fn lists_of_payments_are_those_of_a_model<P: Provider>() {
    let opened = open_with_customers::<P>().await;
    let mut runner = TestRunner::deterministic();
    let plans = collection::vec(plans(), PLANNED as usize);
    let plans = plans.new_tree(&mut runner).unwrap().current();
    let mut model: Vec<Transaction> =
        (1..).zip(&plans).map(|(number, plan)| planned(number, plan)).collect();
    let begun = model.clone();
    let begin_all =
        move |unit: &mut Unit<'_, '_>| begun.iter().try_for_each(|it| begin(unit, it.clone()));
    opened.write(begin_all).await;
    for round in 0..ROUNDS {
        // Events that the payment's state does not allow are left out.
        let mut steps = Vec::new();
        for (number, (transaction, plan)) in (1..).zip(model.iter_mut().zip(&plans)) {
            let event = transaction::Event::ALL[plan.events[round]].clone();
            let now = at(PLANNED + number as i64);
            if round < plan.count
                && let Ok(moved) = transaction.clone().apply(event.clone(), now)
            {
                *transaction = moved.into_now();
                steps.push((number, event, now));
            }
        }
        let step_all = move |unit: &mut Unit<'_, '_>| {
            steps.iter().try_for_each(|(number, event, now)| {
                advance(unit, *number, std::slice::from_ref(event), *now)
            })
        };
        opened.write(step_all).await;
    }
    for direction in [Direction::Incoming, Direction::Outgoing] {
        let is_of = |it: &&Transaction| it.draft().direction == direction;
        let statuses: BTreeSet<_> =
            model.iter().filter(is_of).map(|it| it.status().name()).collect();
        assert!(statuses.len() >= 4 && statuses.contains("PENDING"), "{statuses:?}");
    }
    lists_are_those_of(&opened, &mut runner, &model, PLANNED).await;
}

/// Ten days, in seconds.
const TEN_DAYS: i64 = 864_000;

/// Payments begun together.
const TOGETHER: usize = 10;

/// Payments that were begun and wait for their rail while others are begun.
const WAITING: usize = 7;

/// Payments do not come in the order in which their ids were drawn.
pub async fn payments_that_come_late_are_listed<P: Provider>() {
    let mut opened = open_with_customers::<P>().await;
    let mut runner = TestRunner::deterministic();
    let seconds = [-7, -6, -5, -4, -3, 0, 1, 2];
    let number = |place: u128, second| (place * 14_336).checked_add_signed(second).unwrap();
    let numbers = (1..=60).flat_map(|place| seconds.map(|second| number(place, second)));
    let numbers = Just(Vec::from_iter(numbers)).prop_shuffle();
    let mut numbers = numbers.new_tree(&mut runner).unwrap().current();
    numbers.truncate(3 * PLANNED as usize);
    let (mut model, mut waiting) = (Vec::new(), Vec::new());
    for numbers in numbers.chunks(TOGETHER) {
        // Nothing is remembered of those before.
        opened = opened.reopen();
        let (mut begun, mut ended) = (Vec::new(), Vec::new());
        for number in numbers {
            let plan = plans().new_tree(&mut runner).unwrap().current();
            begun.push(planned(*number, &plan));
            waiting.push((*number, plan));
        }
        model.extend(begun.iter().cloned());
        opened.write(move |unit| begun.iter().try_for_each(|it| begin(unit, it.clone()))).await;
        for (number, plan) in waiting.drain(..waiting.len().saturating_sub(WAITING)) {
            let id = transaction_id(number);
            let place = model.iter().position(|it: &Transaction| it.id() == id).unwrap();
            // Some stay as they are for ever.
            let events = plan.events.map(|event| transaction::Event::ALL[event].clone());
            let any = transaction::Event::ALL.into_iter().take_while(|_| plan.count > 0);
            for event in events.into_iter().chain(any).take(ROUNDS + 4) {
                if let Ok(moved) = model[place].clone().apply(event.clone(), at(TEN_DAYS)) {
                    model[place] = moved.into_now();
                    ended.push((number, event));
                }
            }
        }
        opened
            .write(move |unit| {
                ended.iter().try_for_each(|(number, event)| {
                    advance(unit, *number, std::slice::from_ref(event), at(TEN_DAYS))
                })
            })
            .await;
        if model.len() % PLANNED as usize == 0 {
            model.sort_by_key(Transaction::id);
            lists_are_those_of(&opened, &mut runner, &model, TEN_DAYS).await;
        }
    }
}

/// Compares the lists that some filters name with a model of all payments, in the order of their
/// ids.
async fn lists_are_those_of<P: Provider>(
    opened: &Opened<P>,
    runner: &mut TestRunner,
    model: &[Transaction],
    latest: i64,
) {
    let mut found = 0;
    for number in 0..FILTERS {
        let platform = platform_id(if number % 4 == 0 { 2 } else { 1 });
        let filter = filters(latest).new_tree(runner).unwrap().current();
        let (limit, is_ascending) = (1..16_u32, any::<bool>()).new_tree(runner).unwrap().current();
        let order = if is_ascending { Order::Ascending } else { Order::Descending };
        let is_named = |it: &&Transaction| it.draft().platform == platform && names(&filter, it);
        let mut expected: Vec<_> = model.iter().filter(is_named).map(Transaction::id).collect();
        if order == Order::Descending {
            expected.reverse();
        }
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let (given, page) = (filter.clone(), PageRequest { limit, after, order });
            let page: Page<Transaction> =
                opened.read(move |view| Ok(view.transactions(platform, &given, page)?)).await;
            assert_eq!(page.total, Some(expected.len() as u64), "{platform}, {filter:?}");
            listed.extend(page.rows.iter().map(|row| row.id()));
            after = listed.last().map(|id| id.uuid());
            if !page.has_more {
                break;
            }
        }
        assert_eq!(listed, expected, "{platform}, {filter:?}");
        found += listed.len();
    }
    assert!(found > FILTERS, "the filters name too little: {found}");
}

/// Counting has a limit, so that a page of a long list costs as much as that of a short one.
pub async fn a_long_list_has_no_total<P: Provider>() {
    const LIMIT: u128 = store::list::COUNT_MAX as u128;
    let opened = open::<P>();
    for first in (1..=LIMIT).step_by(1_000) {
        let put = move |unit: &mut Unit<'_, '_>| {
            if first == 1 {
                unit.put(platform(1));
            }
            for number in first..(first + 1_000).min(LIMIT + 1) {
                unit.put(token(number, 1));
                unit.put(customer(number, 1));
            }
            Ok(())
        };
        opened.write(put).await;
    }
    let totals = async || {
        let page = PageRequest { limit: 1, ..ALL };
        let read = move |view: &mut View<'_>| {
            let customers = view.customers(platform_id(1), &CustomerFilter::default(), page)?;
            let tokens = view.tokens(platform_id(1), &TokenFilter::default(), page)?;
            Ok((customers.total, tokens.total))
        };
        opened.read(read).await
    };
    let limit = Some(LIMIT as u64);
    assert_eq!(totals().await, (limit, limit));
    let one_more = |unit: &mut Unit<'_, '_>| {
        unit.put(token(LIMIT + 1, 1));
        unit.put(customer(LIMIT + 1, 1));
        Ok(())
    };
    opened.write(one_more).await;
    assert_eq!(totals().await, (None, Some(LIMIT as u64 + 1)), "tokens are always counted");
}

/// A name may be that of several customers, each with accounts in many currencies.
pub async fn a_list_of_many_accounts_is_counted<P: Provider>() {
    const NAMESAKES: u128 = 16;
    const CURRENCIES: [&str; 7] = ["USD", "EUR", "GBP", "MXN", "BRL", "INR", "PHP"];
    let opened = open::<P>();
    let pay = |unit: &mut Unit<'_, '_>| {
        unit.put(platform(1));
        let mut payment = 0;
        for number in 1..=NAMESAKES {
            let platform_customer_id = "user".to_owned();
            unit.put(Customer { platform_customer_id, ..customer(number, 1) });
            for currency in CURRENCIES {
                for events in
                    [&[][..], &[transaction::Event::Refused(StatusReason::REJECTED_BY_RECEIVER)]]
                {
                    payment += 1;
                    let draft = deposit(payment, 1, number, 10, currency).draft().clone();
                    let platform_customer_id = "user".to_owned();
                    let draft = transaction::Draft { platform_customer_id, ..draft };
                    begin(unit, Transaction::pending(draft))?;
                    advance(unit, payment, events, at(900))?;
                }
            }
        }
        Ok(())
    };
    opened.write(pay).await;
    let named = TransactionFilter {
        platform_customer_id: Some("user".to_owned()),
        created_after: Some(at(1)),
        created_before: Some(at(30 * 86_400)),
        ..TransactionFilter::default()
    };
    let page: Page<Transaction> =
        opened.read(move |view| Ok(view.transactions(platform_id(1), &named, ALL)?)).await;
    let expected = 2 * NAMESAKES * CURRENCIES.len() as u128;
    assert_eq!(page.total, Some(expected as u64));
    assert_shown(keys(&page), (1..=expected).map(transaction_id).collect(), &"all");
}

pub async fn every_filter_of_quotes<P: Provider>() {
    let opened = open::<P>();
    let here = AccountRef::Internal(customer_account(1, "EUR"));
    let there = AccountRef::External(account_id(7));
    opened
        .write(move |unit| {
            unit.put(platform(1));
            for number in [1, 2] {
                unit.put(customer(number, 1));
            }
            unit.put_claim(&uma_address(2), customer_id(2));
            unit.put(usd_account(7, 1, Owner::Customer(customer_id(1))));
            let dollars = from(AccountRef::Internal(customer_account(1, "USD")), "USD");
            let in_time = Source::RealtimeFunding { currency: currency("USD"), network: None };
            let waits = in_time.clone();
            let quotes = [(1, 1, dollars, here), (2, 1, in_time, there), (3, 2, waits, there)];
            for (number, customer, source, target) in quotes {
                unit.put(quote(number, customer, source, target).0);
            }
            let dollars = from(AccountRef::Internal(customer_account(1, "USD")), "USD");
            unit.put(uma_quote(4, 1, dollars, None).0);
            advance_quote(unit, 3, &[quote::Event::Expired], at(400))
        })
        .await;
    let none = QuoteFilter::default;
    let bank = Some(account_id(7).uuid());
    let peer = peer();
    let cases: Vec<(QuoteFilter, Vec<u128>)> = vec![
        (none(), vec![1, 2, 3, 4]),
        (QuoteFilter { owner: Some(Owner::Customer(customer_id(1))), ..none() }, vec![1, 2, 4]),
        (
            QuoteFilter { source_account: Some(customer_account(1, "USD").uuid()), ..none() },
            vec![1, 4],
        ),
        (QuoteFilter { destination_account: bank, ..none() }, vec![2, 3]),
        (QuoteFilter { status: Some(quote::Status::Expired), ..none() }, vec![3]),
        (QuoteFilter { created_after: Some(at(2)), ..none() }, vec![2, 3, 4]),
        (QuoteFilter { created_before: Some(at(2)), ..none() }, vec![1, 2]),
        (QuoteFilter { receiver: Some(peer.clone()), ..none() }, vec![4]),
        (QuoteFilter { receiver: Some(peer), destination_account: bank, ..none() }, vec![]),
        (QuoteFilter { sender: Some(uma_address(2)), ..none() }, vec![3]),
        (QuoteFilter { sender: Some(uma_address(9)), ..none() }, vec![]),
    ];
    for (filter, expected) in cases {
        let given = filter.clone();
        let page: Page<Quote> =
            opened.read(move |view| Ok(view.quotes(platform_id(1), &given, ALL)?)).await;
        assert_shown(keys(&page), expected.into_iter().map(quote_id).collect(), &filter);
    }
}

pub async fn events_come_in_their_order<P: Provider>() {
    let opened = transactions::<P>().await;
    let (transaction, events) = opened
        .read(|view| {
            let transaction: Option<Arc<Transaction>> = view.get(&transaction_id(4))?;
            Ok((transaction.unwrap(), events_of(view, uuid(4))?))
        })
        .await;
    assert_eq!(events.iter().map(|event| event.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(events[1], event(&transaction));
}
