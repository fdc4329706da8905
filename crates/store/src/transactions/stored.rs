//! The parts of a transaction inside its sealed column, and the histories in a column.

use std::collections::BTreeMap;

use domain::account_info::AccountType;
use domain::currency::Currency;
use domain::id::{QuoteId, TransactionId};
use domain::money::Money;
use domain::platform::COUNTERPARTY_FIELDS;
use domain::pricing::Multipliers;
use domain::rail::{Rail, RailWords};
use domain::rate::Rate;
use domain::time::Timestamp;
use domain::transaction::{
    AboutPayee, AccountRef, Conversion, Destination, Facts, PURPOSES, RailRequest, RateDetails,
    Settlement, Source, Terms, Transaction, Uma,
};
use domain::uma_address::UmaAddress;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::StoreError;
use crate::lookups::payer_field;
use crate::sealed::each;
use crate::sql::Row;

/// The parts of a transaction that are kept inside the sealed column, under names of one letter:
/// they are written twice with every payment.
#[derive(Serialize, Deserialize)]
pub(super) struct Stored {
    #[serde(rename = "s", skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<StoredSource>,
    #[serde(rename = "d")]
    pub(super) destination: StoredDestination,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    pub(super) terms: Option<StoredTerms>,
    #[serde(rename = "u", skip_serializing_if = "Option::is_none")]
    pub(super) uma: Option<StoredUma>,
    #[serde(rename = "n", skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    /// Code and message of why it failed or was rejected.
    #[serde(rename = "w", skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<(String, String)>,
    /// The number of the rail of its latest order.
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    pub(super) rail: Option<u8>,
    #[serde(rename = "r", skip_serializing_if = "Option::is_none")]
    pub(super) rail_words: Option<StoredRailWords>,
    /// The id of the latest request that has changed it.
    #[serde(rename = "q", default, skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<String>,
    /// Wishes of the payer for the rail: text, purpose, number of the rail.
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    remittance: Option<String>,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    purpose: Option<String>,
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    wanted_rail: Option<u8>,
}

impl Stored {
    pub(super) fn of(transaction: &Transaction) -> Self {
        let draft = transaction.draft();
        let reason = transaction.reason();
        Self {
            source: draft.source.as_ref().map(StoredSource::of),
            destination: StoredDestination::of(&draft.destination),
            uma: draft.uma.as_ref().map(StoredUma::of),
            terms: draft.terms.as_ref().map(StoredTerms::of),
            description: draft.description.clone(),
            reason: reason.map(|reason| (reason.code().to_owned(), reason.message().to_owned())),
            rail: transaction.rail().map(Rail::number),
            rail_words: StoredRailWords::of(transaction.rail_words()),
            request: transaction.request().map(str::to_owned),
            remittance: draft.rail_request.remittance.clone(),
            purpose: draft.rail_request.purpose.map(str::to_owned),
            wanted_rail: draft.rail_request.rail.map(Rail::number),
        }
    }

    /// Takes out the wishes of the payer for the rail; nothing if one of them is unknown.
    pub(super) fn take_rail_request(&mut self) -> Option<RailRequest> {
        let known = |name: String| PURPOSES.into_iter().find(|known| *known == name);
        Some(RailRequest {
            remittance: self.remittance.take(),
            purpose: each(self.purpose.take(), known)?,
            rail: each(self.wanted_rail, Rail::from_number)?,
        })
    }
}

/// A rail's own words.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredRailWords {
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

    pub(super) fn into_domain(self) -> RailWords {
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
pub(crate) type StoredFacts = BTreeMap<String, String>;

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

/// UMA data of a payment between addresses; its settlement is in columns.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredUma {
    sender: String,
    receiver: String,
    counterparty: StoredFacts,
    #[serde(skip_serializing_if = "Option::is_none")]
    rates: Option<StoredRateDetails>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversion: Option<StoredConversion>,
    /// Names of facts about the payee that are asked for, and whether they are insisted on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    asked: Vec<(String, bool)>,
    #[serde(default, skip_serializing_if = "StoredFacts::is_empty")]
    given: StoredFacts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    callback: Option<String>,
}

impl StoredUma {
    fn of(uma: &Uma) -> Self {
        Self {
            sender: uma.sender.to_string(),
            receiver: uma.receiver.to_string(),
            counterparty: stored_facts(&uma.counterparty),
            rates: uma.rate_details.as_ref().map(StoredRateDetails::of),
            conversion: uma.conversion.as_ref().map(StoredConversion::of),
            asked: uma.payee.asked.iter().map(|it| (it.name.to_owned(), it.mandatory)).collect(),
            given: stored_facts(&uma.payee.given),
            callback: uma.callback.clone(),
        }
    }

    pub(super) fn into_domain(self, settlement: Settlement, received: Currency) -> Option<Uma> {
        Some(Uma {
            sender: UmaAddress::parse(&self.sender).ok()?,
            receiver: UmaAddress::parse(&self.receiver).ok()?,
            counterparty: read_facts(self.counterparty)?,
            settlement,
            rate_details: match self.rates {
                Some(rates) => Some(rates.into_domain(received, received)?),
                None => None,
            },
            conversion: match self.conversion {
                Some(conversion) => Some(conversion.into_domain(received)?),
                None => None,
            },
            payee: AboutPayee {
                asked: self.asked.into_iter().map(payer_field).collect::<Option<_>>()?,
                given: read_facts(self.given)?,
            },
            callback: self.callback,
        })
    }
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
pub(super) struct StoredTerms {
    rate: Decimal,
    fees: i64,
    #[serde(flatten)]
    details: StoredRateDetails,
}

impl StoredTerms {
    fn of(terms: &Terms) -> Self {
        Self {
            rate: terms.rate.value(),
            fees: terms.fees.minor(),
            details: StoredRateDetails::of(&terms.rate_details),
        }
    }

    pub(super) fn into_domain(
        self,
        quote: QuoteId,
        sending: Currency,
        receiving: Currency,
    ) -> Option<Terms> {
        Some(Terms {
            quote,
            rate: Rate::new(self.rate, sending, receiving).ok()?,
            fees: Money::new(self.fees, sending).ok()?,
            rate_details: self.details.into_domain(sending, receiving)?,
        })
    }
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
pub(super) struct SettlementColumns {
    pub(super) route: Option<String>,
    pub(super) msat: Option<i64>,
    pub(super) outgoing: Option<TransactionId>,
}

impl SettlementColumns {
    pub(super) fn to_domain(&self) -> Option<Option<Settlement>> {
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

/// Reads the next column: a history that [`history_bytes`] wrote.
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

/// The place of a value in a list that has it.
pub(crate) fn position<T: PartialEq>(all: &[T], one: T) -> usize {
    all.iter().position(|known| *known == one).expect("the list has every value")
}
