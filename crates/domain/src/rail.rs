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
