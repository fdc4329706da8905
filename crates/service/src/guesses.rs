//! Guessing of secrets is slowed: after some wrong ones within a minute, more are not even looked
//! at.
//!
//! Guarantees: no address has more than [`WRONG_MAX`] guesses a minute, whatever clients it names.
//! A client of which so many were guessed wrong is closed to every address that has guessed wrong
//! within the minute. It is open to all others, so that its owner cannot be locked out from
//! elsewhere. Memory is bounded by `KEYS_MAX` for each of the two.
//!
//! Limits: each process counts for itself, and requests under way at the same time are counted when
//! they are answered.

use std::fmt;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use domain::time::Timestamp;

use crate::windows::{Wait, Windows};

/// Wrong secrets a minute. A person who mistypes needs fewer; at this pace, the shortest secret
/// that is allowed takes longer than the age of the universe.
pub const WRONG_MAX: u32 = 20;

/// One client as far as addresses tell: a host of IPv4, or a network of IPv6, of which a host has
/// all addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network(IpAddr);

/// The prefix of IPv6 that one client is given at least.
const NETWORK_MASK: u128 = !0 << 64;

impl Network {
    /// The address of a caller within the process.
    pub const UNKNOWN: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// Whether it is this machine, as far as its address tells: a proxy on it has the same.
    pub(crate) fn is_loopback(self) -> bool {
        self.0.is_loopback() || self.0 == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK_MASK).into(),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// The wrong secrets of the last minute.
#[derive(Default)]
pub(crate) struct Guesses {
    by: Mutex<By>,
    /// Names of clients are kept as hashes, as they may be long.
    hasher: RandomState,
}

#[derive(Default)]
struct By {
    network: Windows<Network>,
    client: Windows<u64>,
}

impl Guesses {
    /// Whether a secret is looked at.
    pub(crate) fn check(&self, client_id: &str, from: Network, now: Timestamp) -> Result<(), Wait> {
        let client = self.hasher.hash_one(client_id);
        let by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        let of_network = by.network.get(&from, now);
        let of_client = by.client.get(&client, now);
        match (of_network, of_client) {
            (Some(window), _) if window.count >= WRONG_MAX => Err(window.wait(now)),
            (Some(window), Some(client)) if client.count >= WRONG_MAX => {
                Err(window.wait(now).max(client.wait(now)))
            }
            _ => Ok(()),
        }
    }

    /// Counts a wrong secret. It is one too many where the client's were already.
    pub(crate) fn wrong(&self, client_id: &str, from: Network, now: Timestamp) -> Result<(), Wait> {
        let client = self.hasher.hash_one(client_id);
        let mut by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        let of_network = by.network.count(from, now);
        let of_client = by.client.count(client, now);
        match [of_network, of_client].into_iter().find(|window| window.count > WRONG_MAX) {
            Some(window) => Err(window.wait(now)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::windows::KEYS_MAX;

    fn network(number: u32) -> Network {
        IpAddr::V4(Ipv4Addr::from_bits(number)).into()
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let network = |text: &str| Network::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
    }

    #[test]
    fn an_address_waits_for_the_end_of_its_minute() {
        let guesses = Guesses::default();
        for number in 0..i64::from(WRONG_MAX) {
            let client = format!("client-{number}");
            assert_eq!(guesses.check(&client, network(1), at(number)), Ok(()));
            assert_eq!(guesses.wrong(&client, network(1), at(number)), Ok(()));
        }
        assert_eq!(guesses.check("another", network(1), at(500)), Err(Wait(60)));
        assert_eq!(guesses.check("another", network(1), at(59_001)), Err(Wait(1)));
        assert_eq!(guesses.check("another", network(2), at(500)), Ok(()));
        assert_eq!(guesses.check("another", network(1), at(60_000)), Ok(()));
    }

    #[test]
    fn a_client_is_closed_to_those_who_guess_and_open_to_its_owner() {
        let guesses = Guesses::default();
        for number in 0..WRONG_MAX {
            assert_eq!(guesses.check("client", network(number), at(0)), Ok(()));
            assert_eq!(guesses.wrong("client", network(number), at(0)), Ok(()));
        }
        assert_eq!(guesses.check("client", network(0), at(1)), Err(Wait(60)));
        assert_eq!(guesses.check("another", network(0), at(1)), Ok(()));
        // From an address that has not guessed, the secret is looked at, and only once if wrong.
        assert_eq!(guesses.check("client", network(100), at(1)), Ok(()));
        assert_eq!(guesses.wrong("client", network(100), at(1)), Err(Wait(60)));
        assert_eq!(guesses.check("client", network(100), at(2)), Err(Wait(60)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let guesses = Guesses::default();
        for number in 0..2 * KEYS_MAX as u32 {
            let _ =
                guesses.wrong(&number.to_string(), network(number), at(i64::from(number) / 500));
        }
        let by = guesses.by.lock().expect("no panic");
        assert_eq!(by.network.len(), KEYS_MAX);
        assert_eq!(by.client.len(), KEYS_MAX);
        assert!(
            by.network.get(&network(2 * KEYS_MAX as u32 - 1), at(40)).is_some(),
            "the newest stays"
        );
    }
}
