//! New tables of a database in files: in a file beside the one with the tables, whose name it takes
//! when it is whole.
//!
//! The journal is locked as long as that takes, so that no process has the tables open when names
//! change. A crash leaves the former tables or the new ones under their name, or none of them: then
//! the new file is whole, and the next rebuild has only its name to give.

use std::path::{Path, PathBuf};

use super::file::{self, LOG_ENDINGS, beside, journal_of, remove, rename};
use super::{Access, Part, ROLLBACK_ENDING, Sqlite};
use crate::backup;
use crate::engine::NewTables;
use crate::error::StoreError;
use crate::journal::{End, tail};
use crate::keyring::Keyring;
use crate::migrate::{self, JOURNAL, TABLES};
use crate::rebuild;
use crate::sql::{Connection, transaction};

/// The ending behind the name of the tables of a file with new ones.
const NEW_ENDING: &str = ".rebuilt";

/// The ending behind the name of the tables of a file with former ones, which a number follows.
const FORMER_ENDING: &str = ".replaced-";

/// The tables that are being made, and the journal that they follow.
pub(super) struct Rebuilt {
    journal: Sqlite,
    /// The file with the new tables.
    new: PathBuf,
    /// The name that it is to have.
    tables: PathBuf,
}

impl Rebuilt {
    /// Goes on with new tables for the journal beside the file `tables`, or begins with them.
    pub(super) fn open(tables: &Path, keyring: &Keyring) -> Result<Self, StoreError> {
        let mut journal = Sqlite::open(&journal_of(tables), Access::Alone)?;
        migrate::sqlite(&mut journal, &[&JOURNAL])?;
        rebuild::refuse_journal(&mut journal, keyring)?;
        // Behind a link is the file.
        let tables = tables.canonicalize().unwrap_or_else(|_| tables.to_owned());
        refuse_newer(&tables, &mut journal)?;
        let new = beside(&tables, NEW_ENDING);
        let applied = begun(&new);
        if !applied.is_ok_and(|applied| tail::has(&mut journal, applied).is_ok_and(|has| has)) {
            // It is that of another journal, or was damaged: all in it can be made again.
            endings().try_for_each(|ending| remove(&beside(&new, ending)))?;
            begun(&new)?;
        }
        journal.attach(Part::Tables, &new, Access::Alone)?;
        Ok(Self { journal, new, tables })
    }

    /// Moves the former tables away, each file to a name that is free. Where they are then.
    fn move_former(&self) -> Result<Option<PathBuf>, StoreError> {
        if !endings().any(|ending| beside(&self.tables, ending).exists()) {
            return Ok(None);
        }
        let former = former_name(&self.tables);
        // The file itself goes last: without its log it would be taken for whole.
        for ending in endings() {
            let (from, to) = (beside(&self.tables, ending), beside(&former, ending));
            if from.symlink_metadata().is_ok() {
                rename(&from, &to)?;
            }
        }
        Ok(Some(former))
    }
}

impl NewTables for Rebuilt {
    fn connection(&mut self) -> &mut dyn Connection {
        &mut self.journal
    }

    fn keep(mut self: Box<Self>) -> Result<Option<PathBuf>, StoreError> {
        self.journal.detach(Part::Tables)?;
        backup::finish(&self.new)?;
        let former = self.move_former()?;
        rename(&self.new, &self.tables)?;
        Ok(former)
    }
}

/// The endings of the files of tables, theirs last.
fn endings() -> impl Iterator<Item = &'static str> {
    LOG_ENDINGS.into_iter().chain([ROLLBACK_ENDING, ""])
}

/// Makes a file with empty tables, or goes on with one that is there. The row that they follow.
fn begun(path: &Path) -> Result<End, StoreError> {
    let mut tables = Sqlite::open(path, Access::Write)?;
    migrate::sqlite(&mut tables, &[&TABLES])?;
    transaction(&mut tables, |tables| tail::begin_tables(tables))?;
    tail::applied(&mut tables)
}

/// Refuses a journal that lacks the row which readable tables follow: they have what it has lost.
fn refuse_newer(tables: &Path, journal: &mut Sqlite) -> Result<(), StoreError> {
    // Damaged tables say nothing.
    let Ok(mut former) = Sqlite::open(tables, Access::Read) else { return Ok(()) };
    if file::is_whole(&mut former).is_ok_and(|is_whole| is_whole) {
        return Err(StoreError::Engine(format!(
            "{} has a journal of its own, as a backup has: move it away to make the tables anew \
             from {}",
            tables.display(),
            journal_of(tables).display()
        )));
    }
    let Ok(applied) = tail::applied(&mut former) else { return Ok(()) };
    if tail::has(journal, applied)? {
        return Ok(());
    }
    Err(StoreError::Engine(format!(
        "the tables in {} follow row {} of a journal, which {} does not have: put the journal back \
         that belongs to them. To make the tables anew from this one all the same, move them away",
        tables.display(),
        applied.seq,
        journal_of(tables).display()
    )))
}

/// A name for former tables under which no file of theirs is written over. A part of them may have
/// it already, if a rebuild was stopped.
fn former_name(tables: &Path) -> PathBuf {
    let is_free = |name: &PathBuf| {
        let is_there = |path: PathBuf| path.symlink_metadata().is_ok();
        !is_there(name.clone())
            && !endings().any(|it| is_there(beside(tables, it)) && is_there(beside(name, it)))
    };
    let mut names = (1_u64..).map(|number| beside(tables, &format!("{FORMER_ENDING}{number}")));
    names.find(is_free).unwrap_or_else(|| beside(tables, FORMER_ENDING))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn former_tables_that_were_moved_in_part_keep_their_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let tables = folder.path().join("test.db");
        let put = |name: &str| fs::write(folder.path().join(name), name).expect("a file");
        let name = || former_name(&tables).file_name().map(|it| it.to_string_lossy().into_owned());
        put("test.db");
        assert_eq!(name().as_deref(), Some("test.db.replaced-1"));
        // Its log has gone before it, and a rebuild was stopped.
        put("test.db.replaced-1-wal");
        assert_eq!(name().as_deref(), Some("test.db.replaced-1"));
        // There is another log, which must not be written over the first.
        put("test.db-wal");
        assert_eq!(name().as_deref(), Some("test.db.replaced-2"));
        fs::remove_file(folder.path().join("test.db-wal")).expect("no file");
        put("test.db.replaced-1");
        assert_eq!(name().as_deref(), Some("test.db.replaced-2"));
    }
}
