//! Files that pages load. Each has a hash of its content in its name, so that browsers keep it for
//! good and a new release is seen at once.

use std::io::Read as _;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use flate2::read::GzDecoder;
use sha2::{Digest as _, Sha256};

use crate::accept::accepted;
use crate::error::{ApiError, Code};

/// Digits of the hash in a name: 64 bits tell the releases of one file apart.
const HASH_DIGITS: usize = 16;

/// Browsers ask again only after a year, which they take for never.
const FOR_GOOD: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// A file that pages load.
#[derive(Debug, Clone)]
pub struct Asset {
    path: String,
    kind: &'static str,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Plain(Bytes),
    Gzip(&'static [u8]),
}

impl Asset {
    /// A file of text. `folder` ends in a slash.
    pub fn new(folder: &str, stem: &str, extension: &str, text: impl Into<Bytes>) -> Self {
        let text = text.into();
        let hash = hex::encode(Sha256::digest(&text));
        let path = path(folder, stem, extension, &hash);
        Self { path, kind: kind(extension), content: Content::Plain(text) }
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
        Self { path, kind: kind(extension), content: Content::Gzip(compressed) }
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
        let mut response = match &self.content {
            Content::Plain(text) => text.clone().into_response(),
            Content::Gzip(compressed) => match compressed_or_not(request, compressed).await {
                Ok(response) => response,
                Err(error) => return error.into_response(),
            },
        };
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

/// The file as it is held where the client takes that, else decompressed.
async fn compressed_or_not(
    request: &HeaderMap,
    compressed: &'static [u8],
) -> Result<Response, ApiError> {
    let mut response = if takes_gzip(request) {
        let mut response = Bytes::from_static(compressed).into_response();
        let gzip = HeaderValue::from_static("gzip");
        response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
        response
    } else {
        // Some megabytes take some ten milliseconds, in which this thread has others to serve.
        let decompressed = tokio::task::spawn_blocking(move || decompressed(compressed)).await;
        let failed = || ApiError::new(Code::InternalError, "the file could not be decompressed");
        decompressed.ok().and_then(Result::ok).ok_or_else(failed)?.into_response()
    };
    let vary = HeaderValue::from_static("accept-encoding");
    response.headers_mut().insert(header::VARY, vary);
    Ok(response)
}

fn decompressed(compressed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    GzDecoder::new(compressed).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a client names gzip among the encodings that it takes.
fn takes_gzip(request: &HeaderMap) -> bool {
    let accepted = accepted(request, &header::ACCEPT_ENCODING);
    accepted.iter().any(|(name, weight)| matches!(&**name, "gzip" | "x-gzip") && *weight > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_for_clients_that_name_it() {
        let check = |accepted: &'static str, takes: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            assert_eq!(takes_gzip(&headers), takes, "{accepted}");
        };
        check("gzip", true);
        check("deflate, GZIP;q=0.5, br", true);
        check("br;q=1.0, gzip;q=0.001", true);
        check("gzip;q=0", false);
        check("gzip; q=0.000", false);
        check("br", false);
        check("identity", false);
        check("gzipped", false);
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
