//! Timers: jobs that are due at a time. A timer is committed with its cause and goes with its
//! effect, so it survives a crash.
//!
//! Every timer is a platform's, and kept by its clock, which can be ahead of the server's: moving
//! the clock changes the platform's row and nothing else (docs/decisions/0013). An index has the
//! timers of each platform in their order. Jobs take the due ones from memory (`due`).

pub(crate) mod due;

use std::collections::BTreeMap;

use domain::id::PlatformId;
use domain::platform::Platform;
use domain::time::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;
use crate::journal::change_set::{Kind, RowChange, TableChange};
use crate::reader::View;
use crate::sql::{Row, Shape, Value};

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
    /// When, by the platform's clock.
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
        Self { subject, kind, platform: platform.id, due_at, since: now, attempts: 0 }
    }

    /// The timer once more, due at another time by the platform's clock.
    #[must_use]
    pub fn again(&self, due_at: Timestamp) -> Self {
        Self { due_at, attempts: self.attempts.saturating_add(1), ..self.clone() }
    }

    /// Its key.
    pub fn key(&self) -> TimerKey {
        (self.subject, self.kind)
    }
}

/// The table of timers.
pub(crate) static TIMERS: Shape =
    Shape::new(23, "timers", &["subject", "kind", "platform", "due_at", "since", "attempts"])
        .with_key(2, 2);

/// Timers of a platform that are due by the server's clock, of the kinds that end something.
pub(crate) const DUE_ENDS: &str = "select subject, kind, platform, due_at, since, attempts \
    from timers where platform = $1 \
    and due_at <= $2 + (select clock_ahead from platforms where id = $1) and kind in \
    ('EXPIRE_QUOTE', 'EXPIRE_INVITATION', 'EXPIRE_IDENTITY_CHECK', 'DECIDE_PAYMENT') \
    order by due_at limit $3";

/// Whether anything of a platform is due by the server's clock.
pub(crate) const DUE_OF_PLATFORM: &str = "select due_at from timers where platform = $1 \
    and due_at <= $2 + (select clock_ahead from platforms where id = $1) limit 1";

/// Timers of a platform that are due behind a time and a subject until another time, in this order.
pub(crate) const LATER: &str = "select subject, kind, platform, due_at, since, attempts \
    from timers where platform = $1 and due_at >= $2 and due_at <= $3 \
    and (due_at > $2 or subject > $4) order by due_at, subject limit $5";

/// The changes that set timers and take them away. Whether one is there was not read.
pub(crate) fn changes(
    timers: &BTreeMap<TimerKey, Option<Timer>>,
) -> impl Iterator<Item = RowChange> {
    timers.iter().map(|((subject, kind), timer)| {
        let mut values = vec![Value::from(*subject), Value::name(kind.name())];
        if let Some(timer) = timer {
            values.push(timer.platform.into());
            values.extend([timer.due_at.into(), timer.since.into(), timer.attempts.into()]);
        }
        let kind = if timer.is_some() { Kind::Update } else { Kind::Remove };
        let change = TableChange::new(TIMERS.number, kind, values);
        RowChange { of_person: None, change }
    })
}

/// The due timers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Due {
    /// Those of the platform whose first is longest overdue come first; of a platform, the longest
    /// overdue first.
    pub timers: Vec<Timer>,
    /// Since when the longest overdue is due, by the server's clock.
    pub since: Option<Timestamp>,
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
    /// Timers of a platform that are due when the server's clock shows `now` and end something, of
    /// so many rows at most. Rows that cannot be read are left out.
    pub fn due_ends(
        &mut self,
        platform: PlatformId,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<Timer>, StoreError> {
        let parameters = [platform.into(), now.into(), limit.into()];
        let columns = (TIMERS.table, TIMERS.columns);
        let due = self.connection.all(DUE_ENDS, &parameters, columns, |row| Ok(read(row).ok()))?;
        Ok(due.into_iter().flatten().collect())
    }

    /// Whether anything of a platform is due when the server's clock shows `now`.
    pub fn has_due(&mut self, platform: PlatformId, now: Timestamp) -> Result<bool, StoreError> {
        let parameters = [platform.into(), now.into()];
        let columns = (TIMERS.table, &["due_at"][..]);
        let due = self.connection.first(DUE_OF_PLATFORM, &parameters, columns, Row::time)?;
        Ok(due.is_some())
    }

    /// Timers of a platform that are due behind a time, by its clock, and a subject, until another
    /// time, up to a limit. Rows that cannot be read are logged and left out.
    pub fn later_timers(
        &mut self,
        platform: PlatformId,
        (due_at, subject): (Timestamp, Uuid),
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<Timer>, StoreError> {
        let parameters =
            [platform.into(), due_at.into(), until.into(), subject.into(), limit.into()];
        let columns = (TIMERS.table, TIMERS.columns);
        let later = self.connection.all(LATER, &parameters, columns, |row| Ok(read(row).ok()))?;
        let (count, later) = (later.len(), later.into_iter().flatten().collect::<Vec<_>>());
        let unreadable = count - later.len();
        if unreadable > 0 {
            tracing::error!(rows = unreadable, %platform, "timers cannot be read: run verify");
        }
        Ok(later)
    }
}
