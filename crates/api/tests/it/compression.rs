//! Answers on their way to clients that take them compressed.

use serde_json::json;

use crate::support::{Answer, Call, Client, Server, decoded, text};

/// What clients send as `Accept-Encoding`, and the encoding that they get.
const CLIENTS: [(&str, Option<&str>); 11] = [
    ("gzip", Some("gzip")),
    ("br", Some("br")),
    ("gzip, deflate", Some("gzip")),
    ("gzip, deflate, br, zstd", Some("br")),
    ("br;q=0, gzip", Some("gzip")),
    ("GZIP;q=0.5", Some("gzip")),
    ("gzip;q=0.5, identity", None),
    ("gzip;q=0", None),
    ("zstd, deflate", None),
    ("identity;q=0", None),
    ("", None),
];

/// A customer whose answer is longer than a kilobyte.
fn long_customer(name: &str) -> serde_json::Value {
    json!({
        "customerType": "INDIVIDUAL",
        "fullName": name,
        "address": {
            "line1": "a ".repeat(120).trim(),
            "line2": "b ".repeat(120).trim(),
            "city": "c ".repeat(120).trim(),
            "state": "d ".repeat(120).trim(),
            "postalCode": "N1",
            "country": "GB",
        },
    })
}

fn encoding(answer: &Answer) -> Option<&str> {
    answer.headers.get("content-encoding").map(|encoding| encoding.to_str().expect("text"))
}

fn varies(answer: &Answer) -> bool {
    let mut values = answer.headers.get_all("vary").iter();
    values.any(|value| value.to_str().expect("text").eq_ignore_ascii_case("accept-encoding"))
}

impl Client {
    async fn get_as(&self, path: &str, accepted: &str) -> Answer {
        let call = Call::default().header("accept-encoding", accepted);
        self.send("GET", path, call).await
    }
}

#[tokio::test]
async fn long_answers_come_as_the_client_takes_them() {
    let server = Server::new();
    let client = server.platform().await;
    let plain = client.get("/config").await;
    assert!(plain.expect(200).is_object() && plain.bytes.len() > 2_000);
    assert!(encoding(&plain).is_none() && varies(&plain));
    for (accepted, expected) in CLIENTS {
        let answer = client.get_as("/config", accepted).await;
        assert_eq!((answer.status, encoding(&answer)), (200, expected), "{accepted}");
        assert!(varies(&answer), "{accepted}");
        assert!(decoded(&answer.headers, &answer.bytes) == plain.bytes, "{accepted}");
        let length = answer.headers.get("content-length");
        let length = length.map(|length| length.to_str().expect("text").to_owned());
        assert!(length.is_none_or(|length| length == answer.bytes.len().to_string()));
        if expected.is_some() {
            assert!(answer.bytes.len() * 2 < plain.bytes.len(), "{accepted}");
        }
    }
}

#[tokio::test]
async fn short_answers_and_those_without_a_body_stay_as_they_are() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let path = format!("/customers/{customer}");
    let short = client.get_as(&path, "gzip, br").await;
    assert!(short.expect(200).is_object() && short.bytes.len() < 1_000);
    assert_eq!((encoding(&short), varies(&short)), (None, false));
    let refused = client.get_as("/customers/Customer:x", "gzip, br").await;
    assert_eq!((refused.status, encoding(&refused)), (404, None));
    let gone = Call::default().header("accept-encoding", "gzip, br");
    let gone = client.send("DELETE", &path, gone).await;
    assert_eq!((encoding(&gone), gone.status / 100), (None, 2));
}

#[tokio::test]
async fn a_request_is_carried_out_whatever_its_client_can_decode() {
    let server = Server::new();
    let client = server.platform().await;
    let mut plain = None;
    for (number, (accepted, expected)) in CLIENTS.into_iter().enumerate() {
        // The first asks, the others repeat its key: each gets the same answer in its own encoding.
        let call = Call::json(&long_customer("Ada Lovelace")).key("once");
        let answer = client.send("POST", "/customers", call.header("accept-encoding", accepted));
        let answer = answer.await;
        assert_eq!((answer.status, encoding(&answer)), (201, expected), "{accepted}");
        let is_repeat = answer.headers.contains_key("idempotent-replayed");
        assert_eq!(is_repeat, number > 0, "{accepted}");
        let body = decoded(&answer.headers, &answer.bytes);
        assert!(plain.get_or_insert_with(|| body.clone()) == &body, "{accepted}");
    }
    server.verify();
}

#[tokio::test]
async fn secrets_are_not_compressed() {
    let server = Server::new();
    let client = server.platform().await;
    let anyone = server.anonymous();
    let all = "gzip, br";
    let hidden = |answer: &Answer, status: u16| {
        assert_eq!((answer.status, encoding(answer)), (status, None));
        assert_eq!(answer.headers["cache-control"], "no-store");
    };
    // Long enough, were it not for the secret.
    let name = "\u{1f980}".repeat(250);
    let path = format!("/customers/kyc-link?platformCustomerId={}", "%F0%9F%A6%80".repeat(250));
    let link = client.get_as(&path, all).await;
    hidden(&link, 200);
    assert!(link.bytes.len() > 1_000 && link.body["platformCustomerId"] == name.as_str());
    let token = json!({ "name": "n".repeat(250), "permissions": ["VIEW"] });
    let call = Call::json(&token).header("accept-encoding", all);
    hidden(&client.send("POST", "/tokens", call).await, 201);
    hidden(&client.get_as("/webhooks/keys", all).await, 200);
    let call = Call::json(&json!({})).header("accept-encoding", all);
    hidden(&client.send("POST", "/webhooks/keys/rotate", call).await, 200);
    let customer = client.customer().await;
    let invitation = json!({
        "inviterUma": client.uma_address(&customer).await, "firstName": "&".repeat(100),
    });
    let call = Call::json(&invitation).header("accept-encoding", all);
    let made = client.send("POST", "/invitations", call).await;
    hidden(&made, 201);
    let url = text(&made.body["url"]);
    let path = url.strip_prefix("https://pay.test").expect("our address");
    let call = Call::default().header("accept-encoding", all);
    let page = anyone.send_to("GET", path, call).await;
    hidden(&page, 200);
    assert!(page.bytes.len() > 1_000);
}

#[tokio::test]
async fn a_head_says_what_its_get_would() {
    let client = Server::new().anonymous();
    for path in ["/openapi.json", "/docs"] {
        for (accepted, _) in CLIENTS {
            let call = || Call::default().header("accept-encoding", accepted);
            let head = client.send_to("HEAD", path, call()).await;
            let get = client.send_to("GET", path, call()).await;
            assert_eq!((head.status, head.bytes.len()), (200, 0), "{path}");
            for name in ["content-encoding", "content-type", "vary", "etag", "cache-control"] {
                assert_eq!(head.headers.get(name), get.headers.get(name), "{path}: {name}");
            }
        }
    }
}
