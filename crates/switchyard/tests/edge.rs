//! The edge against clients that misbehave, over real sockets and in real time.
//!
//! Who is cut off must be cut off some time: upper bounds are generous, so that a slow machine
//! does not fail, and nothing asserts how early something may not happen.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use api::auth::ClientAddress;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use switchyard::edge::{Drained, Limits, serve};
use switchyard::telemetry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Whatever should happen has happened by then, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the router of the tests takes as a body.
const BODY_BYTES_MAX: usize = 1024;

/// Much longer than a body may take, and a client that sends this often is not silent.
const TRICKLE: Duration = Duration::from_millis(50);

/// Times that tests can wait for; what a test does not speak about stays long.
fn limits() -> Limits {
    Limits {
        idle_timeout: Duration::from_millis(300),
        header_timeout: Duration::from_millis(300),
        body_timeout: Duration::from_millis(300),
        write_timeout: Duration::from_millis(300),
        linger_timeout: Duration::from_millis(300),
        bytes_max: usize::MAX,
        bytes_of_address_max: usize::MAX,
        ..Limits::default()
    }
}

/// Times in which a test that does not speak about them is never cut off.
fn patient() -> Limits {
    Limits { idle_timeout: PATIENCE, header_timeout: PATIENCE, body_timeout: PATIENCE, ..limits() }
}

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    /// How many requests have reached `/slow`.
    arrived: Arc<Semaphore>,
    /// Lets requests at `/slow` go on.
    release: Arc<Semaphore>,
    end: JoinHandle<Drained>,
}

async fn start(limits: Limits) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let (arrived, release) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let router = router(Arc::clone(&arrived), Arc::clone(&release));
    let end = tokio::spawn(serve(listener, router, limits, stop.clone()));
    Server { address, stop, arrived, release, end }
}

fn router(arrived: Arc<Semaphore>, release: Arc<Semaphore>) -> Router {
    let slow = || async move {
        arrived.add_permits(1);
        release.acquire().await.unwrap().forget();
        "slow"
    };
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route(
            "/peer",
            get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.ip().to_string() }),
        )
        .route(
            "/client",
            get(|client: axum::Extension<ClientAddress>| async move { client.0.0.to_string() }),
        )
        .route("/unread", post(|| async { StatusCode::UNAUTHORIZED }))
        .route("/slow", get(slow))
        .route("/large", get(|| async { vec![b'x'; 64 * 1024 * 1024] }))
        .route("/length", post(|body: Bytes| async move { body.len().to_string() }))
        .route("/timed", post(|request: Request| timed(request, BODY_BYTES_MAX)))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .route("/kept", post(|request: Request| timed(request, 10 * 1024 * 1024)))
}

/// Answers as the API does: 408 if the reading of the body took too long.
async fn timed(request: Request, bytes_max: usize) -> axum::response::Response {
    match axum::body::to_bytes(request.into_body(), bytes_max).await {
        Ok(body) => body.len().to_string().into_response(),
        Err(error) => {
            let mut source: Option<&dyn std::error::Error> = Some(&error);
            while let Some(error) = source {
                match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                    Some(io::ErrorKind::TimedOut) => {
                        return StatusCode::REQUEST_TIMEOUT.into_response();
                    }
                    Some(io::ErrorKind::InvalidData) => {
                        return StatusCode::BAD_REQUEST.into_response();
                    }
                    Some(io::ErrorKind::ResourceBusy) => {
                        return StatusCode::SERVICE_UNAVAILABLE.into_response();
                    }
                    _ => {}
                }
                source = error.source();
            }
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

struct Client {
    stream: TcpStream,
    /// Received and not yet looked at.
    received: Vec<u8>,
}

impl Client {
    async fn connect(server: &Server) -> Self {
        let stream = soon("connect", TcpStream::connect(server.address)).await.unwrap();
        Self { stream, received: Vec::new() }
    }

    /// Sends; the server may already have closed, which the answer will tell.
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = soon("send", send(&self.stream, bytes.as_ref())).await;
    }

    /// Reads one answer with a `Content-Length`: its status and body.
    async fn answer(&mut self) -> (u16, String) {
        let (status, _, body) = self.whole_answer().await;
        (status, body)
    }

    /// Reads the next answer that is not an interim one, with its headers in small letters.
    async fn whole_answer(&mut self) -> (u16, String, String) {
        loop {
            let answer = self.next_answer().await;
            if answer.0 != 100 {
                return answer;
            }
        }
    }

    async fn next_answer(&mut self) -> (u16, String, String) {
        let head_end = loop {
            if let Some(start) = self.received.windows(4).position(|end| end == b"\r\n\r\n") {
                break start + 4;
            }
            self.receive_more().await;
        };
        let head: Vec<u8> = self.received.drain(..head_end).collect();
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.parse().unwrap());
        while self.received.len() < length {
            self.receive_more().await;
        }
        let body = String::from_utf8(self.received.drain(..length).collect()).unwrap();
        (status, head, body)
    }

    async fn receive_more(&mut self) {
        let count = soon("answer", receive(&self.stream, &mut self.received)).await.unwrap();
        assert!(count > 0, "closed in {:?}", String::from_utf8_lossy(&self.received));
    }

    /// Reads until the server closes.
    async fn rest(mut self) -> String {
        soon("close", receive_all(&self.stream, &mut self.received)).await;
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// Sends `piece` again and again, and reads until the server closes.
    async fn trickle(mut self, piece: &str) -> String {
        let (stream, received) = (&self.stream, &mut self.received);
        let trickle = async {
            let mut clock = clock();
            while send(stream, piece.as_bytes()).await.is_ok() {
                clock.tick().await;
            }
            std::future::pending::<()>().await;
        };
        soon("close", async {
            tokio::select! {
                () = receive_all(stream, received) => {}
                () = trickle => {}
            }
        })
        .await;
        String::from_utf8_lossy(&self.received).into_owned()
    }
}

async fn send(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn receive(stream: &TcpStream, bytes: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        let mut chunk = [0; 16 * 1024];
        match stream.try_read(&mut chunk) {
            Ok(count) => {
                bytes.extend_from_slice(&chunk[..count]);
                return Ok(count);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads until the server closes; a reset is an end as well.
async fn receive_all(stream: &TcpStream, bytes: &mut Vec<u8>) {
    while receive(stream, bytes).await.is_ok_and(|count| count > 0) {}
}

/// One request on a connection of its own, up to the closing of the connection.
async fn exchange(server: &Server, request: impl AsRef<[u8]>) -> String {
    let mut client = Client::connect(server).await;
    client.send(request).await;
    client.rest().await
}

async fn check_healthy(server: &Server) {
    let answer = exchange(server, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello"), "{answer}");
}

async fn stop(server: Server) -> Drained {
    server.stop.cancel();
    soon("stop", server.end).await.unwrap()
}

#[tokio::test]
async fn a_silent_client_is_closed() {
    let server = start(limits()).await;
    assert_eq!(exchange(&server, "").await, "");
    let answer = exchange(&server, "GET / HTTP/1.1\r\nHo").await;
    is_refusal(&answer, 408, "REQUEST_TIMEOUT", "head");
    check_healthy(&server).await;
}

/// An answer of the edge itself: in the shape of all errors, and the end of its connection.
fn is_refusal(answer: &str, status: u16, code: &str, message: &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let head = head.to_lowercase();
    assert!(head.starts_with(&format!("http/1.1 {status} ")), "{answer}");
    for header in [
        "connection: close",
        "content-type: application/json",
        "x-content-type-options: nosniff",
        &format!("content-length: {}", body.len()),
    ] {
        assert!(head.lines().any(|line| line == header), "{header}: {answer}");
    }
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["status"], status, "{answer}");
    assert_eq!(body["code"], code, "{answer}");
    assert!(body["message"].as_str().unwrap().contains(message), "{answer}");
}

#[tokio::test]
async fn an_idle_connection_and_a_head_have_times_of_their_own() {
    let server = start(Limits { idle_timeout: Duration::from_millis(300), ..patient() }).await;
    assert_eq!(exchange(&server, "").await, "");
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n").await;
    let mut clock = clock();
    for _ in 0..20 {
        clock.tick().await;
        client.send("A: b\r\n").await;
    }
    client.send("Host: a\r\n\r\n").await;
    assert_eq!(client.answer().await, (200, "hello".to_owned()));

    let server = start(Limits { header_timeout: Duration::from_millis(300), ..patient() }).await;
    let mut idle = Client::connect(&server).await;
    let mut slow = Client::connect(&server).await;
    slow.send("GET / HTTP/1.1\r\n").await;
    is_refusal(&slow.trickle("A: b\r\n").await, 408, "REQUEST_TIMEOUT", "head");
    idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(idle.answer().await, (200, "hello".to_owned()));
}

#[tokio::test]
async fn a_client_that_trickles_its_head_is_closed() {
    let server = start(limits()).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n").await;
    is_refusal(&client.trickle("A: b\r\n").await, 408, "REQUEST_TIMEOUT", "head");
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_answers() {
    let server = start(limits()).await;
    let answer = exchange(&server, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn a_slow_body_is_ended() {
    let server = start(Limits { header_timeout: PATIENCE, ..limits() }).await;
    let head = "POST /timed HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n";
    let answer = exchange(&server, format!("{head}ab")).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");

    // Sending on does not buy time.
    let mut client = Client::connect(&server).await;
    client.send(head).await;
    let answer = client.trickle("a").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    check_healthy(&server).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let server = start(limits()).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Client::connect(&server).await;
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
        clients.push(client);
    }
    check_healthy(&server).await;
    // The server ends although no client reads, so their connections are gone.
    assert_eq!(stop(server).await, Drained { abandoned: 0 });
    for client in clients {
        assert!(client.rest().await.len() < 64 * 1024 * 1024);
    }
}

/// Reads a little now and then, for far longer than a client may take to begin to read.
async fn sip(client: &mut Client) {
    let (mut clock, mut chunk) = (clock(), vec![0; 128 * 1024]);
    for _ in 0..30 {
        clock.tick().await;
        if let Ok(count) = client.stream.try_read(&mut chunk) {
            client.received.extend_from_slice(&chunk[..count]);
        }
    }
}

#[tokio::test]
async fn a_client_takes_its_answer_at_a_rate() {
    const ALL: usize = 64 * 1024 * 1024;
    let request = "GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for (answer_rate_min, is_whole) in [(64 * 1024, true), (u32::MAX, false)] {
        let server = start(Limits { answer_rate_min, ..limits() }).await;
        let mut client = Client::connect(&server).await;
        client.send(request).await;
        sip(&mut client).await;
        let taken = client.rest().await.len();
        assert_eq!(taken > ALL, is_whole, "{answer_rate_min}: {taken}");
    }
}

#[tokio::test]
async fn answers_that_wait_give_way_when_an_address_has_too_many() {
    const ALL: usize = 64 * 1024 * 1024;
    for at_once in [false, true] {
        // Enough for one of these answers.
        let (of_address, of_all) = if at_once { (10 * ALL, ALL) } else { (ALL, 10 * ALL) };
        let server = start(Limits {
            write_timeout: 10 * PATIENCE,
            bytes_max: of_all,
            bytes_of_address_max: of_address,
            ..patient()
        })
        .await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut client = Client::connect(&server).await;
            client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
            soon("a part", client.receive_more()).await;
            clients.push(client);
        }
        check_healthy(&server).await;
        let last = clients.pop().unwrap();
        for client in clients {
            assert!(client.rest().await.len() < ALL, "it was not cut off");
        }
        drop(last);
        assert_eq!(stop(server).await, Drained { abandoned: 0 });
    }
}

#[tokio::test]
async fn half_bodies_give_way_when_an_address_has_too_many() {
    let server = start(Limits { bytes_of_address_max: 1024 * 1024, ..patient() }).await;
    let upload = |length: usize| {
        let head = format!("POST /kept HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        [head.as_bytes(), &vec![b'x'; 900_000]].concat()
    };
    let mut clock = clock();
    let rest = async {
        loop {
            let mut half = Client::connect(&server).await;
            half.send(upload(1_000_000)).await;
            loop {
                let mut whole = Client::connect(&server).await;
                whole.send(upload(900_000)).await;
                // There is no room until the other one has waited for a while.
                match whole.answer().await {
                    (200, length) => break assert_eq!(length, "900000"),
                    (status, _) => assert_eq!(status, 503),
                }
                clock.tick().await;
            }
            let rest = half.rest().await;
            // The whole one may have been read first, and this one had no room then.
            if !rest.starts_with("HTTP/1.1 503 ") {
                break rest;
            }
        }
    };
    assert_eq!(soon("the whole body", rest).await, "", "the half one was cut off");
}

#[tokio::test]
async fn heads_have_a_size() {
    let server = start(patient()).await;
    let check = async |head: String, status: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{head}\r\n");
        let answer = exchange(&server, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    };
    let headers = |count: usize| (0..count).map(|number| format!("X-{number}: y\r\n")).collect();
    check(headers(62), "200").await;
    check(headers(63), "431").await;
    check(headers(150), "431").await;
    check(format!("X: {}\r\n", "y".repeat(16_000)), "200").await;
    check(format!("X: {}\r\n", "y".repeat(300_000)), "431").await;

    let check = async |length: usize, status: &str| {
        let target = format!("/?{}", "q".repeat(length - 2));
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = exchange(&server, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{length}: {answer}");
    };
    check(8 * 1024, "200").await;
    check(8 * 1024 + 1, "414").await;
}

#[tokio::test]
async fn a_request_whose_end_is_in_doubt_is_refused() {
    let server = start(patient()).await;
    let check = async |headers: &str, status: &str| {
        let request = format!("POST /length HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\nvwxyz");
        let answer = exchange(&server, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}: {answer}");
    };
    check("Connection: close\r\nContent-Length: 5\r\nContent-Length: 5", "200").await;
    check("Content-Length: 5\r\nContent-Length: 3", "400").await;
    check("Content-Length: 5, 3", "400").await;
    check("Content-Length: +5", "400").await;
    check("Content-Length: -1", "400").await;
    check("Transfer-Encoding: gzip", "400").await;
    check("Transfer-Encoding : chunked", "400").await;
    check("Content-Length: 5\r\n folded: yes", "400").await;
    // Chunked decides, the body is broken, and nothing is read as another request.
    check("Content-Length: 5\r\nTransfer-Encoding: chunked", "400").await;
}

#[tokio::test]
async fn a_host_is_required() {
    let server = start(patient()).await;
    let check = async |request: &str, message: &str| {
        let answer = exchange(&server, request).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 "), "{request}: {answer}");
        assert!(head.contains("\r\ncontent-type: application/json"), "{request}: {answer}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["status"], 400);
        assert_eq!(body["code"], "INVALID_INPUT");
        assert!(body["message"].as_str().unwrap().contains(message), "{request}: {answer}");
    };
    check("GET / HTTP/1.1\r\n\r\n", "no Host").await;
    check("GET http://a/ HTTP/1.1\r\n\r\n", "no Host").await;
    check("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "more than one").await;
    check("GET / HTTP/1.1\r\nHost:\r\n\r\n", "must be a host name").await;
    check("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "must be a host name").await;
    check("GET / HTTP/1.1\r\nHost: me@a\r\n\r\n", "must be a host name").await;
    for host in ["a:80", "127.0.0.1:8080", "[::1]:8080", "pay.example.com"] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = exchange(&server, request).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
}

#[tokio::test]
async fn an_oversized_body_is_the_routers_to_answer() {
    let server = start(patient()).await;
    let body = "x".repeat(3_000_000);
    let length = body.len();
    let head = format!("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    let answer = exchange(&server, format!("{head}{body}")).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    check_healthy(&server).await;
}

#[tokio::test]
async fn a_client_that_sends_more_than_is_wanted_is_not_reset() {
    let server = start(Limits { linger_timeout: PATIENCE, ..patient() }).await;
    let mut client = Client::connect(&server).await;
    client.send("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n").await;
    client.send(&[b'x'; 2 * BODY_BYTES_MAX]).await;
    assert_eq!(client.answer().await.0, 413);
    // Many clients send all before they read, and report only that the sending failed, if it does.
    let mut clock = clock();
    for _ in 0..4 {
        clock.tick().await;
        soon("send", send(&client.stream, &[b'x'; 1_000])).await.unwrap();
    }
    drop(client);
    assert_eq!(stop(server).await, Drained { abandoned: 0 });
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let server = start(patient()).await;
    let mut client = Client::connect(&server).await;
    for _ in 0..3 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(client.answer().await, (200, "hello".to_owned()));
        client.send("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").await;
        assert_eq!(client.answer().await, (200, "3".to_owned()));
        client.send("GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(client.answer().await, (404, String::new()));
        client.send("GET /peer HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(client.answer().await, (200, "127.0.0.1".to_owned()));
    }
}

/// Sends a head and then a body some time later, and reads the answer. Tells whether the connection
/// goes on, and fails where it ends unannounced.
async fn early(client: &mut Client, head: &str, body: &[u8], pause: Duration) -> (u16, bool) {
    client.send(head).await;
    if !pause.is_zero() {
        let _ = timeout(pause, std::future::pending::<()>()).await;
    }
    client.send(body).await;
    let (status, headers, _) = client.whole_answer().await;
    (status, !headers.lines().any(|line| line == "connection: close"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_closes_unannounced_after_an_early_answer() {
    const REQUESTS: usize = 40;
    let server = start(patient()).await;
    let body = [b'x'; 300];
    let mut chunked = b"12c\r\n".to_vec();
    chunked.extend([body.as_slice(), b"\r\n0\r\n\r\n"].concat());
    let large = vec![b'x'; 600 * 1024];
    for (what, body) in [
        ("Content-Length: 300", body.as_slice()),
        ("Transfer-Encoding: chunked", &chunked),
        ("Content-Length: 300\r\nExpect: 100-continue", &body),
        (&format!("Content-Length: {}", large.len()), &large),
    ] {
        for millis in [0, 1, 5] {
            let mut client = Client::connect(&server).await;
            let (mut reused, count) = (0, if body.len() > 1_000 { 20 } else { REQUESTS });
            for number in 0..count {
                let path = ["/nothing", "/", "/unread", "/length"][number % 4];
                let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{what}\r\n\r\n");
                let pause = Duration::from_millis(millis);
                let (status, goes_on) = early(&mut client, &head, body, pause).await;
                let of_length = if body.len() > 1_000 { 413 } else { 200 };
                assert_eq!(status, [404, 405, 401, of_length][number % 4], "{what} {path}");
                if goes_on {
                    reused += 1;
                } else {
                    client = Client::connect(&server).await;
                }
            }
            if !what.contains("Expect") && body.len() < 1_000 {
                assert!(reused > 0, "{what}: short bodies are drained");
            }
        }
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_behind_bodies_that_no_one_reads() {
    let server = start(patient()).await;
    let mut client = Client::connect(&server).await;
    let one = "POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let other = "POST /nothing HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                 4\r\nabcd\r\n0\r\n\r\n";
    let last = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(format!("{one}{other}{last}").repeat(20)).await;
    for _ in 0..20 {
        assert_eq!(client.answer().await.0, 401);
        assert_eq!(client.answer().await.0, 404);
        assert_eq!(client.answer().await, (200, "hello".to_owned()));
    }
}

#[tokio::test]
async fn a_line_feed_alone_ends_no_line() {
    let server = start(patient()).await;
    for request in [
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\nHost: a\r\n\r\n",
    ] {
        is_refusal(&exchange(&server, request).await, 400, "INVALID_INPUT", "head");
        // In a later request of a connection, too.
        let first = "POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                     4\r\nabcd\r\n0\r\n\r\n";
        let mut client = Client::connect(&server).await;
        client.send(format!("{first}{request}")).await;
        assert_eq!(client.answer().await, (200, "4".to_owned()));
        is_refusal(&client.rest().await, 400, "INVALID_INPUT", "head");
    }
    // Empty lines before a request are nothing.
    let answer =
        exchange(&server, "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(answer.await.ends_with("hello"));
}

#[tokio::test]
async fn malformed_chunks_are_an_error_of_the_body_and_end_the_connection() {
    let server = start(patient()).await;
    for chunks in [
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabc0\r\n\r\n",
        "x\r\nabc\r\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "3 ;a\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\n\n",
        "3\r\nabc\r\n0\r\nA: b\n\r\n",
    ] {
        for (path, status) in [("/timed", 400), ("/unread", 401), ("/nothing", 404)] {
            let head =
                format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
            let answer = exchange(&server, format!("{head}{chunks}")).await.to_lowercase();
            assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{chunks:?}: {answer}");
            assert!(answer.contains("\r\nconnection: close\r\n"), "{chunks:?}: {answer}");
            assert_eq!(answer.matches("http/1.1 ").count(), 1, "{chunks:?}: {answer}");
        }
    }
}

#[tokio::test]
async fn every_answer_of_the_edge_has_the_shape_of_errors() {
    let server = start(patient()).await;
    let check = async |request: String, status: u16, message: &str| {
        is_refusal(&exchange(&server, request).await, status, "INVALID_INPUT", message);
    };
    let get = "GET / HTTP/1.1\r\nHost: a\r\n";
    check("G@T / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400, "method").await;
    check("GET / HTTP/3.1\r\nHost: a\r\n\r\n".to_owned(), 400, "version").await;
    check("GET / HTTP/1.1\r\nA b\r\n\r\n".to_owned(), 400, "header").await;
    check(format!("{get}Content-Length: x\r\n\r\n"), 400, "Content-Length").await;
    check("\u{16}\u{3}\u{1}".to_owned(), 400, "method").await;
    check(format!("{get}{}\r\n", "A: b\r\n".repeat(100)), 431, "64 headers").await;
    check(format!("{get}X: {}\r\n\r\n", "y".repeat(300_000)), 431, "bytes").await;
    check(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "y".repeat(9_000)), 414, "allowed").await;
    check("GET / HTTP/1.1\r\n\r\n".to_owned(), 400, "Host").await;
    let answer = exchange(&server, format!("{get}Connection: close\r\n\r\n")).await;
    assert!(answer.contains("\r\nx-content-type-options: nosniff\r\n"), "{answer}");
}

#[tokio::test]
async fn a_proxy_that_is_trusted_tells_who_its_client_is() {
    let request = "GET /client HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1, 198.51.100.7\r\n\
                   Connection: close\r\n\r\n";
    let server = start(patient()).await;
    assert!(exchange(&server, request).await.ends_with("\r\n127.0.0.1"));
    let trusted = ["127.0.0.0/8".parse().unwrap()].into_iter().collect();
    let server = start(Limits { trusted, ..patient() }).await;
    assert!(exchange(&server, request).await.ends_with("\r\n198.51.100.7"));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = start(patient()).await;
    let mut client = Client::connect(&server).await;
    let one = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let other = "POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                 4\r\nabcd\r\n0\r\n\r\n";
    client.send(format!("{one}{other}").repeat(20)).await;
    for _ in 0..20 {
        assert_eq!(client.answer().await, (200, "hello".to_owned()));
        assert_eq!(client.answer().await, (200, "4".to_owned()));
    }
}

#[tokio::test]
async fn old_clients_are_served() {
    let server = start(patient()).await;
    let answer = exchange(&server, "GET / HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 200 ") && answer.ends_with("hello"), "{answer}");
    let answer = exchange(&server, "GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
}

#[tokio::test]
async fn a_client_may_wait_until_its_body_is_wanted() {
    let server = start(patient()).await;
    let mut client = Client::connect(&server).await;
    let head = "POST /length HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n";
    client.send(format!("{head}\r\n")).await;
    assert_eq!(client.next_answer().await.0, 100);
    client.send("abc").await;
    assert_eq!(client.answer().await, (200, "3".to_owned()));
}

#[tokio::test]
async fn idle_connections_do_not_stop_a_healthy_one() {
    let server = start(patient()).await;
    let mut idle = Vec::new();
    for number in 0..200 {
        let mut client = Client::connect(&server).await;
        if number % 2 == 0 {
            client.send("GET / HTTP/1.1\r\nHo").await;
        }
        idle.push(client);
    }
    check_healthy(&server).await;
    drop(idle);
}

#[tokio::test]
async fn a_connection_over_the_cap_takes_the_place_of_one_that_waits() {
    let server = start(Limits { connections_max: 2, ..patient() }).await;
    let mut idle = Client::connect(&server).await;
    let mut half = Client::connect(&server).await;
    half.send("GET / HTTP/1.1\r\nHo").await;
    // What was sent before has been seen.
    idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(idle.answer().await.0, 200);
    let mut other = Client::connect(&server).await;
    other.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    soon("arrival", server.arrived.acquire()).await.unwrap().forget();
    assert_eq!(half.rest().await, "", "half a head ends before an idle connection");
    check_healthy(&server).await;
    assert_eq!(idle.rest().await, "", "and that before one that is answered");
    server.release.add_permits(1);
    assert_eq!(other.answer().await, (200, "slow".to_owned()));
    drop(other);
    assert_eq!(stop(server).await, Drained { abandoned: 0 });
}

#[tokio::test]
async fn a_connection_for_which_no_other_can_end_is_refused() {
    let server = start(Limits { connections_max: 2, ..patient() }).await;
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(&server).await;
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
        soon("arrival", server.arrived.acquire()).await.unwrap().forget();
        busy.push(client);
    }
    let answer = exchange(&server, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    is_refusal(&answer, 503, "SERVICE_UNAVAILABLE", "connections");
    assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    server.release.add_permits(2);
    for mut client in busy {
        assert_eq!(client.answer().await, (200, "slow".to_owned()));
    }
}

/// How long one request takes that comes while others hold what they can.
async fn time_of_a_request(server: &Server) -> Duration {
    #[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
    let began = tokio::time::Instant::now();
    check_healthy(server).await;
    began.elapsed()
}

/// More than a client may notice.
const DELAY_MAX: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_very_many_connections_delays_no_other() {
    const SLOTS: usize = 100;
    let pieces = [
        "",
        "GET / HTTP/1.1\r\nHo",
        "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
    ];
    for piece in pieces {
        for limits in [
            Limits { connections_max: SLOTS, ..patient() },
            Limits { heads_of_address_max: 8, connections_of_address_max: 16, ..patient() },
        ] {
            let server = start(limits).await;
            let mut held = Vec::new();
            for _ in 0..3 * SLOTS {
                let mut client = Client::connect(&server).await;
                client.send(piece).await;
                held.push(client);
            }
            // Bodies and readers are slow after a moment.
            let mut clock = clock();
            for _ in 0..8 {
                clock.tick().await;
            }
            let time = time_of_a_request(&server).await;
            assert!(time < DELAY_MAX, "{piece:?}: {time:?}");
            drop(held);
        }
    }
}

#[tokio::test]
async fn an_address_holds_so_many_half_heads() {
    let server = start(Limits { heads_of_address_max: 2, ..patient() }).await;
    let mut half = Vec::new();
    for _ in 0..3 {
        let mut client = Client::connect(&server).await;
        client.send("GET / HTTP/1.1\r\nHo").await;
        check_healthy(&server).await;
        half.push(client);
    }
    let mut half = half.into_iter();
    assert_eq!(half.next().unwrap().rest().await, "", "the oldest is closed");
    for mut client in half {
        client.send("st: a\r\n\r\n").await;
        assert_eq!(client.answer().await, (200, "hello".to_owned()));
    }
}

#[tokio::test]
async fn shutdown_finishes_what_has_begun_and_refuses_what_is_new() {
    let server = start(patient()).await;
    let mut busy = Client::connect(&server).await;
    busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    soon("arrival", server.arrived.acquire()).await.unwrap().forget();
    let mut idle = Client::connect(&server).await;
    idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(idle.answer().await, (200, "hello".to_owned()));

    server.stop.cancel();
    assert_eq!(idle.rest().await, "", "idle connections are closed");
    // The listener was closed before that.
    soon("refusal", TcpStream::connect(server.address)).await.unwrap_err();
    assert!(!server.end.is_finished());

    server.release.add_permits(1);
    let answer = busy.rest().await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("slow"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert_eq!(soon("end", server.end).await.unwrap(), Drained { abandoned: 0 });
}

#[tokio::test]
async fn a_request_just_before_the_shutdown_is_answered() {
    let server = start(Limits { settle_time: PATIENCE / 10, ..patient() }).await;
    let mut client = Client::connect(&server).await;
    // Accepted, as a later connection was served.
    check_healthy(&server).await;
    server.stop.cancel();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.answer().await, (200, "hello".to_owned()));
    drop(client);
    assert_eq!(stop(server).await, Drained { abandoned: 0 });
}

#[tokio::test]
async fn half_heads_hold_a_shutdown_for_a_moment() {
    // A wait for the whole head, or for the end of the drain, takes too long.
    let server = start(Limits { drain_timeout: PATIENCE, ..patient() }).await;
    let mut half = Client::connect(&server).await;
    half.send("GET / HTTP/1.1\r\nHo").await;
    check_healthy(&server).await;
    server.stop.cancel();
    let within = Limits::default().half_head_drain_timeout + Duration::from_secs(2);
    let end = timeout(within, server.end).await.expect("it does not wait for the half head");
    assert_eq!(end.unwrap(), Drained { abandoned: 0 });
    assert_eq!(half.rest().await, "");
}

#[tokio::test]
async fn shutdown_gives_up_on_what_does_not_end() {
    let server = start(Limits { drain_timeout: TRICKLE, ..patient() }).await;
    let mut client = Client::connect(&server).await;
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    soon("arrival", server.arrived.acquire()).await.unwrap().forget();
    assert_eq!(stop(server).await, Drained { abandoned: 1 });
    assert_eq!(client.rest().await, "");
}

/// Tells a copy of this test program which of the two tests below it is.
const ROLE: &str = "SWITCHYARD_TEST_ROLE";

/// This program again, to run the one test `name` with its role.
fn copy_of_this_program(name: &str, before: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    let program = std::env::current_exe().unwrap();
    command.arg("-c").arg(format!("{before} exec \"$0\" \"$@\"")).arg(program);
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(ROLE, name);
    command
}

fn has_role(name: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|role| role == name)
}

#[cfg(unix)]
#[test]
fn a_shortage_of_files_pauses_accepting() {
    let name = "a_shortage_of_files_pauses_accepting";
    if has_role(name) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(use_up_all_files());
    }
    let output = copy_of_this_program(name, "ulimit -n 64;").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(unix)]
async fn use_up_all_files() {
    let _metrics = telemetry::metrics();
    let server = start(patient()).await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    let mut files = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        files.push(file);
        assert!(files.len() < 64, "the limit does not hold");
    }
    // The system takes the connection, but the server has nothing to hold it with.
    let client = soon("connect", socket.connect(server.address)).await.unwrap();
    soon("shortage", async {
        let mut clock = clock();
        while !telemetry::scrape().contains("\nswitchyard_accept_errors_total ") {
            clock.tick().await;
        }
    })
    .await;
    drop(files);
    check_healthy(&server).await;
    drop(client);
    assert_eq!(stop(server).await, Drained { abandoned: 0 });
}

#[cfg(unix)]
#[test]
fn a_second_signal_ends_the_process_at_once() {
    use std::io::{BufRead as _, BufReader};
    let name = "a_second_signal_ends_the_process_at_once";
    if has_role(name) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(async {
            let token = switchyard::shutdown::on_signals().unwrap();
            println!("\nready");
            token.cancelled().await;
            println!("draining");
            std::future::pending::<()>().await;
        });
    }
    let mut child = copy_of_this_program(name, "").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for word in ["ready", "draining"] {
        assert!(lines.any(|line| line.unwrap() == word), "{word}");
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(i32::from(switchyard::config::EXIT_FAILURE)));
}

#[expect(clippy::disallowed_methods, reason = "these clients are slow in real time")]
fn clock() -> tokio::time::Interval {
    tokio::time::interval(TRICKLE)
}
