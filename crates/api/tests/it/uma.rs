//! Payments to UMA addresses: quotes on a lookup, within this server and to other institutions
//! (contract 6.9, 6.18).

use domain::platform::Mode;
use serde_json::{Value, json};

use crate::pay::{Payer, deposit, from, locked, sending};
use crate::support::{Answer, Client, Server, text, why};

const LOOKUP_MILLIS: i64 = 900_000;

/// The address of a customer.
pub async fn address_of(client: &Client, customer: &str) -> String {
    text(&client.get(&format!("/customers/{customer}")).await.expect(200)["umaAddress"])
}

/// Looks an address up for a customer.
pub async fn look_up(client: &Client, address: &str, customer: &str) -> String {
    let path = format!("/receiver/uma/{}?customerId={customer}", address.replace('$', "%24"));
    text(&client.get(&path).await.expect(200)["lookupId"])
}

/// A UMA address as the destination of a quote.
fn to_uma(address: &str) -> Value {
    json!({ "destinationType": "UMA_ADDRESS", "umaAddress": address })
}

/// The body of a quote from a payer's dollars to an address, on a lookup of its own.
pub async fn body(payer: &Payer, address: &str, side: &str, amount: i64) -> Value {
    let lookup = look_up(&payer.client, address, &payer.customer).await;
    let mut body = locked(side, &from(&payer.usd), &to_uma(address), amount);
    body["lookupId"] = json!(lookup);
    body
}

fn at(user: &str) -> String {
    format!("${user}@sandbox.uma.money")
}

#[tokio::test]
async fn a_quote_to_another_institution_shows_every_field() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let receiver = at("fee.eur");
    let quote = payer.client.quote(&body(&payer, &receiver, "SENDING", 100_000).await).await;
    assert_eq!(
        quote["destination"],
        json!({ "destinationType": "UMA_ADDRESS", "umaAddress": receiver, "currency": "EUR" })
    );
    // Own fees are 350. The institution takes 25 cents of a euro: 29.02, rounded up to 30 cents.
    assert_eq!(quote["exchangeRate"].as_f64(), Some(1.160775));
    assert_eq!(quote["feesIncluded"], 380);
    // (100000 - 380) / 1.160775, rounded down.
    assert_eq!(quote["totalReceivingAmount"], 85_821);
    let details = &quote["rateDetails"];
    assert_eq!(details["counterpartyFixedFee"], 25);
    assert_eq!(details["serviceApiFixedFee"], 50);
    assert_eq!(details["serviceApiVariableFeeAmount"], 300);
    // A euro costs 1.155 dollars in the middle of the market, and a cent 10,000 millisatoshi.
    assert_eq!(details["counterpartyMultiplier"].as_f64(), Some(11_550.0));
    assert_eq!(payer.client.quote_again(&quote).await, quote);
    let transaction = payer.client.transaction_of(&quote).await;
    assert_eq!(transaction["destination"], quote["destination"]);
    assert_eq!(transaction["receiverUmaAddress"], receiver);
    let own = address_of(&payer.client, &payer.customer).await;
    assert_eq!(transaction["senderUmaAddress"], own);
    assert_eq!(transaction["counterpartyInformation"], json!({}));
    assert_eq!((&transaction["fees"], &transaction["type"]), (&json!(380), &json!("OUTGOING")));
    // The quote alone shows what its rate was made from.
    let mut without_basis = details.clone();
    without_basis.as_object_mut().expect("details").remove("rateBasis");
    assert_eq!(transaction["rateDetails"], without_basis);
    // The same arrives whichever side was locked.
    let arrives = quote["totalReceivingAmount"].as_i64().expect("an amount");
    let other = payer.client.quote(&body(&payer, &receiver, "RECEIVING", arrives).await).await;
    assert_eq!(other["totalReceivingAmount"], arrives);
    let costs = other["totalSendingAmount"].as_i64().expect("an amount");
    assert!((99_998..=100_000).contains(&costs), "{costs}");
    // Both are found by the addresses of who pays and who is paid, each on its own side.
    let (escaped, own) = (receiver.replace('$', "%24"), own.replace('$', "%24"));
    for (path, count) in [
        (format!("/quotes?receivingUmaAddress={escaped}"), 2),
        (format!("/quotes?sendingUmaAddress={own}"), 2),
        ("/quotes?receivingUmaAddress=%24success.eur@sandbox.uma.money".to_owned(), 0),
        (format!("/transactions?receiverAccountIdentifier={escaped}"), 2),
        (format!("/transactions?senderAccountIdentifier={escaped}"), 0),
        (format!("/transactions?accountIdentifier={escaped}"), 2),
        (format!("/transactions?senderAccountIdentifier={own}"), 2),
        (format!("/transactions?receiverAccountIdentifier={own}"), 0),
        (format!("/transactions?accountIdentifier={own}"), 2),
        // The money for them was a transfer, which no address has made.
        ("/transactions".to_owned(), 3),
    ] {
        assert_eq!(payer.client.count(&path).await, count, "{path}");
    }
    server.verify();
}

/// A payment to an address of the sandbox: where it ends, when, and why.
async fn check(user: &str, millis: i64, quote_ends: &str, ends: &str, reason: [Option<&str>; 2]) {
    for in_time in [false, true] {
        let server = Server::new();
        let payer = Payer::with(&server, if in_time { 0 } else { 50_000 }).await;
        let mut body = body(&payer, &at(user), "SENDING", 50_000).await;
        if in_time {
            body["source"] = deposit("USD", &payer.customer);
        }
        let quote = payer.client.quote(&body).await;
        if in_time {
            let sent = payer.client.deposit(&quote, None).await.expect(200).clone();
            assert_eq!(sent["status"], "PROCESSING", "{user}");
        } else {
            let executed = payer.client.execute(&quote).await.expect(200).clone();
            assert_eq!(executed["status"], "PROCESSING", "{user}");
        }
        assert_eq!(payer.balance().await, 0, "{user}");
        server.verify();
        server.pass(millis - 1).await;
        payer.client.stands_at(&quote, "PROCESSING", "PROCESSING").await;
        server.pass(1).await;
        let refunded = in_time && ends == "FAILED";
        let ends = if refunded { "REFUNDED" } else { ends };
        let transaction = payer.client.stands_at(&quote, quote_ends, ends).await;
        assert_eq!(why(&transaction), reason, "{user}");
        let back = if ends == "COMPLETED" { 0 } else { 50_000 };
        assert_eq!(payer.balance().await, back, "{user}");
        let notified = server.notified_statuses(&quote["transactionId"]).await;
        assert_eq!(notified[..2], ["PENDING", "PROCESSING"], "{user}");
        assert_eq!(notified.last().map(String::as_str), Some(ends), "{user}");
        server.pass(LOOKUP_MILLIS).await;
        payer.client.stands_at(&quote, quote_ends, ends).await;
        server.verify();
    }
}

#[tokio::test]
async fn the_address_steers_what_becomes_of_a_payment() {
    for user in ["success.usd", "success.eur", "success.mxn", "success.php", "fee.eur"] {
        check(user, 200, "COMPLETED", "COMPLETED", [None, None]).await;
    }
    check("pending.long.usd", 360_000, "COMPLETED", "COMPLETED", [None, None]).await;
    check(
        "fail.timeout.usd",
        30_000,
        "FAILED",
        "FAILED",
        [Some("QUOTE_EXECUTION_FAILED"), Some("TIMEOUT")],
    )
    .await;
}

#[tokio::test]
async fn a_refusal_of_the_other_institution_gives_the_money_back() {
    let server = Server::new();
    for (user, ends, reason) in [
        ("fail.compliance.usd", "REJECTED", [None, Some("REJECTED_BY_RECEIVER")]),
        (
            "fail.payment.usd",
            "FAILED",
            [Some("QUOTE_EXECUTION_FAILED"), Some("LIGHTNING_PAYMENT_FAILED")],
        ),
    ] {
        let payer = Payer::with(&server, 50_000).await;
        let quote = payer.client.quote(&body(&payer, &at(user), "SENDING", 50_000).await).await;
        payer.client.execute(&quote).await.expect(200);
        server.pass(1_000).await;
        let transaction = payer.client.stands_at(&quote, "FAILED", ends).await;
        assert_eq!(why(&transaction), reason, "{user}");
        assert_eq!(transaction["refund"]["status"], "COMPLETED", "{user}");
        assert_eq!(payer.balance().await, 50_000, "{user}");
    }
    server.verify();
}

#[tokio::test]
async fn an_institution_without_an_invoice_gets_no_quote() {
    let server = Server::new();
    let payer = Payer::with(&server, 50_000).await;
    for (user, status, code) in [
        ("fail.payreq.usd", 424, "PAYREQ_REQUEST_FAILED"),
        ("fail.payreq.parse.usd", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
    ] {
        let body = body(&payer, &at(user), "SENDING", 50_000).await;
        let answer = payer.client.post_once("/quotes", user, &body).await;
        assert_eq!(answer.refused(status, code)["umaAddress"], at(user));
        let again = payer.client.post_once("/quotes", user, &body).await;
        assert_eq!(again.headers["idempotent-replayed"], "true");
        assert_eq!(again.bytes, answer.bytes);
    }
    assert_eq!(payer.client.count("/quotes").await, 0);
    server.verify();
}

#[tokio::test]
async fn a_quote_to_an_address_stands_on_a_good_lookup() {
    let server = Server::new();
    let payer = Payer::with(&server, 50_000).await;
    let good = body(&payer, &at("success.usd"), "SENDING", 1_000).await;
    let post = async |body: &Value| payer.client.post("/quotes", body).await;
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body
    };
    let mut without = good.clone();
    without.as_object_mut().expect("an object").remove("lookupId");
    assert_eq!(post(&without).await.refused(400, "INVALID_INPUT")["field"], "lookupId");
    let unknown = with("lookupId", json!("Lookup:0199dccc-4a80-7000-8000-000000000001"));
    post(&unknown).await.refused(404, "LOOKUP_REQUEST_NOT_FOUND");
    // Of another receiver, of another customer, of another platform.
    let other = with("destination", to_uma(&at("success.eur")));
    assert_eq!(post(&other).await.refused(400, "INVALID_INPUT")["field"], "lookupId");
    let second = payer.client.customer().await;
    let theirs = look_up(&payer.client, &at("success.usd"), &second).await;
    let answer = post(&with("lookupId", json!(theirs))).await;
    assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "lookupId");
    let stranger = server.platform().await;
    let customer = stranger.customer().await;
    let theirs = look_up(&stranger, &at("success.usd"), &customer).await;
    post(&with("lookupId", json!(theirs))).await.refused(404, "LOOKUP_REQUEST_NOT_FOUND");
    // A platform has no address to pay from.
    let own = payer.client.account(None, "USD").await;
    let answer = post(&with("source", from(&own))).await;
    assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "source.customerId");
    // In another currency than the receiver takes, or more than it takes.
    let mut destination = to_uma(&at("success.usd"));
    destination["currency"] = json!("EUR");
    post(&with("destination", destination)).await.refused(400, "INVALID_CURRENCY");
    let much = with("lockedCurrencyAmount", json!(2_000_000_000));
    post(&much).await.refused(400, "AMOUNT_OUT_OF_RANGE");
    // A lookup is good to its last millisecond, and can be quoted on again.
    payer.client.quote(&good).await;
    server.pass(LOOKUP_MILLIS - 1).await;
    payer.client.quote(&good).await;
    let kept = async || {
        let ever = server.app.server_now().plus_millis(LOOKUP_MILLIS + 1);
        let read = server.app.store().read(move |view| view.outdated_lookups(ever, 10)).await;
        read.map_err(service::Error::Store).expect("a read").len()
    };
    assert_eq!(kept().await, 3, "of this customer, of another, of another platform");
    server.clock.advance_millis(1);
    post(&good).await.refused(404, "LOOKUP_REQUEST_NOT_FOUND");
    // Once their time is over they are removed, whether a quote names them or not.
    server.pass(1_000).await;
    assert_eq!(kept().await, 0);
    post(&good).await.refused(404, "LOOKUP_REQUEST_NOT_FOUND");
    server.verify();
}

#[tokio::test]
async fn a_lookup_that_a_quote_between_accounts_names_is_good_too() {
    let server = Server::new();
    let payer = Payer::with(&server, 50_000).await;
    let (bank, other) = (payer.bank("789").await, payer.bank("788").await);
    let path = format!("/receiver/external-account/{bank}?customerId={}", payer.customer);
    let lookup = text(&payer.client.get(&path).await.expect(200)["lookupId"]);
    let mut body = sending(&from(&payer.usd), &crate::pay::to(&bank), 1_000);
    body["lookupId"] = json!(lookup);
    payer.client.quote(&body).await;
    body["destination"] = crate::pay::to(&other);
    let answer = payer.client.post("/quotes", &body).await;
    assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "lookupId");
    server.pass(LOOKUP_MILLIS).await;
    body["destination"] = crate::pay::to(&bank);
    payer.client.post("/quotes", &body).await.refused(404, "LOOKUP_REQUEST_NOT_FOUND");
    server.verify();
}

#[tokio::test]
async fn what_the_receivers_side_insists_on_is_given() {
    let server = Server::new();
    let payer = Payer::with(&server, 50_000).await;
    let mut body = body(&payer, &at("identity.usd"), "SENDING", 1_000).await;
    let answer = payer.client.post("/quotes", &body).await;
    let missing = &answer.refused(400, "MISSING_MANDATORY_USER_INFO")["missingFields"];
    assert_eq!(*missing, json!(["FULL_NAME", "BIRTH_DATE"]));
    body["senderCustomerInfo"] = json!({ "FULL_NAME": "Ada Lovelace" });
    let answer = payer.client.post("/quotes", &body).await;
    let missing = &answer.refused(400, "MISSING_MANDATORY_USER_INFO")["missingFields"];
    assert_eq!(*missing, json!(["BIRTH_DATE"]));
    // An empty text says nothing.
    for empty in ["", "  "] {
        body["senderCustomerInfo"]["BIRTH_DATE"] = json!(empty);
        let answer = payer.client.post("/quotes", &body).await;
        let missing = &answer.refused(400, "MISSING_MANDATORY_USER_INFO")["missingFields"];
        assert_eq!(*missing, json!(["BIRTH_DATE"]));
    }
    body["senderCustomerInfo"]["BIRTH_DATE"] = json!("1985-12-10");
    payer.client.quote(&body).await;
    for wrong in [json!({ "SHOE_SIZE": "38" }), json!({ "FULL_NAME": "x".repeat(501) })] {
        let mut body = body.clone();
        body["senderCustomerInfo"] = wrong;
        let answer = payer.client.post("/quotes", &body).await;
        assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "senderCustomerInfo");
    }
    body["senderCustomerInfo"] = json!({ "FULL_NAME": 7 });
    payer.client.post("/quotes", &body).await.refused(400, "INVALID_INPUT");
    server.verify();
}

#[tokio::test]
async fn what_was_checked_about_the_payer_is_not_said_otherwise() {
    let field = |name: &str| json!({ "name": name, "mandatory": false });
    for (is_regulated, is_asked) in [(true, true), (false, true), (true, false), (false, false)] {
        let server = Server::new();
        let client = server.platform_with(Mode::Sandbox, is_regulated).await;
        let payer = Payer::on(client, 100_000).await;
        let payee = Payee::on(&server.platform().await).await;
        let asked = ["FULL_NAME", "USER_TYPE", "IDENTIFIER", "EMAIL"].map(field);
        if is_asked {
            asks(&payee.client, json!(asked)).await;
        }
        let mut body = to_payee(&payer, &payee, 100_000).await;
        body["senderCustomerInfo"] = json!({
            "FULL_NAME": "Eve Adams",
            "USER_TYPE": " ",
            "IDENTIFIER": "$eve@else.example",
            "EMAIL": "ada@example.com",
        });
        payer.client.execute(&payer.client.quote(&body).await).await.expect(200);
        let path = format!("/customers/{}", payer.customer);
        let known = payer.client.get(&path).await.expect(200).clone();
        let said = json!("Eve Adams");
        let mut shown = json!({
            "FULL_NAME": if is_regulated { &said } else { &known["fullName"] },
            "EMAIL": "ada@example.com",
        });
        if is_asked {
            shown["USER_TYPE"] = json!("INDIVIDUAL");
            shown["IDENTIFIER"] = known["umaAddress"].clone();
        }
        assert_eq!(payee.payment().await["counterpartyInformation"], shown);
        server.verify();
    }
}

/// A platform that asks about the other side of payments in euros.
pub async fn asks(client: &Client, fields: Value) {
    client.set_of_currency("EUR", &[("requiredCounterpartyFields", fields)]).await;
}

#[tokio::test]
async fn what_is_known_about_the_receiver_is_on_the_payment() {
    let server = Server::new();
    let payer = Payer::with(&server, 50_000).await;
    asks(&payer.client, json!([{ "name": "FULL_NAME", "mandatory": true }])).await;
    let mut body = body(&payer, &at("success.eur"), "SENDING", 1_000).await;
    body["destination"]["counterpartyInformation"] = json!({ "EMAIL": "bo@example.com" });
    let quote = payer.client.quote(&body).await;
    let transaction = payer.client.transaction_of(&quote).await;
    assert_eq!(
        transaction["counterpartyInformation"],
        json!({ "EMAIL": "bo@example.com", "FULL_NAME": "Sandbox Receiver" })
    );
    // What its institution does not say, the platform must know itself.
    asks(&payer.client, json!([{ "name": "TAX_ID", "mandatory": true }])).await;
    let answer = payer.client.post("/quotes", &body).await;
    let missing = &answer.refused(400, "INVALID_PAYREQ_RESPONSE")["missingFields"];
    assert_eq!(*missing, json!(["TAX_ID"]));
    body["destination"]["counterpartyInformation"] = json!({ "TAX_ID": "DE1" });
    payer.client.quote(&body).await;
    // It asks about whom it sends dollars to, whatever they arrive as.
    let email = json!([{ "name": "EMAIL", "mandatory": true }]);
    payer.client.set_of_currency("USD", &[("requiredCounterpartyFields", email)]).await;
    let answer = payer.client.post("/quotes", &body).await;
    let missing = &answer.refused(400, "INVALID_PAYREQ_RESPONSE")["missingFields"];
    assert_eq!(*missing, json!(["EMAIL"]));
    server.verify();
}

/// A payee on a platform, with its address and its account in euros.
pub struct Payee {
    pub client: Client,
    pub customer: String,
    pub address: String,
    pub eur: String,
}

impl Payee {
    pub async fn on(client: &Client) -> Self {
        let customer = client.customer().await;
        let address = address_of(client, &customer).await;
        let eur = client.account(Some(&customer), "EUR").await;
        Self { client: client.clone(), customer, address, eur }
    }

    /// The incoming payment.
    pub async fn payment(&self) -> Value {
        let path = format!("/transactions?type=INCOMING&customerId={}", self.customer);
        self.client.get(&path).await.expect(200)["data"][0].clone()
    }

    pub async fn decide(&self, how: &str) -> Answer {
        let id = text(&self.payment().await["id"]);
        self.client.post(&format!("/transactions/{id}/{how}"), &json!({})).await
    }

    /// Makes its platform decide on its payments.
    async fn with_webhook(self) -> Self {
        let body = json!({ "webhookEndpoint": "https://example.com/hook" });
        self.client.patch("/config", &body).await.expect(200);
        self
    }
}

/// The body of a quote from a payer's dollars to the euros of a payee.
pub async fn to_payee(payer: &Payer, payee: &Payee, amount: i64) -> Value {
    let mut body = body(payer, &payee.address, "SENDING", amount).await;
    body["destination"]["currency"] = json!("EUR");
    body
}

#[tokio::test]
async fn customers_of_this_server_pay_each_other() {
    for is_same in [true, false] {
        let server = Server::new();
        let payer = Payer::with(&server, 100_000).await;
        let other = server.platform().await;
        let payee = Payee::on(if is_same { &payer.client } else { &other }).await;
        let mut body = to_payee(&payer, &payee, 100_000).await;
        body["senderCustomerInfo"] = json!({ "FULL_NAME": "Ada Lovelace" });
        body["description"] = json!("Invoice 4711");
        let quote = payer.client.quote(&body).await;
        // As between accounts: nothing goes over another network.
        assert_eq!(quote["totalReceivingAmount"], 85_847);
        assert_eq!(quote["rateDetails"]["counterpartyFixedFee"], 0);
        let executed = payer.client.execute(&quote).await.expect(200).clone();
        assert_eq!(executed["status"], "COMPLETED");
        let paid = payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
        assert_eq!(paid["destination"]["umaAddress"], payee.address);
        assert_eq!(payer.balance().await, 0);
        assert_eq!(payee.client.balance(&payee.eur).await, 85_847);
        let got = payee.payment().await;
        assert_eq!(got["status"], "COMPLETED");
        assert_eq!(got["customerId"], payee.customer);
        let own = address_of(&payer.client, &payer.customer).await;
        assert_eq!(got["source"], json!({ "sourceType": "UMA_ADDRESS", "umaAddress": own }));
        assert_eq!(got["senderUmaAddress"], own);
        assert_eq!(got["receiverUmaAddress"], payee.address);
        assert_eq!(got["destination"]["accountId"], payee.eur);
        assert_eq!(got["receivedAmount"], paid["receivedAmount"]);
        assert_eq!(got["description"], "Invoice 4711");
        assert_eq!(got["counterpartyInformation"], json!({ "FULL_NAME": "Ada Lovelace" }));
        assert_eq!(got["rateDetails"]["serviceApiVariableFeeAmount"], 0);
        assert!(got["rateDetails"]["counterpartyMultiplier"].is_null());
        assert!(got["reconciliationInstructions"]["reference"].is_string());
        let notified = server.notified_statuses(&got["id"]).await;
        assert_eq!(notified, ["PENDING", "PROCESSING", "COMPLETED"]);
        // Each side sees its own payment only.
        if !is_same {
            let path = format!("/transactions/{}", text(&got["id"]));
            payer.client.get(&path).await.refused(404, "TRANSACTION_NOT_FOUND");
            assert!(!got.to_string().contains(&text(&paid["id"])));
        }
        // Both were sent from the payer's address and arrived at the payee's.
        let both = if is_same { 2 } else { 1 };
        for name in ["senderAccountIdentifier", "accountIdentifier"] {
            let path = format!("/transactions?{name}={}", own.replace('$', "%24"));
            assert_eq!(payer.client.count(&path).await, both, "{path}");
            assert_eq!(payee.client.count(&path).await, both, "{path}");
        }
        for name in ["receiverAccountIdentifier", "accountIdentifier"] {
            let path = format!("/transactions?{name}={}", payee.address.replace('$', "%24"));
            assert_eq!(payer.client.count(&path).await, both, "{path}");
            assert_eq!(payee.client.count(&path).await, both, "{path}");
        }
        server.verify();
    }
}

#[tokio::test]
async fn a_deposit_pays_a_customer_of_this_server() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let payee = Payee::on(&server.platform().await).await;
    let mut body = to_payee(&payer, &payee, 100_000).await;
    body["source"] = deposit("USD", &payer.customer);
    let quote = payer.client.quote(&body).await;
    let sent = payer.client.deposit(&quote, None).await.expect(200).clone();
    assert_eq!(sent["status"], "COMPLETED");
    assert_eq!(payee.client.balance(&payee.eur).await, 85_847);
    server.verify();
}

#[tokio::test]
async fn no_one_pays_its_own_address() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let own = address_of(&payer.client, &payer.customer).await;
    let body = body(&payer, &own, "SENDING", 100).await;
    payer.client.post("/quotes", &body).await.refused(400, "SELF_PAYMENT");
    server.verify();
}

#[tokio::test]
async fn the_payees_platform_decides_in_time() {
    for (how, millis, ends, reason) in [
        ("approve", 4_999, "COMPLETED", None),
        ("reject", 4_999, "REJECTED", None),
        ("", 5_000, "FAILED", Some("PAYMENT_APPROVAL_TIMED_OUT")),
    ] {
        for in_time in [false, true] {
            let server = Server::new();
            let payer = Payer::with(&server, if in_time { 0 } else { 100_000 }).await;
            let payee = Payee::on(&server.platform().await).await.with_webhook().await;
            let mut body = to_payee(&payer, &payee, 100_000).await;
            if in_time {
                body["source"] = deposit("USD", &payer.customer);
            }
            let quote = payer.client.quote(&body).await;
            if in_time {
                payer.client.deposit(&quote, None).await.expect(200);
            } else {
                payer.client.execute(&quote).await.expect(200);
            }
            payer.client.stands_at(&quote, "PROCESSING", "PROCESSING").await;
            assert_eq!(payee.payment().await["status"], "PENDING", "{how}");
            assert_eq!(payer.balance().await, 0, "{how}");
            server.verify();
            server.pass(millis).await;
            if !how.is_empty() {
                assert_eq!(payee.decide(how).await.expect(200)["status"], ends, "{how}");
            }
            let got = payee.payment().await;
            assert_eq!((&got["status"], got["failureReason"].as_str()), (&json!(ends), reason));
            let (of_quote, of_payer) = match (ends, in_time) {
                ("COMPLETED", _) => ("COMPLETED", "COMPLETED"),
                ("FAILED", true) => ("FAILED", "REFUNDED"),
                (ends, _) => ("FAILED", ends),
            };
            let paid = payer.client.stands_at(&quote, of_quote, of_payer).await;
            let is_done = ends == "COMPLETED";
            let reason = match ends {
                "FAILED" => [Some("QUOTE_EXECUTION_FAILED"), Some("TIMEOUT")],
                "REJECTED" => [None, Some("REJECTED_BY_PLATFORM")],
                _ => [None, None],
            };
            assert_eq!(why(&paid), reason, "{how}");
            assert_eq!(got["statusReason"].is_null(), ends == "COMPLETED", "{how}");
            assert_eq!(payer.balance().await, if is_done { 0 } else { 100_000 }, "{how}");
            let got = payee.client.balance(&payee.eur).await;
            assert_eq!(got, if is_done { 85_847 } else { 0 }, "{how}");
            for again in ["approve", "reject"] {
                let answer = payee.decide(again).await;
                answer.refused(409, "TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL");
            }
            server.pass(LOOKUP_MILLIS).await;
            server.verify();
        }
    }
}

#[tokio::test]
async fn a_decision_is_about_an_own_payment_that_waits() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let payee = Payee::on(&server.platform().await).await.with_webhook().await;
    let quote = payer.client.quote(&to_payee(&payer, &payee, 100_000).await).await;
    payer.client.execute(&quote).await.expect(200);
    let id = text(&payee.payment().await["id"]);
    let decide = async |client: &Client, id: &str, how: &str, body: Value| {
        client.post(&format!("/transactions/{id}/{how}"), &body).await
    };
    for how in ["approve", "reject"] {
        // The payer's platform cannot see the payment, and its own does not wait.
        let answer = decide(&payer.client, &id, how, json!({})).await;
        answer.refused(404, "TRANSACTION_NOT_FOUND");
        let own = text(&quote["transactionId"]);
        let answer = decide(&payer.client, &own, how, json!({})).await;
        answer.refused(409, "TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL");
        let answer = decide(&payee.client, "x", how, json!({})).await;
        answer.refused(404, "TRANSACTION_NOT_FOUND");
    }
    let wrong = json!({ "receiverCustomerInfo": { "SHOE_SIZE": "38" } });
    decide(&payee.client, &id, "approve", wrong).await.refused(400, "INVALID_INPUT");
    let wrong = json!({ "reason": 7 });
    decide(&payee.client, &id, "reject", wrong).await.refused(400, "INVALID_INPUT");
    // The clock decides, whether or not the timer was there first.
    server.clock.advance_millis(5_000);
    let answer = decide(&payee.client, &id, "approve", json!({})).await;
    answer.refused(409, "TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL");
    assert_eq!(payee.payment().await["status"], "FAILED");
    server.verify();
}

#[tokio::test]
async fn a_decision_needs_no_body_and_is_repeated() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let payee = Payee::on(&server.platform().await).await.with_webhook().await;
    let quote = payer.client.quote(&to_payee(&payer, &payee, 100_000).await).await;
    payer.client.execute(&quote).await.expect(200);
    let path = format!("/transactions/{}/approve", text(&payee.payment().await["id"]));
    let call = || crate::support::Call::default().key("once");
    let first = payee.client.send("POST", &path, call()).await;
    assert_eq!(first.expect(200)["status"], "COMPLETED");
    let again = payee.client.send("POST", &path, call()).await;
    assert_eq!((again.status, &again.bytes), (200, &first.bytes));
    assert_eq!(payee.client.balance(&payee.eur).await, 85_847);
    server.verify();
}

#[tokio::test]
async fn what_the_payers_platform_insists_on_is_said_with_the_approval() {
    let asked = json!([{ "name": "TAX_ID", "mandatory": true }]);
    for (said, ends, reason) in [
        (json!({ "TAX_ID": "DE1" }), "COMPLETED", None),
        (json!({ "EMAIL": "x@y.z" }), "FAILED", Some("MISSING_MANDATORY_PAYEE_DATA")),
    ] {
        let server = Server::new();
        let payer = Payer::with(&server, 100_000).await;
        asks(&payer.client, asked.clone()).await;
        let payee = Payee::on(&server.platform().await).await.with_webhook().await;
        let quote = payer.client.quote(&to_payee(&payer, &payee, 100_000).await).await;
        payer.client.execute(&quote).await.expect(200);
        let path = format!("/transactions/{}/approve", text(&payee.payment().await["id"]));
        let body = json!({ "receiverCustomerInfo": said });
        let got = payee.client.post(&path, &body).await.expect(200).clone();
        assert_eq!((&got["status"], got["failureReason"].as_str()), (&json!(ends), reason));
        let paid = payer.client.transaction_of(&quote).await;
        assert_eq!(paid["status"], ends);
        let known = if ends == "COMPLETED" { said } else { json!({}) };
        assert_eq!(paid["counterpartyInformation"], known);
        assert_eq!(payer.balance().await, if ends == "COMPLETED" { 0 } else { 100_000 });
        server.verify();
    }
}

#[tokio::test]
async fn a_payee_is_described_once_its_platform_agrees() {
    for (how, ends) in [("approve", "COMPLETED"), ("reject", "REJECTED")] {
        let server = Server::new();
        let payer = Payer::with(&server, 100_000).await;
        asks(&payer.client, json!([{ "name": "FULL_NAME", "mandatory": true }])).await;
        let payee = Payee::on(&server.platform().await).await.with_webhook().await;
        let quote = payer.client.quote(&to_payee(&payer, &payee, 100_000).await).await;
        let known =
            async || payer.client.transaction_of(&quote).await["counterpartyInformation"].clone();
        assert_eq!(known().await, json!({}));
        payer.client.execute(&quote).await.expect(200);
        assert_eq!(known().await, json!({}));
        assert_eq!(payee.decide(how).await.expect(200)["status"], ends);
        let path = format!("/customers/{}", payee.customer);
        let name = payee.client.get(&path).await.expect(200)["fullName"].clone();
        let shown = if how == "approve" { json!({ "FULL_NAME": name }) } else { json!({}) };
        assert_eq!(known().await, shown);
        server.verify();
    }
}

#[tokio::test]
async fn what_was_checked_about_the_payee_is_not_said_otherwise() {
    for (is_regulated, said) in [(true, "Acme"), (false, "Acme"), (true, " "), (false, "")] {
        let server = Server::new();
        let payer = Payer::with(&server, 100_000).await;
        asks(&payer.client, json!([{ "name": "FULL_NAME", "mandatory": true }])).await;
        let platform = server.platform_with(Mode::Sandbox, is_regulated).await;
        let payee = Payee::on(&platform).await.with_webhook().await;
        let mut body = to_payee(&payer, &payee, 100_000).await;
        body["destination"]["counterpartyInformation"] = json!({ "FULL_NAME": " " });
        let quote = payer.client.quote(&body).await;
        payer.client.execute(&quote).await.expect(200);
        let path = format!("/transactions/{}/approve", text(&payee.payment().await["id"]));
        let body = json!({ "receiverCustomerInfo": { "FULL_NAME": said } });
        assert_eq!(payee.client.post(&path, &body).await.expect(200)["status"], "COMPLETED");
        let path = format!("/customers/{}", payee.customer);
        let known = payee.client.get(&path).await.expect(200)["fullName"].clone();
        let shown = if is_regulated && said == "Acme" { json!(said) } else { known };
        let paid = payer.client.transaction_of(&quote).await;
        assert_eq!(paid["counterpartyInformation"]["FULL_NAME"], shown, "{said:?}");
        server.verify();
    }
}

#[tokio::test]
async fn what_either_side_knows_need_not_be_asked() {
    // The payer's platform insists on two facts and brings one; the other is known here.
    let field = |name: &str| json!({ "name": name, "mandatory": true });
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    asks(&payer.client, json!([field("TAX_ID"), field("POSTAL_ADDRESS")])).await;
    let payee = Payee::on(&server.platform().await).await;
    // The payee's platform would like to know who pays, but the payer may leave it out.
    asks(&payee.client, json!([{ "name": "FULL_NAME", "mandatory": false }])).await;
    let known = json!({
        "customerType": "INDIVIDUAL",
        "address":
            { "line1": "1 High Street", "city": "London", "postalCode": "N1", "country": "GB" },
    });
    let path = format!("/customers/{}", payee.customer);
    payee.client.patch(&path, &known).await.expect(200);
    let mut body = to_payee(&payer, &payee, 100_000).await;
    body["destination"]["counterpartyInformation"] = json!({ "TAX_ID": "DE1" });
    let quote = payer.client.quote(&body).await;
    payer.client.execute(&quote).await.expect(200);
    let paid = payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
    assert_eq!(
        paid["counterpartyInformation"],
        json!({ "TAX_ID": "DE1", "POSTAL_ADDRESS": "1 High Street, London, N1, GB" })
    );
    let sender = format!("/customers/{}", payer.customer);
    let name = payer.client.get(&sender).await.expect(200)["fullName"].clone();
    let got = payee.payment().await;
    assert_eq!(got["counterpartyInformation"], json!({ "FULL_NAME": name }));
    server.verify();
}

#[tokio::test]
async fn platforms_whose_clocks_differ_pay_each_other() {
    for is_payer in [true, false] {
        let server = Server::new();
        let payer = Payer::with(&server, 200_000).await;
        let payee = Payee::on(&server.platform().await).await;
        let moved = if is_payer { &payer.client } else { &payee.client };
        let body = json!({ "advanceBySeconds": 86_400 });
        moved.post("/sandbox/clock", &body).await.expect(200);
        let quote = payer.client.quote(&to_payee(&payer, &payee, 100_000).await).await;
        assert_eq!(payer.client.execute(&quote).await.expect(200)["status"], "COMPLETED");
        let paid = payer.client.transaction_of(&quote).await;
        let got = payee.payment().await;
        let (early, late) = (crate::support::START, "2025-10-14T09:00:00.000Z");
        let (of_payer, of_payee) = if is_payer { (late, early) } else { (early, late) };
        assert_eq!((&paid["settledAt"], &got["settledAt"]), (&json!(of_payer), &json!(of_payee)));
        assert_eq!(got["createdAt"], of_payee);
        server.verify();
        let payee = payee.with_webhook().await;
        let quote = payer.client.quote(&to_payee(&payer, &payee, 100_000).await).await;
        payer.client.execute(&quote).await.expect(200);
        server.verify();
        server.pass(5_000).await;
        assert_eq!(payee.payment().await["failureReason"], "PAYMENT_APPROVAL_TIMED_OUT");
        payer.client.stands_at(&quote, "FAILED", "FAILED").await;
        server.verify();
    }
}

#[tokio::test]
async fn a_payee_who_cannot_be_paid_any_more_is_not_paid() {
    let server = Server::new();
    let payer = Payer::with(&server, 200_000).await;
    let payee = Payee::on(&server.platform().await).await;
    let quote = payer.client.quote(&to_payee(&payer, &payee, 100_000).await).await;
    payee.client.set_kyc(&payee.customer, "REJECTED").await;
    payer.client.execute(&quote).await.refused(403, "USER_NOT_READY");
    payer.client.stands_at(&quote, "PENDING", "PENDING").await;
    payee.client.delete_customer(&payee.customer).await;
    payer.client.execute(&quote).await.refused(404, "UMA_NOT_FOUND");
    assert_eq!(payer.balance().await, 200_000);
    server.verify();
    // A platform that takes no euros any more, at once and for what was looked up before.
    let payee = Payee::on(&server.platform().await).await;
    let body = to_payee(&payer, &payee, 100_000).await;
    let quote = payer.client.quote(&body).await;
    payee.client.allow_only("EUR", &["OUTGOING"]).await;
    payer.client.execute(&quote).await.refused(403, "USER_NOT_READY");
    payer.client.post("/quotes", &body).await.refused(400, "INVALID_CURRENCY");
    assert_eq!(payer.balance().await, 200_000);
    server.verify();
    // Between the execution and the decision.
    let payee = Payee::on(&server.platform().await).await.with_webhook().await;
    let quote = payer.client.quote(&to_payee(&payer, &payee, 100_000).await).await;
    payer.client.execute(&quote).await.expect(200);
    payee.client.set_kyc(&payee.customer, "REJECTED").await;
    let got = payee.decide("approve").await.expect(200).clone();
    assert_eq!(
        (&got["status"], &got["failureReason"]),
        (&json!("FAILED"), &json!("OFFRAMP_FAILED"))
    );
    payer.client.stands_at(&quote, "FAILED", "FAILED").await;
    assert_eq!(payer.balance().await, 200_000);
    server.verify();
}

#[tokio::test]
async fn a_payment_within_this_server_survives_a_restart() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let payee = Payee::on(&server.platform().await).await.with_webhook().await;
    let quote = payer.client.quote(&to_payee(&payer, &payee, 100_000).await).await;
    payer.client.execute(&quote).await.expect(200);
    let server = server.restart();
    server.verify();
    server.pass(5_000).await;
    server.verify();
}
