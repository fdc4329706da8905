//! The outbox: events, committed with the changes that caused them, and each platform's own count
//! of them.
//!
//! A platform's events are numbered without holes in the order in which they were committed: the
//! lane is the only writer, so whoever has read the events up to a number has missed none of them,
//! and whoever goes on from there meets them all.

use std::collections::BTreeSet;

use domain::event::{Event, EventKind};
use domain::id::PlatformId;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::readers::View;
use crate::record::{Record, record_table};
use crate::sql::{Connection, Row, Value};
use crate::unit::Unit;

pub(crate) mod bundle;

use bundle::{Bundle, EVENTS, EVENTS_MAX};

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

/// The events that stand at these places.
pub(crate) fn at_places(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    places: impl IntoIterator<Item = Place>,
) -> Result<Vec<Numbered>, StoreError> {
    let mut places: BTreeSet<_> = places.into_iter().collect();
    let keys: Vec<_> = places.iter().copied().map(Place::key).collect();
    let mut events = Vec::new();
    connection.rows(&EVENTS, &keys, &mut |values| {
        let bundle = Bundle::read(values)?;
        // It comes once for each of its events that is wanted.
        if bundle.places().any(|place| places.contains(&place)) {
            let opened = bundle.open(keyring)?;
            events.extend(opened.into_iter().filter(|it| places.remove(&it.place())));
        }
        Ok(())
    })?;
    Ok(events)
}

/// Events of a platform that are looked through for those of one kind at a time: a page of a kind
/// that is rare costs no more than this.
const LOOKED_THROUGH_MAX: i64 = 10_000;

/// How many of them are read before it is asked whether there are enough.
const LOOKED_THROUGH_AT_ONCE: i64 = 1_000;

pub(crate) const FEED: &str = "select platform, ordinal, heads, sealed from events \
    where platform = $1 and ordinal > $2 and ordinal < $3 order by ordinal limit $4";

pub(crate) const WHEN: &str = "select ordinal, heads from events \
    where platform = $1 and ordinal >= $2 order by ordinal limit 1";

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
        let (max, at_once) = match kind {
            Some(_) => (LOOKED_THROUGH_MAX, LOOKED_THROUGH_AT_ONCE),
            None => (i64::from(limit), i64::from(limit)),
        };
        let to = head.min(after.saturating_add(max)).max(after);
        let (limit, mut events, mut until) = (limit as usize, Vec::new(), after);
        while until < to && events.len() < limit {
            let from = until;
            until = to.min(from.saturating_add(at_once));
            self.feed_between(platform, from, until, kind, &mut events)?;
        }
        events.truncate(limit);
        let last = events.last().filter(|_| events.len() == limit);
        let until = last.map_or(until, |numbered: &Numbered| numbered.ordinal);
        Ok(Feed { events, until, head })
    }

    /// Adds a platform's events behind a number and up to another.
    fn feed_between(
        &mut self,
        platform: PlatformId,
        from: i64,
        until: i64,
        kind: Option<EventKind>,
        events: &mut Vec<Numbered>,
    ) -> Result<(), StoreError> {
        // The bundle of the last one may end behind it.
        let end = until.saturating_add(EVENTS_MAX as i64);
        let parameters = [platform.into(), from.into(), end.into(), (until - from).into()];
        let keyring = self.keyring;
        let is_asked = |ordinal: i64, of: EventKind| {
            (from < ordinal && ordinal <= until) && kind.is_none_or(|kind| kind == of)
        };
        self.connection.query(FEED, &parameters, EVENTS.columns.len(), &mut |values| {
            let bundle = Bundle::read(values)?;
            if bundle.heads().any(|(ordinal, head)| is_asked(ordinal, head.kind)) {
                let opened = bundle.open(keyring)?.into_iter();
                events.extend(opened.filter(|it| is_asked(it.ordinal, it.event.kind)));
            }
            Ok(())
        })
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
            self.connection.query(WHEN, &[platform.into(), middle.into()], 2, &mut |values| {
                let row = &mut Row::new(EVENTS.table, &["ordinal", "heads"], values);
                let (last, heads) = (row.int()?, row.bytes()?);
                at = bundle::head_at(&heads, last, middle).map(|head| head.at);
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
