//! Questions to platforms: events that a platform is to answer at once, on their way from the
//! commit to whoever asks on this server.
//!
//! They are in memory only. A question that a crash has lost is not asked again: its time runs out,
//! and a payment that nobody approved is not made (reliability 5.3).

use domain::event::Event;
use tokio::sync::{Mutex, mpsc};

/// Questions that may wait to be asked, as many as units may wait in the lane. Whoever asks takes
/// them in microseconds, so that a longer line means that nobody does.
const WAITING_MAX: usize = 4_096;

/// Questions that were committed and not yet taken.
pub struct Questions {
    put: mpsc::Sender<Event>,
    waiting: Mutex<mpsc::Receiver<Event>>,
}

impl Default for Questions {
    fn default() -> Self {
        let (put, waiting) = mpsc::channel(WAITING_MAX);
        Self { put, waiting: Mutex::new(waiting) }
    }
}

impl Questions {
    /// Takes the next question, as soon as there is one. A wait that is given up loses none.
    pub async fn next(&self) -> Event {
        let next = self.waiting.lock().await.recv().await;
        next.expect("the other end lives as long as this one")
    }

    /// Hands a question on that is committed.
    pub(crate) fn put(&self, question: Event) {
        if self.put.try_send(question).is_err() {
            tracing::warn!("nobody asks the platforms here: a question is left to its time");
        }
    }
}
