//! Matters that only a person can settle: noticed in the unit of work that meets them, and resolved
//! by an operator, with a reason.
//!
//! A resolution that moves money goes the way of a rail's answer: through the payment's machine and
//! the ledger. The journal has it with the operator as its actor.

use domain::attention::{Attention, Event, Kind, Notice, Outcome, Resolution};
use domain::clock::Ahead;
use domain::id::{AttentionId, PlatformId, TransactionId};
use domain::platform::Platform;
use domain::rail::Rail;
use domain::time::Timestamp;
use domain::transaction::{Direction, Status, Transaction};
use ports::lightning::INVOICE_MILLIS;
use ports::rail::{Flow, RailAnswer, RailFailure};
use store::error::StoreError;
use store::timers::{Timer, TimerKind};
use store::unit::Unit;
use uuid::Uuid;

use crate::app::App;
use crate::error::Error;
use crate::owners;
use crate::rail_answers::keep_answer;
use crate::rail_orders::flow;

/// How long a bank may be silent about an order, in milliseconds: a week has every weekend and most
/// holidays in it.
const BANK_MILLIS: i64 = 7 * 86_400_000;

/// How long an invoice's payee may be silent after the invoice has expired, in milliseconds. A
/// receipt that was on its way has come by then.
const RECEIPT_MILLIS: i64 = 60_000;

/// When the time for a rail to say what became of an order is over. `since` is when the order was
/// first due.
fn deadline(rail: Rail, since: Timestamp) -> Timestamp {
    let is_lightning = rail == Rail::Lightning;
    since.plus_millis(if is_lightning { INVOICE_MILLIS + RECEIPT_MILLIS } else { BANK_MILLIS })
}

/// Keeps a matter for a person, once for each kind and subject. `now` is by the platform's clock.
pub(crate) fn notice(
    unit: &mut Unit<'_, '_>,
    kind: Kind,
    (subject, platform): (Uuid, &Platform),
    (count, note): (u32, String),
    now: Timestamp,
) -> Result<(), Error> {
    let notice = Notice { at: platform.ahead.on_server(now), count, note };
    match unit.get::<Attention>(&kind.id(subject))? {
        None => unit.put(Attention::open(kind, subject, platform.id, notice)),
        Some(known) => {
            unit.put_moved(Attention::clone(&known).apply(Event::Noticed(notice))?);
        }
    }
    Ok(())
}

/// Keeps a matter about a payment.
pub(crate) fn notice_payment(
    unit: &mut Unit<'_, '_>,
    kind: Kind,
    transaction: &Transaction,
    note: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let platform = owners::platform(unit, transaction.draft().platform)?;
    let subject = transaction.id().uuid();
    // A payment's matter is one, however often it is met.
    let known = unit.get::<Attention>(&kind.id(subject))?;
    if known.is_some_and(|known| known.resolution.is_none() && known.notice.note == note) {
        return Ok(());
    }
    notice(unit, kind, (subject, &platform), (1, note.to_owned()), now)
}

/// Keeps that the time for a rail's answer is over, which has not come.
pub(crate) fn notice_silence(
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
    timer: &Timer,
    now: Timestamp,
) -> Result<(), Error> {
    let is_over = |rail: Rail| now >= deadline(rail, timer.since);
    match transaction.rail() {
        Some(rail) if is_over(rail) => {
            let note = format!("{} has not said what became of it", rail.name());
            notice_payment(unit, Kind::UnknownOutcome, transaction, &note, now)
        }
        Some(_) | None => Ok(()),
    }
}

/// Resolves what was unknown until the rail has said it after all.
pub(crate) fn answered_late(
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
    timer: &Timer,
    answer: &RailAnswer,
    now: Timestamp,
) -> Result<(), Error> {
    let is_late = |rail: Rail| now >= deadline(rail, timer.since);
    if !transaction.rail().is_some_and(is_late) {
        return Ok(());
    }
    let id = Kind::UnknownOutcome.id(transaction.id().uuid());
    let Some(known) = unit.get::<Attention>(&id)?.filter(|known| known.resolution.is_none()) else {
        return Ok(());
    };
    let platform = owners::platform(unit, transaction.draft().platform)?;
    let outcome = match answer {
        RailAnswer::Settled | RailAnswer::SettledForNow { .. } => Outcome::Settled,
        RailAnswer::Returned => Outcome::Returned,
        RailAnswer::Refused | RailAnswer::Failed(_) | RailAnswer::Pending { .. } => Outcome::Failed,
    };
    let resolution = Resolution {
        at: platform.ahead.on_server(now),
        by: "the rail".to_owned(),
        reason: "it has answered".to_owned(),
        outcome,
    };
    unit.put_moved(Attention::clone(&known).apply(Event::Resolved(resolution))?);
    Ok(())
}

/// The word for an answer of a rail.
pub(crate) const fn word(answer: &RailAnswer) -> &'static str {
    match answer {
        RailAnswer::Settled | RailAnswer::SettledForNow { .. } => "settled",
        RailAnswer::Returned => "returned",
        RailAnswer::Refused => "refused",
        RailAnswer::Failed(_) => "failed",
        RailAnswer::Pending { .. } => "undecided",
    }
}

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
    let answer = match (attention.kind, outcome) {
        (Kind::UnknownOutcome, Outcome::Settled) => RailAnswer::Settled,
        (Kind::UnknownOutcome, Outcome::Failed) => RailAnswer::Failed(RailFailure::TimedOut),
        (Kind::RailContradiction, Outcome::Returned) => RailAnswer::Returned,
        // The books say so already.
        (
            Kind::UnknownOutcome
            | Kind::RailContradiction
            | Kind::LateReturn
            | Kind::DeadDeliveries,
            Outcome::Settled | Outcome::Failed | Outcome::Returned | Outcome::Noted,
        ) => return Ok(()),
    };
    let id = TransactionId::from_uuid(attention.subject);
    let missing = || Error::Internal(format!("{id} has vanished"));
    let transaction = unit.get::<Transaction>(&id)?.ok_or_else(missing)?;
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
        | RailAnswer::Failed(_)
        | RailAnswer::Pending { .. } => matches!(status, Status::Pending | Status::Processing),
    };
    if !is_possible {
        return Err(Error::Conflict(format!(
            "{id} is {} and cannot be {} any more",
            status.name(),
            outcome.name()
        )));
    }
    let platform = owners::platform(unit, attention.platform)?;
    let now = platform.ahead.shows(server_now);
    let timer = Timer::new(&platform, id.uuid(), TimerKind::AskRail, now, now);
    keep_answer(app, unit, &timer, asked, &answer.into(), other_side, now)
}

/// The open matters of each kind: how many, and when the oldest was opened.
pub async fn measure(app: &App) -> Result<(), StoreError> {
    let open = app.store().read(|view| view.open_matters()).await?;
    let now = app.server_now();
    for kind in Kind::ALL {
        let found = open.iter().find(|found| found.kind == kind);
        let count = found.map_or(0, |found| found.count);
        let age = found.map_or(0, |it| now.millis().saturating_sub(it.oldest.millis()).max(0));
        let labels = [("kind", kind.name())];
        metrics::gauge!("switchyard_attention_open", &labels).set(count as f64);
        metrics::gauge!("switchyard_attention_oldest_seconds", &labels).set(age as f64 / 1_000.0);
    }
    Ok(())
}

/// Keeps the deliveries that a unit has given up after failed attempts, as one matter of their
/// platform.
pub(crate) fn notice_dead(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    count: u32,
    last: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let platform = owners::platform(unit, platform)?;
    let subject = platform.id.uuid();
    notice(unit, Kind::DeadDeliveries, (subject, &platform), (count, last.to_owned()), now)
}
