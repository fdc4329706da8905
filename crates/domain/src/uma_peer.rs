//! Other institutions as a platform knows them: its rule for each, and how the last exchange went.

use crate::id::PlatformId;
use crate::time::Timestamp;
use crate::uma_address::UmaDomain;

/// A platform's rule for an institution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// None: it is dealt with, and trusted with nothing.
    Unset,
    /// The operator knows it.
    Allowed,
    /// Nothing is paid to it and nothing is taken from it.
    Blocked,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 3] = [Self::Unset, Self::Allowed, Self::Blocked];

    /// The name in storage and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unset => "UNSET",
            Self::Allowed => "ALLOWED",
            Self::Blocked => "BLOCKED",
        }
    }

    /// The rule with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }
}

/// The public keys of an institution, as its document had them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerKeys {
    /// Verifies its signatures: an uncompressed point of secp256k1 in hexadecimal.
    pub signing_hex: String,
    /// Encrypts to it, likewise.
    pub encryption_hex: String,
    /// Until when they may be used without asking again, by the server's clock.
    pub until: Timestamp,
}

/// An exchange with an institution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The request: `LOOKUP` or `PAY_REQUEST` where we asked, with `RECEIVED_` before it where it
    /// asked.
    pub request: &'static str,
    /// The outcome: `OK`, or the code of the protocol's error.
    pub outcome: String,
    /// When it began, by the server's clock.
    pub at: Timestamp,
    /// How long it took, in milliseconds.
    pub millis: i64,
    /// The version of the protocol that was spoken, if it came to that.
    pub version: Option<String>,
}

/// Requests between institutions, as [`Exchange::request`] has them.
pub const REQUESTS: [&str; 6] = [
    "LOOKUP",
    "PAY_REQUEST",
    "POST_TRANSACTION",
    "RECEIVED_LOOKUP",
    "RECEIVED_PAY_REQUEST",
    "RECEIVED_POST_TRANSACTION",
];

/// An institution as a platform knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UmaPeer {
    /// The platform.
    pub platform: PlatformId,
    /// The domain of the institution's addresses.
    pub domain: UmaDomain,
    /// The platform's rule for it.
    pub rule: Rule,
    /// Its keys, if they were fetched and may be kept.
    pub keys: Option<PeerKeys>,
    /// The last exchange with it, if there was one.
    pub last: Option<Exchange>,
    /// Its payments to the platform's customers that have an invoice and have not ended.
    pub open_payments: u32,
    /// When it was first met or named, by the server's clock.
    pub created_at: Timestamp,
}

impl UmaPeer {
    /// An institution of which nothing is known yet.
    pub fn new(platform: PlatformId, domain: UmaDomain, now: Timestamp) -> Self {
        Self {
            platform,
            domain,
            rule: Rule::Unset,
            keys: None,
            last: None,
            open_payments: 0,
            created_at: now,
        }
    }
}
