//! What waits to be delivered to one endpoint, and how hard it is knocked at.
//!
//! Deliveries about one resource stand in a line, and only the first of a line is attempted: a
//! later status never overtakes an earlier one. Lines do not wait for each other.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use domain::delivery::{Delivery, Schedule, Status};
use domain::event::Event;
use domain::id::DeliveryId;
use domain::platform::Platform;
use domain::time::Timestamp;
use uuid::Uuid;

use crate::webhooks::signature::Signer;

/// Attempts at one endpoint at a time, at most: enough to fill a fast one, and few enough that one
/// that hangs does not use up the files of this process.
const WINDOW_MAX: usize = 64;

/// Attempts at a time at an endpoint that is not known yet.
const WINDOW_FIRST: usize = 8;

/// Failures in a row after which an endpoint is only asked now and then whether it is back.
const BROKEN_AFTER: u32 = 5;

/// Deliveries of one platform that are kept in memory, a few hundred bytes each. The rest waits in
/// the database.
pub(super) const LOADED_MAX: usize = 32_768;

/// Events whose bytes are kept with them. Those of the rest are read again when it is their turn.
const BODIES_MAX: usize = 2_048;

/// How often it is looked for what has waited for too long, in milliseconds.
const EXPIRY_MILLIS: i64 = 60_000;

/// Deliveries that are given up in one step.
const GIVEN_UP_MAX: usize = 512;

/// A delivery that waits.
#[derive(Debug)]
struct Waiting {
    id: DeliveryId,
    ordinal: i64,
    since: Timestamp,
    due_at: Timestamp,
    event: Option<Arc<Event>>,
}

/// A delivery whose turn it is.
#[derive(Debug)]
pub(super) struct Turn {
    /// The delivery.
    pub(super) id: DeliveryId,
    /// What its event is about.
    pub(super) resource: Uuid,
    /// The place of its event among all of the platform's.
    pub(super) ordinal: i64,
    /// The event, if it is still in memory.
    pub(super) event: Option<Arc<Event>>,
}

/// What one endpoint is to have.
pub(super) struct Queue {
    /// Whose it is, as it was when this was loaded.
    pub(super) platform: Arc<Platform>,
    /// Signs for it.
    pub(super) signer: Arc<Signer>,
    /// Whether the endpoint wants nothing any more.
    pub(super) is_gone: bool,
    /// Whether the database has more that waits than is here.
    pub(super) has_more: bool,
    lines: HashMap<Uuid, VecDeque<Waiting>>,
    /// The first of each line that is not under way, by when it is due.
    due: BTreeSet<(Timestamp, i64, Uuid)>,
    /// When everything that waits happened, by its number.
    waiting: BTreeMap<i64, Timestamp>,
    under_way: HashSet<Uuid>,
    bodies: usize,
    /// Deliveries that nobody makes any more.
    abandoned: Vec<DeliveryId>,
    window: usize,
    failures: u32,
    paused_until: Option<Timestamp>,
    looked_for_expired: Timestamp,
}

impl Queue {
    pub(super) fn new(platform: Arc<Platform>, signer: Arc<Signer>, now: Timestamp) -> Self {
        Self {
            platform,
            signer,
            is_gone: false,
            has_more: false,
            lines: HashMap::new(),
            due: BTreeSet::new(),
            waiting: BTreeMap::new(),
            under_way: HashSet::new(),
            bodies: 0,
            abandoned: Vec::new(),
            window: WINDOW_FIRST,
            failures: 0,
            paused_until: None,
            looked_for_expired: now,
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether what was loaded is done and the database has more.
    pub(super) fn is_short(&self) -> bool {
        self.has_more && self.waiting.is_empty()
    }

    /// When the oldest that waits happened.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.waiting.first_key_value().map(|(_, at)| *at)
    }

    /// Has a delivery given up with the next step.
    pub(super) fn abandon(&mut self, id: DeliveryId) {
        self.abandoned.push(id);
    }

    /// Whether there is room for more.
    pub(super) fn has_room(&self) -> bool {
        !self.is_gone && !self.has_more && self.len() < LOADED_MAX
    }

    /// Forgets what waits, to be loaded again. What is under way stays so. The endpoint is given
    /// another chance at once: whoever changed something has reason to believe in it.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.due.clear();
        self.waiting.clear();
        self.bodies = 0;
        self.failures = 0;
        self.paused_until = None;
    }

    /// Puts a delivery at the end of its line. Those of a line come in the order of their numbers.
    pub(super) fn push(&mut self, delivery: &Delivery, event: Option<Event>) {
        let (draft, progress) = (delivery.draft(), delivery.progress());
        let Some(due_at) = progress.due_at else { return };
        let event = event.filter(|_| self.bodies < BODIES_MAX).map(Arc::new);
        self.bodies += usize::from(event.is_some());
        let waiting =
            Waiting { id: draft.id, ordinal: draft.ordinal, since: progress.since, due_at, event };
        self.waiting.insert(draft.ordinal, draft.id.created_at());
        let line = self.lines.entry(draft.resource).or_default();
        if line.is_empty() && !self.under_way.contains(&draft.resource) {
            self.due.insert((due_at, draft.ordinal, draft.resource));
        }
        line.push_back(waiting);
    }

    /// The next delivery that may be attempted now; it is under way from then on.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<Turn> {
        let is_paused = self.paused_until.is_some_and(|until| now < until);
        if self.is_gone || is_paused || self.under_way.len() >= self.window() {
            return None;
        }
        let first = *self.due.first().filter(|(due_at, ..)| *due_at <= now)?;
        self.due.remove(&first);
        let resource = first.2;
        let waiting = self.lines.get_mut(&resource)?.front_mut()?;
        self.under_way.insert(resource);
        let event = waiting.event.take();
        self.bodies -= usize::from(event.is_some());
        Some(Turn { id: waiting.id, resource, ordinal: waiting.ordinal, event })
    }

    fn window(&self) -> usize {
        if self.failures >= BROKEN_AFTER { 1 } else { self.window }
    }

    /// When there may be something to do, if nothing happens before.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        if self.is_gone {
            return None;
        }
        let (due_at, ..) = self.due.first()?;
        if self.under_way.len() >= self.window() {
            return None;
        }
        Some(self.paused_until.map_or(*due_at, |until| until.max(*due_at)))
    }

    /// An attempt was received.
    pub(super) fn succeeded(&mut self, now: Timestamp) {
        let was_broken = self.failures >= BROKEN_AFTER;
        self.failures = 0;
        self.paused_until = None;
        self.window = (self.window + 1).min(WINDOW_MAX);
        if was_broken {
            // What waited for an endpoint that was away waits no longer.
            let firsts: Vec<_> = self.due.iter().copied().collect();
            self.due =
                firsts.into_iter().map(|(at, number, it)| (at.min(now), number, it)).collect();
        }
    }

    /// An attempt failed. `asked` is how long the endpoint wants to be left alone, in milliseconds.
    pub(super) fn failed(
        &mut self,
        schedule: &Schedule,
        random: u64,
        asked: Option<i64>,
        now: Timestamp,
    ) {
        self.failures = self.failures.saturating_add(1);
        self.window = (self.window / 2).max(1);
        let pause = match self.failures.checked_sub(BROKEN_AFTER) {
            Some(more) => Some(schedule.pause_asked(more + 1, random, asked)),
            None => asked.map(|_| schedule.pause_asked(1, random, asked)),
        };
        if let Some(pause) = pause {
            let until = now.plus_millis(pause);
            self.paused_until = Some(self.paused_until.map_or(until, |known| known.max(until)));
        }
    }

    /// What became of the delivery that was under way for a resource.
    pub(super) fn finished(&mut self, resource: Uuid, id: DeliveryId, now: Option<&Delivery>) {
        self.under_way.remove(&resource);
        let Some(line) = self.lines.get_mut(&resource) else { return };
        if line.front().is_some_and(|first| first.id == id) {
            let due_at = now
                .filter(|delivery| delivery.status() == Status::Pending)
                .and_then(|delivery| delivery.progress().due_at);
            match (due_at, line.front_mut()) {
                (Some(due_at), Some(first)) => first.due_at = due_at,
                (None, _) | (_, None) => {
                    if let Some(done) = line.pop_front() {
                        self.waiting.remove(&done.ordinal);
                        self.bodies -= usize::from(done.event.is_some());
                    }
                }
            }
        }
        match line.front() {
            Some(first) => {
                self.due.insert((first.due_at, first.ordinal, resource));
            }
            None => {
                self.lines.remove(&resource);
            }
        }
    }

    /// Some deliveries that are to be given up: all of an endpoint that is gone, else those whose
    /// time is over. They are forgotten here.
    pub(super) fn give_up(&mut self, schedule: &Schedule, now: Timestamp) -> Vec<DeliveryId> {
        let abandoned = std::mem::take(&mut self.abandoned);
        if !self.is_gone && now < self.looked_for_expired.plus_millis(EXPIRY_MILLIS) {
            return abandoned;
        }
        let is_over = |waiting: &Waiting| {
            self.is_gone || now >= waiting.since.plus_millis(schedule.horizon_millis)
        };
        let is_free = |resource: &Uuid| !self.under_way.contains(resource);
        let over = self.lines.iter().filter(|(resource, _)| is_free(resource));
        let over: Vec<_> = over
            .filter_map(|(resource, line)| {
                Some((*resource, line.front().filter(|it| is_over(it))?.id))
            })
            .take(GIVEN_UP_MAX)
            .collect();
        if over.len() < GIVEN_UP_MAX {
            self.looked_for_expired = now;
        }
        let lines: HashSet<_> = over.iter().map(|(resource, _)| *resource).collect();
        self.due.retain(|(.., resource)| !lines.contains(resource));
        let over = over.into_iter().map(|(resource, id)| {
            self.finished(resource, id, None);
            id
        });
        abandoned.into_iter().chain(over).collect()
    }
}
