//! Opening a node's folder.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use bitcoin::BlockHash;
use bitcoin::secp256k1::{PublicKey, Secp256k1};
use lightning::chain::BestBlock;
use lightning::chain::channelmonitor::ChannelMonitor;
use lightning::ln::channelmanager::{ChainParameters, ChannelManager, ChannelManagerReadArgs};
use lightning::ln::peer_handler::{IgnoringMessageHandler, PeerManager};
use lightning::onion_message::messenger::DefaultMessageRouter;
use lightning::routing::gossip::NetworkGraph;
use lightning::routing::router::DefaultRouter;
use lightning::routing::scoring::FixedPenaltyScorer;
use lightning::sign::{InMemorySigner, KeysManager, NodeSigner as _};
use lightning::util::config::{
    ChannelConfig, ChannelHandshakeConfig, ChannelHandshakeLimits, MaxDustHTLCExposure, UserConfig,
};
use lightning::util::ser::ReadableArgs as _;
use lightning_persister::fs_store::FilesystemStore;
use ports::clock::Clock;
use ports::entropy::Entropy;
use tokio::sync::{mpsc, watch};

use domain::id::TransactionId;

use super::disk::{Disk, Files};
use super::outcomes::Outcomes;
use super::parts::{Log, Manager, MessageRouter, Monitors, NoChain, Router};
use super::peers::CHANNEL_SAT;
use super::{NETWORK, Node, NodePeer};
use crate::lightning::{LightningNode, seconds};

/// The most that may be under way at once in payments so small that a chain would not carry them:
/// there is no chain, so nothing is lost to its fees.
const DUST_MSAT_MAX: u64 = 1_000_000_000_000;

/// The file that names the node of a folder.
const NODE_FILE: (&str, &str) = ("node", "id");

/// The parts of a node that are chosen.
pub struct Settings {
    /// The secret that its keys and preimages come from. It must stay the same.
    pub secret: [u8; 32],
    /// The nodes that it has channels with.
    pub peers: Vec<NodePeer>,
}

/// Why a node cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder cannot be read or written.
    #[error("the Lightning folder cannot be used: {0}")]
    Files(#[from] io::Error),
    /// The folder has the channels of another node.
    #[error(
        "the Lightning folder has the channels of node {found}, and the secret of this database \
         makes {expected}: name the folder that belongs to the database"
    )]
    OtherNode {
        /// Whose channels there are.
        found: String,
        /// The node of the key.
        expected: String,
    },
    /// The folder cannot be understood.
    #[error("the Lightning folder is damaged or of another release: {0}")]
    Damaged(String),
}

/// The files of a node in a folder, which is made if it is not there.
pub fn files(folder: PathBuf) -> Files {
    Arc::new(FilesystemStore::new(folder))
}

/// The id of the node of a secret: a compressed point in hexadecimal.
pub fn node_id(secret: &[u8; 32]) -> String {
    let key = KeysManager::new(secret, 0, 0, true).get_node_secret_key();
    PublicKey::from_secret_key(&Secp256k1::signing_only(), &key).to_string()
}

impl Node {
    /// Opens the node whose files these are. The receiver gets the payments whose money has come.
    pub fn open(
        files: Files,
        settings: Settings,
        clock: Arc<dyn Clock>,
        entropy: &dyn Entropy,
    ) -> Result<(Arc<Self>, mpsc::UnboundedReceiver<TransactionId>), StartError> {
        let Settings { secret, peers: named } = settings;
        // Only to be another one at each start, for what the library draws from it.
        let (start, part) = (entropy.number(), entropy.number() as u32);
        let keys = Arc::new(KeysManager::new(&secret, start, part, true));
        let disk = Arc::new(Disk::new(files));
        is_of(&disk, &node_id(&secret))?;
        let now = seconds(clock.now()).and_then(|now| u32::try_from(now).ok()).unwrap_or_default();
        let parts = Parts::new(&keys, &disk);
        let stored = disk.monitors(&keys)?;
        let manager = Arc::new(parts.manager(&disk, &stored, now)?);
        for (_, monitor) in stored {
            let channel = monitor.channel_id();
            parts
                .monitors
                .load_existing_monitor(channel, monitor)
                .map_err(|()| StartError::Damaged(format!("channel {channel} is there twice")))?;
        }
        let mut ephemeral = [0; 32];
        entropy.fill(&mut ephemeral);
        let peers = Arc::new(PeerManager::new_channel_only(
            Arc::clone(&manager),
            IgnoringMessageHandler {},
            now,
            &ephemeral,
            Arc::clone(&parts.log),
            Arc::clone(&keys),
            IgnoringMessageHandler {},
        ));
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let invoices = LightningNode::with_key(secret, keys.get_node_secret_key(), NETWORK);
        let node = Self {
            manager,
            monitors: parts.monitors,
            peers,
            keys,
            outcomes: Outcomes::new(Arc::clone(&disk)),
            disk,
            invoices,
            named,
            clock,
            decided: watch::Sender::new(()),
            arrived,
        };
        Ok((Arc::new(node), arrivals))
    }
}

/// Refuses the files of another node. New files become this node's.
fn is_of(disk: &Disk, expected: &str) -> Result<(), StartError> {
    let (folder, key) = NODE_FILE;
    match disk.get::<String>(folder, key)? {
        None => Ok(disk.put(folder, key, &expected)?),
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(StartError::OtherNode { found, expected: expected.to_owned() }),
    }
}

/// The parts that the manager is made of.
struct Parts {
    log: Arc<Log>,
    chain: Arc<NoChain>,
    keys: Arc<KeysManager>,
    monitors: Arc<Monitors>,
    router: Arc<Router>,
    message_router: Arc<MessageRouter>,
}

impl Parts {
    fn new(keys: &Arc<KeysManager>, disk: &Arc<Disk>) -> Self {
        let (log, chain, keys) = (Arc::new(Log), Arc::new(NoChain), Arc::clone(keys));
        let monitors = Arc::new(Monitors::new(
            Some(Arc::clone(&chain)),
            Arc::clone(&chain),
            Arc::clone(&log),
            Arc::clone(&chain),
            Arc::clone(disk),
            Arc::clone(&keys),
            keys.get_peer_storage_key(),
        ));
        let graph = Arc::new(NetworkGraph::new(NETWORK, Arc::clone(&log)));
        let scorer = Arc::new(RwLock::new(FixedPenaltyScorer::with_penalty(0)));
        let router =
            DefaultRouter::new(Arc::clone(&graph), Arc::clone(&log), Arc::clone(&keys), scorer, ());
        let message_router = DefaultMessageRouter::new(graph, Arc::clone(&keys));
        let (router, message_router) = (Arc::new(router), Arc::new(message_router));
        Self { log, chain, keys, monitors, router, message_router }
    }

    /// The manager as it was saved, or a new one.
    fn manager(
        &self,
        disk: &Disk,
        stored: &[(BlockHash, ChannelMonitor<InMemorySigner>)],
        now: u32,
    ) -> Result<Manager, StartError> {
        if let Some(bytes) = disk.manager()? {
            let arguments = ChannelManagerReadArgs::new(
                Arc::clone(&self.keys),
                Arc::clone(&self.keys),
                Arc::clone(&self.keys),
                Arc::clone(&self.chain),
                Arc::clone(&self.monitors),
                Arc::clone(&self.chain),
                Arc::clone(&self.router),
                Arc::clone(&self.message_router),
                Arc::clone(&self.log),
                config(),
                stored.iter().map(|(_, monitor)| monitor).collect(),
            );
            let read = <(BlockHash, Manager)>::read(&mut &bytes[..], arguments);
            let (_, manager) =
                read.map_err(|error| StartError::Damaged(format!("the manager: {error:?}")))?;
            return Ok(manager);
        }
        if !stored.is_empty() {
            return Err(StartError::Damaged("it has channels, and no manager of them".to_owned()));
        }
        let (network, best_block) = (NETWORK, BestBlock::from_network(NETWORK));
        Ok(ChannelManager::new(
            Arc::clone(&self.chain),
            Arc::clone(&self.monitors),
            Arc::clone(&self.chain),
            Arc::clone(&self.router),
            Arc::clone(&self.message_router),
            Arc::clone(&self.log),
            Arc::clone(&self.keys),
            Arc::clone(&self.keys),
            Arc::clone(&self.keys),
            config(),
            ChainParameters { network, best_block },
            now,
        ))
    }
}

fn config() -> UserConfig {
    let handshake = ChannelHandshakeConfig {
        max_inbound_htlc_value_in_flight_percent_of_channel: 100,
        // Without a chain there is nothing to pay its fees with.
        negotiate_anchors_zero_fee_htlc_tx: false,
        ..ChannelHandshakeConfig::default()
    };
    let limits = ChannelHandshakeLimits {
        max_funding_satoshis: CHANNEL_SAT,
        ..ChannelHandshakeLimits::default()
    };
    let channel = ChannelConfig {
        max_dust_htlc_exposure: MaxDustHTLCExposure::FixedLimitMsat(DUST_MSAT_MAX),
        ..ChannelConfig::default()
    };
    UserConfig {
        channel_handshake_config: handshake,
        channel_handshake_limits: limits,
        channel_config: channel,
        // Channels are only taken from peers that were named.
        manually_accept_inbound_channels: true,
        ..UserConfig::default()
    }
}
