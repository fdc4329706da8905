//! Running ahead: units run on one thread while those before them are written and flushed on
//! another one, so that neither waits for the other (docs/decisions/0027).
//!
//! What has run is handed over in batches, of which the one that writes takes all that wait
//! (`tray`). Units see what the batches before theirs will have left, from the lane's memory; what
//! is not there, they read on a connection of their own, where everything older is. No answer
//! leaves before its own batch is durable, and batches become durable in their order, so no answer
//! can depend on anything that is not.
//!
//! If batches cannot be written, or somebody else has written meanwhile, what was run ahead is
//! worth nothing: the lane forgets everything, and their units and all behind them are run again
//! together, in their turn ([`Writer`]). While others write as often as we do, that is all that is
//! done.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::queue::{Queue, Ranked, Shares};
use super::tray::{Job, Tray};
use super::writer::{
    Pen, Timed, Writer, count_conflict, hold, measure, measure_queue, run_in_order,
};
use super::{Item, Listeners};
use crate::cache::Cache;
use crate::error::StoreError;
use crate::outcome::stop;
use crate::reach::{Reach, Step};
use crate::sql::{Connection, Turn};
use crate::unit::{Batch, News, Repeats, Writing};

/// Units of a batch that is handed over while another one is being written. Each batch writes the
/// rows that all payments share once, and costs the two threads a word.
const UNITS_MIN: usize = 8;

/// The same across a network, where each batch has statements of its own.
const REMOTE_UNITS_MIN: usize = 48;

/// Batches that look for idempotency keys after one that could not be written: perhaps a request
/// came again, and those who repeat one mostly repeat more. About a second of full load, so that
/// even then few batches are written in vain.
const WARY_BATCHES: usize = 256;

/// What became of batches that were handed over.
enum Outcome {
    /// So many are durable, and their units are answered.
    Durable(usize),
    /// Nothing of these units remains.
    Not(Vec<Box<dyn Item>>, Why),
}

/// Why units that ran are not written.
enum Why {
    /// Somebody else has written. The turn is taken, for whoever runs them again.
    Others(Turn),
    /// It did not succeed, and may the next time.
    Failed,
    /// The database cannot be reached.
    Lost(String),
}

/// Runs units while others are written.
pub(super) struct Ahead {
    /// Waits for several things at once.
    runtime: Runtime,
    tray: Arc<Tray>,
    outcomes: UnboundedReceiver<Outcome>,
    scribe: JoinHandle<()>,
    units_min: usize,
    /// Batches that were handed over and are not durable yet.
    flights: usize,
    /// How many of these batches must be durable before the lane may forget again.
    remembered: usize,
    /// How many batches will still look for idempotency keys that the lane does not remember.
    wary: usize,
}

impl Ahead {
    /// Starts the thread that writes.
    pub(super) fn start(writer: &Writer) -> Result<Self, StoreError> {
        let cannot = |error| StoreError::Engine(format!("cannot start a thread: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(cannot)?;
        let (tray, (told, outcomes)) = (Arc::new(Tray::default()), unbounded_channel());
        let scribe = Scribe {
            pen: Arc::clone(&writer.pen),
            listeners: writer.listeners.clone(),
            reach: Arc::clone(&writer.reach),
            tray: Arc::clone(&tray),
            outcomes: told,
            is_remote: writer.is_remote,
        };
        let scribe = std::thread::Builder::new()
            .name("commit-writer".to_owned())
            .spawn(move || scribe.run())
            .map_err(cannot)?;
        let units_min = if writer.is_remote { REMOTE_UNITS_MIN } else { UNITS_MIN };
        let (flights, remembered, wary) = (0, 0, 0);
        Ok(Self { runtime, tray, outcomes, scribe, units_min, flights, remembered, wary })
    }

    /// Works the queue off until it is closed.
    pub(super) fn run(mut self, mut writer: Writer, mut queue: Queue) {
        loop {
            let goes_on = if self.flights == 0 && writer.has_company() {
                writer.next(&mut queue)
            } else {
                self.next(&mut writer, &mut queue)
            };
            if !goes_on {
                break;
            }
        }
        self.tray.close();
        // One that panicked has nothing left to close.
        let _ = self.scribe.join();
        writer.settle();
    }

    /// Runs a batch and hands it over; false once the store is closed and everything is done.
    fn next(&mut self, writer: &mut Writer, queue: &mut Queue) -> bool {
        self.age(&mut writer.cache);
        let Writer { reader, keyring, cache, reach, .. } = &mut *writer;
        let repeats = if self.wary > 0 { Repeats::LookedFor } else { Repeats::LeftToTheTable };
        self.wary = self.wary.saturating_sub(1);
        let mut open = Open::new(Batch::new(&mut **reader, keyring, cache, repeats));
        let (mut outcome, mut is_full) = (None, false);
        let end = loop {
            match outcome.take().or_else(|| self.look()) {
                Some(Outcome::Not(items, why)) => break End::Not(items, why),
                Some(Outcome::Durable(batches)) => {
                    self.landed(batches);
                    // Whoever writes is not kept waiting for units that come only now.
                    is_full = self.flights == 0 && !open.items.is_empty();
                    continue;
                }
                None => {}
            }
            let shares = self.tray.shares() + open.shares;
            let next = if is_full { None } else { queue.take(shares) };
            let is_writing = self.flights > 0;
            let units_min = if is_writing { self.units_min } else { 1 };
            if let Some(item) = next {
                open.take(item);
            } else if open.waits() {
                if let Err(error) = open.fetch(reach) {
                    break End::Unread(error);
                }
            } else if open.items.len() >= units_min {
                break End::Complete;
            } else if is_writing {
                outcome = self.wait(queue, shares);
            } else if !queue.wait() {
                return false;
            }
        };
        let Open { batch, mut items, shares, .. } = open;
        let (mut units, why) = match end {
            End::Complete => {
                measure_queue(queue);
                let (prepared, mut changes) = batch.prepare();
                let news = changes.take_news();
                self.flights += 1;
                changes.remember(&mut writer.cache);
                self.tray.put(Job { prepared, news, items, shares });
                return true;
            }
            End::Not(units, why) => (units, why),
            // The batches before do not depend on it.
            End::Unread(why) => self.land().unwrap_or((Vec::new(), why)),
        };
        self.flights = 0;
        self.remembered = 0;
        units.extend(self.tray.clear().into_iter().flat_map(|job| job.items));
        units.append(&mut items);
        writer.cache.forget(true);
        match why {
            Why::Others(turn) => writer.carry_out(units, Some(turn), queue),
            Why::Failed => {
                self.wary = WARY_BATCHES;
                writer.carry_out(units, None, queue);
            }
            Why::Lost(what) => writer.turn_away(units, &what, queue),
        }
        true
    }

    /// Has the lane forget what was not used for long. What it forgets was used before it did so
    /// the last time, and all of that must be durable: it is read from the database from now on.
    fn age(&mut self, cache: &mut Cache) {
        if self.remembered == 0 {
            cache.age();
            self.remembered = self.flights;
        }
    }

    /// Keeps in mind that the first of the batches under way are durable.
    fn landed(&mut self, batches: usize) {
        self.flights -= batches;
        self.remembered = self.remembered.saturating_sub(batches);
    }

    /// What became of batches, if it is known.
    fn look(&mut self) -> Option<Outcome> {
        match self.outcomes.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => stop(GONE),
        }
    }

    /// Waits until something became of batches, or a unit is there that belongs into a transaction
    /// that has `shares`.
    fn wait(&mut self, queue: &mut Queue, shares: Shares) -> Option<Outcome> {
        let (outcomes, is_open) = (&mut self.outcomes, queue.is_open_to(shares));
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                outcome = outcomes.recv() => Some(outcome.unwrap_or_else(|| stop(GONE))),
                () = queue.arrival(), if is_open => None,
            }
        })
    }

    /// Waits until all batches are durable, or one is not written.
    fn land(&mut self) -> Option<(Vec<Box<dyn Item>>, Why)> {
        while self.flights > 0 {
            match self.outcomes.blocking_recv() {
                Some(Outcome::Durable(batches)) => self.landed(batches),
                Some(Outcome::Not(items, why)) => return Some((items, why)),
                None => stop(GONE),
            }
        }
        None
    }
}

/// A batch that takes units.
struct Open<'a> {
    batch: Batch<'a>,
    items: Vec<Box<dyn Item>>,
    shares: Shares,
    /// How many of them have run; those behind them wait for rows.
    ran: usize,
}

impl<'a> Open<'a> {
    fn new(batch: Batch<'a>) -> Self {
        Self { batch, items: Vec::new(), shares: Shares::default(), ran: 0 }
    }

    /// Whether units wait for rows.
    fn waits(&self) -> bool {
        self.ran < self.items.len()
    }

    /// Runs a unit, or lets it tell what it needs if others wait before it.
    fn take(&mut self, (rank, mut item): Ranked) {
        self.shares.count(rank);
        if self.waits() {
            self.batch.foresee(|unit| item.run(unit));
            self.items.push(item);
        } else {
            self.items.push(item);
            self.run();
        }
    }

    fn run(&mut self) {
        self.ran += run_in_order(&mut self.batch, &mut self.items[self.ran..]);
    }

    /// Fetches what units wait for, and goes on with them.
    fn fetch(&mut self, reach: &Reach) -> Result<(), Why> {
        reach.began(Step::Read);
        let fetched = self.batch.fetch_ahead();
        if let Err(error) = fetched {
            tracing::warn!(%error, units = self.items.len(), "a batch was not run ahead");
            // Who has waited for so long would wait for as long again. The step goes on until
            // something has become of the units, so that nobody else is let in meanwhile.
            let stood_still = reach.stands_still(Step::Read);
            return Err(if stood_still { Why::Lost(error.to_string()) } else { Why::Failed });
        }
        reach.ended(Step::Read);
        self.run();
        Ok(())
    }
}

/// How a batch ceases to be open.
enum End {
    /// It is to be written.
    Complete,
    /// The batch before it, of these units, is not written.
    Not(Vec<Box<dyn Item>>, Why),
    /// What its units need cannot be read.
    Unread(Why),
}

/// Why nothing can be written any more, if the thread that writes is gone: it had a batch, and
/// nobody knows what became of it.
const GONE: &str = "the thread that writes is gone";

/// Transactions that begin with the commit of the one before them, one after the other, until there
/// is a pause in which another server can take its turn: it waits for some 20 ms.
const CHAIN_MAX: usize = 8;

/// Writes what was run.
struct Scribe {
    pen: Pen,
    listeners: Listeners,
    reach: Arc<Reach>,
    tray: Arc<Tray>,
    outcomes: UnboundedSender<Outcome>,
    is_remote: bool,
}

/// What one transaction has.
struct Load {
    writing: Writing,
    rest: Rest,
}

/// What is done about a transaction that is durable, or was not written.
struct Rest {
    batches: usize,
    news: Vec<News>,
    items: Vec<Box<dyn Item>>,
    timed: Timed,
}

impl Load {
    fn of(jobs: Vec<Job>, reach: &Reach) -> Self {
        let (batches, mut prepared) = (jobs.len(), Vec::with_capacity(jobs.len()));
        let (mut news, mut items) = (Vec::with_capacity(batches), Vec::new());
        for job in jobs {
            prepared.push(job.prepared);
            news.push(job.news);
            items.extend(job.items);
        }
        measure(items.len());
        let rest = Rest { batches, news, items, timed: Timed::begin(reach) };
        Self { writing: Writing::of(prepared), rest }
    }
}

/// Units of which nothing is written, and why.
type Unwritten = (Vec<Box<dyn Item>>, Why);

impl Scribe {
    fn run(&self) {
        let mut next = self.tray.take();
        while let Some(jobs) = next.take() {
            next = match self.write(jobs) {
                Ok(next) => next,
                Err((items, why)) => {
                    self.tray.stop();
                    self.tell(Outcome::Not(items, why));
                    None
                }
            };
            next = next.or_else(|| self.tray.take());
        }
    }

    fn tell(&self, outcome: Outcome) {
        // The lane is there until it has closed the tray.
        let _ = self.outcomes.send(outcome);
    }

    /// Commits batches in one turn, or only takes the turn if somebody else has written since the
    /// one before. Where questions cross a network, what waits when they are to be committed
    /// begins with their commit, and is committed next. Gives what waits behind the last one.
    fn write(&self, jobs: Vec<Job>) -> Result<Option<Vec<Job>>, Unwritten> {
        let connection = &mut **hold(&self.pen);
        let shelf = &*self.listeners.shelf;
        let mut load = Load::of(jobs, &self.reach);
        let mut begun = connection.begin_with(load.writing.first_writes());
        let mut left = if self.is_remote { CHAIN_MAX } else { 0 };
        loop {
            let Load { mut writing, rest } = load;
            match begun {
                Ok(Turn::Own) => {}
                // For its units the transaction goes on until they are answered.
                Ok(turn) => return Err((rest.items, Why::Others(turn))),
                Err(error) => return Err(self.failed(connection, rest, error)),
            }
            if let Err(error) = writing.write(connection) {
                return Err(self.failed(connection, rest, error));
            }
            let goes_on = left > 0 && writing.changes();
            let Some(next) = goes_on.then(|| self.tray.take_more()).flatten() else {
                if let Err(error) = writing.commit(connection, shelf) {
                    return Err(self.failed(connection, rest, error));
                }
                // Whoever hears of it knows what is taken already.
                let next = self.tray.take_at_once();
                self.committed(rest);
                return Ok(next);
            };
            left -= 1;
            load = Load::of(next, &self.reach);
            let mut rest = Some(rest);
            let mut committed = || {
                rest.take().into_iter().for_each(|rest| self.committed(rest));
                self.reach.began(Step::Write);
            };
            match writing.commit_before(&mut load.writing, connection, shelf, &mut committed) {
                Ok(next) => begun = next,
                Err(error) => {
                    let behind = std::mem::take(&mut load.rest.items);
                    let mut rest = rest.take().unwrap_or(load.rest);
                    rest.items.extend(behind);
                    return Err(self.failed(connection, rest, error));
                }
            }
        }
    }

    /// Tells everybody that a transaction is durable.
    fn committed(&self, Rest { batches, news, items, timed }: Rest) {
        timed.end();
        self.reach.ended(Step::Write);
        news.into_iter().for_each(|news| self.listeners.tell(news));
        self.tell(Outcome::Durable(batches));
        items.into_iter().for_each(|item| item.answer());
    }

    /// Leaves a transaction that could not be committed.
    fn failed(&self, connection: &mut dyn Connection, rest: Rest, error: StoreError) -> Unwritten {
        rest.timed.end();
        let error = match error {
            StoreError::OutcomeUnknown(what) => stop(&what),
            error => connection.rollback().err().unwrap_or(error),
        };
        let Rest { items, .. } = rest;
        let why = match error {
            StoreError::Conflict(what) => {
                tracing::info!(what, units = items.len(), "a batch is run again");
                count_conflict();
                Why::Failed
            }
            error => {
                tracing::warn!(%error, units = items.len(), "a batch was not committed");
                match error {
                    StoreError::Unavailable(what) => Why::Lost(what),
                    _ => Why::Failed,
                }
            }
        };
        (items, why)
    }
}
