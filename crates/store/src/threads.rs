//! The threads of a store: each waits for a disk or a network, which a task must not.

use std::thread::{Builder, JoinHandle};

use crate::error::StoreError;

/// The threads of a store, which finish once every [`crate::Store`] handle is dropped.
pub struct Threads(pub(crate) Vec<JoinHandle<()>>);

impl Threads {
    /// Waits until everything that was queued is done and the connections are closed.
    pub fn join(self) {
        for thread in self.0 {
            // A thread that panicked has nothing left to close.
            let _ = thread.join();
        }
    }
}

/// Starts a thread with a name, which the tools of the system show.
pub(crate) fn start(
    name: impl Into<String>,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StoreError> {
    let started = Builder::new().name(name.into()).spawn(work);
    started.map_err(|error| StoreError::Engine(format!("cannot start a thread: {error}")))
}
