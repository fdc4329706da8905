//! The log at level info: payments that end without completion, endpoints that begin and stop to
//! fail.

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use service::webhooks::dispatch::Dispatcher;
use testbed::receiver::{Answer, Receiver};

use crate::deliveries::deliver;
use crate::pay::{Payer, from, sending, to, transfer};
use crate::support::{Server, text};

/// The log of this thread, which runs the whole server of a test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn start(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || log.clone())
            .json()
            .flatten_event(true)
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// Every line with this message.
    fn lines(&self, message: &str) -> Vec<Value> {
        let bytes = self.0.lock().expect("no writer panics").clone();
        let text = String::from_utf8(bytes).expect("text");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.filter(|line| line["message"] == message).collect()
    }
}

#[tokio::test]
async fn a_payment_that_ends_without_completion_is_logged_once() {
    let log = Log::default();
    let _guard = log.start();
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let mut expected = Vec::new();
    for (suffix, status, reason) in
        [("003", "FAILED", "ACCOUNT_INVALID"), ("004", "REJECTED", "REJECTED_BY_RECEIVER")]
    {
        let out = transfer(&payer.usd, &payer.bank(suffix).await, 100);
        let out = payer.client.post("/transfer-out", &out).await.expect(201).clone();
        expected.push(json!([out["id"], status, reason]));
    }
    let good = transfer(&payer.usd, &payer.bank("789").await, 100);
    payer.client.post("/transfer-out", &good).await.expect(201);
    let euros = payer.account("EUR").await;
    let quote = sending(&from(&payer.usd), &to(&euros), 100);
    let quote = payer.client.post("/quotes", &quote).await.expect(201).clone();
    expected.push(json!([quote["transactionId"], "EXPIRED", null]));
    server.pass(1_000).await;
    server.pass(600_000).await;
    let lines = log.lines("payment ended without completion");
    let mut found: Vec<_> = lines
        .iter()
        .map(|line| json!([line["transaction"], line["status"], line["reason"]]))
        .collect();
    for list in [&mut found, &mut expected] {
        list.sort_by_key(ToString::to_string);
    }
    assert_eq!(found, expected);
    // Nothing about a person, and nothing that a client has written.
    let known = ["level", "message", "reason", "status", "target", "timestamp", "transaction"];
    for line in &lines {
        assert_eq!(line["level"], "INFO");
        let fields: Vec<_> = line.as_object().expect("fields").keys().collect();
        assert!(fields.iter().all(|field| known.contains(&field.as_str())), "{line}");
        assert!(text(&line["transaction"]).starts_with("Transaction:"));
    }
}

#[tokio::test]
async fn an_endpoint_that_begins_and_stops_to_fail_is_logged_once_each() {
    let log = Log::default();
    let _guard = log.start();
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let bank = payer.bank("789").await;
    let receiver = Receiver::start().expect("a receiver");
    let mut dispatcher = Dispatcher::new(server.app.clone());
    let endpoint = json!({ "webhookEndpoint": receiver.url("/hooks?token=secret") });
    payer.client.patch("/config", &endpoint).await.expect(200);
    deliver(&server, &mut dispatcher).await;

    receiver.answer(Answer::status(500));
    for _ in 0..12 {
        let out = transfer(&payer.usd, &bank, 100);
        payer.client.post("/transfer-out", &out).await.expect(201);
    }
    for _ in 0..3 {
        server.pass(60_000).await;
        deliver(&server, &mut dispatcher).await;
    }
    receiver.answer(Answer::status(200));
    for _ in 0..3 {
        server.pass(3_600_000).await;
        deliver(&server, &mut dispatcher).await;
    }
    for message in ["webhook endpoint began failing", "webhook endpoint stopped failing"] {
        let lines = log.lines(message);
        let [line] = lines.as_slice() else { panic!("{message}: {lines:?}") };
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["platform"], payer.client.platform.to_string());
        assert!(line["waiting"].as_u64().is_some_and(|count| count > 0), "{line}");
        // No address and nothing of an event.
        let fields: Vec<_> = line.as_object().expect("fields").keys().map(String::as_str).collect();
        assert_eq!(fields, ["level", "message", "platform", "target", "timestamp", "waiting"]);
    }
}

/// The line has the platform and the request, and nothing of either body.
#[tokio::test]
async fn a_key_that_is_repeated_with_another_body_is_logged() {
    let log = Log::default();
    let _guard = log.start();
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    for amount in [400, 400, 500] {
        let body = transfer(&payer.usd, &bank, amount);
        payer.client.post_once("/transfer-out", "k", &body).await.expect(201);
    }
    let lines = log.lines("an idempotency key was repeated with another body");
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["platform"], payer.client.platform.to_string());
    assert!(!text(&line["request_id"]).is_empty());
    assert!(!line.to_string().contains(&bank), "{line}");
}
