//! The outbox: events, committed with the changes that caused them, and each platform's own count
//! of them.
//!
//! A platform's events are numbered without holes in the order in which they were committed: there
//! is one writer at a time, so a reader of the events up to a number has missed none of them, and
//! meets them all from there on.

use domain::delivery::{Delivery, Draft, Plan};
use domain::event::{Event, EventKind, event_id};
use domain::id::{Id, PlatformId};
use domain::invitation::Invitation;
use domain::time::Timestamp;
use domain::transaction::Transaction;
use uuid::Uuid;

use crate::compressed::{compress, decompress};
use crate::error::StoreError;
use crate::journal::change_set::{Kind, RowChange, TableChange};
use crate::keyring::Keyring;
use crate::reader::View;
use crate::record::{Record, record_table};
use crate::sql::{Row, Shape, Value};
use crate::unit::Unit;

/// The table of events.
pub(crate) static EVENTS: Shape = Shape::new(
    22,
    "events",
    &["platform", "ordinal", "kind", "resource", "number", "at", "sealed"],
)
.with_key(2, 2)
.with_seal(seal);

/// Where an event stands among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The platform that is notified.
    pub platform: PlatformId,
    /// The place among all of the platform's events, from 1.
    pub ordinal: i64,
}

/// An event with its place among all of its platform's, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    /// The place.
    pub ordinal: i64,
    /// The event.
    pub event: Event,
}

impl Numbered {
    /// Where it stands among all.
    pub fn place(&self) -> Place {
        Place { platform: self.event.platform, ordinal: self.ordinal }
    }
}

/// The plain columns of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) place: Place,
    pub(crate) kind: EventKind,
    pub(crate) resource: Uuid,
    pub(crate) number: u32,
    pub(crate) at: Timestamp,
}

impl Header {
    /// Reads the plain columns of a row.
    pub(crate) fn read(row: &mut Row) -> Result<Self, StoreError> {
        let place = Place { platform: row.id()?, ordinal: row.int()? };
        let kind = row.named(EventKind::from_name)?;
        Ok(Self { place, kind, resource: row.uuid()?, number: row.count()?, at: row.time()? })
    }

    /// The sealed body belongs to all plain columns, so that none can be changed alone.
    pub(crate) fn context(self) -> Vec<u8> {
        let platform = self.place.platform.uuid();
        let parts: [&[u8]; 6] = [
            platform.as_bytes(),
            &self.place.ordinal.to_be_bytes(),
            self.resource.as_bytes(),
            &self.number.to_be_bytes(),
            &self.at.millis().to_be_bytes(),
            self.kind.name().as_bytes(),
        ];
        parts.concat()
    }

    /// Opens the body, which stands behind the plain columns.
    pub(crate) fn open(self, row: &mut Row, keyring: &Keyring) -> Result<Numbered, StoreError> {
        let body = keyring.open(EVENTS.table, &self.context(), &row.bytes()?)?;
        let body = decompress(&body).ok_or(StoreError::Sealed { place: EVENTS.table })?;
        let Self { place: Place { platform, ordinal }, kind, resource, number, at } = self;
        let id = event_id(resource, number);
        let event = Event { id, platform, kind, resource, number, at, body };
        Ok(Numbered { ordinal, event })
    }
}

pub(crate) fn read(values: Vec<Value>, keyring: &Keyring) -> Result<Numbered, StoreError> {
    read_row(&mut Row::new(EVENTS.table, EVENTS.columns, values), keyring)
}

fn read_row(row: &mut Row, keyring: &Keyring) -> Result<Numbered, StoreError> {
    Header::read(row)?.open(row, keyring)
}

/// Compresses and seals the body, which stands behind the plain columns.
fn seal(row: &mut [Value], keyring: &Keyring) {
    let header = Header::read(&mut Row::new(EVENTS.table, EVENTS.columns, row.to_vec()));
    let (Ok(header), Some(Value::Bytes(body))) = (header, row.last_mut()) else {
        panic!("the values of an event are not those of its table");
    };
    *body = keyring.seal(EVENTS.table, &header.context(), &compress(body));
}

/// The change to an event about a customer.
fn change(kind_of_change: Kind, numbered: &Numbered, owner: Option<Uuid>) -> RowChange {
    let Event { platform, kind, resource, number, at, ref body, .. } = numbered.event;
    let values = vec![
        platform.into(),
        numbered.ordinal.into(),
        Value::name(kind.name()),
        resource.into(),
        number.into(),
        at.into(),
        Value::from(&body[..]),
    ];
    let change = TableChange { table: EVENTS.number, kind: kind_of_change, values };
    RowChange { owner, change }
}

/// Where events go that were not delivered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// It has no endpoint.
    None,
    /// They are delivered.
    Open,
    /// Its endpoint has said that it wants none any more (410).
    Gone,
}

impl Endpoint {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::None, Self::Open, Self::Gone];

    /// The name in storage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Open => "OPEN",
            Self::Gone => "GONE",
        }
    }

    /// The state with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A platform's count of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outbox {
    /// The platform.
    pub platform: PlatformId,
    /// The number of its last event; 0 if it has none.
    pub head: i64,
    /// The number up to which events have deliveries; the last one while the endpoint is open.
    pub taken: i64,
    /// The number of the last event before its endpoint was set.
    pub opened: i64,
    /// Whether its endpoint is to have those that come.
    pub endpoint: Endpoint,
    /// Counts changes of the endpoint, and what clients want to be sent again.
    pub revision: i64,
}

impl Outbox {
    /// The count of a platform that has no events yet.
    pub fn empty(platform: PlatformId) -> Self {
        Self { platform, head: 0, taken: 0, opened: 0, endpoint: Endpoint::None, revision: 0 }
    }
}

impl Outbox {
    /// Reads a row, in which nothing is sealed.
    pub(crate) fn read_row(row: &mut Row) -> Result<Self, StoreError> {
        Ok(Self {
            platform: row.id()?,
            head: row.int()?,
            taken: row.int()?,
            opened: row.int()?,
            endpoint: row.named(Endpoint::from_name)?,
            revision: row.int()?,
        })
    }
}

impl Record for Outbox {
    type Key = PlatformId;
    const TABLE: &'static str = "outboxes";
    const COLUMNS: &'static [&'static str] =
        &["platform", "head", "taken", "opened", "endpoint", "revision"];
    record_table!(outboxes);

    fn key(&self) -> PlatformId {
        self.platform
    }

    fn values(&self) -> Vec<Value> {
        vec![
            self.platform.into(),
            self.head.into(),
            self.taken.into(),
            self.opened.into(),
            Value::name(self.endpoint.name()),
            self.revision.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        Self::read_row(row)
    }
}

pub(crate) const AT_PLACE: &str = "select platform, ordinal, kind, resource, number, at, sealed \
    from events where platform = $1 and ordinal = $2";

pub(crate) const FEED: &str = "select platform, ordinal, kind, resource, number, at, sealed \
    from events where platform = $1 and ordinal > $2 and ordinal <= $3 order by ordinal limit $4";

pub(crate) const FEED_OF_KIND: &str = "select platform, ordinal, kind, resource, number, at, \
    sealed from events where platform = $1 and kind = $2 and ordinal > $3 and ordinal <= $4 \
    order by ordinal limit $5";

pub(crate) const WHEN: &str = "select at from events where platform = $1 and ordinal = $2";

/// Some of a platform's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feed {
    /// The events, oldest first.
    pub events: Vec<Numbered>,
    /// The number up to which none was left out.
    pub until: i64,
    /// The number of the platform's last event.
    pub head: i64,
}

impl View<'_> {
    /// The event that stands at a place.
    pub fn event(&mut self, place: Place) -> Result<Option<Event>, StoreError> {
        let keyring = self.keyring;
        let key = [place.platform.into(), place.ordinal.into()];
        let columns = (EVENTS.table, EVENTS.columns);
        self.connection.first(AT_PLACE, &key, columns, |row| Ok(read_row(row, keyring)?.event))
    }

    /// A platform's events behind a number, all or those of a kind, in the order in which they were
    /// committed.
    pub fn feed(
        &mut self,
        platform: PlatformId,
        after: i64,
        kind: Option<EventKind>,
        limit: u32,
    ) -> Result<Feed, StoreError> {
        let head = self.get::<Outbox>(&platform)?.map_or(0, |outbox| outbox.head);
        let (platform, range) = (Value::from(platform), [after, head, i64::from(limit)]);
        let [after_value, head_value, limit_value] = range.map(Value::from);
        let (keyring, columns) = (self.keyring, (EVENTS.table, EVENTS.columns));
        let mut parameters = vec![platform, after_value, head_value, limit_value];
        let sql = match kind {
            None => FEED,
            Some(kind) => {
                parameters.insert(1, Value::name(kind.name()));
                FEED_OF_KIND
            }
        };
        let read = |row: &mut Row| read_row(row, keyring);
        let events = self.connection.all(sql, &parameters, columns, read)?;
        let last = events.last().filter(|_| events.len() == limit as usize);
        let until = last.map_or(head.max(after), |numbered: &Numbered| numbered.ordinal);
        Ok(Feed { events, until, head })
    }

    /// The number of the last event that a platform had before a time, as far as its clock went
    /// forward; 0 if it had none.
    pub fn last_before(
        &mut self,
        platform: PlatformId,
        time: Timestamp,
    ) -> Result<i64, StoreError> {
        let head = self.get::<Outbox>(&platform)?.map_or(0, |outbox| outbox.head);
        let (mut before, mut from) = (0, head + 1);
        while from - before > 1 {
            let middle = before + (from - before) / 2;
            let parameters = [platform.into(), middle.into()];
            let columns = (EVENTS.table, &["at"][..]);
            match self.connection.first(WHEN, &parameters, columns, Row::time)? {
                Some(at) if at < time => before = middle,
                Some(_) | None => from = middle,
            }
        }
        Ok(before)
    }
}

impl Unit<'_, '_> {
    /// A platform's count of events.
    pub fn outbox(&mut self, platform: PlatformId) -> Result<Outbox, StoreError> {
        let outbox = self.get::<Outbox>(&platform)?;
        Ok(outbox.map_or_else(|| Outbox::empty(platform), |outbox| *outbox))
    }

    /// Adds an event, with its delivery if the platform has an endpoint, and gives its ordinal.
    pub fn add_event(&mut self, event: Event) -> Result<i64, StoreError> {
        self.add(event, |kind, is_open| is_open.then(|| Plan::of(kind)))
    }

    /// Adds an event as an approval request: this server asks the platform when this is committed,
    /// and no other server attempts the delivery.
    pub fn request_approval(&mut self, event: Event) -> Result<(), StoreError> {
        self.add(event.clone(), |_, _| Some(Plan::Asked))?;
        self.push_approval_request(event);
        Ok(())
    }

    fn add(
        &mut self,
        event: Event,
        plan: impl FnOnce(EventKind, bool) -> Option<Plan>,
    ) -> Result<i64, StoreError> {
        let outbox = self.outbox(event.platform)?;
        let (ordinal, is_open) = (outbox.head + 1, outbox.endpoint == Endpoint::Open);
        let taken = if is_open { ordinal } else { outbox.taken };
        self.put(Outbox { head: ordinal, taken, ..outbox });
        if let Some(plan) = plan(event.kind, is_open) {
            self.put(Delivery::pending(Draft::new(&event, ordinal, plan), event.at));
        }
        let owner = self.owner_of(&event)?;
        self.push_event(change(Kind::Insert, &Numbered { ordinal, event }, owner));
        Ok(ordinal)
    }

    /// Gives an event another body: the first one was about a customer who is erased.
    pub fn change_event(&mut self, event: &Numbered) {
        self.push_event(change(Kind::Update, event, None));
    }

    /// The customer whose personal data an event tells. Its unit has read or written its resource.
    fn owner_of(&mut self, event: &Event) -> Result<Option<Uuid>, StoreError> {
        let id = event.resource;
        Ok(match event.kind {
            EventKind::IncomingPayment | EventKind::OutgoingPayment => {
                self.get::<Transaction>(&Id::from_uuid(id))?.and_then(|it| it.data_key(None))
            }
            EventKind::InvitationClaimed => {
                self.get::<Invitation>(&Id::from_uuid(id))?.and_then(|it| it.data_key(None))
            }
            EventKind::KycStatus => Some(id),
            // They tell of ids and amounts only.
            EventKind::AccountStatus | EventKind::Test | EventKind::BulkUpload => None,
        })
    }
}
