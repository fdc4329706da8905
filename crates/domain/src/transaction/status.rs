//! The states of a transaction and the events that change them.

use super::{FailureReason, StatusReason};
use crate::time::Timestamp;

/// Status of a transaction (specification 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// A counterparty has looked the payee up.
    Created,
    /// There is a quote or a transfer, and no money has left.
    Pending,
    /// Funded and under way.
    Processing,
    /// Delivered. The money may come back.
    Completed,
    /// The receiving side said no; nothing is owed.
    Rejected,
    /// We could not.
    Failed,
    /// Money that had arrived or left was given back.
    Refunded,
    /// The time to pay was over.
    Expired,
}

impl Status {
    /// Every status, in the order of the specification.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Pending,
        Self::Processing,
        Self::Completed,
        Self::Rejected,
        Self::Failed,
        Self::Refunded,
        Self::Expired,
    ];

    /// The name that the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Pending => "PENDING",
            Self::Processing => "PROCESSING",
            Self::Completed => "COMPLETED",
            Self::Rejected => "REJECTED",
            Self::Failed => "FAILED",
            Self::Refunded => "REFUNDED",
            Self::Expired => "EXPIRED",
        }
    }

    /// The status with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Where the event leads from this status, if the machine has an arrow for it.
    pub fn after(self, event: &Event) -> Option<Self> {
        arrow(self, event.name())
    }

    /// Whether the machine has an arrow from this status to `next`.
    pub fn may_become(self, next: Self) -> bool {
        Event::ALL.iter().any(|event| self.after(event) == Some(next))
    }
}

/// Events of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A pay request was accepted.
    Quoted,
    /// Funded and handed to the rail.
    Started,
    /// The rail has delivered.
    Settled,
    /// The receiving side refused.
    Refused(StatusReason),
    /// We could not deliver: why as the specification lists it, and finer.
    Failed(FailureReason, StatusReason),
    /// A delivered payment has come back.
    Returned(StatusReason),
    /// Money that had come for the payment was given back.
    Refunded,
    /// The deposit account did not take what was received: it stays in the internal account.
    Kept(StatusReason),
    /// The time to pay is over.
    Expired,
}

impl Event {
    /// One of every event, for tables and tests.
    pub const ALL: [Self; 9] = [
        Self::Quoted,
        Self::Started,
        Self::Settled,
        Self::Refused(StatusReason::REJECTED_BY_RECEIVER),
        Self::Failed(FailureReason::OfframpFailed, StatusReason::ACCOUNT_INVALID),
        Self::Returned(StatusReason::RETURNED),
        Self::Refunded,
        Self::Kept(StatusReason::REJECTED_BY_RECEIVER),
        Self::Expired,
    ];

    /// The event's name in documents and refusals.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Quoted => "quoted",
            Self::Started => "started",
            Self::Settled => "settled",
            Self::Refused(_) => "refused",
            Self::Failed(..) => "failed",
            Self::Returned(_) => "returned",
            Self::Refunded => "refunded",
            Self::Kept(_) => "kept",
            Self::Expired => "expired",
        }
    }

    /// The movement of money of the arrow, for `docs/states.md`.
    pub const fn money(&self) -> &'static str {
        match self {
            Self::Quoted | Self::Expired => "none",
            Self::Started => "pending, or posted at once between internal accounts",
            Self::Settled => "pending becomes posted, or what came is posted",
            Self::Refused(_) | Self::Failed(..) => "pending becomes voided",
            Self::Returned(_) => "posted is reversed by a posting of its own",
            Self::Refunded => "what waits in suspense goes to the internal account",
            Self::Kept(_) => "the deposit is voided or reversed, and stays in the internal account",
        }
    }
}

/// The arrows of the machine, by the name of the event: the one table that
/// [`super::Transaction::apply`], `verify` and the documents share.
pub(super) fn arrow(from: Status, event: &str) -> Option<Status> {
    use Status::{Completed, Created, Expired, Failed, Pending, Processing, Refunded, Rejected};
    match (from, event) {
        (Created, "quoted") => Some(Pending),
        (Pending, "started") => Some(Processing),
        (Processing, "settled") => Some(Completed),
        // Money that came in stays in, whatever became of its deposit.
        (Processing | Completed, "kept") => Some(Completed),
        (Pending | Processing, "refused") => Some(Rejected),
        (Created | Pending | Processing, "failed") | (Completed, "returned") => Some(Failed),
        (Failed, "refunded") => Some(Refunded),
        (Created | Pending, "expired") => Some(Expired),
        (
            Created | Pending | Processing | Completed | Rejected | Failed | Refunded | Expired,
            _,
        ) => None,
    }
}

/// One step of a transaction's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The status that it reached.
    pub status: Status,
    /// When.
    pub at: Timestamp,
}
