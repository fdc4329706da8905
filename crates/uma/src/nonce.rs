//! Nonces and times of signatures (UMAD-02). The store of nonces that were seen is the caller's,
//! keyed by the peer's domain and the nonce, and filled only after the signature was verified.

use std::fmt;

use domain::time::Timestamp;

use crate::error::{ErrorCode, Refusal};
use crate::json::shown;

/// Seconds that a signature is good for. A nonce must be remembered for this long and
/// [`FUTURE_SECONDS_MAX`] more.
pub const PAST_SECONDS_MAX: i64 = 10 * 60;

/// Seconds that a peer's clock may be ahead of ours.
pub const FUTURE_SECONDS_MAX: i64 = 5 * 60;

/// Characters of a nonce at most: a digest of 256 bits in hexadecimal fits.
const NONCE_MAX: usize = 64;

/// A text that a signer uses once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Nonce(String);

impl Nonce {
    /// Reads a nonce: visible ASCII characters but `|`, which separates signed fields.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let is_allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'|';
        if (1..=NONCE_MAX).contains(&text.len()) && text.bytes().all(is_allowed) {
            return Ok(Self(text.to_owned()));
        }
        let shown = shown(text);
        let reason = format!(
            "the nonce '{shown}' is not 1 to {NONCE_MAX} visible ASCII characters without |"
        );
        Err(Refusal::new(ErrorCode::InvalidNonce, reason))
    }

    /// A nonce from a random number, as decimal digits.
    pub fn from_random(number: u64) -> Self {
        Self(number.to_string())
    }

    /// The nonce as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The nonce and the time that a signature covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// Used once by the signer.
    pub nonce: Nonce,
    /// When it was signed, in seconds since 1970-01-01T00:00:00Z.
    pub at_seconds: i64,
}

impl Stamp {
    /// A stamp for a signature made now.
    pub fn new(nonce: Nonce, now: Timestamp) -> Self {
        Self { nonce, at_seconds: now.millis().div_euclid(1_000) }
    }

    /// Refuses a signature that is too old or too far ahead of `now`.
    pub fn check_time(&self, now: Timestamp) -> Result<(), Refusal> {
        let now_seconds = now.millis().div_euclid(1_000);
        let first = now_seconds.saturating_sub(PAST_SECONDS_MAX);
        let last = now_seconds.saturating_add(FUTURE_SECONDS_MAX);
        if (first..=last).contains(&self.at_seconds) {
            return Ok(());
        }
        let reason = format!(
            "the signature's timestamp {} is not between {first} and {last} (unix seconds)",
            self.at_seconds
        );
        Err(Refusal::new(ErrorCode::InvalidTimestamp, reason))
    }
}
