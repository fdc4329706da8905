//! Running ahead: units run on one thread while the batch before them is written and flushed on
//! another one, so that neither waits for the other (docs/decisions/0027).
//!
//! A batch is open as long as the one before it is being written. Its units see what that one will
//! have left, from the lane's memory; what is not there, they read on a connection of their own,
//! where everything older is. No answer leaves before its own batch is durable, and batches become
//! durable in their order, so no answer can depend on anything that is not.
//!
//! If a batch cannot be written, or somebody else has written meanwhile, what was run ahead is
//! worth nothing: the lane forgets everything, and its units and those of the next batch are run
//! again together, in their turn ([`Writer`]). While others write as often as we do, that is all
//! that is done.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::queue::{Queue, Shares};
use super::writer::{Pen, Writer, count_conflict, hold, measure, run_in_order, stop, timed};
use super::{Item, Listeners};
use crate::error::StoreError;
use crate::events::Numbered;
use crate::reach::{Reach, Step};
use crate::sql::Turn;
use crate::unit::{Batch, News, Prepared};

/// A batch that was run and is to be written.
struct Job {
    prepared: Prepared,
    news: News,
    items: Vec<Box<dyn Item>>,
    written: oneshot::Sender<Written>,
}

/// What became of it.
enum Written {
    /// It is durable, and its units are answered.
    Durable,
    /// Nothing of it remains.
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

/// A batch that is being written.
struct Flight {
    written: oneshot::Receiver<Written>,
    /// Its events, which answers to later units may be parts of.
    events: Vec<Numbered>,
}

/// Runs units while others are written.
pub(super) struct Ahead {
    /// Waits for several things at once.
    runtime: Runtime,
    jobs: SyncSender<Job>,
    scribe: JoinHandle<()>,
}

impl Ahead {
    /// Starts the thread that writes.
    pub(super) fn start(writer: &Writer) -> Result<Self, StoreError> {
        let cannot = |error| StoreError::Engine(format!("cannot start a thread: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(cannot)?;
        // There is never more than one.
        let (jobs, handed_over) = sync_channel(1);
        let scribe = Scribe {
            pen: Arc::clone(&writer.pen),
            listeners: writer.listeners.clone(),
            reach: Arc::clone(&writer.reach),
        };
        let scribe = std::thread::Builder::new()
            .name("commit-writer".to_owned())
            .spawn(move || scribe.run(&handed_over))
            .map_err(cannot)?;
        Ok(Self { runtime, jobs, scribe })
    }

    /// Works the queue off until it is closed.
    pub(super) fn run(self, mut writer: Writer, mut queue: Queue) {
        let mut flight = None;
        loop {
            let goes_on = match flight.take() {
                None if writer.has_company() => writer.next(&mut queue),
                before => self.next(&mut writer, &mut queue, before, &mut flight),
            };
            if !goes_on {
                break;
            }
        }
        drop(self.jobs);
        // One that panicked has nothing left to close.
        let _ = self.scribe.join();
        writer.settle();
    }

    /// Runs a batch, and hands it over once the one before it is written; false once the store is
    /// closed and everything is done.
    fn next(
        &self,
        writer: &mut Writer,
        queue: &mut Queue,
        before: Option<Flight>,
        flight: &mut Option<Flight>,
    ) -> bool {
        writer.cache.age();
        let (mut written, events) = match before {
            Some(Flight { written, events }) => (Some(written), events),
            None => (None, Vec::new()),
        };
        let Writer { reader, keyring, cache, reach, .. } = &mut *writer;
        let mut open = Open::new(Batch::new(&mut **reader, keyring, cache, &events));
        let (mut shares, mut landed, mut is_full) = (Shares::default(), None, false);
        let end = loop {
            if landed.is_none() {
                landed = written.as_mut().and_then(look);
            }
            match landed.take() {
                Some(Written::Not(items, why)) => break End::Not(items, why),
                Some(Written::Durable) => {
                    written = None;
                    // Whoever writes is not kept waiting for units that come only now.
                    is_full = !open.items.is_empty();
                }
                None => {}
            }
            let next = if is_full { None } else { queue.take(&mut shares) };
            if let Some(item) = next {
                open.take(item);
            } else if open.waits() {
                if let Err(error) = open.fetch(reach) {
                    break End::Unread(error);
                }
            } else if let Some(written) = &mut written {
                landed = self.runtime.block_on(either(written, queue, &shares));
            } else if !open.items.is_empty() {
                break End::Complete;
            } else if !queue.wait() {
                return false;
            }
        };
        let Open { batch, mut items, .. } = open;
        let (mut units, why) = match end {
            End::Complete => {
                measure(items.len(), queue);
                let (prepared, mut changes) = batch.prepare();
                let (news, events) = (changes.take_news(), changes.take_events());
                changes.remember(&mut writer.cache);
                *flight = Some(self.hand_over(prepared, news, items, events));
                return true;
            }
            End::Not(units, why) => (units, why),
            // The batch before does not depend on it.
            End::Unread(why) => match written.map(|written| self.runtime.block_on(written)) {
                None | Some(Ok(Written::Durable)) => (Vec::new(), why),
                Some(Ok(Written::Not(units, why))) => (units, why),
                Some(Err(_)) => stop(GONE),
            },
        };
        units.append(&mut items);
        writer.cache.forget(true);
        match why {
            Why::Others(turn) => writer.carry_out(units, Some(turn), queue),
            Why::Failed => writer.carry_out(units, None, queue),
            Why::Lost(what) => writer.turn_away(units, &what, queue),
        }
        true
    }

    fn hand_over(
        &self,
        prepared: Prepared,
        news: News,
        items: Vec<Box<dyn Item>>,
        events: Vec<Numbered>,
    ) -> Flight {
        let (written, receiver) = oneshot::channel();
        if self.jobs.send(Job { prepared, news, items, written }).is_err() {
            stop(GONE);
        }
        Flight { written: receiver, events }
    }
}

/// A batch that takes units.
struct Open<'a> {
    batch: Batch<'a>,
    items: Vec<Box<dyn Item>>,
    /// How many of them have run; those behind them wait for rows.
    ran: usize,
}

impl<'a> Open<'a> {
    fn new(batch: Batch<'a>) -> Self {
        Self { batch, items: Vec::new(), ran: 0 }
    }

    /// Whether units wait for rows.
    fn waits(&self) -> bool {
        self.ran < self.items.len()
    }

    /// Runs a unit, or lets it tell what it needs if others wait before it.
    fn take(&mut self, mut item: Box<dyn Item>) {
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
        let stood_still = reach.stands_still(Step::Read);
        reach.ended(Step::Read);
        fetched.map_err(|error| {
            tracing::warn!(%error, units = self.items.len(), "a batch was not run ahead");
            // Who has waited for so long would wait for as long again.
            if stood_still { Why::Lost(error.to_string()) } else { Why::Failed }
        })?;
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

/// What became of a batch, if it is known.
fn look(written: &mut oneshot::Receiver<Written>) -> Option<Written> {
    match written.try_recv() {
        Ok(outcome) => Some(outcome),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Closed) => stop(GONE),
    }
}

/// Waits until the batch is written or a unit is there that belongs into one that has `shares`.
async fn either(
    written: &mut oneshot::Receiver<Written>,
    queue: &mut Queue,
    shares: &Shares,
) -> Option<Written> {
    let is_open = queue.is_open_to(shares);
    tokio::select! {
        biased;
        outcome = written => Some(outcome.unwrap_or_else(|_| stop(GONE))),
        _ = queue.arrival(), if is_open => None,
    }
}

/// Writes what was run.
struct Scribe {
    pen: Pen,
    listeners: Listeners,
    reach: Arc<Reach>,
}

impl Scribe {
    fn run(&self, jobs: &Receiver<Job>) {
        while let Ok(Job { prepared, news, items, written }) = jobs.recv() {
            // The lane is there until it has dropped its end of the queue.
            match timed(&self.reach, || self.write(prepared)) {
                Ok(Turn::Own) => {
                    self.reach.ended(Step::Write);
                    self.listeners.tell(news);
                    let _ = written.send(Written::Durable);
                    items.into_iter().for_each(|item| item.answer());
                }
                // For its units the batch goes on until they are answered.
                Ok(turn) => drop(written.send(Written::Not(items, Why::Others(turn)))),
                Err(error) => {
                    tracing::warn!(%error, units = items.len(), "a batch was not committed");
                    let why = match error {
                        StoreError::Unavailable(what) => Why::Lost(what),
                        StoreError::Conflict(_) => {
                            count_conflict();
                            Why::Failed
                        }
                        _ => Why::Failed,
                    };
                    let _ = written.send(Written::Not(items, why));
                }
            }
        }
    }

    /// Commits a batch in its turn, or only takes the turn if somebody else has written since the
    /// one before.
    fn write(&self, prepared: Prepared) -> Result<Turn, StoreError> {
        let connection = &mut **hold(&self.pen);
        let turn = connection.begin()?;
        if turn != Turn::Own {
            return Ok(turn);
        }
        match prepared.commit(connection) {
            Ok(()) => Ok(turn),
            Err(StoreError::OutcomeUnknown(what)) => stop(&what),
            Err(error) => {
                connection.rollback()?;
                Err(error)
            }
        }
    }
}
