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

use crate::error::StoreError;
use crate::journal::bodies::{self, Found};
use crate::journal::change_set::{Kind, Personal, RowChange, TableChange};
use crate::keyring::Keyring;
use crate::reader::View;
use crate::record::{Record, record_table};
use crate::sql::{Connection, Row, Shape, Value};
use crate::unit::Unit;

/// The table of events.
pub(crate) static EVENTS: Shape =
    Shape::new(22, "events", &["platform", "ordinal", "kind", "resource", "number", "at", "seq"])
        .with_key(2, 2)
        .with_body_in_journal(true);

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

/// A row of an event: all but its body, which is in a row of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) header: Header,
    /// The number of that row.
    pub(crate) seq: u64,
}

/// The outcome of looking for an event's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The event.
    Event(Event),
    /// The person whom it is about was erased, and it was not rendered anew yet.
    Erased,
    /// The journal does not have it, or another one.
    Missing(String),
}

impl Header {
    /// Reads all columns but the last.
    pub(crate) fn read(row: &mut Row) -> Result<Self, StoreError> {
        let place = Place { platform: row.id()?, ordinal: row.int()? };
        let kind = row.named(EventKind::from_name)?;
        Ok(Self { place, kind, resource: row.uuid()?, number: row.count()?, at: row.time()? })
    }

    /// The event with this body.
    fn with(self, body: Vec<u8>) -> Event {
        let Self { place: Place { platform, .. }, kind, resource, number, at } = self;
        Event { id: event_id(resource, number), platform, kind, resource, number, at, body }
    }
}

impl Listed {
    /// Reads a row.
    pub(crate) fn read(row: &mut Row) -> Result<Self, StoreError> {
        let (header, seq) = (Header::read(row)?, row.int()?);
        let seq = u64::try_from(seq).map_err(|_| row.corrupt("not the number of a row"))?;
        Ok(Self { header, seq })
    }

    /// The event, from the row as the journal has it. The table must not say anything else.
    fn opened(self, found: Found) -> Opened {
        let values = match found {
            Found::There(values) => values,
            Found::Erased => return Opened::Erased,
            Found::Missing(what) => return Opened::Missing(what),
        };
        let row = &mut Row::new(EVENTS.table, EVENTS.columns, values);
        match (Header::read(row), row.bytes()) {
            (Ok(header), Ok(body)) if header == self.header => Opened::Event(header.with(body)),
            _ => Opened::Missing(format!("row {} of the journal says something else", self.seq)),
        }
    }
}

/// Opens events, in their order.
pub(crate) fn open(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    listed: &[Listed],
) -> Result<Vec<Opened>, StoreError> {
    let wanted = listed.iter().map(|Listed { header, seq }| {
        let Place { platform, ordinal } = header.place;
        (*seq, vec![platform.into(), ordinal.into()])
    });
    let found = bodies::find(connection, keyring, &EVENTS, &wanted.collect::<Vec<_>>())?;
    Ok(listed.iter().zip(found).map(|(listed, found)| listed.opened(found)).collect())
}

/// The change to an event, with the personal data in it.
fn change(kind_of_change: Kind, numbered: &Numbered, of_person: Option<Personal>) -> RowChange {
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
    RowChange { of_person, change: TableChange::new(EVENTS.number, kind_of_change, values) }
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

pub(crate) const AT_PLACE: &str = "select platform, ordinal, kind, resource, number, at, seq \
    from events where platform = $1 and ordinal = $2";

pub(crate) const FEED: &str = "select platform, ordinal, kind, resource, number, at, seq \
    from events where platform = $1 and ordinal > $2 and ordinal <= $3 order by ordinal limit $4";

pub(crate) const FEED_OF_KIND: &str = "select platform, ordinal, kind, resource, number, at, \
    seq from events where platform = $1 and kind = $2 and ordinal > $3 and ordinal <= $4 \
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
    /// The event that stands at a place. It has no body if that was about a person who was erased.
    pub fn event(&mut self, place: Place) -> Result<Option<Event>, StoreError> {
        let key = [place.platform.into(), place.ordinal.into()];
        let columns = (EVENTS.table, EVENTS.columns);
        let listed = self.connection.first(AT_PLACE, &key, columns, Listed::read)?;
        let Some(listed) = listed else { return Ok(None) };
        match open(self.connection, self.keyring, &[listed])?.pop() {
            Some(Opened::Event(event)) => Ok(Some(event)),
            Some(Opened::Erased) => Ok(Some(listed.header.with(Vec::new()))),
            Some(Opened::Missing(what)) => Err(missing(listed, what)),
            None => Ok(None),
        }
    }

    /// A platform's events behind a number, all or those of a kind, in the order in which they were
    /// committed. It ends before one about a person who was erased a moment ago, until that was
    /// rendered anew.
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
        let mut parameters = vec![platform, after_value, head_value, limit_value];
        let sql = match kind {
            None => FEED,
            Some(kind) => {
                parameters.insert(1, Value::name(kind.name()));
                FEED_OF_KIND
            }
        };
        let columns = (EVENTS.table, EVENTS.columns);
        let all = self.connection.all(sql, &parameters, columns, Listed::read)?;
        let last = all.last().filter(|_| all.len() == limit as usize);
        let mut until = last.map_or(head.max(after), |listed| listed.header.place.ordinal);
        let opened = open(self.connection, self.keyring, &all)?;
        let mut events = Vec::with_capacity(all.len());
        for (listed, opened) in all.into_iter().zip(opened) {
            let ordinal = listed.header.place.ordinal;
            match opened {
                Opened::Event(event) => events.push(Numbered { ordinal, event }),
                Opened::Missing(what) => return Err(missing(listed, what)),
                Opened::Erased => {
                    until = ordinal - 1;
                    break;
                }
            }
        }
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

/// The body of an event is not where its row says.
fn missing(Listed { header, .. }: Listed, what: String) -> StoreError {
    let Header { number, resource, .. } = header;
    StoreError::Corrupt { place: format!("event {number} of {resource}"), what }
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
            let delivery = Delivery::pending(Draft::new(&event, ordinal, plan), event.at);
            self.put(delivery.clone());
            if plan != Plan::Asked {
                self.push_delivery(delivery, event.clone(), outbox.revision);
            }
        }
        let of_person = self.of_person(&event)?;
        self.push_event(change(Kind::Insert, &Numbered { ordinal, event }, of_person));
        Ok(ordinal)
    }

    /// Gives an event another body: the first one was about a customer who is erased.
    pub fn change_event(&mut self, event: &Numbered) {
        self.push_event(change(Kind::Update, event, None));
    }

    /// The customer of whom an event tells. Its unit has read or written its resource.
    fn of_person(&mut self, event: &Event) -> Result<Option<Personal>, StoreError> {
        let id = event.resource;
        Ok(match event.kind {
            EventKind::IncomingPayment | EventKind::OutgoingPayment => {
                let payment = self.get::<Transaction>(&Id::from_uuid(id))?;
                payment.and_then(|it| Personal::of(&*it, None))
            }
            EventKind::InvitationClaimed => {
                let invitation = self.get::<Invitation>(&Id::from_uuid(id))?;
                invitation.and_then(|it| Personal::of(&*it, None))
            }
            EventKind::KycStatus => Some(Personal { owner: id, texts: None }),
            // They tell of ids and amounts only.
            EventKind::AccountStatus | EventKind::Test | EventKind::BulkUpload => None,
        })
    }
}
