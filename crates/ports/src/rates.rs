//! Rates and the price list.

use domain::currency::Currency;
use domain::rate_basis::RateSource;
use domain::time::Timestamp;
use rust_decimal::Decimal;

/// The middle of the market.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MidRate {
    /// Sending major units per one receiving major unit.
    pub value: Decimal,
    /// When the market was there.
    pub as_of: Timestamp,
    /// The source.
    pub source: RateSource,
}

/// The default price of a corridor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorridorTerms {
    /// Fraction by which the rate is worse than the mid rate.
    pub spread: Decimal,
    /// Fixed fee in the smallest unit of the sending currency.
    pub fixed_fee_minor: i64,
    /// Fraction of the sending amount.
    pub variable_fee_rate: Decimal,
}

/// There is no rate that may be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no current rate from {sending} to {receiving}")]
pub struct NoRate {
    /// The currency that pays.
    pub sending: Currency,
    /// The currency that is paid.
    pub receiving: Currency,
}

/// A source of rates. Answers from memory; a source that asks a market does so in the background.
pub trait Rates: Send + Sync {
    /// The mid rate at `now`.
    fn mid(
        &self,
        sending: Currency,
        receiving: Currency,
        now: Timestamp,
    ) -> Result<MidRate, NoRate>;

    /// The built-in price of a corridor; it has one where it has a rate.
    fn terms(&self, sending: Currency, receiving: Currency) -> Result<CorridorTerms, NoRate>;

    /// Whether there are rates from and to a currency.
    fn names(&self, currency: Currency) -> bool;
}
