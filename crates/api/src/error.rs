//! The catalogue of refusals: every code that the API answers, with its status (specification 7;
//! contract 3), and the shape of errors. Refusals of use cases get their codes in the file of their
//! resource.

mod catalogue;
mod money;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::account_info::{FieldError, Rule};
use serde::Serialize;
use serde_json::{Map, Value, json};
use service::Error;
use service::error::AccountError;
use store::error::StoreError;
use utoipa::ToSchema;

use crate::strict::BODY;

pub use catalogue::{Code, markdown};

/// The body of every error (contract 3.1).
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Error)]
pub struct ErrorBody {
    /// The HTTP status.
    #[schema(example = 400)]
    pub status: u16,
    /// A code of the catalogue.
    #[schema(example = "INVALID_INPUT")]
    pub code: &'static str,
    /// The refusal, for people.
    pub message: String,
    /// More about it, by code. For fields that are not valid: `errors`, one entry per field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub details: Option<Map<String, Value>>,
}

/// Characters of a refused id that are shown.
const SHOWN_MAX: usize = 80;

/// How an operation calls the fields that refusals of use cases are about: the usual name, and its
/// own.
pub type Names = &'static [(&'static str, &'static str)];

/// A refusal on its way to the client.
#[derive(Debug, Clone)]
pub struct ApiError {
    /// Its code.
    pub code: Code,
    /// The refusal, for people.
    pub message: String,
    /// More about it.
    pub details: Map<String, Value>,
    /// The usual name of the field that it is about.
    pub(crate) about: &'static str,
}

impl ApiError {
    /// A refusal without details, about the body as a whole.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new(), about: BODY }
    }

    /// Refuses an id in a path that is none of an account.
    pub fn no_account(text: &str) -> Self {
        AccountError::NotFound { id: text.chars().take(SHOWN_MAX).collect() }.into()
    }

    /// Says which field it is about, by its usual name.
    #[must_use]
    pub fn about(self, field: &'static str) -> Self {
        Self { about: field, ..self }
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Names the field that is refused.
    #[must_use]
    pub fn at(self, field: &str) -> Self {
        let problem = Problem::new(field, self.message.clone());
        self.with("errors", vec![problem.into_json()]).with("field", field)
    }

    /// Fields that are not valid, all at once.
    pub fn fields(code: Code, problems: Vec<Problem>) -> Self {
        let names: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
        let message = match problems.as_slice() {
            [only] if only.field.is_empty() => only.message.clone(),
            [only] => format!("{}: {}", only.field, only.message),
            _ => format!("{} fields are not valid: {}", problems.len(), names.join(", ")),
        };
        let first = names.first().map(|name| (*name).to_owned());
        let errors: Vec<_> = problems.into_iter().map(Problem::into_json).collect();
        let refusal = Self::new(code, message).with("errors", errors);
        match first {
            None => refusal,
            Some(first) => refusal.with("field", first),
        }
    }

    /// Adds fields that are not valid to those that are known.
    #[must_use]
    pub fn and(mut self, more: Vec<Problem>) -> Self {
        if more.is_empty() {
            return self;
        }
        self.code = Code::InvalidInput;
        if let Some(errors) = self.details.get_mut("errors").and_then(Value::as_array_mut) {
            for problem in more {
                if errors.iter().all(|known| known["field"] != problem.field.as_str()) {
                    self.message.push_str(&format!(", {}: {}", problem.field, problem.message));
                    errors.push(problem.into_json());
                }
            }
        }
        self
    }

    /// Calls the field that it is about as the operation calls it, unless it names one.
    #[must_use]
    pub fn in_names(self, names: Names) -> Self {
        if self.details.contains_key("errors") || self.details.contains_key("field") {
            return self;
        }
        match names.iter().find(|(usual, _)| *usual == self.about) {
            Some((_, name)) if self.code.status() == 400 => self.with("field", *name),
            Some(_) | None => self,
        }
    }

    /// Names a field in every refusal of a request that its sender can mend (400).
    fn with_field(self) -> Self {
        if self.code.status() != 400 || self.details.contains_key("errors") {
            return self;
        }
        let known = self.details.get("field").and_then(Value::as_str);
        let field = known.unwrap_or(self.about).to_owned();
        let problem = Problem::new(field, self.message.clone());
        self.with("errors", vec![problem.into_json()])
    }

    /// Status and bytes, to be sent or kept.
    pub fn render(&self) -> (u16, Vec<u8>) {
        let Self { code, message, details, .. } = self.clone().with_field();
        let body = ErrorBody {
            status: code.status(),
            code: code.name(),
            message,
            details: (!details.is_empty()).then_some(details),
        };
        let bytes = serde_json::to_vec(&body).expect("an error body has text keys only");
        (self.code.status(), bytes)
    }
}

/// One field that is not valid.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Its path, with dots.
    pub field: String,
    /// The fault.
    pub message: String,
    /// The rule of the schema that was broken, if it was one.
    pub constraint: Option<Value>,
}

impl Problem {
    /// A problem that no rule of the schema says.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into(), constraint: None }
    }

    fn into_json(self) -> Value {
        let mut entry = json!({ "field": self.field, "message": self.message });
        if let Some(constraint) = self.constraint {
            entry["constraint"] = constraint;
        }
        entry
    }
}

impl From<&FieldError> for Problem {
    fn from(error: &FieldError) -> Self {
        let constraint = match &error.rule {
            Rule::Required => Some(json!({ "required": true })),
            Rule::Type(name) => Some(json!({ "type": name })),
            Rule::Pattern(pattern) => Some(json!({ "pattern": pattern })),
            Rule::MinLength(length) => Some(json!({ "minLength": length })),
            Rule::MaxLength(length) => Some(json!({ "maxLength": length })),
            Rule::Enum(values) => Some(json!({ "enum": values })),
            Rule::Format(format) => Some(json!({ "format": format })),
            Rule::Checksum => Some(json!({ "format": "checksum" })),
            Rule::Other => None,
        };
        Self { field: error.field.clone(), message: error.message.clone(), constraint }
    }
}

/// When a client should come back, in seconds.
const RETRY_AFTER_SECONDS: u16 = 1;

/// A response with a JSON body that is there already, or with none.
pub fn json_response(status: u16, body: Vec<u8>) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let is_empty = body.is_empty();
    let mut response = (status, Body::from(body)).into_response();
    let headers = response.headers_mut();
    if !is_empty {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    match status {
        StatusCode::UNAUTHORIZED => {
            let challenge = "Basic realm=\"switchyard\", charset=\"UTF-8\"";
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        _ => {}
    }
    // Clients generated from the public API retry 409 by themselves; ours do not change within the
    // seconds for which they do.
    let may_pass =
        [StatusCode::REQUEST_TIMEOUT, StatusCode::FAILED_DEPENDENCY, StatusCode::TOO_MANY_REQUESTS];
    let may_pass = may_pass.contains(&status);
    let is_final = status.is_client_error() || status == StatusCode::NOT_IMPLEMENTED;
    if is_final && !may_pass {
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    response
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, body) = self.render();
        json_response(status, body)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy
            | StoreError::Behind(_)
            | StoreError::Closed
            | StoreError::DiskFull
            | StoreError::Unavailable(_)
            | StoreError::FilesMoved
            | StoreError::Conflict(_) => {
                tracing::warn!(%error, "a request was turned away");
                let message = match error {
                    // The cause names the database's address, which is for the log alone.
                    StoreError::Unavailable(_) => "the database cannot be reached; try again",
                    StoreError::Conflict(_) => "another change came first; try again",
                    StoreError::Behind(_) => {
                        "lists cannot be read now, as their tables are behind; try again"
                    }
                    _ => &error.to_string(),
                };
                let refusal = Self::new(Code::ServiceUnavailable, message);
                match error {
                    StoreError::DiskFull => refusal.with("reason", "STORAGE_FULL"),
                    _ => refusal,
                }
            }
            StoreError::OutcomeUnknown(_)
            | StoreError::NotFetched
            | StoreError::Corrupt { .. }
            | StoreError::Sealed { .. }
            | StoreError::Refused(_)
            | StoreError::Engine(_)
            | StoreError::Panicked(_) => {
                tracing::error!(%error, "a request failed");
                Self::new(Code::InternalError, "the server failed; nothing was changed")
            }
        }
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let plain = |code| Self::new(code, error.to_string());
        match error {
            Error::Invalid(ref errors) => {
                Self::fields(Code::InvalidInput, errors.iter().map(Problem::from).collect())
            }
            Error::Account(error) => error.into(),
            Error::Customer(error) => error.into(),
            Error::Quote(error) => error.into(),
            Error::Transaction(error) => error.into(),
            Error::Money(error) => error.into(),
            Error::Uma(error) => error.into(),
            Error::Invitation(error) => error.into(),
            Error::Token(error) => error.into(),
            Error::NotConnected { missing } => {
                plain(Code::NotImplemented).with("missing", missing.name())
            }
            Error::NoWebhookEndpoint | Error::WebhookEndpointGone => {
                plain(Code::WebhookEndpointNotSet).about("webhookEndpoint")
            }
            Error::WebhookDelivery { .. } => {
                plain(Code::WebhookDeliveryError).about("webhookEndpoint")
            }
            Error::DeliveryNotFound { id } => {
                plain(Code::DeliveryNotFound).with("deliveryId", id.to_string())
            }
            Error::ReplayTooLong => plain(Code::InvalidInput).with("field", "to"),
            Error::Conflict(_) => plain(Code::Conflict),
            Error::Store(error) => error.into(),
            Error::Superseded => plain(Code::ServiceUnavailable),
            Error::Internal(what) => {
                tracing::error!(what, "a request failed");
                Self::new(Code::InternalError, "the server failed; nothing was changed")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_database_is_for_the_log_alone() {
        let address = "error connecting to db.internal:5432 as payments".to_owned();
        for error in [StoreError::Unavailable(address.clone()), StoreError::Conflict(address)] {
            let (status, body) = ApiError::from(error).render();
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!((status, &body["code"]), (503, &json!("SERVICE_UNAVAILABLE")));
            assert!(!body.to_string().contains("db.internal"), "{body}");
        }
    }

    #[test]
    fn all_wrong_fields_are_reported_at_once() {
        let error = |field: &str, rule| FieldError {
            field: field.to_owned(),
            rule,
            message: "is wrong".to_owned(),
        };
        let errors = [error("a.b", Rule::Required), error("c", Rule::MaxLength(3))];
        let problems = errors.iter().map(Problem::from).collect();
        let (status, body) = ApiError::fields(Code::InvalidInput, problems).render();
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!((status, &body["code"]), (400, &json!("INVALID_INPUT")));
        assert_eq!(
            body["details"]["errors"][1],
            json!({ "field": "c", "message": "is wrong", "constraint": { "maxLength": 3 } })
        );
    }
}
