//! Whether the files of a database still have their names.
//!
//! A file that was removed, renamed or replaced under a server still takes everything that is
//! written to it, and nothing of that is found again. So the writer looks at every name before it
//! answers a batch: one `stat` each, about a microsecond.
//!
//! It cannot tell a file that was changed where it lies.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// The files that a database has open, by name.
#[derive(Debug, Default)]
pub(crate) struct InPlace(Vec<(PathBuf, Identity)>);

/// The file behind a name.
#[derive(Debug, PartialEq, Eq)]
#[cfg(unix)]
struct Identity {
    device: u64,
    inode: u64,
}

/// The file behind a name, which the system does not let go while it is open.
#[derive(Debug, PartialEq, Eq)]
#[cfg(not(unix))]
struct Identity;

impl Identity {
    #[cfg(unix)]
    fn of(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let file = path.metadata()?;
        Ok(Self { device: file.dev(), inode: file.ino() })
    }

    #[cfg(not(unix))]
    fn of(path: &Path) -> io::Result<Self> {
        path.metadata().map(|_| Self)
    }
}

impl InPlace {
    /// The files under these names, all of which are open.
    pub(crate) fn of(paths: Vec<PathBuf>) -> Result<Self, StoreError> {
        let identified = |path: PathBuf| match Identity::of(&path) {
            Ok(identity) => Ok((path, identity)),
            Err(error) => Err(StoreError::Engine(format!("{}: {error}", path.display()))),
        };
        paths.into_iter().map(identified).collect::<Result<_, _>>().map(Self)
    }

    /// Refuses once a name is gone or has another file, and logs which.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        for (path, identity) in &self.0 {
            let fault = match Identity::of(path) {
                Ok(found) if found == *identity => continue,
                Ok(_) => "another file has its name".to_owned(),
                Err(error) => error.to_string(),
            };
            tracing::error!(
                file = %path.display(),
                fault,
                "database file removed, renamed or replaced while it was in use; the server stops, \
                 as nothing that it writes would be found again: put the file back or mount its \
                 volume, or move away what is left and run switchyard restore"
            );
            return Err(StoreError::FilesMoved);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_file_counts_only_under_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let names = ["a", "b", "link"];
        std::fs::write(path("a"), "").expect("a file");
        std::fs::write(path("b"), "").expect("a file");
        std::os::unix::fs::symlink("b", path("link")).expect("a link");
        let files = InPlace::of(names.map(path).into()).expect("they are there");
        assert_eq!(files.check(), Ok(()));
        let moves: [&dyn Fn(&str); 2] =
            [&|name| std::fs::remove_file(path(name)).expect("it is there"), &|name| {
                std::fs::write(path("other"), "").expect("a file");
                std::fs::rename(path("other"), path(name)).expect("it is replaced");
            }];
        for name in names {
            for change in moves {
                std::fs::rename(path(name), path("kept")).expect("it is moved");
                assert_eq!(files.check(), Err(StoreError::FilesMoved), "{name} moved");
                std::fs::write(path(name), "").expect("another");
                change(name);
                assert_eq!(files.check(), Err(StoreError::FilesMoved), "{name} changed");
                std::fs::rename(path("kept"), path(name)).expect("it is moved back");
                assert_eq!(files.check(), Ok(()), "{name} is back");
            }
        }
        InPlace::of(vec![path("none")]).expect_err("it is not there");
    }
}
