//! Ledger accounts and their balances.
//!
//! An account has one currency and four counters that only tell how much passed through each
//! side: debits and credits, pending and posted. "Available" is a question put to the counters,
//! never a stored number.

use std::fmt;

use domain::currency::Currency;
use domain::id::{InternalAccountId, PlatformId};
use domain::rail::Rail;
use uuid::Uuid;

/// The key of one account of the ledger.
///
/// The order of keys is the order in which [`crate::apply`] touches accounts, so that two postings
/// never wait for each other's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccountKey {
    /// Money that a customer or the platform holds here: what we owe to its owner.
    Internal(InternalAccountId),
    /// The outside world, as a platform reaches it over one rail in one currency.
    Rail {
        /// Whose payments move over it.
        platform: PlatformId,
        /// The network.
        rail: Rail,
        /// The currency it moves.
        currency: Currency,
    },
    /// The open position in one currency that a platform's exchanges leave behind.
    Exchange {
        /// Whose quotes were exchanged.
        platform: PlatformId,
        /// The currency of the position.
        currency: Currency,
    },
    /// The income of a platform in one currency.
    Fees {
        /// Whose quotes earned it.
        platform: PlatformId,
        /// The currency it was taken in.
        currency: Currency,
    },
    /// Money that came to a platform and has no owner yet: of a quote that waits for its exchange,
    /// or matched to nothing.
    Suspense {
        /// To whom it came.
        platform: PlatformId,
        /// The currency in which it came.
        currency: Currency,
    },
    /// Money that one payment of this server hands to another one of this server: paid by the
    /// payer's platform and not yet credited by the payee's. Both happen in one change, so that it
    /// is empty between changes. It is the one account that two platforms share.
    Transit(Currency),
}

/// One of the two sides of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The left side.
    Debit,
    /// The right side.
    Credit,
}

impl Side {
    /// Both sides, debit first.
    pub const ALL: &'static [Self] = &[Self::Debit, Self::Credit];

    /// The name in storage and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debit => "DEBIT",
            Self::Credit => "CREDIT",
        }
    }

    /// The side with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|side| side.name() == name)
    }

    /// The other side.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Debit => Self::Credit,
            Self::Credit => Self::Debit,
        }
    }
}

/// The side on which an account's balance stands when all is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NormalSide {
    /// Debits exceed credits: what others hold for us.
    Debit,
    /// Credits exceed debits: what we owe, or earned.
    Credit,
    /// Both occur: a position that is long or short.
    Either,
}

/// Why stored bytes are not an account key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bytes {bytes:02x?} are not an account key")]
pub struct InvalidAccountKey {
    /// The bytes as stored, cut to a length that is safe to repeat.
    pub bytes: Vec<u8>,
}

/// The first byte of each kind of encoded key. They are stored, so they never change.
mod kind_byte {
    pub const INTERNAL: u8 = 1;
    pub const RAIL: u8 = 2;
    pub const EXCHANGE: u8 = 3;
    pub const FEES: u8 = 4;
    pub const SUSPENSE: u8 = 5;
    pub const TRANSIT: u8 = 6;
}

impl AccountKey {
    /// The account's one currency; nothing for an internal account whose id names none we know,
    /// which no entry can be made for ([`crate::posting::Entry::new`]).
    pub fn currency(&self) -> Option<Currency> {
        match *self {
            Self::Internal(id) => id.currency(),
            Self::Rail { currency, .. }
            | Self::Exchange { currency, .. }
            | Self::Fees { currency, .. }
            | Self::Suspense { currency, .. }
            | Self::Transit(currency) => Some(currency),
        }
    }

    /// The platform that the key names. An internal account names its owner instead, and transit
    /// is between platforms.
    pub const fn platform(&self) -> Option<PlatformId> {
        match *self {
            Self::Rail { platform, .. }
            | Self::Exchange { platform, .. }
            | Self::Fees { platform, .. }
            | Self::Suspense { platform, .. } => Some(platform),
            Self::Internal(_) | Self::Transit(_) => None,
        }
    }

    /// The side on which the account's balance stands.
    pub const fn side(&self) -> NormalSide {
        match self {
            Self::Rail { .. } => NormalSide::Debit,
            Self::Internal(_) | Self::Fees { .. } | Self::Suspense { .. } | Self::Transit(_) => {
                NormalSide::Credit
            }
            Self::Exchange { .. } => NormalSide::Either,
        }
    }

    /// Whether the account holds money that is someone's, so that what is available on it may
    /// never fall below zero.
    pub const fn must_stay_covered(&self) -> bool {
        match self {
            Self::Internal(_) | Self::Suspense { .. } | Self::Transit(_) => true,
            Self::Rail { .. } | Self::Exchange { .. } | Self::Fees { .. } => false,
        }
    }

    /// The key as stored: one byte for the kind, then its parts, numbers with the high byte first.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + 16 + 1 + 2);
        match *self {
            Self::Internal(id) => {
                bytes.push(kind_byte::INTERNAL);
                bytes.extend_from_slice(id.uuid().as_bytes());
            }
            Self::Rail { platform, rail, currency } => {
                bytes.push(kind_byte::RAIL);
                bytes.extend_from_slice(platform.uuid().as_bytes());
                bytes.push(rail.number());
                bytes.extend_from_slice(&currency.number().to_be_bytes());
            }
            Self::Exchange { platform, currency } => {
                bytes.push(kind_byte::EXCHANGE);
                encode_platforms(&mut bytes, platform, currency);
            }
            Self::Fees { platform, currency } => {
                bytes.push(kind_byte::FEES);
                encode_platforms(&mut bytes, platform, currency);
            }
            Self::Suspense { platform, currency } => {
                bytes.push(kind_byte::SUSPENSE);
                encode_platforms(&mut bytes, platform, currency);
            }
            Self::Transit(currency) => {
                bytes.push(kind_byte::TRANSIT);
                bytes.extend_from_slice(&currency.number().to_be_bytes());
            }
        }
        bytes
    }

    /// Reads a stored key; refuses what [`AccountKey::encode`] cannot have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, InvalidAccountKey> {
        Self::try_decode(bytes).ok_or_else(|| {
            /// No key is longer, so more bytes would only fill the error.
            const SHOWN_MAX: usize = 20;
            InvalidAccountKey { bytes: bytes.iter().copied().take(SHOWN_MAX).collect() }
        })
    }

    fn try_decode(bytes: &[u8]) -> Option<Self> {
        let (&kind, payload) = bytes.split_first()?;
        match kind {
            kind_byte::INTERNAL => {
                Some(Self::Internal(InternalAccountId::from_uuid(Uuid::from_slice(payload).ok()?)))
            }
            kind_byte::RAIL => {
                let (platform, rest) = decode_platform(payload)?;
                let (&rail, currency) = rest.split_first()?;
                let (rail, currency) = (Rail::from_number(rail)?, decode_currency(currency)?);
                Some(Self::Rail { platform, rail, currency })
            }
            kind_byte::EXCHANGE => {
                let (platform, currency) = decode_platform(payload)?;
                Some(Self::Exchange { platform, currency: decode_currency(currency)? })
            }
            kind_byte::FEES => {
                let (platform, currency) = decode_platform(payload)?;
                Some(Self::Fees { platform, currency: decode_currency(currency)? })
            }
            kind_byte::SUSPENSE => {
                let (platform, currency) = decode_platform(payload)?;
                Some(Self::Suspense { platform, currency: decode_currency(currency)? })
            }
            kind_byte::TRANSIT => Some(Self::Transit(decode_currency(payload)?)),
            _ => None,
        }
    }
}

/// The parts of a key that one platform has in each currency.
fn encode_platforms(bytes: &mut Vec<u8>, platform: PlatformId, currency: Currency) {
    bytes.extend_from_slice(platform.uuid().as_bytes());
    bytes.extend_from_slice(&currency.number().to_be_bytes());
}

fn decode_platform(bytes: &[u8]) -> Option<(PlatformId, &[u8])> {
    let (platform, rest) = bytes.split_at_checked(16)?;
    Some((PlatformId::from_uuid(Uuid::from_slice(platform).ok()?), rest))
}

fn decode_currency(bytes: &[u8]) -> Option<Currency> {
    Currency::from_number(u16::from_be_bytes(bytes.try_into().ok()?))
}

/// The key for people: `transit USD`.
impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internal(id) => match id.currency() {
                Some(currency) => write!(f, "internal {id} {currency}"),
                None => write!(f, "internal {id} of unknown currency"),
            },
            Self::Rail { platform, rail, currency } => {
                write!(f, "rail {platform} {rail} {currency}")
            }
            Self::Exchange { platform, currency } => write!(f, "exchange {platform} {currency}"),
            Self::Fees { platform, currency } => write!(f, "fees {platform} {currency}"),
            Self::Suspense { platform, currency } => write!(f, "suspense {platform} {currency}"),
            Self::Transit(currency) => write!(f, "transit {currency}"),
        }
    }
}

/// The most that one side of an account may ever count, pending and posted together.
///
/// Counters only grow, and no sum of legal amounts reaches this: at a million payments of the
/// largest amount a second it takes four million years. Sums of both sides still fit the integer.
pub const COUNTER_MAX: i128 = 1 << 120;

/// Four counters as stored, which may be anything: what a damaged row says is compared by the
/// audit before it is believed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Debits that wait to be posted or voided.
    pub debits_pending: i128,
    /// Debits that are final.
    pub debits_posted: i128,
    /// Credits that wait to be posted or voided.
    pub credits_pending: i128,
    /// Credits that are final.
    pub credits_posted: i128,
}

/// Why counters are not a balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBalance {
    /// A counter counts what happened, so it cannot be below zero.
    #[error("counter {name} is {value}, below 0")]
    Negative {
        /// The counter.
        name: &'static str,
        /// Its name.
        value: i128,
    },
    /// Pending and posted of one side together pass [`COUNTER_MAX`].
    #[error("{side} sum to {sum}, more than {COUNTER_MAX}")]
    TooLarge {
        /// The side, as debits or credits.
        side: &'static str,
        /// Its pending and posted counters together.
        sum: i128,
    },
}

/// The balance of one account: four counters, none negative, each side at most [`COUNTER_MAX`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Balance {
    counters: Counters,
}

impl Balance {
    /// An account that nothing has happened to.
    pub const ZERO: Self = Self {
        counters: Counters {
            debits_pending: 0,
            debits_posted: 0,
            credits_pending: 0,
            credits_posted: 0,
        },
    };

    /// Believes counters when they can be a balance.
    pub fn from_counters(counters: Counters) -> Result<Self, InvalidBalance> {
        let Counters { debits_pending, debits_posted, credits_pending, credits_posted } = counters;
        for (name, value) in [
            ("debits_pending", debits_pending),
            ("debits_posted", debits_posted),
            ("credits_pending", credits_pending),
            ("credits_posted", credits_posted),
        ] {
            if value < 0 {
                return Err(InvalidBalance::Negative { name, value });
            }
        }
        for (side, pending, posted) in [
            ("debits", debits_pending, debits_posted),
            ("credits", credits_pending, credits_posted),
        ] {
            let sum = pending.saturating_add(posted);
            if sum > COUNTER_MAX {
                return Err(InvalidBalance::TooLarge { side, sum });
            }
        }
        Ok(Self { counters })
    }

    /// The four counters, for storage.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Debits that wait to be posted or voided.
    pub const fn debits_pending(&self) -> i128 {
        self.counters.debits_pending
    }

    /// Debits that are final.
    pub const fn debits_posted(&self) -> i128 {
        self.counters.debits_posted
    }

    /// Credits that wait to be posted or voided.
    pub const fn credits_pending(&self) -> i128 {
        self.counters.credits_pending
    }

    /// Credits that are final.
    pub const fn credits_posted(&self) -> i128 {
        self.counters.credits_posted
    }

    /// The available amount of an account that stands on `side`: what is posted there, less
    /// everything on the other side whether it is final or only pending.
    ///
    /// Cannot overflow: each side is between 0 and [`COUNTER_MAX`].
    pub const fn available(&self, side: Side) -> i128 {
        let Counters { debits_pending, debits_posted, credits_pending, credits_posted } =
            self.counters;
        match side {
            Side::Debit => debits_posted - (credits_posted + credits_pending),
            Side::Credit => credits_posted - (debits_posted + debits_pending),
        }
    }

    /// The balance of an account of this side with all that is pending, both ways: money that is
    /// set aside is still there, and money that is on its way is there already.
    pub const fn total(&self, side: Side) -> i128 {
        let Counters { debits_posted, debits_pending, credits_posted, credits_pending } =
            self.counters;
        match side {
            Side::Debit => debits_posted + debits_pending - credits_posted,
            Side::Credit => credits_posted + credits_pending - debits_posted,
        }
    }

    /// The available amount of an internal account. [`crate::apply`] lets none have more than fits.
    pub fn held_minor(&self) -> i64 {
        to_minor(self.available(Side::Credit))
    }

    /// The total of an internal account, likewise.
    pub fn total_minor(&self) -> i64 {
        to_minor(self.total(Side::Credit))
    }
}

/// An amount of an internal account, or the nearest that fits.
fn to_minor(amount: i128) -> i64 {
    let end = if amount < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(amount).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::id::Owner;
    use std::collections::BTreeSet;

    fn every_key() -> Vec<AccountKey> {
        let platform = PlatformId::from_uuid(Uuid::from_u128(0xabc << 16));
        Currency::all()
            .flat_map(|currency| {
                let internal = InternalAccountId::of(Owner::Platform(platform), currency);
                let rails = Rail::ALL.iter();
                let rails = rails.map(move |&rail| AccountKey::Rail { platform, rail, currency });
                rails.chain([
                    AccountKey::Internal(internal),
                    AccountKey::Exchange { platform, currency },
                    AccountKey::Fees { platform, currency },
                    AccountKey::Suspense { platform, currency },
                    AccountKey::Transit(currency),
                ])
            })
            .collect()
    }

    #[test]
    fn keys_survive_storage_and_no_two_share_a_form() {
        let keys = every_key();
        let encoded: BTreeSet<_> = keys.iter().map(AccountKey::encode).collect();
        assert_eq!(encoded.len(), keys.len());
        for key in keys {
            assert_eq!(AccountKey::decode(&key.encode()), Ok(key), "{key}");
        }
    }

    #[test]
    fn damaged_keys_are_refused() {
        for key in every_key() {
            let bytes = key.encode();
            assert!(AccountKey::decode(&bytes[..bytes.len() - 1]).is_err(), "{key} cut");
            assert!(AccountKey::decode(&[&bytes[..], &[0]].concat()).is_err(), "{key} extended");
        }
        for bytes in [&[][..], &[0], &[9, 3, 72], &[3, 0, 0], &[2, 0, 3, 72], &[7; 100]] {
            assert!(AccountKey::decode(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn the_stored_form_never_changes() {
        let usd = Currency::from_code("USD").expect("known currency");
        let (platform, currency) = (PlatformId::from_uuid(Uuid::from_u128(1)), usd);
        let rail = AccountKey::Rail { platform, rail: Rail::Ach, currency };
        assert_eq!(rail.encode()[..], [&[2][..], &[0; 15], &[1, 1, 0x03, 0x48]].concat());
        for (kind, key) in [
            (3, AccountKey::Exchange { platform, currency }),
            (4, AccountKey::Fees { platform, currency }),
            (5, AccountKey::Suspense { platform, currency }),
        ] {
            assert_eq!(key.encode()[..], [&[kind][..], &[0; 15], &[1, 0x03, 0x48]].concat());
        }
        assert_eq!(AccountKey::Transit(usd).encode(), [6, 0x03, 0x48]);
        let internal = AccountKey::Internal(InternalAccountId::from_uuid(Uuid::from_u128(840)));
        assert_eq!(internal.encode()[..], [&[1][..], &[0; 14], &[0x03, 0x48]].concat());
    }

    #[test]
    fn keys_print_for_people() {
        let usd = Currency::from_code("USD").expect("known currency");
        let internal = InternalAccountId::from_uuid(Uuid::from_u128(840));
        let platform = PlatformId::from_uuid(Uuid::from_u128(1));
        for (key, shown) in [
            (
                AccountKey::Rail { platform, rail: Rail::Ach, currency: usd },
                "rail PlatformConfig:00000000-0000-0000-0000-000000000001 ACH USD",
            ),
            (
                AccountKey::Exchange { platform, currency: usd },
                "exchange PlatformConfig:00000000-0000-0000-0000-000000000001 USD",
            ),
            (
                AccountKey::Suspense { platform, currency: usd },
                "suspense PlatformConfig:00000000-0000-0000-0000-000000000001 USD",
            ),
            (AccountKey::Transit(usd), "transit USD"),
            (
                AccountKey::Internal(internal),
                "internal InternalAccount:00000000-0000-0000-0000-000000000348 USD",
            ),
            (
                AccountKey::Internal(InternalAccountId::from_uuid(Uuid::nil())),
                "internal InternalAccount:00000000-0000-0000-0000-000000000000 of unknown currency",
            ),
        ] {
            assert_eq!(key.to_string(), shown);
        }
    }

    #[test]
    fn counters_become_a_balance_only_inside_their_limits() {
        let counters = |debits_pending, debits_posted, credits_pending, credits_posted| Counters {
            debits_pending,
            debits_posted,
            credits_pending,
            credits_posted,
        };
        let most = Balance::from_counters(counters(0, COUNTER_MAX, 1, COUNTER_MAX - 1));
        let most = most.expect("at the limit");
        assert_eq!(most.available(Side::Credit), -1);
        assert_eq!(most.available(Side::Debit), 0);
        assert_eq!(
            Balance::from_counters(counters(0, 0, 0, -1)),
            Err(InvalidBalance::Negative { name: "credits_posted", value: -1 })
        );
        assert_eq!(
            Balance::from_counters(counters(1, COUNTER_MAX, 0, 0)),
            Err(InvalidBalance::TooLarge { side: "debits", sum: COUNTER_MAX + 1 })
        );
        assert!(Balance::from_counters(counters(i128::MAX, i128::MAX, 0, 0)).is_err());
    }
}
