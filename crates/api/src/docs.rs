//! The OpenAPI document and a page to read and try it, without any request to elsewhere.

use std::sync::LazyLock;

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::openapi::origin::Served;

/// Where the page's script is served.
const SCRIPT_PATH: &str = "/docs/scalar.js";

/// Allows the page what it needs from this server and nothing from anywhere else.
const POLICY: &str = "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; \
    style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; \
    connect-src 'self'; worker-src 'self' blob:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// `/openapi.json` and `/docs` of a server with this public address.
pub fn router(document: &Value, public_url: &str) -> Router {
    let document = Served::new(document, public_url);
    let page = page();
    Router::new()
        .route("/openapi.json", get(async move |headers: HeaderMap| json(document.bytes(&headers))))
        .route("/docs", get(async move || html(page)))
        .route(SCRIPT_PATH, get(script))
}

fn json(document: Bytes) -> Response {
    let mut response = document.into_response();
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn html(page: String) -> Response {
    let mut response = Html(page).into_response();
    let policy = HeaderValue::from_static(POLICY);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

fn page() -> String {
    let configuration = json!({
        "url": "/openapi.json",
        "withDefaultFonts": false,
        "telemetry": false,
        "agent": { "disabled": true },
        "hideClientButton": true,
        "showDeveloperTools": "never",
    });
    scalar_api_reference::scalar_html(&configuration, Some(SCRIPT_PATH))
}

async fn script() -> Response {
    /// Read out of the binary once: it is some megabytes.
    static SCRIPT: LazyLock<Bytes> =
        LazyLock::new(|| scalar_api_reference::get_asset("scalar.js").unwrap_or_default().into());
    let mut response = SCRIPT.clone().into_response();
    let kind = HeaderValue::from_static("text/javascript");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
