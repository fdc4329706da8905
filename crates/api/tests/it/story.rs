//! The main job, from end to end.

use serde_json::json;

use crate::support::{Server, text};

#[tokio::test]
async fn a_payment_with_fx_runs_from_end_to_end() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let usd = client.funded(&customer, "USD", 100_000).await;
    let eur = client.account(Some(&customer), "EUR").await;
    let quote = client
        .post(
            "/quotes",
            &json!({
                "source": { "sourceType": "ACCOUNT", "accountId": usd },
                "destination": { "destinationType": "ACCOUNT", "accountId": eur },
                "lockedCurrencySide": "SENDING",
                "lockedCurrencyAmount": 100_000,
            }),
        )
        .await;
    let quote = quote.expect(201);
    assert_eq!(quote["status"], "PENDING");
    let received = quote["totalReceivingAmount"].as_i64().expect("an amount");
    let id = text(&quote["id"]);
    let executed = client.post(&format!("/quotes/{id}/execute"), &json!({})).await;
    assert_eq!(executed.expect(200)["status"], "COMPLETED");
    let transaction = text(&quote["transactionId"]);
    let transaction = client.get(&format!("/transactions/{transaction}")).await;
    assert_eq!(transaction.expect(200)["status"], "COMPLETED");
    assert_eq!(client.balance(&usd).await, 0);
    assert_eq!(client.balance(&eur).await, received);
    // The README shows this very payment.
    let readme = include_str!("../../../../README.md");
    let transaction = transaction.expect(200);
    for (field, value) in [
        ("amount", &transaction["sentAmount"]["amount"]),
        ("amount", &transaction["receivedAmount"]["amount"]),
        ("exchangeRate", &transaction["exchangeRate"]),
        ("fees", &transaction["fees"]),
        ("serviceApiMultiplier", &transaction["rateDetails"]["serviceApiMultiplier"]),
        ("counterpartyMultiplier", &transaction["rateDetails"]["counterpartyMultiplier"]),
    ] {
        let shown = format!("\"{field}\": {value}");
        assert!(readme.contains(&shown), "the README lacks {shown}");
    }
    server.verify();
}

#[tokio::test]
async fn a_transfer_out_completes_when_its_rail_settles() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let usd = client.funded(&customer, "USD", 1_000).await;
    let bank = client.usd_external(&customer, "789").await;
    let body = json!({
        "source": { "accountId": usd },
        "destination": { "accountId": bank },
        "amount": 400,
    });
    let transaction = client.post("/transfer-out", &body).await;
    let transaction = transaction.expect(201);
    assert_eq!(transaction["status"], "PENDING");
    assert_eq!(client.balance(&usd).await, 600);
    server.pass(1_000).await;
    let path = format!("/transactions/{}", text(&transaction["id"]));
    let transaction = client.get(&path).await;
    assert_eq!(transaction.expect(200)["status"], "COMPLETED");
    assert_eq!(client.balance(&usd).await, 600);
    server.verify();
}
