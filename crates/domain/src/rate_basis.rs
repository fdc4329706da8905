//! The basis of a quote's rate, so that an auditor can price the quote again.

use rust_decimal::Decimal;

use crate::currency::Currency;
use crate::rate::{Rate, RateError};
use crate::time::Timestamp;

macro_rules! named {
    ($(#[$doc:meta])* $type:ident: $($(#[$about:meta])* $name:ident = $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[$about])* $name,)*
        }

        impl $type {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in the API and in storage.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The value with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.name() == name)
            }
        }
    };
}

named! {
    /// Where a mid rate comes from.
    RateSource:
    /// The table that comes with the program.
    BuiltIn = "BUILT_IN",
    /// The operator's file of rates.
    RatesFile = "RATES_FILE",
    /// The price of the payee's institution in millisatoshi, at the mid rate of bitcoin.
    Counterparty = "COUNTERPARTY",
}

named! {
    /// Whose rule decided spread and fees.
    PriceRule:
    /// A rule of the platform's own decided at least one of them.
    Platform = "PLATFORM",
    /// The price list of the server decided all of them.
    Default = "DEFAULT",
}

/// The basis of a rate: with a quote's fees, enough to price it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateBasis {
    /// The middle of the market: sending major units per receiving major unit.
    pub mid: Decimal,
    /// When the market was there.
    pub as_of: Timestamp,
    /// The source.
    pub source: RateSource,
    /// Fraction by which the rate is worse than the middle.
    pub spread: Decimal,
    /// Whose rule decided spread and fees.
    pub rule: PriceRule,
}

impl RateBasis {
    /// The rate that follows: the middle, made worse by the spread.
    pub fn rate(&self, sending: Currency, receiving: Currency) -> Result<Rate, RateError> {
        let offered = Decimal::ONE.checked_add(self.spread);
        let offered = offered.and_then(|factor| factor.checked_mul(self.mid));
        let offered = offered.ok_or(RateError::OutOfRange { sending, receiving })?;
        Rate::new(offered, sending, receiving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_middle_made_worse_by_the_spread() {
        let currency = |code| Currency::from_code(code).expect("known currency");
        let basis = RateBasis {
            mid: Decimal::new(108, 2),
            as_of: Timestamp::from_millis(0),
            source: RateSource::BuiltIn,
            spread: Decimal::new(5, 3),
            rule: PriceRule::Default,
        };
        let rate = basis.rate(currency("USD"), currency("EUR")).expect("a rate");
        assert_eq!(rate.value(), Decimal::new(10_854, 4));
        let far = RateBasis { mid: Decimal::MAX, ..basis };
        assert!(far.rate(currency("USD"), currency("EUR")).is_err());
    }

    #[test]
    fn names_lead_back_to_their_values() {
        for source in RateSource::ALL {
            assert_eq!(RateSource::from_name(source.name()), Some(*source));
        }
        for rule in PriceRule::ALL {
            assert_eq!(PriceRule::from_name(rule.name()), Some(*rule));
        }
    }
}
