//! Point reads: records by their keys. A thread with a connection of its own reads all that wait
//! at once: in one round trip, where there is a network.
//!
//! A record is looked for in the memtable, and then in the tables. They are read after the look, so
//! that they have all that the memtable had dropped then, unless they went back. The end of the
//! journal is read before them: if the memtable was not as far at the look, rows have come in
//! between, and all is looked for again.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::circuit_breaker::CircuitBreaker;
use crate::error::StoreError;
use crate::journal::tail::Ends;
use crate::keyring::Keyring;
use crate::memtable::shared::{RecordKey, SharedMemtable, Values};
use crate::sql::{Connection, Keys, Shape, Value};

/// Reads that may wait before new ones are refused.
const QUEUE_MAX: usize = 4_096;

/// Reads that are answered together: some milliseconds of work in a database that is near.
const TOGETHER_MAX: usize = 256;

/// How often records are looked for while rows are appended meanwhile. Each look takes one round
/// trip, which is shorter than a commit.
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
        let thread = std::thread::Builder::new()
            .name("point-reads".to_owned())
            .spawn(move || reader.run(waiting))
            .map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))?;
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
        for _ in 0..LOOKS_MAX {
            // Before the look: they only grow.
            let (base, end) = (self.memtable.base(), self.memtable.end().seq);
            let known: Vec<_> = points.iter().map(|it| self.memtable.get(&it.name)).collect();
            let unknown = points.iter().zip(&known).filter(|(_, known)| known.is_none());
            let wanted = wanted(unknown.map(|(point, _)| point));
            let (mut ends, mut records) = (Ends::default(), HashMap::<_, Vec<Value>>::new());
            self.connection.fetch_all(Ends::QUERY, &wanted, &mut |place, values| {
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
            if ends.last > end {
                if ends.last > self.memtable.end().seq {
                    self.memtable.catch_up(&mut *self.connection, &self.keyring)?;
                }
                continue;
            }
            if !wanted.is_empty() && ends.applied < base {
                return Err(self.memtable.went_back());
            }
            let found = points.iter().zip(known).map(|(point, known)| match known {
                Some(values) => Found::InMemtable(values),
                None => Found::InTable(records.get(&point.name).cloned()),
            });
            return Ok(found.collect());
        }
        Err(StoreError::Busy)
    }
}

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
