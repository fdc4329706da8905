//! The state that every use case shares.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::clock::Ahead;
use domain::event::Event;
use domain::id::{Id, IdSequence, Kind, TransactionId, moved_ahead};
use domain::platform::Platform;
use domain::time::Timestamp;
use store::Store;
use store::leases::Lease;
use store::origin::{Actor, Origin};
use store::unit::Unit;
use uuid::Uuid;

use crate::auth;
use crate::balances;
use crate::bulkheads::Bulkheads;
use crate::decisions::{self, Decisions};
use crate::error::Error;
use crate::guesses::Guesses;
use crate::leadership::{Leadership, Seen};
use crate::notices::Notices;
use crate::refusals::Refusals;
use crate::slots::{KeyFetches, Slots};
use crate::steps::Steps;
use crate::strangers::Strangers;
use crate::webhooks::signature;

pub use crate::env::{Delivering, Env};
pub use crate::presenter::Subject;

struct Inner {
    store: Store,
    env: Env,
    ids: Mutex<IdSequence>,
    callers: auth::Remembered,
    guesses: Guesses,
    refusals: Refusals,
    keys: signature::Remembered,
    approval_slots: Slots,
    decisions: Decisions,
    key_fetches: KeyFetches,
    strangers: Strangers,
    bulkheads: Bulkheads,
    server: Uuid,
    leadership: Mutex<Option<Leadership>>,
    /// Another server's lease as it was last seen.
    seen: Mutex<Option<Seen>>,
    /// Held while due jobs run.
    steps: tokio::sync::Mutex<Steps>,
}

/// Effects of a unit outside the database. A unit may run more than once, so its caller acts on
/// them once it is committed.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    notices: Notices,
    decided: Vec<TransactionId>,
}

impl Outcome {
    /// Those of the unit so far.
    pub(crate) fn of(unit: &mut Unit<'_, '_>) -> Self {
        Self { notices: Notices::by(unit), decided: decisions::by(unit) }
    }
}

/// The application: a store and the outside world, and the one for whom it changes something. Cheap
/// to clone.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
    /// For whom it acts, and the id of the request, if it is one.
    acts_for: Arc<(Actor, Option<String>)>,
}

impl App {
    /// Puts the parts together. It acts for the server itself.
    pub fn new(store: Store, env: Env) -> Self {
        let mut server = [0; 16];
        env.entropy.fill(&mut server);
        let inner = Arc::new(Inner {
            store,
            env,
            ids: Mutex::new(IdSequence::default()),
            callers: auth::Remembered::default(),
            guesses: Guesses::default(),
            refusals: Refusals::default(),
            keys: signature::Remembered::default(),
            approval_slots: Slots::default(),
            decisions: Decisions::default(),
            key_fetches: KeyFetches::default(),
            strangers: Strangers::default(),
            bulkheads: Bulkheads::default(),
            server: Uuid::from_bytes(server),
            leadership: Mutex::new(None),
            seen: Mutex::new(None),
            steps: tokio::sync::Mutex::default(),
        });
        Self { inner, acts_for: Arc::new((Actor::job("SERVER"), None)) }
    }

    /// The same application, acting for another.
    #[must_use]
    pub fn acting_for(&self, actor: Actor, request: Option<String>) -> Self {
        Self { inner: Arc::clone(&self.inner), acts_for: Arc::new((actor, request)) }
    }

    /// The id of the request that it acts for, if it is one.
    pub(crate) fn request(&self) -> Option<&str> {
        self.acts_for.1.as_deref()
    }

    /// The origin of what is changed now.
    pub fn origin(&self) -> Origin {
        let (actor, request) = (*self.acts_for).clone();
        Origin { actor, request, at: self.server_now() }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Changes something, by a unit that may move money: it ends by telling platforms of the
    /// balances that it has changed. Requests that may be repeated have [`crate::once::once`].
    pub async fn write<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, Error> + Send + 'static,
    {
        let (done, outcome) = self.store().write(self.origin(), self.telling(work)).await?;
        self.committed(&outcome);
        Ok(done)
    }

    /// Like [`App::write`], behind whatever requests wait for: for jobs.
    pub(crate) async fn write_behind<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, Error> + Send + 'static,
    {
        let (done, outcome) = self.store().write_behind(self.origin(), self.telling(work)).await?;
        self.committed(&outcome);
        Ok(done)
    }

    /// Does the work that follows a unit's commit: logs notices to the operator, and wakes pay
    /// requests whose payments it decided on.
    pub(crate) fn committed(&self, outcome: &Outcome) {
        outcome.notices.log(self);
        self.inner.decisions.tell(&outcome.decided);
    }

    /// The unit that does `work` and then tells of balances; with the payments that it has brought
    /// forward.
    fn telling<T, F>(
        &self,
        mut work: F,
    ) -> impl FnMut(&mut Unit<'_, '_>) -> Result<(T, Outcome), Error> + Send + use<T, F>
    where
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, Error> + Send + 'static,
    {
        let app = self.clone();
        move |unit| {
            let done = work(unit)?;
            balances::tell(app.env(), unit)?;
            Ok((done, Outcome::of(unit)))
        }
    }

    /// This server's name among those on the same database.
    pub(crate) fn server(&self) -> Uuid {
        self.inner.server
    }

    /// This server's leadership, as far as it knows.
    pub(crate) fn leadership(&self) -> Option<Leadership> {
        *self.inner.leadership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when, by the server's clock, a lease has been seen as it is now.
    pub(crate) fn first_seen(&self, lease: &Lease, now: Timestamp) -> Timestamp {
        let mut seen = self.inner.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match &*seen {
            Some(known) if known.lease == *lease && known.since <= now => known.since,
            known => {
                let known = known.as_ref().map(|known| &known.leader);
                *seen = Some(Seen::new(lease, now, known));
                now
            }
        }
    }

    /// Another server's lease as it was last seen, if one was.
    pub(crate) fn seen<T>(&self, of: impl FnOnce(&Seen) -> T) -> Option<T> {
        self.inner.seen.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(of)
    }

    /// Sets this server's leadership, and gives the one before.
    pub(crate) fn set_leadership(&self, leadership: Option<Leadership>) -> Option<Leadership> {
        let mut held = self.inner.leadership.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *held, leadership)
    }

    /// Held while due jobs run.
    pub(crate) fn steps(&self) -> &tokio::sync::Mutex<Steps> {
        &self.inner.steps
    }

    /// Limits the approval requests under way to each platform.
    pub(crate) fn approval_slots(&self) -> &Slots {
        &self.inner.approval_slots
    }

    /// Pay requests that wait for a decision.
    pub(crate) fn decisions(&self) -> &Decisions {
        &self.inner.decisions
    }

    /// Limits the key documents of institutions that are fetched at a time.
    pub(crate) fn key_fetches(&self) -> &KeyFetches {
        &self.inner.key_fetches
    }

    /// Limits the requests of other institutions.
    pub(crate) fn strangers(&self) -> &Strangers {
        &self.inner.strangers
    }

    /// Limits the calls of jobs that are under way, for each institution and rail.
    pub(crate) fn bulkheads(&self) -> &Bulkheads {
        &self.inner.bulkheads
    }

    pub(crate) fn guesses(&self) -> &Guesses {
        &self.inner.guesses
    }

    /// The requests that were answered 401.
    pub fn refusals(&self) -> &Refusals {
        &self.inner.refusals
    }

    pub(crate) fn remembered_callers(&self) -> &auth::Remembered {
        &self.inner.callers
    }

    pub(crate) fn remembered_keys(&self) -> &signature::Remembered {
        &self.inner.keys
    }

    /// The outside world.
    pub fn env(&self) -> &Env {
        &self.inner.env
    }

    /// An event with its bytes.
    pub(crate) fn rendered(
        &self,
        platform: &Platform,
        event: Event,
        subject: Subject<'_>,
    ) -> Event {
        self.env().rendered(platform, event, subject)
    }

    /// The machine's clock as it is: for what is signed, what peers and receivers compare with
    /// their own clocks, and the age of what comes in. Records have [`App::server_now`].
    pub fn machine_now(&self) -> Timestamp {
        self.inner.env.clock.machine()
    }

    /// How long this process has run, however its clock is set.
    pub(crate) fn uptime(&self) -> Duration {
        self.inner.env.clock.uptime()
    }

    /// The present instant by the server's clock: for what the server does for itself.
    pub fn server_now(&self) -> Timestamp {
        self.inner.env.clock.now()
    }

    /// The present instant by the clock of a platform, which is this much ahead: for everything
    /// that is the platform's.
    pub fn now(&self, ahead: Ahead) -> Timestamp {
        ahead.shows(self.server_now())
    }

    /// Draws an identifier for something that is made at `now` by a clock that is this much ahead.
    /// Later ones of the same clock are greater.
    pub fn new_id<K: Kind>(&self, ahead: Ahead, now: Timestamp) -> Id<K> {
        let now = ahead.on_server(now);
        Id::from_uuid(moved_ahead(self.draw(|ids, random| ids.next(now, random)), ahead))
    }

    /// Draws an identifier, as [`App::new_id`], for something that owns internal accounts.
    pub fn new_owner_id<K: Kind>(&self, ahead: Ahead, now: Timestamp) -> Id<K> {
        let now = ahead.on_server(now);
        Id::from_uuid(moved_ahead(self.draw(|ids, random| ids.next_owner(now, random)), ahead))
    }

    fn draw(&self, next: impl FnOnce(&mut IdSequence, u64) -> Uuid) -> Uuid {
        let random = self.inner.env.entropy.number();
        let mut ids = self.inner.ids.lock().unwrap_or_else(PoisonError::into_inner);
        next(&mut ids, random)
    }

    /// Random bytes.
    pub fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.inner.env.entropy.fill(&mut bytes);
        bytes
    }
}
