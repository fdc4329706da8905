//! Universal money addresses: `$user@domain` (specification 2.6; contract 6.3).

use std::fmt;

/// A domain under which addresses are given out: lower case, letters, digits, hyphens, dots, and a
/// port where a platform on a developer's machine needs one. There the IPv4 loopback address stands
/// for a name too, as in the reference implementations of UMA.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UmaDomain(String);

/// An address in its one spelling: lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UmaAddress(String);

/// Why a text is not an address or a domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUma {
    /// Not of the form `$user@domain` with the allowed characters and lengths.
    #[error(
        "'{0}' is not a UMA address: $user@domain, the user part of a-z 0-9 - _ . + in at most \
         {USER_MAX} characters with the $"
    )]
    Address(String),
    /// Not a domain name.
    #[error("'{0}' is not a domain name such as uma.example.com")]
    Domain(String),
}

/// Characters of the user part with its `$` (contract 6.3).
const USER_MAX: usize = 64;
/// Characters of a domain name at most (RFC 1035).
const DOMAIN_MAX: usize = 253;
/// The IPv4 loopback address, a domain only with a port.
const LOOPBACK: &str = "127.0.0.1";
/// The name that every machine has for itself (RFC 6761).
const LOCALHOST: &str = "localhost";
/// Characters of one label of a domain name at most (RFC 1035).
const LABEL_MAX: usize = 63;

impl UmaDomain {
    /// Reads a domain name, with a port where it has one. Case does not matter.
    pub fn parse(text: &str) -> Result<Self, InvalidUma> {
        let domain = text.to_ascii_lowercase();
        let (host, port) = match domain.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (domain.as_str(), None),
        };
        let port_is_sound = port.is_none_or(|port| {
            port.bytes().all(|byte| byte.is_ascii_digit())
                && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        // A name whose last label is a number is read as an IPv4 address (RFC 3696, section 2).
        let last = host.rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
        let label_is_sound = |label: &str| {
            (1..=LABEL_MAX).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let is_name = host.len() <= DOMAIN_MAX && host.split('.').all(label_is_sound);
        let is_loopback = host == LOOPBACK && port.is_some();
        if is_name && (!is_number || is_loopback) && port_is_sound {
            Ok(Self(domain))
        } else {
            Err(InvalidUma::Domain(text.chars().take(80).collect()))
        }
    }

    /// The domain as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it leads to the machine that asks, so that no other machine reaches its addresses.
    pub fn is_of_this_machine(&self) -> bool {
        let host = self.0.split(':').next().unwrap_or_default();
        host == LOOPBACK || host == LOCALHOST
    }
}

impl fmt::Display for UmaDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl UmaAddress {
    /// Reads `$user@domain`. Case does not matter: the address is kept in lower case.
    pub fn parse(text: &str) -> Result<Self, InvalidUma> {
        let invalid = || InvalidUma::Address(text.chars().take(80).collect());
        if !text.is_ascii() {
            return Err(invalid());
        }
        let address = text.to_ascii_lowercase();
        let (user, domain) = address.split_once('@').ok_or_else(invalid)?;
        let name = user.strip_prefix('$').ok_or_else(invalid)?;
        let allowed = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.+".contains(&byte)
        };
        if name.is_empty() || user.len() > USER_MAX || !name.bytes().all(allowed) {
            return Err(invalid());
        }
        UmaDomain::parse(domain).map_err(|_| invalid())?;
        Ok(Self(address))
    }

    /// The address of `user` (without `$`) at `domain`; `user` must be of the allowed characters.
    pub fn at(user: &str, domain: &UmaDomain) -> Result<Self, InvalidUma> {
        Self::parse(&format!("${user}@{domain}"))
    }

    /// The address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text before the `@`, without the `$`.
    pub fn user(&self) -> &str {
        let user = self.0.split_once('@').map_or("", |(user, _)| user);
        user.strip_prefix('$').unwrap_or(user)
    }

    /// The text behind the `@`.
    pub fn domain(&self) -> &str {
        self.0.split_once('@').map_or("", |(_, domain)| domain)
    }
}

impl fmt::Display for UmaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_domain_of_this_machine_leads_nowhere_else() {
        for (domain, expected) in [
            ("localhost", true),
            ("LOCALHOST:8080", true),
            ("127.0.0.1:8080", true),
            ("localhost.example.com", false),
            ("pay.localhost.example", false),
            ("switchyard.internal", false),
            ("pay.example.com:8080", false),
        ] {
            let domain = UmaDomain::parse(domain).expect("a domain");
            assert_eq!(domain.is_of_this_machine(), expected, "{domain}");
        }
    }

    #[test]
    fn addresses_have_one_spelling() {
        for (given, kept) in [
            ("$Alice@Example.COM", "$alice@example.com"),
            ("$a-b_c.d+e@localhost:8080", "$a-b_c.d+e@localhost:8080"),
            ("$0@x", "$0@x"),
            ("$bob@127.0.0.1:9102", "$bob@127.0.0.1:9102"),
        ] {
            assert_eq!(UmaAddress::parse(given).expect(given).as_str(), kept);
        }
    }

    #[test]
    fn what_is_not_an_address_is_refused() {
        let long = format!("${}@example.com", "a".repeat(64));
        for wrong in [
            "alice@example.com",
            "$@example.com",
            "$alice",
            "$alice@",
            "$al ice@example.com",
            "$alice@exa mple.com",
            "$alice@@example.com",
            "$alice@b@c",
            "$аlice@example.com",
            "＄alice@example.com",
            "$alice@-x.com",
            "$alice@x..com",
            "$\u{212a}@example.com",
            "$alice@example.com:99999",
            "$alice@example.com:0",
            "$alice@0",
            "$alice@127.0.0.1",
            "$alice@127.0.0.2:8080",
            "$alice@example.7",
            "$alice@example.com:",
            "$a\u{200b}b@example.com",
            "",
            long.as_str(),
        ] {
            assert!(UmaAddress::parse(wrong).is_err(), "{wrong}");
        }
        assert!(UmaAddress::parse(&format!("${}@example.com", "a".repeat(63))).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_and_reading_is_stable(text in ".{0,80}") {
            if let Ok(address) = UmaAddress::parse(&text) {
                prop_assert_eq!(UmaAddress::parse(address.as_str()), Ok(address));
            }
        }
    }
}
