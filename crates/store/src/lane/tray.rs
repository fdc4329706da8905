//! The tray between the two threads of the lane: batches that were run and wait for the one that
//! writes, which takes all of them at once.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::Item;
use super::queue::Shares;
use crate::unit::{News, Prepared};

/// A batch that was run and is to be written.
pub(super) struct Job {
    pub(super) prepared: Prepared,
    pub(super) news: News,
    pub(super) items: Vec<Box<dyn Item>>,
    /// What its units are.
    pub(super) shares: Shares,
}

/// Where batches wait.
#[derive(Default)]
pub(super) struct Tray {
    content: Mutex<Content>,
    changed: Condvar,
}

#[derive(Default)]
struct Content {
    jobs: Vec<Job>,
    /// What the units are that will be in one transaction with the next batch.
    shares: Shares,
    /// Whether batches were taken and the taker has not come back, or it is about to take some.
    is_writing: bool,
    /// A batch was not written, so that those behind it are worth nothing.
    is_stopped: bool,
    /// No more will come.
    is_closed: bool,
}

impl Content {
    fn take(&mut self) -> Option<Vec<Job>> {
        let jobs = std::mem::take(&mut self.jobs);
        self.shares = Shares::default();
        self.is_writing = !jobs.is_empty();
        self.is_writing.then_some(jobs)
    }
}

impl Tray {
    fn content(&self) -> MutexGuard<'_, Content> {
        // Nothing is done under the lock that could be done by halves.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a batch.
    pub(super) fn put(&self, job: Job) {
        let content = &mut *self.content();
        // If nothing is being written, this one is as good as taken, and the next one is not.
        if content.is_writing {
            content.shares = content.shares + job.shares;
        }
        content.is_writing = true;
        content.jobs.push(job);
        self.changed.notify_one();
    }

    /// What the units are that the next batch shares a transaction with.
    pub(super) fn shares(&self) -> Shares {
        self.content().shares
    }

    /// Takes every batch, and waits for one if there is none; none once the tray is closed.
    pub(super) fn take(&self) -> Option<Vec<Job>> {
        let mut content = self.content();
        content.is_writing = content.is_stopped;
        let waits = |content: &mut Content| {
            content.is_stopped || (content.jobs.is_empty() && !content.is_closed)
        };
        content = self.changed.wait_while(content, waits).unwrap_or_else(PoisonError::into_inner);
        content.take()
    }

    /// Takes every batch that is there.
    pub(super) fn take_at_once(&self) -> Option<Vec<Job>> {
        self.content().take()
    }

    /// The same for one that has not come back.
    pub(super) fn take_more(&self) -> Option<Vec<Job>> {
        let content = &mut *self.content();
        if content.jobs.is_empty() { None } else { content.take() }
    }

    /// Nothing is taken until [`Tray::clear`]: a batch was not written.
    pub(super) fn stop(&self) {
        self.content().is_stopped = true;
    }

    /// Takes back what was left, and begins anew.
    pub(super) fn clear(&self) -> Vec<Job> {
        let jobs = std::mem::take(&mut *self.content()).jobs;
        self.changed.notify_one();
        jobs
    }

    /// What is there is the last.
    pub(super) fn close(&self) {
        self.content().is_closed = true;
        self.changed.notify_one();
    }
}
