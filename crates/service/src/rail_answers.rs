//! The effect of a rail's answer on its payment (specification 2.3).

use domain::attention::Kind;
use domain::id::TransactionId;
use domain::quote::{self, Quote};
use domain::rail::RailWords;
use domain::time::Timestamp;
use domain::transaction::{Direction, Event, FailureReason, Status, StatusReason, Transaction};
use ledger::movements;
use ports::rail::{Flow, RailAnswer, RailFailure, RailReply};
use store::timers::Timer;
use store::unit::Unit;

use crate::app::App;
use crate::error::Error;
use crate::rail_orders::flow;
use crate::settlement::{self, end};
use crate::{attention, funding, incoming, lifecycle, quotes};

/// Keeps what the rail said. A transaction that has ended in the meantime stays as it is.
pub(crate) fn keep_answer(
    app: &App,
    unit: &mut Unit<'_, '_>,
    timer: &Timer,
    asked: Flow,
    reply: &RailReply,
    other_side: TransactionId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(mut transaction) = awaiting(app, unit, timer, asked, reply, now)? else {
        return Ok(());
    };
    let answer = &reply.answer;
    let is_new = transaction.status() == Status::Pending;
    let has_moved = match answer {
        RailAnswer::Settled | RailAnswer::SettledForNow { .. } => true,
        // Money that was pulled in and taken back before it was counted on has not come.
        RailAnswer::Returned => asked == Flow::PayOut,
        RailAnswer::Pending { .. }
        | RailAnswer::Overdue { .. }
        | RailAnswer::Refused
        | RailAnswer::Failed(..) => false,
    };
    let is_open = matches!(answer, RailAnswer::Pending { .. } | RailAnswer::Overdue { .. });
    if is_new && (has_moved || is_open) {
        transaction = lifecycle::advance(app, unit, transaction, Event::Started, now)?;
    }
    if transaction.is_undecided() && !is_open {
        attention::answered_late(unit, &transaction, answer, now)?;
    }
    let from_peer = transaction.is_from_peer() && asked == Flow::PullIn;
    match answer {
        RailAnswer::Pending { ask_again_at } => {
            unit.set_timer(timer.again(*ask_again_at));
            return Ok(());
        }
        RailAnswer::Overdue { ask_again_at } => {
            unit.set_timer(timer.again(*ask_again_at));
            if !transaction.is_undecided() {
                attention::notice_silence(unit, &transaction, now)?;
                unit.put(transaction.undecided());
            }
            return Ok(());
        }
        RailAnswer::Settled | RailAnswer::SettledForNow { .. } | RailAnswer::Returned
            if has_moved =>
        {
            if asked == Flow::PullIn && transaction.draft().direction == Direction::Outgoing {
                return pulled(app, unit, transaction, timer, other_side, now);
            }
            if !from_peer {
                let transaction = end(app, unit, transaction, Event::Settled, now)?;
                return watch(app, unit, transaction, timer, asked, reply, now);
            }
            // Money that goes on to a deposit account is asked about by the same timer, set anew.
            unit.clear_timer(timer.key());
            incoming::credit(app, unit, transaction, now)?;
            return Ok(());
        }
        RailAnswer::Refused
        | RailAnswer::Failed(..)
        | RailAnswer::Settled
        | RailAnswer::SettledForNow { .. }
        | RailAnswer::Returned => stop(app, unit, transaction, asked, reply, now)?,
    }
    unit.clear_timer(timer.key());
    Ok(())
}

/// Ends a payment whose rail did not move the money.
fn stop(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    asked: Flow,
    reply: &RailReply,
    now: Timestamp,
) -> Result<(), Error> {
    match undone(&transaction, asked, reply) {
        Event::Kept(reason) => incoming::refuse_deposit(app, unit, transaction, reason, now),
        event if transaction.is_from_peer() && asked == Flow::PullIn => {
            incoming::stop(app, unit, transaction, event, now).map(drop)
        }
        event => end(app, unit, transaction, event, now).map(drop),
    }
}

/// The payment with the rail's words, if the answer is about its open order. A payment that has
/// ended is watched for money that comes back.
fn awaiting(
    app: &App,
    unit: &mut Unit<'_, '_>,
    timer: &Timer,
    asked: Flow,
    reply: &RailReply,
    now: Timestamp,
) -> Result<Option<Transaction>, Error> {
    let id = TransactionId::from_uuid(timer.subject);
    let Some(transaction) = unit.get::<Transaction>(&id)? else { return Ok(None) };
    match transaction.status() {
        Status::Pending | Status::Processing => {}
        Status::Completed => {
            let transaction = keep_words(unit, &transaction, &reply.words);
            watch(app, unit, transaction, timer, asked, reply, now)?;
            return Ok(None);
        }
        Status::Created
        | Status::Rejected
        | Status::Failed
        | Status::Refunded
        | Status::Expired => {
            unit.clear_timer(timer.key());
            return Ok(None);
        }
    }
    if asked != flow(&unit.postings(id)?, &transaction) {
        // The answer is about an order that has been answered before: the payment is a step further
        // and its timer asks about that one.
        return Ok(None);
    }
    Ok(Some(keep_words(unit, &transaction, &reply.words)))
}

/// Keeps the rail's own words with the payment, also where nothing else changes.
fn keep_words(
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
    words: &RailWords,
) -> Transaction {
    let kept = transaction.clone().said_by_rail(words);
    if kept.rail_words() != transaction.rail_words() {
        unit.put(kept.clone());
    }
    kept
}

/// Keeps what the rail says about a payment that was delivered: that it may still come back, or
/// that it has.
fn watch(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    timer: &Timer,
    asked: Flow,
    reply: &RailReply,
    now: Timestamp,
) -> Result<(), Error> {
    let answer = &reply.answer;
    match answer {
        RailAnswer::SettledForNow { ask_again_at }
        | RailAnswer::Pending { ask_again_at }
        | RailAnswer::Overdue { ask_again_at }
            if asked == Flow::PayOut =>
        {
            unit.set_timer(timer.again(*ask_again_at));
            return Ok(());
        }
        RailAnswer::Returned if asked == Flow::PayOut => {
            let reason = StatusReason::RETURNED.in_words_of(&reply.words);
            if transaction.draft().deposit_account().is_some() {
                incoming::take_deposit_back(app, unit, transaction, reason, now)?;
            } else {
                settlement::take_back(app, unit, transaction, reason, now)?;
            }
        }
        RailAnswer::Settled | RailAnswer::SettledForNow { .. } => {}
        // The rail takes back what it said. Only a person can find out where the money is.
        RailAnswer::Pending { .. }
        | RailAnswer::Overdue { .. }
        | RailAnswer::Returned
        | RailAnswer::Refused
        | RailAnswer::Failed(..) => {
            let note = format!("settled before, and {} now", attention::word(answer));
            let kind = Kind::RailContradiction;
            attention::notice_payment(unit, kind, &transaction, &note, now)?;
        }
    }
    unit.clear_timer(timer.key());
    Ok(())
}

/// Goes on with a quote whose money has come from its external source: into the exchange, or, if
/// the destination cannot be paid any more, to the sender's internal account.
fn pulled(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    timer: &Timer,
    other_side: TransactionId,
    now: Timestamp,
) -> Result<(), Error> {
    let draft = transaction.draft().clone();
    let missing = || Error::Internal(format!("{} has no quote or no rail", draft.id));
    let (Some(terms), Some(sent)) = (&draft.terms, draft.sent) else { return Err(missing()) };
    let quote = unit.get::<Quote>(&terms.quote)?.ok_or_else(missing)?;
    unit.clear_timer(timer.key());
    let rail = transaction.rail().ok_or_else(missing)?;
    if funding::can_run(app, unit, &quote)? {
        unit.post(draft.id, &movements::funding(draft.platform, rail, sent.money())?, now)?;
        let source = movements::Source::Suspense;
        let quote = Quote::clone(&quote);
        quotes::exchange(app, unit, transaction, quote, source, other_side, now)?;
        return Ok(());
    }
    let reason = StatusReason::DESTINATION_UNAVAILABLE;
    let failed = Event::Failed(FailureReason::QuoteExecutionFailed, reason);
    settlement::give_back(app, unit, &quote, rail, sent.money(), failed, quote::Event::Failed, now)
}

/// The event of a payment whose rail did not move the money, or took it back at once.
fn undone(transaction: &Transaction, asked: Flow, reply: &RailReply) -> Event {
    let in_its_words = |reason: StatusReason| reason.in_words_of(&reply.words);
    let is_deposit = asked == Flow::PayOut && transaction.draft().deposit_account().is_some();
    let failed = |failure, reason| match is_deposit {
        true => Event::Kept(in_its_words(reason)),
        false => Event::Failed(failure_reason(transaction, failure), in_its_words(reason)),
    };
    let is_pulled = asked == Flow::PullIn;
    match &reply.answer {
        RailAnswer::Failed(failure, _) => {
            failed(*failure, status_reason(transaction, asked, *failure))
        }
        RailAnswer::Returned => failed(RailFailure::AccountInvalid, StatusReason::RETURNED),
        // Whom the money was to be pulled from is not the receiving side, and nothing has come that
        // could go back.
        RailAnswer::Refused
            if is_pulled && transaction.draft().direction == Direction::Outgoing =>
        {
            failed(RailFailure::AccountInvalid, StatusReason::DEBIT_REJECTED)
        }
        RailAnswer::Refused if is_pulled => {
            Event::Refused(in_its_words(StatusReason::DEBIT_REJECTED))
        }
        RailAnswer::Refused
        | RailAnswer::Settled
        | RailAnswer::SettledForNow { .. }
        | RailAnswer::Pending { .. }
        | RailAnswer::Overdue { .. } => {
            let reason = in_its_words(StatusReason::REJECTED_BY_RECEIVER);
            if is_deposit { Event::Kept(reason) } else { Event::Refused(reason) }
        }
    }
}

/// Why a payment failed whose rail has failed, as the specification lists it.
fn failure_reason(transaction: &Transaction, failure: RailFailure) -> FailureReason {
    let draft = transaction.draft();
    match (draft.uma.is_some(), draft.direction, failure) {
        // The payer did not pay our invoice.
        (true, Direction::Incoming, RailFailure::TimedOut) => FailureReason::QuoteExpired,
        (true, Direction::Incoming, _) => FailureReason::PayRequestFailed,
        (_, _, _) if draft.terms.is_some() => FailureReason::QuoteExecutionFailed,
        (_, _, _) => FailureReason::OfframpFailed,
    }
}

/// The finer reason of a payment whose rail has failed.
fn status_reason(transaction: &Transaction, asked: Flow, failure: RailFailure) -> StatusReason {
    let draft = transaction.draft();
    let is_lightning = draft.uma.is_some() && draft.deposit_account().is_none();
    match failure {
        RailFailure::TimedOut => StatusReason::TIMEOUT,
        RailFailure::NotConnected => StatusReason::RAIL_NOT_CONNECTED,
        _ if is_lightning && asked == Flow::PayOut => StatusReason::LIGHTNING_PAYMENT_FAILED,
        RailFailure::InsufficientFunds => StatusReason::INSUFFICIENT_FUNDS,
        RailFailure::AccountInvalid => StatusReason::ACCOUNT_INVALID,
    }
}
