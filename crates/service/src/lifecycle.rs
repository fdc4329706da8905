//! Changes of state, always together: row, event and timer. Nothing else adds or moves a
//! transaction or a quote.

use domain::event::{Event as Notification, EventKind};
use domain::platform::{CounterpartyField, Platform};
use domain::quote::{self, Quote};
use domain::time::Timestamp;
use domain::transaction::{Direction, Event, Status, Transaction};
use ports::rail::PaymentRail;
use ports::rails::Leg;
use store::open_payments::is_counted;
use store::timers::{Timer, TimerKind};
use store::unit::Unit;

use crate::app::App;
use crate::error::Error;
use crate::owners;
use crate::presenter::Subject;

/// Adds a new transaction and tells the platform.
pub fn begin(app: &App, unit: &mut Unit<'_, '_>, transaction: Transaction) -> Result<(), Error> {
    let transaction = transaction.requested_by(app.request());
    let event = event_of(app, unit, &transaction)?;
    unit.count_payment(false, &transaction)?;
    unit.put(transaction);
    unit.add_event(event)?;
    Ok(())
}

/// Adds a new incoming payment and asks its platform about it, which is to say `asked` about its
/// customer.
pub fn begin_asking(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    asked: &[CounterpartyField],
) -> Result<(), Error> {
    let transaction = transaction.requested_by(app.request());
    let platform = owners::platform(unit, transaction.draft().platform)?;
    let subject = Subject::Approval(&transaction, asked);
    let event = notification(app, &platform, &transaction, subject);
    unit.count_payment(false, &transaction)?;
    unit.put(transaction);
    unit.request_approval(event)?;
    Ok(())
}

/// Moves a transaction and tells the platform.
pub fn advance(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    event: Event,
    now: Timestamp,
) -> Result<Transaction, Error> {
    // A read that finds a payment expired has not asked for that.
    let request = if event == Event::Expired { None } else { app.request() };
    let transaction = transaction.requested_by(request);
    let was_under_way = transaction.status() == Status::Processing;
    let was_counted = is_counted(&transaction);
    let moved = transaction.apply(event, now)?;
    let transaction = moved.now().clone();
    unit.count_payment(was_counted, &transaction)?;
    let event = event_of(app, unit, &transaction)?;
    unit.add_event(event)?;
    if was_under_way && matches!(transaction.status(), Status::Completed | Status::Failed) {
        notify_peer(unit, &transaction, now)?;
    }
    unit.put_moved(moved);
    Ok(transaction)
}

/// Notifies the other institution of how a payment ended for which it gave an invoice or got one,
/// if it wants to know.
fn notify_peer(
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
    now: Timestamp,
) -> Result<(), Error> {
    let draft = transaction.draft();
    if draft.uma.as_ref().is_some_and(|uma| uma.callback.is_some()) {
        let platform = owners::platform(unit, draft.platform)?;
        let subject = transaction.id().uuid();
        unit.set_timer(Timer::new(&platform, subject, TimerKind::NotifyPeer, now, now));
    }
    Ok(())
}

/// The event that tells of a transaction as it is now.
fn event_of(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
) -> Result<Notification, Error> {
    let platform = owners::platform(unit, transaction.draft().platform)?;
    Ok(notification(app, &platform, transaction, Subject::Transaction(transaction)))
}

/// The event of a transaction's last change.
fn notification(
    app: &App,
    platform: &Platform,
    transaction: &Transaction,
    subject: Subject<'_>,
) -> Notification {
    let kind = match transaction.draft().direction {
        Direction::Incoming => EventKind::IncomingPayment,
        Direction::Outgoing => EventKind::OutgoingPayment,
    };
    let change = (transaction.id().uuid(), transaction.version());
    app.env().event(platform, kind, change, transaction.updated_at(), subject)
}

/// Adds a new quote of a platform, which expires by itself.
pub fn begin_quote(
    unit: &mut Unit<'_, '_>,
    platform: &Platform,
    quote: Quote,
    now: Timestamp,
) -> Result<(), Error> {
    let due_at = quote.draft().expires_at;
    unit.set_timer(Timer::new(platform, quote.id().uuid(), TimerKind::ExpireQuote, due_at, now));
    unit.put(quote);
    Ok(())
}

/// Moves a quote. Once it is not pending, nothing is left to expire.
pub fn advance_quote(
    unit: &mut Unit<'_, '_>,
    quote: Quote,
    event: quote::Event,
    now: Timestamp,
) -> Result<Quote, Error> {
    let was_pending = quote.status() == quote::Status::Pending;
    let moved = quote.apply(event, now)?;
    let quote = moved.now().clone();
    if was_pending {
        unit.clear_timer((quote.id().uuid(), TimerKind::ExpireQuote));
    }
    unit.put_moved(moved);
    Ok(quote)
}

/// Orders a leg of a transaction as soon as this is committed and its port takes the order. The
/// transaction keeps the rail: questions about the order go to the same port, also after a restart.
pub fn ask_rail(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    leg: Leg,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let platform = owners::platform(unit, transaction.draft().platform)?;
    let port = app.env().rails(platform.mode).port(&leg);
    let due_at = now.plus_millis(port.map_or(0, PaymentRail::gives_after_millis));
    let subject = transaction.id().uuid();
    unit.set_timer(Timer::new(&platform, subject, TimerKind::AskRail, due_at, now));
    if transaction.rail() == Some(leg.rail) && !transaction.is_undecided() {
        return Ok(transaction);
    }
    let transaction = transaction.ordered_over(leg.rail);
    unit.put(transaction.clone());
    Ok(transaction)
}
