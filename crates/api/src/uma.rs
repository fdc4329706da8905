//! The routes of UMA at the root of each platform's domain, for other institutions (UMAD-02 to
//! UMAD-08). They take no token: messages are signed. Their errors are the protocol's.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use service::App;
use service::error::Error;
use service::uma::post_transaction::{self as callback, POST_TRANSACTION_PATH};
use service::uma::settle::{self, SETTLE_PATH};
use service::uma::{PAY_PATH, keys, receive};
use uma::error::{ErrorCode, Refusal};
use uma::{configuration, lnurlp};

use crate::auth::ClientAddress;
use crate::extract::Acting;

/// Bytes of a pay request: data about a payer and encrypted travel-rule data, several times over.
const REQUEST_BYTES_MAX: usize = 64 * 1_024;

/// The routes.
pub fn router(app: App) -> Router {
    Router::new()
        .route(uma::keys::PATH, get(key_document))
        .route(configuration::PATH, get(configuration_document))
        .route(&format!("{}{{user}}", lnurlp::PATH), get(look_up))
        .route(&format!("{PAY_PATH}{{token}}"), post(pay))
        .route(&format!("{POST_TRANSACTION_PATH}{{token}}"), post(post_transaction))
        .route(SETTLE_PATH, post(settled))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(app)
}

/// The host that a request was sent to, with its port.
fn host(headers: &HeaderMap, uri: &Uri) -> String {
    let named = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    named.or(uri.authority().map(|authority| authority.as_str())).unwrap_or_default().to_owned()
}

/// A document of ours.
fn json(body: String) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// The application, for a client that has not sent too many requests of late.
struct Admitted(App);

impl FromRequestParts<App> for Admitted {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Response> {
        let from = ClientAddress::network(&parts.extensions);
        receive::admit(app, from).map_err(|refusal| refused(&refusal))?;
        let Ok(Acting(app)) = Acting::from_request_parts(parts, app).await;
        Ok(Self(app))
    }
}

/// The body of a message, refused in the protocol's form if it is too long or breaks off.
struct Message(Bytes);

impl<S: Send + Sync> FromRequest<S> for Message {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let read = Bytes::from_request(request, state).await;
        read.map(Self).map_err(|rejection| {
            let reason = match rejection.status() {
                StatusCode::PAYLOAD_TOO_LARGE => {
                    format!("the body is larger than {REQUEST_BYTES_MAX} bytes")
                }
                _ => "the body did not arrive as a whole".to_owned(),
            };
            let refusal = Refusal::new(ErrorCode::InvalidRequestFormat, reason);
            (rejection.status(), json(refusal.to_json())).into_response()
        })
    }
}

/// A refusal in the protocol's form.
fn refused(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.code.status());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, json(refusal.to_json())).into_response()
}

fn failed(error: &Error) -> Response {
    tracing::error!(%error, "a document for other institutions could not be made");
    refused(&Refusal::new(ErrorCode::InternalError, "try again later"))
}

/// The keys of the domain, for institutions that check its signatures.
async fn key_document(Acting(app): Acting, uri: Uri, headers: HeaderMap) -> Response {
    let host = host(&headers, &uri);
    match receive::platform_at(&app, &host).await {
        Ok(Some(platform)) => match keys::document(&app, &platform) {
            Ok(document) => json(document),
            Err(error) => failed(&error),
        },
        Ok(None) => {
            let reason = format!("{host} is no domain of this server");
            refused(&Refusal::new(ErrorCode::UserNotFound, reason))
        }
        Err(error) => failed(&error),
    }
}

/// The versions that the server speaks. Pages of others may read them.
async fn configuration_document() -> Response {
    let mut response = json(receive::configuration());
    let anyone = HeaderValue::from_static("*");
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, anyone);
    response
}

/// The way to pay an address.
async fn look_up(Admitted(app): Admitted, uri: Uri, headers: HeaderMap) -> Response {
    let (host, query) = (host(&headers, &uri), uri.query().unwrap_or_default());
    match receive::look_up(&app, &host, uri.path(), query).await {
        Ok(answer) => json(answer),
        Err(refusal) => refused(&refusal),
    }
}

/// An invoice, once the payee's platform has agreed.
async fn pay(
    Admitted(app): Admitted,
    Path(token): Path<String>,
    Message(body): Message,
) -> Response {
    match receive::pay(&app, &token, &body).await {
        Ok(answer) => json(answer),
        Err(refusal) => refused(&refusal),
    }
}

/// How a payment went on the other side.
async fn post_transaction(
    Admitted(app): Admitted,
    Path(token): Path<String>,
    Message(body): Message,
) -> Response {
    match callback::take(&app, &token, &body).await {
        Ok(()) => json("{}".to_owned()),
        Err(refusal) => refused(&refusal),
    }
}

/// An invoice of ours that a payer's server shows.
#[derive(Deserialize)]
struct Shown {
    pr: String,
}

/// The receipt of a payment.
#[derive(Serialize)]
struct Receipt {
    preimage: String,
}

/// The refusal to settle an invoice. One request too many has the status of a server that is busy:
/// as its code means that the payment is refused, the payer's server would give the money back.
fn not_settled(refusal: &Refusal) -> Response {
    let mut response = refused(refusal);
    if refusal.code == ErrorCode::VelocityLimitExceeded {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    }
    response
}

/// The preimage of an invoice of ours, once its payment is booked.
async fn settled(Acting(app): Acting, extensions: Extensions, Message(body): Message) -> Response {
    if let Err(refusal) = settle::admit(&app, ClientAddress::network(&extensions)) {
        return not_settled(&refusal);
    }
    let Ok(Shown { pr }) = serde_json::from_slice(&body) else {
        let reason = "the body is not JSON with the invoice in pr";
        return refused(&Refusal::new(ErrorCode::InvalidRequestFormat, reason));
    };
    match settle::settle(&app, &pr).await {
        Ok(preimage) => {
            let receipt = Receipt { preimage: hex::encode(preimage) };
            json(serde_json::to_string(&receipt).unwrap_or_default())
        }
        Err(refusal) => not_settled(&refusal),
    }
}
