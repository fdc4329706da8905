//! Which addresses may be reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use ipnet::{Ipv4Net, Ipv6Net};
use ports::outbound::Reach;
use reqwest::Url;
use url::Host;

/// Ports of https that are not somebody's other service.
const PORTS: [u16; 2] = [443, 8443];

/// Why an address is not reached. It names what is wrong, and nothing that was found out about the
/// network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(&'static str);

impl Refusal {
    pub(super) const fn new(why: &'static str) -> Self {
        Self(why)
    }
}

const NOT_HTTPS: Refusal = Refusal::new("the endpoint must be an https address");
const CREDENTIALS: Refusal = Refusal::new("the endpoint must not have credentials in its address");
const PORT: Refusal = Refusal::new("the endpoint must be on port 443 or 8443");
const NOT_PUBLIC: Refusal = Refusal::new("the endpoint must be at a public address");
const NO_HOST: Refusal = Refusal::new("the endpoint must name a host");
const OUTSIDE: Refusal =
    Refusal::new("http is for endpoints on this machine only; use https for others");

/// IPv4 networks that are not the public internet (IANA's registry of special addresses).
static SPECIAL_V4: LazyLock<Vec<Ipv4Net>> = LazyLock::new(|| {
    [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    ]
    .map(|net| net.parse().expect("a network"))
    .to_vec()
});

/// The only IPv6 network that is given out for the public internet, and what is special in it.
static GLOBAL_V6: LazyLock<Ipv6Net> = LazyLock::new(|| "2000::/3".parse().expect("a network"));
static SPECIAL_V6: LazyLock<Vec<Ipv6Net>> = LazyLock::new(|| {
    ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"]
        .map(|net| net.parse().expect("a network"))
        .to_vec()
});

fn is_public_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|net| net.contains(&address))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    GLOBAL_V6.contains(&address) && !SPECIAL_V6.iter().any(|net| net.contains(&address))
}

/// Refuses an address that may not be connected to.
pub(super) fn check_address(address: IpAddr, reach: Reach) -> Result<(), Refusal> {
    let is_public = match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    };
    let is_ours = reach == Reach::Loopback && address.is_loopback();
    if is_public || is_ours { Ok(()) } else { Err(NOT_PUBLIC) }
}

/// Refuses a URL that could not be reached whatever its name resolves to. A host that is an address
/// already is checked here: no resolver sees it.
pub(super) fn check_url(url: &Url, reach: Reach) -> Result<(), Refusal> {
    if !url.username().is_empty() || url.password().is_some() {
        return Err(CREDENTIALS);
    }
    let host = url.host().ok_or(NO_HOST)?;
    let literal = match host {
        Host::Ipv4(address) => Some(IpAddr::V4(address)),
        Host::Ipv6(address) => Some(IpAddr::V6(address)),
        Host::Domain(_) => None,
    };
    // A name that stands for this machine on every system.
    let is_localhost = matches!(host, Host::Domain("localhost" | "localhost."));
    if reach == Reach::Loopback && (is_localhost || literal.is_some_and(|it| it.is_loopback())) {
        let is_web = matches!(url.scheme(), "http" | "https");
        return if is_web { Ok(()) } else { Err(NOT_HTTPS) };
    }
    match (url.scheme(), reach) {
        ("https", _) => {}
        ("http", Reach::Loopback) => return Err(OUTSIDE),
        _ => return Err(NOT_HTTPS),
    }
    if reach == Reach::Public && !url.port_or_known_default().is_some_and(|it| PORTS.contains(&it))
    {
        return Err(PORT);
    }
    literal.map_or(Ok(()), |address| check_address(address, reach))
}
