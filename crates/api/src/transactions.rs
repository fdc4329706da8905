//! Transactions (specification 2.3, 4.14; contract 6.10).

mod body;

use std::collections::BTreeMap;

use axum::extract::{Path, Query};
use axum::response::Response;
use domain::approval::Event;
use domain::id::{CustomerId, ExternalAccountId, InternalAccountId, Kind, Owner, PlatformId};
use domain::id::{TransactionId, kind};
use domain::transaction::{self, Direction, Status};
use serde::Deserialize;
use service::error::TransactionError;
use service::expiry;
use service::incoming;
use store::list::Order;
use store::transactions::{Named, TransactionFilter};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::auth::Caller;
use crate::error::{ApiError, Code, ErrorBody};
use crate::extract::{Acting, JsonIf, Once, ok};
use crate::page::{Cursors, List};
use crate::validate::{Checks, schema_of};

pub use body::{Facts, RateDetailsBody, TransactionBody};

/// Which transactions are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ListTransactions {
    /// Of this customer; the platform's own id for its own payments.
    customer_id: Option<String>,
    /// Of customers with this name of the platform's.
    platform_customer_id: Option<String>,
    /// From this account.
    sender_account_identifier: Option<String>,
    /// To this account.
    receiver_account_identifier: Option<String>,
    /// From or to this account.
    account_identifier: Option<String>,
    /// In this status.
    status: Option<String>,
    /// In this direction.
    #[serde(rename = "type")]
    direction: Option<String>,
    /// With this reconciliation reference.
    reference: Option<String>,
    /// Made then or later.
    #[param(format = DateTime)]
    start_date: Option<String>,
    /// Made then or earlier.
    #[param(format = DateTime)]
    end_date: Option<String>,
    /// Rows of a page.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100, default = 20)]
    limit: Option<String>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
    /// `asc` or `desc`: oldest or newest first.
    #[param(default = "desc")]
    sort_order: Option<String>,
}

/// The customer or the platform that an id names.
pub(crate) fn owner_if(checks: &mut Checks, field: &str, text: Option<&str>) -> Option<Owner> {
    let text = text?;
    if text.starts_with(kind::Platform::PREFIX) {
        return checks.id(field, text).map(|id: PlatformId| Owner::Platform(id));
    }
    checks.id(field, text).map(|id: CustomerId| Owner::Customer(id))
}

/// The internal or external account that an id names.
pub(crate) fn account_if(checks: &mut Checks, field: &str, text: Option<&str>) -> Option<Uuid> {
    let text = text?;
    if text.starts_with(kind::InternalAccount::PREFIX) {
        return checks.id(field, text).map(InternalAccountId::uuid);
    }
    checks.id(field, text).map(ExternalAccountId::uuid)
}

/// List transactions.
#[utoipa::path(get, path = "/transactions",
    operation_id = "listTransactions", tag = "Transactions", params(ListTransactions),
    responses((status = 200, description = "A page of transactions.",
        body = List<TransactionBody>)))]
pub async fn list(
    Acting(app): Acting,
    caller: Caller,
    Query(query): Query<ListTransactions>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::new();
    let sort = query.sort_order.as_deref();
    let order = checks.named_if("sortOrder", sort, |name| match name {
        "asc" => Some(Order::Ascending),
        "desc" => Some(Order::Descending),
        _ => None,
    });
    let order = order.unwrap_or_default();
    let list = match order {
        Order::Ascending => "transactions asc",
        Order::Descending => "transactions",
    };
    let cursors = Cursors::new(&app, caller.platform.id, list);
    let (limit, cursor) = (query.limit.as_deref(), query.cursor.as_deref());
    let page = cursors.request(&mut checks, limit, cursor, order);
    let mut account = |field, text: &Option<String>| match text.as_deref() {
        Some(text) if text.starts_with('$') => checks.address(field, text).map(Named::Address),
        text => account_if(&mut checks, field, text).map(Named::Account),
    };
    let source_account = account("senderAccountIdentifier", &query.sender_account_identifier);
    let destination_account =
        account("receiverAccountIdentifier", &query.receiver_account_identifier);
    let either_account = account("accountIdentifier", &query.account_identifier);
    let filter = TransactionFilter {
        owner: owner_if(&mut checks, "customerId", query.customer_id.as_deref()),
        platform_customer_id: query.platform_customer_id,
        source_account,
        destination_account,
        either_account,
        status: checks.named_if("status", query.status.as_deref(), Status::from_name),
        direction: checks.named_if("type", query.direction.as_deref(), Direction::from_name),
        reference: query.reference,
        created_after: checks.time_if("startDate", query.start_date.as_deref()),
        created_before: checks.time_if("endDate", query.end_date.as_deref()),
    };
    checks.done()?;
    let (platform, rails) = (caller.platform.id, app.env().rails(caller.platform.mode));
    expiry::catch_up(&app, platform).await?;
    let page = app.store().read(move |view| view.transactions(platform, &filter, page)).await?;
    Ok(ok(&cursors.list(page, |row| row.id().uuid(), |row| TransactionBody::new(row, rails))))
}

/// Get a transaction.
#[utoipa::path(get, path = "/transactions/{transactionId}",
    operation_id = "getTransaction", tag = "Transactions",
    params(("transactionId" = String, Path, description = "System id of the transaction.")),
    responses((status = 200, description = "The transaction.", body = TransactionBody)))]
pub async fn get(
    Acting(app): Acting,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<Response, ApiError> {
    let id = id(&text)?;
    let transaction = expiry::transaction(&app, &caller.platform, id).await?;
    Ok(ok(&TransactionBody::new(&transaction, app.env().rails(caller.platform.mode))))
}

impl From<TransactionError> for ApiError {
    fn from(error: TransactionError) -> Self {
        let plain = |code| Self::new(code, error.to_string());
        match &error {
            TransactionError::NotFound { id } => {
                plain(Code::TransactionNotFound).with("transactionId", id.to_string())
            }
            TransactionError::NotPendingApproval { id, status } => {
                plain(Code::TransactionNotPendingPlatformApproval)
                    .with("transactionId", id.to_string())
                    .with("status", status.name())
            }
        }
    }
}

/// The transaction that a path names.
fn id(text: &str) -> Result<TransactionId, ApiError> {
    TransactionId::parse(text).map_err(|_| {
        let shown: String = text.chars().take(80).collect();
        ApiError::new(Code::TransactionNotFound, format!("there is no transaction {shown}"))
            .with("transactionId", shown)
    })
}

/// Facts that the platform states about its customer who is paid.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApproveTransaction {
    /// Requested facts about the customer.
    #[serde(default)]
    #[schema(nullable = false, value_type = Option<Facts>)]
    receiver_customer_info: Option<BTreeMap<String, String>>,
}

/// Why the platform does not want a payment.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct RejectTransaction {
    /// Is kept for those who look for the cause; the payer does not see it.
    #[serde(default)]
    #[schema(nullable = false, max_length = 500, example = "RESTRICTED_JURISDICTION")]
    reason: Option<String>,
}

schema_of!(ApproveTransaction, RejectTransaction);

/// Approve an incoming payment.
///
/// It waits for the platform's decision, which must come within 5 seconds after it was made.
#[utoipa::path(post, path = "/transactions/{transactionId}/approve",
    operation_id = "approveTransaction", tag = "Transactions",
    request_body = Option<ApproveTransaction>,
    params(("transactionId" = String, Path, description = "System id of the transaction.")),
    responses(
        (status = 200, description = "The payment, which goes on.", body = TransactionBody),
        (status = 409, description = "The payment does not wait for a decision, or not any more.",
            body = ErrorBody),
    ))]
pub async fn approve(
    Acting(app): Acting,
    caller: Caller,
    request: Once,
    Path(text): Path<String>,
    JsonIf(body): JsonIf<ApproveTransaction>,
) -> Response {
    let parsed = body.and_then(|body| {
        let mut checks = Checks::new();
        let facts = checks.facts("receiverCustomerInfo", body.receiver_customer_info);
        checks.done()?;
        Ok((id(&text)?, facts))
    });
    let (id, facts) = match parsed {
        Ok(parsed) => parsed,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let (now, platform) = (app.now(caller.platform.ahead), caller.platform.id);
    let body = TransactionBody::of(&app, &caller.platform);
    let work = move |unit: &mut store::unit::Unit<'_, '_>| {
        incoming::decide(&app, unit, platform, id, Event::CalledYes, &facts, now)
    };
    request.run(200, body, work).await
}

/// Reject an incoming payment.
///
/// It waits for the platform's decision, which must come within 5 seconds after it was made.
#[utoipa::path(post, path = "/transactions/{transactionId}/reject",
    operation_id = "rejectTransaction", tag = "Transactions",
    request_body = Option<RejectTransaction>,
    params(("transactionId" = String, Path, description = "System id of the transaction.")),
    responses(
        (status = 200, description = "The payment, which was rejected.", body = TransactionBody),
        (status = 409, description = "The payment does not wait for a decision, or not any more.",
            body = ErrorBody),
    ))]
pub async fn reject(
    Acting(app): Acting,
    caller: Caller,
    request: Once,
    Path(text): Path<String>,
    JsonIf(body): JsonIf<RejectTransaction>,
) -> Response {
    let (id, reason) = match body.and_then(|body| Ok((id(&text)?, body.reason))) {
        Ok(parsed) => parsed,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let (now, platform) = (app.now(caller.platform.ahead), caller.platform.id);
    let body = TransactionBody::of(&app, &caller.platform);
    let work = move |unit: &mut store::unit::Unit<'_, '_>| {
        let decision = Event::CalledNo(reason.clone());
        incoming::decide(&app, unit, platform, id, decision, &transaction::Facts::new(), now)
    };
    request.run(200, body, work).await
}
