//! First answers to requests with an idempotency key (design decision 9).

use domain::id::PlatformId;
use domain::time::Timestamp;

use crate::error::StoreError;
use crate::keyring::{Keyring, Purpose};
use crate::record::{Record, record_table};
use crate::sql::{Row, Value};

/// What tells one keyed request from every other: a keyed hash of platform, method, path and key.
pub type Scope = [u8; 32];

/// The first answer to a request with an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The request.
    pub scope: Scope,
    /// Who asked.
    pub platform: PlatformId,
    /// When.
    pub at: Timestamp,
    /// HTTP status, 2xx or 4xx.
    pub status: u16,
    /// The bytes of the body.
    pub body: Vec<u8>,
}

/// The scope of a key: platform, method and path (design decision 9).
pub fn scope(
    keyring: &Keyring,
    platform: PlatformId,
    method: &str,
    path: &str,
    key: &str,
) -> Scope {
    let platform = platform.uuid();
    let parts: [&[u8]; 4] =
        [platform.as_bytes(), method.as_bytes(), path.as_bytes(), key.as_bytes()];
    keyring.hash(Purpose::Idempotency, &parts)
}

impl Record for Answer {
    type Key = Scope;
    const TABLE: &'static str = "idempotency";
    const COLUMNS: &'static [&'static str] = &["scope", "platform", "at", "status", "sealed"];
    record_table!(idempotency);

    fn key(&self) -> Scope {
        self.scope
    }

    fn key_value(key: &Scope) -> Value {
        Value::from(&key[..])
    }

    fn values(&self, keyring: &Keyring) -> Vec<Value> {
        vec![
            Value::from(&self.scope[..]),
            self.platform.into(),
            self.at.into(),
            i64::from(self.status).into(),
            keyring.seal(Self::TABLE, &self.scope, &self.body).into(),
        ]
    }

    fn read(row: &mut Row, keyring: &Keyring) -> Result<Self, StoreError> {
        let scope: Scope = row.bytes()?.try_into().map_err(|_| row.corrupt("not 32 bytes"))?;
        let (platform, at, status) = (row.id()?, row.time()?, row.int()?);
        let status = u16::try_from(status).map_err(|_| row.corrupt("not an HTTP status"))?;
        let body = keyring.open(Self::TABLE, &scope, &row.bytes()?)?;
        Ok(Self { scope, platform, at, status, body })
    }
}
