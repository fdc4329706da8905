//! The amount of a pay request, in the currency that arrives or in millisatoshi (UMAD-05).

use std::fmt;

use crate::currency::CurrencyCode;
use crate::error::{ErrorCode, Refusal};

/// How much is paid, on the side that is locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amount {
    /// Exactly this arrives, in smallest units.
    Receiving {
        /// Smallest units; greater than zero.
        minor: i64,
        /// The currency that arrives.
        code: CurrencyCode,
    },
    /// Exactly this is sent, in millisatoshi; greater than zero.
    Msat(i64),
}

/// Why a text is no amount. The sentence continues the name of its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAmount {
    /// No digits, or other characters among them.
    #[error("must be digits, with a currency code such as .USD behind them or without")]
    Form,
    /// Behind the dot is no code.
    #[error("has something behind its dot that is not a currency code such as USD")]
    Code,
    /// Above 64 bits.
    #[error("is more than 64 bits hold")]
    Size,
}

impl Amount {
    /// Reads `595.USD` or `13923000`.
    pub fn parse(text: &str) -> Result<Self, InvalidAmount> {
        match text.split_once('.') {
            None => Ok(Self::Msat(digits(text)?)),
            Some((minor, code)) => {
                let minor = digits(minor)?;
                let code = CurrencyCode::parse(code).ok_or(InvalidAmount::Code)?;
                Ok(Self::Receiving { minor, code })
            }
        }
    }

    /// Refuses nothing and less with `code`, and a currency other than the one that arrives.
    pub(crate) fn check(&self, receiving: &CurrencyCode, code: ErrorCode) -> Result<(), Refusal> {
        let number = match self {
            Self::Receiving { minor, .. } => *minor,
            Self::Msat(msat) => *msat,
        };
        match self {
            _ if number <= 0 => Err(Refusal::new(code, "amount must be greater than 0")),
            Self::Receiving { code: stated, .. } if stated != receiving => {
                let reason = format!("amount is in {stated}, but {receiving} shall arrive");
                Err(Refusal::new(ErrorCode::InvalidCurrency, reason))
            }
            Self::Receiving { .. } | Self::Msat(_) => Ok(()),
        }
    }
}

/// The form in messages of version 1.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Receiving { minor, code } => write!(f, "{minor}.{code}"),
            Self::Msat(msat) => write!(f, "{msat}"),
        }
    }
}

fn digits(text: &str) -> Result<i64, InvalidAmount> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(InvalidAmount::Form);
    }
    text.parse().map_err(|_| InvalidAmount::Size)
}
