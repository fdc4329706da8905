//! Changes go to the server that writes most (docs/decisions/0039).
//!
//! Servers that share a database write in turns, and one of them writes more than the others: it
//! does what is due. While several write, each waits for the others' turns and none can run ahead.
//! So a request that changes something is passed on to that one as it came, and what it answers is
//! the answer. Whatever is in the way of that, the request is carried out here, as it would be if
//! there were no other server: nothing depends on it that a client could see.
//!
//! Guarantees:
//! - A request is passed on once at most, and only to the process that has the lease: before the
//!   first one it has told the name that stands there (`GET /peer`).
//! - One that may have been carried out elsewhere is carried out here only if it has an idempotency
//!   key, so that it has one effect. Without one, its client is told that nobody knows.
//! - A server that hangs holds up requests with a key for a second, and the others for as long as
//!   its lease is believed. One that is gone or turns everybody away holds up nobody.

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
use http::header::{
    CONNECTION, EXPECT, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
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

/// How long a connection is kept for the next request: half of what the other side keeps it
/// ([`crate::edge::Limits::header_timeout`]).
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often whoever waits for an answer looks whether it is still to be expected. Answers take
/// some ten milliseconds.
const POLL: Duration = Duration::from_millis(250);

/// How long an answer may take while the lease is: what a server takes at most to answer anybody.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server has to tell its name, for which it looks nowhere. One that takes longer hangs,
/// or is too busy to be of help.
const NAME_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a server that could not be reached, or is another one, is left alone.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest answer with a name.
const NAME_MAX: usize = 1_024;

/// Says that a request was passed on, and by whom.
const RELAYED_BY: HeaderName = HeaderName::from_static("switchyard-relayed-by");

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

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

/// Puts the relay in front of the routes of a server that shares its database.
pub fn router(app: App, local: Router) -> Router {
    if !app.env().shares_database {
        return local;
    }
    let name = HeaderValue::from_str(&tenure::name(&app)).expect("digits are a header value");
    before(Arc::new(Relay::new(name, move || tenure::elsewhere(&app))), local)
}

fn before(relay: Arc<Relay>, local: Router) -> Router {
    local.layer(from_fn_with_state(relay, pass_on))
}

/// Tells who has the lease, if that is another server.
type Elsewhere = dyn Fn() -> Option<Arc<Holder>> + Send + Sync;

struct Relay {
    name: HeaderValue,
    elsewhere: Box<Elsewhere>,
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
}

#[derive(Clone, Copy)]
enum Trust {
    /// It has not been heard.
    New,
    /// It has told its name.
    Known,
    /// It was not there, or was another one; it is asked again from then on.
    Not(Instant),
}

/// What came of a request that was passed on.
enum Passed {
    /// It was answered.
    Answered(Response),
    /// Nothing of it has left.
    Not,
    /// It was turned away: the other server has no room, or no database, for a moment.
    TurnedAway(Response),
    /// It was sent, and whether it was carried out is not known.
    Unknown,
}

impl Relay {
    fn new(
        name: HeaderValue,
        elsewhere: impl Fn() -> Option<Arc<Holder>> + Send + Sync + 'static,
    ) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        let slots = Semaphore::new(PASSED_ON_MAX);
        Self { name, elsewhere: Box::new(elsewhere), client, slots, peer: Mutex::default() }
    }

    fn peer(&self) -> MutexGuard<'_, Option<Peer>> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request is one to pass on, to whomever.
    fn takes(request: &Request) -> bool {
        let changes = matches!(*request.method(), Method::POST | Method::PATCH | Method::DELETE);
        let is_of_api = request.uri().path().strip_prefix('/').is_some_and(|path| {
            path.strip_prefix(api::VERSION).is_some_and(|rest| rest.starts_with('/'))
        });
        let is_short = request.body().size_hint().exact().is_some_and(|length| length <= BODY_MAX);
        changes && is_of_api && is_short && !request.headers().contains_key(RELAYED_BY)
    }

    /// The server that requests are to be passed on to, if there is one and it has told its name.
    /// One that has not is asked meanwhile.
    fn destination(self: &Arc<Self>) -> Option<Arc<Holder>> {
        let holder = (self.elsewhere)().filter(|holder| holder.address.is_some())?;
        let mut peer = self.peer();
        if peer.as_ref().is_none_or(|known| known.holder != holder) {
            let holder = Arc::clone(&holder);
            *peer = Some(Peer { holder, trust: Trust::New, is_asked: false });
        }
        let known = peer.as_mut()?;
        match known.trust {
            Trust::Known => return Some(holder),
            Trust::Not(until) if now() < until => {}
            Trust::New | Trust::Not(_) => self.ask_for_name(known),
        }
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
            tracing::debug!(server = holder.server, is_it, "another server has the lease");
            let trust = if is_it { Trust::Known } else { Trust::Not(now() + PAUSE) };
            relay.of(&holder, |peer| (peer.trust, peer.is_asked) = (trust, false));
        });
    }

    /// Looks at what is known of a server, unless another one is meant by now.
    fn of<T>(&self, holder: &Arc<Holder>, look: impl FnOnce(&mut Peer) -> T) -> Option<T> {
        self.peer().as_mut().filter(|peer| peer.holder == *holder).map(look)
    }

    /// Whether an answer that has not come is still to be expected. A server that hangs does not
    /// renew its lease. Before that it does not tell its name either; but so would one that is very
    /// busy, so that this counts only for what may be carried out again.
    fn is_hopeful(self: &Arc<Self>, holder: &Arc<Holder>, may_repeat: bool) -> bool {
        let is_known = self.of(holder, |peer| {
            self.ask_for_name(peer);
            matches!(peer.trust, Trust::Known)
        });
        let has_lease = (self.elsewhere)().as_ref() == Some(holder);
        has_lease && (is_known == Some(true) || !may_repeat)
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
        let mut request = http::Request::new(Body::from(body));
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = parts.headers.clone();
        keep_to_itself(request.headers_mut());
        request.headers_mut().insert(RELAYED_BY, self.name.clone());
        let mut answer = pin!(timeout(ANSWER_TIMEOUT, self.ask(request)));
        let passed = loop {
            tokio::select! {
                answer = &mut answer => break answer.unwrap_or(Passed::Unknown),
                () = timer(POLL) => {
                    if !self.is_hopeful(holder, has_one_effect(parts)) {
                        break Passed::Unknown;
                    }
                }
            }
        };
        if !matches!(passed, Passed::Answered(_)) {
            self.of(holder, |peer| peer.trust = Trust::Not(now() + PAUSE));
        }
        passed
    }

    async fn ask(&self, request: http::Request<Body>) -> Passed {
        let answer = match self.client.request(request).await {
            Ok(answer) => answer,
            Err(error) => {
                let source = error.source().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(%error, source, "a request that was passed on was not answered");
                return if error.is_connect() { Passed::Not } else { Passed::Unknown };
            }
        };
        let (mut parts, body) = answer.into_parts();
        match to_bytes(Body::new(body), ANSWER_MAX).await {
            Ok(bytes) => {
                keep_to_itself(&mut parts.headers);
                let is_turned_away = parts.status == StatusCode::SERVICE_UNAVAILABLE;
                let answer = Response::from_parts(parts, Body::from(bytes));
                if is_turned_away { Passed::TurnedAway(answer) } else { Passed::Answered(answer) }
            }
            Err(error) => {
                tracing::warn!(%error, "an answer to a request that was passed on broke off");
                Passed::Unknown
            }
        }
    }
}

/// The layer.
async fn pass_on(State(relay): State<Arc<Relay>>, request: Request, next: Next) -> Response {
    if !Relay::takes(&request) {
        return next.run(request).await;
    }
    let Some(holder) = relay.destination() else { return next.run(request).await };
    let Ok(_slot) = relay.slots.try_acquire() else { return next.run(request).await };
    let (parts, body) = request.into_parts();
    let body = match to_bytes(body, BODY_MAX as usize).await {
        Ok(body) => body,
        // The room that reads it says what is wrong with it.
        Err(error) => {
            let body = Body::new(Broken(Some(error)));
            return next.run(Request::from_parts(parts, body)).await;
        }
    };
    let (passed, outcome) = match relay.pass(&holder, &parts, body.clone()).await {
        Passed::Answered(response) => (Some(response), "answered"),
        Passed::Not => (None, "here"),
        Passed::TurnedAway(_) | Passed::Unknown if has_one_effect(&parts) => (None, "again"),
        Passed::TurnedAway(response) => (Some(response), "answered"),
        Passed::Unknown => (Some(nobody_knows()), "unknown"),
    };
    metrics::counter!("switchyard_relayed_requests_total", "outcome" => outcome).increment(1);
    match passed {
        Some(response) => response,
        None => next.run(Request::from_parts(parts, Body::from(body))).await,
    }
}

/// Whether a request that is carried out twice has one effect: every POST takes a key.
fn has_one_effect(parts: &Parts) -> bool {
    parts.method == Method::POST && parts.headers.contains_key(IDEMPOTENCY_KEY)
}

fn nobody_knows() -> Response {
    let message = "the server that carries requests out did not answer, and this one may have \
        happened or not: look before you ask again, and send an Idempotency-Key";
    ApiError::new(Code::InternalError, message).into_response()
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
    use axum::routing::{any, get};
    use http::header::{ALLOW, AUTHORIZATION};
    use serde_json::{Value, json};
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt as _;

    use super::*;
    use crate::edge::{self, Limits};

    /// Whatever should happen has happened by then, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    const NAME: &str = "the one with the lease";

    type Lease = Arc<Mutex<Option<Arc<Holder>>>>;

    /// Another server, and the relay of one that passes requests on to it.
    struct Site {
        lease: Lease,
        relay: Arc<Relay>,
        /// Requests that have reached the other server.
        reached: Arc<AtomicUsize>,
        /// Whether it does not even tell its name any more.
        hangs: Arc<AtomicBool>,
        stop: CancellationToken,
    }

    impl Site {
        async fn new(name: &'static str) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let (reached, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
            let hangs = Arc::new(AtomicBool::new(false));
            let router = other(name, Arc::clone(&reached), Arc::clone(&hangs));
            tokio::spawn(edge::serve(listener, router, Limits::default(), stop.clone()));
            let holder =
                Holder { server: NAME.to_owned(), address: Some(format!("http://{address}")) };
            let lease = Lease::new(Mutex::new(Some(Arc::new(holder))));
            let looked_at = Arc::clone(&lease);
            let name = HeaderValue::from_static("this one");
            let relay = Relay::new(name, move || looked_at.lock().expect("it is whole").clone());
            Self { lease, relay: Arc::new(relay), reached, hangs, stop }
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
            let answer = before(Arc::clone(&self.relay), here()).oneshot(request);
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

        async fn is_carried_out_here(&self, request: Request) {
            let (status, body, _) = self.ask(request).await;
            assert_eq!((status, &body["server"]), (StatusCode::OK, &json!("here")), "{body}");
        }

        fn give_up_lease(&self) {
            *self.lease.lock().expect("it is whole") = None;
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
        json!({
            "server": server,
            "method": parts.method.as_str(),
            "target": parts.uri.to_string(),
            "body": body.unwrap_or_else(|error| format!("broken: {error}")),
            "headers": headers,
        })
    }

    fn here() -> Router {
        Router::new().fallback(async |request| Json(seen("here", request).await))
    }

    fn other(name: &'static str, reached: Arc<AtomicUsize>, hangs: Arc<AtomicBool>) -> Router {
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
        Router::new()
            .route("/peer", get(tells))
            .route(&path("/breaks"), any(async move || breaks()))
            .route(&path("/full"), any(async || StatusCode::SERVICE_UNAVAILABLE))
            .route(&path("/hangs"), any(std::future::pending::<()>))
            .fallback(counted)
    }

    fn path(path: &str) -> String {
        format!("/{}{path}", api::VERSION)
    }

    fn ask(method: Method, target: &str) -> Request {
        let request = Request::builder().method(method).uri(target).header("host", "pay.example");
        request.body(Body::from("{}")).expect("a request")
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
            let request = with(request, AUTHORIZATION, "Basic abc");
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
            });
            assert_eq!(Value::from(names), expected);
            assert_eq!(headers.get(ALLOW).expect("a header"), "of the answer");
            assert_eq!(headers.get(CONNECTION), None);
        }
    }

    #[tokio::test]
    async fn what_changes_nothing_is_long_or_was_passed_on_is_carried_out_here() {
        let site = Site::known().await;
        let reached = site.reached.load(Ordering::SeqCst);
        let length = usize::try_from(BODY_MAX).expect("a length") + 1;
        let long = post("/customers").map(|_| Body::from(vec![b'x'; length]));
        let unknown = post("/customers").map(|_| Body::new(Broken(None)));
        for request in [
            ask(Method::GET, &path("/customers")),
            ask(Method::POST, "/invitations/1"),
            ask(Method::POST, &format!("/{}x/customers", api::VERSION)),
            with(post("/customers"), RELAYED_BY, "another one"),
            long,
            unknown,
        ] {
            site.is_carried_out_here(request).await;
        }
        site.give_up_lease();
        site.is_carried_out_here(post("/customers")).await;
        assert_eq!(site.reached.load(Ordering::SeqCst), reached);
    }

    #[tokio::test]
    async fn a_server_with_another_name_gets_nothing() {
        let site = Site::new("somebody else").await;
        let trust = || site.relay.peer().as_ref().map(|peer| peer.trust);
        let refused = async {
            while !matches!(trust(), Some(Trust::Not(_))) {
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
    async fn what_may_have_happened_is_repeated_with_a_key_only() {
        let unknown = [post("/breaks"), {
            let patch = ask(Method::PATCH, &path("/breaks"));
            with(patch, IDEMPOTENCY_KEY, "key")
        }];
        for request in unknown {
            let (status, body, _) = Site::known().await.ask(request).await;
            assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(body["code"], "INTERNAL_ERROR", "{body}");
        }
        for target in ["/breaks", "/full"] {
            let site = Site::known().await;
            let (_, body, _) = site.ask(with(post(target), IDEMPOTENCY_KEY, "key")).await;
            assert_eq!((&body["server"], &body["body"]), (&json!("here"), &json!("{}")), "{body}");
            assert_eq!(body["headers"]["idempotency-key"], "key");
            // For a moment, everything is.
            site.is_carried_out_here(post("/customers")).await;
        }
        let (status, ..) = Site::known().await.ask(post("/full")).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn a_server_that_hangs_holds_nobody_up_once_its_lease_is_over() {
        let site = Site::known().await;
        let keyed = with(post("/hangs"), IDEMPOTENCY_KEY, "key");
        let (asked, asked_keyed) = (site.ask(post("/hangs")), site.is_carried_out_here(keyed));
        let ends = async {
            // They are on their way when the lease ends.
            tokio::task::yield_now().await;
            site.give_up_lease();
        };
        let ((status, ..), (), ()) = tokio::join!(asked, asked_keyed, ends);
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    }

    #[tokio::test]
    async fn a_server_that_does_not_tell_its_name_any_more_is_not_waited_for_with_a_key() {
        let site = Site::known().await;
        site.hangs.store(true, Ordering::SeqCst);
        let mut without = std::pin::pin!(site.ask(post("/hangs")));
        let keyed = site.is_carried_out_here(with(post("/hangs"), IDEMPOTENCY_KEY, "key"));
        tokio::select! {
            biased;
            (status, ..) = &mut without => panic!("nobody knows what became of it: {status}"),
            () = keyed => {}
        }
        // Whoever comes now is not passed on.
        site.is_carried_out_here(post("/hangs")).await;
        site.give_up_lease();
        let (status, ..) = without.await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
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
