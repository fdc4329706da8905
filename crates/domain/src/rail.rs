//! Payment rails: the networks over which money leaves and arrives.

use std::fmt;

macro_rules! rails {
    ($($(#[$doc:meta])* $name:ident = $number:literal $text:literal,)*) => {
        /// A network that moves money to or from the outside world (specification 2.5, 2.9).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rail {
            $($(#[$doc])* $name,)*
        }

        impl Rail {
            /// Every rail.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name that the API uses.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// A number that stands for the rail in stored keys and never changes.
            pub const fn number(self) -> u8 {
                match self { $(Self::$name => $number,)* }
            }
        }
    };
}

rails! {
    /// United States automated clearing house.
    Ach = 1 "ACH",
    /// United States wire transfer.
    Wire = 2 "WIRE",
    /// The Clearing House real-time payments.
    Rtp = 3 "RTP",
    /// Federal Reserve instant payments.
    FedNow = 4 "FEDNOW",
    /// Brazil's instant payments.
    Pix = 5 "PIX",
    /// Mexico's interbank payments.
    Spei = 6 "SPEI",
    /// SEPA credit transfer.
    Sepa = 7 "SEPA",
    /// SEPA instant credit transfer.
    SepaInstant = 8 "SEPA_INSTANT",
    /// United Kingdom Faster Payments.
    FasterPayments = 9 "FASTER_PAYMENTS",
    /// India's Unified Payments Interface.
    Upi = 10 "UPI",
    /// A country's ordinary bank transfer.
    BankTransfer = 11 "BANK_TRANSFER",
    /// Singapore PayNow.
    PayNow = 12 "PAYNOW",
    /// Singapore FAST.
    Fast = 13 "FAST",
    /// Mobile money wallets.
    MobileMoney = 14 "MOBILE_MONEY",
    /// Spark.
    Spark = 15 "SPARK",
    /// Lightning.
    Lightning = 16 "LIGHTNING",
    /// Solana.
    Solana = 17 "SOLANA",
    /// Tron.
    Tron = 18 "TRON",
    /// Polygon.
    Polygon = 19 "POLYGON",
    /// Base.
    Base = 20 "BASE",
    /// Ethereum.
    Ethereum = 21 "ETHEREUM",
}

impl Rail {
    /// The rail with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rail| rail.name() == name)
    }

    /// The rail with this number; see [`Rail::number`].
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|rail| rail.number() == number)
    }
}

/// A rail's own words about a payment, kept for support and for inquiries at the rail.
///
/// They come from outside: each is one line of limited length. They may hold personal data, so
/// they are sealed in the database; only the code is ever logged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RailWords {
    code: Option<String>,
    text: Option<String>,
    reference: Option<String>,
}

/// Characters of a code: ISO 20022 allows a proprietary one 35.
const CODE_MAX: usize = 35;

/// Characters of a text: several lines of additional information in ISO 20022.
const TEXT_MAX: usize = 500;

/// Characters of a reference: longer than any identifier of a bank or chain.
const REFERENCE_MAX: usize = 140;

impl RailWords {
    /// Nothing was said.
    pub const NONE: Self = Self { code: None, text: None, reference: None };

    /// The code and text of an answer, and the rail's own reference of the payment.
    pub fn new(code: Option<&str>, text: Option<&str>, reference: Option<&str>) -> Self {
        Self {
            code: code.and_then(code_of),
            text: text.and_then(|text| one_line(text, TEXT_MAX)),
            reference: reference.and_then(|reference| one_line(reference, REFERENCE_MAX)),
        }
    }

    /// For programs, such as `R03` or `AC04`.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// For people.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Under which the rail knows the payment.
    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    /// Both answers of one rail, the later one second. Code and text belong together, so the later
    /// answer replaces both; a reference stays until another one is given.
    #[must_use]
    pub fn followed_by(self, later: &Self) -> Self {
        let reference = later.reference.clone().or(self.reference);
        if later.code.is_none() && later.text.is_none() {
            return Self { reference, ..self };
        }
        Self { code: later.code.clone(), text: later.text.clone(), reference }
    }
}

/// A code from outside: visible ASCII alone, so that it can stand in a log.
fn code_of(text: &str) -> Option<String> {
    let code: String = text.chars().filter(char::is_ascii_graphic).take(CODE_MAX).collect();
    (!code.is_empty()).then_some(code)
}

/// Text from outside on one line, cut to `max` characters; nothing if none is left.
fn one_line(text: &str, max: usize) -> Option<String> {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let line: String = words.join(" ").chars().take(max).collect();
    (!line.is_empty()).then_some(line)
}

impl fmt::Display for Rail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn words_from_outside_are_one_line_of_limited_length() {
        let long = "x".repeat(1_000);
        let words = RailWords::new(Some(" R\u{0}03\n"), Some("a\r\nb\u{1b}c"), Some(&long));
        assert_eq!((words.code(), words.text()), (Some("R03"), Some("a b c")));
        assert_eq!(words.reference().map(str::len), Some(REFERENCE_MAX));
        assert_eq!(RailWords::new(Some(" \n"), Some(""), None), RailWords::NONE);
    }

    #[test]
    fn names_and_numbers_are_unique() {
        let names: BTreeSet<_> = Rail::ALL.iter().map(|rail| rail.name()).collect();
        let numbers: BTreeSet<_> = Rail::ALL.iter().map(|rail| rail.number()).collect();
        assert_eq!((names.len(), numbers.len()), (Rail::ALL.len(), Rail::ALL.len()));
        for rail in Rail::ALL {
            assert_eq!(Rail::from_number(rail.number()), Some(*rail));
            assert_eq!(Rail::from_name(rail.name()), Some(*rail));
        }
    }
}
