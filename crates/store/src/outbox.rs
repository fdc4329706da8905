//! The outbox: which deliveries are due, and in which order.

use std::collections::HashSet;

use domain::delivery::Delivery;
use domain::event::Event;
use domain::id::{DeliveryId, PlatformId};
use domain::time::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;
use crate::events::{self, EVENTS, Listed, Opened, Outbox};
use crate::reader::View;
use crate::record::{self, Record};
use crate::sql::{Row, Value};

/// The place of the ordinal among the columns of [`DUE`].
const ORDINAL: usize = 5;

pub(crate) const OUTBOXES: &str = "select o.platform, o.head, o.taken, o.opened, o.endpoint, \
    o.revision, o.sealed, (select min(d.due_at) from deliveries d \
    where d.platform = o.platform and d.status = 'PENDING') from outboxes o";

/// The predecessor is the pending delivery before one about the same resource. No delivery waits
/// for an approval request, which is sent outside the queues.
pub(crate) const DUE: &str = "select d.id, d.platform, d.kind, d.resource, d.number, d.ordinal, \
    d.plan, d.status, d.since, d.due_at, d.failures, d.updated_at, d.sealed, \
    (select max(b.ordinal) from deliveries b where b.resource = d.resource \
    and b.status = 'PENDING' and b.ordinal < d.ordinal and b.plan <> 'ASKED'), \
    (select b.due_at from deliveries b where b.resource = d.resource \
    and b.status = 'PENDING' and b.ordinal < d.ordinal and b.plan <> 'ASKED' \
    order by b.ordinal desc limit 1), \
    e.platform, e.ordinal, e.kind, e.resource, e.number, e.at, e.seq \
    from deliveries d left join events e on e.platform = d.platform and e.ordinal = d.ordinal \
    where d.platform = $1 and d.status = 'PENDING' and d.due_at <= $2 \
    and (d.due_at <= $3 or d.plan <> 'ASKED' and d.updated_at <= $4) \
    order by d.due_at, d.ordinal limit $5";

pub(crate) const PENDING: &str = "select id, ordinal, due_at from deliveries where resource = $1 \
    and status = 'PENDING' and plan <> 'ASKED' order by ordinal limit $2";

/// Whether a pending delivery of a platform is due later.
pub(crate) const HAS_LATER: &str = "select ordinal from deliveries where platform = $1 \
    and status = 'PENDING' and due_at > $2 limit 1";

/// Pending deliveries that are due later, and that a clock which was ahead has touched last.
pub(crate) const FROM_AHEAD: &str = "select id from deliveries where platform = $1 \
    and status = 'PENDING' and due_at > $2 and updated_at > $3 order by due_at limit $4";

pub(crate) const BACKLOG: &str = "select count(*), min(since) from deliveries \
    where status = 'PENDING' and plan <> 'ASKED'";

pub(crate) const BACKLOG_OF: &str = "select count(*) from deliveries \
    where platform = $1 and status = 'PENDING' and plan <> 'ASKED'";

/// The deliveries of a platform, as far as the worker needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The platform and its endpoint.
    pub outbox: Outbox,
    /// When the next delivery is due, by the platform's clock.
    pub next_at: Option<Timestamp>,
}

/// A delivery that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueDelivery {
    /// The delivery.
    pub delivery: Delivery,
    /// The ordinal of the delivery before it about the same resource, and when that is due, if it
    /// is pending.
    pub predecessor: Option<(i64, Timestamp)>,
    /// Its event, if that can be read.
    pub event: Option<Event>,
}

/// Deliveries of a platform that are due, in the order in which they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueDeliveries {
    /// Those that are not known yet.
    pub deliveries: Vec<DueDelivery>,
    /// Whether there may be more that are due.
    pub has_more: bool,
    /// Whether others are due later.
    pub has_later: bool,
}

/// A pending delivery about a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// Its id.
    pub id: DeliveryId,
    /// Its place among all of the platform's.
    pub ordinal: i64,
    /// When it is due, by the platform's clock.
    pub due_at: Timestamp,
}

/// Which deliveries count as due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueBy {
    /// Those that are due then.
    pub now: Timestamp,
    /// All that nothing has happened to since then, approval requests excepted.
    pub untouched_since: Option<Timestamp>,
}

impl View<'_> {
    /// Every platform's outbox, and when its next delivery is due.
    pub fn due(&mut self) -> Result<Vec<Due>, StoreError> {
        let (width, keyring, mut found) = (Outbox::shape().columns.len(), self.keyring, Vec::new());
        self.connection.query(OUTBOXES, &[], width + 1, &mut |mut values| {
            let due_at = values.split_off(width);
            let next_at = Row::new(Outbox::TABLE, &["due_at"], due_at).time_or_null()?;
            found.push(Due { outbox: record::read(values, keyring)?, next_at });
            Ok(())
        })?;
        Ok(found)
    }

    /// Deliveries of a platform that are due, in the order in which they are. Those with a `known`
    /// ordinal count for the limit, and are not opened.
    pub fn due_deliveries(
        &mut self,
        platform: PlatformId,
        DueBy { now, untouched_since }: DueBy,
        known: &HashSet<i64>,
        limit: u32,
    ) -> Result<DueDeliveries, StoreError> {
        let until = untouched_since.map_or(now.millis(), |_| i64::MAX);
        let untouched = untouched_since.map_or(i64::MIN, Timestamp::millis);
        let parameters =
            [platform.into(), until.into(), now.into(), untouched.into(), limit.into()];
        let width = Delivery::shape().columns.len();
        let all = width + 2 + EVENTS.columns.len();
        let (mut found, mut listed) = (Vec::new(), Vec::new());
        let (mut count, keyring) = (0, self.keyring);
        self.connection.query(DUE, &parameters, all, &mut |mut values| {
            count += 1;
            if matches!(values.get(ORDINAL), Some(Value::Int(it)) if known.contains(it)) {
                return Ok(());
            }
            let event = values.split_off(width + 2);
            let before = values.split_off(width);
            let delivery = record::read::<Delivery>(values, keyring)?;
            let before = &mut Row::new(Delivery::TABLE, &["ordinal", "due_at"], before);
            let predecessor = before.int_or_null()?.zip(before.time_or_null()?);
            let is_there = event.first().is_some_and(|value| *value != Value::Null);
            let event = &mut Row::new(EVENTS.table, EVENTS.columns, event);
            let event = if is_there { Listed::read(event).ok() } else { None };
            listed.extend(event);
            found.push((DueDelivery { delivery, predecessor, event: None }, event.is_some()));
            Ok(())
        })?;
        let mut opened = events::open(self.connection, keyring, &listed)?.into_iter();
        let deliveries = found.into_iter().filter_map(|(due, is_listed)| {
            // One that cannot be read is given up, and delays no other. One about a person who was
            // erased a moment ago is due once it was rendered anew.
            let event = match is_listed.then(|| opened.next()).flatten() {
                Some(Opened::Event(event)) => Some(event),
                Some(Opened::Erased) => return None,
                Some(Opened::Missing(_)) | None => None,
            };
            Some(DueDelivery { event, ..due })
        });
        let (deliveries, has_more) = (deliveries.collect(), count >= limit);
        let columns = (Delivery::TABLE, &["ordinal"][..]);
        let later = [platform.into(), now.into()];
        let later = self.connection.first(HAS_LATER, &later, columns, Row::int)?;
        Ok(DueDeliveries { deliveries, has_more, has_later: later.is_some() })
    }

    /// The first pending deliveries about a resource, in the order in which they are attempted.
    pub fn pending_deliveries(
        &mut self,
        resource: Uuid,
        limit: u32,
    ) -> Result<Vec<Pending>, StoreError> {
        const COLUMNS: &[&str] = &["id", "ordinal", "due_at"];
        let mut found = Vec::new();
        let parameters = [resource.into(), limit.into()];
        self.connection.query(PENDING, &parameters, COLUMNS.len(), &mut |values| {
            let row = &mut Row::new(Delivery::TABLE, COLUMNS, values);
            found.push(Pending { id: row.id()?, ordinal: row.int()?, due_at: row.time()? });
            Ok(())
        })?;
        Ok(found)
    }

    /// Pending deliveries of a platform that are due after `now` because a clock said so that was
    /// ahead: something happened to them after `touched_after`. Up to a limit.
    pub fn deliveries_from_ahead(
        &mut self,
        platform: PlatformId,
        (now, touched_after): (Timestamp, Timestamp),
        limit: u32,
    ) -> Result<Vec<DeliveryId>, StoreError> {
        let parameters = [platform.into(), now.into(), touched_after.into(), limit.into()];
        self.connection.all(FROM_AHEAD, &parameters, (Delivery::TABLE, &["id"]), Row::id)
    }

    /// How many deliveries are pending, and since when the oldest.
    pub fn backlog(&mut self) -> Result<(i64, Option<Timestamp>), StoreError> {
        let mut found = (0, None);
        self.connection.query(BACKLOG, &[], 2, &mut |values| {
            let row = &mut Row::new(Delivery::TABLE, &["count", "since"], values);
            found = (row.int()?, row.time_or_null()?);
            Ok(())
        })?;
        Ok(found)
    }

    /// How many deliveries of a platform are pending.
    pub fn backlog_of(&mut self, platform: PlatformId) -> Result<i64, StoreError> {
        let mut found = 0;
        self.connection.query(BACKLOG_OF, &[platform.into()], 1, &mut |values| {
            found = Row::new(Delivery::TABLE, &["count"], values).int()?;
            Ok(())
        })?;
        Ok(found)
    }
}
