//! The outbox: events, committed with the changes that caused them.

use domain::event::{Event, EventKind};
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::readers::View;
use crate::sql::{Connection, Row, Value};

pub(crate) const TABLE: &str = "events";
const COLUMNS: &[&str] = &["resource", "number", "id", "platform", "kind", "at", "sealed"];

pub(crate) const INSERT: &str = "insert into events \
    (resource, number, id, platform, kind, at, sealed) values ($1, $2, $3, $4, $5, $6, $7)";

pub(crate) const OF_RESOURCE: &str = "select resource, number, id, platform, kind, at, sealed \
    from events where resource = $1 order by number";

pub(crate) fn place(resource: Uuid, number: u32) -> Vec<u8> {
    [&resource.as_bytes()[..], &number.to_be_bytes()].concat()
}

pub(crate) fn insert(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    event: &Event,
) -> Result<(), StoreError> {
    let place = place(event.resource, event.number);
    let values = [
        event.resource.into(),
        event.number.into(),
        event.id.into(),
        event.platform.into(),
        Value::name(event.kind.name()),
        event.at.into(),
        keyring.seal(TABLE, &place, &event.body).into(),
    ];
    connection.execute(INSERT, &values).map(drop)
}

impl View<'_> {
    /// Every event about a resource, in the order in which they happened.
    pub fn events_of(&mut self, resource: Uuid) -> Result<Vec<Event>, StoreError> {
        let (keyring, mut events) = (self.keyring, Vec::new());
        self.connection.query(OF_RESOURCE, &[resource.into()], COLUMNS.len(), &mut |values| {
            let row = &mut Row::new(TABLE, COLUMNS, values);
            let (resource, number) = (row.uuid()?, row.count()?);
            events.push(Event {
                id: row.id()?,
                platform: row.id()?,
                kind: row.named(EventKind::from_name)?,
                resource,
                number,
                at: row.time()?,
                body: keyring.open(TABLE, &place(resource, number), &row.bytes()?)?,
            });
            Ok(())
        })?;
        Ok(events)
    }
}
