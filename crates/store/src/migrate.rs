//! The schema: one track of migrations for every engine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use refinery::{Migration, Runner};

use crate::error::StoreError;
use crate::pause::pause;
use crate::postgres::Postgres;
use crate::sql::{Connection, Row};
use crate::sqlite::Sqlite;

/// A step of the schema.
struct Step {
    /// Number and name.
    name: &'static str,
    /// What SQLite gets.
    sqlite: &'static str,
    /// What PostgreSQL gets.
    postgres: &'static str,
}

impl Step {
    /// A step that is the same for every engine, but for tokens.
    const fn same(name: &'static str, text: &'static str) -> Self {
        Self { name, sqlite: text, postgres: text }
    }
}

/// Every migration, oldest first.
const MIGRATIONS: &[Step] = &[
    Step::same("V1__initial", include_str!("../migrations/0001_initial.sql")),
    Step {
        name: "V2__filters",
        sqlite: include_str!("../migrations/0002_filters.sqlite.sql"),
        postgres: include_str!("../migrations/0002_filters.postgres.sql"),
    },
    Step {
        name: "V3__larger_filters",
        sqlite: include_str!("../migrations/0003_larger_filters.sqlite.sql"),
        postgres: include_str!("../migrations/0003_larger_filters.postgres.sql"),
    },
    Step::same("V4__addresses", include_str!("../migrations/0004_addresses.sql")),
    Step {
        name: "V5__sums_of_filters",
        sqlite: include_str!("../migrations/0005_sums_of_filters.sqlite.sql"),
        postgres: include_str!("../migrations/0005_sums_of_filters.postgres.sql"),
    },
    Step {
        name: "V6__listed",
        sqlite: include_str!("../migrations/0006_listed.sqlite.sql"),
        postgres: include_str!("../migrations/0006_listed.postgres.sql"),
    },
];

/// What the tokens of the migrations stand for in SQLite.
const SQLITE_TOKENS: [(&str, &str); 7] = [
    ("{int8}", "integer"),
    ("{bytes}", "blob"),
    ("{text}", "text"),
    ("{strict}", "strict, without rowid"),
    ("{wide}", "strict"),
    ("{segment}", "segment integer not null,"),
    ("{by_segment}", "segment, "),
];

/// What they stand for in PostgreSQL. Text is compared byte by byte, as SQLite does it, in whatever
/// language the database is. Pages are filled: half empty ones for the second version of each row
/// would save nothing that could be measured, and stay half empty.
const POSTGRES_TOKENS: [(&str, &str); 7] = [
    ("{int8}", "bigint"),
    ("{bytes}", "bytea"),
    ("{text}", "text collate \"C\""),
    ("{strict}", ""),
    ("{wide}", ""),
    ("{segment}", ""),
    ("{by_segment}", ""),
];

/// A text with what its tokens stand for.
fn replaced(text: &str, tokens: &[(&str, &str)]) -> String {
    tokens.iter().fold(text.to_owned(), |text, (token, meaning)| text.replace(token, meaning))
}

/// Every migration as SQLite gets it: name and text.
fn sqlite_texts() -> impl Iterator<Item = (&'static str, String)> {
    MIGRATIONS.iter().map(|step| (step.name, replaced(step.sqlite, &SQLITE_TOKENS)))
}

/// Every migration as PostgreSQL gets it: name and text.
pub(crate) fn postgres_texts() -> impl Iterator<Item = (&'static str, String)> {
    MIGRATIONS.iter().map(|step| (step.name, replaced(step.postgres, &POSTGRES_TOKENS)))
}

fn runner(texts: impl Iterator<Item = (&'static str, String)>) -> Result<Runner, StoreError> {
    let migration = |(name, text): (&str, String)| {
        Migration::unapplied(name, &text)
            .map_err(|error| StoreError::Engine(format!("migration {name}: {error}")))
    };
    let migrations = texts.map(migration).collect::<Result<Vec<_>, _>>()?;
    Ok(Runner::new(&migrations).set_abort_divergent(true).set_abort_missing(true))
}

/// Whether there is a history of migrations.
const SQLITE_HISTORY: &str =
    "select count(*) from sqlite_master where name = 'refinery_schema_history'";
const POSTGRES_HISTORY: &str = "select count(to_regclass('refinery_schema_history'))";

/// How often migrations are tried on a database that others migrate at the same time. Each is in
/// one transaction with its row of the history, so what one has done the others find done: at
/// worst, somebody else is faster with each.
const TRIES_MAX: usize = MIGRATIONS.len() + 4;

/// How often, and with which pause, it is tried to change a table that somebody has in use. Who
/// waits for it keeps others from it, so that each try is short (the session's purpose) and leaves
/// time between. Together it is some five minutes.
const WAITS_MAX: u32 = 100;
const WAIT_PAUSE: Duration = Duration::from_secs(2);

/// Brings a SQLite database to this program's schema. Refuses one that a newer program made.
pub(crate) fn sqlite(connection: &mut Sqlite) -> Result<(), StoreError> {
    // One by one, the row of the history would be a commit of its own: after a crash between the
    // two, no start would get past a migration that was made already.
    let runner = runner(sqlite_texts())?.set_grouped(true);
    loop {
        let before = refuse_newer(connection, SQLITE_HISTORY)?;
        let Err(error) = runner.run(connection.driver()) else { return Ok(()) };
        // Perhaps another process was faster.
        if newest_applied(connection, SQLITE_HISTORY)? == before {
            return Err(StoreError::Engine(format!("migrations: {error}")));
        }
    }
}

/// What a database is made of, and what its history of migrations says, without the statistics that
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
    runner(sqlite_texts())?
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
    newest_applied(connection, SQLITE_HISTORY)
}

/// Brings a PostgreSQL database to this program's schema. Refuses one that a newer program made.
pub(crate) fn postgres(connection: &mut Postgres) -> Result<(), StoreError> {
    let runner = runner(postgres_texts())?;
    let (mut tries, mut waits) = (1, 0);
    loop {
        refuse_newer(connection, POSTGRES_HISTORY)?;
        match connection.migrate(&runner) {
            Err(StoreError::Busy) if waits < WAITS_MAX => {
                if waits == 0 {
                    tracing::warn!(
                        "the schema is to be changed, and somebody has a table of it in use, such \
                         as pg_dump: waiting"
                    );
                }
                waits += 1;
                pause(WAIT_PAUSE);
            }
            Err(StoreError::Busy) => {
                return Err(StoreError::Engine(
                    "migrations: a table was in use for too long, perhaps by pg_dump: start again \
                     once that has ended"
                        .to_owned(),
                ));
            }
            Err(StoreError::Conflict(what)) if tries < TRIES_MAX => {
                tracing::debug!(what, "somebody else migrates too: trying again");
                tries += 1;
            }
            migrated => return migrated,
        }
    }
}

/// Refuses a database that a newer program made; else the number of its newest migration.
fn refuse_newer(connection: &mut dyn Connection, history: &str) -> Result<i64, StoreError> {
    let (applied, known) = (newest_applied(connection, history)?, newest_known());
    if applied > known {
        return Err(StoreError::Engine(format!(
            "the database has schema {applied} and this program knows schemas up to {known}; \
             start the newer program that made it"
        )));
    }
    Ok(applied)
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
    use crate::sqlite::Access;

    /// A row of the history that cannot be written stands for a crash just before it is.
    #[test]
    fn a_migration_is_made_with_its_row_of_the_history_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file =
            Sqlite::open(&folder.path().join("test.db"), Access::Write).expect("a database");
        let newest = MIGRATIONS.len();
        let known = runner(sqlite_texts().take(newest - 1)).expect("a runner");
        known.run(file.driver()).expect("all but the newest");
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

    #[test]
    fn no_list_of_values_has_more_than_two() {
        for (name, text) in sqlite_texts().chain(postgres_texts()) {
            for list in text.split(" in (").skip(1) {
                let (list, _) = list.split_once(')').expect("the end of a list");
                assert!(list.matches(',').count() < 2, "{name}: {list}");
            }
        }
    }
}
