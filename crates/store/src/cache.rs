//! Records that the writer thread remembers between batches, as they were committed last, so that a
//! payment between accounts that were used before reads nothing.
//!
//! It is right because only the writer thread writes. A batch that is committed is remembered as it
//! was written. One that is not is forgotten with everything else, and so is everything after
//! another process has appended to the journal.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

/// Rows of one table, if the table does not say otherwise ([`crate::record::Record::CACHED_MAX`]).
/// Payments under way and their accounts must fit: some seconds of full load. A transaction takes
/// about a kilobyte.
pub(crate) const CACHED_MAX: usize = 40_960;

/// A bounded cache whose entries stay for a batch once the batch has used them: a row that was read
/// must be known until it is written.
pub struct BatchCache<K, V> {
    batch: HashMap<K, V>,
    cache: quick_cache::unsync::Cache<K, V>,
}

impl<K: Eq + Hash + Clone, V: Clone> BatchCache<K, V> {
    pub(crate) fn new(max: usize) -> Self {
        Self { batch: HashMap::new(), cache: quick_cache::unsync::Cache::new(max) }
    }

    /// The value of a key, which this batch uses now.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        if !self.batch.contains_key(key) {
            let value = self.cache.get(key)?.clone();
            self.batch.insert(key.clone(), value);
        }
        self.batch.get(key)
    }

    /// Remembers a value.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.batch.insert(key, value);
    }

    /// Lets the values of this batch be evicted from now on.
    pub(crate) fn end_batch(&mut self) {
        for (key, value) in self.batch.drain() {
            self.cache.insert(key, value);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.batch.clear();
        self.cache.clear();
    }
}

impl<K, V> fmt::Debug for BatchCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_keeps_what_it_has_used_and_others_are_evicted() {
        let mut cache = BatchCache::new(8);
        (0..1_000).for_each(|key| cache.insert(key, key));
        assert!((0..1_000).all(|key| cache.get(&key).is_some()), "they are of this batch");
        cache.end_batch();
        let kept = (0..1_000).filter(|key| cache.get(key).is_some()).count();
        assert!((1..=16).contains(&kept), "{kept} of 1000 are kept");
    }

    #[test]
    fn what_is_cleared_is_not_known() {
        let mut cache = BatchCache::new(8);
        cache.insert(1, 1);
        cache.end_batch();
        cache.insert(2, 2);
        cache.clear();
        assert!(cache.get(&1).is_none() && cache.get(&2).is_none());
    }
}
