//! Bulkheads: each institution and each rail has its own bound on calls under way, so that a peer
//! that hangs holds up nothing but payments to it.
//!
//! A call that finds its bulkhead full waits in a bounded queue. A circuit breaker ([`Pace`]) opens
//! after calls that hung: the queue is then given up, and the peer is only probed now and then.
//!
//! Limits: the state is this process's own and begins anew with it. No call is made here.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::delivery::Schedule;
use domain::id::PlatformId;
use domain::platform::Mode;
use domain::rail::Rail;
use domain::time::Timestamp;
use store::timers::TimerKey;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::oneshot::{self, Receiver, Sender};
use tokio::task::JoinSet;

use crate::pace::Pace;

/// Calls that wait for a place in one bulkhead at most: what a peer that answers in a second works
/// off in seconds. The timers of more are set anew, which costs a commit each.
const WAITING_MAX: usize = 256;

/// Timers whose calls to institutions are under way or wait at most, over all bulkheads. Each step
/// reads past their rows, and each has its order in memory.
const UNDER_WAY_MAX: usize = 2_048;

/// Bulkheads that are remembered while nothing happens in them, which forgets their pace.
const REMEMBERED_MAX: usize = 1_024;

/// The breaker's pauses: a peer that has hung is probed after a second, and then at least once a
/// minute, so that payments to it go on soon after it is back.
const PAUSES: Schedule =
    Schedule { first_millis: 1_000, longest_millis: 60_000, duration_max_millis: i64::MAX };

/// The other end of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// An institution, by its domain.
    Peer(String),
    /// A rail of the platforms of a mode.
    Rail(Mode, Rail),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(domain) => write!(f, "institution {domain}"),
            Self::Rail(mode, rail) => write!(f, "rail {rail} ({})", mode.name()),
        }
    }
}

/// Leave to make a call.
pub(crate) enum Entry {
    /// It may be made now.
    Now(Slot),
    /// It may be made once this gives its slot. The breaker has opened if it gives none.
    Queued(Receiver<Slot>),
    /// Not now: the queue is full, or the breaker open.
    Refused,
}

/// The calls of this server to the outside that are bound.
#[derive(Clone, Default)]
pub(crate) struct Bulkheads(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Tasks that wait for an answer beside the step.
    tasks: Mutex<JoinSet<()>>,
    ended: Arc<Notify>,
}

#[derive(Default)]
struct State {
    bulkheads: HashMap<Target, Bulkhead>,
    under_way: HashMap<TimerKey, PlatformId>,
}

struct Bulkhead {
    pace: Pace,
    running: usize,
    waiting: VecDeque<Sender<Slot>>,
}

impl Bulkhead {
    fn new() -> Self {
        Self { pace: Pace::new(), running: 0, waiting: VecDeque::new() }
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty() && !self.pace.is_failing()
    }

    /// Takes callers out of the queue for whom there is a place.
    fn admitted(&mut self) -> Vec<Sender<Slot>> {
        let mut admitted = Vec::new();
        while self.running < self.pace.window()
            && let Some(turn) = self.waiting.pop_front()
        {
            if !turn.is_closed() {
                self.running += 1;
                admitted.push(turn);
            }
        }
        admitted
    }
}

impl Bulkheads {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for leave to call.
    pub(crate) fn enter(&self, target: &Target, now: Timestamp) -> Entry {
        let mut state = self.state();
        // Anyone can be a peer, so the bound for all is theirs. Rails are few and the operator's.
        let is_full = state.under_way.len() >= UNDER_WAY_MAX && matches!(target, Target::Peer(_));
        if state.bulkheads.len() > REMEMBERED_MAX {
            state.bulkheads.retain(|_, bulkhead| !bulkhead.is_idle());
        }
        if !state.bulkheads.contains_key(target) {
            state.bulkheads.insert(target.clone(), Bulkhead::new());
        }
        let Some(bulkhead) = state.bulkheads.get_mut(target) else { return Entry::Refused };
        if bulkhead.pace.is_paused(now) {
            return Entry::Refused;
        }
        if bulkhead.running < bulkhead.pace.window() && !is_full {
            bulkhead.running += 1;
            return Entry::Now(self.slot(target));
        }
        if is_full || bulkhead.waiting.len() >= WAITING_MAX {
            return Entry::Refused;
        }
        let (turn, admission) = oneshot::channel();
        bulkhead.waiting.push_back(turn);
        Entry::Queued(admission)
    }

    /// Until when the breaker of a bulkhead is open, if it is.
    pub(crate) fn paused_until(&self, target: &Target) -> Option<Timestamp> {
        self.state().bulkheads.get(target)?.pace.paused_until()
    }

    fn slot(&self, target: &Target) -> Slot {
        Slot { bulkheads: self.clone(), target: target.clone(), is_left: false }
    }

    /// Gives a slot back. `outcome` moves the pace, if there is one.
    fn leave(&self, target: &Target, outcome: Option<Outcome>) {
        let mut state = self.state();
        let Some(bulkhead) = state.bulkheads.get_mut(target) else { return };
        bulkhead.running = bulkhead.running.saturating_sub(1);
        let was_failing = bulkhead.pace.is_failing();
        match outcome {
            Some(Outcome::Answered) => bulkhead.pace.succeeded(),
            Some(Outcome::Hung { now, random }) => {
                bulkhead.pace.failed(&PAUSES, random, None, now);
                if bulkhead.pace.is_paused(now) {
                    // Their callers are refused as they would be now.
                    bulkhead.waiting.clear();
                }
            }
            None => {}
        }
        let (is_failing, admitted) = (bulkhead.pace.is_failing(), bulkhead.admitted());
        drop(state);
        if is_failing && !was_failing {
            tracing::warn!(%target, "circuit breaker open: calls hang, probing now and then");
        } else if was_failing && !is_failing {
            tracing::info!(%target, "circuit breaker closed: calls are answered again");
        }
        for turn in admitted {
            // A slot that is not taken any more is given back as it is dropped.
            let _ = turn.send(self.slot(target));
        }
    }

    /// Notes that the call of a timer is under way, until the guard is dropped.
    pub(crate) fn begin(&self, timer: TimerKey, platform: PlatformId) -> UnderWay {
        self.state().under_way.insert(timer, platform);
        UnderWay { bulkheads: self.clone(), timer }
    }

    /// The timers whose calls are under way.
    pub(crate) fn under_way(&self) -> HashSet<TimerKey> {
        self.state().under_way.keys().copied().collect()
    }

    /// Whether a call for a platform is under way.
    pub(crate) fn has_under_way(&self, platform: PlatformId) -> bool {
        self.state().under_way.values().any(|owner| *owner == platform)
    }

    /// Ends when a call that is under way now or later has ended.
    pub(crate) fn ended(&self) -> OwnedNotified {
        Arc::clone(&self.0.ended).notified_owned()
    }

    /// Runs a task beside the step.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Aborts every task that runs beside the step. Their questions are asked again.
    pub(crate) fn stop(&self) {
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

/// How a call went, as far as its bulkhead is concerned.
enum Outcome {
    Answered,
    Hung { now: Timestamp, random: u64 },
}

/// A place in a bulkhead.
pub(crate) struct Slot {
    bulkheads: Bulkheads,
    target: Target,
    is_left: bool,
}

impl Slot {
    /// The call was answered.
    pub(crate) fn answered(mut self) {
        self.is_left = true;
        self.bulkheads.leave(&self.target, Some(Outcome::Answered));
    }

    /// The call was not answered in time. `random` spreads the pauses of the breaker.
    pub(crate) fn hung(mut self, now: Timestamp, random: u64) {
        self.is_left = true;
        self.bulkheads.leave(&self.target, Some(Outcome::Hung { now, random }));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.is_left {
            self.bulkheads.leave(&self.target, None);
        }
    }
}

/// The call of a timer that is under way.
pub(crate) struct UnderWay {
    bulkheads: Bulkheads,
    timer: TimerKey,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.bulkheads.state().under_way.remove(&self.timer);
        self.bulkheads.0.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn peer(domain: &str) -> Target {
        Target::Peer(domain.to_owned())
    }

    /// Every slot that there is.
    fn fill(bulkheads: &Bulkheads, target: &Target, now: i64) -> Vec<Slot> {
        let mut slots = Vec::new();
        while let Entry::Now(slot) = bulkheads.enter(target, at(now)) {
            slots.push(slot);
        }
        slots
    }

    #[test]
    fn a_full_bulkhead_queues_callers_up_to_a_bound_and_leaves_others_alone() {
        let (bulkheads, slow) = (Bulkheads::default(), peer("slow.example"));
        let slots = fill(&bulkheads, &slow, 0);
        let mut queue: Vec<_> = (1..WAITING_MAX)
            .map(|_| match bulkheads.enter(&slow, at(0)) {
                Entry::Queued(turn) => turn,
                Entry::Now(_) | Entry::Refused => panic!("there is room in the queue"),
            })
            .collect();
        assert!(matches!(bulkheads.enter(&slow, at(0)), Entry::Refused));
        assert!(matches!(bulkheads.enter(&peer("fast.example"), at(0)), Entry::Now(_)));
        // The place of a call that ends is the first waiting caller's. The second one has gone.
        let mut first = queue.remove(0);
        drop(queue.remove(0));
        let mut third = queue.remove(0);
        assert!(first.try_recv().is_err());
        drop(slots);
        drop(first.try_recv().expect("a slot"));
        assert!(third.try_recv().is_ok());
    }

    #[test]
    fn calls_that_hang_open_the_breaker_until_a_probe_is_answered() {
        let (bulkheads, hanging) = (Bulkheads::default(), peer("hanging.example"));
        let slots = fill(&bulkheads, &hanging, 0);
        let Entry::Queued(mut turn) = bulkheads.enter(&hanging, at(0)) else { panic!("queued") };
        for slot in slots {
            slot.hung(at(9_000), 0);
        }
        assert!(turn.try_recv().is_err(), "the queue was given up");
        assert!(matches!(bulkheads.enter(&hanging, at(9_000)), Entry::Refused));
        let until = bulkheads.paused_until(&hanging).expect("the breaker is open");
        assert!((at(9_500)..=at(69_000)).contains(&until), "{until}");
        // One probe at a time, and each that hangs is followed by a pause of a minute at most.
        let mut now = until.millis();
        for _ in 0..10 {
            let [probe] = <[Slot; 1]>::try_from(fill(&bulkheads, &hanging, now)).ok().expect("one");
            probe.hung(at(now), 0);
            assert!(matches!(bulkheads.enter(&hanging, at(now)), Entry::Refused));
            let until = bulkheads.paused_until(&hanging).expect("the breaker is open");
            assert!(until <= at(now + 60_000), "{until}");
            now = until.millis();
        }
        let Entry::Now(probe) = bulkheads.enter(&hanging, at(now)) else { panic!("a probe") };
        probe.answered();
        assert!(fill(&bulkheads, &hanging, now).len() > 1);
    }
}
