//! What a withdrawal to a wallet would cost.

use domain::platform::Mode;
use serde_json::{Value, json};

use crate::support::{Server, text};

/// A wallet on Solana that the table of account types takes.
const WALLET: &str = "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtVK";

fn withdrawal(account: &str, change: Value) -> Value {
    let mut body = json!({
        "internalAccountId": account,
        "currency": "USDC",
        "cryptoNetwork": "SOLANA_MAINNET",
        "amount": 1_000_000,
        "destinationAddress": WALLET,
    });
    for (name, value) in change.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn the_fees_of_a_withdrawal_are_estimated() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let account = client.account(Some(&customer), "USDC").await;
    let path = "/crypto/estimate-withdrawal-fee";
    let fees = client.post(path, &withdrawal(&account, json!({}))).await.expect(200).clone();
    let expected = json!({
        "networkFee": 5_000, "networkFeeAsset": "SOL",
        "applicationFee": 0, "totalFee": 0, "netAmount": 1_000_000,
    });
    assert_eq!(fees, expected);
    // What is estimated is what a withdrawal costs.
    let wallet = json!({
        "customerId": customer, "currency": "USDC", "cryptoNetwork": "SOLANA_MAINNET",
        "accountInfo": { "accountType": "SOLANA_WALLET", "address": WALLET },
    });
    let wallet = client.post("/customers/external-accounts", &wallet).await.expect(201).clone();
    client.fund(&account, 1_000_000).await;
    let transfer = json!({
        "source": { "accountId": account },
        "destination": { "accountId": wallet["id"] },
        "amount": 1_000_000,
    });
    let paid = client.post("/transfer-out", &transfer).await.expect(201).clone();
    assert_eq!(paid["receivedAmount"]["amount"], fees["netAmount"]);
}

#[tokio::test]
async fn what_cannot_be_withdrawn_is_refused() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let account = client.account(Some(&customer), "USDC").await;
    let dollars = client.account(Some(&customer), "USD").await;
    let path = "/crypto/estimate-withdrawal-fee";
    for (account, change, code) in [
        (&account, json!({ "cryptoNetwork": "TRON_MAINNET" }), "INVALID_INPUT"),
        (&account, json!({ "cryptoNetwork": "NOWHERE" }), "INVALID_INPUT"),
        (&account, json!({ "destinationAddress": "!" }), "INVALID_INPUT"),
        (&account, json!({ "currency": "XXX" }), "INVALID_CURRENCY"),
        (&dollars, json!({}), "INVALID_CURRENCY"),
        (&account, json!({ "amount": 0 }), "INVALID_AMOUNT"),
    ] {
        client.post(path, &withdrawal(account, change)).await.refused(400, code);
    }
    let other = server.platform().await;
    let theirs = withdrawal(&account, json!({}));
    other.post(path, &theirs).await.refused(404, "ACCOUNT_NOT_FOUND");
    // Nor is the currency shown of an account that is not there.
    let dollars = withdrawal(&dollars, json!({}));
    other.post(path, &dollars).await.refused(404, "ACCOUNT_NOT_FOUND");
    let no_ones = "InternalAccount:0199dccc-4a80-7000-8000-000000000000";
    client.post(path, &withdrawal(no_ones, json!({}))).await.refused(404, "ACCOUNT_NOT_FOUND");
    let live = server.platform_with(Mode::Live, true).await;
    let own = client_account(&live).await;
    let answer = live.post(path, &withdrawal(&own, json!({}))).await;
    assert_eq!(answer.refused(501, "NOT_IMPLEMENTED")["missing"], "PAYMENT_RAIL");
}

/// An account of the platform itself.
async fn client_account(client: &crate::support::Client) -> String {
    let accounts = client.get("/platform/internal-accounts?currency=USDC").await;
    text(&accounts.expect(200)["data"][0]["id"])
}
