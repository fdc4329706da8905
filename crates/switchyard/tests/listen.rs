//! `switchyard listen` as a developer meets it: events of a server arrive at a receiver on this
//! machine, whatever happens to either.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod checked;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::instance::{CLIENT_ID, CLIENT_SECRET, Installation, Instance, without_variables};
use testbed::receiver::{Answer, Receiver};
use testbed::recorder::{Accounts, Api, Ask, Outcome};

use crate::checked::Cases;

/// The command, and what it prints.
struct Listener {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Listener {
    fn start(server: &Instance, url: &str, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_switchyard"));
        without_variables(&mut command);
        command
            .args(["listen", "--forward-to", url, "--api", &server.base()])
            .args(more)
            .env("SWITCHYARD_CLIENT_ID", CLIENT_ID)
            .env("SWITCHYARD_CLIENT_SECRET", CLIENT_SECRET);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// The next line that has this part, and all before it.
    fn until(&mut self, part: &str) -> String {
        let mut said = String::new();
        loop {
            let start = said.len();
            let count = self.output.read_line(&mut said).unwrap();
            assert_ne!(count, 0, "it has ended without {part}:\n{said}");
            if said[start..].contains(part) {
                return said;
            }
        }
    }

    /// The exit code after ctrl-c.
    fn interrupt(mut self) -> Option<i32> {
        let id = i32::try_from(self.process.id()).unwrap();
        kill(Pid::from_raw(id), Signal::SIGINT).unwrap();
        self.process.wait().unwrap().code()
    }
}

/// Runs `switchyard trigger`, as one who has pasted the lines that a first start prints; what it
/// has made.
fn trigger(server: &Instance, event: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchyard"));
    without_variables(&mut command);
    command
        .args(["trigger", event, "--json"])
        .env("SY", format!("{}/{}", server.base(), api::VERSION))
        .env("SY_USER", format!("{CLIENT_ID}:{CLIENT_SECRET}"));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{event}: {said}{error}");
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server, a client of it, and accounts to pay with.
struct World {
    server: Instance,
    api: Api,
    accounts: Accounts,
    _folder: TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let database = format!("sqlite://{}", folder.path().join("listen.db").display());
        let server =
            Installation::new(env!("CARGO_BIN_EXE_switchyard"), &database).start().unwrap();
        let api = Api::new(&[server.base()]).unwrap();
        api.ready().await.unwrap();
        let accounts = Accounts::set_up(&api, 100_000).await.unwrap();
        Self { server, api, accounts, _folder: folder }
    }

    /// Makes a payment, and gives its id.
    async fn pay(&self, key: &str) -> String {
        let Accounts { usd, bank, .. } = &self.accounts;
        let body = json!({
            "source": { "accountId": usd },
            "destination": { "accountId": bank },
            "amount": 100,
        });
        let ask = Ask { path: "/transfer-out".to_owned(), body, key: key.to_owned() };
        let said = self.api.ask(&ask).await;
        let Outcome::Known((201, bytes)) = said else { panic!("{said:?}") };
        let made: Value = serde_json::from_slice(&bytes).unwrap();
        made["id"].as_str().unwrap().to_owned()
    }
}

/// The public key that is printed at the start.
fn public_key(printed: &str) -> String {
    let (begin, end) = ("-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----\n");
    let from = printed.find(begin).unwrap();
    let until = from + printed[from..].find(end).unwrap() + end.len();
    printed[from..until].to_owned()
}

#[tokio::test]
async fn events_arrive_in_order_with_their_bytes_and_signatures() {
    let world = World::new().await;
    let receiver = Receiver::start().unwrap();
    receiver.answer(Answer::status(202));
    let earlier = world.pay("before it listens").await;
    let more = ["--events", "OUTGOING_PAYMENT,BULK_UPLOAD"];
    let mut listener = Listener::start(&world.server, &receiver.url("/hooks"), &more);
    let secret = world.api.get("/webhooks/keys").await.unwrap()["secret"].clone();
    let printed = listener.until("Waiting for events");
    assert!(printed.contains(secret.as_str().unwrap()), "{printed}");
    let keys = json!({ "secret": secret, "publicKey": public_key(&printed) });

    let payment = world.pay("while it listens").await;
    let lines = [(); 3].map(|()| listener.until(&payment));
    // What it prints has arrived.
    let received = receiver.received();
    let bodies = received.iter().map(|it| serde_json::from_slice(&it.body).unwrap());
    let events: Vec<Value> = bodies.collect();
    let is_notified = |id: &str, status: &str| {
        events.iter().position(|it| it["data"]["id"] == id && it["data"]["status"] == status)
    };
    assert_eq!(is_notified(&earlier, "PENDING"), None, "it was over before it began");
    let feed = world.api.get("/events?limit=100").await.unwrap();
    let (mut cases, mut before) = (Cases::default(), None);
    for (status, line) in ["PENDING", "PROCESSING", "COMPLETED"].into_iter().zip(&lines) {
        let line = line.lines().last().unwrap();
        let at = is_notified(&payment, status).unwrap();
        assert!(before < Some(at), "{status} came too early: {events:#?}");
        before = Some(at);
        let (event, received) = (&events[at], &received[at]);
        assert_eq!(received.header("content-type"), "application/json");
        assert!(feed["data"].as_array().unwrap().contains(event), "{event} is not in the feed");
        for part in ["OUTGOING_PAYMENT", status, "202 Accepted", " ms"] {
            assert!(line.contains(part), "{part} is missing in {line}");
        }
        assert!(line.contains(received.header("webhook-id")), "{line}");
        cases.add(status, received, &keys, |_| (), (true, true));
    }
    assert!(events.iter().all(|it| it["type"] == "OUTGOING_PAYMENT"), "{events:#?}");
    cases.check();
    assert_eq!(listener.interrupt(), Some(0));
}

#[tokio::test]
async fn neither_a_receiver_nor_a_server_that_goes_away_ends_it() {
    let mut world = World::new().await;
    let mut receiver = Receiver::start().unwrap();
    let mut listener = Listener::start(&world.server, &receiver.url("/"), &[]);
    listener.until("Waiting for events");
    receiver.kill();
    let payment = world.pay("not listening").await;
    assert!(listener.until("COMPLETED").contains("no program listens there"));
    receiver.resume().unwrap();

    world.server.kill().unwrap();
    listener.until("does not answer");
    world.server.resume().unwrap();
    world.api.ready().await.unwrap();
    listener.until("answers again");
    receiver.answer(Answer::closed());
    let other = world.pay("everybody is there again").await;
    assert!(listener.until("COMPLETED").contains("the connection broke"));
    let received = receiver.received();
    let notified = |id: &str| {
        let of = received.iter().filter(|it| String::from_utf8_lossy(&it.body).contains(id));
        of.count()
    };
    assert_eq!((notified(&payment), notified(&other)), (0, 3), "each is sent once");
    assert_eq!(listener.interrupt(), Some(0));
}

#[tokio::test]
async fn every_event_can_be_triggered_and_arrives() {
    let world = World::new().await;
    let receiver = Receiver::start().unwrap();
    let mut listener = Listener::start(&world.server, &receiver.url("/hooks"), &["--approve"]);
    listener.until("Waiting for events");
    for (event, kind, status) in [
        ("payment.completed", "OUTGOING_PAYMENT", "COMPLETED"),
        ("payment.failed", "OUTGOING_PAYMENT", "FAILED"),
        ("payment.rejected", "OUTGOING_PAYMENT", "REJECTED"),
        ("incoming", "INCOMING_PAYMENT", "COMPLETED"),
        ("approval", "INCOMING_PAYMENT", "COMPLETED"),
        ("account.status", "ACCOUNT_STATUS", "UPDATED"),
        ("kyc.approved", "KYC_STATUS", "APPROVED"),
        ("kyc.rejected", "KYC_STATUS", "REJECTED"),
        ("bulk.upload", "BULK_UPLOAD", "COMPLETED"),
        ("invitation.claimed", "INVITATION_CLAIMED", "CLAIMED"),
        ("test", "TEST", "202"),
        ("payment.expired", "OUTGOING_PAYMENT", "EXPIRED"),
        ("payment.returned", "OUTGOING_PAYMENT", "REFUNDED"),
    ] {
        let made = trigger(&world.server, event);
        assert_eq!((&made["event"], &made["status"]), (&json!(event), &json!(status)));
        // A test is for the endpoint alone, and an invitation has no id that is shown.
        let resource = made["resource"].as_str().unwrap();
        let shown = match kind {
            "TEST" => continue,
            "INVITATION_CLAIMED" => kind.to_owned(),
            _ => resource.to_owned(),
        };
        loop {
            let said = listener.until(&shown);
            let line = said.lines().last().unwrap();
            if line.contains(kind) && (line.contains(status) || status == "UPDATED") {
                break;
            }
            let is_status = matches!(kind, "KYC_STATUS" | "INVITATION_CLAIMED" | "BULK_UPLOAD");
            if is_status && line.contains(kind) {
                break;
            }
        }
    }
    assert_eq!(listener.interrupt(), Some(0));
}

#[tokio::test]
async fn approval_requests_are_answered() {
    let world = World::new().await;
    let receiver = Receiver::start().unwrap();
    let endpoint = async || world.api.get("/config").await.unwrap()["webhookEndpoint"].clone();
    for (option, status) in [("--approve", "COMPLETED"), ("--reject", "REJECTED")] {
        let mut listener = Listener::start(&world.server, &receiver.url("/"), &[option]);
        listener.until("Waiting for events");
        let made = trigger(&world.server, "approval");
        assert_eq!(made["status"], status, "{option}");
        listener.until(made["resource"].as_str().unwrap());
        assert!(endpoint().await.is_string());
        assert_eq!(listener.interrupt(), Some(0));
        assert_eq!(endpoint().await, Value::Null, "the platform has no endpoint again");
    }
}

#[tokio::test]
async fn who_may_not_see_the_events_is_refused() {
    let world = World::new().await;
    let listen = |id: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_switchyard"));
        without_variables(&mut command);
        command
            .args(["listen", "--forward-to", "http://127.0.0.1:9/", "--api", &world.server.base()])
            .env_remove("SWITCHYARD_CLIENT_ID")
            .env_remove("SWITCHYARD_CLIENT_SECRET");
        if !id.is_empty() {
            command.env("SWITCHYARD_CLIENT_ID", id).env("SWITCHYARD_CLIENT_SECRET", CLIENT_SECRET);
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = listen("");
    assert_eq!(code, Some(2));
    assert!(said.contains("Set SWITCHYARD_CLIENT_ID"), "{said}");
    let (code, said) = listen("another");
    assert_eq!(code, Some(1));
    assert!(said.contains("401"), "{said}");
}
