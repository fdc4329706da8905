//! Sends the approval requests that were committed here, each in a task of its own: no request of a
//! client owns it, and no retry delays it.

use service::{App, approvals};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Runs until `shutdown`; platforms may still answer requests that are under way then.
pub async fn run(app: App, shutdown: CancellationToken) {
    let mut sent = JoinSet::new();
    loop {
        tokio::select! {
            request = app.store().approval_requests().next() => {
                let app = app.clone();
                sent.spawn(async move { approvals::send(&app, request).await });
            }
            Some(ended) = sent.join_next() => log(ended),
            () = shutdown.cancelled() => break,
        }
    }
    while let Some(ended) = sent.join_next().await {
        log(ended);
    }
}

fn log(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "approval request broke off");
    }
}
