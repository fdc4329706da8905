//! Plays those who receive webhooks: an HTTP server that keeps every request, answers as the test
//! says, and can be killed and started again at the same address.
//!
//! It runs on a thread of its own, so a test may block, and a test whose clock stands still is
//! answered. Its memory outlives a kill, as the memory of the test does.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::CONTENT_LENGTH;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::ports;

/// How long a test waits for what must come. Longer than any schedule of ours that runs on real
/// time; what is not there by then will not come.
const COME_WITHIN: Duration = Duration::from_secs(60);

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Received {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The body, byte for byte.
    pub body: Bytes,
    /// When its last byte was there.
    pub at: Instant,
}

impl Received {
    /// The value of a header, whatever the case of its name; empty if it is not there or no text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// How a request is answered.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
    manner: Manner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    AtOnce,
    After(Duration),
    Held,
    BodyHeld,
    Closed,
}

impl Answer {
    /// At once, with this status and an empty body.
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Bytes::new(), manner: Manner::AtOnce }
    }

    /// No answer: the connection is closed as soon as the request is there.
    pub fn closed() -> Self {
        Self { manner: Manner::Closed, ..Self::status(200) }
    }

    /// The same with a header more.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with this body.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// The same, but only so long after the request.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self { manner: Manner::After(time), ..self }
    }

    /// The same, but only when the test [releases](Receiver::release) what is held.
    #[must_use]
    pub fn held(self) -> Self {
        Self { manner: Manner::Held, ..self }
    }

    /// The same, with status and headers at once and the body when the test
    /// [releases](Receiver::release) what is held.
    #[must_use]
    pub fn with_body_held(self) -> Self {
        Self { manner: Manner::BodyHeld, ..self }
    }
}

/// A receiver that runs until it is dropped.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    address: SocketAddr,
    running: Option<Running>,
}

impl Receiver {
    /// A receiver on a free port of the loopback address. It answers 200.
    ///
    /// # Errors
    ///
    /// If no port or thread is to be had.
    pub fn start() -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let shared = Arc::new(Shared::default());
        let running = Some(Running::start(address, &shared)?);
        Ok(Self { shared, address, running })
    }

    /// Where it receives: `http://host:port` and a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Answers every request that comes from now on like this.
    pub fn answer(&self, answer: Answer) {
        self.answer_by(move |_| answer.clone());
    }

    /// Answers every request that comes from now on by a rule.
    pub fn answer_by(&self, rule: impl Fn(&Received) -> Answer + Send + Sync + 'static) {
        self.shared.kept().rule = Rule(Arc::new(rule));
    }

    /// Answers the held requests. Later ones wait for the next release.
    pub fn release(&self) {
        self.shared.released.send_modify(|times| *times += 1);
    }

    /// Kills it: the port refuses, and connections break, those with an answer under way too.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Starts it again at the same address.
    ///
    /// # Errors
    ///
    /// If it was not killed, or the port is not to be had.
    pub fn resume(&mut self) -> Result<()> {
        if self.running.is_some() {
            bail!("the receiver at {} still runs: kill it first", self.address);
        }
        self.running = Some(Running::start(self.address, &self.shared)?);
        Ok(())
    }

    /// Requests that have come and were not [taken](Self::take), oldest first.
    pub fn received(&self) -> Vec<Received> {
        self.shared.kept().requests.clone()
    }

    /// Takes away what has come.
    pub fn take(&self) -> Vec<Received> {
        let mut kept = self.shared.kept();
        self.shared.count.send_replace(0);
        std::mem::take(&mut kept.requests)
    }

    /// How many connections were made to it.
    pub fn connections(&self) -> usize {
        self.shared.kept().connections
    }

    /// Waits until so many requests have come that were not [taken](Self::take), and gives all of
    /// them.
    ///
    /// # Errors
    ///
    /// If they do not come within a minute.
    pub async fn wait_for(&self, count: usize) -> Result<Vec<Received>> {
        let mut counted = self.shared.count.subscribe();
        let enough = counted.wait_for(|come| *come >= count);
        // A borrow from the channel keeps the receiver from counting: it must not outlive
        // this statement, as what comes next waits for the receiver.
        let waited = tokio::time::timeout(COME_WITHIN, enough).await.map(|come| come.map(drop));
        match waited {
            Ok(Ok(())) => Ok(self.received()),
            Ok(Err(_)) | Err(_) => {
                let come = self.shared.kept().requests.len();
                bail!("{come} of {count} requests came within {} s", COME_WITHIN.as_secs())
            }
        }
    }
}

/// The thread of a receiver that is alive; it ends when this is dropped, and is gone then.
#[derive(Debug)]
struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(address: SocketAddr, shared: &Arc<Shared>) -> Result<Self> {
        // It listens when this returns: a client that has the address finds it there.
        let listener = std::net::TcpListener::bind(address).context("opening its port")?;
        listener.set_nonblocking(true).context("opening its port")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("starting the receiver")?;
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("receiver".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, &shared) => {}
                    _ = stopped => {}
                }
            });
        });
        let thread = Some(thread.context("starting the receiver")?);
        Ok(Self { stop: Some(stop), thread })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State that the handle and all connections share.
#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<Kept>,
    /// How many requests are kept.
    count: watch::Sender<usize>,
    /// Goes up with each release.
    released: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    rule: Rule,
    requests: Vec<Received>,
    connections: usize,
}

#[derive(Clone)]
struct Rule(Arc<dyn Fn(&Received) -> Answer + Send + Sync>);

impl Default for Rule {
    fn default() -> Self {
        Self(Arc::new(|_| Answer::status(200)))
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rule(..)")
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, received: Received) {
        let mut kept = self.kept();
        kept.requests.push(received);
        self.count.send_replace(kept.requests.len());
    }
}

async fn serve(listener: std::net::TcpListener, shared: &Arc<Shared>) {
    let listener = TcpListener::from_std(listener).expect("it does not block");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                shared.kept().connections += 1;
                connections.spawn(converse(stream, Arc::clone(shared)));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Answers the requests of one connection until a side closes it.
async fn converse(stream: TcpStream, shared: Arc<Shared>) {
    // An answer is one small packet, which must not wait for a second.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| receive(request, Arc::clone(&shared)));
    // How it ended is the business of the sender.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// Closes the connection.
type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn receive(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Body>, Failure> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let method = head.method.as_str().to_owned();
    let received = Received { method, path, headers: head.headers, body, at: now() };
    let rule = shared.kept().rule.clone();
    let answer = rule.0(&received);
    // Before it is kept: a release that follows a look at what is there must not be missed.
    let released = shared.released.subscribe();
    shared.keep(received);
    answered(answer, released).await
}

async fn answered(
    answer: Answer,
    mut released: watch::Receiver<u64>,
) -> Result<Response<Body>, Failure> {
    let Answer { status, headers, body, manner } = answer;
    let mut response = Response::builder().status(StatusCode::from_u16(status)?);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    match manner {
        Manner::AtOnce => {}
        Manner::After(time) => pause(time).await,
        Manner::Held => release(&mut released).await,
        Manner::BodyHeld => {
            let length = body.len();
            let held = stream::once(async move {
                release(&mut released).await;
                Ok(Frame::data(body))
            });
            let body = StreamBody::new(held).boxed_unsync();
            return Ok(response.header(CONTENT_LENGTH, length).body(body)?);
        }
        Manner::Closed => return Err("the rule has no answer".into()),
    }
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    Ok(response.body(body)?)
}

async fn release(released: &mut watch::Receiver<u64>) {
    // The sender goes only with everything else.
    let _ = released.changed().await;
}

#[expect(clippy::disallowed_methods, reason = "the moments of real requests are measured")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a slow receiver takes real time")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
