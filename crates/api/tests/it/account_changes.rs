//! External accounts that are shown, changed and removed (specification 2.8, 3.3).

use domain::token::Permission;
use serde_json::{Value, json};

use crate::pay::{Payer, from, sending, to, transfer};
use crate::support::{Answer, Client, Server, text, usd_external};

const OF_CUSTOMERS: &str = "/customers/external-accounts";
const OF_PLATFORM: &str = "/platform/external-accounts";

/// An id like an account's, of no account.
const UNKNOWN: &str = "ExternalAccount:0199dccc-4a80-7000-8000-000000000001";

/// A customer with accounts that can receive its payments.
struct Owner {
    client: Client,
    customer: String,
}

impl Owner {
    async fn on(server: &Server) -> Self {
        let client = server.platform().await;
        let customer = client.customer().await;
        Self { client, customer }
    }

    async fn add(&self, suffix: &str, is_default: bool) -> Answer {
        let mut body = usd_external(Some(&self.customer), suffix);
        body["defaultUmaDepositAccount"] = json!(is_default);
        self.client.post(OF_CUSTOMERS, &body).await
    }

    async fn account(&self, suffix: &str, is_default: bool) -> String {
        text(&self.add(suffix, is_default).await.expect(201)["id"])
    }

    async fn change(&self, account: &str, body: Value) -> Answer {
        self.client.patch(&format!("{OF_CUSTOMERS}/{account}"), &body).await
    }

    async fn flag(&self, account: &str, value: Value) -> Answer {
        self.change(account, json!({ "defaultUmaDepositAccount": value })).await
    }

    async fn remove(&self, account: &str) -> Answer {
        self.client.delete(&format!("{OF_CUSTOMERS}/{account}")).await
    }

    async fn shown(&self, account: &str) -> Value {
        let path = format!("{OF_CUSTOMERS}/{account}");
        self.client.get(&path).await.expect(200).clone()
    }

    /// Every account as the list shows it.
    async fn listed(&self) -> Vec<Value> {
        let path = format!("{OF_CUSTOMERS}?customerId={}", self.customer);
        let answer = self.client.get(&path).await;
        answer.expect(200)["data"].as_array().expect("rows").clone()
    }

    /// The accounts that hold the flag.
    async fn defaults(&self) -> Vec<String> {
        let listed = self.listed().await;
        let defaults = listed.iter().filter(|row| row["defaultUmaDepositAccount"] == true);
        defaults.map(|row| text(&row["id"])).collect()
    }
}

#[tokio::test]
async fn the_flag_moves_back_and_forth_and_is_cleared() {
    let server = Server::new();
    let owner = Owner::on(&server).await;
    let (one, two) = (owner.account("111", true).await, owner.account("222", false).await);
    for account in [&two, &one, &one, &two] {
        let answer = owner.flag(account, json!(true)).await;
        let body = answer.expect(200).clone();
        assert_eq!(body["defaultUmaDepositAccount"], true);
        assert_eq!(owner.defaults().await, [account.as_str()]);
        assert_eq!(owner.shown(account).await, body);
    }
    // What another account does not hold cannot be taken from it.
    owner.flag(&one, json!(false)).await.expect(200);
    owner.flag(&one, Value::Null).await.expect(200);
    owner.change(&one, json!({})).await.expect(200);
    assert_eq!(owner.defaults().await, [two.as_str()]);
    for cleared in [json!(false), Value::Null] {
        owner.flag(&two, json!(true)).await.expect(200);
        let answer = owner.flag(&two, cleared).await;
        assert_eq!(answer.expect(200)["defaultUmaDepositAccount"], false);
        assert_eq!(owner.defaults().await, [""; 0]);
    }
    owner.flag(&two, json!("yes")).await.refused(400, "INVALID_INPUT");
    server.verify();
}

#[tokio::test]
async fn of_many_at_once_one_has_the_flag() {
    let server = Server::new();
    let owner = Owner::on(&server).await;
    let mut accounts = Vec::new();
    for number in 200..208 {
        accounts.push(owner.account(&number.to_string(), false).await);
    }
    let mut setting = tokio::task::JoinSet::new();
    for account in accounts.iter().chain(&accounts) {
        let (client, path) = (owner.client.clone(), format!("{OF_CUSTOMERS}/{account}"));
        let flag = json!({ "defaultUmaDepositAccount": true });
        setting.spawn(async move { client.patch(&path, &flag).await });
    }
    for answer in setting.join_all().await {
        answer.expect(200);
    }
    assert_eq!(owner.defaults().await.len(), 1);
    server.verify();
}

#[tokio::test]
async fn the_platforms_own_name_is_changed_and_cleared() {
    let server = Server::new();
    let owner = Owner::on(&server).await;
    let of_customer = owner.account("111", false).await;
    let own = owner.client.post(OF_PLATFORM, &usd_external(None, "111")).await;
    let own = text(&own.expect(201)["id"]);
    for path in [format!("{OF_CUSTOMERS}/{of_customer}"), format!("{OF_PLATFORM}/{own}")] {
        let before = owner.client.get(&path).await.expect(200).clone();
        for name in [json!("vault-1"), json!("vault-2"), Value::Null, json!("vault-3")] {
            let change = json!({ "platformAccountId": name });
            let changed = owner.client.patch(&path, &change).await.expect(200).clone();
            assert_eq!(changed["platformAccountId"], name);
            assert_eq!(changed["accountInfo"], before["accountInfo"]);
            assert_eq!(*owner.client.get(&path).await.expect(200), changed);
            // What is not named stays.
            assert_eq!(*owner.client.patch(&path, &json!({})).await.expect(200), changed);
        }
        let long = json!({ "platformAccountId": "x".repeat(256) });
        let answer = owner.client.patch(&path, &long).await;
        assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "platformAccountId");
    }
    server.verify();
}

#[tokio::test]
async fn a_removed_account_is_inactive_and_can_be_added_again() {
    let server = Server::new();
    let owner = Owner::on(&server).await;
    let first = owner.account("111", true).await;
    owner.add("111", false).await.refused(409, "CONFLICT");
    let removed = owner.remove(&first).await.expect(200).clone();
    assert_eq!((&removed["id"], &removed["status"]), (&json!(first), &json!("INACTIVE")));
    assert_eq!(removed["defaultUmaDepositAccount"], false);
    assert_eq!(owner.shown(&first).await, removed);
    assert_eq!(owner.listed().await, [removed]);
    server.verify();
    owner.remove(&first).await.refused(409, "CONFLICT");
    owner.flag(&first, json!(true)).await.refused(409, "CONFLICT");
    owner.change(&first, json!({ "platformAccountId": "x" })).await.refused(409, "CONFLICT");
    let second = owner.account("111", true).await;
    assert_ne!(second, first);
    assert_eq!(owner.defaults().await, [second.as_str()]);
    owner.add("111", false).await.refused(409, "CONFLICT");
    // The platform's own are like those of customers.
    let own = owner.client.post(OF_PLATFORM, &usd_external(None, "111")).await;
    let own = format!("{OF_PLATFORM}/{}", text(&own.expect(201)["id"]));
    assert_eq!(owner.client.delete(&own).await.expect(200)["status"], "INACTIVE");
    owner.client.delete(&own).await.refused(409, "CONFLICT");
    owner.client.post(OF_PLATFORM, &usd_external(None, "111")).await.expect(201);
    let listed = owner.client.get(OF_PLATFORM).await.expect(200)["data"].clone();
    let listed: Vec<_> =
        listed.as_array().expect("rows").iter().map(|row| text(&row["status"])).collect();
    assert_eq!(listed, ["ACTIVE", "INACTIVE"]);
    server.verify();
}

#[tokio::test]
async fn nothing_new_goes_to_or_from_a_removed_account() {
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let bank = payer.bank("111").await;
    let path = format!("{OF_CUSTOMERS}/{bank}");
    let quote = sending(&from(&payer.usd), &to(&bank), 1_000);
    let early = payer.client.quote(&quote).await;
    let under_way = payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 1_000)).await;
    let pulled = payer.client.post("/transfer-in", &transfer(&bank, &payer.usd, 500)).await;
    payer.client.delete(&path).await.expect(200);
    for (path, body) in [
        ("/transfer-out", transfer(&payer.usd, &bank, 1_000)),
        ("/transfer-in", transfer(&bank, &payer.usd, 1_000)),
        ("/quotes", quote),
        ("/quotes", sending(&from(&bank), &to(&payer.account("EUR").await), 1_000)),
    ] {
        let answer = payer.client.post(path, &body).await;
        let details = answer.refused(400, "INVALID_BANK_ACCOUNT");
        assert_eq!((&details["accountId"], &details["status"]), (&json!(bank), &json!("INACTIVE")));
    }
    payer.client.execute(&early).await.refused(400, "INVALID_BANK_ACCOUNT");
    let lookup = format!("/receiver/external-account/{bank}?customerId={}", payer.customer);
    payer.client.get(&lookup).await.refused(400, "INVALID_BANK_ACCOUNT");
    // What was under way goes on.
    server.pass(1_000).await;
    for answer in [&under_way, &pulled] {
        let payment = payer.client.transaction(&answer.expect(201)["id"]).await;
        assert_eq!(payment["status"], "COMPLETED", "{payment}");
    }
    assert_eq!(payer.balance().await, 9_500);
    server.verify();
}

#[tokio::test]
async fn a_payment_to_a_removed_deposit_account_arrives() {
    let server = Server::new();
    let payee = crate::receive::Payee::on(&server).await;
    let mut body = usd_external(Some(&payee.customer), "111");
    body["defaultUmaDepositAccount"] = json!(true);
    let bank = payee.client.post(OF_CUSTOMERS, &body).await;
    let bank = text(&bank.expect(201)["id"]);
    let payment = payee.receive("success.usd", 5_000).await.expect(200).clone();
    payee.client.delete(&format!("{OF_CUSTOMERS}/{bank}")).await.expect(200);
    let next = payee.receive("success.usd", 700).await.expect(200).clone();
    assert_eq!(next["destination"]["accountId"], payee.usd);
    server.pass(200).await;
    server.pass(200).await;
    let payment = payee.stands_at(&payment, "COMPLETED", None).await;
    assert_eq!(payment["destination"]["accountId"], bank);
    assert_eq!(payee.client.balance(&payee.usd).await, 700);
    server.verify();
}

/// The suffixes 181 and 184 change an account's status after a minute.
#[tokio::test]
async fn what_the_bank_says_later_does_not_bring_an_account_back() {
    let server = Server::new();
    let owner = Owner::on(&server).await;
    let pending = owner.account("181", true).await;
    assert_eq!(owner.shown(&pending).await["status"], "PENDING");
    assert_eq!(owner.defaults().await, [pending.as_str()]);
    owner.remove(&pending).await.expect(200);
    server.pass(120_000).await;
    assert_eq!(owner.shown(&pending).await["status"], "INACTIVE");
    // One that the bank switches off receives nothing, and cannot be asked to.
    let off = owner.account("184", true).await;
    server.pass(120_000).await;
    assert_eq!(owner.shown(&off).await["status"], "INACTIVE");
    assert_eq!(owner.defaults().await, [""; 0]);
    let answer = owner.flag(&off, json!(true)).await;
    assert_eq!(answer.refused(400, "INVALID_BANK_ACCOUNT")["status"], "INACTIVE");
    owner.change(&off, json!({ "platformAccountId": "old" })).await.expect(200);
    owner.remove(&off).await.expect(200);
    owner.remove(&off).await.refused(409, "CONFLICT");
    server.verify();
}

#[tokio::test]
async fn each_path_has_its_own_accounts_only() {
    let server = Server::new();
    let owner = Owner::on(&server).await;
    let of_customer = owner.account("111", false).await;
    let own = owner.client.post(OF_PLATFORM, &usd_external(None, "222")).await;
    let own = text(&own.expect(201)["id"]);
    let stranger = server.platform().await;
    for (client, path) in [
        (&owner.client, format!("{OF_PLATFORM}/{of_customer}")),
        (&owner.client, format!("{OF_CUSTOMERS}/{own}")),
        (&owner.client, format!("{OF_CUSTOMERS}/{UNKNOWN}")),
        (&owner.client, format!("{OF_PLATFORM}/{UNKNOWN}")),
        (&owner.client, format!("{OF_CUSTOMERS}/x")),
        (&stranger, format!("{OF_CUSTOMERS}/{of_customer}")),
        (&stranger, format!("{OF_PLATFORM}/{own}")),
    ] {
        client.get(&path).await.refused(404, "ACCOUNT_NOT_FOUND");
        client.patch(&path, &json!({})).await.refused(404, "ACCOUNT_NOT_FOUND");
        client.delete(&path).await.refused(404, "ACCOUNT_NOT_FOUND");
    }
    // The platform receives no UMA payments itself.
    let flag = json!({ "defaultUmaDepositAccount": true });
    let answer = owner.client.patch(&format!("{OF_PLATFORM}/{own}"), &flag).await;
    assert_eq!(answer.expect(200)["defaultUmaDepositAccount"], false);
    assert_eq!(owner.shown(&of_customer).await["status"], "ACTIVE");
    let viewer = server.token_with(owner.client.platform, Permission::View).await;
    let path = format!("{OF_CUSTOMERS}/{of_customer}");
    viewer.get(&path).await.expect(200);
    viewer.patch(&path, &json!({})).await.refused(403, "FORBIDDEN");
    viewer.delete(&path).await.refused(403, "FORBIDDEN");
    owner.client.delete_customer(&owner.customer).await;
    owner.flag(&of_customer, json!(true)).await.refused(410, "CUSTOMER_DELETED");
    server.verify();
}
