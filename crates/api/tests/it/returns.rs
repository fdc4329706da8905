//! Money that was delivered and has come back (contract 6.10): the suffix 185 of the table of
//! scenarios settles, and is sent back a minute later.

use domain::money::Money;
use ledger::account::AccountKey;
use serde_json::{Value, json};

use crate::pay::{Payer, deposit, from, sending, to, transfer};
use crate::support::{Server, text, why};

/// How long after it settled the bank sends a payment back.
const BACK_AFTER_MILLIS: i64 = 60_000;

/// Checks that a payment was delivered, came back and is refunded, and its events.
async fn came_back(server: &Server, payer: &Payer, id: &Value) -> Value {
    server.pass(1_000).await;
    let delivered = payer.client.transaction(id).await;
    assert_eq!(delivered["status"], "COMPLETED", "{delivered}");
    assert_eq!(delivered["refund"], Value::Null);
    server.verify();
    server.pass(BACK_AFTER_MILLIS - 2_000).await;
    assert_eq!(payer.client.transaction(id).await, delivered);
    server.pass(2_000).await;
    let back = payer.client.transaction(id).await;
    assert_eq!(back["status"], "REFUNDED", "{back}");
    assert_eq!(why(&back), [Some("OFFRAMP_FAILED"), Some("RETURNED")]);
    assert_eq!(back["settledAt"], delivered["settledAt"]);
    assert_eq!(back["refund"]["status"], "COMPLETED");
    assert_eq!(back["refund"]["settledAt"], back["updatedAt"]);
    let notified = server.notified_statuses(id).await;
    assert_eq!(notified, ["PENDING", "PROCESSING", "COMPLETED", "FAILED", "REFUNDED"]);
    server.verify();
    // It is over: nothing more happens to it.
    server.pass(600_000).await;
    assert_eq!(payer.client.transaction(id).await, back);
    back
}

#[tokio::test]
async fn a_transfer_that_comes_back_is_available_again() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("185").await;
    let out = transfer(&payer.usd, &bank, 400);
    let out = payer.client.post("/transfer-out", &out).await.expect(201).clone();
    server.pass(1_000).await;
    assert_eq!(payer.balance().await, 600);
    came_back(&server, &payer, &out["id"]).await;
    assert_eq!(payer.balance().await, 1_000);
    let count = payer.client.count("/transactions?status=REFUNDED").await;
    assert_eq!((count, payer.client.count("/transactions?status=COMPLETED").await), (1, 1));
    // What was pulled in stays.
    let back = transfer(&bank, &payer.usd, 300);
    let pulled = payer.client.post("/transfer-in", &back).await.expect(201).clone();
    server.pass(600_000).await;
    assert_eq!(payer.client.transaction(&pulled["id"]).await["status"], "COMPLETED");
    assert_eq!(payer.balance().await, 1_300);
    server.verify();
}

#[tokio::test]
async fn a_jump_over_settlement_and_return_does_both() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("185").await;
    let out = transfer(&payer.usd, &bank, 400);
    let out = payer.client.post("/transfer-out", &out).await.expect(201).clone();
    let day = json!({ "advanceBySeconds": 86_400 });
    payer.client.post("/sandbox/clock", &day).await.expect(200);
    server.pass(0).await;
    let notified = server.notified_statuses(&out["id"]).await;
    assert_eq!(notified, ["PENDING", "PROCESSING", "COMPLETED", "FAILED", "REFUNDED"]);
    assert_eq!(payer.balance().await, 1_000);
    server.verify();
}

/// What the platform has earned in US dollars.
async fn fees(server: &Server, payer: &Payer) -> i64 {
    let currency = domain::currency::Currency::from_code("USD").expect("a currency");
    let account = AccountKey::Fees { platform: payer.client.platform, currency };
    let read = move |view: &mut store::reader::View<'_>| view.ledger_account(&account);
    let found = server.app.store().read(read).await.map_err(service::Error::Store);
    let found = found.expect("a read").expect("an account");
    let minor = found.balance.held_minor();
    Money::new(minor, currency).expect("an amount").minor()
}

#[tokio::test]
async fn a_quote_that_comes_back_is_reversed_with_its_fees() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let wallet = crate::pay::usdc_wallet(&payer.customer, "185");
    let wallet = payer.client.post("/customers/external-accounts", &wallet).await;
    let wallet = text(&wallet.expect(201)["id"]);
    let quote = payer.client.quote(&sending(&from(&payer.usd), &to(&wallet), 50_000)).await;
    payer.client.execute(&quote).await.expect(200);
    server.pass(1_000).await;
    assert!(fees(&server, &payer).await > 0);
    came_back(&server, &payer, &quote["transactionId"]).await;
    // The quote was executed, whatever became of the money.
    payer.client.stands_at(&quote, "COMPLETED", "REFUNDED").await;
    assert_eq!((payer.balance().await, fees(&server, &payer).await), (100_000, 0));
}

#[tokio::test]
async fn what_had_come_just_in_time_goes_to_the_internal_account() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let bank = payer.bank("185").await;
    let source = deposit("EUR", &payer.customer);
    let quote = payer.client.quote(&sending(&source, &to(&bank), 50_000)).await;
    payer.client.deposit(&quote, None).await.expect(200);
    came_back(&server, &payer, &quote["transactionId"]).await;
    let eur = payer.account("EUR").await;
    assert_eq!(payer.client.balance(&eur).await, 50_000);
}

#[tokio::test]
async fn what_comes_back_in_a_currency_that_is_off_is_the_senders_again() {
    let server = Server::new();
    let payer = Payer::with(&server, 400).await;
    let bank = payer.bank("185").await;
    let out = transfer(&payer.usd, &bank, 400);
    let out = payer.client.post("/transfer-out", &out).await.expect(201).clone();
    server.pass(1_000).await;
    let config = payer.client.get("/config").await.expect(200).clone();
    let all = &config["supportedCurrencies"];
    let others = all.as_array().expect("currencies").iter();
    let others: Vec<_> = others.filter(|each| each["currencyCode"] != "USD").collect();
    let change = serde_json::json!({ "supportedCurrencies": others });
    payer.client.patch("/config", &change).await.expect(200);
    came_back(&server, &payer, &out["id"]).await;
    let change = serde_json::json!({ "supportedCurrencies": all });
    payer.client.patch("/config", &change).await.expect(200);
    assert_eq!(payer.balance().await, 400);
}
