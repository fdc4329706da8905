//! Imports of many customers in the store. The rows of a file are sealed, and go when they were
//! gone through.

use domain::bulk_import::{
    BulkImport, Counts, Draft, NewRow, Part, PartContent, Progress, Refusal, Row as ImportRow,
    Status,
};
use domain::id::JobId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::compressed::{compress, decompress};
use crate::customers::StoredIdentity;
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::record::{Record, record_table};
use crate::sql::{Row, Value};

impl Record for BulkImport {
    type Key = JobId;
    const TABLE: &'static str = "bulk_imports";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "platform",
        "status",
        "total",
        "parts",
        "parts_done",
        "successful",
        "failed",
        "updated_at",
    ];
    record_table!(bulk_imports);

    fn key(&self) -> JobId {
        self.id()
    }

    fn values(&self) -> Vec<Value> {
        let (draft, progress) = (self.draft(), self.progress());
        vec![
            draft.id.into(),
            draft.platform.into(),
            Value::name(progress.status.name()),
            draft.total.into(),
            draft.parts.into(),
            progress.parts_done.into(),
            progress.counts.successful.into(),
            progress.counts.failed.into(),
            progress.updated_at.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let (id, platform) = (row.id()?, row.id()?);
        let status = row.named(Status::from_name)?;
        let draft = Draft { id, platform, total: row.count()?, parts: row.count()? };
        let progress = Progress {
            status,
            parts_done: row.count()?,
            counts: Counts { successful: row.count()?, failed: row.count()? },
            updated_at: row.time()?,
        };
        Self::restore(draft, progress).ok_or_else(|| row.corrupt("counts that do not fit"))
    }
}

/// The key of a part: its import and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartKey(pub JobId, pub u32);

impl PartKey {
    fn bytes(self) -> Vec<u8> {
        [&self.0.uuid().as_bytes()[..], &self.1.to_be_bytes()].concat()
    }
}

/// A row as it waits inside the sealed column: its label, and what it asks for or why not.
#[derive(Serialize, Deserialize)]
struct StoredRow(String, Result<StoredNewRow, String>);

#[derive(Serialize, Deserialize)]
struct StoredNewRow {
    platform_customer_id: String,
    uma_address: String,
    identity: StoredIdentity,
}

/// The content of a part, as it is kept inside the sealed column.
#[derive(Serialize, Deserialize)]
enum StoredContent {
    Waiting(Vec<StoredRow>),
    Done(Vec<(String, String)>),
}

impl StoredContent {
    fn of(content: &PartContent) -> Self {
        let row = |row: &ImportRow| {
            let content = row.content.as_ref().map_err(String::clone);
            let content = content.map(|new| StoredNewRow {
                platform_customer_id: new.platform_customer_id.clone(),
                uma_address: new.uma_address.clone(),
                identity: StoredIdentity::of(&new.identity),
            });
            StoredRow(row.label.clone(), content)
        };
        let refusal = |refusal: &Refusal| (refusal.label.clone(), refusal.body.clone());
        match content {
            PartContent::Waiting(rows) => Self::Waiting(rows.iter().map(row).collect()),
            PartContent::Done(refused) => Self::Done(refused.iter().map(refusal).collect()),
        }
    }

    fn into_domain(self) -> Option<PartContent> {
        let row = |StoredRow(label, content): StoredRow| {
            let content = match content {
                Ok(new) => Ok(NewRow {
                    platform_customer_id: new.platform_customer_id,
                    uma_address: new.uma_address,
                    identity: new.identity.into_domain()?,
                }),
                Err(refusal) => Err(refusal),
            };
            Some(ImportRow { label, content })
        };
        let refusal = |(label, body)| Refusal { label, body };
        Some(match self {
            Self::Waiting(rows) => {
                PartContent::Waiting(rows.into_iter().map(row).collect::<Option<_>>()?)
            }
            Self::Done(refused) => PartContent::Done(refused.into_iter().map(refusal).collect()),
        })
    }
}

impl From<PartKey> for Value {
    fn from(key: PartKey) -> Self {
        key.bytes().into()
    }
}

impl Record for Part {
    type Key = PartKey;
    const TABLE: &'static str = "bulk_parts";
    const COLUMNS: &'static [&'static str] = &["id", "import", "number", "done", "sealed"];
    record_table!(bulk_parts);

    fn key(&self) -> PartKey {
        PartKey(self.import, self.number)
    }

    /// The rows of a file are sealed with a key of the import until they were gone through.
    fn data_key(&self, _: Option<Uuid>) -> Option<Uuid> {
        matches!(self.content, PartContent::Waiting(_)).then(|| self.import.uuid())
    }

    fn values(&self) -> Vec<Value> {
        let stored = serde_json::to_vec(&StoredContent::of(&self.content))
            .expect("a part has text keys only");
        let id = self.key().bytes();
        let is_done = matches!(self.content, PartContent::Done(_));
        vec![
            id.into(),
            self.import.into(),
            self.number.into(),
            is_done.into(),
            compress(&stored).into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let (id, import, number) = (row.bytes()?, row.id()?, row.count()?);
        if PartKey(import, number).bytes() != id {
            return Err(row.corrupt("not the part that its id names"));
        }
        let is_done = row.flag()?;
        let stored = row.bytes()?;
        let content = decompress(&stored)
            .and_then(|stored| serde_json::from_slice::<StoredContent>(&stored).ok())
            .and_then(StoredContent::into_domain)
            .filter(|content| matches!(content, PartContent::Done(_)) == is_done)
            .ok_or_else(|| row.corrupt("not the rows of a part"))?;
        Ok(Self { import, number, content })
    }
}
