//! The schema: one track of migrations for every engine.

use std::collections::{BTreeMap, BTreeSet};

use refinery::{Migration, Runner};

use crate::error::StoreError;
use crate::postgres::connection::Postgres;
use crate::sql::{Connection, Row};
use crate::sqlite::Sqlite;

/// Every migration, oldest first: number with name, and text.
const MIGRATIONS: &[(&str, &str)] =
    &[("V1__initial", include_str!("../migrations/0001_initial.sql"))];

/// The meaning of the migrations' tokens in SQLite.
const SQLITE_TOKENS: [(&str, &str); 6] = [
    ("{int8}", "integer"),
    ("{bytes}", "blob"),
    ("{text}", "text"),
    ("{strict}", "strict, without rowid"),
    ("{wide}", "strict"),
    ("{grows}", ""),
];

/// Their meaning in PostgreSQL. Text is compared byte by byte, as SQLite does it, whatever language
/// the database has. Pages are filled: half empty ones for the second version of each row would
/// save nothing that could be measured, and stay half empty.
///
/// Tables that grow are analyzed once they have twice the rows. Out of the box a tenth is enough,
/// which in a young table is each minute. It takes seconds of a core, and no plan of ours changes
/// by it (docs/performance.md).
const POSTGRES_TOKENS: [(&str, &str); 6] = [
    ("{int8}", "bigint"),
    ("{bytes}", "bytea"),
    ("{text}", "text collate \"C\""),
    ("{strict}", ""),
    ("{wide}", ""),
    (
        "{grows}",
        "with (autovacuum_analyze_scale_factor = 1, autovacuum_analyze_threshold = 100000)",
    ),
];

/// A text with the meanings of its tokens.
fn replaced(text: &str, tokens: &[(&str, &str)]) -> String {
    tokens.iter().fold(text.to_owned(), |text, (token, meaning)| text.replace(token, meaning))
}

/// Every migration as SQLite gets it: name and text.
fn sqlite_texts() -> impl Iterator<Item = (&'static str, String)> {
    MIGRATIONS.iter().map(|(name, text)| (*name, replaced(text, &SQLITE_TOKENS)))
}

/// Every migration as PostgreSQL gets it: name and text.
fn postgres_texts() -> impl Iterator<Item = (&'static str, String)> {
    MIGRATIONS.iter().map(|(name, text)| (*name, replaced(text, &POSTGRES_TOKENS)))
}

fn migrations(
    texts: impl Iterator<Item = (&'static str, String)>,
) -> Result<Vec<Migration>, StoreError> {
    let migration = |(name, text): (&str, String)| {
        Migration::unapplied(name, &text)
            .map_err(|error| StoreError::Engine(format!("migration {name}: {error}")))
    };
    texts.map(migration).collect()
}

fn runner(migrations: &[Migration]) -> Runner {
    Runner::new(migrations).set_abort_divergent(true).set_abort_missing(true)
}

/// Whether there is a history of migrations.
const SQLITE_HISTORY: &str =
    "select count(*) from sqlite_master where name = 'refinery_schema_history'";
const POSTGRES_HISTORY: &str = "select count(to_regclass('refinery_schema_history'))";

/// How often migrations are tried on a database that others migrate at the same time. Each is in
/// one transaction with its row of the history, so what one has done the others find done: at
/// worst, another server is faster with each.
const TRIES_MAX: usize = MIGRATIONS.len() + 4;

/// Brings a SQLite database to this program's schema. Refuses one that another build made.
pub(crate) fn sqlite(connection: &mut Sqlite) -> Result<(), StoreError> {
    // One by one, the row of the history would be a commit of its own: after a crash between the
    // two, no start would get past a migration that was made already.
    let migrations = migrations(sqlite_texts())?;
    let runner = runner(&migrations).set_grouped(true);
    loop {
        let before = refuse_other_builds(connection, SQLITE_HISTORY, &migrations)?;
        let Err(error) = runner.run(connection.driver()) else { return Ok(()) };
        // Perhaps another process was faster.
        if newest_applied(connection, SQLITE_HISTORY)? == before {
            return Err(StoreError::Engine(format!("migrations: {error}")));
        }
    }
}

/// The tables and indexes of a database and its history of migrations, without the statistics that
/// the engine keeps for itself.
const SQLITE_SCHEMA: [&str; 2] = [
    "select type || ' ' || name, tbl_name || ': ' || coalesce(sql, '') from sqlite_schema \
     where name not like 'sqlite_stat%'",
    "select 'migration ' || version, name || ' ' || checksum from refinery_schema_history",
];

/// Names every table, index and migration of a SQLite database that is not as this program makes
/// it.
pub(crate) fn sqlite_differences(found: &rusqlite::Connection) -> Result<Vec<String>, StoreError> {
    fn read(connection: &rusqlite::Connection) -> rusqlite::Result<BTreeMap<String, String>> {
        let mut all = BTreeMap::new();
        for sql in SQLITE_SCHEMA {
            let mut statement = connection.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                all.insert(row.get(0)?, row.get(1)?);
            }
        }
        Ok(all)
    }
    let failed = |error: rusqlite::Error| StoreError::Engine(format!("the schema: {error}"));
    let mut made = rusqlite::Connection::open_in_memory().map_err(failed)?;
    runner(&migrations(sqlite_texts())?)
        .run(&mut made)
        .map_err(|error| StoreError::Engine(format!("migrations: {error}")))?;
    let (made, found) = (read(&made).map_err(failed)?, read(found).map_err(failed)?);
    let names: BTreeSet<_> = made.keys().chain(found.keys()).collect();
    let differs = names.into_iter().filter(|name| made.get(*name) != found.get(*name));
    Ok(differs
        .map(|name| match (made.contains_key(name), found.contains_key(name)) {
            (true, false) => format!("{name} is not there"),
            (false, _) => format!("{name} is not of this program"),
            (true, true) => format!("{name} is not as this program makes it"),
        })
        .collect())
}

/// The number of the newest migration in a SQLite database; 0 for an empty one.
pub(crate) fn sqlite_schema(connection: &mut Sqlite) -> Result<i64, StoreError> {
    schema_of(connection, SQLITE_HISTORY, &migrations(sqlite_texts())?)
}

/// Brings a PostgreSQL database to this program's schema. Refuses one that another build made.
pub(crate) fn postgres(connection: &mut Postgres) -> Result<(), StoreError> {
    let migrations = migrations(postgres_texts())?;
    let runner = runner(&migrations);
    let mut tries = 1;
    loop {
        let migrated = match refuse_other_builds(connection, POSTGRES_HISTORY, &migrations) {
            Ok(_) => connection.migrate(&runner),
            // A read only waits for a locked table.
            Err(StoreError::Conflict(_)) => Err(StoreError::Busy),
            Err(error) => Err(error),
        };
        match migrated {
            Err(StoreError::Busy) => {
                return Err(StoreError::Engine(
                    "migrations: a table is in use, perhaps by pg_dump: start again once that has \
                     ended"
                        .to_owned(),
                ));
            }
            Err(StoreError::Conflict(what)) if tries < TRIES_MAX => {
                tracing::debug!(what, "another server migrates too: trying again");
                tries += 1;
            }
            migrated => return migrated,
        }
    }
}

/// Refuses a database that an earlier build or a newer program made; else the number of its newest
/// migration.
fn refuse_other_builds(
    connection: &mut dyn Connection,
    history: &str,
    migrations: &[Migration],
) -> Result<i64, StoreError> {
    let (applied, known) = (schema_of(connection, history, migrations)?, newest_known());
    if applied > known {
        return Err(StoreError::Engine(format!(
            "the database has schema {applied} and this program knows schemas up to {known}; \
             start the newer program that made it"
        )));
    }
    Ok(applied)
}

/// The number of the newest migration. Nothing was released before the first one of this program: a
/// database that has another one under its number cannot be brought up to date.
fn schema_of(
    connection: &mut dyn Connection,
    history: &str,
    migrations: &[Migration],
) -> Result<i64, StoreError> {
    let applied = newest_applied(connection, history)?;
    if applied > 0 && !is_of_this_program(connection, migrations)? {
        return Err(StoreError::Engine(
            "the database was made by an earlier build of Switchyard, which this one cannot read; \
             start with an empty database"
                .to_owned(),
        ));
    }
    Ok(applied)
}

/// Whether the first migration that was applied is the one of this program.
fn is_of_this_program(
    connection: &mut dyn Connection,
    migrations: &[Migration],
) -> Result<bool, StoreError> {
    let sql = "select checksum from refinery_schema_history where version = 1";
    let first =
        connection.first(sql, &[], ("refinery_schema_history", &["checksum"]), Row::text)?;
    Ok(first == migrations.first().map(|migration| migration.checksum().to_string()))
}

/// Whether a PostgreSQL database has the tables of the first migration.
pub(crate) fn has_schema(connection: &mut Postgres) -> Result<bool, StoreError> {
    Ok(newest_applied(connection, POSTGRES_HISTORY)? > 0)
}

/// The number of the newest migration in the database; 0 for an empty one.
fn newest_applied(connection: &mut dyn Connection, history: &str) -> Result<i64, StoreError> {
    const TABLE: &str = "refinery_schema_history";
    if connection.first(history, &[], (TABLE, &["count"]), Row::int)? == Some(0) {
        return Ok(0);
    }
    let newest = "select coalesce(max(version), 0) from refinery_schema_history";
    Ok(connection.first(newest, &[], (TABLE, &["version"]), Row::int)?.unwrap_or(0))
}

/// The number of the newest migration that this program knows.
pub(crate) fn newest_known() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::Access;

    /// A row of the history that cannot be written stands for a crash just before it is.
    #[test]
    fn a_migration_is_made_with_its_row_of_the_history_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file =
            Sqlite::open(&folder.path().join("test.db"), Access::Write).expect("a database");
        let newest = MIGRATIONS.len();
        let known = migrations(sqlite_texts().take(newest - 1)).expect("migrations");
        runner(&known).run(file.driver()).expect("all but the newest");
        let refuse = format!(
            "create trigger crash before insert on refinery_schema_history \
             when new.version = {newest} begin select raise(abort, 'crash'); end"
        );
        file.driver().execute_batch(&refuse).expect("a trigger");
        let error = sqlite(&mut file).expect_err("the history takes no row");
        assert!(error.to_string().contains("crash"), "{error}");
        file.driver().execute_batch("drop trigger crash").expect("no trigger");
        assert_eq!(sqlite_schema(&mut file).expect("a number"), newest_known() - 1);
        sqlite(&mut file).expect("the newest, which is not half there");
        assert_eq!(sqlite_schema(&mut file).expect("a number"), newest_known());
    }
}
