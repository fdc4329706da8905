//! The binary as HTTP clients meet it, good ones and bad ones, over raw sockets.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::Value;
use tempfile::TempDir;
use testbed::instance::{
    CLIENT_ID, CLIENT_SECRET, Installation, Instance, without_variables, write_script,
};

/// Whatever should happen has happened by then, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const KEY: &str = "abababababababababababababababababababababababababababababababab";

struct Server {
    process: Process,
    _folder: TempDir,
    address: String,
}

enum Process {
    Instance { _instance: Instance },
    Child(Child),
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Self::Child(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Server {
    fn start(variables: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        let mut installation = Installation::new(env!("CARGO_BIN_EXE_switchyard"), &url);
        for (name, value) in variables {
            installation = installation.with(name, value);
        }
        let instance = installation.start().unwrap();
        let address = instance.base().strip_prefix("http://").unwrap().to_owned();
        let process = Process::Instance { _instance: instance };
        let mut server = Self { process, _folder: folder, address };
        server.ready();
        server
    }

    /// One that may have so few files and sockets open.
    fn start_with_files(files: u32) -> Self {
        let folder = TempDir::new().unwrap();
        let binary = folder.path().join("switchyard");
        let program = env!("CARGO_BIN_EXE_switchyard");
        let script = format!("#!/bin/sh\nulimit -n {files}\nexec '{program}' \"$@\"\n");
        write_script(&binary, &script).unwrap();
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        let instance = Installation::new(binary, &url).start().unwrap();
        let address = instance.base().strip_prefix("http://").unwrap().to_owned();
        let process = Process::Instance { _instance: instance };
        let mut server = Self { process, _folder: folder, address };
        server.ready();
        server
    }

    /// One that is there for other machines, with its operator's listener.
    fn start_for_everyone() -> (Self, String) {
        let folder = TempDir::new().unwrap();
        let [port, admin] = [(); 2].map(|()| testbed::ports::free().unwrap());
        let admin = format!("127.0.0.1:{admin}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_switchyard"));
        without_variables(&mut command);
        command.current_dir(folder.path()).env("SWITCHYARD_SECRET_KEY", KEY);
        command.env("SWITCHYARD_CLIENT_ID", CLIENT_ID);
        command.env("SWITCHYARD_CLIENT_SECRET", CLIENT_SECRET);
        command.args(["--listen", &format!("0.0.0.0:{port}"), "--admin-listen", &admin]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let process = Process::Child(command.spawn().unwrap());
        let address = format!("127.0.0.1:{port}");
        let mut server = Self { process, _folder: folder, address };
        server.ready();
        (server, admin)
    }

    #[expect(clippy::disallowed_methods, reason = "the test waits for another process")]
    fn ready(&mut self) {
        for _ in 0..PATIENCE.as_millis() / 20 {
            if let Process::Child(child) = &mut self.process {
                let ended = child.try_wait().unwrap();
                assert!(ended.is_none(), "it has ended before it was ready: {ended:?}");
            }
            if let Ok(stream) = TcpStream::connect(&self.address) {
                let mut connection = Connection::over(stream);
                if connection.ask("GET", "/readyz", &[], b"").status == 200 {
                    return;
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it does not become ready");
    }

    fn connect(&self) -> Connection {
        Connection::over(TcpStream::connect(&self.address).unwrap())
    }
}

/// A connection that is kept.
struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    fn ends_the_connection(&self) -> bool {
        self.headers.get("connection").is_some_and(|value| value == "close")
    }
}

impl Connection {
    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new() }
    }

    fn ask(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        for header in headers {
            request.push_str(header);
            request.push_str("\r\n");
        }
        if !body.is_empty() {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        self.send(request.as_bytes());
        self.send(body);
        self.answer(method == "HEAD")
    }

    fn send(&mut self, bytes: &[u8]) {
        // If the server has closed, the missing answer will tell.
        let _ = self.stream.write_all(bytes);
    }

    fn more(&mut self) -> bool {
        let mut chunk = [0; 16 * 1024];
        let count = self.stream.read(&mut chunk).unwrap_or(0);
        self.received.extend_from_slice(&chunk[..count]);
        count > 0
    }

    fn answer(&mut self, is_head: bool) -> Answer {
        let end = loop {
            if let Some(at) = self.received.windows(4).position(|end| end == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.more(), "closed unannounced: {}", String::from_utf8_lossy(&self.received));
        };
        let head: Vec<u8> = self.received.drain(..end).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: BTreeMap<_, _> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let length: usize = if is_head { 0 } else { length };
        while self.received.len() < length {
            assert!(self.more(), "closed in a body");
        }
        Answer { status, headers, body: self.received.drain(..length).collect() }
    }

    /// Whether the server closes without a byte more.
    fn closes(mut self) -> bool {
        while self.received.is_empty() && self.more() {}
        self.received.is_empty()
    }
}

fn authorization_of(id: &str, secret: &str) -> String {
    let credentials = base64::engine::general_purpose::STANDARD.encode(format!("{id}:{secret}"));
    format!("Authorization: Basic {credentials}")
}

fn authorization() -> String {
    authorization_of(CLIENT_ID, CLIENT_SECRET)
}

fn path(rest: &str) -> String {
    format!("/{}{rest}", api::VERSION)
}

/// A request that is answered before its body is read, and with what status.
struct Early {
    head: String,
    body: Vec<u8>,
    status: u16,
}

fn early_answers() -> Vec<Early> {
    let json = br#"{"customerType":"INDIVIDUAL","platformCustomerId":"x"}"#.to_vec();
    let known = authorization();
    let kind = "Content-Type: application/json";
    let quote = path("/quotes/Quote:00000000-0000-7000-8000-000000000001/execute");
    let early = |method: &str, path: &str, headers: &[&str], body: &[u8], status| {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        for header in headers {
            head.push_str(&format!("{header}\r\n"));
        }
        let is_chunked = headers.iter().any(|header| header.starts_with("Transfer-Encoding"));
        if !is_chunked {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let body = match is_chunked {
            true => [format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n0\r\n\r\n"].concat(),
            false => body.to_vec(),
        };
        Early { head, body, status }
    };
    let customers = path("/customers");
    let chunked = "Transfer-Encoding: chunked";
    vec![
        early("POST", &customers, &[kind], &json, 401),
        early("POST", &customers, &[kind, chunked], &json, 401),
        early("POST", &customers, &[kind, "Authorization: Basic !"], &json, 401),
        early("POST", &customers, &[kind, &known, "Idempotency-Key: "], &json, 400),
        early(
            "POST",
            &customers,
            &[kind, &known, &format!("Idempotency-Key: {}", "k".repeat(300)), chunked],
            &json,
            400,
        ),
        early("POST", &customers, &["Content-Type: text/plain", &known], &json, 415),
        early("POST", &customers, &["Content-Type: text/plain", &known, chunked], &json, 415),
        early("POST", &customers, &[kind, &known], &vec![b' '; 300_000], 413),
        early("POST", &path("/nothing"), &[kind, &known], &json, 404),
        early("PUT", &customers, &[kind, &known], &json, 405),
        early("POST", &quote, &[kind, &known], &json, 404),
        early("GET", &path("/config"), &[kind, &known], &json, 200),
        early("POST", "/healthz", &[kind], &json, 405),
        early("POST", &customers, &[kind, "Expect: 100-continue"], &json, 401),
    ]
}

/// Requests for each pause between head and body.
const REQUESTS: usize = 400;

#[test]
#[expect(clippy::disallowed_methods, reason = "head and body are sent apart in time")]
fn no_connection_closes_unannounced() {
    let server = Server::start(&[]);
    for millis in [0, 1, 5] {
        let mut connection = server.connect();
        let mut closed = 0;
        for early in early_answers().iter().cycle().take(REQUESTS) {
            connection.send(early.head.as_bytes());
            if millis > 0 {
                std::thread::sleep(Duration::from_millis(millis));
            }
            connection.send(&early.body);
            let answer = connection.answer(false);
            assert_eq!(answer.status, early.status, "{}: {answer:?}", early.head);
            if answer.ends_the_connection() {
                closed += 1;
                connection = server.connect();
            }
        }
        // Only those for whose body nothing is known may close: it was not asked for.
        assert!(closed <= 2 * REQUESTS / early_answers().len(), "{closed} with {millis} ms");
    }
}

/// Paths that take GET, with whether they need credentials.
fn get_routes(connection: &mut Connection) -> Vec<(String, bool)> {
    let document = connection.ask("GET", "/openapi.json", &[], b"").json();
    let mut routes = vec![];
    for (template, item) in document["paths"].as_object().unwrap() {
        let filled = template.split('/').map(|part| match part.starts_with('{') {
            true => "Token:00000000-0000-7000-8000-000000000000",
            false => part,
        });
        let filled = filled.collect::<Vec<_>>().join("/");
        // It makes a customer each time.
        if item.get("get").is_some() && !template.contains("kyc-link") {
            routes.push((path(&filled), true));
        }
    }
    assert!(routes.len() > 15, "{routes:?}");
    for path in ["/openapi.json", "/docs", "/healthz", "/readyz", "/nothing", &path("/nothing")] {
        routes.push((path.to_owned(), false));
    }
    routes.extend(["/i/aaaaaaaaaaaaaaaa".to_owned()].map(|path| (path, false)));
    routes
}

#[test]
fn head_answers_as_get_and_options_says_what_is_allowed() {
    let server = Server::start(&[]);
    let mut connection = server.connect();
    let authorization = authorization();
    for (path, needs_credentials) in get_routes(&mut connection) {
        let headers: &[&str] = if needs_credentials { &[&authorization] } else { &[] };
        let mut get = connection.ask("GET", &path, headers, b"");
        let mut head = connection.ask("HEAD", &path, headers, b"");
        assert_eq!(get.status, head.status, "{path}");
        assert!(head.body.is_empty());
        for answer in [&mut get, &mut head] {
            assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
            answer.headers.remove("date");
            answer.headers.remove("x-request-id");
        }
        assert_eq!(get.headers, head.headers, "{path}");
        assert!(head.headers.contains_key("content-length"), "{path}");

        let options = connection.ask("OPTIONS", &path, &[], b"");
        assert_eq!(options.headers["x-content-type-options"], "nosniff", "{path}");
        if path.ends_with("/nothing") {
            assert_eq!(options.status, 404, "{path}");
            continue;
        }
        assert_eq!((options.status, options.body.len()), (204, 0), "{path}: {options:?}");
        let allow: Vec<_> = options.headers["allow"].split(", ").collect();
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert!(allow.contains(&method), "{path}: {allow:?}");
        }
    }
    let metrics = connection.ask("HEAD", "/metrics", &[], b"");
    assert_eq!((metrics.status, metrics.body.len()), (200, 0));
    let metrics = connection.ask("GET", "/metrics", &[], b"");
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let of_head = |line: &&str| line.contains("method=\"HEAD\"") && line.contains("/openapi.json");
    let counted = metrics.lines().filter(of_head);
    assert!(counted.clone().any(|line| line.starts_with("switchyard_http_requests_total")));
    assert_eq!(connection.ask("OPTIONS", "/metrics", &[], b"").status, 204);
}

#[test]
fn what_is_not_http_is_refused_in_the_shape_of_errors() {
    let server = Server::start(&[]);
    let authorization = authorization();
    let customers = path("/customers");
    let head = format!(
        "POST {customers} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         {authorization}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let rotate = head.replace("/customers", "/webhooks/keys/rotate");
    let refused = [
        // The key is not changed: a body that is not needed is read before.
        format!("{rotate}zz\r\n{{}}\r\n0\r\n\r\n"),
        format!("{head}2\n{{}}\r\n0\r\n\r\n"),
        format!("{head}2\r\n{{}}0\r\n\r\n"),
        format!("{head}zz\r\n{{}}\r\n0\r\n\r\n"),
        format!("{head}1\r\n{{}}\r\n0\r\n\r\n"),
        format!("GET {customers} HTTP/1.1\nHost: localhost\n{authorization}\n\n"),
        format!("GET {customers} HTTP/1.1\r\nHost: localhost\n{authorization}\r\n\r\n"),
        format!("GET {customers} HTTP/9\r\nHost: localhost\r\n\r\n"),
        format!("GET {customers} HTTP/1.1\r\nHost: localhost\r\nBad Name: x\r\n\r\n"),
    ];
    for request in refused {
        let mut connection = server.connect();
        connection.send(request.as_bytes());
        let answer = connection.answer(false);
        assert_eq!(answer.status, 400, "{request}: {answer:?}");
        assert!(answer.ends_the_connection(), "{request}: {answer:?}");
        assert_eq!(answer.headers["content-type"], "application/json", "{request}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{request}");
        assert_eq!(answer.json()["code"], "INVALID_INPUT", "{request}");
        assert!(connection.closes(), "{request}");
    }
}

/// More than another client may notice.
const DELAY_MAX: Duration = Duration::from_millis(500);

/// Lets this process have so many files and sockets open, or as many as the system allows.
fn allow_files(wanted: u64) -> usize {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let allowed = wanted.min(hard).max(soft);
    setrlimit(Resource::RLIMIT_NOFILE, allowed, hard).unwrap();
    usize::try_from(allowed).unwrap_or(usize::MAX)
}

/// Holds as many connections as it can, each with `piece` sent, and asks as another client.
#[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
fn check_delay(server: &Server, piece: &str, count: usize) {
    let held: Vec<_> = (0..count)
        .map(|_| {
            let mut connection = server.connect();
            connection.send(piece.as_bytes());
            connection
        })
        .collect();
    // Long enough for a body to be a slow one.
    std::thread::sleep(DELAY_MAX);
    for _ in 0..3 {
        let began = Instant::now();
        let answer = server.connect().ask("GET", "/healthz", &[], b"");
        assert_eq!(answer.status, 200, "{piece:?}: {answer:?}");
        assert!(began.elapsed() < DELAY_MAX, "{piece:?}: {:?}", began.elapsed());
    }
    drop(held);
}

#[test]
fn very_many_half_heads_delay_no_other_client() {
    let count = allow_files(5_000).saturating_sub(200).min(4_225);
    let server = Server::start(&[]);
    check_delay(&server, "GET /healthz HTTP/1.1\r\nHo", count);
    // Without the limit of an address, there is no room for all.
    let server = Server::start(&[("SWITCHYARD_ADDRESS_HEADS_MAX", "100000")]);
    check_delay(&server, "GET /healthz HTTP/1.1\r\nHo", count);
}

#[test]
fn a_client_with_all_descriptors_delays_no_other() {
    let count = allow_files(1_000).saturating_sub(200).min(400);
    let body = format!(
        "POST {} HTTP/1.1\r\nHost: a\r\n{}\r\nContent-Type: application/json\r\n\
         Content-Length: 9\r\n\r\n{{",
        path("/customers"),
        authorization()
    );
    let idle = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
    for piece in ["", "GET /healthz HTTP/1.1\r\nHo", idle, &body] {
        check_delay(&Server::start_with_files(200), piece, count);
    }
}

/// The memory of the server whose operators' listener this is, in bytes.
fn memory_at(admin: &str) -> f64 {
    let mut operators = Connection::over(TcpStream::connect(admin).unwrap());
    let metrics = operators.ask("GET", "/metrics", &[], b"");
    let metrics = String::from_utf8(metrics.body).unwrap();
    let line = metrics.lines().find(|line| line.starts_with("process_resident_memory_bytes "));
    line.unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn clients_that_do_not_read_cost_little_memory() {
    const READERS: usize = 25;
    const SENDERS: usize = 50;
    const COST_MAX: f64 = 100e6;
    let (server, admin) = Server::start_for_everyone();
    let mut connection = server.connect();
    let page = connection.ask("GET", "/docs", &[], b"");
    let page = String::from_utf8(page.body).unwrap();
    let script = page.split('"').find(|text| text.starts_with("/docs/scalar-")).unwrap();
    let paths = [script.to_owned(), "/openapi.json".to_owned()];
    let encodings = ["identity", "gzip", "br"];
    // The shared copies are there afterwards.
    for path in &paths {
        for encoding in encodings {
            let accepted = format!("Accept-Encoding: {encoding}");
            assert_eq!(connection.ask("GET", path, &[&accepted], b"").status, 200, "{path}");
        }
    }
    let before = memory_at(&admin);
    let mut clients = Vec::new();
    for path in &paths {
        for encoding in encodings {
            for number in 0..READERS {
                let mut client = server.connect();
                let method = if number == 0 { "HEAD" } else { "GET" };
                let host = format!("host-{number}.example");
                let head = format!(
                    "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: {encoding}\r\n\r\n"
                );
                client.send(head.repeat(10).as_bytes());
                clients.push(client);
            }
        }
    }
    let authorization = authorization();
    for _ in 0..SENDERS {
        let mut client = server.connect();
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\nContent-Length: 4000000\r\n\
             Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n\
             Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n",
            path("/customers/bulk/csv")
        );
        client.stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        client.send(head.as_bytes());
        client.send(&vec![b'x'; 3_900_000]);
        clients.push(client);
    }
    assert_eq!(connection.ask("GET", "/healthz", &[], b"").status, 200);
    let after = memory_at(&admin);
    println!("{} MB before, {} MB after", before / 1e6, after / 1e6);
    assert!(after - before < COST_MAX, "{before} {after}");
}

#[test]
fn the_operators_endpoints_are_at_their_own_listener() {
    let (server, admin) = Server::start_for_everyone();
    let mut clients = server.connect();
    let mut operators = Connection::over(TcpStream::connect(admin).unwrap());
    for path in ["/metrics", "/peer"] {
        assert_eq!(clients.ask("GET", path, &[], b"").status, 404, "{path}");
        assert_eq!(operators.ask("GET", path, &[], b"").status, 200, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(clients.ask("GET", path, &[], b"").status, 200, "{path}");
        assert_eq!(operators.ask("GET", path, &[], b"").status, 200, "{path}");
    }
    let authorization = authorization();
    let config = path("/config");
    assert_eq!(clients.ask("GET", &config, &[&authorization], b"").status, 200);
    for path in ["/", "/docs", &config] {
        let answer = operators.ask("GET", path, &[&authorization], b"");
        assert_eq!((answer.status, &answer.json()["code"]), (404, &"NOT_FOUND".into()), "{path}");
    }
    // Clients cannot pretend to be servers.
    let forwarded =
        ["Switchyard-Forwarded-By: me", "Switchyard-Forwarded-To: another", &authorization];
    let answer = clients.ask("GET", &config, &forwarded, b"");
    assert_eq!(answer.status, 200);
    assert!(!answer.headers.contains_key("switchyard-carried-out-by"), "{answer:?}");
}

#[test]
fn guessing_is_slowed_for_the_address_that_guesses() {
    let server = Server::start(&[("SWITCHYARD_TRUST_FORWARDED_FROM", "127.0.0.0/8")]);
    let mut connection = server.connect();
    let (right, wrong) = (authorization(), authorization_of(CLIENT_ID, "not-the-secret"));
    let config = path("/config");
    let mut from = |address: &str, authorization: &str| {
        let forwarded = format!("X-Forwarded-For: 10.9.8.7, {address}");
        connection.ask("GET", &config, &[authorization, &forwarded], b"")
    };
    for _ in 0..20 {
        assert_eq!(from("203.0.113.1", &wrong).status, 401);
    }
    for authorization in [&wrong, &right] {
        let answer = from("203.0.113.1", authorization);
        assert_eq!(answer.status, 429, "{answer:?}");
        assert_eq!(answer.json()["code"], "RATE_LIMITED");
        let wait: u64 = answer.headers["retry-after"].parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
    }
    assert_eq!(from("203.0.113.2", &right).status, 200);
}
