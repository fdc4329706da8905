//! The state of a connection. Its stream, the service behind hyper, and whatever makes room among
//! the connections each see a part of it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use service::guesses::Network;
use tokio_util::sync::CancellationToken;

use super::chunks::Chunks;
use super::now;

/// For what a connection waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The rest of a head.
    Head = 0,
    /// The next request.
    Idle = 1,
    /// The rest of a body.
    Body = 2,
    /// The client, which does not read.
    Stalled = 3,
    /// The answer of the router.
    Busy = 4,
    /// Its end.
    Ending = 5,
}

impl Phase {
    const ALL: [Self; 6] =
        [Self::Head, Self::Idle, Self::Body, Self::Stalled, Self::Busy, Self::Ending];
}

const PHASE_BITS: u32 = 3;

/// A phase with the time at which it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Since(u64);

impl Since {
    fn new(phase: Phase, millis: u64) -> Self {
        Self((millis << PHASE_BITS) | phase as u64)
    }

    pub(super) fn phase(self) -> Phase {
        let number = self.0 & ((1 << PHASE_BITS) - 1);
        *Phase::ALL.get(number as usize).expect("only numbers of phases are kept")
    }

    /// In milliseconds of the process.
    pub(super) fn millis(self) -> u64 {
        self.0 >> PHASE_BITS
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) id: u64,
    pub(super) address: Network,
    /// It is of a proxy, behind which there are many clients.
    pub(super) is_trusted: bool,
    /// Cancelled when the connection is to end at once.
    pub(super) end: CancellationToken,
    since: AtomicU64,
    /// Bytes of a body and an answer that are counted, and since when there are some.
    bytes: AtomicUsize,
    held_since: AtomicU64,
    progress: Mutex<Progress>,
}

/// How far a request and its answer are.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) at: At,
    /// The whole answer was handed to hyper.
    pub(super) is_answered: bool,
}

/// The part of a request that hyper may get next.
#[derive(Debug)]
pub(super) enum At {
    /// A head, once it is there as a whole.
    Head,
    /// Nothing but the rest of the head: hyper has not called the service yet.
    Parsing,
    /// A body.
    Body(Framing),
    /// Nothing: it has the whole request.
    Whole,
    /// Nothing any more.
    Over { is_malformed: bool },
}

/// How the end of a body is known.
#[derive(Debug)]
pub(super) enum Framing {
    Length(u64),
    Chunked(Chunks),
}

impl Exchange {
    pub(super) fn new(id: u64, address: Network, is_trusted: bool) -> Arc<Self> {
        Arc::new(Self {
            id,
            address,
            is_trusted,
            end: CancellationToken::new(),
            since: AtomicU64::new(Since::new(Phase::Idle, now_millis()).0),
            bytes: AtomicUsize::new(0),
            held_since: AtomicU64::new(0),
            progress: Mutex::new(Progress { at: At::Head, is_answered: false }),
        })
    }

    pub(super) fn since(&self) -> Since {
        Since(self.since.load(Ordering::Relaxed))
    }

    /// Notes what the connection waits for now. How long it has done so is kept.
    pub(super) fn enter(&self, phase: Phase) {
        let before = self.since().phase();
        if before != phase && before != Phase::Ending {
            self.since.store(Since::new(phase, now_millis()).0, Ordering::Relaxed);
        }
    }

    /// Counts bytes. Only [`super::connections`] does, which knows the sums.
    pub(super) fn hold(&self, bytes: usize) {
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.held_since.store(now_millis(), Ordering::Relaxed);
        }
    }

    /// Counts no bytes any more, and tells how many they were.
    pub(super) fn release(&self) -> usize {
        self.bytes.swap(0, Ordering::Relaxed)
    }

    pub(super) fn holds_bytes(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0
    }

    /// In milliseconds of the process.
    pub(super) fn held_since(&self) -> u64 {
        self.held_since.load(Ordering::Relaxed)
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hyper has read a head and calls the service.
    pub(super) fn begin(&self, framing: Option<Framing>) {
        let mut progress = self.progress();
        progress.is_answered = false;
        progress.at = framing.map_or(At::Whole, At::Body);
    }

    /// Hyper has the whole answer, or will not have more of it.
    pub(super) fn answered(&self) {
        self.progress().is_answered = true;
    }

    /// Whether the body did not follow the grammar of its framing.
    pub(super) fn is_malformed(&self) -> bool {
        matches!(self.progress().at, At::Over { is_malformed: true })
    }

    /// Whether a request has begun to arrive and hyper has seen nothing of it.
    pub(super) fn has_part_of_a_head(&self) -> bool {
        self.since().phase() == Phase::Head
    }
}

/// Milliseconds since the first call, to compare with each other.
pub(super) fn now_millis() -> u64 {
    use std::sync::LazyLock;
    static START: LazyLock<tokio::time::Instant> = LazyLock::new(now);
    let start = *START;
    u64::try_from(now().saturating_duration_since(start).as_millis()).unwrap_or(u64::MAX)
}
