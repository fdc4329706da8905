//! Deliveries: what an endpoint gets, in which order, how often, and what its answers lead to.
//! Against a real receiver, with the clock moved by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::time::Duration;

use domain::time::Timestamp;
use serde_json::{Value, json};
use service::webhooks::dispatch::Dispatcher;
use store::Store;
use store::error::StoreError;
use store::origin::{Actor, Origin};
use testbed::receiver::{Answer, Received, Receiver};
use tokio::task::JoinSet;

use crate::pay::{Payer, transfer};
use crate::support::{Call, Client, Server, text};

/// Delivers until nothing is due.
pub async fn deliver(server: &Server, dispatcher: &mut Dispatcher) {
    loop {
        let step = dispatcher.step().await.expect("a step");
        assert!(step.is_ours);
        let is_due = step.next.is_some_and(|next| next <= server.app.server_now());
        if dispatcher.under_way() > 0 {
            dispatcher.attempted().await;
        } else if !step.more && !is_due {
            return;
        }
    }
}

/// A payer whose platform has an endpoint that got what came of setting it.
struct Notified {
    server: Server,
    payer: Payer,
    external: String,
    receiver: Receiver,
    dispatcher: Dispatcher,
}

impl Notified {
    async fn new() -> Self {
        let server = Server::new();
        let payer = Payer::with(&server, 1_000_000).await;
        let external = payer.bank("789").await;
        let receiver = Receiver::start().expect("a receiver");
        let url = receiver.url("/hooks");
        let mut dispatcher = Dispatcher::new(server.app.clone());
        payer.client.patch("/config", &json!({ "webhookEndpoint": url })).await.expect(200);
        deliver(&server, &mut dispatcher).await;
        receiver.take();
        Self { server, payer, external, receiver, dispatcher }
    }

    /// Makes a payment and gives its id.
    async fn pay(&self) -> String {
        let body = transfer(&self.payer.usd, &self.external, 100);
        text(&self.payer.client.post("/transfer-out", &body).await.expect(201)["id"])
    }

    async fn deliver(&mut self) {
        deliver(&self.server, &mut self.dispatcher).await;
    }

    /// Moves the clock, does what is due and delivers.
    async fn pass(&mut self, millis: i64) {
        self.server.pass(millis).await;
        self.deliver().await;
    }

    /// Whether no outcome of an attempt was written.
    async fn is_nothing_written(&self) -> bool {
        let rows = self.deliveries("?type=OUTGOING_PAYMENT").await;
        rows.iter().all(|row| row["status"] == "PENDING" && row["attempts"] == json!([]))
    }

    async fn deliveries(&self, query: &str) -> Vec<Value> {
        rows(&self.payer.client, &format!("/webhooks/deliveries{query}")).await
    }
}

async fn rows(client: &Client, path: &str) -> Vec<Value> {
    let body = client.get(path).await.expect(200).clone();
    body["data"].as_array().expect("rows").clone()
}

fn event(received: &Received) -> Value {
    serde_json::from_slice(&received.body).expect("JSON")
}

/// The statuses that came about each payment, in the order in which they came.
fn statuses(received: &[Received]) -> BTreeMap<String, Vec<String>> {
    let mut notified: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in received.iter().map(event).filter(|event| event["type"] == "OUTGOING_PAYMENT") {
        notified
            .entry(text(&event["data"]["id"]))
            .or_default()
            .push(text(&event["data"]["status"]));
    }
    notified
}

/// Without what came again.
fn first_arrivals(received: Vec<Received>) -> Vec<Received> {
    let mut seen = BTreeSet::new();
    received.into_iter().filter(|it| seen.insert(it.header("webhook-id").to_owned())).collect()
}

const WHOLE: [&str; 3] = ["PENDING", "PROCESSING", "COMPLETED"];

#[tokio::test]
async fn every_change_of_a_payment_arrives_once_and_in_order() {
    let mut notified = Notified::new().await;
    let mut expected = BTreeMap::new();
    for _ in 0..20 {
        expected.insert(notified.pay().await, WHOLE.map(str::to_owned).to_vec());
    }
    notified.pass(5_000).await;
    let received = notified.receiver.take();
    assert_eq!(statuses(&received), expected);
    for received in &received {
        assert_eq!(received.header("webhook-id"), text(&event(received)["id"]));
    }
    notified.deliver().await;
    assert!(notified.receiver.take().is_empty());
    let deliveries = notified.deliveries("?status=DELIVERED&type=OUTGOING_PAYMENT&limit=100").await;
    assert_eq!(deliveries.len(), 60);
    for delivery in deliveries {
        let attempts = delivery["attempts"].as_array().expect("attempts");
        assert_eq!((attempts.len(), &attempts[0]["responseStatus"]), (1, &json!(200)));
    }
    notified.server.verify();
}

#[tokio::test]
async fn a_resource_that_fails_holds_up_nothing_but_itself() {
    let mut notified = Notified::new().await;
    let poisoned = notified.pay().await;
    let bad = poisoned.clone();
    notified.receiver.answer_by(move |received| {
        let is_bad = event(received)["data"]["id"] == json!(bad);
        Answer::status(if is_bad { 500 } else { 200 }).body("an answer")
    });
    let other = notified.pay().await;
    notified.pass(5_000).await;
    let seen = statuses(&notified.receiver.take());
    assert_eq!(seen[&other], WHOLE);
    assert!(seen[&poisoned].iter().all(|status| status == "PENDING"), "{seen:?}");
    let query = format!("?resourceId={poisoned}");
    let mut waiting = notified.deliveries(&query).await;
    waiting.reverse();
    assert_eq!(waiting.len(), 3);
    assert!(waiting.iter().all(|delivery| delivery["status"] == "PENDING"), "{waiting:?}");
    let attempt = &waiting[0]["attempts"][0];
    assert_eq!(
        (&attempt["responseStatus"], &attempt["responseBody"]),
        (&json!(500), &json!("an answer"))
    );
    assert!(waiting[0].get("waitingFor").is_none(), "{waiting:?}");
    for behind in &waiting[1..] {
        assert_eq!(behind["attempts"], json!([]));
        assert_eq!(behind["waitingFor"], waiting[0]["id"]);
        assert_eq!(behind["nextAttemptAt"], waiting[0]["nextAttemptAt"]);
    }
    // One that is sent again still waits for those before it, and says so.
    let retry = async |delivery: &Value| {
        let path = format!("/webhooks/deliveries/{}/retry", text(&delivery["id"]));
        notified.payer.client.post(&path, &json!({})).await.expect(200).clone()
    };
    let again = retry(&waiting[1]).await;
    assert_eq!(again["waitingFor"], waiting[0]["id"]);
    assert_eq!(again["nextAttemptAt"], waiting[0]["nextAttemptAt"]);
    notified.receiver.answer(Answer::status(204));
    // The first is sent again at once, and so are those behind it.
    let again = retry(&waiting[0]).await;
    assert!(again.get("waitingFor").is_none(), "{again}");
    notified.deliver().await;
    assert_eq!(statuses(&notified.receiver.take())[&poisoned], WHOLE);
    notified.server.verify();
}

#[tokio::test]
async fn those_behind_a_delivery_that_failed_are_attempted_with_it() {
    let mut notified = Notified::new().await;
    notified.receiver.answer(Answer::status(500));
    let payment = notified.pay().await;
    notified.pass(5_000).await;
    notified.receiver.take();
    notified.receiver.answer(Answer::status(200));
    notified.pass(60_000).await;
    assert_eq!(statuses(&notified.receiver.take())[&payment], WHOLE);
    notified.server.verify();
}

#[tokio::test]
async fn an_endpoint_that_is_away_is_asked_now_and_then_and_gets_everything_when_it_is_back() {
    let mut notified = Notified::new().await;
    notified.receiver.answer(Answer::status(503));
    let mut payments = Vec::new();
    for _ in 0..30 {
        payments.push(notified.pay().await);
    }
    notified.pass(5_000).await;
    // A day in steps of ten minutes: the pauses grow to half an hour.
    notified.receiver.take();
    let mut asked = 0;
    for _ in 0..24 * 6 {
        notified.pass(600_000).await;
        asked += notified.receiver.take().len();
    }
    assert!((40..=70).contains(&asked), "asked {asked} times in a day");
    notified.receiver.answer(Answer::status(200));
    notified.pass(1_800_000).await;
    let seen = statuses(&notified.receiver.take());
    for payment in payments {
        assert_eq!(seen[&payment], WHOLE);
    }
    notified.server.verify();
}

#[tokio::test]
async fn after_a_week_nothing_is_attempted_until_a_client_asks_for_it() {
    let mut notified = Notified::new().await;
    notified.receiver.answer(Answer::closed());
    let payment = notified.pay().await;
    notified.pass(5_000).await;
    for _ in 0..8 * 24 {
        notified.pass(3_600_000).await;
    }
    let dead = notified.deliveries(&format!("?resourceId={payment}&status=DEAD")).await;
    assert_eq!(dead.len(), 3, "{dead:?}");
    notified.receiver.take();
    notified.receiver.answer(Answer::status(200));
    notified.pass(3_600_000).await;
    assert!(statuses(&notified.receiver.take()).is_empty());
    let first = dead.last().expect("a delivery");
    let path = format!("/webhooks/deliveries/{}/retry", text(&first["id"]));
    let again = notified.payer.client.post(&path, &json!({})).await.expect(200).clone();
    assert_eq!(again["status"], "PENDING");
    notified.deliver().await;
    let received = notified.receiver.take();
    assert_eq!(received.len(), 1);
    assert_eq!(event(&received[0])["id"], first["eventId"]);
    notified.server.verify();
}

#[tokio::test]
async fn answers_end_a_delivery_as_the_contract_says() {
    let mut notified = Notified::new().await;
    for (answer, status) in [(200, "DELIVERED"), (204, "DELIVERED"), (409, "DELIVERED")] {
        notified.receiver.answer(Answer::status(answer));
        let payment = notified.pay().await;
        notified.deliver().await;
        let rows = notified.deliveries(&format!("?resourceId={payment}")).await;
        assert_eq!(rows[0]["status"], status, "{answer}");
    }
    for answer in [301, 400, 404, 500] {
        notified.receiver.answer(Answer::status(answer));
        let payment = notified.pay().await;
        notified.deliver().await;
        let rows = notified.deliveries(&format!("?resourceId={payment}")).await;
        assert_eq!((&rows[0]["status"], rows.len()), (&json!("PENDING"), 1), "{answer}");
        notified.receiver.answer(Answer::status(200));
        notified.pass(5_000).await;
    }
    notified.server.verify();
}

#[tokio::test]
async fn a_list_about_a_resource_is_counted_and_only_its_own_platforms() {
    let mut notified = Notified::new().await;
    let payment = notified.pay().await;
    notified.deliver().await;
    let other = Payer::with(&notified.server, 1_000_000).await;
    let path = format!("/webhooks/deliveries?resourceId={payment}");
    for (client, listed) in [(&notified.payer.client, true), (&other.client, false)] {
        let list = client.get(&path).await.expect(200).clone();
        let rows = list["data"].as_array().expect("rows").len();
        assert_eq!((rows > 0, &list["totalCount"]), (listed, &json!(rows)));
    }
}

#[tokio::test]
async fn an_endpoint_that_is_gone_gets_nothing_until_it_is_set_again() {
    let mut notified = Notified::new().await;
    notified.receiver.answer(Answer::status(410));
    let payment = notified.pay().await;
    notified.pass(5_000).await;
    // Of the payment and of the account: neither waits for the other.
    assert_eq!(notified.receiver.take().len(), 2);
    let dead = notified.deliveries(&format!("?resourceId={payment}")).await;
    assert!(dead.iter().all(|delivery| delivery["status"] == "DEAD"), "{dead:?}");
    notified.receiver.answer(Answer::status(200));
    notified.pay().await;
    notified.pass(600_000).await;
    assert!(notified.receiver.take().is_empty());
    let path = format!("/webhooks/deliveries/{}/retry", text(&dead[0]["id"]));
    let refused = notified.payer.client.post(&path, &json!({})).await;
    refused.refused(400, "WEBHOOK_ENDPOINT_NOT_SET");
    let url = notified.receiver.url("/new");
    let client = &notified.payer.client;
    client.patch("/config", &json!({ "webhookEndpoint": url })).await.expect(200);
    let payment = notified.pay().await;
    notified.pass(5_000).await;
    assert_eq!(statuses(&notified.receiver.take())[&payment], WHOLE);
    notified.server.verify();
}

#[tokio::test]
async fn a_removed_endpoint_gets_nothing_until_one_is_set() {
    let mut notified = Notified::new().await;
    notified.receiver.answer(Answer::status(500));
    let waiting = notified.pay().await;
    notified.deliver().await;
    assert_eq!(notified.receiver.take().len(), 2);
    let client = notified.payer.client.clone();
    client.patch("/config", &json!({ "webhookEndpoint": null })).await.expect(200);
    notified.receiver.answer(Answer::status(200));
    notified.pay().await;
    notified.pass(600_000).await;
    assert!(notified.receiver.take().is_empty());
    let dead = notified.deliveries(&format!("?resourceId={waiting}")).await;
    assert!(dead.iter().all(|delivery| delivery["status"] == "DEAD"), "{dead:?}");
    let path = format!("/webhooks/deliveries/{}/retry", text(&dead[0]["id"]));
    let refused = client.post(&path, &json!({})).await;
    let message = text(&refused.body["message"]);
    refused.refused(400, "WEBHOOK_ENDPOINT_NOT_SET");
    assert!(!message.contains("410"), "{message}");
    notified.server.verify();
    let url = notified.receiver.url("/new");
    client.patch("/config", &json!({ "webhookEndpoint": url })).await.expect(200);
    let payment = notified.pay().await;
    notified.pass(5_000).await;
    assert_eq!(statuses(&notified.receiver.take())[&payment], WHOLE);
    notified.server.verify();
}

#[tokio::test]
async fn who_asks_to_be_left_alone_is() {
    let mut notified = Notified::new().await;
    notified.receiver.answer(Answer::status(429).header("retry-after", "120"));
    notified.pay().await;
    notified.deliver().await;
    // Of the payment and of the account: neither waits for the other.
    assert_eq!(notified.receiver.take().len(), 2);
    notified.receiver.answer(Answer::status(200));
    notified.pay().await;
    notified.pass(110_000).await;
    assert!(notified.receiver.take().is_empty());
    notified.pass(30_000).await;
    assert_eq!(statuses(&notified.receiver.take()).len(), 2);
}

#[tokio::test]
async fn an_endpoint_that_hangs_holds_up_no_other_platform() {
    let mut notified = Notified::new().await;
    notified.receiver.answer(Answer::status(200).held());
    let other = Payer::with(&notified.server, 1_000_000).await;
    let external = other.bank("789").await;
    let fast = Receiver::start().expect("a receiver");
    let url = fast.url("/");
    other.client.patch("/config", &json!({ "webhookEndpoint": url })).await.expect(200);
    for _ in 0..100 {
        notified.pay().await;
        other.client.post("/transfer-out", &transfer(&other.usd, &external, 1)).await.expect(201);
    }
    notified.server.pass(5_000).await;
    let notify_other = async {
        loop {
            let step = notified.dispatcher.step().await.expect("a step");
            let payments = statuses(&fast.received());
            if payments.len() == 100 && payments.values().all(|came| *came == WHOLE) {
                return;
            }
            if !step.more {
                notified.dispatcher.attempted().await;
            }
        }
    };
    // The one that hangs is still being asked when the other has everything.
    let within = tokio::time::timeout(Duration::from_secs(10), notify_other).await;
    assert!(within.is_ok(), "{:?}", statuses(&fast.received()).len());
    assert!(notified.dispatcher.under_way() > 0);
    notified.receiver.release();
}

#[tokio::test]
async fn what_was_not_kept_when_the_server_died_is_delivered_by_the_next() {
    let mut notified = Notified::new().await;
    let payment = notified.pay().await;
    notified.server.pass(5_000).await;
    // The attempts are made, and their outcomes are not written.
    notified.receiver.answer(Answer::status(200).held());
    notified.dispatcher.step().await.expect("a step");
    notified.dispatcher.step().await.expect("a step");
    notified.receiver.wait_for(1).await.expect("the first");
    notified.receiver.answer(Answer::status(200));
    notified.receiver.release();
    while notified.dispatcher.under_way() > 0 {
        notified.dispatcher.attempted().await;
    }
    assert_eq!(statuses(&notified.receiver.received())[&payment], WHOLE);
    assert!(notified.is_nothing_written().await);
    let Notified { server, receiver, dispatcher, payer, .. } = notified;
    drop((dispatcher, payer));
    let server = server.restart();
    let mut dispatcher = Dispatcher::new(server.app.clone());
    deliver(&server, &mut dispatcher).await;
    // What had been sent comes again, and none before those in front of it have come.
    assert_eq!(statuses(&first_arrivals(receiver.take()))[&payment], WHOLE);
    server.verify();
}

/// A database that is at work until it is let go on.
struct Blocked {
    store: Store,
    go_on: mpsc::Sender<()>,
    waiting: JoinSet<bool>,
}

fn origin() -> Origin {
    Origin { actor: Actor::job("TEST"), request: None, at: Timestamp::from_millis(0) }
}

impl Blocked {
    async fn new(store: &Store) -> Self {
        let (store, mut waiting) = (store.clone(), JoinSet::new());
        let (go_on, released) = mpsc::channel();
        let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
        waiting.spawn({
            let store = store.clone();
            async move {
                let work = store.write(origin(), move |_| {
                    begins.send(()).expect("the test waits for it");
                    released.recv().expect("it is let go on");
                    Ok::<_, StoreError>(())
                });
                work.await.is_ok()
            }
        });
        begun.recv().await.expect("it has begun");
        Self { store, go_on, waiting }
    }

    /// Has so much wait for it that it takes nothing more on.
    async fn fill(&mut self) {
        loop {
            let store = self.store.clone();
            let work =
                async move { store.write(origin(), |_| Ok::<_, StoreError>(())).await.is_ok() };
            self.waiting.spawn(work);
            tokio::task::yield_now().await;
            if let Some(is_done) = self.waiting.try_join_next() {
                assert!(!is_done.expect("no panic"), "nothing is done while it is busy");
                return;
            }
        }
    }

    async fn go_on(mut self) {
        self.go_on.send(()).expect("it waits for that");
        while let Some(is_done) = self.waiting.join_next().await {
            assert!(is_done.expect("no panic"), "everything that waited is done");
        }
    }
}

#[tokio::test]
async fn what_the_database_refused_to_keep_is_kept_later_and_sent_once() {
    let mut notified = Notified::new().await;
    let mut expected = BTreeMap::new();
    for _ in 0..5 {
        expected.insert(notified.pay().await, WHOLE.map(str::to_owned).to_vec());
    }
    notified.server.pass(5_000).await;
    notified.dispatcher.step().await.expect("a step");
    while notified.dispatcher.under_way() > 0 {
        notified.dispatcher.attempted().await;
    }
    let mut database = Blocked::new(notified.server.app.store()).await;
    database.fill().await;
    for _ in 0..2 {
        notified.dispatcher.step().await.expect_err("the queue of the database is full");
    }
    database.go_on().await;
    assert!(notified.is_nothing_written().await);
    notified.deliver().await;
    let received = notified.receiver.take();
    assert_eq!(first_arrivals(received.clone()).len(), received.len(), "some came twice");
    assert_eq!(statuses(&received), expected);
    let kept = notified.deliveries("?limit=100&type=OUTGOING_PAYMENT").await;
    assert_eq!(kept.len(), 15);
    for delivery in kept {
        let attempts = delivery["attempts"].as_array().expect("attempts");
        assert_eq!((&delivery["status"], attempts.len()), (&json!("DELIVERED"), 1));
    }
    notified.server.verify();
}

#[tokio::test]
async fn the_next_event_of_a_resource_does_not_wait_for_the_database() {
    let mut notified = Notified::new().await;
    let client = notified.payer.client.clone();
    let start = client.get("/events?start=latest").await.expect(200)["nextCursor"].clone();
    let payment = notified.pay().await;
    notified.server.pass(5_000).await;
    let events = rows(&client, &format!("/events?limit=100&cursor={}", text(&start))).await.len();
    let database = Blocked::new(notified.server.app.store()).await;
    let steps = async {
        loop {
            notified.dispatcher.step().await.expect("a step");
            notified.dispatcher.attempted().await;
        }
    };
    let received = tokio::select! {
        () = steps => Vec::new(),
        received = notified.receiver.wait_for(events) => received.expect("all of them"),
    };
    assert_eq!(statuses(&received)[&payment], WHOLE);
    database.go_on().await;
    notified.deliver().await;
    let received = notified.receiver.take();
    assert_eq!(statuses(&first_arrivals(received))[&payment], WHOLE);
    notified.server.verify();
}

#[tokio::test]
async fn events_of_a_time_are_sent_again_in_their_own_bytes() {
    let mut notified = Notified::new().await;
    let payment = notified.pay().await;
    notified.pass(5_000).await;
    let first = notified.receiver.take();
    let client = &notified.payer.client;
    let body = json!({
        "from": "2020-01-01T00:00:00Z", "to": "2100-01-01T00:00:00Z", "types": ["OUTGOING_PAYMENT"],
    });
    let replay = || client.send("POST", "/webhooks/replay", Call::json(&body).key("again"));
    assert_eq!(replay().await.expect(200), &json!({ "events": 3 }));
    assert_eq!(replay().await.expect(200), &json!({ "events": 3 }));
    notified.deliver().await;
    let again = notified.receiver.take();
    assert_eq!(statuses(&again)[&payment], WHOLE);
    let bodies = |all: &[Received]| {
        let payments = all.iter().filter(|it| event(it)["type"] == "OUTGOING_PAYMENT");
        payments.map(|received| received.body.clone()).collect::<Vec<_>>()
    };
    assert_eq!(bodies(&first), bodies(&again));
    let nothing = json!({ "from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z" });
    let none = notified.payer.client.post("/webhooks/replay", &nothing).await;
    assert_eq!(none.expect(200), &json!({ "events": 0 }));
    notified.server.verify();
}

#[tokio::test]
async fn events_can_be_pulled_in_their_order_and_none_is_missed() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000_000).await;
    let external = payer.bank("789").await;
    let start = payer.client.get("/events?start=latest").await.expect(200).clone();
    assert_eq!((&start["data"], &start["hasMore"]), (&json!([]), &json!(false)));
    let mut expected = BTreeMap::new();
    for _ in 0..5 {
        let body = transfer(&payer.usd, &external, 100);
        let paid = payer.client.post("/transfer-out", &body).await.expect(201).clone();
        expected.insert(text(&paid["id"]), WHOLE.map(str::to_owned).to_vec());
        server.pass(5_000).await;
    }
    let mut cursor = text(&start["nextCursor"]);
    let (mut notified, mut ids): (BTreeMap<String, Vec<String>>, Vec<String>) = Default::default();
    loop {
        let path = format!("/events?cursor={cursor}&limit=4&type=OUTGOING_PAYMENT");
        let page = payer.client.get(&path).await.expect(200).clone();
        for event in page["data"].as_array().expect("events") {
            let data = &event["data"];
            notified.entry(text(&data["id"])).or_default().push(text(&data["status"]));
            ids.push(text(&event["id"]));
        }
        cursor = text(&page["nextCursor"]);
        if page["hasMore"] == json!(false) {
            break;
        }
    }
    assert_eq!(notified, expected);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 15);
    let other = server.platform().await;
    let stolen = other.get(&format!("/events?cursor={cursor}")).await;
    stolen.refused(400, "INVALID_INPUT");
    let since = payer.client.get("/events?startDate=2100-01-01T00:00:00Z").await;
    assert_eq!(since.expect(200)["data"], json!([]));
}

#[tokio::test]
async fn an_endpoint_that_is_set_is_notified_once() {
    let mut notified = Notified::new().await;
    notified.receiver.answer(Answer::status(500));
    let url = notified.receiver.url("/other");
    let client = &notified.payer.client;
    client.patch("/config", &json!({ "webhookEndpoint": url })).await.expect(200);
    notified.deliver().await;
    let received = notified.receiver.take();
    assert_eq!((received.len(), received[0].path.as_str()), (1, "/other"));
    let test = event(&received[0]);
    assert_eq!((&test["type"], &test["data"]), (&json!("TEST"), &json!({})));
    notified.pass(3_600_000).await;
    assert!(notified.receiver.take().is_empty());
    let all = notified.deliveries("?type=TEST").await;
    let statuses: BTreeSet<_> = all.iter().map(|delivery| text(&delivery["status"])).collect();
    assert_eq!(statuses, ["DEAD", "DELIVERED"].map(str::to_owned).into());
    notified.server.verify();
}
