//! The way in: `/` with the addresses, the OpenAPI document, and a page to read and try it, without
//! any request to elsewhere.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use bytes::Bytes;
use maud::html;
use serde_json::{Value, json};
use service::App;
use sha2::{Digest as _, Sha256};

use crate::accept::accepted;
use crate::assets::Asset;
use crate::encoded::Encoded;
use crate::openapi::guide::EVENTS_TAG;
use crate::openapi::origin::{Served, origin};
use crate::pages::document;
use crate::query;

/// Where the files of the page are served.
const FOLDER: &str = "/docs/";

/// Allows the page what it needs from this server and nothing from anywhere else. The library sets
/// styles from its script.
const POLICY: &str = "default-src 'none'; script-src 'self'; \
    style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; \
    connect-src 'self'; worker-src 'self' blob:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// `/`, `/openapi.json` and `/docs`.
pub fn router(app: &App, document: &Value) -> Router {
    let public_url = app.env().public_url.clone();
    let without_webhooks = Document::new(&without_webhooks(document), &public_url);
    let document = Document::new(document, &public_url);
    let library = Asset::gzip(
        FOLDER,
        "scalar",
        "js",
        env!("SCALAR_HASH"),
        include_bytes!(concat!(env!("OUT_DIR"), "/scalar.js.gz")),
    );
    let start = Asset::new(FOLDER, "start", "js", start());
    let page = page(&library, &start);
    let router = Router::new()
        .route("/", get(async move |headers: HeaderMap| index(&public_url, &headers)))
        .route(
            "/openapi.json",
            get(async move |uri: Uri, headers: HeaderMap| {
                let asked = query::value(uri.query().unwrap_or_default(), "webhooks");
                let is_whole = asked.as_deref() != Some("false");
                let asked = if is_whole { &document } else { &without_webhooks };
                asked.answer(&headers).await
            }),
        )
        .route("/docs", get(async move || html(page)));
    start.route(library.route(router))
}

/// The addresses of a server; people with a browser are led to the page.
fn index(public_url: &str, headers: &HeaderMap) -> Response {
    let mut response = if prefers_html(headers) {
        Redirect::to("/docs").into_response()
    } else {
        let origin = origin(public_url, headers);
        let addresses = json!({
            "name": "Switchyard",
            "version": crate::VERSION,
            "api": format!("{origin}/{}", crate::VERSION),
            "openapi": format!("{origin}/openapi.json"),
            "documentation": format!("{origin}/docs"),
            "health": format!("{origin}/healthz"),
        });
        json_of(addresses.to_string().into())
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// Whether a client asks for pages by name, as browsers do, and not rather for JSON.
fn prefers_html(headers: &HeaderMap) -> bool {
    let accepted = accepted(headers, &header::ACCEPT);
    let weight = |names: &[&str]| {
        let found = accepted.iter().filter(|(name, _)| names.contains(&&**name));
        found.map(|(_, weight)| *weight).max().unwrap_or(0)
    };
    let html = weight(&["text/html", "application/xhtml+xml"]);
    html > 0 && html >= weight(&["application/json"])
}

/// The document without the section of events, which some generators cannot read: those of
/// OpenAPI 3.0 have none.
fn without_webhooks(document: &Value) -> Value {
    let mut document = document.clone();
    if let Some(parts) = document.as_object_mut() {
        parts.remove("webhooks");
    }
    if let Some(tags) = document["tags"].as_array_mut() {
        tags.retain(|tag| tag["name"] != EVENTS_TAG);
    }
    document
}

/// The OpenAPI document as it is sent.
#[derive(Clone)]
struct Document {
    served: Served,
    digest: [u8; 32],
    /// The first addresses that clients have used, with compressed copies. None is given up, so
    /// that answers which are still being read share what is here.
    kept: Arc<Mutex<Vec<(String, Encoded)>>>,
}

/// A machine has as many names: its address, `localhost`, and what a proxy calls it.
const KEPT_MAX: usize = 4;

impl Document {
    fn new(document: &Value, public_url: &str) -> Self {
        let served = Served::new(document, public_url);
        let digest = Sha256::digest(document.to_string()).into();
        Self { served, digest, kept: Arc::default() }
    }

    /// Weak: the same for every encoding of the document, and another for another address in it.
    fn tag(&self, origin: &str) -> HeaderValue {
        let hash =
            hex::encode(Sha256::new().chain_update(self.digest).chain_update(origin).finalize());
        let tag = HeaderValue::from_str(&format!("W/\"{}\"", &hash[..32]));
        tag.expect("digits are a header value")
    }

    /// The text with an address. Under an address too many it is not compressed, as each client
    /// could have a copy of its own made.
    fn text(&self, origin: &str) -> (Encoded, bool) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = kept.iter().find(|(known, _)| known == origin) {
            return (text.clone(), true);
        }
        let text = Encoded::new(self.served.parts(origin));
        let has_room = kept.len() < KEPT_MAX;
        if has_room {
            kept.push((origin.to_owned(), text.clone()));
        }
        (text, has_room)
    }

    async fn answer(&self, request: &HeaderMap) -> Response {
        let origin = self.served.origin(request);
        let tag = self.tag(&origin);
        let mut response = if is_known(request, tag.as_bytes()) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            let (text, is_kept) = self.text(&origin);
            let as_it_is = HeaderMap::new();
            as_json(text.answer(if is_kept { request } else { &as_it_is }).await)
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, tag);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        response
    }
}

/// Whether the client has what this tag stands for: the weak comparison of RFC 9110, 8.8.3.2.
fn is_known(request: &HeaderMap, tag: &[u8]) -> bool {
    let opaque = |tag: &'_ [u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
    let values = request.get_all(header::IF_NONE_MATCH).iter();
    values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).any(|one| {
        let one = one.trim_ascii();
        one == b"*" || opaque(one) == opaque(tag)
    })
}

fn json_of(body: Bytes) -> Response {
    as_json(body.into_response())
}

fn as_json(mut response: Response) -> Response {
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn html(page: String) -> Response {
    let mut response = Html(page).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// The script that shows the document with the library.
fn start() -> String {
    let configuration = json!({
        "url": "/openapi.json",
        // Requests are tried on this server, by whatever name the browser knows it.
        "servers": [{ "url": format!("/{}", crate::VERSION) }],
        "pageTitle": "Switchyard API",
        "customCss": include_str!("docs/style.css"),
        "withDefaultFonts": false,
        "telemetry": false,
        "agent": { "disabled": true },
        "hideClientButton": true,
        "showDeveloperTools": "never",
    });
    // The library's code views scroll, and a keyboard has to reach what scrolls.
    format!(
        "Scalar.createApiReference('#app', {configuration});\n\
         const focusable = () => document.querySelectorAll('.cm-scroller:not([tabindex=\"0\"])')\
         .forEach((view) => {{ view.tabIndex = 0; }});\n\
         new MutationObserver(focusable).observe(document.documentElement, \
         {{ childList: true, subtree: true }});\n"
    )
}

fn page(library: &Asset, start: &Asset) -> String {
    let head = html! {
        meta name="description" content="How to use the API of this Switchyard server.";
        script src=(library.path()) defer {}
        script src=(start.path()) defer {}
    };
    let body = html! {
        // It must be empty: the library takes content for its own, drawn on a server.
        div id="app" {}
        noscript {
            p {
                "This page needs JavaScript. Without it, read "
                a href="/openapi.json" { "the OpenAPI document" }
                "."
            }
        }
    };
    document("Switchyard API", &head, &body)
}
