//! Limits of requests of ours that are under way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::id::PlatformId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Approval requests to one platform that are under way at a time. One that answers in 100 ms
/// decides on a thousand payments a second, and one that hangs takes up no more connections than
/// these.
const APPROVALS_AT_ONCE_MAX: usize = 100;

/// Key documents that are fetched at a time, for requests of others and for ours. Each request of
/// another institution makes us fetch one from a domain of its choice, for seconds at most. One
/// address may not make so many requests within these seconds ([`crate::strangers`]).
const KEY_FETCHES_MAX: usize = 256;

/// The same from one domain. More wait for those: a domain that answers does so within
/// milliseconds, and one that hangs takes up no more than these.
const KEY_FETCHES_OF_DOMAIN_MAX: usize = 4;

/// The key documents that are being fetched.
pub(crate) struct KeyFetches {
    /// For requests of others, which choose the domain.
    pub(crate) for_others: Bulkhead,
    /// For our own requests: no stranger takes their places.
    pub(crate) for_us: Bulkhead,
}

impl Default for KeyFetches {
    fn default() -> Self {
        let bulkhead = || Bulkhead::new(KEY_FETCHES_MAX, KEY_FETCHES_OF_DOMAIN_MAX);
        Self { for_others: bulkhead(), for_us: bulkhead() }
    }
}

/// Places for work under way, with a limit for each name and one for all (a bulkhead).
pub(crate) struct Bulkhead {
    all: Arc<Semaphore>,
    each_max: usize,
    each: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A place in a bulkhead. It is free again when this is dropped.
pub(crate) struct Place<'a> {
    // Dropped before the name, so that the name's last place is seen to be free.
    _of_name: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
    _name: Name<'a>,
}

/// A name with work under way or waiting. The last one takes its row along.
struct Name<'a> {
    bulkhead: &'a Bulkhead,
    name: String,
    places: Option<Arc<Semaphore>>,
}

impl Bulkhead {
    pub(crate) fn new(all_max: usize, each_max: usize) -> Self {
        let all = Arc::new(Semaphore::new(all_max));
        Self { all, each_max, each: Mutex::default() }
    }

    /// A place, for which work of the same name may be waited for; nothing if there is none within
    /// this time, or if the limit for all is reached.
    pub(crate) async fn enter(&self, name: &str, within: Duration) -> Option<Place<'_>> {
        let places = {
            let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
            let places = each.entry(name.to_owned());
            Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(self.each_max))))
        };
        let waiting = Arc::clone(&places).acquire_owned();
        let name = Name { bulkhead: self, name: name.to_owned(), places: Some(places) };
        let of_name = tokio::time::timeout(within, waiting).await.ok()?.ok()?;
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Place { _of_name: of_name, _of_all: of_all, _name: name })
    }
}

impl Drop for Name<'_> {
    fn drop(&mut self) {
        let mut each = self.bulkhead.each.lock().unwrap_or_else(PoisonError::into_inner);
        self.places = None;
        if each.get(&self.name).is_some_and(|places| Arc::strong_count(places) == 1) {
            each.remove(&self.name);
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_takes_no_more_than_its_places_and_leaves_no_row() {
        let bulkhead = Bulkhead::new(5, 2);
        let enter = async |name: &str| bulkhead.enter(name, Duration::ZERO).await;
        let (first, second) = (enter("hangs").await, enter("hangs").await);
        assert!(first.is_some() && second.is_some());
        assert!(enter("hangs").await.is_none(), "no third of one name");
        let others = [enter("a").await, enter("b").await, enter("c").await];
        assert!(others.iter().all(Option::is_some), "the others have their own");
        assert!(enter("d").await.is_none(), "no sixth of all");
        drop(first);
        assert!(enter("hangs").await.is_some());
        drop((second, others));
        assert!(bulkhead.each.lock().expect("no panic").is_empty());
    }

    #[tokio::test]
    async fn a_place_that_is_freed_goes_to_those_who_wait() {
        let bulkhead = Bulkhead::new(5, 1);
        let first = bulkhead.enter("one", Duration::ZERO).await;
        let later = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        let (second, ()) = tokio::join!(bulkhead.enter("one", Duration::from_secs(60)), later);
        assert!(second.is_some());
    }
}
