//! `switchyard key`: other keys in the place of those that a database has.

use std::path::Path;

use adapters::entropy::SystemEntropy;
use ports::entropy::Entropy as _;
use serde_json::json;
use store::keyring::Keyring;
use store::server_key::{self, Key, Step};

use super::{Done, keep, origin};
use crate::command::Failure;
use crate::config::{Config, KeyCommand, KeySource, RotateKey};
use crate::keyfile::{self, KEY_BYTES};
use crate::wiring;

/// `switchyard key …`.
pub fn run(config: &Config, command: &KeyCommand) -> Result<u8, Failure> {
    let name = match command {
        KeyCommand::Rotate(_) => "key rotate",
        KeyCommand::RotateJournal => "key rotate-journal",
    };
    wiring::refuse_missing(&config.database, "--database-url")?;
    let missing = wiring::missing_key;
    let key = wiring::key(&config.key)?.ok_or_else(missing)?;
    let keyring = wiring::keyring(&config.database, &config.key)?.ok_or_else(missing)?;
    let done = match command {
        KeyCommand::Rotate(options) => rotate(config, options, &key, &keyring, name),
        KeyCommand::RotateJournal => rotate_journal(config, &keyring, name),
    };
    done?.tell(name)
}

/// Replaces the server's key.
fn rotate(
    config: &Config,
    options: &RotateKey,
    old: &Key,
    keyring: &Keyring,
    name: &str,
) -> Result<Done, Failure> {
    let keep_old = |path: &Path| match options.discard_old_key {
        true => Ok(None),
        false => keyfile::keep_old(path, old).map(Some),
    };
    let (path, kept) = match (&options.new_key_file, &config.key) {
        (Some(path), _) => {
            let new = keyfile::load_or_create(path, |key| SystemEntropy.fill(key))?;
            if new == *old {
                return Err(Failure::new(format!(
                    "the key in {} is the one that opens {} now: name a file with another key, or \
                     one that is not there yet",
                    path.display(),
                    config.database
                ))
                .as_usage());
            }
            let kept = keep_old(path)?;
            replace(config, (old, old, &new), Step::NewOnly)?;
            (path, kept)
        }
        (None, KeySource::File(path)) => {
            let mut new = [0; KEY_BYTES];
            SystemEntropy.fill(&mut new);
            let kept = keep_old(path)?;
            // Whatever dies on the way, the key in the file opens the database.
            replace(config, (old, old, &new), Step::Both)?;
            keyfile::replace(path, &new)?;
            replace(config, (&new, old, &new), Step::NewOnly)?;
            (path, kept)
        }
        (None, KeySource::Given(_)) => {
            return Err(Failure::new(
                "the key was given by SWITCHYARD_SECRET_KEY: say with --new-key-file where the \
                 new one is, or is to be put",
            )
            .as_usage());
        }
    };
    keep(name, &config.database, keyring)?;
    if options.discard_old_key {
        keyfile::discard_old(path)?;
    }
    Ok(done(config, path, kept.as_deref()))
}

fn replace(config: &Config, keys: (&Key, &Key, &Key), step: Step) -> Result<(), Failure> {
    let replaced = server_key::replace(&*config.database.engine(), keys, step);
    replaced.map_err(|error| wiring::failed(&config.database, error))
}

fn done(config: &Config, path: &Path, kept: Option<&Path>) -> Done {
    let (database, path) = (config.database.to_string(), path.display().to_string());
    let kept = kept.map(|path| path.display().to_string());
    let of_old = match &kept {
        Some(kept) => format!(
            "The old key is in {kept}.\nBackups that were made before open with it: restore and \
             verify find it there. --discard-old-key\nremoves it."
        ),
        None => {
            "No old key is kept beside it: backups that were made before cannot be read without \
                 one.\nA key file that was named with --key-file is as it was."
                .to_owned()
        }
    };
    let text = format!(
        "{database} opens with the new key in {path} only\n\n\
         Keep a copy of it apart from the database. Servers that run go on; give the new key to \
         every\nserver before it starts again.\n\n{of_old}\n\n\
         A thief with the old key and a copy from before can still read that copy, and with what is \
         in it\nlater copies too: docs/operating.md says why.\n"
    );
    let value = json!({ "keyFile": path, "oldKeyFile": kept });
    Done { text, value, changed: Some(database) }
}

/// Gives the journal another key.
fn rotate_journal(config: &Config, keyring: &Keyring, name: &str) -> Result<Done, Failure> {
    server_key::replace_journal_key(&*config.database.engine(), keyring, origin(name))
        .map_err(|error| wiring::failed(&config.database, error))?;
    let database = config.database.to_string();
    let text = format!("the journal of {database} is sealed with a new key from now on\n");
    Ok(Done { text, value: json!({}), changed: Some(database) })
}
