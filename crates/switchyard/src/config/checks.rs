//! Checks of single values: each says in one line how its value must be.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use domain::currency::Currency;
use domain::event::EventKind;
use domain::pricing::Fees;
use domain::time::Timestamp;
use domain::token::Permission;
use http::Uri;
use rust_decimal::Decimal;

use crate::exit::ConfigError;

/// The variables of the environment.
pub type Environment = HashMap<OsString, OsString>;

/// Ten years: an age that is meant as none.
const AGE_MAX_SECONDS: u64 = 3_650 * 86_400;

/// The beginning of links to this server: a scheme, a host and perhaps a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl(String);

impl FromStr for PublicUrl {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let url = text.strip_suffix('/').unwrap_or(text);
        let is_origin = |url: &http::Uri| {
            let authority = url.authority().map_or("", |authority| authority.as_str());
            matches!(url.scheme_str(), Some("http" | "https"))
                && !url.host().unwrap_or_default().is_empty()
                && !authority.contains('@')
                && url.path_and_query().is_none_or(|rest| rest.as_str() == "/")
        };
        match url.parse() {
            Ok(parsed) if is_origin(&parsed) => Ok(Self(url.to_owned())),
            Ok(_) | Err(_) => Err(ConfigError(
                "must be http:// or https:// with a host and perhaps a port, such as \
                 https://pay.example.com"
                    .to_owned(),
            )),
        }
    }
}

impl PublicUrl {
    /// Whether it leads to this machine from nowhere else. A proxy in front of a server has another
    /// address than the server.
    pub fn is_local(&self) -> bool {
        let url: Option<Uri> = self.0.parse().ok();
        let host = url.as_ref().and_then(Uri::host).unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|it| it.is_loopback())
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a client finds the API: the server's address, which may end in the version of the API, as
/// the server itself prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiUrl(PublicUrl);

impl FromStr for ApiUrl {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let url = text.trim_end_matches('/');
        PublicUrl::from_str(url.strip_suffix(api::VERSION).unwrap_or(url)).map(Self).map_err(|_| {
            ConfigError(format!(
                "must be http:// or https:// with a host and perhaps a port, such as \
                 http://127.0.0.1:8080, with or without /{} at the end",
                api::VERSION
            ))
        })
    }
}

impl Default for ApiUrl {
    fn default() -> Self {
        Self(PublicUrl("http://127.0.0.1:8080".to_owned()))
    }
}

impl fmt::Display for ApiUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where other servers reach this one: `http://`, a host and perhaps a port. Nothing if they are
/// not to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerUrl(pub(super) Option<String>);

impl FromStr for PeerUrl {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if text == "none" {
            return Ok(Self(None));
        }
        match PublicUrl::from_str(text) {
            Ok(PublicUrl(url)) if url.starts_with("http://") => Ok(Self(Some(url))),
            Ok(_) | Err(_) => Err(ConfigError(
                "must be http:// with a host and perhaps a port, such as http://10.0.0.5:8080, or \
                 none"
                    .to_owned(),
            )),
        }
    }
}

/// A host and a port to listen on. The port 0 lets the system choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// A host name or an address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Listen {
    /// Whether it is every address of this machine, so that none tells where it is reached.
    pub fn is_everywhere(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
    }
}

impl FromStr for Listen {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let parts = text.rsplit_once(':').and_then(|(host, port)| {
            let host = match host.strip_prefix('[') {
                Some(address) => address.strip_suffix(']')?,
                None if host.contains(':') => return None,
                None => host,
            };
            Some((host, port.parse().ok()?))
        });
        match parts {
            Some((host, port)) if !host.is_empty() => Ok(Self { host: host.to_owned(), port }),
            Some(_) | None => Err(ConfigError(
                "must be a host and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned(),
            )),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The URL of a database as it was given, which may hold a password. Prints nothing of itself, and
/// is checked where no error repeats it.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(pub String);

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseUrl(..)")
    }
}

impl FromStr for DatabaseUrl {
    type Err = std::convert::Infallible;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        Ok(Self(url.to_owned()))
    }
}

pub(super) fn parse_web_url(text: &str) -> Result<Uri, ConfigError> {
    let refused = || {
        ConfigError(
            "must be http:// or https:// with a host, such as http://localhost:3000/hooks"
                .to_owned(),
        )
    };
    let url: Uri = text.parse().map_err(|_| refused())?;
    let is_web = matches!(url.scheme_str(), Some("http" | "https"));
    if is_web && url.host().is_some_and(|host| !host.is_empty()) { Ok(url) } else { Err(refused()) }
}

pub(super) fn parse_event_kind(text: &str) -> Result<EventKind, ConfigError> {
    EventKind::from_name(text).ok_or_else(|| {
        let names = EventKind::ALL.map(EventKind::name).join(", ");
        ConfigError(format!("must be one of {names}"))
    })
}

pub(super) fn parse_time(text: &str) -> Result<Timestamp, ConfigError> {
    Timestamp::parse(text)
        .map_err(|_| ConfigError("must be a time such as 2025-10-13T09:30:00Z".to_owned()))
}

/// Reads an age: a number of seconds, minutes, hours or days.
pub(super) fn parse_age(text: &str) -> Result<Duration, ConfigError> {
    let (number, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let seconds_of_unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => 0,
    };
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = number.parse::<u64>().ok().filter(|_| is_number);
    let seconds = seconds.and_then(|number| number.checked_mul(seconds_of_unit));
    match seconds.filter(|seconds| (1..=AGE_MAX_SECONDS).contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err(ConfigError(
            "must be a number of s, m, h or d, such as 90m or 24h, and at most 3650d".to_owned(),
        )),
    }
}

/// The id of an object, whatever its kind.
pub(super) fn parse_object(text: &str) -> Result<String, ConfigError> {
    let is_id = text.split_once(':').is_some_and(|(kind, name)| {
        kind.chars().all(|it| it.is_ascii_alphabetic()) && !kind.is_empty() && !name.is_empty()
    });
    let refused = || ConfigError("must be an id such as Transaction:UUID".to_owned());
    is_id.then(|| text.to_owned()).ok_or_else(refused)
}

/// The text of a variable. One that is set to nothing counts as not set: that is what a compose
/// file makes of a variable that its own environment lacks.
pub(super) fn text_of(
    name: &str,
    environment: &Environment,
) -> Result<Option<String>, ConfigError> {
    let value = environment.get(OsStr::new(name)).filter(|value| !value.is_empty());
    let Some(value) = value else {
        return Ok(None);
    };
    let text =
        value.clone().into_string().map_err(|_| ConfigError(format!("{name} is not text")))?;
    Ok(Some(text))
}

pub(super) fn parse_currency(text: &str) -> Result<Currency, ConfigError> {
    Currency::from_code(&text.to_ascii_uppercase())
        .ok_or_else(|| ConfigError("must be a code of ISO 4217, or BTC, USDC or USDT".to_owned()))
}

pub(super) fn parse_permission(text: &str) -> Result<Permission, ConfigError> {
    Permission::from_name(&text.trim().to_ascii_uppercase())
        .ok_or_else(|| ConfigError("must be VIEW, TRANSACT or MANAGE".to_owned()))
}

pub(super) fn parse_spread(text: &str) -> Result<Decimal, ConfigError> {
    text.parse()
        .ok()
        .filter(|spread| (Decimal::ZERO..Decimal::ONE).contains(spread))
        .ok_or_else(|| ConfigError("must be a fraction from 0 to below 1".to_owned()))
}

pub(super) fn parse_fixed_fee(text: &str) -> Result<i64, String> {
    let minor = text.parse().map_err(|_| "must be a whole number of smallest units".to_owned())?;
    Fees::new(minor, Decimal::ZERO).map(Fees::fixed_minor).map_err(|error| error.to_string())
}

pub(super) fn parse_variable_fee_rate(text: &str) -> Result<Decimal, String> {
    let rate = text.parse().map_err(|_| "must be a fraction from 0 to below 1".to_owned())?;
    Fees::new(0, rate).map(Fees::variable_rate).map_err(|error| error.to_string())
}
