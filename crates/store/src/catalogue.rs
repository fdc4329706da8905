//! Every table of the schema: what moves with the data, and what describes the database itself.

use std::sync::OnceLock;

use crate::sql::Shape;

/// Tables that are made with a database and stay with it: whose turn it is to write, what the
/// database knows about itself, and which migrations made it.
pub const OWN: &[&str] = &["lane", "meta", "refinery_schema_history"];

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
    Shape::new(shape.table, columns, shape.key, None)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::engine::{Engine, SqliteFile};
    use crate::keyring::{KEY_LENGTH, Keyring};
    use crate::sql::{Connection, Value};

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
            assert_eq!(shape.columns[..shape.key], keys, "{}", shape.table);
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
