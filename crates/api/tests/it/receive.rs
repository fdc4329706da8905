//! Payments of other institutions to customers (specification 4.16; contract 6.18, 7.3).

use domain::clock::Ahead;
use domain::currency::Currency;
use domain::id::CustomerId;
use domain::platform::{COUNTERPARTY_FIELDS, Mode};
use domain::transaction::{Facts, FailureReason};
use domain::uma_address::UmaAddress;
use serde_json::{Value, json};
use service::Error;
use service::error::UmaError;
use service::incoming::{self, PayIn, Wanted};

use crate::support::{Answer, Client, Server, text};
use crate::uma::address_of;

/// A customer who is paid, with its account in US dollars.
pub struct Payee {
    pub client: Client,
    pub customer: String,
    pub usd: String,
}

impl Payee {
    pub async fn on(server: &Server) -> Self {
        let client = server.platform().await;
        let customer = client.customer().await;
        let usd = client.account(Some(&customer), "USD").await;
        Self { client, customer, usd }
    }

    /// A payment of the sandbox.
    pub async fn receive(&self, user: &str, amount: i64) -> Answer {
        let body = json!({
            "senderUmaAddress": format!("${user}@sandbox.uma.money"),
            "receivingCurrencyCode": "USD",
            "receivingCurrencyAmount": amount,
            "customerId": self.customer,
        });
        self.client.post("/sandbox/uma/receive", &body).await
    }

    /// Makes the platform decide on its payments.
    pub async fn with_webhook(self) -> Self {
        let body = json!({ "webhookEndpoint": "https://example.com/hook" });
        self.client.patch("/config", &body).await.expect(200);
        self
    }

    /// Checks how a payment stands and why, and gives it.
    pub async fn stands_at(&self, payment: &Value, status: &str, reason: Option<&str>) -> Value {
        let shown = self.client.transaction(&payment["id"]).await;
        let said = (shown["status"].as_str(), shown["failureReason"].as_str());
        assert_eq!(said, (Some(status), reason), "{shown}");
        shown
    }
}

#[tokio::test]
async fn a_payment_from_outside_shows_every_field() {
    let server = Server::new();
    let payee = Payee::on(&server).await;
    let payment = payee.receive("success.usd", 5_000).await.expect(200).clone();
    let own = address_of(&payee.client, &payee.customer).await;
    let sender = "$success.usd@sandbox.uma.money";
    let amount = json!({
        "amount": 5_000,
        "currency":
            { "code": "USD", "name": "United States dollar", "symbol": "$", "decimals": 2 },
    });
    assert_eq!(
        payment,
        json!({
            "id": payment["id"],
            "status": "PROCESSING",
            "type": "INCOMING",
            "direction": "CREDIT",
            "source": { "sourceType": "UMA_ADDRESS", "umaAddress": sender },
            "destination":
                { "destinationType": "ACCOUNT", "accountId": payee.usd, "currency": "USD" },
            "customerId": payee.customer,
            "platformCustomerId": payment["platformCustomerId"],
            "receivedAmount": amount,
            "senderUmaAddress": sender,
            "receiverUmaAddress": own,
            "counterpartyInformation": {
                "FULL_NAME": "Sandbox Sender",
                "BIRTH_DATE": "1990-01-01",
                "NATIONALITY": "US",
                "COUNTRY_OF_RESIDENCE": "US",
                "USER_TYPE": "INDIVIDUAL",
            },
            "rateDetails": {
                "serviceApiMultiplier": payment["rateDetails"]["serviceApiMultiplier"],
                "serviceApiFixedFee": 0,
                "serviceApiVariableFeeRate": 0.003,
                "serviceApiVariableFeeAmount": 15,
            },
            "reconciliationInstructions": payment["reconciliationInstructions"],
            "createdAt": crate::support::START,
            "updatedAt": crate::support::START,
        })
    );
    assert_eq!(payee.client.balance(&payee.usd).await, 0, "the money has not come yet");
    server.verify();
    server.pass(200).await;
    let got = payee.stands_at(&payment, "COMPLETED", None).await;
    assert_eq!(got["settledAt"], "2025-10-13T09:00:00.200Z");
    assert_eq!(payee.client.balance(&payee.usd).await, 5_000);
    let notified = server.notified_statuses(&payment["id"]).await;
    assert_eq!(notified, ["PENDING", "PROCESSING", "COMPLETED"]);
    let [sender, own] = [sender, &own].map(|address| address.replace('$', "%24"));
    for (filter, count) in [
        (format!("senderAccountIdentifier={sender}"), 1),
        (format!("receiverAccountIdentifier={sender}"), 0),
        (format!("accountIdentifier={sender}"), 1),
        (format!("senderAccountIdentifier={own}"), 0),
        (format!("receiverAccountIdentifier={own}"), 1),
        (format!("accountIdentifier={own}"), 1),
        (format!("accountIdentifier={own}&senderAccountIdentifier={sender}"), 1),
        (format!("accountIdentifier={own}&type=OUTGOING"), 0),
    ] {
        assert_eq!(payee.client.count(&format!("/transactions?{filter}")).await, count, "{filter}");
    }
    server.verify();
}

#[tokio::test]
async fn the_receiver_is_named_by_id_or_by_address() {
    let server = Server::new();
    let payee = Payee::on(&server).await;
    let own = address_of(&payee.client, &payee.customer).await;
    let good = json!({
        "senderUmaAddress": "$success.usd@sandbox.uma.money",
        "receivingCurrencyCode": "USD",
        "receivingCurrencyAmount": 100,
    });
    let with = |changes: &[(&str, Value)]| {
        let mut body = good.clone();
        for (name, value) in changes {
            body[*name] = value.clone();
        }
        body
    };
    let post = async |body: Value| payee.client.post("/sandbox/uma/receive", &body).await;
    let (by_id, by_address) =
        (("customerId", json!(payee.customer)), ("receiverUmaAddress", json!(own)));
    post(with(std::slice::from_ref(&by_id))).await.expect(200);
    post(with(std::slice::from_ref(&by_address))).await.expect(200);
    post(with(&[by_id.clone(), by_address.clone()])).await.expect(200);
    assert_eq!(post(good.clone()).await.refused(400, "INVALID_INPUT")["field"], "customerId");
    let second = payee.client.customer().await;
    let answer = post(with(&[("customerId", json!(second)), by_address])).await;
    assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "receiverUmaAddress");
    for (changes, status, code) in [
        (
            ("customerId", json!("Customer:0199dccc-4a80-7000-8000-000000000000")),
            404,
            "USER_NOT_FOUND",
        ),
        (("receiverUmaAddress", json!("$unknown@uma.test")), 404, "UMA_NOT_FOUND"),
        (("receiverUmaAddress", json!("ada")), 400, "INVALID_UMA_ADDRESS"),
        (("customerId", json!("x")), 400, "INVALID_INPUT"),
    ] {
        post(with(&[changes])).await.refused(status, code);
    }
    for (name, value, status, code) in [
        ("senderUmaAddress", json!("$non.existent.usd@sandbox.uma.money"), 404, "UMA_NOT_FOUND"),
        ("senderUmaAddress", json!("$ada@example.com"), 404, "UMA_NOT_FOUND"),
        (
            "senderUmaAddress",
            json!("$fail.blocked.usd@sandbox.uma.money"),
            403,
            "COUNTERPARTY_NOT_ALLOWED",
        ),
        ("senderUmaAddress", json!("bo"), 400, "INVALID_UMA_ADDRESS"),
        ("receivingCurrencyCode", json!("XXX"), 400, "INVALID_CURRENCY"),
        ("receivingCurrencyAmount", json!(0), 400, "INVALID_AMOUNT"),
        ("receivingCurrencyAmount", json!(9_000_000_000_000_000_i64), 400, "AMOUNT_OUT_OF_RANGE"),
    ] {
        post(with(&[by_id.clone(), (name, value)])).await.refused(status, code);
    }
    // What would come in with the fees is more than can be booked, though few millisatoshi.
    let rupiahs = ("receivingCurrencyCode", json!("IDR"));
    let most = ("receivingCurrencyAmount", json!(9_000_000_000_000_000_i64));
    let answer = post(with(&[by_id.clone(), rupiahs, most])).await;
    answer.refused(400, "AMOUNT_OUT_OF_RANGE");
    // Another platform's customer is not found.
    let stranger = Payee::on(&server).await;
    let theirs = address_of(&stranger.client, &stranger.customer).await;
    post(with(&[("receiverUmaAddress", json!(theirs))])).await.refused(404, "UMA_NOT_FOUND");
    let theirs = ("customerId", json!(stranger.customer));
    post(with(&[theirs])).await.refused(404, "USER_NOT_FOUND");
    payee.client.set_kyc(&payee.customer, "PENDING_REVIEW").await;
    post(with(&[by_id])).await.refused(403, "USER_NOT_READY");
    server.verify();
}

#[tokio::test]
async fn the_sender_steers_what_becomes_of_a_payment() {
    for (user, millis, ends, reason) in [
        ("success.eur", 200, "COMPLETED", None),
        ("pending.long.usd", 360_000, "COMPLETED", None),
        ("fail.timeout.usd", 30_000, "FAILED", Some("QUOTE_EXPIRED")),
    ] {
        let server = Server::new();
        let payee = Payee::on(&server).await;
        let payment = payee.receive(user, 5_000).await.expect(200).clone();
        server.pass(millis - 1).await;
        payee.stands_at(&payment, "PROCESSING", None).await;
        server.pass(1).await;
        payee.stands_at(&payment, ends, reason).await;
        let got = payee.client.balance(&payee.usd).await;
        assert_eq!(got, if ends == "COMPLETED" { 5_000 } else { 0 }, "{user}");
        server.verify();
    }
    let server = Server::new();
    let payee = Payee::on(&server).await;
    for (user, ends, reason) in [
        ("fail.compliance.usd", "REJECTED", None),
        ("fail.payment.usd", "FAILED", Some("PAY_REQUEST_FAILED")),
    ] {
        let payment = payee.receive(user, 5_000).await.expect(200).clone();
        server.pass(200).await;
        let payment = payee.stands_at(&payment, ends, reason).await;
        assert!(payment["refund"].is_null(), "nothing had come");
    }
    assert_eq!(payee.client.balance(&payee.usd).await, 0);
    server.verify();
}

/// What was approved has its place in the ledger until its money has come, or is known not to.
#[tokio::test]
async fn the_currency_of_a_payment_under_way_cannot_be_removed() {
    for (user, millis, ends) in
        [("pending.long.usd", 360_000, "COMPLETED"), ("fail.timeout.usd", 30_000, "FAILED")]
    {
        let server = Server::new();
        let payee = Payee::on(&server).await;
        let payment = payee.receive(user, 5_000).await.expect(200).clone();
        let euro = json!({ "currencyCode": "EUR", "minAmount": 1, "maxAmount": 9 });
        let body = json!({ "supportedCurrencies": [euro] });
        let in_use = payee.client.patch("/config", &body).await;
        assert_eq!(in_use.refused(400, "INVALID_CURRENCY")["currency"], "USD");
        server.verify();
        server.pass(millis).await;
        let shown = payee.client.transaction(&payment["id"]).await;
        assert_eq!(shown["status"], ends);
        assert_eq!(
            payee.client.patch("/config", &body).await.status,
            if ends == "FAILED" { 200 } else { 400 }
        );
        server.verify();
    }
}

#[tokio::test]
async fn the_platform_decides_in_time() {
    for (how, ends, reason) in [
        ("approve", "COMPLETED", None),
        ("reject", "REJECTED", None),
        ("", "FAILED", Some("PAYMENT_APPROVAL_TIMED_OUT")),
    ] {
        let server = Server::new();
        let payee = Payee::on(&server).await.with_webhook().await;
        let payment = payee.receive("success.usd", 5_000).await.expect(200).clone();
        assert_eq!(payment["status"], "PENDING");
        server.verify();
        server.pass(4_999).await;
        payee.stands_at(&payment, "PENDING", None).await;
        // A payee that waits is not deleted before that is decided.
        let customer = format!("/customers/{}", payee.customer);
        payee.client.delete(&customer).await.refused(409, "CONFLICT");
        if !how.is_empty() {
            let path = format!("/transactions/{}/{how}", text(&payment["id"]));
            payee.client.post(&path, &json!({ "reason": "TEST" })).await.expect(200);
        }
        server.pass(1_000).await;
        payee.stands_at(&payment, ends, reason).await;
        let got = payee.client.balance(&payee.usd).await;
        assert_eq!(got, if ends == "COMPLETED" { 5_000 } else { 0 }, "{how}");
        server.verify();
    }
}

#[tokio::test]
async fn a_repeat_receives_once() {
    let server = Server::new();
    let payee = Payee::on(&server).await;
    let body = json!({
        "senderUmaAddress": "$success.usd@sandbox.uma.money",
        "receivingCurrencyCode": "USD",
        "receivingCurrencyAmount": 700,
        "customerId": payee.customer,
    });
    let first = payee.client.post_once("/sandbox/uma/receive", "a", &body).await;
    let again = payee.client.post_once("/sandbox/uma/receive", "a", &body).await;
    assert_eq!((first.expect(200), &again.bytes), (&again.body, &first.bytes));
    server.pass(1_000).await;
    assert_eq!(payee.client.balance(&payee.usd).await, 700);
    server.verify();
}

#[tokio::test]
async fn what_the_platform_insists_on_must_be_said() {
    let server = Server::new();
    let payee = Payee::on(&server).await;
    let config = payee.client.get("/config").await.expect(200).clone();
    let mut currencies = config["supportedCurrencies"].clone();
    currencies[0]["requiredCounterpartyFields"] = json!([
        { "name": "FULL_NAME", "mandatory": true },
        { "name": "EMAIL", "mandatory": false },
    ]);
    let body = json!({ "supportedCurrencies": currencies });
    payee.client.patch("/config", &body).await.expect(200);
    payee.receive("success.usd", 100).await.expect(200);
    currencies[0]["requiredCounterpartyFields"] = json!([{ "name": "TAX_ID", "mandatory": true }]);
    let body = json!({ "supportedCurrencies": currencies });
    payee.client.patch("/config", &body).await.expect(200);
    // Another institution says nothing.
    let (app, platform) = (server.app.clone(), payee.client.platform);
    let pay_in = unsaid(&payee.customer);
    let id = app.new_id(Ahead::NONE, app.server_now());
    let receive = move |unit: &mut store::unit::Unit<'_, '_>| {
        incoming::receive(&app, unit, platform, &pay_in, id, app.server_now())
    };
    let refused =
        server.app.store().write(server.app.origin(), receive).await.expect_err("a refusal");
    assert!(
        matches!(refused, Error::Uma(UmaError::PayerDataMissing { fields }) if fields == ["TAX_ID"])
    );
    server.verify();
}

/// The sandbox's institutions say whatever they are asked, so that everything can be tried.
#[tokio::test]
async fn the_sandbox_says_what_is_asked() {
    let server = Server::new();
    let payee = Payee::on(&server).await;
    let asked = COUNTERPARTY_FIELDS.map(|name| json!({ "name": name, "mandatory": true }));
    let asked = ("requiredCounterpartyFields", json!(asked));
    payee.client.set_of_currency("USD", &[asked]).await;
    let payment = payee.receive("success.usd", 100).await.expect(200).clone();
    let said = payment["counterpartyInformation"].as_object().expect("facts");
    assert!(COUNTERPARTY_FIELDS.iter().all(|name| said.contains_key(*name)), "{said:?}");
    assert_eq!(said["IDENTIFIER"], payment["senderUmaAddress"]);
    server.verify();
}

/// A payment of which nothing is said about who pays.
fn unsaid(customer: &str) -> PayIn {
    PayIn {
        sender: UmaAddress::parse("$bo@peer.example").expect("an address"),
        payer: Facts::new(),
        receiver: None,
        customer_id: CustomerId::parse(customer).ok(),
        currency: Currency::from_code("USD").expect("a currency"),
        amount: Wanted::Arrives(5_000),
        asked: Vec::new(),
        description: None,
        callback: None,
    }
}

#[tokio::test]
async fn a_live_platform_without_a_webhook_takes_no_payment() {
    let server = Server::with_market();
    let live = server.platform_with(Mode::Live, true).await;
    let customer = live.customer().await;
    let (app, platform) = (server.app.clone(), live.platform);
    let now = app.server_now();
    let id = app.new_id(Ahead::NONE, now);
    let pay_in = unsaid(&customer);
    let receive = move |unit: &mut store::unit::Unit<'_, '_>| {
        incoming::receive(&app, unit, platform, &pay_in, id, now)
    };
    let payment = server.app.store().write(server.app.origin(), receive).await.expect("a payment");
    assert_eq!(payment.failure(), Some(FailureReason::PaymentApprovalWebhookError));
    let shown = live.transaction(&json!(id.to_string())).await;
    assert_eq!(shown["failureReason"], "PAYMENT_APPROVAL_WEBHOOK_ERROR");
    server.verify();
}

#[tokio::test]
async fn the_limits_of_the_platform_bind_what_comes_in() {
    let server = Server::new();
    let payee = Payee::on(&server).await;
    payee.client.limit_usd(1_000, 2_000).await;
    for amount in [999, 2_001] {
        let answer = payee.receive("success.usd", amount).await;
        let details = answer.refused(400, "AMOUNT_OUT_OF_RANGE");
        assert_eq!(details["field"], "receivingCurrencyAmount");
        assert_eq!((&details["minAmount"], &details["maxAmount"]), (&json!(1_000), &json!(2_000)));
    }
    for amount in [1_000, 2_000] {
        payee.receive("success.usd", amount).await.expect(200);
    }
    server.pass(1_000).await;
    assert_eq!(payee.client.balance(&payee.usd).await, 3_000);
    // A deposit is money that is here already.
    payee.client.fund(&payee.usd, 1).await;
    server.verify();
}
