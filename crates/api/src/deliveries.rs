//! The deliveries of events to the platform's endpoint, and sending them again.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use axum::extract::{Path, Query};
use axum::response::Response;
use domain::delivery::{Attempt, Delivery, Outcome, Plan, Status};
use domain::event::{EventKind, event_id};
use domain::id::{DeliveryId, kind};
use serde::{Deserialize, Serialize};
use service::webhooks::again::{self, Replay, Retried};
use store::deliveries::DeliveryFilter;
use store::error::StoreError;
use store::list::Order;
use store::outbox::Pending;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::auth::Caller;
use crate::error::{ApiError, Code, ErrorBody};
use crate::extract::{Acting, Json, Once, ok, respond};
use crate::page::{Cursors, List};
use crate::validate::{Checks, schema_of};

/// One attempt to deliver an event.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookAttempt)]
pub struct AttemptBody {
    /// When it began.
    #[schema(format = DateTime)]
    at: String,
    /// How long it took, in milliseconds.
    duration_millis: u32,
    /// The status that the endpoint answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    response_status: Option<u16>,
    /// The first bytes of its answer, of the last attempts; what is not text stands as replacement
    /// characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    response_body: Option<String>,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    failure: Option<String>,
}

impl From<&Attempt> for AttemptBody {
    fn from(attempt: &Attempt) -> Self {
        let (mut response_status, mut response_body, mut failure) = (None, None, None);
        match &attempt.outcome {
            Outcome::Answered { status, body } => {
                response_status = Some(*status);
                response_body = Some(String::from_utf8_lossy(body).into_owned());
            }
            Outcome::Refused(why) => failure = Some(why.clone()),
            Outcome::Unreachable => failure = Some("the endpoint could not be reached".to_owned()),
            Outcome::TimedOut => failure = Some("the endpoint did not answer in time".to_owned()),
        }
        Self {
            at: attempt.at.to_string(),
            duration_millis: attempt.millis,
            response_status,
            response_body,
            failure,
        }
    }
}

/// The delivery of one event.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookDelivery)]
pub struct DeliveryBody {
    /// System id.
    #[schema(pattern = "^Delivery:")]
    id: String,
    /// The event's id, as the endpoint sees it.
    #[schema(pattern = "^Webhook:")]
    event_id: String,
    /// The event's type.
    #[serde(rename = "type")]
    kind: &'static str,
    /// System id of what the event is about. Invitations have a code instead, which is secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    resource_id: Option<String>,
    /// `SUPERSEDED` is an approval request that was not sent, because its payment was decided
    /// before.
    status: &'static str,
    /// When the event happened.
    #[schema(format = DateTime)]
    created_at: String,
    /// When something happened to the delivery last.
    #[schema(format = DateTime)]
    updated_at: String,
    /// When it is attempted next, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    next_attempt_at: Option<String>,
    /// The delivery that is attempted before this one, as it is about an earlier change of the same
    /// resource. `nextAttemptAt` is that one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^Delivery:")]
    waiting_for: Option<String>,
    /// Every attempt, oldest first.
    attempts: Vec<AttemptBody>,
}

impl DeliveryBody {
    /// `first` is the first pending delivery about the same resource.
    fn new(delivery: &Delivery, first: Option<Pending>) -> Self {
        let (draft, progress) = (delivery.draft(), delivery.progress());
        let before = first.filter(|it| progress.due_at.is_some() && it.id != draft.id);
        let due_at = before.map(|it| it.due_at).or(progress.due_at);
        // An approval request is sent at once, or never.
        let due_at = due_at.filter(|_| draft.plan != Plan::Asked);
        Self {
            id: draft.id.to_string(),
            event_id: event_id(draft.resource, draft.number).to_string(),
            kind: draft.kind.name(),
            resource_id: prefix(draft.kind).map(|prefix| format!("{prefix}:{}", draft.resource)),
            status: progress.status.name(),
            created_at: draft.id.created_at().to_string(),
            updated_at: progress.updated_at.to_string(),
            next_attempt_at: due_at.map(|due_at| due_at.to_string()),
            waiting_for: before.filter(|_| draft.plan != Plan::Asked).map(|it| it.id.to_string()),
            attempts: progress.attempts.iter().map(AttemptBody::from).collect(),
        }
    }
}

/// The prefix of ids of the resources that events of a kind are about.
fn prefix(kind: EventKind) -> Option<&'static str> {
    use domain::id::Kind as _;
    match kind {
        EventKind::IncomingPayment | EventKind::OutgoingPayment => Some(kind::Transaction::PREFIX),
        EventKind::KycStatus => Some(kind::Customer::PREFIX),
        EventKind::AccountStatus => Some(kind::InternalAccount::PREFIX),
        EventKind::BulkUpload => Some(kind::Job::PREFIX),
        EventKind::Test => Some(kind::Platform::PREFIX),
        EventKind::InvitationClaimed => None,
    }
}

/// Which deliveries are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ListDeliveries {
    /// In this status.
    status: Option<String>,
    /// Of events of this type.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Of events about the resource with this system id.
    resource_id: Option<String>,
    /// Of events that happened then or later.
    #[param(format = DateTime)]
    start_date: Option<String>,
    /// Of events that happened then or earlier.
    #[param(format = DateTime)]
    end_date: Option<String>,
    /// Rows of a page.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100, default = 20)]
    limit: Option<String>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
}

/// The uuid of a system id, whatever it names.
fn resource(checks: &mut Checks, text: Option<&str>) -> Option<Uuid> {
    let text = text?;
    let known = EventKind::ALL.into_iter().filter_map(prefix);
    let uuid = known
        .filter_map(|prefix| text.strip_prefix(prefix)?.strip_prefix(':'))
        .find_map(|rest| Uuid::try_parse(rest).ok());
    if uuid.is_none() {
        checks.refuse("resourceId", "is not the system id of something that events are about");
    }
    uuid
}

/// List webhook deliveries.
///
/// The deliveries of the platform's events, the newest events first.
#[utoipa::path(get, path = "/webhooks/deliveries",
    operation_id = "listWebhookDeliveries", tag = "Webhooks", params(ListDeliveries),
    responses((status = 200, description = "A page of deliveries.",
        body = List<DeliveryBody>)))]
pub async fn list(
    Acting(app): Acting,
    caller: Caller,
    Query(query): Query<ListDeliveries>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::new();
    let platform = caller.platform.id;
    let cursors = Cursors::new(&app, platform, "deliveries");
    let (limit, cursor) = (query.limit.as_deref(), query.cursor.as_deref());
    let page = cursors.request(&mut checks, limit, cursor, Order::Descending);
    let filter = DeliveryFilter {
        resource: resource(&mut checks, query.resource_id.as_deref()),
        kind: checks.named_if("type", query.kind.as_deref(), EventKind::from_name),
        status: checks.named_if("status", query.status.as_deref(), Status::from_name),
        created_after: checks.time_if("startDate", query.start_date.as_deref()),
        created_before: checks.time_if("endDate", query.end_date.as_deref()),
    };
    checks.done()?;
    let read = app.store().read(move |view| {
        let page = view.deliveries(platform, &filter, page)?;
        let mut first = BTreeMap::new();
        for delivery in page.rows.iter().filter(|row| row.status() == Status::Pending) {
            let resource = delivery.draft().resource;
            if let Entry::Vacant(entry) = first.entry(resource) {
                entry.insert(view.pending_deliveries(resource, 1)?.first().copied());
            }
        }
        Ok::<_, StoreError>((page, first))
    });
    let (page, first) = read.await?;
    let body = |row: &Delivery| {
        DeliveryBody::new(row, first.get(&row.draft().resource).copied().flatten())
    };
    Ok(ok(&cursors.list(page, |row| row.id().uuid(), body)))
}

/// Retry a webhook delivery.
///
/// Sends the event of a delivery again, whatever became of it before.
#[utoipa::path(post, path = "/webhooks/deliveries/{deliveryId}/retry",
    operation_id = "retryWebhookDelivery", tag = "Webhooks",
    params(("deliveryId" = String, Path, description = "System id of the delivery.")),
    responses(
        (status = 200, description = "The delivery, which is attempted now.", body = DeliveryBody),
        (status = 400, description = "There is no endpoint.", body = ErrorBody),
    ))]
pub async fn retry(Acting(app): Acting, Path(text): Path<String>, request: Once) -> Response {
    let Ok(id) = DeliveryId::parse(&text) else {
        let shown: String = text.chars().take(80).collect();
        let refusal =
            ApiError::new(Code::DeliveryNotFound, format!("there is no delivery {shown}"))
                .with("deliveryId", shown);
        return request.refuse(refusal).await;
    };
    let body = |retried: &Retried| DeliveryBody::new(&retried.delivery, retried.waits_for);
    let render = request.renderer(200, body);
    respond(again::retry(&app, request.keyed(), id, render).await)
}

/// Which events are sent again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookReplayRequest)]
pub struct ReplayRequest {
    /// Those that happened then or later.
    #[schema(format = DateTime)]
    from: String,
    /// Those that happened before.
    #[schema(format = DateTime)]
    to: String,
    /// Of these types; of all if it is left out.
    #[serde(default)]
    #[schema(nullable = false, max_items = 7)]
    types: Option<Vec<String>>,
}

schema_of!(ReplayRequest);

/// The events that are sent again.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookReplay)]
pub struct ReplayBody {
    /// How many events are sent again.
    events: usize,
}

/// Replay events.
///
/// Sends the events of a time again, each with the id and the bytes that it always had.
#[utoipa::path(post, path = "/webhooks/replay",
    operation_id = "replayEvents", tag = "Webhooks", request_body = ReplayRequest,
    responses(
        (status = 200, description = "How many events are delivered again.", body = ReplayBody),
        (status = 400, description = "There is no endpoint, or there are too many events.",
            body = ErrorBody),
    ))]
pub async fn replay(
    Acting(app): Acting,
    request: Once,
    Json(body): Json<ReplayRequest>,
) -> Response {
    let wanted = match body.and_then(|body| wanted(&body)) {
        Ok(wanted) => wanted,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let render = request.renderer(200, |events: &usize| ReplayBody { events: *events });
    respond(again::replay(&app, request.keyed(), wanted, render).await)
}

fn wanted(body: &ReplayRequest) -> Result<Replay, ApiError> {
    let mut checks = Checks::new();
    let from = checks.time_if("from", Some(&body.from));
    let to = checks.time_if("to", Some(&body.to));
    let mut kinds = BTreeSet::new();
    for (index, name) in body.types.iter().flatten().enumerate() {
        let field = format!("types[{index}]");
        kinds.extend(checks.named_if(&field, Some(name), EventKind::from_name));
    }
    if let (Some(from), Some(to)) = (from, to)
        && from >= to
    {
        checks.refuse("to", "must be later than from");
    }
    let replay = from.zip(to).map(|(from, to)| Replay { from, to, kinds });
    checks.finish(replay)
}
