//! UMA domains and the platforms that have them: a domain is one platform's, live or not.

use domain::id::PlatformId;
use domain::uma_address::UmaDomain;
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::record::{Record, record_table};
use crate::sql::{Row, Value};

/// The claim of a platform to a UMA domain: it has it, or had it once and has addresses at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainClaim {
    /// The domain.
    pub domain: UmaDomain,
    /// The platform.
    pub platform: PlatformId,
}

/// The key of a claim: one for each domain, over all platforms.
pub fn domain_key(domain: &UmaDomain) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_DNS, domain.as_str().as_bytes())
}

impl Record for DomainClaim {
    type Key = Uuid;
    const TABLE: &'static str = "uma_domains";
    const COLUMNS: &'static [&'static str] = &["id", "domain", "platform"];
    record_table!(uma_domains);

    fn key(&self) -> Uuid {
        domain_key(&self.domain)
    }

    fn values(&self) -> Vec<Value> {
        vec![self.key().into(), self.domain.as_str().into(), self.platform.into()]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let id = row.uuid()?;
        let domain = UmaDomain::parse(&row.text()?).map_err(|error| row.corrupt(error))?;
        if domain_key(&domain) != id {
            return Err(row.corrupt("not the domain of the row's key"));
        }
        Ok(Self { domain, platform: row.id()? })
    }
}
