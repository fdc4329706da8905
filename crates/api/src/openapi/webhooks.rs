//! The section of the document that says what an endpoint of a platform is sent, and what its
//! answers mean (specification 6).

use domain::event::EventKind;
use domain::platform::COUNTERPARTY_FIELDS;
use serde_json::{Map, Value, json};

use crate::events::types;

/// The document's entry for one kind of event.
struct About {
    /// Name of the event's schema, and of the operation without its verb.
    name: &'static str,
    summary: &'static str,
    /// Its cause, as a sentence without its full stop.
    cause: &'static str,
    description: &'static str,
    /// Schema of the event's `data`.
    data: Value,
}

fn about(kind: EventKind) -> About {
    let of = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    match kind {
        EventKind::IncomingPayment => About {
            name: "IncomingPayment",
            summary: "Take an incoming payment event",
            cause: "An incoming payment has a new status, or needs approval",
            description: "An event with `data.requestedReceiverCustomerInfoFields` is an approval \
                request: the payer waits, so it is sent once, and the answer must be there within \
                5 seconds.",
            data: of("IncomingPayment"),
        },
        EventKind::OutgoingPayment => About {
            name: "OutgoingPayment",
            summary: "Take an outgoing payment event",
            cause: "An outgoing payment has a new status",
            description: "Sent when the payment is created and for each status after it.",
            data: of("Transaction"),
        },
        EventKind::InvitationClaimed => About {
            name: "InvitationClaimed",
            summary: "Take an invitation event",
            cause: "An invitation was claimed",
            description: "Sent to the platform that created the invitation.",
            data: of("Invitation"),
        },
        EventKind::KycStatus => About {
            name: "KycStatus",
            summary: "Take an identity check event",
            cause: "The identity check of a customer has a new result",
            description: "`data` is the customer with its `kycStatus` or `kybStatus`.",
            data: of("Customer"),
        },
        EventKind::AccountStatus => About {
            name: "AccountStatus",
            summary: "Take an account event",
            cause: "The available balance of an internal account has changed",
            description: "`data` is the account, with the balance before and after the change.",
            data: of("ChangedAccount"),
        },
        EventKind::Test => About {
            name: "Test",
            summary: "Take a test event",
            cause: "The endpoint was set, or is tested",
            description: "Sent once; `data` is empty.",
            data: json!({ "type": "object", "description": "Nothing." }),
        },
        EventKind::BulkUpload => About {
            name: "BulkUpload",
            summary: "Take an import event",
            cause: "An import of customers has ended",
            description: "`data` is the import with its refused rows.",
            data: of("BulkImportJob"),
        },
    }
}

/// Writes the events and the schemas that only they have.
pub fn write(document: &mut Value) {
    let schemas = &mut document["components"]["schemas"];
    write_parts(schemas);
    let mut webhooks = Map::new();
    let (mut references, mut mapping) = (Vec::new(), Map::new());
    for kind in EventKind::ALL {
        let about = about(kind);
        let schema = format!("{}Event", about.name);
        let reference = format!("#/components/schemas/{schema}");
        schemas[&schema] = event(kind, &about);
        references.push(json!({ "$ref": reference }));
        for name in types(kind) {
            mapping.insert(name.to_owned(), json!(reference));
        }
        webhooks.insert(kind.name().to_owned(), json!({ "post": operation(kind, &about) }));
    }
    schemas["Event"] = json!({
        "description": "An event, as it is delivered; `type` selects the variant.",
        "oneOf": references,
        "discriminator": { "propertyName": "type", "mapping": mapping },
    });
    document["webhooks"] = Value::Object(webhooks);
}

/// The schemas that an event's `data` and the answers to approval requests consist of.
fn write_parts(schemas: &mut Value) {
    schemas["IncomingPayment"] = json!({
        "description": "An incoming payment; with the fields that are requested about its \
            receiver if it needs approval.",
        "allOf": [{ "$ref": "#/components/schemas/Transaction" }, {
            "type": "object",
            "properties": { "requestedReceiverCustomerInfoFields": {
                "type": "array",
                "description": "Facts that the payer's institution requests about the receiver.",
                "items": { "$ref": "#/components/schemas/CounterpartyField" },
            } },
        }],
    });
    schemas["ChangedAccount"] = json!({
        "description": "An internal account whose available balance has changed.",
        "allOf": [{ "$ref": "#/components/schemas/InternalAccount" }, {
            "type": "object",
            "required": ["oldBalance", "newBalance"],
            "properties": {
                "oldBalance": amount("Available before the change."),
                "newBalance": amount("Available after the change."),
            },
        }],
    });
    schemas["ApprovalAnswer"] = json!({
        "type": "object",
        "description": "Approves a payment; the body may be empty if no field is mandatory.",
        "properties": { "receiverCustomerInfo": { "$ref": "#/components/schemas/Facts" } },
    });
    schemas["ApprovalRejection"] = json!({
        "type": "object",
        "description": "Rejects a payment; the body may be empty.",
        "properties": { "reason": {
            "type": "string",
            "description": "Kept with the payment; the payer does not see it.",
        } },
    });
    schemas["ApprovalRequirement"] = json!({
        "type": "object",
        "description": "Refuses a payment because facts about the payer are missing.",
        "properties": { "requiredFields": {
            "type": "array",
            "description": "The facts that are missing.",
            "items": { "type": "string", "enum": COUNTERPARTY_FIELDS },
        } },
    });
}

fn amount(description: &str) -> Value {
    json!({ "$ref": "#/components/schemas/Amount", "description": description })
}

/// The envelope of one kind of event.
fn event(kind: EventKind, about: &About) -> Value {
    json!({
        "type": "object",
        "description": format!("{}.", about.cause),
        "required": ["id", "type", "timestamp", "data"],
        "properties": {
            "id": {
                "type": "string",
                "pattern": "^Webhook:",
                "description": "Its id, the same in every delivery.",
            },
            "type": {
                "type": "string",
                "enum": types(kind),
                "description": "What it tells of; with the state behind a dot for platforms whose \
                    operator chose dotted names.",
            },
            "timestamp": {
                "type": "string",
                "format": "date-time",
                "description": "When it happened.",
            },
            "data": about.data,
        },
    })
}

fn operation(kind: EventKind, about: &About) -> Value {
    let is_question = kind == EventKind::IncomingPayment;
    json!({
        "operationId": format!("handle{}", about.name),
        "summary": about.summary,
        "description": format!("{}. {}", about.cause, about.description),
        "tags": [super::guide::EVENTS_TAG],
        "security": [],
        "parameters": headers(),
        "requestBody": {
            "required": true,
            "content": { "application/json": {
                "schema": { "$ref": format!("#/components/schemas/{}Event", about.name) },
            } },
        },
        "responses": if is_question { decisions() } else { receipts() },
    })
}

/// Headers of every delivery.
fn headers() -> Value {
    let header = |name: &str, description: &str, example: &str| {
        json!({
            "name": name,
            "in": "header",
            "required": true,
            "description": description,
            "schema": { "type": "string" },
            "example": example,
        })
    };
    json!([
        header(
            "webhook-id",
            "The event's id, as Standard Webhooks name it.",
            "Webhook:954d08c9-5075-5768-9536-787e32461169",
        ),
        header("webhook-timestamp", "When it was sent, in seconds since 1970.", "1760346000"),
        header(
            "webhook-signature",
            "HMAC-SHA256 over id, timestamp and body, as Standard Webhooks define it.",
            "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
        ),
        header(
            "X-Grid-Signature",
            "ECDSA P-256 signature over the body, base64 of DER, in JSON.",
            "{\"v\":\"1\",\"s\":\"MEUCIQDv0g0a5yDO0bqk2sTzu7fGf1kmNgXyZ8n4YQ==\"}",
        ),
    ])
}

/// Answers to an event that only has to arrive.
fn receipts() -> Value {
    json!({
        "2XX": { "description": "The event has arrived." },
        "409": { "description": "The event had arrived before." },
        "410": { "description": "Nothing is sent any more, until the endpoint is set again." },
        "429": { "description": "It is sent again after `Retry-After`." },
        "default": { "description": "It is sent again: after 1, 3, 9 seconds and so on, at most \
            half an hour apart, for 7 days." },
    })
}

/// Answers to an approval request. Without a request, they are receipts.
fn decisions() -> Value {
    let answer = |description: &str, schema: &str, example: Value| {
        json!({
            "description": description,
            "content": { "application/json": {
                "schema": { "$ref": format!("#/components/schemas/{schema}") },
                "example": example,
            } },
        })
    };
    json!({
        "200": answer(
            "The event has arrived; an approval request is approved.",
            "ApprovalAnswer",
            json!({ "receiverCustomerInfo": { "TAX_ID": "123-45-6789" } }),
        ),
        "202": { "description": "The event has arrived; an approval request waits 5 seconds more \
            for `approveTransaction` or `rejectTransaction`." },
        "403": answer(
            "An approval request is rejected.",
            "ApprovalRejection",
            json!({ "reason": "RESTRICTED_JURISDICTION" }),
        ),
        "409": { "description": "The event had arrived before; it is no answer to an approval \
            request." },
        "422": answer(
            "An approval request is refused because facts about the payer are missing.",
            "ApprovalRequirement",
            json!({ "requiredFields": ["BIRTH_DATE"] }),
        ),
        "default": { "description": "An approval request fails with \
            `PAYMENT_APPROVAL_WEBHOOK_ERROR`; any other event is sent again." },
    })
}
