//! The OpenAPI document as those read it who generate clients, write code by it, or look for a
//! field.

use std::collections::BTreeMap;

use domain::event::EventKind;
use jsonschema::Validator;
use serde_json::{Map, Value, json};

use crate::support::{Call, Server, text};

/// Verbs with which operations begin.
const VERBS: [&str; 20] = [
    "advance", "approve", "cancel", "claim", "create", "delete", "estimate", "execute", "fund",
    "get", "import", "list", "lookUp", "receive", "reject", "replay", "retry", "rotate", "send",
    "update",
];

/// Words of the project's own documents, which clients have not.
const INTERNAL: [&str; 10] = [
    "contract",
    "decision 0",
    "design",
    "docs/",
    "house.md",
    "milestone",
    "reliability",
    "spec.md",
    "specification",
    "unit of work",
];

fn published() -> Value {
    api::document(&Server::new().app)
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Every operation of the paths: where it stands, and itself.
fn operations(document: &Value) -> Vec<(String, &Value)> {
    let mut operations = Vec::new();
    for (path, item) in object(&document["paths"]) {
        for (method, operation) in object(item) {
            operations.push((format!("{} {path}", method.to_uppercase()), operation));
        }
    }
    assert!(operations.len() >= 50, "{} operations", operations.len());
    operations
}

/// Calls `each` with every object of the document and its place; examples are not part of it.
fn walk(value: &Value, place: &str, each: &mut impl FnMut(&str, &Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            each(place, fields);
            for (name, value) in fields {
                let is_example = matches!(name.as_str(), "example" | "examples");
                if !is_example || place.ends_with("/properties") {
                    walk(value, &format!("{place}/{name}"), each);
                }
            }
        }
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                walk(entry, &format!("{place}/{index}"), each);
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn every_operation_has_a_name_of_its_own_and_a_short_summary() {
    let document = published();
    let mut seen = BTreeMap::new();
    for (place, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap_or_default();
        let verb = VERBS.into_iter().find(|verb| id.starts_with(verb));
        let noun = verb.map_or("", |verb| &id[verb.len()..]);
        let is_noun = noun.starts_with(|first: char| first.is_ascii_uppercase());
        let is_word = id.chars().all(|letter| letter.is_ascii_alphanumeric());
        assert!(is_noun && is_word, "{place}: '{id}' is not a verb of {VERBS:?} with a noun");
        let other = seen.insert(id.to_owned(), place.clone());
        assert_eq!(other, None, "{place}: another operation is called {id}");
        check_summary(&place, operation);
    }
    for (kind, item) in object(&document["webhooks"]) {
        check_summary(kind, &item["post"]);
    }
}

/// Words with which summaries begin, as readers of such pages expect them.
const IMPERATIVES: [&str; 25] = [
    "Add", "Advance", "Approve", "Cancel", "Claim", "Create", "Delete", "Estimate", "Execute",
    "Fund", "Get", "Import", "List", "Look", "Pay", "Pull", "Receive", "Reject", "Remove",
    "Replay", "Retry", "Rotate", "Send", "Take", "Update",
];

/// Characters of a summary: it fits one line beside the method.
const SUMMARY_MAX: usize = 40;

fn check_summary(place: &str, operation: &Value) {
    let summary = operation["summary"].as_str().unwrap_or_default();
    assert!((5..=SUMMARY_MAX).contains(&summary.len()), "{place}: the summary is '{summary}'");
    assert!(!summary.ends_with('.') && !summary.contains('\n'), "{place}: '{summary}'");
    let verb = summary.split(' ').next().unwrap_or_default();
    assert!(IMPERATIVES.contains(&verb), "{place}: '{summary}' does not say what to do");
}

/// Sections stand in the order in which people need them, each with a description, and no
/// operation is outside of them. What is sent has a section of its own: generators make one class
/// of a section, in which equal names would meet.
#[tokio::test]
async fn every_operation_is_in_a_section_that_is_described() {
    let document = published();
    let mut sections = Vec::new();
    for tag in document["tags"].as_array().expect("sections") {
        assert!(text(&tag["description"]).len() > 30, "{tag}");
        sections.push(text(&tag["name"]));
    }
    let place = |name: &str| sections.iter().position(|section| section == name).expect(name);
    let order = ["Customers", "Internal accounts", "External accounts", "Quotes", "Transfers"];
    assert!(order.map(place).is_sorted(), "{sections:?}");
    let mut used: Vec<_> = operations(&document).iter().map(|(_, it)| it["tags"].clone()).collect();
    for (kind, item) in object(&document["webhooks"]) {
        let tags = item["post"]["tags"].clone();
        assert!(!used.contains(&tags), "{kind} is in a section of what is called");
    }
    used.extend(object(&document["webhooks"]).map(|(_, item)| item["post"]["tags"].clone()));
    for tags in &used {
        let [tag] = tags.as_array().expect("tags").as_slice() else { panic!("{tags}") };
        assert!(sections.contains(&text(tag)), "{tag} is not described");
    }
    for section in &sections {
        assert!(used.contains(&json!([section])), "{section} is empty");
    }
}

/// The text in front of the document is Markdown, with the lines of its code, and has the tables
/// of the sandbox: a reader needs no other page to try each outcome.
#[tokio::test]
async fn the_guide_has_its_code_and_the_tables_of_test_numbers() {
    let served = Server::new().anonymous().send_to("GET", "/openapi.json", Call::default()).await;
    let guide = text(&served.expect(200)["info"]["description"]);
    assert!(guide.contains("\n```sh\ncurl -sS -u \"$SY_USER\" \"$SY/config\"\n```\n"), "{guide}");
    let page = include_str!("../../../../docs/sandbox.md");
    let mut rows = 0;
    let tables = page.split("## Rows of one's own").next().expect("a part");
    for line in tables.lines().filter(|line| line.starts_with('|')) {
        assert!(guide.lines().any(|it| it == line), "{line} is not in the guide");
        rows += 1;
    }
    assert!(rows >= 20, "{rows} rows");
    for fence in guide.lines().filter(|line| line.contains("```")) {
        assert!(["```", "```sh"].contains(&fence), "{fence}");
    }
}

#[tokio::test]
async fn every_schema_has_a_title_of_its_own() {
    let document = published();
    let mut seen = BTreeMap::new();
    for (name, schema) in object(&document["components"]["schemas"]) {
        assert_eq!(schema["title"].as_str(), Some(name.as_str()), "{name}");
        assert!(name.chars().all(|letter| letter.is_ascii_alphanumeric()), "{name}");
    }
    walk(&document, "", &mut |place, fields| {
        let Some(title) = fields.get("title").and_then(Value::as_str) else { return };
        let other = seen.insert(title.to_owned(), place.to_owned());
        assert_eq!(other, None, "{place}: another schema has the title {title}");
    });
}

#[tokio::test]
async fn no_text_of_the_document_is_for_its_authors() {
    walk(&published(), "", &mut |place, fields| {
        for (name, value) in fields {
            let Some(text) = value.as_str() else { continue };
            let found = INTERNAL.into_iter().find(|word| text.to_lowercase().contains(word));
            assert_eq!(found, None, "{place}/{name}: {text}");
        }
    });
}

#[tokio::test]
async fn no_part_of_the_document_is_null() {
    walk(&published(), "", &mut |place, fields| {
        for (name, value) in fields {
            assert!(!value.is_null(), "{place}/{name} is null");
        }
    });
}

#[tokio::test]
async fn only_a_field_that_a_patch_clears_may_be_null() {
    let mut cleared = 0;
    walk(&published(), "", &mut |place, fields| {
        let is_null = match fields.get("type") {
            Some(Value::String(name)) => name == "null",
            Some(Value::Array(names)) => names.iter().any(|name| name == "null"),
            _ => false,
        };
        let is_cleared = place.starts_with("/components/schemas/Update");
        assert!(!is_null || is_cleared, "{place} may be null");
        cleared += usize::from(is_null);
        assert!(!fields.contains_key("nullable"), "{place} may be null");
    });
    assert!(cleared >= 9, "{cleared} fields can be cleared");
}

#[tokio::test]
async fn what_refers_to_something_finds_it() {
    let document = published();
    walk(&document, "", &mut |place, fields| {
        let Some(target) = fields.get("$ref").and_then(Value::as_str) else { return };
        let found = target.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
        assert!(found.is_some(), "{place}: there is no {target}");
    });
}

/// The schema of a place of the document, with all that it refers to.
fn compiled(document: &Value, schema: &Value) -> Validator {
    let mut schema = schema.clone();
    schema["components"] = document["components"].clone();
    let options = jsonschema::options().should_validate_formats(true);
    options.build(&schema).expect("the schema compiles")
}

/// Fails unless there are examples and all of them are what the schema allows.
fn check_examples(document: &Value, place: &str, holder: &Value) {
    let named = object(&holder["examples"]).map(|(_, example)| &example["value"]);
    let examples: Vec<_> = holder.get("example").into_iter().chain(named).collect();
    assert!(!examples.is_empty(), "{place} has no example: see crates/api/src/openapi/examples");
    let schema = compiled(document, &holder["schema"]);
    for example in examples {
        let errors: Vec<_> = schema
            .iter_errors(example)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "the example of {place} is wrong: {errors:#?}");
    }
}

/// Checks the examples of parameters and bodies of an operation; how many it has.
fn check_operation(document: &Value, place: &str, operation: &Value) -> usize {
    let mut count = 0;
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        count += 1;
        // Programs that try requests would send the same key with each, and replay the first.
        if parameter["name"] == "Idempotency-Key" {
            let sent = ["example", "examples"].into_iter().find(|it| parameter.get(it).is_some());
            let schema = &parameter["schema"];
            let given =
                ["default", "example", "examples"].into_iter().find(|it| schema.get(it).is_some());
            assert_eq!((sent, given), (None, None), "{place} has a key");
            continue;
        }
        check_examples(document, &format!("{place}, {}", parameter["name"]), parameter);
    }
    for (kind, content) in object(&operation["requestBody"]["content"]) {
        check_examples(document, &format!("{place}, request of {kind}"), content);
        count += 1;
    }
    for (status, response) in object(&operation["responses"]) {
        for (_, content) in object(&response["content"]) {
            check_examples(document, &format!("{place}, response {status}"), content);
            count += 1;
        }
    }
    count
}

#[tokio::test]
async fn every_parameter_and_body_has_an_example_that_its_schema_allows() {
    let document = published();
    for (place, operation) in operations(&document) {
        assert!(check_operation(&document, &place, operation) > 3, "{place}");
    }
    for (kind, item) in object(&document["webhooks"]) {
        assert!(check_operation(&document, kind, &item["post"]) > 3, "{kind}");
    }
}

/// Each example of a request is sent as it is: what it names does not exist here, but nothing in
/// it is refused as malformed.
#[tokio::test]
async fn every_example_of_a_request_is_one_that_the_server_takes() {
    let server = Server::new();
    let document = api::document(&server.app);
    let mut sent = 0;
    for (place, operation) in operations(&document) {
        let (method, path) = place.split_once(' ').expect("a method and a path");
        let content = &operation["requestBody"]["content"]["application/json"];
        let named = object(&content["examples"]).map(|(_, example)| &example["value"]);
        for body in content.get("example").into_iter().chain(named) {
            let client = server.platform().await;
            let answer = client.send(method, &filled(path, operation), Call::json(body)).await;
            let is_malformed = answer.body["code"] == "INVALID_INPUT";
            assert!(!is_malformed, "{place}: {}\n{body}", answer.body);
            sent += 1;
        }
    }
    assert!(sent >= 20, "{sent} examples");
}

/// A path with the examples of its parameters.
fn filled(path: &str, operation: &Value) -> String {
    let mut path = path.to_owned();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        if parameter["in"] == "path" {
            let name = format!("{{{}}}", text(&parameter["name"]));
            path = path.replace(&name, &text(&parameter["example"]));
        }
    }
    path
}

/// The schema behind a reference, or of the entries of a list.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(target) = schema["$ref"].as_str() {
        return document.pointer(target.trim_start_matches('#')).expect("a schema");
    }
    if schema["type"] == "array" { resolved(document, &schema["items"]) } else { schema }
}

/// Ways to pay in have no field that their schema does not describe, whatever the currency.
#[tokio::test]
async fn every_field_of_payment_instructions_is_described() {
    let server = Server::new();
    let client = server.platform().await;
    let document = api::document(&server.app);
    let mut seen = 0;
    let accounts = client.get("/platform/internal-accounts").await.expect(200).clone();
    for account in accounts["data"].as_array().expect("accounts") {
        for way in account["fundingPaymentInstructions"].as_array().expect("ways") {
            let info = &way["accountOrWalletInfo"];
            let mapping = &document["components"]["schemas"]["PaymentInstructionInfo"];
            let reference = &mapping["discriminator"]["mapping"][text(&info["accountType"])];
            let schema = resolved(&document, &json!({ "$ref": reference })).clone();
            for (name, _) in object(info) {
                let property = &schema["properties"][name];
                let is_described = name == "accountType" || property["description"].is_string();
                assert!(is_described, "{name} of {reference}");
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "{seen} fields");
}

/// A parameter that refuses a word because it is none of its values has them as an enum, and takes
/// each of them.
#[tokio::test]
async fn a_parameter_with_a_set_of_values_names_them() {
    let server = Server::new();
    let client = server.platform().await;
    let document = api::document(&server.app);
    let mut sets = 0;
    for (place, operation) in operations(&document) {
        let Some(path) = place.strip_prefix("GET ") else { continue };
        let path = filled(path, operation);
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
            let name = text(&parameter["name"]);
            let schema = resolved(&document, &parameter["schema"]);
            if let Some(values) = schema["enum"].as_array() {
                sets += 1;
                for value in values {
                    let answer = client.get(&format!("{path}?{name}={}", text(value))).await;
                    let is_taken = answer.body["code"] != "INVALID_INPUT";
                    assert!(is_taken, "{place}, {name}={value}: {}", answer.body);
                }
                continue;
            }
            let answer = client.get(&format!("{path}?{name}=no-such-value")).await;
            let errors = answer.body["details"]["errors"].to_string();
            let is_set = errors.contains("is not a value of this field")
                || errors.contains("must be one of")
                || answer.body["code"] == "INVALID_CURRENCY";
            let is_boolean = schema["type"] == "boolean";
            assert!(!is_set || is_boolean, "{place}: {name} has no enum: {}", answer.body);
        }
    }
    assert!(sets >= 17, "{sets} parameters with an enum");
}

/// The document of the repository names a server that was started without options; a running one
/// names itself, and nothing else is different.
#[tokio::test]
async fn the_server_of_the_document_is_absolute() {
    let server = Server::new();
    let mut document = api::document(&server.app);
    let url = text(&document["servers"][0]["url"]);
    assert_eq!(url, format!("http://127.0.0.1:8080/{}", api::VERSION));
    let served = server.anonymous().send_to("GET", "/openapi.json", Call::default()).await;
    document["servers"][0]["url"] = json!(format!("https://pay.test/{}", api::VERSION));
    assert_eq!(served.expect(200), &document);
}

/// The section of webhooks has every event; what was recorded is what its schema says.
#[tokio::test]
async fn every_event_is_a_webhook_of_the_document() {
    let server = Server::new();
    let document = api::document(&server.app);
    let listed: Vec<_> = object(&document["webhooks"]).map(|(name, _)| name.as_str()).collect();
    let mut kinds: Vec<_> = EventKind::ALL.into_iter().map(EventKind::name).collect();
    kinds.sort_unstable();
    assert_eq!(listed, kinds);

    let client = server.platform().await;
    let person = client.customer().await;
    let business = json!({
        "customerType": "BUSINESS", "businessInfo": { "legalName": "Analytical Engines Ltd" },
    });
    client.post("/customers", &business).await.expect(201);
    let account = client.funded(&person, "USD", 100_000).await;
    let external = client.usd_external(&person, "111").await;
    let transfer = json!({
        "source": { "accountId": account }, "destination": { "accountId": external },
        "amount": 500,
    });
    client.post("/transfer-out", &transfer).await.expect(201);
    let receiver = client.uma_address(&person).await;
    let payment = json!({
        "senderUmaAddress": "$success.usd@sandbox.uma.money", "receiverUmaAddress": receiver,
        "receivingCurrencyCode": "USD", "receivingCurrencyAmount": 2_500,
    });
    client.post("/sandbox/uma/receive", &payment).await.expect(200);
    let invitation = json!({ "inviterUma": receiver, "firstName": "Ada" });
    let invitation = client.post("/invitations", &invitation).await.expect(201).clone();
    let claim = format!("/invitations/{}/claim", text(&invitation["code"]));
    let invitee = client.uma_address(&client.customer().await).await;
    client.post(&claim, &json!({ "inviteeUma": invitee })).await.expect(200);
    server.pass(60_000).await;

    let feed = client.get("/events?limit=100").await;
    let mut seen = BTreeMap::new();
    for event in feed.expect(200)["data"].as_array().expect("events") {
        let kind = text(&event["type"]);
        let content = &document["webhooks"][&kind]["post"]["requestBody"]["content"];
        let schema = compiled(&document, &content["application/json"]["schema"]);
        let errors: Vec<_> = schema.iter_errors(event).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{event}: {errors:#?}");
        *seen.entry(kind).or_insert(0) += 1;
    }
    for kind in ["ACCOUNT_STATUS", "INCOMING_PAYMENT", "INVITATION_CLAIMED", "OUTGOING_PAYMENT"] {
        assert!(seen.contains_key(kind), "{kind} is not among {seen:?}");
    }
}
