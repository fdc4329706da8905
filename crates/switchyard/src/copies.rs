//! Copies of a database file: made under a name of their own, verified, and only then called what
//! they are to be called.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use store::SqliteFile;
use store::backup::{
    Schema, Summary, bring_up_to_date, copy_file, keep_origin, project, reseal, schema, summary,
};
use store::error::StoreError;
use store::keyring::Keyring;
use store::origin::Origin;
use store::server_key::Key;
use store::verify::Report;

use crate::command::{Failure, emit, print};
use crate::database::Database;
use crate::files::{SIDE_FILES, beside, folder_of, sync_folder};
use crate::progress::{Progress, size};
use crate::scratch::Scratch;
use crate::verify::{self, human};

/// A copy that is whole, on the disk and sound. One that has no name yet goes when it gets none.
pub struct Copy {
    /// Where it is until it has its name.
    file: Option<Scratch>,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its currency.
    pub summary: Summary,
    /// The report of `verify`.
    pub report: Report,
}

/// The file of a database. One on a server is copied by its server's own tools.
pub fn file_of(database: &Database) -> Result<&Path, Failure> {
    match database {
        Database::Sqlite(path) => Ok(path),
        Database::Postgres(server) => Err(Failure::new(format!(
            "this command is for a database in a file, and {server} is on a server: use pg_dump or \
             pg_basebackup"
        ))
        .as_usage()),
    }
}

/// Refuses a name that is taken, also by what an earlier database of that name has left: SQLite
/// would take it for a part of the new one.
pub fn refuse_taken(path: &Path) -> Result<(), Failure> {
    let taken = |path: &PathBuf| path.symlink_metadata().is_ok();
    let names = [String::new()].into_iter().chain(SIDE_FILES.map(str::to_owned));
    match names.map(|ending| beside(path, &ending)).find(taken) {
        None => Ok(()),
        Some(taken) => Err(Failure::new(format!(
            "{} is there already and is never written over: choose another name, or move it away",
            taken.display()
        ))),
    }
}

/// The use of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// It is kept. A database that an older program made is refused: its keeper may want to go back
    /// to that program.
    Backup,
    /// It is served: an older one is brought to this program's schema, and the journal says who has
    /// made the database. It is there with that or not at all.
    Database(Origin),
}

/// Copies the database in the file `from` into the folder in which `to` is to be, and verifies the
/// copy. One that is not sound is not kept: its report is printed.
pub fn make(
    from: &Path,
    to: &Path,
    keyring: Option<&Keyring>,
    made_for: Use,
    progress: &mut Progress,
) -> Result<Copy, Failure> {
    let unwritable = |error: io::Error| {
        Failure::new(format!("{} cannot be written: {error}", folder_of(to).display()))
    };
    let failed = |error| match error {
        // The written file is the copy.
        StoreError::DiskFull => {
            Failure::new(format!("{}: the disk of the copy is full", folder_of(to).display()))
        }
        error => Failure::new(format!("{}: {error}", from.display())),
    };
    let Schema { is, known } = schema(from).map_err(failed)?;
    let is_older = (1..known).contains(&is);
    if is_older && made_for == Use::Backup {
        return Err(Failure::new(format!(
            "{} has schema {is} and this program has schema {known}: make the backup with the \
             program that serves it, or serve it with this one first",
            from.display()
        )));
    }
    let file = Scratch::new(folder_of(to)).map_err(unwritable)?;
    copy_file(from, file.path(), &mut |copied| {
        progress.tell_sometimes(|| {
            format!("copied {} of {}", size(copied.bytes), size(copied.of_bytes))
        });
    })
    .map_err(failed)?;
    if is_older {
        progress.tell(&format!("bringing the copy from schema {is} to {known}"));
        bring_up_to_date(file.path()).map_err(failed)?;
    }
    // Damaged tables may not be able to follow: the report says more about them than this error.
    let projected = keyring.map_or(Ok(()), |keyring| {
        if let Use::Database(origin) = made_for {
            keep_origin(file.path(), keyring, origin)?;
        }
        project(file.path(), keyring)
    });
    let bytes = file.path().metadata().map_err(unwritable)?.len();
    progress.tell(&format!("copied {}, verifying the copy", size(bytes)));
    let engine = SqliteFile::new(file.path());
    let report = store::verify::verify(&engine, keyring).map_err(failed)?;
    if !report.is_sound() {
        print(&human(&report))?;
        emit(&verify::json(&report))?;
        return Err(Failure::new(format!("{} is not sound, so no copy was kept", from.display())));
    }
    projected.map_err(failed)?;
    let summary = summary(&engine).map_err(failed)?;
    Ok(Copy { file: Some(file), bytes, summary, report })
}

/// A copy that has its name already: an earlier command came so far.
pub fn kept(path: &Path, keyring: &Keyring) -> Result<Copy, Failure> {
    let failed = |error: &dyn fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let bytes = path.metadata().map_err(|error| failed(&error))?.len();
    let engine = SqliteFile::new(path);
    let report = store::verify::verify(&engine, Some(keyring)).map_err(|error| failed(&error))?;
    if !report.is_sound() {
        print(&human(&report))?;
        emit(&verify::json(&report))?;
        return Err(failed(&"it was made before, and is not sound"));
    }
    let summary = summary(&engine).map_err(|error| failed(&error))?;
    Ok(Copy { file: None, bytes, summary, report })
}

impl Copy {
    /// Has a copy without a name open with another key than that which opens it.
    pub fn reseal(&self, old: &Key, new: &Key) -> Result<(), Failure> {
        let resealed = self.file.as_ref().map_or(Ok(()), |it| reseal(it.path(), old, new));
        resealed.map_err(|error| Failure::new(format!("the copy's new key: {error}")))
    }

    /// Gives the copy its name, on the disk.
    pub fn keep(self, path: &Path) -> Result<(), Failure> {
        let unwritable = |error: io::Error| {
            Failure::new(format!("{} cannot be written: {error}", path.display()))
        };
        self.file.map_or(Ok(()), |file| file.keep(path)).map_err(unwritable)?;
        sync_folder(folder_of(path)).map_err(unwritable)
    }
}

/// How many transactions there are and when the last of them changed.
pub fn in_words(summary: Summary) -> String {
    match summary.last_change {
        Some(time) => format!("{} transactions, the last change at {time}", summary.transactions),
        None => "no transactions".to_owned(),
    }
}

/// The JSON of a copy in the file at `path`.
pub fn described(path: &Path, bytes: u64, summary: Summary, report: &Report) -> Value {
    let skipped = report.checks.iter().filter(|check| check.skipped.is_some()).count();
    json!({
        "file": path.display().to_string(),
        "bytes": bytes,
        "transactions": summary.transactions,
        "lastChangeAt": summary.last_change.map(|time| time.to_string()),
        "checksHeld": report.checks.len() - skipped,
        "checksSkipped": skipped,
    })
}

/// How many checks held, and whether some could not be made.
pub fn checked(report: &Report) -> String {
    let skipped = report.checks.iter().filter(|check| check.skipped.is_some()).count();
    let hold = report.checks.len() - skipped;
    match skipped {
        0 => format!("all {hold} checks hold"),
        _ => format!("{hold} checks hold, {skipped} need the key, which was not given"),
    }
}
