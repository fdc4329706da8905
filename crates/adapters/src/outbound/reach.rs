//! Which addresses may be reached.

use std::net::IpAddr;

use domain::network;
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

/// Refuses an address that may not be connected to.
pub(super) fn check_address(address: IpAddr, reach: Reach) -> Result<(), Refusal> {
    let is_ours = reach == Reach::Loopback && address.is_loopback();
    if network::is_public(address) || is_ours { Ok(()) } else { Err(NOT_PUBLIC) }
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
