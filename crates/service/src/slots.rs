//! Limits of requests of ours that are under way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::id::PlatformId;
use tokio::sync::Semaphore;

/// Approval requests to one platform that are under way at a time. One that answers in 100 ms
/// decides on a thousand payments a second, and one that hangs takes up no more connections than
/// these.
const APPROVALS_AT_ONCE_MAX: usize = 100;

/// Key documents that are fetched at a time. Each request makes us fetch those of a domain of its
/// choice, for seconds at most.
pub(crate) const KEY_FETCHES_MAX: usize = 64;

/// The approval requests under way to each platform.
#[derive(Default)]
pub(crate) struct Slots(Mutex<HashMap<PlatformId, Arc<Semaphore>>>);

impl Slots {
    pub(crate) fn of(&self, platform: PlatformId) -> Arc<Semaphore> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entry(platform);
        Arc::clone(slot.or_insert_with(|| Arc::new(Semaphore::new(APPROVALS_AT_ONCE_MAX))))
    }
}
