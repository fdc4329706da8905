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

/// How long a delivery waits whose event could not be read, in milliseconds: the database may be
/// back, and is not asked more often than that for each line.
const LATER_MILLIS: i64 = 1_000;

/// Questions that are remembered until it is known whether whoever asked has died, each a few
/// dozen bytes. What became of others is looked at when the platform's queue is loaded.
const ASKED_MAX: usize = 4_096;

/// Questions are looked at together, at times that are so many milliseconds apart.
const LOOKED_AT_MILLIS: i64 = 10_000;

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
    /// The address that the attempt went to.
    pub(super) endpoint: Option<String>,
    pub(super) came: Came,
}

/// What came of a turn.
pub(super) enum Came {
    /// An attempt was made.
    Attempted(Attempted),
    /// None was made and none ever will be, as the event cannot be read.
    Nothing,
    /// None was made, as the database could not be asked for the event now. Nobody has learned
    /// anything about the endpoint.
    Later,
}

impl Made {
    /// What is known before the attempt has been made.
    pub(super) fn nothing(platform: &Platform, turn: &Turn) -> Self {
        let Turn { id, ordinal, resource, .. } = *turn;
        let endpoint = platform.webhook_endpoint.clone();
        Self { platform: platform.id, id, ordinal, resource, endpoint, came: Came::Nothing }
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
    /// Until when nothing is attempted, as attempts have failed.
    paused_until: Option<Timestamp>,
    /// Until when the endpoint wants to be left alone, whatever it receives meanwhile.
    left_alone_until: Option<Timestamp>,
    looked_for_expired: Timestamp,
    /// Questions that others ask, by when they are forgotten unless something came of them.
    asked: BTreeSet<(Timestamp, DeliveryId)>,
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
            left_alone_until: None,
            looked_for_expired: now,
            asked: BTreeSet::new(),
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
        self.left_alone_until = None;
        self.asked.clear();
    }

    /// Remembers a question that somebody asks, until nobody can still be waiting for its answer.
    pub(super) fn is_asked(&mut self, question: &Delivery) {
        let forgotten_at = question.forgotten_at().filter(|_| self.asked.len() < ASKED_MAX);
        let looked_at = |at: Timestamp| {
            let after = at.millis().rem_euclid(LOOKED_AT_MILLIS);
            at.plus_millis(LOOKED_AT_MILLIS - after)
        };
        self.asked.extend(forgotten_at.map(|at| (looked_at(at), question.id())));
    }

    /// The questions that are forgotten by now, unless something came of them.
    pub(super) fn forgotten(&self, now: Timestamp) -> impl Iterator<Item = DeliveryId> {
        self.asked.iter().take_while(move |(at, _)| *at <= now).map(|(_, id)| *id)
    }

    /// It is known what came of those, and they are not remembered any more.
    pub(super) fn looked_at(&mut self, questions: &BTreeSet<DeliveryId>) {
        self.asked.retain(|(_, id)| !questions.contains(id));
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
        let is_paused = self.paused_until().is_some_and(|until| now < until);
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

    fn paused_until(&self) -> Option<Timestamp> {
        self.paused_until.max(self.left_alone_until)
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
        let forgotten_at = self.asked.first().map(|(at, _)| *at);
        if self.is_gone || self.is_full() {
            return forgotten_at;
        }
        let due_at = self.due.first().map(|(due_at, ..)| *due_at);
        let begins_at = due_at.map(|at| self.paused_until().map_or(at, |until| until.max(at)));
        begins_at.into_iter().chain(forgotten_at).min()
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
        let Made { id, ordinal, resource, endpoint, came, .. } = made;
        self.under_way.remove(&resource);
        let is_former = endpoint != self.platform.webhook_endpoint;
        let came = match came {
            // An address that is not the platform's any more says nothing about the one that is.
            Came::Attempted(it)
                if is_former && it.attempt.verdict(Plan::Retried) == Verdict::Gone =>
            {
                Came::Later
            }
            came => came,
        };
        let attempted = match came {
            Came::Attempted(attempted) => Some(attempted),
            Came::Nothing => None,
            Came::Later => {
                let first = self.lines.get(&resource).and_then(|line| line.waiting.front());
                let later = first.map(|it| (now.plus_millis(LATER_MILLIS), it.ordinal(), resource));
                self.due.extend(later);
                return None;
            }
        };
        let verdict = attempted.as_ref().map(|attempted| self.heard(attempted, schedule, now));
        let change = Change { id, ordinal, attempted, at: now };
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
        let more = self.failures.checked_sub(BROKEN_AFTER);
        let pause = more.map(|more| now.plus_millis(schedule.pause_asked(more + 1, random, asked)));
        self.paused_until = self.paused_until.max(pause);
        let asked = asked.map(|_| now.plus_millis(schedule.pause_asked(1, random, asked)));
        self.left_alone_until = self.left_alone_until.max(asked);
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
            self.unkept.given_up((id, ordinal), now, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::clock::Ahead;
    use domain::delivery::{Attempt, Draft, Outcome};
    use domain::event::{EventKind, event_id};
    use domain::platform::Mode;
    use domain::signing::Generations;
    use domain::uma_address::UmaDomain;

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
            rail_settings: None,
            created_at: NOW,
            updated_at: NOW,
        }
    }

    fn queue() -> Queue {
        let secret = format!("whsec_{}=", "A".repeat(43));
        let signer = Signer::with_secret(&secret, || [1; 32]).expect("a secret");
        Queue::new(Arc::new(platform()), Arc::new(signer), NOW)
    }

    /// A delivery about a resource, the number of which is that of the event.
    fn delivery(number: u32, plan: Plan, at: Timestamp) -> Delivery {
        let resource = Uuid::from_u128(number.into());
        let event = Event {
            id: event_id(resource, 1),
            platform: platform().id,
            kind: EventKind::OutgoingPayment,
            resource,
            number: 1,
            at,
            body: Vec::new(),
        };
        Delivery::pending(Draft::new(&event, number.into(), plan), at)
    }

    #[test]
    fn a_turn_in_which_the_event_could_not_be_read_is_no_attempt() {
        for plan in [Plan::Retried, Plan::Once] {
            let mut queue = queue();
            queue.push(delivery(1, plan, NOW), None);
            let turn = queue.next(NOW).expect("it is due");
            assert!(queue.next(NOW).is_none(), "it is under way");
            let came = Made { came: Came::Later, ..Made::nothing(&queue.platform, &turn) };
            assert_eq!(queue.ended(came, &Schedule::USUAL, NOW, NOW), None);
            let later = NOW.plus_millis(LATER_MILLIS);
            assert_eq!((queue.next_at(), queue.len()), (Some(later), 1));
            assert!(queue.next(later.plus_millis(-1)).is_none());
            assert!(queue.unkept.is_empty(), "nothing has happened to it");
            assert_eq!(queue.next(later).expect("it is due again").id, turn.id);
        }
    }

    fn answered(queue: &Queue, turn: &Turn, status: u16, retry_after: Option<i64>) -> Made {
        let outcome = Outcome::Answered { status, body: Vec::new() };
        let attempt = Attempt { at: NOW, millis: 1, peer: None, outcome };
        let came = Came::Attempted(Attempted { attempt, retry_after, random: 0 });
        Made { came, ..Made::nothing(&queue.platform, turn) }
    }

    #[test]
    fn an_endpoint_that_wants_to_be_left_alone_is_whatever_it_receives_meanwhile() {
        let mut queue = queue();
        (1..=3).for_each(|number| queue.push(delivery(number, Plan::Retried, NOW), None));
        let [slow, quick] = [(), ()].map(|()| queue.next(NOW).expect("it is due"));
        let too_many = answered(&queue, &quick, 429, Some(120_000));
        queue.ended(too_many, &Schedule::USUAL, NOW, NOW);
        let received = answered(&queue, &slow, 200, None);
        assert_eq!(queue.ended(received, &Schedule::USUAL, NOW, NOW), Some(Verdict::Received));
        let until = NOW.plus_millis(120_000);
        assert!(queue.next(until.plus_millis(-1)).is_none());
        assert_eq!(queue.next_at(), Some(until));
        assert!(queue.next(until).is_some());
    }

    #[test]
    fn only_the_address_that_is_set_can_be_gone() {
        for is_former in [true, false] {
            let mut queue = queue();
            queue.push(delivery(1, Plan::Retried, NOW), None);
            let turn = queue.next(NOW).expect("it is due");
            let gone = answered(&queue, &turn, 410, None);
            if is_former {
                let webhook_endpoint = Some("https://new.test/".to_owned());
                queue.platform = Arc::new(Platform { webhook_endpoint, ..platform() });
            }
            let verdict = queue.ended(gone, &Schedule::USUAL, NOW, NOW);
            assert_eq!(verdict, (!is_former).then_some(Verdict::Gone));
            assert_eq!((queue.is_gone, queue.len()), (!is_former, usize::from(is_former)));
        }
    }

    #[test]
    fn questions_are_looked_at_together_once_they_are_forgotten() {
        let mut queue = queue();
        let asked = |number: u32, millis| delivery(number, Plan::Asked, NOW.plus_millis(millis));
        let forgotten_at = asked(1, 0).forgotten_at().expect("a question").millis();
        // Two within the same span, and one in the next.
        let span = LOOKED_AT_MILLIS;
        let first = Timestamp::from_millis((forgotten_at / span + 1) * span);
        let questions = [asked(1, 0), asked(2, 5), asked(3, span)];
        questions.iter().for_each(|question| queue.is_asked(question));
        queue.is_asked(&delivery(4, Plan::Retried, NOW));
        assert_eq!(queue.next_at(), Some(first));
        assert_eq!(queue.forgotten(first.plus_millis(-1)).count(), 0);
        let two: BTreeSet<_> = queue.forgotten(first).collect();
        assert_eq!(two, questions[..2].iter().map(Delivery::id).collect());
        queue.looked_at(&two);
        assert_eq!(queue.next_at(), Some(first.plus_millis(span)));
        (0..10_000).for_each(|number| queue.is_asked(&asked(number, 0)));
        assert_eq!(queue.asked.len(), ASKED_MAX);
        queue.clear(0);
        assert_eq!(queue.next_at(), None);
    }
}
