//! Pages that a person opens by a link, without credentials: the secret is in the link.
//!
//! They stand beside the version segment, because a link outlives a version. Every text in them is
//! escaped by the template. Nothing is loaded from elsewhere, there are no scripts, and the link is
//! kept from other sites and from caches.

pub mod invitation;
pub mod identity;

use std::sync::LazyLock;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use domain::time::Timestamp;
use maud::{DOCTYPE, Markup, html};
use service::App;

use crate::assets::Asset;

/// The pages' style.
static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("/", "pages", "css", include_str!("pages/style.css")));

/// Allows a page its style from this server, its empty icon, and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// Bytes of a form: the largest, with every field full of what takes most room, fits twice.
const FORM_MAX: usize = 64 * 1024;

/// Every page.
pub fn router(app: App) -> Router {
    let router = Router::new()
        .route("/i/{code}", get(invitation::show))
        .route("/kyc/{code}", get(identity::show).post(identity::submit))
        .layer(DefaultBodyLimit::max(FORM_MAX));
    STYLE.clone().route(router).with_state(app)
}

/// A document in HTML. `head` is what its head has besides.
pub(crate) fn document(title: &str, head: &Markup, body: &Markup) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                link rel="icon" href="data:,";
                (head)
            }
            body { (body) }
        }
    };
    document.into_string()
}

/// A page as a whole.
fn page(status: StatusCode, title: &str, content: &Markup) -> Response {
    let head = html! {
        meta name="robots" content="noindex";
        link rel="stylesheet" href=(STYLE.path());
    };
    let body = html! {
        main {
            h1 { (title) }
            (content)
        }
    };
    let mut response = (status, Html(document(title, &head, &body))).into_response();
    protect(response.headers_mut());
    response
}

fn protect(headers: &mut HeaderMap) {
    let rules: [(HeaderName, &str); 4] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in rules {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// The page of a link that opens nothing.
fn nothing() -> Response {
    let content = html! {
        p { "This link opens nothing. Look whether it was copied whole, or ask for a new one." }
    };
    page(StatusCode::NOT_FOUND, "Nothing here", &content)
}

/// The page of a link that cannot be read at the moment.
fn later() -> Response {
    let content = html! { p { "The server is busy. Please open the link again in a moment." } };
    page(StatusCode::SERVICE_UNAVAILABLE, "Please try again", &content)
}

/// An instant as people write it, and as their programs read it.
fn moment(at: Timestamp) -> Markup {
    html! { time datetime=(at) { (at.in_words()) } }
}
