//! Timers: jobs that are due at a time. A timer is committed with its cause and goes with its
//! effect, so it survives a crash.
//!
//! Every timer is a platform's, whose clock can be ahead of the server's. Its due time is kept by
//! the server's clock, so that one read by one clock finds all due timers. When a platform's clock
//! is moved on, its timers come nearer in the same transaction (docs/decisions/0013).

use std::collections::BTreeMap;

use domain::id::PlatformId;
use domain::platform::Platform;
use domain::time::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;
use crate::reader::View;
use crate::sql::{Change, Connection, Row, Shape, Value, Write};

/// The job of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimerKind {
    /// A quote's time is over; the subject is the quote.
    ExpireQuote,
    /// The rail is asked to move money, or how it went; the subject is the transaction.
    AskRail,
    /// An invitation's time is over; the subject is the invitation.
    ExpireInvitation,
    /// A link's time is over; the subject is the check of an identity.
    ExpireIdentityCheck,
    /// The time to decide on an incoming payment is over; the subject is the transaction.
    DecidePayment,
    /// The next part of a file is gone through; the subject is the import.
    ImportCustomers,
    /// The rail is asked what it knows about an external account, which is the subject.
    AskAccount,
    /// The other institution is notified of how a payment ended; the subject is the transaction.
    NotifyPeer,
}

impl TimerKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::ExpireQuote,
        Self::AskRail,
        Self::ExpireInvitation,
        Self::ExpireIdentityCheck,
        Self::DecidePayment,
        Self::ImportCustomers,
        Self::AskAccount,
        Self::NotifyPeer,
    ];

    /// The name in storage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ExpireQuote => "EXPIRE_QUOTE",
            Self::AskRail => "ASK_RAIL",
            Self::AskAccount => "ASK_ACCOUNT",
            Self::NotifyPeer => "NOTIFY_PEER",
            Self::ExpireInvitation => "EXPIRE_INVITATION",
            Self::ExpireIdentityCheck => "EXPIRE_IDENTITY_CHECK",
            Self::DecidePayment => "DECIDE_PAYMENT",
            Self::ImportCustomers => "IMPORT_CUSTOMERS",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The key of a timer: its subject has one of each kind.
pub type TimerKey = (Uuid, TimerKind);

/// A job that is due at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// The uuid of its subject.
    pub subject: Uuid,
    /// The job.
    pub kind: TimerKind,
    /// The platform by whose clock it happens.
    pub platform: PlatformId,
    /// When, by the server's clock.
    pub due_at: Timestamp,
    /// When it was first set, by the platform's clock, for work that is asked after again and
    /// again.
    pub since: Timestamp,
    /// How often it was due before.
    pub attempts: u32,
}

impl Timer {
    /// A timer that was never due before. Both times are by the platform's clock.
    pub fn new(
        platform: &Platform,
        subject: Uuid,
        kind: TimerKind,
        due_at: Timestamp,
        now: Timestamp,
    ) -> Self {
        let due_at = platform.ahead.on_server(due_at);
        Self { subject, kind, platform: platform.id, due_at, since: now, attempts: 0 }
    }

    /// The timer once more, due at another time by the platform's clock.
    #[must_use]
    pub fn again(&self, platform: &Platform, due_at: Timestamp) -> Self {
        let attempts = self.attempts.saturating_add(1);
        Self { due_at: platform.ahead.on_server(due_at), attempts, ..self.clone() }
    }

    /// Its key.
    pub fn key(&self) -> TimerKey {
        (self.subject, self.kind)
    }
}

/// The table of timers.
pub(crate) static TIMERS: Shape = Shape::new(
    "timers",
    &["subject", "kind", "platform", "due_at", "since", "attempts"],
    2,
    Some(
        "do update set due_at = excluded.due_at, since = excluded.since, \
         attempts = excluded.attempts",
    ),
);

pub(crate) const DUE: &str = "select subject, kind, platform, due_at, since, attempts \
    from timers where due_at <= $1 order by due_at limit $2";

pub(crate) const NEXT_DUE: &str = "select due_at from timers order by due_at limit 1";

/// Timers of a platform that end something.
pub(crate) const DUE_ENDS: &str = "select subject, kind, platform, due_at, since, attempts from timers \
    where due_at <= $1 and platform = $2 and kind in \
    ('EXPIRE_QUOTE', 'EXPIRE_INVITATION', 'EXPIRE_IDENTITY_CHECK', 'DECIDE_PAYMENT') \
    order by due_at limit $3";

/// Whether anything of a platform is due.
pub(crate) const DUE_OF_PLATFORM: &str =
    "select due_at from timers where due_at <= $1 and platform = $2 limit 1";

/// Brings a platform's timers nearer. No index finds them: people move clocks, and every payment
/// sets timers.
pub(crate) const NEARER: &str = "update timers set due_at = due_at - $1 where platform = $2";

/// Brings the timers of a platform that are in the database nearer, within a transaction.
pub(crate) fn bring_nearer(
    connection: &mut dyn Connection,
    platform: PlatformId,
    millis: i64,
) -> Result<(), StoreError> {
    connection.execute(NEARER, &[millis.into(), platform.into()]).map(drop)
}

/// The writes that set timers and take them away.
pub(crate) fn writes(changes: &BTreeMap<TimerKey, Option<Timer>>) -> [Write; 2] {
    let (mut set, mut cleared) = (Vec::new(), Vec::new());
    for ((subject, kind), timer) in changes {
        let mut row = vec![Value::from(*subject), Value::name(kind.name())];
        match timer {
            Some(timer) => {
                row.push(timer.platform.into());
                row.extend([timer.due_at.into(), timer.since.into(), timer.attempts.into()]);
                set.push(row);
            }
            None => cleared.push(row),
        }
    }
    [
        Write { shape: &TIMERS, change: Change::Upsert, rows: set },
        Write { shape: &TIMERS, change: Change::Delete, rows: cleared },
    ]
}

/// The due timers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Due {
    /// The longest overdue first.
    pub timers: Vec<Timer>,
    /// Rows that cannot be read; they hold no other timer up.
    pub unreadable: usize,
}

fn read(row: &mut Row) -> Result<Timer, StoreError> {
    Ok(Timer {
        subject: row.uuid()?,
        kind: row.named(TimerKind::from_name)?,
        platform: row.id()?,
        due_at: row.time()?,
        since: row.time()?,
        attempts: row.count()?,
    })
}

impl View<'_> {
    /// Timers that are due by the server's clock, of so many rows at most.
    pub fn due_timers(&mut self, now: Timestamp, limit: u32) -> Result<Due, StoreError> {
        let columns = (TIMERS.table, TIMERS.columns);
        let read = |row: &mut Row| Ok(read(row).ok());
        let rows = self.connection.all(DUE, &[now.into(), limit.into()], columns, read)?;
        let unreadable = rows.iter().filter(|timer| timer.is_none()).count();
        Ok(Due { timers: rows.into_iter().flatten().collect(), unreadable })
    }

    /// Timers of a platform that are due by the server's clock and end something, of so many rows
    /// at most. Rows that cannot be read are left to the jobs.
    pub fn due_ends(
        &mut self,
        platform: PlatformId,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<Timer>, StoreError> {
        let parameters = [now.into(), platform.into(), limit.into()];
        let columns = (TIMERS.table, TIMERS.columns);
        let due = self.connection.all(DUE_ENDS, &parameters, columns, |row| Ok(read(row).ok()))?;
        Ok(due.into_iter().flatten().collect())
    }

    /// Whether anything of a platform is due by the server's clock.
    pub fn has_due(&mut self, platform: PlatformId, now: Timestamp) -> Result<bool, StoreError> {
        let parameters = [now.into(), platform.into()];
        let columns = (TIMERS.table, &["due_at"][..]);
        let due = self.connection.first(DUE_OF_PLATFORM, &parameters, columns, Row::time)?;
        Ok(due.is_some())
    }

    /// When the next timer is due by the server's clock, if there is one.
    pub fn next_due(&mut self) -> Result<Option<Timestamp>, StoreError> {
        self.connection.first(NEXT_DUE, &[], (TIMERS.table, &["due_at"]), Row::time)
    }
}
