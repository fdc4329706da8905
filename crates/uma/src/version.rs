//! Versions of the protocol and how two sides agree on one (UMAD-08).

use std::fmt;

use crate::error::{ErrorCode, Refusal};
use crate::json::shown;

/// A version, `major.minor`. Minor versions of one major can talk to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Differs where messages have another form.
    pub major: u32,
    /// Differs where optional fields were added.
    pub minor: u32,
}

/// The form of messages, which follows from the major version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Version 0.
    V0,
    /// Version 1.
    V1,
}

impl Version {
    /// The version that we announce.
    pub const CURRENT: Self = Self { major: 1, minor: 0 };
    /// The highest of the major version before.
    pub const LEGACY: Self = Self { major: 0, minor: 3 };
    /// Our highest version of each major version, the highest first.
    pub const SUPPORTED: [Self; 2] = [Self::CURRENT, Self::LEGACY];

    /// Reads `major.minor`: two decimal numbers without signs, spaces or leading zeros.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let version = text
            .split_once('.')
            .and_then(|(major, minor)| Some(Self { major: number(major)?, minor: number(minor)? }));
        version.ok_or_else(|| {
            let reason = format!("umaVersion '{}' is not of the form 1.0", shown(text));
            Refusal::new(ErrorCode::ParseLnurlpRequestError, reason)
        })
    }

    /// The version in which the receiving side answers a request of this version: the lower of the
    /// requested one and its own highest of that major version.
    pub fn negotiate(self) -> Result<Self, Refusal> {
        match highest_of(self.major) {
            Some(own) => Ok(own.min(self)),
            None => Err(Refusal {
                code: ErrorCode::UnsupportedUmaVersion,
                reason: format!("umaVersion {self} is not supported"),
                supported_major_versions: Self::SUPPORTED.map(|own| own.major).to_vec(),
            }),
        }
    }

    /// The version in which the sending side asks again after a 412 that lists `majors`: its own
    /// highest of the highest major version in common.
    pub fn negotiate_again(majors: &[u32]) -> Result<Self, Refusal> {
        let common = majors.iter().filter_map(|major| highest_of(*major)).max();
        common.ok_or_else(|| {
            let reason = format!("the peer supports the major versions {majors:?}, we 1 and 0");
            Refusal::new(ErrorCode::NoCompatibleUmaVersion, reason)
        })
    }

    /// The form of messages of this version.
    pub const fn form(self) -> Form {
        if self.major == 0 { Form::V0 } else { Form::V1 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

fn highest_of(major: u32) -> Option<Version> {
    Version::SUPPORTED.into_iter().find(|own| own.major == major)
}

fn number(digits: &str) -> Option<u32> {
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    if is_plain { digits.parse().ok() } else { None }
}
