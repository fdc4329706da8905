//! The values of rows, and what they are made of.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A value of one column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Value {
    /// No value.
    Null,
    /// A 64-bit integer, also times (milliseconds) and flags (0, 1).
    Int(i64),
    /// Text.
    Text(Cow<'static, str>),
    /// Bytes, also uuids (16 of them).
    Bytes(Vec<u8>),
}

impl Value {
    /// Text that lives as long as the program, such as the name of a state.
    pub const fn name(name: &'static str) -> Self {
        Self::Text(Cow::Borrowed(name))
    }

    /// The key of a row for a person: a uuid, or the first bytes of another key.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Bytes(bytes) => match uuid::Uuid::from_slice(bytes) {
                Ok(uuid) => uuid.to_string(),
                Err(_) => bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect(),
            },
            Self::Null | Self::Int(_) | Self::Text(_) => "a row".to_owned(),
        }
    }

    /// `Null` or the value.
    pub fn or_null<T: Into<Self>>(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}
impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}
impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(i64::from(value))
    }
}
impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(Cow::Owned(value))
    }
}
impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Cow::Owned(value.to_owned()))
    }
}
impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value)
    }
}
impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Bytes(value.to_vec())
    }
}
impl<const N: usize> From<[u8; N]> for Value {
    fn from(value: [u8; N]) -> Self {
        Self::Bytes(value.to_vec())
    }
}
impl From<ledger::account::AccountKey> for Value {
    fn from(value: ledger::account::AccountKey) -> Self {
        Self::Bytes(value.encode())
    }
}
impl From<domain::uma_address::UmaAddress> for Value {
    fn from(value: domain::uma_address::UmaAddress) -> Self {
        value.as_str().into()
    }
}
impl From<uuid::Uuid> for Value {
    fn from(value: uuid::Uuid) -> Self {
        Self::Bytes(value.as_bytes().to_vec())
    }
}
impl<K> From<domain::id::Id<K>> for Value
where
    K: domain::id::Kind,
{
    fn from(value: domain::id::Id<K>) -> Self {
        value.uuid().into()
    }
}
impl From<domain::time::Timestamp> for Value {
    fn from(value: domain::time::Timestamp) -> Self {
        Self::Int(value.millis())
    }
}
