//! Timers: jobs that are due at a time. A timer is committed with its cause and goes with its
//! effect, so it survives a crash.
//!
//! Every timer is a platform's, and kept by its clock, which can be ahead of the server's: moving
//! the clock changes the platform's row and nothing else (docs/decisions/0013). An index has the
//! timers of each platform in their order. So the first of each is found by one look, and a
//! platform that has nothing due costs nothing more.

use std::collections::{BTreeMap, HashSet};

use domain::clock::Ahead;
use domain::id::PlatformId;
use domain::platform::Platform;
use domain::time::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;
use crate::journal::change_set::{Kind, RowChange, TableChange};
use crate::reader::View;
use crate::record::Record as _;
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

/// The clock of each platform, and its first timer.
pub(crate) const FIRSTS: &str = "select p.id, p.clock_ahead, \
    (select min(t.due_at) from timers t where t.platform = p.id) as due_at from platforms p";

/// Timers of a platform that are due by its clock.
pub(crate) const DUE: &str = "select subject, kind, platform, due_at, since, attempts \
    from timers where platform = $1 and due_at <= $2 order by due_at limit $3";

/// The same, of the kinds that end something, by the server's clock.
pub(crate) const DUE_ENDS: &str = "select subject, kind, platform, due_at, since, attempts \
    from timers where platform = $1 \
    and due_at <= $2 + (select clock_ahead from platforms where id = $1) and kind in \
    ('EXPIRE_QUOTE', 'EXPIRE_INVITATION', 'EXPIRE_IDENTITY_CHECK', 'DECIDE_PAYMENT') \
    order by due_at limit $3";

/// Whether anything of a platform is due by the server's clock.
pub(crate) const DUE_OF_PLATFORM: &str = "select due_at from timers where platform = $1 \
    and due_at <= $2 + (select clock_ahead from platforms where id = $1) limit 1";

/// Timers of a platform that are due behind a time and a subject, in this order.
pub(crate) const LATER: &str = "select subject, kind, platform, due_at, since, attempts \
    from timers where platform = $1 and due_at >= $2 and (due_at > $2 or subject > $3) \
    order by due_at, subject limit $4";

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
        let change = TableChange { table: TIMERS.number, kind, values };
        RowChange { owner: None, change }
    })
}

/// The due timers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Due {
    /// Those of the platform whose first is longest overdue come first; of a platform, the longest
    /// overdue first.
    pub timers: Vec<Timer>,
    /// Rows that cannot be read; they hold no other timer up.
    pub unreadable: usize,
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

/// A platform with timers.
struct First {
    platform: PlatformId,
    ahead: Ahead,
    /// When its first is due, by the server's clock.
    due_at: Timestamp,
}

impl View<'_> {
    /// The platforms with timers, in the order of their first. A row that cannot be read is left
    /// out.
    fn firsts(&mut self) -> Result<Vec<First>, StoreError> {
        let columns = (Platform::TABLE, &["id", "clock_ahead", "due_at"][..]);
        let read = |row: &mut Row| {
            let (platform, ahead) = (row.id().ok(), row.int()?);
            let (ahead, due_at) = (Ahead::from_millis(ahead), row.time_or_null()?);
            let first = platform.zip(ahead).zip(due_at);
            Ok(first.map(|((platform, ahead), due_at)| First {
                platform,
                ahead,
                due_at: ahead.on_server(due_at),
            }))
        };
        let firsts = self.connection.all(FIRSTS, &[], columns, read)?;
        let mut firsts: Vec<_> = firsts.into_iter().flatten().collect();
        firsts.sort_by_key(|first| first.due_at);
        Ok(firsts)
    }

    /// Timers that are due when the server's clock shows `now`, of so many rows at most, but for
    /// those whose jobs are `under_way`.
    pub fn due_timers(
        &mut self,
        now: Timestamp,
        limit: u32,
        under_way: &HashSet<TimerKey>,
    ) -> Result<Due, StoreError> {
        let mut firsts = self.firsts()?;
        firsts.retain(|first| first.due_at <= now);
        let mut due = Due::default();
        let mut left = limit as usize;
        for First { platform, ahead, due_at } in firsts {
            let mut rows = self.timers_until(platform, ahead.shows(now), left, under_way)?;
            rows.truncate(left);
            let since = rows
                .first()
                .map(|timer| timer.as_ref().map_or(due_at, |timer| ahead.on_server(timer.due_at)));
            due.since = due.since.into_iter().chain(since).min();
            left -= rows.len();
            due.unreadable += rows.iter().filter(|timer| timer.is_none()).count();
            due.timers.extend(rows.into_iter().flatten());
            if left == 0 {
                break;
            }
        }
        Ok(due)
    }

    /// The timers of a platform that are due at a time by its clock but for those `under_way`, so
    /// many at least if there are; nothing for a row that cannot be read.
    fn timers_until(
        &mut self,
        platform: PlatformId,
        until: Timestamp,
        limit: usize,
        under_way: &HashSet<TimerKey>,
    ) -> Result<Vec<Option<Timer>>, StoreError> {
        let limit = u32::try_from(limit.saturating_add(under_way.len())).unwrap_or(u32::MAX);
        let parameters = [platform.into(), until.into(), limit.into()];
        let columns = (TIMERS.table, TIMERS.columns);
        let mut rows = self.connection.all(DUE, &parameters, columns, |row| Ok(read(row).ok()))?;
        let is_free = |timer: &Timer| !under_way.contains(&timer.key());
        rows.retain(|timer| timer.as_ref().is_none_or(is_free));
        Ok(rows)
    }

    /// Timers of a platform that are due when the server's clock shows `now` and end something, of
    /// so many rows at most. Rows that cannot be read are left to the jobs.
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

    /// When the next timer is due by the server's clock, if there is one besides those whose jobs
    /// are `under_way`.
    pub fn next_due(
        &mut self,
        under_way: &HashSet<TimerKey>,
    ) -> Result<Option<Timestamp>, StoreError> {
        let firsts = self.firsts()?;
        if under_way.is_empty() {
            return Ok(firsts.first().map(|first| first.due_at));
        }
        let (mut next, end) = (None, Timestamp::from_millis(i64::MAX));
        for First { platform, ahead, due_at } in firsts {
            if next.is_some_and(|next| next <= due_at) {
                break;
            }
            let rows = self.timers_until(platform, end, 1, under_way)?;
            let first = rows
                .first()
                .map(|timer| timer.as_ref().map_or(due_at, |timer| ahead.on_server(timer.due_at)));
            next = next.into_iter().chain(first).min();
        }
        Ok(next)
    }

    /// Timers of a platform that are due behind a time, by its clock, and a subject, up to a limit.
    /// Rows that cannot be read are left to the jobs.
    pub fn later_timers(
        &mut self,
        platform: PlatformId,
        (due_at, subject): (Timestamp, Uuid),
        limit: u32,
    ) -> Result<Vec<Timer>, StoreError> {
        let parameters = [platform.into(), due_at.into(), subject.into(), limit.into()];
        let columns = (TIMERS.table, TIMERS.columns);
        let later = self.connection.all(LATER, &parameters, columns, |row| Ok(read(row).ok()))?;
        Ok(later.into_iter().flatten().collect())
    }
}
