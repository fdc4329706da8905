//! The outbox: which deliveries are due, and in which order.

use std::collections::HashSet;

use domain::delivery::Delivery;
use domain::event::Event;
use domain::id::{DeliveryId, PlatformId};
use domain::time::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;
use crate::events::{self, EVENTS, Outbox};
use crate::reader::View;
use crate::record::Record;
use crate::sql::{Row, Value};

/// The place of the ordinal among the columns of [`DUE`].
const ORDINAL: usize = 5;

/// Held deliveries of one resource that are released at once.
const RELEASED_MAX: i64 = 64;

pub(crate) const OUTBOXES: &str = "select o.platform, o.head, o.taken, o.opened, o.endpoint, \
    o.revision, (select min(d.due_at) from deliveries d \
    where d.platform = o.platform and d.status = 'PENDING' and d.held = 0), \
    (select min(d.due_at) from deliveries d \
    where d.platform = o.platform and d.status = 'PENDING' and d.held = 1) from outboxes o";

/// The predecessor is the pending delivery before one about the same resource. An approval request
/// is nobody's predecessor: it is attempted outside of the queues.
pub(crate) const DUE: &str = "select d.id, d.platform, d.kind, d.resource, d.number, d.ordinal, \
    d.plan, d.status, d.since, d.due_at, d.held, d.failures, d.updated_at, d.sealed, \
    (select max(b.ordinal) from deliveries b where b.resource = d.resource \
    and b.status = 'PENDING' and b.ordinal < d.ordinal and b.plan <> 'ASKED'), \
    (select max(h.ordinal) from deliveries h where h.resource = d.resource \
    and h.status = 'PENDING' and h.ordinal > d.ordinal and h.held = 1), \
    e.platform, e.ordinal, e.kind, e.resource, e.number, e.at, e.sealed \
    from deliveries d left join events e on e.platform = d.platform and e.ordinal = d.ordinal \
    where d.platform = $1 and d.status = 'PENDING' and d.held = 0 and d.due_at <= $2 \
    and (d.due_at <= $3 or d.updated_at <= $4) order by d.due_at, d.ordinal limit $5";

pub(crate) const PENDING: &str = "select id, platform, kind, resource, number, ordinal, plan, \
    status, since, due_at, held, failures, updated_at, sealed from deliveries \
    where platform = $1 and status = 'PENDING' and (plan <> 'ASKED' or due_at <= $2) \
    order by held, due_at, ordinal limit $3";

pub(crate) const HELD: &str = "select id from deliveries \
    where resource = $1 and status = 'PENDING' and held = 1 order by ordinal limit $2";

pub(crate) const FIRST: &str = "select id, due_at from deliveries where resource = $1 \
    and status = 'PENDING' and plan <> 'ASKED' order by ordinal limit 1";

pub(crate) const BACKLOG: &str = "select count(*), min(since) from deliveries \
    where status = 'PENDING' and plan <> 'ASKED'";

/// What a platform's endpoint is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The platform and its endpoint.
    pub outbox: Outbox,
    /// When the next delivery that is not held is due, by the platform's clock.
    pub next_at: Option<Timestamp>,
    /// Whether some are held.
    pub has_held: bool,
}

/// A delivery that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueDelivery {
    /// The delivery.
    pub delivery: Delivery,
    /// The ordinal of the delivery before it about the same resource, if that is pending.
    pub predecessor: Option<i64>,
    /// Whether deliveries behind it are held.
    pub has_held: bool,
    /// Its event, if that can be read.
    pub event: Option<Event>,
}

impl View<'_> {
    /// Every platform's outbox, and when its next delivery is due.
    pub fn due(&mut self) -> Result<Vec<Due>, StoreError> {
        const COLUMNS: &[&str] =
            &["platform", "head", "taken", "opened", "endpoint", "revision", "due_at", "held"];
        let mut found = Vec::new();
        self.connection.query(OUTBOXES, &[], COLUMNS.len(), &mut |values| {
            let row = &mut Row::new(Outbox::TABLE, COLUMNS, values);
            let outbox = Outbox::read_row(row)?;
            let (next_at, has_held) = (row.time_or_null()?, row.time_or_null()?.is_some());
            found.push(Due { outbox, next_at, has_held });
            Ok(())
        })?;
        Ok(found)
    }

    /// Deliveries of a platform that are due at `now`, in the order in which they are. For an
    /// endpoint that has recovered, those are due too that nothing happened to since then. Those
    /// with a `known` ordinal count for the limit, and are not opened. Also says whether there may
    /// be more.
    pub fn due_deliveries(
        &mut self,
        platform: PlatformId,
        now: Timestamp,
        recovered_at: Option<Timestamp>,
        known: &HashSet<i64>,
        limit: u32,
    ) -> Result<(Vec<DueDelivery>, bool), StoreError> {
        let until = recovered_at.map_or(now.millis(), |_| i64::MAX);
        let untouched = recovered_at.map_or(i64::MIN, Timestamp::millis);
        let parameters =
            [platform.into(), until.into(), now.into(), untouched.into(), limit.into()];
        let width = Delivery::COLUMNS.len() + 2 + EVENTS.columns.len();
        let (mut found, mut count, keyring) = (Vec::new(), 0, self.keyring);
        self.connection.query(DUE, &parameters, width, &mut |mut values| {
            count += 1;
            if matches!(values.get(ORDINAL), Some(Value::Int(it)) if known.contains(it)) {
                return Ok(());
            }
            let event = values.split_off(Delivery::COLUMNS.len() + 2);
            let mut row = Row::new(Delivery::TABLE, Delivery::COLUMNS, values);
            let delivery = Delivery::read(&mut row, keyring)?;
            let (predecessor, held) = (row.int_or_null()?, row.int_or_null()?);
            let is_there = event.first().is_some_and(|value| *value != Value::Null);
            // One that cannot be read is given up, and holds up no other.
            let event = if is_there { events::read(event, keyring).ok() } else { None };
            let event = event.map(|numbered| numbered.event);
            let has_held = held.is_some();
            found.push(DueDelivery { delivery, predecessor, has_held, event });
            Ok(())
        })?;
        Ok((found, count >= limit))
    }

    /// Some deliveries of a platform that are neither delivered nor dead.
    pub fn pending_deliveries(
        &mut self,
        platform: PlatformId,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<Delivery>, StoreError> {
        let parameters = [platform.into(), now.into(), limit.into()];
        let (mut found, keyring) = (Vec::new(), self.keyring);
        self.connection.query(PENDING, &parameters, Delivery::COLUMNS.len(), &mut |values| {
            let row = &mut Row::new(Delivery::TABLE, Delivery::COLUMNS, values);
            found.push(Delivery::read(row, keyring)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// The next held deliveries about a resource.
    pub fn held_deliveries(&mut self, resource: Uuid) -> Result<Vec<DeliveryId>, StoreError> {
        let mut found = Vec::new();
        let parameters = [resource.into(), RELEASED_MAX.into()];
        self.connection.query(HELD, &parameters, 1, &mut |values| {
            found.push(Row::new(Delivery::TABLE, &["id"], values).id()?);
            Ok(())
        })?;
        Ok(found)
    }

    /// The first pending delivery about a resource, for which the others wait, and when it is due.
    pub fn first_pending(
        &mut self,
        resource: Uuid,
    ) -> Result<Option<(DeliveryId, Timestamp)>, StoreError> {
        let mut found = None;
        self.connection.query(FIRST, &[resource.into()], 2, &mut |values| {
            let row = &mut Row::new(Delivery::TABLE, &["id", "due_at"], values);
            found = Some((row.id()?, row.time()?));
            Ok(())
        })?;
        Ok(found)
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
}
