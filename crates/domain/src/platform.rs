//! Platforms and their configuration (specification 2.11; contract 6.1).

use std::sync::Arc;

use rust_decimal::Decimal;

use crate::clock::{Advance, Ahead, ClockRefusal};
use crate::currency::Currency;
use crate::customer::KycStatus;
use crate::event::EventNames;
use crate::id::PlatformId;
use crate::signing::Generations;
use crate::time::Timestamp;
use crate::transaction::Direction;
use crate::uma_address::UmaDomain;

pub use crate::counterparty_field::{COUNTERPARTY_FIELDS, CounterpartyField};

/// Whether a platform moves real money (design decision 12). Its token decides; nothing else does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Behaves like the real thing, with no money behind it.
    Sandbox,
    /// Real money.
    Live,
}

impl Mode {
    /// The name in storage and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "SANDBOX",
            Self::Live => "LIVE",
        }
    }

    /// The mode with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Sandbox, Self::Live].into_iter().find(|mode| mode.name() == name)
    }
}

/// The end of the name of a customer of the sandbox who is looked at first.
pub const REVIEWED_SUFFIX: &str = "001";

/// The end of the name of a customer of the sandbox who is refused.
pub const REJECTED_SUFFIX: &str = "002";

impl CounterpartyField {
    /// Facts that are asked for in some currencies. A field that one of them insists on is insisted
    /// on.
    pub fn asked_for<'a>(currencies: impl IntoIterator<Item = &'a SupportedCurrency>) -> Vec<Self> {
        let mut fields: Vec<Self> = Vec::new();
        let all = currencies.into_iter().flat_map(|one| &one.required_counterparty_fields);
        for field in all {
            match fields.iter_mut().find(|known| known.name == field.name) {
                Some(known) => known.mandatory |= field.mandatory,
                None => fields.push(*field),
            }
        }
        fields
    }
}

/// A currency that the platform's customers can hold, send and receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupportedCurrency {
    /// The currency.
    pub currency: Currency,
    /// Least that may be sent, in smallest units.
    pub min_minor: i64,
    /// Most that may be sent, in smallest units.
    pub max_minor: i64,
    /// Facts that are asked of counterparties.
    pub required_counterparty_fields: Vec<CounterpartyField>,
    /// Facts that a customer must have before it moves money in it, of [`COUNTERPARTY_FIELDS`].
    pub provider_required_customer_fields: Vec<&'static str>,
    /// Which directions are on.
    pub enabled: Vec<Direction>,
}

impl SupportedCurrency {
    /// Whether payments of this direction are on.
    pub fn allows(&self, direction: Direction) -> bool {
        self.enabled.contains(&direction)
    }
}

/// A rule that replaces the built-in price of a corridor for one platform. The first rule that
/// matches decides each part that it sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorridorRule {
    /// The currency that pays; any, when absent.
    pub sending: Option<Currency>,
    /// The currency that is paid; any, when absent.
    pub receiving: Option<Currency>,
    /// Fraction by which the rate is worse than the mid rate.
    pub spread: Option<Decimal>,
    /// Fixed fee in the smallest unit of the sending currency.
    pub fixed_fee_minor: Option<i64>,
    /// Fraction of the sending amount.
    pub variable_fee_rate: Option<Decimal>,
}

impl CorridorRule {
    /// Whether the rule is about this corridor. Moving money within one currency is free unless the
    /// rule says so by name, on both sides.
    pub fn matches(&self, sending: Currency, receiving: Currency) -> bool {
        let is_of = |side: Option<Currency>, currency: Currency| match side {
            Some(named) => named == currency,
            None => sending != receiving,
        };
        is_of(self.sending, sending) && is_of(self.receiving, receiving)
    }
}

/// An API client's organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// System id.
    pub id: PlatformId,
    /// Name for the operator.
    pub name: String,
    /// Real money or not.
    pub mode: Mode,
    /// Domain of its customers' addresses.
    pub uma_domain: UmaDomain,
    /// Subdomain of this server to which its UMA requests are proxied.
    pub proxy_uma_subdomain: String,
    /// Where its events go.
    pub webhook_endpoint: Option<String>,
    /// How its events are named.
    pub event_names: EventNames,
    /// Whether it is regulated and knows its customers itself.
    pub is_regulated: bool,
    /// Currencies that its customers can hold, send and receive.
    pub currencies: Vec<SupportedCurrency>,
    /// Its own prices.
    pub corridors: Vec<CorridorRule>,
    /// How many of its tokens can manage; the last one cannot be deleted.
    pub manager_tokens: u32,
    /// How far its clock is ahead of the server's.
    pub ahead: Ahead,
    /// Which keys its deliveries are signed with.
    pub signing: Generations,
    /// Which keys its domain has in UMA.
    pub uma_keys: Generations,
    /// The operator's settings for its rail, in words of the rail's own.
    pub rail_settings: Option<Arc<str>>,
    /// How much an invoice of another institution may cost more or less than its lookup said.
    pub cost_drift_max: BasisPoints,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its configuration last changed.
    pub updated_at: Timestamp,
}

/// Hundredths of a percent, up to 100 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BasisPoints(u16);

impl BasisPoints {
    /// All of it.
    pub const WHOLE: Self = Self(10_000);

    /// How much the cost of an invoice may differ where the operator has set nothing: rates move in
    /// the minutes after a lookup, and one that moves more is a mistake or worse.
    pub const DRIFT: Self = Self(500);

    /// So many basis points, if they are at most 100 %.
    pub fn new(points: u16) -> Option<Self> {
        (points <= Self::WHOLE.0).then_some(Self(points))
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// The decision about an incoming payment when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It goes on at once.
    Approved,
    /// The platform is asked, and has a short time to answer.
    Asked,
    /// The platform must be asked, and there is no way to.
    NobodyToAsk,
}

impl Platform {
    /// Takes note of a change. Its times never go back, although the clock may.
    pub fn touch(&mut self, now: Timestamp) {
        self.updated_at = now.max(self.updated_at);
    }

    /// The decider of an incoming payment: the platform, by its webhook. Without one, everybody
    /// may pay where no money is real, and none where it is (contract 13, row 33).
    pub fn first_decision(&self) -> Decision {
        match (&self.webhook_endpoint, self.mode) {
            (Some(_), _) => Decision::Asked,
            (None, Mode::Sandbox) => Decision::Approved,
            (None, Mode::Live) => Decision::NobodyToAsk,
        }
    }

    /// The identity status of a customer that the platform has just made (contract
    /// 6.4). A regulated platform knows its customers itself and may say what it knows; where no
    /// money is real, the end of the name decides (contract 6.18); everybody else has to be looked
    /// at first.
    pub fn first_kyc_status(&self, given: Option<KycStatus>, name: Option<&str>) -> KycStatus {
        let simulated = match name {
            Some(name) if name.ends_with(REVIEWED_SUFFIX) => KycStatus::PendingReview,
            Some(name) if name.ends_with(REJECTED_SUFFIX) => KycStatus::Rejected,
            Some(_) | None => KycStatus::Approved,
        };
        match (self.is_regulated, self.mode) {
            (true, Mode::Sandbox) => given.unwrap_or(simulated),
            (true, Mode::Live) => given.unwrap_or(KycStatus::Approved),
            (false, Mode::Sandbox) => simulated,
            (false, Mode::Live) => KycStatus::PendingReview,
        }
    }

    /// Its clock moved on, when the server's shows `server`. Only where no money is real.
    pub fn advanced(&self, advance: Advance, server: Timestamp) -> Result<Ahead, ClockRefusal> {
        match self.mode {
            Mode::Sandbox => self.ahead.advanced(advance, server),
            Mode::Live => Err(ClockRefusal::RealTime),
        }
    }

    /// Whether check digits of bank identifiers are enforced (design decision 14).
    pub fn checks_digits(&self) -> bool {
        self.mode == Mode::Live
    }

    /// The currency of an owner's primary internal account: the first that the platform supports
    /// (contract 13, row 35).
    pub fn primary_currency(&self) -> Option<Currency> {
        self.currencies.first().map(|supported| supported.currency)
    }

    /// The first currency of its configuration with this direction on: the one that is meant where
    /// nothing else says which (contract 13, row 35).
    pub fn first_currency(&self, direction: Direction) -> Option<Currency> {
        let mut allowed = self.currencies.iter().filter(|one| one.allows(direction));
        allowed.next().map(|supported| supported.currency)
    }

    /// The platform's terms for a currency, if it supports it.
    pub fn supported(&self, currency: Currency) -> Option<&SupportedCurrency> {
        self.currencies.iter().find(|supported| supported.currency == currency)
    }
}
