//! The call that asks a platform about an incoming payment, against a real receiver (contract 7.3;
//! reliability 5.3).

use domain::approval::Approval;
use domain::id::TransactionId;
use serde_json::{Value, json};
use service::webhooks::dispatch::Dispatcher;
use service::{Error, approvals};
use testbed::receiver::{Answer, Receiver};
use tokio::task::JoinHandle;

use crate::concurrency::leave;
use crate::deliveries::deliver;
use crate::pay::Payer;
use crate::support::{Call, Client, Server, text};
use crate::uma::{Payee, asks, to_payee};
use crate::webhooks::{is_ecdsa, is_standard};

/// What a payer's platform asks about the payee.
const TAX_ID: [&str; 1] = ["TAX_ID"];

/// A server on which a customer of one platform pays one of another, whose platform is asked.
struct Asking {
    server: Server,
    payer: Payer,
    payee: Payee,
    receiver: Receiver,
}

impl Asking {
    /// The payer's platform insists on these facts about the payee.
    async fn new(mandatory: &[&str]) -> Self {
        let server = Server::new();
        let payer = Payer::with(&server, 1_000_000).await;
        let field = |name: &&str| json!({ "name": name, "mandatory": true });
        let mut fields: Vec<_> = mandatory.iter().map(field).collect();
        // Known and optional fields are no reason to refuse.
        fields.push(json!({ "name": "FULL_NAME", "mandatory": true }));
        fields.push(json!({ "name": "EMAIL", "mandatory": false }));
        asks(&payer.client, json!(fields)).await;
        let payee = Payee::on(&server.platform().await).await;
        let receiver = Receiver::start().expect("a receiver");
        set_endpoint(&payee.client, &receiver.url("/approve")).await;
        Self { server, payer, payee, receiver }
    }

    /// Begins a payment: the transactions of the payer and of the payee.
    async fn pay(&self) -> (Value, Value) {
        let body = to_payee(&self.payer, &self.payee, 1_000).await;
        let quote = self.payer.client.quote(&body).await;
        self.payer.client.execute(&quote).await.expect(200);
        let payment = self.payee.payment().await;
        assert_eq!(payment["status"], "PENDING");
        (self.payer.client.transaction_of(&quote).await, payment)
    }

    /// Asks the platform, in a task of its own.
    fn ask_aside(&self) -> JoinHandle<()> {
        let app = self.server.app.clone();
        tokio::spawn(async move {
            let request = app.store().approval_requests().next().await;
            approvals::send(&app, request).await;
        })
    }

    /// Asks the platform and waits for what comes of it.
    async fn ask(&self) {
        self.ask_aside().await.expect("it was asked");
    }

    async fn decide(&self, payment: &Value, how: &str) -> crate::support::Answer {
        let path = format!("/transactions/{}/{how}", text(&payment["id"]));
        self.payee.client.post(&path, &json!({})).await
    }

    /// Checks how a payment stands on the payee's side, and gives it.
    async fn stands_at(&self, payment: &Value, status: &str, reason: Option<&str>) -> Value {
        let shown = self.payee.client.transaction(&payment["id"]).await;
        let said = (shown["status"].as_str(), shown["failureReason"].as_str());
        assert_eq!(said, (Some(status), reason), "{shown}");
        shown
    }

    /// What the platform said besides its decision.
    async fn approval(&self, payment: &Value) -> Approval {
        let id = TransactionId::parse(&text(&payment["id"])).expect("an id");
        let found = self.server.app.store().read(move |view| view.get::<Approval>(&id)).await;
        let found = found.map_err(Error::Store).expect("a read").expect("an approval");
        Approval::clone(&found)
    }
}

async fn set_endpoint(client: &Client, url: &str) {
    client.patch("/config", &json!({ "webhookEndpoint": url })).await.expect(200);
}

#[tokio::test]
async fn the_request_is_the_signed_event_of_the_payment() {
    let asking = Asking::new(&TAX_ID).await;
    let (_, payment) = asking.pay().await;
    asking.ask().await;
    let received = asking.receiver.take();
    let [received] = received.as_slice() else { panic!("{received:?}") };
    assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/approve"));
    assert_eq!(received.header("content-type"), "application/json");
    let keys = asking.payee.client.get("/webhooks/keys").await.expect(200).clone();
    assert!(is_standard(received, &text(&keys["secret"])));
    assert!(is_ecdsa(received, &text(&keys["publicKey"]), "s"));
    let body: Value = serde_json::from_slice(&received.body).expect("JSON");
    assert_eq!(received.header("webhook-id"), body["id"]);
    assert_eq!(body["type"], "INCOMING_PAYMENT");
    let mut data = payment.clone();
    // Its full name is known here; the e-mail address is not, but it is optional.
    data["requestedReceiverCustomerInfoFields"] = json!([
        { "name": "TAX_ID", "mandatory": true },
        { "name": "EMAIL", "mandatory": false },
    ]);
    assert_eq!(body["data"], data);
    // The same bytes are the event that was committed.
    assert_eq!(asking.server.notified(&payment["id"]).await[0], data);
    // And it is in the log of deliveries, which has attempted nothing else so far.
    let path = format!("/webhooks/deliveries?resourceId={}", text(&payment["id"]));
    let log = asking.payee.client.get(&path).await.expect(200)["data"].clone();
    let (sent, waiting): (Vec<_>, Vec<_>) =
        log.as_array().expect("deliveries").iter().partition(|it| it["eventId"] == body["id"]);
    let [delivery] = sent.as_slice() else { panic!("{log}") };
    assert_eq!(delivery["status"], "DELIVERED");
    assert!(waiting.iter().all(|it| it["status"] == "PENDING" && it["attempts"] == json!([])));
    assert_eq!(delivery["attempts"][0]["responseStatus"], 200);
    // The deliveries leave it alone.
    deliver(&asking.server, &mut Dispatcher::new(asking.server.app.clone())).await;
    let again = asking.receiver.take();
    assert!(again.iter().all(|it| it.header("webhook-id") != body["id"]), "{again:?}");
    asking.server.verify();
}

/// The deliveries about a payment that were superseded.
async fn superseded(asking: &Asking, payment: &Value) -> Vec<Value> {
    let path = format!("/webhooks/deliveries?resourceId={}", text(&payment["id"]));
    let log = asking.payee.client.get(&path).await.expect(200)["data"].clone();
    let log = log.as_array().expect("deliveries").iter();
    log.filter(|it| it["status"] == "SUPERSEDED").cloned().collect()
}

/// There is nothing to ask any more: it was not lost, and nothing is wrong with the endpoint.
#[tokio::test]
async fn a_request_whose_payment_was_decided_before_it_was_sent_is_superseded() {
    let asking = Asking::new(&[]).await;
    let (_, payment) = asking.pay().await;
    asking.decide(&payment, "approve").await.expect(200);
    assert_eq!(superseded(&asking, &payment).await, [Value::Null; 0]);
    asking.ask().await;
    let approved = superseded(&asking, &payment).await;
    assert_eq!((approved.len(), &approved[0]["attempts"]), (1, &json!([])));

    // A server has died before it could send the request, and the deadline came.
    let lost = Asking::new(&[]).await;
    let (_, payment) = lost.pay().await;
    lost.server.pass(61_000).await;
    deliver(&lost.server, &mut Dispatcher::new(lost.server.app.clone())).await;
    let requests = superseded(&lost, &payment).await;
    assert_eq!((requests.len(), &requests[0]["attempts"]), (1, &json!([])));
    let dead = lost.payee.client.get("/webhooks/deliveries?status=DEAD").await;
    assert_eq!(dead.expect(200)["data"], json!([]));
    let all = lost.payee.client.get("/webhooks/deliveries?status=SUPERSEDED").await;
    assert_eq!(all.expect(200)["data"], json!(requests));
    // Asked for, it is sent nevertheless, as an event like any other.
    let path = format!("/webhooks/deliveries/{}/retry", text(&requests[0]["id"]));
    lost.payee.client.post(&path, &json!({})).await.expect(200);
    deliver(&lost.server, &mut Dispatcher::new(lost.server.app.clone())).await;
    assert_eq!(superseded(&lost, &payment).await, [Value::Null; 0]);
    asking.server.verify();
    lost.server.verify();
}

/// What becomes of a payment whose platform gives this answer, where the payer's insists on these
/// facts. Gives the payment of the payer.
async fn check(
    answer: Answer,
    mandatory: &[&str],
    status: &str,
    reason: Option<&str>,
) -> (Asking, Value, Value) {
    let asking = Asking::new(mandatory).await;
    asking.receiver.answer(answer);
    let (outgoing, payment) = asking.pay().await;
    asking.ask().await;
    let payment = asking.stands_at(&payment, status, reason).await;
    let got = asking.payee.client.balance(&asking.payee.eur).await;
    assert_eq!(got > 0, status == "COMPLETED");
    let paid = asking.payer.client.transaction(&outgoing["id"]).await;
    let expected = match status {
        "COMPLETED" | "FAILED" | "REJECTED" => status,
        "PENDING" => "PROCESSING",
        other => panic!("{other} is no end of the payee's side"),
    };
    assert_eq!(paid["status"], expected);
    let notified = asking.server.notified_statuses(&payment["id"]).await;
    let expected: &[&str] = match status {
        "COMPLETED" => &["PENDING", "PROCESSING", "COMPLETED"],
        "PENDING" => &["PENDING"],
        ended => &["PENDING", ended],
    };
    assert_eq!(notified, expected);
    // The time that is over afterwards changes nothing but what still waits.
    asking.server.verify();
    asking.server.pass(5_000).await;
    if status == "PENDING" {
        asking.stands_at(&payment, "FAILED", Some("PAYMENT_APPROVAL_TIMED_OUT")).await;
    } else {
        asking.stands_at(&payment, status, reason).await;
    }
    asking.server.verify();
    (asking, payment, paid)
}

#[tokio::test]
async fn a_200_approves() {
    check(Answer::status(200), &[], "COMPLETED", None).await;
    check(Answer::status(200).body("{}"), &[], "COMPLETED", None).await;
    let said = json!({ "receiverCustomerInfo": { "TAX_ID": "DE1", "EMAIL": "a@b.de" } });
    let answer = Answer::status(200).body(said.to_string());
    let (_, _, paid) = check(answer, &TAX_ID, "COMPLETED", None).await;
    let known = json!({ "TAX_ID": "DE1", "EMAIL": "a@b.de", "FULL_NAME": "Ada Lovelace" });
    assert_eq!(paid["counterpartyInformation"], known);
}

#[tokio::test]
async fn a_200_without_what_is_mandatory_fails() {
    for body in ["", "{}", r#"{"receiverCustomerInfo":{"EMAIL":"a@b.de"}}"#] {
        let answer = Answer::status(200).body(body);
        check(answer, &TAX_ID, "FAILED", Some("MISSING_MANDATORY_PAYEE_DATA")).await;
    }
}

#[tokio::test]
async fn a_200_that_is_not_as_documented_is_an_error() {
    for body in [
        "<!doctype html><title>Sign in</title>",
        "OK",
        "[]",
        "null",
        "\"yes\"",
        "{\"receiverCustomerInfo\":",
        r#"{"receiverCustomerInfo":[{"TAX_ID":"DE1"}]}"#,
        r#"{"receiverCustomerInfo":{"TAX_ID":1}}"#,
    ] {
        let answer = Answer::status(200).body(body);
        check(answer, &[], "FAILED", Some("PAYMENT_APPROVAL_WEBHOOK_ERROR")).await;
    }
}

#[tokio::test]
async fn a_403_rejects_and_its_reason_stays_here() {
    let said = json!({ "status": 403, "code": "NO", "reason": "SANCTIONED_STREET" });
    let answer = Answer::status(403).body(said.to_string());
    let (asking, payment, paid) = check(answer, &TAX_ID, "REJECTED", None).await;
    assert!(!paid.to_string().contains("SANCTIONED_STREET"), "{paid}");
    let reason = asking.approval(&payment).await.remark().reason.clone();
    assert_eq!(reason.as_deref(), Some("SANCTIONED_STREET"));
    check(Answer::status(403), &[], "REJECTED", None).await;
    check(Answer::status(403).body("<p>Forbidden"), &[], "REJECTED", None).await;
}

#[tokio::test]
async fn a_422_fails_and_what_it_asks_for_is_kept() {
    let answer = Answer::status(422).body(json!({ "requiredFields": ["BIRTH_DATE"] }).to_string());
    let reason = Some("MISSING_MANDATORY_PAYEE_DATA");
    let (asking, payment, _) = check(answer, &[], "FAILED", reason).await;
    assert_eq!(asking.approval(&payment).await.remark().required_fields, ["BIRTH_DATE"]);
}

#[tokio::test]
async fn every_other_answer_is_an_error() {
    let reason = Some("PAYMENT_APPROVAL_WEBHOOK_ERROR");
    for status in [201, 204, 301, 307, 400, 401, 404, 409, 410, 429, 500, 503] {
        let answer = Answer::status(status).header("location", "/approve");
        check(answer, &[], "FAILED", reason).await;
    }
    check(Answer::closed(), &[], "FAILED", reason).await;
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_reached_is_an_error() {
    let mut asking = Asking::new(&[]).await;
    asking.receiver.kill();
    let away = asking.receiver.url("/approve");
    let other = Receiver::start().expect("a receiver");
    // One whose port refuses, one that speaks no TLS, and one that may not be reached from here.
    for url in [away, other.url("/").replace("http:", "https:"), "http://10.0.0.1/".to_owned()] {
        set_endpoint(&asking.payee.client, &url).await;
        let (_, payment) = asking.pay().await;
        asking.ask().await;
        asking.stands_at(&payment, "FAILED", Some("PAYMENT_APPROVAL_WEBHOOK_ERROR")).await;
    }
    // One that was taken away after the payment had begun.
    let (_, payment) = asking.pay().await;
    asking.payee.client.patch("/config", &json!({ "webhookEndpoint": null })).await.expect(200);
    asking.ask().await;
    asking.stands_at(&payment, "FAILED", Some("PAYMENT_APPROVAL_WEBHOOK_ERROR")).await;
    asking.server.verify();
}

#[tokio::test]
async fn a_202_opens_the_time_once_more_from_its_receipt() {
    check(Answer::status(202), &[], "PENDING", None).await;
    for (how, millis, ends) in [
        ("approve", 4_999, "COMPLETED"),
        ("reject", 4_999, "REJECTED"),
        ("approve", 5_000, "FAILED"),
    ] {
        let asking = Asking::new(&[]).await;
        asking.receiver.answer(Answer::status(202).held());
        let (_, payment) = asking.pay().await;
        let asked = asking.ask_aside();
        asking.receiver.wait_for(1).await.expect("a request");
        asking.server.pass(4_000).await;
        asking.receiver.release();
        asked.await.expect("it was asked");
        asking.server.verify();
        asking.server.clock.advance_millis(millis);
        let answer = asking.decide(&payment, how).await;
        if ends == "FAILED" {
            answer.refused(409, "TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL");
        } else {
            assert_eq!(answer.expect(200)["status"], ends);
        }
        asking.server.pass(1_000).await;
        let reason = (ends == "FAILED").then_some("PAYMENT_APPROVAL_TIMED_OUT");
        asking.stands_at(&payment, ends, reason).await;
        asking.server.verify();
    }
}

#[tokio::test]
async fn an_answer_counts_to_the_last_millisecond() {
    for status in [200, 202, 403, 500] {
        for (millis, counts) in [(4_999, true), (5_000, false)] {
            let asking = Asking::new(&[]).await;
            asking.receiver.answer(Answer::status(status).held());
            let (_, payment) = asking.pay().await;
            let asked = asking.ask_aside();
            asking.receiver.wait_for(1).await.expect("a request");
            asking.server.clock.advance_millis(millis);
            asking.receiver.release();
            asked.await.expect("it was asked");
            if counts {
                let ends = match status {
                    200 => "COMPLETED",
                    202 => "PENDING",
                    403 => "REJECTED",
                    _ => "FAILED",
                };
                let reason = (status == 500).then_some("PAYMENT_APPROVAL_WEBHOOK_ERROR");
                asking.stands_at(&payment, ends, reason).await;
            } else {
                asking.stands_at(&payment, "FAILED", Some("PAYMENT_APPROVAL_TIMED_OUT")).await;
            }
            asking.server.verify();
        }
    }
}

#[tokio::test]
async fn silence_ends_with_the_time() {
    let asking = Asking::new(&[]).await;
    asking.receiver.answer(Answer::status(200).with_body_held());
    let (_, payment) = asking.pay().await;
    let asked = asking.ask_aside();
    asking.receiver.wait_for(1).await.expect("a request");
    asking.server.pass(5_000).await;
    asking.stands_at(&payment, "FAILED", Some("PAYMENT_APPROVAL_TIMED_OUT")).await;
    asking.receiver.release();
    asked.await.expect("it was asked");
    asking.stands_at(&payment, "FAILED", Some("PAYMENT_APPROVAL_TIMED_OUT")).await;
    asking.server.verify();
}

#[tokio::test]
async fn a_call_decides_while_the_request_hangs() {
    for (how, ends) in [("approve", "COMPLETED"), ("reject", "REJECTED")] {
        for late in [200, 202, 403, 500] {
            let asking = Asking::new(&[]).await;
            asking.receiver.answer(Answer::status(late).held());
            let (_, payment) = asking.pay().await;
            let asked = asking.ask_aside();
            asking.receiver.wait_for(1).await.expect("a request");
            assert_eq!(asking.decide(&payment, how).await.expect(200)["status"], ends);
            asking.receiver.release();
            asked.await.expect("it was asked");
            asking.stands_at(&payment, ends, None).await;
            asking.server.pass(5_000).await;
            asking.stands_at(&payment, ends, None).await;
            asking.server.verify();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_decision_wins_whatever_races() {
    let asking = Asking::new(&[]).await;
    let mut winners = std::collections::BTreeMap::<String, usize>::new();
    for round in 0..60 {
        asking.receiver.answer(Answer::status(if round % 2 == 0 { 200 } else { 403 }).held());
        let (outgoing, payment) = asking.pay().await;
        let asked = asking.ask_aside();
        asking.receiver.wait_for(round + 1).await.expect("a request");
        let (yes, no) = (asking.payee.client.clone(), asking.payee.client.clone());
        let call = |client: Client, how: &str| {
            let path = format!("/transactions/{}/{how}", text(&payment["id"]));
            tokio::spawn(async move { client.post(&path, &json!({})).await.status })
        };
        let (approved, rejected) = (call(yes, "approve"), call(no, "reject"));
        if round % 3 == 0 {
            asking.server.pass(5_000).await;
        }
        asking.receiver.release();
        asked.await.expect("it was asked");
        let statuses = [approved.await.expect("answered"), rejected.await.expect("answered")];
        asking.server.pass(5_000).await;
        let shown = asking.payee.client.transaction(&payment["id"]).await;
        let status = text(&shown["status"]);
        let winner = asking.approval(&payment).await.status();
        let calls = match winner.name() {
            "CALLED_YES" => [200, 409],
            "CALLED_NO" => [409, 200],
            _ => [409, 409],
        };
        assert_eq!(statuses, calls, "{winner:?}");
        let expected: &[&str] = match winner.name() {
            "CALLED_YES" | "ANSWERED_YES" => &["PENDING", "PROCESSING", "COMPLETED"],
            "CALLED_NO" | "ANSWERED_NO" => &["PENDING", "REJECTED"],
            "TIMED_OUT" => &["PENDING", "FAILED"],
            other => panic!("{other} was no part of it"),
        };
        assert_eq!(asking.server.notified_statuses(&payment["id"]).await, expected);
        assert_eq!(asking.payer.client.transaction(&outgoing["id"]).await["status"], status);
        *winners.entry(winner.name().to_owned()).or_default() += 1;
    }
    assert!(winners.len() > 1, "nothing raced: {winners:?}");
    asking.server.verify();
}

/// A payment of another institution to a customer.
async fn receive(client: &Client, customer: &str, key: Option<&str>) -> crate::support::Answer {
    let body = json!({
        "senderUmaAddress": "$success.usd@sandbox.uma.money",
        "receivingCurrencyCode": "USD",
        "receivingCurrencyAmount": 100,
        "customerId": customer,
    });
    let call = Call::json(&body);
    let call = key.into_iter().fold(call, Call::key);
    client.send("POST", "/sandbox/uma/receive", call).await
}

#[tokio::test]
async fn a_platform_that_hangs_does_not_delay_another() {
    // More than are asked at once.
    const PAYMENTS: u64 = 150;
    let server = Server::new();
    let (slow, quick) = (server.platform().await, server.platform().await);
    let (hangs, answers) = (Receiver::start().expect("one"), Receiver::start().expect("another"));
    hangs.answer(Answer::status(200).held());
    for (client, receiver) in [(&slow, &hangs), (&quick, &answers)] {
        set_endpoint(client, &receiver.url("/")).await;
    }
    let customer = slow.customer().await;
    let mut asked = tokio::task::JoinSet::new();
    let ask = || {
        let app = server.app.clone();
        async move {
            let request = app.store().approval_requests().next().await;
            approvals::send(&app, request).await;
        }
    };
    for _ in 0..PAYMENTS {
        receive(&slow, &customer, None).await.expect(200);
    }
    // All at once: a request that was asked before the others were made could be over by then.
    for _ in 0..PAYMENTS {
        asked.spawn(ask());
    }
    hangs.wait_for(100).await.expect("requests");
    let customer = quick.customer().await;
    let payment = receive(&quick, &customer, None).await.expect(200).clone();
    ask().await;
    assert_eq!(quick.transaction(&payment["id"]).await["status"], "PROCESSING");
    assert_eq!(hangs.received().len(), 100, "no more than are asked at once");
    server.pass(5_000).await;
    let path = "/transactions?status=FAILED";
    assert_eq!(slow.count(path).await, PAYMENTS);
    // Requests that are over before they could be sent are not sent at all.
    hangs.release();
    while let Some(ended) = asked.join_next().await {
        ended.expect("it was asked");
    }
    assert_eq!(hangs.received().len(), 100);
    // Those are over too: nothing is left once the other events are delivered, which the endpoint
    // receives again.
    hangs.answer(Answer::status(200));
    deliver(&server, &mut Dispatcher::new(server.app.clone())).await;
    assert_eq!(slow.count("/webhooks/deliveries?status=PENDING").await, 0);
    server.verify();
}

#[tokio::test]
async fn a_repeat_sends_no_second_request() {
    let asking = Asking::new(&[]).await;
    let Payee { client, customer, .. } = &asking.payee;
    let first = receive(client, customer, Some("once")).await;
    assert_eq!(first.expect(200)["status"], "PENDING");
    asking.ask().await;
    let again = receive(client, customer, Some("once")).await;
    assert_eq!((again.status, &again.bytes), (200, &first.bytes));
    assert!(is_no_request_left(&asking.server).await);
    assert_eq!(asking.receiver.received().len(), 1);
    asking.server.verify();
}

async fn is_no_request_left(server: &Server) -> bool {
    let next = server.app.store().approval_requests().next();
    tokio::time::timeout(std::time::Duration::ZERO, next).await.is_err()
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_keep_the_platform_from_being_asked() {
    let asking = Asking::new(&[]).await;
    let body = to_payee(&asking.payer, &asking.payee, 1_000).await;
    let quote = asking.payer.client.quote(&body).await;
    let path = format!("/quotes/{}/execute", text(&quote["id"]));
    let mut polls = 1;
    // It goes away when its request is in the commit queue, and not earlier.
    while !leave(&asking.payer.client, &path, Call::default(), polls).await {
        asking.payer.client.customer().await;
        if asking.payer.client.quote_again(&quote).await["status"] != "PENDING" {
            break;
        }
        polls += 1;
    }
    asking.ask().await;
    asking.payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
    asking.server.verify();
}

#[tokio::test]
async fn a_request_whose_server_died_is_given_up_in_time() {
    // The worker knew the platform before the request, or meets it with it.
    for knows_the_platform in [true, false] {
        let asking = Asking::new(&[]).await;
        let mut dispatcher = Dispatcher::new(asking.server.app.clone());
        if knows_the_platform {
            deliver(&asking.server, &mut dispatcher).await;
        }
        let (_, payment) = asking.pay().await;
        deliver(&asking.server, &mut dispatcher).await;
        let path =
            format!("/webhooks/deliveries?status=PENDING&resourceId={}", text(&payment["id"]));
        let waits = async || asking.payee.client.count(&path).await;
        assert_eq!(waits().await, 1, "it may still be asked");
        asking.server.pass(59_000).await;
        deliver(&asking.server, &mut dispatcher).await;
        assert_eq!(waits().await, 1);
        // Nothing else happens to the platform: the dispatcher wakes up by itself.
        let next = dispatcher.step().await.expect("a step").next.expect("something is due");
        let millis = next.millis() - asking.server.app.server_now().millis();
        assert_eq!(millis, 1_000);
        asking.server.pass(millis).await;
        deliver(&asking.server, &mut dispatcher).await;
        assert_eq!(waits().await, 0);
        asking.server.verify();
    }
}

#[tokio::test]
async fn a_platform_that_was_not_reached_has_not_approved() {
    let asking = Asking::new(&[]).await;
    let (outgoing, payment) = asking.pay().await;
    let Asking { server, payer, payee, receiver } = asking;
    let server = server.restart();
    server.verify();
    assert!(is_no_request_left(&server).await);
    server.pass(5_000).await;
    assert_eq!(receiver.received().len(), 0);
    server.verify();
    let client = server.token(payee.client.platform, domain::token::Permissions::ALL).await;
    let shown = client.transaction(&payment["id"]).await;
    assert_eq!(shown["failureReason"], "PAYMENT_APPROVAL_TIMED_OUT", "{shown}");
    let client = server.token(payer.client.platform, domain::token::Permissions::ALL).await;
    assert_eq!(client.transaction(&outgoing["id"]).await["status"], "FAILED");
}
