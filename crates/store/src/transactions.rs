//! Transactions in the store.

mod list;

use domain::account_info::AccountType;
use domain::currency::Currency;
use domain::id::{QuoteId, TransactionId};
use domain::money::{Money, Receiving, Sending};
use domain::platform::COUNTERPARTY_FIELDS;
use domain::pricing::Multipliers;
use domain::rail::{Rail, RailWords};
use domain::rate::Rate;
use domain::time::Timestamp;
use domain::transaction::{
    AccountRef, Conversion, Destination, Direction, Draft, Facts, FailureReason, RateDetails,
    Settlement, Source, Status, StatusReason, Step, Terms, Transaction, Uma,
};
use domain::uma_address::UmaAddress;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::accounts::{address_uuid, destination_uuid, source_uuid};
use crate::error::StoreError;
use crate::external_accounts::{owner_values, read_owner};
use crate::keyring::Keyring;
use crate::record::{Record, record_table};
use crate::sql::{Row, Value};

pub use self::list::TransactionFilter;
pub use crate::accounts::Named;

/// The parts of a transaction that are kept inside the sealed column, under names of one letter:
/// they are written twice with every payment.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(rename = "s", skip_serializing_if = "Option::is_none")]
    source: Option<StoredSource>,
    #[serde(rename = "d")]
    destination: StoredDestination,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    terms: Option<StoredTerms>,
    #[serde(rename = "u", skip_serializing_if = "Option::is_none")]
    uma: Option<StoredUma>,
    #[serde(rename = "n", skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Code and message of why it failed or was rejected.
    #[serde(rename = "w", skip_serializing_if = "Option::is_none")]
    reason: Option<(String, String)>,
    /// The number of the rail of its latest order.
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    rail: Option<u8>,
    #[serde(rename = "r", skip_serializing_if = "Option::is_none")]
    rail_words: Option<StoredRailWords>,
}

/// A rail's own words.
#[derive(Serialize, Deserialize)]
struct StoredRailWords {
    #[serde(rename = "c", skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(rename = "r", skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
}

impl StoredRailWords {
    fn of(words: &RailWords) -> Option<Self> {
        let own = |said: Option<&str>| said.map(str::to_owned);
        (*words != RailWords::NONE).then(|| Self {
            code: own(words.code()),
            text: own(words.text()),
            reference: own(words.reference()),
        })
    }

    fn into_domain(self) -> RailWords {
        let Self { code, text, reference } = self;
        RailWords::new(code.as_deref(), text.as_deref(), reference.as_deref())
    }
}

/// Whether an account is internal; its id and currency are in columns of their own.
#[derive(Serialize, Deserialize, Clone, Copy)]
pub(crate) enum StoredAccount {
    #[serde(rename = "i")]
    Internal,
    #[serde(rename = "e")]
    External,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum StoredSource {
    #[serde(rename = "a")]
    Account(StoredAccount),
    #[serde(rename = "r")]
    RealtimeFunding(Option<String>),
    #[serde(rename = "u")]
    Uma(String),
}

#[derive(Serialize, Deserialize)]
pub(crate) enum StoredDestination {
    #[serde(rename = "a")]
    Account(StoredAccount),
    #[serde(rename = "u")]
    Uma(String),
}

/// Names and values of facts about a person.
pub(crate) type StoredFacts = std::collections::BTreeMap<String, String>;

/// Facts as they are kept.
pub(crate) fn stored_facts(facts: &Facts) -> StoredFacts {
    facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

/// Facts as they were kept; nothing if one has an unknown name.
pub(crate) fn read_facts(stored: StoredFacts) -> Option<Facts> {
    let known = |(name, value): (String, String)| {
        let name = COUNTERPARTY_FIELDS.into_iter().find(|known| *known == name)?;
        Some((name, value))
    };
    stored.into_iter().map(known).collect()
}

/// What a payment between UMA addresses has besides; how it is settled is in columns.
#[derive(Serialize, Deserialize)]
struct StoredUma {
    sender: String,
    receiver: String,
    counterparty: StoredFacts,
    #[serde(skip_serializing_if = "Option::is_none")]
    rates: Option<StoredRateDetails>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversion: Option<StoredConversion>,
}

/// A received amount converted for a deposit account.
#[derive(Serialize, Deserialize)]
struct StoredConversion {
    currency: String,
    deposited: i64,
    rate: Decimal,
    fees: i64,
}

impl StoredConversion {
    fn of(conversion: &Conversion) -> Self {
        Self {
            currency: conversion.deposited.currency().code().to_owned(),
            deposited: conversion.deposited.minor(),
            rate: conversion.rate.value(),
            fees: conversion.fees.minor(),
        }
    }

    fn into_domain(self, received: Currency) -> Option<Conversion> {
        let currency = Currency::from_code(&self.currency)?;
        Some(Conversion {
            deposited: Money::positive(self.deposited, currency).ok()?,
            rate: Rate::new(self.rate, received, currency).ok()?,
            fees: Money::new(self.fees, received).ok()?,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct StoredTerms {
    rate: Decimal,
    fees: i64,
    #[serde(flatten)]
    details: StoredRateDetails,
}

/// Fee parts as they are kept, in smallest units of the sending currency.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredRateDetails {
    fixed: i64,
    variable: i64,
    variable_rate: Decimal,
    /// In smallest units of the receiving currency.
    #[serde(default, skip_serializing_if = "is_zero")]
    counterparty: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    multipliers: Option<(Decimal, Decimal)>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(minor: &i64) -> bool {
    *minor == 0
}

impl StoredRateDetails {
    pub(crate) fn of(details: &RateDetails) -> Self {
        Self {
            fixed: details.fixed_fee.minor(),
            variable: details.variable_fee.minor(),
            variable_rate: details.variable_fee_rate,
            counterparty: details.counterparty_fee.minor(),
            multipliers: details.multipliers.map(|pair| (pair.service_api, pair.counterparty)),
        }
    }

    pub(crate) fn into_domain(self, sending: Currency, receiving: Currency) -> Option<RateDetails> {
        Some(RateDetails {
            fixed_fee: Money::new(self.fixed, sending).ok()?,
            variable_fee: Money::new(self.variable, sending).ok()?,
            variable_fee_rate: self.variable_rate,
            counterparty_fee: Money::new(self.counterparty, receiving).ok()?,
            multipliers: self
                .multipliers
                .map(|(service_api, counterparty)| Multipliers { service_api, counterparty }),
        })
    }
}

impl StoredAccount {
    pub(crate) fn of(account: AccountRef) -> Self {
        match account {
            AccountRef::Internal(_) => Self::Internal,
            AccountRef::External(_) => Self::External,
        }
    }

    pub(crate) fn into_domain(self, uuid: Uuid) -> AccountRef {
        match self {
            Self::Internal => AccountRef::Internal(domain::id::Id::from_uuid(uuid)),
            Self::External => AccountRef::External(domain::id::Id::from_uuid(uuid)),
        }
    }
}

impl StoredSource {
    pub(crate) fn of(source: &Source) -> Self {
        match source {
            Source::Account { account, .. } => Self::Account(StoredAccount::of(*account)),
            Source::RealtimeFunding { network, .. } => {
                Self::RealtimeFunding(network.map(str::to_owned))
            }
            Source::Uma { address } => Self::Uma(address.to_string()),
        }
    }

    pub(crate) fn into_domain(
        self,
        account: Option<Uuid>,
        currency: Option<Currency>,
    ) -> Option<Source> {
        match self {
            Self::Account(kind) => {
                Some(Source::Account { account: kind.into_domain(account?), currency: currency? })
            }
            Self::RealtimeFunding(network) => {
                let network = match network {
                    Some(name) => Some(AccountType::known_network(&name)?),
                    None => None,
                };
                Some(Source::RealtimeFunding { currency: currency?, network })
            }
            Self::Uma(address) => Some(Source::Uma { address: UmaAddress::parse(&address).ok()? }),
        }
    }
}

impl StoredDestination {
    pub(crate) fn of(destination: &Destination) -> Self {
        match destination {
            Destination::Account { account, .. } => Self::Account(StoredAccount::of(*account)),
            Destination::Uma { address, .. } => Self::Uma(address.to_string()),
        }
    }

    pub(crate) fn into_domain(self, account: Uuid, currency: Currency) -> Option<Destination> {
        Some(match self {
            Self::Account(kind) => {
                Destination::Account { account: kind.into_domain(account), currency }
            }
            Self::Uma(address) => {
                Destination::Uma { address: UmaAddress::parse(&address).ok()?, currency }
            }
        })
    }
}

/// The columns of how a payment between UMA addresses is settled, as they stand in the row.
struct SettlementColumns {
    route: Option<String>,
    msat: Option<i64>,
    outgoing: Option<TransactionId>,
}

impl SettlementColumns {
    fn into_domain(self) -> Option<Option<Settlement>> {
        let [here, lightning] = Settlement::NAMES;
        match (self.route.as_deref(), self.msat, self.outgoing) {
            (None, None, None) => Some(None),
            (Some(route), None, outgoing) if route == here => {
                Some(Some(Settlement::Here { outgoing }))
            }
            (Some(route), Some(msat), None) if route == lightning => {
                let msat = Money::positive(msat, Currency::MSAT).ok()?;
                Some(Some(Settlement::Lightning { msat }))
            }
            _ => None,
        }
    }
}

/// Nine bytes a step: the status's place in the specification's list, then the time.
pub(crate) fn history_bytes(steps: impl Iterator<Item = (usize, Timestamp)>) -> Vec<u8> {
    let step = |(status, at): (usize, Timestamp)| {
        std::iter::once(status as u8).chain(at.millis().to_be_bytes())
    };
    steps.flat_map(step).collect()
}

/// Reads the next column, a history that [`history_bytes`] wrote.
pub(crate) fn read_steps<S: Copy, T>(
    row: &mut Row,
    statuses: &[S],
    step: impl Fn(S, Timestamp) -> T,
) -> Result<Vec<T>, StoreError> {
    let steps = read_history(&row.bytes()?);
    let known = |(status, at): (usize, Timestamp)| Some(step(*statuses.get(status)?, at));
    steps
        .and_then(|steps| steps.into_iter().map(known).collect())
        .ok_or_else(|| row.corrupt("not a history"))
}

/// Reads what [`history_bytes`] wrote.
pub(crate) fn read_history(bytes: &[u8]) -> Option<Vec<(usize, Timestamp)>> {
    const STEP: usize = 9;
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let step = |[status, millis @ ..]: &[u8; STEP]| {
        (usize::from(*status), Timestamp::from_millis(i64::from_be_bytes(*millis)))
    };
    rest.is_empty().then(|| steps.iter().map(step).collect())
}

impl Record for Transaction {
    type Key = TransactionId;
    const TABLE: &'static str = "transactions";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "platform",
        "owner_kind",
        "owner",
        "platform_customer_id",
        "direction",
        "status",
        "failure_reason",
        "source_account",
        "destination_account",
        "own_address",
        "sending_currency",
        "sending_minor",
        "receiving_currency",
        "receiving_minor",
        "quote",
        "route",
        "msat",
        "outgoing",
        "created_at",
        "updated_at",
        "history",
        "sealed",
    ];
    record_table!(transactions);

    fn key(&self) -> TransactionId {
        self.id()
    }

    fn values(&self, keyring: &Keyring) -> Vec<Value> {
        let draft = self.draft();
        let stored = Stored {
            source: draft.source.as_ref().map(StoredSource::of),
            destination: StoredDestination::of(&draft.destination),
            uma: draft.uma.as_ref().map(|uma| StoredUma {
                sender: uma.sender.to_string(),
                receiver: uma.receiver.to_string(),
                counterparty: stored_facts(&uma.counterparty),
                rates: uma.rate_details.as_ref().map(StoredRateDetails::of),
                conversion: uma.conversion.as_ref().map(StoredConversion::of),
            }),
            terms: draft.terms.as_ref().map(|terms| StoredTerms {
                rate: terms.rate.value(),
                fees: terms.fees.minor(),
                details: StoredRateDetails::of(&terms.rate_details),
            }),
            description: draft.description.clone(),
            reason: self
                .reason()
                .map(|reason| (reason.code().to_owned(), reason.message().to_owned())),
            rail: self.rail().map(Rail::number),
            rail_words: StoredRailWords::of(self.rail_words()),
        };
        let stored = serde_json::to_vec(&stored).expect("a transaction has text keys only");
        let source = draft.source.as_ref();
        let source_account = source.and_then(|source| source_uuid(draft.platform, source));
        let settlement = draft.uma.as_ref().map(|uma| uma.settlement);
        let outgoing = match settlement {
            Some(Settlement::Here { outgoing }) => outgoing,
            Some(Settlement::Lightning { .. }) | None => None,
        };
        let sending_currency = draft
            .sent
            .map(Sending::currency)
            .or_else(|| source.and_then(Source::currency))
            .map_or(Value::Null, |currency| Value::name(currency.code()));
        let step = |step: &Step| (position(&Status::ALL, step.status), step.at);
        let [owner_kind, owner] = owner_values(draft.owner);
        vec![
            draft.id.into(),
            draft.platform.into(),
            owner_kind,
            owner,
            draft.platform_customer_id.as_str().into(),
            Value::name(draft.direction.name()),
            Value::name(self.status().name()),
            self.failure().map_or(Value::Null, |reason| Value::name(reason.name())),
            Value::or_null(source_account),
            destination_uuid(draft.platform, &draft.destination).into(),
            Value::or_null(own_address(draft)),
            sending_currency,
            Value::or_null(draft.sent.map(Sending::minor)),
            Value::name(draft.received.currency().code()),
            draft.received.minor().into(),
            Value::or_null(draft.terms.as_ref().map(|terms| terms.quote)),
            Value::or_null(settlement.map(|settlement| Value::name(settlement.name()))),
            Value::or_null(settlement.and_then(Settlement::msat).map(Money::minor)),
            Value::or_null(outgoing),
            self.created_at().into(),
            self.updated_at().into(),
            history_bytes(self.history().iter().map(step)).into(),
            keyring.seal(Self::TABLE, draft.id.uuid().as_bytes(), &stored).into(),
        ]
    }

    fn read(row: &mut Row, keyring: &Keyring) -> Result<Self, StoreError> {
        let (id, platform): (TransactionId, _) = (row.id()?, row.id()?);
        let owner = read_owner(row)?;
        let platform_customer_id = row.text()?;
        let direction = row.named(Direction::from_name)?;
        let status = row.named(Status::from_name)?;
        let failure = row.or_null(|row| row.named(FailureReason::from_name))?;
        let (source_account, destination_account) = (row.uuid_or_null()?, row.uuid()?);
        let listed_address = row.uuid_or_null()?;
        let sending_currency = row.or_null(Row::currency)?;
        let sending_minor = row.int_or_null()?;
        let (receiving_currency, receiving_minor) = (row.currency()?, row.int()?);
        let quote = row.uuid_or_null()?.map(QuoteId::from_uuid);
        let settlement = SettlementColumns {
            route: row.text_or_null()?,
            msat: row.int_or_null()?,
            outgoing: row.uuid_or_null()?.map(TransactionId::from_uuid),
        };
        let (created_at, updated_at) = (row.time()?, row.time()?);
        let history = read_steps(row, &Status::ALL, |status, at| Step { status, at })?;
        let stored = keyring.open(Self::TABLE, id.uuid().as_bytes(), &row.bytes()?)?;
        let stored: Stored = serde_json::from_slice(&stored).map_err(|error| row.corrupt(error))?;
        let reason = stored.reason.map(|(code, message)| StatusReason::given(code, message));
        let rail = stored
            .rail
            .map(|number| Rail::from_number(number).ok_or_else(|| row.corrupt("unknown rail")))
            .transpose()?;
        let words = stored.rail_words.map_or(RailWords::NONE, StoredRailWords::into_domain);
        let parts = || {
            let source = match stored.source {
                Some(source) => Some(source.into_domain(source_account, sending_currency)?),
                None => None,
            };
            let sent = match sending_minor {
                Some(minor) => Some(Sending(Money::positive(minor, sending_currency?).ok()?)),
                None => None,
            };
            let terms = match stored.terms {
                Some(terms) => {
                    let sending = sending_currency?;
                    Some(Terms {
                        quote: quote?,
                        rate: Rate::new(terms.rate, sending, receiving_currency).ok()?,
                        fees: Money::new(terms.fees, sending).ok()?,
                        rate_details: terms.details.into_domain(sending, receiving_currency)?,
                    })
                }
                None => None,
            };
            let received = Money::positive(receiving_minor, receiving_currency).ok()?;
            let uma = match (stored.uma, settlement.into_domain()?) {
                (None, None) => None,
                (Some(uma), Some(settlement)) => {
                    let rates = uma
                        .rates
                        .map(|rates| rates.into_domain(receiving_currency, receiving_currency));
                    let conversion = uma.conversion;
                    let conversion = conversion.map(|it| it.into_domain(receiving_currency));
                    Some(Uma {
                        sender: UmaAddress::parse(&uma.sender).ok()?,
                        receiver: UmaAddress::parse(&uma.receiver).ok()?,
                        counterparty: read_facts(uma.counterparty)?,
                        settlement,
                        rate_details: match rates {
                            Some(rates) => Some(rates?),
                            None => None,
                        },
                        conversion: match conversion {
                            Some(conversion) => Some(conversion?),
                            None => None,
                        },
                    })
                }
                (Some(_), None) | (None, Some(_)) => return None,
            };
            let conversion = uma.as_ref().and_then(|uma: &Uma| uma.conversion);
            let arriving = conversion.map_or(receiving_currency, |it| it.deposited.currency());
            Some(Draft {
                id,
                platform,
                owner,
                platform_customer_id,
                direction,
                source,
                destination: stored.destination.into_domain(destination_account, arriving)?,
                sent,
                received: Receiving(received),
                terms,
                uma,
                description: stored.description,
            })
        };
        let draft = parts().ok_or_else(|| row.corrupt("parts that do not fit together"))?;
        let source = draft.source.as_ref().and_then(|source| source_uuid(platform, source));
        let is_listed = own_address(&draft) == listed_address
            && source == source_account
            && destination_uuid(platform, &draft.destination) == destination_account;
        if !is_listed {
            return Err(row.corrupt("not listed where it belongs"));
        }
        let transaction = Self::restore(draft, history, failure, reason, (rail, words))
            .map_err(|inconsistent| row.corrupt(inconsistent.what))?;
        let times_agree =
            (transaction.created_at(), transaction.updated_at()) == (created_at, updated_at);
        if transaction.status() != status || !times_agree {
            return Err(row.corrupt("a history that does not end in the row's status"));
        }
        Ok(transaction)
    }
}

/// The key of the owner's own address, if the payment is one between addresses. The other side's is
/// the source or the destination.
fn own_address(draft: &Draft) -> Option<Uuid> {
    let uma = draft.uma.as_ref()?;
    let own = match draft.direction {
        Direction::Outgoing => &uma.sender,
        Direction::Incoming => &uma.receiver,
    };
    Some(address_uuid(draft.platform, own))
}

pub(crate) fn position<T: PartialEq>(all: &[T], one: T) -> usize {
    all.iter().position(|known| *known == one).expect("the list has every value")
}
