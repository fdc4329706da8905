//! System identifiers: `<Type>:<uuid>` (specification section 1).
//!
//! The one place that knows the prefixes. An identifier carries the type of what it names, so a
//! quote's id cannot be passed where a transaction's is due.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use uuid::Uuid;

use crate::clock::{Ahead, STEP_ABSORBED_MILLIS};
use crate::currency::Currency;
use crate::time::Timestamp;

/// A resource type that has identifiers of the form `<PREFIX>:<uuid>`.
pub trait Kind: 'static {
    /// The text before the colon.
    const PREFIX: &'static str;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum $name {}
            impl Kind for $name { const PREFIX: &'static str = $prefix; }
        )*
    };
}

/// The types that identifiers name.
pub mod kind {
    use super::Kind;

    kinds! {
        /// A payment as the client sees it.
        Transaction = "Transaction";
        /// A customer of a platform.
        Customer = "Customer";
        /// A balance held here, of a customer or of the platform.
        InternalAccount = "InternalAccount";
        /// A bank account or wallet elsewhere.
        ExternalAccount = "ExternalAccount";
        /// A priced offer to move money.
        Quote = "Quote";
        /// An API token.
        Token = "Token";
        /// A platform, named after its configuration as in the specification.
        Platform = "PlatformConfig";
        /// A receiver lookup.
        Lookup = "Lookup";
        /// An event and every delivery of it.
        Event = "Webhook";
        /// A delivery of an event to the platform.
        Delivery = "Delivery";
        /// An invitation; clients know it by its code.
        Invitation = "Invitation";
        /// An import of many customers.
        Job = "Job";
        /// A check of a customer's identity; people know it by its link.
        IdentityCheck = "IdentityCheck";
        /// A matter that only a person can settle.
        Attention = "Attention";
    }
}

/// An identifier of one resource of type `K`.
pub struct Id<K> {
    uuid: Uuid,
    kind: PhantomData<fn() -> K>,
}

/// Identifier of a [`kind::Transaction`].
pub type TransactionId = Id<kind::Transaction>;
/// Identifier of a [`kind::Customer`].
pub type CustomerId = Id<kind::Customer>;
/// Identifier of a [`kind::InternalAccount`].
pub type InternalAccountId = Id<kind::InternalAccount>;
/// Identifier of a [`kind::ExternalAccount`].
pub type ExternalAccountId = Id<kind::ExternalAccount>;
/// Identifier of a [`kind::Quote`].
pub type QuoteId = Id<kind::Quote>;
/// Identifier of a [`kind::Token`].
pub type TokenId = Id<kind::Token>;
/// Identifier of a [`kind::Platform`].
pub type PlatformId = Id<kind::Platform>;
/// Identifier of a [`kind::Lookup`].
pub type LookupId = Id<kind::Lookup>;
/// Identifier of a [`kind::Event`].
pub type EventId = Id<kind::Event>;
/// Identifier of a [`kind::Delivery`].
pub type DeliveryId = Id<kind::Delivery>;
/// Identifier of a [`kind::Invitation`].
pub type InvitationId = Id<kind::Invitation>;
/// Identifier of a [`kind::Job`].
pub type JobId = Id<kind::Job>;
/// Identifier of a [`kind::IdentityCheck`].
pub type IdentityCheckId = Id<kind::IdentityCheck>;
/// Identifier of a [`kind::Attention`].
pub type AttentionId = Id<kind::Attention>;

/// Why a text is not an identifier of the wanted type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an id of the form {prefix}:<uuid>")]
pub struct InvalidId {
    /// The text as given, cut to a length that is safe to repeat.
    pub text: String,
    /// The prefix that was wanted.
    pub prefix: &'static str,
}

impl<K: Kind> Id<K> {
    /// Wraps the uuid of a stored or freshly drawn identifier.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self { uuid, kind: PhantomData }
    }

    /// The identifier without its type.
    pub const fn uuid(self) -> Uuid {
        self.uuid
    }

    /// When what it names was made: the milliseconds that its uuid starts with. A listed row takes
    /// its `created_at` from here: the order of ids is the order of creation, and a time is a range
    /// of ids.
    pub const fn created_at(self) -> Timestamp {
        Timestamp::from_millis((self.uuid.as_u128() >> TIME_SHIFT) as i64)
    }

    /// Reads `<PREFIX>:<uuid>` with a hyphenated uuid of either case.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        /// Length of a hyphenated uuid; other notations of the same uuid are refused so that every
        /// identifier has one spelling but for case.
        const HYPHENATED: usize = 36;
        text.strip_prefix(K::PREFIX)
            .and_then(|rest| rest.strip_prefix(':'))
            .filter(|rest| rest.len() == HYPHENATED)
            .and_then(|rest| Uuid::try_parse(rest).ok())
            .map(Self::from_uuid)
            .ok_or_else(|| InvalidId { text: text.chars().take(80).collect(), prefix: K::PREFIX })
    }
}

impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Id<K> {}
impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.uuid == other.uuid
    }
}
impl<K> Eq for Id<K> {}
impl<K> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.uuid.cmp(&other.uuid)
    }
}
impl<K> Hash for Id<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.uuid.hash(state);
    }
}
impl<K: Kind> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", K::PREFIX, self.uuid)
    }
}
impl<K: Kind> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The owner of an account or payer: a customer, or the platform itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// The platform on its own behalf.
    Platform(PlatformId),
    /// A customer of the platform.
    Customer(CustomerId),
}

impl Owner {
    /// The owner's identifier without its type.
    pub fn uuid(self) -> Uuid {
        match self {
            Self::Platform(id) => id.uuid(),
            Self::Customer(id) => id.uuid(),
        }
    }

    /// The customer, unless the platform is the owner.
    pub fn customer(self) -> Option<CustomerId> {
        match self {
            Self::Platform(_) => None,
            Self::Customer(id) => Some(id),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform(id) => id.fmt(f),
            Self::Customer(id) => id.fmt(f),
        }
    }
}

/// The low bits of an owner's uuid, which are zero. The uuid of each of its internal accounts is
/// the owner's with the currency's number in them: an account exists for every currency without a
/// row, and its id still tells whose it is.
const CURRENCY_BITS: u128 = 0xffff;

impl InternalAccountId {
    /// The account of `owner` in `currency`. Owners have one account per currency.
    pub fn of(owner: Owner, currency: Currency) -> Self {
        let owner = owner.uuid().as_u128() & !CURRENCY_BITS;
        Self::from_uuid(Uuid::from_u128(owner | u128::from(currency.number())))
    }

    /// The currency that the id names, if it names one that an owner can hold.
    pub fn currency(self) -> Option<Currency> {
        let currency = Currency::from_number((self.uuid.as_u128() & CURRENCY_BITS) as u16);
        currency.filter(|currency| *currency != Currency::MSAT)
    }

    /// The first and the last uuid that accounts of `owner` can have. The first is the owner's own
    /// and no account's.
    pub fn range_of(owner: Owner) -> [Uuid; 2] {
        let first = owner.uuid().as_u128() & !CURRENCY_BITS;
        [first, first | CURRENCY_BITS].map(Uuid::from_u128)
    }

    /// The uuid of the owner, who may be a customer or a platform.
    pub fn owner_uuid(self) -> Uuid {
        Uuid::from_u128(self.uuid.as_u128() & !CURRENCY_BITS)
    }
}

/// Bits of a uuid below its milliseconds.
const TIME_SHIFT: u32 = 80;

/// Draws time-ordered uuids (version 7) from a reading of the clock and random bits.
///
/// Every uuid is greater than the one before, also within one millisecond and when the clock steps
/// back. "Newest first" is then the order of creation.
#[derive(Debug, Default)]
pub struct IdSequence {
    /// Milliseconds since 1970 and a 12-bit counter below them, as in the last uuid drawn.
    last: u64,
}

impl IdSequence {
    /// The next uuid, greater than the last one unless the clock has made a step back that records
    /// follow. `random` fills the bits that are neither time nor counter.
    pub fn next(&mut self, now: Timestamp, random: u64) -> Uuid {
        const COUNTER_BITS: u32 = 12;
        let millis = u64::try_from(now.millis()).unwrap_or(0);
        let behind = (self.last >> COUNTER_BITS).saturating_sub(millis);
        self.last = if behind > STEP_ABSORBED_MILLIS.unsigned_abs() {
            // The clock was set right. The random bits keep the ids apart.
            millis << COUNTER_BITS
        } else {
            (millis << COUNTER_BITS).max(self.last + 1)
        };
        let millis = u128::from(self.last >> COUNTER_BITS);
        let counter = u128::from(self.last & ((1 << COUNTER_BITS) - 1));
        let random = u128::from(random >> 2);
        Uuid::from_u128(millis << TIME_SHIFT | 0x7 << 76 | counter << 64 | 0b10 << 62 | random)
    }

    /// The next uuid for something that owns internal accounts: its lowest 16 bits are zero.
    pub fn next_owner(&mut self, now: Timestamp, random: u64) -> Uuid {
        Uuid::from_u128(self.next(now, random).as_u128() & !CURRENCY_BITS)
    }
}

/// A uuid that was drawn by the server's clock, as it is by one that is ahead of it. The order of
/// uuids of one clock stays, because the distance only grows, and no other clock's are affected.
pub fn moved_ahead(uuid: Uuid, ahead: Ahead) -> Uuid {
    Uuid::from_u128(uuid.as_u128() + ((ahead.millis() as u128) << TIME_SHIFT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_and_parse_their_prefix() {
        let id = QuoteId::from_uuid(Uuid::from_u128(7));
        assert_eq!(id.to_string(), "Quote:00000000-0000-0000-0000-000000000007");
        assert_eq!(QuoteId::parse(&id.to_string()), Ok(id));
        for wrong in [
            "Quote:",
            "Quote",
            "",
            "Customer:00000000-0000-0000-0000-000000000007",
            "Quote:00000000000000000000000000000007",
            "Quote:{00000000-0000-0000-0000-000000000007}",
            "quote:00000000-0000-0000-0000-000000000007",
            "Quote:00000000-0000-0000-0000-00000000000g",
        ] {
            assert!(QuoteId::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn drawn_ids_only_grow() {
        let mut ids = IdSequence::default();
        let mut last = Uuid::nil();
        for millis in [5, 5, 5, 6, 4, 4, 9, 5_009, 9] {
            let id = ids.next(Timestamp::from_millis(millis), u64::MAX);
            assert!(id > last, "{id} after {last}");
            assert_eq!(id.get_version_num(), 7);
            last = id;
        }
    }

    #[test]
    fn ids_follow_a_clock_that_is_set_back() {
        let mut ids = IdSequence::default();
        let millis = |id| QuoteId::from_uuid(id).created_at().millis();
        for (now, drawn) in [(7_200_000, 7_200_000), (7_195_000, 7_200_000), (9, 9), (9, 9)] {
            assert_eq!(millis(ids.next(Timestamp::from_millis(now), 0)), drawn);
        }
    }

    #[test]
    fn ids_tell_when_they_were_drawn() {
        let mut ids = IdSequence::default();
        let made = [1_700_000_000_123, 1_700_000_000_124, 1_700_000_000_100].map(|millis| {
            let now = Timestamp::from_millis(millis);
            let (id, owner) = (ids.next(now, u64::MAX), ids.next_owner(now, u64::MAX));
            [id, owner].map(|uuid| QuoteId::from_uuid(uuid).created_at().millis())
        });
        // A clock that steps back does not take creation back.
        let latest = 1_700_000_000_124;
        assert_eq!(made, [[1_700_000_000_123; 2], [latest; 2], [latest; 2]]);
    }

    #[test]
    fn ids_of_a_clock_that_is_moved_on_only_grow_and_leave_others_alone() {
        let mut ids = IdSequence::default();
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut last = Uuid::nil();
        for ahead in [0, 0, 1, 86_400_000, 86_400_000] {
            let ahead = Ahead::from_millis(ahead).expect("within the limit");
            let id = moved_ahead(ids.next(now, u64::MAX), ahead);
            assert!(id > last, "{id} after {last}");
            assert_eq!(QuoteId::from_uuid(id).created_at(), ahead.shows(now));
            assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
            last = id;
        }
        assert_eq!(QuoteId::from_uuid(ids.next(now, 0)).created_at(), now);
    }

    #[test]
    fn an_internal_account_tells_its_owner_and_currency() {
        let mut ids = IdSequence::default();
        let uuid = ids.next_owner(Timestamp::from_millis(1_700_000_000_000), 0x1234_5678_9abc_def0);
        let owner = Owner::Customer(CustomerId::from_uuid(uuid));
        for currency in Currency::all() {
            let account = InternalAccountId::of(owner, currency);
            assert_eq!(account.currency(), Some(currency));
            assert_eq!(account.owner_uuid(), uuid);
            let [first, last] = InternalAccountId::range_of(owner);
            assert!(first < account.uuid() && account.uuid() <= last);
            assert_eq!(first, uuid);
        }
    }
}
