//! Quotes in the store.

use domain::currency::Currency;
use domain::id::{CustomerId, LookupId, Owner, PlatformId, QuoteId, TransactionId};
use domain::money::{Money, Receiving, Sending};
use domain::pricing::{Fees, Locked, Price};
use domain::quote::{Draft, Quote, Route, Status, Step, Uma};
use domain::rate::Rate;
use domain::rate_basis::{PriceRule, RateBasis, RateSource};
use domain::time::Timestamp;
use domain::transaction::{PURPOSES, Settlement};
use domain::uma_address::UmaAddress;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::accounts::{Named, destination_uuid, source_uuid};
use crate::error::StoreError;
use crate::external_accounts::{owner_values, read_owner};
use crate::keyring::Keyring;
use crate::list::{Conditions, Ids, Page, PageRequest, Query, Way, split_by};
use crate::reader::View;
use crate::record::{Record, of_person, record_table};
use crate::sql::{Row, Value};
use crate::transactions::{
    StoredDestination, StoredFacts, StoredRateDetails, StoredSource, history_bytes, position,
    read_facts, read_steps, stored_facts,
};

/// The parts of a quote that are kept inside the sealed column.
#[derive(Serialize, Deserialize)]
struct Stored {
    source: StoredSource,
    destination: StoredDestination,
    sending_locked: bool,
    rate: Decimal,
    /// The fee of the payee's institution, in smallest sending units.
    #[serde(default)]
    counterparty_fee: i64,
    #[serde(flatten)]
    details: StoredRateDetails,
    basis: StoredBasis,
    #[serde(skip_serializing_if = "Option::is_none")]
    purpose: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uma: Option<StoredUma>,
}

/// The basis of the rate.
#[derive(Serialize, Deserialize)]
struct StoredBasis {
    mid: Decimal,
    at: i64,
    source: String,
    spread: Decimal,
    rule: String,
}

impl StoredBasis {
    fn of(basis: &RateBasis) -> Self {
        Self {
            mid: basis.mid,
            at: basis.as_of.millis(),
            source: basis.source.name().to_owned(),
            spread: basis.spread,
            rule: basis.rule.name().to_owned(),
        }
    }

    fn into_domain(self) -> Option<RateBasis> {
        Some(RateBasis {
            mid: self.mid,
            as_of: Timestamp::from_millis(self.at),
            source: RateSource::from_name(&self.source)?,
            spread: self.spread,
            rule: PriceRule::from_name(&self.rule)?,
        })
    }
}

/// UMA data of a quote to an address; its lookup and its millisatoshi are in columns.
#[derive(Serialize, Deserialize)]
struct StoredUma {
    sender: String,
    payer: StoredFacts,
    route: StoredRoute,
}

#[derive(Serialize, Deserialize)]
enum StoredRoute {
    #[serde(rename = "h")]
    Here(String),
    #[serde(rename = "l")]
    Lightning(String),
}

impl StoredUma {
    fn of(uma: &Uma) -> Self {
        Self {
            sender: uma.sender.to_string(),
            payer: stored_facts(&uma.payer),
            route: match &uma.route {
                Route::Here { customer } => StoredRoute::Here(customer.to_string()),
                Route::Lightning { invoice, .. } => StoredRoute::Lightning(invoice.clone()),
            },
        }
    }

    fn into_domain(self, lookup: LookupId, msat: Option<i64>) -> Option<Uma> {
        Some(Uma {
            lookup,
            sender: UmaAddress::parse(&self.sender).ok()?,
            payer: read_facts(self.payer)?,
            route: match (self.route, msat) {
                (StoredRoute::Here(customer), None) => {
                    Route::Here { customer: CustomerId::parse(&customer).ok()? }
                }
                (StoredRoute::Lightning(invoice), Some(msat)) => {
                    Route::Lightning { invoice, msat: Money::positive(msat, Currency::MSAT).ok()? }
                }
                (StoredRoute::Here(_), Some(_)) | (StoredRoute::Lightning(_), None) => return None,
            },
        })
    }
}

/// The name of a route in storage.
fn route_name(route: &Route) -> &'static str {
    let [here, lightning] = Settlement::NAMES;
    match route {
        Route::Here { .. } => here,
        Route::Lightning { .. } => lightning,
    }
}

/// The amount of a route over Lightning, in millisatoshi.
fn route_msat(route: &Route) -> Option<i64> {
    match route {
        Route::Here { .. } => None,
        Route::Lightning { msat, .. } => Some(msat.minor()),
    }
}

impl Record for Quote {
    type Key = QuoteId;
    const TABLE: &'static str = "quotes";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "platform",
        "owner_kind",
        "owner",
        "transaction_id",
        "status",
        "source_account",
        "destination_account",
        "sending_currency",
        "sending_minor",
        "fees_minor",
        "receiving_currency",
        "receiving_minor",
        "created_at",
        "updated_at",
        "expires_at",
        "lookup",
        "route",
        "msat",
        "history",
        "sealed",
    ];
    /// A quote takes two kilobytes, and is executed some seconds after it was made or not at all.
    const CACHED_MAX: usize = 8_192;
    const HIDDEN: &'static [&'static str] = &["source_account", "destination_account"];
    record_table!(quotes);

    fn key(&self) -> QuoteId {
        self.id()
    }

    fn owner(&self) -> Option<Uuid> {
        self.draft().owner.customer().map(|customer| customer.uuid())
    }

    fn data_key(&self, _: Option<Uuid>) -> Option<Uuid> {
        of_person(self)
    }

    fn values(&self) -> Vec<Value> {
        let draft = self.draft();
        let price = &draft.price;
        let stored = Stored {
            source: StoredSource::of(&draft.source),
            destination: StoredDestination::of(&draft.destination),
            sending_locked: matches!(draft.locked, Locked::Sending(_)),
            rate: price.rate.value(),
            counterparty_fee: price.counterparty_fee.minor(),
            details: StoredRateDetails::of(&draft.rate_details),
            basis: StoredBasis::of(&draft.basis),
            purpose: draft.purpose.map(str::to_owned),
            uma: draft.uma.as_ref().map(StoredUma::of),
        };
        let uma = draft.uma.as_ref();
        let stored = serde_json::to_vec(&stored).expect("a quote has text keys only");
        let step = |step: &Step| (position(&Status::ALL, step.status), step.at);
        let [owner_kind, owner] = owner_values(draft.owner);
        vec![
            draft.id.into(),
            draft.platform.into(),
            owner_kind,
            owner,
            draft.transaction.into(),
            Value::name(self.status().name()),
            Value::or_null(source_uuid(draft.platform, &draft.source)),
            destination_uuid(draft.platform, &draft.destination).into(),
            Value::name(price.sent.currency().code()),
            price.sent.minor().into(),
            price.own_fees().minor().into(),
            Value::name(price.received.currency().code()),
            price.received.minor().into(),
            self.created_at().into(),
            self.updated_at().into(),
            draft.expires_at.into(),
            Value::or_null(uma.map(|uma| uma.lookup)),
            Value::or_null(uma.map(|uma| Value::name(route_name(&uma.route)))),
            Value::or_null(uma.and_then(|uma| route_msat(&uma.route))),
            history_bytes(self.history().iter().map(step)).into(),
            stored.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let columns = Columns::read(row)?;
        let stored = row.bytes()?;
        let stored: Stored = serde_json::from_slice(&stored).map_err(|error| row.corrupt(error))?;
        let draft =
            columns.draft(stored).ok_or_else(|| row.corrupt("parts that do not fit together"))?;
        if !columns.name_accounts_of(&draft) {
            return Err(row.corrupt("not listed where it belongs"));
        }
        let Columns { status, created_at, updated_at, history, .. } = columns;
        let quote =
            Self::restore(draft, history).map_err(|inconsistent| row.corrupt(inconsistent.what))?;
        let times_agree = (quote.created_at(), quote.updated_at()) == (created_at, updated_at);
        if quote.status() != status || !times_agree {
            return Err(row.corrupt("a history that does not end in the row's status"));
        }
        Ok(quote)
    }
}

/// The plain columns of a row.
struct Columns {
    id: QuoteId,
    platform: PlatformId,
    owner: Owner,
    transaction: TransactionId,
    status: Status,
    source_account: Option<Uuid>,
    destination_account: Uuid,
    sending_currency: Currency,
    sending_minor: i64,
    fees_minor: i64,
    receiving_currency: Currency,
    receiving_minor: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
    expires_at: Timestamp,
    lookup: Option<LookupId>,
    route: Option<String>,
    msat: Option<i64>,
    history: Vec<Step>,
}

impl Columns {
    /// Reads them, in the order of [`Record::COLUMNS`].
    fn read(row: &mut Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id()?,
            platform: row.id()?,
            owner: read_owner(row)?,
            transaction: row.id()?,
            status: row.named(Status::from_name)?,
            source_account: row.uuid_or_null()?,
            destination_account: row.uuid()?,
            sending_currency: row.currency()?,
            sending_minor: row.int()?,
            fees_minor: row.int()?,
            receiving_currency: row.currency()?,
            receiving_minor: row.int()?,
            created_at: row.time()?,
            updated_at: row.time()?,
            expires_at: row.time()?,
            lookup: row.uuid_or_null()?.map(LookupId::from_uuid),
            route: row.text_or_null()?,
            msat: row.int_or_null()?,
            history: read_steps(row, &Status::ALL, |status, at| Step { status, at })?,
        })
    }

    /// The draft that they make with the sealed parts, if these fit.
    fn draft(&self, stored: Stored) -> Option<Draft> {
        let (sending, receiving) = (self.sending_currency, self.receiving_currency);
        let sent = Sending(Money::positive(self.sending_minor, sending).ok()?);
        let received = Receiving(Money::positive(self.receiving_minor, receiving).ok()?);
        let details = stored.details.into_domain(sending, receiving)?;
        let price = Price {
            sent,
            received,
            fixed_fee: details.fixed_fee,
            variable_fee: details.variable_fee,
            counterparty_fee: Money::new(stored.counterparty_fee, sending).ok()?,
            rate: Rate::new(stored.rate, sending, receiving).ok()?,
            fees: Fees::new(details.fixed_fee.minor(), details.variable_fee_rate).ok()?,
        };
        if price.own_fees().minor() != self.fees_minor {
            return None;
        }
        let purpose = match stored.purpose {
            Some(name) => Some(PURPOSES.into_iter().find(|known| *known == name)?),
            None => None,
        };
        let uma = match (stored.uma, self.lookup) {
            (Some(uma), Some(lookup)) => Some(uma.into_domain(lookup, self.msat)?),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return None,
        };
        if uma.as_ref().map(|uma| route_name(&uma.route)) != self.route.as_deref() {
            return None;
        }
        Some(Draft {
            id: self.id,
            platform: self.platform,
            owner: self.owner,
            transaction: self.transaction,
            source: stored.source.into_domain(self.source_account, Some(sending))?,
            destination: stored.destination.into_domain(self.destination_account, receiving)?,
            locked: if stored.sending_locked {
                Locked::Sending(sent)
            } else {
                Locked::Receiving(received)
            },
            price,
            rate_details: details,
            basis: stored.basis.into_domain()?,
            expires_at: self.expires_at,
            purpose,
            uma,
        })
    }

    /// Whether the columns by which it is listed are those of its parts.
    fn name_accounts_of(&self, draft: &Draft) -> bool {
        source_uuid(draft.platform, &draft.source) == self.source_account
            && destination_uuid(draft.platform, &draft.destination) == self.destination_account
    }
}

/// Which quotes are listed. Bounds are inclusive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuoteFilter {
    /// Of this sender.
    pub owner: Option<Owner>,
    /// From this account.
    pub source_account: Option<Uuid>,
    /// To this account.
    pub destination_account: Option<Uuid>,
    /// To this UMA address.
    pub receiver: Option<UmaAddress>,
    /// In this status.
    pub status: Option<Status>,
    /// Made then or later.
    pub created_after: Option<Timestamp>,
    /// Made then or earlier.
    pub created_before: Option<Timestamp>,
    /// Of the customer with this address.
    pub sender: Option<UmaAddress>,
}

impl View<'_> {
    /// A platform's quotes.
    pub fn quotes(
        &mut self,
        platform: PlatformId,
        filter: &QuoteFilter,
        page: PageRequest,
    ) -> Result<Page<Quote>, StoreError> {
        let runs = |column: &str, value: Uuid| {
            let statuses = Status::ALL.into_iter();
            let statuses = statuses.filter(|it| filter.status.is_none_or(|wanted| wanted == *it));
            split_by(vec![Conditions::equal(column, value)], "status", statuses.map(Status::name))
        };
        let way = |column: &str, value: Uuid| Way {
            runs: runs(column, value),
            condition: Conditions::equal(column, value),
        };
        let mut owners: Vec<_> = filter.owner.into_iter().collect();
        if let Some(address) = &filter.sender {
            let Some(customer) = self.claim(address)? else { return Ok(Page::EMPTY) };
            owners.push(Owner::Customer(customer));
        }
        let mut ways = Vec::new();
        for owner in owners {
            if !self.is_owner(platform, owner)? {
                return Ok(Page::EMPTY);
            }
            ways.push(way("owner", owner.uuid()));
        }
        let receiver = filter.receiver.clone().map(Named::Address);
        let accounts = [
            ("source_account", filter.source_account.map(Named::Account)),
            ("destination_account", filter.destination_account.map(Named::Account)),
            ("destination_account", receiver),
        ];
        for (column, named) in accounts {
            let Some(named) = named else { continue };
            let Some(key) = self.list_key(platform, &named)? else { return Ok(Page::EMPTY) };
            ways.push(way(column, key));
        }
        if ways.is_empty() {
            ways.push(way("platform", platform.uuid()));
        }
        let ids = Ids::made(filter.created_after, filter.created_before);
        self.list(Query { ways, ..Query::of(Way::only(Vec::new()), ids) }, page)
    }
}
