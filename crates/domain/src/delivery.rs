//! Deliveries of events to a platform's endpoint (contract 7.4; reliability 5.2).
//!
//! A platform has one endpoint, so an event has one delivery, whose id follows from the event's.
//! Decides the meaning of an answer and the time of the next attempt; makes none.

use std::net::IpAddr;

use uuid::{Builder, Uuid};

use crate::event::{self, EventKind};
use crate::id::{DeliveryId, PlatformId};
use crate::time::Timestamp;
use crate::transition::{IllegalTransition, Moved, arrows_of};

/// Status of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Not there yet; it is attempted until it is.
    Pending,
    /// The endpoint has it.
    Delivered,
    /// It is not attempted any more unless a client asks for it.
    Dead,
    /// An approval request that was not sent: its payment was decided before.
    Superseded,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Delivered, Self::Dead, Self::Superseded];

    /// The name that the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Delivered => "DELIVERED",
            Self::Dead => "DEAD",
            Self::Superseded => "SUPERSEDED",
        }
    }

    /// The status with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Where the event leads from this status, if the machine has an arrow for it.
    pub fn after(self, event: &Event) -> Option<Self> {
        arrow(self, event)
    }
}

/// How a delivery is attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Plan {
    /// Until the endpoint has it or the time is over.
    Retried,
    /// Once: a test of the endpoint.
    Once,
    /// Once, as an approval request with a deadline, outside the queues (contract 7.3).
    Asked,
}

impl Plan {
    /// Every plan.
    pub const ALL: [Self; 3] = [Self::Retried, Self::Once, Self::Asked];

    /// The name in storage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retried => "RETRIED",
            Self::Once => "ONCE",
            Self::Asked => "ASKED",
        }
    }

    /// The plan with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plan| plan.name() == name)
    }

    /// The plan for events that are no approval requests.
    pub const fn of(kind: EventKind) -> Self {
        match kind {
            EventKind::Test => Self::Once,
            EventKind::IncomingPayment
            | EventKind::OutgoingPayment
            | EventKind::InvitationClaimed
            | EventKind::KycStatus
            | EventKind::AccountStatus
            | EventKind::BulkUpload => Self::Retried,
        }
    }
}

/// The answer of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It answered.
    Answered {
        /// HTTP status.
        status: u16,
        /// The first bytes of the body, no more than [`ANSWER_MAX`].
        body: Vec<u8>,
    },
    /// The address may not be reached from here, for this reason; nothing was sent.
    Refused(String),
    /// There was no connection, or it broke.
    Unreachable,
    /// It did not answer in time.
    TimedOut,
}

/// After how long an approval request whose server has died is given up, in milliseconds: some
/// times its deadline.
const FORGOTTEN_MILLIS: i64 = 60_000;

/// Bytes of an answer that are kept: enough for an error's message.
pub const ANSWER_MAX: usize = 512;

/// Attempts whose answers are kept. Of earlier ones it is known what they came to: an endpoint
/// that is away for a week is asked hundreds of times and says the same.
pub const ANSWERS_KEPT: usize = 8;

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// When it began.
    pub at: Timestamp,
    /// How long it took, in milliseconds.
    pub millis: u32,
    /// Where the connection went, if there was one.
    pub peer: Option<IpAddr>,
    /// The outcome.
    pub outcome: Outcome,
}

/// The verdict on an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The endpoint has the event, perhaps from before.
    Received,
    /// The endpoint wants no events any more.
    Gone,
    /// It is to be attempted again.
    Failed,
}

impl Attempt {
    /// The verdict: any 2xx is received, 409 says that it was there already, and 410 that nothing
    /// is wanted any more (contract 7.4). An approval request may also be answered by a rejection
    /// or by a request for more data (contract 7.3).
    pub fn verdict(&self, plan: Plan) -> Verdict {
        match (&self.outcome, plan) {
            (Outcome::Answered { status: 200..=299 | 409, .. }, _)
            | (Outcome::Answered { status: 403 | 422, .. }, Plan::Asked) => Verdict::Received,
            (Outcome::Answered { status: 410, .. }, Plan::Retried | Plan::Once) => Verdict::Gone,
            (
                Outcome::Answered { .. }
                | Outcome::Refused(_)
                | Outcome::Unreachable
                | Outcome::TimedOut,
                _,
            ) => Verdict::Failed,
        }
    }
}

/// When failed deliveries are attempted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Milliseconds until the second attempt.
    pub first_millis: i64,
    /// Milliseconds between two attempts at most.
    pub longest_millis: i64,
    /// Milliseconds after which nothing is attempted any more.
    pub duration_max_millis: i64,
}

/// How much longer each pause is than the one before: from a second to half an hour in eight.
const FACTOR: i64 = 3;

/// Pauses differ by this many percent up and down, so that what failed together does not come back
/// together.
const JITTER_PERCENT: i64 = 20;

/// The longest `Retry-After` that is obeyed, in milliseconds: six hours.
const RETRY_AFTER_MAX: i64 = 21_600_000;

impl Schedule {
    /// One second, then three times as long each time, half an hour at most, for a week.
    pub const USUAL: Self =
        Self { first_millis: 1_000, longest_millis: 1_800_000, duration_max_millis: 604_800_000 };

    /// Milliseconds from the `failures`-th failure in a row to the next attempt. `random` spreads
    /// it.
    pub fn pause(&self, failures: u32, random: u64) -> i64 {
        let mut pause = self.first_millis;
        for _ in 1..failures {
            pause = pause.saturating_mul(FACTOR);
            if pause >= self.longest_millis {
                break;
            }
        }
        let pause = pause.min(self.longest_millis);
        let width = pause.saturating_mul(2 * JITTER_PERCENT) / 100;
        let spread = i64::try_from(random % (width.unsigned_abs() + 1)).unwrap_or(0);
        (pause - width / 2 + spread).min(self.longest_millis).max(1)
    }

    /// Milliseconds until the next attempt where the endpoint has said when to come back.
    pub fn pause_asked(&self, failures: u32, random: u64, retry_after: Option<i64>) -> i64 {
        let pause = self.pause(failures, random);
        retry_after.map_or(pause, |asked| pause.max(asked.min(RETRY_AFTER_MAX)))
    }
}

/// Events of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The endpoint has it.
    Received(Attempt),
    /// It does not, and is asked again at this time.
    Failed(Attempt, Timestamp),
    /// It does not, and is not asked again.
    GivenUp(Option<Attempt>),
    /// It is an approval request, and its payment was decided before it was sent.
    Superseded,
    /// A client wants it to be sent again.
    SentAgain,
}

impl Event {
    /// The event's name in documents and refusals.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Received(_) => "received",
            Self::Failed(..) => "failed",
            Self::GivenUp(_) => "given up",
            Self::Superseded => "superseded",
            Self::SentAgain => "sent again",
        }
    }
}

/// The arrows of the machine: the one table that [`Delivery::apply`] and the documents share.
fn arrow(from: Status, event: &Event) -> Option<Status> {
    use Status::{Dead, Delivered, Pending, Superseded};
    match (from, event) {
        (Pending, Event::Received(_)) => Some(Delivered),
        (Pending, Event::Failed(..))
        | (Pending | Delivered | Dead | Superseded, Event::SentAgain) => Some(Pending),
        (Pending, Event::GivenUp(_)) => Some(Dead),
        (Pending, Event::Superseded) => Some(Superseded),
        (
            Delivered | Dead | Superseded,
            Event::Received(_) | Event::Failed(..) | Event::GivenUp(_) | Event::Superseded,
        ) => None,
    }
}

/// Which event is delivered, and to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draft {
    /// System id, see [`delivery_id`].
    pub id: DeliveryId,
    /// The platform that is notified.
    pub platform: PlatformId,
    /// Its subject.
    pub kind: EventKind,
    /// Uuid of the resource that changed.
    pub resource: Uuid,
    /// Number of the change within that resource.
    pub number: u32,
    /// Place of the event among all of the platform's, from 1.
    pub ordinal: i64,
    /// How it is attempted.
    pub plan: Plan,
}

impl Draft {
    /// The delivery of an event that has this place among all of its platform's.
    pub fn new(event: &event::Event, ordinal: i64, plan: Plan) -> Self {
        Self {
            id: delivery_id(event),
            platform: event.platform,
            kind: event.kind,
            resource: event.resource,
            number: event.number,
            ordinal,
            plan,
        }
    }
}

/// The delivery of an event: the event's time, then the event's id, so that deliveries are listed
/// in the order of their events.
pub fn delivery_id(event: &event::Event) -> DeliveryId {
    let mut rest = [0; 10];
    rest.copy_from_slice(&event.id.uuid().as_bytes()[6..]);
    let millis = u64::try_from(event.at.millis()).unwrap_or(0);
    DeliveryId::from_uuid(Builder::from_unix_timestamp_millis(millis, &rest).into_uuid())
}

/// How far a delivery is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The status.
    pub status: Status,
    /// When the first attempt was due, or a client wanted it to be sent again: what the end of the
    /// attempts counts from.
    pub since: Timestamp,
    /// When the next attempt is due, while there is one.
    pub due_at: Option<Timestamp>,
    /// Attempts that failed in a row since then.
    pub failures: u32,
    /// When something happened last.
    pub updated_at: Timestamp,
    /// Every attempt, oldest first.
    pub attempts: Vec<Attempt>,
}

/// A delivery, with a status that only [`Delivery::apply`] changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    draft: Draft,
    progress: Progress,
}

impl Delivery {
    /// A delivery that is due. An approval request is due when it is given up: it is sent by the
    /// server that made it.
    pub fn pending(draft: Draft, now: Timestamp) -> Self {
        let now = now.max(draft.id.created_at());
        let due_at = match draft.plan {
            Plan::Retried | Plan::Once => now,
            Plan::Asked => now.plus_millis(FORGOTTEN_MILLIS),
        };
        let progress = Progress {
            status: Status::Pending,
            since: now,
            due_at: Some(due_at),
            failures: 0,
            updated_at: now,
            attempts: Vec::new(),
        };
        Self { draft, progress }
    }

    /// Puts a stored delivery together again. For the store only. Nothing if its parts do not fit.
    pub fn restore(draft: Draft, progress: Progress) -> Option<Self> {
        let is_pending = progress.status == Status::Pending;
        let is_sound = progress.due_at.is_some() == is_pending
            && progress.since <= progress.updated_at
            && draft.id.created_at() <= progress.since
            && draft.ordinal > 0;
        is_sound.then_some(Self { draft, progress })
    }

    /// Which event, and to whom.
    pub fn draft(&self) -> &Draft {
        &self.draft
    }

    /// How far it is.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// System id.
    pub fn id(&self) -> DeliveryId {
        self.draft.id
    }

    /// The present status.
    pub fn status(&self) -> Status {
        self.progress.status
    }

    /// The same, due at another time: it waits for an earlier one about the same resource. One that
    /// has ended stays as it is.
    #[must_use]
    pub fn rescheduled(mut self, due_at: Timestamp) -> Self {
        self.progress.due_at = self.progress.due_at.map(|_| due_at);
        self
    }

    /// Whether the time for attempts is over at `now`.
    pub fn is_over(&self, schedule: &Schedule, now: Timestamp) -> bool {
        now >= self.progress.since.plus_millis(schedule.duration_max_millis)
    }

    /// The event of this delivery after an attempt. `pause` is how long the next one has to wait.
    pub fn after(
        &self,
        attempt: Attempt,
        schedule: &Schedule,
        pause: i64,
        now: Timestamp,
    ) -> Event {
        match attempt.verdict(self.draft.plan) {
            Verdict::Received => Event::Received(attempt),
            Verdict::Gone => Event::GivenUp(Some(attempt)),
            Verdict::Failed => {
                let due_at = now.plus_millis(pause);
                if self.draft.plan == Plan::Retried && !self.is_over(schedule, due_at) {
                    Event::Failed(attempt, due_at)
                } else {
                    Event::GivenUp(Some(attempt))
                }
            }
        }
    }

    /// The one function that changes a delivery's status.
    pub fn apply(mut self, event: Event, now: Timestamp) -> Result<Moved<Self>, IllegalTransition> {
        let from = self.status();
        let Some(to) = arrow(from, &event) else {
            return Err(IllegalTransition {
                machine: "delivery",
                state: from.name(),
                event: event.name(),
            });
        };
        let progress = &mut self.progress;
        let now = now.max(progress.updated_at);
        progress.status = to;
        progress.updated_at = now;
        progress.due_at = None;
        let attempt = match event {
            Event::Received(attempt) | Event::GivenUp(Some(attempt)) => Some(attempt),
            Event::GivenUp(None) | Event::Superseded => None,
            Event::Failed(attempt, due_at) => {
                progress.due_at = Some(due_at);
                progress.failures = progress.failures.saturating_add(1);
                Some(attempt)
            }
            Event::SentAgain => {
                // No request waits for the answer any more.
                if self.draft.plan == Plan::Asked {
                    self.draft.plan = Plan::Once;
                }
                progress.since = now;
                progress.due_at = Some(now);
                progress.failures = 0;
                None
            }
        };
        progress.attempts.extend(attempt);
        let known = progress.attempts.len().saturating_sub(ANSWERS_KEPT);
        for attempt in &mut progress.attempts[..known] {
            if let Outcome::Answered { body, .. } = &mut attempt.outcome {
                body.clear();
            }
        }
        Ok(Moved::new(from.name(), self))
    }
}

/// Every arrow, for people and tests.
pub(crate) fn arrows() -> Vec<[&'static str; 3]> {
    let at = Timestamp::from_millis(0);
    let attempt = Attempt { at, millis: 0, peer: None, outcome: Outcome::TimedOut };
    let events = [
        Event::Received(attempt.clone()),
        Event::Failed(attempt.clone(), at),
        Event::GivenUp(Some(attempt)),
        Event::Superseded,
        Event::SentAgain,
    ];
    arrows_of(&Status::ALL, &events, |from, event| from.after(event), Status::name, Event::name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::event_id;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn event(number: u32) -> event::Event {
        let resource = Uuid::from_u128(7);
        event::Event {
            id: event_id(resource, number),
            platform: PlatformId::from_uuid(Uuid::nil()),
            kind: EventKind::OutgoingPayment,
            resource,
            number,
            at: at(1_000),
            body: Vec::new(),
        }
    }

    fn delivery(plan: Plan) -> Delivery {
        Delivery::pending(Draft::new(&event(1), 1, plan), at(1_000))
    }

    fn attempt(outcome: Outcome) -> Attempt {
        Attempt { at: at(2_000), millis: 5, peer: None, outcome }
    }

    fn answered(status: u16) -> Attempt {
        attempt(Outcome::Answered { status, body: b"answer".to_vec() })
    }

    #[test]
    fn the_arrows_are_those_of_the_contract() {
        let arrows: Vec<_> = arrows().iter().map(|arrow| arrow.join(" ")).collect();
        assert_eq!(
            arrows,
            [
                "PENDING received DELIVERED",
                "PENDING failed PENDING",
                "PENDING given up DEAD",
                "PENDING superseded SUPERSEDED",
                "PENDING sent again PENDING",
                "DELIVERED sent again PENDING",
                "DEAD sent again PENDING",
                "SUPERSEDED sent again PENDING",
            ]
        );
    }

    #[test]
    fn ids_are_in_the_order_of_time_and_differ_by_event() {
        let first = delivery_id(&event(1));
        assert_eq!(first.created_at(), at(1_000));
        assert_eq!(first, delivery_id(&event(1)));
        assert_ne!(first, delivery_id(&event(2)));
        assert!(delivery_id(&event::Event { at: at(1_001), ..event(1) }) > first);
    }

    #[test]
    fn answers_mean_what_the_contract_says() {
        let table = [
            (200, Verdict::Received),
            (204, Verdict::Received),
            (299, Verdict::Received),
            (409, Verdict::Received),
            (410, Verdict::Gone),
            (100, Verdict::Failed),
            (301, Verdict::Failed),
            (400, Verdict::Failed),
            (429, Verdict::Failed),
            (500, Verdict::Failed),
        ];
        for (status, verdict) in table {
            assert_eq!(answered(status).verdict(Plan::Retried), verdict, "{status}");
        }
        for outcome in [Outcome::TimedOut, Outcome::Unreachable, Outcome::Refused(String::new())] {
            assert_eq!(attempt(outcome).verdict(Plan::Retried), Verdict::Failed);
        }
        for status in [200, 202, 403, 409, 422] {
            assert_eq!(answered(status).verdict(Plan::Asked), Verdict::Received, "{status}");
        }
        for status in [302, 400, 410, 500] {
            assert_eq!(answered(status).verdict(Plan::Asked), Verdict::Failed, "{status}");
        }
    }

    #[test]
    fn what_fails_is_due_again_until_the_time_is_over() {
        let schedule = Schedule { duration_max_millis: 10_000, ..Schedule::USUAL };
        let failed = |plan, pause, now| {
            delivery(plan).after(attempt(Outcome::TimedOut), &schedule, pause, at(now))
        };
        let gone = Event::GivenUp(Some(attempt(Outcome::TimedOut)));
        let again = |due| Event::Failed(attempt(Outcome::TimedOut), at(due));
        assert_eq!(failed(Plan::Retried, 500, 2_000), again(2_500));
        assert_eq!(failed(Plan::Retried, 500, 10_499), again(10_999));
        assert_eq!(failed(Plan::Retried, 500, 10_500), gone);
        assert_eq!(failed(Plan::Once, 500, 2_000), gone);
        assert_eq!(failed(Plan::Asked, 500, 2_000), gone);
    }

    #[test]
    fn a_delivery_that_is_sent_again_has_all_its_time_again() {
        let mut delivery = delivery(Plan::Retried);
        for number in 0..20 {
            let event = Event::Failed(answered(500), at(3_000 + number));
            delivery = delivery.apply(event, at(3_000)).expect("an arrow").into_now();
        }
        assert_eq!(delivery.progress().failures, 20);
        let dead = delivery.apply(Event::GivenUp(None), at(4_000)).expect("an arrow").into_now();
        assert_eq!((dead.status(), dead.progress().due_at), (Status::Dead, None));
        let answers = dead.progress().attempts.iter().filter(|attempt| {
            matches!(&attempt.outcome, Outcome::Answered { body, .. } if !body.is_empty())
        });
        assert_eq!((dead.progress().attempts.len(), answers.count()), (20, ANSWERS_KEPT));
        let again = dead.apply(Event::SentAgain, at(5_000)).expect("an arrow").into_now();
        let progress = again.progress();
        assert_eq!((progress.since, progress.failures), (at(5_000), 0));
        assert_eq!((again.status(), progress.due_at), (Status::Pending, Some(at(5_000))));
    }

    proptest! {
        #[test]
        fn pauses_grow_to_the_longest_and_are_spread(failures in 1_u32..400, random: u64) {
            let schedule = Schedule::USUAL;
            let pause = schedule.pause(failures, random);
            let exact = 3_i64.saturating_pow(failures - 1).saturating_mul(1_000).min(1_800_000);
            prop_assert!(pause <= 1_800_000);
            prop_assert!((exact * 8 / 10..=exact * 12 / 10).contains(&pause), "{pause} {exact}");
            prop_assert_eq!(schedule.pause_asked(failures, random, None), pause);
            prop_assert_eq!(schedule.pause_asked(failures, random, Some(pause + 7)), pause + 7);
            let much = schedule.pause_asked(failures, random, Some(i64::MAX));
            prop_assert_eq!(much, RETRY_AFTER_MAX);
        }
    }
}
