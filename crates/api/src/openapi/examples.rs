//! Examples of requests and answers: recorded from one story, a file for each tag of the document.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::error::{ApiError, Code, Problem};

/// Examples by `operationId`: `request` or, named, `requests`; and `response`.
const OPERATIONS: [&str; 13] = [
    include_str!("examples/customers.json"),
    include_str!("examples/exchange_rates.json"),
    include_str!("examples/external_accounts.json"),
    include_str!("examples/internal_accounts.json"),
    include_str!("examples/invitations.json"),
    include_str!("examples/platform.json"),
    include_str!("examples/quotes.json"),
    include_str!("examples/receivers.json"),
    include_str!("examples/simulated.json"),
    include_str!("examples/tokens.json"),
    include_str!("examples/transactions.json"),
    include_str!("examples/transfers.json"),
    include_str!("examples/webhooks.json"),
];

/// Examples by the type of the event.
const EVENTS: &str = include_str!("examples/events.json");

/// Examples by the name of the parameter, or by `operationId.name` where that differs.
const PARAMETERS: &str = include_str!("examples/parameters.json");

/// Errors of paths that name something, by the name of the parameter.
const NOT_FOUND: [(&str, Code); 9] = [
    ("customerId", Code::UserNotFound),
    ("accountId", Code::AccountNotFound),
    ("quoteId", Code::QuoteNotFound),
    ("transactionId", Code::TransactionNotFound),
    ("tokenId", Code::TokenNotFound),
    ("invitationCode", Code::InvitationNotFound),
    ("deliveryId", Code::DeliveryNotFound),
    ("jobId", Code::BulkUploadJobNotFound),
    ("receiverUmaAddress", Code::UmaNotFound),
];

/// Parameters that can be wrong, and what is said about them.
const MISTAKES: [(&str, &str); 2] = [
    ("limit", "must be an integer from 1 to 100"),
    ("Idempotency-Key", "must be sent once, with 1 to 255 printable ASCII characters"),
];

fn parse(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).expect("our own files are JSON objects")
}

/// Writes the examples of every operation, parameter and event.
pub fn write(document: &mut Value) {
    let by_id: BTreeMap<String, Value> = OPERATIONS.into_iter().flat_map(parse).collect();
    let parameters = parse(PARAMETERS);
    for item in document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut()) {
        for operation in item.as_object_mut().into_iter().flat_map(|item| item.values_mut()) {
            let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
            write_parameters(operation, &id, &parameters);
            if let Some(examples) = by_id.get(&id) {
                write_bodies(operation, examples);
            }
            write_errors(operation);
        }
    }
    for (kind, example) in parse(EVENTS) {
        let place = format!("/webhooks/{kind}/post/requestBody/content/application~1json");
        if let Some(content) = document.pointer_mut(&place) {
            content["example"] = example;
        }
    }
}

fn write_parameters(operation: &mut Value, id: &str, examples: &Map<String, Value>) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap_or_default();
        let example = examples.get(&format!("{id}.{name}")).or_else(|| examples.get(name));
        if let (Some(example), None) = (example, parameter.get("example")) {
            parameter["example"] = example.clone();
        }
    }
}

fn write_bodies(operation: &mut Value, examples: &Value) {
    let contents = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut);
    for content in contents.into_iter().flat_map(|contents| contents.values_mut()) {
        write_request(content, examples);
    }
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        let content = response.pointer_mut("/content/application~1json");
        if let (true, Some(content)) = (status.starts_with('2'), content) {
            content["example"] = examples["response"].clone();
        }
    }
}

fn write_request(content: &mut Value, examples: &Value) {
    if let Some(example) = examples.get("request") {
        content["example"] = example.clone();
    }
    let named = examples["requests"].as_object().into_iter().flatten();
    for (name, example) in named {
        content["examples"][name] = json!({ "value": example });
    }
}

/// Writes an example of each refusal, with what its description says as the message.
fn write_errors(operation: &mut Value) {
    let names = |places: &[&str]| -> Vec<String> {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        parameters
            .filter(|parameter| places.iter().any(|place| parameter["in"] == *place))
            .filter_map(|parameter| parameter["name"].as_str().map(str::to_owned))
            .collect()
    };
    let (path, all) = (names(&["path"]), names(&["header", "query", "path"]));
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        let description = response["description"].as_str().unwrap_or_default().to_owned();
        let content = response.pointer_mut("/content/application~1json");
        if let (false, Some(content)) = (status.starts_with('2'), content) {
            let Some(refusal) = refusal(status, &description, &path, &all) else { continue };
            let (_, body) = refusal.render();
            content["example"] = serde_json::from_slice(&body).expect("our own errors are JSON");
        }
    }
}

fn refusal(status: &str, description: &str, path: &[String], all: &[String]) -> Option<ApiError> {
    let named = NOT_FOUND.into_iter().find(|(name, _)| path.iter().any(|it| it == name));
    let code = match (status, named) {
        ("404", Some((_, code))) => code,
        _ => Code::ALL.iter().copied().find(|code| code.status().to_string() == status)?,
    };
    let mistake = all.iter().find_map(|name| MISTAKES.iter().find(|(known, _)| known == name));
    if let (Code::InvalidInput, Some((field, message))) = (code, mistake) {
        return Some(ApiError::fields(code, vec![Problem::new(*field, *message)]));
    }
    let mut letters = description.trim_end_matches('.').chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    Some(ApiError::new(code, first.into_iter().chain(letters).collect::<String>()))
}
