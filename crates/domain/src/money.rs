//! Amounts of money: whole smallest units of one currency, never negative, never a float.
//!
//! `a + b` does not compile: amounts meet only in [`Money::checked_add`] and
//! [`Money::checked_sub`], which refuse two currencies and overflow by name. The two sides of an
//! exchange are types of their own ([`Sending`], [`Receiving`]), because mixing them up is the
//! mistake that costs money.

use std::fmt;

use crate::currency::Currency;

/// The largest amount of one payment, in smallest units: stays inside the integers that every
/// JSON reader holds exactly (below 2^53).
pub const AMOUNT_MAX: i64 = 9_000_000_000_000_000;

/// An amount in the smallest unit of its currency; zero or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Money {
    minor: i64,
    currency: Currency,
}

/// Why an amount was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Below zero, or zero where something must move.
    #[error("amount {minor} must be greater than 0")]
    NotPositive {
        /// The amount as given, in smallest units.
        minor: i64,
    },
    /// Above [`AMOUNT_MAX`], or a sum that passes the range.
    #[error("amount must be at most {AMOUNT_MAX} smallest units")]
    TooLarge,
    /// Two amounts of different currencies met.
    #[error("cannot combine {left} with {right}")]
    CurrencyMismatch {
        /// Currency of the left amount.
        left: Currency,
        /// Currency of the right amount.
        right: Currency,
    },
}

impl Money {
    /// An amount that may be zero.
    pub fn new(minor: i64, currency: Currency) -> Result<Self, AmountError> {
        if minor < 0 {
            return Err(AmountError::NotPositive { minor });
        }
        if minor > AMOUNT_MAX {
            return Err(AmountError::TooLarge);
        }
        Ok(Self { minor, currency })
    }

    /// An amount that moves: at least one smallest unit.
    pub fn positive(minor: i64, currency: Currency) -> Result<Self, AmountError> {
        if minor <= 0 {
            return Err(AmountError::NotPositive { minor });
        }
        Self::new(minor, currency)
    }

    /// Nothing, in `currency`.
    pub const fn zero(currency: Currency) -> Self {
        Self { minor: 0, currency }
    }

    /// The amount in smallest units.
    pub const fn minor(self) -> i64 {
        self.minor
    }

    /// The amount's currency.
    pub const fn currency(self) -> Currency {
        self.currency
    }

    /// Whether nothing would move.
    pub const fn is_zero(self) -> bool {
        self.minor == 0
    }

    /// The sum of two amounts of one currency.
    pub fn checked_add(self, other: Self) -> Result<Self, AmountError> {
        self.same_currency(other)?;
        let minor = self.minor.checked_add(other.minor).ok_or(AmountError::TooLarge)?;
        Self::new(minor, self.currency)
    }

    /// The rest of this amount without `other`, which must not be larger.
    pub fn checked_sub(self, other: Self) -> Result<Self, AmountError> {
        self.same_currency(other)?;
        Self::new(self.minor - other.minor, self.currency)
    }

    fn same_currency(self, other: Self) -> Result<(), AmountError> {
        if self.currency == other.currency {
            Ok(())
        } else {
            Err(AmountError::CurrencyMismatch { left: self.currency, right: other.currency })
        }
    }
}

/// The amount in whole units with the currency's decimals, for people: `100.50 USD`.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = in_major_units(i128::from(self.minor), self.currency);
        write!(f, "{digits} {}", self.currency)
    }
}

/// A number of smallest units in major units, with all decimals of the currency. Sums of money have
/// more bits than [`Money`].
pub fn in_major_units(minor: i128, currency: Currency) -> String {
    let decimals = usize::from(currency.decimals());
    let sign = if minor < 0 { "-" } else { "" };
    let digits = format!("{:0width$}", minor.unsigned_abs(), width = decimals + 1);
    let (whole, rest) = digits.split_at(digits.len() - decimals);
    let point = if decimals > 0 { "." } else { "" };
    format!("{sign}{whole}{point}{rest}")
}

macro_rules! side {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub Money);

        impl $name {
            /// The amount without its side.
            pub const fn money(self) -> Money {
                self.0
            }

            /// The amount in smallest units.
            pub const fn minor(self) -> i64 {
                self.0.minor()
            }

            /// The amount's currency.
            pub const fn currency(self) -> Currency {
                self.0.currency()
            }
        }
    };
}

side! {
    /// An amount on the side that pays.
    Sending
}
side! {
    /// An amount on the side that is paid.
    Receiving
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_in_major_units() {
        let currency = |code| Currency::from_code(code).expect("a known currency");
        for (minor, code, text) in [
            (0, "USD", "0.00"),
            (5, "USD", "0.05"),
            (-1_234, "USD", "-12.34"),
            (7, "JPY", "7"),
            (i128::from(i64::MAX) * 4, "USD", "368934881474191032.28"),
        ] {
            assert_eq!(in_major_units(minor, currency(code)), text);
        }
    }

    fn currency(code: &str) -> Currency {
        Currency::from_code(code).expect("known currency")
    }

    #[test]
    fn amounts_are_positive_and_bounded() {
        let usd = currency("USD");
        assert_eq!(Money::positive(0, usd), Err(AmountError::NotPositive { minor: 0 }));
        assert_eq!(Money::new(-1, usd), Err(AmountError::NotPositive { minor: -1 }));
        assert_eq!(Money::new(AMOUNT_MAX + 1, usd), Err(AmountError::TooLarge));
        assert!(Money::new(AMOUNT_MAX, usd).is_ok());
    }

    #[test]
    fn sums_refuse_two_currencies_and_overflow() {
        let (usd, eur) = (currency("USD"), currency("EUR"));
        let most = Money::new(AMOUNT_MAX, usd).expect("in range");
        let one = Money::new(1, usd).expect("in range");
        assert_eq!(most.checked_add(one), Err(AmountError::TooLarge));
        assert_eq!(one.checked_sub(most), Err(AmountError::NotPositive { minor: 1 - AMOUNT_MAX }));
        assert_eq!(
            one.checked_add(Money::zero(eur)),
            Err(AmountError::CurrencyMismatch { left: usd, right: eur })
        );
    }

    #[test]
    fn amounts_print_with_their_decimals() {
        for (minor, code, shown) in [
            (10_050, "USD", "100.50 USD"),
            (7, "VND", "7 VND"),
            (1, "BTC", "0.00000001 BTC"),
            (1_500_000, "USDC", "1.500000 USDC"),
        ] {
            let money = Money::new(minor, currency(code)).expect("in range");
            assert_eq!(money.to_string(), shown);
        }
    }
}
