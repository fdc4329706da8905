//! Every code that the API answers, with its status and its meaning.

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

            /// Its meaning.
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
    /// Another institution's answer about a payee cannot be read.
    ParseLnurlpResponseError = 400 "PARSE_LNURLP_RESPONSE_ERROR",
    /// An invoice of another institution cannot be read.
    ParsePayreqResponseError = 400 "PARSE_PAYREQ_RESPONSE_ERROR",
    /// Another institution's answer to a pay request is not acceptable: it lacks what the platform
    /// insists to know about the payee (`details.missingFields`), or `details.reason` says why.
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
    /// The UMA address does not exist.
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
    /// The server is too busy, or its disk is full (`details.reason` is `STORAGE_FULL`); try again
    /// after `Retry-After`.
    ServiceUnavailable = 503 "SERVICE_UNAVAILABLE",
}

/// The catalogue as a page of the documents.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Error codes\n\n\
         Written from the catalogue in `crates/api/src/error/catalogue.rs`. Every error has the same body: \
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
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_unique() {
        let names: BTreeSet<_> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
    }
}
