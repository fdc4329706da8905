//! Which addresses are the public internet (reliability 4.6).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use ipnet::{Ipv4Net, Ipv6Net};

/// IPv4 networks that are not for a client's server: every entry of IANA's registry of special
/// addresses (RFC 6890), reachable or not, those of groups, and where a cloud serves its machines.
static SPECIAL_V4: LazyLock<Vec<Ipv4Net>> = LazyLock::new(|| {
    [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        // Azure's services for its machines, in a network that is public elsewhere.
        "168.63.129.16/32",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
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
/// An address that holds one of IPv4 is outside of it (mapped, NAT64) or special (6to4, Teredo).
static GLOBAL_V6: LazyLock<Ipv6Net> = LazyLock::new(|| "2000::/3".parse().expect("a network"));
static SPECIAL_V6: LazyLock<Vec<Ipv6Net>> = LazyLock::new(|| {
    ["2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"]
        .map(|net| net.parse().expect("a network"))
        .to_vec()
});

/// Networks that belong to a site (RFC 1918, RFC 4193), and this machine itself. Networks between
/// neighbours, where clouds hand out credentials to their machines, are not among them.
static PRIVATE_V4: LazyLock<Vec<Ipv4Net>> = LazyLock::new(|| {
    ["10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]
        .map(|net| net.parse().expect("a network"))
        .to_vec()
});
static PRIVATE_V6: LazyLock<Vec<Ipv6Net>> =
    LazyLock::new(|| ["::1/128", "fc00::/7"].map(|net| net.parse().expect("a network")).to_vec());

/// Private networks in which clouds hand out credentials to their machines: Amazon, Oracle, Google,
/// Scaleway.
static METADATA_V6: LazyLock<Vec<Ipv6Net>> = LazyLock::new(|| {
    ["fd00:ec2::/32", "fd00:c1::/32", "fd20:ce::/32", "fd00:42::/32"]
        .map(|net| net.parse().expect("a network"))
        .to_vec()
});

fn is_public_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|net| net.contains(&address))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    GLOBAL_V6.contains(&address) && !SPECIAL_V6.iter().any(|net| net.contains(&address))
}

/// Whether an address is on the public internet: what this machine, its neighbours or no machine
/// has is not.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Whether an address is this machine's own or in a private network.
pub fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => PRIVATE_V4.iter().any(|net| net.contains(&address)),
        IpAddr::V6(address) => {
            let has = |nets: &[Ipv6Net]| nets.iter().any(|net| net.contains(&address));
            has(&PRIVATE_V6) && !has(&METADATA_V6)
        }
    }
}
