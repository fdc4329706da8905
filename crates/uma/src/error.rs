//! The protocol's errors: a table of codes with their HTTP statuses, and the JSON body that carries
//! one (UMAD-08 for 412; the table is common to all messages).

use std::fmt;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::json::{self, Fields};

/// Writes the enum, its names and its statuses from one table.
macro_rules! codes {
    ($($(#[$doc:meta])+ $variant:ident = $name:literal, $status:literal;)+) => {
        /// A code of the protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[$doc])+ $variant,)+
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in messages.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The HTTP status of an answer with this code.
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$variant => $status,)+
                }
            }
        }
    };
}

codes! {
    /// A public key is no point of the curve, or not in hexadecimal.
    InvalidPubkeyFormat = "INVALID_PUBKEY_FORMAT", 400;
    /// A certificate cannot be read, or has a key of another curve.
    CertChainInvalid = "CERT_CHAIN_INVALID", 400;
    /// The validity of a certificate is over.
    CertChainExpired = "CERT_CHAIN_EXPIRED", 400;
    /// The time of a signature is too far from now.
    InvalidTimestamp = "INVALID_TIMESTAMP", 400;
    /// A nonce was used before, or is none.
    InvalidNonce = "INVALID_NONCE", 400;
    /// Some of the parameters that make a lookup one of UMA are missing.
    MissingRequiredUmaParameters = "MISSING_REQUIRED_UMA_PARAMETERS", 400;
    /// A lookup cannot be read.
    ParseLnurlpRequestError = "PARSE_LNURLP_REQUEST_ERROR", 400;
    /// A pay request cannot be read.
    ParsePayreqRequestError = "PARSE_PAYREQ_REQUEST_ERROR", 400;
    /// An amount is less or more than the payee can receive.
    AmountOutOfRange = "AMOUNT_OUT_OF_RANGE", 400;
    /// A currency is not one of those offered.
    InvalidCurrency = "INVALID_CURRENCY", 400;
    /// The receiving side does not take money from this payer.
    SenderNotAccepted = "SENDER_NOT_ACCEPTED", 400;
    /// Data about the payer that the receiving side insists on is missing.
    MissingMandatoryPayerData = "MISSING_MANDATORY_PAYER_DATA", 400;
    /// Data about the payee that the sending side insists on cannot be given.
    MissingMandatoryPayeeData = "MISSING_MANDATORY_PAYEE_DATA", 400;
    /// A post-transaction callback cannot be read.
    ParseUtxoCallbackError = "PARSE_UTXO_CALLBACK_ERROR", 400;
    /// The answer to a lookup cannot be read.
    ParseLnurlpResponseError = "PARSE_LNURLP_RESPONSE_ERROR", 400;
    /// The answer to a pay request cannot be read.
    ParsePayreqResponseError = "PARSE_PAYREQ_RESPONSE_ERROR", 400;
    /// An invoice cannot be read or paid.
    InvalidInvoice = "INVALID_INVOICE", 400;
    /// An invoice came too late.
    InvoiceExpired = "INVOICE_EXPIRED", 400;
    /// A quote came too late.
    QuoteExpired = "QUOTE_EXPIRED", 400;
    /// A value is not allowed where it stands.
    InvalidInput = "INVALID_INPUT", 400;
    /// A request is not of the form that it needs.
    InvalidRequestFormat = "INVALID_REQUEST_FORMAT", 400;
    /// A signature is not the peer's.
    InvalidSignature = "INVALID_SIGNATURE", 401;
    /// A lookup of plain LNURL, which is refused here.
    NonUmaLnurlNotSupported = "NON_UMA_LNURL_NOT_SUPPORTED", 403;
    /// The payee has received too much or too often.
    VelocityLimitExceeded = "VELOCITY_LIMIT_EXCEEDED", 403;
    /// The payee exists and cannot be paid yet.
    UserNotReady = "USER_NOT_READY", 403;
    /// The institutions do not deal with each other.
    CounterpartyNotAllowed = "COUNTERPARTY_NOT_ALLOWED", 403;
    /// The caller may not do this.
    Forbidden = "FORBIDDEN", 403;
    /// There is no such payee.
    UserNotFound = "USER_NOT_FOUND", 404;
    /// There is no such request, or no longer.
    RequestNotFound = "REQUEST_NOT_FOUND", 404;
    /// There is no such quote, or no longer.
    QuoteNotFound = "QUOTE_NOT_FOUND", 404;
    /// The major version is not supported; the body lists those that are.
    UnsupportedUmaVersion = "UNSUPPORTED_UMA_VERSION", 412;
    /// The keys of the other institution could not be had.
    CounterpartyPubkeyFetchError = "COUNTERPARTY_PUBKEY_FETCH_ERROR", 424;
    /// A lookup at the other institution failed.
    LnurlpRequestFailed = "LNURLP_REQUEST_FAILED", 424;
    /// A pay request at the other institution failed.
    PayreqRequestFailed = "PAYREQ_REQUEST_FAILED", 424;
    /// No version is supported by both sides.
    NoCompatibleUmaVersion = "NO_COMPATIBLE_UMA_VERSION", 424;
    /// The configuration of the other institution could not be had.
    UmaConfigurationFetchError = "UMA_CONFIGURATION_FETCH_ERROR", 424;
    /// A failure of the side that answers.
    InternalError = "INTERNAL_ERROR", 500;
    /// The sending side insists on payee data by a name that is not known.
    UnrecognizedMandatoryPayeeDataKey = "UNRECOGNIZED_MANDATORY_PAYEE_DATA_KEY", 501;
    /// The side that answers does not do this.
    NotImplemented = "NOT_IMPLEMENTED", 501;
}

impl ErrorCode {
    /// The code with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a message is refused: the code and the reason that the peer gets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct Refusal {
    /// The protocol's code.
    pub code: ErrorCode,
    /// The reason in words, which names the field.
    pub reason: String,
    /// Major versions that are supported, highest first. Only a 412 has them.
    pub supported_major_versions: Vec<u32>,
}

impl Refusal {
    /// A refusal with this code and reason.
    pub fn new(code: ErrorCode, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), supported_major_versions: Vec::new() }
    }

    /// The JSON body of the answer; its HTTP status is the code's.
    pub fn to_json(&self) -> String {
        json::text(&Body {
            status: STATUS_ERROR,
            reason: &self.reason,
            code: self.code.name(),
            supported_major_versions: &self.supported_major_versions,
        })
    }
}

/// The `status` of a body that carries an error.
const STATUS_ERROR: &str = "ERROR";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    status: &'a str,
    reason: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    supported_major_versions: &'a [u32],
}

/// An error that a peer answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerError {
    /// Its code.
    pub code: PeerCode,
    /// The peer's reason, at most 500 characters of it.
    pub reason: String,
    /// Major versions that the peer supports. Only a 412 has them.
    pub supported_major_versions: Vec<u32>,
    /// Whether the body has the protocol's form. A proxy answers with bodies of its own.
    pub says_error: bool,
}

/// The code of an error that a peer answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerCode {
    /// A code of the protocol.
    Known(ErrorCode),
    /// Another text, at most 80 characters of it.
    Unknown(String),
    /// None, as in errors of plain LNURL.
    Absent,
}

/// Characters of a peer's reason that are kept: enough for a person, too few to fill a log.
const REASON_MAX: usize = 500;

/// Major versions of a peer that are read: there are two today.
const MAJORS_MAX: usize = 16;

impl PeerError {
    /// Reads an answer. `None` if it is no error.
    ///
    /// Errors of plain LNURL come with status 200 and `"status": "ERROR"`. An answer with any other
    /// status than 2xx is an error, whatever its body.
    pub fn read(status: u16, body: &[u8]) -> Option<Self> {
        let is_success = (200..300).contains(&status);
        let fields = Fields::read(ErrorCode::InvalidRequestFormat, body).ok();
        let text = |name: &str| {
            fields.as_ref().and_then(|fields| fields.optional_text(name).ok().flatten())
        };
        let says_error = text("status").is_some_and(|it| it.eq_ignore_ascii_case(STATUS_ERROR));
        if is_success && !says_error {
            return None;
        }
        let code = match text("code") {
            Some(name) => match ErrorCode::from_name(&name) {
                Some(code) => PeerCode::Known(code),
                None => PeerCode::Unknown(json::shown(&name)),
            },
            None if status == ErrorCode::UnsupportedUmaVersion.status() => {
                PeerCode::Known(ErrorCode::UnsupportedUmaVersion)
            }
            None => PeerCode::Absent,
        };
        let reason = text("reason").unwrap_or_else(|| format!("HTTP status {status}"));
        Some(Self {
            code,
            reason: reason.chars().take(REASON_MAX).collect(),
            supported_major_versions: fields.as_ref().map(majors).unwrap_or_default(),
            says_error,
        })
    }
}

/// The numbers in `supportedMajorVersions`; entries that are none are left out.
fn majors(fields: &Fields<'_>) -> Vec<u32> {
    let list: Vec<&RawValue> = fields
        .get("supportedMajorVersions")
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    list.iter().filter_map(|raw| raw.get().parse().ok()).take(MAJORS_MAX).collect()
}
