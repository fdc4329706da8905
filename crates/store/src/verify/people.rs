//! What concerns persons and moves no money: invitations, and what platforms were told of them.
//!
//! Events about anything but payments are kept while the payments are read, one small entry for
//! each, and looked at here beside what they tell of.

use std::collections::BTreeMap;

use domain::event::{EventKind, event_id};
use domain::id::{InvitationId, Owner};
use domain::invitation::{self, Invitation};
use domain::time::Timestamp;
use uuid::Uuid;

use super::parties::readable;
use super::payment::RawEvent;
use super::{Findings, Predicate, Run};
use crate::error::StoreError;
use crate::events;
use crate::keyring::Keyring;
use crate::record::Record;
use crate::sql::Row;
use crate::timers::TimerKind;

const INVITATIONS: &str = "select id, platform, inviter, status, expires_at, created_at, ended_at \
    from invitations";
const INVITATION_COLUMNS: &[&str] =
    &["id", "platform", "inviter", "status", "expires_at", "created_at", "ended_at"];

pub(super) fn statements() -> impl Iterator<Item = String> {
    [INVITATIONS.to_owned(), super::parties::whole::<Invitation>()].into_iter()
}

/// What a platform was told of something that is no payment.
struct Told {
    number: u32,
    platform: Uuid,
    kind: EventKind,
    at: Timestamp,
}

/// Everything that was told of what is no payment, by what it is about.
#[derive(Default)]
pub(super) struct Others(BTreeMap<Uuid, Vec<Told>>);

impl Others {
    /// Keeps an event, whose own parts are checked at once (E2, E3).
    pub(super) fn keep(
        &mut self,
        findings: &mut Findings,
        keyring: Option<&Keyring>,
        resource: Uuid,
        event: &RawEvent,
    ) {
        for predicate in [Predicate::E2, Predicate::E3] {
            findings.saw(predicate, 1);
        }
        let RawEvent { number, platform, kind, at, .. } = *event;
        let of = || format!("event {number} of {resource}");
        let derived = event_id(resource, number).uuid();
        findings.demand(Predicate::E2, event.id == derived, || {
            format!("{} has an id that is not its own", of())
        });
        if let Some(keyring) = keyring {
            let place = events::place(resource, number);
            let opens = events::open(keyring, &place, &event.sealed).is_ok();
            findings.demand(Predicate::E3, opens, || format!("{} does not open", of()));
        }
        self.0.entry(resource).or_default().push(Told { number, platform, kind, at });
    }
}

/// Checks C3, E5, and what S2 and S4 say about the tables read here.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    run.each(INVITATIONS, (Invitation::TABLE, INVITATION_COLUMNS), check_invitation)?;
    readable::<Invitation>(run, Predicate::C3)?;
    for (resource, told) in std::mem::take(&mut run.others.0) {
        for event in told {
            let kind = event.kind;
            run.findings.broke(Predicate::E5, format!("{kind} of {resource} has no cause"));
        }
    }
    Ok(())
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
    let told = others.0.remove(&id.uuid()).unwrap_or_default();
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
