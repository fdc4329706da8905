//! The webhook worker (contract 7.4; reliability 5.2): it delivers what is in the outbox.
//!
//! Each event has a row in `deliveries`, committed with it. The leader attempts due deliveries, and
//! writes the outcomes of many attempts in one unit of work. For an endpoint that keeps up it takes
//! deliveries from memory as they are committed, otherwise from the table. A delivery whose outcome
//! was not written when the process died is attempted again: at least once. No loop and no sleep is
//! here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use domain::clock::STEP_ABSORBED_MILLIS;
use domain::delivery::{Delivery, Plan, Status, Verdict};
use domain::id::{DeliveryId, PlatformId};
use domain::platform::Platform;
use domain::time::Timestamp;
use store::committed_deliveries::Committed;
use store::events::{Endpoint, Outbox};
use store::origin::Actor;
use store::outbox::{Due, DueBy, DueDeliveries};
use store::unit::Unit;
use tokio::task::JoinSet;

use crate::app::{App, Outcome};
use crate::attention;
use crate::error::Error;
use crate::leadership::{self, Leadership};
use crate::webhooks::exchange::{Exchange, exchange};
use crate::webhooks::queue::{Attempted, Change, Ended, Loaded, Queue, What};
use crate::webhooks::signature::Signer;

/// How long an outcome stays unwritten while attempts go on, in milliseconds.
const WRITTEN_WITHIN: i64 = 100;

/// Changes that are written in one unit of work.
const WRITTEN_MAX: usize = 1_024;

/// How often the tables are read for what other processes have committed.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The same where other servers commit all the time.
const SHARED_READ_EVERY: Duration = Duration::from_millis(50);

/// How often the backlog is counted.
const MEASURED_EVERY: Duration = Duration::from_secs(10);

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Whether this server delivers; if not, another one does.
    pub is_ours: bool,
    /// Whether there is more to do already.
    pub more: bool,
    /// When there is something to do, by the server's clock, if nothing happens before.
    pub next: Option<Timestamp>,
}

/// Delivers the events of all platforms.
pub struct Dispatcher {
    app: App,
    leadership: Option<Leadership>,
    queues: HashMap<PlatformId, Queue>,
    attempts: JoinSet<Ended>,
    /// Changes that could not be written yet, oldest first.
    unwritten: Vec<Change>,
    measured_at: Option<Duration>,
    /// When the tables were read last, if nothing was missed since.
    read_at: Option<Duration>,
    /// The revision of each outbox then.
    revisions: HashMap<PlatformId, i64>,
    /// The server's clock at the last step.
    seen_at: Option<Timestamp>,
    /// Whether no attempt is begun any more.
    is_stopped: bool,
}

impl Dispatcher {
    /// One that has nothing to do yet.
    pub fn new(app: App) -> Self {
        Self {
            app: app.acting_for(Actor::job("DELIVER_EVENTS"), None),
            leadership: None,
            queues: HashMap::new(),
            attempts: JoinSet::new(),
            unwritten: Vec::new(),
            measured_at: None,
            read_at: None,
            revisions: HashMap::new(),
            seen_at: None,
            is_stopped: false,
        }
    }

    /// Begins attempts as others end, until there is something for a step to do or none is under
    /// way any more; for ever if none is from the start.
    pub async fn attempted(&mut self) {
        loop {
            let Some(ended) = self.attempts.join_next().await else {
                return std::future::pending().await;
            };
            if ended.is_ok_and(|ended| self.ended(ended)) || self.attempts.is_empty() {
                return;
            }
        }
    }

    /// How many attempts are under way.
    pub fn under_way(&self) -> usize {
        self.attempts.len()
    }

    /// Writes outcomes, reads what is due and begins attempts, unless another server does.
    pub async fn step(&mut self) -> Result<Step, Error> {
        let app = self.app.clone();
        let Some(leadership) = self.meanwhile(leadership::hold(&app)).await? else {
            self.forget();
            return Ok(Step { is_ours: false, more: false, next: None });
        };
        let (now, seen_at) = (app.server_now(), self.seen_at);
        self.seen_at = Some(now);
        // Pauses of a clock that was ahead would last until it shows that time again.
        let was_set_back = seen_at.is_some_and(|at| at > now.plus_millis(STEP_ABSORBED_MILLIS));
        if was_set_back || !self.leadership.is_some_and(|known| known.is_of(leadership)) {
            self.forget();
            self.leadership = Some(leadership);
        }
        self.take_committed();
        while let Some(ended) = self.attempts.try_join_next() {
            if let Ok(ended) = ended {
                self.ended(ended);
            }
        }
        self.log_failing().await?;
        let written = self.write(leadership).await;
        if matches!(written, Err(Error::Superseded)) {
            self.forget();
        }
        written?;
        let due = match self.is_read_due() {
            true => self.read_due().await?,
            false => Vec::new(),
        };
        self.measure().await?;
        // No step reads the table while it stands still.
        let may_read = !self.is_stopped && !app.store().lag().is_late();
        let more = self
            .queues
            .values()
            .any(|queue| !queue.changes.is_empty() || (may_read && queue.is_busy()));
        Ok(Step { is_ours: true, more, next: self.next_at(&due) })
    }

    /// Takes deliveries that were committed since the last step.
    fn take_committed(&mut self) {
        let Some(committed) = self.app.store().committed_deliveries().take() else {
            // Some were dropped, of whatever platform.
            self.queues.values_mut().for_each(|queue| queue.is_current = false);
            self.read_at = None;
            return;
        };
        let (mut taken, mut is_missed) = (BTreeSet::new(), false);
        for committed in committed {
            let is_known = match committed {
                Committed::Delivery(delivery, event, revision) => {
                    let id = event.platform;
                    self.queues.get_mut(&id).is_some_and(|queue| {
                        taken.insert(id);
                        let now = self.app.now(queue.platform.ahead);
                        queue.take(delivery, event, revision, now)
                    })
                }
                Committed::Outbox(id, revision) => self.revisions.get(&id) == Some(&revision),
            };
            is_missed |= !is_known;
        }
        if is_missed {
            self.read_at = None;
        }
        taken.into_iter().for_each(|id| self.begin(id));
    }

    /// Whether the tables are to be read.
    fn is_read_due(&self) -> bool {
        let every = match self.app.env().shares_database {
            true => SHARED_READ_EVERY,
            false => READ_EVERY,
        };
        let uptime = self.app.uptime();
        let is_current = self.queues.values().all(|queue| queue.is_current);
        let is_due = || self.read_at.is_none_or(|at| uptime >= at.saturating_add(every));
        // Deliveries in memory leave also while the tables stand still.
        !self.app.store().lag().is_late() && (!is_current || is_due())
    }

    /// Brings all queues up to date.
    async fn read_due(&mut self) -> Result<Vec<Due>, Error> {
        let (app, uptime) = (self.app.clone(), self.app.uptime());
        let due = self.meanwhile(app.store().read(|view| view.due())).await;
        let due = due.map_err(Error::Store)?;
        for due in &due {
            self.refresh(due).await?;
        }
        let outboxes = due.iter().map(|due| (due.outbox.platform, due.outbox.revision));
        (self.read_at, self.revisions) = (Some(uptime), outboxes.collect());
        Ok(due)
    }

    /// Begins nothing any more. The next step writes every outcome.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// When there is something for the next step to do, if nothing happens before.
    fn next_at(&self, due: &[Due]) -> Option<Timestamp> {
        let now = self.app.server_now();
        let next = due.iter().filter_map(|due| {
            let queue = self.queues.get(&due.outbox.platform)?;
            let paused_until = queue.pace.paused_until().filter(|_| !queue.is_gone);
            let next_at = paused_until.max(due.next_at).filter(|_| due.next_at.is_some())?;
            let next_at = queue.platform.ahead.on_server(next_at);
            // Deliveries that are due and here are attempted as others end.
            (next_at > now || queue.is_empty()).then_some(next_at)
        });
        let ends_at = now.plus_millis(WRITTEN_WITHIN);
        next.chain((self.under_way() > 0).then_some(ends_at)).min()
    }

    /// Drops everything: another server goes on.
    fn forget(&mut self) {
        self.leadership = None;
        self.queues.clear();
        self.read_at = None;
        self.unwritten.clear();
        self.attempts.abort_all();
        self.attempts = JoinSet::new();
    }

    /// Does something that takes time; attempts go on meanwhile.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                Some(ended) = self.attempts.join_next() => {
                    if let Ok(ended) = ended {
                        self.ended(ended);
                    }
                }
            }
        }
    }

    /// Learns from an attempt, and begins the next one. Whether there is something for a step.
    fn ended(&mut self, ended: Ended) -> bool {
        let id = ended.platform;
        let schedule = self.app.env().webhooks.schedule;
        let Some(queue) = self.queues.get_mut(&id) else { return false };
        let now = self.app.now(queue.platform.ahead);
        let outcome = match queue.ended(ended, &schedule, now) {
            Some(Verdict::Received) => "received",
            Some(Verdict::Gone) => "gone",
            Some(Verdict::Failed) => "failed",
            None => "unreadable",
        };
        metrics::counter!("switchyard_webhook_attempts_total", "outcome" => outcome).increment(1);
        self.begin(id);
        self.queues.get(&id).is_some_and(Queue::is_busy)
    }

    /// Writes everything that has happened, many platforms in one unit of work.
    async fn write(&mut self, leadership: Leadership) -> Result<(), Error> {
        for queue in self.queues.values_mut() {
            self.unwritten.append(&mut queue.changes);
        }
        while !self.unwritten.is_empty() {
            let count = self.unwritten.len().min(WRITTEN_MAX);
            let changes: Arc<[Change]> = self.unwritten[..count].into();
            let (app, unit_changes) = (self.app.clone(), Arc::clone(&changes));
            let unit_app = app.clone();
            let write = app.store().write(app.origin(), move |unit| {
                leadership.check(&unit_app, unit)?;
                write_changes(unit, &unit_changes)?;
                Ok::<_, Error>(Outcome::of(unit))
            });
            // The next step tries again if this fails.
            let outcome = self.meanwhile(write).await?;
            app.committed(&outcome);
            self.unwritten.drain(..count);
            for change in &*changes {
                if let Some(queue) = self.queues.get_mut(&change.platform) {
                    queue.written(change);
                }
            }
        }
        Ok(())
    }

    /// Brings the queue of a platform up to date, and begins attempts.
    async fn refresh(&mut self, due: &Due) -> Result<(), Error> {
        let Outbox { platform: id, revision, endpoint, .. } = due.outbox;
        let is_idle = due.next_at.is_none() && endpoint != Endpoint::Open;
        if !self.queues.contains_key(&id) && is_idle {
            return Ok(());
        }
        let app = self.app.clone();
        if self.queues.get(&id).is_none_or(|queue| queue.revision != revision) {
            let found = app.store().get::<Platform>(id);
            let Some(platform) = self.meanwhile(found).await.map_err(Error::Store)? else {
                return Err(Error::Internal(format!("{id} has events and is not there")));
            };
            let signer = Arc::new(Signer::of(&app, &platform, app.now(platform.ahead)));
            match self.queues.get_mut(&id) {
                Some(queue) => queue.changed(platform, signer, revision),
                None => {
                    self.queues.insert(id, Queue::new(platform, signer, revision));
                }
            }
        }
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(()) };
        if endpoint != Endpoint::Open {
            queue.close();
            if is_idle && queue.is_empty() && queue.changes.is_empty() {
                self.queues.remove(&id);
                return Ok(());
            }
        }
        self.read(id, due.next_at).await?;
        self.begin(id);
        Ok(())
    }

    /// Reads deliveries of a platform that are due; all of one whose endpoint is gone.
    async fn read(&mut self, id: PlatformId, next_at: Option<Timestamp>) -> Result<(), Error> {
        let app = self.app.clone();
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(()) };
        let now = app.now(queue.platform.ahead);
        let everything = queue.is_gone.then_some(Timestamp::from_millis(i64::MAX));
        let untouched_since = everything.or(queue.recovered_at);
        let is_due = next_at.is_some_and(|next_at| next_at <= now || untouched_since.is_some());
        let Some(limit) = queue.reads(now).filter(|_| is_due && !self.is_stopped) else {
            queue.has_more &= is_due && !queue.pace.is_paused(now);
            queue.is_current = next_at.is_none() && !queue.is_gone;
            return Ok(());
        };
        let (limit, known) = (u32::try_from(limit).unwrap_or(u32::MAX), queue.known.clone());
        let by = DueBy { now, untouched_since };
        let found = app.store().read(move |view| view.due_deliveries(id, by, &known, limit));
        let found = self.meanwhile(found).await.map_err(Error::Store)?;
        let DueDeliveries { deliveries, has_more, has_later } = found;
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(()) };
        queue.has_more = has_more;
        queue.is_current = !has_more && !has_later && !queue.is_gone;
        let is_any_attempted = queue.accept(deliveries, now);
        if queue.recovered_at == untouched_since && !(has_more && is_any_attempted) {
            queue.recovered_at = None;
        }
        Ok(())
    }

    /// Begins every attempt at a platform's endpoint that may be made now.
    fn begin(&mut self, id: PlatformId) {
        if self.is_stopped {
            return;
        }
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let now = self.app.now(queue.platform.ahead);
        if queue.signer.is_over(now) {
            queue.signer = Arc::new(Signer::of(&self.app, &queue.platform, now));
        }
        let schedule = self.app.env().webhooks.schedule;
        while let Some(loaded) = queue.next(&schedule, now) {
            let (app, platform) = (self.app.clone(), Arc::clone(&queue.platform));
            let signer = Arc::clone(&queue.signer);
            self.attempts.spawn(attempt(app, platform, signer, loaded));
        }
    }

    /// Logs endpoints that began or stopped failing, with how many deliveries wait for them.
    async fn log_failing(&mut self) -> Result<(), Error> {
        let changed: Vec<_> = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.pace.is_worth_a_line() != queue.is_logged_failing)
            .map(|(id, _)| *id)
            .collect();
        for platform in changed {
            let app = self.app.clone();
            let waiting =
                self.meanwhile(app.store().read_lagging(move |view| view.backlog_of(platform)));
            let waiting = waiting.await.map_err(Error::Store)?;
            let Some(queue) = self.queues.get_mut(&platform) else { continue };
            queue.is_logged_failing = queue.pace.is_worth_a_line();
            if queue.is_logged_failing {
                tracing::warn!(%platform, waiting, "webhook endpoint began failing");
            } else {
                tracing::warn!(%platform, waiting, "webhook endpoint stopped failing");
            }
        }
        Ok(())
    }

    /// Measures how much waits, and for how long.
    async fn measure(&mut self) -> Result<(), Error> {
        let (now, uptime) = (self.app.server_now(), self.app.uptime());
        if self.measured_at.is_some_and(|at| uptime < at.saturating_add(MEASURED_EVERY)) {
            return Ok(());
        }
        self.measured_at = Some(uptime);
        let app = self.app.clone();
        let found = self.meanwhile(app.store().read_lagging(|view| view.backlog())).await;
        let (count, oldest) = found.map_err(Error::Store)?;
        let age = oldest.map_or(0, |at| now.millis().saturating_sub(at.millis()).max(0));
        metrics::gauge!("switchyard_webhook_pending").set(count as f64);
        metrics::gauge!("switchyard_webhook_oldest_seconds").set(age as f64 / 1_000.0);
        Ok(())
    }
}

/// Writes changes of deliveries.
fn write_changes(unit: &mut Unit<'_, '_>, changes: &[Change]) -> Result<(), Error> {
    let ids: Vec<_> = changes.iter().map(|change| change.id).collect();
    // The first read of all rows together fetches them in one statement.
    unit.get_all::<Delivery>(&ids)?;
    let mut dead = BTreeMap::<PlatformId, (u32, DeliveryId, Timestamp)>::new();
    for change in changes {
        let Some(delivery) = unit.get::<Delivery>(&change.id)? else { continue };
        let delivery = Delivery::clone(&delivery);
        match &change.what {
            What::Happened(event) => {
                // One that has ended meanwhile stays as it is.
                if let Ok(moved) = delivery.apply(event.clone(), change.at) {
                    if is_lost(moved.now()) {
                        let (count, last, at) =
                            dead.entry(change.platform).or_insert((0, change.id, change.at));
                        (*count, *last, *at) = (*count + 1, change.id, change.at);
                    }
                    unit.put_moved(moved);
                }
            }
            What::Rescheduled(due_at) => unit.put(delivery.rescheduled(*due_at)),
        }
        if let Some(revision) = change.gone_at {
            let outbox = unit.outbox(change.platform)?;
            // A change since then may have set another address.
            if revision == outbox.revision && outbox.endpoint == Endpoint::Open {
                unit.put(Outbox { endpoint: Endpoint::Gone, ..outbox });
            }
        }
    }
    for (platform, (count, last, at)) in dead {
        // A platform that has taken its endpoint away has given them up itself.
        if unit.outbox(platform)?.endpoint != Endpoint::Open {
            continue;
        }
        let note = format!("the last is {last}; POST /webhooks/replay sends them again");
        attention::notice_dead(unit, platform, count, &note, at)?;
    }
    Ok(())
}

/// Whether a delivery was given up after attempts that failed: its event was not received, and not
/// because the endpoint wants nothing any more.
fn is_lost(delivery: &Delivery) -> bool {
    let last = delivery.progress().attempts.last();
    delivery.status() == Status::Dead
        && delivery.draft().plan == Plan::Retried
        && last.is_some_and(|attempt| attempt.verdict(Plan::Retried) == Verdict::Failed)
}

/// Makes one attempt.
async fn attempt(app: App, platform: Arc<Platform>, signer: Arc<Signer>, loaded: Loaded) -> Ended {
    let endpoint = platform.webhook_endpoint.clone();
    let (id, delivery, event) = (platform.id, loaded.delivery.id(), loaded.event.clone());
    let exchanged = tokio::spawn(async move {
        let random = u64::from_be_bytes(app.random());
        let event = event?;
        let within = app.env().webhooks.within;
        let Exchange { attempt, retry_after, .. } =
            exchange(&app, &platform, &signer, &event, within).await;
        Some(Attempted { attempt, retry_after, random })
    });
    let attempted = exchanged.await.unwrap_or_else(|error| {
        // It would again, so there is no other.
        tracing::error!(%delivery, %error, "an attempt has panicked");
        None
    });
    Ended { platform: id, loaded, endpoint, attempted }
}
