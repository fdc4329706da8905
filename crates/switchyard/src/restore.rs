//! `switchyard restore`: a database from a backup, and what to make good after it.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use store::journal_of;

use crate::command::{Failure, emit, print};
use crate::config::{Config, EXIT_OK, KeySource, Restore};
use crate::copies::{self, Older, checked, in_words};
use crate::database::Database;
use crate::files::beside;
use crate::keyfile;
use crate::operator;
use crate::progress::{Progress, seconds, size};
use crate::telemetry::log_change;
use crate::wiring;

/// Makes the database and tells what is not in it.
pub fn run(config: &Config, options: &Restore) -> Result<u8, Failure> {
    let mut progress = Progress::start();
    let (from, to) = (&options.from, copies::file_of(&config.database)?);
    if !from.metadata().is_ok_and(|file| file.len() > 0) {
        return Err(Failure::new(format!("there is no backup at {}", from.display())));
    }
    // A server that still runs would go on with files that were moved away under it.
    let held = config.database.hold()?;
    copies::refuse_taken(to)?;
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
    let copy = copies::make(from, to, Some(&keyring), Older::Upgraded, &mut progress)?;
    let has_old_key = found != key;
    if has_old_key {
        copy.reseal(&found, &key)?;
    }
    let (bytes, summary, checks) = (copy.bytes, copy.summary, checked(&copy.report));
    let mut described = copies::described(to, bytes, summary, &copy.report);
    described["lacksLog"] = is_bare.into();
    described["hadOldKey"] = has_old_key.into();
    copy.keep(to)?;
    operator::keep("restore", &config.database, &keyring)?;
    log_change("restore", &config.database);
    emit(&described)?;
    drop(held);
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
        size = size(bytes),
        held = in_words(summary),
        time = seconds(progress.elapsed()),
    );
    if has_old_key {
        text += &format!(
            "\nThe backup is from before the key was rotated: it opens with the old key {}, and the\n\
             database with the key of today.\n",
            keyfile::fingerprint(&found),
        );
    }
    if is_bare {
        text += &format!(
            "\n{} is not from switchyard backup but a copy of a database's main file. If a server \
             was\nrunning when it was copied, what its log (-wal) held is missing, and no check can \
             tell.\n",
            from.display()
        );
    }
    print(&text)?;
    Ok(EXIT_OK)
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
