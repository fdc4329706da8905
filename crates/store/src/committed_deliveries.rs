//! Deliveries fed from the commit to the webhook worker of this server, so that it needs no read of
//! the tables for an endpoint that keeps up.
//!
//! They are in memory only, and the tables have them too: the worker reads from there what is
//! missing here.

use std::collections::VecDeque;

use domain::delivery::Delivery;
use domain::event::Event;
use domain::id::PlatformId;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Entries that wait at most, with events of a kilobyte: a second of full load.
const WAITING_MAX: usize = 8_192;

/// A change that concerns the worker.
#[derive(Debug, Clone)]
pub enum Committed {
    /// A delivery is pending, while the platform's outbox has this revision.
    Delivery(Delivery, Event, i64),
    /// The outbox of a platform has this revision.
    Outbox(PlatformId, i64),
}

/// Changes that were committed and not yet taken.
#[derive(Default)]
pub struct CommittedDeliveries {
    waiting: Mutex<Waiting>,
    added: Notify,
}

#[derive(Default)]
struct Waiting {
    entries: VecDeque<Committed>,
    is_incomplete: bool,
}

impl CommittedDeliveries {
    /// Takes what was committed since the last call, in its order; nothing if some of it was
    /// dropped.
    pub fn take(&self) -> Option<VecDeque<Committed>> {
        let Waiting { entries, is_incomplete } = std::mem::take(&mut *self.waiting.lock());
        (!is_incomplete).then_some(entries)
    }

    /// Notified after a commit that added something.
    pub fn added(&self) -> &Notify {
        &self.added
    }

    /// Hands on what is committed.
    pub(crate) fn put(&self, committed: Vec<Committed>) {
        if committed.is_empty() {
            return;
        }
        {
            let waiting = &mut *self.waiting.lock();
            if waiting.entries.len() + committed.len() > WAITING_MAX {
                // No worker takes them, or one that reads the tables anyway.
                (waiting.entries, waiting.is_incomplete) = (VecDeque::new(), true);
            }
            if !waiting.is_incomplete {
                waiting.entries.extend(committed);
            }
        }
        self.added.notify_one();
    }
}
