//! Rows that somebody looked at a while ago, for those who look again: a payment is asked for many
//! times and changes a few times.
//!
//! A row leaves the shelf before a commit that changes it begins, and cannot come back before that
//! commit has ended. So whoever finds it here is told what the database would say at that moment,
//! and what is answered was read from the database and never taken from the lane's memory
//! (docs/decisions/0032). That is so only while this process alone changes the table: the shelf
//! stays empty until somebody vouches for that, or, where servers take turns, a row counts only
//! behind a look that found that nobody else had one (docs/decisions/0044).

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cache::Generations;
use crate::record::Record;

/// Parts with a lock each, so that threads that look seldom meet: more than there are of them on
/// the machines that one file is for.
const PARTS: usize = 16;

/// Rows of one generation of a part, of which there are two. All parts have 12,000 payments that
/// were looked at last, and twice as many at most, of a kilobyte or two as a rule.
const GENERATION_MAX: usize = 768;

/// Rows of one table.
pub struct Shelf<R: Record> {
    parts: [Mutex<Part<R>>; PARTS],
    hasher: RandomState,
    is_open: AtomicBool,
}

struct Part<R: Record> {
    rows: Generations<R::Key, Arc<R>>,
    /// Keys whose rows a commit that has not ended changes.
    changing: HashSet<R::Key>,
    /// Counts changes: what was read before one may be older than it.
    changes: u64,
}

impl<R: Record> Default for Part<R> {
    fn default() -> Self {
        Self { rows: Generations::default(), changing: HashSet::new(), changes: 0 }
    }
}

/// What the shelf has under a key.
#[derive(Debug)]
pub(crate) enum Place<R> {
    /// The row as it is.
    Row(Arc<R>),
    /// Nothing; what is read from now on may be put there.
    Free(Ticket),
    /// Nothing, and nothing is to be put there.
    Closed,
}

/// When somebody began to read.
#[derive(Debug)]
pub(crate) struct Ticket(u64);

impl<R: Record> Default for Shelf<R> {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            is_open: AtomicBool::new(false),
        }
    }
}

impl<R: Record> Shelf<R> {
    /// Lets rows be put here from now on. Every commit that changes rows of the table must be told
    /// of ([`Shelf::changing`]) as long as this is there.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    /// The row, or whether it may be put here. To be asked before the database is.
    pub(crate) fn get(&self, key: &R::Key) -> Place<R> {
        if !self.is_open.load(Ordering::Acquire) {
            return Place::Closed;
        }
        let mut part = self.part(key);
        if let Some(row) = part.rows.get(key).map(Arc::clone) {
            // A row of the old generation has come into the young one.
            part.rows.age(GENERATION_MAX);
            return Place::Row(row);
        }
        if part.changing.contains(key) { Place::Closed } else { Place::Free(Ticket(part.changes)) }
    }

    /// Puts a row here that was read after the ticket was given, unless something has begun to
    /// change meanwhile.
    pub(crate) fn put(&self, Ticket(changes): Ticket, row: Arc<R>) {
        let key = row.key();
        let mut part = self.part(&key);
        if part.changes == changes {
            part.rows.insert(key, row);
            part.rows.age(GENERATION_MAX);
        }
    }

    /// Takes rows away until the end of the commit that changes them. It must not have begun.
    pub(crate) fn changing(&self, keys: Vec<R::Key>) -> Changing<'_, R> {
        for key in &keys {
            let mut part = self.part(key);
            part.rows.remove(key);
            part.changing.insert(key.clone());
            part.changes += 1;
        }
        Changing { shelf: self, keys }
    }

    /// Takes all rows away: somebody else has written.
    pub(crate) fn clear(&self) {
        for part in &self.parts {
            let mut part = hold(part);
            part.rows = Generations::default();
            part.changes += 1;
        }
    }

    fn part(&self, key: &R::Key) -> MutexGuard<'_, Part<R>> {
        let place = self.hasher.hash_one(key) % PARTS as u64;
        hold(&self.parts[place as usize])
    }
}

/// Nothing can panic between two changes of a part that belong together.
fn hold<R: Record>(part: &Mutex<Part<R>>) -> MutexGuard<'_, Part<R>> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A commit that changes rows, until it has ended, whichever way.
pub(crate) struct Changing<'a, R: Record> {
    shelf: &'a Shelf<R>,
    keys: Vec<R::Key>,
}

impl<R: Record> Drop for Changing<'_, R> {
    fn drop(&mut self) {
        for key in &self.keys {
            self.shelf.part(key).changing.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::id::CustomerId;
    use domain::time::Timestamp;
    use domain::uma_address::UmaAddress;
    use uuid::Uuid;

    use super::*;
    use crate::customers::UmaClaim;
    use crate::leases::{Duty, Lease};

    const KEY: Duty = Duty::Jobs;

    fn row(epoch: i64) -> Arc<Lease> {
        let until = Timestamp::from_millis(0);
        Arc::new(Lease { duty: KEY, holder: Uuid::nil(), epoch, until, address: None })
    }

    fn shelf() -> Shelf<Lease> {
        let shelf = Shelf::default();
        shelf.open();
        shelf
    }

    fn ticket(shelf: &Shelf<Lease>) -> Ticket {
        match shelf.get(&KEY) {
            Place::Free(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }

    fn epoch(shelf: &Shelf<Lease>) -> Option<i64> {
        match shelf.get(&KEY) {
            Place::Row(row) => Some(row.epoch),
            Place::Free(_) | Place::Closed => None,
        }
    }

    #[test]
    fn what_was_looked_at_is_there_until_it_changes() {
        let shelf = shelf();
        shelf.put(ticket(&shelf), row(1));
        assert_eq!(epoch(&shelf), Some(1));
        let other = shelf.changing(vec![Duty::FirstStart]);
        assert_eq!(epoch(&shelf), Some(1));
        drop(other);
        let changing = shelf.changing(vec![KEY, KEY]);
        assert!(matches!(shelf.get(&KEY), Place::Closed), "it may be either, as the commit stands");
        drop(changing);
        shelf.put(ticket(&shelf), row(2));
        assert_eq!(epoch(&shelf), Some(2));
        shelf.clear();
        assert_eq!(epoch(&shelf), None);
    }

    #[test]
    fn what_was_read_before_a_change_is_not_put_there_after_it_began() {
        for ended in [false, true] {
            let shelf = shelf();
            let before = ticket(&shelf);
            let changing = shelf.changing(vec![KEY]);
            let changing = (!ended).then_some(changing);
            shelf.put(before, row(1));
            assert_eq!(epoch(&shelf), None);
            drop(changing);
            assert_eq!(epoch(&shelf), None);
            let before = ticket(&shelf);
            shelf.clear();
            shelf.put(before, row(1));
            assert_eq!(epoch(&shelf), None);
        }
    }

    #[test]
    fn it_holds_so_many_rows_however_they_are_looked_at() {
        let shelf = Shelf::<UmaClaim>::default();
        shelf.open();
        let address = |number: usize| UmaAddress::parse(&format!("$a{number}@b.test"));
        let row = |number| {
            let address = address(number).expect("an address");
            Arc::new(UmaClaim { address, customer: CustomerId::from_uuid(Uuid::nil()) })
        };
        let look = |number| {
            let row = row(number);
            match shelf.get(&row.address) {
                Place::Row(_) => {}
                Place::Free(ticket) => shelf.put(ticket, row),
                Place::Closed => panic!("nothing changes"),
            }
        };
        // All that is there, and some more each time: nothing is old for long.
        for rounds in 1..=8 {
            (0..rounds * PARTS * GENERATION_MAX / 2).for_each(look);
            let held: usize = shelf.parts.iter().map(|part| hold(part).rows.len()).sum();
            assert!(held <= 2 * PARTS * (GENERATION_MAX + 1), "{held} rows");
        }
    }

    #[test]
    fn nothing_is_kept_before_somebody_vouches() {
        let shelf = Shelf::<Lease>::default();
        assert!(matches!(shelf.get(&KEY), Place::Closed));
        shelf.open();
        shelf.put(ticket(&shelf), row(1));
        assert_eq!(epoch(&shelf), Some(1));
    }
}
