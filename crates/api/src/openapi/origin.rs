//! Where clients find the server: the document's address is absolute, as generated clients need it.

use std::borrow::Cow;
use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use bytes::Bytes;
use serde_json::Value;

use super::ORIGIN;

/// The document as it is sent, but for the address in it.
#[derive(Clone)]
pub struct Served {
    head: Bytes,
    tail: Bytes,
    public_url: String,
}

impl Served {
    /// The document of a server with this public address.
    pub fn new(document: &Value, public_url: &str) -> Self {
        let mut text = serde_json::to_string(document).expect("a document is JSON");
        let address = format!("{ORIGIN}/{}", crate::VERSION);
        let at = text.find(&address).expect("the document names its server");
        let tail = text.split_off(at + ORIGIN.len());
        text.truncate(at);
        Self { head: text.into(), tail: tail.into(), public_url: public_url.to_owned() }
    }

    /// The address for a client that sent these headers.
    pub fn origin(&self, headers: &HeaderMap) -> Cow<'_, str> {
        origin(&self.public_url, headers)
    }

    /// The text with this address, which shares all other bytes with those of other addresses.
    pub fn parts(&self, origin: &str) -> Vec<Bytes> {
        vec![self.head.clone(), Bytes::copy_from_slice(origin.as_bytes()), self.tail.clone()]
    }
}

/// The public address, or the one that the client used if only this machine knows the former.
pub(crate) fn origin<'a>(public_url: &'a str, headers: &HeaderMap) -> Cow<'a, str> {
    match host(headers) {
        Some(host) if is_of_this_machine(public_url) => Cow::Owned(format!("http://{host}")),
        _ => Cow::Borrowed(public_url),
    }
}

/// Whether an address is what a server gives itself without a public one.
fn is_of_this_machine(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|it| it.is_loopback())
}

/// Characters of a host with its port: a name has 253 at most.
const HOST_MAX: usize = 260;

/// The one `Host` of a request, if it is a plain one: its text goes into the document.
fn host(headers: &HeaderMap) -> Option<Authority> {
    let mut all = headers.get_all(header::HOST).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let text = only.to_str().ok()?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._:[]".contains(letter);
    if text.len() > HOST_MAX || !text.chars().all(is_plain) {
        return None;
    }
    let authority: Authority = text.parse().ok()?;
    let is_whole = authority.host().len() == text.len() || authority.port_u16().is_some();
    (is_whole && !authority.host().is_empty()).then_some(authority)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn check(public_url: &str, hosts: &[&str], expected: &str) {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, HeaderValue::from_str(host).expect("a header value"));
        }
        assert_eq!(origin(public_url, &headers), expected, "{public_url} {hosts:?}");
    }

    #[test]
    fn a_server_without_a_public_address_is_where_the_client_found_it() {
        let own = "http://127.0.0.1:8080";
        check(own, &["pay.internal:8080"], "http://pay.internal:8080");
        check(own, &["[2001:db8::1]:8080"], "http://[2001:db8::1]:8080");
        check("http://localhost:8080", &["10.0.0.3"], "http://10.0.0.3");
        check("http://[::1]:8080", &["127.0.0.1:8080"], "http://127.0.0.1:8080");
        check("https://pay.example.com", &["10.0.0.3:8080"], "https://pay.example.com");
    }

    #[test]
    fn no_other_text_gets_into_the_document() {
        let own = "http://127.0.0.1:8080";
        let long = "a".repeat(300);
        let strange = ["", "a/b", "a\"b", "u@a", "a b", "a:b:c", "a:", ":80", "a:99999", &long];
        for host in strange {
            check(own, &[host], own);
        }
        check(own, &[], own);
        check(own, &["a", "b"], own);
    }
}
