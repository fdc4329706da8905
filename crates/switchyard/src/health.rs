//! What an orchestrator asks: is the process alive, will it serve, and how is it doing? Without
//! version and without authentication, so the answers hold nothing that is anybody's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde_json::json;
use service::{App, tenure};
use store::leases::{Duty, Lease};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::telemetry;

/// An instance that answers later than this serves nobody well. It is longer than the store takes
/// to see that its database stands still: where this is why, requests are turned away already.
const READY_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a write that succeeded shows that the next one will: whoever asks all the time costs no
/// flush each.
const WRITTEN_HOLDS: Duration = Duration::from_secs(1);

/// The format of [`telemetry::scrape`].
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone)]
struct Health {
    app: App,
    shutdown: CancellationToken,
    /// When something was written last, as far as it was tried here.
    written: Arc<Mutex<Option<Instant>>>,
}

/// `GET /healthz`, `GET /readyz`, `GET /metrics` and `GET /peer`.
pub fn router(app: App, shutdown: CancellationToken) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/peer", get(peer))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Health { app, shutdown, written: Arc::default() })
}

/// The process runs.
async fn healthz() -> Response {
    answer(StatusCode::OK, json!({ "status": "ok" }))
}

/// Requests will be served: reading works, something can be written, and nobody has asked to stop.
async fn readyz(State(health): State<Health>) -> Response {
    let reason = match tokio::time::timeout(READY_TIMEOUT, why_not_ready(&health)).await {
        Ok(None) => return answer(StatusCode::OK, json!({ "status": "ready" })),
        Ok(Some(reason)) => reason,
        Err(_) => "the database does not answer in time",
    };
    tracing::warn!(reason, "not ready");
    answer(StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "unavailable", "reason": reason }))
}

async fn why_not_ready(health: &Health) -> Option<&'static str> {
    if health.shutdown.is_cancelled() {
        return Some("the server is stopping");
    }
    // Not among the lists, which may take long.
    let read = health.app.store().get::<Lease>(Duty::Jobs).await;
    if let Err(error) = read {
        tracing::error!(%error, "the database cannot be read");
        return Some("the database cannot be read");
    }
    // One tries, and whoever asks meanwhile learns from that.
    let mut written = health.written.lock().await;
    if written.is_some_and(|at| at.elapsed() < WRITTEN_HOLDS) {
        return None;
    }
    *written = None;
    if let Err(error) = tenure::try_to_write(&health.app).await {
        tracing::error!(%error, "the database cannot be written to");
        return Some("the database cannot be written to");
    }
    *written = Some(now());
    None
}

#[expect(clippy::disallowed_methods, reason = "it tells how old an answer is, not what is true")]
fn now() -> Instant {
    Instant::now()
}

async fn metrics() -> Response {
    ([(CONTENT_TYPE, METRICS_TYPE)], telemetry::scrape()).into_response()
}

/// Which server this is, for others on the same database ([`crate::relay`]).
async fn peer(State(health): State<Health>) -> Response {
    answer(StatusCode::OK, json!({ "server": tenure::name(&health.app) }))
}

async fn method_not_allowed() -> Response {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let body = json!({
        "status": status.as_u16(),
        "code": "METHOD_NOT_ALLOWED",
        "message": "this address takes GET",
    });
    answer(status, body)
}

fn answer(status: StatusCode, body: serde_json::Value) -> Response {
    (status, [(CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex as Held, PoisonError, mpsc};

    use axum::body::Body;
    use axum::extract::Request;
    use store::engine::{Engine as _, SqliteFile};
    use store::error::StoreError;
    use tower::ServiceExt as _;

    use super::*;
    use crate::config::{KeySource, SecretKey};
    use crate::database::Database;
    use crate::wiring;

    /// Whatever should happen has happened by then, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_is_ready_while_all_its_lists_take_long() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.db");
        let readers = SqliteFile::new(&path).readers();
        let key = KeySource::Given(SecretKey([7; 32]));
        let opened = wiring::open_to_serve(&Database::Sqlite(path), &key, wiring::default_env());
        let opened = opened.unwrap_or_else(|_| panic!("a new database opens"));
        let (end, ended) = mpsc::channel::<()>();
        let (ended, begun) = (Arc::new(Held::new(ended)), Arc::new(AtomicUsize::new(0)));
        let lists: Vec<_> = (0..2 * readers)
            .map(|_| {
                let (store, ended) = (opened.app.store().clone(), Arc::clone(&ended));
                let begun = Arc::clone(&begun);
                tokio::spawn(async move {
                    let list = store.read(move |_| {
                        begun.fetch_add(1, Ordering::SeqCst);
                        // Nobody sends: it waits for the end.
                        let _ = ended.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        Ok::<_, StoreError>(())
                    });
                    list.await
                })
            })
            .collect();
        let all_begun = async {
            while begun.load(Ordering::SeqCst) < readers {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, all_begun).await.expect("lists are read");
        let request = Request::get("/readyz").body(Body::empty()).expect("a request");
        let router = router(opened.app.clone(), CancellationToken::new());
        let answer = router.oneshot(request).await.expect("routers always answer");
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(begun.load(Ordering::SeqCst), readers, "a list has ended meanwhile");
        drop(end);
        for list in lists {
            list.await.expect("no panic").expect("it is read");
        }
        wiring::close(opened).await;
    }
}
