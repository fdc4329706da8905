//! Notifications about internal accounts (design decision 10; contract 7.2). That none
//! is left out is checked by `Server::verify` in every other test too.

use domain::event::{EventKind, event_id};
use domain::id::InternalAccountId;
use serde_json::{Value, json};

use crate::pay::{Payer, deposit, from, sending, to, transfer};
use crate::support::{Client, Server};
use crate::uma::{Payee, to_payee};

impl Server {
    /// The balances of an account in its platform's events, before and after each change; checks
    /// numbers, ids, envelopes, and that each change goes on where the one before has ended.
    async fn notified_balances(&self, client: &Client, account: &str) -> Vec<(i64, i64)> {
        let resource = InternalAccountId::parse(account).expect("an id").uuid();
        let events = self.events_of(resource).await;
        let (mut notified, mut balance) = (Vec::new(), 0);
        for (number, event) in (1..).zip(&events) {
            assert_eq!((event.number, event.id), (number, event_id(resource, number)));
            assert_eq!((event.kind, event.platform), (EventKind::AccountStatus, client.platform));
            let body: Value = serde_json::from_slice(&event.body).expect("JSON");
            let keys: Vec<_> = body.as_object().expect("an object").keys().collect();
            assert_eq!(keys.len(), 4, "{keys:?}");
            assert_eq!(body["id"], event.id.to_string());
            assert_eq!(body["type"], "ACCOUNT_STATUS");
            let data = &body["data"];
            assert_eq!((&body["timestamp"], &data["id"]), (&data["updatedAt"], &json!(account)));
            assert_eq!(data["balance"], data["newBalance"]);
            let amount = |name: &str| data[name]["amount"].as_i64().expect("an amount");
            let (old, new) = (amount("oldBalance"), amount("newBalance"));
            assert_eq!(old, balance, "nothing is left out");
            assert_ne!(old, new, "nothing is notified twice");
            balance = new;
            notified.push((old, new));
        }
        assert_eq!(client.balance(account).await, balance, "the last word");
        notified
    }
}

/// The account as it is shown to its reader.
async fn shown(client: &Client, path: &str, account: &str) -> Value {
    let answer = client.get(path).await;
    let rows = answer.expect(200)["data"].as_array().expect("rows");
    rows.iter().find(|row| row["id"] == account).expect("the account").clone()
}

#[tokio::test]
async fn a_change_is_notified_as_the_account_is_shown() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let own = payer.client.account(None, "USD").await;
    let of_customer = format!("/customers/internal-accounts?customerId={}", payer.customer);
    let both = [(&payer.usd, of_customer.as_str()), (&own, "/platform/internal-accounts")];
    for (account, path) in both {
        payer.client.fund(account, 700).await;
        server.clock.advance_millis(10);
        payer.client.fund(account, 50).await;
        let resource = InternalAccountId::parse(account).expect("an id").uuid();
        let events = server.events_of(resource).await;
        let body: Value = serde_json::from_slice(&events[1].body).expect("JSON");
        let mut expected = shown(&payer.client, path, account).await;
        expected["oldBalance"] = expected["balance"].clone();
        expected["oldBalance"]["amount"] = json!(700);
        expected["newBalance"] = expected["balance"].clone();
        assert_eq!(body["data"], expected);
        assert_eq!(server.notified_balances(&payer.client, account).await, [(0, 700), (700, 750)]);
    }
    server.verify();
}

#[tokio::test]
async fn a_transfer_is_notified_when_what_can_be_spent_changes() {
    for (suffix, back) in [("789", false), ("003", true), ("004", true), ("005", true)] {
        let server = Server::new();
        let payer = Payer::with(&server, 1_000).await;
        let bank = payer.bank(suffix).await;
        let out = transfer(&payer.usd, &bank, 400);
        payer.client.post("/transfer-out", &out).await.expect(201);
        let mut expected = vec![(0, 1_000), (1_000, 600)];
        assert_eq!(server.notified_balances(&payer.client, &payer.usd).await, expected);
        // That what is set aside has left for good changes nothing that can be spent.
        server.pass(32_000).await;
        expected.extend(back.then_some((600, 1_000)));
        assert_eq!(server.notified_balances(&payer.client, &payer.usd).await, expected);
        // What comes can be spent when it is there, and not before.
        let spent = expected.last().expect("some").1;
        payer.client.post("/transfer-in", &transfer(&bank, &payer.usd, 400)).await.expect(201);
        assert_eq!(server.notified_balances(&payer.client, &payer.usd).await, expected);
        server.pass(32_000).await;
        expected.extend((!back).then_some((spent, spent + 400)));
        assert_eq!(server.notified_balances(&payer.client, &payer.usd).await, expected);
        server.verify();
    }
}

#[tokio::test]
async fn both_sides_of_a_quote_are_notified() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let eur = payer.account("EUR").await;
    let quote = payer.client.quote(&sending(&from(&payer.usd), &to(&eur), 100_000)).await;
    assert_eq!(server.notified_balances(&payer.client, &payer.usd).await, [(0, 100_000)]);
    payer.client.execute(&quote).await.expect(200);
    let paid = server.notified_balances(&payer.client, &payer.usd).await;
    assert_eq!(paid, [(0, 100_000), (100_000, 0)]);
    let arrived = quote["totalReceivingAmount"].as_i64().expect("an amount");
    assert_eq!(server.notified_balances(&payer.client, &eur).await, [(0, arrived)]);
    server.verify();
}

#[tokio::test]
async fn each_platform_is_notified_of_its_own_account() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let payee = Payee::on(&server.platform().await).await;
    let quote = payer.client.quote(&to_payee(&payer, &payee, 100_000).await).await;
    payer.client.execute(&quote).await.expect(200);
    let paid = server.notified_balances(&payer.client, &payer.usd).await;
    assert_eq!(paid, [(0, 100_000), (100_000, 0)]);
    assert_eq!(server.notified_balances(&payee.client, &payee.eur).await, [(0, 85_847)]);
    server.verify();
}

#[tokio::test]
async fn an_account_is_notified_once_for_all_that_a_unit_moves() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let eur = payer.account("EUR").await;
    let source = deposit("USD", &payer.customer);
    // What is not what the quote asks for comes, waits and is given back in one change.
    let quote = payer.client.quote(&sending(&source, &to(&eur), 400)).await;
    payer.client.deposit(&quote, Some(401)).await.expect(200);
    assert_eq!(server.notified_balances(&payer.client, &payer.usd).await, [(0, 401)]);
    // What is takes its way without being anybody's to spend.
    let quote = payer.client.quote(&sending(&source, &to(&eur), 400)).await;
    payer.client.deposit(&quote, Some(400)).await.expect(200);
    assert_eq!(server.notified_balances(&payer.client, &payer.usd).await, [(0, 401)]);
    assert_eq!(server.notified_balances(&payer.client, &eur).await.len(), 1);
    server.verify();
}

#[tokio::test]
async fn what_changes_nothing_tells_nothing() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    let refused = transfer(&payer.usd, &bank, 1_001);
    payer.client.post("/transfer-out", &refused).await.refused(400, "INSUFFICIENT_BALANCE");
    let good = transfer(&payer.usd, &bank, 400);
    for _ in 0..2 {
        payer.client.post_once("/transfer-out", "once", &good).await.expect(201);
    }
    let notified = server.notified_balances(&payer.client, &payer.usd).await;
    assert_eq!(notified, [(0, 1_000), (1_000, 600)]);
    server.verify();
}

#[tokio::test]
async fn changes_are_counted_on_after_a_restart() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let (account, platform) = (payer.usd.clone(), payer.client.platform);
    let server = server.restart();
    let client = server.token(platform, domain::token::Permissions::ALL).await;
    client.fund(&account, 5).await;
    assert_eq!(server.notified_balances(&client, &account).await, [(0, 1_000), (1_000, 1_005)]);
    server.verify();
}
