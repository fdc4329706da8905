//! The table behind [`super::FixedRates`]: reading it, and what can be wrong with it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use domain::currency::Currency;
use domain::money::AMOUNT_MAX;
use domain::pricing::Fees;
use domain::rate::RateError;
use domain::time::Timestamp;
use ports::rates::CorridorTerms;
use rust_decimal::Decimal;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A larger file is no price table.
const FILE_BYTES_MAX: u64 = 1_000_000;
/// More than every pair of the built-in currencies that a rail moves.
const CORRIDORS_MAX: usize = 1_000;
/// A unit is worth a billionth of a dollar to a billion dollars. The quotient of two prices then
/// keeps the digits that a rate shows.
const USD_PER_UNIT_MAX: Decimal = Decimal::from_parts(1_000_000_000, 0, 0, false, 0);
const USD_PER_UNIT_MIN: Decimal = Decimal::from_parts(1, 0, 0, false, 9);
/// Decimal places of a spread at most, as of a variable fee: a hundredth of a basis point.
const SPREAD_DECIMALS_MAX: u32 = 6;
/// The names of currencies, for the author of a table.
const CODES: &str = "a code of ISO 4217 in capitals, or BTC, USDC or USDT";
/// Characters of a wrong value that are repeated to its author.
const SHOWN_MAX: usize = 60;

/// Why a price table cannot be used, in one line that names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct RatesError {
    origin: String,
    problem: String,
}

/// The fault, without the table's origin.
#[derive(Debug)]
pub(super) struct Problem(String);

impl Problem {
    /// The error for a table that came from `origin`.
    pub(super) fn of(self, origin: &dyn fmt::Display) -> RatesError {
        // Names of unknown fields are repeated as they are written, which may be over lines.
        let one_line = |character: char| if character.is_control() { ' ' } else { character };
        let problem = self.0.chars().map(one_line).collect();
        RatesError { origin: origin.to_string(), problem }
    }

    /// Two prices that are valid by themselves do not make a rate.
    pub(super) fn of_rate(error: &RateError, sending: Currency, receiving: Currency) -> Self {
        Self(format!("currencies.{sending} and currencies.{receiving}: {error}"))
    }

    fn value(path: &str, value: &Value, must: impl fmt::Display) -> Self {
        let value: String = value.to_string().chars().take(SHOWN_MAX).collect();
        Self(format!("{path} is {value}, but must be {must}"))
    }
}

/// A price for everything.
#[derive(Debug, Clone)]
pub(super) struct PriceTable {
    /// When the prices were written down.
    pub(super) as_of: Timestamp,
    /// Whether the text itself says that.
    pub(super) is_dated: bool,
    spread: Decimal,
    variable_fee_rate: Decimal,
    assets: BTreeMap<Currency, Asset>,
    /// The first match decides.
    overrides: Vec<Override>,
}

/// Rate and fees of one currency.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asset {
    pub(super) usd_per_unit: Decimal,
    fixed_fee_minor: i64,
    /// Whether the price is of this table, and not of the one below.
    is_own: bool,
}

/// Fees of some corridors instead.
#[derive(Debug, Clone, Copy)]
struct Override {
    from: Option<Currency>,
    to: Option<Currency>,
    spread: Option<Decimal>,
    fixed_fee_minor: Option<i64>,
    variable_fee_rate: Option<Decimal>,
}

/// The parts of a file. Values are read one by one so that each error can name its field.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    as_of: Option<Value>,
    defaults: Option<Value>,
    currencies: Option<Value>,
    corridors: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DefaultsEntry {
    spread: Option<Value>,
    variable_fee_rate: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CurrencyEntry {
    usd_per_unit: Option<Value>,
    fixed_fee: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CorridorEntry {
    from: Option<Value>,
    to: Option<Value>,
    spread: Option<Value>,
    fixed_fee: Option<Value>,
    variable_fee_rate: Option<Value>,
}

/// The text of a file, unless it is too long to be a price table.
pub(super) fn read_file(path: &Path) -> Result<String, Problem> {
    let unreadable = |error: std::io::Error| Problem(format!("cannot be read: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    let length = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if length as u64 > FILE_BYTES_MAX {
        return Err(Problem(format!("must have at most {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

impl PriceTable {
    /// Reads a table. Fields that the text leaves out are as in the table `below`; without one,
    /// nothing may be left out but corridors.
    pub(super) fn read(text: &str, below: Option<&Self>) -> Result<Self, Problem> {
        let document: Document =
            serde_json::from_str(text).map_err(|error| Problem(error.to_string()))?;
        let DefaultsEntry { spread: spread_value, variable_fee_rate } =
            part(document.defaults, "defaults")?;
        let overrides = read_overrides(document.corridors)?;
        let overrides_below = below.map_or(&[][..], |below| &below.overrides);
        Ok(Self {
            is_dated: document.as_of.is_some(),
            as_of: given("asOf", document.as_of, instant, below.map(|below| below.as_of))?,
            spread: given("defaults.spread", spread_value, spread, below.map(|it| it.spread))?,
            variable_fee_rate: given(
                "defaults.variableFeeRate",
                variable_fee_rate,
                variable_rate,
                below.map(|below| below.variable_fee_rate),
            )?,
            assets: read_assets(document.currencies, below)?,
            overrides: [&overrides, overrides_below].concat(),
        })
    }

    /// The currencies that it names, in the order of [`Currency::all`].
    pub(super) fn currencies(&self) -> impl Iterator<Item = Currency> {
        self.assets.keys().copied()
    }

    /// Whether the price of a currency is of this table, and not of the one below. The US dollar
    /// is worth one everywhere.
    pub(super) fn is_own(&self, currency: Currency) -> bool {
        self.asset(currency).is_some_and(|asset| asset.is_own)
    }

    /// The price and fee of a currency, if the table names it.
    pub(super) fn asset(&self, currency: Currency) -> Option<&Asset> {
        self.assets.get(&currency)
    }

    /// The price of a corridor.
    pub(super) fn terms(&self, sending: Currency, receiving: Currency) -> CorridorTerms {
        let within_one = sending == receiving;
        let matching = || {
            self.overrides.iter().filter(move |corridor| {
                let fits = |side: Option<Currency>, currency| match side {
                    Some(named) => named == currency,
                    // Moving money within one currency is free unless a rule says so by name.
                    None => !within_one,
                };
                fits(corridor.from, sending) && fits(corridor.to, receiving)
            })
        };
        let free = CorridorTerms {
            spread: Decimal::ZERO,
            fixed_fee_minor: 0,
            variable_fee_rate: Decimal::ZERO,
        };
        let usual = CorridorTerms {
            spread: self.spread,
            fixed_fee_minor: self.asset(sending).map_or(0, |asset| asset.fixed_fee_minor),
            variable_fee_rate: self.variable_fee_rate,
        };
        let otherwise = if within_one { free } else { usual };
        CorridorTerms {
            spread: matching().find_map(|corridor| corridor.spread).unwrap_or(otherwise.spread),
            fixed_fee_minor: matching()
                .find_map(|corridor| corridor.fixed_fee_minor)
                .unwrap_or(otherwise.fixed_fee_minor),
            variable_fee_rate: matching()
                .find_map(|corridor| corridor.variable_fee_rate)
                .unwrap_or(otherwise.variable_fee_rate),
        }
    }
}

fn read_assets(
    currencies: Option<Value>,
    below: Option<&PriceTable>,
) -> Result<BTreeMap<Currency, Asset>, Problem> {
    let mut entries: BTreeMap<String, Value> = part(currencies, "currencies")?;
    let mut assets = BTreeMap::new();
    for currency in Currency::all() {
        let path = format!("currencies.{currency}");
        let (entry, below) = (entries.remove(currency.code()), below.map(|it| it.asset(currency)));
        let below = below.flatten();
        if entry.is_none() && below.is_none() {
            continue;
        }
        let entry: CurrencyEntry = part(entry, &path)?;
        let is_own = entry.usd_per_unit.is_some() || currency.code() == "USD";
        let asset = Asset {
            is_own,
            usd_per_unit: given(
                &format!("{path}.usdPerUnit"),
                entry.usd_per_unit,
                |path, value| usd_per_unit(path, value, currency),
                below.map(|below| below.usd_per_unit),
            )?,
            fixed_fee_minor: given(
                &format!("{path}.fixedFee"),
                entry.fixed_fee,
                fixed_fee,
                below.map(|below| below.fixed_fee_minor),
            )?,
        };
        assets.insert(currency, asset);
    }
    match entries.keys().next() {
        Some(code) => Err(Problem(format!("currencies.{code} must be a currency: {CODES}"))),
        None => Ok(assets),
    }
}

fn read_overrides(corridors: Option<Value>) -> Result<Vec<Override>, Problem> {
    let entries: Vec<Value> = part(corridors, "corridors")?;
    if entries.len() > CORRIDORS_MAX {
        let length = entries.len();
        return Err(Problem(format!("corridors has {length} entries of at most {CORRIDORS_MAX}")));
    }
    let numbered = entries.into_iter().enumerate();
    numbered.map(|(index, entry)| read_override(&format!("corridors[{index}]"), entry)).collect()
}

fn read_override(path: &str, entry: Value) -> Result<Override, Problem> {
    let entry: CorridorEntry = read(entry, path)?;
    let from = optional(&format!("{path}.from"), entry.from, currency)?;
    if from.is_none() && entry.fixed_fee.is_some() {
        return Err(Problem(format!(
            "{path}.fixedFee needs {path}.from beside it, because it is in the smallest unit of \
             the currency that is sent"
        )));
    }
    Ok(Override {
        from,
        to: optional(&format!("{path}.to"), entry.to, currency)?,
        spread: optional(&format!("{path}.spread"), entry.spread, spread)?,
        fixed_fee_minor: optional(&format!("{path}.fixedFee"), entry.fixed_fee, fixed_fee)?,
        variable_fee_rate: optional(
            &format!("{path}.variableFeeRate"),
            entry.variable_fee_rate,
            variable_rate,
        )?,
    })
}

/// Reads a part of the document; nothing is an empty part.
fn part<T: DeserializeOwned + Default>(value: Option<Value>, path: &str) -> Result<T, Problem> {
    value.map_or_else(|| Ok(T::default()), |value| read(value, path))
}

fn read<T: DeserializeOwned>(value: Value, path: &str) -> Result<T, Problem> {
    serde_json::from_value(value).map_err(|error| Problem(format!("{path}: {error}")))
}

/// Reads a value that must be there, here or in the table below.
fn given<T>(
    path: &str,
    value: Option<Value>,
    read: impl FnOnce(&str, &Value) -> Result<T, Problem>,
    below: Option<T>,
) -> Result<T, Problem> {
    optional(path, value, read)?.or(below).ok_or_else(|| Problem(format!("{path} is missing")))
}

fn optional<T>(
    path: &str,
    value: Option<Value>,
    read: impl FnOnce(&str, &Value) -> Result<T, Problem>,
) -> Result<Option<T>, Problem> {
    value.map(|value| read(path, &value)).transpose()
}

fn instant(path: &str, value: &Value) -> Result<Timestamp, Problem> {
    let at = value.as_str().and_then(|text| Timestamp::parse(text).ok());
    at.ok_or_else(|| Problem::value(path, value, "a date-time such as \"2025-11-21T00:00:00Z\""))
}

fn currency(path: &str, value: &Value) -> Result<Currency, Problem> {
    let currency = value.as_str().and_then(Currency::from_code);
    currency.ok_or_else(|| Problem::value(path, value, format_args!("a currency: {CODES}")))
}

/// A decimal in quotes, with no digit lost.
fn decimal(value: &Value) -> Option<Decimal> {
    value.as_str().and_then(|text| Decimal::from_str_exact(text).ok())
}

fn usd_per_unit(path: &str, value: &Value, currency: Currency) -> Result<Decimal, Problem> {
    let price = decimal(value)
        .filter(|price| (USD_PER_UNIT_MIN..=USD_PER_UNIT_MAX).contains(price))
        .ok_or_else(|| {
            let must = format!(
                "a decimal in quotes from {USD_PER_UNIT_MIN} to {USD_PER_UNIT_MAX}, such as \
                 \"1.155\""
            );
            Problem::value(path, value, must)
        })?;
    if currency.code() == "USD" && price != Decimal::ONE {
        return Err(Problem::value(path, value, "\"1\": all prices are in US dollars"));
    }
    Ok(price)
}

fn spread(path: &str, value: &Value) -> Result<Decimal, Problem> {
    let sound = |spread: &Decimal| {
        (Decimal::ZERO..Decimal::ONE).contains(spread) && spread.scale() <= SPREAD_DECIMALS_MAX
    };
    let spread = decimal(value).map(|spread| spread.normalize()).filter(sound);
    spread.ok_or_else(|| {
        let must = format!(
            "a decimal in quotes from 0 to below 1 with at most {SPREAD_DECIMALS_MAX} decimals, \
             such as \"0.005\""
        );
        Problem::value(path, value, must)
    })
}

fn variable_rate(path: &str, value: &Value) -> Result<Decimal, Problem> {
    let rate = decimal(value)
        .ok_or_else(|| Problem::value(path, value, "a decimal in quotes, such as \"0.003\""))?;
    let fees = Fees::new(0, rate).map_err(|error| Problem(format!("{path}: {error}")))?;
    Ok(fees.variable_rate())
}

fn fixed_fee(path: &str, value: &Value) -> Result<i64, Problem> {
    let minor = value.as_i64().filter(|minor| Fees::new(*minor, Decimal::ZERO).is_ok());
    minor.ok_or_else(|| {
        let must = format!("a whole number of smallest units from 0 to {AMOUNT_MAX}");
        Problem::value(path, value, must)
    })
}
