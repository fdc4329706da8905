//! The schema: one track of migrations for every engine.

use refinery::{Migration, Runner};

use crate::error::StoreError;
use crate::postgres::Postgres;
use crate::sql::{Connection, Row};
use crate::sqlite::Sqlite;

/// Every migration, oldest first: number, name, text.
const MIGRATIONS: &[(&str, &str)] =
    &[("V1__initial", include_str!("../migrations/0001_initial.sql"))];

/// What the tokens of the migrations stand for in SQLite.
const SQLITE_TOKENS: [(&str, &str); 5] = [
    ("{int8}", "integer"),
    ("{bytes}", "blob"),
    ("{text}", "text"),
    ("{strict}", "strict, without rowid"),
    ("{wide}", "strict"),
];

/// What they stand for in PostgreSQL. Text is compared byte by byte, as SQLite does it, in whatever
/// language the database is. Pages are filled: half empty ones for the second version of each row
/// would save nothing that could be measured, and stay half empty.
const POSTGRES_TOKENS: [(&str, &str); 5] = [
    ("{int8}", "bigint"),
    ("{bytes}", "bytea"),
    ("{text}", "text collate \"C\""),
    ("{strict}", ""),
    ("{wide}", ""),
];

/// Every migration for an engine: name and text.
fn texts(tokens: &[(&str, &str)]) -> impl Iterator<Item = (&'static str, String)> {
    MIGRATIONS.iter().map(move |(name, text)| {
        let replaced = |text: String, (token, meaning): &(&str, &str)| text.replace(token, meaning);
        (*name, tokens.iter().fold((*text).to_owned(), replaced))
    })
}

/// The texts of all migrations as PostgreSQL gets them.
#[cfg(test)]
pub(crate) fn postgres_texts() -> Vec<String> {
    texts(&POSTGRES_TOKENS).map(|(_, text)| text).collect()
}

fn runner(tokens: &[(&str, &str)]) -> Result<Runner, StoreError> {
    let migration = |(name, text): (&str, String)| {
        Migration::unapplied(name, &text)
            .map_err(|error| StoreError::Engine(format!("migration {name}: {error}")))
    };
    let migrations = texts(tokens).map(migration).collect::<Result<Vec<_>, _>>()?;
    Ok(Runner::new(&migrations).set_abort_divergent(true).set_abort_missing(true))
}

/// Whether there is a history of migrations.
const SQLITE_HISTORY: &str =
    "select count(*) from sqlite_master where name = 'refinery_schema_history'";
const POSTGRES_HISTORY: &str = "select count(to_regclass('refinery_schema_history'))";

/// How often migrations are tried on a database that another server migrates at the same time. Each
/// of them is a transaction, so what one has done the other finds done.
const TRIES_MAX: u32 = 5;

/// Brings a SQLite database to this program's schema. Refuses one that a newer program made.
pub(crate) fn sqlite(connection: &mut Sqlite) -> Result<(), StoreError> {
    refuse_newer(connection, SQLITE_HISTORY)?;
    let migrated = runner(&SQLITE_TOKENS)?.run(connection.driver());
    migrated.map(drop).map_err(|error| StoreError::Engine(format!("migrations: {error}")))
}

/// Brings a PostgreSQL database to this program's schema. Refuses one that a newer program made.
pub(crate) fn postgres(connection: &mut Postgres) -> Result<(), StoreError> {
    let runner = runner(&POSTGRES_TOKENS)?;
    let mut tries = 1;
    loop {
        refuse_newer(connection, POSTGRES_HISTORY)?;
        match connection.migrate(&runner) {
            Err(StoreError::Conflict(what)) if tries < TRIES_MAX => {
                tracing::debug!(what, "somebody else migrates too: trying again");
                tries += 1;
            }
            migrated => return migrated,
        }
    }
}

fn refuse_newer(connection: &mut dyn Connection, history: &str) -> Result<(), StoreError> {
    let (applied, known) = (newest_applied(connection, history)?, newest_known());
    if applied > known {
        return Err(StoreError::Engine(format!(
            "the database has schema {applied} and this program knows schemas up to {known}; \
             start the newer program that made it"
        )));
    }
    Ok(())
}

/// Whether a PostgreSQL database has the tables of the first migration.
pub(crate) fn has_schema(connection: &mut Postgres) -> Result<bool, StoreError> {
    Ok(newest_applied(connection, POSTGRES_HISTORY)? > 0)
}

fn has_history(connection: &mut dyn Connection, history: &str) -> Result<bool, StoreError> {
    let mut exists = false;
    connection.query(history, &[], 1, &mut |values| {
        exists = Row::new("refinery_schema_history", &["count"], values).int()? > 0;
        Ok(())
    })?;
    Ok(exists)
}

/// The number of the newest migration in the database; 0 for an empty one.
fn newest_applied(connection: &mut dyn Connection, history: &str) -> Result<i64, StoreError> {
    let mut newest = 0;
    if has_history(connection, history)? {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_list_of_values_has_more_than_two() {
        for (name, text) in MIGRATIONS {
            for list in text.split(" in (").skip(1) {
                let (list, _) = list.split_once(')').expect("the end of a list");
                assert!(list.matches(',').count() < 2, "{name}: {list}");
            }
        }
    }
}
