//! Checks of identities in the store.

use domain::code::Code;
use domain::id::IdentityCheckId;
use domain::kyc::{CheckDraft, CheckStatus, IdentityCheck};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::record::{Record, of_person, record_table};
use crate::sql::{Row, Value};

/// The parts of a check that are kept inside the sealed column.
#[derive(Serialize, Deserialize)]
struct Stored {
    code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    redirect_uri: Option<String>,
}

impl Keyring {
    /// The check that a code opens.
    pub fn identity_check(&self, code: &Code) -> IdentityCheckId {
        IdentityCheckId::from_uuid(self.opened_by("identity check", code))
    }
}

impl Record for IdentityCheck {
    type Key = IdentityCheckId;
    const TABLE: &'static str = "identity_checks";
    const COLUMNS: &'static [&'static str] =
        &["id", "platform", "customer", "status", "expires_at", "created_at", "sealed"];
    record_table!(identity_checks);

    fn key(&self) -> IdentityCheckId {
        self.id()
    }

    fn owner(&self) -> Option<Uuid> {
        Some(self.draft().customer.uuid())
    }

    fn data_key(&self, _: Option<Uuid>) -> Option<Uuid> {
        of_person(self)
    }

    fn values(&self) -> Vec<Value> {
        let draft = self.draft();
        let stored = Stored {
            code: draft.code.reveal().to_owned(),
            redirect_uri: draft.redirect_uri.clone(),
        };
        let stored = serde_json::to_vec(&stored).expect("a check has text keys only");
        vec![
            draft.id.into(),
            draft.platform.into(),
            draft.customer.into(),
            Value::name(self.status().name()),
            draft.expires_at.into(),
            draft.created_at.into(),
            stored.into(),
        ]
    }

    fn read(row: &mut Row, keyring: &Keyring) -> Result<Self, StoreError> {
        let (id, platform, customer): (IdentityCheckId, _, _) = (row.id()?, row.id()?, row.id()?);
        let status = row.named(CheckStatus::from_name)?;
        let (expires_at, created_at) = (row.time()?, row.time()?);
        let stored = row.bytes()?;
        let stored: Stored = serde_json::from_slice(&stored).map_err(|error| row.corrupt(error))?;
        let code = Code::parse(&stored.code)
            .filter(|code| keyring.identity_check(code) == id)
            .ok_or_else(|| row.corrupt("not the code that the id is made of"))?;
        let redirect_uri = stored.redirect_uri;
        let draft =
            CheckDraft { id, code, platform, customer, redirect_uri, expires_at, created_at };
        Ok(Self::restore(draft, status))
    }
}
