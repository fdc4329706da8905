//! Quotes whose money is pulled from an external account.

use serde_json::{Value, json};

use crate::support::{Client, Server, text, why};

/// A quote of 100 dollars from one account to another.
async fn between(client: &Client, from: &str, to: &str) -> Value {
    let body = json!({
        "source": { "sourceType": "ACCOUNT", "accountId": from },
        "destination": { "destinationType": "ACCOUNT", "accountId": to },
        "lockedCurrencySide": "SENDING",
        "lockedCurrencyAmount": 10_000,
    });
    client.post("/quotes", &body).await.expect(201).clone()
}

/// A customer with a bank account of this suffix and a quote of 100 dollars from it to euros.
async fn quote(client: &Client, suffix: &str) -> (String, Value) {
    let customer = client.customer().await;
    let bank = client.usd_external(&customer, suffix).await;
    let eur = client.account(Some(&customer), "EUR").await;
    let quote = between(client, &bank, &eur).await;
    (customer, quote)
}

/// A customer, another one, and a quote from a bank account of the first to euros of the other.
async fn to_another(client: &Client) -> (String, String, Value) {
    let (customer, payee) = (client.customer().await, client.customer().await);
    let eur = client.account(Some(&payee), "EUR").await;
    let bank = client.usd_external(&customer, "790").await;
    let quote = between(client, &bank, &eur).await;
    (customer, payee, quote)
}

async fn execute(client: &Client, quote: &Value) -> Value {
    let path = format!("/quotes/{}/execute", text(&quote["id"]));
    client.post(&path, &json!({})).await.expect(200).clone()
}

async fn transaction(client: &Client, quote: &Value) -> Value {
    let path = format!("/transactions/{}", text(&quote["transactionId"]));
    client.get(&path).await.expect(200).clone()
}

#[tokio::test]
async fn a_quote_from_a_bank_account_completes_once_the_money_was_pulled() {
    let server = Server::new();
    let client = server.platform().await;
    let (customer, quote) = quote(&client, "789").await;
    assert_eq!(execute(&client, &quote).await["status"], "PROCESSING");
    let eur = client.account(Some(&customer), "EUR").await;
    assert_eq!(client.balance(&eur).await, 0);
    server.verify();
    server.pass(1_000).await;
    assert_eq!(transaction(&client, &quote).await["status"], "COMPLETED");
    assert_eq!(Some(client.balance(&eur).await), quote["totalReceivingAmount"].as_i64());
    server.verify();
}

#[tokio::test]
async fn a_bank_account_that_does_not_pay_fails_the_quote_and_nothing_moves() {
    for (suffix, reason) in [
        ("002", "INSUFFICIENT_FUNDS"),
        ("003", "ACCOUNT_INVALID"),
        // The bank that refuses is that of the sender.
        ("004", "DEBIT_REJECTED"),
        ("005", "TIMEOUT"),
    ] {
        let server = Server::new();
        let client = server.platform().await;
        let (customer, quote) = quote(&client, suffix).await;
        execute(&client, &quote).await;
        server.pass(1_000).await;
        server.pass(30_000).await;
        let transaction = transaction(&client, &quote).await;
        assert_eq!(transaction["status"], "FAILED", "{suffix}");
        let reason = [Some("QUOTE_EXECUTION_FAILED"), Some(reason)];
        assert_eq!(why(&transaction), reason, "{suffix}");
        assert!(transaction["refund"].is_null(), "{suffix}: nothing had come");
        for currency in ["USD", "EUR"] {
            let account = client.account(Some(&customer), currency).await;
            assert_eq!(client.balance(&account).await, 0, "{suffix} {currency}");
        }
        server.verify();
    }
}

#[tokio::test]
async fn nothing_is_pulled_that_could_not_go_on() {
    let server = Server::new();
    let client = server.platform().await;
    let (_, payee, quote) = to_another(&client).await;
    client.delete(&format!("/customers/{payee}")).await.expect(200);
    let path = format!("/quotes/{}/execute", text(&quote["id"]));
    client.post(&path, &json!({})).await.refused(410, "CUSTOMER_DELETED");
    server.pass(1_000).await;
    assert_eq!(transaction(&client, &quote).await["status"], "PENDING");
    server.verify();
}

#[tokio::test]
async fn pulled_money_that_can_no_longer_go_on_is_kept_for_the_sender() {
    let server = Server::new();
    let client = server.platform().await;
    let (customer, payee, quote) = to_another(&client).await;
    execute(&client, &quote).await;
    client.delete(&format!("/customers/{payee}")).await.expect(200);
    server.pass(1_000).await;
    assert_eq!(transaction(&client, &quote).await["status"], "REFUNDED");
    let usd = client.account(Some(&customer), "USD").await;
    assert_eq!(client.balance(&usd).await, 10_000);
    server.verify();
}

#[tokio::test]
async fn a_pulled_payment_that_the_receiving_bank_refuses_goes_to_the_internal_account() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let from = client.usd_external(&customer, "789").await;
    let to = client.usd_external(&customer, "004").await;
    let quote = between(&client, &from, &to).await;
    execute(&client, &quote).await;
    server.pass(1_000).await;
    server.pass(1_000).await;
    assert_eq!(transaction(&client, &quote).await["status"], "REJECTED");
    let usd = client.account(Some(&customer), "USD").await;
    assert_eq!(client.balance(&usd).await, 10_000);
    server.verify();
}

#[tokio::test]
async fn a_wallet_cannot_be_pulled_from() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let wallet = json!({
        "customerId": customer,
        "currency": "USDC",
        "cryptoNetwork": "SOLANA_DEVNET",
        "accountInfo": {
            "accountType": "SOLANA_WALLET",
            "address": "7xKXtg2CW87d97TXJSDpbD5jBkheTqA83TZRuJosgAsU",
        },
    });
    let wallet = client.post("/customers/external-accounts", &wallet).await.expect(201).clone();
    let eur = client.account(Some(&customer), "EUR").await;
    let body = json!({
        "source": { "sourceType": "ACCOUNT", "accountId": wallet["id"] },
        "destination": { "destinationType": "ACCOUNT", "accountId": eur },
        "lockedCurrencySide": "SENDING",
        "lockedCurrencyAmount": 10_000_000,
    });
    client.post("/quotes", &body).await.refused(400, "INVALID_BANK_ACCOUNT");
}

#[tokio::test]
async fn an_answer_about_the_pull_never_settles_the_payout() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let from = client.usd_external(&customer, "789").await;
    let to = client.usd_external(&customer, "005").await;
    let quote = between(&client, &from, &to).await;
    execute(&client, &quote).await;
    server.clock.advance_millis(1_000);
    // Two job loops look at the same timer and both hear that the pull has settled.
    let (one, other) =
        tokio::join!(service::jobs::step(&server.app), service::jobs::step(&server.app),);
    assert_eq!((one.expect("a step").failed, other.expect("a step").failed), (0, 0));
    // The payee's bank has not answered yet.
    assert_eq!(transaction(&client, &quote).await["status"], "PROCESSING");
    server.verify();
    server.pass(60_000).await;
    assert_eq!(transaction(&client, &quote).await["status"], "REFUNDED");
    server.verify();
}

#[tokio::test]
async fn money_that_the_platform_sent_for_a_customer_goes_back_to_the_platform() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let mut bank = crate::support::usd_external(None, "789");
    bank["accountInfo"]["paymentRails"] = json!(["WIRE"]);
    let from = client.post("/platform/external-accounts", &bank).await.expect(201).clone();
    let to = client.usd_external(&customer, "004").await;
    let body = json!({
        "source": { "sourceType": "ACCOUNT", "accountId": from["id"], "customerId": customer },
        "destination": { "destinationType": "ACCOUNT", "accountId": to },
        "lockedCurrencySide": "SENDING",
        "lockedCurrencyAmount": 10_000,
    });
    let quote = client.post("/quotes", &body).await.expect(201).clone();
    execute(&client, &quote).await;
    server.pass(1_000).await;
    server.pass(1_000).await;
    assert_eq!(transaction(&client, &quote).await["status"], "REJECTED");
    let platforms = client.account(None, "USD").await;
    assert_eq!(client.balance(&platforms).await, 10_000);
    let customers = client.account(Some(&customer), "USD").await;
    assert_eq!(client.balance(&customers).await, 0);
    // It came over the rail of the account that it was pulled from.
    let id = domain::id::TransactionId::parse(&text(&quote["transactionId"])).expect("an id");
    let postings = server.app.store().read(move |view| view.postings(id)).await;
    let funding = &postings.map_err(service::Error::Store).expect("postings")[0].entries[0];
    let rail = format!("rail {} WIRE USD", client.platform);
    assert_eq!(funding.account().to_string(), rail);
    server.verify();
}
