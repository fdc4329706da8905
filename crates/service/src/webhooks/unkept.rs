//! What is known of a platform's deliveries and is not in the database yet.
//!
//! Events are taken on in memory, attempted, and written in pages: the row of a delivery that is
//! answered soon is written once, as it ended. What is lost with the process is attempted again, so
//! that [`UNKEPT_MAX`] is how much may come twice.

use std::collections::{BTreeMap, BTreeSet};

use domain::delivery::{self, Attempt, Delivery, Schedule};
use domain::id::{DeliveryId, PlatformId};
use domain::time::Timestamp;
use store::events::{Endpoint, Outbox};
use store::unit::Unit;

use crate::error::Error;

/// How long something stays unkept, in milliseconds: longer than a fast endpoint needs for what is
/// taken on at once, and short enough that nobody who looks at the list waits for it.
pub(super) const KEPT_WITHIN: i64 = 100;

/// Changes that are worth a commit of their own: it costs little for each of so many.
const PAGE_ENOUGH: usize = 256;

/// What a platform may have that is not kept, and so may get twice after a crash: a page that is
/// being written, one that is being filled, and events that were taken on to fill the next.
const UNKEPT_MAX: usize = 1_024;

/// What came of one attempt.
#[derive(Debug, Clone)]
pub(super) struct Attempted {
    pub(super) attempt: Attempt,
    /// For how many milliseconds the endpoint wants to be left alone.
    pub(super) retry_after: Option<i64>,
    /// Spreads the next attempt.
    pub(super) random: u64,
}

/// Something that happened to a delivery.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// The delivery.
    pub(super) id: DeliveryId,
    /// The place of its event.
    pub(super) ordinal: i64,
    /// What came of an attempt; nothing if nobody attempts it any more.
    pub(super) attempted: Option<Attempted>,
    /// When, by the platform's clock.
    pub(super) at: Timestamp,
}

impl Change {
    /// What it means for the delivery as it is.
    pub(super) fn event(&self, delivery: &Delivery, schedule: &Schedule) -> delivery::Event {
        let Some(Attempted { attempt, retry_after, random }) = &self.attempted else {
            return delivery::Event::GivenUp(None);
        };
        let failures = delivery.progress().failures.saturating_add(1);
        let pause = schedule.pause_asked(failures, *random, *retry_after);
        delivery.after(attempt.clone(), schedule, pause, self.at)
    }

    /// Keeps it. One that has ended meanwhile, by somebody else, stays as it is.
    fn keep(&self, unit: &mut Unit<'_, '_>, schedule: &Schedule) -> Result<(), Error> {
        let Some(delivery) = unit.get::<Delivery>(&self.id)? else { return Ok(()) };
        let event = self.event(&delivery, schedule);
        if let Ok(moved) = Delivery::clone(&delivery).apply(event, self.at) {
            unit.move_delivery(moved);
        }
        Ok(())
    }
}

/// An event that was taken on, to which nothing has happened yet.
struct New {
    delivery: Delivery,
    /// When it was taken on, by the server's clock.
    at: Timestamp,
}

/// What is known and not kept.
pub(super) struct Unkept {
    /// The number up to which events were taken on.
    taken: i64,
    /// The number up to which they are in pages or in the database.
    kept: i64,
    /// Those in between that have no row and wait, by their numbers.
    new: BTreeMap<i64, New>,
    /// Those that have no row and something has happened to, as they were before it.
    begun: Vec<Delivery>,
    changes: Vec<Change>,
    /// When the first of the changes was, by the server's clock.
    changed_at: Option<Timestamp>,
    /// Changes in pages that are being written.
    in_pages: usize,
    /// Whether the endpoint has said that it wants nothing any more.
    is_gone: bool,
}

impl Unkept {
    /// Nothing, where the database has everything up to an event.
    pub(super) fn nothing(taken: i64) -> Self {
        Self {
            taken,
            kept: taken,
            new: BTreeMap::new(),
            begun: Vec::new(),
            changes: Vec::new(),
            changed_at: None,
            in_pages: 0,
            is_gone: false,
        }
    }

    /// The number up to which events were taken on.
    pub(super) fn taken(&self) -> i64 {
        self.taken
    }

    /// Whether everything is in pages or in the database.
    pub(super) fn is_empty(&self) -> bool {
        self.new.is_empty() && self.changes.is_empty() && self.taken == self.kept && !self.is_gone
    }

    /// Whether so many more events can be taken on.
    pub(super) fn has_room_for(&self, events: usize) -> bool {
        self.new.len() + self.changes.len() + self.in_pages + events <= UNKEPT_MAX
    }

    /// Whether an attempt can be made on top of those that are under way.
    pub(super) fn can_attempt(&self, under_way: usize) -> bool {
        self.changes.len() + self.in_pages + under_way < UNKEPT_MAX
    }

    /// Takes an event on that has no row. `at` is by the server's clock.
    pub(super) fn add(&mut self, delivery: Delivery, at: Timestamp) {
        self.new.insert(delivery.draft().ordinal, New { delivery, at });
    }

    /// No event up to this number is still to be taken on.
    pub(super) fn took_until(&mut self, until: i64) {
        self.taken = self.taken.max(until);
    }

    /// Something happened to a delivery. `at` is by the server's clock.
    pub(super) fn happened(&mut self, change: Change, at: Timestamp) {
        self.begun.extend(self.new.remove(&change.ordinal).map(|new| new.delivery));
        self.changed_at.get_or_insert(at);
        self.changes.push(change);
    }

    /// Nobody attempts a delivery any more. `now` is by the platform's clock, `at` by the server's.
    pub(super) fn given_up(
        &mut self,
        (id, ordinal): (DeliveryId, i64),
        now: Timestamp,
        at: Timestamp,
    ) {
        self.happened(Change { id, ordinal, attempted: None, at: now }, at);
    }

    /// The endpoint has said that it wants nothing any more.
    pub(super) fn went(&mut self) {
        self.is_gone = true;
    }

    /// By when something is to be kept, by the server's clock.
    pub(super) fn due_at(&self) -> Option<Timestamp> {
        let taken_at = self.new.first_key_value().map(|(_, new)| new.at);
        let first = taken_at.into_iter().chain(self.changed_at).min()?;
        Some(first.plus_millis(KEPT_WITHIN))
    }

    /// Whether it is time to keep something.
    pub(super) fn is_due(&self, at: Timestamp) -> bool {
        self.changes.len() >= PAGE_ENOUGH || self.due_at().is_some_and(|due_at| due_at <= at)
    }

    /// Everything that has happened, and new deliveries that have waited for long enough, or all
    /// of them.
    pub(super) fn page(&mut self, platform: PlatformId, at: Timestamp, all: bool) -> Option<Page> {
        let is_old = |new: &New| all || new.at.plus_millis(KEPT_WITHIN) <= at;
        let old = self.new.extract_if(.., |_, new| is_old(new)).map(|(_, old)| old.delivery);
        let mut new = std::mem::take(&mut self.begun);
        new.extend(old);
        let until = self.new.first_key_value().map_or(self.taken, |(first, _)| first - 1);
        if new.is_empty() && self.changes.is_empty() && until == self.kept && !self.is_gone {
            return None;
        }
        let after = std::mem::replace(&mut self.kept, until);
        let changes = std::mem::take(&mut self.changes);
        self.in_pages += changes.len();
        self.changed_at = None;
        let is_gone = std::mem::take(&mut self.is_gone);
        Some(Page { platform, after, until, new, changes, is_gone })
    }

    /// All pages are in the database.
    pub(super) fn kept(&mut self) {
        self.in_pages = 0;
    }
}

/// What is kept of a platform at once.
pub(super) struct Page {
    platform: PlatformId,
    /// The number up to which events have rows.
    after: i64,
    /// The number up to which they have then.
    until: i64,
    /// Deliveries that have no row yet, as they were taken on.
    new: Vec<Delivery>,
    /// What happened, in this order.
    changes: Vec<Change>,
    is_gone: bool,
}

impl Page {
    /// Keeps it.
    pub(super) fn keep(&self, unit: &mut Unit<'_, '_>, schedule: &Schedule) -> Result<(), Error> {
        let outbox = unit.outbox(self.platform)?;
        // The endpoint was set anew otherwise, and begins with what comes then.
        let goes_on = outbox.taken == self.after;
        let changed: BTreeSet<_> = self.changes.iter().map(|change| change.id).collect();
        let new = self.new.iter().map(Delivery::id);
        let ids: Vec<_> = new.chain(changed.iter().copied()).collect();
        let known = unit.get_all::<Delivery>(&ids)?;
        for (delivery, known) in self.new.iter().zip(known) {
            // A replay can have made it meanwhile.
            if known.is_none() && (goes_on || changed.contains(&delivery.id())) {
                unit.add_delivery(delivery.clone());
            }
        }
        for change in &self.changes {
            change.keep(unit, schedule)?;
        }
        let taken = if goes_on { self.until } else { outbox.taken };
        // What somebody has changed since may be the address.
        let is_gone = self.is_gone && outbox.endpoint == Endpoint::Open && !outbox.news;
        let endpoint = if is_gone { Endpoint::Gone } else { outbox.endpoint };
        let kept = Outbox { taken, endpoint, ..outbox };
        if kept != outbox {
            unit.put_outbox(kept);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use domain::delivery::{Draft, Outcome, Plan};
    use domain::event::{Event, EventKind, event_id};
    use uuid::Uuid;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn platform() -> PlatformId {
        PlatformId::from_uuid(Uuid::from_u128(1))
    }

    fn delivery(ordinal: i64) -> Delivery {
        let resource = Uuid::from_u128(ordinal.unsigned_abs().into());
        let event = Event {
            id: event_id(resource, 1),
            platform: platform(),
            kind: EventKind::OutgoingPayment,
            resource,
            number: 1,
            at: at(1_000),
            body: Vec::new(),
        };
        Delivery::pending(Draft::new(&event, ordinal, Plan::Retried), at(1_000))
    }

    fn attempted(ordinal: i64) -> Change {
        let delivery = delivery(ordinal);
        let outcome = Outcome::Answered { status: 200, body: Vec::new() };
        let attempt = Attempt { at: at(1_000), millis: 1, peer: None, outcome };
        let attempted = Some(Attempted { attempt, retry_after: None, random: 0 });
        Change { id: delivery.id(), ordinal, attempted, at: at(1_000) }
    }

    /// Five events, taken on behind the tenth at the time 1000.
    fn five() -> Unkept {
        let mut unkept = Unkept::nothing(10);
        (11..=15).for_each(|ordinal| unkept.add(delivery(ordinal), at(1_000)));
        unkept.took_until(15);
        unkept
    }

    /// After which event a page begins, where it ends, and what it adds and changes.
    type Shape = (i64, i64, Vec<i64>, Vec<i64>);

    fn page(unkept: &mut Unkept, now: i64, all: bool) -> Option<Shape> {
        let page = unkept.page(platform(), at(now), all)?;
        let new = page.new.iter().map(|delivery| delivery.draft().ordinal).collect();
        let changes = page.changes.iter().map(|change| change.ordinal).collect();
        Some((page.after, page.until, new, changes))
    }

    #[test]
    fn a_page_never_ends_behind_an_event_without_a_row() {
        let mut unkept = five();
        assert_eq!(page(&mut unkept, 1_000, false), None);
        for ordinal in [11, 12, 14] {
            unkept.happened(attempted(ordinal), at(1_010));
        }
        let first = Some((10, 12, vec![11, 12, 14], vec![11, 12, 14]));
        assert_eq!(page(&mut unkept, 1_020, false), first);
        unkept.happened(attempted(13), at(1_030));
        assert_eq!(page(&mut unkept, 1_040, false), Some((12, 14, vec![13], vec![13])));
        assert_eq!(page(&mut unkept, 1_050, false), None);
        assert!(!unkept.is_empty());
    }

    #[test]
    fn what_has_waited_for_long_gets_a_row_and_changes_later() {
        let mut unkept = five();
        unkept.happened(attempted(12), at(1_010));
        assert_eq!(unkept.due_at(), Some(at(1_000 + KEPT_WITHIN)));
        assert!(!unkept.is_due(at(999 + KEPT_WITHIN)) && unkept.is_due(at(1_000 + KEPT_WITHIN)));
        let all = Some((10, 15, vec![12, 11, 13, 14, 15], vec![12]));
        assert_eq!(page(&mut unkept, 1_000 + KEPT_WITHIN, false), all);
        assert!(unkept.is_empty());
        unkept.happened(attempted(13), at(2_000));
        assert_eq!(unkept.due_at(), Some(at(2_000 + KEPT_WITHIN)));
        assert_eq!(page(&mut unkept, 2_000, false), Some((15, 15, vec![], vec![13])));
    }

    #[test]
    fn what_is_written_counts_until_it_is_kept() {
        let mut unkept = Unkept::nothing(0);
        let count = i64::try_from(UNKEPT_MAX).expect("a small number");
        (1..=count).for_each(|ordinal| unkept.happened(attempted(ordinal), at(1_000)));
        assert!(page(&mut unkept, 1_000, true).is_some());
        assert!(!unkept.can_attempt(0) && !unkept.has_room_for(1));
        unkept.kept();
        assert!(unkept.can_attempt(UNKEPT_MAX - 1) && unkept.has_room_for(UNKEPT_MAX));
        assert!(!unkept.can_attempt(UNKEPT_MAX));
    }

    #[test]
    fn many_changes_are_kept_at_once() {
        let mut unkept = Unkept::nothing(0);
        for ordinal in 1..=PAGE_ENOUGH {
            assert!(!unkept.is_due(at(1_000)));
            let ordinal = i64::try_from(ordinal).expect("a small number");
            unkept.happened(attempted(ordinal), at(1_000));
        }
        assert!(unkept.is_due(at(1_000)));
    }
}
