//! A client of the API that shows what it does.

use std::time::Duration;

use adapters::outbound::choose_cryptography;
use reqwest::{Client as Http, Method};
use serde_json::{Map, Value, json};

use crate::command::{Failure, print};
use crate::config::ClientCredentials;
use crate::demo::instance::Instance;

/// The rail of the story settles within a second; this is patient with a busy machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);

/// Between two reads of a payment that is under way.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// An answer of this machine to itself that takes longer will not come. A quote to a UMA address
/// waits for the other institution, which has nine seconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);

/// Where a list has the one row that the story asked for.
const FIRST_ROW: &str = "data.0.";

/// The parts of a quote that the story shows.
pub(super) const QUOTE_PARTS: [&str; 8] = [
    "id",
    "status",
    "exchangeRate",
    "feesIncluded",
    "totalSendingAmount",
    "totalReceivingAmount",
    "expiresAt",
    "transactionId",
];

/// A payment to a UMA address.
#[derive(Clone, Copy)]
pub(super) struct ToAddress<'a> {
    /// The customer who pays.
    pub(super) customer: &'a str,
    /// The internal account that pays.
    pub(super) account: &'a str,
    /// The address that is paid.
    pub(super) address: &'a str,
    /// The currency that arrives.
    pub(super) currency: &'a str,
    /// The side whose amount is fixed.
    pub(super) locked: &'a str,
    /// The amount of that side, in its smallest unit.
    pub(super) amount: i64,
}

/// A platform's client.
pub(super) struct Client {
    http: Http,
    /// Stands before each call, where more than one server is called.
    label: String,
    base_url: String,
    credentials: ClientCredentials,
}

/// An answer.
pub(super) struct Answer {
    status: u16,
    pub(super) is_replay: bool,
    body: Value,
}

impl Client {
    /// A client of this server. `label` says who calls, where it is not clear.
    pub(super) fn new(instance: &Instance, label: &str) -> Result<Self, Failure> {
        // A proxy that the environment names is not on the way to this machine itself.
        choose_cryptography();
        let http = Http::builder().no_proxy().timeout(ANSWERED_WITHIN).build();
        let http = http.map_err(|error| Failure::new(format!("no HTTP client: {error}")))?;
        let label = if label.is_empty() { String::new() } else { format!("{label}: ") };
        let base_url = instance.base_url.clone();
        Ok(Self { http, label, base_url, credentials: instance.first.credentials.clone() })
    }

    /// Makes a customer of the platform: its id and its address.
    pub(super) async fn customer(
        &self,
        id: &str,
        name: &str,
        nationality: &str,
    ) -> Result<(String, String), Failure> {
        let body = json!({
            "customerType": "INDIVIDUAL",
            "platformCustomerId": id,
            "fullName": name,
            "birthDate": "1985-12-10",
            "nationality": nationality,
        });
        let shown = ["id", "umaAddress", "kycStatus"];
        let customer = self.post("/customers", &body, &shown).await?.expect(201)?;
        Ok((text(&customer, "id")?, text(&customer, "umaAddress")?))
    }

    /// The id of a customer's account.
    pub(super) async fn account(&self, customer: &str, currency: &str) -> Result<String, Failure> {
        let path =
            format!("/customers/internal-accounts?customerId={customer}&currency={currency}");
        let answer = self.get(&path, &["data.0.id", "data.0.balance.amount"]).await?;
        text(&answer.expect(200)?["data"][0], "id")
    }

    /// Money that the sandbox makes.
    pub(super) async fn fund(&self, account: &str, amount: i64) -> Result<(), Failure> {
        let path = format!("/sandbox/internal-accounts/{account}/fund");
        let body = json!({ "amount": amount });
        let answer = self.post(&path, &body, &["balance.amount"]).await?.expect(200)?;
        same(&answer["balance"]["amount"], &json!(amount))
    }

    /// The transaction once it is under way no more.
    pub(super) async fn ended(&self, id: &str) -> Result<Value, Failure> {
        let path = format!("/transactions/{id}");
        let read = async {
            loop {
                let transaction = self.ask(Method::GET, &path, None, None).await?.expect(200)?;
                let status = text(&transaction, "status")?;
                if !["PENDING", "PROCESSING"].contains(&status.as_str()) {
                    return Ok(());
                }
                pause(READ_AGAIN_AFTER).await;
            }
        };
        tokio::time::timeout(SETTLED_WITHIN, read)
            .await
            .unwrap_or_else(|_| Err(Failure::new(format!("{id} did not end in time"))))?;
        self.get(&path, &["status", "settledAt", "refund"]).await?.expect(200)
    }

    /// Pays a UMA address: lookup, quote, execution. Gives the quote once its payment is
    /// `COMPLETED`.
    pub(super) async fn pay_address(&self, order: &ToAddress<'_>) -> Result<Value, Failure> {
        let ToAddress { customer, account, address, currency, locked, amount } = *order;
        let path = format!("/receiver/uma/{}?customerId={customer}", in_url(address));
        let lookup = self.get(&path, &["lookupId", "receiverUmaAddress"]).await?.expect(200)?;
        let body = json!({
            "lookupId": lookup["lookupId"],
            "source": { "sourceType": "ACCOUNT", "accountId": account },
            "destination": {
                "destinationType": "UMA_ADDRESS",
                "umaAddress": address,
                "currency": currency,
            },
            "lockedCurrencySide": locked,
            "lockedCurrencyAmount": amount,
        });
        let quote = self.post("/quotes", &body, &QUOTE_PARTS).await?.expect(201)?;
        let path = format!("/quotes/{}/execute", text(&quote, "id")?);
        self.post(&path, &Value::Null, &["status"]).await?.expect(200)?;
        let paid = self.ended(&text(&quote, "transactionId")?).await?;
        same(&paid["status"], &json!("COMPLETED"))?;
        Ok(quote)
    }

    /// The payment that has come from an address, which is `COMPLETED`.
    pub(super) async fn received_from(&self, address: &str) -> Result<Value, Failure> {
        let path = format!(
            "/transactions?type=INCOMING&status=COMPLETED&senderAccountIdentifier={}",
            in_url(address)
        );
        let shown = [
            "data.0.id",
            "data.0.status",
            "data.0.senderUmaAddress",
            "data.0.receivedAmount.amount",
            "data.0.receivedAmount.currency.code",
        ];
        let received = self.get(&path, &shown).await?.expect(200)?["data"][0].clone();
        same(&received["status"], &json!("COMPLETED"))?;
        Ok(received)
    }

    pub(super) async fn get(&self, path: &str, shown: &[&str]) -> Result<Answer, Failure> {
        self.call(Method::GET, path, None, None, shown).await
    }

    pub(super) async fn post(
        &self,
        path: &str,
        body: &Value,
        shown: &[&str],
    ) -> Result<Answer, Failure> {
        let body = if body.is_null() { None } else { Some(body) };
        self.call(Method::POST, path, body, None, shown).await
    }

    /// Calls the API and prints the call and the named parts of the answer.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
        shown: &[&str],
    ) -> Result<Answer, Failure> {
        let mut said = format!("  {}{method} {path}", self.label);
        if let Some(key) = key {
            said += &format!("   Idempotency-Key: {key}");
        }
        if let Some(body) = body {
            said += &format!("\n       {body}");
        }
        // Before the answer: the servers show what they do in between.
        print(&format!("{said}\n"))?;
        let answer = self.ask(method, path, body, key).await?;
        let replay = if answer.is_replay { "   Idempotent-Replayed: true" } else { "" };
        print(&format!("   {} {}{replay}\n", answer.status, answer.parts(shown)))?;
        Ok(answer)
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Result<Answer, Failure> {
        let ClientCredentials { id, secret } = &self.credentials;
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base_url))
            .basic_auth(id, Some(secret));
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let failed = |error: reqwest::Error| Failure::new(format!("{path}: {error}"));
        let response = request.send().await.map_err(failed)?;
        Ok(Answer {
            status: response.status().as_u16(),
            is_replay: response.headers().contains_key("idempotent-replayed"),
            body: response.json().await.map_err(failed)?,
        })
    }
}

impl Answer {
    /// The body, if the status is the one that the story needs.
    pub(super) fn expect(self, status: u16) -> Result<Value, Failure> {
        if self.status == status {
            return Ok(self.body);
        }
        let Self { status: given, body, .. } = self;
        Err(Failure::new(format!("expected the status {status}, got {given}: {body}")))
    }

    /// The parts of the body at these paths, or all of an error.
    fn parts(&self, shown: &[&str]) -> Value {
        if self.status >= 400 {
            return self.body.clone();
        }
        let part = |path: &&str| {
            let pointer = format!("/{}", path.replace('.', "/"));
            let name = path.strip_prefix(FIRST_ROW).unwrap_or(path);
            Some((name.to_owned(), self.body.pointer(&pointer)?.clone()))
        };
        Value::Object(shown.iter().filter_map(part).collect::<Map<_, _>>())
    }
}

/// An address as a part of a URL.
fn in_url(address: &str) -> String {
    address.replace('$', "%24")
}

/// Begins a step of the story.
pub(super) fn title(text: &str) -> Result<(), Failure> {
    print(&format!("\n{}\n", text.to_uppercase()))
}

/// A text of an answer.
pub(super) fn text(value: &Value, name: &str) -> Result<String, Failure> {
    let text = value[name].as_str().map(str::to_owned);
    text.ok_or_else(|| Failure::new(format!("an answer has no {name}: {value}")))
}

/// Refuses another value than the story needs.
pub(super) fn same(given: &Value, expected: &Value) -> Result<(), Failure> {
    if given == expected {
        return Ok(());
    }
    Err(Failure::new(format!("expected {expected}, got {given}")))
}

#[expect(clippy::disallowed_methods, reason = "a client that polls waits between two reads")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
