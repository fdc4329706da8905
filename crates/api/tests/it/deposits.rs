//! Incoming payments to a customer who has named an external account for them: one payment each,
//! into that account (specification 2.8; contract 13, rows 35 and 36).

use domain::attention::Kind;
use domain::token::Permissions;
use serde_json::{Value, json};
use service::resolutions::{Finding, resolve};

use crate::pay::{Payer, transaction_id, usdc_wallet};
use crate::receive::Payee;
use crate::support::{Client, Server, text, usd_external};
use crate::uma::to_payee;

/// How long the sandbox's bank or institution takes.
const RAIL_MILLIS: i64 = 200;

/// How long after it settled the bank of the suffix 185 sends a payment back.
const BACK_AFTER_MILLIS: i64 = 60_000;

/// Adds an account of a customer, which is the one for its payments if that is said.
async fn account(client: &Client, customer: &str, mut body: Value, is_default: bool) -> String {
    body["customerId"] = json!(customer);
    body["defaultUmaDepositAccount"] = json!(is_default);
    let made = client.post("/customers/external-accounts", &body).await;
    text(&made.expect(201)["id"])
}

impl Payee {
    /// Has its payments deposited into a US bank account.
    async fn bank(&self, suffix: &str) -> String {
        account(&self.client, &self.customer, usd_external(None, suffix), true).await
    }

    /// Has its payments deposited into a wallet, in another currency.
    async fn wallet(&self, suffix: &str) -> String {
        let body = usdc_wallet(&self.customer, suffix);
        account(&self.client, &self.customer, body, true).await
    }

    /// Checks how a payment stands, where it goes, and what the internal account has.
    #[track_caller]
    fn is_at(&self, payment: &Value, status: &str, account: &str) {
        assert_eq!(payment["status"], status, "{payment}");
        assert_eq!(payment["destination"]["accountId"], account, "{payment}");
        assert_eq!(payment["failureReason"], Value::Null, "{payment}");
        assert_eq!(payment["receivedAmount"]["amount"], 5_000, "{payment}");
        assert_eq!(payment["receivedAmount"]["currency"]["code"], "USD", "{payment}");
        assert_eq!(payment["settledAt"].is_string(), status == "COMPLETED", "{payment}");
    }

    /// Checks that the lists know a payment by one account only.
    async fn is_listed_by(&self, account: &str, others: &[&str]) {
        let count = async |path: String| self.client.count(&path).await;
        for name in ["receiverAccountIdentifier", "accountIdentifier"] {
            assert_eq!(count(format!("/transactions?{name}={account}")).await, 1, "{name}");
            assert_eq!(count(format!("/transactions?{name}={account}&type=OUTGOING")).await, 0);
            for other in others {
                assert_eq!(count(format!("/transactions?{name}={other}")).await, 0, "{name}");
            }
        }
        assert_eq!(count("/transactions".to_owned()).await, 1, "one payment is one transaction");
        assert_eq!(count(format!("/transactions?customerId={}", self.customer)).await, 1);
    }
}

#[tokio::test]
async fn a_payment_is_one_transaction_into_the_deposit_account() {
    let server = Server::new();
    let payee = Payee::on(&server).await;
    let bank = payee.bank("789").await;
    let payment = payee.receive("success.usd", 5_000).await.expect(200).clone();
    payee.is_at(&payment, "PROCESSING", &bank);
    assert_eq!(payment["destination"]["currency"], "USD");
    server.verify();
    server.pass(RAIL_MILLIS).await;
    // The money is here and on its way on.
    let got = payee.client.transaction(&payment["id"]).await;
    payee.is_at(&got, "PROCESSING", &bank);
    assert_eq!(payee.client.balance(&payee.usd).await, 0);
    payee.is_listed_by(&bank, &[&payee.usd]).await;
    let customer = format!("/customers/{}", payee.customer);
    payee.client.delete(&customer).await.refused(409, "CONFLICT");
    server.verify();
    server.pass(RAIL_MILLIS - 1).await;
    payee.is_at(&payee.client.transaction(&payment["id"]).await, "PROCESSING", &bank);
    server.pass(1).await;
    let got = payee.client.transaction(&payment["id"]).await;
    payee.is_at(&got, "COMPLETED", &bank);
    assert_eq!(got["settledAt"], "2025-10-13T09:00:00.400Z");
    assert_eq!(payee.client.balance(&payee.usd).await, 0);
    payee.is_listed_by(&bank, &[&payee.usd]).await;
    let notified = server.notified(&payment["id"]).await;
    let notified: Vec<_> = notified
        .iter()
        .map(|data| (text(&data["status"]), text(&data["destination"]["accountId"])))
        .collect();
    let at = |status: &str| (status.to_owned(), bank.clone());
    assert_eq!(notified, ["PENDING", "PROCESSING", "COMPLETED"].map(at));
    server.verify();
    server.pass(BACK_AFTER_MILLIS * 2).await;
    assert_eq!(payee.client.transaction(&payment["id"]).await, got);
}

#[tokio::test]
async fn what_the_bank_refuses_stays_in_the_internal_account() {
    for (suffix, millis, reason) in [
        ("002", 0, "INSUFFICIENT_FUNDS"),
        ("003", 0, "ACCOUNT_INVALID"),
        ("004", 0, "REJECTED_BY_RECEIVER"),
        ("005", 30_000, "TIMEOUT"),
    ] {
        let server = Server::new();
        let payee = Payee::on(&server).await;
        let bank = payee.bank(suffix).await;
        let payment = payee.receive("success.usd", 5_000).await.expect(200).clone();
        payee.is_at(&payment, "PROCESSING", &bank);
        server.pass(RAIL_MILLIS).await;
        server.verify();
        server.pass(RAIL_MILLIS + millis).await;
        let got = payee.client.transaction(&payment["id"]).await;
        payee.is_at(&got, "COMPLETED", &payee.usd);
        assert_eq!(got["refund"], Value::Null, "nothing went back to who paid");
        assert_eq!(got["statusReason"]["code"], reason, "{suffix}");
        assert_eq!(payee.client.balance(&payee.usd).await, 5_000, "{suffix}");
        payee.is_listed_by(&payee.usd, &[&bank]).await;
        let notified = server.notified(&payment["id"]).await;
        let notified: Vec<_> =
            notified.iter().map(|data| &data["destination"]["accountId"]).collect();
        assert_eq!(notified, [&bank, &bank, &payee.usd], "{suffix}");
        server.verify();
    }
}

#[tokio::test]
async fn what_the_bank_sends_back_is_in_the_internal_account() {
    for is_deleted in [false, true] {
        let server = Server::new();
        let payee = Payee::on(&server).await;
        let bank = payee.bank("185").await;
        let payment = payee.receive("success.usd", 5_000).await.expect(200).clone();
        server.pass(RAIL_MILLIS).await;
        server.pass(RAIL_MILLIS).await;
        let delivered = payee.client.transaction(&payment["id"]).await;
        payee.is_at(&delivered, "COMPLETED", &bank);
        if is_deleted {
            payee.client.delete_customer(&payee.customer).await;
        }
        server.verify();
        server.pass(BACK_AFTER_MILLIS).await;
        if is_deleted {
            // Nothing leaves the accounts of a deleted customer, so it waits for a person.
            let platforms = payee.client.account(None, "USD").await;
            let waits = payee.client.transaction(&payment["id"]).await;
            payee.is_at(&waits, "COMPLETED", &platforms);
            assert_eq!(waits["statusReason"]["code"], "RETURNED");
            assert_eq!(payee.client.balance(&platforms).await, 0);
            server.verify();
            let finding = Finding { outcome: None, reason: "x".to_owned(), by: "ops".to_owned() };
            let matter = Kind::LateReturn.id(transaction_id(&payment["id"]).uuid());
            let resolved = resolve(&server.app, matter, finding).await.expect("an outcome");
            assert!(resolved.is_some(), "there is a matter");
        }
        let back = payee.client.transaction(&payment["id"]).await;
        let keeper = match is_deleted {
            false => payee.usd.clone(),
            true => payee.client.account(None, "USD").await,
        };
        payee.is_at(&back, "COMPLETED", &keeper);
        assert_eq!(back["statusReason"]["code"], "RETURNED");
        assert_eq!(back["settledAt"], delivered["settledAt"]);
        assert_ne!(back["updatedAt"], delivered["updatedAt"]);
        assert_eq!(payee.client.balance(&keeper).await, 5_000);
        payee.is_listed_by(&keeper, &[&bank]).await;
        let notified = server.notified_statuses(&payment["id"]).await;
        let kept = if is_deleted { 2 } else { 1 };
        assert_eq!(notified[..3], ["PENDING", "PROCESSING", "COMPLETED"]);
        assert_eq!(notified[3..], vec!["COMPLETED"; kept]);
        server.verify();
        server.pass(BACK_AFTER_MILLIS * 2).await;
        assert_eq!(payee.client.transaction(&payment["id"]).await, back);
    }
}

#[tokio::test]
async fn a_payment_is_converted_for_an_account_in_another_currency() {
    for (suffix, ends_at_wallet) in [("789", true), ("004", false), ("185", false)] {
        let server = Server::new();
        let payee = Payee::on(&server).await;
        let wallet = payee.wallet(suffix).await;
        let payment = payee.receive("success.usd", 5_000).await.expect(200).clone();
        payee.is_at(&payment, "PROCESSING", &wallet);
        assert_eq!(payment["destination"]["currency"], "USDC");
        let conversion = &payment["conversion"];
        let whole = |value: &Value| value.as_i64().expect("a number");
        let (deposited, fees) =
            (whole(&conversion["depositedAmount"]["amount"]), whole(&conversion["fees"]));
        // The same as a quote of the same amount would give.
        let payer = Payer::on(payee.client.clone(), 0).await;
        let quote = crate::pay::sending(
            &crate::pay::deposit("USD", &payer.customer),
            &crate::pay::to(
                &account(
                    &payee.client,
                    &payer.customer,
                    usdc_wallet(&payer.customer, "789"),
                    false,
                )
                .await,
            ),
            5_000,
        );
        let quote = payee.client.quote(&quote).await;
        assert_eq!(quote["totalReceivingAmount"], deposited);
        assert_eq!(quote["feesIncluded"], fees);
        assert_eq!(quote["exchangeRate"], conversion["exchangeRate"]);
        server.pass(RAIL_MILLIS).await;
        let got = payee.client.transaction(&payment["id"]).await;
        payee.is_at(&got, "PROCESSING", &wallet);
        assert_eq!(payee.client.balance(&payee.usd).await, 0);
        server.verify();
        server.pass(RAIL_MILLIS).await;
        server.verify();
        server.pass(BACK_AFTER_MILLIS).await;
        let got = payee.client.transaction(&payment["id"]).await;
        if ends_at_wallet {
            payee.is_at(&got, "COMPLETED", &wallet);
            assert_eq!(got["conversion"], payment["conversion"]);
        } else {
            payee.is_at(&got, "COMPLETED", &payee.usd);
            assert_eq!(got["destination"]["currency"], "USD");
            assert_eq!(got["conversion"], Value::Null);
        }
        let left = if ends_at_wallet { 0 } else { 5_000 };
        assert_eq!(payee.client.balance(&payee.usd).await, left, "{suffix}");
        server.verify();
    }
}

#[tokio::test]
async fn what_cannot_be_converted_stays_as_it_came() {
    let server = Server::new();
    let payee = Payee::on(&server).await;
    payee.wallet("789").await;
    // The fees take it all.
    let payment = payee.receive("success.usd", 1).await.expect(200).clone();
    assert_eq!(payment["destination"]["accountId"], payee.usd, "{payment}");
    server.pass(RAIL_MILLIS).await;
    payee.stands_at(&payment, "COMPLETED", None).await;
    assert_eq!(payee.client.balance(&payee.usd).await, 1);
    server.verify();
}

#[tokio::test]
async fn the_account_that_was_named_at_first_counts() {
    let server = Server::new();
    let payee = Payee::on(&server).await.with_webhook().await;
    let first = payee.bank("789").await;
    let payment = payee.receive("success.usd", 5_000).await.expect(200).clone();
    payee.is_at(&payment, "PENDING", &first);
    let second = payee.bank("790").await;
    let path = format!("/transactions/{}/approve", text(&payment["id"]));
    let approved = payee.client.post(&path, &json!({})).await.expect(200).clone();
    payee.is_at(&approved, "PROCESSING", &first);
    server.pass(RAIL_MILLIS).await;
    server.pass(RAIL_MILLIS).await;
    payee.is_at(&payee.client.transaction(&payment["id"]).await, "COMPLETED", &first);
    let next = payee.receive("success.usd", 5_000).await.expect(200).clone();
    payee.is_at(&next, "PENDING", &second);
    server.verify();
}

#[tokio::test]
async fn an_account_that_is_switched_off_under_way_still_gets_the_payment() {
    let server = Server::new();
    let payee = Payee::on(&server).await;
    // Active at first, inactive after a minute; the payer takes six.
    let bank = payee.bank("184").await;
    let payment = payee.receive("pending.long.usd", 5_000).await.expect(200).clone();
    payee.is_at(&payment, "PROCESSING", &bank);
    server.pass(360_000).await;
    let shown = payee
        .client
        .get(&format!("/customers/external-accounts?customerId={}", payee.customer))
        .await;
    assert_eq!(shown.expect(200)["data"][0]["status"], "INACTIVE");
    server.pass(RAIL_MILLIS).await;
    payee.is_at(&payee.client.transaction(&payment["id"]).await, "COMPLETED", &bank);
    // The next one does not go there.
    let next = payee.receive("success.usd", 5_000).await.expect(200).clone();
    payee.is_at(&next, "PROCESSING", &payee.usd);
    server.verify();
}

#[tokio::test]
async fn an_account_that_cannot_be_used_yet_gets_nothing() {
    for suffix in ["181", "182"] {
        let server = Server::new();
        let payee = Payee::on(&server).await;
        payee.bank(suffix).await;
        let payment = payee.receive("success.usd", 5_000).await.expect(200).clone();
        payee.is_at(&payment, "PROCESSING", &payee.usd);
        server.pass(RAIL_MILLIS).await;
        assert_eq!(payee.client.balance(&payee.usd).await, 5_000, "{suffix}");
        server.verify();
    }
}

#[tokio::test]
async fn a_customer_whose_money_must_not_move_keeps_it_here() {
    let server = Server::new();
    let payee = Payee::on(&server).await;
    let bank = payee.bank("789").await;
    let payment = payee.receive("success.usd", 5_000).await.expect(200).clone();
    payee.is_at(&payment, "PROCESSING", &bank);
    payee.client.set_kyc(&payee.customer, "REJECTED").await;
    server.pass(RAIL_MILLIS).await;
    payee.is_at(&payee.client.transaction(&payment["id"]).await, "COMPLETED", &payee.usd);
    assert_eq!(payee.client.balance(&payee.usd).await, 5_000);
    server.verify();
}

#[tokio::test]
async fn a_payment_that_does_not_come_deposits_nothing() {
    for (user, ends) in [("fail.compliance.usd", "REJECTED"), ("fail.payment.usd", "FAILED")] {
        let server = Server::new();
        let payee = Payee::on(&server).await;
        let bank = payee.bank("789").await;
        let payment = payee.receive(user, 5_000).await.expect(200).clone();
        server.pass(RAIL_MILLIS).await;
        let got = payee.client.transaction(&payment["id"]).await;
        assert_eq!(
            (&got["status"], &got["destination"]["accountId"]),
            (&json!(ends), &json!(bank))
        );
        assert_eq!(payee.client.balance(&payee.usd).await, 0);
        server.verify();
    }
}

/// The payer is done when the payee's side has the money, whatever the payee's bank says later.
#[tokio::test]
async fn a_payment_within_this_server_goes_on_to_the_deposit_account() {
    for (suffix, takes) in [("789", true), ("004", false)] {
        let server = Server::new();
        let payer = Payer::with(&server, 100_000).await;
        let payee = crate::uma::Payee::on(&server.platform().await).await;
        let mut iban = json!({
            "currency": "EUR",
            "accountInfo": {
                "accountType": "EUR_ACCOUNT",
                "iban": "DE89370400440532013000",
                "beneficiary": { "beneficiaryType": "INDIVIDUAL", "fullName": "Ada Lovelace" },
            },
        });
        if !takes {
            iban["accountInfo"]["iban"] = json!("DE78370400440532013004");
        }
        let bank = account(&payee.client, &payee.customer, iban, true).await;
        let quote = payer.client.quote(&to_payee(&payer, &payee, 100_000).await).await;
        payer.client.execute(&quote).await.expect(200);
        payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
        let got = payee.payment().await;
        assert_eq!(
            (&got["status"], &got["destination"]["accountId"]),
            (&json!("PROCESSING"), &json!(bank))
        );
        assert_eq!(payee.client.balance(&payee.eur).await, 0);
        server.verify();
        // A restart in between neither loses it nor pays it twice.
        let server = server.restart();
        let client = server.token(payee.client.platform, Permissions::ALL).await;
        let payee = crate::uma::Payee { client, ..payee };
        server.pass(5_000).await;
        server.pass(RAIL_MILLIS).await;
        let got = payee.payment().await;
        let (account, left) = if takes { (&bank, 0) } else { (&payee.eur, 85_847) };
        assert_eq!(
            (&got["status"], &got["destination"]["accountId"]),
            (&json!("COMPLETED"), &json!(account)),
            "{suffix}"
        );
        assert_eq!(payee.client.balance(&payee.eur).await, left);
        assert_eq!(
            server.notified_statuses(&got["id"]).await,
            ["PENDING", "PROCESSING", "COMPLETED"]
        );
        server.verify();
    }
}

/// The order to the bank is one, from any server and however often.
#[tokio::test]
async fn a_server_that_takes_over_does_not_pay_twice() {
    let server = Server::new();
    let payee = Payee::on(&server).await;
    let bank = payee.bank("789").await;
    let payment = payee.receive("success.usd", 5_000).await.expect(200).clone();
    server.pass(RAIL_MILLIS).await;
    server.clock.advance_millis(RAIL_MILLIS);
    // Two servers ask about the same deposit; what the second hears comes too late.
    let rail = crate::held_rail::HeldRail::new();
    let late = server.with_rail(1, rail.clone());
    assert_eq!(service::jobs::step(&late).await.expect("a step").under_way, 1);
    rail.asked.acquire().await.expect("it stays open").forget();
    // The first step finds out that it is not the one to do it any more, and the next one is.
    service::jobs::step(&server.app).await.expect("a step");
    server.pass(0).await;
    payee.is_at(&payee.client.transaction(&payment["id"]).await, "COMPLETED", &bank);
    rail.let_go.add_permits(1);
    service::jobs::settled(&late).await;
    payee.is_at(&payee.client.transaction(&payment["id"]).await, "COMPLETED", &bank);
    assert_eq!(server.notified_statuses(&payment["id"]).await.len(), 3);
    assert_eq!(payee.client.balance(&payee.usd).await, 0);
    server.verify();
}
