use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use api::auth::ClientAddress;
use axum::Json;
use axum::routing::{any, get};
use http::HeaderMap;
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

const HERE: &str = "this one";

/// The time of all servers, in milliseconds.
const NOW: i64 = 1_000_000;

/// A server with a lease and nothing else.
#[derive(Clone)]
struct Server {
    keyring: Arc<Keyring>,
    lease: Arc<Mutex<Option<Arc<Leader>>>>,
    changes: Arc<AtomicUsize>,
    forgot: Arc<AtomicUsize>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            keyring: Arc::new(Keyring::new(&[7; 32])),
            lease: Arc::default(),
            changes: Arc::default(),
            forgot: Arc::default(),
        }
    }
}

impl ThisServer for Server {
    fn elsewhere(&self) -> Option<Arc<Leader>> {
        self.lease.lock().expect("it is whole").clone()
    }

    fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    fn now(&self) -> i64 {
        NOW
    }

    fn draw(&self) -> [u8; 16] {
        [0; 16]
    }

    fn client_changes(&self) -> u64 {
        u64::try_from(self.changes.load(Ordering::SeqCst)).expect("a count")
    }

    fn forget_clients(&self) {
        self.forgot.fetch_add(1, Ordering::SeqCst);
    }
}

/// The key that is drawn for a request without one.
const DRAWN: &str = "forwarded-00000000000000000000000000000000";

/// A leader, and the forwarder of another server.
struct Site {
    server: Server,
    forwarder: Arc<Forwarder>,
    /// Requests that have reached the other server.
    reached: Arc<AtomicUsize>,
    /// Whether it does not even tell its name any more.
    hangs: Arc<AtomicBool>,
    /// Whether something between the servers answers in its place.
    garbles: Arc<AtomicBool>,
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
        let garbles = Arc::new(AtomicBool::new(false));
        let leading = Server::default();
        let changes = Arc::clone(&leading.changes);
        let router = other(name, (Arc::clone(&reached), changes), gates);
        let leading = Arc::new(Forwarder::new(name.to_owned(), leading));
        let router = router.clone().merge(for_servers(&leading, router));
        let router = router.layer(from_fn_with_state(Arc::clone(&garbles), between));
        tokio::spawn(edge::serve(listener, router, Limits::default(), stop.clone()));
        let leader = Leader { server: NAME.to_owned(), address: Some(format!("http://{address}")) };
        let server = Server::default();
        *server.lease.lock().expect("it is whole") = Some(Arc::new(leader));
        let forwarder = Arc::new(Forwarder::new(HERE.to_owned(), server.clone()));
        Self { server, forwarder, reached, hangs, garbles, goes_on, stop }
    }

    /// One whose name is known.
    async fn known() -> Self {
        let site = Self::new(NAME).await;
        let known = async {
            while site.ask(change("/known")).await.1["server"] != "other" {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, known).await.expect("it tells its name");
        site
    }

    async fn ask(&self, request: Request) -> (StatusCode, Value, HeaderMap) {
        let answer = for_clients(&self.forwarder, here()).oneshot(request);
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

    async fn is_executed_here(&self, request: Request) -> (Value, HeaderMap) {
        let (status, body, headers) = self.ask(request).await;
        assert_eq!((status, &body["server"]), (StatusCode::OK, &json!("here")), "{body}");
        (body["headers"].clone(), headers)
    }

    fn give_up_lease(&self) {
        *self.server.lease.lock().expect("it is whole") = None;
    }
}

/// A proxy that has an answer of its own, or passes the server's on.
async fn between(State(garbles): State<Arc<AtomicBool>>, request: Request, next: Next) -> Response {
    let is_garbled = request.method() == Method::POST && garbles.load(Ordering::SeqCst);
    let answer = next.run(request).await;
    if is_garbled { StatusCode::BAD_GATEWAY.into_response() } else { answer }
}

/// The request to a server, as its answer.
async fn seen(server: &str, request: Request) -> Value {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.map_err(|error| error.to_string());
    let body = body.map(|body| String::from_utf8_lossy(&body[..body.len().min(100)]).into_owned());
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
    (reached, changes): (Arc<AtomicUsize>, Arc<AtomicUsize>),
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
    let revokes = async move || {
        changes.fetch_add(1, Ordering::SeqCst);
        Json(json!({}))
    };
    Router::new()
        .route("/peer", get(tells))
        .route(&path("/breaks"), any(async move || breaks()))
        .route(&path("/full"), any(async || StatusCode::SERVICE_UNAVAILABLE))
        .route(&path("/hangs"), any(std::future::pending::<()>))
        .route(&path("/slow"), any(slow))
        .route(&path("/revokes"), any(revokes))
        .fallback(counted)
}

fn path(path: &str) -> String {
    format!("/{}{path}", api::VERSION)
}

fn ask(method: Method, target: &str) -> Request {
    let request = Request::builder().method(method).uri(target).header("host", "pay.example");
    request.header(AUTHORIZATION, "Basic abc").body(Body::from("{}")).expect("a request")
}

fn change(target: &str) -> Request {
    ask(Method::POST, &path(target))
}

fn with(mut request: Request, name: HeaderName, value: &'static str) -> Request {
    request.headers_mut().insert(name, HeaderValue::from_static(value));
    request
}

#[tokio::test]
async fn a_change_is_forwarded_as_it_came_and_so_is_its_answer() {
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
        });
        assert_eq!(Value::from(names), expected);
        assert_eq!(headers.get(ALLOW).expect("a header"), "of the answer");
        assert_eq!(headers.get(CONNECTION), None);
    }
    let (_, body, _) = site.ask(change("/customers")).await;
    assert_eq!(body["headers"]["idempotency-key"], DRAWN, "it could not be repeated");
}

#[tokio::test]
async fn reads_and_bodies_that_are_too_long_are_executed_here() {
    let site = Site::known().await;
    let reached = site.reached.load(Ordering::SeqCst);
    let long = change("/customers").map(|_| Body::from(vec![b'x'; BODY_MAX + 1]));
    let half = || Ok::<_, axum::Error>(Bytes::from(vec![b'x'; BODY_MAX / 2 + 1]));
    let chunks = stream::iter([half(), half()]);
    let chunked = change("/customers").map(|_| Body::from_stream(chunks));
    let mut anonymous = change("/customers");
    anonymous.headers_mut().remove(AUTHORIZATION);
    for request in [ask(Method::GET, &path("/customers")), long, chunked, anonymous] {
        let (headers, _) = site.is_executed_here(request).await;
        assert_eq!(headers["idempotency-key"], Value::Null);
    }
    site.give_up_lease();
    site.is_executed_here(change("/customers")).await;
    assert_eq!(site.reached.load(Ordering::SeqCst), reached);
}

#[tokio::test]
async fn bodies_are_forwarded_whatever_is_said_of_their_length() {
    let site = Site::known().await;
    let chunks = stream::iter(["[1,", "2]"].map(|it| Ok::<_, axum::Error>(Bytes::from(it))));
    let chunked = change("/customers").map(|_| Body::from_stream(chunks));
    let (_, body, _) = site.ask(chunked).await;
    assert_eq!((&body["server"], &body["body"]), (&json!("other"), &json!("[1,2]")));
    let long = change("/customers").map(|_| Body::from(vec![b'x'; BODY_MAX]));
    assert_eq!(site.ask(long).await.1["server"], "other");
}

#[tokio::test]
async fn pages_and_messages_of_others_are_forwarded_once() {
    let site = Site::known().await;
    let page = |target: &str| {
        let mut request = ask(Method::POST, target);
        request.headers_mut().remove(AUTHORIZATION);
        request
    };
    for target in ["/kyc/1", &format!("/{}x/customers", api::VERSION)] {
        let (_, body, _) = site.ask(page(target)).await;
        assert_eq!(body["server"], "other");
        assert_eq!(body["headers"].get("idempotency-key"), None);
    }
    let long = page("/kyc/1").map(|_| Body::from(vec![b'x'; OTHER_BODY_MAX + 1]));
    site.is_executed_here(long).await;
    site.garbles.store(true, Ordering::SeqCst);
    let (status, body, headers) = site.ask(page("/kyc/1")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "it may have been executed");
    assert_eq!(body["code"], "SERVICE_UNAVAILABLE");
    assert!(headers.contains_key(RETRY_AFTER));
    // For a moment, nothing is forwarded.
    site.is_executed_here(page("/kyc/1")).await;
}

/// A request that was sealed for the server of this name.
fn sealed_for(keyring: &Keyring, name: &str) -> Request {
    let (parts, _) = change("/customers").into_parts();
    let body = Bytes::from_static(b"{}");
    let sealed = sealed::seal(keyring, name, (Number([7; 16]), NOW), (&parts, &body));
    ask(Method::POST, PATH).map(|_| Body::from(sealed))
}

/// The answer of this server to other servers, and whether it was opened.
async fn answered(site: &Site, request: Request) -> (StatusCode, bool) {
    let answer = for_servers(&site.forwarder, here()).oneshot(request).await;
    let (parts, body) = answer.expect("routers always answer").into_parts();
    let bytes = to_bytes(body, ANSWER_MAX).await.expect("a body");
    let opened = sealed::open_answer(&site.server.keyring, Number([7; 16]), &bytes);
    (parts.status, opened.is_some_and(|(answer, _)| answer.status() == StatusCode::OK))
}

#[tokio::test]
async fn a_request_is_executed_if_it_was_sealed_for_this_server() {
    let site = Site::known().await;
    let keyring = &site.server.keyring;
    let stranger = Keyring::new(&[8; 32]);
    assert_eq!(answered(&site, sealed_for(keyring, HERE)).await, (StatusCode::OK, true));
    let long = ask(Method::POST, PATH).map(|_| Body::from(vec![0; SEALED_MAX + 1]));
    for (request, status) in [
        (sealed_for(keyring, "who was here before"), StatusCode::MISDIRECTED_REQUEST),
        (sealed_for(&stranger, HERE), StatusCode::MISDIRECTED_REQUEST),
        (ask(Method::POST, PATH), StatusCode::MISDIRECTED_REQUEST),
        (long, StatusCode::BAD_REQUEST),
        (ask(Method::GET, PATH), StatusCode::METHOD_NOT_ALLOWED),
        (change("/customers"), StatusCode::NOT_FOUND),
    ] {
        assert_eq!(answered(&site, request).await, (status, false));
    }
}

#[tokio::test]
async fn the_client_of_a_forwarded_request_is_named() {
    let site = Site::known().await;
    let mut request = with(change("/customers"), X_FORWARDED_FOR, "203.0.113.1");
    request.extensions_mut().insert(ClientAddress([203, 0, 113, 1].into()));
    let (_, body, _) = site.ask(request).await;
    assert_eq!(body["client"], "203.0.113.1");
    assert_eq!(body["headers"].get("x-forwarded-for"), None);
}

#[tokio::test]
async fn clients_are_read_again_once_the_leader_says_that_they_changed() {
    let site = Site::known().await;
    let forgot = async |target| {
        let before = site.server.forgot.load(Ordering::SeqCst);
        site.ask(change(target)).await;
        site.server.forgot.load(Ordering::SeqCst) > before
    };
    assert!(forgot("/revokes").await);
    assert!(!forgot("/transfer-out").await);
}

#[tokio::test]
async fn a_server_with_another_name_gets_nothing() {
    let site = Site::new("another server").await;
    let trust = || site.forwarder.peer().as_ref().map(|peer| peer.trust);
    let refused = async {
        while !matches!(trust(), Some(Trust::Not)) {
            assert!(site.forwarder.destination().is_none());
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, refused).await.expect("it is asked");
    site.is_executed_here(change("/customers")).await;
    assert_eq!(site.reached.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_server_that_is_gone_is_done_without() {
    let site = Site::known().await;
    site.stop.cancel();
    let keyed = || with(change("/customers"), IDEMPOTENCY_KEY, "key");
    // Requests that it has begun end, on connections that are open.
    let gone = async { while site.ask(keyed()).await.1["server"] != "here" {} };
    timeout(PATIENCE, gone).await.expect("it stops");
    let reached = site.reached.load(Ordering::SeqCst);
    for _ in 0..3 {
        site.is_executed_here(keyed()).await;
    }
    assert_eq!(site.reached.load(Ordering::SeqCst), reached);
}

#[tokio::test]
async fn what_may_have_happened_is_repeated_with_the_same_key() {
    for (target, is_garbled) in [("/breaks", false), ("/full", false), ("/customers", true)] {
        let known = async || {
            let site = Site::known().await;
            site.garbles.store(is_garbled, Ordering::SeqCst);
            site
        };
        for method in [Method::POST, Method::PATCH, Method::DELETE] {
            let site = known().await;
            let request = ask(method.clone(), &path(target));
            let keyed = with(request, IDEMPOTENCY_KEY, "key");
            let (headers, answer) = site.is_executed_here(keyed).await;
            assert_eq!(headers["idempotency-key"], "key");
            assert_eq!(answer.get(IDEMPOTENT_REPLAYED).expect("it may be one"), "true");
            // For a moment, everything is.
            site.is_executed_here(change("/customers")).await;

            let site = known().await;
            let request = ask(method, &path(target));
            let (headers, answer) = site.is_executed_here(request).await;
            assert_eq!(headers["idempotency-key"], DRAWN);
            assert_eq!(answer.get(IDEMPOTENT_REPLAYED), None, "its client has asked once");
        }
    }
}

#[tokio::test]
async fn a_request_that_waits_is_answered_although_others_are_refused() {
    let site = Site::known().await;
    let mut waits = pin!(site.ask(change("/slow")));
    let refused = async {
        site.is_executed_here(change("/full")).await;
        // It looks several times whether there is hope, and the other server tells its name.
        timer(3 * POLL).await;
    };
    tokio::select! {
        biased;
        (status, ..) = &mut waits => panic!("it does not wait: {status}"),
        () = refused => {}
    }
    site.goes_on.notify_one();
    let (status, body, _) = waits.await;
    assert_eq!((status, &body["server"]), (StatusCode::CREATED, &json!("other")));
}

#[tokio::test]
async fn a_server_that_hangs_delays_no_request_once_its_lease_is_over() {
    let site = Site::known().await;
    let asked = site.is_executed_here(change("/hangs"));
    let ends = async {
        // It is on its way when the lease ends.
        tokio::task::yield_now().await;
        site.give_up_lease();
    };
    let ((headers, _), ()) = tokio::join!(asked, ends);
    assert_eq!(headers["idempotency-key"], DRAWN);
}

#[tokio::test]
async fn a_server_that_does_not_tell_its_name_any_more_is_not_waited_for() {
    let site = Site::known().await;
    site.hangs.store(true, Ordering::SeqCst);
    let (headers, _) = site.is_executed_here(change("/hangs")).await;
    assert_eq!(headers["idempotency-key"], DRAWN);
    // Later requests are not forwarded.
    let (headers, _) = site.is_executed_here(change("/hangs")).await;
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
    let (_, body, _) = site.ask(change("/customers").map(|_| Body::new(short))).await;
    assert_eq!(body["server"], "here");
    assert!(body["body"].as_str().expect("a text").contains("too slow"), "{body}");
}
