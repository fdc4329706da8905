//! The queue of one platform: its due deliveries, in memory.
//!
//! Deliveries about one resource are attempted one after the other, in the order of their events.
//! Resources do not wait for each other. A delivery whose predecessor is to be attempted later is
//! due with it, so that the index by due time has both together.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use domain::delivery::{self, Attempt, Delivery, Plan, Schedule, Verdict};
use domain::event::Event;
use domain::id::{DeliveryId, PlatformId};
use domain::platform::Platform;
use domain::time::Timestamp;
use store::outbox::DueDelivery;
use uuid::Uuid;

use crate::pace::Pace;
use crate::webhooks::signature::Signer;

/// Deliveries of one platform in memory with which no more are read.
const LOADED_ENOUGH: usize = 256;

/// Deliveries that are read at once.
const READ_MAX: usize = 512;

/// Deliveries of one platform in memory with which none are taken from commits: a second of a busy
/// platform. The tables have the rest.
const TAKEN_MAX: usize = 8_192;

/// Changes that are worth a commit of their own.
const CHANGES_ENOUGH: usize = 256;

/// A delivery that is due, with its event.
pub(super) struct Loaded {
    pub(super) delivery: Delivery,
    /// Nothing if it cannot be read.
    pub(super) event: Option<Arc<Event>>,
}

impl Loaded {
    fn ordinal(&self) -> i64 {
        self.delivery.draft().ordinal
    }
}

/// Deliveries about one resource.
#[derive(Default)]
struct Resource {
    /// Those that are still to be attempted, in the order of their events.
    waiting: VecDeque<Loaded>,
    is_under_way: bool,
    /// Changes that are not written yet.
    unwritten: usize,
    /// When those are due that were postponed, until that is written.
    postponed_to: Option<Timestamp>,
}

/// A change of a delivery that is to be written.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) platform: PlatformId,
    pub(super) id: DeliveryId,
    pub(super) what: What,
    /// When, by the platform's clock.
    pub(super) at: Timestamp,
    /// The revision of the outbox at which the endpoint has said that it is gone, if it has.
    pub(super) gone_at: Option<i64>,
    ordinal: i64,
    resource: Uuid,
}

/// The change itself.
#[derive(Debug, Clone)]
pub(super) enum What {
    /// It was attempted or given up.
    Happened(delivery::Event),
    /// It is due with the one before it.
    Rescheduled(Timestamp),
}

/// An attempt that was made.
#[derive(Debug, Clone)]
pub(super) struct Attempted {
    pub(super) attempt: Attempt,
    /// For how many milliseconds the endpoint wants to be left alone.
    pub(super) retry_after: Option<i64>,
    /// Spreads the next attempt.
    pub(super) random: u64,
}

/// The end of an attempt.
pub(super) struct Ended {
    pub(super) platform: PlatformId,
    pub(super) loaded: Loaded,
    /// The address that the attempt went to.
    pub(super) endpoint: Option<String>,
    /// Nothing if the attempt panicked.
    pub(super) attempted: Option<Attempted>,
}

/// Deliveries of one platform.
pub(super) struct Queue {
    pub(super) platform: Arc<Platform>,
    pub(super) signer: Arc<Signer>,
    /// The revision of the outbox that this platform was read at.
    pub(super) revision: i64,
    /// Whether the endpoint wants nothing any more.
    pub(super) is_gone: bool,
    /// Whether the last read found as much as it may.
    pub(super) has_more: bool,
    /// Whether every pending delivery is in this queue, but for deliveries that were committed
    /// since the last step: these are taken from memory, without a read of the table.
    pub(super) is_current: bool,
    pub(super) pace: Pace,
    /// Since when the endpoint is back, until everything that waited for it was read.
    pub(super) recovered_at: Option<Timestamp>,
    /// Whether the log says that the endpoint fails.
    pub(super) is_logged_failing: bool,
    /// Ordinals that are here, or have a change that is not written yet.
    pub(super) known: HashSet<i64>,
    pub(super) changes: Vec<Change>,
    resources: HashMap<Uuid, Resource>,
    /// Resources whose first delivery may be attempted.
    ready: VecDeque<Uuid>,
    under_way: usize,
}

impl Queue {
    pub(super) fn new(platform: Arc<Platform>, signer: Arc<Signer>, revision: i64) -> Self {
        Self {
            platform,
            signer,
            revision,
            is_gone: false,
            has_more: false,
            is_current: false,
            pace: Pace::new(),
            recovered_at: None,
            is_logged_failing: false,
            known: HashSet::new(),
            changes: Vec::new(),
            resources: HashMap::new(),
            ready: VecDeque::new(),
            under_way: 0,
        }
    }

    /// How many deliveries to read: those that are known come again.
    pub(super) fn reads(&self, now: Timestamp) -> Option<usize> {
        let is_open = self.is_gone || !self.pace.is_paused(now);
        (is_open && self.known.len() < LOADED_ENOUGH).then(|| self.known.len() + READ_MAX)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether a step has something to write or to read.
    pub(super) fn is_busy(&self) -> bool {
        let is_idle = self.under_way == 0 && !self.changes.is_empty();
        let is_low = self.has_more && self.known.len() < LOADED_ENOUGH;
        is_idle || is_low || self.changes.len() >= CHANGES_ENOUGH
    }

    fn change(&mut self, delivery: &Delivery, what: What, at: Timestamp) {
        // The table alone knows of it once this is written, and those behind it wait for it.
        let is_later = match &what {
            What::Happened(delivery::Event::Failed(..)) | What::Rescheduled(_) => true,
            What::Happened(_) => false,
        };
        self.is_current &= !is_later;
        let draft = delivery.draft();
        let (platform, id, ordinal, resource) =
            (draft.platform, draft.id, draft.ordinal, draft.resource);
        self.known.insert(ordinal);
        self.resources.entry(resource).or_default().unwritten += 1;
        let gone_at = None;
        self.changes.push(Change { platform, id, what, at, gone_at, ordinal, resource });
    }

    fn give_up(&mut self, delivery: &Delivery, now: Timestamp) {
        let event = match delivery.draft().plan {
            // Its server has died, or the deadline came first: the payment is decided by now.
            Plan::Asked => delivery::Event::Superseded,
            Plan::Retried | Plan::Once => delivery::Event::GivenUp(None),
        };
        self.change(delivery, What::Happened(event), now);
    }

    /// Takes a delivery that was committed. Whether it could: if not, the tables are to be read.
    pub(super) fn take(
        &mut self,
        delivery: Delivery,
        event: Event,
        revision: i64,
        now: Timestamp,
    ) -> bool {
        self.is_current &= revision == self.revision && self.known.len() < TAKEN_MAX;
        if self.is_current {
            let event = Some(event);
            self.accept(vec![DueDelivery { delivery, predecessor: None, event }], now);
        }
        self.is_current
    }

    /// Takes deliveries that were read, in the order in which they are due. Whether one of them is
    /// to be attempted.
    pub(super) fn accept(&mut self, due: Vec<DueDelivery>, now: Timestamp) -> bool {
        let mut is_any_attempted = false;
        for DueDelivery { delivery, predecessor, event } in due {
            let draft = *delivery.draft();
            if self.known.contains(&draft.ordinal) {
                continue;
            }
            if self.is_gone || draft.plan == Plan::Asked {
                self.give_up(&delivery, now);
                continue;
            }
            let resource = self.resources.entry(draft.resource).or_default();
            let later = match predecessor {
                None => None,
                Some((before, _)) if self.known.contains(&before) => resource.postponed_to,
                Some((_, due_at)) => resource.postponed_to.max(Some(due_at)),
            };
            if let Some(later) = later {
                resource.postponed_to = Some(later);
                self.change(&delivery, What::Rescheduled(later), now);
                continue;
            }
            self.known.insert(draft.ordinal);
            let place = resource.waiting.partition_point(|it| it.ordinal() < draft.ordinal);
            resource.waiting.insert(place, Loaded { delivery, event: event.map(Arc::new) });
            if !resource.is_under_way {
                self.ready.push_back(draft.resource);
            }
            is_any_attempted = true;
        }
        is_any_attempted
    }

    /// The next delivery that may be attempted now; it is under way from then on.
    pub(super) fn next(&mut self, schedule: &Schedule, now: Timestamp) -> Option<Loaded> {
        while !self.is_gone && !self.pace.is_paused(now) && self.under_way < self.pace.window() {
            let id = self.ready.pop_front()?;
            let Some(resource) = self.resources.get_mut(&id) else { continue };
            if resource.is_under_way {
                continue;
            }
            let Some(first) = resource.waiting.pop_front() else { continue };
            if first.event.is_none() {
                let delivery = first.delivery.id();
                tracing::error!(%delivery, "an event that is to be delivered cannot be read");
            }
            if first.event.is_none() || first.delivery.is_over(schedule, now) {
                self.give_up(&first.delivery, now);
                self.ready.push_back(id);
                continue;
            }
            resource.is_under_way = true;
            self.under_way += 1;
            return Some(first);
        }
        None
    }

    /// An attempt has ended.
    pub(super) fn ended(
        &mut self,
        ended: Ended,
        schedule: &Schedule,
        now: Timestamp,
    ) -> Option<Verdict> {
        let Ended { loaded, endpoint, attempted, .. } = ended;
        let id = loaded.delivery.draft().resource;
        self.under_way -= 1;
        self.ready.push_back(id);
        let resource = self.resources.entry(id).or_default();
        resource.is_under_way = false;
        let Some(Attempted { attempt, retry_after, random }) = attempted else {
            self.give_up(&loaded.delivery, now);
            return None;
        };
        let verdict = attempt.verdict(loaded.delivery.draft().plan);
        if verdict == Verdict::Gone && endpoint != self.platform.webhook_endpoint {
            // A former address says nothing about the one that is set now.
            resource.waiting.push_front(loaded);
            return None;
        }
        match verdict {
            Verdict::Received => {
                if self.pace.is_failing() {
                    self.recovered_at = Some(now);
                }
                self.pace.succeeded();
            }
            Verdict::Failed => self.pace.failed(schedule, random, retry_after, now),
            Verdict::Gone => {
                let platform = self.platform.id;
                tracing::warn!(%platform, "webhook endpoint is gone (410)");
            }
        }
        let failures = loaded.delivery.progress().failures.saturating_add(1);
        let pause = schedule.pause_asked(failures, random, retry_after);
        let event = loaded.delivery.after(attempt, schedule, pause, now);
        let retried_at = match &event {
            delivery::Event::Failed(_, due_at) => Some(*due_at),
            delivery::Event::Received(_)
            | delivery::Event::GivenUp(_)
            | delivery::Event::Superseded
            | delivery::Event::SentAgain => None,
        };
        self.change(&loaded.delivery, What::Happened(event), now);
        if let Some(due_at) = retried_at {
            self.postpone(id, due_at, now);
        }
        if verdict == Verdict::Gone {
            self.close();
            if let Some(change) = self.changes.last_mut() {
                change.gone_at = Some(self.revision);
            }
        }
        Some(verdict)
    }

    /// Reschedules everything behind a delivery that is attempted again later.
    fn postpone(&mut self, id: Uuid, due_at: Timestamp, now: Timestamp) {
        let resource = self.resources.entry(id).or_default();
        resource.postponed_to = resource.postponed_to.max(Some(due_at));
        for Loaded { delivery, .. } in std::mem::take(&mut resource.waiting) {
            self.change(&delivery, What::Rescheduled(due_at), now);
        }
    }

    /// Drops everything that waits: the endpoint wants nothing any more.
    pub(super) fn close(&mut self) {
        (self.is_gone, self.is_current) = (true, false);
        self.ready.clear();
        for resource in self.resources.values_mut() {
            for loaded in std::mem::take(&mut resource.waiting) {
                self.known.remove(&loaded.ordinal());
            }
        }
        self.resources.retain(|_, resource| resource.is_under_way || resource.unwritten > 0);
    }

    /// The endpoint was set, or a client wants something to be sent: it is attempted at once.
    pub(super) fn changed(&mut self, platform: Arc<Platform>, signer: Arc<Signer>, revision: i64) {
        (self.platform, self.signer, self.revision) = (platform, signer, revision);
        (self.is_gone, self.is_current) = (false, false);
        (self.pace, self.recovered_at) = (Pace::new(), None);
    }

    /// Forgets a change that was written.
    pub(super) fn written(&mut self, change: &Change) {
        self.known.remove(&change.ordinal);
        let Some(resource) = self.resources.get_mut(&change.resource) else { return };
        resource.unwritten -= 1;
        if resource.unwritten == 0 {
            resource.postponed_to = None;
            if resource.waiting.is_empty() && !resource.is_under_way {
                self.resources.remove(&change.resource);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::clock::Ahead;
    use domain::delivery::{Draft, Outcome, Status};
    use domain::event::{EventKind, event_id};
    use domain::platform::{BasisPoints, Mode};
    use domain::signing::Generations;
    use domain::uma_address::UmaDomain;
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn platform() -> Platform {
        Platform {
            id: PlatformId::from_uuid(Uuid::from_u128(1)),
            name: "test".to_owned(),
            mode: Mode::Live,
            uma_domain: UmaDomain::parse("uma.test").expect("a domain"),
            proxy_uma_subdomain: "test".to_owned(),
            webhook_endpoint: Some("https://hooks.test/".to_owned()),
            event_names: domain::event::EventNames::Plain,
            is_regulated: true,
            currencies: Vec::new(),
            corridors: Vec::new(),
            manager_tokens: 1,
            ahead: Ahead::NONE,
            signing: Generations::FIRST,
            uma_keys: Generations::FIRST,
            rail_settings: None,
            cost_drift_max: BasisPoints::DRIFT,
            created_at: NOW,
            updated_at: NOW,
        }
    }

    fn queue() -> Queue {
        let secret = format!("whsec_{}=", "A".repeat(43));
        let signer = Signer::with_secret(&secret, || [1; 32]).expect("a secret");
        Queue::new(Arc::new(platform()), Arc::new(signer), 1)
    }

    fn event(resource: u128, number: u32) -> Event {
        let resource = Uuid::from_u128(resource);
        Event {
            id: event_id(resource, number),
            platform: platform().id,
            kind: EventKind::OutgoingPayment,
            resource,
            number,
            at: NOW,
            body: Vec::new(),
        }
    }

    fn due(ordinal: u32) -> DueDelivery {
        let event = event(ordinal.into(), 1);
        let draft = Draft::new(&event, ordinal.into(), Plan::Retried);
        let delivery = Delivery::pending(draft, NOW);
        DueDelivery { delivery, predecessor: None, event: Some(event) }
    }

    fn ended(queue: &Queue, loaded: Loaded, status: u16, retry_after: Option<i64>) -> Ended {
        let outcome = Outcome::Answered { status, body: Vec::new() };
        let attempt = Attempt { at: NOW, millis: 1, peer: None, outcome };
        let (platform, endpoint) = (queue.platform.id, queue.platform.webhook_endpoint.clone());
        let attempted = Some(Attempted { attempt, retry_after, random: 0 });
        Ended { platform, loaded, endpoint, attempted }
    }

    #[test]
    fn an_endpoint_that_wants_to_be_left_alone_is_whatever_it_receives_meanwhile() {
        let (mut queue, schedule) = (queue(), Schedule::USUAL);
        queue.accept((1..=3).map(due).collect(), NOW);
        let [slow, quick] = [(), ()].map(|()| queue.next(&schedule, NOW).expect("it is due"));
        let too_many = ended(&queue, quick, 429, Some(120_000));
        queue.ended(too_many, &schedule, NOW);
        let received = ended(&queue, slow, 200, None);
        assert_eq!(queue.ended(received, &schedule, NOW), Some(Verdict::Received));
        let until = NOW.plus_millis(120_000);
        assert!(queue.next(&schedule, until.plus_millis(-1)).is_none());
        assert_eq!(queue.pace.paused_until(), Some(until));
        assert!(queue.next(&schedule, until).is_some());
    }

    #[test]
    fn only_the_address_that_is_set_can_be_gone() {
        for is_former in [true, false] {
            let (mut queue, schedule) = (queue(), Schedule::USUAL);
            queue.accept(vec![due(1)], NOW);
            let loaded = queue.next(&schedule, NOW).expect("it is due");
            let gone = ended(&queue, loaded, 410, None);
            if is_former {
                let webhook_endpoint = Some("https://new.test/".to_owned());
                queue.platform = Arc::new(Platform { webhook_endpoint, ..platform() });
            }
            let verdict = queue.ended(gone, &schedule, NOW);
            assert_eq!(verdict, (!is_former).then_some(Verdict::Gone));
            assert_eq!((queue.is_gone, !queue.changes.is_empty()), (!is_former, !is_former));
            assert_eq!(queue.next(&schedule, NOW).is_some(), is_former);
        }
    }

    #[test]
    fn an_approval_request_that_is_due_is_superseded() {
        let mut queue = queue();
        let mut asked = due(1);
        let draft = Draft { plan: Plan::Asked, ..*asked.delivery.draft() };
        asked.delivery = Delivery::pending(draft, NOW);
        queue.accept(vec![asked], NOW);
        assert!(queue.next(&Schedule::USUAL, NOW).is_none());
        let [Change { what: What::Happened(event), .. }] = queue.changes.as_slice() else {
            panic!("{:?}", queue.changes)
        };
        assert_eq!(*event, delivery::Event::Superseded);
    }

    /// The table, as far as the queue depends on it.
    struct Table(Vec<(Delivery, Event)>);

    impl Table {
        fn pending(&self, resource: Uuid) -> impl Iterator<Item = &Delivery> {
            let all = self.0.iter().map(|(delivery, _)| delivery);
            all.filter(move |it| it.draft().resource == resource && it.status() == Status::Pending)
        }

        fn due(&self, now: Timestamp, limit: usize) -> Vec<DueDelivery> {
            let is_due = |it: &Delivery| it.progress().due_at.is_some_and(|at| at <= now);
            let mut rows: Vec<_> = self.0.iter().filter(|(it, _)| is_due(it)).collect();
            rows.sort_by_key(|(it, _)| (it.progress().due_at, it.draft().ordinal));
            let row = |(delivery, event): &(Delivery, Event)| {
                let draft = delivery.draft();
                let before = self.pending(draft.resource);
                let before = before.filter(|before| before.draft().ordinal < draft.ordinal);
                let predecessor = before.max_by_key(|before| before.draft().ordinal);
                let predecessor = predecessor
                    .and_then(|before| Some((before.draft().ordinal, before.progress().due_at?)));
                let (delivery, event) = (delivery.clone(), Some(event.clone()));
                DueDelivery { delivery, predecessor, event }
            };
            rows.into_iter().take(limit).map(row).collect()
        }

        fn row(&mut self, ordinal: i64) -> &mut Delivery {
            let row = self.0.iter_mut().find(|(it, _)| it.draft().ordinal == ordinal);
            &mut row.expect("a row").0
        }

        fn write(&mut self, changes: &[Change]) {
            for Change { ordinal, what, at, .. } in changes {
                let row = self.row(*ordinal);
                *row = match what {
                    What::Happened(event) => {
                        let moved = row.clone().apply(event.clone(), *at).expect("it is pending");
                        moved.into_now()
                    }
                    What::Rescheduled(due_at) => row.clone().rescheduled(*due_at),
                };
            }
        }
    }

    proptest! {
        /// Whatever fails, comes late or is read in small parts: each resource gets its events in
        /// their order, and all of them.
        #[test]
        fn every_event_arrives_in_the_order_of_its_resource(
            events in prop::collection::vec(0..4_u128, 1..40),
            mut chances in prop::collection::vec(any::<u8>(), 1..400),
            limit in 1..6_usize,
        ) {
            let mut number = 0;
            let rows = events.iter().map(|resource| {
                number += 1;
                let event = event(*resource, number);
                let draft = Draft::new(&event, number.into(), Plan::Retried);
                // Clocks can go back a little.
                let at = NOW.plus_millis(i64::from(number % 3));
                (Delivery::pending(draft, at), event)
            });
            let mut table = Table(rows.collect());
            let (mut queue, mut now, schedule) = (queue(), NOW, Schedule::USUAL);
            let (mut under_way, mut arrived) = (Vec::new(), Vec::new());
            for _ in 0..10_000 {
                let chance = chances.pop().unwrap_or(0);
                if chance % 3 == 0 {
                    let changes = std::mem::take(&mut queue.changes);
                    table.write(&changes);
                    changes.iter().for_each(|change| queue.written(change));
                    now = now.plus_millis(500);
                    if queue.reads(now).is_some() {
                        let known = table.due(now, queue.known.len() + limit);
                        queue.accept(known, now);
                    }
                }
                while let Some(loaded) = queue.next(&schedule, now) {
                    under_way.push(loaded);
                }
                if !under_way.is_empty() {
                    let place = usize::from(chance) % under_way.len();
                    let loaded: Loaded = under_way.swap_remove(place);
                    let is_received = chance % 4 != 1;
                    if is_received {
                        let draft = loaded.delivery.draft();
                        arrived.push((draft.resource, draft.ordinal));
                    }
                    let ended = ended(&queue, loaded, if is_received { 200 } else { 500 }, None);
                    queue.ended(ended, &schedule, now);
                }
                if table.0.iter().all(|(it, _)| it.status() == Status::Delivered) {
                    break;
                }
            }
            prop_assert_eq!(arrived.len(), events.len());
            for resource in 0..4 {
                let of: Vec<_> = arrived.iter().filter(|it| it.0.as_u128() == resource).collect();
                prop_assert!(of.is_sorted(), "{arrived:?}");
            }
        }
    }
}
