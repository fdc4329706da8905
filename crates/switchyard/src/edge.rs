//! The HTTP edge: a TCP listener in front of a router.
//!
//! Guarantees:
//! - A client that is silent, slow, or does not read is cut off, and meanwhile costs the others
//!   nothing. Every wait and every size is in [`Limits`].
//! - Running out of file descriptors pauses accepting and does not end it.
//! - On shutdown, requests that have begun are answered, up to a limit in time.
//! - The router sees requests with one sound `Host` (HTTP/1.0 may leave it out) and a target of
//!   bounded length. Reading a body fails after [`Limits::body_timeout`], with an
//!   [`io::Error`] of the kind [`io::ErrorKind::TimedOut`] as (a source of) the error.
//!
//! Limits: HTTP/1 without TLS; both are for a proxy in front. Each request carries the address of
//! its connection as [`ConnectInfo`]`<SocketAddr>`; behind a proxy that is the proxy's.
//!
//! It never looks into a body, and knows nothing of routes, tokens or money.
//!
//! Why not `axum::serve`: it leaves silent connections open for ever and takes headers of 400 kB.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::response::{IntoResponse as _, Response};
use axum::{BoxError, Router};
use http::header::{CONNECTION, HOST};
use http::uri::Authority;
use http::{HeaderValue, Request, StatusCode, Version};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

/// What a client may use. The default is for production; tests shorten the times.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time; more wait in the queue of the operating system.
    pub connections_max: usize,
    /// From the first moment, or from the end of an answer, to the end of the next head.
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
    /// How long a client that is still sending gets to see the answer before the connection ends.
    pub linger_timeout: Duration,
    /// Between two tries to accept when the system has nothing left to accept with.
    pub accept_pause: Duration,
    /// From the end of accepting to the closing of idle connections.
    pub settle_time: Duration,
    /// From then to the end of the last request.
    pub drain_timeout: Duration,
}

/// A connection costs some 40 kB with both buffers in use: this many stay below 200 MB.
const CONNECTIONS_MAX: usize = 4_096;

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
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// An answer such as 413 is sent while the client still sends. Closing at once would reset the
/// connection, and the reset may overtake the answer.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// What is thrown away while lingering: a few bodies of the largest size that is taken at all.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What is thrown away at a time while lingering.
const LINGER_CHUNK_BYTES: usize = 8 * 1024;

/// Short enough to go unnoticed, long enough not to keep a core busy.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection accepted a moment ago may have its request on the way: hyper would close it without
/// an answer, as it looks idle.
const SETTLE_TIME: Duration = Duration::from_millis(50);

/// Service managers kill after 30 s; ten are left to the other parts of the process, which take
/// eight at most ([`crate::serve`], [`crate::wiring::close`]).
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            header_timeout: HEADER_TIMEOUT,
            headers_max: HEADERS_MAX,
            buffer_bytes_max: BUFFER_BYTES_MAX,
            target_bytes_max: TARGET_BYTES_MAX,
            body_timeout: BODY_TIMEOUT,
            write_timeout: WRITE_TIMEOUT,
            linger_timeout: LINGER_TIMEOUT,
            accept_pause: ACCEPT_PAUSE,
            settle_time: SETTLE_TIME,
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
    let edge = Arc::new(Edge {
        http: http(&limits),
        // Resolves the routes once instead of once a request.
        router: router.with_state(()),
        limits,
        drain: CancellationToken::new(),
        abandon: CancellationToken::new(),
    });

    accept(listener, &edge, &connections, &shutdown).await;

    // The listener is gone: from here on the system refuses connections.
    timer(edge.limits.settle_time).await;
    edge.drain.cancel();
    connections.close();
    if timeout(edge.limits.drain_timeout, connections.wait()).await.is_ok() {
        return Drained { abandoned: 0 };
    }
    let abandoned = connections.len();
    tracing::warn!(abandoned, "connections were still busy when the time to drain was over");
    edge.abandon.cancel();
    Drained { abandoned }
}

/// What all connections share.
struct Edge {
    http: http1::Builder,
    router: Router,
    limits: Limits,
    /// Cancelled when connections should end after the request they are at.
    drain: CancellationToken,
    /// Cancelled when connections should end at once.
    abandon: CancellationToken,
}

fn http(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
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
    let slots = Arc::new(Semaphore::new(edge.limits.connections_max));
    let mut failing = false;
    loop {
        // The slot comes first: without one, the connection waits in the system's queue.
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
                connections.spawn(serve_connection(Arc::clone(edge), stream, peer, slot));
            }
            Err(error) if is_clients_fault(&error) => {}
            Err(error) => {
                metrics::counter!("switchyard_accept_errors_total").increment(1);
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

/// The client was gone before it was its turn; nothing is wrong here.
fn is_clients_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn serve_connection(
    edge: Arc<Edge>,
    stream: TcpStream,
    peer: SocketAddr,
    slot: OwnedSemaphorePermit,
) {
    let _open = Open::count();
    // Answers are written whole, so waiting for more to send with them only delays them. A socket
    // that refuses is about to fail anyway.
    let _ = stream.set_nodelay(true);
    let stream = PatientStream::new(stream, &edge.limits);
    let service = service_fn(|request| answer(Arc::clone(&edge), request, peer));
    let connection = edge.http.serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let result = tokio::select! {
        biased;
        () = edge.abandon.cancelled() => return,
        result = connection.as_mut() => result,
        () = edge.drain.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                () = edge.abandon.cancelled() => return,
                result = connection.as_mut() => result,
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "connection ended");
    }
    drop(slot);
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
) -> Result<Response, Infallible> {
    if let Some(refusal) = refuse(&request, &edge.limits) {
        return Ok(refusal);
    }
    let body_timeout = edge.limits.body_timeout;
    let mut request = request.map(|body| {
        if body.is_end_stream() {
            Body::empty()
        } else {
            Body::new(TimedBody::new(body, body_timeout))
        }
    });
    request.extensions_mut().insert(ConnectInfo(peer));
    edge.router.clone().call(request).await
}

/// The answer to a request that no router should see.
fn refuse(request: &Request<Incoming>, limits: &Limits) -> Option<Response> {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if target > limits.target_bytes_max {
        let message = format!(
            "path and query of {target} bytes are more than the {} allowed",
            limits.target_bytes_max
        );
        return Some(refusal(StatusCode::URI_TOO_LONG, &message));
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let message = match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host) => return None,
        (Some(_), None) => "the Host header must be a host name with an optional port",
        (Some(_), Some(_)) => "the request has more than one Host header, send one",
        (None, _) if request.version() < Version::HTTP_11 => return None,
        (None, _) => "the request has no Host header, send one",
    };
    Some(refusal(StatusCode::BAD_REQUEST, message))
}

fn is_host(value: &HeaderValue) -> bool {
    Authority::try_from(value.as_bytes()).is_ok_and(|authority| !authority.as_str().contains('@'))
}

/// An error in the one shape that all errors have. The connection ends with it, as its two ends may
/// not agree on where the next request starts.
fn refusal(status: StatusCode, message: &str) -> Response {
    let body = serde_json::json!({
        "status": status.as_u16(),
        "code": "INVALID_INPUT",
        "message": message,
    });
    let mut response = (status, axum::Json(body)).into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A request body that must have arrived by a deadline.
struct TimedBody {
    body: Incoming,
    deadline: Instant,
    /// Made when the body first keeps the reader waiting; most never do.
    timer: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    fn new(body: Incoming, limit: Duration) -> Self {
        Self { body, deadline: now() + limit, timer: None }
    }
}

impl hyper::body::Body for TimedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        let deadline = this.deadline;
        let timer = this.timer.get_or_insert_with(|| Box::pin(timer_until(deadline)));
        ready!(timer.as_mut().poll(cx));
        let late =
            io::Error::new(io::ErrorKind::TimedOut, "the request body did not arrive in time");
        Poll::Ready(Some(Err(late.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that gives up on a client that does not read, and that lets a client which is still
/// sending see the answer before it closes.
struct PatientStream {
    stream: TcpStream,
    write_timeout: Duration,
    linger_timeout: Duration,
    /// Runs from the first byte that had to wait until nothing waits any more. It does not start
    /// again when a few bytes get through, or a client could read one byte at a time for ever.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Set once our side is closed.
    lingering: Option<Lingering>,
}

struct Lingering {
    timer: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl PatientStream {
    fn new(stream: TcpStream, limits: &Limits) -> Self {
        Self {
            stream,
            write_timeout: limits.write_timeout,
            linger_timeout: limits.linger_timeout,
            stalled: None,
            lingering: None,
        }
    }

    fn within_time(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            return written;
        }
        let limit = self.write_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(timer(limit)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl AsyncRead for PatientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for PatientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within_time(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.within_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called by hyper when all it had to write is written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stalled = None;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        let limit = this.linger_timeout;
        let lingering = this.lingering.get_or_insert_with(|| Lingering {
            timer: Box::pin(timer(limit)),
            bytes_left: LINGER_BYTES_MAX,
        });
        while lingering.bytes_left > 0 {
            if lingering.timer.as_mut().poll(cx).is_ready() {
                break;
            }
            let mut chunk = [0; LINGER_CHUNK_BYTES];
            let mut buffer = ReadBuf::new(&mut chunk);
            let read = ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buffer));
            let count = buffer.filled().len();
            if read.is_err() || count == 0 {
                break;
            }
            lingering.bytes_left = lingering.bytes_left.saturating_sub(count);
        }
        Poll::Ready(Ok(()))
    }
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
