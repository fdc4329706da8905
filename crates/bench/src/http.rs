//! An HTTP/1.1 client that costs next to nothing, because it runs on the cores of the server that
//! it measures: requests are bytes that were prepared before, and of an answer it reads the status
//! and the length of the body.
//!
//! Limits: one request at a time on a connection, bodies with a `Content-Length` only, as this
//! server sends them. An answer that it does not understand is an error and never a measurement.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Headers of an answer: the server sends about six.
const HEADERS_MAX: usize = 32;

/// Where reading starts; larger answers make the buffer grow.
const BUFFER_BYTES: usize = 16 * 1024;

/// An answer.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The bytes of the body.
    pub body: &'a [u8],
}

impl Answer<'_> {
    /// Whether the server did what it was asked to do.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as text, for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.body).into_owned()
    }
}

/// Where the parts of a complete answer are in what was received.
struct Parts {
    status: u16,
    body_starts: usize,
    body_ends: usize,
}

/// Looks for a complete answer at the start of `received`; none if more has to come.
fn parse(received: &[u8]) -> Result<Option<Parts>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(body_starts) = head.parse(received)? else { return Ok(None) };
    let length = head.headers.iter().find(|it| it.name.eq_ignore_ascii_case("content-length"));
    let length = length.context("an answer without Content-Length")?;
    let length: usize = str::from_utf8(length.value)?.trim().parse()?;
    let status = head.code.context("an answer without status")?;
    let body_ends = body_starts + length;
    ensure!(received.len() <= body_ends, "more bytes than one answer has");
    Ok((received.len() == body_ends).then_some(Parts { status, body_starts, body_ends }))
}

/// Bytes that were received and belong to one answer.
struct Received {
    bytes: Vec<u8>,
    count: usize,
}

impl Received {
    fn new() -> Self {
        Self { bytes: vec![0; BUFFER_BYTES], count: 0 }
    }

    /// Where the next bytes go; there is always room.
    fn free(&mut self) -> &mut [u8] {
        if self.count == self.bytes.len() {
            self.bytes.resize(self.count * 2, 0);
        }
        &mut self.bytes[self.count..]
    }

    fn add(&mut self, count: usize) -> Result<Option<Parts>> {
        if count == 0 {
            bail!("the server closed the connection before it answered");
        }
        self.count += count;
        parse(&self.bytes[..self.count])
    }

    fn answer(&self, parts: &Parts) -> Answer<'_> {
        Answer { status: parts.status, body: &self.bytes[parts.body_starts..parts.body_ends] }
    }
}

/// A connection that is kept open from request to request.
pub struct Connection {
    stream: tokio::net::TcpStream,
    received: Received,
}

impl Connection {
    /// Connects to a server.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let stream = tokio::net::TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Received::new() })
    }

    /// Sends a request and waits for its answer.
    pub async fn ask(&mut self, request: &[u8]) -> Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.received.count = 0;
        let parts = loop {
            let count = self.stream.read(self.received.free()).await?;
            if let Some(parts) = self.received.add(count)? {
                break parts;
            }
        };
        Ok(self.received.answer(&parts))
    }
}

/// How requests of one token begin.
#[derive(Debug, Clone)]
pub struct Heads {
    authorization: String,
}

impl Heads {
    /// For a token.
    pub fn new(client_id: &str, client_secret: &str) -> Self {
        let both = format!("{client_id}:{client_secret}");
        let encoded = base64::engine::general_purpose::STANDARD.encode(both);
        Self { authorization: format!("Basic {encoded}") }
    }

    /// A whole request without a body. The path is the one below the API's version.
    pub fn get(&self, path: &str) -> Vec<u8> {
        let Self { authorization } = self;
        let line = format!("GET /{}{path} HTTP/1.1\r\n", api::VERSION);
        format!("{line}Host: localhost\r\nAuthorization: {authorization}\r\n\r\n").into_bytes()
    }

    /// The start of a request with a JSON body; [`finish`] makes it whole.
    pub fn post(&self, path: &str) -> Vec<u8> {
        self.with_body("POST", path)
    }

    fn with_body(&self, method: &str, path: &str) -> Vec<u8> {
        let Self { authorization } = self;
        let line = format!("{method} /{}{path} HTTP/1.1\r\n", api::VERSION);
        let kind = "Content-Type: application/json";
        format!("{line}Host: localhost\r\nAuthorization: {authorization}\r\n{kind}\r\n")
            .into_bytes()
    }
}

/// Appends the idempotency key, the length and the body to a head of [`Heads::post`].
pub fn finish(request: &mut Vec<u8>, key: &[u8], body: &[u8]) {
    request.extend_from_slice(b"Idempotency-Key: ");
    request.extend_from_slice(key);
    write!(request, "\r\nContent-Length: {}\r\n\r\n", body.len())
        .expect("writing to memory cannot fail");
    request.extend_from_slice(body);
}

/// A client that waits for its answers, for what is done before and after a measurement.
pub struct Client {
    address: SocketAddr,
    heads: Heads,
    connection: Option<std::net::TcpStream>,
}

impl Client {
    /// A client of a server.
    pub fn new(address: SocketAddr, heads: Heads) -> Self {
        Self { address, heads, connection: None }
    }

    /// The JSON at a path of the API; any status but a 2xx is an error.
    pub fn get(&mut self, path: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&self.fetch(path)?)?)
    }

    /// The bytes at a path of the API; any status but a 2xx is an error.
    pub fn fetch(&mut self, path: &str) -> Result<Vec<u8>> {
        let request = self.heads.get(path);
        let (status, body) = self.ask(&request).with_context(|| format!("GET {path}"))?;
        let answer = Answer { status, body: &body };
        ensure!(answer.is_success(), "GET {path}: {status} {}", answer.text());
        Ok(body)
    }

    /// Posts JSON under an idempotency key, and gives the JSON of the answer. Any status but a 2xx
    /// is an error.
    pub fn post(&mut self, path: &str, key: &str, body: &Value) -> Result<Value> {
        self.change("POST", path, key, body)
    }

    /// The same with a PATCH.
    pub fn patch(&mut self, path: &str, key: &str, body: &Value) -> Result<Value> {
        self.change("PATCH", path, key, body)
    }

    fn change(&mut self, method: &str, path: &str, key: &str, body: &Value) -> Result<Value> {
        let mut request = self.heads.with_body(method, path);
        finish(&mut request, key.as_bytes(), body.to_string().as_bytes());
        let (status, body) = self.ask(&request).with_context(|| format!("{method} {path}"))?;
        let answer = Answer { status, body: &body };
        ensure!(answer.is_success(), "{method} {path}: {status} {}", answer.text());
        Ok(serde_json::from_slice(&body)?)
    }

    /// Sends a whole request. A connection that the server has closed meanwhile is opened again.
    pub fn ask(&mut self, request: &[u8]) -> Result<(u16, Vec<u8>)> {
        if let Some(mut stream) = self.connection.take()
            && let Ok(answer) = ask(&mut stream, request)
        {
            self.connection = Some(stream);
            return Ok(answer);
        }
        let mut stream = std::net::TcpStream::connect(self.address)?;
        let answer = ask(&mut stream, request)?;
        self.connection = Some(stream);
        Ok(answer)
    }
}

fn ask(stream: &mut std::net::TcpStream, request: &[u8]) -> Result<(u16, Vec<u8>)> {
    stream.write_all(request)?;
    let mut received = Received::new();
    loop {
        let count = stream.read(received.free())?;
        if let Some(parts) = received.add(count)? {
            return Ok((parts.status, received.answer(&parts).body.to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_once_it_is_complete() {
        let whole = b"HTTP/1.1 201 Created\r\ncontent-length: 3\r\n\r\nabc";
        for end in 0..whole.len() {
            let parts = parse(&whole[..end]).expect("a start is no mistake");
            assert!(parts.is_none(), "{end} bytes of {}", whole.len());
        }
        let parts = parse(whole).expect("an answer").expect("a complete one");
        assert_eq!(parts.status, 201);
        assert_eq!(&whole[parts.body_starts..parts.body_ends], b"abc");
    }

    #[test]
    fn what_cannot_be_measured_is_an_error() {
        for wrong in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab",
            "SSH-2.0-OpenSSH\r\n",
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
