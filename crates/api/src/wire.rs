//! Values that many rooms show: currencies, amounts, rates, addresses.

use std::fmt;

use domain::address::{Address, AddressDraft};
use domain::currency::Currency;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::error::{ApiError, Code};

/// Room for a body that is written: nearly all fit, and none has to move while it grows.
const BODY_ROOM: usize = 1_280;

/// The bytes of a body.
pub(crate) fn json(body: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BODY_ROOM);
    serde_json::to_writer(&mut bytes, body).expect("bodies have text keys only");
    bytes
}

/// A value whose text is written to JSON: an id, a time. The text is made where it is written, and
/// in no memory of its own.
#[derive(Debug, Clone, Copy)]
pub struct Text<T>(pub T);

impl<T: fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A currency (specification 2.1).
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Currency)]
pub struct CurrencyBody {
    /// ISO 4217 code, or the asset's usual ticker.
    #[schema(example = "USD")]
    pub code: &'static str,
    /// Display name.
    #[schema(example = "United States dollar")]
    pub name: &'static str,
    /// Display symbol.
    #[schema(example = "$")]
    pub symbol: &'static str,
    /// Decimal places between the smallest unit and one whole unit.
    #[schema(example = 2)]
    pub decimals: u8,
}

impl From<Currency> for CurrencyBody {
    fn from(currency: Currency) -> Self {
        Self {
            code: currency.code(),
            name: currency.name(),
            symbol: currency.symbol(),
            decimals: currency.decimals(),
        }
    }
}

/// An amount in the smallest unit of its currency (specification 2.2).
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Amount)]
pub struct AmountBody {
    /// Smallest units.
    #[schema(example = 12550)]
    pub amount: i64,
    /// The currency.
    pub currency: CurrencyBody,
}

impl AmountBody {
    /// An amount of smallest units.
    pub fn new(amount: i64, currency: Currency) -> Self {
        Self { amount, currency: currency.into() }
    }
}

impl From<domain::money::Money> for AmountBody {
    fn from(money: domain::money::Money) -> Self {
        Self::new(money.minor(), money.currency())
    }
}

/// A decimal number, written to JSON digit by digit: what is shown is what was computed.
#[derive(Debug, Clone, Copy)]
pub struct Number(pub Decimal);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = RawValue::from_string(self.0.normalize().to_string())
            .expect("the digits of a decimal are a JSON number");
        digits.serialize(serializer)
    }
}

/// A postal address (specification 2.7).
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Address)]
pub struct AddressBody {
    /// Street and number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = true, min_length = 1, max_length = 255)]
    pub line1: Option<String>,
    /// Flat, floor or building.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 255)]
    pub line2: Option<String>,
    /// City or town.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 255)]
    pub city: Option<String>,
    /// State, province or region.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 255)]
    pub state: Option<String>,
    /// Postal code: required where the country has postal codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 20)]
    pub postal_code: Option<String>,
    /// ISO 3166-1 alpha-2 code.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        required = true,
        format = "iso-3166-1-alpha-2",
        pattern = "^[A-Z]{2}$",
        example = "US"
    )]
    pub country: Option<String>,
}

impl From<AddressBody> for AddressDraft {
    fn from(body: AddressBody) -> Self {
        let AddressBody { line1, line2, city, state, postal_code, country } = body;
        Self { line1, line2, city, state, postal_code, country }
    }
}

impl From<AddressDraft> for AddressBody {
    fn from(draft: AddressDraft) -> Self {
        let AddressDraft { line1, line2, city, state, postal_code, country } = draft;
        Self { line1, line2, city, state, postal_code, country }
    }
}

impl From<&Address> for AddressBody {
    fn from(address: &Address) -> Self {
        address.to_draft().into()
    }
}

/// The currency that a code names.
pub(crate) fn currency(code: &str) -> Result<Currency, ApiError> {
    Currency::from_code(code).ok_or_else(|| {
        let shown: String = code.chars().take(20).collect();
        let message = format!("'{shown}' is not a currency of this server");
        ApiError::new(Code::InvalidCurrency, message).about("currency").with("currency", shown)
    })
}
