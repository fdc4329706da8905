//! API tokens (specification 2.12, 4.3, 4.4).

use axum::extract::{Path, Query};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use domain::id::TokenId;
use domain::token::{Permission, Token};
use serde::{Deserialize, Serialize};
use service::Error;
use service::error::TokenError;
use service::once::{Reply, once};
use service::tokens::{self, NewToken};
use store::list::Order;
use store::tokens::TokenFilter;
use utoipa::{IntoParams, ToSchema};

use crate::auth::Caller;
use crate::error::{ApiError, Code, ErrorBody};
use crate::extract::{Acting, Json, Once, ok, respond};
use crate::page::{Cursors, List};
use crate::validate::{Checks, schema_of};
use crate::wire::json;

/// The name and permissions of a new token.
#[derive(Debug, Deserialize, ToSchema)]
pub struct CreateToken {
    /// Label for people.
    #[schema(format = "label", min_length = 1, max_length = 255, example = "payout worker")]
    name: String,
    /// Its permissions; at most what the token holds that asks for it.
    #[schema(max_items = 3, example = json!(["VIEW", "TRANSACT"]))]
    permissions: Vec<PermissionName>,
}

schema_of!(CreateToken);

/// One thing a token may do. None implies another.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schema(as = Permission)]
pub enum PermissionName {
    /// Read everything.
    View,
    /// Move money.
    Transact,
    /// Change configuration, tokens, customers and external accounts.
    Manage,
}

impl From<PermissionName> for Permission {
    fn from(name: PermissionName) -> Self {
        match name {
            PermissionName::View => Self::View,
            PermissionName::Transact => Self::Transact,
            PermissionName::Manage => Self::Manage,
        }
    }
}

impl From<Permission> for PermissionName {
    fn from(permission: Permission) -> Self {
        match permission {
            Permission::View => Self::View,
            Permission::Transact => Self::Transact,
            Permission::Manage => Self::Manage,
        }
    }
}

/// An API token.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Token)]
pub struct TokenBody {
    /// System id.
    #[schema(example = "Token:019542f5-b3e7-7d02-8000-000000000003")]
    id: String,
    /// Label for people.
    name: String,
    /// Its permissions.
    permissions: Vec<PermissionName>,
    /// User name in Basic authentication.
    client_id: String,
    /// Password in Basic authentication; only in the first answer to its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    client_secret: Option<String>,
    /// When it was made.
    #[schema(format = DateTime)]
    created_at: String,
    /// When it last changed.
    #[schema(format = DateTime)]
    updated_at: String,
}

impl TokenBody {
    fn new(token: &Token, client_secret: Option<String>) -> Self {
        Self {
            id: token.id.to_string(),
            name: token.name.clone(),
            permissions: token.permissions.iter().map(PermissionName::from).collect(),
            client_id: token.client_id.clone(),
            client_secret,
            created_at: token.created_at.to_string(),
            updated_at: token.updated_at.to_string(),
        }
    }
}

/// Which tokens are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ListTokens {
    /// Exactly this name.
    name: Option<String>,
    /// Made then or later.
    #[param(format = DateTime)]
    created_after: Option<String>,
    /// Made then or earlier.
    #[param(format = DateTime)]
    created_before: Option<String>,
    /// Changed then or later.
    #[param(format = DateTime)]
    updated_after: Option<String>,
    /// Changed then or earlier.
    #[param(format = DateTime)]
    updated_before: Option<String>,
    /// Rows of a page.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100, default = 20)]
    limit: Option<String>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
}

/// List API tokens.
///
/// The newest come first.
#[utoipa::path(get, path = "/tokens",
    operation_id = "listTokens", tag = "Tokens", params(ListTokens),
    responses((status = 200, description = "A page of tokens.", body = List<TokenBody>)))]
pub async fn list(
    Acting(app): Acting,
    caller: Caller,
    Query(query): Query<ListTokens>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::new();
    let cursors = Cursors::new(&app, caller.platform.id, "tokens");
    let (limit, cursor) = (query.limit.as_deref(), query.cursor.as_deref());
    let page = cursors.request(&mut checks, limit, cursor, Order::Descending);
    let filter = TokenFilter {
        created_after: checks.time_if("createdAfter", query.created_after.as_deref()),
        created_before: checks.time_if("createdBefore", query.created_before.as_deref()),
        updated_after: checks.time_if("updatedAfter", query.updated_after.as_deref()),
        updated_before: checks.time_if("updatedBefore", query.updated_before.as_deref()),
        name: query.name,
        revoked: false,
    };
    checks.done()?;
    let platform = caller.platform.id;
    let page = app.store().read(move |view| view.tokens(platform, &filter, page)).await?;
    Ok(ok(&cursors.list(page, |token| token.id.uuid(), |token| TokenBody::new(token, None))))
}

/// The first answer, which alone has the secret: the kept one, which a repeat gets, is without it
/// (specification 5.2). A unit that ran twice, because its first commit was in doubt, finds its own
/// answer kept; it names the token that was drawn here, so it is the first one.
fn with_secret(reply: Reply, new: &NewToken) -> Reply {
    let kept = json(&TokenBody::new(&new.token, None));
    if reply.status != StatusCode::CREATED || reply.body != kept {
        return reply;
    }
    let body = json(&TokenBody::new(&new.token, Some(new.secret.clone())));
    Reply { body, replayed: false, differs: false, ..reply }
}

/// Create an API token.
///
/// Its secret is in this answer and nowhere else: a repeat under the same `Idempotency-Key` gets
/// the same token without `clientSecret`.
#[utoipa::path(post, path = "/tokens",
    operation_id = "createToken", tag = "Tokens", request_body = CreateToken,
    responses((status = 201, description = "The token with its secret.", body = TokenBody)))]
pub async fn create(
    Acting(app): Acting,
    caller: Caller,
    request: Once,
    Json(body): Json<CreateToken>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let permissions = body.permissions.into_iter().map(Permission::from).collect();
    let new = tokens::draw(&app, &caller.platform, body.name, permissions);
    let held = caller.token.permissions;
    let drawn = new.clone();
    let shape = |token: &Token| TokenBody::new(token, None);
    let work = move |unit: &mut store::unit::Unit<'_, '_>| {
        tokens::add(unit, &drawn, Some(held))?;
        Ok(drawn.token.clone())
    };
    let reply = once(&app, request.keyed(), request.renderer(201, shape), work).await;
    let mut response = respond(reply.map(|reply| with_secret(reply, &new)));
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    response
}

impl From<TokenError> for ApiError {
    fn from(error: TokenError) -> Self {
        let plain = |code| Self::new(code, error.to_string());
        match &error {
            TokenError::NotFound => plain(Code::TokenNotFound),
            TokenError::CannotGrant { missing } => {
                let missing: Vec<_> = missing.iter().map(|one| one.name()).collect();
                plain(Code::Forbidden).with("missingPermissions", missing)
            }
            TokenError::LastManager => plain(Code::InvalidInput).with("field", "tokenId"),
        }
    }
}

fn id(text: &str) -> Result<TokenId, ApiError> {
    TokenId::parse(text).map_err(|_| ApiError::new(Code::TokenNotFound, "there is no such token"))
}

/// Get an API token.
///
/// Without its secret.
#[utoipa::path(get, path = "/tokens/{tokenId}",
    operation_id = "getToken", tag = "Tokens",
    params(("tokenId" = String, Path, description = "System id of the token.")),
    responses((status = 200, description = "The token.", body = TokenBody)))]
pub async fn get(
    Acting(app): Acting,
    caller: Caller,
    Path(token): Path<String>,
) -> Result<Response, ApiError> {
    let id = id(&token)?;
    let found = app.store().get::<Token>(id).await?;
    let token = found
        .filter(|token| token.platform == caller.platform.id && !token.revoked)
        .ok_or_else(|| ApiError::new(Code::TokenNotFound, "there is no such token"))?;
    Ok(ok(&TokenBody::new(&token, None)))
}

/// Delete an API token.
///
/// From the answer on it authenticates no client.
#[utoipa::path(delete, path = "/tokens/{tokenId}",
    operation_id = "deleteToken", tag = "Tokens",
    params(("tokenId" = String, Path, description = "System id of the token.")),
    responses(
        (status = 204, description = "The token is deleted."),
        (status = 400, description = "It is the last token that can manage.", body = ErrorBody),
    ))]
pub async fn delete(
    Acting(app): Acting,
    request: Once,
    Path(token): Path<String>,
) -> Result<Response, ApiError> {
    let (id, keyed) = (id(&token)?, request.keyed());
    let now = app.now(keyed.ahead);
    let render = |result: &Result<(), Error>| match result {
        Ok(()) => (StatusCode::NO_CONTENT.as_u16(), Vec::new()),
        Err(error) => ApiError::from(error.clone()).render(),
    };
    let work =
        move |unit: &mut store::unit::Unit<'_, '_>| tokens::revoke(unit, keyed.platform, id, now);
    Ok(respond(once(&app, keyed, render, work).await))
}
