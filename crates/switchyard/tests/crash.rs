//! kill -9 at any moment loses no acknowledged change and doubles none.
//!
//! Clients write down what they ask for before they ask, and what they were answered. The server is
//! killed in the middle of their requests, again and again, on the same file; whatever a client got
//! no answer to, it asks again with the same key. After each start `verify` must find nothing. In
//! the end every answer is still the same to the byte, the money adds up, and everything that was
//! under way has settled.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How often the server is killed; more with `SWITCHYARD_CRASH_ROUNDS`.
const ROUNDS: usize = 8;

/// Clients that send at once.
const CLIENTS: usize = 8;

/// How long anything may take that must happen.
const DEADLINE: Duration = Duration::from_secs(60);

const CLIENT_ID: &str = "crash-test";
const CLIENT_SECRET: &str = "crash-test-secret-0123456789abcdef";

struct Server {
    process: Child,
    base: String,
}

impl Server {
    fn start(database: &Path, port: u16) -> Self {
        let process = Command::new(env!("CARGO_BIN_EXE_switchyard"))
            .args(["serve", "--listen", &format!("127.0.0.1:{port}")])
            .args(["--database-url", &format!("sqlite://{}", database.display())])
            .env("SWITCHYARD_CLIENT_ID", CLIENT_ID)
            .env("SWITCHYARD_CLIENT_SECRET", CLIENT_SECRET)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        Self { process, base: format!("http://127.0.0.1:{port}") }
    }

    async fn ready(&self) {
        let client = client();
        let is_ready = async || {
            let answer = client.get(format!("{}/readyz", self.base)).send().await;
            answer.is_ok_and(|answer| answer.status().is_success())
        };
        within_deadline("the server is ready", is_ready).await;
    }

    /// SIGKILL, which no program can prepare for.
    fn kill(&mut self) {
        self.process.kill().expect("the server is killed");
        self.process.wait().expect("the server is gone");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Asks again and again until it is so.
async fn within_deadline(what: &str, is_so: impl AsyncFn() -> bool) {
    let asked = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, asked).await.is_ok(), "not in time: {what}");
}

#[expect(clippy::disallowed_methods, reason = "a client of the server under test")]
fn client() -> reqwest::Client {
    reqwest::Client::new()
}

/// One request that is asked until it is answered.
#[derive(Clone)]
struct Ask {
    path: String,
    body: Value,
    key: String,
}

/// An answer: status and bytes.
type Answer = (u16, Vec<u8>);

/// Asks once; `None` if the outcome is not known.
async fn ask(client: &reqwest::Client, base: &str, ask: &Ask) -> Option<Answer> {
    let answer = client
        .post(format!("{base}/2025-10-13{}", ask.path))
        .basic_auth(CLIENT_ID, Some(CLIENT_SECRET))
        .header("idempotency-key", &ask.key)
        .json(&ask.body)
        .send()
        .await
        .ok()?;
    let status = answer.status().as_u16();
    let bytes = answer.bytes().await.ok()?;
    (status < 500).then(|| (status, bytes.to_vec()))
}

async fn get(client: &reqwest::Client, base: &str, path: &str) -> Value {
    let answer = client
        .get(format!("{base}/2025-10-13{path}"))
        .basic_auth(CLIENT_ID, Some(CLIENT_SECRET))
        .send()
        .await
        .expect("an answer");
    answer.json().await.expect("JSON")
}

async fn made(client: &reqwest::Client, base: &str, path: &str, body: Value) -> Value {
    let key = format!("setup {path} {body}");
    let asked = Ask { path: path.to_owned(), body, key: key.chars().take(200).collect() };
    let (status, bytes) = ask(client, base, &asked).await.expect("an answer");
    assert!(status < 300, "{path}: {}", String::from_utf8_lossy(&bytes));
    serde_json::from_slice(&bytes).expect("JSON")
}

fn verify(database: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_switchyard"))
        .args(["verify", "--database-url", &format!("sqlite://{}", database.display())])
        .output()
        .expect("verify runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

struct Accounts {
    usd: String,
    eur: String,
    bank: String,
}

const FUNDED: i64 = 1_000_000;
const TRANSFERRED: i64 = 7;
const QUOTED: i64 = 500;

async fn set_up(client: &reqwest::Client, base: &str) -> Accounts {
    let body = json!({ "customerType": "INDIVIDUAL", "fullName": "Ada Lovelace" });
    let customer = made(client, base, "/customers", body).await;
    let customer = customer["id"].as_str().expect("an id").to_owned();
    let account = async |currency: &str| {
        let path =
            format!("/customers/internal-accounts?customerId={customer}&currency={currency}");
        let list = get(client, base, &path).await;
        list["data"][0]["id"].as_str().expect("an id").to_owned()
    };
    let (usd, eur) = (account("USD").await, account("EUR").await);
    let path = format!("/sandbox/internal-accounts/{usd}/fund");
    made(client, base, &path, json!({ "amount": FUNDED })).await;
    let bank = json!({
        "customerId": customer,
        "currency": "USD",
        "accountInfo": {
            "accountType": "USD_ACCOUNT",
            "accountNumber": "123456789",
            "routingNumber": "021000021",
            "beneficiary": {
                "beneficiaryType": "BUSINESS",
                "legalName": "Analytical Engines",
            },
        },
    });
    let bank = made(client, base, "/customers/external-accounts", bank).await;
    Accounts { usd, eur, bank: bank["id"].as_str().expect("an id").to_owned() }
}

/// What all clients know: each request and, once it is known, its answer.
#[derive(Default)]
struct Recorder {
    asked: Mutex<BTreeMap<String, (Ask, Option<Answer>)>>,
    answered: AtomicUsize,
    changed: Notify,
}

impl Recorder {
    fn note(&self, ask: &Ask) {
        let mut asked = self.asked.lock().expect("the lock");
        asked.entry(ask.key.clone()).or_insert_with(|| (ask.clone(), None));
    }

    fn settle(&self, ask: &Ask, answer: Answer) {
        let mut asked = self.asked.lock().expect("the lock");
        let entry = asked.get_mut(&ask.key).expect("it was noted");
        match &entry.1 {
            Some(first) => assert_eq!(*first, answer, "two answers to {}", ask.key),
            None => entry.1 = Some(answer),
        }
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Waits until this many answers have come.
    async fn reach(&self, enough: usize) {
        while self.answered.load(Ordering::Relaxed) < enough {
            let change = tokio::time::timeout(DEADLINE, self.changed.notified()).await;
            change.expect("the load gets through");
        }
    }

    fn all(&self) -> Vec<(Ask, Option<Answer>)> {
        self.asked.lock().expect("the lock").values().cloned().collect()
    }
}

/// Sends transfers and quotes with their executions until the server is gone.
async fn load(base: String, accounts: Arc<Accounts>, recorder: Arc<Recorder>, name: String) {
    let client = client();
    for number in 0.. {
        let transfer = Ask {
            path: "/transfer-out".to_owned(),
            body: json!({
                "source": { "accountId": accounts.usd },
                "destination": { "accountId": accounts.bank },
                "amount": TRANSFERRED,
            }),
            key: format!("{name}-transfer-{number}"),
        };
        let quote = Ask {
            path: "/quotes".to_owned(),
            body: json!({
                "source": { "sourceType": "ACCOUNT", "accountId": accounts.usd },
                "destination": { "destinationType": "ACCOUNT", "accountId": accounts.eur },
                "lockedCurrencySide": "SENDING",
                "lockedCurrencyAmount": QUOTED,
            }),
            key: format!("{name}-quote-{number}"),
        };
        for asked in [transfer, quote] {
            recorder.note(&asked);
            let Some(answer) = ask(&client, &base, &asked).await else { return };
            let body: Value = serde_json::from_slice(&answer.1).expect("JSON");
            recorder.settle(&asked, answer);
            let quote = body["id"].as_str().filter(|id| id.starts_with("Quote:"));
            if let Some(quote) = quote {
                let execute = Ask {
                    path: format!("/quotes/{quote}/execute"),
                    body: json!({}),
                    key: format!("{name}-execute-{number}"),
                };
                recorder.note(&execute);
                let Some(answer) = ask(&client, &base, &execute).await else { return };
                recorder.settle(&execute, answer);
            }
        }
    }
}

/// Asks again whatever has no answer yet.
async fn resolve(client: &reqwest::Client, base: &str, recorder: &Recorder) -> usize {
    let open: Vec<_> = recorder.all().into_iter().filter(|(_, answer)| answer.is_none()).collect();
    for (asked, _) in &open {
        let answer = ask(client, base, asked).await.expect("an answer from a running server");
        recorder.settle(asked, answer);
    }
    open.len()
}

async fn total(client: &reqwest::Client, base: &str, path: &str) -> i64 {
    get(client, base, path).await["totalCount"].as_i64().expect("a total")
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn rounds() -> usize {
    let given = std::env::var("SWITCHYARD_CRASH_ROUNDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_under_load_loses_nothing_and_doubles_nothing() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let database: PathBuf = folder.path().join("crash.db");
    let port = free_port();
    let client = client();
    let mut server = Server::start(&database, port);
    server.ready().await;
    let base = server.base.clone();
    let accounts = Arc::new(set_up(&client, &base).await);
    let recorder = Arc::new(Recorder::default());
    let mut unknown = 0;

    for round in 0..rounds() {
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let name = format!("round-{round}-client-{number}");
            clients.spawn(load(base.clone(), Arc::clone(&accounts), Arc::clone(&recorder), name));
        }
        // Killed after a number of answers that differs from round to round, so that the moment
        // falls everywhere between a request, its commit and its answer.
        let enough = recorder.answered.load(Ordering::Relaxed) + 20 + (round * 37) % 101;
        recorder.reach(enough).await;
        server.kill();
        while let Some(finished) = clients.join_next().await {
            finished.expect("a client");
        }
        verify(&database);
        server = Server::start(&database, port);
        server.ready().await;
        unknown += resolve(&client, &base, &recorder).await;
        verify(&database);
    }

    // What was under way settles without anybody asking.
    let is_settled = async || {
        let processing = total(&client, &base, "/transactions?status=PROCESSING&limit=1").await;
        let pending = "/transactions?status=PENDING&type=OUTGOING&limit=1";
        let open_quotes = total(&client, &base, "/quotes?status=PENDING&limit=1").await;
        processing == 0 && total(&client, &base, pending).await == open_quotes
    };
    within_deadline("all payments have settled", is_settled).await;

    let answers = recorder.all();
    let count = |path: &str, status: u16| {
        let is = |(asked, answer): &&(Ask, Option<Answer>)| {
            let same = answer.as_ref().is_some_and(|(given, _)| *given == status);
            same && asked.path.contains(path)
        };
        i64::try_from(answers.iter().filter(is).count()).expect("a count")
    };
    let (transfers, quotes, executed) =
        (count("/transfer-out", 201), count("/quotes", 201), count("/execute", 200));
    assert_eq!(total(&client, &base, "/quotes?limit=1").await, quotes);
    assert_eq!(
        total(&client, &base, "/transactions?type=OUTGOING&limit=1").await,
        transfers + quotes
    );
    assert_eq!(
        total(&client, &base, "/transactions?status=COMPLETED&type=OUTGOING&limit=1").await,
        transfers + executed
    );
    let path = "/customers/internal-accounts?currency=USD";
    let left = get(&client, &base, path).await["data"][0]["balance"]["amount"].clone();
    assert_eq!(left, json!(FUNDED - transfers * TRANSFERRED - executed * QUOTED));

    // Every answer is still the first one.
    for (asked, answer) in &answers {
        let again = ask(&client, &base, asked).await;
        assert_eq!(again.as_ref(), answer.as_ref(), "{}", asked.key);
    }
    server.kill();
    verify(&database);
    println!(
        "kills {}, requests {}, unknown after a kill and resolved {unknown}, \
         transfers {transfers}, quotes {quotes}, executed {executed}, lost 0, doubled 0",
        rounds() + 1,
        answers.len(),
    );
}
