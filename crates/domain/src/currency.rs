//! Currencies and other assets that this server moves (specification section 2.1).
//!
//! Names, symbols and decimals of fiat money are ISO 4217's; bitcoin and the stablecoins are ours.
//! A currency is here because a kind of account moves it ([`crate::account_info`]).

use std::fmt;

/// One currency of the table below. Compares and orders by its place in that table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency(u8);

struct Asset {
    code: &'static str,
    /// Part of every internal account's id, so it never changes: the ISO 4217 number, or for
    /// assets without one a number above 1,000.
    number: u16,
    /// Name, symbol and decimals where ISO 4217 has none.
    own: Option<(&'static str, &'static str, u8)>,
}

const fn iso(code: &'static str, number: u16) -> Asset {
    Asset { code, number, own: None }
}

const fn own(
    code: &'static str,
    number: u16,
    name: &'static str,
    symbol: &'static str,
    decimals: u8,
) -> Asset {
    Asset { code, number, own: Some((name, symbol, decimals)) }
}

const ASSETS: &[Asset] = &[
    iso("USD", 840),
    iso("EUR", 978),
    iso("GBP", 826),
    iso("BRL", 986),
    iso("CAD", 124),
    iso("DKK", 208),
    iso("HKD", 344),
    iso("IDR", 360),
    iso("INR", 356),
    iso("KES", 404),
    iso("MWK", 454),
    iso("MXN", 484),
    iso("MYR", 458),
    iso("NGN", 566),
    iso("PHP", 608),
    iso("RWF", 646),
    iso("SGD", 702),
    iso("THB", 764),
    iso("TZS", 834),
    iso("UGX", 800),
    iso("VND", 704),
    iso("XOF", 952),
    iso("ZAR", 710),
    iso("ZMW", 967),
    own("BTC", 1001, "Bitcoin", "₿", 8),
    own("USDC", 1002, "USD Coin", "USDC", 6),
    own("USDT", 1003, "Tether USD", "USDT", 6),
    own("MSAT", 1004, "Millisatoshi", "msat", 0),
];

impl Currency {
    /// Thousandths of a satoshi, in which the Lightning legs of payments are kept in the books so
    /// that nothing rounds silently. Nobody holds, sends or receives it, so it is in no list.
    pub const MSAT: Self = Self(ASSETS.len() as u8 - 1);

    /// Every currency that somebody can hold, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::MSAT.0).map(Self)
    }

    /// The currency that somebody can hold with this code, in capitals as in ISO 4217.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::all().find(|currency| currency.code() == code)
    }

    /// The currency of an entry in the books with this code.
    pub fn of_books(code: &str) -> Option<Self> {
        Self::from_code(code).or_else(|| Some(Self::MSAT).filter(|msat| msat.code() == code))
    }

    /// The currency of an account in the books with this number; see [`Currency::number`].
    pub fn from_number(number: u16) -> Option<Self> {
        Self::all().chain([Self::MSAT]).find(|currency| currency.number() == number)
    }

    fn asset(self) -> &'static Asset {
        &ASSETS[usize::from(self.0)]
    }

    fn iso(self) -> Option<iso_currency::Currency> {
        iso_currency::Currency::from_code(self.code())
    }

    /// The ISO 4217 code, or the asset's usual ticker.
    pub fn code(self) -> &'static str {
        self.asset().code
    }

    /// A number that stands for the currency in identifiers and never changes.
    pub fn number(self) -> u16 {
        self.asset().number
    }

    /// The English name.
    pub fn name(self) -> String {
        match self.asset().own {
            Some((name, _, _)) => name.to_owned(),
            None => self.iso().map_or_else(|| self.code().to_owned(), |iso| iso.name().to_owned()),
        }
    }

    /// The symbol that is set beside amounts.
    pub fn symbol(self) -> String {
        match self.asset().own {
            Some((_, symbol, _)) => symbol.to_owned(),
            None => self.iso().map_or_else(|| self.code().to_owned(), |iso| iso.symbol().symbol),
        }
    }

    /// Decimal places between the smallest unit and one whole unit (specification 2.1).
    pub fn decimals(self) -> u8 {
        match self.asset().own {
            Some((_, _, decimals)) => decimals,
            None => self.iso().and_then(|iso| iso.exponent()).map_or(2, |digits| digits as u8),
        }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn fiat_currencies_agree_with_iso_4217() {
        for currency in Currency::all().filter(|currency| currency.asset().own.is_none()) {
            let iso = currency.iso().unwrap_or_else(|| panic!("{currency} is not in ISO 4217"));
            assert_eq!(iso.numeric(), currency.number(), "{currency}");
            assert!(iso.exponent().is_some(), "{currency}");
        }
    }

    #[test]
    fn codes_and_numbers_are_unique() {
        let codes: BTreeSet<_> = Currency::all().map(Currency::code).collect();
        let numbers: BTreeSet<_> = Currency::all().map(Currency::number).collect();
        let held = ASSETS.len() - 1;
        assert_eq!((codes.len(), numbers.len()), (held, held));
    }

    #[test]
    fn millisatoshi_are_for_the_books_only() {
        let msat = Currency::MSAT;
        assert_eq!((msat.code(), msat.decimals()), ("MSAT", 0));
        assert!(Currency::all().all(|currency| currency != msat));
        assert_eq!(Currency::from_code("MSAT"), None);
        assert_eq!(Currency::of_books("MSAT"), Some(msat));
        assert_eq!(Currency::of_books("USD"), Currency::from_code("USD"));
        assert_eq!(Currency::from_number(msat.number()), Some(msat));
    }

    #[test]
    fn decimals_are_those_of_the_contract() {
        let decimals = |code| Currency::from_code(code).map(Currency::decimals);
        for (code, expected) in [
            ("USD", 2),
            ("IDR", 2),
            ("KES", 2),
            ("VND", 0),
            ("XOF", 0),
            ("RWF", 0),
            ("UGX", 0),
            ("BTC", 8),
            ("USDC", 6),
        ] {
            assert_eq!(decimals(code), Some(expected), "{code}");
        }
        assert_eq!(decimals("usd"), None);
    }
}
