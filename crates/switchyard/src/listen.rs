//! `switchyard listen`: sends a platform's events to a developer's machine as they happen.
//!
//! It is a client of the public API and reads the feed of events; the server does not know it from
//! any other, and the platform's own endpoint gets what it always gets. Events leave in the order
//! of the feed, each once, whatever the answer is: a developer wants to see the failure, not its
//! repetition. A server that is away is asked again until it is back, from where the feed was left.

mod decisions;

use std::convert::Infallible;
use std::fmt;
use std::time::{Duration, Instant};

use adapters::clock::SystemClock;
use adapters::entropy::SystemEntropy;
use adapters::outbound::choose_cryptography;
use domain::event::EventKind;
use http::Uri;
use ports::clock::Clock as _;
use ports::entropy::Entropy as _;
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use service::webhooks::signature::Signer;

use self::decisions::Decider;
use crate::command::{Failure, emit, print};
use crate::config::{ClientCredentials, Config, EXIT_OK, Forward};
use crate::shutdown;

/// How long a server has for a page of the feed. It answers in milliseconds.
const ASKED_WITHIN: Duration = Duration::from_secs(10);

/// How long the developer's program has for an event: as long as an endpoint has for a delivery,
/// and some, for one that is stopped at a breakpoint.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// Between two reads of a feed that had nothing new.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(300);

/// The first pause after a request that had no answer, and the longest: each is twice the one
/// before.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_LONGEST: Duration = Duration::from_secs(15);

/// Events of a page of the feed: as many as the API gives.
const PAGE: u32 = 100;

/// Runs until it is interrupted.
pub async fn run(config: &Config, options: &Forward) -> Result<u8, Failure> {
    let stop = shutdown::on_signals()
        .map_err(|error| Failure::new(format!("signals cannot be listened for: {error}")))?;
    let server = Server::new(config)?;
    let mut decider = None;
    let done = tokio::select! {
        failed = forward(&server, options, &mut decider) => {
            let Err(failure) = failed;
            Err(failure)
        }
        () = stop.cancelled() => Ok(EXIT_OK),
    };
    let ended = match decider {
        Some(decider) => decider.end(&server).await,
        None => Ok(()),
    };
    done.and_then(|code| ended.map(|()| code))
}

async fn forward(
    server: &Server,
    options: &Forward,
    decider: &mut Option<Decider>,
) -> Result<Infallible, Failure> {
    let target = Target::new(server, options).await?;
    if let Some(decision) = options.decision() {
        *decider = Some(Decider::begin(server, decision).await?);
    }
    let latest: Feed = server.patiently("/events?start=latest&limit=1").await?;
    let mut cursor = latest.next_cursor;
    print(&format!("Waiting for events of {}\n\n", server.base))?;
    emit(&json!({
        "listening": server.base,
        "forwardTo": target.url.to_string(),
        "publicKey": target.signer.newest().public_key,
        "secret": target.secret,
    }))?;
    loop {
        let path = format!("/events?limit={PAGE}&cursor={cursor}");
        let feed: Feed = server.patiently(&path).await?;
        for event in &feed.data {
            if let Some(decider) = decider {
                decide(decider, server, event).await?;
            }
            target.send(event).await?;
        }
        if !feed.has_more {
            pause(LOOK_AGAIN_AFTER).await;
        }
        cursor = feed.next_cursor;
    }
}

/// Decides about the payment of an event, before the developer's program gets it: a program that is
/// stopped at a breakpoint must not use up the time to decide.
async fn decide(decider: &Decider, server: &Server, event: &RawValue) -> Result<(), Failure> {
    let parsed: Value = serde_json::from_str(event.get()).unwrap_or_default();
    if let Some(said) = decider.decide(server, &parsed).await? {
        let id = parsed["data"]["id"].as_str().unwrap_or_default();
        print(&format!("{id} is {said}\n"))?;
        emit(&json!({ "approvalRequest": id, "decision": said }))?;
    }
    Ok(())
}

/// Some of a platform's events.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feed {
    data: Vec<Box<RawValue>>,
    has_more: bool,
    next_cursor: String,
}

/// Where the events come from.
struct Server {
    client: Client,
    base: String,
    credentials: ClientCredentials,
}

/// Why a server has not answered as it should.
enum Refusal {
    /// It may another time.
    Passing(String),
    /// It will not.
    Final(Failure),
}

impl Server {
    fn new(config: &Config) -> Result<Self, Failure> {
        let credentials = config.client_credentials()?.clone();
        choose_cryptography();
        let base = format!("{}/{}", config.api, api::VERSION);
        let client = made(client(ASKED_WITHIN))?;
        Ok(Self { client, base, credentials })
    }

    /// Asks until there is an answer. Tells once that there is none, and that there is one again.
    async fn patiently<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let (mut next, mut is_away) = (PAUSE_FIRST, false);
        loop {
            match self.ask(Method::GET, path, None).await {
                Ok(answer) => {
                    if is_away {
                        print("The server answers again\n")?;
                        emit(&json!({ "serverAnswers": true }))?;
                    }
                    return Ok(answer);
                }
                Err(Refusal::Final(failure)) => return Err(failure),
                Err(Refusal::Passing(why)) => {
                    if !is_away {
                        print(&format!("The server does not answer ({why}): asking again\n"))?;
                        emit(&json!({ "serverAnswers": false, "reason": why }))?;
                    }
                    is_away = true;
                    pause(next).await;
                    next = (next * 2).min(PAUSE_LONGEST);
                }
            }
        }
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Refusal> {
        let ClientCredentials { id, secret } = &self.credentials;
        let passing = |error: reqwest::Error| Refusal::Passing(error.without_url().to_string());
        let url = format!("{}{path}", self.base);
        let mut request = self.client.request(method, url).basic_auth(id, Some(secret));
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.map_err(passing)?;
        let status = answer.status();
        let body = answer.text().await.map_err(passing)?;
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(Refusal::Passing(status.to_string()));
        }
        if !status.is_success() {
            let error: Value = serde_json::from_str(&body).unwrap_or_default();
            let message = error["message"].as_str().unwrap_or("that is no answer of this API");
            let asked = path.split('?').next().unwrap_or_default();
            let line = format!("{asked} of {} was refused with {status}: {message}", self.base);
            return Err(Refusal::Final(Failure::new(line)));
        }
        serde_json::from_str(&body).map_err(|error| {
            let line = format!("{} does not answer as this API does: {error}", self.base);
            Refusal::Final(Failure::new(line))
        })
    }
}

/// The secret that deliveries of the platform are signed with.
#[derive(Deserialize)]
struct Keys {
    secret: String,
}

/// Where the events go.
struct Target {
    client: Client,
    url: Uri,
    events: Vec<EventKind>,
    signer: Signer,
    /// The secret of the signer.
    secret: String,
}

impl Target {
    async fn new(server: &Server, options: &Forward) -> Result<Self, Failure> {
        let Keys { secret } = server.patiently("/webhooks/keys").await?;
        let draw = || {
            let mut bytes = [0; 32];
            SystemEntropy.fill(&mut bytes);
            bytes
        };
        let signer = Signer::with_secret(&secret, draw);
        let signer =
            signer.ok_or_else(|| Failure::new("the server has given no webhook secret"))?;
        let Forward { forward_to, events, .. } = options;
        print(&format!(
            "Events go to {forward_to}.\nwebhook-signature is made with the platform's webhook \
             secret:\n\n{secret}\n\nX-Grid-Signature is made with the key of this \
             session:\n\n{}\n",
            signer.newest().public_key
        ))?;
        // Proxies are for the way to the server: this one leads to a machine nearby.
        let client = made(client(ANSWERED_WITHIN).no_proxy())?;
        Ok(Self { client, url: forward_to.clone(), events: events.clone(), signer, secret })
    }

    /// Posts an event, if it is of a type that is wanted, and prints what came of it.
    async fn send(&self, event: &RawValue) -> Result<(), Failure> {
        let body = event.get();
        let notification: Notification = serde_json::from_str(body)
            .map_err(|error| Failure::new(format!("the feed has an event of no shape: {error}")))?;
        if !self.events.is_empty()
            && !EventKind::of_type(&notification.kind)
                .is_some_and(|kind| self.events.contains(&kind))
        {
            return Ok(());
        }
        let mut request = self.client.post(self.url.to_string()).body(body.to_owned());
        for (name, value) in
            self.signer.headers_of(&notification.id, body.as_bytes(), SystemClock.machine())
        {
            request = request.header(name, value);
        }
        let began = now();
        let answer = match request.send().await {
            Ok(answer) => answer.status().to_string(),
            Err(error) if error.is_timeout() => "no answer in time".to_owned(),
            Err(error) if error.is_connect() => "no program listens there".to_owned(),
            Err(_) => "the connection broke".to_owned(),
        };
        let millis = began.elapsed().as_millis();
        print(&format!("{notification}   {answer}   {millis} ms\n"))?;
        emit(&json!({
            "event": notification.id,
            "type": notification.kind,
            "timestamp": notification.timestamp,
            "resourceId": notification.data.id,
            "status": notification.data.status,
            "answer": answer,
            "millis": u64::try_from(millis).unwrap_or(u64::MAX),
        }))
    }
}

/// The shown fields of an event.
#[derive(Deserialize)]
struct Notification {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    timestamp: String,
    data: Subject,
}

/// Its subject. Invitations have no id that may be shown.
#[derive(Deserialize)]
struct Subject {
    id: Option<String>,
    status: Option<Value>,
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, kind, timestamp, data } = self;
        write!(f, "{timestamp}   {kind}   {id}")?;
        if let Some(subject) = &data.id {
            write!(f, "   {subject}")?;
        }
        match data.status.as_ref().and_then(Value::as_str) {
            Some(status) => write!(f, " {status}"),
            None => Ok(()),
        }
    }
}

/// A client that goes where the developer said and nowhere else.
fn client(within: Duration) -> ClientBuilder {
    Client::builder().redirect(Policy::none()).timeout(within)
}

fn made(client: ClientBuilder) -> Result<Client, Failure> {
    client.build().map_err(|error| Failure::new(format!("no HTTP client: {error}")))
}

#[expect(clippy::disallowed_methods, reason = "a person is shown how long an answer took")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a client that polls waits between two reads")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
