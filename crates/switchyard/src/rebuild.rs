//! `switchyard rebuild`: lost or damaged tables once more, from the journal.

use serde_json::json;
use store::error::StoreError;
use store::rebuild::{Progress as Followed, rebuild};

use crate::command::{Failure, emit, print};
use crate::config::{Config, EXIT_OK};
use crate::progress::{Progress, seconds};
use crate::telemetry::log_change;
use crate::wiring;

/// Makes the tables anew and tells where the former ones are.
pub fn run(config: &Config) -> Result<u8, Failure> {
    let (database, mut progress) = (&config.database, Progress::start());
    let journal = database.without_tables()?;
    wiring::refuse_missing(&journal, "--database-url")?;
    let held = database.hold()?;
    let keyring = wiring::keyring(&journal, &config.key)?.ok_or_else(wiring::missing_key)?;
    let mut first = None;
    let mut on_step = |followed| tell(followed, &mut first, &mut progress);
    let rebuilt = rebuild(&*database.engine(), &keyring, &mut on_step).map_err(|error| {
        wiring::failed(
            database,
            match error {
                StoreError::Conflict(what) => format!(
                    "another process uses it: stop every server and command that has it open \
                     ({what})"
                ),
                error => error.to_string(),
            },
        )
    })?;
    drop(held);
    let former = rebuilt.former.as_ref().map(|path| path.display().to_string());
    log_change("rebuild", database);
    emit(&json!({
        "database": database.to_string(),
        "journalRows": rebuilt.rows,
        "wentOnBehindRow": rebuilt.behind,
        "formerTables": former,
    }))?;
    let kept = former.map_or_else(String::new, |former| {
        format!(
            "The former tables are in {former}: nothing of them is needed once the check finds \
             nothing.\n"
        )
    });
    print(&format!(
        "{database}: new tables follow all {rows} rows of the journal; took {time}\n\n{kept}Check \
         them: switchyard verify --replay\n",
        rows = rebuilt.rows,
        time = seconds(progress.elapsed()),
    ))?;
    Ok(EXIT_OK)
}

/// Tells how far it is. `first` is the row behind which it began.
fn tell(Followed { row, of_rows }: Followed, first: &mut Option<u64>, progress: &mut Progress) {
    let Some(first) = *first else {
        *first = Some(row);
        progress.tell(&match row {
            0 => format!("making the tables anew from {of_rows} rows of the journal"),
            _ => format!("going on behind row {row} of {of_rows} of the journal"),
        });
        return;
    };
    let millis = u64::try_from(progress.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
    progress.tell_sometimes(|| {
        format!(
            "row {row} of {of_rows} of the journal, {percent} %, {rate} rows/s",
            percent = (row * 100).checked_div(of_rows).unwrap_or(100),
            rate = (row - first).saturating_mul(1_000) / millis,
        )
    });
}
