//! Rail ports: which of them has a payment, and what happens where none has.

use std::sync::Arc;

use adapters::rails::sandbox::SandboxRail;
use domain::money::AMOUNT_MAX;
use domain::rail::Rail;
use ports::rail::Instruction;
use ports::rails::{Leg, Rails};
use serde_json::{Value, json};
use service::{App, jobs};

use crate::held_rail::{HeldRail, Refusing};
use crate::pay::{Payer, from, sending, to, transfer};
use crate::support::{Server, fields, text, usd_external};

/// Serves ACH, up to a dollar at once, and carries nothing out.
fn refusing_ach() -> Arc<Refusing> {
    Refusing::on(|leg: &Leg| (leg.rail == Rail::Ach).then_some(100))
}

/// Serves wires and carries nothing out.
fn refusing_wire() -> Arc<Refusing> {
    Refusing::on(|leg: &Leg| (leg.rail == Rail::Wire).then_some(AMOUNT_MAX))
}

/// A dollar account whose client chose these rails, in this order.
async fn account(payer: &Payer, number: &str, rails: &[&str]) -> String {
    let mut body = usd_external(Some(&payer.customer), number);
    body["accountInfo"]["paymentRails"] = json!(rails);
    let added = payer.client.post("/customers/external-accounts", &body).await.expect(201).clone();
    text(&added["id"])
}

/// Does what is due a second later with the rails of `app`; how many jobs failed.
async fn work(server: &Server, app: &App) -> usize {
    server.clock.advance_millis(1_000);
    jobs::step(app).await.expect("a step").failed
}

#[tokio::test]
async fn the_first_of_the_accounts_rails_whose_port_takes_the_amount_has_the_payment() {
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let ports = Rails::new(vec![refusing_ach(), Arc::new(SandboxRail::new(0))]);
    let app = server.with_rail(1, ports);
    let client = payer.client.at(&app);
    for (number, rails, amount, status) in [
        ("201", &["ACH"][..], 100, "FAILED"),
        ("202", &["WIRE"], 100, "COMPLETED"),
        ("203", &["ACH", "WIRE"], 100, "FAILED"),
        ("204", &["WIRE", "ACH"], 100, "COMPLETED"),
        ("205", &["ACH", "WIRE"], 101, "COMPLETED"),
    ] {
        let bank = account(&payer, number, rails).await;
        let out = client.post("/transfer-out", &transfer(&payer.usd, &bank, amount)).await;
        let out = out.expect(201).clone();
        assert_eq!(work(&server, &app).await, 0);
        assert_eq!(client.transaction(&out["id"]).await["status"], status, "{rails:?} {amount}");
    }
    let bank = account(&payer, "206", &["ACH"]).await;
    let refused = client.post("/transfer-out", &transfer(&payer.usd, &bank, 101)).await;
    let details = refused.refused(400, "AMOUNT_OUT_OF_RANGE").clone();
    assert_eq!(details["maxAmount"], 100, "{details}");
    server.verify();
}

#[tokio::test]
async fn without_a_port_for_its_rail_a_payment_is_refused_at_once() {
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let (ach, wire) =
        (account(&payer, "201", &["ACH"]).await, account(&payer, "202", &["WIRE"]).await);
    let client = payer.client.at(&server.with_rail(1, refusing_ach()));
    let bodies = |bank: &str| {
        [
            ("/transfer-out", transfer(&payer.usd, bank, 100)),
            ("/transfer-in", transfer(bank, &payer.usd, 100)),
            ("/quotes", sending(&from(&payer.usd), &to(bank), 100)),
            ("/quotes", sending(&from(bank), &to(&payer.usd), 100)),
        ]
    };
    for (path, body) in bodies(&wire) {
        let refused = client.post(path, &body).await;
        assert_eq!(refused.refused(501, "NOT_IMPLEMENTED")["missing"], "PAYMENT_RAIL", "{path}");
    }
    assert_eq!(payer.balance().await, 10_000);
    for (path, body) in bodies(&ach) {
        client.post(path, &body).await.expect(201);
    }
    server.verify();
}

#[tokio::test]
async fn a_payment_stays_on_the_rail_that_it_was_ordered_over() {
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let bank = account(&payer, "201", &["WIRE", "ACH"]).await;
    let status = async |id: &Value| text(&payer.client.transaction(id).await["status"]);

    // Only ACH is served when the payments are made.
    let client = payer.client.at(&server.with_rail(1, refusing_ach()));
    let out = transfer(&payer.usd, &bank, 100);
    let out = client.post("/transfer-out", &out).await.expect(201).clone();
    let quote = client.quote(&sending(&from(&bank), &to(&payer.usd), 100)).await;
    client.execute(&quote).await.expect(200);

    // A server without a port for them leaves them as they are.
    let none = server.with_rail(2, Rails::none());
    assert_eq!(work(&server, &none).await, 2);
    assert_eq!(status(&out["id"]).await, "PENDING");
    assert_eq!(status(&quote["transactionId"]).await, "PROCESSING");
    assert_eq!(payer.balance().await, 9_900);

    // Wires are served now, and would refuse them.
    let both = Rails::new(vec![refusing_wire(), Arc::new(SandboxRail::new(0))]);
    let both = server.with_rail(3, both);
    server.clock.advance_millis(60_000);
    assert_eq!(work(&server, &both).await, 0);
    assert_eq!(status(&out["id"]).await, "COMPLETED");
    assert_eq!(status(&quote["transactionId"]).await, "COMPLETED");
    server.verify();
}

/// A payment with a text, a purpose and a rail of the payer's choice.
fn with_wishes(mut body: Value) -> Value {
    body["remittanceInformation"] = json!("Invoice 2025-7");
    body["purposeOfPayment"] = json!("EDUCATION");
    body["destination"]["paymentRail"] = json!("WIRE");
    body
}

#[tokio::test]
async fn the_payers_text_purpose_and_rail_go_with_the_order() {
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let rail = HeldRail::new();
    rail.let_go.add_permits(100);
    let app = server.with_rail(1, Arc::clone(&rail));
    let client = payer.client.at(&app);
    let bank = account(&payer, "201", &["ACH", "WIRE"]).await;
    let out = with_wishes(transfer(&payer.usd, &bank, 100));
    let out = client.post("/transfer-out", &out).await.expect(201).clone();
    let quote = with_wishes(sending(&from(&payer.usd), &to(&bank), 100));
    let quote = client.post("/quotes", &quote).await.expect(201).clone();
    let path = format!("/quotes/{}/execute", text(&quote["id"]));
    client.post(&path, &json!({})).await.expect(200);
    let mut pulled = transfer(&bank, &payer.usd, 100);
    pulled["remittanceInformation"] = json!("Savings");
    let pulled = client.post("/transfer-in", &pulled).await.expect(201).clone();
    assert_eq!(work(&server, &app).await, 0);
    for id in [&out["id"], &quote["transactionId"]] {
        let shown = client.transaction(id).await;
        assert_eq!(shown["remittanceInformation"], "Invoice 2025-7");
        assert_eq!(shown["purposeOfPayment"], "EDUCATION");
        assert_eq!(shown["destination"]["paymentRail"], "WIRE");
    }
    let said = |order: &Instruction| (order.rail, order.remittance.clone(), order.purpose);
    let orders: Vec<_> = rail.orders.lock().expect("orders").iter().map(said).collect();
    let wire = (Rail::Wire, Some("Invoice 2025-7".to_owned()), Some("EDUCATION"));
    assert_eq!(orders.iter().filter(|order| **order == wire).count(), 2, "{orders:?}");
    let ach = (Rail::Ach, Some("Savings".to_owned()), None);
    assert!(orders.contains(&ach), "{orders:?}");
    assert_eq!(client.transaction(&pulled["id"]).await["remittanceInformation"], "Savings");
    server.verify();
}

#[tokio::test]
async fn a_rail_that_an_account_does_not_have_is_refused() {
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let bank = account(&payer, "201", &["ACH", "WIRE"]).await;
    let eur = payer.client.account(Some(&payer.customer), "EUR").await;
    let mut details = sending(&from(&payer.usd), &to(&bank), 100);
    let new = usd_external(Some(&payer.customer), "202");
    details["destination"] =
        json!({ "destinationType": "EXTERNAL_ACCOUNT_DETAILS", "externalAccountDetails": new });
    let over = |mut body: Value, rail: &str| {
        body["destination"]["paymentRail"] = json!(rail);
        body
    };
    let out = || transfer(&payer.usd, &bank, 100);
    let quote = |account: &str| sending(&from(&payer.usd), &to(account), 100);
    for (path, body) in [
        ("/transfer-out", over(out(), "RTP")),
        ("/transfer-out", over(out(), "ach")),
        ("/quotes", over(quote(&bank), "SEPA")),
        ("/quotes", over(quote(&eur), "SEPA")),
        ("/quotes", over(details.clone(), "SEPA")),
    ] {
        let answer = payer.client.post(path, &body).await;
        let named = fields(answer.refused(400, "INVALID_INPUT"));
        assert_eq!(named, ["destination.paymentRail"], "{body}");
    }
    payer.client.post("/quotes", &over(details, "WIRE")).await.expect(201);
    for (field, value) in [
        ("remittanceInformation", "x".repeat(81)),
        ("remittanceInformation", String::new()),
        ("purposeOfPayment", "FUN".to_owned()),
    ] {
        for (path, mut body) in [("/transfer-out", out()), ("/quotes", quote(&bank))] {
            body[field] = json!(value);
            let answer = payer.client.post(path, &body).await;
            assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), [field], "{body}");
        }
    }
    server.verify();
}
