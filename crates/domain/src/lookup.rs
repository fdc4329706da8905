//! Receiver lookups: what was said about a payee before it is paid (specification 2.14, 4.11, 4.12;
//! contract 6.8).

use rust_decimal::Decimal;

use crate::clock::is_from_ahead;
use crate::currency::Currency;
use crate::id::{CustomerId, ExternalAccountId, LookupId, PlatformId};
use crate::platform::CounterpartyField;
use crate::time::Timestamp;
use crate::uma_address::UmaAddress;

/// How long a lookup can be quoted on, in milliseconds (contract 13, row 13): long enough to fill
/// in a form, short enough that what the receiver said still holds.
pub const LIFETIME_MILLIS: i64 = 15 * 60 * 1_000;

/// The receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receiver {
    /// An external account of the platform.
    Account(ExternalAccountId),
    /// The address of a customer on this server, of this platform or another.
    Customer {
        /// The address.
        address: UmaAddress,
        /// Whose it is.
        customer: CustomerId,
    },
    /// An address at another institution.
    Peer {
        /// The address.
        address: UmaAddress,
        /// Where its institution takes the pay request, and how.
        way: PayWay,
    },
}

impl Receiver {
    /// The UMA address, unless an account was looked up.
    pub fn address(&self) -> Option<&UmaAddress> {
        match self {
            Self::Account(_) => None,
            Self::Customer { address, .. } | Self::Peer { address, .. } => Some(address),
        }
    }
}

/// The terms on which another institution takes a pay request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayWay {
    /// The URL that takes it.
    pub callback: String,
    /// The version of the protocol in which the institution has answered, such as `1.0`.
    pub version: String,
    /// Whether the institution is subject to the travel rule.
    pub is_subject_to_travel_rule: bool,
    /// Characters that a text for the payee may have; 0: none is taken.
    pub comment_max: u32,
}

impl PayWay {
    /// Whether the institution speaks version 0 of the protocol, which knows amounts only in the
    /// currency that arrives.
    pub fn is_legacy(&self) -> bool {
        self.version.starts_with("0.")
    }
}

/// A currency in which a receiver can be paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The currency.
    pub currency: Currency,
    /// Least that may arrive, in its smallest unit; 1 or more.
    pub min_minor: i64,
    /// Most that may arrive, in its smallest unit.
    pub max_minor: i64,
    /// Millisatoshi that one smallest unit costs at the receiver's institution; absent where no
    /// other institution is paid.
    pub msat_per_unit: Option<Decimal>,
}

/// A lookup of a receiver. It does not change, and it holds until its time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// System id.
    pub id: LookupId,
    /// The platform that asked.
    pub platform: PlatformId,
    /// Its customer who wants to pay.
    pub sender: CustomerId,
    /// The receiver.
    pub receiver: Receiver,
    /// How it can be paid, in the order of its preference.
    pub offers: Vec<Offer>,
    /// The facts about the payer that its institution asks for.
    pub payer_fields: Vec<CounterpartyField>,
    /// From when on it cannot be quoted on.
    pub expires_at: Timestamp,
}

impl Lookup {
    /// Whether its time is over at `now`.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.expires_at || is_from_ahead(self.id.created_at(), now)
    }
}
