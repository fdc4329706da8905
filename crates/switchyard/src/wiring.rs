//! Joins the adapters to the application: the only place that knows both.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use adapters::clock::SystemClock;
use adapters::entropy::SystemEntropy;
use adapters::modes::{Modes, lightning, sandbox_rails};
use adapters::outbound::GuardedClient;
use adapters::rails::sandbox::SandboxRail;
use adapters::rates::feed::RateTable;
use api::presenter::JsonPresenter;
use ports::entropy::Entropy;
use ports::locality::{Locality, TestReach};
use ports::outbound::Outbound;
use service::env::Delivering;
use service::{App, Env};
use store::error::StoreError;
use store::keyring::{Keyring, Purpose};
use store::server_key::Key;
use store::{Store, Threads, server_key};

use crate::command::Failure;
use crate::config::{ConfigError, KeySource, SecretKey, Serve};
use crate::database::{Database, Held};
use crate::files::take_from_others;
use crate::keyfile::{self, KEY_BYTES};

/// How long a quote can be executed where no quotes are asked for over HTTP, in seconds.
const QUOTE_LIFETIME_SECONDS: i64 = 300;

/// Days for which answers under an idempotency key are kept when nothing is said.
const IDEMPOTENCY_DAYS: i64 = 30;

const DAY_MILLIS: i64 = 86_400_000;

/// The queue at the last handle's end is some commits, each of a few milliseconds.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// An application on an open database.
pub struct Opened {
    /// The application.
    pub app: App,
    /// The store's threads, for [`close`].
    pub threads: Threads,
}

/// Where a server is reached that listens where it does when nothing is said.
const USUAL_URL: &str = "http://localhost:8080";

/// The rates of a server with these options.
fn rates_of(options: &Serve) -> Result<Arc<RateTable>, Failure> {
    let table = match &options.rates_file {
        Some(path) => {
            let max_age = options.rates_max_age.as_millis();
            RateTable::of_file(path, i64::try_from(max_age).unwrap_or(i64::MAX))
                .map_err(|error| ConfigError::new(format!("the file of rates {error}")))?
        }
        None => RateTable::builtin(),
    };
    Ok(Arc::new(table))
}

/// The world outside a server with these options, whose pages people reach under `public_url`, and
/// its rates, whose file is to be read again.
pub fn env_of(
    options: &Serve,
    public_url: String,
    locality: Locality,
) -> Result<(Env, Arc<RateTable>), Failure> {
    let rates = rates_of(options)?;
    let sending = (locality, options.webhooks.delivering());
    let env = env(&rates, options.quote_lifetime_seconds, public_url, sending, guarded());
    let answers_kept_millis = options.idempotency_days * DAY_MILLIS;
    Ok((Env { answers_kept_millis, ..env }, rates))
}

/// The world outside a command that serves no clients.
pub fn default_env() -> Env {
    env_over(guarded())
}

/// Like [`default_env`], with this way out: everything that the server sends takes it.
pub fn env_over(outbound: Arc<dyn Outbound>) -> Env {
    let (rates, public_url) = (Arc::new(RateTable::builtin()), USUAL_URL.to_owned());
    let sending = (Locality::new(true), Delivering::USUAL);
    env(&rates, QUOTE_LIFETIME_SECONDS, public_url, sending, outbound)
}

fn guarded() -> Arc<dyn Outbound> {
    Arc::new(GuardedClient::default())
}

fn env(
    rates: &Arc<RateTable>,
    quote_lifetime_seconds: i64,
    public_url: String,
    (locality, webhooks): (Locality, Delivering),
    outbound: Arc<dyn Outbound>,
) -> Env {
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let reach = TestReach::new(locality.clone(), webhooks.allows_private);
    let rails = sandbox_rails(SandboxRail::default(), Arc::clone(&outbound), reach);
    let Modes { rates, rails, institutions, outbound, identification } =
        Modes::new(rates, rails, clock.clone(), entropy.clone(), outbound);
    Env {
        clock,
        entropy,
        rates,
        rails,
        institutions,
        // They follow from its secret, which is known once its database is opened.
        lightning: HashMap::new(),
        identification,
        outbound,
        presenter: Arc::new(JsonPresenter),
        public_url,
        quote_lifetime_millis: quote_lifetime_seconds * 1_000,
        answers_kept_millis: IDEMPOTENCY_DAYS * DAY_MILLIS,
        locality,
        webhooks,
        shares_database: false,
        peer_address: None,
    }
}

/// Opens a database, which is made if it is not there, and puts an application on it.
pub fn open(database: &Database, key: &KeySource, env: Env) -> Result<Opened, Failure> {
    let mut held = Held::default();
    open_to_serve(database, key, env, &mut held, |env, _| Ok(env))
}

/// Like [`open`], for a server, which has been given the file by [`Database::hold`]. `connect`
/// changes the world outside by the secret of the database.
pub fn open_to_serve(
    database: &Database,
    key: &KeySource,
    env: Env,
    held: &mut Held,
    connect: impl FnOnce(Env, &Keyring) -> Result<Env, Failure>,
) -> Result<Opened, Failure> {
    let found = key_of(database, key)?;
    database.create()?;
    let key = match (found, key) {
        (None, KeySource::File(path)) => {
            keyfile::load_or_create(path, |key| SystemEntropy.fill(key))?
        }
        (Some(key), _) | (None, &KeySource::Given(SecretKey(key))) => key,
    };
    database.hold_files(held)?;
    if let Database::Sqlite(path) = database {
        take_from_others(path);
    }
    let draw = || {
        let mut secret = [0; KEY_BYTES];
        SystemEntropy.fill(&mut secret);
        secret
    };
    let (keyring, begun) = server_key::unlock_or_begin(&*database.engine(), &key, draw)
        .map_err(|error| failed(database, error))?;
    // A journal that was among the tables has a file of its own now.
    database.hold_files(held)?;
    let lightning = lightning(keyring.hash(Purpose::LightningNode, &[]));
    let env = Env { shares_database: database.is_shared(), lightning, ..env };
    let env = connect(env, &keyring)?;
    let opened = Store::open(&*database.engine_of(held), keyring);
    let (store, threads) = opened.map_err(|error| failed(database, error))?;
    drop(begun);
    Ok(Opened { app: App::new(store, env), threads })
}

/// Gives up an application and waits until its database is closed. A handle that is still held
/// keeps it open: that is waited for no longer than the time says, as what was answered is on disk.
pub async fn close(Opened { app, threads }: Opened) {
    drop(app);
    let joined = tokio::task::spawn_blocking(move || threads.join());
    if tokio::time::timeout(CLOSE_TIMEOUT, joined).await.is_err() {
        tracing::warn!("the database was still in use when the time to close it was over");
    }
}

/// Whether there is a database with something in it.
pub fn holds_data(database: &Database) -> Result<bool, Failure> {
    database.holds_data().map_err(|error| failed(database, error))
}

/// A failure of this database.
pub fn failed(database: &Database, error: impl fmt::Display) -> Failure {
    Failure::new(format!("{database}: {error}"))
}

/// Refuses a database of which only the journal is there.
pub fn refuse_lost_tables(database: &Database) -> Result<(), Failure> {
    if !database.has_lost_tables() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the tables of {database} are not there, and its journal is: put the file back, or have its \
         tables made anew by switchyard rebuild"
    )))
}

/// Refuses a name under which there is no database. `option` is where it was named.
pub fn refuse_missing(database: &Database, option: &str) -> Result<(), Failure> {
    if holds_data(database)? {
        return Ok(());
    }
    refuse_lost_tables(database)?;
    Err(Failure::new(format!("there is no database at {database}: name another with {option}")))
}

/// The server's key that was given or that is in its file; none if there is no such file.
pub fn key(key: &KeySource) -> Result<Option<[u8; KEY_BYTES]>, Failure> {
    Ok(match key {
        KeySource::Given(key) => Some(key.0),
        KeySource::File(path) => keyfile::load(path)?,
    })
}

/// The refusal of a command that needs the key.
pub fn missing_key() -> Failure {
    Failure::new("the key is missing: name its file with --key-file, or give SWITCHYARD_SECRET_KEY")
}

/// The keyring of a database that is there; none if there is no key.
pub fn keyring(database: &Database, source: &KeySource) -> Result<Option<Keyring>, Failure> {
    let Some(key) = key(source)? else { return Ok(None) };
    let keyring = server_key::unlock(&*database.engine(), &key);
    keyring.map(Some).map_err(|error| unreadable(database, error))
}

/// Like [`keyring`], for a database that may be an older copy: with the key that opens it, which is
/// the server's or one that it has replaced.
pub fn keyring_of_copy(
    database: &Database,
    source: &KeySource,
) -> Result<Option<(Key, Keyring)>, Failure> {
    let Some(key) = key(source)? else { return Ok(None) };
    let old = match source {
        KeySource::File(path) => keyfile::old_keys(path)?,
        KeySource::Given(_) => Vec::new(),
    };
    let keys: Vec<_> = std::iter::once(key).chain(old).collect();
    let found = server_key::unlock_with_any(&*database.engine(), &keys);
    found.map(Some).map_err(|error| unreadable(database, error))
}

fn unreadable(database: &Database, error: StoreError) -> Failure {
    match database.unwritable_folder() {
        Some(why) => Failure::new(why),
        None => failed(database, error),
    }
}

/// Like [`keyring_of_copy`], for commands that do without a key. One that was named must be there:
/// the operator who named it does not expect to do without.
pub fn keyring_if_there(database: &Database, key: &KeySource) -> Result<Option<Keyring>, Failure> {
    let found = keyring_of_copy(database, key)?.map(|(_, keyring)| keyring);
    match key {
        KeySource::File(path) if found.is_none() && *path != database.key_file() => {
            Err(Failure::new(format!(
                "there is no key at {}, which --key-file or SWITCHYARD_KEY_FILE names",
                path.display()
            ))
            .as_usage())
        }
        _ => Ok(found),
    }
}

/// The server's key of a database that was begun. None for a new one, whose key is made after its
/// files: so a key without a database is that of one that was lost.
fn key_of(database: &Database, source: &KeySource) -> Result<Option<[u8; KEY_BYTES]>, Failure> {
    let KeySource::File(path) = source else { return key(source) };
    // A database on a server is only asked when there is no key.
    if let Some(key) = keyfile::load(path)? {
        database.refuse_lost(path)?;
        return Ok(Some(key));
    }
    if !database.is_begun().map_err(|error| failed(database, error))? {
        return Ok(None);
    }
    let path = path.display();
    Err(Failure::new(match database {
        Database::Sqlite(_) => format!(
            "{database} has data and its key file {path} is missing: restore it from its copy, or \
             name the right one with --key-file"
        ),
        Database::Postgres(_) => format!(
            "{database} has data and its key file {path} is missing: copy it from the server that \
             made it, or name the right one with --key-file"
        ),
    }))
}
