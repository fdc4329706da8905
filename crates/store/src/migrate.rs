//! The schema: one track of migrations for every engine.

use refinery::{Migration, Runner};

use crate::error::StoreError;
use crate::sqlite::Sqlite;

/// Every migration, oldest first: number, name, text.
const MIGRATIONS: &[(&str, &str)] =
    &[("V1__initial", include_str!("../migrations/0001_initial.sql"))];

/// What the tokens of the migrations stand for in SQLite.
const SQLITE_TOKENS: [(&str, &str); 4] = [
    ("{int8}", "integer"),
    ("{bytes}", "blob"),
    ("{strict}", "strict, without rowid"),
    ("{wide}", "strict"),
];

fn runner(tokens: &[(&str, &str)]) -> Result<Runner, StoreError> {
    let migration = |(name, text): &(&str, &str)| {
        let text = tokens
            .iter()
            .fold((*text).to_owned(), |text, (token, meaning)| text.replace(token, meaning));
        Migration::unapplied(name, &text)
            .map_err(|error| StoreError::Engine(format!("migration {name}: {error}")))
    };
    let migrations = MIGRATIONS.iter().map(migration).collect::<Result<Vec<_>, _>>()?;
    Ok(Runner::new(&migrations).set_abort_divergent(true).set_abort_missing(true))
}

/// Brings a SQLite database to this program's schema. Refuses one that a newer program made.
pub(crate) fn sqlite(connection: &mut Sqlite) -> Result<(), StoreError> {
    let applied = newest_applied(connection)?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if applied > known {
        return Err(StoreError::Engine(format!(
            "the database has schema {applied} and this program knows schemas up to {known}; \
             start the newer program that made it"
        )));
    }
    runner(&SQLITE_TOKENS)?
        .run(connection.driver())
        .map(drop)
        .map_err(|error| StoreError::Engine(format!("migrations: {error}")))
}

/// The number of the newest migration in the database; 0 for an empty one.
pub(crate) fn newest_applied(connection: &mut Sqlite) -> Result<i64, StoreError> {
    use crate::sql::{Connection, Row};
    let mut newest = 0;
    let mut exists = false;
    let tables = "select count(*) from sqlite_master where name = 'refinery_schema_history'";
    connection.query(tables, &[], 1, &mut |values| {
        exists = Row::new("sqlite_master", &["count"], values).int()? > 0;
        Ok(())
    })?;
    if exists {
        let sql = "select coalesce(max(version), 0) from refinery_schema_history";
        connection.query(sql, &[], 1, &mut |values| {
            newest = Row::new("refinery_schema_history", &["version"], values).int()?;
            Ok(())
        })?;
    }
    Ok(newest)
}

/// The number of the newest migration that this program knows.
pub(crate) fn newest_known() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}
