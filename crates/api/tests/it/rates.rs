//! The file of rates: its time, its age, and what live platforms are quoted (docs/rates.md).

use std::path::PathBuf;
use std::sync::Arc;

use adapters::rates::feed::RateTable;
use domain::platform::Mode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pay::{from, sending, to};
use crate::support::{Client, START, Server};

const DAY_MILLIS: i64 = 86_400_000;

/// A file of rates with the price of the euro, which a test replaces.
struct File {
    _folder: TempDir,
    path: PathBuf,
}

impl File {
    fn new(as_of: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let file = Self { path: folder.path().join("rates.json"), _folder: folder };
        file.set(as_of, "1.1");
        file
    }

    fn set(&self, as_of: &str, euro: &str) {
        self.write(&json!({ "asOf": as_of, "currencies": { "EUR": { "usdPerUnit": euro } } }));
    }

    fn write(&self, rates: &Value) {
        std::fs::write(&self.path, rates.to_string()).expect("written");
    }

    fn table(&self) -> Arc<RateTable> {
        Arc::new(RateTable::of_file(&self.path, DAY_MILLIS).expect("rates"))
    }
}

/// A quote between two accounts of the platform.
async fn quote(client: &Client, sent: &str, received: &str) -> crate::support::Answer {
    let (sent, received) = (client.account(None, sent).await, client.account(None, received).await);
    client.post("/quotes", &sending(&from(&sent), &to(&received), 10_000)).await
}

/// What the basis of a quote's rate says.
async fn basis(client: &Client) -> [Value; 3] {
    let quote = quote(client, "USD", "EUR").await.expect(201).clone();
    let basis = &quote["rateDetails"]["rateBasis"];
    ["midRate", "midRateAt", "midRateSource"].map(|field| basis[field].clone())
}

/// A live platform is refused a quote, and exchange rates, with this reason.
async fn refused(client: &Client, sent: &str, received: &str, why: &str) {
    let query = format!("sourceCurrency={sent}&destinationCurrency={received}");
    let rates = client.get(&format!("/exchange-rates?{query}")).await;
    for answer in [quote(client, sent, received).await, rates] {
        answer.refused(400, "QUOTE_REQUEST_FAILED");
        let message = answer.body["message"].as_str().expect("a message");
        assert!(message.contains(why), "{message}");
    }
}

#[tokio::test]
async fn a_rate_has_the_time_of_its_file_and_not_of_the_quote() {
    const AS_OF: &str = "2025-10-13T05:00:00.000Z";
    let file = File::new(AS_OF);
    let server = Server::with_rates(&file.table());
    for mode in [Mode::Sandbox, Mode::Live] {
        let client = server.platform_with(mode, true).await;
        let expected = [json!(1.1), json!(AS_OF), json!("RATES_FILE")];
        assert_eq!(basis(&client).await, expected);
        let path = "/exchange-rates?sourceCurrency=USD&destinationCurrency=EUR";
        let rates = client.get(path).await;
        assert_eq!(rates.expect(200)["data"][0]["updatedAt"], AS_OF);
    }
    server.verify();
}

#[tokio::test]
async fn live_platforms_are_quoted_the_operators_prices_while_they_are_new() {
    let file = File::new(START);
    let server = Server::with_rates(&file.table());
    let live = server.platform_with(Mode::Live, true).await;
    let sandbox = server.platform().await;
    basis(&live).await;
    // The built-in price of a currency is not the market's.
    refused(&live, "USD", "GBP", "do not name it").await;
    quote(&sandbox, "USD", "GBP").await.expect(201);
    server.pass(DAY_MILLIS).await;
    basis(&live).await;
    server.pass(1).await;
    refused(&live, "USD", "EUR", "are of 2025-10-13T09:00:00.000Z, and none are used").await;
    quote(&sandbox, "USD", "EUR").await.expect(201);
    server.verify();
}

#[tokio::test]
async fn no_price_of_the_built_in_table_is_for_real_money() {
    let server = Server::new();
    let live = server.platform_with(Mode::Live, true).await;
    refused(&live, "USD", "EUR", "no file of rates").await;
    // Neither are those of a file without a time, nor of one that has not come.
    let euro = json!({ "EUR": { "usdPerUnit": "1.1" } });
    let file = File::new(START);
    for (rates, why) in [
        (json!({ "currencies": euro }), "2025-11-21"),
        (json!({ "asOf": "2030-01-01T00:00:00Z", "currencies": euro }), "has not come"),
    ] {
        file.write(&rates);
        let server = Server::with_rates(&file.table());
        let live = server.platform_with(Mode::Live, true).await;
        refused(&live, "USD", "EUR", why).await;
        quote(&server.platform().await, "USD", "EUR").await.expect(201);
    }
}

#[tokio::test]
async fn a_file_that_changes_is_read_again_and_a_broken_one_changes_nothing() {
    let file = File::new(START);
    let table = file.table();
    let server = Server::with_rates(&table);
    let live = server.platform_with(Mode::Live, true).await;
    assert_eq!(table.refresh(), Ok(false));
    server.pass(DAY_MILLIS).await;
    file.set("2025-10-14T09:00:00Z", "1.25");
    assert_eq!(table.refresh(), Ok(true));
    let expected = [json!(1.25), json!("2025-10-14T09:00:00.000Z"), json!("RATES_FILE")];
    assert_eq!(basis(&live).await, expected);
    for broken in [json!("no table"), json!({ "currencies": { "EUR": { "usdPerUnit": "much" } } })]
    {
        file.write(&broken);
        let error = table.refresh().expect_err("broken").to_string();
        assert!(error.contains("rates.json"), "{error}");
        assert_eq!(table.refresh(), Ok(false), "said once");
        assert_eq!(basis(&live).await, expected);
    }
    std::fs::remove_file(&file.path).expect("removed");
    table.refresh().expect_err("gone");
    assert_eq!(table.refresh(), Ok(false));
    assert_eq!(basis(&live).await, expected);
    file.set("2025-10-14T09:00:00Z", "1.5");
    assert_eq!(table.refresh(), Ok(true));
    assert_eq!(basis(&live).await[0], json!(1.5));
}
