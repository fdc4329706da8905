//! Copies that are not finished: they have a name until they are, and must be gone when the process
//! that makes them is, however it ended.
//!
//! A second process waits for the end of the first one and removes what is left. Where that one was
//! killed too, the next copy into the folder removes it: an unfinished copy is locked by the
//! process that makes it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::NamedTempFile;

use crate::files::{SIDE_FILES, beside};

/// How the names of unfinished copies begin.
const PREFIX: &str = ".switchyard-copy-";

/// The argument that makes a process wait and remove. It is no command: no operator needs it.
const WATCH: &str = "--remove-unfinished-copy";

/// The copy has got its name: there is nothing to remove.
const KEPT: u8 = b'k';

/// A file that only its owner can read, and that is gone when it was not kept.
#[derive(Debug)]
pub struct Scratch {
    file: NamedTempFile<File>,
    watcher: Option<Child>,
}

impl Scratch {
    /// A new one in the folder, with a process that removes it should this one be killed. Leftovers
    /// of others there are removed.
    ///
    /// # Errors
    ///
    /// If none can be made there.
    pub fn new(folder: &Path) -> io::Result<Self> {
        Self::made(folder, |path| {
            watcher(path)
                .inspect_err(|error| tracing::warn!(%error, "no watcher: a killed copy stays"))
                .ok()
        })
    }

    /// Like [`Scratch::new`], for what takes milliseconds: what a kill leaves is removed by the
    /// next one in the folder.
    ///
    /// # Errors
    ///
    /// If none can be made there.
    pub fn brief(folder: &Path) -> io::Result<Self> {
        Self::made(folder, |_| None)
    }

    fn made(folder: &Path, mut watch: impl FnMut(&Path) -> Option<Child>) -> io::Result<Self> {
        sweep(folder);
        let mut watcher = None;
        let file = tempfile::Builder::new().prefix(PREFIX).make_in(folder, |path| {
            if path.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            // It waits before there is something to remove, so that no kill comes too early.
            watcher = watch(path);
            let file =
                owners(File::options().read(true).write(true).create_new(true)).open(path)?;
            // No other process knows the name yet, so that this cannot be refused.
            let _ = file.try_lock();
            Ok(file)
        })?;
        Ok(Self { file, watcher })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Gives it its name, unless that is taken.
    ///
    /// # Errors
    ///
    /// If there is something of that name, or it cannot be given.
    pub fn keep(self, path: &Path) -> io::Result<()> {
        let Self { file, watcher } = self;
        file.persist_noclobber(path).map_err(|error| error.error)?;
        if let Some(mut watcher) = watcher {
            if let Some(mut input) = watcher.stdin.take() {
                // One that has ended has found nothing to remove.
                let _ = input.write_all(&[KEPT]);
            }
            let _ = watcher.wait();
        }
        Ok(())
    }
}

/// The same options for a file that only its owner can use.
fn owners(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Starts a process that outlives this one, also where a whole group of processes is ended.
fn watcher(file: &Path) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(WATCH).arg(file);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn()
}

/// The file that a process is to wait for, if it was started to wait.
pub fn watched(arguments: &[OsString]) -> Option<&OsStr> {
    match arguments {
        [_, word, file] if word == WATCH => Some(file),
        _ => None,
    }
}

/// Waits for the end of the process that makes the copy, and removes it unless it was kept.
pub fn watch(file: &OsStr) {
    let mut said = Vec::new();
    // The pipe ends with the process, whatever ended it.
    let _ = io::stdin().read_to_end(&mut said);
    let path = Path::new(file);
    let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    if is_ours && said != [KEPT] {
        remove(path);
    }
}

fn remove(path: &Path) {
    for ending in SIDE_FILES.into_iter().chain([""]) {
        // Most of them are not there.
        let _ = std::fs::remove_file(beside(path, ending));
    }
}

/// Removes copies that no process makes any more.
fn sweep(folder: &Path) {
    let Ok(entries) = folder.read_dir() else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
        let is_main = name.starts_with(PREFIX) && !SIDE_FILES.iter().any(|it| name.ends_with(it));
        if is_main && File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn leftovers_are_removed_and_folders_in_use_stay() {
        let folder = tempfile::tempdir().unwrap();
        let stale = folder.path().join(".switchyard-copy-abc");
        for ending in ["", "-wal", "-journal"] {
            std::fs::write(beside(&stale, ending), "left").unwrap();
        }
        let made = File::create(folder.path().join(".switchyard-copy-def")).unwrap();
        made.try_lock().unwrap();
        std::fs::write(folder.path().join("other"), "kept").unwrap();
        sweep(folder.path());
        let mut left = names(folder.path());
        left.sort();
        assert_eq!(left, [".switchyard-copy-def", "other"]);
    }

    #[test]
    fn only_an_unfinished_copy_is_waited_for() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(watched(&words(&["switchyard", WATCH, "x"])), Some(OsStr::new("x")));
        for other in [&["switchyard"][..], &["switchyard", WATCH], &["switchyard", "serve", "x"]] {
            assert_eq!(watched(&words(other)), None, "{other:?}");
        }
    }
}
