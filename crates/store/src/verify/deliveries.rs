//! Deliveries beside their events, and what their attempts say (W1 to W3).

use domain::delivery::{Delivery, Outcome, Status, Verdict, delivery_id};
use domain::event::{Event, EventKind, event_id};
use domain::id::PlatformId;
use domain::network;

use super::parties::{Parties, read_all};
use super::{Findings, Predicate, Run, shown};
use crate::error::StoreError;
use crate::record::Record;
use crate::sql::{Row, Value};

const DELIVERED: &str = "select deliveries.id, deliveries.resource, deliveries.number, \
    deliveries.platform, deliveries.kind, events.resource, events.number, events.kind, events.at \
    from deliveries left join events \
    on events.platform = deliveries.platform and events.ordinal = deliveries.ordinal";
const COLUMNS: &[&str] = &[
    "id",
    "resource",
    "number",
    "platform",
    "kind",
    "events.resource",
    "events.number",
    "events.kind",
    "events.at",
];

pub(super) fn statements() -> impl Iterator<Item = String> {
    std::iter::once(DELIVERED.to_owned())
}

/// Checks W1 to W3.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    check_events(run)?;
    read_all(run, Predicate::W2, check_attempts)
}

/// W1: every delivery is that of its event, from whose time its id follows.
fn check_events(run: &mut Run<'_>) -> Result<(), StoreError> {
    let Run { connection, findings, .. } = run;
    connection.query(DELIVERED, &[], COLUMNS.len(), &mut |values: Vec<Value>| {
        let name = format!("Delivery:{}", shown(values.first()));
        findings.saw(Predicate::W1, 1);
        if matches!(values.last(), Some(Value::Null)) {
            findings.broke(Predicate::W1, format!("{name} has no event"));
            return Ok(());
        }
        match is_of_its_event(&mut Row::new(Delivery::TABLE, COLUMNS, values)) {
            Ok(is_its) => {
                findings.demand(Predicate::W1, is_its, || format!("{name} is not its event's"));
            }
            Err(error) => findings.unreadable(Predicate::W1, name, &error),
        }
        Ok(())
    })
}

fn is_of_its_event(row: &mut Row) -> Result<bool, StoreError> {
    let (id, resource, number) = (row.uuid()?, row.uuid()?, row.count()?);
    let platform = PlatformId::from_uuid(row.uuid()?);
    let said = (resource, number, row.named(EventKind::from_name)?);
    let (resource, number) = (row.uuid()?, row.count()?);
    let (kind, at) = (row.named(EventKind::from_name)?, row.time()?);
    let id_of_event = event_id(resource, number);
    let event = Event { id: id_of_event, platform, kind, resource, number, at, body: Vec::new() };
    Ok(said == (resource, number, kind) && delivery_id(&event).uuid() == id)
}

/// W2 and W3: a delivery ended as its attempts say, and no attempt went where none may go.
fn check_attempts(findings: &mut Findings, parties: &Parties, name: &str, delivery: &Delivery) {
    findings.saw(Predicate::W3, 1);
    let attempts = &delivery.progress().attempts;
    let plan = delivery.draft().plan;
    let last = attempts.last().map(|attempt| attempt.verdict(plan));
    let fits = match delivery.status() {
        Status::Delivered => last == Some(Verdict::Received),
        Status::Dead => last != Some(Verdict::Received),
        Status::Superseded => attempts.is_empty(),
        Status::Pending => last != Some(Verdict::Gone) || delivery.progress().failures == 0,
    };
    findings.demand(Predicate::W2, fits, || format!("{name} ended otherwise than it says"));
    let is_live = parties.is_live(delivery.draft().platform.uuid());
    for attempt in attempts {
        let is_allowed = match attempt.peer {
            Some(peer) => network::is_public(peer) || (!is_live && network::is_private(peer)),
            None => !matches!(attempt.outcome, Outcome::Answered { .. }),
        };
        findings.demand(Predicate::W3, is_allowed, || {
            format!("an attempt of {name} went to an address that may not be reached")
        });
    }
}
