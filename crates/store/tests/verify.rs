//! Asks: does `verify` find a sound database sound, and does it name each kind of damage?
//!
//! One sound database is built through the store. Each corrupter then damages a copy of it behind
//! the store's back, and `verify` must name exactly the predicates that the damage breaks. No
//! predicate is in the report without a corrupter.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod engines;
mod support;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::OnceLock;

use domain::approval;
use domain::currency::Currency;
use domain::customer::Customer;
use domain::delivery::{self, Attempt, Delivery, Draft as DeliveryDraft, Outcome, Plan};
use domain::id::{InternalAccountId, Owner};
use domain::invitation;
use domain::kyc::CheckEvent;
use domain::money::{Money, Receiving, Sending};
use domain::platform::Platform;
use domain::quote::{Event as QuoteEvent, Quote};
use domain::rail::Rail;
use domain::transaction::{AccountRef, Event, FailureReason, Source, StatusReason, Transaction};
use engines::{By, Kind, Place, damage};
use ledger::account::AccountKey;
use ledger::movements::{self, Target};
use ledger::posting::{Posting, Resolution};
use sha2::{Digest as _, Sha256};
use store::SqliteFile;
use store::Store;
use store::books;
use store::engine::Engine;
use store::error::StoreError;
use store::events::{Endpoint, Numbered, Outbox};
use store::external_accounts::{Fingerprint, fingerprint};
use store::idempotency::{Given, scope};
use store::keyring::{KEY_LENGTH, Keyring};
use store::list::PageRequest;
use store::payment_hashes::PaymentHash;
use store::record::Record as _;
use store::sql::Value;
use store::timers::{Timer, TimerKind};
use store::tokens::TokenFilter;
use store::transactions::TransactionFilter;
use store::unit::Unit;
use store::verify::{Report, replay, verify};
use support::*;
use tempfile::TempDir;
use uuid::Uuid;

// The payments of the database, by number.
const DEPOSITED: u128 = 101;
const DEPOSITED_ELSEWHERE: u128 = 102;
const OUT_PENDING: u128 = 111;
const OUT_SETTLED: u128 = 112;
const OUT_FAILED: u128 = 113;
const OUT_REJECTED: u128 = 114;
const QUOTE_DELIVERED: u128 = 121;
const QUOTE_UNDER_WAY: u128 = 122;
const QUOTE_EXPIRED: u128 = 123;
const QUOTE_MISMATCHED: u128 = 124;
const QUOTE_OPEN: u128 = 125;
const QUOTE_FUNDED_FAILED: u128 = 126;
const QUOTE_FAILED: u128 = 127;
const QUOTE_FUNDED_DELIVERED: u128 = 128;
const TRANSFERRED_IN: u128 = 131;
const UMA_OUT: u128 = 141;
const UMA_OUT_OPEN: u128 = 142;
const UMA_HERE: u128 = 143;
const UMA_HERE_IN: u128 = 153;
const UMA_WAITS: u128 = 144;
const UMA_WAITS_IN: u128 = 154;
const UMA_IN: u128 = 155;
const UMA_IN_OPEN: u128 = 156;
const UMA_DEPOSITED: u128 = 157;
const UMA_KEPT: u128 = 158;
const UMA_PAID: u128 = 145;
const UMA_DEPOSIT_OPEN: u128 = 159;
const OUT_RETURNED: u128 = 132;
const OUT_HELD: u128 = 135;
const QUOTE_RETURNED: u128 = 133;
const QUOTE_FUNDED_RETURNED: u128 = 134;

/// A customer who was refused, and one whose identity is being checked.
const REFUSED: u128 = 31;
const WAITING: u128 = 32;
/// The check of the latter, by the number of its code.
const OPEN_CHECK: u8 = 1;

/// An import that is half-way through its file, and one that is through.
const HALF_WAY: u128 = 201;
const IMPORTED: u128 = 202;

/// Invitations, by the number of their code.
const OPEN_INVITATION: u8 = 1;
const CLAIMED_INVITATION: u8 = 2;

/// The customer's bank accounts.
const DOLLARS: u128 = 11;
const EUROS: u128 = 12;
const OF_ANOTHER: u128 = 13;

/// A lookup of the customer's.
const LOOKUP: u128 = 14;

fn under_way(subject: Uuid, kind: TimerKind) -> Timer {
    timer(subject, kind, at(1_000), at(500))
}

fn parties(unit: &mut Unit<'_, '_>) {
    unit.put(PaymentHash { hash: [9; 32], payment: transaction_id(UMA_OUT) });
    for number in [1, 2] {
        unit.put(platform(number));
        unit.put(domain_claim(number));
        unit.put(token(number, number));
    }
    let owner = Owner::Customer(customer_id(1));
    let mut ada = customer(1, 1);
    ada.default_uma_deposit_account = Some(account_id(DOLLARS));
    for customer in [ada, business(2, 1), customer(3, 2)] {
        let (address, id) = (customer.uma_address.clone(), customer.id);
        unit.put_claim(&address, id);
        unit.put(customer);
    }
    let dollars = usd_account(DOLLARS, 1, owner);
    let fingerprint = fingerprint(unit.keyring(), owner, &dollars.info, dollars.currency);
    unit.put(Fingerprint { fingerprint, external_account: dollars.id });
    unit.put(dollars);
    unit.put(eur_account(EUROS, 1, owner));
    unit.put(lookup(LOOKUP, 1, 1));
    unit.put(usd_account(OF_ANOTHER, 1, Owner::Customer(customer_id(2))));
    for (key, status) in [("one", 201), ("two", 409)] {
        let scope = scope(unit.keyring(), platform_id(1), "POST", "/quotes", key);
        unit.keep_answer(scope, at(1), &Given::new(status, CANARY));
    }
}

fn deposits(unit: &mut Unit<'_, '_>) -> Result {
    for (number, platform, customer) in [(DEPOSITED, 1, 1), (DEPOSITED_ELSEWHERE, 2, 3)] {
        begin(unit, deposit(number, platform, customer, 100_000, "USD"))?;
        advance(unit, number, &[Event::Started, Event::Settled], at(200))?;
        let account = customer_account(customer, "USD");
        let platform = platform_id(platform);
        let posting =
            movements::deposit(platform, Rail::Ach, account, money(100_000, "USD")).unwrap();
        unit.post(transaction_id(number), &posting, at(200))?;
    }
    Ok(())
}

fn transfers(unit: &mut Unit<'_, '_>) -> Result {
    let failed = Event::Failed(FailureReason::OfframpFailed, StatusReason::ACCOUNT_INVALID);
    let ends: [(u128, &[Event], Option<Resolution>); 4] = [
        (OUT_PENDING, &[], None),
        (OUT_SETTLED, &[Event::Started, Event::Settled], Some(Resolution::Post)),
        (OUT_FAILED, &[Event::Started, failed], Some(Resolution::Void)),
        (
            OUT_REJECTED,
            &[Event::Refused(StatusReason::REJECTED_BY_RECEIVER)],
            Some(Resolution::Void),
        ),
    ];
    for (number, events, resolution) in ends {
        begin(unit, transfer_out(number, 1, DOLLARS, 1_000))?;
        let source = customer_account(1, "USD");
        let posting =
            movements::transfer_out(platform_id(1), source, Rail::Ach, money(1_000, "USD"))
                .unwrap();
        let id = transaction_id(number);
        unit.pend(id, &posting, id.created_at())?;
        match resolution {
            Some(resolution) => unit.resolve(transaction_id(number), resolution, at(220))?,
            None => unit.set_timer(under_way(uuid(number), TimerKind::AskRail)),
        }
        advance(unit, number, events, at(220))?;
    }
    begin(unit, transfer_out(OUT_RETURNED, 1, DOLLARS, 1_000))?;
    let source = customer_account(1, "USD");
    let posting =
        movements::transfer_out(platform_id(1), source, Rail::Ach, money(1_000, "USD")).unwrap();
    let id = transaction_id(OUT_RETURNED);
    unit.pend(id, &posting, id.created_at())?;
    unit.resolve(transaction_id(OUT_RETURNED), Resolution::Post, at(220))?;
    advance(unit, OUT_RETURNED, &[Event::Started, Event::Settled], at(220))?;
    unit.post(transaction_id(OUT_RETURNED), &movements::reverse(&posting), at(230))?;
    advance(
        unit,
        OUT_RETURNED,
        &[Event::Returned(StatusReason::RETURNED), Event::Refunded],
        at(230),
    )?;
    begin(unit, transfer_out(OUT_HELD, 1, DOLLARS, 1_000))?;
    let id = transaction_id(OUT_HELD);
    unit.pend(id, &posting, id.created_at())?;
    unit.resolve(id, Resolution::Post, at(220))?;
    advance(unit, OUT_HELD, &[Event::Started, Event::Settled], at(220))?;
    let held = movements::reverse_into_suspense(platform_id(1), &posting, source).unwrap();
    unit.post(id, &held, at(230))?;
    advance(unit, OUT_HELD, &[Event::Returned(StatusReason::RETURNED)], at(230))?;
    let mut pulled = deposit(TRANSFERRED_IN, 1, 1, 700, "USD").draft().clone();
    pulled.source = Some(from(AccountRef::External(account_id(DOLLARS)), "USD"));
    begin(unit, domain::transaction::Transaction::pending(pulled))?;
    let account = customer_account(1, "USD");
    let posting =
        movements::transfer_in(platform_id(1), Rail::Ach, account, money(700, "USD")).unwrap();
    let id = transaction_id(TRANSFERRED_IN);
    unit.pend(id, &posting, id.created_at())?;
    advance(unit, TRANSFERRED_IN, &[Event::Started], at(207))?;
    unit.resolve(transaction_id(TRANSFERRED_IN), Resolution::Post, at(208))?;
    advance(unit, TRANSFERRED_IN, &[Event::Settled], at(208))
}

/// Makes a quote from the customer's dollars, or from money that comes just in time.
fn quoted(unit: &mut Unit<'_, '_>, number: u128, in_time: bool, target: AccountRef) -> Result {
    let source = if in_time {
        Source::RealtimeFunding { currency: currency("USD"), network: None }
    } else {
        from(AccountRef::Internal(customer_account(1, "USD")), "USD")
    };
    let (quote, transaction) = quote(number, 1, source, target);
    unit.put(quote);
    begin(unit, transaction)
}

/// Executes a quote over a rail, or between accounts here.
fn executed(unit: &mut Unit<'_, '_>, number: u128, target: Target) -> Result {
    let quote = unit.get::<domain::quote::Quote>(&quote_id(number))?.unwrap();
    let draft = quote.draft();
    let source = match draft.source {
        Source::Account { .. } | Source::Uma { .. } => {
            movements::Source::Internal(customer_account(1, "USD"))
        }
        Source::RealtimeFunding { .. } => {
            let posting =
                movements::funding(platform_id(1), Rail::Ach, draft.price.sent.money()).unwrap();
            unit.post(transaction_id(number), &posting, at(230))?;
            movements::Source::Suspense
        }
    };
    let (sent, received) = (draft.price.sent, draft.price.received);
    let fees = draft.price.total_fees();
    let posting =
        movements::exchange(source, target, draft.platform, sent, fees, received).unwrap();
    match target {
        Target::Internal(_) => unit.post(transaction_id(number), &posting, at(230))?,
        Target::Rail(_) | Target::Transit => {
            unit.pend(transaction_id(number), &posting, at(230))?;
        }
    }
    advance_quote(unit, number, &[QuoteEvent::Executed], at(230))?;
    advance(unit, number, &[Event::Started], at(230))
}

fn gave_back(unit: &mut Unit<'_, '_>, number: u128, minor: i64) -> Result {
    let owner = customer_account(1, "USD");
    let posting = movements::suspense_return(platform_id(1), owner, money(minor, "USD")).unwrap();
    unit.post(transaction_id(number), &posting, at(240))?;
    advance(unit, number, &[Event::Refunded], at(240))
}

fn quotes(unit: &mut Unit<'_, '_>) -> Result {
    let euros = AccountRef::External(account_id(EUROS));
    let here = customer_account(1, "EUR");
    let rail = Target::Rail(Rail::Sepa);
    let failed = Event::Failed(FailureReason::QuoteExecutionFailed, StatusReason::TIMEOUT);

    quoted(unit, QUOTE_DELIVERED, false, AccountRef::Internal(here))?;
    executed(unit, QUOTE_DELIVERED, Target::Internal(here))?;
    advance(unit, QUOTE_DELIVERED, &[Event::Settled], at(230))?;
    advance_quote(unit, QUOTE_DELIVERED, &[QuoteEvent::Delivered], at(230))?;

    quoted(unit, QUOTE_UNDER_WAY, false, euros)?;
    executed(unit, QUOTE_UNDER_WAY, rail)?;
    unit.set_timer(under_way(uuid(QUOTE_UNDER_WAY), TimerKind::AskRail));

    quoted(unit, QUOTE_EXPIRED, false, euros)?;
    advance(unit, QUOTE_EXPIRED, &[Event::Expired], at(600))?;
    advance_quote(unit, QUOTE_EXPIRED, &[QuoteEvent::Expired], at(600))?;

    quoted(unit, QUOTE_MISMATCHED, true, euros)?;
    let posting = movements::suspense(platform_id(1), Rail::Ach, money(9_000, "USD")).unwrap();
    unit.post(transaction_id(QUOTE_MISMATCHED), &posting, at(230))?;
    let mismatch =
        Event::Failed(FailureReason::QuoteExecutionFailed, StatusReason::FUNDING_AMOUNT_MISMATCH);
    advance(unit, QUOTE_MISMATCHED, &[mismatch], at(230))?;
    advance_quote(unit, QUOTE_MISMATCHED, &[QuoteEvent::Failed], at(230))?;
    gave_back(unit, QUOTE_MISMATCHED, 9_000)?;

    quoted(unit, QUOTE_OPEN, true, AccountRef::Internal(here))?;
    unit.set_timer(under_way(quote_id(QUOTE_OPEN).uuid(), TimerKind::ExpireQuote));

    for number in [QUOTE_FUNDED_FAILED, QUOTE_FAILED] {
        quoted(unit, number, number == QUOTE_FUNDED_FAILED, euros)?;
        executed(unit, number, rail)?;
        unit.resolve(transaction_id(number), Resolution::Void, at(235))?;
        advance(unit, number, std::slice::from_ref(&failed), at(235))?;
        advance_quote(unit, number, &[QuoteEvent::Failed], at(235))?;
    }
    gave_back(unit, QUOTE_FUNDED_FAILED, 10_000)?;

    for number in [QUOTE_RETURNED, QUOTE_FUNDED_RETURNED] {
        quoted(unit, number, number == QUOTE_FUNDED_RETURNED, euros)?;
        executed(unit, number, rail)?;
        unit.resolve(transaction_id(number), Resolution::Post, at(235))?;
        advance(unit, number, &[Event::Settled], at(235))?;
        advance_quote(unit, number, &[QuoteEvent::Delivered], at(235))?;
        let settled = books::settled(&unit.postings(transaction_id(number))?).unwrap();
        unit.post(transaction_id(number), &movements::reverse(&settled), at(240))?;
        advance(unit, number, &[Event::Returned(StatusReason::RETURNED)], at(240))?;
    }
    advance(unit, QUOTE_RETURNED, &[Event::Refunded], at(240))?;
    gave_back(unit, QUOTE_FUNDED_RETURNED, 10_000)?;

    quoted(unit, QUOTE_FUNDED_DELIVERED, true, euros)?;
    executed(unit, QUOTE_FUNDED_DELIVERED, rail)?;
    unit.resolve(transaction_id(QUOTE_FUNDED_DELIVERED), Resolution::Post, at(235))?;
    advance(unit, QUOTE_FUNDED_DELIVERED, &[Event::Settled], at(235))?;
    advance_quote(unit, QUOTE_FUNDED_DELIVERED, &[QuoteEvent::Delivered], at(235))
}

/// Invitations: one open, one claimed, and one that has ended in each other way.
fn invitations(unit: &mut Unit<'_, '_>) -> Result {
    let open = invitation(OPEN_INVITATION);
    unit.set_timer(under_way(open.id().uuid(), TimerKind::ExpireInvitation));
    unit.put(open);
    unit.put(bare_invitation(3));
    let claimed = invitation::Event::Claimed(uma_address(9));
    let claimed = ended_invitation(CLAIMED_INVITATION, claimed);
    unit.add_event(event_of_claim(claimed.now()))?;
    unit.put_moved(claimed);
    for (number, event) in [(4, invitation::Event::Expired), (5, invitation::Event::Cancelled)] {
        unit.put_moved(ended_invitation(number, event));
    }
    Ok(())
}

/// Identities: one decided twice, one that waits for the person, and one check that is over.
fn identities(unit: &mut Unit<'_, '_>) -> Result {
    let refused = refused_customer(REFUSED);
    for number in [1, 2] {
        unit.add_event(event_of_kyc(&refused, number))?;
    }
    let check = identity_check(OPEN_CHECK, WAITING);
    unit.set_timer(under_way(check.id().uuid(), TimerKind::ExpireIdentityCheck));
    let waiting = Customer { identity_check: Some(check.id()), ..bare_customer(WAITING, 1) };
    unit.put(check);
    unit.put_moved(identity_check(2, REFUSED).apply(CheckEvent::Completed).unwrap());
    for customer in [refused, waiting] {
        let (address, id) = (customer.uma_address.clone(), customer.id);
        unit.put_claim(&address, id);
        unit.put(customer);
    }
    Ok(())
}

/// Makes a quote to a UMA address, which stands on its lookup.
fn looked_up(unit: &mut Unit<'_, '_>, number: u128, payee: Option<u128>) -> Result<(i64, Money)> {
    let source = from(AccountRef::Internal(customer_account(1, "USD")), "USD");
    let (quote, transaction) = uma_quote(number, 1, source, payee);
    let price = quote.draft().price;
    unit.put(lookup(number, 1, 1));
    unit.put(quote);
    begin(unit, transaction)?;
    Ok((price.own_fees().minor(), price.received.money()))
}

fn exchanged(unit: &mut Unit<'_, '_>, number: u128, target: Target, leaves: Money) -> Result {
    let source = movements::Source::Internal(customer_account(1, "USD"));
    let quote = unit.get::<domain::quote::Quote>(&quote_id(number))?.unwrap();
    let (sent, fees) = (quote.draft().price.sent, quote.draft().price.own_fees());
    let leaves = Receiving(leaves);
    let posting = movements::exchange(source, target, platform_id(1), sent, fees, leaves).unwrap();
    unit.pend(transaction_id(number), &posting, at(230))?;
    advance_quote(unit, number, &[QuoteEvent::Executed], at(230))?;
    advance(unit, number, &[Event::Started], at(230))
}

fn settled(unit: &mut Unit<'_, '_>, number: u128) -> Result {
    unit.resolve(transaction_id(number), Resolution::Post, at(235))?;
    advance(unit, number, &[Event::Settled], at(235))?;
    advance_quote(unit, number, &[QuoteEvent::Delivered], at(235))
}

/// Payments to and from UMA addresses, here and elsewhere, under way and done.
fn uma(unit: &mut Unit<'_, '_>) -> Result {
    let msat = Money::new(MSAT, Currency::MSAT).unwrap();
    unit.put(uma_peer(1, 1));
    looked_up(unit, UMA_OUT, None)?;
    exchanged(unit, UMA_OUT, Target::Rail(Rail::Lightning), msat)?;
    settled(unit, UMA_OUT)?;
    looked_up(unit, UMA_OUT_OPEN, None)?;
    unit.set_timer(under_way(quote_id(UMA_OUT_OPEN).uuid(), TimerKind::ExpireQuote));

    // To a customer of the other platform, and to one of the same.
    let (_, received) = looked_up(unit, UMA_HERE, Some(3))?;
    exchanged(unit, UMA_HERE, Target::Transit, received)?;
    begin(unit, uma_in(UMA_HERE_IN, 2, 3, received, Some(UMA_HERE)))?;
    settled(unit, UMA_HERE)?;
    let posting = movements::delivery(customer_account(3, "EUR"), received).unwrap();
    unit.post(transaction_id(UMA_HERE_IN), &posting, at(235))?;
    advance(unit, UMA_HERE_IN, &[Event::Started, Event::Settled], at(235))?;
    let (_, received) = looked_up(unit, UMA_WAITS, Some(2))?;
    exchanged(unit, UMA_WAITS, Target::Transit, received)?;
    begin(unit, uma_in(UMA_WAITS_IN, 1, 2, received, Some(UMA_WAITS)))?;
    unit.set_timer(under_way(uuid(UMA_WAITS_IN), TimerKind::DecidePayment));
    unit.put(approval(UMA_WAITS_IN, 1));
    unit.put(attention(domain::attention::Kind::LateReturn, OUT_HELD));
    let decided = approval(UMA_HERE_IN, 2).apply(approval::Event::AnsweredYes, at(235)).unwrap();
    unit.put_moved(decided);

    let (to, fees) = (customer_account(1, "EUR"), money(20, "EUR"));
    let (sent, received) = (Sending(msat), Receiving(money(500, "EUR")));
    let posting =
        movements::receipt(Rail::Lightning, to, platform_id(1), sent, fees, received).unwrap();
    begin(unit, uma_in(UMA_IN, 1, 1, received.money(), None))?;
    advance(unit, UMA_IN, &[Event::Started, Event::Settled], at(240))?;
    unit.post(transaction_id(UMA_IN), &posting, at(240))?;
    begin(unit, uma_in(UMA_IN_OPEN, 1, 1, received.money(), None))?;
    advance(unit, UMA_IN_OPEN, &[Event::Started], at(240))?;
    unit.pend(transaction_id(UMA_IN_OPEN), &posting, at(240))?;
    unit.set_timer(under_way(uuid(UMA_IN_OPEN), TimerKind::AskRail));
    Ok(())
}

/// Sets aside what such a payment deposits.
fn paid_out(unit: &mut Unit<'_, '_>, number: u128) -> Result<Posting> {
    let transaction = unit.get::<Transaction>(&transaction_id(number))?.unwrap();
    let draft = transaction.draft();
    let (received, from) = (draft.received, draft.owner);
    let from = InternalAccountId::of(from, received.currency());
    let conversion = draft.uma.as_ref().and_then(|uma| uma.conversion);
    let fees = conversion.map_or(Money::zero(received.currency()), |conversion| conversion.fees);
    let (rail, platform) = (Rail::Sepa, draft.platform);
    let posting = movements::payout(from, rail, platform, received, fees, draft.arrives()).unwrap();
    unit.pend(transaction_id(number), &posting, at(241))?;
    Ok(posting)
}

/// Payments into deposit accounts: one that is there, one that came back, and one under way from a
/// customer here.
fn deposited(unit: &mut Unit<'_, '_>) -> Result {
    let msat = Money::new(MSAT, Currency::MSAT).unwrap();
    let (to, fees) = (customer_account(1, "EUR"), money(20, "EUR"));
    let (sent, received) = (Sending(msat), Receiving(money(500, "EUR")));
    let receipt =
        movements::receipt(Rail::Lightning, to, platform_id(1), sent, fees, received).unwrap();
    let dollars = money(540, "USD");
    for (number, account, converted) in
        [(UMA_DEPOSITED, EUROS, None), (UMA_KEPT, DOLLARS, Some(dollars))]
    {
        let incoming = uma_in(number, 1, 1, received.money(), None);
        begin(unit, into_account(incoming, account, converted))?;
        advance(unit, number, &[Event::Started], at(240))?;
        unit.post(transaction_id(number), &receipt, at(240))?;
        let posting = paid_out(unit, number)?;
        unit.resolve(transaction_id(number), Resolution::Post, at(242))?;
        advance(unit, number, &[Event::Settled], at(242))?;
        if number == UMA_KEPT {
            unit.post(transaction_id(number), &movements::reverse(&posting), at(243))?;
            let transaction = unit.get::<Transaction>(&transaction_id(number))?.unwrap();
            let kept = Transaction::clone(&transaction).kept_in(to);
            let kept = kept.apply(Event::Kept(StatusReason::RETURNED), at(243)).unwrap();
            unit.add_event(event(kept.now()))?;
            unit.put_moved(kept);
        }
    }
    let (_, received) = looked_up(unit, UMA_PAID, Some(2))?;
    exchanged(unit, UMA_PAID, Target::Transit, received)?;
    let incoming = uma_in(UMA_DEPOSIT_OPEN, 1, 2, received, Some(UMA_PAID));
    begin(unit, into_account(incoming, OF_ANOTHER, Some(dollars)))?;
    settled(unit, UMA_PAID)?;
    let posting = movements::delivery(customer_account(2, "EUR"), received).unwrap();
    unit.post(transaction_id(UMA_DEPOSIT_OPEN), &posting, at(240))?;
    advance(unit, UMA_DEPOSIT_OPEN, &[Event::Started], at(240))?;
    paid_out(unit, UMA_DEPOSIT_OPEN)?;
    unit.set_timer(under_way(uuid(UMA_DEPOSIT_OPEN), TimerKind::AskRail));
    Ok(())
}

/// Imports: one half-way, and one at its end.
fn imports(unit: &mut Unit<'_, '_>) -> Result {
    use domain::bulk_import::{Counts, Event};
    let half = Event::Progressed(Counts { successful: 1, failed: 0 });
    let end = Event::Finished(Counts { successful: 0, failed: 1 });
    let (import, [first, second]) = bulk_import(HALF_WAY);
    unit.set_timer(under_way(import.id().uuid(), TimerKind::ImportCustomers));
    unit.put_moved(import.apply(half, at(800)).unwrap());
    unit.put(done_part(first));
    unit.put(second);
    let (import, parts) = bulk_import(IMPORTED);
    let import = import.apply(half, at(800)).unwrap().into_now().apply(end, at(801)).unwrap();
    unit.add_event(event_of_import(import.now()))?;
    unit.put_moved(import);
    parts.into_iter().for_each(|part| unit.put(done_part(part)));
    Ok(())
}

/// Deliveries: of the first platform's events, one was received, one given up, one has failed once,
/// and one is still to be attempted.
fn deliveries(unit: &mut Unit<'_, '_>, events: &[Numbered]) -> Result {
    let now = at(900);
    let attempt = |status| Attempt {
        at: now,
        millis: 7,
        peer: Some(std::net::Ipv4Addr::LOCALHOST.into()),
        outcome: Outcome::Answered { status, body: CANARY.as_bytes().to_vec() },
    };
    let steps = [
        Some(delivery::Event::Received(attempt(200))),
        Some(delivery::Event::GivenUp(Some(attempt(500)))),
        Some(delivery::Event::Failed(attempt(500), at(901))),
        None,
    ];
    for (step, numbered) in steps.into_iter().zip(events) {
        let draft = DeliveryDraft::new(&numbered.event, numbered.ordinal, Plan::Retried);
        let delivery = Delivery::pending(draft, now);
        match step {
            Some(step) => unit.put_moved(delivery.apply(step, now).unwrap()),
            None => unit.put(delivery),
        }
    }
    let outbox = unit.outbox(platform_id(1))?;
    unit.put(Outbox { taken: 4, endpoint: Endpoint::Gone, ..outbox });
    Ok(())
}

/// Makes a sound database with something of every kind in it.
fn build(engine: &dyn Engine) {
    let (store, threads) = Store::open(engine, keyring()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let built = store.write(origin(), |unit| {
            parties(unit);
            deposits(unit)?;
            transfers(unit)?;
            invitations(unit)?;
            identities(unit)?;
            imports(unit)?;
            quotes(unit)?;
            uma(unit)?;
            deposited(unit)?;
            tell_balances(unit)
        });
        built.await.unwrap();
        let feed = store.read(|view| view.feed(platform_id(1), 0, None, 4)).await.unwrap();
        store.write(origin(), move |unit| deliveries(unit, &feed.events)).await.unwrap();
        // The journal has more rows than one could be swapped with.
        let same = store.write(origin(), |unit| {
            let platform = unit.get::<Platform>(&platform_id(1))?.unwrap();
            unit.put(Platform::clone(&platform));
            Ok::<_, StoreError>(())
        });
        same.await.unwrap();
    });
    drop(store);
    threads.join();
}

/// A report on a copy of the sound database after `sql` was run on it.
fn damaged(kind: Kind, sql: &str, keyring: Option<&Keyring>) -> Report {
    kind.damaged(build, &with_ids(sql), By::Bug, keyring)
}

/// More than any payment may move.
const BEYOND: i64 = 9_000_000_000_000_001;

/// An entry on the left side, as it is stored.
fn debit(account: &[u8], minor: i64) -> Vec<u8> {
    [&[0], &minor.to_be_bytes()[..], &[u8::try_from(account.len()).unwrap()], account].concat()
}

/// The same on the right side.
fn credit(account: &[u8], minor: i64) -> Vec<u8> {
    [&[1], &debit(account, minor)[1..]].concat()
}

/// Puts ids in place of their names.
fn with_ids(sql: &str) -> String {
    let internal = |id: domain::id::InternalAccountId| AccountKey::Internal(id).encode();
    let ada_usd = internal(customer_account(1, "USD"));
    let elsewhere_usd = internal(customer_account(3, "USD"));
    let rail = |platform| AccountKey::Rail { platform, rail: Rail::Ach, currency: currency("USD") };
    let [rail_usd, other_rail_usd] = [1, 2].map(|number| rail(platform_id(number)).encode());
    let exchange =
        |code| AccountKey::Exchange { platform: platform_id(1), currency: currency(code) }.encode();
    let unknown = [&exchange("USD")[..17], &[0xff, 0xff]].concat();
    let names: Vec<(&str, Vec<u8>)> = [
        ("$deposited", uuid(DEPOSITED)),
        ("$out_pending", uuid(OUT_PENDING)),
        ("$twin_of_out_pending", Uuid::from_u128(uuid(OUT_PENDING).as_u128() + 1)),
        ("$out_settled", uuid(OUT_SETTLED)),
        ("$out_failed", uuid(OUT_FAILED)),
        ("$transferred_in", uuid(TRANSFERRED_IN)),
        ("$delivered", uuid(QUOTE_DELIVERED)),
        ("$under_way", uuid(QUOTE_UNDER_WAY)),
        ("$expired", uuid(QUOTE_EXPIRED)),
        ("$mismatched", uuid(QUOTE_MISMATCHED)),
        ("$funded_failed", uuid(QUOTE_FUNDED_FAILED)),
        ("$failed", uuid(QUOTE_FAILED)),
        ("$came_back", uuid(QUOTE_RETURNED)),
        ("$funded_back", uuid(QUOTE_FUNDED_RETURNED)),
        ("$open_quote", quote_id(QUOTE_OPEN).uuid()),
        ("$half_way", uuid(HALF_WAY)),
        ("$imported", uuid(IMPORTED)),
        ("$refused", customer_id(REFUSED).uuid()),
        ("$waiting", customer_id(WAITING).uuid()),
        ("$open_check", identity_check(OPEN_CHECK, WAITING).id().uuid()),
        ("$open_invitation", invitation(OPEN_INVITATION).id().uuid()),
        ("$claimed_invitation", invitation(CLAIMED_INVITATION).id().uuid()),
        ("$uma_out", uuid(UMA_OUT)),
        ("$uma_here_in", uuid(UMA_HERE_IN)),
        ("$uma_waits_in", uuid(UMA_WAITS_IN)),
        ("$uma_in_open", uuid(UMA_IN_OPEN)),
        ("$uma_deposited", uuid(UMA_DEPOSITED)),
        ("$uma_deposit_open", uuid(UMA_DEPOSIT_OPEN)),
        ("$uma_lookup", lookup_id(UMA_OUT).uuid()),
        ("$spare_lookup", lookup_id(LOOKUP).uuid()),
        ("$nothing", uuid(999_999)),
        ("$ada", customer_id(1).uuid()),
        ("$elsewhere", customer_id(3).uuid()),
        ("$first_platform", platform_id(1).uuid()),
        ("$second_platform", platform_id(2).uuid()),
        ("$account_of_another", account_id(OF_ANOTHER).uuid()),
        ("$adas_dollars", account_id(DOLLARS).uuid()),
    ]
    .into_iter()
    .map(|(name, id)| (name, id.as_bytes().to_vec()))
    .chain([
        ("$rail_usd", rail_usd.clone()),
        ("$exchange_usd", exchange("USD")),
        ("$exchange_dkk", exchange("DKK")),
        ("$ada_usd", ada_usd.clone()),
        ("$adas_usd", customer_account(1, "USD").uuid().as_bytes().to_vec()),
        ("$elsewhere_usd", elsewhere_usd.clone()),
        ("$too_much", [debit(&rail_usd, 100_000), credit(&ada_usd, 100_001)].concat()),
        ("$one_side", debit(&ada_usd, 1_000)),
        ("$beyond", [debit(&ada_usd, BEYOND), credit(&rail_usd, BEYOND)].concat()),
        ("$of_nothing", [debit(&ada_usd, 0), credit(&rail_usd, 0)].concat()),
        ("$unknown", [debit(&unknown, 1_000), credit(&rail_usd, 1_000)].concat()),
        ("$by_another", [debit(&elsewhere_usd, 1_000), credit(&rail_usd, 1_000)].concat()),
        ("$over_another", [debit(&ada_usd, 1_000), credit(&other_rail_usd, 1_000)].concat()),
    ])
    .collect();
    names
        .into_iter()
        .rev()
        .fold(sql.to_owned(), |sql, (name, bytes)| sql.replace(name, &literal(&bytes)))
}

fn literal(bytes: &[u8]) -> String {
    let mut literal = "x'".to_owned();
    for byte in bytes {
        write!(literal, "{byte:02x}").unwrap();
    }
    literal + "'"
}

/// Every event of the sound database.
fn sound_events() -> Vec<Numbered> {
    static EVENTS: OnceLock<Vec<Numbered>> = OnceLock::new();
    let read = || {
        let place = Place::new(Kind::Sqlite);
        build(&*place.engine());
        events_in(&*place.engine())
    };
    EVENTS.get_or_init(read).clone()
}

/// Every event that a database has of the two platforms.
fn events_in(engine: &dyn Engine) -> Vec<Numbered> {
    let (store, threads) = Store::open(engine, keyring()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut events = Vec::new();
    for platform in [1, 2].map(platform_id) {
        let mut after = 0;
        loop {
            // Some at a time: no snapshot stays open for long.
            let feed =
                runtime
                    .block_on(store.read(move |view| {
                        Ok::<_, Refused>(view.feed(platform, after, None, 500)?)
                    }));
            let feed = feed.unwrap();
            events.extend(feed.events);
            after = feed.until;
            if after == feed.head {
                break;
            }
        }
    }
    drop(store);
    threads.join();
    events
}

/// Statements that put these events in place of all that are there, each at its place, with the row
/// of the journal of the one that stood there.
fn rewritten(events: &[Numbered]) -> String {
    let mut sql = "create table rows_of_events as select platform, ordinal, seq from events; \
                   delete from events;"
        .to_owned();
    for Numbered { ordinal, event } in events {
        let (platform, resource) = (event.platform.uuid(), event.resource);
        let (kind, number, at) = (event.kind.name(), event.number, event.at.millis());
        let [platform, resource] = [platform, resource].map(|id| literal(id.as_bytes()));
        write!(
            sql,
            "insert into events (platform, ordinal, kind, resource, number, at, seq) \
             values ({platform}, {ordinal}, '{kind}', {resource}, {number}, {at}, \
             (select coalesce(max(seq), 1) from rows_of_events r \
             where r.platform = {platform} and r.ordinal = {ordinal}));"
        )
        .unwrap();
    }
    sql + "drop table rows_of_events;"
}

/// A report on a copy of the sound database that has other events.
fn notified_otherwise(kind: Kind, change: fn(&mut Vec<Numbered>)) -> Report {
    let mut events = sound_events();
    change(&mut events);
    kind.damaged(build, &rewritten(&events), By::Bug, Some(&keyring()))
}

/// Events of a payment, or of whatever has this number.
fn of(number: u128) -> impl Fn(&Numbered) -> bool {
    of_resource(uuid(number))
}

fn of_resource(resource: Uuid) -> impl Fn(&Numbered) -> bool {
    move |numbered| numbered.event.resource == resource
}

/// Leaves out those that `are` and have one of these numbers.
fn leave_out(events: &mut Vec<Numbered>, are: impl Fn(&Numbered) -> bool, numbers: &[u32]) {
    let before = events.len();
    events.retain(|it| !(are(it) && numbers.contains(&it.event.number)));
    assert!(events.len() < before, "nothing was left out");
}

/// Changes those that `are`.
fn change(
    events: &mut [Numbered],
    are: impl Fn(&Numbered) -> bool,
    change: impl Fn(&mut Numbered),
) {
    assert!(events.iter().any(&are), "nothing was changed");
    events.iter_mut().filter(|it| are(it)).for_each(change);
}

/// Repeats the events that `are`, far behind.
fn repeat(events: &mut Vec<Numbered>, are: impl Fn(&Numbered) -> bool) {
    let again: Vec<_> = events.iter().filter(|it| are(it)).cloned().collect();
    assert!(!again.is_empty(), "nothing was repeated");
    let later = |it: Numbered| Numbered { ordinal: it.ordinal + 1_000, ..it };
    events.extend(again.into_iter().map(later));
}

fn about_nothing(numbered: &mut Numbered) {
    numbered.event.resource = uuid(999_999);
}

fn to_another(numbered: &mut Numbered) {
    numbered.event.platform = platform_id(2);
    numbered.ordinal += 1_000;
}

fn later(numbered: &mut Numbered) {
    numbered.event.at = numbered.event.at.plus_millis(1);
}

fn adas_usd() -> impl Fn(&Numbered) -> bool {
    of_resource(customer_account(1, "USD").uuid())
}

/// A false history of events, with the predicates that it breaks. The first is the one it is for.
type Untruth = (&'static [&'static str], fn(&mut Vec<Numbered>));

const UNTRUTHS: &[Untruth] = &[
    // A change without an event, and an event about a change that did not happen.
    (&["E1", "E6"], |events| leave_out(events, of(OUT_SETTLED), &[2])),
    (&["E1", "E6"], |events| leave_out(events, of(OUT_FAILED), &[1, 2, 3, 4])),
    (&["E1", "E3", "W1"], |events| change(events, of(OUT_PENDING), about_nothing)),
    // Events that are there twice, of a payment and of a balance.
    (&["E2", "E1", "E3", "E6"], |events| repeat(events, of(OUT_PENDING))),
    (&["E2", "E7", "E3", "E6"], |events| repeat(events, adas_usd())),
    // An event at another time than its step.
    (&["E4", "E3", "W1"], |events| change(events, of(OUT_PENDING), later)),
    // An import whose end has no event.
    (&["E5", "E6"], |events| leave_out(events, of(IMPORTED), &[1])),
    // A decision about an identity that has no event.
    (&["E5", "E6"], |events| {
        leave_out(events, of_resource(customer_id(REFUSED).uuid()), &[2]);
    }),
    (&["E4", "E3"], |events| {
        let are = of_resource(customer_id(REFUSED).uuid());
        change(events, |it| are(it) && it.event.number == 1, later);
    }),
    // A claim without an event, and an event without a claim.
    (&["E5", "E6"], |events| {
        leave_out(events, of_resource(invitation(CLAIMED_INVITATION).id().uuid()), &[1]);
    }),
    (&["E5", "E3"], |events| {
        change(events, of_resource(invitation(CLAIMED_INVITATION).id().uuid()), about_nothing);
    }),
    // A balance without events, and one whose events are about another resource.
    (&["E7", "E6"], |events| leave_out(events, adas_usd(), &[1, 2, 3, 4, 5, 6, 7, 8, 9])),
    (&["E7", "E3"], |events| change(events, adas_usd(), about_nothing)),
    (&["S4", "E3", "E6"], |events| change(events, adas_usd(), to_another)),
    // Events that reach another platform's.
    (&["S4", "E3", "E6", "W1"], |events| change(events, of(OUT_PENDING), to_another)),
];

fn broken(report: &Report) -> BTreeSet<&'static str> {
    report.checks.iter().filter(|check| !check.holds()).map(|check| check.predicate).collect()
}

/// A way to damage the database: what it breaks, first what it is there for, and the statements.
struct Corrupter {
    breaks: &'static [&'static str],
    sql: &'static str,
    /// The only engine on which it works; none if it works on all.
    only: Option<Kind>,
}

const fn corrupter(breaks: &'static [&'static str], sql: &'static str) -> Corrupter {
    Corrupter { breaks, sql, only: None }
}

const fn only(kind: Kind, corrupter: Corrupter) -> Corrupter {
    Corrupter { only: Some(kind), ..corrupter }
}

fn corrupters(kind: Kind) -> impl Iterator<Item = &'static Corrupter> {
    CORRUPTERS.iter().filter(move |corrupter| corrupter.only.is_none_or(|only| only == kind))
}

const CORRUPTERS: &[Corrupter] = &[
    // The database is as a newer program left it.
    corrupter(&["M1"], "update refinery_schema_history set version = 99 where version = 1"),
    // The schema, or its history, is not as this program makes it.
    only(
        Kind::Sqlite,
        corrupter(
            &["M2"],
            "update sqlite_schema set sql = replace(sql, 'name text not null', 'name text') \
             where name = 'platforms'",
        ),
    ),
    only(
        Kind::Sqlite,
        corrupter(&["M2"], "update refinery_schema_history set checksum = '1' where version = 1"),
    ),
    // Rows of the journal that were edited, removed, swapped or cut off, or are of another one.
    corrupter(&["J1", "J2"], "update journal set at = at + 1 where seq = 2"),
    corrupter(&["J1", "J2"], "update journal set epoch = 2 where seq = 2"),
    corrupter(&["J1", "J2"], "update journal set body = x'01' where seq = 2"),
    corrupter(&["J1"], "delete from journal where seq = 2"),
    corrupter(
        &["J1", "J2"],
        "update journal set seq = 1000000 where seq = 2; update journal set seq = 2 where seq = 3; \
         update journal set seq = 3 where seq = 1000000",
    ),
    corrupter(&["J1"], "delete from journal where seq = (select max(seq) from journal)"),
    corrupter(&["J1"], "update applied set seq = 1"),
    corrupter(&["J1"], "delete from applied"),
    corrupter(
        &["J1", "J2", "E3", "I1"],
        "update meta set value = $nothing where name = 'database'",
    ),
    corrupter(&["J1", "E3", "I1"], "delete from meta where name = 'database'"),
    corrupter(&["J2", "E3", "I1"], "delete from journal_keys"),
    corrupter(&["J2", "E3", "I1"], "update journal_keys set sealed = x'00'"),
    corrupter(&["J2", "E3", "I1"], "delete from data_keys where owner = $ada"),
    corrupter(&["J2", "E3", "I1"], "update data_keys set sealed = x'00' where owner = $ada"),
    corrupter(
        &["J2", "E3", "I1"],
        "update data_keys set sealed = (select sealed from data_keys where owner = $elsewhere) \
         where owner = $ada",
    ),
    // An index does not hold its table's rows, and is known not to.
    only(
        Kind::Sqlite,
        corrupter(
            &["M2"],
            "update sqlite_schema set sql = replace(sql, '(platform, due_at)', '(platform, since)') \
             where name = 'timers_by_due'",
        ),
    ),
    only(
        Kind::Postgres,
        corrupter(
            &["M2"],
            "update pg_index set indisvalid = false \
             where indexrelid = 'timers_by_due'::regclass",
        ),
    ),
    // A reference leads nowhere.
    corrupter(&["S4"], "update tokens set platform = $nothing where name = 'Token 2'"),
    // A matter for a person is about nothing, or about another platform's payment.
    corrupter(&["S4", "T8"], "update attention set subject = $nothing"),
    corrupter(&["S4"], "update attention set platform = $elsewhere"),
    corrupter(&["S2"], "update attention set sealed = x'00'"),
    // Money in suspense that no person knows of.
    corrupter(&["T8", "S4"], "update attention set resolved_at = opened_at"),
    // A settled entry has another amount.
    corrupter(
        &["L1", "L2", "L3", "T7"],
        "update postings set entries = $too_much where transaction_id = $deposited",
    ),
    // A posting lost one of its sides.
    corrupter(
        &["L1"],
        "update postings set entries = $one_side where transaction_id = $out_failed and number = 1",
    ),
    // Balances that do not come to zero together, posted and pending.
    corrupter(
        &["L2", "L3"],
        "update ledger_accounts set debits_posted = debits_posted + 1 where account = $rail_usd",
    ),
    corrupter(
        &["L2", "H2"],
        "update ledger_accounts set debits_pending = debits_pending + 1 \
         where account = $rail_usd",
    ),
    // Balances that come to zero and are not what was posted.
    corrupter(
        &["L3"],
        "update ledger_accounts set debits_posted = debits_posted + 5, \
         credits_posted = credits_posted + 5 where account = $rail_usd",
    ),
    // A balance without entries.
    corrupter(
        &["L3"],
        "insert into ledger_accounts \
         values ($exchange_dkk, 'DKK', 0, 0, 0, 0, 0, 0, 0, 0, null, null)",
    ),
    // A balance was lost.
    corrupter(&["L3", "L2", "H2"], "delete from ledger_accounts where account = $exchange_usd"),
    // More was taken from an account than was on it.
    corrupter(
        &["L4", "L2", "L3", "E7"],
        "update ledger_accounts set debits_posted = credits_posted + 1 \
         where account = $ada_usd",
    ),
    // An account that must stay covered is said not to have to.
    corrupter(
        &["L4", "E7"],
        "update ledger_accounts set must_stay_covered = 0 where account = $ada_usd",
    ),
    // Amounts that no payment may have.
    corrupter(
        &["L5"],
        "update postings set entries = $beyond where transaction_id = $out_failed and number = 1",
    ),
    corrupter(
        &["L5"],
        "update postings set entries = $of_nothing \
         where transaction_id = $out_failed and number = 1",
    ),
    corrupter(
        &["L3", "L2", "H2"],
        "update ledger_accounts set high_parts = x'00' where account = $rail_usd",
    ),
    corrupter(
        &["L3", "L2"],
        "update ledger_accounts set high_parts = \
         x'0000000000000000000000000000000100000000000000000000000000000000' \
         where account = $rail_usd",
    ),
    corrupter(
        &["L5", "L3"],
        "update ledger_accounts set debits_posted = debits_posted - 1000000000, \
         credits_posted = credits_posted - 1000000000 where account = $rail_usd",
    ),
    // Bytes that are no entries.
    corrupter(
        &["L6", "L1"],
        "update postings set entries = x'02' where transaction_id = $out_failed and number = 1",
    ),
    // Entries on an account in an unknown currency.
    corrupter(
        &["L6", "L1"],
        "update postings set entries = $unknown where transaction_id = $out_failed and number = 1",
    ),
    // Entries on another platform's account.
    corrupter(
        &["L6"],
        "update postings set entries = $by_another where transaction_id = $out_failed and number = 1",
    ),
    // Money that leaves over the rail of another platform.
    corrupter(
        &["L6"],
        "update postings set entries = $over_another \
         where transaction_id = $out_failed and number = 1",
    ),
    // A balance in a currency that its account does not have.
    corrupter(&["L6"], "update ledger_accounts set currency = 'EUR' where account = $ada_usd"),
    // Younger than the end of its payment.
    corrupter(
        &["L8"],
        "update postings set at = at + 86400000 where transaction_id = $out_failed and number = 1",
    ),
    // Numbers with gaps.
    corrupter(
        &["L7"],
        "update postings set number = 5 where transaction_id = $out_failed and number = 2",
    ),
    // A resolution of nothing.
    corrupter(
        &["L7", "H2", "H3"],
        "update postings set resolves = 9 where transaction_id = $out_failed and number = 2",
    ),
    // An unknown movement.
    corrupter(
        &["L7", "H2", "H3"],
        "update postings set movement = 'THEFT' where transaction_id = $out_failed and number = 2",
    ),
    // Fees that were not taken.
    corrupter(
        &["L9"],
        "update quotes set fees_minor = fees_minor + 1 where transaction_id = $failed",
    ),
    // Fees that were not earned.
    corrupter(
        &["L10", "L9"],
        "update quotes set fees_minor = fees_minor + 1 where transaction_id = $delivered",
    ),
    // A posting that ends twice.
    corrupter(
        &["H1"],
        "insert into postings (transaction_id, number, movement, phase, resolves, at) \
         select transaction_id, 3, 'TRANSFER_OUT', 'RESOLVED_VOIDED', 1, at from postings \
         where transaction_id = $out_settled and number = 2",
    ),
    // Pending money that comes to zero and is not what waits.
    corrupter(
        &["H2"],
        "update ledger_accounts set debits_pending = debits_pending + 5, \
         credits_pending = credits_pending + 5 where account = $rail_usd",
    ),
    // Money is still set aside for a payment that has failed.
    corrupter(
        &["H3", "H2"],
        "delete from postings where transaction_id = $out_failed and number = 2",
    ),
    // A payment that was approved, for which no room is kept.
    corrupter(&["H2"], "delete from postings where transaction_id = $uma_in_open"),
    // A status that was not reached.
    corrupter(&["T1"], "update transactions set status = 'PROCESSING' where id = $out_pending"),
    // A payment and a quote that were made at other times than their ids were drawn.
    corrupter(
        &["T1", "E4"],
        "update transactions set created_at = created_at - 1, history = \
         unhex('01' || printf('%016x', created_at - 1) || hex(substr(history, 10))) \
         where id = $out_settled",
    ),
    corrupter(
        &["T1"],
        "update quotes set created_at = created_at - 1, history = \
         unhex('00' || printf('%016x', created_at - 1) || hex(substr(history, 10))) \
         where transaction_id = $expired",
    ),
    // A status that is none.
    corrupter(&["T1"], "update transactions set status = 'LOST' where id = $out_pending"),
    // Half a history, and none.
    corrupter(&["T1"], "update transactions set history = x'01' where id = $out_pending"),
    corrupter(&["T1"], "update quotes set history = x'' where transaction_id = $expired"),
    // A step that is no arrow: from PENDING to COMPLETED.
    corrupter(
        &["T1", "E1"],
        "update transactions set history = \
         unhex(hex(substr(history, 1, 9)) || hex(substr(history, 19, 9))) where id = $out_settled",
    ),
    // Text that is none.
    only(
        Kind::Sqlite,
        corrupter(
            &["T1"],
            "update transactions set platform_customer_id = cast(x'ff' as text) \
             where id = $out_pending",
        ),
    ),
    // A final status is followed by another.
    corrupter(
        &["T2"],
        "update quotes set history = unhex(hex(history) || \
         hex(substr(history, length(history) - 8))) where transaction_id = $expired",
    ),
    // A transaction forgot its quote.
    corrupter(&["T3"], "update transactions set quote = null where id = $expired"),
    // A quote's transaction is not there.
    corrupter(
        &["T3"],
        "update quotes set transaction_id = $nothing where transaction_id = $expired",
    ),
    // A quote was executed when its time was over.
    corrupter(
        &["T4"],
        "update quotes set expires_at = created_at where transaction_id = $delivered",
    ),
    // A failure without a reason, and for an unknown one.
    corrupter(&["T5"], "update transactions set failure_reason = null where id = $out_failed"),
    corrupter(&["T5"], "update transactions set failure_reason = 'LUNCH' where id = $out_failed"),
    // Two transactions with the same reference on a bank statement.
    corrupter(
        &["T6", "E1", "T10", "H3"],
        "create temporary table twin as select * from transactions where id = $out_pending; \
         update twin set id = $twin_of_out_pending; \
         insert into transactions select * from twin",
    ),
    // A payment that delivered less than it says.
    corrupter(
        &["T7"],
        "update transactions set receiving_minor = receiving_minor + 1 where id = $out_settled",
    ),
    // A payment that failed and kept the money.
    corrupter(
        &["T8", "L3"],
        "update postings set phase = 'RESOLVED_POSTED' \
         where transaction_id = $out_failed and number = 2",
    ),
    // A refund without a posting.
    corrupter(
        &["T8", "L3"],
        "delete from postings where transaction_id = $mismatched and number = 2",
    ),
    // A payment that was both paid out and given back.
    corrupter(
        &["T9", "T8", "L3", "L4", "L10"],
        "update postings set phase = 'RESOLVED_POSTED' \
         where transaction_id = $funded_failed and phase = 'RESOLVED_VOIDED'",
    ),
    // Payments and quotes that nothing will ever wake.
    corrupter(&["T10"], "delete from timers where subject = $out_pending"),
    corrupter(&["T10"], "delete from timers where subject = $under_way"),
    corrupter(&["T10"], "delete from timers where subject = $open_quote"),
    corrupter(&["T10"], "update timers set kind = 'NEVER' where subject = $open_quote"),
    // Returns that are booked as another movement.
    corrupter(
        &["T8", "T9", "L10"],
        "update postings set movement = 'FUNDING' where transaction_id = $funded_back \
         and movement = 'RETURN'",
    ),
    corrupter(
        &["L10"],
        "update postings set movement = 'RECEIPT' where transaction_id = $came_back \
         and movement = 'RETURN'",
    ),
    // A timer by the clock of another platform than its payment's, or of no platform.
    corrupter(
        &["S4"],
        "update timers set platform = $second_platform where subject = $out_pending",
    ),
    corrupter(&["S4"], "update timers set platform = $nothing where subject = $open_quote"),
    corrupter(
        &["S4"],
        "update timers set platform = $second_platform where subject = $open_invitation",
    ),
    // Time was moved where money is real.
    corrupter(&["P1"], "update platforms set mode = 'LIVE' where name = 'Platform 2'"),
    // Events whose bodies are not where they should be, and some at another place than they were.
    corrupter(&["E3"], "update events set seq = seq + 1"),
    corrupter(&["E3"], "update events set seq = 0"),
    corrupter(&["E3"], "update events set seq = 9999"),
    corrupter(
        &["E3", "E6"],
        "update events set ordinal = ordinal + 1000 \
         where ordinal = (select max(ordinal) from events)",
    ),
    // A decision about an identity that was not made.
    corrupter(&["E5"], "update customers set kyc_changes = 3 where id = $refused"),
    // Events that were not counted.
    corrupter(&["E6"], "update outboxes set head = head + 1 where platform = $first_platform"),
    corrupter(&["E6"], "delete from outboxes where platform = $second_platform"),
    // A domain of a platform that there is not, and a row that is not its key's.
    corrupter(
        &["S4"],
        "update uma_domains set platform = $nothing where platform = $first_platform",
    ),
    corrupter(
        &["S4"],
        "update uma_domains set domain = 'x.example' where platform = $first_platform",
    ),
    // A customer with more payments under way than it counts, with fewer, and with a count of none.
    corrupter(&["H4"], "delete from open_payments"),
    corrupter(&["H4"], "update open_payments set count = count + 1"),
    corrupter(&["H4"], "insert into open_payments (customer, count) values ($refused, 0)"),
    // A payment hash that no payment has, and one that is none.
    corrupter(
        &["B2"],
        "insert into payment_hashes (hash, payment) \
         select address_hash, $refused from uma_addresses where customer = $refused",
    ),
    corrupter(
        &["B2"],
        "insert into payment_hashes (hash, payment) select id, id from transactions",
    ),
    // An event without a delivery, and a delivery without an event.
    corrupter(&["W1"], "delete from deliveries where ordinal = 4"),
    corrupter(&["W1"], "update deliveries set number = 77 where ordinal = 2"),
    // A delivery of another event than it says, and one of an event that is not there.
    corrupter(&["W1"], "update deliveries set ordinal = 3 where ordinal = 2"),
    corrupter(&["W1"], "update deliveries set ordinal = 9999 where ordinal = 2"),
    corrupter(&["W1"], "update outboxes set taken = 5 where platform = $first_platform"),
    // A delivery that was never received.
    corrupter(
        &["W2"],
        "update deliveries set status = 'DELIVERED', due_at = null where ordinal = 4",
    ),
    // An attempt that went to this machine, of a platform whose money is real.
    corrupter(&["W3", "P1"], "update platforms set mode = 'LIVE' where name = 'Platform 1'"),
    // An answer that may not be repeated, and one that cannot be.
    corrupter(&["I1"], "update idempotency set status = 302 where status = 201"),
    corrupter(&["I1"], "update idempotency set seq = seq + 1 where status = 201"),
    corrupter(&["I1"], "update idempotency set scope = x'00' where status = 201"),
    corrupter(&["I1"], "update idempotency set at = at + 1 where status = 201"),
    // A payee without a payer, a payer without a payee, and money that stays between them.
    corrupter(&["U1"], "update transactions set outgoing = $nothing where id = $uma_here_in"),
    corrupter(
        &["U1"],
        "update transactions set receiving_minor = receiving_minor + 1 where id = $uma_waits_in",
    ),
    corrupter(&["U1", "T7", "L3"], "delete from postings where transaction_id = $uma_here_in"),
    // A deposit that was not made, one of another amount than was received, and one without money
    // set aside. Also one without a timer, and one that came back to no UMA address.
    corrupter(
        &["T7"],
        "update postings set movement = 'TRANSFER_OUT' \
         where transaction_id = $uma_deposited and movement = 'PAYOUT'",
    ),
    corrupter(
        &["T7", "U1"],
        "update transactions set receiving_minor = receiving_minor + 1 \
         where id = $uma_deposit_open",
    ),
    corrupter(
        &["H3", "H2"],
        "delete from postings where transaction_id = $uma_deposit_open and movement = 'PAYOUT'",
    ),
    corrupter(&["T10"], "delete from timers where subject = $uma_deposit_open"),
    corrupter(
        &["T1", "E1"],
        "update transactions set history = unhex(hex(history) || \
         hex(substr(history, length(history) - 8))) where id = $deposited",
    ),
    // A deposit into another customer's account.
    corrupter(
        &["S4"],
        "update transactions set destination_account = $account_of_another \
         where id = $uma_deposited",
    ),
    // An approval request without a timer.
    corrupter(&["T10", "A1"], "delete from timers where subject = $uma_waits_in"),
    // Another amount left over Lightning than the invoice asks for.
    corrupter(
        &["T7", "L9"],
        "update transactions set msat = msat + 1 where id = $uma_out; \
         update quotes set msat = msat + 1 where transaction_id = $uma_out",
    ),
    // A quote on a lookup that is not there, was over, or was another's.
    corrupter(&["B1"], "update quotes set lookup = $nothing where transaction_id = $uma_out"),
    corrupter(&["B1"], "update lookups set expires_at = 0 where id = $uma_lookup"),
    corrupter(&["B1", "S4"], "update lookups set sender = $elsewhere where id = $uma_lookup"),
    // Deposits that go to another customer's account.
    corrupter(
        &["C1"],
        "update customers set default_uma_deposit_account = $account_of_another where id = $ada",
    ),
    corrupter(
        &["C1"],
        "update customers set default_uma_deposit_account = $nothing where id = $ada",
    ),
    // Deposits that go to an account which was switched off.
    corrupter(&["C1"], "update external_accounts set status = 'INACTIVE' where id = $adas_dollars"),
    // An address that could be given out again, and one that is none.
    corrupter(&["C2"], "delete from uma_addresses where customer = $ada"),
    corrupter(&["C2"], "update customers set uma_address = 'Ada' where id = $ada"),
    // A customer that cannot be read.
    corrupter(&["C2"], "update customers set kyc_status = 'FINE' where id = $ada"),
    // An invitation that will never expire, one that cannot be read, and one that was taken back
    // after it was claimed.
    corrupter(&["C3"], "delete from timers where subject = $open_invitation"),
    corrupter(
        &["C3", "E4"],
        "update invitations set ended_at = null where id = $claimed_invitation",
    ),
    corrupter(
        &["C3", "E4", "E5"],
        "update invitations set status = 'CANCELLED', ended_at = ended_at + 1 \
         where id = $claimed_invitation",
    ),
    // An import that will never go on, one that says it is further than it is, a part without an
    // import, and rows that were kept after they were gone through.
    corrupter(&["C5"], "delete from timers where subject = $half_way"),
    corrupter(&["C5"], "update bulk_imports set parts_done = 0 where id = $half_way"),
    corrupter(&["C5"], "update bulk_parts set import = $nothing where import = $half_way"),
    corrupter(&["C5"], "update bulk_parts set done = 0 where import = $imported and number = 0"),
    // A check that will never end, one of which its customer knows nothing, and one that was
    // decided and is still open.
    corrupter(&["C4"], "delete from timers where subject = $open_check"),
    corrupter(&["C4"], "update customers set identity_check = null where id = $waiting"),
    corrupter(&["C4"], "delete from identity_checks where id = $open_check"),
    corrupter(&["C4"], "update identity_checks set status = 'LOST' where id = $open_check"),
    corrupter(
        &["C4", "E5"],
        "update customers set kyc_status = 'APPROVED', kyc_changes = 1 where id = $waiting",
    ),
    corrupter(
        &["S4", "C4"],
        "update identity_checks set customer = $elsewhere where id = $open_check",
    ),
    // An invitation of another platform's customer.
    corrupter(&["S4"], "update invitations set inviter = $elsewhere where id = $open_invitation"),
    // A payment that another address of its platform's lists as its own.
    corrupter(
        &["S2"],
        "update transactions set own_address = source_account where id = $uma_here_in",
    ),
    // Payments without an approval; approvals of no payment, of another decision, and of another
    // platform.
    corrupter(&["A1"], "delete from approvals where transaction_id = $uma_waits_in"),
    corrupter(
        &["A1"],
        "update approvals set transaction_id = $nothing where transaction_id = $uma_waits_in",
    ),
    corrupter(
        &["A1"],
        "update approvals set transaction_id = $uma_out where transaction_id = $uma_here_in",
    ),
    corrupter(
        &["A1"],
        "update approvals set status = 'CALLED_NO' where transaction_id = $uma_here_in",
    ),
    corrupter(
        &["A1"],
        "update approvals set status = 'PERHAPS' where transaction_id = $uma_here_in",
    ),
    corrupter(
        &["S4"],
        "update approvals set platform = $second_platform where transaction_id = $uma_waits_in",
    ),
    // A balance that differs from its last event.
    corrupter(
        &["E7"],
        "update ledger_accounts set notified_minor = notified_minor + 1 where account = $ada_usd",
    ),
    // Sealed values of another key.
    corrupter(
        &["S2"],
        "update approvals set sealed = zeroblob(64) where transaction_id = $uma_waits_in",
    ),
    corrupter(&["S2"], "update customers set sealed = zeroblob(64) where id = $ada"),
    corrupter(&["S2"], "update transactions set sealed = zeroblob(64) where id = $out_pending"),
    corrupter(&["S2"], "update quotes set sealed = zeroblob(64) where transaction_id = $expired"),
    corrupter(&["S2"], "update external_accounts set sealed = zeroblob(64)"),
    corrupter(&["S2"], "update lookups set sealed = zeroblob(64)"),
    // A fingerprint without an account, and an account of another platform's customer.
    corrupter(&["S4"], "update external_account_fingerprints set external_account = $nothing"),
    corrupter(
        &["S4"],
        "update external_accounts set platform = $second_platform \
         where id = $account_of_another",
    ),
    // A lookup by another platform's customer, and one that cannot be read.
    corrupter(&["S4", "B1"], "update lookups set sender = $elsewhere"),
    corrupter(&["S4"], "update lookups set id = x'00' where id = $spare_lookup"),
    // Payments and events that reach another platform's.
    corrupter(&["S4"], "update transactions set owner = $elsewhere where id = $deposited"),
];

fn a_sound_database_is_found_sound(kind: Kind) {
    let report = damaged(kind, "", Some(&keyring()));
    let found: Vec<_> = report.checks.iter().flat_map(|check| &check.breaks).collect();
    assert!(report.is_sound(), "{found:#?}");
    for check in &report.checks {
        assert_eq!(check.skipped, None, "{}", check.predicate);
        assert!(check.rows > 0, "{} looked at nothing", check.predicate);
    }
}

fn every_damage_is_named(kind: Kind) {
    let mut wrong = String::new();
    for Corrupter { breaks, sql, .. } in corrupters(kind) {
        let report = damaged(kind, sql, Some(&keyring()));
        let (expected, named) = (breaks.iter().copied().collect(), broken(&report));
        let found: Vec<_> = report.checks.iter().flat_map(|check| &check.breaks).collect();
        if named != expected {
            writeln!(wrong, "{sql}\nnamed {named:?}, not {expected:?}: {found:#?}\n").unwrap();
        }
        for text in found {
            assert!(!text.contains(CANARY) && !text.contains("user"), "personal data: {text}");
        }
    }
    for (number, (breaks, change)) in UNTRUTHS.iter().enumerate() {
        let report = notified_otherwise(kind, *change);
        let (expected, named) = (breaks.iter().copied().collect(), broken(&report));
        if named != expected {
            let found: Vec<_> = report.checks.iter().flat_map(|check| &check.breaks).collect();
            writeln!(wrong, "untruth {number}\nnamed {named:?}, not {expected:?}: {found:#?}\n")
                .unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Edits of a person who can write to the database and has no key, with the table of each.
const EDITS: [(&str, &str); 14] = [
    ("tokens", "update tokens set permissions = 7 - permissions where name = 'Token 2'"),
    ("tokens", "update tokens set platform = $second_platform where name = 'Token 1'"),
    ("platforms", "update platforms set manager_tokens = manager_tokens + 1"),
    ("customers", "update customers set kyc_status = 'APPROVED' where id = $refused"),
    (
        "ledger_accounts",
        "update ledger_accounts set credits_posted = credits_posted + 100000 \
         where account = $ada_usd",
    ),
    ("external_accounts", "update external_accounts set status = 'ACTIVE', currency = 'EUR'"),
    (
        "transactions",
        "update transactions set destination_account = $account_of_another where id = $out_pending",
    ),
    ("quotes", "update quotes set expires_at = expires_at + 1 where transaction_id = $expired"),
    ("postings", "update postings set at = at + 1 where transaction_id = $out_failed"),
    ("uma_addresses", "update uma_addresses set customer = $elsewhere"),
    (
        "external_account_fingerprints",
        "update external_account_fingerprints set external_account = $nothing",
    ),
    ("outboxes", "update outboxes set revision = revision + 1"),
    ("approvals", "update approvals set status = 'APPROVED' where transaction_id = $uma_waits_in"),
    ("open_payments", "update open_payments set count = 0"),
];

fn an_edit_by_sql_is_named(kind: Kind) {
    for (table, sql) in EDITS {
        let report = kind.damaged(build, &with_ids(sql), By::Intruder, Some(&keyring()));
        let seals = report.checks.iter().find(|check| check.predicate == "S2").unwrap();
        let is_named = |text: &String| {
            text.starts_with(&format!("{table} ")) && text.ends_with("is not as it was sealed")
        };
        assert!(!seals.holds() && seals.breaks.iter().all(is_named), "{sql}: {:?}", seals.breaks);
    }
}

fn an_edited_row_is_refused_as_damage(kind: Kind) {
    let place = Place::new(kind);
    build(&*place.engine());
    for (_, sql) in EDITS {
        place.run(&with_ids(sql));
    }
    let (store, threads) = Store::open(&*place.engine(), keyring()).unwrap();
    let refused =
        |table: &str, key: Uuid| Some(StoreError::Sealed { place: format!("{table} {key}") });
    let is_of = |error: Option<StoreError>, table: &str| match error {
        Some(StoreError::Sealed { place }) => place.starts_with(table),
        _ => false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let first = platform_id(1);
        assert_eq!(store.get::<Platform>(first).await.err(), refused("platforms", first.uuid()));
        let customer = customer_id(REFUSED);
        let read = store.get::<Customer>(customer).await;
        assert_eq!(read.err(), refused("customers", customer.uuid()));
        let payment = transaction_id(OUT_PENDING);
        let read = store.get::<Transaction>(payment).await;
        assert_eq!(read.err(), refused("transactions", payment.uuid()));
        let page = PageRequest::ALL;
        let listed =
            store.read(move |view| view.transactions(first, &TransactionFilter::default(), page));
        assert!(is_of(listed.await.err(), "transactions "));
        let other = platform_id(2);
        let tokens = store.read(move |view| view.tokens(other, &TokenFilter::default(), page));
        assert!(is_of(tokens.await.err(), "tokens "));
        let account = AccountKey::Internal(customer_account(1, "USD"));
        let pays = store.write(origin(), move |unit| unit.balance(&account).map(drop));
        assert!(is_of(pays.await.err(), "ledger_accounts "));
        let postings = store.read(move |view| view.postings(transaction_id(OUT_FAILED)));
        assert!(is_of(postings.await.err(), "postings "));
        // Others are as they were.
        let other = store.get::<Customer>(customer_id(1)).await;
        assert!(matches!(other, Ok(Some(_))), "{other:?}");
    });
    drop(store);
    threads.join();
}

/// Rows of a release before seals: the migration leaves them so, and says that the tables follow no
/// row of the journal.
fn rows_of_an_earlier_release_are_sealed_by_a_start(kind: Kind) {
    let place = Place::new(kind);
    build(&*place.engine());
    let no_hash = "00".repeat(32);
    place.run(&format!(
        "update platforms set sealed = null; \
         update postings set sealed = null; \
         update customers set sealed = x'00'; \
         update applied set seq = 0, hash = x'{no_hash}'"
    ));
    let is_sound = || verify(&*place.engine(), Some(&keyring())).unwrap().is_sound();
    assert!(!is_sound());
    let (store, threads) = Store::open(&*place.engine(), keyring()).unwrap();
    drop(store);
    threads.join();
    assert!(is_sound());
    let folder = TempDir::new().unwrap();
    let scratch = SqliteFile::new(&folder.path().join("scratch.db"));
    assert_eq!(replay(&*place.engine(), &keyring(), &scratch).unwrap().breaks, [] as [&str; 0]);
}

/// No column of a row can be changed, and no row be put in another place.
fn each_column_of_a_row_is_sealed(kind: Kind) {
    let place = Place::new(kind);
    build(&*place.engine());
    let mut connection = place.engine().auditor().unwrap();
    connection.begin_read().unwrap();
    let mut tables = BTreeSet::new();
    for (shape, rows) in engines::sealed_rows(&mut *connection, |_| true) {
        for row in rows {
            tables.insert(shape.table);
            shape.opened(row.clone(), &keyring()).unwrap();
            for column in 0..row.len() {
                let mut changed = row.clone();
                changed[column] = match &row[column] {
                    Value::Null => Value::Int(0),
                    Value::Int(number) => Value::Int(number ^ 1),
                    Value::Text(text) => format!("{text} ").into(),
                    Value::Bytes(bytes) => [&bytes[..], &[0]].concat().into(),
                };
                let opened = shape.opened(changed, &keyring());
                let name = shape.columns[column];
                let is_refused = matches!(opened, Err(StoreError::Sealed { .. }));
                assert!(is_refused, "{}.{name}", shape.table);
            }
        }
    }
    let known = store::catalogue::tables().iter().filter(|it| it.is_sealed()).map(|it| it.table);
    let missing: Vec<_> = known.filter(|table| !tables.contains(table)).collect();
    assert!(missing.is_empty(), "no row of {missing:?} was tried");
}

/// The rate's basis is sealed, so that no statement damages it alone.
fn a_quote_whose_rate_does_not_follow_from_its_basis_is_named(kind: Kind) {
    let place = Place::new(Kind::Sqlite);
    build(&*place.engine());
    let (store, threads) = Store::open(&*place.engine(), keyring()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let quote = runtime.block_on(store.get::<Quote>(quote_id(QUOTE_EXPIRED))).unwrap().unwrap();
    drop(store);
    threads.join();
    let mut draft = quote.draft().clone();
    draft.basis.mid += draft.basis.mid;
    let quote = Quote::restore(draft, quote.history().to_vec()).unwrap();
    let values = Quote::shape().rows(quote.values(), &keyring()).swap_remove(0);
    let (Value::Bytes(id), Value::Bytes(sealed)) = (&values[0], &values[values.len() - 1]) else {
        panic!("a quote begins with its id and ends with what is sealed");
    };
    let sql = format!("update quotes set sealed = {} where id = {}", literal(sealed), literal(id));
    assert_eq!(broken(&damaged(kind, &sql, Some(&keyring()))), BTreeSet::from(["L9"]));
}

/// The body stands in the journal, so that no statement damages it.
fn an_event_that_a_receiver_cannot_recognise_is_named(kind: Kind) {
    let place = Place::new(kind);
    build(&*place.engine());
    let (store, threads) = Store::open(&*place.engine(), keyring()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let forged = store.write(origin(), |unit| {
        let body = br#"{"id":"Webhook:forged"}"#.to_vec();
        let mut event = sound_events().into_iter().find(of(OUT_PENDING)).unwrap();
        event.event.body = body;
        unit.change_event(&event);
        Ok::<_, StoreError>(())
    });
    runtime.block_on(forged).unwrap();
    drop(store);
    threads.join();
    let report = verify(&*place.engine(), Some(&keyring())).unwrap();
    assert_eq!(broken(&report), BTreeSet::from(["E2"]));
}

fn events_may_be_written_anew(kind: Kind) {
    let report = notified_otherwise(kind, |_| {});
    let found: Vec<_> = report.checks.iter().flat_map(|check| &check.breaks).collect();
    assert!(report.is_sound(), "{found:#?}");
}

fn no_predicate_is_without_a_corrupter(kind: Kind) {
    let caught = corrupters(kind).map(|corrupter| corrupter.breaks[0]);
    let caught: BTreeSet<_> = caught.chain(UNTRUTHS.iter().map(|(breaks, _)| breaks[0])).collect();
    let reported: BTreeSet<_> =
        damaged(kind, "", None).checks.iter().map(|check| check.predicate).collect();
    assert_eq!(caught, reported);
    for document in [include_str!("../../../README.md"), include_str!("../../../CHANGELOG.md")] {
        let said = format!("{} predicates", reported.len());
        assert!(document.contains(&said), "a document does not say {said}");
    }
}

fn without_a_key_what_is_sealed_is_skipped(kind: Kind) {
    let sql = "update customers set sealed = zeroblob(64); \
               update events set seq = 0; \
               update idempotency set seq = 0; \
               update quotes set sealed = zeroblob(64)";
    let report = damaged(kind, sql, None);
    assert!(report.is_sound());
    let skipped = report.checks.iter().filter(|check| check.skipped.is_some());
    let skipped: BTreeSet<_> = skipped.map(|check| check.predicate).collect();
    assert_eq!(skipped, BTreeSet::from(["E2", "E3", "I1", "J2", "S2", "W2", "W3"]));
    assert_eq!(broken(&damaged(kind, sql, Some(&keyring()))), BTreeSet::from(["E3", "I1", "S2"]));
}

fn the_journal_makes_the_same_tables(kind: Kind) {
    let place = Place::new(kind);
    build(&*place.engine());
    let check = || {
        let folder = TempDir::new().unwrap();
        let scratch = SqliteFile::new(&folder.path().join("scratch.db"));
        let check = replay(&*place.engine(), &keyring(), &scratch).unwrap();
        assert!(check.rows > 200, "{check:?}");
        check.breaks
    };
    assert_eq!(check(), [] as [&str; 0]);
    let damage = [
        ("update platforms set name = 'Other' where id = $second_platform", "platforms"),
        ("delete from timers where subject = $under_way", "timers"),
        (
            "insert into timers (subject, kind, platform, due_at, since, attempts) \
             values ($nothing, 'ASK_RAIL', $second_platform, 1, 1, 0)",
            "timers",
        ),
        ("update tokens set permissions = 1", "tokens"),
    ];
    let mut known = BTreeSet::new();
    for (sql, table) in damage {
        place.run(&with_ids(sql));
        let named: BTreeSet<_> = check().into_iter().collect();
        assert!(named.is_superset(&known) && named.len() > known.len(), "{sql}: {named:?}");
        assert!(named.difference(&known).all(|it| it.starts_with(table)), "{sql}: {named:?}");
        known = named;
    }
    let says = |end: &str| known.iter().any(|it| it.ends_with(end));
    assert!(says("is not what the journal says"), "{known:?}");
    assert!(says("is in the journal and not there"), "{known:?}");
    assert!(says("is there and not in the journal"), "{known:?}");
}

/// The values of a row, in bytes as a row of the journal is hashed.
fn hashed(values: &[Value]) -> Vec<u8> {
    let bytes = |value: &Value| match value {
        Value::Int(number) => number.to_be_bytes().to_vec(),
        Value::Bytes(bytes) => bytes.clone(),
        other => panic!("no part of a row: {other:?}"),
    };
    values.iter().flat_map(bytes).collect()
}

/// An intruder who can write to the database and has no key changes the epoch or the time of the
/// last row, and makes its hash right again.
fn the_epoch_and_time_of_a_row_are_authenticated(kind: Kind) {
    for change in ["at = at + 86400000", "epoch = epoch + 1"] {
        let place = Place::new(kind);
        build(&*place.engine());
        place.run(&format!(
            "update journal set {change} where seq = (select max(seq) from journal)"
        ));
        let engine = place.engine();
        let mut reader = engine.reader().unwrap();
        reader.begin_read().unwrap();
        let sql = "select (select value from meta where name = 'database'), seq, epoch, at, \
            previous, body from journal order by seq desc limit 1";
        let mut row = Vec::new();
        let read = reader.query(sql, &[], 6, &mut |values| {
            row = values;
            Ok(())
        });
        read.unwrap();
        drop(reader);
        let hash = Sha256::digest([&b"switchyard journal row 1"[..], &hashed(&row)].concat());
        let hash = literal(&hash);
        place.run(&format!(
            "update journal set hash = {hash} where seq = (select max(seq) from journal); \
             update applied set hash = {hash}"
        ));
        let report = verify(&*place.engine(), Some(&keyring())).unwrap();
        let check = report.checks.iter().find(|check| check.predicate == "J2").unwrap();
        assert_eq!(check.breaks.len(), 1, "{change}: {report:?}");
        let folder = TempDir::new().unwrap();
        let scratch = SqliteFile::new(&folder.path().join("scratch.db"));
        let refused = replay(&*place.engine(), &keyring(), &scratch).unwrap_err().to_string();
        assert!(refused.contains("frame 0 of the body does not open"), "{change}: {refused}");
    }
}

fn a_wrong_key_is_an_error_and_not_a_thousand_breaks(kind: Kind) {
    let place = Place::new(kind);
    build(&*place.engine());
    let wrong = Keyring::new(&[8; KEY_LENGTH]);
    let error = verify(&*place.engine(), Some(&wrong)).unwrap_err();
    assert!(error.to_string().contains("the key is not the one"), "{error}");
}

fn under_another_schema_only_the_schema_is_judged(kind: Kind) {
    let report =
        damaged(kind, "update refinery_schema_history set version = 99 where version = 1", None);
    assert_eq!(broken(&report), BTreeSet::from(["M1"]));
    assert!(report.checks.iter().skip(1).all(|check| check.skipped.is_some()));
}

#[test]
fn what_the_engine_cannot_read_is_named_and_does_not_stop_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged.db");
    build(&SqliteFile::new(&path));
    let number = |connection: &rusqlite::Connection, sql: &str| {
        connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() as usize
    };
    let connection = open_files(&path).unwrap();
    let page = number(&connection, "select rootpage from sqlite_schema where name = 'events'");
    let size = number(&connection, "pragma page_size");
    drop(connection);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[(page - 1) * size..page * size].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    damage(&path, &with_ids("update customers set uma_address = 'Ada' where id = $ada"));
    let report = verify(&SqliteFile::new(&path), Some(&keyring())).unwrap();
    assert!(broken(&report).is_superset(&BTreeSet::from(["M2", "S2"])), "{:?}", broken(&report));
}

fn many_breaks_are_counted_and_few_are_named(kind: Kind) {
    let mut sql = String::new();
    let columns = "(platform, ordinal, kind, resource, number, at, seq)";
    for number in 0..150 {
        let values = format!("$ada, {number} + 1, 'NONE', $ada, 1, 0, 1");
        write!(sql, "insert into events {columns} values ({values});").unwrap();
    }
    let report = damaged(kind, &sql, None);
    let events = report.checks.iter().find(|check| check.predicate == "E1").unwrap();
    assert_eq!((events.breaks.len(), events.more), (100, 50));
}

/// Payments are read some at a time, so the seams between the parts are looked at.
fn a_long_history_is_read_in_parts(kind: Kind) {
    // Twice what is read at once.
    const PAYMENTS: u128 = 2_000;
    let place = Place::new(kind);
    let engine = place.engine();
    let (store, threads) = Store::open(&*engine, keyring()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let built = store.write(origin(), |unit| {
            parties(unit);
            Ok::<_, Refused>(())
        });
        built.await.unwrap();
        for number in (1..=PAYMENTS).step_by(100) {
            let built = store.write(origin(), move |unit| {
                (number..number + 100).try_for_each(|number| deposit_more(unit, number))
            });
            built.await.unwrap();
        }
    });
    drop(store);
    threads.join();
    let report = verify(&*engine, Some(&keyring())).unwrap();
    assert!(report.is_sound(), "{:?}", broken(&report));
    let steps = report.checks.iter().find(|check| check.predicate == "T1").unwrap();
    assert_eq!(u128::from(steps.rows), PAYMENTS);
    let mut events = events_in(&*engine);
    for number in [1, 1_000, 1_001, PAYMENTS] {
        leave_out(&mut events, of(number), &[3]);
    }
    // A command has room for some of them.
    for statements in rewritten(&events).split_inclusive(';').collect::<Vec<_>>().chunks(50) {
        place.run(&statements.concat());
    }
    let report = verify(&*engine, Some(&keyring())).unwrap();
    let events = report.checks.iter().find(|check| check.predicate == "E1").unwrap();
    assert_eq!((broken(&report), events.breaks.len()), (BTreeSet::from(["E1", "E6"]), 4));
}

fn it_reads_beside_a_store_that_is_in_use(kind: Kind) {
    let place = Place::new(kind);
    let engine = place.engine();
    build(&*engine);
    let (store, threads) = Store::open(&*engine, keyring()).unwrap();
    let (inside, arrived) = std::sync::mpsc::channel();
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let writing = store.clone();
    let task = runtime.spawn(async move {
        let mut first = Some((inside, wait));
        let write = writing.write(origin(), move |unit| {
            // It is run again when what it needs was fetched.
            if let Some((inside, wait)) = first.take() {
                inside.send(()).unwrap();
                wait.recv().unwrap();
            }
            deposit_more(unit, 500)
        });
        write.await
    });
    arrived.recv().unwrap();
    assert!(verify(&*engine, Some(&keyring())).unwrap().is_sound());
    go_on.send(()).unwrap();
    runtime.block_on(task).unwrap().unwrap();
    assert!(verify(&*engine, Some(&keyring())).unwrap().is_sound());
    drop((store, runtime));
    threads.join();
}

fn deposit_more(unit: &mut Unit<'_, '_>, number: u128) -> Result {
    begin(unit, deposit(number, 1, 1, 5, "USD"))?;
    let posting =
        movements::deposit(platform_id(1), Rail::Ach, customer_account(1, "USD"), money(5, "USD"))
            .unwrap();
    let later = at(number as i64 + 600);
    unit.post(transaction_id(number), &posting, later)?;
    advance(unit, number, &[Event::Started, Event::Settled], later)?;
    tell_balances(unit)
}

macro_rules! on_every_engine {
    ($($test:ident)+) => {
        mod sqlite {
            $(
                #[test]
                fn $test() {
                    super::$test(super::Kind::Sqlite);
                }
            )+
        }

        mod postgres {
            $(
                #[test]
                fn $test() {
                    super::$test(super::Kind::Postgres);
                }
            )+
        }
    };
}

on_every_engine! {
    a_sound_database_is_found_sound
    an_edit_by_sql_is_named
    an_edited_row_is_refused_as_damage
    rows_of_an_earlier_release_are_sealed_by_a_start
    each_column_of_a_row_is_sealed
    every_damage_is_named
    a_quote_whose_rate_does_not_follow_from_its_basis_is_named
    an_event_that_a_receiver_cannot_recognise_is_named
    events_may_be_written_anew
    no_predicate_is_without_a_corrupter
    without_a_key_what_is_sealed_is_skipped
    the_journal_makes_the_same_tables
    the_epoch_and_time_of_a_row_are_authenticated
    a_wrong_key_is_an_error_and_not_a_thousand_breaks
    under_another_schema_only_the_schema_is_judged
    many_breaks_are_counted_and_few_are_named
    a_long_history_is_read_in_parts
    it_reads_beside_a_store_that_is_in_use
}

/// Everything that a database says: its schema and the rows of each table, each with the name of
/// what it is in, as far as they can be read.
fn contents(path: &std::path::Path) -> rusqlite::Result<BTreeSet<(String, String)>> {
    let connection = open_files(path)?;
    let mut all = BTreeSet::new();
    let mut add = |table: &str, sql: &str| -> rusqlite::Result<()> {
        let mut statement = connection.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let values = (0..columns).map(|column| row.get::<_, rusqlite::types::Value>(column));
            let values = values.collect::<rusqlite::Result<Vec<_>>>()?;
            all.insert((table.to_owned(), format!("{values:?}")));
        }
        Ok(())
    };
    for file in ["main", "journal"] {
        // The engine reads all of them as texts, whatever type they are stored as.
        let texts = ["type", "name", "tbl_name", "sql"].map(|it| format!("cast({it} as text)"));
        add("a schema", &format!("select {} from {file}.sqlite_schema", texts.join(", ")))?;
        let names =
            format!("select name from {file}.sqlite_schema where cast(type as text) = 'table'");
        let mut tables = connection.prepare(&names)?;
        let tables = tables.query_map([], |row| row.get::<_, String>(0))?;
        for table in tables.collect::<rusqlite::Result<Vec<_>>>()? {
            add(&table, &format!("select * from {file}.{table}"))?;
        }
    }
    Ok(all)
}

/// Bits that are flipped, each alone.
const FLIPS: usize = 250;

/// The tables of which `verify` believes what nothing else in the database says again: when a
/// migration ran.
const BELIEVED: [&str; 2] = ["refinery_schema_history", "journal_schema_history"];

/// Whether a database is sound, and its tables are what its journal says.
fn is_proven(path: &std::path::Path) -> bool {
    let (engine, keyring) = (SqliteFile::new(path), keyring());
    let is_sound = verify(&engine, Some(&keyring)).is_ok_and(|report| report.is_sound());
    let scratch = TempDir::new().unwrap();
    let scratch = SqliteFile::new(&scratch.path().join("scratch.db"));
    is_sound && replay(&engine, &keyring, &scratch).is_ok_and(|check| check.holds())
}

#[test]
fn every_flipped_bit_that_says_something_else_is_found() {
    let folder = TempDir::new().unwrap();
    let sound = folder.path().join("sound.db");
    build(&SqliteFile::new(&sound));
    let connection = open_files(&sound).unwrap();
    connection.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(())).unwrap();
    drop(connection);
    let files = ["flipped.db", "flipped.db.journal"].map(|name| folder.path().join(name));
    let bytes = [&sound, &journal_of(&sound)].map(|file| std::fs::read(file).unwrap());
    let before = contents(&sound).unwrap();
    let mut random = fastrand::Rng::with_seed(20_251_013);
    let (mut said, mut missed) = (0, Vec::new());
    for _ in 0..FLIPS {
        let (place, bit) = (random.usize(..bytes.concat().len()), random.u8(..8));
        let [mut tables, mut journal] = bytes.clone();
        match place.checked_sub(tables.len()) {
            None => tables[place] ^= 1 << bit,
            Some(place) => journal[place] ^= 1 << bit,
        }
        for (file, bytes) in files.iter().zip([tables, journal]) {
            for beside in ["-wal", "-shm", "-journal"] {
                let name = format!("{}{beside}", file.display());
                let _ = std::fs::remove_file(name);
            }
            std::fs::write(file, bytes).unwrap();
        }
        let [path, _] = &files;
        let after = contents(path);
        if after.as_ref().is_ok_and(|after| *after == before) {
            continue;
        }
        said += 1;
        if is_proven(path) {
            let after = after.unwrap_or_default();
            let gone = before.difference(&after).next().cloned().unwrap_or_default();
            if !BELIEVED.contains(&&*gone.0) {
                let new = after.difference(&before).next().cloned();
                missed.push(format!("bit {bit} of byte {place}: {gone:?}\n  is {new:?}"));
            }
        }
    }
    assert!(said > FLIPS / 10, "only {said} of {FLIPS} bits said anything");
    assert!(missed.is_empty(), "{} of {said} were missed:\n{}", missed.len(), missed.join("\n"));
}
