//! External accounts: bank accounts and wallets elsewhere (specification 2.8, 3.3; contract 6.7).

use crate::account_info::AccountInfo;
use crate::currency::Currency;
use crate::id::{ExternalAccountId, Owner, PlatformId};
use crate::time::Timestamp;
use crate::transition::{IllegalTransition, Moved, arrows_of};

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

    /// Where the event leads from this status, if the machine has an arrow for it.
    pub const fn after(self, event: Event) -> Option<Self> {
        match (self, event) {
            (Self::Pending | Self::UnderReview | Self::Inactive, Event::Activated) => {
                Some(Self::Active)
            }
            (Self::Pending | Self::Active | Self::Inactive, Event::Questioned) => {
                Some(Self::UnderReview)
            }
            (Self::Pending | Self::Active | Self::UnderReview, Event::Disabled) => {
                Some(Self::Inactive)
            }
            (Self::Active, Event::Activated)
            | (Self::UnderReview, Event::Questioned)
            | (Self::Inactive, Event::Disabled) => None,
        }
    }
}

/// Events of an external account (contract 6.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It was verified, or can be used again.
    Activated,
    /// A person has to look at it.
    Questioned,
    /// It was switched off.
    Disabled,
}

impl Event {
    /// Every event.
    pub const ALL: [Self; 3] = [Self::Activated, Self::Questioned, Self::Disabled];

    /// The event's name in documents and refusals.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Activated => "activated",
            Self::Questioned => "questioned",
            Self::Disabled => "disabled",
        }
    }

    /// The event that leads to a status; none leads back to the first one.
    pub const fn to(status: Status) -> Option<Self> {
        match status {
            Status::Pending => None,
            Status::Active => Some(Self::Activated),
            Status::UnderReview => Some(Self::Questioned),
            Status::Inactive => Some(Self::Disabled),
        }
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
    /// Its identifiers on its rail, and its holder.
    pub info: AccountInfo,
    /// Whether its owner has removed it: then nothing makes it usable again.
    pub is_removed: bool,
    /// The blockchain of a wallet.
    pub crypto_network: Option<String>,
    /// The rail's check of the beneficiary's name.
    pub verification: Option<Verification>,
    /// The name under which the receiving side knows the holder, if it tells.
    pub holder_name: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl ExternalAccount {
    /// Takes note of a change. Its times never go back, although the clock may.
    pub fn touch(&mut self, now: Timestamp) {
        self.updated_at = now.max(self.updated_at);
    }

    /// The one function that changes an external account's status.
    pub fn apply(mut self, event: Event, now: Timestamp) -> Result<Moved<Self>, IllegalTransition> {
        let from = self.status;
        let Some(to) = from.after(event) else {
            return Err(IllegalTransition {
                machine: "external account",
                state: from.name(),
                event: event.name(),
            });
        };
        self.status = to;
        self.touch(now);
        Ok(Moved::new(from.name(), self))
    }
}

/// Every arrow, for people and tests.
pub(crate) fn arrows() -> Vec<[&'static str; 3]> {
    arrows_of(
        &Status::ALL,
        &Event::ALL,
        |from, event| from.after(*event),
        Status::name,
        |event| event.name(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_but_the_first_can_be_reached_from_every_other() {
        for from in Status::ALL {
            for to in Status::ALL {
                let reached = Event::to(to).and_then(|event| from.after(event));
                let expected = (to != Status::Pending && to != from).then_some(to);
                assert_eq!(reached, expected, "{from:?} to {to:?}");
            }
        }
    }
}
