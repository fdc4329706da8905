//! Payments to UMA addresses of this server: begun, decided on by the receiver's platform, credited
//! (contract 6.10, 7.3).
//!
//! Everything here begins with a payment that waits, and ends with the decision on it. The decider
//! is said in one place, [`Platform::first_decision`]. A platform that is asked decides by its
//! answer ([`crate::approvals`]), by a call, or by letting its time run out; whichever is first
//! goes through [`decide`].

mod begin;
mod credit;

use std::sync::Arc;

use domain::approval::{Approval, Event as Decided, Outcome};
use domain::customer::Customer;
use domain::id::{PlatformId, TransactionId};
use domain::platform::{CounterpartyField, Platform};
use domain::time::Timestamp;
use domain::transaction::{Event, Facts, FailureReason, Settlement, StatusReason, Transaction};
use ledger::posting::Resolution;
use ports::rails::Leg;
use store::timers::{Timer, TimerKind};
use store::unit::Unit;

use crate::app::App;
use crate::error::{Error, TransactionError};
use crate::settlement::end;
use crate::{lifecycle, owners, uma};

pub use begin::{PayIn, Wanted, receive};
pub(crate) use begin::{accept, begin_here, create, fail_created};
pub(crate) use credit::{credit, keep_returned, refuse_deposit, take_deposit_back};

/// Ends the payment when the time to decide is over.
fn set_time(unit: &mut Unit<'_, '_>, platform: &Platform, approval: &Approval, now: Timestamp) {
    let (subject, due_at) = (approval.transaction().uuid(), approval.decide_by());
    unit.set_timer(Timer::new(platform, subject, TimerKind::DecidePayment, due_at, now));
}

/// The platform's incoming payment that waits for its decision, and the approval request.
fn waiting(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    id: TransactionId,
    now: Timestamp,
) -> Result<(Transaction, Approval), Error> {
    let found = unit.get::<Transaction>(&id)?;
    let transaction = found
        .filter(|transaction| transaction.draft().platform == platform)
        .ok_or(Error::Transaction(TransactionError::NotFound { id }))?;
    let approval = unit.get::<Approval>(&id)?;
    // The timer may not have been there yet: the clock decides.
    let approval = approval.filter(|approval| approval.is_open(now)).ok_or(Error::Transaction(
        TransactionError::NotPendingApproval { id, status: transaction.status() },
    ))?;
    Ok((Transaction::clone(&transaction), Approval::clone(&approval)))
}

/// Decides on an incoming payment that waits, with what the platform says about its customer, or
/// puts the decision off. Refuses what comes after the decision or the end of the time.
pub fn decide(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    id: TransactionId,
    decision: Decided,
    receiver: &Facts,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let (transaction, approval) = waiting(unit, platform, id, now)?;
    settle(app, unit, transaction, approval, decision, receiver, now)
}

/// Moves an approval request, and its payment with it.
fn settle(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    approval: Approval,
    decision: Decided,
    receiver: &Facts,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let moved = approval.apply(decision, now)?;
    let approval = moved.now().clone();
    unit.put_moved(moved);
    match approval.status().outcome() {
        Outcome::Open => {
            let platform = owners::platform(unit, approval.platform())?;
            set_time(unit, &platform, &approval, now);
            Ok(transaction)
        }
        Outcome::Approved => go_on(app, unit, transaction, receiver, now),
        Outcome::Rejected => {
            let event = Event::Refused(StatusReason::REJECTED_BY_PLATFORM);
            stop(app, unit, transaction, event, now)
        }
        Outcome::Failed(reason) => stop(app, unit, transaction, failed(reason), now),
    }
}

/// Ends an incoming payment that was not decided in time. Does nothing to one that does not
/// wait any more, and waits on where the decision was put off.
pub(crate) fn time_out(
    app: &App,
    unit: &mut Unit<'_, '_>,
    id: TransactionId,
    now: Timestamp,
) -> Result<(), Error> {
    let (approval, transaction) = (unit.get::<Approval>(&id)?, unit.get::<Transaction>(&id)?);
    let (Some(approval), Some(transaction)) = (approval, transaction) else {
        // A server has stopped before its platform could be asked.
        return fail_created(app, unit, id, FailureReason::PayRequestFailed, now);
    };
    if approval.is_open(now) {
        let platform = owners::platform(unit, approval.platform())?;
        set_time(unit, &platform, &approval, now);
    } else if approval.status().outcome() == Outcome::Open {
        let (transaction, approval) =
            (Transaction::clone(&transaction), Approval::clone(&approval));
        let decision = Decided::TimedOut;
        settle(app, unit, transaction, approval, decision, &Facts::new(), now)?;
    }
    Ok(())
}

/// The facts about the receiver of a payment that the payer's platform asks for and does not know
/// yet.
fn asked(
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
) -> Result<Vec<CounterpartyField>, Error> {
    let outgoing = outgoing(unit, transaction)?;
    let mut asked = match &outgoing {
        Some(outgoing) => uma::asked_by_payer(unit, outgoing)?,
        None => asked_from_elsewhere(transaction).to_vec(),
    };
    let payee = payee(unit, transaction)?;
    let known = payee.map(|customer| uma::about(&customer, &asked)).unwrap_or_default();
    // The payer's platform may know itself what it asks for.
    let stated = outgoing.as_ref().and_then(|outgoing| outgoing.draft().uma.as_ref());
    let stated = stated.map(|uma| &uma.counterparty);
    let is_known = |name: &str| {
        [Some(&known), stated].into_iter().flatten().any(|facts| uma::says(facts, name))
    };
    asked.retain(|field| !is_known(field.name));
    Ok(asked)
}

/// The facts about the payee that another institution has asked for.
fn asked_from_elsewhere(transaction: &Transaction) -> &[CounterpartyField] {
    transaction.draft().uma.as_ref().map_or(&[], |uma| &uma.payee.asked)
}

/// The customer whom a payment is for, if it is not for the platform itself.
fn payee(unit: &mut Unit<'_, '_>, incoming: &Transaction) -> Result<Option<Arc<Customer>>, Error> {
    let draft = incoming.draft();
    Ok(match owners::holder(unit, draft.platform, draft.owner.customer())? {
        owners::Holder::Customer(customer) => Some(customer),
        owners::Holder::Platform(_) => None,
    })
}

/// The payer's transaction, of a payment within this server.
fn outgoing(unit: &mut Unit<'_, '_>, incoming: &Transaction) -> Result<Option<Transaction>, Error> {
    let settlement = incoming.draft().uma.as_ref().map(|uma| uma.settlement);
    let Some(Settlement::Here { outgoing: Some(id) }) = settlement else { return Ok(None) };
    let found = unit.get::<Transaction>(&id)?;
    let found = found.ok_or_else(|| Error::Internal(format!("{id} has vanished")))?;
    Ok(Some(Transaction::clone(&found)))
}

/// The time of the payer's platform when the clock of the payee's shows `now`.
fn on_the_other_side(
    unit: &mut Unit<'_, '_>,
    incoming: &Transaction,
    outgoing: &Transaction,
    now: Timestamp,
) -> Result<Timestamp, Error> {
    let payees = owners::platform(unit, incoming.draft().platform)?.ahead;
    let payers = owners::platform(unit, outgoing.draft().platform)?.ahead;
    Ok(payers.shows(payees.on_server(now)))
}

/// Goes on with a payment that was approved: to its end within this server, else until the money
/// has come.
fn go_on(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    receiver: &Facts,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let asked = asked(unit, &transaction)?;
    if !uma::missing(&asked, receiver).is_empty() {
        let event = failed(FailureReason::MissingMandatoryPayeeData);
        return stop(app, unit, transaction, event, now);
    }
    let received = transaction.draft().received.money();
    if let Some(customer) = transaction.draft().owner.customer()
        && let Err(error) = uma::can_be_paid(unit, customer, received)
    {
        if error.is_failure() {
            return Err(error);
        }
        let reason = StatusReason::DESTINATION_UNAVAILABLE;
        let event = Event::Failed(FailureReason::OfframpFailed, reason);
        return stop(app, unit, transaction, event, now);
    }
    unit.clear_timer((transaction.id().uuid(), TimerKind::DecidePayment));
    let Some(outgoing) = outgoing(unit, &transaction)? else {
        claim_payment_hash(app, unit, &transaction)?;
        let question = (asked_from_elsewhere(&transaction), &Facts::new());
        let given = given(unit, &transaction, question, receiver)?;
        let transaction = transaction.giving(given);
        let transaction = lifecycle::advance(app, unit, transaction, Event::Started, now)?;
        return lifecycle::ask_rail(app, unit, transaction, Leg::to_institution(), now);
    };
    let transaction = lifecycle::advance(app, unit, transaction, Event::Started, now)?;
    let asked = uma::asked_by_payer(unit, &outgoing)?;
    let known = outgoing.draft().uma.as_ref().map(|uma| uma.counterparty.clone());
    let question = (&*asked, &known.unwrap_or_default());
    let facts = given(unit, &transaction, question, receiver)?;
    let then = on_the_other_side(unit, &transaction, &outgoing, now)?;
    end(app, unit, outgoing.knowing(facts), Event::Settled, then)?;
    credit(app, unit, transaction, now)
}

/// Claims the hash of the invoice that a payment from another institution waits for, so that no
/// institution gives it back to be paid by us.
fn claim_payment_hash(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
) -> Result<(), Error> {
    let platform = owners::platform(unit, transaction.draft().platform)?;
    let Some(node) = app.env().lightning(platform.mode) else { return Ok(()) };
    let id = transaction.id();
    if uma::claim_payment_hash(unit, node.payment_hash(id), id)? {
        return Ok(());
    }
    Err(Error::Internal(format!("the payment hash of {id} is another payment's")))
}

/// The facts about the receiver that are asked for: what is known here and the payer's side does
/// not know itself, and what the receiver's platform has answered. Nothing of it is given before
/// that platform agrees.
fn given(
    unit: &mut Unit<'_, '_>,
    incoming: &Transaction,
    (asked, known): (&[CounterpartyField], &Facts),
    receiver: &Facts,
) -> Result<Facts, Error> {
    let Some(customer) = payee(unit, incoming)? else { return Ok(Facts::new()) };
    let platform = owners::platform(unit, incoming.draft().platform)?;
    let mut given = uma::about(&customer, asked);
    given.retain(|name, _| !uma::says(known, name));
    given.extend(uma::wanted(uma::stated(&platform, &customer, receiver), asked));
    Ok(given)
}

/// A failure of which no more is known than the specification's reason.
fn failed(reason: FailureReason) -> Event {
    Event::Failed(reason, reason.status_reason())
}

fn broken(transaction: &Transaction) -> Error {
    Error::Internal(format!("{} is no payment to a UMA address", transaction.id()))
}

/// Ends an incoming payment that is not made, on both sides if both are here.
pub(crate) fn stop(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    event: Event,
    now: Timestamp,
) -> Result<Transaction, Error> {
    unit.clear_timer((transaction.id().uuid(), TimerKind::DecidePayment));
    // A release before this one set money aside for an invoice that was not paid yet.
    if transaction.is_from_peer() && !unit.postings(transaction.id())?.is_empty() {
        unit.resolve(transaction.id(), Resolution::Void, now)?;
    }
    if let Some(outgoing) = outgoing(unit, &transaction)? {
        let event = match &event {
            Event::Failed(failure, _) => {
                let reason = match failure {
                    FailureReason::PaymentApprovalTimedOut => StatusReason::TIMEOUT,
                    _ => StatusReason::COUNTERPARTY_FAILED,
                };
                Event::Failed(FailureReason::QuoteExecutionFailed, reason)
            }
            Event::Quoted
            | Event::Started
            | Event::Settled
            | Event::Refused(_)
            | Event::Returned(_)
            | Event::Refunded
            | Event::Kept(_)
            | Event::Expired => event.clone(),
        };
        let then = on_the_other_side(unit, &transaction, &outgoing, now)?;
        end(app, unit, outgoing, event, then)?;
    }
    lifecycle::advance(app, unit, transaction, event, now)
}
