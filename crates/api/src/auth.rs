//! Who is asking and what they may do (specification 5; design decision 8).
//!
//! Every route is registered with the permission that it needs; the check runs before the handler
//! and leaves the [`Caller`] for it. A handler without such a route has no caller to take.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use domain::platform::Platform;
use domain::token::{Permission, Token};
use service::App;
use service::auth::authenticate;

use crate::error::{ApiError, Code};

/// An authenticated client with the permission that its route needs.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The token that it showed.
    pub token: Arc<Token>,
    /// The platform that the token speaks for.
    pub platform: Arc<Platform>,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            tracing::error!(path = %parts.uri.path(), "a route was registered without permission");
            ApiError::new(Code::InternalError, "the server failed; nothing was changed")
        })
    }
}

/// Longest `Authorization` header that is looked at: our credentials are far shorter.
const HEADER_MAX: usize = 1_024;

/// Client id and secret of a Basic authentication, or what is wrong with it.
fn credentials(headers: &HeaderMap) -> Result<(String, String), &'static str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let first = all.next().ok_or("send an Authorization header with Basic authentication")?;
    if all.next().is_some() {
        return Err("send one Authorization header");
    }
    let text = first.to_str().map_err(|_| "the Authorization header is not ASCII")?;
    if text.len() > HEADER_MAX {
        return Err("the Authorization header is too long");
    }
    let (scheme, encoded) = text.split_once(' ').ok_or("use Basic authentication")?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err("use Basic authentication");
    }
    if encoded.contains(':') {
        return Err("encode clientId:clientSecret in base64");
    }
    let decoded = base64::engine::general_purpose::STANDARD
        .decode(encoded.trim())
        .map_err(|_| "the credentials are not base64")?;
    let decoded = String::from_utf8(decoded).map_err(|_| "the credentials are not UTF-8")?;
    if decoded.contains(char::is_control) {
        return Err("the credentials have control characters");
    }
    let (id, secret) = decoded.split_once(':').ok_or("the credentials are not id:secret")?;
    Ok((id.to_owned(), secret.to_owned()))
}

/// Lets a request pass that shows a token with this permission.
pub async fn require(
    State((app, permission)): State<(App, &'static [Permission])>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = match check(&app, request.headers(), permission).await {
        Ok(caller) => caller,
        Err(refusal) => return refusal.into_response(),
    };
    request.extensions_mut().insert(caller);
    next.run(request).await
}

async fn check(
    app: &App,
    headers: &HeaderMap,
    any_of: &'static [Permission],
) -> Result<Caller, ApiError> {
    let refused = |hint: &str| {
        ApiError::new(Code::Unauthorized, "the credentials are missing or wrong").with("hint", hint)
    };
    let (client_id, secret) = credentials(headers).map_err(refused)?;
    let caller = authenticate(app, client_id, secret)
        .await?
        .ok_or_else(|| refused("use the clientId and clientSecret of a token of this server"))?;
    let held = caller.token.permissions;
    if !any_of.iter().any(|permission| held.contains(*permission)) {
        let names: Vec<_> = any_of.iter().map(|permission| permission.name()).collect();
        let message = format!("this needs a token with {}", names.join(" or "));
        return Err(
            ApiError::new(Code::Forbidden, message).with("requiredPermission", names.join(" or "))
        );
    }
    Ok(Caller { token: caller.token, platform: caller.platform })
}
