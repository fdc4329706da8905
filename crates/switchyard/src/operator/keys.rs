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
    let path = match (&options.new_key_file, &config.key) {
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
            replace(config, (old, old, &new), Step::NewOnly)?;
            path
        }
        (None, KeySource::File(path)) => {
            let mut new = [0; KEY_BYTES];
            SystemEntropy.fill(&mut new);
            // Whatever dies on the way, the key in the file opens the database.
            replace(config, (old, old, &new), Step::Both)?;
            keyfile::replace(path, &new)?;
            replace(config, (&new, old, &new), Step::NewOnly)?;
            path
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
    Ok(done(config, path))
}

fn replace(config: &Config, keys: (&Key, &Key, &Key), step: Step) -> Result<(), Failure> {
    let replaced = server_key::replace(&*config.database.engine(), keys, step);
    replaced.map_err(|error| wiring::failed(&config.database, error))
}

fn done(config: &Config, path: &Path) -> Done {
    let (database, path) = (config.database.to_string(), path.display().to_string());
    let text = format!(
        "{database} opens with the new key in {path} only\n\n\
         Keep a copy of it apart from the database. Servers that run go on; give the new key to \
         every\nserver before it starts again. Keep the old key for as long as you keep backups \
         that were made\nbefore.\n"
    );
    Done { text, value: json!({ "keyFile": path }), changed: Some(database) }
}

/// Gives the journal another key.
fn rotate_journal(config: &Config, keyring: &Keyring, name: &str) -> Result<Done, Failure> {
    server_key::replace_journal_key(&*config.database.engine(), keyring, origin(name))
        .map_err(|error| wiring::failed(&config.database, error))?;
    let database = config.database.to_string();
    let text = format!("the journal of {database} is sealed with a new key from now on\n");
    Ok(Done { text, value: json!({}), changed: Some(database) })
}
