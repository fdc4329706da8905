//! Due jobs: each step takes the timers that are due and runs their jobs. No loop and no
//! sleep is here; the binary has the one loop, and tests move the clock.
//!
//! A step never waits for the outside: calls that take time go on beside it (`ask`), and their
//! timers are left alone until they have ended.

mod ask;

use std::collections::HashSet;

use domain::clock::Ahead;
use domain::platform::Platform;
use domain::time::Timestamp;
use store::error::StoreError;
use store::origin::Actor;
use store::timers::{Due, Timer, TimerKey, TimerKind};
use tokio::task::JoinSet;

use crate::app::App;
use crate::error::{AccountError, Error};
use crate::leadership::{self, Leadership};
use crate::rail_orders::{Order, order};
use crate::uma::post_transaction;
use crate::{bulk, expiry, sweeps};

/// Timers taken at a time: enough that the writer does not run out of jobs while others go to it
/// and back.
const TIMERS_MAX: usize = 256;

/// Timers of a step at most: some tenths of a second of a busy server, as long as one that is to
/// stop can wait for it.
const STEP_TIMERS_MAX: usize = 1_024;

/// How long after a failure of ours a timer is tried again, in milliseconds.
const RETRY_MILLIS: i64 = 1_000;

/// The same where a bank did not answer an account check, which nothing waits for.
const NO_REPORT_RETRY_MILLIS: i64 = 60_000;

/// The same where a row cannot be read: an operator must repair it first, and each try costs those
/// who share the transaction another one.
const UNREADABLE_RETRY_MILLIS: i64 = 60_000;

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Timers that were due and are done.
    pub done: usize,
    /// Timers that were due and could not be worked off; they are due again soon.
    pub failed: usize,
    /// Timers whose calls to the outside have begun or wait for their turn.
    pub under_way: usize,
    /// Whether more may be due already.
    pub more: bool,
    /// Whether this server leads; if not, another one runs due jobs.
    pub is_ours: bool,
}

/// Runs the jobs that are due now, unless another server leads. One step at a time: a job is not
/// begun twice by one server.
pub async fn step(app: &App) -> Result<Step, Error> {
    let app = &app.acting_for(Actor::job("JOBS"), None);
    let mut steps = app.steps().lock().await;
    let Some(leadership) = leadership::hold(app).await? else {
        return Ok(Step { done: 0, failed: 0, under_way: 0, more: false, is_ours: false });
    };
    app.store().meet_others().await.map_err(Error::Store)?;
    steps.clock.follow(app, leadership).await?;
    let mut work = Work::default();
    let more = work.take_all(app, leadership).await;
    // Jobs that have begun are finished, whatever keeps this server from taking more.
    work.wait(0).await;
    let mut more = more?;
    more |= sweeps::sweep(app, &mut steps.sweeps).await?;
    let Work { done, failed, under_way, .. } = work;
    Ok(Step { done, failed, under_way, more, is_ours: true })
}

/// Waits until no call of a job is under way.
pub async fn settled(app: &App) {
    loop {
        let ended = app.bulkheads().ended();
        if app.bulkheads().under_way().is_empty() {
            return;
        }
        ended.await;
    }
}

/// Gives up the calls that are under way. For a server that stops: the next leader asks again.
pub fn give_up_calls(app: &App) {
    app.bulkheads().stop();
}

/// When the next timer is due whose call is not under way, by the server's clock.
pub fn next_due(app: &App) -> Option<Timestamp> {
    app.store().next_due(&app.bulkheads().under_way())
}

/// The end of a job, as far as its step is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Its effect is kept.
    Done,
    /// It failed, and its timer was set anew.
    Failed,
    /// It goes on beside the step.
    UnderWay,
}

/// The work of a step.
#[derive(Default)]
struct Work {
    taken: HashSet<TimerKey>,
    running: JoinSet<Ended>,
    done: usize,
    failed: usize,
    under_way: usize,
}

impl Work {
    /// Takes due timers, and says whether there may be more. More is taken as soon as half of them
    /// are done. The writer then has jobs beside requests all the time: payments settle about as
    /// fast as they are accepted. A step of what was due at its beginning would wait for its last
    /// before the next.
    async fn take_all(&mut self, app: &App, leadership: Leadership) -> Result<bool, Error> {
        loop {
            // Jobs that run or have failed are still in the table, and were taken.
            let ended = self.done.saturating_add(self.under_way);
            let limit = self.taken.len().saturating_sub(ended).saturating_add(TIMERS_MAX);
            let Due { mut timers, .. } = due(app, app.server_now(), limit).await?;
            let more = timers.len() == limit;
            timers.retain(|timer| self.taken.insert(timer.key()));
            let goes_on = more && !timers.is_empty() && self.taken.len() < STEP_TIMERS_MAX;
            for ordered in with_orders(app, timers).await? {
                let app = app.acting_for(Actor::job(ordered.0.kind.name()), None);
                self.running.spawn(async move { run_job(&app, leadership, ordered).await });
            }
            if !goes_on {
                return Ok(more);
            }
            self.wait(TIMERS_MAX / 2).await;
        }
    }

    /// Waits until no more than this many jobs run.
    async fn wait(&mut self, left: usize) {
        while self.running.len() > left
            && let Some(result) = self.running.join_next().await
        {
            match result {
                Ok(Ended::Done) => self.done += 1,
                Ok(Ended::UnderWay) => self.under_way += 1,
                Ok(Ended::Failed) | Err(_) => self.failed += 1,
            }
        }
    }
}

/// The due timers, up to a limit.
async fn due(app: &App, now: Timestamp, limit: usize) -> Result<Due, Error> {
    let under_way = app.bulkheads().under_way();
    let due = app.store().due_timers(now, limit, &under_way).await.map_err(Error::Store)?;
    let overdue_millis = now.millis().saturating_sub(due.since.unwrap_or(now).millis());
    metrics::gauge!("switchyard_timers_oldest_seconds").set(overdue_millis as f64 / 1_000.0);
    Ok(due)
}

/// A timer with what the rail is to be asked, or why that cannot be made out.
type Ordered = (Timer, Result<Option<Order>, Error>);

/// Timers with what the rail is to be asked. An order that cannot be made out is that timer's
/// failure alone: where rows are fetched together, those are halved until it stands alone.
async fn with_orders(app: &App, due: Vec<Timer>) -> Result<Vec<Ordered>, Error> {
    let mut ordered = Vec::with_capacity(due.len());
    let mut parts = vec![due];
    while let Some(mut part) = parts.pop() {
        match orders_of(app, part.clone()).await {
            Ok(found) => ordered.extend(found),
            Err(error) if !error.is_of_a_row() => return Err(error),
            Err(error) if part.len() == 1 => {
                ordered.extend(part.pop().map(|timer| (timer, Err(error))));
            }
            Err(_) => {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
            }
        }
    }
    Ok(ordered)
}

/// The orders of timers. They are read by the writer, which has changed most of the rows just
/// before.
async fn orders_of(app: &App, due: Vec<Timer>) -> Result<Vec<Ordered>, Error> {
    if due.is_empty() {
        return Ok(Vec::new());
    }
    app.write(move |unit| {
        let mut orders = Vec::with_capacity(due.len());
        let mut first_wait = Ok(());
        for timer in &due {
            let order = match timer.kind {
                TimerKind::AskRail => order(unit, timer),
                TimerKind::ExpireQuote
                | TimerKind::ExpireInvitation
                | TimerKind::ExpireIdentityCheck
                | TimerKind::AskAccount
                | TimerKind::NotifyPeer
                | TimerKind::DecidePayment
                | TimerKind::ImportCustomers => Ok(None),
            };
            // All are gone through even so, so that what they wait for is fetched together.
            if matches!(order, Err(Error::Store(StoreError::NotFetched))) {
                first_wait = Err(StoreError::NotFetched);
            }
            orders.push((timer.clone(), order));
        }
        first_wait?;
        Ok(orders)
    })
    .await
}

/// Works one timer off. A failure is logged and the timer is due again later.
async fn run_job(app: &App, leadership: Leadership, (timer, order): Ordered) -> Ended {
    let done = |()| Ended::Done;
    let result = match (timer.kind, order) {
        (_, Err(error)) => Err(error),
        (
            TimerKind::ExpireQuote
            | TimerKind::ExpireInvitation
            | TimerKind::ExpireIdentityCheck
            | TimerKind::DecidePayment,
            Ok(_),
        ) => end_due(app, leadership, &timer).await.map(done),
        (TimerKind::ImportCustomers, Ok(_)) => bulk::step(app, leadership, &timer).await.map(done),
        (TimerKind::NotifyPeer, Ok(_)) => {
            post_transaction::begin(app, leadership, &timer).await.map(done)
        }
        (TimerKind::AskAccount, Ok(_)) => ask::about_account(app, leadership, &timer).await,
        (TimerKind::AskRail, Ok(order)) => {
            ask::about_transaction(app, leadership, &timer, order).await
        }
    };
    match result {
        Ok(ended) => ended,
        Err(error) => {
            fail(app, leadership, &timer, &error).await;
            Ended::Failed
        }
    }
}

/// Logs the failure of a job, and sets its timer anew.
async fn fail(app: &App, leadership: Leadership, timer: &Timer, error: &Error) {
    if matches!(error, Error::Superseded) {
        tracing::warn!(subject = %timer.subject, "lost the leader lease while a job ran");
        app.set_leadership(None);
        return;
    }
    let has_no_report = matches!(error, Error::Account(AccountError::NoReport));
    // The check of an account is logged where it was made.
    if !has_no_report {
        let (kind, subject) = (timer.kind.name(), &timer.subject);
        tracing::error!(kind, %subject, %error, "a timer failed");
    }
    let after = match error.is_of_a_row() {
        true => UNREADABLE_RETRY_MILLIS,
        false if has_no_report => NO_REPORT_RETRY_MILLIS,
        false => RETRY_MILLIS,
    };
    let (unit_app, timer) = (app.clone(), timer.clone());
    let moved = app
        .write_behind(move |unit| {
            leadership.check(&unit_app, unit)?;
            // A platform's row that cannot be read is perhaps why it failed.
            let ahead = match unit.get::<Platform>(&timer.platform) {
                Err(StoreError::NotFetched) => return Err(StoreError::NotFetched.into()),
                found => found.ok().flatten().map_or(Ahead::NONE, |platform| platform.ahead),
            };
            unit.set_timer(timer.again(unit_app.now(ahead).plus_millis(after)));
            Ok::<_, Error>(())
        })
        .await;
    if let Err(error) = moved {
        tracing::error!(%error, "a timer could not be moved");
    }
}

/// Ends a resource whose time is over.
async fn end_due(app: &App, leadership: Leadership, timer: &Timer) -> Result<(), Error> {
    let (timer, unit_app, server_now) = (timer.clone(), app.clone(), app.server_now());
    app.write_behind(move |unit| {
        leadership.check(&unit_app, unit)?;
        expiry::end(&unit_app, unit, &timer, server_now)
    })
    .await
}
