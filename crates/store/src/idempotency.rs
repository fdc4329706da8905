//! First answers to requests with an idempotency key (design decision 9).

use domain::id::PlatformId;
use domain::time::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;
use crate::events::{Numbered, Place};
use crate::keyring::{Keyring, Purpose};
use crate::packed;
use crate::readers::View;
use crate::record::{Record, record_table};
use crate::sql::{Row, Value};

/// What tells one keyed request from every other: a keyed hash of platform, method, path and key.
/// 128 bits: among 10^12 keys, two are the same with a chance of one in 10^14.
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
    /// Where the bytes of the body are.
    pub body: Body,
}

/// Where the bytes of an answer are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// With the answer.
    Own(Vec<u8>),
    /// In an event that was committed with it: what a platform is told of a new payment is what the
    /// request that made it was answered.
    PartOf(Part),
}

/// A part of an event's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Where the event stands.
    pub place: Place,
    /// Where in the event's body the part begins.
    pub start: u32,
    /// Bytes of it.
    pub length: u32,
}

/// Bytes of a stored [`Part`].
const PART_LENGTH: usize = 32;

impl Part {
    /// The end of `event`'s body, behind which only the envelope is closed, if that is `body`.
    pub(crate) fn of(numbered: &Numbered, body: &[u8]) -> Option<Self> {
        let start = numbered.event.body.strip_suffix(b"}")?.strip_suffix(body)?.len();
        Some(Self {
            place: numbered.place(),
            start: u32::try_from(start).ok()?,
            length: u32::try_from(body.len()).ok()?,
        })
    }

    /// Whether a body of this many bytes has this part.
    pub(crate) fn fits(self, length: usize) -> bool {
        u64::from(self.start) + u64::from(self.length) <= length as u64
    }

    /// The bytes of the part, if the event is as it was.
    pub(crate) fn cut(self, body: &[u8]) -> Option<Vec<u8>> {
        Some(body.get(self.start as usize..)?.get(..self.length as usize)?.to_vec())
    }

    fn encode(self) -> Vec<u8> {
        let Place { platform, ordinal } = self.place;
        let numbers = [self.start, self.length].map(u32::to_be_bytes);
        let platform = platform.uuid();
        [platform.as_bytes(), &ordinal.to_be_bytes()[..], numbers.as_flattened()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PART_LENGTH] = bytes.try_into().ok()?;
        let (platform, numbers) = bytes.split_first_chunk()?;
        let (ordinal, numbers) = numbers.split_first_chunk()?;
        let [start, length] = numbers.as_chunks().0 else { return None };
        let platform = PlatformId::from_uuid(Uuid::from_bytes(*platform));
        Some(Self {
            place: Place { platform, ordinal: i64::from_be_bytes(*ordinal) },
            start: u32::from_be_bytes(*start),
            length: u32::from_be_bytes(*length),
        })
    }
}

/// An answer's bytes can be read no more: its event is not there as it was.
pub(crate) fn torn(part: Part) -> StoreError {
    let Place { platform, ordinal } = part.place;
    StoreError::Corrupt {
        place: "idempotency.part_of".to_owned(),
        what: format!("event {ordinal} of {platform} is not there as it was"),
    }
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
    let hash = keyring.hash(Purpose::Idempotency, &parts);
    *hash.first_chunk().expect("a hash is longer than a scope")
}

impl Record for Answer {
    type Key = Scope;
    const TABLE: &'static str = "idempotency";
    const COLUMNS: &'static [&'static str] = &["scope", "at", "status", "sealed", "part_of"];
    /// Hardly any answer is given again, and a repeat that comes later than the next few hundred
    /// requests may read it.
    const GENERATION_MAX: usize = 1_024;
    /// Each key is as good as chance. Where they stood in their order, each would have a page to
    /// itself in each commit.
    const IN_SEGMENTS: bool = true;
    record_table!(idempotency);

    fn key(&self) -> Scope {
        self.scope
    }

    fn key_value(key: &Scope) -> Value {
        Value::from(&key[..])
    }

    fn values(&self, keyring: &Keyring) -> Vec<Value> {
        let (sealed, part_of) = match &self.body {
            Body::Own(bytes) => {
                let packed = packed::pack(bytes, &[]);
                (keyring.seal(Self::TABLE, &self.scope, &packed).into(), Value::Null)
            }
            Body::PartOf(part) => (Value::Null, part.encode().into()),
        };
        vec![
            Value::from(&self.scope[..]),
            self.at.into(),
            i64::from(self.status).into(),
            sealed,
            part_of,
        ]
    }

    fn read(row: &mut Row, keyring: &Keyring) -> Result<Self, StoreError> {
        let scope: Scope = row.bytes()?.try_into().map_err(|_| row.corrupt("not 16 bytes"))?;
        let (at, status) = (row.time()?, row.int()?);
        let status = u16::try_from(status).map_err(|_| row.corrupt("not an HTTP status"))?;
        let (sealed, part_of) = (row.bytes_or_null()?, row.bytes_or_null()?);
        let body = match (sealed, part_of) {
            (Some(sealed), None) => {
                let packed = keyring.open(Self::TABLE, &scope, &sealed)?;
                let bytes = packed::unpack(&packed, &[]);
                Body::Own(bytes.ok_or(StoreError::Sealed { place: Self::TABLE })?)
            }
            (None, Some(part)) => {
                let part = Part::decode(&part).ok_or_else(|| row.corrupt("no part of an event"))?;
                Body::PartOf(part)
            }
            (Some(_), Some(_)) | (None, None) => {
                return Err(row.corrupt("an answer has its own bytes or is part of an event"));
            }
        };
        Ok(Self { scope, at, status, body })
    }
}

impl View<'_> {
    /// Status and bytes of the first answer to a request, if there is one.
    pub fn answer(&mut self, scope: &Scope) -> Result<Option<(u16, Vec<u8>)>, StoreError> {
        let Some(answer) = self.get::<Answer>(scope)? else { return Ok(None) };
        let body = match &answer.body {
            Body::Own(bytes) => bytes.clone(),
            Body::PartOf(part) => {
                let event = self.event(part.place)?;
                event.and_then(|event| part.cut(&event.body)).ok_or_else(|| torn(*part))?
            }
        };
        Ok(Some((answer.status, body)))
    }
}
