//! The state that one step of due jobs leaves to the next.

use std::collections::VecDeque;
use std::time::Duration;

use domain::time::Timestamp;

/// The state of all that a step does.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) clock: Followed,
    pub(crate) sweeps: Sweeps,
}

/// The server's clock as the last step has seen it.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    pub(crate) seen: Option<Seen>,
    /// The time that the clock showed when it was ahead. Until then, records of that time have
    /// events of that time, whose deliveries would be due then.
    pub(crate) wrong_until: Option<Timestamp>,
    /// When deliveries were looked through last, by the time that this process has run.
    pub(crate) looked_at: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) at: Timestamp,
    pub(crate) uptime: Duration,
    /// The term of its lease then.
    pub(crate) term: i64,
}

/// The state of sweeps.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    pub(crate) next_at: Duration,
    pub(crate) answers: AgeProof,
    pub(crate) nonces: AgeProof,
}

/// How long rows have been there, as far as this server knows without believing the clock
/// (docs/decisions/0005).
#[derive(Debug, Default)]
pub(crate) struct AgeProof {
    /// The end of the journal at moments of this process, oldest first.
    pub(crate) ends: VecDeque<(Duration, u64)>,
    /// The last row that is old enough by the time that this process has run.
    pub(crate) by_uptime: u64,
    /// The last row that is old enough by the days of the journal, and when that was found out.
    pub(crate) by_days: Option<(Duration, u64)>,
}
