//! A PostgreSQL cluster that databases can be made in.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio_postgres::{Client, NoTls};

use crate::counters::{Counters, ENTRIES, LOG_BYTES, TABLE_BYTES};

/// The database that every cluster has, to make others from.
const MAINTENANCE_DATABASE: &str = "postgres";

/// Settings of a cluster of our own beside its defaults and full durability: what an operator
/// sets first. The report names it.
const SETTINGS: [(&str, &str); 4] = [
    ("shared_buffers", "1GB"),
    ("max_wal_size", "4GB"),
    ("min_wal_size", "4GB"),
    ("wal_compression", "lz4"),
];

/// Files that a log of this size has.
const LOG_FILES: usize = 256;

/// A running cluster, and the right to make databases in it.
#[derive(Debug, Clone)]
pub struct Cluster {
    url: String,
    /// Ends with the last handle.
    _own: Option<Arc<testbed::postgres::Cluster>>,
}

impl Cluster {
    /// The cluster behind `postgres://USER:PASSWORD@HOST:PORT/..`; which database is named does not
    /// matter.
    pub fn at(url: &str) -> Result<Self> {
        let cluster = Self { url: url.to_owned(), _own: None };
        cluster.settings().context("the cluster of --postgres-url does not answer")?;
        Ok(cluster)
    }

    /// A cluster of our own with its data below `folder`, from what is installed.
    pub fn start(folder: &Path) -> Result<Self> {
        // The usual place for temporary files may be in memory, where nothing is ever synced.
        let folder = folder.canonicalize()?;
        tempfile::env::override_temp_dir(&folder).ok().context("a temporary folder was made")?;
        let own = testbed::postgres::Cluster::start_with(&SETTINGS)?;
        let cluster = Self { url: own.server().url().to_owned(), _own: Some(Arc::new(own)) };
        cluster.fill_log()?;
        Ok(cluster)
    }

    /// Has the files of the log made, which are used again from then on: a cluster that has run for
    /// a while has them. Those of a new one are made within commits, which wait for each.
    fn fill_log(&self) -> Result<()> {
        blocking(async {
            let client = connect(&self.url_of(MAINTENANCE_DATABASE)).await?;
            // A file in which nothing is would be kept and not another begun.
            let next = "select pg_logical_emit_message(false, '', ''), pg_switch_wal()";
            for _ in 0..LOG_FILES {
                client.query_one(next, &[]).await?;
            }
            client.batch_execute("checkpoint").await.context("the log could not be filled")
        })
    }

    /// The URL of a database.
    pub fn url_of(&self, name: &str) -> String {
        with_database(&self.url, name)
    }

    /// Makes a database.
    pub fn create(&self, name: &str) -> Result<()> {
        self.run(&format!("create database {name}"))
    }

    /// Whether there is a database of this name.
    pub fn has(&self, name: &str) -> Result<bool> {
        blocking(async {
            let client = connect(&self.url_of(MAINTENANCE_DATABASE)).await?;
            let found = "select 1 from pg_database where datname = $1";
            Ok(client.query_opt(found, &[&name]).await?.is_some())
        })
    }

    /// Renames a database without connections.
    pub fn rename(&self, name: &str, other: &str) -> Result<()> {
        self.run(&format!("alter database {name} rename to {other}"))
    }

    /// Removes a database, if there is one, and ends its connections.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.run(&format!("drop database if exists {name} with (force)"))
    }

    /// Bytes of a database after a checkpoint. Nothing is vacuumed that would not be in production.
    pub fn bytes_of(&self, name: &str) -> Result<u64> {
        self.run("checkpoint")?;
        let bytes = blocking(async {
            let client = connect(&self.url_of(MAINTENANCE_DATABASE)).await?;
            Ok(client.query_one("select pg_database_size($1)", &[&name]).await?.get::<_, i64>(0))
        })?;
        Ok(u64::try_from(bytes)?)
    }

    /// The end of its log, and the processor time of its processes but this one.
    pub fn counters(&self) -> Result<Counters> {
        const LOG: &str = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8";
        const PROCESSES: &str =
            "select backend_type, pid from pg_stat_activity where pid <> pg_backend_pid()";
        blocking(async {
            let client = connect(&self.url_of(MAINTENANCE_DATABASE)).await?;
            let mut counters = Counters::default();
            counters.add(LOG_BYTES, client.query_one(LOG, &[]).await?.get(0));
            for row in client.query(PROCESSES, &[]).await? {
                counters.add_backend(row.get(0), row.get(1));
            }
            Ok(counters)
        })
    }

    /// The size of each table of a database, and the rows and index entries written to it.
    pub fn tables_of(&self, name: &str) -> Result<Counters> {
        const TABLES: &str = "select relname::text, pg_total_relation_size(relid)::float8, \
            (n_tup_ins + n_tup_upd + (n_tup_ins + n_tup_upd - n_tup_hot_upd) * indexes)::float8 \
            from pg_stat_user_tables cross join lateral \
            (select count(*) as indexes from pg_index where indrelid = relid) as found";
        blocking(async {
            let client = connect(&self.url_of(name)).await?;
            let mut counters = Counters::default();
            for row in client.query(TABLES, &[]).await? {
                let table = row.get(0);
                counters.add_of_table(TABLE_BYTES, table, row.get(1));
                counters.add_of_table(ENTRIES, table, row.get(2));
            }
            Ok(counters)
        })
    }

    /// The version, and the settings that decide about durability and speed.
    pub fn settings(&self) -> Result<Vec<(String, String)>> {
        const NAMES: [&str; 11] = [
            "server_version",
            "fsync",
            "synchronous_commit",
            "full_page_writes",
            "wal_sync_method",
            "commit_delay",
            "shared_buffers",
            "max_wal_size",
            "min_wal_size",
            "wal_compression",
            "autovacuum",
        ];
        blocking(async {
            let client = connect(&self.url_of(MAINTENANCE_DATABASE)).await?;
            let mut settings = Vec::new();
            for name in NAMES {
                let row = client.query_one("select current_setting($1)", &[&name]).await?;
                settings.push((name.to_owned(), row.get(0)));
            }
            Ok(settings)
        })
    }

    fn run(&self, sql: &str) -> Result<()> {
        blocking(async {
            let client = connect(&self.url_of(MAINTENANCE_DATABASE)).await?;
            client.batch_execute(sql).await.with_context(|| format!("on the cluster: {sql}"))
        })
    }
}

/// A connection, which a task of the same runtime serves until it is dropped.
pub async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        // The user of the connection gets the error as well.
        let _ = connection.await;
    });
    Ok(client)
}

/// Runs what talks to the database, apart from any measurement.
pub fn blocking<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// The same URL with another database.
fn with_database(url: &str, name: &str) -> String {
    let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
    let host_from = address.find("://").map_or(0, |at| at + 3);
    let host_to = address[host_from..].find('/').map_or(address.len(), |at| host_from + at);
    let parameters = if parameters.is_empty() { String::new() } else { format!("?{parameters}") };
    format!("{}/{name}{parameters}", &address[..host_to])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_of_a_url_changes() {
        let check = |url: &str, expected: &str| assert_eq!(with_database(url, "b"), expected);
        check("postgres://u:p@h:5432/a", "postgres://u:p@h:5432/b");
        check("postgres://u@h", "postgres://u@h/b");
        check("postgres://u@h/a?sslmode=disable", "postgres://u@h/b?sslmode=disable");
        check("postgres://u@%2Frun%2Fpg/a", "postgres://u@%2Frun%2Fpg/b");
    }
}
