//! Whose request it is, where proxies stand in front.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Once};

use http::HeaderMap;
use ipnet::IpNet;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// The networks of proxies that are believed about the addresses of their clients.
#[derive(Debug, Clone, Default)]
pub struct Trusted(Arc<[IpNet]>);

impl FromIterator<IpNet> for Trusted {
    fn from_iter<T: IntoIterator<Item = IpNet>>(networks: T) -> Self {
        Self(networks.into_iter().collect())
    }
}

impl Trusted {
    /// Whether there is a proxy of the operator's at this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The address behind the proxies: each has added the one that it saw to the right of
    /// `X-Forwarded-For`. The rightmost that is no proxy's own is true, whatever a client sent.
    pub(super) fn client_of(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        if !headers.contains_key(FORWARDED_FOR) {
            return client;
        }
        if !self.contains(client) {
            static WARNED: Once = Once::new();
            WARNED.call_once(|| {
                tracing::warn!(
                    %peer,
                    "X-Forwarded-For is ignored, as --trust-forwarded-from does not name this \
                     address: if it is a proxy, all of its clients count as one"
                );
            });
            return client;
        }
        let values = headers.get_all(FORWARDED_FOR).iter().collect::<Vec<_>>();
        let named = values.into_iter().rev().flat_map(|value| {
            let text = value.to_str().unwrap_or_default();
            text.rsplit(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>()
        });
        for name in named {
            if !self.contains(client) {
                break;
            }
            let Some(address) = parse(&name) else { break };
            client = address;
        }
        client
    }
}

/// An address, which some proxies write with a port.
fn parse(name: &str) -> Option<IpAddr> {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let address = bare.parse::<IpAddr>().or_else(|_| name.parse::<SocketAddr>().map(|it| it.ip()));
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rightmost_address_that_is_no_proxy_is_the_clients() {
        let trusted: Trusted = ["10.0.0.0/8", "fd00::/8"]
            .iter()
            .map(|network| network.parse::<IpNet>().expect("a network"))
            .collect();
        let check = |peer: &str, values: &[&str], expected: &str| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(FORWARDED_FOR, value.parse().expect("a value"));
            }
            let client = trusted.client_of(peer.parse().expect("an address"), &headers);
            assert_eq!(client.to_string(), expected, "{peer} {values:?}");
        };
        check("203.0.113.1", &["198.51.100.7"], "203.0.113.1");
        check("10.0.0.1", &[], "10.0.0.1");
        check("10.0.0.1", &["198.51.100.7"], "198.51.100.7");
        check("10.0.0.1", &["1.1.1.1, 198.51.100.7"], "198.51.100.7");
        check("10.0.0.1", &["1.1.1.1", "198.51.100.7, 10.2.3.4"], "198.51.100.7");
        check("::ffff:10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7");
        check("fd00::1", &["[2001:db8::1]:4711"], "2001:db8::1");
        check("10.0.0.1", &["1.1.1.1, unknown"], "10.0.0.1");
        check("10.0.0.1", &["10.0.0.9"], "10.0.0.9");
    }
}
