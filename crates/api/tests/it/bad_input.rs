//! Requests that are not what they should be (specification 7; reliability notes on input abuse).

use domain::platform::Mode;
use serde_json::{Value, json};

use crate::support::{Answer, Call, Client, Server, fields, text, usd_external};

/// A platform with something of everything.
pub struct Stage {
    pub server: Server,
    pub client: Client,
    pub customer: String,
    pub internal: String,
    /// An account in a currency that wallets hold.
    coins: String,
    pub external: String,
    /// An external account of the platform itself.
    pub own_external: String,
    pub quote: String,
    /// A quote that waits for a deposit.
    waiting: String,
    pub transaction: String,
    /// The address of the customer.
    pub uma: String,
    /// The code of an open invitation.
    pub invitation: String,
    /// The address of another customer.
    invitee: String,
}

impl Stage {
    pub async fn set() -> Self {
        let server = Server::new();
        let client = server.platform().await;
        let customer = client.customer().await;
        let internal = client.funded(&customer, "USD", 10_000).await;
        let coins = client.account(Some(&customer), "USDC").await;
        let external = client.usd_external(&customer, "789").await;
        let own_external =
            client.post("/platform/external-accounts", &usd_external(None, "790")).await;
        let own_external = text(&own_external.expect(201)["id"]);
        let eur = client.account(Some(&customer), "EUR").await;
        let quote = async |source: Value| {
            let body = json!({
                "source": source,
                "destination": { "destinationType": "ACCOUNT", "accountId": eur },
                "lockedCurrencySide": "SENDING",
                "lockedCurrencyAmount": 1_000,
            });
            client.post("/quotes", &body).await.expect(201).clone()
        };
        let made = quote(json!({ "sourceType": "ACCOUNT", "accountId": internal })).await;
        let source = json!({
            "sourceType": "REALTIME_FUNDING", "currency": "USD", "customerId": customer,
        });
        let waiting = text(&quote(source).await["id"]);
        let (quote, transaction) = (text(&made["id"]), text(&made["transactionId"]));
        let uma = client.uma_address(&customer).await;
        let endpoint = json!({ "webhookEndpoint": "http://127.0.0.1:9/" });
        client.patch("/config", &endpoint).await.expect(200);
        let invitation = client.post("/invitations", &json!({ "inviterUma": uma })).await;
        let invitation = text(&invitation.expect(201)["code"]);
        let invitee = client.uma_address(&client.customer().await).await;
        Self {
            server,
            client,
            customer,
            internal,
            coins,
            external,
            own_external,
            quote,
            waiting,
            transaction,
            uma,
            invitation,
            invitee,
        }
    }

    /// Every operation with a body that is right, in which `AMOUNT` stands for an amount.
    pub fn requests(&self) -> Vec<(&'static str, String, String)> {
        let transfer = |source: &str, destination: &str| {
            json!({
                "source": { "accountId": source },
                "destination": { "accountId": destination },
                "amount": "AMOUNT",
            })
        };
        let quote = json!({
            "source": { "sourceType": "ACCOUNT", "accountId": self.internal },
            "destination": { "destinationType": "ACCOUNT", "accountId": self.external },
            "lockedCurrencySide": "SENDING",
            "lockedCurrencyAmount": "AMOUNT",
        });
        let send =
            json!({ "quoteId": self.waiting, "currencyCode": "USD", "currencyAmount": "AMOUNT" });
        let receive = json!({
            "senderUmaAddress": "$success.usd@sandbox.uma.money",
            "customerId": self.customer,
            "receivingCurrencyCode": "USD",
            "receivingCurrencyAmount": "AMOUNT",
        });
        let estimate = json!({
            "internalAccountId": self.coins,
            "currency": "USDC",
            "cryptoNetwork": "SOLANA_MAINNET",
            "amount": "AMOUNT",
            "destinationAddress": "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtVK",
        });
        let fund = format!("/sandbox/internal-accounts/{}/fund", self.internal);
        let person = json!({ "customerType": "INDIVIDUAL", "fullName": "Eve" });
        let invite = json!({ "inviterUma": self.uma, "amountToSend": "AMOUNT" });
        let replay = json!({ "from": "2025-01-01T00:00:00Z", "to": "2025-01-02T00:00:00Z" });
        let claim = json!({ "inviteeUma": self.invitee });
        let all = [
            ("POST", "/invitations".to_owned(), invite),
            ("POST", format!("/invitations/{}/claim", self.invitation), claim),
            ("PATCH", "/config".to_owned(), json!({ "umaDomain": "other.test" })),
            ("POST", "/tokens".to_owned(), json!({ "name": "x", "permissions": [] })),
            ("POST", "/customers".to_owned(), person.clone()),
            ("PATCH", format!("/customers/{}", self.customer), person),
            (
                "POST",
                "/customers/external-accounts".to_owned(),
                usd_external(Some(&self.customer), "111"),
            ),
            ("POST", "/platform/external-accounts".to_owned(), usd_external(None, "111")),
            (
                "PATCH",
                format!("/customers/external-accounts/{}", self.external),
                json!({ "platformAccountId": "x" }),
            ),
            (
                "PATCH",
                format!("/platform/external-accounts/{}", self.own_external),
                json!({ "platformAccountId": "x" }),
            ),
            ("POST", "/transfer-out".to_owned(), transfer(&self.internal, &self.external)),
            ("POST", "/transfer-in".to_owned(), transfer(&self.external, &self.internal)),
            ("POST", "/crypto/estimate-withdrawal-fee".to_owned(), estimate),
            ("POST", "/quotes".to_owned(), quote),
            ("POST", fund, json!({ "amount": "AMOUNT" })),
            ("POST", "/sandbox/send".to_owned(), send),
            ("POST", "/sandbox/uma/receive".to_owned(), receive),
            ("POST", "/webhooks/replay".to_owned(), replay),
            ("POST", "/sandbox/clock".to_owned(), json!({ "advanceBySeconds": 1 })),
        ];
        all.map(|(method, path, body)| (method, path, body.to_string())).into()
    }

    /// All that a request could have changed.
    async fn everything(&self) -> Value {
        let mut all = Vec::new();
        for path in [
            "/config",
            "/tokens",
            "/customers?isIncludingDeleted=true",
            "/customers/internal-accounts?limit=100",
            "/platform/internal-accounts",
            "/customers/external-accounts",
            "/platform/external-accounts",
            "/quotes",
            "/transactions",
        ] {
            all.push(self.client.get(path).await.expect(200).clone());
        }
        let path = format!("/invitations/{}", self.invitation);
        all.push(self.client.get(&path).await.expect(200).clone());
        Value::Array(all)
    }

    /// Fails if a request that needs a body was left out of [`Stage::requests`].
    fn assert_complete(&self) {
        let document = api::document(&self.server.app);
        let with_bodies = document["paths"]
            .as_object()
            .expect("paths")
            .values()
            .flat_map(|item| item.as_object().expect("operations").values())
            .filter(|operation| operation["requestBody"]["required"] == true)
            .filter(|operation| {
                // A form is no JSON object: `bulk` tries what can be wrong with one.
                let content = &operation["requestBody"]["content"];
                content.get("application/json").is_some()
            })
            .count();
        assert_eq!(with_bodies, self.requests().len(), "an operation with a body is not tested");
    }
}

/// JSON as it stands there.
pub fn raw(body: impl Into<Vec<u8>>) -> Call {
    Call::raw(body).header("content-type", "application/json")
}

#[track_caller]
fn is_error(answer: &Answer, what: &str) {
    assert!((400..500).contains(&answer.status), "{what}: {} {}", answer.status, answer.body);
    assert_eq!(answer.body["status"], answer.status, "{what}");
    assert!(answer.body["code"].is_string() && answer.body["message"].is_string(), "{what}");
    assert_eq!(answer.headers["content-type"], "application/json", "{what}");
    assert!(answer.bytes.len() < 20_000, "{what}: {} bytes", answer.bytes.len());
}

#[tokio::test]
async fn every_request_of_the_stage_is_right() {
    let stage = Stage::set().await;
    stage.assert_complete();
    for (method, path, body) in stage.requests() {
        let body = body.replace("\"AMOUNT\"", "1000");
        let answer = stage.client.send(method, &path, raw(body)).await;
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.body);
    }
    stage.server.verify();
}

#[tokio::test]
async fn what_is_not_one_json_object_is_refused_everywhere() {
    let stage = Stage::set().await;
    let before = stage.everything().await;
    let deep = |levels: usize| {
        format!("{{\"x\":{}1{}}}", "[".repeat(levels), "]".repeat(levels)).into_bytes()
    };
    let mut wrong: Vec<Vec<u8>> = [
        "",
        " ",
        "{",
        "}",
        "null",
        "true",
        "1",
        "\"x\"",
        "[]",
        "[{}]",
        "{}{}",
        "{} x",
        "{,}",
        "{'name':1}",
        "{name:1}",
        "{\"a\":1,}",
        "{/**/}",
        "NaN",
        "\u{feff}{}",
        "name=x",
        "<name>x</name>",
        "{\"x\":1,\"x\":1}",
        "{\"x\":1,\"\\u0078\":2}",
        "{\"x\":{\"y\":1,\"y\":null}}",
        "{\"x\":9223372036854775808}",
        "{\"x\":-9223372036854775809}",
        "{\"x\":123456789012345678901234567890}",
        "{\"x\":1e400}",
        "{\"x\":1e19}",
        "{\"x\":\"a\\u0000b\"}",
        "{\"x\":\"a\\nb\"}",
        "{\"x\":\"\\u001b[0m\"}",
        "{\"x\\u0007\":1}",
        "{\"x\":\"\\u0085\"}",
        "{\"x\":\"\\ud800\"}",
        "{\"x\":\"\\udc00\\ud800\"}",
        "{\"x\":\"\t\"}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    wrong.push(b"{\"x\":\"\xff\"}".to_vec());
    wrong.push(b"{\"x\":\"\xc0\xaf\"}".to_vec());
    wrong.push(b"{\"x\":\"\xed\xa0\x80\"}".to_vec());
    wrong.push(b"\xff\xfe{\x00}\x00".to_vec());
    wrong.push(deep(20));
    wrong.push(deep(100_000));
    for (method, path, body) in stage.requests() {
        let body = body.replace("\"AMOUNT\"", "1000");
        let inside = body.strip_suffix('}').expect("an object");
        for bytes in &wrong {
            let what = format!("{method} {path} {}", String::from_utf8_lossy(bytes));
            let what: String = what.chars().take(200).collect();
            let answer = stage.client.send(method, &path, raw(bytes.clone())).await;
            is_error(&answer, &what);
            assert_eq!(
                (answer.status, &answer.body["code"]),
                (400, &json!("INVALID_INPUT")),
                "{what}"
            );
            // The same inside a body that would be right without it.
            if let Some(rest) = bytes.strip_prefix(b"{\"x") {
                let mixed = [inside.as_bytes(), b",\"x", rest].concat();
                let answer = stage.client.send(method, &path, raw(mixed)).await;
                is_error(&answer, &what);
            }
        }
    }
    assert_eq!(stage.everything().await, before);
    stage.server.verify();
}

#[tokio::test]
async fn what_is_not_an_amount_is_refused_everywhere() {
    let stage = Stage::set().await;
    let before = stage.everything().await;
    let mut tested = 0;
    for (method, path, body) in stage.requests() {
        if !body.contains("AMOUNT") {
            continue;
        }
        tested += 1;
        for (amount, code) in [
            ("0", "INVALID_AMOUNT"),
            ("-1", "INVALID_AMOUNT"),
            ("-9223372036854775808", "INVALID_AMOUNT"),
            ("9000000000000001", "INVALID_AMOUNT"),
            ("9223372036854775807", "INVALID_AMOUNT"),
            ("9223372036854775808", "INVALID_AMOUNT"),
            ("-9223372036854775809", "INVALID_AMOUNT"),
            ("123456789012345678901234567890", "INVALID_AMOUNT"),
            ("1e400", "INVALID_AMOUNT"),
            ("1.5", "INVALID_INPUT"),
            ("1.00000000000000000001", "INVALID_INPUT"),
            ("8999999999999999.9", "INVALID_INPUT"),
            ("1e-1", "INVALID_INPUT"),
            ("-0.0", "INVALID_AMOUNT"),
            ("-1.0", "INVALID_AMOUNT"),
            ("9.1e15", "INVALID_AMOUNT"),
            ("01", "INVALID_INPUT"),
            ("+1", "INVALID_INPUT"),
            ("0x10", "INVALID_INPUT"),
            ("1_000", "INVALID_INPUT"),
            ("NaN", "INVALID_INPUT"),
            ("Infinity", "INVALID_INPUT"),
            ("\"100\"", "INVALID_INPUT"),
            ("\"\"", "INVALID_INPUT"),
            ("true", "INVALID_INPUT"),
            ("[1]", "INVALID_INPUT"),
            ("{}", "INVALID_INPUT"),
        ] {
            let sent = body.replace("\"AMOUNT\"", amount);
            let answer = stage.client.send(method, &path, raw(sent)).await;
            let what = format!("{method} {path} {amount}");
            is_error(&answer, &what);
            assert_eq!((answer.status, &answer.body["code"]), (400, &json!(code)), "{what}");
            let named = fields(&answer.body["details"]);
            // What is no number at all ends the JSON.
            let is_broken = ["1_000", "0x10"].contains(&amount) && named == ["body"];
            let last = named[0].rsplit('.').next().unwrap_or_default().to_lowercase();
            assert!(is_broken || last.contains("amount"), "{what}: {named:?}");
        }
    }
    assert_eq!(tested, 8);
    assert_eq!(stage.everything().await, before);
    stage.server.verify();
}

#[tokio::test]
async fn only_plain_json_in_utf_8_is_read() {
    let stage = Stage::set().await;
    let before = stage.everything().await;
    for (method, path, body) in stage.requests() {
        let body = body.replace("\"AMOUNT\"", "1000");
        let check = async |call: Call, what: &str| {
            let answer = stage.client.send(method, &path, call).await;
            is_error(&answer, what);
            answer.refused(415, "UNSUPPORTED_MEDIA_TYPE");
        };
        check(Call::raw(body.clone()), "no content type").await;
        for kind in [
            "",
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "application/xml",
            "text/json",
            "application/jsonx",
            "json",
            "*/*",
            "application/json; charset=utf-16",
            "application/json; charset=latin1",
            "application/json;CHARSET=\"UTF-16\"",
            "application/json, text/plain",
            "application/vnd.api+json",
            "application/jsön",
        ] {
            check(Call::raw(body.clone()).header("content-type", kind), kind).await;
        }
        for encoding in ["gzip", "br", "deflate", "identity, gzip", "x"] {
            check(raw(body.clone()).header("content-encoding", encoding), encoding).await;
        }
    }
    assert_eq!(stage.everything().await, before);
    for kind in [
        "application/json",
        "Application/JSON",
        "application/json;charset=utf-8",
        "application/json; charset=UTF-8",
        "application/json; charset=\"utf-8\"",
        "application/json ; charset=utf-8",
        "application/json; profile=x",
    ] {
        let call = Call::raw(r#"{"name":"x","permissions":[]}"#).header("content-type", kind);
        let call = call.header("content-encoding", "identity");
        stage.client.send("POST", "/tokens", call).await.expect(201);
    }
}

#[tokio::test]
async fn a_body_larger_than_any_request_is_refused() {
    let stage = Stage::set().await;
    let before = stage.everything().await;
    for (method, path, body) in stage.requests() {
        let body = body.replace("\"AMOUNT\"", "1000");
        let fill = |length: usize| format!("{body}{}", " ".repeat(length - body.len()));
        let answer = stage.client.send(method, &path, raw(fill(256 * 1_024 + 1))).await;
        is_error(&answer, &path);
        answer.refused(413, "PAYLOAD_TOO_LARGE");
    }
    assert_eq!(stage.everything().await, before);
    let body = r#"{"name":"x","permissions":[]}"#;
    let largest = format!("{body}{}", " ".repeat(256 * 1_024 - body.len()));
    stage.client.send("POST", "/tokens", raw(largest)).await.expect(201);
}

#[tokio::test]
async fn ids_of_the_wrong_kind_are_refused() {
    let stage = Stage::set().await;
    let before = stage.everything().await;
    let uuid = |id: &str| id.split_once(':').expect("an id").1.to_owned();
    // In a path there is nothing with such an id.
    for (id, path, code) in [
        (&stage.customer, "/customers/{}", "USER_NOT_FOUND"),
        (&stage.quote, "/quotes/{}", "QUOTE_NOT_FOUND"),
        (&stage.transaction, "/transactions/{}", "TRANSACTION_NOT_FOUND"),
    ] {
        let uuid = uuid(id);
        for wrong in [
            uuid.clone(),
            format!("Token:{uuid}"),
            format!("InternalAccount:{uuid}"),
            format!("{}:{}", id.split(':').next().unwrap().to_lowercase(), uuid),
            id.replace('-', ""),
            format!("{id}x"),
            format!("{id}%20"),
            format!("{id}%00"),
            format!("%20{id}"),
            id.replacen(':', "::", 1),
            id.replacen(':', "%253A", 1),
            format!("{{{id}}}").replace('{', "%7B").replace('}', "%7D"),
            "x".repeat(5_000),
            "%F0%9F%92%B8".to_owned(),
            "..".to_owned(),
            "*".to_owned(),
        ] {
            let answer = stage.client.get(&path.replace("{}", &wrong)).await;
            is_error(&answer, &wrong);
            answer.refused(404, code);
        }
        let encoded = id.replace(':', "%3A");
        assert_eq!(stage.client.get(&path.replace("{}", &encoded)).await.expect(200)["id"], **id);
        let capitals = path.replace("{}", &id.replace(&uuid, &uuid.to_uppercase()));
        assert_eq!(stage.client.get(&capitals).await.expect(200)["id"], **id);
    }
    let encoded = stage.quote.replace(':', "%3A");
    let execute = format!("/quotes/{}/execute", encoded.replace("Quote", "Token"));
    stage.client.post(&execute, &json!({})).await.refused(404, "QUOTE_NOT_FOUND");
    let answer = stage.client.get("/customers/%FF").await;
    is_error(&answer, "bytes that are no text");
    // In a body they are bad input.
    for (method, path, body) in stage.requests() {
        let body = body.replace("\"AMOUNT\"", "1000");
        for id in [&stage.customer, &stage.internal, &stage.external, &stage.waiting] {
            if !body.contains(id.as_str()) {
                continue;
            }
            for wrong in [
                uuid(id),
                format!("Token:{}", uuid(id)),
                format!("Transaction:{}", uuid(id)),
                format!("{id}x"),
                String::new(),
                "x".repeat(10_000),
            ] {
                let sent = body.replace(id.as_str(), &wrong);
                let answer = stage.client.send(method, &path, raw(sent.clone())).await;
                is_error(&answer, &sent);
                let details = answer.refused(400, "INVALID_INPUT");
                assert_eq!(fields(details).len(), 1, "{sent}");
            }
        }
    }
    assert_eq!(stage.everything().await, before);
}

#[tokio::test]
async fn values_that_no_list_has_are_refused() {
    let stage = Stage::set().await;
    let before = stage.everything().await;
    let mut tested = 0;
    for (method, path, body) in stage.requests() {
        let body = body.replace("\"AMOUNT\"", "1000");
        for known in [
            "INDIVIDUAL",
            "\"ACCOUNT\"",
            "SENDING",
            "USD_ACCOUNT",
            "\"GB\"",
            "\"USD\"",
            "1985-12-10",
        ] {
            if !body.contains(known) {
                continue;
            }
            tested += 1;
            for wrong in ["NOPE", "", "individual", "🪙", &"X".repeat(1_000)] {
                let wrong =
                    if known.starts_with('"') { format!("\"{wrong}\"") } else { wrong.to_owned() };
                let answer =
                    stage.client.send(method, &path, raw(body.replace(known, &wrong))).await;
                is_error(&answer, &format!("{method} {path} {known} {wrong}"));
                assert_eq!(answer.status, 400);
            }
        }
    }
    assert!(tested >= 14, "{tested}");
    assert_eq!(stage.everything().await, before);
}

#[tokio::test]
async fn a_path_takes_the_methods_that_the_document_names() {
    let stage = Stage::set().await;
    let before = stage.everything().await;
    let document = api::document(&stage.server.app);
    for (template, item) in document["paths"].as_object().expect("paths") {
        let path = template
            .replace("{customerId}", &stage.customer)
            .replace("{quoteId}", &stage.quote)
            .replace("{transactionId}", &stage.transaction)
            .replace("{accountId}", &stage.internal)
            .replace("{tokenId}", "Token:00000000-0000-7000-8000-000000000000");
        let all = ["GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "TRACE", "OPTIONS", "BREW"];
        let mut documented: Vec<_> =
            item.as_object().expect("operations").keys().map(|name| name.to_uppercase()).collect();
        let takes_get = documented.iter().any(|name| name == "GET");
        documented.extend(takes_get.then(|| "HEAD".to_owned()));
        documented.push("OPTIONS".to_owned());
        for method in all {
            if documented.iter().any(|name| name == method) {
                continue;
            }
            let answer = stage.client.send(method, &path, Call::json(&json!({}))).await;
            let what = format!("{method} {path}");
            if method != "HEAD" {
                is_error(&answer, &what);
                answer.refused(405, "METHOD_NOT_ALLOWED");
            }
            assert_eq!(answer.status, 405, "{what}");
            let allowed = answer.headers["allow"].to_str().expect("text");
            assert_eq!(allowed.split(", ").collect::<Vec<_>>(), documented, "{what}");
        }
        // The question needs no credentials.
        let path = format!("/{}{path}", api::VERSION);
        let answer = stage.client.send_to("OPTIONS", &path, Call::default()).await;
        assert_eq!((answer.status, &answer.body), (204, &Value::Null), "OPTIONS {path}");
        let allowed = answer.headers["allow"].to_str().expect("text");
        assert_eq!(allowed.split(", ").collect::<Vec<_>>(), documented, "OPTIONS {path}");
    }
    // A method cannot be smuggled in beside the real one.
    let call = Call::default().header("x-http-method-override", "DELETE");
    stage.client.send("GET", &format!("/customers/{}", stage.customer), call).await.expect(200);
    assert_eq!(stage.everything().await, before);
}

#[tokio::test]
async fn paths_that_are_not_there_answer_in_the_shape_of_errors() {
    let stage = Stage::set().await;
    let check = async |path: &str| {
        let answer = stage.client.send_to("HEAD", path, Call::default()).await;
        assert_eq!(answer.status, 404, "HEAD {path}");
        for method in ["GET", "POST", "DELETE"] {
            let answer = stage.client.send_to(method, path, Call::default()).await;
            is_error(&answer, &format!("{method} {path}"));
            assert_eq!((answer.status, &answer.body["code"]), (404, &json!("NOT_FOUND")), "{path}");
        }
    };
    let version = api::VERSION;
    for path in [
        "",
        "/",
        "/nothing",
        "/config/",
        "//config",
        "/Config",
        "/config/x",
        "/config%2Fx",
        "/config;x",
        "/./config",
        "/customers//internal-accounts",
        "/quotes/x/y/z",
        "/%63onfig/",
        "/transfer",
        "/platform",
        "/sandbox",
        "/openapi.json",
    ] {
        check(&format!("/{version}{path}")).await;
    }
    for path in [
        "/config",
        "/2025-10-14/config",
        "/2025-10-1/config",
        "/v1/config",
        "/latest/config",
        "/2025-10-13x/config",
        "//2025-10-13/config",
        "/2025-10-13/../config",
    ] {
        check(path).await;
    }
    let long = format!("/{version}/{}", "x".repeat(50_000));
    check(&long).await;
    // Without credentials as well.
    let answer = stage.server.anonymous().send_to("GET", "/nothing", Call::default()).await;
    answer.refused(404, "NOT_FOUND");
    let customer = format!("/customers/{}/", stage.customer);
    is_error(&stage.client.get(&customer).await, &customer);
    is_error(&stage.client.get("/customers/").await, "no id");
}

#[tokio::test]
async fn a_cursor_works_only_on_the_list_that_it_came_from() {
    let stage = Stage::set().await;
    let client = &stage.client;
    client.customer().await;
    let token = json!({ "name": "x", "permissions": [] });
    client.post("/tokens", &token).await.expect(201);
    client.usd_external(&stage.customer, "111").await;
    let other = stage.server.platform_with(Mode::Sandbox, true).await;
    other.customer().await;
    other.customer().await;
    let lists = [
        "/tokens",
        "/customers",
        "/customers/internal-accounts",
        "/customers/external-accounts",
        "/quotes",
        "/transactions",
    ];
    let mut cursors = Vec::new();
    for list in lists {
        let answer = client.get(&format!("{list}?limit=1")).await;
        cursors.push((list, text(&answer.expect(200)["nextCursor"])));
    }
    for list in ["/customers", "/customers/internal-accounts"] {
        let answer = other.get(&format!("{list}?limit=1")).await;
        cursors.push(("another platform's", text(&answer.expect(200)["nextCursor"])));
    }
    for list in lists {
        let mut wrong = vec![
            String::new(),
            "x".to_owned(),
            "0".to_owned(),
            "null".to_owned(),
            stage.customer.clone(),
            "eyJpZCI6IjEifQ==".to_owned(),
            "A".repeat(38),
            "A".repeat(5_000),
            "%00".to_owned(),
            "%FF".to_owned(),
            "'%20or%201=1--".to_owned(),
        ];
        for (from, cursor) in &cursors {
            let path = format!("{list}?limit=1&cursor={cursor}");
            if *from == list {
                client.get(&path).await.expect(200);
                let flipped = if cursor.starts_with('A') { "B" } else { "A" };
                wrong.push(format!("{flipped}{}", &cursor[1..]));
                wrong.push(cursor[..cursor.len() - 1].to_owned());
                wrong.push(format!("{cursor}A"));
                wrong.push(format!("{cursor}="));
            } else {
                wrong.push(cursor.clone());
            }
        }
        for cursor in wrong {
            let answer = client.get(&format!("{list}?cursor={cursor}")).await;
            is_error(&answer, &format!("{list} {cursor}"));
            assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["cursor"], "{list} {cursor}");
        }
        for limit in ["0", "101", "abc", "-1", "20%20", "1e1", "1000000000"] {
            let answer = client.get(&format!("{list}?limit={limit}")).await;
            assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["limit"], "{list} {limit}");
        }
    }
}

#[tokio::test]
async fn a_request_keeps_its_id_or_gets_one() {
    let stage = Stage::set().await;
    let id = async |client: &Client, path: &str, given: Option<&str>| {
        let call = match given {
            Some(given) => Call::default().header("x-request-id", given),
            None => Call::default(),
        };
        let answer = client.send_to("GET", path, call).await;
        answer.headers["x-request-id"].to_str().expect("text").to_owned()
    };
    let anonymous = stage.server.anonymous();
    let config = format!("/{}/config", api::VERSION);
    for (client, path) in
        [(&stage.client, config.as_str()), (&anonymous, config.as_str()), (&anonymous, "/nothing")]
    {
        let longest = "x".repeat(128);
        for given in ["abc", "0191-f/=+:.~", longest.as_str()] {
            assert_eq!(id(client, path, Some(given)).await, given);
        }
        let made = [id(client, path, None).await, id(client, path, None).await];
        assert_ne!(made[0], made[1]);
        let too_long = "x".repeat(129);
        for wrong in ["", "a b", "ünïcode", too_long.as_str()] {
            let made = id(client, path, Some(wrong)).await;
            assert!(made != wrong && made.starts_with("req-"), "{made}");
        }
    }
}
