//! `switchyard backup`: a verified copy of the database, also while the server runs.

use crate::command::{Failure, emit, print};
use crate::config::{Backup, Config, EXIT_OK};
use crate::copies::{self, Use, checked, in_words};
use crate::progress::{Progress, seconds, size};
use crate::telemetry::log_change;
use crate::wiring;

/// Makes the backup and tells what is in it.
pub fn run(config: &Config, options: &Backup) -> Result<u8, Failure> {
    let mut progress = Progress::start();
    let from = copies::file_of(&config.database)?;
    wiring::refuse_missing(&config.database, "--database-url")?;
    copies::refuse_taken(&options.to)?;
    let keyring = wiring::keyring_if_there(&config.database, &config.key)?;
    let copy = copies::make(from, &options.to, keyring.as_ref(), Use::Backup, &mut progress)?;
    let (bytes, summary, checks) = (copy.bytes, copy.summary, checked(&copy.report));
    let described = copies::described(&options.to, bytes, summary, &copy.report);
    copy.keep(&options.to)?;
    log_change("backup", &config.database);
    emit(&described)?;
    print(&format!(
        "{to}: {size}, {held}; {checks}; took {time}\n\n\
         The key is not in it. Without the key, personal data, stored answers and tokens in it are \
         lost:\nkeep a copy of the key too, in another place than the backup.\n",
        to = options.to.display(),
        size = size(bytes),
        held = in_words(summary),
        time = seconds(progress.elapsed()),
    ))?;
    Ok(EXIT_OK)
}
