//! What every use case has at hand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::bulk_import::{BulkImport, Refusal};
use domain::clock::Ahead;
use domain::customer::Customer;
use domain::delivery::Schedule;
use domain::event::{Event, EventKind, event_id};
use domain::id::{Id, IdSequence, Kind, moved_ahead};
use domain::invitation::Invitation;
use domain::platform::{CounterpartyField, Mode, Platform};
use domain::time::Timestamp;
use domain::transaction::Transaction;
use ports::clock::Clock;
use ports::entropy::Entropy;
use ports::identity::Identification;
use ports::outbound::{Outbound, Reach};
use ports::rail::PaymentRail;
use ports::rates::Rates;
use ports::uma::UmaPeer;
use store::Store;
use store::leases::Lease;
use store::unit::Unit;
use uuid::Uuid;

use crate::approvals::{Lines, Said};
use crate::auth;
use crate::balances::{self, ChangedAccount};
use crate::error::{Error, Missing};
use crate::guesses::Guesses;
use crate::tenure::{Seen, Tenure};
use crate::webhooks::signature;

/// The outside world, as ports, and what the operator has set.
pub struct Env {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
    /// Rates and the price list.
    pub rates: Arc<dyn Rates>,
    /// The rails of a platform, by its mode. Every mode has one.
    pub rails: HashMap<Mode, Arc<dyn PaymentRail>>,
    /// The UMA network of a platform, by its mode. Every mode has one.
    pub uma_peers: HashMap<Mode, Arc<dyn UmaPeer>>,
    /// Who checks the identities of a platform's customers, by its mode. Every mode has one.
    pub identification: HashMap<Mode, Arc<dyn Identification>>,
    /// The way out to addresses that others chose.
    pub outbound: Arc<dyn Outbound>,
    /// Makes the bytes of an event; the shapes are the API's.
    pub render_event: fn(&Env, &Platform, &Event, Subject<'_>) -> Vec<u8>,
    /// Reads the body of an answer to a question about an incoming payment. What cannot be read is
    /// as if it were not said.
    pub read_decision: fn(&[u8]) -> Said,
    /// Says why a row of an import was refused, as the report keeps it.
    pub render_refusal: fn(&Error, usize) -> String,
    /// Where people reach the pages of this server: a scheme, a host and perhaps a port, without a
    /// slash at the end.
    pub public_url: String,
    /// How long a quote can be executed, in milliseconds.
    pub quote_lifetime_millis: i64,
    /// How events are delivered.
    pub webhooks: Delivering,
    /// Whether other servers may use the same database.
    pub shares_database: bool,
    /// Where these reach this server, if they may: `http://HOST:PORT`.
    pub peer_address: Option<String>,
}

/// How events are delivered.
#[derive(Debug, Clone, Copy)]
pub struct Delivering {
    /// When what failed is attempted again.
    pub schedule: Schedule,
    /// How long an endpoint has for the whole of an exchange.
    pub within: Duration,
    /// Where requests of a platform may go whose money is not real.
    pub test_reach: Reach,
    /// How many bytes of an endpoint's answer clients are shown: who chooses an address inside this
    /// network must not be able to read what is there.
    pub answer_bytes_shown: usize,
}

impl Delivering {
    /// How long an endpoint has when nothing else is said: three times what its owner is asked to
    /// need at most (contract 7.4).
    pub const WITHIN: Duration = Duration::from_secs(15);

    /// The most of an endpoint's answer that is ever shown.
    pub const ANSWER_BYTES_MAX: usize = 4_096;

    /// As it is when nothing else is said, on a server that only its own machine reaches.
    pub const USUAL: Self = Self {
        schedule: Schedule::USUAL,
        within: Self::WITHIN,
        test_reach: Reach::Private,
        answer_bytes_shown: Self::ANSWER_BYTES_MAX,
    };
}

/// What an event tells of.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// A transaction.
    Transaction(&'a Transaction),
    /// A transaction about which its platform is asked, and what it is to say about its customer.
    Approval(&'a Transaction, &'a [CounterpartyField]),
    /// An internal account whose balance has changed.
    Account(&'a ChangedAccount),
    /// An invitation.
    Invitation(&'a Invitation),
    /// A customer.
    Customer(&'a Customer),
    /// Nothing: somebody tries an endpoint out.
    Nothing,
    /// An import that has ended, and the rows that were refused, as far as they are shown.
    Import(&'a BulkImport, &'a [Refusal]),
}

impl Env {
    /// The rails that a platform's money moves on.
    pub fn rail(&self, mode: Mode) -> &dyn PaymentRail {
        self.rails.get(&mode).expect("the wiring connects every mode").as_ref()
    }

    /// Refuses what needs a payment rail, if a platform of this mode has none.
    pub fn needs_rail(&self, mode: Mode) -> Result<(), Error> {
        match self.rail(mode).is_connected() {
            true => Ok(()),
            false => Err(Error::NotConnected { missing: Missing::PaymentRail }),
        }
    }

    /// The other institutions that a platform's customers can pay.
    pub fn uma_peer(&self, mode: Mode) -> &dyn UmaPeer {
        self.uma_peers.get(&mode).expect("the wiring connects every mode").as_ref()
    }

    /// Who checks the identities of a platform's customers.
    pub fn identification(&self, mode: Mode) -> &dyn Identification {
        self.identification.get(&mode).expect("the wiring connects every mode").as_ref()
    }
}

struct Inner {
    store: Store,
    env: Env,
    ids: Mutex<IdSequence>,
    callers: auth::Remembered,
    guesses: Guesses,
    keys: signature::Remembered,
    lines: Lines,
    server: Uuid,
    tenure: Mutex<Option<Tenure>>,
    /// Another server's lease as it was last seen.
    seen: Mutex<Option<Seen>>,
    /// Held while what is due is done.
    steps: tokio::sync::Mutex<()>,
}

/// The application: a store and the outside world. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

impl App {
    /// Puts the parts together.
    pub fn new(store: Store, env: Env) -> Self {
        let mut server = [0; 16];
        env.entropy.fill(&mut server);
        Self(Arc::new(Inner {
            store,
            env,
            ids: Mutex::new(IdSequence::default()),
            callers: auth::Remembered::default(),
            guesses: Guesses::default(),
            keys: signature::Remembered::default(),
            lines: Lines::default(),
            server: Uuid::from_bytes(server),
            tenure: Mutex::new(None),
            seen: Mutex::new(None),
            steps: tokio::sync::Mutex::new(()),
        }))
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Changes something, by a unit that may move money: it ends by telling platforms of the
    /// balances that it has changed. Requests that may be repeated have [`crate::once::once`].
    pub async fn write<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, Error> + Send + 'static,
    {
        self.store().write(self.telling(work)).await
    }

    /// Like [`App::write`], behind whatever requests wait for: for jobs.
    pub(crate) async fn write_behind<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, Error> + Send + 'static,
    {
        self.store().write_behind(self.telling(work)).await
    }

    /// The unit that does `work` and then tells of balances.
    fn telling<T, F>(
        &self,
        mut work: F,
    ) -> impl FnMut(&mut Unit<'_, '_>) -> Result<T, Error> + Send + use<T, F>
    where
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, Error> + Send + 'static,
    {
        let app = self.clone();
        move |unit| {
            let done = work(unit)?;
            balances::tell(&app, unit)?;
            Ok(done)
        }
    }

    /// What tells this server from others on the same database.
    pub(crate) fn server(&self) -> Uuid {
        self.0.server
    }

    /// The right to do what is due, as far as this server knows.
    pub(crate) fn tenure(&self) -> Option<Tenure> {
        *self.0.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when, by the server's clock, a lease has been seen as it is now.
    pub(crate) fn first_seen(&self, lease: &Lease, now: Timestamp) -> Timestamp {
        let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match &*seen {
            Some(known) if known.lease == *lease && known.since <= now => known.since,
            known => {
                let known = known.as_ref().map(|known| &known.holder);
                *seen = Some(Seen::new(lease, now, known));
                now
            }
        }
    }

    /// Another server's lease as it was last seen, if one was.
    pub(crate) fn seen<T>(&self, of: impl FnOnce(&Seen) -> T) -> Option<T> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(of)
    }

    pub(crate) fn set_tenure(&self, tenure: Option<Tenure>) {
        *self.0.tenure.lock().unwrap_or_else(PoisonError::into_inner) = tenure;
    }

    /// Held while what is due is done.
    pub(crate) fn steps(&self) -> &tokio::sync::Mutex<()> {
        &self.0.steps
    }

    /// The questions under way to each platform.
    pub(crate) fn lines(&self) -> &Lines {
        &self.0.lines
    }

    pub(crate) fn guesses(&self) -> &Guesses {
        &self.0.guesses
    }

    pub(crate) fn remembered_callers(&self) -> &auth::Remembered {
        &self.0.callers
    }

    pub(crate) fn remembered_keys(&self) -> &signature::Remembered {
        &self.0.keys
    }

    /// The outside world.
    pub fn env(&self) -> &Env {
        &self.0.env
    }

    /// The event of a change of something that belongs to a platform: change `number` of
    /// `resource`, which happened at `at`.
    pub(crate) fn event(
        &self,
        platform: &Platform,
        kind: EventKind,
        (resource, number): (Uuid, u32),
        at: Timestamp,
        subject: Subject<'_>,
    ) -> Event {
        let id = event_id(resource, number);
        let platform_id = platform.id;
        let event = Event { id, platform: platform_id, kind, resource, number, at, body: vec![] };
        self.rendered(platform, event, subject)
    }

    /// An event with its bytes.
    pub(crate) fn rendered(
        &self,
        platform: &Platform,
        mut event: Event,
        subject: Subject<'_>,
    ) -> Event {
        event.body = (self.0.env.render_event)(&self.0.env, platform, &event, subject);
        event
    }

    /// The present instant by the server's clock: for what the server does for itself.
    pub fn server_now(&self) -> Timestamp {
        self.0.env.clock.now()
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
        let random = self.0.env.entropy.number();
        let mut ids = self.0.ids.lock().unwrap_or_else(PoisonError::into_inner);
        next(&mut ids, random)
    }

    /// Random bytes.
    pub fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.env.entropy.fill(&mut bytes);
        bytes
    }
}
