//! The load generator: many sessions at once, in a closed or an open loop, on one thread.
//!
//! - Closed loop: each session begins its next operation when the last one has ended. It finds the
//!   throughput.
//! - Open loop: operations begin by a schedule, whether or not the ones before have ended. Latency
//!   counts from the moment that the schedule meant, so an operation that had to wait for a slow
//!   one tells so (no coordinated omission). It finds the latency at a given throughput.
//!
//! Requests that end before the warm-up is over are not measured. Latencies are kept to 0.1 % over
//! the whole range, so percentiles are those of all operations and not of a sample.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hdrhistogram::Histogram;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use crate::time::{now, pause};

/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// A phase that is not over after this many times its duration has stopped to be a measurement:
/// the schedule of an open loop asks for more than the server can do.
const OVERRUN_MAX: u32 = 4;

/// Something that can be done again and again, such as a request on a connection of its own.
pub trait Session {
    /// Does it once.
    fn operate(&mut self) -> impl Future<Output = Result<Verdict>>;
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As it should.
    Done,
    /// It was refused. A phase with such an end is no measurement.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The answers.
        answer: String,
    },
}

/// When operations begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Each session's next one at the end of its last one.
    Closed,
    /// This many in a second, evenly.
    Open {
        /// Operations a second over all sessions.
        per_second: f64,
    },
}

/// A phase of load.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    /// Sessions at once.
    pub sessions: usize,
    /// The warm-up.
    pub warm_up: Duration,
    /// How long is measured.
    pub duration: Duration,
    /// When operations begin.
    pub pace: Pace,
}

/// The figures of a phase.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Operations that were measured.
    pub measured: u64,
    /// Operations of the whole phase, those of the warm-up among them.
    pub all: u64,
    /// How long was measured.
    pub duration: Duration,
    /// From the beginning of the warm-up to the end of the last operation.
    pub took: Duration,
    latencies: Histogram<u64>,
}

impl Outcome {
    /// The figures of operations that something else than the load has counted, over the time that
    /// all of them took.
    pub fn counted(took: Duration, each: impl IntoIterator<Item = Duration>) -> Result<Self> {
        let mut latencies = Histogram::new(DIGITS)?;
        for latency in each {
            latencies.record(u64::try_from(latency.as_micros())?)?;
        }
        let all = latencies.len();
        ensure!(all > 0, "no operation was counted");
        Ok(Self { measured: all, all, duration: took, took, latencies })
    }

    /// Operations a second.
    pub fn per_second(&self) -> f64 {
        self.measured as f64 / self.duration.as_secs_f64()
    }

    /// The latency in milliseconds that `percent` of the operations did not exceed.
    pub fn millis_at(&self, percent: f64) -> f64 {
        self.latencies.value_at_percentile(percent) as f64 / 1_000.0
    }
}

/// Counters of a phase that runs.
struct Counts {
    measuring_from: Instant,
    measuring_to: Instant,
    measured: u64,
    all: u64,
    latencies: Histogram<u64>,
    /// How many operations were refused with each status, and what the first was answered.
    refusals: BTreeMap<u16, (u64, String)>,
}

impl Counts {
    fn new(begin: Instant, phase: &Phase) -> Result<Self> {
        let measuring_from = begin + phase.warm_up;
        Ok(Self {
            measuring_from,
            measuring_to: measuring_from + phase.duration,
            measured: 0,
            all: 0,
            latencies: Histogram::new(DIGITS)?,
            refusals: BTreeMap::new(),
        })
    }

    /// Adds an operation that began (or should have begun) and ended then. It is measured if `at`,
    /// the one of both that its loop goes by, is within the time for measuring.
    fn add(&mut self, verdict: Verdict, began: Instant, ended: Instant, at: Instant) -> Result<()> {
        if let Verdict::Refused { status, answer } = verdict {
            self.refusals.entry(status).or_insert((0, answer)).0 += 1;
            return Ok(());
        }
        self.all += 1;
        if (self.measuring_from..self.measuring_to).contains(&at) {
            self.measured += 1;
            let micros = ended.saturating_duration_since(began).as_micros();
            self.latencies.record(u64::try_from(micros)?)?;
        }
        Ok(())
    }
}

/// Runs a phase with sessions that `open` gives, the argument being their number. It blocks the
/// calling thread, which does all the work.
pub fn run<S: Session + 'static>(
    phase: &Phase,
    open: impl AsyncFn(usize) -> Result<S>,
) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    let time_max = (phase.warm_up + phase.duration) * OVERRUN_MAX;
    let outcome = runtime.block_on(local.run_until(async {
        let mut sessions = Vec::new();
        for number in 0..phase.sessions {
            sessions.push(open(number).await.context("opening a session")?);
        }
        let run = run_sessions(phase, sessions);
        tokio::time::timeout(time_max, run).await.with_context(|| {
            format!("the load was not done after {time_max:?}: the server cannot keep the pace")
        })?
    }));
    // Sessions of a phase that failed are dropped with their tasks.
    drop(local);
    outcome
}

async fn run_sessions<S: Session + 'static>(phase: &Phase, sessions: Vec<S>) -> Result<Outcome> {
    let begin = now();
    let counts = Rc::new(RefCell::new(Counts::new(begin, phase)?));
    let schedule = match phase.pace {
        Pace::Closed => None,
        Pace::Open { per_second } => Some(Schedule::start(begin, phase, per_second)?),
    };
    let mut tasks = Vec::new();
    for session in sessions {
        let (counts, schedule) = (Rc::clone(&counts), schedule.clone());
        tasks.push(tokio::task::spawn_local(async move {
            match schedule {
                None => closed(session, &counts).await,
                Some(schedule) => open(session, &schedule, &counts).await,
            }
        }));
    }
    for task in tasks {
        task.await??;
    }
    let took = now().duration_since(begin);
    let counts = counts.replace(Counts::new(begin, phase)?);
    if let Some((status, (count, answer))) = counts.refusals.first_key_value() {
        let all: u64 = counts.refusals.values().map(|(count, _)| count).sum();
        bail!(
            "{all} of {} operations were refused, {count} of them with {status}: {answer}",
            counts.all + all
        );
    }
    ensure!(counts.measured > 0, "no operation ended while measuring");
    Ok(Outcome {
        measured: counts.measured,
        all: counts.all,
        duration: phase.duration,
        took,
        latencies: counts.latencies,
    })
}

/// Operates until the time for measuring is over; what has begun then still ends.
async fn closed<S: Session>(mut session: S, counts: &RefCell<Counts>) -> Result<()> {
    let end = counts.borrow().measuring_to;
    let mut began = now();
    while began < end {
        let verdict = session.operate().await?;
        let ended = now();
        counts.borrow_mut().add(verdict, began, ended, ended)?;
        began = ended;
    }
    Ok(())
}

/// When the operations of an open loop are due. A thread of its own keeps time, because the timers
/// of the runtime know whole milliseconds only.
#[derive(Clone)]
struct Schedule {
    begin: Instant,
    per_second: f64,
    count: u64,
    next: Rc<RefCell<u64>>,
    due: Arc<Semaphore>,
}

impl Schedule {
    fn start(begin: Instant, phase: &Phase, per_second: f64) -> Result<Self> {
        ensure!(per_second.is_finite() && per_second > 0.0, "a pace of {per_second} a second");
        let count = ((phase.warm_up + phase.duration).as_secs_f64() * per_second) as u64;
        let due = Arc::new(Semaphore::new(0));
        let keeper = Arc::downgrade(&due);
        std::thread::Builder::new().name("pace".to_owned()).spawn(move || {
            for number in 0..count {
                let early = due_at(begin, per_second, number).saturating_duration_since(now());
                if !early.is_zero() {
                    pause(early);
                }
                // No session is left when the phase has failed.
                let Some(due) = keeper.upgrade() else { return };
                due.add_permits(1);
            }
        })?;
        Ok(Self { begin, per_second, count, next: Rc::default(), due })
    }

    /// Waits until an operation is due; gives the moment that was meant, or nothing at the end.
    async fn next(&self) -> Option<Instant> {
        let number = self.next.replace_with(|number| *number + 1);
        if number >= self.count {
            return None;
        }
        // The semaphore is never closed, and each number below the count has its permit.
        self.due.acquire().await.ok()?.forget();
        Some(due_at(self.begin, self.per_second, number))
    }
}

fn due_at(begin: Instant, per_second: f64, number: u64) -> Instant {
    begin + Duration::from_secs_f64(number as f64 / per_second)
}

async fn open<S: Session>(
    mut session: S,
    schedule: &Schedule,
    counts: &RefCell<Counts>,
) -> Result<()> {
    while let Some(meant) = schedule.next().await {
        let verdict = session.operate().await?;
        counts.borrow_mut().add(verdict, meant, now(), meant)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as long as it says, each time.
    struct Slow(Duration);

    impl Session for Slow {
        async fn operate(&mut self) -> Result<Verdict> {
            // The thread stands still, as it would while a processor is busy.
            pause(self.0);
            tokio::task::yield_now().await;
            Ok(Verdict::Done)
        }
    }

    struct Refuses;

    impl Session for Refuses {
        async fn operate(&mut self) -> Result<Verdict> {
            tokio::task::yield_now().await;
            Ok(Verdict::Refused { status: 503, answer: "busy".to_owned() })
        }
    }

    fn phase(pace: Pace) -> Phase {
        Phase { sessions: 1, warm_up: Duration::ZERO, duration: Duration::from_millis(200), pace }
    }

    #[test]
    fn percentiles_are_those_of_all_operations() {
        let begin = now();
        let phase = phase(Pace::Closed);
        let mut counts = Counts::new(begin, &phase).expect("a counts");
        for millis in 1..=1_000_u64 {
            let ended = begin + Duration::from_millis(millis);
            counts.add(Verdict::Done, begin, ended, begin).expect("it is counted");
        }
        let outcome = Outcome {
            measured: counts.measured,
            all: counts.all,
            duration: phase.duration,
            took: phase.duration,
            latencies: counts.latencies,
        };
        assert_eq!(outcome.measured, 1_000);
        assert!((outcome.per_second() - 5_000.0).abs() < 1e-6);
        for (percent, millis) in [(50.0, 500.0), (90.0, 900.0), (99.0, 990.0), (100.0, 1_000.0)] {
            let found = outcome.millis_at(percent);
            assert!((found / millis - 1.0).abs() < 0.001, "p{percent} is {found}");
        }
    }

    #[test]
    fn what_is_outside_the_time_for_measuring_is_not_measured() {
        let begin = now();
        let phase = Phase { warm_up: Duration::from_millis(100), ..phase(Pace::Closed) };
        let mut counts = Counts::new(begin, &phase).expect("a counts");
        for millis in [99, 100, 299, 300] {
            let at = begin + Duration::from_millis(millis);
            counts.add(Verdict::Done, begin, at, at).expect("it is counted");
        }
        assert_eq!((counts.measured, counts.all), (2, 4));
    }

    #[test]
    fn a_closed_loop_waits_for_each_operation() {
        let slow = Duration::from_millis(10);
        let outcome = run(&phase(Pace::Closed), async |_| Ok(Slow(slow))).expect("a phase");
        assert!(outcome.measured <= 20, "{} in 200 ms of 10 ms each", outcome.measured);
        assert!(outcome.millis_at(0.0) >= 10.0);
    }

    /// Twice as much is asked for as one session can do: the last operation begins half of the time
    /// late, although each took no longer than the first.
    #[test]
    fn an_open_loop_counts_from_the_moment_that_was_meant() {
        let slow = Duration::from_millis(10);
        let pace = Pace::Open { per_second: 200.0 };
        let outcome = run(&phase(pace), async |_| Ok(Slow(slow))).expect("a phase");
        assert_eq!(outcome.measured, 40);
        let (shortest, longest) = (outcome.millis_at(0.0), outcome.millis_at(100.0));
        assert!(shortest < longest, "{shortest} to {longest} ms");
        assert!(longest >= 200.0, "40 operations of 10 ms in 200 ms: {longest} ms");
    }

    #[test]
    fn a_refused_operation_fails_the_phase() {
        let error = run(&phase(Pace::Closed), async |_| Ok(Refuses)).expect_err("refused");
        assert!(error.to_string().ends_with("with 503: busy"), "{error}");
    }
}
