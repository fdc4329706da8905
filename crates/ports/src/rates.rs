//! Rates and the price list.

use std::fmt;
use std::sync::Arc;

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
#[error("there is no current rate from {sending} to {receiving}: {why}")]
pub struct NoRate {
    /// The currency that pays.
    pub sending: Currency,
    /// The currency that is paid.
    pub receiving: Currency,
    /// Why not.
    pub why: WhyNoRate,
}

/// Why there is no rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyNoRate {
    /// The table does not have it.
    NotNamed,
    /// There is no table whose prices are the operator's.
    NoFile,
    /// The table is too old.
    TooOld {
        /// When the market was there.
        as_of: Timestamp,
        /// How old a table may be.
        max_age_seconds: i64,
    },
    /// The table is of a time that has not come.
    Ahead {
        /// When the market is said to have been there.
        as_of: Timestamp,
    },
    /// It leaves the range of rates.
    OutOfRange,
    /// It has moved since it was agreed on.
    Moved,
}

impl fmt::Display for WhyNoRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNamed => f.write_str("the rates of this server do not name it"),
            Self::NoFile => f.write_str(
                "this server has no file of rates, and the built-in ones are not the market's",
            ),
            Self::TooOld { as_of, max_age_seconds } => write!(
                f,
                "the rates of this server are of {as_of}, and none are used that are older than \
                 {max_age_seconds} seconds"
            ),
            Self::Ahead { as_of } => {
                write!(f, "the rates of this server are of {as_of}, which has not come")
            }
            Self::OutOfRange => f.write_str("it is too large or too small"),
            Self::Moved => f.write_str("it has moved"),
        }
    }
}

/// Rates at one moment, from memory. Use cases take them once: the parts of a price fit each other,
/// although a source may have others a moment later.
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

    /// Whether there are rates from and to a currency, perhaps outdated ones.
    fn names(&self, currency: Currency) -> bool;
}

/// A source of rates. Answers from memory; one that asks a market does so in the background.
pub trait RateFeed: Send + Sync {
    /// The rates as they are now.
    fn current(&self) -> Arc<dyn Rates>;
}
