//! `switchyard demo`: the whole story on a database that is thrown away afterwards, through
//! the same HTTP that clients use, and checked at every step.

mod endpoint;
mod ledger;

use std::path::Path;
use std::time::Duration;

use adapters::entropy::SystemEntropy;
use adapters::outbound::choose_cryptography;
use ports::entropy::Entropy as _;
use reqwest::{Client, Method};
use serde_json::{Map, Value, json};
use service::Env;
use service::webhooks::signature::PublicKeys;
use store::keyring::Keyring;
use tokio_util::sync::CancellationToken;

use crate::command::{Failure, emit, print};
use crate::config::{ClientCredentials, EXIT_OK, KeySource, Listen, SecretKey};
use crate::database::Database;
use crate::demo::endpoint::Endpoint;
use crate::demo::ledger::{Names, books};
use crate::first_start::FirstStart;
use crate::keyfile::{self, KEY_BYTES};
use crate::wiring::Opened;
use crate::{config, first_start, serve, shutdown, telemetry, verify, wiring};

/// The rail of the story settles within a second; this is patient with a busy machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);

/// Between two reads of a payment that is under way.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// An answer of this machine to itself that takes longer will not come.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// Between two events that reach an endpoint of this machine.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(20);

/// Where a list has the one row that the story asked for.
const FIRST_ROW: &str = "data.0.";

/// The name of the story's database in its folder.
const DATABASE: &str = "demo.db";

/// Tells the story. Fails at the first step that does not go as it should.
pub async fn run(options: &config::Demo) -> Result<u8, Failure> {
    let stop = shutdown::on_signals()
        .map_err(|error| Failure::new(format!("signals cannot be listened for: {error}")))?;
    let made;
    let folder = match &options.keep {
        Some(folder) => kept(folder)?,
        None => {
            made =
                tempfile::Builder::new().prefix("switchyard-demo-").tempdir().map_err(|error| {
                    Failure::new(format!("cannot make a temporary folder: {error}"))
                })?;
            made.path()
        }
    };
    // A temporary folder goes with its variable, whichever way this ends.
    tokio::select! {
        done = in_folder(folder, options.keep.is_some()) => done,
        () = stop.cancelled() => Err(Failure::new("the demo was stopped before its end")),
    }
}

/// The folder in which the story stays. An earlier one is not written over.
fn kept(folder: &Path) -> Result<&Path, Failure> {
    let database = folder.join(DATABASE);
    // The printed URL must be one that the other commands read.
    Database::parse(&format!("sqlite://{}", database.display()))?;
    if database.symlink_metadata().is_ok() {
        let line = format!("{} is there already: name another folder", database.display());
        return Err(Failure::new(line).as_usage());
    }
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::new(format!("{} cannot be made: {error}", folder.display())).as_usage()
    })?;
    Ok(folder)
}

async fn in_folder(folder: &Path, stays: bool) -> Result<u8, Failure> {
    let database = Database::Sqlite(folder.join(DATABASE));
    let mut key = [0; KEY_BYTES];
    match stays {
        true => key = keyfile::load_or_create(&database.key_file(), |key| SystemEntropy.fill(key))?,
        false => SystemEntropy.fill(&mut key),
    }
    let listen = Listen { host: "127.0.0.1".to_owned(), port: 0 };
    let (listener, listen) = serve::bind(&listen, "--listen").await?;
    telemetry::metrics();
    let source = KeySource::Given(SecretKey(key));
    let env = Env { public_url: serve::origin(&listen), ..wiring::default_env() };
    let mut held = database.hold()?;
    let opened = wiring::open_to_serve(&database, &source, env, &mut held)?;
    let domain = config::local_uma_domain(listen.port);
    let first = first_start::run(&opened.app, None, domain).await?;
    let first = first.ok_or_else(|| Failure::new("the new database has a platform already"))?;

    let stop = CancellationToken::new();
    let server = tokio::spawn(serve::until(stop.clone(), listener, opened.app.clone()));
    let done = tell(&opened, &first, &serve::base_url(&listen)).await;
    stop.cancel();
    let stopped = server.await;
    wiring::close(opened).await;
    done?;
    stopped.map_err(|error| Failure::new(format!("the server did not stop well: {error}")))?;
    drop(held);
    check(&database, &key)?;
    if stays {
        print(&where_to_look(&database, &first.credentials))?;
    }
    emit(&json!({
        "complete": true,
        "platform": first.platform.to_string(),
        "database": stays.then(|| format!("sqlite://{database}")),
        "keyFile": stays.then(|| database.key_file().display().to_string()),
        "clientId": stays.then_some(&first.credentials.id),
        "clientSecret": stays.then_some(&first.credentials.secret),
    }))?;
    Ok(EXIT_OK)
}

/// How to inspect a demo that stays.
fn where_to_look(database: &Database, credentials: &ClientCredentials) -> String {
    let ClientCredentials { id, secret } = credentials;
    let (url, api) = (format!("sqlite://{database}"), api::VERSION);
    format!(
        "\nThe story stays in {database}, with its key beside it. To look at it:\n\n  \
         switchyard verify --database-url {url}\n  \
         switchyard token list --database-url {url}\n  \
         sqlite3 -readonly {database} .tables\n  \
         sqlite3 -readonly {database} 'select status, count(*) from transactions group by 1'\n\n\
         To serve it, and to ask it for its payments and for what was sent to its endpoint:\n\n  \
         switchyard --database-url {url}\n  \
         curl -u {id}:{secret} http://127.0.0.1:8080/{api}/transactions\n  \
         curl -u {id}:{secret} http://127.0.0.1:8080/{api}/events\n\n\
         Its pages are at http://127.0.0.1:8080/docs then. Remove the folder when you have seen \
         enough.\n"
    )
}

async fn tell(opened: &Opened, first: &FirstStart, base_url: &str) -> Result<(), Failure> {
    let mut story = Story::new(base_url, &first.credentials)?;
    let mut endpoint = Endpoint::open().await?;
    story.set_endpoint(&endpoint).await?;
    let customer = story.customer().await?;
    let dollars = story.account(&customer, "USD").await?;
    let euros = story.account(&customer, "EUR").await?;
    story.fund(&dollars).await?;
    story.exchange(&dollars, &euros).await?;
    let paid = story.pay_out(&customer, &dollars).await?;
    let refused = story.be_refused(&customer, &dollars).await?;
    let received = story.receive(&customer).await?;
    story.balances(&customer).await?;
    let ends = [(&*paid, "COMPLETED"), (&refused, "REJECTED"), (&received, "COMPLETED")];
    story.be_notified(&mut endpoint, &ends).await?;
    let names = Names::new(&customer)?;
    let platform = first.platform;
    books(&opened.app, platform, names).await.and_then(|books| print(&books))
}

/// The last step: every promise about the data, checked on the database alone.
fn check(database: &Database, key: &[u8; KEY_BYTES]) -> Result<(), Failure> {
    print("\nVERIFY: everything the system promises about its data, checked on the database\n\n")?;
    let report = store::verify::verify(&*database.engine(), Some(&Keyring::new(key)))?;
    print(&verify::human(&report))?;
    if !report.is_sound() {
        return Err(Failure::new("the story went well, but verify found something broken"));
    }
    print("\nThe story is complete. Now yours: run switchyard and paste what it prints.\n")
}

/// A client of the API that shows what it does.
struct Story {
    client: Client,
    base_url: String,
    credentials: ClientCredentials,
}

/// An answer.
struct Answer {
    status: u16,
    is_replay: bool,
    body: Value,
}

impl Story {
    fn new(base_url: &str, credentials: &ClientCredentials) -> Result<Self, Failure> {
        // A proxy that the environment names is not on the way to this machine itself.
        choose_cryptography();
        let client = Client::builder().no_proxy().timeout(ANSWERED_WITHIN).build();
        let client = client.map_err(|error| Failure::new(format!("no HTTP client: {error}")))?;
        print(&format!("A throw-away server listens at {base_url}\n"))?;
        Ok(Self { client, base_url: base_url.to_owned(), credentials: credentials.clone() })
    }

    async fn set_endpoint(&self, endpoint: &Endpoint) -> Result<(), Failure> {
        title("where events go")?;
        let body = json!({ "webhookEndpoint": endpoint.url() });
        let answer = self.call(Method::PATCH, "/config", Some(&body), None, &["webhookEndpoint"]);
        answer.await?.expect(200).map(|_| ())
    }

    async fn customer(&mut self) -> Result<String, Failure> {
        title("a customer")?;
        let body = json!({
            "customerType": "INDIVIDUAL",
            "platformCustomerId": "ada",
            "fullName": "Ada Lovelace",
            "birthDate": "1985-12-10",
            "nationality": "GB",
        });
        let answer = self.post("/customers", &body, &["id", "umaAddress", "kycStatus"]).await?;
        text(&answer.expect(201)?, "id")
    }

    async fn account(&self, customer: &str, currency: &str) -> Result<String, Failure> {
        let path =
            format!("/customers/internal-accounts?customerId={customer}&currency={currency}");
        let answer = self.get(&path, &["data.0.id", "data.0.balance.amount"]).await?;
        text(&answer.expect(200)?["data"][0], "id")
    }

    async fn fund(&mut self, dollars: &str) -> Result<(), Failure> {
        title("1000.00 USD arrive")?;
        let path = format!("/sandbox/internal-accounts/{dollars}/fund");
        let answer = self.post(&path, &json!({ "amount": 100_000 }), &["balance.amount"]).await?;
        same(&answer.expect(200)?["balance"]["amount"], &json!(100_000))
    }

    async fn exchange(&mut self, dollars: &str, euros: &str) -> Result<(), Failure> {
        title("a quote: what are 500.00 USD in EUR, with the rate locked?")?;
        let body = json!({
            "source": { "sourceType": "ACCOUNT", "accountId": dollars },
            "destination": { "destinationType": "ACCOUNT", "accountId": euros },
            "lockedCurrencySide": "SENDING",
            "lockedCurrencyAmount": 50_000,
        });
        let shown = [
            "id",
            "status",
            "exchangeRate",
            "feesIncluded",
            "totalSendingAmount",
            "totalReceivingAmount",
            "expiresAt",
            "transactionId",
        ];
        let quote = self.post("/quotes", &body, &shown).await?.expect(201)?;
        same(&quote["status"], &json!("PENDING"))?;

        title("its execution")?;
        let path = format!("/quotes/{}/execute", text(&quote, "id")?);
        let executed = self.post(&path, &Value::Null, &["status"]).await?.expect(200)?;
        same(&executed["status"], &json!("COMPLETED"))?;
        let path = format!("/transactions/{}", text(&quote, "transactionId")?);
        let shown = ["status", "sentAmount.amount", "receivedAmount.amount", "settledAt"];
        let transaction = self.get(&path, &shown).await?.expect(200)?;
        same(&transaction["status"], &json!("COMPLETED"))?;
        same(&transaction["receivedAmount"]["amount"], &quote["totalReceivingAmount"])
    }

    async fn pay_out(&mut self, customer: &str, dollars: &str) -> Result<String, Failure> {
        title("200.00 USD to a bank account; a repeat with the same key pays once")?;
        let account = self.bank_account(customer, "123456789").await?;
        let body = transfer(dollars, &account, 20_000);
        let sent = self.send("demo-payout", &body).await?;
        let repeated = self.send("demo-payout", &body).await?;
        if !repeated.is_replay {
            return Err(Failure::new("the repeated transfer was not answered with the first"));
        }
        let (sent, repeated) = (sent.expect(201)?, repeated.expect(201)?);
        same(&repeated, &sent)?;
        let id = text(&sent, "id")?;
        let settled = self.ended(&id).await?;
        same(&settled["status"], &json!("COMPLETED"))?;
        Ok(id)
    }

    async fn be_refused(&mut self, customer: &str, dollars: &str) -> Result<String, Failure> {
        title("100.00 USD to an account whose bank refuses them: the money comes back")?;
        // The last three digits choose what the bank of the sandbox does.
        let account = self.bank_account(customer, "123456004").await?;
        let sent = self.send("demo-refused", &transfer(dollars, &account, 10_000)).await?;
        let id = text(&sent.expect(201)?, "id")?;
        let refused = self.ended(&id).await?;
        same(&refused["status"], &json!("REJECTED"))?;
        Ok(id)
    }

    async fn receive(&mut self, customer: &str) -> Result<String, Failure> {
        title("40.00 USD come from a UMA address of another institution")?;
        let body = json!({
            "senderUmaAddress": "$success.usd@sandbox.uma.money",
            "customerId": customer,
            "receivingCurrencyCode": "USD",
            "receivingCurrencyAmount": 4_000,
        });
        let shown = ["id", "status", "senderUmaAddress", "receiverUmaAddress"];
        let payment = self.post("/sandbox/uma/receive", &body, &shown).await?.expect(200)?;
        // The platform is asked first, and its endpoint approves by answering 200.
        same(&payment["status"], &json!("PENDING"))?;
        let id = text(&payment, "id")?;
        let received = self.ended(&id).await?;
        same(&received["status"], &json!("COMPLETED"))?;
        Ok(id)
    }

    async fn balances(&mut self, customer: &str) -> Result<(), Failure> {
        title("what the customer has now")?;
        let dollars = format!("/customers/internal-accounts?customerId={customer}&currency=USD");
        let shown = ["data.0.balance.amount", "data.0.balance.currency.code"];
        let left = self.get(&dollars, &shown).await?.expect(200)?;
        self.account(customer, "EUR").await?;
        // 1000.00 came, 500.00 were exchanged, 200.00 were paid out, 100.00 came back, 40.00 came.
        same(&left["data"][0]["balance"]["amount"], &json!(34_000))
    }

    /// Shows what the endpoint was sent and whether the platform's keys have signed it, until the
    /// payments have come to these statuses there too.
    async fn be_notified(
        &self,
        endpoint: &mut Endpoint,
        ends: &[(&str, &str)],
    ) -> Result<(), Failure> {
        title("the notifications of the endpoint meanwhile, in requests that are signed twice")?;
        let keys = self.get("/webhooks/keys", &["publicKey"]).await?.expect(200)?;
        let (secret, public_key) = (text(&keys, "secret")?, text(&keys, "publicKey")?);
        let keys = PublicKeys { secret, public_key };
        let mut missing = ends.to_vec();
        let late = || Failure::new(format!("the endpoint was not notified of {ends:?} in time"));
        while !missing.is_empty() {
            let notification = tokio::time::timeout(NOTIFIED_WITHIN, endpoint.next()).await;
            let notification = notification.ok().flatten().ok_or_else(late)?;
            let (is_standard, is_ecdsa) = notification.signatures(&keys);
            let event = notification.event()?;
            let (kind, data) = (text(&event, "type")?, &event["data"]);
            let (id, status) = (data["id"].as_str(), data["status"].as_str());
            let said = [Some(&*kind), status, id].into_iter().flatten().collect::<Vec<_>>();
            let signed = |is_good: bool| if is_good { "good" } else { "WRONG" };
            print(&format!(
                "  POST {}\n       {}\n       webhook-signature: {}   X-Grid-Signature: {}\n",
                endpoint::PATH,
                said.join(" "),
                signed(is_standard),
                signed(is_ecdsa),
            ))?;
            if !(is_standard && is_ecdsa) {
                return Err(Failure::new("an event was delivered with a signature that is wrong"));
            }
            missing.retain(|end| Some(*end) != id.zip(status));
        }
        Ok(())
    }

    async fn bank_account(&self, customer: &str, number: &str) -> Result<String, Failure> {
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

    async fn send(&self, key: &str, body: &Value) -> Result<Answer, Failure> {
        let shown = ["id", "status", "sentAmount.amount"];
        self.call(Method::POST, "/transfer-out", Some(body), Some(key), &shown).await
    }

    /// The transaction once it is under way no more.
    async fn ended(&self, id: &str) -> Result<Value, Failure> {
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

    async fn get(&self, path: &str, shown: &[&str]) -> Result<Answer, Failure> {
        self.call(Method::GET, path, None, None, shown).await
    }

    async fn post(&self, path: &str, body: &Value, shown: &[&str]) -> Result<Answer, Failure> {
        let body = if body.is_null() { None } else { Some(body) };
        self.call(Method::POST, path, body, None, shown).await
    }

    /// Calls the API and prints the call and the named parts of the answer.
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
        shown: &[&str],
    ) -> Result<Answer, Failure> {
        let mut said = format!("  {method} {path}");
        if let Some(key) = key {
            said += &format!("   Idempotency-Key: {key}");
        }
        if let Some(body) = body {
            said += &format!("\n       {body}");
        }
        let answer = self.ask(method, path, body, key).await?;
        let replay = if answer.is_replay { "   Idempotent-Replayed: true" } else { "" };
        said += &format!("\n   {} {}{replay}\n", answer.status, answer.parts(shown));
        print(&said)?;
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
            .client
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
    fn expect(self, status: u16) -> Result<Value, Failure> {
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

fn transfer(source: &str, destination: &str, amount: i64) -> Value {
    json!({
        "source": { "accountId": source },
        "destination": { "accountId": destination },
        "amount": amount,
    })
}

fn title(text: &str) -> Result<(), Failure> {
    print(&format!("\n{}\n", text.to_uppercase()))
}

fn text(value: &Value, name: &str) -> Result<String, Failure> {
    let text = value[name].as_str().map(str::to_owned);
    text.ok_or_else(|| Failure::new(format!("an answer has no {name}: {value}")))
}

fn same(given: &Value, expected: &Value) -> Result<(), Failure> {
    if given == expected {
        return Ok(());
    }
    Err(Failure::new(format!("expected {expected}, got {given}")))
}

#[expect(clippy::disallowed_methods, reason = "a client that polls waits between two reads")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
