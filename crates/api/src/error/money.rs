//! Codes of refusals about amounts, currencies and prices, which every operation with money has.

use serde_json::json;
use service::error::MoneyError;

use super::{ApiError, Code};

impl From<MoneyError> for ApiError {
    fn from(error: MoneyError) -> Self {
        let plain = |code, field| Self::new(code, error.to_string()).about(field);
        match &error {
            MoneyError::InsufficientBalance { account, currency, available, needed } => {
                plain(Code::InsufficientBalance, "amount")
                    .with("accountId", account.as_str())
                    .with("currency", currency.code())
                    .with("available", *available)
                    .with("needed", *needed)
            }
            MoneyError::AmountOutOfRange { amount, min, max } => {
                plain(Code::AmountOutOfRange, "amount")
                    .with("currency", amount.currency().code())
                    .with("amount", amount.minor())
                    .with("minAmount", *min)
                    .with("maxAmount", *max)
            }
            MoneyError::Unpriceable { .. } | MoneyError::BooksFull { .. } => {
                plain(Code::AmountOutOfRange, "amount")
            }
            MoneyError::InvalidAmount { .. } => plain(Code::InvalidAmount, "amount"),
            MoneyError::CurrencyNotEnabled { currency, .. } => {
                plain(Code::InvalidCurrency, "currency").with("currency", currency.code())
            }
            MoneyError::CurrencyInUse { currency } | MoneyError::CurrencyUnpriced { currency } => {
                plain(Code::InvalidCurrency, "currency")
                    .with("currency", currency.code())
                    .at("supportedCurrencies")
            }
            MoneyError::CurrencyMismatch { left, right, .. } => {
                plain(Code::InvalidCurrency, "currency")
                    .with("currencies", json!([left.code(), right.code()]))
            }
            MoneyError::NoRate(_) => plain(Code::QuoteRequestFailed, "currency"),
        }
    }
}
