//! The guarded HTTP client (reliability 4.6): the only one of the server that goes to addresses
//! which a client chose.
//!
//! A name is resolved once, every address that it has must be allowed, and the connection goes to
//! one of those. A connection that is kept open was checked when it was made. No redirect is
//! followed, no proxy of the environment is used, and time and size have an end.

mod reach;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use domain::time::Timestamp;
use ports::outbound::{
    Method, Outbound, OutboundAnswer, OutboundFailure, OutboundRequest, Reach, RetryAfter,
};
use ports::rail::Pending;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};

use self::reach::{Refusal, Way, check_address, check_url};

/// How long a connection may take to come about.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// How long an idle connection is kept for the next request.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// Idle connections to one host. As many as there may be requests at once to one host
/// that answers quickly: with fewer, most requests would begin with a new connection.
const IDLE_MAX: usize = 64;

/// Bytes of an answer that are read. The answer to an approval request has a few facts of 500
/// characters each; one that is cut off would be no JSON.
const ANSWER_MAX: usize = 64 * 1_024;

const USER_AGENT: &str = concat!("switchyard/", env!("CARGO_PKG_VERSION"));

/// The client. It believes the authorities of the operating system, which are read when they are
/// needed first: many servers and most commands send nothing.
#[derive(Default)]
pub struct GuardedClient {
    /// One for each way: they share no connection.
    public: OnceLock<Option<Client>>,
    any: OnceLock<Option<Client>>,
    plain: OnceLock<Option<Client>>,
}

impl GuardedClient {
    fn client(&self, way: Way) -> Result<&Client, OutboundFailure> {
        let place = match way {
            Way::Public => &self.public,
            Way::Any => &self.any,
            Way::Plain => &self.plain,
        };
        let made = place.get_or_init(|| {
            client(way)
                .inspect_err(|error| tracing::error!(error, "no request can be sent from here"))
                .ok()
        });
        made.as_ref().ok_or(OutboundFailure::Unreachable)
    }

    async fn exchange(&self, request: OutboundRequest) -> Result<OutboundAnswer, OutboundFailure> {
        let (url, way) = parse(&request.url, request.reach)?;
        let client = self.client(way)?;
        let mut built = match request.method {
            Method::Get => client.get(url),
            Method::Post => client.post(url).body(request.body),
        };
        built = built.timeout(request.within);
        for (name, value) in request.headers {
            built = built.header(name, value);
        }
        let answer = built.send().await.map_err(|error| failure(&error))?;
        Ok(OutboundAnswer {
            status: answer.status().as_u16(),
            retry_after: retry_after(answer.headers()),
            peer: answer.remote_addr().map(|peer| peer.ip()),
            body: first_bytes(answer).await?,
        })
    }
}

/// Reads an address, and how it is reached.
fn parse(url: &str, reach: Reach) -> Result<(Url, Way), OutboundFailure> {
    let url = Url::parse(url)
        .map_err(|_| refused(&Refusal::new("the endpoint is not an absolute address")))?;
    let way = check_url(&url, reach).map_err(|refusal| refused(&refusal))?;
    Ok((url, way))
}

impl Outbound for GuardedClient {
    fn checked(&self, url: &str, reach: Reach) -> Result<String, OutboundFailure> {
        let (parsed, _) = parse(url, reach)?;
        // A client finds what it has sent, unless a host had to be written otherwise.
        Ok(if url.is_ascii() { url.to_owned() } else { parsed.into() })
    }

    fn send(
        &self,
        request: OutboundRequest,
    ) -> Pending<'_, Result<OutboundAnswer, OutboundFailure>> {
        Box::pin(self.exchange(request))
    }
}

/// Lets clients that choose no cryptography of their own use ours. Once is enough, more is no harm.
pub fn choose_cryptography() {
    // An earlier choice stands.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn client(way: Way) -> Result<Client, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    // Those that cannot be read are as if they were not there: what they signed is not believed.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(Checked(way))
        .redirect(Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIME)
        .pool_idle_timeout(IDLE_TIME)
        .pool_max_idle_per_host(IDLE_MAX)
        .user_agent(USER_AGENT)
        .build()
        .map_err(|error| error.to_string())
}

/// Resolves names, and refuses one that has an address which is not allowed, whatever its others
/// are.
struct Checked(Way);

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let way = self.0;
        Box::pin(async move {
            // The port is that of the request; the resolver does not know it.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.collect();
            for address in &found {
                check_address(address.ip(), way)?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn refused(refusal: &Refusal) -> OutboundFailure {
    OutboundFailure::Refused(refusal.to_string())
}

/// The failure of a request that has no answer. A refusal is somewhere below the client's own
/// errors.
fn failure(error: &reqwest::Error) -> OutboundFailure {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(refusal) = error.downcast_ref::<Refusal>() {
            return refused(refusal);
        }
        cause = error.source();
    }
    if error.is_timeout() { OutboundFailure::TimedOut } else { OutboundFailure::Unreachable }
}

/// The value of the header, in either of its forms. One that says neither is as if it was not
/// there.
fn retry_after(headers: &HeaderMap) -> Option<RetryAfter> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(RetryAfter::Delay(Duration::from_secs(seconds)));
    }
    let moment = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let millis = i64::try_from(moment.as_millis()).ok()?;
    Some(RetryAfter::At(Timestamp::from_millis(millis)))
}

/// The first bytes of a body; the rest is not read.
async fn first_bytes(mut answer: Response) -> Result<Vec<u8>, OutboundFailure> {
    let mut body = Vec::new();
    while body.len() < ANSWER_MAX {
        match answer.chunk().await.map_err(|error| failure(&error))? {
            Some(chunk) => body.extend_from_slice(&chunk),
            None => break,
        }
    }
    body.truncate(ANSWER_MAX);
    Ok(body)
}

impl fmt::Debug for GuardedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GuardedClient(..)")
    }
}

#[cfg(test)]
mod tests;
