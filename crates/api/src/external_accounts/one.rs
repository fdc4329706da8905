//! One external account: shown, changed, removed (specification 2.8, 3.3).

use axum::extract::Path;
use axum::response::Response;
use domain::customer::Customer;
use domain::external_account::ExternalAccount;
use domain::id::{ExternalAccountId, Owner};
use domain::patch::Patch;
use serde::Deserialize;
use service::App;
use service::external_accounts::{self, AccountsOf, ExternalAccountChange, OwnedAccount};
use service::once::Keyed;
use store::unit::Unit;
use utoipa::ToSchema;

use super::ExternalAccountBody;
use crate::auth::Caller;
use crate::error::{ApiError, ErrorBody};
use crate::extract::{Acting, Json, Once, ok};
use crate::patch;
use crate::validate::patch_of;

/// A change of a customer's external account. A field that is left out stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateExternalAccount {
    /// Whether incoming UMA payments of the customer are deposited into it. `true` takes the flag
    /// from the account that had it; `false` and `null` take it from this one.
    #[serde(default, deserialize_with = "patch::read")]
    #[schema(value_type = Option<bool>, required = false, example = true)]
    default_uma_deposit_account: Patch<bool>,
    /// The platform's own name for it; `null` takes it away.
    #[serde(default, deserialize_with = "patch::read")]
    #[schema(value_type = Option<String>, required = false, max_length = 255,
        example = "payout-42")]
    platform_account_id: Patch<String>,
}

/// A change of an external account of the platform itself. A field that is left out stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdatePlatformExternalAccount {
    /// The platform's own name for it; `null` takes it away.
    #[serde(default, deserialize_with = "patch::read")]
    #[schema(value_type = Option<String>, required = false, max_length = 255,
        example = "treasury-1")]
    platform_account_id: Patch<String>,
}

patch_of!(UpdateExternalAccount);
patch_of!(UpdatePlatformExternalAccount);

impl From<UpdateExternalAccount> for ExternalAccountChange {
    fn from(body: UpdateExternalAccount) -> Self {
        Self {
            platform_account_id: body.platform_account_id,
            default_uma_deposit_account: body.default_uma_deposit_account,
        }
    }
}

impl From<UpdatePlatformExternalAccount> for ExternalAccountChange {
    fn from(body: UpdatePlatformExternalAccount) -> Self {
        Self {
            platform_account_id: body.platform_account_id,
            default_uma_deposit_account: Patch::Keep,
        }
    }
}

fn id(text: &str) -> Result<ExternalAccountId, ApiError> {
    ExternalAccountId::parse(text).map_err(|_| ApiError::no_account(text))
}

fn body(owned: &OwnedAccount) -> ExternalAccountBody {
    ExternalAccountBody::new(&owned.account, owned.is_default)
}

/// Get an external account.
///
/// One of a customer, also after it was removed.
#[utoipa::path(get, path = "/customers/external-accounts/{accountId}",
    operation_id = "getCustomerExternalAccount", tag = "External accounts",
    params(("accountId" = String, Path, description = "System id of the account.")),
    responses((status = 200, description = "The account.", body = ExternalAccountBody)))]
pub async fn get_of_customer(
    Acting(app): Acting,
    caller: Caller,
    Path(account): Path<String>,
) -> Result<Response, ApiError> {
    show(&app, &caller, AccountsOf::Customers, &account).await
}

/// Get a platform external account.
///
/// One of the platform itself, also after it was removed.
#[utoipa::path(get, path = "/platform/external-accounts/{accountId}",
    operation_id = "getPlatformExternalAccount", tag = "External accounts",
    params(("accountId" = String, Path, description = "System id of the account.")),
    responses((status = 200, description = "The account.", body = ExternalAccountBody)))]
pub async fn get_of_platform(
    Acting(app): Acting,
    caller: Caller,
    Path(account): Path<String>,
) -> Result<Response, ApiError> {
    show(&app, &caller, AccountsOf::Platform, &account).await
}

async fn show(
    app: &App,
    caller: &Caller,
    of: AccountsOf,
    account: &str,
) -> Result<Response, ApiError> {
    let (id, platform) = (id(account)?, caller.platform.id);
    let found = app
        .store()
        .read(move |view| {
            let account = view.get::<ExternalAccount>(&id)?;
            let account = account.filter(|it| it.platform == platform && of.has(it));
            let customer = match account.as_ref().map(|account| account.owner) {
                Some(Owner::Customer(id)) => view.get::<Customer>(&id)?,
                Some(Owner::Platform(_)) | None => None,
            };
            Ok::<_, store::error::StoreError>((account, customer))
        })
        .await?;
    let (Some(account), customer) = found else {
        return Err(service::Error::Account(service::error::AccountError::NotFound {
            id: id.to_string(),
        })
        .into());
    };
    let default = customer.and_then(|customer| customer.default_uma_deposit_account);
    Ok(ok(&ExternalAccountBody::new(&account, default == Some(account.id))))
}

/// Update an external account.
///
/// Incoming UMA payments can be deposited into it, and the platform's own name for it can be
/// another.
#[utoipa::path(patch, path = "/customers/external-accounts/{accountId}",
    operation_id = "updateCustomerExternalAccount", tag = "External accounts",
    request_body = UpdateExternalAccount,
    params(("accountId" = String, Path, description = "System id of the account.")),
    responses(
        (status = 200, description = "The account.", body = ExternalAccountBody),
        (status = 409, description = "The account was removed.", body = ErrorBody),
        (status = 410, description = "The customer was deleted.", body = ErrorBody),
    ))]
pub async fn update_of_customer(
    Acting(app): Acting,
    request: Once,
    Path(account): Path<String>,
    Json(change): Json<UpdateExternalAccount>,
) -> Response {
    let change = change.map(ExternalAccountChange::from);
    update(&app, request, AccountsOf::Customers, &account, change).await
}

/// Update a platform external account.
///
/// Its name can be another.
#[utoipa::path(patch, path = "/platform/external-accounts/{accountId}",
    operation_id = "updatePlatformExternalAccount", tag = "External accounts",
    request_body = UpdatePlatformExternalAccount,
    params(("accountId" = String, Path, description = "System id of the account.")),
    responses(
        (status = 200, description = "The account.", body = ExternalAccountBody),
        (status = 409, description = "The account was removed.", body = ErrorBody),
    ))]
pub async fn update_of_platform(
    Acting(app): Acting,
    request: Once,
    Path(account): Path<String>,
    Json(change): Json<UpdatePlatformExternalAccount>,
) -> Response {
    let change = change.map(ExternalAccountChange::from);
    update(&app, request, AccountsOf::Platform, &account, change).await
}

async fn update(
    app: &App,
    request: Once,
    of: AccountsOf,
    account: &str,
    change: Result<ExternalAccountChange, ApiError>,
) -> Response {
    let (id, change) = match id(account).and_then(|id| Ok((id, change?))) {
        Ok(read) => read,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let Keyed { platform, ahead, .. } = request.keyed();
    let now = app.now(ahead);
    let work = move |unit: &mut Unit<'_, '_>| {
        external_accounts::update(unit, platform, (of, id), &change, now)
    };
    request.run(200, body, work).await
}

/// Remove an external account.
///
/// Nothing new is paid to it or from it, and it can be added again; payments that are under way go
/// on.
#[utoipa::path(delete, path = "/customers/external-accounts/{accountId}",
    operation_id = "deleteCustomerExternalAccount", tag = "External accounts",
    params(("accountId" = String, Path, description = "System id of the account.")),
    responses(
        (status = 200, description = "The account, which is `INACTIVE`.",
            body = ExternalAccountBody),
        (status = 409, description = "It was removed before.", body = ErrorBody),
    ))]
pub async fn delete_of_customer(
    Acting(app): Acting,
    request: Once,
    Path(account): Path<String>,
) -> Response {
    delete(&app, request, AccountsOf::Customers, &account).await
}

/// Remove a platform external account.
///
/// Nothing new is paid to it or from it, and it can be added again; payments that are under way go
/// on.
#[utoipa::path(delete, path = "/platform/external-accounts/{accountId}",
    operation_id = "deletePlatformExternalAccount", tag = "External accounts",
    params(("accountId" = String, Path, description = "System id of the account.")),
    responses(
        (status = 200, description = "The account, which is `INACTIVE`.",
            body = ExternalAccountBody),
        (status = 409, description = "It was removed before.", body = ErrorBody),
    ))]
pub async fn delete_of_platform(
    Acting(app): Acting,
    request: Once,
    Path(account): Path<String>,
) -> Response {
    delete(&app, request, AccountsOf::Platform, &account).await
}

async fn delete(app: &App, request: Once, of: AccountsOf, account: &str) -> Response {
    let id = match id(account) {
        Ok(id) => id,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let Keyed { platform, ahead, .. } = request.keyed();
    let now = app.now(ahead);
    let work =
        move |unit: &mut Unit<'_, '_>| external_accounts::remove(unit, platform, (of, id), now);
    request.run(200, body, work).await
}
