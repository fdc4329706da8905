//! Two servers of ours, each with a Lightning node, that pay each other over channels.

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::instance::Installation;
use testbed::ports;

use super::{is_settled, pay_each_other};
use crate::peers::Ours;

/// Payments that are under way when a server is killed.
const PAYMENTS: usize = 20;

/// US cents of each.
const AMOUNT: i64 = 1_000;

/// A server before it runs: its files, and where its node will be.
struct Place {
    folder: TempDir,
    port: u16,
    installation: Installation,
}

impl Place {
    fn new(key: char) -> Self {
        let (folder, port) = (TempDir::new().unwrap(), ports::free().unwrap());
        let path = |name: &str| folder.path().join(name).display().to_string();
        let database = format!("sqlite://{}", path("channels.db"));
        let installation = Installation::new(env!("CARGO_BIN_EXE_switchyard"), &database)
            .with("SWITCHYARD_SECRET_KEY", &key.to_string().repeat(64))
            .with("SWITCHYARD_LIGHTNING_FOLDER", &path("lightning"))
            .with("SWITCHYARD_LIGHTNING_LISTEN", &format!("127.0.0.1:{port}"));
        Self { folder, port, installation }
    }

    /// The node, as a peer names it.
    fn node(&self) -> String {
        let id = self.installation.run(&["uma", "node"]).unwrap();
        format!("{}@127.0.0.1:{}", id.trim(), self.port)
    }

    async fn start(self, peer: &str) -> Ours {
        let installation = self.installation.with("SWITCHYARD_LIGHTNING_PEERS", peer);
        Ours::start_as(installation, self.folder).await
    }
}

async fn pair() -> [Ours; 2] {
    let (first, second) = (Place::new('1'), Place::new('2'));
    let (of_first, of_second) = (first.node(), second.node());
    // One calls, the other is called.
    let id_only = of_first.split('@').next().unwrap();
    [first.start(&of_second).await, second.start(id_only).await]
}

#[tokio::test]
async fn two_servers_pay_each_other_over_channels() {
    pay_each_other(pair().await).await;
}

#[tokio::test]
async fn payments_survive_the_death_of_their_payer() {
    killed(0).await;
}

#[tokio::test]
async fn payments_survive_the_death_of_their_payee() {
    killed(1).await;
}

#[tokio::test]
async fn a_folder_has_one_server() {
    let place = Place::new('1');
    let folder = place.folder.path().join("lightning").display().to_string();
    let server = Ours::start_as(place.installation, place.folder).await;
    // Another database and another port: nothing else keeps them apart.
    let elsewhere = TempDir::new().unwrap();
    let database = format!("sqlite://{}", elsewhere.path().join("other.db").display());
    let other = Installation::new(env!("CARGO_BIN_EXE_switchyard"), &database)
        .with("SWITCHYARD_SECRET_KEY", &"1".repeat(64))
        .with("SWITCHYARD_LIGHTNING_FOLDER", &folder)
        .with("SWITCHYARD_LIGHTNING_LISTEN", "127.0.0.1:0");
    let refused = other.run(&["serve", "--listen", "127.0.0.1:0"]).unwrap_err();
    let refused = format!("{refused:#}");
    assert!(refused.contains("another server has it: stop it first"), "{refused}");
    server.verify();
}

/// Kills the payer (0) or the payee (1) while payments are under way. Each is made once.
async fn killed(which: usize) {
    let mut servers = pair().await;
    for server in &servers {
        server.demand(&[("FULL_NAME", true)]).await;
    }
    // The channels are open then, and payments fast.
    is_settled(&servers[0], &servers[1], ("RECEIVING", 100)).await;
    let before = [servers[0].balance().await, servers[1].balance().await];
    let (payer, to) = (&servers[0], servers[1].address("alice"));
    let found = payer.look_up(&to).await.expect(200);
    let (mut quotes, facts) = (Vec::new(), json!({ "FULL_NAME": "Alice Adams" }));
    for _ in 0..PAYMENTS {
        let (receiver, locked) = ((to.as_str(), "USD"), ("RECEIVING", AMOUNT));
        let quote = payer.quote_stating(receiver, &found, locked, &facts).await.expect(201);
        let execute = format!("/quotes/{}/execute", quote["id"].as_str().unwrap());
        payer.post(&execute, &json!({})).await.expect(200);
        quotes.push(quote);
    }
    // One of them has arrived: the others are anywhere.
    payer.ended(&quotes[0]["transactionId"]).await;
    servers[which].restart_after(&[]).await;
    let mut sent = 0;
    for quote in &quotes {
        let payment = servers[0].ended(&quote["transactionId"]).await;
        assert_eq!(payment["status"], "COMPLETED", "{payment}");
        sent += quote["totalSendingAmount"].as_i64().unwrap();
    }
    let page = servers[1].get("/transactions?type=INCOMING&limit=100").await.expect(200);
    for payment in page["data"].as_array().unwrap() {
        let payment: Value = servers[1].ended(&payment["id"]).await;
        assert_eq!(payment["status"], "COMPLETED", "{payment}");
    }
    let arrived = i64::try_from(PAYMENTS).unwrap() * AMOUNT;
    let after = [servers[0].balance().await, servers[1].balance().await];
    assert_eq!(after, [before[0] - sent, before[1] + arrived]);
    servers.into_iter().for_each(Ours::verify);
}
