//! Outbound requests: whatever this server asks of an address that a client chose.

use std::net::IpAddr;
use std::time::Duration;

use domain::time::Timestamp;

use crate::rail::Pending;

/// Where a request may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Public addresses over https.
    Public,
    /// Also this machine itself and private networks, there over http too: for platforms where no
    /// money is real, while only this machine reaches the server or the operator allows it.
    Private,
}

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Sends the body.
    Post,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundRequest {
    /// Its method.
    pub method: Method,
    /// Where to.
    pub url: String,
    /// Where it may go at all.
    pub reach: Reach,
    /// Headers beside those that every request has.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty with [`Method::Get`].
    pub body: Vec<u8>,
    /// How long the whole exchange may take, the body of the answer included.
    pub within: Duration,
}

/// The response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundAnswer {
    /// The status.
    pub status: u16,
    /// The first bytes of the body.
    pub body: Vec<u8>,
    /// When the other side wants to be asked again, if it said so.
    pub retry_after: Option<RetryAfter>,
    /// The address that was connected to, where the client can tell.
    pub peer: Option<IpAddr>,
}

/// When a server wants to be asked again: the header `Retry-After` (RFC 9110, 10.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAfter {
    /// So long after this answer.
    Delay(Duration),
    /// At this moment, by the clock of the answering server.
    At(Timestamp),
}

impl RetryAfter {
    /// How long to wait from `now`; nothing if the moment has passed.
    pub fn delay(self, now: Timestamp) -> Duration {
        match self {
            Self::Delay(delay) => delay,
            Self::At(moment) => {
                let millis = moment.millis().saturating_sub(now.millis());
                Duration::from_millis(u64::try_from(millis).unwrap_or_default())
            }
        }
    }
}

/// Why there is no answer. None of them says more about an address than its owner knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutboundFailure {
    /// The address may not be reached from here; nothing was sent to it.
    #[error("{0}")]
    Refused(String),
    /// There was no connection, or it broke.
    #[error("the endpoint could not be reached")]
    Unreachable,
    /// The answer was not there in time.
    #[error("the endpoint did not answer in time")]
    TimedOut,
}

/// The one way out. It crosses a network, so nothing is sent within a unit of work.
pub trait Outbound: Send + Sync {
    /// The address as requests are sent to it, with the name of its host in ASCII. Refuses one that
    /// could never be reached, whatever its name resolves to. Sends nothing.
    fn checked(&self, url: &str, reach: Reach) -> Result<String, OutboundFailure>;

    /// Sends a request. No redirect is followed.
    fn send(
        &self,
        request: OutboundRequest,
    ) -> Pending<'_, Result<OutboundAnswer, OutboundFailure>>;
}
