//! Statements that read and write many rows of a table at once, so that a batch needs one round
//! trip. Their parameters are columns, each an array with one value for each row.

use tokio_postgres::types::Type;

use super::client::Query;
use crate::error::StoreError;
use crate::sql::{Change, Shape, Value};

/// Rows in one statement: some hundred kilobytes.
pub(super) const ROWS_MAX: usize = 2_000;

/// The statements of a table in which the columns have the types that the database says.
#[derive(Debug)]
pub(super) struct Texts {
    /// All columns of the rows whose first column is in `$1`.
    pub(super) fetch: String,
    insert: String,
    upsert: String,
    delete: String,
}

/// Asks for the types of a table's columns. No row comes back.
pub(super) fn probe(shape: &Shape) -> String {
    format!("select {} from {} where false", shape.columns.join(", "), shape.table)
}

impl Texts {
    /// `types` are those of the columns of [`probe`].
    pub(super) fn new(shape: &Shape, types: &[&Type]) -> Result<Self, StoreError> {
        let Shape { table, columns, key, .. } = *shape;
        let names = types.iter().zip(columns).map(|(kind, column)| array_of(table, column, kind));
        let types = names.collect::<Result<Vec<_>, _>>()?;
        // The columns of the first rows, as if they were a table `u`.
        let rows = |count: usize| {
            let arrays =
                (1..).zip(&types[..count]).map(|(number, kind)| format!("${number}::{kind}"));
            let arrays: Vec<_> = arrays.collect();
            format!("unnest({}) as u ({})", arrays.join(", "), columns[..count].join(", "))
        };
        let meets = |columns: &[&str]| {
            let pairs: Vec<_> =
                columns.iter().map(|column| format!("{table}.{column} = u.{column}")).collect();
            pairs.join(" and ")
        };
        let list = columns.join(", ");
        let keys = &columns[..key];
        let insert =
            format!("insert into {table} ({list}) select {list} from {}", rows(columns.len()));
        Ok(Self {
            fetch: format!(
                "select {list} from {table} where {} = any($1::{}) order by {}",
                keys[0],
                types[0],
                keys.join(", ")
            ),
            upsert: format!("{insert} {}", shape.replace()),
            delete: format!("delete from {table} using {} where {}", rows(key), meets(keys)),
            insert,
        })
    }

    /// The statement that makes a change to rows.
    pub(super) fn query<'a>(
        &'a self,
        shape: &Shape,
        change: Change,
        rows: &'a [Vec<Value>],
    ) -> Query<'a> {
        let count = shape.columns.len();
        let (text, width) = match change {
            Change::Insert => (&self.insert, count),
            Change::Upsert => (&self.upsert, count),
            Change::Delete => (&self.delete, shape.key),
        };
        let column = |column| rows.iter().map(|row: &Vec<Value>| &row[column]).collect::<Vec<_>>();
        Query::new(text, (0..width).map(column))
    }
}

/// The name of an array of this type.
fn array_of(table: &str, column: &str, kind: &Type) -> Result<&'static str, StoreError> {
    Ok(match *kind {
        Type::INT8 => "int8[]",
        Type::BYTEA => "bytea[]",
        Type::TEXT => "text[]",
        _ => {
            return Err(StoreError::Engine(format!(
                "the column {table}.{column} has the type {kind}, which no migration gives"
            )));
        }
    })
}
