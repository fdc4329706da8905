//! What concerns persons and moves no money: what is known of their identities, invitations, and
//! what platforms were told of them.
//!
//! Events about anything but payments are kept while events are read, one small entry for each, and
//! looked at here beside what they tell of.

use std::collections::BTreeMap;

use domain::bulk_import::{self, BulkImport, Part};
use domain::customer::{Customer, KycStatus};
use domain::event::EventKind;
use domain::id::{CustomerId, IdentityCheckId, InvitationId, JobId, Owner};
use domain::invitation::{self, Invitation};
use domain::kyc::{CheckStatus, IdentityCheck};
use domain::time::Timestamp;
use uuid::Uuid;

use super::events::RawEvent;
use super::parties::{readable, whole};
use super::{Predicate, Run};
use crate::error::StoreError;
use crate::record::Record;
use crate::sql::Row;
use crate::timers::TimerKind;

const INVITATIONS: &str = "select id, platform, inviter, status, expires_at, created_at, ended_at \
    from invitations";
const INVITATION_COLUMNS: &[&str] =
    &["id", "platform", "inviter", "status", "expires_at", "created_at", "ended_at"];

const IDENTITIES: &str = "select id, platform, kyc_status, kyc_changes, identity_check \
    from customers";
const IDENTITY_COLUMNS: &[&str] =
    &["id", "platform", "kyc_status", "kyc_changes", "identity_check"];

const CHECKS: &str = "select id, platform, customer, status from identity_checks";
const CHECK_COLUMNS: &[&str] = &["id", "platform", "customer", "status"];

const IMPORTS: &str = "select id, platform, status, parts, parts_done from bulk_imports";
const IMPORT_COLUMNS: &[&str] = &["id", "platform", "status", "parts", "parts_done"];

const PARTS: &str = "select import, number, done from bulk_parts";
const PART_COLUMNS: &[&str] = &["import", "number", "done"];

pub(super) fn statements() -> impl Iterator<Item = String> {
    let fixed = [INVITATIONS, IDENTITIES, CHECKS, IMPORTS, PARTS].map(str::to_owned).into_iter();
    fixed.chain([
        whole::<Invitation>(),
        whole::<IdentityCheck>(),
        whole::<BulkImport>(),
        whole::<Part>(),
    ])
}

/// What a platform was told of something that is no payment.
struct Told {
    number: u32,
    platform: Uuid,
    kind: EventKind,
    at: Timestamp,
}

/// What the payments and the customers left for later.
#[derive(Default)]
pub(super) struct Others {
    /// Everything that was told of what is no payment, by what it is about.
    told: BTreeMap<Uuid, Vec<Told>>,
    /// The latest check of each customer that has one, and whether its identity is undecided.
    checks: BTreeMap<CustomerId, (Uuid, bool)>,
    /// Whether each part of each import was gone through.
    parts: BTreeMap<JobId, BTreeMap<u32, bool>>,
}

impl Others {
    /// Keeps an event. Those of one resource come in the order of their numbers.
    pub(super) fn keep(&mut self, resource: Uuid, event: &RawEvent) {
        let RawEvent { number, platform, kind, at, .. } = *event;
        // Somebody wanted to know whether the platform's endpoint works: nothing else has changed.
        if kind == EventKind::Test && resource == platform {
            return;
        }
        self.told.entry(resource).or_default().push(Told { number, platform, kind, at });
    }
}

/// Checks C3 to C5, E5, and what S2 and S4 say about the tables read here.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    run.each(IDENTITIES, (Customer::TABLE, IDENTITY_COLUMNS), check_identity)?;
    run.each(CHECKS, (IdentityCheck::TABLE, CHECK_COLUMNS), check_check)?;
    for (customer, _) in std::mem::take(&mut run.others.checks) {
        run.findings.broke(Predicate::C4, format!("the latest check of {customer} is not there"));
    }
    readable::<IdentityCheck>(run, Predicate::C4)?;
    run.each(INVITATIONS, (Invitation::TABLE, INVITATION_COLUMNS), check_invitation)?;
    readable::<Invitation>(run, Predicate::C3)?;
    run.each(PARTS, (Part::TABLE, PART_COLUMNS), read_part)?;
    run.each(IMPORTS, (BulkImport::TABLE, IMPORT_COLUMNS), check_import)?;
    for (import, _) in std::mem::take(&mut run.others.parts) {
        run.findings.broke(Predicate::C5, format!("{import} has parts and is not there"));
    }
    readable::<BulkImport>(run, Predicate::C5)?;
    readable::<Part>(run, Predicate::C5)?;
    for (resource, told) in std::mem::take(&mut run.others.told) {
        for event in told {
            let kind = event.kind;
            run.findings.broke(Predicate::E5, format!("{kind} of {resource} has no cause"));
        }
    }
    Ok(())
}

/// E5 of one customer, and what its check is held against.
fn check_identity(run: &mut Run<'_>, mut row: Row) {
    run.findings.saw(Predicate::E5, 1);
    let mut read = || {
        let (id, platform): (CustomerId, _) = (row.id()?, row.uuid()?);
        let status = row.named(KycStatus::from_name)?;
        Ok((id, platform, status, row.count()?, row.uuid_or_null()?))
    };
    // A customer that cannot be read is C2's to name.
    let Ok::<_, StoreError>((id, platform, status, changes, latest)) = read() else { return };
    let Run { findings, others, .. } = run;
    if let Some(latest) = latest {
        others.checks.insert(id, (latest, status == KycStatus::PendingReview));
    }
    let told = others.told.remove(&id.uuid()).unwrap_or_default();
    let last = told.last().map_or(0, |event| event.number);
    let is_told = match status.is_final() {
        true => last == changes,
        false => last < changes || changes == 0 && told.is_empty(),
    };
    findings.demand(Predicate::E5, is_told, || {
        format!("what is known of {id} is not what was last told")
    });
    let mut before = None;
    for event in &told {
        findings.saw(Predicate::E4, 1);
        findings.demand(Predicate::E5, event.kind == EventKind::KycStatus, || {
            format!("event {} of {id} is not of its kind", event.number)
        });
        findings.demand(Predicate::E4, before.is_none_or(|before| before <= event.at), || {
            format!("event {} of {id} is before the last one", event.number)
        });
        findings.demand(Predicate::S4, event.platform == platform, || {
            format!("event {} of {id} goes to another platform", event.number)
        });
        before = Some(event.at);
    }
}

/// C4 of one check.
fn check_check(run: &mut Run<'_>, mut row: Row) {
    for predicate in [Predicate::C4, Predicate::S4] {
        run.findings.saw(predicate, 1);
    }
    let mut read = || {
        let (id, platform): (IdentityCheckId, _) = (row.id()?, row.uuid()?);
        Ok((id, platform, row.id()?, row.named(CheckStatus::from_name)?))
    };
    let (id, platform, customer, status): (_, _, CustomerId, _) = match read() {
        Ok(columns) => columns,
        Err(error) => {
            return run.findings.unreadable(Predicate::C4, "an identity check", &error);
        }
    };
    let Run { findings, parties, timers, others, .. } = run;
    let is_its = parties.platform_of(Owner::Customer(customer)) == Some(platform);
    findings.demand(Predicate::S4, is_its, || {
        format!("{id} is of a customer who is not its platform's")
    });
    let is_open = status == CheckStatus::Open;
    let latest = others.checks.get(&customer).copied();
    let is_latest = latest.is_some_and(|(latest, _)| latest == id.uuid());
    findings.demand(Predicate::C4, !is_open || latest == Some((id.uuid(), true)), || {
        format!("{id} is open, and its customer waits for another or for none")
    });
    if is_latest {
        others.checks.remove(&customer);
    }
    let timer = timers.get(&(id.uuid(), TimerKind::ExpireIdentityCheck)).copied();
    findings.demand(Predicate::C4, timer.is_some() == is_open, || {
        format!("{id} waits for its time to be over and has no timer, or the other way round")
    });
    findings.demand(Predicate::S4, timer.is_none_or(|its| its == platform), || {
        format!("the timer of {id} is due by another platform's clock")
    });
}

fn read_part(run: &mut Run<'_>, mut row: Row) {
    run.findings.saw(Predicate::C5, 1);
    let mut read = || Ok((row.id()?, row.count()?, row.flag()?));
    match read() {
        Ok((import, number, is_done)) => {
            run.others.parts.entry(import).or_default().insert(number, is_done);
        }
        Err(error) => run.findings.unreadable(Predicate::C5, "a part of an import", &error),
    }
}

/// C5 and E5 of one import.
fn check_import(run: &mut Run<'_>, mut row: Row) {
    for predicate in [Predicate::C5, Predicate::E5, Predicate::S4] {
        run.findings.saw(predicate, 1);
    }
    let mut read = || {
        let (id, platform): (JobId, _) = (row.id()?, row.uuid()?);
        let status = row.named(bulk_import::Status::from_name)?;
        Ok((id, platform, status, row.count()?, row.count()?))
    };
    let (id, platform, status, parts, parts_done) = match read() {
        Ok(columns) => columns,
        Err(error) => return run.findings.unreadable(Predicate::C5, "an import", &error),
    };
    let Run { findings, timers, others, .. } = run;
    let found = others.parts.remove(&id).unwrap_or_default();
    let is_final = status.is_final();
    // The only part of a file that cannot be read is what was wrong with it.
    let expected = (0..parts).map(|number| (number, is_final || number < parts_done));
    findings.demand(Predicate::C5, found.into_iter().eq(expected), || {
        format!("{id} has other parts than it says, or they were not gone through in order")
    });
    let timer = timers.get(&(id.uuid(), TimerKind::ImportCustomers)).copied();
    findings.demand(Predicate::C5, timer.is_some() != is_final, || {
        format!("{id} has more to do and no timer, or the other way round")
    });
    findings.demand(Predicate::S4, timer.is_none_or(|its| its == platform), || {
        format!("the timer of {id} is due by another platform's clock")
    });
    let told = others.told.remove(&id.uuid()).unwrap_or_default();
    let kinds: Vec<_> = told.iter().map(|event| (event.number, event.kind)).collect();
    let ends: &[_] = if is_final { &[(1, EventKind::BulkUpload)] } else { &[] };
    findings.demand(Predicate::E5, kinds == ends, || {
        format!("{id} has ended and was not told of once, or the other way round")
    });
    for event in &told {
        findings.demand(Predicate::S4, event.platform == platform, || {
            format!("the event of {id} goes to another platform")
        });
    }
}

/// An invitation as it was found.
struct Found {
    id: InvitationId,
    platform: Uuid,
    inviter: Owner,
    status: invitation::Status,
    expires_at: Option<Timestamp>,
    created_at: Timestamp,
    ended_at: Option<Timestamp>,
}

fn read(row: &mut Row) -> Result<Found, StoreError> {
    Ok(Found {
        id: row.id()?,
        platform: row.uuid()?,
        inviter: Owner::Customer(row.id()?),
        status: row.named(invitation::Status::from_name)?,
        expires_at: row.time_or_null()?,
        created_at: row.time()?,
        ended_at: row.time_or_null()?,
    })
}

fn check_invitation(run: &mut Run<'_>, mut row: Row) {
    for predicate in [Predicate::C3, Predicate::E5, Predicate::S4] {
        run.findings.saw(predicate, 1);
    }
    let found = match read(&mut row) {
        Ok(found) => found,
        Err(error) => {
            return run.findings.unreadable(Predicate::C3, "an invitation", &error);
        }
    };
    let Run { findings, parties, timers, others, .. } = run;
    let Found { id, platform, .. } = found;
    let is_its = parties.platform_of(found.inviter) == Some(platform);
    findings.demand(Predicate::S4, is_its, || {
        format!("{id} is of an inviter who is not its platform's")
    });
    let is_open = found.status == invitation::Status::Pending;
    findings.demand(Predicate::C3, is_open == found.ended_at.is_none(), || {
        format!("{id} has ended without a time, or has a time and has not ended")
    });
    let is_later = found.ended_at.is_none_or(|ended_at| found.created_at <= ended_at);
    findings.demand(Predicate::C3, is_later, || format!("{id} ended before it was made"));
    let timer = timers.get(&(id.uuid(), TimerKind::ExpireInvitation)).copied();
    let should_wait = is_open && found.expires_at.is_some();
    findings.demand(Predicate::C3, timer.is_some() == should_wait, || {
        format!("{id} waits for its time to be over and has no timer, or the other way round")
    });
    findings.demand(Predicate::S4, timer.is_none_or(|its| its == platform), || {
        format!("the timer of {id} is due by another platform's clock")
    });
    let told = others.told.remove(&id.uuid()).unwrap_or_default();
    let is_claimed = found.status == invitation::Status::Claimed;
    let is_told = match told.as_slice() {
        [] => !is_claimed,
        [event] => is_claimed && (event.number, event.kind) == (1, EventKind::InvitationClaimed),
        [_, _, ..] => false,
    };
    findings.demand(Predicate::E5, is_told, || {
        format!("{id} was claimed and not told of once, or told of and not claimed")
    });
    for event in &told {
        findings.saw(Predicate::E4, 1);
        findings.demand(Predicate::E4, Some(event.at) == found.ended_at, || {
            format!("the event of {id} is not of the time of its claim")
        });
        findings.demand(Predicate::S4, event.platform == platform, || {
            format!("the event of {id} goes to another platform")
        });
    }
}
