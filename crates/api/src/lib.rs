//! The HTTP API of the specification, version 2025-10-13.
//!
//! One room per resource: a file with its requests, bodies and handlers. [`routes`] is the page
//! that lists every route with the permission that it needs. This crate holds no rule of the
//! business and no SQL: a handler that reads asks the store, a handler that changes anything calls
//! one function of `service`.
//!
//! Every wire type lives here; domain types do not serialise.

pub mod error;
pub mod auth;
pub mod strict;
pub mod validate;
pub mod patch;
pub mod query;
pub mod extract;
pub mod page;
pub mod wire;
pub mod instructions;
pub mod config;
pub mod tokens;
pub mod customers;
pub mod kyc;
pub mod bulk;
pub mod internal_accounts;
pub mod external_accounts;
pub mod transfers;
pub mod crypto;
pub mod exchange_rates;
pub mod receivers;
pub mod uma;
pub mod uma_providers;
pub mod quotes;
pub mod transactions;
pub mod approvals;
pub mod invitations;
pub mod presenter;
pub mod events;
pub mod deliveries;
pub mod webhooks;
pub mod sandbox;
pub mod openapi;
pub mod accept;
pub mod compression;
pub mod encoded;
pub mod assets;
pub mod docs;
pub mod pages;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use domain::token::Permission;
use service::App;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::auth::Guard;
use crate::compression::secret;
use crate::error::{ApiError, Code, Problem};
use crate::openapi::Document;
use crate::query::Parameters;

/// The version of the specification, the last segment of the base address (specification 9).
pub const VERSION: &str = "2025-10-13";

const VIEW: &[Permission] = &[Permission::View];
const TRANSACT: &[Permission] = &[Permission::Transact];
const VIEW_OR_TRANSACT: &[Permission] = &[Permission::View, Permission::Transact];
const MANAGE: &[Permission] = &[Permission::Manage];

/// Every route with the permission that it needs (design decision 8).
fn routes(app: &App) -> Routes {
    Routes::new(app)
        .needs(VIEW, routes!(config::get))
        .needs(MANAGE, routes!(config::update))
        .needs(VIEW, routes!(tokens::list))
        .needs(MANAGE, secret(routes!(tokens::create)))
        .needs(VIEW, routes!(tokens::get))
        .needs(MANAGE, routes!(tokens::delete))
        .needs(VIEW, routes!(customers::list))
        .needs(MANAGE, routes!(customers::create))
        .needs(MANAGE, routes!(bulk::create))
        .needs(VIEW, routes!(bulk::get))
        // It is a GET that makes a customer.
        .needs(MANAGE, secret(routes!(kyc::link)))
        .needs(VIEW, routes!(customers::get))
        .needs(MANAGE, routes!(customers::update))
        .needs(MANAGE, routes!(customers::delete))
        .needs(VIEW, routes!(internal_accounts::list_of_customers))
        .needs(VIEW, routes!(internal_accounts::list_of_platform))
        .needs(VIEW, routes!(external_accounts::list_of_customers))
        .needs(MANAGE, routes!(external_accounts::create_of_customer))
        .needs(VIEW, routes!(external_accounts::one::get_of_customer))
        .needs(MANAGE, routes!(external_accounts::one::update_of_customer))
        .needs(MANAGE, routes!(external_accounts::one::delete_of_customer))
        .needs(VIEW, routes!(external_accounts::list_of_platform))
        .needs(MANAGE, routes!(external_accounts::create_of_platform))
        .needs(VIEW, routes!(external_accounts::one::get_of_platform))
        .needs(MANAGE, routes!(external_accounts::one::update_of_platform))
        .needs(MANAGE, routes!(external_accounts::one::delete_of_platform))
        .needs(TRANSACT, routes!(transfers::transfer_out))
        .needs(TRANSACT, routes!(transfers::transfer_in))
        .needs(TRANSACT, routes!(crypto::estimate_withdrawal_fee))
        .needs(VIEW, routes!(uma_providers::list))
        .needs(VIEW, routes!(exchange_rates::list))
        .needs(VIEW_OR_TRANSACT, routes!(receivers::look_up_address))
        .needs(VIEW_OR_TRANSACT, routes!(receivers::look_up_account))
        .needs(VIEW, routes!(quotes::list))
        .needs(TRANSACT, routes!(quotes::create))
        .needs(VIEW, routes!(quotes::get))
        .needs(TRANSACT, routes!(quotes::execute))
        .needs(VIEW, routes!(transactions::list))
        .needs(VIEW, routes!(transactions::get))
        .needs(TRANSACT, secret(routes!(invitations::create)))
        .needs(VIEW, secret(routes!(invitations::get)))
        .needs(TRANSACT, secret(routes!(invitations::claim)))
        .needs(TRANSACT, secret(routes!(invitations::cancel)))
        .needs(TRANSACT, routes!(transactions::approve))
        .needs(TRANSACT, routes!(transactions::reject))
        .needs(TRANSACT, routes!(sandbox::receive))
        .needs(TRANSACT, routes!(sandbox::fund))
        .needs(TRANSACT, routes!(sandbox::send))
        .needs(MANAGE, secret(routes!(webhooks::keys)))
        .needs(MANAGE, secret(routes!(webhooks::rotate)))
        .needs(MANAGE, routes!(webhooks::test))
        .needs(VIEW, routes!(deliveries::list))
        .needs(MANAGE, routes!(deliveries::retry))
        .needs(MANAGE, routes!(deliveries::replay))
        .needs(VIEW, routes!(events::list))
        .needs(MANAGE, routes!(sandbox::test_webhook))
        .needs(VIEW, routes!(sandbox::clock))
        .needs(TRANSACT, routes!(sandbox::advance_clock))
}

/// Routes on their way into a router, each behind its permission.
struct Routes {
    app: App,
    router: OpenApiRouter<App>,
    document: Document,
}

impl Routes {
    fn new(app: &App) -> Self {
        Self { app: app.clone(), router: OpenApiRouter::new(), document: Document::new() }
    }

    fn needs(
        mut self,
        any_of: &'static [Permission],
        (schemas, paths, methods): UtoipaMethodRouter<App>,
    ) -> Self {
        let takes_body = self.document.needs(any_of, &paths);
        let parameters = Arc::new(Parameters::of(&paths));
        let guard = Guard { app: self.app.clone(), any_of, takes_body };
        let guard = from_fn_with_state(guard, auth::require);
        // The last layer is the first to see a request.
        let methods = methods.layer(from_fn_with_state(parameters, query::check)).layer(guard);
        self.router = self.router.routes((schemas, paths, methods));
        self
    }
}

/// The whole HTTP surface but for the operator's endpoints: the API under its version, the OpenAPI
/// document and the page to read it, and the pages that people open by a link. Long answers are
/// compressed.
pub fn router(app: App) -> Router {
    let Routes { router, document, .. } = routes(&app);
    let (versioned, collected) = router.split_for_parts();
    let document = document.finish(collected);
    let versioned = versioned
        .fallback(not_found)
        .layer(from_fn_with_state(Arc::new(methods_of(&document)), only_documented))
        // JSON has a limit of its own, which is smaller.
        .layer(DefaultBodyLimit::max(bulk::FORM_BYTES_MAX))
        // Inside the nesting, where the whole route is known.
        .layer(from_fn_with_state(app.clone(), finish))
        .with_state(app.clone());
    let router = Router::new()
        .merge(docs::router(&app, &document))
        .merge(pages::router(app.clone()))
        .merge(uma::router(app.clone()))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(from_fn_with_state(app, finish))
        .nest(&format!("/{VERSION}"), versioned);
    // The last layer is the first to see a request.
    compression::of(router).layer(from_fn(head_as_get))
}

/// The method of a request before it was answered as another one: the log and the metrics say it.
#[derive(Debug, Clone)]
struct Asked(Method);

/// Answers HEAD as GET would be, in whatever encoding, without the body (RFC 9110, 9.3.2).
async fn head_as_get(mut request: Request, next: Next) -> Response {
    if request.method() != Method::HEAD {
        return next.run(request).await;
    }
    *request.method_mut() = Method::GET;
    request.extensions_mut().insert(Asked(Method::HEAD));
    let (mut parts, body) = next.run(request).await.into_parts();
    if let Some(length) = body.size_hint().exact() {
        parts.headers.entry(header::CONTENT_LENGTH).or_insert(length.into());
    }
    Response::from_parts(parts, Body::empty())
}

/// The OpenAPI document of the routes.
pub fn document(app: &App) -> serde_json::Value {
    let Routes { router, document, .. } = routes(app);
    let (_, collected) = router.split_for_parts();
    document.finish(collected)
}

/// The answer at a path where there is nothing.
pub async fn not_found(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(200).collect();
    ApiError::new(Code::NotFound, format!("there is nothing at {path}"))
        .with("baseUrl", format!("/{VERSION}"))
        .into_response()
}

/// The answer to a method that a path does not take. `OPTIONS` asks which ones it takes, which
/// is in the `Allow` header and needs no credentials.
async fn method_not_allowed(method: Method, request: Request) -> Response {
    if method == Method::OPTIONS {
        return StatusCode::NO_CONTENT.into_response();
    }
    let path: String = request.uri().path().chars().take(200).collect();
    ApiError::new(Code::MethodNotAllowed, format!("{path} does not take {method}")).into_response()
}

/// The methods that each path takes, as its `Allow` header says them.
type Methods = BTreeMap<String, String>;

fn methods_of(document: &serde_json::Value) -> Methods {
    let paths = document["paths"].as_object().into_iter().flatten();
    let methods = |item: &serde_json::Value| {
        let names = item.as_object().into_iter().flat_map(|item| item.keys());
        allowed(names.map(|name| name.to_uppercase()))
    };
    paths.map(|(path, item)| (format!("/{VERSION}{path}"), methods(item))).collect()
}

/// The value of an `Allow` header: HEAD goes with GET and OPTIONS with everything (RFC 9110
/// sections 9.3.2 and 9.3.7), which no document says.
fn allowed(documented: impl Iterator<Item = String>) -> String {
    let mut names: Vec<_> = documented.collect();
    for (implied, by) in [("HEAD", Some("GET")), ("OPTIONS", None)] {
        let is_implied = by.is_none_or(|by| names.iter().any(|name| name == by));
        if is_implied && !names.iter().any(|name| name == implied) {
            names.push(implied.to_owned());
        }
    }
    names.join(", ")
}

/// Refuses methods that the document does not name and none that it names implies.
async fn only_documented(
    State(methods): State<Arc<Methods>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let Some(allowed) = path.and_then(|path| methods.get(path.as_str())) else {
        return next.run(request).await;
    };
    let method = request.method().clone();
    let is_taken = allowed.split(", ").any(|name| name == method.as_str());
    if is_taken && method != Method::OPTIONS {
        return next.run(request).await;
    }
    let mut response = method_not_allowed(method, request).await;
    let allowed = HeaderValue::from_str(allowed).expect("names of methods are a header value");
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request. An extension of it.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// Printable ASCII, as in the log.
    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

/// Characters of a request id that a client may choose.
const REQUEST_ID_MAX: usize = 128;

/// Added to every answer: the request's id, and a body in our shape where a library refused. Also
/// the one line of the log per request, which never holds a body, a query or a credential.
pub async fn finish(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let given = request.headers().get(REQUEST_ID).filter(|id| {
        let printable = id.as_bytes().iter().all(u8::is_ascii_graphic);
        printable && (1..=REQUEST_ID_MAX).contains(&id.len())
    });
    let id = given.cloned().unwrap_or_else(next_request_id);
    request.extensions_mut().insert(RequestId(id.clone()));
    let from = auth::ClientAddress::network(request.extensions());
    let asked = request.extensions().get().map(|Asked(method)| method);
    let method = asked.unwrap_or(request.method()).clone();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "unknown".to_owned(), |path| path.as_str().to_owned());
    #[expect(clippy::disallowed_methods, reason = "it is measured; nothing depends on it")]
    let started = std::time::Instant::now();
    let mut response = match control_characters(request.uri().query().unwrap_or_default()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let status = response.status();
    if status.is_client_error() && !has_shape(&response) {
        let allow = response.headers_mut().remove(header::ALLOW);
        response = in_our_shape(status);
        if let Some(allow) = allow {
            response.headers_mut().insert(header::ALLOW, allow);
        }
    }
    if status == StatusCode::UNAUTHORIZED {
        app.refusals().count(from, app.server_now());
    }
    let labels = [("route", route.clone()), ("method", label(&method).to_owned())];
    metrics::histogram!("switchyard_http_request_seconds", &labels).record(started.elapsed());
    let [route_label, method_label] = labels;
    let status_label = ("status", status.as_u16().to_string());
    let labels = [route_label, method_label, status_label];
    metrics::counter!("switchyard_http_requests_total", &labels).increment(1);
    tracing::debug!(
        request_id = id.to_str().unwrap_or_default(),
        %method, route, status = response.status().as_u16(),
        millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX), "request"
    );
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Refuses parameters with characters that no text of this API may have.
fn control_characters(query: &str) -> Result<(), ApiError> {
    let has_control = |text: &str| text.chars().any(char::is_control);
    let problems: Vec<_> = form_urlencoded::parse(query.as_bytes())
        .filter(|(name, value)| has_control(name) || has_control(value))
        .map(|(name, _)| {
            let name = if name.is_empty() { "query".into() } else { name };
            Problem::new(name.escape_default().to_string(), "has a control character")
        })
        .collect();
    match problems.as_slice() {
        [] => Ok(()),
        _ => Err(ApiError::fields(Code::InvalidInput, problems)),
    }
}

/// A method as a label: a client's invention must not make a new time series.
fn label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// Whether a refusal is one of ours: JSON, or a page for a person. The framework's are plain text.
fn has_shape(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let ours: [&[u8]; 2] = [b"application/json", b"text/html"];
    kind.is_some_and(|kind| ours.iter().any(|ours| kind.as_bytes().starts_with(ours)))
}

/// Refusals of the framework, such as a query that cannot be read.
fn in_our_shape(status: StatusCode) -> Response {
    let code = match status {
        StatusCode::METHOD_NOT_ALLOWED => Code::MethodNotAllowed,
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::PAYLOAD_TOO_LARGE => Code::PayloadTooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::UnsupportedMediaType,
        _ => {
            let problem = Problem::new("path", "is not UTF-8 in its percent-encoding");
            return ApiError::fields(Code::InvalidInput, vec![problem]).into_response();
        }
    };
    ApiError::new(code, "the request cannot be read").into_response()
}

/// An id for a request whose client sent none: unique in this process, which is all that telling
/// two lines of a log apart needs.
fn next_request_id() -> HeaderValue {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Each look at it is a call to the system.
    static PROCESS: LazyLock<u32> = LazyLock::new(std::process::id);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    HeaderValue::from_str(&format!("req-{:x}-{number:x}", *PROCESS))
        .expect("letters and digits are a header value")
}
