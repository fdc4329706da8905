//! Deliveries in the store.

use std::net::IpAddr;

use domain::delivery::{Attempt, Delivery, Draft, Outcome, Plan, Progress, Status};
use domain::erasure::Erase as _;
use domain::event::EventKind;
use domain::id::{DeliveryId, PlatformId};
use domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::list::{Conditions, Ids, Page, PageRequest, Query, Way, split_by};
use crate::reader::View;
use crate::record::{Record, record_table};
use crate::sql::{Row, Value};

/// An attempt as it is kept inside the sealed column.
#[derive(Serialize, Deserialize)]
struct Stored {
    at: i64,
    ms: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "bytes")]
    body: Vec<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    late: bool,
}

/// Bytes of an answer, which need not be text, as base64.
mod bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(from)?).map_err(de::Error::custom)
    }
}

impl Stored {
    fn of(attempt: &Attempt) -> Self {
        let mut stored = Self {
            at: attempt.at.millis(),
            ms: attempt.millis,
            peer: attempt.peer,
            status: None,
            body: Vec::new(),
            refused: None,
            late: false,
        };
        match &attempt.outcome {
            Outcome::Answered { status, body } => {
                stored.status = Some(*status);
                stored.body.clone_from(body);
            }
            Outcome::Refused(why) => stored.refused = Some(why.clone()),
            Outcome::Unreachable => {}
            Outcome::TimedOut => stored.late = true,
        }
        stored
    }

    fn into_domain(self) -> Attempt {
        let outcome = match (self.status, self.refused) {
            (Some(status), _) => Outcome::Answered { status, body: self.body },
            (None, Some(why)) => Outcome::Refused(why),
            (None, None) if self.late => Outcome::TimedOut,
            (None, None) => Outcome::Unreachable,
        };
        let at = Timestamp::from_millis(self.at);
        Attempt { at, millis: self.ms, peer: self.peer, outcome }
    }
}

impl Record for Delivery {
    type Key = DeliveryId;
    const TABLE: &'static str = "deliveries";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "platform",
        "kind",
        "resource",
        "number",
        "ordinal",
        "plan",
        "status",
        "since",
        "due_at",
        "failures",
        "updated_at",
        "sealed",
    ];
    record_table!(deliveries);

    fn key(&self) -> DeliveryId {
        self.id()
    }

    /// An answer can tell of the person whom the event is about. The resource of the event stands
    /// for the person.
    fn data_key(&self, _: Option<Uuid>) -> Option<Uuid> {
        self.tells_of_person().then(|| self.draft().resource)
    }

    fn values(&self) -> Vec<Value> {
        let (draft, progress) = (self.draft(), self.progress());
        let attempts: Vec<_> = progress.attempts.iter().map(Stored::of).collect();
        let stored = serde_json::to_vec(&attempts).expect("attempts have text keys only");
        vec![
            draft.id.into(),
            draft.platform.into(),
            Value::name(draft.kind.name()),
            draft.resource.into(),
            draft.number.into(),
            draft.ordinal.into(),
            Value::name(draft.plan.name()),
            Value::name(progress.status.name()),
            progress.since.into(),
            Value::or_null(progress.due_at),
            progress.failures.into(),
            progress.updated_at.into(),
            stored.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let draft = Draft {
            id: row.id()?,
            platform: row.id()?,
            kind: row.named(EventKind::from_name)?,
            resource: row.uuid()?,
            number: row.count()?,
            ordinal: row.int()?,
            plan: row.named(Plan::from_name)?,
        };
        let (status, since) = (row.named(Status::from_name)?, row.time()?);
        let (due_at, failures, updated_at) = (row.time_or_null()?, row.count()?, row.time()?);
        let stored = row.bytes()?;
        let stored: Vec<Stored> =
            serde_json::from_slice(&stored).map_err(|error| row.corrupt(error))?;
        let attempts = stored.into_iter().map(Stored::into_domain).collect();
        let progress = Progress { status, since, due_at, failures, updated_at, attempts };
        Self::restore(draft, progress).ok_or_else(|| row.corrupt("parts that do not fit together"))
    }
}

/// Which deliveries are listed. Bounds are inclusive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// Of events about this resource, by its uuid.
    pub resource: Option<Uuid>,
    /// Of events of this kind.
    pub kind: Option<EventKind>,
    /// In this status.
    pub status: Option<Status>,
    /// Of events that happened then or later.
    pub created_after: Option<Timestamp>,
    /// Of events that happened then or earlier.
    pub created_before: Option<Timestamp>,
}

impl View<'_> {
    /// A platform's deliveries.
    pub fn deliveries(
        &mut self,
        platform: PlatformId,
        filter: &DeliveryFilter,
        page: PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        let ids = Ids::made(filter.created_after, filter.created_before);
        let Some(resource) = filter.resource else {
            return self.list(Query::of(Way::only(runs_of(platform, filter)), ids), page);
        };
        let run = Conditions::equal("resource", resource);
        let mut query = Query::of(Way::only(vec![run]), ids);
        // A resource has few, so that these are compared row by row.
        let (kind, status) = (filter.kind.map(EventKind::name), filter.status.map(Status::name));
        query.rest.and("platform = ?", [platform.into()]);
        query.rest.and_if("kind = ?", kind.map(Value::name));
        query.rest.and_if("status = ?", status.map(Value::name));
        self.list(query, page)
    }
}

/// A platform's deliveries in the order of their ids: all lie in one index, those of a kind or a
/// status in another.
fn runs_of(platform: PlatformId, filter: &DeliveryFilter) -> Vec<Conditions> {
    let runs = vec![Conditions::equal("platform", platform)];
    if filter.kind.is_none() && filter.status.is_none() {
        return runs;
    }
    let kinds = EventKind::ALL.into_iter();
    let kinds = kinds.filter(|it| filter.kind.is_none_or(|wanted| wanted == *it));
    let statuses = Status::ALL.into_iter();
    let statuses = statuses.filter(|it| filter.status.is_none_or(|wanted| wanted == *it));
    let runs = split_by(runs, "kind", kinds.map(EventKind::name));
    split_by(runs, "status", statuses.map(Status::name))
}
