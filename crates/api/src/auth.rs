//! The caller and its permissions (specification 5; design decision 8).
//!
//! Every route is registered with the permission that it needs; the check runs before the handler
//! and leaves the [`Caller`] for it. A handler without such a route has no caller to take.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use domain::platform::Platform;
use domain::token::{Permission, Token};
use service::App;
use service::auth::{Authentication, authenticate};
use service::guesses::Network;

use crate::error::{ApiError, Code};
use crate::extract::discard_body;

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

/// The address of the client, as far as it is known: behind a proxy that the operator has not
/// named, the proxy's. An extension of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

impl ClientAddress {
    /// The network of a request's client.
    pub(crate) fn network(extensions: &Extensions) -> Network {
        extensions.get::<Self>().map_or(Network::UNKNOWN, |client| client.0.into())
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

/// The guard of a route.
#[derive(Clone)]
pub struct Guard {
    /// Where tokens are.
    pub app: App,
    /// The permissions of which the token must have one.
    pub any_of: &'static [Permission],
    /// Whether the route reads the body of a request.
    pub takes_body: bool,
}

/// Lets a request pass that shows a token with this permission. The body of one that needs none is
/// read before anything is done, so that a request with a malformed one has no effect.
pub async fn require(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let from = ClientAddress::network(request.extensions());
    let caller = match check(&guard.app, request.headers(), guard.any_of, from).await {
        Ok(caller) => caller,
        Err(refusal) => return refusal,
    };
    request.extensions_mut().insert(caller);
    if !guard.takes_body {
        request = match discard_body(request).await {
            Ok(request) => request,
            Err(refusal) => return refusal.into_response(),
        };
    }
    next.run(request).await
}

async fn check(
    app: &App,
    headers: &HeaderMap,
    any_of: &'static [Permission],
    from: Network,
) -> Result<Caller, Response> {
    let refused = |hint: &str| {
        ApiError::new(Code::Unauthorized, "the credentials are missing or wrong").with("hint", hint)
    };
    let (client_id, secret) = credentials(headers).map_err(|hint| refused(hint).into_response())?;
    let authentication = authenticate(app, client_id, secret, from).await;
    let caller = match authentication.map_err(|error| ApiError::from(error).into_response())? {
        Authentication::Known(caller) => caller,
        Authentication::Wrong => {
            let hint = "use the clientId and clientSecret of a token of this server";
            return Err(refused(hint).into_response());
        }
        Authentication::Slowed { wait_seconds } => return Err(slowed(wait_seconds)),
    };
    let held = caller.token.permissions;
    if !any_of.iter().any(|permission| held.contains(*permission)) {
        let names: Vec<_> = any_of.iter().map(|permission| permission.name()).collect();
        let message = format!("this needs a token with {}", names.join(" or "));
        let refusal = ApiError::new(Code::Forbidden, message);
        return Err(refusal.with("requiredPermission", names.join(" or ")).into_response());
    }
    Ok(Caller { token: caller.token, platform: caller.platform })
}

fn slowed(wait_seconds: i64) -> Response {
    let message = format!(
        "too many wrong secrets within a minute: these credentials were not checked, try again in \
         {wait_seconds} seconds"
    );
    let refusal = ApiError::new(Code::RateLimited, message);
    let mut response = refusal.with("retryAfterSeconds", wait_seconds).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, wait_seconds.into());
    response
}
