//! Options about listeners and the connections of clients and Lightning peers.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;

use super::checks::Listen;
use crate::edge::{
    CONNECTIONS_OF_ADDRESS_MAX, HEADS_OF_ADDRESS_MAX, IDLE_TIMEOUT, Limits, Trusted,
};
use crate::exit::ConfigError;

/// Servers that pass requests on to each other keep connections for half as long.
const IDLE_SECONDS_MIN: u64 = 10;

/// Longer, a connection is only forgotten.
const IDLE_SECONDS_MAX: u64 = 3_600;

/// Where the operator's endpoints are when nothing is said: the next port of exporters for
/// Prometheus that none has by default. 9090 is its own.
const ADMIN_LISTEN: &str = "127.0.0.1:9464";

/// Listeners and the connections of clients.
#[derive(Debug, Clone, Args)]
pub struct Connections {
    /// Where to listen for the operator and for other servers on the same database [default:
    /// 127.0.0.1:9464, if that is free].
    ///
    /// /metrics and messages between servers are nowhere else once it is given. Without it they are
    /// also at --listen while only this machine reaches that. /healthz and /readyz are at both. Let
    /// no one else reach it.
    #[arg(long, value_name = "HOST:PORT", env = "SWITCHYARD_ADMIN_LISTEN")]
    pub admin_listen: Option<Listen>,

    /// How long a connection is kept for its next request, from 10 to 3600.
    ///
    /// A load balancer in front should keep its connections for less. The head of a request has ten
    /// seconds from its first byte.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "SWITCHYARD_IDLE_TIMEOUT_SECONDS",
        default_value_t = IDLE_TIMEOUT.as_secs(),
        value_parser = clap::value_parser!(u64).range(IDLE_SECONDS_MIN..=IDLE_SECONDS_MAX)
    )]
    pub idle_timeout_seconds: u64,

    /// Connections of one address at a time, but for proxies that are trusted. For one more, one of
    /// its own ends that only waits.
    #[arg(
        long,
        value_name = "NUMBER",
        env = "SWITCHYARD_ADDRESS_CONNECTIONS_MAX",
        default_value_t = CONNECTIONS_OF_ADDRESS_MAX as u32,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub address_connections_max: u32,

    /// Half-sent heads of one address at a time, but for proxies that are trusted. For one more,
    /// its oldest ends.
    #[arg(
        long,
        value_name = "NUMBER",
        env = "SWITCHYARD_ADDRESS_HEADS_MAX",
        default_value_t = HEADS_OF_ADDRESS_MAX as u32,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub address_heads_max: u32,

    /// Proxies that are believed about their clients' addresses in X-Forwarded-For: addresses or
    /// networks, with commas between.
    ///
    /// Name every proxy in front. Limits by address would else count all of its clients as one.
    #[arg(
        long,
        value_name = "CIDR",
        env = "SWITCHYARD_TRUST_FORWARDED_FROM",
        value_delimiter = ',',
        value_parser = Network::from_str
    )]
    pub trust_forwarded_from: Vec<Network>,
}

/// The Lightning node of a server.
#[cfg(feature = "ldk")]
#[derive(Debug, Clone, Args)]
pub struct Lightning {
    /// The folder of a Lightning node, which then settles the payments of sandbox platforms with
    /// other institutions.
    ///
    /// The first start makes it. It belongs to the secret of the database, and to one server: a
    /// copy of it that is older than what peers have seen must never be used. docs/uma.md says what
    /// is real about it.
    #[arg(long, value_name = "DIR", env = "SWITCHYARD_LIGHTNING_FOLDER")]
    pub lightning_folder: Option<std::path::PathBuf>,

    /// Where the Lightning node listens for its peers.
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "SWITCHYARD_LIGHTNING_LISTEN",
        default_value = "127.0.0.1:9735"
    )]
    pub lightning_listen: Listen,

    /// A node to have channels with, by the id that its `switchyard uma node` prints; without an
    /// address it connects to this one.
    ///
    /// Give the option once for each. Channels are taken from no other node.
    #[arg(
        long = "lightning-peer",
        value_name = "NODE@HOST:PORT",
        env = "SWITCHYARD_LIGHTNING_PEERS",
        value_delimiter = ','
    )]
    pub lightning_peers: Vec<adapters::rails::lightning::ldk::NodePeer>,
}

impl Connections {
    /// Where the operator's endpoints have a listener of their own.
    pub fn admin_address(&self) -> Listen {
        let usual = || ADMIN_LISTEN.parse().expect("it is a host and a port");
        self.admin_listen.clone().unwrap_or_else(usual)
    }

    /// These options in `limits`.
    pub fn within(&self, limits: Limits) -> Limits {
        let trusted: Trusted = self.trust_forwarded_from.iter().map(|one| one.0).collect();
        Limits {
            connections_of_address_max: self.address_connections_max as usize,
            heads_of_address_max: self.address_heads_max as usize,
            idle_timeout: Duration::from_secs(self.idle_timeout_seconds),
            trusted,
            ..limits
        }
    }
}

/// A network of addresses, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network(pub IpNet);

impl FromStr for Network {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim();
        let network = text.parse::<IpNet>().ok();
        let network = network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        network.map(Self).ok_or_else(|| {
            ConfigError::new("must be addresses or networks, such as 10.0.0.0/8 or ::1")
        })
    }
}
