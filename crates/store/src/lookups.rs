//! Receiver lookups in the store.

use domain::currency::Currency;
use domain::id::{CustomerId, ExternalAccountId, LookupId};
use domain::lookup::{Lookup, Offer, PayWay, Receiver};
use domain::platform::{COUNTERPARTY_FIELDS, CounterpartyField};
use domain::time::Timestamp;
use domain::uma_address::UmaAddress;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::reader::View;
use crate::record::{Record, of_person, record_table};
use crate::sql::{Row, Value};

/// The answer to a lookup. It is kept inside the sealed column because it is about a person.
#[derive(Serialize, Deserialize)]
struct Stored {
    receiver: StoredReceiver,
    offers: Vec<StoredOffer>,
    payer_fields: Vec<(String, bool)>,
}

#[derive(Serialize, Deserialize)]
enum StoredReceiver {
    #[serde(rename = "a")]
    Account(String),
    #[serde(rename = "c")]
    Customer { address: String, customer: String },
    #[serde(rename = "p")]
    Peer { address: String, callback: String, version: String, travel_rule: bool, comment: u32 },
}

#[derive(Serialize, Deserialize)]
struct StoredOffer {
    currency: String,
    min: i64,
    max: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    msat: Option<Decimal>,
}

impl Stored {
    fn of(lookup: &Lookup) -> Self {
        let offer = |offer: &Offer| StoredOffer {
            currency: offer.currency.code().to_owned(),
            min: offer.min_minor,
            max: offer.max_minor,
            msat: offer.msat_per_unit,
        };
        let fields = lookup.payer_fields.iter();
        Self {
            receiver: match &lookup.receiver {
                Receiver::Account(id) => StoredReceiver::Account(id.to_string()),
                Receiver::Customer { address, customer } => StoredReceiver::Customer {
                    address: address.to_string(),
                    customer: customer.to_string(),
                },
                Receiver::Peer { address, way } => StoredReceiver::Peer {
                    address: address.to_string(),
                    callback: way.callback.clone(),
                    version: way.version.clone(),
                    travel_rule: way.is_subject_to_travel_rule,
                    comment: way.comment_max,
                },
            },
            offers: lookup.offers.iter().map(offer).collect(),
            payer_fields: fields.map(|field| (field.name.to_owned(), field.mandatory)).collect(),
        }
    }
}

impl StoredReceiver {
    fn into_domain(self) -> Option<Receiver> {
        Some(match self {
            Self::Account(id) => Receiver::Account(ExternalAccountId::parse(&id).ok()?),
            Self::Customer { address, customer } => Receiver::Customer {
                address: UmaAddress::parse(&address).ok()?,
                customer: CustomerId::parse(&customer).ok()?,
            },
            Self::Peer { address, callback, version, travel_rule, comment } => Receiver::Peer {
                address: UmaAddress::parse(&address).ok()?,
                way: PayWay {
                    callback,
                    version,
                    is_subject_to_travel_rule: travel_rule,
                    comment_max: comment,
                },
            },
        })
    }
}

impl StoredOffer {
    fn into_domain(self) -> Option<Offer> {
        Some(Offer {
            currency: Currency::from_code(&self.currency)?,
            min_minor: self.min,
            max_minor: self.max,
            msat_per_unit: self.msat,
        })
    }
}

/// A field as it was kept; nothing if its name is unknown.
pub(crate) fn payer_field((name, mandatory): (String, bool)) -> Option<CounterpartyField> {
    let name = COUNTERPARTY_FIELDS.into_iter().find(|known| *known == name)?;
    Some(CounterpartyField { name, mandatory })
}

impl Record for Lookup {
    type Key = LookupId;
    const TABLE: &'static str = "lookups";
    const COLUMNS: &'static [&'static str] = &["id", "platform", "sender", "expires_at", "sealed"];
    record_table!(lookups);

    fn key(&self) -> LookupId {
        self.id
    }

    fn owner(&self) -> Option<Uuid> {
        Some(self.sender.uuid())
    }

    fn data_key(&self, _: Option<Uuid>) -> Option<Uuid> {
        of_person(self)
    }

    fn values(&self) -> Vec<Value> {
        let stored = serde_json::to_vec(&Stored::of(self)).expect("a lookup has text keys only");
        vec![
            self.id.into(),
            self.platform.into(),
            self.sender.into(),
            self.expires_at.into(),
            stored.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let (id, platform, sender): (LookupId, _, _) = (row.id()?, row.id()?, row.id()?);
        let expires_at = row.time()?;
        let stored = row.bytes()?;
        let stored: Stored = serde_json::from_slice(&stored).map_err(|error| row.corrupt(error))?;
        let parts = || {
            let fields = stored.payer_fields.into_iter();
            Some(Self {
                id,
                platform,
                sender,
                receiver: stored.receiver.into_domain()?,
                offers: stored
                    .offers
                    .into_iter()
                    .map(StoredOffer::into_domain)
                    .collect::<Option<_>>()?,
                payer_fields: fields.map(payer_field).collect::<Option<_>>()?,
                expires_at,
            })
        };
        parts().ok_or_else(|| row.corrupt("a lookup without a receiver that can be paid"))
    }
}

/// Lookups whose time is over.
pub(crate) const OUTDATED: &str =
    "select id from lookups where expires_at < $1 order by expires_at limit $2";

impl View<'_> {
    /// The lookups that were over before then, oldest first, up to a limit.
    pub fn outdated_lookups(
        &mut self,
        before: Timestamp,
        max: u32,
    ) -> Result<Vec<LookupId>, StoreError> {
        let parameters = [before.into(), max.into()];
        self.connection.all(OUTDATED, &parameters, (Lookup::TABLE, &["id"]), Row::id)
    }
}
