//! The machine's clock, when it was ahead and is set right (docs/decisions/0013).

use domain::time::Timestamp;
use ports::clock::Clock as _;
use serde_json::{Value, json};
use service::webhooks::dispatch::Dispatcher;
use testbed::receiver::{Answer, Received, Receiver};

use crate::deliveries::deliver;
use crate::institutions::Institution;
use crate::pay::{Payer, from, sending, to, transfer};
use crate::support::{Client, Server, text, usd_external};

const HOUR_MILLIS: i64 = 3_600_000;
const DAY_MILLIS: i64 = 24 * HOUR_MILLIS;

/// Sets a clock that is this much ahead right, while the server runs or before it starts again.
fn set_right(server: Server, by: i64, restarts: bool) -> Server {
    server.clock.set(server.clock.machine().plus_millis(-by));
    if restarts { server.restart() } else { server }
}

fn instant(value: &Value) -> Timestamp {
    Timestamp::parse(&text(value)).expect("an instant")
}

/// The time that a receiver reads, in seconds.
fn stamped(received: &Received) -> i64 {
    received.header("webhook-timestamp").parse().expect("seconds")
}

/// Everything that a client can list.
async fn everything(client: &Client, customer: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for path in [
        "/config".to_owned(),
        "/customers".to_owned(),
        format!("/customers/{customer}"),
        "/customers/internal-accounts".to_owned(),
        "/customers/external-accounts".to_owned(),
        "/platform/internal-accounts".to_owned(),
        "/platform/external-accounts".to_owned(),
        "/transactions".to_owned(),
        "/quotes".to_owned(),
        "/tokens".to_owned(),
        "/events".to_owned(),
        "/webhooks/deliveries".to_owned(),
    ] {
        all.push(client.get(&path).await.expect(200).clone());
    }
    all
}

/// Counts objects that were made and changed; no change is before the making.
fn ordered(value: &Value) -> usize {
    let within = match value {
        Value::Array(values) => values.iter().map(ordered).sum(),
        Value::Object(fields) => fields.values().map(ordered).sum(),
        _ => 0,
    };
    let (Some(made), Some(changed)) = (value.get("createdAt"), value.get("updatedAt")) else {
        return within;
    };
    assert!(instant(changed) >= instant(made), "{value}");
    within + 1
}

#[tokio::test]
async fn what_is_signed_has_the_machines_time() {
    let server = Server::new();
    let client = server.platform().await;
    let receiver = Receiver::start().expect("a receiver");
    client.patch("/config", &json!({ "webhookEndpoint": receiver.url("/") })).await.expect(200);
    let signed = async || {
        client.post("/webhooks/test", &json!({})).await.expect(200);
        stamped(&receiver.take()[0])
    };
    // A jump that is not believed yet, steps that are absorbed, and one that is not.
    for by in [0, 2 * HOUR_MILLIS, -2 * HOUR_MILLIS, -4_000, 4_000, -HOUR_MILLIS] {
        server.clock.set(server.clock.machine().plus_millis(by));
        assert_eq!(signed().await, server.clock.machine().millis() / 1_000, "{by}");
    }
    server.set_clock(40 * DAY_MILLIS).await;
    server.clock.set(server.clock.machine().plus_millis(-40 * DAY_MILLIS));
    assert_eq!(signed().await, server.clock.machine().millis() / 1_000);
}

/// Work of a server whose clock is `ahead`, is set right before it is done, and what comes of it.
async fn check_work(ahead: i64, restarts: bool) {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let (bank, eur) = (payer.bank("789").await, payer.account("EUR").await);
    let receiver = Receiver::start().expect("a receiver");
    let url = json!({ "webhookEndpoint": receiver.url("/") });
    payer.client.patch("/config", &url).await.expect(200);
    let mut dispatcher = Dispatcher::new(server.app.clone());
    server.set_clock(ahead).await;
    deliver(&server, &mut dispatcher).await;
    receiver.take();
    receiver.answer(Answer::status(500));
    let payment = payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 100)).await;
    let payment = payment.expect(201)["id"].clone();
    let quote = payer.client.quote(&sending(&from(&payer.usd), &to(&eur), 5_000)).await;
    deliver(&server, &mut dispatcher).await;
    assert!(!receiver.take().is_empty(), "attempted, and due again by the clock that is ahead");
    let (client, server) = (payer.client.clone(), set_right(server, ahead, restarts));
    let client = if restarts { server.client_again(&client) } else { client };
    if restarts {
        dispatcher = Dispatcher::new(server.app.clone());
    }
    receiver.answer(Answer::status(200));
    // The payment is ordered, it is settled, and its last event is due.
    for _ in 0..3 {
        server.pass(1_000).await;
    }
    deliver(&server, &mut dispatcher).await;
    assert_eq!(client.transaction(&payment).await["status"], "COMPLETED");
    client.stands_at(&quote, "EXPIRED", "EXPIRED").await;
    client.execute(&quote).await.refused(409, "QUOTE_EXPIRED");
    let waiting = client.get("/webhooks/deliveries?status=PENDING").await;
    assert_eq!(waiting.expect(200)["data"], json!([]), "no delivery waits for the wrong time");
    // Records have the right time again, and quotes hold.
    let new = client.quote(&sending(&from(&payer.usd), &to(&eur), 5_000)).await;
    let now = server.clock.machine();
    assert_eq!(instant(&new["createdAt"]), now);
    client.execute(&new).await.expect(200);
    server.verify();
}

#[tokio::test]
async fn work_does_not_wait_for_a_time_that_was_wrong() {
    for restarts in [false, true] {
        for ahead in [2 * HOUR_MILLIS, 40 * DAY_MILLIS] {
            check_work(ahead, restarts).await;
        }
    }
}

#[tokio::test]
async fn no_record_changes_before_it_was_made() {
    let server = Server::new();
    server.set_clock(DAY_MILLIS).await;
    let payer = Payer::with(&server, 100_000).await;
    let (client, customer) = (&payer.client, &payer.customer);
    let (bank, eur) = (payer.bank("789").await, payer.account("EUR").await);
    let own = client.post("/platform/external-accounts", &usd_external(None, "777")).await;
    let own = text(&own.expect(201)["id"]);
    let token = client.post("/tokens", &json!({ "name": "t", "permissions": ["VIEW"] })).await;
    let token = text(&token.expect(201)["id"]);
    let gone = client.customer().await;
    let quote = client.quote(&sending(&from(&payer.usd), &to(&eur), 5_000)).await;
    let uma = client.uma_address(customer).await;
    let invitation = client.post("/invitations", &json!({ "inviterUma": uma })).await;
    let code = text(&invitation.expect(201)["code"]);
    let server = set_right(server, DAY_MILLIS, false);
    client.patch("/config", &json!({ "isRegulatedFinancialInstitution": false })).await;
    client.patch("/config", &json!({ "umaDomain": "uma.test" })).await;
    client.post("/webhooks/keys/rotate", &json!({})).await;
    let name = json!({ "customerType": "INDIVIDUAL", "platformCustomerId": "other" });
    client.patch(&format!("/customers/{customer}"), &name).await.expect(200);
    client.delete(&format!("/customers/{gone}")).await.expect(200);
    let name = json!({ "platformAccountId": "other", "defaultUmaDepositAccount": true });
    let path = format!("/customers/external-accounts/{bank}");
    client.patch(&path, &name).await.expect(200);
    client.delete(&format!("/platform/external-accounts/{own}")).await.expect(200);
    client.delete(&format!("/tokens/{token}")).await.expect(204);
    client.execute(&quote).await.refused(409, "QUOTE_EXPIRED");
    let cancelled = client.post(&format!("/invitations/{code}/cancel"), &json!({})).await;
    ordered(cancelled.expect(200));
    let payment = client.post("/transfer-out", &transfer(&payer.usd, &bank, 100)).await;
    payment.expect(201);
    server.pass(5_000).await;
    let all = everything(client, customer).await;
    assert!(all.iter().map(ordered).sum::<usize>() > 10);
    server.verify();
}

/// A message of an institution that is sent again, once a clock that was `ahead` is set right.
async fn check_nonce(ahead: i64, restarts: bool) {
    let mut peer = Institution::new().await;
    let (looked_up, request) = (peer.look_up().await, peer.request(2_500));
    peer.pay(&looked_up, &request).await.expect(200);
    peer.server.pass(1_000).await;
    if restarts {
        peer.server.clock.set(peer.server.clock.machine().plus_millis(ahead));
        peer = peer.restart();
    }
    peer.server.set_clock(if restarts { 0 } else { ahead }).await;
    // The sweep has the time that it takes.
    peer.server.pass(2_000).await;
    peer.server.clock.set(peer.server.clock.machine().plus_millis(-ahead));
    peer.server.pass(2_000).await;
    let again = peer.pay(&looked_up, &request).await;
    assert_eq!(again.expect(400)["code"], "INVALID_NONCE");
    peer.server.verify();
}

#[tokio::test]
async fn a_wrong_clock_lets_no_message_in_twice() {
    for restarts in [false, true] {
        for ahead in [HOUR_MILLIS, 40 * DAY_MILLIS] {
            check_nonce(ahead, restarts).await;
        }
    }
}
