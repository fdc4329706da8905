//! Asks platforms about incoming payments that were committed here, each in a task of its own: no
//! request owns it, and nothing that is retried is in its way.

use service::{App, approvals};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Runs until `shutdown`; a platform that is being asked may still answer.
pub async fn run(app: App, shutdown: CancellationToken) {
    let mut asked = JoinSet::new();
    loop {
        tokio::select! {
            question = app.store().questions().next() => {
                let app = app.clone();
                asked.spawn(async move { approvals::ask(&app, question).await });
            }
            Some(ended) = asked.join_next() => told(ended),
            () = shutdown.cancelled() => break,
        }
    }
    while let Some(ended) = asked.join_next().await {
        told(ended);
    }
}

fn told(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "an approval request to a platform broke off");
    }
}
