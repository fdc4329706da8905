//! A server of ours as an institution.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::instance::{CLIENT_ID, CLIENT_SECRET, Installation, Instance};
use testbed::ports;
use testbed::recorder::{Api, http, within_deadline};

use super::WITHIN;

/// US cents that Alice has.
pub const FUNDED: i64 = 1_000_000;

/// A server with one platform, whose customer Alice has money.
pub struct Ours {
    pub domain: String,
    pub customer: String,
    /// Her account in US dollars.
    pub usd: String,
    http: reqwest::Client,
    installation: Installation,
    instance: Instance,
    keys: AtomicU64,
    _folder: TempDir,
}

/// The answer of our API.
#[derive(Debug)]
pub struct Answer {
    status: u16,
    body: Value,
}

impl Answer {
    /// The body, if the status is this.
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }

    /// The details of an error, if it is this one.
    pub fn refused(self, status: u16, code: &str) -> Value {
        let Self { status: found, body } = self;
        assert_eq!((found, &body["code"]), (status, &json!(code)), "{body}");
        body["details"].clone()
    }
}

/// A text of an answer.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

impl Ours {
    pub async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let database = format!("sqlite://{}", folder.path().join("uma.db").display());
        let installation = Installation::new(env!("CARGO_BIN_EXE_switchyard"), &database);
        Self::start_as(installation, folder).await
    }

    /// One whose files are in a folder.
    pub async fn start_as(installation: Installation, folder: TempDir) -> Self {
        let port = ports::free().unwrap();
        let domain = format!("127.0.0.1:{port}");
        let installation = installation.with("SWITCHYARD_UMA_DOMAIN", &domain);
        let instance = installation.start_at(port).unwrap();
        Api::new(&[instance.base()]).unwrap().ready().await.unwrap();
        let mut ours = Self {
            domain,
            customer: String::new(),
            usd: String::new(),
            http: http(WITHIN).unwrap(),
            installation,
            instance,
            keys: AtomicU64::new(0),
            _folder: folder,
        };
        ours.add_alice().await;
        ours
    }

    async fn add_alice(&mut self) {
        let alice = json!({
            "customerType": "INDIVIDUAL",
            "fullName": "Alice Adams",
            "umaAddress": self.address("alice"),
        });
        self.customer = text(&self.post("/customers", &alice).await.expect(201)["id"]);
        self.usd = text(&self.account("USD").await["id"]);
        let fund = format!("/sandbox/internal-accounts/{}/fund", self.usd);
        self.post(&fund, &json!({ "amount": FUNDED })).await.expect(200);
    }

    /// An address at its domain.
    pub fn address(&self, user: &str) -> String {
        format!("${user}@{}", self.domain)
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.http.get(self.url(path))).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        let key = self.keys.fetch_add(1, Ordering::Relaxed).to_string();
        let request = self.http.post(self.url(path)).json(body);
        self.send(request.header("idempotency-key", key)).await
    }

    async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(self.http.patch(self.url(path)).json(body)).await
    }

    fn url(&self, path: &str) -> String {
        format!("{}/2025-10-13{path}", self.instance.base())
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let answer = request.basic_auth(CLIENT_ID, Some(CLIENT_SECRET)).send().await.unwrap();
        let status = answer.status().as_u16();
        Answer { status, body: answer.json().await.unwrap() }
    }

    /// A document at the root of its domain, as other institutions read it.
    pub async fn document(&self, path: &str) -> Value {
        let answer = self.http.get(format!("{}{path}", self.instance.base())).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.json().await.unwrap()
    }

    async fn account(&self, currency: &str) -> Value {
        let id = &self.customer;
        let path = format!("/customers/internal-accounts?customerId={id}&currency={currency}");
        self.get(&path).await.expect(200)["data"][0].clone()
    }

    /// Alice's US cents.
    pub async fn balance(&self) -> i64 {
        self.account("USD").await["balance"]["amount"].as_i64().unwrap()
    }

    /// Has the platform asked about payments, and notified of events, at this URL.
    pub async fn set_webhook(&self, url: &str) {
        self.patch("/config", &json!({ "webhookEndpoint": url })).await.expect(200);
    }

    /// Asks for facts about the other side of payments in US dollars: each a name, and whether it
    /// must be given.
    pub async fn demand(&self, fields: &[(&str, bool)]) {
        let field =
            |(name, mandatory): &(&str, bool)| json!({ "name": name, "mandatory": mandatory });
        let fields: Vec<_> = fields.iter().map(field).collect();
        let mut currencies = self.get("/config").await.expect(200)["supportedCurrencies"].clone();
        for currency in currencies.as_array_mut().unwrap() {
            if currency["currencyCode"] == "USD" {
                currency["requiredCounterpartyFields"] = json!(fields);
            }
        }
        self.patch("/config", &json!({ "supportedCurrencies": currencies })).await.expect(200);
    }

    /// Looks an address up for Alice.
    pub async fn look_up(&self, address: &str) -> Answer {
        let address = address.replace('$', "%24");
        self.get(&format!("/receiver/uma/{address}?customerId={}", self.customer)).await
    }

    /// Quotes a payment of Alice to an address that was looked up. `side` fixes the amount:
    /// `SENDING` in US cents, `RECEIVING` in the smallest unit of `currency`.
    pub async fn quote(&self, to: (&str, &str), lookup: &Value, locked: (&str, i64)) -> Answer {
        self.quote_stating(to, lookup, locked, &json!({})).await
    }

    /// The same with facts about Alice that her platform states.
    pub async fn quote_stating(
        &self,
        (address, currency): (&str, &str),
        lookup: &Value,
        (side, amount): (&str, i64),
        facts: &Value,
    ) -> Answer {
        let quote = json!({
            "source": { "sourceType": "ACCOUNT", "accountId": self.usd },
            "destination": {
                "destinationType": "UMA_ADDRESS", "umaAddress": address, "currency": currency,
            },
            "lockedCurrencySide": side,
            "lockedCurrencyAmount": amount,
            "lookupId": lookup["lookupId"],
            "senderCustomerInfo": facts,
            "description": "for lunch",
        });
        self.post("/quotes", &quote).await
    }

    /// A bank account of the customer, which takes every payment.
    pub async fn bank(&self) -> String {
        let account = json!({
            "customerId": self.customer,
            "currency": "USD",
            "accountInfo": {
                "accountType": "USD_ACCOUNT",
                "accountNumber": "123456789",
                "routingNumber": "021000021",
                "beneficiary": { "beneficiaryType": "BUSINESS", "legalName": "Brown Bros" },
            },
        });
        text(&self.post("/customers/external-accounts", &account).await.expect(201)["id"])
    }

    /// Pays US cents to a bank account.
    pub async fn pay_out(&self, bank: &str, cents: i64) -> Answer {
        let body = json!({
            "source": { "accountId": self.usd },
            "destination": { "accountId": bank },
            "amount": cents,
        });
        self.post("/transfer-out", &body).await
    }

    /// The payments of other institutions that came with this comment.
    pub async fn payments(&self, comment: &str) -> Vec<Value> {
        let path = format!("/transactions?type=INCOMING&customerId={}&limit=100", self.customer);
        let page = self.get(&path).await.expect(200);
        assert_eq!(page["hasMore"], false, "more payments than a test makes");
        let all = page["data"].as_array().unwrap().iter();
        all.filter(|payment| payment["description"] == comment).cloned().collect()
    }

    /// The only one of them.
    pub async fn payment(&self, comment: &str) -> Value {
        let mut found = self.payments(comment).await;
        assert_eq!(found.len(), 1, "{comment}: {found:?}");
        found.remove(0)
    }

    /// How many of them wait for their money.
    pub async fn waiting(&self, comment: &str) -> usize {
        let all = self.payments(comment).await;
        all.iter().filter(|payment| payment["status"] == "PROCESSING").count()
    }

    /// Waits until a payment has ended, and gives it.
    pub async fn ended(&self, transaction: &Value) -> Value {
        let path = format!("/transactions/{}", text(transaction));
        let mut payment = Value::Null;
        let is_over = async || {
            payment = self.get(&path).await.expect(200);
            Ok(payment["status"] != "PENDING" && payment["status"] != "PROCESSING")
        };
        within_deadline("the payment has ended", is_over).await.unwrap();
        payment
    }

    /// Kills the server, runs commands of its operator, and starts it again: what each has printed.
    pub async fn restart_after(&mut self, commands: &[&[&str]]) -> Vec<String> {
        self.instance.kill().unwrap();
        let run = |arguments: &&[&str]| self.installation.run(arguments).unwrap();
        let printed = commands.iter().map(run).collect();
        self.instance.resume().unwrap();
        Api::new(&[self.instance.base()]).unwrap().ready().await.unwrap();
        printed
    }

    /// Ends the server and lets it check its books.
    pub fn verify(mut self) {
        self.instance.kill().unwrap();
        self.installation.verify().unwrap();
    }
}
