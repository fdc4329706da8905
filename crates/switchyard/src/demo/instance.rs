//! A server of the story, on a database of its own.

use std::path::Path;
use std::sync::Arc;

use adapters::entropy::SystemEntropy;
use ports::entropy::Entropy as _;
use ports::outbound::Outbound;
use serde_json::{Value, json};
use service::{App, Env};
use store::server_key;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::command::{Failure, print};
use crate::config::{ClientCredentials, KeySource, Listen, SecretKey};
use crate::database::{Database, Held};
use crate::first_start::FirstStart;
use crate::keyfile::{self, KEY_BYTES};
use crate::wiring::Opened;
use crate::{config, first_start, serve, verify, wiring};

/// A server that runs.
pub(super) struct Instance {
    /// The base of its API.
    pub(super) base_url: String,
    /// The domain of its addresses, which reaches it.
    pub(super) domain: String,
    port: u16,
    /// Its platform and the platform's token.
    pub(super) first: FirstStart,
    file: File,
    held: Held,
    opened: Opened,
    stop: CancellationToken,
    server: JoinHandle<()>,
}

/// The database of a server, with its key.
pub(super) struct File {
    pub(super) database: Database,
    key: [u8; KEY_BYTES],
    /// Whether it is there when the story is over.
    stays: bool,
}

/// A server that has stopped.
pub(super) struct Stopped {
    /// Its database.
    pub(super) file: File,
    /// The port on which its domain reached it.
    pub(super) port: u16,
    pub(super) platform: String,
    pub(super) credentials: ClientCredentials,
}

impl Instance {
    /// Starts a server on a new database in the folder, on a free port of this machine. It asks
    /// others over `outbound`.
    pub(super) async fn start(
        folder: &Path,
        name: &str,
        stays: bool,
        outbound: Arc<dyn Outbound>,
    ) -> Result<Self, Failure> {
        let file = File::new(folder, name, stays)?;
        let listen = Listen { host: "127.0.0.1".to_owned(), port: 0 };
        let (listener, listen) = serve::bind(&listen, "--listen").await?;
        let env = Env { public_url: serve::origin(&listen), ..wiring::env_over(outbound) };
        let mut held = file.database.hold()?;
        let source = KeySource::Given(SecretKey(file.key));
        let opened =
            wiring::open_to_serve(&file.database, &source, env, &mut held, |env, _| Ok(env))?;
        let domain = config::local_uma_domain(listen.port);
        let first = first_start::run(&opened.app, None, domain.clone()).await?;
        let first = first.ok_or_else(|| Failure::new("the new database has a platform already"))?;
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve::until(stop.clone(), listener, opened.app.clone()));
        let (base_url, domain) = (serve::base_url(&listen), domain.to_string());
        Ok(Self { base_url, domain, port: listen.port, first, file, held, opened, stop, server })
    }

    /// Its application, to look into its books.
    pub(super) fn app(&self) -> &App {
        &self.opened.app
    }

    /// Stops the server and closes its database.
    pub(super) async fn stop(self) -> Result<Stopped, Failure> {
        let Self { port, first, file, held, opened, stop, server, .. } = self;
        stop.cancel();
        let stopped = server.await;
        wiring::close(opened).await;
        drop(held);
        stopped.map_err(|error| Failure::new(format!("the server did not stop well: {error}")))?;
        let (platform, credentials) = (first.platform.to_string(), first.credentials);
        Ok(Stopped { file, port, platform, credentials })
    }
}

impl File {
    fn new(folder: &Path, name: &str, stays: bool) -> Result<Self, Failure> {
        let database = Database::Sqlite(folder.join(name));
        let mut key = [0; KEY_BYTES];
        if stays {
            key = keyfile::load_or_create(&database.key_file(), |key| SystemEntropy.fill(key))?;
        } else {
            SystemEntropy.fill(&mut key);
        }
        Ok(Self { database, key, stays })
    }

    /// Every promise about the data, checked on the database alone.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let engine = self.database.engine();
        let keyring = server_key::unlock(&*engine, &self.key)?;
        let report = store::verify::verify(&*engine, Some(&keyring))?;
        print(&verify::human(&report))?;
        if !report.is_sound() {
            return Err(Failure::new("the story went well, but verify found something broken"));
        }
        Ok(())
    }
}

impl Stopped {
    /// The URL of its database.
    pub(super) fn url(&self) -> String {
        format!("sqlite://{}", self.file.database)
    }

    /// The server for programs; the parts that are gone with its folder are null.
    pub(super) fn described(&self) -> Value {
        let stays = self.file.stays;
        json!({
            "platform": self.platform,
            "database": stays.then(|| self.url()),
            "keyFile": stays.then(|| self.file.database.key_file().display().to_string()),
            "clientId": stays.then_some(&self.credentials.id),
            "clientSecret": stays.then_some(&self.credentials.secret),
        })
    }
}
