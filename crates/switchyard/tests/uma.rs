//! Payments between institutions over the wire: the server against peers on the reference SDKs of
//! Python and JavaScript, in both directions, and against itself.
//!
//! The peers have no Lightning node, so payments with them end with an invoice that was checked on
//! both sides; those between two servers of ours are settled.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[cfg(feature = "ldk")]
mod channels;
mod peers;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testbed::receiver::{Answer as Decision, Receiver};

use crate::peers::{FUNDED, Ours, Peer, Report};

/// A peer's pay request is answered by then, whatever the platform does.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// Millisatoshi by which an invoice may differ from its own multiplier.
const ROUNDING_MSAT: i64 = 10;

#[expect(clippy::disallowed_methods, reason = "how long a peer waits is measured")]
fn now() -> Instant {
    Instant::now()
}

/// A payment of a peer: the amount is of US cents when the receiving side is locked, else of
/// millisatoshi.
fn paying(receiver: &str, locked: &str, amount: i64) -> Value {
    json!({
        "receiver": receiver,
        "locked": locked,
        "amount": amount,
        "currency": "USD",
        "comment": format!("{locked} {amount}"),
    })
}

/// `value` with other fields.
fn with(mut value: Value, fields: Value) -> Value {
    for (name, field) in fields.as_object().unwrap() {
        value[name] = field.clone();
    }
    value
}

/// The peers speak with each other, so what fails elsewhere is ours.
#[tokio::test]
async fn the_peers_pay_each_other() {
    let python = Peer::python().await;
    let (other, javascript) = (Peer::python().await, Peer::javascript(&python).await);
    for (payer, payee) in [(&python, &other), (&python, &javascript), (&javascript, &python)] {
        for (locked, amount, msat) in [("RECEIVING", 595, 5_950_000), ("SENDING", 77_000, 77_000)] {
            let order = paying(&payee.address("bo"), locked, amount);
            let report = payer.pay(&with(order, json!({ "travelRule": "by Bo" }))).await;
            report.paid();
            assert_eq!(report.0["invoice"]["msat"], msat);
            assert_eq!(payee.last_verified("pay_request").await["travelRule"], "by Bo");
        }
    }
}

#[tokio::test]
async fn a_python_peer_is_paid() {
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    peer.behave(json!({ "fee_msat": 250_000 })).await;
    is_paid(&ours, &peer, "EUR").await;
    let rule = peer.last_verified("pay_request").await["travelRule"].clone();
    assert!(rule.as_str().is_some_and(|rule| rule.contains("Alice Adams")), "{rule}");
    ours.verify();
}

#[tokio::test]
async fn a_javascript_peer_is_paid() {
    let (ours, helper) = (Ours::start().await, Peer::python().await);
    let peer = Peer::javascript(&helper).await;
    is_paid(&ours, &peer, "USD").await;
    ours.verify();
}

/// Quotes payments to a peer with either side locked, and compares what both have understood.
async fn is_paid(ours: &Ours, peer: &Peer, currency: &str) {
    let address = peer.address("bob");
    let found = ours.look_up(&address).await.expect(200);
    assert_eq!(found["receiverUmaAddress"], address);
    let codes = found["supportedCurrencies"].as_array().unwrap().iter();
    let codes: Vec<_> = codes.map(|it| it["currency"]["code"].as_str().unwrap()).collect();
    assert!(codes.contains(&currency), "{codes:?}");
    for (side, amount) in [("RECEIVING", 1_250), ("SENDING", 20_000)] {
        let before = peer.seen("pay_request").await.len();
        let quote = ours.quote((&address, currency), &found, (side, amount)).await.expect(201);
        // A peer that takes a fee is asked again for what then arrives.
        let first = &peer.seen("pay_request").await[before]["message"];
        let asked = first["amount"].as_str().unwrap();
        match side {
            "RECEIVING" => assert_eq!(asked, format!("1250.{currency}")),
            _ => assert!(asked.parse::<u64>().is_ok(), "{asked} are no millisatoshi"),
        }
        assert_eq!(first["convert"], currency);
        assert_eq!(first["payerData"]["identifier"], ours.address("alice"));
        let request = peer.last_verified("pay_request").await;
        let converted = &request["answer"]["converted"];
        assert_eq!(quote["totalReceivingAmount"], converted["amount"], "{quote} {converted}");
        assert_eq!(
            quote["rateDetails"]["counterpartyMultiplier"].as_f64(),
            converted["multiplier"].as_f64()
        );
        let locked =
            ["totalSendingAmount", "totalReceivingAmount"][usize::from(side == "RECEIVING")];
        assert_eq!(quote[locked], amount, "{quote}");
        assert_eq!(quote["status"], "PENDING");
        let path = format!("/transactions/{}", quote["transactionId"].as_str().unwrap());
        let transaction = ours.get(&path).await.expect(200);
        assert_eq!(transaction["receiverUmaAddress"], address);
        assert_eq!(transaction["senderUmaAddress"], ours.address("alice"));
    }
    assert_eq!(ours.balance().await, FUNDED, "a quote moves nothing");
}

#[tokio::test]
async fn a_peer_is_given_what_it_insists_on() {
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    let address = peer.address("bob");
    let asked = json!({ "name": true, "email": true, "birthDate": false });
    peer.behave(json!({ "payer_data": asked })).await;
    let found = ours.look_up(&address).await.expect(200);
    let field = |name: &str, mandatory: bool| json!({ "name": name, "mandatory": mandatory });
    let fields = found["requiredPayerDataFields"].as_array().unwrap();
    for expected in [field("FULL_NAME", true), field("EMAIL", true), field("BIRTH_DATE", false)] {
        assert!(fields.contains(&expected), "{expected} is not in {fields:?}");
    }
    assert_eq!(fields.len(), 3, "{fields:?}");
    let missing = ours.quote((&address, "USD"), &found, ("SENDING", 1_000)).await;
    let details = missing.refused(400, "MISSING_MANDATORY_USER_INFO");
    assert!(details["missingFields"].as_array().unwrap().contains(&json!("EMAIL")), "{details}");
    assert!(peer.seen("pay_request").await.is_empty(), "nothing is asked for in vain");
    let facts = json!({ "FULL_NAME": "Alice Adams", "EMAIL": "alice@example.com" });
    let locked = ("SENDING", 1_000);
    ours.quote_stating((&address, "USD"), &found, locked, &facts).await.expect(201);
    let data = peer.last_verified("pay_request").await["message"]["payerData"].clone();
    assert_eq!(
        (&data["name"], &data["email"]),
        (&json!("Alice Adams"), &json!("alice@example.com"))
    );
    ours.verify();
}

#[tokio::test]
async fn facts_about_the_payee_are_asked_for_and_shown() {
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    ours.demand(&[("FULL_NAME", true)]).await;
    let address = peer.address("bob");
    let found = ours.look_up(&address).await.expect(200);
    let quote = ours.quote((&address, "USD"), &found, ("SENDING", 1_000)).await.expect(201);
    let path = format!("/transactions/{}", quote["transactionId"].as_str().unwrap());
    let shown = ours.get(&path).await.expect(200)["counterpartyInformation"].clone();
    assert_eq!(shown["FULL_NAME"], "Bo Peer");
    // The peer does not have it.
    ours.demand(&[("TAX_ID", true)]).await;
    let refused = ours.quote((&address, "USD"), &found, ("SENDING", 1_000)).await;
    let details = refused.refused(400, "INVALID_PAYREQ_RESPONSE");
    assert_eq!(details["missingFields"], json!(["TAX_ID"]));
    ours.verify();
}

#[tokio::test]
async fn a_peer_of_an_older_version_is_paid() {
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    peer.behave(json!({ "majors": [0] })).await;
    let address = peer.address("bob");
    let found = ours.look_up(&address).await.expect(200);
    let quote = ours.quote((&address, "USD"), &found, ("RECEIVING", 1_250)).await.expect(201);
    assert_eq!(quote["totalReceivingAmount"], 1_250);
    let request = peer.last_verified("pay_request").await["message"].clone();
    assert_eq!((&request["currency"], &request["amount"]), (&json!("USD"), &json!(1_250)));
    // The old form cannot fix what is paid, so the amount is fixed on the other side.
    let quote = ours.quote((&address, "USD"), &found, ("SENDING", 10_000)).await.expect(201);
    assert_eq!(quote["totalSendingAmount"], 10_000);
    ours.verify();
}

#[tokio::test]
async fn a_python_peer_pays() {
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    pays(&ours, &peer, "bo", "Bo Peer").await;
    ours.verify();
}

#[tokio::test]
async fn a_javascript_peer_pays() {
    let (ours, helper) = (Ours::start().await, Peer::python().await);
    let peer = Peer::javascript(&helper).await;
    pays(&ours, &peer, "jo", "Jo Peer").await;
    ours.verify();
}

/// Lets a peer pay Alice with either side locked, once with a version that we do not speak first.
async fn pays(ours: &Ours, peer: &Peer, user: &str, name: &str) {
    ours.demand(&[("FULL_NAME", true), ("BIRTH_DATE", false)]).await;
    for (locked, amount, version) in [
        ("RECEIVING", 1_250, Value::Null),
        ("SENDING", 40_000_000, Value::Null),
        ("RECEIVING", 77, json!("9.0")),
    ] {
        let more = json!({ "travelRule": r#"{"originator":"x"}"#, "version": version });
        let report = peer.pay(&with(paying(&ours.address("alice"), locked, amount), more)).await;
        let converted = &report.paid()["converted"];
        check_invoice(&report, locked, amount);
        let payment = ours.payment(&format!("{locked} {amount}")).await;
        assert_eq!(payment["status"], "PROCESSING", "it waits for its money: {payment}");
        assert_eq!(payment["senderUmaAddress"], peer.address(user));
        assert_eq!(payment["receiverUmaAddress"], ours.address("alice"));
        assert_eq!(payment["receivedAmount"]["amount"], converted["amount"]);
        let about = &payment["counterpartyInformation"];
        assert_eq!(about["FULL_NAME"], name);
        assert!(!about.to_string().contains("originator"), "the travel rule stays apart: {about}");
    }
    assert_eq!(ours.balance().await, FUNDED, "no money has come");
}

/// Checks that an invoice is over what the answer says: `amount * multiplier + fee`.
fn check_invoice(report: &Report, locked: &str, amount: i64) {
    let (invoice, converted) = (&report.0["invoice"], &report.paid()["converted"]);
    let number = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{value}: {report:?}"));
    let msat = number(&invoice["msat"]);
    let multiplier = converted["multiplier"].as_f64().unwrap();
    let arrives = number(&converted["amount"]);
    let owed = arrives as f64 * multiplier + number(&converted["fee"]) as f64;
    let difference = (msat as f64 - owed).abs();
    // A locked payment in millisatoshi leaves less than one unit over.
    let (exact, tolerance) = match locked {
        "RECEIVING" => (arrives, ROUNDING_MSAT as f64),
        _ => (msat, multiplier + ROUNDING_MSAT as f64),
    };
    assert_eq!(exact, amount, "{report:?}");
    assert!(difference <= tolerance, "the invoice is {difference} msat off: {report:?}");
    assert_eq!((&invoice["currency"], &invoice["hasExpired"]), (&json!("bcrt"), &json!(false)));
    assert_eq!(converted["currencyCode"], "USD");
    assert_eq!(converted["decimals"], 2);
    let node = &report.paid()["payeeData"]["compliance"]["nodePubKey"];
    assert!(node.is_null() || *node == invoice["payee"], "{report:?}");
}

#[tokio::test]
async fn a_peer_gets_the_facts_that_it_asks_for() {
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    let pay = async |demands: Value| {
        let order = paying(&ours.address("alice"), "RECEIVING", 500);
        peer.pay(&with(order, json!({ "payeeData": demands }))).await
    };
    let report = pay(json!({ "name": true, "taxId": false })).await;
    assert_eq!(report.paid()["payeeData"]["name"], "Alice Adams");
    assert_eq!(report.paid()["payeeData"]["identifier"], ours.address("alice"));
    let report = pay(json!({ "taxId": true })).await;
    report.refused("payRequests", 400, "MISSING_MANDATORY_PAYEE_DATA");
    let report = pay(json!({ "shoeSize": true })).await;
    report.refused("payRequests", 501, "UNRECOGNIZED_MANDATORY_PAYEE_DATA_KEY");
    ours.verify();
}

#[tokio::test]
async fn the_platform_decides_within_the_pay_request() {
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    let receiver = Receiver::start().unwrap();
    ours.set_webhook(&receiver.url("/hooks")).await;
    let mut amount = 100;
    let mut check = async |decision, refusal, status: &str, reason: Option<&str>| {
        amount += 1;
        receiver.answer(decision);
        let began = now();
        let report = peer.pay(&paying(&ours.address("alice"), "RECEIVING", amount)).await;
        assert!(began.elapsed() < ANSWERED_WITHIN, "{status} took {:?}", began.elapsed());
        match refusal {
            None => assert_eq!(report.paid()["converted"]["amount"], amount),
            Some((status, code)) => report.refused("payRequests", status, code),
        }
        let payment = ours.payment(&format!("RECEIVING {amount}")).await;
        let stands_at = (payment["status"].as_str(), payment["failureReason"].as_str());
        assert_eq!(stands_at, (Some(status), reason), "{payment}");
    };
    check(Decision::status(200), None, "PROCESSING", None).await;
    let rejected = Some((400, "SENDER_NOT_ACCEPTED"));
    check(Decision::status(403), rejected, "REJECTED", None).await;
    let incomplete = Some((400, "MISSING_MANDATORY_PAYER_DATA"));
    let asks_for_more = Decision::status(422).body(r#"{"requiredFields":["TAX_ID"]}"#);
    let reason = Some("MISSING_MANDATORY_PAYEE_DATA");
    check(asks_for_more, incomplete, "FAILED", reason).await;
    let undecided = Some((500, "INTERNAL_ERROR"));
    let reason = Some("PAYMENT_APPROVAL_WEBHOOK_ERROR");
    check(Decision::status(500), undecided, "FAILED", reason).await;
    let reason = Some("PAYMENT_APPROVAL_TIMED_OUT");
    check(Decision::status(200).held(), undecided, "FAILED", reason).await;
    receiver.release();
    assert_eq!(ours.balance().await, FUNDED, "no money has come");
    ours.verify();
}

/// Checks that of equal requests at once one was taken.
fn once(report: &Report, step: &str) {
    let answers = report.0[step].as_array().unwrap();
    let (taken, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|it| it["status"] == 200);
    assert_eq!(taken.len(), 1, "{answers:?}");
    for answer in refused {
        assert_eq!(answer["body"]["code"], "INVALID_NONCE", "{answer}");
    }
}

/// Each row is a misbehaviour of the payer's institution and our answer to it.
#[tokio::test]
async fn lookups_that_are_wrong_are_refused() {
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    let alice = with(paying(&ours.address("alice"), "RECEIVING", 5), json!({ "lookupOnly": true }));
    // As long as its keys cannot be had, none are kept.
    for fault in ["error", "html", "not_json", "redirect", "closed", "oversized", "hang"] {
        println!("fault of the keys: {fault}");
        peer.behave(json!({ "keys": fault })).await;
        let report = peer.pay(&alice).await;
        report.refused("lookups", 424, "COUNTERPARTY_PUBKEY_FETCH_ERROR");
    }
    assert!(peer.seen("followed_redirect").await.is_empty());
    peer.behave(json!({})).await;
    for (fault, status, code) in [
        ("replayed", 400, "INVALID_NONCE"),
        ("stale", 400, "INVALID_TIMESTAMP"),
        ("future", 400, "INVALID_TIMESTAMP"),
        ("wrong_signature", 401, "INVALID_SIGNATURE"),
        ("foreign_signature", 401, "INVALID_SIGNATURE"),
        ("missing_parameter", 400, "MISSING_REQUIRED_UMA_PARAMETERS"),
        ("malformed_version", 400, "PARSE_LNURLP_REQUEST_ERROR"),
        ("plain", 403, "NON_UMA_LNURL_NOT_SUPPORTED"),
        ("keys_elsewhere", 424, "COUNTERPARTY_PUBKEY_FETCH_ERROR"),
    ] {
        println!("fault: {fault}");
        let report = peer.pay(&with(alice.clone(), json!({ "lookupFault": fault }))).await;
        report.refused("lookups", status, code);
    }
    let at_once = with(alice.clone(), json!({ "lookupFault": "replayed_at_once" }));
    once(&peer.pay(&at_once).await, "lookups");
    let unknown = paying(&ours.address("unknown"), "RECEIVING", 5);
    peer.pay(&unknown).await.refused("lookups", 404, "USER_NOT_FOUND");
    let report = peer.pay(&with(alice.clone(), json!({ "version": "9.0" }))).await;
    let first = &report.0["lookups"][0];
    assert_eq!(
        (&first["status"], &first["body"]["code"]),
        (&json!(412), &json!("UNSUPPORTED_UMA_VERSION"))
    );
    assert_eq!(first["body"]["supportedMajorVersions"], json!([1, 0]));
    assert_eq!(report.last("lookups").0, 200, "it is asked again with one that we speak");
    // What was refused is no harm to what is right.
    assert_eq!(peer.pay(&alice).await.0["lookupVerified"], "OK");
    ours.verify();
}

/// Each row is a misbehaviour of the payer's institution and our answer to it.
#[tokio::test]
async fn pay_requests_that_are_wrong_are_refused() {
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    ours.demand(&[("FULL_NAME", true)]).await;
    let good = paying(&ours.address("alice"), "RECEIVING", 5);
    for (fault, status, code) in [
        ("replayed", 400, "INVALID_NONCE"),
        ("stale", 400, "INVALID_TIMESTAMP"),
        ("future", 400, "INVALID_TIMESTAMP"),
        ("wrong_signature", 401, "INVALID_SIGNATURE"),
        ("foreign_signature", 401, "INVALID_SIGNATURE"),
        ("unsigned", 400, "MISSING_MANDATORY_PAYER_DATA"),
        ("not_json", 400, "PARSE_PAYREQ_REQUEST_ERROR"),
        ("two_dots", 400, "PARSE_PAYREQ_REQUEST_ERROR"),
        ("negative_amount", 400, "PARSE_PAYREQ_REQUEST_ERROR"),
        ("other_currency", 400, "INVALID_CURRENCY"),
        ("unknown_currency", 400, "INVALID_CURRENCY"),
        ("too_much", 400, "AMOUNT_OUT_OF_RANGE"),
        ("other_payer", 400, "SENDER_NOT_ACCEPTED"),
        ("unknown_payee_data", 501, "UNRECOGNIZED_MANDATORY_PAYEE_DATA_KEY"),
    ] {
        println!("fault: {fault}");
        let wrong = with(good.clone(), json!({ "payRequestFault": fault, "comment": fault }));
        peer.pay(&wrong).await.refused("payRequests", status, code);
        // The first of two equal requests is good.
        assert_eq!(ours.waiting(fault).await, usize::from(fault == "replayed"), "{fault}");
    }
    let at_once = json!({ "payRequestFault": "replayed_at_once", "comment": "at once" });
    once(&peer.pay(&with(good.clone(), at_once)).await, "payRequests");
    assert_eq!(ours.waiting("at once").await, 1);
    let silent = with(good.clone(), json!({ "payerData": {} }));
    let report = peer.pay(&silent).await;
    report.refused("payRequests", 400, "MISSING_MANDATORY_PAYER_DATA");
    let (start, _) = report.callback().rsplit_once('/').unwrap();
    let made_up = with(good.clone(), json!({ "callback": format!("{start}/00ff") }));
    peer.pay(&made_up).await.refused("payRequests", 404, "REQUEST_NOT_FOUND");
    peer.pay(&good).await.paid();
    assert_eq!(ours.balance().await, FUNDED, "no money has come");
    ours.verify();
}

/// Each row is a misbehaviour of the payee's institution and what the client of ours is answered.
#[tokio::test]
async fn wrong_answers_to_lookups_are_refused() {
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    let address = peer.address("bob");
    // As long as its keys cannot be had, none are kept.
    for fault in ["error", "html", "not_json", "redirect", "closed", "oversized", "hang"] {
        println!("fault of the keys: {fault}");
        peer.behave(json!({ "keys": fault })).await;
        ours.look_up(&address).await.refused(424, "COUNTERPARTY_PUBKEY_FETCH_ERROR");
    }
    for (fault, status, code) in [
        ("hang", 424, "LNURLP_REQUEST_FAILED"),
        ("closed", 424, "LNURLP_REQUEST_FAILED"),
        ("error", 424, "LNURLP_REQUEST_FAILED"),
        ("redirect", 424, "LNURLP_REQUEST_FAILED"),
        ("oversized", 400, "PARSE_LNURLP_RESPONSE_ERROR"),
        ("html", 400, "PARSE_LNURLP_RESPONSE_ERROR"),
        ("not_json", 400, "PARSE_LNURLP_RESPONSE_ERROR"),
        ("unsigned", 400, "PARSE_LNURLP_RESPONSE_ERROR"),
        ("no_callback", 400, "PARSE_LNURLP_RESPONSE_ERROR"),
        ("min_over_max", 400, "INVALID_CURRENCY"),
        ("negative_rate", 400, "INVALID_CURRENCY"),
        ("wrong_signature", 424, "LNURLP_REQUEST_FAILED"),
        ("foreign_signature", 424, "LNURLP_REQUEST_FAILED"),
        ("stale", 424, "LNURLP_REQUEST_FAILED"),
        ("future", 424, "LNURLP_REQUEST_FAILED"),
        ("unknown_user", 404, "UMA_NOT_FOUND"),
    ] {
        println!("fault: {fault}");
        peer.behave(json!({ "lookup": fault })).await;
        let details = ours.look_up(&address).await.refused(status, code);
        assert_eq!(details["umaAddress"], address, "{fault}");
    }
    assert!(peer.seen("followed_redirect").await.is_empty());
    // The first of two equal answers is good.
    peer.behave(json!({ "lookup": "replayed" })).await;
    ours.look_up(&address).await.expect(200);
    ours.look_up(&address).await.refused(424, "LNURLP_REQUEST_FAILED");
    peer.behave(json!({ "majors": [7] })).await;
    ours.look_up(&address).await.refused(424, "NO_COMPATIBLE_UMA_VERSION");
    peer.behave(json!({})).await;
    ours.look_up(&address).await.expect(200);
    ours.verify();
}

/// Each row is a misbehaviour of the payee's institution and what the client of ours is answered.
#[tokio::test]
async fn wrong_answers_to_pay_requests_are_refused() {
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    let address = peer.address("bob");
    let found = ours.look_up(&address).await.expect(200);
    let quote = async |side: &str| ours.quote((&address, "USD"), &found, (side, 1_000)).await;
    for (fault, status, code) in [
        ("hang", 424, "PAYREQ_REQUEST_FAILED"),
        ("closed", 424, "PAYREQ_REQUEST_FAILED"),
        ("error", 424, "PAYREQ_REQUEST_FAILED"),
        ("redirect", 424, "PAYREQ_REQUEST_FAILED"),
        ("oversized", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("html", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("not_json", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("unsigned", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("no_invoice", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("other_amount", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("other_network", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("expired_invoice", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("other_currency", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("other_decimals", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("other_payee", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("rate_x10", 400, "INVALID_PAYREQ_RESPONSE"),
        ("negative_fee", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("stale", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("future", 400, "PARSE_PAYREQ_RESPONSE_ERROR"),
        ("wrong_signature", 424, "PAYREQ_REQUEST_FAILED"),
        ("foreign_signature", 424, "PAYREQ_REQUEST_FAILED"),
    ] {
        println!("fault: {fault}");
        peer.behave(json!({ "pay_request": fault })).await;
        for side in ["SENDING", "RECEIVING"] {
            let details = quote(side).await.refused(status, code);
            assert_eq!(details["umaAddress"], address, "{fault}");
            assert_eq!(ours.balance().await, FUNDED, "{fault}");
        }
    }
    assert!(peer.seen("followed_redirect").await.is_empty());
    // The first of two equal answers is good.
    peer.behave(json!({ "pay_request": "replayed" })).await;
    quote("RECEIVING").await.expect(201);
    quote("RECEIVING").await.refused(424, "PAYREQ_REQUEST_FAILED");
    peer.behave(json!({})).await;
    quote("SENDING").await.expect(201);
    assert_eq!(ours.get("/quotes").await.expect(200)["totalCount"], 2);
    peer.behave(json!({ "lookup": "callback_elsewhere" })).await;
    ours.look_up(&address).await.refused(400, "PARSE_LNURLP_RESPONSE_ERROR");
    ours.verify();
}

/// Keys that were kept may be outdated before their time, and the peer's new ones are fetched.
#[tokio::test]
async fn a_peer_with_new_keys_is_believed() {
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    let address = peer.address("bob");
    ours.look_up(&address).await.expect(200);
    peer.rotate_keys().await;
    let found = ours.look_up(&address).await.expect(200);
    ours.quote((&address, "USD"), &found, ("RECEIVING", 1_000)).await.expect(201);
    peer.rotate_keys().await;
    peer.pay(&paying(&ours.address("alice"), "RECEIVING", 5)).await.paid();
    ours.verify();
}

#[tokio::test]
async fn the_documents_of_the_domain_outlive_a_restart() {
    let (mut ours, peer) = (Ours::start().await, Peer::python().await);
    let configuration = ours.document("/.well-known/uma-configuration").await;
    assert_eq!(configuration["uma_major_versions"], json!([0, 1]));
    assert!(configuration["name"].is_string());
    let keys = ours.document("/.well-known/lnurlpubkey").await;
    peer.pay(&paying(&ours.address("alice"), "RECEIVING", 5)).await.paid();
    ours.restart_after(&[]).await;
    let after = ours.document("/.well-known/lnurlpubkey").await;
    for name in ["signingPubKey", "encryptionPubKey"] {
        assert!(keys[name].is_string(), "{keys}");
        assert_eq!(after[name], keys[name]);
    }
    // The peer has kept the keys, and both remember the nonces.
    peer.pay(&paying(&ours.address("alice"), "RECEIVING", 6)).await.paid();
    ours.verify();
}

#[tokio::test]
async fn a_blocked_institution_is_not_dealt_with() {
    let (mut ours, peer) = (Ours::start().await, Peer::python().await);
    let (address, order) = (peer.address("bob"), paying(&ours.address("alice"), "RECEIVING", 5));
    let found = ours.look_up(&address).await.expect(200);
    let block: &[&str] = &["uma", "block", &peer.domain];
    let printed = ours.restart_after(&[block, &["uma", "peers", "--json"]]).await;
    let listed: Value = serde_json::from_str(&printed[1]).unwrap();
    let listed = &listed["peers"][0];
    assert_eq!((&listed["domain"], &listed["rule"]), (&json!(peer.domain), &json!("BLOCKED")));
    assert_eq!(
        (&listed["last"]["request"], &listed["last"]["outcome"]),
        (&json!("LOOKUP"), &json!("OK"))
    );
    ours.look_up(&address).await.refused(403, "COUNTERPARTY_NOT_ALLOWED");
    let quote = ours.quote((&address, "USD"), &found, ("SENDING", 1_000)).await;
    quote.refused(403, "COUNTERPARTY_NOT_ALLOWED");
    peer.pay(&order).await.refused("lookups", 403, "COUNTERPARTY_NOT_ALLOWED");
    let domain = peer.domain.as_str();
    let (allow, forget) = (["uma", "allow", domain], ["uma", "forget", domain]);
    let printed = ours.restart_after(&[&allow, &forget]).await;
    assert!(printed[1].contains(&format!("keys of {domain}")), "{printed:?}");
    ours.look_up(&address).await.expect(200);
    peer.pay(&order).await.paid();
    ours.verify();
}

#[tokio::test]
async fn a_post_transaction_callback_is_taken() {
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    let report = peer.pay(&paying(&ours.address("alice"), "RECEIVING", 5)).await;
    let url = report.paid()["payeeData"]["compliance"]["utxoCallback"].as_str().unwrap();
    let answer = peer.post_transaction(url).await;
    assert_eq!(answer["status"], 200, "{answer}");
    let made_up = format!("{}/00ff", url.rsplit_once('/').unwrap().0);
    let answer = peer.post_transaction(&made_up).await;
    assert_eq!(answer["body"]["code"], "REQUEST_NOT_FOUND", "{answer}");
    ours.verify();
}

/// The peers have no Lightning node and do not settle as our servers do.
#[tokio::test]
async fn a_peer_that_does_not_settle_holds_no_money() {
    let (ours, python) = (Ours::start().await, Peer::python().await);
    let javascript = Peer::javascript(&python).await;
    for peer in [&python, &javascript] {
        let address = peer.address("bob");
        let found = ours.look_up(&address).await.expect(200);
        let quote = ours.quote((&address, "USD"), &found, ("SENDING", 1_000)).await.expect(201);
        let execute = format!("/quotes/{}/execute", quote["id"].as_str().unwrap());
        ours.post(&execute, &json!({})).await.expect(200);
        let payment = ours.ended(&quote["transactionId"]).await;
        assert_eq!(payment["status"], "FAILED", "{payment}");
        assert!(payment["statusReason"]["code"].is_string(), "{payment}");
        assert_eq!(ours.balance().await, FUNDED);
    }
    let notified = python.wait_for("post_transaction").await;
    assert_eq!(notified["message"]["transactionStatus"], "FAILED", "{notified}");
    ours.verify();
}

/// A peer whose settle requests hang holds up its own payments only.
#[tokio::test]
async fn a_peer_that_hangs_holds_up_no_bank_transfer() {
    // More than are asked about at a time.
    const HANGING: i64 = 12;
    const TRANSFERS: i64 = 100;
    // A settle request is given up after nine seconds.
    const WITHIN: Duration = Duration::from_secs(4);
    let (ours, peer) = (Ours::start().await, Peer::python().await);
    peer.behave(json!({ "settle": "hang" })).await;
    let address = peer.address("bob");
    let found = ours.look_up(&address).await.expect(200);
    let mut hanging = Vec::new();
    for _ in 0..HANGING {
        let quote = ours.quote((&address, "USD"), &found, ("SENDING", 1_000)).await.expect(201);
        hanging.push(quote);
    }
    let bank = ours.bank().await;
    let began = now();
    for quote in &hanging {
        let execute = format!("/quotes/{}/execute", quote["id"].as_str().unwrap());
        ours.post(&execute, &json!({})).await.expect(200);
    }
    let mut transfers = Vec::new();
    for _ in 0..TRANSFERS {
        transfers.push(ours.pay_out(&bank, 100).await.expect(201)["id"].clone());
    }
    for transfer in &transfers {
        assert_eq!(ours.ended(transfer).await["status"], "COMPLETED");
    }
    assert!(began.elapsed() < WITHIN, "bank transfers took {:?}", began.elapsed());
    for quote in &hanging {
        let path = format!("/transactions/{}", quote["transactionId"].as_str().unwrap());
        let payment = ours.get(&path).await.expect(200);
        assert_eq!(payment["status"], "PROCESSING", "{payment}");
    }
    ours.verify();
}

#[tokio::test]
async fn two_servers_pay_each_other() {
    pay_each_other([Ours::start().await, Ours::start().await]).await;
}

/// Pays both ways with either side locked, until the books of both servers agree.
async fn pay_each_other(servers: [Ours; 2]) {
    for server in &servers {
        server.demand(&[("FULL_NAME", true)]).await;
    }
    let mut balances = [FUNDED; 2];
    for (payer, payee) in [(0, 1), (1, 0)] {
        for locked in [("SENDING", 10_000), ("RECEIVING", 2_500)] {
            let (sent, arrived) = is_settled(&servers[payer], &servers[payee], locked).await;
            balances[payer] -= sent;
            balances[payee] += arrived;
        }
    }
    for (server, balance) in servers.into_iter().zip(balances) {
        assert_eq!(server.balance().await, balance);
        server.verify();
    }
}

/// Pays from one server to the other until both have completed it: what was sent, and what has
/// arrived.
async fn is_settled(payer: &Ours, payee: &Ours, locked: (&str, i64)) -> (i64, i64) {
    let (from, to) = (payer.address("alice"), payee.address("alice"));
    let found = payer.look_up(&to).await.expect(200);
    let facts = json!({ "FULL_NAME": "Alice Adams" });
    let quote = payer.quote_stating((&to, "USD"), &found, locked, &facts).await.expect(201);
    let execute = format!("/quotes/{}/execute", quote["id"].as_str().unwrap());
    payer.post(&execute, &json!({})).await.expect(200);
    let outgoing = payer.ended(&quote["transactionId"]).await;
    let amount = &quote["totalReceivingAmount"];
    let path = format!("/transactions?type=INCOMING&customerId={}", payee.customer);
    let page = payee.get(&path).await.expect(200);
    let incoming = page["data"].as_array().unwrap().iter().find(|payment| {
        payment["senderUmaAddress"] == from && payment["receivedAmount"]["amount"] == *amount
    });
    let incoming = payee.ended(&incoming.unwrap_or_else(|| panic!("not in {page}"))["id"]).await;
    for payment in [&outgoing, &incoming] {
        assert_eq!(payment["status"], "COMPLETED", "{payment}");
        assert_eq!(payment["senderUmaAddress"], from);
        assert_eq!(payment["receiverUmaAddress"], to);
        assert_eq!(payment["counterpartyInformation"]["FULL_NAME"], "Alice Adams", "{payment}");
        assert_eq!(payment["description"], "for lunch", "{payment}");
    }
    (quote["totalSendingAmount"].as_i64().unwrap(), amount.as_i64().unwrap())
}
