//! The loop that delivers events: it works off what there is, then sleeps until an attempt has
//! ended, until a commit adds an event, or until something is due again.

use std::time::Duration;

use domain::time::Timestamp;
use service::App;
use service::webhooks::dispatch::Dispatcher;
use tokio_util::sync::CancellationToken;

/// The longest sleep: what another process has changed, such as an operator's command, is found
/// within it, and a lease that another server has left is taken up.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The longest sleep where other servers add events all the time. A read is one small query.
const SHARED_SLEEP_MAX: Duration = Duration::from_millis(50);

/// After a failure of ours: short enough for what lasts a moment, long enough not to fill a log.
const FAILURE_PAUSE: Duration = Duration::from_millis(500);

/// How long attempts that are under way may take when the process is asked to stop. A result that
/// is not kept is attempted again after the next start.
const LAST_ATTEMPTS: Duration = Duration::from_secs(1);

/// Runs until `shutdown`; what has come of attempts by then is kept.
pub async fn run(app: App, shutdown: CancellationToken) {
    let mut dispatcher = Dispatcher::new(app.clone());
    while !shutdown.is_cancelled() {
        let (pause, is_ours) = match dispatcher.step().await {
            Ok(step) if !step.is_ours => (SLEEP_MAX, false),
            Ok(step) if step.more => continue,
            Ok(step) => (until(&app, step.next), true),
            Err(error) => {
                tracing::error!(%error, "events could not be delivered, trying again");
                (FAILURE_PAUSE, false)
            }
        };
        let woken = async {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = dispatcher.attempted(), if is_ours => {}
                () = app.store().committed_deliveries().added().notified(), if is_ours => {}
            }
        };
        // Being woken and having slept enough mean the same: read again.
        let _ = tokio::time::timeout(pause, woken).await;
    }
    dispatcher.stop();
    let attempts = async {
        while dispatcher.under_way() > 0 {
            dispatcher.attempted().await;
        }
    };
    // Those that take longer are attempted again.
    let _ = tokio::time::timeout(LAST_ATTEMPTS, attempts).await;
    if let Err(error) = dispatcher.step().await {
        tracing::warn!(%error, "last outcomes not written: their deliveries are attempted again after the next start");
    }
}

/// How long there is nothing to do.
fn until(app: &App, next: Option<Timestamp>) -> Duration {
    let millis = next.map(|next| next.millis().saturating_sub(app.server_now().millis()).max(0));
    let until = millis.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
    let longest = if app.env().shares_database { SHARED_SLEEP_MAX } else { SLEEP_MAX };
    until.map_or(longest, |until| until.min(longest))
}
