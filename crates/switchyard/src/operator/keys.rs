//! `switchyard key`: other keys in the place of those that a database has.

use std::path::Path;
use std::time::Duration;

use adapters::entropy::SystemEntropy;
use ports::entropy::Entropy as _;
use serde_json::json;
use store::error::StoreError;
use store::keyring::Keyring;
use store::reseal::reseal;
use store::server_key::{self, Key, Step};

use super::{Done, keep, origin};
use crate::command::Failure;
use crate::config::{Config, KeyCommand, KeySource, RotateKey};
use crate::keyfile::{self, KEY_BYTES};
use crate::progress::Progress;
use crate::wiring;

/// The time for servers to learn of a new secret before the old one is dropped. Each reads the
/// journal within a second. A server that is away for longer than its lease, three seconds, has
/// failed.
const LEARNED_WITHIN: Duration = Duration::from_secs(5);

/// `switchyard key …`.
pub fn run(config: &Config, command: &KeyCommand) -> Result<u8, Failure> {
    let name = match command {
        KeyCommand::Rotate(_) => "key rotate",
        KeyCommand::RotateJournal => "key rotate-journal",
    };
    wiring::refuse_missing(&config.database, "--database-url")?;
    let missing = wiring::missing_key;
    if let KeyCommand::Rotate(options) = command
        && let Some((path, key)) = interrupted(config, options)?
    {
        return seal_anew(config, options, (path, &key), name)?.tell(name);
    }
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
    server_key::refuse_older_secret(&*config.database.engine(), old)
        .map_err(|error| wiring::failed(&config.database, error))?;
    let keep_old = |path: &Path| match options.discard_old_key {
        true => Ok(None),
        false => keyfile::keep_old(path, old).map(Some),
    };
    let (path, new, kept) = match (&options.new_key_file, &config.key) {
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
            take_over(config, options, (old, old, &new), name)?;
            (path, new, kept)
        }
        (None, KeySource::File(path)) => {
            let mut new = [0; KEY_BYTES];
            SystemEntropy.fill(&mut new);
            let kept = keep_old(path)?;
            // Whatever dies on the way, the key in the file opens the database.
            replace(config, (old, old, &new), Step::Both)?;
            keyfile::replace(path, &new)?;
            take_over(config, options, (&new, old, &new), name)?;
            (path, new, kept)
        }
        (None, KeySource::Given(_)) => {
            return Err(Failure::new(
                "the key was given by SWITCHYARD_SECRET_KEY: say with --new-key-file where the \
                 new one is, or is to be put",
            )
            .as_usage());
        }
    };
    if options.reencrypt {
        return seal_anew(config, options, (path, &new), name);
    }
    keep(name, &config.database, keyring)?;
    if options.discard_old_key {
        keyfile::discard_old(path)?;
    }
    Ok(done(config, path, kept.as_deref(), false))
}

/// Makes the new key the only one that opens the database. With `--reencrypt`, the same transaction
/// draws the new secret, so the old key never opens it.
fn take_over(
    config: &Config,
    options: &RotateKey,
    keys: (&Key, &Key, &Key),
    name: &str,
) -> Result<(), Failure> {
    if !options.reencrypt {
        return replace(config, keys, Step::NewOnly);
    }
    let (known, _, new) = keys;
    let drawn = server_key::draw_secret(&*config.database.engine(), (known, new), origin(name));
    drawn.map_err(|error| wiring::failed(&config.database, error))
}

/// The key of a database whose `--reencrypt` was interrupted, with its file.
fn interrupted<'a>(
    config: &'a Config,
    options: &'a RotateKey,
) -> Result<Option<(&'a Path, Key)>, Failure> {
    if !options.reencrypt {
        return Ok(None);
    }
    let of_config = match &config.key {
        KeySource::File(path) => path.as_path(),
        KeySource::Given(_) => Path::new("SWITCHYARD_SECRET_KEY"),
    };
    let mut keys = vec![(of_config, wiring::key(&config.key)?)];
    if let Some(path) = &options.new_key_file {
        keys.push((path, keyfile::load(path)?));
    }
    let has_older = |(path, key): (&'a Path, Option<Key>)| {
        let key = key?;
        // A key that does not open the database is not the one.
        let found = server_key::has_older_secret(&*config.database.engine(), &key);
        found.is_ok_and(|has_older| has_older).then_some((path, key))
    };
    Ok(keys.into_iter().find_map(has_older))
}

/// Reseals with the secret that was drawn, and drops the one before.
fn seal_anew(
    config: &Config,
    options: &RotateKey,
    (path, key): (&Path, &Key),
    name: &str,
) -> Result<Done, Failure> {
    let failed = |error: StoreError| {
        let again = "nothing is lost: run switchyard key rotate --reencrypt again to go on";
        wiring::failed(&config.database, format!("{error}; {again}"))
    };
    let (engine, mut progress) = (config.database.for_a_command().engine(), Progress::start());
    let keyring = server_key::unlock(&*engine, key).map_err(failed)?;
    reseal(&*engine, &keyring, &mut |step| {
        progress.tell_sometimes(|| {
            format!("sealed {} rows anew, now at {} {}", step.resealed, step.rows, step.table)
        });
        Ok(())
    })
    .map_err(failed)?;
    progress.tell("everything is sealed anew, waiting for servers to take note");
    wait();
    server_key::drop_older_secret(&*engine, key, &keyring, origin(name)).map_err(failed)?;
    if options.discard_old_key {
        keyfile::discard_old(path)?;
    }
    Ok(done(config, path, keyfile::last_kept(path)?.as_deref(), true))
}

#[expect(clippy::disallowed_methods, reason = "it waits for other processes, which no clock moves")]
fn wait() {
    std::thread::sleep(LEARNED_WITHIN);
}

fn replace(config: &Config, keys: (&Key, &Key, &Key), step: Step) -> Result<(), Failure> {
    let replaced = server_key::replace(&*config.database.engine(), keys, step);
    replaced.map_err(|error| wiring::failed(&config.database, error))
}

fn done(config: &Config, path: &Path, kept: Option<&Path>, is_sealed_anew: bool) -> Done {
    let (database, path) = (config.database.to_string(), path.display().to_string());
    let of_thief = match is_sealed_anew {
        false => {
            "A thief with the old key and a copy from before can still read that copy, and with what \
             is in it\nlater copies too: --reencrypt helps against that."
        }
        true => {
            "Everything is sealed with a new secret. A thief with the old key and a copy from before \
             can still\nread that copy, and in later ones the journal up to now and hashes; webhook \
             and UMA keys still\nfollow from what was stolen."
        }
    };
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
         every\nserver before it starts again.\n\n{of_old}\n\n{of_thief} docs/operating.md says \
         more.\n"
    );
    let value = json!({ "keyFile": path, "oldKeyFile": kept, "isSealedAnew": is_sealed_anew });
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
