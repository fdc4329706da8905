//! Once per idempotency key (design decision 9): effect and first answer are one change.

use std::time::Duration;

use domain::clock::Ahead;
use domain::id::PlatformId;
use domain::time::Timestamp;
use store::error::StoreError;
use store::idempotency::{Answer, Digest, Given, Scope};
use store::unit::Unit;

use crate::app::{App, Outcome};
use crate::balances;
use crate::error::Error;
use crate::steps::Sweeps;
use crate::uma::peers;

/// A request that may be repeated.
#[derive(Debug, Clone, Copy)]
pub struct Keyed {
    /// Its scope, if the client sent a key.
    pub scope: Option<Scope>,
    /// The digest of its body, if it has one and a scope.
    pub body: Option<Digest>,
    /// The caller's platform.
    pub platform: PlatformId,
    /// How far the platform's clock is ahead.
    pub ahead: Ahead,
}

/// An answer, as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
    /// Whether this is a stored first answer.
    pub replayed: bool,
    /// Whether it was given to another body than that of this request.
    pub differs: bool,
}

/// Turns results into answers. `api` has the one implementation.
pub trait Render<T>: Fn(&Result<T, Error>) -> (u16, Vec<u8>) + Send + 'static {}
impl<T, F: Fn(&Result<T, Error>) -> (u16, Vec<u8>) + Send + 'static> Render<T> for F {}

/// Does `work` unless the request was answered before; then gives that answer, byte for byte.
/// Refusals are answers too: they are kept, and nothing else of the unit is. Failures of ours are
/// not kept, so that a repeat tries again. An answer that is there is given again whatever its age:
/// a clock that is wrong must not make a payment happen twice.
pub async fn once<T, R, F>(app: &App, keyed: Keyed, render: R, mut work: F) -> Result<Reply, Error>
where
    T: Send + 'static,
    R: Render<T>,
    F: FnMut(&mut Unit<'_, '_>) -> Result<T, Error> + Send + 'static,
{
    let (now, unit_app) = (app.server_now(), app.clone());
    let written = app
        .store()
        .write_once(keyed.scope, app.origin(), move |unit| {
            if let Some(reply) = stored(unit, keyed)? {
                return Ok((reply, Outcome::default()));
            }
            let result =
                work(unit).and_then(|done| balances::tell(unit_app.env(), unit).map(|()| done));
            if let Err(error) = &result {
                if error.is_failure() {
                    return Err(error.clone());
                }
                unit.discard();
            }
            let outcome = Outcome::of(unit);
            let (status, body) = render(&result);
            let given = Given { status, body, request: keyed.body };
            if let Some(scope) = keyed.scope {
                unit.keep_answer(scope, now, &given);
            }
            let Given { status, body, .. } = given;
            Ok((Reply { status, body, replayed: false, differs: false }, outcome))
        })
        .await;
    let (reply, outcome): (Reply, Outcome) = written?;
    app.committed(&outcome);
    warn_of_difference(app, keyed, &reply);
    Ok(reply)
}

/// An answer of any age.
const EVER: Timestamp = Timestamp::from_millis(i64::MIN);

fn stored(unit: &mut Unit<'_, '_>, keyed: Keyed) -> Result<Option<Reply>, StoreError> {
    let Some(scope) = keyed.scope else { return Ok(None) };
    Ok(unit.answer(&scope, EVER)?.map(|given| replay(keyed, given)))
}

fn replay(keyed: Keyed, given: Given) -> Reply {
    let Given { status, body, request } = given;
    let differs = keyed.body.zip(request).is_some_and(|(now, first)| now != first);
    Reply { status, body, replayed: true, differs }
}

/// Logs that a request was answered without being looked at, although it is not the first one: its
/// client may take the answer for that of a second payment.
fn warn_of_difference(app: &App, keyed: Keyed, reply: &Reply) {
    if reply.differs {
        let request_id = app.origin().request.unwrap_or_default();
        tracing::warn!(
            platform = %keyed.platform, request_id, status = reply.status,
            "an idempotency key was repeated with another body"
        );
    }
}

/// The stored first answer to a request, if there is one: for use cases that ask the outside world
/// before their unit of work, so that a repeat does not ask again.
pub async fn answered(app: &App, keyed: Keyed) -> Result<Option<Reply>, Error> {
    let Some(scope) = keyed.scope else { return Ok(None) };
    // Hardly any request is a repeat, and whether it is one is asked together with others.
    if app.store().get::<Answer>(scope).await.map_err(Error::Store)?.is_none() {
        return Ok(None);
    }
    let answer = app.store().read(move |view| view.answer(&scope, EVER)).await;
    let reply = answer.map_err(Error::Store)?.map(|given| replay(keyed, given));
    if let Some(reply) = &reply {
        warn_of_difference(app, keyed, reply);
    }
    Ok(reply)
}

/// Answers that a sweep removes at most: as many as fit one commit beside payments.
const SWEPT_MAX: u32 = 1_000;

/// How long after a sweep that found few the next one comes.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// How often the end of the journal is remembered while answers are kept: they are kept longer by
/// this part of their time at most.
const ENDS_MAX: u32 = 64;

/// How often the journal is asked how many days it proves.
const DAYS_EVERY: Duration = Duration::from_secs(3_600);

impl Sweeps {
    /// Remembers the end of the journal, and gives the one from so long ago: this process has run
    /// as long since.
    fn end_before(&mut self, kept: Duration, uptime: Duration, end: u64) -> u64 {
        let step = kept / ENDS_MAX;
        if self.ends.back().is_none_or(|(at, _)| uptime.saturating_sub(*at) >= step) {
            self.ends.push_back((uptime, end));
        }
        let is_old = |(at, _): &(Duration, u64)| uptime.saturating_sub(*at) >= kept;
        while self.ends.get(1).is_some_and(is_old) {
            self.ends.pop_front();
        }
        self.ends.front().copied().filter(is_old).map_or(0, |(_, end)| end)
    }
}

fn kept(app: &App) -> Duration {
    Duration::from_millis(app.env().answers_kept_millis.unsigned_abs())
}

/// The last row of the journal whose answers have been kept for long enough, if the clock agrees.
async fn proven(app: &App, sweeps: &mut Sweeps, by_uptime: u64) -> Result<u64, Error> {
    let uptime = app.uptime();
    let by_days = match sweeps.by_days {
        Some((at, row)) if uptime.saturating_sub(at) < DAYS_EVERY => row,
        Some(_) | None => {
            // The first and the last day are not whole.
            let days = kept(app).as_millis().div_ceil(DAY_MILLIS) + 1;
            let days = u32::try_from(days).unwrap_or(u32::MAX);
            let found = app.store().read(move |view| view.row_before_days(days)).await;
            let row = Result::<_, StoreError>::map_err(found, Error::Store)?.unwrap_or(0);
            sweeps.by_days = Some((uptime, row));
            row
        }
    };
    Ok(by_days.max(by_uptime))
}

/// A day in milliseconds.
const DAY_MILLIS: u128 = 86_400_000;

/// Removes some of the answers that were kept for long enough: by the clock, and by the time that
/// this process has run since, or by as many days of the journal. Whether there may be more.
pub(crate) async fn sweep(app: &App, sweeps: &mut Sweeps) -> Result<bool, Error> {
    let uptime = app.uptime();
    if uptime < sweeps.next_at {
        return Ok(false);
    }
    let before = app.server_now().plus_millis(-app.env().answers_kept_millis);
    let found = app.store().read(move |view| {
        Ok::<_, StoreError>((view.journal_end()?.0, view.outdated_answers(before, SWEPT_MAX)?))
    });
    let (end, outdated) = found.await.map_err(Error::Store)?;
    let by_uptime = sweeps.end_before(kept(app), uptime, end);
    let row = match outdated.is_empty() {
        true => by_uptime,
        false => proven(app, sweeps, by_uptime).await?,
    };
    let is_full = outdated.len() == SWEPT_MAX as usize;
    let (old, young): (Vec<_>, Vec<_>) = outdated.into_iter().partition(|it| it.seq <= row);
    let days = match is_full {
        // Answers of these days are still there.
        true => Vec::new(),
        false => {
            let before = young.first().map_or(before, |first| first.at);
            let days = app.store().read(move |view| view.outdated_days(before, SWEPT_MAX)).await;
            days.map_err(Error::Store)?
        }
    };
    let more = is_full && !old.is_empty();
    if !old.is_empty() || !days.is_empty() {
        let scopes: Vec<Scope> = old.iter().map(|it| it.scope).collect();
        let remove = move |unit: &mut Unit<'_, '_>| {
            days.iter().for_each(|day| unit.erase_key(*day));
            unit.remove_answers(&scopes, before)
        };
        app.store().write_behind(app.origin(), remove).await.map_err(Error::Store)?;
    }
    let more = sweep_nonces(app).await? || more;
    if !more {
        sweeps.next_at = uptime.saturating_add(SWEEP_EVERY);
    }
    Ok(more)
}

/// Removes some of the nonces whose signatures are too old to be taken. Whether there may be more.
async fn sweep_nonces(app: &App) -> Result<bool, Error> {
    let before = peers::nonces_since(app.server_now());
    let outdated = app.store().read(move |view| view.outdated_nonces(before, SWEPT_MAX)).await;
    let outdated: Vec<Scope> = outdated.map_err(Error::Store)?;
    let more = outdated.len() == SWEPT_MAX as usize;
    if !outdated.is_empty() {
        let remove = move |unit: &mut Unit<'_, '_>| unit.remove_answers(&outdated, before);
        app.store().write_behind(app.origin(), remove).await.map_err(Error::Store)?;
    }
    Ok(more)
}
