//! A live platform of a server without partners: what it does, and what it refuses at once.

use domain::clock::Ahead;
use domain::external_account::ExternalAccount;
use domain::id::{CustomerId, ExternalAccountId, InternalAccountId};
use domain::platform::Mode;
use ports::rail::AccountReport;
use serde_json::{Value, json};
use service::external_accounts::{self, Duplicate, NewExternalAccount};
use service::funding;
use store::unit::Unit;

use crate::pay::{deposit as realtime, from, sending, to, transfer, usdc_wallet};
use crate::support::{Answer, Call, Client, Server, text, usd_external};

/// Puts real money into an account: no rail does yet.
async fn deposit(server: &Server, client: &Client, account: &str, amount: i64) {
    let account = InternalAccountId::parse(account).expect("an account");
    let (app, now, platform) = (server.app.clone(), server.app.server_now(), client.platform);
    let id = app.new_id(Ahead::NONE, now);
    let work = move |unit: &mut Unit<'_, '_>| {
        funding::deposit(&app, unit, platform, account, amount, id, now)
    };
    server.app.write(work).await.expect("a deposit");
}

/// An account from a time when a rail was connected.
async fn earlier_account(server: &Server, client: &Client, customer: &str) -> String {
    let sandbox = server.platform().await;
    let known = sandbox.usd_external(&sandbox.customer().await, "789").await;
    let known = ExternalAccountId::parse(&known).expect("an id");
    let known = server.app.store().get::<ExternalAccount>(known).await.expect("a read");
    let known = known.expect("an account");
    let (platform, now) = (client.platform, server.app.server_now());
    let id = server.app.new_id(Ahead::NONE, now);
    let new = NewExternalAccount {
        customer_id: Some(CustomerId::parse(customer).expect("an id")),
        path: "",
        currency: known.currency,
        info: known.info.clone(),
        platform_account_id: None,
        default_uma_deposit_account: false,
        crypto_network: None,
    };
    let work = move |unit: &mut Unit<'_, '_>| {
        let report = Ok(AccountReport::usable());
        external_accounts::create(unit, platform, &new, id, Duplicate::Refused, &report, now)
    };
    server.app.write(work).await.expect("an account").id.to_string()
}

/// Says what is missing, and that to ask again does not help.
fn lacks(answer: &Answer, missing: &str) {
    assert_eq!(answer.refused(501, "NOT_IMPLEMENTED")["missing"], missing);
    assert_eq!(answer.headers["x-should-retry"], "false");
}

#[tokio::test]
async fn without_a_rail_no_money_is_set_aside_and_nothing_waits() {
    let server = Server::with_market();
    let live = server.platform_with(Mode::Live, true).await;
    let customer = live.customer().await;
    let usd = live.account(Some(&customer), "USD").await;
    deposit(&server, &live, &usd, 1_000).await;
    let bank = earlier_account(&server, &live, &customer).await;
    let customers = "/customers/external-accounts";
    for (path, body) in [
        ("/transfer-out", transfer(&usd, &bank, 1)),
        ("/transfer-in", transfer(&bank, &usd, 1)),
        ("/quotes", sending(&from(&usd), &to(&bank), 100)),
        ("/quotes", sending(&from(&bank), &to(&usd), 100)),
        ("/quotes", with_details(&usd, &customer)),
        (customers, usd_external(Some(&customer), "790")),
        (customers, usdc_wallet(&customer, "abc")),
        ("/platform/external-accounts", usd_external(None, "789")),
    ] {
        let answer = live.post(path, &body).await;
        lacks(&answer, "PAYMENT_RAIL");
    }
    // A deposit that no payer can make is refused by its currency.
    let body = sending(&realtime("USD", &customer), &to(&usd), 100);
    let answer = live.post("/quotes", &body).await;
    assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "source.currency");
    assert_eq!(live.balance(&usd).await, 1_000);
    for path in ["/transactions?status=PENDING", "/transactions?status=PROCESSING", "/quotes"] {
        assert_eq!(live.get(path).await.expect(200)["data"], json!([]), "{path}");
    }
    let path = format!("/customers/internal-accounts?customerId={customer}");
    let accounts = live.get(&path).await.expect(200).clone();
    for account in accounts["data"].as_array().expect("accounts") {
        assert_eq!(account["fundingPaymentInstructions"], json!([]), "{account}");
    }
    server.verify();
}

/// The body of a quote to an account that is made with it, executed at once.
fn with_details(source: &str, customer: &str) -> Value {
    let account = usd_external(Some(customer), "789");
    let destination =
        json!({ "destinationType": "EXTERNAL_ACCOUNT_DETAILS", "externalAccountDetails": account });
    let mut body = sending(&from(source), &destination, 100);
    body["immediatelyExecute"] = json!(true);
    body
}

#[tokio::test]
async fn a_refusal_for_want_of_a_partner_is_not_kept() {
    let server = Server::with_market();
    let live = server.platform_with(Mode::Live, true).await;
    let customer = live.customer().await;
    let body = usd_external(Some(&customer), "789");
    for _ in 0..2 {
        let call = Call::json(&body).key("again");
        let answer = live.send("POST", "/customers/external-accounts", call).await;
        lacks(&answer, "PAYMENT_RAIL");
        assert!(!answer.headers.contains_key("idempotent-replayed"));
    }
}

#[tokio::test]
async fn without_the_network_only_addresses_of_this_server_are_paid() {
    let server = Server::with_market();
    let live = server.platform_with(Mode::Live, true).await;
    let (payer, payee) = (live.customer().await, live.customer().await);
    let look_up = async |address: &str| {
        let address = address.replace("$", "%24");
        live.get(&format!("/receiver/uma/{address}?customerId={payer}")).await
    };
    lacks(&look_up("$success.usd@sandbox.uma.money").await, "UMA_NETWORK");
    lacks(&look_up("$ada@example.com").await, "UMA_NETWORK");
    let known = look_up(&live.uma_address(&payee).await).await.expect(200).clone();
    assert!(text(&known["lookupId"]).starts_with("Lookup:"), "{known}");
    server.verify();
}

#[tokio::test]
async fn money_that_is_here_moves_between_accounts_and_currencies() {
    let server = Server::with_market();
    let live = server.platform_with(Mode::Live, true).await;
    let customer = live.customer().await;
    let usd = live.account(Some(&customer), "USD").await;
    let eur = live.account(Some(&customer), "EUR").await;
    deposit(&server, &live, &usd, 1_000).await;
    let quote = live.quote(&sending(&from(&usd), &to(&eur), 1_000)).await;
    assert_eq!(live.execute(&quote).await.expect(200)["status"], "COMPLETED");
    assert_eq!(live.balance(&usd).await, 0);
    server.verify();
}
