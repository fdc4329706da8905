//! What every test here needs.

use std::collections::{HashMap, HashSet};
use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};

use adapters::clock::ManualClock;
use adapters::entropy::SeededEntropy;
use adapters::modes::{Modes, sandbox_rails};
use adapters::outbound::GuardedClient;
use adapters::rails::sandbox::SandboxRail;
use adapters::rates::feed::RateTable;
use api::presenter::JsonPresenter;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, header};
use base64::Engine as _;
use bytes::Bytes;
use domain::account_info::has_rail;
use domain::currency::Currency;
use domain::event::Event;
use domain::id::PlatformId;
use domain::platform::{Mode, Platform};
use domain::time::Timestamp;
use domain::token::{Permission, Permissions};
use domain::uma_address::UmaDomain;
use http_body_util::{BodyExt, Full};
use jsonschema::Validator;
use ports::clock::Clock as _;
use ports::locality::{Locality, TestReach};
use ports::rails::Rails;
use serde_json::{Value, json};
use service::env::Delivering;
use service::platforms::NewPlatform;
use service::tokens::NewToken;
use service::{App, Env, Error, jobs, platforms, tokens};
use store::Store;
use store::audit::{Effect, audit};
use store::engine::Engine;
use store::keyring::Keyring;
use store::origin::{Actor, Origin};
use store::server_key::replace_journal_key;
use store::sql::Value as Stored;
use store::{PostgresServer, SqliteFile};
use testbed::place::Place;
use tower::ServiceExt;

/// What opens every database.
const KEY: [u8; 32] = [7; 32];

/// When every test begins.
pub const START: &str = "2025-10-13T09:00:00.000Z";

/// A server without sockets.
pub struct Server {
    pub app: App,
    pub clock: ManualClock,
    router: Router,
    schemas: Arc<Schemas>,
    place: Place,
}

/// A client with the credentials of one token.
#[derive(Clone)]
pub struct Client {
    router: Router,
    schemas: Arc<Schemas>,
    authorization: Option<String>,
    pub platform: PlatformId,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
    pub body: Value,
}

impl Answer {
    /// The body of an answer with this status; fails with the whole answer otherwise.
    #[track_caller]
    pub fn expect(&self, status: u16) -> &Value {
        assert_eq!(self.status, status, "{}", self.body);
        &self.body
    }

    /// Checks an error and gives its details.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> &Value {
        assert_eq!(
            (self.status, self.body["code"].as_str()),
            (status, Some(code)),
            "{}",
            self.body
        );
        assert_eq!(self.body["status"], json!(status));
        &self.body["details"]
    }
}

impl Server {
    /// A server on an empty database.
    pub fn new() -> Self {
        let clock = ManualClock::new(Timestamp::parse(START).expect("an instant"));
        Self::open(Place::fresh(), clock, 1)
    }

    /// A server with a file of rates that is as old as [`START`], so that live platforms quote.
    pub fn with_market() -> Self {
        const DAY_MILLIS: i64 = 86_400_000;
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let prices = r#"{"EUR":{"usdPerUnit":"1.1"},"BTC":{"usdPerUnit":"100000"}}"#;
        write!(file, r#"{{"asOf":"{START}","currencies":{prices}}}"#).expect("written");
        let table = RateTable::of_file(file.path(), DAY_MILLIS).expect("rates");
        Self::with_rates(&Arc::new(table))
    }

    /// A server with a table of rates.
    pub fn with_rates(table: &Arc<RateTable>) -> Self {
        let clock = ManualClock::new(Timestamp::parse(START).expect("an instant"));
        let env = env_of(&clock, 1, sandbox(), table);
        Self::open_in(Place::fresh(), clock, env)
    }

    fn open(place: Place, clock: ManualClock, seed: u64) -> Self {
        let env = env(&clock, seed, sandbox());
        Self::open_in(place, clock, env)
    }

    fn open_in(place: Place, clock: ManualClock, env: Env) -> Self {
        let keyring = Keyring::new(&KEY);
        let (store, _) = Store::open(&*engine(&place), keyring).expect("a store");
        let app = App::new(store, env);
        let router = api::router(app.clone());
        let schemas = Schemas::of(&app);
        Self { app, clock, router, schemas, place }
    }

    /// Another server on the same database, whose sandbox platforms have these rails.
    pub fn beside(&self, seed: u64, rails: impl Into<Rails>) -> App {
        self.beside_at(&self.clock, seed, rails)
    }

    /// This server, had it been started with other rails.
    pub fn with_rail(&self, seed: u64, rails: impl Into<Rails>) -> App {
        App::new(self.app.store().clone(), env(&self.clock, 1_000 + seed, rails.into()))
    }

    /// Another server on the same database, with a clock of its own.
    pub fn beside_at(&self, clock: &ManualClock, seed: u64, rails: impl Into<Rails>) -> App {
        let alone = env(clock, 1_000 + seed, rails.into());
        App::new(self.app.store().clone(), Env { shares_database: true, ..alone })
    }

    /// The server after a restart on the same database.
    pub fn restart(self) -> Self {
        let Self { clock, place, .. } = self;
        Self::open(place, clock, 2)
    }

    /// What answers its requests.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// A client of a new sandbox platform, with all permissions.
    pub async fn platform(&self) -> Client {
        self.platform_with(Mode::Sandbox, true).await
    }

    /// A client of a new platform, with all permissions.
    pub async fn platform_with(&self, mode: Mode, is_regulated: bool) -> Client {
        let others = self.app.store().read(|view| view.platforms()).await;
        // Each platform has a domain of its own.
        let domain = match others.map_err(Error::Store).expect("a read").len() {
            0 => "uma.test".to_owned(),
            others => format!("uma-{others}.test"),
        };
        let new = NewPlatform {
            name: "test".to_owned(),
            mode,
            uma_domain: UmaDomain::parse(&domain).expect("a domain"),
            is_regulated,
        };
        let platform = platforms::create(&self.app, new).await.expect("a platform");
        self.token(platform.id, Permissions::ALL).await
    }

    /// A client of a platform with these permissions.
    pub async fn token(&self, platform: PlatformId, permissions: Permissions) -> Client {
        let found = self.app.store().read(move |view| view.get::<Platform>(&platform)).await;
        let found = found.map_err(Error::Store).expect("a read").expect("a platform");
        let new = tokens::draw(&self.app, &found, "test".to_owned(), permissions);
        let NewToken { token, secret } = new.clone();
        self.app
            .store()
            .write(self.app.origin(), move |unit| tokens::add(unit, &new, None))
            .await
            .expect("a token");
        self.client(platform, &token.client_id, &secret)
    }

    /// A client of a platform with one permission.
    pub async fn token_with(&self, platform: PlatformId, permission: Permission) -> Client {
        self.token(platform, [permission].into_iter().collect()).await
    }

    /// A client with any credentials.
    pub fn client(&self, platform: PlatformId, id: &str, secret: &str) -> Client {
        let credentials =
            base64::engine::general_purpose::STANDARD.encode(format!("{id}:{secret}"));
        Client {
            router: self.router.clone(),
            schemas: Arc::clone(&self.schemas),
            authorization: Some(format!("Basic {credentials}")),
            platform,
        }
    }

    /// A client without credentials.
    pub fn anonymous(&self) -> Client {
        Client {
            router: self.router.clone(),
            schemas: Arc::clone(&self.schemas),
            authorization: None,
            platform: PlatformId::from_uuid(uuid::Uuid::nil()),
        }
    }

    /// Moves the clock and does what is due then, until nothing is.
    pub async fn pass(&self, millis: i64) {
        self.clock.advance_millis(millis);
        loop {
            let step = jobs::step(&self.app).await.expect("a step");
            assert_eq!(step.failed, 0, "timers failed");
            jobs::settled(&self.app).await;
            if step.done == 0 && step.under_way == 0 {
                return;
            }
            let now = self.app.server_now();
            let due = self.app.store().due_timers(now, 1, &HashSet::new()).await;
            if due.expect("a read").timers.is_empty() {
                return;
            }
        }
    }

    /// Sets the machine's clock ahead, or back if that is below zero, and lets the server follow.
    pub async fn set_clock(&self, by_millis: i64) {
        /// How long a jump forward is doubted, and a little.
        const DOUBTED_MILLIS: i64 = 11_000;
        self.clock.set(self.clock.machine().plus_millis(by_millis));
        self.pass(0).await;
        self.pass(DOUBTED_MILLIS).await;
        assert_eq!(self.app.server_now(), self.clock.machine());
    }

    /// A client of this server with the credentials of one from before a restart.
    pub fn client_again(&self, before: &Client) -> Client {
        let (id, secret) = before.credentials();
        self.client(before.platform, &id, &secret)
    }

    /// Changes tables behind the server's back; how many rows. It forgets its copies of them.
    pub async fn tamper(&self, sql: &str, parameters: &[Stored]) -> usize {
        let followed = self.app.store().read(|_| Ok::<_, Error>(())).await;
        followed.expect("tables that have followed");
        let mut connection = engine(&self.place).projector().expect("a database");
        connection.begin().expect("a transaction");
        let rows = connection.execute(sql, parameters).expect("a statement");
        connection.commit().expect("a commit");
        let (engine, keyring) = (engine(&self.place), Keyring::new(&KEY));
        let origin =
            Origin { actor: Actor::job("TEST"), request: None, at: Timestamp::from_millis(0) };
        replace_journal_key(&*engine, &keyring, origin).expect("another key");
        rows
    }

    /// What the journal says of an object: for whom, by which request, and what became of it.
    pub fn audited(&self, object: &str) -> Vec<(Actor, Option<String>, Effect)> {
        let (mut found, keyring) = (Vec::new(), Keyring::new(&KEY));
        let read = audit(&*engine(&self.place), &keyring, None, &mut |entry| {
            let of_object = entry.changes.iter().filter(|(id, _)| id == object);
            let (actor, request) = (&entry.origin.actor, &entry.origin.request);
            found.extend(of_object.map(|it| (actor.clone(), request.clone(), it.1)));
            Ok(())
        });
        read.expect("a journal");
        found
    }

    /// Every event about something, in the order in which they were committed.
    pub async fn events_of(&self, resource: uuid::Uuid) -> Vec<Event> {
        let notified = self.app.store().read(move |view| {
            let mut events = Vec::new();
            for platform in view.platforms()? {
                events.extend(view.feed(platform.id, 0, None, u32::MAX)?.events);
            }
            Ok::<_, Error>(events)
        });
        let notified = notified.await.expect("a read").into_iter().map(|numbered| numbered.event);
        notified.filter(|event| event.resource == resource).collect()
    }

    /// Every invariant of the database, and that its journal makes the same tables.
    pub fn verify(&self) {
        let (engine, keyring) = (engine(&self.place), Keyring::new(&KEY));
        let report = store::verify::verify(&*engine, Some(&keyring));
        let mut report = report.expect("a report");
        let folder = tempfile::tempdir().expect("a folder");
        let scratch = SqliteFile::new(&folder.path().join("replay.db"));
        let replayed = store::verify::replay(&*engine, &keyring, &scratch);
        report.checks.push(replayed.expect("a journal"));
        let broken: Vec<_> = report.checks.iter().filter(|check| !check.holds()).collect();
        assert!(broken.is_empty(), "{broken:#?}");
    }
}

/// The way to a database.
fn engine(place: &Place) -> Box<dyn Engine> {
    let url = place.url();
    match url.strip_prefix("sqlite://") {
        Some(path) => Box::new(SqliteFile::new(path.as_ref())),
        None => Box::new(PostgresServer::new(&url).expect("a URL")),
    }
}

/// The rails of the sandbox, as a server has them.
fn sandbox() -> Rails {
    let outbound = Arc::new(GuardedClient::default());
    let reach = TestReach::new(Locality::new(true), true);
    sandbox_rails(SandboxRail::default(), outbound, reach)
}

/// The world of a server that has its database for itself.
fn env(clock: &ManualClock, seed: u64, rails: Rails) -> Env {
    env_of(clock, seed, rails, &Arc::new(RateTable::builtin()))
}

fn env_of(clock: &ManualClock, seed: u64, rails: Rails, table: &Arc<RateTable>) -> Env {
    let (clock, entropy) = (Arc::new(clock.clone()), Arc::new(SeededEntropy::new(seed)));
    let outbound = Arc::new(GuardedClient::default());
    let modes = Modes::new(table, rails, clock.clone(), entropy.clone(), outbound);
    let Modes { rates, rails, institutions, outbound, identification } = modes;
    Env {
        clock,
        entropy,
        rates,
        rails,
        institutions,
        lightning: adapters::modes::lightning([7; 32]),
        identification,
        outbound,
        presenter: Arc::new(JsonPresenter),
        public_url: "https://pay.test".to_owned(),
        quote_lifetime_millis: 300_000,
        answers_kept_millis: 30 * 86_400_000,
        locality: Locality::new(true),
        webhooks: Delivering::USUAL,
        shares_database: false,
        peer_address: None,
    }
}

/// A JSON body, and whatever else a request has.
#[derive(Debug, Clone, Default)]
pub struct Call {
    headers: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
    is_cut: bool,
    from: Option<IpAddr>,
}

impl Call {
    /// A JSON body.
    pub fn json(body: &Value) -> Self {
        Self::raw(serde_json::to_vec(body).expect("JSON"))
            .header("content-type", "application/json")
    }

    /// Any bytes as a body.
    pub fn raw(body: impl Into<Vec<u8>>) -> Self {
        Self { body: Some(body.into()), ..Self::default() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The values of its headers and its body, as far as they are text.
    pub fn text(&self) -> String {
        let headers = self.headers.iter().map(|(_, value)| value.as_str());
        let body = String::from_utf8_lossy(self.body.as_deref().unwrap_or_default());
        headers.chain([&*body]).collect::<Vec<_>>().join("\n")
    }

    /// Comes from an address.
    #[must_use]
    pub fn from(self, address: &str) -> Self {
        Self { from: Some(address.parse().expect("an address")), ..self }
    }

    /// The connection is lost once the body has come.
    #[must_use]
    pub fn cut(self) -> Self {
        Self { is_cut: true, ..self }
    }

    /// Adds an idempotency key.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }
}

impl Client {
    /// The same client of another server on the same database.
    pub fn at(&self, app: &App) -> Self {
        Self {
            router: api::router(app.clone()),
            schemas: Arc::clone(&self.schemas),
            authorization: self.authorization.clone(),
            platform: self.platform,
        }
    }

    /// The client id and the secret.
    pub fn credentials(&self) -> (String, String) {
        let basic = self.authorization.as_deref().and_then(|basic| basic.strip_prefix("Basic "));
        let bytes = base64::engine::general_purpose::STANDARD.decode(basic.expect("credentials"));
        let text = String::from_utf8(bytes.expect("base64")).expect("text");
        let (id, secret) = text.split_once(':').expect("two parts");
        (id.to_owned(), secret.to_owned())
    }

    /// Sends a request below the version segment.
    pub async fn send(&self, method: &str, path: &str, call: Call) -> Answer {
        self.send_to(method, &format!("/{}{path}", api::VERSION), call).await
    }

    /// Sends a request to any path.
    pub async fn send_to(&self, method: &str, path: &str, call: Call) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        let body = match call.body {
            Some(bytes) if call.is_cut => {
                let lost = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                let whole = Full::new(Bytes::from(bytes)).map_err(|never| match never {});
                Body::new(whole.with_trailers(std::future::ready(Some(Err(lost)))))
            }
            Some(bytes) => Body::from(bytes),
            None => Body::empty(),
        };
        let mut request = request.body(body).expect("a request");
        if let Some(address) = call.from {
            request.extensions_mut().insert(api::auth::ClientAddress(address));
        }
        let response = self.router.clone().oneshot(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes().to_vec();
        let answer = Answer {
            status: parts.status.as_u16(),
            body: serde_json::from_slice(&decoded(&parts.headers, &bytes)).unwrap_or(Value::Null),
            headers: parts.headers,
            bytes,
        };
        self.schemas.check(method, path, &answer);
        answer
    }

    /// Asks.
    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, Call::default()).await
    }

    /// Sends a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, Call::json(body)).await
    }

    /// Sends a change.
    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send("PATCH", path, Call::json(body)).await
    }

    /// Deletes.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, Call::default()).await
    }

    /// Makes a person and gives its id.
    pub async fn customer(&self) -> String {
        let body = json!({ "customerType": "INDIVIDUAL", "fullName": "Ada Lovelace" });
        text(&self.post("/customers", &body).await.expect(201)["id"])
    }

    /// The UMA address of a customer.
    pub async fn uma_address(&self, customer: &str) -> String {
        text(&self.get(&format!("/customers/{customer}")).await.expect(200)["umaAddress"])
    }

    /// The id of an internal account of a customer, or of the platform.
    pub async fn account(&self, customer: Option<&str>, currency: &str) -> String {
        let path = match customer {
            Some(id) => format!("/customers/internal-accounts?customerId={id}&currency={currency}"),
            None => format!("/platform/internal-accounts?currency={currency}"),
        };
        text(&self.get(&path).await.expect(200)["data"][0]["id"])
    }

    /// The internal account of a customer with money in it.
    pub async fn funded(&self, customer: &str, currency: &str, amount: i64) -> String {
        let account = self.account(Some(customer), currency).await;
        self.fund(&account, amount).await;
        account
    }

    /// Puts money into an account.
    pub async fn fund(&self, account: &str, amount: i64) {
        let path = format!("/sandbox/internal-accounts/{account}/fund");
        self.post(&path, &json!({ "amount": amount })).await.expect(200);
    }

    /// What an internal account has.
    pub async fn balance(&self, account: &str) -> i64 {
        for path in ["/customers/internal-accounts?limit=100", "/platform/internal-accounts"] {
            let mut next = path.to_owned();
            loop {
                let answer = self.get(&next).await;
                let body = answer.expect(200);
                let rows = body["data"].as_array().expect("rows");
                if let Some(row) = rows.iter().find(|row| row["id"] == account) {
                    return row["balance"]["amount"].as_i64().expect("an amount");
                }
                let Some(cursor) = body["nextCursor"].as_str() else { break };
                next = format!("{path}&cursor={cursor}");
            }
        }
        panic!("no account {account}");
    }

    /// A US bank account of a customer, whose number ends in these three digits.
    pub async fn usd_external(&self, customer: &str, suffix: &str) -> String {
        let body = usd_external(Some(customer), suffix);
        text(&self.post("/customers/external-accounts", &body).await.expect(201)["id"])
    }
}

/// A body without the encoding that its answer has.
pub fn decoded(headers: &HeaderMap, bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let encoding = headers.get(header::CONTENT_ENCODING).map(|encoding| encoding.as_bytes());
    match encoding {
        // An answer to HEAD names the encoding of the body that it does not have.
        _ if bytes.is_empty() => {}
        None => plain.extend_from_slice(bytes),
        Some(b"gzip") => {
            flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).expect("gzip");
        }
        Some(b"br") => {
            brotli::Decompressor::new(bytes, 4_096).read_to_end(&mut plain).expect("Brotli");
        }
        Some(other) => panic!("{other:?} is no encoding of ours"),
    }
    plain
}

/// The body of a US bank account.
pub fn usd_external(customer: Option<&str>, suffix: &str) -> Value {
    let mut body = json!({
        "currency": "USD",
        "accountInfo": {
            "accountType": "USD_ACCOUNT",
            "accountNumber": format!("123456{suffix}"),
            "routingNumber": "021000021",
            "beneficiary": {
                "beneficiaryType": "INDIVIDUAL",
                "fullName": "Ada Lovelace",
                "birthDate": "1985-12-10",
                "nationality": "GB",
            },
        },
    });
    if let Some(customer) = customer {
        body["customerId"] = json!(customer);
    }
    body
}

/// The text of a value that is one.
#[track_caller]
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not text")).to_owned()
}

/// The currencies of a new platform.
pub fn with_rail() -> impl Iterator<Item = Currency> {
    Currency::all().filter(|currency| has_rail(*currency))
}

/// Why a payment was not made: its `failureReason`, and the code of its `statusReason`.
pub fn why(transaction: &Value) -> [Option<&str>; 2] {
    [transaction["failureReason"].as_str(), transaction["statusReason"]["code"].as_str()]
}

/// The paths of the fields that an error names, in order of the alphabet.
#[track_caller]
pub fn fields(details: &Value) -> Vec<String> {
    let errors = details["errors"].as_array().unwrap_or_else(|| panic!("no errors in {details}"));
    let mut fields: Vec<_> = errors.iter().map(|error| text(&error["field"])).collect();
    fields.sort();
    fields
}

/// The OpenAPI document as checks: which statuses an operation may answer, and with what.
struct Schemas {
    document: Value,
    compiled: Mutex<HashMap<String, Arc<Validator>>>,
}

impl Schemas {
    /// The schemas of this version; compiled once for all tests.
    fn of(app: &App) -> Arc<Self> {
        static SHARED: OnceLock<Arc<Schemas>> = OnceLock::new();
        let make = || {
            let document = api::document(app);
            Arc::new(Self { document, compiled: Mutex::default() })
        };
        Arc::clone(SHARED.get_or_init(make))
    }

    /// Fails unless the document allows the answer.
    fn check(&self, method: &str, path: &str, answer: &Answer) {
        // Failures that are asked for: by the suffix 109, and by a platform that is silent.
        let message = answer.body["message"].as_str().unwrap_or_default();
        let is_simulated = message.starts_with("the bank did not answer");
        let is_unconnected = answer.status == 501;
        let is_undecided = answer.body["reason"] == "the payee's platform did not decide in time";
        assert!(
            answer.status < 500 || is_simulated || is_unconnected || is_undecided,
            "{method} {path}: {}",
            answer.body
        );
        let Some(path) = path.strip_prefix(&format!("/{}", api::VERSION)) else { return };
        let path = path.split('?').next().unwrap_or_default();
        // Implied by the methods that are documented.
        if method == "HEAD" || (method == "OPTIONS" && answer.status == 204) {
            assert!(answer.bytes.is_empty(), "{method} {path} has a body");
            return;
        }
        let Some((template, operation)) = self.operation(method, path) else {
            assert!(matches!(answer.status, 404 | 405), "{method} {path} is not documented");
            return;
        };
        let status = answer.status.to_string();
        let response = &operation["responses"][&status];
        let body = &answer.body;
        assert!(response.is_object(), "{method} {template} does not document {status}: {body}");
        let Some(schema) = response["content"]["application/json"].get("schema") else {
            assert!(answer.bytes.is_empty(), "{method} {template} {status} documents no body");
            return;
        };
        let key = format!("{method} {template} {status}");
        let compiled = {
            let mut compiled = self.compiled.lock().expect("the lock");
            let make = || Arc::new(self.compile(schema));
            Arc::clone(compiled.entry(key).or_insert_with(make))
        };
        let errors: Vec<_> = compiled
            .iter_errors(&answer.body)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{method} {template} {status}: {errors:#?}\n{}", answer.body);
    }

    fn compile(&self, schema: &Value) -> Validator {
        let mut schema = schema.clone();
        schema["components"] = self.document["components"].clone();
        jsonschema::options().build(&schema).expect("the document's schemas compile")
    }

    /// The operation behind a path; fixed segments before variable ones.
    fn operation(&self, method: &str, path: &str) -> Option<(String, &Value)> {
        let paths = self.document["paths"].as_object()?;
        let fits = |template: &str| {
            let (mut left, mut right) = (template.split('/'), path.split('/'));
            loop {
                match (left.next(), right.next()) {
                    (None, None) => return true,
                    (Some(one), Some(other)) if one == other || one.starts_with('{') => {}
                    _ => return false,
                }
            }
        };
        let mut found: Vec<_> = paths.iter().filter(|(template, _)| fits(template)).collect();
        found.sort_by_key(|(template, _)| template.matches('{').count());
        let (template, item) = found.first()?;
        let operation = item.get(method.to_lowercase())?;
        Some(((*template).clone(), operation))
    }
}
