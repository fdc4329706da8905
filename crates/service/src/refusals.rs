//! The log of requests that were answered 401: a line a minute with counts by address, not a line
//! for each, which a stranger could fill a disk with.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use domain::time::Timestamp;

use crate::guesses::Network;

/// How long refusals are counted for one line, in milliseconds.
const WINDOW_MILLIS: i64 = 60_000;

/// Addresses that are counted apart, so that memory is bounded. Others are counted together.
const ADDRESSES_MAX: usize = 1_000;

/// Addresses that a line names, those with the most refusals: a line stays below a kilobyte.
const ADDRESSES_NAMED: usize = 10;

/// Requests that were refused since the last line.
#[derive(Default)]
pub struct Refusals(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    since: Option<Timestamp>,
    total: u64,
    by: HashMap<Network, u64>,
}

impl Refusals {
    /// Counts a request that was answered 401.
    pub fn count(&self, from: Network, now: Timestamp) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.since.get_or_insert(now);
        counts.total += 1;
        let is_full = counts.by.len() >= ADDRESSES_MAX;
        if !is_full || counts.by.contains_key(&from) {
            *counts.by.entry(from).or_default() += 1;
        }
    }

    /// Logs the refusals of the last minute once it is over. The binary calls it every few seconds.
    pub fn log(&self, now: Timestamp) {
        // A clock that was set back ends it, too.
        self.log_if(|since| {
            !(0..WINDOW_MILLIS).contains(&now.millis().saturating_sub(since.millis()))
        });
    }

    /// Logs the refusals that were counted so far: for a server that stops.
    pub fn log_rest(&self) {
        self.log_if(|_| true);
    }

    fn log_if(&self, is_over: impl FnOnce(Timestamp) -> bool) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !counts.since.is_some_and(is_over) {
            return;
        }
        let Counts { total, by, .. } = std::mem::take(&mut *counts);
        drop(counts);
        let mut by: Vec<_> = by.into_iter().collect();
        by.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
        by.truncate(ADDRESSES_NAMED);
        let named: u64 = by.iter().map(|(_, count)| count).sum();
        let addresses: Vec<_> = by.iter().map(|(from, count)| format!("{from}={count}")).collect();
        tracing::warn!(
            requests = total,
            addresses = addresses.join(" "),
            from_others = total - named,
            "requests without good credentials were answered 401"
        );
    }
}
