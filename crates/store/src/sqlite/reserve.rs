//! A file of room that is given back when the disk is full, so that the tables can follow what was
//! acknowledged until then. Until it is whole again, no change is taken.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;

use crate::error::StoreError;
use crate::sqlite::file::beside;

/// The ending of the file's name behind that of the database.
pub const ENDING: &str = ".reserve";

/// Bytes that are kept: what a step of the projector takes at full load, several times over.
const BYTES: usize = 16 << 20;

/// Bytes that are written at a time.
const CHUNK: usize = 1 << 20;

/// The file. A file system that compresses keeps nothing for it; tables follow there once the disk
/// has room.
#[derive(Debug)]
pub struct Reserve(PathBuf);

impl Reserve {
    /// The reserve of the database in the file at `path`.
    pub fn beside(path: &std::path::Path) -> Self {
        Self(beside(path, ENDING))
    }

    /// Takes room of the disk, unless it is taken.
    pub fn keep(&self) -> Result<(), StoreError> {
        if self.0.metadata().is_ok_and(|file| file.len() == BYTES as u64) {
            return Ok(());
        }
        self.fill().map_err(|error| {
            self.free();
            match error.kind() {
                io::ErrorKind::StorageFull => StoreError::DiskFull,
                _ => StoreError::Engine(format!("{}: {error}", self.0.display())),
            }
        })
    }

    fn fill(&self) -> io::Result<()> {
        let mut file = File::create(&self.0)?;
        let chunk = vec![1; CHUNK];
        (0..BYTES / CHUNK).try_for_each(|_| file.write_all(&chunk))
    }

    /// Gives the room back.
    pub fn free(&self) {
        // It may not be there.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_kept_and_given_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.db");
        let length = || folder.path().join("a.db.reserve").metadata().map(|file| file.len());
        let reserve = Reserve::beside(&path);
        reserve.keep().expect("room");
        assert_eq!(length().expect("a file"), BYTES as u64);
        reserve.keep().expect("the same room");
        reserve.free();
        assert!(length().is_err());
        reserve.free();
    }
}
