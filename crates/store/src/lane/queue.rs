//! The lane's end of the queue: which units a batch gets.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use super::{Item, QUEUE_MAX, Rank};
use crate::error::StoreError;

/// Units of requests in one database transaction, and as many of jobs. More would hardly gain
/// throughput and would let the first wait for the last.
const REQUESTS_MAX: usize = 256;

/// Units of jobs in one database transaction when there are fewer of requests. Requests that come
/// meanwhile wait for these, which takes a millisecond.
const JOBS_MIN: usize = 8;

/// The same after [`ALONE_FROM`]: fewer transactions do more.
const JOBS_MIN_ALONE: usize = 32;

/// Units of jobs with no request between them after which jobs get more. Either no requests come,
/// or as many jobs as this wait behind the requests of one transaction.
const ALONE_FROM: usize = 64;

/// The same across a network, where a transaction costs several round trips, whatever is in it.
/// With 256, requests at half of the peak waited 65 ms for them (p99); with these, 13.
const REMOTE_JOBS_MIN: usize = 48;

/// The same after [`ALONE_FROM`], in the same transaction too: where many wait, one transaction for
/// all of them is a ninth more payments a second, and requests wait no longer (docs/benchmarks).
const REMOTE_JOBS_MIN_ALONE: usize = REQUESTS_MAX;

/// Units of jobs for each of requests in a turn among those of other servers. One of the servers
/// does the jobs of all and has only its own requests: where two share the requests evenly, that is
/// one job for each request of both. Where more share them, jobs catch up when fewer requests come.
const SHARED_JOBS: usize = 2;

/// A unit with its rank.
pub(super) type Ranked = (Rank, Box<dyn Item>);

/// How many units there are of each rank.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shares {
    requests: usize,
    jobs: usize,
}

impl Shares {
    /// Counts a unit.
    pub(super) fn count(&mut self, rank: Rank) {
        match rank {
            Rank::Request => self.requests += 1,
            Rank::Job => self.jobs += 1,
        }
    }
}

impl std::ops::Add for Shares {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { requests: self.requests + other.requests, jobs: self.jobs + other.jobs }
    }
}

/// What waits.
pub(super) struct Queue {
    waiting: mpsc::Receiver<Ranked>,
    /// A request that was received and is still to be taken.
    request: Option<Box<dyn Item>>,
    /// Units of jobs that were passed by requests.
    jobs: VecDeque<Box<dyn Item>>,
    is_remote: bool,
    /// Units of jobs that were taken since the last request.
    in_a_row: usize,
}

impl Queue {
    pub(super) fn new(waiting: mpsc::Receiver<Ranked>, is_remote: bool) -> Self {
        Self { waiting, request: None, jobs: VecDeque::new(), is_remote, in_a_row: 0 }
    }

    /// Units of jobs that a transaction may have, however few of requests are in it.
    fn jobs_min(&self) -> usize {
        match (self.is_remote, self.in_a_row) {
            (true, ALONE_FROM..) => REMOTE_JOBS_MIN_ALONE,
            (true, _) => REMOTE_JOBS_MIN,
            (false, ALONE_FROM..) => JOBS_MIN_ALONE,
            (false, _) => JOBS_MIN,
        }
    }

    /// The next unit for a database transaction that has these, requests first; none if nothing
    /// that is there belongs into it.
    pub(super) fn take(&mut self, shares: Shares) -> Option<Ranked> {
        self.pick(shares, 1)
    }

    /// The same, with so many units of jobs for each of requests.
    fn pick(&mut self, shares: Shares, jobs_each: usize) -> Option<Ranked> {
        while shares.requests < REQUESTS_MAX && self.jobs.len() < QUEUE_MAX {
            let received = self.request.take().map(|item| (Rank::Request, item));
            match received.map_or_else(|| self.waiting.try_recv(), Ok) {
                Ok(request @ (Rank::Request, _)) => {
                    self.in_a_row = 0;
                    return Some(request);
                }
                Ok((Rank::Job, item)) => self.jobs.push_back(item),
                Err(_) => break,
            }
        }
        let jobs_max = (shares.requests * jobs_each).clamp(self.jobs_min(), REQUESTS_MAX);
        if shares.jobs >= jobs_max {
            return None;
        }
        let job = self.jobs.pop_front()?;
        self.in_a_row = self.in_a_row.saturating_add(1);
        Some((Rank::Job, job))
    }

    /// A batch of what is there, for a turn among those of other servers.
    pub(super) fn batch(&mut self) -> Vec<Box<dyn Item>> {
        let mut shares = Shares::default();
        let next = || self.pick(shares, SHARED_JOBS).inspect(|(rank, _)| shares.count(*rank));
        std::iter::from_fn(next).map(|(_, item)| item).collect()
    }

    /// Waits until there is something to take; false once there will be nothing any more.
    pub(super) fn wait(&mut self) -> bool {
        if self.has_some() {
            return true;
        }
        let received = self.waiting.blocking_recv();
        self.keep(received)
    }

    /// What [`Queue::wait`] does, beside other things that are waited for. Nothing is lost if it is
    /// given up.
    pub(super) async fn arrival(&mut self) {
        let received = self.waiting.recv().await;
        self.keep(received);
    }

    /// Whether a request can arrive that belongs into a transaction with these.
    pub(super) fn is_open_to(&self, shares: Shares) -> bool {
        let may_arrive = !self.waiting.is_closed() || !self.waiting.is_empty();
        let has_room = self.jobs.len() < QUEUE_MAX && self.request.is_none();
        may_arrive && has_room && shares.requests < REQUESTS_MAX
    }

    fn has_some(&self) -> bool {
        self.request.is_some() || !self.jobs.is_empty()
    }

    fn keep(&mut self, received: Option<Ranked>) -> bool {
        match received {
            Some((Rank::Request, item)) => self.request = Some(item),
            Some((Rank::Job, item)) => self.jobs.push_back(item),
            None => return self.has_some(),
        }
        true
    }

    /// Units that are still to be taken.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.jobs.len() + usize::from(self.request.is_some())
    }

    /// Whether nobody can add to it any more.
    pub(super) fn is_closed(&self) -> bool {
        self.waiting.is_closed()
    }

    /// Answers everything that waits.
    pub(super) fn refuse(&mut self, error: &StoreError) {
        let newer = std::iter::from_fn(|| self.waiting.try_recv().ok()).map(|(_, item)| item);
        for mut item in self.request.take().into_iter().chain(self.jobs.drain(..)).chain(newer) {
            item.fail(error.clone());
            item.answer();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idempotency::Scope;
    use crate::unit::Unit;

    struct Nothing;

    impl Item for Nothing {
        fn run(&mut self, _: &mut Unit<'_, '_>) -> bool {
            true
        }

        fn scope(&self) -> Option<Scope> {
            None
        }

        fn fail(&mut self, _: StoreError) {}

        fn answer(self: Box<Self>) {}
    }

    fn send(sender: &mpsc::Sender<Ranked>, rank: Rank, units: usize) {
        for _ in 0..units {
            let sent = sender.try_send((rank, Box::new(Nothing) as Box<dyn Item>));
            assert!(sent.is_ok(), "the queue has room");
        }
    }

    /// A queue across a network in which so many units wait, jobs first.
    fn queue(requests: usize, jobs: usize) -> Queue {
        let (sender, waiting) = mpsc::channel(QUEUE_MAX);
        send(&sender, Rank::Job, jobs);
        send(&sender, Rank::Request, requests);
        Queue::new(waiting, true)
    }

    /// How many requests and jobs the next transaction has.
    fn taken(mut next: impl FnMut(Shares) -> Option<Ranked>) -> (usize, usize) {
        let mut shares = Shares::default();
        while let Some((rank, _)) = next(shares) {
            shares.count(rank);
        }
        (shares.requests, shares.jobs)
    }

    #[test]
    fn jobs_get_more_where_many_wait_and_among_other_servers() {
        // (requests and jobs that wait, those of a transaction, the same in a turn among others)
        let table = [
            ((0, 600), (0, 48), (0, 48)),
            ((10, 600), (10, 48), (10, 48)),
            ((30, 600), (30, 48), (30, 60)),
            ((40, 600), (40, 48), (40, 256)),
            ((100, 600), (100, 256), (100, 256)),
            ((100, 30), (100, 30), (100, 30)),
            ((300, 600), (256, 256), (256, 256)),
        ];
        for ((requests, jobs), alone, among_others) in table {
            let mut waiting = queue(requests, jobs);
            assert_eq!(taken(|shares| waiting.take(shares)), alone, "{requests}, {jobs}");
            let mut waiting = queue(requests, jobs);
            assert_eq!(waiting.batch().len(), among_others.0 + among_others.1);
            let mut waiting = queue(requests, jobs);
            let turn = taken(|shares| waiting.pick(shares, SHARED_JOBS));
            assert_eq!(turn, among_others, "{requests}, {jobs}");
        }
    }

    #[test]
    fn jobs_get_more_while_no_requests_come() {
        for (is_remote, first, alone) in [(false, 8, 32), (true, 48, 256)] {
            let (sender, waiting) = mpsc::channel(QUEUE_MAX);
            let mut queue = Queue::new(waiting, is_remote);
            send(&sender, Rank::Job, 2_000);
            let mut in_a_row = 0;
            while in_a_row < ALONE_FROM - first {
                assert_eq!(taken(|shares| queue.take(shares)), (0, first));
                in_a_row += first;
            }
            for _ in 0..3 {
                assert_eq!(taken(|shares| queue.take(shares)), (0, alone));
                assert_eq!(queue.batch().len(), alone);
            }
            send(&sender, Rank::Request, 1);
            assert_eq!(taken(|shares| queue.take(shares)), (1, first), "as before");
        }
    }
}
