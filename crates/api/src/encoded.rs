//! Texts that this server gives to everybody: one copy of each encoding, which all answers share.
//!
//! A client that reads slowly, or not at all, costs no memory then but its connection's.

use std::convert::Infallible;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use futures_util::stream;
use tokio::sync::OnceCell;

use crate::accept::accepted;
use crate::error::{ApiError, Code};

/// Bytes of the shortest answer that is compressed. A shorter one fits one packet as it is.
pub(crate) const SIZE_MIN: u16 = 1_001;

/// Marks an answer whose bytes many answers share. It is not compressed any further.
#[derive(Debug, Clone, Copy)]
pub struct Shared;

/// The window of a compressed copy. It has the size of the largest text.
const WINDOW_BITS: i32 = 22;

/// Every browser takes gzip too: a copy for the others is not worth more time.
const QUALITY: i32 = 2;

/// A text in the encodings that clients ask for, each made when it is first asked for.
#[derive(Debug, Clone)]
pub struct Encoded(Arc<Copies>);

#[derive(Debug)]
struct Copies {
    source: Source,
    plain: OnceCell<Bytes>,
    gzip: OnceCell<Bytes>,
    brotli: OnceCell<Bytes>,
}

#[derive(Debug)]
enum Source {
    /// As it is, in parts that other texts may share.
    Plain(Vec<Bytes>),
    Gzip(&'static [u8]),
}

/// How an answer is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Gzip,
    Brotli,
    Identity,
}

impl Encoded {
    /// A text that is there as it is, in parts.
    pub fn new(parts: Vec<Bytes>) -> Self {
        Self::of(Source::Plain(parts))
    }

    /// A text that the binary holds compressed.
    pub fn of_gzip(compressed: &'static [u8]) -> Self {
        Self::of(Source::Gzip(compressed))
    }

    fn of(source: Source) -> Self {
        let [plain, gzip, brotli] = [(); 3].map(|()| OnceCell::new());
        Self(Arc::new(Copies { source, plain, gzip, brotli }))
    }

    /// The text as this client takes it.
    pub async fn answer(&self, request: &HeaderMap) -> Response {
        let encoding = match self.0.is_worth_compressing() {
            true => encoding_for(request),
            false => Encoding::Identity,
        };
        let mut response = match self.0.parts(encoding).await {
            Ok(parts) => of_parts(parts),
            Err(_) => {
                let message = "the text could not be compressed";
                return ApiError::new(Code::InternalError, message).into_response();
            }
        };
        response.extensions_mut().insert(Shared);
        let headers = response.headers_mut();
        if self.0.is_worth_compressing() {
            headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        }
        let name = match encoding {
            Encoding::Gzip => "gzip",
            Encoding::Brotli => "br",
            Encoding::Identity => return response,
        };
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(name));
        response
    }
}

/// An answer whose parts are not copied.
fn of_parts(parts: Vec<Bytes>) -> Response {
    let length: usize = parts.iter().map(Bytes::len).sum();
    let parts = parts.into_iter().map(Ok::<_, Infallible>);
    let mut response = Body::from_stream(stream::iter(parts)).into_response();
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    response
}

impl Copies {
    fn is_worth_compressing(&self) -> bool {
        match &self.source {
            Source::Plain(parts) => {
                parts.iter().map(Bytes::len).sum::<usize>() >= usize::from(SIZE_MIN)
            }
            Source::Gzip(_) => true,
        }
    }

    async fn parts(&self, encoding: Encoding) -> io::Result<Vec<Bytes>> {
        Ok(match (encoding, &self.source) {
            (Encoding::Identity, Source::Plain(parts)) => parts.clone(),
            (Encoding::Identity, Source::Gzip(_)) => vec![self.plain().await?],
            (Encoding::Gzip, Source::Gzip(compressed)) => vec![Bytes::from_static(compressed)],
            (Encoding::Gzip, Source::Plain(parts)) => vec![made(&self.gzip, parts, gzip).await?],
            (Encoding::Brotli, Source::Plain(parts)) => {
                vec![made(&self.brotli, parts, brotli).await?]
            }
            (Encoding::Brotli, Source::Gzip(_)) => {
                vec![made(&self.brotli, &[self.plain().await?], brotli).await?]
            }
        })
    }

    async fn plain(&self) -> io::Result<Bytes> {
        match &self.source {
            Source::Plain(parts) => Ok(parts.concat().into()),
            Source::Gzip(compressed) => {
                made(&self.plain, &[Bytes::from_static(compressed)], gunzip).await
            }
        }
    }
}

/// The copy, which the first request makes while others wait. Some megabytes take some tenths of a
/// second, in which this thread has others to serve.
async fn made(
    copy: &OnceCell<Bytes>,
    parts: &[Bytes],
    make: fn(&[Bytes]) -> io::Result<Vec<u8>>,
) -> io::Result<Bytes> {
    let make = async || {
        let parts = parts.to_vec();
        let made = tokio::task::spawn_blocking(move || make(&parts)).await;
        made.map_err(io::Error::other)?.map(Bytes::from)
    };
    copy.get_or_try_init(make).await.cloned()
}

fn gunzip(parts: &[Bytes]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for part in parts {
        GzDecoder::new(&part[..]).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn gzip(parts: &[Bytes]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    for part in parts {
        encoder.write_all(part)?;
    }
    encoder.finish()
}

fn brotli(parts: &[Bytes]) -> io::Result<Vec<u8>> {
    let params = BrotliEncoderParams { quality: QUALITY, lgwin: WINDOW_BITS, ..Default::default() };
    let mut bytes = Vec::new();
    brotli::BrotliCompress(&mut &parts.concat()[..], &mut bytes, &params)?;
    Ok(bytes)
}

/// The encoding that a client prefers. Among equals, the encoding that the binary holds.
fn encoding_for(request: &HeaderMap) -> Encoding {
    let accepted = accepted(request, &header::ACCEPT_ENCODING);
    let weight = |names: &[&str]| {
        let named = accepted.iter().filter(|(name, _)| names.contains(&&**name));
        named.map(|(_, weight)| *weight).max().unwrap_or(0)
    };
    let identity = weight(&["identity"]);
    [(Encoding::Gzip, weight(&["gzip", "x-gzip"])), (Encoding::Brotli, weight(&["br"]))]
        .into_iter()
        .filter(|(_, weight)| *weight > 0 && *weight >= identity)
        .rev()
        .max_by_key(|(_, weight)| *weight)
        .map_or(Encoding::Identity, |(encoding, _)| encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_an_encoding_that_it_names() {
        let check = |accepted: &'static str, expected: Encoding| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            assert_eq!(encoding_for(&headers), expected, "{accepted}");
        };
        check("gzip", Encoding::Gzip);
        check("gzip, deflate, br, zstd", Encoding::Gzip);
        check("deflate, GZIP;q=0.5, br", Encoding::Brotli);
        check("br;q=1.0, gzip;q=0.001", Encoding::Brotli);
        check("gzip;q=0, br", Encoding::Brotli);
        check("gzip;q=0", Encoding::Identity);
        check("gzip;q=0.5, identity", Encoding::Identity);
        check("identity, gzip", Encoding::Gzip);
        check("gzip; q=0.000", Encoding::Identity);
        check("br", Encoding::Brotli);
        check("identity", Encoding::Identity);
        check("gzipped", Encoding::Identity);
        assert_eq!(encoding_for(&HeaderMap::new()), Encoding::Identity);
    }
}
