//! Requests and answers between servers, sealed with the key that the servers on a database share.
//! Nothing else can read them, make one, or take one for another.

use std::net::IpAddr;

use api::auth::ClientAddress;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use store::keyring::Keyring;

use super::{CONNECTION_HEADERS, X_FORWARDED_FOR};

/// The place of a sealed request: the name of the server that is to execute it stands beside it.
const REQUEST: &str = "forwarded request";

/// The place of a sealed answer: the number of its request stands beside it.
const ANSWER: &str = "forwarded answer";

/// How far apart the clocks of two servers may be, in milliseconds. A request that is older was
/// recorded by someone: its idempotency key may be forgotten one day.
const AGE_MAX_MILLIS: i64 = 5 * 60_000;

/// Names and values of headers.
type Headers = Vec<(String, ByteVec)>;

/// A request of a client.
#[derive(Encode, Decode)]
#[cbor(map)]
struct Forwarded {
    /// Drawn for it.
    #[cbor(n(0), with = "minicbor::bytes")]
    number: [u8; 16],
    /// When it was sent, in milliseconds.
    #[n(1)]
    at: i64,
    /// The client's address: limits by address are that client's and not the server's.
    #[n(2)]
    client: Option<String>,
    #[n(3)]
    method: String,
    #[n(4)]
    target: String,
    #[n(5)]
    headers: Headers,
    #[n(6)]
    body: ByteVec,
}

/// The answer to it.
#[derive(Encode, Decode)]
#[cbor(map)]
struct Answered {
    #[n(0)]
    status: u16,
    #[n(1)]
    headers: Headers,
    #[n(2)]
    body: ByteVec,
    /// Tokens or platforms changed while it was executed: what is remembered of clients is read
    /// again.
    #[n(3)]
    clients_changed: bool,
}

/// The number of a request, for which its answer is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number(pub(super) [u8; 16]);

fn listed(headers: &HeaderMap) -> Headers {
    let of_connection = |name| CONNECTION_HEADERS.contains(name) || *name == X_FORWARDED_FOR;
    let of_request = headers.iter().filter(|(name, _)| !of_connection(*name));
    of_request.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec().into())).collect()
}

fn map(headers: Headers) -> Option<HeaderMap> {
    let header = |(name, value): (String, ByteVec)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(&value).ok()?))
    };
    let mut map = HeaderMap::new();
    for (name, value) in headers.into_iter().map(header).collect::<Option<Vec<_>>>()? {
        map.append(name, value);
    }
    Some(map)
}

fn encoded<T: Encode<()>>(value: &T) -> Vec<u8> {
    minicbor::to_vec(value).expect("memory takes every byte")
}

/// Seals a request for the server of this name, at the sender's time in milliseconds.
pub(super) fn seal(
    keyring: &Keyring,
    name: &str,
    (Number(number), at): (Number, i64),
    (parts, body): (&Parts, &Bytes),
) -> Vec<u8> {
    let client = parts.extensions.get::<ClientAddress>();
    let forwarded = Forwarded {
        number,
        at,
        client: client.map(|ClientAddress(client)| client.to_string()),
        method: parts.method.to_string(),
        target: parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
        headers: listed(&parts.headers),
        body: body.to_vec().into(),
    };
    keyring.seal(REQUEST, name.as_bytes(), &encoded(&forwarded))
}

/// Opens a request that was sealed for the server of this name, `now` in milliseconds. Nothing if
/// it was not, or too long ago.
pub(super) fn open(
    keyring: &Keyring,
    name: &str,
    now: i64,
    sealed: &[u8],
) -> Option<(Number, Request)> {
    let opened = keyring.open(REQUEST, name.as_bytes(), sealed).ok()?;
    let Forwarded { number, at, client, method, target, headers, body } =
        minicbor::decode(&opened).ok()?;
    if now.abs_diff(at) > AGE_MAX_MILLIS.unsigned_abs() {
        return None;
    }
    let builder = Request::builder().method(method.as_str()).uri(target);
    let mut request = builder.body(Body::from(Vec::from(body))).ok()?;
    *request.headers_mut() = map(headers)?;
    if let Some(client) = client {
        request.extensions_mut().insert(ClientAddress(client.parse::<IpAddr>().ok()?));
    }
    Some((Number(number), request))
}

/// Seals the answer to a request.
pub(super) fn seal_answer(
    keyring: &Keyring,
    Number(number): Number,
    (parts, body): (&http::response::Parts, &Bytes),
    clients_changed: bool,
) -> Vec<u8> {
    let answered = Answered {
        status: parts.status.as_u16(),
        headers: listed(&parts.headers),
        body: body.to_vec().into(),
        clients_changed,
    };
    keyring.seal(ANSWER, &number, &encoded(&answered))
}

/// Opens the answer to a request, with whether tokens or platforms have changed. Nothing if it is
/// another's.
pub(super) fn open_answer(
    keyring: &Keyring,
    Number(number): Number,
    sealed: &[u8],
) -> Option<(Response, bool)> {
    let opened = keyring.open(ANSWER, &number, sealed).ok()?;
    let Answered { status, headers, body, clients_changed } = minicbor::decode(&opened).ok()?;
    let mut response = Response::new(Body::from(Vec::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).ok()?;
    *response.headers_mut() = map(headers)?;
    Some((response, clients_changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: Number = Number([7; 16]);

    fn keyring(key: u8) -> Keyring {
        Keyring::new(&[key; 32])
    }

    fn request() -> (Parts, Bytes) {
        let request = Request::builder()
            .method("POST")
            .uri("/2025-10-13/quotes?a=b")
            .header("authorization", "Basic abc")
            .header("x-forwarded-for", "203.0.113.9")
            .header("te", "trailers")
            .body(Body::empty());
        let (mut parts, _) = request.expect("a request").into_parts();
        parts.extensions.insert(ClientAddress([203, 0, 113, 1].into()));
        (parts, Bytes::from_static(b"{}"))
    }

    fn sealed() -> Vec<u8> {
        let (parts, body) = request();
        seal(&keyring(1), "leader", (NUMBER, 1_000_000), (&parts, &body))
    }

    #[tokio::test]
    async fn a_request_is_opened_by_its_server_in_time_and_by_no_other() {
        let (number, opened) = open(&keyring(1), "leader", 1_000_000, &sealed()).expect("it opens");
        assert_eq!(number, NUMBER);
        assert_eq!((opened.method().as_str(), opened.uri().path()), ("POST", "/2025-10-13/quotes"));
        assert_eq!(opened.uri().query(), Some("a=b"));
        let names: Vec<_> = opened.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["authorization"]);
        let client = opened.extensions().get::<ClientAddress>().expect("the client");
        assert_eq!(client.0.to_string(), "203.0.113.1");
        let body = axum::body::to_bytes(opened.into_body(), 100).await.expect("a body");
        assert_eq!(body, "{}");

        assert!(open(&keyring(1), "another", 1_000_000, &sealed()).is_none());
        assert!(open(&keyring(2), "leader", 1_000_000, &sealed()).is_none());
        for (late, is_open) in [(AGE_MAX_MILLIS, true), (AGE_MAX_MILLIS + 1, false)] {
            for now in [1_000_000 + late, 1_000_000 - late] {
                assert_eq!(open(&keyring(1), "leader", now, &sealed()).is_some(), is_open);
            }
        }
        let plain = String::from_utf8_lossy(&sealed()).into_owned();
        assert!(!plain.contains("Basic") && !plain.contains("quotes"), "it can be read");
    }

    #[test]
    fn every_changed_bit_is_refused() {
        for place in 0..sealed().len() {
            let mut changed = sealed();
            changed[place] ^= 1;
            assert!(open(&keyring(1), "leader", 1_000_000, &changed).is_none(), "{place}");
            assert!(open(&keyring(1), "leader", 1_000_000, &sealed()[..place]).is_none());
        }
    }

    #[test]
    fn an_answer_is_opened_for_its_request_only() {
        let response = Response::builder().status(201).header("allow", "GET").body(());
        let (parts, ()) = response.expect("an answer").into_parts();
        let body = Bytes::from_static(b"[]");
        for changed in [true, false] {
            let sealed = seal_answer(&keyring(1), NUMBER, (&parts, &body), changed);
            let (response, clients_changed) =
                open_answer(&keyring(1), NUMBER, &sealed).expect("it opens");
            assert_eq!((response.status(), clients_changed), (StatusCode::CREATED, changed));
            assert_eq!(response.headers()["allow"], "GET");
            assert!(open_answer(&keyring(1), Number([8; 16]), &sealed).is_none());
            assert!(open_answer(&keyring(2), NUMBER, &sealed).is_none());
            // A request is no answer.
            assert!(open_answer(&keyring(1), NUMBER, &super::tests::sealed()).is_none());
        }
    }
}
