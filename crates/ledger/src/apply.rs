//! The effect of a posting on balances, and its refusals.
//!
//! Three changes exist: [`pend`] sets a posting aside, [`resolve`] makes a pending one final or
//! undoes it, [`post`] makes one final at once. Each reads every balance it needs in the order of
//! the account keys and decides in memory. It sets balances only when nothing can be refused any
//! more: all of the posting happens or none of it.

use crate::account::{AccountKey, Balance, Counters, Side};
use crate::posting::{Posting, Resolution, sums};

/// Where balances are read from and left.
pub trait Balances {
    /// Why a balance could not be read. A missing account is no error: it is [`Balance::ZERO`].
    type Error;

    /// The balance of one account, with everything that [`Balances::set`] left before.
    fn balance(&mut self, account: &AccountKey) -> Result<Balance, Self::Error>;

    /// Replaces the balance of one account.
    fn set(&mut self, account: AccountKey, balance: Balance);
}

/// Why a posting changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// More would leave an account than is available on it.
    #[error("{account} has {available} available where {needed} is needed")]
    InsufficientFunds {
        /// The account.
        account: AccountKey,
        /// The available amount, in smallest units.
        available: i128,
        /// The amount that the posting takes from it, in smallest units.
        needed: i128,
    },
    /// A side of an account would pass [`crate::account::COUNTER_MAX`], or an internal account hold
    /// more than 64 bits say.
    #[error("{account} cannot count that much")]
    Overflow {
        /// The account.
        account: AccountKey,
    },
    /// A resolution takes more out of pending than is there, so the book and its postings
    /// disagree.
    #[error("{account} has less pending than would be resolved")]
    NotPending {
        /// The account.
        account: AccountKey,
    },
}

/// A posting was refused, or its balances could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError<E> {
    /// The posting was refused; nothing changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A balance could not be read; nothing changed.
    #[error(transparent)]
    Store(E),
}

/// Sets a posting aside: its debits are no longer available, its credits not yet.
pub fn pend<B: Balances>(balances: &mut B, posting: &Posting) -> Result<(), ApplyError<B::Error>> {
    apply(balances, posting, Change::Pend)
}

/// Makes a posting final at once.
pub fn post<B: Balances>(balances: &mut B, posting: &Posting) -> Result<(), ApplyError<B::Error>> {
    apply(balances, posting, Change::Post)
}

/// Makes a pending posting final, or undoes it.
///
/// [`crate::posting::Phase::resolve`] says that this very posting is pending; the balances
/// only tell whether so much is.
pub fn resolve<B: Balances>(
    balances: &mut B,
    posting: &Posting,
    resolution: Resolution,
) -> Result<(), ApplyError<B::Error>> {
    apply(balances, posting, Change::Resolve(resolution))
}

#[derive(Clone, Copy)]
enum Change {
    Pend,
    Post,
    Resolve(Resolution),
}

/// Everything that one posting does to one account.
struct Effect {
    account: AccountKey,
    debits: i128,
    credits: i128,
}

fn apply<B: Balances>(
    balances: &mut B,
    posting: &Posting,
    change: Change,
) -> Result<(), ApplyError<B::Error>> {
    let effects = effects(posting);
    let mut decided = Vec::with_capacity(effects.len());
    for effect in &effects {
        let before = balances.balance(&effect.account).map_err(ApplyError::Store)?;
        decided.push((effect.account, changed(before, effect, change)?));
    }
    for (account, after) in decided {
        balances.set(account, after);
    }
    Ok(())
}

/// Folds the entries of a posting into one effect per account, in the order of the keys: several
/// entries on one account are covered, or not, together.
fn effects(posting: &Posting) -> Vec<Effect> {
    let mut effects: Vec<Effect> = Vec::with_capacity(posting.entries().len());
    for entry in posting.entries() {
        let (account, minor) = (entry.account(), entry.amount().minor());
        // The second check of what the constructors promise: this is where it would become money.
        assert!(minor > 0, "an entry of {minor} on {account}");
        assert_eq!(account.currency(), Some(entry.amount().currency()), "currency of {account}");
        let (debits, credits) = sums(posting.entries(), entry.amount().currency());
        assert_eq!(debits, credits, "{} posting does not balance", posting.movement());

        let index = match effects.iter().position(|effect| effect.account == account) {
            Some(index) => index,
            None => {
                effects.push(Effect { account, debits: 0, credits: 0 });
                effects.len() - 1
            }
        };
        // Cannot overflow: ENTRIES_MAX amounts of at most AMOUNT_MAX.
        match entry.side() {
            Side::Debit => effects[index].debits += i128::from(minor),
            Side::Credit => effects[index].credits += i128::from(minor),
        }
    }
    effects.sort_unstable_by_key(|effect| effect.account);
    effects
}

/// The balance of one account after a change, or why it may not change.
fn changed(before: Balance, effect: &Effect, change: Change) -> Result<Balance, Refusal> {
    let &Effect { account, debits, credits } = effect;
    let mut counters = before.counters();
    match change {
        Change::Pend => {
            counters.debits_pending = add(counters.debits_pending, debits, account)?;
            counters.credits_pending = add(counters.credits_pending, credits, account)?;
        }
        Change::Post => {
            counters.debits_posted = add(counters.debits_posted, debits, account)?;
            counters.credits_posted = add(counters.credits_posted, credits, account)?;
        }
        Change::Resolve(resolution) => {
            if debits > counters.debits_pending || credits > counters.credits_pending {
                return Err(Refusal::NotPending { account });
            }
            counters.debits_pending -= debits;
            counters.credits_pending -= credits;
            match resolution {
                Resolution::Post => {
                    // Cannot overflow: pending and posted together stay what they were.
                    counters.debits_posted += debits;
                    counters.credits_posted += credits;
                }
                Resolution::Void => {}
            }
        }
    }
    let after = Balance::from_counters(counters).map_err(|_| Refusal::Overflow { account })?;
    assert_counted(before.counters(), after.counters(), effect, change);

    let (available, left) = (before.available(Side::Credit), after.available(Side::Credit));
    if matches!(account, AccountKey::Internal(_)) && left > available && left > i64::MAX.into() {
        return Err(Refusal::Overflow { account });
    }
    match change {
        Change::Pend | Change::Post => {
            // A posting that takes nothing from an account is never short of funds on it.
            if account.must_stay_covered() && left < 0 && left < available {
                let needed = available - left;
                return Err(Refusal::InsufficientFunds { account, available, needed });
            }
        }
        Change::Resolve(_) => assert!(
            left >= available,
            "a resolution took {available} available on {account} down to {left}"
        ),
    }
    Ok(after)
}

fn add(counter: i128, amount: i128, account: AccountKey) -> Result<i128, Refusal> {
    counter.checked_add(amount).ok_or(Refusal::Overflow { account })
}

/// Asserts the arithmetic of [`changed`] from the other end: what was counted is what the posting
/// said, nothing was invented and nothing lost.
fn assert_counted(before: Counters, after: Counters, effect: &Effect, change: Change) {
    let pending = (
        after.debits_pending - before.debits_pending,
        after.credits_pending - before.credits_pending,
    );
    let posted =
        (after.debits_posted - before.debits_posted, after.credits_posted - before.credits_posted);
    let all = (effect.debits, effect.credits);
    let taken = (-all.0, -all.1);
    let expected = match change {
        Change::Pend => (all, (0, 0)),
        Change::Post => ((0, 0), all),
        Change::Resolve(Resolution::Post) => (taken, all),
        Change::Resolve(Resolution::Void) => (taken, (0, 0)),
    };
    assert_eq!((pending, posted), expected, "pending and posted of {}", effect.account);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::Book;
    use crate::movements::Movement;
    use crate::posting::Entry;
    use domain::currency::Currency;
    use domain::id::PlatformId;
    use domain::money::Money;
    use uuid::Uuid;

    fn posting(entries: &[(AccountKey, Side, i64)]) -> Posting {
        let entries = entries.iter().map(|&(account, side, minor)| {
            let currency = account.currency().expect("known currency");
            let amount = Money::new(minor, currency).expect("in range");
            Entry::new(account, side, amount).expect("sound entry")
        });
        Posting::new(Movement::Suspense, entries.collect()).expect("balances")
    }

    fn accounts() -> (AccountKey, AccountKey) {
        let usd = Currency::from_code("USD").expect("known currency");
        let (platform, currency) = (PlatformId::from_uuid(Uuid::from_u128(1 << 16)), usd);
        (AccountKey::Exchange { platform, currency }, AccountKey::Suspense { platform, currency })
    }

    #[test]
    fn what_is_not_pending_cannot_be_resolved() {
        let (exchange, suspense) = accounts();
        let five = posting(&[(exchange, Side::Debit, 5), (suspense, Side::Credit, 5)]);
        for resolution in [Resolution::Post, Resolution::Void] {
            // Each side is looked at: first nothing is pending, then only debits, then only
            // credits, then both but one less than would be resolved.
            for (debits_pending, credits_pending, missing) in
                [(0, 0, exchange), (5, 0, suspense), (0, 5, exchange), (4, 5, exchange)]
            {
                let mut book = Book::new();
                let counted = |counters| Balance::from_counters(counters).expect("a balance");
                let none = Counters::default();
                book.set(exchange, counted(Counters { debits_pending, ..none }));
                book.set(suspense, counted(Counters { credits_pending, ..none }));
                let before = book.clone();
                assert_eq!(
                    resolve(&mut book, &five, resolution),
                    Err(ApplyError::Refused(Refusal::NotPending { account: missing }))
                );
                assert_eq!(book, before);
            }
        }
    }

    #[test]
    fn entries_on_one_account_are_folded() {
        let (exchange, suspense) = accounts();
        let mut book = Book::new();
        let came = posting(&[
            (suspense, Side::Credit, 5),
            (exchange, Side::Debit, 11),
            (suspense, Side::Credit, 6),
        ]);
        assert_eq!(post(&mut book, &came), Ok(()));
        assert_eq!(book.balance_of(&suspense).credits_posted(), 11);
        let goes = posting(&[
            (suspense, Side::Debit, 6),
            (exchange, Side::Credit, 12),
            (suspense, Side::Debit, 6),
        ]);
        let refusal = Refusal::InsufficientFunds { account: suspense, available: 11, needed: 12 };
        assert_eq!(post(&mut book, &goes), Err(ApplyError::Refused(refusal)));
        assert_eq!(pend(&mut book, &goes), Err(ApplyError::Refused(refusal)));
        assert_eq!(post(&mut book, &came), Ok(()));
        assert_eq!(post(&mut book, &goes), Ok(()));
        assert_eq!(book.balance_of(&suspense).debits_posted(), 12);
        assert_eq!(book.balance_of(&exchange).available(Side::Debit), 10);
    }
}
