//! Values on their way to PostgreSQL and back.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::sql::Value;

/// A value met a column that cannot hold it: a mistake in this program or in the schema.
#[derive(Debug, thiserror::Error)]
#[error("{what} is no value of type {kind}")]
pub(super) struct WrongType {
    what: &'static str,
    kind: String,
}

impl WrongType {
    fn boxed(what: &'static str, kind: &Type) -> Box<dyn Error + Sync + Send> {
        Box::new(Self { what, kind: kind.name().to_owned() })
    }
}

fn is_text(kind: &Type) -> bool {
    [Type::TEXT, Type::VARCHAR, Type::NAME, Type::UNKNOWN].contains(kind)
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(value) if *kind == Type::INT8 => value.to_sql(kind, out),
            Self::Int(_) => Err(WrongType::boxed("an integer", kind)),
            Self::Text(value) if is_text(kind) => value.to_sql(kind, out),
            Self::Text(_) => Err(WrongType::boxed("text", kind)),
            Self::Bytes(value) if *kind == Type::BYTEA => value.to_sql(kind, out),
            Self::Bytes(_) => Err(WrongType::boxed("bytes", kind)),
        }
    }

    fn accepts(_: &Type) -> bool {
        // It depends on the value.
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(match *kind {
            Type::INT8 => Self::Int(i64::from_sql(kind, raw)?),
            // The history of migrations has integers of 32 bits, and conditions are flags.
            Type::INT4 => Self::Int(i32::from_sql(kind, raw)?.into()),
            Type::BOOL => Self::from(bool::from_sql(kind, raw)?),
            Type::BYTEA => Self::Bytes(raw.to_vec()),
            _ if is_text(kind) => Self::from(<&str>::from_sql(kind, raw)?),
            _ => return Err(WrongType::boxed("what was read", kind)),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        // An unknown type is an error of its own, which names it.
        true
    }
}
