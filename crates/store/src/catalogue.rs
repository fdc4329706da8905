//! Every table of the schema: what moves with the data, and what describes the database itself. And
//! how all rows of a table are read, chunk by chunk, or removed.

use std::sync::OnceLock;

use crate::error::StoreError;
use crate::journal::tail;
use crate::sql::{Connection, Shape, Value};

/// Tables that are made with a database and stay with it: the write lock, what the database knows
/// about itself, and which migrations made it.
pub const OWN: &[&str] =
    &["meta", "refinery_schema_history", "journal_schema_history", "write_lock"];

/// Every table that holds data. Tables stand behind those that they refer to.
pub fn tables() -> &'static [&'static Shape] {
    static TABLES: OnceLock<Vec<&Shape>> = OnceLock::new();
    TABLES.get_or_init(crate::shapes)
}

/// The table with a number of the journal.
pub(crate) fn table(number: u16) -> Result<&'static Shape, StoreError> {
    let shape = tables().iter().find(|it| it.number == number && number != tail::NONE);
    let unknown = || StoreError::Engine(format!("this release knows no table number {number}"));
    shape.copied().ok_or_else(unknown)
}

/// The columns of the key.
fn key_of(shape: &Shape) -> &'static [&'static str] {
    &shape.columns[..shape.key]
}

/// Whole rows in the order of the key: from the beginning, or behind a place.
fn chunk_of(shape: &Shape, is_first: bool) -> String {
    let (table, key) = (shape.table, key_of(shape));
    let (list, keys) = (shape.columns.join(", "), key.join(", "));
    if is_first {
        return format!("select {list} from {table} order by {keys} limit $1");
    }
    let after: Vec<_> = (1..=key.len()).map(|number| format!("${number}")).collect();
    let (after, limit) = (after.join(", "), key.len() + 1);
    format!("select {list} from {table} where ({keys}) > ({after}) order by {keys} limit ${limit}")
}

/// Some rows less: all of them at once could take longer than a statement may.
fn clear_of(shape: &Shape) -> String {
    let (table, keys) = (shape.table, key_of(shape).join(", "));
    format!("delete from {table} where ({keys}) in (select {keys} from {table} limit $1)")
}

/// Rows that are read, written and committed together: some megabytes at most in this process, and
/// enough that a commit and its flush are a small part of the work.
pub(crate) fn rows_at_once(shape: &Shape) -> usize {
    // A row of the journal can have a whole batch.
    if shape.table == tail::JOURNAL.table { 64 } else { 2_000 }
}

/// Some rows of a table.
pub(crate) struct Chunk {
    /// All columns of each.
    pub(crate) rows: Vec<Vec<Value>>,
    /// Where the last one stands, if there may be more behind it.
    pub(crate) last: Option<Vec<Value>>,
}

/// Reads up to `limit` rows of a table in the order of the key: from the beginning, or behind the
/// last one of another chunk.
pub(crate) fn chunk(
    connection: &mut dyn Connection,
    shape: &Shape,
    after: Option<&[Value]>,
    limit: usize,
) -> Result<Chunk, StoreError> {
    let sql = chunk_of(shape, after.is_none());
    let mut parameters = after.unwrap_or_default().to_vec();
    parameters.push(Value::Int(i64::try_from(limit).unwrap_or(i64::MAX)));
    let (mut rows, mut last) = (Vec::new(), None);
    connection.query(&sql, &parameters, shape.columns.len(), &mut |values| {
        let place = values[..shape.key].to_vec();
        rows.push(values);
        last = (rows.len() == limit).then_some(place);
        Ok(())
    })?;
    Ok(Chunk { rows, last })
}

/// Removes up to `limit` rows of a table. How many it were.
pub(crate) fn clear(
    connection: &mut dyn Connection,
    shape: &Shape,
    limit: usize,
) -> Result<usize, StoreError> {
    connection.execute(&clear_of(shape), &[Value::Int(i64::try_from(limit).unwrap_or(i64::MAX))])
}

/// The statements of this module.
pub(crate) fn statements() -> impl Iterator<Item = String> {
    tables().iter().flat_map(|shape| {
        let chunks = [true, false].map(|is_first| chunk_of(shape, is_first));
        chunks.into_iter().chain([clear_of(shape)])
    })
}

/// A statement that needs every table and every column, and reads no row.
pub(crate) fn all_columns() -> String {
    let part = |shape: &'static Shape| {
        let columns = shape.columns.join(", ");
        format!("select 1 from (select {columns} from {} limit 0) as part", shape.table)
    };
    tables().iter().copied().map(part).collect::<Vec<_>>().join(" union all ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::SqliteFile;
    use crate::engine::Engine;
    use crate::keyring::{KEY_LENGTH, Keyring};

    fn rows(connection: &mut dyn Connection, sql: &str, columns: usize) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        let text = |value| match value {
            Value::Int(number) => number.to_string(),
            Value::Text(text) => text.into_owned(),
            other @ (Value::Null | Value::Bytes(_)) => panic!("{other:?} in {sql}"),
        };
        connection
            .query(sql, &[], columns, &mut |values| {
                rows.push(values.into_iter().map(text).collect());
                Ok(())
            })
            .unwrap();
        rows
    }

    #[test]
    fn no_table_and_no_column_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let engine = SqliteFile::new(&folder.path().join("test.db"));
        let mut connection = engine.whole(&Keyring::new(&[1; KEY_LENGTH])).unwrap();
        // Each column with its place in the key, from 1; 0 is none.
        let mut real = BTreeMap::<String, (Vec<String>, Vec<String>)>::new();
        let sql = "select t.name, c.name, c.pk from sqlite_master t \
            join pragma_table_info(t.name) c where t.type = 'table' order by t.name, c.pk, c.cid";
        for row in rows(&mut *connection, sql, 3) {
            let [table, column, key] = row.try_into().unwrap();
            let (columns, keys) = real.entry(table).or_default();
            columns.push(column.clone());
            if key != "0" {
                keys.push(column);
            }
        }
        for table in OWN {
            assert!(real.remove(*table).is_some(), "{table} is not there");
        }
        let mut known = Vec::new();
        for shape in tables() {
            let Some((mut columns, keys)) = real.remove(shape.table) else {
                panic!("{} is not there", shape.table);
            };
            assert_eq!(key_of(shape), keys, "{}", shape.table);
            let mut named = shape.columns.to_vec();
            named.sort_unstable();
            columns.sort_unstable();
            assert_eq!(named, columns, "{}", shape.table);
            let sql = format!("select \"table\" from pragma_foreign_key_list('{}')", shape.table);
            for parent in rows(&mut *connection, &sql, 1).concat() {
                assert!(known.contains(&parent), "{} stands before {parent}", shape.table);
            }
            known.push(shape.table.to_owned());
        }
        assert!(real.is_empty(), "not in the catalogue: {:?}", real.keys());
    }
}
