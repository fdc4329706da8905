//! Approvals: what a platform is asked about an incoming payment, and how it was decided (contract
//! 7.3; reliability 5.3).
//!
//! The platform answers the request, or defers it and calls later, or lets the deadline pass.
//! Whatever comes first decides; for everything after it the machine has no arrow.

use crate::clock::is_from_ahead;
use crate::id::{PlatformId, TransactionId};
use crate::platform::COUNTERPARTY_FIELDS;
use crate::time::Timestamp;
use crate::transaction::FailureReason;
use crate::transition::{IllegalTransition, Moved, arrows_of};

/// How long a platform has to decide, in milliseconds (contract 7.3): the payer waits. Putting the
/// decision off opens the same time once more.
pub const WINDOW_MILLIS: i64 = 5_000;

/// Characters of a reason that are kept: as many as the call to reject may give.
pub const REASON_MAX: usize = 500;

/// How far an approval request has come, and what decided it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// The platform is asked.
    Asked,
    /// It has put its decision off.
    Later,
    /// Its answer approved.
    AnsweredYes,
    /// Its answer rejected.
    AnsweredNo,
    /// It wants to know more about the payer.
    AnsweredIncomplete,
    /// It called to approve.
    CalledYes,
    /// It called to reject.
    CalledNo,
    /// It could not be asked, or its answer was none of those.
    Error,
    /// Its time was over.
    TimedOut,
}

/// The decision of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It waits.
    Open,
    /// It goes on.
    Approved,
    /// The platform does not want it.
    Rejected,
    /// It fails.
    Failed(FailureReason),
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 9] = [
        Self::Asked,
        Self::Later,
        Self::AnsweredYes,
        Self::AnsweredNo,
        Self::AnsweredIncomplete,
        Self::CalledYes,
        Self::CalledNo,
        Self::Error,
        Self::TimedOut,
    ];

    /// The name in storage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "ASKED",
            Self::Later => "LATER",
            Self::AnsweredYes => "ANSWERED_YES",
            Self::AnsweredNo => "ANSWERED_NO",
            Self::AnsweredIncomplete => "ANSWERED_INCOMPLETE",
            Self::CalledYes => "CALLED_YES",
            Self::CalledNo => "CALLED_NO",
            Self::Error => "ERROR",
            Self::TimedOut => "TIMED_OUT",
        }
    }

    /// The status with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// The decision for the payment.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Asked | Self::Later => Outcome::Open,
            Self::AnsweredYes | Self::CalledYes => Outcome::Approved,
            Self::AnsweredNo | Self::CalledNo => Outcome::Rejected,
            Self::AnsweredIncomplete => Outcome::Failed(FailureReason::MissingMandatoryPayeeData),
            Self::Error => Outcome::Failed(FailureReason::PaymentApprovalWebhookError),
            Self::TimedOut => Outcome::Failed(FailureReason::PaymentApprovalTimedOut),
        }
    }
}

/// Events of an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The answer put the decision off.
    PutOff,
    /// The answer approved.
    AnsweredYes,
    /// The answer rejected.
    AnsweredNo(Option<String>),
    /// The answer asked for more about the payer: names of [`COUNTERPARTY_FIELDS`].
    AnsweredIncomplete(Vec<&'static str>),
    /// The platform called to approve.
    CalledYes,
    /// The platform called to reject.
    CalledNo(Option<String>),
    /// The platform could not be asked, or its answer was none of those.
    Failed,
    /// The time is over.
    TimedOut,
}

impl Event {
    /// One of every event, for tables and tests.
    pub const ALL: [Self; 8] = [
        Self::PutOff,
        Self::AnsweredYes,
        Self::AnsweredNo(None),
        Self::AnsweredIncomplete(Vec::new()),
        Self::CalledYes,
        Self::CalledNo(None),
        Self::Failed,
        Self::TimedOut,
    ];

    /// The event's name in documents and refusals.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::PutOff => "put off",
            Self::AnsweredYes => "answered with 200",
            Self::AnsweredNo(_) => "answered with 403",
            Self::AnsweredIncomplete(_) => "answered with 422",
            Self::CalledYes => "approved by a call",
            Self::CalledNo(_) => "rejected by a call",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
        }
    }
}

/// The arrows of the machine: the one table that [`Approval::apply`] and the documents share.
fn arrow(from: Status, event: &Event) -> Option<Status> {
    match (from, event) {
        (Status::Asked, Event::PutOff) => Some(Status::Later),
        (Status::Asked, Event::AnsweredYes) => Some(Status::AnsweredYes),
        (Status::Asked, Event::AnsweredNo(_)) => Some(Status::AnsweredNo),
        (Status::Asked, Event::AnsweredIncomplete(_)) => Some(Status::AnsweredIncomplete),
        (Status::Asked, Event::Failed) => Some(Status::Error),
        (Status::Asked | Status::Later, Event::CalledYes) => Some(Status::CalledYes),
        (Status::Asked | Status::Later, Event::CalledNo(_)) => Some(Status::CalledNo),
        (Status::Asked | Status::Later, Event::TimedOut) => Some(Status::TimedOut),
        (
            Status::Later
            | Status::AnsweredYes
            | Status::AnsweredNo
            | Status::AnsweredIncomplete
            | Status::CalledYes
            | Status::CalledNo
            | Status::Error
            | Status::TimedOut,
            _,
        ) => None,
    }
}

/// The reason of the platform. It is kept, and the payer does not see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remark {
    /// Why it rejects, in its own words; at most [`REASON_MAX`] characters.
    pub reason: Option<String>,
    /// Facts about the payer that it asks for.
    pub required_fields: Vec<&'static str>,
}

/// An approval request about an incoming payment. Only [`Approval::apply`] changes its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    transaction: TransactionId,
    platform: PlatformId,
    asked_at: Timestamp,
    status: Status,
    decide_by: Timestamp,
    updated_at: Timestamp,
    remark: Remark,
}

impl Approval {
    /// A new request, which is to be answered within [`WINDOW_MILLIS`].
    pub fn asked(transaction: TransactionId, platform: PlatformId, now: Timestamp) -> Self {
        Self {
            transaction,
            platform,
            asked_at: now,
            status: Status::Asked,
            decide_by: now.plus_millis(WINDOW_MILLIS),
            updated_at: now,
            remark: Remark::default(),
        }
    }

    /// Puts a stored request together again. For the store only. Nothing if its times contradict
    /// each other.
    pub fn restore(
        transaction: TransactionId,
        platform: PlatformId,
        status: Status,
        [asked_at, decide_by, updated_at]: [Timestamp; 3],
        remark: Remark,
    ) -> Option<Self> {
        let is_sound = asked_at < decide_by && asked_at <= updated_at;
        let restored =
            Self { transaction, platform, asked_at, status, decide_by, updated_at, remark };
        is_sound.then_some(restored)
    }

    /// The payment.
    pub fn transaction(&self) -> TransactionId {
        self.transaction
    }

    /// The platform that is asked.
    pub fn platform(&self) -> PlatformId {
        self.platform
    }

    /// When it was asked.
    pub fn asked_at(&self) -> Timestamp {
        self.asked_at
    }

    /// The present status.
    pub fn status(&self) -> Status {
        self.status
    }

    /// From when on nothing but the end of the time decides.
    pub fn decide_by(&self) -> Timestamp {
        self.decide_by
    }

    /// When its status last changed.
    pub fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    /// The reason of the platform.
    pub fn remark(&self) -> &Remark {
        &self.remark
    }

    /// Whether a decision at `now` would count.
    pub fn is_open(&self, now: Timestamp) -> bool {
        let is_over = now >= self.decide_by || is_from_ahead(self.asked_at, now);
        self.status.outcome() == Outcome::Open && !is_over
    }

    /// The one function that changes its status. A clock that has stepped back does not take it
    /// back before it was asked.
    pub fn apply(mut self, event: Event, now: Timestamp) -> Result<Moved<Self>, IllegalTransition> {
        let from = self.status;
        let Some(to) = arrow(from, &event) else {
            let (state, event) = (from.name(), event.name());
            return Err(IllegalTransition { machine: "approval", state, event });
        };
        self.status = to;
        self.updated_at = now.max(self.updated_at);
        match event {
            Event::PutOff => self.decide_by = self.updated_at.plus_millis(WINDOW_MILLIS),
            Event::AnsweredNo(reason) | Event::CalledNo(reason) => {
                let shortened = |reason: String| reason.chars().take(REASON_MAX).collect();
                self.remark.reason = reason.map(shortened);
            }
            Event::AnsweredIncomplete(mut fields) => {
                fields.retain(|field| COUNTERPARTY_FIELDS.contains(field));
                self.remark.required_fields = fields;
            }
            Event::AnsweredYes | Event::CalledYes | Event::Failed | Event::TimedOut => {}
        }
        Ok(Moved::new(from.name(), self))
    }
}

/// Every arrow.
pub(crate) fn arrows() -> Vec<[&'static str; 3]> {
    arrows_of(&Status::ALL, &Event::ALL, arrow, Status::name, Event::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    fn asked() -> Approval {
        let (id, platform) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
        Approval::asked(TransactionId::from_uuid(id), PlatformId::from_uuid(platform), at(0))
    }

    /// The status of a request after these events.
    fn check(events: &[Event], expected: Option<Status>) {
        let mut approval = Some(asked());
        for event in events {
            let moved = approval.and_then(|it| it.apply(event.clone(), at(1)).ok());
            approval = moved.map(Moved::into_now);
        }
        assert_eq!(approval.map(|it| it.status()), expected, "{events:?}");
    }

    #[test]
    fn what_comes_first_decides() {
        for first in Event::ALL {
            let is_final = first != Event::PutOff;
            for second in Event::ALL {
                let is_call =
                    matches!(second, Event::CalledYes | Event::CalledNo(_) | Event::TimedOut);
                let next = arrow(Status::Asked, &second).filter(|_| !is_final && is_call);
                check(&[first.clone(), second], next);
            }
        }
        check(&[Event::AnsweredYes], Some(Status::AnsweredYes));
        check(&[Event::PutOff, Event::CalledYes], Some(Status::CalledYes));
    }

    #[test]
    fn a_decision_counts_to_its_last_millisecond() {
        let asked = asked();
        assert!(asked.is_open(at(4_999)) && !asked.is_open(at(5_000)));
        let later = asked.clone().apply(Event::PutOff, at(4_999)).expect("an arrow").into_now();
        assert!(later.is_open(at(9_998)) && !later.is_open(at(9_999)));
        let ended = later.apply(Event::CalledYes, at(6_000)).expect("an arrow").into_now();
        assert!(!ended.is_open(at(6_000)));
        // A clock that has stepped back.
        let later = asked.apply(Event::PutOff, at(-7)).expect("an arrow").into_now();
        assert_eq!(later.decide_by(), at(5_000));
    }

    #[test]
    fn what_is_said_besides_is_kept_within_limits() {
        let long = "x".repeat(REASON_MAX + 1);
        let no = asked().apply(Event::AnsweredNo(Some(long)), at(1)).expect("an arrow").into_now();
        assert_eq!(no.remark().reason.as_ref().map(String::len), Some(REASON_MAX));
        let fields = vec!["TAX_ID", "SHOE_SIZE"];
        let more = asked().apply(Event::AnsweredIncomplete(fields), at(1)).expect("an arrow");
        assert_eq!(more.now().remark().required_fields, ["TAX_ID"]);
    }
}
