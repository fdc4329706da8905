//! The document of `/.well-known/uma-configuration`: which versions an institution speaks and where
//! it takes requests (UMAD-10). Endpoints of UMA Auth are left out.

use serde::Serialize;

use crate::address;
use crate::error::{ErrorCode, Refusal};
use crate::json::{self, Fields};
use crate::version::Version;

/// The path of the document at the root of a domain.
pub const PATH: &str = "/.well-known/uma-configuration";

/// Major versions of a peer that are read: there are two today.
const MAJORS_MAX: usize = 16;

/// A configuration document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Configuration {
    /// Its name, for people.
    pub name: String,
    /// The major versions that it speaks.
    #[serde(rename = "uma_major_versions")]
    pub majors: Vec<u32>,
    /// The URL to which invoices for a named payer are posted.
    #[serde(rename = "uma_request_endpoint", skip_serializing_if = "Option::is_none")]
    pub request_endpoint: Option<String>,
}

impl Configuration {
    /// Our document: the versions that this crate speaks, and no endpoint for invoices.
    pub fn ours(name: impl Into<String>) -> Self {
        let mut majors = Version::SUPPORTED.map(|version| version.major).to_vec();
        majors.sort_unstable();
        Self { name: name.into(), majors, request_endpoint: None }
    }

    /// The document as JSON.
    pub fn to_json(&self) -> String {
        json::text(self)
    }

    /// Reads a peer's document.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        let fields = Fields::read(ErrorCode::UmaConfigurationFetchError, body)?;
        let majors = fields.integers("uma_major_versions")?;
        let majors = majors.into_iter().filter_map(|major| u32::try_from(major).ok());
        let request_endpoint = fields.optional_filled("uma_request_endpoint")?;
        if let Some(url) = &request_endpoint {
            address::check_url(url)
                .map_err(|wrong| fields.refusal("uma_request_endpoint", wrong))?;
        }
        Ok(Self {
            name: fields.text("name")?,
            majors: majors.take(MAJORS_MAX).collect(),
            request_endpoint,
        })
    }
}
