//! First answers to requests with an idempotency key (design decision 9).

use std::sync::Arc;

use domain::id::PlatformId;
use domain::time::Timestamp;
use uuid::Uuid;

use crate::compressed::{compress, decompress};
use crate::error::StoreError;
use crate::keyring::{Keyring, Purpose};
use crate::reader::View;
use crate::record::{Record, record_table};
use crate::sql::{Row, Value};

/// The identity of a request with a key: a keyed hash of platform, method, path and key. It has 128
/// bits: among 10^12 keys, two are the same with a chance of one in 10^14.
pub type Scope = [u8; 16];

/// The first answer to a request with an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The request.
    pub scope: Scope,
    /// When.
    pub at: Timestamp,
    /// HTTP status, 2xx or 4xx.
    pub status: u16,
    /// The customer whom it is about.
    pub owner: Option<Uuid>,
    /// The bytes of the body.
    pub body: Vec<u8>,
}

/// The name of the data key of all answers of a day that are about no customer. It goes with them.
/// No resource has such an id: theirs begin with a time.
pub(crate) fn day(at: Timestamp) -> Uuid {
    // The first day is 1: no bits at all are no owner.
    Uuid::from_u128(u128::from(at.millis().div_euclid(DAY_MILLIS).unsigned_abs()) + 1)
}

/// A day in milliseconds.
const DAY_MILLIS: i64 = 24 * 60 * 60 * 1_000;

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
    let hash = keyring.hash(Purpose::Idempotency, &parts);
    *hash.first_chunk().expect("a hash is longer than a scope")
}

/// The scope of a nonce of UMA: the domain that signed with it, and the nonce.
pub fn nonce(keyring: &Keyring, signer: &str, nonce: &str) -> Scope {
    let parts: [&[u8]; 3] = [b"uma nonce", signer.as_bytes(), nonce.as_bytes()];
    let hash = keyring.hash(Purpose::Idempotency, &parts);
    *hash.first_chunk().expect("a hash is longer than a scope")
}

impl Record for Answer {
    type Key = Scope;
    const TABLE: &'static str = "idempotency";
    const COLUMNS: &'static [&'static str] = &["scope", "at", "status", "owner", "sealed"];
    /// Hardly any answer is given again, and a repeat that comes later than the next few hundred
    /// requests may read it.
    const CACHED_MAX: usize = 2_048;
    record_table!(idempotency);

    fn key(&self) -> Scope {
        self.scope
    }

    fn owner(&self) -> Option<Uuid> {
        self.owner
    }

    fn data_key(&self, _: Option<Uuid>) -> Option<Uuid> {
        Some(self.owner.unwrap_or_else(|| day(self.at)))
    }

    fn values(&self) -> Vec<Value> {
        vec![
            Value::from(&self.scope[..]),
            self.at.into(),
            i64::from(self.status).into(),
            Value::or_null(self.owner),
            compress(&self.body).into(),
        ]
    }

    fn read(row: &mut Row, keyring: &Keyring) -> Result<Self, StoreError> {
        let scope = read_scope(row)?;
        let (at, status) = (row.time()?, row.int()?);
        let status = u16::try_from(status).map_err(|_| row.corrupt("not an HTTP status"))?;
        let owner = row.uuid_or_null()?;
        let body = row.sealed(keyring)?;
        let body = decompress(&body).ok_or(StoreError::Sealed { place: Self::TABLE })?;
        Ok(Self { scope, at, status, owner, body })
    }
}

pub(crate) fn read_scope(row: &mut Row) -> Result<Scope, StoreError> {
    row.bytes()?.try_into().map_err(|_| row.corrupt("not 16 bytes"))
}

/// Keys of days before one.
pub(crate) const DAYS: &str =
    "select owner from data_keys where owner < $1 and sealed is not null order by owner limit $2";

pub(crate) const OUTDATED: &str =
    "select scope from idempotency where at < $1 order by at limit $2";

/// Status and bytes of an answer that was given then or later.
pub(crate) fn given_since(answer: Option<Arc<Answer>>, since: Timestamp) -> Option<(u16, Vec<u8>)> {
    let answer = answer.filter(|answer| answer.at >= since);
    answer.map(|answer| (answer.status, answer.body.clone()))
}

impl View<'_> {
    /// Status and bytes of the first answer to a request, if one was given since then.
    pub fn answer(
        &mut self,
        scope: &Scope,
        since: Timestamp,
    ) -> Result<Option<(u16, Vec<u8>)>, StoreError> {
        Ok(given_since(self.get::<Answer>(scope)?, since))
    }

    /// The requests whose answers were given before then, oldest first, up to a limit.
    pub fn outdated_answers(
        &mut self,
        before: Timestamp,
        max: u32,
    ) -> Result<Vec<Scope>, StoreError> {
        let parameters = [before.into(), max.into()];
        self.connection.all(OUTDATED, &parameters, (Answer::TABLE, &["scope"]), read_scope)
    }

    /// The data keys of answers of whole days before then, oldest first, up to a limit.
    pub fn outdated_days(&mut self, before: Timestamp, max: u32) -> Result<Vec<Uuid>, StoreError> {
        let parameters = [day(before).into(), max.into()];
        self.connection.all(DAYS, &parameters, ("data_keys", &["owner"]), Row::uuid)
    }
}
