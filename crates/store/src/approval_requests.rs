//! Approval requests: events that a platform is to answer at once, fed from the commit to the tasks
//! of this server that send them.
//!
//! They are in memory only. A request that a crash has lost is not sent again: its deadline passes,
//! and a payment without an approval is not made (reliability 5.3).

use domain::event::Event;
use tokio::sync::{Mutex, mpsc};

/// Requests that may wait to be sent, as many as units may wait for a commit. Taking one takes
/// microseconds, so a longer queue means that no task takes them.
const WAITING_MAX: usize = 4_096;

/// Approval requests that were committed and not yet taken.
pub struct ApprovalRequests {
    put: mpsc::Sender<Event>,
    waiting: Mutex<mpsc::Receiver<Event>>,
}

impl Default for ApprovalRequests {
    fn default() -> Self {
        let (put, waiting) = mpsc::channel(WAITING_MAX);
        Self { put, waiting: Mutex::new(waiting) }
    }
}

impl ApprovalRequests {
    /// Takes the next request, as soon as there is one. A wait that is given up loses none.
    pub async fn next(&self) -> Event {
        let next = self.waiting.lock().await.recv().await;
        next.expect("the other end lives as long as this one")
    }

    /// Hands on a request that is committed.
    pub(crate) fn put(&self, request: Event) {
        if self.put.try_send(request).is_err() {
            tracing::warn!("approval request dropped, its deadline decides: the queue is full");
        }
    }
}
