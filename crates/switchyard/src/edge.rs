//! The HTTP edge: a TCP listener in front of a router.
//!
//! Guarantees:
//! - A client that is silent, slow, or does not read is cut off, and meanwhile costs the others
//!   nothing. Every wait and every size is in [`Limits`].
//! - A connection never closes on a request that was not answered, unless the answer before said
//!   `Connection: close`. An answer that is ready before the body was read waits for a short body.
//! - When there is no room for another connection, one ends that only waits for its client
//!   (`connections`). Running out of file descriptors pauses accepting and does not end it.
//! - On shutdown, requests that have begun are answered, up to a limit in time.
//! - The router sees requests with one sound `Host` (HTTP/1.0 may leave it out) and a target of
//!   bounded length. Reading a body fails after [`Limits::body_timeout`] with an [`io::Error`] of
//!   the kind [`io::ErrorKind::TimedOut`] as (a source of) the error, and with one of the kind
//!   [`io::ErrorKind::InvalidData`] where its chunks are malformed.
//! - Every answer has `X-Content-Type-Options: nosniff`.
//!
//! Limits: HTTP/1 without TLS; both are for a proxy in front. Each request carries the address of
//! its connection as [`ConnectInfo`]`<SocketAddr>`, and that of the client, as far as
//! [`Limits::trusted`] proxies tell it, as [`ClientAddress`].
//!
//! It never looks into a body, and knows nothing of routes, tokens or money.
//!
//! Why not `axum::serve`: it leaves silent connections open for ever and takes headers of 400 kB.

mod exchange;
mod chunks;
mod connections;
mod forwarded;
mod refusal;
mod body;
mod gate;
mod buffers;

use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use api::auth::ClientAddress;
use api::encoded::Shared;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use http::header::{ALLOW, CONNECTION, EXPECT, HOST, X_CONTENT_TYPE_OPTIONS};
use http::uri::Authority;
use http::{HeaderValue, Request, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWrite as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use self::body::{AnswerBody, Leftover, RequestBody, UNCOUNTED_BYTES};
use self::chunks::Chunks;
use self::connections::{Connections, Memory, Place, Room};
use self::exchange::Framing;
use self::gate::Gate;
use self::refusal::{NOSNIFF, Refusal};

pub use self::forwarded::Trusted;

/// Limits of a client. The default is for production; tests shorten the times.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time. For one more, one ends that only waits.
    pub connections_max: usize,
    /// Connections of one client's address at a time, but for [`Limits::trusted`] proxies.
    pub connections_of_address_max: usize,
    /// Heads that are half sent, of one client's address, but for [`Limits::trusted`] proxies.
    pub heads_of_address_max: usize,
    /// Proxies that are believed about the addresses of their clients.
    pub trusted: Trusted,
    /// From the first moment, or from the end of an answer, to the first byte of the next head.
    pub idle_timeout: Duration,
    /// From the first byte of a head to its end.
    pub header_timeout: Duration,
    /// Headers of a request.
    pub headers_max: usize,
    /// Bytes of a head, and of a connection's buffers. At least 8 KiB.
    pub buffer_bytes_max: usize,
    /// Bytes of a request's path and query.
    pub target_bytes_max: usize,
    /// From the end of the head to the end of the body.
    pub body_timeout: Duration,
    /// How long bytes of an answer wait for a client that does not read.
    pub write_timeout: Duration,
    /// Bytes of an answer that a client takes in a second at least, after that time.
    pub answer_rate_min: u32,
    /// Bytes of bodies that have arrived and answers that wait for their client, of all requests.
    /// For more, connections end that wait for their client.
    pub bytes_max: usize,
    /// The same of one client's address, but for [`Limits::trusted`] proxies.
    pub bytes_of_address_max: usize,
    /// How long a client that is still sending gets to see the answer before the connection ends.
    pub linger_timeout: Duration,
    /// Between two tries to accept when the system has nothing left to accept with.
    pub accept_pause: Duration,
    /// From the end of accepting to the closing of idle connections.
    pub settle_time: Duration,
    /// From then to the end of heads that are half sent.
    pub half_head_drain_timeout: Duration,
    /// From then to the end of the last request.
    pub drain_timeout: Duration,
}

/// A connection costs some 40 kB with both buffers in use: this many stay below 200 MB.
const CONNECTIONS_MAX: usize = 4_096;

/// One client has a quarter of all; behind a proxy that was not named, all clients are one.
pub const CONNECTIONS_OF_ADDRESS_MAX: usize = 1_024;

/// Honest heads arrive in one piece, or in two with a moment between.
pub const HEADS_OF_ADDRESS_MAX: usize = 64;

/// Above the usual 60 s of load balancers, so that it is they who close a connection that they may
/// be about to use.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// A head takes one round trip; ten seconds are patient even over a bad radio link.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Browsers behind two proxies send about thirty.
const HEADERS_MAX: usize = 64;

/// The longest honest head has a long target and a few cookies and trace headers.
const BUFFER_BYTES_MAX: usize = 32 * 1024;

/// The longest list filter with its cursor stays far below this.
const TARGET_BYTES_MAX: usize = 8 * 1024;

/// A megabyte, which no body may pass but an upload, in this time needs half a megabit a second.
const BODY_TIMEOUT: Duration = Duration::from_secs(15);

/// The kernel's buffers hold an ordinary answer: only the reading of the largest can stall at all.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// A bad radio link takes as much. The largest file of ours takes two minutes with it.
const ANSWER_RATE_MIN: u32 = 32 * 1024;

/// Thirty of the largest uploads at once, and a small part of the memory of any server.
const BYTES_MAX: usize = 128 * 1024 * 1024;

/// Seven of the largest uploads at once, or a hundred of the largest pages of a list.
const BYTES_OF_ADDRESS_MAX: usize = 32 * 1024 * 1024;

/// An answer such as 413 is sent while the client still sends. Closing at once would reset the
/// connection, and the reset may overtake the answer.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// The unread rest of a body is taken up to this size, so that its connection serves the
/// next request: as much as the largest body of JSON.
const UNREAD_BYTES_MAX: usize = 256 * 1024;

/// An answer waits as long for the rest of a body on its way: a few round trips.
const UNREAD_TIMEOUT: Duration = Duration::from_millis(500);

/// A client that is turned away gets as long to see why.
const TURN_AWAY_TIMEOUT: Duration = Duration::from_millis(100);

/// Connections beyond the limit, while others end or are turned away.
const SPARE_MAX: usize = 64;

/// Short enough to go unnoticed, long enough not to keep a core busy.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection accepted a moment ago may have its request on the way: hyper would close it without
/// an answer, as it looks idle.
const SETTLE_TIME: Duration = Duration::from_millis(50);

/// A head that was begun before the stop is there after a round trip. With the time to linger, half
/// heads hold a stop for two seconds.
const HALF_HEAD_DRAIN_TIMEOUT: Duration = Duration::from_millis(900);

/// Service managers kill after 30 s; ten are left to the other parts of the process, which take
/// eight at most ([`crate::serve`], [`crate::wiring::close`]).
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            connections_of_address_max: CONNECTIONS_OF_ADDRESS_MAX,
            heads_of_address_max: HEADS_OF_ADDRESS_MAX,
            trusted: Trusted::default(),
            idle_timeout: IDLE_TIMEOUT,
            header_timeout: HEADER_TIMEOUT,
            headers_max: HEADERS_MAX,
            buffer_bytes_max: BUFFER_BYTES_MAX,
            target_bytes_max: TARGET_BYTES_MAX,
            body_timeout: BODY_TIMEOUT,
            write_timeout: WRITE_TIMEOUT,
            answer_rate_min: ANSWER_RATE_MIN,
            bytes_max: BYTES_MAX,
            bytes_of_address_max: BYTES_OF_ADDRESS_MAX,
            linger_timeout: LINGER_TIMEOUT,
            accept_pause: ACCEPT_PAUSE,
            settle_time: SETTLE_TIME,
            half_head_drain_timeout: HALF_HEAD_DRAIN_TIMEOUT,
            drain_timeout: DRAIN_TIMEOUT,
        }
    }
}

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still busy when the time was up, and were cut off.
    pub abandoned: usize,
}

/// Serves `router` until `shutdown` is cancelled and what had begun has ended, or
/// [`Limits::drain_timeout`] is over.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    shutdown: CancellationToken,
) -> Drained {
    let connections = TaskTracker::new();
    let room = Room {
        connections_max: limits.connections_max,
        of_address_max: limits.connections_of_address_max.min(limits.connections_max),
        heads_of_address_max: limits.heads_of_address_max,
        bytes_max: limits.bytes_max,
        bytes_of_address_max: limits.bytes_of_address_max,
    };
    let edge = Arc::new(Edge {
        http: http(&limits),
        connections: Connections::new(room),
        // Resolves the routes once instead of once a request.
        router: router.with_state(()),
        limits,
        drain: CancellationToken::new(),
        heads_over: CancellationToken::new(),
        abandon: CancellationToken::new(),
    });

    if let Err(error) = buffers::bound(&listener) {
        tracing::warn!(%error, "the send buffers of connections have the system's size");
    }
    accept(listener, &edge, &connections, &shutdown).await;

    // The listener is gone: from here on the system refuses connections.
    timer(edge.limits.settle_time).await;
    edge.drain.cancel();
    connections.close();
    let end_half_heads = async {
        timer(edge.limits.half_head_drain_timeout).await;
        edge.heads_over.cancel();
        std::future::pending().await
    };
    let drained = async {
        tokio::select! {
            () = connections.wait() => {}
            () = end_half_heads => {}
        }
    };
    if timeout(edge.limits.drain_timeout, drained).await.is_ok() {
        return Drained { abandoned: 0 };
    }
    let abandoned = connections.len();
    tracing::warn!(abandoned, "connections were still busy when the time to drain was over");
    edge.abandon.cancel();
    Drained { abandoned }
}

/// State that all connections share.
struct Edge {
    http: http1::Builder,
    router: Router,
    limits: Limits,
    connections: Arc<Connections>,
    /// Cancelled when connections should end after the request they are at.
    drain: CancellationToken,
    /// Cancelled when requests whose head is half sent are waited for no longer.
    heads_over: CancellationToken,
    /// Cancelled when connections should end at once.
    abandon: CancellationToken,
}

fn http(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    // The gate has the time of a head.
    http.header_read_timeout(None)
        .max_headers(limits.headers_max)
        .max_buf_size(limits.buffer_bytes_max);
    http
}

/// Accepts until `shutdown`.
async fn accept(
    listener: TcpListener,
    edge: &Arc<Edge>,
    connections: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let connections_max = edge.limits.connections_max;
    let spare = (connections_max / 16).clamp(1, SPARE_MAX);
    let slots = Arc::new(Semaphore::new(connections_max + spare));
    let mut failing = false;
    loop {
        // The slot comes first: those that are about to end have theirs for a moment.
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            accepted = accept_one(&listener, &slots) => accepted,
        };
        match accepted {
            Ok((stream, peer, slot)) => {
                if std::mem::take(&mut failing) {
                    tracing::info!("accepting connections again");
                }
                let is_trusted = edge.limits.trusted.contains(peer.ip());
                match edge.connections.admit(peer.ip().into(), is_trusted) {
                    Some(place) => {
                        let edge = Arc::clone(edge);
                        connections.spawn(serve_connection(edge, stream, peer, place, slot));
                    }
                    None => {
                        metrics::counter!("switchyard_connections_refused_total").increment(1);
                        connections.spawn(turn_away(stream, slot));
                    }
                }
            }
            Err(error) if is_clients_fault(&error) => {}
            Err(error) => {
                metrics::counter!("switchyard_accept_errors_total").increment(1);
                edge.connections.make_room();
                // Once per shortage: it lasts as long as clients hold what is missing.
                if !std::mem::replace(&mut failing, true) {
                    tracing::error!(%error, "cannot accept connections, trying again");
                }
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    () = timer(edge.limits.accept_pause) => {}
                }
            }
        }
    }
}

async fn accept_one(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.expect("nothing closes the semaphore");
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, slot))
}

/// The client left before it was served; nothing is wrong here.
fn is_clients_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Says why there is no room, to a client whose request will not be read.
async fn turn_away(mut stream: TcpStream, slot: OwnedSemaphorePermit) {
    let message = "this server has as many connections as it can serve: try again";
    let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message).into_bytes();
    let said = async {
        stream.writable().await?;
        stream.try_write(&refusal)?;
        poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await?;
        // Closing with bytes unread would take the answer back.
        let mut chunk = [0; 1024];
        loop {
            stream.readable().await?;
            match stream.try_read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    };
    // A client that is gone, or goes on, has had its answer.
    let _: Result<io::Result<()>, _> = timeout(TURN_AWAY_TIMEOUT, said).await;
    drop(slot);
}

async fn serve_connection(
    edge: Arc<Edge>,
    stream: TcpStream,
    peer: SocketAddr,
    place: Place,
    slot: OwnedSemaphorePermit,
) {
    let _open = Open::count();
    // Answers are written whole, so waiting for more to send with them only delays them. A socket
    // that refuses is about to fail anyway.
    let _ = stream.set_nodelay(true);
    let exchange = Arc::clone(&place.exchange);
    let memory = place.memory();
    let stream = Gate::new(stream, place, &edge.limits);
    let service = service_fn(|request: Request<Incoming>| {
        // Now, and not when the answer is first waited for: the gate must know at once.
        exchange.begin(framing_of(request.body()));
        answer(Arc::clone(&edge), request, peer, memory.clone())
    });
    let mut connection = pin!(edge.http.serve_connection(TokioIo::new(stream), service));
    let mut draining = pin!(edge.drain.cancelled());
    let mut heads_over = pin!(edge.heads_over.cancelled());
    let mut drains = false;
    let served = poll_fn(|cx| {
        loop {
            if let Poll::Ready(result) = connection.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            let is_asked = !drains && draining.as_mut().poll(cx).is_ready();
            // A request that has begun is answered, and hyper has seen nothing of it.
            let is_beginning =
                exchange.has_part_of_a_head() && heads_over.as_mut().poll(cx).is_pending();
            if !is_asked || is_beginning {
                return Poll::Pending;
            }
            drains = true;
            connection.as_mut().graceful_shutdown();
        }
    });
    let result = tokio::select! {
        biased;
        () = edge.abandon.cancelled() => return,
        () = exchange.end.cancelled() => return,
        result = served => result,
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "connection ended");
    }
    drop(slot);
}

/// How the end of a body is known; none if there is no body.
fn framing_of(body: &Incoming) -> Option<Framing> {
    if body.is_end_stream() {
        return None;
    }
    match body.size_hint().exact() {
        Some(length) => Some(Framing::Length(length)),
        None => Some(Framing::Chunked(Chunks::new())),
    }
}

/// Counts a connection for as long as it lives, however it ends.
struct Open;

impl Open {
    fn count() -> Self {
        metrics::counter!("switchyard_connections_total").increment(1);
        metrics::gauge!("switchyard_connections_open").increment(1.0);
        Self
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        metrics::gauge!("switchyard_connections_open").decrement(1.0);
    }
}

async fn answer(
    edge: Arc<Edge>,
    request: Request<Incoming>,
    peer: SocketAddr,
    memory: Memory,
) -> Result<Response<AnswerBody>, Infallible> {
    let (mut response, left) = match refuse(&request, &edge.limits) {
        Some(refusal) => (refusal.into_response(), None),
        None => route(&edge, request, peer, &memory).await?,
    };
    if let Some((left, expects)) = left
        && !left.drain(expects, UNREAD_BYTES_MAX, UNREAD_TIMEOUT).await
    {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    complete_allow(&mut response);
    // Its reader has finished with the body.
    memory.release();
    hold_answer(&memory, &response);
    Ok(response.map(|body| AnswerBody::new(body, memory.exchange)))
}

/// Counts the bytes of an answer until it is written. It is sent even if there is no room for it,
/// as its request may have had an effect; it gives way as soon as the client does not take it.
fn hold_answer(memory: &Memory, response: &Response) {
    let is_shared = response.extensions().get::<Shared>().is_some();
    let bytes = response.body().size_hint().lower();
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if !is_shared && bytes > UNCOUNTED_BYTES {
        let _ = memory.hold(bytes);
    }
}

/// Routers name the methods for which they have handlers; OPTIONS goes with all of them.
fn complete_allow(response: &mut Response) {
    let is_about_methods =
        matches!(response.status(), StatusCode::METHOD_NOT_ALLOWED | StatusCode::NO_CONTENT);
    let named = response.headers().get(ALLOW).and_then(|named| named.to_str().ok());
    let Some(named) = named.filter(|_| is_about_methods) else { return };
    let mut names: Vec<_> = named.split(',').map(str::trim).collect();
    names.retain(|name| !name.is_empty());
    if !names.contains(&"OPTIONS") {
        names.push("OPTIONS");
    }
    let names = HeaderValue::try_from(names.join(", "));
    let names = names.expect("names of methods are a header value");
    response.headers_mut().insert(ALLOW, names);
}

/// The router's answer, and where the body of the request is if there was one, with whether the
/// client expects to be asked for it.
async fn route(
    edge: &Edge,
    request: Request<Incoming>,
    peer: SocketAddr,
    memory: &Memory,
) -> Result<(Response, Option<(Leftover, bool)>), Infallible> {
    let expects = request.headers().contains_key(EXPECT);
    let client = edge.limits.trusted.client_of(peer.ip(), request.headers());
    let (parts, body) = request.into_parts();
    let (body, left) = if body.is_end_stream() {
        (Body::empty(), None)
    } else {
        let limit = edge.limits.body_timeout;
        let (body, left) = RequestBody::new(body, memory.clone(), limit);
        (Body::new(body), Some((left, expects)))
    };
    let mut request = Request::from_parts(parts, body);
    request.extensions_mut().insert(ConnectInfo(peer));
    request.extensions_mut().insert(ClientAddress(client));
    let response = edge.router.clone().call(request).await?;
    Ok((response, left))
}

/// The answer to a request that no router should see.
fn refuse(request: &Request<Incoming>, limits: &Limits) -> Option<Refusal> {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if target > limits.target_bytes_max {
        let message = format!(
            "path and query of {target} bytes are more than the {} allowed",
            limits.target_bytes_max
        );
        return Some(Refusal::new(StatusCode::URI_TOO_LONG, message));
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let message = match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host) => return None,
        (Some(_), None) => "the Host header must be a host name with an optional port",
        (Some(_), Some(_)) => "the request has more than one Host header, send one",
        (None, _) if request.version() < Version::HTTP_11 => return None,
        (None, _) => "the request has no Host header, send one",
    };
    Some(Refusal::new(StatusCode::BAD_REQUEST, message))
}

fn is_host(value: &HeaderValue) -> bool {
    Authority::try_from(value.as_bytes()).is_ok_and(|authority| !authority.as_str().contains('@'))
}

#[expect(clippy::disallowed_methods, reason = "the patience with clients is real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the patience with clients is real time")]
fn timer(limit: Duration) -> Sleep {
    tokio::time::sleep(limit)
}

#[expect(clippy::disallowed_methods, reason = "the patience with clients is real time")]
fn timer_until(deadline: Instant) -> Sleep {
    tokio::time::sleep_until(deadline)
}
