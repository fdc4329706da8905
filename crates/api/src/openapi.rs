//! The OpenAPI document: collected from the routes, with what the derive cannot say.

mod examples;
pub(crate) mod guide;
pub mod origin;
mod schemas;
mod sets;
mod texts;
mod webhooks;

use domain::account_info::{AccountType, Field, Holder, Presence, Shape, has_rail, types};
use domain::currency::Currency;
use domain::customer::{KycStatus, OWNER_TYPES};
use domain::platform::COUNTERPARTY_FIELDS;
use domain::rail::Rail;
use domain::rate_basis::{PriceRule, RateSource};
use domain::token::Permission;
use domain::{bulk_import, external_account, invitation, postcode, transaction};
use serde_json::{Map, Value, json};
use utoipa::openapi::path::Paths;

use crate::error::Code;

/// Gives every union of tagged variants its discriminator: the tag becomes a constant of the
/// variant's own schema, and the union a plain list of references.
pub fn hoist(document: &mut Value) {
    for (name, tag, variants) in unions(document) {
        let mut references = Vec::new();
        let mut mapping = Map::new();
        for (value, reference) in variants {
            let target = component(&reference);
            let schema = &mut document["components"]["schemas"][&target];
            schema["properties"][&tag] = json!({ "type": "string", "const": value });
            match schema["required"].as_array_mut() {
                Some(required) if required.contains(&json!(tag)) => {}
                Some(required) => required.insert(0, json!(tag)),
                None => schema["required"] = json!([tag]),
            }
            references.push(json!({ "$ref": reference }));
            mapping.insert(value, json!(reference));
        }
        let union = &mut document["components"]["schemas"][&name];
        union["oneOf"] = Value::Array(references);
        union["discriminator"] = json!({ "propertyName": tag, "mapping": mapping });
    }
}

/// Rewrites every union of tagged variants so that a checker follows the tag. It then reports the
/// errors of the variant that was meant, instead of "none of the variants fits".
pub fn branches(document: &mut Value) {
    nullable_references(document);
    for (name, tag, variants) in unions(document) {
        let values: Vec<_> = variants.iter().map(|(value, _)| json!(value)).collect();
        let tag_rule = json!({
            "type": "object",
            "required": [&tag],
            "properties": { &tag: { "enum": values } },
        });
        let branch = |(value, reference): &(String, String)| {
            json!({
                "if": { "required": [&tag], "properties": { &tag: { "const": value } } },
                "then": { "$ref": reference },
            })
        };
        let all: Vec<_> = std::iter::once(tag_rule).chain(variants.iter().map(branch)).collect();
        document["components"]["schemas"][&name] = json!({ "allOf": all });
    }
}

/// Rewrites every "null or one of this type" so that a checker reports what is wrong inside the
/// value, instead of "neither fits".
fn nullable_references(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let inner = fields.get("oneOf").and_then(|all| match all.as_array()?.as_slice() {
                [null, inner] | [inner, null] if null["type"] == "null" => Some(inner.clone()),
                _ => None,
            });
            if let Some(inner) = inner {
                fields.remove("oneOf");
                fields.insert("if".to_owned(), json!({ "type": "null" }));
                fields.insert("else".to_owned(), inner);
            }
            fields.values_mut().for_each(nullable_references);
        }
        Value::Array(items) => items.iter_mut().for_each(nullable_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Says in the schema of an address where a postal code is required.
fn postal_codes(document: &mut Value) {
    if let Some(Value::Object(address)) = document["components"]["schemas"].get_mut("Address") {
        let without = json!({
            "required": ["country"],
            "properties": { "country": { "enum": postcode::WITHOUT } },
        });
        let required = json!({
            "required": ["postalCode"],
            "properties": { "postalCode": { "type": "string" } },
        });
        address.insert("if".to_owned(), without);
        address.insert("else".to_owned(), required);
    }
}

/// A union of tagged variants: its name, its tag, and the reference of each variant by the tag's
/// value.
type Union = (String, String, Vec<(String, String)>);

/// Every union of tagged variants.
fn unions(document: &Value) -> Vec<Union> {
    let Some(schemas) = document["components"]["schemas"].as_object() else { return Vec::new() };
    let union = |(name, schema): (&String, &Value)| {
        let mut tag = None;
        let variants = schema["oneOf"]
            .as_array()?
            .iter()
            .map(|variant| {
                let reference = variant["allOf"][0]["$ref"].as_str()?;
                let (key, value) = variant["allOf"][1]["properties"].as_object()?.iter().next()?;
                tag = Some(key.clone());
                Some((value["enum"][0].as_str()?.to_owned(), reference.to_owned()))
            })
            .collect::<Option<Vec<_>>>()?;
        Some((name.clone(), tag?, variants))
    };
    schemas.iter().filter_map(union).collect()
}

fn component(reference: &str) -> String {
    reference.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Writes the account types of the one table into the document: a variant each of external
/// accounts, and of the accounts in payment instructions.
pub fn account_types(document: &mut Value) {
    let schemas = &mut document["components"]["schemas"];
    schemas["Beneficiary"] = beneficiary();
    union(schemas, "ExternalAccountInfo", "Info", |account_type| {
        variant(account_type, account_type.fields, true)
    });
    union(schemas, "PaymentInstructionInfo", "PaymentInfo", |account_type| {
        variant(account_type, account_type.instruction_fields, false)
    });
}

fn union(schemas: &mut Value, name: &str, suffix: &str, schema: impl Fn(&AccountType) -> Value) {
    let mut references = Vec::new();
    let mut mapping = Map::new();
    for account_type in types() {
        let variant = format!("{}{suffix}", pascal(account_type.name));
        let reference = format!("#/components/schemas/{variant}");
        schemas[&variant] = schema(account_type);
        references.push(json!({ "$ref": reference }));
        mapping.insert(account_type.name.to_owned(), json!(reference));
    }
    schemas[name] = json!({
        "description": "What identifies an account on its rail; `accountType` selects the variant.",
        "oneOf": references,
        "discriminator": { "propertyName": "accountType", "mapping": mapping },
    });
}

/// `USD_ACCOUNT` as `UsdAccount`.
fn pascal(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_owned() + &rest.to_lowercase()
    };
    name.split('_').map(word).collect()
}

fn variant(account_type: &AccountType, fields: &[Field], is_external: bool) -> Value {
    let mut properties = Map::new();
    let mut required = vec![json!("accountType")];
    properties
        .insert("accountType".to_owned(), json!({ "type": "string", "const": account_type.name }));
    let rails: Vec<_> = account_type.every_rail().into_iter().map(|rail| rail.name()).collect();
    properties.insert(
        "paymentRails".to_owned(),
        json!({
            "type": "array",
            "items": { "type": "string", "enum": rails },
            "description": "Rails that may be used; all of the type when left out.",
        }),
    );
    for field in fields {
        properties.insert(field.name.to_owned(), property(field));
        if field.presence == Presence::Required {
            required.push(json!(field.name));
        }
    }
    if is_external {
        properties.insert(
            "beneficiary".to_owned(),
            json!({ "$ref": "#/components/schemas/Beneficiary" }),
        );
        if matches!(account_type.holder, Holder::Beneficiary { .. }) {
            required.push(json!("beneficiary"));
        }
    }
    json!({
        "type": "object",
        "description": format!("{}.", account_type.title),
        "required": required,
        "properties": properties,
    })
}

fn property(field: &Field) -> Value {
    let mut schema = match field.shape {
        Shape::Text => json!({ "type": "string" }),
        Shape::TextList => json!({ "type": "array", "items": { "type": "string" } }),
        Shape::Date => json!({ "type": "string", "format": "date" }),
        Shape::Country => json!({ "type": "string", "pattern": "^[A-Z]{2}$" }),
    };
    schema["description"] = json!(field.description);
    if !field.example.is_empty() && field.shape != Shape::TextList {
        schema["examples"] = json!([field.example]);
    }
    if field.shape == Shape::Text {
        if !field.pattern.is_empty() {
            schema["pattern"] = json!(field.pattern);
        }
        if !field.values.is_empty() {
            schema["enum"] = json!(field.values);
        }
        if field.min_length > 0 {
            schema["minLength"] = json!(field.min_length);
        }
        if field.max_length > 0 {
            schema["maxLength"] = json!(field.max_length);
        }
    }
    schema
}

fn beneficiary() -> Value {
    let mut properties = Map::new();
    for field in domain::account_info::beneficiary_fields() {
        properties.insert(field.name.to_owned(), property(field));
    }
    properties.insert("address".to_owned(), json!({ "$ref": "#/components/schemas/Address" }));
    json!({
        "type": "object",
        "description": "Who receives what is paid to the account. A person needs fullName (and for \
            USD_ACCOUNT birthDate and nationality), a business legalName.",
        "required": ["beneficiaryType"],
        "properties": properties,
    })
}

/// Where a server answers that was started without options.
pub const ORIGIN: &str = "http://127.0.0.1:8080";

/// The document while routes are added to it.
#[derive(Default)]
pub struct Document {
    /// Method, path and permission of every operation.
    permissions: Vec<(String, String, &'static [Permission])>,
}

impl Document {
    /// An empty document.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes the permission that operations need. Tells whether one of them takes a body.
    pub fn needs(&mut self, any_of: &'static [Permission], paths: &Paths) -> bool {
        let paths = serde_json::to_value(paths).expect("paths are JSON");
        let mut takes_body = false;
        for (path, item) in paths.as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                self.permissions.push((method.clone(), path.clone(), any_of));
                takes_body |= operation.get("requestBody").is_some();
            }
        }
        takes_body
    }

    /// The finished document.
    pub fn finish(self, collected: utoipa::openapi::OpenApi) -> Value {
        let mut document = serde_json::to_value(collected).expect("a document is JSON");
        document["info"] = json!({
            "title": "Switchyard",
            "version": crate::VERSION,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        });
        document["servers"] = json!([{
            "url": format!("{ORIGIN}/{}", crate::VERSION),
            "description": "This server.",
        }]);
        document["security"] = json!([{ "basic": [] }]);
        document["components"]["securitySchemes"] = json!({
            "basic": {
                "type": "http",
                "scheme": "basic",
                "description": "clientId and clientSecret of an API token.",
            },
        });
        hoist(&mut document);
        account_types(&mut document);
        names(&mut document);
        sets::write(&mut document);
        webhooks::write(&mut document);
        schemas::name_lists(&mut document);
        schemas::title(&mut document);
        schemas::open_objects(&mut document["components"]["schemas"]);
        for (method, path, any_of) in &self.permissions {
            let names: Vec<_> = any_of.iter().map(|permission| permission.name()).collect();
            let operation = &mut document["paths"][path][method];
            operation["x-required-permission"] = json!(names);
            common_parts(method, path, operation);
            if let Some(operation) = operation.as_object_mut() {
                schemas::optional_bodies(operation);
            }
        }
        texts::clean(&mut document);
        guide::write(&mut document);
        examples::write(&mut document);
        document
    }
}

/// Operations that a platform without a rail or without the UMA network cannot do.
const NEEDS_PARTNER: [(&str, &str); 8] = [
    ("post", "/crypto/estimate-withdrawal-fee"),
    ("post", "/customers/external-accounts"),
    ("post", "/platform/external-accounts"),
    ("post", "/quotes"),
    ("post", "/quotes/{quoteId}/execute"),
    ("get", "/receiver/uma/{receiverUmaAddress}"),
    ("post", "/transfer-in"),
    ("post", "/transfer-out"),
];

/// The common part of operations of one kind: the errors that every one of them may answer, and the
/// idempotency key.
fn common_parts(method: &str, path: &str, operation: &mut Value) {
    let mut statuses = vec![
        ("400", "The request is not valid."),
        ("401", "The credentials are missing or wrong."),
        ("403", "The token lacks the permission, or the customer or platform may not do this."),
        ("429", "Too many wrong secrets within a minute; try again after `Retry-After`."),
        ("500", "The server failed; nothing was changed."),
        ("503", "The server is too busy; try again after `Retry-After`."),
    ];
    let has_body = operation.get("requestBody").is_some();
    if has_body {
        statuses.extend([
            ("408", "The body did not arrive in time."),
            ("413", "The body is too large."),
            ("415", "The body is not JSON."),
        ]);
    }
    if path.contains('{') {
        statuses.push(("404", "There is nothing with this id."));
    }
    if NEEDS_PARTNER.contains(&(method, path)) {
        statuses.push((
            "501",
            "This live platform is connected to no partner that this needs; `details.missing` \
             names it.",
        ));
    }
    for (status, description) in statuses {
        if operation["responses"].get(status).is_none() {
            operation["responses"][status] = json!({
                "description": description,
                "content": {
                    "application/json": { "schema": { "$ref": "#/components/schemas/Error" } },
                },
            });
        }
    }
    if method == "post" {
        let key = json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "A text of your own for each payment, at best a new UUID. Repeating it \
                returns the first answer, byte for byte, with `Idempotent-Replayed: true`, \
                whatever the body; with another body than the first one the answer has \
                `Idempotency-Body-Mismatch: true` too.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
        });
        match operation["parameters"].as_array_mut() {
            Some(parameters) => parameters.push(key),
            None => operation["parameters"] = json!([key]),
        }
        replay_headers(operation);
    }
}

/// Headers of an answer that was given before.
const REPLAY_HEADERS: [(&str, &str); 2] = [
    ("Idempotent-Replayed", "`true` on the first answer to a key, when it is given again."),
    (
        "Idempotency-Body-Mismatch",
        "`true` when the request that is answered so had another body than the first one: it was \
         not executed.",
    ),
];

/// Describes the headers of a repeated answer. Those of a refusal are the same.
fn replay_headers(operation: &mut Value) {
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        if status.starts_with('2') {
            for (name, description) in REPLAY_HEADERS {
                response["headers"][name] = json!({
                    "description": description,
                    "schema": { "type": "string", "enum": ["true"] },
                });
            }
        }
    }
}

/// Writes the names that a field can have into the schemas, from the lists of the domain.
pub fn names(document: &mut Value) {
    postal_codes(document);
    fn all<T: Copy>(values: &[T], name: fn(T) -> &'static str) -> Vec<&'static str> {
        values.iter().map(|value| name(*value)).collect()
    }
    let with_rail = Currency::all().filter(|it| has_rail(*it)).map(Currency::code).collect();
    let kyc = all(&KycStatus::ALL, KycStatus::name);
    let imports = all(&bulk_import::Status::ALL, bulk_import::Status::name);
    let lists: Vec<(&str, &str, Vec<&'static str>)> = vec![
        (
            "Transaction",
            "failureReason",
            all(&transaction::FailureReason::ALL, transaction::FailureReason::name),
        ),
        ("ExchangeRate", "destinationPaymentRail", all(Rail::ALL, Rail::name)),
        ("RateBasis", "midRateSource", all(RateSource::ALL, RateSource::name)),
        ("RateBasis", "priceRule", all(PriceRule::ALL, PriceRule::name)),
        ("Refund", "status", vec!["PENDING", "COMPLETED", "FAILED"]),
        ("Refund", "reason", vec!["TRANSACTION_FAILED", "USER_CANCELLATION"]),
        ("BulkImportJob", "status", imports.clone()),
        ("BulkUpload", "status", imports),
        ("Invitation", "status", all(&invitation::Status::ALL, invitation::Status::name)),
        ("CreateQuote", "purposeOfPayment", transaction::PURPOSES.to_vec()),
        ("TransferOut", "purposeOfPayment", transaction::PURPOSES.to_vec()),
        ("TransferIn", "purposeOfPayment", transaction::PURPOSES.to_vec()),
        ("Transaction", "purposeOfPayment", transaction::PURPOSES.to_vec()),
        ("PayoutEnd", "paymentRail", all(Rail::ALL, Rail::name)),
        ("AccountQuoteDestination", "paymentRail", all(Rail::ALL, Rail::name)),
        ("DetailsQuoteDestination", "paymentRail", all(Rail::ALL, Rail::name)),
        ("AccountTransactionDestination", "paymentRail", all(Rail::ALL, Rail::name)),
        (
            "ExternalAccount",
            "status",
            all(&external_account::Status::ALL, external_account::Status::name),
        ),
        ("ExternalAccount", "currency", with_rail),
        (
            "ExternalAccount",
            "beneficiaryVerificationStatus",
            all(&external_account::Verification::ALL, external_account::Verification::name),
        ),
        ("IndividualCustomer", "kycStatus", kyc.clone()),
        ("BusinessCustomer", "kybStatus", kyc.clone()),
        ("CreateIndividual", "kycStatus", kyc.clone()),
        ("UpdateIndividual", "kycStatus", kyc.clone()),
        ("CreateBusiness", "kybStatus", kyc.clone()),
        ("UpdateBusiness", "kybStatus", kyc),
        ("BeneficialOwner", "individualType", OWNER_TYPES.to_vec()),
        ("CounterpartyField", "name", COUNTERPARTY_FIELDS.to_vec()),
        ("Error", "code", all(Code::ALL, Code::name)),
    ];
    for (schema, property, values) in lists {
        let place = format!("/components/schemas/{schema}/properties/{property}");
        if let Some(schema) = document.pointer_mut(&place).and_then(Value::as_object_mut) {
            schema.insert("enum".to_owned(), json!(values));
        }
    }
}
