//! No event is missed, doubled in effect or delivered before an earlier one of the same resource,
//! whatever becomes of the server and of the receiver.
//!
//! A real server under load, and a real receiver that is killed, slowed, answers 500, hangs, and
//! breaks off; the server is killed with every fault. In the end every event of the platform's feed
//! must have arrived, signed and with the same bytes each time. Each test prints its figures:
//! `cargo nextest run -p switchyard --test webhooks --no-capture`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use p256::ecdsa::signature::Verifier as _;
use p256::ecdsa::{Signature, VerifyingKey};
use p256::pkcs8::DecodePublicKey as _;
use serde_json::{Value, json};
use sha2::Sha256;
use testbed::instance::{Installation, Instance};
use testbed::postgres::Database;
use testbed::receiver::{Answer, Received, Receiver};
use testbed::recorder::{Api, Load, Recorder};

const BINARY: &str = env!("CARGO_BIN_EXE_switchyard");

/// A database that is no file has no place beside it for a key.
const SECRET_KEY: &str = "5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e";

/// Clients that send at once.
const CLIENTS: usize = 8;

/// How often the server is killed.
const KILLS: usize = 10;

/// Events at least: some hundred between two faults. A build for tests signs 150 of them a second,
/// so that more events only take longer.
const EVENTS: usize = 3_000;

/// Answers to clients between two faults.
const BETWEEN: u64 = 60;

/// Every so many deliveries, the signature that takes longest to check is checked.
const ECDSA_EVERY: usize = 25;

/// By then whatever is attempted again has been, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Between two checks of what has arrived.
const CHECK_EVERY: Duration = Duration::from_millis(50);

#[expect(clippy::disallowed_methods, reason = "how long it takes is measured")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "other processes take real time")]
async fn pause() {
    tokio::time::sleep(CHECK_EVERY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_arrives_whatever_dies_on_sqlite() -> Result<()> {
    let folder = tempfile::TempDir::new()?;
    let database_url = format!("sqlite://{}", folder.path().join("webhooks.db").display());
    nothing_is_missed(Installation::new(BINARY, &database_url), 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_arrives_whatever_dies_on_postgres() -> Result<()> {
    let database = Database::fresh();
    let installation = Installation::new(BINARY, &database.url());
    nothing_is_missed(installation.with("SWITCHYARD_SECRET_KEY", SECRET_KEY), 2).await
}

/// `count` servers on one database are killed in turn, so that each delivers for some time.
async fn nothing_is_missed(installation: Installation, count: usize) -> Result<()> {
    let installation = installation
        .with("SWITCHYARD_WEBHOOK_TIMEOUT_SECONDS", "2")
        .with("SWITCHYARD_WEBHOOK_RETRY_LONGEST_SECONDS", "2");
    let started = now();
    let mut servers = vec![installation.start()?];
    // The first one makes the database.
    Api::new(&[servers[0].base()])?.ready().await?;
    for _ in 1..count {
        servers.push(installation.start()?);
    }
    let bases: Vec<_> = servers.iter().map(Instance::base).collect();
    let api = Api::new(&bases)?;
    api.ready().await?;
    let mut receiver = Receiver::start()?;
    let endpoint = json!({ "webhookEndpoint": receiver.url("/hooks") });
    api.change("/config", endpoint).await?;
    let begin = api.get("/events?start=latest").await?["nextCursor"].clone();
    let (mut cursor, mut feed) = (begin.as_str().context("a cursor")?.to_owned(), Vec::new());
    let recorder = Recorder::set_up(api).await?;
    let load = Load::start(&recorder, CLIENTS);
    for round in 0..KILLS {
        fault(round, &mut receiver, &recorder).await?;
        let server = &mut servers[round % count];
        server.kill()?;
        server.resume()?;
        receiver.answer(Answer::status(200));
        recorder.more(BETWEEN).await?;
    }
    recorder.api().ready().await?;
    loop {
        follow(recorder.api(), &mut cursor, &mut feed).await?;
        if feed.len() >= EVENTS {
            break;
        }
        recorder.more(BETWEEN).await?;
    }
    load.stop().await?;
    recorder.settled().await?;
    follow(recorder.api(), &mut cursor, &mut feed).await?;
    let loaded = started.elapsed();
    let all: BTreeSet<&str> = feed.iter().map(id).collect();
    let arrived = arrived(&receiver, &all).await?;
    let keys = recorder.api().get("/webhooks/keys").await?;
    check_signatures(&arrived, &keys)?;
    check_bytes(&arrived, &feed)?;
    check_order(&arrived, &feed)?;
    let waiting = recorder.api().total("/webhooks/deliveries?status=PENDING&").await?;
    let dead = recorder.api().total("/webhooks/deliveries?status=DEAD&").await?;
    for server in &mut servers {
        server.kill()?;
    }
    installation.verify()?;
    // What arrived in the last moment may not have been written down when everything was there.
    ensure!(dead == 0, "{dead} deliveries were given up, {waiting} wait");
    println!(
        "servers {count}, events {}, arrived {}, deliveries {} ({} more than once), order breaks 0, \
         bad signatures 0, kills {}, load {:.1} s, all there after {:.1} s",
        all.len(),
        all.len(),
        arrived.len(),
        arrived.len() - all.len(),
        KILLS + count,
        loaded.as_secs_f64(),
        started.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// What goes wrong at the receiver while the load goes on.
async fn fault(round: usize, receiver: &mut Receiver, recorder: &Recorder) -> Result<()> {
    match round % 5 {
        0 => {
            receiver.kill();
            recorder.more(BETWEEN).await?;
            receiver.resume()?;
        }
        1 => {
            receiver.answer(Answer::status(200).after(Duration::from_millis(30)));
            recorder.more(BETWEEN).await?;
        }
        2 => {
            receiver.answer(Answer::status(500).body("no"));
            recorder.more(BETWEEN).await?;
        }
        3 => {
            receiver.answer(Answer::status(200).held());
            recorder.more(BETWEEN).await?;
            receiver.release();
        }
        _ => {
            // Some are refused and some broken off, by what is in them.
            receiver.answer_by(|received| {
                match received.body.iter().map(|b| u32::from(*b)).sum() {
                    sum if u32::is_multiple_of(sum, 5) => Answer::status(503),
                    sum if u32::is_multiple_of(sum, 7) => Answer::closed(),
                    _ => Answer::status(200),
                }
            });
            recorder.more(BETWEEN).await?;
        }
    }
    Ok(())
}

fn id(event: &Value) -> &str {
    event["id"].as_str().unwrap_or_default()
}

/// Adds every event behind a cursor, in the order in which they happened.
async fn follow(api: &Api, cursor: &mut String, all: &mut Vec<Value>) -> Result<()> {
    loop {
        let page = api.get(&format!("/events?limit=100&cursor={cursor}")).await?;
        all.extend(page["data"].as_array().context("events")?.iter().cloned());
        cursor.replace_range(.., page["nextCursor"].as_str().context("a cursor")?);
        if page["hasMore"] == json!(false) {
            return Ok(());
        }
    }
}

/// Waits until everything has arrived, and gives all deliveries in their order.
async fn arrived(receiver: &Receiver, all: &BTreeSet<&str>) -> Result<Vec<Received>> {
    let started = now();
    loop {
        let received = receiver.received();
        let seen: BTreeSet<_> = received.iter().map(|it| it.header("webhook-id")).collect();
        let missing = all.iter().filter(|id| !seen.contains(**id)).count();
        if missing == 0 {
            return Ok(received);
        }
        ensure!(started.elapsed() < PATIENCE, "{missing} of {} events are missing", all.len());
        pause().await;
    }
}

fn check_signatures(arrived: &[Received], keys: &Value) -> Result<()> {
    let secret = keys["secret"].as_str().and_then(|it| it.strip_prefix("whsec_"));
    let secret = STANDARD.decode(secret.context("a secret")?)?;
    let public = keys["publicKey"].as_str().context("a public key")?;
    let public = VerifyingKey::from_public_key_pem(public)?;
    for (number, received) in arrived.iter().enumerate() {
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret)?;
        for name in ["webhook-id", "webhook-timestamp"] {
            mac.update(received.header(name).as_bytes());
            mac.update(b".");
        }
        mac.update(&received.body);
        let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        ensure!(received.header("webhook-signature") == expected, "a signature is wrong");
        if number % ECDSA_EVERY == 0 {
            let header: Value = serde_json::from_str(received.header("x-grid-signature"))?;
            let signature = STANDARD.decode(header["s"].as_str().context("a signature")?)?;
            public.verify(&received.body, &Signature::from_der(&signature)?)?;
        }
    }
    Ok(())
}

/// Every delivery of an event has the same bytes, which say what the feed says.
fn check_bytes(arrived: &[Received], feed: &[Value]) -> Result<()> {
    let feed: HashMap<&str, &Value> = feed.iter().map(|event| (id(event), event)).collect();
    let mut first: HashMap<&str, &Received> = HashMap::new();
    for received in arrived {
        let name = received.header("webhook-id");
        let known = first.entry(name).or_insert(received);
        ensure!(known.body == received.body, "{name} came with other bytes");
        let event: Value = serde_json::from_slice(&received.body)?;
        // An event from before the platform had an endpoint is not in this part of the feed.
        let is_same = feed.get(name).is_none_or(|feed| **feed == event);
        ensure!(is_same && id(&event) == name, "{name} is not what the feed has");
    }
    Ok(())
}

/// No event arrives before an earlier one of the same resource has.
fn check_order(arrived: &[Received], feed: &[Value]) -> Result<()> {
    let mut by_resource: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for event in feed {
        let resource = event["data"]["id"].as_str().unwrap_or_default();
        by_resource.entry(resource).or_default().push(id(event));
    }
    let mut first = HashMap::new();
    for (place, received) in arrived.iter().enumerate() {
        first.entry(received.header("webhook-id")).or_insert(place);
    }
    for (resource, ids) in by_resource {
        let places: Vec<_> = ids.iter().filter_map(|id| first.get(id)).collect();
        ensure!(places.is_sorted(), "the events of {resource} overtook each other");
    }
    Ok(())
}
