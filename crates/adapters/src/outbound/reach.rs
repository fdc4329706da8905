//! Which addresses may be reached.

use std::net::IpAddr;

use domain::network;
use ports::outbound::Reach;
use reqwest::Url;
use url::Host;

/// Ports of https that are not another service's.
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
const NOT_REACHED: Refusal =
    Refusal::new("the endpoint must be at a public address or in a private network");
const NO_HOST: Refusal = Refusal::new("the endpoint must name a host");
const OUTSIDE: Refusal =
    Refusal::new("http is for endpoints in private networks only; use https for others");

/// Where a connection may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Public addresses over https.
    Public,
    /// Public and private addresses over https.
    Any,
    /// Private addresses over http.
    Plain,
}

/// Refuses an address that may not be connected to.
pub(super) fn check_address(address: IpAddr, way: Way) -> Result<(), Refusal> {
    let (is_public, is_private) = (network::is_public(address), network::is_private(address));
    match way {
        Way::Public if is_public => Ok(()),
        Way::Public => Err(NOT_PUBLIC),
        Way::Any if is_public || is_private => Ok(()),
        Way::Plain if is_private => Ok(()),
        Way::Plain if is_public => Err(OUTSIDE),
        Way::Any | Way::Plain => Err(NOT_REACHED),
    }
}

/// How a URL is reached. One that could not be reached whatever its name resolves to is refused. A
/// host that is an address already is checked here: no resolver sees it.
pub(super) fn check_url(url: &Url, reach: Reach) -> Result<Way, Refusal> {
    if !url.username().is_empty() || url.password().is_some() {
        return Err(CREDENTIALS);
    }
    let way = match (url.scheme(), reach) {
        ("https", Reach::Public) => Way::Public,
        ("https", Reach::Private) => Way::Any,
        ("http", Reach::Private) => Way::Plain,
        _ => return Err(NOT_HTTPS),
    };
    let host = url.host().ok_or(NO_HOST)?;
    if reach == Reach::Public && !url.port_or_known_default().is_some_and(|it| PORTS.contains(&it))
    {
        return Err(PORT);
    }
    match host {
        Host::Ipv4(address) => check_address(IpAddr::V4(address), way)?,
        Host::Ipv6(address) => check_address(IpAddr::V6(address), way)?,
        Host::Domain(_) => {}
    }
    Ok(way)
}
