//! Invitations: a customer asks a person to get an address (specification 2.13, 3.4; contract
//! 6.13). The money that an invitation shows is a promise of the inviter's platform; nothing here
//! moves it.

use crate::code::Code;
use crate::id::{CustomerId, InvitationId, PlatformId};
use crate::money::Money;
use crate::time::Timestamp;
use crate::transition::{IllegalTransition, Moved, arrows_of};
use crate::uma_address::UmaAddress;

/// Status of an invitation (specification 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Open to be claimed.
    Pending,
    /// The invited person has an address.
    Claimed,
    /// Its time was over.
    Expired,
    /// The inviter's platform took it back.
    Cancelled,
}

impl Status {
    /// Every status, in the order of the specification.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Claimed, Self::Expired, Self::Cancelled];

    /// The name that the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Claimed => "CLAIMED",
            Self::Expired => "EXPIRED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// The status with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Where the event leads from this status, if the machine has an arrow for it.
    pub fn after(self, event: &Event) -> Option<Self> {
        arrow(self, event)
    }
}

/// Events of an invitation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A person with the code has got this address.
    Claimed(UmaAddress),
    /// The time is over.
    Expired,
    /// The inviter's platform took it back.
    Cancelled,
}

impl Event {
    /// One of each, the claim by `invitee`.
    pub fn all(invitee: UmaAddress) -> [Self; 3] {
        [Self::Claimed(invitee), Self::Expired, Self::Cancelled]
    }

    /// The event's name in documents and refusals.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Claimed(_) => "claimed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The arrows of the machine: the one table that [`Invitation::apply`] and the documents share.
fn arrow(from: Status, event: &Event) -> Option<Status> {
    use Status::{Cancelled, Claimed, Expired, Pending};
    match (from, event) {
        (Pending, Event::Claimed(_)) => Some(Claimed),
        (Pending, Event::Expired) => Some(Expired),
        (Pending, Event::Cancelled) => Some(Cancelled),
        (Claimed | Expired | Cancelled, Event::Claimed(_) | Event::Expired | Event::Cancelled) => {
            None
        }
    }
}

/// The draft of an invitation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// System id: a keyed hash of the code, so that the database alone opens nothing.
    pub id: InvitationId,
    /// The code that the invited person and the claiming platform show.
    pub code: Code,
    /// The inviter's platform.
    pub platform: PlatformId,
    /// The inviter.
    pub inviter: CustomerId,
    /// The inviter's address when the invitation was made.
    pub inviter_uma: UmaAddress,
    /// The inviter's first name, for the invited person to read.
    pub first_name: Option<String>,
    /// The amount that the inviter's platform promises to send after the claim.
    pub amount_to_send: Option<Money>,
    /// Until when it can be claimed; for ever without it.
    pub expires_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// How an invitation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The event.
    pub event: Event,
    /// When.
    pub at: Timestamp,
}

/// An invitation, with a status that only [`Invitation::apply`] changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    draft: Draft,
    end: Option<End>,
}

impl Invitation {
    /// A new invitation, `PENDING`.
    pub fn pending(draft: Draft) -> Self {
        Self { draft, end: None }
    }

    /// Puts a stored invitation together again. For the store only. Nothing if it ended before it
    /// was made.
    pub fn restore(draft: Draft, end: Option<End>) -> Option<Self> {
        let is_sound = end.as_ref().is_none_or(|end| draft.created_at <= end.at);
        is_sound.then_some(Self { draft, end })
    }

    /// Its draft.
    pub fn draft(&self) -> &Draft {
        &self.draft
    }

    /// System id.
    pub fn id(&self) -> InvitationId {
        self.draft.id
    }

    /// How it ended; nothing while it is `PENDING`.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The present status.
    pub fn status(&self) -> Status {
        let end = self.end.as_ref().and_then(|end| arrow(Status::Pending, &end.event));
        end.unwrap_or(Status::Pending)
    }

    /// The status as it is seen at `now`: an invitation whose time is over is expired for every
    /// reader, also in the moment before its timer has run.
    pub fn status_at(&self, now: Timestamp) -> Status {
        match self.status() {
            Status::Pending if self.is_over(now) => Status::Expired,
            status => status,
        }
    }

    /// The claim: by whom, and when.
    pub fn claim(&self) -> Option<(&UmaAddress, Timestamp)> {
        match self.end.as_ref()? {
            End { event: Event::Claimed(invitee), at } => Some((invitee, *at)),
            End { event: Event::Expired | Event::Cancelled, .. } => None,
        }
    }

    /// Whether its time is over at `now`.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.draft.expires_at.is_some_and(|expires_at| now >= expires_at)
    }

    /// The one function that changes an invitation's status. A clock that has stepped back does not
    /// end it before it was made.
    pub fn apply(mut self, event: Event, now: Timestamp) -> Result<Moved<Self>, IllegalTransition> {
        let from = self.status();
        if arrow(from, &event).is_none() {
            return Err(IllegalTransition {
                machine: "invitation",
                state: from.name(),
                event: event.name(),
            });
        }
        self.end = Some(End { event, at: now.max(self.draft.created_at) });
        Ok(Moved::new(from.name(), self))
    }
}

/// Every arrow, for people and tests.
pub(crate) fn arrows() -> Vec<[&'static str; 3]> {
    let invitee = UmaAddress::parse("$invitee@example.com").expect("it is of the right form");
    let events = Event::all(invitee);
    arrows_of(&Status::ALL, &events, |from, event| from.after(event), Status::name, Event::name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::CODE_LENGTH;
    use uuid::Uuid;

    fn address(text: &str) -> UmaAddress {
        UmaAddress::parse(text).expect("an address")
    }

    fn invitation() -> Invitation {
        Invitation::pending(Draft {
            id: InvitationId::from_uuid(Uuid::nil()),
            code: Code::of_random([0; CODE_LENGTH]),
            platform: PlatformId::from_uuid(Uuid::nil()),
            inviter: CustomerId::from_uuid(Uuid::nil()),
            inviter_uma: address("$ada@uma.test"),
            first_name: None,
            amount_to_send: None,
            expires_at: Some(Timestamp::from_millis(100)),
            created_at: Timestamp::from_millis(10),
        })
    }

    #[test]
    fn the_arrows_are_those_of_the_contract() {
        let arrows: Vec<_> = arrows().iter().map(|arrow| arrow.join(" ")).collect();
        assert_eq!(
            arrows,
            ["PENDING claimed CLAIMED", "PENDING expired EXPIRED", "PENDING cancelled CANCELLED",]
        );
    }

    #[test]
    fn an_end_is_the_only_one_and_not_before_the_beginning() {
        let at = Timestamp::from_millis;
        for first in Event::all(address("$bo@uma.test")) {
            let ended = invitation().apply(first.clone(), at(5)).expect("an arrow").into_now();
            assert_eq!(ended.end(), Some(&End { event: first, at: at(10) }));
            for second in Event::all(address("$eve@uma.test")) {
                assert!(ended.clone().apply(second, at(20)).is_err());
            }
        }
        let claimed = Event::Claimed(address("$bo@uma.test"));
        let claimed = invitation().apply(claimed, at(20)).expect("an arrow").into_now();
        assert_eq!(claimed.claim(), Some((&address("$bo@uma.test"), at(20))));
        assert_eq!(invitation().claim(), None);
    }

    #[test]
    fn it_is_seen_as_expired_when_its_time_is_over() {
        let at = Timestamp::from_millis;
        assert_eq!(invitation().status_at(at(99)), Status::Pending);
        assert_eq!(invitation().status_at(at(100)), Status::Expired);
        let cancelled = invitation().apply(Event::Cancelled, at(50)).expect("an arrow").into_now();
        assert_eq!(cancelled.status_at(at(100)), Status::Cancelled);
    }
}
