//! Every operation, with one thing wrong: each refusal names its field, in words of the API.

use serde_json::{Value, json};

use crate::bad_input::{Stage, raw};
use crate::support::{Answer, Call, Server, fields, text};

/// Words of parsers and of Rust, which no client knows.
const FOREIGN: [&str; 18] = [
    "invalid type",
    "invalid value",
    "invalid length",
    "expected",
    "i64",
    "u64",
    "f64",
    "floating point",
    "EOF",
    "line 1",
    "column",
    "struct",
    "enum ",
    "serde",
    "variant",
    "missing field",
    "Option",
    "deserialize",
];

/// Fails where an answer is the server's fault, or a 400 does not say what is wrong with what.
#[track_caller]
fn is_explained(answer: &Answer, what: &str) {
    assert!(answer.status < 500, "{what}: {} {}", answer.status, answer.body);
    if answer.status != 400 {
        return;
    }
    let errors = answer.body["details"]["errors"].as_array().unwrap_or_else(|| {
        panic!("{what}: no errors in {}", answer.body);
    });
    assert!(!errors.is_empty(), "{what}: {}", answer.body);
    let messages = errors.iter().map(|error| {
        assert!(error["field"].as_str().is_some_and(|field| !field.is_empty()), "{what}: {error}");
        text(&error["message"])
    });
    for message in messages.chain([text(&answer.body["message"])]) {
        assert!(!message.is_empty(), "{what}");
        let foreign = FOREIGN.iter().find(|word| message.contains(**word));
        assert_eq!(foreign, None, "{what}: {message}");
    }
}

/// The paths of everything in a body, as answers name them.
fn paths(value: &Value) -> Vec<String> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(entries) => entries.iter().map(|(key, it)| (key.clone(), it)).collect(),
        Value::Array(items) => (0..).map(|at: usize| at.to_string()).zip(items).collect(),
        _ => Vec::new(),
    };
    let below = |(name, value): (String, &Value)| {
        let paths = paths(value).into_iter().map(|path| format!("{name}.{path}"));
        [name.clone()].into_iter().chain(paths.collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    inner.into_iter().flat_map(below).collect()
}

/// A body with other text at a path.
fn with(body: &Value, path: &str, text: &str) -> Vec<u8> {
    let mut body = body.clone();
    let pointer = format!("/{}", path.replace('.', "/"));
    *body.pointer_mut(&pointer).expect("a path of the body") = json!("MUTATED");
    body.to_string().replacen("\"MUTATED\"", text, 1).into_bytes()
}

/// A body without what is at a path.
fn without(body: &Value, path: &str) -> Vec<u8> {
    let mut body = body.clone();
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let pointer = format!("/{}", parent.replace('.', "/"));
    let parent = if parent.is_empty() { Some(&mut body) } else { body.pointer_mut(&pointer) };
    match parent.expect("a path of the body") {
        Value::Object(entries) => drop(entries.remove(name)),
        Value::Array(items) => drop(items.remove(name.parse().expect("a place"))),
        other => panic!("{other} has no {name}"),
    }
    body.to_string().into_bytes()
}

#[tokio::test]
async fn a_body_that_is_not_an_object_is_refused_as_the_body() {
    let stage = Stage::set().await;
    for (method, path, body) in stage.requests() {
        let body = body.replace("\"AMOUNT\"", "1000");
        let half = &body[..body.len() / 2];
        let wrong = [
            "".to_owned(),
            " \n".to_owned(),
            "[]".to_owned(),
            format!("[{body}]"),
            "null".to_owned(),
            "true".to_owned(),
            "-1.5e3".to_owned(),
            "\"x\"".to_owned(),
            "{".to_owned(),
            half.to_owned(),
            format!("{body}{body}"),
            format!("{body},"),
            format!("{},}}", &body[..body.len() - 1]),
            format!("\u{feff}{body}"),
            "name=x&y=z".to_owned(),
            "<name>x</name>".to_owned(),
        ];
        let bytes = wrong.into_iter().map(String::into_bytes);
        let broken = [body.as_bytes().strip_suffix(b"}").expect("an object"), b",\"x\":\"\xff\"}"];
        for bytes in bytes.chain([broken.concat()]) {
            let what = format!("{method} {path} {}", String::from_utf8_lossy(&bytes));
            let answer = stage.client.send(method, &path, raw(bytes)).await;
            is_explained(&answer, &what);
            assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["body"], "{what}");
        }
    }
    stage.server.verify();
}

#[tokio::test]
async fn a_field_that_no_reader_can_take_is_named() {
    let stage = Stage::set().await;
    for (method, path, body) in stage.requests() {
        let body = body.replace("\"AMOUNT\"", "1000");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        for field in paths(&body) {
            let name = field.rsplit('.').next().unwrap_or_default();
            let mut wrong: Vec<String> = [
                "\"a\\u0000b\"",
                "\"a\\nb\"",
                "\"a\\tb\"",
                "\"\\u001b[0m\"",
                "\"a\tb\"",
                "\"a\nb\"",
                "\"\\ud800\"",
                "NaN",
                "01",
                "-",
                "1.00000000000000000001",
                "{\"a\":1,\"a\":2}",
                "9223372036854775808",
                "-9223372036854775809",
                "1e400",
            ]
            .map(str::to_owned)
            .into();
            if name.parse::<usize>().is_err() {
                wrong.push(format!("1,\"{name}\":2"));
            }
            for other in wrong {
                let bytes = with(&body, &field, &other);
                let what = format!("{method} {path} {field}: {other}");
                let answer = stage.client.send(method, &path, raw(bytes)).await;
                assert_eq!(answer.status, 400, "{what}: {}", answer.body);
                is_explained(&answer, &what);
                let named = fields(&answer.body["details"]);
                // The parent is named where it is of another type altogether.
                let is_named = named.iter().any(|named| named.starts_with(&field));
                assert!(is_named, "{what}: {named:?}");
            }
        }
    }
    stage.server.verify();
}

#[tokio::test]
async fn a_field_of_the_wrong_kind_is_explained() {
    let stage = Stage::set().await;
    for (method, path, body) in stage.requests() {
        let body = body.replace("\"AMOUNT\"", "1000");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        for field in paths(&body) {
            let others = [
                "null",
                "true",
                "0",
                "-1",
                "1.5",
                "1e3",
                "100.0",
                "\"\"",
                "\"x\"",
                "\"🪙\"",
                "[]",
                "[null]",
                "[[]]",
                "{}",
                "{\"x\":1}",
            ];
            let mutated = others.map(|other| (other, with(&body, &field, other)));
            for (other, bytes) in mutated.into_iter().chain([("", without(&body, &field))]) {
                let what = format!("{method} {path} {field}: {other}");
                let answer = stage.client.send(method, &path, raw(bytes)).await;
                is_explained(&answer, &what);
            }
            // Objects are nowhere texts, and texts nowhere objects.
            let pointer = format!("/{}", field.replace('.', "/"));
            let is_object = body.pointer(&pointer).is_some_and(Value::is_object);
            let other = if is_object { "\"x\"" } else { "{\"x\":{}}" };
            let answer = stage.client.send(method, &path, raw(with(&body, &field, other))).await;
            let what = format!("{method} {path} {field}: {other}");
            assert_eq!(answer.status, 400, "{what}: {}", answer.body);
            let named = fields(&answer.body["details"]);
            assert!(named.iter().any(|named| named.starts_with(&field)), "{what}: {named:?}");
        }
    }
    stage.server.verify();
}

#[tokio::test]
async fn a_whole_number_is_taken_however_it_is_written() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let account = client.account(Some(&customer), "USD").await;
    let path = format!("/sandbox/internal-accounts/{account}/fund");
    let mut funded = 0;
    for (text, amount) in [
        ("100.0", 100),
        ("1e3", 1_000),
        ("1E+3", 1_000),
        ("0.5e1", 5),
        ("12000e-3", 12),
        ("10000000000000000e-8", 100_000_000),
    ] {
        let body = format!("{{\"amount\":{text}}}");
        client.send("POST", &path, raw(body)).await.expect(200);
        funded += amount;
        assert_eq!(client.balance(&account).await, funded, "{text}");
    }
    for (text, message) in [
        ("100.5", "must be a whole number"),
        ("1e-1", "must be a whole number"),
        ("1e19", "must be at most 100000000000"),
    ] {
        let answer = client.send("POST", &path, raw(format!("{{\"amount\":{text}}}"))).await;
        assert_eq!(answer.status, 400, "{text}");
        let error = &answer.body["details"]["errors"][0];
        assert_eq!((&error["field"], &error["message"]), (&json!("amount"), &json!(message)));
    }
    assert_eq!(client.balance(&account).await, funded);
    server.verify();
}

/// Every operation of the document with a path that is there: its method, path and parameters.
fn operations(stage: &Stage) -> Vec<(String, String, Vec<Value>)> {
    let document = api::document(&stage.server.app);
    let items = document["paths"].as_object().expect("paths").clone();
    let operation = |(template, item): (String, Value)| {
        let path = template
            .replace("{customerId}", &stage.customer)
            .replace("{quoteId}", &stage.quote)
            .replace("{transactionId}", &stage.transaction)
            .replace(
                "/external-account/{accountId}",
                &format!("/external-account/{}", stage.external),
            )
            .replace("{accountId}", &stage.internal)
            .replace("{receiverUmaAddress}", &stage.uma)
            .replace("{code}", &stage.invitation);
        let operations = item.as_object().expect("operations").clone();
        operations.into_iter().map(move |(method, it)| {
            let parameters = it["parameters"].as_array().cloned().unwrap_or_default();
            let query = parameters.into_iter().filter(|it| it["in"] == "query").collect();
            (method.to_uppercase(), path.clone(), query)
        })
    };
    items.into_iter().flat_map(operation).collect()
}

#[tokio::test]
async fn every_operation_refuses_parameters_that_it_does_not_have() {
    let stage = Stage::set().await;
    for (method, path, parameters) in operations(&stage) {
        let names: Vec<_> = parameters.iter().map(|it| text(&it["name"])).collect();
        for wrong in ["nope", "x-y", "Limit", "created", "createdafter", "filter%5Bname%5D"] {
            if names.iter().any(|name| name == wrong) {
                continue;
            }
            let target = format!("{path}?{wrong}=1");
            let answer = stage.client.send(&method, &target, Call::json(&json!({}))).await;
            is_explained(&answer, &target);
            let wrong = wrong.replace("%5B", "[").replace("%5D", "]");
            assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), [wrong], "{method} {target}");
        }
        for name in names {
            let slip = name.to_lowercase().replace("id", "_id");
            if slip == name {
                continue;
            }
            let target = format!("{path}?{slip}=1");
            let answer = stage.client.send(&method, &target, Call::default()).await;
            let details = answer.refused(400, "INVALID_INPUT");
            let message = text(&details["errors"][0]["message"]);
            assert!(message.contains(&format!("did you mean {name}?")), "{target}: {message}");
        }
    }
}

#[tokio::test]
async fn every_parameter_is_named_when_it_cannot_be_read() {
    let stage = Stage::set().await;
    for (method, path, parameters) in operations(&stage) {
        for parameter in parameters {
            let name = text(&parameter["name"]);
            let mut wrong = vec!["%", "%zz", "%ff", "%00", "%1b", "%ed%a0%80"];
            let twice = format!("1&{name}=1");
            if parameter["schema"]["type"] != "array" {
                wrong.push(&twice);
            }
            for value in wrong {
                let target = format!("{path}?{name}={value}");
                let answer = stage.client.send(&method, &target, Call::default()).await;
                is_explained(&answer, &target);
                let named = fields(answer.refused(400, "INVALID_INPUT"));
                assert_eq!(named, [name.as_str()], "{method} {target}");
            }
            for value in ["", "x", "-1", "1.5", "%F0%9F%AA%99", "[]", "null", "'--", "a,b"] {
                let target = format!("{path}?{name}={value}");
                let answer = stage.client.send(&method, &target, Call::default()).await;
                is_explained(&answer, &target);
            }
        }
    }
}

#[tokio::test]
async fn credentials_come_before_the_query() {
    let stage = Stage::set().await;
    let answer = stage.server.anonymous().get("/customers?nope=1").await;
    answer.refused(401, "UNAUTHORIZED");
}

#[tokio::test]
async fn a_plus_that_became_a_space_is_explained() {
    let stage = Stage::set().await;
    for path in [
        "/customers?createdAfter=2025-10-13T09:00:00+02:00",
        "/transactions?startDate=2025-10-13T09:00:00+02:00",
        "/events?startDate=2025-10-13T09:00:00+02:00",
        "/customers?umaAddress=$ada+test@uma.test",
        "/transactions?accountIdentifier=$ada+test@uma.test",
        "/receiver/uma/$success.usd@sandbox.uma.money?senderUmaAddress=$ada+test@uma.test",
    ] {
        let answer = stage.client.get(path).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        is_explained(&answer, path);
        let message = text(&answer.body["details"]["errors"][0]["message"]);
        assert!(message.contains("%2B"), "{path}: {message}");
    }
    for path in [
        "/customers?createdAfter=2025-10-13T09:00:00%2B02:00",
        "/transactions?accountIdentifier=$ada%2Btest@uma.test",
    ] {
        stage.client.get(path).await.expect(200);
    }
}

#[tokio::test]
async fn lists_are_repeated_or_separated_by_commas() {
    let stage = Stage::set().await;
    let rates = async |query: &str| {
        stage.client.get(&format!("/exchange-rates?sourceCurrency=USD&{query}")).await
    };
    let repeated =
        rates("destinationCurrency=EUR&destinationCurrency=GBP").await.expect(200).clone();
    for query in
        ["destinationCurrency=EUR,GBP", "destinationCurrency=EUR%2CGBP&destinationCurrency=EUR"]
    {
        assert_eq!(*rates(query).await.expect(200), repeated, "{query}");
    }
    for query in ["destinationCurrency=EUR,XXX", "destinationCurrency=EUR,", "destinationCurrency="]
    {
        let answer = rates(query).await;
        let named = fields(answer.refused(400, "INVALID_CURRENCY"));
        assert_eq!(named, ["destinationCurrency"], "{query}");
    }
}

#[tokio::test]
async fn headers_and_paths_are_named_too() {
    let stage = Stage::set().await;
    let long = "x".repeat(256);
    for key in ["", "\"\"", "k\u{e9}y", long.as_str()] {
        let answer = stage.client.send("POST", "/tokens", raw("{}").key(key)).await;
        is_explained(&answer, key);
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["Idempotency-Key"], "{key}");
    }
    let answer = stage.client.send("POST", "/tokens", raw("{}").key("a").key("b")).await;
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["Idempotency-Key"]);
    for path in ["/customers/%ff", "/quotes/%ed%a0%80", "/receiver/uma/%c0%af"] {
        let answer = stage.client.get(path).await;
        is_explained(&answer, path);
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["path"], "{path}");
    }
    for path in ["/customers/%zz", "/customers/x", "/quotes/Quote:1", "/transactions/%00"] {
        let answer = stage.client.get(path).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_form_that_cannot_be_read_names_its_file() {
    let stage = Stage::set().await;
    for body in [
        "",
        "x",
        "--x",
        "--x--",
        "--x\r\nContent-Disposition: form-data\r\n\r\na",
        "--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\na,b",
        "--x\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\na\r\n--x--\r\n",
    ] {
        let call = Call::raw(body).header("content-type", "multipart/form-data; boundary=x");
        let answer = stage.client.send("POST", "/customers/bulk/csv", call).await;
        is_explained(&answer, body);
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["file"], "{body}");
    }
}

#[tokio::test]
async fn refusals_of_the_business_name_a_field() {
    let stage = Stage::set().await;
    let transfer = json!({
        "source": { "accountId": stage.internal },
        "destination": { "accountId": stage.external },
    });
    let answer = stage.client.post("/transfer-out", &transfer).await;
    assert_eq!(fields(answer.refused(400, "INVALID_AMOUNT")), ["amount"]);
    let mut much = transfer.clone();
    much["amount"] = json!(1_000_000_000);
    let answer = stage.client.post("/transfer-out", &much).await;
    is_explained(&answer, "too much");
    assert_eq!(fields(answer.refused(400, "INSUFFICIENT_BALANCE")), ["amount"]);
    let mut other = transfer;
    other["amount"] = json!(1);
    other["source"]["currency"] = json!("XXX");
    let answer = stage.client.post("/transfer-out", &other).await;
    is_explained(&answer, "no currency");
    assert_eq!(fields(answer.refused(400, "INVALID_CURRENCY")), ["source.currency"]);
    let claim = format!("/invitations/{}/claim", stage.invitation);
    for (path, body, field) in [
        ("/invitations", json!({ "inviterUma": "unknown" }), "inviterUma"),
        (claim.as_str(), json!({ "inviteeUma": "unknown" }), "inviteeUma"),
    ] {
        let answer = stage.client.post(path, &body).await;
        assert_eq!(fields(answer.refused(400, "INVALID_UMA_ADDRESS")), [field], "{path}");
    }
    let answer = stage.client.get("/customers?umaAddress=unknown").await;
    assert_eq!(fields(answer.refused(400, "INVALID_UMA_ADDRESS")), ["umaAddress"]);
}
