//! Point reads: records by their keys. A thread with a connection of its own reads all that wait
//! at once: in one round trip, where there is a network.
//!
//! A record that is not in the memtable is read from its table, together with the end of the
//! journal. Rows that the memtable lacks up to there are taken, and it is looked into once more: a
//! record that is there now is newer. One that is not is as its table had it, if the memtable has
//! dropped nothing that the tables did not have when they were read: else all is looked for again.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::circuit_breaker::CircuitBreaker;
use crate::error::StoreError;
use crate::journal::tail::Ends;
use crate::keyring::Keyring;
use crate::memtable::shared::{Look, RecordKey, SharedMemtable, Values};
use crate::sql::{Connection, Keys, Shape, Value};
use crate::threads;

/// Reads that may wait before new ones are refused.
const QUEUE_MAX: usize = 4_096;

/// Reads that are answered together: some milliseconds of work in a database that is near.
const TOGETHER_MAX: usize = 256;

/// How often records are looked for while the memtable drops what the tables have. Each look takes
/// one round trip, which is shorter than a step of the projector.
const LOOKS_MAX: u32 = 20;

/// The values of a record as it was committed last.
pub(crate) enum Found {
    /// In the memtable, nothing sealed; none if it is gone.
    InMemtable(Option<Values>),
    /// In its table; none if it is not there.
    InTable(Option<Vec<Value>>),
}

/// A record that is looked for.
struct Point {
    shape: &'static Shape,
    name: RecordKey,
    reply: oneshot::Sender<Result<Found, StoreError>>,
}

/// A handle of the thread, which ends when the last one is dropped.
#[derive(Clone)]
pub(crate) struct PointReads {
    queue: mpsc::Sender<Point>,
    breaker: Arc<CircuitBreaker>,
}

impl PointReads {
    /// Starts the thread.
    pub(crate) fn start(
        connection: Box<dyn Connection>,
        keyring: Arc<Keyring>,
        memtable: Arc<SharedMemtable>,
        breaker: Arc<CircuitBreaker>,
    ) -> Result<(Self, JoinHandle<()>), StoreError> {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let reader = Reader { connection, keyring, memtable, breaker: Arc::clone(&breaker) };
        let thread = threads::start("point-reads", move || reader.run(waiting))?;
        Ok((Self { queue, breaker }, thread))
    }

    /// The record of a key, as it was committed last before this call or later, by whatever
    /// process.
    pub(crate) async fn find(
        &self,
        shape: &'static Shape,
        key: Value,
    ) -> Result<Found, StoreError> {
        self.breaker.check()?;
        let (reply, answer) = oneshot::channel();
        let name = RecordKey { table: shape.number, columns: vec![key] };
        self.queue.try_send(Point { shape, name, reply }).map_err(StoreError::from)?;
        answer
            .await
            .unwrap_or_else(|_| Err(StoreError::Panicked("a read did not come back".to_owned())))
    }
}

struct Reader {
    connection: Box<dyn Connection>,
    keyring: Arc<Keyring>,
    memtable: Arc<SharedMemtable>,
    breaker: Arc<CircuitBreaker>,
}

impl Reader {
    fn run(mut self, mut waiting: mpsc::Receiver<Point>) {
        let mut points = Vec::new();
        while waiting.blocking_recv_many(&mut points, TOGETHER_MAX) > 0 {
            match catch_unwind(AssertUnwindSafe(|| self.read(&points))) {
                Ok(Ok(found)) => {
                    for (point, found) in points.drain(..).zip(found) {
                        // The caller may have gone away.
                        let _ = point.reply.send(Ok(found));
                    }
                }
                Ok(Err(error)) => {
                    for point in points.drain(..) {
                        let _ = point.reply.send(Err(error.clone()));
                    }
                }
                Err(_) => {
                    tracing::error!("a read panicked");
                    points.clear();
                }
            }
        }
    }

    /// Reads, and opens the breaker if the connection was lost.
    fn read(&mut self, points: &[Point]) -> Result<Vec<Found>, StoreError> {
        // A read that came just before it opened would wait for another time-out.
        self.breaker.check()?;
        let found = self.connection.begin_point_read().and_then(|()| self.find(points));
        if !self.connection.is_connected() {
            let error = StoreError::Unavailable("the connection was lost".to_owned());
            self.breaker.open("reads", &error);
        }
        found
    }

    /// The records, each at its place.
    fn find(&mut self, points: &[Point]) -> Result<Vec<Found>, StoreError> {
        let names = || points.iter().map(|point| &point.name);
        for _ in 0..LOOKS_MAX {
            let before = self.memtable.look(names());
            let unknown = points.iter().zip(&before.found).filter(|(_, known)| known.is_none());
            let wanted = wanted(unknown.map(|(point, _)| point));
            let (ends, records) = self.fetch(&wanted)?;
            if !wanted.is_empty() && ends.applied < before.base {
                return Err(self.memtable.went_back());
            }
            if ends.last > self.memtable.end().seq {
                self.memtable.catch_up(&mut *self.connection, &self.keyring)?;
            }
            let Look { found, base } = self.memtable.look(names());
            let all = points.iter().zip(before.found).zip(found);
            let found = all.map(|((point, before), now)| match (before, now) {
                (_, Some(values)) => Some(Found::InMemtable(values)),
                (None, None) if base <= ends.applied => {
                    Some(Found::InTable(records.get(&point.name).cloned()))
                }
                // The tables have it since, or may have another one.
                (_, None) => None,
            });
            if let Some(found) = found.collect() {
                return Ok(found);
            }
        }
        Err(StoreError::Busy)
    }

    /// The ends of the journal, and after that rows of tables.
    fn fetch(&mut self, wanted: &[Keys]) -> Result<(Ends, Records), StoreError> {
        let (mut ends, mut records) = (Ends::default(), Records::new());
        self.connection.fetch_all(Ends::QUERY, wanted, &mut |place, values| {
            match place.checked_sub(1).and_then(|place| wanted.get(place)) {
                None => ends = Ends::read(values)?,
                // A record may have several rows.
                Some(Keys { shape, .. }) => {
                    let columns = values.iter().take(shape.record_key).cloned().collect();
                    let name = RecordKey { table: shape.number, columns };
                    records.entry(name).or_default().extend(values);
                }
            }
            Ok(())
        })?;
        Ok((ends, records))
    }
}

/// Records as their tables have them.
type Records = HashMap<RecordKey, Vec<Value>>;

/// The keys of points, each once, by their tables.
fn wanted<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<Keys> {
    let mut tables = BTreeMap::new();
    for Point { shape, name, .. } in points {
        let (_, keys) = tables.entry(name.table).or_insert_with(|| (*shape, Vec::new()));
        keys.extend(name.columns.iter().cloned());
    }
    let wanted = tables.into_values().map(|(shape, mut keys): (_, Vec<Value>)| {
        keys.sort_unstable();
        keys.dedup();
        Keys { shape, keys }
    });
    wanted.collect()
}
