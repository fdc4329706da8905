//! Time that a platform moves on (docs/decisions/0013).

use std::sync::Arc;

use adapters::rails::sandbox::SandboxRail;
use domain::platform::Mode;
use serde_json::{Value, json};
use service::jobs;

use crate::pay::{Payer, from, sending, to, transfer};
use crate::support::{Client, START, Server, fields, text, usd_external, why};

/// Moves a platform's clock on and gives what it shows then.
async fn advance(client: &Client, seconds: i64) -> String {
    let body = json!({ "advanceBySeconds": seconds });
    text(&client.post("/sandbox/clock", &body).await.expect(200)["now"])
}

/// What a platform's clock shows.
async fn now(client: &Client) -> String {
    text(&client.get("/sandbox/clock").await.expect(200)["now"])
}

#[tokio::test]
async fn a_clock_shows_the_servers_time_until_it_is_moved() {
    let server = Server::new();
    let client = server.platform().await;
    let shown = client.get("/sandbox/clock").await.expect(200).clone();
    assert_eq!(shown, json!({ "now": START, "serverTime": START, "aheadMilliseconds": 0 }));
    let moved = client.post("/sandbox/clock", &json!({ "advanceBySeconds": 90 })).await;
    let expected = json!({
        "now": "2025-10-13T09:01:30.000Z",
        "serverTime": START,
        "aheadMilliseconds": 90_000,
    });
    assert_eq!(moved.expect(200), &expected);
    assert_eq!(client.get("/sandbox/clock").await.expect(200), &expected);
    // It goes on from there, and from the instant to which it is moved.
    server.pass(250).await;
    assert_eq!(now(&client).await, "2025-10-13T09:01:30.250Z");
    let to = json!({ "advanceTo": "2026-01-01T00:00:00+01:00" });
    client.post("/sandbox/clock", &to).await.expect(200);
    server.pass(1).await;
    assert_eq!(now(&client).await, "2025-12-31T23:00:00.001Z");
    // The same is there after a restart.
    let server = server.restart();
    let client = server.token(client.platform, domain::token::Permissions::ALL).await;
    assert_eq!(now(&client).await, "2025-12-31T23:00:00.001Z");
    server.verify();
}

#[tokio::test]
async fn a_clock_is_never_set_back_nor_too_far_ahead() {
    let server = Server::new();
    let client = server.platform().await;
    advance(&client, 60).await;
    let back = json!({ "advanceTo": START });
    let refused = client.post("/sandbox/clock", &back).await;
    let errors = refused.refused(400, "INVALID_INPUT");
    assert_eq!(
        errors["errors"][0]["message"],
        "the clock shows 2025-10-13T09:01:00.000Z and cannot be set back to \
         2025-10-13T09:00:00.000Z"
    );
    let far = json!({ "advanceTo": "2040-01-01T00:00:00Z" });
    let refused = client.post("/sandbox/clock", &far).await;
    assert_eq!(fields(refused.refused(400, "INVALID_INPUT")), ["advanceTo"]);
    for _ in 0..2 {
        client.post("/sandbox/clock", &json!({ "advanceBySeconds": 157_000_000 })).await;
    }
    let refused = client.post("/sandbox/clock", &json!({ "advanceBySeconds": 157_000_000 })).await;
    assert_eq!(fields(refused.refused(400, "INVALID_INPUT")), ["advanceBySeconds"]);
    for wrong in [
        json!({}),
        json!({ "advanceBySeconds": 1, "advanceTo": "2035-01-01T00:00:00Z" }),
        json!({ "advanceBySeconds": 0 }),
        json!({ "advanceBySeconds": -5 }),
        json!({ "advanceBySeconds": "5" }),
        json!({ "advanceTo": "tomorrow" }),
    ] {
        client.post("/sandbox/clock", &wrong).await.refused(400, "INVALID_INPUT");
    }
    assert_eq!(now(&client).await, "2035-09-25T15:14:20.000Z");
    server.verify();
}

#[tokio::test]
async fn a_repeated_request_moves_it_once() {
    let server = Server::new();
    let client = server.platform().await;
    let body = json!({ "advanceBySeconds": 3_000_000 });
    let first = client.post_once("/sandbox/clock", "once", &body).await;
    // First answers are remembered by the server's time, whatever the platform's shows.
    let again = client.post_once("/sandbox/clock", "once", &body).await;
    assert_eq!((first.bytes.clone(), again.status), (again.bytes, 200));
    assert_eq!(first.expect(200)["aheadMilliseconds"], 3_000_000_000_i64);
    assert_eq!(now(&client).await, text(&first.body["now"]));
}

#[tokio::test]
async fn where_money_is_real_time_is_too() {
    let server = Server::new();
    let client = server.platform_with(Mode::Live, true).await;
    client.get("/sandbox/clock").await.refused(403, "FORBIDDEN");
    let body = json!({ "advanceBySeconds": 5 });
    client.post("/sandbox/clock", &body).await.refused(403, "FORBIDDEN");
    let customer = client.post("/customers", &json!({ "customerType": "INDIVIDUAL" })).await;
    assert_eq!(customer.expect(201)["createdAt"], START);
    server.verify();
}

#[tokio::test]
async fn what_is_due_happens_when_the_clock_is_moved() {
    let server = Server::new();
    let payer = Payer::with(&server, 500_000).await;
    let eur = payer.account("EUR").await;
    let body = sending(&from(&payer.usd), &to(&eur), 100_000);
    let (open, late) = (payer.client.quote(&body).await, payer.client.quote(&body).await);
    let slow = payer.bank("005").await;
    let out = transfer(&payer.usd, &slow, 400);
    let out = payer.client.post("/transfer-out", &out).await.expect(201).clone();
    server.pass(1_000).await;
    assert_eq!(payer.client.transaction(&out["id"]).await["status"], "PROCESSING");

    advance(&payer.client, 28).await;
    assert_eq!(payer.client.transaction(&out["id"]).await["status"], "PROCESSING");
    // Due work is done when the clock's new time is answered.
    advance(&payer.client, 1).await;
    let failed = payer.client.transaction(&out["id"]).await;
    assert_eq!(failed["status"], "FAILED");
    assert_eq!(why(&failed), [Some("OFFRAMP_FAILED"), Some("TIMEOUT")]);
    assert_eq!(failed["createdAt"], START);
    assert_eq!(failed["updatedAt"], "2025-10-13T09:00:30.000Z");

    // A millisecond before its end a quote can be executed; then it is over, job or no job.
    let end = text(&open["expiresAt"]);
    assert_eq!(end, "2025-10-13T09:05:00.000Z");
    let just_before = json!({ "advanceTo": "2025-10-13T09:04:59.999Z" });
    payer.client.post("/sandbox/clock", &just_before).await.expect(200);
    payer.client.execute(&open).await.expect(200);
    payer.client.post("/sandbox/clock", &json!({ "advanceTo": end })).await.expect(200);
    payer.client.execute(&late).await.refused(409, "QUOTE_EXPIRED");
    payer.client.stands_at(&open, "COMPLETED", "COMPLETED").await;
    let expired = payer.client.stands_at(&late, "EXPIRED", "EXPIRED").await;
    assert_eq!(expired["updatedAt"], end);
    server.verify();
}

#[tokio::test]
async fn only_the_calling_platforms_time_moves() {
    let server = Server::new();
    let (one, other) = (Payer::with(&server, 1_000).await, Payer::with(&server, 1_000).await);
    let mut payments = Vec::new();
    for payer in [&one, &other] {
        let bank = payer.bank("005").await;
        let body = transfer(&payer.usd, &bank, 400);
        payments.push(payer.client.post("/transfer-out", &body).await.expect(201).clone());
    }
    server.pass(1_000).await;
    advance(&one.client, 86_400).await;
    assert_eq!(one.client.transaction(&payments[0]["id"]).await["status"], "FAILED");
    assert_eq!(other.client.transaction(&payments[1]["id"]).await["status"], "PROCESSING");
    assert_eq!(now(&other.client).await, "2025-10-13T09:00:01.000Z");
    let made = other.client.post("/customers", &json!({ "customerType": "INDIVIDUAL" })).await;
    assert_eq!(made.expect(201)["createdAt"], "2025-10-13T09:00:01.000Z");
    server.pass(30_000).await;
    assert_eq!(other.client.transaction(&payments[1]["id"]).await["status"], "FAILED");
    server.verify();
}

/// Makes one of everything that has a time, and gives the times.
async fn made(payer: &Payer) -> Vec<Value> {
    let client = &payer.client;
    let customer = client.post("/customers", &json!({ "customerType": "INDIVIDUAL" })).await;
    let token = json!({ "name": "x", "permissions": ["VIEW"] });
    let token = client.post("/tokens", &token).await;
    let eur = payer.account("EUR").await;
    let quote = client.quote(&sending(&from(&payer.usd), &to(&eur), 1_000)).await;
    let transaction = client.transaction_of(&quote).await;
    let bank = usd_external(Some(&text(&customer.expect(201)["id"])), "789");
    client.post("/customers/external-accounts", &bank).await.expect(201);
    let config = client.get("/config").await.expect(200).clone();
    let terms = json!({ "supportedCurrencies": config["supportedCurrencies"] });
    let config = client.patch("/config", &terms).await;
    vec![
        customer.expect(201)["createdAt"].clone(),
        customer.expect(201)["updatedAt"].clone(),
        token.expect(201)["createdAt"].clone(),
        quote["createdAt"].clone(),
        transaction["createdAt"].clone(),
        config.expect(200)["updatedAt"].clone(),
    ]
}

#[tokio::test]
async fn everything_of_the_platform_follows_its_clock_and_lists_stay_in_order() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    for seconds in [0, 3_600, 1, 86_400] {
        if seconds > 0 {
            advance(&payer.client, seconds).await;
        }
        let now = now(&payer.client).await;
        for time in made(&payer).await {
            assert_eq!(time, now);
        }
        server.pass(10).await;
    }
    // Newest first is the order in which they were made, and a filter finds them by their times.
    let list = payer.client.get("/quotes?limit=100").await.expect(200).clone();
    let times: Vec<_> = list["data"].as_array().expect("rows").iter().collect();
    let times: Vec<_> = times.iter().map(|quote| text(&quote["createdAt"])).collect();
    assert_eq!(
        times,
        ["2025-10-14T10:00:01.030Z", "2025-10-13T10:00:01.020Z", "2025-10-13T10:00:00.010Z", START,]
    );
    let since = "/quotes?createdAfter=2025-10-13T10:00:01.020Z";
    assert_eq!(payer.client.count(since).await, 2);
    let until = "/transactions?type=OUTGOING&endDate=2025-10-13T10:00:01.020Z";
    assert_eq!(payer.client.count(until).await, 3);
    server.verify();
}

#[tokio::test]
async fn another_server_does_what_is_due_by_the_moved_clock() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let slow = payer.bank("005").await;
    let other = server.beside(1, Arc::new(SandboxRail::default()));
    let body = transfer(&payer.usd, &slow, 400);
    let out = payer.client.post("/transfer-out", &body).await.expect(201).clone();
    server.clock.advance_millis(1_000);
    assert!(jobs::step(&other).await.expect("a step").is_ours);
    assert_eq!(payer.client.transaction(&out["id"]).await["status"], "PROCESSING");
    let woken = server.app.store().timers_set().notified();
    // The answer waits for the server that has the lease; one with a database of its own takes it.
    let does = async {
        woken.await;
        jobs::step(&other).await.expect("a step");
    };
    tokio::join!(advance(&payer.client, 29), does);
    assert_eq!(payer.client.transaction(&out["id"]).await["status"], "FAILED");
    assert_eq!(payer.balance().await, 1_000);
    server.verify();
}
