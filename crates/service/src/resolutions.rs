//! Resolutions of matters that only a person can settle ([`crate::attention`]): an operator says
//! the outcome, with a reason.
//!
//! A resolution that moves money goes through the payment's machine and the ledger, as a rail's
//! answer does. The journal has it with the operator as its actor.

use domain::attention::{Attention, Event, Kind, Outcome, Resolution};
use domain::clock::Ahead;
use domain::id::{AttentionId, Owner, TransactionId};
use domain::time::Timestamp;
use domain::transaction::{Direction, Status, Transaction};
use ports::rail::{Flow, Proof, RailAnswer, RailFailure};
use store::books;
use store::timers::{Timer, TimerKind};
use store::unit::Unit;

use crate::app::App;
use crate::error::Error;
use crate::rail_answers::keep_answer;
use crate::rail_orders::flow;
use crate::settlement::return_from_suspense;
use crate::{incoming, owners};

/// An operator's finding about a matter.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The outcome; the only possible one if it is left out.
    pub outcome: Option<Outcome>,
    /// Why it is so.
    pub reason: String,
    /// The person.
    pub by: String,
}

/// Resolves a matter as a person has found it. Nothing if there is no such matter.
pub async fn resolve(
    app: &App,
    id: AttentionId,
    finding: Finding,
) -> Result<Option<Attention>, Error> {
    let (unit_app, server_now) = (app.clone(), app.server_now());
    let other_side = app.new_id(Ahead::NONE, server_now);
    app.write(move |unit| {
        let Some(attention) = unit.get::<Attention>(&id)? else { return Ok(None) };
        let attention = Attention::clone(&attention);
        let outcome = outcome_of(&attention, &finding)?;
        let Finding { reason, by, .. } = finding.clone();
        let resolution = Resolution { at: server_now, by, reason, outcome };
        let moved = attention.clone().apply(Event::Resolved(resolution))?;
        let resolved = moved.now().clone();
        unit.put_moved(moved);
        book(&unit_app, unit, &attention, outcome, other_side, server_now)?;
        Ok(Some(resolved))
    })
    .await
}

/// The outcome of a finding, if it is one of the kind's.
fn outcome_of(attention: &Attention, finding: &Finding) -> Result<Outcome, Error> {
    let possible = attention.kind.outcomes();
    match (finding.outcome, possible) {
        (None, [only]) => Ok(*only),
        (Some(outcome), _) if possible.contains(&outcome) => Ok(outcome),
        (_, _) => {
            let names: Vec<_> = possible.iter().map(|outcome| outcome.name()).collect();
            let (kind, names) = (attention.kind.name(), names.join(" or "));
            Err(Error::Conflict(format!("the outcome of {kind} is {names}")))
        }
    }
}

/// Does to the books what an outcome says, as if the rail had said it.
fn book(
    app: &App,
    unit: &mut Unit<'_, '_>,
    attention: &Attention,
    outcome: Outcome,
    other_side: TransactionId,
    server_now: Timestamp,
) -> Result<(), Error> {
    let id = TransactionId::from_uuid(attention.subject);
    let payment = |unit: &mut Unit<'_, '_>| {
        let missing = || Error::Internal(format!("{id} has vanished"));
        unit.get::<Transaction>(&id)?.ok_or_else(missing)
    };
    let now = owners::platform(unit, attention.platform)?.ahead.shows(server_now);
    let answer = match (attention.kind, outcome) {
        (Kind::UnknownOutcome, Outcome::Settled) => RailAnswer::Settled,
        (Kind::UnknownOutcome, Outcome::Failed) => {
            RailAnswer::Failed(RailFailure::TimedOut, Proof::Operator)
        }
        (Kind::RailContradiction, Outcome::Returned) => RailAnswer::Returned,
        (Kind::LateReturn, Outcome::Kept) => {
            let transaction = Transaction::clone(&*payment(unit)?);
            return keep_late_return(app, unit, transaction, now);
        }
        // The books say so already.
        (
            Kind::UnknownOutcome
            | Kind::RailContradiction
            | Kind::LateReturn
            | Kind::DeadDeliveries,
            Outcome::Settled | Outcome::Failed | Outcome::Returned | Outcome::Kept | Outcome::Noted,
        ) => return Ok(()),
    };
    let transaction = payment(unit)?;
    let asked = flow(&unit.postings(id)?, &transaction);
    let status = transaction.status();
    let is_possible = match answer {
        RailAnswer::Returned => {
            let is_out = transaction.draft().direction == Direction::Outgoing
                || transaction.draft().deposit_account().is_some();
            status == Status::Completed && asked == Flow::PayOut && is_out
        }
        RailAnswer::Settled
        | RailAnswer::SettledForNow { .. }
        | RailAnswer::Refused
        | RailAnswer::Failed(..)
        | RailAnswer::Pending { .. }
        | RailAnswer::Overdue { .. } => matches!(status, Status::Pending | Status::Processing),
    };
    if !is_possible {
        return Err(Error::Conflict(format!(
            "{id} is {} and cannot be {} any more",
            status.name(),
            outcome.name()
        )));
    }
    let platform = owners::platform(unit, attention.platform)?;
    let timer = Timer::new(&platform, id.uuid(), TimerKind::AskRail, now, now);
    keep_answer(app, unit, &timer, asked, &answer.into(), other_side, now)
}

/// Gives money that came back for a deleted customer to the platform. Nothing if none waits: an
/// earlier release gave it to the platform at once.
fn keep_late_return(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    now: Timestamp,
) -> Result<(), Error> {
    let waits = books::in_suspense(&unit.postings(transaction.id())?);
    let Some(amount) = waits else { return Ok(()) };
    if transaction.status() == Status::Completed {
        return incoming::keep_returned(app, unit, transaction, amount, now);
    }
    let owner = Owner::Platform(transaction.draft().platform);
    return_from_suspense(app, unit, transaction, owner, amount, now)?;
    Ok(())
}
