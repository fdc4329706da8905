//! The timers that are due soon, in memory.
//!
//! Each published batch changes them, so that a job begins without a read of the tables. They are
//! read from the tables when they are needed first and when the memtable missed rows; then, as time
//! goes on, those that are due within the next minutes.
//!
//! Of each platform, all timers up to the end of its window are here. A read of tables begins with
//! [`DueTimers::begin`] and ends with [`DueTimers::extend`]. Batches that are published meanwhile
//! are applied once more behind it: they are absolute states, so that twice is once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use domain::clock::Ahead;
use domain::id::PlatformId;
use domain::platform::Platform;
use domain::time::Timestamp;
use parking_lot::Mutex;
use uuid::Uuid;

use super::{Due, TIMERS, Timer, TimerKey, TimerKind, read};
use crate::Store;
use crate::error::StoreError;
use crate::memtable::shared::{Follower, Published as Change};
use crate::record::{Numbered as _, Record as _};
use crate::sql::{Row, Value};

/// How far ahead of a platform's clock its timers are read, in milliseconds.
const WINDOW_MILLIS: i64 = 600_000;

/// With how much of the window left the next is read, in milliseconds.
const READ_AHEAD_MILLIS: i64 = 300_000;

/// Timers of a platform that are read at once: some megabytes.
const READ_MAX: u32 = 10_000;

/// A place among the timers of a platform.
type Position = (Timestamp, Uuid);

/// The place before all timers.
const START: Position = (Timestamp::from_millis(i64::MIN), Uuid::nil());

/// The end of a window that has every timer up to a time.
const fn through(time: Timestamp) -> Position {
    (time, Uuid::max())
}

/// A published change that matters here.
#[derive(Debug, Clone)]
enum Published {
    Timer(TimerKey, Option<Timer>),
    Clock(PlatformId, Ahead),
}

/// The timers of a platform up to a place.
#[derive(Debug)]
struct Window {
    ahead: Ahead,
    end: Position,
    timers: BTreeMap<(Timestamp, TimerKey), Timer>,
}

impl Window {
    fn new(ahead: Ahead) -> Self {
        Self { ahead, end: START, timers: BTreeMap::new() }
    }

    /// The timers that are due when the server's clock shows `now`, the longest overdue first.
    fn due(&self, now: Timestamp) -> impl Iterator<Item = &Timer> {
        let now = self.ahead.shows(now);
        self.timers.values().take_while(move |timer| timer.due_at <= now)
    }

    /// Whether it lacks a timer that may be due then.
    fn lacks(&self, now: Timestamp) -> bool {
        self.end < through(self.ahead.shows(now))
    }
}

/// Timers of a platform that are to be read from its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    platform: PlatformId,
    /// The timers behind this place.
    after: Position,
    /// The timers that are due until then, by the platform's clock.
    until: Timestamp,
}

impl Range {
    /// All timers of a platform that are due soon.
    fn first(platform: PlatformId, ahead: Ahead, now: Timestamp) -> Self {
        let until = ahead.shows(now).plus_millis(WINDOW_MILLIS);
        Self { platform, after: START, until }
    }

    /// The place up to which all are known once so many of them were read, and how many of the rows
    /// count: a last one may have another beside it with the same place.
    fn known(&self, timers: &[Timer]) -> (Position, usize) {
        if timers.len() < READ_MAX as usize {
            return (through(self.until), timers.len());
        }
        let place = |timer: &Timer| (timer.due_at, timer.subject);
        let last = timers.last().map(place);
        let count = timers.partition_point(|timer| Some(place(timer)) < last);
        let known = timers[..count].last().map_or(self.after, place);
        (known, count)
    }
}

/// The timers that a look into the memory lacks.
#[derive(Debug, PartialEq, Eq)]
enum Lacks {
    /// Everything: nothing was read since the memtable missed rows.
    All,
    /// Some of the timers that may be due.
    Some(Vec<Range>),
}

/// The timers that are due soon.
#[derive(Debug, Default)]
pub(crate) struct DueTimers {
    is_loaded: bool,
    windows: HashMap<PlatformId, Window>,
    places: HashMap<TimerKey, (PlatformId, Timestamp)>,
    /// Changes since a read of the tables has begun, while there is one.
    since: Option<Vec<Published>>,
}

impl DueTimers {
    /// Takes a published batch.
    fn publish(&mut self, changes: &[Change]) {
        if !self.is_loaded && self.since.is_none() {
            return;
        }
        for published in changes.iter().filter_map(published) {
            if let Some(since) = &mut self.since {
                since.push(published.clone());
            }
            if self.is_loaded {
                self.apply(published);
            }
        }
    }

    fn apply(&mut self, published: Published) {
        match published {
            Published::Timer(key, timer) => {
                if let Some((platform, due_at)) = self.places.remove(&key)
                    && let Some(window) = self.windows.get_mut(&platform)
                {
                    window.timers.remove(&(due_at, key));
                }
                if let Some(timer) = timer
                    && let Some(window) = self.windows.get_mut(&timer.platform)
                    && (timer.due_at, timer.subject) <= window.end
                {
                    self.places.insert(key, (timer.platform, timer.due_at));
                    window.timers.insert((timer.due_at, key), timer);
                }
            }
            Published::Clock(platform, ahead) => {
                self.windows.entry(platform).or_insert_with(|| Window::new(ahead)).ahead = ahead;
            }
        }
    }

    /// Begins to keep what is published, for a read of tables that follow everything before.
    fn begin(&mut self) {
        self.since = Some(Vec::new());
    }

    /// The read came to nothing.
    fn give_up(&mut self) {
        self.since = None;
    }

    /// Takes what was read: first of all the clocks of all platforms, and timers of ranges. Nothing
    /// is taken if the memtable missed rows meanwhile.
    fn extend(&mut self, clocks: Option<Vec<(PlatformId, Ahead)>>, read: Vec<(Range, Vec<Timer>)>) {
        let Some(since) = self.since.take() else { return };
        if let Some(clocks) = clocks {
            let window = |(platform, ahead)| (platform, Window::new(ahead));
            (self.windows, self.is_loaded) = (clocks.into_iter().map(window).collect(), true);
            self.places.clear();
        }
        for (range, mut timers) in read {
            let (end, count) = range.known(&timers);
            let Some(window) = self.windows.get_mut(&range.platform) else { continue };
            window.end = window.end.max(end);
            timers.truncate(count);
            for timer in timers {
                self.apply(Published::Timer(timer.key(), Some(timer)));
            }
        }
        since.into_iter().for_each(|published| self.apply(published));
    }

    /// Timers that are due when the server's clock shows `now`, so many at most, but for those
    /// whose jobs are `under_way`.
    fn due(
        &self,
        now: Timestamp,
        limit: usize,
        under_way: &HashSet<TimerKey>,
    ) -> Result<Due, Lacks> {
        if !self.is_loaded {
            return Err(Lacks::All);
        }
        let is_free = |timer: &&Timer| !under_way.contains(&timer.key());
        let firsts = self.windows.values().filter_map(|window| {
            let first = window.due(now).find(is_free)?;
            Some((window.ahead.on_server(first.due_at), window))
        });
        let mut firsts: Vec<_> = firsts.collect();
        firsts.sort_by_key(|(due_at, _)| *due_at);
        let (since, mut timers) = (firsts.first().map(|(due_at, _)| *due_at), Vec::new());
        for (_, window) in firsts {
            let left = limit - timers.len();
            timers.extend(window.due(now).filter(is_free).take(left).cloned());
        }
        let lacks = self.ranges(now, |window| window.lacks(now));
        if timers.len() < limit && !lacks.is_empty() {
            return Err(Lacks::Some(lacks));
        }
        Ok(Due { timers, since })
    }

    /// The ranges that are to be read soon.
    fn runs_out(&self, now: Timestamp) -> Vec<Range> {
        let soon = now.plus_millis(READ_AHEAD_MILLIS);
        self.ranges(now, |window| window.lacks(soon))
    }

    fn ranges(&self, now: Timestamp, are: impl Fn(&Window) -> bool) -> Vec<Range> {
        let windows = self.windows.iter().filter(|(_, window)| are(window));
        let range = |(platform, window): (&PlatformId, &Window)| Range {
            after: window.end,
            ..Range::first(*platform, window.ahead, now)
        };
        windows.map(range).collect()
    }

    /// When the next timer is due by the server's clock besides those `under_way`, if that is
    /// known.
    fn next_due(&self, under_way: &HashSet<TimerKey>) -> Option<Timestamp> {
        let is_free = |timer: &&Timer| !under_way.contains(&timer.key());
        let firsts = self.windows.values().filter_map(|window| {
            let first = window.timers.values().find(is_free)?;
            Some(window.ahead.on_server(first.due_at))
        });
        firsts.min()
    }
}

impl Follower for Mutex<DueTimers> {
    fn publish(&self, records: &[Change]) {
        self.lock().publish(records);
    }

    fn forget(&self) {
        *self.lock() = DueTimers::default();
    }
}

/// The change of a timer, or of a platform's clock.
fn published((key, values): &Change) -> Option<Published> {
    let columns = |values: &[Value]| Row::new(TIMERS.table, TIMERS.columns, values.to_vec());
    match values {
        None if key.table == TIMERS.number => {
            let row = &mut columns(&key.columns);
            let key = (row.uuid().ok()?, row.named(TimerKind::from_name).ok()?);
            Some(Published::Timer(key, None))
        }
        Some(values) if key.table == TIMERS.number => {
            let timer = read(&mut columns(values)).ok()?;
            Some(Published::Timer(timer.key(), Some(timer)))
        }
        Some(values) if key.table == Platform::NUMBER => {
            let clock = Platform::COLUMNS.iter().position(|column| *column == "clock_ahead")?;
            let (Value::Bytes(id), Value::Int(ahead)) = (values.first()?, values.get(clock)?)
            else {
                return None;
            };
            let platform = PlatformId::from_uuid(Uuid::from_slice(id).ok()?);
            Some(Published::Clock(platform, Ahead::from_millis(*ahead)?))
        }
        Some(_) | None => None,
    }
}

impl Store {
    /// Timers that are due when the server's clock shows `now`, so many at most, but for those
    /// whose jobs are `under_way`, as far as this process knows
    /// ([`Store::meet_others`]). A job checks its timer again in its unit.
    pub async fn due_timers(
        &self,
        now: Timestamp,
        limit: usize,
        under_way: &HashSet<TimerKey>,
    ) -> Result<Due, StoreError> {
        loop {
            let found = self.timers.lock().due(now, limit, under_way);
            if let Ok(due) = found {
                self.read_ahead(now);
                return Ok(due);
            }
            let reading = self.reading_timers.lock().await;
            // Another caller may have read them.
            let found = self.timers.lock().due(now, limit, under_way);
            if let Err(lacks) = found {
                self.read_timers(lacks, now).await?;
            }
            drop(reading);
        }
    }

    /// Reads the timers behind a window that ends soon, without a wait.
    fn read_ahead(&self, now: Timestamp) {
        let ranges = self.timers.lock().runs_out(now);
        let Some(reading) = Arc::clone(&self.reading_timers).try_lock_owned().ok() else { return };
        if !ranges.is_empty() {
            let store = self.clone();
            tokio::spawn(async move {
                let _reading = reading;
                if let Err(error) = store.read_timers(Lacks::Some(ranges), now).await {
                    tracing::warn!(%error, "timers of the next minutes not read; trying again");
                }
            });
        }
    }

    async fn read_timers(&self, lacks: Lacks, now: Timestamp) -> Result<(), StoreError> {
        self.timers.lock().begin();
        let read = self.read(move |view| {
            let (clocks, ranges) = match lacks {
                Lacks::Some(ranges) => (None, ranges),
                Lacks::All => {
                    let clocks: Vec<_> =
                        view.platforms()?.iter().map(|it| (it.id, it.ahead)).collect();
                    let first = |(platform, ahead): &_| Range::first(*platform, *ahead, now);
                    let ranges = clocks.iter().map(first).collect();
                    (Some(clocks), ranges)
                }
            };
            let read = ranges.into_iter().map(|range| {
                let Range { platform, after, until } = range;
                Ok((range, view.later_timers(platform, after, until, READ_MAX)?))
            });
            Ok::<_, StoreError>((clocks, read.collect::<Result<_, StoreError>>()?))
        });
        match read.await {
            Ok((clocks, read)) => self.timers.lock().extend(clocks, read),
            Err(error) => {
                self.timers.lock().give_up();
                return Err(error);
            }
        }
        Ok(())
    }

    /// When the next timer is due by the server's clock, as far as this process knows, besides
    /// those whose jobs are `under_way`.
    pub fn next_due(&self, under_way: &HashSet<TimerKey>) -> Option<Timestamp> {
        self.timers.lock().next_due(under_way)
    }
}
