//! Counters of a minute for each key. Memory is bounded.

use std::collections::HashMap;
use std::hash::Hash;

use domain::time::Timestamp;

/// How long something counts, in milliseconds.
const WINDOW_MILLIS: i64 = 60_000;

/// Keys that are counted at a time: about a megabyte. Beyond, the oldest are forgotten.
pub(crate) const KEYS_MAX: usize = 10_000;

/// How long until a minute is over, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait(pub(crate) i64);

/// A minute that begins with the first event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    began: i64,
    pub(crate) count: u32,
}

impl Window {
    fn holds(&self, now: Timestamp) -> bool {
        // A clock that was set back ends it, too.
        (0..WINDOW_MILLIS).contains(&now.millis().saturating_sub(self.began))
    }

    /// How long until it is over.
    pub(crate) fn wait(&self, now: Timestamp) -> Wait {
        let left = WINDOW_MILLIS - now.millis().saturating_sub(self.began);
        // Rounded up: one that comes at the time that it was given is let in.
        Wait((left.max(1) + 999) / 1_000)
    }
}

/// The minutes of some keys.
pub(crate) struct Windows<K>(HashMap<K, Window>);

impl<K> Default for Windows<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash> Windows<K> {
    /// The present minute of a key, if it has one.
    pub(crate) fn get(&self, key: &K, now: Timestamp) -> Option<Window> {
        self.0.get(key).copied().filter(|window| window.holds(now))
    }

    /// Counts one more.
    pub(crate) fn count(&mut self, key: K, now: Timestamp) -> Window {
        let began = self.get(&key, now).unwrap_or(Window { began: now.millis(), count: 0 });
        if self.0.len() >= KEYS_MAX && !self.0.contains_key(&key) {
            self.make_room(now);
        }
        let window = Window { count: began.count.saturating_add(1), ..began };
        self.0.insert(key, window);
        window
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn make_room(&mut self, now: Timestamp) {
        self.0.retain(|_, window| window.holds(now));
        if self.0.len() < KEYS_MAX {
            return;
        }
        let oldest =
            self.0.iter().min_by_key(|(_, window)| window.began).map(|(key, _)| key.clone());
        if let Some(oldest) = oldest {
            self.0.remove(&oldest);
        }
    }
}
