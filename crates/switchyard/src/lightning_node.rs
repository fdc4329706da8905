//! The Lightning node of a server: from its port to the payments that have come over it.

use std::fmt;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adapters::modes::sandbox_rails_over;
use adapters::rails::lightning::ldk::{self, Node, NodePeer, Settings};
use adapters::rails::sandbox::SandboxRail;
use domain::id::TransactionId;
use domain::platform::Mode;
use service::uma::settle;
use service::{App, Env};
use store::keyring::{Keyring, Purpose};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::command::Failure;
use crate::config::{Config, ConfigError, Lightning, Listen};
use crate::serve;

/// The file in a node's folder that its server locks.
const LOCK: &str = "switchyard.lock";

/// A node that has its port, and is opened when the secret of the database is known.
pub struct Bound {
    listener: TcpListener,
    listen: Listen,
    folder: PathBuf,
    /// Held for as long as the node works.
    lock: Option<File>,
    peers: Vec<NodePeer>,
    opened: Option<(Arc<Node>, UnboundedReceiver<TransactionId>)>,
}

impl Bound {
    /// Takes the port of the node, if there is to be one.
    pub async fn new(config: &Config, options: &Lightning) -> Result<Option<Self>, Failure> {
        let Lightning { lightning_folder: folder, lightning_peers: peers, .. } = options;
        let Some(folder) = folder.clone() else {
            if peers.is_empty() {
                return Ok(None);
            }
            let why = "--lightning-peer needs a node: name its folder with --lightning-folder";
            return Err(ConfigError::new(why).into());
        };
        if config.database.is_shared() {
            return Err(ConfigError::new(
                "--lightning-folder needs a database that is this server's alone, which is SQLite: \
                 another server that took over would not have the channels in the folder",
            )
            .into());
        }
        let listen = &options.lightning_listen;
        let (listener, listen) = serve::bind(listen, "--lightning-listen").await?;
        let peers = peers.clone();
        Ok(Some(Self { listener, listen, folder, lock: None, peers, opened: None }))
    }

    /// Opens the node, and gives sandbox platforms their Lightning over it.
    pub fn connect(&mut self, mut env: Env, keyring: &Keyring) -> Result<Env, Failure> {
        self.lock = Some(locked(&self.folder)?);
        let settings = Settings { secret: secret(keyring), peers: self.peers.clone() };
        let files = ldk::files(self.folder.clone());
        let opened = Node::open(files, settings, Arc::clone(&env.clock), &*env.entropy);
        let (node, arrivals) = opened.map_err(|error| Failure::new(error.to_string()))?;
        let rails = sandbox_rails_over(SandboxRail::default(), Arc::clone(&node) as _);
        env.rails.insert(Mode::Sandbox, rails);
        env.lightning.insert(Mode::Sandbox, Arc::clone(&node) as _);
        self.opened = Some((node, arrivals));
        Ok(env)
    }

    /// Works until `shutdown`, and books the payments that come.
    pub async fn run(self, app: App, shutdown: CancellationToken) {
        let Some((node, mut arrivals)) = self.opened else { return };
        let _lock = self.lock;
        let id = ports::lightning::Lightning::node(&*node);
        tracing::info!(node = %id, listen = %self.listen, "lightning node listens for its peers");
        let booking = async {
            while let Some(payment) = arrivals.recv().await {
                if let Err(error) = settle::arrived(&app, Mode::Sandbox, payment).await {
                    tracing::warn!(%payment, %error, "payment is booked when its invoice expires");
                }
            }
        };
        tokio::join!(node.run(self.listener, shutdown.clone().cancelled_owned()), async {
            tokio::select! {
                () = booking => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
}

/// Locks the folder of a node. Two nodes that go on from the same channels lose their money: the
/// state of one is an old one to the peers of the other.
fn locked(folder: &Path) -> Result<File, Failure> {
    let refused = |error: &dyn fmt::Display| {
        Failure::new(format!("the folder {} of the node: {error}", folder.display()))
    };
    std::fs::create_dir_all(folder).map_err(|error| refused(&error))?;
    let file = File::options().create(true).append(true).open(folder.join(LOCK));
    let file = file.map_err(|error| refused(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(refused(&"another server has it: stop it first, or name another folder"))
        }
        Err(TryLockError::Error(error)) => Err(refused(&error)),
    }
}

/// The id of the node of this key.
pub fn id(keyring: &Keyring) -> String {
    ldk::node_id(&secret(keyring))
}

fn secret(keyring: &Keyring) -> [u8; 32] {
    keyring.hash(Purpose::LightningNode, &[])
}
