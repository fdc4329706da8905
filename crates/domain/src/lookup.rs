//! Receiver lookups: what was said about a payee before it is paid (specification 2.14, 4.11, 4.12;
//! contract 6.8).

use rust_decimal::Decimal;

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
        /// A value of its institution for the pay request; opaque to us.
        callback: String,
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
        now >= self.expires_at
    }
}
