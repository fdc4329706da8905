//! The numbers of events, and their deliveries (E6, W1 to W3).

use std::collections::BTreeMap;

use domain::delivery::{Delivery, Outcome, Status, Verdict, delivery_id};
use domain::event::{Event, EventKind, event_id};
use domain::id::PlatformId;
use domain::network;
use domain::platform::Mode;
use uuid::Uuid;

use super::events::Numbering;
use super::parties::whole;
use super::{Predicate, Run, shown};
use crate::error::StoreError;
use crate::events::{Endpoint, Outbox};
use crate::record::Record;
use crate::sql::{Row, Value};

const MODES: &str = "select id, mode from platforms";

const OUTBOXES: &str = "select platform, head, taken, opened, endpoint, revision from outboxes";

const DELIVERED: &str = "select deliveries.id, deliveries.resource, deliveries.number, \
    deliveries.platform, deliveries.ordinal, deliveries.kind, deliveries.status, \
    events.resource, events.number, events.kind, events.at from deliveries left join events \
    on events.platform = deliveries.platform and events.ordinal = deliveries.ordinal";
const DELIVERED_COLUMNS: &[&str] = &[
    "id",
    "resource",
    "number",
    "platform",
    "ordinal",
    "kind",
    "status",
    "events.resource",
    "events.number",
    "events.kind",
    "events.at",
];

pub(super) fn statements() -> impl Iterator<Item = String> {
    let fixed = [MODES, OUTBOXES, DELIVERED].map(str::to_owned).into_iter();
    fixed.chain([whole::<Delivery>()])
}

/// Checks E6 and W1 to W3.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    let mut outboxes = BTreeMap::new();
    run.each(OUTBOXES, (Outbox::TABLE, Outbox::COLUMNS), |run, mut row| {
        match Outbox::read_row(&mut row) {
            Ok(outbox) => {
                outboxes.insert(outbox.platform.uuid(), outbox);
            }
            Err(error) => run.findings.unreadable(Predicate::E6, "an outbox", &error),
        }
    })?;
    check_numbers(run, &outboxes);
    check_events_of_deliveries(run, &outboxes)?;
    check_attempts(run)
}

/// E6: every outbox knows how many events there are.
fn check_numbers(run: &mut Run<'_>, outboxes: &BTreeMap<Uuid, Outbox>) {
    let Run { findings, numbering, .. } = run;
    let mut numbering = std::mem::take(numbering);
    for (platform, outbox) in outboxes {
        let platform = PlatformId::from_uuid(*platform);
        let counted = numbering.remove(&platform).unwrap_or(Numbering { last: 0, is_whole: true });
        findings.saw(Predicate::E6, 1);
        let agrees = counted == Numbering { last: outbox.head, is_whole: true };
        findings.demand(Predicate::E6, agrees, || {
            format!("the events of {platform} are not numbered from 1 to {}", outbox.head)
        });
    }
    for platform in numbering.into_keys() {
        findings.broke(Predicate::E6, format!("{platform} has events and no count of them"));
    }
}

/// W1: every delivery is that of its event, and every event that was taken has one.
fn check_events_of_deliveries(
    run: &mut Run<'_>,
    outboxes: &BTreeMap<Uuid, Outbox>,
) -> Result<(), StoreError> {
    let mut due: BTreeMap<Uuid, i64> = BTreeMap::new();
    let Run { connection, findings, .. } = run;
    connection.query(DELIVERED, &[], DELIVERED_COLUMNS.len(), &mut |values: Vec<Value>| {
        let name = format!("Delivery:{}", shown(values.first()));
        findings.saw(Predicate::W1, 1);
        let is_of_none = matches!(values.last(), Some(Value::Null));
        let row = &mut Row::new(Delivery::TABLE, DELIVERED_COLUMNS, values);
        let mut read = || {
            let (id, resource, number) = (row.uuid()?, row.uuid()?, row.count()?);
            let (platform, ordinal) = (row.uuid()?, row.int()?);
            let said = (resource, number, row.named(EventKind::from_name)?);
            row.named(Status::from_name)?;
            if is_of_none {
                return Ok(None);
            }
            let (resource, number) = (row.uuid()?, row.count()?);
            let (kind, at) = (row.named(EventKind::from_name)?, row.time()?);
            let event = Event {
                id: event_id(resource, number),
                platform: PlatformId::from_uuid(platform),
                kind,
                resource,
                number,
                at,
                body: Vec::new(),
            };
            let agrees = said == (resource, number, kind) && delivery_id(&event).uuid() == id;
            Ok(Some((agrees, platform, ordinal)))
        };
        match read() {
            Ok(Some((agrees, platform, ordinal))) => {
                findings.demand(Predicate::W1, agrees, || format!("{name} is not its event's"));
                let outbox = outboxes.get(&platform);
                let is_due = |it: &&Outbox| it.opened < ordinal && ordinal <= it.taken;
                if outbox.filter(is_due).is_some() {
                    *due.entry(platform).or_default() += 1;
                }
            }
            Ok(None) => findings.broke(Predicate::W1, format!("{name} has no event")),
            Err(error) => findings.unreadable(Predicate::W1, name, &error),
        }
        Ok(())
    })?;
    for (platform, outbox) in outboxes {
        let found = due.get(platform).copied().unwrap_or(0);
        // Nothing was to be delivered where there was no endpoint.
        let expected = match outbox.endpoint {
            Endpoint::None => 0,
            Endpoint::Open | Endpoint::Gone => outbox.taken - outbox.opened,
        };
        run.findings.demand(Predicate::W1, found == expected, || {
            let platform = PlatformId::from_uuid(*platform);
            format!("{found} of {expected} events of {platform} that were taken have a delivery")
        });
    }
    Ok(())
}

/// W2 and W3: deliveries ended as their attempts say, and no attempt went where none may go.
fn check_attempts(run: &mut Run<'_>) -> Result<(), StoreError> {
    let mut live = BTreeMap::new();
    run.each(MODES, ("platforms", &["id", "mode"]), |_, mut row| {
        // A platform that cannot be read is another predicate's to name.
        if let Ok(id) = row.uuid() {
            live.insert(id, row.named(Mode::from_name).is_ok_and(|mode| mode == Mode::Live));
        }
    })?;
    let Run { connection, keyring: Some(keyring), findings, .. } = run else { return Ok(()) };
    let (sql, columns) = (whole::<Delivery>(), Delivery::COLUMNS);
    connection.query(&sql, &[], columns.len(), &mut |values: Vec<Value>| {
        let name = format!("Delivery:{}", shown(values.first()));
        for predicate in [Predicate::W2, Predicate::W3, Predicate::S2] {
            findings.saw(predicate, 1);
        }
        let delivery =
            match Delivery::read(&mut Row::new(Delivery::TABLE, columns, values), keyring) {
                Ok(delivery) => delivery,
                Err(StoreError::Sealed { .. }) => {
                    findings.broke(Predicate::S2, format!("{name} does not open"));
                    return Ok(());
                }
                Err(error) => {
                    findings.unreadable(Predicate::W2, name, &error);
                    return Ok(());
                }
            };
        let attempts = &delivery.progress().attempts;
        let plan = delivery.draft().plan;
        let last = attempts.last().map(|attempt| attempt.verdict(plan));
        let fits = match delivery.status() {
            Status::Delivered => last == Some(Verdict::Received),
            Status::Dead => last != Some(Verdict::Received),
            Status::Pending => last != Some(Verdict::Gone) || delivery.progress().failures == 0,
        };
        findings.demand(Predicate::W2, fits, || format!("{name} ended otherwise than it says"));
        let is_live = live.get(&delivery.draft().platform.uuid()).copied().unwrap_or(true);
        for attempt in attempts {
            let is_allowed = match attempt.peer {
                Some(peer) => network::is_public(peer) || (!is_live && network::is_private(peer)),
                None => !matches!(attempt.outcome, Outcome::Answered { .. }),
            };
            findings.demand(Predicate::W3, is_allowed, || {
                format!("an attempt of {name} went to an address that may not be reached")
            });
        }
        Ok(())
    })
}
