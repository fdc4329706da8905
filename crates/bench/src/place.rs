//! Where databases are made that are measured and thrown away.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use store::engine::Engine as _;
use store::sql::Value;
use store::{SqliteFile, journal_of};

use crate::counters::{Counters, TABLE_BYTES, TREES};
use crate::postgres::Cluster;

/// The file of an embedded database, in a folder of its own.
const FILE: &str = "bench.db";

/// A kind of database.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// The embedded one.
    Sqlite,
    /// A server of its own.
    Postgres,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        })
    }
}

/// Makes databases of one engine.
pub enum Ground {
    /// Files in a folder.
    Sqlite(PathBuf),
    /// Databases of a cluster.
    Postgres(Cluster),
}

impl Ground {
    /// Of which engine.
    pub fn engine(&self) -> Engine {
        match self {
            Self::Sqlite(_) => Engine::Sqlite,
            Self::Postgres(_) => Engine::Postgres,
        }
    }

    /// A database that does not exist yet; what has its name from an earlier run is removed.
    pub fn fresh(&self, name: &str) -> Result<Place> {
        let site = self.site(name)?;
        site.remove()?;
        match &site {
            Site::Sqlite { folder } => std::fs::create_dir_all(folder)?,
            Site::Postgres { cluster, name } => cluster.create(name)?,
        }
        Ok(Place { site, is_kept: false })
    }

    /// The database that an earlier run has kept under this name.
    pub fn kept(&self, name: &str) -> Result<Option<Place>> {
        let site = self.site(name)?;
        let is_there = match &site {
            Site::Sqlite { folder } => folder.exists(),
            Site::Postgres { cluster, name } => cluster.has(name)?,
        };
        Ok(is_there.then_some(Place { site, is_kept: true }))
    }

    /// The counters of the database's server now; none of an embedded database.
    pub fn counters(&self) -> Result<Counters> {
        match self {
            Self::Sqlite(_) => Ok(Counters::default()),
            Self::Postgres(cluster) => cluster.counters(),
        }
    }

    fn site(&self, name: &str) -> Result<Site> {
        Ok(match self {
            Self::Sqlite(folder) => Site::Sqlite { folder: folder.canonicalize()?.join(name) },
            Self::Postgres(cluster) => {
                let name = format!("switchyard_bench_{}", name.replace('-', "_"));
                Site::Postgres { cluster: cluster.clone(), name }
            }
        })
    }
}

/// A database for a server. It is removed when the place is dropped, unless it is kept.
pub struct Place {
    site: Site,
    is_kept: bool,
}

enum Site {
    /// A folder with the files of one database, and nothing else.
    Sqlite { folder: PathBuf },
    /// A database of a cluster.
    Postgres { cluster: Cluster, name: String },
}

impl Site {
    fn remove(&self) -> Result<()> {
        match self {
            Self::Sqlite { folder } => remove(folder),
            Self::Postgres { cluster, name } => cluster.remove(name),
        }
    }
}

impl Place {
    /// The value of `--database-url`.
    pub fn url(&self) -> String {
        match &self.site {
            Site::Sqlite { folder } => format!("sqlite://{}", folder.join(FILE).display()),
            Site::Postgres { cluster, name } => cluster.url_of(name),
        }
    }

    /// Bytes on disk, all included. An embedded database must have no connections.
    pub fn bytes(&self) -> Result<u64> {
        match &self.site {
            Site::Sqlite { folder } => {
                let mut bytes = 0;
                for entry in std::fs::read_dir(folder)? {
                    bytes += entry?.metadata()?.len();
                }
                Ok(bytes)
            }
            Site::Postgres { cluster, name } => cluster.bytes_of(name),
        }
    }

    /// The size of each table, and what there is to know of its B-trees. An embedded database must
    /// have no connections.
    pub fn tables(&self) -> Result<Counters> {
        /// A table in the order of its key has no index for it.
        const TREES_OF: &str = "select tbl_name, count(*) from sqlite_schema where rootpage > 0 \
            group by tbl_name";
        const BYTES_OF: &str = "select coalesce(tbl_name, d.name), sum(pgsize) from dbstat d \
            left join sqlite_schema s on s.name = d.name group by 1";
        match &self.site {
            Site::Postgres { cluster, name } => cluster.tables_of(name),
            Site::Sqlite { folder } => {
                let file = folder.join(FILE);
                let mut connection = SqliteFile::new(&file).auditor()?;
                let mut counters = Counters::default();
                for (sql, name) in [(TREES_OF, TREES), (BYTES_OF, TABLE_BYTES)] {
                    connection.query(sql, &[], 2, &mut |values| {
                        if let [Value::Text(table), Value::Int(count)] = &*values {
                            counters.add_of_table(name, table, *count as f64);
                        }
                        Ok(())
                    })?;
                }
                let journal = std::fs::metadata(journal_of(&file))?.len();
                counters.add_of_table(TABLE_BYTES, "journal", journal as f64);
                Ok(counters)
            }
        }
    }

    /// Keeps it for later runs, under a name that only a database that is ready has. Nothing may be
    /// connected to it.
    pub fn keep_as(mut self, ground: &Ground, name: &str) -> Result<Self> {
        let site = ground.site(name)?;
        match (&self.site, &site) {
            (Site::Sqlite { folder }, Site::Sqlite { folder: kept }) => {
                std::fs::rename(folder, kept)?;
            }
            (Site::Postgres { cluster, name }, Site::Postgres { name: kept, .. }) => {
                cluster.rename(name, kept)?;
            }
            _ => bail!("a database of one engine cannot be kept as one of another"),
        }
        self.site = site;
        self.is_kept = true;
        Ok(self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Err(error) = self.site.remove() {
            eprintln!("a database of the benchmark was left behind: {error:#}");
        }
    }
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
