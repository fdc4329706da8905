//! `switchyard restore`: a database from a backup, and what to make good after it.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use store::backup::{Summary, is_made_of};
use store::journal_of;
use store::server_key::Key;

use crate::command::{Failure, emit, print};
use crate::config::{Config, EXIT_OK, KeySource, Restore};
use crate::copies::{self, Use, checked, in_words};
use crate::database::Database;
use crate::files::beside;
use crate::keyfile;
use crate::operator;
use crate::progress::{Progress, seconds, size};
use crate::telemetry::log_change;
use crate::wiring;

/// The command, as the journal of the database names it.
const COMMAND: &str = "restore";

/// Makes the database and tells what is not in it.
pub fn run(config: &Config, options: &Restore) -> Result<u8, Failure> {
    let mut progress = Progress::start();
    let (from, to) = (&options.from, copies::file_of(&config.database)?);
    if !from.metadata().is_ok_and(|file| file.len() > 0) {
        return Err(Failure::new(format!("there is no backup at {}", from.display())));
    }
    // A server that still runs would go on with files that were moved away under it.
    let held = config.database.hold()?;
    let backup = Database::Sqlite(from.clone());
    let (Some(key), Some((found, keyring))) =
        (wiring::key(&config.key)?, wiring::keyring_of_copy(&backup, &config.key)?)
    else {
        let place = match &config.key {
            KeySource::File(path) => path.display().to_string(),
            KeySource::Given(_) => String::new(),
        };
        return Err(Failure::new(format!(
            "the key of the backup is not at {place}: put its copy there, or name it with \
             --key-file"
        )));
    };
    let is_bare = is_without_log(from) || is_without_log(&journal_of(from));
    // One that was killed when the database had its name has only to say so.
    let copy = if is_made_of(to, from, &keyring, COMMAND).is_ok_and(|is_made| is_made) {
        progress.tell("an earlier restore of this backup was finished: verifying it again");
        copies::kept(to, &keyring)?
    } else {
        copies::refuse_taken(to)?;
        let made_for = Use::Database(operator::origin(COMMAND));
        copies::make(from, to, Some(&keyring), made_for, &mut progress)?
    };
    let old_key = (found != key).then_some(found);
    if let Some(old_key) = &old_key {
        copy.reseal(old_key, &key)?;
    }
    let (bytes, summary, checks) = (copy.bytes, copy.summary, checked(&copy.report));
    let mut described = copies::described(to, bytes, summary, &copy.report);
    described["lacksLog"] = is_bare.into();
    described["hadOldKey"] = old_key.is_some().into();
    copy.keep(to)?;
    log_change(COMMAND, &config.database);
    emit(&described)?;
    drop(held);
    print(&in_full(from, to, &Made { bytes, summary, checks, is_bare, old_key }, &progress))?;
    Ok(EXIT_OK)
}

/// The database that was made.
struct Made {
    bytes: u64,
    summary: Summary,
    checks: String,
    /// Whether the backup may lack its log.
    is_bare: bool,
    /// The key that opened the backup, if the database has another.
    old_key: Option<Key>,
}

/// The outcome for people, with the payments to look after.
fn in_full(from: &Path, to: &Path, made: &Made, progress: &Progress) -> String {
    let mut text = format!(
        "{to}: {size}, {held}; {checks}; took {time}\n\n\
         What was answered after that time is not in it, and clients do not know:\n\
         - a payment whose id is not found was lost with the old database, while the rail may have\n\
         \x20 made it: compare the rail's statement from that time on;\n\
         - a client that asks again with its idempotency key is served as if for the first time, so\n\
         \x20 that a payment which the rail has made is made again: compare first, then let clients in;\n\
         - a payment that was under way then goes on: the rail is asked again with the same\n\
         \x20 instruction id, so it pays once;\n\
         - a token that was revoked after that time is valid again: switchyard token list.\n",
        to = to.display(),
        size = size(made.bytes),
        held = in_words(made.summary),
        checks = made.checks,
        time = seconds(progress.elapsed()),
    );
    if let Some(old_key) = &made.old_key {
        text += &format!(
            "\nThe backup is from before the key was rotated: it opens with the old key {}, and the\n\
             database with the key of today.\n",
            keyfile::fingerprint(old_key),
        );
    }
    if made.is_bare {
        text += &format!(
            "\n{} is not from switchyard backup but a copy of a database's main file. If a server \
             was\nrunning when it was copied, what its log (-wal) held is missing, and no check can \
             tell.\n",
            from.display()
        );
    }
    text
}

/// Where the header of a database file says whether there is a log beside it.
const LOG_FLAGS: std::ops::Range<usize> = 18..20;

/// Whether the file says that there is a log beside it, and there is none. A database that was
/// closed looks the same as a copy of an open one.
fn is_without_log(path: &Path) -> bool {
    let mut header = [0; LOG_FLAGS.end];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    let has_log = beside(path, "-wal").metadata().is_ok_and(|log| log.len() > 0);
    read.is_ok() && header[LOG_FLAGS] == [2, 2] && !has_log
}
