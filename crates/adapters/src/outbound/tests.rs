use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Long enough for anything on this machine.
const WITHIN: Duration = Duration::from_secs(20);

fn request(url: &str, reach: Reach) -> OutboundRequest {
    let headers = vec![("content-type", "application/json".to_owned())];
    OutboundRequest { url: url.to_owned(), reach, headers, body: b"{}".to_vec(), within: WITHIN }
}

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

/// Reads a request to its end, which is that of its body `{}`.
async fn read(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"{}") {
        let mut part = [0; 1_024];
        let count = stream.read(&mut part).await.expect("a read");
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&part[..count]);
    }
    String::from_utf8(bytes).expect("text")
}

/// Everything that must not be reached from a live platform (reliability 4.6). Where the port
/// matters, a listener stands on it.
fn probes(port: u16) -> Vec<String> {
    let hosts = [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "0.1.2.3",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "[fd00::1]",
        "[fe80::1]",
        "[febf::1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::1]",
        "[2002:7f00:1::]",
        "[100::1]",
        "[2001:db8::1]",
        "[3fff::1]",
        "[5f00::1]",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "2130706433",
        "0177.0.0.1",
        "0x7f.1",
        "127.1",
        "localhost",
        "localhost.",
        "LOCALHOST",
        "good@127.0.0.1",
        "127。0。0。1",
        "[fe80::1%25lo]",
        "127.0.0.1.",
    ];
    let mut all = Vec::new();
    for host in hosts {
        all.push(format!("https://{host}/"));
        all.push(format!("https://{host}:8443/"));
        all.push(format!("https://{host}:{port}/"));
        all.push(format!("http://{host}:{port}/"));
    }
    let schemes = ["unix:///run/x", "file:///etc/hosts", "gopher://127.0.0.1/", "ftp://127.0.0.1/"];
    all.extend(schemes.map(str::to_owned));
    all.extend([
        format!("https://good#@127.0.0.1:{port}/"),
        format!("https:\\\\127.0.0.1:{port}\\"),
        format!("//127.0.0.1:{port}/"),
        "https://".to_owned(),
        "nonsense".to_owned(),
        "http://example.com/".to_owned(),
        "https://example.com:22/".to_owned(),
    ]);
    all
}

#[tokio::test]
async fn no_probe_of_a_live_platform_opens_a_connection() {
    let (listener, port) = listener().await;
    let client = GuardedClient::default();
    for probe in probes(port) {
        let answer = client.post(request(&probe, Reach::Public)).await;
        // A name that this system's resolver does not have is not reached either.
        let is_refused = matches!(answer, Err(OutboundFailure::Refused(_)));
        let is_name = probe.contains("localhost.") || probe.contains("good#");
        assert!(is_refused || (is_name && answer.is_err()), "{probe}: {answer:?}");
    }
    // Whoever had connected would be waiting.
    let waiting = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
    assert!(waiting.is_err(), "{waiting:?} has connected");
}

#[tokio::test]
async fn a_platform_without_real_money_reaches_this_machine_and_no_network_beside_it() {
    let client = GuardedClient::default();
    for host in ["10.0.0.1", "192.168.0.1", "169.254.169.254", "[fe80::1]", "[fd00::1]", "0.0.0.0"]
    {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}/");
            let answer = client.post(request(&url, Reach::Loopback)).await;
            assert!(matches!(answer, Err(OutboundFailure::Refused(_))), "{url}: {answer:?}");
        }
    }
    let (listener, port) = listener().await;
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{port}/hook?a=b");
        let serve = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let text = read(&mut stream).await;
            let answer = "HTTP/1.1 418 X\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
            stream.write_all(answer.as_bytes()).await.expect("written");
            text
        };
        let (answer, seen) = tokio::join!(client.post(request(&url, Reach::Loopback)), serve);
        let answer = answer.expect("an answer");
        assert_eq!(answer, OutboundAnswer { status: 418, body: b"hello".to_vec() });
        assert!(seen.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{seen}");
        assert!(seen.contains("content-type: application/json\r\n"), "{seen}");
        assert!(seen.contains("user-agent: switchyard/"), "{seen}");
    }
}

#[tokio::test]
async fn no_redirect_is_followed_and_a_long_answer_is_cut() {
    let client = GuardedClient::default();
    let (elsewhere, other_port) = listener().await;
    let (listener, port) = listener().await;
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        read(&mut stream).await;
        let body = "x".repeat(10 * ANSWER_MAX);
        let head = format!(
            "HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:{other_port}/\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let answer = head + &body;
        // Who has seen enough may close before all is written.
        let _ = stream.write_all(answer.as_bytes()).await;
    };
    let url = format!("http://127.0.0.1:{port}/");
    let (answer, ()) = tokio::join!(client.post(request(&url, Reach::Loopback)), serve);
    let answer = answer.expect("an answer");
    assert_eq!((answer.status, answer.body.len()), (307, ANSWER_MAX));
    let waiting = tokio::time::timeout(Duration::ZERO, elsewhere.accept()).await;
    assert!(waiting.is_err(), "the redirect was followed");
}

#[tokio::test]
async fn who_does_not_answer_or_is_not_there_is_told_apart() {
    let client = GuardedClient::default();
    let (silent, port) = listener().await;
    let url = format!("http://127.0.0.1:{port}/");
    let hurried =
        OutboundRequest { within: Duration::from_millis(50), ..request(&url, Reach::Loopback) };
    assert_eq!(client.post(hurried).await, Err(OutboundFailure::TimedOut));
    drop(silent);
    let answer = client.post(request(&url, Reach::Loopback)).await;
    assert_eq!(answer, Err(OutboundFailure::Unreachable));
}
