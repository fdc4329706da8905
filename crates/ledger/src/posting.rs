//! Postings: sets of entries that balance in every currency they touch.

use std::fmt;

use domain::currency::Currency;
use domain::money::{AmountError, Money};

use crate::account::{AccountKey, Side};
use crate::movements::Movement;

/// The most entries of one posting. The largest movement has five; the limit keeps the sums of a
/// posting inside an i64.
pub const ENTRIES_MAX: usize = 16;

/// Why entries are not a posting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostingError {
    /// The id of an internal account names no currency that we know.
    #[error("{account} cannot be posted to")]
    UnknownCurrency {
        /// The account.
        account: AccountKey,
    },
    /// An amount met an account of another currency.
    #[error("{amount} cannot be posted to {account}")]
    CurrencyMismatch {
        /// The account.
        account: AccountKey,
        /// The amount.
        amount: Money,
    },
    /// An entry of nothing.
    #[error("an entry of 0 on {account} moves nothing")]
    ZeroAmount {
        /// The account.
        account: AccountKey,
    },
    /// One entry or none: there is no other side.
    #[error("a posting needs at least 2 entries, not {count}")]
    TooFewEntries {
        /// How many there are.
        count: usize,
    },
    /// More than [`ENTRIES_MAX`] entries.
    #[error("a posting has at most {ENTRIES_MAX} entries, not {count}")]
    TooManyEntries {
        /// How many there are.
        count: usize,
    },
    /// Debits and credits of one currency differ.
    #[error("{currency} debits {debits} differ from credits {credits}")]
    Unbalanced {
        /// The currency.
        currency: Currency,
        /// Sum of its debits, in smallest units.
        debits: i128,
        /// Sum of its credits, in smallest units.
        credits: i128,
    },
    /// Fees of another currency than what is sent, or more than it.
    #[error("fees of {fees} cannot be taken from {sent}")]
    Fees {
        /// The fees.
        fees: Money,
        /// The amount that is sent, with fees.
        sent: Money,
    },
    /// A sum of amounts that is no amount itself.
    #[error(transparent)]
    Amount(#[from] AmountError),
}

/// One debit or credit of one account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    account: AccountKey,
    side: Side,
    amount: Money,
}

impl Entry {
    /// An entry of more than nothing in the account's own currency.
    pub fn new(account: AccountKey, side: Side, amount: Money) -> Result<Self, PostingError> {
        match account.currency() {
            None => Err(PostingError::UnknownCurrency { account }),
            Some(currency) if currency != amount.currency() => {
                Err(PostingError::CurrencyMismatch { account, amount })
            }
            Some(_) if amount.is_zero() => Err(PostingError::ZeroAmount { account }),
            Some(_) => Ok(Self { account, side, amount }),
        }
    }

    /// A debit of `account`.
    pub fn debit(account: AccountKey, amount: Money) -> Result<Self, PostingError> {
        Self::new(account, Side::Debit, amount)
    }

    /// A credit of `account`.
    pub fn credit(account: AccountKey, amount: Money) -> Result<Self, PostingError> {
        Self::new(account, Side::Credit, amount)
    }

    /// The account.
    pub const fn account(&self) -> AccountKey {
        self.account
    }

    /// The side of the account.
    pub const fn side(&self) -> Side {
        self.side
    }

    /// The amount: more than nothing, in the account's currency.
    pub const fn amount(&self) -> Money {
        self.amount
    }

    /// The same amount on the other side of the same account.
    pub(crate) const fn reversed(&self) -> Self {
        Self { account: self.account, side: self.side.opposite(), amount: self.amount }
    }
}

/// The entry for people: `debit transit USD 100.50 USD`.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Debit => "debit",
            Side::Credit => "credit",
        };
        write!(f, "{side} {} {}", self.account, self.amount)
    }
}

/// A set of entries that balances in every currency it touches, and why it was made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Posting {
    movement: Movement,
    entries: Vec<Entry>,
}

impl Posting {
    /// Entries that balance. Their order is kept.
    pub fn new(movement: Movement, entries: Vec<Entry>) -> Result<Self, PostingError> {
        let count = entries.len();
        if count < 2 {
            return Err(PostingError::TooFewEntries { count });
        }
        if count > ENTRIES_MAX {
            return Err(PostingError::TooManyEntries { count });
        }
        for entry in &entries {
            let currency = entry.amount.currency();
            let (debits, credits) = sums(&entries, currency);
            if debits != credits {
                return Err(PostingError::Unbalanced { currency, debits, credits });
            }
        }
        Ok(Self { movement, entries })
    }

    /// The business reason.
    pub const fn movement(&self) -> Movement {
        self.movement
    }

    /// The entries, at least two.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

/// Debits and credits in one currency.
pub(crate) fn sums(entries: &[Entry], currency: Currency) -> (i128, i128) {
    let mut debits = 0;
    let mut credits = 0;
    for entry in entries.iter().filter(|entry| entry.amount.currency() == currency) {
        match entry.side {
            Side::Debit => debits += i128::from(entry.amount.minor()),
            Side::Credit => credits += i128::from(entry.amount.minor()),
        }
    }
    (debits, credits)
}

/// Where a recorded posting stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Its debits are set aside and its credits promised; it waits for a resolution.
    Pending,
    /// Final.
    Posted,
    /// Undone before it was final, as if it had never been.
    Voided,
}

/// The resolution of a pending posting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// It becomes final.
    Post,
    /// It is undone.
    Void,
}

/// A resolution of a posting that is already final or undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the posting is {} already", phase.name())]
pub struct AlreadyResolved {
    /// Where the posting stands.
    pub phase: Phase,
}

impl Phase {
    /// Every phase.
    pub const ALL: &'static [Self] = &[Self::Pending, Self::Posted, Self::Voided];

    /// The name in storage and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Posted => "POSTED",
            Self::Voided => "VOIDED",
        }
    }

    /// The phase with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|phase| phase.name() == name)
    }

    /// The phase after a resolution. Only a pending posting can be resolved, so it is resolved
    /// once.
    pub const fn resolve(self, resolution: Resolution) -> Result<Self, AlreadyResolved> {
        match (self, resolution) {
            (Self::Pending, Resolution::Post) => Ok(Self::Posted),
            (Self::Pending, Resolution::Void) => Ok(Self::Voided),
            (Self::Posted | Self::Voided, _) => Err(AlreadyResolved { phase: self }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::id::{InternalAccountId, PlatformId};
    use domain::rail::Rail;
    use uuid::Uuid;

    fn platform() -> PlatformId {
        PlatformId::from_uuid(Uuid::from_u128(1 << 16))
    }

    fn currency(code: &str) -> Currency {
        Currency::from_code(code).expect("known currency")
    }

    fn money(minor: i64, code: &str) -> Money {
        Money::new(minor, currency(code)).expect("in range")
    }

    #[test]
    fn entries_refuse_nothing_and_foreign_money() {
        let account =
            AccountKey::Rail { platform: platform(), rail: Rail::Ach, currency: currency("USD") };
        let amount = money(5, "EUR");
        assert_eq!(
            Entry::debit(account, amount),
            Err(PostingError::CurrencyMismatch { account, amount })
        );
        assert_eq!(
            Entry::debit(account, money(0, "USD")),
            Err(PostingError::ZeroAmount { account })
        );
        let account = AccountKey::Internal(InternalAccountId::from_uuid(Uuid::nil()));
        assert_eq!(
            Entry::credit(account, money(5, "USD")),
            Err(PostingError::UnknownCurrency { account })
        );
    }

    #[test]
    fn postings_balance_in_every_currency() {
        let debit = |minor, code| {
            let account = AccountKey::Exchange { platform: platform(), currency: currency(code) };
            Entry::debit(account, money(minor, code)).expect("entry")
        };
        let credit = |minor, code| {
            let account = AccountKey::Suspense { platform: platform(), currency: currency(code) };
            Entry::credit(account, money(minor, code)).expect("entry")
        };
        let check = |entries: Vec<Entry>| Posting::new(Movement::Deposit, entries).map(|_| ());
        let unbalanced = |code, debits, credits| {
            Err(PostingError::Unbalanced { currency: currency(code), debits, credits })
        };
        assert_eq!(check(vec![]), Err(PostingError::TooFewEntries { count: 0 }));
        assert_eq!(check(vec![debit(1, "USD")]), Err(PostingError::TooFewEntries { count: 1 }));
        assert_eq!(check(vec![debit(7, "USD"), credit(7, "USD")]), Ok(()));
        assert_eq!(check(vec![debit(7, "USD"), credit(3, "USD"), credit(4, "USD")]), Ok(()));
        assert_eq!(check(vec![debit(7, "USD"), credit(6, "USD")]), unbalanced("USD", 7, 6));
        // The same number in two currencies is not a balance.
        assert_eq!(check(vec![debit(7, "USD"), credit(7, "EUR")]), unbalanced("USD", 7, 0));
        let mixed = vec![debit(7, "USD"), credit(7, "USD"), debit(1, "EUR"), credit(2, "EUR")];
        assert_eq!(check(mixed), unbalanced("EUR", 1, 2));
        let many: Vec<_> = (0..9).flat_map(|_| [debit(1, "USD"), credit(1, "USD")]).collect();
        assert_eq!(check(many), Err(PostingError::TooManyEntries { count: 18 }));
    }

    #[test]
    fn a_posting_is_resolved_once() {
        for resolution in [Resolution::Post, Resolution::Void] {
            let resolved = Phase::Pending.resolve(resolution).expect("pending");
            assert_ne!(resolved, Phase::Pending);
            for again in [Resolution::Post, Resolution::Void] {
                assert_eq!(resolved.resolve(again), Err(AlreadyResolved { phase: resolved }));
            }
        }
        for phase in Phase::ALL {
            assert_eq!(Phase::from_name(phase.name()), Some(*phase));
        }
        for side in Side::ALL {
            assert_eq!(Side::from_name(side.name()), Some(*side));
        }
    }
}
