//! Matters that only a person can settle, noticed in the unit of work that meets them
//! ([`crate::resolutions`] has the person's part).

use domain::attention::{Attention, Event, Kind, Notice, Outcome, Resolution};
use domain::id::PlatformId;
use domain::platform::Platform;
use domain::rail::Rail;
use domain::time::Timestamp;
use domain::transaction::Transaction;
use ports::rail::RailAnswer;
use store::error::StoreError;
use store::unit::Unit;
use uuid::Uuid;

use crate::app::App;
use crate::error::Error;
use crate::owners;

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
    now: Timestamp,
) -> Result<(), Error> {
    let rail = transaction.rail().map_or("the rail", Rail::name);
    let note = format!("{rail} has not said what became of it");
    notice_payment(unit, Kind::UnknownOutcome, transaction, &note, now)
}

/// Resolves what was unknown until the rail has said it after all.
pub(crate) fn answered_late(
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
    answer: &RailAnswer,
    now: Timestamp,
) -> Result<(), Error> {
    let id = Kind::UnknownOutcome.id(transaction.id().uuid());
    let Some(known) = unit.get::<Attention>(&id)?.filter(|known| known.resolution.is_none()) else {
        return Ok(());
    };
    let platform = owners::platform(unit, transaction.draft().platform)?;
    let outcome = match answer {
        RailAnswer::Settled | RailAnswer::SettledForNow { .. } => Outcome::Settled,
        RailAnswer::Returned => Outcome::Returned,
        RailAnswer::Refused
        | RailAnswer::Failed(..)
        | RailAnswer::Pending { .. }
        | RailAnswer::Overdue { .. } => Outcome::Failed,
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
        RailAnswer::Failed(..) => "failed",
        RailAnswer::Pending { .. } | RailAnswer::Overdue { .. } => "undecided",
    }
}

/// The open matters of each kind: how many, and when the oldest was opened.
pub async fn measure(app: &App) -> Result<(), StoreError> {
    let open = app.store().read_lagging(|view| view.open_matters()).await?;
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
