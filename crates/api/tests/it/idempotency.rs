//! The idempotency key (design decision 9; contract 8; reliability 6).

use domain::time::Timestamp;
use domain::token::{Permission, Permissions};
use ports::clock::Clock as _;
use serde_json::{Value, json};
use store::error::StoreError;

use crate::pay::{Payer, from, sending, to, transfer};
use crate::support::{Answer, Call, Server, text};

/// Checks that `again` is the first answer once more.
#[track_caller]
fn replayed(first: &Answer, again: &Answer) {
    assert_eq!(first.status, again.status, "{}", again.body);
    assert_eq!(first.bytes, again.bytes, "not byte for byte");
    assert!(!first.headers.contains_key("idempotent-replayed"));
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(first.headers["content-type"], again.headers["content-type"]);
}

/// Checks that an answer is a first one.
#[track_caller]
fn fresh(answer: &Answer, status: u16) -> &Value {
    assert!(!answer.headers.contains_key("idempotent-replayed"), "{}", answer.body);
    answer.expect(status)
}

const DAY_MILLIS: i64 = 86_400_000;

#[tokio::test]
async fn a_repeat_gets_the_first_answer_and_pays_once() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    let body = transfer(&payer.usd, &bank, 400);
    let first = payer.client.post_once("/transfer-out", "k1", &body).await;
    fresh(&first, 201);
    server.pass(1_000).await;
    for _ in 0..3 {
        // The first answer says PENDING, although the transfer is complete by now.
        replayed(&first, &payer.client.post_once("/transfer-out", "k1", &body).await);
    }
    assert_eq!(payer.balance().await, 600);
    // Whatever the body.
    for other in [
        transfer(&payer.usd, &bank, 500),
        transfer(&payer.usd, "x", -1),
        json!({}),
        json!({ "amount": "x" }),
    ] {
        replayed(&first, &payer.client.post_once("/transfer-out", "k1", &other).await);
    }
    let broken = Call::raw("{").header("content-type", "application/json").key("k1");
    replayed(&first, &payer.client.send("POST", "/transfer-out", broken).await);
    assert_eq!(payer.balance().await, 600);
    let second = payer.client.post_once("/transfer-out", "k2", &body).await;
    assert_ne!(fresh(&second, 201)["id"], first.body["id"]);
    assert_eq!(payer.balance().await, 200);
    server.verify();
}

/// A newcomer who sends a second payment under the key of the first one can see that it was not
/// made.
#[tokio::test]
async fn a_repeat_with_another_body_says_so() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    let body = transfer(&payer.usd, &bank, 400);
    let send = async |body: String| {
        let call = Call::raw(body).header("content-type", "application/json").key("k");
        payer.client.send("POST", "/transfer-out", call).await
    };
    let first = send(body.to_string()).await;
    fresh(&first, 201);
    assert!(!first.headers.contains_key("idempotency-body-mismatch"));
    // Spaces and the order of fields are no other body.
    let (source, destination) = (&body["source"], &body["destination"]);
    let turned =
        format!("{{ \"amount\": 4e2, \"destination\": {destination}, \"source\":{source} }}");
    for same in [body.to_string(), turned] {
        let again = send(same).await;
        replayed(&first, &again);
        assert!(!again.headers.contains_key("idempotency-body-mismatch"));
    }
    for other in [transfer(&payer.usd, &bank, 401).to_string(), "{}".to_owned(), "{".to_owned()] {
        let again = send(other).await;
        replayed(&first, &again);
        assert_eq!(again.headers["idempotency-body-mismatch"], "true");
    }
    // A refusal is a first answer too.
    let refused = payer.client.post_once("/quotes", "k", &json!({})).await;
    fresh(&refused, 400);
    let again = payer.client.post_once("/quotes", "k", &json!({ "source": 1 })).await;
    replayed(&refused, &again);
    assert_eq!(again.headers["idempotency-body-mismatch"], "true");
    assert_eq!(payer.balance().await, 600);
    server.verify();
}

#[tokio::test]
async fn a_body_that_may_be_left_out_is_the_empty_one() {
    let server = Server::new();
    let client = server.platform().await;
    let path = "/transactions/Transaction:01900000-0000-7000-8000-000000000000/approve";
    let none = client.send("POST", path, Call::default().key("k")).await;
    fresh(&none, 404);
    let empty = client.post_once(path, "k", &json!({})).await;
    replayed(&none, &empty);
    assert!(!empty.headers.contains_key("idempotency-body-mismatch"));
    let other = json!({ "receiverCustomerInfo": { "TAX_ID": "1" } });
    let other = client.post_once(path, "k", &other).await;
    assert_eq!(other.headers["idempotency-body-mismatch"], "true");
}

#[tokio::test]
async fn a_key_is_a_new_one_after_thirty_days() {
    let server = Server::new();
    let client = server.platform().await;
    let body = json!({ "name": "t", "permissions": ["VIEW"] });
    let first = client.post_once("/tokens", "k", &body).await;
    server.pass(1_000).await;
    server.pass(30 * DAY_MILLIS - 1_000).await;
    let again = client.post_once("/tokens", "k", &body).await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    server.pass(2_000).await;
    let outdated = async || {
        let all = Timestamp::from_millis(i64::MAX);
        let read = server.app.store().read(move |view| view.outdated_answers(all, 10)).await;
        Result::<Vec<_>, StoreError>::expect(read, "a read").len()
    };
    assert_eq!(outdated().await, 0, "it was removed");
    let new = client.post_once("/tokens", "k", &body).await;
    assert_ne!(fresh(&new, 201)["id"], first.body["id"]);
    assert_eq!(outdated().await, 1);
    // What the journal says of the answers of a day goes with the last of them.
    let days = async || {
        let tomorrow = Timestamp::from_millis(server.app.server_now().millis() + DAY_MILLIS);
        let read = server.app.store().read(move |view| view.outdated_days(tomorrow, 10)).await;
        Result::<Vec<_>, StoreError>::expect(read, "a read").len()
    };
    assert_eq!(days().await, 2);
    server.pass(DAY_MILLIS).await;
    assert_eq!(days().await, 1);
    server.verify();
}

/// A repeat of a payment under its key, `first` days ahead of the right time when it was made and
/// `then` days ahead of it when it is repeated.
async fn check_wrong_clock(first: i64, then: i64, restarts: bool) {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    let body = transfer(&payer.usd, &bank, 400);
    server.set_clock(first * DAY_MILLIS).await;
    let answer = payer.client.post_once("/transfer-out", "k", &body).await;
    fresh(&answer, 201);
    server.pass(1_000).await;
    let (server, client) = if restarts {
        server.clock.set(server.clock.machine().plus_millis((then - first) * DAY_MILLIS));
        let server = server.restart();
        // The clock of tests lives on, and doubts the jump at first.
        server.pass(0).await;
        server.pass(11_000).await;
        let client = server.client_again(&payer.client);
        (server, client)
    } else {
        server.set_clock((then - first) * DAY_MILLIS).await;
        (server, payer.client)
    };
    for _ in 0..3 {
        server.pass(2_000).await;
        replayed(&answer, &client.post_once("/transfer-out", "k", &body).await);
    }
    assert_eq!(client.balance(&payer.usd).await, 600);
    server.verify();
}

#[tokio::test]
async fn a_wrong_clock_pays_no_key_twice() {
    // Ahead, ahead and set right, behind and set right.
    for (first, then) in [(0, 31), (40, 0), (-40, 0), (-4_000, 31)] {
        check_wrong_clock(first, then, false).await;
    }
    for (first, then) in [(0, 4_000), (-40, 0)] {
        check_wrong_clock(first, then, true).await;
    }
}

#[tokio::test]
async fn a_key_is_a_new_one_after_as_many_days_of_the_journal() {
    const HOUR_MILLIS: i64 = 3_600_000;
    let server = Server::new();
    let client = server.platform().await;
    let body = json!({ "name": "t", "permissions": ["VIEW"] });
    let first = client.post_once("/tokens", "k", &body).await;
    // The server itself runs for some hours only.
    let is_new = async |days: i64| {
        for _ in 0..days {
            server.set_clock(DAY_MILLIS).await;
            client.post("/tokens", &body).await.expect(201);
        }
        server.pass(HOUR_MILLIS).await;
        server.pass(1_000).await;
        let again = client.post_once("/tokens", "k", &body).await;
        again.body["id"] != first.body["id"]
    };
    assert!(!is_new(30).await, "the first and the last day are not whole");
    assert!(is_new(1).await);
    server.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_at_once_on_one_key_pay_once() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    for round in 0..4 {
        let key = format!("round-{round}");
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..16 {
            // Half of them with another amount: the first one decides.
            let body = transfer(&payer.usd, &bank, 100 + number % 2);
            let (client, key) = (payer.client.clone(), key.clone());
            calls.spawn(async move { client.post_once("/transfer-out", &key, &body).await });
        }
        let answers = calls.join_all().await;
        let is_replay = |answer: &&Answer| answer.headers.contains_key("idempotent-replayed");
        let first: Vec<_> = answers.iter().filter(|answer| !is_replay(answer)).collect();
        assert_eq!(first.len(), 1, "one effect");
        for again in answers.iter().filter(is_replay) {
            replayed(first[0], again);
        }
    }
    assert_eq!(payer.client.count("/transactions?type=OUTGOING").await, 4);
    server.pass(1_000).await;
    server.verify();
}

#[tokio::test]
async fn every_post_that_creates_or_executes_honours_the_key() {
    let server = Server::new();
    let payer = Payer::with(&server, 300_000).await;
    let client = &payer.client;
    let (bank, eur) = (payer.bank("789").await, payer.account("EUR").await);
    let quote = client.quote(&sending(&from(&payer.usd), &to(&eur), 100_000)).await;
    let deposited = client
        .quote(&sending(&crate::pay::deposit("USD", &payer.customer), &to(&eur), 5_000))
        .await;
    let account = crate::support::usd_external(Some(&payer.customer), "777");
    let own = crate::support::usd_external(None, "777");
    let uma = client.uma_address(&payer.customer).await;
    let invitation = client.post("/invitations", &json!({ "inviterUma": uma })).await;
    let code = text(&invitation.expect(201)["code"]);
    let grace = json!({ "customerType": "INDIVIDUAL", "umaAddress": "$grace@uma.test" });
    client.post("/customers", &grace).await.expect(201);
    let claim = json!({ "inviteeUma": "$grace@uma.test" });
    let revoked = client.post("/invitations", &json!({ "inviterUma": uma })).await;
    let revoked = text(&revoked.expect(201)["code"]);
    for (path, body, status) in [
        ("/invitations".to_owned(), json!({ "inviterUma": uma }), 201),
        (format!("/invitations/{code}/claim"), claim, 200),
        (format!("/invitations/{revoked}/cancel"), json!({}), 200),
        ("/transfer-out".to_owned(), transfer(&payer.usd, &bank, 1), 201),
        ("/transfer-in".to_owned(), transfer(&bank, &payer.usd, 1), 201),
        ("/quotes".to_owned(), sending(&from(&payer.usd), &to(&eur), 5_000), 201),
        (format!("/quotes/{}/execute", text(&quote["id"])), json!({}), 200),
        (format!("/sandbox/internal-accounts/{}/fund", payer.usd), json!({ "amount": 5 }), 200),
        (
            "/sandbox/send".to_owned(),
            json!({ "quoteId": deposited["id"], "currencyCode": "USD" }),
            200,
        ),
        ("/customers".to_owned(), json!({ "customerType": "INDIVIDUAL", "fullName": "B" }), 201),
        ("/customers/external-accounts".to_owned(), account, 201),
        ("/platform/external-accounts".to_owned(), own, 201),
        ("/tokens".to_owned(), json!({ "name": "t", "permissions": ["VIEW"] }), 201),
    ] {
        // One key for all: another path is another request.
        let first = client.post_once(&path, "the key", &body).await;
        fresh(&first, status);
        let again = client.post_once(&path, "the key", &body).await;
        // The one answer whose repeat leaves something out: `a_secret_is_in_the_first_answer_only`.
        if path == "/tokens" {
            assert_eq!(again.headers["idempotent-replayed"], "true");
        } else {
            replayed(&first, &again);
        }
    }
    server.pass(1_000).await;
    server.verify();
}

#[tokio::test]
async fn a_secret_is_in_the_first_answer_only() {
    let server = Server::new();
    let client = server.platform().await;
    let body = json!({ "name": "t", "permissions": ["VIEW"] });
    let first = client.post_once("/tokens", "k", &body).await;
    let mut shown = fresh(&first, 201).clone();
    let secret = shown.as_object_mut().expect("an object").remove("clientSecret").expect("one");
    let (id, secret) = (text(&shown["clientId"]), text(&secret));
    // Also to a token that could not have asked for it, and with another body.
    let weaker = server.token_with(client.platform, Permission::Manage).await;
    for (asker, body) in [(&client, &body), (&client, &json!({})), (&weaker, &body)] {
        let again = asker.post_once("/tokens", "k", body).await;
        assert_eq!(again.headers["idempotent-replayed"], "true");
        assert_eq!(*again.expect(201), shown);
        assert_eq!(again.headers["content-type"], first.headers["content-type"]);
    }
    server.client(client.platform, &id, &secret).get("/config").await.expect(200);
    assert_eq!(client.count("/tokens").await, 3);
    // What is kept is sealed, and has no secret even when it is opened.
    let keyring = server.app.store().keyring();
    let scope = store::idempotency::scope(keyring, client.platform, "POST", "/tokens", "k");
    let since = Timestamp::from_millis(0);
    let kept = server.app.store().read(move |view| view.answer(&scope, since)).await;
    let kept = kept.expect("a read").expect("an answer");
    assert_eq!(kept.status, 201);
    assert_eq!(serde_json::from_slice::<Value>(&kept.body).expect("JSON"), shown);
    server.verify();
}

#[tokio::test]
async fn tokens_asked_for_at_once_under_one_key_have_one_secret() {
    let server = Server::new();
    let client = server.platform().await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let client = client.clone();
        calls.spawn(async move {
            let body = json!({ "name": "t", "permissions": ["VIEW"] });
            client.post_once("/tokens", "k", &body).await
        });
    }
    let answers = calls.join_all().await;
    let has_secret = |answer: &&Answer| answer.body.get("clientSecret").is_some();
    assert_eq!(answers.iter().filter(has_secret).count(), 1);
    for answer in &answers {
        let is_replay = answer.headers.contains_key("idempotent-replayed");
        assert_eq!(has_secret(&answer), !is_replay, "{}", answer.body);
        assert_eq!(answer.body["id"], answers[0].body["id"]);
    }
}

#[tokio::test]
async fn a_refusal_is_an_answer_too() {
    let server = Server::new();
    let payer = Payer::with(&server, 10).await;
    let bank = payer.bank("789").await;
    let body = transfer(&payer.usd, &bank, 400);
    // Too little money; then there is enough, but the key has its answer.
    let first = payer.client.post_once("/transfer-out", "poor", &body).await;
    first.refused(400, "INSUFFICIENT_BALANCE");
    payer.client.fund(&payer.usd, 1_000).await;
    replayed(&first, &payer.client.post_once("/transfer-out", "poor", &body).await);
    assert_eq!(payer.balance().await, 1_010);
    fresh(&payer.client.post_once("/transfer-out", "rich", &body).await, 201);
    // Fields that are not valid; then they are.
    let first = payer.client.post_once("/transfer-out", "bad", &json!({ "amount": 1 })).await;
    first.refused(400, "INVALID_INPUT");
    replayed(&first, &payer.client.post_once("/transfer-out", "bad", &body).await);
    // No JSON at all.
    let broken = Call::raw("{").header("content-type", "application/json").key("broken");
    let first = payer.client.send("POST", "/transfer-out", broken).await;
    first.refused(400, "INVALID_INPUT");
    replayed(&first, &payer.client.post_once("/transfer-out", "broken", &body).await);
    // Something that is not there.
    let unknown = transfer(&payer.usd, "ExternalAccount:0199dccc-4a80-7000-8000-000000000001", 1);
    let first = payer.client.post_once("/transfer-out", "unknown", &unknown).await;
    first.refused(404, "ACCOUNT_NOT_FOUND");
    replayed(&first, &payer.client.post_once("/transfer-out", "unknown", &body).await);
    assert_eq!(payer.balance().await, 610);
    server.pass(1_000).await;
    server.verify();
}

#[tokio::test]
async fn executing_with_a_key_answers_the_same_again() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let eur = payer.account("EUR").await;
    let quote = payer.client.quote(&sending(&from(&payer.usd), &to(&eur), 100_000)).await;
    let path = format!("/quotes/{}/execute", text(&quote["id"]));
    let execute = |key: &'static str| {
        let (client, path) = (payer.client.clone(), path.clone());
        async move { client.send("POST", &path, Call::default().key(key)).await }
    };
    let poor = execute("poor").await;
    poor.refused(400, "INSUFFICIENT_BALANCE");
    payer.client.fund(&payer.usd, 100_000).await;
    replayed(&poor, &execute("poor").await);
    let first = execute("rich").await;
    assert_eq!(fresh(&first, 200)["status"], "COMPLETED");
    replayed(&first, &execute("rich").await);
    let late = execute("late").await;
    late.refused(409, "CONFLICT");
    assert_eq!(late.headers["x-should-retry"], "false");
    let again = execute("late").await;
    replayed(&late, &again);
    assert_eq!(again.headers["x-should-retry"], "false");
    let unknown = "/quotes/x/execute";
    let first = payer.client.send("POST", unknown, Call::default().key("k")).await;
    first.refused(404, "QUOTE_NOT_FOUND");
    replayed(&first, &payer.client.send("POST", unknown, Call::default().key("k")).await);
    server.verify();
}

#[tokio::test]
async fn a_key_belongs_to_its_platform_method_and_path() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let other = Payer::with(&server, 1_000).await;
    let (bank, their_bank) = (payer.bank("789").await, other.bank("789").await);
    let body = transfer(&payer.usd, &bank, 1);
    fresh(&payer.client.post_once("/transfer-out", "k", &body).await, 201);
    let theirs = transfer(&other.usd, &their_bank, 1);
    fresh(&other.client.post_once("/transfer-out", "k", &theirs).await, 201);
    let back = transfer(&bank, &payer.usd, 1);
    fresh(&payer.client.post_once("/transfer-in", "k", &back).await, 201);
    for account in ["USD", "EUR"] {
        let account = payer.account(account).await;
        let path = format!("/sandbox/internal-accounts/{account}/fund");
        let answer = payer.client.post_once(&path, "k", &json!({ "amount": 5 })).await;
        assert_eq!(fresh(&answer, 200)["id"], account);
    }
    let path = format!("/customers/{}", payer.customer);
    let change = Call::json(&json!({ "customerType": "INDIVIDUAL" })).key("k");
    fresh(&payer.client.send("PATCH", &path, change).await, 200);
    server.pass(1_000).await;
    server.verify();
}

#[tokio::test]
async fn two_spellings_of_a_key_are_one() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    let body = transfer(&payer.usd, &bank, 1);
    let first = payer.client.post_once("/transfer-out", "8e03978e-40d5", &body).await;
    fresh(&first, 201);
    replayed(&first, &payer.client.post_once("/transfer-out", "\"8e03978e-40d5\"", &body).await);
    // Case and what stands around it matter.
    fresh(&payer.client.post_once("/transfer-out", "8E03978E-40D5", &body).await, 201);
    fresh(&payer.client.post_once("/transfer-out", "8e03978e-40d5-", &body).await, 201);
    fresh(&payer.client.post_once("/transfer-out", "\"8e03978e-40d5", &body).await, 201);
    for key in ["x".to_owned(), "x".repeat(255), "a b".to_owned(), "~!@#$%^&*()".to_owned()] {
        let first = payer.client.post_once("/transfer-out", &key, &body).await;
        fresh(&first, 201);
        replayed(&first, &payer.client.post_once("/transfer-out", &key, &body).await);
    }
    server.pass(1_000).await;
    server.verify();
}

#[tokio::test]
async fn bad_keys_are_refused_and_pay_nothing() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    let body = transfer(&payer.usd, &bank, 1);
    let long = "x".repeat(256);
    for key in ["", "\"\"", &long, "\t", "a\tb", "clé"] {
        let answer = payer.client.post_once("/transfer-out", key, &body).await;
        let details = answer.refused(400, "INVALID_INPUT");
        assert_eq!(details["field"], "Idempotency-Key", "{key:?}");
    }
    let twice = Call::json(&body).key("a").key("b");
    let answer = payer.client.send("POST", "/transfer-out", twice).await;
    assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "Idempotency-Key");
    let twice = Call::json(&body).key("a").key("a");
    payer.client.send("POST", "/transfer-out", twice).await.refused(400, "INVALID_INPUT");
    assert_eq!(payer.balance().await, 1_000);
    fresh(&payer.client.post_once("/transfer-out", "a", &body).await, 201);
    server.verify();
}

#[tokio::test]
async fn a_key_outlives_a_restart_and_a_month() {
    let server = Server::new();
    let platform = server.platform().await.platform;
    let body = json!({ "name": "t", "permissions": ["VIEW", "TRANSACT", "MANAGE"] });
    let made = server.token(platform, Permissions::ALL).await.post("/tokens", &body).await;
    let (id, secret) = (text(&made.body["clientId"]), text(&made.body["clientSecret"]));
    let client = server.client(platform, &id, &secret);
    let customer = client.customer().await;
    let usd = client.funded(&customer, "USD", 1_000).await;
    let bank = client.usd_external(&customer, "789").await;
    let paid = client.post_once("/transfer-out", "k", &transfer(&usd, &bank, 400)).await;
    let refused = client.post_once("/transfer-out", "r", &transfer(&usd, &bank, 4_000)).await;
    let server = server.restart();
    let client = server.client(platform, &id, &secret);
    replayed(&paid, &client.post_once("/transfer-out", "k", &json!({})).await);
    replayed(&refused, &client.post_once("/transfer-out", "r", &json!({})).await);
    server.pass(30 * 24 * 3_600_000).await;
    replayed(&paid, &client.post_once("/transfer-out", "k", &json!({})).await);
    assert_eq!(client.balance(&usd).await, 600);
    server.verify();
}

#[tokio::test]
async fn a_key_outlives_the_token_and_permissions_come_first() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let platform = payer.client.platform;
    let bank = payer.bank("789").await;
    let body = transfer(&payer.usd, &bank, 1);
    let first = payer.client.post_once("/transfer-out", "k", &body).await;
    let rotated = server.token_with(platform, Permission::Transact).await;
    replayed(&first, &rotated.post_once("/transfer-out", "k", &body).await);
    let viewer = server.token_with(platform, Permission::View).await;
    let answer = viewer.post_once("/transfer-out", "k", &body).await;
    answer.refused(403, "FORBIDDEN");
    assert!(!answer.headers.contains_key("idempotent-replayed"));
    let answer = server.anonymous().post_once("/transfer-out", "k", &body).await;
    answer.expect(401);
    // Nor is a refusal for want of permission kept as an answer.
    viewer.post_once("/transfer-out", "k2", &body).await.refused(403, "FORBIDDEN");
    fresh(&payer.client.post_once("/transfer-out", "k2", &body).await, 201);
    assert_eq!(payer.balance().await, 998);
    server.verify();
}
