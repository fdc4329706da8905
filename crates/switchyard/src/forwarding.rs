//! Write forwarding: changes go to the leader of the servers on one database
//! (docs/decisions/0010).
//!
//! Commits of several servers wait for each other, and the leader commits most: it runs due jobs.
//! So a request that changes something is forwarded to it as it came, and its answer is the answer.
//! If that fails, the request is executed here, as if there were no other server. No client can
//! tell the difference.
//!
//! Guarantees:
//! - Requests and answers are sealed with the key that the servers on a database share (`sealed`):
//!   what stands between them reads nothing, and makes none.
//! - A request is forwarded once at most, and executed only by the process that has the lease: it
//!   is sealed for the name of that process, and the answer for that request. The process has said
//!   its name before (`GET /peer`).
//! - Each forwarded request of the API has an idempotency key: its client's, or one drawn here. So
//!   a request that may have been executed by the leader can be executed here, and has one effect.
//!   Pages and messages of other institutions have none: one that may have been executed gets 503.
//! - A leader that hangs delays requests for a second. One that is gone or has no room delays none.

mod garbage;
mod peer;
mod sealed;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use api::error::{ApiError, Code};
use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::{StreamExt as _, future, stream};
use http::header::{
    AUTHORIZATION, CONNECTION, EXPECT, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, RETRY_AFTER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{Method, StatusCode, Uri};
use hyper::body::Frame;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use service::App;
use service::leadership::{self, Leader};
use store::keyring::Keyring;
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, timeout};
use tower::ServiceExt as _;

use self::garbage::Garbage;
use self::peer::{Peer, Trust};
use self::sealed::Number;
use crate::locality::watch;

/// Requests that are forwarded at a time; more are executed here. Each needs a connection
/// ([`crate::descriptors`]) here and one of the leader's, which has clients of its own. As an
/// answer takes some ten milliseconds, so many are more than one server commits.
const FORWARDED_MAX: usize = 256;

/// The longest body that is forwarded: as long as any is taken. It is kept until there is an
/// answer, for the execution here.
const BODY_MAX: usize = api::bulk::FORM_BYTES_MAX;

/// The same for pages and messages of other institutions.
const OTHER_BODY_MAX: usize = 64 * 1024;

/// Bytes of a body for which a request counts as one more, so that those under way take 64 MiB.
const BYTES_OF_SLOT: usize = 256 * 1024;

/// The longest answer that is taken: more than any change is answered with.
const ANSWER_MAX: usize = 1024 * 1024;

/// The longest sealed request: a body and a head as long as the edge takes it.
const SEALED_MAX: usize = BODY_MAX + 64 * 1024;

/// Where a server takes requests of others, sealed.
const PATH: &str = "/peer";

/// How long a connection between servers, which are near each other, may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a connection is kept for the next request: half of what the other side keeps it at
/// least ([`crate::edge::Limits::idle_timeout`]).
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a request that waits checks that its answer can still come. Answers take some ten
/// milliseconds.
const POLL: Duration = Duration::from_millis(250);

/// How long an answer may take while the leader has its lease: the most that any answer takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server has to tell its name, which needs no database. One that takes longer hangs, or
/// is too busy to help.
const NAME_TIMEOUT: Duration = Duration::from_millis(500);

/// How long nothing is forwarded to a server that did not answer, had no room, or is another one.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest answer with a name.
const NAME_MAX: usize = 1_024;

/// A proxy has added it: no server forwards it.
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Headers of one connection and not of the request.
const CONNECTION_HEADERS: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    EXPECT,
];

/// The forwarder's own server.
trait ThisServer: Send + Sync {
    /// The leader, if that is another server.
    fn elsewhere(&self) -> Option<Arc<Leader>>;

    /// The key that it shares with the other servers.
    fn keyring(&self) -> &Keyring;

    /// The time, in milliseconds.
    fn now(&self) -> i64;

    /// A number that no other request has.
    fn draw(&self) -> [u8; 16];

    /// How often tokens and platforms have changed.
    fn client_changes(&self) -> u64;

    /// Takes note that another server may have changed tokens or platforms.
    fn forget_clients(&self);
}

impl ThisServer for App {
    fn elsewhere(&self) -> Option<Arc<Leader>> {
        leadership::elsewhere(self)
    }

    fn keyring(&self) -> &Keyring {
        self.store().keyring()
    }

    fn now(&self) -> i64 {
        self.machine_now().millis()
    }

    fn draw(&self) -> [u8; 16] {
        self.random()
    }

    fn client_changes(&self) -> u64 {
        self.store().callers().changes()
    }

    fn forget_clients(&self) {
        self.store().callers().changed();
    }
}

/// The routes of a server that shares its database.
pub struct Routers {
    /// For clients: changes are forwarded.
    pub clients: Router,
    /// For other servers.
    pub servers: Router,
}

/// Puts the forwarder in front of the routes of a server that shares its database.
pub fn routers(app: &App, local: impl Fn() -> Router) -> Routers {
    if !app.env().shares_database {
        return Routers { clients: local(), servers: Router::new() };
    }
    let forwarder = Arc::new(Forwarder::new(leadership::name(app), app.clone()));
    let clients = for_clients(&forwarder, local());
    // Another server may have had the request through a proxy.
    let servers = for_servers(&forwarder, watch(app.env().locality.clone(), local()));
    Routers { clients, servers }
}

/// The routes for clients: changes are forwarded.
fn for_clients(forwarder: &Arc<Forwarder>, local: Router) -> Router {
    local.layer(from_fn_with_state(Arc::clone(forwarder), run))
}

/// The route for other servers.
fn for_servers(forwarder: &Arc<Forwarder>, local: Router) -> Router {
    Router::new().route(PATH, post(execute)).with_state((Arc::clone(forwarder), local))
}

struct Forwarder {
    name: String,
    this: Box<dyn ThisServer>,
    client: Client<HttpConnector, Body>,
    slots: Semaphore,
    /// Requests of other servers that are read.
    reading: Semaphore,
    garbage: Garbage,
    /// The leader that was asked last.
    peer: Mutex<Option<Peer>>,
}

/// The outcome of forwarding a request.
enum Outcome {
    /// It was answered.
    Answered(Response),
    /// Nothing of it has left.
    NotSent,
    /// It was refused: the other server has no room, or no database, for a moment.
    Refused,
    /// It was sent, and may have been executed.
    Unknown,
}

impl Forwarder {
    fn new(name: String, this: impl ThisServer + 'static) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        let [slots, reading] = [(); 2].map(|()| Semaphore::new(FORWARDED_MAX));
        let (garbage, peer) = (Garbage::default(), Mutex::default());
        Self { name, this: Box::new(this), client, slots, reading, garbage, peer }
    }

    fn peer(&self) -> MutexGuard<'_, Option<Peer>> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request is to be forwarded. One of the API without credentials is refused before
    /// its body is read, and one whose body is too long for any when it was.
    fn is_forwarded(&self, request: &Request) -> bool {
        let changes = matches!(*request.method(), Method::POST | Method::PATCH | Method::DELETE);
        let is_of_api = is_of_api(request.uri());
        let fits = request.body().size_hint().lower() <= body_max(is_of_api) as u64;
        changes
            && fits
            && (!is_of_api || request.headers().contains_key(AUTHORIZATION))
            && self.this.elsewhere().is_some()
    }

    /// Forwards a request to the leader.
    async fn forward(
        self: &Arc<Self>,
        leader: &Arc<Leader>,
        parts: &Parts,
        body: Bytes,
    ) -> Outcome {
        let Some(uri) = uri_at(leader, PATH) else { return Outcome::NotSent };
        let number = Number(self.this.draw());
        let (keyring, at) = (self.this.keyring(), self.this.now());
        let sealed = sealed::seal(keyring, &leader.server, (number, at), (parts, &body));
        let mut request = http::Request::new(Body::from(sealed));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let mut answer = pin!(timeout(ANSWER_TIMEOUT, self.ask(request, number)));
        let outcome = loop {
            tokio::select! {
                answer = &mut answer => break answer.unwrap_or(Outcome::Unknown),
                () = timer(POLL) => {
                    if !self.may_still_answer(leader) {
                        break Outcome::Unknown;
                    }
                }
            }
        };
        self.of(leader, |peer| match outcome {
            Outcome::Answered(_) => {}
            // Requests under way are answered all the same.
            Outcome::Refused => peer.pause(),
            Outcome::NotSent | Outcome::Unknown => {
                peer.pause();
                if matches!(peer.trust, Trust::Known) {
                    peer.trust = Trust::New;
                }
            }
        });
        outcome
    }

    /// Sends a request.
    async fn ask(&self, request: http::Request<Body>, number: Number) -> Outcome {
        let answer = match self.client.request(request).await {
            Ok(answer) => answer,
            Err(error) => {
                let source = error.source().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(%error, source, "the leader did not answer a forwarded request");
                return if error.is_connect() { Outcome::NotSent } else { Outcome::Unknown };
            }
        };
        let (parts, body) = answer.into_parts();
        let bytes = match to_bytes(Body::new(body), ANSWER_MAX).await {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(%error, "the answer to a forwarded request broke off");
                return Outcome::Unknown;
            }
        };
        let opened = sealed::open_answer(self.this.keyring(), number, &bytes);
        let Some((response, clients_changed)) = opened else {
            tracing::warn!(
                status = parts.status.as_u16(),
                "another process answered a forwarded request"
            );
            return Outcome::Unknown;
        };
        if clients_changed {
            self.this.forget_clients();
        }
        match response.status() {
            StatusCode::SERVICE_UNAVAILABLE => Outcome::Refused,
            _ => Outcome::Answered(response),
        }
    }
}

/// The layer.
async fn run(State(forwarder): State<Arc<Forwarder>>, request: Request, next: Next) -> Response {
    if forwarder.is_forwarded(&request) {
        forwarder.forward_or_run(request, next).await
    } else {
        next.run(request).await
    }
}

/// Executes a request that was forwarded to this server, and to no other.
async fn execute(
    State((forwarder, local)): State<(Arc<Forwarder>, Router)>,
    request: Request,
) -> Response {
    // Anybody may be the sender of what is not opened yet.
    let length = usize::try_from(request.body().size_hint().lower()).unwrap_or(usize::MAX);
    let Ok(slot) = forwarder.reading.try_acquire_many(slots_for(length)) else {
        return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")]).into_response();
    };
    let Ok(sealed) = to_bytes(request.into_body(), SEALED_MAX.min(length)).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    drop(slot);
    let this = &forwarder.this;
    let opened = sealed::open(this.keyring(), &forwarder.name, this.now(), &sealed);
    let Some((number, request)) = opened else {
        if let Some(requests) = forwarder.garbage.count(now()) {
            tracing::warn!(requests, "refused forwarded requests not sealed for this server");
        }
        return StatusCode::MISDIRECTED_REQUEST.into_response();
    };
    let changes = this.client_changes();
    let response = local.oneshot(request).await.unwrap_or_else(|never| match never {});
    let (parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, ANSWER_MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let clients_changed = this.client_changes() != changes;
    sealed::seal_answer(this.keyring(), number, (&parts, &body), clients_changed).into_response()
}

impl Forwarder {
    /// Forwards a request, or executes it here.
    async fn forward_or_run(self: &Arc<Self>, request: Request, next: Next) -> Response {
        let (mut parts, body) = request.into_parts();
        let is_of_api = is_of_api(&parts.uri);
        let body = match whole(body, body_max(is_of_api)).await {
            Ok(body) => body,
            // The handler that reads it says what is wrong with it.
            Err(body) => return next.run(Request::from_parts(parts, body)).await,
        };
        let again = |parts, body| Request::from_parts(parts, Body::from(body));
        // Only now: the leader may have changed since the request began.
        let (Some(leader), Ok(slot)) =
            (self.destination(), self.slots.try_acquire_many(slots_for(body.len())))
        else {
            return next.run(again(parts, body)).await;
        };
        let is_keyed = !is_of_api || parts.headers.contains_key(IDEMPOTENCY_KEY);
        if !is_keyed {
            let key = format!("forwarded-{:032x}", u128::from_le_bytes(self.this.draw()));
            let key = HeaderValue::try_from(key).expect("digits are a header value");
            parts.headers.insert(IDEMPOTENCY_KEY, key);
        }
        let outcome = self.forward(&leader, &parts, body.clone()).await;
        drop(slot);
        let label = match outcome {
            Outcome::Answered(_) => "answered",
            Outcome::NotSent => "here",
            Outcome::Unknown if !is_of_api => "unknown",
            Outcome::Refused | Outcome::Unknown => "again",
        };
        metrics::counter!("switchyard_forwarded_requests_total", "outcome" => label).increment(1);
        match outcome {
            Outcome::Answered(response) => response,
            Outcome::NotSent => {
                if !is_keyed {
                    parts.headers.remove(IDEMPOTENCY_KEY);
                }
                next.run(again(parts, body)).await
            }
            Outcome::Unknown if !is_of_api => outcome_unknown(),
            // With the key that it was sent with: it may have been executed.
            Outcome::Refused | Outcome::Unknown => {
                let mut response = next.run(again(parts, body)).await;
                if !is_keyed {
                    response.headers_mut().remove(IDEMPOTENT_REPLAYED);
                }
                response
            }
        }
    }
}

/// Whether a request is one of the API, which takes idempotency keys.
fn is_of_api(uri: &Uri) -> bool {
    let path = uri.path().strip_prefix('/').and_then(|path| path.strip_prefix(api::VERSION));
    path.is_some_and(|path| path.starts_with('/'))
}

/// For how many requests one with a body of this length counts.
fn slots_for(length: usize) -> u32 {
    u32::try_from(1 + length / BYTES_OF_SLOT).unwrap_or(u32::MAX)
}

/// The longest body that is forwarded.
fn body_max(is_of_api: bool) -> usize {
    if is_of_api { BODY_MAX } else { OTHER_BODY_MAX }
}

/// The answer to a request that may or may not have been executed.
fn outcome_unknown() -> Response {
    let message = "the server that executes changes did not answer in time, and may have executed \
                   this one: look at its effect before you send it again";
    ApiError::new(Code::ServiceUnavailable, message).into_response()
}

/// The bytes of a body. The error is one that is too long, or broke off, as it would be read here.
async fn whole(body: Body, max: usize) -> Result<Bytes, Body> {
    let (mut bytes, mut rest) = (Vec::new(), body.into_data_stream());
    while let Some(chunk) = rest.next().await {
        match chunk {
            Ok(chunk) => bytes.extend(chunk),
            Err(error) => return Err(Body::new(Broken(Some(error)))),
        }
        if bytes.len() > max {
            let read = stream::once(future::ready(Ok::<_, axum::Error>(Bytes::from(bytes))));
            return Err(Body::from_stream(read.chain(rest)));
        }
    }
    Ok(bytes.into())
}

fn uri_at(leader: &Leader, target: &str) -> Option<Uri> {
    format!("{}{target}", leader.address.as_deref()?).parse().ok()
}

/// A body that cannot be read, with the reason.
struct Broken(Option<axum::Error>);

impl hyper::body::Body for Broken {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Poll::Ready(self.0.take().map(Err))
    }
}

#[expect(clippy::disallowed_methods, reason = "the patience with other servers is real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the patience with other servers is real time")]
fn timer(limit: Duration) -> Sleep {
    tokio::time::sleep(limit)
}
