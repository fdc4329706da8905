//! Steps back of the server's clock: work that a clock which was ahead has put off is brought back.
//!
//! Record times follow a clock that is set right, so timers that were set before would be due only
//! when it shows that time again: payments would wait for their rail for as long as the clock was
//! ahead. Rails, institutions and receivers may be asked early; that costs a question. Offers that
//! were made by the clock that was ahead are over (`domain::clock::is_from_ahead`). Invitations and
//! links stay open until their stated time.

use std::time::Duration;

use domain::clock::STEP_ABSORBED_MILLIS;
use domain::delivery::Delivery;
use domain::id::QuoteId;
use domain::platform::Platform;
use domain::quote::Quote;
use domain::time::Timestamp;
use store::error::StoreError;
use store::reader::View;
use store::timers::{Timer, TimerKind};
use store::unit::Unit;
use uuid::Uuid;

use crate::app::App;
use crate::error::Error;
use crate::leadership::Leadership;
use crate::steps::{Followed, Seen};
use crate::webhooks;

/// Rows that are brought back in one unit of work.
const TOGETHER_MAX: u32 = 512;

/// How often deliveries are looked through while records of a wrong time may change.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Followed {
    /// Brings work back if the clock was set back since the last step, or since another process
    /// has written to the journal.
    pub(crate) async fn follow(&mut self, app: &App, leadership: Leadership) -> Result<(), Error> {
        let (now, uptime) = (app.server_now(), app.uptime());
        let expected = match self.seen.filter(|seen| seen.term == leadership.term()) {
            Some(Seen { at, uptime: then, .. }) => {
                let passed = uptime.saturating_sub(then).as_millis();
                at.plus_millis(i64::try_from(passed).unwrap_or(i64::MAX))
            }
            None => written_at(app).await?.unwrap_or(now),
        };
        let by = expected.millis().saturating_sub(now.millis());
        if by > STEP_ABSORBED_MILLIS {
            self.wrong_until = self.wrong_until.max(Some(now.plus_millis(by)));
            let seconds = by / 1_000;
            match bring_back(app, leadership, by).await {
                Ok(0) => {}
                Ok(rows) => {
                    tracing::warn!(rows, seconds, "work that a clock had put off was brought back");
                }
                // Jobs go on: the row is an operator's to repair, and no job depends on it.
                Err(error) if error.is_of_a_row() => {
                    tracing::error!(%error, seconds, "work that a clock had put off stays so");
                }
                Err(error) => return Err(error),
            }
        } else if self.wrong_until.is_some_and(|until| now < until)
            && uptime.saturating_sub(self.looked_at) >= LOOK_EVERY
        {
            self.looked_at = uptime;
            let platforms = app.store().read(|view| view.platforms()).await;
            for platform in platforms.map_err(Error::Store)? {
                deliveries(app, leadership, &platform).await?;
            }
        }
        self.seen = Some(Seen { at: now, uptime, term: leadership.term() });
        Ok(())
    }
}

/// The time of the journal as other processes have left it.
async fn written_at(app: &App) -> Result<Option<Timestamp>, Error> {
    let opened_at = app.store().opened_at();
    let found = app.store().read_lagging(move |view| {
        let (_, last) = view.journal_end()?;
        Ok::<_, StoreError>(last.max(view.appended_at(opened_at)?))
    });
    found.await.map_err(Error::Store)
}

/// Brings back what is due later, for a clock that was set back by so many milliseconds; how many
/// rows that were.
async fn bring_back(app: &App, leadership: Leadership, by: i64) -> Result<usize, Error> {
    let platforms = app.store().read(|view| view.platforms()).await.map_err(Error::Store)?;
    let mut count = 0;
    for platform in platforms {
        count += timers(app, leadership, &platform, by).await?;
        count += deliveries(app, leadership, &platform).await?;
    }
    Ok(count)
}

async fn timers(
    app: &App,
    leadership: Leadership,
    platform: &Platform,
    by: i64,
) -> Result<usize, Error> {
    let (id, now, mut count) = (platform.id, app.now(platform.ahead), 0);
    let mut after = (now, Uuid::nil());
    loop {
        let later = move |view: &mut View<'_>| {
            view.later_timers(id, after, Timestamp::from_millis(i64::MAX), TOGETHER_MAX)
        };
        let later = app.store().read(later).await;
        let later = later.map_err(Error::Store)?;
        let Some(last) = later.last() else { return Ok(count) };
        after = (last.due_at, last.subject);
        let unit_app = app.clone();
        let written = app.write_behind(move |unit| {
            leadership.check(&unit_app, unit)?;
            let mut count = 0;
            for timer in &later {
                if let Some(timer) = brought_back(unit, timer, by, now)? {
                    unit.set_timer(timer);
                    count += 1;
                }
            }
            Ok(count)
        });
        count += written.await?;
    }
}

/// The timer as it is to be, if that is another time.
fn brought_back(
    unit: &mut Unit<'_, '_>,
    timer: &Timer,
    by: i64,
    now: Timestamp,
) -> Result<Option<Timer>, Error> {
    let due_at = match timer.kind {
        TimerKind::AskRail
        | TimerKind::AskAccount
        | TimerKind::NotifyPeer
        | TimerKind::ImportCustomers => timer.due_at.plus_millis(-by).max(now),
        TimerKind::ExpireQuote => {
            // One that cannot be read holds up no other.
            let quote = match unit.get::<Quote>(&QuoteId::from_uuid(timer.subject)) {
                Err(StoreError::NotFetched) => return Err(StoreError::NotFetched.into()),
                found => found.ok().flatten(),
            };
            if quote.is_some_and(|quote| quote.is_over(now)) { now } else { timer.due_at }
        }
        // A request that is still open sets it anew.
        TimerKind::DecidePayment => now,
        TimerKind::ExpireInvitation | TimerKind::ExpireIdentityCheck => timer.due_at,
    };
    let since = timer.since.min(now);
    Ok((due_at != timer.due_at).then(|| Timer { due_at, since, ..timer.clone() }))
}

async fn deliveries(
    app: &App,
    leadership: Leadership,
    platform: &Platform,
) -> Result<usize, Error> {
    let (id, now, mut count) = (platform.id, app.now(platform.ahead), 0);
    let touched_after = now.plus_millis(STEP_ABSORBED_MILLIS);
    loop {
        let found = app
            .store()
            .read(move |view| view.deliveries_from_ahead(id, (now, touched_after), TOGETHER_MAX));
        let found = found.await.map_err(Error::Store)?;
        if found.is_empty() {
            return Ok(count);
        }
        count += found.len();
        let unit_app = app.clone();
        let written = app.write_behind(move |unit| {
            leadership.check(&unit_app, unit)?;
            for delivery in unit.get_all::<Delivery>(&found)?.into_iter().flatten() {
                unit.put(Delivery::clone(&delivery).rescheduled(now));
            }
            webhooks::wake_worker(unit, id)
        });
        written.await?;
    }
}
