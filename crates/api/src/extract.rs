//! How requests are read: strictly, and with every mistake named at once.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use service::App;
use service::Error;
use service::once::{Keyed, Reply, once};
use store::idempotency::{Digest, Scope, digest, scope};
use store::origin::Actor;

use crate::RequestId;
use crate::auth::Caller;
use crate::error::{ApiError, Code, Names, Problem, json_response};
use crate::patch::Nulls;
use crate::strict::{self, BODY, Read};
use crate::validate::{Schema, is_amount};
use crate::wire::json;

/// Bytes of a body: the largest request of this API, a business with all its owners, needs a
/// fraction of it.
pub const BODY_MAX: usize = 256 * 1024;

/// A JSON body of type `T`, checked against its schema, or why there is none.
///
/// Errors of the content are kept and not answered at once, because a repeat of the request
/// gets the first answer, whatever its body.
pub struct Json<T>(pub Result<T, ApiError>);

impl<T, S> FromRequest<S> for Json<T>
where
    T: DeserializeOwned + Schema,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        content_type(request.headers())?;
        let digests = request.extensions().get::<Digests>().cloned();
        let bytes = read(request.into_body()).await?;
        Ok(Self(parse(&bytes, digests.as_ref())))
    }
}

/// A JSON body that may be left out, with its content type: then it says nothing.
pub struct JsonIf<T>(pub Result<T, ApiError>);

impl<T, S> FromRequest<S> for JsonIf<T>
where
    T: DeserializeOwned + Schema + Default,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = read(body).await?;
        let digests = parts.extensions.get::<Digests>();
        if bytes.is_empty() {
            if let Some(digests) = digests {
                digests.take(b"{}");
            }
            return Ok(Self(Ok(T::default())));
        }
        content_type(&parts.headers)?;
        Ok(Self(parse(&bytes, digests)))
    }
}

/// Parses and checks a body.
fn parse<T: DeserializeOwned + Schema>(
    bytes: &[u8],
    digests: Option<&Digests>,
) -> Result<T, ApiError> {
    let value = checked(bytes, digests, T::NULLS, T::check)?;
    serde_path_to_error::deserialize(value).map_err(|error| {
        let field = Some(strict::field(error.path())).filter(|field| !field.is_empty());
        let field = field.unwrap_or_else(|| BODY.to_owned());
        let problem = Problem::new(field, "has a value that is not allowed here");
        ApiError::fields(Code::InvalidInput, vec![problem])
    })
}

/// The part of [`parse`] that is the same for all types, and compiled once.
fn checked(
    bytes: &[u8],
    digests: Option<&Digests>,
    nulls: Nulls,
    check: fn(&Value) -> Result<(), ApiError>,
) -> Result<Value, ApiError> {
    let read = strict::object(bytes);
    if let Some(digests) = digests {
        match &read {
            // Spaces and the order of fields make no other body.
            Ok(Read { object, beyond }) if beyond.is_empty() => digests.take(&json(object)),
            Ok(_) | Err(_) => digests.take(bytes),
        }
    }
    let Read { object: mut value, beyond } =
        read.map_err(|problem| ApiError::fields(Code::InvalidInput, vec![problem]))?;
    nulls.apply(&mut value);
    let code = match beyond.iter().all(|problem| is_amount(&problem.field)) {
        true => Code::InvalidAmount,
        false => Code::InvalidInput,
    };
    match check(&value) {
        Ok(()) if beyond.is_empty() => Ok(value),
        Ok(()) => Err(ApiError::fields(code, beyond)),
        // An amount beyond 64 bits is one above the largest, and no other mistake.
        Err(refusal) if refusal.code == code => Err(ApiError { code, ..refusal.and(beyond) }),
        Err(refusal) => Err(refusal.and(beyond)),
    }
}

fn content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let refuse = |message: &str| Err(ApiError::new(Code::UnsupportedMediaType, message));
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return refuse("compressed bodies are not accepted; send plain JSON");
    }
    let Some(given) = headers.get(header::CONTENT_TYPE) else {
        return refuse("send Content-Type: application/json");
    };
    let given = given.to_str().unwrap_or_default().to_ascii_lowercase();
    let mut parts = given.split(';').map(str::trim);
    let is_json = parts.next() == Some("application/json");
    let is_utf8 = parts.all(|parameter| {
        !parameter.starts_with("charset=")
            || matches!(parameter, "charset=utf-8" | "charset=\"utf-8\"")
    });
    if is_json && is_utf8 { Ok(()) } else { refuse("send Content-Type: application/json") }
}

/// Reads a body up to the limit. A body that stops in the middle is the client's to repeat.
async fn read(body: Body) -> Result<Bytes, ApiError> {
    match Limited::new(body, BODY_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => {
            let message = format!("the body is larger than {BODY_MAX} bytes");
            Err(ApiError::new(Code::PayloadTooLarge, message))
        }
        Err(error) => Err(not_received(&*error)),
    }
}

/// Reads the body of a request that needs none, and leaves the request without it.
pub async fn discard_body(request: Request) -> Result<Request, ApiError> {
    let (parts, body) = request.into_parts();
    if !HttpBody::is_end_stream(&body) {
        read(body).await?;
    }
    Ok(Request::from_parts(parts, Body::empty()))
}

/// Why a body is not there as a whole. One whose framing is malformed is refused; another one may
/// arrive when it is sent again.
pub fn not_received(error: &(dyn std::error::Error + 'static)) -> ApiError {
    let mut source = Some(error);
    while let Some(error) = source {
        let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if kind == Some(std::io::ErrorKind::InvalidData) {
            return ApiError::new(Code::InvalidInput, "the chunks of the body are malformed")
                .with("reason", "body");
        }
        if kind == Some(std::io::ErrorKind::ResourceBusy) {
            let message = "bodies from this address take all the memory that it may have: send \
                           fewer at once";
            return ApiError::new(Code::ServiceUnavailable, message);
        }
        source = error.source();
    }
    ApiError::new(Code::RequestTimeout, "the body did not arrive in time")
}

/// The application, acting for the client of the request.
pub struct Acting(pub App);

impl FromRequestParts<App> for Acting {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let extensions = &parts.extensions;
        let request = extensions.get::<RequestId>().map(|id| id.as_str().to_owned());
        let actor = match (extensions.get::<Caller>(), extensions.get::<MatchedPath>()) {
            (Some(caller), _) => Actor::token(caller.token.id),
            (None, Some(route)) => Actor::Route(route.as_str().to_owned()),
            (None, None) => Actor::Route("unknown".to_owned()),
        };
        Ok(Self(app.acting_for(actor, request)))
    }
}

/// A request that may be repeated: the idempotency key with the request that it belongs to.
pub struct Once {
    app: App,
    keyed: Keyed,
    digests: Option<Digests>,
    names: Names,
}

/// The digest of the body of a request with a key: left here by the extractor of the body, which
/// runs behind that of [`Once`]. An extension of the request.
#[derive(Clone)]
struct Digests {
    app: App,
    scope: Scope,
    of_body: Arc<OnceLock<Digest>>,
}

impl Digests {
    /// Takes the digest of the body.
    fn take(&self, body: &[u8]) {
        self.of_body.get_or_init(|| digest(self.app.store().keyring(), &self.scope, body));
    }
}

/// Characters of an idempotency key.
const KEY_MAX: usize = 255;

impl FromRequestParts<App> for Once {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let platform = caller.platform.id;
        let path = percent_encoding::percent_decode_str(parts.uri.path()).decode_utf8_lossy();
        let scope = idempotency_key(&parts.headers)?
            .map(|key| scope(app.store().keyring(), platform, parts.method.as_str(), &path, key));
        let ahead = caller.platform.ahead;
        let Ok(Acting(app)) = Acting::from_request_parts(parts, app).await;
        let digests =
            scope.map(|scope| Digests { app: app.clone(), scope, of_body: Arc::default() });
        if let Some(digests) = &digests {
            parts.extensions.insert(digests.clone());
        }
        let keyed = Keyed { scope, body: None, platform, ahead };
        Ok(Self { app, keyed, digests, names: &[] })
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut all = headers.get_all("idempotency-key").iter();
    let Some(first) = all.next() else { return Ok(None) };
    let refuse = || {
        let message = format!("must be sent once, with 1 to {KEY_MAX} printable ASCII characters");
        let problem = Problem::new("Idempotency-Key", message);
        ApiError::fields(Code::InvalidInput, vec![problem])
    };
    let text = first.to_str().map_err(|_| refuse())?;
    // The IETF draft writes keys as quoted strings; both spellings are one key.
    let key = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let printable = key.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if all.next().is_some() || !printable || !(1..=KEY_MAX).contains(&key.len()) {
        return Err(refuse());
    }
    Ok(Some(key))
}

impl Once {
    /// Says how the operation calls the fields that others call by their usual names.
    #[must_use]
    pub fn naming(self, names: Names) -> Self {
        Self { names, ..self }
    }

    /// The scope of the request, with the digest of its body once that was read.
    pub fn keyed(&self) -> Keyed {
        let body = self.digests.as_ref().and_then(|digests| digests.of_body.get().copied());
        Keyed { body, ..self.keyed }
    }

    /// Says that these bytes are what the request has for a body, in whatever form it came.
    pub fn has_body(&self, bytes: &[u8]) {
        if let Some(digests) = &self.digests {
            digests.take(bytes);
        }
    }

    /// Answers a request whose content was refused before any use case: a first answer like any
    /// other.
    pub async fn refuse(self, refusal: ApiError) -> Response {
        let refusal = refusal.in_names(self.names);
        if self.keyed.scope.is_none() {
            return refusal.into_response();
        }
        let answer = refusal.render();
        let render = move |_: &Result<(), Error>| answer.clone();
        let work = |_: &mut store::unit::Unit<'_, '_>| Ok(());
        respond(once(&self.app, self.keyed(), render, work).await)
    }

    /// Does `work` in one unit, once.
    pub async fn run<T, B, F>(
        self,
        status: u16,
        body: impl Fn(&T) -> B + Send + 'static,
        work: F,
    ) -> Response
    where
        T: Send + 'static,
        B: serde::Serialize,
        F: FnMut(&mut store::unit::Unit<'_, '_>) -> Result<T, Error> + Send + 'static,
    {
        let render = self.renderer(status, body);
        respond(once(&self.app, self.keyed(), render, work).await)
    }

    /// Turns a result into status and bytes, with the request's names in a refusal.
    pub fn renderer<T, B: serde::Serialize>(
        &self,
        status: u16,
        body: impl Fn(&T) -> B + Send + 'static,
    ) -> impl Fn(&Result<T, Error>) -> (u16, Vec<u8>) + Send + 'static {
        renderer(self.names, status, body)
    }
}

/// Turns a result into status and bytes: the body on success, the error otherwise.
pub fn renderer<T, B: serde::Serialize>(
    names: Names,
    status: u16,
    body: impl Fn(&T) -> B + Send + 'static,
) -> impl Fn(&Result<T, Error>) -> (u16, Vec<u8>) + Send + 'static {
    move |result| match result {
        Ok(value) => (status, json(&body(value))),
        Err(error) => ApiError::from(error.clone()).in_names(names).render(),
    }
}

/// An answer on its way to the client.
pub fn respond(reply: Result<Reply, Error>) -> Response {
    match reply {
        Ok(reply) => {
            let mut response = json_response(reply.status, reply.body);
            for (says, name) in [
                (reply.replayed, "idempotent-replayed"),
                (reply.differs, "idempotency-body-mismatch"),
            ] {
                if says {
                    response.headers_mut().insert(name, HeaderValue::from_static("true"));
                }
            }
            response
        }
        Err(error) => ApiError::from(error).into_response(),
    }
}

/// An answer to a read.
pub fn ok<B: serde::Serialize>(body: &B) -> Response {
    json_response(200, json(body))
}
