//! Moving a platform's clock on (docs/decisions/0013).

use std::time::Duration;

use domain::clock::Advance;
use domain::id::PlatformId;
use domain::platform::Platform;
use domain::time::Timestamp;
use store::unit::Unit;

use crate::app::App;
use crate::error::Error;
use crate::jobs::{Step, step};
use crate::{owners, webhooks};

/// How long a request waits for due work of its platform.
const SETTLE_WITHIN: Duration = Duration::from_secs(5);

/// How often a request checks that the leader has done it.
const SETTLE_PAUSE: Duration = Duration::from_millis(50);

/// Steps that a request makes at most, or waits for.
const SETTLE_STEPS: usize = 100;

/// Moves a platform's clock on; its timers are kept by it. [`settle`] then does the due work.
pub fn advance(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    advance: Advance,
    server_now: Timestamp,
) -> Result<Platform, Error> {
    let platform = owners::platform(unit, platform)?;
    let ahead = platform.advanced(advance, server_now).map_err(|refusal| {
        let field = match advance {
            Advance::BySeconds(_) => "advanceBySeconds",
            Advance::To(_) => "advanceTo",
        };
        Error::field(field, refusal.to_string())
    })?;
    webhooks::wake_worker(unit, platform.id)?;
    let moved = Platform { ahead, ..Platform::clone(&platform) };
    unit.put(moved.clone());
    Ok(moved)
}

/// Does the due work of a platform whose clock was moved on, or waits for the server that has the
/// lease. The request waits for `SETTLE_WITHIN` at most; the rest goes on without it.
pub async fn settle(app: &App, platform: PlatformId) {
    let settling = tokio::spawn(settled(app.clone(), platform));
    match tokio::time::timeout(SETTLE_WITHIN, settling).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(%error, "due jobs failed"),
        Ok(Err(error)) => tracing::error!(%error, "due jobs failed"),
        Err(_) => tracing::info!(%platform, "due jobs take longer than a request waits"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "no row of ours wakes a request when another server has done its work"
)]
async fn settled(app: App, platform: PlatformId) -> Result<(), Error> {
    for _ in 0..SETTLE_STEPS {
        let ended = app.bulkheads().ended();
        let Step { done, is_ours, .. } = step(&app).await?;
        let now = app.server_now();
        let has_due = app.store().read(move |view| view.has_due(platform, now)).await;
        let waits = app.bulkheads().has_under_way(platform);
        let can_go_on = done > 0 || !is_ours || waits;
        if !has_due.map_err(Error::Store)? || !can_go_on {
            break;
        }
        if !is_ours {
            tokio::time::sleep(SETTLE_PAUSE).await;
        } else if done == 0 {
            ended.await;
        }
    }
    Ok(())
}
