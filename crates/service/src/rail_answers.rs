//! What a rail's answer means for a payment that it did not make (specification 2.3).

use domain::transaction::{Direction, Event, FailureReason, StatusReason, Transaction};
use ports::rail::{Flow, RailAnswer, RailFailure};

/// The event of a payment whose rail did not move the money, or took it back at once.
pub(crate) fn undone(transaction: &Transaction, asked: Flow, answer: &RailAnswer) -> Event {
    let is_deposit = asked == Flow::PayOut && transaction.draft().deposit_account().is_some();
    let failed = |failure, reason| match is_deposit {
        true => Event::Kept(reason),
        false => Event::Failed(failure_reason(transaction, failure), reason),
    };
    let is_pulled = asked == Flow::PullIn;
    match answer {
        RailAnswer::Failed(failure) => {
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
        RailAnswer::Refused if is_pulled => Event::Refused(StatusReason::DEBIT_REJECTED),
        RailAnswer::Refused
        | RailAnswer::Settled
        | RailAnswer::SettledForNow { .. }
        | RailAnswer::Pending { .. } => {
            let reason = StatusReason::REJECTED_BY_RECEIVER;
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
