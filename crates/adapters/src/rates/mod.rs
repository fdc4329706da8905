//! Rates and prices from a table: the built-in one, or a file that changes parts of it.
//!
//! ```json
//! {
//!   "asOf": "2025-11-21T00:00:00Z",
//!   "defaults": { "spread": "0.005", "variableFeeRate": "0.003" },
//!   "currencies": { "EUR": { "usdPerUnit": "1.155", "fixedFee": 45 } },
//!   "corridors": [{ "from": "USD", "to": "EUR", "spread": "0.002", "fixedFee": 0 }]
//! }
//! ```
//!
//! `usdPerUnit` is the value of one whole unit of a currency in US dollars, and `fixedFee` the fee
//! of a payment that sends it, in its smallest unit. A corridor matches a payment that sends `from`
//! and delivers `to`; leaving one of them out means any currency. The first match that says
//! something about a field decides it. A payment within one currency costs nothing unless a
//! corridor names that currency on both sides.
//!
//! Everything may be left out: the built-in table (`builtin.json` beside this file) then holds, and
//! its corridors come after those of the file. The built-in table has the currencies that a rail
//! moves and the 40 that are traded most. The Bank for International Settlements surveys their
//! turnover every three years (rpfx22; those that the euro has replaced are left out). A file can
//! name any other currency of ISO 4217, with both its price and its fee: then it can be held and
//! quoted too. Rates are decimals in quotes, because a number without quotes is a float to most
//! programs that write JSON.
//!
//! Guarantee: whatever a table allows is a valid rate with valid fees in every pair of its
//! currencies. This is checked once, when the table is read.
//!
//! Platforms with real money are quoted prices that the file has itself, while it is not too old
//! ([`feed`]).

pub mod feed;
mod price_table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use domain::currency::Currency;
use domain::rate::{Rate, RateError};
use domain::rate_basis::RateSource;
use domain::time::Timestamp;
use ports::rates::{CorridorTerms, MidRate, NoRate, Rates, WhyNoRate};
use rust_decimal::Decimal;

pub use self::price_table::RatesError;
use self::price_table::{PriceTable, Problem};

/// Rates of one table, which does not move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedRates {
    written_at: Timestamp,
    is_dated: bool,
    source: RateSource,
    /// Currencies whose prices are not the built-in ones.
    own: BTreeSet<Currency>,
    corridors: BTreeMap<(Currency, Currency), Corridor>,
}

/// The price of paying in one currency what is delivered in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Corridor {
    mid: Decimal,
    terms: CorridorTerms,
}

impl FixedRates {
    /// The table that comes with this program.
    pub fn builtin() -> Self {
        let rates = Self::price(&builtin_table(), RateSource::BuiltIn);
        rates.expect("a test prices every corridor of the built-in table")
    }

    /// The built-in table with the changes that a file makes to it.
    pub fn from_file(path: &Path) -> Result<Self, RatesError> {
        let name = path.display();
        let text = price_table::read_file(path).map_err(|problem| problem.of(&name))?;
        Self::read(&text).map_err(|problem| problem.of(&name))
    }

    /// The built-in table with the changes that a text in the format of a file makes to it.
    pub fn from_json(text: &str) -> Result<Self, RatesError> {
        Self::read(text).map_err(|problem| problem.of(&"rates"))
    }

    /// When the market was there (`asOf` of the table).
    pub fn written_at(&self) -> Timestamp {
        self.written_at
    }

    /// Whether the table itself says when the market was there.
    pub fn is_dated(&self) -> bool {
        self.is_dated
    }

    /// Whether it is an operator's, and not the built-in one.
    pub fn is_from_file(&self) -> bool {
        self.source == RateSource::RatesFile
    }

    /// Whether the price of a currency is an operator's: the built-in one is not the market's.
    pub fn is_priced_by_file(&self, currency: Currency) -> bool {
        self.own.contains(&currency)
    }

    /// The currencies that it names, in the order of [`Currency::all`], each with its value in US
    /// dollars.
    pub fn prices(&self) -> impl Iterator<Item = (Currency, Decimal)> {
        let dollars = Currency::from_code("USD").expect("the table of currencies has it");
        let in_dollars = self.corridors.iter().filter(move |((from, _), _)| *from == dollars);
        in_dollars.map(|((_, currency), corridor)| (*currency, corridor.mid))
    }

    fn corridor(&self, sending: Currency, receiving: Currency) -> Result<&Corridor, NoRate> {
        let why = WhyNoRate::NotNamed;
        self.corridors.get(&(sending, receiving)).ok_or(NoRate { sending, receiving, why })
    }

    fn read(text: &str) -> Result<Self, Problem> {
        Self::price(&PriceTable::read(text, Some(&builtin_table()))?, RateSource::RatesFile)
    }

    /// Prices every corridor.
    fn price(table: &PriceTable, source: RateSource) -> Result<Self, Problem> {
        let mut corridors = BTreeMap::new();
        for sending in table.currencies() {
            for receiving in table.currencies() {
                let terms = table.terms(sending, receiving);
                let mid = if sending == receiving {
                    Some(Decimal::ONE)
                } else {
                    let usd_per_unit =
                        |currency: Currency| Some(table.asset(currency)?.usd_per_unit);
                    usd_per_unit(receiving)
                        .and_then(|price| price.checked_div(usd_per_unit(sending)?))
                };
                let out_of_range = RateError::OutOfRange { sending, receiving };
                let corridor = mid
                    .ok_or(out_of_range.clone())
                    .and_then(|mid| {
                        let offered = Decimal::ONE.checked_add(terms.spread);
                        let offered = offered.and_then(|factor| mid.checked_mul(factor));
                        let offered = offered.ok_or(out_of_range)?;
                        Rate::new(offered, sending, receiving)?.per_smallest_unit()?;
                        Ok(Corridor { mid, terms })
                    })
                    .map_err(|error| Problem::of_rate(&error, sending, receiving))?;
                corridors.insert((sending, receiving), corridor);
            }
        }
        let own = match source {
            RateSource::RatesFile => table.currencies().filter(|it| table.is_own(*it)).collect(),
            RateSource::BuiltIn | RateSource::Counterparty => BTreeSet::new(),
        };
        Ok(Self { written_at: table.as_of, is_dated: table.is_dated, source, own, corridors })
    }
}

fn builtin_table() -> PriceTable {
    let table = PriceTable::read(include_str!("builtin.json"), None);
    table.expect("the built-in table is part of the program, and a test reads it")
}

impl Rates for FixedRates {
    fn mid(&self, sending: Currency, receiving: Currency, _: Timestamp) -> Result<MidRate, NoRate> {
        let value = self.corridor(sending, receiving)?.mid;
        Ok(MidRate { value, as_of: self.written_at, source: self.source })
    }

    fn terms(&self, sending: Currency, receiving: Currency) -> Result<CorridorTerms, NoRate> {
        Ok(self.corridor(sending, receiving)?.terms)
    }

    fn names(&self, currency: Currency) -> bool {
        self.corridors.contains_key(&(currency, currency))
    }
}

#[cfg(test)]
mod tests;
