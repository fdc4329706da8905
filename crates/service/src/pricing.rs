//! The price of a corridor for a platform now: the mid rate, made worse by the spread, and the
//! fees.

use domain::currency::Currency;
use domain::lookup::Offer;
use domain::money::{AMOUNT_MAX, Money, Receiving, Sending};
use domain::platform::{BasisPoints, CorridorRule, Platform};
use domain::pricing::{Fees, Locked, Multipliers, Price, PriceError, half_up, price, price_with};
use domain::rate::{Rate, round_to_digits};
use domain::rate_basis::{PriceRule, RateBasis, RateSource};
use domain::time::Timestamp;
use domain::transaction::{Conversion, RateDetails};
use ports::rates::{CorridorTerms, MidRate, NoRate, Rates, WhyNoRate};
use rust_decimal::{Decimal, RoundingStrategy};

use crate::error::{Error, MoneyError};
use crate::limits;

/// The price of a corridor at one instant.
#[derive(Debug, Clone, Copy)]
pub struct Corridor {
    /// The rate, spread included.
    pub rate: Rate,
    /// The fees.
    pub fees: Fees,
    /// The basis of the rate.
    pub basis: RateBasis,
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
    let mid = mid.map_err(|none| Error::Money(MoneyError::NoRate(none)))?;
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
    let no_rate = || out_of_range(sending, receiving);
    let bitcoin = Currency::from_code("BTC").ok_or_else(no_rate)?;
    let per_bitcoin = rates.mid(sending, bitcoin, now);
    let per_bitcoin = per_bitcoin.map_err(|none| Error::Money(MoneyError::NoRate(none)))?;
    let bitcoins = units(receiving)
        .and_then(|units| msat_per_unit.checked_mul(units))
        .and_then(|msat| msat.checked_div(Decimal::from(MSAT_PER_BITCOIN)));
    let value = bitcoins.and_then(|bitcoins| bitcoins.checked_mul(per_bitcoin.value));
    let mid = MidRate {
        value: value.ok_or_else(no_rate)?,
        as_of: per_bitcoin.as_of,
        source: RateSource::Counterparty,
    };
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
    let terms = terms.map_err(|none| Error::Money(MoneyError::NoRate(none)))?;
    let (terms, rule) = overridden(terms, &platform.corridors, sending, receiving);
    let basis = RateBasis {
        // As many digits as every reader of JSON keeps, so that what is shown can be recomputed.
        mid: round_to_digits(mid.value),
        as_of: mid.as_of,
        source: mid.source,
        spread: terms.spread,
        rule,
    };
    let rate = basis.rate(sending, receiving);
    let rate = rate.map_err(|_| out_of_range(sending, receiving))?;
    let fees = Fees::new(terms.fixed_fee_minor, terms.variable_fee_rate)
        .map_err(|error| Error::Internal(error.to_string()))?;
    Ok(Corridor { rate, fees, basis })
}

/// The refusal of a price for which there is no rate.
pub(crate) fn no_rate(sending: Currency, receiving: Currency, why: WhyNoRate) -> Error {
    Error::Money(MoneyError::NoRate(NoRate { sending, receiving, why }))
}

fn out_of_range(sending: Currency, receiving: Currency) -> Error {
    no_rate(sending, receiving, WhyNoRate::OutOfRange)
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
) -> (CorridorTerms, PriceRule) {
    let rules = || rules.iter().filter(|rule| rule.matches(sending, receiving));
    let spread = rules().find_map(|rule| rule.spread);
    let fixed_fee_minor = rules().find_map(|rule| rule.fixed_fee_minor);
    let variable_fee_rate = rules().find_map(|rule| rule.variable_fee_rate);
    let rule = match (spread, fixed_fee_minor, variable_fee_rate) {
        (None, None, None) => PriceRule::Default,
        (_, _, _) => PriceRule::Platform,
    };
    let terms = CorridorTerms {
        spread: spread.unwrap_or(list.spread),
        fixed_fee_minor: fixed_fee_minor.unwrap_or(list.fixed_fee_minor),
        variable_fee_rate: variable_fee_rate.unwrap_or(list.variable_fee_rate),
    };
    (terms, rule)
}

/// Prices a payment over a corridor, within the platform's limits. The payee's institution takes
/// `counterparty_minor` smallest units of what is received for it.
pub fn quote(
    platform: &Platform,
    corridor: Corridor,
    locked: Locked,
    counterparty_minor: i64,
) -> Result<Price, Error> {
    let priced = price_with(locked, corridor.rate, corridor.fees, counterparty_minor);
    let priced = priced.map_err(|error| match error {
        PriceError::TooSmall { .. } | PriceError::TooLarge { .. } => {
            Error::Money(MoneyError::Unpriceable { reason: error.to_string() })
        }
        PriceError::Rate(error) => {
            Error::Money(MoneyError::Unpriceable { reason: error.to_string() })
        }
    })?;
    limits::sendable(platform, priced.sent.money())?;
    Ok(priced)
}

/// The conversion of `received` for a deposit account in another currency, at the price of the
/// corridor.
pub fn conversion(
    rates: &dyn Rates,
    platform: &Platform,
    received: Money,
    currency: Currency,
    now: Timestamp,
) -> Result<Conversion, Error> {
    if platform.supported(currency).is_none() {
        return Err(Error::Money(MoneyError::CurrencyNotEnabled { currency, what: "any" }));
    }
    let Corridor { rate, fees, .. } =
        corridor(rates, platform, received.currency(), currency, now)?;
    let priced = price(Locked::Sending(Sending(received)), rate, fees);
    let priced = priced
        .map_err(|error| Error::Money(MoneyError::Unpriceable { reason: error.to_string() }))?;
    Ok(Conversion { deposited: priced.received.money(), rate, fees: priced.own_fees() })
}

/// The least and the most that can arrive over a corridor when from `min` to `max` smallest units
/// of `sending` may be sent; nothing if nothing can.
pub fn delivered(
    corridor: Corridor,
    sending: Currency,
    (min, max): (i64, i64),
) -> Option<(i64, i64)> {
    let Corridor { rate, fees, .. } = corridor;
    let arrives = |minor: i64| {
        let sent = Money::positive(minor, sending).ok()?;
        Some(price(Locked::Sending(Sending(sent)), rate, fees).map(|price| price.received))
    };
    let most = match arrives(max.min(AMOUNT_MAX))? {
        Ok(most) => most.minor(),
        Err(PriceError::TooLarge { .. }) => AMOUNT_MAX,
        Err(PriceError::TooSmall { .. } | PriceError::Rate(_)) => return None,
    };
    // Where the fees take the least that may be sent, whatever arrives costs more.
    let Ok(least) = arrives(min.max(1))? else { return Some((1, most)) };
    // Rounding may let as much arrive for less.
    let costs = price(Locked::Receiving(least), rate, fees).ok()?.sent.minor();
    let least = if costs < min { least.minor() + 1 } else { least.minor() };
    Some((least, most))
}

/// The price of an invoice of another institution.
#[derive(Debug, Clone, Copy)]
pub struct PeerPrice {
    /// Millisatoshi for one smallest unit of the currency that arrives.
    pub msat_per_unit: Decimal,
    /// The institution's fee, in that unit.
    pub fee_minor: i64,
}

/// Millisatoshi by which an invoice may differ from its own multiplier: peers round differently.
pub const ROUNDING_MSAT: i64 = 10;

/// Whether an invoice over `msat` costs what a lookup promised for the amount that arrives: all of
/// it counts, the multiplier, the fee and what is rounded. `is_rounded` says that the payer has
/// fixed what is paid, so that what arrives is a whole unit less.
pub fn costs_as_promised(
    (minor, msat): (i64, Money),
    promised_per_unit: Decimal,
    is_rounded: bool,
    max: BasisPoints,
) -> bool {
    let [points, whole] = [max, BasisPoints::WHOLE].map(|it| Decimal::from(it.get()));
    let least = Decimal::from(ROUNDING_MSAT);
    let rounding = if is_rounded { promised_per_unit.max(least) } else { least };
    let is_within = || {
        let promised = Decimal::from(minor).checked_mul(promised_per_unit)?;
        let drift = Decimal::from(msat.minor()).checked_sub(promised)?.abs();
        let allowed = promised.checked_mul(points)?.checked_div(whole)?.checked_add(rounding)?;
        Some(drift <= allowed)
    };
    // Out of range is out of bounds.
    is_within().unwrap_or(false)
}

/// The amount that is charged so that so much arrives at this price; nothing if it is more than one
/// payment may have.
pub fn charged(
    rates: &dyn Rates,
    platform: &Platform,
    sending: Currency,
    (offer, arrives, fee_minor): (&Offer, Money, i64),
    now: Timestamp,
) -> Option<Money> {
    let Corridor { rate, fees, .. } = corridor_to(rates, platform, sending, offer, now).ok()?;
    let priced = price_with(Locked::Receiving(Receiving(arrives)), rate, fees, fee_minor);
    priced.ok().map(|price| price.sent.money())
}

/// Fee parts and multipliers of a price (specification 2.4). The multipliers are in millisatoshi:
/// those of the invoice where there is one, else those of the mid rate to bitcoin.
pub fn rate_details(
    rates: &dyn Rates,
    price: &Price,
    invoice: Option<PeerPrice>,
    now: Timestamp,
) -> RateDetails {
    let receiving = price.received.currency();
    let fee = invoice.map_or(0, |invoice| invoice.fee_minor);
    RateDetails {
        fixed_fee: price.fixed_fee,
        variable_fee: price.variable_fee,
        variable_fee_rate: price.fees.variable_rate(),
        counterparty_fee: Money::new(fee, receiving).unwrap_or(Money::zero(receiving)),
        multipliers: match invoice {
            Some(invoice) => Multipliers::to_peer(price.rate, price.fees, invoice.msat_per_unit),
            None => msat_per_unit(rates, price.sent.currency(), now)
                .and_then(|msat| Multipliers::of(price.rate, price.fees, msat)),
        },
    }
}

/// The fees of an incoming payment for its receiver's side.
#[derive(Debug, Clone, Copy)]
pub struct Receipt {
    /// The amount that arrives over Lightning.
    pub msat: Money,
    /// The platform's fee, in the currency that arrives.
    pub fees: Money,
    /// Fee parts as shown.
    pub details: RateDetails,
}

/// The price of one smallest unit of a currency for payers elsewhere, in millisatoshi, and the
/// fees.
fn price_in_msat(
    rates: &dyn Rates,
    platform: &Platform,
    receiving: Currency,
    now: Timestamp,
) -> Result<(Decimal, Fees), Error> {
    let bitcoin = Currency::from_code("BTC").ok_or_else(|| Error::Internal("BTC".to_owned()))?;
    let Corridor { rate, fees, .. } = corridor(rates, platform, bitcoin, receiving, now)?;
    let no_rate = || out_of_range(bitcoin, receiving);
    // Bitcoins of a major unit, times 10^11, by its units.
    let msat_per_unit = units(receiving)
        .and_then(|units| {
            rate.value().checked_mul(Decimal::from(MSAT_PER_BITCOIN))?.checked_div(units)
        })
        .map(round_to_digits)
        .ok_or_else(no_rate)?;
    Ok((msat_per_unit, fees))
}

/// The millisatoshi that so many smallest units cost at the price of one, rounded up; nothing if
/// they are too many.
pub fn msat_for(minor: i64, msat_per_unit: Decimal) -> Option<i64> {
    let msat = Decimal::from(minor).checked_mul(msat_per_unit)?;
    let msat = msat.round_dp_with_strategy(0, RoundingStrategy::ToPositiveInfinity);
    i64::try_from(msat).ok()
}

/// The price of one smallest unit of a currency for payers elsewhere, in millisatoshi, without the
/// variable fee.
pub fn msat_of(
    rates: &dyn Rates,
    platform: &Platform,
    receiving: Currency,
    now: Timestamp,
) -> Result<Decimal, Error> {
    price_in_msat(rates, platform, receiving, now).map(|(msat, _)| msat)
}

/// Prices an incoming payment for which a payer elsewhere pays exactly `msat`: as much arrives as
/// that buys with the variable fee on top.
pub fn receipt_for(
    rates: &dyn Rates,
    platform: &Platform,
    (msat, receiving): (Money, Currency),
    now: Timestamp,
) -> Result<(Money, Receipt), Error> {
    let (msat_per_unit, fees) = price_in_msat(rates, platform, receiving, now)?;
    let too_small = || {
        Error::Money(MoneyError::Unpriceable {
            reason: format!("{msat} is too small: nothing would arrive in {receiving}"),
        })
    };
    let price = Decimal::ONE.checked_add(fees.variable_rate());
    let price = price.and_then(|with_fee| with_fee.checked_mul(msat_per_unit));
    let guess = price.and_then(|price| Decimal::from(msat.minor()).checked_div(price));
    let guess = guess.and_then(|units| i64::try_from(units.floor()).ok()).ok_or_else(too_small)?;
    // The fee is rounded to a unit, so that a unit more or less than the quotient may be right.
    for minor in [guess.saturating_add(1), guess, guess.saturating_sub(1)] {
        let Ok(received) = Money::positive(minor, receiving) else { continue };
        let receipt = receipt(rates, platform, received, now)?;
        if receipt.msat.minor() <= msat.minor() {
            return Ok((received, Receipt { msat, ..receipt }));
        }
    }
    Err(too_small())
}

/// Prices an incoming payment of which `received` shall reach the receiver: the variable fee of the
/// corridor from bitcoin comes on top, and what the payer's side owes is rounded up.
pub fn receipt(
    rates: &dyn Rates,
    platform: &Platform,
    received: Money,
    now: Timestamp,
) -> Result<Receipt, Error> {
    let receiving = received.currency();
    let (msat_per_unit, fees) = price_in_msat(rates, platform, receiving, now)?;
    let too_large = || {
        Error::Money(MoneyError::Unpriceable {
            reason: format!(
                "{received} is too large: the Lightning payment would exceed its limit"
            ),
        })
    };
    let minor = Decimal::from(received.minor());
    let variable = minor.checked_mul(fees.variable_rate()).map(half_up);
    let variable = variable.and_then(|fee| i64::try_from(fee).ok()).ok_or_else(too_large)?;
    let variable = Money::new(variable, receiving).map_err(|_| too_large())?;
    // Both together come in, and are booked as one amount.
    let owed = received.checked_add(variable).map_err(|_| too_large())?;
    let msat = msat_for(owed.minor(), msat_per_unit)
        .and_then(|msat| Money::positive(msat, Currency::MSAT).ok())
        .ok_or_else(too_large)?;
    let details = RateDetails {
        fixed_fee: Money::zero(receiving),
        variable_fee: variable,
        variable_fee_rate: fees.variable_rate(),
        counterparty_fee: Money::zero(receiving),
        multipliers: Some(Multipliers { service_api: msat_per_unit, counterparty: msat_per_unit }),
    };
    Ok(Receipt { msat, fees: variable, details })
}

/// Fee parts of an incoming payment that takes nothing from its receiver, with what the currency is
/// worth.
pub fn free_of_charge(rates: &dyn Rates, received: Currency, now: Timestamp) -> RateDetails {
    RateDetails {
        fixed_fee: Money::zero(received),
        variable_fee: Money::zero(received),
        variable_fee_rate: Decimal::ZERO,
        counterparty_fee: Money::zero(received),
        multipliers: msat_per_unit(rates, received, now)
            .map(round_to_digits)
            .map(|msat| Multipliers { service_api: msat, counterparty: msat }),
    }
}

/// The value of one smallest unit of a currency in millisatoshi.
fn msat_per_unit(rates: &dyn Rates, currency: Currency, now: Timestamp) -> Option<Decimal> {
    let bitcoin = Currency::from_code("BTC")?;
    // Sending major units per bitcoin.
    let mid = rates.mid(currency, bitcoin, now).ok()?;
    Decimal::from(MSAT_PER_BITCOIN).checked_div(mid.value.checked_mul(units(currency)?)?)
}
