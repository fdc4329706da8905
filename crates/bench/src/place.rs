//! Where databases are made that are measured and thrown away.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::postgres::Cluster;

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
        match self {
            Self::Sqlite(folder) => {
                let folder = folder.join(name);
                remove(&folder)?;
                std::fs::create_dir_all(&folder)?;
                Ok(Place::Sqlite { folder: folder.canonicalize()? })
            }
            Self::Postgres(cluster) => {
                let name = format!("switchyard_bench_{}", name.replace('-', "_"));
                cluster.recreate(&name)?;
                Ok(Place::Postgres { cluster: cluster.clone(), name })
            }
        }
    }
}

/// A database for a server. It is removed when the place is dropped.
pub enum Place {
    /// A folder with the files of one database.
    Sqlite {
        /// The folder, which has nothing else.
        folder: PathBuf,
    },
    /// A database of a cluster.
    Postgres {
        /// Where it is.
        cluster: Cluster,
        /// Its name.
        name: String,
    },
}

impl Place {
    /// What `--database-url` takes.
    pub fn url(&self) -> String {
        match self {
            Self::Sqlite { folder } => format!("sqlite://{}", folder.join("bench.db").display()),
            Self::Postgres { cluster, name } => cluster.url_of(name),
        }
    }

    /// Bytes on disk, all included. Nobody may be connected to an embedded database.
    pub fn bytes(&self) -> Result<u64> {
        match self {
            Self::Sqlite { folder } => {
                let mut bytes = 0;
                for entry in std::fs::read_dir(folder)? {
                    bytes += entry?.metadata()?.len();
                }
                Ok(bytes)
            }
            Self::Postgres { cluster, name } => cluster.bytes_of(name),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let removed = match self {
            Self::Sqlite { folder } => remove(folder),
            Self::Postgres { cluster, name } => cluster.remove(name),
        };
        if let Err(error) = removed {
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
