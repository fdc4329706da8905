//! The catalogue of refusals: every code that the API answers, with its status (specification 7;
//! contract 3), and the one place where a refusal of a use case gets its code.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::account_info::{FieldError, Rule};
use domain::invitation;
use ports::uma::PeerFailure;
use serde::Serialize;
use serde_json::{Map, Value, json};
use service::Error;
use service::error::PeerStage;
use store::error::StoreError;
use utoipa::ToSchema;

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $status:literal $text:literal,)*) => {
        /// A code of the catalogue.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $($(#[doc = $doc])* $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as clients read it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The HTTP status that goes with it.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// What it means.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),*),)* }
            }
        }
    };
}

codes! {
    /// The request is malformed or has fields that are not valid; `details.errors` has them all.
    InvalidInput = 400 "INVALID_INPUT",
    /// An amount is missing, not greater than 0, or larger than any payment may be.
    InvalidAmount = 400 "INVALID_AMOUNT",
    /// An amount is outside the limits of the currency, or nothing would arrive.
    AmountOutOfRange = 400 "AMOUNT_OUT_OF_RANGE",
    /// A currency is unknown, not enabled, or not the one that is needed here.
    InvalidCurrency = 400 "INVALID_CURRENCY",
    /// Bank details are not valid, or the external account cannot be used.
    InvalidBankAccount = 400 "INVALID_BANK_ACCOUNT",
    /// The source has less money than would leave it.
    InsufficientBalance = 400 "INSUFFICIENT_BALANCE",
    /// A text is not a UMA address, or not one of the platform's domain.
    InvalidUmaAddress = 400 "INVALID_UMA_ADDRESS",
    /// Sender and receiver are the same.
    SelfPayment = 400 "SELF_PAYMENT",
    /// The invitation was claimed before.
    InvitationAlreadyClaimed = 400 "INVITATION_ALREADY_CLAIMED",
    /// The invitation was taken back by the platform that made it.
    InvitationCancelled = 400 "INVITATION_CANCELLED",
    /// The invitation's time is over.
    InvitationExpired = 400 "INVITATION_EXPIRED",
    /// There is no rate at the moment; try again later.
    QuoteRequestFailed = 400 "QUOTE_REQUEST_FAILED",
    /// The platform has no webhook endpoint.
    WebhookEndpointNotSet = 400 "WEBHOOK_ENDPOINT_NOT_SET",
    /// The webhook endpoint cannot be reached from here, or did not answer in time.
    WebhookDeliveryError = 400 "WEBHOOK_DELIVERY_ERROR",
    /// What another institution said about a payee cannot be read.
    ParseLnurlpResponseError = 400 "PARSE_LNURLP_RESPONSE_ERROR",
    /// An invoice of another institution cannot be read.
    ParsePayreqResponseError = 400 "PARSE_PAYREQ_RESPONSE_ERROR",
    /// Another institution did not say what the platform insists to know about a payee.
    InvalidPayreqResponse = 400 "INVALID_PAYREQ_RESPONSE",
    /// Facts about the payer are missing on which the receiver's side insists.
    MissingMandatoryUserInfo = 400 "MISSING_MANDATORY_USER_INFO",
    /// The credentials are missing or wrong.
    Unauthorized = 401 "UNAUTHORIZED",
    /// The token lacks the permission that this needs.
    Forbidden = 403 "FORBIDDEN",
    /// The customer cannot move money yet, for example because of its identity check.
    UserNotReady = 403 "USER_NOT_READY",
    /// This server and the payee's institution do not deal with each other.
    CounterpartyNotAllowed = 403 "COUNTERPARTY_NOT_ALLOWED",
    /// There is no such path.
    NotFound = 404 "NOT_FOUND",
    /// There is no such customer.
    UserNotFound = 404 "USER_NOT_FOUND",
    /// There is no such internal or external account.
    AccountNotFound = 404 "ACCOUNT_NOT_FOUND",
    /// There is no such quote.
    QuoteNotFound = 404 "QUOTE_NOT_FOUND",
    /// There is no such transaction.
    TransactionNotFound = 404 "TRANSACTION_NOT_FOUND",
    /// There is no such token.
    TokenNotFound = 404 "TOKEN_NOT_FOUND",
    /// There is no invitation with this code.
    InvitationNotFound = 404 "INVITATION_NOT_FOUND",
    /// There is no such delivery of an event.
    DeliveryNotFound = 404 "DELIVERY_NOT_FOUND",
    /// There is nobody at the UMA address.
    UmaNotFound = 404 "UMA_NOT_FOUND",
    /// There is no such import of customers.
    BulkUploadJobNotFound = 404 "BULK_UPLOAD_JOB_NOT_FOUND",
    /// There is no such lookup, or it has expired.
    LookupRequestNotFound = 404 "LOOKUP_REQUEST_NOT_FOUND",
    /// The path exists, but not with this method.
    MethodNotAllowed = 405 "METHOD_NOT_ALLOWED",
    /// The request did not arrive in time.
    RequestTimeout = 408 "REQUEST_TIMEOUT",
    /// The state of something does not allow it.
    Conflict = 409 "CONFLICT",
    /// The transaction does not wait for its platform's decision, or not any more.
    TransactionNotPendingPlatformApproval = 409 "TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL",
    /// The quote's time is over; ask for a new one.
    QuoteExpired = 409 "QUOTE_EXPIRED",
    /// The UMA address belongs, or once belonged, to another customer.
    UmaAddressExists = 409 "UMA_ADDRESS_EXISTS",
    /// The customer was deleted.
    CustomerDeleted = 410 "CUSTOMER_DELETED",
    /// The payee's institution does not support the version of UMA that it was asked with.
    UnsupportedUmaVersion = 412 "UNSUPPORTED_UMA_VERSION",
    /// The body is larger than any request needs.
    PayloadTooLarge = 413 "PAYLOAD_TOO_LARGE",
    /// The body is not JSON by its content type, or is compressed.
    UnsupportedMediaType = 415 "UNSUPPORTED_MEDIA_TYPE",
    /// The payee's institution did not answer a lookup in a way that can be used.
    LnurlpRequestFailed = 424 "LNURLP_REQUEST_FAILED",
    /// The payee's institution did not give an invoice that can be used.
    PayreqRequestFailed = 424 "PAYREQ_REQUEST_FAILED",
    /// The payee's institution did not show the keys that its answers are signed with.
    CounterpartyPubkeyFetchError = 424 "COUNTERPARTY_PUBKEY_FETCH_ERROR",
    /// The payee's institution and this server have no version of UMA in common.
    NoCompatibleUmaVersion = 424 "NO_COMPATIBLE_UMA_VERSION",
    /// Too many wrong secrets came from this address, or for this client, within a minute; try
    /// again after `Retry-After`.
    RateLimited = 429 "RATE_LIMITED",
    /// The server failed; the request may be repeated with the same idempotency key.
    InternalError = 500 "INTERNAL_ERROR",
    /// This server is not connected to the partner that this needs; `details.missing` names it.
    NotImplemented = 501 "NOT_IMPLEMENTED",
    /// The server is too busy or its disk is full; try again after `Retry-After`.
    ServiceUnavailable = 503 "SERVICE_UNAVAILABLE",
}

impl Code {
    /// The field that a refusal with this code is about, where the refusal names none.
    const fn field(self) -> &'static str {
        match self {
            Self::InvalidAmount | Self::AmountOutOfRange | Self::InsufficientBalance => "amount",
            Self::InvalidCurrency | Self::QuoteRequestFailed => "currency",
            Self::InvalidBankAccount => "accountId",
            Self::InvalidUmaAddress
            | Self::ParseLnurlpResponseError
            | Self::ParsePayreqResponseError
            | Self::InvalidPayreqResponse => "umaAddress",
            Self::SelfPayment => "destination",
            Self::InvitationAlreadyClaimed
            | Self::InvitationCancelled
            | Self::InvitationExpired => "code",
            Self::WebhookEndpointNotSet | Self::WebhookDeliveryError => "webhookEndpoint",
            Self::MissingMandatoryUserInfo => "senderCustomerInfo",
            _ => crate::strict::BODY,
        }
    }
}

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
    /// What was refused, for people.
    pub message: String,
    /// More about it, by code. For fields that are not valid: `errors`, one entry per field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub details: Option<Map<String, Value>>,
}

/// How an operation calls the fields that refusals of use cases are about: the usual name, and its
/// own.
pub type Names = &'static [(&'static str, &'static str)];

/// A refusal on its way to the client.
#[derive(Debug, Clone)]
pub struct ApiError {
    /// Its code.
    pub code: Code,
    /// What was refused, for people.
    pub message: String,
    /// More about it.
    pub details: Map<String, Value>,
}

impl ApiError {
    /// A refusal without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new() }
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

    /// Calls the field that a code is about as the request calls it, where the refusal of a use
    /// case names none.
    #[must_use]
    pub fn in_names(self, names: Names) -> Self {
        if self.details.contains_key("errors") || self.details.contains_key("field") {
            return self;
        }
        match names.iter().find(|(usual, _)| *usual == self.code.field()) {
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
        let field = known.unwrap_or(self.code.field()).to_owned();
        let problem = Problem::new(field, self.message.clone());
        self.with("errors", vec![problem.into_json()])
    }

    /// Status and bytes, to be sent or kept.
    pub fn render(&self) -> (u16, Vec<u8>) {
        let Self { code, message, details } = self.clone().with_field();
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
    /// What is wrong with it.
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

/// What a client that should come back is told, in seconds.
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
            | StoreError::Closed
            | StoreError::DiskFull
            | StoreError::Unavailable(_)
            | StoreError::Conflict(_) => {
                tracing::warn!(%error, "a request was turned away");
                Self::new(Code::ServiceUnavailable, error.to_string())
            }
            StoreError::OutcomeUnknown(_)
            | StoreError::NotFetched
            | StoreError::Corrupt { .. }
            | StoreError::Sealed { .. }
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
        let message = error.to_string();
        let plain = |code| Self::new(code, message.clone());
        match &error {
            Error::Invalid(errors) => {
                Self::fields(Code::InvalidInput, errors.iter().map(Problem::from).collect())
            }
            Error::InvalidAccountDetails(errors) => {
                Self::fields(Code::InvalidBankAccount, errors.iter().map(Problem::from).collect())
            }
            Error::InvalidUmaAddress { address, .. } => {
                plain(Code::InvalidUmaAddress).with("umaAddress", address.as_str())
            }
            Error::AccountNotFound { id } => {
                plain(Code::AccountNotFound).with("accountId", id.as_str())
            }
            Error::CustomerNotFound { id } => {
                plain(Code::UserNotFound).with("customerId", id.to_string())
            }
            Error::QuoteNotFound { id } => {
                plain(Code::QuoteNotFound).with("quoteId", id.to_string())
            }
            Error::TokenNotFound => plain(Code::TokenNotFound),
            Error::TransactionNotFound { id } => {
                plain(Code::TransactionNotFound).with("transactionId", id.to_string())
            }
            Error::NotPendingApproval { id, status } => {
                plain(Code::TransactionNotPendingPlatformApproval)
                    .with("transactionId", id.to_string())
                    .with("status", status.name())
            }
            Error::CustomerDataMissing { id, currency, fields } => {
                plain(Code::MissingMandatoryUserInfo)
                    .with("field", "customerId")
                    .with("customerId", id.to_string())
                    .with("currency", currency.code())
                    .with("missingFields", fields.clone())
            }
            Error::PayerDataMissing { fields } => {
                plain(Code::MissingMandatoryUserInfo).with("missingFields", fields.clone())
            }
            Error::PayeeDataMissing { address, fields } => plain(Code::InvalidPayreqResponse)
                .with("umaAddress", address.as_str())
                .with("missingFields", fields.clone()),
            Error::NotOffered { address, .. } => {
                plain(Code::InvalidCurrency).with("umaAddress", address.as_str())
            }
            Error::SenderNotFound { address } => {
                plain(Code::UserNotFound).with("umaAddress", address.as_str())
            }
            Error::UmaNotFound { address } => {
                plain(Code::UmaNotFound).with("umaAddress", address.as_str())
            }
            Error::PayeeNotReady { address } => {
                plain(Code::UserNotReady).with("umaAddress", address.as_str())
            }
            Error::Peer { address, stage, failure } => {
                plain(code_of_peer(*stage, *failure)).with("umaAddress", address.as_str())
            }
            Error::LookupNotFound { id } => {
                plain(Code::LookupRequestNotFound).with("lookupId", id.as_str())
            }
            Error::InvitationNotFound => plain(Code::InvitationNotFound),
            Error::InvitationOfAnother => plain(Code::Forbidden),
            Error::InvitationOver { status, invitee, expires_at } => {
                let code = match status {
                    invitation::Status::Claimed => Code::InvitationAlreadyClaimed,
                    invitation::Status::Cancelled => Code::InvitationCancelled,
                    invitation::Status::Expired => Code::InvitationExpired,
                    // An open invitation is not over.
                    invitation::Status::Pending => Code::InternalError,
                };
                let mut refusal = plain(code).with("status", status.name());
                if let Some(invitee) = invitee {
                    refusal = refusal.with("inviteeUma", invitee.as_str());
                }
                match (status, expires_at) {
                    (invitation::Status::Expired, Some(at)) => {
                        refusal.with("expirationTime", at.to_string())
                    }
                    _ => refusal,
                }
            }
            Error::CustomerDeleted { id } => {
                plain(Code::CustomerDeleted).with("customerId", id.to_string())
            }
            Error::CustomerNotReady { id, status } => plain(Code::UserNotReady)
                .with("customerId", id.to_string())
                .with("kycStatus", status.name()),
            Error::UmaAddressTaken { address } => {
                plain(Code::UmaAddressExists).with("umaAddress", address.as_str())
            }
            Error::DuplicateExternalAccount { existing } => {
                plain(Code::Conflict).with("accountId", existing.to_string())
            }
            Error::AccountNotActive { id, status } => plain(Code::InvalidBankAccount)
                .with("accountId", id.to_string())
                .with("status", status.name()),
            Error::NotPullable { id } | Error::AccountUnreachable { id } => {
                plain(Code::InvalidBankAccount).with("accountId", id.to_string())
            }
            Error::NotConnected { missing } => {
                plain(Code::NotImplemented).with("missing", missing.name())
            }
            Error::InsufficientBalance { account, currency, available, needed } => {
                plain(Code::InsufficientBalance)
                    .with("accountId", account.as_str())
                    .with("currency", currency.code())
                    .with("available", *available)
                    .with("needed", *needed)
            }
            Error::AmountOutOfRange { amount, min, max } => plain(Code::AmountOutOfRange)
                .with("currency", amount.currency().code())
                .with("amount", amount.minor())
                .with("minAmount", *min)
                .with("maxAmount", *max),
            Error::Unpriceable { .. } | Error::BooksFull { .. } => plain(Code::AmountOutOfRange),
            Error::AccountFull { account, max } => plain(Code::AmountOutOfRange)
                .with("accountId", account.to_string())
                .with("maxBalance", *max),
            Error::InvalidAmount { .. } => plain(Code::InvalidAmount),
            Error::CurrencyNotEnabled { currency, .. } => {
                plain(Code::InvalidCurrency).with("currency", currency.code())
            }
            Error::CurrencyInUse { currency } | Error::CurrencyUnpriced { currency } => {
                plain(Code::InvalidCurrency)
                    .with("currency", currency.code())
                    .at("supportedCurrencies")
            }
            Error::CurrencyMismatch { left, right, .. } => {
                plain(Code::InvalidCurrency).with("currencies", json!([left.code(), right.code()]))
            }
            Error::NoRate { .. } => plain(Code::QuoteRequestFailed),
            Error::SelfPayment => plain(Code::SelfPayment),
            Error::NoWebhookEndpoint | Error::WebhookEndpointGone => {
                plain(Code::WebhookEndpointNotSet)
            }
            Error::DeliveryNotFound { id } => {
                plain(Code::DeliveryNotFound).with("deliveryId", id.to_string())
            }
            Error::ReplayTooLong => plain(Code::InvalidInput).with("field", "to"),
            Error::WebhookDelivery { .. } => plain(Code::WebhookDeliveryError),
            Error::QuoteExpired { id, expires_at } => plain(Code::QuoteExpired)
                .with("quoteId", id.to_string())
                .with("expiresAt", expires_at.to_string()),
            Error::QuoteNotPending { id, status } => {
                plain(Code::Conflict).with("quoteId", id.to_string()).with("status", status.name())
            }
            Error::QuoteFundedInRealTime { id } | Error::QuoteNotFundedInRealTime { id } => {
                plain(Code::InvalidInput).with("quoteId", id.to_string()).with("field", "quoteId")
            }
            Error::Conflict(_) | Error::IdentityCheckOver => plain(Code::Conflict),
            Error::CannotGrant { missing } => {
                let missing: Vec<_> = missing.iter().map(|one| one.name()).collect();
                plain(Code::Forbidden).with("missingPermissions", missing)
            }
            Error::LastManager => plain(Code::InvalidInput).with("field", "tokenId"),
            Error::Store(error) => error.clone().into(),
            Error::Superseded => Self::new(Code::ServiceUnavailable, message),
            Error::NoReport => plain(Code::InternalError),
            Error::Internal(what) => {
                tracing::error!(what, "a request failed");
                Self::new(Code::InternalError, "the server failed; nothing was changed")
            }
        }
    }
}

/// The code of what another institution did not answer.
fn code_of_peer(stage: PeerStage, failure: PeerFailure) -> Code {
    match (failure, stage) {
        (PeerFailure::UnknownAddress, _) => Code::UmaNotFound,
        (PeerFailure::PayeeNotReady, _) => Code::UserNotReady,
        (PeerFailure::NotAllowed, _) => Code::CounterpartyNotAllowed,
        (PeerFailure::Unreachable, PeerStage::Lookup) => Code::LnurlpRequestFailed,
        (PeerFailure::Unreachable, PeerStage::PayRequest) => Code::PayreqRequestFailed,
        (PeerFailure::KeysUnavailable, _) => Code::CounterpartyPubkeyFetchError,
        (PeerFailure::Unreadable, PeerStage::Lookup) => Code::ParseLnurlpResponseError,
        (PeerFailure::Unreadable, PeerStage::PayRequest) => Code::ParsePayreqResponseError,
        (PeerFailure::UnsupportedVersion, _) => Code::UnsupportedUmaVersion,
        (PeerFailure::NoCommonVersion, _) => Code::NoCompatibleUmaVersion,
    }
}

/// The catalogue as a page of the documents.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Error codes\n\n\
         Written from the catalogue in `crates/api/src/error.rs`. Every error has the same body: \
         `status`, `code`, `message` and, where there is more to say, `details`. Every 400 names its \
         fields in `details.errors`, each with `field`, `message` and, where a rule of the schema \
         was broken, `constraint`. `field` is a path in the body, a parameter, a header, or `body` \
         for the body as a whole.\n\n\
         | status | code | meaning |\n|---|---|---|\n",
    );
    for code in Code::ALL {
        let meaning = code.meaning().trim();
        page.push_str(&format!("| {} | `{}` | {meaning} |\n", code.status(), code.name()));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_unique() {
        let names: BTreeSet<_> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
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
