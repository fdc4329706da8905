//! Transactions in the store.

mod list;
mod stored;

use domain::currency::Currency;
use domain::erasure::Erase;
use domain::id::{Owner, PlatformId, QuoteId, TransactionId};
use domain::money::{Money, Receiving, Sending};
use domain::rail::{Rail, RailWords};
use domain::time::Timestamp;
use domain::transaction::{
    Direction, Draft, FailureReason, Settlement, Source, Status, StatusReason, Step, Transaction,
    Uma,
};
use uuid::Uuid;

use self::stored::{SettlementColumns, Stored, StoredRailWords};
use crate::accounts::{address_uuid, destination_uuid, source_uuid};
use crate::error::StoreError;
use crate::external_accounts::{owner_values, read_owner};
use crate::keyring::Keyring;
use crate::record::{Record, of_person, record_table};
use crate::sql::{Row, Value};

pub use self::list::TransactionFilter;
pub(crate) use self::stored::{
    StoredDestination, StoredFacts, StoredRateDetails, StoredSource, history_bytes, position,
    read_facts, read_history, read_steps, stored_facts,
};
pub use crate::accounts::Named;

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
    const HIDDEN: &'static [&'static str] =
        &["platform_customer_id", "source_account", "destination_account", "own_address"];
    record_table!(transactions);

    fn key(&self) -> TransactionId {
        self.id()
    }

    fn owner(&self) -> Option<Uuid> {
        self.draft().owner.customer().map(|customer| customer.uuid())
    }

    fn data_key(&self, _: Option<Uuid>) -> Option<Uuid> {
        of_person(self)
    }

    fn only_texts(&self) -> Option<Vec<&str>> {
        Erase::only_texts(self)
    }

    fn values(&self) -> Vec<Value> {
        let draft = self.draft();
        let stored = Stored::of(self);
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
            stored.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let columns = Columns::read(row)?;
        let stored = row.bytes()?;
        let mut stored: Stored =
            serde_json::from_slice(&stored).map_err(|error| row.corrupt(error))?;
        let reason = stored.reason.take().map(|(code, message)| StatusReason::given(code, message));
        let rail = stored
            .rail
            .map(|number| Rail::from_number(number).ok_or_else(|| row.corrupt("unknown rail")))
            .transpose()?;
        let request = stored.request.take();
        let words = stored.rail_words.take().map_or(RailWords::NONE, StoredRailWords::into_domain);
        let draft =
            columns.draft(stored).ok_or_else(|| row.corrupt("parts that do not fit together"))?;
        if !columns.name_accounts_of(&draft) {
            return Err(row.corrupt("not listed where it belongs"));
        }
        let Columns { status, failure, created_at, updated_at, history, .. } = columns;
        let transaction = Self::restore(draft, history, failure, reason, (rail, words))
            .map_err(|inconsistent| row.corrupt(inconsistent.what))?
            .requested_by(request.as_deref());
        let times_agree =
            (transaction.created_at(), transaction.updated_at()) == (created_at, updated_at);
        if transaction.status() != status || !times_agree {
            return Err(row.corrupt("a history that does not end in the row's status"));
        }
        Ok(transaction)
    }
}

/// The plain columns of a row.
struct Columns {
    id: TransactionId,
    platform: PlatformId,
    owner: Owner,
    platform_customer_id: String,
    direction: Direction,
    status: Status,
    failure: Option<FailureReason>,
    source_account: Option<Uuid>,
    destination_account: Uuid,
    own_address: Option<Uuid>,
    sending_currency: Option<Currency>,
    sending_minor: Option<i64>,
    receiving_currency: Currency,
    receiving_minor: i64,
    quote: Option<QuoteId>,
    settlement: SettlementColumns,
    created_at: Timestamp,
    updated_at: Timestamp,
    history: Vec<Step>,
}

impl Columns {
    /// Reads them, in the order of [`Record::COLUMNS`].
    fn read(row: &mut Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id()?,
            platform: row.id()?,
            owner: read_owner(row)?,
            platform_customer_id: row.text()?,
            direction: row.named(Direction::from_name)?,
            status: row.named(Status::from_name)?,
            failure: row.or_null(|row| row.named(FailureReason::from_name))?,
            source_account: row.uuid_or_null()?,
            destination_account: row.uuid()?,
            own_address: row.uuid_or_null()?,
            sending_currency: row.or_null(Row::currency)?,
            sending_minor: row.int_or_null()?,
            receiving_currency: row.currency()?,
            receiving_minor: row.int()?,
            quote: row.uuid_or_null()?.map(QuoteId::from_uuid),
            settlement: SettlementColumns {
                route: row.text_or_null()?,
                msat: row.int_or_null()?,
                outgoing: row.uuid_or_null()?.map(TransactionId::from_uuid),
            },
            created_at: row.time()?,
            updated_at: row.time()?,
            history: read_steps(row, &Status::ALL, |status, at| Step { status, at })?,
        })
    }

    /// The draft that they make with the sealed parts, if these fit.
    fn draft(&self, mut stored: Stored) -> Option<Draft> {
        let rail_request = stored.take_rail_request()?;
        let (sending, receiving) = (self.sending_currency, self.receiving_currency);
        let source = match stored.source {
            Some(source) => Some(source.into_domain(self.source_account, sending)?),
            None => None,
        };
        let sent = match self.sending_minor {
            Some(minor) => Some(Sending(Money::positive(minor, sending?).ok()?)),
            None => None,
        };
        let terms = match stored.terms {
            Some(terms) => Some(terms.into_domain(self.quote?, sending?, receiving)?),
            None => None,
        };
        let uma = match (stored.uma, self.settlement.to_domain()?) {
            (None, None) => None,
            (Some(uma), Some(settlement)) => Some(uma.into_domain(settlement, receiving)?),
            (Some(_), None) | (None, Some(_)) => return None,
        };
        let conversion = uma.as_ref().and_then(|uma: &Uma| uma.conversion);
        let arriving = conversion.map_or(receiving, |it| it.deposited.currency());
        Some(Draft {
            id: self.id,
            platform: self.platform,
            owner: self.owner,
            platform_customer_id: self.platform_customer_id.clone(),
            direction: self.direction,
            source,
            destination: stored.destination.into_domain(self.destination_account, arriving)?,
            sent,
            received: Receiving(Money::positive(self.receiving_minor, receiving).ok()?),
            terms,
            uma,
            description: stored.description,
            rail_request,
        })
    }

    /// Whether the columns by which it is listed are those of its parts.
    fn name_accounts_of(&self, draft: &Draft) -> bool {
        let source = draft.source.as_ref().and_then(|source| source_uuid(draft.platform, source));
        own_address(draft) == self.own_address
            && source == self.source_account
            && destination_uuid(draft.platform, &draft.destination) == self.destination_account
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
