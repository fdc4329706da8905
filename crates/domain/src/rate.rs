//! Exchange rates, exactly: decimal digits, no floats.

use std::fmt;

use rust_decimal::{Decimal, RoundingStrategy};

use crate::currency::Currency;

/// Sending **major** units that one **major** unit of the receiving currency costs (specification
/// 2.5 `exchangeRate`; design decision 6). Always greater than zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    value: Decimal,
    sending: Currency,
    receiving: Currency,
}

/// Why a number cannot be a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// Zero or less.
    #[error("a rate must be greater than 0, got {0}")]
    NotPositive(Decimal),
    /// Too large or too small for exact arithmetic.
    #[error("the rate from {sending} to {receiving} is outside the range that is exact")]
    OutOfRange {
        /// Currency that pays.
        sending: Currency,
        /// Currency that is paid.
        receiving: Currency,
    },
}

/// Decimal places that are printed at least, as the public API does.
const DECIMAL_PLACES: u32 = 8;
/// Significant digits that a small rate keeps even where that takes more decimal places.
const DIGITS_MIN: i64 = 8;
/// Significant digits that a large rate keeps at most: every JSON reader, including those that
/// read numbers as doubles, gets exactly the rate that we computed with.
const DIGITS_MAX: i64 = 15;

impl Rate {
    /// A rate, rounded half-up to the digits that the API shows: what is computed with and what is
    /// shown are the same number.
    pub fn new(value: Decimal, sending: Currency, receiving: Currency) -> Result<Self, RateError> {
        if value <= Decimal::ZERO {
            return Err(RateError::NotPositive(value));
        }
        let value = round_to_shown(value);
        if value.is_zero() {
            return Err(RateError::OutOfRange { sending, receiving });
        }
        Ok(Self { value, sending, receiving })
    }

    /// Sending major units per receiving major unit.
    pub fn value(self) -> Decimal {
        self.value
    }

    /// The currency that pays.
    pub fn sending(self) -> Currency {
        self.sending
    }

    /// The currency that is paid.
    pub fn receiving(self) -> Currency {
        self.receiving
    }

    /// Smallest sending units per smallest receiving unit (`k` in contract 6.9.5), as an exact
    /// fraction.
    pub fn per_smallest_unit(self) -> Result<Fraction, RateError> {
        let out_of_range =
            RateError::OutOfRange { sending: self.sending, receiving: self.receiving };
        let decimals = i64::from(self.receiving.decimals()) + i64::from(self.value.scale())
            - i64::from(self.sending.decimals());
        let power = |exponent: i64| {
            u32::try_from(exponent).ok().and_then(|exponent| 10_i128.checked_pow(exponent))
        };
        let mantissa = self.value.mantissa();
        let fraction = if decimals >= 0 {
            power(decimals).map(|den| Fraction { num: mantissa, den })
        } else {
            power(-decimals)
                .and_then(|scale| mantissa.checked_mul(scale))
                .map(|num| Fraction { num, den: 1 })
        };
        fraction.ok_or(out_of_range)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} per {}", self.value, self.sending, self.receiving)
    }
}

/// A positive fraction in 128-bit integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction {
    /// Numerator, greater than zero.
    pub num: i128,
    /// Denominator, greater than zero.
    pub den: i128,
}

/// Rounds half-up to the digits of a printed rate: eight decimals, more for small rates, fewer for
/// large ones.
pub fn round_to_shown(value: Decimal) -> Decimal {
    let places = (DIGITS_MIN - 1 - magnitude(value)).max(i64::from(DECIMAL_PLACES));
    round_to_places(value, places)
}

/// Rounds half-up to fifteen significant digits, for multipliers.
pub fn round_to_digits(value: Decimal) -> Decimal {
    round_to_places(value, i64::from(Decimal::MAX_SCALE))
}

fn round_to_places(value: Decimal, places: i64) -> Decimal {
    let places = places.min(DIGITS_MAX - 1 - magnitude(value)).max(0);
    let places = u32::try_from(places).unwrap_or(0).min(Decimal::MAX_SCALE);
    value.round_dp_with_strategy(places, RoundingStrategy::MidpointAwayFromZero).normalize()
}

/// The power of ten of the leading digit.
fn magnitude(value: Decimal) -> i64 {
    let digits = i64::from(value.mantissa().unsigned_abs().checked_ilog10().unwrap_or(0));
    digits - i64::from(value.scale())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn currency(code: &str) -> Currency {
        Currency::from_code(code).expect("known currency")
    }

    fn rate(value: &str, sending: &str, receiving: &str) -> Rate {
        let value = value.parse().expect("decimal");
        Rate::new(value, currency(sending), currency(receiving)).expect("rate")
    }

    #[test]
    fn shown_digits_are_eight_decimals_and_never_fewer_than_eight_digits() {
        for (given, shown) in [
            ("1.086956521739", "1.08695652"),
            ("120048.0192076831", "120048.01920768"),
            ("1630000000.123456789", "1630000000.12346"),
            ("0.000000000614285714", "0.00000000061428571"),
            ("0.5", "0.5"),
        ] {
            let expected: Decimal = shown.parse().expect("decimal");
            assert_eq!(rate(given, "USD", "EUR").value(), expected, "{given}");
        }
    }

    #[test]
    fn smallest_unit_ratio_respects_decimals() {
        let k = rate("120048.01920768", "USD", "BTC").per_smallest_unit().expect("exact");
        // 120,048 dollars per bitcoin are 0.12 cents per satoshi.
        assert_eq!((k.num * 100 / k.den, k.num > 0), (12, true));
        let k = rate("0.00003937007874", "USDC", "VND").per_smallest_unit().expect("exact");
        assert_eq!(k.num / k.den, 39);
    }

    #[test]
    fn rates_are_positive() {
        let usd = currency("USD");
        assert!(Rate::new(Decimal::ZERO, usd, usd).is_err());
        assert!(Rate::new(Decimal::NEGATIVE_ONE, usd, usd).is_err());
    }
}
