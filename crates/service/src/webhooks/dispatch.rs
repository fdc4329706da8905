//! Delivers events (contract 7.4; reliability 5.2).
//!
//! One server of those that share a database delivers, by the lease under which it does what is due
//! ([`crate::tenure`]). Each step keeps what came of attempts and takes new events on, in one unit
//! of work, and then begins the attempts whose turn it is. Whatever is not kept when the process
//! dies is attempted again: at least once. No loop and no sleep is here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use domain::delivery::{self, Attempt, Delivery, Draft, Outcome, Plan, Schedule, Status, Verdict};
use domain::id::{DeliveryId, PlatformId};
use domain::platform::Platform;
use domain::time::Timestamp;
use store::deliveries::DeliveryFilter;
use store::error::StoreError;
use store::events::{Endpoint, Feed, Numbered, Outbox, Place};
use store::select::{Order, PageRequest};
use store::unit::Unit;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::app::App;
use crate::error::Error;
use crate::tenure::{self, Tenure};
use crate::webhooks::exchange::{Exchange, exchange};
use crate::webhooks::queue::{LOADED_MAX, Queue, Turn};
use crate::webhooks::signature::Signer;

/// Events of one platform that are taken on in one step.
const TAKEN_MAX: u32 = 512;

/// What came of one attempt.
#[derive(Clone)]
struct Made {
    platform: PlatformId,
    resource: Uuid,
    delivery: DeliveryId,
    /// Nothing if none could be made, as the event cannot be read.
    attempt: Option<Attempt>,
    /// For how many milliseconds the endpoint wants to be left alone.
    retry_after: Option<i64>,
    /// Spreads the next attempt.
    random: u64,
}

impl Made {
    /// What came of an attempt that panicked: it would again, so there is no other.
    fn broken(platform: PlatformId, resource: Uuid, delivery: DeliveryId) -> Self {
        tracing::error!(%delivery, "an attempt has panicked");
        Self { platform, resource, delivery, attempt: None, retry_after: None, random: 0 }
    }
}

/// New events of a platform.
struct Taken {
    platform: Arc<Platform>,
    after: i64,
    feed: Feed,
}

/// New deliveries, with their events.
type Added = Vec<(Arc<Delivery>, Numbered)>;

/// What a step has kept.
struct Kept {
    deliveries: BTreeMap<DeliveryId, Arc<Delivery>>,
    added: Vec<(PlatformId, Added)>,
}

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

/// Delivers the events of all platforms.
pub struct Dispatcher {
    app: App,
    tenure: Option<Tenure>,
    queues: HashMap<PlatformId, Queue>,
    /// Platforms whose queue is to be loaded, because the database has more or other than it.
    stale: BTreeSet<PlatformId>,
    attempts: JoinSet<Made>,
    /// What is still to be kept of attempts.
    made: Vec<Made>,
    /// What is still to be kept of deliveries that were given up, and when they were.
    given_up: Vec<(DeliveryId, Timestamp)>,
}

impl Dispatcher {
    /// One that has nothing to do yet.
    pub fn new(app: App) -> Self {
        Self {
            app,
            tenure: None,
            queues: HashMap::new(),
            stale: BTreeSet::new(),
            attempts: JoinSet::new(),
            made: Vec::new(),
            given_up: Vec::new(),
        }
    }

    /// Waits until an attempt has ended; for ever if none is under way.
    pub async fn attempted(&mut self) {
        match self.attempts.join_next().await {
            Some(made) => self.made.extend(made.ok()),
            None => std::future::pending().await,
        }
    }

    /// How many attempts are under way.
    pub fn under_way(&self) -> usize {
        self.attempts.len()
    }

    /// Keeps what came of attempts, takes new events on, and begins what is due, unless another
    /// server does.
    pub async fn step(&mut self) -> Result<Step, Error> {
        self.keep_up(true).await
    }

    /// The last step: begins nothing any more.
    pub async fn finish(&mut self) -> Result<(), Error> {
        self.keep_up(false).await.map(|_| ())
    }

    async fn keep_up(&mut self, begins: bool) -> Result<Step, Error> {
        let Some(tenure) = tenure::hold(&self.app).await? else {
            self.forget();
            return Ok(Step { is_ours: false, more: false, next: None });
        };
        if !self.tenure.is_some_and(|known| known.is_of(tenure)) {
            self.forget();
            let open = self.app.store().read(|view| view.open_outboxes()).await;
            self.stale.extend(open.map_err(Error::Store)?.iter().map(|outbox| outbox.platform));
            self.tenure = Some(tenure);
        }
        while let Some(made) = self.attempts.try_join_next() {
            self.made.extend(made.ok());
        }
        let news = self.app.store().read(|view| view.outboxes_with_news()).await;
        let (mut taken, mut seen, mut more) = (Vec::new(), Vec::new(), false);
        for outbox in news.map_err(Error::Store)? {
            if outbox.news {
                seen.push(outbox.platform);
            }
            if outbox.news || !self.queues.contains_key(&outbox.platform) {
                self.stale.insert(outbox.platform);
            } else {
                more |= self.take(outbox, &mut taken).await?;
            }
        }
        let result = self.keep(tenure, taken, seen).await;
        if matches!(result, Err(Error::Superseded)) {
            self.forget();
        }
        result?;
        // Only now that it is written down as seen: what changes from here on is news again.
        self.stale.extend(self.queues.iter().filter(|(_, it)| it.is_short()).map(|(id, _)| *id));
        more |= !self.stale.is_empty();
        while let Some(id) = self.stale.first().copied() {
            self.load(id).await?;
            self.stale.remove(&id);
        }
        if begins {
            self.begin();
        }
        self.measure();
        more |= self.queues.values().any(|queue| queue.is_gone && queue.len() > 0);
        let next = self
            .queues
            .values()
            .filter_map(|queue| Some(queue.platform.ahead.on_server(queue.next_at()?)));
        Ok(Step { is_ours: true, more, next: next.min() })
    }

    /// Drops everything: another server goes on.
    fn forget(&mut self) {
        self.tenure = None;
        self.queues.clear();
        self.stale.clear();
        self.made.clear();
        self.given_up.clear();
        self.attempts.abort_all();
        self.attempts = JoinSet::new();
    }

    /// Loads what waits for a platform's endpoint, in the place of what is known of it.
    async fn load(&mut self, id: PlatformId) -> Result<(), Error> {
        let filter = DeliveryFilter { status: Some(Status::Pending), ..DeliveryFilter::default() };
        let limit = u32::try_from(LOADED_MAX).unwrap_or(u32::MAX);
        let page = PageRequest { limit, after: None, order: Order::Ascending };
        let found = self
            .app
            .store()
            .read(move |view| {
                let (platform, outbox) = (view.get::<Platform>(&id)?, view.get::<Outbox>(&id)?);
                Ok::<_, StoreError>((platform, outbox, view.deliveries(id, &filter, page)?))
            })
            .await
            .map_err(Error::Store)?;
        let (Some(platform), Some(outbox), page) = found else {
            return Err(Error::Internal(format!("{id} has events and is not there")));
        };
        let now = self.app.now(platform.ahead);
        let signer = Arc::new(Signer::of(&self.app, &platform, now));
        let queue = self.queues.entry(id);
        let queue =
            queue.or_insert_with(|| Queue::new(Arc::clone(&platform), Arc::clone(&signer), now));
        queue.clear();
        (queue.signer, queue.platform) = (signer, platform);
        queue.is_gone = outbox.endpoint == Endpoint::Gone;
        queue.has_more = page.has_more;
        let mut waiting = page.rows;
        waiting.sort_by_key(|delivery| delivery.draft().ordinal);
        for delivery in waiting {
            match delivery.draft().plan {
                Plan::Retried | Plan::Once => queue.push(&delivery, None),
                // Whoever asked has died before it could write down what came of it.
                Plan::Asked if delivery.is_forgotten(now) => queue.abandon(delivery.id()),
                Plan::Asked => {}
            }
        }
        Ok(())
    }

    /// Reads new events of a platform, as far as there is room for them. Whether there are more.
    async fn take(&mut self, outbox: Outbox, taken: &mut Vec<Taken>) -> Result<bool, Error> {
        let Some(queue) = self.queues.get(&outbox.platform) else { return Ok(false) };
        if outbox.endpoint != Endpoint::Open || outbox.taken >= outbox.head || !queue.has_room() {
            return Ok(false);
        }
        let (id, after) = (outbox.platform, outbox.taken);
        let feed = self.app.store().read(move |view| view.feed(id, after, None, TAKEN_MAX)).await;
        let feed = feed.map_err(Error::Store)?;
        let more = feed.until < feed.head;
        taken.push(Taken { platform: Arc::clone(&queue.platform), after, feed });
        Ok(more)
    }

    /// Keeps everything that has come up, in one unit of work.
    async fn keep(
        &mut self,
        tenure: Tenure,
        taken: Vec<Taken>,
        seen: Vec<PlatformId>,
    ) -> Result<(), Error> {
        let schedule = self.app.env().webhooks.schedule;
        let mut now_of = HashMap::new();
        for (id, queue) in &mut self.queues {
            let now = self.app.now(queue.platform.ahead);
            now_of.insert(*id, now);
            self.given_up.extend(queue.give_up(&schedule, now).into_iter().map(|id| (id, now)));
        }
        let is_nothing = self.made.is_empty() && taken.is_empty() && self.given_up.is_empty();
        if is_nothing && seen.is_empty() {
            return Ok(());
        }
        // What is not kept now is kept with the next step.
        let (unit_app, made, given_up) =
            (self.app.clone(), self.made.clone(), self.given_up.clone());
        let kept = self
            .app
            .store()
            .write(move |unit| {
                tenure.check(&unit_app, unit)?;
                let deliveries = keep_attempts(unit, &made, &schedule, &now_of)?;
                for (id, now) in &given_up {
                    let Some(delivery) = unit.get::<Delivery>(id)? else { continue };
                    let gone = delivery::Event::GivenUp(None);
                    if let Ok(moved) = Delivery::clone(&delivery).apply(gone, *now) {
                        unit.move_delivery(moved);
                    }
                }
                let mut added = Vec::new();
                for taken in &taken {
                    added.push((taken.platform.id, take_on(unit, taken, &now_of)?));
                }
                for id in &seen {
                    let outbox = unit.outbox(*id)?;
                    unit.put_outbox(Outbox { news: false, ..outbox });
                }
                Ok::<_, Error>(Kept { deliveries, added })
            })
            .await?;
        self.given_up.clear();
        for made in std::mem::take(&mut self.made) {
            self.learn(&made, kept.deliveries.get(&made.delivery).map(AsRef::as_ref), &schedule);
        }
        for (platform, added) in kept.added {
            let Some(queue) = self.queues.get_mut(&platform) else { continue };
            for (delivery, numbered) in added {
                queue.push(&delivery, Some(numbered.event));
            }
        }
        Ok(())
    }

    /// Learns from an attempt how the endpoint is.
    fn learn(&mut self, made: &Made, delivery: Option<&Delivery>, schedule: &Schedule) {
        let Some(queue) = self.queues.get_mut(&made.platform) else { return };
        let now = self.app.now(queue.platform.ahead);
        let verdict = made.attempt.as_ref().map(|attempt| attempt.verdict(Plan::Retried));
        let outcome = match verdict {
            Some(Verdict::Received) => "received",
            Some(Verdict::Gone) => "gone",
            Some(Verdict::Failed) => "failed",
            None => "unreadable",
        };
        metrics::counter!("switchyard_webhook_attempts_total", "outcome" => outcome).increment(1);
        match verdict {
            Some(Verdict::Received) => queue.succeeded(now),
            Some(Verdict::Gone) => {
                tracing::warn!(platform = %made.platform, "the webhook endpoint is gone (410)");
                queue.is_gone = true;
            }
            Some(Verdict::Failed) => queue.failed(schedule, made.random, made.retry_after, now),
            None => {}
        }
        queue.finished(made.resource, made.delivery, delivery);
    }

    /// Begins every attempt whose turn it is.
    fn begin(&mut self) {
        for queue in self.queues.values_mut() {
            let now = self.app.now(queue.platform.ahead);
            if queue.signer.is_over(now) {
                queue.signer = Arc::new(Signer::of(&self.app, &queue.platform, now));
            }
            while let Some(turn) = queue.next(now) {
                let (app, platform) = (self.app.clone(), Arc::clone(&queue.platform));
                let signer = Arc::clone(&queue.signer);
                let (id, resource, of) = (turn.id, turn.resource, platform.id);
                let made = tokio::spawn(attempt(app, platform, signer, turn));
                self.attempts.spawn(async move {
                    made.await.unwrap_or_else(|_| Made::broken(of, resource, id))
                });
            }
        }
    }

    /// Tells how much waits, and for how long.
    fn measure(&self) {
        let waiting: usize = self.queues.values().map(Queue::len).sum();
        let ages = self.queues.values().filter_map(|queue| {
            let now = self.app.now(queue.platform.ahead);
            Some(now.millis().saturating_sub(queue.oldest()?.millis()).max(0))
        });
        let oldest = ages.max().unwrap_or(0);
        metrics::gauge!("switchyard_webhook_pending").set(waiting as f64);
        metrics::gauge!("switchyard_webhook_oldest_seconds").set(oldest as f64 / 1_000.0);
    }
}

/// Keeps what came of attempts, and gives the deliveries as they are then.
fn keep_attempts(
    unit: &mut Unit<'_, '_>,
    made: &[Made],
    schedule: &Schedule,
    now: &HashMap<PlatformId, Timestamp>,
) -> Result<BTreeMap<DeliveryId, Arc<Delivery>>, Error> {
    let ids: Vec<_> = made.iter().map(|made| made.delivery).collect();
    let found = unit.get_all::<Delivery>(&ids)?;
    let mut kept = BTreeMap::new();
    for (made, found) in made.iter().zip(found) {
        let Some(delivery) = found else { continue };
        let Some(now) = now.get(&made.platform).copied() else { continue };
        let event = match &made.attempt {
            Some(attempt) => {
                let failures = delivery.progress().failures.saturating_add(1);
                let pause = schedule.pause_asked(failures, made.random, made.retry_after);
                delivery.after(attempt.clone(), schedule, pause, now)
            }
            None => delivery::Event::GivenUp(None),
        };
        if made.attempt.as_ref().is_some_and(|it| it.verdict(Plan::Retried) == Verdict::Gone) {
            let outbox = unit.outbox(made.platform)?;
            if outbox.endpoint == Endpoint::Open {
                unit.put_outbox(Outbox { endpoint: Endpoint::Gone, ..outbox });
            }
        }
        // One that has ended meanwhile stays as it is.
        let delivery = match Delivery::clone(&delivery).apply(event, now) {
            Ok(moved) => {
                let delivery = Arc::new(moved.now().clone());
                unit.move_delivery(moved);
                delivery
            }
            Err(_) => delivery,
        };
        kept.insert(made.delivery, delivery);
    }
    Ok(kept)
}

/// Makes the deliveries of new events.
fn take_on(
    unit: &mut Unit<'_, '_>,
    taken: &Taken,
    now: &HashMap<PlatformId, Timestamp>,
) -> Result<Added, Error> {
    let platform = taken.platform.id;
    let outbox = unit.outbox(platform)?;
    let Some(now) = now.get(&platform).copied() else { return Ok(Vec::new()) };
    // The endpoint was set anew meanwhile: it begins with what comes then.
    if outbox.endpoint != Endpoint::Open || outbox.taken != taken.after {
        return Ok(Vec::new());
    }
    let events = &taken.feed.events;
    let ids: Vec<_> = events.iter().map(|it| delivery::delivery_id(&it.event)).collect();
    let known = unit.get_all::<Delivery>(&ids)?;
    let mut added = Vec::new();
    for (numbered, known) in events.iter().zip(known) {
        // Somebody else has made it: whoever asks the platform, or a replay.
        if known.is_some() {
            continue;
        }
        let event = &numbered.event;
        let draft = Draft::new(event, numbered.ordinal, Plan::of(event.kind));
        let delivery = Delivery::pending(draft, now);
        unit.add_delivery(delivery.clone());
        added.push((Arc::new(delivery), numbered.clone()));
    }
    unit.put_outbox(Outbox { taken: taken.feed.until, ..outbox });
    Ok(added)
}

/// Makes one attempt.
async fn attempt(app: App, platform: Arc<Platform>, signer: Arc<Signer>, turn: Turn) -> Made {
    let Turn { id, resource, ordinal, event } = turn;
    let event = match event {
        Some(event) => Ok(Some(event)),
        None => {
            let place = Place { platform: platform.id, ordinal };
            let found = app.store().look(move |view| view.event(place)).await;
            found.map(|event| event.map(Arc::new))
        }
    };
    let random = u64::from_be_bytes(app.random());
    let made = |attempt, retry_after| Made {
        platform: platform.id,
        resource,
        delivery: id,
        attempt,
        retry_after,
        random,
    };
    match event {
        Ok(Some(event)) => {
            let within = app.env().webhooks.within;
            let Exchange { attempt, retry_after, .. } =
                exchange(&app, &platform, &signer, &event, within).await;
            made(Some(attempt), retry_after)
        }
        Ok(None) | Err(StoreError::Sealed { .. } | StoreError::Corrupt { .. }) => {
            tracing::error!(delivery = %id, "an event that is to be delivered cannot be read");
            made(None, None)
        }
        Err(error) => {
            tracing::warn!(delivery = %id, %error, "an event could not be read now");
            let at = app.now(platform.ahead);
            let outcome = Outcome::Unreachable;
            made(Some(Attempt { at, millis: 0, peer: None, outcome }), None)
        }
    }
}
