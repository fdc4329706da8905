//! Deposits of the sandbox (contract 6.18). Those for quotes are in `quotes`.

use domain::platform::Mode;
use serde_json::{Value, json};

use crate::pay::{Payer, usd};
use crate::support::{START, Server};

#[tokio::test]
async fn funding_credits_at_once_and_shows_a_completed_transaction() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let path = format!("/sandbox/internal-accounts/{}/fund", payer.usd);
    let account = payer.client.post(&path, &json!({ "amount": 1 })).await.expect(200).clone();
    assert_eq!(account["id"], payer.usd);
    assert_eq!(account["balance"], usd(1));
    let most = json!({ "amount": 100_000_000_000_i64 });
    let account = payer.client.post(&path, &most).await.expect(200).clone();
    assert_eq!(account["balance"], usd(100_000_000_001));
    assert_eq!(payer.balance().await, 100_000_000_001);
    let path = format!("/customers/internal-accounts?customerId={}&currency=USD", payer.customer);
    let listed = payer.client.get(&path).await.expect(200)["data"][0].clone();
    assert_eq!(listed, account);
    let list = payer.client.get("/transactions?sortOrder=asc").await.expect(200).clone();
    assert_eq!(list["totalCount"], 2);
    let first = &list["data"][0];
    assert_eq!(
        first,
        &json!({
            "id": first["id"],
            "status": "COMPLETED",
            "type": "INCOMING",
            "direction": "CREDIT",
            "destination":
                { "destinationType": "ACCOUNT", "accountId": payer.usd, "currency": "USD" },
            "customerId": payer.customer,
            "platformCustomerId": first["platformCustomerId"],
            "receivedAmount": usd(1),
            "settledAt": START,
            "createdAt": START,
            "updatedAt": START,
            "reconciliationInstructions": first["reconciliationInstructions"],
        })
    );
    let notified = server.notified_statuses(&first["id"]).await;
    assert_eq!(notified, ["PENDING", "PROCESSING", "COMPLETED"]);
    server.verify();
}

#[tokio::test]
async fn the_platform_funds_its_own_accounts() {
    let server = Server::new();
    let client = server.platform().await;
    let account = client.account(None, "BTC").await;
    client.fund(&account, 5).await;
    let list = client.get("/transactions").await.expect(200).clone();
    assert_eq!(list["data"][0]["customerId"], client.platform.to_string());
    assert_eq!(list["data"][0]["platformCustomerId"], client.platform.to_string());
    assert_eq!(client.balance(&account).await, 5);
    server.verify();
}

#[tokio::test]
async fn funding_has_bounds() {
    let server = Server::new();
    let payer = Payer::with(&server, 7).await;
    let path = format!("/sandbox/internal-accounts/{}/fund", payer.usd);
    for amount in [0, -1, 100_000_000_001, i64::MAX] {
        let answer = payer.client.post(&path, &json!({ "amount": amount })).await;
        answer.refused(400, "INVALID_AMOUNT");
    }
    payer.client.post(&path, &json!({})).await.refused(400, "INVALID_AMOUNT");
    for amount in [json!("5"), json!(0.5)] {
        let answer = payer.client.post(&path, &json!({ "amount": amount })).await;
        answer.refused(400, "INVALID_INPUT");
    }
    assert_eq!(payer.balance().await, 7);
    assert_eq!(payer.client.count("/transactions").await, 1);
    server.verify();
}

#[tokio::test]
async fn an_account_never_holds_more_than_it_may() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let bank = payer.bank("789").await;
    let most = 9_000_000_000_000_000_i64;
    let almost = crate::pay::transfer(&bank, &payer.usd, most - 10);
    payer.client.post("/transfer-in", &almost).await.expect(201);
    let path = format!("/sandbox/internal-accounts/{}/fund", payer.usd);
    // What is on its way counts.
    let answer = payer.client.post(&path, &json!({ "amount": 11 })).await;
    assert_eq!(answer.refused(400, "AMOUNT_OUT_OF_RANGE")["maxBalance"], most);
    server.pass(1_000).await;
    payer.client.post(&path, &json!({ "amount": 11 })).await.refused(400, "AMOUNT_OUT_OF_RANGE");
    payer.client.fund(&payer.usd, 10).await;
    payer.client.post(&path, &json!({ "amount": 1 })).await.refused(400, "AMOUNT_OUT_OF_RANGE");
    assert_eq!(payer.balance().await, most);
    server.verify();
}

#[tokio::test]
async fn only_accounts_of_the_platform_can_be_funded() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let stranger = Payer::with(&server, 0).await;
    let bank = payer.bank("789").await;
    let unknown = "InternalAccount:0199dccc-4a80-7000-8000-000000000348";
    for account in [stranger.usd.as_str(), unknown, "x", "InternalAccount:x", &bank] {
        let path = format!("/sandbox/internal-accounts/{account}/fund");
        let answer = payer.client.post(&path, &json!({ "amount": 5 })).await;
        answer.refused(404, "ACCOUNT_NOT_FOUND");
    }
    payer.client.delete_customer(&payer.customer).await;
    let path = format!("/sandbox/internal-accounts/{}/fund", payer.usd);
    payer.client.post(&path, &json!({ "amount": 5 })).await.refused(410, "CUSTOMER_DELETED");
    server.verify();
}

#[tokio::test]
async fn real_money_does_not_come_from_the_sandbox() {
    let server = Server::new();
    let client = server.platform_with(Mode::Live, true).await;
    let account = client.account(None, "USD").await;
    let path = format!("/sandbox/internal-accounts/{account}/fund");
    client.post(&path, &json!({ "amount": 5 })).await.refused(403, "FORBIDDEN");
    let body = json!({
        "quoteId": "Quote:0199dccc-4a80-7000-8000-000000000001",
        "currencyCode": "USD",
    });
    client.post("/sandbox/send", &body).await.refused(403, "FORBIDDEN");
    assert_eq!(client.balance(&account).await, 0);
    assert_eq!(client.count("/transactions").await, 0);
    server.verify();
}

#[tokio::test]
async fn what_may_come_back_counts_as_held() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let most = 9_000_000_000_000_000_i64;
    let (bank, bad) = (payer.bank("789").await, payer.bank("005").await);
    let all = crate::pay::transfer(&bank, &payer.usd, most);
    payer.client.post("/transfer-in", &all).await.expect(201);
    server.pass(1_000).await;
    let out = crate::pay::transfer(&payer.usd, &bad, most);
    payer.client.post("/transfer-out", &out).await.expect(201);
    assert_eq!(payer.balance().await, 0);
    let path = format!("/sandbox/internal-accounts/{}/fund", payer.usd);
    payer.client.post(&path, &json!({ "amount": 1 })).await.refused(400, "AMOUNT_OUT_OF_RANGE");
    payer.client.post("/transfer-in", &all).await.refused(400, "AMOUNT_OUT_OF_RANGE");
    server.pass(30_000).await;
    assert_eq!(payer.balance().await, most);
    server.verify();
}

#[tokio::test]
async fn money_that_comes_to_a_full_account_is_kept() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let most = 9_000_000_000_000_000_i64;
    let bank = payer.bank("789").await;
    let eur = payer.account("EUR").await;
    let all = crate::pay::transfer(&bank, &payer.usd, most);
    payer.client.post("/transfer-in", &all).await.expect(201);
    server.pass(1_000).await;
    let source = crate::pay::deposit("USD", &payer.customer);
    let body = crate::pay::sending(&source, &crate::pay::to(&eur), 100_000);
    let quote = payer.client.quote(&body).await;
    let sent = payer.client.deposit(&quote, Some(most)).await;
    assert_eq!(sent.expect(200)["status"], "REFUNDED");
    assert_eq!(payer.balance().await, 2 * most);
    server.verify();
}

#[tokio::test]
async fn money_for_a_deleted_customer_waits_for_a_person_or_is_the_platforms() {
    let server = Server::new();
    let client = server.platform().await;
    let (customer, payee) = (client.customer().await, client.customer().await);
    let eur = client.account(Some(&payee), "EUR").await;
    let quote = async || {
        let body = json!({
            "source": {
                "sourceType": "REALTIME_FUNDING", "currency": "USD", "customerId": customer,
            },
            "destination": { "destinationType": "ACCOUNT", "accountId": eur },
            "lockedCurrencySide": "SENDING",
            "lockedCurrencyAmount": 10_000,
        });
        client.post("/quotes", &body).await.expect(201)["id"].clone()
    };
    let (in_time, late) = (quote().await, quote().await);
    client.delete(&format!("/customers/{customer}")).await.expect(200);
    let send = async |quote: &Value| {
        let body = json!({ "quoteId": quote, "currencyCode": "USD" });
        client.post("/sandbox/send", &body).await.expect(200)["status"].clone()
    };
    // The payer is gone: it waits in suspense (`attention`).
    assert_eq!(send(&in_time).await, "FAILED");
    server.pass(600_000).await;
    assert_eq!(send(&late).await, "EXPIRED");
    let platforms = client.account(None, "USD").await;
    assert_eq!(client.balance(&platforms).await, 10_000);
    server.verify();
}
