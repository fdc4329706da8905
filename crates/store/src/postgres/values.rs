//! Values on their way to PostgreSQL and back.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::sql::Value;

/// A value met a column that cannot hold it: a mistake in this program or in the schema.
#[derive(Debug, thiserror::Error)]
#[error("a value does not fit the type {0}")]
pub(super) struct WrongType(String);

fn is_text(kind: &Type) -> bool {
    [Type::TEXT, Type::VARCHAR, Type::NAME, Type::UNKNOWN].contains(kind)
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (self, kind) {
            (Self::Null, _) => Ok(IsNull::Yes),
            (Self::Int(value), &Type::INT8) => value.to_sql(kind, out),
            (Self::Text(value), _) if is_text(kind) => value.to_sql(kind, out),
            (Self::Bytes(value), &Type::BYTEA) => value.to_sql(kind, out),
            _ => Err(WrongType(kind.name().to_owned()).into()),
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
            _ => return Err(WrongType(kind.name().to_owned()).into()),
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
