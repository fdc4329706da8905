//! Changes go to the server that writes most (docs/decisions/0010).
//!
//! Servers that share a database write in turns, and one of them writes more than the others: it
//! does what is due. While several write, each waits for the others' turns and none can run ahead.
//! So a request that changes something is passed on to that one as it came, and what it answers is
//! the answer. Whatever is in the way of that, the request is carried out here, as it would be if
//! there were no other server: nothing depends on it that a client could see.
//!
//! Guarantees:
//! - A request is passed on once at most, and carried out there only by the process that has the
//!   lease: before the first one it has told the name that stands there (`GET /peer`), each request
//!   says for whom it is, and each answer who gave it.
//! - Each has an idempotency key on its way: its client's, or one that is drawn here. So one that
//!   may have been carried out elsewhere can be carried out here, and has one effect.
//! - A server that hangs holds up requests for a second. One that is gone or turns everybody away
//!   holds up nobody.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use api::auth::ClientAddress;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use http::header::{
    AUTHORIZATION, CONNECTION, EXPECT, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, Uri, Version};
use hyper::body::Frame;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use service::App;
use service::tenure::{self, Holder};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, timeout};

use crate::health;

/// Requests that are passed on at a time; more are carried out here. Each needs a connection
/// ([`crate::descriptors`]) here and one of the other server's, which has clients of its own. As an
/// answer takes some ten milliseconds, so many pass on more than one lane commits.
const PASSED_ON_MAX: usize = 256;

/// The longest body that is passed on; longer ones are few and carried out here. It is kept until
/// there is an answer, to begin again with.
const BODY_MAX: u64 = 64 * 1024;

/// The longest answer that is taken: more than any change is answered with.
const ANSWER_MAX: usize = 1024 * 1024;

/// How long a connection between servers, which are near each other, may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a connection is kept for the next request: half of what the other side keeps it at
/// least ([`crate::edge::Limits::idle_timeout`]).
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often whoever waits for an answer looks whether it is still to be expected. Answers take
/// some ten milliseconds.
const POLL: Duration = Duration::from_millis(250);

/// How long an answer may take while the lease is: what a server takes at most to answer anybody.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server has to tell its name, for which it looks nowhere. One that takes longer hangs,
/// or is too busy to be of help.
const NAME_TIMEOUT: Duration = Duration::from_millis(500);

/// How long nothing is passed on to a server that did not answer, had no room, or is another one.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest answer with a name.
const NAME_MAX: usize = 1_024;

/// Says that a request was passed on, and by whom.
const RELAYED_BY: HeaderName = HeaderName::from_static("switchyard-relayed-by");

/// Says who is to carry it out.
const RELAYED_TO: HeaderName = HeaderName::from_static("switchyard-relayed-to");

/// Says who has: what something between the servers answers does not have it.
const CARRIED_OUT_BY: HeaderName = HeaderName::from_static("switchyard-carried-out-by");

/// Says for which client's address: limits by address are that client's and not the server's.
const RELAYED_FOR: HeaderName = HeaderName::from_static("switchyard-relayed-for");

/// A proxy has added it: no server passes it on.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Where changes are found that say who may do what, besides those by PATCH and DELETE.
const OF_CALLERS: [&str; 4] = ["config", "sandbox", "tokens", "webhooks"];

/// What is about one connection and not about the request.
const OF_CONNECTION: [HeaderName; 10] = [
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

/// What the relay knows of its own server.
trait Home: Send + Sync {
    /// Who has the lease, if that is another server.
    fn elsewhere(&self) -> Option<Arc<Holder>>;

    /// A key that no client has.
    fn draw_key(&self) -> HeaderValue;

    /// Takes note that another server may have changed who may do what.
    fn forget_callers(&self);
}

impl Home for App {
    fn elsewhere(&self) -> Option<Arc<Holder>> {
        tenure::elsewhere(self)
    }

    fn draw_key(&self) -> HeaderValue {
        let digits = u128::from_le_bytes(self.random());
        HeaderValue::try_from(format!("relayed-{digits:032x}")).expect("digits are a header value")
    }

    fn forget_callers(&self) {
        self.store().callers().changed();
    }
}

/// What a server that shares its database serves, and to whom.
pub struct Routers {
    /// What clients ask for; what changes something is passed on.
    pub clients: Router,
    /// What other servers have passed on, where they have a listener of their own.
    pub servers: Router,
}

/// Puts the relay in front of the routes of a server that shares its database. Clients and other
/// servers come to the same listener, or `are_apart`.
pub fn routers(app: &App, local: impl Fn() -> Router, are_apart: bool) -> Routers {
    if !app.env().shares_database {
        return Routers { clients: local(), servers: Router::new().fallback(health::not_found) };
    }
    let name = HeaderValue::from_str(&tenure::name(app)).expect("digits are a header value");
    let relay = Arc::new(Relay::new(name, app.clone()));
    let comers = if are_apart { Comers::Clients } else { Comers::Everyone };
    let clients = before(Arc::clone(&relay), comers, local());
    let servers = match are_apart {
        true => before(relay, Comers::Servers, local()),
        false => Router::new(),
    };
    Routers { clients, servers }
}

/// Those who come to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comers {
    Clients,
    Servers,
    Everyone,
}

fn before(relay: Arc<Relay>, comers: Comers, local: Router) -> Router {
    local.layer(from_fn_with_state((relay, comers), run))
}

struct Relay {
    name: HeaderValue,
    home: Box<dyn Home>,
    client: Client<HttpConnector, Body>,
    slots: Semaphore,
    /// What is known of the server that was asked last.
    peer: Mutex<Option<Peer>>,
}

/// Another server, and whether requests are passed on to it.
struct Peer {
    holder: Arc<Holder>,
    trust: Trust,
    /// Whether it is being asked for its name.
    is_asked: bool,
    /// Until when nothing more is passed on to it.
    rests_until: Option<Instant>,
}

impl Peer {
    fn rest(&mut self) {
        self.rests_until = Some(now() + PAUSE);
    }
}

#[derive(Clone, Copy)]
enum Trust {
    /// It has not been heard, or not since something came of a request that should not have.
    New,
    /// It has told its name.
    Known,
    /// It was not there, or was another one.
    Not,
}

/// What came of a request that was passed on.
enum Passed {
    /// It was answered.
    Answered(Response),
    /// Nothing of it has left.
    Not,
    /// It was turned away: the other server has no room, or no database, for a moment.
    TurnedAway,
    /// It was sent, and whether it was carried out is not known.
    Unknown,
}

impl Relay {
    fn new(name: HeaderValue, home: impl Home + 'static) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        let slots = Semaphore::new(PASSED_ON_MAX);
        Self { name, home: Box::new(home), client, slots, peer: Mutex::default() }
    }

    fn peer(&self) -> MutexGuard<'_, Option<Peer>> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request is one to pass on, and to whomever. One that shows no credentials is
    /// refused before anybody reads the rest of it.
    fn takes(&self, request: &Request) -> bool {
        let changes = matches!(*request.method(), Method::POST | Method::PATCH | Method::DELETE);
        let is_short = request.body().size_hint().exact().is_some_and(|length| length <= BODY_MAX);
        changes
            && is_short
            && path_of_api(request.uri()).is_some()
            && request.headers().contains_key(AUTHORIZATION)
            && self.home.elsewhere().is_some()
    }

    /// The server that requests are to be passed on to, if there is one and it has told its name.
    /// One that has not is asked meanwhile.
    fn destination(self: &Arc<Self>) -> Option<Arc<Holder>> {
        let holder = self.home.elsewhere().filter(|holder| holder.address.is_some())?;
        let mut peer = self.peer();
        if peer.as_ref().is_none_or(|known| known.holder != holder) {
            let holder = Arc::clone(&holder);
            *peer = Some(Peer { holder, trust: Trust::New, is_asked: false, rests_until: None });
        }
        let known = peer.as_mut()?;
        if known.rests_until.is_some_and(|until| now() < until) {
            return None;
        }
        if matches!(known.trust, Trust::Known) {
            return Some(holder);
        }
        self.ask_for_name(known);
        None
    }

    /// Asks a server for its name, if nobody does already.
    fn ask_for_name(self: &Arc<Self>, peer: &mut Peer) {
        if std::mem::replace(&mut peer.is_asked, true) {
            return;
        }
        let (relay, holder) = (Arc::clone(self), Arc::clone(&peer.holder));
        tokio::spawn(async move {
            let name = timeout(NAME_TIMEOUT, relay.name_of(&holder)).await.ok().flatten();
            let is_it = name.is_some_and(|name| name == holder.server);
            let is_missed = relay.of(&holder, |peer| {
                peer.is_asked = false;
                if is_it {
                    peer.trust = Trust::Known;
                    return false;
                }
                peer.rest();
                !matches!(std::mem::replace(&mut peer.trust, Trust::Not), Trust::Not)
            });
            if is_missed == Some(true) {
                tracing::warn!(
                    server = holder.server,
                    "the server that has the lease is not found where it should be, so that \
                     changes are carried out here: see --peer-url if this goes on"
                );
            }
        });
    }

    /// Looks at what is known of a server, unless another one is meant by now.
    fn of<T>(&self, holder: &Arc<Holder>, look: impl FnOnce(&mut Peer) -> T) -> Option<T> {
        self.peer().as_mut().filter(|peer| peer.holder == *holder).map(look)
    }

    /// Whether an answer that has not come is still to be expected. A server that hangs does not
    /// renew its lease, and does not tell its name before that.
    fn is_hopeful(self: &Arc<Self>, holder: &Arc<Holder>) -> bool {
        let is_there = self.of(holder, |peer| {
            self.ask_for_name(peer);
            !matches!(peer.trust, Trust::Not)
        });
        is_there == Some(true) && self.home.elsewhere().as_ref() == Some(holder)
    }

    /// What the server at an address calls itself.
    async fn name_of(&self, holder: &Holder) -> Option<String> {
        let uri = uri_at(holder, "/peer")?;
        let answer = self.client.get(uri).await.ok()?;
        let bytes = to_bytes(Body::new(answer.into_body()), NAME_MAX).await.ok()?;
        let body: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
        Some(body["server"].as_str()?.to_owned())
    }

    /// Passes a request on.
    async fn pass(self: &Arc<Self>, holder: &Arc<Holder>, parts: &Parts, body: Bytes) -> Passed {
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let Some(uri) = uri_at(holder, target) else { return Passed::Not };
        let Ok(to) = HeaderValue::from_str(&holder.server) else { return Passed::Not };
        let mut request = http::Request::new(Body::from(body));
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
        let headers = request.headers_mut();
        headers.clone_from(&parts.headers);
        keep_to_itself(headers);
        headers.insert(RELAYED_BY, self.name.clone());
        headers.insert(RELAYED_TO, to.clone());
        headers.remove(FORWARDED_FOR);
        headers.remove(RELAYED_FOR);
        if let Some(ClientAddress(client)) = parts.extensions.get() {
            let client = client.to_string();
            let client = HeaderValue::try_from(client).expect("an address is a header value");
            headers.insert(RELAYED_FOR, client);
        }
        let mut answer = pin!(timeout(ANSWER_TIMEOUT, self.ask(request, &to)));
        let passed = loop {
            tokio::select! {
                answer = &mut answer => break answer.unwrap_or(Passed::Unknown),
                () = timer(POLL) => {
                    if !self.is_hopeful(holder) {
                        break Passed::Unknown;
                    }
                }
            }
        };
        self.of(holder, |peer| match passed {
            Passed::Answered(_) => {}
            // Those that wait are answered all the same.
            Passed::TurnedAway => peer.rest(),
            Passed::Not | Passed::Unknown => {
                peer.rest();
                if matches!(peer.trust, Trust::Known) {
                    peer.trust = Trust::New;
                }
            }
        });
        passed
    }

    /// What comes of a request to the server of this name.
    async fn ask(&self, request: http::Request<Body>, name: &HeaderValue) -> Passed {
        let answer = match self.client.request(request).await {
            Ok(answer) => answer,
            Err(error) => {
                let source = error.source().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(%error, source, "a request that was passed on was not answered");
                return if error.is_connect() { Passed::Not } else { Passed::Unknown };
            }
        };
        let (mut parts, body) = answer.into_parts();
        if parts.headers.remove(CARRIED_OUT_BY).as_ref() != Some(name) {
            tracing::warn!(status = %parts.status, "somebody else answers for another server");
            return Passed::Unknown;
        }
        match to_bytes(Body::new(body), ANSWER_MAX).await {
            Ok(bytes) => {
                keep_to_itself(&mut parts.headers);
                match parts.status {
                    StatusCode::SERVICE_UNAVAILABLE => Passed::TurnedAway,
                    _ => Passed::Answered(Response::from_parts(parts, Body::from(bytes))),
                }
            }
            Err(error) => {
                tracing::warn!(%error, "an answer to a request that was passed on broke off");
                Passed::Unknown
            }
        }
    }
}

/// The layer.
async fn run(
    State((relay, comers)): State<(Arc<Relay>, Comers)>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers_mut();
    // A client may say that it is a server, and a proxy on this machine pass it through.
    let is_believed = comers == Comers::Servers
        || (comers == Comers::Everyone && !headers.contains_key(FORWARDED_FOR));
    if is_believed && headers.contains_key(RELAYED_BY) {
        return relay.carry_out(request, next).await;
    }
    if comers == Comers::Servers {
        return health::not_found().await;
    }
    for name in [RELAYED_BY, RELAYED_TO, RELAYED_FOR] {
        headers.remove(name);
    }
    if relay.takes(&request) { relay.pass_on(request, next).await } else { next.run(request).await }
}

impl Relay {
    /// Carries out what was passed on to this server, and to no other.
    async fn carry_out(&self, mut request: Request, next: Next) -> Response {
        if request.headers_mut().remove(RELAYED_TO).is_some_and(|to| to != self.name) {
            return StatusCode::MISDIRECTED_REQUEST.into_response();
        }
        let client = request.headers_mut().remove(RELAYED_FOR);
        let client = client.and_then(|client| client.to_str().ok()?.parse().ok());
        if let Some(client) = client {
            request.extensions_mut().insert(ClientAddress(client));
        }
        let mut response = next.run(request).await;
        response.headers_mut().insert(CARRIED_OUT_BY, self.name.clone());
        response
    }

    /// Has a request carried out by the other server, or does so here.
    async fn pass_on(self: &Arc<Self>, request: Request, next: Next) -> Response {
        let (mut parts, body) = request.into_parts();
        let body = match to_bytes(body, BODY_MAX as usize).await {
            Ok(body) => body,
            // The room that reads it says what is wrong with it.
            Err(error) => {
                let body = Body::new(Broken(Some(error)));
                return next.run(Request::from_parts(parts, body)).await;
            }
        };
        let again = |parts, body| Request::from_parts(parts, Body::from(body));
        // Only now: whose turn it is may be another's than when the request began.
        let (Some(holder), Ok(slot)) = (self.destination(), self.slots.try_acquire()) else {
            return next.run(again(parts, body)).await;
        };
        let is_keyed = parts.headers.contains_key(IDEMPOTENCY_KEY);
        if !is_keyed {
            parts.headers.insert(IDEMPOTENCY_KEY, self.home.draw_key());
        }
        let passed = self.pass(&holder, &parts, body.clone()).await;
        drop(slot);
        let outcome = match passed {
            Passed::Answered(_) => "answered",
            Passed::Not => "here",
            Passed::TurnedAway | Passed::Unknown => "again",
        };
        metrics::counter!("switchyard_relayed_requests_total", "outcome" => outcome).increment(1);
        match passed {
            Passed::Answered(response) => {
                if response.status().is_success() && changes_callers(&parts) {
                    self.home.forget_callers();
                }
                response
            }
            Passed::Not => {
                if !is_keyed {
                    parts.headers.remove(IDEMPOTENCY_KEY);
                }
                next.run(again(parts, body)).await
            }
            // With the key that it was sent with: it may have been carried out.
            Passed::TurnedAway | Passed::Unknown => {
                let mut response = next.run(again(parts, body)).await;
                if !is_keyed {
                    response.headers_mut().remove(IDEMPOTENT_REPLAYED);
                }
                response
            }
        }
    }
}

/// What is behind the version in a path of the API.
fn path_of_api(uri: &Uri) -> Option<&str> {
    uri.path().strip_prefix('/')?.strip_prefix(api::VERSION)?.strip_prefix('/')
}

/// Whether a request may change who may do what.
fn changes_callers(parts: &Parts) -> bool {
    let room = path_of_api(&parts.uri).and_then(|path| path.split('/').next());
    parts.method != Method::POST || room.is_some_and(|room| OF_CALLERS.contains(&room))
}

fn keep_to_itself(headers: &mut HeaderMap) {
    for name in OF_CONNECTION {
        headers.remove(name);
    }
}

fn uri_at(holder: &Holder, target: &str) -> Option<Uri> {
    format!("{}{target}", holder.address.as_deref()?).parse().ok()
}

/// A body of which nothing can be read but why.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use axum::Json;
    use axum::middleware::map_response;
    use axum::routing::{any, get};
    use http::header::ALLOW;
    use serde_json::{Value, json};
    use tokio::net::TcpListener;
    use tokio::sync::Notify;
    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt as _;

    use super::*;
    use crate::edge::{self, Limits};

    /// Whatever should happen has happened by then, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    const NAME: &str = "the one with the lease";

    /// A server of which nothing is real but who has the lease.
    #[derive(Clone, Default)]
    struct Server {
        lease: Arc<Mutex<Option<Arc<Holder>>>>,
        forgot: Arc<AtomicUsize>,
    }

    impl Home for Server {
        fn elsewhere(&self) -> Option<Arc<Holder>> {
            self.lease.lock().expect("it is whole").clone()
        }

        fn draw_key(&self) -> HeaderValue {
            HeaderValue::from_static("drawn")
        }

        fn forget_callers(&self) {
            self.forgot.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Another server, and the relay of one that passes requests on to it.
    struct Site {
        server: Server,
        relay: Arc<Relay>,
        /// Requests that have reached the other server.
        reached: Arc<AtomicUsize>,
        /// Whether it does not even tell its name any more.
        hangs: Arc<AtomicBool>,
        /// Lets it go on with what is slow.
        goes_on: Arc<Notify>,
        stop: CancellationToken,
    }

    impl Site {
        async fn new(name: &'static str) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let (reached, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
            let (hangs, goes_on) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
            let gates = (Arc::clone(&hangs), Arc::clone(&goes_on));
            let router = other(name, Arc::clone(&reached), gates);
            tokio::spawn(edge::serve(listener, router, Limits::default(), stop.clone()));
            let holder =
                Holder { server: NAME.to_owned(), address: Some(format!("http://{address}")) };
            let server = Server::default();
            *server.lease.lock().expect("it is whole") = Some(Arc::new(holder));
            let relay = Relay::new(HeaderValue::from_static("this one"), server.clone());
            Self { server, relay: Arc::new(relay), reached, hangs, goes_on, stop }
        }

        /// One that has told its name.
        async fn known() -> Self {
            let site = Self::new(NAME).await;
            let known = async {
                while site.ask(post("/known")).await.1["server"] != "other" {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, known).await.expect("it tells its name");
            site
        }

        async fn ask(&self, request: Request) -> (StatusCode, Value, HeaderMap) {
            self.ask_among(Comers::Everyone, request).await
        }

        async fn ask_among(
            &self,
            comers: Comers,
            request: Request,
        ) -> (StatusCode, Value, HeaderMap) {
            let answer = before(Arc::clone(&self.relay), comers, here()).oneshot(request);
            let answer = timeout(PATIENCE, answer).await.expect("an answer in time");
            let (parts, body) = answer.expect("routers always answer").into_parts();
            let bytes = to_bytes(body, ANSWER_MAX).await.expect("a body");
            let body = if bytes.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&bytes).expect("JSON")
            };
            (parts.status, body, parts.headers)
        }

        async fn is_carried_out_here(&self, request: Request) -> (Value, HeaderMap) {
            let (status, body, headers) = self.ask(request).await;
            assert_eq!((status, &body["server"]), (StatusCode::OK, &json!("here")), "{body}");
            (body["headers"].clone(), headers)
        }

        fn give_up_lease(&self) {
            *self.server.lease.lock().expect("it is whole") = None;
        }
    }

    /// What a server was asked, as its answer.
    async fn seen(server: &str, request: Request) -> Value {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.map_err(|error| error.to_string());
        let body = body.map(|body| String::from_utf8_lossy(&body).into_owned());
        let headers: serde_json::Map<_, _> = parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap_or_default())))
            .collect();
        let client = parts.extensions.get::<ClientAddress>();
        json!({
            "client": client.map(|client| client.0.to_string()),
            "server": server,
            "method": parts.method.as_str(),
            "target": parts.uri.to_string(),
            "body": body.unwrap_or_else(|error| format!("broken: {error}")),
            "headers": headers,
        })
    }

    fn here() -> Router {
        let replayed = [(IDEMPOTENT_REPLAYED, "true")];
        Router::new().fallback(async move |request| (replayed, Json(seen("here", request).await)))
    }

    fn other(
        name: &'static str,
        reached: Arc<AtomicUsize>,
        (hangs, goes_on): (Arc<AtomicBool>, Arc<Notify>),
    ) -> Router {
        let tells = async move || {
            if hangs.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            Json(json!({ "server": name }))
        };
        let counted = async move |request: Request| {
            reached.fetch_add(1, Ordering::SeqCst);
            let headers = [(ALLOW, "of the answer"), (CONNECTION, "keep-alive")];
            (StatusCode::CREATED, headers, Json(seen("other", request).await))
        };
        let breaks = || Body::new(Broken(Some(axum::Error::new("it breaks off"))));
        let slow = async move || {
            goes_on.notified().await;
            (StatusCode::CREATED, Json(json!({ "server": "other" })))
        };
        let marked = Router::new()
            .route(&path("/breaks"), any(async move || breaks()))
            .route(&path("/full"), any(async || StatusCode::SERVICE_UNAVAILABLE))
            .route(&path("/hangs"), any(std::future::pending::<()>))
            .route(&path("/slow"), any(slow))
            .fallback(counted)
            .layer(map_response(async |mut response: Response| {
                response.headers_mut().insert(CARRIED_OUT_BY, HeaderValue::from_static(NAME));
                response
            }));
        Router::new()
            .route("/peer", get(tells))
            .route(&path("/proxy"), any(async || StatusCode::BAD_GATEWAY))
            .fallback_service(marked)
    }

    fn path(path: &str) -> String {
        format!("/{}{path}", api::VERSION)
    }

    fn ask(method: Method, target: &str) -> Request {
        let request = Request::builder().method(method).uri(target).header("host", "pay.example");
        request.header(AUTHORIZATION, "Basic abc").body(Body::from("{}")).expect("a request")
    }

    fn post(target: &str) -> Request {
        ask(Method::POST, &path(target))
    }

    fn with(mut request: Request, name: HeaderName, value: &'static str) -> Request {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
        request
    }

    #[tokio::test]
    async fn a_change_is_passed_on_as_it_came_and_so_is_its_answer() {
        let site = Site::known().await;
        for method in [Method::POST, Method::PATCH, Method::DELETE] {
            let request = ask(method.clone(), &path("/customers/1?a=b%20c"));
            let request = with(with(request, IDEMPOTENCY_KEY, "key"), TE, "trailers");
            let (status, body, headers) = site.ask(with(request, EXPECT, "100-continue")).await;
            assert_eq!(status, StatusCode::CREATED);
            assert_eq!(body["server"], "other");
            assert_eq!(body["method"], method.as_str());
            assert_eq!(body["target"], path("/customers/1?a=b%20c"));
            assert_eq!(body["body"], "{}");
            let mut names = body["headers"].as_object().expect("headers").clone();
            names.remove("content-length");
            let expected = json!({
                "authorization": "Basic abc",
                "host": "pay.example",
                "idempotency-key": "key",
                "switchyard-relayed-by": "this one",
                "switchyard-relayed-to": NAME,
            });
            assert_eq!(Value::from(names), expected);
            assert_eq!(headers.get(ALLOW).expect("a header"), "of the answer");
            assert_eq!(headers.get(CONNECTION), None);
            assert_eq!(headers.get(CARRIED_OUT_BY), None);
        }
        let (_, body, _) = site.ask(post("/customers")).await;
        assert_eq!(body["headers"]["idempotency-key"], "drawn", "it could not be repeated");
    }

    #[tokio::test]
    async fn what_changes_nothing_is_long_or_was_passed_on_is_carried_out_here() {
        let site = Site::known().await;
        let reached = site.reached.load(Ordering::SeqCst);
        let length = usize::try_from(BODY_MAX).expect("a length") + 1;
        let long = post("/customers").map(|_| Body::from(vec![b'x'; length]));
        let unknown = post("/customers").map(|_| Body::new(Broken(None)));
        let mut nobodys = post("/customers");
        nobodys.headers_mut().remove(AUTHORIZATION);
        for request in [
            ask(Method::GET, &path("/customers")),
            ask(Method::POST, "/invitations/1"),
            ask(Method::POST, &format!("/{}x/customers", api::VERSION)),
            with(post("/customers"), RELAYED_BY, "another one"),
            long,
            unknown,
            nobodys,
        ] {
            let (headers, _) = site.is_carried_out_here(request).await;
            assert_eq!(headers["idempotency-key"], Value::Null);
        }
        site.give_up_lease();
        site.is_carried_out_here(post("/customers")).await;
        assert_eq!(site.reached.load(Ordering::SeqCst), reached);
    }

    #[tokio::test]
    async fn what_was_passed_on_to_somebody_else_is_not_carried_out() {
        let site = Site::known().await;
        let relayed = || with(post("/customers"), RELAYED_BY, "another one");
        let (status, body, headers) =
            site.ask(with(relayed(), RELAYED_TO, "who was here before")).await;
        assert_eq!((status, body), (StatusCode::MISDIRECTED_REQUEST, Value::Null));
        assert_eq!(headers.get(CARRIED_OUT_BY), None);
        let (status, body, headers) = site.ask(with(relayed(), RELAYED_TO, "this one")).await;
        assert_eq!((status, &body["server"]), (StatusCode::OK, &json!("here")));
        assert_eq!(headers.get(CARRIED_OUT_BY).expect("who did it"), "this one");
    }

    #[tokio::test]
    async fn only_servers_are_believed_to_be_servers() {
        let site = Site::known().await;
        let relayed = || {
            let request = with(ask(Method::GET, &path("/customers")), RELAYED_BY, "another one");
            with(with(request, RELAYED_TO, "this one"), RELAYED_FOR, "198.51.100.7")
        };
        let by_proxy = with(relayed(), FORWARDED_FOR, "203.0.113.1");
        for (comers, request, is_believed) in [
            (Comers::Servers, relayed(), true),
            (Comers::Everyone, relayed(), true),
            (Comers::Everyone, by_proxy, false),
            (Comers::Clients, relayed(), false),
        ] {
            let (status, body, headers) = site.ask_among(comers, request).await;
            assert_eq!(status, StatusCode::OK);
            assert_eq!(headers.contains_key(CARRIED_OUT_BY), is_believed, "{comers:?}");
            assert_eq!(body["client"] == json!("198.51.100.7"), is_believed, "{comers:?}");
            assert_eq!(body["headers"].get("switchyard-relayed-for"), None, "{comers:?}");
        }
        let request = ask(Method::GET, &path("/customers"));
        let (status, body, _) = site.ask_among(Comers::Servers, request).await;
        assert_eq!((status, &body["code"]), (StatusCode::NOT_FOUND, &json!("NOT_FOUND")));
    }

    #[tokio::test]
    async fn the_client_of_what_is_passed_on_is_named() {
        let site = Site::known().await;
        let mut request = with(post("/customers"), FORWARDED_FOR, "203.0.113.1");
        request.extensions_mut().insert(ClientAddress([203, 0, 113, 1].into()));
        let (_, body, _) = site.ask(request).await;
        assert_eq!(body["headers"]["switchyard-relayed-for"], "203.0.113.1");
        assert_eq!(body["headers"].get("x-forwarded-for"), None);
    }

    #[tokio::test]
    async fn who_may_do_what_is_read_again_once_it_may_have_changed() {
        let site = Site::known().await;
        let forgot = async |request| {
            let before = site.server.forgot.load(Ordering::SeqCst);
            site.ask(request).await;
            site.server.forgot.load(Ordering::SeqCst) > before
        };
        for path in ["/tokens", "/sandbox/clock", "/webhooks/keys/rotate"] {
            assert!(forgot(post(path)).await, "{path}");
        }
        assert!(forgot(ask(Method::PATCH, &path("/config"))).await);
        assert!(forgot(ask(Method::DELETE, &path("/tokens/1"))).await);
        assert!(!forgot(post("/transfer-out")).await);
    }

    #[tokio::test]
    async fn a_server_with_another_name_gets_nothing() {
        let site = Site::new("somebody else").await;
        let trust = || site.relay.peer().as_ref().map(|peer| peer.trust);
        let refused = async {
            while !matches!(trust(), Some(Trust::Not)) {
                assert!(site.relay.destination().is_none());
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, refused).await.expect("it is asked");
        site.is_carried_out_here(post("/customers")).await;
        assert_eq!(site.reached.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_server_that_is_gone_is_done_without() {
        let site = Site::known().await;
        site.stop.cancel();
        let keyed = || with(post("/customers"), IDEMPOTENCY_KEY, "key");
        // What it has begun it ends, on connections that are open.
        let gone = async { while site.ask(keyed()).await.1["server"] != "here" {} };
        timeout(PATIENCE, gone).await.expect("it stops");
        let reached = site.reached.load(Ordering::SeqCst);
        for _ in 0..3 {
            site.is_carried_out_here(keyed()).await;
        }
        assert_eq!(site.reached.load(Ordering::SeqCst), reached);
    }

    #[tokio::test]
    async fn what_may_have_happened_is_repeated_with_the_same_key() {
        for target in ["/breaks", "/full", "/proxy"] {
            for method in [Method::POST, Method::PATCH, Method::DELETE] {
                let site = Site::known().await;
                let request = ask(method.clone(), &path(target));
                let keyed = with(request, IDEMPOTENCY_KEY, "key");
                let (headers, answer) = site.is_carried_out_here(keyed).await;
                assert_eq!(headers["idempotency-key"], "key");
                assert_eq!(answer.get(IDEMPOTENT_REPLAYED).expect("it may be one"), "true");
                // For a moment, everything is.
                site.is_carried_out_here(post("/customers")).await;

                let site = Site::known().await;
                let request = ask(method, &path(target));
                let (headers, answer) = site.is_carried_out_here(request).await;
                assert_eq!(headers["idempotency-key"], "drawn");
                assert_eq!(answer.get(IDEMPOTENT_REPLAYED), None, "its client has asked once");
            }
        }
    }

    #[tokio::test]
    async fn who_waits_is_answered_although_others_are_turned_away() {
        let site = Site::known().await;
        let mut waits = pin!(site.ask(post("/slow")));
        let turned_away = async {
            site.is_carried_out_here(post("/full")).await;
            // It looks several times whether there is hope, and the other server tells its name.
            timer(3 * POLL).await;
        };
        tokio::select! {
            biased;
            (status, ..) = &mut waits => panic!("it does not wait: {status}"),
            () = turned_away => {}
        }
        site.goes_on.notify_one();
        let (status, body, _) = waits.await;
        assert_eq!((status, &body["server"]), (StatusCode::CREATED, &json!("other")));
    }

    #[tokio::test]
    async fn a_server_that_hangs_holds_nobody_up_once_its_lease_is_over() {
        let site = Site::known().await;
        let asked = site.is_carried_out_here(post("/hangs"));
        let ends = async {
            // It is on its way when the lease ends.
            tokio::task::yield_now().await;
            site.give_up_lease();
        };
        let ((headers, _), ()) = tokio::join!(asked, ends);
        assert_eq!(headers["idempotency-key"], "drawn");
    }

    #[tokio::test]
    async fn a_server_that_does_not_tell_its_name_any_more_is_not_waited_for() {
        let site = Site::known().await;
        site.hangs.store(true, Ordering::SeqCst);
        let (headers, _) = site.is_carried_out_here(post("/hangs")).await;
        assert_eq!(headers["idempotency-key"], "drawn");
        // Whoever comes now is not passed on.
        let (headers, _) = site.is_carried_out_here(post("/hangs")).await;
        assert_eq!(headers["idempotency-key"], Value::Null);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_refused_where_it_always_is() {
        /// A body of a known length that does not come.
        struct Short(Broken);

        impl hyper::body::Body for Short {
            type Data = Bytes;
            type Error = axum::Error;

            fn poll_frame(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
                Pin::new(&mut self.0).poll_frame(context)
            }

            fn size_hint(&self) -> hyper::body::SizeHint {
                hyper::body::SizeHint::with_exact(9)
            }
        }

        let site = Site::known().await;
        let short = Short(Broken(Some(axum::Error::new("too slow"))));
        let (_, body, _) = site.ask(post("/customers").map(|_| Body::new(short))).await;
        assert_eq!(body["server"], "here");
        assert!(body["body"].as_str().expect("a text").contains("too slow"), "{body}");
    }
}
