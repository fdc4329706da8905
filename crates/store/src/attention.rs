//! Matters for a person in the store.

use std::sync::Arc;

use domain::attention::{Attention, Kind, Notice, Outcome, Resolution};
use domain::id::AttentionId;
use domain::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::reader::View;
use crate::record::{self, Record, record_table};
use crate::sql::{Row, Value};

/// The parts that are kept inside the sealed column: a person has written some of them.
#[derive(Serialize, Deserialize)]
struct Stored {
    count: u32,
    note: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolution: Option<StoredResolution>,
}

#[derive(Serialize, Deserialize)]
struct StoredResolution {
    by: String,
    reason: String,
    outcome: String,
}

impl Stored {
    fn of(attention: &Attention) -> Self {
        let resolution = |it: &Resolution| StoredResolution {
            by: it.by.clone(),
            reason: it.reason.clone(),
            outcome: it.outcome.name().to_owned(),
        };
        Self {
            count: attention.notice.count,
            note: attention.notice.note.clone(),
            resolution: attention.resolution.as_ref().map(resolution),
        }
    }
}

impl Record for Attention {
    type Key = AttentionId;
    const TABLE: &'static str = "attention";
    const COLUMNS: &'static [&'static str] =
        &["id", "platform", "kind", "subject", "opened_at", "resolved_at", "sealed"];
    record_table!(attention);

    fn key(&self) -> AttentionId {
        self.id()
    }

    fn values(&self) -> Vec<Value> {
        let stored = serde_json::to_vec(&Stored::of(self)).expect("it has text keys only");
        vec![
            self.id().into(),
            self.platform.into(),
            Value::name(self.kind.name()),
            self.subject.into(),
            self.notice.at.into(),
            Value::or_null(self.resolution.as_ref().map(|resolution| resolution.at)),
            stored.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let id: AttentionId = row.id()?;
        let platform = row.id()?;
        let kind = row.named(Kind::from_name)?;
        let subject = row.uuid()?;
        let (at, resolved_at) = (row.time()?, row.or_null(Row::time)?);
        let stored = row.bytes()?;
        let stored: Stored = serde_json::from_slice(&stored).map_err(|error| row.corrupt(error))?;
        let resolution = match (resolved_at, stored.resolution) {
            (None, None) => None,
            (Some(at), Some(StoredResolution { by, reason, outcome })) => {
                let outcome = Outcome::from_name(&outcome)
                    .ok_or_else(|| row.corrupt("an outcome that is unknown"))?;
                Some(Resolution { at, by, reason, outcome })
            }
            (Some(_), None) | (None, Some(_)) => {
                return Err(row.corrupt("parts that do not fit together"));
            }
        };
        let notice = Notice { at, count: stored.count, note: stored.note };
        let attention = Self { kind, subject, platform, notice, resolution };
        if attention.id() != id {
            return Err(row.corrupt("not the id of its kind and subject"));
        }
        Ok(attention)
    }
}

/// The open matters of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenMatters {
    /// The kind.
    pub kind: Kind,
    /// How many there are.
    pub count: i64,
    /// When the oldest was opened, by the server's clock.
    pub oldest: Timestamp,
}

impl View<'_> {
    /// Matters for a person, oldest first: open ones, or all.
    pub fn attention(
        &mut self,
        with_resolved: bool,
        limit: u32,
    ) -> Result<Vec<Arc<Attention>>, StoreError> {
        let condition = if with_resolved { "" } else { "where resolved_at is null " };
        let which = format!("{condition}order by opened_at, id limit $1");
        record::select(self.connection, self.keyring, &which, &[i64::from(limit).into()])
    }

    /// How many matters are open, by kind.
    pub fn open_matters(&mut self) -> Result<Vec<OpenMatters>, StoreError> {
        const SQL: &str = "select kind, count(*), min(opened_at) from attention \
            where resolved_at is null group by kind order by kind";
        let columns = (Attention::TABLE, &["kind", "count", "opened_at"][..]);
        self.connection.all(SQL, &[], columns, |row| {
            Ok(OpenMatters {
                kind: row.named(Kind::from_name)?,
                count: row.int()?,
                oldest: row.time()?,
            })
        })
    }
}
