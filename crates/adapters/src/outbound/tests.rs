use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use futures_util::future::join_all;
use testbed::receiver::{Answer, Receiver};

use ports::outbound::{Method, Reach};

use super::*;

/// Long enough for anything on this machine.
const WITHIN: Duration = Duration::from_secs(20);

fn request(url: &str, reach: Reach) -> OutboundRequest {
    let headers = vec![("content-type", "application/json".to_owned())];
    let (method, url, body) = (Method::Post, url.to_owned(), b"{}".to_vec());
    OutboundRequest { method, url, reach, headers, body, within: WITHIN }
}

/// Asks a receiver on this machine.
async fn ask(client: &GuardedClient, url: &str) -> Result<OutboundAnswer, OutboundFailure> {
    client.send(request(url, Reach::Private)).await
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
        "[100:0:0:1::1]",
        "[2001::7f00:1]",
        "[2001:1::1]",
        "[2001:4:112::1]",
        "[2001:20::1]",
        "[2001:1ff::1]",
        "[2002:808:808::1]",
        "[2620:4f:8000::1]",
        "[64:ff9b::808:808]",
        "[::8.8.8.8]",
        "[::ffff:8.8.8.8]",
        "[::ffff:0:8.8.8.8]",
        "[fec0::1]",
        "[ff02::1]",
        "168.63.129.16",
        "192.0.0.1",
        "192.0.0.192",
        "192.0.2.1",
        "192.31.196.1",
        "192.52.193.1",
        "192.88.99.1",
        "192.175.48.1",
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
    let receiver = Receiver::start().expect("a receiver");
    let port = Url::parse(&receiver.url("/")).expect("a URL").port().expect("a port");
    let client = GuardedClient::default();
    for probe in probes(port) {
        let answer = client.send(request(&probe, Reach::Public)).await;
        // A name that this system's resolver does not have is not reached either.
        let is_refused = matches!(answer, Err(OutboundFailure::Refused(_)));
        let is_name = probe.contains("localhost.") || probe.contains("good#");
        assert!(is_refused || (is_name && answer.is_err()), "{probe}: {answer:?}");
    }
    // An earlier connection would be in the queue before this one.
    ask(&client, &receiver.url("/")).await.expect("an answer");
    assert_eq!(receiver.connections(), 1);
}

/// A network that no operator means when private addresses are allowed.
const NEVER: [&str; 14] = [
    "169.254.169.254",
    "168.63.129.16",
    "192.0.0.192",
    "[fd00:c1::a9fe:a9fe]",
    "[fd00:42::42]",
    "[fd20:ce::254]",
    "[2001::7f00:1]",
    "100.64.0.1",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "[::ffff:10.0.0.1]",
    "[64:ff9b::a00:1]",
    "0.0.0.0",
    "255.255.255.255",
];

#[tokio::test]
async fn a_platform_without_real_money_reaches_this_machine_and_private_networks_alone() {
    let client = GuardedClient::default();
    for host in NEVER {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}/");
            let answer = ask(&client, &url).await;
            assert!(matches!(answer, Err(OutboundFailure::Refused(_))), "{url}: {answer:?}");
        }
    }
    let way = |url: &str| {
        check_url(&Url::parse(url).expect("a URL"), Reach::Private).map_err(|no| no.to_string())
    };
    for host in ["10.1.2.3", "172.31.0.1", "192.168.0.1", "[fd12::1]", "127.0.0.1", "[::1]"] {
        assert_eq!(way(&format!("http://{host}:3000/hook")), Ok(Way::Plain), "{host}");
        assert_eq!(way(&format!("https://{host}:3000/hook")), Ok(Way::Any), "{host}");
    }
    assert!(way("http://8.8.8.8/").is_err_and(|no| no.contains("use https")));
    assert_eq!(way("https://8.8.8.8:444/"), Ok(Way::Any));
    // A name is reached by http if all of its addresses are private.
    assert_eq!(way("http://app.internal:3000/"), Ok(Way::Plain));
    assert!(check_address("8.8.8.8".parse().expect("an address"), Way::Plain).is_err());
    let receiver = Receiver::start().expect("a receiver");
    receiver.answer(Answer::status(418).body("hello"));
    for host in ["127.0.0.1", "localhost"] {
        let url = receiver.url("/hook?a=b").replace("127.0.0.1", host);
        let answer = ask(&client, &url).await.expect("an answer");
        let peer = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let expected =
            OutboundAnswer { status: 418, body: b"hello".to_vec(), retry_after: None, peer };
        assert_eq!(answer, expected);
        let seen = receiver.take().remove(0);
        assert_eq!((&*seen.method, &*seen.path, &*seen.body), ("POST", "/hook?a=b", &b"{}"[..]));
        assert_eq!(seen.header("content-type"), "application/json");
        assert!(seen.header("user-agent").starts_with("switchyard/"), "{seen:?}");
    }
}

#[tokio::test]
async fn no_redirect_is_followed_and_a_long_answer_is_cut() {
    let client = GuardedClient::default();
    let elsewhere = Receiver::start().expect("a receiver");
    let receiver = Receiver::start().expect("a receiver");
    let redirect = Answer::status(307).header("location", &elsewhere.url("/"));
    receiver.answer(redirect.body("x".repeat(10 * ANSWER_MAX)));
    let answer = ask(&client, &receiver.url("/")).await.expect("an answer");
    assert_eq!((answer.status, answer.body.len()), (307, ANSWER_MAX));
    assert_eq!(elsewhere.connections(), 0, "the redirect was followed");
}

#[tokio::test]
async fn who_does_not_answer_or_is_not_there_is_distinguished() {
    let client = GuardedClient::default();
    let mut receiver = Receiver::start().expect("a receiver");
    let url = receiver.url("/");
    let hurried =
        || OutboundRequest { within: Duration::from_millis(50), ..request(&url, Reach::Private) };
    // The time is that of the whole exchange: an answer that begins does not stop it.
    for answer in [Answer::status(200).held(), Answer::status(200).body("late").with_body_held()] {
        receiver.answer(answer);
        assert_eq!(client.send(hurried()).await, Err(OutboundFailure::TimedOut));
    }
    receiver.answer(Answer::closed());
    assert_eq!(ask(&client, &url).await, Err(OutboundFailure::Unreachable));
    receiver.kill();
    assert_eq!(ask(&client, &url).await, Err(OutboundFailure::Unreachable));
    receiver.resume().expect("the same port");
    receiver.answer(Answer::status(204).after(Duration::from_millis(1)));
    assert_eq!(ask(&client, &url).await.map(|answer| answer.status), Ok(204));
}

#[tokio::test]
async fn when_to_ask_again_is_read_in_both_forms() {
    let client = GuardedClient::default();
    let receiver = Receiver::start().expect("a receiver");
    let check = async |text: &str, expected: Option<RetryAfter>| {
        receiver.answer(Answer::status(429).header("retry-after", text));
        let answer = ask(&client, &receiver.url("/")).await.expect("an answer");
        assert_eq!(answer.retry_after, expected, "{text}");
    };
    check("120", Some(RetryAfter::Delay(Duration::from_secs(120)))).await;
    let moment = Timestamp::parse("2025-10-13T09:00:00.000Z").expect("an instant");
    check("Mon, 13 Oct 2025 09:00:00 GMT", Some(RetryAfter::At(moment))).await;
    for text in ["", "-1", "1.5", "soon", "2025-10-13", "99999999999999999999"] {
        check(text, None).await;
    }
    let at = |seconds: i64| RetryAfter::At(moment).delay(moment.plus_millis(-1_000 * seconds));
    assert_eq!((at(90), at(-90)), (Duration::from_secs(90), Duration::ZERO));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_at_once_share_few_connections() {
    const AT_ONCE: usize = 64;
    const ROUNDS: usize = 20;
    let client = GuardedClient::default();
    let receiver = Receiver::start().expect("a receiver");
    // Another host that never answers is in no request's way.
    let hanging = Receiver::start().expect("a receiver");
    hanging.answer(Answer::status(200).held());
    let url = receiver.url("/");
    let fast = async {
        for _ in 0..ROUNDS {
            let answers = join_all((0..AT_ONCE).map(|_| ask(&client, &url))).await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        }
        assert_eq!(hanging.wait_for(AT_ONCE).await.expect("all of them").len(), AT_ONCE);
        hanging.release();
    };
    let hanging_url = hanging.url("/");
    let slow = join_all((0..AT_ONCE).map(|_| ask(&client, &hanging_url)));
    let ((), slow) = tokio::join!(fast, slow);
    assert!(slow.iter().all(Result::is_ok), "{slow:?}");
    assert_eq!(receiver.received().len(), AT_ONCE * ROUNDS);
    // A connection is opened beside the wait for one that is in use: some come to more than that.
    assert!(receiver.connections() <= 2 * AT_ONCE, "{} connections", receiver.connections());
}
