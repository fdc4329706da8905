//! A database for one test, on the engine that the run is about.

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::postgres::Database;

/// Names the engine of a run: `sqlite`, which it is if nothing is said, or `postgres`.
pub const ENGINE_VARIABLE: &str = "SWITCHYARD_TEST_ENGINE";

/// Makes a database of ours, on either engine, look like one of an earlier build: its first
/// migration was another one.
pub const AS_EARLIER_BUILD: &str = "update refinery_schema_history set checksum = '1'";

/// An empty database, which goes with the value.
#[derive(Debug)]
pub enum Place {
    /// A file in a folder of its own.
    Sqlite(TempDir),
    /// A database on the server that all tests of a run share.
    Postgres(Database),
}

impl Place {
    /// A database on the engine that [`ENGINE_VARIABLE`] names.
    ///
    /// # Panics
    ///
    /// If it names none, or the engine makes no database: a test cannot go on without.
    pub fn fresh() -> Self {
        Self::on(&std::env::var(ENGINE_VARIABLE).unwrap_or_default())
            .expect("the engine makes a database")
    }

    fn on(engine: &str) -> Result<Self> {
        match engine {
            "" | "sqlite" => Ok(Self::Sqlite(TempDir::new()?)),
            "postgres" => Ok(Self::Postgres(Database::fresh())),
            _ => bail!("{ENGINE_VARIABLE} is {engine}, and must be sqlite or postgres"),
        }
    }

    /// Arguments by which the server opens it.
    pub fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite://{}", folder.path().join("test.db").display()),
            Self::Postgres(database) => database.url(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_one_that_there_is() {
        let url = Place::on("").expect("a file").url();
        assert!(url.starts_with("sqlite:///") && url.ends_with("/test.db"), "{url}");
        let error = Place::on("oracle").expect_err("there is none");
        assert!(error.to_string().contains("must be sqlite or postgres"), "{error}");
    }
}
