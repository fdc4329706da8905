//! Addresses and domains of institutions as they stand in messages (UMAD-01).
//!
//! They follow the rules of `domain::uma_address`. A message keeps an address as its writer spelled
//! it, because that spelling is signed.

use std::fmt;

use domain::uma_address::{InvalidUma, UmaAddress, UmaDomain};

use crate::error::{ErrorCode, Refusal};

/// The name of this machine; a port must follow.
const LOOPBACK_NAME: &str = "localhost:";
/// The loopback address; a port must follow.
const LOOPBACK_ADDRESS: &str = "127.0.0.1:";

/// The domain of an institution, in lower case, with its port where it has one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerDomain(String);

impl PeerDomain {
    /// Reads a domain. Case does not matter.
    pub fn parse(text: &str) -> Result<Self, InvalidUma> {
        UmaDomain::parse(text).map(|domain| Self(domain.as_str().to_owned()))
    }

    /// The domain as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `http` for an institution on this machine or in a private network, else `https`.
    pub fn scheme(&self) -> &'static str {
        if is_local(&self.0) { "http" } else { "https" }
    }

    /// Refuses a URL, which stands in a field, that is not this institution's: at its domain or
    /// below it, and on its port. Another host could be anybody's, also one in our own network.
    pub(crate) fn check_own(
        &self,
        field: &str,
        text: &str,
        code: ErrorCode,
    ) -> Result<(), Refusal> {
        let parsed = |text: &str| url::Url::parse(text).ok();
        let is_own = |url: &url::Url, own: &url::Url| {
            let hosts = url.host_str().zip(own.host_str());
            let is_below = hosts.is_some_and(|(host, own)| {
                host.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            });
            is_below && url.port_or_known_default() == own.port_or_known_default()
        };
        let urls = parsed(text).zip(parsed(&self.url("/")));
        if urls.is_some_and(|(url, own)| is_own(&url, &own)) {
            return Ok(());
        }
        Err(Refusal::new(code, format!("{field} is not a URL of {self}, whose message this is")))
    }

    /// The URL of a path, which begins with `/`, at this institution.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme(), self.0)
    }
}

impl fmt::Display for PeerDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a host, with its port if it has one, is reached without TLS: `localhost` and `127.0.0.1`
/// with a port, and names below `.local` and `.internal`.
fn is_local(authority: &str) -> bool {
    let host = authority.split_once(':').map_or(authority, |(host, _)| host);
    let is_below = |top: &str| host.strip_suffix(top).is_some_and(|rest| rest.ends_with('.'));
    authority.starts_with(LOOPBACK_NAME)
        || authority.starts_with(LOOPBACK_ADDRESS)
        || is_below("local")
        || is_below("internal")
}

/// Why a URL of a peer is not called. The sentence continues the name of its field.
pub(crate) fn check_url(text: &str) -> Result<(), &'static str> {
    let url = url::Url::parse(text).map_err(|_| "is not an absolute URL")?;
    let host = url.host_str().unwrap_or_default();
    if host.is_empty() {
        return Err("is a URL without a host");
    }
    let authority = url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"));
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_local(&authority) => Ok(()),
        _ => Err("must be an https URL"),
    }
}

/// An address, `$user@domain`, in the spelling of its writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    written: String,
    user: String,
    domain: PeerDomain,
}

impl Address {
    /// Reads an address and keeps its spelling.
    pub fn parse(text: &str) -> Result<Self, InvalidUma> {
        let invalid = || InvalidUma::Address(text.chars().take(80).collect());
        let (user, domain) = text.split_once('@').ok_or_else(invalid)?;
        let domain = PeerDomain::parse(domain).map_err(|_| invalid())?;
        // The rules for the user part do not depend on the domain.
        let rules = UmaAddress::parse(&format!("{user}@localhost")).map_err(|_| invalid())?;
        Ok(Self { written: text.to_owned(), user: rules.user().to_owned(), domain })
    }

    /// The address as it was written, which is the spelling that is signed.
    pub fn as_written(&self) -> &str {
        &self.written
    }

    /// The address in its one spelling, lower case.
    #[must_use]
    pub fn normalised(&self) -> Self {
        Self { written: self.written.to_ascii_lowercase(), ..self.clone() }
    }

    /// The text before the `@` in lower case, without the `$`.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The institution that gave the address out.
    pub fn domain(&self) -> &PeerDomain {
        &self.domain
    }

    /// Whether both are one address. Case does not matter.
    pub fn is_same(&self, other: &Self) -> bool {
        self.written.eq_ignore_ascii_case(&other.written)
    }
}

impl From<&UmaAddress> for Address {
    fn from(address: &UmaAddress) -> Self {
        Self {
            written: address.as_str().to_owned(),
            user: address.user().to_owned(),
            domain: PeerDomain(address.domain().to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}
