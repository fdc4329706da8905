//! What a corridor costs a platform now: the mid rate, made worse by the spread, and the fees.

use domain::currency::Currency;
use domain::lookup::Offer;
use domain::money::Money;
use domain::platform::{CorridorRule, Platform};
use domain::pricing::{Fees, Locked, Multipliers, Price, PriceError, price};
use domain::rate::Rate;
use domain::time::Timestamp;
use domain::transaction::RateDetails;
use ports::rates::{CorridorTerms, MidRate, Rates};
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

/// Millisatoshi in one bitcoin.
const MSAT_PER_BITCOIN: i64 = 100_000_000_000;

/// The price of a corridor for a platform: its own rules first, then the price list.
pub fn corridor(
    rates: &dyn Rates,
    platform: &Platform,
    sending: Currency,
    receiving: Currency,
    now: Timestamp,
) -> Result<Corridor, Error> {
    let mid = rates.mid(sending, receiving, now);
    let mid = mid.map_err(|_| Error::NoRate { sending, receiving })?;
    at(rates, platform, sending, receiving, mid)
}

/// The price of paying what an offer is for. Where another institution converts, the middle of the
/// market is what its millisatoshi cost; spread and fees are those of the corridor.
pub fn corridor_to(
    rates: &dyn Rates,
    platform: &Platform,
    sending: Currency,
    offer: &Offer,
    now: Timestamp,
) -> Result<Corridor, Error> {
    let receiving = offer.currency;
    let Some(msat_per_unit) = offer.msat_per_unit else {
        return corridor(rates, platform, sending, receiving, now);
    };
    let no_rate = || Error::NoRate { sending, receiving };
    let bitcoin = Currency::from_code("BTC").ok_or_else(no_rate)?;
    let per_bitcoin = rates.mid(sending, bitcoin, now).map_err(|_| no_rate())?;
    let bitcoins = units(receiving)
        .and_then(|units| msat_per_unit.checked_mul(units))
        .and_then(|msat| msat.checked_div(Decimal::from(MSAT_PER_BITCOIN)));
    let value = bitcoins.and_then(|bitcoins| bitcoins.checked_mul(per_bitcoin.value));
    let mid = MidRate { value: value.ok_or_else(no_rate)?, as_of: per_bitcoin.as_of };
    at(rates, platform, sending, receiving, mid)
}

/// The price of a corridor whose market is there.
fn at(
    rates: &dyn Rates,
    platform: &Platform,
    sending: Currency,
    receiving: Currency,
    mid: MidRate,
) -> Result<Corridor, Error> {
    let terms = rates.terms(sending, receiving);
    let terms = overridden(terms, &platform.corridors, sending, receiving);
    let rate = (Decimal::ONE + terms.spread)
        .checked_mul(mid.value)
        .and_then(|value| Rate::new(value, sending, receiving).ok())
        .ok_or(Error::NoRate { sending, receiving })?;
    let fees = Fees::new(terms.fixed_fee_minor, terms.variable_fee_rate)
        .map_err(|error| Error::Internal(error.to_string()))?;
    Ok(Corridor { rate, fees, as_of: mid.as_of })
}

/// Smallest units of one major unit.
fn units(currency: Currency) -> Option<Decimal> {
    10_i64.checked_pow(u32::from(currency.decimals())).map(Decimal::from)
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
    let currency = amount.currency();
    let bitcoin = Currency::from_code("BTC")?;
    // Sending major units per bitcoin.
    let mid = rates.mid(currency, bitcoin, now).ok()?;
    Decimal::from(MSAT_PER_BITCOIN).checked_div(mid.value.checked_mul(units(currency)?)?)
}
