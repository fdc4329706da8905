//! Events of payments, and that every event can be read (E1 to E4).
//!
//! The engine sorts events by what they are about, with the transactions between them and without
//! bodies.

use domain::event::EventKind;
use domain::id::InternalAccountId;
use domain::time::Timestamp;
use domain::transaction::{Direction, Status};
use uuid::Uuid;

use super::payment::read_steps;
use super::{Findings, Predicate, Run, shown};
use crate::catalogue::{self, Chunk};
use crate::error::StoreError;
use crate::events::{self, EVENTS, Header, Listed, Opened};
use crate::keyring::Keyring;
use crate::sql::{Row, Value};

/// Each transaction, before its events.
const STEPS: &str = "select id as resource, 0 as number, 0 as ordinal, platform, null as kind, \
    null as at, direction, history from transactions \
    union all select resource, number, ordinal, platform, kind, at, null, null from events \
    order by resource, number, ordinal";
const STEP_COLUMNS: &[&str] =
    &["resource", "number", "ordinal", "platform", "kind", "at", "direction", "history"];

pub(super) fn statements() -> impl Iterator<Item = String> {
    std::iter::once(STEPS.to_owned())
}

/// An event without its body.
#[derive(Clone, Copy)]
pub(super) struct RawEvent {
    pub(super) number: u32,
    pub(super) ordinal: i64,
    pub(super) platform: Uuid,
    pub(super) kind: EventKind,
    pub(super) at: Timestamp,
}

/// The steps of a transaction.
struct Steps {
    platform: Uuid,
    kind: EventKind,
    /// Whether its first step is `CREATED`, of which its platform is not notified.
    is_notified_later: bool,
    at: Vec<Timestamp>,
}

/// A payment and its events.
struct Payment {
    id: Uuid,
    /// Nothing if the row is missing or cannot be read.
    steps: Option<Steps>,
    /// Whether there is a row that cannot be read, which T1 says.
    is_unreadable: bool,
    events: Vec<RawEvent>,
}

impl Payment {
    fn new(id: Uuid) -> Self {
        Self { id, steps: None, is_unreadable: false, events: Vec::new() }
    }
}

/// Checks E1 to E4, and what S4 says about events of payments.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    check_steps(run)?;
    check_bodies(run)
}

fn check_steps(run: &mut Run<'_>) -> Result<(), StoreError> {
    let Run { connection, findings, parties, .. } = run;
    let mut payment = Payment::new(Uuid::nil());
    let mut last = None;
    connection.query(STEPS, &[], STEP_COLUMNS.len(), &mut |values| {
        let is_transaction = matches!(values.last(), Some(Value::Bytes(_)));
        let row = &mut Row::new(EVENTS.table, STEP_COLUMNS, values);
        // A transaction whose id is none is T1's to name.
        let Ok(resource) = row.uuid() else { return Ok(()) };
        if resource != payment.id {
            let before = std::mem::replace(&mut payment, Payment::new(resource));
            check_payment(findings, &before);
        }
        if is_transaction {
            payment.steps = steps(row).ok();
            payment.is_unreadable = payment.steps.is_none();
            return Ok(());
        }
        // A row that cannot be read is named where its body is opened.
        let Ok(event) = event(row) else { return Ok(()) };
        let is_new = last.replace((resource, event.number)) != Some((resource, event.number));
        findings.demand(Predicate::E2, is_new, || {
            format!("event {} of {resource} is there more than once", event.number)
        });
        match event.kind {
            EventKind::IncomingPayment | EventKind::OutgoingPayment => payment.events.push(event),
            EventKind::AccountStatus => {
                let account = InternalAccountId::from_uuid(resource);
                let is_its =
                    parties.platform_of_internal(account).is_none_or(|it| it == event.platform);
                findings.demand(Predicate::S4, is_its, || {
                    format!("an event about {account} goes to another platform")
                });
            }
            EventKind::InvitationClaimed
            | EventKind::KycStatus
            | EventKind::Test
            | EventKind::BulkUpload => {}
        }
        Ok(())
    })?;
    check_payment(findings, &payment);
    Ok(())
}

/// A transaction, from behind its id.
fn steps(row: &mut Row) -> Result<Steps, StoreError> {
    let (_, _, platform) = (row.int()?, row.int()?, row.uuid()?);
    let (_, _) = (row.text_or_null()?, row.int_or_null()?);
    let kind = match row.named(Direction::from_name)? {
        Direction::Incoming => EventKind::IncomingPayment,
        Direction::Outgoing => EventKind::OutgoingPayment,
    };
    let steps = read_steps(row)?;
    let first = steps.first().and_then(|(status, _)| Status::ALL.get(*status));
    let is_notified_later = first == Some(&Status::Created);
    Ok(Steps {
        platform,
        kind,
        is_notified_later,
        at: steps.into_iter().map(|(_, at)| at).collect(),
    })
}

/// An event, from behind its resource.
fn event(row: &mut Row) -> Result<RawEvent, StoreError> {
    let (number, ordinal, platform) = (row.count()?, row.int()?, row.uuid()?);
    let (kind, at) = (row.named(EventKind::from_name)?, row.time()?);
    Ok(RawEvent { number, ordinal, platform, kind, at })
}

/// E1 and E4 of a payment, and that its events go to its own platform (S4).
fn check_payment(findings: &mut Findings, payment: &Payment) {
    let name = format!("Transaction:{}", payment.id);
    let Some(steps) = &payment.steps else {
        let is_of_none = !payment.events.is_empty() && !payment.is_unreadable;
        return findings
            .demand(Predicate::E1, !is_of_none, || format!("{name} has events and is not there"));
    };
    findings.saw(Predicate::E1, 1);
    let numbers = payment.events.iter().map(|event| event.number as usize);
    let first = if steps.is_notified_later { 2 } else { 1 };
    findings.demand(Predicate::E1, numbers.eq(first..=steps.at.len()), || {
        format!("{name} has steps and events that are not each other's")
    });
    let mut before = None;
    for event in &payment.events {
        findings.saw(Predicate::E4, 1);
        let of = || format!("event {} of {name}", event.number);
        let is_of_kind = event.kind == steps.kind;
        findings.demand(Predicate::E1, is_of_kind, || format!("{} is not of its kind", of()));
        let step = (event.number as usize).checked_sub(1).and_then(|index| steps.at.get(index));
        // An event without a step is E1's to name.
        let is_then = step.is_none_or(|at| *at == event.at);
        findings.demand(Predicate::E4, is_then, || format!("{} is not of its step's time", of()));
        let now = (event.at, event.ordinal);
        let is_later =
            before.is_none_or(|before: (Timestamp, i64)| before.0 <= now.0 && before.1 < now.1);
        findings.demand(Predicate::E4, is_later, || format!("{} is before the last one", of()));
        let is_its = event.platform == steps.platform;
        findings.demand(Predicate::S4, is_its, || format!("{} goes to another platform", of()));
        before = Some(now);
    }
}

/// E1 to E3: every event can be read and opens, and its body says the id that its resource and
/// number give.
fn check_bodies(run: &mut Run<'_>) -> Result<(), StoreError> {
    let mut after: Option<Vec<Value>> = None;
    loop {
        // Events that stand beside each other are in few rows of the journal.
        let limit = catalogue::rows_at_once(&EVENTS);
        let Chunk { rows, last } =
            catalogue::chunk(run.connection, &EVENTS, after.as_deref(), limit)?;
        let mut listed = Vec::with_capacity(rows.len());
        for values in rows {
            let platform = shown(values.first());
            match Listed::read(&mut Row::new(EVENTS.table, EVENTS.columns, values)) {
                Ok(found) => listed.push(found),
                Err(error) => {
                    let name = format!("an event of {platform}");
                    run.findings.unreadable(Predicate::E1, name, &error);
                }
            }
        }
        if let Some(keyring) = run.keyring {
            open_bodies(run, keyring, &listed)?;
        }
        after = last;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// E2 and E3 of some events.
fn open_bodies(run: &mut Run<'_>, keyring: &Keyring, listed: &[Listed]) -> Result<(), StoreError> {
    let opened = events::open(run.connection, keyring, listed);
    let Some(opened) = run.findings.readable(Predicate::E3, opened)? else { return Ok(()) };
    for (Listed { header, .. }, opened) in listed.iter().zip(opened) {
        let Header { number, resource, .. } = header;
        run.findings.saw(Predicate::E2, 1);
        run.findings.saw(Predicate::E3, 1);
        let event = match opened {
            Opened::Event(event) => event,
            // The person's erasure was stopped before its end.
            Opened::Erased => {
                let what = format!("event {number} of {resource} was erased and has no other body");
                run.findings.broke(Predicate::E3, what);
                continue;
            }
            Opened::Missing(what) => {
                run.findings.broke(Predicate::E3, format!("event {number} of {resource}: {what}"));
                continue;
            }
        };
        let id = format!("\"id\":\"{}\"", event.id);
        let says_it = event.body.windows(id.len()).any(|window| window == id.as_bytes());
        run.findings.demand(Predicate::E2, says_it, || {
            format!("event {number} of {resource} has an id that is not its own")
        });
    }
    Ok(())
}
