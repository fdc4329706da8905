//! The keys of deliveries and the try-out of an endpoint, against a real receiver.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::platform::Mode;
use hmac::{Hmac, KeyInit as _, Mac as _};
use p256::ecdsa::signature::Verifier as _;
use p256::ecdsa::{Signature, VerifyingKey};
use p256::pkcs8::DecodePublicKey as _;
use serde_json::{Value, json};
use sha2::Sha256;
use testbed::receiver::{Answer, Received, Receiver};

use crate::support::{Call, Client, Server, text};

/// Checks a delivery as the libraries of Standard Webhooks do, with one of the signatures.
pub fn is_standard(received: &Received, secret: &str) -> bool {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("a secret")).expect("base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key");
    for name in ["webhook-id", "webhook-timestamp"] {
        mac.update(received.header(name).as_bytes());
        mac.update(b".");
    }
    mac.update(&received.body);
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    received.header("webhook-signature").split(' ').any(|signature| signature == expected)
}

/// Checks a delivery as existing clients do: `field` of the header is DER in base64.
pub fn is_ecdsa(received: &Received, pem: &str, field: &str) -> bool {
    let key = VerifyingKey::from_public_key_pem(pem).expect("a public key");
    let header: Value =
        serde_json::from_str(received.header("x-grid-signature")).expect("JSON in the header");
    assert_eq!(header["v"], "1");
    let Some(signature) = header[field].as_str() else { return false };
    let signature = STANDARD.decode(signature).expect("base64");
    let signature = Signature::from_der(&signature).expect("DER");
    key.verify(&received.body, &signature).is_ok()
}

/// Tries the platform's endpoint out: the client's answer, and the delivery.
async fn try_out(client: &Client, receiver: &Receiver, path: &str) -> (Value, Received) {
    let answer = client.post(path, &json!({})).await.expect(200).clone();
    let mut received = receiver.take();
    assert_eq!(received.len(), 1, "{received:?}");
    (answer, received.remove(0))
}

/// A receiver that is the endpoint of a platform, and its address.
async fn endpoint(client: &Client) -> (Receiver, String) {
    let receiver = Receiver::start().expect("a receiver");
    receiver.answer(Answer::status(202).body("hello"));
    let url = receiver.url("/hooks");
    client.patch("/config", &json!({ "webhookEndpoint": url })).await.expect(200);
    (receiver, url)
}

#[tokio::test]
async fn an_endpoint_is_tried_out_with_a_signed_event() {
    let server = Server::new();
    let client = server.platform().await;
    let (receiver, url) = endpoint(&client).await;
    let keys = client.get("/webhooks/keys").await.expect(200).clone();
    assert!(keys.get("previous").is_none(), "{keys}");
    for path in ["/sandbox/webhooks/test", "/webhooks/test"] {
        let (answer, received) = try_out(&client, &receiver, path).await;
        let expected = json!({ "response_status": 202, "url": url, "response_body": "hello" });
        assert_eq!(answer, expected);
        assert_eq!(received.path, "/hooks");
        assert_eq!(received.header("content-type"), "application/json");
        let event: Value = serde_json::from_slice(&received.body).expect("JSON");
        let id = text(&event["id"]);
        assert!(id.starts_with("Webhook:"), "{event}");
        assert_eq!(received.header("webhook-id"), id);
        let timestamp = text(&event["timestamp"]);
        assert_eq!(event, json!({ "id": id, "type": "TEST", "timestamp": timestamp, "data": {} }));
        assert!(is_standard(&received, &text(&keys["secret"])));
        assert!(is_ecdsa(&received, &text(&keys["publicKey"]), "s"));
        let other = server.platform().await.get("/webhooks/keys").await.expect(200).clone();
        assert!(!is_standard(&received, &text(&other["secret"])));
        assert!(!is_ecdsa(&received, &text(&other["publicKey"]), "s"));
    }
}

#[tokio::test]
async fn a_repeat_of_a_try_out_sends_nothing() {
    let server = Server::new();
    let client = server.platform().await;
    let (receiver, _) = endpoint(&client).await;
    receiver.answer(Answer::status(500).body("no"));
    let send = || client.send("POST", "/webhooks/test", Call::json(&json!({})).key("once"));
    let first = send().await;
    assert_eq!(first.expect(200)["response_status"], 500);
    let again = send().await;
    assert_eq!((&again.bytes, again.status), (&first.bytes, 200));
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn deliveries_are_signed_with_both_keys_for_a_day() {
    let server = Server::new();
    let client = server.platform().await;
    let (receiver, _) = endpoint(&client).await;
    let before = client.get("/webhooks/keys").await.expect(200).clone();
    let after = client.post("/webhooks/keys/rotate", &json!({})).await.expect(200).clone();
    assert_eq!(client.get("/webhooks/keys").await.expect(200), &after);
    assert_ne!(before["secret"], after["secret"]);
    assert_ne!(before["publicKey"], after["publicKey"]);
    for field in ["secret", "publicKey"] {
        assert_eq!(after["previous"][field], before[field]);
    }
    let (_, received) = try_out(&client, &receiver, "/webhooks/test").await;
    for keys in [&before, &after] {
        assert!(is_standard(&received, &text(&keys["secret"])));
    }
    // A receiver that reads `s` alone has its old key for the day.
    assert!(is_ecdsa(&received, &text(&before["publicKey"]), "s"));
    assert!(is_ecdsa(&received, &text(&after["publicKey"]), "next"));
    server.clock.advance_millis(86_400_000);
    let keys = client.get("/webhooks/keys").await.expect(200).clone();
    assert_eq!((&keys["secret"], keys.get("previous")), (&after["secret"], None));
    let (_, received) = try_out(&client, &receiver, "/webhooks/test").await;
    assert!(!is_standard(&received, &text(&before["secret"])));
    assert!(is_standard(&received, &text(&after["secret"])));
    assert!(is_ecdsa(&received, &text(&after["publicKey"]), "s"));
    assert!(!is_ecdsa(&received, &text(&after["publicKey"]), "next"));
}

#[tokio::test]
async fn keys_outlive_a_restart() {
    let server = Server::new();
    let client = server.platform().await;
    let keys = client.post("/webhooks/keys/rotate", &json!({})).await.expect(200).clone();
    let platform = client.platform;
    let server = server.restart();
    let client = server.token(platform, domain::token::Permissions::ALL).await;
    assert_eq!(client.get("/webhooks/keys").await.expect(200), &keys);
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_reached_is_reported() {
    let server = Server::new();
    let client = server.platform().await;
    client
        .post("/sandbox/webhooks/test", &json!({}))
        .await
        .refused(400, "WEBHOOK_ENDPOINT_NOT_SET");
    let (receiver, _) = endpoint(&client).await;
    drop(receiver);
    let gone = client.post("/sandbox/webhooks/test", &json!({})).await;
    gone.refused(400, "WEBHOOK_DELIVERY_ERROR");
}

#[tokio::test]
async fn a_live_platform_reaches_public_addresses_only() {
    let server = Server::new();
    let live = server.platform_with(Mode::Live, true).await;
    let receiver = Receiver::start().expect("a receiver");
    let here = receiver.url("/hooks");
    for url in [here.clone(), here.replace("http://", "https://")] {
        let refused = live.patch("/config", &json!({ "webhookEndpoint": url })).await;
        assert_eq!(refused.refused(400, "INVALID_INPUT")["field"], "webhookEndpoint");
    }
    let refused = live.post("/webhooks/test", &json!({})).await;
    assert!((400..500).contains(&refused.status), "{}", refused.body);
    assert_eq!(receiver.connections(), 0);
    live.post("/sandbox/webhooks/test", &json!({})).await.refused(403, "FORBIDDEN");
}
