//! Signs of other machines behind a loopback listener, which a proxy on this machine leaves.
//!
//! A server on a loopback address is this machine's alone only while nothing in front of it takes
//! requests from elsewhere. Each request at the clients' listener is looked at until the first
//! sign, which ends [`Locality`] for the life of the process. A proxy that rewrites `Host`, speaks
//! HTTP/1.1 and adds nothing leaves no sign. The operator says it then, with `--public-url` or
//! `--trust-forwarded-from`.

use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, Uri, Version};
use ports::locality::Locality;
use service::App;
use service::locality::notice_all;
use tokio::time::timeout;
use tower::util::MapRequestLayer;

/// Beginnings of names of headers that proxies, load balancers and networks of them add.
const PREFIXES: [&str; 6] =
    ["x-forwarded", "x-original-", "x-envoy-", "x-azure-", "x-amz-cf-", "cf-"];

/// Names of such headers as a whole.
const NAMES: [&str; 18] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-real-port",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-proxyuser-ip",
    "x-proxy-id",
    "proxy-client-ip",
    "wl-proxy-client-ip",
    "true-client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "x-appengine-user-ip",
    "cdn-loop",
    "client-ip",
];

/// How long an operator's request waits for the list of platforms.
const NOTICE_TIMEOUT: Duration = Duration::from_millis(500);

/// Characters of a name that are logged.
const SHOWN_MAX: usize = 100;

/// Watches the requests of clients for signs of other machines.
pub(crate) fn watch(locality: Locality, clients: Router) -> Router {
    clients.layer(MapRequestLayer::new(move |request: Request| {
        if locality.is_local()
            && let Some(sign) = sign_of(request.version(), request.uri(), request.headers())
            && locality.end()
        {
            tracing::warn!(
                sign,
                "not only this machine reaches this server: private networks are out of reach for \
                 webhooks and other institutions now, and operator endpoints are at --admin-listen \
                 alone"
            );
        }
        request
    }))
}

/// Why a request was sent by another machine, as far as it tells.
fn sign_of(version: Version, uri: &Uri, headers: &HeaderMap) -> Option<String> {
    if let Some(name) = headers.keys().find(|name| is_of_proxy(name)) {
        return Some(format!("a request has the header {name}, as proxies add it"));
    }
    // Clients of today speak HTTP/1.1, and proxies without a setting for it HTTP/1.0.
    if version < Version::HTTP_11 {
        return Some("a request is HTTP/1.0, as proxies speak it".to_owned());
    }
    let named = headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let mut named = named.chain(uri.authority().map(Authority::as_str));
    let foreign = named.find(|host| !is_of_this_machine(host))?;
    let shown: String = foreign.escape_default().take(SHOWN_MAX).collect();
    Some(format!("a request is for the host {shown}"))
}

fn is_of_proxy(name: &HeaderName) -> bool {
    let name = name.as_str();
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a host, on whatever port, is one by which only this machine knows itself.
pub(crate) fn is_of_this_machine(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let address = bare.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Routes that answer at the clients' listener only while the server is local. Afterwards they are
/// as if they were not there.
pub(crate) fn while_local(app: &App, routes: Router) -> Router {
    routes.route_layer(from_fn_with_state(app.clone(), answer_while_local))
}

async fn answer_while_local(State(app): State<App>, request: Request, next: Next) -> Response {
    // Requests of other servers come often, and their senders have the key of the database.
    if request.method() != Method::POST {
        // A database that does not answer has no new domain for us.
        let _ = timeout(NOTICE_TIMEOUT, notice_all(&app)).await;
    }
    match app.env().locality.is_local() {
        true => next.run(request).await,
        false => api::not_found(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, name: &str, version: Version, expected: bool) {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().expect("a value"));
        let name: HeaderName = name.parse().expect("a name");
        headers.append(name.clone(), "1.2.3.4".parse().expect("a value"));
        let sign = sign_of(version, &Uri::from_static("/docs"), &headers);
        assert_eq!(sign.is_some(), expected, "{host} {name} {version:?}: {sign:?}");
    }

    #[test]
    fn a_foreign_host_is_a_sign() {
        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1",
            "127.0.0.1:65535",
            "127.9.9.9:1",
            "[::1]",
            "[::1]:8080",
            "[::ffff:127.0.0.1]:8080",
        ] {
            check(host, "accept", Version::HTTP_11, false);
            check(host, "accept", Version::HTTP_10, true);
        }
        for host in [
            "example.com",
            "localhost.example.com",
            "127.0.0.1.nip.io",
            "10.0.0.1:8080",
            "0.0.0.0",
            "2130706433",
            "0x7f.1",
            "127.1",
            "[::]",
            "[2001:db8::1]:8080",
            "a",
            "localhost.",
            "app.localhost",
            "localhost@example.com",
            "",
        ] {
            check(host, "accept", Version::HTTP_11, true);
        }
    }

    #[test]
    fn a_target_with_another_host_is_a_sign() {
        let none = HeaderMap::new();
        let sign = |uri| sign_of(Version::HTTP_11, &Uri::from_static(uri), &none).is_some();
        assert!(sign("http://example.com/") && !sign("http://127.0.0.1:8080/") && !sign("/"));
    }

    #[test]
    fn what_proxies_add_is_a_sign_and_what_clients_send_is_none() {
        for name in [
            "Forwarded",
            "Via",
            "X-Forwarded-For",
            "X-Forwarded-Proto",
            "X-Forwarded-Host",
            "X-Forwarded",
            "X-Real-IP",
            "CF-Connecting-IP",
            "CF-Ray",
            "True-Client-IP",
            "X-Client-IP",
            "X-Cluster-Client-IP",
            "Fastly-Client-IP",
            "X-Original-Forwarded-For",
            "X-Original-URL",
            "X-Envoy-External-Address",
            "X-Azure-ClientIP",
            "CDN-Loop",
        ] {
            check("127.0.0.1", name, Version::HTTP_11, true);
        }
        for name in ["User-Agent", "X-Request-Id", "Traceparent", "Origin", "Idempotency-Key"] {
            check("127.0.0.1", name, Version::HTTP_11, false);
        }
    }
}
