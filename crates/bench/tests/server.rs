//! The server under test is the server: it takes real load without an error, its data is sound, and
//! the routes that it is compared with are behind the same permission.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use bench::child::{self, Starter};
use bench::counters::{COMPLETED, JOURNAL_BYTES, TABLE_BYTES, THREADS};
use bench::http::{self, Client, Heads};
use bench::load::{self, Pace, Phase};
use bench::place::Ground;
use bench::postgres::Cluster;
use bench::sessions::{self, Exchanges, Posts, Reads};
use bench::yardsticks;
use store::server_key::unlock;
use store::verify::verify;
use switchyard::config;
use testbed::postgres;

const PAYERS: u64 = 220;
const PAYMENTS: u64 = 200;

#[test]
fn load_on_a_file_is_answered_and_leaves_sound_books() {
    let folder = tempfile::tempdir().expect("a folder");
    check(&Ground::Sqlite(folder.path().to_owned()), folder.path());
}

#[test]
fn load_on_postgres_is_answered_and_leaves_sound_books() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = Cluster::at(postgres::shared().url()).expect("the server of all tests");
    check(&Ground::Postgres(cluster), folder.path());
}

/// Fills a database, loads a server on it, and looks whether all is there and holds.
fn check(ground: &Ground, logs: &Path) {
    let starter = Starter::new(Path::new(env!("CARGO_BIN_EXE_bench")), logs);
    let place = ground.fresh(&format!("sound-{}", std::process::id())).expect("a place");
    starter.generate(&place, PAYERS, PAYMENTS, &[]).expect("data");
    let empty = place.bytes().expect("files");
    let server = starter.serve(&place).expect("a server");

    let mut client = server.client();
    let all = client.get("/transactions?limit=1").expect("a list");
    assert_eq!(all["totalCount"], PAYERS + PAYMENTS);
    let payers = sessions::payers(&mut client).expect("accounts");
    assert_eq!(payers.len() as u64, PAYERS);

    let phase = Phase {
        sessions: 8,
        warm_up: Duration::ZERO,
        // A busy machine may take a second for the first flush.
        duration: Duration::from_secs(2),
        pace: Pace::Closed,
    };
    let (heads, address) = (child::heads(), server.address());
    let mut paid = 0;
    for path in ["/transfer-out", yardsticks::TRANSFER_OUT] {
        let posts = Posts::transfers(&heads, path, &payers);
        let outcome = load::run(&phase, async |_| posts.open(address).await).expect("load");
        paid += if path == yardsticks::TRANSFER_OUT { 0 } else { outcome.all };
    }
    let exchanges = Exchanges::new(&heads, &payers);
    let outcome = load::run(&phase, async |_| exchanges.open(address).await).expect("load");
    paid += outcome.all;
    let reads = Reads::new(&heads, [yardsticks::TRANSACTION, "/transactions?limit=5"]);
    let open = Phase { pace: Pace::Open { per_second: 200.0 }, ..phase };
    let outcome = load::run(&open, async |_| reads.open(address).await).expect("load");
    assert_eq!(outcome.all, 400, "an open loop sends what its schedule says");

    server.settle().expect("payments settle");
    let all = client.get("/transactions?limit=1").expect("a list");
    assert_eq!(all["totalCount"], PAYERS + PAYMENTS + paid, "no-ops store nothing");
    let counters = server.counters().expect("counters");
    assert_eq!(counters.total(COMPLETED) as u64, paid, "each payment is completed once");
    assert!(counters.total(THREADS) > 0.0 && counters.total(JOURNAL_BYTES) > 0.0, "{counters:?}");
    let memory = server.memory().expect("memory");
    assert!(memory.resident > 0 && memory.peak >= memory.resident, "{memory:?}");
    server.stop().expect("an orderly end");

    assert!(place.bytes().expect("files") > empty);
    let sizes = place.tables().expect("tables").by(TABLE_BYTES, "table");
    assert!(sizes["transactions"] > 0.0 && sizes["journal"] > 0.0, "{sizes:?}");
    let line = ["switchyard", "verify", "--database-url", &place.url()].map(OsString::from);
    let config = config::read(line, &config::Environment::new()).expect("a good line");
    let engine = config.database.engine();
    let keyring = unlock(&*engine, &child::SECRET_KEY).expect("its key");
    let report = verify(&*engine, Some(&keyring)).expect("a look");
    assert!(report.is_sound(), "{}", switchyard::verify::human(&report));
}

#[test]
fn every_event_in_a_file_is_delivered_while_another_endpoint_hangs() {
    let folder = tempfile::tempdir().expect("a folder");
    delivers(&Ground::Sqlite(folder.path().to_owned()), folder.path());
}

#[test]
fn every_event_on_postgres_is_delivered_while_another_endpoint_hangs() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = Cluster::at(postgres::shared().url()).expect("the server of all tests");
    delivers(&Ground::Postgres(cluster), folder.path());
}

fn delivers(ground: &Ground, logs: &Path) {
    let starter = Starter::new(Path::new(env!("CARGO_BIN_EXE_bench")), logs);
    let mut receivers = starter.receive().expect("receivers");
    let place = ground.fresh(&format!("events-{}", std::process::id())).expect("a place");
    let endpoints = [&*receivers.fast, &receivers.hanging];
    starter.generate(&place, PAYERS, PAYMENTS, &endpoints).expect("data");
    let server = starter.serve(&place).expect("a server");
    let counted = receivers.when_quiet().expect("events");
    assert!(counted.events > PAYMENTS, "{counted:?}");
    assert_eq!(counted.events, server.events().expect("a feed"), "{counted:?}");
    assert_eq!(counted.requests, counted.events, "none came twice");
    assert!(counted.hanging > 0 && counted.per_second() > 0.0, "{counted:?}");
    server.stop().expect("an orderly end");
}

#[test]
fn a_yardstick_refuses_whom_the_api_refuses() {
    let folder = tempfile::tempdir().expect("a folder");
    let starter = Starter::new(Path::new(env!("CARGO_BIN_EXE_bench")), folder.path());
    let place = Ground::Sqlite(folder.path().to_owned()).fresh("refusing").expect("a place");
    let server = starter.serve(&place).expect("a server");

    let status = |heads: &Heads, body: &str| {
        let mut request = heads.post(yardsticks::TRANSFER_OUT);
        http::finish(&mut request, b"key", body.as_bytes());
        let mut client = Client::new(server.address(), heads.clone());
        client.ask(&request).expect("an answer").0
    };
    let body = r#"{"source":{"accountId":"a"},"destination":{"accountId":"b"},"amount":1}"#;
    assert_eq!(status(&child::heads(), body), 201);
    assert_eq!(status(&child::heads(), r#"{"source":{"accountId":"a"},"amount":1}"#), 400);
    assert_eq!(status(&child::heads(), r#"{"amount":1,"amount":1}"#), 400);
    assert_eq!(status(&Heads::new("bench", "not the secret of anyone"), body), 401);
    let look = Client::new(server.address(), Heads::new("unknown", "nothing of the kind"))
        .get(yardsticks::TRANSACTION);
    assert!(look.is_err_and(|error| error.to_string().contains("401")));
}
