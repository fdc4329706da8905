//! Delivers events (contract 7.4; reliability 5.2).
//!
//! One server of those that share a database delivers, by the lease under which it does what is due
//! ([`crate::tenure`]). Each step takes new events on and keeps what has come of attempts, in one
//! unit of work for all, and attempts go on meanwhile. Whatever is not kept when the process dies
//! is attempted again: at least once. No loop and no sleep is here.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;

use domain::delivery::{self, Delivery, Draft, Plan, Status, Verdict};
use domain::id::PlatformId;
use domain::platform::Platform;
use domain::time::Timestamp;
use store::deliveries::DeliveryFilter;
use store::error::StoreError;
use store::events::{Endpoint, Numbered, Outbox, Place};
use store::list::{Order, PageRequest};
use tokio::task::JoinSet;

use crate::app::App;
use crate::error::Error;
use crate::tenure::{self, Tenure};
use crate::webhooks::exchange::{Exchange, exchange};
use crate::webhooks::queue::{Came, LOADED_MAX, Made, Queue, TAKEN_MAX, Turn};
use crate::webhooks::signature::Signer;
use crate::webhooks::unkept::{Attempted, KEPT_WITHIN, Page};

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
    /// Nothing is begun for them until then.
    stale: BTreeSet<PlatformId>,
    attempts: JoinSet<Made>,
    /// What is being written or could not be.
    pages: Vec<Arc<Page>>,
    /// Whether nothing is begun any more.
    is_stopped: bool,
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
            pages: Vec::new(),
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

    /// Takes new events on, begins what is due, and keeps what came of attempts when it is time,
    /// unless another server does.
    pub async fn step(&mut self) -> Result<Step, Error> {
        let app = self.app.clone();
        let Some(tenure) = self.meanwhile(tenure::hold(&app)).await? else {
            self.forget();
            return Ok(Step { is_ours: false, more: false, next: None });
        };
        if !self.tenure.is_some_and(|known| known.is_of(tenure)) {
            self.forget();
            let open = app.store().ask(|view| view.open_outboxes()).await;
            self.stale.extend(open.map_err(Error::Store)?.iter().map(|outbox| outbox.platform));
            self.tenure = Some(tenure);
        }
        while let Some(ended) = self.attempts.try_join_next() {
            if let Ok(made) = ended {
                self.ended(made);
            }
        }
        let news = self.meanwhile(app.store().ask(|view| view.outboxes_with_news())).await;
        let mut seen = Vec::new();
        for outbox in news.map_err(Error::Store)? {
            if outbox.news {
                seen.push(outbox.platform);
            }
            if outbox.news || !self.queues.contains_key(&outbox.platform) {
                self.stale.insert(outbox.platform);
            } else {
                self.take(outbox).await?;
            }
        }
        self.give_up_forgotten().await?;
        self.stale.extend(self.queues.iter().filter(|(_, it)| it.is_short()).map(|(id, _)| *id));
        let ids: Vec<_> = self.queues.keys().copied().collect();
        ids.into_iter().for_each(|id| self.begin(id));
        let result = self.keep(tenure, seen).await;
        if matches!(result, Err(Error::Superseded)) {
            self.forget();
        }
        result?;
        // Only now that it is written down as seen: what changes from here on is news again.
        for id in self.stale.clone() {
            self.load(id).await?;
            self.begin(id);
        }
        self.measure();
        Ok(Step { is_ours: true, more: self.has_more(), next: self.next_at() })
    }

    /// Begins nothing any more. The next step keeps everything.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Whether there is something for the next step to do.
    fn has_more(&self) -> bool {
        let at = self.app.server_now();
        !self.stale.is_empty() || self.queues.values().any(|queue| self.is_busy(queue, at))
    }

    fn is_busy(&self, queue: &Queue, at: Timestamp) -> bool {
        let takes_or_gives_up = queue.wants_events() || queue.gives_up_more();
        queue.is_to_be_kept(at) || (!self.is_stopped && takes_or_gives_up)
    }

    /// When there is something for the next step to do, if nothing happens before.
    fn next_at(&self) -> Option<Timestamp> {
        let due = self.queues.values().filter_map(|queue| {
            let begins_at = queue.next_at().map(|next| queue.platform.ahead.on_server(next));
            begins_at.into_iter().chain(queue.unkept.due_at()).min()
        });
        // What ends meanwhile is to be kept by then.
        let ends_at = self.app.server_now().plus_millis(KEPT_WITHIN);
        due.chain((self.under_way() > 0).then_some(ends_at)).min()
    }

    /// Drops everything: another server goes on.
    fn forget(&mut self) {
        self.tenure = None;
        self.queues.clear();
        self.stale.clear();
        self.pages.clear();
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
        let (schedule, at) = (self.app.env().webhooks.schedule, self.app.server_now());
        let Some(queue) = self.queues.get_mut(&id) else { return false };
        let now = self.app.now(queue.platform.ahead);
        let outcome = match queue.ended(made, &schedule, now, at) {
            Some(Verdict::Received) => "received",
            Some(Verdict::Gone) => "gone",
            Some(Verdict::Failed) => "failed",
            None => "unreadable",
        };
        metrics::counter!("switchyard_webhook_attempts_total", "outcome" => outcome).increment(1);
        self.begin(id);
        self.queues.get(&id).is_some_and(|queue| self.is_busy(queue, at))
    }

    /// Loads what waits for a platform's endpoint, in the place of what is known of it, unless
    /// something of it is still to be kept.
    async fn load(&mut self, id: PlatformId) -> Result<(), Error> {
        let filter = DeliveryFilter { status: Some(Status::Pending), ..DeliveryFilter::default() };
        let limit = u32::try_from(LOADED_MAX).unwrap_or(u32::MAX);
        let page = PageRequest { limit, after: None, order: Order::Ascending };
        let app = self.app.clone();
        let found = app.store().read(move |view| {
            let (platform, outbox) = (view.get::<Platform>(&id)?, view.get::<Outbox>(&id)?);
            Ok::<_, StoreError>((platform, outbox, view.deliveries(id, &filter, page)?))
        });
        let found = self.meanwhile(found).await.map_err(Error::Store)?;
        let (Some(platform), Some(outbox), page) = found else {
            return Err(Error::Internal(format!("{id} has events and is not there")));
        };
        let (now, at) = (self.app.now(platform.ahead), self.app.server_now());
        let signer = Arc::new(Signer::of(&self.app, &platform, now));
        let queue = self.queues.entry(id);
        let queue =
            queue.or_insert_with(|| Queue::new(Arc::clone(&platform), Arc::clone(&signer), now));
        if !queue.unkept.is_empty() {
            return Ok(());
        }
        queue.clear(outbox.taken);
        (queue.signer, queue.platform, queue.head) = (signer, platform, outbox.head);
        queue.is_gone = outbox.endpoint == Endpoint::Gone;
        // Those behind take their places when the events before them do.
        let mut waiting = page.rows;
        let found = waiting.len();
        waiting.retain(|it| it.draft().ordinal <= outbox.taken || it.draft().plan == Plan::Asked);
        queue.has_more = page.has_more && !(waiting.is_empty() && found > 0);
        waiting.sort_by_key(|delivery| delivery.draft().ordinal);
        for delivery in waiting {
            match delivery.draft().plan {
                Plan::Retried | Plan::Once => queue.push(Delivery::clone(&delivery), None),
                // Whoever asked has died before it could write down what came of it.
                Plan::Asked if delivery.is_forgotten(now) => {
                    queue.unkept.given_up((delivery.id(), delivery.draft().ordinal), now, at);
                }
                Plan::Asked => queue.is_asked(&delivery),
            }
        }
        self.stale.remove(&id);
        Ok(())
    }

    /// Takes new events of a platform on, as far as there is use and room for them, and begins with
    /// them.
    async fn take(&mut self, outbox: Outbox) -> Result<(), Error> {
        let id = outbox.platform;
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(()) };
        queue.head = outbox.head;
        if outbox.endpoint != Endpoint::Open || self.is_stopped || !queue.wants_events() {
            return Ok(());
        }
        let (after, limit) = (queue.unkept.taken(), u32::try_from(TAKEN_MAX).unwrap_or(u32::MAX));
        let app = self.app.clone();
        let found = app.store().read(move |view| {
            let feed = view.feed(id, after, None, limit)?;
            let ids = feed.events.iter().map(|it| delivery::delivery_id(&it.event));
            let known = view.deliveries_with(ids)?;
            Ok::<_, StoreError>((feed, known))
        });
        let (feed, known) = self.meanwhile(found).await.map_err(Error::Store)?;
        let at = self.app.server_now();
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(()) };
        for Numbered { ordinal, event } in feed.events {
            // Somebody else may have made it: whoever asks the platform, or a replay.
            match known.get(&delivery::delivery_id(&event)) {
                None => {
                    let draft = Draft::new(&event, ordinal, Plan::of(event.kind));
                    queue.take(Delivery::pending(draft, event.at), event, at);
                }
                Some(known) => {
                    if known.status() == Status::Pending {
                        match known.draft().plan {
                            Plan::Retried | Plan::Once => {
                                queue.push(Delivery::clone(known), Some(event));
                            }
                            Plan::Asked => queue.is_asked(known),
                        }
                    }
                }
            }
        }
        queue.unkept.took_until(feed.until);
        queue.head = feed.head;
        Ok(())
    }

    /// Gives up the questions whose time is over and of which nobody has written down what came:
    /// whoever asked has died.
    async fn give_up_forgotten(&mut self) -> Result<(), Error> {
        let at = self.app.server_now();
        let queues = self.queues.values();
        let ids: BTreeSet<_> =
            queues.flat_map(|queue| queue.forgotten(self.app.now(queue.platform.ahead))).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let (app, asked) = (self.app.clone(), ids.clone());
        let found = app.store().read(move |view| view.deliveries_with(asked));
        let found = self.meanwhile(found).await.map_err(Error::Store)?;
        self.queues.values_mut().for_each(|queue| queue.looked_at(&ids));
        for question in found.values().filter(|it| it.status() == Status::Pending) {
            let draft = question.draft();
            if let Some(queue) = self.queues.get_mut(&draft.platform) {
                let now = self.app.now(queue.platform.ahead);
                if question.is_forgotten(now) {
                    queue.unkept.given_up((question.id(), draft.ordinal), now, at);
                }
            }
        }
        Ok(())
    }

    /// Keeps everything that has come up, in one unit of work, if it is time for some of it.
    async fn keep(&mut self, tenure: Tenure, seen: Vec<PlatformId>) -> Result<(), Error> {
        let (schedule, at) = (self.app.env().webhooks.schedule, self.app.server_now());
        for (id, queue) in &mut self.queues {
            // Where something was changed it may be the address, which nothing is known about yet.
            if !self.stale.contains(id) && !seen.contains(id) {
                let now = self.app.now(queue.platform.ahead);
                queue.give_up(&schedule, now, at);
            }
        }
        let is_time = self.is_stopped || !self.stale.is_empty() || !self.pages.is_empty();
        if !is_time && !self.queues.values().any(|queue| queue.is_to_be_kept(at)) {
            return Ok(());
        }
        for (id, queue) in &mut self.queues {
            // What no attempt is under way for does not change soon.
            let all = self.is_stopped || self.stale.contains(id) || queue.is_idle();
            self.pages.extend(queue.unkept.page(*id, at, all).map(Arc::new));
        }
        if self.pages.is_empty() && seen.is_empty() {
            return Ok(());
        }
        // What is not kept now is kept with the next step.
        let (app, pages) = (self.app.clone(), self.pages.clone());
        let unit_app = app.clone();
        let kept = app.store().write(move |unit| {
            tenure.check(&unit_app, unit)?;
            for page in &pages {
                page.keep(unit, &schedule)?;
            }
            for id in &seen {
                let outbox = unit.outbox(*id)?;
                unit.put_outbox(Outbox { news: false, ..outbox });
            }
            Ok::<_, Error>(())
        });
        self.meanwhile(kept).await?;
        self.pages.clear();
        self.queues.values_mut().for_each(|queue| queue.unkept.kept());
        Ok(())
    }

    /// Begins every attempt at a platform's endpoint whose turn it is.
    fn begin(&mut self, id: PlatformId) {
        if self.is_stopped || self.stale.contains(&id) {
            return;
        }
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let now = self.app.now(queue.platform.ahead);
        if queue.signer.is_over(now) {
            queue.signer = Arc::new(Signer::of(&self.app, &queue.platform, now));
        }
        while let Some(turn) = queue.next(now) {
            let (app, platform) = (self.app.clone(), Arc::clone(&queue.platform));
            let signer = Arc::clone(&queue.signer);
            let (broken, delivery) = (Made::nothing(&queue.platform, &turn), turn.id);
            let made = tokio::spawn(attempt(app, platform, signer, turn));
            self.attempts.spawn(async move {
                made.await.unwrap_or_else(|_| {
                    // It would again, so there is no other.
                    tracing::error!(%delivery, "an attempt has panicked");
                    broken
                })
            });
        }
    }

    /// Tells how much waits, and for how long.
    fn measure(&self) {
        let here: usize = self.queues.values().map(Queue::len).sum();
        let behind: i64 = self.queues.values().map(Queue::behind).sum();
        let ages = self.queues.values().filter_map(|queue| {
            let now = self.app.now(queue.platform.ahead);
            Some(now.millis().saturating_sub(queue.oldest()?.millis()).max(0))
        });
        let oldest = ages.max().unwrap_or(0);
        metrics::gauge!("switchyard_webhook_pending").set(here as f64 + behind as f64);
        metrics::gauge!("switchyard_webhook_oldest_seconds").set(oldest as f64 / 1_000.0);
    }
}

/// Makes one attempt.
async fn attempt(app: App, platform: Arc<Platform>, signer: Arc<Signer>, turn: Turn) -> Made {
    let random = u64::from_be_bytes(app.random());
    let nothing = Made::nothing(&platform, &turn);
    let Turn { id, ordinal, event, .. } = turn;
    let event = match event {
        Some(event) => Ok(Some(event)),
        None => {
            let place = Place { platform: platform.id, ordinal };
            let found = app.store().look(move |view| view.event(place)).await;
            found.map(|event| event.map(Arc::new))
        }
    };
    let came = match event {
        Ok(Some(event)) => {
            let within = app.env().webhooks.within;
            let Exchange { attempt, retry_after, .. } =
                exchange(&app, &platform, &signer, &event, within).await;
            Came::Attempted(Attempted { attempt, retry_after, random })
        }
        Ok(None) | Err(StoreError::Sealed { .. } | StoreError::Corrupt { .. }) => {
            tracing::error!(delivery = %id, "an event that is to be delivered cannot be read");
            Came::Nothing
        }
        Err(error) => {
            tracing::warn!(delivery = %id, %error, "an event could not be read now");
            Came::Later
        }
    };
    Made { came, ..nothing }
}
