//! Approvals in the store.

use domain::approval::{Approval, Remark, Status};
use domain::erasure::Erase as _;
use domain::id::TransactionId;
use domain::platform::COUNTERPARTY_FIELDS;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::record::{Record, record_table};
use crate::sql::{Row, Value};

/// The parts of an approval that are kept inside the sealed column.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    required_fields: Vec<String>,
}

impl Record for Approval {
    type Key = TransactionId;
    const TABLE: &'static str = "approvals";
    const COLUMNS: &'static [&'static str] =
        &["transaction_id", "platform", "status", "asked_at", "decide_by", "updated_at", "sealed"];
    record_table!(approvals);

    fn key(&self) -> TransactionId {
        self.transaction()
    }

    /// A reason can name the payee, whose payment it is about.
    fn data_key(&self, unit: Option<Uuid>) -> Option<Uuid> {
        unit.filter(|_| self.tells_of_person())
    }

    fn values(&self) -> Vec<Value> {
        let remark = self.remark();
        let fields = remark.required_fields.iter().map(|field| (*field).to_owned());
        let stored = Stored { reason: remark.reason.clone(), required_fields: fields.collect() };
        let stored = serde_json::to_vec(&stored).expect("an approval has text keys only");
        vec![
            self.transaction().into(),
            self.platform().into(),
            Value::name(self.status().name()),
            self.asked_at().into(),
            self.decide_by().into(),
            self.updated_at().into(),
            stored.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let (transaction, platform): (TransactionId, _) = (row.id()?, row.id()?);
        let status = row.named(Status::from_name)?;
        let times = [row.time()?, row.time()?, row.time()?];
        let stored = row.bytes()?;
        let stored: Stored = serde_json::from_slice(&stored).map_err(|error| row.corrupt(error))?;
        let known = |name: String| COUNTERPARTY_FIELDS.into_iter().find(|known| *known == name);
        let required_fields: Option<Vec<_>> =
            stored.required_fields.into_iter().map(known).collect();
        let required_fields = required_fields.ok_or_else(|| row.corrupt("unknown field"))?;
        let remark = Remark { reason: stored.reason, required_fields };
        Self::restore(transaction, platform, status, times, remark)
            .ok_or_else(|| row.corrupt("times that contradict each other"))
    }
}
