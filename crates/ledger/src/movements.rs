//! The movements of money that the business knows: one function each, one posting each.
//!
//! `docs/ledger.md` shows every one of them on T-accounts, generated from this code. The caller
//! says whether a posting is pended or posted at once; each function says what is usual.

use std::fmt;

use domain::currency::Currency;
use domain::id::{InternalAccountId, PlatformId};
use domain::money::{Money, Receiving, Sending};
use domain::rail::Rail;

use crate::account::AccountKey;
use crate::posting::{Entry, Posting, PostingError};

/// Why a posting was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Movement {
    /// Money from outside for an internal account.
    Deposit,
    /// An internal account pays out in its own currency.
    TransferOut,
    /// An internal account is filled from an external one in its own currency.
    TransferIn,
    /// A quote is executed.
    Exchange,
    /// A payment from another institution arrives.
    Receipt,
    /// A payment from a customer of this server arrives.
    Delivery,
    /// A received amount goes on to an external account.
    Payout,
    /// A quote that is funded in real time receives its money.
    Funding,
    /// Money came that matches nothing yet.
    Suspense,
    /// Money in suspense goes to an internal account after all.
    SuspenseReturn,
    /// A settled posting is reversed because the money came back.
    Return,
}

impl Movement {
    /// Every movement.
    pub const ALL: &'static [Self] = &[
        Self::Deposit,
        Self::TransferOut,
        Self::TransferIn,
        Self::Exchange,
        Self::Receipt,
        Self::Delivery,
        Self::Payout,
        Self::Funding,
        Self::Suspense,
        Self::SuspenseReturn,
        Self::Return,
    ];

    /// The name in storage and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deposit => "DEPOSIT",
            Self::TransferOut => "TRANSFER_OUT",
            Self::TransferIn => "TRANSFER_IN",
            Self::Exchange => "EXCHANGE",
            Self::Receipt => "RECEIPT",
            Self::Delivery => "DELIVERY",
            Self::Payout => "PAYOUT",
            Self::Funding => "FUNDING",
            Self::Suspense => "SUSPENSE",
            Self::SuspenseReturn => "SUSPENSE_RETURN",
            Self::Return => "RETURN",
        }
    }

    /// The movement with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|movement| movement.name() == name)
    }
}

impl fmt::Display for Movement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Where the money of a quote comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// An internal account in the sending currency.
    Internal(InternalAccountId),
    /// The platform's suspense in the sending currency: the quote was funded in real time
    /// ([`funding`]).
    Suspense,
}

/// Where the money of a quote goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// An internal account in the receiving currency.
    Internal(InternalAccountId),
    /// Out over a rail: an external account in the receiving currency, or another institution in
    /// millisatoshi.
    Rail(Rail),
    /// To the payment of a payee of this server, in the receiving currency ([`delivery`]).
    Transit,
}

/// A deposit: money came in over `rail` for `to`. Posted at once.
pub fn deposit(
    platform: PlatformId,
    rail: Rail,
    to: InternalAccountId,
    amount: Money,
) -> Result<Posting, PostingError> {
    let rail = rail_account(platform, rail, amount);
    pair(Movement::Deposit, rail, AccountKey::Internal(to), amount)
}

/// A transfer-out: `from` pays out over `rail`. Pended, so that the money is set aside while the
/// rail works; posted when it settles, voided when it failed or was rejected.
pub fn transfer_out(
    platform: PlatformId,
    from: InternalAccountId,
    rail: Rail,
    amount: Money,
) -> Result<Posting, PostingError> {
    let rail = rail_account(platform, rail, amount);
    pair(Movement::TransferOut, AccountKey::Internal(from), rail, amount)
}

/// A transfer-in: `to` is filled over `rail` from an external account. Pended, so that the money
/// is not available before the rail has it; then posted or voided.
pub fn transfer_in(
    platform: PlatformId,
    rail: Rail,
    to: InternalAccountId,
    amount: Money,
) -> Result<Posting, PostingError> {
    let rail = rail_account(platform, rail, amount);
    pair(Movement::TransferIn, rail, AccountKey::Internal(to), amount)
}

/// The execution of a quote: `sent` leaves `source`, `fees` of it are income of `platform`, the
/// rest is exchanged, and `received` reaches `target`.
///
/// Posted at once when the target is an internal account; pended when it is a rail, until the rail
/// answers, or transit, until the payee's side has decided. Both currencies meet only here, each
/// balanced against its exchange account. When they are one currency the exchange account takes
/// only what rounding left over.
pub fn exchange(
    source: Source,
    target: Target,
    platform: PlatformId,
    sent: Sending,
    fees: Money,
    received: Receiving,
) -> Result<Posting, PostingError> {
    let source = match source {
        Source::Internal(id) => AccountKey::Internal(id),
        Source::Suspense => AccountKey::Suspense { platform, currency: sent.currency() },
    };
    let target = match target {
        Target::Internal(id) => AccountKey::Internal(id),
        Target::Rail(rail) => rail_account(platform, rail, received.money()),
        Target::Transit => AccountKey::Transit(received.currency()),
    };
    exchanged(Movement::Exchange, source, target, platform, sent, fees, received)
}

/// The amount that `from` received goes on to the deposit account of its owner over `rail`:
/// `received` leaves it, `fees` of it are income of `platform`, and `deposited` reaches the
/// account, the same unless its currency is another. Pended until the rail answers: voided, the
/// money stays.
pub fn payout(
    from: InternalAccountId,
    rail: Rail,
    platform: PlatformId,
    received: Receiving,
    fees: Money,
    deposited: Money,
) -> Result<Posting, PostingError> {
    let (sent, target) = (Sending(received.money()), rail_account(platform, rail, deposited));
    let source = AccountKey::Internal(from);
    exchanged(Movement::Payout, source, target, platform, sent, fees, Receiving(deposited))
}

/// The entries of money that leaves `source` in one currency and reaches `target` in another or the
/// same one.
fn exchanged(
    movement: Movement,
    source: AccountKey,
    target: AccountKey,
    platform: PlatformId,
    sent: Sending,
    fees: Money,
    received: Receiving,
) -> Result<Posting, PostingError> {
    let (sent, received) = (sent.money(), received.money());
    let converted = sent.checked_sub(fees).map_err(|_| PostingError::Fees { fees, sent })?;

    let mut entries = vec![Entry::debit(source, sent)?];
    if sent.currency() == received.currency() {
        entries.extend(fee_entry(platform, fees)?);
        entries.push(Entry::credit(target, received)?);
        entries.extend(rounding_entry(platform, converted, received)?);
    } else {
        if !converted.is_zero() {
            entries.push(Entry::credit(exchange_account(platform, converted), converted)?);
        }
        entries.extend(fee_entry(platform, fees)?);
        entries.push(Entry::debit(exchange_account(platform, received), received)?);
        entries.push(Entry::credit(target, received)?);
    }
    Posting::new(movement, entries)
}

/// A payment from another institution: `sent` arrived over `rail`, `fees` in the receiving
/// currency are income of `platform`, and `received` reaches `to`. Pended until the money is here.
pub fn receipt(
    rail: Rail,
    to: InternalAccountId,
    platform: PlatformId,
    sent: Sending,
    fees: Money,
    received: Receiving,
) -> Result<Posting, PostingError> {
    let (sent, received) = (sent.money(), received.money());
    let converted =
        received.checked_add(fees).map_err(|_| PostingError::Fees { fees, sent: received })?;
    let to = AccountKey::Internal(to);

    let mut entries = vec![Entry::debit(rail_account(platform, rail, sent), sent)?];
    if sent.currency() == received.currency() {
        entries.extend(fee_entry(platform, fees)?);
        entries.push(Entry::credit(to, received)?);
        entries.extend(rounding_entry(platform, sent, converted)?);
    } else {
        entries.push(Entry::credit(exchange_account(platform, sent), sent)?);
        entries.push(Entry::debit(exchange_account(platform, converted), converted)?);
        entries.extend(fee_entry(platform, fees)?);
        entries.push(Entry::credit(to, received)?);
    }
    Posting::new(Movement::Receipt, entries)
}

/// A payment from a customer of this server arrives: what its exchange put in transit reaches `to`.
/// Posted at once, in the same change as that exchange.
pub fn delivery(to: InternalAccountId, amount: Money) -> Result<Posting, PostingError> {
    let transit = AccountKey::Transit(amount.currency());
    pair(Movement::Delivery, transit, AccountKey::Internal(to), amount)
}

/// The money of a quote that is funded in real time came in over `rail`; it waits in suspense
/// until the quote is executed from there ([`Source::Suspense`]), or goes back
/// ([`suspense_return`]) because the amount was wrong or came too late. Posted at once.
pub fn funding(platform: PlatformId, rail: Rail, amount: Money) -> Result<Posting, PostingError> {
    let suspense = suspense_account(platform, amount);
    pair(Movement::Funding, rail_account(platform, rail, amount), suspense, amount)
}

/// Money came in over `rail` that matches nothing yet. Posted at once.
pub fn suspense(platform: PlatformId, rail: Rail, amount: Money) -> Result<Posting, PostingError> {
    let suspense = suspense_account(platform, amount);
    pair(Movement::Suspense, rail_account(platform, rail, amount), suspense, amount)
}

/// Money in suspense goes to the internal account `to`. Posted at once.
pub fn suspense_return(
    platform: PlatformId,
    to: InternalAccountId,
    amount: Money,
) -> Result<Posting, PostingError> {
    let suspense = suspense_account(platform, amount);
    pair(Movement::SuspenseReturn, suspense, AccountKey::Internal(to), amount)
}

/// Money that had settled came back: every entry of `settled` once more on the other side, the last
/// first, so that debits still lead. A posting is never edited. Posted at once.
pub fn reverse(settled: &Posting) -> Posting {
    let entries = settled.entries().iter().rev().map(Entry::reversed).collect();
    Posting::new(Movement::Return, entries).expect("a posting that balances does so mirrored")
}

/// Money that had settled came back, and the account that had paid belongs to a deleted customer:
/// as [`reverse`], but the money of that account waits in suspense ([`suspense_return`]). Posted at
/// once.
pub fn reverse_into_suspense(
    platform: PlatformId,
    settled: &Posting,
    gone: InternalAccountId,
) -> Result<Posting, PostingError> {
    let entries = settled.entries().iter().rev().map(|entry| {
        let entry = entry.reversed();
        if entry.account() == AccountKey::Internal(gone) {
            Entry::new(suspense_account(platform, entry.amount()), entry.side(), entry.amount())
        } else {
            Ok(entry)
        }
    });
    Posting::new(Movement::Return, entries.collect::<Result<_, _>>()?)
}

fn rail_account(platform: PlatformId, rail: Rail, amount: Money) -> AccountKey {
    AccountKey::Rail { platform, rail, currency: amount.currency() }
}

fn exchange_account(platform: PlatformId, amount: Money) -> AccountKey {
    AccountKey::Exchange { platform, currency: amount.currency() }
}

fn suspense_account(platform: PlatformId, amount: Money) -> AccountKey {
    AccountKey::Suspense { platform, currency: amount.currency() }
}

fn pair(
    movement: Movement,
    debit: AccountKey,
    credit: AccountKey,
    amount: Money,
) -> Result<Posting, PostingError> {
    Posting::new(movement, vec![Entry::debit(debit, amount)?, Entry::credit(credit, amount)?])
}

/// The credit of fees, when there are any.
fn fee_entry(platform: PlatformId, fees: Money) -> Result<Option<Entry>, PostingError> {
    let account = AccountKey::Fees { platform, currency: fees.currency() };
    if fees.is_zero() { Ok(None) } else { Entry::credit(account, fees).map(Some) }
}

/// The rounding difference between the two sides of a payment in one currency: gained by the
/// exchange account when more came than went, else paid by it.
fn rounding_entry(
    platform: PlatformId,
    came: Money,
    went: Money,
) -> Result<Option<Entry>, PostingError> {
    let currency: Currency = came.currency();
    let account = exchange_account(platform, came);
    let rounding = came.minor() - went.minor();
    match rounding {
        0 => Ok(None),
        1.. => Entry::credit(account, Money::positive(rounding, currency)?).map(Some),
        _ => Entry::debit(account, Money::positive(-rounding, currency)?).map(Some),
    }
}
