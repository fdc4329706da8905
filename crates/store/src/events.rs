//! The outbox: events, committed with the changes that caused them, and each platform's own count
//! of them.
//!
//! A platform's events are numbered without holes in the order in which they were committed: the
//! lane is the only writer, so whoever has read the events up to a number has missed none of them,
//! and whoever goes on from there meets them all.

use domain::event::{Event, EventKind, event_id};
use domain::id::PlatformId;
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::packed;
use crate::readers::View;
use crate::record::{Record, record_table};
use crate::sql::{Change, Connection, Row, Shape, Value, Write};
use crate::unit::Unit;

/// The table of events.
pub(crate) static EVENTS: Shape = Shape::new(
    "events",
    &["platform", "ordinal", "resource", "number", "kind", "at", "sealed"],
    2,
    None,
);

/// Where an event stands among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The platform that is told.
    pub platform: PlatformId,
    /// The place among all that the platform is told, from 1.
    pub ordinal: i64,
}

impl Place {
    pub(crate) fn key(self) -> Vec<Value> {
        vec![self.platform.into(), self.ordinal.into()]
    }
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

/// What is to become of events that a platform has not been told of.
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
    /// The number up to which there are deliveries, or were none to be.
    pub taken: i64,
    /// The number of the last event before its endpoint was set.
    pub opened: i64,
    /// Whether its endpoint is to have those that come.
    pub endpoint: Endpoint,
    /// Whether something about its deliveries was changed from outside.
    pub news: bool,
}

impl Outbox {
    /// That of a platform which has no events yet.
    pub fn empty(platform: PlatformId) -> Self {
        Self { platform, head: 0, taken: 0, opened: 0, endpoint: Endpoint::None, news: false }
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
            news: row.flag()?,
        })
    }
}

impl Record for Outbox {
    type Key = PlatformId;
    const TABLE: &'static str = "outboxes";
    const COLUMNS: &'static [&'static str] =
        &["platform", "head", "taken", "opened", "endpoint", "news"];
    record_table!(outboxes);

    fn key(&self) -> PlatformId {
        self.platform
    }

    fn key_value(key: &PlatformId) -> Value {
        (*key).into()
    }

    fn values(&self, _: &Keyring) -> Vec<Value> {
        vec![
            self.platform.into(),
            self.head.into(),
            self.taken.into(),
            self.opened.into(),
            Value::name(self.endpoint.name()),
            self.news.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        Self::read_row(row)
    }
}

/// What the sealed bytes of an event belong to.
pub(crate) fn context(resource: Uuid, number: u32) -> Vec<u8> {
    [&resource.as_bytes()[..], &number.to_be_bytes()].concat()
}

/// What the body of an event says again: what it is about, and the id that follows from that.
fn beside(resource: Uuid, number: u32) -> [Uuid; 2] {
    [resource, event_id(resource, number).uuid()]
}

/// The row of an event.
pub(crate) fn row(Numbered { ordinal, event }: &Numbered, keyring: &Keyring) -> Vec<Value> {
    let context = context(event.resource, event.number);
    let body = packed::pack(&event.body, &beside(event.resource, event.number));
    vec![
        event.platform.into(),
        (*ordinal).into(),
        event.resource.into(),
        event.number.into(),
        Value::name(event.kind.name()),
        event.at.into(),
        keyring.seal(EVENTS.table, &context, &body).into(),
    ]
}

/// The write that appends rows of events.
pub(crate) fn appended(rows: Vec<Vec<Value>>) -> Write {
    Write { shape: &EVENTS, change: Change::Insert, rows }
}

/// Opens the body of an event.
pub(crate) fn open(
    keyring: &Keyring,
    resource: Uuid,
    number: u32,
    sealed: &[u8],
) -> Result<Vec<u8>, StoreError> {
    let packed = keyring.open(EVENTS.table, &context(resource, number), sealed)?;
    let body = packed::unpack(&packed, &beside(resource, number));
    body.ok_or(StoreError::Sealed { place: EVENTS.table })
}

/// Reads one row.
pub(crate) fn read(values: Vec<Value>, keyring: &Keyring) -> Result<Numbered, StoreError> {
    let row = &mut Row::new(EVENTS.table, EVENTS.columns, values);
    let (platform, ordinal) = (row.id()?, row.int()?);
    let (resource, number) = (row.uuid()?, row.count()?);
    let event = Event {
        id: event_id(resource, number),
        platform,
        kind: row.named(EventKind::from_name)?,
        resource,
        number,
        at: row.time()?,
        body: open(keyring, resource, number, &row.bytes()?)?,
    };
    Ok(Numbered { ordinal, event })
}

/// The events that stand at these places.
pub(crate) fn at_places(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    places: impl IntoIterator<Item = Place>,
) -> Result<Vec<Numbered>, StoreError> {
    let keys: Vec<_> = places.into_iter().map(Place::key).collect();
    let mut events = Vec::new();
    connection.rows(&EVENTS, &keys, &mut |values| {
        events.push(read(values, keyring)?);
        Ok(())
    })?;
    Ok(events)
}

/// Events of a platform that are looked through for those of one kind at a time: a page of a kind
/// that is rare costs no more than this.
const LOOKED_THROUGH_MAX: i64 = 10_000;

pub(crate) const FEED: &str = "select platform, ordinal, resource, number, kind, at, sealed \
    from events where platform = $1 and ordinal > $2 and ordinal <= $3 order by ordinal limit $4";

pub(crate) const FEED_OF_KIND: &str = "select platform, ordinal, resource, number, kind, at, \
    sealed from events where platform = $1 and ordinal > $2 and ordinal <= $3 and kind = $4 \
    order by ordinal limit $5";

pub(crate) const WHEN: &str = "select at from events where platform = $1 and ordinal = $2";

pub(crate) const OUTBOXES_WITH_NEWS: &str = "select platform, head, taken, opened, endpoint, \
    news from outboxes where news = 1 or (endpoint = 'OPEN' and taken < head)";

pub(crate) const OPEN_OUTBOXES: &str = "select platform, head, taken, opened, endpoint, news \
    from outboxes where endpoint <> 'NONE'";

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
        let found = at_places(self.connection, self.keyring, [place])?;
        Ok(found.into_iter().next().map(|numbered| numbered.event))
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
        let to = match kind {
            Some(_) => head.min(after.saturating_add(LOOKED_THROUGH_MAX)),
            None => head,
        };
        let mut parameters: Vec<Value> = vec![platform.into(), after.into(), to.into()];
        parameters.extend(kind.map(|kind| Value::name(kind.name())));
        parameters.push(limit.into());
        let sql = if kind.is_some() { FEED_OF_KIND } else { FEED };
        let (keyring, mut events) = (self.keyring, Vec::new());
        self.connection.query(sql, &parameters, EVENTS.columns.len(), &mut |values| {
            events.push(read(values, keyring)?);
            Ok(())
        })?;
        let is_full = events.len() as u64 >= u64::from(limit);
        let last = events.last().map(|numbered: &Numbered| numbered.ordinal);
        let until = if is_full { last.unwrap_or(after) } else { to.max(after) };
        Ok(Feed { events, until, head })
    }

    /// The number of the last event that a platform had before a time, as far as its clock went
    /// forward; 0 if it had none.
    pub fn last_before(
        &mut self,
        platform: PlatformId,
        time: domain::time::Timestamp,
    ) -> Result<i64, StoreError> {
        let head = self.get::<Outbox>(&platform)?.map_or(0, |outbox| outbox.head);
        let (mut before, mut from) = (0, head + 1);
        while from - before > 1 {
            let middle = before + (from - before) / 2;
            let mut at = None;
            self.connection.query(WHEN, &[platform.into(), middle.into()], 1, &mut |values| {
                at = Some(Row::new("events", &["at"], values).time()?);
                Ok(())
            })?;
            match at {
                Some(at) if at < time => before = middle,
                Some(_) | None => from = middle,
            }
        }
        Ok(before)
    }

    /// Platforms with something that whoever delivers has not seen.
    pub fn outboxes_with_news(&mut self) -> Result<Vec<Outbox>, StoreError> {
        self.outboxes(OUTBOXES_WITH_NEWS)
    }

    /// Platforms that have or had an endpoint.
    pub fn open_outboxes(&mut self) -> Result<Vec<Outbox>, StoreError> {
        self.outboxes(OPEN_OUTBOXES)
    }

    fn outboxes(&mut self, sql: &str) -> Result<Vec<Outbox>, StoreError> {
        let mut outboxes = Vec::new();
        self.connection.query(sql, &[], Outbox::COLUMNS.len(), &mut |values| {
            let row = &mut Row::new(Outbox::TABLE, Outbox::COLUMNS, values);
            outboxes.push(Outbox::read_row(row)?);
            Ok(())
        })?;
        Ok(outboxes)
    }
}

impl Unit<'_, '_> {
    /// A platform's count of events.
    pub fn outbox(&mut self, platform: PlatformId) -> Result<Outbox, StoreError> {
        let outbox = self.get::<Outbox>(&platform)?;
        Ok(outbox.map_or_else(|| Outbox::empty(platform), |outbox| *outbox))
    }

    /// Keeps what is to become of a platform's events. The caller has read it.
    pub fn put_outbox(&mut self, outbox: Outbox) {
        self.put(outbox);
    }

    /// Tells the platform, and gives the event's place among all that it is told.
    pub fn add_event(&mut self, event: Event) -> Result<i64, StoreError> {
        let outbox = self.outbox(event.platform)?;
        let ordinal = outbox.head + 1;
        self.put_outbox(Outbox { head: ordinal, ..outbox });
        self.push_event(Numbered { ordinal, event });
        Ok(ordinal)
    }
}
