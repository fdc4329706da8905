//! Sets of values that fields of answers and parameters of requests share: each is one schema with
//! a name, so that a generated client has one type for it.

use domain::currency::Currency;
use domain::event::EventKind;
use domain::{delivery, internal_account, quote, transaction};
use serde_json::{Value, json};

/// A set of values and where it is used.
struct Set {
    name: &'static str,
    description: &'static str,
    values: Vec<&'static str>,
    /// Fields, each as its schema and its name.
    fields: &'static [(&'static str, &'static str)],
    /// Parameters, each as its operation and its name; no operation means all of them.
    parameters: &'static [(&'static str, &'static str)],
}

fn names<T: Copy>(values: &[T], name: fn(T) -> &'static str) -> Vec<&'static str> {
    values.iter().map(|value| name(*value)).collect()
}

fn currencies() -> Set {
    Set {
        name: "CurrencyCode",
        description: "ISO 4217 code, or the asset's usual ticker.",
        values: Currency::all().map(Currency::code).collect(),
        fields: &[
            ("Currency", "code"),
            ("AccountTransactionDestination", "currency"),
            ("AccountTransactionSource", "currency"),
            ("RealtimeFundingTransactionSource", "currency"),
            ("UmaTransactionDestination", "currency"),
            ("QuotedRealtimeFundingSource", "currency"),
            ("QuotedUmaDestination", "currency"),
            ("IndividualCustomer", "currencies"),
            ("BusinessCustomer", "currencies"),
            ("CreateIndividual", "currencies"),
            ("CreateBusiness", "currencies"),
            ("UpdateIndividual", "currencies"),
            ("UpdateBusiness", "currencies"),
        ],
        parameters: &[
            ("", "currency"),
            ("", "currencyCode"),
            ("", "sourceCurrency"),
            ("", "destinationCurrency"),
        ],
    }
}

fn statuses() -> [Set; 4] {
    [
        Set {
            name: "TransactionStatus",
            description: "Where a payment is in its life.",
            values: names(&transaction::Status::ALL, transaction::Status::name),
            fields: &[("Transaction", "status")],
            parameters: &[("listTransactions", "status")],
        },
        Set {
            name: "QuoteStatus",
            description: "Where a quote is in its life.",
            values: names(&quote::Status::ALL, quote::Status::name),
            fields: &[("Quote", "status")],
            parameters: &[("listQuotes", "status")],
        },
        Set {
            name: "InternalAccountStatus",
            description: "Whether money of an account moves: `PENDING` until its customer is \
                approved, `FROZEN` if its customer was refused, `CLOSED` with its customer.",
            values: names(&internal_account::Status::ALL, internal_account::Status::name),
            fields: &[("InternalAccount", "status")],
            parameters: &[],
        },
        Set {
            name: "DeliveryStatus",
            description: "What became of a delivery.",
            values: names(&delivery::Status::ALL, delivery::Status::name),
            fields: &[("WebhookDelivery", "status")],
            parameters: &[("listWebhookDeliveries", "status")],
        },
    ]
}

fn kinds() -> [Set; 6] {
    [
        Set {
            name: "EventType",
            description: "What an event tells of.",
            values: names(&EventKind::ALL, EventKind::name),
            fields: &[("WebhookDelivery", "type"), ("WebhookReplayRequest", "types")],
            parameters: &[("listEvents", "type"), ("listWebhookDeliveries", "type")],
        },
        Set {
            name: "TransactionType",
            description: "Which way money moves, seen from the platform.",
            values: vec!["OUTGOING", "INCOMING"],
            fields: &[("Transaction", "type")],
            parameters: &[("listTransactions", "type")],
        },
        Set {
            name: "TransactionDirection",
            description: "Money that comes to an account, or leaves it.",
            values: vec!["CREDIT", "DEBIT"],
            fields: &[("Transaction", "direction")],
            parameters: &[],
        },
        Set {
            name: "CustomerType",
            description: "A person or a business.",
            values: vec!["INDIVIDUAL", "BUSINESS"],
            fields: &[],
            parameters: &[("listCustomers", "customerType")],
        },
        Set {
            name: "FeedStart",
            description: "The first event that there is, or the next one that happens.",
            values: vec!["oldest", "latest"],
            fields: &[],
            parameters: &[("listEvents", "start")],
        },
        Set {
            name: "SortOrder",
            description: "From the least, or from the greatest.",
            values: vec!["asc", "desc"],
            fields: &[],
            parameters: &[("", "sortOrder")],
        },
    ]
}

/// Writes the sets among the schemas, and references to them where they are used.
pub fn write(document: &mut Value) {
    let all: Vec<_> = [currencies()].into_iter().chain(statuses()).chain(kinds()).collect();
    for set in &all {
        document["components"]["schemas"][set.name] = json!({
            "type": "string",
            "description": set.description,
            "enum": set.values,
        });
        for (schema, field) in set.fields {
            let place = format!("/components/schemas/{schema}/properties/{field}");
            if let Some(schema) = document.pointer_mut(&place) {
                refer(schema, set.name);
            }
        }
    }
    for item in document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut()) {
        for operation in item.as_object_mut().into_iter().flat_map(|item| item.values_mut()) {
            refer_in_parameters(operation, &all);
        }
    }
}

fn refer_in_parameters(operation: &mut Value, all: &[Set]) {
    let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        if parameter["in"] != "query" {
            continue;
        }
        let name = parameter["name"].as_str().unwrap_or_default();
        let is_used = |set: &&Set| {
            set.parameters.iter().any(|(of, used)| *used == name && (of.is_empty() || *of == id))
        };
        if let Some(set) = all.iter().find(is_used) {
            refer(&mut parameter["schema"], set.name);
        }
    }
}

/// Makes a schema, or that of the entries of a list, a reference to a set; keeps its other words.
fn refer(schema: &mut Value, set: &str) {
    let types = &schema["type"];
    let is_list =
        types == "array" || types.as_array().is_some_and(|types| types.contains(&json!("array")));
    let schema = if is_list { &mut schema["items"] } else { schema };
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("type");
        schema.remove("enum");
        schema.insert("$ref".to_owned(), json!(format!("#/components/schemas/{set}")));
    }
}
