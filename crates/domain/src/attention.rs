//! Matters that only a person can settle: the system itself cannot find out where the money of a
//! payment is, or whether events arrived.
//!
//! A matter is opened by the change that notices it, and resolved by an operator, with a reason. A
//! second notice of the same matter opens none. One that is noticed again after it was resolved is
//! open again.

use uuid::Uuid;

use crate::id::{AttentionId, PlatformId};
use crate::time::Timestamp;
use crate::transition::{IllegalTransition, Moved, arrows_of};

/// The namespace of ids of matters.
const NAMESPACE: Uuid = Uuid::from_u128(0x5d0c_37b2_90ea_4f6b_8e1d_2b4a_7f19_c6d3);

/// The kind of a matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A rail takes back what it said about a payment that it had settled. The subject is the
    /// payment.
    RailContradiction,
    /// A rail does not say what became of a payment, and the time for it is over. The subject is
    /// the payment, which stays under way.
    UnknownOutcome,
    /// Money has come back for a customer who was deleted, and waits in suspense. The subject is
    /// the payment.
    LateReturn,
    /// Events did not reach the platform's endpoint, and are not sent any more. The subject is the
    /// platform.
    DeadDeliveries,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] =
        [Self::RailContradiction, Self::UnknownOutcome, Self::LateReturn, Self::DeadDeliveries];

    /// The name in storage and for operators.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RailContradiction => "RAIL_CONTRADICTION",
            Self::UnknownOutcome => "UNKNOWN_OUTCOME",
            Self::LateReturn => "LATE_RETURN",
            Self::DeadDeliveries => "DEAD_DELIVERIES",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The outcomes that a person can find. If there is one, it need not be said.
    pub const fn outcomes(self) -> &'static [Outcome] {
        match self {
            Self::RailContradiction => &[Outcome::Settled, Outcome::Returned],
            Self::UnknownOutcome => &[Outcome::Settled, Outcome::Failed],
            Self::LateReturn => &[Outcome::Kept],
            Self::DeadDeliveries => &[Outcome::Noted],
        }
    }

    /// The matter of this kind about a subject.
    pub fn id(self, subject: Uuid) -> AttentionId {
        let name = [subject.as_bytes(), self.name().as_bytes()].concat();
        AttentionId::from_uuid(Uuid::new_v5(&NAMESPACE, &name))
    }
}

/// The outcome of a matter, as a person has found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The money has moved.
    Settled,
    /// No money has moved.
    Failed,
    /// It has moved, and is with us again.
    Returned,
    /// It is the platform's.
    Kept,
    /// Nothing changes in the books.
    Noted,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 5] =
        [Self::Settled, Self::Failed, Self::Returned, Self::Kept, Self::Noted];

    /// The name in storage and for operators.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Settled => "SETTLED",
            Self::Failed => "FAILED",
            Self::Returned => "RETURNED",
            Self::Kept => "KEPT",
            Self::Noted => "NOTED",
        }
    }

    /// The outcome with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name)
    }
}

/// Status of a matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It waits for a person.
    Open,
    /// A person, or a later answer of the rail, has settled it.
    Resolved,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 2] = [Self::Open, Self::Resolved];

    /// The name for operators.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Resolved => "RESOLVED",
        }
    }
}

/// How a matter was resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// When, by the server's clock.
    pub at: Timestamp,
    /// By whom: a person at a machine, or the job that learned it.
    pub by: String,
    /// Why it is so.
    pub reason: String,
    /// The outcome that was found.
    pub outcome: Outcome,
}

/// A notice of a matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// When, by the server's clock.
    pub at: Timestamp,
    /// How many things of the kind have happened, such as deliveries that are dead.
    pub count: u32,
    /// The first thing to know about it. Never personal data.
    pub note: String,
}

/// Events of a matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It was noticed once more.
    Noticed(Notice),
    /// It was settled.
    Resolved(Resolution),
}

impl Event {
    /// The event's name in documents and refusals.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Noticed(_) => "noticed again",
            Self::Resolved(_) => "resolved",
        }
    }
}

/// The arrows of the machine.
fn arrow(from: Status, event: &Event) -> Option<Status> {
    match (from, event) {
        (Status::Open | Status::Resolved, Event::Noticed(_)) => Some(Status::Open),
        (Status::Open, Event::Resolved(_)) => Some(Status::Resolved),
        (Status::Resolved, Event::Resolved(_)) => None,
    }
}

/// Every arrow, for the documents.
pub(crate) fn arrows() -> Vec<[&'static str; 3]> {
    let at = Timestamp::from_millis(0);
    let events = [
        Event::Noticed(Notice { at, count: 1, note: String::new() }),
        Event::Resolved(Resolution {
            at,
            by: String::new(),
            reason: String::new(),
            outcome: Outcome::Noted,
        }),
    ];
    arrows_of(&Status::ALL, &events, arrow, Status::name, Event::name)
}

/// A matter for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attention {
    /// Its kind.
    pub kind: Kind,
    /// The uuid of what it is about.
    pub subject: Uuid,
    /// The platform whose payment or events it is about.
    pub platform: PlatformId,
    /// Its first notice since it was open last, with the count and the note of all.
    pub notice: Notice,
    /// How it was resolved, if it was.
    pub resolution: Option<Resolution>,
}

impl Attention {
    /// A matter that is noticed for the first time.
    pub const fn open(kind: Kind, subject: Uuid, platform: PlatformId, notice: Notice) -> Self {
        Self { kind, subject, platform, notice, resolution: None }
    }

    /// System id.
    pub fn id(&self) -> AttentionId {
        self.kind.id(self.subject)
    }

    /// The present status.
    pub fn status(&self) -> Status {
        if self.resolution.is_some() { Status::Resolved } else { Status::Open }
    }

    /// The one function that changes a matter.
    pub fn apply(self, event: Event) -> Result<Moved<Self>, IllegalTransition> {
        let from = self.status();
        if arrow(from, &event).is_none() {
            return Err(IllegalTransition {
                machine: "attention",
                state: from.name(),
                event: event.name(),
            });
        }
        let now = match event {
            Event::Resolved(resolution) => Self { resolution: Some(resolution), ..self },
            Event::Noticed(notice) => match from {
                Status::Resolved => Self { notice, resolution: None, ..self },
                Status::Open => {
                    let count = self.notice.count.saturating_add(notice.count);
                    let notice = Notice { at: self.notice.at, count, note: notice.note };
                    Self { notice, ..self }
                }
            },
        };
        Ok(Moved::new(from.name(), now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(at: i64, count: u32) -> Notice {
        Notice { at: Timestamp::from_millis(at), count, note: format!("at {at}") }
    }

    fn resolved(at: i64) -> Event {
        Event::Resolved(Resolution {
            at: Timestamp::from_millis(at),
            by: "ops@host".to_owned(),
            reason: "asked the bank".to_owned(),
            outcome: Outcome::Noted,
        })
    }

    #[test]
    fn a_matter_is_open_until_it_is_resolved_and_again_when_it_is_noticed_again() {
        let platform = PlatformId::from_uuid(Uuid::from_u128(1));
        let first = Attention::open(Kind::LateReturn, Uuid::from_u128(2), platform, notice(1, 1));
        let again = first.apply(Event::Noticed(notice(5, 2))).expect("an arrow").into_now();
        assert_eq!((again.notice.at.millis(), again.notice.count), (1, 3), "open since the first");
        assert_eq!(again.notice.note, "at 5");
        let done = again.apply(resolved(7)).expect("an arrow").into_now();
        assert_eq!(done.status(), Status::Resolved);
        assert!(done.clone().apply(resolved(8)).is_err(), "once");
        let reopened = done.apply(Event::Noticed(notice(9, 1))).expect("an arrow").into_now();
        assert_eq!((reopened.status(), reopened.notice), (Status::Open, notice(9, 1)));
    }

    #[test]
    fn a_matter_is_one_for_each_kind_and_subject() {
        let ids: std::collections::BTreeSet<_> = Kind::ALL
            .into_iter()
            .flat_map(|kind| [1, 2].map(|subject| kind.id(Uuid::from_u128(subject))))
            .collect();
        assert_eq!(ids.len(), 8);
    }
}
