//! Sweeps: removes rows that were kept for long enough.
//!
//! Answers and nonces keep an effect from happening twice, so they go only when [`AgeProof`] agrees
//! with the clock. A lookup that goes too early is made again, so the clock alone decides.

use std::time::Duration;

use domain::id::LookupId;
use domain::lookup::Lookup;
use domain::time::Timestamp;
use store::error::StoreError;
use store::idempotency::{Outdated, Scope};
use store::unit::Unit;

use crate::app::App;
use crate::error::Error;
use crate::steps::{AgeProof, Sweeps};
use crate::uma::peers;

/// Rows of a kind that a sweep removes at most: as many as fit one commit beside payments.
const SWEPT_MAX: u32 = 1_000;

/// How long after a sweep that found few the next one comes.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// How often the end of the journal is remembered while rows are kept: they are kept longer by this
/// part of their time at most.
const ENDS_MAX: u32 = 64;

/// How often the journal is asked how many days it proves.
const DAYS_EVERY: Duration = Duration::from_secs(3_600);

/// A day in milliseconds.
const DAY_MILLIS: u128 = 86_400_000;

impl AgeProof {
    /// Remembers the end of the journal as rows are kept for `kept`.
    fn see(&mut self, kept: Duration, uptime: Duration, end: u64) {
        let step = kept / ENDS_MAX;
        if self.ends.back().is_none_or(|(at, _)| uptime.saturating_sub(*at) >= step) {
            self.ends.push_back((uptime, end));
        }
        let is_old = |(at, _): &(Duration, u64)| uptime.saturating_sub(*at) >= kept;
        while self.ends.get(1).is_some_and(is_old) {
            self.ends.pop_front();
        }
        self.by_uptime = self.ends.front().copied().filter(is_old).map_or(0, |(_, end)| end);
    }

    /// The last row of the journal that is older than `kept`: this process has run as long since,
    /// or rows of as many days follow it.
    async fn row(&mut self, app: &App, kept: Duration) -> Result<u64, Error> {
        let uptime = app.uptime();
        let by_days = match self.by_days {
            Some((at, row)) if uptime.saturating_sub(at) < DAYS_EVERY => row,
            Some(_) | None => {
                // The first and the last day are not whole.
                let days = kept.as_millis().div_ceil(DAY_MILLIS) + 1;
                let days = u32::try_from(days).unwrap_or(u32::MAX);
                let found = app.store().read(move |view| view.row_before_days(days)).await;
                let row = Result::<_, StoreError>::map_err(found, Error::Store)?.unwrap_or(0);
                self.by_days = Some((uptime, row));
                row
            }
        };
        Ok(by_days.max(self.by_uptime))
    }

    /// Splits rows that the clock says are outdated: first the rows of proven age, then the others.
    async fn part(
        &mut self,
        app: &App,
        kept: Duration,
        outdated: Vec<Outdated>,
    ) -> Result<(Vec<Outdated>, Vec<Outdated>), Error> {
        if outdated.is_empty() {
            return Ok((outdated, Vec::new()));
        }
        let row = self.row(app, kept).await?;
        Ok(outdated.into_iter().partition(|it| it.seq <= row))
    }
}

/// The rows that the clock says are outdated, oldest first, up to [`SWEPT_MAX`] of a kind.
struct Found {
    /// The end of the journal.
    end: u64,
    answers: Vec<Outdated>,
    nonces: Vec<Outdated>,
    lookups: Vec<LookupId>,
}

/// Removes some of the rows that were kept for long enough. Whether there may be more.
pub(crate) async fn sweep(app: &App, sweeps: &mut Sweeps) -> Result<bool, Error> {
    let (uptime, now) = (app.uptime(), app.server_now());
    // The tables say what is outdated. Jobs do not wait for tables that stand still.
    if uptime < sweeps.next_at || app.store().lag().is_late() {
        return Ok(false);
    }
    let answers_before = now.plus_millis(-app.env().answers_kept_millis);
    let nonces_before = now.plus_millis(-peers::NONCE_MILLIS);
    let found = app.store().read(move |view| {
        Ok::<_, StoreError>(Found {
            end: view.journal_end()?.0,
            answers: view.outdated_answers(answers_before, SWEPT_MAX)?,
            nonces: view.outdated_nonces(nonces_before, SWEPT_MAX)?,
            lookups: view.outdated_lookups(now, SWEPT_MAX)?,
        })
    });
    let Found { end, answers, nonces, lookups } = found.await.map_err(Error::Store)?;
    let answers_kept = Duration::from_millis(app.env().answers_kept_millis.unsigned_abs());
    let nonces_kept = Duration::from_millis(peers::NONCE_MILLIS.unsigned_abs());
    sweeps.answers.see(answers_kept, uptime, end);
    sweeps.nonces.see(nonces_kept, uptime, end);

    let is_full = answers.len() == SWEPT_MAX as usize;
    let (old, young) = sweeps.answers.part(app, answers_kept, answers).await?;
    let mut more = is_full && !old.is_empty();
    remove_answers(app, (old, young), is_full, answers_before).await?;

    let is_full = nonces.len() == SWEPT_MAX as usize;
    let (old, _) = sweeps.nonces.part(app, nonces_kept, nonces).await?;
    more |= is_full && !old.is_empty();
    remove_nonces(app, old, nonces_before).await?;

    more |= lookups.len() == SWEPT_MAX as usize;
    remove_lookups(app, lookups).await?;
    if !more {
        sweeps.next_at = uptime.saturating_add(SWEEP_EVERY);
    }
    Ok(more)
}

/// Removes answers, and the data keys of days all of whose answers are gone.
async fn remove_answers(
    app: &App,
    (old, young): (Vec<Outdated>, Vec<Outdated>),
    is_full: bool,
    before: Timestamp,
) -> Result<(), Error> {
    let days = match is_full {
        // Answers of these days are still there.
        true => Vec::new(),
        false => {
            let before = young.first().map_or(before, |first| first.at);
            let days = app.store().read(move |view| view.outdated_days(before, SWEPT_MAX)).await;
            days.map_err(Error::Store)?
        }
    };
    if old.is_empty() && days.is_empty() {
        return Ok(());
    }
    let scopes: Vec<Scope> = old.iter().map(|it| it.scope).collect();
    let remove = move |unit: &mut Unit<'_, '_>| {
        days.iter().for_each(|day| unit.erase_key(*day));
        unit.remove_answers(&scopes, before)
    };
    app.store().write_behind(app.origin(), remove).await.map_err(Error::Store)
}

/// Removes nonces whose signatures are too old to be taken.
async fn remove_nonces(app: &App, old: Vec<Outdated>, before: Timestamp) -> Result<(), Error> {
    if old.is_empty() {
        return Ok(());
    }
    let scopes: Vec<Scope> = old.iter().map(|it| it.scope).collect();
    let remove = move |unit: &mut Unit<'_, '_>| unit.remove_answers(&scopes, before);
    app.store().write_behind(app.origin(), remove).await.map_err(Error::Store)
}

/// Removes lookups that cannot be quoted on any more.
async fn remove_lookups(app: &App, old: Vec<LookupId>) -> Result<(), Error> {
    if old.is_empty() {
        return Ok(());
    }
    let remove = move |unit: &mut Unit<'_, '_>| {
        old.iter().for_each(|id| unit.remove::<Lookup>(*id));
        Ok::<_, StoreError>(())
    };
    app.store().write_behind(app.origin(), remove).await.map_err(Error::Store)
}
