//! A customer's identity status, and the checks that find it out (specification 3.5;
//! contract 6.4). For businesses the API calls it KYB.

use crate::code::Code;
use crate::customer::KycStatus;
use crate::id::{CustomerId, IdentityCheckId, PlatformId};
use crate::time::Timestamp;
use crate::transition::{IllegalTransition, Moved, arrows_of};

/// Events of an identity status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The check found it good.
    Approved,
    /// The check refused it.
    Rejected,
    /// The person did not finish the check in time.
    Expired,
    /// The person called the check off.
    Canceled,
    /// A new check begins.
    Restarted,
    /// The operator approved.
    ManuallyApproved,
    /// The operator refused.
    ManuallyRejected,
    /// A regulated platform, which knows its customers itself, says what it is.
    Stated(KycStatus),
}

impl Event {
    /// Every event but what a platform states, which leads to what it says from everywhere.
    pub const ALL: [Self; 7] = [
        Self::Approved,
        Self::Rejected,
        Self::Expired,
        Self::Canceled,
        Self::Restarted,
        Self::ManuallyApproved,
        Self::ManuallyRejected,
    ];

    /// The event's name in documents and refusals.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Canceled => "canceled",
            Self::Restarted => "restarted",
            Self::ManuallyApproved => "manually approved",
            Self::ManuallyRejected => "manually rejected",
            Self::Stated(_) => "stated",
        }
    }
}

/// The arrows of the machine: the one table that [`Kyc::apply`] and the documents share.
pub(crate) fn arrow(from: KycStatus, event: Event) -> Option<KycStatus> {
    use KycStatus::{
        Approved, Canceled, Expired, ManuallyApproved, ManuallyRejected, PendingReview, Rejected,
    };
    match (from, event) {
        (_, Event::Stated(status)) => Some(status),
        (PendingReview, Event::Approved) => Some(Approved),
        (PendingReview, Event::Rejected) => Some(Rejected),
        (PendingReview, Event::Expired) => Some(Expired),
        (PendingReview, Event::Canceled) => Some(Canceled),
        (Expired | Canceled, Event::Restarted) => Some(PendingReview),
        (PendingReview | Rejected, Event::ManuallyApproved) => Some(ManuallyApproved),
        (PendingReview | Rejected, Event::ManuallyRejected) => Some(ManuallyRejected),
        (
            Approved | Rejected | PendingReview | Expired | Canceled | ManuallyApproved
            | ManuallyRejected,
            Event::Approved
            | Event::Rejected
            | Event::Expired
            | Event::Canceled
            | Event::Restarted
            | Event::ManuallyApproved
            | Event::ManuallyRejected,
        ) => None,
    }
}

/// An identity status that only [`Kyc::apply`] changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kyc {
    status: KycStatus,
    changes: u32,
}

impl Kyc {
    /// The status when the customer is made.
    pub const fn first(status: KycStatus) -> Self {
        Self { status, changes: 0 }
    }

    /// From a stored row. For the store only.
    pub const fn restore(status: KycStatus, changes: u32) -> Self {
        Self { status, changes }
    }

    /// The present status.
    pub const fn status(self) -> KycStatus {
        self.status
    }

    /// How often it has changed: the number of the event of the last change.
    pub const fn changes(self) -> u32 {
        self.changes
    }

    /// The one function that changes it.
    pub fn apply(self, event: Event) -> Result<Moved<Self>, IllegalTransition> {
        let from = self.status;
        let Some(status) = arrow(from, event) else {
            let (state, event) = (from.name(), event.name());
            return Err(IllegalTransition { machine: "identity", state, event });
        };
        let changes = self.changes.saturating_add(1);
        Ok(Moved::new(from.name(), Self { status, changes }))
    }
}

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckStatus {
    /// Its link waits for the person.
    Open,
    /// The person went through it.
    Completed,
    /// Its time was over.
    Expired,
    /// It was decided otherwise, or a new one took its place.
    Withdrawn,
}

impl CheckStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Open, Self::Completed, Self::Expired, Self::Withdrawn];

    /// The name in storage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Completed => "COMPLETED",
            Self::Expired => "EXPIRED",
            Self::Withdrawn => "WITHDRAWN",
        }
    }

    /// The status with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// How a check can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckEvent {
    /// The person went through it.
    Completed,
    /// The time is over.
    Expired,
    /// It was decided otherwise, or a new one takes its place.
    Withdrawn,
}

impl CheckEvent {
    /// Every event.
    pub const ALL: [Self; 3] = [Self::Completed, Self::Expired, Self::Withdrawn];

    /// The event's name in documents and refusals.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// The arrows of a check's machine.
pub(crate) fn check_arrow(from: CheckStatus, event: CheckEvent) -> Option<CheckStatus> {
    match (from, event) {
        (CheckStatus::Open, CheckEvent::Completed) => Some(CheckStatus::Completed),
        (CheckStatus::Open, CheckEvent::Expired) => Some(CheckStatus::Expired),
        (CheckStatus::Open, CheckEvent::Withdrawn) => Some(CheckStatus::Withdrawn),
        (
            CheckStatus::Completed | CheckStatus::Expired | CheckStatus::Withdrawn,
            CheckEvent::Completed | CheckEvent::Expired | CheckEvent::Withdrawn,
        ) => None,
    }
}

/// The draft of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckDraft {
    /// System id: a keyed hash of the code.
    pub id: IdentityCheckId,
    /// The last part of the person's link.
    pub code: Code,
    /// The platform.
    pub platform: PlatformId,
    /// Whose identity is checked.
    pub customer: CustomerId,
    /// Where the person goes afterwards: an address of the web.
    pub redirect_uri: Option<String>,
    /// Until when the link can be used.
    pub expires_at: Timestamp,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A check of a person's identity, by a link that is used once. Only [`IdentityCheck::apply`]
/// changes its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityCheck {
    draft: CheckDraft,
    status: CheckStatus,
}

impl IdentityCheck {
    /// A new check, open.
    pub fn open(draft: CheckDraft) -> Self {
        Self { draft, status: CheckStatus::Open }
    }

    /// A check as the store has kept it. For the store only.
    pub fn restore(draft: CheckDraft, status: CheckStatus) -> Self {
        Self { draft, status }
    }

    /// Its draft.
    pub fn draft(&self) -> &CheckDraft {
        &self.draft
    }

    /// System id.
    pub fn id(&self) -> IdentityCheckId {
        self.draft.id
    }

    /// The present status.
    pub fn status(&self) -> CheckStatus {
        self.status
    }

    /// Whether the link can be used at `now`.
    pub fn is_usable(&self, now: Timestamp) -> bool {
        self.status == CheckStatus::Open && now < self.draft.expires_at
    }

    /// Whether its time is over at `now` and it has not ended.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.status == CheckStatus::Open && self.draft.expires_at <= now
    }

    /// The one function that changes its status.
    pub fn apply(mut self, event: CheckEvent) -> Result<Moved<Self>, IllegalTransition> {
        let from = self.status;
        let Some(to) = check_arrow(from, event) else {
            let (state, event) = (from.name(), event.name());
            return Err(IllegalTransition { machine: "identity check", state, event });
        };
        self.status = to;
        Ok(Moved::new(from.name(), self))
    }
}

/// Every arrow of what is known, but those that a regulated platform states.
pub(crate) fn arrows() -> Vec<[&'static str; 3]> {
    arrows_of(
        &KycStatus::ALL,
        &Event::ALL,
        |from, event| from.after(*event),
        KycStatus::name,
        |event| event.name(),
    )
}

/// Every arrow of a check.
pub(crate) fn check_arrows() -> Vec<[&'static str; 3]> {
    arrows_of(
        &CheckStatus::ALL,
        &CheckEvent::ALL,
        |from, event| check_arrow(from, *event),
        CheckStatus::name,
        |event| event.name(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arrows_are_those_of_the_contract() {
        let arrows: Vec<_> = arrows().iter().map(|arrow| arrow.join(" ")).collect();
        for from in KycStatus::ALL {
            for stated in KycStatus::ALL {
                assert_eq!(arrow(from, Event::Stated(stated)), Some(stated));
            }
        }
        assert_eq!(
            arrows,
            [
                "REJECTED manually approved MANUALLY_APPROVED",
                "REJECTED manually rejected MANUALLY_REJECTED",
                "PENDING_REVIEW approved APPROVED",
                "PENDING_REVIEW rejected REJECTED",
                "PENDING_REVIEW expired EXPIRED",
                "PENDING_REVIEW canceled CANCELED",
                "PENDING_REVIEW manually approved MANUALLY_APPROVED",
                "PENDING_REVIEW manually rejected MANUALLY_REJECTED",
                "EXPIRED restarted PENDING_REVIEW",
                "CANCELED restarted PENDING_REVIEW",
            ]
        );
    }

    #[test]
    fn a_check_ends_once() {
        for from in CheckStatus::ALL {
            for event in CheckEvent::ALL {
                assert_eq!(check_arrow(from, event).is_some(), from == CheckStatus::Open);
            }
        }
    }

    #[test]
    fn changes_are_counted() {
        let kyc = Kyc::first(KycStatus::PendingReview);
        let kyc = kyc.apply(Event::Rejected).expect("an arrow").into_now();
        assert!(kyc.apply(Event::Approved).is_err());
        let kyc = kyc.apply(Event::ManuallyApproved).expect("an arrow").into_now();
        assert_eq!((kyc.status(), kyc.changes()), (KycStatus::ManuallyApproved, 2));
    }
}
