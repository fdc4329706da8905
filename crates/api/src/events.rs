//! Events as they are sent (specification 6; design decision 10), and the feed of a platform's
//! events for those who would rather pull. The bytes are made once, with the change that they tell
//! of, and are the same wherever they appear.

use axum::extract::Query;
use axum::response::Response;
use domain::customer::{Identity, KycStatus};
use domain::event::{Event, EventKind, dotted_identity, dotted_import, dotted_payment};
use domain::id::EventId;
use domain::time::Timestamp;
use domain::transaction::Direction;
use domain::{bulk_import, transaction};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use service::Error;
use service::expiry;
use service::presenter::Subject;
use store::error::StoreError;
use utoipa::{IntoParams, ToSchema};

use crate::auth::Caller;
use crate::error::{ApiError, Code};
use crate::extract::{Acting, ok};
use crate::page::Cursors;
use crate::validate::Checks;
use crate::wire::{Text, json};

/// The envelope of every event.
#[derive(Serialize)]
struct Envelope<'a, D> {
    id: Text<EventId>,
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: Text<Timestamp>,
    data: &'a D,
}

/// The dotted name of every event about an account.
const DOTTED_ACCOUNT: &str = "INTERNAL_ACCOUNT.BALANCE_UPDATED";

/// The dotted name of every event about an invitation.
const DOTTED_INVITATION: &str = "INVITATION.CLAIMED";

/// Every name that an event of a kind can have: the plain one first, then the dotted ones.
pub(crate) fn types(kind: EventKind) -> Vec<&'static str> {
    let payment = |direction| {
        transaction::Status::ALL.map(|status| dotted_payment(direction, status)).to_vec()
    };
    let identity = |is_business| KycStatus::ALL.map(|it| dotted_identity(is_business, it));
    let dotted = match kind {
        EventKind::IncomingPayment => payment(Direction::Incoming),
        EventKind::OutgoingPayment => payment(Direction::Outgoing),
        EventKind::InvitationClaimed => vec![DOTTED_INVITATION],
        EventKind::KycStatus => [identity(false), identity(true)].concat(),
        EventKind::AccountStatus => vec![DOTTED_ACCOUNT],
        EventKind::Test => Vec::new(),
        EventKind::BulkUpload => bulk_import::Status::ALL.map(dotted_import).to_vec(),
    };
    let mut types = vec![kind.name()];
    for name in dotted {
        if !types.contains(&name) {
            types.push(name);
        }
    }
    types
}

/// The dotted name of an event about a subject.
pub(crate) fn dotted(subject: Subject<'_>) -> &'static str {
    match subject {
        Subject::Transaction(transaction) | Subject::Approval(transaction, _) => {
            dotted_payment(transaction.draft().direction, transaction.status())
        }
        Subject::Account(_) => DOTTED_ACCOUNT,
        Subject::Invitation(_) => DOTTED_INVITATION,
        Subject::Import(import, _) => dotted_import(import.progress().status),
        Subject::Customer(customer) => {
            let is_business = matches!(customer.identity, Identity::Business(_));
            dotted_identity(is_business, customer.kyc.status())
        }
        Subject::Nothing => EventKind::Test.name(),
    }
}

pub(crate) fn envelope<D: Serialize>(event: &Event, kind: &'static str, data: &D) -> Vec<u8> {
    json(&Envelope { id: Text(event.id), kind, timestamp: Text(event.at), data })
}

/// Stands for the schemas of events, which the document writes for each kind.
#[derive(ToSchema)]
#[schema(as = Event)]
pub struct EventBody {}

/// Some of a platform's events.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = EventFeed)]
pub struct FeedBody {
    /// The events, oldest first, each in the bytes that are delivered.
    #[schema(value_type = Vec<EventBody>)]
    data: Vec<Box<RawValue>>,
    /// Whether there are more already.
    has_more: bool,
    /// Where those that come begin; also where there are none yet.
    next_cursor: String,
}

/// Which events are shown.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ListEvents {
    /// Of this type.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Without a cursor, those that happened then or later.
    #[param(format = DateTime)]
    start_date: Option<String>,
    /// Without a cursor: `oldest` begins with the first event there is, `latest` with the next one
    /// that happens.
    #[param(default = "oldest")]
    start: Option<String>,
    /// Events at most.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100, default = 20)]
    limit: Option<String>,
    /// The `nextCursor` of the answer before.
    cursor: Option<String>,
}

/// List events.
///
/// In the order in which they happened. A client that asks again with the cursor of the last answer
/// misses none.
#[utoipa::path(get, path = "/events",
    operation_id = "listEvents", tag = "Webhooks", params(ListEvents),
    responses((status = 200, description = "Events, oldest first.", body = FeedBody)))]
pub async fn list(
    Acting(app): Acting,
    caller: Caller,
    Query(query): Query<ListEvents>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::new();
    let platform = caller.platform.id;
    let cursors = Cursors::new(&app, platform, "events");
    let (limit, after) =
        cursors.numbered(&mut checks, query.limit.as_deref(), query.cursor.as_deref());
    let kind = checks.named_if("type", query.kind.as_deref(), EventKind::from_name);
    let since = checks.time_if("startDate", query.start_date.as_deref());
    let is_latest = checks.named_if("start", query.start.as_deref(), |name| match name {
        "oldest" => Some(false),
        "latest" => Some(true),
        _ => None,
    });
    checks.done()?;
    expiry::catch_up(&app, platform).await?;
    let read = app.store().read(move |view| {
        let after = match (after, since, is_latest) {
            (Some(after), ..) => after,
            (None, Some(since), _) => view.last_before(platform, since)?,
            (None, None, Some(true)) => view.feed(platform, i64::MAX, None, 1)?.head,
            (None, None, _) => 0,
        };
        view.feed(platform, after, kind, limit)
    });
    let feed = read.await.map_err(|error: StoreError| Error::Store(error))?;
    if after.is_some_and(|after| after > feed.head) {
        let message = "the cursor is from a later time than the database, which was restored from \
            a backup or is another one: ask without it, and for what is known already with \
            startDate";
        return Err(ApiError::new(Code::InvalidInput, message).with("field", "cursor"));
    }
    let data: Result<Vec<_>, _> =
        feed.events.into_iter().map(|numbered| raw(numbered.event)).collect();
    Ok(ok(&FeedBody {
        data: data?,
        has_more: feed.until < feed.head,
        next_cursor: cursors.behind(feed.until),
    }))
}

/// The bytes of an event, to stand in an answer as they are.
fn raw(event: Event) -> Result<Box<RawValue>, Error> {
    let broken = || Error::Internal(format!("{} is not a text in JSON", event.id));
    let text = String::from_utf8(event.body).map_err(|_| broken())?;
    RawValue::from_string(text).map_err(|_| broken())
}
