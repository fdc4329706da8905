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
//! again, one batch after the other ([`Writer`]).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::queue::{Queue, Shares};
use super::writer::{Pen, Writer, hold, measure, stop, timed};
use super::{Item, Listeners};
use crate::cache::Cache;
use crate::error::StoreError;
use crate::events::Numbered;
use crate::reach::Reach;
use crate::sql::{Connection, Turn};
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
    /// Nothing of it remains; these are to be run again.
    Again(Vec<Box<dyn Item>>),
}

/// A batch that is being written.
struct Flight {
    written: oneshot::Receiver<Written>,
    /// Its events, which answers to later units may be parts of.
    events: Vec<Numbered>,
}

/// Runs units while others are written.
pub(super) struct Ahead {
    /// What units read from.
    reader: Box<dyn Connection>,
    /// Waits for several things at once.
    runtime: Runtime,
    jobs: SyncSender<Job>,
    scribe: JoinHandle<()>,
}

impl Ahead {
    /// Starts the thread that writes.
    pub(super) fn start(reader: Box<dyn Connection>, writer: &Writer) -> Result<Self, StoreError> {
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
        Ok(Self { reader, runtime, jobs, scribe })
    }

    /// Works the queue off until it is closed.
    pub(super) fn run(mut self, mut writer: Writer, mut queue: Queue) {
        let mut flight = None;
        while self.next(&mut writer, &mut queue, &mut flight) {}
        drop(self.jobs);
        // One that panicked has nothing left to close.
        let _ = self.scribe.join();
        writer.settle();
    }

    /// Runs a batch, and hands it over once the one before it is written; false once the store is
    /// closed and everything is done.
    fn next(
        &mut self,
        writer: &mut Writer,
        queue: &mut Queue,
        flight: &mut Option<Flight>,
    ) -> bool {
        writer.cache.age();
        let (mut items, mut shares) = (Vec::new(), Shares::default());
        let (mut written, events) = match flight.take() {
            Some(Flight { written, events }) => (Some(written), events),
            None => (None, Vec::new()),
        };
        let mut batch = Batch::new(&mut *self.reader, &writer.keyring, &mut writer.cache, &events);
        let mut landed = None;
        let again = loop {
            if landed.is_none() {
                landed = written.as_mut().and_then(look);
            }
            match landed.take() {
                Some(Written::Again(units)) => break Some(units),
                Some(Written::Durable) => {
                    written = None;
                    // Whoever writes is not kept waiting for units that come only now.
                    if !items.is_empty() {
                        break None;
                    }
                }
                None => {}
            }
            if let Some(mut item) = queue.take(&mut shares) {
                batch.run(|unit| item.run(unit));
                items.push(item);
                continue;
            }
            match &mut written {
                Some(written) => landed = self.runtime.block_on(either(written, queue, &shares)),
                None if !items.is_empty() => break None,
                None if !queue.wait() => return false,
                None => {}
            }
        };
        measure(items.len(), queue);
        match again {
            Some(units) => {
                writer.cache = Cache::default();
                writer.listeners.callers.changed();
                for items in [units, items] {
                    // What kept them out is their answer.
                    let _ = writer.carry_out(items);
                }
            }
            None => {
                let (prepared, mut changes) = batch.prepare();
                let (news, events) = (changes.take_news(), changes.take_events());
                changes.remember(&mut writer.cache);
                let (written, receiver) = oneshot::channel();
                let job = Job { prepared, news, items, written };
                if self.jobs.send(job).is_err() {
                    stop(GONE);
                }
                *flight = Some(Flight { written: receiver, events });
            }
        }
        true
    }
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
                Ok(true) => {
                    self.listeners.tell(news);
                    let _ = written.send(Written::Durable);
                    items.into_iter().for_each(|item| item.answer());
                }
                Ok(false) => drop(written.send(Written::Again(items))),
                Err(error) => {
                    tracing::warn!(%error, units = items.len(), "a batch was not committed");
                    let _ = written.send(Written::Again(items));
                }
            }
        }
    }

    /// Commits a batch; false if somebody else has written since the one before.
    fn write(&self, prepared: Prepared) -> Result<bool, StoreError> {
        let connection = &mut **hold(&self.pen);
        if connection.begin()? != Turn::Own {
            connection.rollback()?;
            return Ok(false);
        }
        match prepared.commit(connection) {
            Ok(()) => Ok(true),
            Err(StoreError::OutcomeUnknown(what)) => stop(&what),
            Err(error) => {
                connection.rollback()?;
                Err(error)
            }
        }
    }
}
