//! What a corridor costs a platform now: the mid rate, made worse by the spread, and the fees.

use domain::currency::Currency;
use domain::money::Money;
use domain::platform::{CorridorRule, Platform};
use domain::pricing::{Fees, Locked, Multipliers, Price, PriceError, price};
use domain::rate::Rate;
use domain::time::Timestamp;
use domain::transaction::RateDetails;
use ports::rates::{CorridorTerms, Rates};
use rust_decimal::Decimal;

use crate::error::Error;
use crate::limits;

/// The price of a corridor at one instant.
#[derive(Debug, Clone, Copy)]
pub struct Corridor {
    /// The rate, spread included.
    pub rate: Rate,
    /// The fees.
    pub fees: Fees,
    /// When the market was there.
    pub as_of: Timestamp,
}

/// The price of a corridor for a platform: its own rules first, then the price list.
pub fn corridor(
    rates: &dyn Rates,
    platform: &Platform,
    sending: Currency,
    receiving: Currency,
    now: Timestamp,
) -> Result<Corridor, Error> {
    let no_rate = || Error::NoRate { sending, receiving };
    let terms = rates.terms(sending, receiving);
    let terms = overridden(terms, &platform.corridors, sending, receiving);
    let mid = rates.mid(sending, receiving, now).map_err(|_| no_rate())?;
    let rate = (Decimal::ONE + terms.spread)
        .checked_mul(mid.value)
        .and_then(|value| Rate::new(value, sending, receiving).ok())
        .ok_or_else(no_rate)?;
    let fees = Fees::new(terms.fixed_fee_minor, terms.variable_fee_rate)
        .map_err(|error| Error::Internal(error.to_string()))?;
    Ok(Corridor { rate, fees, as_of: mid.as_of })
}

fn overridden(
    list: CorridorTerms,
    rules: &[CorridorRule],
    sending: Currency,
    receiving: Currency,
) -> CorridorTerms {
    let rules = || rules.iter().filter(|rule| rule.matches(sending, receiving));
    CorridorTerms {
        spread: rules().find_map(|rule| rule.spread).unwrap_or(list.spread),
        fixed_fee_minor: rules()
            .find_map(|rule| rule.fixed_fee_minor)
            .unwrap_or(list.fixed_fee_minor),
        variable_fee_rate: rules()
            .find_map(|rule| rule.variable_fee_rate)
            .unwrap_or(list.variable_fee_rate),
    }
}

/// Prices a payment over a corridor, within the platform's limits.
pub fn quote(platform: &Platform, corridor: Corridor, locked: Locked) -> Result<Price, Error> {
    let priced = price(locked, corridor.rate, corridor.fees).map_err(|error| match error {
        PriceError::TooSmall { .. } | PriceError::TooLarge { .. } => {
            Error::Unpriceable { reason: error.to_string() }
        }
        PriceError::Rate(error) => Error::Unpriceable { reason: error.to_string() },
    })?;
    limits::sendable(platform, priced.sent.money())?;
    Ok(priced)
}

/// Fee parts and multipliers of a price (specification 2.4). The multipliers are in millisatoshi,
/// so they take the mid rate to bitcoin.
pub fn rate_details(rates: &dyn Rates, price: &Price, now: Timestamp) -> RateDetails {
    RateDetails {
        fixed_fee: price.fixed_fee,
        variable_fee: price.variable_fee,
        variable_fee_rate: price.fees.variable_rate(),
        multipliers: msat_per_unit(rates, price.sent.money(), now)
            .and_then(|msat| Multipliers::of(price.rate, price.fees, msat)),
    }
}

/// What one smallest unit of a currency is worth in millisatoshi.
fn msat_per_unit(rates: &dyn Rates, amount: Money, now: Timestamp) -> Option<Decimal> {
    /// Millisatoshi in one bitcoin.
    const MSAT_PER_BITCOIN: i64 = 100_000_000_000;
    let currency = amount.currency();
    let bitcoin = Currency::from_code("BTC")?;
    // Sending major units per bitcoin.
    let mid = rates.mid(currency, bitcoin, now).ok()?;
    let units = Decimal::from(10_i64.checked_pow(u32::from(currency.decimals()))?);
    Decimal::from(MSAT_PER_BITCOIN).checked_div(mid.value.checked_mul(units)?)
}
