//! Refusals of ours in the protocol's words. They say nothing of accounts, settings and ids of a
//! platform, which are not the payer's to know.

use uma::error::{ErrorCode, Refusal};

use super::failed;
use crate::error::{AccountError, CustomerError, Error, MoneyError, UmaError};

/// Refuses a payer about whom these facts are missing.
pub(super) fn lacks(fields: &[&'static str]) -> Refusal {
    let keys: Vec<_> = fields.iter().map(|name| uma::data::protocol_key(name)).collect();
    let reason = format!("payerData lacks {}", keys.join(", "));
    Refusal::new(ErrorCode::MissingMandatoryPayerData, reason)
}

/// A refusal of ours in the protocol's words.
pub(super) fn refusal(error: &Error) -> Refusal {
    let code = match error {
        Error::Money(MoneyError::AmountOutOfRange { .. } | MoneyError::InvalidAmount { .. }) => {
            ErrorCode::AmountOutOfRange
        }
        Error::Money(MoneyError::Unpriceable { .. }) => ErrorCode::AmountOutOfRange,
        Error::Money(MoneyError::CurrencyNotEnabled { .. } | MoneyError::NoRate(_)) => {
            ErrorCode::InvalidCurrency
        }
        Error::Uma(UmaError::PayerDataMissing { fields }) => {
            return lacks(fields);
        }
        Error::Uma(UmaError::NotFound { .. }) => ErrorCode::UserNotFound,
        Error::Customer(CustomerError::Deleted { .. }) => {
            return Refusal::new(ErrorCode::UserNotFound, "the address does not exist");
        }
        Error::Account(AccountError::SelfPayment) => ErrorCode::SenderNotAccepted,
        // The account is another institution's customer's, so nothing more is said about it.
        Error::Account(_) => {
            return Refusal::new(ErrorCode::UserNotReady, "the payee cannot be paid so much");
        }
        error if error.is_failure() => return failed(error),
        Error::Customer(_) | Error::Uma(UmaError::PayeeNotReady { .. }) => {
            return Refusal::new(ErrorCode::UserNotReady, "the payee cannot be paid yet");
        }
        // Other refusals name accounts and settings of the platform, which are not the payer's.
        error => {
            tracing::warn!(%error, "a pay request was refused");
            return Refusal::new(ErrorCode::UserNotReady, "the payee cannot be paid");
        }
    };
    Refusal::new(code, error.to_string())
}
