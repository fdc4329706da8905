//! The writer's end of the commit queue: which units share a transaction.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use super::{Priority, Queued};

/// Units that may wait: some tenths of a second of work. A caller who would wait longer is better
/// off to come back.
pub(super) const QUEUE_MAX: usize = 4_096;

/// Requests in one transaction. More would hardly gain throughput and let the first wait for the
/// last.
const REQUESTS_MAX: usize = 256;

/// Jobs in one transaction when there are fewer requests. Requests that come meanwhile wait for
/// them. With 48, the slowest percent of requests took twice as long at half of full load.
const JOBS_MIN: usize = 12;

/// Jobs for each request of the same transaction. A payment is one request and up to two jobs, so
/// that neither falls behind the other.
const JOBS_PER_REQUEST: usize = 2;

/// The units that wait.
pub(super) struct Queue {
    waiting: mpsc::Receiver<(Priority, Box<dyn Queued>)>,
    requests: VecDeque<Box<dyn Queued>>,
    jobs: VecDeque<Box<dyn Queued>>,
}

impl Queue {
    pub(super) fn new(waiting: mpsc::Receiver<(Priority, Box<dyn Queued>)>) -> Self {
        Self { waiting, requests: VecDeque::new(), jobs: VecDeque::new() }
    }

    /// Waits until a unit is there; false once the queue is closed and empty.
    pub(super) fn wait(&mut self) -> bool {
        if self.requests.is_empty() && self.jobs.is_empty() {
            match self.waiting.blocking_recv() {
                Some(unit) => self.sort_in(unit),
                None => return false,
            }
        }
        true
    }

    /// Takes no more units; those that wait are still to be taken.
    pub(super) fn close(&mut self) {
        self.waiting.close();
    }

    /// Takes the units of the next transaction, requests first.
    pub(super) fn take_batch(&mut self) -> Vec<Box<dyn Queued>> {
        while self.requests.len() + self.jobs.len() < QUEUE_MAX
            && let Ok(unit) = self.waiting.try_recv()
        {
            self.sort_in(unit);
        }
        let requests = self.requests.len().min(REQUESTS_MAX);
        let jobs = (requests * JOBS_PER_REQUEST).max(JOBS_MIN).min(self.jobs.len());
        self.requests.drain(..requests).chain(self.jobs.drain(..jobs)).collect()
    }

    /// Units that are still to be taken.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.requests.len() + self.jobs.len()
    }

    fn sort_in(&mut self, (priority, unit): (Priority, Box<dyn Queued>)) {
        match priority {
            Priority::Request => self.requests.push_back(unit),
            Priority::Job => self.jobs.push_back(unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreError;
    use crate::idempotency::Scope;
    use crate::origin::Origin;
    use crate::unit::Unit;

    struct Named(&'static str, std::sync::mpsc::Sender<&'static str>);

    impl Queued for Named {
        fn run(&mut self, _: &mut Unit<'_, '_>) -> bool {
            true
        }

        fn scope(&self) -> Option<Scope> {
            None
        }

        fn origin(&self) -> &Origin {
            unreachable!("no unit is run here")
        }

        fn fail(&mut self, _: StoreError) {}

        fn answer(self: Box<Self>) {
            self.1.send(self.0).expect("the test listens");
        }
    }

    /// The requests and jobs of each transaction while so many wait, jobs first.
    fn check(requests: usize, jobs: usize, expected: &[(usize, usize)]) {
        let (sender, waiting) = mpsc::channel(QUEUE_MAX);
        let (names, answered) = std::sync::mpsc::channel();
        let all = [(Priority::Job, "job", jobs), (Priority::Request, "request", requests)];
        for (priority, name, count) in all {
            for _ in 0..count {
                let unit = Box::new(Named(name, names.clone())) as Box<dyn Queued>;
                assert!(sender.try_send((priority, unit)).is_ok(), "the queue has room");
            }
        }
        drop(sender);
        let mut queue = Queue::new(waiting);
        let mut found = Vec::new();
        while queue.wait() {
            queue.take_batch().into_iter().for_each(|unit| unit.answer());
            let names: Vec<_> = answered.try_iter().collect();
            let requests = names.iter().take_while(|name| **name == "request").count();
            assert!(names[requests..].iter().all(|name| *name == "job"), "requests go first");
            found.push((requests, names.len() - requests));
        }
        assert_eq!(found, expected, "{requests} requests, {jobs} jobs");
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn requests_go_first_and_jobs_have_their_share() {
        check(0, 30, &[(0, 12), (0, 12), (0, 6)]);
        check(3, 30, &[(3, 12), (0, 12), (0, 6)]);
        check(10, 30, &[(10, 20), (0, 10)]);
        check(100, 230, &[(100, 200), (0, 12), (0, 12), (0, 6)]);
        check(600, 1_000, &[(256, 512), (256, 488), (88, 0)]);
    }
}
