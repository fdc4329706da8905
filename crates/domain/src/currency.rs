//! Currencies and other assets that this server moves (specification section 2.1).
//!
//! Names, symbols and decimals of fiat money are ISO 4217's; bitcoin and the stablecoins are ours.
//! A currency is here because a kind of account moves it ([`crate::account_info`]).

use std::fmt;
use std::sync::LazyLock;

use iso_currency::Currency as Iso;

/// One currency of the table below. Compares and orders by its place in that table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency(u8);

struct Asset {
    code: &'static str,
    /// Part of every internal account's id, so it never changes: the ISO 4217 number, or for
    /// assets without one a number above 1,000.
    number: u16,
    kind: Kind,
}

enum Kind {
    /// What ISO 4217 says. Looking it up by its code would take longer than all else that a
    /// currency is asked.
    Iso(Iso),
    /// Name, symbol and decimals where ISO 4217 has none.
    Own(&'static str, &'static str, u8),
}

const fn iso(code: &'static str, number: u16, iso: Iso) -> Asset {
    Asset { code, number, kind: Kind::Iso(iso) }
}

const fn own(
    code: &'static str,
    number: u16,
    name: &'static str,
    symbol: &'static str,
    decimals: u8,
) -> Asset {
    Asset { code, number, kind: Kind::Own(name, symbol, decimals) }
}

const ASSETS: &[Asset] = &[
    iso("USD", 840, Iso::USD),
    iso("EUR", 978, Iso::EUR),
    iso("GBP", 826, Iso::GBP),
    iso("BRL", 986, Iso::BRL),
    iso("CAD", 124, Iso::CAD),
    iso("DKK", 208, Iso::DKK),
    iso("HKD", 344, Iso::HKD),
    iso("IDR", 360, Iso::IDR),
    iso("INR", 356, Iso::INR),
    iso("KES", 404, Iso::KES),
    iso("MWK", 454, Iso::MWK),
    iso("MXN", 484, Iso::MXN),
    iso("MYR", 458, Iso::MYR),
    iso("NGN", 566, Iso::NGN),
    iso("PHP", 608, Iso::PHP),
    iso("RWF", 646, Iso::RWF),
    iso("SGD", 702, Iso::SGD),
    iso("THB", 764, Iso::THB),
    iso("TZS", 834, Iso::TZS),
    iso("UGX", 800, Iso::UGX),
    iso("VND", 704, Iso::VND),
    iso("XOF", 952, Iso::XOF),
    iso("ZAR", 710, Iso::ZAR),
    iso("ZMW", 967, Iso::ZMW),
    own("BTC", 1001, "Bitcoin", "₿", 8),
    own("USDC", 1002, "USD Coin", "USDC", 6),
    own("USDT", 1003, "Tether USD", "USDT", 6),
    own("MSAT", 1004, "Millisatoshi", "msat", 0),
];

/// The symbol of each asset: ISO 4217's are made anew each time that they are asked for.
static SYMBOLS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let symbol = |asset: &Asset| match asset.kind {
        Kind::Own(_, symbol, _) => symbol.to_owned(),
        Kind::Iso(iso) => iso.symbol().symbol,
    };
    ASSETS.iter().map(symbol).collect()
});

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

    /// The ISO 4217 code, or the asset's usual ticker.
    pub fn code(self) -> &'static str {
        self.asset().code
    }

    /// A number that stands for the currency in identifiers and never changes.
    pub fn number(self) -> u16 {
        self.asset().number
    }

    /// The English name.
    pub fn name(self) -> &'static str {
        match &self.asset().kind {
            Kind::Own(name, _, _) => name,
            Kind::Iso(iso) => iso.name(),
        }
    }

    /// The symbol that is set beside amounts.
    pub fn symbol(self) -> &'static str {
        &SYMBOLS[usize::from(self.0)]
    }

    /// Decimal places between the smallest unit and one whole unit (specification 2.1).
    pub fn decimals(self) -> u8 {
        match self.asset().kind {
            Kind::Own(_, _, decimals) => decimals,
            // All of ours have one; a test holds it.
            Kind::Iso(iso) => iso.exponent().map_or(2, |digits| digits as u8),
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
        for currency in Currency::all() {
            let Kind::Iso(iso) = currency.asset().kind else { continue };
            assert_eq!(iso.code(), currency.code());
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
