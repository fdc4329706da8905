//! What the lane remembers of the database between batches: rows as they are in it, so that a
//! payment between accounts that were used before reads nothing.
//!
//! It is right because only the lane writes: a batch that is committed is remembered as it was
//! written, one that is not is forgotten with everything else, and so is everything whenever
//! somebody else had the turn ([`crate::sql::Turn`]).

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use domain::id::{PlatformId, TransactionId};
use ledger::account::AccountKey;

use crate::books::PostingRow;
use crate::record::Remembered;

/// Keys of one table in one generation, if the table does not say otherwise
/// ([`crate::record::Record::GENERATION_MAX`]). Payments that are under way and the accounts that
/// they use must fit: some seconds of full load, and what is still to be settled after them. A
/// transaction takes about a kilobyte.
pub(crate) const GENERATION_MAX: usize = 20_480;

/// A map that forgets what was not used for long: when the young generation is full, it becomes
/// the old one, and what was only in the old one is gone.
#[derive(Debug)]
pub struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for Generations<K, V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Generations<K, V> {
    /// What is remembered of a key; it is used now.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        if !self.young.contains_key(key) {
            let (key, value) = self.old.remove_entry(key)?;
            self.young.insert(key, value);
        }
        self.young.get(key)
    }

    /// How many keys are remembered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Forgets a key.
    pub(crate) fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }

    /// Remembers something.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.young.insert(key, value);
    }

    /// Forgets the old generation if the young one has more keys than this.
    pub(crate) fn age(&mut self, max: usize) {
        if self.young.len() > max {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

/// Accounts whose balances are asked for again as soon as somebody else has written: those of the
/// last batch. Accounts that everybody uses are among them, and the rest costs little.
const RECENT_MAX: usize = 256;

/// Everything that the lane remembers.
#[derive(Default)]
pub(crate) struct Cache {
    pub(crate) rows: Remembered,
    pub(crate) postings: Generations<TransactionId, Arc<Vec<PostingRow>>>,
    recent: Vec<AccountKey>,
    told: Vec<PlatformId>,
}

impl Cache {
    /// Forgets what somebody else may have changed; `nouns` tells whether they are among it.
    pub(crate) fn forget(&mut self, nouns: bool) {
        self.rows.forget(nouns);
        self.postings = Generations::default();
    }

    /// Keeps in mind which accounts a batch has changed.
    pub(crate) fn used(&mut self, accounts: impl Iterator<Item = AccountKey>) {
        self.recent.clear();
        self.recent.extend(accounts.take(RECENT_MAX));
    }

    /// Accounts that the last batch changed and whose balances are not known any more.
    pub(crate) fn recent(&mut self) -> Vec<AccountKey> {
        let mut recent = std::mem::take(&mut self.recent);
        recent.retain(|account| self.rows.ledger_accounts.get(account).is_none());
        recent
    }

    /// Keeps in mind which platforms a batch has told something.
    pub(crate) fn has_told(&mut self, platforms: impl Iterator<Item = PlatformId>) {
        self.told.clear();
        self.told.extend(platforms.take(RECENT_MAX));
    }

    /// Platforms that the last batch told something and whose count is not known any more.
    pub(crate) fn told(&mut self) -> Vec<PlatformId> {
        let mut told = std::mem::take(&mut self.told);
        told.retain(|platform| self.rows.outboxes.get(platform).is_none());
        told
    }

    /// Forgets what was not used for long, and before the last time that this was asked for.
    /// Between batches only: within one, what was read must stay known.
    pub(crate) fn age(&mut self) {
        self.rows.age();
        self.postings.age(GENERATION_MAX);
    }
}
