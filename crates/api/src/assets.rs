//! Files that pages load. Each has a hash of its content in its name, so that browsers keep it for
//! good and a new release is seen at once.

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::encoded::Encoded;

/// Digits of the hash in a name: 64 bits tell the releases of one file apart.
const HASH_DIGITS: usize = 16;

/// Browsers ask again only after a year, which they take for never.
const FOR_GOOD: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// A file that pages load.
#[derive(Debug, Clone)]
pub struct Asset {
    path: String,
    kind: &'static str,
    content: Encoded,
}

impl Asset {
    /// A file of text. `folder` ends in a slash.
    pub fn new(folder: &str, stem: &str, extension: &str, text: impl Into<Bytes>) -> Self {
        let text = text.into();
        let hash = hex::encode(Sha256::digest(&text));
        let path = path(folder, stem, extension, &hash);
        Self { path, kind: kind(extension), content: Encoded::new(vec![text]) }
    }

    /// A file that the binary holds compressed, with the hash of what it is without compression.
    pub fn gzip(
        folder: &str,
        stem: &str,
        extension: &str,
        hash: &str,
        compressed: &'static [u8],
    ) -> Self {
        let path = path(folder, stem, extension, hash);
        Self { path, kind: kind(extension), content: Encoded::of_gzip(compressed) }
    }

    /// Where it is served.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Adds its route.
    pub fn route<S: Clone + Send + Sync + 'static>(self, router: Router<S>) -> Router<S> {
        let path = self.path.clone();
        let serve = async move |request: Request| self.answer(request.headers()).await;
        router.route(&path, get(serve))
    }

    async fn answer(&self, request: &HeaderMap) -> Response {
        let mut response = self.content.answer(request).await;
        if !response.status().is_success() {
            return response;
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(header::CACHE_CONTROL, FOR_GOOD);
        response
    }
}

fn path(folder: &str, stem: &str, extension: &str, hash: &str) -> String {
    let hash = hash.get(..HASH_DIGITS).unwrap_or(hash);
    format!("{folder}{stem}-{hash}.{extension}")
}

fn kind(extension: &str) -> &'static str {
    match extension {
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        _ => "application/octet-stream",
    }
}
