//! Looks at single rows where every question crosses a network: whoever waits shares a question.
//!
//! A look asks for one row by its key. One statement answers it from one snapshot that is newer
//! than the look, and it does not matter who else is answered by the same statement. So a thread
//! takes all looks that wait and asks for all of them at once: a busy moment makes larger questions
//! instead of a longer queue, as on the commit lane.
//!
//! The same thread watches the database while nobody looks. A server may hang while all who miss it
//! read lists or are about to, of which nobody can tell how long they should take.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::pause::pause;
use crate::reach::{self, PROBE_PAUSE, Reach, Step};
use crate::sql::{Connection, Keys, Shape, Value};

/// Looks that may wait before new ones are refused.
const QUEUE_MAX: usize = 4_096;

/// Looks that are answered together. More would let the first wait for the last, whose rows are on
/// the same wire.
const TOGETHER_MAX: usize = 256;

/// The values of a row, its version last, if there is one.
type Found = Result<Option<Vec<Value>>, StoreError>;

/// How often the database is asked whether it is there while nobody looks. It costs one small
/// question, and that it stands still is seen so much later at most.
const WATCH_PAUSE: Duration = Duration::from_millis(500);

/// A row that somebody waits for.
struct Look {
    shape: &'static Shape,
    key: Value,
    reply: oneshot::Sender<Found>,
}

/// Those who wait for rows of one table, by key.
type Waiting = HashMap<Value, Vec<oneshot::Sender<Found>>>;

/// The way to those who look.
#[derive(Clone)]
pub(crate) struct Looks {
    queue: SyncSender<Look>,
}

impl Looks {
    /// Starts the thread. One has the largest questions, and no look waits longer than for the end
    /// of the question before its own.
    pub(crate) fn start(
        connection: Box<dyn Connection>,
        reach: Arc<Reach>,
    ) -> Result<(Self, std::thread::JoinHandle<()>), StoreError> {
        let (queue, waiting) = sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("looks".to_owned())
            .spawn(move || run(connection, &reach, &waiting))
            .map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))?;
        Ok((Self { queue }, thread))
    }

    /// The row with this key.
    pub(crate) async fn row(&self, shape: &'static Shape, key: Value) -> Found {
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(Look { shape, key, reply }).map_err(|refused| match refused {
            TrySendError::Full(_) => StoreError::Busy,
            TrySendError::Disconnected(_) => StoreError::Closed,
        })?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

fn run(mut connection: Box<dyn Connection>, reach: &Reach, waiting: &Receiver<Look>) {
    loop {
        let first = match waiting.recv_timeout(WATCH_PAUSE) {
            Ok(look) => Some(look),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let looks = first.into_iter().chain(waiting.try_iter()).take(TOGETHER_MAX);
        let looks: Vec<_> = looks.collect();
        let is_missed = !looks.is_empty();
        reach.began(Step::Look);
        if let Err(error @ StoreError::Unavailable(_)) = answer(&mut *connection, looks)
            // Whoever comes after the database was away for a while finds it again without a word,
            // unless it stands still: then each would wait for a deadline.
            && (is_missed || reach.stands_still(Step::Look))
        {
            tracing::warn!(%error, "the database was missed by those who look");
            wait_for_database(&mut *connection, &error, waiting);
        }
        reach.ended(Step::Look);
    }
}

/// Turns away whoever comes until the database answers or nobody can come any more. The look that
/// missed it has not ended up to then, so that soon nobody else is let in.
fn wait_for_database(
    connection: &mut dyn Connection,
    error: &StoreError,
    waiting: &Receiver<Look>,
) {
    loop {
        pause(PROBE_PAUSE);
        if reach::probe(connection).is_ok() {
            return;
        }
        loop {
            match waiting.try_recv() {
                Ok(look) => refuse(vec![look], error),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
    }
}

fn refuse(looks: Vec<Look>, error: &StoreError) {
    for look in looks {
        // Whoever asked may have gone away.
        let _ = look.reply.send(Err(error.clone()));
    }
}

fn by_table(looks: Vec<Look>) -> Vec<(&'static Shape, Waiting)> {
    let mut tables: Vec<(&'static Shape, Waiting)> = Vec::new();
    for Look { shape, key, reply } in looks {
        let known = tables.iter().position(|(known, _)| std::ptr::eq(*known, shape));
        let at = known.unwrap_or_else(|| {
            tables.push((shape, Waiting::new()));
            tables.len() - 1
        });
        tables[at].1.entry(key).or_default().push(reply);
    }
    tables
}

/// Asks for rows, and answers each who waits for one; asks something else if nobody does.
fn answer(connection: &mut dyn Connection, looks: Vec<Look>) -> Result<(), StoreError> {
    if looks.is_empty() {
        return reach::probe(connection);
    }
    if let Err(error) = connection.connect() {
        refuse(looks, &error);
        return Err(error);
    }
    let mut tables = by_table(looks);
    let keys = tables.iter().map(|(shape, waiting)| {
        let keys = waiting.keys().cloned().collect();
        Keys { shape, keys }
    });
    let wanted: Vec<_> = keys.collect();
    let asked = connection.fetch_all(&wanted, &mut |place, row| {
        let replies = row.first().and_then(|key| tables[place].1.remove(key));
        let mut replies = replies.unwrap_or_default();
        let last = replies.pop();
        for reply in replies {
            let _ = reply.send(Ok(Some(row.clone())));
        }
        if let Some(reply) = last {
            let _ = reply.send(Ok(Some(row)));
        }
        Ok(())
    });
    for reply in tables.into_iter().flat_map(|(_, waiting)| waiting.into_values().flatten()) {
        let _ = reply.send(asked.clone().map(|()| None));
    }
    asked
}
