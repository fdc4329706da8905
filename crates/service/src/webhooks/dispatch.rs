//! Delivers events (contract 7.4; reliability 5.2): the worker of the outbox.
//!
//! Each event has a row in `deliveries`, committed with it. The leader reads those that are due,
//! attempts them, and writes the outcomes of many attempts in one unit of work. An outcome that was
//! not written when the process died is attempted again: at least once. No loop and no sleep is
//! here.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use domain::delivery::{Delivery, Verdict};
use domain::id::{DeliveryId, PlatformId};
use domain::platform::Platform;
use domain::time::Timestamp;
use store::events::{Endpoint, Outbox};
use store::outbox::Due;
use store::unit::Unit;
use tokio::task::JoinSet;

use crate::app::App;
use crate::error::Error;
use crate::leadership::{self, Leadership};
use crate::webhooks::exchange::{Exchange, exchange};
use crate::webhooks::queue::{Attempted, Changes, Loaded, Made, Queue, What};
use crate::webhooks::signature::Signer;

/// How long an outcome stays unwritten while attempts go on, in milliseconds.
const WRITTEN_WITHIN: i64 = 100;

/// Changes that are written in one unit of work, unless one platform has more.
const WRITTEN_MAX: usize = 1_024;

/// Deliveries of an endpoint that is gone that are given up in one step.
const GIVEN_UP_MAX: u32 = 512;

/// How often the backlog is counted, in milliseconds.
const MEASURED_EVERY: i64 = 10_000;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Whether this server delivers; if not, another one does.
    pub is_ours: bool,
    /// Whether there is more to do already.
    pub more: bool,
    /// When there is something to do, by the server's clock, if nothing happens before.
    pub next: Option<Timestamp>,
}

/// Changes of some platforms.
type Batch = Arc<Vec<(PlatformId, Changes)>>;

/// Delivers the events of all platforms.
pub struct Dispatcher {
    app: App,
    leadership: Option<Leadership>,
    queues: HashMap<PlatformId, Queue>,
    attempts: JoinSet<Made>,
    /// Changes that could not be written yet.
    unwritten: Option<Batch>,
    measured_at: Option<Timestamp>,
    /// Whether no attempt is begun any more.
    is_stopped: bool,
}

impl Dispatcher {
    /// One that has nothing to do yet.
    pub fn new(app: App) -> Self {
        Self {
            app,
            leadership: None,
            queues: HashMap::new(),
            attempts: JoinSet::new(),
            unwritten: None,
            measured_at: None,
            is_stopped: false,
        }
    }

    /// Begins the attempts whose turn it is as others end, until there is something for a step to
    /// do or none is under way any more; for ever if none is from the start.
    pub async fn attempted(&mut self) {
        loop {
            let Some(ended) = self.attempts.join_next().await else {
                return std::future::pending().await;
            };
            if ended.is_ok_and(|made| self.ended(made)) || self.attempts.is_empty() {
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
        if !self.leadership.is_some_and(|known| known.is_of(leadership)) {
            self.forget();
            self.leadership = Some(leadership);
        }
        while let Some(ended) = self.attempts.try_join_next() {
            if let Ok(made) = ended {
                self.ended(made);
            }
        }
        let written = self.write(leadership).await;
        if matches!(written, Err(Error::Superseded)) {
            self.forget();
        }
        written?;
        let due = self.meanwhile(app.store().read(|view| view.due())).await;
        let due = due.map_err(Error::Store)?;
        for due in &due {
            self.refresh(due).await?;
        }
        self.measure().await?;
        let more = self
            .queues
            .values()
            .any(|queue| queue.has_changes() || (!self.is_stopped && queue.is_busy()));
        Ok(Step { is_ours: true, more, next: self.next_at(&due) })
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
            // What is due and here is attempted as others end.
            (next_at > now || queue.is_empty()).then_some(next_at)
        });
        let ends_at = now.plus_millis(WRITTEN_WITHIN);
        next.chain((self.under_way() > 0).then_some(ends_at)).min()
    }

    /// Drops everything: another server goes on.
    fn forget(&mut self) {
        self.leadership = None;
        self.queues.clear();
        self.unwritten = None;
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
                    if let Ok(made) = ended {
                        self.ended(made);
                    }
                }
            }
        }
    }

    /// Learns from an attempt, and begins the next one. Whether there is something for a step.
    fn ended(&mut self, made: Made) -> bool {
        let id = made.platform;
        let schedule = self.app.env().webhooks.schedule;
        let Some(queue) = self.queues.get_mut(&id) else { return false };
        let now = self.app.now(queue.platform.ahead);
        let outcome = match queue.ended(made, &schedule, now) {
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
        while let Some(batch) = self.unwritten.take().or_else(|| self.next_batch()) {
            // Tried again with the next step if anything fails.
            self.unwritten = Some(Arc::clone(&batch));
            let released = self.released(&batch).await?;
            let (app, changes) = (self.app.clone(), Arc::clone(&batch));
            let unit_app = app.clone();
            let write = app.store().write(move |unit| {
                leadership.check(&unit_app, unit)?;
                changes.iter().try_for_each(|(id, changes)| write_changes(unit, *id, changes))?;
                release(unit, &released)
            });
            self.meanwhile(write).await?;
            self.unwritten = None;
            for (id, changes) in batch.iter() {
                if let Some(queue) = self.queues.get_mut(id) {
                    queue.written(changes);
                }
            }
        }
        Ok(())
    }

    /// Takes changes of some platforms.
    fn next_batch(&mut self) -> Option<Batch> {
        let (mut batch, mut count) = (Vec::new(), 0);
        for (id, queue) in &mut self.queues {
            if count < WRITTEN_MAX && queue.has_changes() {
                let changes = queue.take_changes();
                count += changes.changes.len();
                batch.push((*id, changes));
            }
        }
        (!batch.is_empty()).then(|| Arc::new(batch))
    }

    /// The held deliveries that are held no longer once these changes are written.
    async fn released(&mut self, batch: &Batch) -> Result<Vec<DeliveryId>, Error> {
        let resources = batch.iter().flat_map(|(_, changes)| changes.released.iter().copied());
        let resources: Vec<_> = resources.collect();
        if resources.is_empty() {
            return Ok(Vec::new());
        }
        let app = self.app.clone();
        let read = app.store().read(move |view| {
            let mut held = Vec::new();
            for resource in resources {
                held.extend(view.held_deliveries(resource)?);
            }
            Ok(held)
        });
        self.meanwhile(read).await.map_err(Error::Store)
    }

    /// Brings the queue of a platform up to date, and begins attempts.
    async fn refresh(&mut self, due: &Due) -> Result<(), Error> {
        let Outbox { platform: id, revision, endpoint, .. } = due.outbox;
        if !self.queues.contains_key(&id) && due.next_at.is_none() && !due.has_held {
            return Ok(());
        }
        let app = self.app.clone();
        if self.queues.get(&id).is_none_or(|queue| queue.revision != revision) {
            let found = app.store().read(move |view| view.get::<Platform>(&id));
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
        let now = app.now(queue.platform.ahead);
        match endpoint {
            Endpoint::Open => {
                self.read(id, due.next_at, now).await?;
            }
            Endpoint::Gone | Endpoint::None => {
                queue.close();
                if due.next_at.is_some() || due.has_held {
                    self.give_up(id, now).await?;
                }
            }
        }
        self.begin(id);
        Ok(())
    }

    /// Reads deliveries of a platform that are due.
    async fn read(
        &mut self,
        id: PlatformId,
        next_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(()) };
        let recovered_at = queue.pace.recovered_at;
        let is_due = next_at.is_some_and(|next_at| next_at <= now || recovered_at.is_some());
        let Some(limit) = queue.reads(now).filter(|_| is_due && !self.is_stopped) else {
            queue.has_more &= is_due && !queue.pace.is_paused(now);
            return Ok(());
        };
        let app = self.app.clone();
        let (limit, known) = (u32::try_from(limit).unwrap_or(u32::MAX), queue.known.clone());
        let found =
            app.store().read(move |view| view.due_deliveries(id, now, recovered_at, &known, limit));
        let (found, has_more) = self.meanwhile(found).await.map_err(Error::Store)?;
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(()) };
        queue.has_more = has_more;
        if !has_more && queue.pace.recovered_at == recovered_at {
            queue.pace.recovered_at = None;
        }
        queue.accept(found, now);
        Ok(())
    }

    /// Gives up some deliveries of an endpoint that is gone.
    async fn give_up(&mut self, id: PlatformId, now: Timestamp) -> Result<(), Error> {
        let app = self.app.clone();
        let found = app.store().read(move |view| view.pending_deliveries(id, now, GIVEN_UP_MAX));
        let found = self.meanwhile(found).await.map_err(Error::Store)?;
        if let Some(queue) = self.queues.get_mut(&id) {
            found.iter().for_each(|delivery| queue.give_up(delivery, now));
        }
        Ok(())
    }

    /// Begins every attempt at a platform's endpoint whose turn it is.
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

    /// Tells how much waits, and for how long.
    async fn measure(&mut self) -> Result<(), Error> {
        let now = self.app.server_now();
        if self.measured_at.is_some_and(|at| now < at.plus_millis(MEASURED_EVERY)) {
            return Ok(());
        }
        self.measured_at = Some(now);
        let app = self.app.clone();
        let found = self.meanwhile(app.store().read(|view| view.backlog())).await;
        let (count, oldest) = found.map_err(Error::Store)?;
        let age = oldest.map_or(0, |at| now.millis().saturating_sub(at.millis()).max(0));
        metrics::gauge!("switchyard_webhook_pending").set(count as f64);
        metrics::gauge!("switchyard_webhook_oldest_seconds").set(age as f64 / 1_000.0);
        Ok(())
    }
}

/// Writes what happened to deliveries of a platform.
fn write_changes(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    Changes { changes, released, gone_at }: &Changes,
) -> Result<(), Error> {
    let ids: Vec<_> = changes.iter().map(|change| change.id).collect();
    unit.get_all::<Delivery>(&ids)?;
    for change in changes {
        let Some(delivery) = unit.get::<Delivery>(&change.id)? else { continue };
        let delivery = Delivery::clone(&delivery);
        match &change.what {
            What::Happened(event) => {
                // One that has ended meanwhile stays as it is.
                if let Ok(moved) = delivery.apply(event.clone(), change.at) {
                    unit.move_delivery(moved);
                }
            }
            // Its turn may have come meanwhile: it is read again.
            What::Held if released.contains(&change.resource) => {}
            What::Held => unit.put_delivery(delivery.held()),
        }
    }
    let outbox = unit.outbox(platform)?;
    // A change since then may have set another address.
    if *gone_at == Some(outbox.revision) && outbox.endpoint == Endpoint::Open {
        unit.put_outbox(Outbox { endpoint: Endpoint::Gone, ..outbox });
    }
    Ok(())
}

/// Lets held deliveries have their turn.
fn release(unit: &mut Unit<'_, '_>, ids: &[DeliveryId]) -> Result<(), Error> {
    unit.get_all::<Delivery>(ids)?;
    for id in ids {
        if let Some(delivery) = unit.get::<Delivery>(id)?
            && delivery.progress().is_held
        {
            unit.put_delivery(Delivery::clone(&delivery).released());
        }
    }
    Ok(())
}

/// Makes one attempt.
async fn attempt(app: App, platform: Arc<Platform>, signer: Arc<Signer>, loaded: Loaded) -> Made {
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
    Made { platform: id, loaded, endpoint, attempted }
}
