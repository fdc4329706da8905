//! Files appear whole and durable or not at all, and only their owner can read them.

use std::io;
use std::path::{Path, PathBuf};

/// The endings of the files beside that of a database: its journal, and those of SQLite beside the
/// two while they are in use or were not closed.
pub const SIDE_FILES: [&str; 7] =
    [".journal", "-wal", "-shm", "-journal", ".journal-wal", ".journal-shm", ".journal-journal"];

/// Permissions that only the owner needs.
#[cfg(unix)]
const OF_OTHERS: u32 = 0o077;

/// Lets every file that this process makes from now on be its owner's only, whatever the shell that
/// started it says: database, log, key, lock and backup hold what others must not read.
pub fn keep_to_owner() {
    #[cfg(unix)]
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
}

/// Takes a database away from others who could read it: an older release or a copy has left it to
/// them. One that cannot be changed is warned about.
pub fn take_from_others(database: &Path) {
    #[cfg(unix)]
    for path in SIDE_FILES.into_iter().chain([""]).map(|ending| beside(database, ending)) {
        use std::os::unix::fs::PermissionsExt as _;
        let Ok(mode) = path.metadata().map(|file| file.permissions().mode()) else { continue };
        if mode & OF_OTHERS == 0 {
            continue;
        }
        let own = std::fs::Permissions::from_mode(mode & 0o7777 & !OF_OTHERS);
        let path_shown = path.display();
        match std::fs::set_permissions(&path, own) {
            Ok(()) => tracing::info!(path = %path_shown, "only its owner can use the file now"),
            Err(error) => tracing::warn!(
                path = %path_shown, %error,
                "other users of this machine can read the file: run chmod 600 on it"
            ),
        }
    }
}

/// The folder that a file is in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// The path with something behind its name.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    PathBuf::from(path)
}

/// Puts the names in a folder on the disk. Without this, a power cut could take the name of a file
/// whose contents are there.
#[cfg(unix)]
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

/// Puts the names in a folder on the disk, which this system does by itself.
#[cfg(not(unix))]
pub fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}
