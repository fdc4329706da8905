//! The log at level info: one line for each payment that ends without completion.

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

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
