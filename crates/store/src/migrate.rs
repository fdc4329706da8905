//! The schema: two tracks of migrations for every engine, one of the journal and one of the tables
//! that follow it.

use std::collections::{BTreeMap, BTreeSet};

use refinery::{Migration, Runner};

use crate::error::StoreError;
use crate::postgres::connection::Postgres;
use crate::sql::{Connection, Row, Value};
use crate::sqlite::Sqlite;

/// A track of migrations.
pub(crate) struct Track {
    /// The table with the history of those that were applied.
    history: &'static str,
    /// Every migration, oldest first: number with name, and text.
    migrations: &'static [(&'static str, &'static str)],
}

/// The tables that follow the journal.
pub(crate) static TABLES: Track = Track {
    history: "refinery_schema_history",
    migrations: &[
        ("V1__initial", include_str!("../migrations/tables/0001_initial.sql")),
        ("V2__estimates", include_str!("../migrations/tables/0002_estimates.sql")),
        ("V3__attention", include_str!("../migrations/tables/0003_attention.sql")),
        ("V4__nonces", include_str!("../migrations/tables/0004_nonces.sql")),
        ("V5__payment_hashes", include_str!("../migrations/tables/0005_payment_hashes.sql")),
        ("V6__wide_counters", include_str!("../migrations/tables/0006_wide_counters.sql")),
        ("V7__uma_domains", include_str!("../migrations/tables/0007_uma_domains.sql")),
        ("V8__outdated_lookups", include_str!("../migrations/tables/0008_outdated_lookups.sql")),
        ("V9__sealed_rows", include_str!("../migrations/tables/0009_sealed_rows.sql")),
    ],
};

/// The journal, and what its writer keeps beside it.
pub(crate) static JOURNAL: Track = Track {
    history: "journal_schema_history",
    migrations: &[("V1__initial", include_str!("../migrations/journal/0001_initial.sql"))],
};

/// Both tracks.
pub(crate) static TRACKS: [&Track; 2] = [&TABLES, &JOURNAL];

/// The meaning of the migrations' tokens in SQLite.
const SQLITE_TOKENS: [(&str, &str); 8] = [
    ("{int8}", "integer"),
    ("{bytes}", "blob"),
    ("{text}", "text"),
    ("{strict}", "strict, without rowid"),
    ("{wide}", "strict"),
    ("{grows}", ""),
    ("{no_hash}", "zeroblob(32)"),
    ("{postgres}", "-- "),
];

/// Their meaning in PostgreSQL. Text is compared byte by byte, as SQLite does it, whatever language
/// the database has. Pages are filled: half empty ones for the second version of each row would
/// save nothing that could be measured, and stay half empty.
///
/// Tables that grow are analyzed once they have twice the rows. Out of the box a tenth is enough,
/// which in a young table is each minute. It takes seconds of a core, and no plan of ours changes
/// by it (docs/performance.md).
const POSTGRES_TOKENS: [(&str, &str); 8] = [
    ("{int8}", "bigint"),
    ("{bytes}", "bytea"),
    ("{text}", "text collate \"C\""),
    ("{strict}", ""),
    ("{wide}", ""),
    (
        "{grows}",
        "with (autovacuum_analyze_scale_factor = 1, autovacuum_analyze_threshold = 100000)",
    ),
    ("{no_hash}", "decode(repeat('00', 32), 'hex')"),
    ("{postgres}", ""),
];

/// A text with the meanings of its tokens.
fn replaced(text: &str, tokens: &[(&str, &str)]) -> String {
    tokens.iter().fold(text.to_owned(), |text, (token, meaning)| text.replace(token, meaning))
}

/// Counts the tables with a name.
const SQLITE_TABLES: &str = "select count(*) from sqlite_master where name = $1";
const POSTGRES_TABLES: &str = "select count(to_regclass($1))";

impl Track {
    /// Every migration as an engine gets it.
    fn migrations(&self, tokens: &[(&str, &str)]) -> Result<Vec<Migration>, StoreError> {
        let migration = |(name, text): &(&str, &str)| {
            Migration::unapplied(name, &replaced(text, tokens))
                .map_err(|error| StoreError::Engine(format!("migration {name}: {error}")))
        };
        self.migrations.iter().map(migration).collect()
    }

    fn runner(&self, migrations: &[Migration]) -> Runner {
        let mut runner = Runner::new(migrations).set_abort_divergent(true).set_abort_missing(true);
        runner.set_migration_table_name(self.history);
        runner
    }

    /// The table with the history of the migrations that were applied.
    pub(crate) const fn history(&self) -> &'static str {
        self.history
    }

    /// The numbers of the migrations that were applied.
    pub(crate) fn applied(&self) -> String {
        format!("select version from {} order by version", self.history)
    }

    /// The number of the newest migration that this program knows.
    pub(crate) fn newest_known(&self) -> i64 {
        i64::try_from(self.migrations.len()).unwrap_or(i64::MAX)
    }
}

/// How often more than it has migrations a track is tried on a database that others migrate at the
/// same time. Each migration is in one transaction with its row of the history, so what one has
/// done the others find done: at worst, another server is faster with each.
const TRIES_MORE: usize = 4;

/// Brings a SQLite file that has these tracks to this program's schema. Refuses one that another
/// build made.
pub(crate) fn sqlite(connection: &mut Sqlite, tracks: &[&Track]) -> Result<(), StoreError> {
    for track in tracks {
        // One by one, the row of the history would be a commit of its own: after a crash between
        // the two, no start would get past a migration that was made already.
        let migrations = track.migrations(&SQLITE_TOKENS)?;
        let runner = track.runner(&migrations).set_grouped(true);
        loop {
            let before = track.refuse_other_builds(connection, SQLITE_TABLES, &migrations)?;
            let Err(error) = runner.run(connection.driver()) else { break };
            // Perhaps another process was faster.
            if track.newest_applied(connection, SQLITE_TABLES)? == before {
                return Err(StoreError::Engine(format!("migrations: {error}")));
            }
        }
    }
    Ok(())
}

/// The statements that read the tables and indexes of a file and its history of migrations, without
/// the statistics that the engine keeps for itself.
fn schema_of_file(file: &str, tracks: &[&Track]) -> Vec<String> {
    let mut all = vec![format!(
        "select type || ' ' || name, tbl_name || ': ' || coalesce(sql, '') \
         from {file}.sqlite_schema where name not like 'sqlite_stat%'"
    )];
    all.extend(tracks.iter().map(|Track { history, .. }| {
        format!("select '{history} ' || version, name || ' ' || checksum from {file}.{history}")
    }));
    all
}

/// Names every table, index and migration of a SQLite file with these tracks that is not as this
/// program makes it.
pub(crate) fn sqlite_differences(
    found: &rusqlite::Connection,
    file: &str,
    tracks: &[&Track],
) -> Result<Vec<String>, StoreError> {
    fn read(
        connection: &rusqlite::Connection,
        statements: Vec<String>,
    ) -> rusqlite::Result<BTreeMap<String, String>> {
        let mut all = BTreeMap::new();
        for sql in statements {
            let mut statement = connection.prepare(&sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                all.insert(row.get(0)?, row.get(1)?);
            }
        }
        Ok(all)
    }
    let failed = |error: rusqlite::Error| StoreError::Engine(format!("the schema: {error}"));
    let mut made = rusqlite::Connection::open_in_memory().map_err(failed)?;
    for track in tracks {
        let runner = track.runner(&track.migrations(&SQLITE_TOKENS)?);
        runner
            .run(&mut made)
            .map_err(|error| StoreError::Engine(format!("migrations: {error}")))?;
    }
    let made = read(&made, schema_of_file("main", tracks)).map_err(failed)?;
    let found = read(found, schema_of_file(file, tracks)).map_err(failed)?;
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

/// The number of the newest migration of a track in a SQLite file; 0 for an empty one.
pub(crate) fn sqlite_schema(connection: &mut Sqlite, track: &Track) -> Result<i64, StoreError> {
    track.schema_of(connection, SQLITE_TABLES, &track.migrations(&SQLITE_TOKENS)?)
}

/// Whether a SQLite file has a schema of a track.
pub(crate) fn sqlite_has(connection: &mut Sqlite, track: &Track) -> Result<bool, StoreError> {
    Ok(track.newest_applied(connection, SQLITE_TABLES)? > 0)
}

/// Brings a PostgreSQL database to this program's schema. Refuses one that another build made.
pub(crate) fn postgres(connection: &mut Postgres) -> Result<(), StoreError> {
    TRACKS.iter().try_for_each(|track| postgres_track(connection, track))
}

/// The same for one track.
pub(crate) fn postgres_track(connection: &mut Postgres, track: &Track) -> Result<(), StoreError> {
    let migrations = track.migrations(&POSTGRES_TOKENS)?;
    let runner = track.runner(&migrations);
    let mut tries = 1;
    loop {
        let migrated = match track.refuse_other_builds(connection, POSTGRES_TABLES, &migrations) {
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
            Err(StoreError::Conflict(what)) if tries < track.migrations.len() + TRIES_MORE => {
                tracing::debug!(what, "another server migrates too: trying again");
                tries += 1;
            }
            migrated => return migrated,
        }
    }
}

/// Whether a PostgreSQL database has the tables of the first migration.
pub(crate) fn has_schema(connection: &mut Postgres) -> Result<bool, StoreError> {
    Ok(JOURNAL.newest_applied(connection, POSTGRES_TABLES)? > 0)
}

impl Track {
    /// Refuses a database that an earlier build or a newer program made; else the number of its
    /// newest migration.
    fn refuse_other_builds(
        &self,
        connection: &mut dyn Connection,
        tables: &str,
        migrations: &[Migration],
    ) -> Result<i64, StoreError> {
        let applied = self.schema_of(connection, tables, migrations)?;
        let known = self.newest_known();
        if applied > known {
            return Err(StoreError::Engine(format!(
                "the database has schema {applied} and this program knows schemas up to {known}; \
                 start the newer program that made it"
            )));
        }
        Ok(applied)
    }

    /// The number of the newest migration. Nothing was released before the first one of this
    /// program: a database that has another one under its number cannot be brought up to date.
    fn schema_of(
        &self,
        connection: &mut dyn Connection,
        tables: &str,
        migrations: &[Migration],
    ) -> Result<i64, StoreError> {
        let applied = self.newest_applied(connection, tables)?;
        if applied > 0 && !self.is_of_this_program(connection, migrations)? {
            return Err(StoreError::Engine(
                "the database was made by an earlier build of Switchyard, which this one cannot \
                 read; start with an empty database"
                    .to_owned(),
            ));
        }
        Ok(applied)
    }

    /// Whether the first migration that was applied is the one of this program.
    fn is_of_this_program(
        &self,
        connection: &mut dyn Connection,
        migrations: &[Migration],
    ) -> Result<bool, StoreError> {
        let sql = format!("select checksum from {} where version = 1", self.history);
        let first = connection.first(&sql, &[], (self.history, &["checksum"]), Row::text)?;
        Ok(first == migrations.first().map(|migration| migration.checksum().to_string()))
    }

    /// The number of the newest migration in the database; 0 for an empty one.
    fn newest_applied(
        &self,
        connection: &mut dyn Connection,
        tables: &str,
    ) -> Result<i64, StoreError> {
        let name = [Value::from(self.history)];
        if connection.first(tables, &name, (self.history, &["count"]), Row::int)? == Some(0) {
            return Ok(0);
        }
        let newest = format!("select coalesce(max(version), 0) from {}", self.history);
        let columns = (self.history, &["version"][..]);
        Ok(connection.first(&newest, &[], columns, Row::int)?.unwrap_or(0))
    }
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
        let newest = TABLES.migrations.len();
        let known = &TABLES.migrations(&SQLITE_TOKENS).expect("migrations")[..newest - 1];
        TABLES.runner(known).run(file.driver()).expect("all but the newest");
        let refuse = format!(
            "create trigger crash before insert on refinery_schema_history \
             when new.version = {newest} begin select raise(abort, 'crash'); end"
        );
        file.driver().execute_batch(&refuse).expect("a trigger");
        let error = sqlite(&mut file, &[&TABLES]).expect_err("the history takes no row");
        assert!(error.to_string().contains("crash"), "{error}");
        file.driver().execute_batch("drop trigger crash").expect("no trigger");
        let known = TABLES.newest_known();
        assert_eq!(sqlite_schema(&mut file, &TABLES).expect("a number"), known - 1);
        sqlite(&mut file, &[&TABLES]).expect("the newest, which is not half there");
        assert_eq!(sqlite_schema(&mut file, &TABLES).expect("a number"), known);
    }
}
