//! Matters that only a person can settle: what opens one, that it is opened once, and what its
//! resolution does to the payment and the books.

use std::sync::Arc;

use domain::attention::{Attention, Kind, Outcome};
use domain::currency::Currency;
use ledger::account::AccountKey;
use ports::rail::{Proof, RailAnswer, RailFailure};
use serde_json::{Value, json};
use service::resolutions::{Finding, resolve};
use service::webhooks::dispatch::Dispatcher;
use service::{App, Error, jobs};
use store::origin::Actor;
use testbed::receiver::{Answer, Receiver};

use crate::deliveries::deliver;
use crate::held_rail::Saying;
use crate::pay::{Payer, deposit, sending, to, transaction_id, transfer};
use crate::support::{Server, text, why};

const DAY: i64 = 86_400_000;

impl Server {
    /// Every matter, oldest first.
    async fn matters(&self) -> Vec<Arc<Attention>> {
        let read = self.app.store().read(|view| view.attention(true, 100)).await;
        read.map_err(Error::Store).expect("a read")
    }

    /// The one matter that is open.
    async fn matter(&self) -> Attention {
        let open = self.app.store().read(|view| view.attention(false, 100)).await;
        let open = open.map_err(Error::Store).expect("a read");
        let [matter] = open.as_slice() else { panic!("{open:?}") };
        Attention::clone(matter)
    }
}

fn found(outcome: Option<Outcome>) -> Finding {
    Finding { outcome, reason: "the bank's statement".to_owned(), by: "ops@desk".to_owned() }
}

/// A payment over a rail that says what the test wants.
struct Paid {
    server: Server,
    payer: Payer,
    rail: Arc<Saying>,
    /// The server with that rail.
    app: App,
    id: Value,
}

impl Paid {
    async fn new(answer: RailAnswer) -> Self {
        let server = Server::new();
        let payer = Payer::with(&server, 1_000).await;
        let rail = Saying::new(answer);
        let app = server.with_rail(7, Arc::clone(&rail));
        let out = transfer(&payer.usd, &payer.bank("789").await, 400);
        let out = payer.client.at(&app).post("/transfer-out", &out).await.expect(201).clone();
        let paid = Self { server, payer, rail, app, id: out["id"].clone() };
        paid.pass(1_000).await;
        paid
    }

    async fn pass(&self, millis: i64) {
        self.server.clock.advance_millis(millis);
        while jobs::step(&self.app).await.expect("a step").done > 0 {}
    }

    async fn status(&self) -> String {
        text(&self.payer.client.transaction(&self.id).await["status"])
    }

    /// Resolves the one open matter as an operator.
    async fn resolve(&self, outcome: Outcome) -> Attention {
        let by = Actor::Operator { command: "attention resolve".to_owned(), by: "ops".to_owned() };
        let operator = self.app.acting_for(by, None);
        let id = self.server.matter().await.id();
        let resolved = resolve(&operator, id, found(Some(outcome))).await;
        resolved.expect("an outcome that is possible").expect("it is there")
    }
}

/// Says that a payment is not decided, forever.
fn silent() -> RailAnswer {
    RailAnswer::Pending { ask_again_at: domain::time::Timestamp::from_millis(0) }
}

#[tokio::test]
async fn a_payment_whose_bank_is_silent_waits_for_a_person_who_says_what_became_of_it() {
    for (outcome, status, left) in
        [(Outcome::Settled, "COMPLETED", 600), (Outcome::Failed, "FAILED", 1_000)]
    {
        let paid = Paid::new(silent()).await;
        paid.pass(6 * DAY).await;
        assert_eq!(paid.server.matters().await, [], "banks may take so long");
        paid.pass(2 * DAY).await;
        let matter = paid.server.matter().await;
        assert_eq!(matter.kind, Kind::UnknownOutcome);
        assert_eq!(matter.subject, transaction_id(&paid.id).uuid());
        assert_eq!(matter.platform, paid.payer.client.platform);
        assert_eq!((paid.status().await.as_str(), paid.payer.balance().await), ("PROCESSING", 600));
        paid.pass(DAY).await;
        assert_eq!(paid.server.matter().await, matter, "it is noticed once");
        paid.server.verify();

        for impossible in [None, Some(Outcome::Noted), Some(Outcome::Returned)] {
            let refused = resolve(&paid.app, matter.id(), found(impossible)).await;
            let error = refused.expect_err("it must be said").to_string();
            assert!(error.contains("SETTLED or FAILED"), "{error}");
        }
        let resolved = paid.resolve(outcome).await.resolution.expect("it is resolved");
        assert_eq!((resolved.outcome, resolved.by.as_str()), (outcome, "ops@desk"));
        assert_eq!(resolved.reason, "the bank's statement");
        assert_eq!(paid.status().await, status);
        assert_eq!(paid.payer.balance().await, left);
        let again = resolve(&paid.app, matter.id(), found(Some(outcome))).await;
        assert!(again.is_err(), "it is resolved once");
        let audited = paid.server.audited(&matter.id().to_string());
        let (actor, ..) = audited.last().expect("the journal has it");
        assert!(matches!(actor, Actor::Operator { command, .. } if command == "attention resolve"));
        paid.server.verify();
    }
}

#[tokio::test]
async fn a_bank_that_answers_late_resolves_it_by_itself() {
    let paid = Paid::new(silent()).await;
    paid.pass(8 * DAY).await;
    let matter = paid.server.matter().await;
    paid.rail.say(RailAnswer::Failed(RailFailure::AccountInvalid, Proof::OtherSide));
    paid.pass(DAY).await;
    let matters = paid.server.matters().await;
    let resolution = matters[0].resolution.as_ref().expect("it is resolved");
    assert_eq!((matters[0].id(), resolution.outcome), (matter.id(), Outcome::Failed));
    assert_eq!(resolution.by, "the rail");
    // Too late for a person.
    let late = resolve(&paid.app, matter.id(), found(Some(Outcome::Settled))).await;
    assert!(late.is_err());
    assert_eq!((paid.status().await.as_str(), paid.payer.balance().await), ("FAILED", 1_000));
    paid.server.verify();
}

#[tokio::test]
async fn a_rail_that_contradicts_itself_is_a_matter_for_a_person() {
    let contradictions = [
        (RailAnswer::Refused, "settled before, and refused now"),
        (
            RailAnswer::Failed(RailFailure::AccountInvalid, Proof::OtherSide),
            "settled before, and failed now",
        ),
    ];
    for (answer, note) in contradictions {
        for (outcome, status, left) in
            [(Outcome::Settled, "COMPLETED", 600), (Outcome::Returned, "REFUNDED", 1_000)]
        {
            let at = domain::time::Timestamp::from_millis(0);
            let paid = Paid::new(RailAnswer::SettledForNow { ask_again_at: at }).await;
            assert_eq!(paid.status().await, "COMPLETED");
            paid.rail.say(answer.clone());
            paid.pass(2 * 3_600_000).await;
            let matter = paid.server.matter().await;
            assert_eq!((matter.kind, matter.notice.note.as_str()), (Kind::RailContradiction, note));
            assert_eq!(
                (paid.status().await.as_str(), paid.payer.balance().await),
                ("COMPLETED", 600)
            );
            paid.resolve(outcome).await;
            assert_eq!(paid.status().await, status);
            assert_eq!(paid.payer.balance().await, left);
            if outcome == Outcome::Returned {
                let back = paid.payer.client.transaction(&paid.id).await;
                assert_eq!(why(&back), [Some("OFFRAMP_FAILED"), Some("RETURNED")]);
            }
            paid.server.verify();
        }
    }
}

/// Money that came back for a deleted customer waits in suspense until an operator says that the
/// platform keeps it.
async fn check_late_return(payer: &Payer, server: &Server, payment: &Value, currency: &str) {
    let (client, id) = (&payer.client, transaction_id(payment).uuid());
    client.delete_customer(&payer.customer).await;
    server.pass(62_000).await;
    let platforms = client.account(None, currency).await;
    let waits = client.transaction(payment).await;
    assert_eq!(waits["status"], "FAILED", "{waits}");
    assert_eq!(why(&waits), [Some("OFFRAMP_FAILED"), Some("RETURNED")]);
    assert_eq!(
        (in_suspense(server, payer, currency).await, waits["refund"].clone()),
        (400, Value::Null)
    );
    assert_eq!(client.balance(&platforms).await, 0);
    server.verify();
    let matter = server.matter().await;
    assert_eq!((matter.kind, matter.subject), (Kind::LateReturn, id));
    assert_eq!(matter.notice.note, format!("400 {currency} in smallest units wait in suspense"));
    // No time decides it.
    server.pass(30 * DAY).await;
    assert_eq!(client.balance(&platforms).await, 0);

    for impossible in [Outcome::Noted, Outcome::Returned] {
        let refused = resolve(&server.app, matter.id(), found(Some(impossible))).await;
        let error = refused.expect_err("no outcome of it").to_string();
        assert!(error.contains("the outcome of LATE_RETURN is KEPT"), "{error}");
    }
    let by = Actor::Operator { command: "attention resolve".to_owned(), by: "ops".to_owned() };
    let operator = server.app.acting_for(by.clone(), None);
    let resolved = resolve(&operator, matter.id(), found(None)).await;
    let resolved = resolved.expect("there is one outcome").expect("it is there");
    assert_eq!(resolved.resolution.map(|it| it.outcome), Some(Outcome::Kept));
    let kept = client.transaction(payment).await;
    assert_eq!(
        (&kept["status"], &kept["refund"]["status"]),
        (&json!("REFUNDED"), &json!("COMPLETED"))
    );
    assert_eq!(client.balance(&platforms).await, 400);
    assert_eq!(in_suspense(server, payer, currency).await, 0);
    let audited = server.audited(&text(payment));
    assert_eq!(audited.last().map(|(actor, ..)| actor), Some(&by), "the posting has its actor");
    let again = resolve(&operator, matter.id(), found(None)).await;
    assert!(again.is_err(), "it is resolved once");
    assert_eq!(client.balance(&platforms).await, 400);
    server.verify();
}

/// The balance of the platform's suspense account.
async fn in_suspense(server: &Server, payer: &Payer, currency: &str) -> i64 {
    let currency = Currency::from_code(currency).expect("a currency");
    let account = AccountKey::Suspense { platform: payer.client.platform, currency };
    let read = move |view: &mut store::reader::View<'_>| view.ledger_account(&account);
    let found = server.app.store().read(read).await.map_err(Error::Store).expect("a read");
    found.map_or(0, |found| found.balance.held_minor())
}

#[tokio::test]
async fn a_transfer_that_comes_back_for_a_deleted_customer_is_a_matter_for_a_person() {
    let server = Server::new();
    let payer = Payer::with(&server, 400).await;
    let out = transfer(&payer.usd, &payer.bank("185").await, 400);
    let out = payer.client.post("/transfer-out", &out).await.expect(201).clone();
    server.pass(1_000).await;
    check_late_return(&payer, &server, &out["id"], "USD").await;
    let nothing = Kind::LateReturn.id(uuid::Uuid::nil());
    assert_eq!(resolve(&server.app, nothing, found(None)).await.expect("no failure"), None);
}

#[tokio::test]
async fn a_funded_quote_that_comes_back_for_a_deleted_customer_is_a_matter_for_a_person() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let source = deposit("EUR", &payer.customer);
    let quote = sending(&source, &to(&payer.bank("185").await), 400);
    let quote = payer.client.quote(&quote).await;
    payer.client.deposit(&quote, None).await.expect(200);
    server.pass(1_000).await;
    check_late_return(&payer, &server, &quote["transactionId"], "EUR").await;
}

#[tokio::test]
async fn dead_deliveries_of_a_platform_are_one_matter() {
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let receiver = Receiver::start().expect("a receiver");
    let mut dispatcher = Dispatcher::new(server.app.clone());
    let endpoint = json!({ "webhookEndpoint": receiver.url("/hooks") });
    payer.client.patch("/config", &endpoint).await.expect(200);
    deliver(&server, &mut dispatcher).await;
    receiver.answer(Answer::status(500));
    let bank = payer.bank("789").await;
    for _ in 0..2 {
        payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 100)).await.expect(201);
    }
    deliver(&server, &mut dispatcher).await;
    assert_eq!(server.matters().await, []);
    for _ in 0..3 {
        server.pass(8 * DAY).await;
        deliver(&server, &mut dispatcher).await;
    }
    let matter = server.matter().await;
    assert_eq!(matter.kind, Kind::DeadDeliveries);
    assert_eq!(matter.subject, payer.client.platform.uuid());
    let dead = payer.client.get("/webhooks/deliveries?status=DEAD&limit=100").await;
    let dead = dead.expect(200)["data"].as_array().expect("rows").clone();
    // Those that were behind one that failed were never attempted.
    let attempted = dead.iter().filter(|row| row["attempts"] != json!([])).count();
    assert_eq!(matter.notice.count as usize, attempted, "{dead:?}");
    resolve(&server.app, matter.id(), found(None)).await.expect("there is one outcome");
    // Another one opens it again.
    payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 100)).await.expect(201);
    deliver(&server, &mut dispatcher).await;
    for _ in 0..3 {
        server.pass(8 * DAY).await;
        deliver(&server, &mut dispatcher).await;
    }
    assert_eq!(server.matter().await.id(), matter.id());
    // A platform that takes its endpoint away has given them up itself.
    let count = server.matter().await.notice.count;
    payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 100)).await.expect(201);
    deliver(&server, &mut dispatcher).await;
    payer.client.patch("/config", &json!({ "webhookEndpoint": null })).await.expect(200);
    deliver(&server, &mut dispatcher).await;
    assert_eq!(server.matter().await.notice.count, count);
    server.verify();
}
