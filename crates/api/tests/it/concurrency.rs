//! Many clients at once, and clients that go away (reliability F16, F17; design decision 15).

use std::future::poll_fn;
use std::task::Poll;

use domain::platform::Mode;
use serde_json::json;
use tokio::task::JoinSet;

use crate::pay::{Payer, from, sending, to, transfer};
use crate::support::{Answer, Call, Client, Server, text};

/// How many answers have each status, after checking the code of the others.
#[track_caller]
fn counts(answers: &[Answer], good: u16, (bad, code): (u16, &str)) -> (usize, usize) {
    let (fine, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status == good);
    for answer in &refused {
        answer.refused(bad, code);
    }
    (fine.len(), refused.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_account_is_drained_to_the_last_unit_and_no_further() {
    const UNITS: i64 = 100;
    let server = Server::new();
    let payer = Payer::with(&server, UNITS).await;
    let bank = payer.bank("789").await;
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let (client, body) = (payer.client.clone(), transfer(&payer.usd, &bank, 1));
        tasks.spawn(async move {
            let mut answers = Vec::new();
            for _ in 0..6 {
                answers.push(client.post("/transfer-out", &body).await);
            }
            answers
        });
    }
    let answers: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let (paid, refused) = counts(&answers, 201, (400, "INSUFFICIENT_BALANCE"));
    assert_eq!((paid, refused), (100, 92));
    assert_eq!(payer.balance().await, 0);
    server.verify();
    server.pass(1_000).await;
    assert_eq!(payer.client.count("/transactions?type=OUTGOING&status=COMPLETED").await, 100);
    assert_eq!(payer.balance().await, 0);
    server.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn money_goes_round_and_none_is_lost() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let other = payer.client.customer().await;
    let theirs = payer.client.account(Some(&other), "USD").await;
    let (bad, good) = (payer.bank("003").await, payer.bank("789").await);
    let mut tasks = JoinSet::new();
    for number in 0..8_i64 {
        let client = payer.client.clone();
        let (here, there) = (payer.usd.clone(), theirs.clone());
        let bank = if number % 2 == 0 { bad.clone() } else { good.clone() };
        tasks.spawn(async move {
            for round in 1..8 {
                let (source, target) =
                    if round % 2 == 0 { (&there, &here) } else { (&here, &there) };
                let mut body = sending(&from(source), &to(target), 10 * round);
                body["immediatelyExecute"] = json!(true);
                client.post("/quotes", &body).await;
                client.post("/transfer-out", &transfer(&here, &bank, round)).await;
                client.post("/transfer-in", &transfer(&bank, &here, round)).await;
            }
        });
    }
    let moving = server.app.clone();
    let jobs = async {
        for _ in 0..20 {
            server.clock.advance_millis(50);
            service::jobs::step(&moving).await.expect("a step");
        }
    };
    let (_, ()) = tokio::join!(tasks.join_all(), jobs);
    server.pass(60_000).await;
    for status in ["PENDING", "PROCESSING"] {
        assert_eq!(payer.client.count(&format!("/transactions?status={status}")).await, 0);
    }
    server.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_executions_of_a_quote_are_one() {
    for suffix in [None, Some("789")] {
        let server = Server::new();
        let payer = Payer::with(&server, 1_000_000).await;
        let destination = match suffix {
            Some(suffix) => payer.bank(suffix).await,
            None => payer.account("EUR").await,
        };
        let body = sending(&from(&payer.usd), &to(&destination), 1_000);
        let quote = payer.client.quote(&body).await;
        let mut tasks = JoinSet::new();
        for _ in 0..20 {
            let (client, quote) = (payer.client.clone(), quote.clone());
            tasks.spawn(async move { client.execute(&quote).await });
        }
        let answers = tasks.join_all().await;
        assert_eq!(counts(&answers, 200, (409, "CONFLICT")), (1, 19));
        assert_eq!(payer.balance().await, 999_000);
        server.pass(1_000).await;
        payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
        assert_eq!(payer.balance().await, 999_000);
        server.verify();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_links_for_a_name_are_of_one_customer() {
    let server = Server::new();
    let client = server.platform_with(Mode::Sandbox, false).await;
    for name in ["first", "second", "third"] {
        let path = format!("/customers/kyc-link?platformCustomerId={name}");
        let mut tasks = JoinSet::new();
        for _ in 0..20 {
            let (client, path) = (client.clone(), path.clone());
            tasks.spawn(async move { client.get(&path).await });
        }
        let links = tasks.join_all().await;
        let link = links[0].expect(200);
        for other in &links {
            assert_eq!(other.expect(200), link);
        }
        let of_name = format!("/customers?platformCustomerId={name}");
        assert_eq!(client.count(&of_name).await, 1);
        // A name can have a customer again once its first one was deleted.
        let customer = format!("/customers/{}", text(&link["customerId"]));
        client.delete(&customer).await.expect(200);
        let next = client.get(&path).await.expect(200).clone();
        assert_ne!(next["customerId"], link["customerId"]);
        assert_eq!(client.count(&of_name).await, 1);
    }
    server.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_deposits_for_a_quote_are_one() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let eur = payer.account("EUR").await;
    let source = crate::pay::deposit("USD", &payer.customer);
    let quote = payer.client.quote(&sending(&source, &to(&eur), 10_000)).await;
    let mut tasks = JoinSet::new();
    for number in 0..20 {
        let (client, quote) = (payer.client.clone(), quote.clone());
        tasks.spawn(async move { client.deposit(&quote, Some(10_000 + number % 2)).await });
    }
    let answers = tasks.join_all().await;
    assert_eq!(counts(&answers, 200, (409, "CONFLICT")), (1, 19));
    let ends = payer.client.quote_again(&quote).await;
    let (usd, eur) = (payer.balance().await, payer.client.balance(&eur).await);
    match ends["status"].as_str() {
        Some("COMPLETED") => {
            assert_eq!((usd, json!(eur)), (0, quote["totalReceivingAmount"].clone()))
        }
        other => assert_eq!((other, usd, eur), (Some("FAILED"), 10_001, 0)),
    }
    server.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn expiry_and_execution_exclude_each_other() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000_000).await;
    let eur = payer.account("EUR").await;
    let body = sending(&from(&payer.usd), &to(&eur), 1_000);
    let mut executed = 0;
    for round in 0..12 {
        let quote = payer.client.quote(&body).await;
        server.clock.advance_millis(299_999);
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let (client, quote) = (payer.client.clone(), quote.clone());
            tasks.spawn(async move { client.execute(&quote).await });
        }
        // The last millisecond passes while they are on their way, sooner or later.
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        server.pass(1).await;
        let answers = tasks.join_all().await;
        let wins = answers.iter().filter(|answer| answer.status == 200).count();
        assert!(wins <= 1);
        server.pass(0).await;
        let (expected, ends) =
            if wins == 1 { ("COMPLETED", "COMPLETED") } else { ("EXPIRED", "EXPIRED") };
        payer.client.stands_at(&quote, expected, ends).await;
        executed += i64::try_from(wins).expect("a small number");
    }
    assert_eq!(payer.balance().await, 1_000_000 - 1_000 * executed);
    server.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_quotes_on_one_balance_cannot_both_be_paid() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let eur = payer.account("EUR").await;
    let body = sending(&from(&payer.usd), &to(&eur), 600);
    let (one, two) = (payer.client.quote(&body).await, payer.client.quote(&body).await);
    let (first, second) = tokio::join!(payer.client.execute(&one), payer.client.execute(&two));
    let answers = [first, second];
    assert_eq!(counts(&answers, 200, (400, "INSUFFICIENT_BALANCE")), (1, 1));
    assert_eq!(payer.balance().await, 400);
    server.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_external_account_given_at_once_is_made_once() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let details = json!({
            "destinationType": "EXTERNAL_ACCOUNT_DETAILS",
            "externalAccountDetails": crate::support::usd_external(None, "789"),
        });
        let body = sending(&from(&payer.usd), &details, 10);
        let client = payer.client.clone();
        tasks.spawn(async move { client.post("/quotes", &body).await });
    }
    let answers = tasks.join_all().await;
    let account = answers[0].expect(201)["destination"]["accountId"].clone();
    for answer in &answers {
        assert_eq!(answer.expect(201)["destination"]["accountId"], account);
    }
    assert_eq!(payer.client.count("/customers/external-accounts").await, 1);
    server.verify();
}

/// Sends a request and goes away after it was polled this many times. Whether an answer came.
pub async fn leave(client: &Client, path: &str, call: Call, polls: usize) -> bool {
    let mut request = Box::pin(client.send("POST", path, call));
    for _ in 0..polls {
        let ready = poll_fn(|context| Poll::Ready(request.as_mut().poll(context).is_ready())).await;
        if ready {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_the_whole_effect_or_none() {
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let bank = payer.bank("789").await;
    let body = transfer(&payer.usd, &bank, 100);
    let mut effects = 0;
    for polls in 1..40 {
        let key = format!("k{polls}");
        let call = Call::json(&body).key(&key);
        let answered = leave(&payer.client, "/transfer-out", call, polls).await;
        // A later change is behind it in the commit queue: what was left behind is done or never
        // will be.
        payer.client.post("/customers", &json!({ "customerType": "INDIVIDUAL" })).await;
        let made = payer.client.count("/transactions?type=OUTGOING").await;
        assert!(made == effects || made == effects + 1);
        assert!(!answered || made == effects + 1);
        assert_eq!(payer.balance().await, 10_000 - 100 * i64::try_from(made).expect("few"));
        // A client that comes back with the key has one effect in all.
        let again = payer.client.post_once("/transfer-out", &key, &body).await;
        again.expect(201);
        let was_done = made == effects + 1;
        assert_eq!(again.headers.contains_key("idempotent-replayed"), was_done);
        effects += 1;
        assert_eq!(payer.client.count("/transactions?type=OUTGOING").await, effects);
    }
    server.verify();
    server.pass(1_000).await;
    assert_eq!(payer.balance().await, 10_000 - 3_900);
    server.verify();
}

#[tokio::test]
async fn a_client_that_goes_away_while_executing_leaves_the_whole_effect_or_none() {
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let (eur, bank) = (payer.account("EUR").await, payer.bank("789").await);
    let mut spent = 0;
    for polls in 1..60 {
        let destination = if polls % 2 == 0 { &eur } else { &bank };
        let quote = payer.client.quote(&sending(&from(&payer.usd), &to(destination), 100)).await;
        let path = format!("/quotes/{}/execute", text(&quote["id"]));
        leave(&payer.client, &path, Call::default(), polls).await;
        payer.client.post("/customers", &json!({ "customerType": "INDIVIDUAL" })).await;
        let status = text(&payer.client.quote_again(&quote).await["status"]);
        let transaction = text(&payer.client.transaction_of(&quote).await["status"]);
        assert_eq!(status, transaction);
        if status != "PENDING" {
            spent += 100;
        }
        assert_eq!(payer.balance().await, 10_000 - spent);
    }
    assert!(spent > 0);
    server.pass(300_000).await;
    server.verify();
}
