//! Bodies and steps that the tests of payments share.

use domain::id::TransactionId;
use serde_json::{Value, json};

use crate::support::{Answer, Call, Client, Server, text};

/// The body of a transfer.
pub fn transfer(source: &str, destination: &str, amount: i64) -> Value {
    json!({
        "source": { "accountId": source },
        "destination": { "accountId": destination },
        "amount": amount,
    })
}

/// An account as the source of a quote.
pub fn from(account: &str) -> Value {
    json!({ "sourceType": "ACCOUNT", "accountId": account })
}

/// A deposit as the source of a quote.
pub fn deposit(currency: &str, customer: &str) -> Value {
    json!({ "sourceType": "REALTIME_FUNDING", "currency": currency, "customerId": customer })
}

/// An account as the destination of a quote.
pub fn to(account: &str) -> Value {
    json!({ "destinationType": "ACCOUNT", "accountId": account })
}

/// The body of a quote whose sending side is locked.
pub fn sending(source: &Value, destination: &Value, amount: i64) -> Value {
    locked("SENDING", source, destination, amount)
}

/// The body of a quote.
pub fn locked(side: &str, source: &Value, destination: &Value, amount: i64) -> Value {
    json!({
        "source": source,
        "destination": destination,
        "lockedCurrencySide": side,
        "lockedCurrencyAmount": amount,
    })
}

/// An amount as answers show it, in US dollars.
pub fn usd(amount: i64) -> Value {
    let currency =
        json!({ "code": "USD", "name": "United States dollar", "symbol": "$", "decimals": 2 });
    json!({ "amount": amount, "currency": currency })
}

/// The body of a Solana wallet that holds USDC.
pub fn usdc_wallet(customer: &str, suffix: &str) -> Value {
    json!({
        "customerId": customer,
        "currency": "USDC",
        "cryptoNetwork": "SOLANA_DEVNET",
        "accountInfo": {
            "accountType": "SOLANA_WALLET",
            "address": format!("7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCF{suffix}"),
        },
    })
}

/// An id as the store knows it.
pub fn transaction_id(value: &Value) -> TransactionId {
    TransactionId::parse(&text(value)).expect("a transaction's id")
}

/// A client with a customer, who has money in US dollars.
pub struct Payer {
    pub client: Client,
    pub customer: String,
    pub usd: String,
}

impl Payer {
    /// On a new platform.
    pub async fn with(server: &Server, amount: i64) -> Self {
        Self::on(server.platform().await, amount).await
    }

    /// A new customer of a platform.
    pub async fn on(client: Client, amount: i64) -> Self {
        let customer = client.customer().await;
        let usd = client.account(Some(&customer), "USD").await;
        if amount > 0 {
            client.fund(&usd, amount).await;
        }
        Self { client, customer, usd }
    }

    /// The customer's account in a currency.
    pub async fn account(&self, currency: &str) -> String {
        self.client.account(Some(&self.customer), currency).await
    }

    /// What the customer's account in US dollars has.
    pub async fn balance(&self) -> i64 {
        self.client.balance(&self.usd).await
    }

    /// A bank account of the customer.
    pub async fn bank(&self, suffix: &str) -> String {
        self.client.usd_external(&self.customer, suffix).await
    }
}

impl Client {
    /// Sends a JSON body with an idempotency key.
    pub async fn post_once(&self, path: &str, key: &str, body: &Value) -> Answer {
        self.send("POST", path, Call::json(body).key(key)).await
    }

    /// Makes a quote.
    pub async fn quote(&self, body: &Value) -> Value {
        self.post("/quotes", body).await.expect(201).clone()
    }

    /// Executes a quote.
    pub async fn execute(&self, quote: &Value) -> Answer {
        self.send("POST", &format!("/quotes/{}/execute", text(&quote["id"])), Call::default()).await
    }

    /// Shows a quote again.
    pub async fn quote_again(&self, quote: &Value) -> Value {
        self.get(&format!("/quotes/{}", text(&quote["id"]))).await.expect(200).clone()
    }

    /// The transaction with this id.
    pub async fn transaction(&self, id: &Value) -> Value {
        self.get(&format!("/transactions/{}", text(id))).await.expect(200).clone()
    }

    /// The transaction of a quote.
    pub async fn transaction_of(&self, quote: &Value) -> Value {
        self.transaction(&quote["transactionId"]).await
    }

    /// Checks the statuses of a quote and of its transaction, which it gives.
    pub async fn stands_at(&self, quote: &Value, of_quote: &str, of_transaction: &str) -> Value {
        let shown = self.quote_again(quote).await;
        let transaction = self.transaction_of(quote).await;
        let statuses = (&shown["status"], &transaction["status"]);
        assert_eq!(statuses, (&json!(of_quote), &json!(of_transaction)), "{transaction}");
        transaction
    }

    /// Makes the deposit that a quote waits for.
    pub async fn deposit(&self, quote: &Value, amount: Option<i64>) -> Answer {
        let mut body = json!({
            "quoteId": quote["id"],
            "currencyCode": quote["sendingCurrency"]["code"],
        });
        if let Some(amount) = amount {
            body["currencyAmount"] = json!(amount);
        }
        self.post("/sandbox/send", &body).await
    }

    /// How many rows a list has in all.
    pub async fn count(&self, path: &str) -> u64 {
        self.get(path).await.expect(200)["totalCount"].as_u64().expect("a number")
    }

    /// Sets what may be sent in US dollars.
    pub async fn limit_usd(&self, min: i64, max: i64) {
        self.set_of_currency("USD", &[("minAmount", json!(min)), ("maxAmount", json!(max))]).await;
    }

    /// Sets parts of what the configuration says about a currency.
    pub async fn set_of_currency(&self, code: &str, parts: &[(&str, Value)]) {
        let config = self.get("/config").await.expect(200).clone();
        let mut currencies = config["supportedCurrencies"].clone();
        let named = currencies.as_array_mut().expect("currencies").iter_mut();
        for currency in named.filter(|currency| currency["currencyCode"] == code) {
            for (name, value) in parts {
                currency[*name] = value.clone();
            }
        }
        self.patch("/config", &json!({ "supportedCurrencies": currencies })).await.expect(200);
    }

    /// Has a currency on for these ways only.
    pub async fn allow_only(&self, code: &str, ways: &[&str]) {
        self.set_of_currency(code, &[("enabledTransactionTypes", json!(ways))]).await;
    }

    /// Sets what is known about a customer's identity.
    pub async fn set_kyc(&self, customer: &str, status: &str) {
        let body = json!({ "customerType": "INDIVIDUAL", "kycStatus": status });
        self.patch(&format!("/customers/{customer}"), &body).await.expect(200);
    }

    /// Deletes a customer that has nothing.
    pub async fn delete_customer(&self, customer: &str) {
        self.delete(&format!("/customers/{customer}")).await.expect(200);
    }
}

impl Server {
    /// What the platform was notified about a transaction, in order; checks numbers, ids, times and
    /// the envelope.
    pub async fn notified(&self, id: &Value) -> Vec<Value> {
        let resource = transaction_id(id).uuid();
        let events = self.events_of(resource).await;
        let mut notified = Vec::new();
        // A payment from another institution begins as CREATED, of which no platform is notified.
        let first = events.first().map_or(1, |event| event.number);
        assert!((1..=2).contains(&first), "{first}");
        for (number, event) in (first..).zip(&events) {
            assert_eq!(event.number, number);
            assert_eq!(event.id, domain::event::event_id(resource, number));
            let body: Value = serde_json::from_slice(&event.body).expect("JSON");
            let keys: Vec<_> = body.as_object().expect("an object").keys().collect();
            assert_eq!(keys.len(), 4, "{keys:?}");
            assert_eq!(body["id"], event.id.to_string());
            assert_eq!(body["timestamp"], event.at.to_string());
            assert_eq!(body["timestamp"], body["data"]["updatedAt"]);
            assert_eq!(text(&body["type"]), format!("{}_PAYMENT", text(&body["data"]["type"])));
            notified.push(body["data"].clone());
        }
        notified
    }

    /// The statuses that the platform was notified of, in order.
    pub async fn notified_statuses(&self, id: &Value) -> Vec<String> {
        self.notified(id).await.iter().map(|data| text(&data["status"])).collect()
    }
}
