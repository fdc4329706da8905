//! Looks at single rows where every question crosses a network: whoever waits shares a question.
//!
//! A look asks for one row by its key. One statement answers it from one snapshot that is newer
//! than the look, and it does not matter who else is answered by the same statement. So a thread
//! takes all looks that wait and asks for all of them at once: a busy moment makes larger questions
//! instead of a longer queue, as on the commit lane.
//!
//! With each question goes another one: whether any other server has written since the last. If
//! none has, what is on the shelf is what the database has, and who finds his row there need not
//! ask for it (docs/decisions/0044).
//!
//! The same thread watches the database while nobody looks. A server may hang while all who miss it
//! read lists or are about to, of which nobody can tell how long they should take.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::time::Duration;

use domain::transaction::Transaction;
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::pause::pause;
use crate::reach::{self, PROBE_PAUSE, Reach, Step};
use crate::shelf::Shelf;
use crate::sql::{Connection, Keys, Shape, Value};

/// Looks that may wait before new ones are refused.
const QUEUE_MAX: usize = 4_096;

/// Looks that are answered together. More would let the first wait for the last, whose rows are on
/// the same wire.
const TOGETHER_MAX: usize = 256;

/// The values of a row, its version last, if there is one.
type Row = Option<Vec<Value>>;

/// Who gets an answer.
type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// How often the database is asked whether it is there while nobody looks. It costs one small
/// question, and that it stands still is seen so much later at most.
const WATCH_PAUSE: Duration = Duration::from_millis(500);

/// What somebody waits for.
enum Look {
    /// A row.
    Row { shape: &'static Shape, key: Value, reply: Reply<Row> },
    /// Whether the shelf is right.
    Shelf { reply: Reply<bool> },
}

/// Those who wait for rows of one table, by key.
type Waiting = HashMap<Value, Vec<Reply<Row>>>;

/// The way to those who look.
#[derive(Clone)]
pub(crate) struct Looks {
    queue: SyncSender<Look>,
    reach: Arc<Reach>,
    alone: Arc<AtomicBool>,
}

impl Looks {
    /// Starts the thread. One has the largest questions, and no look waits longer than for the end
    /// of the question before its own. `member` has this server's turns, and commits of others have
    /// the shelf cleared.
    pub(crate) fn start(
        connection: Box<dyn Connection>,
        member: i64,
        reach: Arc<Reach>,
        shelf: Arc<Shelf<Transaction>>,
    ) -> Result<(Self, std::thread::JoinHandle<()>), StoreError> {
        let (queue, waiting) = sync_channel(QUEUE_MAX);
        let alone = Arc::new(AtomicBool::new(false));
        let looks = Self { queue, reach: Arc::clone(&reach), alone: Arc::clone(&alone) };
        let looker = Looker { connection, member, reach, shelf, alone };
        let thread = std::thread::Builder::new()
            .name("looks".to_owned())
            .spawn(move || looker.run(&waiting))
            .map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))?;
        Ok((looks, thread))
    }

    /// The row with this key.
    pub(crate) async fn row(&self, shape: &'static Shape, key: Value) -> Result<Row, StoreError> {
        self.ask(|reply| Look::Row { shape, key, reply }).await
    }

    /// Whether the shelf was right at a moment after this was asked: nobody else had written since
    /// it was last looked at.
    pub(crate) async fn is_shelf_right(&self) -> Result<bool, StoreError> {
        self.ask(|reply| Look::Shelf { reply }).await
    }

    /// Whether nobody else had written when somebody looked last: if others write all the time,
    /// asking for the shelf costs a question more each time.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    async fn ask<T>(&self, look: impl FnOnce(Reply<T>) -> Look) -> Result<T, StoreError> {
        self.reach.check()?;
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(look(reply)).map_err(|refused| match refused {
            TrySendError::Full(_) => StoreError::Busy,
            TrySendError::Disconnected(_) => StoreError::Closed,
        })?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// Looks for all who wait.
struct Looker {
    connection: Box<dyn Connection>,
    member: i64,
    reach: Arc<Reach>,
    shelf: Arc<Shelf<Transaction>>,
    alone: Arc<AtomicBool>,
}

impl Looker {
    fn run(mut self, waiting: &Receiver<Look>) {
        loop {
            let first = match waiting.recv_timeout(WATCH_PAUSE) {
                Ok(look) => Some(look),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let looks = first.into_iter().chain(waiting.try_iter()).take(TOGETHER_MAX);
            let looks: Vec<_> = looks.collect();
            let is_missed = !looks.is_empty();
            self.reach.began(Step::Look);
            if let Err(error @ StoreError::Unavailable(_)) = self.answer(looks)
                // Whoever comes after the database was away for a while finds it again without a
                // word, unless it stands still: then each would wait for a deadline.
                && (is_missed || self.reach.stands_still(Step::Look))
            {
                tracing::warn!(%error, "the database was missed by those who look");
                wait_for_database(&mut *self.connection, &error, waiting);
            }
            self.reach.ended(Step::Look);
        }
    }

    /// Asks for rows, and answers each who waits for one; asks something else if nobody does.
    fn answer(&mut self, looks: Vec<Look>) -> Result<(), StoreError> {
        if looks.is_empty() {
            return reach::probe(&mut *self.connection);
        }
        if let Err(error) = self.connection.connect() {
            refuse(looks, &error);
            return Err(error);
        }
        let (mut tables, shelf) = sorted(looks);
        let keys = tables.iter().map(|(shape, waiting)| {
            let keys = waiting.keys().cloned().collect();
            Keys { shape, keys }
        });
        let wanted: Vec<_> = keys.collect();
        let asked = self.connection.look(self.member, &wanted, &mut |place, row| {
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
        let is_alone = matches!(asked, Ok(true));
        if !is_alone {
            self.shelf.clear();
        }
        self.alone.store(is_alone, Ordering::Relaxed);
        for reply in shelf {
            let _ = reply.send(asked.clone());
        }
        for reply in tables.into_iter().flat_map(|(_, waiting)| waiting.into_values().flatten()) {
            let _ = reply.send(asked.clone().map(|_| None));
        }
        asked.map(drop)
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
        match look {
            Look::Row { reply, .. } => drop(reply.send(Err(error.clone()))),
            Look::Shelf { reply } => drop(reply.send(Err(error.clone()))),
        }
    }
}

/// Those who wait, by what they wait for.
fn sorted(looks: Vec<Look>) -> (Vec<(&'static Shape, Waiting)>, Vec<Reply<bool>>) {
    let (mut tables, mut shelf) = (Vec::<(&'static Shape, Waiting)>::new(), Vec::new());
    for look in looks {
        match look {
            Look::Row { shape, key, reply } => {
                let known = tables.iter().position(|(known, _)| std::ptr::eq(*known, shape));
                let at = known.unwrap_or_else(|| {
                    tables.push((shape, Waiting::new()));
                    tables.len() - 1
                });
                tables[at].1.entry(key).or_default().push(reply);
            }
            Look::Shelf { reply } => shelf.push(reply),
        }
    }
    (tables, shelf)
}
