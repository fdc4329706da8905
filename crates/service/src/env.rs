//! The ports that use cases reach the outside world through, and the operator's settings.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::account_info::AccountInfo;
use domain::currency::Currency;
use domain::delivery::Schedule;
use domain::event::{Event, EventKind, event_id};
use domain::money::Money;
use domain::platform::{Mode, Platform};
use domain::rail::Rail;
use domain::time::Timestamp;
use ports::clock::Clock;
use ports::entropy::Entropy;
use ports::identity::Identification;
use ports::lightning::Lightning;
use ports::locality::{Locality, TestReach};
use ports::outbound::{Outbound, Reach};
use ports::rails::{Leg, NoRoute, Rails};
use ports::rates::{RateFeed, Rates};
use ports::uma::Institutions;
use uuid::Uuid;

use crate::error::{Error, Missing, MoneyError};
use crate::presenter::{Context, Presenter, Subject};

/// The outside world, as ports, and what the operator has set.
pub struct Env {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
    /// Rates and the price list of a platform, by its mode. Every mode has some.
    pub rates: HashMap<Mode, Arc<dyn RateFeed>>,
    /// The rail ports of a platform, by its mode. A mode without any has no entry.
    pub rails: HashMap<Mode, Rails>,
    /// The institutions that a platform knows without the network, by its mode. Every mode has
    /// some.
    pub institutions: HashMap<Mode, Arc<dyn Institutions>>,
    /// The Lightning node of a platform, by its mode. A mode without one pays no institution
    /// elsewhere and is paid by none.
    pub lightning: HashMap<Mode, Arc<dyn Lightning>>,
    /// The identity provider of a platform's customers, by its mode. Every mode has one.
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
    /// Whether only this machine reaches this server.
    pub locality: Locality,
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
    /// Whether requests of a platform may go to private networks whose money is not real, also
    /// while others reach this server.
    pub allows_private: bool,
    /// How many bytes of an endpoint's answer clients are shown. Nothing set means all of them
    /// while only this machine reaches the server and none afterwards: a client elsewhere that
    /// chooses an address inside this network must not be able to read from it.
    pub answer_bytes_shown: Option<usize>,
}

impl Delivering {
    /// How long an endpoint has when nothing else is said: three times what its owner is asked to
    /// need at most (contract 7.4).
    pub const WITHIN: Duration = Duration::from_secs(15);

    /// The most of an endpoint's answer that is ever shown.
    pub const ANSWER_BYTES_MAX: usize = 4_096;

    /// Deliveries of a process that serves no clients but its own.
    pub const USUAL: Self = Self {
        schedule: Schedule::USUAL,
        within: Self::WITHIN,
        allows_private: true,
        answer_bytes_shown: Some(Self::ANSWER_BYTES_MAX),
    };
}

impl Env {
    /// Where a request of a platform of this mode may go that is sent now.
    pub fn reach(&self, mode: Mode) -> Reach {
        if mode == Mode::Live {
            return Reach::Public;
        }
        TestReach::new(self.locality.clone(), self.webhooks.allows_private).now()
    }

    /// How many bytes of an answer that an endpoint gives now clients are shown.
    pub fn answer_bytes_shown(&self) -> usize {
        self.webhooks.answer_bytes_shown.unwrap_or(match self.locality.is_local() {
            true => Delivering::ANSWER_BYTES_MAX,
            false => 0,
        })
    }

    /// The rates of a platform as they are now. A use case takes them once.
    pub fn rates(&self, mode: Mode) -> Arc<dyn Rates> {
        self.rates.get(&mode).expect("the wiring connects every mode").current()
    }

    /// The rails that a platform's money moves on.
    pub fn rails(&self, mode: Mode) -> &Rails {
        self.rails.get(&mode).unwrap_or(const { &Rails::none() })
    }

    /// Refuses an account that a platform of this mode has no rail to.
    pub fn needs_rail(
        &self,
        mode: Mode,
        account: &AccountInfo,
        currency: Currency,
    ) -> Result<(), Error> {
        match self.rails(mode).legs(account, currency).next() {
            Some(_) => Ok(()),
            None => Err(Error::NotConnected { missing: Missing::PaymentRail }),
        }
    }

    /// The leg on which an amount moves to or from an account, over the wanted rail if there is
    /// one. It is chosen once for an order.
    pub fn route(
        &self,
        mode: Mode,
        account: &AccountInfo,
        amount: Money,
        wanted: Option<Rail>,
    ) -> Result<Leg, Error> {
        self.rails(mode).route(account, amount, wanted).map_err(|none| match none {
            NoRoute::NotConnected => Error::NotConnected { missing: Missing::PaymentRail },
            NoRoute::AboveLimit { max_minor: max } => {
                Error::Money(MoneyError::AmountOutOfRange { amount, min: 1, max })
            }
        })
    }

    /// The leg to other institutions, if a platform of this mode has it.
    pub fn route_to_institution(&self, mode: Mode) -> Result<Leg, Error> {
        let leg = Leg::to_institution();
        match self.rails(mode).port(&leg) {
            Some(_) => Ok(leg),
            None => Err(Error::NotConnected { missing: Missing::PaymentRail }),
        }
    }

    /// The institutions that a platform knows without the network.
    pub fn institutions(&self, mode: Mode) -> &dyn Institutions {
        self.institutions.get(&mode).expect("the wiring connects every mode").as_ref()
    }

    /// The Lightning node of platforms of this mode.
    pub fn lightning(&self, mode: Mode) -> Option<&dyn Lightning> {
        self.lightning.get(&mode).map(AsRef::as_ref)
    }

    /// The identity provider of a platform's customers.
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
        let rails = self.rails(platform.mode);
        let context = Context { event: &event, platform, rails, public_url: &self.public_url };
        event.body = self.presenter.event(&context, subject);
        event
    }
}
