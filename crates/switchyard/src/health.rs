//! Health endpoints for an orchestrator: is the process alive, will it serve, and how is it doing?
//! Without version and without authentication, so the answers hold nothing that is anybody's.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{Method, StatusCode};
use serde_json::json;
use service::{App, attention, leadership};
use store::leases::{Lease, LeaseName};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::telemetry;

/// An instance that answers later than this serves no client well. It is longer than the store
/// takes to see that its database stands still: where this is why, requests are turned away
/// already.
const READY_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a write that succeeded shows that the next one will: a caller that asks all the time
/// costs no flush each.
const WRITTEN_HOLDS: Duration = Duration::from_secs(1);

/// How long a scrape waits for the database: metrics are needed most when it hangs.
const MEASURED_WITHIN: Duration = Duration::from_millis(500);

/// The format of [`telemetry::scrape`].
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone)]
struct Health {
    app: App,
    shutdown: CancellationToken,
    /// When something was written last, as far as it was tried here.
    written: Arc<Mutex<Option<Instant>>>,
}

/// The endpoints about this server, which share what they know of it.
#[derive(Clone)]
pub struct Endpoints(Health);

impl Endpoints {
    /// Those of a server that runs until `shutdown`.
    pub fn new(app: App, shutdown: CancellationToken) -> Self {
        Self(Health { app, shutdown, written: Arc::default() })
    }

    /// `GET /healthz` and `GET /readyz`, which a load balancer asks.
    pub fn for_everyone(&self) -> Router {
        self.router(Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)))
    }

    /// `GET /metrics`, and `GET /peer` for other servers.
    pub fn for_operators(&self) -> Router {
        self.router(Router::new().route("/metrics", get(metrics)).route("/peer", get(peer)))
    }

    fn router(&self, routes: Router<Health>) -> Router {
        routes.method_not_allowed_fallback(method_not_allowed).with_state(self.0.clone())
    }
}

/// The process runs.
async fn healthz() -> Response {
    answer(StatusCode::OK, json!({ "status": "ok" }))
}

/// Requests will be served: reading works, something can be written, and no stop was requested.
async fn readyz(State(health): State<Health>) -> Response {
    let reason = match tokio::time::timeout(READY_TIMEOUT, why_not_ready(&health)).await {
        Ok(None) => return answer(StatusCode::OK, json!({ "status": "ready" })),
        Ok(Some(reason)) => reason,
        Err(_) => "the database does not answer in time".into(),
    };
    tracing::warn!(%reason, "not ready");
    answer(StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "unavailable", "reason": reason }))
}

async fn why_not_ready(health: &Health) -> Option<Cow<'static, str>> {
    if health.shutdown.is_cancelled() {
        return Some("the server is stopping".into());
    }
    if health.app.store().is_incomplete() {
        let reason = "the database lacks a table or a column: restore it, or rebuild it";
        return Some(reason.into());
    }
    // Not among the lists, which may take long.
    let read = health.app.store().get::<Lease>(LeaseName::Jobs).await;
    if let Err(error) = read {
        tracing::error!(%error, "the database cannot be read");
        return Some("the database cannot be read".into());
    }
    let lag = health.app.store().lag();
    if lag.is_late() {
        return Some(lag.to_string().into());
    }
    // One request tries, and those that come meanwhile learn from it.
    let mut written = health.written.lock().await;
    if written.is_some_and(|at| at.elapsed() < WRITTEN_HOLDS) {
        return None;
    }
    *written = None;
    if let Err(error) = leadership::try_to_write(&health.app).await {
        tracing::error!(%error, "the database cannot be written to");
        return Some("the database cannot be written to".into());
    }
    *written = Some(now());
    None
}

#[expect(clippy::disallowed_methods, reason = "it tells how old an answer is, not what is true")]
fn now() -> Instant {
    Instant::now()
}

async fn metrics(State(health): State<Health>) -> Response {
    let leads = f64::from(u8::from(leadership::leads(&health.app)));
    metrics::gauge!("switchyard_leader").set(leads);
    let lag = health.app.store().lag();
    metrics::gauge!("switchyard_tables_behind_seconds").set(lag.time.as_secs_f64());
    // A database that does not answer leaves these as they were.
    let measured = attention::measure(&health.app);
    if let Ok(Err(error)) = tokio::time::timeout(MEASURED_WITHIN, measured).await {
        tracing::debug!(%error, "matters for a person could not be counted");
    }
    ([(CONTENT_TYPE, METRICS_TYPE)], telemetry::scrape()).into_response()
}

/// Which server this is, for others on the same database ([`crate::forwarding`]).
async fn peer(State(health): State<Health>) -> Response {
    answer(StatusCode::OK, json!({ "server": leadership::name(&health.app) }))
}

/// The answer at any other path of a listener for operators.
pub async fn not_found() -> Response {
    let message = "the operator's endpoints are /healthz, /readyz and /metrics";
    let body = json!({ "status": 404, "code": "NOT_FOUND", "message": message });
    answer(StatusCode::NOT_FOUND, body)
}

async fn method_not_allowed(method: Method) -> Response {
    let allow = [(ALLOW, "GET, HEAD, OPTIONS")];
    if method == Method::OPTIONS {
        return (StatusCode::NO_CONTENT, allow).into_response();
    }
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let body = json!({
        "status": status.as_u16(),
        "code": "METHOD_NOT_ALLOWED",
        "message": "this address takes GET",
    });
    (allow, answer(status, body)).into_response()
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
    use store::SqliteFile;
    use store::engine::Engine as _;
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
        let for_lists = SqliteFile::new(&path).readers() - 1;
        let key = KeySource::Given(SecretKey([7; 32]));
        let opened = wiring::open_to_serve(
            &Database::Sqlite(path),
            &key,
            wiring::default_env(),
            &mut crate::database::Held::default(),
            |env, _| Ok(env),
        );
        let opened = opened.unwrap_or_else(|_| panic!("a new database opens"));
        let (end, ended) = mpsc::channel::<()>();
        let (ended, begun) = (Arc::new(Held::new(ended)), Arc::new(AtomicUsize::new(0)));
        let lists: Vec<_> = (0..2 * for_lists)
            .map(|_| {
                let (store, ended) = (opened.app.store().clone(), Arc::clone(&ended));
                let begun = Arc::clone(&begun);
                tokio::spawn(async move {
                    let list = store.read(move |_| {
                        begun.fetch_add(1, Ordering::SeqCst);
                        // Nothing is sent: it waits for the end.
                        let _ = ended.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        Ok::<_, StoreError>(())
                    });
                    list.await
                })
            })
            .collect();
        let all_begun = async {
            while begun.load(Ordering::SeqCst) < for_lists {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, all_begun).await.expect("lists are read");
        let request = Request::get("/readyz").body(Body::empty()).expect("a request");
        let router = Endpoints::new(opened.app.clone(), CancellationToken::new()).for_everyone();
        let answer = router.oneshot(request).await.expect("routers always answer");
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(begun.load(Ordering::SeqCst), for_lists, "a list has ended meanwhile");
        drop(end);
        for list in lists {
            list.await.expect("no panic").expect("it is read");
        }
        wiring::close(opened).await;
    }
}
