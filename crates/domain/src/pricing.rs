//! The price of a payment: the arithmetic of contract 6.9.5, exactly.
//!
//! Fee parts round half-up, received amounts down, charged amounts up (design decision 6). All
//! products are made in 128 bits; what does not fit is refused, never wrapped.

use rust_decimal::{Decimal, RoundingStrategy};

use crate::currency::Currency;
use crate::money::{AMOUNT_MAX, Money, Receiving, Sending};
use crate::rate::{Rate, RateError, round_to_digits};

/// Fees of a corridor for the platform's customers, besides the spread inside the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fees {
    /// Per payment, in the smallest unit of the sending currency; zero or more.
    fixed_minor: i64,
    /// Fraction of the sending amount, at least 0 and below 1 (0.003 = 0.3 %).
    variable_rate: Decimal,
}

/// Why fees cannot be charged as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "fees need a fixed part from 0 to {AMOUNT_MAX} and a variable rate from 0 to below 1, \
         with at most {VARIABLE_RATE_DECIMALS} decimals; got {fixed_minor} and {variable_rate}"
)]
pub struct InvalidFees {
    fixed_minor: i64,
    variable_rate: Decimal,
}

/// Decimal places of a variable rate at most: a hundredth of a basis point, and small enough that
/// every product of a quote stays exact in 128 bits.
const VARIABLE_RATE_DECIMALS: u32 = 6;

impl Fees {
    /// No fees at all.
    pub const NONE: Self = Self { fixed_minor: 0, variable_rate: Decimal::ZERO };

    /// Checked fees.
    pub fn new(fixed_minor: i64, variable_rate: Decimal) -> Result<Self, InvalidFees> {
        let variable_rate = variable_rate.normalize();
        let sound = (0..=AMOUNT_MAX).contains(&fixed_minor)
            && (Decimal::ZERO..Decimal::ONE).contains(&variable_rate)
            && variable_rate.scale() <= VARIABLE_RATE_DECIMALS;
        if sound {
            Ok(Self { fixed_minor, variable_rate })
        } else {
            Err(InvalidFees { fixed_minor, variable_rate })
        }
    }

    /// The fixed part in smallest sending units.
    pub fn fixed_minor(self) -> i64 {
        self.fixed_minor
    }

    /// The variable part as a fraction of the sending amount.
    pub fn variable_rate(self) -> Decimal {
        self.variable_rate
    }

    /// The variable part of `sent`, half-up to the smallest unit.
    fn variable_minor(self, sent: i128) -> Option<i128> {
        let scale = 10_i128.checked_pow(self.variable_rate.scale())?;
        let product = sent.checked_mul(self.variable_rate.mantissa())?;
        Some((product.checked_mul(2)?.checked_add(scale)?) / (2 * scale))
    }
}

/// The side of a quote whose amount is given (contract 6.9.1 `lockedCurrencySide`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locked {
    /// The payer decides what is charged.
    Sending(Sending),
    /// The payee decides what arrives.
    Receiving(Receiving),
}

/// A priced payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Charged in total, fees included.
    pub sent: Sending,
    /// Delivered.
    pub received: Receiving,
    /// Fixed part of the fees, in the sending currency.
    pub fixed_fee: Money,
    /// Variable part of the fees, in the sending currency.
    pub variable_fee: Money,
    /// The fee of the payee's institution in the sending currency; 0 where none is
    /// paid. Not ours: it leaves with the payment.
    pub counterparty_fee: Money,
    /// The rate between what is left after fees and what is delivered.
    pub rate: Rate,
    /// The terms behind the fee parts.
    pub fees: Fees,
}

/// Why there is no price.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    /// Fees take everything, or less than one smallest unit would arrive.
    #[error(
        "{amount} is too small: nothing would arrive after fees of {fees_minor} smallest units"
    )]
    TooSmall {
        /// The amount given.
        amount: Money,
        /// Fees in smallest sending units.
        fees_minor: i64,
    },
    /// An amount would pass the largest that one payment may have.
    #[error(
        "{amount} is too large: an amount of this payment would exceed {AMOUNT_MAX} \
             smallest units"
    )]
    TooLarge {
        /// The amount given.
        amount: Money,
    },
    /// The rate is not usable.
    #[error(transparent)]
    Rate(#[from] RateError),
}

/// Prices a payment whose one side is locked, to a payee whose institution takes nothing.
pub fn price(locked: Locked, rate: Rate, fees: Fees) -> Result<Price, PriceError> {
    price_with(locked, rate, fees, 0)
}

/// Prices a payment whose one side is locked. The payee's institution takes `counterparty_minor`
/// for it: 0 or more smallest units of the receiving currency.
pub fn price_with(
    locked: Locked,
    rate: Rate,
    fees: Fees,
    counterparty_minor: i64,
) -> Result<Price, PriceError> {
    let amount = match locked {
        Locked::Sending(sent) => sent.money(),
        Locked::Receiving(received) => received.money(),
    };
    let too_large = PriceError::TooLarge { amount };
    let k = rate.per_smallest_unit()?;
    // Sending units that so many receiving units cost, rounded up.
    let cost = |minor: i64| {
        let cost = i128::from(minor).checked_mul(k.num)?.checked_add(k.den - 1)?;
        Some(cost / k.den)
    };
    let counterparty = cost(counterparty_minor).ok_or(too_large.clone())?;
    let sent = match locked {
        Locked::Sending(sent) => i128::from(sent.minor()),
        Locked::Receiving(received) => cost(received.minor())
            .and_then(|cost| cost.checked_add(i128::from(fees.fixed_minor) + counterparty))
            .and_then(|left| least_sent(left, fees))
            .ok_or(too_large.clone())?,
    };
    let variable = fees.variable_minor(sent).ok_or(too_large.clone())?;
    let total_fees = variable + i128::from(fees.fixed_minor) + counterparty;
    let received = match locked {
        Locked::Sending(_) => {
            (sent - total_fees).max(0).checked_mul(k.den).ok_or(too_large.clone())? / k.num
        }
        Locked::Receiving(received) => i128::from(received.minor()),
    };
    if received <= 0 || total_fees >= sent {
        let fees_minor = i64::try_from(total_fees).unwrap_or(AMOUNT_MAX);
        return Err(PriceError::TooSmall { amount, fees_minor });
    }
    let money = |minor: i128, currency: Currency| {
        i64::try_from(minor)
            .ok()
            .and_then(|minor| Money::new(minor, currency).ok())
            .ok_or(PriceError::TooLarge { amount })
    };
    Ok(Price {
        sent: Sending(money(sent, rate.sending())?),
        received: Receiving(money(received, rate.receiving())?),
        fixed_fee: money(i128::from(fees.fixed_minor), rate.sending())?,
        variable_fee: money(variable, rate.sending())?,
        counterparty_fee: money(counterparty, rate.sending())?,
        rate,
        fees,
    })
}

/// The least that can be charged so that `left` is left of it after the variable fee; nothing if
/// that is more than one payment may have. The fee is rounded half-up, so no formula gives it: but
/// one unit more leaves one more or the same, never less, and that can be searched.
fn least_sent(left: i128, fees: Fees) -> Option<i128> {
    let leaves = |sent: i128| Some(sent - fees.variable_minor(sent)?);
    let (mut low, mut high) = (left, i128::from(AMOUNT_MAX));
    if low > high || leaves(high)? < left {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if leaves(middle)? < left {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(low)
}

impl Price {
    /// Our fees, inside the amount charged.
    pub fn own_fees(&self) -> Money {
        self.fixed_fee
            .checked_add(self.variable_fee)
            .expect("pricing has checked that the fees are less than the amount charged")
    }

    /// All fees, inside the amount charged (specification 2.5 `feesIncluded`).
    pub fn total_fees(&self) -> Money {
        self.own_fees()
            .checked_add(self.counterparty_fee)
            .expect("pricing has checked that the fees are less than the amount charged")
    }
}

/// The multipliers of specification 2.4, in millisatoshi per smallest unit (contract 13, row 18).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multipliers {
    /// Millisatoshi per smallest sending unit, after the variable fee.
    pub service_api: Decimal,
    /// Millisatoshi per smallest receiving unit.
    pub counterparty: Decimal,
}

impl Multipliers {
    /// The multipliers of a payment to another institution, which said what one smallest unit of
    /// the receiving currency costs. `None` when a product leaves the range of exact decimals.
    pub fn to_peer(rate: Rate, fees: Fees, msat_per_receiving_unit: Decimal) -> Option<Self> {
        let k = rate.per_smallest_unit().ok()?;
        let fraction = |value: i128| Decimal::try_from_i128_with_scale(value, 0).ok();
        let sending = msat_per_receiving_unit.checked_mul(fraction(k.den)?)?;
        let sending = sending.checked_div(fraction(k.num)?)?;
        let kept = Decimal::ONE.checked_sub(fees.variable_rate)?;
        Some(Self {
            service_api: round_to_digits(sending.checked_mul(kept)?),
            counterparty: msat_per_receiving_unit,
        })
    }

    /// The multipliers that agree with a rate and its fees. `msat_per_unit` is what one smallest
    /// sending unit is worth in millisatoshi, before fees. `None` when a product leaves the range
    /// of exact decimals.
    pub fn of(rate: Rate, fees: Fees, msat_per_unit: Decimal) -> Option<Self> {
        let k = rate.per_smallest_unit().ok()?;
        let fraction = |value: i128| Decimal::try_from_i128_with_scale(value, 0).ok();
        let k = fraction(k.num)?.checked_div(fraction(k.den)?)?;
        let kept = Decimal::ONE.checked_sub(fees.variable_rate)?;
        Some(Self {
            service_api: round_to_digits(msat_per_unit.checked_mul(kept)?),
            counterparty: round_to_digits(msat_per_unit.checked_mul(k)?),
        })
    }
}

/// Rounds a decimal number of smallest units half-up, for configured amounts.
pub fn half_up(value: Decimal) -> Decimal {
    value.round_dp_with_strategy(0, RoundingStrategy::MidpointAwayFromZero)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn currency(code: &str) -> Currency {
        Currency::from_code(code).expect("known currency")
    }

    fn decimal(text: &str) -> Decimal {
        text.parse().expect("decimal")
    }

    fn rate(value: &str, sending: &str, receiving: &str) -> Rate {
        Rate::new(decimal(value), currency(sending), currency(receiving)).expect("rate")
    }

    fn sending(minor: i64, code: &str) -> Locked {
        Locked::Sending(Sending(Money::positive(minor, currency(code)).expect("amount")))
    }

    fn receiving(minor: i64, code: &str) -> Locked {
        Locked::Receiving(Receiving(Money::positive(minor, currency(code)).expect("amount")))
    }

    fn check(locked: Locked, rate: Rate, fees: Fees, expected: [i64; 5]) {
        let price = price(locked, rate, fees).expect("price");
        let shown = [
            price.sent.minor(),
            price.fixed_fee.minor(),
            price.variable_fee.minor(),
            price.total_fees().minor(),
            price.received.minor(),
        ];
        assert_eq!(shown, expected, "{locked:?}");
    }

    #[test]
    fn the_worked_examples_of_the_contract() {
        let eur = rate("1.08695652", "USD", "EUR");
        let btc = rate("120048.01920768", "USD", "BTC");
        let fees = Fees::new(200, decimal("0.003")).expect("fees");
        check(sending(100_000, "USD"), eur, fees, [100_000, 200, 300, 500, 91_540]);
        check(receiving(92_000, "EUR"), eur, fees, [100_502, 200, 302, 502, 92_000]);
        check(receiving(91_540, "EUR"), eur, fees, [100_000, 200, 300, 500, 91_540]);
        check(sending(100_000, "USD"), btc, fees, [100_000, 200, 300, 500, 828_835]);
    }

    #[test]
    fn the_fee_of_the_payees_institution_is_part_of_the_fees() {
        let eur = rate("1.08695652", "USD", "EUR");
        let fees = Fees::new(200, decimal("0.003")).expect("fees");
        let check = |locked, expected: [i64; 4]| {
            let price = price_with(locked, eur, fees, 25).expect("price");
            let [sent, own, all] =
                [price.sent.minor(), price.own_fees().minor(), price.total_fees().minor()];
            assert_eq!([sent, own, all, price.received.minor()], expected, "{locked:?}");
        };
        // 25 cents of a euro cost 27.17 cents of a dollar, rounded up.
        check(sending(100_000, "USD"), [100_000, 500, 528, 91_514]);
        check(receiving(91_514, "EUR"), [100_000, 500, 528, 91_514]);
    }

    #[test]
    fn multipliers_agree_with_the_worked_example() {
        let eur = rate("1.08695652", "USD", "EUR");
        let fees = Fees::new(200, decimal("0.003")).expect("fees");
        let multipliers = Multipliers::of(eur, fees, decimal("10000")).expect("in range");
        assert_eq!(multipliers.service_api, decimal("9970"));
        assert_eq!(multipliers.counterparty, decimal("10869.5652"));
        assert_eq!(Multipliers::to_peer(eur, fees, decimal("10869.5652")), Some(multipliers));
    }

    #[test]
    fn what_would_not_arrive_is_refused() {
        let eur = rate("1.08695652", "USD", "EUR");
        let fees = Fees::new(200, decimal("0.003")).expect("fees");
        for minor in [1, 200, 201] {
            let refused = price(sending(minor, "USD"), eur, fees);
            assert!(matches!(refused, Err(PriceError::TooSmall { .. })), "{minor}: {refused:?}");
        }
        let vnd = rate("0.00000000061428571", "BTC", "VND");
        let refused = price(sending(AMOUNT_MAX, "BTC"), vnd, Fees::NONE);
        assert!(matches!(refused, Err(PriceError::TooLarge { .. })), "{refused:?}");
    }

    /// Rates between currencies of 0, 2, 6 and 8 decimals.
    fn corridors() -> Vec<Rate> {
        vec![
            rate("1.08695652", "USD", "EUR"),
            rate("0.00003937007874", "USD", "VND"),
            rate("25400", "VND", "USD"),
            rate("1.000512", "USDC", "USDT"),
            rate("0.00004012345678", "USDC", "VND"),
            rate("120048.01920768", "USD", "BTC"),
            rate("0.00000833", "BTC", "USD"),
            rate("0.0000000003278", "BTC", "VND"),
            rate("119000.5", "USDT", "BTC"),
            rate("3049219508.4", "VND", "BTC"),
        ]
    }

    proptest! {
        #[test]
        fn a_locked_receiving_side_costs_the_least_that_delivers_it(
            corridor in 0..10_usize,
            minor in prop_oneof![1..1_000_i64, 1..1_000_000_000_i64],
            fixed in 0..1_000_i64,
            variable in prop_oneof![0..50_000_i64, 0..1_000_000_i64],
            counterparty in prop_oneof![Just(0), 0..1_000_i64],
        ) {
            let rate = corridors()[corridor];
            let fees = Fees::new(fixed, Decimal::new(variable, 6)).expect("fees");
            let locked = Locked::Receiving(Receiving(
                Money::positive(minor, rate.receiving()).expect("amount"),
            ));
            let Ok(price) = price_with(locked, rate, fees, counterparty) else { return Ok(()) };
            prop_assert_eq!(price.received.minor(), minor);
            // The figures shown give no less than what is promised, and one unit less would
            // give less.
            let k = rate.per_smallest_unit().expect("exact");
            let gives = |sent: i64| {
                let variable_fee = (i128::from(sent) * i128::from(variable) + 500_000) / 1_000_000;
                let counterparty_fee = (i128::from(counterparty) * k.num + k.den - 1) / k.den;
                let fees = i128::from(fixed) + variable_fee + counterparty_fee;
                ((i128::from(sent) - fees) * k.den).div_euclid(k.num)
            };
            prop_assert!(gives(price.sent.minor()) >= i128::from(minor));
            prop_assert!(gives(price.sent.minor() - 1) < i128::from(minor));
            let fees = i128::from(price.total_fees().minor());
            let left = i128::from(price.sent.minor()) - fees;
            prop_assert_eq!(left * k.den / k.num, gives(price.sent.minor()));
        }

        #[test]
        fn a_locked_sending_side_never_delivers_more_than_was_paid(
            corridor in 0..10_usize,
            minor in 1..AMOUNT_MAX,
            fixed in 0..1_000_i64,
            variable in 0..50_000_i64,
        ) {
            let rate = corridors()[corridor];
            let fees = Fees::new(fixed, Decimal::new(variable, 6)).expect("fees");
            let locked = Locked::Sending(Sending(
                Money::positive(minor, rate.sending()).expect("amount"),
            ));
            let Ok(price) = price(locked, rate, fees) else { return Ok(()) };
            prop_assert_eq!(price.sent.minor(), minor);
            let k = rate.per_smallest_unit().expect("exact");
            let net = i128::from(price.sent.minor() - price.total_fees().minor());
            let received = i128::from(price.received.minor());
            prop_assert!(received * k.num <= net * k.den);
            prop_assert!((received + 1) * k.num > net * k.den);
        }
    }
}
