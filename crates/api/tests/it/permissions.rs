//! Who may do what, and who is unknown (specification 5; design decision 8).

use base64::Engine as _;
use domain::platform::Mode;
use domain::token::{Permission, Permissions};
use serde_json::{Value, json};
use service::webhooks::dispatch::Dispatcher;

use crate::deliveries::deliver;
use crate::support::{Answer, Call, Client, Server, text, usd_external};

/// An operation of the OpenAPI document, on a resource that does not exist.
struct Operation {
    method: String,
    path: String,
    any_of: Vec<String>,
}

/// Every operation.
fn operations(server: &Server) -> Vec<Operation> {
    let document = api::document(&server.app);
    let mut all = Vec::new();
    for (template, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let path = template
                .replace("{customerId}", "Customer:00000000-0000-7000-8000-000000000000")
                .replace("{tokenId}", "Token:00000000-0000-7000-8000-000000000000")
                .replace("{quoteId}", "Quote:00000000-0000-7000-8000-000000000000")
                .replace("{transactionId}", "Transaction:00000000-0000-7000-8000-000000000000")
                .replace("{jobId}", "Job:00000000-0000-7000-8000-000000000000")
                .replace("{deliveryId}", "Delivery:00000000-0000-7000-8000-000000000000")
                .replace("{invitationCode}", "aaaaaaaaaaaaaaaa")
                .replace("{receiverUmaAddress}", "$unknown@uma.test")
                .replace("{accountId}", "InternalAccount:00000000-0000-7000-8000-000000000348");
            assert!(!path.contains('{'), "{path}: say what stands there");
            let any_of = operation["x-required-permission"].as_array();
            let any_of = any_of.unwrap_or_else(|| panic!("{method} {path} needs no permission"));
            assert!(!any_of.is_empty(), "{method} {path}");
            let any_of = any_of.iter().map(text).collect();
            all.push(Operation { method: method.to_uppercase(), path, any_of });
        }
    }
    assert!(all.len() >= 39, "{} operations", all.len());
    all
}

impl Operation {
    async fn call(&self, client: &Client) -> Answer {
        let call = match self.method.as_str() {
            "POST" | "PATCH" => Call::json(&json!({})),
            _ => Call::default(),
        };
        client.send(&self.method, &self.path, call).await
    }
}

/// Fails unless the answer is the refusal of an unknown caller, which says nothing about why.
#[track_caller]
fn unknown(answer: &Answer, what: &str) {
    assert_eq!(answer.status, 401, "{what}: {}", answer.body);
    assert_eq!(answer.body["code"], "UNAUTHORIZED", "{what}");
    let challenge = answer.headers["www-authenticate"].to_str().expect("text");
    assert!(challenge.starts_with("Basic realm="), "{what}: {challenge}");
}

#[tokio::test]
async fn no_one_does_anything_without_valid_credentials() {
    let server = Server::new();
    let client = server.platform().await;
    let body = json!({ "name": "x", "permissions": ["VIEW", "TRANSACT", "MANAGE"] });
    let made = client.post("/tokens", &body).await.expect(201).clone();
    let (id, secret) = (text(&made["clientId"]), text(&made["clientSecret"]));
    let revoked = client.post("/tokens", &body).await.expect(201).clone();
    client.delete(&format!("/tokens/{}", text(&revoked["id"]))).await.expect(204);
    let as_ = |id: &str, secret: &str| server.client(client.platform, id, secret);
    let strangers = [
        ("anonymous", server.anonymous()),
        ("a wrong secret", as_(&id, &"0".repeat(64))),
        ("a secret cut short", as_(&id, &secret[..63])),
        ("a secret in capitals", as_(&id, &secret.to_uppercase())),
        ("an empty secret", as_(&id, "")),
        ("an unknown id", as_(&"0".repeat(32), &secret)),
        ("the token's own id", as_(&text(&made["id"]), &secret)),
        ("nothing", as_("", "")),
        ("a revoked token", as_(&text(&revoked["clientId"]), &text(&revoked["clientSecret"]))),
    ];
    for operation in operations(&server) {
        // Else they would be asked to wait.
        server.clock.advance_millis(60_000);
        for (what, stranger) in &strangers {
            let what = format!("{} {} by {what}", operation.method, operation.path);
            unknown(&operation.call(stranger).await, &what);
        }
    }
    as_(&id, &secret).get("/config").await.expect(200);
}

#[tokio::test]
async fn guessing_of_secrets_is_slowed() {
    let server = Server::new();
    let client = server.platform().await;
    let body = json!({ "name": "x", "permissions": ["VIEW"] });
    let made = client.post("/tokens", &body).await.expect(201).clone();
    let (id, secret) = (text(&made["clientId"]), text(&made["clientSecret"]));
    let right = server.client(client.platform, &id, &secret);
    let wrong = server.client(client.platform, &id, &"0".repeat(64));
    let get = async |client: &Client, from: &str| {
        client.send("GET", "/config", Call::default().from(from)).await
    };
    let slowed = |answer: &Answer, seconds: i64| {
        let details = answer.refused(429, "RATE_LIMITED");
        assert_eq!(details["retryAfterSeconds"], seconds);
        assert_eq!(answer.headers["retry-after"], seconds.to_string().as_str());
    };

    // From one address. Missing and unreadable credentials are no guesses.
    for _ in 0..20 {
        unknown(&get(&server.anonymous(), "203.0.113.1").await, "anonymous");
        unknown(&get(&wrong, "203.0.113.1").await, "a guess");
    }
    slowed(&get(&wrong, "203.0.113.1").await, 60);
    slowed(&get(&right, "203.0.113.1").await, 60);
    unknown(&get(&server.anonymous(), "203.0.113.1").await, "anonymous");
    get(&right, "203.0.113.2").await.expect(200);
    // A network of IPv6 is one address, and a guesser has all of them.
    for number in 0..20 {
        unknown(
            &get(&server.client(client.platform, "x", "y"), &format!("2001:db8::{number}")).await,
            "a guess",
        );
    }
    slowed(&get(&right, "2001:db8::ffff").await, 60);
    get(&right, "2001:db8:0:1::1").await.expect(200);

    server.clock.advance_millis(59_000);
    slowed(&get(&right, "203.0.113.1").await, 1);
    server.clock.advance_millis(1_000);
    get(&right, "203.0.113.1").await.expect(200);

    // Of one client, from everywhere: its owner, who has not guessed, is not affected.
    server.clock.advance_millis(60_000);
    for number in 0..20 {
        unknown(&get(&wrong, &format!("198.51.100.{number}")).await, "a guess");
    }
    slowed(&get(&wrong, "198.51.100.100").await, 60);
    slowed(&get(&right, "198.51.100.1").await, 60);
    get(&right, "203.0.113.1").await.expect(200);
    get(&client, "198.51.100.1").await.expect(200);
}

#[tokio::test]
async fn exactly_the_documented_permission_opens_an_operation() {
    let server = Server::new();
    let owner = server.platform().await;
    for bits in 0..8 {
        let held = Permissions::from_bits(bits).expect("a set");
        let client = server.token(owner.platform, held).await;
        for operation in operations(&server) {
            let may = held.iter().any(|one| operation.any_of.iter().any(|any| any == one.name()));
            let answer = operation.call(&client).await;
            let what = format!("{} {} with {held:?}", operation.method, operation.path);
            if may {
                assert!(!matches!(answer.status, 401 | 403), "{what}: {}", answer.body);
            } else {
                let details = answer.refused(403, "FORBIDDEN");
                assert_eq!(details["requiredPermission"], operation.any_of.join(" or "), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn permissions_are_those_of_the_design() {
    let server = Server::new();
    for operation in operations(&server) {
        let Operation { method, path, any_of } = operation;
        let money =
            ["/crypto/", "/quotes", "/transfer-", "/sandbox/", "/transactions", "/invitations"];
        let expected: &[&str] = match method.as_str() {
            "GET" if path.starts_with("/receiver/") => &["VIEW", "TRANSACT"],
            // It makes a customer.
            "GET" if path == "/customers/kyc-link" => &["MANAGE"],
            "GET" if path == "/webhooks/keys" => &["MANAGE"],
            "GET" => &["VIEW"],
            "POST" if path == "/sandbox/webhooks/test" => &["MANAGE"],
            "POST" if money.iter().any(|start| path.starts_with(start)) => &["TRANSACT"],
            _ => &["MANAGE"],
        };
        assert_eq!(any_of, expected, "{method} {path}");
    }
}

fn base64(text: impl AsRef<[u8]>) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[tokio::test]
async fn what_is_not_basic_authentication_is_refused() {
    let server = Server::new();
    let client = server.platform().await;
    let body = json!({ "name": "x", "permissions": ["VIEW"] });
    let made = client.post("/tokens", &body).await.expect(201).clone();
    let (id, secret) = (text(&made["clientId"]), text(&made["clientSecret"]));
    let pair = format!("{id}:{secret}");
    let good = base64(&pair);
    let anonymous = server.anonymous();
    let send = async |header: &str| {
        anonymous.send("GET", "/config", Call::default().header("authorization", header)).await
    };
    for scheme in ["Basic", "basic", "BASIC", "bAsIc"] {
        send(&format!("{scheme} {good}")).await.expect(200);
    }
    let not_utf8 = [id.as_bytes(), b":\xff\xfe"].concat();
    for wrong in [
        String::new(),
        "Basic".to_owned(),
        "Basic ".to_owned(),
        format!("Basic{good}"),
        format!("Bearer {good}"),
        good.clone(),
        format!("Basic {pair}"),
        format!("Basic {}", base64(format!("{id}{secret}"))),
        format!("Basic {}", base64(format!("{pair}:"))),
        format!("Basic {}", base64(format!("{id}:{id}:{secret}"))),
        format!("Basic {}", base64(format!(":{secret}"))),
        format!("Basic {}", base64(format!(" {pair}"))),
        format!("Basic {}", base64(format!("{pair}\n"))),
        format!("Basic {}", base64(format!("{id}\0:{secret}"))),
        format!("Basic {}", base64(not_utf8)),
        format!("Basic {}", base64(format!("{id}:{}", "x".repeat(10_000)))),
        format!("Basic {}", "A".repeat(10_000)),
        "Basic !!!!".to_owned(),
        format!("Basic {}", good.replace('=', "-")) + "_",
        format!("Basic {good},{good}"),
        format!("Basic {good} {good}"),
        "Basic ünïcode".to_owned(),
    ] {
        unknown(&send(&wrong).await, &wrong);
    }
    let header = format!("Basic {good}");
    let twice = Call::default().header("authorization", &*header).header("authorization", &*header);
    unknown(&anonymous.send("GET", "/config", twice).await, "two headers");
}

#[tokio::test]
async fn a_live_token_does_not_open_the_sandbox() {
    let server = Server::new();
    let client = server.platform_with(Mode::Live, true).await;
    let customer = client.customer().await;
    let account = client.account(Some(&customer), "USD").await;
    let path = format!("/sandbox/internal-accounts/{account}/fund");
    client.post(&path, &json!({ "amount": 1 })).await.refused(403, "FORBIDDEN");
    assert_eq!(client.balance(&account).await, 0);
    for operation in operations(&server).iter().filter(|one| one.path.starts_with("/sandbox/")) {
        operation.call(&client).await.refused(403, "FORBIDDEN");
    }
}

/// The same id, but of no object.
fn no_ones(id: &str) -> String {
    let (kind, uuid) = id.split_once(':').expect("an id");
    format!("{kind}:00000000{}", &uuid[8..])
}

#[tokio::test]
async fn another_platforms_ids_are_like_ids_that_do_not_exist() {
    let server = Server::new();
    let (client, other) = (server.platform().await, server.platform().await);
    let mine = client.customer().await;
    let usd = client.funded(&mine, "USD", 10_000).await;
    let bank = client.usd_external(&mine, "789").await;
    let own = client.account(None, "USD").await;
    // What the other platform has.
    let endpoint = json!({ "webhookEndpoint": "http://127.0.0.1:9/" });
    other.patch("/config", &endpoint).await.expect(200);
    let customer = other.customer().await;
    let internal = other.funded(&customer, "USD", 10_000).await;
    let platforms = other.account(None, "USD").await;
    let external = other.usd_external(&customer, "789").await;
    let body = usd_external(None, "111");
    let platforms_bank = other.post("/platform/external-accounts", &body).await;
    let platforms_bank = text(&platforms_bank.expect(201)["id"]);
    let token = text(&other.get("/tokens").await.expect(200)["data"][0]["id"]);
    let quote = other
        .post(
            "/quotes",
            &json!({
                "source": { "sourceType": "REALTIME_FUNDING", "currency": "USD" },
                "destination": { "destinationType": "ACCOUNT", "accountId": internal },
                "lockedCurrencySide": "SENDING",
                "lockedCurrencyAmount": 1_000,
            }),
        )
        .await;
    let quote = quote.expect(201).clone();
    let (quote, transaction) = (text(&quote["id"]), text(&quote["transactionId"]));
    deliver(&server, &mut Dispatcher::new(server.app.clone())).await;
    let delivery = other.get("/webhooks/deliveries").await.expect(200).clone();
    let delivery = text(&delivery["data"][0]["id"]);
    let transfer = |source: &str, destination: &str| {
        json!({
            "source": { "accountId": source },
            "destination": { "accountId": destination },
            "amount": 5,
        })
    };
    let quoted = |source: Value, destination: Value| {
        json!({
            "source": source,
            "destination": destination,
            "lockedCurrencySide": "SENDING",
            "lockedCurrencyAmount": 1_000,
        })
    };
    let from = |account: &str| json!({ "sourceType": "ACCOUNT", "accountId": account });
    let to = |account: &str| json!({ "destinationType": "ACCOUNT", "accountId": account });
    let of = |id: &str| (id.to_owned(), no_ones(id));
    type MakeCall<'a> = Box<dyn Fn(&str) -> (&'static str, String, Value) + 'a>;
    let get = |path: &str| -> MakeCall<'_> {
        let path = path.to_owned();
        Box::new(move |id| ("GET", path.replace("{}", id), Value::Null))
    };
    let lookup = format!("/receiver/external-account/{{}}?customerId={mine}");
    let coins = other.account(Some(&customer), "USDC").await;
    let file = "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"c.csv\"\r\n\r\n\
        nothing\r\n--edge--\r\n";
    let file = Call::raw(file).header("content-type", "multipart/form-data; boundary=edge");
    let job = other.send("POST", "/customers/bulk/csv", file).await;
    let job = text(&job.expect(202)["jobId"]);
    let mut calls: Vec<((String, String), MakeCall<'_>)> = vec![
        (of(&customer), get("/customers/{}")),
        (of(&token), get("/tokens/{}")),
        (of(&quote), get("/quotes/{}")),
        (of(&transaction), get("/transactions/{}")),
        (of(&job), get("/customers/bulk/jobs/{}")),
        (
            of(&delivery),
            Box::new(|id| ("POST", format!("/webhooks/deliveries/{id}/retry"), json!({}))),
        ),
        (of(&external), get(&lookup)),
        (
            of(&transaction),
            Box::new(|id| ("POST", format!("/transactions/{id}/approve"), json!({}))),
        ),
        (
            of(&transaction),
            Box::new(|id| ("POST", format!("/transactions/{id}/reject"), json!({}))),
        ),
        (
            of(&customer),
            Box::new(|id| {
                let body = json!({
                    "senderUmaAddress": "$success.usd@sandbox.uma.money",
                    "customerId": id,
                    "receivingCurrencyCode": "USD",
                    "receivingCurrencyAmount": 100,
                });
                ("POST", "/sandbox/uma/receive".to_owned(), body)
            }),
        ),
        (
            of(&coins),
            Box::new(|id| {
                let body = json!({
                    "internalAccountId": id,
                    "currency": "USDC",
                    "cryptoNetwork": "SOLANA_MAINNET",
                    "amount": 5,
                    "destinationAddress": "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtVK",
                });
                ("POST", "/crypto/estimate-withdrawal-fee".to_owned(), body)
            }),
        ),
        (
            of(&customer),
            Box::new(|id| {
                let change = json!({ "customerType": "INDIVIDUAL", "fullName": "Eve" });
                ("PATCH", format!("/customers/{id}"), change)
            }),
        ),
        (of(&customer), Box::new(|id| ("DELETE", format!("/customers/{id}"), Value::Null))),
        (of(&token), Box::new(|id| ("DELETE", format!("/tokens/{id}"), Value::Null))),
        (of(&quote), Box::new(|id| ("POST", format!("/quotes/{id}/execute"), json!({})))),
        (
            of(&customer),
            Box::new(|id| {
                ("POST", "/customers/external-accounts".to_owned(), usd_external(Some(id), "222"))
            }),
        ),
        (
            of(&quote),
            Box::new(|id| {
                let body = json!({ "quoteId": id, "currencyCode": "USD" });
                ("POST", "/sandbox/send".to_owned(), body)
            }),
        ),
        (
            of(&customer),
            Box::new(|id| {
                let source = json!({
                    "sourceType": "REALTIME_FUNDING", "currency": "USD", "customerId": id,
                });
                ("POST", "/quotes".to_owned(), quoted(source, to(&usd)))
            }),
        ),
        (
            of(&customer),
            Box::new(|id| {
                let mut source = from(&own);
                source["customerId"] = json!(id);
                ("POST", "/quotes".to_owned(), quoted(source, to(&usd)))
            }),
        ),
        (
            of(&customer),
            Box::new(|id| {
                let details = usd_external(Some(id), "333");
                let destination = json!({
                    "destinationType": "EXTERNAL_ACCOUNT_DETAILS",
                    "externalAccountDetails": details,
                });
                ("POST", "/quotes".to_owned(), quoted(from(&usd), destination))
            }),
        ),
    ];
    for account in [&internal, &platforms] {
        calls.push((
            of(account),
            Box::new(|id| {
                let path = format!("/sandbox/internal-accounts/{id}/fund");
                ("POST", path, json!({ "amount": 5 }))
            }),
        ));
        calls.push((
            of(account),
            Box::new(|id| ("POST", "/transfer-out".to_owned(), transfer(id, &bank))),
        ));
        calls.push((
            of(account),
            Box::new(|id| ("POST", "/transfer-in".to_owned(), transfer(&bank, id))),
        ));
        calls.push((
            of(account),
            Box::new(|id| ("POST", "/quotes".to_owned(), quoted(from(id), to(&usd)))),
        ));
        calls.push((
            of(account),
            Box::new(|id| ("POST", "/quotes".to_owned(), quoted(from(&usd), to(id)))),
        ));
    }
    for (account, path) in [
        (&external, "/customers/external-accounts"),
        (&platforms_bank, "/platform/external-accounts"),
    ] {
        for method in ["GET", "PATCH", "DELETE"] {
            let at = move |id: &str| (method, format!("{path}/{id}"), json!({}));
            calls.push((of(account), Box::new(at)));
        }
    }
    for account in [&external, &platforms_bank] {
        calls.push((
            of(account),
            Box::new(|id| ("POST", "/transfer-out".to_owned(), transfer(&usd, id))),
        ));
        calls.push((
            of(account),
            Box::new(|id| ("POST", "/transfer-in".to_owned(), transfer(id, &usd))),
        ));
        calls.push((
            of(account),
            Box::new(|id| ("POST", "/quotes".to_owned(), quoted(from(&usd), to(id)))),
        ));
    }
    // Every operation on something with an id is among them. Codes of invitations and addresses are
    // no platform's own: its holder may use it.
    let shared = ["{invitationCode}", "{receiverUmaAddress}"];
    let document = api::document(&server.app);
    for (template, item) in document["paths"].as_object().expect("paths") {
        let Some((before, rest)) = template.split_once('{') else { continue };
        if shared.iter().any(|name| template.contains(name)) {
            continue;
        }
        let after = rest.split_once('}').expect("a name").1;
        for method in item.as_object().expect("operations").keys() {
            let is_called = calls.iter().any(|((id, _), call)| {
                let (called, path, _) = call(id);
                let path = path.split('?').next().unwrap_or_default().to_owned();
                let of_id = path.strip_prefix(before).and_then(|path| path.strip_suffix(after));
                called.eq_ignore_ascii_case(method) && of_id == Some(id.as_str())
            });
            assert!(is_called, "{method} {template} is not tried with another platform's id");
        }
    }
    for ((theirs, no_ones), call) in &calls {
        let mut answers = Vec::new();
        for id in [theirs, no_ones] {
            let (method, path, body) = call(id);
            let call = if body.is_null() { Call::default() } else { Call::json(&body) };
            let answer = client.send(method, &path, call).await;
            assert_eq!(answer.status, 404, "{method} {path} {body}: {}", answer.body);
            let shown = String::from_utf8(answer.bytes.clone()).expect("text");
            answers.push(shown.replace(id.as_str(), "(id)"));
        }
        assert_eq!(answers[0], answers[1]);
    }
    // Filters find nothing, as if there were nothing.
    for (path, id) in [
        ("/customers/internal-accounts?customerId=", &customer),
        ("/customers/external-accounts?customerId=", &customer),
        ("/quotes?customerId=", &customer),
        ("/quotes?sendingAccountId=", &internal),
        ("/quotes?receivingAccountId=", &internal),
        ("/quotes?receivingAccountId=", &external),
        ("/transactions?customerId=", &customer),
        ("/transactions?senderAccountIdentifier=", &internal),
        ("/transactions?receiverAccountIdentifier=", &internal),
    ] {
        let theirs = client.get(&format!("{path}{id}")).await;
        let none = json!({ "data": [], "hasMore": false, "totalCount": 0 });
        assert_eq!(*theirs.expect(200), none, "{path}");
        assert_eq!(client.get(&format!("{path}{}", no_ones(id))).await.body, none, "{path}");
    }
    assert_eq!(client.balance(&usd).await, 10_000);
    assert_eq!(other.balance(&internal).await, 10_000);
    assert_eq!(other.get(&format!("/quotes/{quote}")).await.expect(200)["status"], "PENDING");
    server.verify();
}

#[tokio::test]
async fn a_manager_alone_neither_reads_nor_pays() {
    let server = Server::new();
    let client = server.platform().await;
    let manager = server.token_with(client.platform, Permission::Manage).await;
    manager.customer().await;
    manager.get("/customers").await.refused(403, "FORBIDDEN");
    manager.post("/quotes", &json!({})).await.refused(403, "FORBIDDEN");
}
