//! The one loop that waits for time to pass: it runs due jobs, then sleeps until the next timer,
//! until a commit sets one, or for a moment.

use std::time::Duration;

use service::{App, jobs};
use tokio_util::sync::CancellationToken;

/// The longest sleep: timers that another process has set, such as an operator's command, are found
/// within it.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The sleep of a server that does not lead: how late it notices that the lease has run out. Each
/// look is one small query.
const FOLLOWER_SLEEP: Duration = Duration::from_millis(500);

/// The longest sleep where other servers set timers all the time. A read is one small query.
const SHARED_SLEEP_MAX: Duration = Duration::from_millis(50);

/// After a failure of ours: short enough for what lasts a moment, long enough not to fill a log.
const FAILURE_PAUSE: Duration = Duration::from_millis(500);

/// How long calls to rails and institutions that are under way may take when the process is asked
/// to stop. An answer that comes later is asked for again after the next start.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Runs until `shutdown`; the step that it is at is finished, and answers that come soon are kept.
pub async fn run(app: App, shutdown: CancellationToken) {
    while !shutdown.is_cancelled() {
        let step = jobs::step(&app).await;
        let is_ours = step.as_ref().map_or(true, |step| step.is_ours);
        let pause = match step {
            Ok(step) if !step.is_ours => FOLLOWER_SLEEP,
            // A failed job is due again later; if not even that could be stored, it is due now.
            Ok(step) if step.failed > 0 && step.done == 0 => FAILURE_PAUSE,
            Ok(step) if step.done > 0 || step.more => continue,
            Ok(_) => until_next(&app),
            Err(error) => failed(&error),
        };
        let woken = async {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = app.store().timers_set().notified(), if is_ours => {}
            }
        };
        // Being woken and having slept enough mean the same: read again.
        let _ = tokio::time::timeout(pause, woken).await;
    }
    if tokio::time::timeout(LAST_ANSWERS, jobs::settled(&app)).await.is_err() {
        tracing::info!(
            "calls to rails or institutions were given up: they are made again after the next start"
        );
    }
    jobs::give_up_calls(&app);
}

fn failed(error: &dyn std::fmt::Display) -> Duration {
    tracing::error!(%error, "due jobs could not be read, trying again");
    FAILURE_PAUSE
}

/// How long nothing is due.
fn until_next(app: &App) -> Duration {
    let next = jobs::next_due(app);
    let millis = next.map(|next| next.millis().saturating_sub(app.server_now().millis()).max(0));
    let until = millis.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
    let longest = if app.env().shares_database { SHARED_SLEEP_MAX } else { SLEEP_MAX };
    until.map_or(longest, |until| until.min(longest))
}
