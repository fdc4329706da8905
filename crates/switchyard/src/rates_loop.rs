//! The loop that reads the file of rates again when it changes, and measures how old its rates are.

use std::sync::Arc;
use std::time::Duration;

use adapters::rates::feed::RateTable;
use domain::time::Timestamp;
use service::App;
use tokio_util::sync::CancellationToken;

/// How often the file is looked at: new rates hold a moment after they are there, and a look is one
/// question to the system.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs until `shutdown`.
pub async fn run(table: Arc<RateTable>, app: App, shutdown: CancellationToken) {
    metrics::gauge!("switchyard_rates_file_refused").set(0);
    loop {
        let (table, now) = (Arc::clone(&table), app.machine_now());
        // The file may be on a disk that is slow.
        if let Err(error) = tokio::task::spawn_blocking(move || look(&table, now)).await {
            tracing::error!(%error, "the file of rates could not be looked at");
        }
        if tokio::time::timeout(LOOK_EVERY, shutdown.cancelled()).await.is_ok() {
            return;
        }
    }
}

fn look(table: &RateTable, now: Timestamp) {
    match table.refresh() {
        Ok(false) => {}
        Ok(true) => {
            metrics::gauge!("switchyard_rates_file_refused").set(0);
            tracing::info!(as_of = %table.table().written_at(), "the file of rates was read again");
        }
        Err(error) => {
            metrics::gauge!("switchyard_rates_file_refused").set(1);
            let as_of = table.table().written_at();
            tracing::warn!(%error, %as_of, "the file of rates cannot be used: the last ones stay");
        }
    }
    let age_millis = now.millis().saturating_sub(table.table().written_at().millis());
    metrics::gauge!("switchyard_rates_age_seconds").set(age_millis as f64 / 1_000.0);
}
