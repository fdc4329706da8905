//! Refusals about amounts, currencies and prices.

use domain::currency::Currency;
use domain::money::Money;
use ports::rates::NoRate;

/// A refusal about an amount, a currency or a price.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MoneyError {
    /// The source has less money than would leave it.
    #[error(
        "{account} has {available} smallest units of {currency} available, {needed} are needed"
    )]
    InsufficientBalance {
        /// The source.
        account: String,
        /// Its currency.
        currency: Currency,
        /// The available amount, in smallest units.
        available: i64,
        /// The amount that would leave it, in smallest units.
        needed: i64,
    },
    /// Outside what the platform allows for the currency.
    #[error("{amount} is outside the limits of {min} to {max} smallest units")]
    AmountOutOfRange {
        /// The amount.
        amount: Money,
        /// Least, in smallest units.
        min: i64,
        /// Most, in smallest units.
        max: i64,
    },
    /// No amount would arrive, or an amount would be too large.
    #[error("{reason}")]
    Unpriceable {
        /// Why.
        reason: String,
    },
    /// Zero or less, or larger than any payment may be.
    #[error("{reason}")]
    InvalidAmount {
        /// Why.
        reason: String,
    },
    /// A ledger account has counted as much as it can count.
    #[error("the ledger account '{account}' cannot count another payment of this size")]
    BooksFull {
        /// The account.
        account: String,
    },
    /// The platform does not support the currency, or not in this direction.
    #[error("{currency} is not enabled for {what} payments on this platform")]
    CurrencyNotEnabled {
        /// The currency.
        currency: Currency,
        /// Which payments.
        what: &'static str,
    },
    /// The rates of this server do not name the currency.
    #[error("there are no rates for {currency} on this server; its operator can add them")]
    CurrencyUnpriced {
        /// The currency.
        currency: Currency,
    },
    /// Two currencies where there must be one.
    #[error("{what}: {left} and {right} are different currencies")]
    CurrencyMismatch {
        /// The subjects of the currencies.
        what: &'static str,
        /// One.
        left: Currency,
        /// The other.
        right: Currency,
    },
    /// There is no current rate.
    #[error("{0}; try again later")]
    NoRate(NoRate),
    /// A currency in which there is money cannot be taken away.
    #[error("{currency} cannot be removed while accounts hold it")]
    CurrencyInUse {
        /// The currency.
        currency: Currency,
    },
}
