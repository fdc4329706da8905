//! A platform's own clock: the server's, or ahead of it (docs/decisions/0013).
//!
//! Where no money is real a platform can move its clock on, so that expiry, long payments and
//! retries need no waiting. Everything of the platform happens by its clock. Work that the server
//! does for itself, leases and the memory of first answers, happens by the server's.

use crate::time::Timestamp;

/// How far a clock can be ahead, in milliseconds: ten years. It is beyond every window that a test
/// waits for, and far from 2109, when the time in a transaction's reference ends.
pub const AHEAD_MAX_MILLIS: i64 = AHEAD_MAX_DAYS * 86_400_000;

const AHEAD_MAX_DAYS: i64 = 3_653;

/// A step back of the machine's clock up to this is absorbed: record times stand nearly still until
/// the clock has caught up. A larger one is followed at once. Corrections over a network and leap
/// seconds are smaller; a person who sets a wrong clock right makes a larger one.
pub const STEP_ABSORBED_MILLIS: i64 = 5_000;

/// By how much the clocks of two servers of one database may differ, in milliseconds, before a
/// record of one is taken for made by a clock that was ahead.
const SKEW_MAX_MILLIS: i64 = 60_000;

/// Whether a record was made by a clock that was ahead and has been set right since. The
/// time when it was made is unknown, so an offer with a deadline that was made then is over.
pub fn is_from_ahead(made_at: Timestamp, now: Timestamp) -> bool {
    made_at > now.plus_millis(SKEW_MAX_MILLIS)
}

/// How far a platform's clock is ahead of the server's; it never goes back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ahead(i64);

/// A wish to move a clock on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// By this many seconds.
    BySeconds(i64),
    /// To this instant, from which it goes on.
    To(Timestamp),
}

/// Why a clock is not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClockRefusal {
    /// Money is real, and so is time.
    #[error("the clock of a platform with real money cannot be moved")]
    RealTime,
    /// Past events would lie in the future.
    #[error("the clock shows {now} and cannot be set back to {to}")]
    Backwards {
        /// Its present time.
        now: Timestamp,
        /// The requested time.
        to: Timestamp,
    },
    /// More than [`AHEAD_MAX_MILLIS`].
    #[error("the clock can be at most {AHEAD_MAX_DAYS} days ahead of the server's")]
    TooFar,
}

impl Ahead {
    /// The server's own time.
    pub const NONE: Self = Self(0);

    /// A clock that is this many milliseconds ahead, if a clock can be.
    pub fn from_millis(millis: i64) -> Option<Self> {
        (0..=AHEAD_MAX_MILLIS).contains(&millis).then_some(Self(millis))
    }

    /// How far it is ahead, in milliseconds.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// The time of this clock when the server's shows `server`.
    pub const fn shows(self, server: Timestamp) -> Timestamp {
        server.plus_millis(self.0)
    }

    /// The time of the server's clock when this one shows `own`.
    pub const fn on_server(self, own: Timestamp) -> Timestamp {
        own.plus_millis(-self.0)
    }

    /// The clock moved on, when the server's shows `server`.
    pub fn advanced(self, advance: Advance, server: Timestamp) -> Result<Self, ClockRefusal> {
        let now = self.shows(server);
        let to = match advance {
            Advance::BySeconds(seconds) => now.plus_millis(seconds.saturating_mul(1_000)),
            Advance::To(to) => to,
        };
        if to < now {
            return Err(ClockRefusal::Backwards { now, to });
        }
        let millis = to.millis().saturating_sub(server.millis());
        Self::from_millis(millis).ok_or(ClockRefusal::TooFar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Timestamp = Timestamp::from_millis(1_760_000_000_000);

    fn check(ahead: i64, advance: Advance, expected: Result<i64, ClockRefusal>) {
        let ahead = Ahead::from_millis(ahead).expect("within the limit");
        assert_eq!(ahead.advanced(advance, SERVER).map(Ahead::millis), expected, "{advance:?}");
    }

    #[test]
    fn a_clock_is_moved_on_and_never_back() {
        let to = |millis: i64| Advance::To(SERVER.plus_millis(millis));
        let shown = |millis: i64| SERVER.plus_millis(millis);
        let backwards = |now, to| Err(ClockRefusal::Backwards { now: shown(now), to: shown(to) });
        check(0, Advance::BySeconds(60), Ok(60_000));
        check(5, Advance::BySeconds(60), Ok(60_005));
        check(5, to(5), Ok(5));
        check(5, to(7), Ok(7));
        check(5, to(4), backwards(5, 4));
        check(0, Advance::BySeconds(-1), backwards(0, -1_000));
        check(0, to(AHEAD_MAX_MILLIS), Ok(AHEAD_MAX_MILLIS));
        check(0, to(AHEAD_MAX_MILLIS + 1), Err(ClockRefusal::TooFar));
        check(1, Advance::BySeconds(i64::MAX), Err(ClockRefusal::TooFar));
    }

    #[test]
    fn records_of_another_server_are_not_from_ahead() {
        for (made_at, expected) in [(-1, false), (0, false), (60_000, false), (60_001, true)] {
            assert_eq!(is_from_ahead(SERVER.plus_millis(made_at), SERVER), expected, "{made_at}");
        }
    }

    #[test]
    fn both_clocks_tell_the_same_instant() {
        let ahead = Ahead::from_millis(86_400_000).expect("within the limit");
        assert_eq!(ahead.on_server(ahead.shows(SERVER)), SERVER);
        assert_eq!(Ahead::NONE.shows(SERVER), SERVER);
        assert_eq!(Ahead::from_millis(-1), None);
        assert_eq!(Ahead::from_millis(AHEAD_MAX_MILLIS + 1), None);
    }
}
