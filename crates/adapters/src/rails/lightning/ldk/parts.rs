//! The parts of LDK that the node is made of, and the ports that it has instead of a Bitcoin chain.

use std::sync::{Arc, RwLock};

use bitcoin::{Script, Transaction, Txid};
use lightning::chain::chaininterface::{
    BroadcasterInterface, ConfirmationTarget, FEERATE_FLOOR_SATS_PER_KW, FeeEstimator,
};
use lightning::chain::chainmonitor::ChainMonitor;
use lightning::chain::{Filter, WatchedOutput};
use lightning::ln::channelmanager::ChannelManager;
use lightning::ln::peer_handler::{IgnoringMessageHandler, PeerManager};
use lightning::onion_message::messenger::DefaultMessageRouter;
use lightning::routing::gossip::NetworkGraph;
use lightning::routing::router::DefaultRouter;
use lightning::routing::scoring::FixedPenaltyScorer;
use lightning::sign::{InMemorySigner, KeysManager};
use lightning::util::logger::{Level, Logger, Record};
use lightning_net_tokio::SocketDescriptor;

use super::disk::Disk;

pub(super) type Graph = NetworkGraph<Arc<Log>>;

/// Finds the channels to a peer; there is no way over others, as no gossip is taken.
pub(super) type Router = DefaultRouter<
    Arc<Graph>,
    Arc<Log>,
    Arc<KeysManager>,
    Arc<RwLock<FixedPenaltyScorer>>,
    (),
    FixedPenaltyScorer,
>;

pub(super) type MessageRouter = DefaultMessageRouter<Arc<Graph>, Arc<Log>, Arc<KeysManager>>;

pub(super) type Monitors = ChainMonitor<
    InMemorySigner,
    Arc<NoChain>,
    Arc<NoChain>,
    Arc<NoChain>,
    Arc<Log>,
    Arc<Disk>,
    Arc<KeysManager>,
>;

pub(super) type Manager = ChannelManager<
    Arc<Monitors>,
    Arc<NoChain>,
    Arc<KeysManager>,
    Arc<KeysManager>,
    Arc<KeysManager>,
    Arc<NoChain>,
    Arc<Router>,
    Arc<MessageRouter>,
    Arc<Log>,
>;

pub(super) type Peers = PeerManager<
    SocketDescriptor,
    Arc<Manager>,
    IgnoringMessageHandler,
    IgnoringMessageHandler,
    Arc<Log>,
    IgnoringMessageHandler,
    Arc<KeysManager>,
    IgnoringMessageHandler,
>;

/// No chain: nothing is sent to one, watched on one or paid for on one.
pub(super) struct NoChain;

impl BroadcasterInterface for NoChain {
    fn broadcast_transactions(&self, _: &[&Transaction]) {}
}

impl FeeEstimator for NoChain {
    fn get_est_sat_per_1000_weight(&self, _: ConfirmationTarget) -> u32 {
        FEERATE_FLOOR_SATS_PER_KW
    }
}

impl Filter for NoChain {
    fn register_tx(&self, _: &Txid, _: &Script) {}

    fn register_output(&self, _: WatchedOutput) {}
}

/// The log of the library among ours. It names nodes, channels and payment hashes, and no secrets.
pub(super) struct Log;

impl Logger for Log {
    fn log(&self, record: Record<'_>) {
        let (part, text) = (record.module_path, record.args);
        match record.level {
            Level::Error => tracing::warn!(part, "lightning library: {text}"),
            Level::Warn => tracing::info!(part, "lightning library: {text}"),
            // It speaks of a chain that is not there, and of each payment many times.
            Level::Info | Level::Debug => tracing::debug!(part, "lightning library: {text}"),
            Level::Trace | Level::Gossip => {}
        }
    }
}
