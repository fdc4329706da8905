//! Internal accounts: balances held here (specification 2.10). They are no records: an account is
//! there as long as its owner, and its status is its owner's.

use crate::customer::{Customer, KycStatus};

/// Whether money of an internal account moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Its owner is not approved yet.
    Pending,
    /// Money moves.
    Open,
    /// Its owner was refused.
    Frozen,
    /// Its owner was deleted.
    Closed,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Open, Self::Frozen, Self::Closed];

    /// The name that the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Open => "OPEN",
            Self::Frozen => "FROZEN",
            Self::Closed => "CLOSED",
        }
    }

    /// The status of a customer's accounts.
    pub fn of(customer: &Customer) -> Self {
        if customer.is_deleted {
            return Self::Closed;
        }
        match customer.kyc.status() {
            KycStatus::Approved | KycStatus::ManuallyApproved => Self::Open,
            KycStatus::PendingReview | KycStatus::Expired | KycStatus::Canceled => Self::Pending,
            KycStatus::Rejected | KycStatus::ManuallyRejected => Self::Frozen,
        }
    }
}
