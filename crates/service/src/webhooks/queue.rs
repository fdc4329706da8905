//! What waits to be delivered to one endpoint, and how hard it is knocked at.
//!
//! Deliveries about one resource stand in a line, and only the first of a line is attempted: a
//! later status never overtakes an earlier one. Lines do not wait for each other.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use domain::delivery::{Delivery, Plan, Schedule, Status, Verdict};
use domain::event::Event;
use domain::id::{DeliveryId, PlatformId};
use domain::platform::Platform;
use domain::time::Timestamp;
use uuid::Uuid;

use crate::webhooks::signature::Signer;
use crate::webhooks::unkept::{Attempted, Change, Unkept};

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

/// Events that are taken on at once.
pub(super) const TAKEN_MAX: usize = 256;

/// Deliveries of lines that move, with which there is no need to take more on: some for each
/// attempt of the widest window. An endpoint that hangs has no more of them than this and what is
/// taken on at once; its other events wait where they are, and cost nothing.
const MOVING_ENOUGH: usize = 256;

/// Events whose bytes are kept with them. Those of the rest are read again when it is their turn.
const BODIES_MAX: usize = 2_048;

/// How often it is looked for what has waited for too long, in milliseconds.
const EXPIRY_MILLIS: i64 = 60_000;

/// Deliveries that are given up in one step.
const GIVEN_UP_MAX: usize = 512;

/// A delivery that waits.
#[derive(Debug)]
struct Waiting {
    /// Without its attempts.
    delivery: Delivery,
    event: Option<Arc<Event>>,
}

impl Waiting {
    /// When the next attempt is due.
    fn due_at(&self) -> Timestamp {
        let progress = self.delivery.progress();
        progress.due_at.unwrap_or(progress.since)
    }

    fn ordinal(&self) -> i64 {
        self.delivery.draft().ordinal
    }
}

/// Deliveries about one resource.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    /// Whether the first has failed, and the others wait for its next attempt.
    is_held: bool,
}

/// A delivery whose turn it is.
#[derive(Debug)]
pub(super) struct Turn {
    /// The delivery.
    pub(super) id: DeliveryId,
    /// The place of its event.
    pub(super) ordinal: i64,
    /// What its event is about.
    pub(super) resource: Uuid,
    /// The event, if it is still in memory.
    pub(super) event: Option<Arc<Event>>,
}

/// A turn that has ended.
pub(super) struct Made {
    /// Whose it was.
    pub(super) platform: PlatformId,
    pub(super) id: DeliveryId,
    pub(super) ordinal: i64,
    pub(super) resource: Uuid,
    /// What came of the attempt; nothing if none could be made, as the event cannot be read.
    pub(super) attempted: Option<Attempted>,
}

impl Made {
    /// What is known before the attempt has been made.
    pub(super) fn nothing(platform: PlatformId, turn: &Turn) -> Self {
        let Turn { id, ordinal, resource, .. } = *turn;
        Self { platform, id, ordinal, resource, attempted: None }
    }
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
    /// The number of the platform's last event, as far as is known.
    pub(super) head: i64,
    /// What is still to be kept.
    pub(super) unkept: Unkept,
    lines: HashMap<Uuid, Line>,
    /// Deliveries in lines that are held.
    held: usize,
    /// The first of each line that is not under way, by when it is due.
    due: BTreeSet<(Timestamp, i64, Uuid)>,
    /// When everything that waits happened, by its number.
    waiting: BTreeMap<i64, Timestamp>,
    under_way: HashSet<Uuid>,
    bodies: usize,
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
            head: 0,
            unkept: Unkept::nothing(0),
            lines: HashMap::new(),
            held: 0,
            due: BTreeSet::new(),
            waiting: BTreeMap::new(),
            under_way: HashSet::new(),
            bodies: 0,
            window: WINDOW_FIRST,
            failures: 0,
            paused_until: None,
            looked_for_expired: now,
        }
    }

    /// How many wait here.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many events are still to be taken on.
    pub(super) fn behind(&self) -> i64 {
        if self.is_gone { 0 } else { (self.head - self.unkept.taken()).max(0) }
    }

    /// Whether what was loaded is done and the database has more.
    pub(super) fn is_short(&self) -> bool {
        self.has_more && self.waiting.is_empty()
    }

    /// When the oldest that waits happened.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.waiting.first_key_value().map(|(_, at)| *at)
    }

    /// Whether there are new events, and use and room for them.
    pub(super) fn wants_events(&self) -> bool {
        self.behind() > 0
            && !self.has_more
            && self.len() < LOADED_MAX
            && self.len() - self.held < MOVING_ENOUGH
            && self.unkept.has_room_for(TAKEN_MAX)
    }

    /// Whether no attempt is under way, so that nothing changes soon.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether it is time to keep what is unkept.
    pub(super) fn is_to_be_kept(&self, at: Timestamp) -> bool {
        self.unkept.is_due(at) || (self.is_idle() && !self.unkept.is_empty())
    }

    /// Whether there are more to be given up.
    pub(super) fn gives_up_more(&self) -> bool {
        self.is_gone && !self.due.is_empty()
    }

    /// Forgets what waits, to be loaded again; everything was kept. What is under way stays so. The
    /// endpoint is given another chance at once: whoever changed something has reason to believe in
    /// it.
    pub(super) fn clear(&mut self, taken: i64) {
        self.unkept = Unkept::nothing(taken);
        self.lines.clear();
        self.held = 0;
        self.due.clear();
        self.waiting.clear();
        self.bodies = 0;
        self.failures = 0;
        self.paused_until = None;
    }

    /// Takes a new event on. `at` is by the server's clock.
    pub(super) fn take(&mut self, delivery: Delivery, event: Event, at: Timestamp) {
        self.unkept.add(delivery.clone(), at);
        self.push(delivery, Some(event));
    }

    /// Puts a delivery that waits at the end of its line. They come in the order of their numbers.
    pub(super) fn push(&mut self, delivery: Delivery, event: Option<Event>) {
        let event = event.filter(|_| self.bodies < BODIES_MAX).map(Arc::new);
        self.bodies += usize::from(event.is_some());
        let (resource, failures) = (delivery.draft().resource, delivery.progress().failures);
        let created_at = delivery.id().created_at();
        let waiting = Waiting { delivery: delivery.outline(), event };
        self.waiting.insert(waiting.ordinal(), created_at);
        let line = self.lines.entry(resource).or_default();
        if line.waiting.is_empty() {
            line.is_held = failures > 0;
            if !self.under_way.contains(&resource) {
                self.due.insert((waiting.due_at(), waiting.ordinal(), resource));
            }
        }
        self.held += usize::from(line.is_held);
        line.waiting.push_back(waiting);
    }

    /// The next delivery that may be attempted now; it is under way from then on.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<Turn> {
        let is_paused = self.paused_until.is_some_and(|until| now < until);
        if self.is_gone || is_paused || self.is_full() {
            return None;
        }
        let first = *self.due.first().filter(|(due_at, ..)| *due_at <= now)?;
        self.due.remove(&first);
        let resource = first.2;
        let waiting = self.lines.get_mut(&resource)?.waiting.front_mut()?;
        self.under_way.insert(resource);
        let event = waiting.event.take();
        self.bodies -= usize::from(event.is_some());
        let draft = waiting.delivery.draft();
        Some(Turn { id: draft.id, ordinal: draft.ordinal, resource, event })
    }

    fn window(&self) -> usize {
        if self.failures >= BROKEN_AFTER { 1 } else { self.window }
    }

    /// Whether no more attempts are made for now.
    fn is_full(&self) -> bool {
        let under_way = self.under_way.len();
        under_way >= self.window() || !self.unkept.can_attempt(under_way)
    }

    /// When there may be something to do, if nothing happens before.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        if self.is_gone || self.is_full() {
            return None;
        }
        let (due_at, ..) = self.due.first()?;
        Some(self.paused_until.map_or(*due_at, |until| until.max(*due_at)))
    }

    /// An attempt has ended: what that says about the endpoint, and about the delivery. `at` is by
    /// the server's clock.
    pub(super) fn ended(
        &mut self,
        made: Made,
        schedule: &Schedule,
        now: Timestamp,
        at: Timestamp,
    ) -> Option<Verdict> {
        let Made { id, ordinal, resource, attempted, .. } = made;
        let verdict = attempted.as_ref().map(|attempted| self.heard(attempted, schedule, now));
        let change = Change { id, ordinal, attempted, at: now };
        self.under_way.remove(&resource);
        let first = self.lines.get_mut(&resource).and_then(|line| line.waiting.front_mut());
        let mut is_done = false;
        if let Some(first) = first.filter(|first| first.delivery.id() == id) {
            let event = change.event(&first.delivery, schedule);
            if let Ok(moved) = first.delivery.clone().apply(event, now) {
                first.delivery = moved.into_now().outline();
            }
            is_done = first.delivery.status() != Status::Pending;
        }
        self.go_on(resource, is_done);
        self.unkept.happened(change, at);
        verdict
    }

    /// Learns what an attempt says about the endpoint.
    fn heard(&mut self, attempted: &Attempted, schedule: &Schedule, now: Timestamp) -> Verdict {
        let Attempted { attempt, retry_after, random } = attempted;
        let verdict = attempt.verdict(Plan::Retried);
        match verdict {
            Verdict::Received => self.succeeded(now),
            Verdict::Gone => {
                tracing::warn!(platform = %self.platform.id, "the webhook endpoint is gone (410)");
                self.is_gone = true;
                self.unkept.went();
            }
            Verdict::Failed => self.failed(schedule, *random, *retry_after, now),
        }
        verdict
    }

    /// An attempt was received.
    fn succeeded(&mut self, now: Timestamp) {
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
    fn failed(&mut self, schedule: &Schedule, random: u64, asked: Option<i64>, now: Timestamp) {
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

    /// Has a line go on, with the one behind the first if that is done.
    fn go_on(&mut self, resource: Uuid, is_done: bool) {
        let Some(line) = self.lines.get_mut(&resource) else { return };
        if line.is_held {
            self.held -= line.waiting.len();
        }
        if is_done && let Some(done) = line.waiting.pop_front() {
            self.waiting.remove(&done.ordinal());
            self.bodies -= usize::from(done.event.is_some());
        }
        let Some(first) = line.waiting.front() else {
            self.lines.remove(&resource);
            return;
        };
        self.due.insert((first.due_at(), first.ordinal(), resource));
        line.is_held = first.delivery.progress().failures > 0;
        if line.is_held {
            self.held += line.waiting.len();
        }
    }

    /// Gives up some deliveries: all of an endpoint that is gone, else those whose time is over.
    /// `at` is by the server's clock.
    pub(super) fn give_up(&mut self, schedule: &Schedule, now: Timestamp, at: Timestamp) {
        if !self.is_gone && now < self.looked_for_expired.plus_millis(EXPIRY_MILLIS) {
            return;
        }
        let is_over = |it: &Waiting| self.is_gone || it.delivery.is_over(schedule, now);
        let is_free = |resource: &Uuid| !self.under_way.contains(resource);
        let over = self.lines.iter().filter(|(resource, _)| is_free(resource));
        let over: Vec<_> = over
            .filter_map(|(resource, line)| {
                let first = line.waiting.front().filter(|it| is_over(it))?;
                Some((*resource, first.delivery.id(), first.ordinal()))
            })
            .take(GIVEN_UP_MAX)
            .collect();
        if over.len() < GIVEN_UP_MAX {
            self.looked_for_expired = now;
        }
        let lines: HashSet<_> = over.iter().map(|(resource, ..)| *resource).collect();
        self.due.retain(|(.., resource)| !lines.contains(resource));
        for (resource, id, ordinal) in over {
            self.go_on(resource, true);
            self.unkept.happened(Change { id, ordinal, attempted: None, at: now }, at);
        }
    }
}
