//! The outbox: events, committed with the changes that caused them.

use domain::event::{Event, EventKind};
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::packed;
use crate::readers::View;
use crate::sql::{Change, Connection, Row, Shape, Value, Write};

/// The table of events.
pub(crate) static EVENTS: Shape = Shape::new(
    "events",
    &["resource", "number", "id", "platform", "kind", "at", "sealed"],
    2,
    None,
);

pub(crate) fn place(resource: Uuid, number: u32) -> Vec<u8> {
    [&resource.as_bytes()[..], &number.to_be_bytes()].concat()
}

/// The write that appends events.
pub(crate) fn writes(events: &[Event], keyring: &Keyring) -> Option<Write> {
    let row = |event: &Event| {
        let place = place(event.resource, event.number);
        vec![
            event.resource.into(),
            event.number.into(),
            event.id.into(),
            event.platform.into(),
            Value::name(event.kind.name()),
            event.at.into(),
            keyring.seal(EVENTS.table, &place, &packed::pack(&event.body)).into(),
        ]
    };
    let rows: Vec<_> = events.iter().map(row).collect();
    (!rows.is_empty()).then_some(Write { shape: &EVENTS, change: Change::Insert, rows })
}

/// Opens the body of an event.
pub(crate) fn open(keyring: &Keyring, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
    let body = packed::unpack(&keyring.open(EVENTS.table, place, sealed)?);
    body.ok_or(StoreError::Sealed { place: EVENTS.table })
}

/// Reads one row.
pub(crate) fn read(values: Vec<Value>, keyring: &Keyring) -> Result<Event, StoreError> {
    let row = &mut Row::new(EVENTS.table, EVENTS.columns, values);
    let (resource, number) = (row.uuid()?, row.count()?);
    Ok(Event {
        id: row.id()?,
        platform: row.id()?,
        kind: row.named(EventKind::from_name)?,
        resource,
        number,
        at: row.time()?,
        body: open(keyring, &place(resource, number), &row.bytes()?)?,
    })
}

/// Every event about these resources, in the order in which they happened to each.
pub(crate) fn of_resources(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    resources: impl IntoIterator<Item = Uuid>,
) -> Result<Vec<Event>, StoreError> {
    let keys: Vec<_> = resources.into_iter().map(Value::from).collect();
    let mut events = Vec::new();
    if keys.is_empty() {
        return Ok(events);
    }
    connection.fetch(&EVENTS, &keys, &mut |values| {
        events.push(read(values, keyring)?);
        Ok(())
    })?;
    Ok(events)
}

impl View<'_> {
    /// Every event about a resource, in the order in which they happened.
    pub fn events_of(&mut self, resource: Uuid) -> Result<Vec<Event>, StoreError> {
        of_resources(self.connection, self.keyring, [resource])
    }
}
