//! Currencies in which a payee can be paid (UMAD-04).

use std::fmt;

use rust_decimal::Decimal;
use serde::Serialize;

use crate::error::{ErrorCode, Refusal};
use crate::json::{Fields, Number, shown};
use crate::version::Form;

/// Decimal places that a currency can have in messages.
pub const DECIMALS_MAX: u8 = 8;

/// Characters of a currency code at most: room for codes of tokens.
const CODE_MAX: usize = 16;

/// A code of a currency: capital letters and digits, a letter first. `5` is none, so that the
/// amount `1.5` is not taken for one unit of the currency `5`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CurrencyCode(String);

impl CurrencyCode {
    /// The code with this spelling.
    pub fn parse(text: &str) -> Option<Self> {
        let is_code = (1..=CODE_MAX).contains(&text.len())
            && text.starts_with(|first: char| first.is_ascii_uppercase())
            && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        is_code.then(|| Self(text.to_owned()))
    }

    /// The code as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a field that must be a code.
    pub(crate) fn read(fields: &Fields<'_>, name: &str) -> Result<Self, Refusal> {
        let text = fields.filled(name)?;
        Self::parse(&text).ok_or_else(|| {
            let wrong = format!("must be a currency code such as USD, not '{}'", shown(&text));
            fields.refusal(name, wrong)
        })
    }
}

impl fmt::Display for CurrencyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A currency in which a payee can be paid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Currency {
    /// Its code.
    pub code: CurrencyCode,
    /// Its name, for people.
    pub name: String,
    /// Its symbol, for people; may be empty.
    pub symbol: String,
    /// Millisatoshi for one smallest unit, an estimate; greater than zero.
    pub msat_per_unit: Decimal,
    /// Decimal places of its major unit, at most [`DECIMALS_MAX`].
    pub decimals: u8,
    /// Least that can arrive, in smallest units; zero or more.
    pub min_minor: i64,
    /// Most that can arrive, in smallest units; `min_minor` or more.
    pub max_minor: i64,
}

/// The form in messages. Version 1 has the limits in an object of their own.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CurrencyBody<'a> {
    code: &'a str,
    name: &'a str,
    symbol: &'a str,
    multiplier: Number,
    decimals: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    convertible: Option<Convertible>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_sendable: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_sendable: Option<i64>,
}

#[derive(Serialize)]
struct Convertible {
    min: i64,
    max: i64,
}

impl Currency {
    /// Refuses a currency of ours that no peer would take.
    pub fn check(&self) -> Result<(), Refusal> {
        match self.wrong() {
            None => Ok(()),
            Some((field, wrong)) => {
                let reason = format!("{field} of currency {} {wrong}", self.code);
                Err(Refusal::new(ErrorCode::InvalidCurrency, reason))
            }
        }
    }

    /// The name of a field that cannot be so, and why.
    fn wrong(&self) -> Option<(&'static str, &'static str)> {
        if self.msat_per_unit <= Decimal::ZERO {
            Some(("multiplier", "must be greater than 0"))
        } else if self.decimals > DECIMALS_MAX {
            Some(("decimals", "must be 0 to 8"))
        } else if self.min_minor < 0 {
            Some(("min", "must not be negative"))
        } else if self.min_minor > self.max_minor {
            Some(("min", "must not be more than max"))
        } else {
            None
        }
    }

    /// Reads either form.
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Self, Refusal> {
        let (min_minor, max_minor) = match fields.optional_fields("convertible")? {
            Some(limits) => (limits.integer("min")?, limits.integer("max")?),
            None if fields.get("minSendable").is_some() => {
                (fields.integer("minSendable")?, fields.integer("maxSendable")?)
            }
            None => return Err(fields.refusal("convertible", "is missing")),
        };
        let currency = Self {
            code: CurrencyCode::read(fields, "code")?,
            name: fields.text("name")?,
            symbol: fields.optional_text("symbol")?.unwrap_or_default(),
            msat_per_unit: fields.decimal("multiplier")?,
            decimals: decimals(fields)?,
            min_minor,
            max_minor,
        };
        match currency.wrong() {
            None => Ok(currency),
            Some((field, wrong)) => Err(fields.refusal(field, wrong)),
        }
    }

    pub(crate) fn body(&self, form: Form) -> CurrencyBody<'_> {
        let (min, max) = (self.min_minor, self.max_minor);
        let (convertible, min_sendable, max_sendable) = match form {
            Form::V0 => (None, Some(min), Some(max)),
            Form::V1 => (Some(Convertible { min, max }), None, None),
        };
        CurrencyBody {
            code: self.code.as_str(),
            name: &self.name,
            symbol: &self.symbol,
            multiplier: Number(self.msat_per_unit),
            decimals: self.decimals,
            convertible,
            min_sendable,
            max_sendable,
        }
    }
}

/// Reads `decimals`.
pub(crate) fn decimals(fields: &Fields<'_>) -> Result<u8, Refusal> {
    let places = u8::try_from(fields.integer("decimals")?).ok();
    let places = places.filter(|places| *places <= DECIMALS_MAX);
    places.ok_or_else(|| fields.refusal("decimals", "must be 0 to 8"))
}
