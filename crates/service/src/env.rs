//! The ports that use cases reach the outside world through, and the operator's settings.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::delivery::Schedule;
use domain::event::{Event, EventKind, event_id};
use domain::platform::{Mode, Platform};
use domain::time::Timestamp;
use ports::clock::Clock;
use ports::entropy::Entropy;
use ports::identity::Identification;
use ports::outbound::{Outbound, Reach};
use ports::rail::PaymentRail;
use ports::rates::Rates;
use ports::uma::UmaPeer;
use uuid::Uuid;

use crate::error::{Error, Missing};
use crate::presenter::{Context, Presenter, Subject};

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
    /// Writes events and reads answers; the shapes are the API's.
    pub presenter: Arc<dyn Presenter>,
    /// Where people reach the pages of this server: a scheme, a host and perhaps a port, without a
    /// slash at the end.
    pub public_url: String,
    /// How long a quote can be executed, in milliseconds.
    pub quote_lifetime_millis: i64,
    /// How long first answers under an idempotency key are kept, in milliseconds.
    pub answers_kept_millis: i64,
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

    /// The event of a change of a platform's resource: change `number` of `resource`, which
    /// happened at `at`.
    pub(crate) fn event(
        &self,
        platform: &Platform,
        kind: EventKind,
        (resource, number): (Uuid, u32),
        at: Timestamp,
        subject: Subject<'_>,
    ) -> Event {
        let (id, owner) = (event_id(resource, number), platform.id);
        let event = Event { id, platform: owner, kind, resource, number, at, body: vec![] };
        self.rendered(platform, event, subject)
    }

    /// An event with its bytes.
    pub(crate) fn rendered(
        &self,
        platform: &Platform,
        mut event: Event,
        subject: Subject<'_>,
    ) -> Event {
        let rail = self.rail(platform.mode);
        let context = Context { event: &event, platform, rail, public_url: &self.public_url };
        event.body = self.presenter.event(&context, subject);
        event
    }
}
