//! Every table of the schema: what moves with the data, and what describes the database itself. And
//! how all rows of a table are read, chunk by chunk, or removed.

use std::sync::OnceLock;

use crate::error::StoreError;
use crate::idempotency::Answer;
use crate::record::Record as _;
use crate::sql::{Connection, Shape, Value};

/// Tables that are made with a database and stay with it: where the embedded engine looks for
/// answers and payments, whose turn it is to write, what the database knows about itself, and which
/// migrations made it.
pub const OWN: &[&str] =
    &["idempotency_filters", "lane", "listed", "meta", "newly_listed", "refinery_schema_history"];

/// Every table that holds data, with all of its columns (`version` is one of them), those of the
/// key first. Tables stand behind those that they refer to.
pub fn tables() -> &'static [Shape] {
    static TABLES: OnceLock<Vec<Shape>> = OnceLock::new();
    TABLES.get_or_init(|| crate::shapes().into_iter().map(whole).collect())
}

/// The table with its version as a column like the others: rows that move keep theirs.
fn whole(shape: &Shape) -> Shape {
    let version = shape.versioned.then_some("version");
    // Once for each table of the program.
    let columns = Vec::leak(shape.columns.iter().copied().chain(version).collect());
    Shape::new(shape.table, columns, shape.key, None).in_segments(shape.segmented)
}

/// The columns that rows of a table stand in the order of.
fn order_of(shape: &Shape, in_segments: bool) -> Vec<&'static str> {
    let segment = in_segments.then_some("segment");
    segment.into_iter().chain(shape.columns[..shape.key].iter().copied()).collect()
}

/// Whole rows in the order in which they stand, the segment first where there is one: from the
/// beginning, or behind a place.
fn chunk_of(shape: &Shape, in_segments: bool, is_first: bool) -> String {
    let (table, order) = (shape.table, order_of(shape, in_segments));
    let segment = if in_segments { "segment, " } else { "" };
    let (list, keys) = (shape.columns.join(", "), order.join(", "));
    if is_first {
        return format!("select {segment}{list} from {table} order by {keys} limit $1");
    }
    let after: Vec<_> = (1..=order.len()).map(|number| format!("${number}")).collect();
    let (after, limit) = (after.join(", "), order.len() + 1);
    format!(
        "select {segment}{list} from {table} where ({keys}) > ({after}) \
         order by {keys} limit ${limit}"
    )
}

/// Some rows less: all of them at once could take longer than a statement may.
fn clear_of(shape: &Shape, in_segments: bool) -> String {
    let (table, keys) = (shape.table, order_of(shape, in_segments).join(", "));
    format!("delete from {table} where ({keys}) in (select {keys} from {table} limit $1)")
}

/// Whether rows of a table stand by segment in this database.
fn in_segments(connection: &dyn Connection, shape: &Shape) -> bool {
    shape.segmented && !connection.is_remote()
}

/// Some rows of a table.
pub(crate) struct Chunk {
    /// All columns of each.
    pub(crate) rows: Vec<Vec<Value>>,
    /// Where the last one stands, if there may be more behind it.
    pub(crate) last: Option<Vec<Value>>,
}

/// Reads up to `limit` rows of a table in the order in which they stand, which is that of the key
/// or of segments: from the beginning, or behind the last one of another chunk.
pub(crate) fn chunk(
    connection: &mut dyn Connection,
    shape: &Shape,
    after: Option<&[Value]>,
    limit: usize,
) -> Result<Chunk, StoreError> {
    let in_segments = in_segments(connection, shape);
    let sql = chunk_of(shape, in_segments, after.is_none());
    let mut parameters = after.unwrap_or_default().to_vec();
    parameters.push(Value::Int(i64::try_from(limit).unwrap_or(i64::MAX)));
    let columns = shape.columns.len() + usize::from(in_segments);
    let (mut rows, mut last) = (Vec::new(), None);
    connection.query(&sql, &parameters, columns, &mut |mut values| {
        let place = values[..shape.key + usize::from(in_segments)].to_vec();
        values.drain(..usize::from(in_segments));
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
    let sql = clear_of(shape, in_segments(connection, shape));
    connection.execute(&sql, &[Value::Int(i64::try_from(limit).unwrap_or(i64::MAX))])
}

/// The statements of this module: of tables as they stand in segments, or as they do elsewhere.
pub(crate) fn statements(in_segments: bool) -> impl Iterator<Item = String> {
    let shapes = tables().iter().chain([Answer::shape()]);
    let shapes = shapes.filter(move |shape| shape.segmented || !in_segments);
    shapes.flat_map(move |shape| {
        let chunks = [true, false].map(|is_first| chunk_of(shape, in_segments, is_first));
        chunks.into_iter().chain([clear_of(shape, in_segments)])
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::engine::{Engine, SqliteFile};
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
        let mut connection = engine.prepare(&Keyring::new(&[1; KEY_LENGTH])).unwrap();
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
            assert_eq!(order_of(shape, shape.segmented), keys, "{}", shape.table);
            let segment = shape.segmented.then_some("segment");
            let mut named: Vec<_> = shape.columns.iter().copied().chain(segment).collect();
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
