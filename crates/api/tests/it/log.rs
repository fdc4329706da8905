//! The log: one line each for payments that end without completion, deliveries that are dead,
//! endpoints that begin and stop to fail, and more that an operator wants to know.

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use service::leadership;
use service::webhooks::dispatch::Dispatcher;
use testbed::receiver::{Answer, Receiver};

use crate::deliveries::deliver;
use crate::pay::{Payer, from, sending, to, transfer};
use crate::support::{Call, Server, text, usd_external};

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
        self.start_at(tracing::Level::INFO)
    }

    fn start_at(&self, level: tracing::Level) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(move || log.clone())
            .json()
            .flatten_event(true)
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn all(&self) -> Vec<Value> {
        let bytes = self.0.lock().expect("no writer panics").clone();
        let text = String::from_utf8(bytes).expect("text");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Every line with this message.
    fn lines(&self, message: &str) -> Vec<Value> {
        self.all().into_iter().filter(|line| line["message"] == message).collect()
    }

    /// The one line with this message.
    fn line(&self, message: &str) -> Value {
        let lines = self.lines(message);
        let [line] = lines.as_slice() else { panic!("{message}: {lines:?}") };
        line.clone()
    }
}

/// The names of a line's fields.
fn fields(line: &Value) -> Vec<&str> {
    line.as_object().expect("fields").keys().map(String::as_str).collect()
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
        let request = format!("order-{suffix}");
        let call = Call::json(&out).header("x-request-id", &request);
        let out = payer.client.send("POST", "/transfer-out", call).await.expect(201).clone();
        expected.push(json!([out["id"], status, reason, 100, "USD", "ACH", request]));
    }
    let good = transfer(&payer.usd, &payer.bank("789").await, 100);
    payer.client.post("/transfer-out", &good).await.expect(201);
    let euros = payer.account("EUR").await;
    let quote = sending(&from(&payer.usd), &to(&euros), 100);
    let call = Call::json(&quote).header("x-request-id", "the-quote");
    let quote = payer.client.send("POST", "/quotes", call).await.expect(201).clone();
    let request = "the-quote";
    expected.push(json!([quote["transactionId"], "EXPIRED", null, 100, "USD", null, request]));
    server.pass(1_000).await;
    server.pass(600_000).await;
    let lines = log.lines("payment ended without completion");
    let mut found: Vec<_> = lines
        .iter()
        .map(|line| {
            let names = ["transaction", "status", "reason", "amount", "currency", "rail"];
            let shown = names.iter().map(|name| &line[*name]).chain([&line["request_id"]]);
            Value::from_iter(shown.cloned())
        })
        .collect();
    for list in [&mut found, &mut expected] {
        list.sort_by_key(ToString::to_string);
    }
    assert_eq!(found, expected);
    // Nothing about a person, and nothing that a client has written.
    let known = [
        "amount",
        "currency",
        "level",
        "message",
        "platform",
        "rail",
        "reason",
        "request_id",
        "status",
        "target",
        "timestamp",
        "transaction",
    ];
    for line in &lines {
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["platform"], payer.client.platform.to_string());
        assert!(fields(line).iter().all(|field| known.contains(field)), "{line}");
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
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["platform"], payer.client.platform.to_string());
        assert!(line["waiting"].as_u64().is_some_and(|count| count > 0), "{line}");
        // No address and nothing of an event.
        let known = ["level", "message", "platform", "target", "timestamp", "waiting"];
        assert_eq!(fields(line), known);
    }
}

#[tokio::test]
async fn a_dead_delivery_is_logged_once() {
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
    payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 100)).await.expect(201);
    deliver(&server, &mut dispatcher).await;
    const DEAD: &str = "webhook delivery is DEAD: it is not attempted any more";
    assert_eq!(log.lines(DEAD), [] as [Value; 0], "it is attempted again");
    for _ in 0..3 {
        server.pass(8 * 86_400_000).await;
        deliver(&server, &mut dispatcher).await;
    }
    let mut dead = payer.client.get("/webhooks/deliveries?status=DEAD").await.expect(200).clone();
    let mut dead: Vec<_> = dead["data"].as_array_mut().expect("rows").drain(..).collect();
    dead.sort_by_key(|row| text(&row["id"]));
    assert!(!dead.is_empty());
    let mut lines = log.lines(DEAD);
    lines.sort_by_key(|line| text(&line["delivery"]));
    assert_eq!(lines.len(), dead.len(), "one line each");
    for (line, row) in lines.iter().zip(&dead) {
        assert_eq!((&line["delivery"], &line["level"]), (&row["id"], &json!("WARN")));
        assert_eq!(line["platform"], payer.client.platform.to_string());
        assert_eq!(line["event"], row["type"]);
        assert!(line["attempts"].is_u64(), "{line}");
        assert!(!line.to_string().contains("secret"), "no address: {line}");
    }
    assert!(lines.iter().any(|line| line["answer"] == 500), "{lines:?}");
}

#[tokio::test]
async fn the_leader_says_once_that_it_leads() {
    let log = Log::default();
    let _guard = log.start();
    let server = Server::new();
    assert!(!leadership::leads(&server.app));
    let mut dispatcher = Dispatcher::new(server.app.clone());
    for _ in 0..3 {
        server.pass(10_000).await;
        deliver(&server, &mut dispatcher).await;
    }
    assert!(leadership::leads(&server.app));
    let line = log.line("took the leader lease");
    assert_eq!((&line["level"], &line["term"]), (&json!("INFO"), &json!(1)));
    assert_eq!(line["server"], leadership::name(&server.app));
    leadership::give_up(&server.app).await.expect("no other server");
    assert!(!leadership::leads(&server.app));
}

#[tokio::test]
async fn a_bank_that_does_not_answer_an_account_check_is_logged() {
    let log = Log::default();
    let _guard = log.start();
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let account = usd_external(Some(&payer.customer), "109");
    payer
        .client
        .post("/customers/external-accounts", &account)
        .await
        .refused(500, "INTERNAL_ERROR");
    let line = log.line("the bank did not answer an account check");
    assert_eq!((&line["level"], &line["currency"]), (&json!("WARN"), &json!("USD")));
    assert_eq!(line["platform"], payer.client.platform.to_string());
    assert_eq!(line["account_type"], account["accountInfo"]["accountType"]);
    assert!(line["rail"].is_string(), "{line}");
    for personal in ["accountNumber", "routingNumber"] {
        let personal = text(&account["accountInfo"][personal]);
        assert!(!line.to_string().contains(&personal), "{line}");
    }
}

#[tokio::test]
async fn refused_credentials_are_one_line_a_minute_with_counts_by_address() {
    const LINE: &str = "requests without good credentials were answered 401";
    let log = Log::default();
    let _guard = log.start();
    let server = Server::new();
    let client = server.platform().await;
    server.app.refusals().log(server.app.server_now());
    let wrong = server.client(client.platform, "no-such-client", "no-such-secret");
    for (address, count) in [("203.0.113.7", 3), ("2001:db8::1", 2), ("2001:db8::2", 2)] {
        for _ in 0..count {
            wrong.send("GET", "/config", Call::default().from(address)).await.expect(401);
        }
    }
    client.get("/config").await.expect(200);
    server.app.refusals().log(server.app.server_now());
    assert_eq!(log.lines(LINE), [] as [Value; 0], "the minute is not over");
    server.clock.advance_millis(60_000);
    server.app.refusals().log(server.app.server_now());
    let line = log.line(LINE);
    assert_eq!((&line["level"], &line["requests"]), (&json!("WARN"), &json!(7)));
    assert_eq!(line["addresses"], "2001:db8::/64=4 203.0.113.7=3");
    assert_eq!(line["from_others"], 0);
    assert!(!line.to_string().contains("no-such"), "nothing that was sent: {line}");
    server.clock.advance_millis(60_000);
    server.app.refusals().log(server.app.server_now());
    assert_eq!(log.lines(LINE).len(), 1, "a minute without any has no line");
    server.anonymous().get("/config").await.expect(401);
    server.app.refusals().log_rest();
    assert_eq!(log.lines(LINE).len(), 2, "a server that stops says what it has counted");
}

#[tokio::test]
async fn a_changed_setting_is_logged_once_by_its_name() {
    let log = Log::default();
    let _guard = log.start();
    let server = Server::new();
    let client = server.platform().await;
    let url = "https://hooks.example.com/secret";
    let change = json!({ "webhookEndpoint": url, "umaDomain": "new.example.com" });
    let call = Call::json(&change).header("x-request-id", "change-1");
    client.send("PATCH", "/config", call).await.expect(200);
    let line = log.line("platform settings changed");
    assert_eq!((&line["level"], &line["request_id"]), (&json!("INFO"), &json!("change-1")));
    assert_eq!(line["platform"], client.platform.to_string());
    assert_eq!(line["settings"], "umaDomain,webhookEndpoint");
    assert!(text(&line["token"]).starts_with("Token:"), "{line}");
    assert!(!line.to_string().contains("secret"), "no value: {line}");
    client.patch("/config", &change).await.expect(200);
    log.line("platform settings changed");
    client.post("/webhooks/keys/rotate", &json!({})).await.expect(200);
    let lines = log.lines("platform settings changed");
    assert_eq!(lines.len(), 2, "a change that changes nothing has no line: {lines:?}");
    assert_eq!(lines[1]["settings"], "webhookKeys");
}

#[tokio::test]
async fn numbers_of_the_log_are_numbers() {
    let log = Log::default();
    let _guard = log.start_at(tracing::Level::DEBUG);
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let out = transfer(&payer.usd, &payer.bank("003").await, 100);
    payer.client.post("/transfer-out", &out).await.expect(201);
    server.anonymous().get("/config").await.expect(401);
    server.pass(1_000).await;
    server.app.refusals().log_rest();
    let lines = log.all();
    let requests: Vec<_> = lines.iter().filter(|line| line["message"] == "request").collect();
    assert!(requests.len() > 3, "{lines:?}");
    assert!(requests.iter().all(|it| it["millis"].is_u64() && it["status"].is_u64()));
    for line in &lines {
        for (name, value) in line.as_object().expect("fields") {
            let is_quoted = value.as_str().is_some_and(|text| text.parse::<f64>().is_ok());
            assert!(!is_quoted, "{name} is a number in quotes: {line}");
        }
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
