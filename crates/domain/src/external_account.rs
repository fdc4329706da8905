//! External accounts: bank accounts and wallets elsewhere (specification 2.8, 3.3; contract 6.7).

use crate::account_info::AccountInfo;
use crate::currency::Currency;
use crate::id::{ExternalAccountId, Owner, PlatformId};
use crate::time::Timestamp;

/// Status of an external account (specification 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Awaits verification.
    Pending,
    /// Can pay and be paid.
    Active,
    /// A person looks at it.
    UnderReview,
    /// Switched off.
    Inactive,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Active, Self::UnderReview, Self::Inactive];

    /// The name that the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Active => "ACTIVE",
            Self::UnderReview => "UNDER_REVIEW",
            Self::Inactive => "INACTIVE",
        }
    }

    /// The status with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// Result of checking the beneficiary's name against the account holder's (specification 2.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verification {
    /// The names are the same.
    Matched,
    /// The names are alike.
    PartialMatch,
    /// The names differ.
    NotMatched,
    /// The rail cannot check.
    Unsupported,
    /// The receiving institution checks when it is paid.
    CheckedByReceivingFi,
    /// The check is under way.
    Pending,
}

impl Verification {
    /// Every result.
    pub const ALL: [Self; 6] = [
        Self::Matched,
        Self::PartialMatch,
        Self::NotMatched,
        Self::Unsupported,
        Self::CheckedByReceivingFi,
        Self::Pending,
    ];

    /// The name that the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Matched => "MATCHED",
            Self::PartialMatch => "PARTIAL_MATCH",
            Self::NotMatched => "NOT_MATCHED",
            Self::Unsupported => "UNSUPPORTED",
            Self::CheckedByReceivingFi => "CHECKED_BY_RECEIVING_FI",
            Self::Pending => "PENDING",
        }
    }

    /// The result with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|result| result.name() == name)
    }
}

/// A bank account or wallet elsewhere, of a customer or of the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// System id.
    pub id: ExternalAccountId,
    /// The platform.
    pub platform: PlatformId,
    /// Whose account it is.
    pub owner: Owner,
    /// Whether it can be used.
    pub status: Status,
    /// The currency that it holds.
    pub currency: Currency,
    /// The platform's own name for it.
    pub platform_account_id: Option<String>,
    /// What identifies it on its rail, and who holds it.
    pub info: AccountInfo,
    /// The blockchain of a wallet.
    pub crypto_network: Option<String>,
    /// What the rail says about the beneficiary's name.
    pub verification: Option<Verification>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}
