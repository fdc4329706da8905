//! How much may move, and how much an account may hold.

use domain::currency::Currency;
use domain::id::InternalAccountId;
use domain::money::{AMOUNT_MAX, AmountError, Money};
use domain::platform::Platform;
use domain::transaction::Direction;
use ledger::account::{AccountKey, Side};
use store::unit::Unit;

use crate::error::{AccountError, Error, MoneyError};

/// An amount that may move: positive and not above the largest payment.
pub fn amount(minor: i64, currency: Currency) -> Result<Money, Error> {
    Money::positive(minor, currency).map_err(|error: AmountError| {
        Error::Money(MoneyError::InvalidAmount { reason: error.to_string() })
    })
}

/// Refuses a currency that the platform does not have on for this direction.
pub fn enabled(platform: &Platform, currency: Currency, way: Direction) -> Result<(), Error> {
    let supported = platform.supported(currency).filter(|supported| supported.allows(way));
    let what = match way {
        Direction::Incoming => "incoming",
        Direction::Outgoing => "outgoing",
    };
    supported.map(drop).ok_or(Error::Money(MoneyError::CurrencyNotEnabled { currency, what }))
}

/// Refuses an amount to be sent that is outside the platform's limits (specification 2.11).
pub fn sendable(platform: &Platform, amount: Money) -> Result<(), Error> {
    allowed(platform, amount, Direction::Outgoing)
}

/// Refuses an amount to be received that is outside the platform's limits. Deposits have no such
/// limit: money that came cannot be refused.
pub fn receivable(platform: &Platform, amount: Money) -> Result<(), Error> {
    allowed(platform, amount, Direction::Incoming)
}

fn allowed(platform: &Platform, amount: Money, way: Direction) -> Result<(), Error> {
    enabled(platform, amount.currency(), way)?;
    let Some(supported) = platform.supported(amount.currency()) else { return Ok(()) };
    within(amount, supported.min_minor, supported.max_minor)
}

/// Refuses an amount outside of limits in its smallest unit, both of which it may reach.
pub fn within(amount: Money, min: i64, max: i64) -> Result<(), Error> {
    if (min..=max).contains(&amount.minor()) {
        Ok(())
    } else {
        Err(Error::Money(MoneyError::AmountOutOfRange { amount, min, max }))
    }
}

/// Most that one internal account may hold, in smallest units: a balance stays an integer that
/// every JSON reader holds exactly.
pub const BALANCE_MAX: i64 = AMOUNT_MAX;

/// Refuses a credit after which the account would hold more than it may. Money on its way in
/// counts, and money on its way out, which may come back.
pub fn has_room(
    unit: &mut Unit<'_, '_>,
    account: InternalAccountId,
    amount: Money,
) -> Result<(), Error> {
    let balance = unit.balance(&AccountKey::Internal(account))?;
    let on_its_way = balance.debits_pending() + balance.credits_pending();
    let held = balance.available(Side::Credit) + on_its_way;
    if held + i128::from(amount.minor()) > i128::from(BALANCE_MAX) {
        return Err(Error::Account(AccountError::Full { account, max: BALANCE_MAX }));
    }
    Ok(())
}
