//! The endpoint of the story's platform: it takes what is delivered, and checks the signatures as
//! `docs/webhooks.md` says.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use service::webhooks::signature::PublicKeys;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::command::Failure;

/// Where it receives.
pub(super) const PATH: &str = "/hooks";

/// Events that wait to be shown: more than the story has.
const WAITING_MAX: usize = 1_000;

/// An endpoint on this machine, until it is dropped.
pub(super) struct Endpoint {
    address: SocketAddr,
    notifications: mpsc::Receiver<Notification>,
    server: JoinHandle<()>,
}

/// A request as it came.
pub(super) struct Notification {
    headers: HeaderMap,
    body: Bytes,
}

impl Endpoint {
    pub(super) async fn open() -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("the story's endpoint cannot listen: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (queue, notifications) = mpsc::channel(WAITING_MAX);
        let router = Router::new().route(PATH, post(receive)).with_state(queue);
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the story's endpoint has ended");
            }
        });
        Ok(Self { address, notifications, server })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// The next event that comes.
    pub(super) async fn next(&mut self) -> Option<Notification> {
        self.notifications.recv().await
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn receive(
    State(queue): State<mpsc::Sender<Notification>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    match queue.try_send(Notification { headers, body }) {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl Notification {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Whether each of the two signatures is of these keys.
    pub(super) fn signatures(&self, keys: &PublicKeys) -> (bool, bool) {
        let [id, seconds, standard, ecdsa] =
            ["webhook-id", "webhook-timestamp", "webhook-signature", "x-grid-signature"]
                .map(|name| self.header(name));
        let ecdsa: Value = serde_json::from_str(ecdsa).unwrap_or_default();
        let ecdsa = ecdsa["s"].as_str().unwrap_or_default();
        (keys.is_standard(standard, id, seconds, &self.body), keys.is_ecdsa(ecdsa, &self.body))
    }

    /// The event.
    pub(super) fn event(&self) -> Result<Value, Failure> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Failure::new(format!("the endpoint was sent no JSON: {error}")))
    }
}
