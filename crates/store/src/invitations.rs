//! Invitations in the store.

use domain::code::Code;
use domain::currency::Currency;
use domain::id::InvitationId;
use domain::invitation::{Draft, End, Event, Invitation, Status};
use domain::money::Money;
use domain::uma_address::UmaAddress;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::record::{Record, of_person, record_table};
use crate::sealed::each;
use crate::sql::{Row, Value};

/// The parts of an invitation that are kept inside the sealed column.
#[derive(Serialize, Deserialize)]
struct Stored {
    code: String,
    inviter_uma: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    invitee_uma: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<(i64, String)>,
}

impl Keyring {
    /// The invitation that a code opens.
    pub fn invitation(&self, code: &Code) -> InvitationId {
        InvitationId::from_uuid(self.opened_by("invitation", code))
    }
}

impl Record for Invitation {
    type Key = InvitationId;
    const TABLE: &'static str = "invitations";
    const COLUMNS: &'static [&'static str] =
        &["id", "platform", "inviter", "status", "expires_at", "created_at", "ended_at", "sealed"];
    record_table!(invitations);

    fn key(&self) -> InvitationId {
        self.id()
    }

    fn owner(&self) -> Option<Uuid> {
        Some(self.draft().inviter.uuid())
    }

    fn data_key(&self, _: Option<Uuid>) -> Option<Uuid> {
        of_person(self)
    }

    fn values(&self) -> Vec<Value> {
        let draft = self.draft();
        let amount = draft.amount_to_send;
        let stored = Stored {
            code: draft.code.reveal().to_owned(),
            inviter_uma: draft.inviter_uma.to_string(),
            invitee_uma: self.claim().map(|(invitee, _)| invitee.to_string()),
            first_name: draft.first_name.clone(),
            amount: amount.map(|amount| (amount.minor(), amount.currency().code().to_owned())),
        };
        let stored = serde_json::to_vec(&stored).expect("an invitation has text keys only");
        vec![
            draft.id.into(),
            draft.platform.into(),
            draft.inviter.into(),
            Value::name(self.status().name()),
            Value::or_null(draft.expires_at),
            draft.created_at.into(),
            Value::or_null(self.end().map(|end| end.at)),
            stored.into(),
        ]
    }

    fn read(row: &mut Row, keyring: &Keyring) -> Result<Self, StoreError> {
        let (id, platform, inviter): (InvitationId, _, _) = (row.id()?, row.id()?, row.id()?);
        let status = row.named(Status::from_name)?;
        let expires_at = row.time_or_null()?;
        let (created_at, ended_at) = (row.time()?, row.time_or_null()?);
        let stored = row.bytes()?;
        let stored: Stored = serde_json::from_slice(&stored).map_err(|error| row.corrupt(error))?;
        let parts = || {
            let address = |text: String| UmaAddress::parse(&text).ok();
            let amount = |(minor, code): (i64, String)| {
                Money::positive(minor, Currency::from_code(&code)?).ok()
            };
            let event = match (status, each(stored.invitee_uma, address)?) {
                (Status::Pending, None) => None,
                (Status::Claimed, Some(invitee)) => Some(Event::Claimed(invitee)),
                (Status::Expired, None) => Some(Event::Expired),
                (Status::Cancelled, None) => Some(Event::Cancelled),
                (Status::Claimed, None)
                | (Status::Pending | Status::Expired | Status::Cancelled, Some(_)) => return None,
            };
            let end = match (event, ended_at) {
                (Some(event), Some(at)) => Some(End { event, at }),
                (None, None) => None,
                (Some(_), None) | (None, Some(_)) => return None,
            };
            let code = Code::parse(&stored.code).filter(|code| keyring.invitation(code) == id)?;
            let draft = Draft {
                id,
                code,
                platform,
                inviter,
                inviter_uma: address(stored.inviter_uma)?,
                first_name: stored.first_name,
                amount_to_send: each(stored.amount, amount)?,
                expires_at,
                created_at,
            };
            Self::restore(draft, end)
        };
        parts().ok_or_else(|| row.corrupt("parts that do not fit together"))
    }
}
