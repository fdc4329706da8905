//! The nodes that ours has channels with: connections to them, and channels with room to pay.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bitcoin::secp256k1::PublicKey;
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::time::{Interval, MissedTickBehavior};

use super::Node;

/// The money of a channel when it is opened, in satoshi: 10 bitcoin, as no sandbox payment is
/// likely to be larger.
pub(super) const CHANNEL_SAT: u64 = 1_000_000_000;

/// Another channel is opened when a peer could be paid less than this, in millisatoshi: half of a
/// new one.
const ROOM_MSAT_MIN: u64 = CHANNEL_SAT * 1_000 / 2;

/// The most channels that are opened to a peer: 500 bitcoin, more than anybody pays in a sandbox.
const CHANNELS_MAX: usize = 50;

/// How often peers that are away are called.
const CALL_EVERY: Duration = Duration::from_secs(1);

/// How long a call may take, with the search for the name.
const CALL_WITHIN: Duration = Duration::from_secs(5);

/// Ticks of the library's own clock, in calls: its pings are made for ten seconds, its channels for
/// a minute.
const PING_CALLS: u64 = 10;
const CHANNEL_CALLS: u64 = 60;

/// How many calls a peer has to take a channel before it is asked for another.
const ROOM_CALLS: u64 = 30;

/// The most connections at once that others have opened.
const CONNECTIONS_MAX: usize = 128;

/// A node that ours has channels with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePeer {
    node: PublicKey,
    /// Where it listens; nothing where it calls us.
    address: Option<String>,
}

/// Why a text names no node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a node, 66 hexadecimal digits, and perhaps @HOST:PORT behind it")]
pub struct WrongPeer;

impl FromStr for NodePeer {
    type Err = WrongPeer;

    fn from_str(text: &str) -> Result<Self, WrongPeer> {
        let (node, address) = match text.split_once('@') {
            Some((node, address)) => (node, Some(address)),
            None => (text, None),
        };
        let is_address = |it: &str| {
            let parts = it.rsplit_once(':');
            parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if node.len() != 66 || address.is_some_and(|it| !is_address(it)) {
            return Err(WrongPeer);
        }
        let node = PublicKey::from_str(node).map_err(|_| WrongPeer)?;
        Ok(Self { node, address: address.map(str::to_owned) })
    }
}

impl fmt::Display for NodePeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.node)?;
        self.address.iter().try_for_each(|address| write!(f, "@{address}"))
    }
}

/// Ends the work of a node when it is dropped, also with a task that is stopped.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[expect(clippy::disallowed_methods, reason = "connections are made in real time, like retries")]
fn every_second() -> Interval {
    let mut calls = tokio::time::interval(CALL_EVERY);
    calls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    calls
}

impl Node {
    /// The peer of this id, if it was named.
    pub(super) fn named(&self, node: &PublicKey) -> Option<&NodePeer> {
        self.named.iter().find(|peer| peer.node == *node)
    }

    /// Works until `shutdown`: takes and makes connections, opens channels, and moves payments.
    pub async fn run(self: Arc<Self>, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let over = Over(Arc::new(AtomicBool::new(false)));
        let worker = tokio::task::spawn_blocking({
            let (node, is_over) = (Arc::clone(&self), Arc::clone(&over.0));
            move || node.work(&is_over)
        });
        tokio::select! {
            () = self.listen(&listener) => {}
            () = self.call() => {}
            () = shutdown => {}
        }
        self.peers.disconnect_all_peers();
        drop(over);
        if let Err(error) = worker.await {
            tracing::error!(%error, "lightning node broke off");
        }
    }

    async fn listen(&self, listener: &TcpListener) {
        let (places, mut pause) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), every_second());
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
                Ok(stream) => {
                    let connection =
                        lightning_net_tokio::setup_inbound(Arc::clone(&self.peers), stream);
                    tokio::spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                // The connection was broken off, or there are too few descriptors for now.
                Err(error) => {
                    tracing::warn!(%error, "lightning node cannot take a connection");
                    pause.tick().await;
                }
            }
        }
    }

    async fn call(&self) {
        let mut calls = every_second();
        let (mut asked, mut away) = (HashMap::new(), HashSet::new());
        for number in 1_u64.. {
            calls.tick().await;
            for peer in &self.named {
                if self.peers.peer_by_node_id(&peer.node).is_some() {
                    let is_early = |at| number - at < ROOM_CALLS;
                    if !asked.get(&peer.node).is_some_and(|at| is_early(*at))
                        && self.make_room(&peer.node)
                    {
                        asked.insert(peer.node, number);
                    }
                } else if let Some(address) = &peer.address {
                    // One that stays away is named once.
                    match self.connect(peer.node, address).await {
                        Ok(()) if away.remove(&peer.node) => {
                            tracing::info!(peer = %peer.node, "lightning peer is reached again");
                        }
                        Err(error) if away.insert(peer.node) => {
                            tracing::warn!(%error, peer = %peer.node, "lightning peer is away");
                        }
                        Ok(()) | Err(_) => {}
                    }
                }
            }
            if number.is_multiple_of(PING_CALLS) {
                self.peers.timer_tick_occurred();
            }
            if number.is_multiple_of(CHANNEL_CALLS) {
                self.manager.timer_tick_occurred();
            }
        }
    }

    /// Calls a peer once.
    pub(super) async fn connect(&self, node: PublicKey, address: &str) -> std::io::Result<()> {
        let stream = async {
            let found = lookup_host(address).await?.next();
            let found = found.ok_or_else(|| std::io::Error::other("the name has no address"))?;
            TcpStream::connect(found).await?.into_std()
        };
        let stream = tokio::time::timeout(CALL_WITHIN, stream).await??;
        let peers = Arc::clone(&self.peers);
        tokio::spawn(lightning_net_tokio::setup_outbound(peers, node, stream));
        Ok(())
    }

    /// Opens a channel to a peer that is there, if it could not be paid much otherwise, and says
    /// whether it does.
    fn make_room(&self, node: &PublicKey) -> bool {
        let channels = self.manager.list_channels_with_counterparty(node);
        let ours = channels.iter().filter(|channel| channel.is_outbound);
        let room: u64 = channels.iter().map(|channel| channel.outbound_capacity_msat).sum();
        let is_opening = ours.clone().any(|channel| !channel.is_channel_ready);
        if is_opening || room >= ROOM_MSAT_MIN || ours.count() >= CHANNELS_MAX {
            return false;
        }
        if let Err(error) = self.manager.create_channel(*node, CHANNEL_SAT, 0, 0, None, None) {
            tracing::warn!(peer = %node, ?error, "lightning node cannot open a channel");
        }
        true
    }
}
