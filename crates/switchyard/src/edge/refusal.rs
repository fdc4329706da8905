//! Answers that the edge gives itself: in the one shape that all errors have, and with the
//! announcement that the connection ends: its two ends may not agree where it stands.

use axum::response::{IntoResponse as _, Response};
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use serde_json::json;

/// Keeps browsers from taking an answer for another kind than it says.
pub(super) const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// A request that was not, or not wholly, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// The answer to a head that hyper refuses with this status.
    pub(super) fn of_head(status: StatusCode, headers_max: usize, bytes_max: usize) -> Self {
        let message = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => format!(
                "the head of the request is more than {headers_max} headers or {bytes_max} bytes"
            ),
            StatusCode::URI_TOO_LONG => "the target of the request is too long".to_owned(),
            _ => "the head of the request is not HTTP/1.1: check its method, target, version, \
                  header names and Content-Length"
                .to_owned(),
        };
        Self::new(status, message)
    }

    fn body(&self) -> Vec<u8> {
        let code = match self.status {
            StatusCode::REQUEST_TIMEOUT => "REQUEST_TIMEOUT",
            StatusCode::SERVICE_UNAVAILABLE => "SERVICE_UNAVAILABLE",
            _ => "INVALID_INPUT",
        };
        let (status, message) = (self.status.as_u16(), &self.message);
        json!({ "status": status, "code": code, "message": message }).to_string().into_bytes()
    }

    /// As an answer of the service.
    pub(super) fn into_response(self) -> Response {
        let body = self.body();
        let kind = [(http::header::CONTENT_TYPE, "application/json")];
        let mut response = (self.status, kind, body).into_response();
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }

    /// As bytes for a connection on which no answer is under way.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let body = self.body();
        let retry = match self.status {
            StatusCode::SERVICE_UNAVAILABLE => "retry-after: 1\r\n",
            _ => "",
        };
        let mut bytes = format!(
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             x-content-type-options: nosniff\r\n{retry}connection: close\r\n\r\n",
            self.status,
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(&body);
        bytes
    }
}
