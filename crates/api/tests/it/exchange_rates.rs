//! Exchange rates (contract 6.14).

use serde_json::{Value, json};

use crate::pay::{Payer, from, sending, to};
use crate::support::{Server, text};

fn rows(value: &Value) -> &Vec<Value> {
    value["data"].as_array().expect("rows")
}

#[tokio::test]
async fn a_rate_is_what_a_quote_would_have() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    for (source, destination, amount) in [
        ("USD", "EUR", 10_000),
        ("EUR", "XOF", 123_456),
        ("VND", "BTC", 90_000_000),
        ("BTC", "USD", 5_000_000),
        ("USDC", "VND", 7_000_001),
    ] {
        let path = format!(
            "/exchange-rates?sourceCurrency={source}&destinationCurrency={destination}\
             &sendingAmount={amount}"
        );
        let rates = payer.client.get(&path).await.expect(200).clone();
        let (from_id, to_id) = (payer.account(source).await, payer.account(destination).await);
        let quote = payer.client.quote(&sending(&from(&from_id), &to(&to_id), amount)).await;
        assert!(!rows(&rates).is_empty());
        for rate in rows(&rates) {
            assert_eq!(rate["sourceCurrency"], quote["sendingCurrency"]);
            assert_eq!(rate["destinationCurrency"], quote["receivingCurrency"]);
            assert_eq!(rate["exchangeRate"], quote["exchangeRate"], "{path}");
            assert_eq!(rate["sendingAmount"], quote["totalSendingAmount"]);
            assert_eq!(rate["receivingAmount"], quote["totalReceivingAmount"]);
            assert_eq!(rate["fees"]["fixed"], quote["rateDetails"]["serviceApiFixedFee"]);
            assert_eq!(rate["minSendingAmount"], 1);
            assert_eq!(rate["maxSendingAmount"], 9_000_000_000_000_000_i64);
            assert!(rate["updatedAt"].is_string());
        }
    }
}

#[tokio::test]
async fn there_is_one_entry_for_each_rail_and_destination() {
    let server = Server::new();
    let client = server.platform().await;
    let ask = |query: &'static str| {
        let client = client.clone();
        async move { client.get(&format!("/exchange-rates?{query}")).await.expect(200).clone() }
    };
    let rates = ask("sourceCurrency=EUR&destinationCurrency=USD&destinationCurrency=GBP").await;
    let rail = |row: &Value| {
        let code = text(&row["destinationCurrency"]["code"]);
        (code, text(&row["destinationPaymentRail"]))
    };
    let mut found: Vec<_> = rows(&rates).iter().map(rail).collect();
    for wanted in [("USD", "ACH"), ("USD", "WIRE"), ("GBP", "FASTER_PAYMENTS")] {
        let wanted = (wanted.0.to_owned(), wanted.1.to_owned());
        assert!(found.contains(&wanted), "{wanted:?} in {found:?}");
    }
    let total = found.len();
    found.sort();
    found.dedup();
    assert_eq!(found.len(), total, "each stands once");
    assert!(found.iter().all(|(code, _)| code == "USD" || code == "GBP"));
    assert_eq!(rows(&rates)[0]["sendingAmount"], 10_000);
    // Every currency is a source and a destination, but none of itself.
    let all = ask("").await;
    assert!(rows(&all).iter().all(|row| row["sourceCurrency"] != row["destinationCurrency"]));
    let of_usd = ask("sourceCurrency=USD").await;
    let to_eur = ask("destinationCurrency=EUR").await;
    assert!(rows(&of_usd).len() >= 26 && rows(&to_eur).len() >= 26);
    assert!(rows(&all).len() > rows(&of_usd).len() * 20);
    let twice = ask("sourceCurrency=EUR&destinationCurrency=GBP&destinationCurrency=GBP").await;
    let once = ask("sourceCurrency=EUR&destinationCurrency=GBP").await;
    assert_eq!(twice, once);
    let none = ask("sourceCurrency=USD&destinationCurrency=USD").await;
    assert!(rows(&none).is_empty());
    let zero = ask("sourceCurrency=USD&destinationCurrency=EUR&sendingAmount=0").await;
    assert_eq!(rows(&zero)[0]["receivingAmount"], 0);
    let little = ask("sourceCurrency=USD&destinationCurrency=EUR&sendingAmount=51").await;
    assert_eq!(rows(&little)[0]["receivingAmount"], 0);
}

#[tokio::test]
async fn bad_questions_are_refused() {
    let server = Server::new();
    let client = server.platform().await;
    for (query, code) in [
        ("sourceCurrency=XXX", "INVALID_CURRENCY"),
        ("sourceCurrency=usd", "INVALID_CURRENCY"),
        ("sourceCurrency=", "INVALID_CURRENCY"),
        ("destinationCurrency=EUR&destinationCurrency=XXX", "INVALID_CURRENCY"),
        ("sendingAmount=-1", "INVALID_INPUT"),
        ("sendingAmount=1.5", "INVALID_INPUT"),
        ("sendingAmount=x", "INVALID_INPUT"),
        ("sendingAmount=", "INVALID_INPUT"),
        ("sendingAmount=9000000000000001", "INVALID_AMOUNT"),
        ("sendingAmount=9223372036854775808", "INVALID_AMOUNT"),
        ("sendingAmount=99999999999999999999999", "INVALID_AMOUNT"),
        ("sourceCurrency=USD&sourceCurrency=EUR", "INVALID_INPUT"),
    ] {
        client.get(&format!("/exchange-rates?{query}")).await.refused(400, code);
    }
    let most = "/exchange-rates?sourceCurrency=BTC&destinationCurrency=VND\
        &sendingAmount=9000000000000000";
    assert_eq!(rows(client.get(most).await.expect(200))[0]["receivingAmount"], 0);
}

#[tokio::test]
async fn limits_and_currencies_are_those_of_the_platform() {
    let server = Server::new();
    let client = server.platform().await;
    let currency = |code: &str, min: i64, max: i64| {
        json!({
            "currencyCode": code,
            "minAmount": min,
            "maxAmount": max,
            "requiredCounterpartyFields": [],
            "enabledTransactionTypes": ["OUTGOING", "INCOMING"],
        })
    };
    let two = json!([currency("USD", 10, 20), currency("EUR", 30, 40)]);
    client.patch("/config", &json!({ "supportedCurrencies": two })).await.expect(200);
    let rates = client.get("/exchange-rates").await.expect(200).clone();
    for rate in rows(&rates) {
        let limits = (&rate["minSendingAmount"], &rate["maxSendingAmount"]);
        match rate["sourceCurrency"]["code"].as_str() {
            Some("USD") => assert_eq!(limits, (&json!(10), &json!(20))),
            Some("EUR") => assert_eq!(limits, (&json!(30), &json!(40))),
            other => panic!("{other:?} is not supported"),
        }
    }
    let other = client.get("/exchange-rates?sourceCurrency=USD&destinationCurrency=GBP").await;
    assert!(rows(other.expect(200)).is_empty());
}
