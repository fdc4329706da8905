//! First answers to requests with an idempotency key (design decision 9).

use domain::id::PlatformId;
use domain::time::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;
use crate::journal::bodies::{self, Found};
use crate::journal::change_set::Personal;
use crate::keyring::{Keyring, Purpose};
use crate::reader::View;
use crate::record::{Record, record_table};
use crate::sql::{Connection, Row, Value};

/// The identity of a request with a key: a keyed hash of platform, method, path and key. It has 128
/// bits: among 10^12 keys, two are the same with a chance of one in 10^14.
pub type Scope = [u8; 16];

/// A keyed hash of the body of a request, within its scope. It tells whether a repeat has another
/// body, and neither what is in it nor where else it was sent.
pub type Digest = [u8; 16];

/// A first answer, as it is given again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
    /// The digest of the request's body; there is none of what has no body, nor of answers that
    /// were kept without.
    pub request: Option<Digest>,
}

impl Given {
    /// An answer to a request without a body.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: body.into(), request: None }
    }
}

/// Begins what is kept of an answer with the digest of its request in front of its body. JSON
/// does not begin so, and older answers are their body alone.
const WITH_DIGEST: u8 = 1;

/// Begins what is kept of a body that could be taken for one with a mark.
const PLAIN: u8 = 2;

/// The bytes that are kept of an answer: its body, behind the digest of its request.
pub(crate) fn kept(request: Option<Digest>, body: &[u8]) -> Vec<u8> {
    match (request, body.first()) {
        (Some(digest), _) => [&[WITH_DIGEST], &digest[..], body].concat(),
        (None, Some(&(WITH_DIGEST | PLAIN))) => [&[PLAIN], body].concat(),
        (None, _) => body.to_vec(),
    }
}

/// The digest and the body of what is kept of an answer.
fn parted(mut kept: Vec<u8>) -> Result<(Option<Digest>, Vec<u8>), String> {
    match kept.first() {
        Some(&WITH_DIGEST) => {
            let digest = kept[1..].first_chunk().copied().ok_or("its digest is cut off")?;
            kept.drain(..=size_of::<Digest>());
            Ok((Some(digest), kept))
        }
        Some(&PLAIN) => {
            kept.remove(0);
            Ok((None, kept))
        }
        Some(_) | None => Ok((None, kept)),
    }
}

/// The bytes of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// As they are kept.
    Here(Vec<u8>),
    /// In the row of the journal with this number.
    InRow(u64),
}

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
    pub body: Body,
    /// The customer's personal data in the body, while the answer is new.
    pub tells: Tells,
}

/// The personal data of a customer in the body of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tells {
    /// Anything.
    All,
    /// These texts, and no more.
    Texts(Vec<String>),
    /// Nothing but ids, amounts and states.
    Nothing,
}

impl Tells {
    /// As much as a record.
    pub(crate) fn as_much_as<R: Record>(record: &R) -> Self {
        match Personal::of(record, None) {
            None => Self::Nothing,
            Some(Personal { texts: Some(texts), .. }) => Self::Texts(texts),
            Some(Personal { texts: None, .. }) => Self::All,
        }
    }
}

impl Answer {
    /// The answer, if it was given then or later.
    pub(crate) fn given_since(
        &self,
        since: Timestamp,
        connection: &mut dyn Connection,
        keyring: &Keyring,
    ) -> Result<Option<Given>, StoreError> {
        if self.at < since {
            return Ok(None);
        }
        let corrupt =
            |what: String| StoreError::Corrupt { place: "a stored answer".to_owned(), what };
        let body = match &self.body {
            Body::Here(body) => body.clone(),
            Body::InRow(seq) => {
                let wanted = [(*seq, vec![Value::from(&self.scope[..])])];
                let found = bodies::find(connection, keyring, Self::shape(), &wanted)?.pop();
                self.body_of(found.unwrap_or(Found::Erased)).map_err(corrupt)?
            }
        };
        let (request, body) = parted(body).map_err(corrupt)?;
        Ok(Some(Given { status: self.status, body, request }))
    }

    /// The body, from the row as the journal has it, or why there is none. The table must not say
    /// anything else.
    pub(crate) fn body_of(&self, found: Found) -> Result<Vec<u8>, String> {
        match found {
            Found::There(mut values) => match values.pop() {
                Some(Value::Bytes(body)) if self.values().starts_with(&values) => Ok(body),
                _ => Err("the journal has another one".to_owned()),
            },
            Found::Erased => {
                Err("it was erased with its customer, and has no other body".to_owned())
            }
            Found::Missing(what) => Err(what),
        }
    }
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

/// The digest of the body of a request.
pub fn digest(keyring: &Keyring, scope: &Scope, body: &[u8]) -> Digest {
    let hash = keyring.hash(Purpose::Idempotency, &[b"body", scope, body]);
    *hash.first_chunk().expect("a hash is longer than a digest")
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
    const COLUMNS: &'static [&'static str] = &["scope", "at", "status", "owner", "seq"];
    const IS_BODY_IN_JOURNAL: bool = true;
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
        let owner = self.owner.filter(|_| self.tells != Tells::Nothing);
        Some(owner.unwrap_or_else(|| day(self.at)))
    }

    fn only_texts(&self) -> Option<Vec<&str>> {
        match &self.tells {
            Tells::Texts(texts) if self.owner.is_some() => {
                Some(texts.iter().map(|text| &**text).collect())
            }
            Tells::Texts(_) | Tells::All | Tells::Nothing => None,
        }
    }

    fn values(&self) -> Vec<Value> {
        vec![
            Value::from(&self.scope[..]),
            self.at.into(),
            i64::from(self.status).into(),
            Value::or_null(self.owner),
            match &self.body {
                Body::Here(body) => Value::from(&body[..]),
                Body::InRow(seq) => Value::Int(seq.cast_signed()),
            },
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        Self::read_row(row)
    }
}

impl Answer {
    /// Reads a row, in which nothing is sealed.
    pub(crate) fn read_row(row: &mut Row) -> Result<Self, StoreError> {
        let scope = read_scope(row)?;
        let (at, status) = (row.time()?, row.int()?);
        let status = u16::try_from(status).map_err(|_| row.corrupt("not an HTTP status"))?;
        let owner = row.uuid_or_null()?;
        let seq = read_seq(row)?;
        Ok(Self { scope, at, status, owner, body: Body::InRow(seq), tells: Tells::All })
    }
}

pub(crate) fn read_scope(row: &mut Row) -> Result<Scope, StoreError> {
    row.bytes()?.try_into().map_err(|_| row.corrupt("not 16 bytes"))
}

fn read_seq(row: &mut Row) -> Result<u64, StoreError> {
    let seq = row.int()?;
    u64::try_from(seq).map_err(|_| row.corrupt("not the number of a row"))
}

/// Keys of days before one.
pub(crate) const DAYS: &str =
    "select owner from data_keys where owner < $1 and sealed is not null order by owner limit $2";

/// The status of a nonce of UMA, which no answer has. It finds nonces: they are kept for minutes,
/// and answers for days. Statements have it as a literal, as their partial index does.
pub const NONCE_STATUS: u16 = 299;

/// Nonces that were used before a time.
pub(crate) const NONCES: &str =
    "select scope, at, seq from idempotency where status = 299 and at < $1 order by at limit $2";

pub(crate) const OUTDATED: &str =
    "select scope, at, seq from idempotency where at < $1 order by at limit $2";

/// An answer or a nonce that the clock says is outdated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outdated {
    /// Its request.
    pub scope: Scope,
    /// When it was given, by the clock of that time.
    pub at: Timestamp,
    /// The row of the journal that has its body.
    pub seq: u64,
}

impl View<'_> {
    /// The first answer to a request, if one was given since then.
    pub fn answer(&mut self, scope: &Scope, since: Timestamp) -> Result<Option<Given>, StoreError> {
        let Some(answer) = self.get::<Answer>(scope)? else { return Ok(None) };
        answer.given_since(since, self.connection, self.keyring)
    }

    /// The answers that were given before then, oldest first, up to a limit.
    pub fn outdated_answers(
        &mut self,
        before: Timestamp,
        max: u32,
    ) -> Result<Vec<Outdated>, StoreError> {
        self.outdated(OUTDATED, before, max)
    }

    /// The nonces that were used before then, oldest first, up to a limit.
    pub fn outdated_nonces(
        &mut self,
        before: Timestamp,
        max: u32,
    ) -> Result<Vec<Outdated>, StoreError> {
        self.outdated(NONCES, before, max)
    }

    fn outdated(
        &mut self,
        sql: &str,
        before: Timestamp,
        max: u32,
    ) -> Result<Vec<Outdated>, StoreError> {
        let parameters = [before.into(), max.into()];
        let columns = (Answer::TABLE, &["scope", "at", "seq"][..]);
        self.connection.all(sql, &parameters, columns, |row| {
            Ok(Outdated { scope: read_scope(row)?, at: row.time()?, seq: read_seq(row)? })
        })
    }

    /// The data keys of answers of whole days before then, oldest first, up to a limit.
    pub fn outdated_days(&mut self, before: Timestamp, max: u32) -> Result<Vec<Uuid>, StoreError> {
        let parameters = [day(before).into(), max.into()];
        self.connection.all(DAYS, &parameters, ("data_keys", &["owner"]), Row::uuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_with_and_without_a_digest() {
        for body in [&b"{}"[..], b"", b"[1]", &[WITH_DIGEST], &[PLAIN, 0]] {
            for digest in [None, Some([7; 16]), Some([WITH_DIGEST; 16])] {
                assert_eq!(parted(kept(digest, body)), Ok((digest, body.to_vec())));
            }
        }
        assert_eq!(kept(None, b"{}"), b"{}", "as older ones are");
        assert!(parted(vec![WITH_DIGEST; 9]).is_err());
    }
}
