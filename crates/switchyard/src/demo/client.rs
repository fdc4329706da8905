//! A client of the API that shows what it does: of the story, and of `switchyard trigger`.

use std::time::Duration;

use adapters::outbound::choose_cryptography;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client as Http, ClientBuilder, Method, RequestBuilder};
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
pub(crate) const QUOTE_PARTS: [&str; 8] = [
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
pub(crate) struct ToAddress<'a> {
    /// The customer who pays.
    pub(crate) customer: &'a str,
    /// The internal account that pays.
    pub(crate) account: &'a str,
    /// The address that is paid.
    pub(crate) address: &'a str,
    /// The currency that arrives.
    pub(crate) currency: &'a str,
    /// The side whose amount is fixed.
    pub(crate) locked: &'a str,
    /// The amount of that side, in its smallest unit.
    pub(crate) amount: i64,
}

/// A platform's client.
pub(crate) struct Client {
    http: Http,
    /// Stands before each call, where more than one server is called.
    label: String,
    base_url: String,
    credentials: ClientCredentials,
}

/// An answer.
pub(crate) struct Answer {
    status: u16,
    pub(crate) is_replay: bool,
    body: Value,
}

impl Client {
    /// A client of this server. `label` says who calls, where it is not clear.
    pub(super) fn new(instance: &Instance, label: &str) -> Result<Self, Failure> {
        // A proxy that the environment names is not on the way to this machine itself.
        let http = Http::builder().no_proxy();
        Self::of(http, instance.base_url.clone(), instance.first.credentials.clone(), label)
    }

    /// A client of the API at this address.
    pub(crate) fn of(
        http: ClientBuilder,
        base_url: String,
        credentials: ClientCredentials,
        label: &str,
    ) -> Result<Self, Failure> {
        choose_cryptography();
        let http = http.timeout(ANSWERED_WITHIN).build();
        let http = http.map_err(|error| Failure::new(format!("no HTTP client: {error}")))?;
        let label = if label.is_empty() { String::new() } else { format!("{label}: ") };
        Ok(Self { http, label, base_url, credentials })
    }

    /// Makes a customer of the platform: its id and its address.
    pub(crate) async fn customer(
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
    pub(crate) async fn account(&self, customer: &str, currency: &str) -> Result<String, Failure> {
        let path =
            format!("/customers/internal-accounts?customerId={customer}&currency={currency}");
        let answer = self.get(&path, &["data.0.id", "data.0.balance.amount"]).await?;
        text(&answer.expect(200)?["data"][0], "id")
    }

    /// Adds another person's bank account with this number, for a customer to pay.
    pub(crate) async fn bank_account(
        &self,
        customer: &str,
        number: &str,
    ) -> Result<String, Failure> {
        let body = json!({
            "customerId": customer,
            "currency": "USD",
            "accountInfo": {
                "accountType": "USD_ACCOUNT",
                "accountNumber": number,
                "routingNumber": "021000021",
                "beneficiary": {
                    "beneficiaryType": "INDIVIDUAL",
                    "fullName": "Bo Karlsson",
                    "birthDate": "1990-01-15",
                    "nationality": "SE",
                },
            },
        });
        let path = "/customers/external-accounts";
        let answer = self.post(path, &body, &["id", "status"]).await?;
        text(&answer.expect(201)?, "id")
    }

    /// Money that the sandbox makes.
    pub(crate) async fn fund(&self, account: &str, amount: i64) -> Result<(), Failure> {
        let path = format!("/sandbox/internal-accounts/{account}/fund");
        let body = json!({ "amount": amount });
        let answer = self.post(&path, &body, &["balance.amount"]).await?.expect(200)?;
        same(&answer["balance"]["amount"], &json!(amount))
    }

    /// The transaction once it is under way no more.
    pub(crate) async fn ended(&self, id: &str) -> Result<Value, Failure> {
        let path = format!("/transactions/{id}");
        self.status_after(&path, &["PENDING", "PROCESSING"]).await?;
        self.get(&path, &["status", "settledAt", "refund"]).await?.expect(200)
    }

    /// The status of a resource once it is none of these.
    pub(crate) async fn status_after(&self, path: &str, not: &[&str]) -> Result<String, Failure> {
        let read = async {
            loop {
                let resource = self.ask(Method::GET, path, None, None).await?.expect(200)?;
                let status = text(&resource, "status")?;
                if !not.contains(&status.as_str()) {
                    return Ok(status);
                }
                pause(READ_AGAIN_AFTER).await;
            }
        };
        tokio::time::timeout(SETTLED_WITHIN, read)
            .await
            .unwrap_or_else(|_| Err(Failure::new(format!("{path} did not end in time"))))
    }

    /// Sends a CSV file in a form, as a browser does.
    pub(crate) async fn upload(&self, path: &str, file: &str) -> Result<Answer, Failure> {
        const BOUNDARY: &str = "switchyard-file";
        print(&format!("  {}POST {path}\n{file}", self.label))?;
        let form = format!(
            "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"file.csv\"\
             \r\ncontent-type: text/csv\r\n\r\n{file}\r\n--{BOUNDARY}--\r\n"
        );
        let ClientCredentials { id, secret } = &self.credentials;
        let request = self.http.post(format!("{}{path}", self.base_url));
        let kind = format!("multipart/form-data; boundary={BOUNDARY}");
        let request = request.basic_auth(id, Some(secret)).header(CONTENT_TYPE, kind).body(form);
        let answer = answer_to(path, request).await?;
        print(&format!("   {} {}\n", answer.status, answer.body))?;
        Ok(answer)
    }

    /// Fills in the form of a page, as the person does who has its link.
    pub(crate) async fn fill_in(&self, url: &str, form: String) -> Result<(), Failure> {
        print(&format!("  {}POST the form of the page\n       {form}\n", self.label))?;
        let request = self.http.post(url);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form);
        let failed = |error: reqwest::Error| {
            Failure::new(format!("the page did not answer: {}", error.without_url()))
        };
        let status = request.send().await.map_err(failed)?.status();
        print(&format!("   {}\n", status.as_u16()))?;
        if !status.is_success() && !status.is_redirection() {
            return Err(Failure::new(format!("the page answered {status}")));
        }
        Ok(())
    }

    /// Pays a UMA address: lookup, quote, execution. Gives the quote once its payment is
    /// `COMPLETED`.
    pub(crate) async fn pay_address(&self, order: &ToAddress<'_>) -> Result<Value, Failure> {
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
    pub(crate) async fn received_from(&self, address: &str) -> Result<Value, Failure> {
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

    pub(crate) async fn get(&self, path: &str, shown: &[&str]) -> Result<Answer, Failure> {
        self.call(Method::GET, path, None, None, shown).await
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        body: &Value,
        shown: &[&str],
    ) -> Result<Answer, Failure> {
        let body = if body.is_null() { None } else { Some(body) };
        self.call(Method::POST, path, body, None, shown).await
    }

    /// Calls the API and prints the call and the named parts of the answer.
    pub(crate) async fn call(
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
        answer_to(path, request).await
    }
}

async fn answer_to(path: &str, request: RequestBuilder) -> Result<Answer, Failure> {
    let failed = |error: reqwest::Error| Failure::new(format!("{path}: {error}"));
    let response = request.send().await.map_err(failed)?;
    Ok(Answer {
        status: response.status().as_u16(),
        is_replay: response.headers().contains_key("idempotent-replayed"),
        body: response.json().await.map_err(failed)?,
    })
}

impl Answer {
    /// The body, if the status is the one that the story needs.
    pub(crate) fn expect(self, status: u16) -> Result<Value, Failure> {
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

/// A transfer to an account, in cents.
pub(crate) fn transfer(source: &str, destination: &str, amount: i64) -> Value {
    json!({
        "source": { "accountId": source },
        "destination": { "accountId": destination },
        "amount": amount,
    })
}

/// Begins a step of the story.
pub(crate) fn title(text: &str) -> Result<(), Failure> {
    print(&format!("\n{}\n", text.to_uppercase()))
}

/// A text of an answer.
pub(crate) fn text(value: &Value, name: &str) -> Result<String, Failure> {
    let text = value[name].as_str().map(str::to_owned);
    text.ok_or_else(|| Failure::new(format!("an answer has no {name}: {value}")))
}

/// Refuses another value than the story needs.
pub(crate) fn same(given: &Value, expected: &Value) -> Result<(), Failure> {
    if given == expected {
        return Ok(());
    }
    Err(Failure::new(format!("expected {expected}, got {given}")))
}

#[expect(clippy::disallowed_methods, reason = "a client that polls waits between two reads")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
