//! Currencies and other assets that this server moves (specification section 2.1).
//!
//! Names, symbols and decimals of fiat money are ISO 4217's; bitcoin and the stablecoins are ours.
//! All of ISO 4217 that has a smallest unit is here, first what a kind of account moves
//! ([`crate::account_info`]). A currency can be used if the rates name it.

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
    /// The entry of ISO 4217. Looking it up by its code would take longer than all else that a
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
    // No kind of account moves the rest: it can be held, quoted and limited where there is a rate.
    iso("AED", 784, Iso::AED),
    iso("AFN", 971, Iso::AFN),
    iso("ALL", 8, Iso::ALL),
    iso("AMD", 51, Iso::AMD),
    iso("AOA", 973, Iso::AOA),
    iso("ARS", 32, Iso::ARS),
    iso("AUD", 36, Iso::AUD),
    iso("AWG", 533, Iso::AWG),
    iso("AZN", 944, Iso::AZN),
    iso("BAM", 977, Iso::BAM),
    iso("BBD", 52, Iso::BBD),
    iso("BDT", 50, Iso::BDT),
    iso("BHD", 48, Iso::BHD),
    iso("BIF", 108, Iso::BIF),
    iso("BMD", 60, Iso::BMD),
    iso("BND", 96, Iso::BND),
    iso("BOB", 68, Iso::BOB),
    iso("BOV", 984, Iso::BOV),
    iso("BSD", 44, Iso::BSD),
    iso("BTN", 64, Iso::BTN),
    iso("BWP", 72, Iso::BWP),
    iso("BYN", 933, Iso::BYN),
    iso("BZD", 84, Iso::BZD),
    iso("CDF", 976, Iso::CDF),
    iso("CHE", 947, Iso::CHE),
    iso("CHF", 756, Iso::CHF),
    iso("CHW", 948, Iso::CHW),
    iso("CLF", 990, Iso::CLF),
    iso("CLP", 152, Iso::CLP),
    iso("CNY", 156, Iso::CNY),
    iso("COP", 170, Iso::COP),
    iso("COU", 970, Iso::COU),
    iso("CRC", 188, Iso::CRC),
    iso("CUP", 192, Iso::CUP),
    iso("CVE", 132, Iso::CVE),
    iso("CZK", 203, Iso::CZK),
    iso("DJF", 262, Iso::DJF),
    iso("DOP", 214, Iso::DOP),
    iso("DZD", 12, Iso::DZD),
    iso("EGP", 818, Iso::EGP),
    iso("ERN", 232, Iso::ERN),
    iso("ETB", 230, Iso::ETB),
    iso("FJD", 242, Iso::FJD),
    iso("FKP", 238, Iso::FKP),
    iso("GEL", 981, Iso::GEL),
    iso("GHS", 936, Iso::GHS),
    iso("GIP", 292, Iso::GIP),
    iso("GMD", 270, Iso::GMD),
    iso("GNF", 324, Iso::GNF),
    iso("GTQ", 320, Iso::GTQ),
    iso("GYD", 328, Iso::GYD),
    iso("HNL", 340, Iso::HNL),
    iso("HTG", 332, Iso::HTG),
    iso("HUF", 348, Iso::HUF),
    iso("ILS", 376, Iso::ILS),
    iso("IQD", 368, Iso::IQD),
    iso("IRR", 364, Iso::IRR),
    iso("ISK", 352, Iso::ISK),
    iso("JMD", 388, Iso::JMD),
    iso("JOD", 400, Iso::JOD),
    iso("JPY", 392, Iso::JPY),
    iso("KGS", 417, Iso::KGS),
    iso("KHR", 116, Iso::KHR),
    iso("KMF", 174, Iso::KMF),
    iso("KPW", 408, Iso::KPW),
    iso("KRW", 410, Iso::KRW),
    iso("KWD", 414, Iso::KWD),
    iso("KYD", 136, Iso::KYD),
    iso("KZT", 398, Iso::KZT),
    iso("LAK", 418, Iso::LAK),
    iso("LBP", 422, Iso::LBP),
    iso("LKR", 144, Iso::LKR),
    iso("LRD", 430, Iso::LRD),
    iso("LSL", 426, Iso::LSL),
    iso("LYD", 434, Iso::LYD),
    iso("MAD", 504, Iso::MAD),
    iso("MDL", 498, Iso::MDL),
    iso("MGA", 969, Iso::MGA),
    iso("MKD", 807, Iso::MKD),
    iso("MMK", 104, Iso::MMK),
    iso("MNT", 496, Iso::MNT),
    iso("MOP", 446, Iso::MOP),
    iso("MRU", 929, Iso::MRU),
    iso("MUR", 480, Iso::MUR),
    iso("MVR", 462, Iso::MVR),
    iso("MXV", 979, Iso::MXV),
    iso("MZN", 943, Iso::MZN),
    iso("NAD", 516, Iso::NAD),
    iso("NIO", 558, Iso::NIO),
    iso("NOK", 578, Iso::NOK),
    iso("NPR", 524, Iso::NPR),
    iso("NZD", 554, Iso::NZD),
    iso("OMR", 512, Iso::OMR),
    iso("PAB", 590, Iso::PAB),
    iso("PEN", 604, Iso::PEN),
    iso("PGK", 598, Iso::PGK),
    iso("PKR", 586, Iso::PKR),
    iso("PLN", 985, Iso::PLN),
    iso("PYG", 600, Iso::PYG),
    iso("QAR", 634, Iso::QAR),
    iso("RON", 946, Iso::RON),
    iso("RSD", 941, Iso::RSD),
    iso("RUB", 643, Iso::RUB),
    iso("SAR", 682, Iso::SAR),
    iso("SBD", 90, Iso::SBD),
    iso("SCR", 690, Iso::SCR),
    iso("SDG", 938, Iso::SDG),
    iso("SEK", 752, Iso::SEK),
    iso("SHP", 654, Iso::SHP),
    iso("SLE", 925, Iso::SLE),
    iso("SOS", 706, Iso::SOS),
    iso("SRD", 968, Iso::SRD),
    iso("SSP", 728, Iso::SSP),
    iso("STN", 930, Iso::STN),
    iso("SVC", 222, Iso::SVC),
    iso("SYP", 760, Iso::SYP),
    iso("SZL", 748, Iso::SZL),
    iso("TJS", 972, Iso::TJS),
    iso("TMT", 934, Iso::TMT),
    iso("TND", 788, Iso::TND),
    iso("TOP", 776, Iso::TOP),
    iso("TRY", 949, Iso::TRY),
    iso("TTD", 780, Iso::TTD),
    iso("TWD", 901, Iso::TWD),
    iso("UAH", 980, Iso::UAH),
    iso("USN", 997, Iso::USN),
    iso("UYI", 940, Iso::UYI),
    iso("UYU", 858, Iso::UYU),
    iso("UYW", 927, Iso::UYW),
    iso("UZS", 860, Iso::UZS),
    iso("VED", 926, Iso::VED),
    iso("VUV", 548, Iso::VUV),
    iso("WST", 882, Iso::WST),
    iso("XAF", 950, Iso::XAF),
    iso("XCD", 951, Iso::XCD),
    iso("XCG", 532, Iso::XCG),
    iso("XPF", 953, Iso::XPF),
    iso("YER", 886, Iso::YER),
    iso("ZWG", 924, Iso::ZWG),
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
    /// that nothing rounds silently. No owner holds, sends or receives it, so it is in no list.
    pub const MSAT: Self = Self(ASSETS.len() as u8 - 1);

    /// Every currency that can be held where the rates name it, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::MSAT.0).map(Self)
    }

    /// The currency that an owner can hold with this code, in capitals as in ISO 4217.
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
    use iso_currency::Flag;
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
    fn every_current_currency_of_iso_4217_is_here() {
        let is_current = |iso: &Iso| {
            let is_other = |flag: &Flag| matches!(flag, Flag::Special | Flag::Superseded(_));
            iso.exponent().is_some() && !iso.flags().iter().any(is_other)
        };
        let missing: Vec<_> = (0..1_000)
            .filter_map(Iso::from_numeric)
            .filter(is_current)
            .filter(|iso| Currency::from_code(iso.code()).is_none())
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(Currency::from_code("XAU"), None);
        assert_eq!(Currency::from_code("XXX"), None);
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
            ("JPY", 0),
            ("KRW", 0),
            ("CLP", 0),
            ("AED", 2),
            ("HUF", 2),
            ("KWD", 3),
            ("BHD", 3),
            ("TND", 3),
            ("BTC", 8),
            ("USDC", 6),
        ] {
            assert_eq!(decimals(code), Some(expected), "{code}");
        }
        assert_eq!(decimals("usd"), None);
    }
}
